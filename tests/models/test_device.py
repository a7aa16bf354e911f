"""The number format of a machine: bfloat16 only where the hardware computes it, and the choice is said and recorded."""

import json
from pathlib import Path
from types import MappingProxyType

import pytest
import torch
from programs import SAMPLE, run_recipe, succeeded

from automedeval.models.device import best_dtype, bfloat16_missing, described
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
