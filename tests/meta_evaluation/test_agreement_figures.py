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
from factories import Json
from programs import module_fixture
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from automedeval.meta_evaluation.agreement.baselines import measure_baselines
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate
from automedeval.meta_evaluation.report.grid import measures_of_cases
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.files import read_verdicts
from automedeval.meta_evaluation.verdicts.ratings import read_ratings
from automedeval.meta_evaluation.verdicts.table import rows_of
from automedeval.metrics.lexical import BASELINES
from automedeval.stats.bootstrap import plain

RESAMPLES = 100
CANDIDATES = ("ant", "bee", "cat", "dog")
WHOLE_POINTS, SHARES, PERCENT = (3, 1, 5, 3.5), (0.1, 0.2, 0.3, 0.7), (0, 100, 33, 70)
SCORES, CHOICES, LIKELIHOOD = "automedeval@1", "medical_pairwise@1", "likelihood@1"
JUDGES = (("one", SCORES), ("one-run2", SCORES), ("pairs", CHOICES), ("odds", LIKELIHOOD))


def study(rng: random.Random, most_cases: int) -> Json:
    """Return the files of a study as lists of lines, and the option `raters`."""
    cases = []
    verdicts = []
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
    ratings = some_ratings(rng, cases) or None
    raters = rng.choice((None, "crossed", "anonymous"))
    return {"cases": cases, "verdicts": verdicts, "ratings": ratings, "raters": raters}


def some_ratings(rng: random.Random, cases: list[dict]) -> list[dict]:
    annotators = "abc"[: rng.randint(1, 3)]
    criteria = ("relevancy", "style")[: rng.randint(1, 2)]
    points = rng.choice((WHOLE_POINTS, SHARES, PERCENT))
    given = rng.choice((0, 0.75, 0.75, 1))  # the share of the ratings that are there
    ratings = []
    for case in cases:
        if given < 1 and rng.random() < 0.3:
            continue
        for response, who, what in product(case["responses"], annotators, criteria):
            if rng.random() < given:
                score = rng.choice(points)
                ratings.append(rating(case["id"], response["model"], score, who, what))
    return ratings


def verdicts_of_lists(
    rng: random.Random, cases: list[dict], judge: str, rubric: str
) -> Iterator[dict]:
    """Yield verdicts with scores, in several orders and runs, of some of the responses, some of them invalid."""
    is_odds = rubric == LIKELIHOOD
    share_expected = 1 if is_odds else rng.choice((0, 0.5, 1))  # of the verdicts
    fewer = rng.random() < 0.3
    repeated = []
    for case in cases:
        repeated += [case] * rng.randrange(4)
    for case in repeated:
        count = len(case["responses"])
        shown = rng.randint(1, count) if fewer else count
        order = rng.sample(range(count), shown)
        scores = [None] * count
        finer = [None] * count
        for place in order:
            scores[place] = rng.randint(1, 5)
            finer[place] = min(5, scores[place] + rng.randrange(4) / 4)
        with_expected = rng.random() < share_expected
        with_scores = not is_odds and not (with_expected and rng.random() < 0.12)
        first = order[0]
        if shown > 1 and rng.random() < 0.12:  # a response that the judge could not read
            finer[first] = None
        if finer[first] is None or (count > 1 and rng.random() < 0.12):
            scores[first] = None
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
        repeated = []
        for places in combinations(range(len(models)), 2):
            repeated += [places] * rng.randrange(4)
        for places in repeated:
            order = rng.sample(places, 2)
            pair = [models[place] for place in order]
            criteria = ("correctness", "harmfulness")[rng.randrange(2) :]
            said = {}
            if rng.random() < 0.75:
                answers = (*pair, "tie", "neither")
                said["choices"] = {criterion: rng.choice(answers) for criterion in criteria}
            line = a_verdict(case, judge, rubric, order, rng, said)
            yield line | {"pair": pair}


def a_verdict(
    case: dict, judge: str, rubric: str, order: list[int], rng: random.Random, said: dict
) -> Json:
    """Return a verdict, which is invalid if nothing is said in it."""
    error = None if said else rng.choice(("no score line", None))
    run = rng.randrange(2)
    line = verdict(case, None, judge, rubric=rubric, order=order, run=run)
    line["valid"] = bool(said)
    line["error"] = error
    if rng.random() < 0.3:
        line["settings"] = rng.choice(("", "s"))
        line["checkpoint"] = rng.choice("cd")
    return line | said


def figures_of(folder: Path, files: Json) -> tuple[Json, Loops]:
    """Return what the recipe writes into agreement.json, by the functions that it calls, and the loops over the same lines."""
    written = {}
    for name in ("cases", "verdicts", "ratings"):
        file = write(folder / f"{name}.jsonl", files[name] or ())
        written[name] = str(file)
    cases = Cases.read(written["cases"])
    rows, _ = read_verdicts([written["verdicts"]], cases)
    places = []
    for case in cases.records:
        places += [(case.id, model) for model in case.models]
    people = None
    scores_of = {}
    if files["ratings"]:
        people = read_ratings(written["ratings"], cases, files["raters"])
        for baseline in measure_baselines(cases, None, []):
            rows.append(baseline)
            scores = BASELINES[baseline.name](cases.records)
            scores_of[baseline.name] = dict(zip(places, scores.tolist()))
    figures = meta_evaluate(cases, rows, people, {}, RESAMPLES, rows_of(rows)[0], ())
    text = json.dumps(plain(figures), allow_nan=False)
    anonymous = files["raters"] == "anonymous"
    loops = Loops(files["cases"], files["verdicts"], files["ratings"], scores_of, anonymous)
    return json.loads(text), loops


def leaves(tree: Any, place: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yield (keys and numbers that lead to it, leaf) of nested dicts and lists."""
    if type(tree) is list:
        tree = dict(enumerate(tree))
    if type(tree) is not dict:
        yield place, tree
        return
    for key, child in tree.items():
        yield from leaves(child, (*place, key))


UNBOUNDED = (-math.inf, math.inf)


def compare(estimate: Any, wanted: Figure, place: tuple, number_of_cases: int) -> None:
    """Compare an estimate of agreement.json with what the loops say; an error names the place."""
    needed = {"value", "low", "high", "n"}
    assert needed <= estimate.keys() <= needed | {"reason", "approximate"}, place
    assert estimate["n"] == wanted.n, place
    value = wanted.of(range(number_of_cases))
    if value is None:
        assert estimate["value"] is None, place
    else:
        assert estimate["value"] == pytest.approx(value, abs=1e-9), place
    few = value is not None and len(wanted.cases) < 50
    assert estimate.get("approximate", False) == few, place
    low = estimate["low"]
    high = estimate["high"]
    if "reason" in estimate:
        assert estimate["reason"], place
        assert low is high is None, place
        return
    assert value is not None, place
    least, most = wanted.bounds or UNBOUNDED
    assert least - 1e-9 <= low <= high <= most + 1e-9, place
    assert math.isfinite(high - low), place


def interval(figure: Figure, number_of_cases: int) -> tuple[float | None, float | None]:
    """Return the interval of a figure by resampled lists of cases.

    Resamples are drawn as the package does, so that only chance is shared: 64 at a time, by numpy's generator with seed 0. The
    percentiles are those of Hesterberg 2015; if all resamples are equal to a bound, the interval is the exact binomial one.
    """
    rng = np.random.default_rng(0)
    values = []
    for start in range(0, RESAMPLES, 64):
        shape = (min(64, RESAMPLES - start), number_of_cases)
        samples = rng.integers(0, number_of_cases, size=shape, dtype=np.int32)
        values += map(figure.of, samples.tolist())
    values = [value for value in values if value is not None]
    value = figure.of(range(number_of_cases))
    cases = len(figure.cases)
    if value is None or cases < 2 or len(values) < 0.95 * RESAMPLES:
        return None, None
    if np.ptp(values) >= 1e-12:
        widened = stats.t.ppf(0.025, cases - 1) * math.sqrt(cases / (cases - 1))
        tail = 100 * stats.norm.cdf(widened)
        return tuple(np.percentile(values, [tail, 100 - tail]))
    low, high = figure.bounds or UNBOUNDED
    width = (high - low) * (1 - 0.025 ** (1 / cases))
    if abs(value - high) < 1e-12:
        return high - width, high
    if abs(value - low) < 1e-12:
        return low, low + width
    return None, None


INTERVALS = (
    "valid_rate",
    "prefers_longer",
    "concordance",
    "triple_accuracy",
    "spearman",
    "pearson",
)


def check(folder: Path, files: Json) -> None:
    """Compare the figures of these files with those of the loops, and intervals with those of resampled lists of cases."""
    figures, loops = figures_of(folder, files)
    count = len(files["cases"])
    main = figures["main_judge"]["name"]
    row = next(row for row in loops.rows if row.name == main)
    wanted = loops.content()
    wanted["main_judge"] = {"valid_rates": loops.valid_rates(row)}
    for place, leaf in leaves(wanted):
        found = reduce(getitem, place, figures)
        if not isinstance(leaf, Figure):
            assert found == leaf, place
            continue
        compare(found, leaf, place, count)
        group, *_, name = place
        if group == "judges" and len(place) == 3 and name in INTERVALS:
            ends = found["low"], found["high"]
            wanted_ends = interval(leaf, count)
            assert ends == pytest.approx(wanted_ends, abs=1e-9), place


STUDIES = [*product(range(60), [6]), *product(range(6), [40])]


@pytest.mark.parametrize(("seed", "most_cases"), STUDIES)
def test_agreement_of_studies_is_that_of_loops(tmp_path, seed, most_cases):
    rng = random.Random(seed)
    files = study(rng, most_cases)
    while not files["verdicts"]:
        files = study(rng, most_cases)
    check(tmp_path, files)


@module_fixture
def files() -> dict[str, list[dict]]:
    """Return the files of the sample: nine ratings in ten, noisy judges, one of pairs (some invalid), and random votes."""
    rng = random.Random(5)
    ratings = [rating for rating in read(RATINGS) if rng.random() < 0.9]
    pairs = pairwise_verdicts()
    choices = []
    for line, annotator, criterion in product(pairs, "abc", ("correctness", "harmfulness")):
        about = {"case_id": line["case_id"], "annotator": annotator, "criterion": criterion}
        pair = line["pair"][:: rng.choice((1, -1))]
        said = line["choices"][criterion]
        choice = rng.choice((*pair, "tie", "neither", said, said))
        choices.append(about | {"pair": pair, "choice": choice})
    for line in pairs[::7]:
        line |= {"valid": False, "error": "no word", "choices": None}
    noisy = noisy_verdicts("noisy", 1.2, 1)
    other = noisy_verdicts("other", 2.0, 2)
    return {"verdicts": noisy + other + pairs, "ratings": ratings, "choices": choices}


def verdicts_of_noisy(files: dict[str, list[dict]]) -> list[dict]:
    return [verdict for verdict in files["verdicts"] if verdict["judge"] == "noisy"]


def values_of(figures: dict[str, dict], *names: str) -> Json:
    """Return the value of each figure, or of the figure of this name in each record."""
    return {key: reduce(getitem, names, found)["value"] for key, found in figures.items()}


@module_fixture
def figures(files, tmp_path_factory) -> Json:
    folder = tmp_path_factory.mktemp("report")
    ratings = write(folder / "ratings.jsonl", files["ratings"])
    choices = write(folder / "choices.jsonl", files["choices"])
    options = {"ratings": (ratings, choices), "raters": "crossed", "main_judge": "noisy"}
    return made(folder, files["verdicts"], **options).result


OF_MEANS = "mean of the criteria"


def test_reliability_is_that_of_pingouin_and_krippendorff(files, figures):
    ratings = pandas.DataFrame(files["ratings"])
    rater = ["case_id", "annotator"]
    rated = ratings.groupby(rater)["model"].transform("nunique")
    on_criterion = ratings.groupby([*rater, "criterion"])["model"].transform("nunique")
    # On criteria that each annotator of the case rated on each of his responses.
    shared = ratings[rated == on_criterion]
    raters = shared.groupby(["case_id", "criterion"])["annotator"].transform("nunique")
    of_case = ratings.groupby("case_id")["annotator"].nunique()
    shared = shared[raters == of_case[shared["case_id"]].to_numpy()]
    tables = dict(iter(ratings.groupby("criterion")))
    tables[OF_MEANS] = shared.groupby([*rater, "model"], as_index=False)["score"].mean()
    reliability = figures["people"]["reliability"]
    assert reliability.keys() == tables.keys()
    for criterion, table in tables.items():
        level = "interval" if criterion == OF_MEANS else "ordinal"
        wide = table.pivot_table(index=["case_id", "model"], columns="annotator", values="score")
        whole = wide.dropna().reset_index(drop=True)
        long = whole.melt(ignore_index=False, value_name="score").reset_index()
        icc = pingouin.intraclass_corr(long, targets="index", raters="annotator", ratings="score")
        by_type = icc.set_index("Type")["ICC"]
        wanted = by_type[["ICC(A,1)", "ICC(A,k)"]].to_dict()
        data = wide.T.to_numpy()
        wanted[f"alpha ({level})"] = krippendorff.alpha(data, level_of_measurement=level)
        found = dict(reliability[criterion])
        assert found.pop("answers of ICC") == len(whole)
        assert values_of(found) == pytest.approx(wanted, abs=1e-9)


def test_candidates_are_compared_as_by_pandas(files, figures):
    noisy = {verdict["case_id"]: verdict["expected_scores"] for verdict in verdicts_of_noisy(files)}
    rows = []
    for case in read(CASES):
        for response, score in zip(case["responses"], noisy[case["id"]]):
            rows.append({"case_id": case["id"], "model": response["model"], "score": score})
    scores = pandas.DataFrame(rows)
    games = scores.merge(scores, on="case_id", suffixes=("", "_other"))
    games = games[games["model"] != games["model_other"]]
    gaps = games["score"] - games["score_other"]
    gaps = gaps.round(2)
    games["outcome"] = np.sign(gaps.where(gaps.abs() > 0.25, 0.0))  # a quarter of a point is a tie
    means = scores.groupby("model")["score"].mean()
    outcomes = games.groupby("model")["outcome"].mean()
    rates = (1 + outcomes) / 2
    table = figures["models"]["noisy"]
    assert values_of(table["models"], "score") == pytest.approx({**means})
    assert values_of(table["models"], "win_rate") == pytest.approx({**rates})
    assert {model["win_rate"]["n"] for model in table["models"].values()} == {60}
    assert len(table["pairs"]) == 3
    of_pair = games.groupby(["model", "model_other"])["outcome"]
    for record in table["pairs"]:
        met = of_pair.get_group(tuple(record["pair"]))
        shares = {name: record[name]["value"] for name in ("win", "tie", "loss", "margin")}
        wanted = {"margin": met.mean()}
        for name, sign in (("win", 1), ("tie", 0), ("loss", -1)):
            wanted[name] = np.mean(met == sign)
        assert shares == pytest.approx(wanted)


def test_choices_are_compared_as_by_scikit_learn(files, figures):
    votes = pandas.DataFrame(files["choices"])
    votes["pair"] = votes["pair"].map(lambda pair: tuple(sorted(pair)))
    choices_of = {}
    for line in files["verdicts"]:
        if line["pair"]:
            pair = tuple(sorted(line["pair"]))
            choices_of[line["case_id"], pair] = line["choices"] or {}
    # Their order is arbitrary: each pair counts both ways.
    turned = {"first": "second", "second": "first"}
    for criterion, of_criterion in votes.groupby("criterion"):
        right, ways, left_out = [], [], 0
        for (case_id, pair), choices in of_criterion.groupby(["case_id", "pair"])["choice"]:
            modes = choices.mode()
            if len(modes) > 1:
                left_out += 1
                continue
            people = modes[0]
            judge = choices_of[case_id, pair].get(criterion)
            right.append(people == judge)
            if judge is not None:
                place = dict(zip(pair, turned))
                both = [place.get(choice, choice) for choice in (people, judge)]
                ways += [both, [turned.get(choice, choice) for choice in both]]
        record = figures["choices"]["pairs"][criterion]
        assert record["pairs"] == len(right)
        assert record["without_majority"] == left_out
        kappa = cohen_kappa_score(*zip(*ways))
        assert record["kappa"]["value"] == pytest.approx(kappa)
        assert record["accuracy"]["value"] == pytest.approx(np.mean(right))
    assert "choices on harmfulness are of the worse answer: " in "".join(figures["notes"])


def test_cases_are_sorted_by_errors_gaps_and_doubts(files, tmp_path):
    ratings = pandas.DataFrame(files["ratings"])
    scores_of = ratings.pivot_table("score", ["case_id", "model"], ["criterion", "annotator"])
    noisy = {verdict["case_id"]: verdict for verdict in verdicts_of_noisy(files)}
    wanted = {"people_disagree": [], "models_differ": [], "least_sure": []}
    cases = Cases.read(str(CASES))
    for case in cases.records:
        people = [scores_of.loc[case.id, model] for model in case.models]
        scores = noisy[case.id]["scores"]
        wrong = 0.0
        for first, second in combinations(range(len(scores)), 2):
            gaps_of_raters = people[first] - people[second]
            gap = gaps_of_raters.groupby("criterion").mean().mean()
            judged = np.sign(scores[first] - scores[second])
            wrong += abs(gap) * abs(np.sign(gap.round(9)) - judged)
        wanted["people_disagree"].append(wrong)
        expected = combinations(noisy[case.id]["expected_scores"], 2)
        gaps = [abs(left - right) for left, right in expected]
        wanted["models_differ"].append(max(gaps))
        wanted["least_sure"].append(-np.mean(gaps))
    verdicts_file = write(tmp_path / "verdicts.jsonl", files["verdicts"])
    ratings_file = write(tmp_path / "ratings.jsonl", files["ratings"])
    verdicts, _ = read_verdicts([str(verdicts_file)], cases)
    row, *_ = rows_of(verdicts)
    people = read_ratings(str(ratings_file), cases)
    measures = measures_of_cases(cases, row, people)
    for name, values in wanted.items():
        assert measures[name].tolist() == pytest.approx(values)
