"""Put P(met) of a judge of criteria on physicians' labels, for all criteria together or for each category by itself.

The new probability is the logistic function of slope · logit(P(met)) + shift (Platt 1999, "Probabilistic outputs for support
vector machines"), fitted to the physicians' strict majority. The inverse of the slope is a temperature. The judge's own P(met)
at which the new one is .5 is a threshold. A category with few labels takes the line of all criteria.

It is cross-fitted: the criteria of a labelled case take the lines that the other folds of cases give, so that a certificate on
the same labels is honest. Other cases take the lines of all labelled cases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.criteria.checklists import Labels, category, majority_of, measures, strict_majority
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.records import CaseCriterion, RecordError, Verdict, digest
from automedeval.stats.bootstrap import estimate, plain
from automedeval.stats.checklist import checklist_score
from automedeval.stats.folds import deal, each_fold
from automedeval.stats.logistic import fit_logistic

WAYS = ("all", "category")
ALL = "all criteria"
FEW, FEW_OF_A_KIND = 30, 5  # pairs with a majority, in all and of each kind, with which a category has its own line
FOLDS = 10
RIDGE = 0.01  # bounds a line where the labels are separable
EDGE = 1e-4  # P(met) is kept so far from 0 and 1
FIGURES = ("accuracy", "balanced_accuracy", "cohen_kappa", "macro_f1_majority", "auroc", "calibration_error")


@dataclass(frozen=True)
class Line:
    """What logit(P(met)) is mapped by, with the numbers of pairs, and of those that are met, behind it."""

    slope: float
    shift: float
    pairs: int
    met: int

    @classmethod
    def fit(cls, chance: np.ndarray, met: np.ndarray) -> "Line":
        """Fit a line that never falls.

        Args:
            chance: float [pairs], the judge's P(met).
            met: float [pairs], 1 where the majority says that it is met, else 0.
        """
        design = np.column_stack([_logits(chance), np.ones(len(chance))])
        slope, shift = fit_logistic(design, met, ridge=RIDGE)
        if not slope > 0:  # a judge that orders no better than chance says the share that is met of every criterion
            slope, shift = 0.0, scipy.special.logit((met.sum() + 0.5) / (len(met) + 1))
        return cls(float(slope), float(shift), len(chance), int(met.sum()))

    def __call__(self, chance: Any) -> Any:
        return scipy.special.expit(self.slope * _logits(chance) + self.shift)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it, with the temperature and the threshold; both are null without a slope."""
        line = {"slope": self.slope, "shift": self.shift, "temperature": None, "threshold": None}
        if self.slope:
            line |= {"temperature": 1 / self.slope, "threshold": float(scipy.special.expit(-self.shift / self.slope))}
        return line | {"pairs": self.pairs, "met": self.met}


def _logits(chance: Any) -> Any:
    return scipy.special.logit(np.clip(chance, EDGE, 1 - EDGE))


@dataclass(frozen=True)
class CriteriaCalibration:
    """The lines of a judge of criteria."""

    by: str  # one of `WAYS`
    cases: Cases
    settings: str | None
    lines: Mapping[str, Line]  # category → its line; `ALL` is that of all criteria
    held_out: Sequence[Mapping[str, Line]]  # the same lines for each fold of cases, from the labels of the others
    fold: Mapping[int, int]  # number of a labelled case → its fold
    facts: Mapping[str, Any]  # what the labels say of the judge before and after, cross-fitted

    @classmethod
    def fit(cls, cases: Cases, reading: VerdictTable, labels: Labels, by: str) -> "CriteriaCalibration":
        """Learn the lines of a judge from labels.

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
        names = np.array([_name(by, criterion) for _, criterion in cases.items])
        fold = dict(zip(learnt.tolist(), deal(np.arange(len(learnt)), FOLDS).tolist()))
        held = np.array([fold.get(int(number), -1) for number in case])
        held_out = [_lines(chance, majority, names, usable & ~out) for out in each_fold(held)]
        known = ~np.isnan(chance) & (held >= 0)
        after = np.full(len(chance), np.nan)
        after[known] = [_line(held_out[held[at]], names[at])(chance[at]) for at in np.flatnonzero(known)]
        after[empty] = 0.0
        calibration = cls(by, cases, settings.pop(), _lines(chance, majority, names, usable), held_out, fold, {})
        sides = {"before": (strict_majority(reading.met), chance)}
        sides["after"] = np.where(np.isnan(after), np.nan, after > 0.5), after
        measured = {side: measures(cases, *of, labels, majority) for side, of in sides.items()}
        tree = {side: {name: figures[name] for name in FIGURES} for side, figures in measured.items()}
        facts = {"pairs": int(usable.sum()), "cases": len(learnt)} | plain(estimate(tree, len(cases)))
        return replace(calibration, facts=facts)

    @property
    def fingerprint(self) -> str:
        """Return twelve hexadecimal digits over what was learnt, and of which judge."""
        lines = [
            {name: (line.slope, line.shift) for name, line in lines_by_name.items()}
            for lines_by_name in (self.lines, *self.held_out)
        ]
        return digest([self.settings, self.by, lines])

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
        case = self.cases.records[number]
        lines = self.held_out[self.fold[number]] if number in self.fold else self.lines
        chances: list[float | None] = []
        for place, (met, chance) in enumerate(zip(checklist["met"], checklist["met_probabilities"])):
            if met is not None and chance is None:
                raise RecordError(f"case {verdict.case_id!r}: criterion {place + 1} has no probability of met")
            line = _line(lines, _name(self.by, case.criteria[place]))
            chances.append(None if chance is None else round(float(line(chance)), 5))
        met = [None if chance is None else chance > 0.5 for chance in chances]
        score = checklist_score([each.points for each in case.criteria], met)._asdict()
        shown = {key: None if value is None else round(value, 6) for key, value in score.items()}
        return replace(fresh, checklist={**checklist, "met": met, "met_probabilities": chances, **shown})

    def to_dict(self) -> dict[str, Any]:
        lines = {name: line.to_dict() for name, line in self.lines.items()}
        categories = {_name(self.by, criterion) for _, criterion in self.cases.items}
        pooled = sorted(categories - self.lines.keys())
        return {"by": self.by, "judge_settings": self.settings, "lines": lines, "as_all": pooled, **self.facts}


def _name(by: str, criterion: CaseCriterion) -> str:
    return (category(criterion.tags) or ALL) if by == "category" else ALL


def _line(lines: Mapping[str, Line], name: str) -> Line:
    return lines.get(name, lines[ALL])


def _lines(chance: np.ndarray, met: np.ndarray, names: np.ndarray, mask: np.ndarray) -> dict[str, Line]:
    """Return the line of all pairs of a mask, and that of each category with enough of them."""
    lines = {ALL: Line.fit(chance[mask], met[mask])}
    for name in sorted(set(names) - {ALL}):
        in_category = mask & (names == name)
        kinds = (met[in_category].sum(), (1 - met)[in_category].sum())
        if in_category.sum() >= FEW and min(kinds) >= FEW_OF_A_KIND:
            lines[name] = Line.fit(chance[in_category], met[in_category])
    return lines
