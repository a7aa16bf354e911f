"""The small checker: a cross-encoder reads each statement beside the nearest passages, and rules compare quantities.

Contradiction is looked for first: a passage that supports a part of a statement does not make up for one that contradicts it.
Only near passages are read: against a sentence on another subject a small model sees contradictions everywhere.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.evidence.rules import contradiction
from automedeval.evidence.statements import Evidence, Statement
from automedeval.models.checkpoints import (
    checkpoint_folder,
    described,
    fingerprint,
    weights_fingerprint,
)
from automedeval.models.pair_reader import PairReader
from automedeval.records import digest
from automedeval.records.text import readable

SUPPORTED, CONTRADICTED, NOT_FOUND, UNREAD = "supported", "contradicted", "not_found", "unread"
LABELS = (SUPPORTED, CONTRADICTED, NOT_FOUND)  # in the order of the head's numbers
PAIR_TOKENS = 128  # of passage and statement together
NEAR = 0.5  # least cosine of a passage that is read
NEAREST = 2  # most passages that are read beside a statement
_NOT = re.compile(r"n['’]t\b|(?<=\bcan)not\b", re.I)
PACKAGED = Path(__file__).parent / "packaged" / "small"
# Of an answer its statements, what says what is true, and the question.
StatedAnswer = tuple[Sequence[Statement], Sequence[Evidence], str]
StatedAnswers = Sequence[StatedAnswer]


@dataclass(frozen=True)
class Finding:
    """What was found of one statement: "supported", "contradicted", "not_found" or "unread".

    `probability` is that of the label, by the model, or 1 for a `rule` of `contradiction`; `passage` is the one that decided.
    """

    statement: Statement
    label: str
    probability: float | None = None
    passage: Evidence | None = None
    rule: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as claims.jsonl records it."""
        text, start, end, reason = self.statement
        record: dict[str, Any] = {"text": text, "start": start, "end": end, "label": self.label}
        if reason or self.label == UNREAD:
            record["reason"] = reason or "cannot be read"
        if self.probability is not None:
            record["probability"] = round(self.probability, 4)
        if self.passage is not None:
            record |= {"passage": self.passage.text, "source": self.passage.source}
        return record | ({"rule": self.rule} if self.rule else {})


@dataclass
class SmallChecker:
    """Check statements against passages: an `Encoder` finds the nearest ones, and a `PairReader` of three labels reads them.

    `adapter` is the fingerprint of the adapter, `threshold` the least probability of a contradiction that is called one,
    `precision` the share of those called contradicted that are, where as many are contradicted as are clean.
    """

    encoder: Any
    pair_reader: Any
    adapter: str
    threshold: float
    precision: float = 0.5
    name = "small"
    note = "The checker reads English. It was not trained or validated on patients; its card says what it does not see."

    @cached_property
    def fingerprint(self) -> str:
        return digest(
            [
                7,
                self.encoder.fingerprint,
                self.adapter,
                self.threshold,
                self.precision,
                NEAR,
                NEAREST,
            ]
        )

    def check(
        self, answers: StatedAnswers, wanted: Sequence[bool] | None = None
    ) -> Iterator[list[Finding]]:
        """Yield the findings of each answer: of its statements, beside the passages that say what is true, on a question.

        All are read, `wanted` or not, since they share batches.
        """
        vectors = vectors_of(self.encoder, answers)
        reads = dict(zip(vectors, self.encoder.reads(list(vectors))))
        near = [
            [self._near(statement, passages, vectors, reads) for statement in asked]
            for asked, passages, _ in answers
        ]
        read = self.probabilities(
            (passages[index].text, statement.text)
            for (asked, passages, _), nearest in zip(answers, near)
            for statement, indices in zip(asked, nearest)
            for index in indices or ()
        )
        for answer, nearest in zip(answers, near):
            yield [
                self._finding(place, indices, answer, read) for place, indices in enumerate(nearest)
            ]

    def wrong(self, findings: Sequence[Finding]) -> float:
        """Return the probability that an answer contradicts its evidence; 0 without a contradicted statement."""
        return self.precision if any(each.label == CONTRADICTED for each in findings) else 0.0

    def _near(
        self,
        statement: Statement,
        passages: Sequence[Evidence],
        vectors: dict[str, np.ndarray],
        reads: dict[str, bool],
    ) -> list[int] | None:
        """Return the indices of the nearest passages, nearest first; None if statement or passages cannot be read."""
        text = readable(statement.text)
        if statement.unread is not None or not reads[text]:
            return None
        understood = [index for index, each in enumerate(passages) if reads[readable(each.text)]]
        if passages and not understood:  # evidence in another language says nothing
            return None
        cosines = {
            index: float(vectors[text] @ vectors[readable(passages[index].text)])
            for index in understood
        }
        nearest = sorted(understood, key=lambda index: -cosines[index])[:NEAREST]
        return [index for index in nearest if cosines[index] >= NEAR]

    def probabilities(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], np.ndarray]:
        """Return of every (passage, statement) the probabilities of `LABELS`."""
        different = list(dict.fromkeys(pairs))
        if not different:
            return {}
        numbers = self.pair_reader(
            [(spelt_out(passage), spelt_out(statement)) for passage, statement in different]
        )
        odds = np.exp(numbers - numbers.max(axis=1, keepdims=True))
        return dict(zip(different, odds / odds.sum(axis=1, keepdims=True)))

    def _finding(
        self,
        place: int,
        indices: list[int] | None,
        answer: StatedAnswer,
        read: dict[tuple[str, str], np.ndarray],
    ) -> Finding:
        statements, passages, question = answer
        statement, before = statements[place], statements[place - 1].text if place else ""
        if indices is None:
            return Finding(statement, UNREAD)
        if seen := contradiction(statement.text, passages, indices, question, before):
            return Finding(statement, CONTRADICTED, 1.0, seen[1], seen[0])
        if not indices:
            return Finding(statement, NOT_FOUND)
        probabilities = np.array([read[passages[index].text, statement.text] for index in indices])
        for label, least in ((CONTRADICTED, self.threshold), (SUPPORTED, 0.5)):
            column = probabilities[:, LABELS.index(label)]
            # Of a contradiction the nearest passage decides: it is the one on the same subject.
            best = 0 if label == CONTRADICTED else int(column.argmax())
            if column[best] >= least:
                return Finding(statement, label, float(column[best]), passages[indices[best]])
        return Finding(
            statement,
            NOT_FOUND,
            float(probabilities[0, LABELS.index(NOT_FOUND)]),
            passages[indices[0]],
        )


def vectors_of(encoder: Any, answers: StatedAnswers) -> dict[str, np.ndarray]:
    """Return the vector of each text, made readable: of the statements that are checked, and of all evidence."""
    texts = [each.text for asked, _, _ in answers for each in asked if each.unread is None]
    texts += [passage.text for _, passages, _ in answers for passage in passages]
    different = list(dict.fromkeys(map(readable, texts)))
    return dict(zip(different, encoder.encode(different)))


def was_read(findings: Sequence[Finding]) -> bool:
    """Return whether a statement of an answer was read; else nothing is known of it, and it is not free of contradictions."""
    return any(each.label != UNREAD for each in findings)


def contradicted(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the contradicted statements, as claims.jsonl records them."""
    return [each.to_dict() for each in findings if each.label == CONTRADICTED]


def spelt_out(text: str) -> str:
    """Return a text as the model reads it, with "not" as a word of its own: "cannot" beside "can not" looks like a negation."""
    text = re.sub(r"\bcan['’]t\b", "can not", readable(text), flags=re.I)
    text = re.sub(r"\bwon['’]t\b", "will not", text, flags=re.I)
    return _NOT.sub(" not", text)


def load_small_checker(
    encoder: Any, device: str = "auto", folder: Path = PACKAGED, network: Any = None
) -> SmallChecker:
    """Load a small checker that recipes/train_checker.py wrote, or the packaged one, for `EncoderArguments`.

    `network` is the encoder, if it is loaded already. RecordError: a library or the encoder is missing, or a fault of
    `described`.
    """

    def certified(content: Any) -> tuple[float, float]:
        return float(content["threshold"]), float(content["precision"]["value"])

    numbers, place = described(folder / "checker.json", "checker", encoder.place, certified)
    network = network or encoder.load(device)
    pair_reader = PairReader(
        place, folder / "adapter", device, labels=len(LABELS), tokens=PAIR_TOKENS
    )
    return SmallChecker(network, pair_reader, fingerprint(folder / "adapter", []), *numbers)


def matching_checker(encoder: Any, device: str, network: Any) -> SmallChecker | None:
    """Load the packaged checker for a loaded encoder; None if it was trained on another one: that judge checks nothing."""
    base = json.loads((PACKAGED / "checker.json").read_text(encoding="utf-8"))["encoder"][
        "fingerprint"
    ]
    same = weights_fingerprint(checkpoint_folder(encoder.place)) == base
    return load_small_checker(encoder, device, network=network) if same else None
