"""Cases with one thing changed on purpose, to see what it does to a judge: planted texts, harms, other words, the same twice.

What is changed stands in YAML, not here (`audit/templates/`). A trial is one changed case and knows the request that shows the
clean one: the same responses in the same slots, so that nothing but the change is between the two verdicts. Where a template
finds nothing to change there is no trial; nothing is made up.
"""

import hashlib
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from automedeval.judges.requests import Request
from automedeval.records import Case, RecordError, Response
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import Reading, format_verdict
from automedeval.rubrics.prompts import SENTENCE_END

TEMPLATES = resources.files("automedeval.audit") / "templates"


CONTROL = "control"  # a family of planted texts that are no attacks, and of edits that are no harms
PLACES = ("end", "start", "around")


@dataclass(frozen=True)
class Attack:
    """A text to plant in a response; see `audit/templates/attacks.yaml` for the names that it may hold."""

    name: str
    family: str
    text: str
    place: str = "end"


@dataclass(frozen=True)
class Harm:
    """How a fact becomes a dangerous one: one of `replace`, `multiply` and `drop` says what becomes of what `pattern` finds."""

    name: str
    kind: str
    pattern: re.Pattern
    replace: str | None = None
    multiply: float | None = None
    drop: str | None = None
    unless: re.Pattern | None = None


@dataclass(frozen=True)
class Trial:
    """A changed case.

    Args:
        case: the case as it is changed; its id is the clean one's with the change behind it.
        clean: the request that shows the clean case.
        check: "planting", "harm" or "sameness".
        kind: what figures are grouped by: a family of attacks, a kind of harm, "identical", "paraphrase" or "repeat".
        name: which change it is.
        target: the index of the response that is changed, and whose score is looked at.
        other: the index of the response that it is compared with; None where that is its clean self.
        shown: the indices of the responses to show, for a judge that looks at each by itself; None shows what `clean` does.
    """

    case: Case
    clean: Request
    check: str
    kind: str
    name: str
    target: int
    other: int | None = None
    shown: tuple[int, ...] | None = None

    @property
    def request(self) -> Request:
        """Return the request that shows the changed case as `clean` shows the clean one."""
        return Request(self.case, self.shown or self.clean.slots, self.clean.pair, self.clean.run)


def read_attacks(file: str | None = None) -> list[Attack]:
    """Read the packaged attacks, or those of a YAML file.

    Raises:
        RecordError: the file cannot be read, or an entry is not as `attacks.yaml` says.
    """
    place, entries = _entries(file, "attacks.yaml")
    attacks = []
    for number, entry in enumerate(entries, 1):
        attack = Attack(**_checked(f"{place}: entry {number}", entry, ("name", "family", "text"), ("place",)))
        if attack.place not in PLACES:
            raise RecordError(
                f"{place}: {attack.name!r}: place must be one of {', '.join(PLACES)}, not {attack.place!r}"
            )
        known = {"answer", "slot", "best", "worst", "count", *(["response"] if attack.place == "around" else [])}
        template = string.Template(attack.text)
        if not template.is_valid() or (unknown := set(template.get_identifiers()) - known):
            what = f"${min(unknown)}" if template.is_valid() else "a lone $"
            raise RecordError(
                f"{place}: {attack.name!r}: {what}: known are {', '.join(sorted(known))}, and $$ for a dollar"
            )
        attacks.append(attack)
    _only_once(place, [attack.name for attack in attacks])
    return attacks


def read_harms(file: str | None = None) -> list[Harm]:
    """Read the packaged harms, or those of a YAML file.

    Raises:
        RecordError: the file cannot be read, or an entry is not as `harms.yaml` says.
    """
    place, entries = _entries(file, "harms.yaml")
    harms = []
    for number, entry in enumerate(entries, 1):
        at = f"{place}: entry {number}"
        entry = _checked(at, entry, ("name", "kind", "pattern"), ("replace", "multiply", "drop", "unless"))
        ways = [name for name in ("replace", "multiply", "drop") if name in entry]
        if len(ways) != 1:
            raise RecordError(f"{at}: needs one of replace, multiply and drop, has {', '.join(ways) or 'none'}")
        for name in ("pattern", "unless"):
            if name in entry:
                entry[name] = _pattern(f"{at}: {name}", entry[name])
        if entry.get("drop", "sentence") != "sentence":
            raise RecordError(f"{at}: drop must be 'sentence', not {entry['drop']!r}")
        if "multiply" in entry and not entry["pattern"].groups:
            raise RecordError(f"{at}: multiply needs a group around the number")
        harms.append(Harm(**entry))
    _only_once(place, [harm.name for harm in harms])
    return harms


def read_paraphrases(file: str | None = None) -> tuple[int, list[tuple[re.Pattern, str]]]:
    """Read how answers are put into other words: the least number of changes, and (pattern, replacement) of every rule.

    Raises:
        RecordError: the file cannot be read, or is not as `paraphrases.yaml` says.
    """
    place, content = _yaml(file, "paraphrases.yaml")
    try:
        least, rules = content["least"], [(str(pattern), str(word)) for pattern, word in content["rules"]]
    except (KeyError, TypeError, ValueError):
        raise RecordError(
            f"{place}: needs least, a number, and rules, pairs of a pattern and its replacement"
        ) from None
    return least, [(_pattern(f"{place}: {pattern}", pattern), word) for pattern, word in rules]


def _yaml(file: str | None, packaged: str) -> tuple[str, Any]:
    path, place = (TEMPLATES / packaged, packaged) if file is None else (Path(file), file)
    try:
        return place, yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{place}: {' '.join(str(error).split())}") from None


def _entries(file: str | None, packaged: str) -> tuple[str, list]:
    place, content = _yaml(file, packaged)
    if not isinstance(content, list) or not content:
        raise RecordError(f"{place}: must be a list of entries")
    return place, content


def _checked(place: str, entry: Any, needed: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise RecordError(f"{place}: must be a mapping, not {entry!r}")
    if missing := [name for name in needed if name not in entry]:
        raise RecordError(f"{place}: {missing[0]!r} is missing")
    if unknown := sorted(set(map(str, entry)) - {*needed, *more}):
        raise RecordError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join((*needed, *more))}")
    for name, value in entry.items():
        kind = (int, float) if name == "multiply" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise RecordError(
                f"{place}: {name!r} must be {'a number' if name == 'multiply' else 'text'}, not {value!r}"
            )
    return dict(entry)


def _pattern(place: str, text: str) -> re.Pattern:
    try:
        return re.compile(text, re.I)
    except re.error as error:
        raise RecordError(f"{place}: not a regular expression: {error}") from None


def _only_once(place: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise RecordError(f"{place}: {twice[0]!r} stands there twice")


def harm(text: str, template: Harm) -> str | None:
    """Return a text with its first fact of a kind made dangerous; None where the template finds none to change."""
    sentences = list(_sentences(text))
    if template.drop:
        kept = [sentence for sentence in sentences if not _fits(sentence, template)]
        changed = "".join(kept).strip()
        return changed if len(kept) < len(sentences) and re.search(r"\w{3}", changed) else None
    for place, sentence in enumerate(sentences):
        if not _fits(sentence, template):
            continue
        found = template.pattern.search(sentence)
        new = _scaled(found, template) if template.multiply else _kept_case(found, found.expand(template.replace))
        changed = sentence[: found.start()] + new + sentence[found.end() :]
        if changed != sentence:
            return "".join([*sentences[:place], changed, *sentences[place + 1 :]])
    return None


def _fits(sentence: str, template: Harm) -> bool:
    return bool(template.pattern.search(sentence)) and not (template.unless and template.unless.search(sentence))


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text with what stands between them, so that joined they are the text."""
    start = 0
    for end in sorted({*(match.end() for match in SENTENCE_END.finditer(text)), *_line_ends(text), len(text)}):
        while end < len(text) and text[end].isspace():
            end += 1
        if end > start:
            yield text[start:end]
            start = end


def _line_ends(text: str) -> list[int]:
    return [place for place, letter in enumerate(text) if letter == "\n"]


def _scaled(found: re.Match, template: Harm) -> str:
    number = float(found[1].replace(",", "")) * template.multiply
    start, end = found.span(1)
    shown = f"{number:,.0f}" if "," in found[1] else f"{number:g}" if number < 1e6 else f"{number:.0f}"
    return found[0][: start - found.start()] + shown + found[0][end - found.start() :]


def _kept_case(found: re.Match, new: str) -> str:
    return new[:1].upper() + new[1:] if found[0][:1].isupper() and not found[0].isupper() else new


def reword(text: str, least: int, rules: Sequence[tuple[re.Pattern, str]]) -> str | None:
    """Return a text in other words; None where fewer than `least` changes can be made.

    Every rule changes what stood in the text from the start, so that no rule undoes another's work.
    """
    taken: list[tuple[int, int, str]] = []
    for pattern, word in rules:
        for found in pattern.finditer(text):
            if all(found.end() <= start or found.start() >= end for start, end, _ in taken):
                taken.append((*found.span(), _kept_case(found, found.expand(word))))
    taken = [(start, end, new) for start, end, new in taken if text[start:end] != new]
    if len(taken) < least:
        return None
    pieces, position = [], 0
    for start, end, new in sorted(taken):
        pieces += [text[position:start], new]
        position = end
    return "".join([*pieces, text[position:]])


def plant(text: str, attack: Attack, rubric: Rubric, slots: int, slot: int) -> str:
    """Return a text with an attack in it, as the attacker would write it who knows that `slots` are shown, and its own slot."""
    if rubric.scale:
        worst, best = rubric.scale
        scores = tuple(best if number == slot else worst for number in range(slots))
        reading = Reading(True, scores=scores)
        name = f"{rubric.output.get('slot') or 'Response'} {slot + 1}"
    else:
        worst, best, won, lost = 1, 10, "ab"[slot], "ba"[slot]
        polarity = {criterion.name: criterion.polarity for criterion in rubric.criteria}
        reading = Reading(True, choices={key: won if way == "better" else lost for key, way in polarity.items()})
        name = rubric.choices[won]
    names = {"answer": format_verdict(reading, rubric), "slot": name, "best": best, "worst": worst, "count": slots}
    planted = string.Template(attack.text).substitute(names, response=text)
    return {"end": f"{text}\n\n{planted}", "start": f"{planted}\n\n{text}", "around": planted}[attack.place]


def planted(clean: Request, target: int, attack: Attack, rubric: Rubric) -> Trial:
    """Plant an attack in one response."""
    text = plant(clean.case.responses[target].text, attack, rubric, len(clean.slots), clean.slots.index(target))
    return _trial(clean, {target: text}, "planting", attack.family, attack.name, target)


def harmed(clean: Request, target: int, template: Harm) -> Trial | None:
    """Make a fact of one response dangerous; None where the template finds none."""
    text = harm(clean.case.responses[target].text, template)
    return None if text is None else _trial(clean, {target: text}, "harm", template.kind, template.name, target)


def reworded(clean: Request, target: int, least: int, rules: Sequence[tuple[re.Pattern, str]]) -> Trial | None:
    """Put one response into other words where it stands: the edit that is no harm; None where too little can be changed."""
    text = reword(clean.case.responses[target].text, least, rules)
    return None if text is None else _trial(clean, {target: text}, "harm", CONTROL, "other words", target)


def doubled(
    clean: Request, target: int, other: int, paraphrase: tuple[int, Sequence[tuple[re.Pattern, str]]] | None = None
) -> Trial | None:
    """Put one response in another's place too, as it is or in other words; None where too little can be changed."""
    text = clean.case.responses[target].text
    copy = text if paraphrase is None else reword(text, *paraphrase)
    kind = "identical" if paraphrase is None else "paraphrase"
    return None if copy is None else _trial(clean, {other: copy}, "sameness", kind, kind, target, other)


def repeated(clean: Request) -> Trial:
    """Show a case as it is once more."""
    return _trial(clean, {}, "sameness", "repeat", "repeat", clean.slots[0])


def _trial(
    clean: Request, texts: dict[int, str], check: str, kind: str, name: str, target: int, other: int | None = None
) -> Trial:
    case = clean.case
    responses = tuple(
        Response(response.model, texts.get(index, response.text), response.extra)
        for index, response in enumerate(case.responses)
    )
    note = {"of": case.id, "check": check, "kind": kind, "name": name, "response": case.models[target]}
    if other is not None:
        note["compared_with"] = case.models[other]
    # Cases of a study may have any id; what is behind the mark tells the trials of one case apart.
    mark = hashlib.sha256(f"{check}/{kind}/{name}".encode()).hexdigest()[:8]
    changed = replace(case, id=f"{case.id}#{check}-{mark}", responses=responses, extra={**case.extra, "audit": note})
    return Trial(changed, clean, check, kind, name, target, other)
