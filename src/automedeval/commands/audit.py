"""Audit a judge: measure how order, length, planted texts, repetition, harm and authorship change its scores.

    automedeval audit --judge models/SmolLM2-135M-Instruct --cases cases.jsonl --output reports/audit
    automedeval audit --judge openai:MODEL --cases cases.jsonl --ratings ratings.jsonl --attacks 6 --output reports/audit
    automedeval audit --verdicts verdicts/mine --cases cases.jsonl --output reports/audit
    automedeval audit --judge MODEL --rubric checklist --cases cases.jsonl --output reports/audit

Writes OUTPUT/audit.json, audit.md and audit.html, and all verdicts as it goes; the same command again judges only what is
missing, and several processes share it (`accelerate launch recipes/audit.py …`, on CPUs `torchrun`). With --verdicts nothing is
judged: recorded verdicts are audited by the checks that need no changed cases. A judge of criteria (--rubric checklist) has its
own checks: texts that say that criteria are met, the order of criteria, and one criterion in a prompt beside several.

The exit status is 0 if the judge passes its thresholds, 3 (1 under a launcher) if it does not or a threshold could not be
measured, 1 if an input or argument is wrong.
"""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import automedeval
from automedeval.audit import biases, criteria, report, trials
from automedeval.audit.perturbations import (
    CHECKLIST_ATTACKS,
    Attack,
    Trial,
    harm,
    read_attacks,
    read_harms,
    read_paraphrases,
)
from automedeval.audit.run import decodings_of, judge_tampered, recorded
from automedeval.audit.thresholds import decide, figures_of, passes, read_thresholds
from automedeval.audit.trials import Outcome, Templates, trial_figures
from automedeval.cli import TableArguments, git_commit, join_processes, parse, print_notes, record_run
from automedeval.judges.base import BaseJudge
from automedeval.judges.default_judge import default_rubric
from automedeval.judges.judge import judge_rubric, load_judge
from automedeval.meta_evaluation.agreement.baselines import best_baseline, measure_baselines
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, read_ratings
from automedeval.meta_evaluation.agreement.verdicts import Baseline, JudgeVerdicts
from automedeval.metrics.embedding import TextEncoder
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import RecordError, check_least
from automedeval.records.journal import Processes, write_json, write_whole
from automedeval.records.language import english_only
from automedeval.reports.text import printable
from automedeval.rubrics import Rubric
from automedeval.rubrics.rubric import POINTS
from automedeval.stats.bootstrap import RESAMPLES, difference, estimate, plain, ratio

CHECKS = (*biases.CHECKS, *trials.CHECKS)
OF_SCORES = ("ratings", "raters", "own", "harms", "harm_file")  # options that a judge of criteria has no use for


@dataclass
class AuditArguments(TableArguments):
    """Which judge is audited, on which cases, by which checks."""

    cases: str = field(
        metadata={"help": "cases, or a table of answers: .jsonl, .csv, .json, .xlsx, .parquet, or a Hub dataset id"}
    )
    output: str = field(metadata={"help": "folder for audit.json, audit.md, audit.html and the verdicts"})
    judge: str | None = field(default=None, metadata={"help": "the judge, named as for automedeval judge"})
    verdicts: str | None = field(
        default=None, metadata={"help": "recorded verdicts (file or folder) instead of --judge"}
    )
    ratings: str | None = field(default=None, metadata={"help": "people's ratings of the responses"})
    raters: str | None = field(
        default=None, metadata={"help": "as in automedeval report", "choices": ["crossed", "anonymous"]}
    )
    rubric: str | None = field(
        default=None,
        metadata={
            "help": "a packaged rubric, or the path of your own .yaml; default: the one that the judge was published with, "
            "else automedeval"
        },
    )
    rationale: bool = field(default=True, metadata={"help": "false asks for scores or choices alone"})
    score_decoding: str = field(
        default="both",
        metadata={
            "help": "as in automedeval judge; both: texts are planted under each of them, if the judge can do both",
            "choices": ["constrained", "free", "both"],
        },
    )
    orders: str = field(
        default="latin",
        metadata={"help": "of the clean run, as in automedeval judge", "choices": ["1", "all", "latin"]},
    )
    checks: list[str] | None = field(
        default=None,
        metadata={
            "help": f"some of {', '.join(CHECKS)}; for a checklist of {', '.join(criteria.CHECKS)}; default: all that are "
            "possible"
        },
    )
    criteria_at_once: int = field(
        default=4,
        metadata={"help": "checklist: the number of criteria in one prompt that is audited beside one at a time"},
    )
    points: str = field(
        default="hidden",
        metadata={"help": "checklist: whether the prompt shows the points of the criteria", "choices": list(POINTS)},
    )
    attacks: int | None = field(
        default=None, metadata={"help": "number of attacks per case, drawn by --seed; default: all"}
    )
    harms: int | None = field(
        default=None, metadata={"help": "most harms per case, drawn by --seed; default: all that apply"}
    )
    attack_file: str | None = field(default=None, metadata={"help": "your own attacks.yaml"})
    harm_file: str | None = field(default=None, metadata={"help": "your own harms.yaml"})
    thresholds: str | None = field(default=None, metadata={"help": "your own thresholds.yaml"})
    gate: bool = field(default=True, metadata={"help": "false: exit status 0 even if the judge does not pass"})
    own: str | None = field(default=None, metadata={"help": "the candidate that is the same model as the judge"})
    judge_name: str | None = field(
        default=None, metadata={"help": "name that verdicts record; with --verdicts, whose are audited"}
    )
    limit: int | None = field(default=None, metadata={"help": "audit only so many cases, the first ones"})
    on_overlong: str = field(
        default="skip", metadata={"help": "as in automedeval judge", "choices": ["error", "skip", "clip"]}
    )
    resamples: int = field(default=RESAMPLES, metadata={"help": "number of bootstrap samples of the cases"})
    seed: int = field(default=0, metadata={"help": "seed of orders, of attacks and harms, and of the bootstrap"})

    def __post_init__(self) -> None:
        if bool(self.judge) == bool(self.verdicts):
            raise RecordError("give either --judge or --verdicts")
        given = self.checks and [name.strip() for some in self.checks for name in some.split(",")]
        if unknown := sorted(set(given or ()) - {*CHECKS, *criteria.CHECKS}):
            raise RecordError(f"--checks: no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
        self.checks = given
        check_least(self, 1, "limit", "attacks", "harms", "criteria_at_once")
        check_least(self, 100, "resamples")

    def complete(self, rubric: Rubric | None) -> None:
        """Put in the checks where none are given; `rubric` is None with --verdicts.

        Raises:
            RecordError: an option or a check that the kind of the judge has no use for.
        """
        checklist = rubric is not None and rubric.mode == "checklist"
        able = criteria.CHECKS if checklist else CHECKS if rubric else biases.CHECKS
        if unable := [name for name in self.checks or () if name not in able]:
            why = (
                "changes cases and judges them again, which --verdicts cannot"
                if rubric is None and unable[0] in CHECKS
                else f"the checks of {'a checklist' if checklist else 'this audit'} are {', '.join(able)}"
            )
            raise RecordError(f"--checks {unable[0]}: {why}")
        if checklist and (given := [name for name in OF_SCORES if getattr(self, name) is not None]):
            raise RecordError(f"--{given[0]} is for scores, and {rubric.name} has criteria")
        self.checks = list(self.checks or able)


@dataclass
class Measured:
    """What an audit found: who was audited, the figures of each decoding, how often each template was tried, the encoder."""

    judge: dict[str, Any]
    decodings: dict[str, Any]
    templates: dict[str, Any]
    encoder: TextEncoder | None = None


def main() -> None:
    """Judge what is missing, compute everything, write three files, and say whether the judge passes."""
    args, encoder_args, chat_args = parse(
        (AuditArguments, EncoderArguments, ChatArguments), __doc__, first=("judge", "cases", "output")
    )
    cases, processes = Cases.read(args.cases, args.limit, args.blank), join_processes()
    notes = list(cases.notes)
    rubric = args.judge and judge_rubric(args.judge, args.rubric or default_rubric(args.judge, cases.records))
    args.complete(rubric or None)
    checklist = bool(rubric) and rubric.mode == "checklist"
    thresholds = read_thresholds(args.thresholds, checklist)
    measure = measure_criteria if checklist else measure_scores
    output = Path(args.output)
    found = measure(args, (encoder_args, chat_args), cases, rubric, notes, processes)
    if processes.rank > 0:
        processes.wait()
        return
    record_run(output / "run.json", args, encoder_args, chat_args)
    decodings, encoder = found.decodings, found.encoder
    decided = decide(thresholds, decodings)
    result = {
        "judge": found.judge,
        "cases": {
            "file": cases.source,
            "cases": len(cases),
            "responses": cases.responses,
            "rated": args.ratings is not None,
        },
        "passes": passes(decided, args.checks),
        "headline": dict(figures_of(decided)),
        "thresholds": decided,
        "decodings": decodings,
        "templates": found.templates,
        "notes": list(dict.fromkeys(notes)),
        "settings": {
            "command": shlex.join(["automedeval", "audit", *sys.argv[1:]]),
            "version": automedeval.__version__,
            "commit": git_commit(),
            "resamples": args.resamples,
            "seed": args.seed,
            "encoder": encoder and f"{encoder.name} ({encoder.fingerprint})",
        },
    }
    texts = report.render(result)
    for name, text in texts.items():
        write_whole(output / name, text)
    write_json(output / "audit.json", result)
    print("\n".join(map(printable, ["", *report.summary(result), *(f"note: {note}" for note in result["notes"])])))
    print(f"audit: {output / 'audit.html'}")
    print("Not for clinical use.")
    processes.wait()
    if args.gate and not result["passes"]:
        sys.exit(3)


def measure_scores(
    args: AuditArguments,
    model_args: tuple[EncoderArguments, ChatArguments],
    cases: Cases,
    rubric: Rubric | None,
    notes: list[str],
    processes: Processes,
) -> Measured | None:
    """Audit a judge that gives scores or choices; return None in every process but the first."""
    encoder_args, chat_args = model_args
    templates = Templates(
        read_attacks(args.attack_file), read_harms(args.harm_file), read_paraphrases(), args.attacks, args.harms
    )
    people = read_ratings(args.ratings, cases, args.raters) if args.ratings else None
    notes += people.notes if people else []
    notes += english_only(cases.records, "planted texts, harms, marks of misattribution and baselines that count words")
    if args.own is not None and args.own not in cases.models:
        raise RecordError(f"--own {args.own!r}: no answer is by it; models are {', '.join(cases.models[:8])}")
    Path(args.output).mkdir(parents=True, exist_ok=True)
    if args.verdicts:
        found = {"recorded": (recorded(args.verdicts, cases, args.rubric, args.judge_name, notes), [])}
        notes.append("recorded verdicts: nothing was judged, so planting, sameness and harm are not known")
    else:
        found = judged(args, model_args, cases, rubric, people, templates, notes, processes)
    if processes.rank > 0:
        return None
    encoder, baselines = None, []
    if people is not None:
        encoder = encoder_args.load_if_there(notes, chat_args.device)
        baselines = measure_baselines(cases, encoder, notes)
    tree = {name: figures(args, cases, people, baselines, n, *each) for n, (name, each) in enumerate(found.items())}
    first = next(iter(found.values()))[0]
    decodings = estimate(tree, len(cases), args.resamples, args.seed)
    if people is not None:
        for name, (readings, _) in found.items():
            add_differences(decodings[name]["clean"], readings)
    judge = {"name": first.judge, "rubric": first.rubric_name, "checkpoint": first.checkpoint}
    tried = [each.trial for _, outcomes in found.values() for each in outcomes]
    return Measured(judge, plain(decodings), templates_used(cases, templates, tried), encoder)


def measure_criteria(
    args: AuditArguments,
    model_args: tuple[EncoderArguments, ChatArguments],
    cases: Cases,
    rubric: Rubric,
    notes: list[str],
    processes: Processes,
) -> Measured | None:
    """Audit a judge of criteria; return None in every process but the first."""
    attacks = read_attacks(args.attack_file, CHECKLIST_ATTACKS)
    notes += english_only(cases.records, "planted texts")
    Path(args.output).mkdir(parents=True, exist_ok=True)
    decoding = "auto" if args.score_decoding == "both" else args.score_decoding
    judge = loaded(args, model_args, cases, rubric, processes, points=args.points, score_decoding=decoding)
    judges = criteria.variants_of(judge, args.criteria_at_once)
    clean, changes = {}, {}
    for name, each in judges.items():
        clean[name], changes[name] = criteria.judge_changed(
            each, cases, Path(args.output) / name.replace(" ", "-"), args.checks, attacks, args.attacks, rubric,
            args.seed, notes, processes,
        )  # fmt: skip
    if judge.chat is not None:
        print_notes(judge.chat.notes(), processes)
    if processes.rank > 0:
        return None
    first, *others = judges
    tree: dict[str, Any] = {}
    for name in judges:
        counts = {"verdicts": len(clean[name]), "trials": len(changes[name]), "unit": criteria.UNIT}
        counts |= {"settings": clean[name][0].extra.get("settings"), "errors": criteria.errors(clean[name])}
        own = criteria.figures(changes[name], len(cases))
        if "together" in args.checks and name in others:
            own["together"] = criteria.together(clean[first], clean[name], cases)
        tree[name] = {"clean": criteria.clean_figures(clean[name], cases) | counts, **own}
    if not others and (unmeasured := [check for check in ("order", "together") if check in args.checks]):
        why = criteria.ONE if judge.chat is not None else criteria.APART
        notes.append(f"{' and '.join(unmeasured)}: {why}")
    decodings = plain(estimate(tree, len(cases), args.resamples, args.seed))
    about = {"name": judge.name, "rubric": judge.rubric_name, "checkpoint": getattr(judge.chat, "checkpoint", None)}
    tried = [change.trial for own in changes.values() for change in own]
    return Measured(about, decodings, {"harms": {}, "attacks": attacks_used(attacks, tried)})


def loaded(
    args: AuditArguments,
    model_args: tuple[EncoderArguments, ChatArguments],
    cases: Cases,
    rubric: Rubric,
    processes: Processes,
    **options: Any,
) -> BaseJudge:
    """Load the judge that is audited."""
    encoder_args, chat_args = model_args
    return load_judge(
        args.judge, rubric, chat_args, rationale=args.rationale, seed=args.seed, on_overlong=args.on_overlong,
        name=args.judge_name, cases=cases.records, processes=processes, encoder=encoder_args, **options,
    )  # fmt: skip


def judged(
    args: AuditArguments,
    model_args: tuple[EncoderArguments, ChatArguments],
    cases: Cases,
    rubric: Rubric,
    people: People | None,
    templates: Templates,
    notes: list[str],
    processes: Processes,
) -> dict[str, tuple[JudgeVerdicts, list[Outcome]]]:
    """Load the judge and judge the clean cases and the changed ones; return readings and outcomes by decoding."""
    judge = loaded(args, model_args, cases, rubric, processes)
    judges = decodings_of(judge, args.score_decoding, args.orders, args.checks)
    found = {
        name: judge_tampered(
            judge, cases, Path(args.output) / name, args.checks if number == 0 else ["planting"], templates, rubric,
            args.seed, people, notes, processes,
        )
        for number, (name, judge) in enumerate(judges.items())
    }  # fmt: skip
    if judge.chat is not None:
        print_notes(judge.chat.notes(), processes)
    return found


def figures(
    args: AuditArguments,
    cases: Cases,
    people: People | None,
    baselines: list[Baseline],
    number: int,
    readings: JudgeVerdicts,
    outcomes: list[Outcome],
) -> dict[str, Any]:
    """Return the figures of one decoding; only the first decoding measures biases."""
    checks = [name for name in args.checks if name in biases.CHECKS] if number == 0 else []
    clean = {
        "valid_rate": ratio(readings.verdicts_valid, readings.given, reason="no verdict"),
        "verdicts": len(readings.verdicts),
        "trials": len(outcomes),
        "unit": readings.unit_name,
        "settings": readings.verdicts[0].extra.get("settings"),
        "errors": dict(readings.errors.most_common(8)),
    }
    if people is not None:
        clean["concordance"] = biases.concordance(readings, people)
        clean["baselines"] = biases.beside_baselines(readings, people, baselines)
    clean_figures = biases.audit_clean(readings, checks, people, args.own, args.seed)
    return {"clean": clean, **clean_figures, **trial_figures(outcomes, len(cases))}


def add_differences(clean: dict[str, Any], readings: JudgeVerdicts) -> None:
    """Add to a decoding's estimates how far the judge is above each baseline, and above the best of them."""
    for each in clean["baselines"].values():
        each["difference"] = difference(each.pop("judge"), each["concordance"])
    differences = {name: each["difference"] for name, each in clean["baselines"].items()}
    clean["best_baseline"] = best_baseline(differences, readings.sees_reference)


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
    return {"harms": harms, "attacks": attacks_used(templates.attacks, tried)}


def attacks_used(attacks: Sequence[Attack], tried: Sequence[Trial]) -> dict[str, dict[str, Any]]:
    """Count how many trials were made with each planted text that was tried."""
    counts = Counter(trial.name for trial in tried if trial.check == "planting")
    return {each.name: {"family": each.family, "trials": counts[each.name]} for each in attacks if counts[each.name]}
