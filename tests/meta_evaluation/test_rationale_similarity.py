"""Rationales of judges beside a teacher's: which are compared, what is left out, and the figures with their intervals."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from doubles.introspection_study import case_of, rationale_of, verdict_of
from doubles.word_overlap import overlap
from factories import write
from tables import rows_of

from automedeval.meta_evaluation.agreement.rationale_similarity import (
    compare_rationales,
    teacher_among,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.files import read_verdicts
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.records import Verdict
from automedeval.stats.bootstrap import estimate

ROWS = rows_of(__file__)
CASES = Cases([case_of(number) for number in range(6)], "cases.jsonl")
BY_ID = {case.id: case for case in CASES.records}
SCORES = (3, 4, 5)
LACKS = "without a rationale of the teacher's"


def verdict_on(number: int, judge: str = "judge", **more: Any) -> Verdict:
    return verdict_of(BY_ID[f"case-{number}"], more.pop("scores", SCORES), judge, **more)


def tables(folder: Path, verdicts: list[Verdict], teacher: list[Verdict]) -> list[VerdictTable]:
    """Return the judges of two files, the teacher last."""
    by_teacher = write(folder / "teacher.jsonl", teacher)
    files = [str(write(folder / "verdicts.jsonl", verdicts)), f"teacher={by_teacher}"]
    judges, _ = read_verdicts(files, CASES)
    assert judges[-1] is teacher_among(judges, "teacher")
    return judges


def compare(
    folder: Path, verdicts: list[Verdict], teacher: list[Verdict], **settings: Any
) -> tuple[dict, mock.Mock]:
    *judges, by_teacher = tables(folder, verdicts, teacher)
    metric = mock.Mock(side_effect=overlap)
    return compare_rationales(CASES, judges, by_teacher, metric, **settings), metric


def test_a_rationale_in_another_order_is_read_in_the_order_of_the_case(tmp_path):
    verdicts = [verdict_on(number, order=(2, 0, 1)) for number in range(6)]
    teacher = [verdict_on(number, "gpt") for number in range(6)]
    result, metric = compare(tmp_path, verdicts, teacher)
    expected = rationale_of(("ash", "birch", "cedar"), (0, 1, 2))
    assert set(metric.call_args.kwargs["predictions"]) == {expected}
    judge = estimate(result, len(CASES), 200)["judges"]["judge"]
    assert (judge["bert_score"].value, judge["rationales"]) == (1.0, 6)
    assert result["teacher"] == "gpt"


def test_what_cannot_be_compared_is_counted_with_its_reason(tmp_path):
    verdicts = [verdict_on(number, **more) for number, more in ROWS["some cannot be compared"]]
    teacher = [verdict_on(number, "gpt") for number in (0, 1, 2, 4)]
    teacher.append(verdict_on(3, "gpt", scores=None))
    result, metric = compare(tmp_path, verdicts, teacher, bart_model="tiny")
    judge = result["judges"]["judge"]
    assert judge["left_out"] == {"invalid": 1, "without a rationale": 1, LACKS: 2}
    assert (judge["rationales"], judge["truncated"]) == (2, 1)
    assert result["settings"] == {"bart_model": "tiny"}
    assert metric.call_args.kwargs["bart_model"] == "tiny"
    figures = estimate(result, len(CASES), 200)["judges"]["judge"]
    assert figures["bert_score"].n == 2
    bart = figures["bart_score"]
    assert (bart.value, bart.n) == (-11.0, 1), "one without a figure is left out"


def test_pairs_are_compared_in_the_same_order_only(tmp_path):
    def pair(number: int, order: tuple[int, int], judge: str) -> Verdict:
        names = tuple(BY_ID[f"case-{number}"].models[index] for index in order)
        more = {"order": order, "pair": names, "choices": {"correctness": "tie"}}
        more |= {"scores": None, "valid": True, "error": None, "rationale": "A is better."}
        return replace(verdict_on(number, judge, **more), rubric="medical_pairwise@1")

    verdicts = [pair(0, (0, 1), "judge"), pair(1, (1, 0), "judge")]
    result, _ = compare(tmp_path, verdicts, [pair(0, (0, 1), "gpt"), pair(1, (0, 1), "gpt")])
    judge = result["judges"]["judge"]
    assert (judge["rationales"], judge["left_out"]) == (1, {LACKS: 1})
