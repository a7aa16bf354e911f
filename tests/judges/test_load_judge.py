"""The Python API beside the commands: load_judge gives the judge of each name, and data sets and verdicts become tables."""

import shutil
from pathlib import Path

import pytest
from datasets import Dataset
from doubles.endpoint import EndpointDouble, good_answer
from factories import read
from programs import FAST, SAMPLE, flags, module_fixture, run_recipe, succeeded
from tables import each_row, rows_of

from automedeval import (
    Case,
    RecordError,
    Verdict,
    Verdicts,
    judge_dataset,
    load_judge,
    read_cases,
)
from automedeval.judges.judge import default_judge
from automedeval.models.arguments import ENCODER_ON_HUB, EncoderArguments, parse_model
from automedeval.models.checkpoints import find_model, user_models

TABLES = rows_of(__file__)
CASES = SAMPLE / "test_cases.jsonl"


@module_fixture
def cases() -> list[Case]:
    return list(read_cases(CASES))[:3]


def by_recipe(folder: Path, *arguments: object) -> list[dict]:
    """Return the lines of verdicts.jsonl that the recipe writes on the first three cases, in a fixed order."""
    succeeded(run_recipe("judge", "--cases", CASES, "--limit", 3, "--output", folder, *arguments))
    return ordered(read(folder / "verdicts.jsonl"))


def ordered(verdicts) -> list[dict]:
    return sorted(verdicts, key=lambda verdict: (verdict["case_id"], verdict["order"]))


@each_row("spec, kind, options")
def test_a_judge_judges_as_by_the_recipe(spec, kind, options, tiny_model, cases, tmp_path):
    spec = spec.format(tiny_model)
    with EndpointDouble(good_answer) as endpoint:
        chat = FAST | ({"base_url": endpoint.url} if spec == "openai:m" else {})
        written = by_recipe(tmp_path, "--judge", spec, *flags(**options, **chat))
        judge = load_judge(spec, **options, chat=chat, cases=cases)
        assert type(judge).__name__ == kind
        assert ordered(verdict.to_dict() for verdict in judge(cases)) == written


@each_row("spec, options, error")
def test_what_cannot_be_loaded_is_an_error(spec, options, error):
    with pytest.raises((RecordError, ValueError), match=error):
        load_judge(spec, **options)


def test_only_known_prefixes_are_split_off():
    assert parse_model("openai:org/model:free") == ("openai", "org/model:free")
    assert parse_model("C:/models/judge") == ("checkpoint", "C:/models/judge")


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """Work in an empty folder with an empty cache, and no judge in the environment."""
    for name in ("HF_HOME", "AUTOMEDEVAL_JUDGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_small_judge_judges_unless_the_environment_names_another(machine, monkeypatch):
    encoder = EncoderArguments()
    assert default_judge() == "small"
    with pytest.raises(RecordError, match=r"no encoder at .*; `automedeval get-models` gets it$"):
        encoder.load()
    folder = user_models() / "all-MiniLM-L6-v2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert Path(encoder.place) == find_model("all-MiniLM-L6-v2") == folder
    shutil.rmtree(folder)
    cached = machine / "hub" / f"models--{ENCODER_ON_HUB.replace('/', '--')}"
    snapshot = cached / "snapshots" / ("c" * 40)
    for file, text in (
        (cached / "refs/main", snapshot.name),
        (snapshot / "model.safetensors", "weights"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert Path(encoder.place) == snapshot
    monkeypatch.setenv("AUTOMEDEVAL_JUDGE", "openai:m")
    assert default_judge() == "openai:m"


def test_the_folder_for_models_follows_where_caches_are_kept(machine, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(machine / "home"))
    assert user_models() == machine / "home/.cache/automedeval/models"
    for name in ("XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(machine / name))
        assert user_models() == machine / name / "automedeval/models"


ROWS = TABLES["rows"]


def test_a_data_set_is_judged_row_by_row():
    judge = load_judge("baseline:longer text")
    names = ["case_id", "row", "model", "expected_score"]
    table = judge_dataset(judge, Dataset.from_dict(ROWS), blank="skip").to_pandas()
    assert table[names].values.tolist() == TABLES["of two models"]
    only = judge_dataset(judge, Dataset.from_dict(ROWS), ["model_b"], blank="lowest").to_pandas()
    assert only[names[2:]].values.tolist() == TABLES["of one model"]


@each_row("rows, options, fault")
def test_faults_are_one_line(rows, options, fault):
    with pytest.raises(RecordError, match=fault):
        judge_dataset(load_judge("baseline:longer text"), Dataset.from_dict(rows), **options)


def test_verdicts_are_a_table_with_a_row_for_each_response():
    table = Verdicts(map(Verdict.from_dict, TABLES["verdicts"])).to_pandas()
    columns = ["case_id", "model", "slot", "score", "expected_score", "choice_best"]
    rows = table[columns].astype(object).where(table[columns].notna(), None).values.tolist()
    assert rows == TABLES["table"]
    assert Verdicts().to_pandas().empty
