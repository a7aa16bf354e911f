"""Combine the verdicts of several judges into those of a jury.

    automedeval jury --verdicts verdicts/a verdicts/b verdicts/c --cases cases.jsonl --output verdicts/jury
    automedeval jury --verdicts a=v1.jsonl b=v2.jsonl --cases cases.jsonl --ratings ratings.jsonl --output verdicts/jury

Writes OUTPUT/verdicts.jsonl: one verdict on each case, with expected scores, which every other command reads. The score of a
response is the mean over the judges with a valid score of it. If a response has none, the verdict is invalid.

With --ratings it prints the correlations of the judges' errors and the effective votes: how many judges with independent errors
the jury is worth. Three equal judges are worth one. Without ratings it prints the correlations of their scores; these are also
high where all judges are right.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from automedeval.cli import TableArguments, comma_list, parse, record_run
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, read_verdicts, rows_of
from automedeval.records import RecordError, Verdict, digest, verdicts_file
from automedeval.records.journal import write_json, write_lines
from automedeval.reports.text import printable
from automedeval.stats.bootstrap import divide
from automedeval.stats.votes import correlations, effective_votes


@dataclass
class JuryArguments(TableArguments):
    """The judges, and the ratings of people."""

    verdicts: list[str] = field(
        metadata={
            "help": "verdict files of two judges or more, or folders with a verdicts.jsonl; NAME=FILE names its judge"
        }
    )
    cases: str = field(metadata={"help": "the cases: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for verdicts.jsonl and jury.json"})
    ratings: str | None = field(
        default=None, metadata={"help": "people's ratings of some of the cases, on the scale of the judges' rubric"}
    )
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )

    def __post_init__(self) -> None:
        self.verdicts = list(dict.fromkeys(comma_list(self.verdicts)))


def main() -> None:
    """Combine the judges, write the verdicts, and print how far the judges err together."""
    (args,) = parse((JuryArguments,), __doc__)
    cases = Cases.read(args.cases, blank=args.blank)
    judges, notes = read_verdicts(args.verdicts, cases, args.rubric)
    check_judges(judges, Path(args.output))
    people = read_ratings(args.ratings, cases) if args.ratings else None
    unscored = np.full(cases.responses, np.nan)
    scores = np.stack([unscored if row.values is None else row.values for row in rows_of(judges)])
    combined = divide(np.nansum(scores, axis=0), (~np.isnan(scores)).sum(axis=0))
    settings = digest(
        [[[*judge.verdicts[0].author, judge.settings] for judge in judges], combined.round(9).tolist()], allow_nan=True
    )
    verdicts = verdicts_of(cases, judges, combined, scores, settings)
    if people is None:
        what, correlated, votes = "correlations of the judges' scores, not of their errors", correlations(scores), None
    else:
        errors = scores - people.scores
        what, correlated, votes = "correlations of the judges' errors", correlations(errors), effective_votes(errors)
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    record_run(output / "run.json", args)
    record = {
        "judges": [judge.name for judge in judges],
        "what": what,
        "correlations": [[None if np.isnan(value) else float(value) for value in line] for line in correlated],
        "effective_votes": votes,
        "notes": notes,
    }
    write_json(output / "jury.json", record)
    write_lines(output / "verdicts.jsonl", (verdict.to_dict() for verdict in verdicts))
    lines = [f"{what}:"]
    for later, judge in enumerate(judges):
        for earlier in range(later):
            value = "not known" if np.isnan(correlated[later, earlier]) else f"{correlated[later, earlier]:.3f}"
            lines.append(f"  {judges[earlier].name}, {judge.name}: {value}")
    if people is not None:
        lines.append(f"effective votes: {'not known' if votes is None else f'{votes:.2f}'} of {len(judges)}")
    lines += [f"note: {note}" for note in notes]
    valid = sum(verdict.valid for verdict in verdicts)
    lines.append(f"{len(verdicts):,} verdicts, {len(verdicts) - valid:,} invalid: {output / 'verdicts.jsonl'}")
    print("\n".join(map(printable, lines)))


def check_judges(judges: list[JudgeVerdicts], output: Path) -> None:
    """Raise RecordError unless there are two judges or more that score by the same rubric, and none is the output."""
    if len(judges) < 2:
        raise RecordError("--verdicts: a jury needs two judges or more")
    if other := [judge for judge in judges if judge.rubric_name != judges[0].rubric_name]:
        names = f"{judges[0].name} by {judges[0].rubric_name}, {other[0].name} by {other[0].rubric_name}"
        raise RecordError(f"the judges of a jury score by one rubric: {names}")
    if judges[0].scale is None or any(judge.criteria for judge in judges):
        raise RecordError(f"{judges[0].rubric_name}: a jury combines scores on a known scale")
    if taken := [judge for judge in judges if judge.file and judge.file.resolve() == verdicts_file(output).resolve()]:
        raise RecordError(
            f"--output {output}: its verdicts.jsonl is the input of {taken[0].name}; choose another folder"
        )


def verdicts_of(
    cases: Cases, judges: list[JudgeVerdicts], combined: np.ndarray, scores: np.ndarray, settings: str
) -> list[Verdict]:
    """Return the jury's verdict on each case on which a judge gave a verdict, in the order of the file."""
    judged = np.any([judge.given > 0 for judge in judges], axis=0)
    blind = [judge.blind_to for judge in judges if judge.blind_to is not None]
    asked = np.any([judge.asked for judge in judges], axis=0)
    verdicts = []
    for number in cases.file_order:
        if not judged[number]:
            continue
        case, span = cases.records[number], slice(cases.start[number], cases.start[number + 1])
        order = tuple(np.flatnonzero(asked[span]).tolist())
        valid = not np.isnan(combined[span]).all()
        values = tuple(None if np.isnan(value) else float(value) for value in combined[span])
        votes = (~np.isnan(scores[:, span])).sum(axis=0).tolist()
        extra = {"models": case.models, "votes": votes, "case_digest": case.digest, "settings": settings}
        if len(blind) == len(judges):
            extra["blind_to"] = [kind for kind in blind[0] if all(kind in each for each in blind)]
        if empty := [case.models[index] for index in order if case.responses[index].is_empty]:
            extra["empty"] = empty
        error = None if valid else "no judge has a valid score of any response"
        verdict = Verdict(case.id, "jury", judges[0].rubric_name, order, valid=valid, error=error, extra=extra)
        verdicts.append(replace(verdict, expected_scores=values if valid else None))
    return verdicts
