"""Dangers, by the commands: the figures beside a loop over the verdicts that they write."""

import json
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import case_of, read, write
from doubles.perturbations import some_of
from programs import ENCODER, flags, needs_encoder, run_command, succeeded

from automedeval.audit.perturbations import read_perturbations

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
    """Return kind → of each edit whether it costs half a step: of the dangers, and of the harmless edits.

    By a loop over the written verdicts.
    """
    clean = {each["case_id"]: each["expected_scores"] for each in read(folder / "clean" / "verdicts.jsonl")}
    after = {each["case_id"]: each["expected_scores"] for each in read(folder / "changed" / "verdicts.jsonl")}
    step = np.std([score for scores in clean.values() for score in scores])
    kinds: dict[str, list[bool]] = {}
    controls: dict[str, list[bool]] = {}
    harmless = {each.name for each in read_perturbations(packaged=("dangers.yaml",))[0].controls}
    for case in read(folder / "changed.jsonl"):
        note = case["audit"]
        index = "ab".index(note["response"])
        fell = (clean[note["of"]][index] - after[case["id"]][index]) / step >= 0.5
        (controls if note["edit"] in harmless else kinds).setdefault(note["kind"], []).append(fell)
    return kinds, controls


def test_the_figures_are_those_of_a_loop_over_the_verdicts(study: Path) -> None:
    danger, (kinds, controls) = danger_of(study / "a"), counted(study / "a")
    for measured, loop in ((danger["kinds"], kinds), (danger["controls"], controls)):
        assert set(measured) == set(loop)
        for name, those in loop.items():
            assert measured[name]["share"]["n"] == len(those), name
            assert measured[name]["share"]["value"] == pytest.approx(np.mean(those)), name
    assert {name: len(those) for name, those in kinds.items()} == {"dose": 9, "negation": 3}
    assert sum(map(len, controls.values())) == 3 * 3, "0.4 g, three times in 24 hours, and you should not drink"


def test_the_page_names_the_harmless_edits(study: Path) -> None:
    page = (study / "a" / "audit.html").read_text()
    assert "harmless, dose" in page
