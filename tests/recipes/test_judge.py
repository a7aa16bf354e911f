"""recipes/judge.py by its command: the main job, several processes, bad input, and runs that were killed.

A log only grows at its end, so that a kill leaves a beginning of the file, perhaps with half a line. Each run is cut at such
places and started again. Other files stop runs after a counted record or checkpoint, test_sft_distributed.py by a SIGKILL.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from doubles.endpoint import EndpointDouble, good_answer
from doubles.tiny_model import CHAT_TEMPLATE, DATED, build_tiny_model
from factories import read, read_json, verdicts_in, write
from programs import (
    ENCODER,
    FAST,
    ROOT,
    SAMPLE,
    TWO_PROCESSES,
    failed,
    flags,
    module_fixture,
    needs_encoder,
    on,
    processes_of,
    run_command,
    run_recipe,
    succeeded,
    told,
)
from tables import each_row, rows_of, with_words

from automedeval.records.journal import lock

CASES = SAMPLE / "test_cases.jsonl"
GOOD = {
    "id": "one",
    "question": "Why?",
    "responses": [{"model": "a", "text": "So."}, {"model": "b", "text": "Thus."}],
}
judge = partial(run_recipe, "judge", cases=CASES, **FAST)


@pytest.fixture
def judge_tiny(tiny_model):
    """Return what judges the sample's cases with the tiny model."""
    return partial(judge, judge=tiny_model, rubric="automedeval")


def test_a_language_model_sees_the_references_where_every_case_has_one(tiny_model, tmp_path):
    run = partial(judge, judge=tiny_model, rationale="false", limit=1)
    told(succeeded(run(output=tmp_path / "all")), "rubric: automedeval_guided, which shows the")
    assert {verdict.rubric for verdict in verdicts_in(tmp_path / "all")} == {"automedeval_guided@1"}
    (record,) = (tmp_path / "all").glob("run-*.json")
    assert read_json(record)["arguments"]["rubric"] == "automedeval_guided"
    some = write(tmp_path / "some.jsonl", [GOOD | {"reference": "So."}, GOOD | {"id": "two"}])
    succeeded(run(output=tmp_path / "some", cases=some))
    assert {verdict.rubric for verdict in verdicts_in(tmp_path / "some")} == {"automedeval@1"}


def test_judges_a_file_and_tells_the_standings(judge_tiny, tmp_path):
    args = {"output": tmp_path, "limit": 5, "orders": "latin"}
    where = str(tmp_path / "verdicts.jsonl")
    told(judge_tiny(**args), "juniper-7b", where)
    records = verdicts_in(tmp_path)
    assert len(records) == len({verdict.key for verdict in records}) == 15
    assert all(verdict.valid and verdict.rubric == "automedeval@1" for verdict in records)
    (record,) = tmp_path.glob("run-*.json")
    run = read_json(record)
    assert run["arguments"]["orders"] == "latin"
    assert run["versions"]["transformers"]
    told(judge_tiny(**args), "(new: 0)")
    assert verdicts_in(tmp_path) == records


@each_row("rubric")
def test_pairwise_rubrics(judge_tiny, tmp_path, rubric):
    done = judge_tiny(output=tmp_path, limit=3, baseline="larch-7b", rubric=rubric)
    told(done, "share of pairs won")
    records = verdicts_in(tmp_path)
    assert len(records) == 6
    assert all(verdict.pair[0] == "larch-7b" and verdict.choices for verdict in records)


@each_row("name, rubric, said")
def test_a_judge_that_reads_no_reference_says_so(tiny_model, tmp_path, name, rubric, said):
    done = judge(judge=name or tiny_model, rubric=rubric, limit=1, output=tmp_path)
    told = re.findall("reference: (not read .*)", done.stdout)
    assert told == said


def test_runs_at_a_temperature_without_a_rationale_differ_and_can_be_repeated(judge_tiny, tmp_path):
    run = partial(judge_tiny, limit=2, rationale="false", runs=6)
    for folder, temperature in (("one", 1), ("two", 1), ("greedy", 0)):
        succeeded(run(output=tmp_path / folder, temperature=temperature))
    once, again, greedy = (verdicts_in(tmp_path / name) for name in ("one", "two", "greedy"))
    assert once == again
    assert len({(verdict.case_id, verdict.scores) for verdict in greedy}) == 2
    for case_id in {verdict.case_id for verdict in once}:
        runs = [verdict for verdict in once if verdict.case_id == case_id]
        assert len({verdict.scores for verdict in runs}) > 1
        # Of the slot before which nothing was drawn.
        first = [verdict.expected_scores[verdict.order[0]] for verdict in runs]
        assert max(first) - min(first) < 1e-4


def kill_when_one_has_written(output: Path, **options: object) -> None:
    """Start the recipe in two processes, and kill them and their launcher as soon as one has written a verdict."""
    words = map(str, flags(**options, output=output))
    command = [sys.executable, *TWO_PROCESSES, str(ROOT / "recipes/judge.py"), *words]
    running = psutil.Popen(command, cwd=ROOT)
    parts = [output / f"verdicts.part{rank}.jsonl" for rank in (0, 1)]
    while not any(part.exists() and part.stat().st_size for part in parts):
        assert running.poll() is None, "it ended before one had written"
        time.sleep(0.01)
    for process in [running, *running.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    running.wait()


@pytest.mark.slow
def test_several_processes_share_the_cases(judge_tiny, tmp_path):
    options = {"rationale": "false", "orders": "latin"}
    succeeded(judge_tiny(**options, output=tmp_path / "one"))
    alone = {verdict.key: verdict.scores for verdict in verdicts_in(tmp_path / "one")}
    shared = tmp_path / "two"
    kill_when_one_has_written(shared, **judge_tiny.keywords, **options)
    with open(shared / "verdicts.part1.jsonl", "a") as torn:
        torn.write((tmp_path / "one/verdicts.jsonl").read_text()[:50])
    succeeded(judge_tiny(**options, output=shared, launch=TWO_PROCESSES))
    assert processes_of(shared) == 2
    assert not list(shared.glob("*.part*"))
    records = verdicts_in(shared)
    assert len(records) == len(alone)
    assert {verdict.key: verdict.scores for verdict in records} == alone


@pytest.mark.slow
def test_a_process_that_waits_for_one_that_ends_says_so_in_one_line(judge_tiny, tmp_path):
    with lock(tmp_path / "verdicts.part1.jsonl", "writing this file"):
        done = judge_tiny(rationale="false", output=tmp_path, launch=TWO_PROCESSES)
    # Before it on the same line there may be the other process's progress bar.
    lines = set(re.findall("error: .*", done.stderr))
    ended = "error: another process of this run has ended; see its error line"
    failed = f"error: {tmp_path}/verdicts.part1.jsonl: another process is writing this file"
    assert {failed} <= lines <= {failed, ended}
    assert "RuntimeError" not in done.stderr


def test_a_changed_judge_or_rubric_never_reuses_verdicts(judge_tiny, tmp_path):
    run = partial(judge_tiny, output=tmp_path / "out", limit=2, rationale="false")
    succeeded(run())
    retrained = build_tiny_model(tmp_path / "tiny-judge", seed=7)
    failed(run(judge=retrained), "other weights")
    succeeded(run(judge=retrained, judge_name="second"))
    rubric = tmp_path / "automedeval.yaml"
    packaged = (ROOT / "src/automedeval/rubrics/packaged/automedeval.yaml").read_text()
    rubric.write_text(packaged.replace("easy to follow", "easy to read"))
    failed(run(rubric=rubric), "wording")
    rubric.write_text(packaged.replace("version: 1", "version: 2"))
    succeeded(run(rubric=rubric))
    names = Counter((verdict.judge, verdict.rubric) for verdict in verdicts_in(tmp_path / "out"))
    assert list(names.values()) == [2, 2, 2]


@each_row("words, said")
def test_bad_input_is_one_line(words, said, tiny_model, tmp_path, monkeypatch):
    """Among the files are a case of one response, a checkpoint that is none, and a run with a wrong value."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "single.jsonl", [GOOD | {"responses": GOOD["responses"][:1]}])
    Path("bad.jsonl").write_text(json.dumps(GOOD) + "\n{oops\n")
    Path("broken").mkdir()
    Path("broken", "config.json").write_text("{}")
    for name, value in (("orders", "al"), ("runs", 2.5), ("max_new_tokens", "many")):
        Path(f"{name}.yaml").write_text(f"{name}: {value}\n")
    usual = {"judge": tiny_model, "cases": CASES, "output": "out"}
    given = {name: value for name, value in usual.items() if f"--{name}" not in words}
    failed(run_recipe("judge", *words, **given, **FAST), said)
    assert not list(Path("out").glob("verdicts*"))


def test_a_dry_run_needs_the_tokenizer_alone_and_judges_nothing(judge_tiny, tiny_model, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tiny_model, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    run = partial(judge_tiny, output=tmp_path / "d")
    printed = told(run("--dry_run", judge=bare), "cases: 30, verdicts: 30")
    assert printed == run("--dry_run").stdout
    assert not (tmp_path / "d/verdicts.jsonl").exists()
    failed(run(judge=bare), "cannot be loaded")


def test_an_overlong_case_is_invalid_and_counted(judge_tiny, tmp_path):
    answers = [{"model": "a", "text": "word " * 9000}, GOOD["responses"][1]]
    long = GOOD | {"id": "long", "responses": answers}
    file = write(tmp_path / "cases.jsonl", [GOOD, long])
    done = judge_tiny(cases=file, output=tmp_path / "a")
    assert re.search(
        r"invalid, 1: the prompt is \d+ tokens longer than the context window", done.stdout
    )
    valid = {verdict.case_id: verdict.valid for verdict in verdicts_in(tmp_path / "a")}
    assert valid == {"one": True, "long": False}


def test_recipes_are_not_a_package():
    command = [sys.executable, "-c", "import recipes"]
    variables = os.environ | {"PYTHONPATH": "."}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert "recipes are programs" in done.stderr


JUDGES = {name: shlex.split(words) for name, words in rows_of(__file__)["judges"].items()}


def cases_of(count: int) -> list[dict]:
    """Return cases of the sample, shortened, some without a reference, with an empty answer or one that no judge reads."""
    criteria = [{"criterion": "names a dose", "points": 5}, {"criterion": "scares", "points": -3}]
    odd = {0: "", 3: "ใช่ คุณต้องฉีดวัคซีน"}
    cases = read(CASES)[:count]
    for number, case in enumerate(cases):
        for place, response in enumerate(case["responses"]):
            response["text"] = odd.get((number - place) % 7, response["text"][:300])
        if number % 3:
            case["reference"] = None
        case["criteria"] = criteria
    return cases


@module_fixture
def run(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    many = write(folder / "many.jsonl", cases_of(24))
    few = write(folder / "few.jsonl", cases_of(6))
    with EndpointDouble(good_answer) as endpoint:

        def start(name: str, output: Path) -> None:
            args = with_words(JUDGES[name], MODEL=tiny_model, URL=endpoint.url, ENCODER=ENCODER)
            cases = many if name in ("small", "likelihood", "baseline") else few
            succeeded(run_command("judge", "--judge", *args, cases=cases, output=output))

        yield start


@needs_encoder
@pytest.mark.parametrize("name", JUDGES)
def test_a_cut_run_goes_on_to_the_same_bytes(run, name, tmp_path):
    run(name, tmp_path / "whole")
    whole = (tmp_path / "whole/verdicts.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) >= 6
    half = len(lines) // 2
    torn = [*lines[:half], lines[half][:40]]
    for place, left in enumerate((lines[:1], torn, lines[:-1])):
        file = tmp_path / f"cut{place}/verdicts.jsonl"
        file.parent.mkdir()
        file.write_bytes(b"".join(left))
        run(name, file.parent)
        assert file.read_bytes() == whole


@pytest.mark.slow
@needs_encoder
@pytest.mark.parametrize("rubric", ["scores", "criteria"])
def test_a_cut_audit_goes_on_to_the_same_figures(rubric, tiny_model, tmp_path):
    cases = write(tmp_path / "cases.jsonl", cases_of(5))
    small = ("--judge", "small", "--encoder", ENCODER)
    on_criteria = ("--judge", tiny_model, *JUDGES["checkpoint, criteria"][1:])
    words = small if rubric == "scores" else on_criteria

    def audit(output: Path) -> dict:
        succeeded(run_command("audit", *words, cases=cases, edits=1, gate="false", output=output))
        figures = read_json(output / "audit.json")
        del figures["settings"]
        return figures

    whole = audit(tmp_path / "whole")
    output = tmp_path / "cut"
    assert audit(output) == whole
    logs = {log: log.read_bytes() for log in output.rglob("verdicts.jsonl")}
    assert logs
    for log, kept in logs.items():
        log.write_bytes(kept[: 2 * len(kept) // 3])
    assert audit(output) == whole
    assert {log: log.read_bytes() for log in logs} == logs


@pytest.mark.parametrize("command", ["judge", "audit"])
def test_a_run_shows_its_chat_template_one_date(command, tiny_model, tmp_path):
    template = tmp_path / "dated.jinja"
    cases = write(tmp_path / "cases.jsonl", cases_of(5))
    template.write_text(DATED + CHAT_TEMPLATE)
    options = {"judge": tiny_model, "cases": cases, "chat_template_path": template, **FAST}
    if command == "audit":
        options |= {"edits": 1, "gate": "false"}

    def run(output: Path) -> list[bytes]:
        succeeded(run_command(command, **options, output=output))
        return [file.read_bytes() for file in sorted(output.rglob("verdicts.jsonl"))]

    with on("2026-11-07"):
        whole = run(tmp_path / "cut")
    for file in (tmp_path / "cut").rglob("verdicts.jsonl"):
        file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    with on("2026-11-28"):
        assert run(tmp_path / "cut") == whole
        assert run(tmp_path / "other") != whole
    records = map(read_json, (tmp_path / "cut").rglob("run-*.json"))
    assert {record["date"] for record in records} == {"2026-11-07"}
