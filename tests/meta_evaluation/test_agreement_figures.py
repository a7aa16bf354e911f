"""The figures of agreement.json beside plain loops over the lines of the files, and beside libraries.

For the loops, `doubles.agreement_by_loops`, the records are partial, empty, tied and invalid at random.
"""

import json
import math
import random
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pandas
import pingouin
import pytest
from doubles.agreement_by_loops import Figure, Loops
from doubles.agreement_study import (
    CASES,
    RATINGS,
    evaluate,
    noisy_verdicts,
    pairwise_verdicts,
    rating,
    read,
    write,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.report.grid import measures_of_cases
from automedeval.meta_evaluation.table import counted, rows_of
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.metrics.lexical import BASELINES
from automedeval.stats.bootstrap import plain

RESAMPLES = 100
CANDIDATES = ("ant", "bee", "cat", "dog")
SCORES, CHOICES, LIKELIHOOD = "automedeval@1", "medical_pairwise@1", "likelihood@1"

Pick = Callable[[int], int]  # a number from 0 to one less than the argument


def study(pick: Pick, most_cases: int) -> dict[str, Any]:
    """Return the files of a study as lists of lines, and the option `raters`."""
    cases = []
    for number in range(1 + pick(most_cases)):
        names = list(CANDIDATES)
        models = [names.pop(pick(len(names))) for _ in range((3, 2, 4, 1)[pick(4)])]
        case = {
            "id": f"{'kite'[pick(4)]}{number}",
            "question": "why",
            "reference": (None, "w w", "")[pick(3)],
        }
        case |= {"topic": (None, "skin", "heart")[pick(3)]}
        cases.append(
            case
            | {
                "responses": [
                    {"model": model, "text": " ".join(["w"] * pick(4))} for model in models
                ]
            }
        )
    verdicts = []
    judges = (("one", SCORES), ("one-run2", SCORES), ("pairs", CHOICES), ("odds", LIKELIHOOD))
    for judge, rubric in judges[: 1 + pick(4)]:
        of_judge = list(
            (verdicts_of_pairs if rubric == CHOICES else verdicts_of_lists)(
                pick, cases, judge, rubric
            )
        )
        keys = [(each["case_id"], *each["order"], each["run"]) for each in of_judge]
        verdicts += [each for at, each in enumerate(of_judge) if keys[at] not in keys[:at]]
    ratings = []
    annotators, criteria = ("a", "b", "c")[: 1 + pick(3)], ("relevancy", "style")[: 1 + pick(2)]
    points = ((3, 1, 5, 3.5), (0.1, 0.2, 0.3, 0.7), (0, 100, 33, 70))[pick(3)]
    how_many = pick(4)  # none, all, or some of the ratings
    for case in cases:
        unrated = how_many != 1 and pick(3) == 1
        for response in case["responses"]:
            for annotator in annotators:
                for criterion in criteria:
                    if how_many and not unrated and (how_many == 1 or pick(4)):
                        ratings.append(
                            rating(
                                case["id"], response["model"], points[pick(4)], annotator, criterion
                            )
                        )
    raters = (None, "crossed", "anonymous")[pick(3)]
    return {"cases": cases, "verdicts": verdicts, "ratings": ratings or None, "raters": raters}


def verdicts_of_lists(pick: Pick, cases: list[dict], judge: str, rubric: str):
    """Yield verdicts with scores, in several orders and runs, of some of the responses, some of them invalid."""
    expected = pick(3)  # with none, with some, with all verdicts
    fewer = pick(3) == 1
    for case in cases:
        count = len(case["responses"])
        for _ in range((1, 2, 0, 3)[pick(4)]):
            places = list(range(count))
            order = [
                places.pop(pick(len(places))) for _ in range(1 + pick(count) if fewer else count)
            ]
            valid = pick(4) != 1
            scores = [1 + pick(5) if place in order else None for place in range(count)]
            finer = [score and min(5, score + pick(4) / 4) for score in scores]
            if rubric != LIKELIHOOD and len(order) > 1 and pick(8) == 1:
                scores[order[0]] = None
            if len(order) > 1 and pick(8) == 1:  # a response that the judge could not read
                scores[order[0]] = finer[order[0]] = None
            with_expected = (
                rubric == LIKELIHOOD or expected == 2 or (expected == 1 and pick(2) == 1)
            )
            with_scores = rubric != LIKELIHOOD and not (with_expected and pick(8) == 1)
            yield a_verdict(case, judge, rubric, order, valid, pick) | {
                "scores": scores if valid and with_scores else None,
                **(
                    {"criterion_scores": by_criterion(scores)}
                    if valid and judge == "one" and scores[0] != 2
                    else {}
                ),
                "expected_scores": finer if valid and with_expected else None,
            }


def by_criterion(scores: list[int | None]) -> dict[str, list[int | None]]:
    """Return scores on the three criteria of the rubric, for the responses that have a score."""
    names = ("relevancy", "knowledge_correctness", "fluency")
    return {
        name: [score and 1 + (score * turn + place) % 5 for place, score in enumerate(scores)]
        for turn, name in enumerate(names, 1)
    }


def verdicts_of_pairs(pick: Pick, cases: list[dict], judge: str, rubric: str):
    """Yield verdicts with choices about pairs, in both orders and several runs, some of them invalid."""
    criteria = ("correctness", "harmfulness")
    for case in cases:
        models = [response["model"] for response in case["responses"]]
        for first in range(len(models)):
            for second in range(first + 1, len(models)):
                for _ in range((1, 0, 2, 3)[pick(4)]):
                    order = [first, second] if pick(2) else [second, first]
                    pair, valid = [models[place] for place in order], pick(4) != 1
                    chosen = {
                        each: (*pair, "tie", "neither")[pick(4)] for each in criteria[pick(2) :]
                    }
                    about = {"pair": pair, "choices": chosen if valid else None}
                    yield a_verdict(case, judge, rubric, order, valid, pick) | about


def a_verdict(
    case: dict, judge: str, rubric: str, order: list[int], valid: bool, pick: Pick
) -> dict[str, Any]:
    verdict = {
        "case_id": case["id"],
        "judge": judge,
        "rubric": rubric,
        "order": order,
        "rationale": "Because.",
    }
    verdict |= dict.fromkeys(("pair", "scores", "expected_scores", "choices")) | {
        "run": pick(2),
        "valid": valid,
    }
    verdict["error"] = None if valid else ("no score line", None)[pick(2)]
    verdict["usage"] = {"prompt_tokens": 3} if pick(2) else {}
    return verdict | (
        {"settings": "s"[: pick(2)], "checkpoint": ("c", "d")[pick(2)]} if pick(3) == 1 else {}
    )


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    return study(lambda count: draw(st.integers(0, count - 1)), most_cases=6)


def figures_of(folder: Path, files: dict[str, Any]) -> tuple[dict[str, Any], Loops]:
    """Return what the recipe writes into agreement.json, by the functions that it calls, and the loops over the same lines."""
    names = {
        name: str(write(folder / f"{name}.jsonl", each))
        for name, each in files.items()
        if type(each) is list
    }
    cases = Cases.read(names["cases"])
    judges, _ = read_verdicts([names["verdicts"]], cases)
    people, baselines, scores_of = None, [], {}
    if files["ratings"]:
        people = read_ratings(names["ratings"], cases, files["raters"])
        for name, score in BASELINES.items():
            scores = score(cases.records)
            if np.isnan(scores).all():
                continue
            baselines.append(counted(cases, name, scores))
            of = dict(
                zip(((case.id, model) for case in cases.records for model in case.models), scores)
            )
            values = [
                of[case["id"], each["model"]]
                for case in files["cases"]
                for each in case["responses"]
            ]
            scores_of[name] = [None if math.isnan(value) else float(value) for value in values]
    figures = meta_evaluate(cases, [*judges, *baselines], people, resamples=RESAMPLES)
    loops = Loops(files["cases"], files["verdicts"], files["ratings"], scores_of)
    loops.anonymous = files.get("raters") == "anonymous"
    return json.loads(json.dumps(plain(figures), allow_nan=False)), loops


def compare(figures: Any, wanted: Any, place: str, number_of_cases: int) -> None:
    """Compare a tree of agreement.json with what the loops say; an error names the place."""
    if isinstance(wanted, Figure):
        compare_estimates(figures, wanted, place, number_of_cases)
    elif isinstance(wanted, dict):
        assert isinstance(figures, dict), place
        assert wanted.keys() <= figures.keys(), f"{place}: keys"
        for key, value in wanted.items():
            compare(figures[key], value, f"{place} → {key}", number_of_cases)
    elif isinstance(wanted, list):
        assert len(figures) == len(wanted), place
        for at, value in enumerate(wanted):
            compare(figures[at], value, f"{place}[{at}]", number_of_cases)
    elif isinstance(wanted, float):
        assert figures == pytest.approx(wanted, abs=1e-9), place
    else:
        assert figures == wanted, place


def compare_estimates(estimate: Any, wanted: Figure, place: str, number_of_cases: int) -> None:
    assert isinstance(estimate, dict), place
    needed = {"value", "low", "high", "n"}
    assert needed <= estimate.keys() <= needed | {"reason", "approximate"}, place
    assert estimate["n"] == wanted.n, f"{place}: n"
    value = wanted.of(range(number_of_cases))
    if value is None:
        assert estimate["value"] is None, f"{place}: {estimate} is undefined"
        assert estimate["reason"], place
    else:
        assert estimate["value"] == pytest.approx(value, abs=1e-9), place
        assert estimate.get("approximate", False) == (len(wanted.cases) < 50), place
        if wanted.bounds:
            ends = [estimate[end] for end in ("value", "low", "high") if estimate[end] is not None]
            assert all(wanted.bounds[0] - 1e-9 <= end <= wanted.bounds[1] + 1e-9 for end in ends), (
                place
            )
    assert (estimate["low"] is None) == (estimate["high"] is None) == ("reason" in estimate), place
    if estimate["low"] is not None:
        assert estimate["value"] is not None, place
        assert -math.inf < estimate["low"] <= estimate["high"] < math.inf, place


def interval(figure: Figure, number_of_cases: int) -> tuple[float, float] | None:
    """Return the interval of a figure by resampled lists of cases.

    Resamples are drawn as the package does, so that only chance is shared: 64 at a time, by numpy's generator with seed 0. The
    percentiles are those of Hesterberg 2015; if all resamples are equal to a bound, the interval is the exact binomial one.
    """
    rng, drawn = np.random.default_rng(0), []
    for start in range(0, RESAMPLES, 64):
        shape = (min(64, RESAMPLES - start), number_of_cases)
        drawn += rng.integers(0, number_of_cases, size=shape, dtype=np.int32).tolist()
    value, cases = figure.of(range(number_of_cases)), len(figure.cases)
    values = [each for each in map(figure.of, drawn) if each is not None]
    if value is None or cases < 2 or len(values) < 0.95 * RESAMPLES:
        return None
    if max(values) - min(values) < 1e-12:
        if figure.bounds is None or not any(abs(value - bound) < 1e-12 for bound in figure.bounds):
            return None
        low, high = figure.bounds
        width = (high - low) * (1 - 0.025 ** (1 / cases))
        return (high - width, high) if abs(value - high) < 1e-12 else (low, low + width)
    tail = stats.norm.cdf(stats.t.ppf(0.025, cases - 1) * math.sqrt(cases / (cases - 1)))
    return tuple(np.percentile(values, [100 * tail, 100 * (1 - tail)]))


def compare_intervals(
    estimate: dict[str, Any], wanted: Figure, place: str, number_of_cases: int
) -> None:
    ends = interval(wanted, number_of_cases)
    shown = None if estimate["low"] is None else (estimate["low"], estimate["high"])
    assert shown == (None if ends is None else pytest.approx(ends, abs=1e-9)), (
        f"{place}: {shown}, by loops {ends}"
    )


def check(folder: Path, files: dict[str, Any]) -> None:
    """Compare the figures of these files with those of the loops, and intervals with those of resampled lists of cases."""
    figures, loops = figures_of(folder, files)
    wanted, count = loops.content(), len(files["cases"])
    for name in ("errors", "empty", "unread"):
        for judge, record in wanted["judges"].items():
            if name in record:
                assert figures["judges"][judge][name].keys() == record[name].keys(), (
                    f"{judge} → {name}"
                )
    compare(figures, wanted, "agreement.json", count)
    main = figures["main_judge"]
    row = next(row for row in loops.rows if row.name == main["name"])
    compare(main["valid_rates"], loops.valid_rates(row), "valid rates", count)
    intervals = ("valid_rate", "prefers_longer", "concordance", "triple_accuracy", "spearman")
    for judge, record in wanted["judges"].items():
        for name in (*intervals, "pearson"):
            if (figure := record.get(name)) and figure.of(range(count)) is not None:
                compare_intervals(
                    figures["judges"][judge][name], figure, f"{judge} → {name}", count
                )


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(studies().filter(lambda files: files["verdicts"]))
def test_agreement_of_small_studies_is_that_of_loops(
    tmp_path_factory, files: dict[str, Any]
) -> None:
    check(tmp_path_factory.mktemp("study"), files)


@pytest.mark.parametrize("seed", range(6))
def test_agreement_of_larger_studies_is_that_of_loops(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    check(tmp_path, study(lambda count: rng.randrange(count), most_cases=40))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the files of the sample: nine ratings in ten, a noisy judge, one of pairs, one at random, and random votes."""
    rng, folder = random.Random(5), tmp_path_factory.mktemp("sample")
    lines = {
        "verdicts": noisy_verdicts("noisy", 1.2, 1)
        + noisy_verdicts("other", 2.0, 2)
        + pairwise_verdicts(),
        "ratings": [rating for rating in read(RATINGS) if rng.random() < 0.9],
        "choices": [],
    }
    for each, annotator, criterion in product(
        pairwise_verdicts(), "abc", ("correctness", "harmfulness")
    ):
        about = {"case_id": each["case_id"], "annotator": annotator, "criterion": criterion}
        pair = each["pair"][:: rng.choice((1, -1))]
        choice = rng.choice((*each["pair"], "tie", "neither", each["choices"][criterion]))
        lines["choices"].append(about | {"pair": pair, "choice": choice})
    return {name: write(folder / f"{name}.jsonl", each) for name, each in lines.items()}


@pytest.fixture(scope="module")
def figures(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    options = [
        "--ratings",
        files["ratings"],
        files["choices"],
        "--raters",
        "crossed",
        "--main_judge",
        "noisy",
    ]
    return evaluate(tmp_path_factory.mktemp("report"), read(files["verdicts"]), *options)


def test_reliability_is_that_of_pingouin_and_krippendorff(
    files: dict[str, Path], figures: dict[str, Any]
) -> None:
    ratings = pandas.read_json(files["ratings"], lines=True)
    models = [
        ratings.groupby(["case_id", "annotator", *more])["model"].transform("nunique")
        for more in ([], ["criterion"])
    ]
    whole = ratings[
        models[0] == models[1]
    ]  # on criteria that the annotator rated on each of his responses to the case
    means = whole.groupby(["case_id", "model", "annotator"], as_index=False)["score"].mean()
    tables = dict(iter(ratings.groupby("criterion"))) | {"mean of the criteria": means}
    assert figures["people"]["reliability"].keys() == tables.keys()
    for criterion, table in tables.items():
        level = "interval" if criterion == "mean of the criteria" else "ordinal"
        wide = table.pivot_table(index=["case_id", "model"], columns="annotator", values="score")
        long = (
            wide.dropna()
            .reset_index(drop=True)
            .melt(ignore_index=False, value_name="score")
            .reset_index()
        )
        icc = pingouin.intraclass_corr(long, targets="index", raters="annotator", ratings="score")
        wanted = icc.set_index("Type")["ICC"][["ICC(A,1)", "ICC(A,k)"]].to_dict()
        wanted[f"alpha ({level})"] = krippendorff.alpha(
            wide.T.to_numpy(), level_of_measurement=level
        )
        values = {
            name: each["value"]
            for name, each in figures["people"]["reliability"][criterion].items()
        }
        assert values == pytest.approx(wanted, abs=1e-9)


def test_candidates_are_compared_as_by_pandas(
    files: dict[str, Path], figures: dict[str, Any]
) -> None:
    models = {
        case["id"]: [response["model"] for response in case["responses"]] for case in read(CASES)
    }
    rows = [
        {"case": each["case_id"], "model": model, "score": score, "expected": expected}
        for each in read(files["verdicts"])
        if each["judge"] == "noisy"
        for model, score, expected in zip(
            models[each["case_id"]], each["scores"], each["expected_scores"]
        )
    ]
    scores = pandas.DataFrame(rows)
    games = scores.merge(scores, on="case", suffixes=("", "_other")).query("model != model_other")
    games["outcome"] = np.sign(games["score"] - games["score_other"])
    table = figures["models"]["noisy"]
    assert (set(table["models"]), len(table["pairs"])) == (set(scores["model"]), 3)
    for model, record in table["models"].items():
        of_model = scores[scores["model"] == model]
        outcomes = games[games["model"] == model]["outcome"]
        assert record["score"]["value"] == pytest.approx(of_model["expected"].mean())
        assert (record["win_rate"]["value"], record["win_rate"]["n"]) == (
            pytest.approx((1 + outcomes.mean()) / 2),
            60,
        )
    for record in table["pairs"]:
        first, second = record["pair"]
        met = games[(games["model"] == first) & (games["model_other"] == second)]["outcome"]
        shares = [record[name]["value"] for name in ("win", "tie", "loss", "margin")]
        assert shares == pytest.approx(
            [(met == 1).mean(), (met == 0).mean(), (met == -1).mean(), met.mean()]
        )


def test_choices_are_compared_as_by_scikit_learn(
    files: dict[str, Path], figures: dict[str, Any]
) -> None:
    votes = pandas.read_json(files["choices"], lines=True)
    votes["pair"] = votes["pair"].map(lambda pair: tuple(sorted(pair)))
    verdicts = {
        (each["case_id"], tuple(sorted(each["pair"]))): each["choices"]
        for each in pairwise_verdicts()
    }
    order = {
        case["id"]: [response["model"] for response in case["responses"]] for case in read(CASES)
    }
    for criterion, of_criterion in votes.groupby("criterion"):
        people, judge, left_out = [], [], 0
        for key, choices in of_criterion.groupby(["case_id", "pair"])["choice"]:
            if len(modes := choices.mode()) > 1:
                left_out += 1
                continue
            first, second = sorted(key[1], key=order[key[0]].index)
            label = {first: "first", second: "second"}
            people.append(label.get(modes[0], modes[0]))
            judge.append(label.get(verdicts[key][criterion], verdicts[key][criterion]))
        record = figures["choices"]["pairs"][criterion]
        assert (record["pairs"], record["without_majority"]) == (len(people), left_out)
        turned = {
            "first": "second",
            "second": "first",
        }  # their order is arbitrary: each pair counts both ways
        both = [[*side, *(turned.get(each, each) for each in side)] for side in (people, judge)]
        assert record["kappa"]["value"] == pytest.approx(cohen_kappa_score(*both))
        assert record["accuracy"]["value"] == pytest.approx(np.mean(np.array(people) == judge))


def test_comparisons_are_differences_adjusted_as_by_pingouin(figures: dict[str, Any]) -> None:
    comparisons = figures["comparisons"]
    assert len(comparisons) == 5 * 4  # of the lines of three judges with four baselines
    for each in comparisons:
        first, second = each["concordances"]
        assert each["difference"]["value"] == pytest.approx(first["value"] - second["value"])
        for side, figure in (("first", first), ("second", second)):
            record = figures["judges"][each[side]]
            assert figure["value"] == pytest.approx(record["concordance"]["value"])
    p_values = [each["p"] for each in comparisons]
    assert [each["p_adjusted"] for each in comparisons] == pytest.approx(
        pingouin.multicomp(p_values, method="holm")[1]
    )


def test_cases_are_sorted_by_errors_gaps_and_doubts(files: dict[str, Path]) -> None:
    ratings = pandas.read_json(files["ratings"], lines=True)
    scores_of = ratings.pivot_table("score", ["case_id", "model"], ["criterion", "annotator"])
    verdicts = {
        each["case_id"]: each for each in read(files["verdicts"]) if each["judge"] == "noisy"
    }
    wrong, differ, doubt = {}, {}, {}
    for case in read(CASES):
        people = [scores_of.loc[case["id"], response["model"]] for response in case["responses"]]
        scores, expected = (verdicts[case["id"]][name] for name in ("scores", "expected_scores"))
        wrong[case["id"]] = 0.0
        for (left, judged), (right, other) in combinations(zip(people, scores), 2):
            gap = (left - right).groupby("criterion").mean().mean()
            wrong[case["id"]] += abs(gap) * abs(np.sign(gap.round(9)) - np.sign(judged - other))
        differ[case["id"]] = max(expected) - min(expected)
        doubt[case["id"]] = -np.mean(
            [abs(left - right) for left, right in combinations(expected, 2)]
        )
    cases = Cases.read(str(CASES))
    row, *_ = rows_of(read_verdicts([str(files["verdicts"])], cases)[0])
    measures = measures_of_cases(cases, row, read_ratings(str(files["ratings"]), cases))
    for name, measure in (
        ("people_disagree", wrong),
        ("models_differ", differ),
        ("least_sure", doubt),
    ):
        assert measures[name].tolist() == pytest.approx(
            [measure[case.id] for case in cases.records]
        )
