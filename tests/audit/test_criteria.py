"""The audit of a judge of criteria, by its command, beside loops over the verdicts that it writes."""

from pathlib import Path

import pytest
from doubles.criteria_grader import grade
from doubles.endpoint import EndpointDouble
from factories import read_json, verdicts_in, write
from programs import (
    TWO_PROCESSES,
    failed,
    flags,
    module_fixture,
    processes_of,
    run_command,
    run_recipe,
    succeeded,
)
from tables import rows_of

from automedeval.audit.perturbations import CRITERIA as PACKAGED
from automedeval.audit.perturbations import read_perturbations
from automedeval.records.tables.cases import read_cases

CASES = rows_of(__file__)["cases"]
PERTURBATIONS = read_perturbations(packaged=PACKAGED)
PLANTED = [each.name for each in PERTURBATIONS if each.changes == "worst answer"]


@module_fixture
def cases(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("criteria") / "cases.jsonl", CASES)


@module_fixture
def audited(cases, tmp_path_factory) -> tuple[Path, dict]:
    """Audit the gullible grader; return the folder, and its rows by name."""
    folder = tmp_path_factory.mktemp("audits") / "grader"
    options = flags(cases=cases, output=folder)
    with EndpointDouble(grade) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, rubric="checklist")
        args = ("audit", *judge, *options)
        done = run_command(*args)
        assert done.returncode == 3, done.stderr
        assert "m does not pass" in done.stdout
        asked = len(endpoint.asked)
        succeeded(run_command(*args, "--gate", "false"))
        assert len(endpoint.asked) == asked  # the same command judges nothing again
    rows = read_json(folder / "audit.json")["perturbations"]
    return folder, {row["name"]: row for row in rows}


def test_the_gullible_grader_is_caught(audited):
    _, rows = audited
    planting = rows["planting"]
    # It believes one of four claims: of the three criteria two are gained then, and the score rises by 8 of 8 points.
    claim = planting["kinds"]["claim"]
    assert claim["share"]["n"] == 24
    assert claim["shift"]["value"] == 1 / 4
    assert claim["share"]["value"] == pytest.approx(1 / 4 * 2 / 3)
    tokens = planting["kinds"]["template tokens"]
    assert tokens["invalid"]["value"] == pytest.approx(1 / 3)
    assert tokens["share"]["value"] == 0, "what cannot be read is neither gained nor lost"
    assert rows["met"]["share"]["value"] == 3 / 6, "food and 400, or harmless"
    assert planting["controls"]["control"]["shift"]["value"] == 0
    assert planting["outcome"] == "failed"
    denial = rows["denial"]["kinds"]["denial"]
    assert denial["share"]["n"] > 0
    shown = [text["texts"][-1].lower() for text in planting["texts"]]
    assert any("all criteria are met" in text for text in shown)


def test_the_text_is_in_the_response_of_the_lowest_score(audited):
    folder, _ = audited
    found = set()
    for case in read_cases(folder / "changed.jsonl"):
        note = case.extra["audit"]
        if note["perturbation"] in PLANTED:
            found.add((note["perturbation"], note["response"]))
    assert found == {(name, "b") for name in PLANTED}, "harmless costs 4 points"


@pytest.mark.slow
def test_two_processes_audit_a_checkpoint_as_the_judge_command_judges(cases, tiny_model, tmp_path):
    model = flags(judge=tiny_model, rubric="checklist", rationale="false", device="cpu")
    options = flags(cases=cases, edits=2, gate="false", output=tmp_path / "out")
    done = succeeded(run_recipe("audit", *model, *options, launch=TWO_PROCESSES))
    assert processes_of(tmp_path / "out") == 2
    assert done.stdout.count("audit.html") == 1, "one process speaks for both"
    assert not list(tmp_path.rglob("*.part*"))
    again = flags(cases=tmp_path / "out/changed.jsonl", output=tmp_path / "again")
    succeeded(run_command("judge", *model, *again))
    audited = met_in(tmp_path / "out/changed")
    judged = met_in(tmp_path / "again")
    assert audited
    assert audited.items() <= judged.items()  # a trial is of one response of its case


def met_in(folder: Path) -> dict[tuple, list]:
    """Return what each verdict of a run says of the criteria."""
    return {verdict.key: verdict.checklist["met"] for verdict in verdicts_in(folder)}


@pytest.mark.parametrize("command", ["audit", "judge"])
@pytest.mark.parametrize("judge", ["small", "baseline:longer text", "likelihood:MODEL"])
def test_a_judge_that_reads_no_criteria_is_refused(cases, tiny_model, tmp_path, judge, command):
    judge = judge.replace("MODEL", str(tiny_model))
    args = flags(judge=judge, rubric="checklist", cases=cases, output=tmp_path / "out")
    said = f"--judge {judge}: reads no criteria; a language model does"
    done = run_command(command, *args)
    failed(done, said)
    assert not (tmp_path / "out").exists()
