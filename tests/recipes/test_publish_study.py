"""What `make study` leaves goes to a double of the Hub, and comes back on a machine without the source tree.

On a fresh clone there is nothing of the study: test_publish.py does the same with tiny ones, and this is skipped.
"""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet
import pytest
from doubles.clean_machine import install, load_back
from doubles.hub import HubDouble
from doubles.tiny_bart import build_bart, build_roberta
from programs import ROOT, SAMPLE, run_recipe

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")

DATASET, REPORT = ROOT / "instructions" / "sample", ROOT / "reports" / "sample" / "agreement.json"
# What the study's checkpoints are called in its report, the last first.
JUDGES = {"sample-round1": "introspection1", "sample-stage3": "stage3"}
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


def finished(checkpoint: Path) -> bool:
    record = checkpoint / "training" / "record.json"
    return record.is_file() and json.loads(record.read_text(encoding="utf-8"))["finished"]


@pytest.fixture
def checkpoint() -> Path:
    """Return the study's last checkpoint; skip, and say what is missing, where the study has not run to its end."""
    found = [folder for name in JUDGES if finished(folder := ROOT / "checkpoints" / name)]
    missing = [file.relative_to(ROOT) for file in (DATASET / "statistics.json", REPORT) if not file.is_file()]
    missing += [] if found else [Path("checkpoints", name) for name in JUDGES]
    if missing:
        pytest.skip(f"`make study` has not left {', '.join(map(str, missing))} here: tiny ones are pushed instead")
    return found[0]


def publish(hub: HubDouble, home: Path, *arguments: object) -> subprocess.CompletedProcess:
    done = run_recipe("publish", *arguments, env=hub.environment(home))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("pushed ")
    return done


@pytest.mark.slow
def test_the_studys_dataset_judge_and_metric_come_back(checkpoint: Path, tmp_path: Path) -> None:
    name, models = JUDGES[checkpoint.name], (build_roberta(tmp_path / "roberta"), build_bart(tmp_path / "bart"))
    with HubDouble() as hub:
        publish(hub, tmp_path, "dataset", DATASET, "--repo", "org/instructions")
        about = ("--agreement", REPORT, "--judge", name, "--base_model", BASE, "--datasets", "org/instructions")
        publish(hub, tmp_path, "model", checkpoint, "--repo", "org/judge", *about)
        publish(hub, tmp_path, "metric", "--repo", "org/rationale_score")
        assert all(repo.private for repo in hub.repos.values())
        card = hub.repos["model", "org/judge"].files["README.md"].content.decode()
        found = load_back(hub, install(tmp_path / "wheel"), tmp_path / "elsewhere", models)

    # the card has the report's figures, on the report's cases
    record = json.loads(REPORT.read_text(encoding="utf-8"))["judges"][name]
    assert f"`{record['settings']}`" in card
    assert "| Concordance | {value:.2f} [{low:.2f}, {high:.2f}]".format(**record["concordance"]) in card
    assert (SAMPLE / "test_cases.jsonl").name in card

    ((valid, scores, expected, _),) = found["verdicts"]
    assert valid
    assert all(score in range(1, 6) for score in scores)
    assert all(1 <= mean <= 5 for mean in expected)
    splits = {file.stem: file for file in DATASET.glob("*.parquet")}
    assert found["rows"] == {
        name: pyarrow.parquet.read_table(file)["prompt_digest"].to_pylist() for name, file in splits.items()
    }
    assert found["scores"]["bert_score"]["f1"][1] == pytest.approx(1.0)
    assert all(value < 0 for value in found["scores"]["bart_score"])
