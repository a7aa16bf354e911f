"""Write and parse answers in the grammar of a rubric.

`answer_parts` returns the parts of an answer: literal text, free text, and slots with a few allowed values. A local judge
chooses among these values; `format_verdict` fills the parts with known values; `parse_verdict` parses a model's text. Format
and parse are inverse to each other. All values are in slot order, the order in which the responses were shown.

Parsing takes linear time: every repetition in the patterns below is bounded, or is one character class at the start of a line.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.models.base import CONTROL_TOKEN, Free, Part, Slot
from automedeval.rubrics.rubric import Rubric


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer in slot order: `choices` are "a", "b", "tie" or "neither", `spans` locate the scores in the text.

    `criterion_scores` maps each criterion that an answer scores to the scores of the slots. `scores` are then their means,
    rounded to whole numbers, a half upwards.
    """

    valid: bool
    error: str | None = None
    rationale: str | None = None
    scores: tuple[int, ...] | None = None
    choices: dict[str, str] | None = None
    spans: tuple[tuple[int, int], ...] = ()
    criterion_scores: dict[str, tuple[int, ...]] | None = None


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
    labels = tuple(rubric.choices.values())
    if rubric.grammar == "comma_list":
        for name in rubric.output_criteria:
            parts += [", ", Slot(name, labels)] if parts else [Slot(name, labels)]
        return parts
    if rubric.grammar == "first_line":
        return [Slot(rubric.output_criteria[0], labels), "\n"]
    text = "{"
    if rubric.output.get("rationale_key") and rationale:
        parts += [text + json.dumps(rubric.output["rationale_key"]) + ': "', Free(stop='"', json_string=True)]
        text = '", '
    inner = rubric.output.get("choices_key")
    if inner:
        text += json.dumps(inner) + ": {"
    value_key = rubric.output.get("value_key")
    opening, closing = ('{"' + value_key + '": ', "}") if value_key else ("", "")
    if rubric.scores_criteria:
        for slot in _slot_names(rubric, slots):
            text += json.dumps(slot, ensure_ascii=False) + ": {"
            for name in rubric.output_criteria:
                parts += [f'{text}"{name}": {opening}', Slot(f"{slot}, {name}", values)]
                text = closing + ", "
            text = closing + "}, "
        return [*parts, closing + ("}}}" if inner else "}}")]
    for name in rubric.output_criteria:
        parts += [f'{text}"{name}": {opening}"', Slot(name, tuple(rubric.labels(name).values()))]
        text = f'"{closing}, '
    return [*parts, f'"{closing}' + ("}}" if inner else "}")]


def _slot_names(rubric: Rubric, slots: int) -> list[str]:
    """Return what an answer calls the responses, "Doctor 1", "Doctor 2", …"""
    return [f"{rubric.slot_word} {number}" for number in range(1, slots + 1)]


def answer_form(rubric: Rubric, slots: int, rationale: bool = True) -> str:
    """Return the answer with placeholders in brackets, for a prompt to show."""
    form = ""
    for part in answer_parts(rubric, slots, rationale):
        if isinstance(part, str):
            form += part
        elif isinstance(part, Free):
            form += "[your assessment]"
        elif rubric.scores_criteria:
            form += f"[{part.values[0]} to {part.values[-1]}]"
        else:
            form += "[verdict]" if rubric.output.get("value_key") else f"[{' or '.join(part.values)}]"
    return form


def answer_schema(parts: Sequence[Part]) -> dict[str, Any] | None:
    """Return the JSON schema of a JSON answer with these parts; None for other grammars."""
    if not (isinstance(parts[0], str) and parts[0].startswith("{")):
        return None
    marks: list[Free | Slot] = []
    form = ""
    for part in parts:
        if isinstance(part, str):
            form += part
            continue
        # A value without quotes is a number.
        form += f"\x1f{len(marks)}" if form.endswith('"') else f'"\x1e{len(marks)}"'
        marks.append(part)

    def schema(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            properties = {name: schema(inner) for name, inner in value.items()}
            required = list(properties)
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        mark = marks[int(value[1:])]
        if isinstance(mark, Free):
            return {"type": "string"}
        if value[0] == "\x1e":
            return {"type": "integer", "enum": [int(number) for number in mark.values]}
        return {"type": "string", "enum": list(mark.values)}

    return schema(json.loads(form, strict=False))


def format_verdict(reading: ParsedAnswer, rubric: Rubric) -> str:
    """Return the text of valid values in the rubric's grammar; `parse_verdict` returns the values again."""
    slots = len(reading.scores) if reading.scores else 2
    rationale, scores, choices = reading.rationale or "", reading.criterion_scores or {}, reading.choices or {}
    if rubric.scores_criteria:
        values = [str(scores[name][slot]) for slot in range(slots) for name in rubric.output_criteria]
    elif reading.scores:
        values = [str(score) for score in reading.scores]
    else:
        values = [rubric.labels(name)[choices[name]] for name in rubric.output_criteria]
    text = ""
    for part in answer_parts(rubric, slots, reading.rationale is not None):
        if isinstance(part, Slot):
            text += values.pop(0)
        elif isinstance(part, Free):
            text += json.dumps(rationale, ensure_ascii=False)[1:-1] if part.json_string else rationale
        else:
            text += part
    return text


def parse_verdict(text: str, rubric: Rubric, slots: int = 2, *, truncated: bool = False) -> ParsedAnswer:
    """Parse a model's answer.

    Text after a control token is ignored. The last complete answer counts. A malformed one after it (a slot twice or too many,
    a score off the scale or not a whole number, other scores of all slots) makes the answer invalid; an incomplete one does
    not.

    Args:
        slots: number of responses in the prompt.
        truncated: the output ended at its token limit. Then only an answer at the end of the text counts, because an earlier
            one may be a quotation.

    Returns:
        The parsed answer; if `valid` is False, `error` says why, and there are no scores or choices.
    """
    control = CONTROL_TOKEN.search(text)
    if control:
        text, truncated = text[: control.start()], False
    if not text.strip():
        return ParsedAnswer(False, "the answer is empty")
    read = _READERS[rubric.grammar]
    reading, end = read(text, rubric, slots)
    # A number at the very end may be the beginning of another: "1" of "10", "4." of "4.5".
    number = rubric.grammar == "score_line" and re.search(r"[0-9]\.?[*_`~ \t]*\Z", text)
    if reading.valid and truncated and (number or text[end:].strip("*_`~ \t\r\n")):
        return ParsedAnswer(False, "the answer was cut off at its token limit")
    return reading


def reads_back(text: str, rubric: Rubric, slots: int) -> bool:
    """Return whether an answer parses, and is the text that its parsed values are written as.

    If not, its rationale holds for instance a control token or a second score line, and a model must not learn it.
    """
    parsed = parse_verdict(text, rubric, slots)
    return parsed.valid and format_verdict(parsed, rubric) == text


def reading_from_values(values: list[str], rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return the parsed answer of values that were chosen slot by slot, in the order of `answer_parts`."""
    if rubric.grammar == "score_line":
        return ParsedAnswer(True, rationale=rationale, scores=tuple(int(value) for value in values))
    if rubric.scores_criteria:
        return _scored(list(map(int, values)), rubric, rationale)
    return ParsedAnswer(True, rationale=rationale, choices=_choices(values, rubric))


def same_on_every_criterion(scores: Sequence[int], rubric: Rubric, rationale: str | None = None) -> ParsedAnswer:
    """Return the answer that gives each response, in slot order, one score, the same on every criterion that it scores."""
    if rubric.scores_criteria:
        return _scored([score for score in scores for _ in rubric.criteria], rubric, rationale)
    return ParsedAnswer(True, rationale=rationale, scores=tuple(scores))


def _scored(values: Sequence[int], rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return the parsed answer of scores on several criteria, in the order of `answer_parts`: all of a slot, then the next."""
    count = len(rubric.criteria)
    by_name = {name: tuple(values[place::count]) for place, name in enumerate(rubric.output_criteria)}
    scores = {criterion.name: by_name[criterion.name] for criterion in rubric.criteria}
    means = tuple((2 * sum(of_slot) + count) // (2 * count) for of_slot in zip(*scores.values()))  # halves upwards
    return ParsedAnswer(True, rationale=rationale, scores=means, criterion_scores=scores)


def _words(rubric: Rubric, name: str) -> dict[str, str]:
    return {word.casefold(): choice for choice, word in rubric.labels(name).items()}


def _label(text: str, marks: str = "") -> str:
    """Return a label without the space and marks around it, and without the brackets of its placeholder, "[response_a]"."""
    label = text.strip(" \t\r\n" + marks)
    return label[1:-1].strip() if label.startswith("[") and label.endswith("]") else label


def _choices(labels: list[str], rubric: Rubric) -> dict[str, str]:
    """Return criterion → choice for the words of an answer, in its order."""
    label_of = dict(zip(rubric.output_criteria, labels, strict=True))
    return {each.name: _words(rubric, each.name)[label_of[each.name].casefold()] for each in rubric.criteria}


_BLANKS = {"Zs": " ", "Zl": "\n", "Zp": "\n"}  # by Unicode's category; those of Cf cannot be seen
_MARK = r"[*_`~]{0,4}"
_GAP = r"[ \t]{0,20}"
# "Score:" begins its line, or is a heading alone on it. One character class may precede it.
_HEADER = re.compile(
    rf"^[-+•*#_`~ \t]*(?:final |overall )?scores?{_MARK}{_GAP}(?:[:：]{_MARK}|$)\s{{0,20}}", re.I | re.M
)
# "Step 3: … Score:" after a sentence, as the paper's Figure 8 writes it; `_inline_header` says when it counts.
_INLINE = re.compile(rf"(?<=[.!?…。！？]){_GAP}{_MARK}scores?{_MARK}{_GAP}[:：]{_MARK}{_GAP}", re.I)
# Anything that may be meant as a score, for instance "4.5", "４", "-3" or "four".
_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine|ten"
_NUMBER_LIKE = re.compile(rf"[^\w\n]{{0,4}}(?:\d|[½¼¾⅓⅔]|(?:{_WORDS})\b)", re.I)


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """Return a text with plain blanks and without invisible characters, and the place of each of its characters in the text."""
    if text.isascii():
        return text, range(len(text) + 1)
    kinds = {place: unicodedata.category(letter) for place, letter in enumerate(text) if letter > "\x7f"}
    places = [place for place in range(len(text)) if kinds.get(place) != "Cf"]
    return "".join(_BLANKS.get(kinds.get(place, ""), text[place]) for place in places), [*places, len(text)]


def _read_score_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    problem = "no score line"
    plain, places = _plain(text)
    headers = list(_HEADER.finditer(plain))
    for header in reversed(headers or _inline_header(plain, rubric, slots)):
        scores, end, malformed = _take_scores(plain, header.end(), rubric, slots)
        if malformed:
            return ParsedAnswer(False, malformed), places[end]
        if len(scores) == slots:
            rationale = text[: places[header.start()]].strip() or None
            values = tuple(int(scores[number][1]) for number in sorted(scores))
            if fault := _scored_again(plain, end, rubric, values):
                return ParsedAnswer(False, fault), places[end]
            spans = tuple(
                (places[scores[number].start(1)], places[scores[number].end(1) - 1] + 1) for number in sorted(scores)
            )
            return ParsedAnswer(True, None, rationale, values, spans=spans), places[end]
        problem = f"{len(scores)} scores for {slots} slots"
    return ParsedAnswer(False, problem), len(text)


def _inline_header(text: str, rubric: Rubric, slots: int) -> list[re.Match]:
    """Return the header of scores within a line, if they are the only ones of the text and nothing follows them.

    Anything else may be a quotation: of a response that plants its scores, or of the form.
    """
    headers = list(_INLINE.finditer(text))[-1:]
    if not headers:
        return []
    scores, end, _ = _take_scores(text, headers[0].end(), rubric, slots)
    mentions = _patterns(rubric)[0].finditer(text, 0, headers[0].start())
    alone = not any(_NUMBER_LIKE.match(text, slot.end()) for slot in mentions)
    return headers if len(scores) == slots and alone and not text[end:].strip("*_`~ \t\r\n") else []


def _patterns(rubric: Rubric) -> tuple[re.Pattern, re.Pattern]:
    """Return the patterns of a slot's name, "Doctor 1:", with or without Markdown, and of the score after it."""
    lead = r"(?:(?:[-+•*]|[0-9]{1,2}[.)]|and|&)\s{1,20})?"
    word = rf"{re.escape(rubric.slot_word)}{_GAP}#?([0-9]{{1,4}})"
    slot = re.compile(rf"{lead}{_MARK}{word}{_MARK}{_GAP}[:：=]{_MARK}{_GAP}", re.I)
    # "4 points.", "[[4]]" or "4/5" with the stop after it, which "4.5" and "4/10" do not have
    number = rf"{_MARK}\[{{0,2}}([0-9]{{1,4}})(?:\.0{{1,3}})?\]{{0,2}}{_MARK}"
    out_of = rf"(?:{_GAP}(?:/|out of){_GAP}{rubric.bounds[1]}{_MARK})?(?:{_GAP}(?:points?|pts?))?"
    stop = rf"{_MARK}{_GAP}([。，；、]{_MARK}\s{{0,20}}|[.,;:]?{_MARK}(?:\s{{1,20}}|\Z))"
    return slot, re.compile(rf"{number}{out_of}{stop}", re.I)


def _scored_again(text: str, end: int, rubric: Rubric, values: tuple[int, ...]) -> str | None:
    """Return why it is unclear which scores count: others follow an answer, also in a form that cannot be read; else None.

    Under another heading than of a score line, scores of only some slots may be a quotation, for instance of a demand in a
    response.
    """
    named = re.compile(
        rf"\b{re.escape(rubric.slot_word)}{_GAP}#?([0-9]{{1,4}})\b[^\w\n]{{0,12}}(\d+|(?:{_WORDS})\b)", re.I
    )
    header = _HEADER.search(text, end)
    for slot in named.finditer(text, header.end()) if header else ():
        if 0 < int(slot[1]) <= len(values) and slot[2] != str(values[int(slot[1]) - 1]):
            return "another score line follows, which cannot be read"
    points = re.compile(
        rf"(?:\.0{{1,3}})?{_MARK}(?:{_GAP}(?:points?|pts?)\b|{_GAP}(?:/|out of){_GAP}{rubric.bounds[1]}\b)", re.I
    )
    slot_pattern, score_pattern = _patterns(rubric)
    again = {int(slot[1]): slot[2] for slot in named.finditer(text, end) if points.match(text, slot.end())}
    for slot in slot_pattern.finditer(text, end):
        if score := score_pattern.match(text, slot.end()):
            again[int(slot[1])] = score[1]
    given = [again.get(number) for number in range(1, len(values) + 1)]
    if len(values) > 1 and None not in given and given != list(map(str, values)):
        return "other scores of all slots follow"
    return None


def _take_scores(text: str, position: int, rubric: Rubric, slots: int) -> tuple[dict[int, re.Match], int, str | None]:
    """Return the consecutive scores from `position`, where they end, and what is malformed about them.

    A reason may stand behind each score.
    """
    low, high = rubric.bounds
    slot_pattern, score_pattern = _patterns(rubric)
    scores: dict[int, re.Match] = {}
    number, ended = 0, True
    while slot := slot_pattern.match(text, position):
        number, position = int(slot[1]), slot.end()
        score = score_pattern.match(text, position)
        if not score:
            # Without anything like a number the line is incomplete, for instance because the output was cut off.
            ended = not _NUMBER_LIKE.match(text, position)
            break
        if number in scores:
            return scores, position, f"slot {number} has two scores"
        if not 1 <= number <= slots:
            return scores, position, f"a score for slot {number}, of {slots}"
        if not low <= int(score[1]) <= high:
            return scores, position, f"the score {score[1]} is not on the scale {low} to {high}"
        scores[number], position = score, score.end()
        ended = position == len(text) or any(mark in score[2] for mark in ".。\n")
        if not slot_pattern.match(text, position) and not (ended and len(scores) == slots):
            reason = _reason_end(text, position, score[2], slot_pattern, len(scores) == slots)
            ended, position = ended or reason > position, reason
    return scores, position, None if ended else f"the score of slot {number} is not a plain whole number"


_BEFORE_REASON = re.compile(r"\(|[-–—]{1,2}\s?(?=[^\W\d])|because\b|since\b|as\b", re.I)
# A reason that may be another score: "(or 5)", "maybe 5.", "now 3 points"
_SECOND_SCORE = re.compile(
    rf"\A[^\w\n]{{0,4}}\d|\b(?:\d{{1,3}}|{_WORDS})\s{{0,3}}(?:[.,;)\]/]|points?\b|pts?\b|out of\b|\Z)", re.I
)


def _reason_end(text: str, position: int, stop: str, slot_pattern: re.Pattern, last: bool) -> int:
    """Return where the reason behind a score ends: at the next slot's name, or of the last score at the end of its line.

    `position` if there is none, or it may be another score, or a quotation.
    """
    if not (any(mark in stop for mark in ".,;:。，；、\n") or _BEFORE_REASON.match(text, position)):
        return position
    if last:
        newline = text.find("\n", position, position + _LONGEST_REASON)
        end = len(text) if newline < 0 else newline
    else:
        following = slot_pattern.search(text, position, position + _LONGEST_REASON)
        end = following.start() if following else position
        if following and not re.search(r"(?:[.!?;)。]\s{1,20}|\n[ \t]{0,20})\Z", text[position:end]):
            return position  # within a sentence, or quotation marks
    reason = text[position:end]
    if (
        len(reason) > _LONGEST_REASON
        or _SECOND_SCORE.search(reason)
        or re.search(r"[\"“”«»]|\bscores?\b", reason, re.I)
    ):
        return position
    return end


_LONGEST_REASON = 600
_MOST_OBJECTS = 64  # how many opening braces from the end are tried; keeps hostile text linear
_REPEATED = None  # stands as a key in an object that has a key twice; no key of JSON is None


def _object(pairs: Sequence[tuple[str | None, object]]) -> dict[str | None, object]:
    members: dict[str | None, object] = {**dict(pairs)}
    return members if len(members) == len(pairs) else members | {_REPEATED: True}


# Numbers are never an answer; as floats, long ones are parsed quickly.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, strict=False)


def json_objects(text: str) -> Iterator[tuple[dict, int]]:
    """Yield the outermost JSON objects among the last of a text, with where they end."""
    relaxed = re.sub(r",(?=\s{0,50}[}\]])", " ", text)  # a trailing comma, as some prompts show it
    if not text.isascii():
        kinds = ("Cf", "Zs", "Zl", "Zp")
        relaxed = "".join(" " if unicodedata.category(letter) in kinds else letter for letter in relaxed)
    end = 0
    for match in list(re.finditer(r"\{(?=\s{0,50}\")", text))[-_MOST_OBJECTS:]:
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


def _read_json(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    names = set(_slot_names(rubric, slots) if rubric.scores_criteria else rubric.output_criteria)
    inner, rationale_key = rubric.output.get("choices_key"), rubric.output.get("rationale_key")
    outer = {key for key in (inner, rationale_key) if key} | (set() if inner else names)
    for written, end in reversed(list(json_objects(text))):
        members = _named(written, outer)
        answers = members.get(inner) if inner else {key: members[key] for key in members if key != rationale_key}
        answers = _named(answers, names) if isinstance(answers, dict) else {}
        if not names & answers.keys():
            continue
        if problem := "a key stands twice" if _REPEATED in members else _wrong_keys(answers, names):
            return ParsedAnswer(False, problem), end
        rationale = members.get(rationale_key) if rationale_key else None
        rationale = rationale if isinstance(rationale, str) and rationale else None
        reading = (_json_scores if rubric.scores_criteria else _json_choices)(answers, rubric, rationale)
        if reading.valid and any(
            re.search(rf'"{re.escape(name)}"\s{{0,20}}:', _plain(text[end:])[0], re.I) for name in names
        ):
            return ParsedAnswer(False, "another answer follows, which is no JSON"), end
        return reading, end
    return ParsedAnswer(False, "no JSON object with the criteria"), len(text)


def _named(members: dict[str | None, Any], names: Collection[str]) -> dict[str | None, Any]:
    """Return the members of an object with the rubric's names as keys, which an answer may write in capitals."""
    by_key = {_key(name): name for name in names}
    return _object([(by_key.get(_key(key), key) if key else key, value) for key, value in members.items()])


def _key(name: str) -> str:
    """Return a key as it is compared: capitals, blanks, "-" and "_" make no difference."""
    return re.sub(r"[\s_-]+", " ", _plain(name)[0].strip().casefold())


def _wrong_keys(answers: dict, names: Collection[str]) -> str | None:
    """Return what is wrong with the keys of an object that should have these; None if nothing is."""
    if _REPEATED in answers:
        return "a key stands twice"
    if missing := sorted(names - answers.keys()):
        return f"no answer on {missing[0]}"
    if surplus := sorted(answers.keys() - names):
        return f"an answer on {surplus[0][:40]!r}, which was not asked"
    return None


def _json_value(value: Any, rubric: Rubric) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`."""
    key = rubric.output.get("value_key")
    if key and isinstance(value, dict) and _REPEATED not in (members := _named(value, {key})):
        return members.get(key)
    return value


def _json_choices(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    labels = []
    for name in rubric.output_criteria:
        value = _json_value(answers[name], rubric)
        if not isinstance(value, str) or _label(value).casefold() not in _words(rubric, name):
            shown = value.strip() if isinstance(value, str) else type(value).__name__
            words = ", ".join(rubric.labels(name).values())
            return ParsedAnswer(False, f"{name}: {shown[:40]!r} is not one of {words}")
        labels.append(_label(value))
    return ParsedAnswer(True, rationale=rationale, choices=_choices(labels, rubric))


def _json_scores(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    (low, high), values = rubric.bounds, []
    for slot in _slot_names(rubric, len(answers)):
        if not isinstance(answers[slot], dict):
            return ParsedAnswer(False, f"{slot}: {type(answers[slot]).__name__} instead of an object with the criteria")
        scores = _named(answers[slot], rubric.output_criteria)
        if problem := _wrong_keys(scores, set(rubric.output_criteria)):
            return ParsedAnswer(False, f"{slot}: {problem}")
        for name in rubric.output_criteria:
            value = _json_value(scores[name], rubric)
            # All numbers are read as floats; "4" in quotes is accepted, too.
            label = _label(_plain(value)[0]) if isinstance(value, str) else ""
            plain = re.fullmatch(
                rf"\[?([0-9]{{1,4}})(?:\.0{{1,3}})?\]?(?:\s?(?:/|out of)\s?{high})?(?:\s?points?)?", label, re.I
            )
            number = float(plain[1]) if plain else value
            if not isinstance(number, float) or number not in range(low, high + 1):
                shown = value[:40] if isinstance(value, str) else type(value).__name__
                shown = f"{value:g}" if isinstance(value, float) else shown
                return ParsedAnswer(False, f"{slot}, {name}: {shown!r} is not a whole number from {low} to {high}")
            values.append(int(number))
    return _scored(values, rubric, rationale)


_PREFIX = re.compile(rf"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?){_MARK}{_GAP}[:：]", re.I)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    wanted, allowed = len(rubric.output_criteria), _words(rubric, rubric.output_criteria[0])
    text, places = _plain(text)
    end = len(text)
    after: list[list[str]] = []
    for line in reversed(text.split("\n")):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`~.#-"))
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        if all(label.casefold() in allowed for label in labels):
            if len(labels) != wanted:
                return ParsedAnswer(False, f"{len(labels)} answers for {wanted} criteria"), places[end]
            if any(words != [label.casefold() for label in labels] for words in after):
                return ParsedAnswer(False, "another list of answers follows, which cannot be read"), places[end]
            return ParsedAnswer(True, choices=_choices(labels, rubric)), places[end]
        # "My final answer is: B, B, C, B": words before the first label of a list, and between its labels.
        words = [word.casefold() for word in (_label(labels[0].rpartition(" ")[2]), *labels[1:])]
        after += [words] if sum(word in allowed for word in words) > 1 else []
        end -= len(line) + 1
    return ParsedAnswer(False, f"no line with {wanted} answers"), len(text)


def _read_first_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = _plain(text)[0].lstrip().partition("\n")
    label = _label(line, "*_`~")
    if label.casefold() not in _words(rubric, rubric.output_criteria[0]):
        allowed = ", ".join(rubric.choices.values())
        return ParsedAnswer(False, f"the first line {label[:40]!r} is not one of {allowed}"), len(text)
    # Where the output was cut off, a label without a line break may be the beginning of something else: "1" of "10".
    return ParsedAnswer(True, choices=_choices([label], rubric)), len(text) if stop else 0


_READERS = {
    "score_line": _read_score_line,
    "json": _read_json,
    "comma_list": _read_comma_list,
    "first_line": _read_first_line,
}
