"""Put a judge's verdicts on the scale that people rate on, with a few rated cases.

    python recipes/calibrate.py --verdicts verdicts/test --fit verdicts/rated --ratings ratings.jsonl --rubric THEIRS.yaml \\
        --output verdicts/test-calibrated

What the verdicts are decides: log-likelihoods and a baseline's counts have no scale and get one (automedeval.calibration),
scores are moved along a line that never falls (automedeval.scaling). Writes OUTPUT/verdicts.jsonl, whose verdicts have scores
like any judge's, and OUTPUT/calibration.json with the expected calibration error before and after; of scores also
OUTPUT/reliability.svg. No case may be in both; without --fit the rated cases of --verdicts serve, and the others are
calibrated.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.cli import parse, record_run, run
from automedeval.meta_evaluation.calibration import Calibration, Scaling
from automedeval.records import Rating, RecordError, Verdict, read_placed, read_records, verdict_key
from automedeval.records.journal import write_whole
from automedeval.rubrics import read_rubric, without_scale


@dataclass
class CalibrateArguments:
    """Which verdicts, and what they are calibrated with."""

    verdicts: str = field(metadata={"help": "folder or file of the verdicts to put on the scale"})
    ratings: str = field(metadata={"help": "people's ratings of those cases"})
    rubric: str = field(metadata={"help": "whose scale the ratings are on: a packaged rubric, or your own .yaml"})
    output: str = field(metadata={"help": "folder for verdicts.jsonl and calibration.json"})
    fit: str | None = field(
        default=None, metadata={"help": "the same judge's verdicts on rated cases; by default those of --verdicts"}
    )
    judge: str | None = field(default=None, metadata={"help": "whose verdicts, where a file holds several judges'"})
    judge_name: str | None = field(
        default=None, metadata={"help": "what the new verdicts record (default: the old name, calibrated)"}
    )


def main() -> None:
    """Learn from the rated cases, then put every verdict on the scale."""
    (args,) = parse((CalibrateArguments,), __doc__)
    rubric = read_rubric(args.rubric)
    output = Path(args.output)
    check_output(output, args)
    given, ratings = list(placed_verdicts(args.verdicts, args.judge)), list(read_records(args.ratings, Rating))
    if args.fit is None:
        known = {rating.case_id for rating in ratings}
        rated = [verdict for _, verdict in given if verdict.case_id in known]
        given = [(place, verdict) for place, verdict in given if verdict.case_id not in known]
        if not rated or not given:
            none = "every case is rated, and none is left" if rated else "no case is rated, and there is nothing"
            raise RecordError(
                f"{args.verdicts}, {args.ratings}: {none} to {'calibrate' if rated else 'calibrate with'}"
            )
    else:
        rated = [verdict for _, verdict in placed_verdicts(args.fit, args.judge)]
        known = {verdict.case_id for verdict in rated}
    kind = Calibration if without_scale(rated[0].rubric) else Scaling
    try:
        calibration = kind.fit(rated, ratings, rubric)
    except RecordError as error:
        raise RecordError(f"{args.fit or args.verdicts}, {args.ratings}: {error}") from None
    fresh = []
    for place, verdict in given:
        if verdict.case_id in known:
            raise RecordError(f"{place}: case {verdict.case_id!r} is one of those to calibrate with")
        try:
            fresh.append(calibration.apply(verdict, args.judge_name or f"{verdict.judge}, calibrated"))
        except RecordError as error:
            raise RecordError(f"{place}: {error}") from None
    output.mkdir(parents=True, exist_ok=True)
    record_run(output / "run.json", args)
    write_whole(output / "calibration.json", json.dumps(calibration.to_dict(), indent=1) + "\n")
    lines = (json.dumps(verdict.to_dict(), ensure_ascii=False) for verdict in fresh)
    write_whole(output / "verdicts.jsonl", "".join(f"{line}\n" for line in lines))
    facts = calibration.facts
    print(f"{facts['cases']:,} rated cases, {facts['responses']:,} responses, {facts['ratings']:,} ratings")
    if kind is Calibration:
        told = [f"{name} {'none' if value is None else f'{value:.3f}'}" for name, value in facts["concordance"].items()]
        print(f"concordance there: {', '.join(told)} (weights from the other cases)")
    else:
        from automedeval.reports import charts  # matplotlib is slow to load

        names = {"before": "before", "after": "after, by the other cases"}
        curves = [(names[name], bins) for name, bins in facts["reliability"].items()]
        write_whole(output / "reliability.svg", charts.alone(charts.reliability(curves, "f", rubric.scale)))
    errors = [f"{name} {in_words(error)}" for name, error in facts["calibration_error"].items()]
    print(f"expected calibration error there: {', '.join(errors)} points (by the other cases)")
    valid = sum(verdict.valid for verdict in fresh)
    print(f"{len(fresh):,} verdicts → {valid:,} on the scale of {rubric.name}, {len(fresh) - valid:,} invalid")
    print(f"verdicts: {output / 'verdicts.jsonl'}")


def check_output(output: Path, args: CalibrateArguments) -> None:
    """Raise RecordError if what is to be written would take the place of something that is no earlier calibration."""
    file = output / "verdicts.jsonl"
    inputs = [Path(place) for place in (args.verdicts, args.fit) if place]
    if file.resolve() in [(place / "verdicts.jsonl" if place.is_dir() else place).resolve() for place in inputs]:
        raise RecordError(f"--output {args.output}: its verdicts.jsonl is what is read; choose another folder")
    if file.exists() and not (output / "calibration.json").exists():
        raise RecordError(f"{file} was written by no calibration: choose another --output")


def placed_verdicts(place: str, judge: str | None) -> Iterator[tuple[str, Verdict]]:
    """Yield ("file:line", verdict) of one judge.

    Raises:
        RecordError: there are several judges and none is named, none of that name, scores beside log-likelihoods, or a verdict
            comes twice; of a judge that gives log-likelihoods, a case.
    """
    path = Path(place) / "verdicts.jsonl" if Path(place).is_dir() else Path(place)
    seen, names, kinds = set(), set(), set()
    for where, verdict in read_placed(path, Verdict):
        if judge is None or verdict.judge == judge:
            names.add(verdict.judge)
            if len(names) > 1:
                raise RecordError(f"{path}: verdicts of {', '.join(sorted(names))}: choose one with --judge")
            unscaled = without_scale(verdict.rubric)
            kinds.add(unscaled)
            if len(kinds) > 1:
                kind = f"numbers by {verdict.rubric}" if unscaled else f"scores by {verdict.rubric}"
                other = "scores" if unscaled else "numbers without a scale"
                raise RecordError(f"{where}: {kind} beside {other}: they are calibrated apart")
            key = verdict.case_id if unscaled else verdict_key(verdict)
            if key in seen:
                raise RecordError(f"{where}: case {verdict.case_id!r} has a verdict already")
            seen.add(key)
            yield where, verdict
    if not names:
        raise RecordError(f"{path}: no verdict of {'any judge' if judge is None else f'the judge {judge!r}'}")


def in_words(error: dict[str, Any]) -> str:
    """Return an expected calibration error with its interval, or why there is none."""
    if error["value"] is None:
        return f"none ({error['reason']})"
    interval = "" if error["low"] is None else f" [{error['low']:.2f}, {error['high']:.2f}]"
    return f"{error['value']:.2f}{interval}"


if __name__ == "__main__":
    run(main)
