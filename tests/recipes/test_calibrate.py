"""`automedeval calibrate`: verdicts come onto people's scale; --risk says which can be relied on, beside loops over records."""

import csv
import hashlib
import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import AUTOMEDEVAL, MODELS, case_of, verdict_of
from doubles.introspection_study import verdict_of as scored_verdict
from doubles.likelihood_verdicts import invalid_of, people, rated, study
from programs import error_line, flags, run_command, run_recipe, succeeded
from scipy.stats import binom

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
    arguments = ["--verdicts", tmp_path / "rated", tmp_path / "verdicts.jsonl", "--ratings", ratings]
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
    assert [height for _, height in facts["knots"]] == sorted(height for _, height in facts["knots"])
    assert json.loads((tmp_path / "out" / "run.json").read_text())["arguments"]["rubric"] == "automedeval"
    assert "before none (judged by likelihood@1, not on this scale); after 0." in said
    assert facts["calibration_error"]["before"]["value"] is None


def test_one_of_several_judges_is_chosen(args: list, tmp_path: Path) -> None:
    others = [replace(verdict, judge="likelihood:other") for verdict in study(24)[20:]]
    file = write(tmp_path / "verdicts.jsonl", [*study(24)[20:], *others])
    line = error_line(calibrate(*args))
    assert f"{file}:5: verdicts of likelihood:other, likelihood:tiny: choose one with --judge" in line
    assert not (tmp_path / "out").exists()
    assert calibrate(*args, "--judge", "likelihood:tiny").returncode == 0
    assert len(read(tmp_path / "out" / "verdicts.jsonl")) == 4
    assert "no verdict of the judge 'nobody'" in error_line(calibrate(*args, "--judge", "nobody"))


OTHERS = study(25)[20:]
ON_CRITERIA = replace(OTHERS[0], expected_scores=None, checklist={"met": [True]})
BAD = [
    ([ON_CRITERIA], [], "verdicts.jsonl:1: a verdict on the criteria of a case, and only scores are calibrated"),
    (study(25)[18:], [], "verdicts.jsonl:1: case 'case-18' has a verdict already"),
    ([], [], "every case is rated: none is left to calibrate"),
    (OTHERS, ["--rubric", "medical_pairwise"], "medical_pairwise@1 gives choices, not scores"),
    (OTHERS, ["--ratings", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
]


@pytest.mark.parametrize(("verdicts", "options", "error"), BAD)
def test_bad_input_is_one_line_and_writes_nothing(verdicts, options, error, args, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "verdicts.jsonl", verdicts)
    assert error in error_line(calibrate(*args, *options))
    assert not (tmp_path / "out").exists()


def scored(number: int, run: int = 0) -> Verdict:
    """Return a verdict whose expected scores are what people say, a point too high and too close together."""
    points = np.interp(study(number + 1)[number].expected_scores, (-4, -2), (3, 5)).round(6).tolist()
    case = case_of(number)
    return scored_verdict(case, [round(point) for point in points], expected_scores=tuple(points), run=run)


@pytest.fixture
def scores(args: list, tmp_path: Path) -> list[object]:
    write(tmp_path / "rated" / "verdicts.jsonl", [scored(at) for at in range(20)])
    write(tmp_path / "verdicts.jsonl", [scored(at) for at in range(20, 24)] + [scored_verdict(case_of(24), None)])
    return args


def test_scores_come_onto_the_scale_too(scores: list, tmp_path: Path) -> None:
    given = [scored(at) for at in range(24)]
    facts, said = on_the_scale(scores, given[:20], [*given[20:], scored_verdict(case_of(24), None)])
    before, after = (facts["calibration_error"][name] for name in ("before", "after"))
    assert after["value"] < before["value"]
    for name, error in facts["calibration_error"].items():
        ends = f"[{error['low']:.2f}, {error['high']:.2f}]"
        assert f"{name} {error['value']:.2f} {ends}, by chance up to {error['chance']:.2f}" in said


def test_scores_of_several_criteria_become_scores_of_the_new_scale_alone(scores: list, tmp_path: Path) -> None:
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
    succeeded(run_recipe("report", *flags(verdicts=tmp_path / "out", cases=cases, output=tmp_path / "report")))


def test_several_readings_of_a_case_are_taken_and_none_twice(scores: list, tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", [scored(20), scored(20, run=1)])
    assert calibrate(*scores).returncode == 0
    assert len(read(tmp_path / "out" / "verdicts.jsonl")) == 2
    write(file, [scored(20), scored(20)])
    assert f"{file}:2: case 'case-20' has a verdict already" in error_line(calibrate(*scores))


def test_scores_beside_log_likelihoods_are_refused(scores: list, tmp_path: Path) -> None:
    file = write(tmp_path / "verdicts.jsonl", [scored(20), replace(study(22)[21], judge="judge")])
    assert f"{file}:2: scores together with numbers without a scale" in error_line(calibrate(*scores))
    write(file, [replace(scored(20), rubric="feedbackqa@1")])
    assert f"{file}:1: case 'case-20': judged by feedbackqa@1, and the verdicts" in error_line(calibrate(*scores))
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
    for name, error in (("rated", "its verdicts.jsonl is an input"), ("other", "was not written by a calibration")):
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
    verdicts = [scored_verdict(case_of(at), (2, 4, None), order=(0, 1), models=list(MODELS)) for at in range(12)]
    ratings = [
        Rating(f"case-{at}", model, annotator, criterion, score)
        for at in range(12)
        for model, scores in zip(MODELS, ((4, 2, 1), (5, 4, 5)))
        for (annotator, criterion), score in zip((("ann", "a"), ("ann", "b"), ("bea", "a")), scores)
    ]
    assert Calibration.fit(verdicts, ratings, AUTOMEDEVAL).knots == ((2.0, 2.25), (4.0, 4.5))


RATED, FRESH = 60, 20
FACT = (5, 3, 1)  # what people say of every case


def gap_of(number: int) -> float:
    return 0.1 + 0.02 * (number * 7 % 50)


def said(number: int, gap: float, wrong: bool = False, **more: Any) -> Verdict:
    """Return a verdict whose expected scores lie this far apart, in people's order or against it."""
    points = tuple(round(3 + (-gap if wrong else gap) * step, 6) for step in (1, 0, -1))
    return verdict_of(case_of(number), [round(point) for point in points], expected_scores=points, **more)


class Study:
    """Files of a study in which the judge is wrong exactly where it is not sure; the cases without ratings come first."""

    def __init__(self, folder: Path, rated_cases: int = RATED):
        self.folder, self.output = folder, folder / "out"
        self.verdicts = [said(at, gap_of(at), wrong=gap_of(at) < 0.5) for at in range(FRESH + rated_cases)]
        self.ratings = [rating for verdict in self.verdicts[FRESH:] for rating in rated(verdict, FACT)]

    def run(self, *options: object, risk: float = 0.2) -> Any:
        args = [
            "--verdicts", write(self.folder / "judge" / "verdicts.jsonl", self.verdicts).parent,
            "--ratings", write(self.folder / "ratings.jsonl", self.ratings),
            "--rubric", "automedeval", "--output", self.output, "--risk", risk,
        ]  # fmt: skip
        return calibrate(*args, *options)

    def certificate(self) -> dict[str, Any]:
        return json.loads((self.output / "calibration.json").read_text(encoding="utf-8"))["certificate"]

    def written(self) -> list[dict[str, Any]]:
        return read(self.output / "verdicts.jsonl")

    def kept(self) -> set[str]:
        return {each["case_id"] for each in self.written() if each.get("abstains") is False}


@pytest.fixture
def risky(tmp_path: Path) -> Study:
    return Study(tmp_path)


def by_loops(risky: Study) -> tuple[dict[str, float], dict[str, tuple[float, bool]]]:
    """Return the confidence of each case without ratings, and that of each rated case with whether its drawn pair is wrong."""
    people = {(each.case_id, each.model): each.score for each in risky.ratings}
    rated_ids, fresh, units = {each.case_id for each in risky.ratings}, {}, {}
    for case_id in {verdict.case_id for verdict in risky.verdicts}:
        on_it = [verdict for verdict in risky.verdicts if verdict.case_id == case_id]
        models = on_it[0].extra["models"]
        shown = [index for index in range(3) if any(index in verdict.order for verdict in on_it)]
        given = {
            index: [v.expected_scores[index] for v in on_it if v.valid and v.expected_scores[index] is not None]
            for index in shown
        }
        score = {index: mean(values) for index, values in given.items() if values}
        gaps = [abs(score[a] - score[b]) for a, b in itertools.combinations(sorted(score), 2)]
        if gaps and case_id not in rated_ids:
            fresh[case_id] = mean(gaps)
        elif gaps:
            truth = {index: people[case_id, models[index]] for index in shown if (case_id, models[index]) in people}
            pairs = [(a, b) for a, b in itertools.combinations(sorted(truth), 2) if truth[a] != truth[b]]
            if pairs:
                draw = int.from_bytes(hashlib.sha256(f"0:{case_id}".encode()).digest()[:8], "big") % len(pairs)
                a, b = pairs[draw]
                read_both = a in score and b in score
                right = read_both and (score[a] - score[b]) * (truth[a] - truth[b]) > 1e-9
                units[case_id] = mean(gaps), not right
    return fresh, units


def check(risky: Study, risk: float) -> dict[str, Any]:
    """Hold the certificate and the marked verdicts beside the loops; return the certificate."""
    certificate, (fresh, units) = risky.certificate(), by_loops(risky)
    assert certificate["units"] == len(units)
    assert certificate["tested"]
    for line in certificate["tested"]:
        wrong = [is_wrong for gap, is_wrong in units.values() if gap >= line["threshold"] - 1e-8]
        assert (line["units"], line["errors"]) == (len(wrong), sum(wrong))
        assert line["p"] == pytest.approx(binom.cdf(sum(wrong), len(wrong), risk))
    passed = list(itertools.takewhile(lambda line: line["p"] <= 0.1, certificate["tested"]))
    assert certificate["threshold"] == (passed[-1]["threshold"] if passed else None)
    assert len(certificate["tested"]) - len(passed) in (0, 1)
    for verdict in risky.written():
        gap = fresh.get(verdict["case_id"]) if verdict["valid"] else None
        assert verdict.get("confidence") == (None if gap is None else pytest.approx(gap))
        surest = passed and gap is not None and gap >= certificate["threshold"] - 1e-8
        assert verdict.get("abstains") == (None if gap is None else not surest)
    assert certificate["kept"] == len(risky.kept())
    return certificate


def test_the_sure_are_told_from_the_others(risky: Study) -> None:
    done = succeeded(risky.run())
    certificate = check(risky, 0.2)
    assert (certificate["risk"], certificate["delta"], certificate["units"]) == (0.2, 0.1, RATED)
    assert 0 < certificate["kept"] < FRESH == certificate["cases"]
    assert "at most 0.2 of the pairs are wrong, with a probability of 90 % (" in done.stdout
    left = FRESH - certificate["kept"]
    assert f"of 20 cases the judge is sure of {certificate['kept']}, and abstains on {left}\n" in done.stdout


def test_unread_responses_ties_and_several_verdicts_on_a_case(risky: Study) -> None:
    for at in range(0, FRESH + RATED, 4):  # a second verdict in another order
        given = risky.verdicts[at]
        points = [point + (0.4 if slot == at % 3 else 0) for slot, point in enumerate(given.expected_scores)]
        risky.verdicts.append(replace(given, order=(2, 1, 0), expected_scores=tuple(points), scores=(3, 3, 3)))
    for at in range(3, FRESH + RATED, 8):  # a response that no verdict reads: a pair with it is wrong
        one, _, three = risky.verdicts[at].expected_scores
        risky.verdicts[at] = replace(risky.verdicts[at], expected_scores=(one, None, three), scores=(3, None, 3))
    for at in (5, 6, 25, 26):
        risky.verdicts[at] = verdict_of(case_of(at), None, models=list(case_of(at).models))
    risky.verdicts[45] = said(45, 0.0)
    tied = [each for verdict in risky.verdicts[30:34] for each in rated(verdict, (4, 4, 4))]
    risky.ratings = [each for each in risky.ratings if each.case_id not in {tie.case_id for tie in tied}] + tied
    done = succeeded(risky.run(risk=0.45))
    certificate = check(risky, 0.45)
    assert certificate["units"] == RATED - 2 - 4
    assert certificate["without_a_gap"] == 2
    assert ", 2 without two scores" in done.stdout


def test_where_nothing_can_be_certified_it_abstains_on_all_and_says_so(tmp_path: Path) -> None:
    risky = Study(tmp_path, rated_cases=12)
    done = succeeded(risky.run(risk=0.1))
    needed = "12 rated cases with a pair to test; even without an error 22 are needed"
    assert f"nothing can be certified: {needed}" in done.stdout
    assert "of 20 cases the judge is sure of 0, and abstains on 20" in done.stdout
    certificate = risky.certificate()
    assert (certificate["threshold"], certificate["kept"]) == (None, 0)
    assert [each["abstains"] for each in risky.written()] == [True] * FRESH


def test_a_judge_that_is_wrong_where_it_is_sure_keeps_nothing(risky: Study) -> None:
    risky.verdicts = [said(at, gap_of(at), wrong=gap_of(at) > 0.5 and at % 2 == 0) for at in range(FRESH + RATED)]
    assert risky.run().returncode == 0
    assert "rated cases are wrong" in check(risky, 0.2)["reason"]
    assert risky.kept() == set()


def test_the_order_of_the_files_changes_nothing_and_rated_cases_have_no_say_in_the_thresholds(risky: Study) -> None:
    assert risky.run().returncode == 0
    first = risky.certificate()
    written = {each["case_id"]: each for each in risky.written()}
    risky.verdicts.reverse()
    assert risky.run().returncode == 0
    assert risky.certificate() == first
    assert {each["case_id"]: each for each in risky.written()} == written
    risky.verdicts.reverse()
    risky.verdicts[FRESH:] = [said(at, 0.3 + gap_of(at) / 7) for at in range(FRESH, FRESH + RATED)]
    assert risky.run().returncode == 0
    before, after = ([line["threshold"] for line in each["tested"]] for each in (first, risky.certificate()))
    least = min(len(before), len(after))
    assert before[:least] == after[:least]


def test_without_risk_there_is_no_certificate_and_what_the_judge_said_itself_stays(risky: Study) -> None:
    risky.verdicts = [replace(each, extra=each.extra | {"abstains": True}) for each in risky.verdicts]
    assert risky.run().returncode == 0
    assert risky.kept() != set(), "its own certificate does not count beside the new one"
    args = flags(verdicts=risky.folder / "judge", ratings=risky.folder / "ratings.jsonl", rubric="automedeval")
    assert calibrate(*args, "--output", risky.output).returncode == 0
    assert "certificate" not in json.loads((risky.output / "calibration.json").read_text())
    assert all(each["abstains"] is True and "confidence" not in each for each in risky.written())


def test_the_table_of_answers_tells_the_sure_from_the_others(risky: Study, tmp_path: Path) -> None:
    rows = [f"{at},Q{at}?,{','.join(f'answer {at} of {name}' for name in MODELS)}\n" for at in range(FRESH)]
    (tmp_path / "mine.csv").write_text(f"id,question,{','.join(MODELS)}\n" + "".join(rows), encoding="utf-8")
    args = ["--cases", tmp_path / "mine.csv", "--output", tmp_path / "v"]
    assert run_command("judge", *args, "--judge", "baseline:longer text").returncode == 0
    digests = {each["case_id"]: each["case_digest"] for each in read(tmp_path / "v" / "verdicts.jsonl")}
    for at, verdict in enumerate(risky.verdicts[:FRESH]):
        about = {"case_digest": digests[str(at)], "models": list(MODELS)}
        risky.verdicts[at] = replace(verdict, case_id=str(at), extra=verdict.extra | about)
    assert risky.run().returncode == 0
    to = ["--to", "csv", "--output", tmp_path / "table.csv"]
    succeeded(run_command("export", "--verdicts", risky.output, "--cases", tmp_path / "mine.csv", *to))
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        flags = {row["id"]: row[f"{MODELS[0]}_flags"] for row in csv.DictReader(file)}
    assert {case_id for case_id, flag in flags.items() if flag != "unsure"} == risky.kept()
    assert set(flags.values()) == {"unsure", ""}


def test_a_risk_that_cannot_be_tested_is_one_line_and_writes_nothing(risky: Study) -> None:
    def error_of(*options: object, risk: float = 0.2) -> str:
        line = error_line(risky.run(*options, risk=risk))
        assert not risky.output.exists()
        return line

    assert "--risk must be above 0 and below 1, not 1.5" in error_of(risk=1.5)
    assert "use `automedeval calibrate --risk R`" in error_of("--abstain_at", 0.2)
    one = {"order": (0,), "scores": (3, None, None), "expected_scores": (3.0, None, None)}
    alone = [replace(each, **one) for each in risky.verdicts]
    risky.verdicts[:FRESH] = alone[:FRESH]
    assert "--risk: no verdict to calibrate scores two responses of a case" in error_of()
