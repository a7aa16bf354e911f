"""`automedeval calibrate`: verdicts come onto people's scale."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from doubles.introspection_study import AUTOMEDEVAL, case_of
from doubles.introspection_study import verdict_of as scored_verdict
from doubles.likelihood_verdicts import INVALID, people, study
from factories import read, read_json, verdicts_in, write
from programs import failed, run_recipe, succeeded, told
from tables import each_row

from automedeval.meta_evaluation.calibration.scores import Calibration
from automedeval.records import Verdict

WRITTEN = ("verdicts.jsonl", "calibration.json")


class Study:
    """Twenty rated cases, five to put on the scale, and the command on them."""

    def __init__(self, folder: Path):
        self.rated = folder / "rated/verdicts.jsonl"
        self.file = folder / "verdicts.jsonl"
        self.out = folder / "out"
        verdicts = study(25)
        self.give(verdicts[:20], [*verdicts[20:24], INVALID])
        rated = people(verdicts[:20], 0.5, rubric=AUTOMEDEVAL)
        self.ratings = write(folder / "ratings.jsonl", rated)

    def give(self, rated: list[Verdict], others: list[Verdict]) -> None:
        write(self.rated, rated)
        write(self.file, others)

    def calibrate(self, **options: object):
        given = {"verdicts": [self.rated.parent, self.file], "ratings": self.ratings}
        given |= {"rubric": "automedeval", "output": self.out}
        return run_recipe("calibrate", **given | options)


@pytest.fixture
def args(tmp_path):
    return Study(tmp_path)


def on_the_scale(args: Study, fitted: list[Verdict], others: list[Verdict]) -> tuple[dict, str]:
    """Run the recipe, hold its files beside the calibration in Python, and return calibration.json and what was printed."""
    printed = told(
        args.calibrate(),
        "rated cases: 20, responses: 60, ratings: 60",
        "verdicts: 5 → 4 on the scale of automedeval@1, 1 invalid",
    )
    assert {path.name for path in args.out.iterdir()} == {*WRITTEN, "run.json"}
    facts = read_json(args.out / "calibration.json")
    ratings = [("", rating) for rating in people(study(25), 0.5, rubric=AUTOMEDEVAL)]
    calibration = Calibration.fit(fitted, ratings, AUTOMEDEVAL)
    assert facts == json.loads(json.dumps(calibration.to_dict()))
    calibrated = [calibration.apply(verdict, f"{verdict.judge}, calibrated") for verdict in others]
    assert verdicts_in(args.out) == calibrated
    return facts, printed


def test_verdicts_come_onto_the_scale(args):
    facts, said = on_the_scale(args, study(20), [*study(24)[20:], INVALID])
    heights = [height for _, height in facts["knots"]]
    assert heights == sorted(heights)
    assert read_json(args.out / "run.json")["arguments"]["rubric"] == "automedeval"
    assert "before none (judged by likelihood@1, not on this scale); after 0." in said
    assert facts["calibration_error"]["before"]["value"] is None


def test_one_of_several_judges_is_chosen(args):
    mine = study(24)[20:]
    write(args.file, [*mine, *(replace(verdict, judge="likelihood:other") for verdict in mine)])
    line = f"{args.file}:5: verdicts of likelihood:tiny, likelihood:other: choose one with --judge"
    failed(args.calibrate(), line)
    assert not args.out.exists()
    succeeded(args.calibrate(judge="likelihood:tiny"))
    assert len(verdicts_in(args.out)) == 4
    failed(args.calibrate(judge="nobody"), "no verdict of the judge 'nobody'")


OTHERS = study(25)[20:]
ON_CRITERIA = replace(OTHERS[0], expected_scores=None, checklist={"met": [True]})
GIVEN = {"on criteria": [ON_CRITERIA], "none": [], "on scores": OTHERS}


@each_row("given, options, error")
def test_bad_input_is_one_line_and_writes_nothing(
    given, options, error, args, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write(args.file, GIVEN[given])
    failed(args.calibrate(**options), error)
    assert not args.out.exists()


def scored(number: int, run: int = 0) -> Verdict:
    """Return a verdict whose expected scores are what people say, a point too high and too close together."""
    likelihoods = study(number + 1)[number].expected_scores
    points = np.interp(likelihoods, (-4, -2), (3, 5)).round(6).tolist()
    whole = [round(point) for point in points]
    return scored_verdict(case_of(number), whole, expected_scores=tuple(points), run=run)


@pytest.fixture
def scores(args):
    given = [scored(at) for at in range(24)]
    args.give(given[:20], [*given[20:], scored_verdict(case_of(24), None)])
    return args


def test_scores_come_onto_the_scale_too(scores):
    given = [scored(at) for at in range(24)]
    facts, said = on_the_scale(scores, given[:20], [*given[20:], scored_verdict(case_of(24), None)])
    before, after = (facts["calibration_error"][name] for name in ("before", "after"))
    assert after["value"] < before["value"]
    for name, error in facts["calibration_error"].items():
        shown = "{value:.2f} [{low:.2f}, {high:.2f}], by chance up to {chance:.2f}".format(**error)
        assert f"{name} {shown}" in said


def test_scores_of_several_criteria_become_scores_of_the_new_scale_alone(scores, tmp_path):
    names = ("relevancy", "knowledge_correctness", "fluency")
    for file in (scores.rated, scores.file):
        records = []
        for each in read(file):
            more = {"criterion_scores": dict.fromkeys(names, each["scores"])}
            records.append(
                each | {"rubric": "automedeval_guided@1"} | (more if each["valid"] else {})
            )
        write(file, records)
    succeeded(scores.calibrate())
    verdicts = read(scores.out / "verdicts.jsonl")
    assert [each["valid"] for each in verdicts] == [True] * 4 + [False]
    assert not any("criterion_scores" in each for each in verdicts)
    cases = write(tmp_path / "cases.jsonl", [case_of(at) for at in range(20, 25)])
    succeeded(run_recipe("report", verdicts=scores.out, cases=cases, output=tmp_path / "report"))


def test_several_readings_of_a_case_are_taken_and_none_twice(scores):
    write(scores.file, [scored(20), scored(20, run=1)])
    succeeded(scores.calibrate())
    assert len(verdicts_in(scores.out)) == 2
    write(scores.file, [scored(20), scored(20)])
    failed(scores.calibrate(), f"on case 'case-20' in this order is at {scores.file}:1 already")


def test_verdicts_by_another_rubric_or_with_other_settings_are_refused(scores):
    likelihoods = replace(study(22)[21], judge="judge")
    other_rubric = replace(scored(20), rubric="feedbackqa@1")
    for other in (likelihoods, other_rubric, replace(scored(20), settings="s2")):
        write(scores.file, [other])
        said = f"{scores.file}:1: by {other.rubric}, and the verdicts before it by automedeval@1"
        failed(scores.calibrate(), said)
    assert not scores.out.exists()


def test_one_file_of_rated_and_other_cases_is_enough(args, tmp_path):
    both = write(tmp_path / "both.jsonl", [*study(24), INVALID])
    one = tmp_path / "one"
    succeeded(args.calibrate())
    succeeded(args.calibrate(verdicts=both, output=one))
    for name in WRITTEN:
        assert (one / name).read_bytes() == (args.out / name).read_bytes()
    elsewhere = people([replace(study(1)[0], case_id="elsewhere")], rubric=AUTOMEDEVAL)
    ratings = write(tmp_path / "some.jsonl", elsewhere)
    failed(args.calibrate(ratings=ratings), "no rating is of a case")


def test_nothing_but_an_earlier_calibration_is_written_over(args, tmp_path):
    succeeded(args.calibrate())
    succeeded(args.calibrate())  # its own
    other = write(tmp_path / "other/verdicts.jsonl", study(3))
    for file, error in (
        (args.rated, "its verdicts.jsonl is an input"),
        (other, "was not written by a calibration"),
    ):
        before = file.read_bytes()
        failed(args.calibrate(output=file.parent), error)
        assert file.read_bytes() == before
