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

from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, same_on_every_criterion
from automedeval.rubrics.prompts import SENTENCE_END

TEMPLATES = resources.files("automedeval.audit") / "templates"
SCORES = ("basics.yaml", "planted_texts.yaml", "dangers.yaml", "people.yaml")  # of a judge of scores or choices
CRITERIA = ("criteria.yaml",)  # of a judge of criteria
READ = "be read"
EDITED = ("worst answer", "good answer", "one answer", "question")  # what needs edits
CHANGES = (*EDITED, "other answer", "order", "together", "nothing")
CLEAN = (READ, "ignore length", "differ")  # measured on the unchanged cases
SHOULD = ("not rise", "fall", "stay", "keep the order", *CLEAN)
WAYS = {  # how an edit changes a text → the keys that say more
    "text": (),
    "pairs": (),
    "translations": (),
    "pattern": ("replace", "multiply", "drop", "unless"),
    "rules": ("fewest",),
}
NAMES = {"text", "list", "answer", "slot", "best", "worst", "count", "question", "criteria"}


@dataclass(frozen=True)
class Edit:
    """One way to change a text; `basics.yaml` describes the keys.

    `pairs` are two texts each, of which the first replaces the unchanged one; `unless`: a sentence with this pattern is let
    alone; `skip`: reason → pattern, a case with it is left out.
    """

    kind: str
    name: str
    text: str | None = None
    pairs: Sequence[Sequence[str]] = ()
    translations: bool = False
    pattern: re.Pattern | None = None
    replace: str | None = None
    multiply: float | None = None
    drop: str | None = None
    unless: re.Pattern | None = None
    rules: Sequence[tuple[re.Pattern, str]] = ()
    fewest: int = 1
    skip: Mapping[str, re.Pattern] = field(default_factory=dict)

    def apply(self, text: str, names: Mapping[str, object] | None = None) -> str | None:
        """Return the changed text, None if nothing in it can be changed; `names` are those of `text`, see `names_for`."""
        if self.text is not None:
            return fill(self.text, text, names)
        changed = reword(text, self.fewest, self.rules) if self.rules else self._changed_fact(text)
        return None if changed == text else changed

    def _changed_fact(self, text: str) -> str | None:
        sentences = list(sentences_of(text))
        if self.drop:
            kept = [sentence for sentence in sentences if not self._fact(sentence)]
            changed = "".join(kept).strip()
            return changed if len(kept) < len(sentences) and re.search(r"\w{3}", changed) else None
        for place, sentence in enumerate(sentences):
            if fact := self._fact(sentence):
                changed = sentence[: fact.start()] + self._replacement(fact) + sentence[fact.end() :]
                if changed != sentence:
                    return "".join([*sentences[:place], changed, *sentences[place + 1 :]])
        return None

    def _fact(self, sentence: str) -> re.Match | None:
        assert self.pattern is not None
        return None if self.unless and self.unless.search(sentence) else self.pattern.search(sentence)

    def _replacement(self, fact: re.Match) -> str:
        if self.multiply is None:
            return _kept_case(fact, fact.expand(self.replace or ""))
        scaled = _scaled(fact[1], self.multiply)
        if self.replace is not None:
            return self.replace.replace(r"\1", scaled)
        start, end = (place - fact.start() for place in fact.span(1))
        return fact[0][:start] + scaled + fact[0][end:]


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
        parts = [f"at least {self.least:g}"] if self.least is not None else []
        parts += [f"at most {self.most:g}"] if self.most is not None else []
        parts += [f"shift at most {self.shift:g}"] if self.shift is not None else []
        return ", ".join(parts)


def read_perturbations(file: str | None = None, packaged: Sequence[str] = SCORES) -> list[Perturbation]:
    """Read the perturbations of a YAML file, else the packaged ones; RecordError where a file is not as `basics.yaml` says."""
    found: dict[str, Perturbation] = {}
    for name in [file] if file else packaged:
        yaml = YamlFile(name)
        content = yaml.read(None if file else TEMPLATES / name)
        if not isinstance(content, list) or not content:
            yaml.fail("the file", "must be a list of perturbations")
        for number, entry in enumerate(content, 1):
            each = _perturbation(YamlFile(f"{yaml.place}: entry {number}"), entry)
            if each.name in found:
                yaml.fail("name", f"{each.name!r} occurs twice")
            found[each.name] = each
    return list(found.values())


def _perturbation(at: YamlFile, entry: Any) -> Perturbation:
    at.only(entry, [each.name for each in fields(Perturbation)])
    name, changes = at.take(entry, "name", str), at.take(entry, "changes", str, ..., CHANGES)
    should = at.take(entry, "should", str, ..., SHOULD)
    if should in CLEAN and changes != "nothing":
        at.fail("should", f"{should!r} is measured where changes: nothing")
    values: dict[str, Any] = {
        key: _number(at, entry, key) if key in entry else None for key in ("most", "least", "shift")
    }
    if None not in (values["least"], values["most"]) and values["least"] > values["most"]:
        at.fail("least", f"{values['least']:g} is above most, {values['most']:g}")
    for key in ("edits", "controls"):
        entries = enumerate(at.take(entry, key, list, []), 1)
        values[key] = [_edit(YamlFile(f"{at.place}: {key} {number}"), each) for number, each in entries]
    if bool(values["edits"]) != (changes in EDITED) and changes != "other answer":
        at.fail("edits", f"are {'needed' if changes in EDITED else 'not possible'} where changes: {changes}")
    values |= {"what": at.take(entry, "what", str, name), "why": at.take(entry, "why", str, "")}
    return Perturbation(name, changes, should, **values)


def _edit(at: YamlFile, entry: Any) -> Edit:
    at.only(entry, [each.name for each in fields(Edit)])
    kind = at.take(entry, "kind", str)
    ways = [each for each in WAYS if each in entry]
    if len(ways) != 1:
        at.fail(kind, f"needs one of {', '.join(WAYS)}, has {', '.join(ways) or 'none'}")
    at.only(entry, ["kind", "name", "skip", *ways, *WAYS[ways[0]]])
    values: dict[str, Any] = {key: at.take(entry, key, str, None) for key in ("text", "replace")}
    values["drop"] = at.take(entry, "drop", str, None, ("sentence",))
    values["translations"] = at.take(entry, "translations", bool, False)
    values["multiply"] = _number(at, entry, "multiply") if "multiply" in entry else None
    values["fewest"] = at.take(entry, "fewest", int, 1, least=1)
    values |= {key: _pattern(at, key, entry[key]) for key in ("pattern", "unless") if key in entry}
    skip = at.take(entry, "skip", dict, {})
    values["skip"] = {str(reason): _pattern(at, f"skip: {reason}", pattern) for reason, pattern in skip.items()}
    values["pairs"] = _twos(at, entry, "pairs")
    values["rules"] = [(_pattern(at, "rules", old), new) for old, new in _twos(at, entry, "rules")]
    for text in [values["text"] or "", *(text for pair in values["pairs"] for text in pair)]:
        _check_template(at, ways[0], text)
    replaced = values["replace"] is not None or values["multiply"] is not None
    if ways == ["pattern"] and replaced == (values["drop"] is not None):
        at.fail(kind, "a pattern needs replace, multiply or both, or else drop: sentence")
    if values["multiply"] is not None and not values["pattern"].groups:
        at.fail("multiply", "the pattern needs a group around the number")
    return Edit(kind, at.take(entry, "name", str, kind), **values)


def _number(at: YamlFile, entry: Mapping[str, Any], key: str) -> float:
    value = entry[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        at.fail(key, f"must be a number, not {value!r}")
    return value


def _twos(at: YamlFile, entry: Mapping[str, Any], key: str) -> list[list[str]]:
    twos = at.take(entry, key, list, [])
    for each in twos:
        if not isinstance(each, list) or [type(text) for text in each] != [str, str]:
            at.fail(key, f"must be a list of two texts each, not {each!r}")
    return twos


def _pattern(at: YamlFile, key: str, text: Any) -> re.Pattern:
    if not isinstance(text, str):
        at.fail(key, f"must be a text, not {text!r}")
    try:
        return re.compile(text, re.I)
    except re.error as error:
        at.fail(key, f"not a regular expression: {error}")


def _check_template(at: YamlFile, key: str, text: str) -> None:
    template = string.Template(text)
    if not template.is_valid() or (unknown := set(template.get_identifiers()) - NAMES):
        what = f"${min(unknown)}" if template.is_valid() else "a lone $"
        at.fail(key, f"{what}: known are {', '.join(sorted(NAMES))}, and $$ for a dollar")


def fill(template: str, text: str, names: Mapping[str, object] | None = None) -> str:
    """Return a template with a text and other names in their places; it is added to a text that it does not name."""
    filled = string.Template(template)
    listed = "\n".join(f"- {sentence.strip()}" for sentence in sentences_of(text))
    new = filled.substitute({"text": text, "list": listed} | dict(names or {}))
    return new if {"text", "list"} & set(filled.get_identifiers()) else f"{text}\n\n{new}"


def names_for(rubric: Rubric, slots: int, slot: int, question: str) -> dict[str, object]:
    """Return the names that a planted text may use beside the text itself, of the response in a slot, from 0.

    Args:
        rubric: the rubric that the text aims at; of a checklist, the one about the case's criteria.
        slots: the number of responses that are shown.
    """
    worst: str | int
    best: str | int
    if rubric.mode == "checklist":
        worst, best, slots = rubric.choices["not_met"], rubric.choices["met"], len(rubric.criteria)
        answer = ParsedAnswer(True, choices={each.name: "met" for each in rubric.criteria})
        name = rubric.slot_word
    elif rubric.scale:
        worst, best = low, high = rubric.scale
        scores = tuple(high if number == slot else low for number in range(slots))
        answer = same_on_every_criterion(scores, rubric)
        name = f"{rubric.output.get('slot') or 'Response'} {slot + 1}"
    else:
        worst, best, won, lost = 1, 10, "ab"[slot], "ba"[slot]
        choices = {each.name: won if each.polarity == "better" else lost for each in rubric.criteria}
        answer = ParsedAnswer(True, choices=choices)
        name = rubric.choices[won]
    return {
        "answer": format_verdict(answer, rubric), "slot": name, "best": best, "worst": worst, "count": slots,
        "question": question, "criteria": "\n".join(f"- {each.description}" for each in rubric.criteria),
    }  # fmt: skip


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text with the space after them; joined, they are the text."""
    start = 0
    ends = {match.end() for match in SENTENCE_END.finditer(text)} | {match.start() for match in re.finditer("\n", text)}
    for end in sorted(ends | {len(text)}):
        while end < len(text) and text[end].isspace():
            end += 1
        if end > start:
            yield text[start:end]
            start = end


def _scaled(number: str, factor: float) -> str:
    value = float(number.replace(",", "")) * factor
    return f"{value:,.0f}" if "," in number and value >= 1000 else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _kept_case(match: re.Match, new: str) -> str:
    return new[:1].upper() + new[1:] if match[0][:1].isupper() and not match[0].isupper() else new


def reword(text: str, fewest: int, rules: Sequence[tuple[re.Pattern, str]]) -> str | None:
    """Return a text in other words; None if fewer than so many changes are possible."""
    # Every rule matches the original text, so that no rule reverts another.
    taken: list[tuple[int, int, str]] = []
    for pattern, word in rules:
        for match in pattern.finditer(text):
            if all(match.end() <= start or match.start() >= end for start, end, _ in taken):
                taken.append((*match.span(), _kept_case(match, match.expand(word))))
    taken = [(start, end, new) for start, end, new in taken if text[start:end] != new]
    if len(taken) < fewest:
        return None
    for start, end, new in sorted(taken, reverse=True):
        text = text[:start] + new + text[end:]
    return text
