"""`automedeval report` --main_judge and --rounds: the paper's Table 2, beside scipy and plain loops for every run, and rounds.

The judges are verdict files made here: some asked three times, one trained three times, one that lacks verdicts, one of pairs.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest import mock

import pytest
from doubles.agreement_by_loops import Loops, Row, correlations
from doubles.agreement_study import (
    RATINGS,
    Report,
    asked,
    case_of,
    made,
    pair_verdict,
    rating,
    read,
    right_verdicts,
    verdict,
    write,
)
from doubles.word_overlap import overlap
from programs import failed, module_fixture
from statsmodels.stats.multitest import multipletests
from tables import each_row, rows_of

from automedeval.records.text import span as formatted
from automedeval.stats.growth_curve import forecast

ROWS = rows_of(__file__)
FILES = ("cases", "verdicts", "ratings")
MODELS = ("ash", "birch", "cedar", "date")
NOISE = ROWS["noise"]
RUNS = ROWS["runs"]
TRAININGS = ROWS["trainings"]
JUDGES = ("gpt", "ours", "base", "lazy")
CORRELATIONS = ["spearman", "pearson"]
ACCURACIES = ["pairwise_accuracy", "triple_accuracy"]
MARKS = ROWS["marks"]
WORDS = ROWS["words"]
COLUMNS = ["bert_score", "bart_score", *CORRELATIONS, *ACCURACIES]


def noisy(score: float, noise: float, rng: random.Random) -> int:
    """Return a whole score of 1 to 5 near this one."""
    moved = score + rng.gauss(0, noise)
    return min(5, max(1, round(moved)))


def verdicts_of(judge: str, cases: list[dict], truth: dict) -> Iterator[dict]:
    """Yield the judge's verdicts: the truth with noise; some invalid, and some of `lazy` missing in its second run."""
    rng = random.Random(judge)
    runs = RUNS.get(judge, 1)
    for run, (number, case) in product(range(runs), enumerate(cases)):
        if judge == "lazy" and run == 1 and number < 6:
            continue
        if rng.random() < 0.08:
            yield verdict(case, None, judge, run=run)
            continue
        scores = [noisy(truth[case["id"], model], NOISE[judge], rng) for model in MODELS]
        words = rng.sample(WORDS, 3)
        fields = {"run": run, "expected_scores": None, "rationale": " ".join(words)}
        yield verdict(case, scores, judge, **fields)


@module_fixture
def study(tmp_path_factory):
    """Return a folder with cases, ratings and the verdicts of all judges in one file."""
    folder = tmp_path_factory.mktemp("study")
    rng = random.Random(0)
    cases = []
    truth = {}
    for number in range(60):
        name = f"c{number}"
        answers = {model: f"{model} {number}" for model in MODELS}
        cases.append(case_of(name, "Why?", answers))
        for model in MODELS:
            truth[name, model] = rng.uniform(1, 5)
    ratings = []
    for place, who, criterion in product(truth, ("r0", "r1", "r2"), ("accuracy", "style")):
        score = noisy(truth[place], 0.5, rng)
        ratings.append(rating(*place, score, who, criterion))
    verdicts = []
    for judge in NOISE:
        verdicts += verdicts_of(judge, cases, truth)
    for case, pair in product(cases, combinations(range(4), 2)):
        place = max(pair, key=lambda place: truth[case["id"], MODELS[place]])
        better = MODELS[place]
        verdicts.append(pair_verdict(case, *pair, "pairs", correctness=better))
    for name, lines in zip(FILES, (cases, verdicts, ratings)):
        write(folder / f"{name}.jsonl", lines)
    return folder


def files_of(study: Path) -> dict[str, Any]:
    return {name: study / f"{name}.jsonl" for name in FILES}


def of_judges(study: Path, *judges: str) -> list[dict]:
    return [each for each in read(study / "verdicts.jsonl") if each["judge"] in judges]


@module_fixture
def reported(study, tmp_path_factory):
    options = {"teacher_verdicts": "gpt", "main_judge": "ours"}
    with mock.patch("automedeval.metrics.rationale_score.rationale_score.rationale_score", overlap):
        return made(tmp_path_factory.mktemp("out"), **files_of(study), **options)


def loops_of(files: dict[str, Path]) -> Loops:
    return Loops(*(read(files[name]) for name in FILES))


@module_fixture
def loops(study):
    return loops_of(files_of(study))


def runs_of(loops: Loops, judge: str) -> list[Row]:
    """Return each run of each training of a judge."""
    names = TRAININGS.get(judge, [judge])
    found = []
    for row in loops.rows:
        if row.name in names:
            found += [row.of_run(run) for run in row.runs()]
    return found


def figure(loops: Loops, run: Row, name: str, shared: set | None = None) -> float:
    """Return a figure of a run, a correlation over the responses `shared`."""
    figures = loops.measures(run)
    if shared is not None:
        scores = {place: run.scores[place] for place in shared}
        points = loops.points(run, scores)
        figures = correlations(points)
    cases = range(len(loops.cases))
    return figures[name].of(cases)


def holm(tests: list[dict]) -> list[float]:
    """Return the p values of tests, adjusted together by statsmodels."""
    p_values = [each["p"] for each in tests]
    _, adjusted, *_ = multipletests(p_values, method="holm")
    return adjusted.tolist()


def row_of(report: Report, judge: str) -> dict:
    rows = report.result["table2"]["rows"]
    return next(row for row in rows if row["judge"] == judge)


def cells_of(report: Report, judge: str) -> dict:
    return row_of(report, judge)["cells"]


@pytest.mark.parametrize("judge", JUDGES)
def test_every_cell_is_the_mean_over_runs_that_are_scored_apart(judge, reported, loops):
    row = row_of(reported, judge)
    runs = runs_of(loops, judge)
    assert row["names"] == TRAININGS.get(judge, [judge])
    assert row["runs"] == len(runs)
    assert row["of"] == ("trainings" if judge == "ours" else "runs")
    for name in CORRELATIONS + ACCURACIES:
        values = [figure(loops, run, name) for run in runs]
        cell = row["cells"][name]
        mean = cell["mean"]
        assert cell["values"] == pytest.approx(values), name
        assert cell["sd"] == pytest.approx(stdev(values)), name
        assert mean["value"] == pytest.approx(fmean(values)), name
        assert mean["low"] < mean["value"] < mean["high"]


@each_row("judge")
def test_rationales_are_compared_run_by_run(judge, reported, study):
    teacher = defaultdict(list)
    by_run = defaultdict(list)
    for each in of_judges(study, "gpt"):
        if each["valid"]:
            teacher[each["case_id"]].append(each["rationale"])
    for each in of_judges(study, *TRAININGS.get(judge, [judge])):
        if each["valid"] and each["case_id"] in teacher:
            by_run[each["judge"], each["run"]].append(each)
    values = {"bert_score": [], "bart_score": []}
    for of_run in by_run.values():
        texts = [each["rationale"] for each in of_run]
        references = [teacher[each["case_id"]] for each in of_run]
        scores = overlap(texts, references)
        bert = scores["bert_score"]["f1"]
        bart = [each for each in scores["bart_score"] if each is not None]
        values["bert_score"].append(fmean(bert))
        values["bart_score"].append(fmean(bart))
    cells = cells_of(reported, judge)
    for name, of_metric in values.items():
        cell = cells[name]
        assert cell["values"] == pytest.approx(of_metric)
        assert cell["sd"] == pytest.approx(stdev(of_metric))


@each_row("judge")
def test_differences_are_of_the_same_responses_and_cases(judge, reported, loops):
    runs = runs_of(loops, judge)
    others = runs_of(loops, "ours")
    scored = [set(run.scores) for run in runs + others]
    shared = set.intersection(*scored)
    cells = cells_of(reported, judge)
    for name in (*CORRELATIONS, "triple_accuracy"):
        # Missing is wrong: accuracies are of all pairs, for both.
        of = shared if name in CORRELATIONS else None
        values = [figure(loops, run, name, of) for run in runs]
        of_others = [figure(loops, run, name, of) for run in others]
        difference = cells[name]["difference"]
        assert difference["value"] == pytest.approx(fmean(values) - fmean(of_others))
        assert of is None or difference["n"] == len(of)


def test_clusters_of_cases_are_resampled_whole(study, tmp_path):
    """Each case stands there twice, in one cluster: intervals are those of the cases that stand there once."""
    files = files_of(study)
    twice = {}
    widths = []
    for name, key in zip(FILES, ("id", "case_id", "case_id")):
        twice[name] = []
        for line, copy in product(read(files[name]), "ab"):
            if line.get("judge") != "pairs":
                case_id = line[key]
                copied = {key: f"{case_id}-{copy}", "cluster": case_id}
                twice[name].append(line | copied)
    for given in (files, twice):
        report = made(tmp_path, **given, contrasts=("ours=base", "gpt=ours"))
        first, second = report.result["contrasts"]
        assert first["first"] == "ours"
        assert first["second"] == "base"
        adjusted = holm([first, second])
        assert first["p_adjusted"] == pytest.approx(adjusted[0])
        assert "ours and base order " in report.text
        difference = first["difference"]
        widths.append(difference["high"] - difference["low"])
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert "bootstrap over 60 clusters of cases, " in report.page


def test_p_values_are_adjusted_within_each_column_and_gaps_say_why(reported):
    table = reported.result["table2"]
    assert table["columns"] == COLUMNS
    for name in COLUMNS:
        cells = [row["cells"][name] for row in table["rows"] if row["judge"] != "ours"]
        tested = [cell for cell in cells if cell["p"] is not None]
        for cell, adjusted in zip(tested, holm(tested), strict=True):
            assert cell["p_adjusted"] == pytest.approx(adjusted)
            marks = [mark for mark, most in MARKS.items() if cell["p_adjusted"] < most]
            assert cell["mark"] == "".join(marks[:1])
    ours = cells_of(reported, "ours")
    assert [name for name in COLUMNS if "p" in ours[name]] == CORRELATIONS
    pairs = cells_of(reported, "pairs: correctness")
    assert "no rationale" in pairs["bert_score"]["mean"]["reason"]
    assert "this judge gives choices, no scores</th>" in reported.text
    cell = cells_of(reported, "base")["triple_accuracy"]
    value, interval = formatted(cell["mean"], 2, 100).split(" ", 1)
    spread = 100 * cell["sd"]
    assert f"{value} ± {spread:.2f}{cell['mark']} {interval}" in reported.text
    notes = "\n".join(reported.result["notes"])
    assert "lazy, run 1: no verdict on 6 of 60 cases" in notes


def test_the_main_judge_is_the_first_training(reported):
    result = reported.result
    assert result["main_judge"]["name"] == "ours"
    assert result["similarity"]["teacher"] == "gpt"
    assert reported.text.count(">ours (main judge)</th>") == 2


def test_a_run_without_a_valid_verdict_counts_and_judges_are_tested_on_the_same_pairs(
    study, tmp_path
):
    """`narrow` was never asked about the last candidate."""
    verdicts = of_judges(study, "ours")
    for each in of_judges(study, "base"):
        verdicts.append(each)
        if each["run"] == 0:
            scores = each["scores"] and [*each["scores"][:3], None]
            verdicts.append(each | {"judge": "narrow", "order": [0, 1, 2], "scores": scores})
        elif each["run"] == 1:
            each |= {"valid": False, "scores": None, "rationale": None, "error": "no score line"}
    files = files_of(study)
    files["verdicts"] = write(tmp_path / "verdicts.jsonl", verdicts)
    report = made(tmp_path, **files, main_judge="ours")
    cells = cells_of(report, "base")
    accuracy = cells["pairwise_accuracy"]
    correlation = cells["spearman"]
    assert accuracy["values"][1] == 0
    assert accuracy["mean"]["value"] == pytest.approx(fmean(accuracy["values"]))
    assert correlation["values"][1] is None
    assert correlation["mean"]["value"] is None
    assert "run 1: no verdict has a score</th>" in report.text
    cell = cells_of(report, "narrow")["pairwise_accuracy"]
    loops = loops_of(files)
    (narrow,) = runs_of(loops, "narrow")
    (ours,) = runs_of(loops, "ours")
    ours.asked = narrow.asked
    first = figure(loops, narrow, "pairwise_accuracy")
    second = figure(loops, ours, "pairwise_accuracy")
    assert cell["mean"]["value"] == pytest.approx(first)
    assert cell["difference"]["value"] == pytest.approx(first - second)
    assert report.result["table2"]["columns"] == COLUMNS[2:]  # no teacher


@each_row("more, message")
def test_unknown_names_get_one_line(more, message, study, tmp_path):
    failed(asked(tmp_path, **files_of(study), **more), message)
    assert not (tmp_path / "out").exists()


# So many of the 30 cases are right after rounds 0, 1 and 2: the others have an invalid verdict, which is wrong.
RIGHT = (12, 15, 17)


@each_row("rounds")
def test_rounds_are_followed_and_forecast_if_they_rise(rounds, tmp_path):
    names = [f"r{number}" for number in rounds]
    verdicts = []
    for name, number in zip(names, rounds):
        file = write(tmp_path / f"{name}.jsonl", right_verdicts(RIGHT[number]))
        verdicts.append(f"{name}={file}")
    report = made(tmp_path, tuple(verdicts), ratings=RATINGS, rounds=",".join(names))
    found = report.result["rounds"]
    values = [line["triple_accuracy"]["value"] for line in found["table"]]
    assert values == pytest.approx([RIGHT[number] / 30 for number in rounds])
    for name, line in zip(names, found["table"], strict=True):
        cell = cells_of(report, name)["triple_accuracy"]
        assert line["triple_accuracy"] == cell["mean"]
        assert line["sd"]["triple_accuracy"] == cell["sd"]
    assert found["forecast"] == forecast(values)
    if rounds[0]:
        assert "No curve of triple accuracy: the measured rounds do not rise" in report.text
        return
    change = found["table"][1]["change"]["triple_accuracy"]
    assert change["value"] == pytest.approx(3 / 30)
    # paired: the three cases are gained in every resample that has them, and none is ever lost
    assert 0 <= change["low"] < change["value"] < change["high"] < 0.25
    limit = 100 * found["forecast"]["a"]
    assert f"its limit is {limit:.2f} %." in report.text
    assert "three rounds fit exactly" in report.text
