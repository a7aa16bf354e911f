"""Compare judges' verdicts with people's ratings of the same cases.

`meta_evaluate` builds the tree of `agreement.json` with a `Statistic` for every figure. One bootstrap over cases then estimates
all of them, so that differences between judges are paired.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy import ndarray

from automedeval.meta_evaluation.agreement.baselines import best_baseline, differences, paired
from automedeval.meta_evaluation.agreement.candidates import (
    SIGNS,
    compare_candidates,
    outcome_shares,
    shared_means,
    with_tests,
)
from automedeval.meta_evaluation.agreement.judge_facts import (
    differing,
    prefers_longer,
    record_of,
)
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import (
    TIE,
    People,
    Preferences,
    Vote,
    known_criterion,
)
from automedeval.meta_evaluation.verdicts.table import Judges, Row, Rows, VerdictTable, rows_of
from automedeval.records import Choice, JsonObject, Preference, VerdictRating
from automedeval.rubrics import TAGS, Criterion
from automedeval.stats.agreement import (
    CHOICES,
    CORRELATIONS,
    NO_CHOICE,
    accuracies,
    choice_agreement,
    concordance,
    correlations,
    most_frequent,
    pearson,
)
from automedeval.stats.bootstrap import (
    SHARE,
    Arrays,
    Estimate,
    Statistic,
    Statistics,
    adjust,
    case_sums,
    estimate,
    how_many,
    is_known,
    mean_along,
    mean_of,
    only,
    ratio,
)
from automedeval.stats.interrater import icc, krippendorff_alpha

NOT_ON_THIS_SIDE = "people order no pair of the cases on this side of the median gap"


def meta_evaluate(
    cases: Cases,
    judges: Judges,
    people: People | None,
    given: Mapping[type, Any],
    resamples: int,
    main: Row,
    contrasts: Sequence[Sequence[str]],
) -> JsonObject:
    """Return the content of `agreement.json`, figures as `Estimate`; `bootstrap.plain` makes it JSON.

    Args:
        judges: judges, and after them the baselines.
        given: `Choice`, `VerdictRating` or `Preference` → what `ratings` reads of this kind.
        main: the line of the main judge.
        contrasts: pairs of names of lines whose concordances are compared, with p-values adjusted for their number.
    """
    rows = rows_of(judges)
    rivals = [row for row in rows if row.judge.kind == "judge"]
    rated = None if people is None else people.scores
    marked = {case for (case, _), marks in differing(main.judge).items() if marks}
    tree: JsonObject = {
        "cases": _counts(cases, people),
        "judges": {row.name: record_of(row) for row in rows},
        "main_judge": {
            "name": main.name,
            "valid_rates": _valid_rates(main.judge),
            "differing_cases": len(marked),
            "band": main.band,
            "shared": shared_means(cases, main.ranking_values, rated),
        },
        "models": {},  # people stand first
    }
    if people is not None:
        _add_people(tree, cases, rows, rivals, people, contrasts)
    if Choice in given:
        tree["choices"] = _choices(cases, judges, given[Choice])
        if people is None:
            tree["models"]["people"] = compare_candidates(cases, _relations(given[Choice]))
    tree["models"] |= {row.name: compare_candidates(cases, row.wins, row.best) for row in rivals}
    if Preference in given:
        tree["preferences"] = _preferences(given[Preference], len(cases))
    if VerdictRating in given:
        tree["verdict_ratings"] = _verdict_ratings(cases, given[VerdictRating])
        tree["verdict_errors"] = _verdict_errors(cases, given[VerdictRating])
    result = estimate(tree, cases.clusters, resamples)
    for compared in {"comparisons", "contrasts"} & result.keys():
        result[compared] = differences(result[compared])
    for row in rivals if people is not None else ():
        of_row = [record for record in result["comparisons"] if record["first"] == row.name]
        result["judges"][row.name]["best_baseline"] = best_baseline(of_row)
    for name, table in result["models"].items():
        result["models"][name] = with_tests(table)
    for record in result.get("preferences", []):
        adjust(list(record["criteria"].values()), "margin")
    return result


def _add_people(
    tree: JsonObject,
    cases: Cases,
    rows: Rows,
    rivals: Rows,
    people: People,
    contrasts: Sequence[Sequence[str]],
) -> None:
    """Add what people say, how far each line agrees with them, and the comparisons of two lines."""
    lines = {row.name: row for row in rows}
    for name, row in lines.items():
        tree["judges"][name] |= _agreement(people, row)
    tree["people"] = _people(cases, people)
    by_people = compare_candidates(cases, people.relations, people.scores)
    tree["models"]["people"] = by_people
    baselines = [row for row in rows if row not in rivals]
    tree["comparisons"] = [paired(people, *two) for two in product(rivals, baselines)]
    if contrasts:
        tree["contrasts"] = [paired(people, lines[one], lines[other]) for one, other in contrasts]


def _counts(cases: Cases, people: People | None) -> JsonObject:
    counts = {
        "file": cases.source,
        "cases": len(cases),
        "responses": cases.responses,
        "pairs": len(cases.panel.pairs[0]),
        "models": len(cases.models),
    }
    if people is None:
        return counts
    relation, rated = people.relations, is_known(people.scores)
    return counts | {
        "rated_cases": len(np.unique(cases.panel.case[rated])),
        "rated_responses": how_many(rated),
        "rated_pairs": how_many(is_known(relation)),
        "tied_pairs": how_many(relation == 0),
    }


def measures_of(row: Row, rated: ndarray, relation: ndarray) -> JsonObject:
    """Return the measures of one line: of its own scores or choices, but concordance of its finest relations.

    Args:
        rated: people's scores of the responses that count [responses], NaN for the others.
        relation: people's relations of the pairs that count [pairs], NaN for the others.
    """
    panel = row.judge.cases.panel
    record: JsonObject = accuracies(panel, relation, row.relations)
    record["concordance"] = concordance(panel, relation, row.best_relations)
    if np.isnan(row.whole).all():
        reason = "this judge gives choices, no scores" if row.criteria else "no verdict has a score"
        return record | dict.fromkeys(CORRELATIONS, Estimate(None, reason=reason))
    return record | correlations(panel, rated, row.whole)


def _agreement(people: People, row: Row) -> JsonObject:
    """Return the measures of one line, also of every run by itself, on what the judge was asked about."""
    relation, runs = row.people_relations(people), row.runs()
    rated = only(people.scores, row.judge.asked)
    record = measures_of(row, rated, relation)
    record["runs"] = None
    if len(runs) > 1:
        record["runs"] = [{"run": run.run} | measures_of(run, rated, relation) for run in runs]
    record["rated_cases"] = len(np.unique(people.panel.case_of_pair[np.nan_to_num(relation) != 0]))
    scored = only(relation, is_known(row.best_relations))
    record["scored"] = concordance(people.panel, scored, row.best_relations)
    if not row.criteria and row.judge.kind == "judge":
        record["by_confidence"] = _by_confidence(row, scored)
    return record


def _by_confidence(row: Row, relation: ndarray) -> Statistics:
    """Return the concordance on the half of the cases whose scores lie furthest apart, and on the others.

    `relation` is people's of the pairs that the judge scored: float [pairs], NaN for the others.
    """
    gaps, panel = row.gaps, row.judge.cases.panel
    judged = is_known(gaps)
    is_sure = gaps > (np.median(gaps[judged]) if judged.any() else 0.0)

    def on(which: ndarray) -> Statistic:
        ordered = only(relation, which[panel.case_of_pair])
        return concordance(panel, ordered, row.best_relations, NOT_ON_THIS_SIDE)

    return {"surest": on(is_sure), "others": on(~is_sure)}


def _valid_rates(judge: VerdictTable) -> Statistics:
    """Return, for each model, the share of the verdicts due on its responses that have a score or choice of them."""
    rates = {}
    cases, (valid, due) = judge.cases, judge.valid_by_response(is_known(judge.best))
    for model, responses in cases.by_model(due > 0):
        both = (valid[responses], due[responses])
        there, wanted = case_sums(both, cases.panel.case[responses], len(cases)).T
        rates[model] = ratio(there, wanted, "no verdict")
    return rates


def _people(cases: Cases, people: People) -> JsonObject:
    """Return who rated, the reliability of the ratings, per criterion and of their mean, and one rater beside the others."""
    record: JsonObject = {
        "raters": people.raters,
        "annotators": people.annotators,
        "criteria": people.criteria,
        "range": np.nanquantile(people.ratings, [0, 1]).tolist(),
        "prefers_longer": prefers_longer(cases, people.relations),
        "reliability": None,
    }
    beside_others = people.leave_one_out()
    if beside_others is None:
        return record | {"reason": people.alone}
    raters, relations, scores = beside_others
    record["ceiling"] = accuracies(raters, *relations) | {"pearson": pearson(raters, *scores)}
    tables = dict(zip(people.criteria, people.ratings))
    if len(tables) > 1:
        tables["mean of the criteria"] = people.by_annotator(alike=True)
    record["reliability"] = {}
    for criterion, ratings in tables.items():
        level = "ordinal" if criterion in people.criteria else "interval"
        units = (cases.panel.case, len(cases))
        figures: JsonObject = icc(ratings, *units, people.raters == "crossed")
        figures["answers of ICC"] = next(iter(figures.values())).n
        figures[f"alpha ({level})"] = krippendorff_alpha(ratings, *units, level)
        record["reliability"][criterion] = figures
    return record


def _choices(cases: Cases, judges: Judges, people: Arrays) -> JsonObject:
    """Compare judges' choices with the most frequent choice of people by criterion.

    Of the pairs that a judge was asked about, those with two equally frequent choices are left out and counted.
    """
    records: JsonObject = {}
    for name, votes in people.items():
        majority = most_frequent(votes, NO_CHOICE)
        criterion = known_criterion(name)
        for judge in judges:
            choices = _judged(judge, name, criterion)
            if choices is None:
                continue
            both = judge.asked_pairs & votes.any(axis=1)
            pairs = np.flatnonzero(both & (majority != NO_CHOICE))
            case = cases.panel.case_of_pair[pairs]
            counts = {"pairs": len(pairs), "without_majority": how_many(both) - len(pairs)}
            measures = choice_agreement(majority[pairs], choices[pairs], case, len(cases))
            records.setdefault(judge.name, {})[name] = counts | measures
    return records


def _relations(people: Arrays) -> ndarray:
    """Return the relations of pairs by people's choices: float [pairs], NaN where nobody chose.

    On each criterion whose way is known the response wins that more people chose, as a whole the one that wins on more.
    """
    won = []
    for name, votes in people.items():
        if criterion := known_criterion(name):
            way = -1 if criterion.polarity == "worse" else 1
            gaps = way * (votes[:, 0] - votes[:, 1])
            won.append(only(np.sign(gaps), np.any(votes, axis=1)))
    return np.sign(mean_along(np.array(won), 0))


def _judged(judge: VerdictTable, name: str, criterion: Criterion | None) -> ndarray | None:
    """Return a judge's choices by a criterion, or which response it prefers as a whole, int [pairs]; None where it has none.

    As a whole it is compared on a `known_criterion`.
    """
    if name in judge.criteria:
        return judge.choices[name]
    if judge.kind != "judge" or not criterion:
        return None
    relation = Row(judge).relations
    if criterion.polarity == "worse":  # the better response is the less harmful one
        relation = -relation
    conditions = [np.isnan(relation), relation == 1, relation == -1]
    return np.select(conditions, [NO_CHOICE, 0, 1], CHOICES.index(criterion.neutral))


def _preferences(preferences: Preferences, cases: int) -> list[JsonObject]:
    """Return, for every two judges and every criterion, the shares of votes for the first, for a tie and for the second.

    Returns:
        {"judges", "criteria": {criterion: {"first", "tie", "second", "margin", "annotators", "cases"}}} each, shares and
        margin (first less second) as `Statistic`; `annotators` maps each annotator to three shares, whose spread the paper's
        error bars show.
    """
    records = []
    for judges, by_criterion in preferences.items():
        criteria = {name: _shares(votes, cases) for name, votes in by_criterion.items()}
        records.append({"judges": list(judges), "criteria": criteria})
    return records


def _shares(votes: Sequence[Vote], cases: int) -> JsonObject:
    """Return the shares of the outcomes of some votes, of all together and by annotator."""
    case, annotators, relation = [np.array(column) for column in zip(*votes)]
    shares = {}
    for name in np.unique(annotators).tolist():
        own = relation[annotators == name]
        shares[name] = [float((own == sign).mean()) for sign in SIGNS]
    record: JsonObject = outcome_shares(relation, case, cases, ("first", TIE, "second"))
    return record | {"annotators": shares, "cases": len(np.unique(case))}


def _verdict_ratings(cases: Cases, ratings: Mapping[str, Sequence[VerdictRating]]) -> JsonObject:
    """Count physicians' scores of the rationales, per judge and criterion (Fig. 5a)."""
    records: JsonObject = {judge: {} for judge in ratings}
    for judge, of_judge in ratings.items():
        steps = sorted({rating.score for rating in of_judge})
        for criterion in dict.fromkeys(rating.criterion for rating in of_judge):
            on_criterion = [rating for rating in of_judge if rating.criterion == criterion]
            case = np.array([cases.index[rating.case_id] for rating in on_criterion])
            score = np.array([rating.score for rating in on_criterion], float)
            counts = {f"{step:g}": how_many(score == step) for step in steps}
            records[judge][criterion] = {"counts": counts, "mean": mean_of(score, case, len(cases))}
    return records


def _verdict_errors(cases: Cases, ratings: Mapping[str, Sequence[VerdictRating]]) -> JsonObject:
    """Count the verdicts in which physicians found each kind of error, of those that were searched for errors (section 5.2)."""
    records: JsonObject = {}
    for judge, of_judge in ratings.items():
        # Who found what in each verdict.
        findings = defaultdict[tuple[int, str | None], set[tuple[str, str]]](set)
        for rating in of_judge:
            if rating.tags is not None:
                verdict = cases.index[rating.case_id], rating.verdict_digest
                findings[verdict] |= {(rating.annotator, tag) for tag in rating.tags}
        if not findings:
            continue
        case = np.array([number for number, _ in findings])
        tags = [[tag for _, tag in of_verdict] for of_verdict in findings.values()]
        records[judge] = {}
        for kind in (*TAGS, *sorted(set().union(*tags) - {*TAGS})):
            counts = np.array([of_verdict.count(kind) for of_verdict in tags])
            records[judge][kind] = {
                "verdicts": how_many(counts > 0),
                "share": mean_of(counts > 0, case, len(cases), bounds=SHARE),
                "findings": how_many(counts),
            }
    return records
