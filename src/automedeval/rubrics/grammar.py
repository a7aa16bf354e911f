"""Write and parse answers in the grammar of a rubric.

`answer_parts` returns the parts of an answer: literal text, free text, and slots with a few allowed values. A local judge
chooses among these values; `format_verdict` fills the parts with known values; `parse_verdict` parses a model's text. Format
and parse are inverse to each other. All values are in slot order, the order in which the responses were shown.

Parsing takes linear time: every repetition in the patterns below is bounded, or is one character class at the start of a line.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import floor
from typing import Any

from automedeval.models.base import Free, Part, Slot
from automedeval.records import JsonObject
from automedeval.records.patterns import all_filled, filled
from automedeval.records.thoughts import CONTROL_TOKEN
from automedeval.rubrics.rubric import Rubric
from automedeval.rubrics.values import SEEN, ParsedAnswer, folded, words

NO_SCORE_LINE = "no score line"
CUT_OFF = "the answer was cut off at its token limit"
# In a form they stand in the place of a value, and of a rationale.
VALUE = "\ue000"
PROSE = "\ue001"
_RATIONALES = {
    "score_line": Free(stop="\nScore"),
    "score_first": Free(stop=""),
    "json": Free(stop='"', json_string=True),
}


def answer_parts(rubric: Rubric, slots: int, rationale: bool) -> list[Part]:
    """Return the parts of an answer to a prompt that shows `slots` responses, with or without its rationale."""
    values = iter(answer_slots(rubric, slots))
    parts: list[Part] = []
    for text in re.split(
        f"({VALUE}|{PROSE})", _form(rubric, slots, rationale and rubric.rationale)
    ):
        if text == VALUE:
            parts.append(next(values))
        elif text == PROSE:
            parts.append(_RATIONALES[rubric.grammar])
        elif text:
            parts.append(text)
    return parts


def answer_slots(rubric: Rubric, slots: int) -> list[Slot]:
    """Return the slots of an answer: one for each response, for each criterion, or for each criterion of each response."""
    names = list(rubric.output_criteria)
    if rubric.grammar == "score_first":
        names = ["Score"]
    elif rubric.grammar == "score_line":
        names = _slot_names(rubric, slots)
    elif rubric.scores_criteria:
        pairs = product(_slot_names(rubric, slots), names)
        names = [f"{response}, {name}" for response, name in pairs]
    if rubric.scale is None:
        return [Slot(name, tuple(rubric.labels(name).values())) for name in names]
    low, high = rubric.scale
    values = tuple(map(str, range(low, high + 1)))
    return [Slot(name, values) for name in names]


def _form(rubric: Rubric, slots: int, rationale: bool) -> str:
    """Return the text of an answer, with VALUE in the place of each value and PROSE in that of a rationale."""
    if rubric.grammar == "json":
        return _json_form(rubric, slots, rationale)
    if rubric.grammar == "comma_list":
        return ", ".join([VALUE] * len(rubric.output_criteria))
    if rubric.grammar == "first_line":
        return f"{VALUE}\n"
    if rubric.grammar == "score_first":
        return f"Score: {VALUE}\n{PROSE}" if rationale else f"Score: {VALUE}"
    scores = " ".join(f"{name}: {VALUE} points." for name in _slot_names(rubric, slots))
    return f"{PROSE}\nScore: {scores}" if rationale else f"Score: {scores}"


def _json_form(rubric: Rubric, slots: int, rationale: bool) -> str:
    value_key, choices_key, rationale_key = map(rubric.key, ("value", "choices", "rationale"))
    value: Any = {value_key: VALUE} if value_key else VALUE
    answer: JsonObject = dict.fromkeys(rubric.output_criteria, value)
    if rubric.scores_criteria:
        answer = dict.fromkeys(_slot_names(rubric, slots), answer)
    if choices_key:
        answer = {choices_key: answer}
    if rationale_key and rationale:
        reason = {rationale_key: PROSE}
        fields = list(rubric.output)
        is_last = rubric.sums_up and fields.index("score_key") < fields.index("rationale_key")
        answer = answer | reason if is_last else reason | answer
    written = json.dumps(answer, ensure_ascii=False)
    return written.replace(f'"{VALUE}"', VALUE) if rubric.scale else written


def _slot_names(rubric: Rubric, slots: int) -> list[str]:
    """Return what an answer calls the responses, "Doctor 1", "Doctor 2", …"""
    return [f"{rubric.slot_word} {number}" for number in range(1, slots + 1)]


def answer_form(rubric: Rubric, slots: int, rationale: bool = True) -> str:
    """Return the answer with placeholders in brackets, for a prompt to show."""
    return "".join(_shown(part, rubric) for part in answer_parts(rubric, slots, rationale))


def _shown(part: Part, rubric: Rubric) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Free):
        return "[your assessment]"
    if rubric.scale and rubric.grammar == "json":
        return f"[{part.values[0]} to {part.values[-1]}]"
    return "[verdict]" if rubric.key("value") else f"[{' or '.join(part.values)}]"


def format_verdict(reading: ParsedAnswer, rubric: Rubric) -> str:
    """Return the text of valid values in the rubric's grammar; `parse_verdict` returns the values again."""
    return _written(reading, rubric)[0]


def answer_columns(reading: ParsedAnswer, rubric: Rubric) -> JsonObject:
    """Return the columns of a training row that hold this answer: `completion`, and `trained`.

    `trained` are the characters that are trained, each with the one behind its last, where the rubric trains values alone.
    """
    text, spans = _written(reading, rubric)
    values_alone = rubric.output.get("trained") == "values"
    completion = [{"role": "assistant", "content": text}]
    return {"completion": completion, "trained": spans if values_alone else None}


def _written(reading: ParsedAnswer, rubric: Rubric) -> tuple[str, list[list[int]]]:
    """Return the text of valid values, and where each of them stands in it."""
    slots = len(reading.scores) if reading.scores else 2
    values = _values(reading, rubric)
    text = ""
    spans = []
    for part in answer_parts(rubric, slots, reading.rationale is not None):
        if isinstance(part, Slot):
            value = values.pop(0)
            spans.append([len(text), len(text) + len(value)])
            text += value
        elif isinstance(part, Free):
            rationale = reading.rationale or ""
            in_json = json.dumps(rationale, ensure_ascii=False)[1:-1]
            text += in_json if part.json_string else rationale
        else:
            text += part
    return text, spans


def _values(reading: ParsedAnswer, rubric: Rubric) -> list[str]:
    """Return the values of a valid answer as they are written, in the order of `answer_parts`."""
    if rubric.scores_criteria:
        by_criterion = [(reading.criterion_scores or {})[name] for name in rubric.output_criteria]
        return list(map(str, chain.from_iterable(zip(*by_criterion))))
    if reading.scores:
        return [str(score) for score in reading.scores]
    choices = reading.choices or {}
    return [rubric.labels(name)[choices[name]] for name in rubric.output_criteria]


class _Invalid(ValueError):
    """What is wrong with an answer."""


def parse_verdict(
    text: str, rubric: Rubric, slots: int = 2, *, truncated: bool = False
) -> ParsedAnswer:
    """Parse a model's answer.

    Text after a control token is ignored, and so are invisible characters; every blank is a plain one. The last answer counts,
    nothing before it. It is invalid if it is incomplete or malformed (a slot twice or too many, a score off the scale or no
    whole number), or if text stands behind it: text there may take it back in any words.

    `slots` is the number of responses in the prompt, and `truncated` says that the text was cut off at its token limit. An
    invalid answer has an `error`, and no scores or choices.
    """
    control = CONTROL_TOKEN.search(text)
    if control:
        text = text[: control.start()]
        truncated = False
    if not text.strip():
        return ParsedAnswer(False, "the answer is empty")
    try:
        given, rationale = _READERS[rubric.grammar](text, rubric, slots, truncated)
        wanted = zip(given, answer_slots(rubric, slots))
        values = [_value(value, slot, rubric) for value, slot in wanted]
    except _Invalid as wrong:
        return ParsedAnswer(False, str(wrong))
    return reading_from_values(values, rubric, rationale, written=True)


def reads_back(text: str, rubric: Rubric, slots: int) -> bool:
    """Return whether an answer parses, and is the text that its parsed values are written as.

    If not, its rationale holds for instance a control token or a second score line, and a model must not learn it.
    """
    parsed = parse_verdict(text, rubric, slots)
    return parsed.valid and format_verdict(parsed, rubric) == text


def reading_from_values(
    values: list[str], rubric: Rubric, rationale: str | None, written: bool = False
) -> ParsedAnswer:
    """Return the parsed answer of values in the order of `answer_parts`, which were `written` in a text, or chosen one by one.

    Words that exclude each other are no answer. Whoever chooses word by word may give no harm a likelihood.
    """
    if rubric.sums_up:
        return ParsedAnswer(True, rationale=rationale, scores=tuple(int(value) for value in values))
    if rubric.scores_criteria:
        return _scored(list(map(int, values)), rubric, rationale)
    choices = _choices(values, rubric)
    if error := contradiction(choices, rubric, written):
        return ParsedAnswer(False, error)
    return ParsedAnswer(True, rationale=rationale, choices=choices)


def contradiction(choices: Mapping[str, str], rubric: Rubric, written: bool = False) -> str | None:
    """Return which word excludes that of another criterion: the meaning of "no harm" is "the degree is none"."""
    for criterion in rubric.criteria:
        own = choices.get(criterion.name)
        for word, meaning in criterion.values.items():
            bond = re.fullmatch(r"the (\w+) is (.+)", meaning)
            if bond is None or bond[1] not in choices:
                continue
            other = choices[bond[1]]
            is_bound = own == word or (written and own != criterion.neutral)
            if is_bound and (own == word) != (other == bond[2]):
                return f"{criterion.name}: {own!r} excludes {bond[1]}: {other!r}"
    return None


def same_on_every_criterion(scores: Sequence[int], rubric: Rubric) -> ParsedAnswer:
    """Return the answer that gives each response, in slot order, one score, the same on every criterion that it scores."""
    by_name = {criterion.name: tuple(scores) for criterion in rubric.criteria}
    return ParsedAnswer(
        True, scores=tuple(scores), criterion_scores=by_name if rubric.scores_criteria else None
    )


def _scored(values: Sequence[int], rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return the parsed answer of scores on several criteria, in the order of `answer_parts`: all of a slot, then the next."""
    names = rubric.output_criteria
    count = len(rubric.criteria)
    scores = {}
    for criterion in rubric.criteria:
        scores[criterion.name] = tuple(values[names.index(criterion.name) :: count])
    by_slot = zip(*scores.values())
    means = tuple(floor(sum(of_slot) / count + 0.5) for of_slot in by_slot)  # halves upwards
    return ParsedAnswer(True, rationale=rationale, scores=means, criterion_scores=scores)


def _label(text: str, marks: str = "") -> str:
    """Return a label without the space and marks around it, and without the brackets of its placeholder, "[response_a]"."""
    label = text.translate(SEEN).strip(" \t\r\n" + marks)
    return _label(label[1:-1], marks) if label.startswith("[") and label.endswith("]") else label


def _choices(labels: list[str], rubric: Rubric) -> dict[str, str]:
    """Return criterion → choice for the words of an answer, in its order."""
    label_of = dict(zip(rubric.output_criteria, labels, strict=True))
    return {
        criterion.name: words(rubric, criterion.name)[folded(label_of[criterion.name])]
        for criterion in rubric.criteria
    }


# Parts of the patterns below.
_PARTS = all_filled(
    {
        # "4", "4.0", "**4** points", "4/5", "4 (out of 5)", "(4)" or "[[4]]"
        "out_of": r"(?:@gap\(?(?:/|(?:out )?of\b)@gap@highest@mark\)?)?",
        "number": r"(?:(?P<open>\[{1,2})|(?P<round>\())?(?P<score>[0-9]{1,4})(?:[.,]0{1,2}(?![0-9]))?"
        r"(?(open)\]{1,2})(?(round)\))",
        "score": r"@mark@number@mark@out_of(?:@gap(?:points?|pts?|stars?)\b@out_of)?",
        # A slot's name, "Doctor 1:", with or without Markdown.
        "lead": r"(?:(?:[-+•*]|^[ \t]{0,20}[0-9]{1,2}[.)]|and|&)\s{1,20})?",
        "name": r"@word[ \t_-]{0,20}#?([0-9]{1,4})",
        "dash": r"[ \t]{1,20}[\u2010-\u2015\u2212-]{1,2}[ \t]{1,20}",
        "slot": r"@lead@mark@name@mark(?:@gap[:：=]@mark@gap|@dash)",
        # The score is set apart: "4." and "4 (clear)", not "4.5", "4/10", "4 (out of 10)" and "4 red flags".
        "apart": r"[ \t]{1,20}(?=[^\w\s]|(?:as|because|since)\b|(?:and )?@word)",
        "stop": r"@mark@gap(?:[。，；、]|[.,;:!]@mark(?=[\s<]|\Z)|[ \t]{0,20}(?=\r?\n|\Z)|@apart)",
        "first_score": r"@score\.?",
        "json_score": r"@score|(?P<part>[0-9]{1,4}\.[0-9]{1,4})",
        "slot_score": r"@slot(?:@score(?!\W{0,3}(?:(?:out )?of|/)\s?\d)@stop)?",
    },
    {"mark": "[*_`]{0,4}", "gap": r"[ \t]{0,20}", "word": "@word", "highest": "@highest"},
)
# "Score:" begins its line, or is a heading alone on it. One character class may precede it.
_HEADER = re.compile(
    filled(r"^[-+•*#_`~ \t]*(?:final |overall )?scores?@mark@gap(?:[:：]@mark|$)", _PARTS),
    re.I | re.M,
)
# "Step 3: … Score:" after a sentence, as the paper's Figure 8 writes it; it counts where no line begins with "Score:".
_INLINE = re.compile(
    filled(r"(?<=[.!?…。！？])@gap@{mark}scores?@mark@gap[:：]@mark@gap", _PARTS), re.I
)
# A reason beside a score is one phrase: no quotation, no order of responses, no word that speaks of scores, and no number
# that counts nothing ("2 warnings", "500 mg"): these may take the score back. Other words may do so too ("to be halved", or
# in another language): no rule tells such words from a reason.
_COUNTED = re.compile(
    r"(?i)\b\d[\d.,]*(?: of \d+)?\s?(?:mg|mcg|µg|g|kg|ml|l|iu|days?|[a-z]{4,}s)\b"
)
_NO_REASON = re.compile(
    r"(?i)[.!。！…]\s|[?？\"“”„«»<>=+→~★☆⭐]|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|zero|half|twice|minus|plus|first|second|third|last|former|latter|"
    r"other|both|scor\w*|points?|pts?|marks?|stars?|rat(?:e|ed|ings?)|rank\w*|grade\w*|scale|verdict|better|best|worse|worst|"
    r"less|more|lower\w*|higher|lowest|highest|equal\w*|same|tie[ds]?|rather|maybe|perhaps|possibly|actually|instead|wait|sorry|"
    r"ignore\w*|disregard\w*|swap\w*|revers\w*|final\w*|draft|example|above|below|correct(?:ion|ed)|reconsider\w*|n/a|"
    r"invert\w*|placeholder|scrap\w*|winner|loser|harsh|generous|typo|mistaken?)\b",
)


def _pattern(name: str, rubric: Rubric) -> re.Pattern:
    """Return one of the patterns above, for a rubric with a scale."""
    assert rubric.scale is not None
    known = {"word": re.escape(rubric.slot_word), "highest": str(rubric.scale[1])}
    return re.compile(filled(_PARTS[name], known), re.I | re.M)


def _opened(text: str) -> set[str]:
    """Return the tags that a text opens, beside "answer": what ends with "</draft>" may be no answer."""
    return {*re.findall(r"<(\w{1,20})\b", text.translate(SEEN).lower())} - {"answer"}


def _surplus(text: str, opened: set[str]) -> str:
    """Return what stands behind an answer beside Markdown, fences, punctuation and ends of tags not `opened`: nothing may."""

    def kept(tag: re.Match) -> str:
        return tag[0] if tag[1].lower() in opened else ""

    text = re.sub(r"</(\w{1,20})>", kept, text.translate(SEEN))
    return text.strip(" \t\r\n*_`#|-–—.,;:!。，；、")


# What a reader returns: what the slots are given, as text or as JSON has it, and the rationale.
Reading = tuple[Iterable[Any], str | None]


def _check_behind(text: str, opened: set[str], truncated: bool) -> None:
    """Fail where text stands behind an answer: it may take the answer back in any words."""
    if behind := _surplus(text, opened):
        raise _Invalid(CUT_OFF if truncated else f"text stands behind the answer: {behind[:40]!r}")


def _read_score_line(text: str, rubric: Rubric, slots: int, truncated: bool) -> Reading:
    """Read the scores behind the last header.

    Beside each of them may stand a reason, on its line; behind them nothing but the same scores again.
    """
    seen = text.translate(SEEN)
    headers = list(_HEADER.finditer(seen)) or list(_INLINE.finditer(seen))
    if not headers:
        raise _Invalid(NO_SCORE_LINE)
    header = headers[-1]
    opened = _opened(seen)
    named = list(_pattern("slot_score", rubric).finditer(seen, header.end()))
    starts = [slot.start() for slot in named] or [len(seen)]
    if _surplus(seen[header.end() : starts[0]], opened):
        named = []
    scores: dict[int, int] = {}
    reasons = []
    rest = ""
    for slot, stop in zip(named, [*starts[1:], len(seen)]):
        _check_score(slot, scores, slots)
        scores[int(slot[1])] = int(slot["score"])
        rest = seen[slot.end() : stop]
        beside, _, below = rest.partition("\n")
        _check_behind(below, opened, truncated)
        reason = _surplus(beside, opened)
        _check_reason(reason, slot[1])
        reasons.append(reason)
    if sorted(scores) != list(range(1, slots + 1)):
        raise _Invalid(f"scores for the slots {sorted(scores)}, of {slots}")
    if any(reasons) and not all(reasons):
        raise _Invalid("a reason stands beside some of the scores alone")
    # A number at the very end may be the beginning of another: "1" of "10", "4." of "4.5".
    if truncated and (re.search(r"[0-9]\.?[*_` \t]*\Z", seen) or rest.strip("*_` \t\r\n")):
        raise _Invalid(CUT_OFF)
    return (
        [str(scores[number]) for number in sorted(scores)],
        _written_before(header.start(), text),
    )


def _check_score(slot: re.Match, scores: dict[int, int], slots: int) -> None:
    """Fail where the score of a slot is none, or another one than before; all slots have one before any is repeated."""
    if not slot["score"]:
        raise _Invalid(f"the score of slot {slot[1]} is not a plain whole number")
    number = int(slot[1])
    if number in scores and (len(scores) < slots or scores[number] != int(slot["score"])):
        raise _Invalid(f"slot {number} has two scores")


def _check_reason(reason: str, slot: str) -> None:
    """Fail where the text beside the score of a slot may be more than its reason."""
    if _NO_REASON.search(reason) or any(map(str.isnumeric, _COUNTED.sub("", reason))):
        raise _Invalid(
            f"what stands beside the score of slot {slot} may change it: {reason[:40]!r}"
        )


def _written_before(place: int, text: str) -> str | None:
    """Return what is written before a place in the text as it is seen; None if nothing is."""
    places = [at for at, sign in enumerate(text) if sign.translate(SEEN)]
    return text[: places[place]].strip() or None if place else None


_MOST_OBJECTS = 64  # how many opening braces from the end are tried; keeps hostile text linear
# Stands as a key in an object that has a key twice; no folded key has blanks.
_REPEATED = "one key twice"


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return the members of an object, with keys as they are compared: a rubric's name may be written in capitals."""
    members = {folded(key): value for key, value in pairs}
    return members if len(members) == len(pairs) else members | {_REPEATED: True}


# Numbers are never an answer; as floats, long ones are parsed quickly.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, strict=False)


def _json_objects(text: str) -> Iterator[tuple[dict, int]]:
    """Yield the outermost JSON objects among the last of a text, with where they end."""
    # without trailing commas, as some prompts show them, and blanks that JSON does not have
    relaxed = "".join((SEEN[ord(letter)] or " ") if letter > "~" else letter for letter in text)
    relaxed = re.sub(r",(?=\s{0,50}[}\]])", " ", relaxed)
    openings = list(re.finditer(r"\{(?=\s{0,50}\")", relaxed))
    end = 0
    for opening in openings[-_MOST_OBJECTS:]:
        if opening.start() < end:
            continue
        for version in (text, relaxed):
            try:
                members, end = _DECODER.raw_decode(version, opening.start())
            except json.JSONDecodeError as error:
                end = max(end, error.pos)  # objects inside a broken object are no answers
            except RecursionError:
                return
            else:
                yield members, end
                break


def _read_json(text: str, rubric: Rubric, slots: int, truncated: bool) -> Reading:
    """Read the last object that answers; nothing but marks may stand behind it."""
    names = _slot_names(rubric, slots) if rubric.scores_criteria else rubric.output_criteria
    choices_key = folded(rubric.key("choices"))
    rationale_key = folded(rubric.key("rationale"))
    for members, end in reversed(list(_json_objects(text))):
        rationale = members.pop(rationale_key, None) if rationale_key else None
        answers = members.get(choices_key) if choices_key else members
        if not isinstance(answers, dict) or answers.keys().isdisjoint(map(folded, names)):
            continue
        if choices_key:
            _members(members, [choices_key])
        given = _members(answers, names)
        if rubric.scores_criteria:
            groups = [
                _members(group, rubric.output_criteria, f"{name}: ")
                for name, group in zip(names, given)
            ]
            given = list(chain.from_iterable(groups))
        _check_behind(text[end:], _opened(text), truncated)
        return given, rationale if isinstance(rationale, str) and rationale else None
    raise _Invalid("no JSON object with the criteria")


def _members(given: Any, names: Sequence[str], place: str = "") -> list[Any]:
    """Return the members of an object by the names of its keys; fail if it is none, or has other keys.

    `place` stands before the error.
    """
    if not isinstance(given, dict):
        raise _Invalid(f"{place}{type(given).__name__} instead of an object with the criteria")
    keys = list(map(folded, names))
    if given.keys() != set(keys):
        found = ", ".join(given)[:120]
        raise _Invalid(f"{place}the keys {found!r} instead of {', '.join(names)}")
    return [given[key] for key in keys]


def _value(given: Any, slot: Slot, rubric: Rubric) -> str:
    """Return the value of a slot as it is written; fail where it is not one of those that are allowed."""
    value = _unwrapped(given, slot, rubric)
    told = _said(value, slot, rubric)
    if told in slot.values or (told and not rubric.scale):
        return told
    shown = f"{value:g}" if isinstance(value, float) else str(value).strip()[:40]
    allowed = f"one of {', '.join(slot.values)}"
    if rubric.scale:
        allowed = f"a whole number from {slot.values[0]} to {slot.values[-1]}"
    raise _Invalid(f"{slot.name}: {shown!r} is not {allowed}")


def _said(value: Any, slot: Slot, rubric: Rubric) -> str | None:
    """Return the number, on the scale or above it, or the label that a member of an object gives; None if it gives none."""
    text = _label(value) if isinstance(value, str) else ""
    if rubric.scale is None:
        return text if folded(text) in words(rubric, slot.name) else None
    written = _pattern("json_score", rubric).fullmatch(text)
    number = float(written["score"] or written["part"]) if written else value
    is_score = isinstance(number, float) and number >= rubric.scale[0]
    return f"{number:.17g}" if is_score else None


def _unwrapped(given: Any, slot: Slot, rubric: Rubric) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`; the object if it holds another value."""
    key = folded(rubric.key("value"))
    if not key or not isinstance(given, dict):
        return given
    told = {_said(member, slot, rubric) for member in given.values()} - {None}
    is_nested = any(isinstance(member, list | dict) for member in given.values())
    return given if _REPEATED in given or is_nested or len(told) > 1 else given.get(key)


_PREFIX = re.compile(
    filled(r"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?)@mark@gap[:：]", _PARTS), re.I
)


def _read_comma_list(text: str, rubric: Rubric, slots: int, truncated: bool) -> Reading:
    """Read the list on the last line that says anything: a prompt asks for nothing else, and what follows may take it back.

    What stands above may name the criteria if it names all of them in the list's order: else it may tell another order.
    """
    seen = text.translate(SEEN)
    wanted = len(rubric.output_criteria)
    allowed = {folded(word) for word in rubric.choices.values()}
    lists = _listed(seen, allowed)
    last = lists[-1] if lists else []
    if len(last) != wanted:
        raise _Invalid(f"the last line is no list of {wanted} answers")
    answers = {tuple(map(folded, labels)) for labels in lists if len(labels) == wanted}
    if len(answers) > 1:
        raise _Invalid("two lists of answers differ")
    named = [name for name in re.findall(r"\w+", seen.lower()) if name in rubric.output_criteria]
    if named and named[-wanted:] != [*rubric.output_criteria]:
        raise _Invalid("the criteria are named in another order, or some of them alone")
    label = folded(last[-1])
    longer = [word for word in allowed if word.startswith(label) and word != label]
    if truncated and longer:
        raise _Invalid(CUT_OFF)
    return last, None


def _listed(text: str, allowed: set[str]) -> list[list[str]]:
    """Return the labels of each line that says anything; none of one that is not a list of allowed ones."""
    lists = []
    for line in text.split("\n"):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`.#-"))
        if not listed:
            continue
        listed = re.sub(r"\A\[([^\[]*)\]\Z", r"\1", listed)
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        lists.append(labels if allowed.issuperset(map(folded, labels)) else [])
    return lists


def _read_score_first(text: str, rubric: Rubric, slots: int, truncated: bool) -> Reading:
    """Read the score on the first line; what follows is its reason, and holds no other score line."""
    line, stop, reason = text.strip().partition("\n")
    line = line.translate(SEEN)
    if not (header := _HEADER.match(line)):
        raise _Invalid(NO_SCORE_LINE)
    score = _pattern("first_score", rubric).fullmatch(line[header.end() :].strip())
    if not score:
        raise _Invalid(f"the first line {line[:40]!r} is not a score")
    if _HEADER.search(reason.translate(SEEN)):
        raise _Invalid("there are two score lines")
    if truncated and not stop:
        raise _Invalid(CUT_OFF)
    return [score["score"]], reason.strip() or None


def _read_first_line(text: str, rubric: Rubric, slots: int, truncated: bool) -> Reading:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = text.translate(SEEN).lstrip().partition("\n")
    # A label without a line break may be the beginning of something else: "1" of "10".
    if truncated and not stop:
        raise _Invalid(CUT_OFF)
    return [_label(line, "*_`~")], None


_READERS = {
    "score_first": _read_score_first,
    "score_line": _read_score_line,
    "json": _read_json,
    "comma_list": _read_comma_list,
    "first_line": _read_first_line,
}
