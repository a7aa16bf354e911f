"""load_judge gives for every kind of name the judge whose verdicts recipes/judge.py writes."""

import json
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, good_answer
from programs import SAMPLE, run_recipe, succeeded
from tables import rows_of

from automedeval import Case, Judge, LikelihoodJudge, RecordError, load_judge, read_cases
from automedeval.judges.baseline import BaselineJudge
from automedeval.judges.judge import planner
from automedeval.models.arguments import ChatArguments, parse_model
from automedeval.rubrics import read_rubric

CASES = SAMPLE / "test_cases.jsonl"
FAST = {"dtype": "float32", "device": "cpu", "max_new_tokens": 8}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return list(read_cases(CASES))[:3]


def by_recipe(folder: Path, *arguments: object) -> list[dict]:
    """Return the lines of verdicts.jsonl that the recipe writes on the first three cases, in a fixed order."""
    succeeded(run_recipe("judge", "--cases", CASES, "--limit", 3, "--output", folder, *arguments))
    return ordered(json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines())


def ordered(verdicts) -> list[dict]:
    return sorted(verdicts, key=lambda verdict: (verdict["case_id"], verdict["order"]))


@pytest.mark.parametrize(
    ("spec", "kind", "options"),
    [
        ("{}", Judge, {"orders": "latin", "rationale": False}),
        ("{}", Judge, {"rubric": "medical_pairwise", "baseline": "larch-7b", "seed": 3}),
        ("likelihood:{}", LikelihoodJudge, {"models": ["larch-7b", "juniper-7b"]}),
    ],
)
def test_a_checkpoint_judges_as_by_the_recipe(spec, kind, options, tiny_model, cases, tmp_path) -> None:
    spec = spec.format(tiny_model)
    words = {name: ",".join(value) if isinstance(value, list) else value for name, value in options.items()}
    words["judge_name"] = words.pop("name", None)
    arguments = [word for name, value in (words | FAST).items() if value is not None for word in (f"--{name}", value)]
    written = by_recipe(tmp_path, "--judge", spec, *arguments)
    judge = load_judge(spec, **options, chat=FAST)
    assert isinstance(judge, kind)
    assert ordered(verdict.to_dict() for verdict in judge(cases)) == written


def test_an_endpoint_judges_as_by_the_recipe(cases, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with EndpointDouble(good_answer) as endpoint:
        options = ["--base_url", endpoint.url]
        written = by_recipe(tmp_path, "--judge", "openai:m", *options)
        judge = load_judge("openai:m", chat=ChatArguments(base_url=endpoint.url))
        assert ordered(verdict.to_dict() for verdict in judge(cases)) == written


def test_a_baseline_judges_as_by_the_recipe(cases, tmp_path) -> None:
    written = by_recipe(tmp_path, "--judge", "baseline:BM25 to the question")
    judge = load_judge("baseline:BM25 to the question", cases=cases)
    assert isinstance(judge, BaselineJudge)
    assert ordered(verdict.to_dict() for verdict in judge(cases)) == written


def test_the_planner_plans_as_the_judge(tiny_model, cases) -> None:
    for spec, options in ((str(tiny_model), {"orders": "all", "seed": 2}), (f"likelihood:{tiny_model}", {})):
        judge = load_judge(spec, **options, models=["larch-7b", "rowan-7b"], chat=FAST)
        plan = planner(spec, read_rubric("automedeval"), **options, models=["larch-7b", "rowan-7b"])
        assert [plan(case) for case in cases] == [judge.plan(case) for case in cases]


@pytest.mark.parametrize(("spec", "options", "error"), rows_of(__file__)["test_what_cannot_be_loaded_is_an_error"])
def test_what_cannot_be_loaded_is_an_error(spec, options, error) -> None:
    with pytest.raises((RecordError, ValueError), match=error):
        load_judge(spec, **options)


def test_only_known_prefixes_are_split_off() -> None:
    assert parse_model("openai:org/model:free") == ("openai", "org/model:free")
    assert parse_model("ORG/judge") == ("checkpoint", "ORG/judge")
    assert parse_model("C:/models/judge") == ("checkpoint", "C:/models/judge")
    assert parse_model("likelihood") == ("checkpoint", "likelihood")
