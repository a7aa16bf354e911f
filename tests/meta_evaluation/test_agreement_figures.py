"""Every figure of agreement.json beside plain loops over the lines of the files.

The records are partial, empty, tied and invalid at random. The loops are `doubles.agreement_by_loops`, which shares no code
with the package. A key that they do not know fails the test, unless NOT_COMPARED names it with a reason.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pingouin
import pytest
from doubles.agreement_by_loops import LEAST_RATED, Figure, Loops, Near, PValue, Ranked, Skipped, Undefined
from doubles.agreement_study import meta_evaluate, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from automedeval.meta_evaluation.agreement import main_judge
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.evaluate import meta_evaluate as evaluated
from automedeval.meta_evaluation.agreement.ratings import (
    gather_preferences,
    read_choices,
    read_ratings,
    read_verdict_ratings,
)
from automedeval.meta_evaluation.agreement.runs import follow_rounds, lines_over_runs
from automedeval.meta_evaluation.agreement.verdicts import Baseline, read_verdicts
from automedeval.metrics.lexical import BASELINES
from automedeval.records import Preference, read_placed
from automedeval.stats.bootstrap import plain

NOT_COMPARED = {
    "next_steps": "commands; test_facts.py has them",
    "notes": "sentences for the reader; test_report_gaps.py has them",
    "settings": "the command, the version and the commit",
    "similarity": "needs two encoders; test_rationale_similarity.py has it",
    "table2": "test_paper_table.py has it",
}
RESAMPLES = 100
CANDIDATES = ("ant", "bee", "cat", "dog")
LONGER, BM25 = "longer text", "BM25 to the question"
SCORES, CHOICES, LIKELIHOOD = "automedeval@1", "medical_pairwise@1", "likelihood@1"

Pick = Callable[[int], int]  # a number from 0 to one less than the argument


def study(pick: Pick, most_cases: int) -> dict[str, Any]:
    """Return the files of a study: lists of lines, and the option `raters`."""
    cases = []
    for number in range(1 + pick(most_cases)):
        names = list(CANDIDATES)
        models = [names.pop(pick(len(names))) for _ in range((3, 2, 4, 1)[pick(4)])]
        cases.append(
            {
                "id": f"{'kite'[pick(4)]}{number}",
                "question": "why",
                "reference": (None, "w w", "")[pick(3)],
                "topic": (None, "skin", "heart")[pick(3)],
                "responses": [{"model": model, "text": " ".join(["w"] * pick(4))} for model in models],
            }
        )
    verdicts = []
    for judge, rubric in (("one", SCORES), ("one-run2", SCORES), ("pairs", CHOICES), ("odds", LIKELIHOOD))[
        : 1 + pick(4)
    ]:
        of_judge = list((verdicts_of_pairs if rubric == CHOICES else verdicts_of_lists)(pick, cases, judge, rubric))
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
                        about = {"case_id": case["id"], "model": response["model"]}
                        by = {"annotator": annotator, "criterion": criterion, "score": points[pick(4)]}
                        ratings.append(about | by)
    choices, verdict_ratings, preferences = [], [], []
    for case in cases:
        models = [response["model"] for response in case["responses"]]
        for annotator in ("a", "b", "c")[: pick(4)] if len(models) > 1 else ():
            pair = models[:2] if pick(2) else models[-1:-3:-1]
            about = {"case_id": case["id"], "annotator": annotator}
            for criterion in ("correctness", "harmfulness", "warmth")[: 1 + pick(3)]:
                choices.append(
                    about | {"pair": pair, "criterion": criterion, "choice": (*pair, "tie", "neither")[pick(4)]}
                )
        for annotator in ("a", "b")[: pick(3)]:
            about = {"case_id": case["id"], "annotator": annotator, "criterion": ("truth", "style")[pick(2)]}
            verdict_ratings.append(about | {"judge": ("one", "two")[pick(2)], "score": pick(5)})
            judges = (["one", "two"], ["two", "one"])[pick(2)]
            preferences.append(about | {"judges": judges, "choice": ("one", "two", "tie")[pick(3)]})
    return {
        "cases": cases,
        "verdicts": verdicts,
        "ratings": ratings or None,
        "choices": choices,
        "verdict_ratings": verdict_ratings,
        "preferences": preferences,
        "raters": (None, "crossed", "anonymous")[pick(3)],
    }


def verdicts_of_lists(pick: Pick, cases: list[dict], judge: str, rubric: str):
    """Yield verdicts with scores, in several orders and runs, of some of the responses, some of them invalid."""
    expected = pick(3)  # with none, with some, with all verdicts
    fewer = pick(3) == 1
    for case in cases:
        count = len(case["responses"])
        for _ in range((1, 2, 0, 3)[pick(4)]):
            places = list(range(count))
            order = [places.pop(pick(len(places))) for _ in range(1 + pick(count) if fewer else count)]
            valid = pick(4) != 1
            scores = [1 + pick(5) if place in order else None for place in range(count)]
            finer = [score and min(5, score + pick(4) / 4) for score in scores]
            if rubric != LIKELIHOOD and len(order) > 1 and pick(8) == 1:
                scores[order[0]] = None
            if len(order) > 1 and pick(8) == 1:  # a response that the judge could not read
                scores[order[0]] = finer[order[0]] = None
            with_expected = rubric == LIKELIHOOD or expected == 2 or (expected == 1 and pick(2) == 1)
            with_scores = rubric != LIKELIHOOD and not (with_expected and pick(8) == 1)
            yield a_verdict(case, judge, rubric, order, valid, pick) | {
                "scores": scores if valid and with_scores else None,
                **({"criterion_scores": by_criterion(scores)} if valid and judge == "one" and scores[0] != 2 else {}),
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
        for one in range(len(models)):
            for two in range(one + 1, len(models)):
                for _ in range((1, 0, 2, 3)[pick(4)]):
                    order = [one, two] if pick(2) else [two, one]
                    pair, valid = [models[place] for place in order], pick(4) != 1
                    given = {each: (*pair, "tie", "neither")[pick(4)] for each in criteria[pick(2) :]}
                    yield a_verdict(case, judge, rubric, order, valid, pick) | {
                        "pair": pair,
                        "choices": given if valid else None,
                    }


def a_verdict(case: dict, judge: str, rubric: str, order: list[int], valid: bool, pick: Pick) -> dict[str, Any]:
    return {
        "case_id": case["id"],
        "judge": judge,
        "rubric": rubric,
        "order": order,
        "pair": None,
        "run": pick(2),
        "valid": valid,
        "error": None if valid else ("no score line", None)[pick(2)],
        "rationale": "Because.",
        "scores": None,
        "expected_scores": None,
        "choices": None,
        "usage": {"prompt_tokens": 3} if pick(2) else {},
    } | ({"settings": "s"[: pick(2)], "checkpoint": ("c", "d")[pick(2)]} if pick(3) == 1 else {})


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    return study(lambda count: draw(st.integers(0, count - 1)), most_cases=6)


# --- our figures, and those of the loops


def ours(folder: Path, files: dict[str, Any]) -> dict[str, Any]:
    """Return what the recipe writes into agreement.json, computed by the functions that it calls."""
    names = {
        name: str(write(folder / f"{name}.jsonl", lines)) for name, lines in files.items() if isinstance(lines, list)
    }
    cases = Cases.read(names["cases"])
    judges, _ = read_verdicts([names["verdicts"]], cases)
    people = read_ratings(names["ratings"], cases, files["raters"]) if files["ratings"] else None
    choices = read_choices(names["choices"], cases)[0] if files["choices"] else None
    of_verdicts = read_verdict_ratings(names["verdict_ratings"], cases)[0] if files["verdict_ratings"] else None
    preferences = {}
    if files["preferences"]:
        placed = read_placed(names["preferences"], Preference)
        preferences, _ = gather_preferences(placed, cases, names["preferences"])
    baselines = []
    if people is not None:
        scores = {name: score(cases.records) for name, score in BASELINES.items()}
        baselines = [Baseline(cases, name, each) for name, each in scores.items() if not np.isnan(each).all()]
    given = (people, choices, of_verdicts, preferences)
    result = evaluated(cases, [*judges, *baselines], *given, RESAMPLES, 0)
    if people is not None:
        result["over_runs"] = lines_over_runs(result["judges"])
        result["rounds"] = follow_rounds(result["over_runs"], rounds_of(result))
    return json.loads(json.dumps(plain(result), allow_nan=False))


def rounds_of(result: dict[str, Any]) -> list[str]:
    """Return the names of all judges, which are taken for the judges of rounds 0, 1, 2, …"""
    return [line["judge"] for line in result["over_runs"]]


def theirs(folder: Path, files: dict[str, Any]) -> Loops:
    """Return the loops over the same lines; the scores of the baselines are given to them."""
    baselines = {}
    if files["ratings"]:
        cases = Cases.read(str(folder / "cases.jsonl"))
        for name, score in BASELINES.items():
            of = dict(zip(((case.id, model) for case in cases.records for model in case.models), score(cases.records)))
            values = [of[case["id"], each["model"]] for case in files["cases"] for each in case["responses"]]
            values = [None if math.isnan(value) else float(value) for value in values]
            if any(value is not None for value in values):
                baselines[name] = values
    return Loops(**files, baselines=baselines, source=str(folder / "cases.jsonl"))


def compare(found: Any, wanted: Any, place: str, number_of_cases: int) -> None:
    """Compare a tree of agreement.json with what the loops say; an error names the place."""
    if isinstance(wanted, Skipped):
        assert found, f"{place}: {wanted.reason}"
    elif isinstance(wanted, PValue):
        assert found is None or 0 <= found <= 1, place
    elif isinstance(wanted, (Figure, Undefined)):
        compare_estimates(found, wanted, place, number_of_cases)
    elif isinstance(wanted, Near):
        value = found
        if wanted.n is not None:
            assert found["n"] == wanted.n, place
            in_order(found, place)
            value = found["value"]
        assert value == pytest.approx(wanted.value, abs=1e-6), place
    elif isinstance(wanted, Ranked):
        assert len(found) == len(set(found)) == min(wanted.most, len(wanted.weights)), place
        weights = sorted(wanted.weights.values(), reverse=True)[: wanted.most]
        assert [wanted.weights[name] for name in found] == pytest.approx(weights), place
    elif isinstance(wanted, dict):
        assert isinstance(found, dict), place
        assert found.keys() == wanted.keys(), f"{place}: keys"
        for key, value in wanted.items():
            compare(found[key], value, f"{place} → {key}", number_of_cases)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), place
        for at, value in enumerate(wanted):
            compare(found[at], value, f"{place}[{at}]", number_of_cases)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-9), place
    else:
        assert found == wanted, place


def compare_estimates(found: Any, wanted: Figure | Undefined, place: str, number_of_cases: int) -> None:
    assert isinstance(found, dict), place
    assert {"value", "low", "high", "n"} <= found.keys() <= {"value", "low", "high", "n", "reason", "approximate"}, (
        place
    )
    assert found["n"] == wanted.n, f"{place}: n"
    value = None if isinstance(wanted, Undefined) else wanted.of(range(number_of_cases))
    if value is None:
        assert found["value"] is None, f"{place}: {found} is undefined"
        assert found["reason"], place
    else:
        assert found["value"] == pytest.approx(value, abs=1e-9), place
        assert found.get("approximate", False) == (len(wanted.cases) < 50), place
        if wanted.bounds:
            assert all(
                wanted.bounds[0] - 1e-9 <= found[end] <= wanted.bounds[1] + 1e-9
                for end in ("value", "low", "high")
                if found[end] is not None
            ), place
    in_order(found, place)


def in_order(found: dict[str, Any], place: str) -> None:
    """Check that an interval has both ends or a reason, and no interval where there is no value."""
    assert (found["low"] is None) == (found["high"] is None) == ("reason" in found), place
    if found["low"] is not None:
        assert found["value"] is not None, place
        assert -math.inf < found["low"] <= found["high"] < math.inf, place


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


def compare_intervals(found: dict[str, Any], wanted: Figure, place: str, number_of_cases: int) -> None:
    ends = interval(wanted, number_of_cases)
    told = None if found["low"] is None else (found["low"], found["high"])
    assert told == (None if ends is None else pytest.approx(ends, abs=1e-9)), f"{place}: {told}, and by loops {ends}"


def check_p_values(records: Sequence[dict[str, Any]], figure: str) -> None:
    """Check that p-values go with intervals, and that the adjusted ones are Holm's."""
    known = sorted((record["p"], at) for at, record in enumerate(records) if record["p"] is not None)
    largest = 0.0
    for rank, (p, at) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        assert records[at]["p_adjusted"] == pytest.approx(largest)
    for record in records:
        if record["p"] is None:
            assert record["p_adjusted"] is None
            assert record[figure]["low"] is None
        elif (
            record[figure]["low"] is not None and record["p"] < 0.04
        ):  # so few cases: the interval is never wider than this
            assert not record[figure]["low"] <= 0 <= record[figure]["high"]


def check_best_baselines(found: dict[str, Any], best: dict[str, dict[str, Any] | None]) -> None:
    """Check which baseline each judge is compared with, and what is said of it, beside pingouin's adjustment by Holm."""
    for judge, told in best.items():
        lines = [
            (each["difference"]["value"], each["second"], each["p"])
            for each in found.get("comparisons", [])
            if each["first"] == judge
            and found["judges"][each["second"]]["kind"] == "baseline"
            and each["p"] is not None
        ]
        if not lines:
            assert told is None
            continue
        _, adjusted = pingouin.multicomp([p for _, _, p in lines], method="holm")
        p_values, holm = (
            {name: p for (_, name, _), p in zip(lines, some)} for some in ([p for _, _, p in lines], adjusted)
        )
        for part, names in ((told, list(p_values)), (told.get("without_reference"), [BM25, LONGER, "random"])):
            own = [line for line in lines if line[1] in names]
            if part is None:
                assert told["name"] != "ROUGE-L to the reference" or not own
                continue
            lowest = min(value for value, _, _ in own)
            assert part["difference"]["value"] == lowest
            assert (lowest, part["name"]) in [(value, name) for value, name, _ in own]
            assert part["p_adjusted"] == pytest.approx(holm[part["name"]])
            better = lowest > 0 and all(p_values[name] < 0.05 for _, name, _ in own)
            worse = lowest < 0 and holm[part["name"]] < 0.05
            assert part["outcome"] == ("better" if better else "worse" if worse else "not better")


def check(folder: Path, files: dict[str, Any]) -> dict[str, Any]:
    """Compare every figure of these files; return ours."""
    found, loops = ours(folder, files), theirs(folder, files)
    best = {name: record.pop("best_baseline") for name, record in found["judges"].items() if "best_baseline" in record}
    check_best_baselines(found, best)
    of_main = found["main_judge"].pop("best_baseline", None)
    wanted, count = loops.content(), len(files["cases"])
    if of_main is not None:
        # A difference without a variance has no p-value, and is not compared: it may be smaller.
        value = of_main["difference"]["value"]
        assert value == pytest.approx(min(loops.above_baselines, key=lambda one: abs(one - value)), abs=1e-9)
        assert value >= min(loops.above_baselines) - 1e-9
    compare(found, wanted, "agreement.json", count)
    for name, figures in wanted["judges"].items():
        for key in (
            "valid_rate",
            "prefers_longer",
            "concordance",
            "triple_accuracy",
            "listwise_accuracy",
            "spearman",
            "pearson_expected",
        ):
            if isinstance(figure := figures.get(key), Figure):
                compare_intervals(found["judges"][name][key], figure, f"{name} → {key}", count)
    for own, record in zip(found.get("rounds", {}).get("table", []), wanted.get("rounds", {}).get("table", [])):
        if record["change"] and isinstance(figure := record["change"]["triple_accuracy"], Figure):
            compare_intervals(own["change"]["triple_accuracy"], figure, f"round {own['round']}", count)
    for own, record in zip(found.get("over_runs", []), wanted.get("over_runs", []), strict=True):
        for measure in ("concordance", "spearman", "pearson_expected"):
            if isinstance(figure := record[measure]["mean"], Figure):
                compare_intervals(own[measure]["mean"], figure, f"{record['judge']} over runs → {measure}", count)
    for own, record in zip(found.get("comparisons", []), wanted.get("comparisons", []), strict=True):
        compare_intervals(own["difference"], record["difference"], "comparison", count)
    check_p_values(found.get("comparisons", []), "difference")
    for each in found.get("preferences", []):
        check_p_values(list(each["criteria"].values()), "margin")
    for table in found["models"].values():
        check_p_values(table.get("pairs", []), "margin")
    for figure in ("concordance", "against_the_other_raters"):
        wanted_here = wanted["main_judge"].get(figure, {})
        both = wanted_here.items() if isinstance(wanted_here, dict) else [(None, wanted_here)]
        for part, each in both:
            own = found["main_judge"][figure]
            compare_intervals(own if part is None else own[part], each, f"main judge → {figure}", count)
    for name, each in best.items():
        found["judges"][name]["best_baseline"] = each
    if files["ratings"]:
        found["main_judge"]["best_baseline"] = of_main
    return found


@pytest.fixture(autouse=True)
def few_rated_cases_choose_the_main_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_judge, "LEAST_RATED", LEAST_RATED)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(studies().filter(lambda files: files["verdicts"]))
def test_every_figure_is_that_of_the_loops(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Any]) -> None:
    check(tmp_path_factory.mktemp("study"), files)


@pytest.mark.parametrize("seed", range(6))
def test_every_figure_of_a_larger_study_is_that_of_the_loops(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = study(lambda count: rng.randrange(count), most_cases=40)
    check(tmp_path, files)


def test_the_recipe_writes_these_figures_and_no_others(tmp_path: Path) -> None:
    rng = random.Random(2)
    studies = (study(lambda count: rng.randrange(count), most_cases=30) for _ in range(100))
    names = ("verdicts", "ratings", "choices", "verdict_ratings", "preferences")
    files = next(each for each in studies if all(each[name] for name in names) and len(each["verdicts"]) > 40)
    found = check(tmp_path, files)
    options = [word for name in ("cases", *names) for word in (f"--{name}", tmp_path / f"{name}.jsonl")]
    options += ["--raters", files["raters"]] if files["raters"] else []
    options += ["--rounds", ",".join(rounds_of(found))]
    done = meta_evaluate(
        *options, "--resamples", RESAMPLES, "--html_cases", 0, "--encoder", "none", "--output", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "out" / "agreement.json").read_text())
    assert {key: value for key, value in written.items() if key not in NOT_COMPARED} == found
    assert found.keys() == {
        "cases",
        "judges",
        "models",
        "main_judge",
        "people",
        "comparisons",
        "rounds",
        "over_runs",
        *names[2:],
    }
