"""The records that every program reads and writes, and reading them from files.

One record is one line of JSON Lines (UTF-8). Unknown keys are kept in `extra` and passed on. `.parquet` files and Hub dataset
ids serve wherever a JSON Lines file does. Every fault is a `RecordError` that names the file, the line and the value.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

RESERVED_MODELS = ("tie", "neither")  # a choice is a model's name or one of these


class AutoMedEvalError(ValueError):
    """Something that the person at the keyboard can mend; the message is one readable line."""


class RecordError(AutoMedEvalError):
    """A record, or the file it stands in, is not what it should be; the message says where, for the one who mends it."""


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _take(record: object, name: str, kinds: tuple[type, ...], default: Any = ...) -> Any:
    """Return `record[name]` after checking its type; a missing key takes the default, if there is one."""
    if not isinstance(record, dict):
        raise RecordError(f"expected an object, found {_shown(record)}")
    value = record.get(name, default)
    if value is ...:
        raise RecordError(f"{name!r} is missing; found the keys {sorted(record)}")
    # bool is an int to isinstance, never to us
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        allowed = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise RecordError(f"{name!r} must be {allowed}, not {_shown(value)}")
    return value


def _take_items(record: dict, name: str, kinds: tuple[type, ...], default: Any = ...) -> tuple | None:
    """Return the list `record[name]` as a tuple after checking each item's type; a missing one or null takes the default."""
    items = _take(record, name, (list,) if default is ... else (list, type(None)), default)
    return None if items is None else tuple(_take({name: item}, name, kinds) for item in items)


def _extra(record: dict, known: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in set(known)}


@dataclass(frozen=True)
class Response:
    """What one candidate model answered. An empty text is an answer, and is judged as such."""

    model: str
    text: str
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict) -> "Response":
        model = _take(record, "model", (str,))
        if not model.strip():
            raise RecordError("a response's 'model' must not be empty")
        if model in RESERVED_MODELS:
            raise RecordError(f"a model cannot be called {model!r}: the word is an answer of pairwise rubrics")
        return cls(model, _take(record, "text", (str,)), _extra(record, ("model", "text")))

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "text": self.text, **self.extra}


@dataclass(frozen=True)
class Case:
    """A question, the responses of the candidates, and the reference if there is one.

    `question` is a string, or a conversation as a list of `{"role", "content"}` messages ending with the patient's.
    `responses` holds one response or more, model names unique within the case; none yet before generation.
    """

    id: str
    question: str | list[dict[str, str]]
    responses: tuple[Response, ...]
    reference: str | None = None
    topic: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict, least_responses: int = 1) -> "Case":
        case_id = _take(record, "id", (str,))
        if not case_id:
            raise RecordError("'id' must not be empty")
        question = _take(record, "question", (str, list))
        if isinstance(question, list):
            for message in question:
                _take(message, "role", (str,))
                _take(message, "content", (str,))
        contents = [question] if isinstance(question, str) else [message["content"] for message in question]
        if not any(content.strip() for content in contents):
            raise RecordError(f"case {case_id!r}: 'question' must not be empty")
        given = _take(record, "responses", (list,), ... if least_responses else [])
        responses = tuple(Response.from_dict(response) for response in given)
        if len(responses) < least_responses:
            few = f"{len(responses)} of the {least_responses} responses needed" if responses else "no response"
            raise RecordError(f"case {case_id!r} has {few}")
        names = [response.model for response in responses]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RecordError(f"case {case_id!r} has two responses of the model {twice[0]!r}")
        return cls(
            case_id,
            question,
            responses,
            _take(record, "reference", (str, type(None)), None),
            _take(record, "topic", (str, type(None)), None),
            _extra(record, ("id", "question", "responses", "reference", "topic")),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "question": self.question,
            "reference": self.reference,
            "topic": self.topic,
            "responses": [response.to_dict() for response in self.responses],
            **self.extra,
        }

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over what a judge can be shown of the case."""
        shown = [self.question, self.reference, [(response.model, response.text) for response in self.responses]]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:12]

    @property
    def models(self) -> list[str]:
        """Return the candidates' names in the order of the responses."""
        return [response.model for response in self.responses]


@dataclass(frozen=True)
class Rating:
    """One number that one annotator gave one response on one criterion."""

    case_id: str
    model: str
    annotator: str
    criterion: str
    score: float
    comment: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict) -> "Rating":
        strings = {name: _take(record, name, (str,)) for name in ("case_id", "model", "annotator", "criterion")}
        comment = _take(record, "comment", (str, type(None)), None)
        return cls(
            **strings,
            score=_take(record, "score", (int, float)),
            comment=comment,
            extra=_extra(record, (*strings, "score", "comment")),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "case_id": self.case_id,
            "model": self.model,
            "annotator": self.annotator,
            "criterion": self.criterion,
            "score": self.score,
            "comment": self.comment,
            **self.extra,
        }


def _take_choice(record: dict, pair: str, kind: str, words: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a choice between the two that `record[pair]` names: one of them, or one of `words`."""
    fields = {name: _take(record, name, (str,)) for name in ("case_id", "annotator", "criterion", "choice")}
    two = _take_items(record, pair, (str,))
    if len(two) != 2 or two[0] == two[1]:
        raise RecordError(f"{pair!r} must name two {kind}, not {_shown(two)}")
    if fields["choice"] not in (*two, *words):
        raise RecordError(f"'choice' must be one of {', '.join((*two, *words))}, not {fields['choice']!r}")
    return {pair: two, **fields}


@dataclass(frozen=True)
class Choice:
    """What one annotator chose about a pair of responses on one criterion: a model's name, "tie" or "neither"."""

    case_id: str
    pair: tuple[str, str]
    annotator: str
    criterion: str
    choice: str

    @classmethod
    def from_dict(cls, record: dict) -> "Choice":
        return cls(**_take_choice(record, "pair", "models", RESERVED_MODELS))


@dataclass(frozen=True)
class Preference:
    """Which of two judges' verdicts on a case one annotator preferred on one criterion: a judge's name or "tie"."""

    case_id: str
    judges: tuple[str, str]
    annotator: str
    criterion: str
    choice: str

    @classmethod
    def from_dict(cls, record: dict) -> "Preference":
        return cls(**_take_choice(record, "judges", "judges", RESERVED_MODELS[:1]))


@dataclass(frozen=True)
class VerdictRating:
    """One number that one physician gave a judge's verdict on one criterion."""

    case_id: str
    judge: str
    annotator: str
    criterion: str
    score: float
    role: str | None = None
    comment: str | None = None

    @classmethod
    def from_dict(cls, record: dict) -> "VerdictRating":
        return cls(
            **{name: _take(record, name, (str,)) for name in ("case_id", "judge", "annotator", "criterion")},
            score=_take(record, "score", (int, float)),
            role=_take(record, "role", (str, type(None)), None),
            comment=_take(record, "comment", (str, type(None)), None),
        )


@dataclass(frozen=True)
class Verdict:
    """What a judge made of a case, or of some of its responses, in one reading.

    `order` lists the indices of the case's responses as they were shown (slot 0 first). `scores` and `expected_scores` stand
    in the order of the case's responses, None for a response that was not shown. `choices` maps each criterion of a pairwise
    rubric to a model's name, "tie" or "neither". An invalid verdict carries neither, and says in `error` why.
    """

    case_id: str
    judge: str
    rubric: str
    order: tuple[int, ...]
    pair: tuple[str, str] | None = None
    run: int = 0
    valid: bool = False
    error: str | None = None
    rationale: str | None = None
    scores: tuple[int | None, ...] | None = None
    expected_scores: tuple[float | None, ...] | None = None
    choices: dict[str, str] | None = None
    raw: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict) -> "Verdict":
        optional = (type(None),)
        known = {
            "case_id": _take(record, "case_id", (str,)),
            "judge": _take(record, "judge", (str,)),
            "rubric": _take(record, "rubric", (str,)),
            "order": _take_items(record, "order", (int,)),
            "pair": _take_items(record, "pair", (str,), None),
            "run": _take(record, "run", (int,), 0),
            "valid": _take(record, "valid", (bool,)),
            "error": _take(record, "error", (str, *optional), None),
            "rationale": _take(record, "rationale", (str, *optional), None),
            "scores": _take_items(record, "scores", (int, *optional), None),
            "expected_scores": _take_items(record, "expected_scores", (int, float, *optional), None),
            "choices": _take(record, "choices", (dict, *optional), None),
            "raw": _take(record, "raw", (str,), ""),
            "usage": _take(record, "usage", (dict,), {}),
        }
        return cls(**known, extra=_extra(record, known))

    def to_dict(self) -> dict[str, Any]:
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "extra"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()} | self.extra


RATER = "rater:"  # how a judge is called where one rater's own scores are the verdict
PAIR_MODELS = ("answer-right", "answer-near", "answer-far")


def verdict_key(verdict: Verdict) -> tuple:
    """Return the key of the request that a verdict answers."""
    return (verdict.case_id, verdict.order, verdict.pair, verdict.run)


def question_text(question: str | list[dict[str, str]]) -> str:
    """Return a question as one text; a conversation becomes lines of "role: content"."""
    if isinstance(question, str):
        return question
    return "\n".join(f"{message['role']}: {message['content']}" for message in question)


REFERENCE = "reference"  # the name under which a teacher was shown the reference as one more response


def as_shown(case: Case, verdict: Verdict) -> Case:
    """Return the case with the responses that the teacher was shown: its own, or these and the reference as one more.

    Raises:
        RecordError: the verdict is on other responses than the case's.
    """
    models = list(verdict.extra.get("models", case.models))
    if models == case.models:
        return case
    if models == [*case.models, REFERENCE] and case.reference is not None:
        return replace(case, responses=(*case.responses, Response(REFERENCE, case.reference)))
    raise RecordError(
        f"case {case.id!r}: the verdict of {verdict.judge!r} is on the responses of {', '.join(map(str, models))}, "
        f"and the case has {', '.join(case.models)}{'' if case.reference is None else ' and a reference'}"
    )


DECISIONS = ("keep", "revise")
