"""Write and parse answers in the grammar of a rubric.

`answer_parts` returns the parts of an answer: literal text, free text, and slots with a few allowed values. A local judge
chooses among these values; `format_verdict` fills the parts with known values; `parse_verdict` parses a model's text. Format
and parse are inverse to each other. All values are in slot order, the order in which the responses were shown.

Parsing takes linear time: every repetition in the patterns below is bounded, or is one character class at the start of a line.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from automedeval.models.base import Free, Part, Slot
from automedeval.records.thoughts import CONTROL_TOKEN
from automedeval.rubrics.rubric import Rubric
from automedeval.rubrics.values import (
    JOIN,
    NUMBER_LIKE,
    SEEN,
    UNREADABLE,
    ParsedAnswer,
    figures,
    folded,
    other_values,
    words,
)


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
    return _json_parts(rubric, slots, values, rationale)


def _json_parts(rubric: Rubric, slots: int, values: tuple[str, ...], rationale: bool) -> list[Part]:
    """Return the parts of an answer in JSON: the object with marks in the place of its values, cut there."""
    mark, value_key = "\ue000" if rubric.scores_criteria else "\ue001", rubric.output.get("value_key")
    by_name: dict[str, Any] = dict.fromkeys(rubric.output_criteria, {value_key: mark} if value_key else mark)
    answer: dict[str, Any] = dict.fromkeys(_slot_names(rubric, slots), by_name) if rubric.scores_criteria else by_name
    answer = {rubric.output["choices_key"]: answer} if rubric.output.get("choices_key") else answer
    if rubric.scores_criteria:
        places = [(f"{slot}, {name}", values) for slot in _slot_names(rubric, slots) for name in rubric.output_criteria]
    else:
        places = [(name, tuple(rubric.labels(name).values())) for name in rubric.output_criteria]
    held: list[Part] = [Slot(*place) for place in places]
    if rubric.output.get("rationale_key") and rationale:
        answer = {rubric.output["rationale_key"]: "\ue001", **answer}
        held.insert(0, Free(stop='"', json_string=True))
    first, *others = re.split('"\ue000"|\ue001', json.dumps(answer, ensure_ascii=False))  # numbers stand in no quotes
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
    counts. It is invalid if it is malformed (a slot twice or too many, a score off the scale or not a whole number), or if what
    follows may give another value or cannot be read.

    `slots` is the number of responses in the prompt. Of a text that was `truncated` at its token limit only an answer at the
    end counts, because an earlier one may be a quotation. An invalid answer has an `error`, and no scores or choices.
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


def _as_seen(text: str) -> tuple[str, Sequence[int]]:
    """Return a text as a reader sees it, and where in the text each of its characters stands, and its end."""
    seen = text.translate(SEEN)
    if len(seen) == len(text):
        return seen, range(len(text) + 1)
    return seen, [*(place for place, letter in enumerate(text) if SEEN[ord(letter)] is not None), len(text)]


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


def _label(text: str, marks: str = "") -> str:
    """Return a label without the space and marks around it, and without the brackets of its placeholder, "[response_a]"."""
    label = text.translate(SEEN).strip(" \t\r\n" + marks)
    return _label(label[1:-1], marks) if label.startswith("[") and label.endswith("]") else label


def _choices(labels: list[str], rubric: Rubric) -> dict[str, str]:
    """Return criterion → choice for the words of an answer, in its order."""
    label_of = dict(zip(rubric.output_criteria, labels, strict=True))
    return {each.name: words(rubric, each.name)[folded(label_of[each.name])] for each in rubric.criteria}


_MARK = r"[*_`~]{0,4}"
_GAP = r"[ \t]{0,20}"
# "Score:" begins its line, or is a heading alone on it. One character class may precede it.
_HEADER = re.compile(
    rf"^[-+•*#_`~ \t]*(?:final |overall )?scores?{_MARK}{_GAP}(?:[:：]{_MARK}|$)\s{{0,20}}", re.I | re.M
)
# "Step 3: … Score:" after a sentence, as the paper's Figure 8 writes it; `_inline_header` says when it counts.
_INLINE = re.compile(rf"(?<=[.!?…。！？]){_GAP}{_MARK}scores?{_MARK}{_GAP}[:：]{_MARK}{_GAP}", re.I)


def _read_score_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    problem = "no score line"
    for header in reversed(list(_HEADER.finditer(text)) or _inline_header(text, rubric, slots)):
        scores, end, malformed = _take_scores(text, header.end(), rubric, slots)
        if malformed:
            return ParsedAnswer(False, malformed), end
        if len(scores) == slots:
            values = tuple(int(scores[number]["score"]) for number in sorted(scores))
            spans = tuple(scores[number].span("score") for number in sorted(scores))
            reading = ParsedAnswer(True, None, text[: header.start()], values, spans=spans)
            if other_values(text[end:], rubric, reading):
                return ParsedAnswer(False, "other scores follow, or a number that may be one"), end
            return reading, end
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
    alone = not any(NUMBER_LIKE.match(text, slot.end()) for slot in mentions)
    return headers if len(scores) == slots and alone and not text[end:].strip("*_`~ \t\r\n") else []


def _patterns(rubric: Rubric) -> tuple[re.Pattern, re.Pattern]:
    """Return the patterns of a slot's name, "Doctor 1:", with or without Markdown, and of the score after it."""
    lead = r"(?:(?:[-+•*]|[0-9]{1,2}[.)]|and|&)\s{1,20})?"
    word = rf"{re.escape(rubric.slot_word)}{JOIN}#?([0-9]{{1,4}})"
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
            # With nothing there or a placeholder the line is incomplete, for instance because the output was cut off.
            ended = not (NUMBER_LIKE if number in scores else UNREADABLE).match(text, position)
            position = slot.start()
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
            begins = re.match(r"(\W{0,3}(?:(?:out )?of|/)\s?\d)|[\[(✅❌✓✔✗✘–—-]|(?:as|because|since)\b", reason)
            apart = ended or begins or not set(",;:，；").isdisjoint(score["stop"])
            ended = bool(apart) and not (begins and begins[1])  # of another scale
            ended = ended and {*figures(reason, rubric, [int(score["score"])])} <= {score["score"]}
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
        reading = _json_answers(answers, rubric, rationale if isinstance(rationale, str) and rationale else None)
        later = text[end:] if reading.valid else ""
        keys = {*map(folded, re.findall(r"""["']([^"'\n]{1,80})["']\s{0,20}:""", later))}
        known = map(folded, filter(None, (inner, rubric.output.get("value_key"), *names, *rubric.output_criteria)))
        if not keys.isdisjoint(known) or other_values(later, rubric, reading):
            return ParsedAnswer(False, "another answer follows, which is no JSON"), end
        return reading, end
    return ParsedAnswer(False, "no JSON object with the criteria"), len(text)


def _named(members: dict[str | None, Any], names: Collection[str]) -> dict[str | None, Any]:
    """Return the members of an object with the rubric's names as keys, which an answer may write in capitals."""
    by_key = {folded(name): name for name in names}
    return _object([(by_key.get(folded(key), key) if key else key, value) for key, value in members.items()])


def _wrong_keys(answers: dict, names: Collection[str]) -> str | None:
    """Return what is wrong with the keys of an object that should have these; None if nothing is."""
    if _REPEATED in answers:
        return "a key stands twice"
    if missing := sorted(names - answers.keys()):
        return f"no answer on {missing[0]}"
    if surplus := sorted(answers.keys() - names):
        return f"an answer on {surplus[0][:40]!r}, which was not asked"
    return None


def _meant(value: Any, rubric: Rubric) -> float | str | None:
    """Return the number, or where a rubric has no scale the choice, that a member of an object may be; None if it is none."""
    if rubric.scale is not None:
        digits = re.match(r"\s*(\d+(?:\.\d+)?)", value) if isinstance(value, str) else None
        return float(digits[1]) if digits else value if isinstance(value, float) else None
    known = {word: choice for name in rubric.output_criteria for word, choice in words(rubric, name).items()}
    return known.get(folded(_label(value))) if isinstance(value, str) else None


def _json_value(value: Any, rubric: Rubric) -> Any:
    """Return the value of a criterion, which may stand in an object under `value_key`; not where another member may be it.

    Such a member is another score or label by its name, "final_score", or the end of another scale, "max_score".
    """
    key = rubric.output.get("value_key")
    if not key or not isinstance(value, dict) or _REPEATED in (members := _named(value, {key})):
        return value
    told = _meant(members.get(key), rubric)
    for name, other in members.items():
        called, meant = folded(name or ""), _meant(other, rubric)
        if re.search(r"max|out_of", called):
            is_rival = rubric.scale is not None and meant not in (None, float(rubric.bounds[1]))
        else:
            is_value = re.search(
                rf"{key}|scor|rating|points|final|revis|corrected|updat|adjust|winner|verdict|choice", called
            )
            is_rival = is_value is not None and not re.search("min|confiden|deduct|weight", called)
            is_rival &= meant not in (None, told)
        if name != key and is_rival:
            return f"{key} and {name}"
    return members.get(key)


def _json_answers(answers: dict, rubric: Rubric, rationale: str | None) -> ParsedAnswer:
    """Return what an object with the right keys says: a word for each criterion, or a score of each response on each."""
    values, scored = [], rubric.scores_criteria
    for slot in _slot_names(rubric, len(answers)) if scored else [""]:
        group, before = answers[slot] if scored else answers, f"{slot}: " if scored else ""
        if not isinstance(group, dict):
            return ParsedAnswer(False, f"{before}{type(group).__name__} instead of an object with the criteria")
        group = _named(group, rubric.output_criteria)
        if problem := _wrong_keys(group, set(rubric.output_criteria)):
            return ParsedAnswer(False, f"{before}{problem}")
        for name in rubric.output_criteria:
            value = _json_value(group[name], rubric)
            allowed = words(rubric, name) if not scored else {}
            wanted = "is not one of " + ", ".join(rubric.labels(name).values())
            read = _label(value) if isinstance(value, str) and folded(_label(value)) in allowed else None
            if scored:
                low, high = rubric.bounds
                wanted = f"is not a whole number from {low} to {high}"
                # All numbers are read as floats; "4" in quotes is accepted, too.
                label = re.fullmatch(_score(rubric), _label(value), re.I) if isinstance(value, str) else None
                number = float(label["score"]) if label else value
                read = str(int(number)) if isinstance(number, float) and number in range(low, high + 1) else None
            if read is None:
                shown = value.strip()[:40] if isinstance(value, str) else type(value).__name__
                shown = f"{value:g}" if scored and isinstance(value, float) else shown
                return ParsedAnswer(False, f"{slot + ', ' if scored else ''}{name}: {shown!r} {wanted}")
            values.append(read)
    return reading_from_values(values, rubric, rationale)


_PREFIX = re.compile(rf"\A(?:my |the )?(?:final )?(?:answers?|choices?|verdicts?){_MARK}{_GAP}[:：]", re.I)


def _read_comma_list(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    """Read the list on the last line that says anything: a prompt asks for nothing else, and what follows may take it back."""
    wanted, allowed, lists = len(rubric.output_criteria), {*map(folded, rubric.choices.values())}, []
    for line in text.split("\n"):
        listed = _PREFIX.sub("", line.strip(" \t\r*_`~.#-"))
        listed = listed[1:-1] if listed[:1] + listed[-1:] == "[]" and listed.count("[") == 1 else listed
        labels = [_label(label, "*_`.") for label in listed.split(",")]
        if listed:
            lists.append(labels if all(folded(label) in allowed for label in labels) else [])
    last = lists[-1] if lists else []
    if len(last) != wanted:
        told = f"{len(last)} answers for {wanted} criteria" if last else f"the last line is no list of {wanted} answers"
        return ParsedAnswer(False, told), len(text)
    if any(len(each) == wanted and [*map(folded, each)] != [*map(folded, last)] for each in lists):
        return ParsedAnswer(False, "two lists of answers differ"), len(text)
    return ParsedAnswer(True, choices=_choices(last, rubric)), len(text)


def _read_first_line(text: str, rubric: Rubric, slots: int) -> tuple[ParsedAnswer, int]:
    """Read a choice that stands alone on the first line; what follows is not read, so that nothing in it can be the answer."""
    line, stop, _ = text.lstrip().partition("\n")
    label = _label(line, "*_`~")
    if folded(label) not in words(rubric, rubric.output_criteria[0]):
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
