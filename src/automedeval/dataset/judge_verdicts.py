"""Make a teacher's verdicts of the numbers that a judge gave each response by itself.

A baseline, the likelihood or the small judge can so teach a judge that writes verdicts: their `expected_scores` have a scale of
their own, or none, and become whole scores on a rubric's scale.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from automedeval.dataset.human_verdicts import stepwise, verdict_without_teacher
from automedeval.metrics.lexical import Collection, patient_text, words
from automedeval.records import Case, RecordError, Verdict, digest, read_placed
from automedeval.rubrics import Rubric

NAMED = 3  # words of the question that a step of the rationale names at most
COMMON = 0.1  # words in a larger share of the questions or of the responses are not named


def verdicts_of_judge(
    cases: Sequence[Case], path: str, rubric: Rubric, teacher: str, evidence: bool = False
) -> tuple[list[Verdict], Counter]:
    """Give every response the score of the part of all responses that the judge's number puts it in.

    The parts are equally large, one for each score of the rubric's scale; equal numbers get the same score. `quality` is "low"
    if the judge abstains, else "high".

    Args:
        path: file of one judge's verdicts, one on each case; those on other cases are passed over.
        teacher: "strong" or "weak".
        evidence: whether a rationale names the rarest words of the question that a response has.

    Raises:
        RecordError: a rubric without a scale, a second verdict on a case, verdicts of two judges or settings, texts that
            changed, or no valid verdict with numbers for all responses.

    Returns:
        The verdicts; reason → number of cases without one.
    """
    if rubric.scale is None:
        raise RecordError(f"--rubric: {rubric.name} gives choices, not scores")
    judged = _read(cases, path)
    without, valued = Counter(), []
    for case in cases:
        found = judged.get(case.id)
        if found is None or not found.valid:
            without["not judged" if found is None else "invalid"] += 1
        elif None in found.expected_scores:
            without["a response is unread"] += 1
        elif not 1 <= len(case.responses) <= rubric.max_responses:
            without[f"not 1 to {rubric.max_responses} responses"] += 1
        else:
            valued.append((case, found))
    if not valued:
        raise RecordError(f"{path}: no valid verdict on any of these {len(cases):,} cases")
    low, high = rubric.scale
    every = np.sort(np.concatenate([found.expected_scores for _, found in valued]))
    rare = _rare_words([case for case, _ in valued]) if evidence else {}
    verdicts = []
    for case, found in valued:
        below = np.searchsorted(every, found.expected_scores)
        scores = (low + below * (high - low + 1) // len(every)).tolist()
        settings = digest(["judge", found.settings, rubric.fingerprint, evidence])
        notes = {"settings": settings, "teacher": teacher, "quality": "low" if found.extra.get("abstains") else "high"}
        verdict = verdict_without_teacher(case, found.judge, rubric, range(len(scores)), scores, **notes)
        verdicts.append(replace(verdict, rationale=_rationale(case, rare) if evidence else None))
    return verdicts, without


def _read(cases: Sequence[Case], path: str) -> dict[str, Verdict]:
    """Return the verdict on each case by its id."""
    wanted, found, author = {case.id: case for case in cases}, {}, None
    for place, verdict in read_placed(path, Verdict):
        case = wanted.get(verdict.case_id)
        if case is None:
            continue
        verdict.check(place, case.digest)
        author = author or (verdict.judge, verdict.settings)
        if author != (verdict.judge, verdict.settings):
            raise RecordError(f"{place}: a verdict of another judge, or of other settings, than the first")
        if verdict.case_id in found:
            raise RecordError(f"{place}: a second verdict on case {verdict.case_id!r}")
        given = verdict.expected_scores
        if verdict.valid and (given is None or len(given) != len(case.responses)):
            raise RecordError(f"{place}: has no expected_scores of all responses")
        found[verdict.case_id] = verdict
    return found


def _rare_words(cases: Sequence[Case]) -> dict[str, int]:
    """Return the words of the questions that are common neither there nor in the responses → number of responses with them."""
    responses = Collection.of(cases)
    asked = Counter(word for case in cases for word in set(words(patient_text(case))))
    return {
        word: responses.frequency[word]
        for word, number in asked.items()
        if len(word) > 1 and number <= COMMON * len(cases) and responses.frequency[word] <= COMMON * responses.size
    }


def _rationale(case: Case, rare: Mapping[str, int]) -> str:
    """Return one step for each response: the rarest words of the question that it has, as the question orders them."""
    asked = [word for word in dict.fromkeys(words(patient_text(case))) if word in rare]
    reasons = []
    for response in case.responses:
        own = set(words(response.text))
        named = sorted((word for word in asked if word in own), key=lambda word: (rare[word], word))[:NAMED]
        reasons.append(f"{', '.join(sorted(named, key=asked.index))}." if named else "nothing that was asked.")
    return stepwise(reasons)
