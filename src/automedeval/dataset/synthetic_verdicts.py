"""Make verdicts of questions and answers alone: what an answer is, compared with the question's own, says which is better."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from automedeval.dataset.decontamination import normalise
from automedeval.dataset.human_verdicts import checked_scores, rng_of, verdict_without_teacher
from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict, digest
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import clip

ALWAYS = ("right", "near", "far")  # every case has a response of each of these kinds
CUT = 3  # a cut answer has at most one word in so many


def verdicts_of_pairs(
    cases: Sequence[Case],
    rubric: Rubric,
    scores: Mapping[str, int],
    clip_words: int = 60,
    seed: int = 0,
    harm: Callable[[str, random.Random], str | None] | None = None,
) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Give each case a response of each kind in a seeded order, and a verdict without a rationale.

    The kinds are the true answer ("right"), an answer to another question on the same topic ("near"), an answer on another
    topic ("far"), the beginning of the true answer ("cut"), and the true answer with a dangerous fact ("harmed"). None is
    longer than `clip_words` words. A case has no "cut" if its answer is too short, and no "harmed" if `harm` changes nothing.

    Args:
        scores: kind → the score of its responses; the first three kinds are needed.
        harm: returns a text with a fact made dangerous, None if there is none; needed for "harmed".

    A case with responses, an unknown or missing kind, and scores off the rubric's scale, are a RecordError.

    Returns:
        The cases with such responses; their verdicts; (case id, reason) of the cases for which there is no such answer.
    """
    if scores.keys() - PAIR_MODELS.keys() or set(ALWAYS) - scores.keys():
        others = ", ".join(kind for kind in PAIR_MODELS if kind not in ALWAYS)
        raise RecordError(f"--pair_scores: needs scores of {', '.join(ALWAYS)}, and may have those of {others}")
    checked_scores(list(scores.values()), rubric, "--pair_scores")
    settings = digest(["pairs", rubric.fingerprint, sorted(scores.items()), clip_words, seed])
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
        texts: dict[str, str | None] = {"right": right, "near": near, "far": far}
        if "cut" in scores:
            texts["cut"] = _beginning(right)
        if "harmed" in scores:
            texts["harmed"] = harm(right, rng)
        kinds = [kind for kind in texts if texts[kind]]
        rng.shuffle(kinds)
        responses = tuple(Response(PAIR_MODELS[kind], texts[kind]) for kind in kinds)
        made.append(Case(case.id, case.question, responses, case.reference, case.topic, case.extra))
        notes = {"settings": settings, "teacher": "weak", "quality": "low"}
        values = [scores[kind] for kind in kinds]
        verdicts.append(verdict_without_teacher(made[-1], "pairs", rubric, range(len(kinds)), values, **notes))
    return made, verdicts, without


def _beginning(answer: str) -> str | None:
    """Return the beginning of an answer, None if it is the answer."""
    cut = clip(answer, max(1, len(answer.split()) // CUT))
    return cut if normalise(cut) != normalise(answer) else None


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
