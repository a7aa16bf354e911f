"""What the report says of repeated training runs: their mean, and how far they lie apart (the paper averages three runs).

Runs are told by their judges' names: `stage3`, `stage3-run2`, `stage3-run3` are three, as recipes/reproduce.sh --runs 3 has it.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import stdev
from typing import Any

from automedeval import resampling

MEASURES = ("concordance", "pairwise_accuracy", "listwise_accuracy")
ENDS = ("", "_expected")  # from own scores or choices; from expected scores


def repeated(names: Sequence[str]) -> dict[str, list[str]]:
    """Return name → the names of its runs, the first run first; a name without a second run has no entry."""
    runs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        told = re.fullmatch(r"(.+)-run(\d+)", name)
        if told and told[1] in names:
            runs[told[1]].append((int(told[2]), name))
    return {name: [name, *(run for _, run in sorted(later))] for name, later in runs.items()}


def average_runs(judges: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a line per judge that was trained several times, in the order of the judges.

    Args:
        judges: what `meta_evaluate` found of every judge, figures as `Estimate` from one bootstrap.

    Returns:
        "judge"; "names" of its runs; "scores", own or expected, that the figures are from; per measure "mean" with its interval
        over cases, and "spread", the standard deviation between runs, None where a run has no figure.
    """
    table = []
    for name, runs in repeated(list(judges)).items():
        records = [judges[run] for run in runs]
        complete = [end for end in ENDS if all(each["concordance" + end].value is not None for each in records)]
        end = complete[0] if complete else ""
        line: dict[str, Any] = {"judge": name, "names": runs, "scores": "expected" if end else "own"}
        for measure in MEASURES:
            figures = [each[measure + end] for each in records]
            known = all(figure.value is not None for figure in figures)
            spread = stdev(figure.value for figure in figures) if known else None
            line[measure] = {"mean": resampling.average(figures), "spread": spread}
        table.append(line)
    return table
