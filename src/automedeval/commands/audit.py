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

import sys
from pathlib import Path

from automedeval.audit import report
from automedeval.audit.arguments import AuditArguments
from automedeval.audit.audit import audit_judge
from automedeval.cli import describe_result, join_processes, parse, record_run
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records.journal import write_json, write_whole
from automedeval.reports.text import printable


def main() -> None:
    """Audit the judge, write three files, and say whether it passes."""
    kinds = (AuditArguments, EncoderArguments, ChatArguments)
    args, encoder_args, chat_args = parse(kinds, __doc__, first=("judge", "cases", "output"))
    processes = join_processes()
    result = audit_judge(args, encoder_args, chat_args, processes)
    if result is None:
        processes.wait()
        return
    result["settings"] = describe_result("audit", **result["settings"])
    output = Path(args.output)
    record_run(output / "run.json", args, encoder_args, chat_args)
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
