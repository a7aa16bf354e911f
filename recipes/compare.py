"""Compare candidates with few ratings: many verdicts, corrected by what people said of some cases.

    python recipes/compare.py --cases cases.jsonl --verdicts verdicts --ratings ratings.jsonl --output comparison
    python recipes/compare.py --cases cases.jsonl --verdicts small=v1.jsonl large=v2.jsonl --ratings ratings.jsonl \\
      --models model-a model-b --plan_power 0.8 --rate_next 30 --output comparison

Writes OUTPUT/comparison.json, comparison.md and comparison.html: mean scores, differences and win rates from the ratings alone,
from each judge alone, and from both, with intervals that hold however wrong the judge is, as long as the rated cases are a
random draw of all. --rate_next adds next_cases.jsonl, which cases to rate next, and probabilities.jsonl, with what chance each
case is rated by then: give it to --probabilities once they are.
"""

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import automedeval
from automedeval.cli import git_commit, parse, run
from automedeval.meta_evaluation import comparison_report
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.comparison import STACKED, VOTED, candidates_of, compare, keep_ratings, plain
from automedeval.meta_evaluation.confidence import uncertainty
from automedeval.meta_evaluation.ratings import read_ratings
from automedeval.meta_evaluation.verdicts import Row, read_verdicts, rows_of
from automedeval.metrics.lexical import BASELINES
from automedeval.records import RecordError, read_lines
from automedeval.records.journal import write_whole
from automedeval.reports.page import printable
from automedeval.stats import sampling
from automedeval.stats.bootstrap import RESAMPLES

EQUAL = (
    "The rated cases are taken as a random draw of all cases, decided without a look at what people say of them. If somebody "
    "chose them, no interval of ratings holds, with or without a judge."
)
WEIGHED = "The rated cases are taken as drawn with the chances that --probabilities names, and are weighted with their inverse."


@dataclass
class CompareArguments:
    """What is compared, by whom, and what is planned."""

    cases: str = field(metadata={"help": "the cases: .jsonl, .parquet or a Hub dataset id"})
    verdicts: list[str] = field(
        metadata={"help": "verdict files, or folders with a verdicts.jsonl; NAME=FILE calls its judge NAME"}
    )
    ratings: str = field(metadata={"help": "people's ratings of some of the cases, drawn at random"})
    output: str = field(metadata={"help": "folder for comparison.json, comparison.md and comparison.html"})
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml, if the verdicts were given by one"}
    )
    models: list[str] = field(default_factory=list, metadata={"help": "compare only these candidates (default: all)"})
    candidates: str = field(
        default="models",
        metadata={
            "help": "models, or picks: what a rule without a model would pick from the responses of each case",
            "choices": ["models", "picks"],
        },
    )
    probabilities: str | None = field(
        default=None,
        metadata={"help": "with what chance each case was to be rated: lines of case_id, probability (default: alike)"},
    )
    rated: int | None = field(
        default=None,
        metadata={"help": "use the ratings of only so many cases, drawn at random: what would few have said?"},
    )
    plan_power: float = field(default=0.8, metadata={"help": "power of the plan: how many ratings tell two apart"})
    plan_difference: float | None = field(
        default=None, metadata={"help": "difference to plan for, in points (default: the estimated one)"}
    )
    rate_next: int | None = field(default=None, metadata={"help": "draw so many cases to be rated next"})
    uniform: float = field(
        default=sampling.UNIFORM, metadata={"help": "share of the chance to be drawn that all cases get alike"}
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "of the bootstrap of the concordances"})
    seed: int = field(default=0, metadata={"help": "of the bootstrap, of --rated and of --rate_next"})

    def __post_init__(self) -> None:
        for name in ("verdicts", "models"):
            given = [each.strip() for part in getattr(self, name) for each in part.split(",") if each.strip()]
            setattr(self, name, list(dict.fromkeys(given)))
        if not self.verdicts:
            raise RecordError("--verdicts names no file")
        if len(self.models) == 1:
            raise RecordError("--models must name two candidates or more")
        for name, low, high in (("plan_power", 0.05, 1), ("uniform", 0, 1.000001)):
            if not low < getattr(self, name) < high:
                raise RecordError(f"--{name} must be above {low} and {'below' if high == 1 else 'at most'} 1")
        for name, least in (("rated", 2), ("rate_next", 1), ("resamples", 100)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(self, name)}")
        if self.plan_difference is not None and not abs(self.plan_difference) > 0:
            raise RecordError("--plan_difference must be a number other than 0")
        if self.rated and self.probabilities:
            raise RecordError("--rated draws with equal chances, and --probabilities says that they were not equal")


def main() -> None:
    """Read everything, compute everything, then write."""
    (args,) = parse((CompareArguments,), __doc__)
    cases = Cases.read(args.cases)
    judges, notes = read_verdicts(args.verdicts, cases, args.rubric, frozenset({STACKED, VOTED, *BASELINES, "people"}))
    people = read_ratings(args.ratings, cases)
    if args.rated:
        people = keep_ratings(cases, people, args.rated, args.seed)
    notes = people.notes + notes
    rows = rows_of(judges)
    rated = np.zeros(len(cases), bool)
    rated[cases.panel.case[~np.isnan(people.scores)]] = True
    chances = read_probabilities(args.probabilities, cases, rated) if args.probabilities else None
    candidates = candidates_of(cases, args.candidates, args.models, notes)
    found = compare(
        cases, people, rows, candidates, chances, args.plan_power, args.plan_difference, args.resamples, args.seed
    )
    result = plain(found) | {"notes": notes + found["notes"]}
    texts: dict[str, str] = {}
    if args.rate_next:
        result["next"] = draw_next(args, cases, rows, rated, chances, texts)
    result["cases"] = {
        "file": cases.source,
        "cases": len(cases),
        "responses": cases.responses,
        "rated_cases": int(rated.sum()),
        "weighted": chances is not None,
    }
    result["settings"] = {
        "command": shlex.join(["python", "recipes/compare.py", *sys.argv[1:]]),
        "version": automedeval.__version__,
        "commit": git_commit(),
        "resamples": args.resamples,
        "seed": args.seed,
    }
    context = {
        "title": "Candidates, by few ratings: " + Path(args.cases).stem,
        "assumption": EQUAL if chances is None else WEIGHED,
        "figures": comparison_report.illustrate(result),
    }
    for name in ("comparison.md", "comparison.html"):
        texts[name] = comparison_report.render(f"{name}.jinja", result, **context)
    texts["comparison.json"] = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text)
    counts = result["cases"]
    lines = [f"{counts['rated_cases']:,} of {counts['cases']:,} cases are rated", *comparison_report.words(result)]
    lines += [f"note: {note}" for note in result["notes"]]
    if args.rate_next:
        lines.append(f"to rate next: {folder / 'next_cases.jsonl'}, {result['next']['drawn']} cases")
    print("\n".join(map(printable, lines)))
    print(f"comparison: {folder / 'comparison.html'}")


def read_probabilities(path: str, cases: Cases, rated: np.ndarray) -> np.ndarray:
    """Return with what chance each case was to be rated, float [cases]; NaN where the file does not say.

    Raises:
        RecordError: a rated case has none, or one is not above 0 and at most 1.
    """
    found = np.full(len(cases), np.nan)
    for place, record in read_lines(path):
        name, chance = record.get("case_id"), record.get("probability")
        if not isinstance(name, str):
            raise RecordError(f"{place}: 'case_id' must be the id of a case, not {name!r}")
        if isinstance(chance, bool) or not isinstance(chance, (int, float)) or not 0 < chance <= 1:
            raise RecordError(f"{place}: 'probability' must be a number above 0 and at most 1, not {chance!r}")
        if name in cases.index:
            if not np.isnan(found[cases.index[name]]):
                raise RecordError(f"{place}: case {name!r} has a probability already")
            found[cases.index[name]] = chance
    if (missing := rated & np.isnan(found)).any():
        first = cases.records[int(np.flatnonzero(missing)[0])].id
        raise RecordError(f"{path}: {int(missing.sum())} rated cases have no probability, {first!r} for one")
    return found


def draw_next(
    args: CompareArguments,
    cases: Cases,
    rows: list[Row],
    rated: np.ndarray,
    earlier: np.ndarray | None,
    texts: dict[str, str],
) -> dict[str, Any]:
    """Draw the cases to rate next, add both files to `texts`, and return what the report says of it.

    Raises:
        RecordError: fewer cases are left, or one has no probability so far.
    """
    if args.rate_next > (~rated).sum():
        raise RecordError(f"--rate_next {args.rate_next}: only {int((~rated).sum())} cases are not rated yet")
    if earlier is None:
        earlier = np.full(len(cases), rated.mean())
    if np.isnan(earlier).any():
        first = cases.records[int(np.flatnonzero(np.isnan(earlier))[0])].id
        raise RecordError(f"{args.probabilities}: --rate_next needs the probability of every case; {first!r} has none")
    unsure, source = uncertainty(cases, rows)
    chance = sampling.chances(unsure, ~rated, args.rate_next, args.uniform)
    both = sampling.together(earlier, chance)
    drawn = sampling.draw(chance, ~rated, args.seed)
    chosen = [
        cases.records[number].to_dict() | {"probability": round(chance[number], 9), "inclusion": round(both[number], 9)}
        for number in drawn.tolist()
    ]
    every = [{"case_id": cases.records[n].id, "probability": float(f"{both[n]:.12g}")} for n in cases.file_order]
    for name, records in (("next_cases.jsonl", chosen), ("probabilities.jsonl", every)):
        texts[name] = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    ends = {"least": float(chance[~rated].min()), "most": float(chance[~rated].max())}
    return {"drawn": len(drawn), "source": source, "uniform": args.uniform, **ends}


if __name__ == "__main__":
    run(main)
