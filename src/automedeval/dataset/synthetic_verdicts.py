"""Make verdicts of questions and answers alone: the true answer, then one on the same topic, then one on another topic."""

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence

from automedeval.dataset.decontamination import normalise
from automedeval.dataset.human_verdicts import checked_scores, rng_of, verdict_without_teacher
from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict, digest
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import clip


def verdicts_of_pairs(
    cases: Sequence[Case], rubric: Rubric, scores: Sequence[int] = (5, 3, 1), clip_words: int = 60, seed: int = 0
) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Give each case three responses in a seeded order, and a verdict without a rationale.

    The responses are the true answer, an answer to another question on the same topic, and an answer on another topic, none
    longer than `clip_words` words. Their scores are `scores`, in this order.

    A case with responses, and scores off the rubric's scale, are a RecordError.

    Returns:
        The cases with such responses; their verdicts; (case id, reason) of the cases for which there is no such answer.
    """
    right_near_far = checked_scores(scores, rubric, "--pair_scores")
    settings = digest(["pairs", rubric.fingerprint, right_near_far, clip_words, seed])
    topics = [normalise(case.topic or "") for case in cases]
    about: dict[str, list[int]] = defaultdict(list)
    for number, topic in enumerate(topics):
        if topic and (cases[number].reference or "").strip():
            about[topic].append(number)
    answered = [number for numbers in about.values() for number in numbers]
    made, verdicts, without = [], [], []
    for number, case in enumerate(cases):
        if case.responses:
            raise RecordError(f"case {case.id!r} has responses; --verdicts_from pairs takes questions and answers")
        rng = rng_of(seed, case)
        right = clip(case.reference or "", clip_words)
        near = _other(cases, about[topics[number]], topics, number, rng, clip_words, same=True) if right else None
        far = _other(cases, answered, topics, number, rng, clip_words, same=False) if near else None
        if not far:
            missing = "about something else" if near else "on the same topic"
            without.append((case.id, f"no other answer {missing}" if right else "no answer"))
            continue
        texts, order = (right, near, far), rng.sample(range(3), 3)
        responses = tuple(Response(PAIR_MODELS[kind], texts[kind]) for kind in order)
        made.append(Case(case.id, case.question, responses, case.reference, case.topic, case.extra))
        notes = {"settings": settings, "teacher": "weak", "quality": "low"}
        values = [right_near_far[kind] for kind in order]
        verdicts.append(verdict_without_teacher(made[-1], "pairs", rubric, range(3), values, **notes))
    return made, verdicts, without


def _other(
    cases: Sequence[Case], among: list[int], topics: list[str], number: int, rng: random.Random, words: int, same: bool
) -> str | None:
    """Return the clipped answer of the first case, from a drawn place on, whose topic fits and whose text differs."""
    right, topic = normalise(clip(cases[number].reference, words)), set(topics[number].split())
    start = rng.randrange(len(among)) if among else 0
    for other in itertools.chain(range(start, len(among)), range(start)):
        # Another topic shares no word with this one: "adult leukemia" is not far from "childhood leukemia".
        if among[other] == number or (not same and topic & set(topics[among[other]].split())):
            continue
        answer = clip(cases[among[other]].reference, words)
        if normalise(answer) not in ("", right):
            return answer
    return None
