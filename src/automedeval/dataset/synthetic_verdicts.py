"""Make verdicts of questions and answers alone: what an answer is, compared with the question's own, says which is better."""

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict, digest
from automedeval.records.language import normalise
from automedeval.rubrics import read_rubric
from automedeval.rubrics.prompts import clip

# The lists that the packaged small judge learned from.
SCORES = {"right": 5, "cut": 4, "near": 2, "far": 1}
WORDS = 100  # of a response at most: one piece of an answer, as encoders read it
SEED = 0
CUT = 3  # a cut answer has at most one word in so many


def verdicts_of_pairs(cases: Sequence[Case]) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Give each case a response of each kind in a seeded order, and a verdict without a rationale, with the scores of `SCORES`.

    The kinds are the true answer ("right"), an answer to another question on the same topic ("near"), an answer on another
    topic ("far"), and the beginning of the true answer ("cut"), which an answer that is too short does not have. None is longer
    than `WORDS` words.

    Return the cases with such responses; their verdicts; (case id, reason) of the cases for which there is no such answer. A
    case with responses is a RecordError.
    """
    rubric = read_rubric("automedeval")
    settings = digest(["pairs", rubric.fingerprint, sorted(SCORES.items()), WORDS, SEED])
    about: dict[str, Any] = {"settings": settings, "teacher": "weak", "quality": "low"}
    about |= {"knowledge": [], "rounds": 0, "ended": "verdict", "transcript": []}
    topics = [normalise(case.topic or "") for case in cases]
    of_topic: dict[str, list[int]] = defaultdict(list)
    for number, topic in enumerate(topics):
        if topic and (cases[number].reference or "").strip():
            of_topic[topic].append(number)
    answered = [number for numbers in of_topic.values() for number in numbers]
    made, without = [], []
    for number, case in enumerate(cases):
        if case.responses:
            raise RecordError(f"case {case.id!r} has responses; these verdicts are made of questions and answers")
        rng = random.Random(f"{SEED}:{case.id}".encode())
        right = clip(case.reference or "", WORDS)
        same_topic = of_topic[topics[number]]
        near = _other(cases, same_topic, topics, number, rng, {right}, same=True) if right else None
        far = _other(cases, answered, topics, number, rng, {right, near}, same=False) if near else None
        if not near or not far:
            missing = "about something else" if near else "on the same topic"
            without.append((case.id, f"no other answer {missing}" if right else "no answer"))
            continue
        texts = {"right": right, "near": near, "far": far, "cut": _beginning(right, {right, near, far})}
        made.append(_judged(case, texts, rng, rubric.name, about))
    return [case for case, _ in made], [verdict for _, verdict in made], without


def _judged(
    case: Case, texts: Mapping[str, str | None], rng: random.Random, rubric: str, about: Mapping[str, Any]
) -> tuple[Case, Verdict]:
    """Return a case with the texts that there are, in a drawn order, and the verdict with their scores."""
    by_kind = {kind: text for kind, text in texts.items() if text}
    kinds = list(by_kind)
    rng.shuffle(kinds)
    responses = tuple(Response(PAIR_MODELS[kind], by_kind[kind]) for kind in kinds)
    made = Case(case.id, case.question, responses, case.reference, case.topic, case.extra)
    scores = tuple(SCORES[kind] for kind in kinds)
    extra = {"models": made.models, "case_digest": made.digest, **about}
    return made, Verdict(made.id, "pairs", rubric, tuple(range(len(kinds))), valid=True, scores=scores, extra=extra)


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
