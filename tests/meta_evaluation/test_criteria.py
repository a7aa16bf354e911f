"""The certificate of a judge of criteria, beside scikit-learn and loops over the records."""

import random

import numpy as np
import pandas
import pytest
from doubles.agreement_study import asked, case_of, made, read
from doubles.criteria_study import ANNOTATORS, label_of, verdict_by
from programs import failed
from sklearn import metrics
from tables import each_row

from automedeval.records.text import span


def most(votes: list[bool]) -> bool | None:
    """Return what most annotators voted; None if nobody did, or as many for as against."""
    half = len(votes) / 2
    return None if sum(votes) == half else sum(votes) > half


def pairs_in(table: pandas.DataFrame, *names: str) -> list[list]:
    """Return two columns in the rows that have both."""
    both = table[[*names]].dropna()
    return [both[name].tolist() for name in names]


def of_scikit_learn(rows: list[tuple]) -> dict[str, float | None]:
    """Return the figures of (met, P(met), votes) pairs; None where one is not defined."""
    table = pandas.DataFrame(rows, columns=["met", "chance", "votes"], dtype=object)
    table["true"] = [most(votes) for votes in table["votes"]]
    labelled = table.dropna(subset="true")
    said, truth = pairs_in(labelled, "met", "true")
    chances, of_chances = pairs_in(labelled, "chance", "true")
    of_votes, votes = pairs_in(table.explode("votes"), "met", "votes")
    figures = {}
    if len(labelled):
        right = labelled["met"] == labelled["true"]
        figures["accuracy"] = right.mean()
        figures["read_rate"] = len(said) / len(labelled)
    kinds = labelled["true"].astype(bool)
    if len({*kinds}) > 1:  # an unread one is wrong
        answers = labelled["met"].combine_first(~kinds).astype(bool)
        figures["balanced_accuracy"] = metrics.balanced_accuracy_score(kinds, answers)
    if len({*truth, *said}) > 1:
        figures["cohen_kappa"] = metrics.cohen_kappa_score(truth, said)
    if votes:
        figures["macro_f1_pooled"] = metrics.f1_score(votes, of_votes, average="macro")
    if len({*of_chances}) > 1:
        figures["auroc"] = metrics.roc_auc_score(of_chances, chances)
    if chances:
        gaps = np.zeros(10)
        for p, true in zip(chances, of_chances):
            place = min(int(p * 10), 9)
            gaps[place] += p - true
        figures["calibration_error"] = np.abs(gaps).sum() / len(chances)
    return figures


def certificate(report) -> dict:
    return report.result["criteria"]["certificate"]


def degenerate_study(seed):
    """Return the files of a study in which whole kinds may lack (labels, a class, read criteria, P(met)), and its pairs."""
    rng = random.Random(seed)
    truth, said, unread, chances = (rng.choice([0, 0.5, 1]) for _ in range(4))
    cases = []
    verdicts = []
    labels = []
    rows = []
    for number in range(rng.randint(1, 5)):
        points = rng.choices([1, 2, -1], k=rng.randint(1, 4))
        criteria = [{"criterion": f"k{k}", "points": worth} for k, worth in enumerate(points)]
        case = case_of(f"c{number}", "Q?", {"m": "An answer."}, criteria=criteria)
        cases.append(case)
        met = []
        odds = []
        for each in criteria:
            is_met = None
            chance = None
            if rng.random() >= 0.4 * unread:
                is_met = rng.random() < said
                chance = round(rng.random(), 1) if chances else None
            votes = [rng.random() < truth for _ in ANNOTATORS if rng.random() < 0.8]
            if seed % 10 == 0:  # no majority at all
                votes = [True, False]
            who = rng.sample(ANNOTATORS, len(votes))
            for annotator, vote in zip(who, votes):
                word = "met" if vote else "not_met"
                labels.append(label_of(case, "m", each, annotator, word))
            met.append(is_met)
            odds.append(chance)
            rows.append((is_met, chance, votes))
        verdicts.append(verdict_by(case, 0, met, odds))
        if not unread:  # a second run: each counts half
            again = [rng.random() < said for _ in met]
            verdicts.append(verdict_by(case, 0, again, odds, run=1))
            rows += [(is_met, *rest) for is_met, (_, *rest) in zip(again, rows[-len(met) :])]
    return {"cases": cases, "verdicts": verdicts, "ratings": labels}, rows


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.filterwarnings(
    "error::RuntimeWarning", "ignore::sklearn.exceptions.UndefinedMetricWarning"
)
def test_figures_of_degenerate_tables_are_those_of_scikit_learn_or_undefined(tmp_path, seed):
    files, rows = degenerate_study(seed)
    figures = certificate(made(tmp_path, **files))["judges"]["j"]
    expected = of_scikit_learn(rows)
    assert expected.keys() <= figures.keys()
    for name, figure in figures.items():
        assert figure["value"] == pytest.approx(expected.get(name))
        assert figure["value"] is not None or figure["reason"]


def test_each_physician_stands_beside_the_majority_of_the_others(study, tmp_path):
    options, labels, rows = study
    report = made(tmp_path, **options, ratings=labels)
    assert "rated by the majority of 3 physicians on criteria;" in report.page
    assert "17 labelled responses have no strict majority on each criterion" in report.page
    assert "is wrong in accuracies, and left out of kappa, macro F1" in report.page
    figures = certificate(report)["physicians"]
    for place, name in enumerate(ANNOTATORS):
        right = []
        by_judge = []
        for met, _, votes in rows:
            if len(votes) > place:
                of_others = most(votes[:place] + votes[place + 1 :])
                if of_others is not None:
                    right.append(votes[place] == of_others)
                    by_judge.append(met == of_others)  # an unread one is wrong
        accuracy = figures[name]["accuracy"]
        assert accuracy["value"] == pytest.approx(np.mean(right))
        assert accuracy["n"] == len(right)
        judged = figures[name]["accuracy of j on these pairs"]
        assert judged["value"] == pytest.approx(np.mean(by_judge))


def test_without_labels_the_scores_are_called_uncertified(study, tmp_path):
    report = made(tmp_path, **study[0])
    page = report.page
    result = report.result["criteria"]["judges"]["j"]
    assert "uncertified" in report.told
    assert "uncertified" in page
    for each in result["candidates"].values():
        row = (60, each["scored"], each["unread criteria"], span(each["harm"], 3))
        assert "".join(f'<td dir="auto">{cell}</td>' for cell in row) in page
    assert set(result["missed"]) == {"theme:0", "theme:1"}
    assert '<td dir="auto">theme:1</td>' in page
    assert '<th scope="col">failed</th><th scope="col">a</th><th scope="col">b</th>' in page
    assert "[report.html](report.html)" in (report.folder / "report.md").read_text()


@each_row("change, said")
def test_a_bad_label_gets_one_line(study, tmp_path, change, said):
    options, labels, _ = study
    given = read(labels)
    done = asked(tmp_path, **options, ratings=[*given, given[0] | change])
    failed(done, said, f"ratings.jsonl:{len(given) + 1}")
