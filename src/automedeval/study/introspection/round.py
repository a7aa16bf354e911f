"""Build the data set of a round of introspection (paper, Algorithm 2): training rows with revised verdicts.

A decision, by consensus or by the jury, keeps or revises the verdict of a mistake. A revised row keeps its case, its slots and
its teacher; its `judge` becomes "consensus" or "jury". All other rows stay as they are, also those of cases that wait for the
jury.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from automedeval.records import JsonObject, RecordError, digest
from automedeval.records.journal import arithmetic, write_lines
from automedeval.rubrics.grammar import ParsedAnswer, answer_columns
from automedeval.rubrics.slots import by_slot
from automedeval.study.dataset.folder import (
    TEST,
    UNCOUNTED,
    Dataset,
    RowLimit,
    row_faults,
    write_splits,
)
from automedeval.study.dataset.instructions import row_prompt
from automedeval.study.introspection.mistakes import Recorded
from automedeval.study.introspection.revisions import REVISIONS, Record, counts_of, decision_line

TRAIN = "train"
# What is done while a case waits for the jury: the round is not written, or the row keeps its old verdict.
STOP, KEEP_OLD = WAITING = ("stop", "keep_old")


def new_row(recorded: Recorded, record: Record | None) -> JsonObject:
    """Return the row of a case in the new data set; `record` is that of its mistake, None without one.

    A revised verdict stands in the slots of the row; the row's `judge` says who revised it, "consensus" or "jury".
    """
    row = recorded.row
    if record is None or record["revised_verdict"] is None:
        return row
    verdict = record["revised_verdict"]
    scores = by_slot(verdict["scores"], recorded.order)
    reading = ParsedAnswer(True, None, verdict["rationale"], scores)
    new = answer_columns(reading, recorded.rubric) | {"judge": record["decided_by"]}
    if row["trained"] is None:  # the rubric may say something else by now
        new["trained"] = None
    with_reasons = reading.rationale is not None
    if with_reasons != (recorded.reading.rationale is not None):
        # The prompt for scores alone differs from the one for scores with reasons.
        prompt = row_prompt(recorded.case, recorded.order, recorded.rubric, with_reasons)
        new |= {"prompt": prompt, "prompt_digest": digest(prompt)}
    return row | new


def write_round(
    folder: Path,
    dataset: Dataset,
    recorded: Mapping[str, Recorded],
    records: Sequence[Record],
    discussion: JsonObject,
    limit: RowLimit | None,
) -> JsonObject:
    """Write a round's training rows, the test split, and the records of all mistakes; report the rows.

    `dataset` is the one before, and `discussion` has the facts that `write_discussion` wrote. Return the facts of the card but
    for the folder's name and the version. RecordError if no training row is left.
    """
    # Paper: Table 1 says "All Blocks" for the rounds; section 3.3 updates the data set with the revised instances.
    record_of = {record["case_id"]: record for record in records}
    rows = {case_id: new_row(row, record_of.get(case_id)) for case_id, row in recorded.items()}
    rubrics = {row.rubric.name: row.rubric for row in recorded.values()}
    faults = row_faults(rows, limit, rubrics)
    usable = [row for case_id, row in rows.items() if case_id not in faults]
    dropped = []
    for case_id, fault in faults.items():
        about = {name: rows[case_id][name] for name in ("case_id", "teacher", "judge")}
        dropped.append(about | {"reason": fault})
    lines = [f"rows: {arithmetic('verdicts', len(rows), Counter(faults.values()))}"]
    if not usable:
        raise RecordError(f"{dataset.place}: no training row is left: {lines[0]}")
    if limit is None:
        lines.append(UNCOUNTED)
    print("\n".join(lines))
    splits = {TRAIN: usable, TEST: dataset.splits.get(TEST, [])}
    written = write_splits(folder, splits, limit)
    write_lines(folder / "dropped.jsonl", dropped)
    write_lines(folder / REVISIONS, records)
    before = dataset.statistics
    return {
        **before,
        **written,
        "round": before.get("round", 0) + 1,  # a data set of build_dataset.py is round 0 itself
        "follows": discussion["follows"],
        "judge": discussion["judge"],
        "partners": discussion["partners"],
        "counts": {"cases": len(recorded), **counts_of(records)},
        "arithmetic": [
            *before["arithmetic"],
            *discussion["arithmetic"],
            decision_line(records),
            *lines,
        ],
    }
