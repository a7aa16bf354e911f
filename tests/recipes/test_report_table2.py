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
from programs import failed
from statsmodels.stats.multitest import multipletests
from tables import rows_of

from automedeval.records.text import span as formatted
from automedeval.stats.growth_curve import forecast

ROWS = rows_of(__file__)
FILES = ("cases", "verdicts", "ratings")
MODELS = ("ash", "birch", "cedar", "date")
NOISE = {"gpt": 0.8, "ours": 0.4, "ours-run2": 0.5, "ours-run3": 0.6, "base": 2.0, "lazy": 0.5}
RUNS = {"gpt": 3, "base": 3, "lazy": 2}  # the others were asked once
TRAININGS = {"ours": ["ours", "ours-run2", "ours-run3"]}
JUDGES = ("gpt", "ours", "base", "lazy")
CORRELATIONS = ["spearman", "pearson"]
ACCURACIES = ["pairwise_accuracy", "triple_accuracy"]
MARKS = {"*": 0.001, "†": 0.01, "§": 0.05}
COLUMNS = ["bert_score", "bart_score", *CORRELATIONS, *ACCURACIES]


def verdicts_of(judge: str, cases: list[dict], truth: dict) -> Iterator[dict]:
    """Yield the judge's verdicts: the truth with noise; some invalid, and some of `lazy` missing in its second run."""
    rng = random.Random(judge)
    for run, (number, case) in product(range(RUNS.get(judge, 1)), enumerate(cases)):
        if judge == "lazy" and run == 1 and number < 6:
            continue
        if rng.random() < 0.08:
            yield verdict(case, None, judge, run=run)
            continue
        noisy = [truth[case["id"], model] + rng.gauss(0, NOISE[judge]) for model in MODELS]
        scores = [min(5, max(1, round(value))) for value in noisy]
        text = " ".join(rng.sample(["rest", "water", "salt", "heat", "cold", "sleep"], 3))
        yield verdict(case, scores, judge, run=run, expected_scores=None, rationale=text)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return a folder with cases, ratings and the verdicts of all judges in one file."""
    folder, rng = tmp_path_factory.mktemp("study"), random.Random(0)
    answers = [{model: f"{model} {n}" for model in MODELS} for n in range(60)]
    cases = [case_of(f"c{n}", "Why?", texts) for n, texts in enumerate(answers)]
    truth = {(case["id"], model): rng.uniform(1, 5) for case in cases for model in MODELS}
    ratings = []
    for place, who, criterion in product(truth, ("r0", "r1", "r2"), ("accuracy", "style")):
        score = min(5, max(1, round(truth[place] + rng.gauss(0, 0.5))))
        ratings.append(rating(*place, score, who, criterion))
    verdicts = [each for judge in NOISE for each in verdicts_of(judge, cases, truth)]
    for case, (first, second) in product(cases, combinations(range(4), 2)):
        better = max(MODELS[first], MODELS[second], key=lambda model: truth[case["id"], model])
        verdicts.append(pair_verdict(case, first, second, "pairs", correctness=better))
    for name, lines in zip(FILES, (cases, verdicts, ratings)):
        write(folder / f"{name}.jsonl", lines)
    return folder


def files_of(study: Path) -> dict[str, Any]:
    return {name: study / f"{name}.jsonl" for name in FILES}


def of_judges(study: Path, *judges: str) -> list[dict]:
    return [each for each in read(study / "verdicts.jsonl") if each["judge"] in judges]


@pytest.fixture(scope="module")
def reported(study, tmp_path_factory):
    options = {"teacher_verdicts": "gpt", "main_judge": "ours"}
    with mock.patch("automedeval.metrics.rationale_score.rationale_score.rationale_score", overlap):
        return made(tmp_path_factory.mktemp("out"), **files_of(study), **options)


def loops_of(files: dict[str, Path]) -> Loops:
    return Loops(*(read(files[name]) for name in FILES))


@pytest.fixture(scope="module")
def loops(study):
    return loops_of(files_of(study))


def runs_of(loops: Loops, judge: str) -> list[Row]:
    """Return each run of each training of a judge."""
    names = TRAININGS.get(judge, [judge])
    rows = [row for row in loops.rows if row.name in names]
    return [row.of_run(run) for row in rows for run in row.runs()]


def figure(loops: Loops, run: Row, name: str, shared: set | None = None) -> float:
    """Return a figure of a run, a correlation over the responses `shared`."""
    figures = loops.measures(run)
    if shared is not None:
        figures = correlations(loops.points(run, {place: run.scores[place] for place in shared}))
    return figures[name].of(range(len(loops.cases)))


def row_of(result: dict, judge: str) -> dict:
    return next(row for row in result["table2"]["rows"] if row["judge"] == judge)


@pytest.mark.parametrize("judge", JUDGES)
def test_every_cell_is_the_mean_over_runs_that_are_scored_apart(judge, reported, loops):
    row, runs = row_of(reported.result, judge), runs_of(loops, judge)
    assert row["names"] == TRAININGS.get(judge, [judge])
    assert (row["runs"], row["of"]) == (len(runs), "trainings" if judge == "ours" else "runs")
    for name in CORRELATIONS + ACCURACIES:
        values = [figure(loops, run, name) for run in runs]
        cell = row["cells"][name]
        assert cell["values"] == pytest.approx(values), name
        assert cell["sd"] == pytest.approx(stdev(values)), name
        mean = cell["mean"]
        assert mean["value"] == pytest.approx(fmean(values)), name
        assert mean["low"] < mean["value"] < mean["high"]


@pytest.mark.parametrize("judge", ["ours", "base", "lazy"])
def test_rationales_are_compared_run_by_run(judge, reported, study):
    teacher, by_run = defaultdict(list), defaultdict(list)
    for each in of_judges(study, "gpt"):
        if each["valid"]:
            teacher[each["case_id"]].append(each["rationale"])
    for each in of_judges(study, *TRAININGS.get(judge, [judge])):
        if each["valid"] and each["case_id"] in teacher:
            by_run[each["judge"], each["run"]].append(each)
    values = []
    for of_run in by_run.values():
        texts = [each["rationale"] for each in of_run]
        scores = overlap(texts, [teacher[each["case_id"]] for each in of_run])
        bart = [each for each in scores["bart_score"] if each is not None]
        values.append((fmean(scores["bert_score"]["f1"]), fmean(bart)))
    cells = row_of(reported.result, judge)["cells"]
    for name, of_metric in zip(("bert_score", "bart_score"), zip(*values)):
        assert cells[name]["values"] == pytest.approx(of_metric)
        assert cells[name]["sd"] == pytest.approx(stdev(of_metric))


@pytest.mark.parametrize("judge", ["gpt", "base", "lazy"])
def test_differences_are_of_the_same_responses_and_cases(judge, reported, loops):
    sides = runs_of(loops, judge), runs_of(loops, "ours")
    shared = set.intersection(*(set(run.scores) for runs in sides for run in runs))
    for name in (*CORRELATIONS, "triple_accuracy"):
        # Missing is wrong: accuracies are of all pairs, for both.
        of = shared if name in CORRELATIONS else None
        mean, other = (fmean(figure(loops, run, name, of) for run in runs) for runs in sides)
        difference = row_of(reported.result, judge)["cells"][name]["difference"]
        assert difference["value"] == pytest.approx(mean - other)
        assert of is None or difference["n"] == len(of)


def test_clusters_of_cases_are_resampled_whole(study, tmp_path):
    """Each case stands there twice, in one cluster: intervals are those of the cases that stand there once."""
    files, twice, widths = files_of(study), {}, []
    for name, key in zip(FILES, ("id", "case_id", "case_id")):
        lines = [line for line in read(files[name]) if line.get("judge") != "pairs"]
        copies = [(line, f"{line[key]}-{copy}") for line in lines for copy in "ab"]
        twice[name] = [line | {key: copy, "cluster": line[key]} for line, copy in copies]
    for given in (files, twice):
        report = made(tmp_path, **given, contrasts=("ours=base", "gpt=ours"))
        first, second = report.result["contrasts"]
        assert (first["first"], first["second"]) == ("ours", "base")
        adjusted = multipletests([first["p"], second["p"]], method="holm")[1]
        assert first["p_adjusted"] == pytest.approx(adjusted[0])
        assert "ours and base order " in report.text
        widths.append(first["difference"]["high"] - first["difference"]["low"])
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert "resampled are the 60 clusters of the 120 cases" in report.result["notes"]


def test_p_values_are_adjusted_within_each_column_and_gaps_say_why(reported):
    table = reported.result["table2"]
    assert table["columns"] == COLUMNS
    for name in COLUMNS:
        cells = [row["cells"][name] for row in table["rows"] if row["judge"] != "ours"]
        tested = [cell for cell in cells if cell["p"] is not None]
        adjusted = multipletests([cell["p"] for cell in tested], method="holm")[1]
        assert [cell["p_adjusted"] for cell in tested] == pytest.approx(list(adjusted))
        for cell in tested:
            marks = [mark for mark, most in MARKS.items() if cell["p_adjusted"] < most]
            assert cell["mark"] == "".join(marks[:1])
    ours = row_of(reported.result, "ours")["cells"]
    assert [name for name in COLUMNS if "p" in ours[name]] == CORRELATIONS
    pairs = row_of(reported.result, "pairs: correctness")["cells"]
    assert "no rationale" in pairs["bert_score"]["mean"]["reason"]
    assert "this judge gives choices, no scores</th>" in reported.text
    cell = row_of(reported.result, "base")["cells"]["triple_accuracy"]
    value, interval = formatted(cell["mean"], 2, 100).split(" ", 1)
    shown = f"{value} ± {100 * cell['sd']:.2f}{cell['mark']} {interval}"
    assert shown in reported.text
    assert any(
        "lazy, run 1: no verdict on 6 of 60 cases" in note for note in reported.result["notes"]
    )


def test_the_main_judge_is_the_first_training(reported):
    result = reported.result
    assert (result["main_judge"]["name"], result["similarity"]["teacher"]) == ("ours", "gpt")
    assert reported.text.count(">ours (main judge)</th>") == 2


def test_a_run_without_a_valid_verdict_counts_and_judges_are_tested_on_the_same_pairs(
    study, tmp_path
):
    """`narrow` was never asked about the last candidate."""
    verdicts = of_judges(study, "base", "ours")
    for each in of_judges(study, "base"):
        if each["run"] == 0:
            scores = each["scores"] and [*each["scores"][:3], None]
            verdicts.append(each | {"judge": "narrow", "order": [0, 1, 2], "scores": scores})
    empty = {"valid": False, "scores": None, "rationale": None, "error": "no score line"}
    for each in verdicts:
        each |= empty if (each["judge"], each["run"]) == ("base", 1) else {}
    files = files_of(study) | {"verdicts": write(tmp_path / "verdicts.jsonl", verdicts)}
    report = made(tmp_path, **files, main_judge="ours")
    cells = row_of(report.result, "base")["cells"]
    accuracy, correlation = cells["pairwise_accuracy"], cells["spearman"]
    assert accuracy["values"][1] == 0
    assert accuracy["mean"]["value"] == pytest.approx(fmean(accuracy["values"]))
    assert correlation["values"][1] is correlation["mean"]["value"] is None
    assert "run 1: no valid verdict</th>" in report.text
    cell = row_of(report.result, "narrow")["cells"]["pairwise_accuracy"]
    loops = loops_of(files)
    (narrow,), (ours,) = (runs_of(loops, judge) for judge in ("narrow", "ours"))
    ours.asked = narrow.asked
    first, second = (figure(loops, run, "pairwise_accuracy") for run in (narrow, ours))
    assert cell["mean"]["value"] == pytest.approx(first)
    assert cell["difference"]["value"] == pytest.approx(first - second)
    assert report.result["table2"]["columns"] == COLUMNS[2:]  # no teacher


@pytest.mark.parametrize(("more", "message"), ROWS["test_unknown_names_get_one_line"])
def test_unknown_names_get_one_line(more, message, study, tmp_path):
    failed(asked(tmp_path, **files_of(study), **more), message)
    assert not (tmp_path / "out").exists()


# So many of the 30 cases are right after rounds 0, 1 and 2: the others have an invalid verdict, which is wrong.
RIGHT = (12, 15, 17)


@pytest.mark.parametrize("rounds", [(0, 1, 2), (2, 1, 0)])
def test_rounds_are_followed_and_forecast_if_they_rise(rounds, tmp_path):
    files = {f"r{n}": write(tmp_path / f"{n}.jsonl", right_verdicts(RIGHT[n])) for n in rounds}
    verdicts = tuple(f"{name}={file}" for name, file in files.items())
    report = made(tmp_path, verdicts, ratings=RATINGS, rounds=",".join(files))
    found = report.result["rounds"]
    assert found["names"] == [*files]
    assert found["values"] == pytest.approx([RIGHT[number] / 30 for number in rounds])
    for line in found["table"]:
        cell = row_of(report.result, line["judge"])["cells"]["triple_accuracy"]
        assert (line["triple_accuracy"], line["sd"]["triple_accuracy"]) == (
            cell["mean"],
            cell["sd"],
        )
    assert found["forecast"] == forecast(found["values"])
    if rounds[0]:
        assert "No curve of triple accuracy: the measured rounds do not rise" in report.text
        return
    change = found["table"][1]["change"]["triple_accuracy"]
    assert change["value"] == pytest.approx(3 / 30)
    # paired: the three cases are gained in every resample that has them, and none is ever lost
    assert 0 <= change["low"] < change["value"] < change["high"] < 0.25
    assert f"its limit is {100 * found['forecast']['a']:.2f} %." in report.text
    assert "three rounds fit exactly" in report.text
