"""Keep the verdicts that are certified to be reliable, and give the other cases to people.

    automedeval abstain --verdicts verdicts/mine --cases cases.jsonl --ratings ratings.jsonl \\
        --abstain_at 0.1 --delta 0.1 --output selected/mine

Some of the cases are rated, drawn at random from all; the others are fresh. The rated cases tell how many errors confident
verdicts have. Fresh verdicts above a threshold of confidence are kept, so that with a probability of at least 1 - delta the
share of wrong pairs among them is at most --abstain_at (automedeval.stats.selective has the exact statement and the method). If
no threshold can be certified, no verdict is kept. The confidence of a verdict is the mean gap between the (expected) scores of
two responses; of a judge that compares pairs, the share of pairs with the same choice in all orders.

Writes OUTPUT/kept/verdicts.jsonl and OUTPUT/kept/cases.jsonl; OUTPUT/queue/cases.jsonl, the other fresh cases for the
physicians, the least confident first; OUTPUT/abstention.json with the certificate; OUTPUT/risk_coverage.svg of the rated cases.

Calibrated verdicts can be used: automedeval calibrate leaves out the cases that it learnt from, so none of them is rated here.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.cli import TableArguments, comma_list, parse, record_run
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.calibration.abstention import (
    JudgedCases,
    abstain,
    certified_digest,
    read_judged_cases,
)
from automedeval.records import RecordError, check_between, read_cases
from automedeval.records.journal import write_json, write_lines, write_whole
from automedeval.reports import charts


@dataclass
class AbstainArguments(TableArguments):
    """The verdicts, the ratings, and the errors that are allowed."""

    verdicts: list[str] = field(metadata={"help": "files or folders of one judge's verdicts, on rated and fresh cases"})
    cases: list[str] = field(metadata={"help": "the cases of all these verdicts: one file or several"})
    ratings: str = field(metadata={"help": "people's ratings of some of the cases; a case without a rating is fresh"})
    output: str = field(metadata={"help": "folder for kept/, queue/, abstention.json and risk_coverage.svg"})
    abstain_at: float = field(metadata={"help": "largest share of wrong pairs among the kept verdicts"})
    delta: float = field(default=0.1, metadata={"help": "probability with which the certificate may be false"})
    judge: str | None = field(
        default=None,
        metadata={"help": "the judge's name, where a file has several (of a pairwise judge NAME: CRITERION)"},
    )
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )

    def __post_init__(self) -> None:
        for name in ("verdicts", "cases"):
            setattr(self, name, comma_list(getattr(self, name)))
        check_between(self, 0, 1, "abstain_at", "delta")


def main() -> None:
    """Certify a threshold on the rated cases, then divide the fresh cases by it."""
    (args,) = parse((AbstainArguments,), __doc__, first=("verdicts", "ratings", "abstain_at"))
    cases = Cases([case for file in args.cases for case in read_cases(file, blank=args.blank)], ", ".join(args.cases))
    if len(cases.index) < len(cases):
        raise RecordError(f"{cases.source}: a case is in two of the files")
    people = read_ratings(args.ratings, cases)
    judged = read_judged_cases(args.verdicts, cases, people, args.judge, args.rubric)
    keep, record = abstain(cases, judged, args.abstain_at, args.delta)
    write(args, cases, judged, keep, record)
    print(f"{record['rated']} rated cases, {record['units']} with a pair to test; {record['fresh']} fresh cases")
    if record["threshold"] is None:
        print(f"nothing can be certified: {record['reason']}; {judged.judge} abstains on all")
    else:
        test = f"{record['errors']} of {record['units_kept']} tested pairs wrong, p = {record['p']:.2g}"
        print(f"certified: at most {args.abstain_at:g} of the kept pairs wrong, at delta {args.delta:g} ({test})")
    print(f"kept {record['kept']} ({record['coverage']:.0%}), queued {record['queued']}")
    print(f"queue: {Path(args.output) / 'queue' / 'cases.jsonl'}")


def write(args: AbstainArguments, cases: Cases, judged: JudgedCases, keep: np.ndarray, record: dict[str, Any]) -> None:
    """Write the kept verdicts with their cases, the queue, the certificate and the figure."""
    output = Path(args.output)
    for name in ("kept", "queue"):
        (output / name).mkdir(parents=True, exist_ok=True)
    record_run(output / "run.json", args)
    kept = [cases.records[number] for number in cases.file_order if keep[number]]
    confidence = [None if np.isnan(value) else float(value) for value in judged.confidence]
    queued = [number for number in cases.file_order if not (judged.rated | keep)[number]]
    queued.sort(key=lambda number: -np.inf if confidence[number] is None else confidence[number])
    verdicts = [verdict for case in kept for verdict in judged.verdicts[case.id]]
    record["kept_digest"] = certified_digest(kept, verdicts)
    files = {
        "kept/cases.jsonl": [case.to_dict() for case in kept],
        "kept/verdicts.jsonl": [verdict.to_dict() for verdict in verdicts],
        "queue/cases.jsonl": [
            cases.records[number].to_dict() | {"confidence": confidence[number]} for number in queued
        ],
    }
    for name, records in files.items():
        write_lines(output / name, records)
    write_json(output / "abstention.json", record)
    (output / "risk_coverage.svg").unlink(missing_ok=True)
    if record["rated_curve"]:
        share = record["units_kept"] / record["units"] if record["threshold"] is not None else None
        curves = {judged.judge: record["rated_curve"]}
        svg = charts.svg_file(charts.risk_coverage, curves, args.abstain_at, share)
        write_whole(output / "risk_coverage.svg", svg)
