"""Make scored responses of questions and answers alone: what an answer is to the question says which is better."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from automedeval.records import Case, RecordError, Response
from automedeval.records.language import normalise
from automedeval.rubrics.prompts import clip

# The lists that the packaged small judge learned from.
SCORES = {"right": 5, "cut": 4, "near": 2, "far": 1}
WORDS = 100  # of a response at most: one piece of an answer, as encoders read it
SEED = 0
CUT = 3  # a cut answer has at most one word in so many


def lists_of_pairs(cases: Sequence[Case]) -> list[tuple[Case, list[int]]]:
    """Give cases a response of each kind in a seeded order; return them with the scores of `SCORES`.

    The kinds are the true answer ("right"), an answer to another question on the same topic ("near"), an answer on another
    topic ("far"), and the beginning of the true answer ("cut"), which an answer that is too short does not have. None is longer
    than `WORDS` words. A case for which there is no right, near or far answer is left out; one with responses is a RecordError.
    """
    of_topic = defaultdict[str, list[Case]](list)
    for case in cases:
        if case.responses:
            raise RecordError(
                f"case {case.id!r} has responses; these lists are made of questions and answers"
            )
        if _topic(case) and (case.reference or "").strip():
            of_topic[_topic(case)].append(case)
    answered = list(chain.from_iterable(of_topic.values()))
    lists = []
    for case in cases:
        rng = random.Random(f"{SEED}:{case.id}")
        topic = _topic(case)
        words = set(topic.split())
        near = _turn(of_topic[topic], rng)
        # Another topic shares no word with this one: "adult leukemia" is not far from "childhood leukemia".
        others = _turn(answered, rng)
        far = (other for other in others if words.isdisjoint(_topic(other).split()))
        texts = {"right": _answer(case)}
        texts["near"] = _first(near, texts)
        texts["far"] = _first(far, texts)
        if not all(texts.values()):
            continue
        cut = clip(texts["right"], max(1, len(texts["right"].split()) // CUT))
        if _is_new(cut, texts):
            texts["cut"] = cut
        kinds = list(texts)
        rng.shuffle(kinds)
        responses = tuple(Response(f"answer-{kind}", texts[kind]) for kind in kinds)
        lists.append((replace(case, responses=responses), [SCORES[kind] for kind in kinds]))
    return lists


def _topic(case: Case) -> str:
    return normalise(case.topic or "")


def _answer(case: Case) -> str:
    """Return a case's true answer, clipped."""
    return clip(case.reference or "", WORDS)


def _turn(cases: list[Case], rng: random.Random) -> list[Case]:
    """Return the cases from a drawn place on, and then those before it."""
    start = rng.randrange(len(cases)) if cases else 0
    return cases[start:] + cases[:start]


def _first(cases: Iterable[Case], texts: Mapping[str, str]) -> str:
    """Return the first answer of these cases that is none of the texts; empty if there is none."""
    return next((answer for answer in map(_answer, cases) if _is_new(answer, texts)), "")


def _is_new(answer: str, texts: Mapping[str, str]) -> bool:
    """Return whether an answer has words, and none of the texts has the same."""
    return normalise(answer) not in {"", *map(normalise, texts.values())}
