"""The records that every program reads and writes.

One record is one line of JSON Lines (UTF-8). Unknown keys are kept in `extra` and written again. A fault is a `RecordError`
that names the value; `readers` adds the file and the line.
"""

import hashlib
import json
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache, lru_cache
from itertools import chain
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_origin

from automedeval.records.errors import OtherTexts, RecordError, errors_at
from automedeval.records.messages import answer_text, read_conversation
from automedeval.records.questions import Question, patient_question
from automedeval.records.thoughts import LONGEST_ANSWER, read_answer

JsonObject = dict[str, Any]  # what a record or a result holds, by name
LARGEST = 1e6  # the squares of larger numbers are too coarse to compare
RESERVED_MODELS = ("tie", "neither")  # a choice is a model's name or one of these
# What a person can say of a criterion. Entailment labels say what the response states: entailment is met, the others are not.
CRITERION_LABELS = {
    "met": True,
    "not_met": False,
    "entailment": True,
    "neutral": False,
    "contradiction": False,
}


class _Nothing(dict):
    """An empty dict to which nothing can be added: records without unknown keys share one."""

    __setitem__ = __ior__ = setdefault = update = None  # type: ignore[assignment]


NOTHING = _Nothing()


def digest(value: object, **options: Any) -> str:
    """Return twelve hexadecimal digits (SHA-256) over a value as JSON; `options` are those of `json.dumps`."""
    return hashlib.sha256(json.dumps(value, **options).encode()).hexdigest()[:12]


def whole(text: str) -> str:
    """Return a text with "?" in place of a lone surrogate: half a character, which JSON can hold, and no file or tokenizer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def repeats(text: str) -> bool:
    """Return whether a text ends by saying the same words again and again: four times or more, eight words or more."""
    words = re.findall(r"\w+", text.lower())[:-1]  # the last one may be cut off
    for period in range(1, len(words) // 4 + 1):
        same = period  # words at the end that are those of a period before
        while same < len(words) and words[-1 - same] == words[period - 1 - same]:
            same += 1
        if same >= max(4 * period, 8):
            return True
    return False


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:80]


def check_number(value: float, name: str) -> None:
    """Raise RecordError unless a score is a number from -1,000,000 to 1,000,000."""
    if not abs(value) <= LARGEST:
        raise RecordError(
            f"{name!r} must be a number from -{LARGEST:g} to {LARGEST:g}, not {str(value)[:40]}"
        )


def take(record: Any, name: str, kinds: tuple[type, ...], default: Any = ...) -> Any:
    """Return `record[name]` after checking its type; for a missing key the default, if there is one."""
    try:
        value = record.get(name, default)
    except AttributeError:
        raise RecordError(f"expected an object, found {_shown(record)}") from None
    kind = type(value)
    if kind in kinds and kind is not float:
        return value  # as nearly always
    if value is ...:
        raise RecordError(f"{name!r} is missing; found the keys {sorted(record)}")
    # isinstance(True, int) holds, but true is no number in a record
    if not isinstance(value, kinds) or isinstance(value, bool):
        allowed = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
        raise RecordError(f"{name!r} must be {allowed}, not {_shown(value)}")
    # Parquet has NaN for what is missing, and 1e999 in JSON is read as infinity; neither can be compared.
    if isinstance(value, float) and not math.isfinite(value):
        raise RecordError(f"{name!r} must be a finite number, not {value}")
    return value


def _json_kinds(annotation: Any) -> tuple[type, ...]:
    """Return the types of a field's values as JSON has them: a tuple is a list, and a float can be a whole number."""
    options = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kinds: list[type] = []
    for option in options:
        kind = get_origin(option) or option
        kinds += {float: (int, float), tuple: (list,)}.get(kind, (kind,))
    return tuple(kinds)


class _Key(NamedTuple):
    """What the JSON of a record has for one of its fields."""

    kinds: tuple[type, ...]
    entries: tuple[type, ...]  # of a list
    needed: bool
    default: Any  # which is not written; ... where any value is


@cache
def _layout(kind: Any) -> dict[str, _Key]:
    """Return the key of each field but `extra`, by its name."""
    layout = {}
    is_beside = False
    for declared in fields(kind):
        if declared.name == "extra":
            is_beside = True
            continue
        options = (declared.type, *get_args(declared.type))
        tuples = [get_args(option)[0] for option in options if get_origin(option) is tuple]
        entries = _json_kinds(tuples[0]) if tuples else ()
        needed = declared.default is declared.default_factory is MISSING
        needed = needed or "needed" in declared.metadata
        default = declared.default if is_beside else ...
        layout[declared.name] = _Key(_json_kinds(declared.type), entries, needed, default)
    return layout


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass that JSON objects are read as and written from, field by field; `extra` keeps the unknown keys.

    Only some records have the fields behind `extra`: their defaults are not written.
    """

    @classmethod
    def from_dict(cls, record: dict) -> Self:
        """Return the record in a JSON object; RecordError if a key is missing or has a value of another type."""
        values: JsonObject = {}
        for name, key in _layout(cls).items():  # type: ignore[arg-type]
            if not key.needed and name not in record:
                continue
            # Parquet has null for what a row lacks.
            if key.default is not ... and record[name] is None:
                continue
            if key.kinds == (int, NoneType) and is_whole(record[name]):
                record = record | {name: int(record[name])}
            value = take(record, name, key.kinds)
            if isinstance(value, list):
                value = tuple(take({name: entry}, name, key.entries) for entry in value)
            values[name] = value
        if "extra" in cls.__dataclass_fields__:
            values["extra"] = _unknown(cls, record)
        return cls(**values)

    def to_dict(self) -> dict:
        """Return the record as a JSON object."""
        record = {}
        for name, key in _layout(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            if value != key.default:
                record[name] = list(value) if isinstance(value, tuple) else value
        return record | getattr(self, "extra", {})


def without_none(values: dict) -> dict:
    """Return what a mapping has, but None."""
    return {name: value for name, value in values.items() if value is not None}


def as_list(value: Any) -> Sequence[Any]:
    """Return several values as they are, and one by itself as a list of it."""
    return value if isinstance(value, list | tuple) else [value]


def each_once(groups: Iterable[Iterable[Any]]) -> list[Any]:
    """Return what is in one of these or more, each once, in the order in which it first comes."""
    return list(dict.fromkeys(chain.from_iterable(groups)))


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number as 3.0: so pandas has it where a row has none."""
    return isinstance(value, float) and value.is_integer()


def _unknown(kind: Any, record: dict) -> dict:
    """Return what a JSON object has beside the fields of a record."""
    layout = _layout(kind)
    return {key: value for key, value in record.items() if key not in layout} or NOTHING


@dataclass(frozen=True, slots=True)
class LogRecord(Record):
    """What a judge, a check or a candidate says of a case.

    `by` and `about` name the fields that say who wrote a record, its name first, and about what. The field `settings` is a
    fingerprint of the author's settings, and `digest_key` names the field with the digest of what it saw of the case.
    """

    case_id: str
    by: ClassVar[tuple[str, ...]]
    about: ClassVar[tuple[str, ...]]
    digest_key: ClassVar[str] = "case_digest"

    @property
    def author(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in self.by)

    @property
    def key(self) -> tuple:
        return tuple(getattr(self, name) for name in self.about)

    @property
    def identity(self) -> tuple:
        return (*self.author, *self.key)

    def has_changed(self, *digests: str) -> bool:
        """Return whether the case has changed since the author saw it; of a record without a digest nobody can tell.

        `digests` are those of the case as it is now, in each form in which it may have been shown.
        """
        return getattr(self, self.digest_key) not in (None, *digests)

    def check(self, advice: str, *digests: str) -> None:
        """Raise RecordError, with an advice, if the case has changed, see `has_changed`."""
        if self.has_changed(*digests):
            raise OtherTexts(
                f"the texts of case {self.case_id!r} changed after {' by '.join(self.author)!r} "
                f"read them, or it read another file (of two versions: their order?): {advice}"
            )


@cache  # one text for all cases
def _model_name(name: str) -> str:
    if not name.strip():
        raise RecordError("a response's 'model' must not be empty")
    if name in RESERVED_MODELS:
        raise RecordError(
            f"a model cannot be called {name!r}: the word is an answer of pairwise rubrics"
        )
    return sys.intern(name)


@dataclass(frozen=True, slots=True)
class Response(Record):
    """The response of one candidate model. An empty text is a response too: the model was asked, and gave no answer.

    `from_dict` takes a reasoning model's thoughts out of the text; `extra` then has the key "thoughts", or "unclear" where it
    cannot tell the answer from the rest, and the text stays whole. Of a text of more than `LONGEST_ANSWER` characters it keeps
    the first ones, with the key "cut".
    """

    model: str
    text: str
    extra: dict = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Return whether the text has nothing that can be seen: the model was asked, and gave no answer."""
        return all(
            unicodedata.category(letter) in ("Cc", "Cf", "Zs", "Zl", "Zp") for letter in self.text
        )

    @classmethod
    def from_dict(cls, record: dict) -> Self:
        model = _model_name(take(record, "model", (str,)))
        text = answer_text(take(record, "text", (str, list, dict)), "text")
        text, notes = read_answer(take({"text": text}, "text", (str,)))
        if len(text) > LONGEST_ANSWER:
            text, notes = text[:LONGEST_ANSWER], notes | {"cut": True}
        if len(record) > 2:  # beside the model and the text
            notes = _unknown(cls, record) | notes
        return cls(model, text, notes or NOTHING)


@dataclass(frozen=True)
class CaseCriterion(Record):
    """One criterion of a case's own: what a response should say, or, with negative points, what it must not.

    `points` is not 0. `tags` say what it is about, for instance its theme or "must_have".
    """

    criterion: str
    points: float
    tags: tuple[str, ...] = ()
    extra: dict = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: dict) -> Self:
        criterion = super().from_dict(record)
        if not criterion.criterion.strip():
            raise RecordError("a criterion must not be empty")
        if not 0 < abs(criterion.points) <= LARGEST:
            raise RecordError(
                f"'points' must be a number from -{LARGEST:g} to {LARGEST:g}, but not 0: {criterion.points}"
            )
        return criterion


def criteria_of(entries: list[dict]) -> tuple[CaseCriterion, ...]:
    """Return the criteria of a case; RecordError, which has the number, for a faulty one and one that came before."""
    criteria: dict[str, CaseCriterion] = {}
    for number, entry in enumerate(entries, 1):
        with errors_at(f"criterion {number}"):
            criterion = CaseCriterion.from_dict(entry)
            if criteria.setdefault(criterion.criterion, criterion) is not criterion:
                raise RecordError(f"{_shown(criterion.criterion)} came before")
    return tuple(criteria.values())


@dataclass(frozen=True, slots=True)
class Case:
    """A question, the responses of the candidates, and the reference if there is one.

    `question` is a string, or a conversation as a list of `{"role", "content"}` messages ending with the patient's.
    `responses` holds one response or more, model names unique within the case; none yet before generation. `criteria` are
    this case's own, with different texts; labels name them by their exact text.
    Cases with the same `cluster` count as one in intervals; with "" a case is one of its own.
    """

    id: str
    question: Question
    responses: tuple[Response, ...]
    reference: str | None = None
    topic: str | None = None
    extra: dict = field(default_factory=dict)
    criteria: tuple[CaseCriterion, ...] = ()
    cluster: str = ""

    @classmethod
    def from_dict(cls, record: dict, least_responses: int = 1) -> "Case":
        case_id = str(take(record, "id", (str, int)))
        if not case_id:
            raise RecordError("'id' must not be empty")
        question = take(record, "question", (str, list))
        if isinstance(question, list):
            question = read_conversation(question, "question")
            for message in question:
                if message["role"] == "assistant":
                    message["content"] = read_answer(message["content"])[0]
        if not patient_question(question).strip():
            raise RecordError(f"case {case_id!r}: 'question' must not be empty")
        entries = take(record, "responses", (list,), ... if least_responses else [])
        responses = tuple(map(Response.from_dict, entries))
        if len(responses) < least_responses:
            raise RecordError(f"case {case_id!r} has no response")
        models = [response.model for response in responses]
        if repeated := [model for model in models if models.count(model) > 1]:
            raise RecordError(f"case {case_id!r} has two responses of the model {repeated[0]!r}")
        reference = take(record, "reference", (str, NoneType), None)
        reference = reference and read_answer(reference)[0]
        topic = take(record, "topic", (str, NoneType), None)
        with errors_at(f"case {case_id!r}"):
            criteria = criteria_of(take(record, "criteria", (list, NoneType), None) or [])
        cluster = record.get("cluster")
        return cls(
            case_id, question, responses, reference, topic, _unknown(cls, record), criteria,
            "" if cluster is None else str(cluster),
        )  # fmt: skip

    def to_dict(self) -> dict:
        record = {
            "id": self.id,
            "question": self.question,
            "reference": self.reference,
            "topic": self.topic,
            "responses": [response.to_dict() for response in self.responses],
        }
        if self.criteria:
            record["criteria"] = [criterion.to_dict() for criterion in self.criteria]
        if self.cluster:
            record["cluster"] = self.cluster
        return record | self.extra

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over the texts and models of the case, which is all that a judge can see.

        A judge of criteria sees more: `checklist_digest`.
        """
        texts = [(response.model, response.text) for response in self.responses]
        return digest([self.question, self.reference, texts])

    @property
    def checklist_digest(self) -> str:
        """Return twelve hexadecimal digits over the texts, the models and the criteria with their points."""
        criteria = [(criterion.criterion, float(criterion.points)) for criterion in self.criteria]
        return digest([self.digest, criteria])

    def row_of(self, index: int) -> int | None:
        """Return the row of a table, from 1, that has a response; None where the case is not from a table."""
        row = self.responses[index].extra.get("row", self.extra.get("row"))
        # The user's own key of that name may hold something else.
        return row if type(row) is int else None

    def texts(self, order: Iterable[int]) -> list[str]:
        """Return the texts of the responses with these indices."""
        return [self.responses[index].text for index in order]

    @property
    def models(self) -> list[str]:
        """Return the candidates' names in the order of the responses."""
        return [response.model for response in self.responses]


def by_response(values: Iterable[Any], order: Sequence[int], count: int) -> tuple:
    """Return the values of slots in the order of a case's `count` responses, None for a response that has no slot."""
    value_of = dict(zip(order, values))
    return tuple(map(value_of.get, range(count)))


def answer_digest(case: Case, response: Response) -> str:
    """Return "text-" and a digest of question and text: an exported rating has that of what was rated.

    Digits alone may be a number to a spreadsheet.
    """
    return "text-" + digest([case.question, response.text])


@dataclass(frozen=True)
class CriterionLabel(Record):
    """What one annotator said of one criterion of a case and one response: one of `CRITERION_LABELS`.

    `criterion` is the exact text of the case's criterion.
    """

    case_id: str
    model: str
    criterion: str
    annotator: str
    label: str
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.label not in CRITERION_LABELS:
            raise RecordError(
                f"'label' must be one of {', '.join(CRITERION_LABELS)}, not {_shown(self.label)}"
            )

    @property
    def met(self) -> bool:
        """Return whether the response meets the criterion."""
        return CRITERION_LABELS[self.label]


@dataclass(frozen=True)
class Rating(Record):
    """One number that one annotator gave one response on one criterion."""

    case_id: str
    model: str
    annotator: str
    criterion: str
    score: float
    comment: str | None = None
    extra: dict = field(default_factory=dict)


@dataclass(frozen=True)
class HarmRating(Record):
    """What one physician said of one response by a rubric whose criteria are answered in words.

    `choices` maps criteria to words of the rubric. Each of `marks` is a passage of the response that does the harm: its `text`,
    and its place, `start` and `end` in characters. `missing` names the step that the response leaves out.
    """

    case_id: str
    model: str
    annotator: str
    rubric: str
    choices: dict[str, str]
    marks: tuple[dict, ...] = ()
    missing: str | None = None
    comment: str | None = None
    extra: dict = field(default_factory=dict)


def _check_choice(choice: str, key: str, two: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Raise RecordError unless a choice is one of two different names, which stand at a key, or one of some words."""
    if len(two) != 2 or two[0] == two[1]:
        raise RecordError(f"{key!r} must name two different ones, not {_shown(two)}")
    allowed = (*two, *words)
    if choice not in allowed:
        raise RecordError(f"'choice' must be one of {', '.join(allowed)}, not {choice!r}")


@dataclass(frozen=True)
class Choice(Record):
    """The choice of one annotator between two responses on one criterion: a model's name, "tie" or "neither"."""

    case_id: str
    pair: tuple[str, str]
    annotator: str
    criterion: str
    choice: str

    def __post_init__(self) -> None:
        _check_choice(self.choice, "pair", self.pair, RESERVED_MODELS)


@dataclass(frozen=True)
class Preference(Record):
    """The preference of one annotator between two judges' verdicts on one criterion: a judge's name or "tie"."""

    case_id: str
    judges: tuple[str, str]
    annotator: str
    criterion: str
    choice: str
    # `Verdict.digest` of the verdicts that were shown, in the order of the judges
    verdict_digests: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        _check_choice(self.choice, "judges", self.judges, ("tie",))


@dataclass(frozen=True)
class VerdictRating(Record):
    """One number that one physician gave a judge's verdict on one criterion.

    Without the digest, ratings of two verdicts of a judge on a case cannot be told apart.
    """

    case_id: str
    judge: str
    annotator: str
    criterion: str
    score: float
    role: str | None = None
    comment: str | None = None
    verdict_digest: str | None = None  # `Verdict.digest` of the verdict that was rated
    # The kinds of error in the verdict, on one of its criteria; None: nobody asked
    tags: tuple[str, ...] | None = None
    extra: dict = field(default_factory=dict)


# What many verdicts say alike, and is held once; no numbers with decimals, of which 1.0 equals 1.
ALIKE = ("judge", "rubric", "order", "scores", "settings", "checkpoint")
_held_once = cache(lambda value: value)
_usage_once = lru_cache(4096)(lambda *counts: dict(counts))

# The kinds of danger that a judge without medical knowledge does not see, its verdicts' "blind_to".
UNSEEN = ("dose", "negation", "emergency")


@dataclass(frozen=True, slots=True)  # more than thirty fields in a dict take two kilobytes
class Verdict(LogRecord):
    """A judge's answer about a case, or about some of its responses.

    `order` lists the indices of the case's responses as they were shown (slot 0 first). `scores` and `expected_scores` are in
    the order of the case's responses, None for a response that was not shown. `choices` maps each criterion of a pairwise
    rubric to a model's name, "tie" or "neither", and of a rubric in words to one of these. `checklist` has what a judge of
    criteria says of the one response that it was shown, in the order of the case's criteria: `met` (true, false, or null where
    it could not be read), `met_probabilities`, and `score`, `lowest` and `highest` as `stats.checklist.Score` has them.
    An invalid verdict has none of these; `error` gives the reason.

    Under a rubric that scores several criteria, `criterion_scores` maps each criterion to whole scores in the order of the
    case's responses. `scores` are then their means over the criteria, rounded to whole numbers with halves upwards, and
    `expected_scores` the means without rounding.

    What a verdict says of one response is its `value`. A response that is shown and has none is unread (`unread`): the judge
    could not read it.

    What it is on and where it comes from, as far as it is known: `models` of the case; `settings`, `case_digest` and
    `checkpoint`, fingerprints of the judge, of the case's texts and of the judge's weights; `row` and `question` of a table;
    `empty`, the models whose response is empty, which every judge puts lowest; `blind_to`, the kinds of danger that a judge
    made like this one cannot see; `differs`, model → the numbers that differ from the books; `left_out`, parameters that the
    endpoint refused. A rationale may be `composed` by a template; a text `truncated` at the limit of new tokens. Without an
    answer the prompt was `overlong`, or the request `failed`. `teacher` and `quality` are of a verdict to learn from,
    `annotator` and `marks` of a physician's.
    """

    by, about = ("judge", "rubric"), ("case_id", "order", "pair", "run")

    judge: str
    rubric: str
    order: tuple[int, ...]
    pair: tuple[str, str] | None = None
    run: int = 0
    valid: bool = field(default=False, metadata={"needed": True})  # in a file
    error: str | None = None
    rationale: str | None = None
    scores: tuple[int | None, ...] | None = None
    expected_scores: tuple[float | None, ...] | None = None
    choices: dict[str, str] | None = None
    raw: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    extra: dict = field(default_factory=dict)
    checklist: dict | None = None
    criterion_scores: dict[str, list[int | None]] | None = None
    models: tuple[str, ...] = ()
    case_digest: str | None = None
    settings: str | None = None
    checkpoint: str | None = None
    differs: dict[str, list[dict]] | None = None
    question: str | None = None
    row: int | None = None
    empty: tuple[str, ...] = ()
    blind_to: tuple[str, ...] | None = None
    left_out: tuple[str, ...] = ()
    reads_reference: bool = False
    composed: bool = False
    teacher: str | None = None
    quality: str | None = None
    knowledge: tuple[dict, ...] | None = None
    truncated: bool = False
    overlong: bool = False
    failed: bool = False
    annotator: str | None = None
    marks: tuple[dict, ...] | None = None

    def for_figures(self) -> Self:
        """Return the verdict, a valid one in little memory: without what no figure reads, and with what others say alike."""
        if not self.valid:
            return self
        alike = {name: _held_once(getattr(self, name)) for name in ALIKE}
        return replace(
            self, raw="", models=(), question=None, knowledge=None, extra=NOTHING,
            usage=_usage_once(*self.usage.items()), **alike,
        )  # fmt: skip

    def placed(self, places: Sequence[int], count: int) -> Self:
        """Return the verdict with what it says of response i at `places[i]`, in a case with so many responses.

        Scores that are not one for each place stay, and are refused where verdicts are checked.
        """
        place_of = dict(enumerate(places))

        def moved(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: moved(scores) for name, scores in values.items()}
            if not isinstance(values, list | tuple) or len(values) != len(places):
                return values
            return by_response(values, places, count)

        lists = ("scores", "expected_scores", "criterion_scores")
        values = {name: moved(getattr(self, name)) for name in lists}
        order = tuple(place_of.get(index, index) for index in self.order)
        return replace(self, order=order, **values)

    def of_case(self, case: Case, with_reference: bool = False) -> Self:
        """Return the verdict in the order of the case's responses, the reference among them if it was shown as one.

        RecordError if the case has changed, if the verdict is on other models, or if its order or its scores do not fit.
        """
        models = list(self.models) or case.models
        if models != case.models and sorted(models) == sorted(case.models):
            verdict = self.placed([case.models.index(model) for model in models], len(models))
            return replace(verdict, models=tuple(case.models)).of_case(case)
        judged = as_shown(case, self, with_reference)
        if self.has_changed(case.digest):
            self.check(RENEWED, judged.digest, case.checklist_digest)
        self.check_fit(len(judged.responses))
        return self

    def check_fit(self, count: int) -> None:
        """Raise RecordError unless the order and the scores fit so many responses."""
        whose = f"the {count} responses of case {self.case_id!r}"
        slots = set(self.order)
        if not slots or len(slots) < len(self.order) or not slots <= set(range(count)):
            raise RecordError(f"'order' {list(self.order)} does not fit {whose}")
        for name, scores in self.score_lists.items():
            if not isinstance(scores, list | tuple) or len(scores) != count:
                raise RecordError(f"{name!r} {_shown(scores)} does not fit {whose}")
            for index, score in enumerate(scores):
                if score is None:
                    continue
                check_number(take({name: score}, name, (int, float)), name)
                if index not in slots:
                    raise RecordError(
                        f"{name!r} has a score for a response that 'order' does not show"
                    )

    @property
    def score_lists(self) -> dict:
        """Return the lists of scores that the verdict has, by their names."""
        lists: dict = {"scores": self.scores, "expected_scores": self.expected_scores}
        for name, scores in (self.criterion_scores or {}).items():
            lists[f"criterion_scores.{name}"] = scores
        return without_none(lists)

    def value(self, index: int) -> float | None:
        """Return what the verdict says of a response as one number, the index being that in the case.

        It is the expected score, else the score, or the score by the criteria of the case. It is None in an invalid verdict and
        in one of choices, and of a response that is not shown or unread, be it one criterion.
        """
        if not self.valid or index not in self.order:
            return None
        if self.checklist is not None:
            return None if None in self.checklist["met"] else self.checklist["score"]
        for scores in (self.expected_scores, self.scores):
            if scores is not None and scores[index] is not None:
                return scores[index]
        return None

    @property
    def values(self) -> dict[int, float]:
        """Return index in the case → `value`, of the responses that have one."""
        return without_none({index: self.value(index) for index in sorted(self.order)})

    @property
    def unread(self) -> tuple[int, ...]:
        """Return the responses that a valid verdict shows and says nothing of, as indices in the case.

        A verdict by the criteria of a case leaves criteria unread, which its `checklist` tells.
        """
        if not self.valid or self.choices or self.checklist is not None:
            return ()
        return tuple(index for index in sorted(self.order) if self.value(index) is None)

    @property
    def rationale_fault(self) -> str | None:
        """Return what is wrong with the rationale, of which `valid` says nothing: it "repeats itself" or "breaks off"."""
        if not self.rationale:
            return None
        # A judge of criteria gives a reason for each, on a line of its own.
        reasons = self.rationale.split("\n") if self.checklist else [self.rationale]
        if any(map(repeats, reasons)):
            return "repeats itself"
        return "breaks off" if self.truncated else None

    @property
    def digest(self) -> str:
        """Return twelve hexadecimal digits over what a person who rates the verdict is shown.

        That is the case as it was judged, the rubric, the order of the responses, the rationale, and the scores or choices. The
        judge, the run, probabilities, tokens and settings do not count: equal texts have equal digests.
        """
        seen: list[Any] = [
            self.case_digest, self.rubric, self.order, self.pair,
            self.rationale, self.scores, self.choices,
        ]  # fmt: skip
        seen += [self.checklist["met"]] if self.checklist else []
        seen += [self.criterion_scores] if self.criterion_scores else []
        return digest(seen, sort_keys=True)


@dataclass(frozen=True)
class CheckedResponse(LogRecord):
    """What was found of the numbers of one response: those that differ (`differs`), see `evidence.run.marked_numbers`.

    `unread` says why they were not looked at, None if they were.
    """

    by, about = ("evidence",), ("case_id", "model")

    model: str
    evidence: str  # what they were compared with: "reference" or "books"
    differs: tuple[dict, ...] = ()
    unread: str | None = None
    extra: dict = field(default_factory=dict)
    case_digest: str | None = None
    settings: str | None = None


# The model's name if a teacher was shown the reference as one more response
REFERENCE = "reference"


RENEWED = "judging with it again renews its verdicts"


def as_shown(case: Case, verdict: Verdict, with_reference: bool = True) -> Case:
    """Return the case with the responses that the teacher was shown: the case's, or these and the reference.

    RecordError if the verdict is on responses of other models.
    """
    models = list(verdict.models) or case.models
    if models == case.models:
        return case
    reference = case.reference if with_reference else None
    if reference is not None and models == [*case.models, REFERENCE]:
        return replace(case, responses=(*case.responses, Response(REFERENCE, reference)))
    raise OtherTexts(
        f"case {case.id!r}: the verdict of {verdict.judge!r} is on the responses of {', '.join(map(str, models))}, "
        f"and the case has {', '.join(case.models)}{'' if reference is None else ' and a reference'}: "
        f"{RENEWED}"
    )


DECISIONS = ("keep", "revise")
