"""The report of judges of criteria, beside a loop over the records: several runs, unread criteria, invalid verdicts."""

import itertools
import random
import re

import numpy as np
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


def score(points: list[float], met: list[float | None]) -> float | None:
    """Return the score of shares of runs in which criteria are met; None if one is unread, or none is worth points."""
    possible = sum(worth for worth in points if worth > 0)
    if None in met or not possible:
        return None
    return sum(worth * share for worth, share in zip(points, met)) / possible


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


def points_of(case: dict) -> list[float]:
    return [each["points"] for each in case["criteria"]]


def test_a_response_counts_once_whatever_its_runs_and_unread_ones_count_too(study, tmp_path):
    options, cases, verdicts = study
    report = made(tmp_path, **options)
    result = report.result
    criteria = result["criteria"]["judges"]["j"]
    first = (
        r"No model clearly wins most pairs\. ([ab]) is first, but not clearly above (?!\1)[ab]\. "
    )
    assert re.match(first, report.said)
    failed: dict[str, dict[str, list[float]]] = {f"t{k}": {"a": [], "b": []} for k in range(3)}
    for slot, model in enumerate(MODELS):
        whole, harms, lost = [], [], 0
        for case in cases:
            points, met = points_of(case), shares(verdicts, case, slot)
            lost += met.count(None)
            for each, share in zip(case["criteria"], met):
                if share is not None:
                    fails = 1 - share if each["points"] > 0 else share
                    failed[each["tags"][0]][model].append(fails)
            if (value := score(points, met)) is not None:
                whole.append(value)
                harmful = [share * (worth < 0) for worth, share in zip(points, met)]
                harms.append(score(points, harmful))
        candidate, mean = (
            criteria["candidates"][model],
            result["models"]["j"]["models"][model]["score"],
        )
        assert (candidate["responses"], candidate["scored"]) == (len(cases), len(whole))
        assert candidate["unread criteria"] == lost > 0
        assert candidate["harm"]["value"] == pytest.approx(np.mean(harms))
        assert (mean["value"], mean["n"]) == (pytest.approx(np.mean(whole)), len(whole))
        theirs = scipy.stats.bootstrap((whole,), np.mean, method="percentile", rng=0)
        assert (mean["low"], mean["high"]) == pytest.approx(theirs.confidence_interval, abs=0.12)
    assert criteria["missed"].keys() == failed.keys()
    for tag, each in criteria["missed"].items():
        means = {model: np.mean(own) for model, own in failed[tag].items()}
        assert each["candidates"] == pytest.approx(means)
        assert each["failed"] == pytest.approx(np.mean([*itertools.chain(*failed[tag].values())]))
    for case, shown in zip(cases, opened(report.page), strict=True):
        texts = {each["model"]: each["criteria"] for each in shown["responses"]}
        for slot, model in enumerate(MODELS):
            expected = [
                [
                    each["points"],
                    each["criterion"],
                    [["j", share and pytest.approx(share, abs=1e-4)]],
                ]
                for each, share in zip(case["criteria"], shares(verdicts, case, slot))
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


def test_the_report_says_how_often_a_judge_of_criteria_prefers_the_longer_response_and_how_to_audit_it(
    study, tmp_path
):
    """The longer response by a loop over the records."""
    options, cases, verdicts = study
    told, preferred = made(tmp_path, **options).told, []
    assert "automedeval audit --judge JUDGE --cases" in told
    assert "--rubric checklist" in told
    for case in cases:
        first, second = (score(points_of(case), shares(verdicts, case, slot)) for slot in (0, 1))
        lengths = [len(response["text"].split()) for response in case["responses"]]
        if None not in (first, second) and lengths[0] != lengths[1]:
            ahead = (first - second) * (lengths[0] - lengths[1])
            preferred.append(0.5 if abs(first - second) < 1e-9 else float(ahead > 0))
    assert f"j puts the longer response first in {100 * np.mean(preferred):.0f} %." in told


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
