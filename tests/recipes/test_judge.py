"""recipes/judge.py by its command: the main job, several processes, bad input, and runs that were killed.

A log only grows at its end, so that a kill leaves a beginning of the file, perhaps with half a line. Each run is cut at such
places and started again. Other files stop runs after a counted record or checkpoint, test_sft_distributed.py by a SIGKILL.
"""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from doubles.agreement_study import write
from doubles.endpoint import EndpointDouble, good_answer
from doubles.tiny_model import CHAT_TEMPLATE, DATED, build_tiny_model
from programs import (
    ENCODER,
    ROOT,
    SAMPLE,
    TWO_PROCESSES,
    error_line,
    needs_encoder,
    on,
    processes_of,
    run_command,
    run_recipe,
    succeeded,
)
from tables import rows_of

from automedeval.records import Verdict
from automedeval.records.journal import lock

CASES = SAMPLE / "test_cases.jsonl"
FAST = ["--dtype", "float32", "--device", "cpu", "--max_new_tokens", "8"]


judge = partial(run_recipe, "judge")


def verdicts(folder: Path) -> list[dict]:
    return [
        json.loads(line)
        for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def key(verdict: dict) -> tuple:
    return (
        verdict["case_id"],
        verdict["judge"],
        verdict["rubric"],
        *verdict["order"],
        verdict["run"],
    )


def test_judges_a_file_and_tells_the_standings(tiny_model, tmp_path):
    args = [
        "--judge",
        tiny_model,
        "--cases",
        CASES,
        "--output",
        tmp_path,
        "--limit",
        5,
        "--orders",
        "latin",
        *FAST,
    ]
    done = succeeded(judge(*args, launch=()))
    records = verdicts(tmp_path)
    assert len(records) == len(set(map(key, records))) == 15
    assert all(verdict["valid"] and verdict["rubric"] == "automedeval@1" for verdict in records)
    assert "juniper-7b" in done.stdout
    assert "valid rate 1.000" in done.stdout
    assert str(tmp_path / "verdicts.jsonl") in done.stdout
    (record,) = tmp_path.glob("run-*.json")
    run = json.loads(record.read_text())
    assert run["arguments"]["orders"] == "latin"
    assert run["versions"]["transformers"]
    again = judge(*args)
    assert "(0 new)" in again.stdout
    assert verdicts(tmp_path) == records


@pytest.mark.parametrize(
    "rubric", ["medical_pairwise", "instruction_pairwise", "just_eval_pairwise"]
)
def test_pairwise_rubrics(tiny_model, tmp_path, rubric):
    words = [
        "--judge",
        tiny_model,
        "--cases",
        CASES,
        "--output",
        tmp_path,
        "--limit",
        3,
        "--baseline",
        "larch-7b",
    ]
    done = succeeded(judge(*words, "--rubric", rubric, *FAST))
    records = verdicts(tmp_path)
    assert len(records) == 6
    assert all(verdict["pair"][0] == "larch-7b" and verdict["choices"] for verdict in records)
    assert "share of pairs won" in done.stdout


def test_a_judge_that_reads_no_reference_says_so(tiny_model, tmp_path):
    args = ["--cases", CASES, "--limit", 1, *FAST]
    unread = "reference: not read by this judge"
    told = {"baseline:longer text": f"{unread}\n"}
    told[tiny_model] = f"{unread}; --rubric automedeval_guided shows it to the model"
    for number, (judged, said) in enumerate(told.items()):
        assert said in judge("--judge", judged, *args, "--output", tmp_path / str(number)).stdout
    done = judge(
        "--judge", "baseline:ROUGE-L to the reference", *args, "--output", tmp_path / "rouge"
    )
    assert "reference: not read" not in done.stdout
    done = judge(
        "--judge",
        tiny_model,
        *args,
        "--rubric",
        "automedeval_guided",
        "--output",
        tmp_path / "guided",
    )
    assert "reference: not read" not in done.stdout


def test_rationales_that_break_off_are_counted(tiny_model, tmp_path):
    done = succeeded(
        judge("--judge", tiny_model, "--cases", CASES, "--output", tmp_path, "--limit", 3, *FAST)
    )
    faults = Counter(Verdict.from_dict(each).rationale_fault for each in verdicts(tmp_path))
    del faults[None]
    counts = " and ".join(f"{count} {fault}" for fault, count in sorted(faults.items()))
    assert (
        f"Broken rationales: Of the valid verdicts' rationales {counts}. Do not trust"
        in done.stdout
    )
    assert faults


def test_runs_at_a_temperature_without_a_rationale_differ_and_can_be_repeated(tiny_model, tmp_path):
    arguments = [
        "--judge",
        tiny_model,
        "--cases",
        CASES,
        "--limit",
        2,
        "--rationale",
        "false",
        *FAST,
    ]
    arguments += ["--runs", 6, "--temperature", 1]
    for folder in ("one", "two"):
        assert judge(*arguments, "--output", tmp_path / folder).returncode == 0
    once, again = (
        {key(each): each for each in verdicts(tmp_path / folder)} for folder in ("one", "two")
    )
    assert once == again
    for case_id in {each["case_id"] for each in once.values()}:
        runs = [each for each in once.values() if each["case_id"] == case_id]
        assert len({tuple(each["scores"]) for each in runs}) > 1
        # Of the slot before which nothing was drawn.
        first = {each["expected_scores"][each["order"][0]] for each in runs}
        assert max(first) - min(first) < 1e-4
    succeeded(judge(*arguments, "--temperature", 0, "--output", tmp_path / "greedy"))
    assert (
        len(
            {
                tuple(each["scores"])
                for each in verdicts(tmp_path / "greedy")
                if each["case_id"] == case_id
            }
        )
        == 1
    )


def kill_when_one_has_written(output: Path, *arguments: object) -> None:
    """Start the recipe in two processes, and kill them and their launcher as soon as one has written a verdict."""
    command = [
        sys.executable,
        *TWO_PROCESSES,
        str(ROOT / "recipes" / "judge.py"),
        *map(str, arguments),
    ]
    running = psutil.Popen([*command, "--output", str(output)], cwd=ROOT)
    parts = [output / f"verdicts.part{rank}.jsonl" for rank in (0, 1)]
    while not any(part.exists() and part.stat().st_size for part in parts):
        assert running.poll() is None, "it ended before one had written"
        time.sleep(0.01)
    for process in [running, *running.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    running.wait()


def test_several_processes_share_the_cases(tiny_model, tmp_path):
    arguments = [
        "--judge",
        tiny_model,
        "--cases",
        CASES,
        "--rationale",
        "false",
        "--orders",
        "latin",
        *FAST,
    ]
    assert judge(*arguments, "--output", tmp_path / "one").returncode == 0
    alone = verdicts(tmp_path / "one")
    shared = tmp_path / "two"
    kill_when_one_has_written(shared, *arguments)
    with open(shared / "verdicts.part1.jsonl", "a") as torn:
        torn.write(json.dumps(alone[1])[:50])
    succeeded(judge(*arguments, "--output", shared, launch=TWO_PROCESSES))
    assert processes_of(shared) == 2
    records = verdicts(shared)
    assert sorted(map(key, records)) == sorted(map(key, alone))
    assert not list(shared.glob("*.part*"))
    scores = {key(verdict): verdict["scores"] for verdict in alone}
    assert all(scores[key(verdict)] == verdict["scores"] for verdict in records)


@pytest.mark.slow
def test_a_process_that_waits_for_one_that_ends_says_so_in_one_line(tiny_model, tmp_path):
    arguments = ["--judge", tiny_model, "--cases", CASES, "--rationale", "false", *FAST]
    with lock(tmp_path / "verdicts.part1.jsonl", "writing this file"):
        done = judge(*arguments, "--output", tmp_path, launch=TWO_PROCESSES)
    lines = {line for line in done.stderr.splitlines() if line.startswith("error: ")}
    ended = "error: another process of this run has ended; see its error line"
    failed = f"error: {tmp_path}/verdicts.part1.jsonl: another process is writing this file"
    assert {failed} <= lines <= {failed, ended}
    assert "RuntimeError" not in done.stderr


def test_a_changed_judge_or_rubric_never_reuses_verdicts(tiny_model, tmp_path):
    arguments = [
        "--cases",
        CASES,
        "--output",
        tmp_path / "out",
        "--limit",
        2,
        "--rationale",
        "false",
        *FAST,
    ]
    assert judge("--judge", tiny_model, *arguments).returncode == 0
    retrained = build_tiny_model(tmp_path / "tiny-judge", seed=7)
    assert "other weights" in error_line(judge("--judge", retrained, *arguments))
    assert judge("--judge", retrained, *arguments, "--judge_name", "second").returncode == 0
    rubric = tmp_path / "automedeval.yaml"
    packaged = (ROOT / "src/automedeval/rubrics/packaged/automedeval.yaml").read_text()
    rubric.write_text(packaged.replace("easy to follow", "easy to read"))
    assert "wording" in error_line(judge("--judge", tiny_model, *arguments, "--rubric", rubric))
    rubric.write_text(packaged.replace("version: 1", "version: 2"))
    assert judge("--judge", tiny_model, *arguments, "--rubric", rubric).returncode == 0
    names = [(verdict["judge"], verdict["rubric"]) for verdict in verdicts(tmp_path / "out")]
    assert (len(names), len(set(names))) == (6, 3)


@pytest.mark.parametrize(("words", "said"), rows_of(__file__)["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(words, said, tiny_model, tmp_path, monkeypatch):
    """Among the files are a case of one response, a checkpoint that is none, and a run with a wrong value."""
    monkeypatch.chdir(tmp_path)
    Path("single.jsonl").write_text(json.dumps({**GOOD, "responses": GOOD["responses"][:1]}) + "\n")
    Path("bad.jsonl").write_text(json.dumps(GOOD) + "\n{oops\n")
    Path("broken").mkdir()
    Path("broken", "config.json").write_text("{}")
    for name in ("orders: al", "runs: 2.5", "max_new_tokens: many"):
        Path(f"{name.partition(':')[0]}.yaml").write_text(name + "\n")
    usual = {"--judge": tiny_model, "--cases": CASES, "--output": "out"}
    given = [
        word for option, value in usual.items() if option not in words for word in (option, value)
    ]
    assert said in error_line(judge(*words, *given, *FAST))
    assert not list(Path("out").glob("verdicts*"))


def test_a_dry_run_needs_the_tokenizer_alone_and_judges_nothing(tiny_model, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tiny_model, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    args = ["--cases", CASES, "--output", tmp_path / "d", *FAST]
    done = succeeded(judge("--judge", bare, *args, "--dry_run"))
    whole = judge("--judge", tiny_model, *args, "--dry_run")
    assert done.stdout == whole.stdout
    assert "30 cases, 30 prompts" in done.stdout
    assert not (tmp_path / "d" / "verdicts.jsonl").exists()
    assert "cannot be loaded" in error_line(judge("--judge", bare, *args))


GOOD = {
    "id": "one",
    "question": "Why?",
    "responses": [{"model": "a", "text": "So."}, {"model": "b", "text": "Thus."}],
}


def test_an_overlong_case_is_invalid_and_counted(tiny_model, tmp_path):
    long = {
        **GOOD,
        "id": "long",
        "responses": [{"model": "a", "text": "word " * 9000}, GOOD["responses"][1]],
    }
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(GOOD) + "\n" + json.dumps(long) + "\n")
    done = judge("--judge", tiny_model, "--cases", file, *FAST, "--output", tmp_path / "a")
    assert re.search(
        r"invalid, 1: the prompt is \d+ tokens longer than the context window", done.stdout
    )
    assert {each["case_id"]: each["valid"] for each in verdicts(tmp_path / "a")} == {
        "one": True,
        "long": False,
    }


def test_recipes_are_not_a_package():
    command, variables = [sys.executable, "-c", "import recipes"], os.environ | {"PYTHONPATH": "."}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert "recipes are programs" in done.stderr


WORDS = re.findall(
    r"\w+",
    """take ibuprofen with food every six hours and call your doctor if pain or fever stays rash swelling breathing dose adult
    child liver kidney blood pressure warfarin alcohol pregnant safe unsafe maybe""",
)
JUDGES = {name: shlex.split(words) for name, words in rows_of(__file__)["judges"].items()}


def cases_of(count: int) -> list[dict]:
    rng = random.Random(3)

    def text(least: int, most: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most))) + "."

    def answer(n: int, at: int) -> str:
        return "" if n % 7 == at else "ใช่ คุณต้องฉีดวัคซีน" if n % 7 == at + 3 else text(3, 90)

    return [
        {"id": f"k{n}", "question": text(4, 30), "reference": text(9, 20) if n % 3 == 0 else None}
        | {"responses": [{"model": model, "text": answer(n, at)} for at, model in enumerate("abc")]}
        | {"criteria": [{"criterion": text(3, 6), "points": points} for points in (5, -3)]}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], None]:
    folder = tmp_path_factory.mktemp("cases")
    many, few = write(folder / "many.jsonl", cases_of(40)), write(folder / "few.jsonl", cases_of(6))
    with EndpointDouble(good_answer) as endpoint:

        def start(name: str, output: Path) -> None:
            places = {"MODEL": str(tiny_model), "URL": endpoint.url, "ENCODER": str(ENCODER)}
            args = [
                re.sub("MODEL|URL|ENCODER", lambda match: places[match[0]], each)
                for each in JUDGES[name]
            ]
            cases = many if name in ("small", "likelihood", "baseline") else few
            succeeded(run_command("judge", "--cases", cases, "--judge", *args, "--output", output))

        yield start


@needs_encoder
@pytest.mark.parametrize("name", JUDGES)
def test_a_cut_run_goes_on_to_the_same_bytes(
    run: Callable[[str, Path], None], name: str, tmp_path: Path
) -> None:
    run(name, tmp_path / "whole")
    whole = (tmp_path / "whole" / "verdicts.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) >= 6
    half = len(lines) // 2
    for place, left in enumerate(
        (lines[:1], lines[:half], [*lines[:half], lines[half][:40]], lines[:-1])
    ):
        output = tmp_path / f"cut{place}"
        output.mkdir()
        (output / "verdicts.jsonl").write_bytes(b"".join(left))
        run(name, output)
        assert (output / "verdicts.jsonl").read_bytes() == whole


@needs_encoder
@pytest.mark.parametrize("rubric", ["scores", "criteria"])
def test_a_cut_audit_goes_on_to_the_same_figures(
    rubric: str, tiny_model: Path, tmp_path: Path
) -> None:
    cases = write(tmp_path / "cases.jsonl", cases_of(5))
    small = ("--judge", "small", "--encoder", ENCODER)
    judge = (
        small
        if rubric == "scores"
        else ("--judge", tiny_model, *JUDGES["checkpoint, criteria"][1:])
    )

    def audit(output: Path) -> dict:
        options = ("--cases", cases, "--edits", 1, "--gate", "false", "--output", output)
        succeeded(run_command("audit", *judge, *options))
        figures = json.loads((output / "audit.json").read_text())
        del figures["settings"]
        return figures

    whole, output = audit(tmp_path / "whole"), tmp_path / "cut"
    assert audit(output) == whole
    logs = sorted(output.rglob("verdicts.jsonl"))
    assert logs
    before = [log.read_bytes() for log in logs]
    for log in logs:
        kept = log.read_bytes()
        log.write_bytes(kept[: 2 * len(kept) // 3])
    assert audit(output) == whole
    assert [log.read_bytes() for log in logs] == before


@pytest.mark.parametrize("command", ["judge", "audit"])
def test_a_run_shows_its_chat_template_one_date(
    command: str, tiny_model: Path, tmp_path: Path
) -> None:
    template, cases = tmp_path / "dated.jinja", write(tmp_path / "cases.jsonl", cases_of(5))
    template.write_text(DATED + CHAT_TEMPLATE)
    options = ["--judge", tiny_model, "--cases", cases, "--chat_template_path", template, *FAST]
    options += ["--edits", 1, "--gate", "false"] if command == "audit" else []

    def run(output: Path) -> list[bytes]:
        succeeded(run_command(command, *options, "--output", output))
        return [file.read_bytes() for file in sorted(output.rglob("verdicts.jsonl"))]

    with on("2026-11-07"):
        whole, kept = run(tmp_path / "whole"), run(tmp_path / "cut")
    assert whole == kept
    for file in (tmp_path / "cut").rglob("verdicts.jsonl"):
        file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    with on("2026-11-28"):
        assert run(tmp_path / "cut") == whole
        assert run(tmp_path / "other") != whole
    records = (json.loads(file.read_text()) for file in (tmp_path / "cut").rglob("run-*.json"))
    assert {each["date"] for each in records} == {"2026-11-07"}
