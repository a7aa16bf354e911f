"""Render every prompt: a template and a case's texts become chat messages.

Data sets and judges both use `judge_messages`, so training and judging prompts are equal. Templates render with
StrictUndefined: an undefined name is an error. A rubric's template renders in Jinja's sandbox, because people pass rubrics
on: it reads what it is given, but no file, runs no Python, and takes no more memory than texts of `LONGEST` characters.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.visitor import NodeTransformer

from automedeval.models.base import Messages
from automedeval.records import CaseCriterion, digest, question_text
from automedeval.rubrics.grammar import answer_form
from automedeval.rubrics.rubric import TEMPLATES, Rubric, RubricError

LONGEST = 20_000_000  # characters that a rubric's template may make, in its text and in all values on the way to it
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*(?=\s|\Z)")


def fenced(text: str) -> str:
    """Put a text between fences that are one tilde longer than its longest run of tildes, so that it cannot close them."""
    text = str(text)  # raises for StrictUndefined
    longest = max((len(run[0]) for run in re.finditer(r"~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and no tokenizer or request accepts, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


# What a rubric's template may do with a text or a table: nothing whose result is much longer than what it is made of.
_METHODS = {
    str: {"endswith", "lower", "lstrip", "rstrip", "split", "splitlines", "startswith", "strip", "upper"},
    dict: {"get", "items", "keys", "values"},
}
_FILTERS = {
    "abs", "capitalize", "count", "d", "default", "first", "float", "int", "last", "length", "lower", "string", "trim", "upper",
}  # fmt: skip
_LEFT = "characters left"  # how many a template may still make: a name with a blank, which no template can use
_MADE = (nodes.BinExpr, nodes.Call, nodes.Concat, nodes.Dict, nodes.Filter, nodes.List, nodes.Tuple)


def _count(context: jinja2.runtime.Context, size: int) -> None:
    left = context.resolve(_LEFT)
    left[0] -= size + 20  # as much as an empty text takes
    if left[0] < 0:
        raise SecurityError(f"makes more than {LONGEST:,} characters")


@jinja2.pass_context
def _counted(context: jinja2.runtime.Context, value: Any) -> Any:
    """Count the characters in a value, and in what it holds; return it."""
    parts = [value]
    while parts:
        part = parts.pop()
        _count(context, len(part) if isinstance(part, str) else 0)
        if isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            parts += part
    return value


@jinja2.pass_context
def _joined(context: jinja2.runtime.Context, values: Iterable[Any], between: str = "") -> str:
    pieces = []
    for value in values:
        pieces.append(str(value))
        _count(context, len(pieces[-1]) + len(between))
    return between.join(pieces)


@jinja2.pass_context
def _replaced(context: jinja2.runtime.Context, text: Any, old: str, new: str) -> str:
    text = str(text)
    _count(context, text.count(old) * len(new))
    return text.replace(old, new)


def _number(form: str, number: float) -> str:
    if not re.fullmatch(r"[^%]*%[0-9]{0,2}(?:\.[0-9]{0,2})?[dfg][^%]*", form):
        raise SecurityError(f"format takes one number, as in '%.1f', not {form[:40]!r}")
    return form % number


class _Counting(NodeTransformer):
    """Have a template count what it makes: each value of an expression, and each piece that it writes."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        node = super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.CallBlock):
            assert isinstance(node.call, nodes.Filter)  # of the call that was counted just before
            call = node.call.node
            assert isinstance(call, nodes.Call)
            node.call = call  # it has to be a call; what the macro writes is counted in it
        elif isinstance(node, nodes.Output):
            node.nodes = [each if isinstance(each, nodes.Filter) else self._counted(each) for each in node.nodes]
        made = isinstance(node, _MADE) or (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice))
        if made and isinstance(node, nodes.Expr) and getattr(node, "ctx", "load") == "load":
            return self._counted(node)
        return node

    def _counted(self, node: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(node, "counted", [], [], None, None, lineno=node.lineno)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without other templates, within a bound on what a template makes.

    Its operators, methods and filters make no result that is much longer than what they are given, and all that they make
    is counted. That bounds what a template can reach and how much memory it takes, not how long: loops within loops can run for
    hours.
    """

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters |= {"counted": _counted, "format": _number, "join": _joined, "replace": _replaced}
        del self.globals["lipsum"]
        self._safe: dict[tuple[type, str], bool] = {}

    def from_string(self, source: str | nodes.Template, *args: Any, **kwargs: Any) -> jinja2.Template:
        return super().from_string(
            _Counting().visit(self.parse(source) if isinstance(source, str) else source), *args, **kwargs
        )

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Ask once for each type and name, on which alone the answer depends: it is asked dozens of times a prompt."""
        key = (type(obj), attr)
        if key not in self._safe:
            names = next((names for kind, names in _METHODS.items() if isinstance(obj, kind)), None)
            allowed = type(obj).__module__ != "builtins" if names is None else attr in names
            self._safe[key] = allowed and super().is_safe_attribute(obj, attr, value)
        return self._safe[key]

    def wrap_str_format(self, value: Any) -> None:
        """Treat `str.format` as any other method: it is none of `_METHODS`."""

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        numbers = all(isinstance(each, int | float) and abs(each) < 1e15 for each in (left, right))
        if operator == "**" or not numbers:
            raise SecurityError(
                f"a template may use {operator} {'not at all' if numbers else 'on numbers below 1e15 only'}"
            )
        return super().call_binop(context, operator, left, right)


def _no_other(name: str) -> None:
    raise SecurityError(f"a template may not read another file: {name!r}")


@lru_cache(maxsize=64)
def _template(source: str, ours: bool = False) -> jinja2.Template:
    """Return a template's source compiled: of this package (`ours`), or a rubric's, which may be somebody else's."""
    # Plain text for a model, not HTML: escaping would change what is judged.
    environment = (jinja2.Environment if ours else _Sandbox)(
        loader=jinja2.FunctionLoader(_no_other),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.filters["fenced"] = fenced
    return environment.from_string(source)


def _packaged(name: str) -> jinja2.Template:
    return _template((TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"), ours=True)


def template_fingerprint(name: str, settings: str = "") -> str:
    """Return eight hexadecimal digits over a packaged template, and over settings that its prompts depend on."""
    return hashlib.sha256((TEMPLATES / f"{name}.jinja").read_bytes() + settings.encode()).hexdigest()[:8]


def _block(template: jinja2.Template, name: str, names: dict[str, Any]) -> str:
    context = template.new_context(names | {_LEFT: [LONGEST]})
    return _encodable("".join(template.blocks[name](context)).strip())


def _given(reference: str | None) -> dict[str, str]:
    """Return the name of the reference, if there is one: a template that takes it where there is none is an error."""
    return {} if reference is None else {"reference": reference}


def judge_messages(
    rubric: Rubric,
    question: str | list[dict[str, str]],
    responses: Sequence[str],
    reference: str | None = None,
    rationale: bool = True,
) -> Messages:
    """Render the messages that ask a judge for its verdict on `responses`.

    Args:
        rubric: its template's blocks `system` and `user` become one message each.
        responses: the texts, slot 0 first.
        reference: the trusted answer, for rubrics that take one.
        rationale: whether to ask for a rationale; rubrics without one ignore it.

    Raises:
        RubricError: the template is faulty, uses an undefined name, or does what the sandbox refuses.
    """
    names = {
        "rubric": rubric,
        "question": question_text(question),
        "responses": list(responses),
        "rationale": rationale and rubric.rationale,
        "answer_form": answer_form(rubric, len(responses), rationale),
    } | _given(reference)
    try:
        template = _template(rubric.template_text)
        roles = [role for role in ("system", "user") if role in template.blocks]
        messages = [{"role": role, "content": _block(template, role, names)} for role in roles]
    except Exception as error:  # noqa: BLE001  a template can make every operation fail
        problem = " ".join(str(error).split())[:300] or type(error).__name__
        raise RubricError(f"{rubric.template}: {problem}") from None
    if "user" not in roles:
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

    They are the judge's messages, and then for each round the teacher's question and the passages found.

    Args:
        asked: per round the teacher's text and the passages (with `book`, `section`, `page` and `text`), None if the question
            was a repetition.
        may_ask: whether the first message explains how to ask; otherwise the last one asks for the verdict.
    """
    template = _packaged("completion_chain")
    messages = judge_messages(rubric, question, responses, reference)
    names: dict[str, Any] = {"answer_form": answer_form(rubric, len(responses), rationale=False)}
    if may_ask:
        messages[-1]["content"] += "\n\n" + _block(template, "query", names)
    for number, (text, passages) in enumerate(asked, 1):
        names |= {"passages": passages, "goes_on": may_ask or number < len(asked)}
        messages.append({"role": "assistant", "content": _encodable(text.strip())})
        messages.append({"role": "user", "content": _block(template, "knowledge", names)})
    return messages


@dataclass(frozen=True)
class Turn:
    """A partner's message in a discussion, and the template's block, with its names, that replies to it."""

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
        block: "suggestion" or "review", the message to ask for.
        turns: the partner's messages so far.
        may_ask: whether the first message explains how to ask the reference books.
        names: further names of the block.
    """
    template = _packaged("discussion")
    known = {
        "rubric": rubric,
        "slot": rubric.slot_word,
        "question": question_text(question),
        "responses": list(responses),
        "on_record": verdicts[0],
        "judged": verdicts[1],
        "answer_form": answer_form(rubric, len(responses), rationale=False),
    } | _given(reference)
    asked = [_block(template, "material", known), _block(template, block, known | names)]
    asked += [_block(template, "query", known)] if may_ask else []
    messages = [{"role": "system", "content": _block(template, "system", known)}]
    messages.append({"role": "user", "content": "\n\n".join(asked)})
    for turn in turns:
        text = _encodable(turn.text.strip()) or _block(template, "silence", known)
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": _block(template, turn.block, known | turn.names)})
    return messages


def clip(text: str, words: int) -> str:
    """Cut a text after the last sentence that ends within `words` words; without one, after the words, with an ellipsis."""
    parts = text.split()
    if len(parts) <= words:
        return " ".join(parts)
    cut = " ".join(parts[:words])
    ends = [match.end() for match in SENTENCE_END.finditer(cut)]
    return cut[: ends[-1]] if ends else f"{cut} …"


def likelihood_texts(question: str | list[dict[str, str]], response: str) -> tuple[str, str]:
    """Return (condition, target) for the likelihood judge: the target's tokens are the ones whose probability counts."""
    template = _packaged("likelihood")
    condition = "".join(template.blocks["condition"](template.new_context({"response": response.strip()})))
    target = "".join(template.blocks["target"](template.new_context({"question": question_text(question).strip()})))
    return _encodable(condition.strip("\n")), _encodable(target.strip("\n"))


_SAMPLE_QUESTIONS = (
    "A question?",
    [{"role": "user", "content": "A word."}, {"role": "assistant", "content": "A question?"}],
)
_SAMPLE_RESPONSES = ("Short ~~~ response.", " ".join(["word"] * 200), "A third.")

_SAMPLE_CRITERIA = (CaseCriterion("Names ~~~ the dose.", 5), CaseCriterion("Says that it is harmless.", -2.5))


def prompt_fingerprint(rubric: Rubric) -> str:
    """Return twelve hexadecimal digits over sample prompts as a judge reads them, with everything that this package adds.

    Raises:
        RubricError: a fault of `judge_messages`.
    """
    made: list[Any] = []
    for question in _SAMPLE_QUESTIONS:
        responses = _SAMPLE_RESPONSES[: rubric.max_responses]
        if rubric.mode == "checklist":
            rubric = rubric.about(_SAMPLE_CRITERIA)
        reference = "A reference." if rubric.needs_reference else None
        made += [judge_messages(rubric, question, responses, reference, rationale) for rationale in (True, False)]
    return digest(made)
