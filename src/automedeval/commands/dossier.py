"""Make the dossier of a report, for an ethics board: what reporting lists ask, answered from the run, and all its files.

    automedeval dossier reports/mine --output pack
    automedeval dossier --verify pack

Writes copies of the report and of what it was made from, ledger.jsonl with the sha256 of each, dossier.html and dossier.md.
Start it in the folder in which the report was made. The pack holds cases and ratings: give it to those who may read them.

--verify writes nothing. Exit status: 0 if the pack is unchanged, 3 if anything is not as it was, 1 if an argument is wrong.
"""

import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from automedeval.cli import describe_result, parse
from automedeval.dossier.dossier import make_dossier
from automedeval.dossier.ledger import verify
from automedeval.records import RecordError


@dataclass
class DossierArguments:
    """The report of which a dossier is made, or the pack that is checked."""

    report: str | None = field(default=None, metadata={"help": "folder that automedeval report wrote"})
    output: str | None = field(default=None, metadata={"help": "folder for the pack; it may hold nothing else"})
    verify: str | None = field(default=None, metadata={"help": "folder of a pack: say what was changed in it"})

    def __post_init__(self) -> None:
        if bool(self.verify) == bool(self.report) or bool(self.report) != bool(self.output):
            raise RecordError("give --report and --output to make a dossier, or --verify to check one")


def main() -> None:
    """Make a dossier and print what it answers, or check one."""
    (args,) = parse((DossierArguments,), __doc__)
    if args.verify:
        problems, length, last = verify(Path(args.verify))
        print("\n".join(problems or [f"{args.verify}: unchanged."]))
        print(f"{length} lines in the ledger; the hash of the last one: {last}")
        sys.exit(3 if problems else 0)
    files, lines = make_dossier(Path(args.report), describe_result("dossier"))
    folder = Path(args.output)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if others := sorted(there - files.keys()):
        raise RecordError(f"{folder}: holds {others[0]}, which is not part of this pack; choose another folder")
    for name, content in files.items():  # head.json is the last: without it a pack that was cut off is no pack
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            with suppress(shutil.SameFileError):  # the report, or what it was made from, lies in the pack
                shutil.copyfile(content, place)
    print("\n".join([*lines, f"dossier: {folder / 'dossier.html'}", "Not for clinical use."]))
