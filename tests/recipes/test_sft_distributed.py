"""ZeRO-3 in two processes on one machine: trained, killed and gone on with, and on a full disk."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
import torch
from doubles.tiny_dataset import build_instructions, changed, logged, losses
from doubles.tiny_model import build_tiny_model
from factories import read_json, write
from filelock import FileLock
from programs import ROOT, flags, free_port, module_fixture, needs_deepspeed, torch_extensions
from safetensors.torch import load_file
from tables import rows_of
from transformers import AutoModelForCausalLM

from automedeval.models.checkpoints import read_record
from automedeval.study.training.run import WHOLE

pytestmark = needs_deepspeed
deepspeed = pytest.importorskip("deepspeed")

BINARIES = Path(sys.executable).parent  # accelerate and ninja are there
ROWS = rows_of(__file__)
SMALL = "recipes/runs/automedeval-135m/sft.yaml"
COMPILE = (
    "from deepspeed.accelerator import get_accelerator; "
    "get_accelerator().create_op_builder('ShareMemCommBuilder').load(verbose=False)"
)
TIMEOUT = 240  # seconds; a run takes about twenty


@pytest.fixture(scope="module", autouse=True)
def extension(request):
    """Compile the extension that DeepSpeed's processes talk through, which takes a minute or two."""
    place = torch_extensions(request.config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DS_ACCELERATOR", "cpu")
        patch.setenv("TORCH_EXTENSIONS_DIR", str(place))
        patch.setenv("PATH", f"{BINARIES}{os.pathsep}{os.environ['PATH']}")
        with FileLock(place / ".lock"):
            subprocess.run([sys.executable, "-c", COMPILE], check=True, timeout=900)
        yield


@module_fixture
def folder(tmp_path_factory):
    """Return a folder with a tiny model and data of its own: every run has to find the same rows and the same start."""
    folder = tmp_path_factory.mktemp("zero3")
    build_tiny_model(folder / "model")
    build_instructions(folder / "instructions", {"stage1": 16, "stage2": 4, "test": 2})
    return folder


def arguments(folder: Path, output: Path, **more: object) -> list[object]:
    paths = {"model_name_or_path": folder / "model", "dataset_name": folder / "instructions"}
    return ["recipes/sft.py", *flags(**{"config": SMALL, "output_dir": output} | paths | more)]


def small(folder: Path, output: Path, **more: object) -> list[object]:
    return arguments(folder, output, **ROWS["eight updates"], **more)


def start(
    recipe: list[object],
    log: Path,
    limit: Callable[[], None] | None = None,
    machine: str = "zero3_cpu",
    options: Sequence[object] = (),
    **environment: str,
) -> subprocess.Popen:
    """Start `accelerate launch` on a machine's description with more options; what it prints goes to a file."""
    datasets = str(log.parent / "datasets")
    environment |= {"OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": datasets}
    file = f"accelerate_configs/{machine}.yaml"
    command = [BINARIES / "accelerate", "launch", "--config_file", file, *options, *recipe]
    with open(log, "wb") as stream:
        return subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            preexec_fn=limit,
        )


def kill(process: subprocess.Popen) -> None:
    """Kill a launcher and all that it started: torch gives every worker a process group of its own."""
    if process.poll() is None:
        launcher = psutil.Process(process.pid)
        for each in [launcher, *launcher.children(recursive=True)]:
            each.send_signal(signal.SIGKILL)
    process.wait()


def start_and_kill(recipe: list[object], output: Path) -> None:
    """Start a run that writes to `output`, and kill it when its second checkpoint is whole."""
    process = start(recipe, output.with_suffix(".log"))
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


def ran(
    recipe: list[object], output: Path, status: int = 0, end: str = "", **options: object
) -> str:
    """Run a recipe; return what it printed. It ends with the status, or with an abort behind the text `end`.

    The threads of gloo may abort a program of others while the interpreter shuts down (pytorch issue 179291).
    """
    log = output.with_suffix(".log")
    process = start(recipe, log, **options)
    try:
        process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        kill(process)
        pytest.fail(f"not done after {TIMEOUT} s:\n{log.read_text(errors='replace')[-3000:]}")
    printed = log.read_text(errors="replace")
    aborted = "terminate called without an active exception" in printed.partition(end or "\0")[2]
    assert process.returncode == status or aborted, printed[-3000:]
    return printed


def errors(printed: str) -> set[str]:
    """Return the errors that the recipe's processes printed, each once; none of them printed a traceback."""
    assert 'recipes/sft.py", line' not in printed, printed[-3000:]
    return {line for line in printed.splitlines() if line.startswith("error: ")}


@module_fixture
def uninterrupted(folder):
    """Return what a run leaves that nobody disturbs, and what it prints."""
    output = folder / "uninterrupted"
    return output, ran(small(folder, output), output)


@module_fixture
def killed(folder, uninterrupted):
    """Return what a run leaves that is killed when its second checkpoint is whole."""
    output = folder / "killed"
    start_and_kill(small(folder, output), output)
    return output


def test_two_processes_train_one_model(folder, uninterrupted):
    output, printed = uninterrupted
    assert printed.count("stage1: 16 rows, ") == 1  # one process speaks for both
    assert "4 rows an update" in printed
    assert len(losses(output)) == 8
    identity = read_record(output)["identity"]
    assert (identity["processes"], identity["launcher"]) == (2, "ZeRO-3")
    assert read_record(output)["versions"]["deepspeed"]
    assert any(changed(folder / "model", output))
    after = load_file(output / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in after.values())
    for dtype in (torch.float32, torch.bfloat16):
        loaded = AutoModelForCausalLM.from_pretrained(output, dtype=dtype, use_safetensors=True)
        assert torch.equal(loaded.model.norm.weight, after["model.norm.weight"].to(dtype))
    left = {path.name for path in output.rglob("*") if path.is_file()}
    assert not [name for name in left if name.endswith((".bin", ".pt", ".pth", ".pkl", ".py"))]
    assert not list(output.glob("checkpoint-*"))


def test_the_schedule_is_that_of_the_run(uninterrupted):
    rates = logged(uninterrupted[0], "learning_rate")
    assert rates == pytest.approx(ROWS["their rates"])


def weights_in(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_killed_it_goes_on_to_the_same_weights(folder, killed, uninterrupted):
    output = folder / "resumed"
    recipe = small(folder, folder / "resumed")
    shutil.copytree(killed, output)
    refused = errors(ran(recipe, output, 1, machine="single"))
    assert "holds another run: launcher was 'ZeRO-3', now None" in str(refused)
    assert f"resuming from {output}/checkpoint-4" in ran(recipe, output)
    assert losses(output) == losses(uninterrupted[0])  # exactly
    assert weights_in(output) == weights_in(uninterrupted[0])


def test_two_hosts_train_what_two_processes_of_one_do(folder, uninterrupted):
    """The second starts first, and waits; whether the run is finished it is told by the first."""
    output = folder / "hosts"
    port = free_port()
    for _ in range(2):
        hosts = []
        for rank in (1, 0):
            options = ROWS["two hosts"] | {"machine_rank": rank, "main_process_port": port}
            log = folder / f"host{rank}.log"
            recipe = small(folder, output)
            hosts.append(start(recipe, log, machine="zero3_multinode", options=flags(**options)))
            time.sleep(5 * rank)
        assert [host.wait(TIMEOUT) for host in hosts] == [0, 0], log.read_text()[-3000:]
    assert "this run is finished already" in log.read_text()
    assert weights_in(output) == weights_in(uninterrupted[0])


def test_an_adapter_is_gathered_and_a_killed_run_goes_on_to_the_same_one(
    folder,
):
    """With activations computed twice, which meets the frozen weights once more in the backward pass."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    pytest.importorskip("peft")
    name = "adapter_model.safetensors"
    lora = ROWS["an adapter"]
    whole, second, killed = (folder / f"adapter{which}" for which in ("", "-2", "-killed"))
    assert ran(small(folder, whole, **lora), whole).count("stage1: 16 rows, ") == 1
    adapter = load_file(whole / name)
    for key in (key for key in adapter if key.endswith(".lora_B.weight")):
        assert adapter[key].abs().max() > 0.01  # trained: it starts as zero
    assert not (whole / "model.safetensors").exists()
    # The next stage goes on from the adapter, on the weights that the processes share.
    stage2 = {"model_name_or_path": whole, "dataset_train_split": "stage2"}
    ran(small(folder, second, **lora, **stage2), second)
    later = load_file(second / name)
    assert all((later[key] != adapter[key]).any() for key in adapter)
    # What is gathered, beside DeepSpeed's own reader of the parts that each process holds.
    start_and_kill(small(folder, killed, **lora), killed)
    parts = get_fp32_state_dict_from_zero_checkpoint(str(killed / "checkpoint-4"))
    for key, weight in load_file(killed / "checkpoint-4" / name).items():
        assert torch.equal(weight, parts[key.replace(".weight", ".default.weight")]), key
    assert f"resuming from {killed}/checkpoint-4" in ran(small(folder, killed, **lora), killed)
    assert losses(killed) == losses(whole)
    assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_a_disk_that_fills_up_spares_the_whole_checkpoints(folder, killed):
    output = folder / "full"
    shutil.copytree(killed, output)
    (written,) = output.glob("checkpoint-4/global_step4/zero_pp_rank_0_*_optim_states.pt")
    size = written.stat().st_size - 1  # the weights fit, the optimizer's states do not

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    ran(small(folder, output), output, 1, limit=limit)
    assert not (output / "checkpoint-6" / WHOLE).exists()
    assert not read_record(output)["finished"]
    for name in ("checkpoint-2", "checkpoint-4"):
        before, after = (sizes(place / name) for place in (killed, output))
        assert before == after


def sizes(folder: Path) -> dict[Path, int]:
    """Return the size of each file in a folder."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.stat().st_size for path in found}


def test_a_judge_rewards_the_completions_of_two_processes(folder):
    # ZeRO-3 splits the weights of the model that is trained, and leaves those of the judge whole.
    output, settings, prompts = (folder / name for name in ("grpo", "reward.yaml", "prompts"))
    settings.write_text(f"judge: {folder / 'model'}\n")
    row = {"prompt": [{"role": "user", "content": "A question?"}], "reference": "Rest."}
    write(prompts / "train.jsonl", [row] * 6)
    options = {"model_name_or_path": folder / "model", "dataset_name": prompts}
    options |= ROWS["three updates by a reward"] | {"output_dir": output}
    program = ["-m", "trl.scripts.grpo", *flags(**options)]
    ran(program, output, end="Model saved to", AUTOMEDEVAL_REWARD=str(settings))
    state = read_json(output / "checkpoint-3/trainer_state.json")
    assert len(list(output.glob("checkpoint-3/rng_state_*.pth"))) == 2  # one of each process
    rewards = [line for line in state["log_history"] if "judge/valid_rate" in line]
    assert [line["judge/valid_rate"] for line in rewards] == [1, 1, 1]
    assert all(1 <= line["reward"] <= 5 for line in rewards)
    assert any(changed(folder / "model", output)), rewards


def test_what_the_first_process_finds_is_one_error_of_all(folder):
    data = folder / "single"
    output = folder / "none"
    build_instructions(data, {"stage1": 1, "test": 1})
    messages = errors(ran(arguments(folder, output, dataset_name=data), output, 1))
    assert messages == {f"error: {data}, stage1: 1 rows for 2 processes; start fewer"}
    assert not output.exists()
    (_,) = errors(ran(arguments(folder, folder / "model/config.json"), output, 1))
