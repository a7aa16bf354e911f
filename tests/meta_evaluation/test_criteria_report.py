"""The report of judges of criteria, beside a loop over the records: several runs, unread criteria, invalid verdicts."""

import itertools
import random
import re

import numpy as np
import pandas
import pytest
import scipy
from doubles.agreement_study import asked, case_of, made, opened, write
from doubles.criteria_study import label_of, verdict_by
from doubles.grid_reader import Visit, case_is, needs_chromium, started_browser, violations  # noqa: F401 (the fixture `browser`)
from programs import error_line
from tables import rows_of

from automedeval import Case

ROWS = rows_of(__file__)
MODELS, RUNS = ("a", "b"), 3
WORDS = {None: "unread", 0.0: "not met", 1.0: "met"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the files of a study, and its cases and verdicts in three runs, some of them unread in part or invalid."""
    folder, rng = tmp_path_factory.mktemp("runs"), random.Random(3)
    cases, verdicts = [], []
    for number in range(12):
        points = [rng.choice([5, 3, 1, -2]) for _ in range(3)] if number else [-1, -2]
        criteria = [
            {"criterion": f"k{k}", "points": each, "tags": [f"t{k}"]}
            for k, each in enumerate(points)
        ]
        answers = {model: "word " * rng.randint(1, 900) for model in MODELS}
        case = case_of(f"c{number}", "Q?", answers, criteria=criteria)
        cases.append(case)
        lost = [rng.random() < 0.2 for _ in MODELS]  # unread in every run
        for slot, run in itertools.product(range(2), range(RUNS)):
            unread = [lost[slot] or rng.random() < 0.3 for _ in points]
            met = [None if each else rng.random() < 0.5 for each in unread]
            odds = [None if each is None else rng.random() for each in met]
            said = {"valid": False, "error": "no words", "checklist": None} if all(unread) else {}
            verdicts.append(verdict_by(case, slot, met, odds, run=run) | said)
    options = {"cases": write(folder / "cases.jsonl", cases)}
    return options | {"verdicts": write(folder / "verdicts.jsonl", verdicts)}, cases, verdicts


def shares(verdicts: list[dict], case: dict, slot: int) -> list[float | None]:
    """Return of each criterion in how large a share of the runs that read it a response met it."""
    on_case = [each for each in verdicts if each["case_id"] == case["id"] and each["valid"]]
    runs = [each["checklist"]["met"] for each in on_case if each["order"] == [slot]]
    found = []
    for k in range(len(case["criteria"])):
        said = [met[k] for met in runs if met[k] is not None]
        found.append(np.mean(said) if said else None)
    return found


def answers_in(cases: list[dict], verdicts: list[dict]) -> pandas.DataFrame:
    """Return a row for each criterion of each response, with the share of the runs in which it is met."""
    rows = []
    for case, (slot, model) in itertools.product(cases, enumerate(MODELS)):
        for criterion, share in zip(case["criteria"], shares(verdicts, case, slot)):
            rows.append((model, case["id"], criterion["points"], criterion["tags"][0], share))
    table = pandas.DataFrame(rows, columns=["model", "case", "points", "tag", "share"])
    table["share"] = table["share"].astype(float)
    table["earned"] = table["points"] * table["share"]
    table["harm"] = table["earned"].where(table["points"] < 0, 0 * table["share"])
    table["possible"] = table["points"].clip(lower=0)
    table["failed"] = table["share"].where(table["points"] < 0, 1 - table["share"])
    return table


def test_a_response_counts_once_whatever_its_runs_and_unread_ones_count_too(study, tmp_path):
    options, cases, verdicts = study
    report = made(tmp_path, **options)
    result = report.result
    criteria = result["criteria"]["judges"]["j"]
    first = (
        r"No model clearly wins most pairs\. ([ab]) is first, but not clearly above (?!\1)[ab]\. "
    )
    assert re.match(first, report.said)
    table = answers_in(cases, verdicts)
    for model, of_model in table.groupby("model"):
        sums = of_model.groupby("case")[["earned", "harm", "possible"]].agg(
            lambda column: column.sum(skipna=False)
        )
        whole = sums[sums["possible"] > 0].dropna()
        scores = whole["earned"] / whole["possible"]
        candidate = criteria["candidates"][model]
        mean = result["models"]["j"]["models"][model]["score"]
        assert (candidate["responses"], candidate["scored"]) == (len(cases), len(scores))
        assert candidate["unread criteria"] == of_model["share"].isna().sum() > 0
        harm = (whole["harm"] / whole["possible"]).mean()
        assert candidate["harm"]["value"] == pytest.approx(harm)
        assert (mean["value"], mean["n"]) == (pytest.approx(scores.mean()), len(scores))
        theirs = scipy.stats.bootstrap((scores,), np.mean, method="percentile", rng=0)
        assert (mean["low"], mean["high"]) == pytest.approx(theirs.confidence_interval, abs=0.12)
    assert criteria["missed"].keys() == set(table["tag"])
    for tag, of_tag in table.groupby("tag"):
        missed, means = criteria["missed"][tag], of_tag.groupby("model")["failed"].mean()
        assert missed["candidates"] == pytest.approx(means.to_dict())
        assert missed["failed"] == pytest.approx(of_tag["failed"].mean())
    for case, shown in zip(cases, opened(report.page), strict=True):
        texts = {response["model"]: response["criteria"] for response in shown["responses"]}
        for slot, model in enumerate(MODELS):
            met = [
                share and pytest.approx(share, abs=1e-4) for share in shares(verdicts, case, slot)
            ]
            expected = [
                [criterion["points"], criterion["criterion"], [["j", share]]]
                for criterion, share in zip(case["criteria"], met)
            ]
            assert texts[model] == expected


@needs_chromium
def test_an_opened_case_shows_each_criterion_of_an_answer(study, browser, tmp_path):
    options, cases, verdicts = study
    page, case = made(tmp_path, **options).folder / "report.html", cases[1]
    visit = Visit(browser, page, bypass_csp=True)
    visit.open(f"#case={case['id']}")
    case_is(visit, case["id"])
    for slot, model in enumerate(MODELS):
        heading = visit.page.get_by_role("heading", name=model, exact=True)
        box = visit.page.locator("#case .response", has=heading)
        names, words = (box.locator(f"h4 + dl {tag}").all_text_contents() for tag in ("dt", "dd"))
        assert names == [f"{each['points']:+g} {each['criterion']}" for each in case["criteria"]]
        met = shares(verdicts, case, slot)
        assert words == [WORDS.get(share) or f"met in {share:.2f} of the runs" for share in met]
    assert violations(visit.page) == []
    visit.close()


def test_a_judge_that_read_nothing_that_is_labelled_is_uncertified(study, tmp_path):
    options, cases, verdicts = study
    labels = [label_of(cases[1], "a", {"criterion": "k0"}, "p", "met")]
    others = [each | {"judge": "other"} for each in verdicts if each["case_id"] != "c1"]
    given = options | {"verdicts": [*verdicts, *others], "ratings": labels}
    report = made(tmp_path, **given)
    assert "other is uncertified" in report.told
    assert "j is uncertified" not in report.told
    assert ">other, uncertified<" in report.page
    assert ">j<" in report.page


def test_the_report_says_how_to_audit_a_judge_of_criteria(study, tmp_path):
    told = made(tmp_path, **study[0]).told
    assert "j puts the longer response first in " in told
    assert "automedeval audit --judge JUDGE --cases" in told
    assert "--rubric checklist" in told


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
    results = [made(tmp_path, **options | {"verdicts": given}).result for given in (own, verdicts)]
    ours, packaged = (each["criteria"]["judges"]["j"]["candidates"] for each in results)
    assert ours == packaged


@pytest.mark.parametrize(
    ("changed", "said"), ROWS["test_a_checklist_that_does_not_fit_gets_one_line"]
)
def test_a_checklist_that_does_not_fit_gets_one_line(study, tmp_path, changed, said):
    options, _, verdicts = study
    place = next(n for n, each in enumerate(verdicts) if each["case_id"] == "c1" and each["valid"])
    edited = [dict(each) for each in verdicts]
    edited[place]["checklist"] = edited[place]["checklist"] | changed
    line = error_line(asked(tmp_path, **options | {"verdicts": edited}))
    assert f"verdicts.jsonl:{place + 1}: {said}" in line
