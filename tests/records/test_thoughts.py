"""Thoughts of reasoning models in candidates' answers."""

from doubles.agreement_study import case_of as line_of
from factories import verdicts_in, write_json
from programs import judge_by_length, told
from tables import each_row

from automedeval import Case, Response
from automedeval.records.thoughts import LONGEST_ANSWER, note_on_thoughts

ANSWER = "No. Skip the missed dose."


@each_row("text")
def test_an_answer_is_read_without_its_thoughts(text):
    turns = [{"role": "assistant", "content": text}, {"role": "user", "content": "Two pills?"}]
    case = case_of(text, question=turns)
    assert case.responses[0].text == case.question[0]["content"] == ANSWER
    assert case.responses[0].extra == ({} if text == ANSWER else {"thoughts": True})


def case_of(text: str, question: str | list = "Two pills?", **more: str) -> Case:
    return Case.from_dict(line_of("1", question, {"m": text}, **more))


def test_a_reference_is_read_without_its_thoughts():
    assert case_of(ANSWER, reference="<think>maybe 5 mg</think>Take 5 g.").reference == "Take 5 g."


@each_row("text")
def test_a_text_whose_answer_cannot_be_told_stays_and_is_counted(text):
    case = case_of(text)
    assert (case.responses[0].text, case.responses[0].extra) == (text, {"unclear": True})
    assert note_on_thoughts([case, case])[0].startswith(
        "answers with what looks like thoughts or marks of a raw text, which are judged whole: 2"
    )


@each_row("text")
def test_an_answer_of_thoughts_alone_is_empty(text):
    assert case_of(text).responses[0] == Response("m", "", {"thoughts": True})


@each_row("text")
def test_what_is_no_thought_stays(text):
    assert case_of(text).responses[0] == Response("m", text)


LONG = "Take one tablet. " * 10_000
# what a file holds, and what is judged of it
READ = {
    f"<think>Take two!</think>{ANSWER}": ANSWER,
    LONG: LONG[:LONGEST_ANSWER],
    "<think>x</think>" + "休む 。" * 30_000: ("休む 。" * 30_000)[:LONGEST_ANSWER],
}


def test_an_answer_scores_as_what_is_read_of_it_and_the_run_counts_the_rest(tmp_path):
    rows = []
    for number, (text, read) in enumerate(READ.items()):
        rows.append({"question": f"May I take {number} pills?", "whole": text, "read": read})
    file = tmp_path / "answers.json"
    write_json(file, rows)
    done = judge_by_length(tmp_path / "v", file)
    removed = "answers with thoughts or control tokens, which are removed: 2"
    told(done, removed, "answers with more than 100,000 characters")
    for verdict in verdicts_in(tmp_path / "v"):
        first, second = verdict.expected_scores
        assert first == second > 0
