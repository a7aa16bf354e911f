"""The discussion of a mistake: what partners say, where it stands, and how many are led to their end."""

import json
from dataclasses import replace
from types import SimpleNamespace

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
from tables import rows_of

from automedeval.evidence.books import Passage
from automedeval.models.base import Answer
from automedeval.models.replay import RecordedChat
from automedeval.records import RecordError
from automedeval.records.journal import Journal
from automedeval.study.introspection.discussion import (
    Partners,
    account,
    read_review,
    read_suggestion,
)
from automedeval.study.introspection.mistakes import Mistake

RECORD, ORDER = (4, 2, 5), (2, 0, 1)  # by response; the slots then have 5, 4, 2
IN_SLOTS, OTHER = (5, 4, 2), (5, 3, 3)
ROWS = rows_of(__file__)


class Scripted(RecordedChat):
    """A chat that answers with its lines one after the other, and records the messages it received."""

    def __init__(self, *lines, name="scripted"):
        self.lines, self.name, self._fingerprint = list(lines), name, name
        self.shown = []

    def last(self, call):
        """Return the last message that it received in a call, the first of them 0."""
        return self.shown[call][-1]["content"]

    def roles(self, call):
        return [message["role"] for message in self.shown[call]]

    def reply(self, prompt):
        self.shown.append(prompt.messages)
        return Answer(self.lines.pop(0), usage={"prompt_tokens": 10, "completion_tokens": 1})


def mistake_of(number=0, rationale=True):
    case = case_of(number)
    more = {} if rationale else {"rationale": None}
    verdict = verdict_of(case, RECORD, "teacher", order=ORDER, **more)
    recorded = recorded_of(verdict, case)
    return Mistake(recorded, "relations", verdict_of(case, (1, 1, 1)))


ROW_ORDER = mistake_of().recorded.order


@pytest.fixture
def discuss(tmp_path):
    """Return what leads the discussion of one mistake by scripts, in the slots of its row, and gives it back."""

    def lead(suggester, reviewer, mistake=None, reviser=(), **options):
        lines = {"s": suggester, "r": reviewer, "w": reviser}
        chats = [Scripted(*said, name=name) for name, said in lines.items()]
        partners = Partners(*chats, shuffle=True, **options)
        with Journal(tmp_path / "discussion.jsonl") as journal:
            discussions = partners.open([mistake or mistake_of()], journal)
            list(partners.lead(discussions, journal))
            (again,) = partners.open([mistake or mistake_of()], journal)
        assert again.pieces == discussions[0].pieces
        return discussions[0], *chats

    return lead


def in_row(order, values):
    """Return values of the responses in the slots of the row."""
    return tuple(values[index] for index in order)


# --- what the partners say --------------------------------------------------------------------------------------------


POINTS = {"OTHER": OTHER, "OWN": IN_SLOTS, "ONES": (1, 1, 1), "BEYOND": (5, 6, 1), "FEW": (5, 1)}
LINES = {name: slot_line(points) for name, points in POINTS.items()}


@pytest.mark.parametrize(("text", "keep"), ROWS["test_a_suggestion_is_read"])
def test_a_suggestion_is_read(text, keep):
    read = read_suggestion(Answer(text.format(**LINES)), AUTOMEDEVAL, IN_SLOTS)
    assert (read.error, read.keep, read.scores) == (None, keep, IN_SLOTS if keep else OTHER)


@pytest.mark.parametrize(("text", "said"), ROWS["test_what_is_no_suggestion_says_why"])
def test_what_is_no_suggestion_says_why(text, said):
    assert said in read_suggestion(Answer(text.format(**LINES)), AUTOMEDEVAL, IN_SLOTS).error


def test_a_suggestion_that_failed_or_was_cut_off_is_none():
    cut = Answer(f"Suggestion: Lower it.\n{slot_line(OTHER)}\nAnd also", truncated=True)
    errors = [
        read_suggestion(answer, AUTOMEDEVAL, IN_SLOTS).error
        for answer in (Answer(error="filtered"), cut)
    ]
    assert ["filtered" in errors[0], "cut off" in errors[1]] == [True, True]


@pytest.mark.parametrize(("text", "accepts", "reason"), ROWS["test_a_review_is_read"])
def test_a_review_is_read(text, accepts, reason):
    read = read_review(Answer(text))
    assert (read.error, read.accepts, read.reason) == (None, accepts, reason)


@pytest.mark.parametrize(("text", "said"), ROWS["test_what_is_no_review_is_neither"])
def test_what_is_no_review_is_neither(text, said):
    read = read_review(Answer(text))
    assert said in read.error
    assert not read.accepts


# --- where it stands --------------------------------------------------------------------------------------------------


def shown_suggestion(order, text="The second is too high.", scores=(4, 3, 3)):
    return f"Suggestion: {text}\n{slot_line(in_row(order, scores))}"


def shown_revision(order, scores=(4, 3, 3)):
    return f"{rationale_of(MODELS, order, 'poor')}\n{slot_line(in_row(order, scores))}"


REVISED = [shown_revision(ROW_ORDER)]


def test_accepted_at_once_and_rewritten(discuss):
    said, suggester, reviewer, reviser = discuss(
        [shown_suggestion(ROW_ORDER)], ["Review: accept"], reviser=REVISED
    )
    assert said.consensus
    assert said.accepted[0] == 1
    assert said.next_step is None
    revised = slot_line(in_row(ROW_ORDER, (4, 3, 3)))
    assert f"{said.revised.rationale}\n{revised}" == REVISED[0]
    assert said.revised.scores == in_row(ROW_ORDER, (4, 3, 3))
    record = slot_line(in_row(ROW_ORDER, RECORD))
    both = (record, "Verdict 2, the judge's:", "What helps with complaint 0?")
    for partner in (suggester, reviewer):
        assert [text for text in both if text not in partner.last(0)] == []
    assert "[Question]" not in suggester.last(0)
    assert "The second is too high." in reviewer.last(0)
    assert "Suggestion: [what to change" not in reviewer.last(0)
    assert revised in reviser.last(0)
    assert "Doctor 1" in reviser.shown[0][1]["content"]


def test_an_objection_is_heard_in_the_next_exchange(discuss):
    first, second = shown_suggestion(ROW_ORDER, "A.", (3, 2, 5)), shown_suggestion(ROW_ORDER, "B.")
    reviews = ["Review: object\nThat misses the dose.", "Review: accept"]
    said, suggester, reviewer, _ = discuss([first, second], reviews, reviser=REVISED)
    assert said.consensus
    assert said.accepted[0] == 2
    roles = ["system", "user", "assistant", "user"]
    assert suggester.roles(1) == reviewer.roles(1) == roles
    assert "That misses the dose." in suggester.last(1)
    assert suggester.shown[1][2]["content"] == first
    assert "Suggestion: A." in reviewer.shown[1][1]["content"]
    assert "Suggestion: B." in reviewer.last(1)


def test_unreadable_messages_use_up_exchanges(discuss):
    good = shown_suggestion(ROW_ORDER)
    reviews = ["Fine by me.", "Review: accept"]
    said, suggester, reviewer, _ = discuss(["Dunno.", good, good], reviews, reviser=REVISED)
    assert said.consensus
    assert said.accepted[0] == 3
    assert [bool(each.error) for each in said.suggestions.values()] == [True, False, False]
    assert [bool(each.error) for each in said.reviews.values()] == [True, False]
    assert "could not be read as a suggestion: no line" in suggester.last(1)
    assert "review of this could not be read" in suggester.last(2)
    assert "could not be read as a review" in reviewer.last(1)


@pytest.mark.parametrize(
    ("suggests", "silent"), [("Hm.", "suggester"), ("Suggestion: keep", "reviewer")]
)
def test_a_partner_that_never_answers_in_the_format_is_named(discuss, suggests, silent):
    said, *_ = discuss([suggests] * 3, ["Hm."] * 3)
    told = f"the {silent} [sr] never answered in the form of a .*: 'Hm.'"
    with pytest.raises(RecordError, match=told):
        account([said], "s", "r")
    assert (said.consensus, said.next_step) == (False, None)


IN_ROW = slot_line(in_row(ROW_ORDER, (4, 3, 3)))


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        (shown_revision(ROW_ORDER, (4, 2, 3)), "other points than the accepted suggestion's"),
        (IN_ROW, "no rationale"),
        ("I would rather not.", "no score line"),
    ],
)
def test_a_rewriting_that_does_not_hold_goes_to_the_jury(discuss, revision, said):
    found, *_ = discuss([shown_suggestion(ROW_ORDER)], ["Review: accept"], reviser=[revision])
    assert found.revised.error == said
    assert (found.consensus, found.next_step) == (False, None)


def test_a_row_without_rationale_stays_without(discuss):
    mistake = mistake_of(rationale=False)
    order = mistake.recorded.order
    revised = slot_line(in_row(order, (4, 3, 3)))
    said, *_, reviser = discuss([shown_suggestion(order)], ["Review: accept"], mistake, [revised])
    assert said.consensus
    assert said.revised.rationale is None
    assert "Keep its form" not in reviser.last(0)


# --- the books --------------------------------------------------------------------------------------------------------


def books(questions):
    return [
        [Passage(question, "B", "S", 1, f"About {question}", 0.123456)] for question in questions
    ]


def test_the_suggesting_model_asks_and_the_reviewing_one_does_not(discuss):
    good = shown_suggestion(ROW_ORDER)
    dose, rest = (f"[Question]: What is {thing}?" for thing in ("a dose", "rest"))
    asks = [dose, dose, good, rest, good]
    reviews = ["Review: object\nNo.", "Review: accept"]
    said, suggester, reviewer, _ = discuss(
        asks, reviews, reviser=REVISED, search=books, questions=3
    )
    assert said.consensus
    first, second = (said.pieces["suggestion", exchange]["asked"] for exchange in (1, 2))
    assert [each["questions"] for each in first] == [["What is a dose?"], []]
    assert first[0]["passages"][0]["text"] == "About What is a dose?"
    assert first[1]["passages"] is None  # asked before: told so, and to suggest
    assert [each["questions"] for each in second] == [["What is rest?"]]
    assert "[Question]: What is ...?" in suggester.last(0)
    assert "About What is a dose?" in suggester.last(1)
    assert "You have asked this before" in suggester.last(2)
    assert "No more questions are answered" in suggester.last(2)
    assert "About What is a dose?" in json.dumps(suggester.shown[4]), (
        "what was found stays in sight"
    )
    assert "[Question]" not in json.dumps(reviewer.shown)
    assert said.pieces["suggestion", 1]["usage"] == {"prompt_tokens": 30, "completion_tokens": 3}


def test_who_only_asks_has_made_no_suggestion(discuss):
    asks = [f"[Question]: What is {word}?" for word in "abcdef"]
    said, *_ = discuss(asks, [], search=books, questions=1)
    assert [bool(each.error) for each in said.suggestions.values()] == [True] * 3


# --- many -------------------------------------------------------------------------------------------------------------


def test_a_journal_of_others_is_refused(tmp_path):
    mistakes = [mistake_of(0)]
    keep = Partners(Scripted("Suggestion: keep"), Scripted("Review: accept"))
    with Journal(tmp_path / "discussion.jsonl") as journal:
        list(keep.lead(keep.open(mistakes, journal), journal))
        with pytest.raises(RecordError, match="other partners, or on another data set or judge"):
            Partners(Scripted(), Scripted(), shuffle=False).open(mistakes, journal)
        judged_anew = replace(mistakes[0], judged=verdict_of(case_of(0), (1, 1, 2)))
        with pytest.raises(RecordError, match="case 'case-0' as it was before"):
            keep.open([judged_anew], journal)
        (other,) = keep.open([mistake_of(1)], journal)
    assert other.pieces == {}, "another case's discussion is not its own"


def test_partners_need_a_score_line(tmp_path):
    pairwise = SimpleNamespace(name="medical_pairwise@1", sums_up=False)
    other = SimpleNamespace(rubric=pairwise, case=case_of(0))
    mistake = replace(mistake_of(), recorded=other, kind="choices")
    with (
        Journal(tmp_path / "d.jsonl") as journal,
        pytest.raises(RecordError, match="a rubric with a score line"),
    ):
        Partners(Scripted(), Scripted()).open([mistake], journal)
