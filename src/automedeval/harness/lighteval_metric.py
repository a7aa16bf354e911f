"""The metric `medical_judge` for the tasks of lighteval: `LightevalTaskConfig(…, metrics=[medical_judge])`."""

from collections.abc import Sequence

import numpy as np
from lighteval.metrics.metrics_sample import SampleLevelComputation
from lighteval.metrics.utils.metric_utils import SampleLevelMetric
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc, SamplingMethod

from automedeval.harness.logs import Answer, reference_of_choices
from automedeval.harness.scoring import named_judge, score_answers
from automedeval.harness.writing import NAME


class JudgeComputation(SampleLevelComputation):
    """Score all answers of a task in one call, with the judge of `named_judge`."""

    def compute(self, responses: Sequence[ModelResponse], docs: Sequence[Doc], **_: object) -> list[float]:
        """Return the score of each document's first answer, NaN without a valid verdict."""
        answers = [
            Answer(str(doc.id), doc.query, response.final_text[0], reference_of_choices(doc.choices, doc.gold_index))
            for response, doc in zip(responses, docs, strict=True)
        ]
        return [score["value"] for score in score_answers(named_judge(), answers)]


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
