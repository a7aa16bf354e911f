"""Read perturbations, which are data, and apply their edits to a text.

A perturbation is a change of a case whose effect on a good judge is known; the case is judged before and after. A file is a
list of perturbations; your own (--perturbations FILE.yaml) takes the place of all packaged ones. `Perturbation` and `Edit` say
which keys there are, and audit/templates/basics.yaml shows how they are written.
"""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain, pairwise
from typing import Any

from automedeval.records import JsonObject, foreign_errors_at
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
# The keys of a perturbation, as `YamlFile.take` has them.
TEXT, NUMBER = (str, None), (float, None)
PERTURBATION: dict[str, tuple] = {
    "name": (str,),
    "changes": (str, ..., CHANGES),
    "should": (str, ..., SHOULD),
    "what": TEXT,
    "why": (str, ""),
    "unless": TEXT,
    "unless_before": TEXT,
    "edits": (dict, {}),
    "controls": (dict, {}),
    "most": NUMBER,
    "least": NUMBER,
    "shift": NUMBER,
}
# The keys of every edit, and those of each way to change a text, of which an edit has the first.
COMMON: dict[str, tuple] = {"name": TEXT, "skip": (dict, {})}
WAYS: dict[str, dict[str, tuple]] = {
    "text": {"text": (str,)},
    "pairs": {"pairs": (list,)},
    "pattern": {
        **dict.fromkeys(("pattern", "unless", "unless_before", "replace"), TEXT),
        "multiply": NUMBER,
        "drop": (str, None, ("sentence",)),
    },
    "rules": {"rules": (list,), "fewest": (int, 1)},
}
NAMES = {"text", "list", "answer", "slot", "best", "worst", "count", "question", "criteria"}
PATTERNS = {"pattern", "unless", "unless_before"}
# What makes an edit impossible: no regular expression, a name that is not known, a lone $, no list of two.
FAULTS = (re.error, LookupError, TypeError, ValueError)
FORMAT = "; automedeval/audit/perturbations.py says how an edit is written"

Names = Mapping[str, object]  # what a planted text may use beside the text itself


@dataclass(frozen=True)
class Edit:
    """One way to change a text. It has a `name` (default: its kind) and one of

    - text: the new text. $text is the old one; without it the text is added at the end. Further
      names: $list, its sentences as a list; $answer, the rubric's own answer as it is best for the
      changed response; $slot, what the judge calls the response ("Doctor 2"); $best and $worst, the
      ends of the scale; $count, how many responses are shown; $question; $criteria, a list of the
      rubric's criteria. A dollar sign is written $$
    - pairs: two such texts, in turn by case: both are judged, the second is compared with the first
    - pattern: regular expression, case aside; of a list its parts together. With replace (\\1 is
      the first group; a capital at the start is kept), multiply (the number in group 1; with
      replace, \\1 is the product), or drop: sentence (every sentence with it, if another one
      remains). The first fact in a sentence without the pattern `unless`, and without
      `unless_before` before it, is changed; both of the perturbation hold for its edits too
    - rules: pairs of a pattern and its replacement, all of which are applied; `fewest`: the least
      number of changes

    skip: reason → pattern: a case in whose question, answers or reference, or in whose changed
    answer, it is found is left out for this reason, and counted.
    """

    kind: str
    name: str
    texts: Sequence[Sequence[str]] = ()
    pattern: re.Pattern | None = None
    replace: str | None = None
    multiply: float | None = None
    drop: str | None = None
    unless: re.Pattern | None = None
    unless_before: re.Pattern | None = None
    rules: Sequence[tuple[re.Pattern, str]] = ()
    fewest: int = 1
    skip: Mapping[str, re.Pattern] = field(default_factory=dict)

    def apply(self, text: str, names: Names, turn: int = 0) -> list[str]:
        """Return the changed text, two of `pairs`; none if nothing can be changed. `names` are those of `names_for`.

        Patterns and rules read English: they change no text in another language.
        """
        if self.texts:
            return [fill(new, text, names) for new in self.texts[turn % len(self.texts)]]
        if is_english(text) is False:
            return []
        change = self._without_facts if self.drop else self._with_another_fact
        changed = reword(text, self.fewest, self.rules) if self.rules else change(text)
        return [changed] if changed and changed != text else []

    def _without_facts(self, text: str) -> str | None:
        sentences = sentences_of(text)
        rest = [sentence for sentence in sentences if not self._fact(sentence)]
        changed = "".join(rest).strip()
        is_left = len(rest) < len(sentences) and re.search(r"\w{3}", changed)
        return changed if is_left else None

    def _with_another_fact(self, text: str) -> str | None:
        start = 0
        for sentence in sentences_of(text):
            if fact := self._fact(sentence):
                changed = self._replacement(fact)
                if changed != fact[0]:
                    return text[: start + fact.start()] + changed + text[start + fact.end() :]
            start += len(sentence)
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
        before = fact.string[fact.start() : fact.start(1)]
        return before + scaled + fact.string[fact.end(1) : fact.end()]


@dataclass(frozen=True)
class Perturbation:
    """One row of an audit's table.

    - name: in audit.json; what: in words what `share` counts; why: the reason, for the report
    - changes: what differs between the two sides:
      worst answer: each answer that the judge puts last gets every edit (--edits: so many, dealt in
      turn); good answer: the best one to which an edit applies gets it, but never the last of
      several (--edits: so many); one answer: one of each case, in turn; question: what the patient
      asks; other answer: the one that is put last becomes a copy of the best one, edited if there
      is an edit; order: in which answers are shown; nothing: the same case again
    - should: not rise (share: the score rises by half a step or more), fall (it falls by as much),
      stay (it is not the same; of expected scores, where there are edits: by more than a quarter of
      a point), keep the order (another answer of a pair is the better one); of the
      unchanged cases: be read (a verdict has scores), differ (a criterion is met)
    - most, least: limits of this share, which the judge keeps to pass; without a limit it is shown
    - shift: the most that the score may move by in the mean, in steps; of several kinds, only where
      it is more than chance
    - edits: kind, a group of the table → how a text is changed; controls: the same, harmless, shown
      beside: of the kind of an edit, as many as there are of this kind in the same answer; else one
      a case, in turn

    A step is a point of the rubric's scale; of a pairwise rubric all criteria; of a judge without a
    scale the standard deviation of its values.
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
    """Read the perturbations of a YAML file, else the packaged ones; RecordError where a file is not as said above."""
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
    common = {key: values.pop(key) for key in ("unless", "unless_before")}
    edits = values["edits"] = _edits(at, "edits", values["edits"], common)
    values["controls"] = _edits(at, "controls", values["controls"], {})
    changes = values["changes"]
    if changes in EDITED and not edits:
        at.fail("edits", f"are needed where changes: {changes}")
    if edits and changes not in (*EDITED, "other answer"):
        at.fail("edits", f"are not possible where changes: {changes}")
    values["what"] = values["what"] or values["name"]
    return Perturbation(**values)


def _edits(at: YamlFile, key: str, kinds: dict, also: JsonObject) -> list[Edit]:
    """Read the edits under a key, by kind; `also` are patterns that hold for each too."""
    edits = []
    for kind in kinds:
        for number, entry in enumerate(at.take(kinds, kind, list, inside=f"{key}: "), 1):
            place = YamlFile(f"{at.place}: {key}: {kind} {number}")
            edits.append(_edit(place, str(kind), entry, also))
    return edits


def _edit(at: YamlFile, kind: str, entry: Any, also: JsonObject) -> Edit:
    ways = [way for way in WAYS if isinstance(entry, dict) and way in entry]
    if len(ways) != 1:
        at.fail("the edit", f"needs one of {', '.join(WAYS)}, has {', '.join(ways) or 'none'}")
    way = ways[0]
    if way == "pattern" and isinstance(entry[way], list):
        entry = entry | {way: "".join(map(str, entry[way]))}
    values = at.values(entry, COMMON | WAYS[way])
    values["name"] = values["name"] or kind
    if way == "pattern":
        is_changed = values["replace"] is not None or values["multiply"] is not None
        if is_changed == bool(values["drop"]):
            at.fail(way, "needs replace, multiply or both, or else drop: sentence")
        for key in also:
            values[key] = "|".join(filter(None, (also[key], values[key]))) or None
    with foreign_errors_at(f"{at.place}: {way}", *FAULTS, advice=FORMAT):
        values["skip"] = {reason: _compiled(pattern) for reason, pattern in values["skip"].items()}
        values["rules"] = [(_compiled(old), str(new)) for old, new in values.get("rules", ())]
        values["texts"] = [(first, second) for first, second in values.pop("pairs", ())]
        if way == "text":
            values["texts"] = [(values.pop("text"),)]
        for text in chain.from_iterable(values["texts"]):
            fill(text, "", dict.fromkeys(NAMES, ""))
        for key in PATTERNS & values.keys():
            values[key] = None if values[key] is None else _compiled(values[key])
    if values.get("multiply") is not None and not values["pattern"].groups:
        at.fail("multiply", "the pattern needs a group around the number")
    return Edit(kind, **values)


def _compiled(pattern: str) -> re.Pattern:
    return re.compile(pattern, re.I)


def fill(template: str, text: str, names: Names) -> str:
    """Return a template with a text and other names in their places; it is added to a text that it does not name."""
    planted = string.Template(template)
    listed = "\n".join(f"- {sentence.strip()}" for sentence in sentences_of(text))
    new = planted.substitute(names, text=text, list=listed)
    names_text = {"text", "list"} & set(planted.get_identifiers())
    return new if names_text else f"{text}\n\n{new}"


def names_for(rubric: Rubric, slots: int, slot: int, question: str) -> Names:
    """Return the names that a planted text may use beside the text itself, of the response in a slot, from 0.

    Args:
        rubric: the rubric that the text aims at; of a checklist, the one about the case's criteria.
        slots: the number of responses that are shown.
    """
    name = f"{rubric.slot_word} {slot + 1}"
    ends: tuple[object, object] = (1, 10)
    if rubric.scale:
        ends = rubric.scale
        scores = [rubric.scale[0]] * slots
        scores[slot] = rubric.scale[1]
        answer = same_on_every_criterion(scores, rubric)
    elif rubric.mode == "checklist":
        ends = rubric.choices["not_met"], rubric.choices["met"]
        slots, name = len(rubric.criteria), rubric.slot_word
        answer = ParsedAnswer(True, choices=dict.fromkeys(rubric.output_criteria, "met"))
    else:
        won, lost = "ab"[slot], "ba"[slot]
        name = rubric.choices[won]
        choices = dict.fromkeys(rubric.output_criteria, lost) | dict.fromkeys(rubric.better, won)
        answer = ParsedAnswer(True, choices=choices)
    return {
        "answer": format_verdict(answer, rubric),
        "slot": name,
        "best": ends[1],
        "worst": ends[0],
        "count": slots,
        "question": question,
        "criteria": "\n".join(f"- {criterion.description}" for criterion in rubric.criteria),
    }


_CUT = re.compile(rf"(?:{SENTENCE_END.pattern}|(?=\n)|\Z)\s*")


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text with the space after them; joined, they are the text."""
    cuts = [0, *(match.end() for match in _CUT.finditer(text))]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


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
            start, end = match.span()
            if all(end <= first or start >= last for first, last, _ in taken):
                taken.append((start, end, _in_case_of(match, match.expand(word))))
    changes = [(start, end, new) for start, end, new in taken if text[start:end] != new]
    if len(changes) < fewest:
        return None
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text
