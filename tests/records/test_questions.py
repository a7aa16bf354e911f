"""What the question of a case is, by every program that reads or compares it, however a conversation is written."""

import pytest
from doubles.agreement_study import case_of
from factories import write
from programs import judge_by_length, succeeded
from tables import write_csv

from automedeval.records import Case, key_of
from automedeval.records.tables.cases import read_cases
from automedeval.records.tables.ratings import placed_ratings
from automedeval.study.dataset.decontamination import leaks

ASKED = "May my daughter take two tablets of paracetamol?"
SYSTEM = {"role": "system", "content": "You are a careful doctor. Answer in plain words."}
HELLO = {"role": "assistant", "content": "Hello! What can I do for you?"}
USER = {"role": "user", "content": ASKED}
CALLER = [{"role": "clinic", "content": "Hello!"}, {"role": "caller", "content": ASKED}]
SAME = {"user": [USER], "system": [SYSTEM, USER], "greeting": [HELLO, USER], "others": CALLER}


@pytest.mark.parametrize("question", SAME.values(), ids=SAME)
def test_a_question_is_the_same_in_a_conversation(question, tmp_path):
    """It is a leak, one case of two versions, and what a table of ratings means by its text."""
    plain = case_of("one", ASKED, {"m": "Ask a doctor."})
    talk = case_of("one", question, {"m": "One tablet is enough for her."})
    found = leaks([Case.from_dict(plain)], [Case.from_dict(talk)])
    assert found == {"one": "question of an evaluation case"}
    first = write(tmp_path / "v1.jsonl", [talk])
    second = write(tmp_path / "v2.jsonl", [plain])
    versions = (f"v1={first}", f"v2={second}")
    said = succeeded(judge_by_length(tmp_path / "out", *versions)).stdout
    assert "cases: 1, with an answer of all 2 models: 1" in said
    differ = "cases whose 'question' differs between the files: 1, the first is taken"
    assert (differ in said) == (len(question) > 1)
    rows = [[ASKED, "v1", "ann", 1], [ASKED, "v2", "ann", 2]]
    ratings = write_csv(tmp_path / "ratings.csv", ("question", "model", "rater", "score"), rows)
    placed, *_ = placed_ratings(ratings, read_cases(tmp_path / "out/cases.jsonl"))
    assert [rating.case_id for _, rating in placed] == ["one", "one"]


def test_what_an_assistant_says_is_no_question():
    answered = [USER, HELLO, {"role": "user", "content": "She weighs 20 kg."}]
    assert key_of(answered) == f"She weighs 20 kg. {ASKED}"
    assert key_of([SYSTEM, *answered]) == key_of(answered) != key_of([USER])
