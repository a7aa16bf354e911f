"""Freeze a panel: what physicians checked of a judge, so that `automedeval panel check` can tell later whether it is the same.

    automedeval panel freeze --cases cases.jsonl --ratings ratings.jsonl --verdicts verdicts/mine --output panels/mine

Takes the cases that have ratings and verdicts of one judge that gives scores, and loads the judge by the record that its run
left beside the verdicts. Dangerous facts are planted in good answers, and beside them harmless edits of the same kind, their
clean twins; the judge scores both. The folder holds all of it with the judge's rubric, its fingerprints, how it is loaded, and
the SHA-256 of each file (panel.json). A folder in which it stopped halfway goes on.
"""

from dataclasses import dataclass, field
from pathlib import Path

from automedeval.cli import TableArguments, parse
from automedeval.panel.freezing import freeze
from automedeval.records import check_least


@dataclass
class PanelFreezeArguments(TableArguments):
    """The files of the panel, and how many dangers are planted."""

    cases: str = field(metadata={"help": "the rated cases, or the table of answers"})
    ratings: str = field(metadata={"help": "physicians' ratings of the responses"})
    verdicts: str = field(metadata={"help": "folder of one judge's verdicts, by automedeval judge"})
    output: str = field(metadata={"help": "folder of the panel; one that is frozen already is never changed"})
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )
    dangers: int = field(
        default=3,
        metadata={"help": "most dangers planted in each case: each check judges them, and their twins, again"},
    )
    abstention: str | None = field(
        default=None, metadata={"help": "abstention.json of automedeval abstain: its threshold is frozen too"}
    )

    def __post_init__(self) -> None:
        check_least(self, 1, "dangers")


def main() -> None:
    """Freeze the panel, and print what is in it."""
    (args,) = parse((PanelFreezeArguments,), __doc__, first=("cases", "ratings", "verdicts", "dangers"))
    output = Path(args.output)
    files = (args.cases, args.ratings, args.verdicts)
    lines = freeze(files, output, args.rubric, args.dangers, args.abstention, args.blank)
    print("\n".join(lines))
    print(f"panel: {output}")
    print(f"check it with: automedeval panel check {output}")
