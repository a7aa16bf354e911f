"""Read perturbations, which are data, and apply their edits to a text.

A perturbation says which text of a case it changes, how, whether the score should move or stay, and how often it may do
otherwise. `audit/templates/basics.yaml` describes the format.
"""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from automedeval.records import JsonObject
from automedeval.records.language import is_english
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, same_on_every_criterion
from automedeval.rubrics.prompts import SENTENCE_END

TEMPLATES = resources.files("automedeval.audit") / "templates"
# Of a judge of scores or choices.
SCORES = ("basics.yaml", "planted_texts.yaml", "dangers.yaml", "people.yaml")
CRITERIA = ("criteria.yaml",)  # of a judge of criteria
READ = "be read"
EDITED = ("worst answer", "good answer", "one answer", "question")  # what needs edits
CHANGES = (*EDITED, "other answer", "order", "nothing")
CLEAN = (READ, "differ")  # measured on the unchanged cases
SHOULD = ("not rise", "fall", "stay", "keep the order", *CLEAN)
# The keys of a file, as `YamlFile.take` has them: those of a perturbation, and how an edit changes a text → those of the edit.
TEXT, NUMBER, LIST = (str, None), (float, None), (list, ())
PERTURBATION: dict[str, tuple] = {
    "name": (str,),
    "changes": (str, ..., CHANGES),
    "should": (str, ..., SHOULD),
    "what": TEXT,
    "why": (str, ""),
    "unless": TEXT,
    "unless_before": TEXT,
    "edits": LIST,
    "controls": LIST,
    "most": NUMBER,
    "least": NUMBER,
    "shift": NUMBER,
}
WAYS: dict[str, dict[str, tuple]] = {
    "text": {"text": (str,)},
    "pairs": {"pairs": (list,)},
    "pattern": {
        "pattern": (str,),
        "drop": (str, None, ("sentence",)),
        "multiply": NUMBER,
        "replace": TEXT,
        "unless": TEXT,
        "unless_before": TEXT,
    },
    "rules": {"rules": (list,), "fewest": (int, 1)},
}
NAMES = {"text", "list", "answer", "slot", "best", "worst", "count", "question", "criteria"}


@dataclass(frozen=True)
class Edit:
    """One way to change a text; `basics.yaml` describes the keys.

    `pairs` are two texts each, of which the first replaces the unchanged one; `unless`: a sentence with this pattern is let
    alone; `unless_before`: so is a fact with this one before it; `skip`: reason → pattern, a case with it is left out.
    """

    kind: str
    name: str
    text: str | None = None
    pairs: Sequence[Sequence[str]] = ()
    pattern: re.Pattern | None = None
    replace: str | None = None
    multiply: float | None = None
    drop: str | None = None
    unless: re.Pattern | None = None
    unless_before: re.Pattern | None = None
    rules: Sequence[tuple[re.Pattern, str]] = ()
    fewest: int = 1
    skip: Mapping[str, re.Pattern] = field(default_factory=dict)

    def apply(self, text: str, names: Mapping[str, object] | None = None) -> str | None:
        """Return the changed text, None if nothing in it can be changed; `names` are those of `text`, see `names_for`.

        Patterns and rules read English: they change no text in another language.
        """
        if self.text is not None:
            return fill(self.text, text, names)
        if is_english(text) is False:
            return None
        changed = reword(text, self.fewest, self.rules) if self.rules else self._changed_fact(text)
        return None if changed == text else changed

    def _changed_fact(self, text: str) -> str | None:
        sentences = list(sentences_of(text))
        if self.drop:
            rest = [sentence for sentence in sentences if not self._fact(sentence)]
            changed = "".join(rest).strip()
            return changed if len(rest) < len(sentences) and re.search(r"\w{3}", changed) else None
        for place, sentence in enumerate(sentences):
            if fact := self._fact(sentence):
                start, end = fact.span()
                changed = sentence[:start] + self._replacement(fact) + sentence[end:]
                if changed != sentence:
                    sentences[place] = changed
                    return "".join(sentences)
        return None

    def _fact(self, sentence: str) -> re.Match | None:
        assert self.pattern is not None
        fact = self.pattern.search(sentence)
        if fact is None or (self.unless and self.unless.search(sentence)):
            return None
        # A fact may begin with the comma that ends a condition.
        before = sentence[: fact.start() + 1]
        return None if self.unless_before and self.unless_before.search(before) else fact

    def _replacement(self, fact: re.Match) -> str:
        if self.multiply is None:
            return _in_case_of(fact, fact.expand(self.replace or ""))
        scaled = _scaled(fact[1], self.multiply)
        if self.replace is not None:
            return self.replace.replace(r"\1", scaled)
        start, end = fact.span(1)
        return fact.string[fact.start() : start] + scaled + fact.string[end : fact.end()]


@dataclass(frozen=True)
class Perturbation:
    """One row of an audit's table; `basics.yaml` describes the keys.

    `most` and `least` are limits of the share that `what` names, `shift` is one of the mean shift of the score, in steps.
    """

    name: str
    changes: str
    should: str
    what: str = ""
    why: str = ""
    most: float | None = None
    least: float | None = None
    shift: float | None = None
    edits: Sequence[Edit] = ()
    controls: Sequence[Edit] = ()

    @property
    def limit(self) -> str:
        """The limits in words; empty if there are none."""
        limits = {"at least": self.least, "at most": self.most, "shift at most": self.shift}
        words = [f"{which} {value:g}" for which, value in limits.items() if value is not None]
        return ", ".join(words)


def read_perturbations(
    file: str | None = None, packaged: Sequence[str] = SCORES
) -> list[Perturbation]:
    """Read the perturbations of a YAML file, else the packaged ones; RecordError where a file is not as `basics.yaml` says."""
    perturbations: dict[str, Perturbation] = {}
    for name in [file] if file else packaged:
        yaml = YamlFile(name)
        content = yaml.read(None if file else TEMPLATES / name)
        if not isinstance(content, list) or not content:
            yaml.fail("the file", "must be a list of perturbations")
        for number, entry in enumerate(content, 1):
            perturbation = _perturbation(YamlFile(f"{yaml.place}: entry {number}"), entry)
            if perturbation.name in perturbations:
                yaml.fail("name", f"{perturbation.name!r} occurs twice")
            perturbations[perturbation.name] = perturbation
    return list(perturbations.values())


def _perturbation(at: YamlFile, entry: Any) -> Perturbation:
    values = at.values(entry, PERTURBATION)
    if values["should"] in CLEAN and values["changes"] != "nothing":
        at.fail("should", f"{values['should']!r} is measured where changes: nothing")
    least, most = values["least"], values["most"]
    if least is not None and most is not None and least > most:
        at.fail("least", f"{least:g} is above most, {most:g}")
    common = {key: values.pop(key) for key in ("unless", "unless_before")}
    values["edits"] = _edits(at, "edits", values["edits"], common)
    values["controls"] = _edits(at, "controls", values["controls"], {})
    needed = values["changes"] in EDITED
    if bool(values["edits"]) != needed and values["changes"] != "other answer":
        are = "needed" if needed else "not possible"
        at.fail("edits", f"are {are} where changes: {values['changes']}")
    values["what"] = values["what"] or values["name"]
    return Perturbation(**values)


def _edits(at: YamlFile, key: str, entries: list, also: JsonObject) -> list[Edit]:
    """Read the edits under a key; `also` are patterns that hold for each of them too."""
    return [
        _edit(YamlFile(f"{at.place}: {key} {number}"), entry, also)
        for number, entry in enumerate(entries, 1)
    ]


def _edit(at: YamlFile, entry: Any, also: JsonObject) -> Edit:
    at.only(entry, [field.name for field in fields(Edit)])
    if isinstance(entry.get("pattern"), list):
        entry = entry | {"pattern": "".join(map(str, entry["pattern"]))}
    kind = at.take(entry, "kind", str)
    ways = [way for way in WAYS if way in entry]
    if len(ways) != 1:
        at.fail(kind, f"needs one of {', '.join(WAYS)}, has {', '.join(ways) or 'none'}")
    way = ways[0]
    keys = {"kind": (str,), "name": (str, kind), "skip": (dict, {}), **WAYS[way]}
    values = at.values(entry, keys)
    for reason, pattern in values.pop("skip").items():
        values.setdefault("skip", {})[str(reason)] = _pattern(at, f"skip: {reason}", pattern)
    if way == "text":
        _check_template(at, way, values[way])
    elif way == "pattern":
        _read_pattern(at, values, also)
    else:
        for two in values[way]:
            if not isinstance(two, list) or [type(text) for text in two] != [str, str]:
                at.fail(way, f"must be a list of two texts each, not {two!r}")
    if way == "rules":
        values[way] = [(_pattern(at, way, old), new) for old, new in values[way]]
    for first, second in values.get("pairs", ()):
        _check_template(at, way, first)
        _check_template(at, way, second)
    return Edit(**values)


def _read_pattern(at: YamlFile, values: JsonObject, also: JsonObject) -> None:
    """Read the patterns of an edit in the place of their texts, and check what goes with them."""
    for key in ("pattern", "unless", "unless_before"):
        parts = [text for text in (also.get(key), values[key]) if text is not None]
        values[key] = _pattern(at, key, "|".join(parts)) if parts else None
    if (values["replace"] is None and values["multiply"] is None) == (values["drop"] is None):
        needed = "a pattern needs replace, multiply or both, or else drop: sentence"
        at.fail(values["kind"], needed)
    if values["multiply"] is not None and not values["pattern"].groups:
        at.fail("multiply", "the pattern needs a group around the number")


def _pattern(at: YamlFile, key: str, text: Any) -> re.Pattern:
    if not isinstance(text, str):
        at.fail(key, f"must be a text, not {text!r}")
    try:
        return re.compile(text, re.I)
    except re.error as error:
        at.fail(key, f"not a regular expression: {error}")


def _check_template(at: YamlFile, key: str, text: str) -> None:
    template = string.Template(text)
    wrong = [f"${name}" for name in template.get_identifiers() if name not in NAMES]
    if not template.is_valid():
        wrong = ["a lone $"]
    if wrong:
        at.fail(key, f"{min(wrong)}: known are {', '.join(sorted(NAMES))}, and $$ for a dollar")


def fill(template: str, text: str, names: Mapping[str, object] | None = None) -> str:
    """Return a template with a text and other names in their places; it is added to a text that it does not name."""
    planted = string.Template(template)
    listed = "\n".join(f"- {sentence.strip()}" for sentence in sentences_of(text))
    new = planted.substitute(names or {}, text=text, list=listed)
    names_text = {"text", "list"} & set(planted.get_identifiers())
    return new if names_text else f"{text}\n\n{new}"


def names_for(rubric: Rubric, slots: int, slot: int, question: str) -> dict[str, object]:
    """Return the names that a planted text may use beside the text itself, of the response in a slot, from 0.

    Args:
        rubric: the rubric that the text aims at; of a checklist, the one about the case's criteria.
        slots: the number of responses that are shown.
    """
    worst: str | int
    best: str | int
    if rubric.mode == "checklist":
        worst, best = rubric.choices["not_met"], rubric.choices["met"]
        slots = len(rubric.criteria)
        met = {criterion.name: "met" for criterion in rubric.criteria}
        answer = ParsedAnswer(True, choices=met)
        name = rubric.slot_word
    elif rubric.scale:
        worst, best = low, high = rubric.scale
        scores = [low] * slots
        scores[slot] = high
        answer = same_on_every_criterion(tuple(scores), rubric)
        name = f"{rubric.slot_word} {slot + 1}"
    else:
        worst, best, won, lost = 1, 10, "ab"[slot], "ba"[slot]
        choices = {}
        for criterion in rubric.criteria:
            choices[criterion.name] = won if criterion.polarity == "better" else lost
        answer = ParsedAnswer(True, choices=choices)
        name = rubric.choices[won]
    return {
        "answer": format_verdict(answer, rubric),
        "slot": name,
        "best": best,
        "worst": worst,
        "count": slots,
        "question": question,
        "criteria": "\n".join(f"- {criterion.description}" for criterion in rubric.criteria),
    }


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text with the space after them; joined, they are the text."""
    start = 0
    ends = {match.end() for match in SENTENCE_END.finditer(text)}
    lines = {match.start() for match in re.finditer("\n", text)}
    for end in sorted(ends | lines | {len(text)}):
        while end < len(text) and text[end].isspace():
            end += 1
        if end > start:
            yield text[start:end]
            start = end


def _scaled(number: str, factor: float) -> str:
    value = float(number.replace(",", "")) * factor
    if "," in number and value >= 1000:
        return f"{value:,.0f}"
    return f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _in_case_of(match: re.Match, new: str) -> str:
    return new[:1].upper() + new[1:] if match[0][:1].isupper() and not match[0].isupper() else new


def reword(text: str, fewest: int, rules: Sequence[tuple[re.Pattern, str]]) -> str | None:
    """Return a text in other words; None if fewer than so many changes are possible."""
    # Every rule matches the original text, so that no rule reverts another.
    taken: list[tuple[int, int, str]] = []
    for pattern, word in rules:
        for match in pattern.finditer(text):
            if all(match.end() <= start or match.start() >= end for start, end, _ in taken):
                taken.append((*match.span(), _in_case_of(match, match.expand(word))))
    changes = [(start, end, new) for start, end, new in taken if text[start:end] != new]
    if len(changes) < fewest:
        return None
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text
