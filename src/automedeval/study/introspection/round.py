"""Build the data set of a round of introspection (paper, Algorithm 2): training rows with revised verdicts.

A decision, by consensus or by the jury, keeps or revises the verdict of a mistake. A revised row keeps its case, its slots and
its teacher; its `judge` becomes "consensus" or "jury". All other rows stay as they are, also those of cases that wait for the
jury.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.records.journal import arithmetic, write_lines
from automedeval.rubrics.grammar import ParsedAnswer, answer_columns
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.slots import by_slot
from automedeval.study.dataset.folder import TEST, Dataset, row_faults, write_splits
from automedeval.study.introspection.mistakes import Recorded
from automedeval.study.introspection.revisions import REVISIONS, Record, counts_of, waiting_in

TRAIN = "train"
# What is done while a case waits for the jury: the round is not written, or the row keeps its old verdict.
STOP, KEEP_OLD = WAITING = ("stop", "keep_old")


def revised_row(recorded: Recorded, reading: ParsedAnswer, by: str) -> dict[str, Any]:
    """Return a row with another verdict, in the slots of the row; `by` is "consensus" or "jury"."""
    prompt, prompt_digest = recorded.row["prompt"], recorded.row["prompt_digest"]
    if (reading.rationale is None) != (recorded.reading.rationale is None):
        # The prompt for scores alone differs from the one for scores with reasons.
        case = recorded.case
        texts = [case.responses[index].text for index in recorded.order]
        prompt = judge_messages(
            recorded.rubric, case.question, texts, case.reference, reading.rationale is not None
        )
        prompt_digest = digest(prompt)
    new = answer_columns(reading, recorded.rubric)
    new |= {"prompt": prompt, "judge": by, "prompt_digest": prompt_digest}
    if recorded.row["trained"] is None:  # the rubric may say something else by now
        new["trained"] = None
    return recorded.row | new


def decision_lines(records: Sequence[Record], rulings: Iterable[str]) -> list[str]:
    """Return the lines that report the decisions, and the unneeded `rulings` (case ids)."""
    counts, lines = counts_of(records), []
    for by, waiting in (("consensus", 0), ("jury", counts["unresolved"])):
        kept, revised = counts[by].values()
        if total := kept + revised + waiting:
            more = f", {waiting:,} waiting" if by == "jury" else ""
            lines.append(f"{by}: {total:,} cases → {kept:,} kept, {revised:,} revised{more}")
    if idle := len(
        set(rulings) - {each["case_id"] for each in records if each["decided_by"] == "jury"}
    ):
        lines.append(f"jury: {idle:,} decisions on cases that needed none")
    return lines


def write_round(
    folder: Path,
    dataset: Dataset,
    recorded: Sequence[Recorded],
    records: Sequence[Record],
    encoder: PromptEncoder | None,
    max_length: int | None,
) -> tuple[dict[str, Any], str]:
    """Write a round's training rows, the test split, and the records of all mistakes; `dataset` is the one before.

    Return the facts of `write_splits`, and the line that reports the rows. `encoder` and `max_length` are as in `row_faults`.
    RecordError if no training row is left.
    """
    # Paper: Table 1 says "All Blocks" for the rounds; section 3.3 updates the data set with the revised instances.
    by_case = {each.case.id: each for each in recorded}
    revised = {}
    for record in records:
        if verdict := record["revised_verdict"]:
            one = by_case[record["case_id"]]
            reading = ParsedAnswer(
                True, None, verdict["rationale"], by_slot(verdict["scores"], one.order)
            )
            revised[one.case.id] = revised_row(one, reading, record["decided_by"])
    rows = [revised.get(each.case.id, each.row) for each in recorded]
    faults = row_faults(
        rows, encoder, max_length, {each.rubric.name: each.rubric for each in recorded}
    )
    usable = [row for row, fault in zip(rows, faults) if fault is None]
    names = ("case_id", "teacher", "judge")
    dropped = [
        {name: row[name] for name in names} | {"reason": fault}
        for row, fault in zip(rows, faults)
        if fault is not None
    ]
    counted = arithmetic("verdicts", len(rows), Counter(row["reason"] for row in dropped))
    if not usable:
        raise RecordError(f"{dataset.place}: no training row is left: {counted}")
    apart = {name: rows for name, rows in dataset.splits.items() if name == TEST}
    written = write_splits(folder, {TRAIN: usable, **apart}, encoder)
    write_lines(folder / "dropped.jsonl", dropped)
    write_lines(folder / REVISIONS, records)
    old = len(waiting_in(records) - {row["case_id"] for row in dropped})
    more = f"; {old:,} wait for the jury and keep their old verdict" if old else ""
    return written, f"rows: {counted}; {len(revised):,} revised{more}"


def round_facts(
    dataset: Dataset,
    cases: int,
    records: Sequence[Record],
    discussion: Mapping[str, Any],
    lines: Iterable[str],
) -> dict[str, Any]:
    """Return what the statistics record of a round on so many cases.

    `discussion` has the facts that `write_discussion` wrote, and `lines` what was reported since.
    """
    return {
        "round": dataset.statistics.get("round", 0)
        + 1,  # a data set of recipes/build_dataset.py is round 0 itself
        "follows": discussion["follows"],
        "judge": discussion["judge"],
        "partners": {**discussion["partners"], "jury": "the jury"},
        "counts": {"cases": cases, **counts_of(records)},
        "arithmetic": [*dataset.statistics["arithmetic"], *discussion["arithmetic"], *lines],
    }
