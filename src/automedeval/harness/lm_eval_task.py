"""Score the answers of a task of lm-evaluation-harness, which the task's YAML names.

    process_results: !function automedeval.harness.lm_eval_task.process_results
    metric_list:
      - {metric: automedeval, aggregation: nanmean, higher_is_better: true}
      - {metric: automedeval_valid_rate, aggregation: mean, higher_is_better: true}

lm-evaluation-harness calls it for one document at a time. Where that is slow, judge the log of the run instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from automedeval.harness.logs import Answer
from automedeval.harness.questions import question_of
from automedeval.harness.references import reference_of, told_reference
from automedeval.harness.scoring import named_judge, score_answers, warn
from automedeval.harness.writing import NAME
from automedeval.records import RecordError


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
    """Return the score of a document's answer, NaN without one, which `nanmean` leaves out, and whether it has one.

    Args:
        doc: has the column `question`, and `reference` if there is one.
        results: the generated text.

    Raises:
        RecordError: no column `question`, or no generated text; or the judge cannot be loaded, see `named_judge`.
    """
    text = results[0] if results else None
    notes: Counter[str] = Counter()
    if "question" not in doc:
        raise RecordError("a document has no question: the data of the task needs the column 'question'")
    if not isinstance(text, str):
        raise RecordError("no generated text: the task needs `output_type: generate_until` and one answer per document")
    question = question_of(doc["question"] or "", "the column 'question'")
    reference = told_reference(notes, reference_of, doc.get("reference"))
    (score,) = score_answers(named_judge(), [Answer(str(doc.get("id") or question), question, text, reference)])
    warn([score], notes)
    return {NAME: score["value"], f"{NAME}_valid_rate": float(score["valid"] > 0)}
