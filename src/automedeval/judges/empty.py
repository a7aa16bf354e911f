"""What a verdict says of an empty response: the model was asked and gave no answer, which is the lowest there is.

This holds for every judge, whatever it would have said of the empty text; judges of criteria do so in `judges.checklist`.
"""

from collections.abc import Sequence
from typing import Any

from automedeval.judges.requests import Request
from automedeval.rubrics import Rubric

KINDS = {"scores": int, "expected_scores": float}  # the scores of a verdict


def put_empty_lowest(
    request: Request, rubric: Rubric | None, error: str | None, values: dict[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """Return the error and the values of a verdict by a rubric, or without a scale, after its empty responses were put lowest.

    An empty response has the lowest score of the scale; without a scale its own value, but at most the lowest of the others. A
    tie with an answer is lost (see `VerdictTable.relations`). Of a pair the answer is chosen, but not on a criterion of which
    a choice names the worse response: an empty one does no harm. A verdict that cannot be read stays invalid, unless all of
    its responses are empty.
    """
    count = len(request.case.responses)
    empty = [index for index in request.slots if request.case.responses[index].is_empty]
    answered = [index for index in request.slots if index not in empty]
    low = rubric.scale[0] if rubric is not None and rubric.scale is not None else None
    if not answered and rubric is not None:
        if low is None:
            return None, values | {
                "choices": {criterion.name: criterion.neutral for criterion in rubric.criteria}
            }
        names = [name for name in KINDS if name in values]
        # Whether a judge of whole scores gives expected ones too is told by its answer alone.
        names = names[:1] + [name for name in names[1:] if values[name] is not None]
        values = values | {name: [None] * count for name in names}
        if rubric.scores_criteria:
            values["criterion_scores"] = {
                criterion.name: [None] * count for criterion in rubric.criteria
            }
    elif error is not None or not answered:
        return error, values
    values = dict(values)
    for name, kind in KINDS.items():
        if values.get(name) is not None:
            values[name] = _lowered(
                values[name], empty, answered, None if low is None else kind(low)
            )
    if by_criterion := values.get("criterion_scores"):
        lowered = {
            name: list(_lowered(scores, empty, answered, low))
            for name, scores in by_criterion.items()
        }
        values["criterion_scores"] = lowered
    if values.get("choices") and rubric is not None:
        better = rubric.better
        chosen = dict.fromkeys(better & {*values["choices"]}, request.case.models[answered[0]])
        values["choices"] = values["choices"] | chosen
    return None, values


def _lowered(
    scores: Sequence[float | None], empty: list[int], answered: list[int], low: float | None
) -> tuple:
    """Return the scores of a case's responses with those of the empty ones at `low`; None: at most the lowest of the others."""
    lows: dict[int, float | None] = dict.fromkeys(empty, low)
    if low is None:
        for index in empty:
            lows[index] = min(
                (score for slot in [*answered, index] if (score := scores[slot]) is not None),
                default=None,
            )
    return tuple(lows.get(index, value) for index, value in enumerate(scores))
