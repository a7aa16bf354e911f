"""What judges said, read from verdict files and summed up in arrays over the responses and pairs of all cases.

What does not fit the cases or the rubric is an error that names the file and the line, or a note that the report states;
nothing is dropped in silence.
"""

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from automedeval.agreement import CHOICES
from automedeval.cases import Cases, Elsewhere
from automedeval.planning import verdict_key
from automedeval.records import Case, RecordError, Verdict, read_placed
from automedeval.rubrics import Rubric, RubricError, read_rubric


@dataclass
class JudgeEvidence:
    """What one judge said by one rubric.

    `scores` and `expected` are means over a case's valid verdicts, `run_scores` and `run_expected` the same per run;
    `valid` and `verdicts` count per case, a case without a verdict counting as one that is not valid. `choices` maps a
    criterion of a pairwise rubric to indices of CHOICES per pair, -1 where there is none, and `relations` to -1, 0, 1 as
    the first response is worse, level or better by it. `slot_sums` holds per slot what a response there was given above
    the mean of its verdict, and how often; `first_shown` per criterion how often the one shown first was preferred.
    """

    name: str
    judge: str
    rubric: str
    kind: str
    scores: np.ndarray
    expected: np.ndarray
    verdicts: np.ndarray
    valid: np.ndarray
    run_scores: dict[int, np.ndarray] = field(default_factory=dict)
    run_expected: dict[int, np.ndarray] = field(default_factory=dict)
    choices: dict[str, np.ndarray] = field(default_factory=dict)
    relations: dict[str, np.ndarray] = field(default_factory=dict)
    asked: np.ndarray | None = None
    slot_sums: np.ndarray | None = None
    consistent: np.ndarray | None = None
    usage: dict[str, float] = field(default_factory=dict)
    errors: Counter = field(default_factory=Counter)
    rationales: dict[int, str] = field(default_factory=dict)
    scale: tuple[int, int] | None = None
    settings: str | None = None
    file: Path | None = None

    @property
    def mixed(self) -> np.ndarray:
        """The scores, or the expected ones of a judge that gives no other."""
        return self.expected if np.isnan(self.scores).all() else self.scores


def baseline_evidence(name: str, scores: np.ndarray, cases: Cases) -> JudgeEvidence:
    """Return scores that somebody counted as a judge's evidence: expected scores, always valid."""
    ones = np.ones(len(cases))
    nothing = np.full(cases.responses, np.nan)
    return JudgeEvidence(name, name, "counted", "baseline", nothing, scores, ones, ones.copy())


def read_verdicts(paths: list[str], cases: Cases, rubric: str | None = None) -> tuple[list[JudgeEvidence], list[str]]:
    """Read verdict files; each judge and rubric of each file is one piece of evidence.

    Args:
        paths: files, or folders that hold a verdicts.jsonl; `NAME=PATH` calls the judge in it NAME.
        rubric: the path of a user's own rubric, for its scale and polarities.

    Returns:
        The evidence, in the order of the files, and notes.

    Raises:
        RecordError: a verdict that came before, or that does not fit its case or its rubric's scale; no verdict on any of
            these cases; two judges of one name.
    """
    found: list[JudgeEvidence] = []
    notes: list[str] = []
    for given in paths:
        label, equals, path = given.partition("=")
        label, path = (label, path) if equals and not Path(given).exists() else ("", given)
        file = Path(path) / "verdicts.jsonl" if Path(path).is_dir() else Path(path)
        readings: dict[tuple[str, str], _Reading] = {}
        other = Elsewhere(f"{file}: verdicts", cases)
        for place, verdict in read_placed(file, Verdict):
            key = (verdict.judge, verdict.rubric)
            if key not in readings:
                readings[key] = _Reading(cases, *key, _rubric(verdict.rubric, rubric, notes))
            case = other.case(verdict.case_id)
            if case is not None:
                readings[key].add(place, case, verdict)
        notes += other.notes()
        readings = {key: reading for key, reading in readings.items() if reading.places}
        if not readings:
            raise RecordError(f"{file}: no verdict on any case in {cases.source}")
        judges = Counter(judge for judge, _ in readings)
        for (judge, rubric_name), reading in readings.items():
            name = label or judge
            if label and len(judges) > 1:
                name = f"{label}: {judge}"
            if judges[judge] > 1:
                name = f"{name} by {rubric_name}"
            found.append(reading.evidence(name, file, notes))
    names = [evidence.name for evidence in found]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise RecordError(f"two judges are called {twice[0]!r}: tell them apart with --verdicts NAME=FILE")
    return found, notes


def _rubric(name: str, own: str | None, notes: list[str]) -> Rubric | None:
    """Return the rubric that verdicts were given by; None, with a note, where its file is not at hand."""
    for candidate in (own, name.partition("@")[0]):
        try:
            rubric = read_rubric(candidate) if candidate else None
        except RubricError:
            if candidate == own:
                raise
            rubric = None
        if rubric is not None and rubric.name == name:
            return rubric
    if not name.startswith("likelihood@"):
        note = f"the rubric {name} is not at hand (--rubric its.yaml): its scale and polarities are not checked"
        notes += [note] if note not in notes else []
    return None


class _Reading:
    """Sums up one judge's verdicts as they are read."""

    def __init__(self, cases: Cases, judge: str, rubric: str, known: Rubric | None):
        self.cases, self.judge, self.rubric, self.known = cases, judge, rubric, known
        self.places: dict[tuple, str] = {}
        self.verdicts, self.valid = np.zeros((2, len(cases)))
        self.asked = np.zeros(cases.responses, bool)
        self.sums: dict[tuple[str, int], np.ndarray] = {}  # (field, run) → [2, responses]: sum, count
        self.votes: dict[tuple[str, int], Counter] = defaultdict(Counter)  # (criterion, pair) → choices
        # (criterion, first response, second response) → run → {(order, relation or choice)}
        self.by_order: dict[tuple[str, int, int], dict[int, set]] = defaultdict(lambda: defaultdict(set))
        self.slots: dict[int, np.ndarray] = {}  # slot → [2, cases]
        self.usage, self.errors = Counter(), Counter()
        self.rationales: dict[int, str] = {}
        self.settings = None

    def add(self, place: str, case: int, verdict: Verdict) -> None:
        key = verdict_key(verdict)
        if key in self.places:
            raise RecordError(
                f"{place}: the verdict of {self.judge} on case {verdict.case_id!r} in this order stands at "
                f"{self.places[key]} already"
            )
        self.places[key] = place
        record = self.cases.records[case]
        self._check(place, record, verdict)
        start = int(self.cases.start[case])
        self.verdicts[case] += 1
        self.asked[[start + index for index in verdict.order]] = True
        self.settings = verdict.extra.get("settings", self.settings)
        self.usage.update({name: count for name, count in verdict.usage.items() if isinstance(count, int)})
        if not verdict.valid:
            self.errors[verdict.error or "unknown"] += 1
            return
        self.valid[case] += 1
        if verdict.rationale:
            self.rationales.setdefault(case, verdict.rationale)
        for name, values in (("scores", verdict.scores), ("expected", verdict.expected_scores)):
            if values is not None:
                sums = self.sums.setdefault((name, verdict.run), np.zeros((2, self.cases.responses)))
                for index, value in enumerate(values):
                    if value is not None:
                        sums[:, start + index] += (value, 1)
        shown = verdict.scores or verdict.expected_scores
        if shown is not None and not self.rubric.startswith("likelihood@"):
            self._slots(case, verdict, shown)
        for criterion, choice in (verdict.choices or {}).items():
            self._choice(case, verdict, criterion, choice)

    def _check(self, place: str, record: Case, verdict: Verdict) -> None:
        digest = verdict.extra.get("case_digest")
        if digest is not None and digest != record.digest:
            raise RecordError(f"{place}: the verdict is on case {record.id!r} as it was before its texts changed")
        count = len(record.responses)
        if not all(0 <= index < count for index in verdict.order) or len(set(verdict.order)) != len(verdict.order):
            raise RecordError(
                f"{place}: 'order' {list(verdict.order)} does not fit the {count} responses of {record.id!r}"
            )
        scale = self.known.scale if self.known else None
        for name in ("scores", "expected_scores"):
            values = getattr(verdict, name)
            if values is not None and len(values) != count:
                raise RecordError(f"{place}: {len(values)} {name!r} for the {count} responses of case {record.id!r}")
            for value in values or ():
                if value is not None and scale and not scale[0] - 1e-6 <= value <= scale[1] + 1e-6:
                    raise RecordError(f"{place}: {value} is off the scale of {self.rubric}, {scale[0]} to {scale[1]}")
        if verdict.choices and (verdict.pair is None or not set(verdict.pair) <= set(record.models)):
            raise RecordError(f"{place}: 'pair' {verdict.pair} does not name two models of case {record.id!r}")
        for criterion, choice in (verdict.choices or {}).items():
            if choice not in (*verdict.pair, "tie", "neither"):
                raise RecordError(
                    f"{place}: {criterion!r} must be one of {', '.join(verdict.pair)}, tie, neither: {choice!r}"
                )

    def _slots(self, case: int, verdict: Verdict, values: tuple) -> None:
        shown = [values[index] for index in verdict.order]
        if len(shown) > 1 and None not in shown:
            average = sum(shown) / len(shown)
            for slot, value in enumerate(shown):
                self.slots.setdefault(slot, np.zeros((2, len(self.cases))))[:, case] += (value - average, 1)
            start = int(self.cases.start[case])
            for one, two in itertools.combinations(sorted(verdict.order), 2):
                relation = int(np.sign(values[one] - values[two]))
                self.by_order["scores", start + one, start + two][verdict.run].add((verdict.order, relation))

    def _choice(self, case: int, verdict: Verdict, criterion: str, choice: str) -> None:
        first, second = sorted(self.cases.locate(case, model) for model in verdict.pair)
        names = self.cases.records[case].models
        start = int(self.cases.start[case])
        code = {names[first - start]: 0, names[second - start]: 1, "tie": 2, "neither": 3}[choice]
        pair = self.cases.pair_index[first, second]
        self.votes[criterion, pair][code] += 1
        self.by_order[criterion, first, second][verdict.run].add((verdict.order, code))
        if code < 2:
            preferred = (code == 0) != self._worse(criterion)
            shown_first = verdict.order[0] + start == first
            gain = 0.5 if preferred == shown_first else -0.5
            for slot, value in ((0, gain), (1, -gain)):
                self.slots.setdefault(slot, np.zeros((2, len(self.cases))))[:, case] += (value, 1)

    def _worse(self, criterion: str) -> bool:
        names = [each.name for each in self.known.criteria] if self.known else []
        return criterion in names and self.known.criterion(criterion).polarity == "worse"

    def evidence(self, name: str, file: Path, notes: list[str]) -> JudgeEvidence:
        cases = self.cases
        self._add_run_record(file)
        missing = self.verdicts == 0
        if missing.any():
            first = cases.records[int(np.flatnonzero(missing)[0])].id
            notes.append(
                f"{name}: no verdict on {int(missing.sum())} of {len(cases)} cases, {first!r} for one: invalid"
            )
        models = np.unique(cases.model_of[self.asked])
        asked = np.isin(cases.model_of, models)
        if not asked.all():
            left = [model for number, model in enumerate(cases.models) if number not in set(models.tolist())]
            shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            notes.append(f"{name} was never asked about {shown}: left out of its figures")
        runs = sorted({run for _, run in self.sums})
        evidence = JudgeEvidence(
            name, self.judge, self.rubric, "judge", self._average("scores"), self._average("expected"),
            np.where(missing, 1, self.verdicts), self.valid, asked=asked, usage=dict(self.usage), errors=self.errors,
            rationales=self.rationales, scale=self.known.scale if self.known else None, settings=self.settings, file=file,
        )  # fmt: skip
        if len(runs) > 1:
            evidence.run_scores = {run: self._average("scores", run) for run in runs}
            evidence.run_expected = {run: self._average("expected", run) for run in runs}
        if self.slots:
            evidence.slot_sums = np.stack([self.slots[slot] for slot in sorted(self.slots)])
        evidence.consistent = self._consistency()
        pairs = len(cases.panel.pairs[0])
        for criterion in dict.fromkeys(criterion for criterion, _ in self.votes):
            evidence.choices[criterion] = np.full(pairs, -1)
            evidence.relations[criterion] = np.full(pairs, np.nan)
        for (criterion, pair), votes in self.votes.items():
            (code, most), *rest = votes.most_common(2)
            if rest and rest[0][1] == most:  # its readings contradict each other: no preference
                code = CHOICES.index(self._neutral(criterion))
            sign = {0: 1, 1: -1}.get(code, 0)
            evidence.choices[criterion][pair] = code
            evidence.relations[criterion][pair] = -sign if self._worse(criterion) else sign
        return evidence

    def _add_run_record(self, file: Path) -> None:
        """Add seconds and cost to the usage, from the record that the judge's run left beside its verdicts."""
        try:
            record = json.loads((file.parent / f"run-{self.settings}.json").read_text(encoding="utf-8"))
            seconds = sum(timing["seconds"] for timing in record["timings"])
            prices = [record["arguments"].get(name) or 0.0 for name in ("price_in", "price_out")]
        except (OSError, ValueError, KeyError, TypeError):
            return  # verdicts that came without their run
        if seconds:
            self.usage["seconds"] = round(seconds, 1)
        if any(prices):
            tokens = (self.usage["prompt_tokens"], self.usage["completion_tokens"])
            self.usage["cost"] = round(sum(count * price for count, price in zip(tokens, prices)) / 1e6, 4)

    def _neutral(self, criterion: str) -> str:
        names = [each.name for each in self.known.criteria] if self.known else []
        return self.known.criterion(criterion).neutral if criterion in names else "tie"

    def _average(self, name: str, run: int | None = None) -> np.ndarray:
        parts = [sums for (kind, number), sums in self.sums.items() if kind == name and run in (None, number)]
        total = sum(parts, np.zeros((2, self.cases.responses)))
        return np.where(total[1] > 0, total[0] / np.maximum(total[1], 1), np.nan)

    def _consistency(self) -> np.ndarray | None:
        """Return [2, cases]: of the pairs shown in several orders, how many were judged alike in all, and their number."""
        counts = np.zeros((2, len(self.cases)))
        for (_, first, _), runs in self.by_order.items():
            case = self.cases.panel.case[first]
            for seen in runs.values():
                if len({order for order, _ in seen}) > 1:
                    counts[:, case] += (len({relation for _, relation in seen}) == 1, 1)
        return counts if counts[1].any() else None
