"""The models that a study asks over endpoints: named in one file, replaced by an option, and asked for before a run."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles.endpoint import EndpointDouble, error
from programs import ROOT
from study_plan import PAPER, of, plan, reproduce, resolved

STRONG, WEAK, GEMINI = "gpt-4-turbo-2024-04-09", "gpt-3.5-turbo-0125", "gemini-2.0-flash"  # Table 2
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai/"


def asked(*arguments: object) -> list[tuple[Any, ...]]:
    """Return (model, base_url, api_key_env, price_in) of every model that a step of the paper's study asks."""
    settings = ("base_url", "api_key_env", "price_in")
    return [
        (step[name].removeprefix("openai:"), *map(step.get, settings))
        for step in map(resolved, plan(PAPER, *arguments))
        for name in ("judge", "suggester", "reviewer")
        if str(step.get(name)).startswith("openai:")
    ]


def test_one_file_names_every_model_with_endpoint_and_price() -> None:
    strong, weak, gemini = (
        (STRONG, None, None, "10.0"),
        (WEAK, None, None, "0.5"),
        (GEMINI, GOOGLE, "GEMINI_API_KEY", "0.1"),
    )
    assert asked() == [
        strong,
        weak,
        weak,
        strong,
        gemini,
        *[strong] * 4,
    ]  # teachers, Table 2, two rounds with two partners
    for file in set((ROOT / PAPER).glob("*.yaml")) - {ROOT / PAPER / "teachers.yaml"}:
        assert not re.search(r"gpt-|gemini-\d", file.read_text()), file
    names = {each.get("teacher_verdicts") for each in of(plan(PAPER), "report")} - {None}
    assert names == {STRONG}
    teachers = yaml.safe_load((ROOT / PAPER / "teachers.yaml").read_text())
    assert {role: each["paper"].partition(";")[0] for role, each in teachers.items() if isinstance(each, dict)} == {
        "strong": "GPT-4",
        "weak": "ChatGPT",
        "gemini": "Gemini",
    }


def test_an_option_replaces_a_model_wherever_it_is_asked_named_or_shown() -> None:
    """An open model behind a server of one's own: teacher, partner, judge; in tables, figures and on the page."""
    model, url = "Qwen/Qwen2.5-72B-Instruct", "http://localhost:8000/v1"
    option = ("--teacher", f"strong={model}@{url}")
    assert [each for each in asked(*option) if each[0] not in (WEAK, GEMINI)] == [(model, url, None, None)] * 6
    assert [each for each in asked(*option) if each[0] in (WEAK, GEMINI)] == [
        each for each in asked() if each[0] in (WEAK, GEMINI)
    ]
    done = reproduce(PAPER, *option, "--dry_run")
    assert (done.returncode, done.stderr) == (0, "")
    assert STRONG not in done.stdout
    reports = [each.get("judges", "") + each.get("teacher_verdicts", "") for each in of(plan(PAPER, *option), "report")]
    assert [model in each for each in reports] == [False, True, False, False, True]
    assert "annotate.py --study ratings/automedeval-13b-annotate.yaml --export ratings/test" in done.stdout
    assert "OPENAI_API_KEY: the key with which the weak teacher judges" in done.stdout
    reviewer = [each for each in asked("--teacher", "reviewer=gpt-9") if each[0] == "gpt-9"]
    assert reviewer == [("gpt-9", None, None, "10.0")] * 2  # a round's limit counts the dearer partner


def test_one_open_model_may_be_both_teachers() -> None:
    """Of Table 2 it is one judge."""
    same = ("--teacher", "strong=m@http://localhost:1/v1", "--teacher", "weak=m@http://localhost:1/v1")
    assert [each[0] for each in asked(*same)] == ["m", "m", "m", GEMINI, *["m"] * 4]
    # A model that another role names comes with its endpoint and price.
    assert {each for each in asked("--teacher", f"strong={GEMINI}") if each[0] != WEAK} == {
        each for each in asked() if each[0] == GEMINI
    }


def test_the_page_shows_the_replaced_models_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    from study.files import read_lists
    from study.teachers import Teachers

    monkeypatch.chdir(ROOT)
    teachers, lists = Teachers(Path(PAPER), ["strong=Qwen/Qwen2.5-72B-Instruct"]), read_lists(ROOT / PAPER, ROOT)
    _, studies = teachers.page_studies(lists)
    ((path, text),) = studies.items()
    plain = yaml.safe_load((ROOT / PAPER / "annotate.yaml").read_text())
    assert path == "ratings/automedeval-13b-annotate.yaml"
    assert plain["prefer"]["judges"] == ["introspection2", "teacher:strong"]
    plain["prefer"]["judges"][1] = "Qwen/Qwen2.5-72B-Instruct"
    assert yaml.safe_load(text) == plain
    assert Teachers(Path(PAPER)).page_studies(lists) == (lists, {})


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, ["strnog=m"], "--teacher strnog: {folder}/teachers.yaml has strong, weak, reviewer, gemini"),
        (None, ["strong"], "--teacher strong: must be ROLE=MODEL, or ROLE=MODEL@URL for an endpoint of your own"),
        (
            None,
            ["reviewer=m@http://localhost:1/v1"],
            "introspect1.yaml: reviewer: openai:teacher:reviewer has another base_url",
        ),
        ("strong: {model: m}\nweak: {model: w}", [], "teacher:gemini: {folder}/teachers.yaml has strong, weak"),
        ("strong: {model: m, url: x}", [], "{folder}/teachers.yaml: strong.url: unknown key"),
        ("strong: {base_url: x}", [], "{folder}/teachers.yaml: strong.model: is missing"),
        ("strong: weak", [], "{folder}/teachers.yaml: strong: must be a mapping with the keys model"),
        (
            "strong: {model: m, price_in: much}",
            [],
            "{folder}/teachers.yaml: strong.price_in: must be a number, not 'much'",
        ),
        ("[]", [], "{folder}/teachers.yaml: the file: must be a mapping of roles"),
    ],
)
def test_a_faulty_role_is_told_in_a_line_before_the_first_step(
    tmp_path: Path, content: str | None, arguments: list[str], message: str
) -> None:
    folder = tmp_path / "automedeval-13b"
    shutil.copytree(ROOT / PAPER, folder)
    if content is not None:
        (folder / "teachers.yaml").write_text(content)
    done = reproduce(folder, *(word for each in arguments for word in ("--teacher", each)))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert message.format(folder=folder) in done.stderr
    assert "==" not in done.stdout


def test_a_retired_model_is_named_with_step_file_and_option() -> None:
    with EndpointDouble(error(500)) as vendor:
        vendor.models = [{"id": WEAK}]  # no `owned_by`: as at OpenAI, the one model is asked for
        settings = {"OPENAI_BASE_URL": vendor.url, "OPENAI_API_KEY": "a-key"}
        done = reproduce(PAPER, "--dry_run", "--check_endpoints", **settings)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {PAPER}/distill_strong.yaml: judge: {STRONG} does not exist at {vendor.url}")
        for file in ("judge", "introspect1", "introspect2"):
            assert f"{PAPER}/{file}.yaml" in line
        assert line.endswith(f"Another: --teacher strong=MODEL, or {PAPER}/teachers.yaml")
        assert f"\nserved      {WEAK} at {vendor.url}/\n" in done.stdout
        assert f"\nno key      {GEMINI}: not checked, GEMINI_API_KEY is not set\n" in done.stdout
        # Nothing was sent but the names of models.
        assert vendor.asked == []
        assert {request["path"] for request in vendor.requests} == {
            "/v1/models",
            f"/v1/models/{WEAK}",
            f"/v1/models/{STRONG}",
        }
        assert "== 1/" not in reproduce(PAPER, "--check_endpoints", **settings).stdout
        again = reproduce(PAPER, "--teacher", f"strong={WEAK}-2", "--dry_run", "--check_endpoints", **settings)
        assert f"judge: {WEAK}-2 does not exist at" in again.stderr
        vendor.models.append({"id": "x/y", "owned_by": "vllm", "max_model_len": 8192})
        served = reproduce(PAPER, "--teacher", f"strong=x/y@{vendor.url}", "--dry_run", "--check_endpoints", **settings)
        assert (served.returncode, served.stderr) == (0, "")
        assert f"served      x/y at {vendor.url}/\n" in served.stdout


def test_an_endpoint_that_refuses_the_key_or_is_away_is_told() -> None:
    with EndpointDouble(error(500)) as vendor:
        vendor.models = error(401, "Incorrect API key provided.", "invalid_api_key")
        settings = {"OPENAI_BASE_URL": vendor.url, "OPENAI_API_KEY": "a-key"}
        done = reproduce(PAPER, "--judges", "none", "--dry_run", "--check_endpoints", **settings)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 2
    away = reproduce(PAPER, "--judges", "none", "--dry_run", "--check_endpoints", **settings)
    assert away.returncode == 1
    assert "could not be checked" in away.stderr
