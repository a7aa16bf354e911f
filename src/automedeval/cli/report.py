"""Compare candidates by judges' verdicts, and compare the verdicts with people's ratings.

    automedeval report --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts small=v1.jsonl large=v2.jsonl --cases cases.jsonl --output report
    automedeval report --verdicts r0=v0.jsonl r1=v1.jsonl r2=v2.jsonl --rounds r0,r1,r2 \\
      --cases cases.jsonl --ratings ratings.jsonl --output report
    automedeval report --verdicts verdicts --cases cases.jsonl --ratings labels.jsonl --output report
    automedeval report --verdicts verdicts --cases cases.jsonl --ratings ratings.jsonl --main_judge mine \\
      --teacher_verdicts gpt-4 --output report

Writes OUTPUT/agreement.json, OUTPUT/report.md and OUTPUT/report.html, a page that loads nothing from the network. Without
--ratings the candidates are compared by the judges alone. --rounds adds a forecast for further rounds, and several judges
are tested against the main one, as in the paper's Table 2. Judges of criteria are compared with people's labels.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from automedeval.meta_evaluation.page import write_report
from automedeval.meta_evaluation.report.arguments import ReportArguments
from automedeval.meta_evaluation.report.report import make_report
from automedeval.models.arguments import EncoderArguments
from automedeval.records import RecordError
from automedeval.records.command_line import parse
from automedeval.records.extras import install


def main() -> Path:
    """Make the report, write its files, print the difference, its trust and what to do next; return the page's file."""
    kinds = (ReportArguments, EncoderArguments)
    args, encoder_args = parse(kinds, __doc__, first=("verdicts", "cases", "baseline", "ratings"))
    report = make_report(args, encoder_args.load_if_there, sys.argv[1:], rationale_metric)
    page = Path(args.output) / report.page
    write_report(
        args.output, report.texts, report.data, report.result, [*report.lines, f"report: {page}"]
    )
    return page


def rationale_metric() -> Callable[..., dict[str, Any]]:
    """Return the metric of rationales, which loads torch; raise RecordError if what it needs is not installed."""
    try:
        from automedeval.metrics.rationale_score.rationale_score import rationale_score
    except ImportError as error:
        raise RecordError(f"--teacher_verdicts: {error}; {install('metric')}") from None
    return rationale_score
