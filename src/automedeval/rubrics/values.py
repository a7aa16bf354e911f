"""What an answer says, and what a text may say of the same: numbers that may be scores, labels that may be choices."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from automedeval.rubrics.rubric import Rubric

_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine|ten"
_SIGNS = "[½¼¾⅓⅔①-⑩➀-➓]|[★☆⭐]+"
JOIN = r"[ \t_-]{0,20}"  # of "Doctor 1" and "Doctor_1"
# Anything that may be meant as a score, for instance "4.5", "４", "-3" or "four".
NUMBER_LIKE = re.compile(rf"[^\w\n]{{0,4}}(?:\d|{_SIGNS}|\b(?:{_WORDS})\b)", re.I)
# In the place of a score anything but a placeholder: "Doctor 1: N/A", not "Doctor 1: X points".
UNREADABLE = re.compile(rf"{NUMBER_LIKE.pattern}|[^\w\n]{{0,4}}(?!(?-i:[XYZ])\b)[\w?]", re.I)
# What follows a number that counts something: "2 warnings", not "2 points" or a word of grammar, "2 for".
_COUNTED = (
    r"\s(?!(?:p(?:oin|un|on)k?t\w{0,2}|pts?|stars?|marks?|分|点|of\s\d+(?!\s[^\W\d])|or|if|for|but|is|was|would|should|could"
    r"|out|because|since|and|to|as|at|on|in|by|than|from|each|instead|rather|when|with|not|now|here|too|then|overall|only|so"
    r"|respectively|this|that|the|it)\b)[^\W\d]"
)
# "of the two", not "three of the five"
_UNCOUNTED = "".join(rf"(?<!{number} )" for number in [r"\d", *_WORDS.split("|")])
# Other things that have numbers: "step 2", "type 1", "all 3", "2 to 3 days", "2 of 3 points", "1 = poor", and of a list "1.".
_NUMBERED = re.compile(
    r"(?<!\d )\b(?:step|type|stage|grade|phase|section|table|criteri(?:on|a)|all) \d+(?: and \d+)?(?![\w/.,]\d)"
    rf"|{_UNCOUNTED}\bof the (?:\d+|{_WORDS})\b(?![/.,]\d)"
    r"|^[^\w§]{0,9}\d{1,2}[.)](?=\s)"
    rf"|\b(?:\d+|{_WORDS}) (?:to|or|and) (?:\d+|{_WORDS})(?={_COUNTED})"
    r"|\b\d+ (?:out )?of \d+ (?:points?|stars?)\b|\b\d\s?=\s?(?=[^\W\d])",
    re.I | re.M,
)
_POINTS = "分(?![钟之制])|[点점](?! ?[만\u4e00-\u9fff])"  # in languages without blanks; not "3分钟", three minutes
_SLOT = "§"  # stands for the name of a response
_FEW = rf"(?:(?!(?:so|which|hence|thus|as|but|because|with|and(?! {_SLOT}))\b)[\w{_SLOT}'’]{{1,20}}\s){{0,4}}"
_SCORE = r"(?:scores?|ratings?)\b"
# Scores become others, and no figure says which: "Lower Doctor 1's score", not "has a lower score".
_CHANGED = re.compile(
    rf"\b(?:swap|switch|exchang|revers)\w{{0,4}}\s(?!to\b){_FEW}{_SCORE}"
    rf"|\b(?:lower|raise|reduce|increase|deduct)\s(?:the|its|their|my|both|{_SLOT})(?:['’]s)?\s{_FEW}{_SCORE}"
    rf"|\b{_SCORE}\s{_FEW}(?:swapped|switched|exchanged|reversed|the other way)\b"
    rf"|\b{_SCORE}\s{_FEW}(?:should|must)\sbe\s(?:lower|rais|reduc|increas|higher)"
    rf"|\b(?:should|must)\s(?:get|have|receive)\sa\s(?:higher|lower)\s{_SCORE}"
    r"|\b(?:half|deduct|by) a point\b|\ba point (?:off|less|more)\b",
    re.I,
)
# In the place of scores only words: "Score: N/A", not "Score: [your scores]" or "Score: X points".
_NO_SCORE = re.compile(
    rf"\W*(?:final |overall )?{_SCORE}\W{{0,4}}[:：][^\w\n\[<]{{0,9}}(?!{_SLOT}|(?-i:[XYZ])\b)[\w?]", re.I
)
# Words of a sentence that may give choices; in any other a label may just name a response.
_CHOSEN = re.compile(
    r"\b(?:(?:answers?|verdicts?|choices?)(?=\W{0,4}[:=\n]|\sis\b)|choose|winner|final|i meant|actually"
    r"|correct(?:ed|ion)|revis(?:ed|ion)|thought|think|instead)\b",
    re.I,
)
_BETTER = r"wins|better|best|superior|prefer\w{0,5}"  # of all in all: no choice on a criterion
_PICKED = (
    rf"\b(?:meant|chose|choose|go with|winner|verdict|choice|answer(?=\s?(?:[:=]|is\b))|{_BETTER})"
    r"(?:[^\w,;.\n]{1,3}(?:one|response|answer|is|the)){0,4}[^\w,;.\n]{1,9}"
)
# Before a label that is no choice: "better than B", "in Response B", "vitamin B".
_BESIDE = r"\b(?:than|over|unlike|in|by|from|vitamin|hepatitis|(?:compared|superior|inferior|similar|equal|prior) (?:to|with))"
_QUOTATION = re.compile('"[^"\n]*"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|^[^\\S\n]*>.*', re.M)


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
        blank = sign if sign in "\t\n\r" else "\n" if sign.isspace() else None
        kept = {"Cf": None, "Cc": blank, "Me": None, "Zs": " ", "Zl": "\n", "Zp": "\n"}.get(
            unicodedata.category(sign), sign
        )
        invisible = (
            name.startswith("VARIATION SELECTOR") or name.endswith("FILLER") or name == "COMBINING GRAPHEME JOINER"
        )
        self[letter] = None if invisible else kept
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
    names, or else all of them. Quotations do not matter: a response may plant them.
    """
    told_and_given = _scores_told if rubric.scale else _choices_told
    for sentence in _sentences(tail.translate(SEEN)):
        told, *given = told_and_given(sentence, rubric, reading)
        if told and not any(told == values or len({*told, *values}) == 1 for values in given):
            return True
    return False


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences and lines of a text, each once, without its quotations.

    A row of figures stands with the line above it, and so do words under a header of scores.
    A single word in quotation marks is none: "response_b".
    """
    text = re.sub(r"""(?<!\w)["'“‘„«`]([\w.-]{1,40}(?: [A-Za-z\d])?)["'”’“»`]""", r"\1", text)
    text = re.sub(r"(\bscores?\W{0,4}[:：][*_`~ \t]{0,9})\n\s{0,9}(?=[^\W\d])", r"\1 ", text, flags=re.I)
    rows = re.sub(r"\n(?=[^\w\n]*(?:\d[^A-Za-z\n]*)?(?:\n|\Z))", " ", _QUOTATION.sub(" ", text))
    return filter(str.strip, dict.fromkeys(re.split(r"(?<=[^\d\n][.!?])(?<!Dr\.)\s|\n", rows)))


def _scores_told(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> Iterator[list[str]]:
    """Yield what may be the scores of a sentence; then those of an answer in their place, by criterion and all in all."""
    scores, of_criteria = reading.scores or (), reading.criterion_scores or {}
    both = rf"\b({re.escape(rubric.slot_word)})s (\d{{1,4}} (?:and|or|&)) (?=\d{{1,4}}\b)"
    sentence = re.sub(both, r"\1 \2 \1 ", sentence, flags=re.I)  # "Doctors 1 and 2"
    numbers = [int(number) for number in re.findall(named_slot(rubric), sentence, re.I)]
    slots = dict.fromkeys(number - 1 for number in numbers if 0 < number <= len(scores)) or range(len(scores))
    told, unnamed = figures(sentence, rubric), re.sub(named_slot(rubric), _SLOT, sentence, flags=re.I)
    yield told + ["another"] * bool(_CHANGED.search(unnamed) or (not told and _NO_SCORE.match(unnamed)))
    named = _criteria_named(sentence, rubric)
    if of_criteria:
        yield [str(of_criteria[name][slot]) for slot in slots for name in named or of_criteria]
    if not of_criteria or not named:
        yield [str(scores[slot]) for slot in slots]


def _choices_told(sentence: str, rubric: Rubric, reading: ParsedAnswer) -> Iterator[list[str]]:
    """Yield what may be the choices of a sentence; then those of an answer in their place."""
    words_of = {name: words(rubric, name) for name in rubric.output_criteria}
    words_of = {name: {key.removeprefix("response_"): of[key] for key in of} | of for name, of in words_of.items()}
    known = sorted({label for name in words_of for label in rubric.labels(name).values()}, key=len, reverse=True)
    label = rf"\b(?:{'|'.join(map(_label_pattern, known))})\b"
    named, names = _criteria_named(sentence, rubric), "|".join(map(_spaced, rubric.output_criteria))
    sentence = re.sub(rf"{_BESIDE} {label}", "", sentence, flags=re.I)
    bound = rf"(?:[:=>→|]|\b(?:be|is|to|{names})\b)[^\w\n]{{0,9}}(?:a )?"
    better = _BETTER + "|worse" * any(rubric.criterion(name).polarity == "worse" for name in named)
    ways = [
        rf"{bound}({label})(?=\s{{0,3}}(?:$|(?!['’]\w)[^\w\s]))",
        rf"^\W*(?:boxed\W)?({label})\W*$",
        rf"({label})(?=(?: [\w-]{{1,20}}){{0,5}} (?:{better})\b)",
        rf"{_PICKED}({label})",
    ]
    chosen = named or _CHOSEN.search(sentence)
    if chosen:  # a label at the end
        ways.append(rf"""({label})(?=[*_`"'’)\]}}\s]{{0,6}}(?:$|[.;!?|]))""")
    found = [match[match.lastindex or 0] for match in re.finditer("|".join(ways), sentence, re.I)]
    told = [folded(each) for each in found]
    given = [(reading.choices or {})[name] for name in named or words_of if words_of[name].keys() & {*told}] or ["none"]
    told = [next((of[each] for of in words_of.values() if each in of), "another") for each in told]
    yield told
    yield told if not chosen and {*told} <= {*given} else given


def _criteria_named(sentence: str, rubric: Rubric) -> list[str]:
    """Return the criteria that a sentence names, in its order."""
    by_key = {folded(name): name for name in rubric.output_criteria}
    found = re.findall(rf"\b(?:{'|'.join(map(_spaced, by_key))})\b", sentence, re.I)
    return list(dict.fromkeys(by_key[key] for key in map(folded, found) if key in by_key))


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


def figures(text: str, rubric: Rubric) -> list[str]:
    """Return the numbers of a text that may be scores: "or rather 3" or "Doctor 1: 3", not "misses 2 warnings"."""
    low, high = rubric.bounds
    scale = rf"\b{low}(?: \([^()\n]{{1,40}}\))?\s?(?:to|[–-])\s?{high}\b|\s?(?:/|\b(?:out )?of)\s?{high}\b(?!/)"
    text = re.sub(r"(?<=\d)(?:pts?|points?)\b", " points", text, flags=re.I)
    told = _NUMBERED.sub(" ", re.sub(scale, "", re.sub(named_slot(rubric), _SLOT, text, flags=re.I), flags=re.I))
    digits = rf"\d{{1,{len(str(high))}}}"
    other = rf"{_SIGNS}|one(?=\spoints?\b)|(?:{_WORDS.replace('|one', '')})(?![\w-])"
    listed = rf"{digits}(?:[.,][05]|(?:[,/–-]{digits})*)"
    alone = rf"(?<![\w.,/–-])({listed}(?![\w/%]|[.,–-]\w)|{other})(?!{_COUNTED})|(?<![\d.,/–-])({digits})(?={_POINTS})"
    found = re.findall(rf"{_SLOT}[^\w\n,{_SLOT}]{{1,12}}(\d+(?:[.,/–-]\d+)*|{other})|{alone}", told, re.I)
    whole = (re.sub(r"[.,]0+\Z", "", "".join(places)) for places in found)
    return [str(int(each)) if each.isdecimal() else each for figure in whole for each in re.split("[,/]", figure)]
