"""The benchmarks run as documented, at their smallest size; docs/performance.md is made of their versioned results."""

import math
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, answer, good_answer, prompt_of
from doubles.tiny_dataset import build_instructions
from factories import Json, read_json, verdict_of
from programs import ENCODER, ROOT, SAMPLE, flags, needs_encoder, run_here
from tables import each_row

from automedeval.records.tables.cases import read_cases
from automedeval.study.dataset.corruption import KINDS


def measured(script: str, *options: object, folder: Path, missed: bool = False) -> Json:
    """Run a benchmark in this process as `python benchmarks/SCRIPT` would; return what it wrote.

    All of it is printed, and of each target whether it is met.

    Args:
        missed: whether it ends with 1, for a missed target.
    """
    path = str(ROOT / "benchmarks" / script)
    file = folder / "measured.json"
    sys.path.insert(0, str(ROOT / "benchmarks"))  # its neighbours
    try:
        words = [path, *map(str, options), "--json", str(file)]
        done = run_here(words, lambda: runpy.run_path(path, run_name="__main__"))
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    assert bool(done.returncode) is missed, done.stderr
    record = read_json(file)
    given = " ".join(map(str, options)).replace(f"{ROOT}/", "")
    assert record["command"] == f"python benchmarks/{script} {given}"
    for row in record["rows"]:
        assert row["name"] in done.stdout
        assert math.isfinite(row["value"])
        assert (row["met"] is None) is (row["target"] is None)
    return record | {"values": {row["name"]: row["value"] for row in record["rows"]}}


@each_row("script, options, ranges")
def test_a_benchmark_runs_at_its_smallest_size(script, options, ranges, tiny_model, tmp_path):
    if script == "grid.py":
        pytest.importorskip("playwright")
        if not shutil.which("chromium"):
            pytest.skip("chromium is not installed")
    own = {"TINY": tiny_model, "DATA": tmp_path / "data", "CASES": SAMPLE / "test_cases.jsonl"}
    build_instructions(own["DATA"], {"stage1": 4, "stage2": 3, "test": 1})
    words = [own.get(word, word) for word in options.split()]
    record = measured(script, *words, folder=tmp_path)
    values = record["values"]
    for begin, (least, most) in ranges.items():
        found = [value for name, value in values.items() if name.startswith(begin)]
        assert found, begin
        assert all(least < value < most for value in found), values
    for row in record["rows"]:
        if row["peer"] in values:
            assert row["ratio"] == pytest.approx(row["value"] / values[row["peer"]])


@needs_encoder
@pytest.mark.slow
def test_startup_times_import_help_and_first_verdict(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)  # where the models are
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    options = flags(repeats=1, texts=10, rows=2, limit=1)
    record = measured("startup.py", *options, folder=tmp_path)
    assert {'python -c "import automedeval"', "automedeval judge --help"} <= record["values"].keys()
    assert record["values"]["automedeval judge v1=… v2=…, with the report"] > 0
    assert record["machine"]["cores"] == os.cpu_count()
    assert record["idle"] is (record["other_cores"] <= 0.1)


@pytest.mark.slow
@needs_encoder
def test_quality_counts_each_corruption_by_both_classifiers(tmp_path):
    rationales = []
    for case in read_cases(SAMPLE / "train_cases.jsonl"):
        texts = [response.text.partition(". ")[0] for response in case.responses]
        steps = [f"Step {slot}: {text}." for slot, text in enumerate(texts, 2)]
        rationale = "\n".join(["Step 1: A question.", *steps])
        rationales.append(verdict_of(case, (1, 5, 3), rationale=rationale))
    write(tmp_path / "verdicts.jsonl", rationales)
    files = {"cases": SAMPLE / "train_cases.jsonl", "verdicts": tmp_path / "verdicts.jsonl"}
    options = flags(**files, seeds=1, encoder=ENCODER)
    record = measured("quality.py", *options, folder=tmp_path)
    assert record["notes"][0].startswith("60 cases, 60 verdicts, 1 seeds")
    counted = {tuple(row["name"].split(": ")) for row in record["rows"]}
    assert {kind for kind, _ in counted} <= {"high", "all", *KINDS}
    assert {by for _, by in counted} == {"embedding alone", "whole classifier"}


@pytest.mark.slow
@needs_encoder
def test_the_store_is_built_searched_and_finds_answers(tmp_path, monkeypatch):
    bones = [
        {"section": "Bones", "text": f"Bone {number} is long, and it bears weight. " * 9}
        for number in range(30)
    ]
    write(tmp_path / "openstax/book.jsonl", bones)
    asked = [
        (f"What is illness {number}?", f"Illness {number} is one of the blood.")
        for number in range(9)
    ]
    pairs = [{"question": question, "answer": answer} for question, answer in asked]
    write(tmp_path / "medquad/medquad.jsonl", pairs)
    monkeypatch.setenv("AUTOMEDEVAL_DATA", str(tmp_path))
    options = flags(encoder=ENCODER, repeats=1, questions=3, others=3)
    values = measured("knowledge.py", *options, folder=tmp_path)["values"]
    assert values["indexing"] > 0
    (recall,) = [value for name, value in values.items() if name.startswith("recall@5")]
    assert recall == 1, "six answers on illnesses, and each question names its own"


def test_a_server_is_compared_with_a_local_judge_and_misses_with_other_weights(
    tiny_model, tmp_path
):
    def script(body):
        if "logprobs" not in body:
            return good_answer(body)
        word = "Yes" if "Yes or No" in prompt_of(body) else "True"
        rivals = [{"token": word, "logprob": 0.0}]
        return answer(word, logprobs={"content": [rivals[0] | {"top_logprobs": rivals}]})

    with EndpointDouble(script) as server:
        options = flags(url=server.url, model=tiny_model, cases=2, at_once=2, max_new_tokens=4)
        values = measured("serving.py", *options, folder=tmp_path, missed=True)["values"]
    for name in ("yes_no", "true_false"):
        assert values[f"{name}: answered"] == values[f"{name}: odds told"] == 1
        assert values[f"{name}: odds differ by at most"] > 0.05
    assert values["typed questions, 2 requests at once"] > 0


def test_the_page_is_made_of_the_versioned_results(tmp_path):
    results = ROOT / "benchmarks/results"
    output = tmp_path / "page.md"
    assert list(results.glob("*.json"))
    words = flags(results=results, output=output)
    subprocess.run([sys.executable, ROOT / "benchmarks/page.py", *words], check=True)
    assert (ROOT / "docs/performance.md").read_text("utf-8") == output.read_text("utf-8")
