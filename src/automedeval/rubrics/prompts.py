"""Render every prompt: a template and a case's texts become chat messages.

Data sets and judges both use `judge_messages`, so training and judging prompts are equal. Templates render with
StrictUndefined: an undefined name is an error. A rubric's template renders in Jinja's sandbox, because people pass rubrics on:
it runs no Python, reads no file, changes nothing that it is given, and writes at most `LONGEST` characters.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from automedeval.models.base import Messages
from automedeval.records import (
    CaseCriterion,
    Question,
    RecordError,
    digest,
    foreign_errors_at,
    question_text,
    whole,
)
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.rubric import TEMPLATES, Rubric

LONGEST = 20_000_000  # characters that a rubric's template may write
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|\Z)")

Names = dict[str, Any]  # what a template may use


def fenced(text: str) -> str:
    """Put a text between fences that are one tilde longer than its longest run of tildes, so that it cannot close them."""
    text = str(text)  # raises for StrictUndefined
    longest = max(map(len, re.findall("~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"


@lru_cache(maxsize=64)
def _template(source: str, packaged: bool = False) -> jinja2.Template:
    """Return a compiled template: one of this package's prompts, or the template of a rubric, whose author is unknown."""
    # Plain text for a model, not HTML: escaping would change what is judged.
    kind = jinja2.Environment if packaged else ImmutableSandboxedEnvironment
    environment = kind(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["fenced"] = fenced
    return environment.from_string(source)


def _packaged(name: str) -> jinja2.Template:
    return _template((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"), packaged=True)


def template_fingerprint(name: str) -> str:
    """Return eight hexadecimal digits over a packaged template."""
    return hashlib.sha256((TEMPLATES / f"{name}.jinja").read_bytes()).hexdigest()[:8]


def _block(template: jinja2.Template, name: str, names: Names) -> str:
    pieces = []
    size = 0
    for piece in template.blocks[name](template.new_context(names)):
        size += len(piece)
        if size > LONGEST:
            raise SecurityError(f"makes more than {LONGEST:,} characters")
        pieces.append(piece)
    return whole("".join(pieces).strip())  # a template can write any character


def _names(
    rubric: Rubric,
    question: Question,
    responses: Sequence[str],
    reference: str | None,
    rationale: bool = False,
) -> Names:
    """Return the names that a judge's and a discussion's template have for a case, and for an answer on it.

    A template that takes the reference where there is none is an error.
    """
    names = {
        "rubric": rubric,
        "question": question_text(question),
        "responses": list(responses),
        "answer_form": answer_form(rubric, len(responses), rationale),
    }
    return names if reference is None else names | {"reference": reference}


def judge_messages(
    rubric: Rubric,
    question: Question,
    responses: Sequence[str],
    reference: str | None = None,
    rationale: bool = True,
    passages: Sequence[Any] | None = None,
) -> Messages:
    """Render the messages that ask a judge for its verdict on `responses`, slot 0 first: the template's `system` and `user`.

    `rationale`: ask for one, if the rubric has it; `passages` of books, if they were looked up, stand before the task.
    RecordError: the template is faulty, uses an undefined name, or does what the sandbox refuses.
    """
    names = _names(rubric, question, responses, reference, rationale)
    names["rationale"] = rationale and rubric.rationale
    with foreign_errors_at(rubric.template):  # a template can make every operation fail
        template = _template(rubric.template_text)
        roles = [role for role in ("system", "user") if role in template.blocks]
        messages = [{"role": role, "content": _block(template, role, names)} for role in roles]
    if "user" not in roles:
        raise RecordError(f"{rubric.template}: has no block called 'user'")
    if passages is not None:
        evidence = _block(_packaged("completion_chain"), "evidence", {"passages": passages})
        messages[-1]["content"] = f"{evidence}\n\n{messages[-1]['content']}"
    return messages


def chain_messages(
    rubric: Rubric,
    question: Question,
    responses: Sequence[str],
    reference: str | None = None,
    asked: Sequence[tuple[str, Sequence[Any] | None]] = (),
    may_ask: bool = True,
) -> Messages:
    """Render the messages of one step of a completion chain (paper, Algorithm 1 and Figure 8).

    They are the judge's messages, and then for each round in `asked` the teacher's text and the passages found, None if it was
    asked before. Where the teacher `may_ask` the first message explains how, else the last one asks for the verdict.
    """
    template = _packaged("completion_chain")
    messages = judge_messages(rubric, question, responses, reference)
    names: Names = {"answer_form": answer_form(rubric, len(responses), rationale=False)}
    if may_ask:
        messages[-1]["content"] += "\n\n" + _block(template, "query", names)
    for number, (text, passages) in enumerate(asked, 1):
        names |= {"passages": passages, "goes_on": may_ask or number < len(asked)}
        messages += [
            {"role": "assistant", "content": text.strip()},
            {"role": "user", "content": _block(template, "knowledge", names)},
        ]
    return messages


@dataclass(frozen=True)
class Turn:
    """A partner's message in a discussion, and the template's block, with its names, that replies to it."""

    text: str
    block: str
    names: Names


def discussion_messages(
    rubric: Rubric,
    question: Question,
    responses: Sequence[str],
    reference: str | None,
    verdicts: tuple[Any, Any],
    block: str,
    turns: Sequence[Turn],
    may_ask: bool = False,
    **names: Any,
) -> Messages:
    """Render the messages that a partner of a discussion sees (paper, section 3.3 and Figure 3), with its `turns` so far.

    `verdicts` are the one on record and the judge's, each with `rationale`, `scores` by slot, or `error` and `raw`; `block` is
    "suggestion" or "review", the message to ask for, with further `names`. A partner that `may_ask` the books is told how.
    """
    template = _packaged("discussion")
    on_record, judged = verdicts
    material = {
        **_names(rubric, question, responses, reference),
        "slot": rubric.slot_word,
        "on_record": on_record,
        "judged": judged,
    }
    blocks = ["material", block, *(["query"] if may_ask else [])]
    asked = [_block(template, name, material | names) for name in blocks]
    messages = [
        {"role": "system", "content": _block(template, "system", material)},
        {"role": "user", "content": "\n\n".join(asked)},
    ]
    for turn in turns:
        text = turn.text.strip() or _block(template, "silence", material)
        reply = _block(template, turn.block, material | turn.names)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": reply}]
    return messages


def clip(text: str, words: int) -> str:
    """Cut a text after the last sentence that ends within `words` words; without one, after the words, with an ellipsis."""
    parts = text.split()
    if len(parts) <= words:
        return " ".join(parts)
    cut = " ".join(parts[:words])
    ends = [match.end() for match in SENTENCE_END.finditer(cut)]
    return cut[: ends[-1]] if ends else f"{cut} …"


def likelihood_texts(question: Question, response: str) -> tuple[str, str]:
    """Return (condition, target) for the likelihood judge: the target's tokens are the ones whose probability counts."""
    template = _packaged("likelihood")
    names = {"response": response.strip(), "question": question_text(question).strip()}
    context = template.new_context(names)
    condition, target = (
        "".join(template.blocks[name](context)).strip("\n") for name in ("condition", "target")
    )
    return condition, target


_SAMPLE_QUESTIONS = (
    "A question?",
    [{"role": "user", "content": "A word."}, {"role": "assistant", "content": "A question?"}],
)
_SAMPLE_RESPONSES = ("Short ~~~ response.", " ".join(["word"] * 200), "A third.")

_SAMPLE_CRITERIA = (
    CaseCriterion("Names ~~~ the dose.", 5),
    CaseCriterion("Says that it is harmless.", -2.5),
)


def prompt_fingerprint(rubric: Rubric) -> str:
    """Return twelve hexadecimal digits over sample prompts as a judge reads them, with everything that this package adds.

    RecordError for a fault of `judge_messages`.
    """
    made = []
    responses = _SAMPLE_RESPONSES[: rubric.max_responses]
    reference = "A reference." if rubric.needs_reference else None
    if rubric.mode == "checklist":
        rubric = rubric.about(_SAMPLE_CRITERIA)
    for question in _SAMPLE_QUESTIONS:
        for rationale in (True, False):
            made.append(judge_messages(rubric, question, responses, reference, rationale))
    return digest(made)
