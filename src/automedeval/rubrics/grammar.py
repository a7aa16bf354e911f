"""Write and parse answers in the grammar of a rubric.

`answer_parts` returns the parts of an answer: literal text, free text, and slots with a few allowed values. A local judge
chooses among these values; `format_verdict` fills the parts with known values; `parse_verdict` parses a model's text. Format
and parse are inverse to each other. All values are in slot order, the order in which the responses were shown.

Parsing takes linear time: every repetition in the patterns below is bounded, or is one character class at the start of a line.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from automedeval.models.base import Free, Part, Slot
from automedeval.records.patterns import all_filled, filled
from automedeval.records.thoughts import CONTROL_TOKEN
from automedeval.rubrics.rubric import Rubric
from automedeval.rubrics.values import SEEN, ParsedAnswer, folded, words

NO_SCORE_LINE = "no score line"


def answer_parts(rubric: Rubric, slots: int, rationale: bool = True) -> list[Part]:
    """Return the parts of an answer to a prompt that shows `slots` responses, with or without its rationale."""
    rationale = rationale and rubric.rationale
    parts: list[Part] = []
    low, high = rubric.scale or (0, -1)
    values = tuple(str(value) for value in range(low, high + 1))
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
    value_key, choices_key, rationale_key = _json_keys(rubric)
    mark = number_mark if rubric.scale else text_mark
    by_name = dict.fromkeys(rubric.output_criteria, {value_key: mark} if value_key else mark)
    held: list[Part] = []
    answer: dict[str, Any] = by_name
    if rubric.scores_criteria:
        answer = dict.fromkeys(_slot_names(rubric, slots), by_name)
        for slot in answer:
            held += [Slot(f"{slot}, {name}", values) for name in by_name]
    else:
        held += [Slot(name, values or tuple(rubric.labels(name).values())) for name in by_name]
    if choices_key:
        answer = {choices_key: answer}
    if rationale_key and rationale:
        reason, prose = {rationale_key: text_mark}, Free(stop='"', json_string=True)
        fields = list(rubric.output)
        is_last = rubric.sums_up and fields.index("score_key") < fields.index("rationale_key")
        answer = answer | reason if is_last else reason | answer
        held.insert(len(held) if is_last else 0, prose)
    written = json.dumps(answer, ensure_ascii=False)
    first, *others = re.split(f'"{number_mark}"|{text_mark}', written)  # numbers have no quotes
    parts: list[Part] = [first]
    for part, text in zip(held, others, strict=True):
        parts += [part, text]
    return parts


def _json_keys(rubric: Rubric) -> tuple[str, str, str]:
    """Return the keys of a value, of the choices and of the rationale in a JSON answer; "" for one without such a key."""
    value, choices, rationale = (
        rubric.output.get(key) or "" for key in ("value_key", "choices_key", "rationale_key")
    )
    return value, choices, rationale


def _slot_names(rubric: Rubric, slots: int) -> list[str]:
    """Return what an answer calls the responses, "Doctor 1", "Doctor 2", …"""
    return [f"{rubric.slot_word} {number}" for number in range(1, slots + 1)]


def answer_form(rubric: Rubric, slots: int, rationale: bool = True) -> str:
    """Return the answer with placeholders in brackets, for a prompt to show."""
    form, choice = "", "verdict" if rubric.output.get("value_key") else None
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
    # JSON is decoded as it is written, and a reason behind its score is kept so
    seen = text if rubric.grammar in ("json", "score_first") else text.translate(SEEN)
    reading, behind = _READERS[rubric.grammar](seen, rubric, slots)
    # A number at the very end may be the beginning of another: "1" of "10", "4." of "4.5".
    number = (
        rubric.grammar == "score_line" and reading.valid and re.search(r"[0-9]\.?[*_` \t]*\Z", seen)
    )
    if truncated and (number or behind.strip("*_` \t\r\n")):
        return ParsedAnswer(False, "the answer was cut off at its token limit")
    if reading.scores and reading.rationale and seen is not text:  # as it was written
        places = [at for at, sign in enumerate(text) if SEEN[ord(sign)] is not None]
        reading = replace(reading, rationale=text[: places[len(reading.rationale)]].strip() or None)
    return reading


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
    choices = {}
    for criterion in rubric.criteria:
        choices[criterion.name] = words(rubric, criterion.name)[folded(label_of[criterion.name])]
    return choices


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


def _opened(text: str) -> set[str]:
    """Return the tags that a text opens, beside "answer": what ends with "</draft>" may be no answer."""
    return {*re.findall(r"<(\w{1,20})\b", text.translate(SEEN).lower())} - {"answer"}


def _surplus(text: str, opened: set[str]) -> str:
    """Return what stands behind an answer beside Markdown, fences, punctuation and ends of tags not `opened`: nothing may."""

    def kept(tag: re.Match) -> str:
        return tag[0] if tag[1].lower() in opened else ""

    text = re.sub(r"</(\w{1,20})>", kept, text.translate(SEEN))
    return text.strip(" \t\r\n*_`#|-–—.,;:!。，；、")


def _read_score_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the scores behind the last header.

    Beside each of them may stand a reason, on its line; behind them nothing but the same scores again.
    """
    slot_pattern, score_pattern = _pattern("slot", rubric), _pattern("score_of_slot", rubric)
    headers = list(_HEADER.finditer(text)) or list(_INLINE.finditer(text))
    if not headers:
        return ParsedAnswer(False, NO_SCORE_LINE), ""
    start, opened = headers[-1].end(), _opened(text)
    named = list(slot_pattern.finditer(text, start))
    if not named or _surplus(text[start : named[0].start()], opened):
        return ParsedAnswer(False, f"0 scores for {slots} slots"), ""
    scores: dict[int, int] = {}
    has_reason = set()
    rest = ""
    stops = [slot.start() for slot in named[1:]] + [len(text)]
    for slot, stop in zip(named, stops):
        number, score = int(slot[1]), score_pattern.match(text, slot.end())
        if not score:
            error = f"the score of slot {number} is not a plain whole number"
            return ParsedAnswer(False, error), ""
        value, rest = int(score["score"]), text[score.end() : stop]
        beside, _, below = rest.partition("\n")
        reason, below = _surplus(beside, opened), _surplus(below, opened)
        has_reason.add(bool(reason))
        problem = _wrong_score(number, value, scores, rubric, slots)
        problem = problem or _wrong_beside(number, reason, below)
        if problem:
            return ParsedAnswer(False, problem), below
        scores[number] = value
    if len(scores) < slots:
        return ParsedAnswer(False, f"{len(scores)} scores for {slots} slots"), ""
    if len(has_reason) > 1:
        return ParsedAnswer(False, "a reason stands beside some of the scores alone"), rest
    in_order = tuple(scores[number] for number in sorted(scores))
    return ParsedAnswer(True, None, text[: headers[-1].start()] or None, in_order), rest


def _wrong_score(
    number: int, value: int, scores: dict[int, int], rubric: Rubric, slots: int
) -> str | None:
    """Return what is wrong with the score of a slot after those before it; None if nothing is."""
    low, high = rubric.bounds
    if not 1 <= number <= slots:
        return f"a score for slot {number}, of {slots}"
    if scores.get(number, value) != value or (number in scores and len(scores) < slots):
        return f"slot {number} has two scores"
    if not low <= value <= high:
        return f"the score {value} is not on the scale {low} to {high}"
    return None


def _wrong_beside(number: int, reason: str, below: str) -> str | None:
    """Return what is wrong with the text on the line of a score, and below it; None if nothing is."""
    if below:
        return f"text stands behind the scores: {below[:40]!r}"
    if _NO_REASON.search(reason) or any(map(str.isnumeric, _COUNTED.sub("", reason))):
        return f"what stands beside the score of slot {number} may change it: {reason[:40]!r}"
    return None


@cache
def _compiled(name: str, word: str, highest: int) -> re.Pattern:
    pattern = filled(_PARTS[name], {"word": re.escape(word), "highest": str(highest)})
    return re.compile(pattern, re.I | re.M)


def _pattern(name: str, rubric: Rubric) -> re.Pattern:
    """Return one of the patterns above, for a rubric with a scale."""
    return _compiled(name, rubric.slot_word, rubric.bounds[1])


_MOST_OBJECTS = 64  # how many opening braces from the end are tried; keeps hostile text linear
_REPEATED = None  # stands as a key in an object that has a key twice; no key of JSON is None


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str | None, object]:
    """Return the members of an object, with keys as they are compared: a rubric's name may be written in capitals."""
    members: dict[str | None, object] = {folded(key): value for key, value in pairs}
    return members if len(members) == len(pairs) else members | {_REPEATED: True}


# Numbers are never an answer; as floats, long ones are parsed quickly.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, strict=False)


def json_objects(text: str) -> Iterator[tuple[dict, int]]:
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


def _read_json(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    names = _slot_names(rubric, slots) if rubric.scores_criteria else rubric.output_criteria
    _, choices_key, rationale_key = map(folded, _json_keys(rubric))
    for members, end in reversed(list(json_objects(text))):
        rationale = members.pop(rationale_key, None) if rationale_key else None
        answers = members.get(choices_key) if choices_key else members
        if not isinstance(answers, dict) or answers.keys().isdisjoint(map(folded, names)):
            continue
        problem = _wrong_keys(members, [choices_key]) if choices_key else None
        problem = problem or _wrong_keys(answers, names)
        if problem:
            return ParsedAnswer(False, problem), ""
        has_rationale = isinstance(rationale, str) and rationale
        reading = _json_answers(answers, rubric, rationale if has_rationale else None)
        behind = _surplus(text[end:], _opened(text))
        if reading.valid and behind:
            return ParsedAnswer(False, f"text stands behind the answer: {behind[:40]!r}"), behind
        return reading, ""
    return ParsedAnswer(False, "no JSON object with the criteria"), ""


def _wrong_keys(members: dict, names: Sequence[str]) -> str | None:
    """Return what is wrong with the keys of an object that should have these; None if nothing is."""
    if _REPEATED in members:
        return "a key stands twice"
    if missing := sorted(name for name in names if folded(name) not in members):
        return f"no answer on {missing[0]}"
    if surplus := sorted(members.keys() - {*map(folded, names)}):
        return f"an answer on {surplus[0][:40]!r}, which was not asked"
    return None


def _said(value: Any, rubric: Rubric, name: str) -> float | str | None:
    """Return the number, on the scale or above it, or the label that a member of an object gives; None if it gives none."""
    text = _label(value) if isinstance(value, str) else ""
    if rubric.scale is None:
        return text if folded(text) in words(rubric, name) else None
    written = _pattern("json_score", rubric).fullmatch(text)
    number = float(written["score"] or written["part"]) if written else value
    return number if isinstance(number, float) and number >= rubric.scale[0] else None


def _json_value(value: Any, rubric: Rubric, name: str) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`; not beside another value."""
    key = folded(_json_keys(rubric)[0])
    if not key or not isinstance(value, dict) or _REPEATED in value:
        return value
    told = _said(value.get(key), rubric, name)
    for member, other in value.items():
        is_same = not isinstance(other, list | dict)
        is_same = is_same and _said(other, rubric, name) in (None, told)
        if told is not None and not is_same:
            return f"{key} and {member}"
    return value.get(key)


def _json_answers(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return what an object with the right keys says: a word for each criterion, or a score of each response on each."""
    groups = {"": answers}
    if rubric.scores_criteria:
        groups = {slot: answers[folded(slot)] for slot in _slot_names(rubric, len(answers))}
    values = []
    for slot, group in groups.items():
        if not isinstance(group, dict):
            kind = type(group).__name__
            return ParsedAnswer(False, f"{slot}: {kind} instead of an object with the criteria")
        if problem := _wrong_keys(group, rubric.output_criteria):
            return ParsedAnswer(False, f"{slot}: {problem}" if slot else problem)
        for name in rubric.output_criteria:
            value = _json_value(group[folded(name)], rubric, name)
            told = _said(value, rubric, name)
            if isinstance(told, float):
                low, high = rubric.bounds
                told = f"{told:.0f}" if told in range(low, high + 1) else None
            if told is None:
                place = f"{slot}, {name}" if slot else name
                return ParsedAnswer(False, f"{place}: {_not_wanted(value, rubric, name)}")
            values.append(told)
    return reading_from_values(values, rubric, rationale, written=True)


def _not_wanted(value: Any, rubric: Rubric, name: str) -> str:
    """Return that a value in JSON is none that a criterion allows."""
    shown = type(value).__name__
    if isinstance(value, str):
        shown = value.strip()[:40]
    if rubric.scale is None:
        return f"{shown!r} is not one of {', '.join(rubric.labels(name).values())}"
    if isinstance(value, float):
        shown = f"{value:g}"
    return f"{shown!r} is not a whole number from {rubric.bounds[0]} to {rubric.bounds[1]}"


_PREFIX = re.compile(
    filled(r"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?)@mark@gap[:：]", _PARTS), re.I
)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the list on the last line that says anything: a prompt asks for nothing else, and what follows may take it back.

    What stands above may name the criteria if it names all of them in the list's order: else it may tell another order.
    """
    wanted = len(rubric.output_criteria)
    lists = _listed(text, {folded(word) for word in rubric.choices.values()})
    last = lists[-1] if lists else []
    if not last:
        return ParsedAnswer(False, f"the last line is no list of {wanted} answers"), ""
    if len(last) != wanted:
        return ParsedAnswer(False, f"{len(last)} answers for {wanted} criteria"), ""
    for labels in lists:
        if len(labels) == wanted and list(map(folded, labels)) != list(map(folded, last)):
            return ParsedAnswer(False, "two lists of answers differ"), ""
    named = [name for name in re.findall(r"\w+", text.lower()) if name in rubric.output_criteria]
    if named and named[-wanted:] != [*rubric.output_criteria]:
        error = "the criteria are named in another order, or some of them alone"
        return ParsedAnswer(False, error), ""
    return ParsedAnswer(True, choices=_choices(last, rubric)), ""


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


def _read_score_first(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the score on the first line; what follows is its reason, and holds no other score line."""
    line, stop, reason = text.strip().partition("\n")
    line = line.translate(SEEN)
    if not (header := _HEADER.match(line)):
        return ParsedAnswer(False, NO_SCORE_LINE), ""
    score = _pattern("first_score", rubric).fullmatch(line[header.end() :].strip())
    low, high = rubric.bounds
    if not score or not low <= int(score["score"]) <= high:
        told = f"the first line {line[:40]!r} is not a score from {low} to {high}"
        return ParsedAnswer(False, told), ""
    if _HEADER.search(reason.translate(SEEN)):
        return ParsedAnswer(False, "there are two score lines"), ""
    reading = ParsedAnswer(True, None, reason.strip() or None, (int(score["score"]),))
    return reading, "" if stop else line


def _read_first_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = text.lstrip().partition("\n")
    label = _label(line, "*_`~")
    if folded(label) not in words(rubric, rubric.output_criteria[0]):
        allowed = ", ".join(rubric.choices.values())
        return ParsedAnswer(False, f"the first line {label[:40]!r} is not one of {allowed}"), ""
    # Where the output was cut off, a label without a line break may be the beginning of something else: "1" of "10".
    return ParsedAnswer(True, choices=_choices([label], rubric)), "" if stop else line


_READERS = {
    "score_first": _read_score_first,
    "score_line": _read_score_line,
    "json": _read_json,
    "comma_list": _read_comma_list,
    "first_line": _read_first_line,
}
