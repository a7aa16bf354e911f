"""Make scored responses of questions and answers alone: what an answer is to the question says which is better."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from automedeval.records import Case, RecordError, Response
from automedeval.records.language import normalise
from automedeval.rubrics.prompts import clip

# The lists that the packaged small judge learned from.
SCORES = {"right": 5, "cut": 4, "near": 2, "far": 1}
WORDS = 100  # of a response at most: one piece of an answer, as encoders read it
SEED = 0
CUT = 3  # a cut answer has at most one word in so many


def lists_of_pairs(cases: Sequence[Case]) -> tuple[list[tuple[Case, list[int]]], Counter[str]]:
    """Give each case a response of each kind in a seeded order, with the scores of `SCORES`.

    The kinds are the true answer ("right"), an answer to another question on the same topic ("near"), an answer on another
    topic ("far"), and the beginning of the true answer ("cut"), which an answer that is too short does not have. None is longer
    than `WORDS` words.

    A case with responses is a RecordError.

    Returns:
        The cases with such responses and their scores; reason → number of the cases for which there is no such answer.
    """
    topics = [normalise(case.topic or "") for case in cases]
    of_topic: dict[str, list[int]] = defaultdict(list)
    for number, topic in enumerate(topics):
        if topic and (cases[number].reference or "").strip():
            of_topic[topic].append(number)
    answered = list(itertools.chain.from_iterable(of_topic.values()))
    lists: list[tuple[Case, list[int]]] = []
    without: Counter[str] = Counter()
    for number, case in enumerate(cases):
        if case.responses:
            raise RecordError(
                f"case {case.id!r} has responses; these lists are made of questions and answers"
            )
        rng = random.Random(f"{SEED}:{case.id}".encode())
        right = clip(case.reference or "", WORDS)
        near = far = None
        if right:
            of_same = [at for at in _turn(of_topic[topics[number]], rng) if at != number]
            near = _first(cases, of_same, {right})
        if near:
            words = set(topics[number].split())
            # Another topic shares no word with this one: "adult leukemia" is not far from "childhood leukemia".
            of_other = (at for at in _turn(answered, rng) if words.isdisjoint(topics[at].split()))
            far = _first(cases, of_other, {right, near})
        if not near or not far:
            missing = "about something else" if near else "on the same topic"
            without[f"no other answer {missing}" if right else "no answer"] += 1
            continue
        texts = {"right": right, "near": near, "far": far}
        if cut := _beginning(right, {right, near, far}):
            texts["cut"] = cut
        kinds = list(texts)
        rng.shuffle(kinds)
        responses = tuple(Response(f"answer-{kind}", texts[kind]) for kind in kinds)
        lists.append((replace(case, responses=responses), [SCORES[kind] for kind in kinds]))
    return lists, without


def _beginning(answer: str, unlike: set[str]) -> str | None:
    """Return the beginning of an answer, None if it is one of the texts `unlike`."""
    cut = clip(answer, max(1, len(answer.split()) // CUT))
    return cut if normalise(cut) not in map(normalise, unlike) else None


def _turn(numbers: list[int], rng: random.Random) -> list[int]:
    """Return the numbers from a drawn place on, and then those before it."""
    start = rng.randrange(len(numbers)) if numbers else 0
    return numbers[start:] + numbers[:start]


def _first(cases: Sequence[Case], numbers: Iterable[int], unlike: set[str]) -> str | None:
    """Return the clipped answer of the first of these cases whose answer is no text of `unlike`."""
    unusable = {"", *map(normalise, unlike)}
    answers = (clip(cases[number].reference or "", WORDS) for number in numbers)
    return next((answer for answer in answers if normalise(answer) not in unusable), None)
