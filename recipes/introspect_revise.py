"""Write the data set of a round of introspection: what the partners and the jury decided (paper section 3.3, Algorithm 2).

    python recipes/introspect_revise.py --dataset instructions --cases cases.jsonl --output instructions-round1
    python recipes/introspect_revise.py --dataset instructions --cases cases.jsonl --output new --waiting keep_old

Reads OUTPUT.discussion/ of recipes/introspect_discuss.py, where the jury's decisions are in decided/jury.jsonl. Writes
OUTPUT/{train,test}.parquet with a card, statistics.json, revisions.jsonl, dropped.jsonl and run.json. While cases
wait for the jury, nothing is written to OUTPUT, and a line says what is next, unless --waiting says what becomes of their rows.
"""

from dataclasses import dataclass
from pathlib import Path

import automedeval
from automedeval.records import option
from automedeval.records.command_line import parse, run
from automedeval.records.journal import write_lines
from automedeval.records.run_record import record_run
from automedeval.records.text import several
from automedeval.study.dataset.folder import RowLimit, new_dataset, write_card
from automedeval.study.introspection.jury import DECIDED, QUEUE, read_jury
from automedeval.study.introspection.revisions import (
    REVISIONS,
    RoundArguments,
    apply_rulings,
    counts_of,
    decision_line,
    read_discussion,
)
from automedeval.study.introspection.round import STOP, WAITING, write_round


@dataclass(kw_only=True)
class ReviseArguments(RoundArguments):
    """The jury, and the rows."""

    waiting: str = option(
        "if cases wait for the jury: stop, or keep_old: keep their rows with the old verdicts",
        STOP,
        choices=list(WAITING),
    )
    training: str | None = option(
        "YAML of recipes/sft.py: rows too long for its max_length are dropped (default: no length is checked)",
        None,
    )


def main() -> None:
    """Take the jury's decisions, and write the round's data set."""
    (args,) = parse((ReviseArguments,), __doc__)
    limit = RowLimit.read(args.training)
    dataset, recorded = args.read()
    records, discussion = read_discussion(args.discussion, dataset)
    apply_rulings(records, read_jury(args.discussion, recorded))
    write_lines(args.discussion / REVISIONS, records)
    print(decision_line(records))
    count = counts_of(records)["unresolved"]
    waiting = f"{several(count, 'case')} for the jury in {args.discussion / QUEUE}"
    if count and args.waiting == STOP:
        print(
            f"{waiting}: decide on the physicians' page (docs/annotation.md) and export into {args.discussion / DECIDED}, or "
            f"fill in a copy of the file there; then run the same command again. To go on without the jury: --waiting keep_old"
        )
        return
    output = Path(args.output)
    with new_dataset(output) as folder:
        facts = write_round(folder, dataset, recorded, records, discussion, limit)
        facts |= {"folder": output.name, "version": automedeval.__version__}
        write_card(folder, facts)
        record_run(folder / "run.json", args)
    print(f"instructions {facts['fingerprint']}: {output}")
    if count:
        print(f"{waiting}; the same command takes their decisions")


if __name__ == "__main__":
    run(main)
