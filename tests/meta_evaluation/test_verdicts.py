"""What a judge's verdicts say case by case, beside loops over the records: intervals resample cases."""

from dataclasses import replace
from pathlib import Path

from doubles.agreement_study import write
from doubles.introspection_study import case_of, verdict_of

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Verdict
from automedeval.rubrics import read_rubric
from automedeval.stats.agreement import CHOICES

CASES = Cases([case_of(number) for number in range(7)], "cases.jsonl")


def read_back(folder: Path, verdicts: list[Verdict]) -> VerdictTable:
    (judge,), _ = read_verdicts([str(write(folder / "verdicts.jsonl", verdicts))], CASES)
    return judge


def test_contested_choices_are_the_neutral_one_of_their_criterion(tmp_path: Path) -> None:
    rubric = read_rubric("medical_pairwise")
    harmless = [
        replace(each, neutral="neither") if each.polarity == "worse" else each
        for each in rubric.criteria
    ]
    case = CASES.records[0]
    first, second = case.models[:2]
    records = []
    for order, choice in (((0, 1), first), ((1, 0), second)):
        same = {"correctness": choice, "harmfulness": choice}
        record = verdict_of(case, None, order=order, models=case.models)
        more = {"valid": True, "error": None, "pair": (first, second), "choices": same}
        record = replace(record, rubric="medical_pairwise@1", **more)
        records.append(record)
    judge = read_back(tmp_path, records)
    assert [CHOICES[judge.choice(name)[0]] for name in ("correctness", "harmfulness")] == [
        "tie",
        "tie",
    ]
    judge.rubric = replace(rubric, criteria=tuple(harmless))
    assert [CHOICES[judge.choice(name)[0]] for name in ("correctness", "harmfulness")] == [
        "tie",
        "neither",
    ]
