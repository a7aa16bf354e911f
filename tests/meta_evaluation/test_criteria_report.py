"""The report of judges of criteria, beside a loop over the records: several runs, unread criteria, invalid verdicts."""

import random
import re
from copy import deepcopy
from itertools import product

import numpy as np
import pandas
import pytest
import scipy
from doubles.agreement_study import asked, case_of, made, opened, write
from doubles.criteria_study import label_of, verdict_by
from doubles.grid_reader import Visit, case_is, needs_chromium, started_browser, violations  # noqa: F401 (the fixture `browser`)
from programs import failed, module_fixture
from tables import each_row

from automedeval import Case

MODELS = ("a", "b")
RUNS = 3
WORDS = {None: "unread", 0.0: "not met", 1.0: "met"}


@module_fixture
def study(tmp_path_factory):
    """Return the files of a study, and its cases and verdicts in three runs, some of them unread in part or invalid."""
    folder = tmp_path_factory.mktemp("runs")
    rng = random.Random(3)
    cases = []
    verdicts = []
    for number in range(12):
        points = [-1, -2]
        if number:
            points = rng.choices([5, 3, 1, -2], k=3)
        criteria = []
        for k, worth in enumerate(points):
            criteria.append({"criterion": f"k{k}", "points": worth, "tags": [f"t{k}"]})
        answers = {model: "word " * rng.randint(1, 900) for model in MODELS}
        case = case_of(f"c{number}", "Q?", answers, criteria=criteria)
        cases.append(case)
        lost = [rng.random() < 0.2 for _ in MODELS]  # unread in every run
        for slot, run in product(range(2), range(RUNS)):
            unread = [lost[slot] or rng.random() < 0.3 for _ in points]
            met = [None if each else rng.random() < 0.5 for each in unread]
            odds = [None if each else rng.random() for each in unread]
            record = verdict_by(case, slot, met, odds, run=run)
            if all(unread):
                record |= {"valid": False, "error": "no words", "checklist": None}
            verdicts.append(record)
    files = {
        "cases": write(folder / "cases.jsonl", cases),
        "verdicts": write(folder / "verdicts.jsonl", verdicts),
    }
    return files, cases, verdicts


def shares(verdicts: list[dict], case: dict, slot: int) -> list[float | None]:
    """Return of each criterion in how large a share of the runs that read it a response met it."""
    runs = []
    for each in verdicts:
        if each["valid"] and each["case_id"] == case["id"] and each["order"] == [slot]:
            runs.append(each["checklist"]["met"])
    found = []
    for k in range(len(case["criteria"])):
        said = [met[k] for met in runs if met[k] is not None]
        found.append(np.mean(said) if said else None)
    return found


def answers_in(cases: list[dict], verdicts: list[dict]) -> pandas.DataFrame:
    """Return a row for each criterion of each response, with the share of the runs in which it is met."""
    rows = []
    for case, (slot, model) in product(cases, enumerate(MODELS)):
        for criterion, share in zip(case["criteria"], shares(verdicts, case, slot)):
            (tag,) = criterion["tags"]
            rows.append((model, case["id"], criterion["points"], tag, share))
    table = pandas.DataFrame(rows, columns=["model", "case", "points", "tag", "share"])
    points = table["points"]
    share = table["share"].astype(float)
    earned = points * share
    return table.assign(
        share=share,
        earned=earned,
        harm=earned.where(points < 0, 0 * share),
        possible=points.clip(lower=0),
        failed=share.where(points < 0, 1 - share),
    )


def test_a_verdict_with_some_criteria_unread_has_no_score(study, tmp_path):
    options, _, verdicts = study
    rates = made(tmp_path, **options).result["main_judge"]["valid_rates"]
    models = [MODELS[each["order"][0]] for each in verdicts]
    # The first case has no positive points.
    scored = [
        each["valid"] and each["case_id"] != "c0" and None not in each["checklist"]["met"]
        for each in verdicts
    ]
    shares = pandas.Series(scored).groupby(models).mean()
    assert {model: rates[model]["value"] for model in MODELS} == pytest.approx(shares.to_dict())


def test_a_response_counts_once_whatever_its_runs_and_unread_ones_count_too(study, tmp_path):
    options, cases, verdicts = study
    report = made(tmp_path, **options)
    result = report.result
    criteria = result["criteria"]["judges"]["j"]
    is_first = "is first by pairs won, but not clearly above"
    first = rf"No model clearly wins most pairs\. ([ab]) {is_first} (?!\1)[ab]\. "
    assert re.match(first, report.said)
    for said in (
        "j puts the response with more words first in ",
        "a has 1 response and b 1 that the judge could not read by all criteria",
        "automedeval audit --judge JUDGE --cases .*--rubric checklist",
    ):
        assert re.search(said, report.told)
    table = answers_in(cases, verdicts)
    for model, of_model in table.groupby("model"):
        by_case = of_model.groupby("case")[["earned", "harm", "possible"]]
        sums = by_case.sum(skipna=False)
        whole = sums[sums["possible"] > 0].dropna()
        scores = whole["earned"] / whole["possible"]
        candidate = criteria["candidates"][model]
        mean = result["models"]["j"]["models"][model]["score"]
        assert candidate["responses"] == len(cases)
        assert candidate["scored"] == len(scores)
        unread = of_model["share"].isna()
        assert candidate["unread criteria"] == unread.sum() > 0
        harm = whole["harm"] / whole["possible"]
        assert candidate["harm"]["value"] == pytest.approx(harm.mean())
        assert mean["value"] == pytest.approx(scores.mean())
        assert mean["n"] == len(scores)
        theirs = scipy.stats.bootstrap((scores,), np.mean, method="percentile", rng=0)
        low, high = theirs.confidence_interval
        assert mean["low"] == pytest.approx(low, abs=0.12)
        assert mean["high"] == pytest.approx(high, abs=0.12)
    assert criteria["missed"].keys() == set(table["tag"])
    for tag, of_tag in table.groupby("tag"):
        missed = criteria["missed"][tag]
        means = of_tag.groupby("model")["failed"].mean()
        assert missed["candidates"] == pytest.approx(means.to_dict())
        assert missed["failed"] == pytest.approx(of_tag["failed"].mean())
    for case, shown in zip(cases, opened(report.page), strict=True):
        texts = {response["model"]: response["criteria"] for response in shown["responses"]}
        for slot, model in enumerate(MODELS):
            met = shares(verdicts, case, slot)
            rows = zip(texts[model], case["criteria"], met, strict=True)
            for (points, text, [[judge, share]]), criterion, expected in rows:
                assert points == criterion["points"]
                assert text == criterion["criterion"]
                assert judge == "j"
                assert share == (expected and pytest.approx(expected, abs=1e-4))


@needs_chromium
def test_an_opened_case_shows_each_criterion_of_an_answer(study, browser, tmp_path):
    options, cases, verdicts = study
    page = made(tmp_path, **options).folder / "report.html"
    case = cases[1]
    visit = Visit(browser, page, bypass_csp=True)
    visit.open(f"#case={case['id']}")
    case_is(visit, case["id"])
    for slot, model in enumerate(MODELS):
        heading = visit.page.get_by_role("heading", name=model, exact=True)
        box = visit.page.locator("#case .response", has=heading)
        names = box.locator("h4 + dl dt").all_text_contents()
        words = box.locator("h4 + dl dd").all_text_contents()
        met = shares(verdicts, case, slot)
        assert names == [f"{each['points']:+g} {each['criterion']}" for each in case["criteria"]]
        assert words == [WORDS.get(share) or f"met in {share:.2f} of the runs" for share in met]
    assert violations(visit.page) == []
    visit.close()


def test_a_judge_that_read_nothing_that_is_labelled_is_uncertified(study, tmp_path):
    options, cases, verdicts = study
    labels = [label_of(cases[1], "a", {"criterion": "k0"}, "p", "met")]
    others = [each | {"judge": "other"} for each in verdicts if each["case_id"] != "c1"]
    report = made(tmp_path, **options | {"verdicts": verdicts + others, "ratings": labels})
    assert "other is uncertified" in report.told
    assert "j is uncertified" not in report.told
    assert ">other, uncertified<" in report.page
    assert ">j<" in report.page


def test_an_invalid_verdict_by_a_checklist_of_one_s_own_is_one_of_criteria(study, tmp_path):
    options, cases, verdicts = study
    by_id = {case["id"]: Case.from_dict(case) for case in cases}
    own = []
    for each in sorted(verdicts, key=lambda each: each["valid"]):
        case = by_id[each["case_id"]]
        mine = {"rubric": "mine@1", "case_digest": case.checklist_digest}
        if not each["valid"]:  # what it says does not count
            mine["checklist"] = {"met": [True for _ in case.criteria]}
        own.append(each | mine)
    assert not own[0]["valid"]

    def candidates(given: list[dict]) -> dict:
        result = made(tmp_path, **options | {"verdicts": given}).result
        return result["criteria"]["judges"]["j"]["candidates"]

    assert candidates(own) == candidates(verdicts)


@each_row("changed, said")
def test_a_checklist_that_does_not_fit_gets_one_line(study, tmp_path, changed, said):
    options, _, verdicts = study
    place = next(n for n, each in enumerate(verdicts) if each["case_id"] == "c1" and each["valid"])
    edited = deepcopy(verdicts)
    edited[place]["checklist"] |= changed
    done = asked(tmp_path, **options | {"verdicts": edited})
    failed(done, f"verdicts.jsonl:{place + 1}: {said}")
