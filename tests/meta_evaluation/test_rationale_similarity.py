"""Rationales of judges beside a teacher's: which are compared, what is left out, and the figures with their intervals."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from doubles import agreement_study
from doubles.introspection_study import case_of, rationale_of, verdict_of

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.rationale_similarity import (
    LABEL,
    compare_rationales,
    teacher_among,
)
from automedeval.meta_evaluation.table import VerdictTable, counted
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Verdict
from automedeval.stats.bootstrap import estimate

CASES = Cases([case_of(number) for number in range(6)], "cases.jsonl")
BY_ID = {case.id: case for case in CASES.records}
SCORES = (3, 4, 5)


def verdict_on(number: int, judge: str = "judge", **more: Any) -> Verdict:
    return verdict_of(BY_ID[f"case-{number}"], more.pop("scores", SCORES), judge, **more)


def write(file: Path, verdicts: list[Verdict]) -> str:
    return str(agreement_study.write(file, verdicts))


class Overlap:
    """Stands in for the metric: F1 is the share of words in common, BARTScore minus one for each word of the prediction."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **call: Any) -> dict[str, Any]:
        self.calls.append(call)
        alike = []
        for text, references in zip(call["predictions"], call["references"]):
            words = [(set(text.split()), set(reference.split())) for reference in references]
            alike.append(max(len(one & two) / len(one | two) for one, two in words))
        bart = [
            None if value == 1 else -float(len(text))
            for value, text in zip(alike, call["predictions"])
        ]
        return {"bert_score": {"f1": alike}, "bart_score": bart, "truncated": [0]}


def compare(
    tmp_path: Path, verdicts: list[Verdict], teacher: list[Verdict], **settings: Any
) -> tuple[dict, Overlap]:
    *judges, by_teacher = tables(tmp_path, verdicts, teacher)
    overlap = Overlap()
    return compare_rationales(CASES, judges, by_teacher, overlap, **settings), overlap


def tables(tmp_path: Path, verdicts: list[Verdict], teacher: list[Verdict]) -> list[VerdictTable]:
    """Return the judges of two files, the teacher last."""
    files = [
        write(tmp_path / "verdicts.jsonl", verdicts),
        f"teacher={write(tmp_path / 'teacher.jsonl', teacher)}",
    ]
    judges, _ = read_verdicts(files, CASES)
    assert judges[-1] is teacher_among(judges, "teacher")
    return judges


def test_a_rationale_in_another_order_is_read_in_the_order_of_the_case(tmp_path: Path) -> None:
    verdicts = [verdict_on(number, order=(2, 0, 1)) for number in range(6)]
    result, overlap = compare(
        tmp_path, verdicts, [verdict_on(number, "gpt") for number in range(6)]
    )
    assert set(overlap.calls[0]["predictions"]) == {
        rationale_of(("ash", "birch", "cedar"), (0, 1, 2))
    }
    judge = estimate(result, len(CASES), 200)["judges"]["judge"]
    assert (judge["bert_score"].value, judge["rationales"]) == (1.0, 6)
    assert result["teacher"] == "gpt"
    assert result["label"] == LABEL
    assert "similarity" in LABEL


def test_what_cannot_be_compared_is_counted_with_its_reason(tmp_path: Path) -> None:
    verdicts = [
        verdict_on(0),
        verdict_on(0, run=1, rationale="Another one."),
        verdict_on(1, scores=None),
    ]
    verdicts += [
        verdict_on(2, rationale=None),
        verdict_on(3),
        verdict_on(4, order=(0, 1), scores=(3, 4, None)),
    ]
    teacher = [
        verdict_on(number, "gpt", scores=None if number == 3 else SCORES) for number in range(5)
    ]
    result, overlap = compare(tmp_path, verdicts, teacher, bart_model="tiny")
    judge = result["judges"]["judge"]
    left_out = {"invalid": 1, "without a rationale": 1, "without a rationale of the teacher's": 2}
    assert judge["left_out"] == left_out
    assert (judge["rationales"], judge["truncated"]) == (2, 1)
    assert (
        result["settings"]
        == {"bart_model": "tiny"}
        == {"bart_model": overlap.calls[0]["bart_model"]}
    )
    figures = estimate(result, len(CASES), 200)["judges"]["judge"]
    assert figures["bert_score"].n == 2
    assert (figures["bart_score"].value, figures["bart_score"].n) == (-12.0, 1), (
        "one without a figure is left out"
    )


def test_pairs_are_compared_in_the_same_order_only(tmp_path: Path) -> None:
    def pair(number: int, order: tuple[int, int], judge: str) -> Verdict:
        names = tuple(BY_ID[f"case-{number}"].models[index] for index in order)
        chosen = {"correctness": "tie"}
        verdict = verdict_on(
            number, judge, order=order, pair=names, scores=None, valid=True, error=None
        )
        return replace(
            verdict, rubric="medical_pairwise@1", choices=chosen, rationale="A is better."
        )

    verdicts = [pair(0, (0, 1), "judge"), pair(1, (1, 0), "judge")]
    result, _ = compare(tmp_path, verdicts, [pair(0, (0, 1), "gpt"), pair(1, (0, 1), "gpt")])
    assert result["judges"]["judge"]["rationales"] == 1
    assert result["judges"]["judge"]["left_out"] == {"without a rationale of the teacher's": 1}


def test_one_without_partners_has_a_reason_and_a_baseline_no_line(tmp_path: Path) -> None:
    *judges, teacher = tables(tmp_path, [verdict_on(1)], [verdict_on(0, "gpt")])
    baseline, overlap = counted(CASES, "random", CASES.panel.case.astype(float)), Overlap()
    (line,) = compare_rationales(CASES, [*judges, baseline], teacher, overlap)["judges"].values()
    assert (line["reason"].startswith("no rationale"), overlap.calls) == (True, [])
