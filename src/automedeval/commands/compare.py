"""Compare candidates by many verdicts and few ratings: the ratings of some cases correct the verdicts on all.

    automedeval compare --cases cases.jsonl --verdicts verdicts --ratings ratings.jsonl --output comparison
    automedeval compare --cases cases.jsonl --verdicts small=v1.jsonl large=v2.jsonl --ratings ratings.jsonl \\
      --models model-a model-b --plan_power 0.8 --rate_next 30 --output comparison
    automedeval compare --cases cases.jsonl --verdicts verdicts --criterion_labels labels.jsonl --output comparison
    automedeval compare --cases cases.jsonl --verdicts verdicts --fail_if_worse NEW OLD --by 0.1

Writes OUTPUT/comparison.json, comparison.md and comparison.html: mean scores, differences and win rates from the ratings alone,
from each judge alone, and from both. The intervals of both are valid for any judge, if the rated cases are a random draw of all
cases. --rate_next adds next_cases.jsonl, the cases to rate next, and probabilities.jsonl, the probability with which each case
has been rated after that: give it to --probabilities when they are rated. The first of several judges leads.

Of judges of criteria the unclipped scores are compared; --criterion_labels takes the place of ratings.

--fail_if_worse is a gate for continuous integration. It takes no ratings: it compares the mean expected scores of two
candidates on the same cases by one judge. Exit status 0: NEW is not lower than OLD by --by points or more; 3: it is lower by
more than that; 4: too few cases to tell; 1: an error. Both statements hold at 95 %. With --output it writes gate.json.
"""

import math
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.cli import TableArguments, comma_list, describe_result, parse
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import audits_of, known_of_judge
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts, Row, read_verdicts, rows_of
from automedeval.meta_evaluation.calibration.confidence import uncertainty
from automedeval.meta_evaluation.comparison import report as comparison_report
from automedeval.meta_evaluation.comparison.compare import candidates_of, compare, keep_ratings
from automedeval.meta_evaluation.criteria.checklists import has_checklists, read_labels
from automedeval.meta_evaluation.criteria.scores import people_of, read_criteria_scores
from automedeval.records import RecordError, check_between, check_least, read_lines
from automedeval.records.journal import json_lines, write_json, write_whole
from automedeval.reports.facts import Audit, facts_of, lines_of
from automedeval.reports.text import printable
from automedeval.stats import sampling
from automedeval.stats.bootstrap import RESAMPLES, plain
from automedeval.stats.gate import NOT_WORSE, POWER, UNDECIDED, WORSE, gate
from automedeval.stats.prediction_powered import Powered

EQUAL = (
    "This assumes that the rated cases are a random draw of all cases, made before any of them was rated. If they were chosen "
    "in another way, the intervals are not valid, with or without a judge."
)
MOST_INVALID = 0.1  # share of cases without a valid verdict on both candidates with which the gate still decides
WEIGHED = "This assumes that the rated cases were drawn with the chances in --probabilities; they are weighted by the inverse."


@dataclass
class CompareArguments(TableArguments):
    """The files to compare, and the options of the report, the plan and the next draw."""

    cases: str = field(metadata={"help": "the cases, or the table of answers, that were judged"})
    verdicts: list[str] = field(
        metadata={"help": "verdict files, or folders with a verdicts.jsonl; NAME=FILE names its judge NAME"}
    )
    ratings: str | None = field(
        default=None,
        metadata={
            "help": "people's ratings of some of the cases, drawn at random; needed without a gate, or --criterion_labels"
        },
    )
    criterion_labels: str | None = field(
        default=None,
        metadata={
            "help": "judges of criteria: physicians' labels of the criteria of some of the cases, drawn at random"
        },
    )
    output: str | None = field(
        default=None,
        metadata={"help": "folder for comparison.json, comparison.md and comparison.html; needed without a gate"},
    )
    fail_if_worse: list[str] = field(
        default_factory=list,
        metadata={"help": "the gate: two candidates, NEW OLD; exit status 0, 3 or 4 (see above)", "nargs": 2},
    )
    by: float | None = field(
        default=None, metadata={"help": "the gate: points of the mean expected score by which NEW may be worse"}
    )
    audits: list[str] = field(
        default_factory=list,
        metadata={"help": "what automedeval audit found of these judges: its folders, or their audit.json"},
    )
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )
    models: list[str] = field(default_factory=list, metadata={"help": "compare only these candidates (default: all)"})
    probabilities: str | None = field(
        default=None,
        metadata={
            "help": "probabilities with which the cases were drawn to be rated: lines of case_id, probability (default: equal)"
        },
    )
    rated: int | None = field(
        default=None,
        metadata={
            "help": "use the ratings of only this number of cases, drawn at random, to try out how few are enough"
        },
    )
    plan_power: float = field(default=0.8, metadata={"help": "power of the plan of how many ratings find a difference"})
    plan_difference: float | None = field(
        default=None, metadata={"help": "difference to plan for, in points (default: the estimated one)"}
    )
    rate_next: int | None = field(default=None, metadata={"help": "number of cases to draw to be rated next"})
    resamples: int = field(default=RESAMPLES, metadata={"help": "resamples of the bootstrap of the concordances"})
    seed: int = field(default=0, metadata={"help": "seed of the bootstrap, of --rated and of --rate_next"})

    def __post_init__(self) -> None:
        for name in ("verdicts", "models", "audits"):
            setattr(self, name, list(dict.fromkeys(comma_list(getattr(self, name)))))
        if not self.verdicts:
            raise RecordError("--verdicts names no file")
        if bool(self.fail_if_worse) != (self.by is not None):
            raise RecordError("--fail_if_worse and --by need each other")
        if self.fail_if_worse:
            self._check_gate()
        elif self.output is None or (self.ratings is None) == (self.criterion_labels is None):
            raise RecordError(
                "--output and --ratings (or, for judges of criteria, --criterion_labels) are needed; only --fail_if_worse "
                "does without"
            )
        if len(self.models) == 1:
            raise RecordError("--models must name two candidates or more")
        check_between(self, 0.05, 1, "plan_power")
        check_least(self, 2, "rated")
        check_least(self, 1, "rate_next")
        check_least(self, 100, "resamples")
        if self.plan_difference is not None and not abs(self.plan_difference) > 0:
            raise RecordError("--plan_difference must be a number other than 0")
        if self.rated and self.probabilities:
            raise RecordError("--rated and --probabilities exclude each other: --rated draws with equal probabilities")

    def _check_gate(self) -> None:
        if len(set(self.fail_if_worse)) != 2:
            raise RecordError("--fail_if_worse names two candidates: NEW OLD")
        if self.by is None or not 0 < self.by < math.inf:
            raise RecordError(f"--by must be above 0, not {self.by}")
        for name in ("ratings", "criterion_labels", "models", "probabilities", "rated", "rate_next", "plan_difference"):
            if getattr(self, name):
                raise RecordError(f"--fail_if_worse compares verdicts alone: no --{name}")


def main() -> None:
    """Read the files, compute the figures, and write the report."""
    (args,) = parse((CompareArguments,), __doc__, first=("cases", "verdicts", "ratings"))
    cases = Cases.read(args.cases, blank=args.blank)
    if criteria := has_checklists(args.verdicts):
        judges, notes = read_criteria_scores(args.verdicts, cases)
    else:
        judges, notes = read_verdicts(args.verdicts, cases, args.rubric)
    if args.fail_if_worse:
        sys.exit(pass_gate(args, args.by or 0.0, cases, judges, notes))
    if args.criterion_labels:
        if not criteria:
            raise RecordError("--criterion_labels: these verdicts are not on criteria; --ratings compares scores")
        people = people_of(read_labels(args.criterion_labels, cases), cases)
    else:
        people = read_ratings(args.ratings, cases)
    if args.rated:
        people = keep_ratings(cases, people, args.rated, args.seed)
    notes = people.notes + notes + [note for judge in judges for note in judge.notes()]
    rows = rows_of(judges)
    rated = np.zeros(len(cases), bool)
    rated[cases.panel.case[~np.isnan(people.scores)]] = True
    chances = read_probabilities(args.probabilities, cases, rated) if args.probabilities else None
    candidates = candidates_of(cases, args.models, notes)
    found = compare(
        cases, people, rows, candidates, chances, args.plan_power, args.plan_difference, args.resamples, args.seed
    )
    result = plain(found, Powered) | {"notes": notes + found["notes"]}
    lead = next(row for row in rows if row.name == result["lead"])
    agreement = comparison_report.agreement(result, lead.name)
    means = {
        name: record["mean"][result["lead"]]["prediction_powered"]["value"] for name, record in result["models"].items()
    }
    means = {name: value for name, value in means.items() if value is not None}
    known = known_of_judge(
        cases, lead, max(means, key=lambda name: means[name], default=None),
        agreement=agreement, rated=int(rated.sum()), **audited(args.audits, rows, lead),
    )  # fmt: skip
    result["facts"] = [list(fact) for fact in facts_of(known)]
    texts: dict[str, str] = {}
    if args.rate_next:
        result["next"] = draw_next(args, args.rate_next, cases, rows, rated, chances, texts)
    result["cases"] = {
        "file": cases.source,
        "cases": len(cases),
        "responses": cases.responses,
        "rated_cases": int(rated.sum()),
        "weighted": chances is not None,
    }
    result["settings"] = describe_result("compare", resamples=args.resamples, seed=args.seed)
    title = "Candidates, by few ratings: " + Path(args.cases).stem
    texts |= comparison_report.render(result, title, EQUAL if chances is None else WEIGHED)
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(folder / name, text)
    write_json(folder / "comparison.json", result)
    counts = result["cases"]
    lines = [*comparison_report.words(result), f"{counts['rated_cases']:,} of {counts['cases']:,} cases are rated"]
    lines += [f"note: {note}" for note in result["notes"]]
    if args.rate_next:
        lines.append(f"to rate next: {folder / 'next_cases.jsonl'}, {result['next']['drawn']} cases")
    print("\n".join(map(printable, lines)))
    print(f"comparison: {folder / 'comparison.html'}")
    print("Not for clinical use.")


def audited(places: list[str], rows: list[Row], row: Row) -> dict[str, Audit]:
    """Return the argument `audit` of `Known` if one of these audits, each of a judge of the lines, is of this line's."""
    found = audits_of(places, rows)
    return {"audit": Audit(**found[row.name])} if row.name in found else {}


def pass_gate(args: CompareArguments, by: float, cases: Cases, judges: list[JudgeVerdicts], notes: list[str]) -> int:
    """Compare two candidates on the cases in which both have a score; print the result and return the exit status.

    A case without a valid verdict on both is left out and counted. The gate stays undecided if there are too many of them.

    Raises:
        RecordError: there are several judges, the judge gives no scores on a known scale, or a candidate has no response.
    """
    new, old = args.fail_if_worse
    if len(judges) > 1:
        names = ", ".join(judge.name for judge in judges)
        raise RecordError(f"--fail_if_worse takes the verdicts of one judge, not of {names}")
    (row, *_) = rows_of(judges)
    if row.criterion is not None or row.judge.scale is None:
        raise RecordError(f"{row.judge.name} gives no scores on a known scale, and --fail_if_worse needs them")
    if missing := [name for name in (new, old) if name not in cases.models]:
        raise RecordError(f"{cases.source}: no response of {missing[0]!r}; there are {', '.join(cases.models)}")
    scores = np.full((2, len(cases)), np.nan)
    both = np.zeros(len(cases), int)
    for place, name in enumerate((new, old)):
        ours = cases.model_of == cases.models.index(name)
        both[cases.panel.case[ours]] += 1
        if row.values is not None:
            scores[place, cases.panel.case[ours]] = row.values[ours]
    differences = scores[0] - scores[1]
    known = ~np.isnan(differences)
    found = gate(differences[known], by, float(row.judge.scale[1] - row.judge.scale[0]))
    asked = int((both == 2).sum())
    invalid = asked - int(known.sum())
    status = found.status
    if asked and invalid > MOST_INVALID * asked:
        status = UNDECIDED
        notes = [*notes, f"undecided: more than {MOST_INVALID:.0%} of the cases have no valid verdict on both"]
    elif status == UNDECIDED and found.mean is not None:
        many = "no number of cases" if found.needed is None else f"about {found.needed:,} cases"
        notes = [*notes, f"undecided: {many} would do, if the difference is as estimated (power {POWER:.0%})"]
    if asked < len(cases):
        notes = [*notes, f"{len(cases) - asked} of {len(cases)} cases do not have a response of both: left out"]
    kind = "expected scores" if row.expected is not None else "whole scores (the judge gives no expected scores)"
    words = {NOT_WORSE: "not worse", WORSE: "worse", UNDECIDED: "undecided"}[status]
    scores_are = {NOT_WORSE: "not lower", WORSE: "lower", UNDECIDED: "undecided"}[status]
    lines = [f"{new} against {old} by {row.judge.name}, {kind}: {scores_are} (exit status {status})"]
    if found.mean is not None:
        bounds = f"at least {found.low:+.3f}, at most {found.high:+.3f} (each at 95 %)"
        lines.append(f"mean difference {found.mean:+.3f} points on {found.cases} cases, {bounds}; allowed {-by:+g}")
    lines.append(f"{invalid} of {asked} cases without a valid verdict on both: left out")
    lines += lines_of(known_of_judge(cases, row, new, **audited(args.audits, [row], row)))
    lines += [f"note: {note}" for note in notes]
    print("\n".join(map(printable, lines)))
    if args.output:
        Path(args.output).mkdir(parents=True, exist_ok=True)
        record = {"new": new, "old": old, "judge": row.judge.name, "settings": row.judge.settings, "by": by}
        record |= asdict(found) | {"status": status, "result": words, "invalid": invalid, "notes": notes}
        write_json(Path(args.output) / "gate.json", record)
    return status


def read_probabilities(path: str, cases: Cases, rated: np.ndarray) -> np.ndarray:
    """Return the probability with which each case was drawn to be rated, float [cases]; NaN where the file has none.

    Raises:
        RecordError: a rated case has no probability, or one is not above 0 and at most 1.
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
    number: int,
    cases: Cases,
    rows: list[Row],
    rated: np.ndarray,
    earlier: np.ndarray | None,
    texts: dict[str, str],
) -> dict[str, Any]:
    """Draw the cases to rate next, add both files to `texts`, and return the facts for the report.

    Raises:
        RecordError: too few unrated cases are left, or a case has no probability so far.
    """
    if number > (~rated).sum():
        raise RecordError(f"--rate_next {number}: only {int((~rated).sum())} cases are not rated yet")
    if earlier is None:
        earlier = np.full(len(cases), rated.mean())
    if np.isnan(earlier).any():
        first = cases.records[int(np.flatnonzero(np.isnan(earlier))[0])].id
        raise RecordError(f"{args.probabilities}: --rate_next needs the probability of every case; {first!r} has none")
    unsure, source = uncertainty(cases, rows)
    chance = sampling.chances(unsure, ~rated, number)
    both = sampling.together(earlier, chance)
    drawn = sampling.draw(chance, ~rated, args.seed)
    chosen = [
        cases.records[number].to_dict() | {"probability": round(chance[number], 9), "inclusion": round(both[number], 9)}
        for number in drawn.tolist()
    ]
    every = [{"case_id": cases.records[n].id, "probability": float(f"{both[n]:.12g}")} for n in cases.file_order]
    texts |= {"next_cases.jsonl": json_lines(chosen), "probabilities.jsonl": json_lines(every)}
    ends = {"least": float(chance[~rated].min()), "most": float(chance[~rated].max())}
    return {"drawn": len(drawn), "source": source, "uniform": sampling.UNIFORM, **ends}
