"""recipes/abstain.py: what can be relied on is kept, the rest goes to people; and the report's curve of risk and coverage."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from doubles.agreement_study import RATINGS, agreeing_verdicts, evaluate, read, write
from doubles.introspection_study import case_of, verdict_of
from doubles.likelihood_verdicts import rated
from programs import error_line, run_recipe

from automedeval.records import Case, Rating, Verdict, read_cases

abstain = partial(run_recipe, "abstain")
RATED, FRESH = 60, 20
FACT = (5, 3, 1)  # what people say of every case


def gap_of(number: int) -> float:
    return 0.1 + 0.02 * (number * 7 % 50)


def said(number: int, gap: float, wrong: bool = False, **more: Any) -> Verdict:
    """Return a verdict whose expected scores lie this far apart, in people's order or against it."""
    sign = -1 if wrong else 1
    points = tuple(round(3 + sign * gap * step, 6) for step in (1, 0, -1))
    odds = [{"1": 0.5 + gap / 4, "5": 0.5 - gap / 4}] * 3
    extra = {"probabilities": odds} | more.pop("extra", {})
    return verdict_of(case_of(number), [round(point) for point in points], expected_scores=points, extra=extra, **more)


class Study:
    """Files of a study in which the judge is wrong exactly where it is not sure; the fresh cases come first."""

    def __init__(self, folder: Path, rated_cases: int = RATED):
        self.folder, self.output = folder, folder / "out"
        self.cases = [case_of(at) for at in range(FRESH + rated_cases)]
        self.verdicts = [said(at, gap_of(at), wrong=gap_of(at) < 0.5) for at in range(FRESH + rated_cases)]
        self.ratings = [rating for verdict in self.verdicts[FRESH:] for rating in rated(verdict, FACT)]

    def run(self, *options: object) -> Any:
        args = [
            "--verdicts", write(self.folder / "judge" / "verdicts.jsonl", self.verdicts).parent,
            "--cases", write(self.folder / "cases.jsonl", self.cases),
            "--ratings", write(self.folder / "ratings.jsonl", self.ratings), "--output", self.output,
        ]  # fmt: skip
        return abstain(*args, *([] if "--abstain_at" in options else ["--abstain_at", 0.2]), *options)

    def certificate(self) -> dict[str, Any]:
        return json.loads((self.output / "abstention.json").read_text(encoding="utf-8"))

    def kept(self) -> list[str]:
        return [record["id"] for record in read(self.output / "kept" / "cases.jsonl")]

    def queue(self) -> list[dict]:
        return read(self.output / "queue" / "cases.jsonl")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


def test_the_sure_are_kept_and_the_others_queue(study: Study) -> None:
    done = study.run()
    assert done.returncode == 0, done.stderr
    record = study.certificate()
    assert (record["judge"], record["settings"], record["confidence"]) == ("judge", "s1", "gap")
    assert (record["risk"], record["delta"], record["units"]) == (0.2, 0.1, 60)
    assert record["units_kept"] == sum(gap_of(at) * 4 / 3 >= record["threshold"] - 1e-9 for at in range(FRESH, 80))
    assert record["errors"] <= 0.2 * record["units_kept"]
    assert record["p"] <= 0.1
    kept = [case.id for at, case in enumerate(study.cases[:FRESH]) if gap_of(at) * 4 / 3 >= record["threshold"] - 1e-9]
    assert study.kept() == kept
    assert 0 < len(kept) < FRESH
    queue = study.queue()
    assert {each["id"] for each in queue} == {case.id for case in study.cases[:FRESH]} - set(kept)
    assert [each["confidence"] for each in queue] == sorted(each["confidence"] for each in queue)
    assert record["kept"] + record["queued"] == record["fresh"] == FRESH
    assert record["coverage"] == len(kept) / FRESH
    assert f"kept {len(kept)} " in done.stdout
    assert "certified: at most 0.2 of the kept pairs wrong" in done.stdout
    ElementTree.parse(study.output / "risk_coverage.svg")
    assert json.loads((study.output / "run.json").read_text())["arguments"]["abstain_at"] == 0.2


def test_other_recipes_read_what_it_writes(study: Study) -> None:
    assert study.run().returncode == 0
    ratings = write(study.folder / "later.jsonl", [r for v in study.verdicts for r in rated(v, FACT)])
    report = study.folder / "report"
    done = run_recipe(
        "report", "--verdicts", study.output / "kept", "--cases", study.output / "kept" / "cases.jsonl",
        "--ratings", ratings, "--output", report, "--resamples", 100, "--baselines", "false",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads((report / "agreement.json").read_text())["judges"]["judge"]
    assert record["valid_rate"]["value"] == 1.0
    done = run_recipe(
        "report", "--verdicts", study.output / "kept", "--cases", study.folder / "cases.jsonl",
        "--ratings", ratings, "--output", report, "--resamples", 100, "--baselines", "false",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    last = json.loads((report / "agreement.json").read_text())["judges"]["judge"]["risk_coverage"][-1]
    # The others were not kept, not wrong.
    assert last["coverage"] == pytest.approx(len(study.kept()) / len(study.cases))
    queue = list(read_cases(study.output / "queue" / "cases.jsonl"))
    assert {case.id: case.digest for case in queue}.items() <= {case.id: case.digest for case in study.cases}.items()


def test_the_queue_is_a_study_for_physicians(study: Study) -> None:
    pytest.importorskip("sqlalchemy")
    from automedeval.annotation.study import read_study

    assert study.run().returncode == 0
    file = study.folder / "study.yaml"
    text = f"title: What the judge leaves to people\ncases: {study.output / 'queue' / 'cases.jsonl'}\n"
    text += "rate:\n  raters: 1\norder: file\nannotators:\n  - {name: physician-1, role: chief}\n"
    file.write_text(text + f"database: {study.folder / 'study.sqlite'}\n", encoding="utf-8")
    assert [item.case_id for item in read_study(file).items] == [each["id"] for each in study.queue()]


def test_where_nothing_can_be_certified_all_go_to_people_and_it_says_so(tmp_path: Path) -> None:
    study = Study(tmp_path, rated_cases=12)
    done = study.run("--abstain_at", 0.1)
    assert done.returncode == 0, done.stderr
    assert (
        "nothing can be certified: 12 rated cases with a pair to test; even without an error 22 are needed"
        in done.stdout
    )
    assert "judge abstains on all" in done.stdout
    record = study.certificate()
    assert (record["threshold"], record["kept"], record["queued"], record["coverage"]) == (None, 0, FRESH, 0.0)
    assert record["promise"] is None
    assert study.kept() == read(study.output / "kept" / "verdicts.jsonl") == []
    assert len(study.queue()) == FRESH


def test_a_judge_that_is_wrong_where_it_is_sure_keeps_nothing(study: Study) -> None:
    study.verdicts = [said(at, gap_of(at), wrong=gap_of(at) > 0.5) for at in range(80)]
    assert study.run().returncode == 0
    assert "rated cases are wrong" in study.certificate()["reason"]
    assert study.kept() == []


def test_what_has_no_verdict_goes_first_in_the_queue_and_is_never_kept(study: Study) -> None:
    study.verdicts[3] = verdict_of(study.cases[3], None)
    study.verdicts[30] = verdict_of(study.cases[30], None)
    del study.verdicts[7]
    done = study.run()
    assert done.returncode == 0, done.stderr
    queue = study.queue()
    assert [each["id"] for each in queue[:2]] == ["case-3", "case-7"]
    assert [each["confidence"] for each in queue[:2]] == [None, None]
    record = study.certificate()
    assert (record["queued_without_a_confidence"], record["units"]) == (2, RATED - 1)
    assert not {"case-3", "case-7"} & set(study.kept())


def test_a_tie_of_people_is_no_pair_and_a_tie_of_the_judge_is_wrong(study: Study) -> None:
    tied = [rating for verdict in study.verdicts[FRESH:40] for rating in rated(verdict, (4, 4, 4))]
    study.ratings = tied + [rating for verdict in study.verdicts[40:] for rating in rated(verdict, FACT)]
    study.verdicts = [said(at, 0.0) for at in range(80)]
    assert study.run("--abstain_at", 0.3).returncode == 0
    record = study.certificate()
    assert record["units"] == 40
    assert (record["tested"][0]["units"], record["tested"][0]["errors"]) == (40, 40)


def test_the_same_input_gives_the_same_bytes_in_any_order_and_from_any_files(study: Study) -> None:
    assert study.run().returncode == 0
    names = ("kept/verdicts.jsonl", "queue/cases.jsonl", "abstention.json", "risk_coverage.svg")
    first = {name: (study.output / name).read_bytes() for name in names}
    parts = [write(study.folder / f"{at}.jsonl", study.verdicts[at::3][::-1]) for at in range(3)]
    cases = [write(study.folder / f"cases-{at}.jsonl", study.cases[at * 40 : at * 40 + 40]) for at in range(2)]
    done = abstain(
        "--verdicts", *parts, "--cases", *cases, "--ratings", study.folder / "ratings.jsonl",
        "--abstain_at", 0.2, "--output", study.output,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {name: (study.output / name).read_bytes() for name in names} == first


def test_rated_cases_have_no_say_in_the_thresholds(study: Study) -> None:
    assert study.run().returncode == 0
    before = [line["threshold"] for line in study.certificate()["tested"]]
    study.verdicts[FRESH:] = [said(at, 0.3 + gap_of(at) / 7) for at in range(FRESH, 80)]
    assert study.run().returncode == 0
    after = [line["threshold"] for line in study.certificate()["tested"]]
    least = min(len(before), len(after))
    assert before[:least] == after[:least]


# --- other ways to be sure --------------------------------------------------------------------------------------------


def compared(number: int, first: int, second: int, swapped: bool, first_always: bool) -> Verdict:
    """Return a pairwise verdict: the better response of two, or whichever stands first."""
    case = case_of(number)
    order = (second, first) if swapped else (first, second)
    better = case.models[order[0] if first_always else min(first, second)]
    return Verdict(
        case.id, "pairs", "medical_pairwise@1", order, (case.models[first], case.models[second]), valid=True,
        choices={"correctness": better}, extra={"models": case.models, "settings": "s1"},
    )  # fmt: skip


def test_a_judge_that_compares_pairs_is_sure_where_no_order_turns_it_round(study: Study) -> None:
    study.verdicts = [
        compared(at, first, second, swapped, first_always=at % 2 == 0)
        for at in range(80)
        for first, second in ((0, 1), (0, 2), (1, 2))
        for swapped in (False, True)
    ]
    done = study.run()
    assert done.returncode == 0, done.stderr
    assert study.certificate()["judge"] == "pairs: correctness"
    assert study.kept() == [f"case-{at}" for at in range(1, FRESH, 2)]
    assert len(read(study.output / "kept" / "verdicts.jsonl")) == 6 * FRESH // 2
    assert study.certificate()["confidence"] == "orders"
    study.verdicts = study.verdicts[::2]
    assert "has a confidence, which needs one pair judged in two orders" in error_line(study.run())


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_input_is_one_line_and_writes_nothing(study: Study) -> None:
    def error_of(*options: object) -> str:
        line = error_line(study.run(*options))
        assert not study.output.exists()
        return line

    assert "--abstain_at must be above 0 and below 1, not 1.5" in error_of("--abstain_at", 1.5)
    assert "--delta must be above 0 and below 1, not 0.0" in error_of("--delta", 0)
    assert "a case is in two of the files" in error_of(
        "--cases", study.folder / "cases.jsonl", study.folder / "cases.jsonl"
    )
    verdicts, ratings = list(study.verdicts), list(study.ratings)
    study.verdicts[5] = replace(verdicts[5], judge="other")
    assert "verdicts of judge, other: choose one with --judge" in error_of()
    study.verdicts[5] = replace(verdicts[5], extra=verdicts[5].extra | {"settings": "s2"})
    assert "verdicts of several settings: s1, s2" in error_of()
    study.verdicts = verdicts
    study.ratings = [Rating("elsewhere", "ash", "ann", "overall", 3)]
    assert "no rating of any case" in error_of()
    study.ratings = [rating for verdict in verdicts for rating in rated(verdict, FACT)]
    assert "every case of" in error_of()
    study.ratings, study.verdicts = ratings, verdicts[FRESH:]
    assert "no verdict of judge on a case without ratings has a confidence" in error_of()
    study.verdicts = verdicts
    more = write(study.folder / "more.jsonl", verdicts[:2])
    assert "case 'case-0' has verdicts in another of the files" in error_of("--verdicts", study.folder / "judge", more)


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_has_risk_and_coverage_of_every_judge_with_expected_scores(tmp_path: Path) -> None:
    whole = [verdict | {"judge": "whole", "expected_scores": None} for verdict in agreeing_verdicts()]
    result = evaluate(tmp_path, agreeing_verdicts() + whole, "--ratings", RATINGS)
    curve = result["judges"]["echo"]["risk_coverage"]
    assert curve[-1]["coverage"] == 1.0
    assert [each["coverage"] for each in curve] == sorted(each["coverage"] for each in curve)
    assert [each["threshold"] for each in curve] == sorted((each["threshold"] for each in curve), reverse=True)
    assert all(each["risk"]["low"] <= each["risk"]["value"] <= each["risk"]["high"] for each in curve)
    assert all("risk_coverage" not in record for name, record in result["judges"].items() if name != "echo")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<strong>Risk and coverage</strong> Share of wrong pairs") == 1


def test_a_case_may_have_a_confidence_of_its_own(study: Study) -> None:
    study.cases[0] = Case.from_dict(study.cases[0].to_dict() | {"source": "clinic"})
    assert study.run().returncode == 0
    assert {each.get("source") for each in study.queue() if each["id"] == "case-0"} == {"clinic"}
