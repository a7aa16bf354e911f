"""Compute EVEN and SLOPE of the small judge of criteria from statements that references say.

    automedeval prepare --input questions.jsonl --output questions
    python recipes/fit_criteria_judge.py --cases questions/cases.jsonl --without cases.jsonl

Prints the two numbers of `judges/criteria.py`; nobody's labels are read. The sentences that say a statement are the nearest one
of the reference, and all others whose cosine with the statement is above .65.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from automedeval.cli import TableArguments, parse, run
from automedeval.judges.criteria import fit, read_support
from automedeval.metrics.embedding import sentences
from automedeval.models.arguments import EncoderArguments
from automedeval.records import Response, read_cases

NEAR = 0.65


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
    support = [value for values in read_support(unsaid, encoder) for value in values if not np.isnan(value)]
    even, slope = fit(support)
    print(f"{len(cases)} cases, {len(support)} statements taken out: EVEN {even:.3f}, SLOPE {slope:.1f}")


if __name__ == "__main__":
    run(main)
