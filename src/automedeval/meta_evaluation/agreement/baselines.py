"""Baselines in a report: their scores, and whether a judge is better than the best of them."""

from collections.abc import Mapping, Sequence

import numpy as np
from tqdm import tqdm

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.table import Row, VerdictTable, counted
from automedeval.metrics.embedding import TextEncoder, nearest_pieces
from automedeval.metrics.lexical import BASELINES
from automedeval.records import JsonObject
from automedeval.stats.agreement import concordance
from automedeval.stats.bootstrap import adjust, difference, holm

LEVEL = 0.05  # p-value below which a judge is called better or worse


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
        missing = int((values != values).sum())
        if missing == len(values):
            notes.append(f"no baseline {name}: no case has one")
            continue
        if missing:
            notes.append(
                f"{name}: {missing} of {len(values)} responses have none and are left out of its figures"
            )
        baselines.append(counted(cases, name, values))
    return baselines


def paired(
    cases: Cases, relations: Mapping[str, np.ndarray], first: Row, second: Row
) -> JsonObject:
    """Return the concordances of two lines on the pairs that both were asked about, as statistics, for `differences`.

    `relations` are people's, by the name of a line, of the pairs that it was asked about [pairs], NaN for the others.
    """
    both = np.where(np.isnan(relations[second.name]), np.nan, relations[first.name])
    sides = [concordance(cases.panel, both, row.best_relations) for row in (first, second)]
    return {
        "first": first.name,
        "second": second.name,
        "measure": "concordance",
        "concordances": sides,
    }


def differences(comparisons: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the estimated comparisons of `paired` with the difference and its p-values, of those that have one."""
    records = [each | {"difference": difference(*each["concordances"])} for each in comparisons]
    records = [each for each in records if each["difference"].value is not None]
    adjust(records, "difference")
    return records


def best_baseline(comparisons: Sequence[JsonObject]) -> JsonObject | None:
    """Say whether a judge is better than the best of several baselines, the one with the smallest difference.

    The judge is "better" if it is above every baseline, each with a p-value below `LEVEL`: the claim about all of them is
    tested by the largest p-value, with no adjustment for the choice of the best (intersection-union test, Berger 1982). It is
    "worse" if it is below the best baseline with a p-value below `LEVEL` that is adjusted for the number of baselines (Holm
    1979); else "not better".

    Args:
        comparisons: those of the judge, see `differences`.

    Returns:
        The "name", "concordance", "difference", "p" and "p_adjusted" of the best baseline, and "outcome". None if no
        difference has a p-value.
    """
    tested = [each for each in comparisons if each["p"] is not None]
    if not tested:
        return None
    place = min(range(len(tested)), key=lambda at: tested[at]["difference"].value)
    best, p_adjusted = tested[place], holm([each["p"] for each in tested])[place]
    better = best["difference"].value > 0 and max(each["p"] for each in tested) < LEVEL
    worse = best["difference"].value < 0 and p_adjusted < LEVEL
    about = {
        "name": best["second"],
        "outcome": "better" if better else "worse" if worse else "not better",
    }
    figures = {"difference": best["difference"], "p": best["p"], "p_adjusted": p_adjusted}
    return about | figures | {"concordance": best["concordances"][1]}
