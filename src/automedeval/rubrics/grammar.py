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
from dataclasses import dataclass, replace
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

    Text after a control token is ignored, and so are invisible characters; every blank is a plain one. The last complete answer
    counts. One after it that is malformed (a slot twice or too many, a score off the scale or not a whole number), has other
    scores of all slots or cannot be read makes the answer invalid; an incomplete one does not.

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
    seen, places = (text, range(len(text) + 1)) if rubric.grammar == "json" else _as_seen(text)
    reading, end = _READERS[rubric.grammar](seen, rubric, slots)
    end = places[end]
    if rubric.grammar == "score_line" and reading.valid:
        rationale = text[: places[len(reading.rationale or "")]].strip() or None
        spans = tuple((places[start], places[stop - 1] + 1) for start, stop in reading.spans)
        reading = replace(reading, rationale=rationale, spans=spans)
    # A number at the very end may be the beginning of another: "1" of "10", "4." of "4.5".
    number = rubric.grammar == "score_line" and re.search(r"[0-9]\.?[*_`~ \t]*\Z", text)
    if reading.valid and truncated and (number or text[end:].strip("*_`~ \t\r\n")):
        return ParsedAnswer(False, "the answer was cut off at its token limit")
    return reading


class _Seen(dict[int, str | None]):
    """What a reader sees of each character: nothing of an invisible one, a plain blank for every blank, and line breaks."""

    def __missing__(self, letter: int) -> str | None:
        kind, name = unicodedata.category(chr(letter)), unicodedata.name(chr(letter), "")
        kept = {"Cf": None, "Cc": None, "Me": None, "Zs": " ", "Zl": "\n", "Zp": "\n"}.get(kind, chr(letter))
        invisible = (
            name.startswith("VARIATION SELECTOR") or name.endswith("FILLER") or name == "COMBINING GRAPHEME JOINER"
        )
        self[letter] = None if invisible else chr(letter) if chr(letter) in "\t\n\r" else kept
        return self[letter]


_SEEN = _Seen()


def _as_seen(text: str) -> tuple[str, Sequence[int]]:
    """Return a text as a reader sees it, and where in the text each of its characters stands, and its end."""
    seen = text.translate(_SEEN)
    if len(seen) == len(text):
        return seen, range(len(text) + 1)
    return seen, [*(place for place, letter in enumerate(text) if _SEEN[ord(letter)] is not None), len(text)]


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


def _key(text: str) -> str:
    """Return what keys and labels of an answer are compared by: capitals, blanks and "_" make no difference."""
    return re.sub(r"[\s_-]+|(?<=[a-z])(?=[A-Z0-9])", "_", text.translate(_SEEN).strip()).casefold()


def _words(rubric: Rubric, name: str) -> dict[str, str]:
    words = {_key(word): choice for choice, word in rubric.labels(name).items()}
    return {f"response_{word}": choice for word, choice in words.items()} | words


def _label(text: str, marks: str = "") -> str:
    """Return a label without the space and marks around it, and without the brackets of its placeholder, "[response_a]"."""
    label = text.translate(_SEEN).strip(" \t\r\n" + marks)
    return _label(label[1:-1], marks) if label.startswith("[") and label.endswith("]") else label


def _choices(labels: list[str], rubric: Rubric) -> dict[str, str]:
    """Return criterion → choice for the words of an answer, in its order."""
    label_of = dict(zip(rubric.output_criteria, labels, strict=True))
    return {each.name: _words(rubric, each.name)[_key(label_of[each.name])] for each in rubric.criteria}


_MARK = r"[*_`~]{0,4}"
_GAP = r"[ \t]{0,20}"
_JOIN = r"[ \t_-]{0,20}"  # "Doctor 1", "Doctor_1"
# "Score:" begins its line, or is a heading alone on it. One character class may precede it.
_HEADER = re.compile(
    rf"^[-+•*#_`~ \t]*(?:final |overall )?scores?{_MARK}{_GAP}(?:[:：]{_MARK}|$)\s{{0,20}}", re.I | re.M
)
# "Step 3: … Score:" after a sentence, as the paper's Figure 8 writes it; `_inline_header` says when it counts.
_INLINE = re.compile(rf"(?<=[.!?…。！？]){_GAP}{_MARK}scores?{_MARK}{_GAP}[:：]{_MARK}{_GAP}", re.I)
# Anything that may be meant as a score, for instance "4.5", "４", "-3" or "four".
_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine|ten"
_FIGURE = rf"(?:\d|[½¼¾⅓⅔①-⑩➀-➓★☆⭐]|\b(?:{_WORDS})\b)"
_NUMBER_LIKE = re.compile(rf"[^\w\n]{{0,4}}{_FIGURE}", re.I)
# What a judge says before it takes a score back.
_CORRECTED = re.compile(
    r"\b(?:(?:revis|reconsider|lower|rais|downgrad|upgrad|reduc|chang)(?:e|ed|ing|ion)?|correct(?:ed|ing|ion)|actually"
    r"|on reflection|on second thought|sorry|edit|update|instead|meant"
    r"|should (?:be|get|receive|score|have (?:been|received|scored|[0-9])))\b",
    re.I,
)
# What it says before it takes a choice back: labels stand in any sentence about the responses.
_CHANGED = (
    r"^\W*(?:correct(?:ed|ion)|revis(?:ed|ion)|actually|on (?:reflection|second thought)|sorry|edit|update|wait)\b.*"
    r"|\bshould (?:be|read)|\b(?:change|correct|revise)\b.{1,60}\bto|\bi meant"
)
_QUOTED = re.compile("[\"“„«`]|\\B'|^\\s*>")
# A heading above scores, and a score that stands alone in its cell or behind its colon.
_HEADING = re.compile(
    r"^[^\w\n]{0,8}(?:[\w’']{1,20} ){0,4}(?:score|rating|correct|revis)[^\n:]{0,40}[:\n]", re.I | re.M
)
_CELL = re.compile(r"(?:^|[|:=,])[^\w\n|:=,]{0,6}(\d+(?:\.\d+)?)(?:\s?/\s?\d+| points?)?[^\w\n|,]{0,6}(?=$|[|,])", re.M)
# Other things that have numbers: "step 2", "type 1", "all 3".
_NUMBERED = re.compile(r"(?<!\d )\b(?:step|type|stage|criteri(?:on|a)|all|of the) \d+(?: and \d+)?(?![\w/.,]\d)", re.I)
# A number in a reason that may be another score: "or rather 3", not "misses 2 warnings".
_RIVAL = re.compile(
    rf"(?<![\w.,/])(?:[0-9](?:[.,]5)?|[½¼¾⅓⅔]|{_WORDS.replace('|one', '')})(?![\w/]|[.,][0-9])"
    r"(?!\s(?!(?:points?|stars?|or|if|for|but|would|is|of\s[0-9]+(?!\s[^\W\d])|out|because|since|and|to|as|at|instead"
    r"|rather|when|with|was)\b)[^\W\d])",
    re.I,
)


def _read_score_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    problem, unread, later = "no score line", False, dict[int, str]()
    headers = list(_HEADER.finditer(text))
    for header in reversed(headers or _inline_header(text, rubric, slots)):
        scores, end, malformed = _take_scores(text, header.end(), rubric, slots)
        if malformed:
            return ParsedAnswer(False, malformed), end
        if len(scores) == slots:
            values = tuple(int(scores[number]["score"]) for number in sorted(scores))
            if unread or any(int(told) != values[number - 1] for number, told in later.items()):
                return ParsedAnswer(False, "another score line follows, which cannot be read"), end
            if _scored_again(text, end, rubric, values):
                return ParsedAnswer(False, "other scores follow"), end
            spans = tuple(scores[number].span("score") for number in sorted(scores))
            return ParsedAnswer(True, None, text[: header.start()], values, spans=spans), end
        problem = f"{len(scores)} scores for {slots} slots"
        later |= {number: score["score"] for number, score in scores.items()}
        line = text[end if scores else header.end() :].partition("\n")[0]
        unread = unread or bool(re.search(_FIGURE, _unnamed(line, rubric), re.I))
    return ParsedAnswer(False, problem), len(text)


def _unnamed(text: str, rubric: Rubric) -> str:
    """Return a text without the names of slots and other things, whose numbers are no scores."""
    return _NUMBERED.sub("it", re.sub(_named_slot(rubric), "", text, flags=re.I))


def _named_slot(rubric: Rubric) -> str:
    return rf"\b{re.escape(rubric.slot_word)}s?{_JOIN}#?([0-9]{{1,4}})\b"


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
    word = rf"{re.escape(rubric.slot_word)}{_JOIN}#?([0-9]{{1,4}})"
    dash = r"[ \t]{1,20}[\u2010-\u2015\u2212-]{1,2}[ \t]{1,20}"
    slot = re.compile(rf"{lead}{_MARK}{word}{_MARK}(?:{_GAP}[:：=]{_MARK}{_GAP}|{dash})", re.I)
    # the stop after a score, which "4.5" and "4/10" do not have
    stop = rf"{_MARK}{_GAP}(?P<stop>[。，；、]{_MARK}\s{{0,20}}|[.,;:!]?{_MARK}(?:\s{{1,20}}|\Z))"
    return slot, re.compile(_score(rubric) + stop, re.I)


def _score(rubric: Rubric) -> str:
    """Return the pattern of a score: "4", "4.0", "**4** points", "4/5", "4 (out of 5)", "(4)" or "[[4]]"."""
    number = (
        r"(?:(?P<open>\[{1,2})|(?P<round>\())?(?P<score>[0-9]{1,4})(?:[.,]0{1,3}(?![0-9]))?(?(open)\]{1,2})(?(round)\))"
    )
    out_of = rf"(?:{_GAP}\(?(?:/|(?:out )?of\b){_GAP}{rubric.bounds[1]}{_MARK}\)?)?"
    return rf"{_MARK}{number}{_MARK}{out_of}(?:{_GAP}(?:points?|pts?|stars?)\b{out_of})?"


def _scored_again(text: str, end: int, rubric: Rubric, values: tuple[int, ...]) -> bool:
    """Return whether other scores follow an answer, in whatever form; then it is unclear which count.

    Scores of only some slots count if they are points or end a sentence, and stand in no quotation, for instance of a demand
    in a response; those without names of slots if as many as there are slots stand under a heading of scores.
    """
    verb = "gets?|receives?|scores?|has|is|earns?|deserves?|should|would|be|get|now|only|just|at|a|to"
    mention = re.compile(
        rf"\b{re.escape(rubric.slot_word)}{_JOIN}#?([0-9]{{1,4}})\b(?:['’]s)?[^\w\n,]{{0,12}}(?:(?:{verb})[^\w\n,]{{1,4}}){{0,4}}"
        rf"(\d+(?:[.,/–-]\d+)?|[½¼¾⅓⅔]|(?:{_WORDS})\b)",
        re.I,
    )
    if _taken_back(text[end:], rubric, values):
        return True
    mentions = list(mention.finditer(text, end))
    again = {int(each[1]): re.sub(rf"/{rubric.bounds[1]}$|[.,]0$", "", each[2]) for each in mentions}
    if not again.keys() >= set(range(1, len(values) + 1)):
        lines = {int(each[1]): text[text.rfind("\n", 0, each.start()) + 1 : each.end()] for each in mentions}
        stop = re.compile(r"\s?(?:(?:points?|pts?|/)\b|分)|[*_]{0,2}(?:[.!][*_]{0,2}(?:\s|\Z)|[ \t]*(?:\n|\Z))", re.I)
        points = {int(each[1]): stop.match(text, each.end()) for each in mentions}
        alone = {slot for slot, line in lines.items() if not (_QUOTED.search(line) or _HEADER.match(line))}
        again = {slot: told for slot, told in again.items() if points[slot] and slot in alone}
    if len(values) > 1 and (heading := _HEADING.search(text, end)):
        unnamed = [line for line in text[heading.end() :].split("\n") if not mention.search(line)]
        cells = _CELL.findall("\n".join(unnamed))  # more of them are parts of scores
        if len(cells) == len(values) and [*map(float, cells)] != [*values]:
            return True
    return any(again.get(slot, str(value)) != str(value) for slot, value in enumerate(values, 1))


def _taken_back(text: str, rubric: Rubric, values: Sequence[int] = ()) -> bool:
    """Return whether a sentence, not a quotation, gives another score than `values`, or a choice: "I meant 2 for Doctor 1"."""
    words = map(re.escape, rubric.choices.values())
    labels = "|".join(word.replace("_", "[ _]") if len(word) > 1 else f"(?-i:{word})" for word in words)
    for sentence in re.split(r"(?<=[.!?])\s|\n", text):
        if _QUOTED.search(sentence):
            continue
        if rubric.mode == "pairwise" and re.search(rf"(?:{_CHANGED})\W(?:{labels})\b", sentence, re.I):
            return True
        if rubric.scale and _CORRECTED.search(sentence) and (slots := re.findall(_named_slot(rubric), sentence, re.I)):
            told = re.sub(rf"\s?/\s?{rubric.bounds[1]}\b", "", _unnamed(sentence, rubric))
            given = [str(dict(enumerate(values, 1)).get(int(number))) for number in slots]
            if (figures := _RIVAL.findall(told)) and figures != given:
                return True
    return False


def _take_scores(text: str, position: int, rubric: Rubric, slots: int) -> tuple[dict[int, re.Match], int, str | None]:
    """Return the scores from `position`, with their reasons, where they end, and what is malformed about them."""
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
        if not low <= int(score["score"]) <= high:
            return scores, position, f"the score {score['score']} is not on the scale {low} to {high}"
        scores[number], position = score, score.end()
        ended = position == len(text) or any(mark in score["stop"] for mark in ".。\n")
        if slot_pattern.match(text, position):
            continue
        following = slot_pattern.search(text, position)
        reason = text[position : following.start(1) if following else None]
        last = len(scores) == slots or bool(_HEADER.search(reason))
        if last or not following:  # then its reason is in its line
            reason = "" if "\n" in score["stop"] else reason.partition("\n")[0]
        if reason:
            marked = not set(",;:，；").isdisjoint(score["stop"]) or re.match(r"[(–—-]|(?:as|because|since)\b", reason)
            told = _unnamed(re.sub(r"\n\s{0,20}[0-9]{1,2}[.)]\s", "\n", reason), rubric)
            other_scale = re.match(r"\W{0,3}(?:(?:out )?of|/)\s?\d", told)
            ended = (ended or bool(marked)) and {*_RIVAL.findall(told)} <= {score["score"]} and not other_scale
        if last or not following or not ended:
            break
        position = following.start()
    return scores, position, None if ended else f"the score of slot {number} is not a plain whole number"


_MOST_OBJECTS = 64  # how many opening braces from the end are tried; keeps hostile text linear
_REPEATED = None  # stands as a key in an object that has a key twice; no key of JSON is None


def _object(pairs: Sequence[tuple[str | None, object]]) -> dict[str | None, object]:
    members: dict[str | None, object] = {**dict(pairs)}
    return members if len(members) == len(pairs) else members | {_REPEATED: True}


# Numbers are never an answer; as floats, long ones are parsed quickly.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, strict=False)


def json_objects(text: str) -> Iterator[tuple[dict, int]]:
    """Yield the outermost JSON objects among the last of a text, with where they end."""
    # without trailing commas, as some prompts show them, and blanks that JSON does not have
    relaxed = "".join((_SEEN[ord(letter)] or " ") if letter > "~" else letter for letter in text)
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
        later = text[end:] if reading.valid else ""
        if _taken_back(later, rubric) or names & set(_keys(later, names)) or _other_values(later, rubric, reading):
            return ParsedAnswer(False, "another answer follows, which is no JSON"), end
        return reading, end
    return ParsedAnswer(False, "no JSON object with the criteria"), len(text)


def _named(members: dict[str | None, Any], names: Collection[str]) -> dict[str | None, Any]:
    """Return the members of an object with the rubric's names as keys, which an answer may write in capitals."""
    by_key = {_key(name): name for name in names}
    return _object([(by_key.get(_key(key), key) if key else key, value) for key, value in members.items()])


def _keys(text: str, names: Collection[str]) -> list[str | None]:
    """Return which of the rubric's names stand as keys of JSON in a text that is none."""
    return list(_named(dict.fromkeys(re.findall(r"""["']([^"'\n]{1,80})["']\s{0,20}:""", text)), names))


def _other_values(text: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    """Return whether a line of a text, such as "fluency: 2", gives a criterion a value that an answer does not give it."""
    lines = re.findall(r"^[^\w\n]{0,20}(\w[\w -]{0,60})[*_`]*[:=][*_` ]*(\w[\w ]{0,30})[*_`.]*$", text, re.M)
    told = [(name, _key(value)) for key, value in lines for name in rubric.output_criteria if _key(key) == _key(name)]
    if scores := reading.criterion_scores:
        return any(value.isdecimal() and int(value) not in scores[name] for name, value in told)
    choices = reading.choices or {}
    return any(_words(rubric, name).get(value, choices[name]) != choices[name] for name, value in told)


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
    """Return the value of a criterion, which may stand in an object under `value_key`; not one of two, "final_score"."""
    key = rubric.output.get("value_key")
    if key and isinstance(value, dict) and _REPEATED not in (members := _named(value, {key})):
        rivals = [each for each in members if each and re.fullmatch(rf"[^m].*_{key}", _key(each), re.S)]
        return f"{key} and {rivals[0]}" if rivals else members.get(key)
    return value


def _json_choices(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    labels = []
    for name in rubric.output_criteria:
        value = _json_value(answers[name], rubric)
        if not isinstance(value, str) or _key(_label(value)) not in _words(rubric, name):
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
            label = re.fullmatch(_score(rubric), _label(value), re.I) if isinstance(value, str) else None
            number = float(label["score"]) if label else value
            if not isinstance(number, float) or number not in range(low, high + 1):
                shown = value[:40] if isinstance(value, str) else type(value).__name__
                shown = f"{value:g}" if isinstance(value, float) else shown
                return ParsedAnswer(False, f"{slot}, {name}: {shown!r} is not a whole number from {low} to {high}")
            values.append(int(number))
    return _scored(values, rubric, rationale)


_PREFIX = re.compile(rf"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?){_MARK}{_GAP}[:：]", re.I)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    wanted, allowed = len(rubric.output_criteria), {*map(_key, rubric.choices.values())}
    end = len(text)
    after: list[list[str]] = []
    for line in reversed(text.split("\n")):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`~.#-"))
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        if all(_key(label) in allowed for label in labels):
            if len(labels) != wanted:
                return ParsedAnswer(False, f"{len(labels)} answers for {wanted} criteria"), end
            if any(words != list(map(_key, labels)) for words in after) or _taken_back(text[end:], rubric):
                return ParsedAnswer(False, "another list of answers follows, which cannot be read"), end
            return ParsedAnswer(True, choices=_choices(labels, rubric)), end
        # "My final answer is: B, B, C, B": words before the first label of a list, and between its labels.
        words = [_key(word) for word in (_label(labels[0].rpartition(" ")[2]), *labels[1:])]
        after += [words] if sum(word in allowed for word in words) > 1 else []
        end -= len(line) + 1
    return ParsedAnswer(False, f"no line with {wanted} answers"), len(text)


def _read_first_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = text.lstrip().partition("\n")
    label = _label(line, "*_`~")
    if _key(label) not in _words(rubric, rubric.output_criteria[0]):
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
