"""The experiment on FeedbackQA from ratings to its table, with simulated ratings and a tiny model: killed, and gone on with."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from doubles.tiny_model import build_tiny_model
from factories import read, read_json
from programs import ROOT, SAMPLE
from study_scripts import PATH, ended, kill_when_written, started

from automedeval.records.journal import write_lines
from automedeval.records.tables.cases import read_cases

ARMS = ("U", "X")  # X holds the round of I
SOURCES = {"UK": 6, "Australia": 4, "WHO": 4}

pytestmark = pytest.mark.slow


def simulate(data: Path) -> None:
    """Write rated cases with the layout and the ids of the public sets; the sample's answers, and ratings drawn at random."""
    cases = iter(list(read_cases(SAMPLE / "train_cases.jsonl")))
    chance = random.Random(0)
    sets = {
        "feedbackqa": SOURCES,
        "feedbackqa_cdc_valid": {"CDC": 3},
        "mediqa_validation": {"M": 2},
    }
    for name, sources in sets.items():
        rows = []
        ratings = []
        for source, number in sources.items():
            for at in range(number):
                row = next(cases).to_dict() | {"id": f"feedbackqa-{source}-test-{at}"}
                rows.append(row)
                for answer in row["responses"]:
                    about = {"case_id": row["id"], "model": answer["model"], "criterion": "overall"}
                    for rater in range(1, chance.choice((3, 4))):
                        given = {"score": chance.randint(1, 4), "comment": f"Reason {rater}."}
                        ratings.append(about | given | {"annotator": f"rater-{rater}"})
        write_lines(data / name / "cases.jsonl", rows)
        write_lines(data / name / "ratings.jsonl", ratings)


def start(folder: Path, output: str) -> subprocess.Popen:
    variables = {
        "AUTOMEDEVAL_DATA": folder / "data",
        "OUTPUT": folder / output,
        "BASE": folder / "base",
    }
    variables |= {"PATH": PATH, "PYTHONPATH": ROOT / "src", "ENCODER": "none", "HOME": folder}
    variables |= {"SFT": "--save_steps 1 --logging_steps 1", "HF_HUB_OFFLINE": 1}
    command = ["bash", "recipes/runs/feedbackqa/run.sh", *ARMS]
    environment = {name: str(value) for name, value in variables.items()}
    return started(command, folder / f"{output}.log", environment)


def left(output: Path) -> dict[str, object]:
    """Return what the arms left that may not depend on interruptions: scores, losses, digests of rows, revisions, figures."""
    found: dict[str, object] = {}
    for file in sorted((output / "records").rglob("*.jsonl")):
        records = read(file)
        for record in records:
            for name in ("versions", "device"):
                record.pop(name, None)
        found[str(file.relative_to(output))] = records
    report = read_json(output / "reports/left_out/agreement.json")
    found |= {"judges": report["judges"], "contrasts": report.get("contrasts")}
    return found | {"precision": read_json(output / "precision.json")}


def test_the_experiment_runs_to_its_table_and_is_the_same_after_two_kills(tmp_path):
    simulate(tmp_path / "data")
    build_tiny_model(tmp_path / "base")
    ended(start(tmp_path, "whole"), tmp_path / "whole.log")
    killed = tmp_path / "killed"
    log = tmp_path / "killed.log"
    for file in (
        "checkpoints/C-stage2/checkpoint-1/whole",
        "instructions-I.discussion/discussion.jsonl",
    ):
        kill_when_written(start(tmp_path, "killed"), killed / file, log)
    ended(start(tmp_path, "killed"), log)
    whole = left(tmp_path / "whole")
    names = {Path(name).stem for name in whole if name.startswith("records/scores/left_out")}
    assert names == set(ARMS)
    stages = {record["stage"] for record in whole["records/stages.jsonl"]}
    assert {"C-stage1", "C-stage2", "C-stage3", "F1", "F2", "U", "X"} <= stages
    precision = whole["precision"]
    assert precision["I"]["revised"] == precision["X"]["revised"] > 0
    again = left(killed)
    for name, content in whole.items():  # paths differ
        assert without_paths(again[name]) == without_paths(content), name


def without_paths(value: object) -> object:
    """Return a JSON value without the names of the two outputs."""
    return json.loads(json.dumps(value).replace("/killed/", "/whole/"))
