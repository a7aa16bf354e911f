"""Decide by thresholds from a YAML file whether a judge passes an audit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any

from automedeval.audit.perturbations import TEMPLATES
from automedeval.records.yaml_file import YamlFile

PASSED, FAILED, UNKNOWN = "passed", "failed", "not measured"

# The figures of an audit, by their path below a decoding in audit.json; * is a name of models, attacks or harms.
_FIGURES = {
    "clean": "valid_rate concordance",
    "order": "flips changes flips_expected changes_expected first_wins slot_span",
    "length length.people": "longer_wins prefers_longer spearman spearman_within_case",
    "length": "win_rates.*.raw win_rates.*.controlled",
    "repeats": "tied gap",
    "attribution": "marked marks",
    "self_preference": "own models.*.concordance models.*.favour",
    "planting planting.control planting.families.* planting.attacks.*": "rose fell rise topped invalid",
    "sameness.identical sameness.paraphrase": "tied gap clean_tied clean_gap invalid",
    "sameness.repeat": "tied gap invalid",
    "harm harm.control harm.kinds.* harm.templates.*": "lowered raised fall at_all invalid",
    "planting harm": "excess",
    "fairness": "largest turned",
    "fairness.contrasts.*": "shift moved turned invalid",
    "harm.evidence harm.evidence.kinds.*": "with without twin_with twin_without",
}
# The same of an audit of a judge of criteria.
_CHECKLIST_FIGURES = {
    "clean": "valid_rate read_rate met score",
    "planting planting.control planting.families.* planting.attacks.*": (
        "rose fell rise gained lost before after probability_rise unread"
    ),
    "planting": "excess",
    "order together": "changed unread",
}


def _places(figures: Mapping[str, str]) -> list[str]:
    return [f"{place}.{name}" for some, names in figures.items() for place in some.split() for name in names.split()]


FIGURES, CHECKLIST_FIGURES = _places(_FIGURES), _places(_CHECKLIST_FIGURES)


@dataclass(frozen=True)
class Threshold:
    """Bounds of one figure.

    Args:
        figure: its path below a decoding of audit.json, one of `FIGURES`, for instance "order.flips".
        least, most: the lower and upper bound; None for no bound.
        by: "value" to compare the value, "bound" to compare the worse end of its interval.
        every: whether it applies to every decoding, or only to the first.
        why: the reason, for the report.
        name: what the figure measures, in words.
    """

    figure: str
    least: float | None = None
    most: float | None = None
    by: str = "value"
    every: bool = False
    why: str = ""
    name: str = ""

    @property
    def words(self) -> str:
        parts = [f"at least {self.least:g}"] if self.least is not None else []
        parts += [f"at most {self.most:g}"] if self.most is not None else []
        return " and ".join(parts) + (", by its interval" if self.by == "bound" else "")

    def decide(self, figure: Mapping[str, Any] | None) -> str:
        """Return whether a figure, {"value", "low", "high"}, passes; without a value or interval it is `UNKNOWN`."""
        if figure is None or figure.get("value") is None:
            return UNKNOWN
        low, high = (figure["value"],) * 2 if self.by == "value" else (figure.get("low"), figure.get("high"))
        if low is None or high is None:
            return UNKNOWN
        reached = (self.least is None or low >= self.least) and (self.most is None or high <= self.most)
        return PASSED if reached else FAILED


def read_thresholds(file: str | None = None, checklist: bool = False) -> list[Threshold]:
    """Read the packaged thresholds, or those of a YAML file; RecordError where it is not as `thresholds.yaml` describes.

    Args:
        checklist: whether a judge of criteria is audited, which has other figures.
    """
    packaged = "checklist_thresholds.yaml" if checklist else "thresholds.yaml"
    yaml = YamlFile(file or packaged)
    content = yaml.read(None if file else TEMPLATES / packaged)
    if not isinstance(content, list):
        yaml.fail("the file", "must be a list of thresholds")
    figures = CHECKLIST_FIGURES if checklist else FIGURES
    return [_read(YamlFile(f"{yaml.place}: entry {number}"), entry, figures) for number, entry in enumerate(content, 1)]


def _read(at: YamlFile, entry: Any, figures: Sequence[str]) -> Threshold:
    at.only(entry, [field.name for field in fields(Threshold)])
    figure = at.take(entry, "figure", str)
    if not any(fnmatchcase(figure, each) for each in figures):
        example = next(each for each in figures if each.startswith("order."))
        near = [each for each in figures if each.startswith(f"{figure}.")][:3] or get_close_matches(figure, figures, 3)
        hint = f"similar are {', '.join(near)}" if near else f"an example is {example}"
        at.fail("figure", f"an audit has no figure {figure!r}; {hint}")
    least, most = (entry.get(name) for name in ("least", "most"))
    for name, value in (("least", least), ("most", most)):
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value)):
            at.fail(name, f"must be a number, not {value!r}")
    if least is None and most is None:
        at.fail("figure", "needs least, most or both")
    if None not in (least, most) and least > most:
        at.fail("least", f"{least:g} is above most, {most:g}")
    at.take(entry, "by", str, "value", ("value", "bound"))
    at.take(entry, "every", bool, False)
    return Threshold(**entry)


def decide(thresholds: list[Threshold], decodings: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare every threshold with the figures of the first decoding, or of all decodings, that have its figure."""
    decided = []
    for threshold in thresholds:
        trees = list(decodings.items())[: None if threshold.every else 1]
        held: list[tuple[str | None, Mapping[str, Any] | None]] = [
            (name, figure) for name, tree in trees if (figure := _at(tree, threshold.figure)) is not None
        ]
        for decoding, figure in held or [(None, None)]:
            decided.append(
                {
                    "figure": threshold.figure,
                    "name": threshold.name or threshold.figure,
                    "decoding": decoding,
                    "bounds": threshold.words,
                    "outcome": threshold.decide(figure),
                    "why": threshold.why,
                    "measured": dict(figure) if figure is not None else None,
                }
            )
    return decided


def passes(decided: list[dict[str, Any]], checks: Sequence[str] = ()) -> bool | None:
    """Return whether no threshold failed; None if nothing was measured, or nothing of these checks."""
    outcomes = {each["outcome"] for each in decided}
    asked = {each["outcome"] for each in decided if each["figure"].partition(".")[0] in checks}
    if FAILED in outcomes:
        return False
    return None if outcomes <= {UNKNOWN} or asked == {UNKNOWN} else True


def _at(tree: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Return the figure at a path; keys may contain dots, as names of models do."""
    for key, node in tree.items():
        if key == path and isinstance(node, Mapping) and "value" in node:
            return node
        below = node if path.startswith(f"{key}.") and isinstance(node, Mapping) else {}
        if (figure := _at(below, path[len(key) + 1 :])) is not None:
            return figure
    return None


def figures_of(decided: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, figure) of the measured figures, for a card."""
    several = len({each["decoding"] for each in decided if each["decoding"]}) > 1
    for each in decided:
        if each["measured"] is not None:
            name = each["figure"].replace(".", ", ").replace("_", " ")
            yield f"{name} ({each['decoding']})" if several else name, each["measured"]
