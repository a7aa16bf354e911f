"""Find questions that repeat each other, and training cases that repeat texts of evaluation cases.

Texts are compared by their words (`records.language.normalise`). A shingle is a run of words, as its hash.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain

from automedeval.records import Case, patient_question
from automedeval.records.language import normalise

WORDS = 12  # of a shingle; a shorter text occurs in many answers
MOST_SHARED = 0.5  # share of a text's shingles above which it repeats an evaluation text
SIMILAR = Fraction("0.9")  # Jaccard similarity from which two questions are the same
SIMILAR_WORDS = 3  # of a shingle of a question


def shingles(text: str, words: int = WORDS) -> set[int]:
    """Return the distinct shingles of a text; a text of fewer words is one shingle."""
    tokens = normalise(text).split()
    length = min(words, len(tokens))
    runs = zip(*(tokens[start:] for start in range(length)))
    return set(map(hash, runs))


def near_duplicates(texts: Sequence[str], kept: int = 0) -> list[int | None]:
    """Return for each text the index of the earlier text that it repeats, None for one that stays.

    Two texts repeat each other if the Jaccard similarity of their sets of shingles is at least `SIMILAR`. A text is compared
    with texts that stay alone, so a chain of small changes does not drop a text that is far from everything kept. The first
    `kept` texts all stay. Texts without words repeat nothing.

    The result is exact. An inverted index over the rarest shingles of each text leaves few pairs to compare (prefix filtering:
    two sets with a Jaccard similarity of t share a shingle among the first n - ⌈t·n⌉ + 1 of each in any common order).
    """
    sets = [shingles(text, SIMILAR_WORDS) for text in texts]
    counts = Counter(chain.from_iterable(sets))
    repeats = []
    holders = defaultdict[int, list[int]](list)  # of a shingle: texts that stay
    for number, own in enumerate(sets):
        rarest_first = sorted(own, key=lambda shingle: (counts[shingle], shingle))
        prefix = rarest_first[: len(own) - math.ceil(SIMILAR * len(own)) + 1]
        earlier = set(chain.from_iterable(holders[shingle] for shingle in prefix))
        similar = []
        for other in earlier:
            if len(own & sets[other]) >= SIMILAR * len(own | sets[other]):
                similar.append(other)
        repeats.append(min(similar, default=None))
        if not similar or number < kept:
            for shingle in prefix:
                holders[shingle].append(number)
    return repeats


def leaks(cases: Sequence[Case], evaluation: Iterable[Case]) -> dict[str, str]:
    """Return id → kind of leak of the training cases that repeat evaluation cases; only the first kind found."""
    apart = list(evaluation)
    questions = [patient_question(case.question) for case in [*apart, *cases]]
    repeats = near_duplicates(questions, kept=len(apart))
    sizes: list[int] = []  # of the long texts of evaluation cases: how many shingles each has
    owners = defaultdict[int, list[int]](list)  # of a shingle: such texts
    for text in chain.from_iterable(map(_long_texts, apart)):
        own = shingles(text)
        for shingle in own:
            owners[shingle].append(len(sizes))
        sizes.append(len(own))
    kinds = {}
    for case, earlier in zip(cases, repeats[len(apart) :]):
        if earlier is not None and earlier < len(apart):
            kinds[case.id] = "question of an evaluation case"
        elif any(_is_known(text, owners, sizes) for text in _long_texts(case)):
            kinds[case.id] = "text of an evaluation case"
        elif holds_reference(case):
            kinds[case.id] = "reference in a response"
    return kinds


def _is_known(text: str, owners: Mapping[int, list[int]], sizes: Sequence[int]) -> bool:
    """Return whether the known texts hold more than `MOST_SHARED` of this text's shingles, or it holds as many of one's."""
    own = shingles(text)
    held = [owners[shingle] for shingle in own if shingle in owners]
    if len(held) > MOST_SHARED * len(own):
        return True
    counts = Counter(chain.from_iterable(held))
    return any(count > MOST_SHARED * sizes[at] for at, count in counts.items())


def holds_reference(case: Case) -> bool:
    """Return whether a response holds the whole reference, unless that is short."""
    reference = normalise(case.reference or "")
    # The right response of a synthetic pair is the reference by design.
    others = (response.text for response in case.responses if response.model != "answer-right")
    return _long(reference) and any(f" {reference} " in f" {normalise(text)} " for text in others)


def _long_texts(case: Case) -> list[str]:
    """Return the responses and the reference without those of fewer words than a shingle, which occur elsewhere by chance."""
    texts = [*(response.text for response in case.responses), case.reference or ""]
    return [text for text in texts if _long(normalise(text))]


def _long(normalised: str) -> bool:
    return normalised.count(" ") + 1 >= WORDS
