"""ORG/NAME@REVISION wherever something on the Hub is named, against the Hub double: what is read, and what is recorded."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.hub import HubDouble
from doubles.publishable import card_of
from doubles.tiny_bart import build_bert, build_roberta
from doubles.tiny_dataset import build_instructions
from doubles.tiny_model import build_tiny_model
from programs import ROOT, SAMPLE, error_line, flags, succeeded

from automedeval.models.checkpoints import fingerprint

PROGRAM = """
import json, sys
from automedeval.dataset.responses import candidate_names
from automedeval.records.rows import read_rows
from automedeval.metrics.rationale_score.rationale_score import rationale_score
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError
from automedeval.records.hub_names import hub_commits

found = {"names": candidate_names(["org/judge@v1", "org/judge"])}
found["encoder"] = Encoder("org/encoder@v1", device="cpu").name
found["rows"] = [row["id"] for _, row in read_rows("org/cases@v1", "test")]
options = {"bert_model": "org/encoder@v1", "bert_num_layers": 1, "bart_model": None}
found["metric"] = rationale_score(["a dose"], ["a rash"], **options)["revisions"]
found["errors"] = []
for name in ("org/judge@v9", "org/judge@", "org/nowhere@v1"):
    try:
        checkpoint_folder(name)
    except RecordError as error:
        found["errors"].append(str(error))
try:
    list(read_rows("org/cases@v1", "train"))
except RecordError as error:
    found["split"] = str(error)
print(json.dumps(found | {"commits": hub_commits()}))
"""


class Shelf:
    """A Hub with two revisions of a checkpoint, an encoder, cases and instructions; the first of each has the tag v1."""

    def __init__(self, hub: HubDouble, folder: Path):
        self.hub, self.home, self.folder = hub, folder / "home", folder
        cases = (SAMPLE / "test_cases.jsonl").read_text(encoding="utf-8").splitlines()
        self.v1, self.main = {}, {}
        for number, commits in enumerate((self.v1, self.main)):
            place, tag = folder / str(number), None if number else "v1"
            (place / "cases").mkdir(parents=True)
            (place / "cases" / "test.jsonl").write_text(cases[number] + "\n", encoding="utf-8")
            build_tiny_model(place / "judge", seed=number)
            (build_bert if number else build_roberta)(place / "encoder")
            shutil.copytree(ROOT / "recipes/runs/automedeval-13b/simcse", place / "encoder", dirs_exist_ok=True)
            build_instructions(place / "instructions", {"stage1": 4 - number, "test": 2})
            for name in ("judge", "encoder", "cases", "instructions"):
                kind = "model" if name in ("judge", "encoder") else "dataset"
                commits[f"org/{name}"] = hub.add(kind, f"org/{name}", place / name, tag)

    def run(self, *command: object) -> subprocess.CompletedProcess:
        """Run a program whose only Hub is the double."""
        environment = self.hub.environment(self.home, token=None) | {"PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, *map(str, command)]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with HubDouble() as hub:
        yield Shelf(hub, tmp_path_factory.mktemp("revisions"))


@pytest.mark.parametrize("tag", ["@v1", pytest.param("", marks=pytest.mark.slow)])
def test_a_judge_and_its_cases_are_of_the_named_revision(shelf: Shelf, tmp_path: Path, tag: str) -> None:
    asked = ["--judge", f"org/judge{tag}", "--cases", f"org/cases{tag}", "--output", tmp_path, "--max_new_tokens", 4]
    succeeded(shelf.run("recipes/judge.py", *asked))
    commits, place = (shelf.v1, shelf.folder / "0") if tag else (shelf.main, shelf.folder / "1")
    (verdict,) = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert verdict["judge"] == f"org/judge{tag}"
    assert verdict["checkpoint"] == fingerprint(place / "judge", [])
    assert verdict["case_id"] == json.loads((place / "cases" / "test.jsonl").read_text())["id"]
    (run,) = tmp_path.glob("run-*.json")
    expected = {f"{name}{tag}": commits[name] for name in ("org/cases", "org/judge")}
    assert json.loads(run.read_text())["revisions"] == expected


@pytest.mark.slow
def test_training_records_the_revisions_of_base_and_data(shelf: Shelf, tmp_path: Path) -> None:
    names = {"model_name_or_path": "org/judge@v1", "dataset_name": "org/instructions@v1"}
    paths = flags(**names, output_dir=tmp_path / "out")
    config = ["--config", "recipes/runs/automedeval-135m/stage1.yaml", "--bf16", "false", "--num_train_epochs", 1]
    done = succeeded(shelf.run("recipes/sft.py", *config, *paths))
    assert "stage1: 4 rows" in done.stdout, "the first revision has four rows, the second has three"
    record = json.loads((tmp_path / "out" / "training" / "record.json").read_text())
    assert record["identity"]["start"] == fingerprint(shelf.folder / "0" / "judge", [])
    assert (record["base"], record["base_commit"]) == ("org/judge@v1", shelf.v1["org/judge"])
    assert record["revisions"] == {f"{name}@v1": shelf.v1[name] for name in ("org/instructions", "org/judge")}
    assert "\nbase_model: org/judge\n" in (tmp_path / "out" / "README.md").read_text()
    card = card_of(tmp_path / "out", base_model=None)
    assert "\nbase_model: org/judge\n" in card
    assert f"org/judge@v1 (commit `{shelf.v1['org/judge']}`)" in card
    done = shelf.run("recipes/sft.py", *config, *paths, "--model_revision", "v1")
    assert "model_name_or_path: ORG/NAME@REVISION" in error_line(done)


@pytest.mark.slow
def test_every_other_name_takes_a_revision(shelf: Shelf) -> None:
    done = succeeded(shelf.run("-c", PROGRAM))
    commits = json.loads(done.stdout.splitlines()[-1])
    assert commits["names"] == ["org/judge@v1", "org/judge"]
    assert commits["encoder"] == "org/encoder@v1"
    assert commits["rows"] == [json.loads((shelf.folder / "0" / "cases" / "test.jsonl").read_text())["id"]]
    assert commits["metric"] == {"bert_model": shelf.v1["org/encoder"]}
    read = {f"org/{name}@v1": shelf.v1[f"org/{name}"] for name in ("cases", "encoder", "judge")}
    assert commits["commits"] == read | {"org/judge": shelf.main["org/judge"]}
    assert commits["split"].startswith("org/cases@v1: split 'train' cannot be read: ")
    unknown, empty, nowhere = commits["errors"]
    assert unknown.startswith("no folder 'org/judge@v9', and no download from the Hub: ")
    assert empty == "org/judge@: must be ORG/NAME@REVISION, with a branch, tag or commit behind the @"
    assert nowhere.startswith("no folder 'org/nowhere@v1', and no download from the Hub: ")
