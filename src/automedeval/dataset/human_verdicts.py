"""Make verdicts of people's ratings and comments.

They have the layout of a teacher's verdicts, so a data set is built of them in the same way. The paper distils all its verdicts
from teachers (section 3.1); these serve studies with people's reasons and no teacher.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from automedeval.records import RATER, Case, Rating, RecordError, Verdict, digest
from automedeval.records.readers import check_ratings, read_placed
from automedeval.rubrics import Rubric
from automedeval.rubrics.slots import by_slot


def rng_of(seed: int, case: Case) -> random.Random:
    """Return a generator that depends on the seed and the case alone."""
    return random.Random(f"{seed}:{case.id}".encode())


def verdict_without_teacher(
    case: Case, judge: str, rubric: Rubric, order: Sequence[int], scores: Sequence[int], **extra: Any
) -> Verdict:
    """Return a verdict in the layout of a teacher's, without a rationale; `extra` holds settings, teacher and quality."""
    no_chain = {"knowledge": [], "rounds": 0, "ended": "verdict", "transcript": []}
    extra = {"models": case.models, "case_digest": case.digest, **extra, **no_chain}
    return Verdict(case.id, judge, rubric.name, tuple(order), valid=True, scores=tuple(scores), extra=extra)


def checked_scores(scores: Sequence[float], rubric: Rubric, place: str) -> list[int]:
    """Return scores as integers on a rubric's scale; any other score, and a rubric with choices instead, is a RecordError."""
    if rubric.scale is None:
        raise RecordError(f"{place}: the rubric {rubric.name} gives choices, not scores")
    low, high = rubric.scale
    for score in scores:
        if score not in range(low, high + 1):
            raise RecordError(f"{place}: the score {score} is not a whole number on {rubric.name}'s scale {low}–{high}")
    return [int(score) for score in scores]


def read_reasons(path: str, cases: Sequence[Case], rubric: Rubric) -> dict[str, dict[str, dict[str, Rating]]]:
    """Read ratings of these cases on one criterion: case id → annotator → model → rating.

    RecordError for a score off the rubric's scale, a model without a response, two ratings of one response by one annotator, a
    second criterion, or no rating of any of these cases.
    """
    models = {case.id: case.models for case in cases}
    reasons: dict[str, dict[str, dict[str, Rating]]] = defaultdict(lambda: defaultdict(dict))
    criterion = None
    for place, rating in check_ratings(read_placed(path, Rating), models):
        criterion = criterion or rating.criterion
        if rating.criterion != criterion:
            both = f"{criterion!r} and {rating.criterion!r}"
            raise RecordError(f"{place}: a verdict has one score for a response, and these have the criteria {both}")
        checked_scores([rating.score], rubric, place)
        reasons[rating.case_id][rating.annotator][rating.model] = rating
    if not reasons:
        raise RecordError(f"{path}: no rating of any of these {len(cases)} cases")
    return reasons


def stepwise(reasons: Sequence[str | None]) -> str:
    """Return reasons, in slot order, as a rationale with one step for each doctor."""
    # One line each: a reason must not look like the line of scores that follows.
    steps = ((slot, " ".join((reason or "").split())) for slot, reason in enumerate(reasons, 1))
    return "\n".join(f"Step {slot}: Doctor {slot}: {reason}" for slot, reason in steps if reason)


def agree(ratings: Iterable[dict[str, Rating]]) -> bool:
    """Return whether two raters or more agree: no pair of responses in reverse order, no response more than 1 point apart."""
    raters = list(ratings)
    for rater, other in combinations(raters, 2):
        both = [(rater[model].score, other[model].score) for model in rater if model in other]
        if any(abs(a - b) > 1 for a, b in both):
            return False
        if any((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(both, 2)):
            return False
    return len(raters) > 1


def verdicts_of_raters(
    cases: Sequence[Case], path: str, rubric: Rubric, seed: int = 0
) -> tuple[list[Verdict], list[dict[str, Any]], Counter]:
    """Make one rater's scores and reasons the verdict of each case, and keep those of the other raters for the jury.

    The rater is drawn among those who gave every response a score and a reason. `quality` is "high" if the raters of the case
    agree (see `agree`), else "low".

    The ratings in `path` have comments, one criterion, and the rubric's scale.

    Returns:
        The verdicts; the other raters' scores and reasons in the layout of jury.jsonl, undecided; reason → number of cases
        without a verdict.
    """
    reasons_of = read_reasons(path, cases, rubric)
    settings = digest(["ratings", rubric.fingerprint, seed])
    verdicts, jury = [], []
    without: Counter[str] = Counter()
    for case in cases:
        raters = reasons_of.get(case.id, {})
        complete = [
            name
            for name in sorted(raters)
            if all(model in raters[name] and (raters[name][model].comment or "").strip() for model in case.models)
        ]
        if not 1 <= len(case.responses) <= rubric.max_responses:
            without[f"not 1 to {rubric.max_responses} responses"] += 1
        elif not complete:
            without["no rater with a score and a reason for every response"] += 1
        else:
            rng = rng_of(seed, case)
            chosen = rng.choice(complete)
            order = rng.sample(range(len(case.responses)), len(case.responses))
            readings = {name: _reading(case, raters[name], order) for name in sorted(raters)}
            rationale, _ = readings.pop(chosen)
            scores = [int(raters[chosen][model].score) for model in case.models]
            quality = "high" if agree(raters.values()) else "low"
            notes = {"settings": settings, "teacher": "strong", "quality": quality}
            verdict = verdict_without_teacher(case, f"{RATER}{chosen}", rubric, order, scores, **notes)
            verdicts.append(replace(verdict, rationale=rationale))
            for name, (reasons, values) in readings.items():
                about = {"case_id": case.id, "judge": verdict.judge, "annotator": name, "decision": None}
                jury.append({**about, "rationale": reasons or None, "scores": values, "order": order})
    return verdicts, jury, without


def _reading(case: Case, ratings: dict[str, Rating], order: Sequence[int]) -> tuple[str, list[int | None]]:
    """Return one rater's reasons, in the order of the slots, and scores, in the order of the case's responses."""
    by_response = [ratings.get(model) for model in case.models]
    scores = [None if rating is None else int(rating.score) for rating in by_response]
    return stepwise([rating and rating.comment for rating in by_slot(by_response, order)]), scores
