"""The accuracies, correlations and ceilings of agreement.json by plain loops over the lines of the files.

It follows the definitions of docs/believe.md and of the docstrings, and imports nothing of the package. Every figure is a
function of a list of case numbers, so that a resample of the bootstrap is only a list with repetitions.
"""

import copy
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from statistics import median, multimode
from typing import Any

import numpy as np
from factories import Json
from scipy.stats import pearsonr, spearmanr

WORSE = {"harmfulness"}  # criteria of medical_pairwise whose choice is the worse response
SAME = 1e-9
MOST = 4  # responses of a case
UNKNOWN = (None, None)
CORRELATIONS = {"spearman": spearmanr, "pearson": pearsonr}

Pair = tuple[int, int, int]  # the number of a case, and the places of two responses
Place = tuple[int, int]  # the number of a case, and the place of a response
Scores = dict[Place, float]
Relations = dict[
    Pair, int | None
]  # 1 where the first response is better, 0 in a tie, -1; None where nothing is known
Beside = dict[Pair, tuple]  # the relation of people, and that of the judge


@dataclass(frozen=True)
class Figure:
    """A figure as a function of case numbers, with the number of its units and the numbers of the cases that it rests on."""

    of: Callable[[Sequence[int]], float | None]
    n: int
    cases: frozenset[int] = frozenset()
    bounds: tuple[float, float] | None = None


UNDEFINED = Figure(lambda drawn: None, 0)


def mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None


def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list]:
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def means(pairs: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    return {key: mean(values) for key, values in grouped(pairs).items()}


def figure(
    units: Sequence[tuple[int, Any]],
    statistic: Callable[[list], float | None],
    bounds: tuple[float, float] | None = None,
) -> Figure:
    """Return a statistic of the values of (case, value) units."""
    values_of = grouped(units)

    def of(drawn: Sequence[int]) -> float | None:
        values = []
        for case in drawn:
            values += values_of.get(case, ())
        return statistic(values)

    return Figure(of, len(units), frozenset(values_of), bounds)


def share(units: Sequence[tuple[int, float]]) -> Figure:
    """Return the mean of (case, value) units."""
    return figure(units, mean, (0.0, 1.0))


def relation(first: float | None, second: float | None, same: float = SAME) -> int | None:
    if first is None or second is None:
        return None
    if abs(first - second) <= same:
        return 0
    return 1 if first > second else -1


def credit(wanted: int, found: int | None) -> float:
    """Return 1 for the order that is wanted, ½ for a tie, else 0."""
    if found == 0:
        return 0.5
    return float(found == wanted)


def accuracies(*tables: Beside) -> dict[str, Figure]:
    """Return the accuracies of tables of pair → (relation of people, relation of the judge)."""
    right, ordered, triples = [], [], []
    for table in tables:
        for (number, first, second), (people, judge) in table.items():
            if people is not None:
                right.append((number, float(people == judge)))
            if people:
                ordered.append((number, credit(people, judge)))
            for third in range(second + 1, MOST):
                places = combinations((first, second, third), 2)
                three = [table.get((number, *two), UNKNOWN) for two in places]
                of_people, of_judge = zip(*three)
                if None not in of_people:
                    triples.append((number, float(of_people == of_judge)))
    return {
        "pairwise_accuracy": share(right),
        "concordance": share(ordered),
        "triple_accuracy": share(triples),
    }


def correlations(table: dict[Place, tuple]) -> dict[str, Figure]:
    """Return the correlations of a table of response → (score of people, score of the judge)."""
    points = [(number, both) for (number, _), both in table.items() if None not in both]
    return {kind: figure(points, partial(correlation, kind)) for kind in CORRELATIONS}


def correlation(kind: str, points: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's or Pearson's correlation by scipy; None where one side does not vary."""
    if len(points) < 2:
        return None
    sides = np.array(points).T
    if np.ptp(sides, axis=1).min() <= SAME:
        return None
    if kind == "spearman":
        sides = sides.round(9)
    result = CORRELATIONS[kind](*sides)
    return float(result.statistic)


def hashed_id(case: dict) -> bytes:
    return hashlib.sha256(case["id"].encode()).digest()


def criteria_of(verdicts: list[dict]) -> Sequence[str | None]:
    """Return the criteria that verdicts choose by, in the order of the file; None stands for scores."""
    criteria = {}
    for verdict in verdicts:
        criteria |= dict.fromkeys(verdict["choices"] or ())
    return list(criteria) or [None]


class Loops:
    """The figures of one set of files.

    Args:
        cases, verdicts, ratings: the lines of the files; ratings may be None.
        baselines: name → the score of each response, by its case and model, NaN where it has none.
        anonymous: whether nobody knows which scores one rater gave.
    """

    def __init__(
        self,
        cases: list[dict],
        verdicts: list[dict],
        ratings: list[dict] | None,
        baselines: dict[str, dict] | None = None,
        anonymous: bool = False,
    ):
        # Cases are numbered by a hash of their ids, so that the order of the file changes no figure.
        self.cases = sorted(cases, key=hashed_id)
        self.number = {}
        self.names = []
        self.length = {}
        self.pairs = []
        for number, case in enumerate(self.cases):
            responses = case["responses"]
            self.number[case["id"]] = number
            self.names.append([response["model"] for response in responses])
            for place, response in enumerate(responses):
                self.length[number, place] = len(response["text"].split())
            for first, second in combinations(range(len(responses)), 2):
                self.pairs.append((number, first, second))
        self.responses = list(self.length)
        self.anonymous = anonymous
        self.rate(ratings)
        self.rows = []
        by_author = grouped(((line["judge"], line["rubric"]), line) for line in verdicts)
        for of_author in by_author.values():
            for criterion in criteria_of(of_author):
                self.rows.append(Row(self, of_author, criterion))
        for name, scores in (baselines or {}).items():
            self.rows.append(Baseline(self, name, scores))

    def rate(self, ratings: list[dict] | None) -> None:
        """Take the ratings, as response and criterion → annotator → score."""
        self.ratings = ratings
        self.given = defaultdict(dict)
        for rating in ratings or ():
            number = self.number[rating["case_id"]]
            place = self.names[number].index(rating["model"])
            scores = self.given[number, place, rating["criterion"]]
            scores[rating["annotator"]] = rating["score"]
        self.annotators = sorted({rating["annotator"] for rating in ratings or ()})
        self.criteria = sorted({rating["criterion"] for rating in ratings or ()})
        scored = []
        for (number, place, criterion), scores in self.given.items():
            if self.in_mean(number, criterion):
                scored.append(((number, place), mean(scores.values())))
        self.people = means(scored)

    def in_mean(self, number: int, criterion: str) -> bool:
        """Return whether all rated responses of a case are rated on a criterion."""
        rated = {place for case, place, _ in self.given if case == number}
        return all((number, place, criterion) in self.given for place in rated)

    def name(self, place: Place) -> str:
        return self.names[place[0]][place[1]]

    def number_of(self, verdict: dict) -> int:
        return self.number[verdict["case_id"]]

    def shown(self, verdict: dict) -> list[Place]:
        number = self.number_of(verdict)
        return [(number, place) for place in verdict["order"]]

    def content(self) -> Json:
        content = {
            "cases": self.counts(),
            "judges": {row.name: self.judge(row) for row in self.rows},
        }
        if self.ratings is not None:
            content["people"] = self.of_people()
        return content

    def counts(self) -> dict[str, int]:
        counts = {
            "cases": len(self.cases),
            "responses": len(self.responses),
            "pairs": len(self.pairs),
            "models": len(set(chain(*self.names))),
        }
        if self.ratings is not None:
            relations = Counter(self.by_people().values())
            counts["rated_cases"] = len({number for number, _ in self.people})
            counts["rated_responses"] = len(self.people)
            counts["rated_pairs"] = relations.total() - relations[None]
            counts["tied_pairs"] = relations[0]
        return counts

    def judge(self, row: "Row") -> Json:
        units = row.units()
        errors = Counter()
        for verdict in row.verdicts:
            if not verdict["valid"]:
                errors[verdict["error"] or "unknown"] += 1
        checkpoints = {verdict.get("checkpoint") or None for verdict in row.verdicts}
        record = {
            "verdicts": len(units),
            "errors": errors,
            "empty": row.silent(),
            "checkpoint": checkpoints.pop() if len(checkpoints) == 1 else None,
            "unread": row.unread(),
            "valid_rate": share(units),
            "prefers_longer": self.prefers_longer(self.won(row)),
            "prefers_first": self.prefers_first(row),
        }
        if self.ratings is not None:
            record |= self.agreement(row)
        return record

    def prefers_longer(self, relations: Relations) -> Figure:
        units = []
        sides = self.sides(self.length)
        for pair, longer in self.relations(self.length).items():
            chosen = relations[pair]
            if longer and chosen is not None and 0 not in sides[pair]:
                units.append((pair[0], credit(longer, chosen)))
        return share(units)

    def prefers_first(self, row: "Row") -> Figure:
        """Return how often the first of two responses wins in a prompt that may show them in any order."""
        orders = [verdict["order"] for verdict in row.verdicts]
        if orders == list(map(sorted, orders)):
            return UNDEFINED
        units = []
        for verdict in row.verdicts:
            number = self.number_of(verdict)
            for first, second in combinations(verdict["order"], 2):
                won = row.won(verdict, first, second)
                if won is not None and self.length[number, first] and self.length[number, second]:
                    units.append((number, won))
        return share(units)

    def beside(self, row: "Row", judged: Relations) -> Beside:
        """Return pair → (relation of people, relation of the judge)."""
        people = row.people_relations()
        return {pair: (people[pair], judged[pair]) for pair in self.pairs}

    def points(self, row: "Row", scores: Scores) -> dict[Place, tuple]:
        """Return response → (score of people, score of the judge)."""
        return {place: (self.people.get(place), scores.get(place)) for place in row.asked}

    def measures(self, row: "Row") -> Json:
        """Return the measures of a row from its own scores or choices, else from its expected scores."""
        measures = accuracies(self.beside(row, row.relations))
        measures |= dict.fromkeys(CORRELATIONS, UNDEFINED)
        if row.criterion is None and (row.scores or row.expected):
            measures |= correlations(self.points(row, row.own))
        measures["concordance"] = accuracies(self.finest(row))["concordance"]
        return measures

    def finest(self, row: "Row") -> Beside:
        """Return pair → (relation of people, relation of the judge) by its expected scores if it has them."""
        judged = row.relations if row.expected is None else self.ordered(row.expected)
        return self.beside(row, judged)

    def agreement(self, row: "Row") -> Json:
        record = self.measures(row)
        runs = []
        for run in row.runs():
            measures = self.measures(row.of_run(run))
            runs.append({"run": run} | measures)
        record["runs"] = runs if len(runs) > 1 else None
        record["scored"] = accuracies(self.scored(row))["concordance"]
        if row.criterion is None and not isinstance(row, Baseline):
            record["by_confidence"] = self.by_confidence(row)
        return record

    def scored(self, row: "Row") -> Beside:
        """Return pair → (relation of people, relation of the judge) of the pairs that it scored or chose about."""
        return {pair: both for pair, both in self.finest(row).items() if both[1] is not None}

    def by_confidence(self, row: "Row") -> dict[str, Figure]:
        """Return the concordance where the mean gap between two scores of a case is above the median, and where it is not."""
        scores = row.expected or row.scores or {}
        apart = []
        for (number, *_), (one, other) in self.sides(scores).items():
            if None not in (one, other):
                apart.append((number, abs(one - other)))
        gaps = {number: round(gap, 9) for number, gap in means(apart).items()}
        middle = median(gaps.values() or [0])
        tables = {"surest": {}, "others": {}}
        for pair, both in self.scored(row).items():
            side = "surest" if gaps[pair[0]] > middle else "others"
            tables[side][pair] = both
        return {side: accuracies(table)["concordance"] for side, table in tables.items()}

    def band(self, row: "Row") -> float:
        """Return up to which gap expected scores on a scale are equal, 0.25 as shown; 0 of others."""
        has_scale = "automedeval@1" in {verdict["rubric"] for verdict in row.verdicts}
        return 0.255 if row.expected and has_scale else 0.0

    def won(self, row: "Row") -> Relations:
        """Return the relations by which pairs are won."""
        band = self.band(row)
        return self.ordered(row.expected, band) if band else row.relations

    def ordered(self, scores: Scores, same: float = SAME) -> Relations:
        """Return a judge's relations: an empty response loses a tie with an answer."""
        relations = {pair: relation(*two, same) for pair, two in self.sides(scores).items()}
        for pair, (one, other) in self.sides(self.length).items():
            if relations[pair] == 0 and 0 in (one, other):
                relations[pair] = (one > 0) - (other > 0)
        return relations

    def relations(self, scores: Scores) -> Relations:
        return {pair: relation(*two) for pair, two in self.sides(scores).items()}

    def sides(self, values: dict[Place, Any]) -> Beside:
        """Return pair → the values of both responses, None where there is none."""
        sides = {}
        for number, first, second in self.pairs:
            one = values.get((number, first))
            other = values.get((number, second))
            sides[number, first, second] = one, other
        return sides

    def gaps(self, number: int, first: int, second: int) -> list[dict[str, float]]:
        """Return, for every criterion, annotator → gap between two responses of a case, of those who rated both on it."""
        found = []
        for criterion in self.criteria:
            one = self.given.get((number, first, criterion), {})
            other = self.given.get((number, second, criterion), {})
            gaps = {name: one[name] - other[name] for name in one.keys() & other.keys()}
            if gaps and self.in_mean(number, criterion):
                found.append(gaps)
        return found

    def by_people(self) -> Relations:
        """Return people's relations: of the mean over criteria of the mean over those who rated both responses.

        Of anonymous raters nobody knows who rated both: then their scores are compared.
        """
        if self.anonymous:
            return self.relations(self.people)
        relations = {}
        for pair in self.pairs:
            gaps = [mean(of_raters.values()) for of_raters in self.gaps(*pair)]
            relations[pair] = relation(mean(gaps), 0)
        return relations

    def of_people(self) -> Json:
        """Return the agreement of one rater with the mean of the others, of anonymous raters by the scores of responses."""
        tables = []
        points = []
        for name in self.annotators:
            shared = self.shared(name)
            means = [mean(side) for side in zip(*shared.values())]
            level = mean([self.people[place] for place in shared])
            for (number, _), both in shared.items():
                points.append((number, [one - of_all + level for one, of_all in zip(both, means)]))
            if self.anonymous:
                sides = [dict(zip(shared, side)) for side in zip(*shared.values())] or [{}, {}]
                others, own = map(self.relations, sides)
                tables.append({pair: (others[pair], own[pair]) for pair in self.pairs})
            else:
                tables.append({pair: self.beside_others(name, pair) for pair in self.pairs})
        correlated = figure(points, partial(correlation, "pearson"))
        return {"ceiling": accuracies(*tables) | {"pearson": correlated}} if points else {}

    def beside_others(self, annotator: str, pair: Pair) -> tuple:
        """Return the relations of the others and of an annotator, over the criteria on which both rated both responses."""
        own = []
        rest = []
        for gaps in self.gaps(*pair):
            others = [gap for name, gap in gaps.items() if name != annotator]
            if annotator in gaps and others:
                own.append(gaps[annotator])
                rest.append(mean(others))
        return (relation(mean(rest), 0), relation(mean(own), 0))

    def shared(self, annotator: str) -> dict[Place, tuple]:
        """Return response → (mean of the others, own mean) over the criteria that have both.

        A criterion that one of these responses of a case lacks is left out of all of them.
        """
        both = defaultdict(dict)
        for (number, place, criterion), scores in self.given.items():
            others = [score for name, score in scores.items() if name != annotator]
            if annotator in scores and others and self.in_mean(number, criterion):
                both[number, place][criterion] = mean(others), scores[annotator]
        shared = {}
        for place, by_criterion in both.items():
            of_case = [criteria for at, criteria in both.items() if at[0] == place[0]]
            common = set(by_criterion).intersection(*of_case)
            if common:
                scores_of_both = [by_criterion[criterion] for criterion in common]
                shared[place] = tuple(map(mean, zip(*scores_of_both)))
        return shared

    def valid_rates(self, row: "Row") -> dict[str, Figure]:
        """Return each model's share of valid verdicts, with a verdict that is missing as one that is not valid."""
        units = defaultdict(list)
        for verdict in row.verdicts:
            for number, place in self.shown(verdict):
                says = float(row.says(verdict, place))
                units[self.name((number, place))].append((number, says))
        for number, *places in row.lost():
            for place in places:
                units[self.name((number, place))].append((number, 0.0))
        return {model: share(of_model) for model, of_model in units.items()}


class Row:
    """One line of the table: a judge with scores, or one criterion of a judge of pairs."""

    def __init__(self, loops: Loops, verdicts: list[dict], criterion: str | None):
        self.loops = loops
        self.gives_expected = any(verdict["expected_scores"] for verdict in verdicts)
        if self.gives_expected:  # whole ones where a verdict has no others
            key = "expected_scores"
            verdicts = [verdict | {key: verdict[key] or verdict["scores"]} for verdict in verdicts]
        self.verdicts = verdicts
        self.criterion = criterion
        judge = verdicts[0]["judge"]
        self.name = judge if criterion is None else f"{judge}: {criterion}"
        self.of_pairs = any(verdict["pair"] is not None for verdict in verdicts)
        shown = chain(*map(loops.shown, verdicts))
        self.asked = self.among(loops.responses, shown)
        has_expected = self.gives_expected and criterion is None
        self.expected = self.means(verdicts, "expected_scores") if has_expected else None
        self.scores = self.means(verdicts, "scores") if criterion is None else None
        self.relations = self.related(verdicts)

    def among(self, subjects: Iterable[tuple], shown: Iterable[tuple]) -> list[tuple]:
        """Return the responses, or the pairs, that the judge was asked about, by those that verdicts show.

        Models that cases with verdicts have, and no verdict shows, were left out on purpose.
        """
        judged = set(map(self.loops.number_of, self.verdicts))
        left_out = {self.kind(subject) for subject in subjects if subject[0] in judged}
        left_out -= set(map(self.kind, shown))
        return [subject for subject in subjects if self.kind(subject) not in left_out]

    def kind(self, subject: tuple) -> frozenset[str]:
        """Return the models of a response, or of a pair."""
        number, *places = subject
        names = self.loops.names[number]
        return frozenset(names[place] for place in places)

    def units(self) -> list[tuple[int, float]]:
        """Return (case, whether it is valid) of every verdict that was asked for."""
        units = [(number, 0.0) for number in self.missing()]
        for verdict in self.verdicts:
            units.append((self.loops.number_of(verdict), float(verdict["valid"])))
        return units

    @property
    def own(self) -> Scores:
        """Return the scores of a judge, or the expected ones of one that has no others."""
        scores = self.expected if self.scores is None else self.scores
        return scores or {}

    def related(self, verdicts: list[dict]) -> Relations:
        if self.criterion is None:
            return self.loops.ordered(self.own)
        better = -1 if self.criterion in WORSE else 1
        relations = {"first": better, "second": -better, "tie": 0, "neither": 0}
        return {pair: relations.get(choice) for pair, choice in self.chosen(verdicts).items()}

    def says(self, verdict: dict, place: int) -> bool:
        """Return whether a verdict is valid and says anything of a response that it shows."""
        if not verdict["valid"] or verdict["choices"]:
            return verdict["valid"]
        scores = None if self.gives_expected else verdict["scores"]
        return (scores or verdict["expected_scores"])[place] is not None

    def won(self, verdict: dict, first: int, second: int) -> float | None:
        """Return 1 if a verdict prefers the first response, ½ if it ties, 0 else; None if it says nothing of both."""
        if not verdict["valid"]:
            return None
        if verdict["choices"]:
            return self.chosen_first(verdict, first)
        whole = None if self.expected else verdict["scores"]
        scores = whole or verdict["expected_scores"]
        if scores[first] is None or scores[second] is None:
            return None
        difference = scores[first] - scores[second]
        band = max(self.loops.band(self), 5e-5)
        return 0.5 if abs(difference) < band else float(difference > 0)

    def chosen_first(self, verdict: dict, place: int) -> float | None:
        """Return 1 if a response wins a pair on the criterion, ½ if it ties, 0 else; None where there is no choice on it."""
        choice = verdict["choices"].get(self.criterion)
        if choice in (None, "tie", "neither"):
            return choice and 0.5
        number = self.loops.number_of(verdict)
        is_chosen = choice == self.loops.names[number][place]
        return float(is_chosen != (self.criterion in WORSE))

    def silent(self) -> Counter[str]:
        """Return model → number of its empty responses that verdicts show, or that a baseline was asked of."""
        shown = set(chain.from_iterable(map(self.loops.shown, self.verdicts))) or self.asked
        empty = [place for place in shown if not self.loops.length[place]]
        return Counter(map(self.loops.name, empty))

    def said(self) -> dict[Place, bool]:
        """Return whether any verdict says anything of each response that valid verdicts show."""
        said = {}
        for verdict in self.verdicts:
            if verdict["valid"]:
                for place in self.loops.shown(verdict):
                    said[place] = self.says(verdict, place[1]) or said.get(place, False)
        return said

    def unread(self) -> Counter[str]:
        """Return model → number of its responses that valid verdicts show and none says anything of."""
        unread = [place for place, says in self.said().items() if not says]
        return Counter(map(self.loops.name, unread))

    def pair_of(self, verdict: dict) -> Pair:
        first, second = sorted(verdict["order"])
        return self.loops.number_of(verdict), first, second

    def asked_pairs(self) -> list[Pair]:
        asked = set(self.asked)
        pairs = []
        for number, first, second in self.loops.pairs:
            if asked.issuperset([(number, first), (number, second)]):
                pairs.append((number, first, second))
        if self.of_pairs:
            return self.among(pairs, map(self.pair_of, self.verdicts))
        return pairs

    def people_relations(self) -> Relations:
        relations = self.loops.by_people()
        of_asked = {pair: relations[pair] for pair in self.asked_pairs()}
        return dict.fromkeys(relations) | of_asked

    def runs(self) -> list[int]:
        return sorted({verdict["run"] for verdict in self.verdicts})

    def in_run(self, run: int) -> list[dict]:
        return [verdict for verdict in self.verdicts if verdict["run"] == run]

    def of_run(self, run: int) -> "Row":
        """Return this row with the values of one run; what the judge was asked about, and its kind, stay."""
        row = copy.copy(self)
        of_run = self.in_run(run)
        if self.scores is not None:
            row.scores = self.means(of_run, "scores") or {}
        if self.expected is not None:
            row.expected = self.means(of_run, "expected_scores") or {}
        row.relations = row.related(of_run)
        return row

    def lost(self) -> list[tuple]:
        """Return the pairs, or responses, that were asked for and not given, for each run."""
        asked = self.asked_pairs() if self.of_pairs else self.asked
        lost = []
        for run in self.runs():
            there = set()
            for verdict in self.in_run(run):
                if self.of_pairs:
                    there.add(self.pair_of(verdict))
                else:
                    there.update(self.loops.shown(verdict))
            lost += [subject for subject in asked if subject not in there]
        return lost

    def missing(self) -> list[int]:
        """Return the case of every verdict that was asked for and not given.

        A case that lacks some has as many as those of its size on average, or enough to show all.
        """
        given = Counter(map(self.loops.number_of, self.verdicts))
        lost = defaultdict(list)
        for (number, *_), runs in Counter(self.lost()).items():
            lost[number].append(runs)
        most = 1 if self.of_pairs else max(len(verdict["order"]) for verdict in self.verdicts)
        sizes = list(map(len, self.loops.names))
        full = means((size, given[at]) for at, size in enumerate(sizes) if at not in lost)
        missing = []
        for number, runs in lost.items():
            due = max(given[number] + max(sum(runs) / most, *runs), full.get(sizes[number], 0))
            missing += [number] * (math.ceil(due) - given[number])
        return missing

    def means(self, verdicts: list[dict], name: str) -> Scores | None:
        scored = []
        for verdict in verdicts:
            scores = verdict[name]
            if not verdict["valid"] or not scores:
                continue
            for number, place in self.loops.shown(verdict):
                if scores[place] is not None:
                    scored.append(((number, place), scores[place]))
        return means(scored) or None

    def answer(self, verdict: dict) -> str | None:
        """Return a verdict's choice as "first", "second", "tie" or "neither", in the order of the case."""
        if not verdict["valid"]:
            return None
        choices = verdict["choices"] or {}
        choice = choices.get(self.criterion)
        if choice in (None, "tie", "neither"):
            return choice
        number, first, _ = self.pair_of(verdict)
        return "first" if self.loops.names[number][first] == choice else "second"

    def chosen(self, verdicts: list[dict]) -> dict[Pair, str | None]:
        """Return the most frequent choice about each pair; the neutral one where two are."""
        answers = grouped((self.pair_of(verdict), self.answer(verdict)) for verdict in verdicts)
        choices = {}
        for pair in self.loops.pairs:
            labels = [label for label in answers.get(pair, ()) if label is not None]
            modes = multimode(labels)
            choices[pair] = modes[0] if modes else None
            if len(modes) > 1:
                choices[pair] = "tie"
        return choices


class Baseline(Row):
    """The line of a baseline, with the score of each response that has one."""

    def __init__(self, loops: Loops, name: str, scores: dict):
        self.loops = loops
        self.verdicts = []
        self.name = name
        self.of_pairs = False
        self.criterion = self.scores = None
        self.expected = {}
        for place in loops.responses:
            case = loops.cases[place[0]]
            score = scores[case["id"], loops.name(place)]
            if not math.isnan(score):
                self.expected[place] = score
        self.asked = [*self.expected]
        self.relations = loops.ordered(self.expected)

    def units(self) -> list[tuple[int, float]]:
        return [(number, 1.0) for number, _ in enumerate(self.loops.cases)]
