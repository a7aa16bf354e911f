"""A gate for builds: is a new model worse than an old one, by one judge's verdicts? The statistics are in `stats.gate`."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from automedeval.meta_evaluation.agreement.judge_facts import audits_of, known_of_judge
from automedeval.meta_evaluation.facts import lines_of
from automedeval.meta_evaluation.page import say
from automedeval.meta_evaluation.report.changes import in_common
from automedeval.meta_evaluation.verdicts.cases import Cases, units_of
from automedeval.meta_evaluation.verdicts.table import Judges, rows_of
from automedeval.records import JsonObject, RecordError
from automedeval.stats.bootstrap import is_known
from automedeval.stats.gate import LOWER, NOT_LOWER, POWER, UNDECIDED, gate

MOST_INVALID = 0.1  # share of cases without a score of both with which the gate still decides
RESULTS = {NOT_LOWER: "not lower", LOWER: "lower", UNDECIDED: "undecided"}


def compare_two(
    cases: Cases,
    judges: Judges,
    notes: Sequence[str],
    names: Sequence[str],
    by: float,
    audits: Sequence[str],
) -> tuple[JsonObject, list[str]]:
    """Compare two candidates on the cases in which both have a score.

    A case without a score of both is left out and counted. The gate does not pass if there are
    too many of them, and stays undecided if the judge was not the same for both.

    Args:
        notes: those on the files.
        names: the new candidate and the old one.
        by: the points by which the mean score of the new one may be lower.
        audits: those of the judge, see `audits_of`.

    Returns:
        The content of gate.json; and what the terminal shows: the result, what is known of the judge, and the notes.

    Raises:
        RecordError: there are several judges, the judge gives no scores on a known scale, or a candidate has no response.
    """
    if len(judges) > 1:
        several = ", ".join(judge.name for judge in judges)
        raise RecordError(f"--fail_if_worse takes the verdicts of one judge, not of {several}")
    (row, *_) = rows_of(judges)
    if row.criteria or row.judge.scale is None:
        raise RecordError(
            f"{row.judge.name} gives no scores on a known scale, and --fail_if_worse needs them"
        )
    new, old = names
    sides = in_common(cases, new, old, "--fail_if_worse")
    differences = np.subtract(*row.ranking_values[sides])
    result = gate(differences, by, float(np.ptp(row.judge.scale)), cases.cluster_of[sides[0]])
    both = len(differences)
    counted = cases.panel.case[sides[0][is_known(differences)]]
    units = units_of([cases.records[number] for number in counted])
    notes = [*notes, f"bounds are over {units}"]
    of_either = np.isin(cases.model_of, [cases.models.index(name) for name in names])
    asked = len(np.unique(cases.panel.case[of_either]))
    lacking = asked - result.cases
    why = ""
    if row.judge.changed:
        why = "the judge was not the same for both"
    elif result.status != LOWER and lacking > MOST_INVALID * asked:
        why = f"more than {MOST_INVALID:.0%} of the cases have no score of both"
    elif result.status == UNDECIDED and result.mean is not None:
        many = "no number of" if result.needed is None else f"about {result.needed:,}"
        kind = "cases" if units == "cases" else "clusters"
        why = f"{many} {kind} would do, if the difference is as estimated (power {POWER:.0%})"
    if why:
        result = replace(result, status=UNDECIDED)
        notes.append(f"undecided: {why}")
    if both < asked:
        notes.append(f"{asked - both} of {asked} cases do not have a response of both: left out")
    own = "checklist" if row.judge.on_criteria else "whole"
    record = {
        "new": new,
        "old": old,
        "judge": row.judge.name,
        "settings": row.judge.settings,
        "by": by,
        "scores": own if row.expected is None else "expected",
        "result": RESULTS[result.status],
        **asdict(result),
        "invalid": lacking,
        "notes": notes,
    }
    known = lines_of(known_of_judge(row, audit=audits_of(audits, [row]).get(row.name)))
    have = (row.judge.with_expected, len(row.judge.valid))
    return record, [*say("gate", have=have, **record), *known, *(f"note: {note}" for note in notes)]
