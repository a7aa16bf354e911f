"""Have two models discuss a judge's mistakes (paper, section 3.3, Figure 3; Algorithm 2, lines 8 and 9).

In each exchange the suggesting model proposes to keep or to revise the verdict on record, and the reviewing model accepts or
objects; the next exchange answers the objection. The suggesting model then writes an accepted suggestion into the verdict. The
jury decides if there is no consensus, or if the revised verdict is unusable. A journal keeps all messages; an interrupted run
goes on from them.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from automedeval.models.base import Answer, Dialogue, Messages, Prompt
from automedeval.records import RecordError, digest
from automedeval.records.journal import Journal, arithmetic, now
from automedeval.records.language import normalise
from automedeval.records.thoughts import own_text
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import (
    NO_SCORE_LINE,
    ParsedAnswer,
    format_verdict,
    parse_verdict,
    reads_back,
)
from automedeval.rubrics.prompts import Turn, discussion_messages, template_fingerprint
from automedeval.rubrics.questions import Search, find_passages, questions_of
from automedeval.rubrics.slots import reordered
from automedeval.study.introspection.mistakes import Mistake

EXCHANGES = 3  # Paper: "after up to three rounds of discussion"
ROLES = ("suggestion", "review", "revision")
Step = tuple[str, int]  # (role, number of the exchange)
_LEAD = r"^[-+•*#_`> \t]{0,12}"
_MARK = r"[*_`]{0,3}"
_SUGGESTION = re.compile(
    rf"{_LEAD}Suggestion{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}", re.I | re.M
)
_KEEP = re.compile(rf"{_MARK}keep{_MARK}[.!]?{_MARK}[ \t]*(?:$|\n)", re.I)
_REVIEW = re.compile(
    rf"{_LEAD}Review{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}{_MARK}(accept|object)(?:ed|ion|s)?"
    rf"{_MARK}[.!]?{_MARK}[ \t]*$",
    re.I | re.M,
)
# What objects, or makes a condition: an acceptance beside it may be none.
_TAKES_BACK = re.compile(
    r"\b(?:object(?:s|ed|ing|ions?)?|disagree|reject|(?:not|n['’]t) accept|cannot"
    r"|if|unless|until|provided|except|but|however|would|only)\b",
    re.I,
)
# What revises a verdict behind "keep".
_REVISES = re.compile(
    rf"{_TAKES_BACK.pattern}|\b(?:wait|revis(?:e|ed|ion)|lower|raise|deserves?|should)\b", re.I
)


@dataclass(frozen=True)
class Suggestion:
    """A proposal to keep or to revise the verdict on record, with the scores of all responses by slot.

    `shown` is the text for the reviewer, and `end` is where the suggestion ends in the message. `error` says why a message
    cannot be parsed.
    """

    error: str | None = None
    keep: bool = False
    scores: tuple[int, ...] = ()
    shown: str = ""
    end: int = 0


@dataclass(frozen=True)
class Review:
    """The reviewing model's answer to a suggestion; `error` says why a message cannot be parsed."""

    error: str | None = None
    accepts: bool = False
    reason: str = ""


def read_suggestion(answer: Answer, rubric: Rubric, on_record: Sequence[int]) -> Suggestion:
    """Parse a suggesting model's message; the last suggestion counts, and one of the scores on record, by slot, keeps them."""
    if answer.error:
        return Suggestion(answer.error)
    text = own_text(answer.text)
    headers = list(_SUGGESTION.finditer(text))
    if not headers:
        return Suggestion("no line that begins with 'Suggestion:'")
    header = headers[-1]
    body, shown = text[header.end() :], text[header.start() :].strip()
    reading = parse_verdict(body, rubric, len(on_record), truncated=answer.truncated)
    scores = reading.scores or ()
    is_on_record = scores == tuple(on_record)
    if keep := _KEEP.match(body):
        if _REVISES.search(body, keep.end()):
            return Suggestion("more than 'Suggestion: keep', which may take it back")
        if reading.error != NO_SCORE_LINE and not is_on_record:
            return Suggestion("it keeps the verdict on record and gives other points")
        return Suggestion(None, True, tuple(on_record), shown, header.end() + keep.end())
    if not reading.valid:
        return Suggestion(reading.error)
    if not reading.rationale:
        return Suggestion("points without a reason")
    return Suggestion(None, is_on_record, scores, shown, len(text))


def read_review(answer: Answer) -> Review:
    """Parse a reviewing model's message: the last line that is "Review: accept" or "Review: object" and nothing else.

    An acceptance ends the message, and nothing before it objects or makes a condition; else it is no answer.
    """
    if answer.error:
        return Review(answer.error)
    text = own_text(answer.text)
    reviews = list(_REVIEW.finditer(text))
    if not reviews:
        return Review("no line that reads 'Review: accept' or 'Review: object'")
    last = reviews[-1]
    before, after = text[: last.start()].strip(), text[last.end() :].strip()
    if last[1].casefold() == "object":
        return Review(reason=after or before)
    if after or _TAKES_BACK.search(before):
        return Review("more than 'Review: accept', which may take it back")
    return Review(accepts=True)


@dataclass
class Discussion:
    """The discussion of one mistake so far: what was said, and who says what next.

    `order` says which response is in which slot of the partners' prompts; `pieces` are the messages, as in the journal, and
    `unread` counts those of a role that could not be read. `asked` is what the suggesting model looked up. `turns`
    are its messages with the replies to them, but for the last suggestion, whose text is `suggested`; `reviews` are the
    reviewing model's. `first` is what that one was shown first, `suggestion` the last one that could be read: the one that
    both agreed on, if they did so, in the exchange `agreed_at`.
    """

    mistake: Mistake
    order: tuple[int, ...]
    pieces: list[dict[str, Any]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    asked: list[dict[str, Any]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    reviews: list[Turn] = field(default_factory=list)
    suggested: str = ""
    first: str = ""
    suggestion: Suggestion = Suggestion()
    agreed_at: int | None = None
    revised: ParsedAnswer | None = None
    next_step: Step | None = ("suggestion", 1)

    @property
    def case_id(self) -> str:
        return self.mistake.case_id

    @property
    def rubric(self) -> Rubric:
        return self.mistake.recorded.rubric

    @cached_property
    def on_record(self) -> ParsedAnswer:
        """The verdict on record, in the slots of the partners' prompts."""
        recorded = self.mistake.recorded
        return reordered(recorded.reading, recorded.order, self.order, self.rubric.slot_word)

    @property
    def decision(self) -> str | None:
        """Return what both partners decided, "keep" or "revise"; None without a consensus, or a revision that holds."""
        if self.agreed_at is None:
            return None
        if self.suggestion.keep:
            return "keep"
        return "revise" if self.revised and self.revised.valid else None

    def add(self, piece: dict[str, Any]) -> None:
        """Take in a message, and settle the next step."""
        role, exchange = piece["role"], piece["exchange"]
        answer = Answer(piece["text"], truncated=piece["truncated"], error=piece["error"])
        if role == "suggestion":
            self.asked += piece["asked"]
            self.turns += map(knowledge, piece["asked"])
            error = self._suggest(answer, exchange)
        elif role == "review":
            error = self._review(answer, exchange)
        else:
            self.revised = self._read_revision(answer)
            self.next_step = None
            error = self.revised.error
        self.pieces.append(piece)
        if error:
            self.unread[role] += 1

    def read(self, answer: Answer) -> Suggestion:
        """Parse a message of the suggesting model."""
        return read_suggestion(answer, self.rubric, self.on_record.scores or ())

    def _suggest(self, answer: Answer, exchange: int) -> str | None:
        suggestion = self.read(answer)
        self.suggested = own_text(answer.text)
        if suggestion.error:
            self._object(exchange, error=suggestion.error)
            return suggestion.error
        if self.reviews:
            self.reviews[-1].names["suggestion"] = suggestion.shown
        self.first = self.first or suggestion.shown
        self.suggestion = suggestion
        self.next_step = ("review", exchange)
        return None

    def _review(self, answer: Answer, exchange: int) -> str | None:
        review = read_review(answer)
        if review.accepts:
            self.agreed_at = exchange
            self.next_step = None if self.suggestion.keep else ("revision", exchange)
            return None
        self.reviews.append(Turn(own_text(answer.text), "suggested", {"error": review.error}))
        self._object(exchange, reason=None if review.error else review.reason)
        return review.error

    def _object(self, exchange: int, error: str | None = None, reason: str | None = None) -> None:
        """Reply to a suggestion that is not accepted: the next exchange makes another one."""
        self.turns.append(Turn(self.suggested, "objection", {"error": error, "reason": reason}))
        self.next_step = ("suggestion", exchange + 1) if exchange < EXCHANGES else None

    def _read_revision(self, answer: Answer) -> ParsedAnswer:
        if answer.error:
            return ParsedAnswer(False, answer.error)
        slots = len(self.order)
        reading = parse_verdict(answer.text, self.rubric, slots, truncated=answer.truncated)
        if not reading.valid:
            return reading
        if reading.scores != self.suggestion.scores:
            return ParsedAnswer(False, "other points than the accepted suggestion's")
        if self.on_record.rationale is None:  # a row without a rationale stays without one
            return replace(reading, rationale=None)
        if reading.rationale is None:
            return ParsedAnswer(False, "no rationale")
        if not reads_back(format_verdict(reading, self.rubric), self.rubric, slots):
            return ParsedAnswer(False, "it cannot be read back as a completion")
        return reading

    def messages(
        self, block: str, turns: Sequence[Turn], may_ask: bool = False, **names: Any
    ) -> Messages:
        """Return what a partner is shown; `block` is "suggestion" or "review"."""
        case = self.mistake.recorded.case
        texts = [case.responses[index].text for index in self.order]
        verdicts = (self.on_record, self.mistake.judged_from(self.order))
        question, reference = case.question, case.reference
        return discussion_messages(
            self.rubric, question, texts, reference, verdicts, block, turns, may_ask, **names
        )


def knowledge(lookup: dict[str, Any]) -> Turn:
    """Return questions of the suggesting model, with what the books say."""
    return Turn(lookup["text"], "knowledge", lookup)


@dataclass
class Partners:
    """Two models that discuss mistakes.

    Args:
        chats: who suggests, reviews and revises, by `ROLES`.
        search: returns passages for questions; None: the suggesting model cannot ask.
        questions: most rounds of questions before a suggestion.
        shuffle: show the responses in the slots of the training row; False: in the case's order.
        about: fingerprints of the data set, the judge and the store, which a journal's messages must have.
    """

    chats: Mapping[str, Any]
    search: Search | None = None
    questions: int = 3
    shuffle: bool = True
    about: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.search is None:
            self.questions = 0
        chats = [self.chats[role].fingerprint for role in ROLES]
        template = template_fingerprint("discussion")
        self.label = f"discussion:{template}"
        settings = [template, self.questions, EXCHANGES, self.shuffle, list(self.about)]
        self.fingerprint = digest([*chats, *settings])

    def open(self, mistakes: Sequence[Mistake], journal: Journal) -> list[Discussion]:
        """Return the discussion of every mistake, with the messages that the journal holds.

        RecordError for a rubric without a score line; a message of other partners, settings, texts or verdicts.
        """
        discussions = {}
        for mistake in mistakes:
            recorded = mistake.recorded
            if not recorded.rubric.sums_up:
                raise RecordError(
                    f"{recorded.rubric.name}: a discussion needs a rubric with a score line; without --suggester "
                    "the jury decides"
                )
            order = recorded.order if self.shuffle else tuple(sorted(recorded.order))
            discussions[mistake.case_id] = Discussion(mistake, order)
        for piece in journal.records():
            discussion = discussions.get(piece["case_id"])
            if piece["settings"] != self.fingerprint:
                other = "of other partners, or on another data set or judge"
            elif discussion and piece["digest"] != discussion.mistake.digest:
                other = (
                    f"of case {piece['case_id']!r} as it was before its texts or verdicts changed"
                )
            else:
                other = ""
            if other:
                raise RecordError(
                    f"{journal.path} holds discussions {other}: choose another --output"
                )
            if discussion:
                discussion.add(piece)
        return list(discussions.values())

    def lead(self, discussions: Sequence[Discussion], journal: Journal) -> Iterator[dict[str, Any]]:
        """Lead discussions to their end; append every message to the journal, and yield it.

        If an endpoint fails on a prompt, that discussion waits, and there is a RecordError in the end. ChatError if an endpoint
        cannot go on.
        """
        leads = dict(zip(ROLES, (self._suggestion, self._review, self._revision)))
        for exchange, role in itertools.product(range(1, EXCHANGES + 1), ROLES):
            reached = {
                discussion.case_id: discussion
                for discussion in discussions
                if discussion.next_step == (role, exchange)
            }
            dialogues = [
                (case_id, leads[role](reached[case_id], exchange)) for case_id in sorted(reached)
            ]
            for case_id, content in self.chats[role].follow(dialogues):
                discussion = reached[case_id]
                piece = {"case_id": case_id, "role": role, "exchange": exchange, **content}
                piece |= {"when": now(), "settings": self.fingerprint}
                piece["digest"] = discussion.mistake.digest
                journal.append(piece)
                discussion.add(piece)
                yield piece
            journal.sync()
        if waiting := sum(discussion.next_step is not None for discussion in discussions):
            failures = [failure for chat in self.chats.values() for failure in chat.failures]
            raise RecordError(
                f"{waiting:,} discussions have not ended, the last error: {failures[-1]}; run the same command again to go on"
            )

    def _prompt(self, discussion: Discussion, messages: Messages, call: int) -> Prompt:
        return Prompt(messages, label=self.label, key=(discussion.case_id, call))

    def _suggestion(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the suggesting model ask questions, and suggest; return the message."""
        asked: list[dict[str, Any]] = []
        usage: Counter = Counter()
        before = discussion.asked
        seen = {normalise(question) for lookup in before for question in lookup["questions"]}
        may_ask = self.questions > 0
        for call in itertools.count(len(before) + exchange):
            turns = [*discussion.turns, *map(knowledge, asked)]
            messages = discussion.messages("suggestion", turns, may_ask)
            answer = yield self._prompt(discussion, messages, call)
            usage.update(answer.usage)
            questions = self._questions(answer, discussion) if may_ask else []
            if not questions:
                return _message(answer, usage) | {"asked": asked}
            new = [question for question in questions if normalise(question) not in seen]
            seen.update(map(normalise, new))
            may_ask = bool(new) and len(asked) + 1 < self.questions
            lookup: dict[str, Any] = {"text": own_text(answer.text), "questions": new}
            lookup |= {"passages": self._passages(new), "goes_on": may_ask}
            asked.append(lookup)

    def _passages(self, questions: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return what the books say on new questions, None without one."""
        if not questions or self.search is None:
            return None
        return [passage.to_dict() for passage in find_passages(self.search, questions)]

    def _questions(self, answer: Answer, discussion: Discussion) -> list[str]:
        """Return the questions after a message's last suggestion, or all if there is no suggestion."""
        suggestion = discussion.read(answer)
        rest = answer.text if suggestion.error else own_text(answer.text)[suggestion.end :]
        return questions_of(replace(answer, text=rest), discussion.rubric, len(discussion.order))

    def _review(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the reviewing model accept or object; return the message."""
        messages = discussion.messages("review", discussion.reviews, suggestion=discussion.first)
        answer = yield self._prompt(discussion, messages, exchange)
        return _message(answer, answer.usage)

    def _revision(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the suggesting model write its accepted suggestion into the verdict (Eq. 2); return the message."""
        scores = discussion.suggestion.scores
        points = format_verdict(ParsedAnswer(True, scores=scores), discussion.rubric)
        names = {"points": points, "rationale": discussion.on_record.rationale is not None}
        turns = [*discussion.turns, Turn(discussion.suggested, "revision", names)]
        answer = yield self._prompt(discussion, discussion.messages("suggestion", turns), 1)
        return _message(answer, answer.usage)


def _message(answer: Answer, usage: Mapping[str, int]) -> dict[str, Any]:
    """Return what a journal holds of an answer."""
    content = {"text": answer.text, "error": answer.error, "truncated": answer.truncated}
    return content | {"usage": dict(usage)}


def account(discussions: Sequence[Discussion], suggester: str, reviewer: str) -> list[str]:
    """Return the lines that report how discussions ended, and how many messages of each kind could not be read.

    RecordError if a partner answered in the format of its role in no discussion.
    """
    said = Counter(piece["role"] for discussion in discussions for piece in discussion.pieces)
    unread = sum((discussion.unread for discussion in discussions), Counter[str]())
    for role, who in (("suggestion", suggester), ("review", reviewer)):
        if said[role] and said[role] == unread[role]:
            raise RecordError(
                f"{who} never answered in the form of a {role}, in {len(discussions):,} discussions"
            )
    at = Counter(f"exchange {talk.agreed_at}" for talk in discussions if talk.decision)
    ended = arithmetic("mistakes", len(discussions), at, "without a consensus", "with one")
    read = arithmetic("messages", said.total(), unread, "read", "not read")
    return [
        f"discussion: {suggester} suggests, {reviewer} reviews",
        f"discussion: {ended}",
        f"discussion: {read}",
    ]
