"""Check a frozen panel: judge it again with today's judge, and tell whether that is worse than the one physicians checked.

    automedeval panel check panels/mine
    automedeval panel check panels/mine --judge models/new-judge --by 0.05

Every file of the panel is compared with its SHA-256 first. Then the judge is loaded as it was frozen, or another one by the
panel's rubric, and scores the cases, the planted dangers and their clean twins again, in OUTPUT/DATE; one that stopped halfway
goes on. OUTPUT/panel.html and panel.md show every check. Nothing is taken from a cache of answers.

Exit status 0: the same: agreement with physicians is not lower by --by or more, and no other figure is shown to be worse; 3:
worse: a figure is shown to be worse by more than --by; 4: it cannot be told, and about how many more rated cases would tell; 1:
an error. Each statement holds at 95 %.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from automedeval.cli import describe_result, describe_run, parse, print_notes
from automedeval.panel.folder import read_panel
from automedeval.panel.replay import history, load_today, replay, run_folder
from automedeval.panel.report import render, sentences
from automedeval.records import check_between
from automedeval.records.journal import write_whole
from automedeval.reports.text import printable


@dataclass
class PanelCheckArguments:
    """The panel, and what of its judge is another today."""

    panel: str = field(metadata={"help": "folder of automedeval panel freeze"})
    by: float = field(default=0.1, metadata={"help": "share by which a figure may be worse"})
    output: str | None = field(
        default=None, metadata={"help": "folder for one folder for each check, and the page (default: PANEL/checks)"}
    )
    judge: str | None = field(default=None, metadata={"help": "another judge, named as for automedeval judge"})
    base_url: str | None = field(default=None, metadata={"help": "another URL of the endpoint"})
    encoder: str | None = field(default=None, metadata={"help": "another place of the small judge's encoder"})
    device: str | None = field(default=None, metadata={"help": "another device: cpu, cuda, cuda:N, mps, auto"})

    def __post_init__(self) -> None:
        check_between(self, 0, 1, "by")


def main() -> None:
    """Check the panel, write the page, print what it says, and exit with its status."""
    (args,) = parse((PanelCheckArguments,), __doc__)
    panel, checks = read_panel(Path(args.panel)), Path(args.output or Path(args.panel) / "checks")
    changes = {name: getattr(args, name) for name in ("judge", "base_url", "encoder", "device") if getattr(args, name)}
    judge = load_today(panel, changes)
    folder, note = run_folder(panel, judge, checks, describe_run(args))
    if note:
        print(printable(note), flush=True)
    check = replay(panel, judge, folder, args.by, describe_result("panel check"))
    for name, text in render(history(checks, panel), f"Panel {panel.folder.resolve().name}").items():
        write_whole(checks / name, text)
    print("\n".join(map(printable, [*sentences(check), *(f"note: {note}" for note in check["notes"])])))
    if judge.chat is not None:
        print_notes(judge.chat.notes())
    print(f"check: {folder}\npage: {checks / 'panel.html'}")
    print("Not for clinical use.")
    sys.exit(check["status"])
