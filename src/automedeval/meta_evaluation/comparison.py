"""Which candidate is better, from many verdicts and few ratings: every estimate three ways, for every judge and all together.

`compare` lays out what `comparison.json` holds. The statistics are `prediction_powered`'s, `ensemble`'s and `sampling`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.meta_evaluation.candidates import MOST_MODELS
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People
from automedeval.meta_evaluation.verdicts import Row
from automedeval.metrics.lexical import BASELINES
from automedeval.records import RecordError
from automedeval.stats import aggregation, bootstrap
from automedeval.stats.agreement import SAME, accuracies
from automedeval.stats.prediction_powered import LEAST_RATED, Interval, Powered, prediction_powered
from automedeval.stats.sampling import power_of, ratings_needed

STACKED, VOTED = "the judges together", "the judges together, by Dawid–Skene"
MOST_PAIRED = 6  # candidates whose pairs are all compared
ALL = "all responses"
POINTS = 40  # of a power curve
NO_SCORES = "this judge compares pairs and gives no scores"
OFF_SCALE = "this judge's figures are not on people's scale"


@dataclass(frozen=True)
class Voice:
    """One judge, or all together, as numbers.

    Args:
        scores: float [responses] or None; relation: float [pairs], from -1 to 1, or None. On people's scale or not.
    """

    name: str
    scores: np.ndarray | None
    relation: np.ndarray | None
    on_scale: bool

    def gap(self, cases: Cases, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """Return the first response's score less the second's, or how far it is the better one; float [pairs of indices]."""
        return self.better(cases, one, two) if self.scores is None else self.scores[one] - self.scores[two]

    def better(self, cases: Cases, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """Return from -1 to 1 how far the first response is the better one."""
        if self.relation is None:
            return _sign(self.scores[one] - self.scores[two])
        turn = np.where(one < two, 1.0, -1.0)
        places = [cases.pair_index.get((min(i, j), max(i, j)), -1) for i, j in zip(one.tolist(), two.tolist())]
        return np.where(one == two, 0.0, turn * np.append(self.relation, np.nan)[places])


def _sign(gaps: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(gaps), np.nan, np.where(np.abs(gaps) <= SAME, 0.0, np.sign(gaps)))


def keep_ratings(cases: Cases, people: People, number: int, seed: int) -> People:
    """Return the ratings of so many of the rated cases, drawn at random; the others count as not rated.

    Raises:
        RecordError: fewer are rated.
    """
    rated = np.unique(cases.panel.case[~np.isnan(people.scores)])
    if number > len(rated):
        raise RecordError(f"--rated {number}: only {len(rated)} cases are rated")
    drawn = np.random.default_rng(seed).choice(rated, number, replace=False)
    keep = np.isin(cases.panel.case, drawn)[:, None]
    kept = {name: np.where(keep, values, np.nan) for name, values in people.by_criterion.items()}
    note = f"the ratings of {number} of {len(rated)} rated cases are used, drawn with seed {seed}; the others are put aside"
    # what was computed of all ratings is kept by the old one
    return replace(people, by_criterion=kept, notes=[*people.notes, note])


def candidates_of(cases: Cases, kind: str, chosen: Sequence[str], notes: list[str]) -> dict[str, np.ndarray]:
    """Return which response of each case is whose: candidate → int [cases], the index of a response, -1 where there is none.

    Args:
        kind: "models", or "picks": what a rule that needs no model would pick from a case's responses (see `baselines`).
        chosen: which of them; none for all.

    Raises:
        RecordError: one of `chosen` is not there.
    """
    if kind == "picks":
        found = {f"pick of {name}": _picks(cases, rule(cases.records)) for name, rule in BASELINES.items()}
        found = {name: places for name, places in found.items() if (places >= 0).any()}
    elif len(cases.models) > MOST_MODELS and not chosen:
        notes.append(
            f"{len(cases.models)} model names in {len(cases)} cases are no models': candidates are not compared"
        )
        found = {}
    else:
        found = {}
        for number, name in enumerate(cases.models):
            at = np.flatnonzero(cases.model_of == number)
            found[name] = np.full(len(cases), -1)
            found[name][cases.panel.case[at]] = at
    if unknown := [name for name in chosen if name not in found]:
        known = ", ".join(list(found)[:8])
        raise RecordError(
            f"--models: {cases.source} has no {unknown[0]!r}; it has {known}{', …' if len(found) > 8 else ''}"
        )
    return {name: found[name] for name in chosen or found}


def _picks(cases: Cases, scores: np.ndarray) -> np.ndarray:
    """Return each case's response of the highest score, the first of equal ones; -1 where none has a score."""
    order = np.lexsort((np.arange(len(scores)), -np.nan_to_num(scores, nan=-np.inf), cases.panel.case))
    first = order[np.searchsorted(cases.panel.case, np.arange(len(cases)))]
    return np.where(np.isnan(scores[first]), -1, first)


def voices_of(cases: Cases, people: People, rows: Sequence[Row], notes: list[str]) -> list[Voice]:
    """Return every judge that has a valid verdict, and after them all together where there are several.

    Raises:
        RecordError: no judge has one.
    """
    known = people.scores[~np.isnan(people.scores)]
    voices, heard = [], []
    for row in rows:
        scores = row.expected if row.expected is not None else row.scores
        if scores is None and row.relation is None:
            notes.append(f"{row.name} has no valid verdict on these cases, and is left out")
            continue
        scale = row.evidence.scale
        on_scale = scale is not None and bool(scale[0] <= known.min() and known.max() <= scale[1])
        if scale is not None and scores is not None and not on_scale:
            notes.append(
                f"{row.name} scores from {scale[0]} to {scale[1]}, and people do not: its own means are left out"
            )
        voices.append(Voice(row.name, scores, None if scores is not None else row.relation, on_scale))
        heard.append(row.finest(cases.panel))
    if not voices:
        raise RecordError(f"no judge has a valid verdict on a case of {cases.source}")
    together = [voice.scores for voice in voices if voice.scores is not None]
    combined = []
    if len(together) > 1:
        stacked = aggregation.stack(cases.panel, people.scores, np.stack(together)).scores
        combined.append(Voice(STACKED, stacked, None, True))
    if len(heard) > 1:
        relations = cases.panel.relations(people.scores)
        chances = aggregation.combine_relations(cases.panel, relations, np.stack(heard))
        combined.append(Voice(VOTED, None, aggregation.expected_relation(chances), False))
    taught = [voice for voice in combined if not np.isnan(_own(voice)).all()]
    if len(taught) < len(combined):
        notes.append(f"the judges are not combined: that is learned from {aggregation.LEAST_RATED} rated cases or more")
    return voices + taught


def _own(voice: Voice) -> np.ndarray:
    return voice.scores if voice.scores is not None else voice.relation


def compare(
    cases: Cases,
    people: People,
    rows: Sequence[Row],
    candidates: Mapping[str, np.ndarray],
    probabilities: np.ndarray | None = None,
    power: float = 0.8,
    difference: float | None = None,
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare candidates by every judge.

    Args:
        probabilities: float [cases], with what chance each case was to be rated; None: all with the same.
        power, difference: what is planned for; difference None takes the estimated one.
        resamples, seed: of the bootstrap of the concordances.

    Returns:
        What `comparison.json` holds: nested dicts with numbers as leaves, `resampling.Estimate` and `Interval` among them.
    """
    notes: list[str] = []
    voices = voices_of(cases, people, rows, notes)
    lead = next((voice for voice in voices if voice.name == STACKED), voices[0])
    found = _Figures(cases, people, voices, probabilities)
    result: dict[str, Any] = {"lead": lead.name, "judges": _judges(cases, people, rows, voices, resamples, seed)}
    result["all"] = {"responses": cases.responses, "mean": found.pooled()}
    result["models"] = {name: {"mean": found.mean(at)} for name, at in candidates.items() if (at >= 0).any()}
    pairs = []
    if len(candidates) > MOST_PAIRED:
        notes.append(f"{len(candidates)} candidates: name up to {MOST_PAIRED} with --models to have pairs compared")
    for one, two in combinations(candidates, 2) if len(candidates) <= MOST_PAIRED else ():
        both = (candidates[one] >= 0) & (candidates[two] >= 0)
        if both.sum() < 2:
            notes.append(f"{one} and {two} answered {int(both.sum())} cases in common: not compared")
            continue
        sides = candidates[one][both], candidates[two][both]
        record: dict[str, Any] = {"pair": [one, two], "cases": int(both.sum())}
        record |= {name: found.pair(*sides, both, name) for name in ("difference", "win_rate")}
        record["plan"] = _plan(record["difference"], lead.name, int(both.sum()), power, difference)
        pairs.append(record)
    result |= {"pairs": pairs, "notes": notes + found.notes}
    return result


class _Figures:
    """Three estimates of each figure, by every judge."""

    def __init__(self, cases: Cases, people: People, voices: Sequence[Voice], probabilities: np.ndarray | None):
        self.cases, self.scores, self.voices, self.probabilities = cases, people.scores, voices, probabilities
        self.notes: list[str] = []

    def pooled(self) -> dict[str, Powered]:
        """Estimate the mean score of all responses, a case's summed up; a case that is rated in part is not rated."""
        panel = self.cases.panel
        units = panel.per_case(np.ones(self.cases.responses), "responses")
        some = panel.per_case(~np.isnan(self.scores), "responses")
        if partly := int(((some > 0) & (some < units)).sum()):
            self.notes.append(f"{ALL}: {partly} cases are rated in part, and count as not rated there")
        summed = {
            voice.name: panel.per_case(voice.scores, "responses") for voice in self.voices if voice.scores is not None
        }
        every = np.ones(len(self.cases), bool)
        return self._estimates(panel.per_case(self.scores, "responses"), summed, every, units, None, NO_SCORES, False)

    def mean(self, at: np.ndarray) -> dict[str, Powered]:
        """Estimate a candidate's mean score over the cases that it answered."""
        there = at >= 0
        judged = {voice.name: voice.scores[at[there]] for voice in self.voices if voice.scores is not None}
        return self._estimates(self.scores[at[there]], judged, there, None, None, NO_SCORES, False)

    def pair(self, one: np.ndarray, two: np.ndarray, there: np.ndarray, kind: str) -> dict[str, Powered]:
        """Estimate the mean difference of two candidates' scores, or how often the first wins, ties counted half."""
        gaps = self.scores[one] - self.scores[two]
        if kind == "difference":
            judged = {voice.name: voice.gap(self.cases, one, two) for voice in self.voices}
            return self._estimates(gaps, judged, there, None, None, NO_SCORES, False)
        won = {voice.name: (1 + voice.better(self.cases, one, two)) / 2 for voice in self.voices}
        return self._estimates((1 + _sign(gaps)) / 2, won, there, None, (0.0, 1.0), "", True)

    def _estimates(
        self,
        people: np.ndarray,
        judged: Mapping[str, np.ndarray],
        there: np.ndarray,
        units: np.ndarray | None,
        bounds: tuple[float, float] | None,
        reason: str,
        shares: bool,
    ) -> dict[str, Powered]:
        chances = None if self.probabilities is None else self.probabilities[there]
        found = {}
        for voice in self.voices:
            # A judge that says nothing of this leaves the ratings as they are.
            values = judged.get(voice.name, np.full(len(people), np.nan))
            powered = prediction_powered(people, values, units, chances, bounds)
            if voice.name not in judged:
                gap = Interval(None, reason=reason)
                powered = replace(powered, interval=gap, naive=gap, weight=None, worth=None, rest=None, invalid=0)
            elif not shares and not voice.on_scale:
                off = NO_SCORES if voice.scores is None else OFF_SCALE
                powered = replace(powered, naive=Interval(None, reason=off))
            found[voice.name] = powered
        return found


def _judges(
    cases: Cases, people: People, rows: Sequence[Row], voices: Sequence[Voice], resamples: int, seed: int
) -> dict[str, Any]:
    """Return the concordance of every judge with people, and what each adds to all together: what they lose without it."""
    panel = cases.panel
    relations = panel.relations(people.scores)
    first, second = panel.pairs

    def statistic(voice: Voice) -> bootstrap.Statistic:
        # Combined ones are cross-fitted: a case's ratings had no say in its own.
        return accuracies(panel, relations, _sign(voice.better(cases, first, second)))["concordance"]

    tree: dict[str, Any] = {voice.name: {"concordance": statistic(voice)} for voice in voices}
    scored = [voice for voice in voices if voice.scores is not None and voice.name != STACKED]
    without = {}
    if any(voice.name == STACKED for voice in voices):
        for left in scored:
            others = np.stack([voice.scores for voice in scored if voice is not left])
            fewer = Voice("", aggregation.stack(panel, people.scores, others).scores, None, True)
            without[left.name] = statistic(fewer)
    estimates = bootstrap.estimate({"judges": tree, "without": without}, len(cases), resamples, seed)
    found = estimates["judges"]
    for name, fewer in estimates["without"].items():
        found[name]["adds"] = bootstrap.difference(found[STACKED]["concordance"], fewer)
    valid = {row.name: int((row.evidence.valid > 0).sum()) for row in rows}
    for voice in voices:
        found[voice.name] |= {"cases_with_verdict": valid.get(voice.name), "on_scale": voice.on_scale}
    return found


def _plan(
    figures: Mapping[str, Powered], lead: str, cases: int, power: float, difference: float | None
) -> dict[str, Any]:
    """Return how many rated cases tell two candidates apart: from ratings alone, and with each judge.

    `low` and `high` are the numbers at the ends of the difference's interval, where that is what is planned for; `high` is None
    where it reaches 0.
    """
    interval = figures[lead].interval if figures[lead].interval.value is not None else figures[lead].classical
    known = next(iter(figures.values()))
    if known.spread is None or (difference is None and (interval.value is None or not known.spread)):
        return {"power": power, "gap": interval.reason or "people never differ from case to case"}
    ends: dict[str, float | None] = {"value": interval.value if difference is None else difference}
    if difference is None and interval.low is not None:
        far, near = sorted((abs(interval.low), abs(interval.high)), reverse=True)
        ends |= {"low": far, "high": near if interval.told_from else None}

    def needed(rest: float | None) -> dict[str, int | None]:
        numbers = {}
        for name, gap in ends.items():
            many = gap and ratings_needed(gap, power, known.spread, rest, None if rest is None else cases)
            numbers[name] = max(many, LEAST_RATED) if many and rest is not None else many or None
        return numbers

    plan: dict[str, Any] = {
        "power": power,
        "difference": ends["value"],
        "given": difference is not None,
        "cases": cases,
    }
    plan["without"] = needed(None)
    plan["with"] = {name: needed(each.rest) for name, each in figures.items() if each.rest is not None}
    top = min(cases, max(plan["without"]["value"] or cases, 4 * LEAST_RATED))
    steps = sorted({round(step) for step in np.geomspace(LEAST_RATED, max(top, LEAST_RATED), POINTS)})
    rest = figures[lead].rest
    plan["curve"] = [
        {
            "rated": n,
            "without": power_of(n, ends["value"], known.spread),
            "with": None if rest is None else power_of(n, ends["value"], known.spread, rest, cases),
        }
        for n in steps
    ]
    return plan


def plain(node: Any) -> Any:
    """Return what `compare` found as JSON can hold it."""
    if isinstance(node, (Powered, Interval, bootstrap.Estimate)):
        return node.to_dict()
    if isinstance(node, dict):
        return {key: plain(child) for key, child in node.items()}
    return [plain(child) for child in node] if isinstance(node, list) else node
