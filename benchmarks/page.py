"""Write docs/performance.md from the JSON of the benchmarks.

    python benchmarks/page.py
    python benchmarks/page.py --results benchmarks/results --output docs/performance.md

Missed targets come first, then one table for each benchmark with its command and date.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from rows import figure

from automedeval.records.text import cell

ROOT = Path(__file__).parents[1]
HEAD = """# Performance

Speed and memory as the [benchmarks](../benchmarks/README.md) measured them; agreement with people is in the
[results](results.md). `python benchmarks/page.py` writes this page from `benchmarks/results/`.

"9 × peer" says how many times as good as the peer a figure is, in the same run; then the target holds for this ratio.
Figures without a target are in the files.
"""
COLUMNS = ("measured", "value", "target")


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row under `COLUMNS`."""
    value = f"{figure(row['value'])} {cell(row['unit'])}".strip()
    value += "" if row["ratio"] is None else f", {row['ratio']:.2f} × {cell(row['peer'])}"
    target = (row["target"] or "").replace(">=", "≥").replace("<=", "≤")
    return [cell(row["name"]), value, f"**{target}, missed**" if row["met"] is False else target]


def table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    """Lay out a Markdown table."""
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def anchor(title: str) -> str:
    """Return the anchor that a heading gets."""
    return "".join(
        letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-"
    )


def setting(record: dict[str, Any]) -> str:
    """Return the machine and versions of a record in words."""
    machine = record["machine"]
    device = f", {machine['gpu']}" if machine["gpu"] else ""
    kind = "with" if machine["bfloat16"] else "without"
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"{machine['processor']}, {machine['cores']} cores {kind} bfloat16{device}; {versions}"


def section(record: dict[str, Any], usual: str) -> str:
    """Return the section of a benchmark; it names the machine and the versions where they are not the usual ones."""
    shown = [row for row in record["rows"] if row["target"]] or record[
        "rows"
    ]  # what has no target stays in the file
    parts = [
        f"## {record['title']}",
        f"`{record['command']}`",
        table(COLUMNS, [cells(row) for row in shown]),
    ]
    if record["notes"]:
        parts.append("\n".join(f"- {note}" for note in record["notes"]))
    others = (
        "nothing else ran"
        if record["idle"]
        else f"other programs used {record['other_cores']:g} cores"
    )
    where = "" if setting(record) == usual else f" {setting(record)}."
    took = f"{record['seconds']:.0f} s; {others}"
    return "\n\n".join([*parts, f"{record['date']}, {took}; commit {record['commit']}.{where}"])


def page(records: list[dict[str, Any]]) -> str:
    """Return the page of these records as Markdown."""
    records = sorted(records, key=lambda record: record["title"])
    (usual, _), *_ = Counter(map(setting, records)).most_common(1)
    missed = Counter(
        record["title"] for record in records for row in record["rows"] if row["met"] is False
    )
    count = sum(row["met"] is not None for record in records for row in record["rows"])
    where = (
        ", ".join(f"{number} of [{title}](#{anchor(title)})" for title, number in missed.items())
        or "none"
    )
    listed = f"{missed.total()} of {count}: {where}."
    sections = (section(record, usual) for record in records)
    return (
        "\n\n".join(
            [HEAD.strip(), f"Machine: {usual}.", f"## Missed targets\n\n{listed}", *sections]
        )
        + "\n"
    )


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a folder."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "docs" / "performance.md",
        help="(default: %(default)s)",
    )
    args = parser.parse_args()
    args.output.write_text(page(read(args.results)), encoding="utf-8")


if __name__ == "__main__":
    main()
