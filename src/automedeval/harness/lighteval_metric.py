"""The metric `medical_judge` for the tasks of lighteval: `LightevalTaskConfig(…, metrics=[medical_judge])`."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from lighteval.metrics.metrics_sample import SampleLevelComputation
from lighteval.metrics.utils.metric_utils import SampleLevelMetric
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc, SamplingMethod

from automedeval.harness.logs import Answer
from automedeval.harness.references import reference_of_choices, told_reference
from automedeval.harness.scoring import named_judge, score_answers, warn
from automedeval.harness.writing import NAME, unscored


class JudgeComputation(SampleLevelComputation):
    """Score all answers of a task in one call, with the judge of `named_judge`."""

    def compute(self, responses: Sequence[ModelResponse], docs: Sequence[Doc], **_: object) -> list[float]:
        """Return the score of each document's first answer, NaN without a valid verdict; a warning counts these."""
        notes: Counter[str] = Counter()
        answers = []
        for response, doc in zip(responses, docs, strict=True):
            reference = told_reference(notes, reference_of_choices, doc.choices, doc.gold_index)
            answers += [Answer(str(doc.id), doc.query, text, reference) for text in response.final_text[:1]]
        found = iter(score_answers(named_judge(), answers))
        scores = [next(found) if response.final_text else unscored("no answer") for response in responses]
        warn(scores, notes)
        return [score["value"] for score in scores]


def scored_average(values: Sequence[float]) -> float:
    """Return the mean of the values that are no NaN; NaN if there is none.

    lighteval bootstraps its standard error; of a function with "mean" in its name it would take that of all values, NaN.
    """
    given = [value for value in values if not np.isnan(value)]
    return float(np.mean(given)) if given else float("nan")


medical_judge = SampleLevelMetric(
    metric_name=NAME,
    higher_is_better=True,
    category=SamplingMethod.GENERATIVE,
    sample_level_fn=JudgeComputation(),
    corpus_level_fn=scored_average,
    batched_compute=True,
)
