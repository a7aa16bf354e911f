"""Have two models discuss a judge's mistakes (paper, section 3.3, Figure 3; Algorithm 2, lines 8 and 9).

In each exchange the suggesting model proposes to keep or to revise the verdict on record, and the reviewing model accepts or
objects; the next exchange answers the objection. The suggesting model then writes an accepted suggestion into the verdict. The
jury decides if there is no consensus, or if the revised verdict is unusable. A journal keeps all messages; an interrupted run
goes on from them.
"""

import re
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, product
from typing import Any, NamedTuple

from automedeval.judges.chat_judge import read_answer
from automedeval.models.base import Answer, Dialogue, Prompt
from automedeval.records import JsonObject, RecordError, digest
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
from automedeval.rubrics.questions import Search, look_up, questions_of
from automedeval.rubrics.slots import reordered
from automedeval.study.introspection.mistakes import Mistake

EXCHANGES = 3  # Paper: "after up to three rounds of discussion"
ROLES = ("suggestion", "review", "revision")
_LEAD = r"^[-+•*#_`> \t]{0,12}"
_MARK = r"[*_`]{0,3}"
_SUGGESTION = re.compile(rf"(?im){_LEAD}Suggestion{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}")
_KEEP = re.compile(rf"(?i){_MARK}keep{_MARK}[.!]?{_MARK}[ \t]*(?:$|\n)")
_REVIEW = re.compile(
    rf"(?im){_LEAD}Review{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}{_MARK}(accept|object)(?:ed|ion|s)?"
    rf"{_MARK}[.!]?{_MARK}[ \t]*$",
)
# What objects, or makes a condition: an acceptance beside it may be none.
_TAKES_BACK = re.compile(
    r"(?i)\b(?:object(?:s|ed|ing|ions?)?|disagree|reject|(?:not|n['’]t) accept|cannot"
    r"|if|unless|until|provided|except|but|however|would|only)\b",
)
# What revises a verdict behind "keep".
_REVISES = re.compile(
    rf"{_TAKES_BACK.pattern}|\b(?:wait|revis(?:e|ed|ion)|lower|raise|deserves?|should)\b"
)


@dataclass(frozen=True)
class Suggestion:
    """A proposal to keep or to revise the verdict on record, with the scores of all responses by slot.

    `shown` is the text for the reviewer. `error` says why a message cannot be parsed.
    """

    error: str | None = None
    scores: tuple[int, ...] = ()
    shown: str = ""


@dataclass(frozen=True)
class Review:
    """The reviewing model's answer to a suggestion; `error` says why a message cannot be parsed, `reason` why it objects."""

    error: str | None = None
    accepts: bool = False
    reason: str | None = None


def read_suggestion(answer: Answer, rubric: Rubric, on_record: tuple[int, ...]) -> Suggestion:
    """Parse a suggesting model's message; the last suggestion counts. `on_record` are the scores on record by slot."""
    if answer.error:
        return Suggestion(answer.error)
    text = own_text(answer.text)
    headers = list(_SUGGESTION.finditer(text))
    if not headers:
        return Suggestion("no line that begins with 'Suggestion:'")
    header = headers[-1]
    shown = text[header.start() :].strip()
    body = text[header.end() :]
    reading = parse_verdict(body, rubric, len(on_record), truncated=answer.truncated)
    if keep := _KEEP.match(body):
        if _REVISES.search(body, keep.end()):
            return Suggestion("more than 'Suggestion: keep', which may take it back")
        if reading.error != NO_SCORE_LINE and reading.scores != on_record:
            return Suggestion("it keeps the verdict on record and gives other points")
        return Suggestion(None, on_record, shown)
    if not reading.valid:
        return Suggestion(reading.error)
    if not reading.rationale:
        return Suggestion("points without a reason")
    return Suggestion(None, reading.scores or (), shown)


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
    before = text[: last.start()].strip()
    after = text[last.end() :].strip()
    if last[1].casefold() == "object":
        return Review(reason=after or before)
    if after or _TAKES_BACK.search(before):
        return Review("more than 'Review: accept', which may take it back")
    return Review(accepts=True)


class Step(NamedTuple):
    """The next message of a discussion: who says it, in which exchange, and the dialogue that returns it."""

    role: str
    exchange: int
    dialogue: Dialogue


class Discussion:
    """The discussion of one mistake so far: what was said, and the next `step`, None behind the last one.

    `order` says which response is in which slot of the partners' prompts; `pieces` are the messages, as in the journal, and
    `unread` counts those of a role that could not be read. `asked` is what the suggesting model looked up, and `suggestion`
    its last one that could be read: the one that both agreed on, if they did so, in the exchange `agreed_at`. `decision` is
    "keep" or "revise"; None without a consensus, or a revision that holds, which is `revised`.
    """

    def __init__(self, mistake: Mistake, order: tuple[int, ...], partners: "Partners"):
        self.mistake = mistake
        self.order = order
        self.partners = partners
        self.rubric = mistake.recorded.rubric
        self.pieces: list[JsonObject] = []
        self.unread = Counter[str]()
        self.asked: list[JsonObject] = []
        self.suggestion = Suggestion()
        self.agreed_at: int | None = None
        self.decision: str | None = None
        self.revised: ParsedAnswer | None = None
        self._steps = self._exchanges()
        self.step: Step | None = next(self._steps)

    @cached_property
    def on_record(self) -> ParsedAnswer:
        """The verdict on record, in the slots of the partners' prompts."""
        recorded = self.mistake.recorded
        return reordered(recorded.reading, recorded.order, self.order, self.rubric.slot_word)

    def add(self, piece: JsonObject) -> None:
        """Take in a message, and settle the next step."""
        self.pieces.append(piece)
        self.step = self._steps.send(piece)

    def _exchanges(self) -> Generator[Step | None, JsonObject, None]:
        """Yield who says what next, and receive the message, until both agree or the exchanges are used up."""
        turns: list[Turn] = []  # the suggesting model's, each with the reply to it
        reviews: list[Turn] = []
        first = ""
        for exchange in range(1, EXCHANGES + 1):
            piece = yield Step("suggestion", exchange, self._suggest(turns, exchange))
            self.asked += piece["asked"]
            turns += map(knowledge, piece["asked"])
            text = own_text(piece["text"])
            suggestion = self._read_suggestion(_answer(piece))
            if suggestion.error:
                self.unread["suggestion"] += 1
                turns.append(Turn(text, "objection", {"error": suggestion.error}))
                continue
            self.suggestion = suggestion
            if reviews:
                reviews[-1].names["suggestion"] = suggestion.shown
            first = first or suggestion.shown

            dialogue = self._say("review", reviews, exchange, suggestion=first)
            piece = yield Step("review", exchange, dialogue)
            review = read_review(_answer(piece))
            if not review.accepts:
                if review.error:
                    self.unread["review"] += 1
                reviews.append(Turn(own_text(piece["text"]), "suggested", {"error": review.error}))
                turns.append(Turn(text, "objection", {"error": None, "reason": review.reason}))
                continue
            self.agreed_at = exchange
            if suggestion.scores == self.on_record.scores:
                self.decision = "keep"
                break

            wanted = {
                "points": format_verdict(ParsedAnswer(True, scores=suggestion.scores), self.rubric),
                "rationale": self.on_record.rationale is not None,
            }
            turns.append(Turn(text, "revision", wanted))
            piece = yield Step("revision", exchange, self._say("suggestion", turns, call=1))
            self.revised = self._read_revision(piece)
            if self.revised:
                self.decision = "revise"
            else:
                self.unread["revision"] += 1
            break
        yield None

    def _read_suggestion(self, answer: Answer) -> Suggestion:
        return read_suggestion(answer, self.rubric, self.on_record.scores or ())

    def _read_revision(self, piece: JsonObject) -> ParsedAnswer | None:
        """Return the revised verdict; None if it has no or other points, or lacks a rationale that can be a completion's."""
        slots = len(self.order)
        reading = read_answer(_answer(piece), self.rubric, slots)
        if not reading.valid or reading.scores != self.suggestion.scores:
            return None
        if self.on_record.rationale is None:  # a row without a rationale stays without one
            return replace(reading, rationale=None)
        completion = format_verdict(reading, self.rubric)
        if reading.rationale is None or not reads_back(completion, self.rubric, slots):
            return None
        return reading

    def _suggest(self, turns: Sequence[Turn], exchange: int) -> Dialogue:
        """Have the suggesting model ask questions, and suggest; return the message."""
        asked: list[JsonObject] = []
        usage = Counter[str]()
        before = chain.from_iterable(lookup["questions"] for lookup in self.asked)
        seen = set(map(normalise, before))
        may_ask = self.partners.questions > 0
        for call in count(len(self.asked) + exchange):
            so_far = [*turns, *map(knowledge, asked)]
            answer = yield self._prompt("suggestion", so_far, call, may_ask=may_ask)
            usage.update(answer.usage)
            questions = self._questions(answer) if may_ask else []
            if not questions:
                return _message(answer, usage) | {"asked": asked}
            new, passages = look_up(self.partners.search, questions, seen)
            may_ask = bool(new) and len(asked) + 1 < self.partners.questions
            lookup = {"text": own_text(answer.text), "questions": new, "passages": passages}
            asked.append(lookup | {"goes_on": may_ask})

    def _questions(self, answer: Answer) -> list[str]:
        """Return the questions after a message's last suggestion, or all if there is no suggestion."""
        text = self._read_suggestion(answer).shown or answer.text
        return questions_of(replace(answer, text=text), self.rubric, len(self.order))

    def _say(self, block: str, turns: Sequence[Turn], call: int, **names: Any) -> Dialogue:
        """Have a partner say one thing; return the message."""
        answer = yield self._prompt(block, turns, call, **names)
        return _message(answer, answer.usage)

    def _prompt(self, block: str, turns: Sequence[Turn], call: int, **names: Any) -> Prompt:
        """Return what a partner is shown in a call; `block` is "suggestion" or "review"."""
        case = self.mistake.recorded.case
        texts = case.texts(self.order)
        verdicts = (self.on_record, self.mistake.judged_from(self.order))
        messages = discussion_messages(
            self.rubric, case.question, texts, case.reference, verdicts, block, turns, **names
        )
        return Prompt(messages, label=self.partners.label, key=(self.mistake.case_id, call))


def knowledge(lookup: JsonObject) -> Turn:
    """Return questions of the suggesting model, with what the books say."""
    return Turn(lookup["text"], "knowledge", lookup)


def _answer(piece: JsonObject) -> Answer:
    """Return the answer that a message in a journal was."""
    return Answer(piece["text"], truncated=piece["truncated"], error=piece["error"])


def _message(answer: Answer, usage: Mapping[str, int]) -> JsonObject:
    """Return what a journal holds of an answer."""
    return {
        "text": answer.text,
        "error": answer.error,
        "truncated": answer.truncated,
        "usage": dict(usage),
    }


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

    def open(self, mistakes: Sequence[Mistake], journal: Journal) -> dict[str, Discussion]:
        """Return the discussion of every mistake, by case id, with the messages that the journal holds.

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
            discussions[mistake.case_id] = Discussion(mistake, order, self)
        for piece in journal.records():
            discussion = discussions.get(piece["case_id"])
            is_of_it = discussion is None or piece["digest"] == discussion.mistake.digest
            if piece["settings"] != self.fingerprint or not is_of_it:
                raise RecordError(
                    f"{journal.path}: case {piece['case_id']!r} was discussed by other partners, on another data set or judge, "
                    "or before its texts or verdicts changed: choose another --output"
                )
            if discussion is not None:
                discussion.add(piece)
        return discussions

    def lead(self, discussions: Mapping[str, Discussion], journal: Journal) -> Iterator[JsonObject]:
        """Lead discussions to their end; append every message to the journal, and yield it.

        If an endpoint fails on a prompt, that discussion waits, and there is a RecordError in the end. ChatError if an endpoint
        cannot go on.
        """
        for exchange, role in product(range(1, EXCHANGES + 1), ROLES):
            dialogues = []
            for case_id in sorted(discussions):
                step = discussions[case_id].step
                if step and step[:2] == (role, exchange):
                    dialogues.append((case_id, step.dialogue))
            for case_id, content in self.chats[role].follow(dialogues):
                discussion = discussions[case_id]
                piece = {
                    "case_id": case_id,
                    "role": role,
                    "exchange": exchange,
                    **content,
                    "when": now(),
                    "settings": self.fingerprint,
                    "digest": discussion.mistake.digest,
                }
                journal.append(piece)
                discussion.add(piece)
                yield piece
            journal.sync()
        if waiting := sum(discussion.step is not None for discussion in discussions.values()):
            failures = [chat.failures[-1] for chat in self.chats.values() if chat.failures]
            raise RecordError(
                f"{waiting:,} discussions have not ended, the last error: {failures[-1]}; run the same command again to go on"
            )


def account(discussions: Collection[Discussion], suggester: str, reviewer: str) -> list[str]:
    """Return the lines that report how discussions ended, and how many messages of each kind could not be read.

    RecordError if a partner answered in the format of its role in no discussion.
    """
    said = Counter[str]()
    unread = Counter[str]()
    for talk in discussions:
        said.update(piece["role"] for piece in talk.pieces)
        unread.update(talk.unread)
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
