"""From a judge's weights to its card: figures that other weights earned do not go out with these."""

import json
from pathlib import Path

import pytest
from doubles.publishable import ABOUT, card_of, trained
from doubles.tiny_model import build_tiny_model
from programs import SAMPLE, error_line, run_recipe, succeeded

from automedeval.models.checkpoints import fingerprint


@pytest.mark.parametrize("kind", ["", "likelihood:"])
def test_a_report_is_published_with_the_weights_that_it_is_about(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    trained_folder = trained(tiny_model, tmp_path / "ours")
    other = trained(build_tiny_model(tmp_path / "seed1", seed=1), tmp_path / "other")
    cases, verdicts, report = tmp_path / "cases.jsonl", tmp_path / "verdicts", tmp_path / "report"
    cases.write_text("".join((SAMPLE / "test_cases.jsonl").read_text().splitlines(keepends=True)[:3]))
    asked = ("--cases", cases, "--output", verdicts, "--max_new_tokens", 4)
    for folder in (trained_folder, other):
        succeeded(run_recipe("judge", "--judge", f"{kind}{folder}", "--judge_name", folder.name, *asked))
    lines = [json.loads(line) for line in (verdicts / "verdicts.jsonl").read_text().splitlines()]
    checkpoints = {line["judge"]: line["checkpoint"] for line in lines}
    assert checkpoints == {folder.name: fingerprint(folder, []) for folder in (trained_folder, other)}

    ratings = ("--ratings", SAMPLE / "test_ratings.jsonl", "--resamples", 100)
    succeeded(run_recipe("report", "--verdicts", verdicts, "--cases", cases, *ratings, "--output", report))
    results = report / "agreement.json"
    for folder in (trained_folder, other):
        card = card_of(folder, agreement=str(results))
        assert f"its weights alone: `{checkpoints[folder.name]}`" in card
        assert f"| measure | {folder.name} | one rater against the others |" in card
    (trained_folder / "generation_config.json").unlink()
    options = ("--repo", "org/judge", *ABOUT, "--agreement", results)
    line = error_line(run_recipe("publish", "model", trained_folder, *options))
    assert f"no judge was measured on this checkpoint, {fingerprint(trained_folder, [])}, but ours (" in line
