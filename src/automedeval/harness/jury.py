"""MedHELM's jury as a judge to compare with: what its models scored in a run of HELM, read as verdicts.

HELM counts an answer that none of them scored as a default score; here it has no score.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from automedeval.records import Case, Verdict, digest
from automedeval.rubrics import COUNTED

METRIC = "helm.benchmark.metrics.llm_jury_metrics.LLMJuryMetric"
KEY = "harness_jury"  # of a response, in the cases that logs become
NAME = "HELM jury"


@dataclass(frozen=True)
class Jury:
    """The jury of a run: `scenario` is the key of its annotations, `models` the keys of its members in these."""

    scenario: str
    models: tuple[str, ...]
    default: float

    @classmethod
    def read(cls, run_spec: Mapping[str, Any]) -> "Jury | None":
        """Return the first jury of a `run_spec.json`, None if it has none."""
        for metric in run_spec.get("metric_specs") or ():
            if metric.get("class_name") == METRIC:
                args = metric["args"]
                return cls(args["scenario_name"], tuple(args["annotator_models"]), float(args.get("default_score", 0)))
        return None

    def score(self, annotations: Mapping[str, Any]) -> float | None:
        """Return the mean score over models and criteria, as HELM's metric does; None where no model gave one."""
        by_model = annotations.get(self.scenario) or {}
        given = [each for model in self.models for each in (by_model.get(model) or {}).values()]
        return fmean(int(each["score"]) for each in given) if given else None


def jury_verdicts(cases: Iterable[Case]) -> list[Verdict]:
    """Return a verdict on every case with a response from a run that had a jury; one without a score is unread."""
    verdicts = []
    for case in cases:
        judged = tuple(index for index, each in enumerate(case.responses) if KEY in each.extra)
        if not judged:
            continue
        scores: Sequence[float | None] = [each.extra.get(KEY) for each in case.responses]
        valid = any(score is not None for score in scores)
        verdicts.append(
            Verdict(
                case.id, NAME, COUNTED, judged, valid=valid, expected_scores=tuple(scores) if valid else None,
                error=None if valid else "no model of the jury gave a score that can be read",
                extra={"models": case.models, "case_digest": case.digest, "settings": digest([NAME])},
            )
        )  # fmt: skip
    return verdicts
