"""Which columns of a table are guessed to be candidates' answers, and when nobody can tell."""

from itertools import cycle
from pathlib import Path

import pytest
from programs import error_line, run_command, succeeded
from tables import rows_of, write_csv

TABLES = rows_of(__file__)
QUESTIONS, ANSWERS = TABLES["questions"], TABLES["answers"]


def cells_of(given: str | list[str]) -> list[str]:
    if isinstance(given, list):
        return given
    return [
        given.format(number=number, question=question) for number, question in enumerate(QUESTIONS)
    ]


BESIDE = {name: cells_of(given) for name, given in TABLES["beside"].items()}


def judged(folder: Path, columns: dict[str, list[str]], *options: str):
    folder.mkdir(exist_ok=True)
    rows = zip(QUESTIONS, *columns.values())  # as many as the shortest column has
    file = write_csv(folder / "answers.csv", ["question", *columns], rows)
    return run_command(
        "judge", file, "--judge", "baseline:longer text", "--output", folder / "out", *options
    )


def test_columns_of_other_texts_are_no_candidates_and_the_option_takes_one(tmp_path):
    columns = {**BESIDE, **ANSWERS}
    done = succeeded(judged(tmp_path, columns))
    assert f"read: question, v1, v2 (answers); not read: {', '.join(BESIDE)};" in done.stdout
    named = succeeded(
        judged(tmp_path / "named", columns, "--columns", "question=question", "v1", "Datum")
    )
    assert "v1, Datum (answers)" in named.stdout


@pytest.mark.parametrize(
    ("name", "given", "why"), TABLES["test_a_doubtful_column_stops_the_run_with_one_line"]
)
def test_a_doubtful_column_stops_the_run_with_one_line(name, given, why, tmp_path):
    longer = {
        model: [f"{text} {text} {text}" for text in texts] for model, texts in ANSWERS.items()
    }
    columns = {**longer, "notes": BESIDE["reviewer notes"], name: cells_of(given)}
    done = judged(tmp_path, columns)
    line = error_line(done)
    assert done.stderr.strip() == line
    assert f"{name!r} may hold a candidate's answers, or something else" in line
    assert why in line
    assert "taken for answers: v1, v2; left out: notes; say it by --columns question=NAME" in line
    assert (
        judged(
            tmp_path, columns, "--columns", "question=question", "v1", name, "--blank", "skip"
        ).returncode
        == 0
    )


@pytest.mark.parametrize("name", TABLES["test_a_column_that_may_be_the_reference_stops_the_run"])
def test_a_column_that_may_be_the_reference_stops_the_run(name, tmp_path):
    done = judged(tmp_path, {**ANSWERS, name: cells_of("The textbook says {number} days.")})
    assert f"{name!r} may be the reference, or a candidate's responses" in error_line(done)


NUMBERED = [
    ("answer_1", "answer_2"),
    ("response_1", "response_2"),
    ("model_1", "gpt4"),
    ("qwen-thinking", "qwen2"),
    ("gpt", "gpt real time"),
    ("gpt at", "v2"),
    ("HuatuoGPT-o1", "ChatDoctor", "meta-llama/Llama-3.1-8B"),
    ("MedPaLM", "kimi-k2:thinking"),
]


@pytest.mark.parametrize(
    ("names", "form"),
    [
        *((names, "{}") for names in NUMBERED),
        (("standard", "best-v2"), "{}"),
        (("v1", "v2"), '{{"text": "{}"}}'),
    ],
)
def test_names_of_versions_and_candidates_that_all_answer_in_json_are_candidates(
    names, form, tmp_path
):
    columns = {
        name: [form.format(text) for text in texts]
        for name, texts in zip(names, cycle(ANSWERS.values()))
    }
    assert f"read: question, {', '.join(names)} (answers);" in judged(tmp_path, columns).stdout
