"""Build the data set of a round of introspection (paper, Algorithm 2): training rows with revised verdicts.

A decision, by consensus or by the jury, keeps or revises the verdict of a mistake. A revised row keeps its case, its slots and
its teacher; its `judge` becomes "consensus" or "jury". All other rows stay as they are, also those of cases that wait for the
jury.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.dataset.folder import TEST, Dataset, row_faults, write_splits
from automedeval.introspection.mistakes import KINDS, Recorded
from automedeval.introspection.revisions import REVISIONS, Record, counts_of, revised_reading
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.records.journal import arithmetic, write_lines
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict
from automedeval.rubrics.prompts import judge_messages

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
        prompt = judge_messages(recorded.rubric, case.question, texts, case.reference, reading.rationale is not None)
        prompt_digest = digest(prompt)
    completion = [{"role": "assistant", "content": format_verdict(reading, recorded.rubric)}]
    new = {"prompt": prompt, "completion": completion, "judge": by, "prompt_digest": prompt_digest}
    return {**recorded.row, **new}


@dataclass
class Round:
    """A round's data set under construction.

    Attributes:
        dataset, recorded: the data set before, and its training rows.
        records: the records of the mistakes, with their decisions.
        discussion: the facts of the discussion, as `write_discussion` wrote them.
        lines: what was reported so far.
    """

    dataset: Dataset
    recorded: Sequence[Recorded]
    records: Sequence[Record]
    discussion: dict[str, Any]
    lines: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> set[str]:
        """Return the ids of the cases that wait for the jury."""
        return {record["case_id"] for record in self.records if record["decided_by"] is None}

    def report(self, *lines: str) -> None:
        """Print the lines that report a step, and keep them for the card."""
        for line in lines:
            print(line)
        self.lines += lines

    def report_decisions(self, rulings: Iterable[str]) -> None:
        """Report the decisions, and the unneeded `rulings` (case ids)."""
        counts = counts_of(self.records, KINDS)
        for by, waiting in (("consensus", 0), ("jury", counts["unresolved"])):
            kept, revised = counts[by].values()
            if total := kept + revised + waiting:
                more = f", {waiting:,} waiting" if by == "jury" else ""
                self.report(f"{by}: {total:,} cases → {kept:,} kept, {revised:,} revised{more}")
        if idle := len(set(rulings) - {each["case_id"] for each in self.records if each["decided_by"] == "jury"}):
            self.report(f"jury: {idle:,} decisions on cases that needed none")

    def write(self, folder: Path, encoder: PromptEncoder | None, max_length: int | None) -> dict[str, Any]:
        """Write the training rows, the test split, and the records of all mistakes; return the facts of `write_splits`.

        RecordError if no training row is left. For `encoder` and `max_length` see `row_faults`.
        """
        # Paper: Table 1 says "All Blocks" for the rounds; section 3.3 updates the data set with the revised instances.
        by_case = {each.case.id: each for each in self.recorded}
        revised = {}
        for record in self.records:
            if record["revised_verdict"]:
                one = by_case[record["case_id"]]
                revised[one.case.id] = revised_row(one, revised_reading(record, one), record["decided_by"])
        rows = [revised.get(each.case.id, each.row) for each in self.recorded]
        faults = row_faults(rows, encoder, max_length, {each.rubric.name: each.rubric for each in self.recorded})
        usable = [row for row, fault in zip(rows, faults) if fault is None]
        rejected = [(row, fault) for row, fault in zip(rows, faults) if fault is not None]
        names = ("case_id", "teacher", "judge")
        dropped = [{name: row[name] for name in names} | {"reason": reason} for row, reason in rejected]
        counted = arithmetic("verdicts", len(rows), Counter(reason for _, reason in rejected))
        old = len(self.waiting - {row["case_id"] for row, _ in rejected})
        more = f"; {old:,} wait for the jury and keep their old verdict" if old else ""
        self.report(f"rows: {counted}; {len(revised):,} revised{more}")
        if not usable:
            raise RecordError(f"{self.dataset.place}: no training row is left")
        apart = {name: rows for name, rows in self.dataset.splits.items() if name == TEST}
        written = write_splits(folder, {TRAIN: usable, **apart}, encoder)
        write_lines(folder / "dropped.jsonl", dropped)
        write_lines(folder / REVISIONS, self.records)
        if (self.dataset.place / "topics.svg").exists():
            shutil.copyfile(self.dataset.place / "topics.svg", folder / "topics.svg")
        return written

    def facts(self) -> dict[str, Any]:
        """Return what the statistics record of the round."""
        about = self.discussion
        counts = {"cases": len(self.recorded), **counts_of(self.records, KINDS), "unreadable": about["unreadable"]}
        lines = [*self.dataset.statistics["arithmetic"], *about["arithmetic"], *self.lines]
        return {
            "round": number_of(self.dataset),
            "follows": about["follows"],
            "judge": about["judge"],
            "partners": {**about["partners"], "jury": "the jury"},
            "counts": counts,
            "arithmetic": lines,
        }


def number_of(dataset: Dataset) -> int:
    """Return the number of the round on a data set; one of recipes/build_dataset.py is round 0 itself."""
    return dataset.statistics.get("round", 0) + 1
