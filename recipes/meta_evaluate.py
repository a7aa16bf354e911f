"""Judge the judges: which model is better, how sure, and how far the verdicts agree with people.

    python recipes/meta_evaluate.py --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --output report
    python recipes/meta_evaluate.py --verdicts small=v1.jsonl large=v2.jsonl --cases cases.jsonl --output report
    python recipes/meta_evaluate.py --verdicts r0=v0.jsonl r1=v1.jsonl r2=v2.jsonl --rounds r0,r1,r2 \
      --cases cases.jsonl --ratings ratings.jsonl --output report

Writes OUTPUT/agreement.json, OUTPUT/report.md and OUTPUT/report.html, one page without outside calls. Without --ratings it
compares the candidates by the judges alone. --rounds adds what further rounds of introspection can be expected to give.
"""

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
from automedeval.cli import git_commit, parse, run
from automedeval.meta_evaluation import report
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.evaluate import meta_evaluate
from automedeval.meta_evaluation.ratings import read_choices, read_preferences, read_ratings, read_verdict_ratings
from automedeval.meta_evaluation.rationale_similarity import compare_rationales, read_teacher
from automedeval.meta_evaluation.report_figures import illustrate
from automedeval.meta_evaluation.report_text import summary
from automedeval.meta_evaluation.runs import average_runs, check_rounds, follow_rounds
from automedeval.meta_evaluation.verdicts import JudgeEvidence, baseline_evidence, read_verdicts, rows_of
from automedeval.metrics.lexical import BASELINES
from automedeval.records import RecordError
from automedeval.records.journal import write_whole
from automedeval.reports import page
from automedeval.stats.bootstrap import RESAMPLES, estimate, plain


@dataclass
class MetaEvaluateArguments:
    """What is compared with what."""

    verdicts: list[str] = field(
        metadata={"help": "verdict files, or folders with a verdicts.jsonl; NAME=FILE calls its judge NAME"}
    )
    cases: str = field(metadata={"help": "the cases: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for agreement.json, report.md and report.html"})
    ratings: str | None = field(default=None, metadata={"help": "people's ratings of the responses"})
    choices: str | None = field(default=None, metadata={"help": "people's choices about pairs of responses"})
    verdict_ratings: str | None = field(default=None, metadata={"help": "people's ratings of the verdicts"})
    preferences: str | None = field(
        default=None, metadata={"help": "people's preferences between two judges' verdicts"}
    )
    raters: str | None = field(
        default=None,
        metadata={
            "help": "crossed: annotators are persons who rated all; anonymous: positions (default: crossed if complete)",
            "choices": ["crossed", "anonymous"],
        },
    )
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml, if the verdicts were given by one"}
    )
    limit: int | None = field(default=None, metadata={"help": "only the first so many cases"})
    baselines: bool = field(default=True, metadata={"help": "compare with longer text, BM25, ROUGE-L and chance"})
    series: bool = field(default=False, metadata={"help": "the files are a series (rounds, checkpoints): draw curves"})
    rounds: list[str] = field(
        default_factory=list,
        metadata={"help": "the judges of introspection rounds 0, 1, 2, … by name: a forecast (needs --ratings)"},
    )
    paper_table: bool = field(
        default=False, metadata={"help": "show the paper's own Table 2, and its rounds, beside, labelled as such"}
    )
    teacher_verdicts: str | None = field(
        default=None,
        metadata={"help": "a teacher's verdicts on these cases: how similar the judges' rationales are to its"},
    )
    bert_model: str = field(
        default="roberta-large", metadata={"help": "BERTScore: encoder, by folder or Hub id; none leaves it out"}
    )
    bert_num_layers: int | None = field(
        default=None, metadata={"help": "BERTScore: which layer (default: bert-score's choice, where it has one)"}
    )
    bart_model: str = field(
        default="facebook/bart-large-cnn",
        metadata={"help": "BARTScore: model, by folder or Hub id; none leaves it out"},
    )
    html_cases: int = field(default=300, metadata={"help": "most cases whose texts the page shows"})
    resamples: int = field(default=RESAMPLES, metadata={"help": "of the bootstrap over cases"})
    seed: int = field(default=0, metadata={"help": "of the bootstrap"})

    def __post_init__(self) -> None:
        self.verdicts = [name.strip() for given in self.verdicts for name in given.split(",") if name.strip()]
        if not self.verdicts:
            raise RecordError("--verdicts names no file")
        self.rounds = [name.strip() for given in self.rounds for name in given.split(",") if name.strip()]
        if self.rounds and not self.ratings:
            raise RecordError("--rounds needs --ratings: a round is measured by its agreement with people")
        for name, least in (("limit", 1), ("html_cases", 0), ("resamples", 100)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(self, name)}")


def main() -> None:
    """Read everything, compute everything, then write three files."""
    (args,) = parse((MetaEvaluateArguments,), __doc__)
    cases = Cases.read(args.cases, args.limit)
    judges, notes = read_verdicts(args.verdicts, cases, args.rubric, frozenset({*BASELINES, "people"}))
    check_rounds(args.rounds, [row.name for row in rows_of(judges)])
    people = choices = verdict_ratings = None
    if args.ratings:
        people = read_ratings(args.ratings, cases, args.raters)
        notes = people.notes + notes
    if args.choices:
        choices, more = read_choices(args.choices, cases)
        notes += more
    if args.verdict_ratings:
        verdict_ratings, more = read_verdict_ratings(args.verdict_ratings, cases)
        notes += more
    preferences = []
    if args.preferences:
        preferences, more = read_preferences(args.preferences, cases)
        notes += more
    baselines = baselines_of(cases, notes) if args.baselines and people is not None else []
    said = (people, choices, verdict_ratings, preferences)
    result = meta_evaluate(cases, [*judges, *baselines], *said, args.resamples, args.seed)
    if people is not None and (table := average_runs(result["judges"])):
        result["repeats"] = table
    if args.teacher_verdicts:
        result["similarity"], more = similarity(args, cases, judges)
        notes += more
    if args.rounds:
        result["rounds"] = follow_rounds(result["judges"], args.rounds)
    result = plain(result) | {
        "notes": notes,
        "settings": {
            "command": shlex.join(["python", "recipes/meta_evaluate.py", *sys.argv[1:]]),
            "version": automedeval.__version__,
            "commit": git_commit(),
            "resamples": args.resamples,
            "seed": args.seed,
        },
    }
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    paper_rounds = report.paper_rounds() if args.paper_table else None
    shown = report.pick_cases(result, cases, args.html_cases, args.seed)
    context = {
        "title": "Judges and candidates: " + Path(args.cases).stem,
        "paper": report.paper_table() if args.paper_table else None,
        "paper_rounds": paper_rounds,
        "figures": illustrate(result, args.series, paper_rounds),
        "cases": report.case_records(result, cases, judges, people, shown),
        **page.page_script(report.TEMPLATES / "report.js"),
    }
    texts = {name: report.render(f"{name}.jinja", result, **context) for name in ("report.md", "report.html")}
    texts["agreement.json"] = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in texts.items():
        write_whole(folder / name, text)
    lines = ["", *summary(result), "", *(f"note: {note}" for note in notes)]
    print("\n".join(map(page.printable, lines)))
    print(f"report: {folder / 'report.html'}")


def similarity(
    args: MetaEvaluateArguments, cases: Cases, judges: list[JudgeEvidence]
) -> tuple[dict[str, Any], list[str]]:
    """Compare the judges' rationales with the teacher's; return figures with intervals, and notes."""
    teacher, notes = read_teacher(args.teacher_verdicts, cases)
    try:  # loads torch, and the library that only metrics need
        from automedeval.metrics.rationale_score.rationale_score import rationale_score
    except ImportError as error:
        raise RecordError(f"--teacher_verdicts: {error}; install automedeval[metric]") from None
    models = {name: None if value == "none" else value for name, value in vars(args).items() if name.endswith("_model")}
    found = compare_rationales(cases, judges, teacher, rationale_score, bert_num_layers=args.bert_num_layers, **models)
    return estimate(found, len(cases), args.resamples, args.seed), notes


def baselines_of(cases: Cases, notes: list[str]) -> list[JudgeEvidence]:
    """Return the baselines that have something to count in these cases."""
    found = []
    for name, score in BASELINES.items():
        values = score(cases.records)
        missing = int((values != values).sum())
        if missing == len(values):
            notes.append(f"no baseline {name}: no case has one")
            continue
        if missing:
            notes.append(f"{name}: {missing} of {len(values)} responses have none and are left out of its figures")
        found.append(baseline_evidence(name, values, cases))
    return found


if __name__ == "__main__":
    run(main)
