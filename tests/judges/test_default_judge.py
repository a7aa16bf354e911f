"""Which judge judges where none is named, and where models are looked for."""

import json
from pathlib import Path

import pytest

from automedeval.judges.judge import default_judge
from automedeval.models.arguments import EncoderArguments
from automedeval.models.model_paths import find_model, user_models
from automedeval.records import RecordError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with an empty cache, and no judge in the environment."""
    for name in ("HF_HOME", "AUTOMEDEVAL_JUDGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, architecture: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    return folder


def test_the_small_judge_judges_unless_the_environment_names_another(machine, monkeypatch):
    encoder = EncoderArguments()
    assert default_judge() == "small"
    with pytest.raises(RecordError, match=r"no encoder at .*; `automedeval get-models` gets it$"):
        encoder.load()
    put(machine / "cache" / "automedeval" / "models" / "all-MiniLM-L6-v2", "BertModel")
    assert Path(encoder.place) == find_model("all-MiniLM-L6-v2") == user_models() / "all-MiniLM-L6-v2"
    monkeypatch.setenv("AUTOMEDEVAL_JUDGE", "openai:m")
    assert default_judge() == "openai:m"


def test_the_folder_for_models_follows_where_caches_are_kept(machine, monkeypatch):
    assert user_models() == machine / "cache" / "automedeval" / "models"
    monkeypatch.setenv("HF_HOME", str(machine / "disk"))
    assert user_models() == machine / "disk" / "automedeval" / "models"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(machine / "home"))
    assert user_models() == machine / "home" / ".cache" / "automedeval" / "models"
