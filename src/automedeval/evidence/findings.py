"""What is found of an answer: how a model labels its statements."""

from collections.abc import Sequence
from dataclasses import dataclass

from automedeval.evidence.statements import Evidence, Statement
from automedeval.records import JsonObject

SUPPORTED, CONTRADICTED, NOT_FOUND, UNREAD = "supported", "contradicted", "not_found", "unread"
LABELS = (SUPPORTED, CONTRADICTED, NOT_FOUND)
# Of an answer its statements, what says what is true, and the question.
StatedAnswer = tuple[Sequence[Statement], Sequence[Evidence], str]
StatedAnswers = Sequence[StatedAnswer]


@dataclass(frozen=True)
class Finding:
    """What a model says of one statement: "supported", "contradicted", "not_found" or "unread".

    `probability` is that of the label, `passage` the nearest one.
    """

    statement: Statement
    label: str
    probability: float | None = None
    passage: Evidence | None = None

    def to_dict(self) -> JsonObject:
        """Return the finding as claims.jsonl records it."""
        text, start, end, reason = self.statement
        record = {"text": text, "start": start, "end": end, "label": self.label}
        if reason or self.label == UNREAD:
            record["reason"] = reason or "cannot be read"
        if self.probability is not None:
            record["probability"] = round(self.probability, 4)
        if self.passage is not None:
            record |= {"passage": self.passage.text, "source": self.passage.source}
        return record
