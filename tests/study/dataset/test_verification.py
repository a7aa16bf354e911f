"""What physicians' ratings of verdicts let pass, by each rule."""

from pathlib import Path

from factories import verdict_of, write
from programs import ROOT, SAMPLE
from tables import each_row, refused, rows_of

from automedeval.records import read_lines
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict
from automedeval.study.dataset.verification import verify

ROWS = rows_of(__file__)

RUN = ROOT / "recipes/runs/automedeval-135m"
VERDICTS = {("c1", "t", "aaa"), ("c1", "t", "ccc"), ("c2", "t", "bbb"), ("c3", "t", "ddd")}
RATING = ROWS["rating"]


def verified(folder: Path, ratings: list[dict]) -> tuple:
    """Return what ratings say that differ so from RATING."""
    file = write(folder / "verdict_ratings.jsonl", (RATING | changes for changes in ratings))
    return verify(str(file), VERDICTS)


def test_shares_are_counted_by_criterion_with_the_papers_beside(tmp_path):
    failures, lines = verified(tmp_path, ROWS["ratings"])
    assert failures == {
        ("c1", "t", "aaa"): ("knowledge",),
        ("c1", "t", "ccc"): (),  # another verdict of the judge on the case
        ("c2", "t", "bbb"): ("attribution",),
    }
    assert lines == ROWS["test_shares_are_counted_by_criterion_with_the_papers_beside"]


def test_the_packaged_checks_are_of_the_recorded_verdicts_with_the_chain_alone():
    cases = {case.id: case for case in read_cases(SAMPLE / "train_cases.jsonl")}
    digests: dict[str, set[tuple]] = {"chain": set(), "none": set()}
    for _, line in read_lines(RUN / "teacher.jsonl"):
        answer = parse_verdict(line["text"], read_rubric("automedeval"), 3)
        case = cases.get(line["case_id"])
        judge = f"recording:{line['teacher']}"
        if answer.valid and case:
            verdict = verdict_of(case, answer.scores, judge, rationale=answer.rationale)
            digests[line["knowledge"]].add((case.id, judge, verdict.digest))
    checked = [
        (line["case_id"], line["judge"], line["verdict_digest"])
        for _, line in read_lines(RUN / "verdict_ratings.jsonl")
    ]
    assert len(checked) == 360
    assert set(checked) <= digests["chain"] - digests["none"]


@each_row("changes, told")
def test_a_faulty_rating_is_refused_by_line(tmp_path, changes, told):
    with refused(tmp_path, told):
        verified(tmp_path, changes)
