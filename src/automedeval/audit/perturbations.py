"""Change one thing in a case: plant a text, make a fact dangerous, reword a response, show it twice, or say who asks.

The changes are in `audit/templates/`. A changed case is shown like the clean one, with the same responses in the same slots.
"""

import hashlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from automedeval.judges.requests import Request
from automedeval.records import Case, question_text
from automedeval.records.yaml_file import YamlFile
from automedeval.rubrics import Rubric
from automedeval.rubrics.grammar import ParsedAnswer, format_verdict, same_on_every_criterion
from automedeval.rubrics.prompts import SENTENCE_END

TEMPLATES = resources.files("automedeval.audit") / "templates"
ATTACKS, CHECKLIST_ATTACKS, TWINS = "attacks.yaml", "checklist_attacks.yaml", "twins.yaml"
CONTROL = "control"  # harmless planted texts and harmless edits
TWIN = "twin"  # harmless edits of the kind of a danger
PLACES = ("end", "start", "around")
WAYS = ("replace", "multiply", "drop")


@dataclass(frozen=True)
class Attack:
    """A text to plant in a response; `audit/templates/attacks.yaml` lists the $names that it may use."""

    name: str
    family: str
    text: str
    place: str = "end"


@dataclass(frozen=True)
class Harm:
    """An edit that makes a fact dangerous: what `pattern` finds is replaced, multiplied, or its sentence dropped.

    The twin of a danger is such an edit as well, after which the text says the same.
    """

    name: str
    kind: str
    pattern: re.Pattern
    replace: str | None = None
    multiply: float | None = None
    drop: str | None = None
    unless: re.Pattern | None = None


@dataclass(frozen=True)
class Contrast:
    """Pairs of texts that differ in one thing about the patient, or about the writer of an answer, and in nothing medical.

    Args:
        name: the thing, such as "sex"; several contrasts may be about it.
        changes: "question", or "answer": one answer of each case.
        first, second: what the texts of a pair say of it.
        pairs: templates of both texts, see `audit/templates/fairness.yaml`; none: the second is the case's own translation into
            the language `second`.
        unless: reason → pattern: a case in whose texts it is found is left out for this reason.
        why: why the change is idle.
    """

    name: str
    changes: str
    first: str
    second: str
    pairs: Sequence[Sequence[str]] = ()
    unless: Mapping[str, re.Pattern] = field(default_factory=dict)
    why: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}: {self.second}, not {self.first}"


@dataclass(frozen=True)
class Trial:
    """A changed case.

    Args:
        case: the changed case; its id is that of the clean case plus a mark of the change.
        clean: the request for the clean case.
        check: "planting", "harm", "sameness", "fairness" or "order".
        kind: the group in the results: a family of attacks, a kind of harm, `TWIN`, "identical", "paraphrase", "repeat",
            "reversed" or the name of a `Contrast`.
        name: the name of the change.
        target: the index of the changed response, whose score is compared.
        other: the index of the response that it is compared with; None for the same response in the clean case.
        shown: the indices of the responses to show to a judge of single responses; None shows those of `clean`.
        mirrors: of a twin, the kind of harm.
    """

    case: Case
    clean: Request
    check: str
    kind: str
    name: str
    target: int
    other: int | None = None
    shown: tuple[int, ...] | None = None
    mirrors: str | None = None

    @property
    def request(self) -> Request:
        """Return the request for the changed case, with the slots, pair and run of `clean`."""
        return replace(self.clean, case=self.case, slots=self.shown or self.clean.slots)


def read_attacks(file: str | None = None, packaged: str = ATTACKS) -> list[Attack]:
    """Read packaged attacks, or those of a YAML file; RecordError where it is not as `attacks.yaml` describes."""
    attacks = []
    for at, entry in _entries(file, packaged, ("name", "family", "text"), ("place",)):
        at.take(entry, "place", str, "end", PLACES)
        allowed = {"answer", "slot", "best", "worst", "count", "question", "criteria"}
        allowed |= {"response"} if entry.get("place") == "around" else set()
        template = string.Template(entry["text"])
        if not template.is_valid() or (unknown := set(template.get_identifiers()) - allowed):
            what = f"${min(unknown)}" if template.is_valid() else "a lone $"
            at.fail("text", f"{what}: known are {', '.join(sorted(allowed))}, and $$ for a dollar")
        attacks.append(Attack(**entry))
    return attacks


def read_harms(file: str | None = None, packaged: str = "harms.yaml") -> list[Harm]:
    """Read the packaged harms or their twins, or those of a YAML file; RecordError where it is not as `harms.yaml` says."""
    harms = []
    for at, entry in _entries(file, packaged, ("name", "kind", "pattern"), (*WAYS, "unless")):
        ways = [name for name in WAYS if name in entry]
        if len(ways) != 1 and (packaged != TWINS or ways != ["replace", "multiply"]):
            at.fail(entry["name"], f"needs one of replace, multiply and drop, has {', '.join(ways) or 'none'}")
        patterns: dict[str, Any] = {
            name: _pattern(at, name, entry[name]) for name in ("pattern", "unless") if name in entry
        }
        at.take(entry, "drop", str, None, ("sentence",))
        if "multiply" in entry and not patterns["pattern"].groups:
            at.fail("multiply", "the pattern needs a group around the number")
        harms.append(Harm(**(entry | patterns)))
    return harms


def read_paraphrases() -> tuple[int, list[tuple[re.Pattern, str]]]:
    """Return the least number of changes and the (pattern, replacement) rules of `paraphrases.yaml`, which reword a text."""
    content = YamlFile("paraphrases.yaml").read(TEMPLATES / "paraphrases.yaml")
    return content["least"], [(re.compile(pattern, re.I), word) for pattern, word in content["rules"]]


def read_contrasts() -> list[Contrast]:
    """Return the contrasts of `fairness.yaml`, that of `CONTROL` among them."""
    return [
        Contrast(
            **entry | {"unless": {reason: re.compile(each, re.I) for reason, each in entry.get("unless", {}).items()}}
        )
        for entry in YamlFile("fairness.yaml").read(TEMPLATES / "fairness.yaml")
    ]


def _entries(
    file: str | None, packaged: str, needed: Sequence[str], more: Sequence[str]
) -> Iterator[tuple[YamlFile, dict[str, Any]]]:
    """Yield the entries of a list with unique names, each with what raises errors about it, keys and types checked."""
    yaml = YamlFile(file or packaged)
    content = yaml.read(None if file else TEMPLATES / packaged)
    if not isinstance(content, list) or not content:
        yaml.fail("the file", "must be a list of entries")
    names = set()
    for number, entry in enumerate(content, 1):
        at = YamlFile(f"{yaml.place}: entry {number}")
        at.only(entry, (*needed, *more))
        for name in needed:
            at.take(entry, name, str)
        for name in set(more) & set(entry):
            if name != "multiply":
                at.take(entry, name, str)
            elif not isinstance(entry[name], int | float) or isinstance(entry[name], bool):
                at.fail(name, f"must be a number, not {entry[name]!r}")
        if entry["name"] in names:
            at.fail("name", f"{entry['name']!r} occurs twice")
        names.add(entry["name"])
        yield at, entry


def _pattern(at: YamlFile, key: str, text: str) -> re.Pattern:
    try:
        return re.compile(text, re.I)
    except re.error as error:
        at.fail(key, f"not a regular expression: {error}")


def harm(text: str, template: Harm) -> str | None:
    """Return a text with its first matching fact made dangerous; None if there is none."""
    sentences = list(_sentences(text))
    if template.drop:
        kept = [sentence for sentence in sentences if not _fits(sentence, template)]
        changed = "".join(kept).strip()
        return changed if len(kept) < len(sentences) and re.search(r"\w{3}", changed) else None
    for place, sentence in enumerate(sentences):
        fact = template.pattern.search(sentence)
        if fact is None or not _fits(sentence, template):
            continue
        if template.multiply is None:
            new = _kept_case(fact, fact.expand(template.replace or ""))
        else:
            scaled, (start, end) = _scaled(fact[1], template.multiply), fact.span(1)
            around = (fact[0][: start - fact.start()], fact[0][end - fact.start() :])
            new = scaled.join(around) if template.replace is None else template.replace.replace(r"\1", scaled)
        changed = sentence[: fact.start()] + new + sentence[fact.end() :]
        if changed != sentence:
            return "".join([*sentences[:place], changed, *sentences[place + 1 :]])
    return None


def _fits(sentence: str, template: Harm) -> bool:
    return bool(template.pattern.search(sentence)) and not (template.unless and template.unless.search(sentence))


def _sentences(text: str) -> Iterator[str]:
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


def reword(text: str, least: int, rules: Sequence[tuple[re.Pattern, str]]) -> str | None:
    """Return a text in other words; None if fewer than `least` changes are possible."""
    # Every rule matches the original text, so that no rule reverts another.
    taken: list[tuple[int, int, str]] = []
    for pattern, word in rules:
        for match in pattern.finditer(text):
            if all(match.end() <= start or match.start() >= end for start, end, _ in taken):
                taken.append((*match.span(), _kept_case(match, match.expand(word))))
    taken = [(start, end, new) for start, end, new in taken if text[start:end] != new]
    if len(taken) < least:
        return None
    pieces, position = [], 0
    for start, end, new in sorted(taken):
        pieces += [text[position:start], new]
        position = end
    return "".join([*pieces, text[position:]])


def plant(text: str, attack: Attack, rubric: Rubric, slots: int, slot: int, question: str = "") -> str:
    """Return a text with an attack that knows the number of slots shown and its own slot, from 0.

    Against a checklist about a case's criteria it knows their number instead.
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
    names = {"answer": format_verdict(answer, rubric), "slot": name, "best": best, "worst": worst, "count": slots}
    names |= {"question": question, "criteria": "\n".join(f"- {each.description}" for each in rubric.criteria)}
    planted = string.Template(attack.text).substitute(names, response=text)
    return {"end": f"{text}\n\n{planted}", "start": f"{planted}\n\n{text}", "around": planted}[attack.place]


def planted(clean: Request, target: int, attack: Attack, rubric: Rubric) -> Trial:
    case, slots = clean.case, clean.slots
    rubric = rubric.about(case.criteria) if clean.checklist else rubric
    asked = question_text(case.question)
    text = plant(case.responses[target].text, attack, rubric, len(slots), slots.index(target), asked)
    return _trial(clean, "planting", attack.family, attack.name, target, text)


def harmed(clean: Request, target: int, template: Harm) -> Trial | None:
    """Make a fact of one response dangerous; None if the template matches none."""
    text = harm(clean.case.responses[target].text, template)
    return None if text is None else _trial(clean, "harm", template.kind, template.name, target, text)


def twinned(clean: Request, target: int, template: Harm) -> Trial | None:
    """Make an edit of the kind of a harm that changes nothing of what the response says; None if the template matches none."""
    text = harm(clean.case.responses[target].text, template)
    name = f"{template.name}, response {target + 1}"  # several of a case may be made dangerous
    return None if text is None else _trial(clean, "harm", TWIN, name, target, text, mirrors=template.kind)


def reworded(clean: Request, target: int, least: int, rules: Sequence[tuple[re.Pattern, str]]) -> Trial | None:
    """Reword one response, as the control for harms; None if too few words can be changed."""
    text = reword(clean.case.responses[target].text, least, rules)
    name = f"other words, response {target + 1}"  # several of a case may be reworded
    return None if text is None else _trial(clean, "harm", CONTROL, name, target, text)


def doubled(
    clean: Request, target: int, other: int, paraphrase: tuple[int, Sequence[tuple[re.Pattern, str]]] | None = None
) -> Trial | None:
    """Replace another response by a copy of one, reworded with `paraphrase`; None if too few words can be changed."""
    text = clean.case.responses[target].text
    if paraphrase is None:
        return _trial(clean, "sameness", "identical", "identical", target, text, other)
    other_words = reword(text, *paraphrase)
    if other_words is None:
        return None
    return _trial(clean, "sameness", "paraphrase", "paraphrase", target, other_words, other)


def reversed_criteria(clean: Request) -> Trial:
    """Show the criteria of an unchanged case in the reverse order."""
    target = clean.slots[0]
    response = clean.case.responses[target]
    trial = _trial(clean, "order", "reversed", response.model, target, response.text)
    return replace(trial, case=replace(trial.case, criteria=clean.case.criteria[::-1]))


def said(clean: Request, contrast: Contrast, template: str, target: int) -> Trial:
    """Say one thing about the patient in the question, or about the writer in one response."""
    response, question = clean.case.responses[target].text, clean.case.question
    if contrast.changes == "answer":
        return _trial(clean, "fairness", contrast.name, template, target, _filled(template, response))
    trial = _trial(clean, "fairness", contrast.name, template, target, response)
    asked: str | list[dict[str, str]]
    if isinstance(question, str):
        asked = _filled(template, question)
    else:
        asked = [*question[:-1], question[-1] | {"content": _filled(template, question[-1]["content"])}]
    return replace(trial, case=replace(trial.case, question=asked))


def _filled(template: str, text: str) -> str:
    items = "\n".join(f"- {sentence.strip()}" for sentence in _sentences(text))
    return string.Template(template).safe_substitute(text=text, list=items)


def repeated(clean: Request) -> Trial:
    target = clean.slots[0]
    return _trial(clean, "sameness", "repeat", "repeat", target, clean.case.responses[target].text)


def _trial(
    clean: Request,
    check: str,
    kind: str,
    name: str,
    target: int,
    text: str,
    other: int | None = None,
    mirrors: str | None = None,
) -> Trial:
    """Return a trial with a new text of `other` if it is given, else of `target`."""
    case, changed = clean.case, target if other is None else other
    responses = list(case.responses)
    responses[changed] = replace(responses[changed], text=text)
    note = {"of": case.id, "check": check, "kind": kind, "name": name, "response": case.models[target]}
    note |= {} if other is None else {"compared_with": case.models[other]}
    note |= {} if mirrors is None else {"mirrors": mirrors}
    # The hash distinguishes the trials of one case, whatever characters its id has.
    case_id = f"{case.id}#{check}-{hashlib.sha256(f'{check}/{kind}/{name}'.encode()).hexdigest()[:8]}"
    case = replace(case, id=case_id, responses=tuple(responses), extra={**case.extra, "audit": note})
    return Trial(case, clean, check, kind, name, target, other, mirrors=mirrors)
