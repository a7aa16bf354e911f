"""A small PDF, written by hand, for tests that read books."""

from pathlib import Path

import pypdf


def write_pdf(file: Path, pages: list[list[str]], password: str | None = None) -> Path:
    """Write a PDF of lines of text by hand; a page without lines shows nothing."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, lines in enumerate(pages):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        shown = "BT /F1 12 Tf 14 TL 50 750 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream".encode())
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n" + "".join(
        f"{place:010} 00000 n \n" for place in places
    )
    tail = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    file.write_bytes(content + table.encode() + tail.encode())
    if password is not None:
        writer = pypdf.PdfWriter(clone_from=file)
        writer.encrypt(password, "owner", algorithm="RC4-128")
        writer.write(file)
    return file
