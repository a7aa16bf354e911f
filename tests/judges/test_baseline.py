"""The baselines as judges: recipes/judge.py, audit.py, calibrate.py and report.py take them as they take any judge."""

from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import CASES, case_of, read
from metrics.test_embedding import Letters
from programs import failed, flags, run_recipe, succeeded
from tables import each_row

from automedeval import Case
from automedeval.judges.baseline import BaselineJudge
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.metrics.lexical import BASELINES, Collection
from automedeval.records.tables.cases import read_cases

judge = partial(run_recipe, "judge")
LONGER, BM25, ROUGE = "longer text", "BM25 to the question", "ROUGE-L to the reference"
QUESTION = "embedding to the question"
REFERENCE = "embedding to the reference"
TWO = case_of("one", "cough syrup?", {"a": "a cough syrup", "b": "rest and sleep"})


def judged(tmp_path: Path, baseline: str, *arguments: object) -> list[dict]:
    options = {"judge": f"baseline:{baseline}", "cases": CASES, "output": tmp_path / "out"}
    succeeded(judge(*arguments, **options))
    return read(tmp_path / "out/verdicts.jsonl")


@pytest.mark.parametrize("baseline", BASELINES)
def test_verdicts_say_what_the_baseline_counts(baseline, tmp_path):
    verdicts = judged(tmp_path, baseline)
    cases = list(read_cases(CASES))
    expected = iter(BASELINES[baseline](cases).tolist())
    assert [each["case_id"] for each in verdicts] == [case.id for case in cases]
    for verdict in verdicts:
        assert (verdict["judge"], verdict["rubric"]) == (f"baseline:{baseline}", "baseline@1")
        assert (verdict["valid"], verdict["scores"]) == (True, None)
        scores = [next(expected) for _ in verdict["order"]]
        assert verdict["expected_scores"] == pytest.approx(scores, abs=1e-6)


def test_a_baseline_of_embeddings_is_another_judge_by_another_encoder():
    other = Letters()
    other.fingerprint = "1"
    judges = [BaselineJudge(QUESTION, encoder=encoder) for encoder in (Letters(), Letters(), other)]
    assert judges[0].fingerprint == judges[1].fingerprint != judges[2].fingerprint
    assert BaselineJudge(LONGER, encoder=other).fingerprint == BaselineJudge(LONGER).fingerprint
    (verdict,) = judges[0]([Case.from_dict(TWO)])
    assert verdict.expected_scores == pytest.approx((0.5**0.5, 0.0))


@each_row("changes, baseline, error")
def test_a_text_without_words_makes_a_verdict_invalid(changes, baseline, error):
    (verdict,) = BaselineJudge(baseline, encoder=Letters())([Case.from_dict(TWO | changes)])
    assert (verdict.valid, verdict.error, verdict.expected_scores) == (False, error, None)


def test_bm25_takes_the_rarity_of_words_from_the_whole_file():
    case = Case.from_dict(TWO)
    other = Case.from_dict(TWO | {"id": "two"})
    judge = BaselineJudge(BM25, Collection.of([case, other]))
    (alone,) = judge([case])
    assert alone == next(judge([case, other]))
    together = next(BaselineJudge(BM25)([case, other]))
    assert alone.expected_scores == together.expected_scores
    smaller = BaselineJudge(BM25, Collection.of([case]))
    assert judge.fingerprint != smaller.fingerprint


def test_an_audit_judges_changed_answers_by_the_words_of_the_clean_cases(tmp_path):
    audit = ("audit", "--cases", CASES, "--judge")
    cases = Cases.read(str(CASES))
    less = flags(gate="false", edits=1, output=tmp_path / "bm25")
    succeeded(run_recipe(*audit, f"baseline:{BM25}", *less))
    fresh = BaselineJudge(BM25, Collection.of(cases.records))
    changed = {case.id: case for case in read_cases(tmp_path / "bm25/changed.jsonl")}
    for verdict in read(tmp_path / "bm25/changed/verdicts.jsonl")[:20]:
        (whole,) = fresh([changed[verdict["case_id"]]])
        for slot in verdict["order"]:
            assert verdict["expected_scores"][slot] == whole.expected_scores[slot]


def test_what_a_count_cannot_do_is_one_line(tmp_path):
    options = flags(judge=f"baseline:{BM25}", cases=CASES, output=tmp_path / "out")
    dry = judge("--dry_run", "true", *options)
    assert "cases: 30, verdicts: 30, judged already: 0, prompt tokens: about 0" in dry.stdout
    # Another collection is another judge.
    judged(tmp_path, BM25, "--limit", 3)
    failed(judge(*options), "other weights, wording or settings")
