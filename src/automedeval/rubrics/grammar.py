"""Write and parse answers in the grammar of a rubric.

`answer_parts` returns the parts of an answer: literal text, free text, and slots with a few allowed values. A local judge
chooses among these values; `format_verdict` fills the parts with known values; `parse_verdict` parses a model's text. Format
and parse are inverse to each other. All values are in slot order, the order in which the responses were shown.

Parsing takes linear time: every repetition in the patterns below is bounded, or is one character class at the start of a line.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from automedeval.models.base import Free, Part, Slot
from automedeval.records.patterns import all_filled, filled
from automedeval.records.thoughts import CONTROL_TOKEN
from automedeval.rubrics.rubric import Rubric
from automedeval.rubrics.values import SEEN, ParsedAnswer, folded, words

NO_SCORE_LINE = "no score line"
CUT_OFF = "the answer was cut off at its token limit"


def answer_parts(rubric: Rubric, slots: int, rationale: bool = True) -> list[Part]:
    """Return the parts of an answer to a prompt that shows `slots` responses, with or without its rationale."""
    rationale = rationale and rubric.rationale
    parts: list[Part] = []
    low, high = rubric.scale or (0, -1)
    values = tuple(map(str, range(low, high + 1)))
    if rubric.grammar == "score_line":
        text = "Score:"
        if rationale:
            parts.append(Free(stop="\nScore"))
            text = "\nScore:"
        for name in _slot_names(rubric, slots):
            parts += [f"{text} {name}: ", Slot(name, values)]
            text = " points."
        return [*parts, text]
    if rubric.grammar == "score_first":
        reason: list[Part] = ["\n", Free(stop="")] if rationale else []
        return ["Score: ", Slot("Score", values), *reason]
    labels = tuple(rubric.choices.values())
    if rubric.grammar == "comma_list":
        for name in rubric.output_criteria:
            parts += [", ", Slot(name, labels)] if parts else [Slot(name, labels)]
        return parts
    if rubric.grammar == "first_line":
        return [Slot(rubric.output_criteria[0], labels), "\n"]
    return _json_parts(rubric, slots, values, rationale)


def _json_parts(rubric: Rubric, slots: int, values: tuple[str, ...], rationale: bool) -> list[Part]:
    """Return the parts of an answer in JSON: the object with a mark in the place of each value, cut at the marks."""
    text_mark, number_mark = "\ue001", "\ue000"
    value_key, choices_key, rationale_key = map(rubric.key, ("value", "choices", "rationale"))
    mark = number_mark if rubric.scale else text_mark
    value: Any = {value_key: mark} if value_key else mark
    answer = dict.fromkeys(rubric.output_criteria, value)
    held: list[Part] = [
        Slot(name, values or tuple(rubric.labels(name).values())) for name in answer
    ]
    if rubric.scores_criteria:
        names = _slot_names(rubric, slots)
        held = [Slot(f"{slot}, {name}", values) for slot, name in product(names, answer)]
        answer = dict.fromkeys(names, answer)
    if choices_key:
        answer = {choices_key: answer}
    if rationale_key and rationale:
        reason, prose = {rationale_key: text_mark}, Free(stop='"', json_string=True)
        fields = list(rubric.output)
        if rubric.sums_up and fields.index("score_key") < fields.index("rationale_key"):
            answer, held = answer | reason, [*held, prose]
        else:
            answer, held = reason | answer, [prose, *held]
    written = json.dumps(answer, ensure_ascii=False)
    first, *others = re.split(f'"{number_mark}"|{text_mark}', written)  # numbers have no quotes
    parts: list[Part] = [first]
    for part, text in zip(held, others, strict=True):
        parts += [part, text]
    return parts


def _slot_names(rubric: Rubric, slots: int) -> list[str]:
    """Return what an answer calls the responses, "Doctor 1", "Doctor 2", …"""
    return [f"{rubric.slot_word} {number}" for number in range(1, slots + 1)]


def answer_form(rubric: Rubric, slots: int, rationale: bool = True) -> str:
    """Return the answer with placeholders in brackets, for a prompt to show."""
    form, choice = "", "verdict" if rubric.key("value") else None
    for part in answer_parts(rubric, slots, rationale):
        if isinstance(part, Slot):
            has_range = rubric.scale and rubric.grammar == "json"
            scale = f"{part.values[0]} to {part.values[-1]}" if has_range else None
            form += f"[{scale or choice or ' or '.join(part.values)}]"
        else:
            form += "[your assessment]" if isinstance(part, Free) else part
    return form


def format_verdict(reading: ParsedAnswer, rubric: Rubric) -> str:
    """Return the text of valid values in the rubric's grammar; `parse_verdict` returns the values again."""
    return _written(reading, rubric)[0]


def answer_columns(reading: ParsedAnswer, rubric: Rubric) -> dict[str, Any]:
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
    text, spans = "", []
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
        return [str(score) for of_slot in zip(*by_criterion) for score in of_slot]
    if reading.scores:
        return [str(score) for score in reading.scores]
    choices = reading.choices or {}
    return [rubric.labels(name)[choices[name]] for name in rubric.output_criteria]


class _Invalid(ValueError):
    """What is wrong with an answer."""


class _TextBehind(_Invalid):
    """Text behind an answer, which may take it back in any words."""


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
        text, truncated = text[: control.start()], False
    if not text.strip():
        return ParsedAnswer(False, "the answer is empty")
    try:
        reading, may_go_on = _READERS[rubric.grammar](text, rubric, slots)
    except _TextBehind as behind:
        if truncated:
            return ParsedAnswer(False, CUT_OFF)
        return ParsedAnswer(False, f"text stands behind the answer: {str(behind)[:40]!r}")
    except _Invalid as wrong:
        return ParsedAnswer(False, str(wrong))
    return ParsedAnswer(False, CUT_OFF) if truncated and may_go_on else reading


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
    for criterion in rubric.criteria:
        own = choices[criterion.name]
        for word, meaning in criterion.values.items():
            bound = re.fullmatch(r"the (\w+) is (.+)", meaning)  # "no harm: the degree is none"
            if bound is None or bound[1] not in choices:
                continue
            if own not in (criterion.values if written else [word]):
                continue
            other = choices[bound[1]]
            if (own == word) != (other == bound[2]):
                error = f"{criterion.name}: {own!r} excludes {bound[1]}: {other!r}"
                return ParsedAnswer(False, error)
    return ParsedAnswer(True, rationale=rationale, choices=choices)


def same_on_every_criterion(scores: Sequence[int], rubric: Rubric) -> ParsedAnswer:
    """Return the answer that gives each response, in slot order, one score, the same on every criterion that it scores."""
    if rubric.scores_criteria:
        return _scored([score for score in scores for _ in rubric.criteria], rubric, None)
    return ParsedAnswer(True, scores=tuple(scores))


def _scored(values: Sequence[int], rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return the parsed answer of scores on several criteria, in the order of `answer_parts`: all of a slot, then the next."""
    count = len(rubric.criteria)
    by_name = {
        name: tuple(values[place::count]) for place, name in enumerate(rubric.output_criteria)
    }
    scores = {criterion.name: by_name[criterion.name] for criterion in rubric.criteria}
    sums = map(sum, zip(*scores.values()))
    means = tuple((2 * total + count) // (2 * count) for total in sums)  # halves upwards
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
        "score_of_slot": r"@score(?!\W{0,3}(?:(?:out )?of|/)\s?\d)@stop",
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
    r"\b\d[\d.,]*(?: of \d+)?\s?(?:mg|mcg|µg|g|kg|ml|l|iu|days?|[a-z]{4,}s)\b", re.I
)
_NO_REASON = re.compile(
    r"[.!。！…]\s|[?？\"“”„«»<>=+→~★☆⭐]|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|zero|half|twice|minus|plus|first|second|third|last|former|latter|"
    r"other|both|scor\w*|points?|pts?|marks?|stars?|rat(?:e|ed|ings?)|rank\w*|grade\w*|scale|verdict|better|best|worse|worst|"
    r"less|more|lower\w*|higher|lowest|highest|equal\w*|same|tie[ds]?|rather|maybe|perhaps|possibly|actually|instead|wait|sorry|"
    r"ignore\w*|disregard\w*|swap\w*|revers\w*|final\w*|draft|example|above|below|correct(?:ion|ed)|reconsider\w*|n/a|"
    r"invert\w*|placeholder|scrap\w*|winner|loser|harsh|generous|typo|mistaken?)\b",
    re.I,
)


@cache
def _compiled(name: str, word: str, highest: int) -> re.Pattern:
    pattern = filled(_PARTS[name], {"word": re.escape(word), "highest": str(highest)})
    return re.compile(pattern, re.I | re.M)


def _pattern(name: str, rubric: Rubric) -> re.Pattern:
    """Return one of the patterns above, for a rubric with a scale."""
    return _compiled(name, rubric.slot_word, rubric.bounds[1])


def _opened(text: str) -> set[str]:
    """Return the tags that a text opens, beside "answer": what ends with "</draft>" may be no answer."""
    return {*re.findall(r"<(\w{1,20})\b", text.translate(SEEN).lower())} - {"answer"}


def _surplus(text: str, opened: set[str]) -> str:
    """Return what stands behind an answer beside Markdown, fences, punctuation and ends of tags not `opened`: nothing may."""

    def kept(tag: re.Match) -> str:
        return tag[0] if tag[1].lower() in opened else ""

    text = re.sub(r"</(\w{1,20})>", kept, text.translate(SEEN))
    return text.strip(" \t\r\n*_`#|-–—.,;:!。，；、")


# What a reader returns: the answer, and whether it may go on, so that it is none if it was cut off.
Reading = tuple[ParsedAnswer, bool]


def _read_score_line(text: str, rubric: Rubric, slots: int) -> Reading:
    """Read the scores behind the last header.

    Beside each of them may stand a reason, on its line; behind them nothing but the same scores again.
    """
    seen = text.translate(SEEN)
    headers = list(_HEADER.finditer(seen)) or list(_INLINE.finditer(seen))
    if not headers:
        raise _Invalid(NO_SCORE_LINE)
    header, opened = headers[-1], _opened(seen)
    first = _pattern("slot", rubric).search(seen, header.end())
    if not first or _surplus(seen[header.end() : first.start()], opened):
        raise _Invalid(f"0 scores for {slots} slots")
    scores: dict[int, int] = {}
    has_reason = set()
    rest = ""
    for number, value, rest in _slot_scores(seen, first.start(), rubric):
        _check_score(number, value, scores, rubric, slots)
        scores[number] = value
        beside, _, below = rest.partition("\n")
        if behind := _surplus(below, opened):
            raise _TextBehind(behind)
        reason = _surplus(beside, opened)
        _check_reason(reason, number)
        has_reason.add(bool(reason))
    if len(scores) < slots:
        raise _Invalid(f"{len(scores)} scores for {slots} slots")
    if len(has_reason) > 1:
        raise _Invalid("a reason stands beside some of the scores alone")
    # A number at the very end may be the beginning of another: "1" of "10", "4." of "4.5".
    may_go_on = re.search(r"[0-9]\.?[*_` \t]*\Z", seen) or rest.strip("*_` \t\r\n")
    in_order = tuple(scores[number] for number in sorted(scores))
    rationale = _written_before(header.start(), text)
    return ParsedAnswer(True, None, rationale, in_order), bool(may_go_on)


class _SlotScore(NamedTuple):
    """The number of a slot, its score, and the text behind it up to the next slot."""

    number: int
    value: int
    rest: str


def _slot_scores(text: str, start: int, rubric: Rubric) -> Iterator[_SlotScore]:
    """Yield the scores of the slots that a text names from a place on."""
    named = list(_pattern("slot", rubric).finditer(text, start))
    stops = [slot.start() for slot in named[1:]] + [len(text)]
    for slot, stop in zip(named, stops):
        number = int(slot[1])
        score = _pattern("score_of_slot", rubric).match(text, slot.end())
        if not score:
            raise _Invalid(f"the score of slot {number} is not a plain whole number")
        yield _SlotScore(number, int(score["score"]), text[score.end() : stop])


def _check_score(
    number: int, value: int, scores: dict[int, int], rubric: Rubric, slots: int
) -> None:
    """Fail where the score of a slot is wrong after those before it."""
    low, high = rubric.bounds
    if not 1 <= number <= slots:
        raise _Invalid(f"a score for slot {number}, of {slots}")
    if scores.get(number, value) != value or (number in scores and len(scores) < slots):
        raise _Invalid(f"slot {number} has two scores")
    if not low <= value <= high:
        raise _Invalid(f"the score {value} is not on the scale {low} to {high}")


def _check_reason(reason: str, number: int) -> None:
    """Fail where the text beside the score of a slot may be more than its reason."""
    if _NO_REASON.search(reason) or any(map(str.isnumeric, _COUNTED.sub("", reason))):
        raise _Invalid(
            f"what stands beside the score of slot {number} may change it: {reason[:40]!r}"
        )


def _written_before(place: int, text: str) -> str | None:
    """Return what is written before a place in the text as it is seen; None if nothing is."""
    places = [at for at, sign in enumerate(text) if SEEN[ord(sign)] is not None]
    return text[: places[place]].strip() or None if place else None


_MOST_OBJECTS = 64  # how many opening braces from the end are tried; keeps hostile text linear
_REPEATED = None  # stands as a key in an object that has a key twice; no key of JSON is None


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str | None, object]:
    """Return the members of an object, with keys as they are compared: a rubric's name may be written in capitals."""
    members: dict[str | None, object] = {folded(key): value for key, value in pairs}
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


def _read_json(text: str, rubric: Rubric, slots: int) -> Reading:
    """Read the last object that answers; nothing but marks may stand behind it."""
    names = _slot_names(rubric, slots) if rubric.scores_criteria else rubric.output_criteria
    choices_key, rationale_key = folded(rubric.key("choices")), folded(rubric.key("rationale"))
    for members, end in reversed(list(_json_objects(text))):
        rationale = members.pop(rationale_key, None) if rationale_key else None
        answers = members.get(choices_key) if choices_key else members
        if not isinstance(answers, dict) or answers.keys().isdisjoint(map(folded, names)):
            continue
        if choices_key:
            _check_keys(members, [choices_key])
        _check_keys(answers, names)
        values = _json_values(answers, rubric)
        if behind := _surplus(text[end:], _opened(text)):
            raise _TextBehind(behind)
        rationale = rationale if isinstance(rationale, str) and rationale else None
        return reading_from_values(values, rubric, rationale, written=True), False
    raise _Invalid("no JSON object with the criteria")


def _check_keys(members: dict, names: Sequence[str], place: str = "") -> None:
    """Fail unless an object has these keys, and no other; `place` stands before the error."""
    if _REPEATED in members:
        raise _Invalid(f"{place}a key stands twice")
    if missing := sorted(name for name in names if folded(name) not in members):
        raise _Invalid(f"{place}no answer on {missing[0]}")
    if surplus := sorted(members.keys() - {*map(folded, names)}):
        raise _Invalid(f"{place}an answer on {surplus[0][:40]!r}, which was not asked")


def _json_values(answers: dict, rubric: Rubric) -> list[str]:
    """Return the values of an object with the right keys, in the order of `answer_parts`."""
    names = rubric.output_criteria
    if not rubric.scores_criteria:
        return [_json_value(answers[folded(name)], rubric, name) for name in names]
    values = []
    for slot in _slot_names(rubric, len(answers)):
        group = answers[folded(slot)]
        if not isinstance(group, dict):
            kind = type(group).__name__
            raise _Invalid(f"{slot}: {kind} instead of an object with the criteria")
        _check_keys(group, names, f"{slot}: ")
        values += [_json_value(group[folded(name)], rubric, name, f"{slot}, ") for name in names]
    return values


def _json_value(value: Any, rubric: Rubric, name: str, place: str = "") -> str:
    """Return what a member of an object gives a criterion; `place` stands before the error."""
    value = _unwrapped(value, rubric, name)
    told = _said(value, rubric, name)
    if isinstance(told, str):
        return told
    if told is not None and told in range(rubric.bounds[0], rubric.bounds[1] + 1):
        return f"{told:.0f}"
    shown = type(value).__name__
    if isinstance(value, str):
        shown = value.strip()[:40]
    if rubric.scale is None:
        allowed = f"one of {', '.join(rubric.labels(name).values())}"
    else:
        shown = f"{value:g}" if isinstance(value, float) else shown
        allowed = f"a whole number from {rubric.bounds[0]} to {rubric.bounds[1]}"
    raise _Invalid(f"{place}{name}: {shown!r} is not {allowed}")


def _said(value: Any, rubric: Rubric, name: str) -> float | str | None:
    """Return the number, on the scale or above it, or the label that a member of an object gives; None if it gives none."""
    text = _label(value) if isinstance(value, str) else ""
    if rubric.scale is None:
        return text if folded(text) in words(rubric, name) else None
    written = _pattern("json_score", rubric).fullmatch(text)
    number = float(written["score"] or written["part"]) if written else value
    return number if isinstance(number, float) and number >= rubric.scale[0] else None


def _unwrapped(value: Any, rubric: Rubric, name: str) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`; not beside another value."""
    key = folded(rubric.key("value"))
    if not key or not isinstance(value, dict) or _REPEATED in value:
        return value
    told = _said(value.get(key), rubric, name)
    for member, other in value.items():
        is_same = not isinstance(other, list | dict)
        is_same = is_same and _said(other, rubric, name) in (None, told)
        if told is not None and not is_same:
            return f"{key} and {member}"
    return value.get(key)


_PREFIX = re.compile(
    filled(r"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?)@mark@gap[:：]", _PARTS), re.I
)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> Reading:
    """Read the list on the last line that says anything: a prompt asks for nothing else, and what follows may take it back.

    What stands above may name the criteria if it names all of them in the list's order: else it may tell another order.
    """
    seen = text.translate(SEEN)
    wanted = len(rubric.output_criteria)
    lists = _listed(seen, {folded(word) for word in rubric.choices.values()})
    last = lists[-1] if lists else []
    if not last:
        raise _Invalid(f"the last line is no list of {wanted} answers")
    if len(last) != wanted:
        raise _Invalid(f"{len(last)} answers for {wanted} criteria")
    for labels in lists:
        if len(labels) == wanted and list(map(folded, labels)) != list(map(folded, last)):
            raise _Invalid("two lists of answers differ")
    named = [name for name in re.findall(r"\w+", seen.lower()) if name in rubric.output_criteria]
    if named and named[-wanted:] != [*rubric.output_criteria]:
        raise _Invalid("the criteria are named in another order, or some of them alone")
    return ParsedAnswer(True, choices=_choices(last, rubric)), False


def _listed(text: str, allowed: set[str]) -> list[list[str]]:
    """Return the labels of each line that says anything; none of one that is not a list of allowed ones."""
    lists = []
    for line in text.split("\n"):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`.#-"))
        if not listed:
            continue
        if listed[0] == "[" and listed[-1] == "]" and listed.count("[") == 1:
            listed = listed[1:-1]
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        is_list = listed and all(folded(label) in allowed for label in labels)
        lists.append(labels if is_list else [])
    return lists


def _read_score_first(text: str, rubric: Rubric, slots: int) -> Reading:
    """Read the score on the first line; what follows is its reason, and holds no other score line."""
    line, stop, reason = text.strip().partition("\n")
    line = line.translate(SEEN)
    if not (header := _HEADER.match(line)):
        raise _Invalid(NO_SCORE_LINE)
    score = _pattern("first_score", rubric).fullmatch(line[header.end() :].strip())
    low, high = rubric.bounds
    if not score or not low <= int(score["score"]) <= high:
        raise _Invalid(f"the first line {line[:40]!r} is not a score from {low} to {high}")
    if _HEADER.search(reason.translate(SEEN)):
        raise _Invalid("there are two score lines")
    return ParsedAnswer(True, None, reason.strip() or None, (int(score["score"]),)), not stop


def _read_first_line(text: str, rubric: Rubric, slots: int) -> Reading:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = text.translate(SEEN).lstrip().partition("\n")
    label = _label(line, "*_`~")
    if folded(label) not in words(rubric, rubric.output_criteria[0]):
        allowed = ", ".join(rubric.choices.values())
        raise _Invalid(f"the first line {label[:40]!r} is not one of {allowed}")
    # Where the output was cut off, a label without a line break may be the beginning of something else: "1" of "10".
    return ParsedAnswer(True, choices=_choices([label], rubric)), not stop


_READERS = {
    "score_first": _read_score_first,
    "score_line": _read_score_line,
    "json": _read_json,
    "comma_list": _read_comma_list,
    "first_line": _read_first_line,
}
