"""recipes/judge.py against an endpoint, as a person starts it."""

import json
import os
import runpy
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from doubles.endpoint import CUT_OFF, HANG, EndpointDouble, answer, error, good_answer
from programs import ROOT, SAMPLE

from automedeval.records import Verdict, read_cases, read_records

CASES = SAMPLE / "test_cases.jsonl"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.fixture
def judge(tmp_path, monkeypatch, capfd):
    """Return a function that runs the recipe and gives (exit status, stdout, lines of stderr, verdicts)."""

    def start(url, *options, process=False, limit=4, model="openai:m"):
        output = tmp_path / "out"
        command = [str(ROOT / "recipes" / "judge.py"), "--judge", model, "--base_url", url, "--cases", str(CASES)]
        command += ["--output", str(output), "--limit", str(limit), "--max_retries", "0", "--timeout", "5"]
        command += map(str, options)
        if process:
            environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
            done = subprocess.run(
                [sys.executable, *command], capture_output=True, text=True, timeout=60, env=environment
            )
            status, out, err = done.returncode, done.stdout, done.stderr
        else:
            monkeypatch.setattr(sys, "argv", command)
            status, told = 0, ""
            try:
                runpy.run_path(command[0], run_name="__main__")
            except SystemExit as end:  # what the interpreter makes of it
                status, told = (1, f"{end.code}\n") if isinstance(end.code, str) else (end.code or 0, "")
            out, err = capfd.readouterr()
            err += told
        file = output / "verdicts.jsonl"
        verdicts = list(read_records(file, Verdict)) if file.exists() else []
        lines = [line for line in err.replace("\r", "\n").split("\n") if line.strip() and "verdict/s" not in line]
        return status, out, [line for line in lines if "s/verdict" not in line], verdicts

    return start


def keys(verdicts):
    return [(verdict.case_id, verdict.order) for verdict in verdicts]


@pytest.mark.parametrize("process", [True, False])
def test_the_first_cases_are_judged_and_a_second_run_has_nothing_to_do(judge, process):
    with EndpointDouble(good_answer) as endpoint:
        status, out, told, verdicts = judge(endpoint.url, process=process)
        assert (status, told) == (0, [])
        first = [case.id for case in read_cases(CASES)][:4]
        assert sorted(verdict.case_id for verdict in verdicts) == sorted(first)
        assert all(verdict.valid and set(verdict.scores) == {4} for verdict in verdicts)
        assert {verdict.judge for verdict in verdicts} == {"m"}
        assert "4 cases, 4 verdicts (4 new)" in out
        assert "valid rate 1.000" in out
        assert len(endpoint.asked) == 4
        status, out, told, again = judge(endpoint.url, process=process)
        assert (status, told, again) == (0, [], verdicts)
        assert "4 verdicts (0 new)" in out
        assert len(endpoint.asked) == 4


@pytest.mark.parametrize("rubric", ["medical_pairwise", "just_eval_pairwise"])
def test_pairs_are_judged_by_a_json_rubric(judge, rubric):
    with EndpointDouble(good_answer) as endpoint:
        status, _, told, verdicts = judge(endpoint.url, "--rubric", rubric, limit=2)
        assert (status, told) == (0, [])
        assert len(verdicts) == len(set(keys(verdicts))) == len(endpoint.asked) == 2 * 3
        assert all(verdict.valid and verdict.choices for verdict in verdicts)


@pytest.mark.parametrize(
    ("fault", "said", "process"),
    [
        (error(401, "Incorrect API key"), "answered 401: Incorrect API key", True),
        (error(429, "slow down"), "answered 429: slow down", True),
        (error(500), "answered 500", False),
        (HANG, "no answer within 0.8 s", False),
        (CUT_OFF, "peer closed connection", True),
        ({"status": 200, "text": "<p>Welcome</p>", "type": "text/html"}, "cannot be read", False),
    ],
)
def test_a_fault_is_one_line_and_the_next_run_finishes(judge, fault, said, process):
    with EndpointDouble(good_answer, good_answer, fault) as endpoint:
        # one at a time, so that the first two are answered
        status, _, told, before = judge(
            endpoint.url, "--concurrency", 1, "--timeout", 0.8 if fault is HANG else 20, process=process
        )
        assert status == 1
        assert len(told) == 1
        assert told[0].startswith("error: ")
        assert said in told[0]
        assert len(before) == 2
        endpoint.script = [good_answer]
        asked = len(endpoint.asked)
        status, _, told, after = judge(endpoint.url)
        assert (status, told) == (0, [])
        assert len(endpoint.asked) - asked == 2
        assert after[:2] == before
        assert len(after) == len(set(keys(after))) == 4


def test_failures_that_pass_are_counted_and_tried_again(judge):
    with EndpointDouble(good_answer, error(503), good_answer, error(503), good_answer) as endpoint:
        status, out, told, before = judge(endpoint.url, "--concurrency", 1, limit=6)
        assert status == 1
        assert "2 not judged" in told[0]
        assert "4 verdicts (4 new)" in out
        assert len(before) == 4
        status, _, told, after = judge(endpoint.url, limit=6)
        assert (status, told, len(set(keys(after)))) == (0, [], 6)


@pytest.mark.parametrize("process", [True, False])
def test_an_endpoint_that_is_down_is_one_line(judge, process):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    status, _, told, verdicts = judge(url, process=process)
    assert (status, verdicts) == (1, [])
    assert len(told) == 1
    assert "ConnectError" in told[0]
    assert url in told[0]


def test_an_answer_that_cannot_be_read_is_recorded_as_invalid(judge):
    with EndpointDouble(good_answer, answer("I like the second one."), answer(None), good_answer) as endpoint:
        status, out, told, verdicts = judge(endpoint.url, "--concurrency", 1)
        assert (status, told) == (0, [])
        assert [verdict.valid for verdict in verdicts] == [True, False, False, True]
        assert verdicts[1].raw == "I like the second one."
        assert "invalid, 1: the answer is empty" in out
        judge(endpoint.url)
        assert len(endpoint.asked) == 4  # an invalid verdict is a verdict


def test_a_dry_run_counts_and_asks_nothing(judge, tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        prices = ("--price_in", 2.5, "--price_out", 10, "--max_new_tokens", 100)
        status, out, told, verdicts = judge(endpoint.url, "--dry_run", "--orders", "latin", *prices)
        assert (status, told, verdicts) == (0, [], [])
        assert "4 cases, 12 prompts, 0 judged already, about " in out
        tokens, cost = out.split("about ")[1].split(" prompt tokens, at most ")
        assert 12 * 200 < int(tokens.replace(",", "")) < 12 * 2000
        assert 12 * 100 * 10 / 1e6 < float(cost.split()[0]) < 0.2
        assert endpoint.requests == []
        assert not (tmp_path / "out").exists()
        judge(endpoint.url, limit=3)
        assert "1 cases, 1 prompts, 3 judged already" in judge(endpoint.url, "--dry_run")[1]


def test_a_run_stops_before_it_could_cost_too_much(judge):
    usage = {"prompt_tokens": 0, "completion_tokens": 1000}
    with EndpointDouble(lambda body: answer(good_text(body), usage=usage)) as endpoint:
        prices = ("--price_out", 1000, "--max_new_tokens", 1000, "--concurrency", 8)
        status, _, told, verdicts = judge(endpoint.url, "--max_cost", 3.5, *prices, limit=8)
        assert (status, len(told)) == (1, 1)
        assert told[0] == "error: --max_cost 3.5: 3.0000 is spent and the next call could cost 1.0000"
        assert len(verdicts) == len(endpoint.asked) == 3
        assert judge(endpoint.url, "--max_cost", 3.5)[2] == [
            "error: --max_cost needs --price_in and --price_out",
        ]
        status, _, told, verdicts = judge(endpoint.url, "--max_cost", 5, *prices, limit=8)
        assert (status, told, len(set(keys(verdicts)))) == (0, [], 8)


def good_text(body):
    return good_answer(body)["json"]["choices"][0]["message"]["content"]


def test_answers_are_kept_for_another_folder_unless_the_cache_is_off(judge, tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        first = judge(endpoint.url)[3]
        (tmp_path / "out").rename(tmp_path / "earlier")
        assert sorted(keys(judge(endpoint.url)[3])) == sorted(keys(first))
        assert len(endpoint.asked) == 4
        assert len(list((tmp_path / "home" / ".cache" / "automedeval").glob("*/*.json"))) == 4
        (tmp_path / "out").rename(tmp_path / "later")
        judge(endpoint.url, "--cache", "off")
        assert len(endpoint.asked) == 8


def test_a_batch_is_submitted_and_collected_by_the_same_command(judge):
    with EndpointDouble(error(500)) as endpoint:
        status, out, told, verdicts = judge(endpoint.url, "--batch", process=True)
        assert (status, told, verdicts) == (0, [], [])
        assert "batch batch-0 submitted with 4 requests" in out
        assert "in_progress" in judge(endpoint.url, "--batch")[1]
        endpoint.finish_batches(lambda body: error(500, "lost") if "Tylenol" in str(body) else good_answer(body))
        status, out, told, verdicts = judge(endpoint.url, "--batch")
        missing = 4 - len(verdicts)
        assert 0 < missing < 4
        assert (status, len(told)) == (1, 1)
        assert f"{missing} not judged" in told[0]
        assert f"submitted with {missing} requests" in judge(endpoint.url, "--batch")[1]
        endpoint.finish_batches(good_answer)
        status, out, told, verdicts = judge(endpoint.url, "--batch")
        assert (status, told) == (0, [])
        assert "4 cases, 4 verdicts" in out
        assert len(set(keys(verdicts))) == len(verdicts) == 4
        assert endpoint.asked == []


@pytest.fixture
def served_model(tiny_model):
    """Serve the tiny checkpoint with `transformers serve`; return its URL and name."""
    for library in ("fastapi", "uvicorn"):
        pytest.importorskip(library)
    program = Path(sys.executable).with_name("transformers")
    if not program.exists():
        pytest.skip("the program `transformers` is not beside this Python")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "serve", tiny_model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                break
            except OSError:
                assert server.poll() is None, "transformers serve has ended"
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1", str(tiny_model)
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.mark.slow
def test_a_served_checkpoint_judges(judge, served_model):
    url, model = served_model
    options = ("--top_logprobs", 0, "--structured_output", "false", "--max_new_tokens", 32, "--timeout", 120)
    status, _, told, verdicts = judge(url, *options, process=True, limit=2, model=f"openai:{model}")
    assert (status, told) == (0, [])
    assert len(verdicts) == 2
    assert all(verdict.raw for verdict in verdicts)
    assert all(verdict.valid or verdict.error for verdict in verdicts)
    assert all(0 < verdict.usage["completion_tokens"] <= 32 for verdict in verdicts)
    lines = (Path(os.environ["HOME"]) / ".cache" / "automedeval").glob("*/*.json")
    assert {json.loads(line.read_text())["model"].split("@")[0] for line in lines} == {model}
