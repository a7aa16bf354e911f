"""Playing back what teachers said."""

import pytest
from doubles.agreement_study import write
from tables import each_row, rows_of

from automedeval.models.base import Prompt
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError

ROWS = rows_of(__file__)
LINE = ROWS["a line"]


def prompt(case_id="c1", call=1):
    return Prompt([{"role": "user", "content": "Whatever."}], key=(case_id, call))


def test_an_answer_is_found_by_case_teacher_role_knowledge_and_round(tmp_path):
    lines = (LINE | change for change in ROWS["lines that differ"])
    file = write(tmp_path / "said.jsonl", lines)
    chat = RecordedChat(file, "strong")
    prompts = [prompt(), prompt("c2"), prompt("c1", 2)]
    said = [chat.reply(asked).text for asked in prompts]
    assert said == ["first", "of c2", "in round 2"]
    fingerprints = {chat.fingerprint}
    for options, text in ROWS["other authors"]:
        other = RecordedChat(file, **options)
        assert other.reply(prompt()).text == text
        fingerprints.add(other.fingerprint)
    assert len(fingerprints) == 4


def test_what_was_not_recorded_is_an_error_that_names_the_key(tmp_path):
    chat = RecordedChat(write(tmp_path / "said.jsonl", [LINE]), "strong")
    with pytest.raises(RecordError, match=r"no line of case 'c9', teacher 'strong', .* round 2"):
        chat.reply(prompt("c9", 2))


@each_row("changes, said")
def test_a_faulty_recording_is_named(changes, said, tmp_path):
    file = write(tmp_path / "said.jsonl", (LINE | change for change in changes))
    with pytest.raises(RecordError, match=said):
        RecordedChat(file, "strong")
