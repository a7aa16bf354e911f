"""Read rubrics from YAML files: criteria, scale or choices, inputs, answer grammar and prompt template.

The prompt, the parser, the physicians' page and the report use the same file. Packaged rubrics are in `rubrics/packaged/`; a
user's own file has the same keys. `Questions` are asked of people alone, about verdicts: criteria, scale and tags.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from automedeval.records import (
    CaseCriterion,
    JsonObject,
    RecordError,
    digest,
    errors_at,
    read_text,
)
from automedeval.records.yaml_file import YamlFile

MODES = ("pointwise", "pairwise", "listwise", "checklist")
GRAMMARS = ("score_first", "score_line", "json", "comma_list", "first_line")
# What a rubric is answered by and its mode → the grammars in which this is written.
ANSWERS = {
    ("scale", "pointwise"): ("score_first", "score_line", "json"),
    ("scale", "listwise"): ("score_line", "json"),
    ("choices", "pairwise"): ("json", "comma_list", "first_line"),
    ("choices", "checklist"): ("json",),
    ("values", "pointwise"): ("json",),
}
TAKES = (
    "pointwise takes a 'scale' or criteria with values, listwise a 'scale', pairwise and checklist "
    "'choices', and nothing beside it"
)
INPUTS = ("question", "responses", "reference")
# They stand for a rubric in verdicts of judges without a scale.
LIKELIHOOD = "likelihood@1"
COUNTED = "baseline@1"
CHOICES = ("a", "b", "tie", "neither")
READINGS = ("met", "not_met")  # what a checklist says of a criterion
# Errors that people find in verdicts.
TAGS = ("incomplete", "outdated", "bias_or_hallucination", "unsupported_rating")
# The keys of a rubric's file and of its parts: type, default if the key may be missing, allowed values.
Keys = dict[str, tuple]
KEYS: Keys = {
    "id": (str,),
    "version": (int,),
    "title": (str, ""),
    "source": (str, ""),
    "mode": (str, ..., MODES),
    "inputs": (list, ..., INPUTS),
    "max_responses": (int,),
    "rationale": (bool,),
    "scale": (dict, None),
    "choices": (dict, {}),
    "criteria": (list, []),
    "output": (dict,),
    "examples": (list, []),
    "template": (str,),
}
OUTPUT: Keys = {
    "grammar": (str, ..., GRAMMARS),
    "slot": (str, None),
    "order": (list, None),
    **dict.fromkeys(("value_key", "choices_key", "score_key", "rationale_key"), (str, None)),
    "trained": (str, "answer", ("answer", "values")),
}
CRITERION: Keys = {
    "name": (str,),
    "description": (str,),
    "polarity": (str, "better", ("better", "worse")),
    "neutral": (str, "tie"),
    "values": (dict, {}),
    "threshold": (str, ""),
}
SCALE: Keys = {"minimum": (int,), "maximum": (int,), "anchors": (dict, {})}
QUESTIONS: Keys = {
    "title": (str, ""),
    "source": (str, ""),
    "criteria": (list,),
    "scale": (dict,),
    "tags": (dict, {}),
}
PACKAGED_QUESTIONS = ("verdict", "verification")  # about verdicts
PACKAGED = Path(__file__).parent / "packaged"
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Criterion:
    """One question that a judge or a physician answers about a response or a pair.

    A choice names the better response if `polarity` is "better", the worse one (risk of harm, bias) if it is "worse".
    `neutral`, "tie" or "neither", prefers none. A criterion with `values`, word → meaning, the lowest first, is answered by one
    of these words or by `neutral`: none can be told. From `threshold` on an answer is counted in reports; "": none is. The
    meaning "the NAME is WORD" binds a word to one of another criterion: an answer with one of them alone is invalid.
    """

    name: str
    description: str
    polarity: str = "better"
    neutral: str = "tie"
    values: dict[str, str] = field(default_factory=dict, hash=False)
    threshold: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that answer a criterion with values, `neutral` last."""
        return (*self.values, self.neutral)


@dataclass(frozen=True)
class Rubric:
    """The content of a rubric's file; `rubrics/packaged/automedeval.yaml` has comments.

    `scale` is (lowest, highest), None for choices. `choices` maps "a", "b", "tie", "neither" to the words of the answer, in a
    checklist "met" and "not_met". A checklist has no criteria of its own: `about` gives it those of a case. `fingerprint` is
    over everything that the judge reads.
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
    scale: tuple[int, int] | None
    choices: dict[str, str]
    output: JsonObject
    examples: tuple[JsonObject, ...]
    title: str
    source: str
    anchors: dict[int, str] = field(default_factory=dict)
    place: str = ""  # by which `read_rubric` found it

    @property
    def name(self) -> str:
        """Return the name that verdicts record, for instance "automedeval@1"."""
        return f"{self.id}@{self.version}"

    @property
    def needs_reference(self) -> bool:
        return "reference" in self.inputs

    @property
    def scores_criteria(self) -> bool:
        """Return whether an answer has a score of each response on each criterion, instead of one score that sums them up."""
        return self.scale is not None and not self.sums_up

    @property
    def sums_up(self) -> bool:
        """Return whether an answer has one score of each response, on a line of scores or in an object of named fields."""
        return self.grammar in ("score_first", "score_line") or bool(self.key("score"))

    @property
    def in_words(self) -> bool:
        """Return whether each criterion lists the words that answer it, in the place of a scale or choices."""
        return any(criterion.values for criterion in self.criteria)

    @property
    def better(self) -> set[str]:
        """Return the names of the criteria of which more is better."""
        return {criterion.name for criterion in self.criteria if criterion.polarity == "better"}

    @property
    def degree(self) -> Criterion:
        """Return the criterion with a threshold, of which each rubric in words has one."""
        return next(criterion for criterion in self.criteria if criterion.threshold)

    def labels(self, name: str) -> dict[str, str]:
        """Return what a verdict records of a criterion → the word of the answer."""
        return (
            {word: word for word in self.criterion(name).words} if self.in_words else self.choices
        )

    def key(self, what: str) -> str:
        """Return the key of "value", "score", "choices" or "rationale" in JSON; "" without one."""
        return self.output.get(f"{what}_key", "")

    @property
    def slot_word(self) -> str:
        """Return what an answer calls a response, for instance "Doctor"."""
        return self.output.get("slot") or "Response"

    @property
    def output_criteria(self) -> tuple[str, ...]:
        """Return the names of the criteria in the order of the answer; of an object with one score the name of its field."""
        if score_key := self.key("score"):
            return (score_key,)
        return tuple(self.output.get("order") or [criterion.name for criterion in self.criteria])

    def about(self, criteria: Sequence[CaseCriterion]) -> "Rubric":
        """Return this checklist with some criteria of a case, which an answer calls "1", "2", …; their points are not shown."""
        return replace(
            self,
            criteria=tuple(
                Criterion(str(n), criterion.criterion) for n, criterion in enumerate(criteria, 1)
            ),
        )

    def criterion(self, name: str) -> Criterion:
        return next(criterion for criterion in self.criteria if criterion.name == name)


@dataclass(frozen=True)
class Questions:
    """The questions about a verdict that people answer (paper, section 3.1 and Appendices D and E).

    `anchors` maps values of the scale (lowest, highest) to their meaning, `tags` the name of an error to its description.
    """

    criteria: tuple[Criterion, ...]
    scale: tuple[int, int]
    anchors: dict[int, str]
    tags: dict[str, str]
    fingerprint: str


def packaged_rubrics() -> list[str]:
    """Return the ids of the rubrics that ship with the package."""
    return sorted(path.stem for path in PACKAGED.glob("*.yaml"))


Rubrics = dict[str, Rubric]  # by name


def rubrics_with(files: Iterable[str]) -> Rubrics:
    """Return the packaged rubrics and those of the files, by name; RecordError if one differs from another of its name."""
    rubrics = {rubric.name: rubric for rubric in map(read_rubric, packaged_rubrics())}
    for rubric in map(read_rubric, files):
        if rubrics.setdefault(rubric.name, rubric).fingerprint != rubric.fingerprint:
            raise RecordError(
                f"--rubrics: there is another rubric {rubric.name}; change the id or raise the version"
            )
    return rubrics


def rubric_among(rubrics: Rubrics, name: str) -> Rubric:
    """Return the rubric of this name; RecordError if there is none."""
    if name not in rubrics:
        known = ", ".join(sorted(rubrics))
        raise RecordError(f"no rubric {name!r} among {known}; give yours with --rubrics")
    return rubrics[name]


def without_scale(rubric: str) -> bool:
    """Return whether the scores of verdicts by this rubric have no scale, only an order."""
    return rubric in (LIKELIHOOD, COUNTED)


def read_rubric(name: str | Path) -> Rubric:
    """Read a packaged rubric by id, or a user's own by the path of its YAML file; RecordError if it is faulty."""
    path, place = rubric_path(name)
    reader = _Reader(place)
    return replace(reader.rubric(reader.read(path), beside=path.parent), place=str(name))


def rubric_path(name: str | Path) -> tuple[Path, str]:
    """Return the file of a rubric, and what errors call it."""
    text = str(name)
    if text.endswith((".yaml", ".yml")):
        return Path(text), text
    packaged = packaged_rubrics()
    if text in packaged:
        return PACKAGED / f"{text}.yaml", f"{text}.yaml"
    known = ", ".join(packaged)
    raise RecordError(f"no rubric {text!r}: packaged are {known}; your own needs its .yaml path")


def read_questions(name: str) -> Questions:
    """Read the questions about verdicts: a packaged name, or those of a YAML file."""
    file = None
    if name in PACKAGED_QUESTIONS:
        name = f"{name}.yaml"
        file = PACKAGED / "questions" / name
    reader = _Reader(name)
    return reader.questions(reader.read(file))


class _Reader(YamlFile):
    def rubric(self, content: Any, beside: Any) -> Rubric:
        keys = self.values(content, KEYS)
        is_checklist = keys["mode"] == "checklist"
        keys["grammar"] = self.values(keys["output"], OUTPUT, "output.")["grammar"]
        keys["criteria"] = tuple(self.criteria(keys["criteria"]))
        keys["choices"] = self.choices(keys["choices"], READINGS if is_checklist else CHOICES)
        if keys["scale"] is not None:
            keys["scale"], keys["anchors"] = self.scale(keys["scale"])
        keys |= {"inputs": tuple(keys["inputs"]), "examples": tuple(keys["examples"])}
        template_text = self.template(keys["template"], beside)
        shown = {key: content[key] for key in content.keys() - {"title", "source"}}
        shown["output"] = {key: keys["output"][key] for key in keys["output"] if key != "trained"}
        if "score_key" in shown["output"]:  # the judge writes its fields in their order
            shown["fields"] = list(shown["output"])
        fingerprint = digest([shown, template_text], sort_keys=True, default=str)
        rubric = Rubric(**keys, template_text=template_text, fingerprint=fingerprint)
        self.check_names(rubric)
        self.check_answers(rubric)
        self.check_criteria(rubric)
        return rubric

    def check_names(self, rubric: Rubric) -> None:
        """Fail unless the rubric has criteria, a checklist none, and its order names each of them once."""
        names = [criterion.name for criterion in rubric.criteria]
        if (rubric.mode == "checklist") == bool(names):
            self.fail("criteria", "needs at least one criterion, and of a checklist none")
        if sorted(map(str, rubric.output.get("order", names))) != sorted(names):
            self.fail("output.order", f"must name every criterion once: {', '.join(names)}")

    def check_answers(self, rubric: Rubric) -> None:
        """Fail unless the mode, the grammar and the number of responses fit what the rubric is answered by."""
        mode, grammar, most = rubric.mode, rubric.grammar, rubric.max_responses
        given = {"scale": rubric.scale, "choices": rubric.choices, "values": rubric.in_words}
        kind = " and ".join(kind for kind, is_given in given.items() if is_given)
        grammars = ANSWERS.get((kind, mode))
        if grammars is None:
            self.fail("mode", TAKES)
        if grammar not in grammars:
            problem = f"is one of {', '.join(grammars)} for a {mode} rubric with {kind}"
            self.fail("output.grammar", f"{problem}, not {grammar}")
        if rubric.key("score") and (mode, grammar) != ("pointwise", "json"):
            self.fail("output.score_key", "is the one score of json, and takes the mode pointwise")
        if rubric.key("value") and (mode == "checklist" or rubric.in_words):
            self.fail("output.value_key", "a checklist and criteria with values have none")
        if grammar == "first_line" and len(rubric.criteria) > 1:
            self.fail("output.grammar", "first_line holds no choices on several criteria")
        allowed_most = {"pairwise": 2, "pointwise": 1, "checklist": 1}.get(mode, most)
        if most < 1 or most != allowed_most:
            self.fail("max_responses", f"{most} does not fit the mode {mode}")

    def check_criteria(self, rubric: Rubric) -> None:
        """Fail unless each criterion can be answered as the others are, and one in words counts from a threshold on."""
        counted = [criterion for criterion in rubric.criteria if criterion.threshold]
        if rubric.in_words and len(counted) != 1:
            self.fail(
                "criteria", f"one criterion with values needs a 'threshold', not {len(counted)}"
            )
        neutral = [choice for choice in CHOICES[2:] if choice in (rubric.choices or CHOICES)]
        for criterion in rubric.criteria:
            inside = f"criteria.{criterion.name}"
            if rubric.in_words and not criterion.values:
                self.fail(f"{inside}.values", "is missing, and other criteria have values")
            if not rubric.in_words and criterion.neutral not in neutral:
                allowed = " or ".join(neutral) or "among the choices"
                self.fail(f"{inside}.neutral", f"{criterion.neutral!r} is not {allowed}")
            if rubric.scores_criteria and criterion.polarity == "worse":
                self.fail(f"{inside}.polarity", "more points must mean a better response")

    def questions(self, content: Any) -> Questions:
        keys = self.values(content, QUESTIONS)
        scale, anchors = self.scale(keys["scale"])
        tags = self.texts(keys["tags"], "tags.")
        tags = {name: meaning.strip() for name, meaning in tags.items()}
        fingerprint = digest(content, sort_keys=True, default=str)
        criteria = tuple(self.criteria(keys["criteria"]))
        if not criteria:
            self.fail("criteria", "needs at least one criterion")
        return Questions(criteria, scale, anchors, tags, fingerprint)

    def texts(self, mapping: dict, inside: str) -> dict[str, str]:
        """Return a mapping of texts to texts."""
        for name in mapping:
            if not isinstance(name, str):
                self.fail(f"{inside}{name}", "its name must be a text")
        return self.values(mapping, dict.fromkeys(mapping, (str,)), inside)

    def criteria(self, contents: list) -> Iterator[Criterion]:
        seen = set()
        for number, content in enumerate(contents):
            inside = f"criteria[{number}]."
            keys = self.values(content, CRITERION, inside)
            name, neutral, threshold = (keys[key] for key in ("name", "neutral", "threshold"))
            if name in seen:
                self.fail(f"{inside}name", f"{name!r} came before")
            seen.add(name)
            values = self.texts(keys["values"], f"{inside}values.")
            words = {word.casefold() for word in (*values, neutral)}
            if values and len(words) <= len(values):
                self.fail(f"{inside}values", "two of the words, 'neutral' among them, are the same")
            if threshold and threshold not in list(values)[1:]:
                self.fail(f"{inside}threshold", f"{threshold!r} is no value above the lowest")
            yield Criterion(**keys | {"description": keys["description"].strip()})

    def scale(self, scale: dict) -> tuple[tuple[int, int], dict[int, str]]:
        low, high, anchors = self.values(scale, SCALE, "scale.").values()
        if not 0 <= low < high <= 100:
            self.fail("scale", f"needs 0 <= minimum < maximum <= 100, not {low} and {high}")
        for value in anchors:
            if value not in range(low, high + 1):
                self.fail(f"scale.anchors.{value}", f"is not on the scale {low} to {high}")
        return (low, high), anchors

    def choices(self, choices: dict, allowed: Sequence[str]) -> dict[str, str]:
        self.only(choices, allowed, "choices.")
        for key in allowed[:2] if choices else ():
            self.take(choices, key, str, inside="choices.")
        words = self.texts(choices, "choices.").values()
        if len({word.casefold() for word in words}) != len(choices):
            self.fail("choices", "two choices have the same word")
        return choices

    def template(self, name: str, beside: Any) -> str:
        # A rubric may come from other people: its template stands beside it, and no file elsewhere is read.
        if not re.fullmatch(r"[^/\\:]+", name):
            problem = "must be the name of a file without a folder, such as my_rubric.jinja"
            self.fail("template", f"{problem}, not {name!r}")
        for folder in (beside, TEMPLATES):
            if (folder / name).is_file():
                with errors_at(f"{self.place}: template"):
                    return read_text(folder / name, name)
        self.fail(
            "template", f"no file {name!r} beside the rubric nor among the packaged templates"
        )
