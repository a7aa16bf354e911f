"""Baselines in a report: their scores, and whether a judge is better than the best of them."""

from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from automedeval.meta_evaluation.agreement.candidates import SIGNIFICANT
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import People
from automedeval.meta_evaluation.verdicts.table import Row, VerdictTable, counted
from automedeval.metrics.embedding import QUESTION, TextEncoder, nearest_pieces
from automedeval.metrics.lexical import BASELINES
from automedeval.records import JsonObject
from automedeval.stats.agreement import concordance
from automedeval.stats.bootstrap import adjust, difference, holm, how_many, only

ABOVE_OTHERS = "better than every baseline but the embedding, which was not compared"


def measure_baselines(
    cases: Cases, encoder: TextEncoder | None, notes: list[str]
) -> list[VerdictTable]:
    """Return the baselines that have a score for some response; without an encoder none that compares embeddings."""
    scores = {name: score(cases.records) for name, score in BASELINES.items()}
    if encoder is not None:
        with tqdm(desc="embeddings", unit="piece") as bar:
            scores |= nearest_pieces(cases.records, encoder, on_batch=bar.update)
    baselines = []
    for name, values in scores.items():
        missing = how_many(np.isnan(values))
        if missing == len(values):
            notes.append(f"no baseline {name}: no case has one")
            continue
        if missing:
            notes.append(
                f"{name}: {missing} of {len(values)} responses have none and are left out of its "
                "figures"
            )
        baselines.append(counted(cases, name, values))
    return baselines


def paired(people: People, first: Row, second: Row) -> JsonObject:
    """Return the concordances of two lines on the pairs that both were asked about, as statistics, for `differences`."""
    relation = only(first.people_relations(people), second.judge.asked_pairs)
    sides = [concordance(people.panel, relation, row.best_relations) for row in (first, second)]
    return {
        "first": first.name,
        "second": second.name,
        "measure": "concordance",
        "concordances": sides,
    }


def differences(comparisons: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the estimated comparisons of `paired` with the difference and its p-values, of those that have one."""
    records = []
    for comparison in comparisons:
        gap = difference(*comparison["concordances"])
        if gap.value is not None:
            records.append(comparison | {"difference": gap})
    adjust(records, "difference")
    return records


def best_baseline(comparisons: Sequence[JsonObject]) -> JsonObject | None:
    """Say whether a judge is better than the best of several baselines, the one with the smallest difference.

    The judge is "better" if it is above every baseline, each with a p-value below `SIGNIFICANT`: the claim about all of them is
    tested by the largest p-value, with no adjustment for the choice of the best (intersection-union test, Berger 1982). It is
    "worse" if it is below the best baseline with a p-value below it that is adjusted for the number of baselines (Holm 1979);
    else "not better". Without the embedding, often the strongest, it is at most `ABOVE_OTHERS`.

    Args:
        comparisons: those of the judge, see `differences`.

    Returns:
        The "name", "concordance", "difference", "p" and "p_adjusted" of the best baseline, and "outcome". None if no
        difference has a p-value.
    """
    tested = [record for record in comparisons if record["p"] is not None]
    if not tested:
        return None
    p_values = [record["p"] for record in tested]
    gaps = [record["difference"].value for record in tested]
    place = int(np.argmin(gaps))
    best, gap, p_adjusted = tested[place], gaps[place], holm(p_values)[place]
    outcome = "not better"
    if gap > 0 and max(p_values) < SIGNIFICANT:
        names = [record["second"] for record in comparisons]
        outcome = "better" if QUESTION in names else ABOVE_OTHERS
    elif gap < 0 and p_adjusted < SIGNIFICANT:
        outcome = "worse"
    return {
        "name": best["second"],
        "outcome": outcome,
        "concordance": best["concordances"][1],
        "difference": best["difference"],
        "p": best["p"],
        "p_adjusted": p_adjusted,
    }
