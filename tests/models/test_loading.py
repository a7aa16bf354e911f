"""How a checkpoint reaches its device: which one, in which number format, straight, once, and with how large batches."""

import shutil
from pathlib import Path

import pytest
import torch
from factories import read_json, write_json
from programs import FAST, SAMPLE, run_recipe, succeeded
from safetensors.torch import load_file, save_file
from tables import each_row, rows_of
from transformers import AutoConfig

from automedeval.models.arguments import ChatArguments
from automedeval.models.checkpoints import fingerprint
from automedeval.models.device import best_device, best_dtype, bfloat16_missing, described
from automedeval.models.local import batch_room
from automedeval.models.network import outline_network
from automedeval.records import RecordError

NEW = ["amx_bf16", "avx512_bf16", "bf16"]  # of a Xeon with AMX, a Zen 4 and an Arm
OLD = ["avx2", "avx512_vnni"]


@each_row("most")
@pytest.mark.parametrize("feature", [*NEW, *OLD])
def test_bfloat16_where_the_processor_has_it_and_torch_may_use_it(feature, most, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {feature: True})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", most)
    held_back = most in ("AVX2", "avx512_core")
    missing = "this processor has no bfloat16 instructions" if feature in OLD or held_back else ""
    for stored in (None, torch.float16):
        assert best_dtype("cpu", stored) == (torch.float32 if missing else torch.bfloat16)
    assert bfloat16_missing("cpu") == missing


def test_a_gpu_that_only_emulates_bfloat16_does_not_get_it(monkeypatch):
    t4 = lambda including_emulation=True: including_emulation  # noqa: E731
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", t4)
    assert best_dtype("cuda:0") == best_dtype("cuda:0", torch.bfloat16) == torch.float32
    assert best_dtype("cuda:0", torch.float16) == torch.float16
    a100 = lambda including_emulation: True  # noqa: E731
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", a100)
    assert (best_dtype("cuda:0"), best_dtype("mps")) == (torch.bfloat16, torch.float32)


def test_the_choice_of_the_judge_is_said_and_recorded(tiny_model, tmp_path):
    options = {"judge": tiny_model, "cases": SAMPLE / "test_cases.jsonl", "limit": 1}
    options |= {"rationale": "false", "device": "cpu"}
    done = succeeded(run_recipe("judge", **options, output=tmp_path / "auto"))
    words = described(best_dtype("cpu"), "cpu")
    assert f"{tiny_model.name}: {words}\n" in done.stderr
    (run,) = (tmp_path / "auto").glob("run-*.json")
    assert read_json(run)["arguments"]["computed"] == {tiny_model.name: words}
    chosen = run_recipe("judge", **options, dtype="float32", output=tmp_path / "chosen")
    assert "on cpu" not in chosen.stderr  # the user's own choice needs no announcement


@each_row("environment, cuda, mps, device")
def test_auto_is_a_gpu_if_there_is_one(monkeypatch, environment, cuda, mps, device):
    for name in ("LOCAL_RANK", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert best_device() == device


GB = 10**9
SHAPES = rows_of(__file__)["shapes"]


def room(folder: Path, shape: str, memory: tuple[float, float], monkeypatch) -> int:
    AutoConfig.for_model("llama", **SHAPES[shape]).save_pretrained(folder)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: memory[::-1])
    return batch_room(outline_network(folder, torch.bfloat16, "cuda:0"), "cuda:0")


def test_a_13b_takes_batches_of_36_000_tokens_on_80_gb(tmp_path, monkeypatch):
    # 26.0 GB of weights, and 2 x 40 layers x 5,120 numbers of 2 bytes per token: half of 59 GB holds 36,000 tokens.
    whole = room(tmp_path, "13B", (85 * GB, 84 * GB), monkeypatch)
    assert 35_500 < whole < 36_500
    # the same when a run is resumed, whatever is free just now
    assert room(tmp_path, "13B", (85 * GB, 80 * GB), monkeypatch) == whole
    # (50 - 26.0) / 2 GB at 819,200 bytes a token, where another program holds 35 of 85 GB
    assert 14_000 < room(tmp_path, "13B", (85 * GB, 50 * GB), monkeypatch) < 15_000
    # four query heads share keys and values
    assert room(tmp_path, "8B", (85 * GB, 84 * GB), monkeypatch) > 200_000


def test_batches_on_a_cpu_take_2_gib(tiny_model, tmp_path):
    # 2 x 30 layers x 3 heads x 64 numbers of 4 bytes per token, as in SmolLM2-135M
    AutoConfig.for_model("llama", **SHAPES["135M"]).save_pretrained(tmp_path)
    assert batch_room(outline_network(tmp_path, torch.float32, "cpu"), "cpu") == 2**31 // 46_080
    assert ChatArguments(**FAST).load(str(tiny_model)).batch_tokens == 65_536, "and no more"


def test_missing_weights_are_not_drawn_at_random(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layers.1.mlp" not in name}
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(RecordError, match=r"3 weights are missing, such as model\.layers\.1"):
        ChatArguments(device="cpu").load(str(folder))


def test_where_its_base_lies_is_no_part_of_an_adapter(tiny_model, tmp_path):
    """A published adapter names its base on the Hub, the local one a folder."""
    (tmp_path / "base").symlink_to(tiny_model)
    (tmp_path / "config.json").touch()

    def told(**settings):
        write_json(tmp_path / "adapter_config.json", settings)
        return fingerprint(tmp_path, [])

    local = told(base_model_name_or_path=str(tiny_model), r=8)
    moved = told(r=8, revision="main", base_model_name_or_path=str(tmp_path / "base"))
    assert moved == local != told(base_model_name_or_path=str(tiny_model), r=16)
