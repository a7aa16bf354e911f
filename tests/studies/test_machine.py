"""The machine of a study: two options reach every step that accelerate launches."""

import os
from pathlib import Path

import pytest
from programs import SAMPLE, processes_of, run_recipe
from study_plan import PAPER, of, option, plan, recipe, reproduce, resolved

from automedeval.records import Verdict, read_records

OFFLOAD = "accelerate_configs/zero3_offload.yaml"
RUN = "recipes/runs/automedeval-135m"


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("variant", [[], ["--ablation", "vanilla"], ["--lora"]])
def test_the_options_reach_every_step_that_accelerate_launches(count: int, variant: list[str]) -> None:
    before = plan(PAPER, *variant)
    commands = plan(PAPER, *variant, "--num_processes", count, "--accelerate_config", OFFLOAD)
    launched = [words for words in commands if "accelerate.commands.accelerate_cli" in words]
    assert {recipe(words) for words in launched} == {"generate_responses", "judge", "sft", "audit"}
    for words in launched:
        assert words[3:9] == [
            "launch",
            "--config_file",
            OFFLOAD,
            "--num_processes",
            str(count),
            f"recipes/{recipe(words)}.py",
        ]
    assert [words for words in commands if words not in launched] == [
        words for words in before if "accelerate.commands.accelerate_cli" not in words
    ]
    for run in of(commands, "sft"):  # Paper: 2 a GPU × 8 × 8 GPUs
        assert run["per_device_train_batch_size"] * int(run["gradient_accumulation_steps"]) * count == 128


def test_processes_alone_keep_the_files_of_the_yamls_and_a_file_alone_has_its_own_processes() -> None:
    words = next(words for words in plan(PAPER, "--num_processes", 2) if recipe(words) == "sft")
    assert (option(words, "--config_file"), option(words, "--num_processes")) == ("accelerate_configs/zero3.yaml", "2")
    words = next(
        words
        for words in plan(PAPER, "--accelerate_config", "accelerate_configs/single.yaml")
        if recipe(words) == "sft"
    )
    assert option(words, "--num_processes") is None
    assert resolved(words)["gradient_accumulation_steps"] == "64"


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, ["--num_processes", 3], "stage1.yaml: 3 processes cannot share the 128 rows of an update evenly"),
        (
            None,
            ["--lora", "--num_processes", 2],
            "accelerate_configs/single.yaml is of one process; --accelerate_config names",
        ),
        (None, ["--accelerate_config", "nowhere.yaml"], "nowhere.yaml: [Errno 2] No such file or directory"),
        ("- a", [], "machine.yaml: must be a mapping"),
        ("num_processes: many", [], "machine.yaml: num_processes must be a whole number of at least 1, not 'many'"),
        ("num_processes: 0", [], "machine.yaml: num_processes must be a whole number of at least 1, not 0"),
        ("{num_machines: 2, num_processes: 16}", [], "num_machines: a study runs on one host, not on 2; its steps of"),
        (
            "{num_processes: 8, deepspeed_config: {deepspeed_config_file: no.json}}",
            [],
            "deepspeed_config_file: no.json: there is",
        ),
    ],
)
def test_a_faulty_machine_is_told_in_a_line_before_the_first_step(
    tmp_path: Path, content: str | None, arguments: list[object], message: str
) -> None:
    if content is not None:
        (tmp_path / "machine.yaml").write_text(content)
        arguments = ["--accelerate_config", tmp_path / "machine.yaml"]
    done = reproduce(PAPER, *arguments)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[0]
    assert "==" not in done.stdout


def test_more_processes_than_gpus_are_told_before_the_first_step(tmp_path: Path) -> None:
    """Torch counts the GPUs: here a double of it, of four. A machine without any can still plan the study."""
    (tmp_path / "torch.py").write_text("class cuda:\n    device_count = lambda: 4\n")
    (tmp_path / "nvidia-smi").touch(0o755)
    four = {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    message = "error: {}: 8 processes on a host that has 4 GPUs; for another machine see --num_processes"
    for arguments, where in (
        ([], f"{PAPER}/generate_responses.yaml"),
        (["--accelerate_config", OFFLOAD], OFFLOAD),
        (["--num_processes", 8], f"{PAPER}/generate_responses.yaml"),
    ):
        done = reproduce(PAPER, *arguments, "--dry_run", **four)
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert message.format(where) in done.stderr
    done = reproduce(PAPER, **four)
    assert message.format(f"{PAPER}/generate_responses.yaml") in done.stderr
    assert "==" not in done.stdout
    assert reproduce(PAPER, "--num_processes", 4, "--dry_run", **four).returncode == 0
    assert reproduce(PAPER, "--num_processes", 4, "--dry_run").returncode == 0
    assert "4 GPUs" not in reproduce(RUN, **four).stderr  # its steps take none


def test_a_rehearsal_takes_no_machine() -> None:
    for arguments in (["--num_processes", 2], ["--accelerate_config", OFFLOAD], ["--check_endpoints"]):
        done = reproduce(PAPER, "--rehearse", *arguments)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (
            2,
            "bash recipes/reproduce.sh: error: --rehearse has a machine and an endpoint of its own",
        )


@pytest.mark.slow
def test_a_machine_of_deepspeed_launches_a_judge(tiny_model: Path, tmp_path: Path) -> None:
    """A step that trains nothing takes the processes of the file, and gives the verdicts of one process."""
    pytest.importorskip("deepspeed")
    launch = (
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--config_file",
        "accelerate_configs/zero3_cpu.yaml",
    )
    verdicts = []
    for output, start in ((tmp_path / "two", launch), (tmp_path / "one", ())):
        options = ("--judge", tiny_model, "--cases", SAMPLE / "test_cases.jsonl", "--limit", 4, "--output", output)
        done = run_recipe(
            "judge", *options, "--max_new_tokens", 8, launch=start, env=os.environ | {"DS_ACCELERATOR": "cpu"}
        )
        assert done.returncode == 0, done.stderr
        verdicts.append(
            {(each.case_id, each.order): each.scores for each in read_records(output / "verdicts.jsonl", Verdict)}
        )
        assert processes_of(output) == (2 if start else 1)
    assert verdicts[0] == verdicts[1]
