"""Thoughts of reasoning models in candidates' answers."""

import json

import pytest
from programs import run_command
from tables import rows_of

from automedeval import Case, Response
from automedeval.records.thoughts import LONGEST_ANSWER, note_on_thoughts

ROWS = rows_of(__file__)

ANSWER = "No. Skip the missed dose."


@pytest.mark.parametrize("text", ROWS["test_an_answer_is_read_without_its_thoughts"])
def test_an_answer_is_read_without_its_thoughts(text):
    turns = [{"role": "assistant", "content": text}, {"role": "user", "content": "Two pills?"}]
    case = Case.from_dict(
        {"id": "1", "question": turns, "responses": [{"model": "m", "text": text}]}
    )
    assert case.responses[0].text == case.question[0]["content"] == ANSWER
    assert case.responses[0].extra == ({} if text == ANSWER else {"thoughts": True})


def case_of(text: str, **more: str) -> Case:
    responses = [{"model": "m", "text": text}]
    return Case.from_dict({"id": "1", "question": "Two pills?", "responses": responses} | more)


def test_a_reference_is_read_without_its_thoughts():
    assert case_of(ANSWER, reference="<think>maybe 5 mg</think>Take 5 g.").reference == "Take 5 g."


@pytest.mark.parametrize(
    "text", ROWS["test_a_text_whose_answer_cannot_be_told_stays_and_is_counted"]
)
def test_a_text_whose_answer_cannot_be_told_stays_and_is_counted(text):
    case = case_of(text)
    assert (case.responses[0].text, case.responses[0].extra) == (text, {"unclear": True})
    assert note_on_thoughts([case, case])[0].startswith(
        "2 answers held what looks like thoughts or marks of a raw text, and are judged whole"
    )


@pytest.mark.parametrize("text", ROWS["empty"])
def test_an_answer_of_thoughts_alone_is_empty(text):
    assert case_of(text).responses[0] == Response("m", "", {"thoughts": True})


@pytest.mark.parametrize("text", ROWS["stays"])
def test_what_is_no_thought_stays(text):
    assert case_of(text).responses[0] == Response("m", text)


def test_an_answer_scores_the_same_with_thoughts_and_the_run_counts_them(tmp_path):
    own, file = {"reference": ANSWER, "plain": ANSWER}, tmp_path / "answers.json"
    thinking = {f"May I take {n} pills?": f"<think>Take {n}!</think>{ANSWER}" for n in (2, 3)}
    file.write_text(
        json.dumps([own | {"question": asked, "thinks": text} for asked, text in thinking.items()])
    )
    done = run_command(
        "judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "verdicts"
    )
    assert "2 answers held thoughts or control tokens, which are removed" in done.stdout
    for line in (tmp_path / "verdicts/verdicts.jsonl").read_text().splitlines():
        first, second = json.loads(line)["expected_scores"]
        assert first == second


LONG = "1 answer held more than 100,000 characters, of which only the first 100,000 are read"


@pytest.mark.parametrize(
    "text", ["Take one tablet. " * 10_000, "<think>x</think>" + "休む 。" * 30_000]
)
def test_of_a_very_long_answer_the_first_characters_are_judged(text, tmp_path):
    own = text.removeprefix("<think>x</think>")[:LONGEST_ANSWER]
    file = tmp_path / "answers.json"
    file.write_text(json.dumps([{"question": "Two pills?", "whole": text, "beginning": own}]))
    done = run_command(
        "judge", file, "--judge", "baseline:longer text", "--output", tmp_path / "verdicts"
    )
    assert LONG in done.stdout, done.stderr
    (verdict,) = (tmp_path / "verdicts/verdicts.jsonl").read_text().splitlines()
    first, second = json.loads(verdict)["expected_scores"]
    assert first == second > 0
