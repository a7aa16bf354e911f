"""What judges said, read from verdict files and summed up in arrays over the responses and pairs of all cases.

What does not fit the cases or the rubric is an error that names the file and the line, or a note that the report states;
nothing is dropped in silence.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from automedeval.meta_evaluation.cases import Cases, Elsewhere, check_number
from automedeval.meta_evaluation.ratings import People
from automedeval.records import Case, RecordError, Verdict, read_placed, verdict_key
from automedeval.rubrics import Rubric, RubricError, read_rubric, without_scale
from automedeval.stats.agreement import CHOICES, Panel


@dataclass
class JudgeEvidence:
    """What one judge said by one rubric.

    `scores` and `expected` are means over a case's valid verdicts, `run_scores` and `run_expected` the same per run;
    `valid` and `verdicts` count per case, a case without a verdict counting as one that is not valid. `choices` maps a
    criterion of a pairwise rubric to indices of CHOICES per pair, -1 where there is none, and `relations` to -1, 0, 1 as
    the first response is worse, level or better by it; `run_relations` the same per run. `asked` and `asked_pairs` are
    False for what the judge was never asked about (other models, pairs without the baseline): no failure of its.
    By criterion ("scores" for scores) `slots` holds [slots, 2, cases] what a response there was given above the mean of its
    verdict, and how often, and `consistent` [2, cases] how many pairs shown in several orders were judged alike, and how many
    there are. `worse` names the criteria of which a choice means the worse response. `checkpoint` is the fingerprint of the
    weights that judged, None where a verdict does not tell it, or another tells of others.
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
    run_relations: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)
    asked: np.ndarray | None = None
    asked_pairs: np.ndarray | None = None
    slots: dict[str, np.ndarray] = field(default_factory=dict)
    consistent: dict[str, np.ndarray] = field(default_factory=dict)
    worse: frozenset[str] = frozenset()
    usage: dict[str, float] = field(default_factory=dict)
    errors: Counter = field(default_factory=Counter)
    rationales: dict[int, str] = field(default_factory=dict)
    scale: tuple[int, int] | None = None
    settings: str | None = None
    checkpoint: str | None = None
    file: Path | None = None

    @property
    def mixed(self) -> np.ndarray:
        """The scores, or the expected ones of a judge that gives no other."""
        return self.expected if np.isnan(self.scores).all() else self.scores


def baseline_evidence(name: str, scores: np.ndarray, cases: Cases) -> JudgeEvidence:
    """Return scores that somebody counted as a judge's evidence; what cannot be counted was not asked."""
    ones = np.ones(len(cases))
    nothing = np.full(cases.responses, np.nan)
    return JudgeEvidence(name, name, "counted", "baseline", nothing, scores, ones, ones.copy(), asked=~np.isnan(scores))


def read_verdicts(
    paths: list[str], cases: Cases, rubric: str | None = None, reserved: frozenset[str] = frozenset()
) -> tuple[list[JudgeEvidence], list[str]]:
    """Read verdict files; each judge and rubric of each file is one piece of evidence.

    Args:
        paths: files, or folders that hold a verdicts.jsonl; `NAME=PATH` calls the judge in it NAME.
        rubric: the path of a user's own rubric, for its scale and polarities.
        reserved: names that no judge may have.

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
    if taken := sorted(set(names) & reserved):
        raise RecordError(f"a judge cannot be called {taken[0]!r} in a report: name it with --verdicts NAME=FILE")
    if rubric and not any(evidence.rubric == read_rubric(rubric).name for evidence in found):
        raise RecordError(f"--rubric {rubric}: no verdict was given by {read_rubric(rubric).name}")
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
    if not without_scale(name):
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
        # (criterion, pair) → run → choices
        self.votes: dict[tuple[str, int], dict[int, Counter]] = defaultdict(lambda: defaultdict(Counter))
        # (criterion, first response, second response) → run → {(order, relation or choice)}
        self.by_order: dict[tuple[str, int, int], dict[int, set]] = defaultdict(lambda: defaultdict(set))
        self.slots: dict[str, dict[int, np.ndarray]] = defaultdict(dict)  # criterion → slot → [2, cases]
        self.shown_pairs: set[tuple[int, int]] = set()
        self.usage, self.errors = Counter(), Counter()
        self.rationales: dict[int, str] = {}
        self.settings = None
        self.checkpoints: set[str] = set()

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
        shown = sorted(start + index for index in verdict.order)
        self.asked[shown] = True
        if verdict.pair is not None:
            self.shown_pairs |= set(itertools.combinations(shown, 2))
        self.settings = verdict.extra.get("settings", self.settings)
        self.checkpoints.add(str(verdict.extra.get("checkpoint") or ""))
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
        given = verdict.scores or verdict.expected_scores
        if given is not None and not without_scale(self.rubric):
            self._slots(case, verdict, given)
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
                if value is not None:
                    check_number(value, name, place)
                if value is not None and scale and not scale[0] - 1e-6 <= value <= scale[1] + 1e-6:
                    raise RecordError(f"{place}: {value} is off the scale of {self.rubric}, {scale[0]} to {scale[1]}")
            if any((value is not None) and index not in verdict.order for index, value in enumerate(values or ())):
                raise RecordError(f"{place}: {name!r} has a score for a response that 'order' does not show")
        if verdict.valid and verdict.scores is None and verdict.expected_scores is None and not verdict.choices:
            raise RecordError(f"{place}: 'valid' is true, and there are neither scores nor choices")
        if verdict.choices or verdict.pair is not None:
            shown = {record.models[index] for index in verdict.order}
            if verdict.pair is None or len(set(verdict.pair)) != 2 or set(verdict.pair) != shown:
                raise RecordError(f"{place}: 'pair' {verdict.pair} does not name the two models that 'order' shows")
        criteria = {criterion.name for criterion in self.known.criteria} if self.known else set()
        if unknown := sorted(set(verdict.choices or ()) - criteria) if criteria else []:
            raise RecordError(
                f"{place}: {self.rubric} has no criterion {unknown[0]!r}; it has {', '.join(sorted(criteria))}"
            )
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
                self._slot("scores", slot)[:, case] += (value - average, 1)
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
        self.votes[criterion, pair][verdict.run][code] += 1
        self.by_order[criterion, first, second][verdict.run].add((verdict.order, code))
        if code < 2:
            preferred = (code == 0) != self._worse(criterion)
            shown_first = verdict.order[0] + start == first
            gain = 0.5 if preferred == shown_first else -0.5
            for slot, value in ((0, gain), (1, -gain)):
                self._slot(criterion, slot)[:, case] += (value, 1)

    def _slot(self, criterion: str, slot: int) -> np.ndarray:
        return self.slots[criterion].setdefault(slot, np.zeros((2, len(self.cases))))

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
        asked, asked_pairs = self._asked(name, notes)
        evidence = JudgeEvidence(
            name, self.judge, self.rubric, "judge", self._average("scores"), self._average("expected"),
            self.verdicts + self._unanswered(asked, asked_pairs), self.valid, asked=asked, asked_pairs=asked_pairs,
            usage=dict(self.usage), errors=self.errors, rationales=self.rationales, settings=self.settings, file=file,
            checkpoint=next(iter(self.checkpoints)) or None if len(self.checkpoints) == 1 else None,
            scale=self.known.scale if self.known else None,
            worse=frozenset(name for name, _ in self.votes if self._worse(name)),
        )  # fmt: skip
        runs = sorted({run for _, run in self.sums})
        if len(runs) > 1:
            evidence.run_scores = {run: self._average("scores", run) for run in runs}
            evidence.run_expected = {run: self._average("expected", run) for run in runs}
        for criterion, slots in self.slots.items():
            evidence.slots[criterion] = np.stack([slots[slot] for slot in sorted(slots)])
        evidence.consistent = self._consistency()
        self._choices(evidence)
        return evidence

    def _asked(self, name: str, notes: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tell what the judge was asked: bool [responses] and [pairs].

        Left out are models, and pairs of models, that cases with verdicts have and no verdict shows: `--models`, `--baseline`.
        A case without a verdict is a failure, whatever its models are called.
        """
        cases, first, second = self.cases, *self.cases.panel.pairs
        judged = self.verdicts > 0
        there = set(cases.model_of[judged[cases.panel.case]].tolist())
        never = there - set(cases.model_of[self.asked].tolist())
        asked = ~np.isin(cases.model_of, list(never))
        if never:
            names = [cases.models[number] for number in sorted(never)]
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            notes.append(f"{name} was never asked about {shown}: left out of its figures")
        if not self.votes:  # scores of different readings of a case can be compared
            return asked, asked[first] & asked[second]
        kinds = np.sort(np.stack([cases.model_of[first], cases.model_of[second]]), axis=0)
        kind = kinds[0] * len(cases.models) + kinds[1]
        never_pairs = np.setdiff1d(kind[judged[cases.panel.case[first]]], kind[self._pairs_shown()])
        asked_pairs = asked[first] & asked[second] & ~np.isin(kind, never_pairs)
        if left := int((asked[first] & asked[second] & ~asked_pairs).sum()):
            notes.append(f"{name} was never asked to compare {left} of {len(first)} pairs: left out of its figures")
        return asked, asked_pairs

    def _unanswered(self, asked: np.ndarray, asked_pairs: np.ndarray) -> np.ndarray:
        """Count, per case, the verdicts that should be there and are not; all of a missing case's responses count as one."""
        panel = self.cases.panel
        if not self.votes:
            return (panel.per_case(asked & ~self.asked, "responses") > 0).astype(float)
        return panel.per_case(asked_pairs & ~self._pairs_shown())

    def _pairs_shown(self) -> np.ndarray:
        """Return which pairs a verdict showed, bool [pairs]."""
        return np.isin(
            np.arange(len(self.cases.pair_index)), [self.cases.pair_index[pair] for pair in self.shown_pairs]
        )

    def _choices(self, evidence: JudgeEvidence) -> None:
        pairs = len(self.cases.panel.pairs[0])
        several = len({run for runs in self.votes.values() for run in runs}) > 1
        for criterion, pair in self.votes:
            if criterion not in evidence.choices:
                evidence.choices[criterion] = np.full(pairs, -1)
                evidence.relations[criterion] = np.full(pairs, np.nan)
            runs = self.votes[criterion, pair]
            code = self._decided(criterion, sum(runs.values(), Counter()))
            evidence.choices[criterion][pair] = code
            evidence.relations[criterion][pair] = self._relation(criterion, code)
            for run, votes in runs.items() if several else ():
                by_run = evidence.run_relations.setdefault(criterion, {})
                by_run.setdefault(run, np.full(pairs, np.nan))[pair] = self._relation(
                    criterion, self._decided(criterion, votes)
                )

    def _decided(self, criterion: str, votes: Counter) -> int:
        """Return the choice of most readings; the criterion's neutral one where they contradict each other."""
        (code, most), *rest = votes.most_common(2)
        return CHOICES.index(self._neutral(criterion)) if rest and rest[0][1] == most else code

    def _relation(self, criterion: str, code: int) -> int:
        sign = {0: 1, 1: -1}.get(code, 0)
        return -sign if self._worse(criterion) else sign

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

    def _consistency(self) -> dict[str, np.ndarray]:
        """Return per criterion [2, cases]: how many pairs shown in several orders were judged alike in all, and how many."""
        counts: dict[str, np.ndarray] = {}
        for (criterion, first, _), runs in self.by_order.items():
            case = self.cases.panel.case[first]
            for seen in runs.values():
                if len({order for order, _ in seen}) > 1:
                    own = counts.setdefault(criterion, np.zeros((2, len(self.cases))))
                    own[:, case] += (len({relation for _, relation in seen}) == 1, 1)
        return counts


Values = dict[int, float]  # index of a response in its case → value


def own_values(verdict: Verdict, rubric: Rubric | None = None, models: Sequence[str] = ()) -> Values:
    """Return what a verdict itself gave: whole scores, shares of criteria won, or the only numbers of a likelihood judge.

    Args:
        rubric: of a pairwise judge, for the criteria on which a choice means the worse response.
        models: of the case, in its order; by default those that the verdict names.
    """
    if not verdict.valid:
        return {}
    if verdict.choices:
        return _shares(verdict, rubric, models or verdict.extra["models"])
    given = verdict.scores if verdict.scores is not None else verdict.expected_scores
    return {index: float(given[index]) for index in verdict.order if given[index] is not None}


def expected_values(verdict: Verdict) -> Values | None:
    """Return a valid verdict's expected scores; None where it lacks one."""
    given = verdict.expected_scores
    if not verdict.valid or given is None or any(given[index] is None for index in verdict.order):
        return None
    return {index: float(given[index]) for index in verdict.order}


def _shares(verdict: Verdict, rubric: Rubric | None, models: Sequence[str]) -> Values:
    worse = {each.name for each in rubric.criteria if each.polarity == "worse"} if rubric else set()
    total = dict.fromkeys(verdict.order, 0.0)
    for criterion, choice in verdict.choices.items():
        for index in verdict.order:
            share = 0.5 if choice in ("tie", "neither") else float(choice == models[index])
            total[index] += 1 - share if criterion in worse else share
    return {index: value / len(verdict.choices) for index, value in total.items()}


@dataclass
class Readings:
    """The verdicts of one judge by one rubric on these cases.

    Args:
        cases: what they are about.
        verdicts: one per reading.
        rubric: of the judge, None where it is not at hand.
    """

    cases: Cases
    verdicts: Sequence[Verdict]
    rubric: Rubric | None = None

    def __post_init__(self) -> None:
        valid = [verdict for verdict in self.verdicts if verdict.valid]
        finer = [expected_values(verdict) for verdict in valid]
        # Where some verdicts lack them, an endpoint's probabilities say nothing about the judge as a whole.
        self.has_expected = bool(valid) and all(values is not None for values in finer)
        self.has_own = any(verdict.scores is not None or verdict.choices for verdict in valid)
        group, response, slot, own, fine = [], [], [], [], []
        for number, (verdict, values) in enumerate(zip(valid, finer)):
            case = self.cases.index[verdict.case_id]
            start = int(self.cases.start[case])
            mine = own_values(verdict, self.rubric, self.cases.records[case].models)
            for index in sorted(verdict.order):
                group.append(number)
                response.append(start + index)
                slot.append(verdict.order.index(index))
                own.append(mine.get(index, np.nan))
                fine.append(values[index] if self.has_expected else np.nan)
        self.valid = valid
        self.response, self.slot = np.array(response, int), np.array(slot, int)
        self.own, self.expected = np.array(own, float), np.array(fine, float)
        case_of = np.array([self.cases.index[verdict.case_id] for verdict in valid], int)
        # Pairs are formed within readings.
        self.panel = Panel(np.array(group, int), case_of, len(self.cases))

    @property
    def finest(self) -> np.ndarray:
        """The values, float [entries]: expected scores where every verdict has them, else the judge's own."""
        return self.expected if self.has_expected else self.own

    @property
    def unit(self) -> float:
        """Return what one step is: a point, a share of the criteria; for a judge without a scale the values' own spread."""
        if self.has_own or not len(self.finest):
            return 1.0
        return float(np.std(self.finest)) or 1.0

    @property
    def unit_name(self) -> str:
        """Return what figures are measured in."""
        if not self.has_own:
            return "standard deviations of its values"
        return "share of criteria won" if any(verdict.choices for verdict in self.valid) else "points"

    @cached_property
    def pairs(self) -> np.ndarray:
        """The number of each reading's pairs in `cases.panel.pairs`, int [pairs of readings]."""
        first, second = (self.response[side] for side in self.panel.pairs)
        ours = [side.astype(np.int64) for side in self.cases.panel.pairs]
        keys = ours[0] * self.cases.responses + ours[1]  # sorted, as the panel's pairs are
        return np.searchsorted(keys, first.astype(np.int64) * self.cases.responses + second)

    @cached_property
    def run(self) -> np.ndarray:
        """The run of each reading."""
        return np.array([verdict.run for verdict in self.valid], int)

    @cached_property
    def mean_gaps(self) -> np.ndarray:
        """How far the first response of every pair stands above the second, on average over readings: float [case pairs]."""
        first, second = self.panel.pairs
        gaps = self.finest[first] - self.finest[second]
        count = len(self.cases.panel.pairs[0])
        total, known = (
            np.bincount(self.pairs, weights=values, minlength=count) for values in (gaps, np.ones(len(gaps)))
        )
        return np.where(known > 0, total / np.maximum(known, 1), np.nan)

    @cached_property
    def mean_values(self) -> np.ndarray:
        """Each response's value on average over readings: float [responses of the cases]; NaN where it has none."""
        total, known = (
            np.bincount(self.response, weights=values, minlength=self.cases.responses)
            for values in (self.finest, np.ones(len(self.response)))
        )
        return np.where(known > 0, total / np.maximum(known, 1), np.nan)

    def relations(self) -> np.ndarray:
        """Return the relation of every pair of responses by the mean over readings: -1, 0, 1; NaN where none was judged."""
        gaps = self.mean_gaps
        return np.where(np.isnan(gaps), np.nan, np.where(np.abs(gaps) <= 1e-9, 0.0, np.sign(gaps)))


@dataclass
class Row:
    """One line of the table: a judge, one criterion of a pairwise judge, or a baseline.

    `scores` and `expected` are float [responses] or None, `relation` [pairs] is given where a judge compares pairs.
    """

    name: str
    evidence: JudgeEvidence
    scores: np.ndarray | None = None
    expected: np.ndarray | None = None
    relation: np.ndarray | None = None
    criterion: str | None = None

    def relations(self, panel: Panel) -> np.ndarray:
        """Return the relations that this judge's own words mean: choices, else scores, else expected scores."""
        if self.relation is not None:
            return self.relation
        values = self.scores if self.scores is not None else self.expected
        return np.full(len(panel.pairs[0]), np.nan) if values is None else panel.relations(values)

    def finest(self, panel: Panel) -> np.ndarray:
        """Return the relations behind the headline: of expected scores where there are any."""
        return self.relations(panel) if self.expected is None else panel.relations(self.expected)

    def rated(self, people: People) -> np.ndarray:
        """Return people's scores of the responses that this judge was asked about, NaN for the others."""
        asked = self.evidence.asked
        return people.scores if asked is None else np.where(asked, people.scores, np.nan)

    def known_relations(self, cases: Cases, people: People) -> np.ndarray:
        """Return people's relations of the pairs that this judge was asked about, float [pairs]."""
        relation, asked = cases.panel.relations(self.rated(people)), self.evidence.asked_pairs
        return relation if asked is None else np.where(asked, relation, np.nan)

    @property
    def headline(self) -> str:
        """The concordance that compares judges which tie with such that do not: from expected scores where there are any."""
        return "concordance_expected" if self.expected is not None else "concordance"


def rows_of(judges: Sequence[JudgeEvidence]) -> list[Row]:
    """Return the lines of the table, a pairwise judge taking one per criterion."""
    rows = []
    for evidence in judges:
        if evidence.relations:
            for criterion, relation in evidence.relations.items():
                rows.append(Row(f"{evidence.name}: {criterion}", evidence, relation=relation, criterion=criterion))
        else:
            scores = None if np.isnan(evidence.scores).all() else evidence.scores
            # Where some verdicts lack them, an endpoint's probabilities say nothing about the judge as a whole.
            lacking = np.isnan(evidence.expected)
            partly = bool((lacking & ~np.isnan(evidence.scores)).any())
            rows.append(Row(evidence.name, evidence, scores, None if partly or lacking.all() else evidence.expected))
    return rows
