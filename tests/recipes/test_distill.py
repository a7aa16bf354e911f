"""recipes/distill.py: teachers judge cases, from recordings and endpoints, by the roles that one teachers.yaml names."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from doubles.endpoint import EndpointDouble, answer, error, good_answer
from programs import ROOT, SAMPLE, error_line, run_recipe, succeeded
from study_scripts import arguments, dry_run
from tables import rows_of

from automedeval.evidence.books import Passage
from automedeval.records import Verdict, read_records

ROWS = rows_of(__file__)

RECORDING = ROOT / "recipes" / "runs" / "automedeval-135m" / "teacher.jsonl"
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

        content, encoder = "all", SimpleNamespace(fingerprint="fake")

        def __init__(self, store, load_encoder, url):
            opened.append(store)

        def search(self, queries, limit):
            return [[Passage(query, "Book", "S", 1, query, 0.5)] for query in queries]

    monkeypatch.setattr("automedeval.evidence.store.KnowledgeBase", FakeKnowledgeBase)
    return opened


@pytest.fixture
def distill(tmp_path):
    """Return what runs the recipe on the first cases with an endpoint, and gives what it printed and the verdicts."""

    def start(url, *arguments, output="out", limit=6):
        common = [
            "--teacher",
            "strong",
            "--judge",
            "openai:m",
            "--base_url",
            url,
            "--cases",
            TRAIN,
            "--max_retries",
            0,
        ]
        common += ["--store", "books", "--limit", limit, "--output", tmp_path / output]
        done = run_recipe("distill", *common, *arguments)
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
    ("teacher", "ended"), ROWS["test_the_small_study_is_distilled_from_its_recording"]
)
def test_the_small_study_is_distilled_from_its_recording(tmp_path, teacher, ended):
    config = ROOT / "recipes" / "runs" / "automedeval-135m" / f"distill_{teacher}.yaml"
    done = succeeded(run_recipe("distill", "--config", config, "--output", tmp_path / "out"))
    assert f"ended: {ended}" in done.stdout
    assert "60 cases → 60 verdicts (60 new), 0 missing" in done.stdout
    verdicts = verdicts_of(tmp_path / "out")
    assert {verdict.judge for verdict in verdicts} == {f"recording:{teacher}"}
    assert {verdict.order for verdict in verdicts} == {(0, 1, 2)}
    asking = [verdict for verdict in verdicts if verdict.extra["knowledge"]]
    assert all(query["passages"] for verdict in asking for query in verdict.extra["knowledge"])
    again = run_recipe("distill", "--config", config, "--output", tmp_path / "out")
    assert "60 verdicts (0 new)" in again.stdout
    assert verdicts_of(tmp_path / "out") == verdicts


@pytest.mark.skipif(not RECORDING.exists(), reason="the recording of the small study is not there")
def test_the_ablation_opens_no_store(tmp_path, books):
    config = ROOT / "recipes" / "runs" / "automedeval-135m" / "distill_weak.yaml"
    done = run_recipe(
        "distill", "--config", config, "--knowledge", "none", "--output", tmp_path / "out"
    )
    assert "58 valid, 2 invalid" in done.stdout
    assert "1 call: 60" in done.stdout
    assert books == []


def test_an_endpoint_that_dies_in_the_middle_loses_nothing(distill, tmp_path):
    with EndpointDouble(asks_once) as endpoint:
        distill(endpoint.url, output="whole")
        endpoint.script = [asks_once] * 5 + [error(500)]  # two cases, and half of the third
        broken, before = distill(endpoint.url, "--concurrency", 1)
        assert "answered 500" in error_line(broken)
        assert [each.usage["completion_tokens"] for each in before] == [20, 20], "both calls count"
        endpoint.script, asked = [asks_once], len(endpoint.asked)
        done, after = distill(endpoint.url, "--concurrency", 1)
        assert done.returncode == 0, done.stderr
        assert after[:2] == before
        assert len(endpoint.asked) - asked == 8, "the third case is asked its question again"
        assert by_case(tmp_path / "out") == by_case(tmp_path / "whole")


def test_a_prompt_that_is_refused_in_the_middle_of_a_chain_is_one_invalid_verdict(distill):
    asked_twice = []

    def refuses_one(body):
        case = body["messages"][1]["content"]
        if len(body["messages"]) > 2:
            asked_twice.append(case)
            if case == asked_twice[0]:
                return error(400, "Input rejected")
        return asks_once(body)

    with EndpointDouble(asks_once) as endpoint:
        distill(endpoint.url, limit=1)
        endpoint.script = [refuses_one]
        done, verdicts = distill(endpoint.url, "--concurrency", 6)
        assert done.returncode == 0, done.stderr
    wrong = [verdict for verdict in verdicts if not verdict.valid]
    assert (len(verdicts), len(wrong)) == (6, 1)
    assert wrong[0].error == "the endpoint answered 400: Input rejected"
    assert wrong[0].extra["rounds"] == 2
    assert len(wrong[0].extra["knowledge"]) == 1


@pytest.mark.parametrize("text", ["I cannot judge.", "Score: Doctor 1: 4 points."])
def test_a_teacher_of_whom_no_verdict_is_valid_fails_and_its_words_are_shown(distill, text):
    with EndpointDouble(answer(text)) as endpoint:
        done, verdicts = distill(endpoint.url, limit=2)
    assert error_line(done).endswith(
        "verdicts.jsonl: no verdict is valid, so that there is nothing to report"
    )
    assert f"which cannot be read ({verdicts[0].error}):\n{text}\n" in done.stdout
    assert len(verdicts) == 2


def test_a_dry_run_counts_and_asks_nothing(distill):
    with EndpointDouble(asks_once) as endpoint:
        done, verdicts = distill(endpoint.url, "--dry_run", "true")
        assert "6 cases, 0 judged already, 6 to 24 calls" in done.stdout
        assert re.search(r"about [\d,]+ prompt tokens in the first ones$", done.stdout, re.M)
        assert endpoint.requests == verdicts == [], "no server is needed"


@pytest.mark.parametrize(("arguments", "said"), ROWS["test_what_cannot_be_is_told_in_one_line"])
def test_what_cannot_be_is_told_in_one_line(distill, arguments, said):
    with EndpointDouble(answer(VERDICT)) as endpoint:
        done, verdicts = distill(endpoint.url, *arguments)
        assert endpoint.asked == []
    assert said in error_line(done)
    assert verdicts == []


WEAK = f"teacher: weak\njudge: openai:teacher:weak\nknowledge: none\ncases: {SAMPLE}/train_cases.jsonl\nlimit: 2\n"


@pytest.fixture
def yaml_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a run's YAML beside a teachers.yaml, and gives its path."""
    monkeypatch.setenv("MY_KEY", "a-key")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def write(url: str, content: str = WEAK) -> Path:
        role = f"weak: {{model: org/open-1, base_url: {url}, api_key_env: MY_KEY}}\n"
        (tmp_path / "teachers.yaml").write_text(role)
        (tmp_path / "run.yaml").write_text(content + f"output: {tmp_path}/out\n")
        return tmp_path / "run.yaml"

    return write


def asked_for(endpoint: EndpointDouble) -> list[tuple[str, str]]:
    return [(each["body"]["model"], each["headers"]["authorization"]) for each in endpoint.asked]


def test_a_yaml_alone_asks_the_model_of_its_role(yaml_of, tmp_path: Path) -> None:
    with EndpointDouble(good_answer) as endpoint, EndpointDouble(good_answer) as other:
        config = yaml_of(endpoint.url)
        succeeded(run_recipe("distill", "--config", config))
        assert asked_for(endpoint) == [("org/open-1", "Bearer a-key")] * 2
        verdicts = list(read_records(tmp_path / "out/verdicts.jsonl", Verdict))
        assert {verdict.judge for verdict in verdicts} == {"org/open-1"}
        # A model on the command line brings no endpoint of the role, and a setting there has priority over the role's.
        for name, judge in (("other", ["--judge", "openai:m"]), ("same", [])):
            here = (*judge, "--base_url", other.url, "--output", tmp_path / name)
            succeeded(run_recipe("distill", "--config", config, *here))
        assert len(endpoint.asked) == 2
        assert asked_for(other) == [("m", "Bearer none")] * 2 + [("org/open-1", "Bearer a-key")] * 2


def test_a_role_that_is_not_there_is_told_in_a_line(yaml_of, tmp_path: Path) -> None:
    config = yaml_of("http://127.0.0.1:1/v1", WEAK.replace("teacher:weak", "teacher:strong"))
    line = error_line(run_recipe("distill", "--config", config))
    assert line == f"error: {config}: judge: teacher:strong: {tmp_path}/teachers.yaml has weak"
    (tmp_path / "teachers.yaml").unlink()
    assert f"{tmp_path}/teachers.yaml" in error_line(run_recipe("distill", "--config", config))
    assert not (tmp_path / "out").exists()


PAPER = ROOT / "recipes/runs/automedeval-13b"
STRONG, CHATGPT, GEMINI = (
    "gpt-4-turbo-2024-04-09",
    "gpt-3.5-turbo-0125",
    "gemini-2.0-flash",
)  # Table 2
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai/"


def test_one_file_names_every_model_with_its_endpoint() -> None:
    asked = [
        (step[name].removeprefix("openai:"), *map(step.get, ("base_url", "api_key_env")))
        for step in map(arguments, dry_run("paper"))
        for name in ("judge", "suggester", "reviewer")
        if str(step.get(name)).startswith("openai:")
    ]
    strong, weak = (STRONG, None, None), (CHATGPT, None, None)
    # Teachers, Table 2, two rounds with two partners.
    assert asked == [strong, weak, weak, strong, (GEMINI, GOOGLE, "GEMINI_API_KEY"), *[strong] * 4]
    for file in set(PAPER.glob("*.yaml")) - {PAPER / "teachers.yaml"}:
        assert not re.search(r"gpt-|gemini-\d", file.read_text()), file
    teachers = yaml.safe_load((PAPER / "teachers.yaml").read_text())
    papers = {
        role: each["paper"].partition(";")[0]
        for role, each in teachers.items()
        if isinstance(each, dict)
    }
    assert papers == {"strong": "GPT-4", "weak": "ChatGPT", "gemini": "Gemini"}


@pytest.mark.parametrize(("content", "message"), ROWS["test_a_faulty_role_is_told_in_a_line"])
def test_a_faulty_role_is_told_in_a_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "teachers.yaml").write_text(content)
    line = error_line(run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml"))
    assert f"{tmp_path}/teachers.yaml: {message}" in line


def test_a_retired_model_and_a_missing_key_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with EndpointDouble(error(500)) as vendor:
        vendor.models = [{"id": CHATGPT}]  # no `owned_by`: as at OpenAI, the one model is asked for
        monkeypatch.setenv("OPENAI_BASE_URL", vendor.url)
        done = run_recipe("check_teachers", "--teachers", PAPER / "teachers.yaml")
        assert done.stdout.splitlines() == [
            f"weak: {CHATGPT} is served at {vendor.url}/",
            *(
                line
                for line in done.stdout.splitlines()
                if line.startswith(f"- strong: {STRONG} does not exist at")
            ),
            f"- gemini: GEMINI_API_KEY is not set: the key with which {GEMINI} is asked",
        ]
        assert len(done.stdout.splitlines()) == 3
        line = error_line(done)
        assert (
            f"2 of 3 models cannot be asked: strong: {STRONG} does not exist at {vendor.url}"
            in line
        )
        assert vendor.asked == [], "nothing was sent but the names of models"
        # An open model behind a server of one's own, for which no key is needed.
        vendor.models.append({"id": "x/y", "owned_by": "vllm", "max_model_len": 8192})
        monkeypatch.delenv("OPENAI_API_KEY")
        (tmp_path / "teachers.yaml").write_text(
            f"strong: {{model: x/y, base_url: '{vendor.url}'}}\nreviewer: strong\n"
        )
        done = run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml")
        assert (done.returncode, done.stdout) == (0, f"strong: x/y is served at {vendor.url}/\n")
        vendor.models = error(401, "Incorrect API key provided.", "invalid_api_key")
        line = error_line(run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml"))
        assert "1 of 1 models cannot be asked: strong: x/y" in line
    assert "could not be checked" in error_line(
        run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml")
    )
