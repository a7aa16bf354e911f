"""Keep the verdicts that can be relied on, and hand the rest to people.

    python recipes/abstain.py --verdicts verdicts/mine --cases cases.jsonl --ratings ratings.jsonl \\
        --abstain_at 0.1 --delta 0.1 --output selected/mine

Some of the cases are rated, drawn at random from all; the others are fresh. The rated ones say how far confident verdicts are
wrong, and which fresh ones can be kept so that the share of wrong pairs among them is --abstain_at at most, with a probability
of 1 - delta at least; automedeval.abstention says what exactly is promised, and how. Where nothing can be promised nothing is
kept.

Writes OUTPUT/kept/verdicts.jsonl and OUTPUT/kept/cases.jsonl; OUTPUT/queue/cases.jsonl, the other fresh cases for the
physicians, the least sure first; OUTPUT/abstention.json with the certificate; OUTPUT/risk_coverage.svg of the rated cases.

Calibrated verdicts serve too: recipes/calibrate.py writes none of the cases that it learnt from, and none can be rated here.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.cli import parse, record_run, run
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.confidence import MEASURES, Confidence
from automedeval.meta_evaluation.ratings import read_ratings
from automedeval.records import RecordError, read_cases
from automedeval.records.journal import write_whole
from automedeval.reports import charts
from automedeval.stats import selective
from automedeval.stats.bootstrap import RESAMPLES, estimate, plain


@dataclass
class AbstainArguments:
    """Which verdicts, how sure they have to be, and who says how often they are wrong."""

    verdicts: list[str] = field(metadata={"help": "files or folders of one judge's verdicts, on rated and fresh cases"})
    cases: list[str] = field(metadata={"help": "the cases of all these verdicts: one file or several"})
    ratings: str = field(metadata={"help": "people's ratings of some of the cases; what has no rating is fresh"})
    output: str = field(metadata={"help": "folder for kept/, queue/, abstention.json and risk_coverage.svg"})
    abstain_at: float = field(metadata={"help": "the share of wrong pairs that is allowed among the kept ones"})
    delta: float = field(default=0.1, metadata={"help": "how often the promise may be false"})
    confidence: str = field(
        default="gap",
        metadata={"help": "; ".join(f"{name}: {told}" for name, told in MEASURES.items()), "choices": list(MEASURES)},
    )
    others: list[str] = field(
        default_factory=list, metadata={"help": "judges: files or folders of the others' verdicts"}
    )
    judge: str | None = field(default=None, metadata={"help": "whose verdicts (NAME: CRITERION of a pairwise judge)"})
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml, if the verdicts were given by one"}
    )
    seed: int = field(
        default=0, metadata={"help": "which pair of a rated case is looked at; chosen once, not until it suits"}
    )

    def __post_init__(self) -> None:
        for name in ("verdicts", "cases", "others"):
            setattr(
                self, name, [each.strip() for given in getattr(self, name) for each in given.split(",") if each.strip()]
            )
        for name in ("abstain_at", "delta"):
            if not 0 < getattr(self, name) < 1:
                raise RecordError(f"--{name} must be above 0 and below 1, not {getattr(self, name)}")
        if (self.confidence == "judges") != bool(self.others):
            raise RecordError("--others and --confidence judges go together")


def main() -> None:
    """Certify a threshold on the rated cases, then part the fresh ones by it."""
    (args,) = parse((AbstainArguments,), __doc__)
    cases = Cases([case for file in args.cases for case in read_cases(file)], ", ".join(args.cases))
    if len(cases.index) < len(cases):
        raise RecordError(f"{cases.source}: a case stands in two of the files")
    people = read_ratings(args.ratings, cases)
    said = Confidence.read(args.verdicts, cases, people, args.confidence, args.others, args.judge, args.rubric)
    rated = cases.panel.per_case(~np.isnan(people.scores), "responses") > 0
    fresh, sure = ~rated, ~np.isnan(said.values)
    if not fresh.any():
        raise RecordError(f"{args.ratings}: every case of {cases.source} is rated: there is none to keep or to hand on")
    if not (fresh & sure).any():
        raise RecordError(f"no verdict of {said.judge} on a case without ratings has a confidence by {args.confidence}")
    panel = cases.panel
    ordered = ~np.isnan(said.people) & (said.people != 0) & (rated & sure)[panel.case[panel.pairs[0]]]
    drawn = selective.drawn_pairs(panel, ordered, [case.id for case in cases.records], args.seed)
    units = said.values[panel.case[panel.pairs[0][drawn]]]
    sequence = selective.thresholds(said.values[fresh & sure], len(drawn), args.abstain_at, args.delta)
    wrong = said.relation[drawn] != said.people[drawn]
    certificate = selective.certify(units, wrong, sequence, args.abstain_at, args.delta)
    keep = fresh & sure & (said.values >= (np.inf if certificate.threshold is None else certificate.threshold))
    curve = selective.risk_coverage(panel, said.people, said.relation, said.values)
    record = {
        "judge": said.judge,
        "settings": said.settings,
        "confidence": args.confidence,
        "seed": args.seed,
        **certificate.to_dict(),
        "fresh": int(fresh.sum()),
        "kept": int(keep.sum()),
        "queued": int((fresh & ~keep).sum()),
        "queued_without_a_confidence": int((fresh & ~sure).sum()),
        "coverage": float(keep.sum() / fresh.sum()),
        "rated_curve": plain(estimate(curve, len(cases), RESAMPLES, args.seed)),
    }
    write(args, cases, said, keep, fresh & ~keep, record)
    print(f"{int(rated.sum())} rated cases, {len(drawn)} with a pair to test; {record['fresh']} fresh cases")
    if certificate.threshold is None:
        print(f"nothing can be certified: {certificate.reason}; {said.judge} abstains on all")
    else:
        told = f"{record['errors']} of {record['units_kept']} tested pairs wrong, p = {record['p']:.2g}"
        print(f"certified: at most {args.abstain_at:g} of the kept pairs wrong, at delta {args.delta:g} ({told})")
    print(f"kept {record['kept']} ({record['coverage']:.0%}), queued {record['queued']}")
    print(f"queue: {Path(args.output) / 'queue' / 'cases.jsonl'}")


def write(
    args: AbstainArguments, cases: Cases, said: Confidence, keep: np.ndarray, queue: np.ndarray, record: dict[str, Any]
) -> None:
    """Write the kept verdicts with their cases, the queue, the certificate and the figure."""
    output = Path(args.output)
    for name in ("kept", "queue"):
        (output / name).mkdir(parents=True, exist_ok=True)
    record_run(output / "run.json", args)
    kept = [cases.records[number] for number in cases.file_order if keep[number]]
    least_first = np.where(np.isnan(said.values), -np.inf, said.values)
    queued = sorted((number for number in cases.file_order if queue[number]), key=lambda number: least_first[number])
    confidence = [None if np.isnan(value) else float(value) for value in said.values]
    files = {
        "kept/cases.jsonl": [case.to_dict() for case in kept],
        "kept/verdicts.jsonl": [verdict.to_dict() for case in kept for verdict in said.verdicts[case.id]],
        "queue/cases.jsonl": [
            cases.records[number].to_dict() | {"confidence": confidence[number]} for number in queued
        ],
    }
    for name, records in files.items():
        write_whole(output / name, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records))
    write_whole(output / "abstention.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    (output / "risk_coverage.svg").unlink(missing_ok=True)
    if record["rated_curve"]:
        points = [
            (each["coverage"], *map(each["risk"].get, ("value", "low", "high"))) for each in record["rated_curve"]
        ]
        share = record["units_kept"] / record["units"] if record["threshold"] is not None else None
        svg = charts.risk_coverage([(said.judge, points)], "f", args.abstain_at, share)
        write_whole(output / "risk_coverage.svg", charts.alone(svg))


if __name__ == "__main__":
    run(main)
