"""`automedeval report` --main_judge and --rounds: the paper's Table 2, beside scipy and plain loops for every run, and rounds.

The judges are verdict files made here: some asked three times, one trained three times, one that lacks verdicts, one of pairs.
"""

import html
import json
import random
import re
import shutil
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from doubles.agreement_by_loops import Loops, Row, correlations
from doubles.agreement_study import (
    CASES,
    FAST,
    RATINGS,
    case_of,
    meta_evaluate,
    pair_verdict,
    pairwise_verdicts,
    rating,
    read,
    right_verdicts,
    write,
)
from programs import error_line, succeeded
from statsmodels.stats.multitest import multipletests
from tables import rows_of

from automedeval.records.text import span as formatted
from automedeval.stats.growth_curve import Curve

ROWS = rows_of(__file__)

MODELS = ("ash", "birch", "cedar", "date")
NOISE = {"gpt": 0.8, "ours": 0.4, "ours-run2": 0.5, "ours-run3": 0.6, "base": 2.0, "lazy": 0.5}
RUNS = {"gpt": 3, "base": 3, "lazy": 2}  # the others were asked once
COLUMNS = [
    "bert_score",
    "bart_score",
    "spearman",
    "pearson",
    "pairwise_accuracy",
    "triple_accuracy",
]


def a_verdict(case: dict, judge: str, run: int = 0, **more: Any) -> dict:
    fields = {
        "case_id": case["id"],
        "judge": judge,
        "rubric": "automedeval@1",
        "run": run,
        "valid": True,
    }
    none = dict.fromkeys(("pair", "choices", "scores", "expected_scores", "error"))
    return fields | none | {"order": [0, 1, 2, 3]} | more


def verdicts_of(judge: str, cases: list[dict], truth: dict) -> Iterator[dict]:
    """Yield the judge's verdicts: the truth with noise; some invalid, and some of `lazy` missing in its second run."""
    rng = random.Random(judge)
    for run in range(RUNS.get(judge, 1)):
        for number, case in enumerate(cases):
            if judge == "lazy" and run == 1 and number < 6:
                continue
            if rng.random() < 0.08:
                yield a_verdict(case, judge, run, valid=False, error="no score line")
                continue
            noisy = [truth[case["id"], model] + rng.gauss(0, NOISE[judge]) for model in MODELS]
            scores = [min(5, max(1, round(value))) for value in noisy]
            text = " ".join(rng.sample(["rest", "water", "salt", "heat", "cold", "sleep"], 3))
            yield a_verdict(case, judge, run, scores=scores, rationale=text)


def pairs_of(cases: list[dict], truth: dict) -> Iterator[dict]:
    for case in cases:
        for first, second in combinations(range(4), 2):
            pair = [MODELS[first], MODELS[second]]
            better = max(pair, key=lambda model: truth[case["id"], model])
            yield a_verdict(case, "pairs") | pair_verdict(
                case, first, second, "pairs", correctness=better
            )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with cases, ratings and the verdicts of all judges in one file."""
    folder, rng = tmp_path_factory.mktemp("study"), random.Random(0)
    cases = [
        case_of(f"c{n}", "Why?", {model: f"{model} {n}" for model in MODELS}) for n in range(60)
    ]
    truth = {(case["id"], model): rng.uniform(1, 5) for case in cases for model in MODELS}
    ratings = []
    for (case, model), value in truth.items():
        for who, criterion in product(("r0", "r1", "r2"), ("accuracy", "style")):
            score = min(5, max(1, round(value + rng.gauss(0, 0.5))))
            ratings.append(rating(case, model, score, who, criterion))
    verdicts = [each for judge in NOISE for each in verdicts_of(judge, cases, truth)]
    verdicts += pairs_of(cases, truth)
    for name, lines in (("cases", cases), ("ratings", ratings), ("verdicts", verdicts)):
        write(folder / f"{name}.jsonl", lines)
    return folder


def overlap(predictions: list[str], references: list[list[str]], **settings: Any) -> dict[str, Any]:
    """Stand in for the metric: the share of words in common, and minus the number of letters of what is not."""
    alike, apart = [], []
    for text, others in zip(predictions, references):
        words = [(set(text.split()), set(other.split())) for other in others]
        alike.append(max(len(left & right) / len(left | right) for left, right in words))
        apart.append(max(-float(len("".join(left - right))) for left, right in words))
    return {"bert_score": {"f1": alike}, "bart_score": apart, "truncated": []}


def report(study: Path, out: Path, *more: object):
    """Run the recipe on the files of a study, with the double of the metric."""
    from automedeval.metrics.rationale_score import rationale_score

    args = (
        "--verdicts",
        study / "verdicts.jsonl",
        "--cases",
        study / "cases.jsonl",
        "--output",
        out,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rationale_score, "rationale_score", overlap)
        return meta_evaluate(*args, *FAST, *more)


def evaluate(study: Path, out: Path, *more: object) -> tuple[dict, str]:
    succeeded(report(study, out, "--ratings", study / "ratings.jsonl", *more))
    page = re.sub(r"\s+", " ", html.unescape((out / "report.html").read_text("utf-8")))
    return json.loads((out / "agreement.json").read_text("utf-8")), page


def part_of(study: Path, folder: Path, verdicts: list[dict]) -> Path:
    """Write a study with the same cases and ratings, and these verdicts; return its folder."""
    for name in ("cases", "ratings"):
        shutil.copy(study / f"{name}.jsonl", folder)
    write(folder / "verdicts.jsonl", verdicts)
    return folder


@pytest.fixture(scope="module")
def reported(study: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    more = ("--teacher_verdicts", "gpt", "--main_judge", "ours")
    return evaluate(study, tmp_path_factory.mktemp("out"), *more)


def loops_of(study: Path) -> Loops:
    return Loops(*(read(study / f"{name}.jsonl") for name in ("cases", "verdicts", "ratings")))


@pytest.fixture(scope="module")
def loops(study: Path) -> Loops:
    return loops_of(study)


def runs_of(loops: Loops, *judges: str) -> list[Row]:
    return [
        row.of_run(run)
        for judge in judges
        for row in loops.rows
        if row.name == judge
        for run in row.runs()
    ]


def figure(loops: Loops, run: Row, name: str, shared: set | None = None) -> float:
    """Return a figure of a run, a correlation over the responses `shared`."""
    figures = loops.measures(run)
    if shared is not None:
        figures = correlations(loops.points(run, {place: run.scores[place] for place in shared}))
    return figures[name].of(range(len(loops.cases)))


TRAININGS = {
    "gpt": ["gpt"],
    "ours": ["ours", "ours-run2", "ours-run3"],
    "base": ["base"],
    "lazy": ["lazy"],
}


def row_of(table: dict, judge: str) -> dict:
    return next(row for row in table["rows"] if row["judge"] == judge)


@pytest.mark.parametrize("judge", TRAININGS)
def test_every_cell_is_the_mean_over_runs_that_are_scored_apart(
    judge: str, reported: tuple, loops: Loops
) -> None:
    row = row_of(reported[0]["table2"], judge)
    assert row["names"] == TRAININGS[judge]
    for name in ("spearman", "pearson", "pairwise_accuracy", "triple_accuracy"):
        values = [figure(loops, run, name) for run in runs_of(loops, *TRAININGS[judge])]
        cell = row["cells"][name]
        assert cell["values"] == pytest.approx(values), name
        assert cell["mean"]["value"] == pytest.approx(fmean(values)), name
        assert cell["sd"] == pytest.approx(stdev(values)), name
        assert cell["mean"]["low"] < cell["mean"]["value"] < cell["mean"]["high"]
    assert (row["runs"], row["of"]) == {"ours": (3, "trainings"), "lazy": (2, "runs")}.get(
        judge, (3, "runs")
    )


@pytest.mark.parametrize("name", ["bert_score", "bart_score"])
def test_rationales_are_compared_run_by_run(name: str, reported: tuple, study: Path) -> None:
    table, verdicts = (
        reported[0]["table2"],
        [each for each in read(study / "verdicts.jsonl") if each["valid"]],
    )
    teacher: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict["judge"] == "gpt":
            teacher.setdefault(verdict["case_id"], []).append(verdict["rationale"])
    for judge, trainings in TRAININGS.items():
        cell = row_of(table, judge)["cells"][name]
        if judge == "gpt":
            assert (cell["mean"]["value"], cell["mean"]["reason"]) == (None, "the teacher itself")
            continue
        values = []
        for run in product(trainings, range(RUNS.get(judge, 1))):
            of_run = [
                v for v in verdicts if (v["judge"], v["run"]) == run and v["case_id"] in teacher
            ]
            scores = overlap(
                [v["rationale"] for v in of_run], [teacher[v["case_id"]] for v in of_run]
            )
            values.append(
                fmean(scores["bert_score"]["f1"] if name == "bert_score" else scores["bart_score"])
            )
        assert cell["values"] == pytest.approx(values)
        assert cell["sd"] == pytest.approx(stdev(values))


def test_differences_are_of_the_same_responses_and_cases(reported: tuple, loops: Loops) -> None:
    ours = runs_of(loops, *TRAININGS["ours"])
    for judge in ("gpt", "base", "lazy"):
        cells, runs = row_of(reported[0]["table2"], judge)["cells"], runs_of(loops, judge)
        shared = set.intersection(*(set(run.scores) for run in [*runs, *ours]))
        for name in ("spearman", "pearson"):
            mean, other_mean = (
                fmean(figure(loops, run, name, shared) for run in of) for of in (runs, ours)
            )
            assert cells[name]["difference"]["value"] == pytest.approx(mean - other_mean)
            assert cells[name]["difference"]["n"] == len(shared)
        # Missing is wrong: accuracies are of all pairs, for both.
        mean, other_mean = (
            fmean(figure(loops, run, "triple_accuracy") for run in of) for of in (runs, ours)
        )
        assert cells["triple_accuracy"]["difference"]["value"] == pytest.approx(mean - other_mean)


def test_p_values_are_adjusted_within_each_column(reported: tuple) -> None:
    table, seen = reported[0]["table2"], 0
    assert table["columns"] == COLUMNS
    for name in COLUMNS:
        cells = [row["cells"][name] for row in table["rows"] if row["judge"] != "ours"]
        tested = [cell for cell in cells if cell["p"] is not None]
        adjusted = multipletests([cell["p"] for cell in tested], method="holm")[1]
        assert [cell["p_adjusted"] for cell in tested] == pytest.approx(list(adjusted))
        for cell in tested:
            p = cell["p_adjusted"]
            assert cell["mark"] == (
                "*" if p < 0.001 else "†" if p < 0.01 else "§" if p < 0.05 else ""
            )
        assert all(cell["mark"] == "" for cell in cells if cell["p"] is None)
        seen += len(tested)
    assert seen > 12


def test_contrasts_are_paired_and_clusters_of_cases_are_resampled_whole(
    study: Path, tmp_path: Path
) -> None:
    """Each case stands there twice, in one cluster: intervals are those of the cases that stand there once."""
    twice, widths = tmp_path / "twice", []
    twice.mkdir()
    for name, key in (("cases", "id"), ("ratings", "case_id"), ("verdicts", "case_id")):
        lines = [line for line in read(study / f"{name}.jsonl") if line.get("judge") != "pairs"]
        copies = [line | {key: f"{line[key]}-{n}"} for line in lines for n in "ab"]
        write(twice / f"{name}.jsonl", copies)
    contrasts = ("--contrasts", "ours=base", "gpt=ours")
    for number, folder in enumerate((study, twice, twice)):
        if number == 2:
            cases = [case | {"cluster": case["id"][:-2]} for case in read(twice / "cases.jsonl")]
            write(twice / "cases.jsonl", cases)
        result, page = evaluate(folder, tmp_path / f"out{number}", *contrasts)
        compared = result["contrasts"]
        assert [(each["first"], each["second"]) for each in compared] == [
            ("ours", "base"),
            ("gpt", "ours"),
        ]
        for each in compared:
            sides = [
                result["judges"][each[side]]["concordance"]["value"] for side in ("first", "second")
            ]
            assert each["difference"]["value"] == pytest.approx(sides[0] - sides[1])
        adjusted = multipletests([each["p"] for each in compared], method="holm")[1]
        assert [each["p_adjusted"] for each in compared] == pytest.approx(list(adjusted))
        assert "ours and base order " in page
        widths.append(compared[0]["difference"]["high"] - compared[0]["difference"]["low"])
    assert widths[1] < 0.85 * widths[0]
    assert widths[2] == pytest.approx(widths[0], rel=0.1)
    assert "resampled are the 60 clusters of the 120 cases" in result["notes"]


@pytest.mark.parametrize(("more", "said"), ROWS["test_contrasts_of_no_judges_are_told_in_one_line"])
def test_contrasts_of_no_judges_are_told_in_one_line(
    study: Path, tmp_path: Path, more: list, said: str
) -> None:
    ratings = ("--ratings", study / "ratings.jsonl")
    assert said in error_line(report(study, tmp_path / "out", *ratings, *more))


def test_the_marks_of_ours_are_of_its_correlations(reported: tuple) -> None:
    cells = row_of(reported[0]["table2"], "ours")["cells"]
    for name in COLUMNS:
        assert "difference" not in cells[name]
        assert ("p" in cells[name]) == (name in ("spearman", "pearson"))
    assert cells["spearman"]["mark"] == "*"
    assert cells["spearman"]["p"] < 0.001


def test_choices_have_no_correlations_and_no_rationales_and_say_why(reported: tuple) -> None:
    result, page = reported
    cells = row_of(result["table2"], "pairs: correctness")["cells"]
    assert cells["spearman"]["mean"]["reason"] == "this judge gives choices, no scores"
    assert "no rationale" in cells["bert_score"]["mean"]["reason"]
    assert cells["spearman"]["difference"]["value"] is None
    assert cells["triple_accuracy"]["p"] is not None
    assert cells["triple_accuracy"]["sd"] is None
    assert (
        "N/A, this judge gives choices, no scores: pairs: correctness, Spearman, Pearson." in page
    )
    assert "N/A, the teacher itself: gpt, BERTScore (F1), BARTScore." in page


def test_a_run_that_lacks_verdicts_is_wrong_there_and_it_is_said(
    reported: tuple, study: Path
) -> None:
    result = reported[0]
    assert any(
        "lazy, run 1: no verdict on 6 of 60 cases, for example" in note for note in result["notes"]
    )
    values = row_of(result["table2"], "lazy")["cells"]["pairwise_accuracy"]["values"]
    assert values[1] < values[0]
    valid = sum(v["valid"] for v in read(study / "verdicts.jsonl") if v["judge"] == "lazy")
    assert row_of(result["table2"], "lazy")["valid"] == pytest.approx(valid / 120)
    assert result["judges"]["lazy"]["valid_rate"]["value"] == pytest.approx(valid / 120)


def test_runs_without_a_valid_verdict_count_and_judges_are_tested_on_the_same_pairs(
    study, tmp_path
) -> None:
    verdicts = [v for v in read(study / "verdicts.jsonl") if v["judge"] in ("base", "ours")]
    empty = {"valid": False, "scores": None, "rationale": None, "error": "no score line"}
    verdicts = [v | empty if (v["judge"], v["run"]) == ("base", 1) else v for v in verdicts]
    # A judge that was never asked about the last candidate, on purpose.
    verdicts += [
        v
        | {
            "judge": "narrow",
            "run": 0,
            "order": [0, 1, 2],
            "scores": v["scores"] and [*v["scores"][:3], None],
        }
        for v in verdicts
        if (v["judge"], v["run"]) == ("base", 0)
    ]
    result, page = evaluate(
        part_of(study, tmp_path, verdicts), tmp_path / "out", "--main_judge", "ours"
    )
    cells = row_of(result["table2"], "base")["cells"]
    assert cells["pairwise_accuracy"]["values"][1] == 0
    assert cells["pairwise_accuracy"]["mean"]["value"] == pytest.approx(
        fmean(cells["pairwise_accuracy"]["values"])
    )
    assert cells["spearman"]["values"][1] is None
    assert cells["spearman"]["mean"]["reason"] == cells["spearman"]["difference"][
        "reason"
    ].removeprefix("base: ")
    assert "N/A, run 1: no valid verdict: base, Spearman, Pearson." in page
    assert row_of(result["table2"], "ours")["cells"]["spearman"]["sd"] is None
    assert "<td>one run</td>" in page
    cell = row_of(result["table2"], "narrow")["cells"]["pairwise_accuracy"]
    loops = loops_of(tmp_path)
    narrow, ours = runs_of(loops, "narrow", "ours")
    ours.asked = narrow.asked
    first, second = (figure(loops, run, "pairwise_accuracy") for run in (narrow, ours))
    assert cell["mean"]["value"] == pytest.approx(first)
    assert cell["difference"]["value"] == pytest.approx(first - second)
    assert result["table2"]["columns"] == COLUMNS[2:]  # no teacher, no columns for rationales


def tables_of(page: str) -> list[list[list[tuple[str, str, str]]]]:
    """Return the lines of each table that has a caption, a line as (tag, scope, text) of its cells."""
    cell = re.compile(r'<(t[hd])(?: scope="(\w+)")?[^>]*>(.*?)</\1>')
    lines = [
        re.findall(r"<tr.*?</tr>", table)
        for table in re.findall(r"<table[^>]*> <caption>\S.*?</table>", page)
    ]
    return [
        [
            [
                (tag, scope, re.sub(r"<[a-z/][^>]*>", "", text))
                for tag, scope, text in cell.findall(line)
            ]
            for line in each
        ]
        for each in lines
    ]


def test_a_judge_by_likelihood_is_compared_by_its_expected_scores(
    study: Path, tmp_path: Path
) -> None:
    verdicts = [
        each for each in read(study / "verdicts.jsonl") if each["judge"] in ("ours", "base")
    ]
    for case in read(study / "cases.jsonl"):
        likely = {
            "rubric": "likelihood@1",
            "scores": None,
            "expected_scores": [-3.0, -2.0, -1.5, -4.0],
        }
        verdicts.append(a_verdict(case, "likely") | likely)
    result, _ = evaluate(
        part_of(study, tmp_path, verdicts), tmp_path / "out", "--main_judge", "ours"
    )
    loops = loops_of(tmp_path)
    (run,) = runs_of(loops, "likely")
    cells = row_of(result["table2"], "likely")["cells"]
    assert {name: cell["mean"]["value"] for name, cell in cells.items()} == pytest.approx(
        {name: figure(loops, run, name) for name in COLUMNS[2:]}
    )
    assert cells["spearman"]["p"] is not None
    summary = (tmp_path / "out" / "report.md").read_text("utf-8").splitlines()
    columns = "| evaluation model | runs | valid | Spearman | Pearson | Accuracy 2-tuple | Accuracy triple |"
    _, *lines, after = summary[summary.index(columns) + 1 :][:5]
    assert [line.split(" | ")[0] for line in lines] == ["| ours", "| base", "| likely"]
    means = [
        row_of(result["table2"], line.split(" | ")[0][2:])["cells"]["triple_accuracy"]["mean"]
        for line in lines
    ]
    shown = [line.split(" | ")[6].split()[0].rstrip("\\*†§") for line in lines]
    assert shown == [f"{100 * mean['value']:.2f}" for mean in means]
    assert not after


def test_the_table_can_be_read_without_seeing_it(reported: tuple) -> None:
    page = reported[1]
    section = page[page.index('<h2 id="table2">') : page.index("How this was made")]
    tables = tables_of(section)
    assert len(tables) == 2  # figures, differences
    for head, *lines in tables:
        assert {(tag, scope) for tag, scope, _ in head} == {("th", "col")}
        for line in lines:
            assert [(tag, scope) for tag, scope, _ in line] == [("th", "row")] + [("td", "")] * (
                len(head) - 1
            )
    shown, differences = (
        {line[0][2]: [text for *_, text in line] for line in table} for table in tables
    )
    assert list(shown) == [
        "evaluation model",
        "gpt",
        "ours (main)",
        "base",
        "lazy",
        "pairs: correctness",
    ]
    assert shown["gpt"][1:5] == [
        "3 runs",
        f"{100 * row_of(reported[0]['table2'], 'gpt')['valid']:.0f} %",
        "N/A",
        "N/A",
    ]
    cell = row_of(reported[0]["table2"], "base")["cells"]["triple_accuracy"]
    mean = cell["mean"]
    value, low, high, sd = (
        f"{100 * each:.2f}" for each in (mean["value"], mean["low"], mean["high"], cell["sd"])
    )
    assert shown["base"][-1] == f"{value} ± {sd}{cell['mark']} [{low}, {high}]"
    assert "ours (main)" not in differences
    gap, p = cell["difference"], cell["p_adjusted"]
    value, low, high = (f"{100 * gap[end]:.2f}" for end in ("value", "low", "high"))
    test = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    assert differences["base"][-1] == f"{value} [{low}, {high}], {test}"
    assert differences["gpt"][1] == "N/A"


def test_rounds_are_the_means_of_the_table_and_the_first_judge_is_the_main_one(
    study: Path, tmp_path: Path
) -> None:
    result, page = evaluate(study, tmp_path, "--rounds", "base,lazy,ours", "--encoder", "none")
    assert result["table2"]["ours"] == result["main_judge"]["name"] == "gpt"
    for line in result["rounds"]["table"]:
        cell = row_of(result["table2"], line["judge"])["cells"]["triple_accuracy"]
        assert line["triple_accuracy"] == cell["mean"]
        assert line["sd"]["triple_accuracy"] == cell["sd"] > 0
    assert "± between runs" in page


def test_the_main_judge_is_the_first_training_and_pairs_are_drawn_as_in_figure_4(
    reported: tuple,
) -> None:
    result, page = reported
    assert (result["main_judge"]["name"], result["similarity"]["teacher"]) == ("ours", "gpt")
    won, *others = (
        result["models"]["ours"]["pairs"][0][name]["value"] for name in ("win", "tie", "loss")
    )
    table = page.partition("Pairs of candidates by ours: ")[2]
    row = table.partition('<th scope="row">ash</th>')[2].partition("</tr>")[0]
    assert row.startswith(f"<td>birch</td><td>{won:.2f} [")
    assert [float(share) for share in re.findall(r"flex-grow: (\S+);", row)] == [won, *others]


@pytest.mark.parametrize(("more", "message"), ROWS["test_unknown_names_get_one_line"])
def test_unknown_names_get_one_line(
    more: list[str], message: str, study: Path, tmp_path: Path
) -> None:
    assert message in error_line(
        report(study, tmp_path / "out", "--ratings", study / "ratings.jsonl", *more)
    )
    assert not (tmp_path / "out").exists()


# So many of the 30 cases are right after rounds 0, 1, 2, …: the others have an invalid verdict, which is wrong.
RIGHT = (12, 15, 17, 18, 19)


def followed(
    folder: Path, *more: str, rounds=3, names="", verdicts=None, label="r"
) -> tuple[dict, str]:
    """Run the recipe on one file of verdicts per round, judges r0, r1, …; return agreement.json and the page."""
    verdicts = [right_verdicts(count) for count in RIGHT[:rounds]] if verdicts is None else verdicts
    files = [
        f"{label}{place}={write(folder / f'{place}.jsonl', each)}"
        for place, each in enumerate(verdicts)
    ]
    names = names or ",".join(f"r{place}" for place in range(len(verdicts)))
    options = (
        "--cases",
        CASES,
        "--ratings",
        RATINGS,
        "--output",
        folder / "out",
        *FAST,
        "--rounds",
        names,
        *more,
    )
    succeeded(meta_evaluate("--verdicts", *files, *options))
    page = re.sub(r"\s+", " ", (folder / "out" / "report.html").read_text("utf-8"))
    return json.loads((folder / "out" / "agreement.json").read_text("utf-8")), page


def test_three_rounds_are_followed_and_forecast(tmp_path):
    result, page = followed(tmp_path)
    rounds = result["rounds"]
    assert rounds["names"] == ["r0", "r1", "r2"]
    assert rounds["values"] == pytest.approx([count / 30 for count in RIGHT[:3]])
    for place, line in enumerate(rounds["table"]):
        assert line["triple_accuracy"] == result["judges"][f"r{place}"]["triple_accuracy"]
        assert line["pairwise_accuracy"] == result["judges"][f"r{place}"]["pairwise_accuracy"]
    assert rounds["table"][0]["change"] is None
    change = rounds["table"][1]["change"]["triple_accuracy"]
    assert change["value"] == pytest.approx(3 / 30)
    # paired: the three cases are gained in every resample that has them, and none is ever lost
    assert 0 <= change["low"] < change["value"] < change["high"] < 0.25
    forecast = rounds["forecast"]
    curve = Curve(forecast["a"], forecast["b"], forecast["c"])
    assert [curve.at(t) for t in range(3)] == pytest.approx(rounds["values"])
    assert forecast["round_of_small_rest"] == curve.round_of_small_rest()
    assert "three rounds fit exactly" in forecast["no_interval"]
    assert f"its limit is {100 * curve.a:.2f} %." in page
    assert "three rounds fit exactly" in page
    assert '<h2 id="rounds">Rounds</h2>' in page
    assert set(result["judges"]) >= {"r0", "r1", "r2", "longer text"}


def test_the_order_is_that_of_the_argument(tmp_path):
    result, page = followed(tmp_path, names="r2,r1,r0")
    assert result["rounds"]["values"] == pytest.approx([17 / 30, 15 / 30, 12 / 30])
    assert "do not rise" in result["rounds"]["forecast"]["reason"]
    assert "No curve of triple accuracy: the measured rounds do not rise" in page


def test_five_rounds_have_intervals(tmp_path):
    result, page = followed(tmp_path, rounds=5)
    forecast = result["rounds"]["forecast"]
    assert not forecast["exact"]
    assert forecast["residual_error"] > 0
    assert [each["round"] for each in forecast["next"]] == [5, 6, 7, 8]
    assert all(each["low"] < each["value"] < each["high"] for each in forecast["next"])
    assert re.search(
        r"Fitted by least squares, residual standard error 0\.\d\d points\. Intervals", page
    )
    assert formatted(forecast["next"][0], 2, 100) in page


def test_two_rounds_are_too_few_and_it_is_said(tmp_path):
    result, page = followed(tmp_path, rounds=2)
    assert result["rounds"]["forecast"] == {"reason": "too few rounds for a forecast"}
    assert "too few rounds for a forecast" in page


def test_a_criterion_of_a_pairwise_judge_can_be_a_round(tmp_path):
    names, verdicts = "p<b>0: correctness,p<b>1: correctness", [pairwise_verdicts()] * 2
    result, page = followed(tmp_path, names=names, verdicts=verdicts, label="p<b>")
    assert result["rounds"]["values"] == [1.0, 1.0]
    assert "<b>" not in page
