"""recipes/distill.py: teachers judge cases, from recordings and endpoints, by the roles that one teachers.yaml names."""

import re
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles.endpoint import EndpointDouble, answer, error, good_answer
from factories import verdicts_in
from programs import ROOT, SAMPLE, failed, run_recipe, succeeded, told
from study_scripts import arguments, dry_run
from tables import each_row

from automedeval.evidence.books import Passage
from automedeval.records import Verdict

RECORDING = ROOT / "recipes/runs/automedeval-135m/teacher.jsonl"
TRAIN = SAMPLE / "train_cases.jsonl"
VERDICT = (
    "Analyze:\nStep 1: Help.\nScore: Doctor 1: 4 points. Doctor 2: 2 points. Doctor 3: 5 points."
)


@pytest.fixture(autouse=True)
def books(monkeypatch):
    """Put fake books in the place of the store; return which stores were opened."""
    opened = []

    class FakeKnowledgeBase:
        """Stands in for KnowledgeBase: finds for every question a passage that repeats it."""

        content = "all"
        encoder = SimpleNamespace(fingerprint="fake")

        def __init__(self, store, load_encoder, url):
            opened.append(store)

        def search(self, queries, limit):
            return [[Passage(query, "Book", "S", 1, query, 0.5)] for query in queries]

    monkeypatch.setattr("automedeval.evidence.store.KnowledgeBase", FakeKnowledgeBase)
    return opened


class Distill:
    """Runs of the recipe on the first cases with an endpoint."""

    def __init__(self, folder: Path):
        self.output = folder / "out"

    def run(self, url: str, **options: object) -> subprocess.CompletedProcess:
        usual = {"teacher": "strong", "judge": "openai:m", "base_url": url, "cases": TRAIN}
        usual |= {"max_retries": 0, "store": "books", "limit": 6, "output": self.output}
        return run_recipe("distill", **usual | options)

    def verdicts(self) -> list[Verdict]:
        return verdicts_in(self.output)


@pytest.fixture
def distill(tmp_path):
    return Distill(tmp_path)


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
@each_row("teacher, ended")
def test_the_small_study_is_distilled_from_its_recording(tmp_path, books, teacher, ended):
    config = RECORDING.with_name("distill.yaml")
    run = partial(run_recipe, "distill", config=config, teacher=teacher, output=tmp_path / "out")
    told(run(), f"ended: {ended}", "60 cases → 60 verdicts (60 new), 0 missing")
    verdicts = verdicts_in(tmp_path / "out")
    about = {(verdict.judge, verdict.order) for verdict in verdicts}
    assert about == {(f"recording:{teacher}", (0, 1, 2))}
    queries = [query for verdict in verdicts for query in verdict.knowledge]
    assert all(query["passages"] for query in queries)
    told(run(), "60 verdicts (0 new)")
    assert verdicts_in(tmp_path / "out") == verdicts


@pytest.mark.skipif(not RECORDING.exists(), reason="the recording of the small study is not there")
def test_without_books_no_store_is_opened(tmp_path, books):
    options = {"config": RECORDING.with_name("distill.yaml"), "teacher": "weak"}
    done = run_recipe("distill", **options, store="none", output=tmp_path / "none")
    told(done, "58 valid, 2 invalid", "60 calls, 0 questions")
    assert books == []


def test_an_endpoint_that_dies_in_the_middle_loses_nothing(distill, tmp_path):
    with EndpointDouble(asks_once) as endpoint:
        run = partial(distill.run, endpoint.url, concurrency=1)
        run(output=tmp_path / "whole")
        endpoint.script = [asks_once] * 5 + [error(500)]  # two cases, and half of the third
        failed(run(), "answered 500")
        before = distill.verdicts()
        assert [verdict.usage["completion_tokens"] for verdict in before] == [20, 20]
        endpoint.script = [asks_once]
        asked = len(endpoint.asked)
        succeeded(run())
        assert distill.verdicts()[:2] == before
        assert len(endpoint.asked) - asked == 8, "the third case is asked its question again"
        assert by_case(distill.output) == by_case(tmp_path / "whole")


def test_a_prompt_that_is_refused_in_the_middle_of_a_chain_is_one_invalid_verdict(distill):
    with EndpointDouble(asks_once, error(400, "Input rejected"), asks_once) as endpoint:
        succeeded(distill.run(endpoint.url, concurrency=1))
    wrong, *others = distill.verdicts()
    assert [verdict.valid for verdict in (wrong, *others)] == [False, *[True] * 5]
    assert wrong.error == "the endpoint answered 400: Input rejected"
    assert (wrong.extra["rounds"], len(wrong.knowledge)) == (2, 1)


@each_row("text")
def test_a_teacher_of_whom_no_verdict_is_valid_fails_and_its_words_are_shown(distill, text):
    with EndpointDouble(answer(text)) as endpoint:
        done = distill.run(endpoint.url, limit=2)
    failed(done, "verdicts.jsonl: no verdict is valid, so that there is nothing to report")
    first, _ = distill.verdicts()
    assert f"which cannot be read ({first.error}):\n{text}\n" in done.stdout


def test_a_dry_run_counts_and_asks_nothing(distill):
    with EndpointDouble(asks_once) as endpoint:
        said = told(
            distill.run(endpoint.url, dry_run=True), "6 cases, 0 judged already, 6 to 24 calls"
        )
        assert re.search(r"(?m)about [\d,]+ prompt tokens in the first ones$", said)
        assert endpoint.requests == distill.verdicts() == [], "no server is needed"


@each_row("options, said")
def test_what_cannot_be_is_told_in_one_line(distill, options, said):
    with EndpointDouble(answer(VERDICT)) as endpoint:
        failed(distill.run(endpoint.url, **options), said)
        assert endpoint.asked == distill.verdicts() == []


WEAK = f"teacher: weak\njudge: openai:teacher:weak\nstore: none\ncases: {SAMPLE}/train_cases.jsonl\nlimit: 2\n"


@pytest.fixture
def yaml_of(tmp_path, monkeypatch):
    """Return a function that writes a run's YAML beside a teachers.yaml, and gives its path."""
    monkeypatch.setenv("MY_KEY", "a-key")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def write(url: str, content: str = WEAK) -> Path:
        role = f"weak: {{model: org/open-1, base_url: {url}, api_key_env: MY_KEY}}\n"
        (tmp_path / "teachers.yaml").write_text(role)
        (tmp_path / "run.yaml").write_text(content + f"output: {tmp_path}/out\n")
        return tmp_path / "run.yaml"

    return write


def asked_for(endpoint: EndpointDouble) -> set[tuple[str, str]]:
    return {
        (request["body"]["model"], request["headers"]["authorization"])
        for request in endpoint.asked
    }


def test_a_role_brings_its_endpoint_and_a_setting_on_the_command_line_has_priority(
    yaml_of, tmp_path
):
    with EndpointDouble(good_answer) as endpoint, EndpointDouble(good_answer) as other:
        run = partial(run_recipe, "distill", config=yaml_of(endpoint.url))
        succeeded(run())
        assert asked_for(endpoint) == {("org/open-1", "Bearer a-key")}
        assert {verdict.judge for verdict in verdicts_in(tmp_path / "out")} == {"org/open-1"}
        # A model on the command line brings no endpoint of the role.
        succeeded(run(judge="openai:m", base_url=other.url, output=tmp_path / "other"))
        assert asked_for(other) == {("m", "Bearer none")}
        succeeded(run(base_url=other.url, output=tmp_path / "same"))
        assert asked_for(other) == {("m", "Bearer none"), ("org/open-1", "Bearer a-key")}
        assert len(endpoint.asked) == 2
        # A role on the command line brings its endpoint too.
        config = yaml_of(endpoint.url, WEAK.replace("openai:teacher:weak", "recording:none"))
        role = {"judge": "openai:teacher:weak", "output": tmp_path / "role"}
        succeeded(run_recipe("distill", config=config, **role))
        assert len(endpoint.asked) == 4


def test_a_role_that_is_not_there_is_told_in_a_line(yaml_of, tmp_path):
    config = yaml_of("http://127.0.0.1:1/v1", WEAK.replace("teacher:weak", "teacher:strong"))
    roles = tmp_path / "teachers.yaml"
    problem = f"{config}: judge: teacher:strong: {roles} has weak"
    failed(run_recipe("distill", config=config), problem)
    roles.unlink()
    failed(run_recipe("distill", config=config), str(roles))
    assert not (tmp_path / "out").exists()


PAPER = ROOT / "recipes/runs/automedeval-13b"
STRONG = "gpt-4-turbo-2024-04-09"  # Table 2
CHATGPT = "gpt-3.5-turbo-0125"
GEMINI = "gemini-2.0-flash"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai/"


def test_one_file_names_every_model_with_its_endpoint():
    asked = []
    for step in map(arguments, dry_run("paper")):
        for name in ("judge", "suggester", "reviewer"):
            kind, _, model = str(step.get(name)).partition(":")
            if kind == "openai":
                asked.append((model, step.get("base_url"), step.get("api_key_env")))
    strong = (STRONG, None, None)
    weak = (CHATGPT, None, None)
    # Teachers, Table 2, two rounds with two partners.
    assert asked == [strong, weak, weak, strong, (GEMINI, GOOGLE, "GEMINI_API_KEY"), *[strong] * 4]
    for file in set(PAPER.glob("*.yaml")) - {PAPER / "teachers.yaml"}:
        assert not re.search(r"gpt-|gemini-\d", file.read_text()), file


@pytest.fixture
def roles(tmp_path):
    return tmp_path / "teachers.yaml"


@each_row("content, message")
def test_a_faulty_role_is_told_in_a_line(roles, content, message):
    roles.write_text(content)
    failed(run_recipe("check_teachers", teachers=roles), f"{roles}: {message}")


def test_a_retired_model_and_a_missing_key_are_told(monkeypatch):
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with EndpointDouble(error(500)) as vendor:
        vendor.models = [{"id": CHATGPT}]  # no `owned_by`: as at OpenAI, the one model is asked for
        monkeypatch.setenv("OPENAI_BASE_URL", vendor.url)
        done = run_recipe("check_teachers", teachers=PAPER / "teachers.yaml")
        retired = f"strong: {STRONG} does not exist at {vendor.url}"
        failed(done, f"2 of 3 models cannot be asked: {retired}")
        served, gone, unset = done.stdout.splitlines()
        assert served == f"weak: {CHATGPT} is served at {vendor.url}/"
        assert gone.startswith(f"- {retired}")
        assert unset.startswith("- gemini: GEMINI_API_KEY is not set: ")
        assert vendor.asked == [], "nothing was sent but the names of models"


def test_an_open_model_needs_no_key_and_one_that_cannot_be_reached_is_told(roles, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    check = partial(run_recipe, "check_teachers", teachers=roles)
    with EndpointDouble() as server:
        server.models = [{"id": "x/y", "owned_by": "vllm", "max_model_len": 8192}]
        roles.write_text(f"strong: {{model: x/y, base_url: '{server.url}'}}\nreviewer: strong\n")
        told(check(), f"strong: x/y is served at {server.url}/\n")
        server.models = error(401, "Incorrect API key provided.", "invalid_api_key")
        failed(check(), "1 of 1 models cannot be asked: strong: x/y")
    failed(check(), "could not be checked")
