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
from typing import Any

from automedeval.models.base import Free, Part, Slot
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
    """Return the parts of an answer in JSON: the object with marks in the place of its values, cut there."""
    mark, value_key = (
        "\ue000" if rubric.scores_criteria else "\ue001",
        rubric.output.get("value_key"),
    )
    by_name: dict[str, Any] = dict.fromkeys(
        rubric.output_criteria, {value_key: mark} if value_key else mark
    )
    answer: dict[str, Any] = (
        dict.fromkeys(_slot_names(rubric, slots), by_name) if rubric.scores_criteria else by_name
    )
    answer = {rubric.output["choices_key"]: answer} if rubric.output.get("choices_key") else answer
    if rubric.scores_criteria:
        places = [
            (f"{slot}, {name}", values)
            for slot in _slot_names(rubric, slots)
            for name in rubric.output_criteria
        ]
    else:
        places = [(name, tuple(rubric.labels(name).values())) for name in rubric.output_criteria]
    held: list[Part] = [Slot(*place) for place in places]
    if rubric.output.get("rationale_key") and rationale:
        answer = {rubric.output["rationale_key"]: "\ue001", **answer}
        held.insert(0, Free(stop='"', json_string=True))
    first, *others = re.split(
        '"\ue000"|\ue001', json.dumps(answer, ensure_ascii=False)
    )  # numbers stand in no quotes
    return [first, *(part for pair in zip(held, others, strict=True) for part in pair)]


def _slot_names(rubric: Rubric, slots: int) -> list[str]:
    """Return what an answer calls the responses, "Doctor 1", "Doctor 2", …"""
    return [f"{rubric.slot_word} {number}" for number in range(1, slots + 1)]


def answer_form(rubric: Rubric, slots: int, rationale: bool = True) -> str:
    """Return the answer with placeholders in brackets, for a prompt to show."""
    form, choice = "", "verdict" if rubric.output.get("value_key") else None
    for part in answer_parts(rubric, slots, rationale):
        if isinstance(part, Slot):
            scale = f"{part.values[0]} to {part.values[-1]}" if rubric.scores_criteria else None
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
    rationale, scores, choices = (
        reading.rationale or "",
        reading.criterion_scores or {},
        reading.choices or {},
    )
    if rubric.scores_criteria:
        values = [
            str(scores[name][slot]) for slot in range(slots) for name in rubric.output_criteria
        ]
    elif reading.scores:
        values = [str(score) for score in reading.scores]
    else:
        values = [rubric.labels(name)[choices[name]] for name in rubric.output_criteria]
    text, spans = "", []
    for part in answer_parts(rubric, slots, reading.rationale is not None):
        if isinstance(part, Slot):
            spans.append([len(text), len(text) + len(values[0])])
            text += values.pop(0)
        elif isinstance(part, Free):
            text += (
                json.dumps(rationale, ensure_ascii=False)[1:-1] if part.json_string else rationale
            )
        else:
            text += part
    return text, spans


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
            if (
                not bound
                or (said := choices.get(bound[1])) is None
                or own not in (criterion.values if written else [word])
            ):
                continue
            if (own == word) != (said == bound[2]):
                return ParsedAnswer(
                    False, f"{criterion.name}: {own!r} excludes {bound[1]}: {said!r}"
                )
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
    means = tuple(
        (2 * sum(of_slot) + count) // (2 * count) for of_slot in zip(*scores.values())
    )  # halves upwards
    return ParsedAnswer(True, rationale=rationale, scores=means, criterion_scores=scores)


def _label(text: str, marks: str = "") -> str:
    """Return a label without the space and marks around it, and without the brackets of its placeholder, "[response_a]"."""
    label = text.translate(SEEN).strip(" \t\r\n" + marks)
    return _label(label[1:-1], marks) if label.startswith("[") and label.endswith("]") else label


def _choices(labels: list[str], rubric: Rubric) -> dict[str, str]:
    """Return criterion → choice for the words of an answer, in its order."""
    label_of = dict(zip(rubric.output_criteria, labels, strict=True))
    return {
        each.name: words(rubric, each.name)[folded(label_of[each.name])] for each in rubric.criteria
    }


_MARK = r"[*_`]{0,4}"
_GAP = r"[ \t]{0,20}"
# "Score:" begins its line, or is a heading alone on it. One character class may precede it.
_HEADER = re.compile(
    rf"^[-+•*#_`~ \t]*(?:final |overall )?scores?{_MARK}{_GAP}(?:[:：]{_MARK}|$)", re.I | re.M
)
# "Step 3: … Score:" after a sentence, as the paper's Figure 8 writes it; it counts where no line begins with "Score:".
_INLINE = re.compile(rf"(?<=[.!?…。！？]){_GAP}{_MARK}scores?{_MARK}{_GAP}[:：]{_MARK}{_GAP}", re.I)
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
    text = re.sub(
        r"</(\w{1,20})>", lambda tag: tag[0] * (tag[1].lower() in opened), text.translate(SEEN)
    )
    return text.strip(" \t\r\n*_`#|-–—.,;:!。，；、")


def _read_score_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the scores behind the last header.

    Beside each of them may stand a reason, on its line; behind them nothing but the same scores again.
    """
    slot_pattern, score_pattern = _patterns(rubric)
    headers = [*_HEADER.finditer(text)] or [*_INLINE.finditer(text)]
    if not headers:
        return ParsedAnswer(False, NO_SCORE_LINE), ""
    start, opened = headers[-1].end(), _opened(text)
    found, scores, reasons, rest = (
        [*slot_pattern.finditer(text, start)],
        dict[int, int](),
        set[bool](),
        "",
    )
    if not found or _surplus(text[start : found[0].start()], opened):
        return ParsedAnswer(False, f"0 scores for {slots} slots"), ""
    for slot, stop in zip(found, [*(each.start() for each in found[1:]), len(text)]):
        number, score = int(slot[1]), score_pattern.match(text, slot.end())
        if not score:
            return ParsedAnswer(
                False, f"the score of slot {number} is not a plain whole number"
            ), ""
        value, rest = int(score["score"]), text[score.end() : stop]
        reason, below = (_surplus(part, opened) for part in rest.partition("\n")[::2])
        reasons.add(bool(reason))
        problem = _wrong_score(number, value, scores, rubric, slots)
        problem = problem or _wrong_beside(number, reason, below)
        if problem:
            return ParsedAnswer(False, problem), below
        scores[number] = value
    if len(scores) < slots:
        return ParsedAnswer(False, f"{len(scores)} scores for {slots} slots"), ""
    if len(reasons) > 1:
        return ParsedAnswer(False, "a reason stands beside some of the scores alone"), rest
    told = tuple(scores[number] for number in sorted(scores))
    return ParsedAnswer(True, None, text[: headers[-1].start()] or None, told), rest


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


def _patterns(rubric: Rubric) -> tuple[re.Pattern, re.Pattern]:
    """Return the patterns of a slot's name, "Doctor 1:", with or without Markdown, and of the score after it."""
    lead = r"(?:(?:[-+•*]|^[ \t]{0,20}[0-9]{1,2}[.)]|and|&)\s{1,20})?"
    word = rf"{re.escape(rubric.slot_word)}[ \t_-]{{0,20}}#?([0-9]{{1,4}})"
    dash = r"[ \t]{1,20}[\u2010-\u2015\u2212-]{1,2}[ \t]{1,20}"
    slot = rf"{lead}{_MARK}{word}{_MARK}(?:{_GAP}[:：=]{_MARK}{_GAP}|{dash})"
    # The score is set apart: "4." and "4 (clear)", not "4.5", "4/10", "4 (out of 10)" and "4 red flags".
    apart = rf"[ \t]{{1,20}}(?=[^\w\s]|(?:as|because|since)\b|(?:and )?{rubric.slot_word})"
    stop = (
        rf"{_MARK}{_GAP}(?:[。，；、]|[.,;:!]{_MARK}(?=[\s<]|\Z)|[ \t]{{0,20}}(?=\r?\n|\Z)|{apart})"
    )
    other_scale = r"(?!\W{0,3}(?:(?:out )?of|/)\s?\d)"
    return re.compile(slot, re.I | re.M), re.compile(_score(rubric) + other_scale + stop, re.I)


def _score(rubric: Rubric) -> str:
    """Return the pattern of a score: "4", "4.0", "**4** points", "4/5", "4 (out of 5)", "(4)" or "[[4]]"."""
    number = r"(?:(?P<open>\[{1,2})|(?P<round>\())?(?P<score>[0-9]{1,4})(?:[.,]0{1,2}(?![0-9]))?(?(open)\]{1,2})(?(round)\))"
    out_of = rf"(?:{_GAP}\(?(?:/|(?:out )?of\b){_GAP}{rubric.bounds[1]}{_MARK}\)?)?"
    return rf"{_MARK}{number}{_MARK}{out_of}(?:{_GAP}(?:points?|pts?|stars?)\b{out_of})?"


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
    end = 0
    for match in list(re.finditer(r"\{(?=\s{0,50}\")", relaxed))[-_MOST_OBJECTS:]:
        if match.start() < end:
            continue
        for version in (text, relaxed):
            try:
                members, end = _DECODER.raw_decode(version, match.start())
            except json.JSONDecodeError as error:
                end = max(end, error.pos)  # objects inside a broken object are no answers
            except RecursionError:
                return
            else:
                yield members, end
                break


def _read_json(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    names = _slot_names(rubric, slots) if rubric.scores_criteria else rubric.output_criteria
    inner, rationale_key = (
        folded(rubric.output.get(key) or "") for key in ("choices_key", "rationale_key")
    )
    for members, end in reversed(list(json_objects(text))):
        rationale = members.pop(rationale_key, None) if rationale_key else None
        answers = members.get(inner) if inner else members
        if not isinstance(answers, dict) or answers.keys().isdisjoint(map(folded, names)):
            continue
        if problem := (inner and _wrong_keys(members, [inner])) or _wrong_keys(answers, names):
            return ParsedAnswer(False, problem), ""
        reading = _json_answers(
            answers, rubric, rationale if isinstance(rationale, str) and rationale else None
        )
        if reading.valid and (behind := _surplus(text[end:], _opened(text))):
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
    written = re.fullmatch(rf"{_score(rubric)}|(?P<part>[0-9]{{1,4}}\.[0-9]{{1,4}})", text, re.I)
    number = float(written["score"] or written["part"]) if written else value
    return number if isinstance(number, float) and number >= rubric.scale[0] else None


def _json_value(value: Any, rubric: Rubric, name: str) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`; not beside another value."""
    key = folded(rubric.output.get("value_key") or "")
    if not key or not isinstance(value, dict) or _REPEATED in value:
        return value
    told = _said(value.get(key), rubric, name)
    for each, other in value.items():
        if told is not None and (
            isinstance(other, list | dict) or _said(other, rubric, name) not in (None, told)
        ):
            return f"{key} and {each}"
    return value.get(key)


def _json_answers(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return what an object with the right keys says: a word for each criterion, or a score of each response on each."""
    values, scored = [], rubric.scores_criteria
    for slot in _slot_names(rubric, len(answers)) if scored else [""]:
        group, before = answers[folded(slot)] if scored else answers, f"{slot}: " if scored else ""
        if not isinstance(group, dict):
            return ParsedAnswer(
                False, f"{before}{type(group).__name__} instead of an object with the criteria"
            )
        if problem := _wrong_keys(group, rubric.output_criteria):
            return ParsedAnswer(False, f"{before}{problem}")
        for name in rubric.output_criteria:
            value = _json_value(group[folded(name)], rubric, name)
            told, (low, high) = _said(value, rubric, name), rubric.scale or (0, 0)
            if told is None or (isinstance(told, float) and told not in range(low, high + 1)):
                wanted = "one of " + ", ".join(rubric.labels(name).values())
                wanted = f"a whole number from {low} to {high}" if scored else wanted
                shown = (
                    f"{value:g}" if scored and isinstance(value, float) else type(value).__name__
                )
                shown = value.strip()[:40] if isinstance(value, str) else shown
                return ParsedAnswer(
                    False, f"{slot + ', ' if scored else ''}{name}: {shown!r} is not {wanted}"
                )
            values.append(f"{told:.0f}" if isinstance(told, float) else told)
    return reading_from_values(values, rubric, rationale, written=True)


_PREFIX = re.compile(
    rf"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?){_MARK}{_GAP}[:：]", re.I
)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the list on the last line that says anything: a prompt asks for nothing else, and what follows may take it back.

    What stands above may name the criteria if it names all of them in the list's order: else it may tell another order.
    """
    wanted, allowed, lists = (
        len(rubric.output_criteria),
        {*map(folded, rubric.choices.values())},
        [],
    )
    for line in text.split("\n"):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`.#-"))
        listed = (
            listed[1:-1] if listed[:1] + listed[-1:] == "[]" and listed.count("[") == 1 else listed
        )
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        if listed:
            lists.append(labels if all(folded(label) in allowed for label in labels) else [])
    last = lists[-1] if lists else []
    if len(last) != wanted:
        told = (
            f"{len(last)} answers for {wanted} criteria"
            if last
            else f"the last line is no list of {wanted} answers"
        )
        return ParsedAnswer(False, told), ""
    if any(len(each) == wanted and [*map(folded, each)] != [*map(folded, last)] for each in lists):
        return ParsedAnswer(False, "two lists of answers differ"), ""
    named = [name for name in re.findall(r"\w+", text.lower()) if name in rubric.output_criteria]
    if named and named[-wanted:] != [*rubric.output_criteria]:
        return ParsedAnswer(
            False, "the criteria are named in another order, or some of them alone"
        ), ""
    return ParsedAnswer(True, choices=_choices(last, rubric)), ""


def _read_score_first(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, str]:
    """Read the score on the first line; what follows is its reason, and holds no other score line."""
    line, stop, reason = text.strip().partition("\n")
    line = line.translate(SEEN)
    if not (header := _HEADER.match(line)):
        return ParsedAnswer(False, NO_SCORE_LINE), ""
    score = re.fullmatch(_score(rubric) + r"\.?", line[header.end() :].strip(), re.I)
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
