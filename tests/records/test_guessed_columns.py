"""Which columns of a table are guessed to be candidates' answers, and when nobody can tell."""

import csv
from pathlib import Path

import pytest
from programs import run_command

QUESTIONS = [
    "How long does flu last?",
    "What is a normal pulse?",
    "May I take ibuprofen?",
    "Is a fever of 39 dangerous?",
]
QUESTIONS += ["Do colds need antibiotics?", "How much water a day?"]
ANSWERS = {
    "v1": [
        "About a week.",
        "60 to 100.",
        "With food, yes.",
        "In a baby, yes.",
        "No, they are viral.",
        "About two litres.",
    ],
    "v2": ["A few days.", "70 or so.", "Ask a pharmacist.", "Call a doctor.", "Never.", "Eight glasses of water."],
}
BESIDE = {
    "reviewer notes": ["looks fine, but check", "hm, ok I think", "good", "see above", "unsure", "fine I guess"],
    "system_prompt": ["You are a nurse."] * 6,
    "Setup": ["You are a doctor. Answer briefly: " + question for question in QUESTIONS],
    "template": [f"Question: {question}\nAnswer:" for question in QUESTIONS],
    "contact": [f"person{number}@clinic.invalid" for number in range(6)],
    "page": [f"https://clinic.invalid/{number}" for number in range(6)],
    "retrieved_docs": [f"Passage {number} says that rest helps." for number in range(6)],
    "context": [f"A long passage about topic {number}." for number in range(6)],
    "crash": [
        "ValueError: no",
        "Traceback (most recent call last):\n  File",
        "KeyError",
        "IOError",
        "OSError",
        "TypeError",
    ],
    "level": ["easy", "hard", "easy", "hard", "easy", "easy"],
    "sent": [f"<|im_start|>user\n{question} Be brief.<|im_end|>\n<|im_start|>assistant\n" for question in QUESTIONS],
    "wish": [f"{question} Answer in three sentences, as a kind doctor would." for question in QUESTIONS],
    "persona": [f"Act as a nurse of ward {number}." for number in range(6)],
    "who": [f"Person {number} <person{number}@clinic.invalid>" for number in range(6)],
    "java": [f"java.io.{word}Exception: no" for word in ("IO", "EOF", "File", "Socket", "Sql", "Null")],
    "comment 1": ["looks fine, but check", "hm, ok I think", "good", "see above", "unsure", "fine I guess"],
    "prompt_id": ["one x", "two x", "three x", "four x", "five x", "six x"],
    "size": [f"{number} tokens" for number in range(6)],
    "scan": [f"scans/{number}.pdf" for number in range(6)],
}


def judged(folder: Path, columns: dict[str, list[str]], *options: str):
    folder.mkdir(exist_ok=True)
    file = folder / "answers.csv"
    with open(file, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["question", *columns], *zip(QUESTIONS, *columns.values(), strict=True)])
    return run_command("judge", file, "--judge", "baseline:longer text", "--output", folder / "out", *options)


@pytest.mark.parametrize("name", BESIDE)
def test_a_column_of_other_texts_is_no_candidate(name, tmp_path):
    done = judged(tmp_path, {**ANSWERS, name: BESIDE[name]})
    assert done.returncode == 0, done.stderr
    assert f"read: question, v1, v2 (answers); not read: {name};" in done.stdout


def test_all_of_them_are_left_out_together_and_the_option_takes_one(tmp_path):
    columns = {**BESIDE, **ANSWERS}
    done = judged(tmp_path, columns)
    assert f"not read: {', '.join(BESIDE)};" in done.stdout
    named = judged(tmp_path / "named", columns, "--columns", "question=question", "v1", "crash")
    assert named.returncode == 0, named.stderr
    assert "v1, crash (answers)" in named.stdout


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("Checked", ["Anna", "Ben Smith", "Dr. Chen", "Anna B.", "Dora", "Eve"], "look like names"),
        ("code", ["ab", "bc", "cd", "de", "ef", "fg"], "far shorter"),
        ("article", [f"{number}. " + "Influenza is a viral disease. " * 30 for number in range(6)], "far longer"),
        (
            "v1_rationale",
            [f"Right, but long, as of {number} sentences." for number in range(6)],
            "named as what stands beside",
        ),
        (
            "v1 reasoning",
            [f"The user asks about {number} things." for number in range(6)],
            "named as what stands beside",
        ),
        ("question_de", [f"Wie lange dauert Grippe {number}?" for number in range(6)], "named as what stands beside"),
        ("risk", ["low", "high", "medium"] * 2, "the same few values"),
        ("scores", [f'{{"a": {number}}}' for number in range(6)], "are data"),
    ],
)
def test_a_doubtful_column_stops_the_run_with_one_line(name, cells, why, tmp_path):
    longer = {model: [f"{text} {text} {text}" for text in texts] for model, texts in ANSWERS.items()}
    columns = {**longer, "notes": BESIDE["reviewer notes"], name: cells}
    done = judged(tmp_path, columns)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert f"{name!r} may hold a candidate's answers, or something else" in line
    assert why in line
    assert "taken for answers: v1, v2; left out: notes; say it by --columns question=NAME" in line
    assert judged(tmp_path, columns, "--columns", "question=question", "v1", name).returncode == 0


def test_candidates_that_all_answer_in_json_are_candidates(tmp_path):
    columns = {model: [f'{{"text": "{text}"}}' for text in texts] for model, texts in ANSWERS.items()}
    assert "read: question, v1, v2 (answers);" in judged(tmp_path, columns).stdout
