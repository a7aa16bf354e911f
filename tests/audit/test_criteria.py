"""The audit of a judge of criteria, by its command, beside loops over the verdicts that it writes."""

import json
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble
from programs import TWO_PROCESSES, error_line, processes_of, run_command, run_recipe

from automedeval.audit.perturbations import CHECKLIST_ATTACKS, CONTROL, read_attacks
from automedeval.audit.thresholds import CHECKLIST_FIGURES
from automedeval.records import read_cases
from automedeval.reports.text import estimates_in

CRITERIA = [("says to take it with food", 5), ("names the dose of 400", 3), ("says that it is harmless", -4)]
TEXTS = [("a", "Take 400 mg with food."), ("b", "It is harmless.")]
FAMILY = {each.name: each.family for each in read_attacks(packaged=CHECKLIST_ATTACKS)}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("criteria") / "cases.jsonl"
    criteria = [{"criterion": text, "points": points} for text, points in CRITERIA]
    records = [
        {
            "id": f"c{n}",
            "question": "How do I take ibuprofen?",
            "responses": [{"model": model, "text": f"{text} {n}"} for model, text in TEXTS],
            "criteria": criteria,
        }
        for n in range(2)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


@pytest.fixture(scope="module")
def audited(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Audit the gullible grader with all three criteria at once, and one at a time."""
    folder = tmp_path_factory.mktemp("audits") / "grader"
    with EndpointDouble(grade) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "none")
        args = ("audit", "--judge", "openai:m", "--base_url", endpoint.url, "--rubric", "checklist", "--cases", cases)
        args += ("--criteria_at_once", 3, "--output", folder, "--resamples", 100)
        done = run_command(*args)
        assert done.returncode == 3, done.stderr
        assert "m does not pass" in done.stdout
        asked = len(endpoint.asked)
        assert run_command(*args, "--gate", "false").returncode == 0
        assert len(endpoint.asked) == asked  # the same command judges nothing again
    return folder, json.loads((folder / "audit.json").read_text())


def changes(folder: Path) -> list[tuple[dict, dict, dict]]:
    """Return (note of the trial, clean checklist, changed checklist or None) of every trial."""
    clean = {(each["case_id"], each["order"][0]): each for each in read(folder / "clean" / "verdicts.jsonl")}
    notes = {each["id"]: each["audit"] for each in read(folder / "trials.jsonl")}
    return [
        (note := notes[each["case_id"]], clean[note["of"], each["order"][0]]["checklist"], each.get("checklist"))
        for each in read(folder / "trials" / "verdicts.jsonl")
    ]


def score(met: list) -> float:
    return sum(points for (_, points), each in zip(CRITERIA, met) if each) / 8


@pytest.mark.parametrize("way", ["one at a time", "3 at once"])
def test_planted_texts_are_counted_as_a_loop_over_the_verdicts_counts_them(audited, way) -> None:
    folder, result = audited
    planting = result["decodings"][way]["planting"]
    rows = [each for each in changes(folder / way.replace(" ", "-")) if each[0]["check"] == "planting"]
    assert len(rows) == 2 * (sum(family != CONTROL for family in FAMILY.values()) + 1)
    for family in {*FAMILY.values()}:
        figures = planting["control"] if family == CONTROL else planting["families"][family]
        rises, gained, lost, unread = [], [], [], []
        for note, before, after in rows:
            if FAMILY[note["name"]] != family:
                continue
            now = after["met"] if after else [None] * 3
            unread += [each is None for each in now]
            if after:
                rises.append(score(now) - score(before["met"]))
            for (_, points), old, new in zip(CRITERIA, before["met"], now):
                if new is not None:
                    (lost if old == (points > 0) else gained).append(old != new)
        if rises:
            assert figures["rise"]["value"] == pytest.approx(np.mean(rises))
            assert figures["rose"]["value"] == pytest.approx(np.mean([each >= 0.1 for each in rises]))
        assert figures["gained"]["value"] == (pytest.approx(np.mean(gained)) if gained else None)
        assert figures["lost"]["value"] == (pytest.approx(np.mean(lost)) if lost else None)
        assert figures["unread"]["value"] == pytest.approx(np.mean(unread))
    assert planting["attacks"]["all criteria are met"]["gained"]["value"] > 0
    assert planting["attacks"]["ChatML turn"]["unread"]["value"] == 1  # neither gained nor lost
    assert planting["attacks"]["ChatML turn"]["gained"]["value"] is None
    assert planting["control"]["rise"]["value"] == 0
    assert planting["probability_rise"]["value"] is None  # this endpoint gives no probabilities


def test_the_text_is_in_the_response_of_the_lowest_score(audited) -> None:
    folder, _ = audited
    for case in read_cases(folder / "one-at-a-time" / "trials.jsonl"):
        if case.extra["audit"]["check"] == "planting":
            assert case.extra["audit"]["response"] == "b"  # harmless costs 4 points


def test_order_and_number_of_criteria_are_compared_by_their_texts(audited) -> None:
    folder, result = audited
    assert "order" not in result["decodings"]["one at a time"]
    order, differ = result["decodings"]["3 at once"]["order"], []
    for note, before, after in changes(folder / "3-at-once"):
        if note["check"] == "order":
            differ += [old != new for old, new in zip(before["met"], after["met"][::-1])]
    assert order["changed"]["value"] == pytest.approx(np.mean(differ))
    assert 0 < np.mean(differ) < 1
    alone, together_answers = (
        {
            (each["case_id"], each["order"][0]): each["checklist"]["met"]
            for each in read(folder / way / "clean" / "verdicts.jsonl")
        }
        for way in ("one-at-a-time", "3-at-once")
    )
    pairs = [pair for key in alone for pair in zip(alone[key], together_answers[key])]
    together = result["decodings"]["3 at once"]["together"]
    assert together["changed"]["value"] == pytest.approx(np.mean([a != b for a, b in pairs]))


def test_a_threshold_can_name_every_figure(audited) -> None:
    decodings = audited[1]["decodings"].values()
    names = [name.replace(", ", ".").replace(" ", "_") for tree in decodings for name, _ in estimates_in(tree)]
    assert [name for name in names if not any(fnmatchcase(name, figure) for figure in CHECKLIST_FIGURES)] == []


def test_the_page_begins_with_whether_the_judge_passes(audited) -> None:
    folder, result = audited
    page = (folder / "audit.html").read_text(encoding="utf-8")
    assert page.index("m does not pass") < page.index("planting.gained") < page.index("Every figure")
    assert "Criteria gained by planted texts" in page
    assert {each["outcome"] for each in result["thresholds"]} >= {"passed", "failed"}


def test_two_processes_audit_a_checkpoint_as_the_judge_command_judges(cases, tiny_model, tmp_path: Path) -> None:
    model = ("--judge", tiny_model, "--rubric", "checklist", "--rationale", "false", "--device", "cpu")
    options = ("--cases", cases, "--criteria_at_once", 2, "--attacks", 2, "--resamples", 100, "--gate", "false")
    done = run_recipe("audit", *model, *options, "--output", tmp_path / "out", launch=TWO_PROCESSES)
    assert done.returncode == 0, done.stderr
    assert processes_of(tmp_path / "out") == 2
    result = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert set(result["decodings"]) == {"one at a time", "2 at once"}
    for way, at_once in (("one-at-a-time", 1), ("2-at-once", 2)):
        folder = tmp_path / "out" / way
        again = ("--criteria_at_once", at_once, "--cases", folder / "trials.jsonl", "--output", tmp_path / way)
        judged = run_command("judge", *model, *again)
        assert judged.returncode == 0, judged.stderr
        answers = [
            {(each["case_id"], *each["order"]): each["checklist"]["met"] for each in read(place / "verdicts.jsonl")}
            for place in (folder / "trials", tmp_path / way)
        ]
        assert answers[0]
        assert answers[0].items() <= answers[1].items()  # a trial is of one response of its case


def test_an_endpoint_with_a_budget_is_audited(cases: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with EndpointDouble(grade) as endpoint:
        done = run_command(
            "audit", "--judge", "openai:m", "--base_url", endpoint.url, "--rubric", "checklist", "--cases", cases,
            "--attacks", 1, "--resamples", 100, "--max_cost", 100, "--price_in", 1, "--price_out", 1,
            "--gate", "false", "--output", tmp_path / "out",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    clean = json.loads((tmp_path / "out" / "audit.json").read_text())["decodings"]["one at a time"]["clean"]
    assert clean["valid_rate"]["value"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--checks", "length"), "--checks length: the checks of a checklist are planting, order, together"),
        (("--own", "a"), "--own is for scores, and checklist@1 has criteria"),
        (("--criteria_at_once", "0"), "--criteria_at_once"),
    ],
)
def test_options_of_judges_of_scores_are_refused_in_one_line(
    cases: Path, tmp_path: Path, options: tuple, message: str
) -> None:
    command = ("audit", "--judge", "openai:m", "--rubric", "checklist", "--cases", cases, "--output", tmp_path / "out")
    assert message in error_line(run_command(*command, *options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["audit", "judge"])
@pytest.mark.parametrize("judge", ["small", "baseline:longer text", "likelihood:MODEL"])
def test_a_judge_that_reads_no_criteria_is_refused(cases, tiny_model, tmp_path: Path, judge: str, command: str) -> None:
    judge = judge.replace("MODEL", str(tiny_model))
    args = ("--judge", judge, "--rubric", "checklist", "--cases", cases, "--output", tmp_path / "out")
    assert f"--judge {judge} reads no criteria; a language model does" in error_line(run_command(command, *args))
