"""Make verdicts of questions and answers alone: what an answer is, compared with the question's own, says which is better."""

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from automedeval.dataset.human_verdicts import checked_scores, rng_of, verdict_without_teacher
from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict, digest
from automedeval.records.language import normalise
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import clip

CUT = 3  # a cut answer has at most one word in so many
NEEDED, OPTIONAL = {"right", "near", "far"}, {"cut"}  # kinds of responses


def verdicts_of_pairs(
    cases: Sequence[Case], rubric: Rubric, scores: Mapping[str, int], clip_words: int = 60, seed: int = 0
) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Give each case a response of each kind in a seeded order, and a verdict without a rationale.

    The kinds are the true answer ("right"), an answer to another question on the same topic ("near"), an answer on another
    topic ("far"), and the beginning of the true answer ("cut"), which an answer that is too short does not have. None is longer
    than `clip_words` words.

    Args:
        scores: kind → the score of its responses; all but "cut" are needed.

    A case with responses, an unknown or missing kind, and scores off the rubric's scale, are a RecordError.

    Returns:
        The cases with such responses; their verdicts; (case id, reason) of the cases for which there is no such answer.
    """
    if not NEEDED <= scores.keys() <= NEEDED | OPTIONAL:
        raise RecordError("--pair_scores: needs scores of right, near, far, and may have one of cut")
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
            raise RecordError(f"case {case.id!r} has responses; these verdicts are made of questions and answers")
        rng = rng_of(seed, case)
        right = clip(case.reference or "", clip_words)
        own = about[topics[number]]
        near = _other(cases, own, topics, number, rng, clip_words, {right}, same=True) if right else None
        far = _other(cases, answered, topics, number, rng, clip_words, {right, near}, same=False) if near else None
        if not near or not far:
            missing = "about something else" if near else "on the same topic"
            without.append((case.id, f"no other answer {missing}" if right else "no answer"))
            continue
        cut = _beginning(right, {right, near, far}) if "cut" in scores else None
        texts = {"right": right, "near": near, "far": far, "cut": cut}
        kinds = [kind for kind, text in texts.items() if text]
        rng.shuffle(kinds)
        judged = replace(case, responses=tuple(Response(PAIR_MODELS[kind], texts[kind] or "") for kind in kinds))
        notes = {"settings": settings, "teacher": "weak", "quality": "low"}
        values = [scores[kind] for kind in kinds]
        made.append(judged)
        verdicts.append(verdict_without_teacher(judged, "pairs", rubric, range(len(kinds)), values, **notes))
    return made, verdicts, without


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
    words: int,
    unlike: set[str],
    same: bool,
) -> str | None:
    """Return the clipped answer of the first case, from a drawn place on, whose topic fits and that is no text of `unlike`."""
    known, topic = {"", *map(normalise, unlike)}, set(topics[number].split())
    start = rng.randrange(len(among)) if among else 0
    for other in itertools.chain(range(start, len(among)), range(start)):
        # Another topic shares no word with this one: "adult leukemia" is not far from "childhood leukemia".
        if among[other] == number or (not same and topic & set(topics[among[other]].split())):
            continue
        answer = clip(cases[among[other]].reference or "", words)
        if normalise(answer) not in known:
            return answer
    return None
