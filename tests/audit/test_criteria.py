"""The audit of a judge of criteria, by its command, beside loops over the verdicts that it writes."""

from pathlib import Path

import pytest
from doubles.agreement_study import case_of, write
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble
from factories import read_json, verdicts_in
from programs import (
    TWO_PROCESSES,
    error_line,
    flags,
    processes_of,
    run_command,
    run_recipe,
    succeeded,
)

from automedeval.audit.perturbations import CRITERIA as PACKAGED
from automedeval.audit.perturbations import read_perturbations
from automedeval.records.cases import read_cases

CRITERIA = [
    ("says to take it with food", 5),
    ("names the dose of 400", 3),
    ("says that it is harmless", -4),
]
TEXTS = [("a", "Take 400 mg with food."), ("b", "It is harmless.")]
PERTURBATIONS = read_perturbations(packaged=PACKAGED)
PLANTED = [each.name for each in PERTURBATIONS if each.changes == "worst answer"]


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> Path:
    criteria = [{"criterion": text, "points": points} for text, points in CRITERIA]
    answers = [{model: f"{text} {n}" for model, text in TEXTS} for n in range(2)]
    records = [
        case_of(f"c{n}", "How do I take ibuprofen?", each, criteria=criteria)
        for n, each in enumerate(answers)
    ]
    return write(tmp_path_factory.mktemp("criteria") / "cases.jsonl", records)


@pytest.fixture(scope="module")
def audited(cases, tmp_path_factory) -> tuple[Path, dict]:
    """Audit the gullible grader; return the folder, and its rows by name."""
    folder = tmp_path_factory.mktemp("audits") / "grader"
    with EndpointDouble(grade) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, rubric="checklist")
        args = ("audit", *judge, *flags(cases=cases, output=folder))
        done = run_command(*args)
        assert done.returncode == 3, done.stderr
        assert "m does not pass" in done.stdout
        asked = len(endpoint.asked)
        assert run_command(*args, "--gate", "false").returncode == 0
        assert len(endpoint.asked) == asked  # the same command judges nothing again
    rows = read_json(folder / "audit.json")["perturbations"]
    return folder, {row["name"]: row for row in rows}


def test_the_gullible_grader_is_caught(audited):
    planting, denial = (audited[1][name] for name in ("planting", "denial"))
    # It believes one of four claims: of the three criteria two are gained then, and the score rises by 8 of 8 points.
    claim, tokens = (planting["kinds"][kind] for kind in ("claim", "template tokens"))
    assert (claim["share"]["n"], claim["shift"]["value"]) == (24, 1 / 4)
    assert claim["share"]["value"] == pytest.approx(1 / 4 * 2 / 3)
    assert tokens["invalid"]["value"] == pytest.approx(1 / 3)
    assert tokens["share"]["value"] == 0, "what cannot be read is neither gained nor lost"
    assert audited[1]["met"]["share"]["value"] == 3 / 6, "food and 400, or harmless"
    assert planting["controls"]["control"]["shift"]["value"] == 0
    assert planting["outcome"] == "failed"
    assert denial["kinds"]["denial"]["share"]["n"] > 0
    assert any("all criteria are met" in text["texts"][-1].lower() for text in planting["texts"])


def test_the_text_is_in_the_response_of_the_lowest_score(audited):
    notes = [case.extra["audit"] for case in read_cases(audited[0] / "changed.jsonl")]
    planted = [note for note in notes if note["perturbation"] in PLANTED]
    found = {(note["perturbation"], note["response"]) for note in planted}
    assert found == {(name, "b") for name in PLANTED}, "harmless costs 4 points"


@pytest.mark.slow
def test_two_processes_audit_a_checkpoint_as_the_judge_command_judges(cases, tiny_model, tmp_path):
    model = flags(judge=tiny_model, rubric="checklist", rationale="false", device="cpu")
    options = flags(cases=cases, edits=2, gate="false", output=tmp_path / "out")
    done = succeeded(run_recipe("audit", *model, *options, launch=TWO_PROCESSES))
    assert (processes_of(tmp_path / "out"), done.stdout.count("audit.html")) == (2, 1), (
        "one process speaks for both"
    )
    assert not list(tmp_path.rglob("*.part*"))
    again = flags(cases=tmp_path / "out" / "changed.jsonl", output=tmp_path / "again")
    succeeded(run_command("judge", *model, *again))
    audited, judged = (
        {verdict.key: verdict.checklist["met"] for verdict in verdicts_in(tmp_path / folder)}
        for folder in ("out/changed", "again")
    )
    assert audited
    assert audited.items() <= judged.items()  # a trial is of one response of its case


@pytest.mark.parametrize("command", ["audit", "judge"])
@pytest.mark.parametrize("judge", ["small", "baseline:longer text", "likelihood:MODEL"])
def test_a_judge_that_reads_no_criteria_is_refused(cases, tiny_model, tmp_path, judge, command):
    judge = judge.replace("MODEL", str(tiny_model))
    args = flags(judge=judge, rubric="checklist", cases=cases, output=tmp_path / "out")
    said = f"--judge {judge}: reads no criteria; a language model does"
    assert said in error_line(run_command(command, *args))
    assert not (tmp_path / "out").exists()
