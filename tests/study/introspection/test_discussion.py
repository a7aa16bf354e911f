"""The discussion of a mistake: what partners say, where it stands, and how many are led to their end."""

import json
from dataclasses import replace
from itertools import zip_longest

import pytest
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    case_of,
    rationale_of,
    recorded_of,
    slot_line,
    verdict_of,
)
from tables import each_row, holds_all

from automedeval.evidence.books import Passage
from automedeval.models.base import Answer
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError
from automedeval.records.journal import Journal
from automedeval.study.introspection.discussion import (
    ROLES,
    Partners,
    account,
    read_review,
    read_suggestion,
)
from automedeval.study.introspection.mistakes import Mistake
from automedeval.study.introspection.revisions import mistake_record

RECORD = (4, 2, 5)  # by response; the slots then have 5, 4, 2
ORDER = (2, 0, 1)
IN_SLOTS = (5, 4, 2)
OTHER = (5, 3, 3)


class Scripted(RecordedChat):
    """A chat that answers with its lines one after the other, and records the messages it received."""

    def __init__(self, name, lines):
        self.lines, self.name, self.fingerprint = list(lines), name, name
        self.shown = []

    def last(self, call):
        """Return the last message that it received in a call, the first of them 0."""
        return self.shown[call][-1]["content"]

    def reply(self, prompt):
        self.shown.append(prompt.messages)
        return Answer(self.lines.pop(0), usage={"prompt_tokens": 10, "completion_tokens": 1})


def scripted(*lines):
    """Return who suggests, reviews and revises with these lines."""
    return {role: Scripted(role, said) for role, said in zip_longest(ROLES, lines, fillvalue=())}


def mistake_of(number=0, **more):
    case = case_of(number)
    recorded = recorded_of(case, RECORD, order=ORDER, **more)
    return Mistake(recorded, "relations", verdict_of(case, (1, 1, 1)))


@pytest.fixture
def discuss(tmp_path):
    """Return what leads the discussion of one mistake by scripts, and gives it back, read from the journal once more."""

    def lead(*lines, mistake=None, **options):
        chats = scripted(*lines)
        partners = Partners(chats, **options)
        with Journal(tmp_path / "discussion.jsonl") as journal:
            mistakes = [mistake or mistake_of()]
            discussions = partners.open(mistakes, journal)
            list(partners.lead(discussions, journal))
            (again,) = partners.open(mistakes, journal).values()
        records = [mistake_record(mistakes[0], told) for told in (*discussions.values(), again)]
        assert records[0] == records[1]
        return again, *chats.values()

    return lead


# --- what the partners say --------------------------------------------------------------------------------------------


POINTS = {"OTHER": OTHER, "OWN": IN_SLOTS, "ONES": (1, 1, 1), "BEYOND": (5, 6, 1), "FEW": (5, 1)}
LINES = {name: slot_line(points) for name, points in POINTS.items()}


@each_row("text, error, scores")
def test_a_suggestion_is_read(text, error, scores):
    read = read_suggestion(Answer(text.format(**LINES)), AUTOMEDEVAL, IN_SLOTS)
    assert error in (read.error or "")
    assert read.scores == POINTS.get(scores, ())


def test_a_suggestion_that_failed_or_was_cut_off_is_none():
    cut = Answer(f"Suggestion: Lower it.\n{slot_line(OTHER)}\nAnd also", truncated=True)
    assert "cut off" in read_suggestion(cut, AUTOMEDEVAL, IN_SLOTS).error
    assert read_suggestion(Answer(error="filtered"), AUTOMEDEVAL, IN_SLOTS).error == "filtered"


@each_row("text, error, accepts, reason")
def test_a_review_is_read(text, error, accepts, reason):
    read = read_review(Answer(text))
    assert error in (read.error or "")
    assert (read.accepts, read.reason) == (accepts, reason)


# --- where it stands --------------------------------------------------------------------------------------------------


ROW_ORDER = mistake_of().recorded.order
NEW = slot_line([(4, 3, 3)[index] for index in ROW_ORDER])
SUGGESTED = f"Suggestion: The second is too high.\n{NEW}"
REVISED = f"{rationale_of(MODELS, ROW_ORDER, 'poor')}\n{NEW}"
ACCEPT = ["Review: accept"]
OBJECT = "Review: object\n"


def test_an_objection_is_heard_and_what_is_accepted_is_written(discuss):
    first = f"Suggestion: A.\n{slot_line((1, 1, 1))}"
    reviews = [f"{OBJECT}That misses the dose.", *ACCEPT]
    told, suggester, reviewer, reviser = discuss([first, SUGGESTED], reviews, [REVISED])
    assert (told.decision, told.agreed_at, told.step) == ("revise", 2, None)
    assert f"{told.revised.rationale}\n{slot_line(told.revised.scores)}" == REVISED
    record = slot_line([RECORD[index] for index in ROW_ORDER])
    for partner in (suggester, reviewer):
        holds_all(
            partner.last(0), (record, "Verdict 2, the judge's:", "What helps with complaint 0?")
        )
        roles = [message["role"] for message in partner.shown[1]]
        assert roles == ["system", "user", "assistant", "user"]
    assert "[Question]" not in suggester.last(0)
    assert "Suggestion: A." in reviewer.last(0)
    assert suggester.shown[1][2]["content"] == first
    assert "That misses the dose." in suggester.last(1)
    assert "The second is too high." in reviewer.last(1)
    assert NEW in reviser.last(0)


def test_unreadable_messages_use_up_exchanges(discuss):
    suggestions = ["Dunno.", SUGGESTED, SUGGESTED]
    reviews = ["Fine by me.", *ACCEPT]
    told, suggester, reviewer, _ = discuss(suggestions, reviews, [REVISED])
    assert (told.decision, told.agreed_at) == ("revise", 3)
    assert told.unread == {"suggestion": 1, "review": 1}
    assert "could not be read as a suggestion: no line" in suggester.last(1)
    assert "review of this could not be read" in suggester.last(2)
    assert "could not be read as a review" in reviewer.last(1)


@each_row("suggests, silent")
def test_a_partner_that_never_answers_in_the_format_is_named(discuss, suggests, silent):
    told, *_ = discuss([suggests] * 3, ["Hm."] * 3)
    with pytest.raises(RecordError, match=f"^{silent} never answered in the form of"):
        account([told], "me", "you")
    assert (told.decision, told.step) == (None, None)


@pytest.mark.parametrize(
    "revision", [REVISED.replace(NEW, slot_line(OTHER)), NEW, "I would rather not."]
)
def test_a_rewriting_that_does_not_hold_goes_to_the_jury(discuss, revision):
    told, *_ = discuss([SUGGESTED], ACCEPT, [revision])
    assert (told.decision, told.revised, told.step) == (None, None, None)


def test_a_row_without_rationale_stays_without(discuss):
    mistake = mistake_of(rationale=None)
    told, *_, reviser = discuss([SUGGESTED], ACCEPT, [NEW], mistake=mistake)
    assert (told.decision, told.revised.rationale) == ("revise", None)
    assert "Keep its form" not in reviser.last(0)


# --- the books --------------------------------------------------------------------------------------------------------


def books(questions):
    return [
        [Passage(question, "B", "S", 1, f"About {question}", 0.123456)] for question in questions
    ]


def test_the_suggesting_model_asks_and_the_reviewing_one_does_not(discuss):
    dose = "[Question]: What is a dose?"
    rest = "[Question]: What is rest?"
    asks = [dose, dose, SUGGESTED, rest, SUGGESTED]
    reviews = [f"{OBJECT}No.", *ACCEPT]
    told, suggester, reviewer, _ = discuss(asks, reviews, [REVISED], search=books)
    assert told.decision == "revise"
    questions = [lookup["questions"] for lookup in told.asked]
    assert questions == [["What is a dose?"], [], ["What is rest?"]]
    assert told.asked[0]["passages"][0]["text"] == "About What is a dose?"
    assert told.asked[1]["passages"] is None  # asked before: told so, and to suggest
    assert "[Question]: What is ...?" in suggester.last(0)
    assert "About What is a dose?" in suggester.last(1)
    assert "You have asked this before" in suggester.last(2)
    assert "No more questions are answered" in suggester.last(2)
    shown = [json.dumps(chat.shown) for chat in (suggester, reviewer)]
    assert "About What is a dose?" in json.dumps(suggester.shown[4]), "found earlier"
    assert ["[Question]" in text for text in shown] == [True, False]
    assert told.pieces[0]["usage"] == {"prompt_tokens": 30, "completion_tokens": 3}


def test_who_only_asks_has_made_no_suggestion(discuss):
    asks = [f"[Question]: What is {word}?" for word in "abcdef"]
    told, *_ = discuss(asks, search=books, questions=1)
    assert told.unread == {"suggestion": 3}


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_journal_of_others_is_refused(tmp_path):
    mistakes = [mistake_of(0)]
    keep = Partners(scripted(["Suggestion: keep"], ACCEPT))
    with Journal(tmp_path / "discussion.jsonl") as journal:
        list(keep.lead(keep.open(mistakes, journal), journal))
        with pytest.raises(RecordError, match="by other partners, on another data set or judge"):
            Partners(keep.chats, shuffle=False).open(mistakes, journal)
        judged_anew = replace(mistakes[0], judged=verdict_of(case_of(0), (1, 1, 2)))
        with pytest.raises(
            RecordError, match=r"'case-0' was discussed .* before its texts or verdicts changed"
        ):
            keep.open([judged_anew], journal)
        (other,) = keep.open([mistake_of(1)], journal).values()
    assert other.pieces == [], "another case's discussion is not its own"


def test_partners_need_a_score_line(tmp_path):
    rubric = replace(AUTOMEDEVAL, grammar="json")
    mistake = replace(mistake_of(), recorded=replace(mistake_of().recorded, rubric=rubric))
    with (
        Journal(tmp_path / "d.jsonl") as journal,
        pytest.raises(RecordError, match="a rubric with a score line"),
    ):
        Partners(scripted()).open([mistake], journal)
