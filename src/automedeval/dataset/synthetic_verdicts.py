"""Verdicts that follow from how a case was made: the true answer beats a near one, a near one a far one."""

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence

from automedeval.dataset.decontamination import normalise
from automedeval.dataset.human_verdicts import _rng, _settings, _verdict, checked_scores
from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import clip


def verdicts_of_pairs(
    cases: Sequence[Case], rubric: Rubric, scores: Sequence[int] = (5, 3, 1), clip_words: int = 60, seed: int = 0
) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Give each case three responses, of which one must be better than the next, and the verdict that says so.

    The responses are the true answer, an answer to another question about the same topic, and an answer about something
    else, none longer than `clip_words` words. They stand in a seeded order. The verdict has no rationale.

    Returns:
        The cases that have such responses; their verdicts; (case id, reason) of the cases that have not.
    """
    right_near_far = checked_scores(scores, rubric, "--pair_scores")
    settings = _settings("pairs", rubric.fingerprint, right_near_far, clip_words, seed)
    topics = [normalise(case.topic or "") for case in cases]
    about: dict[str, list[int]] = defaultdict(list)
    for number, topic in enumerate(topics):
        if topic and (cases[number].reference or "").strip():
            about[topic].append(number)
    answered = [number for numbers in about.values() for number in numbers]
    made, verdicts, without = [], [], []
    for number, case in enumerate(cases):
        if case.responses:
            raise RecordError(
                f"case {case.id!r} has responses already; --verdicts_from pairs takes questions and answers"
            )
        rng = _rng(seed, case)
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
        verdicts.append(_verdict(made[-1], "pairs", rubric, range(3), values, None, **notes))
    return made, verdicts, without


def _other(
    cases: Sequence[Case], among: list[int], topics: list[str], number: int, rng: random.Random, words: int, same: bool
) -> str | None:
    """Return an answer of another case, clipped: the first whose topic fits and whose text differs, from a drawn place on."""
    right, topic = normalise(clip(cases[number].reference, words)), set(topics[number].split())
    start = rng.randrange(len(among)) if among else 0
    for other in itertools.chain(range(start, len(among)), range(start)):
        # What is about something else shares no word of its topic: "adult leukemia" is not far from "childhood leukemia".
        if among[other] == number or (not same and topic & set(topics[among[other]].split())):
            continue
        answer = clip(cases[among[other]].reference, words)
        if normalise(answer) not in ("", right):
            return answer
    return None
