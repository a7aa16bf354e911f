"""Put P(met) of a judge of criteria on physicians' labels.

The new probability is the logistic function of slope · logit(P(met)) + shift (Platt 1999, "Probabilistic outputs for support
vector machines"), fitted to the physicians' strict majority. The judge's own P(met) at which the new one is .5 is a threshold.

It is cross-fitted: the criteria of a labelled case take the line that the other folds of cases give, so that a certificate on
the same labels is honest. Other cases take the line of all labelled cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.criteria.checklists import Labels, majority_of, measures, strict_majority
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import RecordError, Verdict, digest
from automedeval.stats.bootstrap import estimate, plain
from automedeval.stats.checklist import checklist_score
from automedeval.stats.folds import deal, each_fold
from automedeval.stats.logistic import fit_logistic

FOLDS = 10
RIDGE = 0.01  # bounds a line where the labels are separable
EDGE = 1e-4  # P(met) is kept so far from 0 and 1
FIGURES = ("accuracy", "balanced_accuracy", "auroc", "calibration_error")


@dataclass(frozen=True)
class Line:
    """What logit(P(met)) is mapped by."""

    slope: float
    shift: float

    @classmethod
    def fit(cls, chance: np.ndarray, met: np.ndarray) -> "Line":
        """Fit a line that never falls.

        Args:
            chance: float [pairs], the judge's P(met).
            met: float [pairs], 1 where the majority says that it is met, else 0.
        """
        slope, shift = fit_logistic(np.column_stack([_logits(chance), np.ones(len(chance))]), met, ridge=RIDGE)
        if not slope > 0:  # a judge that orders no better than chance says the share that is met of every criterion
            slope, shift = 0.0, scipy.special.logit((met.sum() + 0.5) / (len(met) + 1))
        return cls(float(slope), float(shift))

    def __call__(self, chance: Any) -> Any:
        return scipy.special.expit(self.slope * _logits(chance) + self.shift)

    def to_dict(self) -> dict[str, float | None]:
        """Return it with the threshold, None without a slope."""
        threshold = float(scipy.special.expit(-self.shift / self.slope)) if self.slope else None
        return {"slope": self.slope, "shift": self.shift, "threshold": threshold}


def _logits(chance: Any) -> Any:
    return scipy.special.logit(np.clip(chance, EDGE, 1 - EDGE))


@dataclass(frozen=True)
class CriteriaCalibration:
    """The line of a judge of criteria."""

    cases: Cases
    settings: str | None
    line: Line
    held_out: Mapping[int, Line]  # number of a labelled case → the line of the labels of the other folds
    facts: Mapping[str, Any]  # what the labels say of the judge before and after, cross-fitted

    @classmethod
    def fit(cls, cases: Cases, reading: VerdictTable, labels: Labels) -> "CriteriaCalibration":
        """Learn the line of a judge from labels.

        Raises:
            RecordError: the judge gives no probabilities, its verdicts are of several settings, or fewer than two cases have
                criteria that it read and that a majority labelled.
        """
        settings = {verdict.settings for verdict in reading.verdicts}
        if len(settings) > 1:
            raise RecordError(f"{reading.name}: verdicts of {len(settings)} settings; calibrate each by itself")
        labelled = ~np.isnan(np.stack([*labels.values()])).all(axis=0)
        chance = np.where(labelled, reading.met_probabilities, np.nan)
        if np.isnan(chance).all():
            raise RecordError(
                f"{reading.name} gives no probabilities of met on the labelled criteria: nothing to calibrate"
            )
        majority, case = majority_of(labels), cases.panel.case[cases.response_of]
        empty = cases.empty[cases.response_of]
        # Nothing is learnt of an empty response: it meets nothing, and keeps its probability of 0.
        usable = ~np.isnan(chance) & ~np.isnan(majority) & ~empty
        learnt = np.unique(case[usable])
        if len(learnt) < 2:
            raise RecordError(f"{reading.name}: two labelled cases or more are needed, for cross-fitting")
        fold = np.full(len(cases), -1)
        fold[learnt] = deal(np.arange(len(learnt)), FOLDS)
        held_out: dict[int, Line] = {}
        after = np.full(len(chance), np.nan)
        for held in each_fold(fold):
            rest = usable & ~held[case]
            line = Line.fit(chance[rest], majority[rest])
            held_out |= dict.fromkeys(np.flatnonzero(held).tolist(), line)
            after = np.where(held[case], line(chance), after)
        after[empty] = 0.0
        sides = {"before": (strict_majority(reading.met), chance)}
        sides["after"] = np.where(np.isnan(after), np.nan, after > 0.5), after
        measured = {side: measures(cases, *of, labels, majority) for side, of in sides.items()}
        tree = {side: {name: figures[name] for name in FIGURES} for side, figures in measured.items()}
        facts = {"pairs": int(usable.sum()), "cases": len(learnt)} | plain(estimate(tree, len(cases)))
        return cls(cases, settings.pop(), Line.fit(chance[usable], majority[usable]), held_out, facts)

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over what was learnt, and of which judge."""
        return digest([self.settings, *((line.slope, line.shift) for line in (self.line, *self.held_out.values()))])

    def apply(self, verdict: Verdict, name: str) -> Verdict:
        """Return the verdict with new probabilities under the judge's new name; unread, invalid and empty stay what they are.

        Raises:
            RecordError: the verdict has other settings than those that this was learnt from.
        """
        number = self.cases.index[verdict.case_id]
        if verdict.settings != self.settings:
            raise RecordError(f"case {verdict.case_id!r}: judged with other settings than the labelled cases")
        fresh = replace(verdict, judge=name, extra={**verdict.extra, "settings": self.fingerprint})
        checklist = verdict.checklist
        if not verdict.valid or verdict.empty or checklist is None:
            return fresh
        line, chances = self.held_out.get(number, self.line), checklist["met_probabilities"]
        for place, (met, chance) in enumerate(zip(checklist["met"], chances), 1):
            if met is not None and chance is None:
                raise RecordError(f"case {verdict.case_id!r}: criterion {place} has no probability of met")
        chances = [None if chance is None else round(float(line(chance)), 5) for chance in chances]
        met = [None if chance is None else chance > 0.5 for chance in chances]
        score = checklist_score([each.points for each in self.cases.records[number].criteria], met)._asdict()
        shown = {key: None if value is None else round(value, 6) for key, value in score.items()}
        return replace(fresh, checklist={**checklist, "met": met, "met_probabilities": chances, **shown})

    def to_dict(self) -> dict[str, Any]:
        return {"judge_settings": self.settings, "line": self.line.to_dict(), **self.facts}
