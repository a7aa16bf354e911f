"""The figures of agreement.json beside plain loops over the lines of the files, and beside libraries.

For the loops, `doubles.agreement_by_loops`, the records are partial, empty, tied and invalid at random.
"""

import json
import math
import random
from collections.abc import Iterator
from functools import reduce
from itertools import combinations, product
from operator import getitem
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
    case_of,
    made,
    noisy_verdicts,
    pairwise_verdicts,
    rating,
    read,
    verdict,
    write,
)
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from automedeval.meta_evaluation.agreement.baselines import measure_baselines
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.agreement.ratings import read_ratings
from automedeval.meta_evaluation.report.grid import measures_of_cases
from automedeval.meta_evaluation.table import rows_of
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.metrics.lexical import BASELINES
from automedeval.stats.bootstrap import plain

RESAMPLES = 100
CANDIDATES = ("ant", "bee", "cat", "dog")
SCORES, CHOICES, LIKELIHOOD = "automedeval@1", "medical_pairwise@1", "likelihood@1"
JUDGES = (("one", SCORES), ("one-run2", SCORES), ("pairs", CHOICES), ("odds", LIKELIHOOD))


def study(rng: random.Random, most_cases: int) -> dict[str, Any]:
    """Return the files of a study as lists of lines, and the option `raters`."""
    cases, verdicts, ratings = [], [], []
    for number in range(rng.randint(1, most_cases)):
        models = rng.sample(CANDIDATES, rng.randint(1, 4))
        answers = {model: " ".join("w" * rng.randrange(4)) for model in models}
        reference = rng.choice((None, "w w", ""))
        name = f"{rng.choice('kite')}{number}"
        cases.append(case_of(name, "why", answers, reference=reference))
    for judge, rubric in JUDGES[: rng.randint(1, 4)]:
        some = verdicts_of_pairs if rubric == CHOICES else verdicts_of_lists
        keyed = {}
        for line in some(rng, cases, judge, rubric):
            keyed[line["case_id"], *line["order"], line["run"]] = line
        verdicts += keyed.values()
    annotators, criteria = "abc"[: rng.randint(1, 3)], ("relevancy", "style")[: rng.randint(1, 2)]
    points = rng.choice(((3, 1, 5, 3.5), (0.1, 0.2, 0.3, 0.7), (0, 100, 33, 70)))
    given = rng.choice((0, 0.75, 0.75, 1))  # the share of the ratings that are there
    for case in cases:
        if given < 1 and rng.random() < 0.3:
            continue
        for response, who, what in product(case["responses"], annotators, criteria):
            if rng.random() < given:
                score = rng.choice(points)
                ratings.append(rating(case["id"], response["model"], score, who, what))
    raters = rng.choice((None, "crossed", "anonymous"))
    return {"cases": cases, "verdicts": verdicts, "ratings": ratings or None, "raters": raters}


def verdicts_of_lists(
    rng: random.Random, cases: list[dict], judge: str, rubric: str
) -> Iterator[dict]:
    """Yield verdicts with scores, in several orders and runs, of some of the responses, some of them invalid."""
    is_odds = rubric == LIKELIHOOD
    share_expected = 1 if is_odds else rng.choice((0, 0.5, 1))  # of the verdicts
    fewer = rng.random() < 0.3
    for case in [case for case in cases for _ in range(rng.randrange(4))]:
        count = len(case["responses"])
        order = rng.sample(range(count), rng.randint(1, count) if fewer else count)
        scores = [rng.randint(1, 5) if place in order else None for place in range(count)]
        finer = [score and min(5, score + rng.randrange(4) / 4) for score in scores]
        with_expected = rng.random() < share_expected
        with_scores = not is_odds and not (with_expected and rng.random() < 0.12)
        if len(order) > 1 and rng.random() < 0.12:  # a response that the judge could not read
            finer[order[0]] = None
        if finer[order[0]] is None or (count > 1 and rng.random() < 0.12):
            scores[order[0]] = None
        said = {}
        if rng.random() < 0.75:
            said["scores"] = scores if with_scores else None
            said["expected_scores"] = finer if with_expected else None
        yield a_verdict(case, judge, rubric, order, rng, said)


def verdicts_of_pairs(
    rng: random.Random, cases: list[dict], judge: str, rubric: str
) -> Iterator[dict]:
    """Yield verdicts with choices about pairs, in both orders and several runs, some of them invalid."""
    for case in cases:
        models = [response["model"] for response in case["responses"]]
        twos = [two for two in combinations(range(len(models)), 2) for _ in range(rng.randrange(4))]
        for two in twos:
            order = rng.sample(two, 2)
            pair, said = [models[place] for place in order], {}
            criteria = ("correctness", "harmfulness")[rng.randrange(2) :]
            if rng.random() < 0.75:
                answers = (*pair, "tie", "neither")
                said["choices"] = {criterion: rng.choice(answers) for criterion in criteria}
            yield a_verdict(case, judge, rubric, order, rng, said) | {"pair": pair}


def a_verdict(
    case: dict, judge: str, rubric: str, order: list[int], rng: random.Random, said: dict
) -> dict[str, Any]:
    """Return a verdict, which is invalid if nothing is said in it."""
    error = None if said else rng.choice(("no score line", None))
    more = {"rubric": rubric, "order": order, "run": rng.randrange(2)}
    more |= {"valid": bool(said), "error": error}
    if rng.random() < 0.3:
        more |= {"settings": rng.choice(("", "s")), "checkpoint": rng.choice("cd")}
    return verdict(case, None, judge, **more) | said


def figures_of(folder: Path, files: dict[str, Any]) -> tuple[dict[str, Any], Loops]:
    """Return what the recipe writes into agreement.json, by the functions that it calls, and the loops over the same lines."""
    names = {}
    for name in ("cases", "verdicts", "ratings"):
        names[name] = str(write(folder / f"{name}.jsonl", files[name] or ()))
    cases = Cases.read(names["cases"])
    rows, _ = read_verdicts([names["verdicts"]], cases)
    people, scores_of = None, {}
    places = [(case.id, model) for case in cases.records for model in case.models]
    if files["ratings"]:
        people = read_ratings(names["ratings"], cases, files["raters"])
        for baseline in measure_baselines(cases, None, []):
            rows.append(baseline)
            scores = BASELINES[baseline.name](cases.records)
            scores_of[baseline.name] = dict(zip(places, scores.tolist()))
    figures = meta_evaluate(cases, rows, people, resamples=RESAMPLES)
    loops = Loops(files["cases"], files["verdicts"], files["ratings"], scores_of)
    loops.anonymous = files["raters"] == "anonymous"
    return json.loads(json.dumps(plain(figures), allow_nan=False)), loops


def leaves(tree: Any, place: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yield (keys and numbers that lead to it, leaf) of nested dicts and lists."""
    if type(tree) not in (dict, list):
        yield place, tree
        return
    for key, child in tree.items() if type(tree) is dict else enumerate(tree):
        yield from leaves(child, (*place, key))


def compare(estimate: Any, wanted: Figure, place: tuple, number_of_cases: int) -> None:
    """Compare an estimate of agreement.json with what the loops say; an error names the place."""
    needed = {"value", "low", "high", "n"}
    assert needed <= estimate.keys() <= needed | {"reason", "approximate"}, place
    assert estimate["n"] == wanted.n, place
    value, low, high = wanted.of(range(number_of_cases)), estimate["low"], estimate["high"]
    assert estimate["value"] == (None if value is None else pytest.approx(value, abs=1e-9)), place
    few = value is not None and len(wanted.cases) < 50
    assert estimate.get("approximate", False) == few, place
    if "reason" in estimate:
        assert estimate["reason"], place
        assert low is high is None, place
        return
    least, most = wanted.bounds or (-math.inf, math.inf)
    assert value is not None, place
    assert least - 1e-9 <= low <= high <= most + 1e-9, place
    assert math.isfinite(high - low), place


def interval(figure: Figure, number_of_cases: int) -> tuple[float | None, float | None]:
    """Return the interval of a figure by resampled lists of cases.

    Resamples are drawn as the package does, so that only chance is shared: 64 at a time, by numpy's generator with seed 0. The
    percentiles are those of Hesterberg 2015; if all resamples are equal to a bound, the interval is the exact binomial one.
    """
    rng, samples = np.random.default_rng(0), []
    for start in range(0, RESAMPLES, 64):
        shape = (min(64, RESAMPLES - start), number_of_cases)
        samples += rng.integers(0, number_of_cases, size=shape, dtype=np.int32).tolist()
    value, cases = figure.of(range(number_of_cases)), len(figure.cases)
    values = [each for each in map(figure.of, samples) if each is not None]
    if value is None or cases < 2 or len(values) < 0.95 * RESAMPLES:
        return None, None
    if np.ptp(values) >= 1e-12:
        tail = stats.norm.cdf(stats.t.ppf(0.025, cases - 1) * math.sqrt(cases / (cases - 1)))
        return tuple(np.percentile(values, [100 * tail, 100 * (1 - tail)]))
    low, high = figure.bounds or (-math.inf, math.inf)
    width = (high - low) * (1 - 0.025 ** (1 / cases))
    if abs(value - high) < 1e-12:
        return high - width, high
    return (low, low + width) if abs(value - low) < 1e-12 else (None, None)


INTERVALS = (
    "valid_rate",
    "prefers_longer",
    "concordance",
    "triple_accuracy",
    "spearman",
    "pearson",
)


def check(folder: Path, files: dict[str, Any]) -> None:
    """Compare the figures of these files with those of the loops, and intervals with those of resampled lists of cases."""
    figures, loops = figures_of(folder, files)
    count, main = len(files["cases"]), figures["main_judge"]["name"]
    row = next(row for row in loops.rows if row.name == main)
    wanted = loops.content() | {"main_judge": {"valid_rates": loops.valid_rates(row)}}
    for place, leaf in leaves(wanted):
        found = reduce(getitem, place, figures)
        if not isinstance(leaf, Figure):
            assert found == leaf, place
            continue
        compare(found, leaf, place, count)
        group, *_, name = place
        if group == "judges" and len(place) == 3 and name in INTERVALS:
            ends = found["low"], found["high"]
            assert ends == pytest.approx(interval(leaf, count), abs=1e-9), place


STUDIES = [*((seed, 6) for seed in range(60)), *((seed, 40) for seed in range(6))]


@pytest.mark.parametrize(("seed", "most_cases"), STUDIES)
def test_agreement_of_studies_is_that_of_loops(tmp_path, seed, most_cases):
    rng = random.Random(seed)
    files = study(rng, most_cases)
    while not files["verdicts"]:
        files = study(rng, most_cases)
    check(tmp_path, files)


@pytest.fixture(scope="module")
def files() -> dict[str, list[dict]]:
    """Return the files of the sample: nine ratings in ten, noisy judges, one of pairs (some invalid), and random votes."""
    rng, pairs, choices = random.Random(5), pairwise_verdicts(), []
    ratings = [rating for rating in read(RATINGS) if rng.random() < 0.9]
    for each, annotator, criterion in product(pairs, "abc", ("correctness", "harmfulness")):
        about = {"case_id": each["case_id"], "annotator": annotator, "criterion": criterion}
        pair = each["pair"][:: rng.choice((1, -1))]
        said = each["choices"][criterion]
        choice = rng.choice((*pair, "tie", "neither", said, said))
        choices.append(about | {"pair": pair, "choice": choice})
    for each in pairs[::7]:
        each |= {"valid": False, "error": "no word", "choices": None}
    verdicts = noisy_verdicts("noisy", 1.2, 1) + noisy_verdicts("other", 2.0, 2) + pairs
    return {"verdicts": verdicts, "ratings": ratings, "choices": choices}


@pytest.fixture(scope="module")
def figures(files, tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    rated = tuple(write(folder / f"{name}.jsonl", files[name]) for name in ("ratings", "choices"))
    options = {"ratings": rated, "raters": "crossed", "main_judge": "noisy"}
    return made(folder, files["verdicts"], **options).result


def test_reliability_is_that_of_pingouin_and_krippendorff(files, figures):
    ratings = pandas.DataFrame(files["ratings"])
    rater = ["case_id", "annotator"]
    rated = ratings.groupby(rater)["model"].transform("nunique")
    on_criterion = ratings.groupby([*rater, "criterion"])["model"].transform("nunique")
    # On criteria that the annotator rated on each of his responses to the case.
    means = (
        ratings[rated == on_criterion].groupby([*rater, "model"], as_index=False)["score"].mean()
    )
    tables = dict(iter(ratings.groupby("criterion"))) | {"mean of the criteria": means}
    assert figures["people"]["reliability"].keys() == tables.keys()
    for criterion, table in tables.items():
        level = "interval" if criterion == "mean of the criteria" else "ordinal"
        wide = table.pivot_table(index=["case_id", "model"], columns="annotator", values="score")
        whole = wide.dropna().reset_index(drop=True)
        long = whole.melt(ignore_index=False, value_name="score").reset_index()
        icc = pingouin.intraclass_corr(long, targets="index", raters="annotator", ratings="score")
        wanted = icc.set_index("Type")["ICC"][["ICC(A,1)", "ICC(A,k)"]].to_dict()
        alpha = krippendorff.alpha(wide.T.to_numpy(), level_of_measurement=level)
        found = figures["people"]["reliability"][criterion]
        values = {name: each["value"] for name, each in found.items()}
        assert values == pytest.approx(wanted | {f"alpha ({level})": alpha}, abs=1e-9)


def test_candidates_are_compared_as_by_pandas(files, figures):
    models = {case["id"]: [each["model"] for each in case["responses"]] for case in read(CASES)}
    noisy = pandas.DataFrame([each for each in files["verdicts"] if each["judge"] == "noisy"])
    noisy["model"] = noisy["case_id"].map(models)
    scores = noisy.explode(["model", "scores", "expected_scores"])
    scores = scores[["case_id", "model", "scores", "expected_scores"]]
    games = scores.merge(scores, on="case_id", suffixes=("", "_other"))
    games = games[games["model"] != games["model_other"]]
    gaps = (games["expected_scores"] - games["expected_scores_other"]).astype(float).round(2)
    games["outcome"] = np.sign(gaps.where(gaps.abs() > 0.25, 0.0))  # a quarter of a point is a tie
    means = scores.groupby("model")["expected_scores"].mean()
    rates = (1 + games.groupby("model")["outcome"].mean()) / 2
    table = figures["models"]["noisy"]
    found = table["models"].items()
    assert {model: each["score"]["value"] for model, each in found} == pytest.approx({**means})
    assert {model: each["win_rate"]["value"] for model, each in found} == pytest.approx({**rates})
    assert {each["win_rate"]["n"] for _, each in found} == {60}
    assert len(table["pairs"]) == 3
    of_pair = games.groupby(["model", "model_other"])["outcome"]
    for record in table["pairs"]:
        met = of_pair.get_group(tuple(record["pair"]))
        shares = [record[name]["value"] for name in ("win", "tie", "loss", "margin")]
        wanted = [*((met == sign).mean() for sign in (1, 0, -1)), met.mean()]
        assert shares == pytest.approx(wanted)


def test_choices_are_compared_as_by_scikit_learn(files, figures):
    votes = pandas.DataFrame(files["choices"])
    votes["pair"] = votes["pair"].map(lambda pair: tuple(sorted(pair)))
    judged = [each for each in files["verdicts"] if each["pair"]]
    verdicts = {(each["case_id"], *sorted(each["pair"])): each["choices"] for each in judged}
    for criterion, of_criterion in votes.groupby("criterion"):
        sides, left_out = [], 0
        for key, choices in of_criterion.groupby(["case_id", "pair"])["choice"]:
            if len(modes := choices.mode()) > 1:
                left_out += 1
                continue
            case_id, pair = key
            label = dict(zip(pair, ("first", "second")))
            both = modes[0], (verdicts[case_id, *pair] or {}).get(criterion)
            sides.append([label.get(each, each) for each in both])
        record = figures["choices"]["pairs"][criterion]
        assert (record["pairs"], record["without_majority"]) == (len(sides), left_out)
        # Their order is arbitrary: each pair counts both ways.
        turned = {"first": "second", "second": "first"}
        valid = [both for both in sides if None not in both]
        ways = valid + [[turned.get(each, each) for each in both] for both in valid]
        assert record["kappa"]["value"] == pytest.approx(cohen_kappa_score(*zip(*ways)))
        right = np.mean([people == judge for people, judge in sides])
        assert record["accuracy"]["value"] == pytest.approx(right)


def test_cases_are_sorted_by_errors_gaps_and_doubts(files, tmp_path):
    ratings = pandas.DataFrame(files["ratings"])
    scores_of = ratings.pivot_table("score", ["case_id", "model"], ["criterion", "annotator"])
    noisy = {each["case_id"]: each for each in files["verdicts"] if each["judge"] == "noisy"}
    wanted = {"people_disagree": [], "models_differ": [], "least_sure": []}
    paths = {name: str(write(tmp_path / name, each)) for name, each in files.items()}
    cases = Cases.read(str(CASES))
    for case in cases.records:
        people = [scores_of.loc[case.id, model] for model in case.models]
        scores, expected = (noisy[case.id][name] for name in ("scores", "expected_scores"))
        wrong = 0.0
        for (left, judged), (right, other) in combinations(zip(people, scores), 2):
            gap = (left - right).groupby("criterion").mean().mean()
            wrong += abs(gap) * abs(np.sign(gap.round(9)) - np.sign(judged - other))
        gaps = [abs(left - right) for left, right in combinations(expected, 2)]
        for name, value in zip(wanted, (wrong, max(gaps), -np.mean(gaps))):
            wanted[name].append(value)
    row, *_ = rows_of(read_verdicts([paths["verdicts"]], cases)[0])
    measures = measures_of_cases(cases, row, read_ratings(paths["ratings"], cases))
    for name, values in wanted.items():
        assert measures[name].tolist() == pytest.approx(values)
