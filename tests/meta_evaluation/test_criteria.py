"""The certificate of a judge of criteria, beside scikit-learn and loops over the records."""

import random

import numpy as np
import pytest
from doubles.agreement_study import asked, case_of, made, read
from doubles.criteria_study import ANNOTATORS, label_of, verdict_by
from programs import error_line
from sklearn import metrics
from tables import rows_of

from automedeval.records.text import span

ROWS = rows_of(__file__)


def most(votes: list[bool]) -> bool | None:
    """Return what most annotators voted; None if nobody did, or as many for as against."""
    return None if 2 * sum(votes) == len(votes) else 2 * sum(votes) > len(votes)


def of_scikit_learn(rows: list[tuple]) -> dict[str, float | None]:
    """Return the figures of (met, P(met), votes) pairs; None where one is not defined."""
    majority = [(met, p, most(votes)) for met, p, votes in rows if most(votes) is not None]
    read_pairs = [(met, true) for met, _, true in majority if met is not None]
    pooled = [(vote, met) for met, _, votes in rows if met is not None for vote in votes]
    with_chance = [(p, true) for _, p, true in majority if p is not None]
    said, truth = ([pair[at] for pair in read_pairs] for at in (0, 1))
    chances, of_chances = ([pair[at] for pair in with_chance] for at in (0, 1))
    figures = {}
    if majority:
        figures["accuracy"] = np.mean([met == true for met, _, true in majority])
        figures["read_rate"] = len(said) / len(majority)
    if len({*truth}) > 1:
        figures["balanced_accuracy"] = metrics.balanced_accuracy_score(truth, said)
    if len({*truth, *said}) > 1:
        figures["cohen_kappa"] = metrics.cohen_kappa_score(truth, said)
    if pooled:
        figures["macro_f1_pooled"] = metrics.f1_score(*zip(*pooled), average="macro")
    if len({*of_chances}) > 1:
        figures["auroc"] = metrics.roc_auc_score(of_chances, chances)
    if chances:
        gaps = np.zeros(10)
        for p, true in with_chance:
            gaps[min(int(p * 10), 9)] += p - true
        figures["calibration_error"] = np.abs(gaps).sum() / len(chances)
    return figures


def certificate(report) -> dict:
    return report.result["criteria"]["certificate"]


def test_every_figure_is_that_of_scikit_learn(study, tmp_path):
    options, labels, rows = study
    figures = certificate(made(tmp_path, **options, ratings=labels))["judges"]["j"]
    expected = of_scikit_learn(rows)
    assert {name: each["value"] for name, each in figures.items()} == pytest.approx(expected)
    for name in expected:
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]


def degenerate_study(seed):
    """Return the files of a study in which whole kinds may lack (labels, a class, read criteria, P(met)), and its pairs."""
    rng = random.Random(seed)
    truth, said, unread, chances = (rng.choice([0, 0.5, 1]) for _ in range(4))
    cases, verdicts, labels, rows = [], [], [], []
    for number in range(rng.randint(1, 5)):
        points = [rng.choice([1, 2, -1]) for _ in range(rng.randint(1, 4))]
        criteria = [{"criterion": f"k{k}", "points": worth} for k, worth in enumerate(points)]
        case = case_of(f"c{number}", "Q?", {"m": "An answer."}, criteria=criteria)
        cases.append(case)
        met, odds = [], []
        for each in criteria:
            is_met = None if rng.random() < 0.4 * unread else rng.random() < said
            chance = None if is_met is None or not chances else rng.choice([0.1, 0.4, 0.4, 0.9])
            votes = [rng.random() < truth if rng.random() < 0.8 else None for _ in ANNOTATORS]
            votes = [True, False, None] if seed % 10 == 0 else votes  # no majority at all
            cast = {who: vote for who, vote in zip(ANNOTATORS, votes) if vote is not None}
            for annotator, vote in cast.items():
                word = "met" if vote else "not_met"
                labels.append(label_of(case, "m", each, annotator, word))
            met.append(is_met)
            odds.append(chance)
            rows.append((is_met, chance, [*cast.values()]))
        verdicts.append(verdict_by(case, 0, met, odds))
    return {"cases": cases, "verdicts": verdicts, "ratings": labels}, rows


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.filterwarnings(
    "error::RuntimeWarning", "ignore::sklearn.exceptions.UndefinedMetricWarning"
)
def test_figures_of_degenerate_tables_are_those_of_scikit_learn_or_undefined(tmp_path, seed):
    files, rows = degenerate_study(seed)
    figures = certificate(made(tmp_path, **files))["judges"]["j"]
    expected = dict.fromkeys(figures) | of_scikit_learn(rows)
    assert {name: each["value"] for name, each in figures.items()} == pytest.approx(expected)
    assert all(each["value"] is not None or each["reason"] for each in figures.values())


def test_each_physician_stands_beside_the_majority_of_the_others(study, tmp_path):
    options, labels, rows = study
    figures = certificate(made(tmp_path, **options, ratings=labels))["physicians"]
    for place, name in enumerate(ANNOTATORS):
        right = []
        for votes in (votes for *_, votes in rows if len(votes) > place):
            of_others = most(votes[:place] + votes[place + 1 :])
            if of_others is not None:
                right.append(votes[place] == of_others)
        accuracy = figures[name]["accuracy"]
        assert (accuracy["value"], accuracy["n"]) == (pytest.approx(np.mean(right)), len(right))


def test_without_labels_the_scores_are_called_uncertified(study, tmp_path):
    report = made(tmp_path, **study[0])
    page, result = report.page, report.result["criteria"]["judges"]["j"]
    assert "uncertified" in report.told
    assert "uncertified" in page
    for each in result["candidates"].values():
        row = (60, each["scored"], each["unread criteria"], span(each["harm"], 3))
        assert "".join(f'<td dir="auto">{cell}</td>' for cell in row) in page
    assert set(result["missed"]) == {"theme:0", "theme:1"}
    assert '<td dir="auto">theme:1</td>' in page
    names = ("tag", "criteria", "failed", "a", "b")
    assert "".join(f'<th scope="col">{name}</th>' for name in names) in page
    summary = (report.folder / "report.md").read_text()
    assert "| a | " in summary
    assert "[report.html](report.html)" in summary


@pytest.mark.parametrize(("change", "said"), ROWS["test_a_bad_label_gets_one_line"])
def test_a_bad_label_gets_one_line(study, tmp_path, change, said):
    options, labels, _ = study
    given = read(labels)
    line = error_line(asked(tmp_path, **options, ratings=[*given, given[0] | change]))
    assert said in line
    assert f"ratings.jsonl:{len(given) + 1}" in line
