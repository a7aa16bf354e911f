"""Playing back what teachers said."""

import pytest
from doubles.agreement_study import write
from tables import rows_of

from automedeval.models.base import Prompt
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError

LINE = {
    "case_id": "c1",
    "teacher": "strong",
    "role": "judge",
    "knowledge": "chain",
    "round": 1,
    "text": "first",
}


@pytest.fixture
def recording(tmp_path):
    return lambda *lines: write(tmp_path / "said.jsonl", lines)


def prompt(case_id="c1", call=1):
    return Prompt([{"role": "user", "content": "Whatever."}], key=(case_id, call))


def test_an_answer_is_found_by_case_teacher_role_knowledge_and_round(recording):
    changes = [{}, {"case_id": "c2"}, {"round": 2}]
    changes += [{"teacher": "weak"}, {"role": "reviewer"}, {"knowledge": "none"}]
    file = recording(*(LINE | change | {"text": f"said {at}"} for at, change in enumerate(changes)))
    chat = RecordedChat(file, "strong")
    prompts = [prompt(), prompt("c2"), prompt("c1", 2)]
    said = {index: answer.text for index, answer in chat.answer(prompts)}
    assert said == {0: "said 0", 1: "said 1", 2: "said 2"}
    assert [index for index, _ in chat.answer(prompts, [False, True, False])] == [1]
    others = [RecordedChat(file, "weak"), RecordedChat(file, "strong", role="reviewer")]
    others.append(RecordedChat(file, "strong", "none"))
    answers = [next(other.answer([prompt()]))[1].text for other in others]
    assert answers == ["said 3", "said 4", "said 5"]
    assert len({one.fingerprint for one in (chat, *others)}) == 4


def test_what_was_not_recorded_is_an_error_that_names_the_key(recording):
    chat = RecordedChat(recording(LINE), "strong")
    with pytest.raises(RecordError, match=r"no line of case 'c9', teacher 'strong', .* round 2"):
        list(chat.answer([prompt("c9", 2)]))


@pytest.mark.parametrize(("changes", "said"), rows_of(__file__)["test_a_faulty_recording_is_named"])
def test_a_faulty_recording_is_named(recording, changes, said):
    lines = [
        {key: value for key, value in (LINE | each).items() if value is not None}
        for each in changes
    ]
    with pytest.raises(RecordError, match=said):
        RecordedChat(recording(*lines), "strong")
