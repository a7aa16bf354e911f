"""The certificate of a judge of criteria, beside scikit-learn and loops over the records."""

import json
import random

import numpy as np
import pytest
from doubles.agreement_study import told, write
from doubles.criteria_study import ANNOTATORS
from programs import error_line, run_recipe, succeeded
from sklearn import metrics
from tables import rows_of

from automedeval.records.text import span

ROWS = rows_of(__file__)


def report(folder, *more, **options):
    args = (
        "--verdicts",
        folder / "verdicts.jsonl",
        "--cases",
        folder / "cases.jsonl",
        "--encoder",
        "none",
    )
    return run_recipe(
        "report", *args, "--output", folder / "out", "--resamples", "200", *more, **options
    )


def of_scikit_learn(rows: list[tuple]) -> dict[str, float | None]:
    """Return the figures of (met, P(met), votes) pairs; None where one is not defined."""
    majority = [
        (met, p, sum(votes) * 2 > len(votes))
        for met, p, votes in rows
        if sum(votes) * 2 != len(votes)
    ]
    said, truth = ([each[at] for each in majority if each[0] is not None] for at in (0, 2))
    pooled = [(vote, met) for met, _, votes in rows if met is not None for vote in votes]
    chances, of_chances = ([each[at] for each in majority if each[1] is not None] for at in (1, 2))
    table = np.array(
        [[sum((t, s) == (a, b) for t, s in zip(truth, said)) for b in (0, 1)] for a in (0, 1)]
    )
    figures = {}
    if majority:
        figures["accuracy"] = np.mean([met == true for met, _, true in majority])
        figures["read_rate"] = len(said) / len(majority)
    if table.any(axis=1).all():
        figures["balanced_accuracy"] = metrics.balanced_accuracy_score(truth, said)
    if len({*truth, *said}) > 1:
        figures["cohen_kappa"] = metrics.cohen_kappa_score(truth, said)
    if pooled:
        figures["macro_f1_pooled"] = metrics.f1_score(*zip(*pooled), average="macro")
    if len({*of_chances}) > 1:
        figures["auroc"] = metrics.roc_auc_score(of_chances, chances)
    if chances:
        gaps = [
            [p - met for p, met in zip(chances, of_chances) if min(int(p * 10), 9) == place]
            for place in range(10)
        ]
        figures["calibration_error"] = sum(abs(sum(each)) for each in gaps) / len(chances)
    return figures


def test_every_figure_is_that_of_scikit_learn(study):
    folder, rows = study
    succeeded(report(folder, "--ratings", folder / "labels.jsonl"))
    figures = json.loads((folder / "out" / "agreement.json").read_text())["criteria"][
        "certificate"
    ]["judges"]["j"]
    expected = of_scikit_learn(rows)
    assert {name: each["value"] for name, each in figures.items()} == pytest.approx(expected)
    for name in expected:
        assert figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"]


def degenerate_study(folder, seed):
    """Write a small study in which whole kinds may lack: labels, a class, read criteria, P(met); return its pairs."""
    rng = random.Random(seed)
    truth, said, unread, chances = (rng.choice([0, 0.5, 1]) for _ in range(4))
    cases, verdicts, labels, rows = [], [], [], []
    for number in range(rng.randint(1, 5)):
        criteria = [
            {"criterion": f"k{k}", "points": rng.choice([1, 2, -1])}
            for k in range(rng.randint(1, 4))
        ]
        responses = [{"model": "m", "text": "An answer."}]
        cases.append(
            {"id": f"c{number}", "question": "Q?", "responses": responses, "criteria": criteria}
        )
        met = [None if rng.random() < 0.4 * unread else rng.random() < said for _ in criteria]
        odds = [
            None if each is None or not chances else rng.choice([0.1, 0.4, 0.4, 0.9])
            for each in met
        ]
        verdict = {
            "case_id": f"c{number}",
            "judge": "j",
            "rubric": "checklist@1",
            "order": [0],
            "valid": True,
        }
        verdicts.append(
            verdict | {"scores": None, "checklist": {"met": met, "met_probabilities": odds}}
        )
        for each, is_met, chance in zip(criteria, met, odds):
            votes = [rng.random() < truth if rng.random() < 0.8 else None for _ in range(3)]
            votes = [True, False, None] if seed % 10 == 0 else votes  # no majority at all
            for annotator, vote in zip(ANNOTATORS, votes):
                about = {
                    "case_id": f"c{number}",
                    "model": "m",
                    "criterion": each["criterion"],
                    "annotator": annotator,
                }
                labels += [] if vote is None else [about | {"label": "met" if vote else "not_met"}]
            rows.append((is_met, chance, [vote for vote in votes if vote is not None]))
    for name, records in (("cases", cases), ("verdicts", verdicts), ("labels", labels)):
        write(folder / f"{name}.jsonl", records)
    return rows


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.filterwarnings(
    "error::RuntimeWarning", "ignore::sklearn.exceptions.UndefinedMetricWarning"
)
def test_figures_of_degenerate_tables_are_those_of_scikit_learn_or_undefined(tmp_path, seed):
    rows = degenerate_study(tmp_path, seed)
    succeeded(report(tmp_path, "--ratings", tmp_path / "labels.jsonl"))
    figures = json.loads((tmp_path / "out" / "agreement.json").read_text())["criteria"][
        "certificate"
    ]["judges"]["j"]
    expected = dict.fromkeys(figures) | of_scikit_learn(rows)
    assert {name: each["value"] for name, each in figures.items()} == pytest.approx(expected)
    assert all(each["value"] is not None or each["reason"] for each in figures.values())


def test_each_physician_stands_beside_the_majority_of_the_others(study):
    folder, rows = study
    report(folder, "--ratings", folder / "labels.jsonl")
    figures = json.loads((folder / "out" / "agreement.json").read_text())["criteria"][
        "certificate"
    ]["physicians"]
    for place, name in enumerate(ANNOTATORS):
        right = []
        for _, _, votes in rows:
            others = [vote for at, vote in enumerate(votes) if at != place]
            if place < len(votes) and sum(others) * 2 != len(others):
                right.append(votes[place] == (sum(others) * 2 > len(others)))
        assert figures[name]["accuracy"]["value"] == pytest.approx(np.mean(right))
        assert figures[name]["accuracy"]["n"] == len(right)


def test_without_labels_the_scores_are_called_uncertified(study):
    folder, _ = study
    succeeded(report(folder))
    assert "uncertified" in told(folder / "out")
    page = (folder / "out" / "report.html").read_text()
    assert "uncertified" in page
    result = json.loads((folder / "out" / "agreement.json").read_text())["criteria"]["judges"]["j"]
    for each in result["candidates"].values():
        assert (
            f"<td>{span(each['harm'], 3)}</td><td>{each['scored']} of 60</td><td>{each['unread criteria']}</td>"
            in page
        )
    assert set(result["missed"]) == {"theme:0", "theme:1"}
    assert '<th scope="row">theme:1</th>' in page
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("tag", "criteria", "failed", "a", "b")
    )
    assert head in page
    summary = (folder / "out" / "report.md").read_text()
    assert "| a | " in summary
    assert "[report.html](report.html)" in summary


@pytest.mark.parametrize(("change", "said"), ROWS["test_a_bad_label_gets_one_line"])
def test_a_bad_label_gets_one_line(study, tmp_path, change, said):
    folder, _ = study
    lines = (folder / "labels.jsonl").read_text().splitlines()
    changed = json.dumps(json.loads(lines[0]) | change)
    (tmp_path / "labels.jsonl").write_text("\n".join([*lines, changed]))
    line = error_line(report(folder, "--ratings", tmp_path / "labels.jsonl"))
    assert said in line
    assert f"labels.jsonl:{len(lines) + 1}" in line
