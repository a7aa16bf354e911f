"""Judging the judge: every figure of the report, from verdicts and what people said about the same cases.

`meta_evaluate` lays out what `agreement.json` holds with statistics in the places of figures, then has one bootstrap over cases
estimate them all (so that differences between judges are paired). Nothing is drawn or written here.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from automedeval.meta_evaluation.candidates import MOST_MODELS, compare_candidates
from automedeval.meta_evaluation.cases import Cases
from automedeval.meta_evaluation.ratings import People, Preferences, preference_shares
from automedeval.meta_evaluation.verdicts import JudgeEvidence, Row, rows_of
from automedeval.metrics.lexical import longer_text
from automedeval.rubrics import packaged_rubrics, read_rubric
from automedeval.stats import agreement, bootstrap, interrater, selective
from automedeval.stats.agreement import ACCURACIES, CHOICES, CORRELATIONS
from automedeval.stats.bootstrap import Estimate, Statistic
from automedeval.stats.calibration_error import BINS, reliability_bins

MOST_TOPICS = 40
WORST = 10


def meta_evaluate(
    cases: Cases,
    judges: Sequence[JudgeEvidence],
    people: People | None = None,
    choices: dict[str, dict[int, Counter]] | None = None,
    verdict_ratings: dict[str, dict[str, list[tuple[int, float]]]] | None = None,
    preferences: Sequence[Preferences] = (),
    resamples: int = bootstrap.RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Compute every figure; ARCHITECTURE section 4 has the definitions.

    Args:
        cases: the cases that verdicts and ratings are about.
        judges: real judges and baselines.
        people, choices, verdict_ratings, preferences: what people said, where they did.
        resamples, seed: of the bootstrap over cases.

    Returns:
        What `agreement.json` holds, figures as `Estimate`; `resampling.plain` makes it JSON.
    """
    rows = rows_of(judges)
    panel = cases.panel
    longer = panel.relations(longer_text(cases.records))
    tree: dict[str, Any] = {
        "cases": _counts(cases, people),
        "judges": {row.name: _habits(cases, row, longer) for row in rows},
        "models": {
            row.name: compare_candidates(cases, row.relations(panel), row.scores, row.expected, resamples, seed)
            for row in rows
            if row.evidence.kind == "judge"
        },
    }
    if people is not None:
        for row in rows:
            tree["judges"][row.name] |= _agreement(cases, people, row)
        tree["people"] = _people(cases, people, longer)
        _ceiling(cases, people, rows, tree)
        by_people = compare_candidates(cases, panel.relations(people.scores), people.scores, None, resamples, seed)
        tree["models"] = {"people": by_people} | tree["models"]
    if choices:
        tree["choices"] = _choices(cases, judges, choices)
    if verdict_ratings:
        tree["verdict_ratings"] = _verdict_ratings(cases, verdict_ratings)
    if preferences:
        tree["preferences"] = preference_shares(preferences, len(cases))
    if people is not None:
        tree["comparisons"] = _comparisons(cases, people, rows)
    result = bootstrap.estimate(tree, len(cases), resamples, seed)
    if people is not None:
        result["comparisons"] = _differences(result["comparisons"])
    for table in result["models"].values():
        _adjust(table.get("pairs", []), "margin")
    for compared in result.get("preferences", []):
        _adjust(list(compared["criteria"].values()), "margin")
    return result


def _counts(cases: Cases, people: People | None) -> dict[str, Any]:
    counts = {
        "file": cases.source,
        "cases": len(cases),
        "responses": cases.responses,
        "pairs": len(cases.panel.pairs[0]),
        "models": len(cases.models),
    }
    if people is not None:
        relation = cases.panel.relations(people.scores)
        rated = ~np.isnan(people.scores)
        counts |= {
            "rated_cases": len(np.unique(cases.panel.case[rated])),
            "rated_responses": int(rated.sum()),
            "rated_pairs": int((~np.isnan(relation)).sum()),
            "tied_pairs": int((relation == 0).sum()),
        }
    return counts


def _habits(cases: Cases, row: Row, longer: np.ndarray) -> dict[str, Any]:
    """Tell who a judge is, and what it does whatever people think: fail, prefer slots or length, contradict itself."""
    evidence = row.evidence
    judge = row.relations(cases.panel)
    record: dict[str, Any] = {
        "kind": evidence.kind,
        "name": evidence.name,
        "judge": evidence.judge,
        "rubric": evidence.rubric,
        "criterion": row.criterion,
        "settings": evidence.settings,
        "checkpoint": evidence.checkpoint,
        "verdicts": int(evidence.verdicts.sum()),
        "errors": dict(evidence.errors.most_common(8)),
        "usage": evidence.usage if row.criterion in (None, next(iter(evidence.relations), None)) else {},
        "polarity": "worse" if row.criterion in evidence.worse else "better",
        "valid_rate": bootstrap.ratio(evidence.valid, evidence.verdicts, reason="no verdict"),
        "prefers_longer": agreement.accuracies(cases.panel, np.where(np.isnan(judge), np.nan, longer), judge)[
            "concordance"
        ],
    }
    habit = row.criterion or "scores"
    if habit in evidence.slots:
        record["slots"] = [bootstrap.mean(total, count, int(count.sum())) for total, count in evidence.slots[habit]]
    if habit in evidence.consistent:
        record["order_consistency"] = bootstrap.ratio(*evidence.consistent[habit])
    if evidence.scores is not None and evidence.kind == "judge" and row.scores is not None:
        record["scores"] = _histogram(row.scores)
    return record


def _agreement(cases: Cases, people: People, row: Row) -> dict[str, Any]:
    """Return the measures of one row, their twins from expected scores, and where the judge goes wrong."""
    panel, rated = cases.panel, row.rated(people)
    relation = row.known_relations(cases, people)
    silent = row.scores is None and row.expected is None and row.relation is None  # not one valid verdict: all wrong
    reason = "no valid verdict" if silent else "this judge gives no whole scores"
    record: dict[str, Any] = dict.fromkeys(ACCURACIES + CORRELATIONS, Estimate(None, reason=reason))
    if row.relation is not None or row.scores is not None or silent:
        record |= agreement.accuracies(panel, relation, row.relations(panel))
    if row.scores is not None:
        record |= agreement.correlations(panel, rated, row.scores)
    if row.expected is not None:
        banded, bands = agreement.cross_fitted_relations(panel, relation, row.expected, cases.folds())
        twins = agreement.accuracies(panel, relation, banded) | agreement.correlations(panel, rated, row.expected)
        twins["concordance"] = agreement.accuracies(panel, relation, panel.relations(row.expected))["concordance"]
        record |= {f"{name}_expected": twins[name] for name in ACCURACIES + CORRELATIONS} | {"tie_bands": bands}
    else:
        reason = "no valid verdict" if silent else "this judge gives no expected scores, or not with every verdict"
        record |= {f"{name}_expected": Estimate(None, reason=reason) for name in ACCURACIES + CORRELATIONS}
    record |= {"headline": row.headline, "runs": _runs(cases, people, row)} | _breakdown(cases, people, row)
    if row.evidence.kind == "judge":
        record |= {"reliability": _reliability_curve(row, people), "worst": _worst(cases, people, row)}
        if row.expected is not None:
            sure = selective.gaps(panel, row.expected)
            record["risk_coverage"] = selective.risk_coverage(panel, relation, row.finest(panel), sure)
    return record


def _breakdown(cases: Cases, people: People, row: Row) -> dict[str, dict[str, Statistic]]:
    """Return the headline concordance per topic, and per candidate over the pairs that it is part of."""
    panel = cases.panel
    relation, judge = row.known_relations(cases, people), row.finest(panel)

    def over(pairs: np.ndarray) -> Statistic:
        return agreement.accuracies(panel, np.where(pairs, relation, np.nan), judge)["concordance"]

    found: dict[str, dict[str, Statistic]] = {"topics": {}, "candidates": {}}
    topics = Counter(case.topic for case in cases.records if case.topic)
    topic_of = np.array([case.topic or "" for case in cases.records])[panel.case[panel.pairs[0]]]
    if len(topics) > 1:
        found["topics"] = {topic: over(topic_of == topic) for topic, _ in topics.most_common(MOST_TOPICS)}
    if len(cases.models) <= MOST_MODELS:
        models = np.stack([cases.model_of[side] for side in panel.pairs])
        found["candidates"] = {name: over((models == number).any(axis=0)) for number, name in enumerate(cases.models)}
    return found


def _people(cases: Cases, people: People, longer: np.ndarray) -> dict[str, Any]:
    """Tell who rated, and how reliably: per criterion, and for the mean over criteria."""
    panel = cases.panel
    record: dict[str, Any] = {
        "raters": "crossed" if people.crossed else "anonymous",
        "annotators": people.annotators,
        "criteria": list(people.by_criterion),
        "prefers_longer": agreement.accuracies(panel, longer, panel.relations(people.scores))["concordance"],
        "scores": _histogram(people.scores),
    }
    if len(people.annotators) < 2:
        return record | {"reliability": None, "reason": "one rater only: how far people agree is not known"}
    tables = dict(people.by_criterion)
    if len(tables) > 1:
        tables["mean of the criteria"] = people.by_annotator
    record["reliability"] = {}
    for criterion, ratings in tables.items():
        level = "ordinal" if criterion in people.by_criterion else "interval"
        alpha = interrater.krippendorff_alpha(ratings, panel.case, len(cases), level)
        record["reliability"][criterion] = interrater.icc(ratings, panel.case, len(cases), people.crossed) | {
            f"alpha ({level})": alpha
        }
    return record


def _ceiling(cases: Cases, people: People, rows: list[Row], tree: dict[str, Any]) -> None:
    """Add what one rater reaches against the mean of the others, and each judge against the same means on the same pairs."""
    times = len(people.annotators)
    if times < 2:
        return
    own, others = interrater.leave_one_out(people.by_annotator)
    keep = ~np.isnan(own)
    panel = cases.panel.stacked(times).only(keep)
    own, others = own[keep], others[keep]
    relation = panel.relations(others)
    tree["people"]["ceiling"] = agreement.accuracies(panel, relation, panel.relations(own)) | agreement.correlations(
        panel, others, own
    )
    for row in rows:
        values = row.expected if row.expected is not None else row.scores
        if values is None:  # the pairs of a pairwise judge are not laid out per rater
            continue
        asked = np.ones(cases.responses, bool) if row.evidence.asked is None else row.evidence.asked
        same = panel.relations(np.where(np.tile(asked, times)[keep], others, np.nan))
        judges = {"judge": panel.relations(np.tile(values, times)[keep]), "one_rater": panel.relations(own)}
        tree["judges"][row.name]["against_the_other_raters"] = {
            name: agreement.accuracies(panel, same, judged)["concordance"] for name, judged in judges.items()
        }


def _runs(cases: Cases, people: People, row: Row) -> dict[str, Any] | None:
    """Return the measures of every run by itself, their mean and standard deviation (the paper averages three runs)."""
    relation, rated = row.known_relations(cases, people), row.rated(people)
    found: list[dict[str, Statistic]] = []
    if row.relation is not None:
        by_run = row.evidence.run_relations.get(row.criterion, {})
        found = [agreement.accuracies(cases.panel, relation, judged) for judged in by_run.values()]
    elif row.scores is not None:
        for scores in row.evidence.run_scores.values():
            found.append(agreement.accuracies(cases.panel, relation, cases.panel.relations(scores)))
            found[-1] |= agreement.correlations(cases.panel, rated, scores)
    else:
        for scores in row.evidence.run_expected.values():
            banded, _ = agreement.cross_fitted_relations(cases.panel, relation, scores, cases.folds())
            found.append(agreement.accuracies(cases.panel, relation, banded))
            found[-1] |= agreement.correlations(cases.panel, rated, scores)
            found[-1]["concordance"] = agreement.accuracies(cases.panel, relation, cases.panel.relations(scores))[
                "concordance"
            ]
    if len(found) < 2:
        return None
    record: dict[str, Any] = {"count": len(found)}
    values: dict[str, list[float]] = {}
    for statistics in found:
        for name, statistic in statistics.items():
            values.setdefault(name, []).append(bootstrap.value_of(statistic, len(cases)))
    for name, each in values.items():
        if not np.isnan(each).any():
            record[name] = {"mean": float(np.mean(each)), "sd": float(np.std(each, ddof=1)), "values": each}
    return record


def _reliability_curve(row: Row, people: People) -> list[dict[str, float | int]]:
    """Return people's mean score in bins of the judge's expected scores (or of its scores); none of few responses."""
    values = row.expected if row.expected is not None else row.scores
    if values is None:
        return []
    both = ~np.isnan(values) & ~np.isnan(people.scores)
    return reliability_bins(values[both], people.scores[both]) if both.sum() >= 2 * BINS else []


def _worst(cases: Cases, people: People, row: Row) -> list[str]:
    """Return the ids of the cases in which the judge is most at odds with people: wrong pairs, weighted by people's gap."""
    first, second = cases.panel.pairs
    rated = row.rated(people)
    gaps = np.abs(rated[first] - rated[second])
    relation, judge = row.known_relations(cases, people), row.relations(cases.panel)
    lost = np.where(np.isnan(gaps) | np.isnan(relation) | np.isnan(judge), 0.0, gaps * np.abs(relation - judge))
    weight = cases.panel.per_case(np.nan_to_num(lost))
    order = np.argsort(-weight, kind="stable")[:WORST]
    return [cases.records[case].id for case in order.tolist() if weight[case] > 0]


def _histogram(values: np.ndarray) -> dict[str, int]:
    """Count scores, rounded to halves, or to a tenth of their range where that is another kind of scale."""
    known = values[~np.isnan(values)]
    width = float(np.ptp(known)) if len(known) else 0.0
    step = 0.5 if 2 <= width <= 10 or width == 0 else width / 10
    rounded = np.round(known / step) * step
    return {f"{value:g}": int(count) for value, count in sorted(Counter(rounded.tolist()).items())}


def _choices(cases: Cases, judges: Sequence[JudgeEvidence], people: dict[str, dict[int, Counter]]) -> dict[str, Any]:
    """Compare judges' choices with people's, criterion by criterion; scores of a listwise judge are read as choices.

    People's choice about a pair is the one that more of them made than any other; pairs without one are left out, and counted.
    """
    records: dict[str, Any] = {}
    criteria = {
        each.name: each
        for name in packaged_rubrics()
        for each in read_rubric(name).criteria
        if read_rubric(name).choices
    }
    case_of_pair = cases.panel.case[cases.panel.pairs[0]]
    for criterion, votes in people.items():
        ranked = {pair: counter.most_common(2) for pair, counter in votes.items()}
        majority = {pair: top[0][0] for pair, top in ranked.items() if len(top) == 1 or top[0][1] > top[1][1]}
        index = np.array(sorted(majority), int)
        chosen = np.array([majority[pair] for pair in index.tolist()], int)
        for evidence in judges:
            if evidence.choices and criterion in evidence.choices:
                judged = evidence.choices[criterion][index]
            elif not evidence.choices and evidence.kind == "judge":
                # The better response is not the one that is more harmful: a packaged rubric's criterion says which way it goes.
                known = criteria.get(criterion)
                turn = -1 if known is not None and known.polarity == "worse" else 1
                relation = turn * cases.panel.relations(evidence.mixed)[index]
                level = CHOICES.index(known.neutral) if known is not None else CHOICES.index("tie")
                judged = np.select([np.isnan(relation), relation == 1, relation == -1], [-1, 0, 1], level)
            else:
                continue
            records.setdefault(evidence.name, {})[criterion] = {
                "pairs": len(index),
                "without_majority": len(votes) - len(index),
                "labels": [*CHOICES, "invalid"],
                "confusion": [  # rows: people, columns: judge
                    [int(((chosen == i) & (judged == j)).sum()) for j in (0, 1, 2, 3, -1)] for i in range(len(CHOICES))
                ],
            } | agreement.choice_agreement(chosen, judged, case_of_pair[index], len(cases))
    return records


def _verdict_ratings(cases: Cases, ratings: dict[str, dict[str, list[tuple[int, float]]]]) -> dict[str, Any]:
    """Count physicians' scores of the rationales, per judge and criterion (Fig. 5a)."""
    records: dict[str, Any] = {}
    for judge, criteria in ratings.items():
        for criterion, given in criteria.items():
            case, score = (np.array(values) for values in zip(*given))
            total = np.bincount(case, weights=score, minlength=len(cases))
            records.setdefault(judge, {})[criterion] = {
                "counts": {f"{value:g}": count for value, count in sorted(Counter(score.tolist()).items())},
                "mean": bootstrap.mean(total, np.bincount(case, minlength=len(cases)), len(given)),
            }
    return records


def _comparisons(cases: Cases, people: People, rows: list[Row]) -> list[dict[str, Any]]:
    """Put every two rows, one of them a real judge, side by side: concordance on the pairs that both were asked about."""
    relations = {row.name: row.known_relations(cases, people) for row in rows}
    found = []
    for one, two in combinations(rows, 2):
        if "judge" in (one.evidence.kind, two.evidence.kind):
            both = np.where(np.isnan(relations[two.name]), np.nan, relations[one.name])
            figures = [agreement.accuracies(cases.panel, both, row.finest(cases.panel)) for row in (one, two)]
            concordances = [figure["concordance"] for figure in figures]
            found.append(
                {"first": one.name, "second": two.name, "measure": "concordance", "concordances": concordances}
            )
    return found


def _differences(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for record in comparisons:
        difference = bootstrap.difference(*record["concordances"])
        if difference.value is not None:
            found.append({**record, "difference": difference})
    _adjust(found, "difference")
    return found


def _adjust(records: list[dict[str, Any]], name: str) -> None:
    """Add to each record the p-value of a figure, and that adjusted for how many there are (Holm)."""
    for record in records:
        record |= {"p": bootstrap.p_value(record[name]), "p_adjusted": None}
    known = [record for record in records if record["p"] is not None]
    for record, adjusted in zip(known, bootstrap.holm([record["p"] for record in known])):
        record["p_adjusted"] = adjusted
