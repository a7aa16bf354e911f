"""The report of judges of criteria, beside a loop over the records: several runs, unread criteria, invalid verdicts."""

import itertools
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import scipy
from doubles.agreement_study import opened, told, write
from doubles.grid_reader import Visit, case_is, needs_chromium, started_browser, violations  # noqa: F401 (the fixture `browser`)
from programs import error_line, flags, run_command, succeeded
from tables import rows_of

from automedeval import Case

ROWS = rows_of(__file__)

MODELS, RUNS = ("a", "b"), 3


def score(points: list[float], met: list[float]) -> float | None:
    possible = sum(worth for worth in points if worth > 0)
    return sum(worth * share for worth, share in zip(points, met)) / possible if possible else None


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict], list[dict]]:
    """Write cases and verdicts in three runs, some of them unread in part or invalid; return folder, cases and verdicts."""
    folder, rng = tmp_path_factory.mktemp("runs"), random.Random(3)
    cases, verdicts = [], []
    for number in range(12):
        points = [rng.choice([5, 3, 1, -2]) for _ in range(3)] if number else [-1, -2]
        criteria = [
            {"criterion": f"k{k}", "points": each, "tags": [f"t{k}"]}
            for k, each in enumerate(points)
        ]
        responses = [{"model": model, "text": "word " * rng.randint(1, 900)} for model in MODELS]
        cases.append(
            {"id": f"c{number}", "question": "Q?", "responses": responses, "criteria": criteria}
        )
        lost = {slot: rng.random() < 0.2 for slot in range(2)}  # unread in every run
        for slot, run in itertools.product(range(2), range(RUNS)):
            verdict = {
                "case_id": f"c{number}",
                "judge": "j",
                "rubric": "checklist@1",
                "order": [slot],
                "run": run,
            }
            unread = [lost[slot] or rng.random() < 0.3 for _ in points]
            met = [None if each else rng.random() < 0.5 for each in unread]
            odds = [None if each is None else rng.random() for each in met]
            if all(unread):
                verdicts.append(verdict | {"valid": False, "error": "no words"})
            else:
                verdicts.append(
                    verdict | {"valid": True, "checklist": {"met": met, "met_probabilities": odds}}
                )
    write(folder / "cases.jsonl", cases)
    write(folder / "verdicts.jsonl", verdicts)
    return folder, cases, verdicts


def on_response(verdicts: list[dict], case: dict, slot: int) -> list[dict]:
    on_case = [each for each in verdicts if each["case_id"] == case["id"] and each["valid"]]
    return [each for each in on_case if each["order"] == [slot]]


def shares(verdicts: list[dict], case: dict, slot: int) -> list[float | None]:
    of_response = on_response(verdicts, case, slot)
    columns = [
        [each["checklist"]["met"][k] for each in of_response] for k in range(len(case["criteria"]))
    ]
    read = [[each for each in column if each is not None] for column in columns]
    return [sum(each) / len(each) if each else None for each in read]


def test_a_response_counts_once_whatever_its_runs_and_unread_ones_count_too(study) -> None:
    folder, cases, verdicts = study
    args = flags(
        verdicts=folder, cases=folder / "cases.jsonl", output=folder / "out", resamples=100
    )
    done = succeeded(run_command("report", *args))
    result = json.loads((folder / "out" / "agreement.json").read_text())
    page, criteria = (folder / "out" / "report.html").read_text(), result["criteria"]["judges"]["j"]
    assert re.match(
        r"No model clearly wins most pairs\. ([ab]) is first, but not clearly above (?!\1)[ab]\. ",
        done.stdout,
    )
    failed: dict[str, dict[str, list[float]]] = {"t0": {}, "t1": {}, "t2": {}}
    for slot, model in enumerate(MODELS):
        whole, harms, lost = [], [], 0
        for case in cases:
            points, met = (
                [each["points"] for each in case["criteria"]],
                shares(verdicts, case, slot),
            )
            lost += met.count(None)
            for each, share in zip(case["criteria"], met):
                if share is not None:
                    of_model = failed[each["tags"][0]].setdefault(model, [])
                    of_model.append(1 - share if each["points"] > 0 else share)
            if None not in met and max(points) > 0:
                whole.append(score(points, met))
                harms.append(
                    score(points, [share * (worth < 0) for worth, share in zip(points, met)])
                )
        candidate, mean = (
            criteria["candidates"][model],
            result["models"]["j"]["models"][model]["score"],
        )
        assert (candidate["responses"], candidate["scored"]) == (len(cases), len(whole))
        assert candidate["unread criteria"] == lost > 0
        assert (mean["value"], mean["n"]) == (pytest.approx(np.mean(whole)), len(whole))
        assert candidate["harm"]["value"] == pytest.approx(np.mean(harms))
        theirs = scipy.stats.bootstrap(
            (whole,), np.mean, method="percentile", rng=0
        ).confidence_interval
        ends = (theirs.low, np.mean(whole), theirs.high)
        assert (mean["low"], mean["value"], mean["high"]) == pytest.approx(ends, abs=0.12)
    for tag, each in criteria["missed"].items():
        assert each["candidates"] == pytest.approx(
            {model: np.mean(own) for model, own in failed[tag].items()}
        )
        assert each["failed"] == pytest.approx(np.mean([*itertools.chain(*failed[tag].values())]))
    assert set(criteria["missed"]) == set(failed)
    by_id = dict(zip([case["id"] for case in cases], opened(page)))
    for case, (slot, model) in itertools.product(cases, enumerate(MODELS)):
        (shown,) = [
            each["criteria"] for each in by_id[case["id"]]["responses"] if each["model"] == model
        ]
        words = {None: "unread", 0.0: "not met", 1.0: "met"}
        said = [
            words.get(share) or f"met in {share:.2f} of the runs"
            for share in shares(verdicts, case, slot)
        ]
        assert shown == [
            [f"{each['points']:+g} {each['criterion']}", word]
            for each, word in zip(case["criteria"], said)
        ]


@needs_chromium
def test_an_opened_case_shows_each_criterion_of_an_answer(study, browser, tmp_path: Path) -> None:
    folder, cases, verdicts = study
    args = flags(
        verdicts=folder, cases=folder / "cases.jsonl", output=tmp_path / "out", resamples=100
    )
    succeeded(run_command("report", *args))
    visit, case = Visit(browser, tmp_path / "out" / "report.html", bypass_csp=True), cases[1]
    visit.open(f"#case={case['id']}")
    case_is(visit, case["id"])
    for slot, model in enumerate(MODELS):
        box = visit.page.locator(
            "#case .response", has=visit.page.get_by_role("heading", name=model, exact=True)
        )
        names, words = (box.locator(f"h4 + dl {tag}").all_text_contents() for tag in ("dt", "dd"))
        assert names == [f"{each['points']:+g} {each['criterion']}" for each in case["criteria"]]
        assert [word == "unread" for word in words] == [
            share is None for share in shares(verdicts, case, slot)
        ]
    assert violations(visit.page) == []
    visit.close()


def test_a_judge_that_read_nothing_that_is_labelled_is_uncertified(study, tmp_path: Path) -> None:
    folder, _, verdicts = study
    label = {"case_id": "c1", "model": "a", "criterion": "k0", "annotator": "p", "label": "met"}
    labels = write(tmp_path / "labels.jsonl", [label])
    others = [each | {"judge": "other"} for each in verdicts if each["case_id"] != "c1"]
    file = write(tmp_path / "verdicts.jsonl", [*verdicts, *others])
    args = (
        "--cases",
        folder / "cases.jsonl",
        "--ratings",
        labels,
        "--encoder",
        "none",
        "--resamples",
        100,
    )
    succeeded(run_command("report", "--verdicts", file, *args, "--output", tmp_path / "out"))
    assert "other is uncertified" in told(tmp_path / "out")
    assert "j is uncertified" not in told(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Criteria by other, uncertified<" in page
    assert "Criteria by j<" in page


def test_the_report_says_how_often_a_judge_of_criteria_prefers_the_longer_response_and_how_to_audit_it(
    study, tmp_path: Path
) -> None:
    """The longer response by a loop over the records."""
    folder, cases, verdicts = study
    succeeded(
        run_command(
            "report", *flags(verdicts=folder, cases=folder / "cases.jsonl", output=tmp_path / "out")
        )
    )
    assert "automedeval audit --judge JUDGE --cases" in told(tmp_path / "out")
    assert "--rubric checklist" in told(tmp_path / "out")
    preferred = []
    for case in cases:
        points, means = [each["points"] for each in case["criteria"]], []
        for slot in range(2):
            met = shares(verdicts, case, slot)
            means.append(np.nan if None in met else score(points, met))
        lengths = [len(response["text"].split()) for response in case["responses"]]
        if max(points) > 0 and not np.isnan(means).any() and lengths[0] != lengths[1]:
            ahead = (means[0] - means[1]) * (lengths[0] - lengths[1])
            preferred.append(0.5 if abs(means[0] - means[1]) < 1e-9 else float(ahead > 0))
    assert f"j puts the longer response first in {100 * np.mean(preferred):.0f} %." in told(
        tmp_path / "out"
    )


def test_an_invalid_verdict_by_a_checklist_of_one_s_own_is_one_of_criteria(
    study, tmp_path: Path
) -> None:
    folder, cases, verdicts = study
    digests = {case["id"]: Case.from_dict(case).checklist_digest for case in cases}
    own = [
        each | {"rubric": "mine@1", "case_digest": digests[each["case_id"]]} for each in verdicts
    ]
    own.sort(key=lambda each: each["valid"])
    assert not own[0]["valid"]
    criteria = {case["id"]: case["criteria"] for case in cases}
    for each in (each for each in own if not each["valid"]):  # what it says does not count
        each["checklist"] = {"met": [True for _ in criteria[each["case_id"]]]}
    judges = []
    for name, given in (("own", own), ("packaged", verdicts)):
        files = [
            "--verdicts",
            write(tmp_path / f"{name}.jsonl", given),
            "--cases",
            folder / "cases.jsonl",
        ]
        succeeded(run_command("report", *files, "--output", tmp_path / name))
        judges.append(
            json.loads((tmp_path / name / "agreement.json").read_text())["criteria"]["judges"]["j"]
        )
    assert judges[0]["candidates"] == judges[1]["candidates"]


@pytest.mark.parametrize(
    ("changed", "said"), ROWS["test_a_checklist_that_does_not_fit_gets_one_line"]
)
def test_a_checklist_that_does_not_fit_gets_one_line(
    study, tmp_path: Path, changed: dict, said: str
) -> None:
    folder, _, verdicts = study
    place = next(n for n, each in enumerate(verdicts) if each["case_id"] == "c1" and each["valid"])
    edited = [dict(each) for each in verdicts]
    edited[place]["checklist"] = edited[place]["checklist"] | changed
    file = write(tmp_path / "verdicts.jsonl", edited)
    args = (
        "report",
        "--verdicts",
        file,
        "--cases",
        folder / "cases.jsonl",
        "--output",
        tmp_path / "out",
    )
    line = error_line(run_command(*args))
    assert f"{file}:{place + 1}: {said}" in line
