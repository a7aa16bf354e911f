"""The accuracies, correlations and ceilings of agreement.json by plain loops over the lines of the files.

It follows the definitions of docs/believe.md and of the docstrings, and imports nothing of the package. Every figure is a
function of a list of case numbers, so that a resample of the bootstrap is only a list with repetitions.
"""

import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import pearsonr, spearmanr

WORSE = {"harmfulness"}  # criteria of medical_pairwise whose choice is the worse response
SAME = 1e-9
MEASURES = ("pairwise_accuracy", "concordance", "triple_accuracy")
CORRELATIONS = ("spearman", "pearson")


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


def means_by(values: dict[tuple, float]) -> dict[tuple, float]:
    """Return the means of the values whose keys differ in their last part alone, by what they have in common."""
    together: dict[tuple, list[float]] = {}
    for key, value in sorted(values.items()):
        together.setdefault(key[:-1], []).append(value)
    return {key: mean(each) for key, each in together.items()}


def share(units: Sequence[tuple[int, float]]) -> Figure:
    """Return the mean of (case, value) units."""

    def of(drawn: Sequence[int]) -> float | None:
        return mean([value for case in drawn for at, value in units if at == case])

    return Figure(of, len(units), frozenset(case for case, _ in units), (0.0, 1.0))


def relation(first: float | None, second: float | None) -> int | None:
    if first is None or second is None:
        return None
    return 0 if abs(first - second) <= SAME else 1 if first > second else -1


def accuracies(
    groups: Sequence[tuple[int, Sequence[tuple[int | None, int | None]]]],
) -> dict[str, Figure]:
    """Return the accuracies of (case, [(relation of people, relation of the judge), …]) groups.

    The pairs of a group are all pairs of its responses, in the order of `itertools.combinations`.
    """
    rated = [
        (case, people, judge)
        for case, pairs in groups
        for people, judge in pairs
        if people is not None
    ]
    untied = [each for each in rated if each[1] != 0]
    triples = []
    for case, pairs in groups:
        size = next(size for size in itertools.count() if size * (size - 1) // 2 >= len(pairs))
        by_places = dict(zip(itertools.combinations(range(size), 2), pairs, strict=True))
        for three in itertools.combinations(range(size), 3):
            pairs_of_three = [by_places[two] for two in itertools.combinations(three, 2)]
            if all(people is not None for people, _ in pairs_of_three):
                triples.append(
                    (case, float(all(people == judge for people, judge in pairs_of_three)))
                )
    return {
        "pairwise_accuracy": share(
            [(case, float(people == judge)) for case, people, judge in rated]
        ),
        "concordance": share(
            [(case, (judge == people) + 0.5 * (judge == 0)) for case, people, judge in untied]
        ),
        "triple_accuracy": share(triples),
    }


def correlation(kind: str, points: Sequence[tuple[float, float]]) -> float | None:
    """Return Spearman's or Pearson's correlation by scipy; None where one side does not vary."""
    sides = np.array(points).T if len(points) > 1 else np.zeros((2, 1))
    if np.ptp(sides, axis=1).min() <= SAME:
        return None
    return float((spearmanr(*sides.round(9)) if kind == "spearman" else pearsonr(*sides)).statistic)


def correlations(
    groups: Sequence[tuple[int, Sequence[tuple[float | None, float | None]]]],
) -> dict[str, Figure]:
    """Return the correlations of (case, [(score of people, score of the judge), …]) groups."""
    both = [(case, [pair for pair in points if None not in pair]) for case, points in groups]
    cases = frozenset(case for case, points in both if points)
    figures = {}
    for kind in ("spearman", "pearson"):

        def pooled(drawn: Sequence[int], kind: str = kind) -> float | None:
            return correlation(
                kind,
                [pair for case in drawn for at, points in both if at == case for pair in points],
            )

        figures[kind] = Figure(pooled, sum(len(points) for _, points in both), cases)
    return figures


class Loops:
    """The figures of one set of files.

    Args:
        cases, verdicts, ratings: the lines of the files; ratings may be None.
        baselines: name → the score of every response of the cases in the order given, None where it has none.
    """

    def __init__(
        self,
        cases: list[dict],
        verdicts: list[dict],
        ratings: list[dict] | None,
        baselines: dict[str, list[float | None]] | None = None,
    ):
        flat = [(case["id"], response["model"]) for case in cases for response in case["responses"]]
        self.models = list(dict.fromkeys(model for _, model in flat))
        # Cases are numbered by a hash of their ids, so that the order of the file changes no figure.
        self.cases = sorted(cases, key=lambda case: hashlib.sha256(case["id"].encode()).digest())
        self.number = {case["id"]: number for number, case in enumerate(self.cases)}
        self.names = [[response["model"] for response in case["responses"]] for case in self.cases]
        self.responses = [
            (number, place)
            for number, names in enumerate(self.names)
            for place in range(len(names))
        ]
        twos = [itertools.combinations(range(len(names)), 2) for names in self.names]
        self.pairs = [(number, *two) for number, of_case in enumerate(twos) for two in of_case]
        words = [[len(each["text"].split()) for each in case["responses"]] for case in self.cases]
        self.length = {(number, place): words[number][place] for number, place in self.responses}
        self.ratings, self.anonymous = ratings, False
        self.rows: list[Row] = []
        authors = list(dict.fromkeys((verdict["judge"], verdict["rubric"]) for verdict in verdicts))
        for author in authors:
            of_author = [
                verdict for verdict in verdicts if (verdict["judge"], verdict["rubric"]) == author
            ]
            valid = [verdict for verdict in of_author if verdict["valid"]]
            criteria = list(
                dict.fromkeys(name for verdict in valid for name in verdict["choices"] or ())
            )
            self.rows += [
                Row(self, of_author, criterion, criteria) for criterion in criteria or [None]
            ]
        for name, scores in (baselines or {}).items():
            placed = {
                (self.number[case_id], model): score
                for (case_id, model), score in zip(flat, scores)
            }
            of_baseline = {
                (n, place): placed[n, self.names[n][place]] for n, place in self.responses
            }
            self.rows.append(Row(self, [], None, [], name, of_baseline))
        self.annotators = sorted({rating["annotator"] for rating in ratings or ()})
        self.criteria = sorted({rating["criterion"] for rating in ratings or ()})
        places = ((self.response_of(each), each) for each in ratings or ())
        self.scores_given = {
            (*place, each["annotator"], each["criterion"]): each["score"] for place, each in places
        }
        in_mean = {key: score for key, score in self.scores_given.items() if self.in_mean(key)}
        self.people = means_by(
            means_by({(*key[:2], *key[:1:-1]): score for key, score in in_mean.items()})
        )

    def in_mean(self, key: tuple) -> bool:
        """Return whether all rated responses of a case are rated on the criterion of a score."""
        of_case = [each for each in self.scores_given if each[0] == key[0]]
        return {each[1] for each in of_case} == {each[1] for each in of_case if each[3] == key[3]}

    def response_of(self, rating: dict) -> tuple[int, int]:
        number = self.number[rating["case_id"]]
        return number, self.names[number].index(rating["model"])

    def shown(self, verdict: dict) -> list[tuple[int, int]]:
        return [(self.number[verdict["case_id"]], place) for place in verdict["order"]]

    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "cases": self.counts(),
            "judges": {row.name: self.judge(row) for row in self.rows},
        }
        if self.ratings is not None:
            content["people"] = self.of_people()
        return content

    def counts(self) -> dict[str, Any]:
        counts = {
            name: len(getattr(self, name)) for name in ("cases", "responses", "pairs", "models")
        }
        if self.ratings is None:
            return counts
        relations = list(self.by_people().values())
        counts |= {
            "rated_cases": len({number for number, _ in self.people}),
            "rated_responses": len(self.people),
        }
        return counts | {
            "rated_pairs": len(relations) - relations.count(None),
            "tied_pairs": relations.count(0),
        }

    def judge(self, row: "Row") -> dict[str, Any]:
        units = [
            (self.number[verdict["case_id"]], float(verdict["valid"])) for verdict in row.verdicts
        ]
        units += [(case, 0.0) for case in row.missing()]
        if row.kind == "baseline":
            units = [(number, 1.0) for number in range(len(self.cases))]
        checkpoints = {str(verdict.get("checkpoint") or "") for verdict in row.verdicts}
        errors = Counter(each["error"] or "unknown" for each in row.verdicts if not each["valid"])
        record: dict[str, Any] = {
            "verdicts": len(units),
            "errors": dict(errors),
            "empty": row.silent(),
        }
        record["checkpoint"] = checkpoints.pop() or None if len(checkpoints) == 1 else None
        record["unread"] = {} if row.kind == "baseline" else row.unread()
        record |= {"valid_rate": share(units), "prefers_longer": self.prefers_longer(row.relations)}
        return record | (self.agreement(row) if self.ratings is not None else {})

    def prefers_longer(self, relations: dict[tuple, int | None]) -> Figure:
        units = []
        for number, first, second in self.pairs:
            longer = relation(self.length[number, first], self.length[number, second])
            chosen = relations[number, first, second]
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
        points: list[list] = [[] for _ in self.cases]
        for key in self.responses:
            points[key[0]].append(
                (self.people.get(key) if row.asked[key] else None, scores.get(key))
            )
        return list(enumerate(points))

    def measures(self, row: "Row") -> dict[str, Any]:
        """Return the measures of a row from its own scores or choices, else from its expected scores."""
        measures = accuracies(self.groups(row, row.relations)) | dict.fromkeys(
            CORRELATIONS, UNDEFINED
        )
        if row.criterion is None and (row.scores or row.expected):
            measures |= correlations(
                self.points(row, row.expected if row.scores is None else row.scores)
            )
        if row.expected is not None:
            measures["concordance"] = accuracies(self.groups(row, self.ordered(row.expected)))[
                "concordance"
            ]
        return measures

    def agreement(self, row: "Row") -> dict[str, Any]:
        record = self.measures(row)
        runs = row.runs()
        record["runs"] = (
            [{"run": run} | self.measures(row.of_run(run)) for run in runs]
            if len(runs) > 1
            else None
        )
        scored = row.criterion is None and row.kind == "judge"
        return record | ({"by_confidence": self.by_confidence(row)} if scored else {})

    def by_confidence(self, row: "Row") -> dict[str, Figure]:
        """Return the concordance where the mean gap between two scores of a case is above the median, and where it is not."""
        values, gaps = row.expected or row.scores or {}, []
        for number in range(len(self.cases)):
            twos = [((n, a), (n, b)) for n, a, b in self.pairs if n == number]
            apart = [
                abs(values[one] - values[two])
                for one, two in twos
                if one in values and two in values
            ]
            gaps.append(round(mean(apart), 9) if apart else None)
        groups = self.groups(
            row, row.relations if row.expected is None else self.ordered(row.expected)
        )
        groups = [each for each in groups if gaps[each[0]] is not None]
        middle = median([gaps[number] for number, _ in groups] or [0])
        sides = {"surest": True, "others": False}
        return {
            name: accuracies([each for each in groups if (gaps[each[0]] > middle) == sure])[
                "concordance"
            ]
            for name, sure in sides.items()
        }

    def ordered(self, scores: dict[tuple, float]) -> dict[tuple, int | None]:
        """Return a judge's relations: an empty response loses a tie with an answer."""
        relations = self.relations(scores)
        for number, first, second in self.pairs:
            if relations[number, first, second] == 0 and self.one_is_empty((number, first, second)):
                relations[number, first, second] = 1 if self.length[number, first] else -1
        return relations

    def relations(self, scores: dict[tuple, float]) -> dict[tuple, int | None]:
        sides = {(n, a, b): (scores.get((n, a)), scores.get((n, b))) for n, a, b in self.pairs}
        return {pair: relation(*two) for pair, two in sides.items()}

    def one_is_empty(self, pair: tuple[int, int, int]) -> bool:
        number, first, second = pair
        return (self.length[number, first] == 0) != (self.length[number, second] == 0)

    def gaps(self, number: int, first: int, second: int) -> list[dict[str, float]]:
        """Return, for every criterion, annotator → gap between two responses of a case, of those who rated both on it."""
        found = []
        for criterion in self.criteria:
            sides = [
                (number, place, name, criterion)
                for place in (first, second)
                for name in self.annotators
            ]
            scores = [
                self.scores_given[key] if key in self.scores_given and self.in_mean(key) else None
                for key in sides
            ]
            both = zip(self.annotators, scores, scores[len(self.annotators) :])
            found.append(
                {name: one - other for name, one, other in both if None not in (one, other)}
            )
        return [gaps for gaps in found if gaps]

    def by_people(self) -> dict[tuple, int | None]:
        """Return people's relations: of the mean over criteria of the mean over those who rated both responses.

        Of anonymous raters nobody knows who rated both: then their scores are compared.
        """
        if self.anonymous:
            return self.relations(self.people)
        gaps = {
            pair: mean([mean(list(each.values())) for each in self.gaps(*pair)])
            for pair in self.pairs
        }
        return {pair: None if gap is None else relation(gap, 0) for pair, gap in gaps.items()}

    def shared(self, annotator: str, number: int) -> dict[int, dict[str, tuple[float, float]]]:
        """Return place → criterion → (mean of the others, own score) of the responses and criteria of a case that have both.

        A criterion that one of these responses lacks is left out of all of them.
        """
        found: dict[int, dict[str, tuple[float, float]]] = {}
        for key, own in self.scores_given.items():
            if (key[0], key[2]) == (number, annotator) and self.in_mean(key):
                others = [(*key[:2], name, key[3]) for name in self.annotators if name != annotator]
                if rest := [
                    self.scores_given[each] for each in others if each in self.scores_given
                ]:
                    found.setdefault(key[1], {})[key[3]] = (mean(rest), own)
        return {
            place: {
                name: pair
                for name, pair in of.items()
                if all(name in each for each in found.values())
            }
            for place, of in found.items()
        }

    def valid_rates(self, row: "Row") -> dict[str, Figure]:
        """Return each model's share of valid verdicts, with a verdict that is missing as one that is not valid."""
        units: dict[str, list] = {}
        for verdict in row.verdicts:
            for number, place in self.shown(verdict):
                units.setdefault(self.names[number][place], []).append(
                    (number, float(row.says(verdict, place)))
                )
        for number, *places in itertools.chain(*row.lost()):
            for place in places:
                units.setdefault(self.names[number][place], []).append((number, 0.0))
        return {model: share(of_run) for model, of_run in units.items()}

    def of_people(self) -> dict[str, Any]:
        """Return the agreement of one rater with the mean of the others."""
        if len(self.annotators) < 2:
            return {}
        pairs, points = [], []
        for annotator, number in itertools.product(self.annotators, range(len(self.cases))):
            twos = []
            for pair in (each for each in self.pairs if each[0] == number):
                here = [each for each in self.gaps(*pair) if annotator in each and len(each) > 1]
                rest = [
                    mean([gap for name, gap in each.items() if name != annotator]) for each in here
                ]
                own = [each[annotator] for each in here]
                twos.append(
                    (relation(mean(rest), 0), relation(mean(own), 0)) if here else (None, None)
                )
            pairs.append((number, twos))
            columns = [zip(*of.values()) for of in self.shared(annotator, number).values() if of]
            points.append((number, [tuple(map(mean, each)) for each in columns]))
        return {"ceiling": accuracies(pairs) | correlations(points)}


class Row:
    """One line of the table: a judge with scores, one criterion of a judge of pairs, or a baseline with its scores."""

    def __init__(
        self,
        loops: Loops,
        verdicts: list[dict],
        criterion: str | None,
        criteria: list[str],
        baseline: str | None = None,
        baseline_scores: dict[tuple, float | None] | None = None,
    ):
        self.loops, self.verdicts, self.criterion, self.criteria = (
            loops,
            verdicts,
            criterion,
            criteria,
        )
        self.kind = "judge" if baseline is None else "baseline"
        self.judge = verdicts[0]["judge"] if baseline is None else baseline
        self.rubric = verdicts[0]["rubric"] if baseline is None else "counted"
        self.name = self.judge if criterion is None else f"{self.judge}: {criterion}"
        if baseline is not None:
            self.asked = {key: baseline_scores[key] is not None for key in loops.responses}
            self.scores = None
            self.expected = {
                key: value for key, value in baseline_scores.items() if value is not None
            }
            self.relations = loops.ordered(self.expected)
            return
        shown = {key for each in verdicts for key in loops.shown(each)}
        judged = {loops.number[each["case_id"]] for each in verdicts}
        # A model that cases with verdicts have, and no verdict shows, was left out on purpose.
        left_out = {model for number in judged for model in loops.names[number]}
        left_out -= {loops.names[number][place] for number, place in shown}
        self.asked = {
            (number, place): loops.names[number][place] not in left_out
            for number, place in loops.responses
        }
        self.scores, means = self.means(verdicts, "scores"), self.means(verdicts, "expected_scores")
        valid = [each for each in verdicts if each["valid"]]
        complete = valid and all(each["expected_scores"] for each in valid)
        self.expected = means if complete and criterion is None else None
        if criterion is not None:
            self.scores = None
            self.relations = self.of_choices(self.chosen(verdicts))
        else:
            self.relations = loops.ordered(self.scores or self.expected or {})

    def says(self, verdict: dict, place: int) -> bool:
        """Return whether a verdict is valid and says anything of a response that it shows."""
        if not verdict["valid"] or verdict["choices"]:
            return verdict["valid"]
        every = [each["expected_scores"] for each in self.verdicts if each["valid"]]
        scores = (
            verdict["expected_scores"]
            if all(every)
            else verdict["scores"] or verdict["expected_scores"]
        )
        return scores[place] is not None

    def silent(self) -> dict[str, int]:
        """Return model → number of its empty responses that the judge was asked about."""
        loops = self.loops
        empty = [key for key in loops.responses if self.asked[key] and not loops.length[key]]
        return dict(Counter(loops.names[number][place] for number, place in empty))

    def unread(self) -> dict[str, int]:
        """Return model → number of its responses that valid verdicts show and none says anything of."""
        shown: dict[tuple[int, int], bool] = {}
        for verdict in self.verdicts:
            for key in self.loops.shown(verdict) if verdict["valid"] else ():
                shown[key] = shown.get(key, False) or self.says(verdict, key[1])
        return dict(Counter(self.loops.names[n][p] for (n, p), said in shown.items() if not said))

    @property
    def of_pairs(self) -> bool:
        return any(each["pair"] is not None for each in self.verdicts)

    def pair_of(self, verdict: dict) -> tuple[int, int, int]:
        return (self.loops.number[verdict["case_id"]], *sorted(verdict["order"]))

    def asked_pairs(self) -> dict[tuple, bool]:
        loops = self.loops
        was_asked = {(n, a, b): self.asked[n, a] and self.asked[n, b] for n, a, b in loops.pairs}
        if not self.of_pairs:
            return was_asked

        def models(pair: tuple[int, int, int]) -> frozenset[str]:
            return frozenset(loops.names[pair[0]][place] for place in pair[1:])

        judged = {loops.number[each["case_id"]] for each in self.verdicts}
        left_out = {models(pair) for pair in loops.pairs if pair[0] in judged}
        left_out -= {models(self.pair_of(each)) for each in self.verdicts}
        return {pair: asked and models(pair) not in left_out for pair, asked in was_asked.items()}

    def people_relations(self) -> dict[tuple, int | None]:
        asked, relations = self.asked_pairs(), self.loops.by_people()
        return {pair: each if asked[pair] else None for pair, each in relations.items()}

    def runs(self) -> list[int]:
        return sorted({verdict["run"] for verdict in self.verdicts})

    def of_run(self, run: int) -> "Row":
        """Return this row with the values of one run; what the judge was asked about, and its kind, stay."""
        row, of_run = (
            copy.copy(self),
            [verdict for verdict in self.verdicts if verdict["run"] == run],
        )
        row.scores = None if self.scores is None else self.means(of_run, "scores") or {}
        row.expected = (
            None if self.expected is None else self.means(of_run, "expected_scores") or {}
        )
        if self.criterion is not None:
            row.relations = row.of_choices(row.chosen(of_run))
        else:
            values = row.expected if row.scores is None else row.scores
            row.relations = self.loops.ordered(values or {})
        return row

    def lost(self) -> list[list[tuple]]:
        """Return, for each run, the pairs, or of a judge with scores the responses, that were asked for and not given."""
        lost = []
        for run in self.runs():
            of_run = [verdict for verdict in self.verdicts if verdict["run"] == run]
            if self.of_pairs:
                there, asked = {self.pair_of(each) for each in of_run}, self.asked_pairs()
            else:
                there, asked = (
                    {key for each in of_run for key in self.loops.shown(each)},
                    self.asked,
                )
            lost.append([key for key, was_asked in asked.items() if was_asked and key not in there])
        return lost

    def missing(self) -> list[int]:
        """Return the case of every verdict that was asked for in a run and not given."""
        cases = [[key[0] for key in of_run] for of_run in self.lost()]
        return [
            case for of_run in cases for case in (of_run if self.of_pairs else sorted(set(of_run)))
        ]

    def means(self, verdicts: list[dict], name: str) -> dict[tuple, float] | None:
        collected: dict[tuple, list[float]] = {}
        for verdict in verdicts:
            if verdict["valid"] and verdict[name]:
                for key in self.loops.shown(verdict):
                    if (score := verdict[name][key[1]]) is not None:
                        collected.setdefault(key, []).append(score)
        return {key: mean(values) for key, values in collected.items()} or None

    def answer(self, verdict: dict) -> str | None:
        """Return a verdict's choice as "first", "second", "tie" or "neither", in the order of the case."""
        choice = (verdict["choices"] or {}).get(self.criterion) if verdict["valid"] else None
        if choice in (None, "tie", "neither"):
            return choice
        number, first, _ = self.pair_of(verdict)
        return "first" if self.loops.names[number][first] == choice else "second"

    def chosen(self, verdicts: list[dict]) -> dict[tuple, str | None]:
        """Return the most frequent choice about each pair; the neutral one where two are."""
        choices: dict[tuple, str | None] = {}
        for pair in self.loops.pairs:
            counts = Counter(self.answer(each) for each in verdicts if self.pair_of(each) == pair)
            counts.pop(None, None)
            most = [label for label, count in counts.items() if count == max(counts.values())]
            choices[pair] = None if not most else most[0] if len(most) == 1 else "tie"
        return choices

    def of_choices(self, choices: dict[tuple, str | None]) -> dict[tuple, int | None]:
        better = -1 if self.criterion in WORSE else 1
        sign = {"first": better, "second": -better, "tie": 0, "neither": 0, None: None}
        return {pair: sign[choice] for pair, choice in choices.items()}
