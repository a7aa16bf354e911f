"""Records: what every file holds, how it is read, and how it is written so that a crash loses nothing.

Nothing here knows a model, a rubric or a statistic.
"""

from automedeval.records.arguments import check_least, check_patterns, option
from automedeval.records.errors import (
    AutoMedEvalError,
    OtherTexts,
    RecordError,
    errors_at,
    foreign_errors_at,
)
from automedeval.records.questions import (
    Question,
    key_of,
    patient_messages,
    patient_question,
    question_text,
)
from automedeval.records.readers import (
    named_file,
    parse_json,
    placed_verdicts,
    read_json,
    read_lines,
    read_placed,
    read_records,
    read_text,
    verdicts_file,
    without_repeats,
)
from automedeval.records.types import (
    DECISIONS,
    REFERENCE,
    UNSEEN,
    Case,
    CaseCriterion,
    CheckedResponse,
    Choice,
    CriterionLabel,
    HarmRating,
    JsonObject,
    Preference,
    Rating,
    Response,
    Verdict,
    VerdictRating,
    as_shown,
    check_number,
    digest,
    whole,
)
