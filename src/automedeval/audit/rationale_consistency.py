"""The order of the answers that a reader would take from a rationale, by rule, to hold it against the scores.

A rule that abstains is better here than one that guesses. It speaks about two doctors where a sentence says outright who is
better ("Doctor 2 is the most complete", "Doctor 1 is safer than Doctor 3"), or else where the steps on both hold words of
praise or blame, and the surplus of praise differs by at least `MARGIN` words. Where the two kinds of evidence contradict each
other it says nothing. It knows no irony and no medicine; words stand in `audit/templates/tone.yaml`.

On 116 stepwise rationales of the sample's two teachers it speaks about 37 of 348 pairs, and is at odds with the teacher's own
scores on 6 of them: a share of contradictions of that size is the rule's own error. Its margin was chosen on these rationales,
so on others it errs no less.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import combinations

import yaml

from automedeval.rubrics.rationale import doctors_named, split_steps

TEMPLATES = resources.files("automedeval.audit") / "templates"


MARGIN = 3
_REACH = 3  # words between a negation and what it turns round
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True)
class Lexicon:
    """Compiled words of praise and blame, and patterns of outright comparison."""

    praise: re.Pattern
    blame: re.Pattern
    negations: frozenset[str]
    contrast: frozenset[str]
    first: re.Pattern
    last: re.Pattern
    above: re.Pattern
    below: re.Pattern


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Read the packaged words."""
    content = yaml.safe_load((TEMPLATES / "tone.yaml").read_text(encoding="utf-8"))
    stems = {name: re.compile("|".join(content[name]), re.I) for name in ("praise", "blame")}
    whole = {name: re.compile("|".join(content[name]), re.I) for name in ("first", "last", "above", "below")}
    words = {name: frozenset(content[name]) for name in ("negations", "contrast")}
    return Lexicon(**stems, **whole, **words)


def tone(text: str) -> tuple[int, int]:
    """Return how many words of praise and of blame a text holds; behind a negation each counts as the other, "but" is blame."""
    told, praise, blame = lexicon(), 0, 0
    for sentence in _SENTENCE.split(text):
        words = [word.lower().replace("’", "'") for word in _WORD.findall(sentence)]
        for place, word in enumerate(words):
            good = told.praise.match(word) is not None
            if word in told.contrast:
                blame += 1
            elif word not in told.negations and (good or told.blame.match(word)):
                turned = any(each in told.negations for each in words[max(0, place - _REACH) : place])
                praise, blame = (praise + 1, blame) if good != turned else (praise, blame + 1)
    return praise, blame


def told_order(rationale: str, count: int) -> dict[tuple[int, int], int]:
    """Return what a rationale says of pairs of its `count` doctors: (slot, later slot) → 1 or -1, the first better or worse.

    Pairs of which it says nothing that the rule can read are left out. Slots count from 0.
    """
    steps = split_steps(rationale)
    nets = {}
    for doctor in range(1, count + 1):
        praise, blame = tone(steps.get(doctor, ""))
        if praise + blame:
            nets[doctor - 1] = praise - blame
    by_tone = {}
    for one, two in combinations(sorted(nets), 2):
        gap = nets[one] - nets[two]
        if abs(gap) >= MARGIN:
            by_tone[one, two] = 1 if gap > 0 else -1
    outright = _outright(rationale, count)
    both = by_tone | outright
    return {pair: way for pair, way in both.items() if by_tone.get(pair, way) == outright.get(pair, way)}


def _outright(rationale: str, count: int) -> dict[tuple[int, int], int]:
    told, found = lexicon(), {}
    contradicted = set()

    def say(better: int, worse: int) -> None:
        pair, way = ((better, worse), 1) if better < worse else ((worse, better), -1)
        if found.setdefault(pair, way) != way:
            contradicted.add(pair)

    for sentence in _SENTENCE.split(rationale):
        named = [doctor - 1 for doctor in doctors_named(sentence) if 1 <= doctor <= count]
        words = {word.lower().replace("’", "'") for word in _WORD.findall(sentence)}
        if not named or words & told.negations:
            continue
        if len(set(named)) == 1:
            ways = [way for way, pattern in ((1, told.first), (-1, told.last)) if pattern.search(sentence)]
            for other in range(count) if len(ways) == 1 else ():
                if other != named[0]:
                    say(*((named[0], other) if ways[0] == 1 else (other, named[0])))
        elif len(set(named)) == 2 and named[0] != named[1]:
            ways = [way for way, pattern in ((1, told.above), (-1, told.below)) if pattern.search(sentence)]
            if len(ways) == 1:
                say(*((named[0], named[1]) if ways[0] == 1 else (named[1], named[0])))
    return {pair: way for pair, way in found.items() if pair not in contradicted}
