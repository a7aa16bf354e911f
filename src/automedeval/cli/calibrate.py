"""Put a judge's verdicts on the scale that people rate on, learnt from a few rated cases.

    automedeval calibrate --verdicts RATED OTHERS --ratings R --rubric RUBRIC --output OUT

Writes verdicts.jsonl by "JUDGE, calibrated", and calibration.json. Of all --verdicts those on
rated cases teach, and the others are put on the scale.
"""

from dataclasses import dataclass
from pathlib import Path

from automedeval.meta_evaluation.calibration.scores import calibrate
from automedeval.records import JsonObject, RecordError, option, verdicts_file
from automedeval.records.arguments import comma_list
from automedeval.records.command_line import parse
from automedeval.records.journal import write_json, write_lines
from automedeval.records.readers import is_one_of
from automedeval.records.run_record import record_run
from automedeval.records.text import span
from automedeval.rubrics import read_rubric


@dataclass
class CalibrateArguments:
    """The verdicts to calibrate, and the ratings to learn from."""

    verdicts: list[str] = option(
        "folders or files of one judge's verdicts: on rated cases, and those to calibrate"
    )
    output: str = option("folder for verdicts.jsonl and calibration.json")
    ratings: str = option("people's ratings of the cases to learn from")
    rubric: str = option(
        "the rubric of the ratings' scale: a packaged rubric, or your own .yaml file"
    )

    judge: str | None = option("the judge's name, where a file has verdicts of several", None)

    def __post_init__(self) -> None:
        self.verdicts = comma_list(self.verdicts)


def main() -> None:
    """Learn from the rated cases, then put the other verdicts on the scale."""
    (args,) = parse((CalibrateArguments,), __doc__, first=("verdicts", "ratings", "rubric"))
    output = Path(args.output)
    check_output(output, args)
    rubric = read_rubric(args.rubric)
    calibration, verdicts = calibrate(args.verdicts, args.ratings, rubric, args.judge)
    record_run(output / "run.json", args)
    write_json(output / "calibration.json", calibration.to_dict())
    write_lines(output / "verdicts.jsonl", (verdict.to_dict() for verdict in verdicts))

    facts = calibration.facts
    print(
        f"rated cases: {facts['cases']:,}, responses: {facts['responses']:,}, ratings: {facts['ratings']:,}"
    )
    errors = [f"{name} {in_words(error)}" for name, error in facts["calibration_error"].items()]
    print(f"expected calibration error there, in points: {'; '.join(errors)} (by the other cases)")
    valid = sum(verdict.valid for verdict in verdicts)
    print(
        f"verdicts: {len(verdicts):,} → {valid:,} on the scale of {rubric.name}, {len(verdicts) - valid:,} invalid"
    )
    print(f"verdicts: {output / 'verdicts.jsonl'}")


def check_output(output: Path, args: CalibrateArguments) -> None:
    """Raise RecordError if the output would replace a file that is not an earlier calibration."""
    file = output / "verdicts.jsonl"
    if is_one_of(file, map(verdicts_file, args.verdicts)):
        raise RecordError(
            f"--output {args.output}: its verdicts.jsonl is an input; choose another folder"
        )
    if file.exists() and not (output / "calibration.json").exists():
        raise RecordError(f"{file} was not written by a calibration: choose another --output")


def in_words(error: JsonObject) -> str:
    """Return an error with its interval and, where it is known, the largest that chance alone gives; or why there is none."""
    if error["value"] is None:
        return f"none ({error['reason']})"
    return span(error) + (
        f", by chance up to {error['chance']:.2f}" if error.get("chance") is not None else ""
    )
