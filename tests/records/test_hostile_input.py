"""Input that is meant to harm: each gives one line and exit status 1, or is an invalid answer; nothing hangs or is run."""

import json
import os
import re
from pathlib import Path

import pytest
from doubles.agreement_study import read
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.own_rubric import own_rubric
from programs import SAMPLE, error_line, run_command
from tables import each_row, rows_of

ROWS = rows_of(__file__)
DEEP = "[" * 200_000
HALF = r"\ud83d"  # of a character, as JSON escapes it
ALIASES = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)]
CONTENTS = ROWS["contents"] | {
    "DEEP": DEEP,
    "LOOPS": "{% for a in question %}" * 5 + "x" * 500 + "{% endfor %}" * 5,
    "DIGITS": "9" * 5000,
    "BOMB": f"a0: &a0 [{', '.join('x' * 10)}]\n{''.join(ALIASES)}",
    "ALIASES": f"id: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]",
}
REFUSED = ROWS["files"] | {
    f"{kind}: {name}": (kind, "x.yaml", *row)
    for kind in ("a run", "a study", "a rubric")
    for name, row in ROWS["yaml"].items()
}


def filled_in(content):
    """Return a content with what its names in braces stand for, and what follows a name in the place of its `%s`."""

    def meaning(match):
        return CONTENTS[match[1]].replace("%s", match[2])

    return re.sub(r"\{([A-Z]+) ?(.*?)\}", meaning, content)


@pytest.fixture
def good_files(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cases.jsonl").write_text(filled_in("{CASE Rest.}\n"))
    Path("verdicts.jsonl").write_text(filled_in("{VERDICT 5}\n"))
    return tmp_path


def refused_by(reply, *words):
    """Return the line that ends the judging by a model of an endpoint that replies so, and the endpoint."""
    with EndpointDouble(reply) as at:
        words = ("--judge", "openai:m", "--base_url", at.url, "--output", "out", *words)
        return error_line(run_command("judge", *words)), at


@pytest.mark.parametrize(("command", "name", "content", "said"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_harms_is_one_line(good_files, command, name, content, said):
    file = Path(name.rpartition("=")[2])
    words = [*ROWS["commands"][command], name]
    file.write_bytes(content if isinstance(content, bytes) else filled_in(content).encode())
    before = sorted(os.listdir())
    line = error_line(run_command(*words, *(() if command == "a study" else ("--output", "out"))))
    start, _, end = line.partition(f"{file}")
    assert start == "error: "
    assert said in end
    assert len(line) < 400
    assert sorted(set(os.listdir()) - {"out"}) == before


def test_half_a_character_becomes_a_question_mark_wherever_it_comes_in(good_files):
    text = filled_in(f"{{CASE Rest. {HALF}}}\n")
    text = text.replace("c1", f"c1 {HALF}").replace("Flu?", f"Flu {HALF}")
    Path("cut.jsonl").write_text(text)

    def reply(body):
        return answer(good_answer(body)["json"]["choices"][0]["message"]["content"] + "\ud83d")

    line, endpoint = refused_by(reply, "--cases", "cut.jsonl")
    assert "no verdict is valid" in line
    asked = json.dumps(endpoint.asked[-1]["body"]["messages"])
    assert "Rest. ?" in asked
    assert "Flu ?" in asked
    assert "\\ud8" not in asked
    (verdict,) = read(Path("out/verdicts.jsonl"))
    assert verdict["case_id"] == "c1 ?"
    assert "\ud83d" not in verdict["raw"]


@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a": ' * 50_000, "Score: Doctor 1: 9e999 points.", "Score: Doctor 1: NaN points."],
)
def test_an_answer_that_harms_is_invalid(good_files, text):
    assert "no verdict is valid" in refused_by(lambda _: answer(text), "--cases", "cases.jsonl")[0]
    (verdict,) = read(Path("out/verdicts.jsonl"))
    assert (verdict["valid"], verdict["scores"]) == (False, None)


def test_an_endpoint_that_sends_deep_json_is_one_line(good_files):
    deep = {"status": 200, "text": DEEP}
    line, _ = refused_by(lambda _: deep, "--cases", "cases.jsonl", "--max_retries", 0)
    assert "requests without an answer: 1, the last: the answer cannot be read: [[[" in line
    assert len(line) < 1000


@each_row("template, said")
def test_a_template_that_harms_is_one_line(good_files, template, said):
    rubric = own_rubric(
        good_files / "mine", f"{{% block user %}}{filled_in(template)}{{% endblock %}}"
    )
    line, _ = refused_by(good_answer, "--rubric", rubric, "--cases", SAMPLE / "test_cases.jsonl")
    assert line.startswith("error: own.jinja: ")
    assert said in line
    assert not Path("mark").exists()
