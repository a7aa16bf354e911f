"""What can be known on Linux about Windows and macOS, where nobody has run the package: streams and devices."""

import os
from pathlib import Path

import pytest
import torch
from programs import SAMPLE, run_recipe, succeeded
from tables import rows_of


def test_a_terminal_that_lacks_a_character_gets_its_escape(tmp_path: Path) -> None:
    # On Windows a redirected stream is in the system's code page, which has no arrow; Python would stop with a traceback.
    arguments = ("--input", SAMPLE / "test_cases.jsonl", "--output", tmp_path / "out")
    done = succeeded(run_recipe("prepare", *arguments, env=os.environ | {"PYTHONIOENCODING": "cp1252"}))
    assert "\\u2192" in done.stdout


@pytest.mark.parametrize(
    ("environment", "cuda", "mps", "device"), rows_of(__file__)["test_auto_is_a_gpu_if_there_is_one"]
)
def test_auto_is_a_gpu_if_there_is_one(monkeypatch, environment, cuda, mps, device) -> None:
    from automedeval.models.device import best_device

    for name in ("LOCAL_RANK", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert best_device() == device


def test_the_metric_which_stands_alone_chooses_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from automedeval.metrics.rationale_score import rationale_score as metric

    def load(what: str, name: str, *given: object) -> None:
        raise ValueError(f"loaded with {given}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(metric, "_load", load)
    with pytest.raises(ValueError, match="'mps'"):
        metric.rationale_score(["rest"], ["rest"])
