"""Names, texts and errors of files on the terminal: no command prints what steers it."""

import random
import subprocess
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path

from doubles.agreement_study import write
from programs import module_fixture, run_command
from tables import each_row, rows_of, with_words

ESC = "\x1b[31m\x9b2J\x07\u202e\r"  # colour, an empty screen, the bell, the other direction, the line's start again
MODELS = [f"a{ESC}", f"b\n{ESC}forged: 1", "c"]


@module_fixture
def hostile_files(tmp_path_factory) -> Path:
    """Write cases, verdicts, ratings and criteria in which every name and text would steer the terminal."""
    folder = tmp_path_factory.mktemp("screen")
    rng = random.Random(0)
    files = defaultdict(list)
    for number in range(24):
        words = {"NUMBER": number, "ESC": ESC, "FIRST": MODELS[0], "SECOND": MODELS[1]}
        given = with_words(rows_of(__file__)["hostile records"], **words)
        files["cases"].append(given["case"])
        files["criteria"].append(given["case"] | {"criteria": given["criteria"]})
        scores = [rng.randint(1, 5) for _ in MODELS]
        files["mine"].append(given["verdict"] | {"scores": scores})
        for slot, model in enumerate(MODELS):
            met = {"met": [slot < 2], "met_probabilities": [rng.random()]}
            files["lists"].append(given["checklist"] | {"order": [slot], "checklist": met})
            label = {"model": model, "label": "met" if slot < 2 else "not_met"}
            files["labels"].append(given["label"] | label)
            if number < 16:
                rating = {"model": model, "score": scores[slot]}
                files["ratings"].append(given["rating"] | rating)
    files["mine"][0] |= given["failed"]
    for name, records in files.items():
        write(folder / f"{name}.jsonl", records)
    return folder


def test_a_reader_that_stops_reading_stops_no_command(hostile_files, tmp_path):
    """As of `| head -3`: the work is done, without an error."""
    words = ["judge", "cases.jsonl", "--judge", "baseline:random", "--output"]
    command = [sys.executable, "-m", "automedeval.cli.console", *words, str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": hostile_files}
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(), "error" in said.lower()) == (0, False), said
    assert (tmp_path / "out/verdicts.jsonl").read_text().count("\n") == 24


@each_row("command")
def test_no_command_prints_what_steers_a_terminal(hostile_files, tmp_path, monkeypatch, command):
    values = {"NAME": f"n{ESC}", "FIRST": MODELS[0], "LONGER": "baseline:longer text"}
    values["OUT"] = tmp_path / "out"
    monkeypatch.chdir(hostile_files)
    done = run_command(*[values.get(word, word) for word in command.split()])
    is_fault = "--main_judge NAME" in command
    assert done.returncode == is_fault, done.stderr
    said = done.stdout + (done.stderr if is_fault else "")
    steering = {unicodedata.category(letter) for letter in said.replace("\n", "")}
    assert said.strip()
    assert steering.isdisjoint({"Cc", "Cf", "Zl", "Zp"})
    assert "\nforged" not in said
