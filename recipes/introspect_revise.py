"""Write the data set of a round of introspection: what the partners and the jury decided (paper section 3.3, Algorithm 2).

    python recipes/introspect_revise.py --dataset instructions --cases cases.jsonl --output instructions-round1
    python recipes/introspect_revise.py --config recipes/runs/automedeval-135m/revise1.yaml

Reads OUTPUT.discussion/ of recipes/introspect_discuss.py, where the jury's decisions are in jury.jsonl, or in decided/ by the
physicians' page. Writes OUTPUT/{train,test}.parquet with a card, statistics.json, revisions.jsonl, dropped.jsonl and run.json.
While cases wait for the jury, nothing is written to OUTPUT, and a line says what is next, unless --waiting says what becomes of
their rows.
"""

from dataclasses import dataclass
from pathlib import Path

import automedeval
from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import new_dataset
from automedeval.introspection.jury import DECIDED, read_jury, write_queue
from automedeval.introspection.revisions import REVISIONS, RoundArguments, decide, read_discussion
from automedeval.introspection.round import STOP, WAITING, Round
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, check_least, option
from automedeval.records.command_line import parse, run
from automedeval.records.journal import Journal, write_lines
from automedeval.records.run_record import record_run


@dataclass(kw_only=True)
class ReviseArguments(RoundArguments):
    """The jury, and the rows."""

    waiting: str = option(
        "if cases wait for the jury: stop, leave_out their rows, or keep_old: keep the rows with the old verdicts",
        STOP,
        choices=list(WAITING),
    )
    wait: bool = option("end with exit status 1 where cases wait for the jury and --waiting is stop", False)
    tokenizer: str | None = option(
        "checkpoint to be trained, whose tokens are counted (default: lengths are not checked)", None
    )
    tokenizer_template: str | None = option(
        "Jinja file with a chat template, for a checkpoint without one; none: its own", None
    )
    max_length: int = option("rows with more tokens are dropped", 2048)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "max_length")


def main() -> None:
    """Take the jury's decisions, and write the round's data set."""
    (args,) = parse((ReviseArguments,), __doc__)
    encoder = PromptEncoder.from_checkpoint(args.tokenizer, args.tokenizer_template) if args.tokenizer else None
    dataset, recorded = args.read()
    records, discussion = read_discussion(args.discussion, dataset)
    by_case, queue = {each.case.id: each for each in recorded}, args.discussion / "jury.jsonl"
    rulings, filled = read_jury(queue, by_case)
    with Journal(args.discussion / "discussion.jsonl") as journal:
        decide(records, rulings, by_case, journal)
    this = Round(dataset, recorded, records, discussion, args.waiting)
    write_queue(queue, [by_case[case_id] for case_id in by_case if case_id in this.waiting], filled)
    write_lines(args.discussion / REVISIONS, records)
    this.report_decisions(rulings)
    count = len(this.waiting)
    waits = f"{count:,} {'case waits' if count == 1 else 'cases wait'} for the jury in {queue}"
    if count and args.waiting == STOP:
        print(
            f"{waits}: fill them in there, or decide on the physicians' page (docs/annotation.md) and export into "
            f"{args.discussion / DECIDED}; then run the same command again. To go on without the jury: --waiting leave_out or "
            "--waiting keep_old"
        )
        if args.wait:
            raise RecordError(f"{args.output} is not written before the jury has decided")
        return
    with new_dataset(args.output) as folder:
        splits, written = this.write(folder, encoder, args.max_length)
        if encoder is None:
            this.report("rows: no --tokenizer is given, so no length was checked")
        facts = dataset.statistics | card_facts(splits, written)
        facts |= this.facts()
        facts |= {"folder": Path(args.output).name, "version": automedeval.__version__, "max_length": args.max_length}
        facts |= {"tokenizer": args.tokenizer and Path(args.tokenizer).name}
        write_card(folder, facts)
        record_run(folder / "run.json", args)
    print(f"instructions {facts['fingerprint']}: {args.output}")
    if count:
        print(f"{waits}; the same command takes their decisions")


if __name__ == "__main__":
    run(main)
