"""The models that a study asks over endpoints: named in one teachers.yaml, asked by a YAML beside it, checked before a run."""

import re
from pathlib import Path

import pytest
import yaml
from doubles.endpoint import EndpointDouble, error, good_answer
from programs import ROOT, SAMPLE, error_line, run_recipe, succeeded
from study_scripts import arguments, dry_run
from tables import rows_of

from automedeval.records import Verdict, read_records

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


ROWS = rows_of(__file__)

PAPER = ROOT / "recipes/runs/automedeval-13b"
STRONG, CHATGPT, GEMINI = "gpt-4-turbo-2024-04-09", "gpt-3.5-turbo-0125", "gemini-2.0-flash"  # Table 2
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
    papers = {role: each["paper"].partition(";")[0] for role, each in teachers.items() if isinstance(each, dict)}
    assert papers == {"strong": "GPT-4", "weak": "ChatGPT", "gemini": "Gemini"}


@pytest.mark.parametrize(("content", "message"), ROWS["test_a_faulty_role_is_told_in_a_line"])
def test_a_faulty_role_is_told_in_a_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "teachers.yaml").write_text(content)
    line = error_line(run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml"))
    assert f"{tmp_path}/teachers.yaml: {message}" in line


def test_a_retired_model_and_a_missing_key_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with EndpointDouble(error(500)) as vendor:
        vendor.models = [{"id": CHATGPT}]  # no `owned_by`: as at OpenAI, the one model is asked for
        monkeypatch.setenv("OPENAI_BASE_URL", vendor.url)
        done = run_recipe("check_teachers", "--teachers", PAPER / "teachers.yaml")
        assert done.stdout.splitlines() == [
            f"weak: {CHATGPT} is served at {vendor.url}/",
            *(line for line in done.stdout.splitlines() if line.startswith(f"- strong: {STRONG} does not exist at")),
            f"- gemini: GEMINI_API_KEY is not set: the key with which {GEMINI} is asked",
        ]
        assert len(done.stdout.splitlines()) == 3
        line = error_line(done)
        assert f"2 of 3 models cannot be asked: strong: {STRONG} does not exist at {vendor.url}" in line
        assert vendor.asked == [], "nothing was sent but the names of models"
        # An open model behind a server of one's own, for which no key is needed.
        vendor.models.append({"id": "x/y", "owned_by": "vllm", "max_model_len": 8192})
        monkeypatch.delenv("OPENAI_API_KEY")
        (tmp_path / "teachers.yaml").write_text(f"strong: {{model: x/y, base_url: '{vendor.url}'}}\nreviewer: strong\n")
        done = run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml")
        assert (done.returncode, done.stdout) == (0, f"strong: x/y is served at {vendor.url}/\n")
        vendor.models = error(401, "Incorrect API key provided.", "invalid_api_key")
        line = error_line(run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml"))
        assert "1 of 1 models cannot be asked: strong: x/y" in line
    assert "could not be checked" in error_line(run_recipe("check_teachers", "--teachers", tmp_path / "teachers.yaml"))
