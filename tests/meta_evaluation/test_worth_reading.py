"""The cases to look at, and the main judge: the first or a given one."""

from doubles.agreement_study import CASES, RATINGS, agreeing_verdicts, write

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.agreement.worth_reading import worth_reading
from automedeval.meta_evaluation.table import rows_of
from automedeval.meta_evaluation.verdict_files import read_verdicts

FLAT = {"expected_scores": None}


def judged(tmp_path, *verdicts: list[dict]):
    cases = Cases.read(str(CASES))
    file = write(tmp_path / "v.jsonl", [each for some in verdicts for each in some])
    judges, _ = read_verdicts([str(file)], cases)
    return cases, judges, read_ratings(str(RATINGS), cases)


def test_only_cases_in_another_order_than_peoples_are_among_those_to_read(tmp_path) -> None:
    verdicts = [each | FLAT for each in agreeing_verdicts()]
    turned = next(each for each in verdicts if len(set(each["scores"])) > 1)
    turned["scores"] = [6 - score for score in turned["scores"]]
    cases, judges, people = judged(tmp_path, verdicts)
    (row,) = rows_of(judges)
    listed = worth_reading(cases, row, people)["people_disagree"]
    relation = cases.panel.relations(people.scores)
    wrong = cases.panel.case[cases.panel.pairs[0]][(relation != 0) & (relation != row.relations)]
    assert set(listed) == {cases.records[number].id for number in wrong}
    assert turned["case_id"] in listed
    assert len(listed) < 10
