"""The benchmarks run as documented, in a tiny configuration, and print their tables. What they measure is not judged here."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT, SAMPLE, needs_encoder

from automedeval.dataset.corruption import KINDS
from automedeval.records import Verdict, read_cases


def table_of(script: str, *options: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *options]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout


def row_of(table: str, name: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(name)]
    return line.removeprefix(name).split()


def test_throughput_compares_every_row_with_its_target(tiny_model: Path) -> None:
    options = ["--model", str(tiny_model), "--cases", str(SAMPLE / "test_cases.jsonl"), "--limit", "2"]
    options += ["--baseline_limit", "2", "--max_new_tokens", "2", "--repeats", "1", "--probe", "1"]
    table = table_of("judge_throughput.py", *options).split("2 cases, up to 2 new tokens")[1]
    tried, measured = table.split("written/s")
    for name in ("(a) generate, one by one", "(b) judge, rationale", "(c) judge, scores alone"):
        assert all(float(rate) > 0 for rate in row_of(tried, name)), "what the hardware computes is tried"
    dtype, cases, rate, _read, written, *_ = row_of(measured, "(a) generate, one by one")
    assert dtype in ("float32", "bfloat16")
    assert int(cases) == 2
    assert float(rate) > 0
    assert 0 < int(written) <= 2 * 2
    for name, target in (
        ("(b) judge, rationale", "8"),
        ("(c) judge, scores alone", "20"),
        ("(d) bare forward", "0.9"),
        ("(d') with flat head input", "0.9"),
    ):
        row = row_of(measured, name)
        assert int(row[1]) == 2
        assert row[-2] == target
        assert row[-1] in ("yes", "no")


def test_memory_reports_growth_of_each_run() -> None:
    table = table_of("judge_memory.py", "--small", "20", "--large", "40", "--repeats", "1")
    assert "20 cases, MB" in table
    assert "40 cases, MB" in table
    for name in ("judge all ", "judge again"):
        small, large, growth, *_ = row_of(table, name)
        assert abs(float(growth) - float(large) / float(small)) < 0.002


def test_judge_startup_reports_seconds_and_memory_of_each_size(tmp_path: Path) -> None:
    file = tmp_path / "startup.json"
    table = table_of("judge_startup.py", "--cases", "20", "600", "--json", str(file))
    rows = {row["name"]: row["value"] for row in json.loads(file.read_text())["rows"]}
    for count in ("20", "600"):
        _, seconds, parsed, most = row_of(table, f"{count}  ")
        assert float(parsed) < float(seconds) < 300
        assert rows[f"{count} cases: peak of memory"] == pytest.approx(float(most), rel=0.01)


@needs_encoder
def test_startup_times_import_and_help_and_writes_what_it_prints(tmp_path: Path) -> None:
    file = tmp_path / "startup.json"
    table = table_of("startup.py", "--repeats", "1", "--texts", "40", "--rows", "2", "--json", str(file))
    written = json.loads(file.read_text())
    rows = {row["name"]: row for row in written["rows"]}
    judged = "automedeval judge, 2 rows of two answers"
    for name in ('python -c "import automedeval"', "automedeval judge --help", judged):
        seconds, *_, bound, verdict = row_of(table, name)
        assert float(seconds) > 0
        assert rows[name]["value"] == pytest.approx(float(seconds), abs=0.001)
        assert rows[name]["target"] == f"<= {bound}"
        assert rows[name]["met"] is (rows[name]["value"] <= float(bound)) is (verdict == "yes")
    assert written["command"] == "python benchmarks/startup.py --repeats 1 --texts 40 --rows 2"
    assert written["machine"]["cores"] == os.cpu_count()
    assert written["versions"]["python"] == platform.python_version()
    assert written["idle"] is (written["other_cores"] <= 0.1)
    assert 0 < written["processor_seconds"] <= written["seconds"] * os.cpu_count()


def test_meta_evaluation_times_bootstrap_and_report() -> None:
    table = table_of("meta_evaluation.py", "--cases", "60", "--resamples", "100")
    for name in ("bootstrap of 8 mean measures", "bootstrap of 1 rank correlation"):
        assert len([line for line in table.splitlines() if line.startswith(name)]) == 2
    seconds, _unit, *_, limit, met = row_of(table, "the whole report")
    assert float(seconds) > 0
    assert float(limit) == 60
    assert met in ("yes", "no")
    assert "size of the report's HTML" in table


@needs_encoder
def test_quality_counts_each_corruption_by_both_classifiers(tmp_path: Path) -> None:
    rationales = []
    for case in read_cases(SAMPLE / "train_cases.jsonl"):
        steps = [f"Step {slot}: {response.text.split('. ')[0]}." for slot, response in enumerate(case.responses, 2)]
        rationale = "\n".join(["Step 1: A question.", *steps])
        verdict = Verdict(case.id, "j", "automedeval@1", (0, 1, 2), valid=True, rationale=rationale, scores=(1, 5, 3))
        rationales.append(json.dumps(verdict.to_dict()) + "\n")
    (tmp_path / "verdicts.jsonl").write_text("".join(rationales))
    options = [
        "--cases",
        str(SAMPLE / "train_cases.jsonl"),
        "--verdicts",
        str(tmp_path / "verdicts.jsonl"),
        "--seeds",
        "1",
    ]
    table = table_of("quality.py", *options)
    assert "60 cases, 60 verdicts, 1 seeds" in table
    *rows, last = (line.split() for line in table.splitlines()[2:])
    assert {kind for kind, *_ in rows} <= {"high", *KINDS}
    assert [sum(map(int, column)) for column in list(zip(*rows))[1:]] == list(map(int, last[1:]))
    assert all(max(int(alone), int(whole)) <= int(of) for _, alone, whole, of in rows)


def test_dataset_building_reports_time_and_growth() -> None:
    table = table_of("build_dataset.py", "--small", "20", "--large", "40")
    assert float(row_of(table, "growth of memory")[0]) > 0


def test_the_gpu_program_runs_on_tiny_shapes_and_writes_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    table_of("gpu.py", "--tiny", "--json", str(file))
    rows = json.loads(file.read_text())["rows"]
    assert all(set(row) == {"name", "value", "unit", "peer", "ratio", "target", "met"} for row in rows)
    assert all(row["value"] > 0 for row in rows)
    judged = [row["name"] for row in rows if row["unit"] == "MFU"]
    assert {name.split(",")[0] for name in judged} == {"8B", "13B", "training 1B", "training 8B"}
    assert {"scores alone", "rationale"} <= {part.strip() for name in judged for part in name.split(",")}
    (judgelm,) = [row for row in rows if row["peer"]]
    assert judgelm["ratio"] == pytest.approx(judgelm["value"] / 3.5)
    assert judgelm["target"] == ">= 4"
    assert [row["target"] for row in rows if row["unit"] == "MFU"].count(">= 0.5") == 2
