"""The accuracies, correlations and ceilings of agreement.json by plain loops over the lines of the files.

It follows the definitions of docs/believe.md and of the docstrings, and imports nothing of the package. Every figure is a
function of a list of case numbers, so that a resample of the bootstrap is only a list with repetitions.
"""

import copy
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

WORSE = {"harmfulness"}  # criteria of medical_pairwise whose choice is the worse response
SAME = 1e-9
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
        after = grouped(((number, first), second) for number, first, second in table)
        for (number, first, second), (people, judge) in table.items():
            for third in after[number, second]:
                places = itertools.combinations((first, second, third), 2)
                three = [table[number, *two] for two in places]
                if all(said is not None for said, _ in three):
                    triples.append((number, float(all(said == by for said, by in three))))
            if people is not None:
                right.append((number, float(people == judge)))
            if people:
                ordered.append((number, (judge == people) + 0.5 * (judge == 0)))
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
        baselines: name → the score of each response, by its case and model, None where it has none.
    """

    def __init__(
        self,
        cases: list[dict],
        verdicts: list[dict],
        ratings: list[dict] | None,
        baselines: dict[str, dict[tuple[str, str], float | None]] | None = None,
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
        self.ratings, self.anonymous = ratings, False
        self.rows: list[Row] = []
        by_author = grouped(((each["judge"], each["rubric"]), each) for each in verdicts)
        for of_author in by_author.values():
            chosen = [name for each in of_author for name in each["choices"] or ()]
            criteria = list(dict.fromkeys(chosen)) or [None]
            self.rows += [Row(self, of_author, criterion) for criterion in criteria]
        self.rows += [Baseline(self, *each) for each in (baselines or {}).items()]
        # response and criterion → annotator → score
        self.given: dict[tuple, dict[str, float]] = defaultdict(dict)
        for each in ratings or ():
            number = self.number[each["case_id"]]
            place = self.names[number].index(each["model"])
            self.given[number, place, each["criterion"]][each["annotator"]] = each["score"]
        self.annotators = sorted({each["annotator"] for each in ratings or ()})
        self.criteria = sorted({each["criterion"] for each in ratings or ()})
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
        units = [(self.number[each["case_id"]], float(each["valid"])) for each in row.verdicts]
        units += [(case, 0.0) for case in row.missing()]
        if isinstance(row, Baseline):
            units = [(number, 1.0) for number in range(len(self.cases))]
        checkpoints = {each.get("checkpoint") or None for each in row.verdicts}
        record: dict[str, Any] = {
            "verdicts": len(units),
            "errors": Counter(
                each["error"] or "unknown" for each in row.verdicts if not each["valid"]
            ),
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
        for (number, first, second), chosen in relations.items():
            longer = relation(self.length[number, first], self.length[number, second])
            if longer and chosen is not None:
                units.append((number, (chosen == longer) + 0.5 * (chosen == 0)))
        return share(units)

    def prefers_first(self, row: "Row") -> Figure:
        """Return how often the first of two responses wins in a prompt that may show them in any order."""
        units = []
        if all(each["order"] == sorted(each["order"]) for each in row.verdicts):
            return UNDEFINED
        for verdict in row.verdicts:
            number, order = self.number[verdict["case_id"]], verdict["order"]
            for place, first in enumerate(order):
                for second in order[place + 1 :]:
                    won = row.won(verdict, first, second)
                    units += [] if won is None else [(number, won)]
        return share(units)

    def beside(self, row: "Row", judged: dict[Pair, int | None]) -> dict[Pair, tuple]:
        """Return pair → (relation of people, relation of the judge)."""
        people = row.people_relations()
        return {pair: (people[pair], judged[pair]) for pair in self.pairs}

    def points(self, row: "Row", scores: dict[Place, float]) -> dict[Place, tuple]:
        """Return response → (score of people, score of the judge)."""
        asked = [place for place in self.responses if row.asked[place]]
        return {place: (self.people.get(place), scores.get(place)) for place in asked}

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
        values = row.expected or row.scores or {}
        sides = {(n, a, b): (values.get((n, a)), values.get((n, b))) for n, a, b in self.pairs}
        apart = means(
            (pair[0], abs(np.subtract(*two))) for pair, two in sides.items() if None not in two
        )
        gaps = {number: round(gap, 9) for number, gap in apart.items()}
        middle, table = median([*gaps.values()] or [0]), self.finest(row)
        surest = {pair: both for pair, both in table.items() if gaps.get(pair[0], -1) > middle}
        others = {pair: both for pair, both in table.items() if gaps.get(pair[0], np.inf) <= middle}
        found = {"surest": surest, "others": others}
        return {name: accuracies(part)["concordance"] for name, part in found.items()}

    def ordered(self, scores: dict[Place, float]) -> dict[Pair, int | None]:
        """Return a judge's relations: an empty response loses a tie with an answer."""
        relations = self.relations(scores)
        for number, first, second in self.pairs:
            one, other = self.length[number, first], self.length[number, second]
            if relations[number, first, second] == 0 and (one == 0) != (other == 0):
                relations[number, first, second] = 1 if one else -1
        return relations

    def relations(self, scores: dict[Place, float]) -> dict[Pair, int | None]:
        sides = {(n, a, b): (scores.get((n, a)), scores.get((n, b))) for n, a, b in self.pairs}
        return {pair: relation(*two) for pair, two in sides.items()}

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
        gaps = {pair: [mean([*each.values()]) for each in self.gaps(*pair)] for pair in self.pairs}
        return {pair: relation(mean(each), 0) for pair, each in gaps.items()}

    def of_people(self) -> dict[str, Any]:
        """Return the agreement of one rater with the mean of the others."""
        if len(self.annotators) < 2:
            return {}
        tables = [
            {pair: self.beside_others(name, pair) for pair in self.pairs}
            for name in self.annotators
        ]
        points = map(self.shared, self.annotators)
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
        both = {}
        for (number, place, criterion), scores in self.given.items():
            others = [score for name, score in scores.items() if name != annotator]
            if annotator in scores and others and self.in_mean(number, criterion):
                both[number, criterion, place] = mean(others), scores[annotator]
        places = grouped((number, place) for number, _, place in both)
        kept = grouped(
            ((number, place), two)
            for (number, criterion, place), two in both.items()
            if all((number, criterion, each) in both for each in places[number])
        )
        return {place: tuple(map(mean, zip(*twos))) for place, twos in kept.items()}

    def valid_rates(self, row: "Row") -> dict[str, Figure]:
        """Return each model's share of valid verdicts, with a verdict that is missing as one that is not valid."""
        units = [
            (self.name(place), (place[0], float(row.says(each, place[1]))))
            for each in row.verdicts
            for place in self.shown(each)
        ]
        for number, *places in itertools.chain(*row.lost()):
            units += [(self.name((number, place)), (number, 0.0)) for place in places]
        return {model: share(of_model) for model, of_model in grouped(units).items()}


class Row:
    """One line of the table: a judge with scores, or one criterion of a judge of pairs."""

    def __init__(self, loops: Loops, verdicts: list[dict], criterion: str | None):
        self.loops, self.verdicts, self.criterion = loops, verdicts, criterion
        judge = verdicts[0]["judge"]
        self.name = judge if criterion is None else f"{judge}: {criterion}"
        self.of_pairs = any(each["pair"] is not None for each in verdicts)
        # A model that cases with verdicts have, and no verdict shows, was left out on purpose.
        judged = {loops.number[each["case_id"]] for each in verdicts}
        left_out = {model for number in judged for model in loops.names[number]}
        left_out -= {loops.name(place) for each in verdicts for place in loops.shown(each)}
        self.asked = {place: loops.name(place) not in left_out for place in loops.responses}
        valid = [each for each in verdicts if each["valid"]]
        self.complete = bool(valid) and all(each["expected_scores"] for each in valid)
        has_expected = self.complete and criterion is None
        self.expected = self.means(verdicts, "expected_scores") if has_expected else None
        self.scores = self.means(verdicts, "scores") if criterion is None else None
        self.relations = self.related(verdicts)

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
            return self.won_by_choices(verdict, first)
        scores = verdict["expected_scores"] or verdict["scores"]
        if scores[first] is None or scores[second] is None:
            return None
        difference = scores[first] - scores[second]
        return 0.5 if abs(difference) < 5e-5 else float(difference > 0)

    def won_by_choices(self, verdict: dict, first: int) -> float:
        """Return the same of the choices of a pair: who wins more criteria."""
        number = self.loops.number[verdict["case_id"]]
        name, wins = self.loops.name((number, first)), 0
        for criterion, choice in verdict["choices"].items():
            if choice not in ("tie", "neither"):
                wins += 1 if (choice == name) != (criterion in WORSE) else -1
        return 0.5 + 0.5 * (wins > 0) - 0.5 * (wins < 0)

    def silent(self) -> Counter[str]:
        """Return model → number of its empty responses that the judge was asked about."""
        lengths = self.loops.length.items()
        return Counter(self.loops.name(at) for at, words in lengths if self.asked[at] and not words)

    def unread(self) -> Counter[str]:
        """Return model → number of its responses that valid verdicts show and none says anything of."""
        said = grouped(
            (place, self.says(each, place[1]))
            for each in self.verdicts
            for place in self.loops.shown(each)
            if each["valid"]
        )
        return Counter(self.loops.name(place) for place, says in said.items() if not any(says))

    def pair_of(self, verdict: dict) -> Pair:
        return (self.loops.number[verdict["case_id"]], *sorted(verdict["order"]))

    def asked_pairs(self) -> dict[Pair, bool]:
        loops = self.loops
        was_asked = {(n, a, b): self.asked[n, a] and self.asked[n, b] for n, a, b in loops.pairs}
        if not self.of_pairs:
            return was_asked

        def models(pair: Pair) -> frozenset[str]:
            return frozenset(loops.names[pair[0]][place] for place in pair[1:])

        judged = {loops.number[each["case_id"]] for each in self.verdicts}
        left_out = {models(pair) for pair in loops.pairs if pair[0] in judged}
        left_out -= {models(self.pair_of(each)) for each in self.verdicts}
        return {pair: asked and models(pair) not in left_out for pair, asked in was_asked.items()}

    def people_relations(self) -> dict[Pair, int | None]:
        asked, relations = self.asked_pairs(), self.loops.by_people()
        return {pair: each if asked[pair] else None for pair, each in relations.items()}

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
        asked, lost = self.asked_pairs() if self.of_pairs else self.asked, []
        for run in self.runs():
            shown = [self.loops.shown(each) for each in self.in_run(run)]
            there = set(itertools.chain(*shown))
            if self.of_pairs:
                there = {self.pair_of(each) for each in self.in_run(run)}
            lost.append([key for key, was_asked in asked.items() if was_asked and key not in there])
        return lost

    def missing(self) -> list[int]:
        """Return the case of every verdict that was asked for in a run and not given."""
        cases = [[key[0] for key in of_run] for of_run in self.lost()]
        return [*itertools.chain(*(each if self.of_pairs else {*each} for each in cases))]

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

    def __init__(self, loops: Loops, name: str, scores: dict[tuple[str, str], float | None]):
        self.loops, self.verdicts, self.name, self.of_pairs = loops, [], name, False
        self.criterion = self.scores = None
        placed = {}
        for place in loops.responses:
            placed[place] = scores[loops.cases[place[0]]["id"], loops.name(place)]
        self.asked = {place: score is not None for place, score in placed.items()}
        self.expected = {place: score for place, score in placed.items() if self.asked[place]}
        self.relations = loops.ordered(self.expected)
