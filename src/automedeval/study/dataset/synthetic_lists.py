"""Make scored responses of questions and answers alone: what an answer is to the question says which is better."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
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
    answered = [number for numbers in of_topic.values() for number in numbers]
    made: list[tuple[Case, list[int]]] = []
    without: Counter[str] = Counter()
    for number, case in enumerate(cases):
        if case.responses:
            raise RecordError(
                f"case {case.id!r} has responses; these lists are made of questions and answers"
            )
        rng = random.Random(f"{SEED}:{case.id}".encode())
        right = clip(case.reference or "", WORDS)
        same_topic = of_topic[topics[number]]
        near = _other(cases, same_topic, topics, number, rng, {right}, same=True) if right else None
        far = (
            _other(cases, answered, topics, number, rng, {right, near}, same=False)
            if near
            else None
        )
        if not near or not far:
            missing = "about something else" if near else "on the same topic"
            without[f"no other answer {missing}" if right else "no answer"] += 1
            continue
        texts = {
            "right": right,
            "near": near,
            "far": far,
            "cut": _beginning(right, {right, near, far}),
        }
        by_kind = {kind: text for kind, text in texts.items() if text}
        kinds = list(by_kind)
        rng.shuffle(kinds)
        responses = tuple(Response(f"answer-{kind}", by_kind[kind]) for kind in kinds)
        made.append((replace(case, responses=responses), [SCORES[kind] for kind in kinds]))
    return made, without


def _beginning(answer: str, unlike: set[str]) -> str | None:
    """Return the beginning of an answer, None if it is one of the texts `unlike`."""
    cut = clip(answer, max(1, len(answer.split()) // CUT))
    return cut if normalise(cut) not in map(normalise, unlike) else None


def _other(
    cases: Sequence[Case],
    among: list[int],
    topics: list[str],
    number: int,
    rng: random.Random,
    unlike: set[str],
    same: bool,
) -> str | None:
    """Return the clipped answer of the first case, from a drawn place on, whose topic fits and that is no text of `unlike`."""
    unusable, topic = {"", *map(normalise, unlike)}, set(topics[number].split())
    start = rng.randrange(len(among)) if among else 0
    for other in itertools.chain(range(start, len(among)), range(start)):
        # Another topic shares no word with this one: "adult leukemia" is not far from "childhood leukemia".
        if among[other] == number or (not same and topic & set(topics[among[other]].split())):
            continue
        answer = clip(cases[among[other]].reference or "", WORDS)
        if normalise(answer) not in unusable:
            return answer
    return None
