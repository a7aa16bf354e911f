"""`automedeval calibrate --risk`: which verdicts can be relied on, beside loops over the records."""

import csv
import hashlib
import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from doubles.agreement_study import read, write
from doubles.introspection_study import MODELS, case_of, verdict_of
from doubles.likelihood_verdicts import rated
from programs import error_line, flags, run_command, run_recipe, succeeded
from scipy.stats import binom

from automedeval.records import Verdict

calibrate = partial(run_recipe, "calibrate")
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
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def by_loops(study: Study) -> tuple[dict[str, float], dict[str, tuple[float, bool]]]:
    """Return the confidence of each case without ratings, and that of each rated case with whether its drawn pair is wrong."""
    people = {(each.case_id, each.model): each.score for each in study.ratings}
    rated_ids, fresh, units = {each.case_id for each in study.ratings}, {}, {}
    for case_id in {verdict.case_id for verdict in study.verdicts}:
        on_it = [verdict for verdict in study.verdicts if verdict.case_id == case_id]
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


def check(study: Study, risk: float) -> dict[str, Any]:
    """Hold the certificate and the marked verdicts beside the loops; return the certificate."""
    certificate, (fresh, units) = study.certificate(), by_loops(study)
    assert certificate["units"] == len(units)
    assert certificate["tested"]
    for line in certificate["tested"]:
        wrong = [is_wrong for gap, is_wrong in units.values() if gap >= line["threshold"] - 1e-8]
        assert (line["units"], line["errors"]) == (len(wrong), sum(wrong))
        assert line["p"] == pytest.approx(binom.cdf(sum(wrong), len(wrong), risk))
    passed = list(itertools.takewhile(lambda line: line["p"] <= 0.1, certificate["tested"]))
    assert certificate["threshold"] == (passed[-1]["threshold"] if passed else None)
    assert len(certificate["tested"]) - len(passed) in (0, 1)
    for verdict in study.written():
        gap = fresh.get(verdict["case_id"]) if verdict["valid"] else None
        assert verdict.get("confidence") == (None if gap is None else pytest.approx(gap))
        surest = passed and gap is not None and gap >= certificate["threshold"] - 1e-8
        assert verdict.get("abstains") == (None if gap is None else not surest)
    assert certificate["kept"] == len(study.kept())
    return certificate


def test_the_sure_are_told_from_the_others(study: Study) -> None:
    done = succeeded(study.run())
    certificate = check(study, 0.2)
    assert (certificate["risk"], certificate["delta"], certificate["units"]) == (0.2, 0.1, RATED)
    assert 0 < certificate["kept"] < FRESH == certificate["cases"]
    assert "at most 0.2 of the pairs are wrong, with a probability of 90 % (" in done.stdout
    left = FRESH - certificate["kept"]
    assert f"of 20 cases the judge is sure of {certificate['kept']}, and abstains on {left}\n" in done.stdout


def test_unread_responses_ties_and_several_verdicts_on_a_case(study: Study) -> None:
    for at in range(0, FRESH + RATED, 4):  # a second verdict in another order
        given = study.verdicts[at]
        points = [point + (0.4 if slot == at % 3 else 0) for slot, point in enumerate(given.expected_scores)]
        study.verdicts.append(replace(given, order=(2, 1, 0), expected_scores=tuple(points), scores=(3, 3, 3)))
    for at in range(3, FRESH + RATED, 8):  # a response that no verdict reads: a pair with it is wrong
        one, _, three = study.verdicts[at].expected_scores
        study.verdicts[at] = replace(study.verdicts[at], expected_scores=(one, None, three), scores=(3, None, 3))
    for at in (5, 6, 25, 26):
        study.verdicts[at] = verdict_of(case_of(at), None, models=list(case_of(at).models))
    study.verdicts[45] = said(45, 0.0)
    tied = [each for verdict in study.verdicts[30:34] for each in rated(verdict, (4, 4, 4))]
    study.ratings = [each for each in study.ratings if each.case_id not in {tie.case_id for tie in tied}] + tied
    done = succeeded(study.run(risk=0.45))
    certificate = check(study, 0.45)
    assert certificate["units"] == RATED - 2 - 4
    assert certificate["without_a_gap"] == 2
    assert ", 2 without two scores" in done.stdout


def test_where_nothing_can_be_certified_it_abstains_on_all_and_says_so(tmp_path: Path) -> None:
    study = Study(tmp_path, rated_cases=12)
    done = succeeded(study.run(risk=0.1))
    needed = "12 rated cases with a pair to test; even without an error 22 are needed"
    assert f"nothing can be certified: {needed}" in done.stdout
    assert "of 20 cases the judge is sure of 0, and abstains on 20" in done.stdout
    certificate = study.certificate()
    assert (certificate["threshold"], certificate["kept"]) == (None, 0)
    assert [each["abstains"] for each in study.written()] == [True] * FRESH


def test_a_judge_that_is_wrong_where_it_is_sure_keeps_nothing(study: Study) -> None:
    study.verdicts = [said(at, gap_of(at), wrong=gap_of(at) > 0.5 and at % 2 == 0) for at in range(FRESH + RATED)]
    assert study.run().returncode == 0
    assert "rated cases are wrong" in check(study, 0.2)["reason"]
    assert study.kept() == set()


def test_the_order_of_the_files_changes_nothing_and_rated_cases_have_no_say_in_the_thresholds(study: Study) -> None:
    assert study.run().returncode == 0
    first = study.certificate()
    written = {each["case_id"]: each for each in study.written()}
    study.verdicts.reverse()
    assert study.run().returncode == 0
    assert study.certificate() == first
    assert {each["case_id"]: each for each in study.written()} == written
    study.verdicts.reverse()
    study.verdicts[FRESH:] = [said(at, 0.3 + gap_of(at) / 7) for at in range(FRESH, FRESH + RATED)]
    assert study.run().returncode == 0
    before, after = ([line["threshold"] for line in each["tested"]] for each in (first, study.certificate()))
    least = min(len(before), len(after))
    assert before[:least] == after[:least]


def test_without_risk_there_is_no_certificate_and_what_the_judge_said_itself_stays(study: Study) -> None:
    study.verdicts = [replace(each, extra=each.extra | {"abstains": True}) for each in study.verdicts]
    assert study.run().returncode == 0
    assert study.kept() != set(), "its own certificate does not count beside the new one"
    args = flags(verdicts=study.folder / "judge", ratings=study.folder / "ratings.jsonl", rubric="automedeval")
    assert calibrate(*args, "--output", study.output).returncode == 0
    assert "certificate" not in json.loads((study.output / "calibration.json").read_text())
    assert all(each["abstains"] is True and "confidence" not in each for each in study.written())


def test_the_table_of_answers_tells_the_sure_from_the_others(study: Study, tmp_path: Path) -> None:
    rows = [f"{at},Q{at}?,{','.join(f'answer {at} of {name}' for name in MODELS)}\n" for at in range(FRESH)]
    (tmp_path / "mine.csv").write_text(f"id,question,{','.join(MODELS)}\n" + "".join(rows), encoding="utf-8")
    args = ["--cases", tmp_path / "mine.csv", "--output", tmp_path / "v"]
    assert run_command("judge", *args, "--judge", "baseline:longer text").returncode == 0
    digests = {each["case_id"]: each["case_digest"] for each in read(tmp_path / "v" / "verdicts.jsonl")}
    for at, verdict in enumerate(study.verdicts[:FRESH]):
        about = {"case_digest": digests[str(at)], "models": list(MODELS)}
        study.verdicts[at] = replace(verdict, case_id=str(at), extra=verdict.extra | about)
    assert study.run().returncode == 0
    to = ["--to", "csv", "--output", tmp_path / "table.csv"]
    succeeded(run_command("export", "--verdicts", study.output, "--cases", tmp_path / "mine.csv", *to))
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        flags = {row["id"]: row[f"{MODELS[0]}_flags"] for row in csv.DictReader(file)}
    assert {case_id for case_id, flag in flags.items() if flag != "unsure"} == study.kept()
    assert set(flags.values()) == {"unsure", ""}


def test_bad_input_is_one_line_and_writes_nothing(study: Study) -> None:
    def error_of(*options: object, risk: float = 0.2) -> str:
        line = error_line(study.run(*options, risk=risk))
        assert not study.output.exists()
        return line

    assert "--risk must be above 0 and below 1, not 1.5" in error_of(risk=1.5)
    assert "use `automedeval calibrate --risk R`" in error_of("--abstain_at", 0.2)
    one = {"order": (0,), "scores": (3, None, None), "expected_scores": (3.0, None, None)}
    alone = [replace(each, **one) for each in study.verdicts]
    study.verdicts[:FRESH] = alone[:FRESH]
    assert "--risk: no verdict to calibrate scores two responses of a case" in error_of()
