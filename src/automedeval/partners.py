"""The partners of discussions: two models that discuss a judge's mistakes (paper, section 3.3; Algorithm 2, lines 7 to 10).

All mistakes are discussed side by side, exchange by exchange: the suggestions, then the reviews, then what was accepted is
written down. Every answer is one piece in a journal, so that a run that was killed goes on where it stopped.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from automedeval.completion_chain import WINDOW, Search, follow_in_rounds, normalised, own_text, questions_of
from automedeval.discussion import EXCHANGES, ROLES, Discussion, Step, read_suggestion
from automedeval.journal import Journal
from automedeval.mistakes import Mistake
from automedeval.prompts import Answer, Dialogue, Messages, Prompt, Turn, discussion_fingerprint
from automedeval.records import RecordError
from automedeval.verdicts import Reading, format_verdict

if TYPE_CHECKING:
    from automedeval.chat import Chat  # its client is slow to import, and other partners do not need it


@dataclass
class Partners:
    """Two models that discuss mistakes, and what they may look up.

    Args:
        suggester: suggests; `reviser`, by default the same, writes the accepted suggestion into the verdict.
        reviewer: accepts or objects.
        search: questions in, passages out; None: the suggesting model cannot ask.
        questions: most rounds of questions before a suggestion.
        exchanges: most exchanges of a suggestion and a review.
        shuffle: show the responses in the slots of the training row; else in the case's order.
        about: fingerprints of what the mistakes come from (data set, judge, store).
    """

    suggester: "Chat"
    reviewer: "Chat"
    reviser: "Chat | None" = None
    search: Search | None = None
    questions: int = 3
    exchanges: int = EXCHANGES
    shuffle: bool = True
    about: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.reviser = self.reviser or self.suggester
        self.questions = self.questions if self.search else 0
        chats = [chat.fingerprint for chat in (self.suggester, self.reviewer, self.reviser)]
        settings = [*chats, discussion_fingerprint(), self.questions, self.exchanges, self.shuffle, list(self.about)]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]

    def open(self, mistakes: Sequence[Mistake], journal: Journal) -> list[Discussion]:
        """Return the discussion of every mistake, each as far as the journal has it.

        Raises:
            RecordError: a rubric without a score line; or the journal is of other partners, settings or verdicts.
        """
        found = {}
        for mistake in mistakes:
            recorded = mistake.recorded
            if recorded.rubric.grammar != "score_line":
                raise RecordError(
                    f"{recorded.rubric.name}: a discussion needs a rubric with a score line; --partners none leaves every "
                    "mistake to the jury"
                )
            order = recorded.order if self.shuffle else tuple(sorted(recorded.order))
            found[recorded.case.id] = Discussion(mistake, order, self.exchanges)
        for piece in journal.records():
            if piece.get("role") not in ROLES:
                continue
            if piece["settings"] != self.fingerprint:
                raise RecordError(
                    f"{journal.path} holds discussions of other partners, or on another data set or judge "
                    f"({piece['settings']}, now {self.fingerprint}): choose another --discussion"
                )
            if (discussion := found.get(piece["case_id"])) is None:
                continue
            if piece["digest"] != discussion.mistake.digest:
                raise RecordError(
                    f"{journal.path} holds a discussion of case {piece['case_id']!r} as it was before its texts or verdicts "
                    "changed: choose another --discussion"
                )
            discussion.add(piece)
        return list(found.values())

    def lead(self, discussions: Sequence[Discussion], journal: Journal) -> Iterator[dict[str, Any]]:
        """Lead discussions to their end, exchange by exchange; append every piece as it comes, and yield it.

        A checkpoint answers a window of discussions in batches, and answers the whole of it again where a piece is missing, so
        that its batches are the same however often a run was interrupted. Where an endpoint fails, a discussion stops short.

        Raises:
            ChatError: an endpoint cannot go on.
        """
        size = WINDOW if self.suggester.constrains or self.reviewer.constrains else max(len(discussions), 1)
        steps = [(role, number) for number in range(1, self.exchanges + 1) for role in ROLES]
        for start in range(0, len(discussions), size):
            for step in steps:
                window = discussions[start : start + size]
                reached = {each.case_id: each for each in window if step in each.pieces or each.next_step == step}
                missing = {case_id for case_id, each in reached.items() if step not in each.pieces}
                for case_id, said in self._answers(step, reached, missing):
                    piece = {"case_id": case_id, "role": step[0], "exchange": step[1], **said}
                    piece |= {"when": now(), "settings": self.fingerprint, "digest": reached[case_id].mistake.digest}
                    journal.append(piece)
                    reached[case_id].add(piece)
                    yield piece
            journal.sync()

    def refuse_unanswered(self, discussions: Iterable[Discussion]) -> None:
        """Raise RecordError if an endpoint left a discussion without an answer; what was said so far is in the journal."""
        waiting = sum(discussion.next_step is not None for discussion in discussions)
        if waiting:
            failures = [each for chat in (self.suggester, self.reviewer) for each in getattr(chat, "failures", ())]
            raise RecordError(
                f"{waiting:,} discussions wait, the last: {failures[-1]}; the same command goes on with them"
            )

    def first_prompts(self, discussions: Iterable[Discussion]) -> list[Prompt]:
        """Return what the suggesting model would be asked first."""
        return [next(self._suggestion(discussion, 1)) for discussion in discussions if not discussion.pieces]

    def _answers(
        self, step: Step, reached: dict[str, Discussion], missing: set[str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        role, exchange = step
        chat = {"suggestion": self.suggester, "review": self.reviewer, "revision": self.reviser}[role]
        dialogue = {"suggestion": self._suggestion, "review": self._review, "revision": self._revision}[role]
        if not missing:
            return
        if chat.constrains:
            led = follow_in_rounds(chat, [(case_id, dialogue(each, exchange)) for case_id, each in reached.items()])
            yield from ((case_id, said) for case_id, said in led if case_id in missing)
        else:
            yield from chat.follow((case_id, dialogue(reached[case_id], exchange)) for case_id in sorted(missing))

    def _prompt(self, discussion: Discussion, messages: Messages, call: int, **more: Any) -> Prompt:
        label = f"discussion:{discussion_fingerprint()}"
        return Prompt(messages, label=label, key=(discussion.case_id, call), **more)

    def _suggestion(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Let the suggesting model ask, as far as it may, and suggest; return the piece."""
        asked: list[dict[str, Any]] = []
        usage: Counter = Counter()
        before = discussion.asked_before(exchange)
        seen = {normalised(question) for each in before for question in each["questions"]}
        may_ask = self.questions > 0
        for call in itertools.count(len(before) + exchange):
            turns = discussion.suggester_turns(exchange, asked)
            answer = yield self._prompt(discussion, discussion.messages("suggestion", turns, may_ask), call)
            usage.update(answer.usage)
            questions = self._questions(answer, discussion) if may_ask else []
            if not questions:
                return _said(answer, usage, asked=asked)
            new = [question for question in questions if normalised(question) not in seen]
            seen.update(map(normalised, new))
            may_ask = bool(new) and len(asked) + 1 < self.questions
            passages = [_passage(each) for each in self._find(new)] if new else None
            asked.append({"text": own_text(answer.text), "questions": new, "passages": passages, "goes_on": may_ask})

    def _questions(self, answer: Answer, discussion: Discussion) -> list[str]:
        """Return the questions that follow a message's last suggestion, or all of one that has none."""
        suggestion = read_suggestion(answer, discussion.rubric, discussion.on_record.scores)
        rest = own_text(answer.text)[suggestion.end :] if not suggestion.error else answer.text
        return questions_of(replace(answer, text=rest), discussion.rubric, len(discussion.order))

    def _find(self, questions: list[str]) -> list[Any]:
        return list({passage.id: passage for found in self.search(questions) for passage in found}.values())

    def _review(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Let the reviewing model accept or object; return the piece."""
        numbers = [number for number in discussion.suggestions if number <= exchange]
        first, *later = [number for number in numbers if not discussion.suggestions[number].error]
        turns, before = [], first
        for number in later:
            text = own_text(discussion.pieces["review", before]["text"])
            names = {"error": discussion.reviews[before].error, "suggestion": discussion.suggestions[number].shown}
            turns.append(Turn(text, "suggested", names))
            before = number
        messages = discussion.messages("review", turns, suggestion=discussion.suggestions[first].shown)
        models, scores = discussion.mistake.recorded.case.models, discussion.suggestions[exchange].scores
        proposed = tuple((models[index], score) for index, score in zip(discussion.order, scores))
        answer = yield self._prompt(discussion, messages, exchange, proposed=proposed)
        return _said(answer, answer.usage)

    def _revision(self, discussion: Discussion, exchange: int) -> Dialogue:
        """Let the suggesting model write its accepted suggestion into the verdict (Eq. 2); return the piece."""
        suggestion = discussion.suggestions[exchange]
        points = format_verdict(Reading(True, scores=suggestion.scores), discussion.rubric)
        names = {"points": points, "rationale": discussion.on_record.rationale is not None}
        asked = discussion.pieces["suggestion", exchange]["asked"]
        turns = discussion.suggester_turns(exchange, asked)
        turns.append(Turn(own_text(discussion.pieces["suggestion", exchange]["text"]), "revision", names))
        answer = yield self._prompt(discussion, discussion.messages("suggestion", turns), 1)
        return _said(answer, answer.usage)


def now() -> str:
    """Return the time in UTC, to the second, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _said(answer: Answer, usage: dict[str, int], **more: Any) -> dict[str, Any]:
    said = {"text": answer.text, "error": answer.error, "truncated": answer.truncated}
    return {**said, "usage": dict(usage), **more}


def _passage(passage: Any) -> dict[str, Any]:
    names = ("id", "book", "kind", "section", "page")
    # Beyond four digits a score depends on which other questions were embedded in the same batch.
    return {name: getattr(passage, name) for name in names} | {"score": round(passage.score, 4), "text": passage.text}
