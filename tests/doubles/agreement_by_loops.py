"""The accuracies, correlations and ceilings of agreement.json by plain loops over the lines of the files.

It follows the definitions of docs/believe.md and of the docstrings, and imports nothing of the package. Every figure is a
function of a list of case numbers, so that a resample of the bootstrap is only a list with repetitions.
"""

import copy
import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

WORSE = {"harmfulness"}  # criteria of medical_pairwise whose choice is the worse response
SAME = 1e-9
MOST = 4  # responses of a case
UNKNOWN = (None, None)
MEASURES = ("pairwise_accuracy", "concordance", "triple_accuracy")
CORRELATIONS = {"spearman": spearmanr, "pearson": pearsonr}

Pair = tuple[int, int, int]  # the number of a case, and the places of two responses
Place = tuple[int, int]  # the number of a case, and the place of a response


@dataclass(frozen=True)
class Figure:
    """A figure as a function of case numbers, with the number of its units and the numbers of the cases that it rests on."""

    of: Callable[[Sequence[int]], float | None]
    n: int
    cases: frozenset[int] = frozenset()
    bounds: tuple[float, float] | None = None


UNDEFINED = Figure(lambda drawn: None, 0)


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def grouped(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list]:
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


def means(pairs: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    return {key: mean(values) for key, values in grouped(pairs).items()}


def share(units: Sequence[tuple[int, float]]) -> Figure:
    """Return the mean of (case, value) units."""

    def of(drawn: Sequence[int]) -> float | None:
        return mean([value for case in drawn for at, value in units if at == case])

    return Figure(of, len(units), frozenset(case for case, _ in units), (0.0, 1.0))


def relation(first: float | None, second: float | None) -> int | None:
    if first is None or second is None:
        return None
    return 0 if abs(first - second) <= SAME else 1 if first > second else -1


def accuracies(*tables: dict[Pair, tuple]) -> dict[str, Figure]:
    """Return the accuracies of tables of pair → (relation of people, relation of the judge)."""
    right, ordered, triples = [], [], []
    for table in tables:
        for (number, first, second), (people, judge) in table.items():
            if people is not None:
                right.append((number, float(people == judge)))
            if people:
                ordered.append((number, (judge == people) + 0.5 * (judge == 0)))
            for third in range(second + 1, MOST):
                places = itertools.combinations((first, second, third), 2)
                three = [table.get((number, *two), UNKNOWN) for two in places]
                if None not in [people for people, _ in three]:
                    is_right = all(people == judge for people, judge in three)
                    triples.append((number, float(is_right)))
    return dict(zip(MEASURES, map(share, (right, ordered, triples))))


def correlations(*tables: dict[Place, tuple]) -> dict[str, Figure]:
    """Return the correlations of tables of response → (score of people, score of the judge)."""
    lines = [(place[0], both) for table in tables for place, both in table.items()]
    points = [(number, both) for number, both in lines if None not in both]

    def figure(kind: str) -> Figure:
        def of(drawn: Sequence[int]) -> float | None:
            return correlation(kind, [both for case in drawn for at, both in points if at == case])

        return Figure(of, len(points), frozenset(number for number, _ in points))

    return {kind: figure(kind) for kind in CORRELATIONS}


def correlation(kind: str, points: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's or Pearson's correlation by scipy; None where one side does not vary."""
    sides = np.array(points).T if len(points) > 1 else np.zeros((2, 1))
    if np.ptp(sides, axis=1).min() <= SAME:
        return None
    ranked = sides.round(9) if kind == "spearman" else sides
    return float(CORRELATIONS[kind](*ranked).statistic)


class Loops:
    """The figures of one set of files.

    Args:
        cases, verdicts, ratings: the lines of the files; ratings may be None.
        baselines: name → the score of each response, by its case and model, NaN where it has none.
    """

    def __init__(
        self,
        cases: list[dict],
        verdicts: list[dict],
        ratings: list[dict] | None,
        baselines: dict[str, dict[tuple[str, str], float]] | None = None,
    ):
        # Cases are numbered by a hash of their ids, so that the order of the file changes no figure.
        self.cases = sorted(cases, key=lambda case: hashlib.sha256(case["id"].encode()).digest())
        self.number = {case["id"]: number for number, case in enumerate(self.cases)}
        self.names = [[response["model"] for response in case["responses"]] for case in self.cases]
        self.length: dict[Place, int] = {}
        self.pairs: list[Pair] = []
        for number, case in enumerate(self.cases):
            for place, response in enumerate(case["responses"]):
                self.length[number, place] = len(response["text"].split())
            twos = itertools.combinations(range(len(case["responses"])), 2)
            self.pairs += [(number, *two) for two in twos]
        self.responses = list(self.length)
        self.anonymous = False
        self.rate(ratings)
        self.rows: list[Row] = []
        by_author = grouped(((line["judge"], line["rubric"]), line) for line in verdicts)
        for of_author in by_author.values():
            chosen = [name for line in of_author for name in line["choices"] or ()]
            criteria = list(dict.fromkeys(chosen)) or [None]
            self.rows += [Row(self, of_author, criterion) for criterion in criteria]
        for name, scores in (baselines or {}).items():
            self.rows.append(Baseline(self, name, scores))

    def rate(self, ratings: list[dict] | None) -> None:
        """Take the ratings, as response and criterion → annotator → score."""
        self.ratings = ratings
        self.given: dict[tuple, dict[str, float]] = defaultdict(dict)
        for rating in ratings or ():
            number = self.number[rating["case_id"]]
            place = self.names[number].index(rating["model"])
            scores = self.given[number, place, rating["criterion"]]
            scores[rating["annotator"]] = rating["score"]
        self.annotators = sorted({name for scores in self.given.values() for name in scores})
        self.criteria = sorted({criterion for *_, criterion in self.given})
        self.people = means(
            ((number, place), mean([*scores.values()]))
            for (number, place, criterion), scores in self.given.items()
            if self.in_mean(number, criterion)
        )

    def in_mean(self, number: int, criterion: str) -> bool:
        """Return whether all rated responses of a case are rated on a criterion."""
        rated = {place for case, place, _ in self.given if case == number}
        return all((number, place, criterion) in self.given for place in rated)

    def name(self, place: Place) -> str:
        return self.names[place[0]][place[1]]

    def shown(self, verdict: dict) -> list[Place]:
        return [(self.number[verdict["case_id"]], place) for place in verdict["order"]]

    def content(self) -> dict[str, Any]:
        judges = {row.name: self.judge(row) for row in self.rows}
        content = {"cases": self.counts(), "judges": judges}
        return content | ({} if self.ratings is None else {"people": self.of_people()})

    def counts(self) -> dict[str, Any]:
        models = {self.name(place) for place in self.responses}
        counts = {"cases": len(self.cases), "responses": len(self.responses)}
        counts |= {"pairs": len(self.pairs), "models": len(models)}
        if self.ratings is None:
            return counts
        relations = Counter(self.by_people().values())
        return counts | {
            "rated_cases": len({number for number, _ in self.people}),
            "rated_responses": len(self.people),
            "rated_pairs": relations.total() - relations[None],
            "tied_pairs": relations[0],
        }

    def judge(self, row: "Row") -> dict[str, Any]:
        units = [
            (self.number[verdict["case_id"]], float(verdict["valid"])) for verdict in row.verdicts
        ]
        units += [(number, 0.0) for number in row.missing()]
        if isinstance(row, Baseline):
            units = [(number, 1.0) for number in range(len(self.cases))]
        checkpoints = {verdict.get("checkpoint") or None for verdict in row.verdicts}
        invalid = [verdict["error"] for verdict in row.verdicts if not verdict["valid"]]
        record: dict[str, Any] = {
            "verdicts": len(units),
            "errors": Counter(error or "unknown" for error in invalid),
            "empty": row.silent(),
            "checkpoint": checkpoints.pop() if len(checkpoints) == 1 else None,
            "unread": row.unread(),
            "valid_rate": share(units),
            "prefers_longer": self.prefers_longer(row.relations),
            "prefers_first": self.prefers_first(row),
        }
        return record | (self.agreement(row) if self.ratings is not None else {})

    def prefers_longer(self, relations: dict[Pair, int | None]) -> Figure:
        units = []
        for pair, longer in self.relations(self.length).items():
            chosen = relations[pair]
            if longer and chosen is not None:
                units.append((pair[0], (chosen == longer) + 0.5 * (chosen == 0)))
        return share(units)

    def prefers_first(self, row: "Row") -> Figure:
        """Return how often the first of two responses wins in a prompt that may show them in any order."""
        units = []
        if all(verdict["order"] == sorted(verdict["order"]) for verdict in row.verdicts):
            return UNDEFINED
        for verdict in row.verdicts:
            for first, second in itertools.combinations(verdict["order"], 2):
                won = row.won(verdict, first, second)
                if won is not None:
                    units.append((self.number[verdict["case_id"]], won))
        return share(units)

    def beside(self, row: "Row", judged: dict[Pair, int | None]) -> dict[Pair, tuple]:
        """Return pair → (relation of people, relation of the judge)."""
        people = row.people_relations()
        return {pair: (people[pair], judged[pair]) for pair in self.pairs}

    def points(self, row: "Row", scores: dict[Place, float]) -> dict[Place, tuple]:
        """Return response → (score of people, score of the judge)."""
        return {place: (self.people.get(place), scores.get(place)) for place in row.asked}

    def measures(self, row: "Row") -> dict[str, Any]:
        """Return the measures of a row from its own scores or choices, else from its expected scores."""
        measures = accuracies(self.beside(row, row.relations))
        measures |= dict.fromkeys(CORRELATIONS, UNDEFINED)
        if row.criterion is None and (row.scores or row.expected):
            measures |= correlations(self.points(row, row.own))
        measures["concordance"] = accuracies(self.finest(row))["concordance"]
        return measures

    def finest(self, row: "Row") -> dict[Pair, tuple]:
        """Return pair → (relation of people, relation of the judge) by its expected scores if it has them."""
        judged = row.relations if row.expected is None else self.ordered(row.expected)
        return self.beside(row, judged)

    def agreement(self, row: "Row") -> dict[str, Any]:
        record = self.measures(row)
        runs = [{"run": run} | self.measures(row.of_run(run)) for run in row.runs()]
        record["runs"] = runs if len(runs) > 1 else None
        scored = row.criterion is None and not isinstance(row, Baseline)
        return record | ({"by_confidence": self.by_confidence(row)} if scored else {})

    def by_confidence(self, row: "Row") -> dict[str, Figure]:
        """Return the concordance where the mean gap between two scores of a case is above the median, and where it is not."""
        table, apart = self.finest(row), defaultdict(list)
        for (number, *_), two in self.sides(row.expected or row.scores or {}).items():
            if None not in two:
                apart[number].append(abs(two[0] - two[1]))
        gaps = {number: round(mean(of_case), 9) for number, of_case in apart.items()}
        middle = median([*gaps.values()] or [0])
        surest = {pair: both for pair, both in table.items() if gaps.get(pair[0], -1) > middle}
        others = {pair: both for pair, both in table.items() if gaps.get(pair[0], np.inf) <= middle}
        return {
            "surest": accuracies(surest)["concordance"],
            "others": accuracies(others)["concordance"],
        }

    def ordered(self, scores: dict[Place, float]) -> dict[Pair, int | None]:
        """Return a judge's relations: an empty response loses a tie with an answer."""
        relations = self.relations(scores)
        for pair, (one, other) in self.sides(self.length).items():
            if relations[pair] == 0 and 0 in (one, other):
                relations[pair] = (one > 0) - (other > 0)
        return relations

    def relations(self, scores: dict[Place, float]) -> dict[Pair, int | None]:
        return {pair: relation(*two) for pair, two in self.sides(scores).items()}

    def sides(self, values: dict[Place, Any]) -> dict[Pair, tuple]:
        """Return pair → the values of both responses, None where there is none."""
        return {(n, a, b): (values.get((n, a)), values.get((n, b))) for n, a, b in self.pairs}

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

    def by_people(self) -> dict[Pair, int | None]:
        """Return people's relations: of the mean over criteria of the mean over those who rated both responses.

        Of anonymous raters nobody knows who rated both: then their scores are compared.
        """
        if self.anonymous:
            return self.relations(self.people)
        relations = {}
        for pair in self.pairs:
            gaps = [mean([*of_raters.values()]) for of_raters in self.gaps(*pair)]
            relations[pair] = relation(mean(gaps), 0)
        return relations

    def of_people(self) -> dict[str, Any]:
        """Return the agreement of one rater with the mean of the others."""
        if len(self.annotators) < 2:
            return {}
        tables, points = [], []
        for name in self.annotators:
            tables.append({pair: self.beside_others(name, pair) for pair in self.pairs})
            points.append(self.shared(name))
        return {"ceiling": accuracies(*tables) | correlations(*points)}

    def beside_others(self, annotator: str, pair: Pair) -> tuple:
        """Return the relations of the others and of an annotator, over the criteria on which both rated both responses."""
        own, rest = [], []
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
        both: dict[Place, dict[str, tuple]] = defaultdict(dict)
        for (number, place, criterion), scores in self.given.items():
            others = [score for name, score in scores.items() if name != annotator]
            if annotator in scores and others and self.in_mean(number, criterion):
                both[number, place][criterion] = mean(others), scores[annotator]
        shared = {}
        for place, by_criterion in both.items():
            of_case = [criteria for at, criteria in both.items() if at[0] == place[0]]
            common = set(by_criterion).intersection(*of_case)
            if common:
                sides = zip(*(by_criterion[criterion] for criterion in common))
                shared[place] = tuple(map(mean, sides))
        return shared

    def valid_rates(self, row: "Row") -> dict[str, Figure]:
        """Return each model's share of valid verdicts, with a verdict that is missing as one that is not valid."""
        units = defaultdict(list)
        for verdict in row.verdicts:
            for place in self.shown(verdict):
                says = float(row.says(verdict, place[1]))
                units[self.name(place)].append((place[0], says))
        for number, *places in itertools.chain(*row.lost()):
            for place in places:
                units[self.name((number, place))].append((number, 0.0))
        return {model: share(of_model) for model, of_model in units.items()}


class Row:
    """One line of the table: a judge with scores, or one criterion of a judge of pairs."""

    def __init__(self, loops: Loops, verdicts: list[dict], criterion: str | None):
        self.loops, self.verdicts, self.criterion = loops, verdicts, criterion
        judge = verdicts[0]["judge"]
        self.name = judge if criterion is None else f"{judge}: {criterion}"
        self.of_pairs = any(verdict["pair"] is not None for verdict in verdicts)
        shown = itertools.chain(*map(loops.shown, verdicts))
        self.asked = self.among(loops.responses, shown)
        valid = [verdict for verdict in verdicts if verdict["valid"]]
        self.complete = bool(valid) and all(verdict["expected_scores"] for verdict in valid)
        has_expected = self.complete and criterion is None
        self.expected = self.means(verdicts, "expected_scores") if has_expected else None
        self.scores = self.means(verdicts, "scores") if criterion is None else None
        self.relations = self.related(verdicts)

    def among(self, subjects: Iterable[tuple], shown: Iterable[tuple]) -> list[tuple]:
        """Return the responses, or the pairs, that the judge was asked about, by those that verdicts show.

        Models that cases with verdicts have, and no verdict shows, were left out on purpose.
        """
        judged = {self.loops.number[verdict["case_id"]] for verdict in self.verdicts}
        left_out = {self.kind(subject) for subject in subjects if subject[0] in judged}
        left_out -= set(map(self.kind, shown))
        return [subject for subject in subjects if self.kind(subject) not in left_out]

    def kind(self, subject: tuple) -> frozenset[str]:
        """Return the models of a response, or of a pair."""
        number, *places = subject
        return frozenset(self.loops.names[number][place] for place in places)

    @property
    def own(self) -> dict[Place, float]:
        """Return the scores of a judge, or the expected ones of one that has no others."""
        return (self.expected if self.scores is None else self.scores) or {}

    def related(self, verdicts: list[dict]) -> dict[Pair, int | None]:
        if self.criterion is None:
            return self.loops.ordered(self.own)
        better = -1 if self.criterion in WORSE else 1
        sign = {"first": better, "second": -better, "tie": 0, "neither": 0, None: None}
        return {pair: sign[choice] for pair, choice in self.chosen(verdicts).items()}

    def says(self, verdict: dict, place: int) -> bool:
        """Return whether a verdict is valid and says anything of a response that it shows."""
        if not verdict["valid"] or verdict["choices"]:
            return verdict["valid"]
        scores = None if self.complete else verdict["scores"]
        return (scores or verdict["expected_scores"])[place] is not None

    def won(self, verdict: dict, first: int, second: int) -> float | None:
        """Return 1 if a verdict prefers the first response, ½ if it ties, 0 else; None if it says nothing of both."""
        if not verdict["valid"]:
            return None
        if verdict["choices"]:
            return (1 + np.sign(self.criteria_won(verdict, first))) / 2
        scores = verdict["expected_scores"] or verdict["scores"]
        if scores[first] is None or scores[second] is None:
            return None
        difference = scores[first] - scores[second]
        return 0.5 if abs(difference) < 5e-5 else float(difference > 0)

    def criteria_won(self, verdict: dict, place: int) -> int:
        """Return the number of criteria that a response wins of a pair, less those that it loses."""
        name, won = self.loops.name((self.loops.number[verdict["case_id"]], place)), 0
        for criterion, choice in verdict["choices"].items():
            if choice not in ("tie", "neither"):
                won += 1 if (choice == name) != (criterion in WORSE) else -1
        return won

    def silent(self) -> Counter[str]:
        """Return model → number of its empty responses that the judge was asked about."""
        empty = [place for place in self.asked if not self.loops.length[place]]
        return Counter(map(self.loops.name, empty))

    def unread(self) -> Counter[str]:
        """Return model → number of its responses that valid verdicts show and none says anything of."""
        said: dict[Place, bool] = {}
        for verdict in self.verdicts:
            for place in self.loops.shown(verdict) if verdict["valid"] else ():
                said[place] = self.says(verdict, place[1]) or said.get(place, False)
        return Counter(self.loops.name(place) for place, says in said.items() if not says)

    def pair_of(self, verdict: dict) -> Pair:
        return (self.loops.number[verdict["case_id"]], *sorted(verdict["order"]))

    def asked_pairs(self) -> list[Pair]:
        asked = set(self.asked)
        pairs = [(n, a, b) for n, a, b in self.loops.pairs if {(n, a), (n, b)} <= asked]
        return self.among(pairs, map(self.pair_of, self.verdicts)) if self.of_pairs else pairs

    def people_relations(self) -> dict[Pair, int | None]:
        relations = self.loops.by_people()
        of_asked = {pair: relations[pair] for pair in self.asked_pairs()}
        return dict.fromkeys(relations) | of_asked

    def runs(self) -> list[int]:
        return sorted({verdict["run"] for verdict in self.verdicts})

    def in_run(self, run: int) -> list[dict]:
        return [verdict for verdict in self.verdicts if verdict["run"] == run]

    def of_run(self, run: int) -> "Row":
        """Return this row with the values of one run; what the judge was asked about, and its kind, stay."""
        row, of_run = copy.copy(self), self.in_run(run)
        if self.scores is not None:
            row.scores = self.means(of_run, "scores") or {}
        if self.expected is not None:
            row.expected = self.means(of_run, "expected_scores") or {}
        row.relations = row.related(of_run)
        return row

    def lost(self) -> list[list[tuple]]:
        """Return, for each run, the pairs, or of a judge with scores the responses, that were asked for and not given."""
        lost = []
        for run in self.runs():
            verdicts = self.in_run(run)
            if self.of_pairs:
                there = set(map(self.pair_of, verdicts))
                lost.append([pair for pair in self.asked_pairs() if pair not in there])
            else:
                there = set(itertools.chain(*map(self.loops.shown, verdicts)))
                lost.append([place for place in self.asked if place not in there])
        return lost

    def missing(self) -> list[int]:
        """Return the case of every verdict that was asked for in a run and not given."""
        missing: list[int] = []
        for of_run in self.lost():
            numbers = [subject[0] for subject in of_run]
            missing += numbers if self.of_pairs else set(numbers)
        return missing

    def means(self, verdicts: list[dict], name: str) -> dict[Place, float] | None:
        scored = [each for each in verdicts if each["valid"] and each[name]]
        values = [(at, each[name][at[1]]) for each in scored for at in self.loops.shown(each)]
        return means((at, score) for at, score in values if score is not None) or None

    def answer(self, verdict: dict) -> str | None:
        """Return a verdict's choice as "first", "second", "tie" or "neither", in the order of the case."""
        choice = (verdict["choices"] or {}).get(self.criterion) if verdict["valid"] else None
        if choice in (None, "tie", "neither"):
            return choice
        number, first, _ = self.pair_of(verdict)
        return "first" if self.loops.names[number][first] == choice else "second"

    def chosen(self, verdicts: list[dict]) -> dict[Pair, str | None]:
        """Return the most frequent choice about each pair; the neutral one where two are."""
        choices: dict[Pair, str | None] = {}
        for pair in self.loops.pairs:
            counts = Counter(self.answer(each) for each in verdicts if self.pair_of(each) == pair)
            del counts[None]
            most = [label for label, count in counts.items() if count == max(counts.values())]
            choices[pair] = None if not most else most[0] if len(most) == 1 else "tie"
        return choices


class Baseline(Row):
    """The line of a baseline, with the score of each response that has one."""

    def __init__(self, loops: Loops, name: str, scores: dict[tuple[str, str], float]):
        self.loops, self.verdicts, self.name, self.of_pairs = loops, [], name, False
        self.criterion = self.scores = None
        self.expected = {}
        for place in loops.responses:
            score = scores[loops.cases[place[0]]["id"], loops.name(place)]
            if not math.isnan(score):
                self.expected[place] = score
        self.asked = [*self.expected]
        self.relations = loops.ordered(self.expected)
