"""Compute the numbers of the small judge of criteria from statements that references say.

    automedeval prepare --input questions.jsonl --output questions
    python recipes/fit_criteria_judge.py --cases questions/cases.jsonl --without cases.jsonl

Prints the numbers of `judges/criteria.py`; nobody's labels are read. EVEN and SLOPE: the sentences that say a statement, which
are the nearest one and all others whose cosine with it is above .65, are taken out of its reference. AGAINST: of one statement
of each case, beside its whole reference, at most 3 % are called contradicted, with a certificate: answers contradict far less
often than they are silent or right. FALSE: all statements are read as they are, and changed by a rule into their contrary.
"""

import random
from dataclasses import dataclass, field, replace

import numpy as np

from automedeval.claims.checker import matching_checker
from automedeval.cli import TableArguments, parse, run
from automedeval.dataset.contrast import Rules
from automedeval.judges.criteria import fit, read_criteria
from automedeval.metrics.embedding import sentences
from automedeval.models.arguments import EncoderArguments
from automedeval.records import Case, RecordError, Response, read_cases
from automedeval.stats.selective import least_alarm_threshold

NEAR = 0.65
THRESHOLDS = (0.998, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
RISK, DELTA = 0.03, 0.1  # of the certificate


@dataclass
class FitArguments(TableArguments):
    """The statements."""

    cases: str = field(metadata={"help": "cases with criteria and references"})
    without: str | None = field(default=None, metadata={"help": "cases that are left out, by id"})


def main() -> None:
    """Take the sentences that say a statement out of its reference, and measure the support of what is left."""
    args, encoder_args = parse((FitArguments, EncoderArguments), __doc__)
    encoder = encoder_args.load("cpu")
    left_out = {case.id for case in read_cases(args.without, blank=args.blank)} if args.without else set()
    every = read_cases(args.cases, 0, args.blank)
    cases = [case for case in every if case.id not in left_out and case.reference and case.criteria]
    unsaid = []
    for case in cases:
        said = sentences(case.reference)
        vectors = encoder.encode([*said, *(each.criterion for each in case.criteria)])
        near = vectors[len(said) :] @ vectors[: len(said)].T
        for criterion, cosines in zip(case.criteria, near):
            rest = [each for each, cosine in zip(said, cosines) if cosine <= NEAR and cosine < cosines.max()]
            if rest:
                responses = (Response("reference", "\n".join(rest)),)
                unsaid.append((replace(case, criteria=(criterion,), responses=responses), 0))
    support = [
        each.support for readings in read_criteria(unsaid, encoder) for each in readings if not np.isnan(each.support)
    ]
    even, slope = fit(support)
    print(f"{len(cases)} cases, {len(support)} statements taken out: EVEN {even:.3f}, SLOPE {slope:.1f}")
    if (checker := matching_checker(encoder_args, "cpu", encoder)) is None:
        raise RecordError(
            f"{encoder.name} is not the encoder of the packaged checker: AGAINST and FALSE are of that one"
        )
    rules, rng = Rules.read(), random.Random(0)
    whole = [replace(case, responses=(Response("reference", case.reference or ""),)) for case in cases]
    other = [contrary(case, rules, rng) for case in whole]
    clean, wrong = (
        [
            [each.against for each in readings]
            for readings in read_criteria([(case, 0) for case in some], encoder, checker)
        ]
        for some in (whole, other)
    )
    drawn = np.array([rng.choice(probabilities) for probabilities in clean])
    against, tested = least_alarm_threshold(drawn[:, None], THRESHOLDS, RISK, DELTA)
    for line in tested:
        print(f"threshold {line['threshold']:g}: {line['alarms']} of {line['units']} alarms, p = {line['p']:.3g}")
    if against is None:
        raise RecordError(
            f"no threshold keeps the false alarms below {RISK:g} at delta {DELTA:g}: AGAINST has no value"
        )
    counts = [np.concatenate(some) >= against for some in (clean, wrong)]
    alarms, detected = (float(each.mean()) for each in counts)
    print(
        f"contradicted: {counts[0].sum()} of {len(counts[0])} statements as they are, {counts[1].sum()} of {len(counts[1])} "
        f"changed by a rule: AGAINST {against:g}, FALSE {alarms / (alarms + detected):.3f}"
    )


def contrary(case: Case, rules: Rules, rng: random.Random) -> Case:
    """Return a case with its criteria changed by a rule each; those that no rule changes are left out."""
    changed = [(each, rules.contrary(each.criterion, rng)) for each in case.criteria]
    return replace(case, criteria=tuple(replace(each, criterion=text) for each, text in changed if text))


if __name__ == "__main__":
    run(main)
