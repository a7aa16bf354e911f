"""The content of agreement.json by plain loops over the lines of the files, to compare `meta_evaluate` with.

It follows the definitions of docs/believe.md and of the docstrings, and imports nothing of the package. Every figure is a
function of a list of case numbers, so that a resample of the bootstrap is only a list with repetitions.
"""

import copy
import hashlib
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import krippendorff
import numpy as np
from sklearn.metrics import cohen_kappa_score

WORSE = {"harmfulness": "neither"}  # criterion of medical_pairwise whose choice is the worse response → neutral answer
SAME = 1e-9
MEASURES = ("pairwise_accuracy", "pairwise_accuracy_untied", "concordance", "triple_accuracy", "listwise_accuracy")
LEAST_RATED = 5  # as the test sets `main_judge.LEAST_RATED`
CORRELATIONS = ("spearman", "pearson", "spearman_within_case", "pearson_within_case")


@dataclass(frozen=True)
class Figure:
    """A figure as a function of case numbers, with the number of its units and the numbers of the cases that it rests on."""

    of: Callable[[Sequence[int]], float | None]
    n: int
    cases: frozenset[int] = frozenset()
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Skipped:
    """A key whose value is not compared, with the reason."""

    reason: str


@dataclass(frozen=True)
class PValue:
    """A p-value, or None."""


@dataclass(frozen=True)
class Near:
    """A number that is found by iteration: compared to a tolerance; an estimate is compared in its value and its n."""

    value: float
    n: int | None = None


@dataclass(frozen=True)
class Ranked:
    """Case ids in the order of their weights, the largest first; cases of one weight may stand in any order."""

    weights: dict[str, float]
    most: int


@dataclass(frozen=True)
class Undefined:
    """An estimate that is null, with a reason."""

    n: int = 0


def mean(values: Sequence[float]) -> float | None:
    total = 0.0
    for value in values:
        total += value
    return total / len(values) if values else None


def share(units: Sequence[tuple[int, float]], bounds: tuple[float, float] | None = (0.0, 1.0)) -> Figure:
    """Return the mean of (case, value) units."""

    def of(drawn: Sequence[int]) -> float | None:
        return mean([value for case in drawn for at, value in units if at == case])

    return Figure(of, len(units), frozenset(case for case, _ in units), bounds)


def relation(one: float | None, two: float | None, band: float = SAME) -> int | None:
    if one is None or two is None:
        return None
    return 0 if abs(one - two) <= max(band, SAME) else 1 if one > two else -1


def accuracies(groups: Sequence[tuple[int, Sequence[tuple[int | None, int | None]]]]) -> dict[str, Figure]:
    """Return the accuracies of (case, [(relation of people, relation of the judge), …]) groups.

    The pairs of a group are all pairs of its responses, in the order of `itertools.combinations`.
    """
    known = [(case, people, judge) for case, pairs in groups for people, judge in pairs if people is not None]
    untied = [each for each in known if each[1] != 0]
    lists = [(case, [pair for pair in pairs if pair[0] is not None]) for case, pairs in groups]
    triples = []
    for case, pairs in groups:
        size = next(size for size in itertools.count() if size * (size - 1) // 2 >= len(pairs))
        by_places = dict(zip(itertools.combinations(range(size), 2), pairs, strict=True))
        for three in itertools.combinations(range(size), 3):
            own = [by_places[two] for two in itertools.combinations(three, 2)]
            if all(people is not None for people, _ in own):
                triples.append((case, float(all(people == judge for people, judge in own))))
    return {
        "pairwise_accuracy": share([(case, float(people == judge)) for case, people, judge in known]),
        "pairwise_accuracy_untied": share([(case, float(people == judge)) for case, people, judge in untied]),
        "concordance": share(
            [(case, 1.0 if judge == people else 0.5 if judge == 0 else 0.0) for case, people, judge in untied]
        ),
        "triple_accuracy": share(triples),
        "listwise_accuracy": share([(case, float(all(p == j for p, j in pairs))) for case, pairs in lists if pairs]),
    }


def spread(values: Sequence[float]) -> bool:
    return len(values) > 1 and max(values) - min(values) > SAME


def correlation(kind: str, points: Sequence[tuple[float, float]]) -> float | None:
    xs, ys = map(list, zip(*points)) if points else ([], [])
    if not spread(xs) or not spread(ys):
        return None
    return statistics.correlation(*((xs, ys) if kind == "pearson" else map(midranks, (xs, ys))))


def midranks(values: Sequence[float]) -> list[float]:
    values = [round(value, 9) for value in values]
    return [sum(other < value for other in values) + sum(other == value for other in values) / 2 for value in values]


def correlations(groups: Sequence[tuple[int, Sequence[tuple[float | None, float | None]]]]) -> dict[str, Figure]:
    """Return the correlations of (case, [(score of people, score of the judge), …]) groups."""
    both = [(case, [pair for pair in points if None not in pair]) for case, points in groups]
    cases = frozenset(case for case, points in both if points)
    found = {}
    for kind in ("spearman", "pearson"):

        def pooled(drawn: Sequence[int], kind: str = kind) -> float | None:
            return correlation(kind, [pair for case in drawn for at, points in both if at == case for pair in points])

        found[kind] = Figure(pooled, sum(len(points) for _, points in both), cases)
        within = [(case, correlation(kind, points)) for case, points in both]
        found[f"{kind}_within_case"] = share([each for each in within if each[1] is not None], None)
    return found


class Loops:
    """The figures of one set of files.

    Args:
        cases, verdicts, ratings, choices, verdict_ratings, preferences: the lines of the files; ratings may be None.
        raters: as the option of recipes/report.py.
        baselines: name → the score of every response of the cases in the order given, None where it has none.
        source: the name of the file of cases.
    """

    def __init__(
        self,
        cases: list[dict],
        verdicts: list[dict],
        ratings: list[dict] | None,
        choices: list[dict] = (),
        verdict_ratings: list[dict] = (),
        preferences: list[dict] = (),
        raters: str | None = None,
        baselines: dict[str, list[float | None]] | None = None,
        source: str = "",
    ):
        self.source, self.raters = source, raters
        flat = [(case["id"], response["model"]) for case in cases for response in case["responses"]]
        self.models = list(dict.fromkeys(model for _, model in flat))
        # Cases are numbered by a hash of their ids, so that the order of the file changes no figure.
        self.cases = sorted(cases, key=lambda case: hashlib.sha256(case["id"].encode()).digest())
        self.number = {case["id"]: number for number, case in enumerate(self.cases)}
        self.names = [[response["model"] for response in case["responses"]] for case in self.cases]
        self.responses = [(number, place) for number, names in enumerate(self.names) for place in range(len(names))]
        self.pairs = [
            (number, one, two)
            for number, names in enumerate(self.names)
            for one, two in itertools.combinations(range(len(names)), 2)
        ]
        self.length = {
            (number, place): len(response["text"].split())
            for number, case in enumerate(self.cases)
            for place, response in enumerate(case["responses"])
        }
        self.verdicts = verdicts
        self.ratings, self.votes = ratings, list(choices)
        self.verdict_ratings, self.preferences = list(verdict_ratings), list(preferences)
        self.rows: list[Row] = []
        authors = list(dict.fromkeys((verdict["judge"], verdict["rubric"]) for verdict in verdicts))
        for author in authors:
            own = [verdict for verdict in verdicts if (verdict["judge"], verdict["rubric"]) == author]
            criteria = list(dict.fromkeys(c for verdict in own if verdict["valid"] for c in verdict["choices"] or ()))
            self.rows += [Row(self, own, criterion, criteria) for criterion in criteria or [None]]
        for name, scores in (baselines or {}).items():
            placed = dict(zip(flat, scores))
            known = {
                key: placed[self.cases[key[0]]["id"], self.names[key[0]][key[1]]]
                for key in self.responses
            }  # fmt: skip
            self.rows.append(Row(self, [], None, [], name, known))
        self.annotators = sorted({rating["annotator"] for rating in ratings or ()})
        self.criteria = sorted({rating["criterion"] for rating in ratings or ()})
        self.given = {
            (*self.response_of(each), each["annotator"], each["criterion"]): each["score"] for each in ratings or ()
        }
        self.by_annotator: dict[tuple, float] = {}
        for number, place in self.responses:
            for annotator in self.annotators:
                scores = [self.given.get((number, place, annotator, criterion)) for criterion in self.criteria]
                if known := [score for score in scores if score is not None]:
                    self.by_annotator[number, place, annotator] = mean(known)
        self.people: dict[tuple, float] = {}
        for number, place in self.responses:
            scores = [self.by_annotator.get((number, place, annotator)) for annotator in self.annotators]
            if known := [score for score in scores if score is not None]:
                self.people[number, place] = mean(known)

    def response_of(self, rating: dict) -> tuple[int, int]:
        return self.number[rating["case_id"]], self.place(rating["case_id"], rating["model"])

    def place(self, case_id: str, model: str) -> int:
        return self.names[self.number[case_id]].index(model)

    # --- the file

    def content(self) -> dict[str, Any]:
        """Return what agreement.json should hold."""
        found: dict[str, Any] = {
            "cases": self.counts(),
            "judges": {row.name: self.judge(row) for row in self.rows},
            "models": {
                row.name: self.candidates(row.relations, row.scores, row.expected)
                for row in self.rows
                if row.kind == "judge"
            },
        }
        for row in self.rows:
            for model, record in found["models"].get(row.name, {}).get("models", {}).items():
                record["longer"] = self.longer_of(model, row.relations)
        found["main_judge"] = self.main_judge()
        if self.ratings is not None:
            by_people = {
                (number, one, two): relation(self.people.get((number, one)), self.people.get((number, two)))
                for number, one, two in self.pairs
            }
            found["people"] = self.of_people(by_people)
            found["models"]["people"] = self.candidates(by_people, self.people, None)
            found["comparisons"] = self.comparisons()
            found["over_runs"] = self.over_runs(found["judges"])
            found["rounds"] = self.rounds(found["over_runs"])
        if self.votes:
            found["choices"] = self.of_choices()
        if self.verdict_ratings:
            found["verdict_ratings"] = self.of_verdict_ratings()
        if self.preferences:
            found["preferences"] = self.of_preferences()
        return found

    def counts(self) -> dict[str, Any]:
        found = {
            "file": self.source,
            "cases": len(self.cases),
            "responses": len(self.responses),
            "pairs": len(self.pairs),
            "models": len(self.models),
        }
        if self.ratings is None:
            return found
        known = [
            relation(self.people.get((number, one)), self.people.get((number, two))) for number, one, two in self.pairs
        ]
        return found | {
            "rated_cases": len({number for number, _ in self.people}),
            "rated_responses": len(self.people),
            "rated_pairs": sum(each is not None for each in known),
            "tied_pairs": sum(each == 0 for each in known),
        }

    # --- one judge

    def judge(self, row: "Row") -> dict[str, Any]:
        valid = [verdict for verdict in row.verdicts if verdict["valid"]]
        units = [(self.number[verdict["case_id"]], float(verdict["valid"])) for verdict in row.verdicts]
        units += [(case, 0.0) for case in row.missing()]
        if row.kind == "baseline":
            units = [(number, 1.0) for number in range(len(self.cases))]
        usage: Counter = Counter()
        for verdict in row.verdicts:
            usage.update(verdict["usage"])
        found: dict[str, Any] = {
            "kind": row.kind,
            "name": row.judge if row.criterion is None else row.name.partition(":")[0],
            "judge": row.judge,
            "rubric": row.rubric,
            "criterion": row.criterion,
            "settings": next((each["settings"] for each in reversed(row.verdicts) if "settings" in each), None),
            "checkpoint": self.checkpoint(row),
            "verdicts": len(units),
            "errors": dict(Counter(each["error"] or "unknown" for each in row.verdicts if not each["valid"])),
            "blind_to": next((each["blind_to"] for each in row.verdicts if "blind_to" in each), None),
            "empty": row.silent(),
            "unread": {} if row.kind == "baseline" else row.unread(),
            "usage": dict(usage) if row.criterion in (None, *row.criteria[:1]) else {},
            "polarity": "worse" if row.criterion in WORSE else "better",
            "valid_rate": share(units),
            "prefers_longer": self.prefers_longer(row.relations),
        }
        if slots := row.slots(valid):
            found["slots"] = slots
        if alike := row.alike(valid):
            found["order_consistency"] = share(alike)
        if row.scores is not None:
            found["scores"] = histogram(list(row.scores.values()))
        return found | (self.agreement(row) if self.ratings is not None else {})

    def checkpoint(self, row: "Row") -> str | None:
        found = {str(verdict.get("checkpoint") or "") for verdict in row.verdicts}
        return (found.pop() or None) if len(found) == 1 else None

    def prefers_longer(self, relations: dict[tuple, int | None]) -> Figure:
        units = []
        for number, one, two in self.pairs:
            longer = relation(self.length[number, one], self.length[number, two])
            chosen = relations[number, one, two]
            if longer != 0 and chosen is not None:
                units.append((number, 1.0 if chosen == longer else 0.5 if chosen == 0 else 0.0))
        return share(units)

    def groups(self, row: "Row", judged: dict[tuple, int | None]) -> list[tuple[int, list]]:
        """Return (case, [(relation of people, relation of the judge), …]) of every case."""
        people = row.people_relations()
        return [
            (number, [(people[pair], judged[pair]) for pair in self.pairs if pair[0] == number])
            for number in range(len(self.cases))
        ]

    def points(self, row: "Row", scores: dict[tuple, float]) -> list[tuple[int, list]]:
        return [
            (
                number,
                [
                    (self.people.get(key) if row.asked[key] else None, scores.get(key))
                    for key in self.responses
                    if key[0] == number
                ],
            )
            for number in range(len(self.cases))
        ]

    def measures(self, row: "Row") -> dict[str, Any]:
        """Return the measures of a row from its own scores or choices, and from its expected scores."""
        found: dict[str, Any] = dict.fromkeys((*MEASURES, *CORRELATIONS), Undefined())
        if row.criterion is not None or row.scores is not None or row.expected is None:
            found |= accuracies(self.groups(row, row.relations))
        if row.scores is not None:
            found |= correlations(self.points(row, row.scores))
        twins = dict.fromkeys((*MEASURES, *CORRELATIONS), Undefined())
        if row.expected is not None:
            banded, bands = self.banded(row, row.expected)
            twins = accuracies(self.groups(row, banded)) | correlations(self.points(row, row.expected))
            twins["concordance"] = accuracies(self.groups(row, self.ordered(row.expected)))["concordance"]
            found["tie_bands"] = bands
        return found | {f"{name}_expected": twin for name, twin in twins.items()}

    def by_criterion(self, row: "Row") -> dict[str, Any]:
        """Return the agreement of the scores on each criterion with people's ratings on it."""
        judged: dict[str, dict[tuple, list[float]]] = {}
        for verdict in row.verdicts:
            for name, scores in (verdict.get("criterion_scores") or {}).items() if verdict["valid"] else ():
                for place in verdict["order"]:
                    if scores[place] is not None:
                        key = (self.number[verdict["case_id"]], place)
                        judged.setdefault(name, {}).setdefault(key, []).append(scores[place])
        found = {}
        for name in judged.keys() & set(self.criteria):
            own = {key: mean(values) for key, values in judged[name].items()}
            rated = {}
            for key in self.responses:
                given = [self.given[*key, one, name] for one in self.annotators if (*key, one, name) in self.given]
                rated[key] = mean(given) if row.asked[key] else None
            groups, points = [], []
            for number in range(len(self.cases)):
                pairs = [((number, one), (number, two)) for case, one, two in self.pairs if case == number]
                both = [tuple(relation(by.get(one), by.get(two)) for by in (rated, own)) for one, two in pairs]
                groups.append((number, both))
                points.append((number, [(rated[key], own.get(key)) for key in self.responses if key[0] == number]))
            found[name] = {
                "concordance": accuracies(groups)["concordance"],
                "pearson": correlations(points)["pearson"],
            }
        return found

    def agreement(self, row: "Row") -> dict[str, Any]:
        found = self.measures(row)
        finest = row.relations if row.expected is None else self.ordered(row.expected)
        found["headline"] = "concordance" if row.expected is None else "concordance_expected"
        runs = row.runs()
        found["runs"] = [{"run": run} | self.measures(row.of_run(run)) for run in runs] if len(runs) > 1 else None
        topics = Counter(case["topic"] for case in self.cases if case["topic"])
        people = row.people_relations()

        def over(pairs: list[tuple]) -> Figure:
            return accuracies([(pair[0], [(people[pair], finest[pair])]) for pair in pairs])["concordance"]

        found["topics"] = {
            topic: over([pair for pair in self.pairs if self.cases[pair[0]]["topic"] == topic])
            for topic in (topics if len(topics) > 1 else ())
        }
        found["candidates"] = {
            model: over([(n, a, b) for n, a, b in self.pairs if model in (self.names[n][a], self.names[n][b])])
            for model in self.models
        }
        found["by_criterion"] = self.by_criterion(row)
        if len(self.annotators) > 1 and (row.expected is not None or row.scores is not None):
            found["against_the_other_raters"] = self.against_the_others(row)
        if row.kind != "judge":
            return found
        values = row.scores if row.expected is None else row.expected
        found["reliability"] = self.reliability(values or {})
        weights: Counter = Counter()
        for pair in self.pairs:
            number, one, two = pair
            if people[pair] is not None and row.relations[pair] is not None:
                gap = abs(self.people[number, one] - self.people[number, two])
                weights[self.cases[number]["id"]] += gap * abs(people[pair] - row.relations[pair])
        found["worst"] = Ranked({name: weight for name, weight in weights.items() if weight > 1e-12}, 10)
        if row.expected is not None:
            found["risk_coverage"] = self.risk_coverage(row, people, finest)
        return found

    def ordered(self, scores: dict[tuple, float]) -> dict[tuple, int | None]:
        """Return a judge's relations: an empty response loses a tie with an answer."""
        found = self.relations(scores)
        for number, one, two in self.pairs:
            silent = [not self.length[number, place] for place in (one, two)]
            if found[number, one, two] == 0 and silent[0] != silent[1]:
                found[number, one, two] = -1 if silent[0] else 1
        return found

    def relations(self, scores: dict[tuple, float], bands: Sequence[float] = ()) -> dict[tuple, int | None]:
        return {
            (number, one, two): relation(
                scores.get((number, one)), scores.get((number, two)), bands[number % 5] if bands else 0.0
            )
            for number, one, two in self.pairs
        }

    def banded(self, row: "Row", expected: dict[tuple, float]) -> tuple[dict[tuple, int | None], list[float]]:
        """Return relations with a tie band per fold, chosen on the cases of the other folds, and the bands.

        The band is the smallest gap that makes most pairs right; 0 where no gap improves on no band.
        """
        people, bands = row.people_relations(), []
        for fold in range(min(5, len(self.cases))):
            gaps = []
            for number, one, two in self.pairs:
                pair = (number, one, two)
                if (
                    number % 5 != fold
                    and people[pair] is not None
                    and {(number, one), (number, two)} <= expected.keys()
                ):
                    gaps.append((abs(expected[number, one] - expected[number, two]), pair))

            def right(band: float, gaps: list = gaps) -> int:
                ours = ((relation(expected[p[0], p[1]], expected[p[0], p[2]], band), p) for _, p in gaps)
                return sum(judged == people[p] for judged, p in ours)

            best, most = 0.0, right(0.0)
            for band in sorted({gap for gap, _ in gaps}):
                if right(band) > most:
                    best, most = band, right(band)
            bands.append(best)
        return self.relations(expected, bands), bands

    def against_the_others(self, row: "Row") -> dict[str, Figure]:
        ranked = self.ordered(row.scores if row.expected is None else row.expected)
        judged, by_one = [], []
        for number, others, own in self.left_out():
            asked = {place: score for place, score in others.items() if row.asked[number, place]}
            pairs = list(itertools.combinations(sorted(others), 2))
            ours = [
                (
                    relation(asked.get(a), asked.get(b)),
                    ranked[number, a, b],
                    relation(own[a], own[b]),
                )
                for a, b in pairs
            ]
            judged.append((number, [(people, judge) for people, judge, _ in ours]))
            by_one.append((number, [(people, rater) for people, _, rater in ours]))
        return {
            "judge": accuracies(judged)["concordance"],
            "one_rater": accuracies(by_one)["concordance"],
        }

    def left_out(self) -> list[tuple[int, dict[int, float], dict[int, float]]]:
        """Return, per rater and case, (case, the means of the others, the rater's own scores), by place of the response."""
        found = []
        for annotator in self.annotators:
            for number in range(len(self.cases)):
                others, own = {}, {}
                for place in range(len(self.names[number])):
                    rest = [
                        self.by_annotator[number, place, other]
                        for other in self.annotators
                        if other != annotator and (number, place, other) in self.by_annotator
                    ]
                    if rest and (number, place, annotator) in self.by_annotator:
                        others[place], own[place] = mean(rest), self.by_annotator[number, place, annotator]
                found.append((number, others, own))
        return found

    def reliability(self, values: dict[tuple, float]) -> list[dict[str, float]]:
        """Return the means in bins between the distinct deciles of the judge's scores; a bin has its lower end."""
        points = [(values[key], self.people[key]) for key in self.responses if key in values and key in self.people]
        if len(points) < 20:
            return []
        ordered, edges = sorted(judge for judge, _ in points), []
        for tenth in range(11):
            place = tenth * (len(ordered) - 1) / 10
            low = math.floor(place)
            high = min(low + 1, len(ordered) - 1)
            edge = ordered[low] + (ordered[high] - ordered[low]) * (place - low)
            if not edges or edge > edges[-1] + SAME:
                edges.append(edge)
        bins: dict[int, list] = {}
        for judge, people in points:
            bin_ = max(place for place, edge in enumerate(edges) if judge >= edge - SAME or place == 0)
            bins.setdefault(min(bin_, max(0, len(edges) - 2)), []).append((judge, people))
        return [
            {"judge": mean([j for j, _ in own]), "people": mean([p for _, p in own]), "n": len(own)}
            for _, own in sorted(bins.items())
        ]

    def risk_coverage(self, row: "Row", people: dict, finest: dict) -> list[dict[str, Any]]:
        wrong: dict[int, list[float]] = {}
        gaps: dict[int, list[float]] = {}
        for pair in self.pairs:
            number, one, two = pair
            if people[pair] not in (None, 0):
                wrong.setdefault(number, []).append(float(finest[pair] != people[pair]))
            if {(number, one), (number, two)} <= row.expected.keys():
                gaps.setdefault(number, []).append(abs(row.expected[number, one] - row.expected[number, two]))
        sure = {number: mean(own) for number, own in gaps.items() if number in wrong}
        ordered, points = sorted(sure.values(), reverse=True), []
        for tenth in range(1, 11):
            count = min(len(ordered), math.ceil(len(wrong) * tenth / 10))
            if not count or (points and points[-1]["threshold"] == ordered[count - 1]):
                continue
            kept = [number for number in sure if sure[number] >= ordered[count - 1]]
            points.append(
                {
                    "threshold": ordered[count - 1],
                    "coverage": len(kept) / len(wrong),
                    "cases": len(kept),
                    "risk": share([(number, mean(wrong[number])) for number in kept]),
                }
            )
        return points

    # --- candidates

    def candidates(self, relations: dict, scores: dict | None, expected: dict | None) -> dict[str, Any]:
        games = [
            (number, self.names[number][one], self.names[number][two], relations[number, one, two])
            for number, one, two in self.pairs
            if relations[number, one, two] is not None
        ]
        there = [model for model in self.models if any(model in (one, two) for _, one, two, _ in games)]
        reached = set(there[:1])
        for _ in there:
            reached |= {model for _, *two, _ in games if reached & set(two) for model in two}
        if len(there) < 2 or reached != set(there):
            return {"gap": Skipped("words")}
        table: dict[str, Any] = {}
        for model in there:
            table[model] = {}
            for label, values in (("score", scores), ("expected", expected)):
                if values is not None:
                    own = [
                        (key[0], values[key])
                        for key in self.responses
                        if self.names[key[0]][key[1]] == model and key in values
                    ]
                    table[model][label] = share(own, None)
            wins = [
                (case, (1 + (way if one == model else -way)) / 2)
                for case, one, two, way in games
                if model in (one, two)
            ]
            table[model]["win_rate"] = share(wins)
        pairs = []
        for first, second in itertools.combinations(there, 2):
            met = [
                (case, way if one == first else -way) for case, one, two, way in games if {one, two} == {first, second}
            ]
            if met:
                record: dict[str, Any] = {"pair": [first, second]}
                for label, way in (("win", 1), ("tie", 0), ("loss", -1)):
                    record[label] = share([(case, float(own == way)) for case, own in met])
                record["margin"] = share([(case, float(own)) for case, own in met], (-1.0, 1.0))
                record |= {"p": PValue(), "p_adjusted": PValue()}
                pairs.append(record)
        first = {"first_places": Skipped("test_main_judge.py")}
        return {"models": table, "pairs": pairs} | first | self.strengths(games, there)

    def longer_of(self, model: str, relations: dict) -> list[int]:
        """Return in how many comparisons of a model its response has more words, and the number of comparisons."""
        found = [0, 0]
        for number, one, two in self.pairs:
            for own, other in ((one, two), (two, one)):
                if self.names[number][own] == model and relations[number, one, two] is not None:
                    found[0] += self.length[number, own] > self.length[number, other]
                    found[1] += 1
        return found

    def main_judge(self) -> dict[str, Any]:
        """Return the record of the main judge; with `LEAST_RATED` rated cases it is chosen by cross-fitting."""
        rivals = [row for row in self.rows if row.kind == "judge"]
        folds: list[Row] = []
        main, how, relations, ordered = rivals[0], "only" if len(rivals) == 1 else "first", {}, []
        if self.ratings is not None:
            told = [row.people_relations() for row in rivals]
            relations = {p: None if any(own[p] is None for own in told) else told[0][p] for p in self.pairs}
            ordered = sorted({pair[0] for pair in self.pairs if relations[pair]})
        fold_of = {number: number % 5 for number in range(len(self.cases))}
        if len(rivals) > 1 and len(ordered) >= LEAST_RATED:
            how = "cross-fitted"
            fold_of |= {number: place % 5 for place, number in enumerate(ordered)}

            def best(fold: int | None) -> Row:
                use = [pair for pair in self.pairs if relations[pair] and fold_of[pair[0]] != fold]
                return max(rivals, key=lambda row: sum(self.credit(relations[p], row.finest()[p]) for p in use))

            main, folds = best(None), [best(fold) for fold in range(5)]
        elif self.ratings is not None and how == "first":
            relations = main.people_relations()
        found: dict[str, Any] = {"name": main.name, "how": how, "rated_cases": len(ordered)}
        found |= {"folds": [row.name for row in folds], "valid_rates": self.valid_rates(main)}
        found["cases"] = self.worth_reading(main)
        if self.ratings is not None:
            row_of = {number: folds[fold_of[number]] if folds else main for number in fold_of}
            groups = [(p[0], [(relations[p], row_of[p[0]].finest()[p])]) for p in self.pairs]
            found["concordance"] = accuracies(groups)["concordance"]
            if len(self.annotators) > 1 and all(row.values is not None for row in row_of.values()):
                stitched = copy.copy(main)
                stitched.scores = {
                    key: row_of[key[0]].values[key] for key in self.responses if key in row_of[key[0]].values
                }
                stitched.asked = {key: row_of[key[0]].asked[key] for key in self.responses}
                stitched.expected = None
                found["against_the_other_raters"] = self.against_the_others(stitched)
            self.above_baselines = []
            for row in self.rows:
                people = row.people_relations()
                both = {p: None if people[p] is None else relations[p] for p in self.pairs}
                if row.kind == "baseline" and any(both.values()):
                    use = [pair for pair in self.pairs if both[pair]]
                    above = [
                        self.credit(both[p], row_of[p[0]].finest()[p]) - self.credit(both[p], row.finest()[p])
                        for p in use
                    ]
                    self.above_baselines.append(mean(above))
        return found

    @staticmethod
    def credit(people: int, judge: int | None) -> float:
        return 1.0 if judge == people else 0.5 if judge == 0 else 0.0

    def valid_rates(self, row: "Row") -> dict[str, Figure]:
        """Return each model's share of valid verdicts, with a verdict that is missing as one that is not valid."""
        units: dict[str, list] = {}
        for verdict in row.verdicts:
            number = self.number[verdict["case_id"]]
            for place in verdict["order"]:
                units.setdefault(self.names[number][place], []).append((number, float(row.says(verdict, place))))
        for run in row.runs():
            own = [verdict for verdict in row.verdicts if verdict["run"] == run]
            if row.of_pairs:
                there = {row.pair_of(each) for each in own}
                lost_pairs = [pair for pair, asked in row.asked_pairs().items() if asked and pair not in there]
                lost = [(number, place) for number, *both in lost_pairs for place in both]
            else:
                shown = {(self.number[each["case_id"]], place) for each in own for place in each["order"]}
                lost = [key for key in self.responses if row.asked[key] and key not in shown]
            for number, place in lost:
                units.setdefault(self.names[number][place], []).append((number, 0.0))
        return {model: share(own) for model, own in units.items()}

    def worth_reading(self, row: "Row") -> dict[str, Ranked]:
        """Return the cases in which the models differ, the judge errs, and the judge is least sure."""
        differ, wrong, sure = {}, {}, {}
        alike = row.alike([verdict for verdict in row.verdicts if verdict["valid"]])
        people = row.people_relations() if self.ratings is not None else {}
        for number, case in enumerate(self.cases):
            places = range(len(self.names[number]))
            pairs = [pair for pair in self.pairs if pair[0] == number]
            if row.values is not None:
                values = [row.values[number, place] for place in places if (number, place) in row.values]
            else:
                values = [
                    sum((1 if place == p[1] else -1) * (row.relations[p] or 0) for p in pairs if place in p[1:])
                    for place in places
                ]
            differ[case["id"]] = max(values, default=0) - min(values, default=0)
            for _, a, b in pairs:
                if people.get((number, a, b)) is not None and row.relations[number, a, b] is not None:
                    gap = abs(self.people[number, a] - self.people[number, b])
                    off = abs(people[number, a, b] - row.relations[number, a, b])
                    wrong[case["id"]] = wrong.get(case["id"], 0) + gap * off
            if row.expected is not None:
                apart = [
                    abs(row.expected[number, a] - row.expected[number, b])
                    for _, a, b in pairs
                    if {(number, a), (number, b)} <= row.expected.keys()
                ]
            else:
                apart = [one for at, one in alike if at == number]
            if apart:
                sure[case["id"]] = -mean(apart)
        lists = {"models_differ": differ} | ({"people_disagree": wrong} if self.ratings is not None else {})
        found = {name: Ranked({k: v for k, v in some.items() if v > 1e-12}, 10) for name, some in lists.items()}
        if row.expected is not None or alike:
            found["least_sure"] = Ranked(sure, 10)
        return found

    def strengths(self, games: list[tuple], there: list[str]) -> dict[str, Any]:
        """Return Bradley–Terry strengths by the iteration of Zermelo, ties as half a win for each."""
        won = {(one, two): 0.0 for one in there for two in there}
        for _, one, two, way in games:
            won[one, two] += (1 + way) / 2
            won[two, one] += (1 - way) / 2
        beaten = {one: {two for two in there if won[one, two] > 0} for one in there}
        for _ in there:
            beaten = {one: own.union(*(beaten[two] for two in own)) for one, own in beaten.items()}
        if any(set(there) - {one} - own for one, own in beaten.items()):
            return {"strengths": None, "reason": Skipped("words")}
        power = dict.fromkeys(there, 1.0)
        for _ in range(20_000):
            before = dict(power)
            for one in there:
                met = {two: won[one, two] + won[two, one] for two in there if two != one}
                power[one] = sum(won[one, two] for two in met) / sum(
                    count / (power[one] + power[two]) for two, count in met.items()
                )
            middle = math.exp(mean([math.log(value) for value in power.values()]))
            power = {one: value / middle for one, value in power.items()}
            if max(abs(power[one] / before[one] - 1) for one in there) < 1e-12:
                break
        met = [(a, b) for a, b in itertools.combinations(there, 2) if won[a, b] + won[b, a]]
        gaps = [won[a, b] / (won[a, b] + won[b, a]) - power[a] / (power[a] + power[b]) for a, b in met]
        largest = max(abs(gap) for gap in gaps)
        worst = next(at for at, gap in enumerate(gaps) if abs(gap) > largest - 1e-6)
        a, b = met[worst]
        circles = [
            [x, y, z]
            for i, j, k in itertools.combinations(there, 3)
            for x, y, z in ((i, j, k), (i, k, j))
            if won[x, y] > won[y, x] and won[y, z] > won[z, y] and won[z, x] > won[x, z]
        ]
        return {
            "strengths": {
                one: Near(
                    math.log(power[one]), round(sum(won[one, two] + won[two, one] for two in there if two != one))
                )
                for one in there
            },
            "misfit": {
                "root_mean_square": Near(math.sqrt(mean([gap * gap for gap in gaps]))),
                "largest": {
                    "pair": [a, b],
                    "observed": won[a, b] / (won[a, b] + won[b, a]),
                    "predicted": Near(power[a] / (power[a] + power[b])),
                },
                "circles": circles,
            },
        }

    # --- people

    def of_people(self, relations: dict[tuple, int | None]) -> dict[str, Any]:
        rated = {(number, place, criterion) for number, place, _, criterion in self.given}
        complete = all(
            (number, place, annotator, criterion) in self.given
            for number, place, criterion in rated
            for annotator in self.annotators
        )
        crossed = complete if self.raters is None else self.raters == "crossed"
        found: dict[str, Any] = {
            "raters": "crossed" if crossed else "anonymous",
            "annotators": self.annotators,
            "criteria": self.criteria,
            "prefers_longer": self.prefers_longer(relations),
            "scores": histogram(list(self.people.values())),
            "reliability": None,
        }
        if len(self.annotators) < 2:
            return found | {"reason": Skipped("words")}
        tables = {
            criterion: {
                (number, place, annotator): score
                for (number, place, annotator, own), score in self.given.items()
                if own == criterion
            }
            for criterion in self.criteria
        }
        if len(tables) > 1:
            tables["mean of the criteria"] = self.by_annotator
        found["reliability"] = {}
        for criterion, table in tables.items():
            level = "ordinal" if criterion in self.criteria else "interval"
            found["reliability"][criterion] = self.icc(table, crossed) | {f"alpha ({level})": self.alpha(table, level)}
        left = self.left_out()
        pairs = [
            (
                number,
                [
                    (relation(others[a], others[b]), relation(own[a], own[b]))
                    for a, b in itertools.combinations(others, 2)
                ],
            )
            for number, others, own in left
        ]
        points = [(number, [(others[place], own[place]) for place in others]) for number, others, own in left]
        found["ceiling"] = accuracies(pairs) | correlations(points)
        return found

    def units(self, table: dict[tuple, float]) -> dict[tuple, list[float]]:
        """Return the ratings of each response, in the order of the annotators."""
        found: dict[tuple, list[float]] = {}
        for key in self.responses:
            own = [table[(*key, name)] for name in self.annotators if (*key, name) in table]
            if own:
                found[key] = own
        return found

    def icc(self, table: dict[tuple, float], crossed: bool) -> dict[str, Figure]:
        """Return the intraclass correlations of McGraw and Wong 1996 from the mean squares."""
        least = len(self.annotators) if crossed else 2
        units = {key: own for key, own in self.units(table).items() if len(own) >= least}

        def of(drawn: Sequence[int], single: bool) -> float | None:
            rows = [own for case in drawn for key, own in units.items() if key[0] == case]
            n, values = len(rows), [value for own in rows for value in own]
            if n < 2:
                return None
            grand = mean(values)
            between = sum(len(own) * (mean(own) - grand) ** 2 for own in rows) / (n - 1)
            within = sum((value - mean(own)) ** 2 for own in rows for value in own)
            if max(values) - min(values) <= SAME:
                return None
            if crossed:
                k = len(self.annotators)
                columns = sum(n * (mean([own[at] for own in rows]) - grand) ** 2 for at in range(k))
                error = (within - columns) / ((n - 1) * (k - 1))
                excess = (columns / (k - 1) - error) / n
                below = between + ((k - 1) * error + k * excess if single else excess)
                return (between - error) / below if abs(below) > SAME else None
            within /= len(values) - n
            k = (len(values) - sum(len(own) ** 2 for own in rows) / len(values)) / (n - 1)
            below = between + (k - 1) * within if single else between
            return (between - within) / below if abs(below) > SAME else None

        names = ("ICC(A,1)", "ICC(A,k)") if crossed else ("ICC(1,1)", "ICC(1,k)")
        cases = frozenset(key[0] for key in units)
        return {
            name: Figure(lambda drawn, single=single: of(drawn, single), len(units), cases)
            for name, single in zip(names, (True, False))
        }

    def alpha(self, table: dict[tuple, float], level: str) -> Figure:
        units = {key: own for key, own in self.units(table).items() if len(own) >= 2}

        def of(drawn: Sequence[int]) -> float | None:
            rows = [own for case in drawn for key, own in units.items() if key[0] == case]
            values = [value for own in rows for value in own]
            if not values or max(values) - min(values) <= SAME:
                return None
            data = [[own[at] if at < len(own) else np.nan for own in rows] for at in range(len(self.annotators))]
            return float(krippendorff.alpha(np.array(data, float), level_of_measurement=level))

        return Figure(of, len(units), frozenset(key[0] for key in units))

    # --- comparisons, choices, ratings of verdicts, preferences

    def comparisons(self) -> list[dict[str, Any]]:
        found = []
        for one, two in itertools.combinations(self.rows, 2):
            if "judge" not in (one.kind, two.kind):
                continue
            people, other = one.people_relations(), two.people_relations()
            both = {pair: None if other[pair] is None else people[pair] for pair in self.pairs}
            concordances = []
            for row in (one, two):
                finest = row.relations if row.expected is None else self.ordered(row.expected)
                groups = [(pair[0], [(both[pair], finest[pair])]) for pair in self.pairs]
                concordances.append(accuracies(groups)["concordance"])
            first, second = concordances
            if not first.n:
                continue
            apart = Figure(
                lambda drawn, a=first, b=second: None if a.of(drawn) is None else a.of(drawn) - b.of(drawn),
                first.n,
                first.cases,
                (-1.0, 1.0),
            )
            names = {"first": one.name, "second": two.name, "measure": "concordance"}
            found.append(
                names | {"concordances": concordances, "difference": apart, "p": PValue(), "p_adjusted": PValue()}
            )
        return found

    def value(self, figure: Figure | Undefined) -> float | None:
        return None if isinstance(figure, Undefined) else figure.of(range(len(self.cases)))

    def source_of_all(self, lines: list[dict[str, Any]], measure: str) -> tuple[str, str]:
        """Return from which scores all judges have a measure, and the end of its name; own ones where none has."""
        for source, end in (("own", ""), ("expected", "_expected")):
            if all(self.value(line[measure + end]["mean"]) is not None for line in lines):
                return source, end
        return "own", ""

    def rounds(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Follow all judges, as if each were that of a round."""
        source, end = self.source_of_all(lines, "triple_accuracy")
        table: list[dict[str, Any]] = []
        for number, line in enumerate(lines):
            both = {each: line[each + end] for each in ("triple_accuracy", "pairwise_accuracy")}
            measures = {each: figure["mean"] for each, figure in both.items()}
            before = table[-1] if table else None
            change = before and {each: self.less(figure, before[each]) for each, figure in measures.items()}
            spread = {each: figure["sd"] for each, figure in both.items()}
            about = {"round": number, "judge": line["judge"], "runs": line["runs"]}
            table.append(about | measures | {"sd": spread, "change": change})
        values = [self.value(line["triple_accuracy"]) for line in table]
        return {
            "names": [line["judge"] for line in lines],
            "scores": source,
            "values": values,
            "table": table,
            "forecast": Skipped("test_growth_curve.py"),
        }

    def less(self, one: Figure | Undefined, two: Figure | Undefined) -> Figure | Undefined:
        if None in (self.value(one), self.value(two)):
            return Undefined()

        def of(drawn: Sequence[int]) -> float | None:
            values = one.of(drawn), two.of(drawn)
            return None if None in values else values[0] - values[1]

        return Figure(of, min(one.n, two.n), min(one.cases, two.cases, key=len), (-1.0, 1.0))

    def over_runs(self, judges: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Average every judge over its runs, and over its trainings NAME, NAME-run2, …"""
        rows = {row.name: row for row in self.rows if row.kind == "judge"}
        everybody, table = {row.judge for row in rows.values()}, []
        for row in rows.values():
            if row.judge.partition("-run")[0] in everybody - {row.judge}:
                continue
            names = [row.name]
            for other in rows.values():
                if other.judge.startswith(f"{row.judge}-run") and other.criterion == row.criterion:
                    names.append(other.name)
            runs = [judges[name]["runs"] or [judges[name]] for name in names]
            line: dict[str, Any] = {"judge": row.name, "names": names}
            line |= {"runs": len(names), "of": "trainings"} if len(names) > 1 else {"runs": len(runs[0]), "of": "runs"}
            for end in ("", "_expected"):
                for measure in (*MEASURES, *CORRELATIONS):
                    each = [[record[measure + end] for record in own] for own in runs]
                    parts = [self.middle(own) for own in each] if len(names) > 1 else each[0]
                    values = [self.value(part) for part in parts]
                    spread = statistics.stdev(values) if len(values) > 1 and None not in values else None
                    line[measure + end] = {"mean": self.middle(parts), "sd": spread, "values": values}
            table.append(line)
        return table

    def middle(self, figures: list[Figure | Undefined]) -> Figure | Undefined:
        """Return the mean of several figures."""
        if len(figures) == 1:
            return figures[0]
        if any(self.value(figure) is None for figure in figures):
            return Undefined()

        def of(drawn: Sequence[int]) -> float | None:
            own = [figure.of(drawn) for figure in figures]
            return None if None in own else mean(own)

        few = min((figure.cases for figure in figures), key=len)
        return Figure(of, min(figure.n for figure in figures), few, figures[0].bounds)

    def of_choices(self) -> dict[str, Any]:
        labels = ("first", "second", "tie", "neither")
        votes: dict[str, dict[tuple, Counter]] = {}
        for vote in self.votes:
            number = self.number[vote["case_id"]]
            one, two = sorted(self.place(vote["case_id"], model) for model in vote["pair"])
            chosen = vote["choice"]
            if chosen not in labels[2:]:
                chosen = labels[int(self.place(vote["case_id"], chosen) == two)]
            votes.setdefault(vote["criterion"], {}).setdefault((number, one, two), Counter())[chosen] += 1
        found: dict[str, Any] = {}
        for criterion, by_pair in votes.items():
            people = {}
            for pair, counts in by_pair.items():
                most = [label for label, count in counts.items() if count == max(counts.values())]
                if len(most) == 1:
                    people[pair] = most[0]
            for row in self.rows:
                if row.kind != "judge" or (row.criteria and criterion != row.criterion):
                    continue
                if row.criteria:
                    judged = {pair: row.choices[pair] for pair in people}
                else:
                    scores = row.scores or row.expected_means or {}
                    turn = -1 if criterion in WORSE else 1
                    told = {0: WORSE.get(criterion, "tie"), turn: "first", -turn: "second", None: None}
                    judged = {p: told[relation(scores.get((p[0], p[1])), scores.get((p[0], p[2])))] for p in people}
                name = row.name.removesuffix(f": {row.criterion}")
                found.setdefault(name, {})[criterion] = {
                    "pairs": len(people),
                    "without_majority": len(by_pair) - len(people),
                    "labels": [*labels, "invalid"],
                    "confusion": [
                        [sum(people[p] == one and judged[p] == two for p in people) for two in (*labels, None)]
                        for one in labels
                    ],
                    "accuracy": share([(p[0], float(people[p] == judged[p])) for p in people]),
                    "kappa": self.kappa(people, judged),
                }
        return found

    @staticmethod
    def kappa(people: dict[tuple, str], judged: dict[tuple, str | None]) -> Figure:
        """Return Cohen's kappa with every pair counted in both directions."""
        turned = {"first": "second", "second": "first"}
        valid = [pair for pair in people if judged[pair] is not None]

        def of(drawn: Sequence[int]) -> float | None:
            own = [(people[pair], judged[pair]) for case in drawn for pair in valid if pair[0] == case]
            own += [(turned.get(one, one), turned.get(two, two)) for one, two in own]
            if not own or len({label for both in own for label in both}) < 2:
                return None
            return float(cohen_kappa_score(*zip(*own)))

        return Figure(of, len(valid), frozenset(pair[0] for pair in valid))

    def of_verdict_ratings(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for rating in self.verdict_ratings:
            found.setdefault(rating["judge"], {}).setdefault(rating["criterion"], []).append(
                (self.number[rating["case_id"]], rating["score"])
            )
        return {
            judge: {
                criterion: {
                    "counts": {f"{score:g}": count for score, count in Counter(score for _, score in given).items()},
                    "mean": share(given, None),
                }
                for criterion, given in criteria.items()
            }
            for judge, criteria in found.items()
        }

    def of_preferences(self) -> list[dict[str, Any]]:
        found: dict[tuple, dict[str, list]] = {}
        for given in self.preferences:
            one, two = given["judges"]
            judges = (two, one) if (two, one) in found else (one, two)
            found.setdefault(judges, {}).setdefault(given["criterion"], []).append(given)
        records = []
        for judges, criteria in found.items():
            record: dict[str, Any] = {"judges": list(judges), "criteria": {}}
            for criterion, given in criteria.items():
                told = {judges[0]: "first", judges[1]: "second", "tie": "tie"}
                votes = [(self.number[each["case_id"]], each["annotator"], told[each["choice"]]) for each in given]
                outcomes = ("first", "tie", "second")
                own: dict[str, Any] = {
                    outcome: share([(case, float(vote == outcome)) for case, _, vote in votes]) for outcome in outcomes
                }
                sign = {"first": 1.0, "tie": 0.0, "second": -1.0}
                own["margin"] = share([(case, sign[vote]) for case, _, vote in votes], (-1.0, 1.0))
                own |= {"p": PValue(), "p_adjusted": PValue()}
                own["cases"] = len({case for case, *_ in votes})
                own["annotators"] = {
                    name: [mean([float(vote == each) for _, who, vote in votes if who == name]) for each in outcomes]
                    for name in sorted({who for _, who, _ in votes})
                }
                record["criteria"][criterion] = own
            records.append(record)
        return records


class Row:
    """One line of the table: a judge with scores, one criterion of a judge of pairs, or a baseline with its scores."""

    def __init__(
        self,
        loops: Loops,
        verdicts: list[dict],
        criterion: str | None,
        criteria: list[str],
        baseline: str | None = None,
        known: dict[tuple, float | None] | None = None,
    ):
        self.loops, self.verdicts, self.criterion, self.criteria = loops, verdicts, criterion, criteria
        self.kind = "judge" if baseline is None else "baseline"
        self.judge = verdicts[0]["judge"] if baseline is None else baseline
        self.rubric = verdicts[0]["rubric"] if baseline is None else "counted"
        self.name = self.judge if criterion is None else f"{self.judge}: {criterion}"
        self.choices: dict[tuple, str | None] = {}
        if baseline is not None:
            self.asked = {key: known[key] is not None for key in loops.responses}
            self.scores, self.expected = None, {key: value for key, value in known.items() if value is not None}
            self.expected_means = self.expected
            self.relations = loops.ordered(self.expected)
            return
        self.shown = {(loops.number[each["case_id"]], place) for each in verdicts for place in each["order"]}
        judged = {loops.number[each["case_id"]] for each in verdicts}
        # A model that cases with verdicts have, and no verdict shows, was left out on purpose.
        left_out = {model for number in judged for model in loops.names[number]}
        left_out -= {loops.names[number][place] for number, place in self.shown}
        self.asked = {(number, place): loops.names[number][place] not in left_out for number, place in loops.responses}
        self.scores, self.expected_means = self.means(verdicts, "scores"), self.means(verdicts, "expected_scores")
        valid = [each for each in verdicts if each["valid"]]
        complete = valid and all(each["expected_scores"] for each in valid)
        self.expected = self.expected_means if complete and criterion is None else None
        if criterion is not None:
            self.scores = None
            self.choices = self.chosen(verdicts)
            self.relations = self.of_choices(self.choices)
        else:
            self.relations = loops.ordered(self.scores or self.expected or {})

    def says(self, verdict: dict, place: int) -> bool:
        """Return whether a verdict is valid and says anything of a response that it shows."""
        if not verdict["valid"] or verdict["choices"]:
            return verdict["valid"]
        every = [each["expected_scores"] for each in self.verdicts if each["valid"]]
        given = verdict["expected_scores"] if all(every) else verdict["scores"] or verdict["expected_scores"]
        return given[place] is not None

    def silent(self) -> dict[str, int]:
        """Return model → number of its empty responses that the judge was asked about."""
        loops = self.loops
        return dict(
            Counter(loops.names[n][p] for n, p in loops.responses if self.asked[n, p] and not loops.length[n, p])
        )

    def unread(self) -> dict[str, int]:
        """Return model → number of its responses that valid verdicts show and none says anything of."""
        shown: dict[tuple[int, int], bool] = {}
        for verdict in self.verdicts:
            for place in verdict["order"] if verdict["valid"] else ():
                key = (self.loops.number[verdict["case_id"]], place)
                shown[key] = shown.get(key, False) or self.says(verdict, place)
        return dict(Counter(self.loops.names[n][p] for (n, p), said in shown.items() if not said))

    @property
    def values(self) -> dict[tuple, float] | None:
        return self.scores if self.expected is None else self.expected

    def finest(self) -> dict[tuple, int | None]:
        return self.relations if self.expected is None else self.loops.ordered(self.expected)

    @property
    def of_pairs(self) -> bool:
        """Whether the judge compares pairs."""
        return any(each["pair"] is not None for each in self.verdicts)

    def pair_of(self, verdict: dict) -> tuple[int, int, int]:
        return (self.loops.number[verdict["case_id"]], *sorted(verdict["order"]))

    def asked_pairs(self) -> dict[tuple, bool]:
        loops = self.loops
        found = {(n, a, b): self.asked[n, a] and self.asked[n, b] for n, a, b in loops.pairs}
        if not self.of_pairs:
            return found

        def models(pair: tuple[int, int, int]) -> frozenset[str]:
            return frozenset(loops.names[pair[0]][place] for place in pair[1:])

        judged = {loops.number[each["case_id"]] for each in self.verdicts}
        left_out = {models(pair) for pair in loops.pairs if pair[0] in judged}
        left_out -= {models(self.pair_of(each)) for each in self.verdicts}
        return {pair: asked and models(pair) not in left_out for pair, asked in found.items()}

    def people_relations(self) -> dict[tuple, int | None]:
        asked, people = self.asked_pairs(), self.loops.people
        return {
            (n, a, b): relation(people.get((n, a)), people.get((n, b))) if asked[n, a, b] else None
            for n, a, b in self.loops.pairs
        }

    def runs(self) -> list[int]:
        return sorted({verdict["run"] for verdict in self.verdicts})

    def of_run(self, run: int) -> "Row":
        """Return this row with the values of one run; what the judge was asked about, and its kind, stay."""
        row, own = copy.copy(self), [verdict for verdict in self.verdicts if verdict["run"] == run]
        row.scores = None if self.scores is None else self.means(own, "scores") or {}
        row.expected = None if self.expected is None else self.means(own, "expected_scores") or {}
        if self.criterion is not None:
            row.relations = row.of_choices(row.chosen(own))
        else:
            values = row.expected if row.scores is None else row.scores
            row.relations = self.loops.ordered(values or {})
        return row

    def missing(self) -> list[int]:
        """Return the case of every verdict that was asked for in a run and not given."""
        found: list[int] = []
        for run in self.runs():
            own = [verdict for verdict in self.verdicts if verdict["run"] == run]
            if self.of_pairs:
                there = {self.pair_of(each) for each in own}
                found += [pair[0] for pair, asked in self.asked_pairs().items() if asked and pair not in there]
            else:
                shown = {(self.loops.number[each["case_id"]], place) for each in own for place in each["order"]}
                found += sorted({key[0] for key, asked in self.asked.items() if asked and key not in shown})
        return found

    def means(self, verdicts: list[dict], name: str) -> dict[tuple, float] | None:
        found: dict[tuple, list[float]] = {}
        for verdict in verdicts:
            if verdict["valid"] and verdict[name]:
                for place in verdict["order"]:
                    if verdict[name][place] is not None:
                        key = (self.loops.number[verdict["case_id"]], place)
                        found.setdefault(key, []).append(verdict[name][place])
        return {key: mean(values) for key, values in found.items()} or None

    def answer(self, verdict: dict) -> str | None:
        """Return a verdict's choice as "first", "second", "tie" or "neither", in the order of the case."""
        choice = (verdict["choices"] or {}).get(self.criterion) if verdict["valid"] else None
        if choice in (None, "tie", "neither"):
            return choice
        number, one, _ = self.pair_of(verdict)
        return "first" if self.loops.names[number][one] == choice else "second"

    def chosen(self, verdicts: list[dict]) -> dict[tuple, str | None]:
        """Return the most frequent choice about each pair; the neutral one where two are."""
        found: dict[tuple, str | None] = {}
        for pair in self.loops.pairs:
            counts = Counter(self.answer(each) for each in verdicts if self.pair_of(each) == pair)
            counts.pop(None, None)
            most = [label for label, count in counts.items() if count == max(counts.values())]
            found[pair] = None if not most else most[0] if len(most) == 1 else WORSE.get(self.criterion, "tie")
        return found

    def of_choices(self, choices: dict[tuple, str | None]) -> dict[tuple, int | None]:
        better = -1 if self.criterion in WORSE else 1
        told = {"first": better, "second": -better, "tie": 0, "neither": 0, None: None}
        return {pair: told[choice] for pair, choice in choices.items()}

    def slots(self, valid: list[dict]) -> list[Figure]:
        """Return by how much a slot's values lie above the mean of their verdict, one figure per slot."""
        units: dict[int, list] = {}
        if self.rubric in ("likelihood@1", "baseline@1", "counted"):
            return []
        for verdict in valid:
            case = self.loops.number[verdict["case_id"]]
            if self.criterion is not None:
                answer = self.answer(verdict)
                way = self.of_choices({0: answer})[0]
                if not way:  # ties are left out
                    continue
                one, two = sorted(verdict["order"])
                values = {one: way / 2, two: -way / 2}
            else:
                given = verdict["scores"] or verdict["expected_scores"]
                values = {place: given[place] for place in verdict["order"]}
            if len(values) > 1 and None not in values.values():
                for slot, place in enumerate(verdict["order"]):
                    units.setdefault(slot, []).append((case, values[place] - mean(list(values.values()))))
        return [share(units[slot], None) for slot in sorted(units)]

    def alike(self, valid: list[dict]) -> list[tuple[int, float]]:
        """Return (case, 1 or 0) for every pair and run with several orders: whether the pair is judged alike in all."""
        found: dict[tuple, list] = {}
        if self.rubric in ("likelihood@1", "baseline@1", "counted"):
            return []
        for verdict in valid:
            number = self.loops.number[verdict["case_id"]]
            for one, two in itertools.combinations(sorted(verdict["order"]), 2):
                if self.criterion is not None:
                    told: Any = self.answer(verdict)
                else:
                    given = verdict["scores"] or verdict["expected_scores"]
                    told = relation(given[one], given[two])
                if told is not None:
                    found.setdefault((number, one, two, verdict["run"]), []).append(told)
        return [(key[0], float(len(set(told)) == 1)) for key, told in found.items() if len(told) > 1]


def histogram(values: list[float]) -> dict[str, int]:
    """Count scores, rounded to halves, or to a tenth of their range where that is another kind of scale."""
    width = max(values) - min(values) if values else 0.0
    step = 0.5 if 2 <= width <= 10 or width == 0 else width / 10
    return dict(Counter(f"{round(value / step) * step:g}" for value in values))
