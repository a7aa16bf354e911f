"""The device of a machine and its number format: bfloat16 only where the hardware computes it, said and recorded."""

import json
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from programs import SAMPLE, run_recipe, succeeded
from tables import rows_of

from automedeval.models.device import best_device, best_dtype, bfloat16_missing, described
from automedeval.models.local import LocalChat

FAST = {"Xeon with AMX": {"amx_bf16": True, "avx512_bf16": True}, "Zen 4": {"avx512_bf16": True}, "Arm": {"bf16": True}}
SLOW = {"AVX2": {"avx2": True}, "Xeon of 2019": {"avx512_f": True, "avx512_vnni": True}}


def processor(monkeypatch: pytest.MonkeyPatch, features: dict[str, bool]) -> None:
    """Make torch report a processor with these instruction sets."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: MappingProxyType(features))


@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_bfloat16_where_the_processor_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    processor(monkeypatch, (FAST | SLOW)[name])
    missing = "this processor has no bfloat16 instructions" if name in SLOW else ""
    for stored in (None, torch.float16):
        assert best_dtype("cpu", stored) == (torch.float32 if missing else torch.bfloat16)
    assert bfloat16_missing("cpu") == missing


def test_a_gpu_that_only_emulates_bfloat16_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)  # a T4
    assert best_dtype("cuda:0") == best_dtype("cuda:0", torch.bfloat16) == torch.float32
    assert best_dtype("cuda:0", torch.float16) == torch.float16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)  # an A100
    assert (best_dtype("cuda:0"), best_dtype("mps")) == (torch.bfloat16, torch.float32)


def test_the_choice_of_the_judge_is_said_and_recorded(tiny_model: Path, tmp_path: Path) -> None:
    args = ("--judge", tiny_model, "--cases", SAMPLE / "test_cases.jsonl", "--limit", 1, "--rationale", "false")
    done = succeeded(run_recipe("judge", *args, "--device", "cpu", "--output", tmp_path / "auto"))
    words = described(best_dtype("cpu"), "cpu")
    assert f"{tiny_model.name}: {words}\n" in done.stderr
    (run,) = (tmp_path / "auto").glob("run-*.json")
    assert json.loads(run.read_text())["arguments"]["computed"] == {tiny_model.name: words}
    assert LocalChat(str(tiny_model), device="cpu").network.dtype == best_dtype("cpu")
    chosen = run_recipe("judge", *args, "--device", "cpu", "--dtype", "float32", "--output", tmp_path / "chosen")
    assert "on cpu" not in chosen.stderr  # the user's own choice needs no announcement


@pytest.mark.parametrize(
    ("environment", "cuda", "mps", "device"), rows_of(__file__)["test_auto_is_a_gpu_if_there_is_one"]
)
def test_auto_is_a_gpu_if_there_is_one(monkeypatch, environment, cuda, mps, device) -> None:
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
