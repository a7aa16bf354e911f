"""What an answer says, and what a text behind it may say of the same.

A sentence behind an answer is a remark, or gives the same values again, or makes the answer invalid. It gives a value where

- a number on the scale counts nothing ("or rather 3", not "2 warnings"), or scores should change ("swap the scores");
- a label stands alone, behind a colon or "is", or is picked ("Winner: B"), not where it is a name ("Response B is clear");
- responses are compared ("Response B is better", "B is more correct"), which says who is ahead.

Quotations do not matter: a response may plant them.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from automedeval.records.tables import packaged
from automedeval.rubrics.rubric import Rubric

_FORMS = packaged("rubrics", "remarks")


def _form(name: str) -> str:
    """Return the pattern of a form, with those that it names filled in."""
    return "(?:" + re.sub(r"\{([a-z_]{2,})\}", lambda other: _form(other[1]), "|".join(_FORMS[name])) + ")"


_SEARCH = {name: re.compile(_form(name), re.I | re.M) for name in _FORMS}
JOIN = r"[ \t_-]{0,20}"  # of "Doctor 1" and "Doctor_1"
# Anything that may be meant as a score, for instance "4.5", "４", "-3" or "four".
NUMBER_LIKE = re.compile(rf"[^\w\n]{{0,4}}(?:\d|{_form('sign')}|\b{_form('spoken')}\b)", re.I)
# In the place of a score anything but a placeholder: "Doctor 1: N/A", not "Doctor 1: X points".
UNREADABLE = re.compile(rf"{NUMBER_LIKE.pattern}|[^\w\n]{{0,4}}(?!(?-i:[XYZ])\b)[\w?]", re.I)


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


class _Seen(dict[int, str | None]):
    """What a reader sees of each character: nothing of an invisible one, a plain blank for every blank, and line breaks."""

    def __missing__(self, letter: int) -> str | None:
        sign, name = chr(letter), unicodedata.name(chr(letter), "")
        kind, is_blank = unicodedata.category(sign), sign.isspace()
        named = re.search(r"\AVARIATION SELECTOR|FILLER\Z|\ACOMBINING GRAPHEME JOINER\Z", name)
        blank = sign if sign in "\t\n\r" else " " if kind == "Zs" else "\n"
        plain = unicodedata.normalize("NFKC", sign)  # of a full-width letter
        invisible = named or kind in ("Cf", "Me") or (kind == "Cc" and not is_blank)
        sign = plain if kind[0] == "L" and len(plain) == 1 else sign
        self[letter] = None if invisible else blank if is_blank else sign
        return self[letter]


SEEN = _Seen()


def folded(text: str) -> str:
    """Return what keys and labels of an answer are compared by: capitals, blanks and "_" make no difference."""
    return re.sub(r"[\s_-]+|(?<=[a-z])(?=[A-Z0-9])", "_", text.translate(SEEN).strip()).casefold()


def words(rubric: Rubric, name: str) -> dict[str, str]:
    """Return the words that answer a criterion → what a verdict records."""
    plain = {folded(word): choice for choice, word in rubric.labels(name).items()}
    return {f"response_{word}": choice for word, choice in plain.items()} | plain


def other_values(tail: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    """Return whether what follows an answer may give another value: then it is unclear which of them counts.

    What a sentence gives must be, all of it or in turn, what the answer gives the responses and the criteria that the sentence
    names, or else all of them.
    """
    agrees = _scores_agree if rubric.scale else _choices_agree
    return not all(
        agrees(sentence, rubric, reading) for sentence in _sentences(re.sub("[*`~]", "", tail.translate(SEEN)))
    )


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences, halves of sentences and lines of a text, each once, without its quotations.

    A row of figures stands with the line above it, and so do words under a header of scores.
    A single word in quotation marks is none: "response_b".
    """
    text = re.sub(r"""(?<!\w)["'“‘„«`]([\w.-]{1,40}(?: [A-Za-z\d])?)["'”’“»`]""", r"\1", text)
    text = re.sub(r"(\bscores?\W{0,4}[:：][*_`~ \t]{0,9})\n\s{0,9}(?=[^\W\d])", r"\1 ", text, flags=re.I)
    rows = re.sub(r"\n(?=[^\w\n]*(?:\d[^A-Za-z\n]*)?(?:\n|\Z))", " ", _SEARCH["quotation"].sub(" ", text))
    halves = r"(?<=[^\d\n][.!?])(?<!Dr\.)\s|\n|;|\s(?:while|whereas|but)\s"
    return filter(str.strip, dict.fromkeys(re.split(halves, rows)))


def _scores_agree(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    scores, of_criteria = reading.scores or (), reading.criterion_scores or {}
    both = rf"\b({re.escape(rubric.slot_word)})s (\d{{1,4}} (?:and|or|&)) (?=\d{{1,4}}\b)"
    sentence = re.sub(both, r"\1 \2 \1 ", sentence, flags=re.I)  # "Doctors 1 and 2"
    marked, named = _marked(sentence, rubric)
    numbers = map(int, re.findall(named_slot(rubric), sentence, re.I))
    slots = list(dict.fromkeys(number - 1 for number in numbers if 0 < number <= len(scores))) or range(len(scores))
    asked = [of_criteria[name] for name in named if of_criteria] or [scores]
    told = figures(sentence, rubric, [score for each in asked for score in each])
    if _SEARCH["changed"].search(marked) or (not told and _SEARCH["no_score"].match(marked)):
        return False
    rivals = slots if len(slots) > 1 else range(len(scores))
    for name, ahead in _compared(marked, named if of_criteria else ()):
        slot, best = int(name) - 1, max if ahead else min
        if slot in rivals and any(each[slot] != best(each[rival] for rival in rivals) for each in asked):
            return False
    given = [[each[slot] for slot in slots for each in asked]]
    given += [[each[slot] for slot in slots for each in of_criteria.values()]] if not named else []
    return not told or any(_same(told, [*map(str, values)]) for values in given)


def _choices_agree(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    names, choices = rubric.output_criteria, reading.choices or {}
    known = {word: choice for name in names for word, choice in words(rubric, name).items()}
    known |= {word.removeprefix("response_"): choice for word, choice in known.items()}
    marked, named = _marked(sentence, rubric)
    if _SEARCH["changed"].search(marked):
        return False
    worse = any(rubric.criterion(name).polarity == "worse" for name in named)
    told = [known.get(match[match.lastindex or 0], "another") for match in _SEARCH["chosen"].finditer(marked)]
    compared = [(known.get(label, "another"), ahead) for label, ahead in _compared(marked, named, worse)]
    told += [choice if ahead else {"a": "b", "b": "a"}.get(choice, choice) for choice, ahead in compared]
    if named or not (compared or _SEARCH["all_in_all"].search(marked)):
        if named and not told and _SEARCH["equal"].search(marked):
            return {choices[name] for name in named} <= {"tie", "neither"}
        asked = named or [name for name in names if {*told} <= {*rubric.labels(name)}]
        return not told or _same(told, [choices[name] for name in asked])
    # Who is better all in all is not asked: it may not go against most criteria.
    given = [choices[name] for name in names if rubric.criterion(name).polarity != "worse"]
    lead = given.count("a") - given.count("b")
    return {*told} <= ({"a" if lead > 0 else "b"} if lead else {*given})


def _same(told: list[str], given: list[str]) -> bool:
    """Return whether values are those given, in turn, or one value that each of them is."""
    return told == given or (len({*told, *given}) == 1 and bool(given))


def _marked(sentence: str, rubric: Rubric) -> tuple[str, list[str]]:
    """Return a sentence with responses or labels as "§a§" and criteria as "¤clarity¤", and the criteria that it names.

    What is better "than B" or stands "in B" goes.
    """
    marked, names = re.sub("[§¤]", " ", sentence), named_slot(rubric)
    if not rubric.scale:
        labels = {label for name in rubric.output_criteria for label in rubric.labels(name).values()}
        names = rf"\b(?:{'|'.join(map(_label_pattern, sorted(labels, key=len, reverse=True)))})\b"
        marked = _SEARCH["ordinal"].sub(lambda told: f"Response {'AB'[bool(told['two'] or told['second'])]}", marked)
    marked = re.sub(names, lambda name: f"§{name[1] if rubric.scale else folded(name[0])}§", marked, flags=re.I)
    for name in sorted(rubric.output_criteria, key=len, reverse=True):
        stem = re.sub(r"(?:ness|ity|ety|cy|ement)\Z", "", name)  # "correctness" may be "correct"
        start, ending = rf"(?<![\w§¤]){_spaced(stem)}", r"\w{0,9}" if stem != name else r"(?!\w)"
        marked = re.sub(rf"{start}er\b", f"more ¤{name}¤", marked, flags=re.I)  # "safer"
        marked = re.sub(rf"{start}{ending}", f"¤{name}¤", marked, flags=re.I)
    marked = _SEARCH["beside"].sub(r"\1", marked)
    return marked, list(dict.fromkeys(re.findall("¤([^¤\n]+)¤", marked)))


def _compared(marked: str, named: Collection[str], worse: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the responses that a sentence compares, and whether each is ahead; `worse`: on criteria that name the worse one.

    A sentence that names no criterion compares all in all: "is better", not "is more detailed" or "is better at explaining".
    """
    yield from ((name, sign == ">") for name, sign in re.findall(r"§(\w+)§\s?([<>])(?=\s?§)", marked))
    for match in _SEARCH["compared"].finditer(marked):
        judged = bool(match["ahead"] or match["behind"] or match["wins"])
        if named or (judged and not match["aspect"] and not match["has"]):
            yield match["name"], not (bool(match["behind"] or match["less"]) ^ bool(match["no"]) ^ (worse and judged))


def _label_pattern(label: str) -> str:
    """Return the pattern of a label in a sentence: "response_a" may be "A" there."""
    bare = re.sub(r"\Aresponse[\s_-]", "", label, flags=re.I)
    if len(bare) > 1:
        return rf"(?:response[\s_-]?)?{_spaced(bare)}"
    return rf"response[\s_-]?{re.escape(bare)}|(?-i:{re.escape(bare if bare == label else bare.upper())})"


def _spaced(name: str) -> str:
    """Return the pattern of a name or label in a sentence, which may have blanks for "_"."""
    return re.escape(name).replace("_", r"[\s_-]").replace(r"\ ", r"[\s_-]")


def named_slot(rubric: Rubric) -> str:
    """Return the pattern of what a text calls a response: "Doctor 1", "Doctors 1", "Dr. 1" or "D1"."""
    word, initial = re.escape(rubric.slot_word), re.escape(rubric.slot_word[0])
    return rf"\b(?:(?:{word}s?|dr\.?){JOIN}|(?<!vitamin )(?-i:{initial}))#?([0-9]{{1,4}})(?![0-9A-Za-z_])"


def figures(text: str, rubric: Rubric, scores: Sequence[int]) -> list[str]:
    """Return the numbers of a text that may be scores: "or rather 3" or "Doctor 1: 3", not "misses 2 warnings".

    Points between the scores of an answer, or between one of them and the highest, are none.
    """
    low, high = rubric.bounds
    scale = rf"\b{low}(?: \([^()\n]{{1,40}}\))?\s?(?:to|[–-])\s?{high}\b|\s?(?:/|\b(?:out )?of)\s?{high}\b(?!/)"
    text = re.sub(r"(?<=\d)(?:pts?|points?)\b", " points", text, flags=re.I)
    text = re.sub(named_slot(rubric), "§", text, flags=re.I)
    text = _SEARCH["in_words"].sub(lambda word: str(_FORMS["spoken"].index(word[0].lower())), text)
    apart = {str(abs(one - other)) for one in scores for other in (*scores, high)}
    text = _SEARCH["apart"].sub(lambda points: " " if {points[1], points[2]} & apart else points[0], text)
    told = _SEARCH["numbered"].sub(" ", re.sub(scale, "", text, flags=re.I))
    digits, sign = rf"\d{{1,{len(str(high))}}}", _form("sign")
    listed = rf"{digits}(?:[.,][05]|(?:[,/–-]{digits})*)"
    alone = rf"(?<![\w.,/–-])({listed}(?![\w/%]|[.,–-]\w)|{sign})(?!{_form('counted')})"
    named = rf"§[^\w\n,§]{{1,12}}(\d+(?:[.,/–-]\d+)*|{sign})"
    found = re.findall(rf"{named}|{alone}|(?<![\d.,/–-])({digits})(?={_form('points')})", told, re.I)
    whole = (re.sub(r"[.,]0+\Z", "", "".join(places)) for places in found)
    return [str(int(each)) if each.isdecimal() else each for figure in whole for each in re.split("[,/]", figure)]
