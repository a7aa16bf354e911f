"""Make preference pairs for TRL's DPOTrainer and RewardTrainer of verdicts that a certificate covers.

    python recipes/preferences.py --verdicts verdicts/kept/kept --cases verdicts/kept/kept/cases.jsonl --output preferences/mine
    trl dpo --dataset_name preferences/mine --model_name_or_path MODEL --output_dir checkpoints/dpo

--verdicts is the folder `kept` of `automedeval abstain`, whole and unchanged, with its certificate beside it, or verdicts of a
judge that says where it abstains (the packaged small judge). Of each case the response with the highest score is chosen, and
the one with the lowest rejected.

Writes OUTPUT/train.jsonl with `prompt`, `chosen`, `rejected`, `margin`, and where the pair comes from; and OUTPUT/run/run.json.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from automedeval.cli import TableArguments, parse, record_run, run
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import known_of_judge
from automedeval.meta_evaluation.agreement.verdicts import expected_values, own_values, read_verdicts, rows_of
from automedeval.meta_evaluation.calibration.abstention import certified_digest
from automedeval.records import Case, RecordError, Verdict, read_text, verdicts_file
from automedeval.records.journal import arithmetic, write_lines
from automedeval.reports.facts import lines_of
from automedeval.reports.text import printable
from automedeval.rubrics import Rubric


@dataclass
class PreferenceArguments(TableArguments):
    """The verdicts, and which pairs are made of them."""

    verdicts: str = field(metadata={"help": "the folder kept of automedeval abstain, or a judge's verdicts"})
    cases: str = field(metadata={"help": "the cases of these verdicts"})
    output: str = field(metadata={"help": "folder for train.jsonl"})
    orders: str = field(
        default="both",
        metadata={
            "help": "both: a pair counts if the judge saw each of the two first and preferred the same one; any: one order is "
            "enough, as for a judge that sees each response by itself",
            "choices": ["both", "any"],
        },
    )
    judge: str | None = field(default=None, metadata={"help": "the judge's name, where the file has several"})
    rubric: str | None = field(
        default=None, metadata={"help": "your own rubric's .yaml file, if verdicts were given by one"}
    )
    uncertified: bool = field(default=False, metadata={"help": "take verdicts that no certificate covers, too"})


def main() -> None:
    """Read the verdicts, leave out what is not sure, and write the pairs."""
    (args,) = parse((PreferenceArguments,), __doc__)
    cases = Cases.read(args.cases, blank=args.blank)
    judges, _ = read_verdicts([args.verdicts], cases, args.rubric, raw=True)
    names = [judge.name for judge in judges]
    judges = [judge for judge in judges if args.judge in (None, judge.name)]
    if len(judges) != 1:
        raise RecordError(f"{args.verdicts}: verdicts of {', '.join(names)}: choose one with --judge")
    by_case: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in judges[0].verdicts:
        by_case[verdict.case_id].append(verdict)
    covered, singly = certificate(args.verdicts, cases, judges[0].verdicts) if not args.uncertified else (None, False)
    rows, reasons = [], Counter()
    for case in cases.records:
        if case.id in by_case:
            row = preference(case, by_case[case.id], args, judges[0].rubric, singly)
            if isinstance(row, str):
                reasons[row] += 1
            else:
                rows.append(row)
    print(arithmetic("cases with verdicts", len(by_case), reasons, "with a pair"))
    if reasons["judged in one order"] and not rows:
        print("a judge that sees each response by itself needs --orders any")
    if not rows:
        raise RecordError(f"{args.verdicts}: no pair is left")
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    write_lines(output / "train.jsonl", rows)
    record_run(output / "run" / "run.json", args)  # load_dataset would take a JSON file beside the rows for rows
    print("\n".join(map(printable, lines_of(known_of_judge(cases, rows_of(judges)[0])))))
    print(f"{output / 'train.jsonl'}: {len(rows):,} pairs by {judges[0].name}; {covered or 'no certificate'}")


def certificate(place: str, cases: Cases, verdicts: Sequence[Verdict]) -> tuple[str, bool]:
    """Return what certifies verdicts, in words, and whether it certifies each of them singly, and not those without `abstains`.

    RecordError if nothing does.
    """
    file = verdicts_file(place).parent.parent / "abstention.json"
    if file.is_file():
        kept, ids = json.loads(read_text(file)), {verdict.case_id for verdict in verdicts}
        present = certified_digest([cases.records[cases.index[each]] for each in ids], verdicts)
        if kept.get("threshold") is not None and kept.get("kept_digest") == present:
            return f"certified: at most {kept['risk']:g} of the kept pairs wrong, at delta {kept['delta']:g}", False
    if any(verdict.extra.get("abstains") is not None for verdict in verdicts if verdict.valid):
        return "certified by the judge itself; where it abstains there is no pair", True
    raise RecordError(
        f"{place}: no certificate covers these verdicts: give the whole folder kept of automedeval abstain, or --uncertified"
    )


def preference(
    case: Case, verdicts: Sequence[Verdict], args: PreferenceArguments, rubric: Rubric | None, singly: bool
) -> dict[str, Any] | str:
    """Return the row of a case, or why there is none; `singly` as `certificate` returns it."""
    valid = [verdict for verdict in verdicts if verdict.valid]
    if not valid:
        return "no valid verdict"
    if not args.uncertified and any(verdict.extra.get("abstains") for verdict in valid):
        return "the judge abstains"
    if singly and any(verdict.extra.get("abstains") is None for verdict in valid):
        return "not certified"
    values = [expected_values(verdict) or own_values(verdict, rubric, case.models) for verdict in valid]
    sums: dict[int, list[float]] = defaultdict(list)
    for scores in values:
        for index, value in scores.items():
            if not case.responses[index].is_empty:  # nothing is learnt of a text that is not there
                sums[index].append(value)
    means = {index: fmean(scores) for index, scores in sums.items()}
    if len(means) < 2:
        return "no two answers with a score"
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    margin = means[best] - means[worst]
    if not margin > 0:
        return "no difference"
    both = [(verdict, scores) for verdict, scores in zip(valid, values) if {best, worst} <= scores.keys()]
    if not both:
        return "never judged together"
    if any(scores[best] <= scores[worst] for _, scores in both):
        return "another order says otherwise"
    first = {verdict.order.index(best) < verdict.order.index(worst) for verdict, _ in both}
    if args.orders == "both" and first != {True, False}:
        return "judged in one order"
    if case.responses[best].text.strip() == case.responses[worst].text.strip():
        return "equal texts"
    question = case.question
    return {
        "prompt": [{"role": "user", "content": question}] if isinstance(question, str) else question,
        "chosen": [{"role": "assistant", "content": case.responses[best].text}],
        "rejected": [{"role": "assistant", "content": case.responses[worst].text}],
        "margin": round(margin, 6),
        "chosen_model": case.models[best],
        "rejected_model": case.models[worst],
        "case_id": case.id,
        "case_digest": case.digest,
        "judge": valid[0].judge,
        "rubric": valid[0].rubric,
        "settings": valid[0].settings,
        "verdicts": len(both),
    }


if __name__ == "__main__":
    run(main)
