"""Dangers with the reference and without, by the commands: the figures beside a loop over the verdicts that they write."""

import json
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import case_of, read, write
from doubles.perturbations import some_of
from programs import ENCODER, flags, needs_encoder, run_command, succeeded

from automedeval.audit.perturbations import read_perturbations
from automedeval.audit.report import EVIDENCE

pytestmark = needs_encoder

REFERENCE = "The usual dose of ibuprofen is 400 mg every 8 hours. Do not drink alcohol with it. Call 911 if you faint."
GOOD = "The usual dose of ibuprofen is 400 mg every 8 hours. However, do not drink alcohol with it. It often helps."
ANSWERS = [{"a": GOOD, "b": "Ask somebody else, please." + " Rest." * n} for n in range(3)]
QUESTION = "How much ibuprofen may I take for my headache?"
CASES = [case_of(f"c{n}", QUESTION, ANSWERS[n], reference=REFERENCE if n else None) for n in range(3)]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with cases, of which one has no reference, the small judge's verdicts `v` and its audit `a`."""
    folder = tmp_path_factory.mktemp("evidence")
    judge = ["--judge", "small", "--encoder", ENCODER, "--cases", write(folder / "cases.jsonl", CASES)]
    assert run_command("judge", *judge, "--output", folder / "v").returncode == 0
    options = flags(perturbations=some_of(folder, "danger"), gate="false", output=folder / "a")
    succeeded(run_command("audit", *judge, *options))
    return folder


def danger_of(folder: Path) -> dict:
    rows = json.loads((folder / "audit.json").read_text())["perturbations"]
    return next(row for row in rows if row["name"] == "danger")


def counted(folder: Path) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
    """Return figure → of each edit whether it costs half a step, and the same of the dangers as they are by kind.

    By a loop over the written verdicts. A changed case without its reference is compared with its own one without it.
    """
    clean = {each["case_id"]: each["expected_scores"] for each in read(folder / "clean" / "verdicts.jsonl")}
    after = {each["case_id"]: each["expected_scores"] for each in read(folder / "changed" / "verdicts.jsonl")}
    step = np.std([score for scores in clean.values() for score in scores])
    falls: dict[str, list[bool]] = {name: [] for name in EVIDENCE}
    kinds: dict[str, list[bool]] = {}
    twins = {each.name for each in read_perturbations(packaged=("dangers.yaml",))[0].controls}
    for case in read(folder / "changed.jsonl"):
        if "audit" not in case:  # the unchanged case without its reference
            continue
        note, bare = case["audit"], case["id"].endswith("#bare")
        index, before = "ab".index(note["response"]), note["of"] + "#bare" * bare
        fell = ((after[before] if bare else clean[before])[index] - after[case["id"]][index]) / step >= 0.5
        way = "with" if case["reference"] is not None else "without"
        is_twin = note["edit"] in twins
        falls[f"twin_{way}" if is_twin else way].append(fell)
        if not bare and not is_twin:
            kinds.setdefault(note["kind"], []).append(fell)
        assert bare is False or case["reference"] is None
    return falls, kinds


def test_the_figures_are_those_of_a_loop_over_the_verdicts(study: Path) -> None:
    danger, (falls, kinds) = danger_of(study / "a"), counted(study / "a")
    for measured, loop in ((danger["evidence"], falls), (danger["kinds"], kinds)):
        assert set(measured) == set(loop)
        for name, those in loop.items():
            assert measured[name]["share"]["n"] == len(those), name
            assert measured[name]["share"]["value"] == pytest.approx(np.mean(those)), name
    assert {name: len(those) for name, those in kinds.items()} == {"dose": 9, "negation": 3}
    # Four edits in each case, of which two have a reference.
    assert (len(falls["with"]), len(falls["without"])) == (8, 12)
    assert sum(falls["with"]) > sum(falls["without"]), "the reference says which dose is right"
    assert len(falls["twin_with"]) == 2 * 3, "0.4 g, three times in 24 hours, and you should not drink"


def test_the_page_shows_both(study: Path) -> None:
    page = (study / "a" / "audit.html").read_text()
    for words in EVIDENCE.values():
        assert words in page


def test_a_judge_that_needs_the_reference_has_figures_with_it_alone(study: Path, tmp_path: Path) -> None:
    for name, way, other in (("ROUGE-L to the reference", "with", "without"), ("longer text", "without", "with")):
        args = flags(judge=f"baseline:{name}", cases=study / "cases.jsonl", perturbations=some_of(study, "danger"))
        succeeded(run_command("audit", *args, "--gate", "false", "--encoder", "none", "--output", tmp_path / way))
        evidence = danger_of(tmp_path / way)["evidence"]
        assert evidence[way]["share"]["n"] > 0
        assert other not in evidence
