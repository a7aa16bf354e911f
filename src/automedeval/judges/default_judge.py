"""The default judge: that of AUTOMEDEVAL_JUDGE, else the packaged small judge, else the likelihood of a model."""

import os

from automedeval.models.arguments import EncoderArguments
from automedeval.models.model_paths import generating_models
from automedeval.records import RecordError

VARIABLE = "AUTOMEDEVAL_JUDGE"
UNTRAINED = "it was not trained to judge, so trust its order of the models little"


def default_judge(encoder: EncoderArguments) -> str:
    """Return the name of the judge, as `load_judge` takes it; `encoder` is that of the small judge.

    RecordError if there is none on this machine.
    """
    if judge := os.environ.get(VARIABLE):
        return judge
    if encoder.is_there():
        return "small"
    if models := generating_models():
        return f"likelihood:{models[0]}"
    raise RecordError("no judge is on this machine; the small one is there after\n  automedeval get-models")
