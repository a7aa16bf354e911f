"""Compare judges' verdicts with people's ratings of the same cases.

`meta_evaluate` builds the tree of `agreement.json` with a `Statistic` for every figure. One bootstrap over cases then estimates
all of them, so that differences between judges are paired.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from automedeval.meta_evaluation.agreement.baselines import best_baseline, differences, paired
from automedeval.meta_evaluation.agreement.candidates import (
    compare_candidates,
    shared_means,
    tell_apart,
)
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import (
    differing,
    prefers_longer,
    record_of,
)
from automedeval.meta_evaluation.agreement.ratings import People, preference_shares
from automedeval.meta_evaluation.table import Row, VerdictTable, rows_of
from automedeval.records import Choice, JsonObject, Preference, VerdictRating
from automedeval.records.ratings import is_better_by_name
from automedeval.rubrics import TAGS, packaged_rubrics, read_rubric
from automedeval.stats import agreement, bootstrap, interrater
from automedeval.stats.agreement import CHOICES, CORRELATIONS
from automedeval.stats.bootstrap import Estimate, Statistic


def meta_evaluate(
    cases: Cases,
    judges: Sequence[VerdictTable],
    people: People | None = None,
    given: Mapping[type, Any] | None = None,
    resamples: int = bootstrap.RESAMPLES,
    main: Row | None = None,
    contrasts: Sequence[Sequence[str]] = (),
) -> JsonObject:
    """Return the content of `agreement.json`, figures as `Estimate`; `bootstrap.plain` makes it JSON.

    Args:
        judges: judges, and after them the baselines.
        given: `Choice`, `VerdictRating` or `Preference` → what `ratings` reads of this kind.
        main: the line of the main judge; by default that of the first judge.
        contrasts: pairs of names of lines whose concordances are compared, with p-values adjusted for their number.
    """
    rows = rows_of(judges)
    rivals, baselines = (
        [row for row in rows if (row.judge.kind == "judge") is kind] for kind in (True, False)
    )
    main = main or rivals[0]
    tree: JsonObject = {
        "cases": _counts(cases, people),
        "judges": {row.name: record_of(cases, row) for row in rows},
    }
    tree["main_judge"] = {"name": main.name}
    marked = {case for (case, _), marks in differing(main.judge).items() if marks}
    tree["main_judge"] |= {
        "valid_rates": _valid_rates(cases, main.judge),
        "differing_cases": len(marked),
        "shared": {} if main.best is None else shared_means(cases, main.best),
    }
    compared = {row.name: compare_candidates(cases, row.relations, row.best) for row in rivals}
    if people is not None:
        relations = {row.name: row.people_relations(people) for row in rows}
        for row in rows:
            tree["judges"][row.name] |= _agreement(cases, people, row, relations[row.name])
        tree["people"] = _people(cases, people)
        compared = {"people": compare_candidates(cases, people.relations, people.scores)} | compared
        tree["comparisons"] = [paired(cases, relations, *two) for two in product(rivals, baselines)]
        lines = {row.name: row for row in rows}
        pairs = [[lines[name] for name in names] for names in contrasts]
        tree |= {"contrasts": [paired(cases, relations, *two) for two in pairs]} if pairs else {}
    tree["models"] = compared
    given = given or {}
    if Choice in given:
        tree["choices"] = _choices(cases, judges, given[Choice])
    if VerdictRating in given:
        tree["verdict_ratings"] = _verdict_ratings(cases, given[VerdictRating])
        tree["verdict_errors"] = _verdict_errors(cases, given[VerdictRating])
    if Preference in given:
        tree["preferences"] = preference_shares(given[Preference], len(cases))
    result = bootstrap.estimate(tree, cases.clusters, resamples)
    if people is not None:
        result["comparisons"] = comparisons = differences(result["comparisons"])
        if contrasts:
            result["contrasts"] = differences(result["contrasts"])
        for row in rivals:
            mine = [each for each in comparisons if each["first"] == row.name]
            result["judges"][row.name]["best_baseline"] = best_baseline(mine)
    for table in result["models"].values():
        tell_apart(table.get("pairs", []))
    for compared in result.get("preferences", []):
        bootstrap.adjust(list(compared["criteria"].values()), "margin")
    return result


def _counts(cases: Cases, people: People | None) -> JsonObject:
    counts = {"file": cases.source, "cases": len(cases), "responses": cases.responses}
    counts |= {"pairs": len(cases.panel.pairs[0]), "models": len(cases.models)}
    if people is not None:
        relation, rated = people.relations, ~np.isnan(people.scores)
        counts |= {
            "rated_cases": len(np.unique(cases.panel.case[rated])),
            "rated_responses": int(rated.sum()),
        }
        counts |= {
            "rated_pairs": int((~np.isnan(relation)).sum()),
            "tied_pairs": int((relation == 0).sum()),
        }
    return counts


def measures_of(cases: Cases, row: Row, rated: np.ndarray, relation: np.ndarray) -> JsonObject:
    """Return the measures of one line: of its own scores or choices, but concordance of its finest relations.

    Args:
        rated: people's scores of the responses that count [responses], NaN for the others.
        relation: people's relations of the pairs that count [pairs], NaN for the others.
    """
    record: JsonObject = agreement.accuracies(cases.panel, relation, row.relations)
    record["concordance"] = agreement.concordance(cases.panel, relation, row.best_relations)
    reason = "this judge gives choices, no scores" if row.criteria else "no valid verdict"
    if row.own is None or np.isnan(row.own).all():  # the latter of one run
        return record | dict.fromkeys(CORRELATIONS, Estimate(None, reason=reason))
    return record | agreement.correlations(cases.panel, rated, row.own)


def _agreement(cases: Cases, people: People, row: Row, relation: np.ndarray) -> JsonObject:
    """Return the measures of one line, also of every run by itself.

    `relation` has people's relations of the pairs that the judge was asked about [pairs].
    """
    rated, runs = np.where(row.judge.asked, people.scores, np.nan), row.runs()
    record = measures_of(cases, row, rated, relation)
    record["runs"] = None
    if len(runs) > 1:
        record["runs"] = [
            {"run": each.run} | measures_of(cases, each, rated, relation) for each in runs
        ]
    record["rated_cases"] = row.rated_cases(people)
    if not row.criteria and row.judge.kind == "judge":
        record["by_confidence"] = _by_confidence(cases, row, relation)
    return record


def _by_confidence(cases: Cases, row: Row, relation: np.ndarray) -> dict[str, Statistic]:
    """Return the concordance on the half of the judged cases in which the scores lie furthest apart, and on the others."""
    gaps, judged = row.gaps, ~np.isnan(row.gaps)
    sure = judged & (gaps > (np.median(gaps[judged]) if judged.any() else 0.0))
    case, sides = cases.panel.case[cases.panel.pairs[0]], {"surest": sure, "others": judged & ~sure}
    return {
        name: agreement.concordance(
            cases.panel, np.where(side[case], relation, np.nan), row.best_relations
        )
        for name, side in sides.items()
    }


def _valid_rates(cases: Cases, judge: VerdictTable) -> dict[str, bootstrap.Statistic]:
    """Return, for each model, the share of the verdicts due on its responses that are there and valid."""
    valid, due = judge.valid_by_response
    rates = {}
    for number, name in enumerate(cases.models):
        of_model = cases.model_of == number
        if due[of_model].any():
            sums = [
                cases.panel.responses_per_case(np.where(of_model, each, 0.0))
                for each in (valid, due)
            ]
            rates[name] = bootstrap.ratio(sums[0], sums[1], reason="no verdict")
    return rates


def _people(cases: Cases, people: People) -> JsonObject:
    """Return who rated, the reliability of the ratings, per criterion and of their mean, and one rater beside the others."""
    panel = cases.panel
    record: JsonObject = {
        "raters": "crossed" if people.crossed else "anonymous",
        "annotators": people.annotators,
    }
    record |= {"criteria": list(people.by_criterion)}
    record["prefers_longer"] = prefers_longer(cases, people.relations)
    if (each_rater := people.leave_one_out()) is None:
        return record | {
            "reliability": None,
            "reason": "one rater only: the agreement between people is not known",
        }
    raters, relations, scores = each_rater
    record["ceiling"] = agreement.accuracies(raters, *relations) | agreement.correlations(
        raters, *scores
    )
    tables = dict(people.by_criterion)
    if len(tables) > 1:
        tables["mean of the criteria"] = people.by_annotator
    record["reliability"] = {}
    for criterion, ratings in tables.items():
        level = "ordinal" if criterion in people.by_criterion else "interval"
        record["reliability"][criterion] = interrater.icc(
            ratings, panel.case, len(cases), people.crossed
        )
        alpha = interrater.krippendorff_alpha(ratings, panel.case, len(cases), level)
        record["reliability"][criterion][f"alpha ({level})"] = alpha
    return record


def _choices(
    cases: Cases, judges: Sequence[VerdictTable], people: dict[str, dict[int, Counter]]
) -> JsonObject:
    """Compare judges' choices, or the scores of one that gives none, with the most frequent choice of people by criterion.

    Pairs with two equally frequent choices are left out and counted. Scores are compared on criteria of the packaged rubrics,
    and on those whose names say that more is better.
    """
    records: JsonObject = {}
    pairwise = [
        rubric for rubric in map(read_rubric, packaged_rubrics()) if rubric.mode == "pairwise"
    ]
    criteria = {each.name: each for rubric in pairwise for each in rubric.criteria}
    case_of_pair = cases.panel.case[cases.panel.pairs[0]]
    for criterion, votes in people.items():
        ranked = {pair: counter.most_common(2) for pair, counter in votes.items()}
        majority = {
            pair: top[0][0]
            for pair, top in ranked.items()
            if len(top) == 1 or top[0][1] > top[1][1]
        }
        decided = np.array(sorted(majority), int)
        for judge in judges:
            index = decided[judge.asked_pairs[decided]]
            chosen = np.array([majority[pair] for pair in index.tolist()], int)
            if criterion in judge.criteria:
                judged = judge.choices[criterion][index]
            elif not judge.criteria and judge.kind == "judge":
                # The better response is the less harmful one: the criterion of a packaged rubric has the polarity.
                packaged = criteria.get(criterion)
                if packaged is None and not is_better_by_name(criterion):
                    continue
                turn = -1 if packaged is not None and packaged.polarity == "worse" else 1
                relation = turn * cases.panel.relations(judge.mixed)[index]
                level = CHOICES.index(packaged.neutral if packaged is not None else "tie")
                judged = np.select(
                    [np.isnan(relation), relation == 1, relation == -1], [-1, 0, 1], level
                )
            else:
                continue
            records.setdefault(judge.name, {})[criterion] = {
                "pairs": len(index),
                "without_majority": len(votes) - len(decided),
            } | agreement.choice_agreement(chosen, judged, case_of_pair[index], len(cases))
    return records


def _verdict_ratings(cases: Cases, ratings: Mapping[str, Sequence[VerdictRating]]) -> JsonObject:
    """Count physicians' scores of the rationales, per judge and criterion (Fig. 5a)."""
    records: JsonObject = {judge: {} for judge in ratings}
    for judge, given in ratings.items():
        steps = sorted({each.score for each in given})
        for criterion in dict.fromkeys(each.criterion for each in given):
            here = [
                (cases.index[each.case_id], each.score)
                for each in given
                if each.criterion == criterion
            ]
            case, score = (np.array(values) for values in zip(*here))
            counts = {f"{step:g}": int((score == step).sum()) for step in steps}
            mean = bootstrap.mean_of(score.astype(float), case, len(cases))
            records[judge][criterion] = {"counts": counts, "mean": mean}
    return records


def _verdict_errors(cases: Cases, ratings: Mapping[str, Sequence[VerdictRating]]) -> JsonObject:
    """Count the verdicts in which physicians found each kind of error, of those that were searched for errors (section 5.2)."""
    records: JsonObject = {}
    for judge, given in ratings.items():
        found: dict[
            tuple[int, str | None], set[tuple[str, str]]
        ] = {}  # who found what in each verdict
        for each in given:
            if each.tags is not None:
                there = found.setdefault((cases.index[each.case_id], each.verdict_digest), set())
                there |= {(each.annotator, tag) for tag in each.tags}
        case = np.array([number for number, _ in found])
        others = {tag for there in found.values() for _, tag in there} - {*TAGS}
        for kind in (*TAGS, *sorted(others)) if found else ():
            counts = np.array([sum(tag == kind for _, tag in there) for there in found.values()])
            share = bootstrap.mean_of(
                (counts > 0).astype(float), case, len(cases), bounds=(0.0, 1.0)
            )
            record = {
                "verdicts": int((counts > 0).sum()),
                "share": share,
                "findings": int(counts.sum()),
            }
            records.setdefault(judge, {})[kind] = record
    return records
