"""What an answer says, and what a text behind it may say of the same.

A sentence behind an answer is a remark that gives no value, or gives the same values again; else the answer is invalid. Values
are numbers on the scale that count nothing ("or rather 3", not "2 warnings"), labels without a verb ("Winner: B", not "Response
B is clear"), and who is ahead ("B is better"). Talk of scores or of oneself must give them ("swap the scores", "I was wrong").

Quotations do not matter: a response may plant them.
"""

import re
import unicodedata
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from automedeval.records.tables import packaged
from automedeval.rubrics.rubric import Rubric

_FORMS = packaged("rubrics", "remarks")


def _form(name: str) -> str:
    """Return the pattern of a form, with those that it names filled in."""
    return "(?:" + re.sub(r"\{([a-z_]{2,})\}", lambda other: _form(other[1]), "|".join(_FORMS[name])) + ")"


_SEARCH = {name: re.compile(_form(name), re.I | re.M) for name in _FORMS}
JOIN = r"[ \t_-]{0,20}"  # of "Doctor 1" and "Doctor_1"


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
    """Return whether what follows an answer may give another value: then it is unclear which of them counts."""
    agrees, plain = _scores_agree if rubric.scale else _choices_agree, re.sub("[*`~]", "", tail.translate(SEEN))
    return not all(agrees(sentence, rubric, reading) for sentence in _sentences(plain))


def without_quotations(text: str) -> str:
    """Return a text of the same length with blanks for its quotations, of which a single word is none."""
    return _SEARCH["quotation"].sub(lambda told: told[0] if told[0].count(" ") < 2 else " " * len(told[0]), text)


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences, halves of sentences and lines of a text, each once, without its quotations and headings.

    A row of figures stands with the line above it, and so do one or two words under a heading.
    A single word in quotation marks is none: "response_b".
    """
    text = re.sub(r"""(?<!\w)["'“‘„«`]([\w.-]{1,40}(?: \w{1,9})?)["'”’“»`]""", r"\1", text)
    text = re.sub(r"([:：])[ \t]{0,9}\n\s{0,9}(?=\S{1,40}(?: \S{1,40})?$)", r"\1 ", text, flags=re.M)
    rows = re.sub(r"\n(?=[^\w\n]*(?:\d[^A-Za-z\n]*)?(?:\n|\Z))", " ", _SEARCH["quotation"].sub(" ", text))
    halves = r"(?<=[^\d\n][.!?])(?<!Dr\.)\s|(?<=[:/]\d\.)\s|(?<=: \d\.)\s|\n|[;；。]|\s(?:while|whereas|but)\s"
    told = filter(str.strip, dict.fromkeys(re.split(halves, rows)))
    return (each for each in told if not re.fullmatch(r"[^\d\n]*[:：]\s*", each))


def _scores_agree(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    scores, of_criteria = reading.scores or (), reading.criterion_scores or {}
    marked, named, responses = _marked(sentence, rubric)
    named_slots = {int(number) - 1 for number in responses}
    slots = [int(number) - 1 for number in dict.fromkeys(re.findall(r"§(\d+)§", marked))]
    told, every = _figures(marked, rubric), range(len(scores))
    if not named_slots <= {*every}:
        return False  # a response that does not exist
    asked = [of_criteria[name] for name in named if of_criteria] or [scores]
    leads = list(_leads(marked, bool(named and of_criteria)))
    for name, ahead in leads:
        best, rivals = max if ahead else min, named_slots if len(named_slots) > 1 else every
        if not name or any(each[int(name) - 1] != best(each[rival] for rival in rivals) for each in asked):
            return False
    if not told:
        all_of_them = re.search(r"§|\b(?:both|they|all|it is)\b", marked, re.I) and _SEARCH["equal"].search(marked)
        alike = not all_of_them or len({scores[slot] for slot in slots or every}) == 1
        return alike and not _SEARCH["unread"].search(marked) and bool(leads or not _SEARCH["judged"].search(marked))
    given = [[each[slot] for slot in slots or every for each in asked]]
    given += [[each[slot] for slot in slots or every for each in of_criteria.values()]] if not named else []
    return any(_same(told, [*map(str, values)]) for values in given)


def _choices_agree(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> bool:
    names, choices = rubric.output_criteria, reading.choices or {}
    known = {word: choice for name in names for word, choice in words(rubric, name).items()}
    known |= {word.removeprefix("response_"): choice for word, choice in known.items()}
    marked, named, _ = _marked(sentence, rubric)
    worse = any(rubric.criterion(name).polarity == "worse" for name in named)
    # "Response B, on the other hand, is short" has no choice.
    marked = re.sub(r"^(\W{0,9}(?:[\w ]{1,20}, )?§\w+§),[^,§]+,", r"\1", marked)
    told = [known.get(label, "another") for label in _SEARCH["chosen"].findall(marked)]
    leads = [(known.get(label, "another"), ahead) for label, ahead in _leads(marked, bool(named), worse)]
    told += [choice if ahead else {"a": "b", "b": "a"}.get(choice, "another") for choice, ahead in leads]
    if {"a", "b"}.isdisjoint(told) and _SEARCH["equal"].search(marked):
        return {choices[name] for name in named or names} <= {"tie", "neither"}
    if not told:
        return not (_SEARCH["unread"].search(marked) or _SEARCH["judged"].search(marked))
    if named or not (leads or _SEARCH["all_in_all"].search(marked)):
        asked = named or [name for name in names if {*told} <= {*rubric.labels(name)}]
        return _same(told, [choices[name] for name in asked])
    # Who is better all in all is not asked: it may not go against most criteria.
    given = [choices[name] for name in names if rubric.criterion(name).polarity != "worse"]
    lead = given.count("a") - given.count("b")
    return {*told} <= ({"a" if lead > 0 else "b"} if lead else {*given})


def _same(told: list[str], given: list[str]) -> bool:
    """Return whether values are those given, in turn, or one value that each of them is."""
    return told == given or (len({*told, *given}) == 1 and bool(given))


def _marked(sentence: str, rubric: Rubric) -> tuple[str, list[str], list[str]]:
    """Return a sentence with responses or labels as "§a§" and criteria as "¤clarity¤", these criteria, and the responses.

    What is better "than B" goes.
    """
    word, names = rubric.slot_word if rubric.scale else "Response", named_slot(rubric)
    if not rubric.scale:
        labels = {label for name in rubric.output_criteria for label in rubric.labels(name).values()}
        known = "|".join(map(_label_pattern, sorted(labels, key=len, reverse=True)))
        names = rf"\b(?:{known}|response[\s_-](?-i:[C-Z]))\b"

    def nth(told: re.Match) -> str:
        place = 2 if told["third"] else bool(told["two"] or told["second"])
        return f"{word} {('123' if rubric.scale else 'ABC')[place]}"

    marked = _SEARCH["ordinal"].sub(nth, re.sub("[§¤]", " ", sentence))
    both = rf"\b({re.escape(word)})s (\d{{1,4}} (?:and|or|&)) (?=\d{{1,4}}\b)"
    marked = re.sub(both, r"\1 \2 \1 ", marked, flags=re.I)  # "Doctors 1 and 2"
    marked = re.sub(names, lambda name: f"§{name[1] if rubric.scale else folded(name[0])}§", marked, flags=re.I)
    responses = re.findall(r"§(\w+)§", marked)
    for name in sorted(rubric.output_criteria, key=len, reverse=True):
        stem = re.sub(r"(?:ness|ity|ety|cy|ement)\Z", "", name)  # "correctness" may be "correct"
        start, ending = rf"(?<![\w§¤]){_spaced(stem)}", r"\w{0,9}" if stem != name else r"(?!\w)"
        marked = re.sub(rf"{start}er\b", f"more ¤{name}¤", marked, flags=re.I)  # "safer"
        marked = re.sub(rf"{start}{ending}", f"¤{name}¤", marked, flags=re.I)
    marked = _SEARCH["beside"].sub(r"\1", marked)
    return marked, list(dict.fromkeys(re.findall("¤([^¤\n]+)¤", marked))), responses


def _leads(marked: str, named: bool, worse: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield who is ahead or behind by a sentence; "": it cannot be told. `worse`: on criteria that name the worse one.

    It is the last response before the word that says so, or else the first behind it.
    """
    found = list(re.finditer(r"§(\w+)§", marked))
    names, starts = [name[1] for name in found], [name.start() for name in found]
    talk = _SEARCH["judged"].search(marked)
    for match in _SEARCH["lead"].finditer(marked) if names else ():
        judged, at = match["ahead"] or match["behind"], bisect(starts, match.start())
        if judged or named or talk or match["open"]:
            name = names[at - 1] if at else "" if talk and not judged else names[0]
            yield "" if match["open"] else name, bool(match["ahead"] or match["more"]) ^ bool(worse and judged)


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


def _figures(marked: str, rubric: Rubric) -> list[str]:
    """Return the numbers of a sentence that may be scores: "or rather 3" or "§1§: 3", not "misses 2 warnings"."""
    low, high = rubric.bounds
    scale = rf"\b{low}\s?(?:to|[–-])\s?{high}\b|\s?(?:/|\b(?:out )?of)\s?{high}\b(?!/)"
    text = re.sub(r"(?<=\d)(?:pts?|points?)\b", " points", re.sub(r"§\d+§", "§", marked), flags=re.I)
    text = _SEARCH["in_words"].sub(lambda word: str(_FORMS["spoken"].index(word[0].lower())), text)
    told = _SEARCH["numbered"].sub(" ", re.sub(scale, "", text, flags=re.I))
    digits, sign = rf"\d{{1,{len(str(high))}}}", _form("sign")
    listed = rf"{digits}(?:[.,][05]|(?:[,/–-]{digits})*)"
    alone = rf"(?<![A-Za-z0-9_.,/–-])({listed}(?![A-Za-z0-9_/%]|[.,–-]\w)|{sign})(?!{_form('counted')})"
    found = re.findall(rf"§[^\w\n,§]{{1,12}}(\d+(?:[.,/–-]\d+)*|{sign})|{alone}", told, re.I)
    whole = (re.sub(r"[.,]0+\Z", "", "".join(places)) for places in found)
    return [str(int(each)) if each.isdecimal() else each for figure in whole for each in re.split("[,/]", figure)]
