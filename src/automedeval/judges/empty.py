"""What a verdict says of an empty response: the model was asked and gave no answer, which is the lowest there is.

This holds for every judge, whatever it would have said of the empty text; judges of criteria do so in `judges.checklist`.
"""

from collections.abc import Sequence

from automedeval.judges.requests import Request
from automedeval.records import JsonObject
from automedeval.rubrics import Rubric

SCORES = {"scores": int, "expected_scores": float}  # the scores of a verdict


def put_empty_lowest(
    request: Request, rubric: Rubric | None, error: str | None, values: JsonObject, gives: str
) -> tuple[str | None, JsonObject]:
    """Return the error and the values of a verdict by a rubric, or without a scale, after its empty responses were put lowest.

    `gives` is the name of the judge's scores.

    An empty response has the lowest score of the scale; without a scale its own value, but at most the lowest of the others. A
    tie with an answer is lost (see `VerdictTable.relations`). Of a pair the answer is chosen, but not on a criterion of which
    a choice names the worse response: an empty one does no harm. A verdict that cannot be read stays invalid, unless all of
    its responses are empty.
    """
    answered = [index for index in request.slots if index not in request.empty]
    low = rubric.scale[0] if rubric is not None and rubric.scale is not None else None
    values = dict(values)
    if not answered and rubric is not None:
        if low is None:
            choices = {criterion.name: criterion.neutral for criterion in rubric.criteria}
            return None, values | {"choices": choices}
        values |= _unscored(rubric, values, len(request.case.responses), gives)
    elif error is not None or not answered:
        return error, values

    def lowered(scores: Sequence[float | None], kind: type = int) -> tuple:
        found = list(scores)
        for index in request.empty:
            shown = (scores[slot] for slot in (*answered, index))
            known = [score for score in shown if score is not None]
            found[index] = min(known, default=None) if low is None else kind(low)
        return tuple(found)

    for name, kind in SCORES.items():
        if values.get(name) is not None:
            values[name] = lowered(values[name], kind)
    by_criterion = values.get("criterion_scores")
    if by_criterion:
        values["criterion_scores"] = {
            name: list(lowered(scores)) for name, scores in by_criterion.items()
        }
    if values.get("choices") and rubric is not None:
        better = rubric.better & values["choices"].keys()
        values["choices"] |= dict.fromkeys(better, request.case.models[answered[0]])
    return None, values


def _unscored(rubric: Rubric, values: JsonObject, count: int, gives: str) -> JsonObject:
    """Return lists of scores for so many responses, none of which was answered, under the names that the judge gives."""
    # Whether a judge of whole scores gives expected ones too is told by its answer alone.
    given = [name for name in SCORES if values.get(name) is not None]
    scores: JsonObject = {name: [None] * count for name in given or [gives]}
    if rubric.scores_criteria:
        names = [criterion.name for criterion in rubric.criteria]
        scores["criterion_scores"] = {name: [None] * count for name in names}
    return scores
