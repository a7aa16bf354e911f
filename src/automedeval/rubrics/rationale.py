"""Split a rationale into the steps on each doctor, and renumber its doctors for another order of responses.

A stepwise rationale (paper, Fig. 8 and 9, Table 7) has a step on the question and then one on each doctor's response.
"Doctor k" is the response in slot k - 1. Headers are "Step 2: …", "Step 2 (Doctor 1): …", "Step2(Evaluation on Doctor1): …"
and "Step 1: Doctor 1: …", with or without Markdown. `word` is what the rubric calls a response, beside "Doctor".
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from automedeval.records.patterns import all_filled

DOCTOR = "Doctor"
# The small judge's rationale quotes the question, on one line, and has each step on all doctors.
COMPOSED = "Composed by a template.\n"
ON_ALL = "\nStep 2: "
_HEADING = re.compile(r"(?i)\A\s*[*#_ \t]{0,12}analy[sz](?:e|is)[*_]{0,3}[:：][*_]{0,3}\s*")
_ORDINALS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_CARDINALS = "one|two|three|four|five|six|seven|eight|nine|ten"
_NUMBERS = re.compile(r"([0-9]+)(?:([–-]|\s(?:to|through)\s)([0-9]+))?")
_PATTERNS = {
    "mark": r"[*_]{0,3}",
    "gap": r"[ \t]{0,3}",
    "number": r"[1-9][0-9]?(?![0-9]|\.[0-9]|,[0-9]{3})",  # "Doctor 1.", never "Doctor 1.5"
    # Physicians are asked to write "Doctor" in any case, and models write "Dr." too.
    "single": r"@named|dr\.?",
    "plural": r"(?:@named)s|drs\.?",
    "doctor": r"\b(?i:@single)@gap#?(@number)",
    # A header begins a line; within a line only "Step 3:", with a capital and a colon, is one.
    "header": r"(?P<head>(?:(?P<line>^[ \t*#>_-]{0,12})(?i:step)|(?<=\s)@{mark}Step)@gap)(?P<number>@number)"
    r"(?P<tail>@mark@gap(?:\([^()\n]{0,80}\))?@mark@gap"
    r"(?(line)(?:[:：]|[.–—-](?=\s))|[:：])@mark"
    r"(?:@gap@mark@doctor@mark[:：]@mark)?)",
    # A number of something, as in "see doctors 2 or 3 weeks before", is no doctor's.
    "unit": r"(?:\s?(?:[–-]|to)\s?[0-9]+)?\s?(?:%|(?:mg|mcg|g|ml|tablets?|pills?|times|miles?|minutes?|hours?|days?|weeks?|"
    r"months?|years?)\b)",
    "one": r"#?@number\b(?!@unit)",
    "and": r"\s(?:and|or|vs\.?)\s",
    # "Doctor 2", "Dr. 2", "Doctors 1, 2 and 3", "the first doctor", "Doctor Two". After a single doctor a comma begins no list:
    # "Doctor 1, 2 tablets". What follows a patient's own doctor is no name: "see your doctor 2 or 3 weeks before".
    "not_own": r"(?<!\ba\s)(?<!\bany\s)(?<!\banother\s)(?<!\bmy\s)(?<!\byour\s)"
    r"(?<!\bhis\s)(?<!\bher\s)(?<!\btheir\s)(?<!\bour\s)",
    "names": r"(?i:@not_own\b(?:"
    r"(?:@plural)\s{0,3}@one(?:(?:[–-]|\s?[,/&]\s?|,?\s(?:and|or|to|through|vs\.?)\s)@one){0,20}"
    r"|(?:@single)\s{0,3}@one(?:(?:\s?[/&]\s?|@and)@one){0,20})"
    r"|\bthe\s(?:@ordinals)(?=\s(?:@named))"
    r"|\b(?-i:(?:@named)\s(?:@cardinals))\b)",
}


class _Patterns(NamedTuple):
    doctor: re.Pattern
    header: re.Pattern
    names: re.Pattern


@cache
def _patterns(word: str) -> _Patterns:
    """Return the patterns of a doctor's name, of the header of a step, and of the names in a text."""
    parts = all_filled(
        _PATTERNS,
        {
            "named": "|".join(map(re.escape, dict.fromkeys((DOCTOR, word)))),
            "ordinals": _ORDINALS,
            "cardinals": _CARDINALS.title(),
        },
    )
    return _Patterns(*(re.compile(parts[name], re.M) for name in _Patterns._fields))


@dataclass(frozen=True, eq=False)
class Step:
    """One step as it is written: its header, its number, and the text up to the next one. Its doctor is 0 for the question."""

    header: re.Match
    number: int
    doctor: int
    body: str


class _Steps(NamedTuple):
    """The text before the first step, the steps, and the numbers of steps less those of doctors."""

    before: str
    steps: list[Step]
    shift: int


def _read_steps(rationale: str, word: str = DOCTOR) -> _Steps:
    """Return the steps of a rationale.

    A step belongs to the doctor that its header names, or else to the one of its number: Step 2 is on Doctor 1, or on Doctor 2
    if a header such as "Step 1: Doctor 1:" numbers steps as doctors.
    """
    patterns = _patterns(word)
    headers = list(patterns.header.finditer(rationale))
    mentioned = [patterns.doctor.findall(header[0]) for header in headers]
    named = [int(doctors[0]) if len(doctors) == 1 else None for doctors in mentioned]
    numbers = [int(header["number"]) for header in headers]
    shift = int(all(number != doctor for number, doctor in zip(numbers, named)))
    starts = [*(header.start() for header in headers), len(rationale)]
    steps = []
    for header, number, doctor, stop in zip(headers, numbers, named, starts[1:]):
        owner = max(number - shift, 0) if doctor is None else doctor
        steps.append(Step(header, number, owner, rationale[header.end() : stop]))
    return _Steps(rationale[: starts[0]], steps, shift)


def split_steps(rationale: str) -> dict[int, str]:
    """Return a rationale's texts by doctor: {0: on the question, 1: on Doctor 1, …}; missing steps have no key.

    Text before the first step, or a rationale without steps, belongs to the question. A closing step has the number of a doctor
    who does not exist.
    """
    before, steps, _ = _read_steps(rationale)
    pieces = [(0, _HEADING.sub("", before)), *((step.doctor, step.body) for step in steps)]
    texts: dict[int, list[str]] = {}
    for doctor, piece in pieces:
        if text := piece.strip():
            texts.setdefault(doctor, []).append(text)
    return {doctor: "\n".join(parts) for doctor, parts in texts.items()}


def permute(rationale: str, slots: Sequence[int], word: str = DOCTOR) -> str:
    """Return the rationale for another order of the doctors.

    Steps move and are renumbered with their doctors, and "Doctor k" is renumbered everywhere; of the
    small judge's rationale no step moves, and its quotation stays. The inverse order gives the
    original rationale. `slots` has for each new slot the former one, from 0: with (2, 0, 1), the
    former Doctor 3 becomes Doctor 1, and the order `order` of a verdict
    `tuple(order[slot] for slot in slots)`. ValueError: `slots` is no permutation.
    """
    if not slots or sorted(slots) != list(range(len(slots))):
        raise ValueError(f"not a permutation of slots: {slots}")
    number_of = {former + 1: slot + 1 for slot, former in enumerate(slots)}

    def rename(text: str) -> str:
        return _rename(text, lambda number: number_of.get(number, number), word)

    if rationale.startswith(COMPOSED):
        asked, between, on_all = rationale.partition(ON_ALL)
        return asked + between + rename(on_all)
    before, steps, shift = _read_steps(rationale, word)
    moving = [step for step in steps if step.doctor in number_of]
    # The step that is n-th by its new doctor takes the place of the n-th by its former one: sorted steps stay sorted, and the
    # inverse order restores unsorted ones.
    places = sorted(moving, key=lambda step: step.doctor)
    coming = dict(zip(places, sorted(moving, key=lambda step: number_of[step.doctor])))
    text = rename(before)
    for place in steps:
        step = coming.get(place, place)
        number = step.number
        if step.doctor in number_of and number == step.doctor + shift:
            number = number_of[step.doctor] + shift
        renamed = rename(step.header["tail"] + step.body.rstrip())
        space = place.body[len(place.body.rstrip()) :]
        text += f"{step.header['head']}{number}{renamed}{space}"
    return text


def _rename(text: str, name: Callable[[int], int], word: str = DOCTOR) -> str:
    """Replace the number of every doctor in a text by `name` of it.

    "Doctors 1-3" stays a range if the new numbers are consecutive, and is written out otherwise.
    """

    def numbers(match: re.Match) -> str:
        first, last = sorted((int(match[1]), int(match[3] or match[1])))
        members = list(range(first, last + 1))
        new = sorted(map(name, members))
        if new == members:
            return match[0]
        if len(new) > 1 and new == list(range(new[0], new[-1] + 1)):
            return f"{new[0]}{match[2]}{new[-1]}"
        *others, end = map(str, new)
        return f"{', '.join(others)} and {end}" if others else end

    def names(match: re.Match) -> str:
        last = match[0].split()[-1]
        for numerals in (_ORDINALS.split("|"), _CARDINALS.split("|")):
            if last.lower() in numerals:
                new = name(numerals.index(last.lower()) + 1)
                other = numerals[new - 1] if new <= len(numerals) else last
                other = other.capitalize() if last[0].isupper() else other
                return match[0].removesuffix(last) + other
        return _NUMBERS.sub(numbers, match[0])

    return _patterns(word).names.sub(names, text)
