"""A small data set for introspection, with cases, a judge's verdicts and recorded partners, and a round run on it."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from doubles.tiny_dataset import FACTS
from factories import MODELS, Json, case_of, rationale_of, read, read_json, verdict_of, write
from programs import run_recipe

from automedeval.records import Case, Verdict
from automedeval.rubrics import read_rubric
from automedeval.study.dataset.folder import read_dataset, write_card, write_splits
from automedeval.study.dataset.instructions import instruction
from automedeval.study.introspection.mistakes import Recorded, read_recorded

RUBRICS = {name: read_rubric(name) for name in ("automedeval", "medical_pairwise")}
RUBRICS = {rubric.name: rubric for rubric in RUBRICS.values()}
BOTH = ("dataset", "output", "rubrics")
REVISE = ("waiting", "training")
AUTOMEDEVAL = RUBRICS["automedeval@1"]


def scores_of(number: int) -> tuple[int, int, int]:
    return (1 + number % 5, 1 + (number + 2) % 5, 1 + (number + 3) % 5)


def taught(verdict: Verdict) -> Verdict:
    """Return a verdict as that of the strong teacher."""
    return replace(verdict, teacher="strong", quality="high")


def recorded_of(case: Case, scores: Sequence[int], **more: Any) -> Recorded:
    """Return a teacher's verdict as it is read back from a row of the data set."""
    verdict = verdict_of(case, scores, "teacher", **more)
    row = instruction(case, taught(verdict), RUBRICS[verdict.rubric])
    return read_recorded([row], [case], RUBRICS, "data")[case.id]


def slot_line(scores: Sequence[int]) -> str:
    doctors = (f"Doctor {slot}: {score} points." for slot, score in enumerate(scores, 1))
    return f"Score: {' '.join(doctors)}"


class Lessons:
    """The files of a small study; `introspect` runs a round on them."""

    def __init__(self, folder: Path, build: bool = True):
        self.folder = folder
        self.output = folder / "round1"
        self.cases = [case_of(at) for at in range(8)]
        self.order = {case.id: random.Random(case.id).sample(range(3), 3) for case in self.cases}
        self.record = {case.id: scores_of(at) for at, case in enumerate(self.cases)}
        self.verdicts = [verdict_of(case, self.record[case.id]) for case in self.cases[:-1]]
        self.said: list[dict] = []
        if build:
            self.build()

    def build(self, teacher: Sequence[Verdict] | None = None) -> None:
        """Write the data set of a teacher's verdicts: the last case is its test split, the others are two stages."""
        teacher = teacher or [
            verdict_of(case, self.record[case.id], "teacher", order=self.order[case.id])
            for case in self.cases
        ]
        place = self.folder / "data"
        place.mkdir(exist_ok=True)
        rows = [
            instruction(case, taught(verdict), AUTOMEDEVAL)
            for case, verdict in zip(self.cases, teacher)
        ]
        written = write_splits(place, {"stage1": rows[:3], "stage2": rows[3:-1], "test": rows[-1:]})
        about = {"folder": "data", "rubrics": {}, "arithmetic": ["8 cases"]}
        write_card(place, written | FACTS | about)
        self.write("cases.jsonl", self.cases)

    def write(self, name: str, records: Iterable[Any]) -> Path:
        return write(self.folder / name, records)

    def read(self, name: str) -> list[dict]:
        return read(self.folder / name)

    def misjudge(self, number: int, scores: Sequence[int] | None, **more: Any) -> None:
        self.verdicts[number] = verdict_of(self.cases[number], scores, **more)

    def say(self, number: int, role: str, text: str, call: int = 1) -> None:
        """Add an answer of a partner to the recording."""
        about = {"case_id": self.cases[number].id, "teacher": "strong", "knowledge": "none"}
        self.said.append(about | {"role": role, "round": call, "text": text})

    def agree(self, number: int, scores: Sequence[int]) -> None:
        """Record a first exchange in which both partners agree on these scores (in the order of the responses)."""
        self.say(number, "suggestion", f"Suggestion: All of it.\n{slot_line(scores)}")
        self.say(number, "review", "Review: accept")
        self.say(
            number, "revision", f"{rationale_of(MODELS, range(3), 'poor')}\n{slot_line(scores)}"
        )

    def introspect(self, **options: Any) -> CompletedProcess:
        """Run both recipes of a round, each with the options that it has; the second does not follow a failure."""
        verdicts = self.write("verdicts.jsonl", self.verdicts)
        both = {"dataset": self.folder / "data", "output": self.output}
        both |= {name: options.pop(name) for name in BOTH if name in options}
        both["cases"] = self.folder / "cases.jsonl"
        revise = {name: options.pop(name) for name in REVISE if name in options}
        done = run_recipe("introspect_discuss", **both, **{"verdicts": verdicts} | options)
        if done.returncode:
            return done
        then = run_recipe("introspect_revise", **both, **revise)
        then.stdout = done.stdout + then.stdout
        then.stderr = done.stderr + then.stderr
        return then

    def discuss(self, **options: Any) -> CompletedProcess:
        said = f"recording:{self.write('said.jsonl', self.said)}"
        return self.introspect(suggester=said, reviewer=said, store="none", **options)

    def rows(self, split: str = "train") -> dict[str, dict]:
        return {row["case_id"]: row for row in read_dataset(self.output).splits[split]}

    def old_rows(self) -> dict[str, dict]:
        return {row["case_id"]: row for row in read_dataset(self.folder / "data").training}

    def statistics(self) -> Json:
        return read_json(self.output / "statistics.json")

    def revisions(self) -> dict[str, dict]:
        return {record["case_id"]: record for record in self.read("round1/revisions.jsonl")}
