"""`automedeval calibrate`: verdicts come onto people's scale."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import AUTOMEDEVAL, MODELS, case_of
from doubles.introspection_study import verdict_of as scored_verdict
from doubles.likelihood_verdicts import invalid_of, people, study
from programs import error_line, flags, run_recipe, succeeded

from automedeval.meta_evaluation.calibration.scores import Calibration
from automedeval.records import Rating, Verdict

calibrate = partial(run_recipe, "calibrate")
WRITTEN = ("verdicts.jsonl", "calibration.json")


@pytest.fixture
def args(tmp_path: Path) -> list[object]:
    """Write twenty rated cases and five to put on the scale; return the recipe's arguments."""
    verdicts = study(25)
    (tmp_path / "rated").mkdir()
    write(tmp_path / "rated" / "verdicts.jsonl", verdicts[:20])
    write(tmp_path / "verdicts.jsonl", [*verdicts[20:24], invalid_of(24)])
    ratings = write(tmp_path / "ratings.jsonl", people(verdicts[:20], 0.5, rubric=AUTOMEDEVAL))
    arguments = [
        "--verdicts",
        tmp_path / "rated",
        tmp_path / "verdicts.jsonl",
        "--ratings",
        ratings,
    ]
    return [*arguments, "--rubric", "automedeval", "--output", tmp_path / "out"]


def on_the_scale(args: list, fitted: list[Verdict], others: list[Verdict]) -> tuple[dict, str]:
    """Run the recipe, hold its files beside the calibration in Python, and return calibration.json and what was printed."""
    done, out = succeeded(calibrate(*args)), Path(args[-1])
    assert "20 rated cases, 60 responses, 60 ratings" in done.stdout
    assert "5 verdicts → 4 on the scale of automedeval@1, 1 invalid" in done.stdout
    assert {path.name for path in out.iterdir()} == {*WRITTEN, "run.json"}
    facts = json.loads((out / "calibration.json").read_text())
    calibration = Calibration.fit(fitted, people(study(25), 0.5, rubric=AUTOMEDEVAL), AUTOMEDEVAL)
    assert facts == json.loads(json.dumps(calibration.to_dict()))
    calibrated = [calibration.apply(verdict, f"{verdict.judge}, calibrated") for verdict in others]
    assert [Verdict.from_dict(each) for each in read(out / "verdicts.jsonl")] == calibrated
    return facts, done.stdout


def test_verdicts_come_onto_the_scale(args: list, tmp_path: Path) -> None:
    facts, said = on_the_scale(args, study(20), [*study(24)[20:], invalid_of(24)])
    assert [height for _, height in facts["knots"]] == sorted(
        height for _, height in facts["knots"]
    )
    assert (
        json.loads((tmp_path / "out" / "run.json").read_text())["arguments"]["rubric"]
        == "automedeval"
    )
    assert "before none (judged by likelihood@1, not on this scale); after 0." in said
    assert facts["calibration_error"]["before"]["value"] is None


def test_one_of_several_judges_is_chosen(args: list, tmp_path: Path) -> None:
    others = [replace(verdict, judge="likelihood:other") for verdict in study(24)[20:]]
    file = write(tmp_path / "verdicts.jsonl", [*study(24)[20:], *others])
    line = error_line(calibrate(*args))
    assert (
        f"{file}:5: verdicts of likelihood:other, likelihood:tiny: choose one with --judge" in line
    )
    assert not (tmp_path / "out").exists()
    assert calibrate(*args, "--judge", "likelihood:tiny").returncode == 0
    assert len(read(tmp_path / "out" / "verdicts.jsonl")) == 4
    assert "no verdict of the judge 'nobody'" in error_line(calibrate(*args, "--judge", "nobody"))


OTHERS = study(25)[20:]
ON_CRITERIA = replace(OTHERS[0], expected_scores=None, checklist={"met": [True]})
BAD = [
    (
        [ON_CRITERIA],
        [],
        "verdicts.jsonl:1: a verdict on the criteria of a case, and only scores are calibrated",
    ),
    (study(25)[18:], [], "on case 'case-18' in this order is at"),
    (
        [replace(OTHERS[0], expected_scores=(-1.0,))],
        [],
        "does not fit the 3 responses of case 'case-20'",
    ),
    ([], [], "every case is rated: none is left to calibrate"),
    (OTHERS, ["--rubric", "medical_pairwise"], "medical_pairwise@1 gives choices, not scores"),
    (OTHERS, ["--ratings", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
]


@pytest.mark.parametrize(("verdicts", "options", "error"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(
    verdicts, options, error, args, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "verdicts.jsonl", verdicts)
    assert error in error_line(calibrate(*args, *options))
    assert not (tmp_path / "out").exists()


def scored(number: int, run: int = 0) -> Verdict:
    """Return a verdict whose expected scores are what people say, a point too high and too close together."""
    points = (
        np.interp(study(number + 1)[number].expected_scores, (-4, -2), (3, 5)).round(6).tolist()
    )
    case = case_of(number)
    return scored_verdict(
        case, [round(point) for point in points], expected_scores=tuple(points), run=run
    )


@pytest.fixture
def scores(args: list, tmp_path: Path) -> list[object]:
    write(tmp_path / "rated" / "verdicts.jsonl", [scored(at) for at in range(20)])
    write(
        tmp_path / "verdicts.jsonl",
        [scored(at) for at in range(20, 24)] + [scored_verdict(case_of(24), None)],
    )
    return args


def test_scores_come_onto_the_scale_too(scores: list, tmp_path: Path) -> None:
    given = [scored(at) for at in range(24)]
    facts, said = on_the_scale(scores, given[:20], [*given[20:], scored_verdict(case_of(24), None)])
    before, after = (facts["calibration_error"][name] for name in ("before", "after"))
    assert after["value"] < before["value"]
    for name, error in facts["calibration_error"].items():
        ends = f"[{error['low']:.2f}, {error['high']:.2f}]"
        assert f"{name} {error['value']:.2f} {ends}, by chance up to {error['chance']:.2f}" in said


def test_scores_of_several_criteria_become_scores_of_the_new_scale_alone(
    scores: list, tmp_path: Path
) -> None:
    names = ("relevancy", "knowledge_correctness", "fluency")
    for file in (tmp_path / "rated" / "verdicts.jsonl", tmp_path / "verdicts.jsonl"):
        records = [each | {"rubric": "automedeval_guided@1"} for each in read(file)]
        write(file, [
            each | ({"criterion_scores": dict.fromkeys(names, each["scores"])} if each["valid"] else {}) for each in records
        ])  # fmt: skip
    assert calibrate(*scores).returncode == 0
    verdicts = read(tmp_path / "out" / "verdicts.jsonl")
    assert [each["valid"] for each in verdicts] == [True] * 4 + [False]
    assert not any("criterion_scores" in each for each in verdicts)
    cases = write(tmp_path / "cases.jsonl", [case_of(at) for at in range(20, 25)])
    succeeded(
        run_recipe(
            "report", *flags(verdicts=tmp_path / "out", cases=cases, output=tmp_path / "report")
        )
    )


def test_several_readings_of_a_case_are_taken_and_none_twice(scores: list, tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", [scored(20), scored(20, run=1)])
    assert calibrate(*scores).returncode == 0
    assert len(read(tmp_path / "out" / "verdicts.jsonl")) == 2
    write(file, [scored(20), scored(20)])
    assert f"on case 'case-20' in this order is at {file}:1 already" in error_line(
        calibrate(*scores)
    )


def test_scores_beside_log_likelihoods_are_refused(scores: list, tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", [scored(20), replace(study(22)[21], judge="judge")])
    assert f"{file}:2: scores together with numbers without a scale" in error_line(
        calibrate(*scores)
    )
    write(file, [replace(scored(20), rubric="feedbackqa@1")])
    assert f"{file}:1: case 'case-20': judged by feedbackqa@1, and the verdicts" in error_line(
        calibrate(*scores)
    )
    assert not (tmp_path / "out").exists()


def test_one_file_of_rated_and_other_cases_is_enough(args: list, tmp_path: Path) -> None:
    assert calibrate(*args).returncode == 0
    apart = {name: (tmp_path / "out" / name).read_bytes() for name in WRITTEN}
    both = write(tmp_path / "both.jsonl", [*study(24), invalid_of(24)])
    succeeded(calibrate("--verdicts", both, *args[3:-1], tmp_path / "one"))
    assert {name: (tmp_path / "one" / name).read_bytes() for name in WRITTEN} == apart
    elsewhere = people([replace(study(1)[0], case_id="elsewhere")], rubric=AUTOMEDEVAL)
    ratings = write(tmp_path / "some.jsonl", elsewhere)
    assert "no case is rated" in error_line(calibrate(*args, "--ratings", ratings))


def test_nothing_but_an_earlier_calibration_is_written_over(args: list, tmp_path: Path) -> None:
    assert calibrate(*args).returncode == 0
    assert calibrate(*args).returncode == 0  # its own
    for name, error in (
        ("rated", "its verdicts.jsonl is an input"),
        ("other", "was not written by a calibration"),
    ):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        file = folder / "verdicts.jsonl"
        if not file.exists():
            write(file, study(3))
        before = file.read_bytes()
        assert error in error_line(calibrate(*args[:-1], folder))
        assert file.read_bytes() == before


def test_a_step_of_the_line_is_the_mean_of_its_targets(tmp_path: Path) -> None:
    # Every case: the response scored 2 has 4 and 1 on one criterion, 2 on the other: (2.5 + 2) / 2 = 2.25, and not 7 / 3.
    # The response scored 4 has 5 and 5 on one and 4 on the other: (5 + 4) / 2 = 4.5, and not 14 / 3.
    verdicts = [
        scored_verdict(case_of(at), (2, 4, None), order=(0, 1), models=list(MODELS))
        for at in range(12)
    ]
    ratings = [
        Rating(f"case-{at}", model, annotator, criterion, score)
        for at in range(12)
        for model, scores in zip(MODELS, ((4, 2, 1), (5, 4, 5)))
        for (annotator, criterion), score in zip((("ann", "a"), ("ann", "b"), ("bea", "a")), scores)
    ]
    assert Calibration.fit(verdicts, ratings, AUTOMEDEVAL).knots == ((2.0, 2.25), (4.0, 4.5))
