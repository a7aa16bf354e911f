"""What a verdict says of an empty response: the model was asked and gave no answer, which is the lowest there is.

This holds for every judge, whatever it would have said of the empty text; judges of criteria do so in `judges.checklist`.
"""

from collections.abc import Sequence

from automedeval.judges.requests import Request
from automedeval.records import JsonObject
from automedeval.rubrics import Rubric


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
    values = dict(values)
    answered = [index for index in request.slots if index not in request.empty]
    if rubric is not None and not answered:
        error = None
        values |= _said_of_nothing(rubric, gives, len(request.case.responses))
    if error is not None:
        return error, values
    low = rubric.scale[0] if rubric is not None and rubric.scale is not None else None

    def lowered(scores: Sequence[float | None], kind: type = int) -> list:
        found = list(scores)
        for index in request.empty:
            known = [score for slot in (*answered, index) if (score := scores[slot]) is not None]
            found[index] = min(known, default=None) if low is None else kind(low)
        return found

    for name, kind in (("scores", int), ("expected_scores", float)):
        if values.get(name) is not None:
            values[name] = tuple(lowered(values[name], kind))
    if by_criterion := values.get("criterion_scores"):
        values["criterion_scores"] = {
            name: lowered(scores) for name, scores in by_criterion.items()
        }
    if answered and rubric is not None and values.get("choices"):
        better = rubric.better & values["choices"].keys()
        values["choices"] |= dict.fromkeys(better, request.case.models[answered[0]])
    return None, values


def _said_of_nothing(rubric: Rubric, gives: str, count: int) -> JsonObject:
    """Return neutral choices, or no scores yet for so many responses, none of them answered."""
    if rubric.scale is None:
        return {"choices": {criterion.name: criterion.neutral for criterion in rubric.criteria}}
    scores: JsonObject = {gives: [None] * count}
    if rubric.scores_criteria:
        unscored = {criterion.name: [None] * count for criterion in rubric.criteria}
        scores["criterion_scores"] = unscored
    return scores
