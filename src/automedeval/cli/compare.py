"""Compare candidates by many verdicts and few ratings: the ratings of some cases correct the verdicts on all.

    automedeval compare --cases cases.jsonl --verdicts verdicts --ratings ratings.jsonl --output comparison
    automedeval compare --cases cases.jsonl --verdicts old=v1.jsonl new=v2.jsonl --output comparison
    automedeval compare --cases v1=old.jsonl v2=new.jsonl --verdicts verdicts/old verdicts/new --output comparison
    automedeval compare --cases cases.jsonl --verdicts verdicts --ratings labels.jsonl --output comparison
    automedeval compare --cases cases.jsonl --verdicts verdicts --fail_if_worse NEW OLD --by 0.1

Writes OUTPUT/comparison.json, comparison.md and comparison.html: mean scores, differences and shares of pairs won from the
ratings alone, from each judge alone, and from both. The intervals of both are valid for any judge, if the rated cases are a
random draw of all cases. The first of several judges leads. Of judges of criteria the unclipped scores are compared; labels of
criteria take the place of ratings. Without --ratings all is by the judges alone.

The page shows case by case what changed from the first candidate to the others, by the first judge. Two versions may stand in
two files, each judged by itself by the same judge.

--fail_if_worse is a gate for continuous integration. It takes no ratings: it compares the mean expected scores of two
candidates on the same cases by one judge. Exit status 0: NEW is not lower than OLD by --by points or more; 3: it is lower by
more than that; 4: too few cases to tell; 1: an error. Both statements hold at 95 %. With --output it writes gate.json.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge
from automedeval.meta_evaluation.agreement.ratings import People, files_by_kind, read_ratings
from automedeval.meta_evaluation.comparison import gate, report
from automedeval.meta_evaluation.comparison.compare import comparison
from automedeval.meta_evaluation.comparison.runs import join_runs
from automedeval.meta_evaluation.criteria.checklists import people_of, read_labels
from automedeval.meta_evaluation.facts import lines_of
from automedeval.meta_evaluation.page import write_report
from automedeval.meta_evaluation.report.grid import grid_of
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import CRITERIA, SCORES, read_verdicts
from automedeval.records import CriterionLabel, RecordError, named_file, option
from automedeval.records.arguments import BaselineArguments, comma_list
from automedeval.records.command_line import parse
from automedeval.records.journal import write_json
from automedeval.records.run_record import describe_result
from automedeval.records.text import printable

RULE = (
    "scores are shares of the positive points, and means are not clipped (HealthBench clips a mean to [0, 1]: so can you, with "
    "both ends of its interval)"
)


@dataclass
class CompareArguments(BaselineArguments):
    """The files to compare, and the options of the report and the gate."""

    cases: list[str] = option(
        "the cases, or the table of answers, that were judged; of two runs NAME=FILE of each"
    )
    verdicts: list[str] = option(
        "verdict files, or folders with a verdicts.jsonl; NAME=FILE names its judge NAME"
    )
    ratings: str | None = option(
        "people's ratings of some of the cases, drawn at random; for judges of criteria physicians' labels",
        None,
    )
    output: str | None = option(
        "folder for comparison.json, comparison.md and comparison.html; needed without a gate", None
    )
    fail_if_worse: list[str] = option(
        "the gate: two candidates, NEW OLD; exit status 0, 3 or 4 (see above)", [], nargs=2
    )
    by: float | None = option(
        "the gate: points of the mean expected score by which NEW may be worse", None
    )
    rubric: str | None = option("your own rubric's .yaml file, if verdicts were given by one", None)

    def __post_init__(self) -> None:
        self.verdicts = list(dict.fromkeys(comma_list(self.verdicts)))
        if not self.verdicts:
            raise RecordError("--verdicts names no file")
        if len(self.cases) > 1 and not len(self.cases) == len(self.verdicts) == 2:
            raise RecordError(
                "--cases of two runs are two files, and --verdicts names those of each, in the same order"
            )
        if bool(self.fail_if_worse) != (self.by is not None):
            raise RecordError("--fail_if_worse and --by need each other")
        if self.fail_if_worse:
            self._check_gate()
        elif self.output is None:
            raise RecordError("--output is needed; only --fail_if_worse does without")

    def _check_gate(self) -> None:
        if len(set(self.fail_if_worse)) != 2:
            raise RecordError("--fail_if_worse names two candidates: NEW OLD")
        if self.by is None or not 0 < self.by < math.inf:
            raise RecordError(f"--by must be above 0, not {self.by}")
        if self.ratings or self.baseline:
            raise RecordError(
                "--fail_if_worse compares two by verdicts alone: no --ratings, no --baseline"
            )


def main() -> None:
    """Read the files, compare the candidates, and write the report."""
    (args,) = parse((CompareArguments,), __doc__, first=("cases", "verdicts", "ratings"))
    if len(args.cases) > 1:
        cases, judges, notes = join_runs(args.cases, args.verdicts, args.rubric, args.blank)
    else:
        cases = Cases.read(args.cases[0], blank=args.blank)
        judges, notes = read_verdicts(args.verdicts, cases, args.rubric, (SCORES, CRITERIA))
        if any(judge.on_criteria for judge in judges):
            notes = [RULE, *notes]
    if args.fail_if_worse:
        sys.exit(pass_gate(args, args.by or 0.0, cases, judges, notes))
    people, folder = read_people(args, cases, judges), Path(args.output or "")
    result, changed = comparison(cases, people, judges, notes, args.baseline)
    result["settings"] = describe_result("compare")
    grid: dict[str, Any] = {"grid": None}
    if result["changes"]:
        grid = grid_of(cases, judges, people, models=list(result["models"]), **changed)
    title = f"Comparison: {' and '.join(Path(named_file(each)[1]).stem for each in args.cases)}"
    scale = next(
        judge.scale for judge in judges if judge.name == result["judges"][result["lead"]]["name"]
    )
    facts = [f"{name.rstrip('?')}: {text}" for name, text in result["facts"].items()]
    rated = f"{result['cases']['rated_cases']:,} of {result['cases']['cases']:,} cases are rated"
    lines = [
        *report.comparison_sentences(result),
        *facts,
        rated,
        *(f"note: {note}" for note in result["notes"]),
    ]
    texts = report.comparison_page(result, title, grid, scale)
    write_report(
        folder,
        texts,
        "comparison.json",
        result,
        [*lines, f"comparison: {folder / 'comparison.html'}"],
    )


def read_people(args: CompareArguments, cases: Cases, judges: list[VerdictTable]) -> People | None:
    """Read the ratings or the labels, None if there are none."""
    if args.ratings is None:
        return None
    if CriterionLabel not in files_by_kind([args.ratings]):
        return read_ratings(args.ratings, cases)
    if any(judge.on_criteria for judge in judges):
        labels, notes = read_labels(args.ratings, cases)
        people = people_of(labels, cases)
        people.notes += notes
        return people
    raise RecordError(f"{args.ratings}: labels of criteria, and these verdicts are not on criteria")


def pass_gate(
    args: CompareArguments, by: float, cases: Cases, judges: list[VerdictTable], notes: list[str]
) -> int:
    """Compare two candidates by verdicts alone; print and write the result, and return the exit status."""
    new, old = args.fail_if_worse
    row, record = gate.compare_two(cases, judges, new, old, by)
    record["notes"] = notes + record["notes"]
    profile = known_of_judge(cases, row)
    lines = [
        *gate.gate_sentences(record),
        *lines_of(profile),
        *(f"note: {note}" for note in record["notes"]),
    ]
    print("\n".join(map(printable, lines)))
    if args.output:
        Path(args.output).mkdir(parents=True, exist_ok=True)
        write_json(Path(args.output) / "gate.json", record)
    return record["status"]
