"""Draft the criteria of a case for physicians to approve: from the passages of books by a chat, or from its trusted answer.

Every criterion cites what it rests on. A chat is asked for one criterion after another, so that a checkpoint can be kept to the
allowed kinds and ids too.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from automedeval.claims.chat_checker import CUT_OFF, last_object
from automedeval.claims.statements import statements
from automedeval.models.base import Answer, Chat, Dialogue, Free, Part, Prompt, Slot
from automedeval.records import Case, CriteriaDraft, digest, question_text
from automedeval.records.language import normalise
from automedeval.rubrics.grammar import answer_schema
from automedeval.rubrics.prompts import criteria_messages, template_fingerprint
from automedeval.rubrics.questions import Search

REFERENCE = "reference"  # the drafter that needs no model
POINTS = {"must_say": 1.0, "must_not_say": -1.0}  # of a draft; physicians weigh it
END = "nothing_more"
REPEATED = "repeats a criterion"


@dataclass(frozen=True)
class Drafter:
    """Draft criteria by a chat, or, without one, from the statements of the trusted answer.

    Args:
        search, store: of the books, and their fingerprint; a chat needs them.
        near: least cosine of a passage that is shown or cited.
        most: largest number of criteria of a case.
    """

    chat: Chat | None
    search: Search | None
    store: str
    near: float
    most: int

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of everything that changes a draft."""
        by = [self.chat.fingerprint, self.chat.constrains, template_fingerprint("criteria")] if self.chat else []
        return digest([2, self.store, self.near, self.most, *by])

    def drafts(self, cases: Sequence[Case], done: Collection[tuple] = ()) -> Iterator[CriteriaDraft]:
        """Yield a draft for each case that is not done; none for one about which an endpoint did not answer a request.

        Without a passage near the question a chat is not asked. Raise ChatError if it cannot go on.
        """
        if self.chat is None:
            yield from (self._of_reference(case) for case in cases if (case.id,) not in done)
            return
        shown = self._shown(cases)
        for case, passages in shown:
            if not passages and (case.id,) not in done:
                yield self._draft(case, [], reason="no passage")
        dialogues = (((case.id,), self._dialogue(case, passages)) for case, passages in shown if passages)
        yield from (draft for _, draft in self.chat.follow(dialogues, done))

    def dry_run(self, cases: Sequence[Case]) -> str:
        """Say what drafting takes at most: cases, prompts, tokens and, with prices, the cost."""
        if self.chat is None:
            return f"{len(cases):,} cases, no prompt: no model is asked"
        shown = self._shown(cases)
        prompts = [next(self._dialogue(*each)) for each in shown if each[1]]
        tokens, cost = self.chat.estimate(prompts)
        text = (
            f"{len(cases):,} cases, {len(cases) - len(prompts):,} without a passage, at most {len(prompts) * self.most:,} "
            f"prompts, about {tokens:,} prompt tokens in the first {len(prompts):,}"
        )
        return text + (f", about {cost * self.most:.2f} in cost" if cost else "")

    def _shown(self, cases: Sequence[Case]) -> list[tuple[Case, list[Any]]]:
        return list(zip(cases, self._near([question_text(case.question) for case in cases])))

    def _near(self, texts: Sequence[str]) -> list[list[Any]]:
        """Return for each text the near passages; none without books."""
        each_of = self.search(texts) if self.search and texts else [[] for _ in texts]
        return [[each for each in passages if each.score >= self.near] for passages in each_of]

    def _draft(
        self, case: Case, criteria: Sequence[dict], invalid: Sequence[str] = (), reason: str | None = None
    ) -> CriteriaDraft:
        extra = {"case_digest": case.asked_digest, "settings": self.fingerprint}
        name = self.chat.name if self.chat else REFERENCE
        return CriteriaDraft(case.id, name, tuple(criteria), tuple(invalid), reason, extra)

    def _of_reference(self, case: Case) -> CriteriaDraft:
        """Return what the trusted answer states, to be said; what must not be said does not follow from it."""
        said: dict[str, str] = {}
        left_out = []
        for each in statements(case.reference or ""):
            if each.unread is not None:
                left_out.append(each.unread)
            elif normalise(each.text) in said:
                left_out.append(REPEATED)
            elif len(said) == self.most:
                left_out.append(f"beyond --most {self.most}")
            else:
                said[normalise(each.text)] = each.text
        cited = [next(iter(passages), None) for passages in self._near(list(said.values()))]
        reason = None if said else "no statement" if (case.reference or "").strip() else "no trusted answer"
        return self._draft(case, [criterion_of(*each) for each in zip(said.values(), cited)], left_out, reason)

    def _dialogue(self, case: Case, passages: Sequence[Any]) -> Dialogue:
        """Ask for one criterion after another, until there is nothing more, or an answer is none."""
        assert self.chat is not None
        by_id = {each.id: each for each in passages}
        parts: tuple[Part, ...] = ('{"criterion": "', Free('"', json_string=True), '", "kind": "')
        parts += (Slot("kind", (*POINTS, END)), '", "passage": "', Slot("passage", tuple(by_id)), '"}')
        criteria: list[dict[str, Any]] = []
        while len(criteria) < self.most:
            drafted = [each["criterion"] for each in criteria]
            messages = criteria_messages(question_text(case.question), passages, drafted)
            constrained = parts if self.chat.constrains else None
            read = read_criterion((yield Prompt(messages, constrained, answer_schema(parts), label="criteria")), by_id)
            if isinstance(read, dict) and normalise(read["criterion"]) in map(normalise, drafted):
                read = REPEATED
            if isinstance(read, str):  # the same prompt would get the same answer
                return self._draft(case, criteria, [read])
            self.chat.accepted = True
            if read is None:
                break
            criteria.append(read)
        return self._draft(case, criteria, reason=None if criteria else "the model named none")


def criterion_of(text: str, passage: Any = None, points: float = 1.0) -> dict[str, Any]:
    """Return a criterion with its citation: a passage of a store, or the trusted answer for None."""
    citation = {"passage": None, "source": "trusted answer", "text": ""}
    if passage is not None:
        page = None if passage.page is None else f"page {passage.page}"
        source = ", ".join(filter(None, (passage.book, passage.section, page)))
        citation = {"passage": passage.id, "source": source, "text": passage.text}
    return {"criterion": text, "points": points, "tags": [], "citation": citation}


def read_criterion(answer: Answer, passages: dict[str, Any]) -> dict[str, Any] | str | None:
    """Return the criterion of an answer, None if there is nothing more to name, or in words why it is none.

    Args:
        passages: those that were shown, by id.
    """
    if answer.error:
        return answer.error
    if answer.values is not None:
        reply: dict = dict(zip(("criterion", "kind", "passage"), (answer.free, *answer.values)))
        cut = answer.truncated and reply["kind"] != END
    else:
        own, reply, end = last_object(answer)
        cut = answer.truncated and bool(own[end:].strip("` \n"))
    if cut:
        return CUT_OFF
    text, kind, name = (reply.get(key) for key in ("criterion", "kind", "passage"))
    if kind == END:
        return None
    if not isinstance(text, str) or not text.strip():
        return "no JSON object with a criterion at the end of the answer"
    if not isinstance(kind, str) or kind not in POINTS:
        return f"the kind {str(kind)[:40]!r} is not one of {', '.join((*POINTS, END))}"
    if not isinstance(name, str) or name not in passages:
        return f"there is no passage {str(name)[:40]!r}"
    return criterion_of(" ".join(text.split()), passages[name], POINTS[kind])
