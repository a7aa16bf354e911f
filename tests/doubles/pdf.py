"""A small PDF for tests that read books."""

from pathlib import Path

import pypdf
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure


def write_pdf(file: Path, pages: list[list[str]], password: str | None = None) -> Path:
    """Write a PDF of lines of text; a page without lines shows nothing."""
    with PdfPages(file) as pdf:
        for lines in pages:
            figure = Figure()
            for number, line in enumerate(lines):
                figure.text(0.1, 0.9 - number / 40, line, parse_math=False, family="monospace")
            pdf.savefig(figure)
    if password is not None:
        writer = pypdf.PdfWriter(clone_from=file)
        writer.encrypt(password, "owner", algorithm="RC4-128")
        writer.write(file)
    return file
