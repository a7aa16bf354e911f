"""Verdicts that need no teacher: people's scores with their reasons, and pairs of a question and its answer.

Both come in the layout that a teacher's verdicts have, so that a data set is built of them in the same way. The paper
distils all its verdicts from teachers (section 3.1); these serve studies that have people's reasons, or no teacher at all.
"""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from automedeval.records import RATER, Case, Rating, RecordError, Verdict, read_placed
from automedeval.rubrics import Rubric

# What a verdict says of the chain that led to it, where nobody was asked.
NO_CHAIN = {"knowledge": [], "rounds": 0, "ended": "verdict", "transcript": []}


def _rng(seed: int, case: Case) -> random.Random:
    return random.Random(f"{seed}:{case.id}".encode("utf-8", "replace"))


def _settings(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _verdict(
    case: Case,
    judge: str,
    rubric: Rubric,
    order: Sequence[int],
    scores: Sequence[int],
    rationale: str | None,
    **extra: Any,
) -> Verdict:
    about = {"models": case.models, "case_digest": case.digest}
    return Verdict(
        case_id=case.id,
        judge=judge,
        rubric=rubric.name,
        order=tuple(order),
        valid=True,
        rationale=rationale,
        scores=tuple(scores),
        extra={**about, **extra, **NO_CHAIN},
    )


def checked_scores(scores: Iterable[float], rubric: Rubric, place: str) -> list[int]:
    """Return scores as whole numbers of a rubric's scale.

    Raises:
        RecordError: a score is off the scale, or no whole number; or the rubric has choices.
    """
    if rubric.scale is None:
        raise RecordError(f"{place}: the rubric {rubric.name} gives choices, not scores")
    low, high = rubric.scale
    checked = []
    for score in scores:
        if score not in range(low, high + 1):
            raise RecordError(f"{place}: the score {score} is no whole number of {rubric.name}'s scale {low} to {high}")
        checked.append(int(score))
    return checked


def read_reasons(path: str, cases: Sequence[Case], rubric: Rubric) -> dict[str, dict[str, dict[str, Rating]]]:
    """Read ratings of these cases on one criterion: case id → annotator → model → rating; ratings of others are passed over.

    Raises:
        RecordError: a score off the rubric's scale, a model that has no response, a rating that came before, a second
            criterion, or no rating of any of these cases.
    """
    models = {case.id: set(case.models) for case in cases}
    found: dict[str, dict[str, dict[str, Rating]]] = defaultdict(lambda: defaultdict(dict))
    criterion = None
    for place, rating in read_placed(path, Rating):
        if rating.case_id not in models:
            continue
        if rating.model not in models[rating.case_id]:
            raise RecordError(f"{place}: case {rating.case_id!r} has no response of {rating.model!r}")
        criterion = criterion or rating.criterion
        if rating.criterion != criterion:
            raise RecordError(
                f"{place}: a verdict has one score for a response, and these ratings have the criteria {criterion!r} "
                f"and {rating.criterion!r}"
            )
        checked_scores([rating.score], rubric, place)
        given = found[rating.case_id][rating.annotator]
        if rating.model in given:
            raise RecordError(f"{place}: {rating.annotator!r} rated {rating.model!r} of {rating.case_id!r} before")
        given[rating.model] = rating
    if not found:
        raise RecordError(f"{path}: no rating of any of these {len(cases)} cases")
    return found


def stepwise(reasons: Sequence[str | None]) -> str:
    """Write the reasons, in the order in which the responses are shown, as one step for each doctor."""
    # One line each: a reason must not look like the line of scores that follows.
    told = ((slot, " ".join((reason or "").split())) for slot, reason in enumerate(reasons, 1))
    return "\n".join(f"Step {slot}: Doctor {slot}: {reason}" for slot, reason in told if reason)


def agree(ratings: Iterable[dict[str, Rating]]) -> bool:
    """Say whether raters of one case agree: two or more, no pair of responses reversed, no response more than 1 apart."""
    raters = list(ratings)
    for number, one in enumerate(raters):
        for other in raters[:number]:
            both = [(one[model].score, other[model].score) for model in one if model in other]
            if any(abs(a - b) > 1 for a, b in both):
                return False
            if any((a - c) * (b - d) < 0 for place, (a, b) in enumerate(both) for c, d in both[:place]):
                return False
    return len(raters) > 1


def verdicts_of_raters(
    cases: Sequence[Case], path: str, rubric: Rubric, seed: int = 0
) -> tuple[list[Verdict], list[dict[str, Any]], Counter]:
    """Make one rater's scores and reasons the verdict of each case, and leave what the others said to the jury.

    The rater is drawn among those who gave every response a score and a reason. `quality` is "high" where the raters of
    the case agree (see `agree`), else "low".

    Args:
        path: the ratings of the responses, with comments, on one criterion and on the rubric's scale.

    Returns:
        The verdicts; the other raters' readings in the layout of jury.jsonl, their decision open; how many cases have no
        verdict, by reason.
    """
    given = read_reasons(path, cases, rubric)
    settings = _settings("ratings", rubric.fingerprint, seed)
    verdicts, jury, without = [], [], Counter()
    for case in cases:
        raters = given.get(case.id, {})
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
            rng = _rng(seed, case)
            chosen = rng.choice(complete)
            order = rng.sample(range(len(case.responses)), len(case.responses))
            readings = {name: _reading(case, raters[name], order) for name in sorted(raters)}
            rationale, scores = readings.pop(chosen)
            quality = "high" if agree(raters.values()) else "low"
            notes = {"settings": settings, "teacher": "strong", "quality": quality}
            verdicts.append(_verdict(case, f"{RATER}{chosen}", rubric, order, scores, rationale, **notes))
            for name, (reasons, values) in readings.items():
                about = {"case_id": case.id, "judge": f"{RATER}{chosen}", "annotator": name, "decision": None}
                jury.append({**about, "rationale": reasons or None, "scores": values, "order": list(order)})
    return verdicts, jury, without


def _reading(case: Case, ratings: dict[str, Rating], order: Sequence[int]) -> tuple[str, list[int | None]]:
    """Return one rater's reasons, in the order of the slots, and scores, in the order of the case's responses."""
    known = [ratings.get(model) for model in case.models]
    scores = [None if rating is None else int(rating.score) for rating in known]
    return stepwise([known[index].comment if known[index] else None for index in order]), scores
