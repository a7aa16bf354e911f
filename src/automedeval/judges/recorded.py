"""Load a judge again as the record of its run (`cli.record_run`) says."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from automedeval.cli import comma_list
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import load_judge
from automedeval.knowledge.arguments import EvidenceArguments
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import Case
from automedeval.rubrics import Rubric

OPTIONS = ("rationale", "score_decoding", "orders", "seed", "runs", "baseline")  # of `load_judge`


def load_recorded(
    arguments: Mapping[str, Any], rubric: Rubric | None = None, cases: Iterable[Case] | None = None
) -> BaseJudge:
    """Return the judge that the arguments of a run name; by default with the rubric that they name. Errors: as `load_judge`.

    A prompt that is too long gives an invalid verdict, and no error.
    """

    def recorded(kind: Any) -> Any:
        names = [each.name for each in fields(kind) if each.init]
        return kind(**{name: arguments[name] for name in names if name in arguments})

    chat, encoder = recorded(ChatArguments), recorded(EncoderArguments)
    options = {name: arguments[name] for name in OPTIONS if name in arguments}
    options |= {"on_overlong": "clip" if arguments.get("on_overlong") == "clip" else "skip"}
    options |= {"models": comma_list(arguments["models"])} if arguments.get("models") else {}
    return load_judge(
        arguments["judge"], rubric or arguments.get("rubric"), chat, cases=cases, encoder=encoder,
        name=arguments.get("judge_name"), **options, **recorded(EvidenceArguments).books(encoder, chat.device),
    )  # fmt: skip
