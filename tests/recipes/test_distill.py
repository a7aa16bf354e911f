"""recipes/distill.py: teachers judge cases, from recordings, from an endpoint and from a checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from doubles.endpoint import EndpointDouble, answer, error
from programs import ROOT, SAMPLE, error_line, run_recipe

from automedeval.records import Verdict, read_records

RECORDING = ROOT / "recipes" / "runs" / "automedeval-135m" / "teacher.jsonl"
TRAIN = SAMPLE / "train_cases.jsonl"
VERDICT = "Analyze:\nStep 1: Help.\nScore: Doctor 1: 4 points. Doctor 2: 2 points. Doctor 3: 5 points."
BOOKS = '''
import time
from automedeval.distillation.books import Passage


class FakeEncoder:
    fingerprint = "fake"

    def __init__(self, model, device, dtype, pooling=None):
        pass


class FakeKnowledgeBase:
    """Stands in for KnowledgeBase: finds for every question a passage that repeats it."""

    advice = None
    opened = []

    def __init__(self, store, encoder, url, collection):
        self.opened.append(store)

    def __len__(self):
        return 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def search(self, queries, limit, mode):
        return [[Passage(query, mode, "medical", "S", 1, query, 0.5)] for query in queries]
'''


@pytest.fixture(autouse=True)
def books(monkeypatch, tmp_path):
    """Put fake books in the place of the store; return which stores were opened."""
    names = {}
    exec(BOOKS, names)
    for module, name, fake in (
        ("models.embeddings", "Encoder", names["FakeEncoder"]),
        ("distillation.store", "KnowledgeBase", names["FakeKnowledgeBase"]),
    ):
        monkeypatch.setattr(f"automedeval.{module}.{name}", fake)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return names["FakeKnowledgeBase"].opened


@pytest.fixture
def distill(tmp_path):
    """Return what runs the recipe on the first cases with an endpoint, and gives what it printed and the verdicts."""

    def start(url, *arguments, output="out", limit=6):
        common = ["--teacher", "strong", "--judge", "openai:m", "--base_url", url, "--cases", TRAIN, "--max_retries", 0]
        done = run_recipe(
            "distill", *common, "--store", "books", "--limit", limit, "--output", tmp_path / output, *arguments
        )
        return done, verdicts_of(tmp_path / output)

    return start


def verdicts_of(folder):
    file = folder / "verdicts.jsonl"
    return list(read_records(file, Verdict)) if file.exists() else []


def by_case(folder):
    return sorted((folder / "verdicts.jsonl").read_text().splitlines())


def asks_once(body):
    """Ask a question of its own per case, then judge."""
    messages = body["messages"]
    if len(messages) == 2 and "[Question]" in messages[1]["content"]:
        patient = messages[1]["content"].partition("Question:\n~~~\n")[2].partition("\n")[0]
        return answer(f"[Question]: What is meant by {patient[:40]}?")
    return answer(VERDICT)


@pytest.mark.skipif(not RECORDING.exists(), reason="the recording of the small study is not there")
@pytest.mark.parametrize(
    ("teacher", "ended"),
    [
        ("strong", "verdict 60, out_of_questions 0, repeated_question 0, invalid 0"),
        ("weak", "verdict 56, out_of_questions 1, repeated_question 1, invalid 2"),
    ],
)
def test_the_small_study_is_distilled_from_its_recording(tmp_path, teacher, ended):
    config = ROOT / "recipes" / "runs" / "automedeval-135m" / f"distill_{teacher}.yaml"
    done = run_recipe("distill", "--config", config, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert f"ended: {ended}" in done.stdout
    assert "60 cases → 60 verdicts (60 new), 0 missing" in done.stdout
    verdicts = verdicts_of(tmp_path / "out")
    assert {verdict.judge for verdict in verdicts} == {f"recording:{teacher}"}
    assert {verdict.order for verdict in verdicts} == {(0, 1, 2)}
    asking = [verdict for verdict in verdicts if verdict.extra["knowledge"]]
    assert all(found["passages"] for verdict in asking for found in verdict.extra["knowledge"])
    again = run_recipe("distill", "--config", config, "--output", tmp_path / "out")
    assert "60 verdicts (0 new)" in again.stdout
    assert verdicts_of(tmp_path / "out") == verdicts


@pytest.mark.skipif(not RECORDING.exists(), reason="the recording of the small study is not there")
def test_the_ablation_opens_no_store(tmp_path, books):
    config = ROOT / "recipes" / "runs" / "automedeval-135m" / "distill_weak.yaml"
    done = run_recipe("distill", "--config", config, "--knowledge", "none", "--output", tmp_path / "out")
    assert "58 valid, 2 invalid" in done.stdout
    assert "1 call: 60" in done.stdout
    assert books == []


def test_a_chain_asks_an_endpoint_and_a_second_run_its_cache(distill, tmp_path):
    with EndpointDouble(asks_once) as endpoint:
        kept = ("--cache", tmp_path / "cache")
        done, verdicts = distill(endpoint.url, *kept)
        assert done.returncode == 0, done.stderr
        assert len(endpoint.asked) == 12
        assert "6 questions asked and 6 passages found" in done.stdout
        assert "tokens: 1,200 read, 120 written" in done.stdout
        for verdict in verdicts:
            assert verdict.valid
            assert verdict.extra["ended"] == "verdict"
            (found,) = verdict.extra["knowledge"]
            assert found["passages"][0]["text"] == found["query"]
        assert len({verdict.order for verdict in verdicts}) > 1, "slots are shuffled"
        again, cached = distill(endpoint.url, *kept, output="again")
        assert again.returncode == 0
        assert f"12 answers came from the cache {tmp_path / 'cache'}, 0 from the endpoint" in again.stdout
        assert len(endpoint.asked) == 12, "the cache answers"
        assert by_case(tmp_path / "again") == by_case(tmp_path / "out")
        assert len(cached) == 6


def test_the_search_is_dense_unless_another_one_is_asked_for_and_the_two_are_never_mixed(distill):
    with EndpointDouble(asks_once) as endpoint:
        done, verdicts = distill(endpoint.url, limit=1)
        assert verdicts[0].extra["knowledge"][0]["passages"][0]["book"] == "dense"
        done, verdicts = distill(endpoint.url, "--search", "bm25", limit=1)
        assert "with other weights, wording or settings" in error_line(done)
        done, verdicts = distill(endpoint.url, "--search", "bm25", output="bm25", limit=1)
        assert verdicts[0].extra["knowledge"][0]["passages"][0]["book"] == "bm25"


def test_an_endpoint_that_dies_in_the_middle_loses_nothing(distill, tmp_path):
    with EndpointDouble(asks_once) as endpoint:
        distill(endpoint.url, "--cache", "off", output="whole")
        endpoint.script = [asks_once] * 5 + [error(500)]  # two cases, and half of the third
        kept = ("--concurrency", 1, "--cache", tmp_path / "cache")
        broken, before = distill(endpoint.url, *kept)
        assert "answered 500" in error_line(broken)
        assert len(before) == 2
        endpoint.script, asked = [asks_once], len(endpoint.asked)
        done, after = distill(endpoint.url, *kept)
        assert done.returncode == 0, done.stderr
        assert after[:2] == before
        assert len(endpoint.asked) - asked == 7, "the third case's question is in the cache"
        assert by_case(tmp_path / "out") == by_case(tmp_path / "whole")


def test_a_prompt_that_is_refused_in_the_middle_of_a_chain_is_one_invalid_verdict(distill):
    def refuses_one(body):
        messages = body["messages"]
        questions.add(messages[1]["content"])
        if len(messages) > 2 and messages[1]["content"] == min(questions):
            return error(400, "Input rejected")
        return asks_once(body)

    questions = set()
    with EndpointDouble(refuses_one) as endpoint:
        distill(endpoint.url, "--concurrency", 1, limit=1)
        first, questions = questions, set()  # only later cases are refused from now on
        done, verdicts = distill(endpoint.url, "--concurrency", 6)
        assert done.returncode == 0, done.stderr
        assert first
    wrong = [verdict for verdict in verdicts if not verdict.valid]
    assert (len(verdicts), len(wrong)) == (6, 1)
    assert wrong[0].error == "the endpoint answered 400: Input rejected"
    assert wrong[0].extra["rounds"] == 2
    assert len(wrong[0].extra["knowledge"]) == 1


def test_a_killed_run_goes_on_to_the_same_file(distill, tmp_path):
    def slow(body):
        return asks_once(body) | {"delay": 0.15}

    with EndpointDouble(slow) as endpoint:
        distill(endpoint.url, "--cache", "off", output="whole")
        recipe = str(ROOT / "recipes" / "distill.py")
        arguments = ["--teacher", "strong", "--judge", "openai:m", "--base_url", endpoint.url, "--cases", str(TRAIN)]
        arguments += ["--store", "books", "--limit", "6", "--output", str(tmp_path / "out"), "--max_retries", "0"]
        code = (
            f"{BOOKS}\nimport runpy, sys\n"
            "from automedeval.distillation import store\nfrom automedeval.models import embeddings\n"
            "embeddings.Encoder, store.KnowledgeBase = FakeEncoder, FakeKnowledgeBase\n"
            f"sys.argv = {[recipe, *arguments, '--cache', 'off', '--concurrency', '2']!r}\n"
            f"runpy.run_path({recipe!r}, run_name='__main__')"
        )
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        file, deadline = tmp_path / "out" / "verdicts.jsonl", time.monotonic() + 60
        while not (file.exists() and file.read_bytes().count(b"\n") >= 2) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert 2 <= file.read_bytes().count(b"\n") < 6
        with open(file, "ab") as stream:  # as if the kill had cut a line in two
            stream.write(b'{"case_id": "sample-')
        done, _ = distill(endpoint.url)
        assert done.returncode == 0, done.stderr
        assert by_case(tmp_path / "out") == by_case(tmp_path / "whole")


def test_the_reference_is_scored_as_a_response(distill):
    with EndpointDouble(answer(VERDICT)) as endpoint:
        shown = ["--reference_as_response", "true"]
        refused, _ = distill(endpoint.url, *shown)
        assert "has 4 responses to show" in error_line(refused)
        done, verdicts = distill(endpoint.url, *shown, "--models", "juniper-7b,rowan-7b", limit=1)
        assert done.returncode == 0, done.stderr
        assert verdicts[0].extra["models"][-1] == "reference"
        assert sorted(score or 0 for score in verdicts[0].scores) == [0, 2, 4, 5]


def test_a_dry_run_counts_and_asks_nothing(distill):
    with EndpointDouble(asks_once) as endpoint:
        done, verdicts = distill(endpoint.url, "--dry_run", "true", "--price_in", 2, "--price_out", 8)
        assert "6 cases, 0 judged already, 6 to 24 calls" in done.stdout
        assert "which cost at most 0.0" in done.stdout
        assert endpoint.asked == verdicts == []


def test_spending_stops_in_front_of_the_limit(distill):
    with EndpointDouble(answer(VERDICT, usage={"prompt_tokens": 1500, "completion_tokens": 50})) as endpoint:
        prices = ["--price_in", 1, "--price_out", 10, "--max_new_tokens", 100, "--max_cost", 0.012, "--concurrency", 1]
        done, verdicts = distill(endpoint.url, *prices)
        assert "--max_cost 0.012" in error_line(done)
        assert 0 < len(verdicts) == len(endpoint.asked) < 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--judge", "recording:x.jsonl"], "--shuffle false"),
        (["--judge", "recording:x.jsonl", "--shuffle", "false"], "x.jsonl"),
        (["--store", ""], "--store names no folder"),
        (["--questions", 0], "--questions must be at least 1"),
        (["--rubric", "medical_pairwise"], "a score line"),
        (["--models", "nobody"], "has no response of 'nobody'"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(distill, arguments, said):
    with EndpointDouble(answer(VERDICT)) as endpoint:
        done, verdicts = distill(endpoint.url, *arguments)
        assert endpoint.asked == []
    assert said in error_line(done)
    assert verdicts == []


def test_other_settings_want_another_folder(distill):
    with EndpointDouble(answer(VERDICT)) as endpoint:
        distill(endpoint.url, limit=1)
        for change in (["--questions", 2], ["--knowledge", "none"], ["--seed", 1], ["--teacher", "weak"]):
            done, _ = distill(endpoint.url, *change, limit=1)
            assert "choose another --output" in error_line(done)


def test_a_checkpoint_teaches(tmp_path, tiny_model):
    arguments = ["--teacher", "weak", "--judge", tiny_model, "--cases", TRAIN, "--limit", 2, "--max_new_tokens", 4]
    done = run_recipe("distill", *arguments, "--store", "books", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 cases → 2 verdicts (2 new)" in done.stdout
    (line, _) = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    assert json.loads(line)["judge"] == "tiny-judge"


@pytest.mark.parametrize("knowledge", ["chain", "none"])
def test_a_checkpoint_that_cannot_write_scores_has_them_laid_down(tmp_path, tiny_model, knowledge):
    arguments = ["--teacher", "weak", "--judge", tiny_model, "--cases", TRAIN, "--limit", 2, "--max_new_tokens", 4]
    arguments += ["--knowledge", knowledge, *(["--store", "books"] if knowledge == "chain" else [])]
    done = run_recipe("distill", *arguments, "--score_decoding", "constrained", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    for line in (tmp_path / "verdicts.jsonl").read_text().splitlines():
        verdict = json.loads(line)
        assert verdict["valid"]
        assert len(verdict["scores"]) == 3
        assert verdict["rounds"] == (2 if knowledge == "chain" else 1)
        assert verdict["ended"] == "verdict"
    assert "2 valid, 0 invalid" in done.stdout


def test_only_a_checkpoint_has_its_scores_laid_down(tmp_path):
    arguments = ["--teacher", "weak", "--judge", "openai:gpt", "--cases", TRAIN, "--knowledge", "none"]
    done = run_recipe("distill", *arguments, "--score_decoding", "constrained", "--output", tmp_path)
    assert "needs a checkpoint" in error_line(done)


def test_the_benchmark_compares_chains_with_algorithm_1_and_the_ideal():
    command = [sys.executable, "benchmarks/completion_chain.py", "--cases", "8", "--in_flight", "4", "--delay", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    for name in ("Algorithm 1, one case after the other ", "the ideal ", "one case after the other "):
        assert name in done.stdout
