"""The main judge: which one it is, that no case chooses the judge it measures, and first places by a loop over resamples."""

import numpy as np
import pytest
from doubles.agreement_study import CASES, RATINGS, agreeing_verdicts, noisy_verdicts, write

from automedeval.meta_evaluation.agreement.candidates import compare_candidates
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.agreement.main_judge import choose, describe
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.report.text import credit
from automedeval.meta_evaluation.table import rows_of
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import RecordError
from automedeval.stats.bootstrap import plain, value_of

FLAT = {"expected_scores": None}


def judged(tmp_path, *verdicts: list[dict]):
    cases = Cases.read(str(CASES))
    file = write(tmp_path / "v.jsonl", [each for some in verdicts for each in some])
    judges, _ = read_verdicts([str(file)], cases)
    return cases, judges, read_ratings(str(RATINGS), cases)


def test_people_choose_it_where_enough_cases_are_rated_and_else_the_order_of_the_files(tmp_path) -> None:
    cases, judges, people = judged(tmp_path, noisy_verdicts("noisy", 1.5, 1), agreeing_verdicts("good"))
    rows = rows_of(judges)
    assert (choose(cases, rows, people).row.name, choose(cases, rows, people).how) == ("good", "cross-fitted")
    assert (choose(cases, rows, None).row.name, choose(cases, rows, None).how) == ("noisy", "first")
    assert (choose(cases, rows, people, "noisy").row.name, choose(cases, rows, people, "noisy").how) == (
        "noisy",
        "given",
    )
    assert choose(cases, rows[:1], people).how == "only"
    people.by_criterion = {name: each.copy() for name, each in people.by_criterion.items()}
    for ratings in people.by_criterion.values():
        ratings[cases.panel.case == 0] = np.nan
    del people.__dict__["scores"], people.__dict__["by_annotator"]
    assert (choose(cases, rows, people).row.name, choose(cases, rows, people).how) == ("noisy", "first")  # 29 are rated
    with pytest.raises(RecordError, match=r"no judge is called 'other'; there are noisy, good"):
        choose(cases, rows, people, "other")


def test_the_agreement_of_the_best_of_many_that_guess_is_that_of_guessing(tmp_path) -> None:
    rng = np.random.default_rng(3)
    shown, highest = [], []
    for _ in range(16):
        guesses = [
            [
                each | FLAT | {"scores": rng.permutation([1, 3, 5]).tolist()}
                for each in agreeing_verdicts(f"guess{number}")
            ]
            for number in range(8)
        ]
        cases, judges, people = judged(tmp_path, *guesses)
        main = choose(cases, rows_of(judges), people)
        shown.append(value_of(describe(cases, main, people, [])["concordance"], len(cases)))
        alone = choose(cases, rows_of(judges), people, main.row.name)
        highest.append(value_of(describe(cases, alone, people, [])["concordance"], len(cases)))
    assert np.mean(highest) > 0.55  # the cases that chose the judge flatter it
    assert np.mean(shown) == pytest.approx(0.5, abs=0.03)


def test_a_given_judge_has_the_agreement_of_its_line(tmp_path) -> None:
    cases, judges, people = judged(tmp_path, noisy_verdicts("noisy", 1.5, 1), agreeing_verdicts("good"))
    main = choose(cases, rows_of(judges), people, "noisy")
    result = meta_evaluate(cases, judges, people, resamples=100, main=main)
    main, line = result["main_judge"], result["judges"]["noisy"]
    assert main["concordance"] == line["concordance_expected"]
    assert main["against_the_other_raters"] == line["against_the_other_raters"]


def test_first_places_are_those_of_a_loop_over_resamples(tmp_path) -> None:
    cases, _, people = judged(tmp_path, agreeing_verdicts())
    relation = cases.panel.relations(people.scores)
    shares = compare_candidates(cases, relation, resamples=64)["first_places"]
    drawn = np.random.default_rng(0).integers(0, len(cases), size=(64, len(cases)), dtype=np.int32)
    # With every two models compared in every case, more points are a higher strength.
    points, first = np.zeros((len(cases), len(cases.models))), np.zeros(len(cases.models))
    for left, right, way in zip(*cases.panel.pairs, relation):
        points[cases.panel.case[left], cases.model_of[left]] += (1 + way) / 2
        points[cases.panel.case[left], cases.model_of[right]] += (1 - way) / 2
    for resample in drawn:
        total = points[resample].sum(axis=0)
        first += (total == total.max()) / (total == total.max()).sum() / len(drawn)
    assert shares == pytest.approx(dict(zip(cases.models, first)))


def test_a_figure_of_several_chosen_judges_is_not_said_of_one(tmp_path) -> None:
    first, second = noisy_verdicts("one", 0.9, 1), noisy_verdicts("two", 0.9, 2)
    cases, judges, people = judged(tmp_path, first, second)
    result = plain(meta_evaluate(cases, judges, people, resamples=100))
    main = result["main_judge"]
    for folds, who in (
        (["one"] * 3 + ["two"] * 2, "The judge chosen on other cases"),
        ([main["name"]] * 5, main["name"]),
    ):
        main["folds"] = folds
        assert f"{who} orders " in " ".join(credit(result))


def test_only_cases_in_another_order_than_peoples_are_among_those_to_read(tmp_path) -> None:
    verdicts = [each | FLAT for each in agreeing_verdicts()]
    turned = next(each for each in verdicts if len(set(each["scores"])) > 1)
    turned["scores"] = [6 - score for score in turned["scores"]]
    cases, judges, people = judged(tmp_path, verdicts)
    lists = describe(cases, choose(cases, rows_of(judges), people), people, [])["cases"]
    relation, mine = cases.panel.relations(people.scores), rows_of(judges)[0].relations
    wrong = cases.panel.case[cases.panel.pairs[0]][(relation != 0) & (relation != mine)]
    assert set(lists["people_disagree"]) == {cases.records[number].id for number in wrong}
    assert turned["case_id"] in lists["people_disagree"]
    assert len(lists["people_disagree"]) < 10
