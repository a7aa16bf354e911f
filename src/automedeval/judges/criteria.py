"""The small judge of criteria: whether a response says what a criterion says, by the vectors of a small encoder's tokens.

It sees what is said, not whether it is true. A criterion and its contrary have near vectors, so the checker of statements
(`claims`) reads the criterion beside the sentence that says most of it: what that sentence contradicts is not met.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from automedeval.claims.checker import CONTRADICTED, LABELS, NEAR, NOT_FOUND, SUPPORTED, UNREAD
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
# with the spread of these statements, one as far above EVEN as theirs is below.
EVEN, SLOPE = 0.611, 12.0
# From the probability AGAINST on, the checker's contradiction counts; it is false with the probability FALSE. AGAINST is
# certified on the same questions: of the statements, beside their own answers, at most 3 % are called contradicted. FALSE is
# the share of these among all that are, where as many are changed by rule. recipes/fit_criteria_judge.py prints all four.
AGAINST, FALSE = 0.995, 0.008
CHUNK = 16  # responses that are read together
READING = 4  # version of what is read and recorded, for the fingerprint: 2 did not look for contradictions


class Reading(NamedTuple):
    """What was read of a criterion and a response.

    Args:
        criterion: its text.
        support: how far the response says it, at most 1; NaN if one of the two cannot be read.
        sentence: the one of the response that says most of it.
        against: the probability that this sentence contradicts it; 0 if its subject is another, or without a checker.
    """

    criterion: str
    support: float
    sentence: str = ""
    against: float = 0.0


def support(
    criterion: np.ndarray, question: Sequence[np.ndarray], response: Sequence[np.ndarray]
) -> tuple[float, int | None]:
    """Return how far a response says what a criterion says, at most 1, and which of its sentences says most of it.

    Each token of the criterion counts by its largest cosine with a token of the response (late interaction: Khattab and Zaharia
    2020, ColBERT). It weighs the less, the nearer it is to a token of the question: a response that repeats what was asked says
    nothing new. The figure is the mean of that over all sentences and of that of the best sentence.

    Args:
        criterion: vectors of its tokens, float [tokens, dimensions], each of length 1.
        question, response: the same of each of their sentences.

    Returns:
        NaN and None where the criterion or the response has no tokens.
    """
    if not len(criterion) or not response:
        return np.nan, None
    asked = (
        np.max([(criterion @ each.T).max(axis=1) for each in question], axis=0)
        if question
        else np.zeros(len(criterion))
    )
    weights = (1 - asked).clip(1e-6) ** 2
    said = np.array([(criterion @ each.T).max(axis=1) for each in response])
    together, each = said.max(axis=0) @ weights, said @ weights
    return float((together + each.max()) / 2 / weights.sum()), int(each.argmax())


def fit(unsaid: Sequence[float]) -> tuple[float, float]:
    """Return EVEN and SLOPE from the support of criteria that the responses do not say."""
    even, middle, spread = np.quantile(unsaid, 0.8), np.mean(unsaid), np.std(unsaid)
    return float(even), float(2 * (even - middle) / spread**2)


def read_criteria(cases: Sequence[tuple[Case, int]], encoder: Any, checker: Any = None) -> list[list[Reading]]:
    """Read each criterion beside the response of (case, index of the response); a text that cannot be read has no tokens.

    Args:
        checker: a `SmallChecker` on the same encoder; None: no contradictions are looked for.
    """
    cut = {
        text: sentences(readable(text))
        for case, slot in cases
        for text in (question_text(case.question), case.responses[slot].text)
    }
    whole = {each.criterion: [readable(each.criterion)] for case, _ in cases for each in case.criteria}
    texts = sorted({*cut, *whole})
    reads = dict(zip(texts, encoder.reads(list(map(readable, texts)))))
    every = sorted({piece for sides in (cut, whole) for text, cuts in sides.items() if reads[text] for piece in cuts})
    encoded = dict(zip(every, encoder.encode_tokens(every)))
    sides, criteria = (
        {text: [each for each in cuts if reads[text] and len(encoded[each][1])] for text, cuts in side.items()}
        for side in (cut, whole)
    )
    readings: list[list[Reading]] = []
    pairs = []
    for case, slot in cases:
        question, response = (sides[text] for text in (question_text(case.question), case.responses[slot].text))
        asked, said = ([encoded[each][1] for each in side] for side in (question, response))
        readings.append([])
        for each in case.criteria:
            vector, tokens = encoded[criteria[each.criterion][0]] if criteria[each.criterion] else (None, np.empty(0))
            figure, best = support(tokens, asked, said)
            readings[-1].append(Reading(each.criterion, figure, "" if best is None else response[best]))
            if best is not None and vector @ encoded[response[best]][0] >= NEAR:
                pairs.append((response[best], each.criterion))
    if checker is None:
        return readings
    column = LABELS.index(CONTRADICTED)
    against = {pair: float(chances[column]) for pair, chances in checker.probabilities(pairs).items()}
    return [
        [each._replace(against=against.get((each.sentence, each.criterion), 0.0)) for each in sentences]
        for sentences in readings
    ]


@dataclass
class CriteriaJudge(OfCriteria, ApartJudge):
    """Say of each criterion of a case whether a response meets it, by a small encoder.

    A criterion that the encoder cannot read (see `Encoder.reads`), and every criterion of such a response, is unread.

    A verdict's checklist has under `findings`, for each criterion, a `label` ("supported", "contradicted", "not_found" or
    "unread") and the `sentence` that decided. It is missing without a checker.

    Args:
        encoder: an `Encoder`.
        models: only these models' responses are judged.
        name: what verdicts record as their judge.
        checker: a `SmallChecker` on the same encoder; None: a criterion and its contrary are one to the judge.
    """

    encoder: Any
    models: Sequence[str] | None = None
    name: str | None = None
    checker: Any = None

    blind_to = UNSEEN
    rubric_name = CHECKLIST

    def __post_init__(self) -> None:
        self.name = self.name or "small"

    @property
    def fingerprint(self) -> str:
        read = ["criteria", READING, self.encoder.fingerprint, EVEN, SLOPE]
        return digest(read + ([self.checker.adapter, AGAINST, FALSE, NEAR] if self.checker else []))

    def plan(self, case: Case) -> list[Request]:
        return plan_checklist(case, self.models)

    def answer(self, prompts: Sequence[Request], wanted: Sequence[bool]) -> Iterator[tuple[int, list[Reading]]]:
        """Yield (index, what was read of each criterion) of the wanted requests.

        Responses are read together as they stand in `prompts`, wanted or not: which texts share a batch changes the last digits
        of their vectors, and a resumed run has to give the same.
        """
        for start in range(0, len(prompts), CHUNK):
            some = range(start, min(start + CHUNK, len(prompts)))
            if any(wanted[index] for index in some):
                cases = [(prompts[i].case, prompts[i].slots[0]) for i in some]
                read = read_criteria(cases, self.encoder, self.checker)
                yield from ((index, each) for index, each in zip(some, read) if wanted[index])

    def verdict(self, request: Request, answer: Sequence[Reading], notes: dict[str, Any] | None = None) -> Verdict:
        chances = [chance(each) for each in answer]
        met = [None if each is None else each > 0.5 for each in chances]
        findings = None if self.checker is None else [finding(*each) for each in zip(answer, met)]
        return self.checklist(request, met, chances, notes, "the response or every criterion cannot be read", findings)


def chance(reading: Reading) -> float | None:
    """Return P(met); None where the criterion or the response cannot be read."""
    if np.isnan(reading.support):
        return None
    said = float(scipy.special.expit(SLOPE * (reading.support - EVEN)))
    # What is said counts only if the contradiction is false.
    return said * FALSE if reading.against >= AGAINST else said


def finding(reading: Reading, met: bool | None) -> dict[str, str | None]:
    """Return what `findings` has of a criterion: contradiction and silence are told apart."""
    label = UNREAD if met is None else CONTRADICTED if reading.against >= AGAINST else SUPPORTED if met else NOT_FOUND
    return {"label": label, "sentence": reading.sentence if label in (SUPPORTED, CONTRADICTED) else None}
