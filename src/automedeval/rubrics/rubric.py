"""Rubrics: named sets of criteria with their scale or choices, inputs, answer grammar and prompt template, read from YAML.

One file feeds the prompt, the parser's bounds, the physicians' page and the report. The packaged ones lie in
`rubrics/packaged/`; a user's own file takes the same keys. `read_rubric` checks every key and names the one that is wrong.
Questions are what people alone answer, about verdicts: criteria, scale and tags, and nothing that a prompt or parser needs.
"""

import hashlib
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from automedeval.records import AutoMedEvalError

MODES = ("pointwise", "pairwise", "listwise")
GRAMMARS = ("score_line", "json", "comma_list")
INPUTS = ("question", "responses", "reference")
LIKELIHOOD, COUNTED = "likelihood@1", "baseline@1"  # in a rubric's place, where numbers have no scale
CHOICES = ("a", "b", "tie", "neither")
POLARITIES = ("better", "worse")
# fmt: off
KEYS = (
    "id", "version", "title", "source", "mode", "inputs", "max_responses", "rationale", "scale", "choices", "criteria",
    "output", "examples", "template",
)
# fmt: on
PACKAGED = resources.files("automedeval.rubrics") / "packaged"
TEMPLATES = resources.files("automedeval.rubrics") / "templates"


class RubricError(AutoMedEvalError):
    """A rubric file is not what it should be; the message names file and key."""


@dataclass(frozen=True)
class Criterion:
    """One question a judge or a physician answers about a response or a pair.

    `polarity` says what a choice means: "better" names the better response, "worse" (risk of harm, bias) the worse one.
    `neutral` is the choice that prefers neither: "tie" or "neither".
    """

    name: str
    description: str
    polarity: str = "better"
    neutral: str = "tie"


@dataclass(frozen=True)
class Rubric:
    """A rubric as its file has it; see `rubrics/packaged/automedeval.yaml` for a commented example.

    `scale` is (lowest, highest) for score rubrics, None for choices. `choices` maps "a", "b", "tie", "neither" to the word
    that stands in the answer. `max_responses` bounds how many responses one prompt shows. `template_text` holds the Jinja
    source, `fingerprint` twelve hexadecimal digits over everything that reaches the judge.
    """

    id: str
    version: int
    mode: str
    inputs: tuple[str, ...]
    max_responses: int
    criteria: tuple[Criterion, ...]
    rationale: bool
    grammar: str
    template: str
    template_text: str
    fingerprint: str
    scale: tuple[int, int] | None = None
    anchors: dict[int, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    examples: tuple[dict[str, Any], ...] = ()
    title: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """Return what verdicts record, for instance "automedeval@1"."""
        return f"{self.id}@{self.version}"

    @property
    def needs_reference(self) -> bool:
        return "reference" in self.inputs

    @property
    def output_criteria(self) -> tuple[str, ...]:
        """Return the criteria's names in the order in which an answer gives them."""
        return tuple(self.output.get("order") or [criterion.name for criterion in self.criteria])

    def criterion(self, name: str) -> Criterion:
        return next(criterion for criterion in self.criteria if criterion.name == name)


@dataclass(frozen=True)
class Questions:
    """What people are asked about a verdict (paper, section 3.1 and Appendices D and E).

    `scale` is (lowest, highest), `anchors` say what its values mean, `tags` map the name of an error to what it is.
    `fingerprint` holds twelve hexadecimal digits over all of the file.
    """

    title: str
    criteria: tuple[Criterion, ...]
    scale: tuple[int, int]
    anchors: dict[int, str]
    tags: dict[str, str]
    fingerprint: str


def packaged_rubrics() -> list[str]:
    """Return the ids of the rubrics that ship with the package."""
    return sorted(path.name.removesuffix(".yaml") for path in PACKAGED.iterdir() if path.name.endswith(".yaml"))


def without_scale(rubric: str) -> bool:
    """Return whether verdicts by what is called so are numbers of which more is better, and nothing else."""
    return rubric in (LIKELIHOOD, COUNTED)


def read_rubric(name: str | Path) -> Rubric:
    """Read a packaged rubric by id, or a user's own by the path of its YAML file.

    A template is looked for beside the YAML file first, then among the packaged ones.

    Raises:
        RubricError: no such rubric, not YAML, or a key that is missing, unknown or wrong.
    """
    text = str(name)
    if text.endswith((".yaml", ".yml")):
        path, place = Path(text), text
    elif text in packaged_rubrics():
        path, place = PACKAGED / f"{text}.yaml", f"{text}.yaml"
    else:
        raise RubricError(
            f"no rubric {text!r}: packaged are {', '.join(packaged_rubrics())}; your own needs its .yaml path"
        )
    return _Reader(place).rubric(_content(path, place), beside=path.parent if isinstance(path, Path) else None)


def read_questions(path: str | Path | None = None) -> Questions:
    """Read what people are asked about verdicts; without a path the packaged `rubrics/packaged/questions/verdict.yaml`.

    Raises:
        RubricError: the file cannot be read, is not YAML, or has a key that is missing, unknown or wrong.
    """
    if path is None:
        return _Reader("verdict.yaml").questions(_content(PACKAGED / "questions" / "verdict.yaml", "verdict.yaml"))
    return _Reader(str(path)).questions(_content(Path(path), str(path)))


def _content(path: Any, place: str) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RubricError(f"{place}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RubricError(f"{place}: not UTF-8") from None
    except yaml.YAMLError as error:
        raise RubricError(f"{place}: not YAML: {' '.join(str(error).split())}") from None


class _Reader:
    """Checks one file, key by key; every complaint starts with the file's name and the key."""

    def __init__(self, place: str):
        self.place = place

    def fail(self, key: str, problem: str) -> None:
        raise RubricError(f"{self.place}: {key}: {problem}")

    def take(
        self, mapping: dict, key: str, kind: type, default: Any = ..., allowed: tuple = (), inside: str = ""
    ) -> Any:
        full = f"{inside}{key}"
        if key not in mapping:
            if default is ...:
                self.fail(full, "is missing")
            return default
        value = mapping[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(full, f"must be {kind.__name__}, not {value!r}")
        for item in value if isinstance(value, list) else [value]:
            if allowed and item not in allowed:
                self.fail(full, f"{item!r} is not one of {', '.join(allowed)}")
        return value

    def only(self, mapping: Any, known: tuple[str, ...], inside: str = "") -> None:
        if not isinstance(mapping, dict):
            self.fail(inside.rstrip(".") or "the file", f"must be a mapping, not {mapping!r}")
        for key in mapping:
            if key not in known:
                self.fail(f"{inside}{key}", f"unknown key; known are {', '.join(known)}")

    def rubric(self, content: Any, beside: Path | None) -> Rubric:
        self.only(content, KEYS)
        mode = self.take(content, "mode", str, allowed=MODES)
        inputs = tuple(self.take(content, "inputs", list, allowed=INPUTS))
        output = self.take(content, "output", dict)
        self.only(output, ("grammar", "slot", "order", "value_key", "choices_key", "rationale_key"), "output.")
        grammar = self.take(output, "grammar", str, allowed=GRAMMARS, inside="output.")
        for key in ("slot", "value_key", "choices_key", "rationale_key"):
            self.take(output, key, str, default=None, inside="output.")
        criteria = tuple(self.criteria(content))
        names = [criterion.name for criterion in criteria]
        order = self.take(output, "order", list, default=names, inside="output.")
        if sorted(map(str, order)) != sorted(names):
            self.fail("output.order", f"must name every criterion once: {', '.join(names)}")
        scale, anchors = self.scale(content)
        choices = self.choices(content)
        if (mode == "pairwise") != bool(choices) or bool(choices) == bool(scale):
            self.fail(
                "mode", "a pairwise rubric needs 'choices' and no 'scale', every other a 'scale' and no 'choices'"
            )
        if (grammar == "score_line") != bool(scale):
            self.fail("output.grammar", "scores are answered as score_line, choices as json or comma_list")
        for criterion in criteria:
            if choices and criterion.neutral not in choices:
                self.fail(f"criteria.{criterion.name}.neutral", f"{criterion.neutral!r} is not among the choices")
        most = self.take(content, "max_responses", int)
        if most < 1 or (mode == "pairwise" and most != 2) or (mode == "pointwise" and most != 1):
            self.fail("max_responses", f"{most} does not fit the mode {mode}")
        template = self.take(content, "template", str)
        template_text = self.template(template, beside)
        reaching_judge = {key: value for key, value in content.items() if key not in ("title", "source")}
        digest = hashlib.sha256(json.dumps([reaching_judge, template_text], sort_keys=True, default=str).encode())
        return Rubric(
            id=self.take(content, "id", str),
            version=self.take(content, "version", int),
            mode=mode,
            inputs=inputs,
            max_responses=most,
            criteria=criteria,
            rationale=self.take(content, "rationale", bool),
            grammar=grammar,
            template=template,
            template_text=template_text,
            fingerprint=digest.hexdigest()[:12],
            scale=scale,
            anchors=anchors,
            choices=choices,
            output=output,
            examples=tuple(self.take(content, "examples", list, default=[])),
            title=self.take(content, "title", str, default=""),
            source=self.take(content, "source", str, default=""),
        )

    def questions(self, content: Any) -> Questions:
        self.only(content, ("title", "source", "criteria", "scale", "tags"))
        scale, anchors = self.scale(content)
        if scale is None:
            self.fail("scale", "is missing")
        tags = self.take(content, "tags", dict, default={})
        for name in tags:
            if not isinstance(name, str):
                self.fail(f"tags.{name}", "a tag's name must be a text")
        return Questions(
            title=self.take(content, "title", str, default=""),
            criteria=tuple(self.criteria(content)),
            scale=scale,
            anchors=anchors,
            tags={name: self.take(tags, name, str, inside="tags.").strip() for name in tags},
            fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12],
        )

    def criteria(self, content: dict):
        seen = set()
        for number, item in enumerate(self.take(content, "criteria", list)):
            inside = f"criteria[{number}]."
            self.only(item, ("name", "description", "polarity", "neutral"), inside)
            name = self.take(item, "name", str, inside=inside)
            if name in seen:
                self.fail(f"{inside}name", f"{name!r} came before")
            seen.add(name)
            yield Criterion(
                name,
                self.take(item, "description", str, inside=inside).strip(),
                self.take(item, "polarity", str, "better", POLARITIES, inside),
                self.take(item, "neutral", str, "tie", ("tie", "neither"), inside),
            )
        if not seen:
            self.fail("criteria", "needs at least one criterion")

    def scale(self, content: dict) -> tuple[tuple[int, int] | None, dict[int, str]]:
        scale = self.take(content, "scale", dict, default=None)
        if scale is None:
            return None, {}
        self.only(scale, ("minimum", "maximum", "anchors"), "scale.")
        low = self.take(scale, "minimum", int, inside="scale.")
        high = self.take(scale, "maximum", int, inside="scale.")
        if not 0 <= low < high <= 100:
            self.fail("scale", f"needs 0 <= minimum < maximum <= 100, not {low} and {high}")
        anchors = self.take(scale, "anchors", dict, default={}, inside="scale.")
        for value in anchors:
            if not isinstance(value, int) or not low <= value <= high:
                self.fail(f"scale.anchors.{value}", f"is not on the scale {low} to {high}")
        return (low, high), anchors

    def choices(self, content: dict) -> dict[str, str]:
        choices = self.take(content, "choices", dict, default={})
        self.only(choices, CHOICES, "choices.")
        if choices:
            for key in ("a", "b"):
                self.take(choices, key, str, inside="choices.")
            if len({str(word).casefold() for word in choices.values()}) != len(choices):
                self.fail("choices", "two choices have the same word")
        return {key: self.take(choices, key, str, inside="choices.") for key in choices}

    def template(self, name: str, beside: Path | None) -> str:
        places = ([] if beside is None else [beside / name]) + [TEMPLATES / name]
        for place in places:
            if place.is_file():
                try:
                    return place.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    self.fail("template", f"{name!r} is not UTF-8")
        self.fail("template", f"no file {name!r} beside the rubric nor among the packaged templates")
        raise AssertionError  # fail always raises; for the reader of types


TAGS = ("incomplete", "outdated", "bias_or_hallucination", "unsupported_rating")
