"""ZeRO-3 in two processes on one machine: trained, killed and gone on with, and on a full disk."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from doubles.tiny_dataset import build_instructions, losses
from doubles.tiny_model import build_tiny_model
from filelock import FileLock
from programs import ROOT, torch_extensions
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from automedeval.models.checkpoints import read_record
from automedeval.study.training.run import WHOLE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux", reason="processes are limited and kept apart by means of Linux"
    ),
    # DeepSpeed compiles a small extension the first time that it talks to other processes on CPUs.
    pytest.mark.skipif(
        shutil.which("g++") is None, reason="DeepSpeed compiles with g++, and there is none"
    ),
]
deepspeed = pytest.importorskip("deepspeed")

BINARIES = Path(sys.executable).parent  # accelerate and ninja are there
SMALL = "recipes/runs/automedeval-135m/stage1.yaml"
COMPILE = (
    "from deepspeed.accelerator import get_accelerator; "
    "get_accelerator().create_op_builder('ShareMemCommBuilder').load(verbose=False)"
)
TIMEOUT = 240  # seconds; a run takes about twenty


@pytest.fixture(scope="module", autouse=True)
def extension(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile the extension that DeepSpeed's processes talk through, which takes a minute or two."""
    place = torch_extensions(request.config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DS_ACCELERATOR", "cpu")
        patch.setenv("TORCH_EXTENSIONS_DIR", str(place))
        patch.setenv("PATH", f"{BINARIES}{os.pathsep}{os.environ['PATH']}")
        with FileLock(place / ".lock"):
            subprocess.run([sys.executable, "-c", COMPILE], check=True, timeout=900)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model and data of its own: every run has to find the same rows and the same start."""
    folder = tmp_path_factory.mktemp("zero3")
    build_tiny_model(folder / "model")
    build_instructions(folder / "instructions", {"stage1": 16, "stage2": 4, "test": 2})
    return folder


def arguments(folder: Path, output: Path, *more: object) -> list[str]:
    start, data = folder / "model", folder / "instructions"
    paths = ("--model_name_or_path", start, "--dataset_name", data, "--output_dir", output)
    return ["recipes/sft.py", "--config", SMALL, *map(str, (*paths, *more))]


def small(folder: Path, output: Path, *more: object) -> list[str]:
    """Return the arguments of eight updates, four rows each, saved after every other one."""
    updates = (
        "--gradient_accumulation_steps",
        2,
        "--num_train_epochs",
        2,
        "--save_steps",
        2,
        "--bf16",
        "false",
    )
    return arguments(folder, output, *updates, *more)


def start(
    machine: str,
    recipe: list[str],
    log: Path,
    limit: Callable[[], None] | None = None,
    **environment: str,
) -> subprocess.Popen:
    """Start `accelerate launch` on a machine's description; what it prints goes to a file."""
    own = {
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "HF_DATASETS_CACHE": str(log.parent / "datasets"),
    }
    options = {
        "cwd": ROOT,
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.STDOUT,
        "preexec_fn": limit,
    }
    command = [
        str(BINARIES / "accelerate"),
        "launch",
        "--config_file",
        f"accelerate_configs/{machine}.yaml",
    ]
    with open(log, "wb") as stream:
        return subprocess.Popen(
            [*command, *recipe], stdout=stream, env=os.environ | own | environment, **options
        )


def kill(process: subprocess.Popen) -> None:
    """Kill a launcher and all that it started: torch gives every worker a process group of its own."""
    if process.poll() is None:
        launcher = psutil.Process(process.pid)
        for each in [launcher, *launcher.children(recursive=True)]:
            each.send_signal(signal.SIGKILL)
    process.wait()


def start_and_kill(recipe: list[str], output: Path) -> None:
    """Start a run that writes to `output`, and kill it when its second checkpoint is whole."""
    process = start("zero3_cpu", recipe, output.with_suffix(".log"))
    until = time.monotonic() + TIMEOUT
    while (
        not (output / "checkpoint-4" / WHOLE).exists()
        and process.poll() is None
        and time.monotonic() < until
    ):
        time.sleep(0.01)
    kill(process)
    assert process.returncode == -signal.SIGKILL
    assert not read_record(output)["finished"]
    assert not (output / "checkpoint-8").exists()


def ended(process: subprocess.Popen, log: Path, status: int = 0, end: str = "") -> str:
    """Return what a run printed, which ends with the status, or with an abort behind the text `end`.

    The threads of gloo may abort a program of others while the interpreter shuts down (pytorch issue 179291).
    """
    try:
        process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        kill(process)
        pytest.fail(f"not done after {TIMEOUT} s:\n{log.read_text(errors='replace')[-3000:]}")
    output = log.read_text(errors="replace")
    is_done = (
        bool(end) and "terminate called without an active exception" in output.partition(end)[2]
    )
    assert process.returncode == status or is_done, output[-3000:]
    return output


def errors(printed: str) -> set[str]:
    """Return the errors that the recipe's processes printed, each once; none of them printed a traceback."""
    assert 'recipes/sft.py", line' not in printed, printed[-3000:]
    return {line for line in printed.splitlines() if line.startswith("error: ")}


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> tuple[Path, str]:
    """Return what a run leaves that nobody disturbs, and what it prints."""
    output = folder / "uninterrupted"
    log = folder / "uninterrupted.log"
    return output, ended(start("zero3_cpu", small(folder, output), log), log)


@pytest.fixture(scope="module")
def killed(folder: Path, uninterrupted: tuple[Path, str]) -> Path:
    """Return what a run leaves that is killed when its second checkpoint is whole."""
    output = folder / "killed"
    start_and_kill(small(folder, output), output)
    return output


def test_two_processes_train_one_model(folder, uninterrupted):
    output, printed = uninterrupted
    assert printed.count("stage1: 16 rows, ") == 1  # one process speaks for both
    assert "4 rows an update" in printed
    assert len(losses(output)) == 8
    assert read_record(output)["identity"]["processes"] == 2
    assert read_record(output)["versions"]["deepspeed"]
    before, after = (
        load_file(folder / "model/model.safetensors"),
        load_file(output / "model.safetensors"),
    )
    assert {name: each.shape for name, each in before.items()} == {
        name: each.shape for name, each in after.items()
    }
    assert all(torch.isfinite(each).all() for each in after.values())
    assert any((before[name] != after[name]).any() for name in before)
    for dtype in (torch.float32, torch.bfloat16):
        loaded = AutoModelForCausalLM.from_pretrained(output, dtype=dtype, use_safetensors=True)
        assert torch.equal(loaded.model.norm.weight, after["model.norm.weight"].to(dtype))
    left = {path.name for path in output.rglob("*") if path.is_file()}
    assert not [name for name in left if name.endswith((".bin", ".pt", ".pth", ".pkl", ".py"))]
    assert not list(output.glob("checkpoint-*"))


def test_killed_it_goes_on_to_the_same_weights(folder, killed, uninterrupted):
    output, log = folder / "resumed", folder / "resumed-killed.log"
    shutil.copytree(killed, output)
    printed = ended(start("zero3_cpu", small(folder, output), log), log)
    assert f"resuming from {output}/checkpoint-4" in printed
    assert losses(output) == losses(uninterrupted[0])  # exactly
    assert (output / "model.safetensors").read_bytes() == (
        uninterrupted[0] / "model.safetensors"
    ).read_bytes()


def test_an_adapter_is_gathered_and_a_killed_run_goes_on_to_the_same_one(
    folder,
):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    pytest.importorskip("peft")
    rank, alpha = 4, 32
    lora = ("--use_peft", "true", "--lora_r", rank, "--lora_alpha", alpha)
    lora += ("--lora_dropout", 0.1, "--learning_rate", 0.05)
    whole, killed = folder / "adapter", folder / "adapter-killed"
    output = ended(
        start("zero3_cpu", small(folder, whole, *lora), folder / "adapter.log"),
        folder / "adapter.log",
    )
    assert output.count("stage1: 16 rows, ") == 1
    adapter = load_file(whole / "adapter_model.safetensors")
    for name in (name for name in adapter if name.endswith(".lora_B.weight")):
        assert adapter[name].abs().max() > 0.01  # trained: it starts as zero
    assert not (whole / "model.safetensors").exists()
    # The next stage goes on from the adapter, on the weights that the processes share.
    stage2 = small(folder, folder / "adapter2", *lora, "--model_name_or_path", whole)
    # DeepSpeed's schedule has the rate 0 for its first two updates: four passes over four rows are four updates.
    stage2 += ["--dataset_train_split", "stage2", "--num_train_epochs", "4"]
    ended(start("zero3_cpu", stage2, folder / "adapter2.log"), folder / "adapter2.log")
    later = load_file(folder / "adapter2" / "adapter_model.safetensors")
    assert all((later[name] != adapter[name]).any() for name in adapter)
    # What is gathered, beside DeepSpeed's own reader of the parts that each process holds.
    start_and_kill(small(folder, killed, *lora), killed)
    parts = get_fp32_state_dict_from_zero_checkpoint(str(killed / "checkpoint-4"))
    for name, weight in load_file(killed / "checkpoint-4/adapter_model.safetensors").items():
        assert torch.equal(weight, parts[name.replace(".weight", ".default.weight")]), name
    output = ended(
        start("zero3_cpu", small(folder, killed, *lora), folder / "resumed.log"),
        folder / "resumed.log",
    )
    assert f"resuming from {killed}/checkpoint-4" in output
    assert losses(killed) == losses(whole)
    name = "adapter_model.safetensors"
    assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_a_disk_that_fills_up_spares_the_whole_checkpoints(folder, killed):
    output, log = folder / "full", folder / "full.log"
    shutil.copytree(killed, output)
    (written,) = output.glob("checkpoint-4/global_step4/zero_pp_rank_0_*_optim_states.pt")
    size = written.stat().st_size - 1  # the weights fit, the optimizer's states do not

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    messages = errors(
        ended(start("zero3_cpu", small(folder, output), log, limit=limit), log, status=1)
    )
    first = {
        line for line in messages if line.startswith("error: a checkpoint could not be written: ")
    }
    assert first
    assert messages - first <= {"error: another process of this run has ended; see its error line"}
    assert not (output / "checkpoint-6" / WHOLE).exists()
    assert not read_record(output)["finished"]
    for name in ("checkpoint-2", "checkpoint-4"):
        before, after = (
            {
                path.relative_to(at): path.stat().st_size
                for path in (at / name).rglob("*")
                if path.is_file()
            }
            for at in (killed, output)
        )
        assert before == after


def test_a_judge_rewards_the_completions_of_two_processes(folder):
    # ZeRO-3 splits the weights of the model that is trained, and leaves those of the judge whole.
    output, log, settings, prompts = (
        folder / name for name in ("grpo", "grpo.log", "reward.yaml", "prompts")
    )
    settings.write_text(f"judge: {folder / 'model'}\n")
    prompts.mkdir()
    rows = [
        {"prompt": [{"role": "user", "content": f"Question {number}?"}], "reference": "Rest."}
        for number in range(6)
    ]
    (prompts / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = [
        "-m",
        "trl.scripts.grpo",
        "--reward_funcs",
        "automedeval.harness.rewards.medical_judge",
    ]
    program += [
        "--model_name_or_path",
        folder / "model",
        "--dataset_name",
        prompts,
        "--output_dir",
        output,
    ]
    program += [
        "--max_completion_length",
        8,
        "--learning_rate",
        0.01,
        "--use_cpu",
        "true",
        "--bf16",
        "false",
    ]
    program += ["--activation_checkpointing", "false", "--beta", 0.0]
    program += [
        "--num_generations",
        2,
        "--per_device_train_batch_size",
        2,
        "--gradient_accumulation_steps",
        1,
    ]
    program += ["--max_steps", 3, "--save_steps", 3, "--logging_steps", 1]
    ended(
        start("zero3_cpu", list(map(str, program)), log, AUTOMEDEVAL_REWARD=str(settings)),
        log,
        end="Model saved to",
    )
    state = json.loads((output / "checkpoint-3/trainer_state.json").read_text())
    assert len(list(output.glob("checkpoint-3/rng_state_*.pth"))) == 2  # one of each process
    rewards = [line for line in state["log_history"] if "judge/valid_rate" in line]
    assert [line["judge/valid_rate"] for line in rewards] == [1, 1, 1]
    assert all(1 <= line["reward"] <= 5 for line in rewards)
    before, after = (
        load_file(folder / "model/model.safetensors"),
        load_file(output / "model.safetensors"),
    )
    assert any((before[name] != after[name]).any() for name in before), rewards


def test_more_processes_than_rows_is_one_error(folder):
    build_instructions(folder / "single", {"stage1": 1, "test": 1})
    output, log = folder / "none", folder / "none.log"
    recipe = arguments(folder, output, "--dataset_name", folder / "single")
    messages = errors(ended(start("zero3_cpu", recipe, log), log, status=1))
    assert messages == {f"error: {folder}/single, stage1: 1 rows for 2 processes; start fewer"}
    assert not output.exists()
