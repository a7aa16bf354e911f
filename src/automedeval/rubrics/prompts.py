"""The only place where a prompt is put together: a rubric's template and a case's texts become chat messages.

Dataset building, judging and the tests all render through `judge_messages`, so training and judging prompts cannot drift
apart. Templates render with StrictUndefined: a name that is not there is an error, never a blank.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jinja2

from automedeval.models.base import Messages
from automedeval.records import question_text
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.rubric import TEMPLATES, Rubric, RubricError

CHANNEL_WORDS = 120  # of a response that the channel judge reads; FeedbackQA's median is half as long again
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|\Z)")


def fenced(text: str) -> str:
    """Put a text between fences that it cannot close: one tilde longer than its longest run of them."""
    text = str(text)  # StrictUndefined speaks up here
    longest = max((len(run) for run in re.findall(r"~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"


def _encodable(text: str) -> str:
    """Turn lone surrogates, which JSON can carry and no tokenizer or request takes, into question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=64)
def _template(source: str) -> jinja2.Template:
    # Plain text for a model, not HTML: escaping would change what is judged.
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
    )
    environment.filters["fenced"] = fenced
    return environment.from_string(source)


def _block(template: jinja2.Template, name: str, names: dict[str, Any]) -> str:
    return _encodable("".join(template.blocks[name](template.new_context(names))).strip())


def judge_messages(
    rubric: Rubric,
    question: str | list[dict[str, str]],
    responses: Sequence[str],
    reference: str | None = None,
    rationale: bool = True,
) -> Messages:
    """Render the messages that ask a judge for its verdict on `responses`, in the order in which they are given.

    Args:
        rubric: names the template, whose blocks `system` and `user` become one message each.
        question: the patient's question.
        responses: the texts, slot 0 first.
        reference: the trusted answer, for rubrics that take one.
        rationale: whether the answer is to hold a rationale; rubrics without one ignore it.

    Raises:
        RubricError: the template is faulty or asks for something that is not there.
    """
    names = {
        "rubric": rubric,
        "question": question_text(question),
        "responses": list(responses),
        "rationale": rationale and rubric.rationale,
        "answer_form": answer_form(rubric, len(responses), rationale),
    }
    if reference is not None:
        names["reference"] = reference
    try:
        template = _template(rubric.template_text)
        messages = [
            {"role": role, "content": _block(template, role, names)}
            for role in ("system", "user")
            if role in template.blocks
        ]
    except jinja2.TemplateError as error:
        raise RubricError(f"{rubric.template}: {error}") from None
    if not any(message["role"] == "user" for message in messages):
        raise RubricError(f"{rubric.template}: has no block called 'user'")
    return messages


def chain_messages(
    rubric: Rubric,
    question: str | list[dict[str, str]],
    responses: Sequence[str],
    reference: str | None = None,
    asked: Sequence[tuple[str, Sequence[Any] | None]] = (),
    may_ask: bool = True,
) -> Messages:
    """Render the messages of one step of a completion chain (paper, Algorithm 1 and Figure 8).

    They are the judge's messages; then, round by round, what the teacher wrote to ask and what was found.

    Args:
        asked: per round the teacher's text, and the passages (with `book`, `section`, `page` and `text`) that were found, None
            for a question that had been asked before.
        may_ask: whether the first message tells how to ask. Without, the last one asks for the verdict.
    """
    template = _template((TEMPLATES / "completion_chain.jinja").read_text(encoding="utf-8"))
    messages = judge_messages(rubric, question, responses, reference)
    names: dict[str, Any] = {"answer_form": answer_form(rubric, len(responses), rationale=False)}
    if may_ask:
        messages[-1]["content"] += "\n\n" + _block(template, "query", names)
    for number, (text, passages) in enumerate(asked, 1):
        names |= {"passages": passages, "goes_on": may_ask or number < len(asked)}
        messages.append({"role": "assistant", "content": _encodable(text.strip())})
        messages.append({"role": "user", "content": _block(template, "knowledge", names)})
    return messages


def chain_fingerprint() -> str:
    """Return eight hexadecimal digits over the completion chain's template."""
    return hashlib.sha256((TEMPLATES / "completion_chain.jinja").read_bytes()).hexdigest()[:8]


@dataclass(frozen=True)
class Turn:
    """What a partner of a discussion wrote, and the block of the template, with its names, that replies to it."""

    text: str
    block: str
    names: dict[str, Any] = field(default_factory=dict)


def discussion_messages(
    rubric: Rubric,
    question: str | list[dict[str, str]],
    responses: Sequence[str],
    reference: str | None,
    verdicts: tuple[dict[str, Any], dict[str, Any]],
    block: str,
    turns: Sequence[Turn] = (),
    may_ask: bool = False,
    **names: Any,
) -> Messages:
    """Render the messages that a partner of a discussion sees (paper, section 3.3 and Figure 3).

    Args:
        verdicts: the one on record and the judge's, each with `rationale`, `scores` by slot, `error` and `raw`.
        block: "suggestion" or "review", what is asked for.
        turns: what the partner wrote so far.
        may_ask: whether the first message tells how to ask the reference books.
        names: what else the block takes.
    """
    template = _template(_discussion_template())
    known = {
        "rubric": rubric,
        "slot": rubric.output.get("slot") or "Response",
        "question": question_text(question),
        "responses": list(responses),
        "on_record": verdicts[0],
        "judged": verdicts[1],
        "answer_form": answer_form(rubric, len(responses), rationale=False),
        **({"reference": reference} if reference is not None else {}),
    }
    asked = [_block(template, "material", known), _block(template, block, known | names)]
    asked += [_block(template, "query", known)] if may_ask else []
    messages = [{"role": "system", "content": _block(template, "system", known)}]
    messages.append({"role": "user", "content": "\n\n".join(asked)})
    for turn in turns:
        said = _encodable(turn.text.strip()) or _block(template, "silence", known)
        messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": _block(template, turn.block, known | turn.names)})
    return messages


def _discussion_template() -> str:
    return (TEMPLATES / "discussion.jinja").read_text(encoding="utf-8")


def discussion_fingerprint() -> str:
    """Return eight hexadecimal digits over the discussion's template."""
    return hashlib.sha256(_discussion_template().encode()).hexdigest()[:8]


def clip(text: str, words: int) -> str:
    """Cut a text of more than `words` words after its last sentence that fits; within a sentence, marked, if none does."""
    parts = text.split()
    if len(parts) <= words:
        return " ".join(parts)
    cut = " ".join(parts[:words])
    ends = [match.end() for match in SENTENCE_END.finditer(cut)]
    return cut[: ends[-1]] if ends else f"{cut} …"


def likelihood_texts(question: str | list[dict[str, str]], response: str) -> tuple[str, str]:
    """Return (condition, target) for the likelihood judge: the target's tokens are the ones whose probability counts."""
    source = (TEMPLATES / "likelihood.jinja").read_text(encoding="utf-8")
    template = _template(source)
    condition = "".join(template.blocks["condition"](template.new_context({"response": response.strip()})))
    target = "".join(template.blocks["target"](template.new_context({"question": question_text(question).strip()})))
    return _encodable(condition.strip("\n")), _encodable(target.strip("\n"))


def likelihood_fingerprint() -> str:
    """Return eight hexadecimal digits over the likelihood judge's template."""
    return hashlib.sha256((TEMPLATES / "likelihood.jinja").read_bytes()).hexdigest()[:8]


def channel_texts(
    rubric: Rubric, question: str | list[dict[str, str]], response: str, score: int
) -> tuple[Messages, str]:
    """Return what the channel judge reads, a response with a score on it, and what it is to find likely: the question.

    A noisy channel (Min et al. 2022, arXiv 2108.04106) turns judging round: not the score of an answer to a question, but the
    question to which an answer of this score was given. Responses are clipped to `CHANNEL_WORDS`.
    """
    template = _template((TEMPLATES / "channel.jinja").read_text(encoding="utf-8"))
    known = {"scale": rubric.scale, "anchor": rubric.anchors.get(score), "score": score}
    condition = _block(template, "condition", known | {"response": clip(response, CHANNEL_WORDS)})
    target = _block(template, "target", {"question": question_text(question).strip()})
    return [{"role": "user", "content": condition}], target


def channel_fingerprint() -> str:
    """Return eight hexadecimal digits over the channel judge's template and how responses are clipped for it."""
    template = (TEMPLATES / "channel.jinja").read_bytes()
    return hashlib.sha256(template + str(CHANNEL_WORDS).encode()).hexdigest()[:8]
