"""The study on FeedbackQA as a script: its commands name files that are there, and one training goes on from the other."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from programs import ROOT

SETS = ("mediqa_train", "feedbackqa_cdc_valid", "mediqa_validation")


def study(place: Path) -> tuple[subprocess.CompletedProcess, list[list[str]]]:
    """Run the script in a folder of its own with a stand-in for Python that notes what it is asked to run."""
    log, python = place / "commands", place / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" >> {log}\nprintf "\\n" >> {log}\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    (place / "recipes").symlink_to(ROOT / "recipes")
    done = subprocess.run(
        ["bash", "recipes/runs/feedbackqa-135m/study.sh"],
        cwd=place, capture_output=True, text=True, env={**os.environ, "PYTHON": str(python)}, timeout=60,
    )  # fmt: skip
    noted = log.read_text().splitlines() if log.exists() else []
    return done, [line.split("\0")[:-1] for line in noted]


def arguments(words: list[str]) -> dict[str, str]:
    """Return the arguments of a command: its YAML's, with those of the command line in their place."""
    given = {word[2:]: words[at + 1] for at, word in enumerate(words) if word.startswith("--")}
    values = yaml.safe_load((ROOT / given["config"]).read_text()) if "config" in given else {}
    return values | given


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    place = tmp_path_factory.mktemp("study")
    (place / "data" / "feedbackqa").mkdir(parents=True)
    done, noted = study(place)
    assert done.returncode == 0, done.stderr
    return noted


def test_without_the_data_nothing_is_run(tmp_path: Path) -> None:
    done, noted = study(tmp_path)
    assert (done.returncode, noted) == (1, [])
    assert done.stderr == "data/feedbackqa: not there; link the folder of the public sets to data\n"


def test_every_recipe_and_rubric_is_there(commands: list[list[str]]) -> None:
    assert all((ROOT / words[0]).exists() for words in commands)
    assert all((ROOT / given["rubric"]).exists() for given in map(arguments, commands) if "rubric" in given)


def test_every_training_has_a_place_of_its_own_and_starts_where_another_ended(commands: list[list[str]]) -> None:
    there = {"models/SmolLM2-135M-Instruct"}
    for given in (arguments(words) for words in commands if words[0] == "recipes/sft.py"):
        assert given["model_name_or_path"] in there
        assert given["output_dir"] not in there
        there.add(given["output_dir"])
    assert len(there) == 1 + 3
    judged = {arguments(words)["judge"].rpartition(":")[2] for words in commands if words[0] == "recipes/judge.py"}
    assert judged <= there


def test_what_is_read_was_written_before(commands: list[list[str]]) -> None:
    written: set[str] = set()
    for given in map(arguments, commands):
        for name in ("dataset_name", "dataset", "verdicts", "fit", "jury", "cases"):
            values = given.get(name, [])
            for value in [values] if isinstance(values, str) else values:
                place = value.partition("=")[2] or value
                assert place.startswith("data/") or any(place.startswith(folder) for folder in written), (name, value)
        written |= {given[name] for name in ("output", "output_dir") if name in given}


def test_all_judges_are_measured_on_both_sets_and_on_no_case_that_taught_them(commands: list[list[str]]) -> None:
    reports = [words for words in commands if words[0] == "recipes/report.py"]
    assert [arguments(words)["cases"] for words in reports] == [f"data/{name}/cases.jsonl" for name in SETS[1:]]
    for words in reports:
        assert sum("=verdicts/feedbackqa-study/" in word for word in words) == 3
    for words in (words for words in commands if words[0] == "recipes/build_dataset.py"):
        held = arguments(words)
        assert held["evaluation_cases"] == [f"data/{name}/cases.jsonl" for name in (*SETS[1:], SETS[0])]
        assert held["on_leak"] == "drop"
    assert {arguments(words)["ratings"] for words in commands if words[0] == "recipes/calibrate.py"} == {
        "data/mediqa_train/ratings.jsonl"
    }
