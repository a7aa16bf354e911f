"""Input that is meant to harm: each gives one line and exit status 1, or is an invalid answer; nothing hangs or is run."""

import json
import os
import re
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.own_rubric import own_rubric
from programs import SAMPLE, error_line, run_command, run_recipe
from tables import rows_of

from automedeval.records import RecordError, read_json

DEEP = "[" * 200_000
HALF = r"\ud83d"  # of a character, as JSON escapes it
DIGITS = "9" * 5000
CASE = '{"id": "c1", "question": "Flu?", "responses": [{"model": "a", "text": "%s"}, {"model": "b", "text": "Wait."}]}'
VERDICT = (
    '{"case_id": "c1", "judge": "j", "rubric": "automedeval@1", "order": [0, 1], "valid": true, "scores": [%s, 1]}'
)
RATING = '{"case_id": "c1", "model": "a", "annotator": "x", "criterion": "tact", "score": %s}'
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
ALIASES = f"id: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]"
ROWS = rows_of(__file__)
REFUSED = ROWS["files"] | {
    f"{kind}: {name}": (kind, "x.yaml", *row)
    for kind in ("a run", "a study", "a rubric")
    for name, row in ROWS["yaml"].items()
}


def filled_in(content: str) -> str:
    """Return a content with what its names in braces stand for."""
    for name, text in (
        ("DEEP", DEEP),
        ("DIGITS", DIGITS),
        ("BOMB", BOMB),
        ("ALIASES", ALIASES),
        ("CASE", CASE % "Rest."),
    ):
        content = content.replace(f"{{{name}}}", text)
    for name, text in (("RATING", RATING), ("VERDICT", VERDICT)):
        content = re.sub(rf"\{{{name} (\w+)\}}", lambda match, text=text: text % match[1], content)
    return content


@pytest.fixture
def good_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cases.jsonl").write_text(CASE % "Rest." + "\n")
    Path("verdicts.jsonl").write_text(VERDICT % "5" + "\n")
    return tmp_path


@pytest.mark.parametrize(("command", "name", "content", "said"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_harms_is_one_line(
    good_files: Path, command: str, name: str, content: str | bytes, said: str
) -> None:
    file, words = Path(name.rpartition("=")[2]), [*ROWS["commands"][command], name]
    file.write_bytes(content if isinstance(content, bytes) else filled_in(content).encode())
    before = sorted(os.listdir())
    line = error_line(run_command(*words, *(() if command == "a study" else ("--output", "out"))))
    start, _, end = line.partition(f"{file}")
    assert start == "error: "
    assert said in end
    assert len(line) < 400
    assert sorted(set(os.listdir()) - {"out"}) == before


def test_records_of_runs_are_read_alike(good_files: Path) -> None:
    Path("deep.json").write_text(DEEP)
    with pytest.raises(RecordError, match=r"^deep\.json: not JSON: nested too deeply$"):
        read_json(Path("deep.json"))
    done = run_recipe(
        "publish", "model", good_files, "--repo", "o/n", "--dry_run", "--agreement", good_files / "deep.json"
    )
    assert error_line(done).endswith("deep.json: not JSON: nested too deeply")


def test_half_a_character_becomes_a_question_mark_wherever_it_comes_in(good_files: Path) -> None:
    Path("cut.jsonl").write_text(
        (CASE % f"Rest. {HALF}").replace("c1", f"c1 {HALF}").replace("Flu?", f"Flu {HALF}") + "\n"
    )
    with EndpointDouble(
        lambda body: answer(good_answer(body)["json"]["choices"][0]["message"]["content"] + "\ud83d")
    ) as at:
        words = ("--base_url", at.url, "--output", "out")
        assert "no verdict is valid" in error_line(
            run_command("judge", "--judge", "openai:m", "--cases", "cut.jsonl", *words)
        )
        asked = json.dumps(at.asked[-1]["body"]["messages"])
    assert "Rest. ?" in asked
    assert "Flu ?" in asked
    assert "\\ud8" not in asked
    (verdict,) = map(json.loads, Path("out/verdicts.jsonl").read_text(encoding="utf-8").splitlines())
    assert verdict["case_id"] == "c1 ?"
    assert "\ud83d" not in verdict["raw"]


@pytest.mark.parametrize(
    "text", [DEEP, '{"a": ' * 50_000, "Score: Doctor 1: 9e999 points.", "Score: Doctor 1: NaN points."]
)
def test_an_answer_that_harms_is_invalid(good_files: Path, text: str) -> None:
    with EndpointDouble(lambda _: answer(text)) as at:
        words = ("--base_url", at.url, "--output", "out")
        assert "no verdict is valid" in error_line(
            run_command("judge", "--judge", "openai:m", "--cases", "cases.jsonl", *words)
        )
    (verdict,) = map(json.loads, Path("out/verdicts.jsonl").read_text().splitlines())
    assert (verdict["valid"], verdict["scores"]) == (False, None)


def test_an_endpoint_that_sends_deep_json_is_one_line(good_files: Path) -> None:
    with EndpointDouble(lambda _: {"status": 200, "text": DEEP}) as at:
        words = ("--base_url", at.url, "--output", "out", "--max_retries", "0")
        line = error_line(run_command("judge", "--judge", "openai:m", "--cases", "cases.jsonl", *words))
    assert "1 not judged, the last: the answer cannot be read: [[[" in line
    assert len(line) < 1000


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for a in question %}" * 5 + "x" * 500 + "{% endfor %}" * 5, "makes more than 20,000,000 characters"),
        ("{{ rubric.__class__.__mro__ }}", "access to attribute '__class__'"),
        ("{{ cycler.__init__.__globals__.os.system('touch mark') }}", "access to attribute '__init__'"),
    ],
)
def test_a_template_that_harms_is_one_line(good_files: Path, template: str, said: str) -> None:
    rubric = own_rubric(good_files / "mine", f"{{% block user %}}{template}{{% endblock %}}")
    with EndpointDouble(good_answer) as at:
        words = ("--judge", "openai:m", "--base_url", at.url, "--rubric", rubric, "--output", "out")
        line = error_line(run_command("judge", "--cases", SAMPLE / "test_cases.jsonl", *words))
    assert line.startswith("error: own.jinja: ")
    assert said in line
    assert not Path("mark").exists()
