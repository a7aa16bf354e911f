"""Names, texts and errors of files on the terminal: no command prints what steers it."""

import random
import unicodedata
from pathlib import Path

import pytest
from doubles.agreement_study import write
from programs import run_command
from tables import rows_of

ESC = "\x1b[31m\x9b2J\x07\u202e\r"  # colour, an empty screen, the bell, the other direction, the line's start again
MODELS = [f"a{ESC}", f"b\n{ESC}forged: 1", "c"]


@pytest.fixture(scope="module")
def hostile_files(tmp_path_factory) -> Path:
    """Write cases, verdicts of two judges, ratings and criteria in which every name and text would steer the terminal."""
    folder, rng = tmp_path_factory.mktemp("screen"), random.Random(0)
    files = {
        name: [] for name in ("cases", "mine", "others", "ratings", "criteria", "labels", "lists")
    }
    for number in range(24):
        about, by = {"case_id": f"c{number}{ESC}"}, {"annotator": f"p{ESC}"}
        responses = [{"model": model, "text": f"{model} {number} {ESC}"} for model in MODELS]
        case = {
            "id": about["case_id"],
            "question": f"Q{number} {ESC}?",
            "topic": f"t{ESC}",
            "responses": responses,
        }
        files["cases"].append(case)
        files["criteria"].append(
            case | {"criteria": [{"criterion": f"k{ESC}", "points": 1, "tags": [f"t{ESC}"]}]}
        )
        for name, judge in (("mine", f"j{ESC}"), ("others", f"k{ESC}")):
            said = {"valid": True, "scores": [rng.randint(1, 5) for _ in MODELS]}
            said = said if number else {"valid": False, "error": f"the server said {ESC}"}
            verdict = {
                "judge": judge,
                "rubric": "automedeval@1",
                "order": [0, 1, 2],
                "models": MODELS,
            }
            files[name].append(about | verdict | said)
        for slot, model in enumerate(MODELS):
            of_model = about | by | {"model": model}
            if number < 16:
                score = files["mine"][-1].get("scores", [1, 2, 3])[slot]
                files["ratings"].append(
                    of_model
                    | {"criterion": f"quality{ESC}", "score": score, "rubric": "automedeval@1"}
                )
            if slot != 1 or number % 2:
                label = "not_met" if slot == 2 else "met"
                files["labels"].append(of_model | {"criterion": f"k{ESC}", "label": label})
            checklist = {"met": [slot < 2], "met_probabilities": [rng.random()]}
            verdict = {
                "judge": f"j{ESC}",
                "rubric": "checklist@1",
                "order": [slot],
                "models": MODELS,
            }
            files["lists"].append(about | verdict | {"valid": True, "checklist": checklist})
    for name, records in files.items():
        write(folder / f"{name}.jsonl", records)
    return folder


COMMANDS = rows_of(__file__)["test_no_command_prints_what_steers_a_terminal"]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_what_steers_a_terminal(hostile_files, tmp_path, monkeypatch, name):
    values = {"NAME": f"n{ESC}", "FIRST": MODELS[0], "LONGER": "baseline:longer text"}
    words = [values.get(word, word) for word in COMMANDS[name].split()]
    monkeypatch.chdir(hostile_files)
    output = [] if "--output" in words else ["--output", tmp_path / "out"]
    done = run_command(*words, *output, *(["--resamples", 100] if words[0] == "report" else []))
    assert done.returncode == (1 if name == "an error" else 0), done.stderr
    said = done.stdout + (done.stderr if name == "an error" else "")
    assert said.strip()
    assert {unicodedata.category(letter) for letter in said.replace("\n", "")}.isdisjoint(
        {"Cc", "Cf", "Zl", "Zp"}
    )
    assert not any(line.startswith("forged") for line in said.splitlines())
