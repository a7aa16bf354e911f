"""The study as a script: which commands it runs in which order, where each starts, and what an ablation changes."""

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from programs import ROOT

SMALL = "recipes/runs/automedeval-135m"


def study(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess, list[list[str]]]:
    """Run the script with a stand-in for Python that notes what it was asked to run; return what happened and the notes."""
    log, python = tmp_path / "commands", tmp_path / "python"
    log.unlink(missing_ok=True)
    python.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >> {log}\nprintf "\\n" >> {log}\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    command = ["bash", "recipes/reproduce.sh", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHON": str(python)}, timeout=60
    )
    noted = log.read_text().splitlines() if log.exists() else []
    return done, [line.split("\0")[:-1] for line in noted]


def steps(commands: list[list[str]]) -> list[str]:
    """Return each command's recipe and the name of its YAML."""
    told = []
    for words in commands:
        recipe = next(word for word in words if word.startswith("recipes/") and word.endswith(".py"))
        told.append(f"{Path(recipe).stem} {Path(option(words, '--config')).stem}")
    return told


def option(words: list[str], name: str) -> str | None:
    """Return the value of an option, the last one given."""
    places = [place for place, word in enumerate(words) if word == name]
    return words[places[-1] + 1] if places else None


def resolved(words: list[str]) -> dict:
    """Return the arguments of a command: its YAML's, with those of the command line in their place."""
    values = yaml.safe_load((ROOT / option(words, "--config")).read_text())
    return values | {word[2:]: words[place + 1] for place, word in enumerate(words) if word.startswith("--") and place}


def report_of(commands: list[list[str]]) -> dict:
    """Return the arguments of the report."""
    return next(resolved(words) for words in commands if "recipes/meta_evaluate.py" in words)


def test_the_small_study_from_top_to_bottom(tmp_path: Path) -> None:
    done, commands = study(tmp_path, SMALL)
    assert done.returncode == 0, done.stderr
    assert steps(commands) == [
        "build_store build_store",
        "distill distill_strong",
        "distill distill_weak",
        "build_dataset build_dataset",
        "judge judge",
        "judge judge_likelihood",
        *("sft stage1", "judge judge", "sft stage2", "judge judge", "sft stage3", "judge judge"),
        *("judge judge", "introspect introspect1", "sft introspection1", "judge judge"),
        "meta_evaluate report",
        *("judge judge_likelihood_rated", "calibrate calibrate", "compare compare", "audit audit"),
    ]
    assert "public questions: left out" in done.stdout


def test_each_training_starts_where_the_last_ended_and_is_judged(tmp_path: Path) -> None:
    _, commands = study(tmp_path, SMALL)
    before = None
    for place, words in enumerate(commands):
        if "recipes/sft.py" in words:
            run = resolved(words)
            assert before is None or run["model_name_or_path"] == before
            before = run["output_dir"]
            judged = resolved(commands[place + 1])
            assert judged["judge"] == before
            assert judged["judge_name"] == Path(option(words, "--config")).stem
    place = next(place for place, words in enumerate(commands) if "recipes/introspect.py" in words)
    judged, introspect = resolved(commands[place - 1]), resolved(commands[place])
    assert (judged["output"], judged["cases"]) == (introspect["verdicts"], introspect["cases"])
    assert introspect["dataset"] == "instructions/sample"
    assert report_of(commands)["rounds"] == "stage3,introspection1"
    audit = resolved(commands[-1])
    assert (audit["judge"], audit["judge_name"]) == (before, "introspection1")


def test_more_rounds_than_there_are_files_are_left_out_and_said(tmp_path: Path) -> None:
    done, commands = study(tmp_path, SMALL, "--rounds", "2")
    assert "round 2: left out, there is no" in done.stdout
    assert report_of(commands)["rounds"] == "stage3,introspection1"


def test_several_runs_differ_in_seed_and_place(tmp_path: Path) -> None:
    _, commands = study(tmp_path, SMALL, "--runs", "2", "--rounds", "0")
    runs = [resolved(words) for words in commands if "recipes/sft.py" in words]
    assert [int(run["seed"]) for run in runs] == [0, 0, 0, 1, 1, 1]
    assert runs[3]["output_dir"] == "checkpoints/sample-stage1-run2"
    assert runs[4]["model_name_or_path"] == "checkpoints/sample-stage1-run2"
    assert runs[3]["model_name_or_path"] == "models/SmolLM2-135M-Instruct"
    assert len({run["output_dir"] for run in runs}) == 6
    names = [
        resolved(words)["judge_name"] for words in commands if "recipes/judge.py" in words and "--judge_name" in words
    ]
    assert names == ["stage1", "stage2", "stage3", "stage1-run2", "stage2-run2", "stage3-run2"]


@pytest.mark.parametrize("folder", [SMALL, "recipes/runs/automedeval-13b"])
@pytest.mark.parametrize(
    ("ablation", "trained", "dataset"),
    [
        ("no_chain", ["stage1", "stage2", "stage3", "introspection1"], "-no_chain"),
        ("no_curriculum", ["no_curriculum", "introspection1"], ""),
        ("no_introspection", ["stage1", "stage2", "stage3"], ""),
        ("vanilla", ["vanilla"], "-vanilla"),
    ],
)
def test_an_ablation_changes_what_its_name_says(
    tmp_path: Path, folder: str, ablation: str, trained: list[str], dataset: str
) -> None:
    done, commands = study(tmp_path, folder, "--ablation", ablation)
    assert done.returncode == 0, done.stderr
    runs = [words for words in commands if "recipes/sft.py" in words]
    assert [Path(option(words, "--config")).stem for words in runs] == trained
    built = next(resolved(words) for words in commands if "recipes/build_dataset.py" in words)
    assert built["output"].endswith(dataset)
    assert re.search(r"-no|-vanilla", built["output"]) is None or dataset
    if ablation != "no_curriculum":
        assert resolved(runs[0])["dataset_name"] == built["output"]
    taught = [resolved(words)["knowledge"] for words in commands if "recipes/distill.py" in words]
    assert taught == ["none" if ablation == "no_chain" else "chain"] * 2
    assert ("plan_vanilla" in str(built["plan"])) == (ablation == "vanilla")
    assert built.get("require_digest") == ("true" if ablation == "no_chain" else None)
    normal, _ = study(tmp_path, folder)
    assert normal.returncode == 0
    # What an ablation leaves never lies where the study's own lies.
    plain = {resolved(words)["output_dir"] for words in study(tmp_path, folder)[1] if "recipes/sft.py" in words}
    if ablation != "no_introspection":
        assert {resolved(words)["output_dir"] for words in runs}.isdisjoint(plain)
    audits = [resolved(words)["output"] for words in commands if "recipes/audit.py" in words]
    assert audits == (
        [f"reports/sample-audit{'' if ablation == 'no_introspection' else '-' + ablation}"] if folder == SMALL else []
    )


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nowhere"],
        [SMALL, "--rounds"],
        [SMALL, "--rounds", "many"],
        [SMALL, "--ablation", "none"],
        [SMALL, "-x", "1"],
    ],
)
def test_what_it_cannot_do_is_told_by_its_usage(tmp_path: Path, arguments: list[str]) -> None:
    done, commands = study(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert commands == []


def test_a_step_that_fails_ends_the_study(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o700)
    command = ["bash", "recipes/reproduce.sh", SMALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHON": str(python)})
    assert done.returncode == 3
    assert "weak teacher" not in done.stdout
