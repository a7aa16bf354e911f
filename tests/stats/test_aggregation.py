"""Judges combined: Dawid and Skene against EM written out slowly, stacking against what makes it worth while."""

from itertools import product

import numpy as np
import pytest

from automedeval.stats.aggregation import TURNED, combine_relations, dawid_skene, expected_relation, likeliest, stack
from automedeval.stats.agreement import Panel, accuracies
from automedeval.stats.bootstrap import value_of
from automedeval.stats.prediction_powered import prediction_powered


def slow_em(answers: list[list[int]], classes: int, truth: list[int], rounds: int) -> tuple[list, dict, list]:
    """EM by loops, for items that all have an answer; tables from the known items alone where there are any."""
    items, judges = range(len(answers)), range(len(answers[0]))
    used = [item for item in items if truth[item] >= 0] or items
    chances = []
    for item in items:
        if truth[item] >= 0:
            chances.append([float(c == truth[item]) for c in range(classes)])
        else:
            given = [a for a in answers[item] if a >= 0]
            chances.append([(given.count(c) + 1 / classes) / (len(given) + 1) for c in range(classes)])
    for _ in range(rounds):
        table = {}
        for judge, true in product(judges, range(classes)):
            row = [0.5 / classes + 0.5 * (answer == true) for answer in range(classes)]
            for item in used:
                if answers[item][judge] >= 0:
                    row[answers[item][judge]] += chances[item][true]
            table[judge, true] = [value / sum(row) for value in row]
        shares = [1 / classes + sum(chances[item][c] for item in used) for c in range(classes)]
        shares = [share / sum(shares) for share in shares]
        told = []
        for item in items:
            product_ = []
            for true in range(classes):
                value = shares[true]
                for judge in judges:
                    if answers[item][judge] >= 0:
                        value *= table[judge, true][answers[item][judge]]
                product_.append(value)
            told.append([value / sum(product_) for value in product_])
            if truth[item] < 0:
                chances[item] = told[item]
    return told, table, shares


@pytest.mark.parametrize("known", [0, 4])
def test_dawid_skene_is_em_written_out(known: int) -> None:
    answers = [[0, 0, 1], [1, 1, 1], [2, 2, 0], [0, 1, 0], [1, 1, -1], [2, 0, 2], [0, 0, 0], [1, -1, 2]]
    truth = [0, 1, 2, 0, -1, -1, -1, -1] if known else [-1] * 8
    told, table, shares = slow_em(answers, 3, truth, 400)
    found = dawid_skene(np.array(answers), 3, np.array(truth))
    assert found.chances == pytest.approx(np.array(told), abs=1e-5)
    assert found.shares == pytest.approx(shares, abs=1e-5)
    for (judge, true), row in table.items():
        assert found.tables[judge, true] == pytest.approx(row, abs=1e-5)


def test_dawid_skene_finds_who_errs_and_beats_the_vote() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600)
    right = [0.9, 0.45, 0.45, 0.45]
    answers = np.stack([np.where(rng.random(600) < p, truth, rng.integers(0, 3, 600)) for p in right], axis=1)
    found = dawid_skene(answers, 3)
    vote = [np.bincount(row, minlength=3).argmax() for row in answers]
    assert np.mean(found.chances.argmax(axis=1) == truth) > np.mean(np.array(vote) == truth) + 0.08
    assert found.tables[0].diagonal().mean() == pytest.approx(0.93, abs=0.05)
    nobody = dawid_skene(np.full((2, 3), -1), 3)
    assert np.isnan(nobody.chances).all()


def test_judges_that_err_alike_do_not_make_their_view_the_truth() -> None:
    """Two judges copy each other, and people's word on a few items tells which of the three is right."""
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 3, 1000)
    copied = np.where(rng.random(1000) < 0.3, truth, rng.integers(0, 3, 1000))
    own = np.where(rng.random(1000) < 0.8, truth, rng.integers(0, 3, 1000))
    answers = np.stack([copied, copied, own], axis=1)
    known = np.where(np.arange(1000) < 60, truth, -1)
    told = dawid_skene(answers, 3, known).chances[60:].argmax(axis=1)
    alone = dawid_skene(answers, 3).chances[60:].argmax(axis=1)
    assert np.mean(alone == truth[60:]) < 0.75, "without people, two are a majority"
    assert np.mean(told == truth[60:]) > 0.8


def test_turning_pairs_round_turns_the_answer_round() -> None:
    rng = np.random.default_rng(1)
    answers = rng.integers(-1, 3, (40, 3))
    truth = np.where(np.arange(40) < 15, rng.integers(0, 3, 40), -1)
    turn = lambda values: np.where(values < 0, -1, 2 - values)  # noqa: E731
    one = dawid_skene(answers, 3, truth, TURNED).chances
    two = dawid_skene(turn(answers), 3, turn(truth), TURNED).chances
    assert two[:, ::-1] == pytest.approx(one, nan_ok=True)


def crowd(cases: int = 120, seed: int = 0) -> tuple[Panel, np.ndarray, np.ndarray]:
    """Return cases of three responses, people's scores, and a judge of order, one of level, a noisy one and a random one."""
    rng = np.random.default_rng(seed)
    level = np.repeat(rng.normal(0, 0.7, cases), 3)
    order = rng.normal(0, 0.7, 3 * cases)
    people = 3 + level + order
    judges = [order, 50 + 10 * level, 3 + order + rng.normal(0, 1, 3 * cases), rng.normal(size=3 * cases)]
    return Panel.of_sizes([3] * cases), people + rng.normal(0, 0.3, 3 * cases), np.stack(judges)


def concordance(panel: Panel, people: np.ndarray, scores: np.ndarray) -> float:
    found = accuracies(panel, panel.relations(people), panel.relations(scores))["concordance"]
    return value_of(found, panel.cases)


def test_a_stack_takes_order_and_level_from_whoever_knows_them() -> None:
    panel, people, judges = crowd()
    rated = np.where(panel.case < 50, people, np.nan)
    found = stack(panel, rated, judges)
    assert found.weights.shape == (4, 2)
    assert (found.weights >= 0).all()
    assert found.weights[0, 0] == found.weights[:, 0].max() > 0.4
    assert found.weights[1, 1] == found.weights[:, 1].max() > 0.4
    unrated = panel.case >= 50
    assert np.corrcoef(found.scores[unrated], people[unrated])[0, 1] > 0.9
    assert max(np.corrcoef(judge[unrated], people[unrated])[0, 1] for judge in judges) < 0.8
    assert found.scores[unrated].mean() == pytest.approx(people[unrated].mean(), abs=0.1)


def test_a_case_counts_once_however_many_responses_it_has() -> None:
    rng = np.random.default_rng(2)
    sizes = [200] + [2] * 40
    panel = Panel.of_sizes(sizes)
    people = rng.normal(size=sum(sizes))
    judge = np.where(panel.case == 0, -people, people) + rng.normal(0, 0.3, len(people))
    # one case of two hundred responses contradicts forty of two
    assert stack(panel, people, np.stack([judge, rng.normal(size=len(people))])).weights[0, 0] > 0.3


def test_a_case_s_own_ratings_have_no_say_in_its_combination() -> None:
    panel, people, judges = crowd(60)
    rated = np.where(panel.case < 40, people, np.nan)
    other = rated.copy()
    other[:3] = [-40.0, 90.0, 7.0]
    one, two = stack(panel, rated, judges).scores, stack(panel, other, judges).scores
    assert one[:3] == pytest.approx(two[:3])
    assert abs(one - two).max() > 0.01
    relation, turned = panel.relations(rated), panel.relations(rated)
    turned[:3] *= -1
    judged = np.stack([panel.relations(judge) for judge in judges])
    one, two = combine_relations(panel, relation, judged), combine_relations(panel, turned, judged)
    assert one[:3] == pytest.approx(two[:3])
    assert abs(one - two).max() > 1e-6


def test_judges_that_guess_do_not_seem_to_agree() -> None:
    values = []
    for seed in range(30):
        panel, people, _ = crowd(40, seed)
        noise = np.random.default_rng(seed + 1000).normal(size=(5, 120))
        values.append(concordance(panel, people, stack(panel, people, noise).scores))
    assert np.mean(values) == pytest.approx(0.5, abs=0.03)


def test_a_missing_verdict_is_combined_from_the_others_and_never_made_up() -> None:
    panel, people, judges = crowd()
    judges[0, :9] = np.nan
    judges[:, 9:12] = np.nan
    found = stack(panel, people, judges).scores
    assert np.isfinite(found[:9]).all()
    assert np.isnan(found[9:12]).all()
    assert np.isfinite(found[12:]).all()
    chances = combine_relations(panel, panel.relations(people), np.stack([panel.relations(each) for each in judges]))
    assert np.isnan(chances[9:12]).all()
    assert np.isnan(likeliest(chances)[9:12]).all()
    assert chances[12:].sum(axis=1) == pytest.approx(1)


def test_relations_together_agree_better_than_each_alone() -> None:
    rng = np.random.default_rng(3)
    panel = Panel.of_sizes([3] * 150)
    people = rng.normal(size=450)
    judged = np.stack([panel.relations(people + rng.normal(0, noise, 450)) for noise in (0.8, 0.9, 1.0)])
    relation = np.where(panel.case[panel.pairs[0]] < 60, panel.relations(people), np.nan)
    chances = combine_relations(panel, relation, judged)
    truth = panel.relations(people)
    right = [np.mean(each == truth) for each in (*judged, likeliest(chances))]
    assert right[-1] > max(right[:-1]) + 0.01
    mean = expected_relation(chances)
    assert (np.abs(mean) <= 1).all()
    assert np.corrcoef(mean, truth)[0, 1] > max(np.corrcoef(each, truth)[0, 1] for each in judged)


def test_what_is_combined_and_corrected_on_the_same_ratings_holds() -> None:
    """Forty rated cases teach the combination and correct it, and the interval holds all the same."""
    held, widths = 0, np.zeros(2)
    for seed in range(300):
        panel, people, judges = crowd(160, seed)
        rated = np.where(panel.case < 40, people, np.nan)
        judges[0] += np.random.default_rng(seed + 5000).normal(0, 0.5, 480)
        scores = stack(panel, rated, judges).scores
        found = prediction_powered(rated[::3] - rated[1::3], scores[::3] - scores[1::3])
        held += found.interval.low <= 0 <= found.interval.high
        widths += found.interval.width, found.classical.width
    assert 0.91 <= held / 300 <= 0.99
    assert widths[0] < 0.85 * widths[1]


def test_too_few_rated_cases_teach_nothing() -> None:
    panel, people, judges = crowd()
    rated = np.where(panel.case < 9, people, np.nan)
    assert np.isnan(stack(panel, rated, judges).scores).all()
    relations = panel.relations(rated)
    assert np.isnan(combine_relations(panel, relations, np.stack([panel.relations(each) for each in judges]))).all()
