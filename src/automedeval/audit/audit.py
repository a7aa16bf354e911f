"""Audit a judge from start to end: judge what is missing, compute every figure, and compare it with the thresholds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.audit import biases, criteria, trials
from automedeval.audit.arguments import AuditArguments
from automedeval.audit.evidence import measure_evidence
from automedeval.audit.fairness import conclude, measure_fairness
from automedeval.audit.perturbations import (
    CHECKLIST_ATTACKS,
    TWINS,
    Harm,
    harm,
    read_attacks,
    read_harms,
    read_paraphrases,
)
from automedeval.audit.run import decodings_of, judge_tampered, recorded
from automedeval.audit.thresholds import FAILED, decide, figures_of, passes, read_thresholds
from automedeval.audit.trials import Outcome, Templates, trial_figures
from automedeval.cli import print_notes
from automedeval.judges.base import BaseJudge
from automedeval.judges.judge import judge_rubric, load_judge
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People, read_ratings
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records import RecordError
from automedeval.records.journal import Processes
from automedeval.records.language import english_only
from automedeval.rubrics import Rubric
from automedeval.stats.bootstrap import estimate, plain, ratio


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
        """Return a tree of statistics with their values and intervals as plain data, by one bootstrap over cases."""
        estimates = estimate(tree, len(self.cases), self.args.resamples, self.args.seed)
        for figures in estimates.values():
            if "contrasts" in figures.get("fairness", {}):
                conclude(figures["fairness"])
        return plain(estimates)


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
        rubric = judge_rubric(args.judge, args.rubric)
    run = _Run(args, args.complete(rubric), encoder, chat, cases, processes, list(cases.notes))
    checklist = rubric is not None and rubric.mode == "checklist"
    thresholds = read_thresholds(args.thresholds, checklist)
    measured = _measure_criteria(run, rubric) if rubric is not None and checklist else _measure_scores(run, rubric)
    if measured is None:
        return None
    decided = decide(thresholds, measured["decodings"])
    failing = measured.pop("failing")
    for each in decided:
        if each["outcome"] == FAILED:
            each["texts"] = failing(each)
    return {
        "cases": {"file": cases.source, "cases": len(cases), "responses": cases.responses},
        "passes": passes(decided, run.checks),
        "headline": dict(figures_of(decided)),
        "thresholds": decided,
        **measured,
        "notes": list(dict.fromkeys(run.notes)),
        "settings": {"resamples": args.resamples, "seed": args.seed},
    }


def _measure_scores(run: _Run, rubric: Rubric | None) -> dict[str, Any] | None:
    """Audit a judge that gives scores or choices; `rubric` is None for recorded verdicts.

    Returns:
        who was audited, "judge"; the figures of each decoding, "decodings"; how often each harm was tried, "harms"; a function
        from a failed threshold to texts that show it, "failing".
    """
    args, cases, notes = run.args, run.cases, run.notes
    harms, twins = read_harms(args.harm_file), read_harms(packaged=TWINS)
    templates = Templates(read_attacks(args.attack_file), harms, twins, read_paraphrases(), args.attacks, args.harms)
    people = read_ratings(args.ratings, cases, args.raters) if args.ratings else None
    notes += people.notes if people else []
    notes += english_only(cases.records, "planted texts, harms and marks of misattribution")
    if args.own is not None and args.own not in cases.models:
        raise RecordError(f"--own {args.own!r}: no answer is by it; models are {', '.join(cases.models[:8])}")
    run.output.mkdir(parents=True, exist_ok=True)
    decodings: dict[str, tuple[JudgeVerdicts, list[Outcome], dict[str, Any]]] = {}
    fairness: dict[str, Any] = {}  # of the first decoding
    if rubric is None:
        decodings["recorded"] = (recorded(args.verdicts or "", cases, args.rubric, args.judge_name, notes), [], {})
        notes.append("recorded verdicts: nothing was judged, so planting, sameness, harm and fairness are not known")
    else:
        judge = run.load(rubric)
        for name, each in decodings_of(judge, args.score_decoding, run.checks).items():
            checks = ["planting"] if decodings else run.checks
            judged, outcomes = judge_tampered(
                each, cases, run.output / name, checks, templates, rubric, args.seed, people, notes, run.processes
            )
            evidence = measure_evidence(each, outcomes, judged, run.output / name, run.processes)
            if "fairness" in checks:
                place = run.output / name / "fairness"
                fairness |= measure_fairness(each, judged, rubric, place, args.seed, notes, run.processes)
            decodings[name] = judged, outcomes, evidence
        if judge.chat is not None:
            print_notes(judge.chat.notes(), run.processes)
    if run.processes.rank > 0:
        return None
    first, *others = decodings
    tree = {first: _figures(run.checks, people, args.own, *decodings[first])}
    if fairness:
        tree[first]["fairness"] = fairness
    tree |= {name: _figures((), people, None, *decodings[name]) for name in others}
    audited, outcomes, _ = decodings[first]
    return {
        "judge": {"name": audited.judge, "rubric": audited.rubric_name, "checkpoint": audited.checkpoint},
        "decodings": run.estimated(tree),
        "harms": _harms_tried(cases, templates.harms, outcomes),
        "failing": lambda each: _failing(each, *decodings[each["decoding"]][:2], people),
    }


def _measure_criteria(run: _Run, rubric: Rubric) -> dict[str, Any] | None:
    """Audit a judge of criteria; return as `_measure_scores` does."""
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
        run.notes.append(f"{' and '.join(unmeasured)}: criteria are asked one at a time")
    checkpoint = getattr(judge.chat, "checkpoint", None)
    return {
        "judge": {"name": judge.name, "rubric": judge.rubric_name, "checkpoint": checkpoint},
        "decodings": run.estimated(tree),
        "harms": {},
        "failing": lambda each: trials.failing(
            [(change.trial, change) for change in changes[each["decoding"]] if change.trial],
            each["figure"],
            criteria.is_wrong,
        ),
    }


def _failing(
    decided: Mapping[str, Any], judge: JudgeVerdicts, outcomes: Sequence[Outcome], people: People | None
) -> list[dict[str, Any]]:
    """Return texts that show a failed threshold: of changed cases, else of the clean ones."""
    tried = [(each.trial, each) for each in outcomes]
    return trials.failing(tried, decided["figure"], trials.is_wrong) or biases.failing(judge, decided, people)


def _figures(
    checks: Sequence[str],
    people: People | None,
    own: str | None,
    judge: JudgeVerdicts,
    outcomes: Sequence[Outcome],
    evidence: dict[str, Any],
) -> dict[str, Any]:
    """Return the figures of one decoding: of the clean verdicts, of the biases among `checks`, and of the trials."""
    clean: dict[str, Any] = {
        "valid_rate": ratio(judge.verdicts_valid, judge.given, reason="no verdict"),
        "verdicts": len(judge.verdicts),
        "trials": len(outcomes),
        "unit": judge.unit_name,
        "settings": judge.verdicts[0].extra.get("settings"),
        "errors": dict(judge.errors.most_common(8)),
    }
    if people is not None:
        clean["concordance"] = biases.concordance(judge, people)
    figures = {"clean": clean, **biases.audit_clean(judge, checks, people, own)}
    figures |= trial_figures(outcomes, len(judge.cases))
    if evidence:
        figures["harm"]["evidence"] = evidence
    return figures


def _harms_tried(cases: Cases, harms: Sequence[Harm], outcomes: Sequence[Outcome]) -> dict[str, dict[str, Any]]:
    """Count how many answers each harm applies to, and how many trials were made with it; empty without such trials."""
    trials = Counter(each.trial.name for each in outcomes if each.trial.check == "harm")
    if not trials:
        return {}
    texts = [response.text for case in cases.records for response in case.responses]
    return {
        each.name: {
            "kind": each.kind,
            "answers": sum(harm(text, each) is not None for text in texts),
            "trials": trials[each.name],
        }
        for each in harms
    }
