"""The paper's counts: 9,874 synthetic cases with the stated joint distribution of failed criteria, verified and assigned."""

from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.stand_ins import checks
from programs import ROOT
from study.dataset.test_curriculum import counts

from automedeval.records import Case, Verdict
from automedeval.rubrics import read_rubric
from automedeval.study.dataset.builder import InstructionSet
from automedeval.study.dataset.curriculum import assign, read_plan

RUN = ROOT / "recipes/runs/automedeval-13b"
RUBRICS = {"automedeval@1": read_rubric("automedeval")}
MET = {"knowledge": 94.06, "attribution": 90.71, "fluency": 94.04}  # percent, section 3.1


def verdict(case: Case, teacher: str, is_low: bool) -> Verdict:
    quality = "low" if is_low else "high"
    return verdict_of(case, (1, 2), f"judge-{teacher}", teacher=teacher, quality=quality)


def verified(place: Path, plan: str, verdicts: list[str], ratings: str) -> InstructionSet:
    data = InstructionSet(RUBRICS, plan=read_plan(RUN / plan))
    data.read([str(place / "cases.jsonl")], verdicts, {})
    data.verify(ratings)
    return data


@pytest.mark.slow
def test_verification_and_assignment_give_the_papers_counts(tmp_path):
    cases = [case_of(number, MODELS[:2]) for number in range(9874)]
    write(tmp_path / "cases.jsonl", cases)
    strong = [verdict(case, "strong", number % 7 == 0) for number, case in enumerate(cases)]
    verdicts = [str(write(tmp_path / "strong.jsonl", strong))]
    ratings = str(write(tmp_path / "ratings.jsonl", checks(strong)))

    first = verified(tmp_path, "plan_verified.yaml", verdicts, ratings)
    kept = {case_id for case_id, _ in first.verdicts}
    assert len(kept) == 9569
    for name, percent in MET.items():
        assert any(
            line.startswith(f"{name}: ") and f"({percent:.2f} %;" in line
            for line in first.arithmetic
        )

    weak = []
    for number, found in enumerate(first.verdicts.values()):
        is_low = found.quality == "high" and number % 2 == 0  # each case has a high one
        weak.append(verdict(first.cases[found.case_id], "weak", is_low))
    verdicts.append(str(write(tmp_path / "weak.jsonl", weak)))
    data = verified(tmp_path, "plan.yaml", verdicts, ratings)
    found = assign(data.plan, {key: verdict.quality for key, verdict in data.verdicts.items()})
    assert counts(found) == {
        "stage1": {"weak": 1911},
        "stage2": {"strong": 2394, "weak": 1912},
        "stage3": {"strong": 2394},
        "test": {"strong": 958},
    }
    cases = {case for case, _ in found.keys}
    assert len(cases) == len(found.keys) == 9569
    assert "training: 8,611 cases → 8,611 = 4,788 strong + 3,823 weak" in found.lines
