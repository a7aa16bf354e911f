"""The scripts of whole studies: their steps, where each reads what an earlier one wrote, and how they stop and go on."""

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rehearse
from doubles.stand_ins import BROUGHT
from factories import read_yaml
from programs import ROOT
from project.test_docs import faults
from study_scripts import RUNS, SCRIPTS, arguments, dry_run, of, program, script, steps
from tables import rows_of

from automedeval.rubrics import read_rubric

PAPER = ROOT / RUNS / "automedeval-13b"
ROWS = rows_of(__file__)
STEPS = {name: words.split() for name, words in ROWS["steps"].items()}
FLAGS = ROWS["flags"]
SPLITS = ROWS["splits"]
WRITTEN = r"(?<![\w/])(?:cases|responses|verdicts|instructions|checkpoints|stores|reports|ratings|demo)/[\w./-]+"
OUTPUTS = {"output", "output_dir", "store"}


@pytest.mark.parametrize("name", STEPS)
def test_a_study_from_top_to_bottom(name):
    assert steps(dry_run(name)) == STEPS[name]


def test_nothing_is_sent_to_the_hub_and_the_demo_writes_beside_the_small_study():
    assert all(each["dry_run"] for each in of(dry_run("paper"), "publish"))
    for values in map(arguments, dry_run("demo")):
        written = [values[name] for name in OUTPUTS & values.keys()]
        assert {Path(path).parts[0] for path in written} <= {"demo", "none"}  # --store none


def test_every_yaml_is_of_a_step_of_the_study_or_of_a_variant():
    printed = "".join(script(name, "--dry_run").stdout for name in SCRIPTS)
    for file in PAPER.glob("*.yaml"):
        assert f"/{file.name}" in printed or file.name.startswith("annotate")


@pytest.mark.parametrize("name", SCRIPTS)
def test_trainings_of_a_study_differ_only_in_where_they_start_and_what_they_read(name):
    """A stage or an ablation that changed anything else at the same time would compare nothing."""
    for words in dry_run(name):
        if program(words) == "sft":
            flags = {word for word in words[words.index("--config") + 1 :] if word[:2] == "--"}
            assert flags <= {*FLAGS["all"].split(), *FLAGS.get(name, "").split()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_command_is_right_and_reads_what_is_there(name):
    """Each option is known and none missing; each path is written by an earlier step, brought, or in the repository."""
    commands = dry_run(name)
    assert [fault for words in commands for fault in faults(words)] == []
    study = dry_run("paper") if "variants.sh" in SCRIPTS[name][0] else []  # before a variant
    # what the small programs beside a script write
    made = {*BROUGHT, "verdicts/feedbackqa/data"}
    made |= {f"verdicts/feedbackqa/partners-{arm}.jsonl" for arm in "IX"}
    for words in study + commands:
        values = arguments(words)
        outputs = OUTPUTS & values.keys()
        if program(words) != "build_store":
            outputs -= {"store"}
        for key in values.keys() - outputs:
            for path in re.findall(WRITTEN, str(values[key])):
                above = {path, *map(str, Path(path).parents)}
                assert above & made, f"{words}: {key}: nothing writes {path}"
        made |= {values[key] for key in outputs}


@pytest.mark.parametrize("name", ["demo", "small", "paper", "no_chain", "no_curriculum", "lora"])
def test_each_training_starts_where_the_last_ended_and_the_rounds_read_its_verdicts(
    name,
):
    commands = dry_run(name)
    runs = of(commands, "sft")
    for before, run in pairwise(runs):
        assert run["model_name_or_path"] == before["output_dir"]
    audit = of(commands, "audit")[0]
    assert audit["judge"] == runs[-1]["output_dir"]
    for before, words in pairwise(commands):
        if program(words) == "introspect_discuss":
            judged = arguments(before)
            this = arguments(words)
            assert (judged["output"], judged["dataset"]) == (this["verdicts"], this["dataset"])
            assert judged["cases"] in this["cases"]


def test_the_test_set_is_that_of_the_paper():
    """958 cases of wikidoc and 172 of MedText, four candidates each (section 4.1), read by judge and report."""
    commands = dry_run("paper")
    by = dict(zip(steps(commands), map(arguments, commands)))
    built = by["build_dataset:wikidoc"]
    test = by["generate_responses:test"]
    assert read_yaml(ROOT / built["plan"])["test"]["take"] == 958
    assert by["prepare:medtext"]["sample"] == "172"
    assert by["prepare:test"]["ids"].split(",")[0] == f"{built['output']}/test.parquet"
    training = by["generate_responses:wikidoc"]["candidates"]
    new = test["candidates"].split(",")
    assert (new[:2], len(new)) == (training, 4)
    assert int(test["candidates_per_case"]) == read_rubric("automedeval").max_responses
    formats = (ROOT / test["chat_template_path"]).glob("*.jinja")
    assert {file.stem for file in formats} == {Path(model).name for model in new}
    readers = [by["judge:introspection2"], *of(commands, "report"), *of(commands, "audit")]
    assert {each["cases"] for each in readers} == {f"{test['output']}/cases.jsonl"}


def test_every_judge_of_table_2_judges_the_test_cases_three_times():
    commands = [words for words in dry_run("paper") if "--runs" in words]
    judges = [judge for judge in map(arguments, commands) if "judge" in judge]
    assert [judge["judge"] for judge in judges] == ROWS["judges of Table 2"].split()
    about = ("runs", "temperature", "cases", "output")
    same = ("3", "0.5", "responses/test/cases.jsonl", "verdicts/wikidoc")
    assert {tuple(judge[name] for name in about) for judge in judges} == {same}
    own = {judge["judge"] for judge in judges if judge["rubric"] != "automedeval"}
    assert own == {"models/PandaLM-7B"}


def test_a_variant_changes_what_its_name_says_and_writes_beside_the_study():
    plain = {run["output_dir"] for run in of(dry_run("paper"), "sft")}
    for name in ("no_chain", "no_curriculum", "no_introspection", "out_of_fold", "vanilla", "lora"):
        commands = dry_run(name)
        assert plain.isdisjoint(run["output_dir"] for run in of(commands, "sft"))
        assert of(commands, "report")[0]["output"].endswith(name)
    without = dry_run("no_chain")
    for step in ("distill", "introspect_discuss"):
        assert {values["store"] for values in of(without, step)} == {"none"}
    first, _ = of(dry_run("no_introspection"), "sft")
    assert first["model_name_or_path"] == "checkpoints/wikidoc-stage3"
    for name in ("no_chain", "vanilla"):  # no test case of the study is trained on
        (built,) = of(dry_run(name), "build_dataset")
        assert "cases/test/cases.jsonl" in built["evaluation_cases"]
    assert all(run["use_peft"] for run in of(dry_run("lora"), "sft"))
    assert {run["seed"] for run in of(dry_run("run2"), "sft")} == {"1"}


@pytest.mark.parametrize("name", SPLITS)
def test_the_trainings_of_a_study_read_these_rows(name):
    splits = [run["dataset_train_split"] for run in of(dry_run(name), "sft")]
    assert " ".join(splits) == SPLITS[name]


def test_out_of_fold_the_judge_of_each_half_judges_the_other():
    for before, words in pairwise(dry_run("out_of_fold")):
        trained = arguments(before)
        judged = arguments(words)
        if "split" in judged:
            assert judged["judge"] == trained["output_dir"]
            assert ("[:" in judged["split"]) != ("[:" in trained["dataset_train_split"])


def test_a_round_is_estimated_by_the_one_before(tmp_path):
    words = ["bash", "-c", ROWS["an ended round"], ROOT / RUNS]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == ROWS["its estimate"]


def test_without_physicians_no_verdict_is_verified():
    commands = dry_run("paper", "--unverified")
    built = of(commands, "build_dataset")
    assert [each["verdict_ratings"] for each in built] == ["none", "none"]
    assert steps(commands) == steps(dry_run("paper"))


def test_fewer_gpus_keep_the_rows_of_an_update():
    for gpus in ("1", "4", "8", "16"):
        for run in of(dry_run("paper", GPUS=gpus), "sft"):
            accumulated = int(run["gradient_accumulation_steps"])
            rows = run["per_device_train_batch_size"] * int(gpus) * accumulated
            assert (rows, run["num_processes"]) == (128, gpus)
    done = script("paper", "--dry_run", GPUS="3")
    assert (done.returncode, done.stderr) == (1, "GPUS=3: must divide 64\n")


def test_of_two_hosts_the_second_takes_part_in_the_trainings_alone():
    """Each host starts the same trainings, told apart by their ports; accelerate brings the hosts together."""
    hosts = {"NUM_MACHINES": "2", "MAIN_PROCESS_IP": "10.0.0.1"}
    first = dry_run("paper", **hosts)
    second = dry_run("paper", MACHINE_RANK="1", **hosts)
    assert steps(first) == STEPS["paper"]
    trained = of(first, "sft")
    told = list(map(arguments, second))
    assert [run | {"machine_rank": "0"} for run in told] == trained
    assert {run["machine_rank"] for run in told} == {"1"}
    assert len({run["main_process_port"] for run in told}) == 5


def test_what_is_missing_is_told_with_the_command_that_gets_it_and_nothing_runs():
    done = script("paper")
    assert done.returncode == 1
    assert "==" not in done.stdout
    assert (
        "missing: models/MedAlpaca/tokenizer.json: a candidate of the test set alone (section 4.1), in safetensors. To get it: "
        "python recipes/convert_checkpoint.py --input medalpaca/medalpaca-7b --output models/MedAlpaca\n"
    ) in done.stderr
    told = set(re.findall("(?m)^missing: (.*?)(?:/tokenizer.json|/modules.json)?: ", done.stderr))
    brought = {path for path in BROUGHT if path.startswith(("books/", "models/"))}
    assert told == {path for path in brought if not (ROOT / path).exists()}
    done = script("small", "--runs", "2")
    assert done.returncode == 2
    assert (
        done.stderr == "error: --runs: there are --dry_run and --unverified (docs/reproducing.md)\n"
    )


OWN = """
RUN=mine
. {steps}
step "it works" bash -c 'echo first >> made; echo said' # runs again, as every step does
due answers.jsonl "five doctors' ratings" "automedeval annotate --export ."
step "judged" bash -c 'echo "error: verdicts: no verdict is valid, so that there is nothing to report" >&2; exit 1'
step "it breaks" bash -c 'echo "error: a line" >&2; exit 4'
echo never
"""


def test_a_script_stops_for_people_and_for_a_step_that_fails(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(OWN.format(steps=ROOT / RUNS / "steps.sh"))
    options: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(["bash", file], **options)
    assert (done.returncode, (tmp_path / "made").read_text()) == (1, "first\n")
    assert done.stderr == (
        "answers.jsonl is due: five doctors' ratings. To get it: automedeval annotate --export .; then the same command "
        "goes on from here\n"
    )
    assert done.stdout == "== 1 it works (0 s, logs/mine/01-step.log)\n"
    assert (tmp_path / "logs/mine/01-step.log").read_text() == "said\n"
    people = tmp_path / "people"  # who is asked first
    people.write_text('#!/usr/bin/env bash\necho "{}" > "$1"\n')
    people.chmod(0o755)
    done = subprocess.run(
        ["bash", file], env={"PATH": "/usr/bin:/bin", "PEOPLE": str(people)}, **options
    )
    assert done.returncode == 1
    assert "no verdict is valid: the tables show this judge so" in done.stdout
    assert (
        done.stderr
        == "\nit breaks has failed; the last lines of logs/mine/03-step.log:\nerror: a line\n"
    )
    assert "never" not in done.stdout


def test_a_rehearsal_differs_in_the_listed_keys_alone():
    lengths = {"max_new_tokens", "max_length", "questions", "runs"}  # the true ones
    for file in {*PAPER.glob("*.yaml")} - {PAPER / "teachers.yaml"}:
        real = read_yaml(file)
        small = rehearse.small_yaml(file)
        listed = {*rehearse.SMALLER.get(file.stem, ())} - lengths
        if file.stem.startswith("plan"):
            listed |= {"test", "teachers", "stages"}  # counts
        listed |= {"share"} if file.stem == "counts" else set()
        changed = {key for key in real | small if real.get(key, ...) != small.get(key, ...)}
        assert changed <= listed, file
