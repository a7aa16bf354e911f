"""P(met) put on physicians' labels, by its command, beside scikit-learn's logistic regression."""

import json
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.criteria_study import CRITERIA
from programs import error_line, run_command, succeeded
from sklearn.linear_model import LogisticRegression
from tables import rows_of

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.criteria.calibration import FOLDS, RIDGE

ROWS = rows_of(__file__)
EDGE = 1e-4


def calibrate(folder: Path, *more: object, out: str = "out"):
    args = ("calibrate", "--verdicts", folder / "verdicts.jsonl", "--output", folder / out)
    return run_command(*args, "--cases", folder / "cases.jsonl", "--ratings", folder / "labels.jsonl", *more)


def fitted(rows: list[tuple]) -> tuple[float, float]:
    """Return slope and shift by scikit-learn, from strict majorities; the shift is one more column with the same ridge."""
    sure = [(chance, votes) for _, chance, votes in rows if chance is not None and 2 * sum(votes) != len(votes)]
    pairs = [(chance, 2 * sum(votes) > len(votes)) for chance, votes in sure]
    chance = np.clip([each for each, _ in pairs], EDGE, 1 - EDGE)
    design = np.column_stack([np.log(chance / (1 - chance)), np.ones(len(pairs))])
    model = LogisticRegression(C=1 / RIDGE, fit_intercept=False, tol=1e-10, max_iter=1000)
    return tuple(model.fit(design, [vote for _, vote in pairs]).coef_[0])


def new(chance: float, line: tuple[float, float]) -> float:
    chance = min(max(chance, EDGE), 1 - EDGE)
    return 1 / (1 + np.exp(-(line[0] * np.log(chance / (1 - chance)) + line[1])))


def test_the_line_is_that_of_scikit_learn_and_labelled_cases_take_that_of_other_cases(study) -> None:
    folder, rows = study
    succeeded(calibrate(folder))
    facts = json.loads((folder / "out" / "calibration.json").read_text())
    place, line = {f"c{number}": number for number in range(60)}, facts["line"]
    assert (line["slope"], line["shift"]) == pytest.approx(fitted(rows), rel=1e-4)
    assert new(line["threshold"], (line["slope"], line["shift"])) == pytest.approx(0.5)
    order = [case.id for case in Cases.read(str(folder / "cases.jsonl")).records]
    fold = {name: at % FOLDS for at, name in enumerate(order)}
    first = order[0]
    line = fitted([row for at, row in enumerate(rows) if fold[f"c{at // 6}"]])
    calibrated = read(folder / "out" / "verdicts.jsonl")
    (verdict,) = [each for each in calibrated if each["case_id"] == first and each["order"] == [0]]
    row = rows[place[first] * 6]
    expected = None if row[1] is None else new(row[1], line)
    assert verdict["checklist"]["met_probabilities"][0] == (expected and pytest.approx(expected, abs=2e-5))
    for each in calibrated:
        checklist = each["checklist"]
        assert each["judge"] == "j, calibrated"
        assert checklist["met"] == [None if p is None else p > 0.5 for p in checklist["met_probabilities"]]
        score = sum(c["points"] for c, met in zip(CRITERIA, checklist["met"]) if met) / 8
        assert checklist["score"] == pytest.approx(score)
    before, after = (facts[side]["calibration_error"]["value"] for side in ("before", "after"))
    assert after < before


def test_other_cases_take_the_line_of_all_labels(study, tmp_path):
    folder, rows = study
    for name in ("cases", "verdicts", "labels"):
        lines = read(folder / f"{name}.jsonl")
        write(tmp_path / f"{name}.jsonl", [each for each in lines if name != "labels" or int(each["case_id"][1:]) < 15])
    succeeded(calibrate(tmp_path))
    line = fitted(rows[: 15 * 6])
    for each in read(tmp_path / "out" / "verdicts.jsonl"):
        number = int(each["case_id"][1:])
        chance = rows[number * 6 + each["order"][0] * 3 + 1][1]
        if number >= 15 and chance is not None:
            assert each["checklist"]["met_probabilities"][1] == pytest.approx(new(chance, line), abs=2e-5)


def test_a_certificate_of_the_calibrated_verdicts_is_the_one_that_was_printed(study) -> None:
    folder, _ = study
    assert calibrate(folder, out="again").returncode == 0
    facts = json.loads((folder / "again" / "calibration.json").read_text())
    args = ("--verdicts", folder / "again", "--cases", folder / "cases.jsonl", "--encoder", "none")
    args += ("--ratings", folder / "labels.jsonl", "--output", folder / "report", "--resamples", 100)
    succeeded(run_command("report", *args))
    result = json.loads((folder / "report" / "agreement.json").read_text())["criteria"]
    certificate = result["certificate"]["judges"]["j, calibrated"]
    for name in ("accuracy", "balanced_accuracy", "auroc"):
        assert certificate[name]["value"] == pytest.approx(facts["after"][name]["value"], abs=1e-3)


@pytest.mark.parametrize(("change", "more", "said"), ROWS["test_what_cannot_be_calibrated_gets_one_line"])
def test_what_cannot_be_calibrated_gets_one_line(study, tmp_path, change, more, said) -> None:
    folder, _ = study
    for name in ("cases", "labels"):
        write(tmp_path / f"{name}.jsonl", read(folder / f"{name}.jsonl"))
    verdicts = read(folder / "verdicts.jsonl")
    write(tmp_path / "verdicts.jsonl", [each | {"checklist": each["checklist"] | change} for each in verdicts])
    assert said in error_line(calibrate(tmp_path, *more))
    assert not (tmp_path / "out" / "verdicts.jsonl").exists()


def test_ratings_of_scores_do_not_calibrate_verdicts_on_criteria(study, tmp_path) -> None:
    verdicts, case = study[0] / "verdicts.jsonl", read(study[0] / "cases.jsonl")[0]
    rating = {"case_id": case["id"], "model": case["responses"][0]["model"], "annotator": "a", "score": 3}
    ratings = write(tmp_path / "r.jsonl", [rating | {"criterion": "overall"}])
    options = ("--ratings", ratings, "--rubric", "automedeval", "--output", tmp_path / "o")
    line = error_line(run_command("calibrate", "--verdicts", verdicts, *options))
    assert "verdicts.jsonl:1: a verdict on the criteria of a case, which needs people's labels of these" in line


@pytest.mark.parametrize(("more", "said"), ROWS["test_labels_need_the_cases_and_take_no_option_of_scores"])
def test_labels_need_the_cases_and_take_no_option_of_scores(study, more: tuple, said: str) -> None:
    labels = study[0] / "labels.jsonl"
    line = error_line(run_command("calibrate", "--verdicts", "v", "--ratings", labels, "--output", "o", *more))
    assert said.format(labels) in line
