"""Audit a judge from start to end: judge what is missing, compute every figure, and compare it with the thresholds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.audit import biases, criteria
from automedeval.audit.arguments import AuditArguments
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
from automedeval.cli import print_notes
from automedeval.judges.base import BaseJudge
from automedeval.judges.default_judge import default_rubric
from automedeval.judges.judge import judge_rubric, load_judge
from automedeval.meta_evaluation.agreement.baselines import best_baseline, measure_baselines
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, read_ratings
from automedeval.meta_evaluation.agreement.verdicts import Baseline, JudgeVerdicts
from automedeval.metrics.embedding import TextEncoder
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import RecordError
from automedeval.records.journal import Processes
from automedeval.records.language import english_only
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import difference, estimate, plain, ratio


@dataclass
class _Run:
    """What an audit is about, and the judge's models; `notes` are the lines of the report."""

    args: AuditArguments
    checks: Sequence[str]
    encoder: EncoderArguments
    chat: ChatArguments
    cases: Cases
    processes: Processes
    notes: list[str] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return Path(self.args.output)

    def load(self, rubric: Rubric, **options: Any) -> BaseJudge:
        args = self.args
        return load_judge(
            args.judge or "", rubric, self.chat, rationale=args.rationale, seed=args.seed, on_overlong=args.on_overlong,
            name=args.judge_name, cases=self.cases.records, processes=self.processes, encoder=self.encoder, **options,
        )  # fmt: skip

    def estimated(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tree of statistics with their values and intervals, by one bootstrap over cases."""
        return estimate(tree, len(self.cases), self.args.resamples, self.args.seed)


@dataclass
class _Measured:
    """What an audit found: who was audited, the figures of each decoding, how often each template was tried, the encoder."""

    judge: dict[str, Any]
    decodings: dict[str, Any]
    templates: dict[str, Any]
    encoder: TextEncoder | None = None


def audit_judge(
    args: AuditArguments, encoder: EncoderArguments, chat: ChatArguments, processes: Processes
) -> dict[str, Any] | None:
    """Audit a judge, or recorded verdicts; write the verdicts on the unchanged and the changed cases as they come.

    Returns:
        what audit.json holds, less the command and versions; None in every process but the first.

    Raises:
        RecordError: an input or an argument is wrong, or the judge cannot go on.
    """
    cases = Cases.read(args.cases, args.limit, args.blank)
    rubric = None
    if args.judge:
        rubric = judge_rubric(args.judge, args.rubric or default_rubric(args.judge, cases.records))
    run = _Run(args, args.complete(rubric), encoder, chat, cases, processes, list(cases.notes))
    checklist = rubric is not None and rubric.mode == "checklist"
    thresholds = read_thresholds(args.thresholds, checklist)
    found = _measure_criteria(run, rubric) if rubric is not None and checklist else _measure_scores(run, rubric)
    if found is None:
        return None
    decided = decide(thresholds, found.decodings)
    return {
        "judge": found.judge,
        "cases": {
            "file": cases.source,
            "cases": len(cases),
            "responses": cases.responses,
            "rated": args.ratings is not None,
        },
        "passes": passes(decided, run.checks),
        "headline": dict(figures_of(decided)),
        "thresholds": decided,
        "decodings": found.decodings,
        "templates": found.templates,
        "notes": list(dict.fromkeys(run.notes)),
        "settings": {
            "resamples": args.resamples,
            "seed": args.seed,
            "encoder": found.encoder and f"{found.encoder.name} ({found.encoder.fingerprint})",
        },
    }


def _measure_scores(run: _Run, rubric: Rubric | None) -> _Measured | None:
    """Audit a judge that gives scores or choices; `rubric` is None for recorded verdicts."""
    args, cases, notes = run.args, run.cases, run.notes
    templates = Templates(
        read_attacks(args.attack_file), read_harms(args.harm_file), read_paraphrases(), args.attacks, args.harms
    )
    people = read_ratings(args.ratings, cases, args.raters) if args.ratings else None
    notes += people.notes if people else []
    notes += english_only(cases.records, "planted texts, harms, marks of misattribution and baselines that count words")
    if args.own is not None and args.own not in cases.models:
        raise RecordError(f"--own {args.own!r}: no answer is by it; models are {', '.join(cases.models[:8])}")
    run.output.mkdir(parents=True, exist_ok=True)
    found: dict[str, tuple[JudgeVerdicts, list[Outcome]]] = {}
    if rubric is None:
        found["recorded"] = (recorded(args.verdicts or "", cases, args.rubric, args.judge_name, notes), [])
        notes.append("recorded verdicts: nothing was judged, so planting, sameness and harm are not known")
    else:
        judge = run.load(rubric)
        for name, each in decodings_of(judge, args.score_decoding, args.orders, run.checks).items():
            checks = ["planting"] if found else run.checks
            found[name] = judge_tampered(
                each, cases, run.output / name, checks, templates, rubric, args.seed, people, notes, run.processes
            )
        if judge.chat is not None:
            print_notes(judge.chat.notes(), run.processes)
    if run.processes.rank > 0:
        return None
    encoder, baselines = None, []
    if people is not None:
        encoder = run.encoder.load_if_there(notes, run.chat.device)
        baselines = measure_baselines(cases, encoder, notes)
    first = next(iter(found))
    tree = {
        name: _figures(run, people, baselines, biases.CHECKS if name == first else (), *each)
        for name, each in found.items()
    }
    decodings = run.estimated(tree)
    if people is not None:
        for name, (readings, _) in found.items():
            _add_differences(decodings[name]["clean"], readings)
    audited = found[first][0]
    about = {"name": audited.judge, "rubric": audited.rubric_name, "checkpoint": audited.checkpoint}
    tried = [each.trial for _, outcomes in found.values() for each in outcomes]
    return _Measured(about, plain(decodings), _templates_used(cases, templates, tried), encoder)


def _measure_criteria(run: _Run, rubric: Rubric) -> _Measured | None:
    args, cases = run.args, run.cases
    attacks = read_attacks(args.attack_file, CHECKLIST_ATTACKS)
    run.notes += english_only(cases.records, "planted texts")
    run.output.mkdir(parents=True, exist_ok=True)
    decoding = "auto" if args.score_decoding == "both" else args.score_decoding
    judge = run.load(rubric, score_decoding=decoding)
    clean, changes = {}, {}
    for name, each in criteria.variants_of(judge, args.criteria_at_once).items():
        clean[name], changes[name] = criteria.judge_changed(
            each, cases, run.output / name.replace(" ", "-"), run.checks, attacks, args.attacks, rubric, args.seed,
            run.notes, run.processes,
        )  # fmt: skip
    if judge.chat is not None:
        print_notes(judge.chat.notes(), run.processes)
    if run.processes.rank > 0:
        return None
    first, *others = clean
    tree: dict[str, Any] = {}
    for name, verdicts in clean.items():
        counts = {"verdicts": len(verdicts), "trials": len(changes[name]), "unit": criteria.UNIT}
        counts |= {"settings": verdicts[0].extra.get("settings"), "errors": criteria.errors(verdicts)}
        tree[name] = {"clean": criteria.clean_figures(verdicts, cases) | counts}
        tree[name] |= criteria.figures(changes[name], len(cases))
        if "together" in run.checks and name in others:
            tree[name]["together"] = criteria.together(clean[first], verdicts, cases)
    if not others and (unmeasured := [check for check in ("order", "together") if check in run.checks]):
        why = criteria.ONE if judge.chat is not None else criteria.APART
        run.notes.append(f"{' and '.join(unmeasured)}: {why}")
    about = {"name": judge.name, "rubric": judge.rubric_name, "checkpoint": getattr(judge.chat, "checkpoint", None)}
    tried = [change.trial for some in changes.values() for change in some if change.trial is not None]
    return _Measured(about, plain(run.estimated(tree)), {"harms": {}, "attacks": _attacks_used(attacks, tried)})


def _figures(
    run: _Run,
    people: People | None,
    baselines: Sequence[Baseline],
    measured: Sequence[str],
    readings: JudgeVerdicts,
    outcomes: list[Outcome],
) -> dict[str, Any]:
    """Return the figures of one decoding; `measured` are the biases that it is measured for, among those that are asked for."""
    checks = [name for name in run.checks if name in measured]
    clean: dict[str, Any] = {
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
    clean_figures = biases.audit_clean(readings, checks, people, run.args.own, run.args.seed)
    return {"clean": clean, **clean_figures, **trial_figures(outcomes, len(run.cases))}


def _add_differences(clean: dict[str, Any], readings: JudgeVerdicts) -> None:
    """Add to a decoding's estimates how far the judge is above each baseline, and above the best of them."""
    for each in clean["baselines"].values():
        each["difference"] = difference(each.pop("judge"), each["concordance"])
    differences = {name: each["difference"] for name, each in clean["baselines"].items()}
    clean["best_baseline"] = best_baseline(differences, readings.sees_reference)


def _templates_used(cases: Cases, templates: Templates, tried: list[Trial]) -> dict[str, Any]:
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
    return {"harms": harms, "attacks": _attacks_used(templates.attacks, tried)}


def _attacks_used(attacks: Sequence[Attack], tried: Sequence[Trial]) -> dict[str, dict[str, Any]]:
    """Count how many trials were made with each planted text that was tried."""
    counts = Counter(trial.name for trial in tried if trial.check == "planting")
    return {each.name: {"family": each.family, "trials": counts[each.name]} for each in attacks if counts[each.name]}
