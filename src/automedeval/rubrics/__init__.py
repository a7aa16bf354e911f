"""Read rubrics, render prompts, and write and parse verdicts and rationales.

Asking a model belongs into `judges`.
"""

from automedeval.rubrics.rubric import (
    COUNTED,
    LIKELIHOOD,
    TAGS,
    Criterion,
    Questions,
    Rubric,
    Rubrics,
    packaged_rubrics,
    read_questions,
    read_rubric,
    rubric_among,
    rubrics_with,
    without_scale,
)
