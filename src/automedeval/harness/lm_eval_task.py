"""Score the answers of a task of lm-evaluation-harness, which the task's YAML names.

    process_results: !function automedeval.harness.lm_eval_task.process_results
    metric_list: [{metric: automedeval, aggregation: nanmean, higher_is_better: true}]

lm-evaluation-harness calls it for one document at a time. Where that is slow, judge the log of the run instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.harness.logs import Answer
from automedeval.harness.scoring import named_judge, score_answers
from automedeval.harness.writing import NAME
from automedeval.records import RecordError


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
    """Return the score of a document's answer, NaN without a valid verdict, which `nanmean` leaves out.

    Args:
        doc: has the column `question`, and `reference` if there is one.
        results: the generated text.

    Raises:
        RecordError: no question, or no generated text; or the judge cannot be loaded, see `named_judge`.
    """
    question, text = doc.get("question"), results[0] if results else None
    if not isinstance(question, str) or not question.strip():
        raise RecordError("a document has no question: the data of the task needs the column 'question'")
    if not isinstance(text, str):
        raise RecordError("no generated text: the task needs `output_type: generate_until` and one answer per document")
    (score,) = score_answers(named_judge(), [Answer("", question, text, doc.get("reference") or None)])
    return {NAME: score["value"]}
