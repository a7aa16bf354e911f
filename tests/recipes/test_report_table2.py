"""`automedeval report` --main_judge and --rounds: the paper's Table 2, beside scipy and plain loops for every run, and rounds.

The judges are verdict files made here: some asked three times, one trained three times, one that lacks verdicts, one of pairs.
"""

import random
import re
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
    pairwise_verdicts,
    rating,
    read,
    right_verdicts,
    verdict,
    write,
)
from doubles.word_overlap import overlap
from programs import error_line
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


def test_p_values_are_adjusted_within_each_column(reported):
    table, seen = reported.result["table2"], 0
    assert table["columns"] == COLUMNS
    for name in COLUMNS:
        cells = [row["cells"][name] for row in table["rows"] if row["judge"] != "ours"]
        tested = [cell for cell in cells if cell["p"] is not None]
        adjusted = multipletests([cell["p"] for cell in tested], method="holm")[1]
        assert [cell["p_adjusted"] for cell in tested] == pytest.approx(list(adjusted))
        for cell in cells:
            p = 1 if cell["p"] is None else cell["p_adjusted"]
            mark = "*" if p < 0.001 else "†" if p < 0.01 else "§" if p < 0.05 else ""
            assert cell["mark"] == mark
        seen += len(tested)
    assert seen > 12


def test_contrasts_are_paired_and_clusters_of_cases_are_resampled_whole(study, tmp_path):
    """Each case stands there twice, in one cluster: intervals are those of the cases that stand there once."""
    files, names, widths = files_of(study), ("ours=base", "gpt=ours"), []
    twice = {}
    for name, key in zip(FILES, ("id", "case_id", "case_id")):
        lines = [line for line in read(files[name]) if line.get("judge") != "pairs"]
        copies = [(line, f"{line[key]}-{copy}") for line in lines for copy in "ab"]
        twice[name] = [line | {key: copy, "cluster": line[key]} for line, copy in copies]
    for given in (files, twice):
        report = made(tmp_path, **given, contrasts=names)
        result = report.result
        compared = result["contrasts"]
        assert [f"{each['first']}={each['second']}" for each in compared] == [*names]
        for each in compared:
            first, second = (result["judges"][each[side]] for side in ("first", "second"))
            gap = first["concordance"]["value"] - second["concordance"]["value"]
            assert each["difference"]["value"] == pytest.approx(gap)
        adjusted = multipletests([each["p"] for each in compared], method="holm")[1]
        assert [each["p_adjusted"] for each in compared] == pytest.approx(list(adjusted))
        assert "ours and base order " in report.text
        widths.append(compared[0]["difference"]["high"] - compared[0]["difference"]["low"])
    assert widths[1] == pytest.approx(widths[0], rel=0.1)
    assert "resampled are the 60 clusters of the 120 cases" in result["notes"]


def test_the_marks_of_ours_are_of_its_correlations(reported):
    cells = row_of(reported.result, "ours")["cells"]
    assert [name for name in COLUMNS if "difference" in cells[name]] == []
    assert [name for name in COLUMNS if "p" in cells[name]] == CORRELATIONS
    assert cells["spearman"]["mark"] == "*"
    assert cells["spearman"]["p"] < 0.001


def test_choices_have_no_correlations_and_no_rationales_and_say_why(reported):
    cells = row_of(reported.result, "pairs: correctness")["cells"]
    assert "no rationale" in cells["bert_score"]["mean"]["reason"]
    assert cells["spearman"]["difference"]["value"] is None
    assert cells["triple_accuracy"]["p"] is not None
    assert cells["triple_accuracy"]["sd"] is None
    why = "this judge gives choices, no scores: pairs: correctness, Spearman, Pearson."
    assert f"N/A, {why}" in reported.text
    assert "N/A, the teacher itself: gpt, BERTScore (F1), BARTScore." in reported.text


def test_a_run_that_lacks_verdicts_is_wrong_there_and_it_is_said(reported, study):
    result = reported.result
    said = "lazy, run 1: no verdict on 6 of 60 cases, for example"
    assert any(said in note for note in result["notes"])
    row = row_of(result, "lazy")
    first, second = row["cells"]["pairwise_accuracy"]["values"]
    assert second < first
    valid = sum(each["valid"] for each in of_judges(study, "lazy")) / 120
    assert row["valid"] == result["judges"]["lazy"]["valid_rate"]["value"] == pytest.approx(valid)


def test_runs_without_a_valid_verdict_count_and_judges_are_tested_on_the_same_pairs(
    study, tmp_path
):
    verdicts = of_judges(study, "base", "ours")
    # A judge that was never asked about the last candidate, on purpose.
    for each in of_judges(study, "base"):
        if each["run"] == 0:
            scores = each["scores"] and [*each["scores"][:3], None]
            narrow = {"judge": "narrow", "order": [0, 1, 2], "scores": scores}
            verdicts.append(each | narrow)
    empty = {"valid": False, "scores": None, "rationale": None, "error": "no score line"}
    for each in verdicts:
        each |= empty if (each["judge"], each["run"]) == ("base", 1) else {}
    files = files_of(study) | {"verdicts": write(tmp_path / "verdicts.jsonl", verdicts)}
    report = made(tmp_path, **files, main_judge="ours")
    result, text = report.result, report.text
    cells = row_of(result, "base")["cells"]
    accuracy, correlation = cells["pairwise_accuracy"], cells["spearman"]
    assert accuracy["values"][1] == 0
    assert accuracy["mean"]["value"] == pytest.approx(fmean(accuracy["values"]))
    assert correlation["values"][1] is correlation["mean"]["value"] is None
    assert correlation["difference"]["value"] is None
    assert "N/A, run 1: no valid verdict: base, Spearman, Pearson." in text
    assert row_of(result, "ours")["cells"]["spearman"]["sd"] is None
    assert "<td>one run</td>" in text
    cell = row_of(result, "narrow")["cells"]["pairwise_accuracy"]
    loops = loops_of(files)
    (narrow,), (ours,) = (runs_of(loops, judge) for judge in ("narrow", "ours"))
    ours.asked = narrow.asked
    first, second = (figure(loops, run, "pairwise_accuracy") for run in (narrow, ours))
    assert cell["mean"]["value"] == pytest.approx(first)
    assert cell["difference"]["value"] == pytest.approx(first - second)
    assert result["table2"]["columns"] == COLUMNS[2:]  # no teacher, no columns for rationales


def test_a_judge_by_likelihood_is_compared_by_its_expected_scores(study, tmp_path):
    verdicts, expected = of_judges(study, "ours", "base"), [-3.0, -2.0, -1.5, -4.0]
    likely = {"rubric": "likelihood@1", "valid": True, "error": None, "expected_scores": expected}
    verdicts += [verdict(each, None, "likely", **likely) for each in read(study / "cases.jsonl")]
    files = files_of(study) | {"verdicts": write(tmp_path / "verdicts.jsonl", verdicts)}
    report = made(tmp_path, **files, main_judge="ours")
    cells, judge = row_of(report.result, "likely")["cells"], report.result["judges"]["likely"]
    for name in COLUMNS[2:]:
        assert cells[name]["mean"]["value"] == pytest.approx(judge[name]["value"])
    assert cells["spearman"]["p"] is not None
    rows = [line.split(" | ") for line in report.told.splitlines() if line.startswith("| ")]
    table = {line[0]: line[-1] for line in rows[-4:]}
    assert list(table) == ["| evaluation model", "| ours", "| base", "| likely"]
    shown = f"{100 * cells['triple_accuracy']['mean']['value']:.2f}"
    assert table["| likely"].startswith(shown)


def test_the_table_can_be_read_without_seeing_it(reported):
    """Each cell that heads a column or a line says so."""
    section = reported.text.partition('<h2 id="table2">')[2].partition("How this was made")[0]
    shown, differences, *more = re.findall("<caption>[^<].*?</table>", section)
    assert not more
    for table in (shown, differences):
        head, *lines = re.findall("<tr.*?</tr>", table)
        assert set(re.findall("<t[hd][^>]*>", head)) == {'<th scope="col">'}
        assert all(re.match('<tr[^>]*> ?<th scope="row"', line) for line in lines)
        assert not any("<th" in line.partition("</th>")[2] for line in lines)
    cell = row_of(reported.result, "base")["cells"]["triple_accuracy"]
    value, interval = formatted(cell["mean"], 2, 100).split(" ", 1)
    figures, gaps = (re.sub("<[^>]*>", "", table) for table in (shown, differences))
    assert f"{value} ± {100 * cell['sd']:.2f}{cell['mark']} {interval}" in figures
    assert f"{formatted(cell['difference'], 2, 100)}, p " in gaps
    assert "ours (main)" in figures
    assert "ours (main)" not in gaps


def test_rounds_are_the_means_of_the_table_and_the_first_judge_is_the_main_one(study, tmp_path):
    report = made(tmp_path, **files_of(study), rounds="base,lazy,ours")
    result = report.result
    assert result["table2"]["ours"] == result["main_judge"]["name"] == "gpt"
    for line in result["rounds"]["table"]:
        cell = row_of(result, line["judge"])["cells"]["triple_accuracy"]
        assert line["triple_accuracy"] == cell["mean"]
        assert line["sd"]["triple_accuracy"] == cell["sd"] > 0
    assert "± between runs" in report.text


def test_the_main_judge_is_the_first_training_and_pairs_are_drawn_as_in_figure_4(reported):
    result = reported.result
    assert (result["main_judge"]["name"], result["similarity"]["teacher"]) == ("ours", "gpt")
    pair = result["models"]["ours"]["pairs"][0]
    won, *others = (pair[name]["value"] for name in ("win", "tie", "loss"))
    table = reported.text.partition("Pairs of candidates by ours: ")[2]
    row = table.partition('<th scope="row">ash</th>')[2].partition("</tr>")[0]
    assert row.startswith(f"<td>birch</td><td>{won:.2f} [")
    assert [float(share) for share in re.findall(r"flex-grow: (\S+);", row)] == [won, *others]


@pytest.mark.parametrize(("more", "message"), ROWS["test_unknown_names_get_one_line"])
def test_unknown_names_get_one_line(more, message, study, tmp_path):
    assert message in error_line(asked(tmp_path, **files_of(study), **more))
    assert not (tmp_path / "out").exists()


# So many of the 30 cases are right after rounds 0, 1, 2, …: the others have an invalid verdict, which is wrong.
RIGHT = (12, 15, 17, 18, 19)


def followed(folder: Path, *rounds: int) -> Report:
    """Report on these rounds, whose judges are called r0, r1, …."""
    files = [(n, write(folder / f"{n}.jsonl", right_verdicts(RIGHT[n]))) for n in rounds]
    verdicts = tuple(f"r{number}={file}" for number, file in files)
    names = ",".join(f"r{number}" for number in rounds)
    return made(folder, verdicts, ratings=RATINGS, rounds=names)


def test_three_rounds_are_followed_and_forecast(tmp_path):
    report = followed(tmp_path, 0, 1, 2)
    result = report.result
    rounds = result["rounds"]
    assert rounds["names"] == ["r0", "r1", "r2"]
    assert rounds["values"] == pytest.approx([count / 30 for count in RIGHT[:3]])
    for line, judge in zip(rounds["table"], rounds["names"], strict=True):
        assert {name: line[name] for name in ACCURACIES}.items() <= result["judges"][judge].items()
    assert rounds["table"][0]["change"] is None
    change = rounds["table"][1]["change"]["triple_accuracy"]
    assert change["value"] == pytest.approx(3 / 30)
    # paired: the three cases are gained in every resample that has them, and none is ever lost
    assert 0 <= change["low"] < change["value"] < change["high"] < 0.25
    assert rounds["forecast"] == forecast(rounds["values"])
    assert f"its limit is {100 * rounds['forecast']['a']:.2f} %." in report.text
    assert "three rounds fit exactly" in report.text


def test_rounds_that_do_not_rise_and_too_few_rounds_have_no_forecast(tmp_path):
    report = followed(tmp_path, 2, 1, 0)
    assert report.result["rounds"]["values"] == pytest.approx([17 / 30, 15 / 30, 12 / 30])
    assert "No curve of triple accuracy: the measured rounds do not rise" in report.text
    report = followed(tmp_path, 0, 1)
    assert report.result["rounds"]["forecast"] == {"reason": "too few rounds for a forecast"}
    assert "too few rounds for a forecast" in report.text


def test_five_rounds_have_intervals(tmp_path):
    report = followed(tmp_path, *range(5))
    following = report.result["rounds"]["forecast"]["next"]
    assert [each["round"] for each in following] == [5, 6, 7, 8]
    assert all(each["low"] < each["value"] < each["high"] for each in following)
    assert "Fitted by least squares, residual standard error 0." in report.text
    assert formatted(following[0], 2, 100) in report.text


def test_a_criterion_of_a_pairwise_judge_can_be_a_round(tmp_path):
    file = write(tmp_path / "pairs.jsonl", pairwise_verdicts())
    names = "p<b>0: correctness,p<b>1: correctness"
    verdicts = (f"p<b>0={file}", f"p<b>1={file}")
    report = made(tmp_path, verdicts, ratings=RATINGS, rounds=names)
    assert report.result["rounds"]["values"] == [1.0, 1.0]
    assert "<b>" not in report.page
