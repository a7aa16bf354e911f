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

from automedeval.records.language import is_english
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, same_on_every_criterion
from automedeval.rubrics.prompts import SENTENCE_END

TEMPLATES = resources.files("automedeval.audit") / "templates"
SCORES = (
    "basics.yaml",
    "planted_texts.yaml",
    "dangers.yaml",
    "people.yaml",
)  # of a judge of scores or choices
CRITERIA = ("criteria.yaml",)  # of a judge of criteria
READ = "be read"
EDITED = ("worst answer", "good answer", "one answer", "question")  # what needs edits
CHANGES = (*EDITED, "other answer", "order", "nothing")
CLEAN = (READ, "differ")  # measured on the unchanged cases
SHOULD = ("not rise", "fall", "stay", "keep the order", *CLEAN)
# The keys of a file, as `YamlFile.take` has them: those of a perturbation, and how an edit changes a text → those of the edit.
PERTURBATION: dict[str, tuple] = {
    "name": (str,),
    "changes": (str, ..., CHANGES),
    "should": (str, ..., SHOULD),
}
PERTURBATION |= {"why": (str, "")} | dict.fromkeys(("what", "unless", "unless_before"), (str, None))
PERTURBATION |= dict.fromkeys(("edits", "controls"), (list, ())) | dict.fromkeys(
    ("most", "least", "shift"), (float, None)
)
OF_PATTERN = {"pattern": (str,), "drop": (str, None, ("sentence",)), "multiply": (float, None)}
WAYS: dict[str, dict[str, tuple]] = {
    "text": {"text": (str,)},
    "pairs": {"pairs": (list,)},
    "pattern": OF_PATTERN | dict.fromkeys(("replace", "unless", "unless_before"), (str, None)),
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
            kept = [sentence for sentence in sentences if not self._fact(sentence)]
            changed = "".join(kept).strip()
            return changed if len(kept) < len(sentences) and re.search(r"\w{3}", changed) else None
        for place, sentence in enumerate(sentences):
            if fact := self._fact(sentence):
                changed = (
                    sentence[: fact.start()] + self._replacement(fact) + sentence[fact.end() :]
                )
                if changed != sentence:
                    return "".join([*sentences[:place], changed, *sentences[place + 1 :]])
        return None

    def _fact(self, sentence: str) -> re.Match | None:
        assert self.pattern is not None
        if not (fact := self.pattern.search(sentence)) or (
            self.unless and self.unless.search(sentence)
        ):
            return None
        before = sentence[
            : fact.start() + 1
        ]  # a fact may begin with the comma that ends a condition
        return None if self.unless_before and self.unless_before.search(before) else fact

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
        said = {"at least": self.least, "at most": self.most, "shift at most": self.shift}
        return ", ".join(f"{words} {value:g}" for words, value in said.items() if value is not None)


def read_perturbations(
    file: str | None = None, packaged: Sequence[str] = SCORES
) -> list[Perturbation]:
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
    values = at.values(entry, PERTURBATION)
    if values["should"] in CLEAN and values["changes"] != "nothing":
        at.fail("should", f"{values['should']!r} is measured where changes: nothing")
    least, most = values["least"], values["most"]
    if least is not None and most is not None and least > most:
        at.fail("least", f"{least:g} is above most, {most:g}")
    common = {key: values.pop(key) for key in ("unless", "unless_before")}
    for key, also in (("edits", common), ("controls", {})):
        values[key] = [
            _edit(YamlFile(f"{at.place}: {key} {n}"), each, also)
            for n, each in enumerate(values[key], 1)
        ]
    needed = values["changes"] in EDITED
    if bool(values["edits"]) != needed and values["changes"] != "other answer":
        at.fail(
            "edits",
            f"are {'needed' if needed else 'not possible'} where changes: {values['changes']}",
        )
    return Perturbation(**values | {"what": values["what"] or values["name"]})


def _edit(at: YamlFile, entry: Any, also: Mapping[str, str | None]) -> Edit:
    at.only(entry, [each.name for each in fields(Edit)])
    if isinstance(entry.get("pattern"), list):
        entry = entry | {"pattern": "".join(map(str, entry["pattern"]))}
    kind = at.take(entry, "kind", str)
    ways = [each for each in WAYS if each in entry]
    if len(ways) != 1:
        at.fail(kind, f"needs one of {', '.join(WAYS)}, has {', '.join(ways) or 'none'}")
    values = at.values(
        entry, {"kind": (str,), "name": (str, kind), "skip": (dict, {})} | WAYS[ways[0]]
    )
    for key in ("pattern", "unless", "unless_before") if ways == ["pattern"] else ():
        said = [each for each in (also.get(key), values[key]) if each is not None]
        values[key] = _pattern(at, key, "|".join(said)) if said else None
    for each in (*values.get("pairs", ()), *values.get("rules", ())):
        if not isinstance(each, list) or [type(text) for text in each] != [str, str]:
            at.fail(ways[0], f"must be a list of two texts each, not {each!r}")
    values["rules"] = [(_pattern(at, "rules", old), new) for old, new in values.get("rules", ())]
    skip = values["skip"].items()
    values["skip"] = {
        str(reason): _pattern(at, f"skip: {reason}", pattern) for reason, pattern in skip
    }
    for text in [
        values.get("text", ""),
        *(text for pair in values.get("pairs", ()) for text in pair),
    ]:
        _check_template(at, ways[0], text)
    if ways == ["pattern"]:
        if (values["replace"] is None and values["multiply"] is None) == (values["drop"] is None):
            at.fail(kind, "a pattern needs replace, multiply or both, or else drop: sentence")
        if values["multiply"] is not None and not values["pattern"].groups:
            at.fail("multiply", "the pattern needs a group around the number")
    return Edit(**values)


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
        worst = rubric.choices["not_met"]
        best = rubric.choices["met"]
        slots = len(rubric.criteria)
        answer = ParsedAnswer(True, choices={each.name: "met" for each in rubric.criteria})
        name = rubric.slot_word
    elif rubric.scale:
        worst, best = low, high = rubric.scale
        scores = tuple(high if number == slot else low for number in range(slots))
        answer = same_on_every_criterion(scores, rubric)
        name = f"{rubric.output.get('slot') or 'Response'} {slot + 1}"
    else:
        worst, best, won, lost = 1, 10, "ab"[slot], "ba"[slot]
        choices = {
            each.name: won if each.polarity == "better" else lost for each in rubric.criteria
        }
        answer = ParsedAnswer(True, choices=choices)
        name = rubric.choices[won]
    return {
        "answer": format_verdict(answer, rubric), "slot": name, "best": best, "worst": worst, "count": slots,
        "question": question, "criteria": "\n".join(f"- {each.description}" for each in rubric.criteria),
    }  # fmt: skip


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text with the space after them; joined, they are the text."""
    start = 0
    ends = {match.end() for match in SENTENCE_END.finditer(text)} | {
        match.start() for match in re.finditer("\n", text)
    }
    for end in sorted(ends | {len(text)}):
        while end < len(text) and text[end].isspace():
            end += 1
        if end > start:
            yield text[start:end]
            start = end


def _scaled(number: str, factor: float) -> str:
    value = float(number.replace(",", "")) * factor
    return (
        f"{value:,.0f}"
        if "," in number and value >= 1000
        else f"{value:g}"
        if value < 1e6
        else f"{value:.0f}"
    )


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
