"""Statements for training a checker: sentences of books, changed by rule, beside the sentence that they came from.

The rules are data (`templates/contrast.yaml`). Words are exchanged for others of the same meaning in supported and contradicted
statements alike, so that only the comparison with the evidence tells them apart.
"""

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from automedeval.evidence.checker import CONTRADICTED, NOT_FOUND, SUPPORTED
from automedeval.evidence.statements import sentences
from automedeval.records.tables import packaged

HELD_OUT_SHARE = 5  # one document in so many is for tests
WORDS = range(6, 45)  # of a sentence that is used
SAME_WORDS = 3  # most exchanges of words for others of the same meaning in one statement


@dataclass(frozen=True)
class Rule:
    """A change of one place: what `pattern` finds becomes one of `replace`, or its number is multiplied."""

    kind: str
    pattern: re.Pattern
    replace: Sequence[str] = ()
    multiply: Sequence[float] = ()

    def apply(self, text: str, rng: random.Random) -> str | None:
        """Return the text with one place changed; None if the pattern finds nothing or nothing changes."""
        places = list(self.pattern.finditer(text))
        if not places:
            return None
        place = rng.choice(places)
        if self.multiply:
            number = float(place[1]) * rng.choice(self.multiply)
            start, end, new = *place.span(1), f"{number:.4g}" if number < 1e6 else f"{number:.0f}"
        else:
            start, end, new = *place.span(), place.expand(rng.choice(self.replace))
        if place[0][:1].isupper():
            new = new[:1].upper() + new[1:]
        changed = text[:start] + new + text[end:]
        return None if changed == text else changed


@dataclass(frozen=True)
class Rules:
    """The rules of a file: those that contradict, those that keep the meaning, and the kinds that training never sees."""

    contradict: Sequence[Rule]
    same: Sequence[Rule]
    held_out: frozenset[str]

    @classmethod
    def read(cls) -> "Rules":
        """Read the packaged rules."""
        content = packaged("dataset", "contrast")

        def rule(entry: dict[str, Any]) -> Rule:
            texts, pattern = (
                [str(text) for text in entry.get("replace", ())],
                re.compile(entry["pattern"], re.I),
            )
            return Rule(entry.get("kind", "same"), pattern, texts, entry.get("multiply", ()))

        contradict, same = (
            [rule(entry) for entry in content[name]] for name in ("contradict", "same")
        )
        return cls(contradict, same, frozenset(content["held_out"]))

    def contrary(self, text: str, rng: random.Random) -> str | None:
        """Return a text changed by one rule that contradicts, the first that applies in a drawn order; None if none does."""
        drawn = rng.sample(self.contradict, len(self.contradict))
        return next(filter(None, (rule.apply(text, rng) for rule in drawn)), None)


def contrast_pairs(
    texts: Sequence[tuple[str, str]], rules: Rules, seed: int
) -> Iterator[dict[str, str]]:
    """Yield pairs of evidence and claim, with label, kind of the rule and document, from (document, text) of books.

    Of each sentence to which a rule applies: a contradicted claim, a supported one, and, for one sentence in four, a claim
    about the sentence beside it, which the evidence does not speak of. Which of the two is the evidence is drawn for a
    contradicted claim.
    """
    rng = random.Random(seed)
    for document, text in texts:
        cut = [each for each in sentences(text) if len(each.split()) in WORDS and "?" not in each]
        for index, sentence in enumerate(cut):
            kinds: dict[str, list[str]] = {}
            for rule in rules.contradict:
                if (changed := rule.apply(sentence, rng)) is not None:
                    kinds.setdefault(rule.kind, []).append(changed)
            if not kinds:
                continue
            kind = rng.choice(sorted(kinds))
            wrong, right = rng.choice(kinds[kind]), sentence
            # Both are reworded alike often: other words alone do not tell the label.
            count = rng.randrange(SAME_WORDS + 1)
            wrong, right = (
                reword(wrong, rules.same, count, rng),
                reword(right, rules.same, count, rng),
            )
            if rng.random() < 0.3:
                right = shortened(right)
            common = {"document": document, "kind": kind}
            for claim, label in ((wrong, CONTRADICTED), (right, SUPPORTED)):
                evidence, swapped = sentence, rng.random() < 0.5
                if index and rng.random() < 0.3:
                    evidence = f"{cut[index - 1]} {evidence}"
                elif swapped and claim != right:
                    evidence, claim = claim, evidence
                yield {"evidence": evidence, "claim": claim, "label": label, **common}
            if index and rng.random() < 0.25:
                about = rng.choice((wrong, right))
                yield {"evidence": cut[index - 1], "claim": about, "label": NOT_FOUND, **common}


def is_held_out(document: str) -> bool:
    """Return whether a document is one of the fifth that is never trained on."""
    return int(hashlib.sha256(document.encode()).hexdigest(), 16) % HELD_OUT_SHARE == 0


def reword(text: str, rules: Sequence[Rule], count: int, rng: random.Random) -> str:
    """Return a text with up to `count` words exchanged for others of the same meaning."""
    for rule in rng.sample(list(rules), len(rules)) if count else ():
        changed = rule.apply(text, rng)
        if changed is not None:
            text, count = changed, count - 1
        if not count:
            break
    return text


def shortened(sentence: str) -> str:
    """Return a sentence without what follows its last comma, if at least six words remain."""
    head, mark, _ = sentence.rpartition(", ")
    return f"{head}." if mark and len(head.split()) >= WORDS.start else sentence
