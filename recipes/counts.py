"""Count what a study has made, file by file, beside the paper's counts, with what was left out on the way and why.

    python recipes/counts.py --paper recipes/runs/automedeval-13b/counts.yaml

Reads the files that the YAML names, each beside its dropped.jsonl; writes one Markdown table, reports/counts.md.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.records import option, read_json
from automedeval.records.command_line import parse, run
from automedeval.records.journal import write_whole
from automedeval.records.yaml_file import YamlFile
from automedeval.study.dataset.builder import UNVERIFIED

TABLE = Path("reports", "counts.md")
DROPPED = "dropped.jsonl"  # lines of what a step left out, each with its reason
COLUMNS = ("file", "paper", "in proportion", "here", "left out, and why")


@dataclass
class CountArguments:
    """The paper's counts, and the table."""

    paper: str = option(
        "YAML with files: the paper's count of each, and share: the size of this study beside the paper's"
    )


def main() -> None:
    """Count the files that there are, and write the table."""
    (args,) = parse((CountArguments,), __doc__)
    reader = YamlFile(args.paper)
    content = reader.read()
    reader.only(content, ("files", "share"))
    table = count_table(Path(), reader.take(content, "files", dict), content.get("share", 1))
    TABLE.parent.mkdir(exist_ok=True)
    write_whole(TABLE, table)
    print(table, end="")


def count_table(place: Path, paper: Mapping[str, int | None], share: float) -> str:
    """Return a Markdown table of the records of each file that there is.

    Args:
        place: the working folder of the study.
        paper: file → the paper's count; None if it gives none.
        share: how large this run is beside the paper's; 1 for the study itself.
    """
    rows, folders = [COLUMNS, ("---", "---:", "---:", "---:", "---")], set[Path]()
    for path, count in paper.items():
        file = place / path
        if not file.exists():
            continue
        number, reasons = _counted(file)
        why = []
        if file.parent not in folders:  # of a data set, once for all of its splits
            folders.add(file.parent)
            reasons += Counter(line["reason"] for line in _lines(file.with_name(DROPPED)))
            statistics = file.with_name("statistics.json")
            if statistics.exists() and UNVERIFIED in read_json(statistics)["arithmetic"]:
                why.append("no physician has verified these verdicts")
        why += [f"{times:,} {reason}" for reason, times in reasons.most_common()]
        expected = (
            ("–", "–")
            if count is None
            else (f"{count:,}", f"{count * share:,.1f}".removesuffix(".0"))
        )
        rows.append((f"`{path}`", *expected, f"{number:,}", "; ".join(why)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _counted(file: Path) -> tuple[int, Counter[str]]:
    """Return how many records a file has, and of verdicts how many are invalid and why."""
    if file.suffix == ".parquet":
        import pyarrow.parquet  # a plan alone needs none

        return pyarrow.parquet.read_metadata(file).num_rows, Counter()
    number, reasons = 0, Counter[str]()
    for record in _lines(file):
        number += 1
        if record.get("valid") is False:
            reasons[
                "verdicts beyond the context window"
                if record.get("overlong")
                else "invalid verdicts"
            ] += 1
    return number, reasons


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        with open(file, encoding="utf-8") as stream:
            yield from map(json.loads, stream)


if __name__ == "__main__":
    run(main)
