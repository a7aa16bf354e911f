"""What physicians' ratings of verdicts let pass, by each rule."""

from pathlib import Path

import pytest
from factories import verdict_of, write
from programs import ROOT, SAMPLE
from tables import refused, rows_of

from automedeval.records import read_lines
from automedeval.records.cases import read_cases
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict
from automedeval.study.dataset.verification import verify

ROWS = rows_of(__file__)

RUN = ROOT / "recipes" / "runs" / "automedeval-135m"


DIGESTS = {"c1": "aaa", "c2": "bbb", "c3": "ccc"}
VERDICTS = {(case, "t", digest) for case, digest in DIGESTS.items()}


def rating(case: str = "c1", criterion: str = "knowledge", score: float = 1, **more) -> dict:
    about = {"case_id": case, "judge": "t", "annotator": "a", "criterion": criterion}
    return about | {"score": score, "verdict_digest": DIGESTS.get(case, "ddd")} | more


def written(folder: Path, *ratings: dict) -> str:
    return str(write(folder / "verdict_ratings.jsonl", ratings))


def test_shares_are_counted_by_criterion_with_the_papers_beside(tmp_path):
    ratings = [rating("c1"), rating("c1", annotator="b", score=0), rating("elsewhere")]
    of_second = {"knowledge": 1, "fluency": 1, "attribution": 0, "tone": 1}
    ratings += [rating("c2", criterion, score) for criterion, score in of_second.items()]
    file = written(tmp_path, *ratings)
    found = verify(file, VERDICTS)
    assert found.failures == {
        ("c1", "t", "aaa"): ("knowledge",),
        ("c2", "t", "bbb"): ("attribution",),
    }  # c3 is unrated
    assert found.lines == ROWS["test_shares_are_counted_by_criterion_with_the_papers_beside"]


def test_the_packaged_checks_are_of_the_recorded_verdicts_with_the_chain_alone():
    cases = {case.id: case for case in read_cases(SAMPLE / "train_cases.jsonl")}
    digests: dict[str, dict[tuple[str, str], str]] = {"chain": {}, "none": {}}
    for _, line in read_lines(RUN / "teacher.jsonl"):
        answer = parse_verdict(line["text"], read_rubric("automedeval"), 3)
        if answer.valid and line["case_id"] in cases:
            judge = f"recording:{line['teacher']}"
            verdict = verdict_of(
                cases[line["case_id"]], answer.scores, judge, rationale=answer.rationale
            )
            digests[line["knowledge"]][verdict.case_id, judge] = verdict.digest
    checks = [line for _, line in read_lines(RUN / "verdict_ratings.jsonl")]
    assert len(checks) == 360
    for check in checks:
        verdict = (check["case_id"], check["judge"])
        assert digests["chain"][verdict] == check["verdict_digest"]
        assert digests["none"].get(verdict) != check["verdict_digest"]


def test_two_verdicts_of_one_judge_on_a_case_are_told_apart(tmp_path):
    file = written(tmp_path, rating(score=0, verdict_digest="aaa"), rating(verdict_digest="bbb"))
    found = verify(file, {("c1", "t", "aaa"), ("c1", "t", "bbb")})
    assert found.failures == {("c1", "t", "aaa"): ("knowledge",), ("c1", "t", "bbb"): ()}


@pytest.mark.parametrize(("changes", "told"), ROWS["test_a_faulty_rating_is_refused_by_line"])
def test_a_faulty_rating_is_refused_by_line(tmp_path, changes, told):
    with refused(tmp_path, told):
        verify(written(tmp_path, *(rating() | each for each in changes)), VERDICTS)
