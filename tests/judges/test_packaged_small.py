"""The packaged small judge: it needs no name, gives its recorded scores, and finds its encoder or says what is missing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from programs import ENCODER, ROOT, SAMPLE, error_line, needs_encoder, run_recipe, succeeded

from automedeval.judges.small import PACKAGED
from automedeval.models.arguments import ENCODER_ON_HUB

pytestmark = needs_encoder
RECORDED = Path(__file__).with_name("small_scores.json")


def ten_cases(with_reference: bool) -> list[dict]:
    cases = read(SAMPLE / "test_cases.jsonl")[:10]
    return cases if with_reference else [case | {"reference": None} for case in cases]


@pytest.mark.parametrize("beside", ["reference", "question"])
def test_it_gives_its_recorded_scores(beside: str, tmp_path: Path) -> None:
    cases = ten_cases(beside == "reference")
    options = ["--cases", write(tmp_path / "cases.jsonl", cases), "--output", tmp_path / "out", "--device", "cpu"]
    succeeded(run_recipe("judge", *options, "--encoder", ENCODER))
    scores = {each["case_id"]: each["expected_scores"] for each in read(tmp_path / "out" / "verdicts.jsonl")}
    recorded = json.loads(RECORDED.read_text())[beside]
    assert list(recorded) == [case["id"] for case in cases]
    for case in cases:
        assert scores[case["id"]] == pytest.approx(recorded[case["id"]], abs=2e-3)


LOADED = """
import sys
from automedeval.cli.console import main
main()
print("loaded:", *sorted({"torch", "transformers", "sentence_transformers", "peft", "pandas"} & sys.modules.keys()))
"""


def test_it_computes_with_torch_alone_and_without_it_where_all_is_judged(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED, "judge", "sample", "--limit", "2", "--encoder", str(ENCODER)]
    for expected, new in (("loaded: torch", 2), ("loaded:", 0)):
        done = succeeded(subprocess.run([*command, "--output", str(tmp_path)], capture_output=True, text=True))
        assert f"2 verdicts ({new} new)" in done.stdout
        assert done.stdout.splitlines()[-1] == expected


def test_it_is_small_and_names_no_path_of_a_machine() -> None:
    files = [path for path in PACKAGED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if path.suffix == ".safetensors") <= 8e6
    assert {path.name for path in files} >= {"judge.json", "README.md", "NOTICE.md", "adapter_model.safetensors"}
    for path in files:
        if path.suffix in (".json", ".md"):
            text = path.read_text(encoding="utf-8")
            assert "/work" not in text
            assert "/home" not in text


def judge_elsewhere(folder: Path, cases: Path, **environment: object) -> subprocess.CompletedProcess:
    """Judge in a folder without models/."""
    command = [sys.executable, ROOT / "recipes" / "judge.py", "--device", "cpu"]
    command += ["--cases", cases, "--output", folder / "out"]
    variables = os.environ | {"HF_HUB_OFFLINE": "1"} | {name: str(value) for name, value in environment.items()}
    return subprocess.run([*map(str, command)], cwd=folder, env=variables, capture_output=True, text=True)


def test_its_encoder_is_found_in_the_cache_of_the_hub_and_nothing_is_downloaded(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", ten_cases(with_reference=True)[:2])
    environment = {"HF_HUB_CACHE": tmp_path / "cache", "HF_HOME": tmp_path / "home", "AUTOMEDEVAL_JUDGE": "small"}
    error = error_line(judge_elsewhere(tmp_path, cases, **environment))
    places = f"models/all-MiniLM-L6-v2, in {tmp_path}/home/automedeval/models or in the cache of the Hub"
    assert f"no encoder at {places}" in error
    assert not (tmp_path / "out" / "verdicts.jsonl").exists()
    repository = tmp_path / "cache" / f"models--{ENCODER_ON_HUB.replace('/', '--')}"
    shutil.copytree(ENCODER, repository / "snapshots" / ("c" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c" * 40)
    succeeded(judge_elsewhere(tmp_path, cases, **environment))
    recorded = json.loads(RECORDED.read_text())["reference"]
    for verdict in read(tmp_path / "out" / "verdicts.jsonl"):
        assert verdict["expected_scores"] == pytest.approx(recorded[verdict["case_id"]], abs=2e-3)
