"""Audit a judge: what order, length, planted texts, repetition, harm and authorship do to its scores.

    python recipes/audit.py --judge models/SmolLM2-135M-Instruct --cases cases.jsonl --output reports/audit
    python recipes/audit.py --judge openai:MODEL --cases cases.jsonl --ratings ratings.jsonl --attacks 6 --output reports/audit
    python recipes/audit.py --verdicts verdicts/mine --cases cases.jsonl --output reports/audit

Writes OUTPUT/audit.json, audit.md and audit.html, and all verdicts as it goes; the same command again judges only what is
missing, and several processes share it (`accelerate launch recipes/audit.py …`). With --verdicts nothing is judged: recorded
verdicts are audited for what they can tell. The exit status is 0 if the judge passes its thresholds, 3 (of `accelerate launch`
1) if it does not or nothing could be told, 1 if something has to be mended first.
"""

import json
import shlex
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import automedeval
from automedeval.audit import biases, report, trials
from automedeval.audit.perturbations import Trial, harm, read_attacks, read_harms, read_paraphrases
from automedeval.audit.run import judge_of, judge_tampered, recorded
from automedeval.audit.thresholds import decide, figures_of, passes, read_thresholds
from automedeval.audit.trials import Outcome, Templates, trial_figures
from automedeval.cli import git_commit, join_processes, parse, record_run, run
from automedeval.judges.baseline import BaselineJudge
from automedeval.judges.judge import Judge
from automedeval.judges.likelihood import DTYPES, LIKELIHOODS, LikelihoodJudge
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People, read_ratings
from automedeval.meta_evaluation.verdicts import Readings
from automedeval.metrics.lexical import Collection
from automedeval.models.arguments import ChatArguments
from automedeval.records import RecordError
from automedeval.records.journal import Processes, write_whole
from automedeval.reports.page import printable
from automedeval.rubrics import read_rubric
from automedeval.stats.bootstrap import RESAMPLES, estimate, plain, ratio

CHECKS = (*biases.CHECKS, *trials.CHECKS)


@dataclass
class AuditArguments:
    """Who is audited, on what, and how thoroughly."""

    cases: str = field(metadata={"help": "cases: .jsonl, .parquet or a Hub dataset id"})
    output: str = field(metadata={"help": "folder for audit.json, audit.md, audit.html and the verdicts"})
    judge: str | None = field(default=None, metadata={"help": "the judge, named as recipes/judge.py has it"})
    verdicts: str | None = field(
        default=None, metadata={"help": "recorded verdicts in a judge's place: file or folder"}
    )
    ratings: str | None = field(default=None, metadata={"help": "people's ratings of the responses"})
    raters: str | None = field(
        default=None, metadata={"help": "as in recipes/meta_evaluate.py", "choices": ["crossed", "anonymous"]}
    )
    rubric: str = field(default="automedeval", metadata={"help": "a packaged rubric, or the path of your own .yaml"})
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="both",
        metadata={
            "help": "planting is tried with both where the judge can do both",
            "choices": ["constrained", "free", "both"],
        },
    )
    orders: str = field(default="latin", metadata={"help": "of the clean run", "choices": ["1", "all", "latin"]})
    checks: list[str] | None = field(
        default=None, metadata={"help": f"some of {', '.join(CHECKS)}; all that can be made by default"}
    )
    attacks: int | None = field(default=None, metadata={"help": "how many attacks each case is dealt; all by default"})
    harms: int | None = field(
        default=None, metadata={"help": "how many harms each case is dealt at most; all that apply"}
    )
    attack_file: str | None = field(default=None, metadata={"help": "your own attacks.yaml"})
    harm_file: str | None = field(default=None, metadata={"help": "your own harms.yaml"})
    thresholds: str | None = field(default=None, metadata={"help": "your own thresholds.yaml"})
    gate: bool = field(default=True, metadata={"help": "false: exit status 0 even where the judge does not pass"})
    own: str | None = field(default=None, metadata={"help": "the candidate that is the judge's own model"})
    judge_name: str | None = field(
        default=None, metadata={"help": "what verdicts record; which judge of recorded ones"}
    )
    limit: int | None = field(default=None, metadata={"help": "only the first so many cases"})
    on_overlong: str = field(
        default="skip", metadata={"help": "as in recipes/judge.py", "choices": ["error", "skip", "clip"]}
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "of the bootstrap over cases"})
    seed: int = field(default=0, metadata={"help": "of orders, of what is dealt to whom, and of the bootstrap"})

    def __post_init__(self) -> None:
        if bool(self.judge) == bool(self.verdicts):
            raise RecordError("name one of --judge and --verdicts")
        able = biases.CHECKS if self.verdicts else CHECKS
        given = able if self.checks is None else [name.strip() for some in self.checks for name in some.split(",")]
        if unknown := sorted(set(given) - set(CHECKS)):
            raise RecordError(f"--checks: no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
        if unable := sorted(set(given) - set(able)):
            raise RecordError(f"--checks {unable[0]}: changes cases for a judge to judge; --verdicts are there already")
        self.checks = list(given)
        for name, least in (("limit", 1), ("attacks", 1), ("harms", 1), ("resamples", 100)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise RecordError(f"--{name} must be at least {least}, not {getattr(self, name)}")


def main() -> None:
    """Judge what is missing, compute everything, write three files, and say whether the judge passes."""
    args, chat_args = parse((AuditArguments, ChatArguments), __doc__)
    thresholds = read_thresholds(args.thresholds)
    templates = Templates(
        read_attacks(args.attack_file), read_harms(args.harm_file), read_paraphrases(), args.attacks, args.harms
    )
    cases, ours = Cases.read(args.cases, args.limit), join_processes()
    people = read_ratings(args.ratings, cases, args.raters) if args.ratings else None
    notes = list(people.notes) if people else []
    if args.own is not None and args.own not in cases.models:
        raise RecordError(f"--own {args.own!r}: no answer is by it; models are {', '.join(cases.models[:8])}")
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    if args.verdicts:
        found = {"recorded": (recorded(args.verdicts, cases, args.rubric, args.judge_name, notes), [])}
        notes.append("recorded verdicts: nothing was judged, so planting, sameness and harm are not known")
    else:
        found = judged(args, chat_args, cases, people, templates, notes, ours)
    if ours.rank > 0:
        ours.wait()
        return
    record_run(output / "run.json", args, chat_args)
    tree = {name: figures(args, cases, people, n, *each) for n, (name, each) in enumerate(found.items())}
    first = next(iter(found.values()))[0]
    decodings = plain(estimate(tree, len(cases), args.resamples, args.seed))
    decided = decide(thresholds, decodings)
    result = {
        "judge": judge_of(first),
        "cases": {"file": cases.source, "cases": len(cases), "responses": cases.responses, "rated": people is not None},
        "passes": passes(decided, args.checks),
        "headline": dict(figures_of(decided)),
        "thresholds": decided,
        "decodings": decodings,
        "templates": templates_used(
            cases, templates, [each.trial for _, outcomes in found.values() for each in outcomes]
        ),
        "notes": list(dict.fromkeys(notes)),
        "settings": {
            "command": shlex.join(["python", "recipes/audit.py", *sys.argv[1:]]),
            "version": automedeval.__version__,
            "commit": git_commit(),
            "resamples": args.resamples,
            "seed": args.seed,
        },
    }
    context = {"title": f"Audit of {result['judge']['name']}", "figures": report.illustrate(result)}
    texts = {name: report.render(f"{name}.jinja", result, **context) for name in ("audit.md", "audit.html")}
    texts["audit.json"] = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in texts.items():
        write_whole(output / name, text)
    print("\n".join(map(printable, ["", *report.summary(result), *(f"note: {note}" for note in result["notes"])])))
    print(f"audit: {output / 'audit.html'}")
    ours.wait()
    if args.gate and not result["passes"]:
        sys.exit(3)


def judged(
    args: AuditArguments,
    chat_args: ChatArguments,
    cases: Cases,
    people: People | None,
    templates: Templates,
    notes: list[str],
    ours: Processes,
) -> dict[str, tuple[Readings, list[Outcome]]]:
    """Load the judge and have it judge the clean cases and the changed ones; decoding → readings and outcomes."""
    kind, _, checkpoint = args.judge.partition(":")
    rubric, options = read_rubric(args.rubric), {"on_overlong": args.on_overlong, "name": args.judge_name}
    if kind == "baseline":
        judges = {"counts": BaselineJudge(checkpoint, Collection.of(cases.records), name=args.judge_name)}
    elif kind in LIKELIHOODS:
        chat = chat_args.load(checkpoint, args.seed, ours.count, DTYPES.get(kind, "auto"))
        judges = {"likelihood": LikelihoodJudge(chat, rubric if kind == "channel" else None, **options)}
    else:
        chat = chat_args.load(args.judge, args.seed, ours.count)
        both = ["constrained", "free"] if chat.constrains else ["free"]
        names = [name for name in both if args.score_decoding in (name, "both")] or both
        # A judge's second decoding is there to be attacked; its habits are told by the first.
        judges = {
            name: Judge(chat, rubric, args.rationale, name, "1" if number else args.orders, args.seed, **options)
            for number, name in enumerate(names)
            if number == 0 or "planting" in args.checks
        }
    return {
        name: judge_tampered(
            judge, cases, Path(args.output) / name, args.checks if number == 0 else ["planting"], templates, rubric,
            args.seed, people, notes, ours,
        )
        for number, (name, judge) in enumerate(judges.items())
    }  # fmt: skip


def figures(
    args: AuditArguments, cases: Cases, people: People | None, number: int, readings: Readings, outcomes: list[Outcome]
) -> dict[str, Any]:
    """Lay out the figures of one decoding; what a judge's habits are is told by the first."""
    checks = [name for name in args.checks if name in biases.CHECKS] if number == 0 else []
    verdicts, valid = (
        np.bincount([cases.index[each.case_id] for each in some], minlength=len(cases)).astype(float)
        for some in (readings.verdicts, readings.valid)
    )
    errors = Counter(each.error or "unknown" for each in readings.verdicts if not each.valid)
    clean = {
        "valid_rate": ratio(valid, verdicts, reason="no verdict"),
        "verdicts": len(readings.verdicts),
        "trials": len(outcomes),
        "unit": readings.unit_name,
        "settings": readings.verdicts[0].extra.get("settings"),
        "errors": dict(errors.most_common(8)),
    }
    if people is not None:
        clean["concordance"] = biases.concordance(readings, people)
    clean_figures = biases.audit_clean(readings, checks, people, args.own, args.seed)
    return {"clean": clean, **clean_figures, **trial_figures(outcomes, len(cases))}


def templates_used(cases: Cases, templates: Templates, tried: list[Trial]) -> dict[str, Any]:
    """Count how many answers each harm applies to, and how many trials were made with each template."""
    counts = Counter((trial.check, trial.name) for trial in tried)
    texts = [response.text for case in cases.records for response in case.responses]
    harms = {
        each.name: {
            "kind": each.kind,
            "answers": sum(harm(text, each) is not None for text in texts),
            "trials": counts["harm", each.name],
        }
        for each in templates.harms
        if any(trial.check == "harm" for trial in tried)
    }
    attacks = {
        each.name: {"family": each.family, "trials": counts["planting", each.name]}
        for each in templates.attacks
        if counts["planting", each.name]
    }
    return {"harms": harms, "attacks": attacks}


if __name__ == "__main__":
    run(main)
