"""Have two models discuss a judge's mistakes (paper, section 3.3, Figure 3; Algorithm 2, lines 8 and 9).

In each exchange the suggesting model proposes to keep or to revise the verdict on record, and the reviewing model accepts or
objects; the next exchange answers the objection. The suggesting model then writes an accepted suggestion into the verdict. The
jury decides if there is no consensus, or if the revised verdict is unusable. A journal keeps all messages; an interrupted run
goes on from them.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from automedeval.models.base import Answer, Chat, Dialogue, Messages, Prompt
from automedeval.records import RecordError, digest
from automedeval.records.journal import Journal, now
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
    if keep := _KEEP.match(body):
        if _REVISES.search(body, keep.end()):
            return Suggestion("more than 'Suggestion: keep', which may take it back")
        if reading.error != NO_SCORE_LINE and scores != tuple(on_record):
            return Suggestion("it keeps the verdict on record and gives other points")
        return Suggestion(None, True, tuple(on_record), shown, header.end() + keep.end())
    if not reading.valid:
        return Suggestion(reading.error)
    if not reading.rationale:
        return Suggestion("points without a reason")
    return Suggestion(None, scores == tuple(on_record), scores, shown, len(text))


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
    before, after = text[: reviews[-1].start()].strip(), text[reviews[-1].end() :].strip()
    if reviews[-1][1].casefold() == "object":
        return Review(reason=after or before)
    if after or _TAKES_BACK.search(before):
        return Review("more than 'Review: accept', which may take it back")
    return Review(accepts=True)


@dataclass
class Discussion:
    """The messages about one mistake so far.

    `order` says which response is in which slot of the partners' prompts; `pieces` are the messages by step, as in the journal.
    """

    mistake: Mistake
    order: tuple[int, ...]
    pieces: dict[Step, dict[str, Any]] = field(default_factory=dict)
    suggestions: dict[int, Suggestion] = field(default_factory=dict)
    reviews: dict[int, Review] = field(default_factory=dict)
    revised: ParsedAnswer | None = None

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

    def add(self, piece: dict[str, Any]) -> None:
        role, exchange = step = (piece["role"], piece["exchange"])
        self.pieces[step] = piece
        answer = Answer(piece["text"], truncated=piece["truncated"], error=piece["error"])
        if role == "suggestion":
            self.suggestions[exchange] = read_suggestion(
                answer, self.rubric, self.on_record.scores or ()
            )
        elif role == "review":
            self.reviews[exchange] = read_review(answer)
        else:
            self.revised = self._read_revision(answer, self.suggestions[exchange])

    def _read_revision(self, answer: Answer, suggestion: Suggestion) -> ParsedAnswer:
        if answer.error:
            return ParsedAnswer(False, answer.error)
        reading = parse_verdict(
            answer.text, self.rubric, len(self.order), truncated=answer.truncated
        )
        if not reading.valid:
            return reading
        if reading.scores != suggestion.scores:
            return ParsedAnswer(False, "other points than the accepted suggestion's")
        if self.on_record.rationale is None:  # a row without a rationale stays without one
            return replace(reading, rationale=None)
        if reading.rationale is None:
            return ParsedAnswer(False, "no rationale")
        if not reads_back(format_verdict(reading, self.rubric), self.rubric, len(self.order)):
            return ParsedAnswer(False, "it cannot be read back as a completion")
        return reading

    @property
    def accepted(self) -> tuple[int, Suggestion] | None:
        """Return the exchange of the consensus and its suggestion, None without one."""
        agreed = (exchange for exchange, review in self.reviews.items() if review.accepts)
        return next(((exchange, self.suggestions[exchange]) for exchange in agreed), None)

    @property
    def consensus(self) -> bool:
        """Return whether both partners agree, and an agreed revision is valid."""
        revised = self.revised is not None and self.revised.valid
        return self.accepted is not None and (self.accepted[1].keep or revised)

    @property
    def next_step(self) -> Step | None:
        """Return the next step, None if the discussion has ended."""
        for exchange in range(1, EXCHANGES + 1):
            suggestion, review = self.suggestions.get(exchange), self.reviews.get(exchange)
            if suggestion is None:
                return "suggestion", exchange
            if suggestion.error:
                continue
            if review is None:
                return "review", exchange
            if review.accepts:
                return None if suggestion.keep or self.revised else ("revision", exchange)
        return None

    def suggester_turns(self, exchange: int, asked: Iterable[dict[str, Any]] = ()) -> list[Turn]:
        """Return the suggesting model's messages before an exchange, and its questions in it, with the replies."""
        turns = []
        for number in range(1, exchange):
            turns += [
                Turn(lookup["text"], "knowledge", lookup)
                for lookup in self.pieces["suggestion", number]["asked"]
            ]
            suggestion, review = self.suggestions[number], self.reviews.get(number)
            reply = {
                "error": suggestion.error,
                "reason": None if review is None or review.error else review.reason,
            }
            turns.append(
                Turn(own_text(self.pieces["suggestion", number]["text"]), "objection", reply)
            )
        return turns + [Turn(lookup["text"], "knowledge", lookup) for lookup in asked]

    def messages(
        self, block: str, turns: Sequence[Turn], may_ask: bool = False, **names: Any
    ) -> Messages:
        case = self.mistake.recorded.case
        texts = [case.responses[index].text for index in self.order]
        verdicts = (self.on_record, self.mistake.judged_from(self.order))
        return discussion_messages(
            self.rubric,
            case.question,
            texts,
            case.reference,
            verdicts,
            block,
            turns,
            may_ask,
            **names,
        )


@dataclass
class Partners:
    """Two models that discuss mistakes.

    Args:
        suggester, reviewer: suggest, and accept or object.
        reviser: writes an accepted suggestion into the verdict; the suggester if None.
        search: returns passages for questions; None: the suggesting model cannot ask.
        questions: most rounds of questions before a suggestion.
        shuffle: show the responses in the slots of the training row; False: in the case's order.
        about: fingerprints of the data set, the judge and the store, which a journal's messages must have.
    """

    suggester: Chat
    reviewer: Chat
    reviser: Chat | None = None
    search: Search | None = None
    questions: int = 3
    shuffle: bool = True
    about: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.questions = self.questions if self.search else 0
        self._chats: dict[str, Any] = dict(
            zip(ROLES, (self.suggester, self.reviewer, self.reviser or self.suggester))
        )
        settings = [
            template_fingerprint("discussion"),
            self.questions,
            EXCHANGES,
            self.shuffle,
            list(self.about),
        ]
        self.fingerprint = digest([*(chat.fingerprint for chat in self._chats.values()), *settings])

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
            discussions[recorded.case.id] = Discussion(mistake, order)
        for piece in journal.records():
            if piece.get("role") not in ROLES:
                continue
            if piece["settings"] != self.fingerprint:
                raise RecordError(
                    f"{journal.path} holds discussions of other partners, or on another data set or judge "
                    f"({piece['settings']}, now {self.fingerprint}): choose another --output"
                )
            if (discussion := discussions.get(piece["case_id"])) is None:
                continue
            if piece["digest"] != discussion.mistake.digest:
                raise RecordError(
                    f"{journal.path} holds a discussion of case {piece['case_id']!r} as it was before its texts or verdicts "
                    "changed: choose another --output"
                )
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
            dialogues = (
                (case_id, leads[role](reached[case_id], exchange)) for case_id in sorted(reached)
            )
            for case_id, content in self._chats[role].follow(dialogues):
                piece = {"case_id": case_id, "role": role, "exchange": exchange, **content}
                piece |= {
                    "when": now(),
                    "settings": self.fingerprint,
                    "digest": reached[case_id].mistake.digest,
                }
                journal.append(piece)
                reached[case_id].add(piece)
                yield piece
            journal.sync()
        if waiting := sum(discussion.next_step is not None for discussion in discussions):
            failures = [
                failure
                for chat in (self.suggester, self.reviewer)
                for failure in getattr(chat, "failures", ())
            ]
            raise RecordError(
                f"{waiting:,} discussions have not ended, the last error: {failures[-1]}; run the same command again to go on"
            )

    def _prompt(self, discussion: Discussion, messages: Messages, call: int) -> Prompt:
        label = f"discussion:{template_fingerprint('discussion')}"
        return Prompt(messages, label=label, key=(discussion.case_id, call))

    def _suggestion(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the suggesting model ask questions, and suggest; return the message."""
        asked: list[dict[str, Any]] = []
        usage: Counter = Counter()
        before = [
            lookup
            for number in range(1, exchange)
            for lookup in discussion.pieces["suggestion", number]["asked"]
        ]
        seen = {normalise(question) for lookup in before for question in lookup["questions"]}
        may_ask = self.questions > 0
        for call in itertools.count(len(before) + exchange):
            turns = discussion.suggester_turns(exchange, asked)
            answer = yield self._prompt(
                discussion, discussion.messages("suggestion", turns, may_ask), call
            )
            usage.update(answer.usage)
            questions = self._questions(answer, discussion) if may_ask else []
            if not questions:
                return _message(answer, usage, asked=asked)
            new = [question for question in questions if normalise(question) not in seen]
            seen.update(map(normalise, new))
            may_ask = bool(new) and len(asked) + 1 < self.questions
            knowledge = find_passages(self.search, new) if new and self.search else None
            passages = None if knowledge is None else [passage.to_dict() for passage in knowledge]
            asked.append(
                {
                    "text": own_text(answer.text),
                    "questions": new,
                    "passages": passages,
                    "goes_on": may_ask,
                }
            )

    def _questions(self, answer: Answer, discussion: Discussion) -> list[str]:
        """Return the questions after a message's last suggestion, or all if there is no suggestion."""
        suggestion = read_suggestion(answer, discussion.rubric, discussion.on_record.scores or ())
        rest = own_text(answer.text)[suggestion.end :] if not suggestion.error else answer.text
        return questions_of(replace(answer, text=rest), discussion.rubric, len(discussion.order))

    def _review(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the reviewing model accept or object; return the message."""
        suggestions = {
            number: suggestion.shown
            for number, suggestion in discussion.suggestions.items()
            if not suggestion.error
        }
        turns = []
        for before, number in itertools.pairwise(suggestions):
            names = {"error": discussion.reviews[before].error, "suggestion": suggestions[number]}
            turns.append(
                Turn(own_text(discussion.pieces["review", before]["text"]), "suggested", names)
            )
        messages = discussion.messages("review", turns, suggestion=next(iter(suggestions.values())))
        answer = yield self._prompt(discussion, messages, exchange)
        return _message(answer, answer.usage)

    def _revision(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Have the suggesting model write its accepted suggestion into the verdict (Eq. 2); return the message."""
        suggestion = discussion.suggestions[exchange]
        points = format_verdict(ParsedAnswer(True, scores=suggestion.scores), discussion.rubric)
        names = {"points": points, "rationale": discussion.on_record.rationale is not None}
        asked = discussion.pieces["suggestion", exchange]["asked"]
        turns = discussion.suggester_turns(exchange, asked)
        turns.append(
            Turn(own_text(discussion.pieces["suggestion", exchange]["text"]), "revision", names)
        )
        answer = yield self._prompt(discussion, discussion.messages("suggestion", turns), 1)
        return _message(answer, answer.usage)


def _message(answer: Answer, usage: dict[str, int], **more: Any) -> dict[str, Any]:
    content = {"text": answer.text, "error": answer.error, "truncated": answer.truncated}
    return {**content, "usage": dict(usage), **more}


def account(discussions: Sequence[Discussion], suggester: str, reviewer: str) -> list[str]:
    """Return the lines that report how discussions ended, and how many messages of each kind could not be read.

    RecordError if a partner answered in the format of its role in no discussion.
    """
    errors = {
        "suggestion": [
            suggestion.error
            for discussion in discussions
            for suggestion in discussion.suggestions.values()
        ],
        "review": [
            review.error for discussion in discussions for review in discussion.reviews.values()
        ],
        "revision": [discussion.revised.error for discussion in discussions if discussion.revised],
    }
    for role, who in (("suggestion", f"suggester {suggester}"), ("review", f"reviewer {reviewer}")):
        if errors[role] and all(errors[role]):
            piece = next(
                piece
                for discussion in discussions
                for piece in discussion.pieces.values()
                if piece["role"] == role
            )
            begins = " ".join((piece["text"] or piece["error"] or "").split())[:80]
            raise RecordError(
                f"the {who} never answered in the form of a {role}, in {len(discussions):,} discussions; case "
                f"{piece['case_id']!r}: {begins!r}"
            )
    at = Counter(
        discussion.accepted[0]
        for discussion in discussions
        if discussion.accepted and discussion.consensus
    )
    unreadable = {role: sum(map(bool, messages)) for role, messages in errors.items()}
    exchanges = ", ".join(
        f"exchange {exchange}: {count:,}" for exchange, count in sorted(at.items())
    )
    agreed = f"{at.total():,} consensus{f' ({exchanges})' if exchanges else ''}"
    lines = [
        f"discussion: {suggester} suggests, {reviewer} reviews",
        f"discussion: {len(discussions):,} mistakes → {agreed}, {len(discussions) - at.total():,} without",
    ]
    words = ", ".join(f"{what}: {count:,}" for what, count in unreadable.items() if count)
    if words:
        lines.append(f"discussion: could not be read, {words}")
    return lines
