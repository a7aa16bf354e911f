"""A YAML that names a role of the teachers.yaml beside it, used alone: `python recipes/distill.py --config FILE`."""

from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, good_answer
from programs import SAMPLE, error_line, run_recipe, succeeded

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
