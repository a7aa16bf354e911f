"""Make verdicts of questions and answers alone: what an answer is, compared with the question's own, says which is better."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from automedeval.dataset.human_verdicts import checked_scores, rng_of, verdict_without_teacher
from automedeval.metrics.embedding import pieces
from automedeval.records import PAIR_MODELS, Case, RecordError, Response, Verdict, digest
from automedeval.records.language import normalise
from automedeval.rubrics import Rubric
from automedeval.rubrics.prompts import clip

CUT = 3  # a cut answer has at most one word in so many
# What responses can be compared with the question's own answer, and whether every case has one.
PAIRS = {"right": True, "near": True, "far": True, "cut": False}
HARMS = {"right": True, "harmed": True, "reworded": False}


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
    _check_kinds(scores, PAIRS, rubric)
    settings = digest(["pairs", rubric.fingerprint, sorted(scores.items()), clip_words, seed])
    topics = [normalise(case.topic or "") for case in cases]
    about: dict[str, list[int]] = defaultdict(list)
    for number, topic in enumerate(topics):
        if topic and (cases[number].reference or "").strip():
            about[topic].append(number)
    answered = [number for numbers in about.values() for number in numbers]
    made, without = [], []
    for number, case in enumerate(cases):
        _check_no_responses(case)
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
        made.append(_judged(case, case.id, texts, scores, rng, rubric, settings))
    return [case for case, _ in made], [verdict for _, verdict in made], without


def verdicts_of_harms(
    cases: Sequence[Case],
    rubric: Rubric,
    scores: Mapping[str, int],
    harm: Callable[[str, random.Random], str | None],
    reword: Callable[[str], str | None],
    clip_words: int = 60,
    seed: int = 0,
) -> tuple[list[Case], list[Verdict], list[tuple[str, str]]]:
    """Make a case of each piece of a true answer that can be made dangerous, and a verdict without a rationale.

    Its responses are the piece ("right"), the piece with a dangerous fact ("harmed"), and the piece in other words
    ("reworded"), which not every piece allows.

    Args:
        scores: kind → the score of its responses; "right" and "harmed" are needed.
        harm, reword: return the changed text, None if nothing in it can be changed.
        clip_words: words of a piece.

    Raises and returns as `verdicts_of_pairs`; the ids of the new cases end with the number of the piece.
    """
    _check_kinds(scores, HARMS, rubric)
    settings = digest(["harms", rubric.fingerprint, sorted(scores.items()), clip_words, seed])
    made: list[tuple[Case, Verdict]] = []
    without: list[tuple[str, str]] = []
    for case in cases:
        _check_no_responses(case)
        rng, before = rng_of(seed, case), len(made)
        for number, piece in enumerate(map(str.strip, pieces(case.reference or "", clip_words)), 1):
            if (harmed := harm(piece, rng)) is None:
                continue
            texts = {"right": piece, "harmed": harmed} | ({"reworded": reword(piece)} if "reworded" in scores else {})
            made.append(_judged(case, f"{case.id}#{number}", texts, scores, rng, rubric, settings))
        if len(made) == before:
            without.append((case.id, "nothing to make dangerous"))
    return [case for case, _ in made], [verdict for _, verdict in made], without


def _check_kinds(scores: Mapping[str, int], known: Mapping[str, bool], rubric: Rubric) -> None:
    needed = [kind for kind, always in known.items() if always]
    if scores.keys() - known.keys() or set(needed) - scores.keys():
        others = ", ".join(kind for kind, always in known.items() if not always)
        raise RecordError(f"--pair_scores: needs scores of {', '.join(needed)}, and may have one of {others}")
    checked_scores(list(scores.values()), rubric, "--pair_scores")


def _check_no_responses(case: Case) -> None:
    if case.responses:
        raise RecordError(f"case {case.id!r} has responses; these verdicts are made of questions and answers")


def _judged(
    case: Case,
    case_id: str,
    texts: Mapping[str, str | None],
    scores: Mapping[str, int],
    rng: random.Random,
    rubric: Rubric,
    settings: str,
) -> tuple[Case, Verdict]:
    """Return a case with the texts that there are, in a drawn order, and the verdict with their scores."""
    by_kind = {kind: text for kind, text in texts.items() if text}
    kinds = list(by_kind)
    rng.shuffle(kinds)
    responses = tuple(Response(PAIR_MODELS[kind], by_kind[kind]) for kind in kinds)
    made = Case(case_id, case.question, responses, case.reference, case.topic, case.extra)
    notes = {"settings": settings, "teacher": "weak", "quality": "low"}
    values = [scores[kind] for kind in kinds]
    return made, verdict_without_teacher(made, "pairs", rubric, range(len(kinds)), values, **notes)


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
