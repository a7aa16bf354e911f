"""The small judge of criteria: whether a response says what a criterion says, by the vectors of a small encoder's tokens.

It sees what is said, not whether it is true, and it cannot see what is denied: a criterion and its contrary have near vectors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from automedeval.judges.base import ApartJudge
from automedeval.judges.checklist import OfCriteria
from automedeval.judges.requests import Request, plan_checklist
from automedeval.metrics.embedding import readable, sentences
from automedeval.records import Case, Verdict, digest, question_text
from automedeval.reports.facts import UNSEEN

CHECKLIST = "checklist@1"  # the rubric whose place this judge takes: it reads the same criteria, without its prompt
# P(met) is the logistic function of SLOPE · (support - EVEN). Both come from 970 statements of 152 of K-QA's questions, none of
# them among the 25 that physicians labelled, with the physicians' own answers. The sentences that say a statement are taken out
# of its answer; EVEN is the support below which 80 % of the statements then are, and SLOPE is that of two normal distributions
# with the spread of these statements, one as far above EVEN as theirs is below. recipes/fit_criteria_judge.py prints both.
EVEN, SLOPE = 0.611, 12.0
CHUNK = 16  # responses that are read together
READING = 2  # version of what is read, for the fingerprint: 1 read texts for which the encoder has no tokens


def support(criterion: np.ndarray, question: Sequence[np.ndarray], response: Sequence[np.ndarray]) -> float:
    """Return how far a response says what a criterion says, at most 1.

    Each token of the criterion counts by its largest cosine with a token of the response (late interaction: Khattab and Zaharia
    2020, ColBERT). It weighs the less, the nearer it is to a token of the question: a response that repeats what was asked says
    nothing new. The figure is the mean of that over all sentences and of that of the best sentence.

    Args:
        criterion: vectors of its tokens, float [tokens, dimensions], each of length 1.
        question, response: the same of each of their sentences.

    Returns:
        NaN where the criterion or the response has no tokens.
    """
    if not len(criterion) or not response:
        return np.nan
    asked = (
        np.max([(criterion @ each.T).max(axis=1) for each in question], axis=0)
        if question
        else np.zeros(len(criterion))
    )
    weights = (1 - asked).clip(1e-6) ** 2
    said = np.array([(criterion @ each.T).max(axis=1) for each in response])
    together, best = said.max(axis=0) @ weights, (said @ weights).max()
    return float((together + best) / 2 / weights.sum())


def fit(unsaid: Sequence[float]) -> tuple[float, float]:
    """Return EVEN and SLOPE from the support of criteria that the responses do not say."""
    even, middle, spread = np.quantile(unsaid, 0.8), np.mean(unsaid), np.std(unsaid)
    return float(even), float(2 * (even - middle) / spread**2)


def read_support(cases: Sequence[tuple[Case, int]], encoder: Any) -> list[list[float]]:
    """Return the support of each criterion, by (case, index of the response); a text that cannot be read has no tokens."""
    cut = {
        text: sentences(readable(text))
        for case, slot in cases
        for text in (question_text(case.question), case.responses[slot].text)
    }
    whole = {each.criterion: [readable(each.criterion)] for case, _ in cases for each in case.criteria}
    texts = sorted({*cut, *whole})
    reads = dict(zip(texts, encoder.reads(list(map(readable, texts)))))
    every = sorted({piece for sides in (cut, whole) for text, cuts in sides.items() if reads[text] for piece in cuts})
    tokens = {piece: vectors for piece, (_, vectors) in zip(every, encoder.encode_tokens(every))}
    sides, criteria = (
        {text: [tokens[each] for each in cuts if reads[text] and len(tokens[each])] for text, cuts in side.items()}
        for side in (cut, whole)
    )
    return [
        [
            support(
                (criteria[each.criterion] or [()])[0],
                sides[question_text(case.question)],
                sides[case.responses[slot].text],
            )
            for each in case.criteria
        ]
        for case, slot in cases
    ]


@dataclass
class CriteriaJudge(OfCriteria, ApartJudge):
    """Say of each criterion of a case whether a response meets it, by a small encoder.

    A criterion that the encoder cannot read (see `Encoder.reads`), and every criterion of such a response, is unread.

    Args:
        encoder: an `Encoder`.
        models: only these models' responses are judged.
        name: what verdicts record as their judge.
    """

    encoder: Any
    models: Sequence[str] | None = None
    name: str | None = None

    blind_to = UNSEEN
    rubric_name = CHECKLIST

    def __post_init__(self) -> None:
        self.name = self.name or "small"

    @property
    def fingerprint(self) -> str:
        return digest(["criteria", READING, self.encoder.fingerprint, EVEN, SLOPE])

    def plan(self, case: Case) -> list[Request]:
        return plan_checklist(case, self.models)

    def answer(self, prompts: Sequence[Request], wanted: Sequence[bool]) -> Iterator[tuple[int, list[float]]]:
        """Yield (index, support of each criterion) of the wanted requests.

        Responses are read together as they stand in `prompts`, wanted or not: which texts share a batch changes the last digits
        of their vectors, and a resumed run has to give the same.
        """
        for start in range(0, len(prompts), CHUNK):
            some = range(start, min(start + CHUNK, len(prompts)))
            if any(wanted[index] for index in some):
                supports = read_support([(prompts[i].case, prompts[i].slots[0]) for i in some], self.encoder)
                yield from ((index, each) for index, each in zip(some, supports) if wanted[index])

    def verdict(self, request: Request, answer: Sequence[float], notes: dict[str, Any] | None = None) -> Verdict:
        chances = [None if np.isnan(each) else float(expit(SLOPE * (each - EVEN))) for each in answer]
        met = [None if chance is None else chance > 0.5 for chance in chances]
        return self.checklist(request, met, chances, notes, "the response or every criterion cannot be read")
