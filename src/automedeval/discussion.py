"""The discussion of a mistake (paper, section 3.3, Figure 3; Algorithm 2, lines 8 and 9): suggestion, review, consensus.

Two verdicts on a case differ: the one on record, and the judge's. In an exchange the suggesting model proposes what is to
become of the verdict on record, and the reviewing model accepts or objects; an objection is heard in the next exchange. What is
accepted the suggesting model then writes into the verdict. Without a consensus within the exchanges there are, or where the
rewriting fails, the jury decides.

Here one discussion is read: where it stands, and what it came to, follows from what was said alone. `partners` leads many.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from automedeval.completion_chain import own_text
from automedeval.mistakes import Mistake
from automedeval.prompts import Answer, Messages, Turn, discussion_messages
from automedeval.rubrics import Rubric
from automedeval.verdicts import Reading, format_verdict, parse_verdict

EXCHANGES = 3  # Paper: "after up to three rounds of discussion"
ROLES = ("suggestion", "review", "revision")
Step = tuple[str, int]  # (role, number of the exchange)

_LEAD = r"^[-+•*#_`> \t]{0,12}"
_MARK = r"[*_`]{0,3}"
_SUGGESTION = re.compile(rf"{_LEAD}Suggestion{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}", re.I | re.M)
_KEEP = re.compile(rf"{_MARK}keep{_MARK}[.!]?{_MARK}[ \t]*(?:$|\n)", re.I)
_REVIEW = re.compile(
    rf"{_LEAD}Review{_MARK}[ \t]{{0,3}}[:：]{_MARK}[ \t]{{0,5}}{_MARK}(accept|object)(?:ed|ion|s)?\b(?!\s*(?:/|or\b))"
    rf"{_MARK}[ \t]{{0,3}}[.,:;–—-]?{_MARK}",
    re.I | re.M,
)


# --- what the partners say --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suggestion:
    """A proposed revision of the verdict on record: its text, and the scores that all responses should have, by slot.

    `keep` says that the verdict on record is to stand. `shown` is what the reviewer is shown, `end` where it ends in the
    message. One that cannot be read says why in `error`.
    """

    error: str | None = None
    keep: bool = False
    text: str = ""
    scores: tuple[int, ...] = ()
    shown: str = ""
    end: int = 0


@dataclass(frozen=True)
class Review:
    """The reviewing model's opinion of a suggestion; one that cannot be read says why in `error`."""

    error: str | None = None
    accepts: bool = False
    reason: str = ""


def read_suggestion(answer: Answer, rubric: Rubric, on_record: Sequence[int]) -> Suggestion:
    """Read a suggesting model's message; its last suggestion counts.

    Args:
        on_record: the scores on record, by slot. Who proposes just these keeps the verdict.
    """
    if answer.error:
        return Suggestion(answer.error)
    text = own_text(answer.text)
    headers = list(_SUGGESTION.finditer(text))
    if not headers:
        return Suggestion("no line that begins with 'Suggestion:'")
    header = headers[-1]
    body, shown = text[header.end() :], text[header.start() :].strip()
    reading = parse_verdict(body, rubric, len(on_record), truncated=answer.truncated)
    if keep := _KEEP.match(body):
        if reading.valid and reading.scores != tuple(on_record):
            return Suggestion("it keeps the verdict on record and gives other points")
        return Suggestion(None, True, "", tuple(on_record), shown, header.end() + keep.end())
    if not reading.valid:
        return Suggestion(reading.error)
    if not reading.rationale:
        return Suggestion("points without a reason")
    kept = reading.scores == tuple(on_record)
    return Suggestion(None, kept, reading.rationale, reading.scores, shown, header.end() + reading.spans[-1][1])


def read_review(answer: Answer) -> Review:
    """Read a reviewing model's message; its last "Review: …" counts."""
    if answer.error:
        return Review(answer.error)
    text = own_text(answer.text)
    found = list(_REVIEW.finditer(text))
    if not found:
        return Review("no line that reads 'Review: accept' or 'Review: object'")
    accepts = found[-1][1].casefold() == "accept"
    reason = text[found[-1].end() :].strip() or text[: found[-1].start()].strip()
    return Review(None, accepts, "" if accepts else reason)


# --- where a discussion stands ----------------------------------------------------------------------------------------


@dataclass
class Discussion:
    """What was said so far about one mistake.

    Args:
        mistake: what it is about.
        order: which response stands in which slot, as the partners see them.
        exchanges: most exchanges of a suggestion and a review.
        pieces: what was said, by step.
    """

    mistake: Mistake
    order: tuple[int, ...]
    exchanges: int = EXCHANGES
    pieces: dict[Step, dict[str, Any]] = field(default_factory=dict)
    suggestions: dict[int, Suggestion] = field(default_factory=dict)
    reviews: dict[int, Review] = field(default_factory=dict)
    revised: Reading | None = None

    @property
    def case_id(self) -> str:
        return self.mistake.case_id

    @property
    def rubric(self) -> Rubric:
        return self.mistake.recorded.rubric

    @cached_property
    def on_record(self) -> Reading:
        """The verdict on record, in the slots that the partners see."""
        return self.mistake.recorded.seen_from(self.order)

    def add(self, piece: dict[str, Any]) -> None:
        """Take up what was said in a step."""
        role, exchange = step = (piece["role"], piece["exchange"])
        self.pieces[step] = piece
        answer = Answer(piece["text"], truncated=piece["truncated"], error=piece["error"])
        if role == "suggestion":
            self.suggestions[exchange] = read_suggestion(answer, self.rubric, self.on_record.scores)
        elif role == "review":
            self.reviews[exchange] = read_review(answer)
        else:
            self.revised = self._read_revision(answer)

    def _read_revision(self, answer: Answer) -> Reading:
        _, suggestion = self.accepted
        if answer.error:
            return Reading(False, answer.error)
        reading = parse_verdict(answer.text, self.rubric, len(self.order), truncated=answer.truncated)
        if not reading.valid:
            return reading
        if reading.scores != suggestion.scores:
            return Reading(False, "other points than the accepted suggestion's")
        if self.on_record.rationale is None:  # a row that asks for scores alone goes on doing so
            return replace(reading, rationale=None)
        if reading.rationale is None:
            return Reading(False, "no rationale")
        again = parse_verdict(format_verdict(reading, self.rubric), self.rubric, len(self.order))
        same = again.valid and (again.rationale, again.scores) == (reading.rationale, reading.scores)
        return reading if same else Reading(False, "it cannot be read back as a completion")

    @property
    def accepted(self) -> tuple[int, Suggestion] | None:
        """Return the exchange of the consensus and its suggestion, None without one."""
        for exchange, review in self.reviews.items():
            if review.accepts:
                return exchange, self.suggestions[exchange]
        return None

    @property
    def consensus(self) -> bool:
        """Return whether the verdict on record is kept or rewritten in agreement."""
        return self.accepted is not None and (
            self.accepted[1].keep or (self.revised is not None and self.revised.valid)
        )

    @property
    def next_step(self) -> Step | None:
        """Return what comes next, None if the discussion has ended."""
        for exchange in range(1, self.exchanges + 1):
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

    @property
    def silent(self) -> str | None:
        """Return which partner never answered in the format, "suggester" or "reviewer", None if both did."""
        if self.suggestions and all(suggestion.error for suggestion in self.suggestions.values()):
            return "suggester"
        return "reviewer" if self.reviews and all(review.error for review in self.reviews.values()) else None

    # --- what the partners see ---

    def asked_before(self, exchange: int) -> list[dict[str, Any]]:
        """Return the questions that were put to the books in earlier exchanges, with what was found."""
        return [each for number in range(1, exchange) for each in self.pieces["suggestion", number]["asked"]]

    def suggester_turns(self, exchange: int, asked: Iterable[dict[str, Any]] = ()) -> list[Turn]:
        """Return what the suggesting model said before an exchange, and in it asked so far, with the replies."""
        turns = []
        for number in range(1, exchange):
            turns += [Turn(each["text"], "knowledge", each) for each in self.pieces["suggestion", number]["asked"]]
            suggestion, review = self.suggestions[number], self.reviews.get(number)
            reply = {"error": suggestion.error, "reason": None if review is None or review.error else review.reason}
            turns.append(Turn(own_text(self.pieces["suggestion", number]["text"]), "objection", reply))
        return turns + [Turn(each["text"], "knowledge", each) for each in asked]

    def messages(self, block: str, turns: Sequence[Turn], may_ask: bool = False, **names: Any) -> Messages:
        """Render what a partner is shown."""
        case = self.mistake.recorded.case
        texts = [case.responses[index].text for index in self.order]
        record = {"rationale": self.on_record.rationale, "scores": self.on_record.scores, "error": None, "raw": None}
        verdicts = (record, self.mistake.judged_from(self.order))
        return discussion_messages(
            self.rubric, case.question, texts, case.reference, verdicts, block, turns, may_ask, **names
        )
