"""Whether a judge passes an audit: the figures that it has to reach, from YAML, so that an audit can stand in a CI."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from automedeval.records import RecordError

TEMPLATES = resources.files("automedeval.audit") / "templates"


PASSED, FAILED, UNKNOWN = "passed", "failed", "not measured"
_KEYS = ("figure", "least", "most", "by", "every", "why")


def _under(places: tuple[str, ...], names: str) -> tuple[str, ...]:
    return tuple(f"{place}.{name}" for place in places for name in names.split())


_LENGTH = "longer_wins prefers_longer spearman spearman_within_case"
# All that an audit can measure, by its place below a decoding in audit.json; * is a name of models, attacks or harms.
FIGURES = (
    *_under(("clean",), "valid_rate concordance"),
    *_under(
        ("order",),
        "flips changes flips_expected changes_expected first_wins slot_span averaging.gain pairs_of_models.*",
    ),
    *_under(("length",), f"{_LENGTH} win_rates.*.raw win_rates.*.controlled"),
    *_under(("length.people",), _LENGTH),
    *_under(("repeats",), "tied gap"),
    *_under(("attribution",), "marked marks coverage consistent contradicted"),
    *_under(("self_preference",), "own models.*.concordance models.*.favour"),
    *_under(
        ("planting", "planting.control", "planting.families.*", "planting.attacks.*"), "rose fell rise topped invalid"
    ),
    *_under(("sameness.identical", "sameness.paraphrase"), "tied gap clean_tied clean_gap invalid"),
    *_under(("sameness.repeat",), "tied gap invalid"),
    *_under(("harm", "harm.control", "harm.kinds.*", "harm.templates.*"), "lowered raised fall at_all invalid"),
    *_under(("planting", "harm"), "excess"),
)


@dataclass(frozen=True)
class Threshold:
    """Bounds of one figure.

    Args:
        figure: its place below a decoding of audit.json, one of `FIGURES`, as in "order.flips".
        least, most: what it has to reach, and may not exceed; None where there is no such bound.
        by: "value", or "bound" where the worse end of its interval has to do so.
        every: whether it holds for every decoding, and not for the first alone.
        why: the reason, for the report.
    """

    figure: str
    least: float | None = None
    most: float | None = None
    by: str = "value"
    every: bool = False
    why: str = ""

    @property
    def words(self) -> str:
        """Return the bounds in words."""
        parts = [f"at least {self.least:g}"] if self.least is not None else []
        parts += [f"at most {self.most:g}"] if self.most is not None else []
        return " and ".join(parts) + (", by its interval" if self.by == "bound" else "")

    def decide(self, figure: Mapping[str, Any] | None) -> str:
        """Return whether a figure, {"value", "low", "high"}, passes; what has no value, or no interval, is unknown."""
        if figure is None or figure.get("value") is None:
            return UNKNOWN
        low, high = (figure["value"],) * 2 if self.by == "value" else (figure.get("low"), figure.get("high"))
        if low is None or high is None:
            return UNKNOWN
        reached = (self.least is None or low >= self.least) and (self.most is None or high <= self.most)
        return PASSED if reached else FAILED


def read_thresholds(file: str | None = None) -> list[Threshold]:
    """Read the packaged thresholds, or those of a YAML file.

    Raises:
        RecordError: the file cannot be read, or an entry is not as `audit/templates/thresholds.yaml` says.
    """
    path, place = (TEMPLATES / "thresholds.yaml", "thresholds.yaml") if file is None else (Path(file), file)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{place}: {' '.join(str(error).split())}") from None
    if not isinstance(content, list):
        raise RecordError(f"{place}: must be a list of thresholds")
    return [_read(f"{place}: entry {number}", entry) for number, entry in enumerate(content, 1)]


def _read(place: str, entry: Any) -> Threshold:
    if not isinstance(entry, dict) or not isinstance(entry.get("figure"), str):
        raise RecordError(f"{place}: needs a figure, as in order.flips")
    figure = entry["figure"]
    if not any(fnmatchcase(figure, each) for each in FIGURES):
        near = [each for each in FIGURES if each.startswith(f"{figure}.")][:3] or get_close_matches(figure, FIGURES, 3)
        hint = f"; near it are {', '.join(near)}" if near else ", as order.flips is one"
        raise RecordError(f"{place}: an audit has no figure {figure!r}{hint}")
    if unknown := sorted(set(map(str, entry)) - set(_KEYS)):
        raise RecordError(f"{place}: unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    for name in ("least", "most"):
        value = entry.get(name)
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value)):
            raise RecordError(f"{place}: {name} must be a number, not {value!r}")
    if entry.get("least") is None and entry.get("most") is None:
        raise RecordError(f"{place}: needs least, most or both")
    if None not in (entry.get("least"), entry.get("most")) and entry["least"] > entry["most"]:
        raise RecordError(
            f"{place}: least is {entry['least']:g}, above most, {entry['most']:g}: nothing can reach that"
        )
    if entry.get("by", "value") not in ("value", "bound"):
        raise RecordError(f"{place}: by must be value or bound, not {entry['by']!r}")
    if not isinstance(entry.get("every", False), bool):
        raise RecordError(f"{place}: every must be true or false, not {entry['every']!r}")
    return Threshold(**entry)


def decide(thresholds: list[Threshold], decodings: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Hold every threshold against the figures of the first decoding, or of every one, or against none where they lack it."""
    found = []
    for threshold in thresholds:
        trees = list(decodings.items())[: None if threshold.every else 1]
        held = [(name, figure) for name, tree in trees if (figure := _at(tree, threshold.figure)) is not None]
        for decoding, figure in held or [(None, None)]:
            found.append(
                {
                    "figure": threshold.figure,
                    "decoding": decoding,
                    "bounds": threshold.words,
                    "outcome": threshold.decide(figure),
                    "why": threshold.why,
                    "measured": dict(figure) if figure is not None else None,
                }
            )
    return found


def passes(decided: list[dict[str, Any]], checks: Sequence[str] = ()) -> bool | None:
    """Return whether a judge passes: nothing failed; None where nothing was measured, or nothing of these checks."""
    outcomes = {each["outcome"] for each in decided}
    asked = {each["outcome"] for each in decided if each["figure"].partition(".")[0] in checks}
    if FAILED in outcomes:
        return False
    return None if outcomes <= {UNKNOWN} or asked == {UNKNOWN} else True


def _at(tree: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Return the figure at a path; keys may hold dots themselves, as the names of models do."""
    for key, node in tree.items():
        if key == path and isinstance(node, Mapping) and "value" in node:
            return node
        below = node if path.startswith(f"{key}.") and isinstance(node, Mapping) else {}
        if (found := _at(below, path[len(key) + 1 :])) is not None:
            return found
    return None


def figures_of(decided: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, figure) of what was measured: an audit's headline, for a card."""
    several = len({each["decoding"] for each in decided if each["decoding"]}) > 1
    for each in decided:
        if each["measured"] is not None:
            name = each["figure"].replace(".", ", ").replace("_", " ")
            yield f"{name} ({each['decoding']})" if several else name, each["measured"]
