"""Audit a judge: measure how order, length, planted texts, repetition, danger, and who asks, change its scores.

    automedeval audit --judge models/SmolLM2-135M-Instruct --cases cases.jsonl --output reports/audit
    automedeval audit --judge openai:MODEL --cases cases.jsonl --edits 6 --output reports/audit
    automedeval audit --judge MODEL --rubric checklist --cases cases.jsonl --output reports/audit

Each perturbation changes cases in a way whose effect on a good judge is known; it is data (--perturbations). Both sides are
judged, and one table says how often and how far the scores moved, whether that keeps to the limit, and which texts failed.

Writes OUTPUT/audit.json, audit.md and audit.html, and all verdicts as it goes; the same command again judges only what is
missing, and several processes share it (`accelerate launch recipes/audit.py …`, on CPUs `torchrun`).

The exit status is 0 if the judge keeps to every limit, 3 (1 under a launcher) if it does not or nothing with a limit could be
measured, 1 if an input or argument is wrong.
"""

import sys
from pathlib import Path

from automedeval.audit.audit import AuditArguments, audit_judge
from automedeval.audit.report import render, summary
from automedeval.meta_evaluation.page import write_report
from automedeval.models.arguments import ChatArguments, EncoderArguments
from automedeval.records.command_line import parse
from automedeval.records.processes import join_processes
from automedeval.records.run_record import record_run


def main() -> None:
    """Audit the judge, write three files, and say whether it passes."""
    kinds = (AuditArguments, EncoderArguments, ChatArguments)
    args, encoder_args, chat_args = parse(kinds, __doc__, first=("judge", "cases", "output"))
    processes = join_processes()
    result = audit_judge(args, encoder_args, chat_args, processes)
    if result is None:
        processes.wait()
        return
    output = Path(args.output)
    record_run(output / "run.json", args, encoder_args, chat_args)
    notes = [f"note: {note}" for note in result["notes"]]
    lines = ["", *summary(result), *notes, f"audit: {output / 'audit.html'}"]
    write_report(output, render(result), "audit.json", result, lines)
    processes.wait()
    if args.gate and not result["passes"]:
        sys.exit(3)
