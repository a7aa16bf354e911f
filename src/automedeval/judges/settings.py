"""Load a judge that gives scores by a file of settings or by named values, for a program that has its own command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from automedeval.cli import parse
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import load_judge
from automedeval.knowledge.arguments import EvidenceArguments
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import RecordError, option


@dataclass
class JudgeSettings(EvidenceArguments):
    """Which judge gives the scores, and how."""

    judge: str = option("the judge, named as for automedeval judge", "small")
    rubric: str | None = option("a rubric with a scale, packaged or a .yaml; default: as for automedeval judge", None)
    rationale: bool = option("ask the judge for a rationale as well; slower", False)

    def load(self, chat: ChatArguments, encoder: EncoderArguments, judge: str | None = None) -> BaseJudge:
        """Return the judge, or another one by the same settings but without the books.

        RecordError if the judge or its books cannot be loaded, or it gives no scores.
        """
        name, books = (judge, {}) if judge else (self.judge, self.books(encoder, chat.device))
        # A score of a shortened answer would stand beside scores of whole ones: one that is too long has none.
        options = {"rationale": self.rationale, "on_overlong": "skip", **books}
        loaded = load_judge(name, self.rubric, chat, encoder=encoder, **options)
        if loaded.gives_choices:
            raise RecordError(f"judge {name}: the rubric {loaded.rubric_name} gives choices, and scores are needed")
        return loaded


def load_by_settings(values: Mapping[str, Any]) -> BaseJudge:
    """Load the judge that settings name: `JudgeSettings`, `ChatArguments` and `EncoderArguments` by name.

    `config` names a YAML file of them, whose values the others override. RecordError: a setting is unknown or wrong, or a fault
    of `JudgeSettings.load`.
    """
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    settings, encoder, chat = parse((JudgeSettings, EncoderArguments, ChatArguments), __doc__, words)
    return settings.load(chat, encoder)
