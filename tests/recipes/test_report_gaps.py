"""`automedeval report` where judges were asked for a part, names mislead, there is too little to tell, or input is bad."""

import json
import re

import numpy as np
import pingouin
import pytest
import yaml
from doubles.agreement_study import (
    CASES,
    FAST,
    RATINGS,
    agreeing_verdicts,
    case_of,
    evaluate,
    made,
    meta_evaluate,
    pair_verdict,
    pairwise_verdicts,
    people_means,
    rating,
    read,
    verdict,
    write,
)
from programs import error_line, flags, run_command, succeeded
from scipy.stats import ttest_1samp
from tables import rows_of

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.standings import rank


def named(prefix: str, models: dict[str, str] | None = None, count: int = 12) -> list[dict]:
    """Return cases of three responses called a, b, c (or as `models` says) that people like in this order."""
    answers = [
        {(models or {}).get(m, m).format(n=n): f"{m} {n}" for m in "abc"} for n in range(count)
    ]
    return [case_of(f"{prefix}{n}", "What helps?", answers[n]) for n in range(count)]


def liked(cases: list[dict]) -> list[dict]:
    return [
        rating(case["id"], r["model"], score)
        for case in cases
        for r, score in zip(case["responses"], (5, 3, 1))
    ]


def study(
    tmp_path, cases: list[dict], verdicts: list[dict], ratings: list[dict] | None = None
) -> dict:
    report = made(
        tmp_path, verdicts, cases=cases, **({} if ratings is None else {"ratings": ratings})
    )
    return report.result | {"said": report.told, "page": report.page}


def test_pairs_without_the_baseline_were_not_asked_and_are_not_wrong(tmp_path):
    cases = named("k")
    verdicts = [
        pair_verdict(case, 0, other, "P", correctness="a") for case in cases for other in (1, 2)
    ]
    result = study(tmp_path, cases, verdicts, liked(cases))
    judge = result["judges"]["P: correctness"]
    assert (judge["concordance"]["value"], judge["concordance"]["n"]) == (1.0, 24)
    assert judge["valid_rate"]["value"] == 1
    assert any("never asked to compare 12 of 36 pairs" in note for note in result["notes"])
    result = study(
        tmp_path, cases, verdicts[:-1], liked(cases)
    )  # one that was asked, and did not come
    judge = result["judges"]["P: correctness"]
    assert judge["concordance"]["value"] == pytest.approx(23 / 24)
    assert judge["valid_rate"]["value"] == pytest.approx(23 / 24)


def test_few_cases_decide_nothing(tmp_path):
    cases = named("k", count=3)
    result = study(tmp_path, cases, [verdict(case, [5, 3, 1]) for case in cases], liked(cases))
    assert (
        "No model clearly wins most pairs. a is first, but not clearly above b and c."
        in result["said"]
    )
    assert "Not known yet: few cases are rated." in result["said"]
    assert " is better than " not in result["said"]
    assert all(each["p"] is None or each["p"] > 0.05 for each in result["comparisons"])
    cases = named("k", count=20)
    result = study(tmp_path, cases, [verdict(case, [5, 3, 1]) for case in cases], liked(cases))
    assert (
        "Wins most pairs: a wins more pairs than each of the 2 other models." in result["said"]
    ), "20 are few"


@pytest.mark.parametrize(("count", "told"), [(20, False), (29, False), (30, True)])
def test_judges_are_set_against_baselines_where_enough_cases_are_rated(count, told, tmp_path):
    cases = named("k", count=count)
    verdicts = [verdict(case, [5, 3, 1], judge=judge) for judge in ("one", "two") for case in cases]
    result = study(tmp_path, cases, verdicts, liked(cases))
    assert ("Not known yet: few cases are rated." in result["said"]) != told
    for judge in ("one", "two"):
        best = result["judges"][judge]["best_baseline"]
        assert best["outcome"] == "better"
        assert (f"{judge} is better than every baseline." in result["said"]) == told


def test_a_judge_that_orders_nothing_is_not_said_to_order(tmp_path):
    cases = named("k", count=20)
    result = study(
        tmp_path,
        cases,
        [verdict(case, [3, 3, 3], expected_scores=None) for case in cases],
        liked(cases),
    )
    assert "echo orders 50 % of the pairs of responses as people do" in result["said"]
    assert "A tie counts as half; guessing gives 50 %." in result["said"]
    assert "the same" in result["judges"]["echo"]["spearman"]["reason"]
    rates = {
        model: record["win_rate"]["value"]
        for model, record in result["models"]["echo"]["models"].items()
    }
    assert rates == dict.fromkeys("abc", 0.5), "ties are comparisons"


def test_scores_are_read_as_choices_the_way_a_criterion_goes(tmp_path):
    means, choices = people_means(), []
    for case in read(CASES):
        first, second = (response["model"] for response in case["responses"][:2])
        gap = means[case["id"], first] - means[case["id"], second]
        better, worse = (first, second) if gap > 0 else (second, first)
        for criterion, choice in (("correctness", better), ("harmfulness", worse)):
            if abs(gap) >= 1:
                choices.append({"case_id": case["id"], "pair": [first, second], "annotator": "a", "criterion": criterion,
                                "choice": choice})  # fmt: skip
    result = evaluate(
        tmp_path, agreeing_verdicts(), "--ratings", write(tmp_path / "h.jsonl", choices)
    )
    for criterion in ("correctness", "harmfulness"):
        assert result["choices"]["echo"][criterion]["accuracy"]["value"] == 1


def test_runs_of_every_kind_of_judge_have_a_spread(tmp_path):
    pairs = [each | {"run": run} for run in (0, 1) for each in pairwise_verdicts()]
    lines = evaluate(tmp_path, pairs, "--ratings", RATINGS)["table2"]["rows"]
    right = {line["judge"]: line["cells"]["pairwise_accuracy"]["values"] for line in lines}
    names = ("pairs", "pairs: correctness", "pairs: harmfulness")
    assert right == {name: [1.0, 1.0] for name in names}
    silent = [each | {"run": run, "scores": None} for run in (0, 1) for each in agreeing_verdicts()]
    result = evaluate(tmp_path, silent, "--ratings", RATINGS)
    (line,) = result["table2"]["rows"]
    assert line["cells"]["pearson"]["values"] == [result["judges"]["echo"]["pearson"]["value"]] * 2
    assert result["judges"]["echo"]["concordance"]["value"] > 0.85


@pytest.mark.parametrize(
    ("shown", "scores", "said"), rows_of(__file__)["test_what_cannot_be_compared_is_said_first"]
)
def test_what_cannot_be_compared_is_said_first(tmp_path, shown, scores, said):
    cases = [case | {"responses": case["responses"][:shown]} for case in named("k")]
    result = study(tmp_path, cases, [verdict(case, scores, raw="I am not sure.") for case in cases])
    assert f"\n{said}\n" in result["said"]
    bold, dot, more = said.partition(". ")
    assert f'<p class="verdict">{bold}{dot.strip()}</p>' in result["page"]
    assert more in result["page"]
    for sign in ('href="#show=invalid"', "Next step: Read what the judge wrote"):
        assert (sign in result["page"] + result["said"]) == (scores is None)


@pytest.mark.parametrize(
    ("groups", "baseline", "said"),
    rows_of(__file__)["test_the_first_sentence_says_what_was_measured"],
)
def test_the_first_sentence_says_what_was_measured(tmp_path, groups, baseline, said):
    cases, verdicts = [], []
    for answers in [answers for count, answers in groups for _ in range(count)]:
        texts = {model: text for model, (text, _) in answers.items()}
        cases.append(case_of(f"k{len(cases)}", "What helps?", texts))
        scores = [score for _, score in answers.values()]
        verdicts.append(verdict(cases[-1], scores, expected_scores=None))
    report = made(tmp_path, verdicts, *flags(baseline=baseline) if baseline else (), cases=cases)
    assert report.said.startswith(f"{said} ")
    where = re.search(" in the .* of every model", said)
    assert f"Mean score{where[0] if where else ''}, 1 (worst) to 5" in report.page or not where


def test_many_models_beside_a_baseline_are_tested_together(tmp_path):
    """Of 15 equal models none is called lower; one that is lower in every case still is."""
    rng = np.random.default_rng(4)
    names = [f"m{number}" for number in range(16)]
    drawn = rng.integers(3, 6, (40, 16))
    drawn[:, 15] = 1 + (drawn[:, 0] > 4)
    cases = [case_of(f"k{n}", "What helps?", {name: name for name in names}) for n in range(40)]
    verdicts = [
        verdict(case, scores, expected_scores=None) for case, scores in zip(cases, drawn.tolist())
    ]
    report = made(tmp_path, verdicts, "--baseline", "m0", cases=cases)
    models = report.result["baseline"]["models"]
    p_values = [ttest_1samp(drawn[:, n] - drawn[:, 0], 0).pvalue for n in range(1, 16)]
    assert [models[name]["p"] for name in names[1:]] == pytest.approx(p_values)
    adjusted = pingouin.multicomp(p_values, method="holm")[1]
    assert [models[name]["p_adjusted"] for name in names[1:]] == pytest.approx(list(adjusted))
    assert min(p_values[:14]) < 0.05 < min(adjusted[:14])
    assert report.said.startswith("m15 scores lower than m0: ")
    assert " is not clearly different from m0 among 15 comparisons: " in report.said


def test_a_verdict_is_read_in_its_own_order_of_the_models(tmp_path):
    """Report and export give what they give of the same verdicts in the order of the cases."""
    cases = named("k")
    plain = [verdict(case, [5, 3, 1], models=["a", "b", "c"]) for case in cases]
    turned = [
        each
        | {"models": ["c", "a", "b"], "order": [1, 2, 0]}
        | {name: [each[name][2], *each[name][:2]] for name in ("scores", "expected_scores")}
        for each in plain
    ]
    tables = []
    for name, verdicts in (("plain", plain), ("turned", turned)):
        (tmp_path / name).mkdir()
        report = made(tmp_path / name, verdicts, cases=cases)
        files = {key: tmp_path / name / f"{key}.jsonl" for key in ("verdicts", "cases")}
        table = tmp_path / name / "table.csv"
        succeeded(run_command("export", "--to", "csv", *flags(**files, output=table)))
        tables.append((report.result["models"], table.read_text()))
    assert tables[0] == tables[1]
    assert tables[0][0]["echo"]["models"]["a"]["win_rate"]["value"] == 1


def test_a_judge_without_a_scale_is_compared_where_nobody_rated(tmp_path):
    cases = [case | {"responses": case["responses"][:2]} for case in named("k")]
    values = [[-2 - number / 100, -3.0] for number in range(len(cases))]
    verdicts = [
        verdict(case, None, rubric="likelihood@1", valid=True, error=None, expected_scores=each)
        for case, each in zip(cases, values)
    ]
    report = made(tmp_path, verdicts, "--baseline", "a", cases=cases)
    assert report.said.startswith("b scores lower than a. It is worse in 12 of 12 cases")
    assert "people's scale" not in report.page


@pytest.mark.parametrize(
    ("choices", "winner"),
    [
        ("correctness: a, helpfulness: b, harmfulness: a, reasoning: b, efficiency: b, bias: tie", "b"),
        ("correctness: tie, helpfulness: a, harmfulness: b, reasoning: tie, efficiency: b, bias: tie", "a"),
    ],
)  # fmt: skip
def test_a_judge_of_pairs_has_one_winner_in_the_run_and_in_the_report(tmp_path, choices, winner):
    cases = [case | {"responses": case["responses"][:2]} for case in named("k")]
    verdicts = [pair_verdict(case, 0, 1, "P", **yaml.safe_load(f"{{{choices}}}")) for case in cases]
    report = made(tmp_path, verdicts, cases=cases)
    assert report.said.startswith(f"{winner} wins more pairs than ")
    read_cases = Cases([Case.from_dict(case) for case in cases], "cases")
    records = [Verdict.from_dict(each) for each in verdicts]
    table, _ = rank(read_cases, records, read_rubric("medical_pairwise"), tmp_path)
    assert table[0]["model"] == winner
    assert table[0]["share of pairs won"]["value"] == 1


def test_names_cannot_steer_markdown_or_the_terminal(tmp_path):
    evil = "A\r## hi\x1b[31m https://x.test www.x.test &amp; ~~no~~ \ud800"
    cases = named("k", {"a": evil})
    result = study(
        tmp_path,
        cases,
        [verdict(case, [5, 3, 1], expected_scores=None) for case in cases],
        liked(cases),
    )
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert not re.search(r"[\r\x1b]|^## hi|https://x|www\.x|[^\\]~~", text, re.M)
    assert "\x1b" not in result["said"]


def test_with_a_baseline_the_first_sentence_has_the_paired_difference_and_its_interval(tmp_path):
    cases = [case | {"responses": case["responses"][:2]} for case in named("k")]
    rng = np.random.default_rng(0)
    drawn = rng.integers(1, 6, (len(cases), 2))
    verdicts = [
        verdict(case, scores, expected_scores=None) for case, scores in zip(cases, drawn.tolist())
    ]
    first, second = (each["model"] for each in cases[0]["responses"])
    told = made(tmp_path, verdicts, "--baseline", first, cases=cases).told
    gaps, (before, after) = drawn[:, 1] - drawn[:, 0], drawn.mean(axis=0)
    low, high = ttest_1samp(gaps, 0).confidence_interval(0.95)
    figures = f"mean {before:.2f} → {after:.2f} of 5 ({gaps.mean():+.2f}, 95 % interval {low:+.2f} to {high:+.2f})"
    assert f"{second} is not clearly different from {first}: {figures}. It is worse in" in told


@pytest.mark.parametrize("scores", [(3, 3), None])
def test_what_another_batch_moves_is_no_difference(scores: tuple | None, tmp_path) -> None:
    """The second version's answers are those of the first; in its batch every score is higher by 4e-6 to 9e-6."""
    cases = [case | {"responses": case["responses"][:2]} for case in named("k")]
    moved = np.random.default_rng(0).uniform(4e-6, 9e-6, len(cases))
    verdicts = [
        verdict(case, scores, valid=True, error=None, expected_scores=[level, level + more])
        for case, level, more in zip(cases, [3.0, 4.0] * 6, moved.tolist())
    ]
    report = made(tmp_path, verdicts, "--baseline", "a", cases=cases)
    found = report.result["baseline"]["models"]["b"]
    assert [found[way] for way in ("better", "worse", "equal")] == [0, 0, 12]
    assert found["difference"]["value"] == 0
    assert "b is not clearly different from a: mean" in report.told
    (pair,) = report.result["models"]["echo"]["pairs"]
    assert (pair["win"]["value"], pair["tie"]["value"]) == (0, 1)


def test_an_interval_of_two_cases_is_no_wider_than_the_scale(tmp_path):
    cases = [case | {"responses": case["responses"][:2]} for case in named("k")][:2]
    verdicts = [
        verdict(case, scores, expected_scores=None) for case, scores in zip(cases, [[1, 5], [3, 2]])
    ]
    first, second = (each["model"] for each in cases[0]["responses"])
    models = made(tmp_path, verdicts, "--baseline", first, cases=cases).result["baseline"]["models"]
    assert ttest_1samp([4, -1], 0).confidence_interval(0.95)[1] > 4
    assert (models[second]["difference"]["low"], models[second]["difference"]["high"]) == (-4, 4)


def test_a_judge_of_pairs_is_heard_on_the_pair_with_the_baseline(tmp_path):
    """a wins against b and loses to c: both are compared with a by their own pair, not by what a won in all."""
    cases = named("k")
    verdicts = [
        pair_verdict(case, 0, n, "P", correctness=won)
        for case in cases
        for n, won in ((1, "a"), (2, "c"))
    ]
    report = made(tmp_path, verdicts, "--baseline", "a", cases=cases)
    models = report.result["baseline"]["models"]
    assert [models[name][way] for name in "bc" for way in ("better", "worse")] == [0, 12, 12, 0]
    assert report.said.startswith(
        "b scores lower than a. It is worse in 12 of 12 cases and better in 0. c scores higher than a"
    )


def test_a_model_that_is_above_every_other_is_first_though_it_met_the_weak_one_less_often(tmp_path):
    """a is above b in 75 of 100 cases, and above c in 40 of 40; b, above c in 400 of 400, wins a larger share of its pairs."""
    met = [("ab", n % 4 > 0) for n in range(100)] + [("ac", True)] * 40 + [("bc", True)] * 400
    texts = [{name: f"{name} {n}" for name in names} for n, (names, _) in enumerate(met)]
    cases = [case_of(f"k{n}", "What helps?", answers) for n, answers in enumerate(texts)]
    verdicts = [verdict(case, [4, 2] if first else [2, 4]) for case, (_, first) in zip(cases, met)]
    report = made(tmp_path, verdicts, cases=cases)
    table = report.result["models"]["echo"]
    assert table["models"]["b"]["win_rate"]["value"] > table["models"]["a"]["win_rate"]["value"]
    assert report.said.startswith("a wins more pairs than each of the 2 other models.")


ROWS = rows_of(__file__)

CASE = read(CASES)[0]
GOOD = verdict(CASE, [1, 2, 3])
OWN = {name: [1, 2, 3] for name in ("relevancy", "knowledge_correctness", "fluency")}
SCORED = GOOD | {"rubric": "automedeval_guided@1"}
LINES = {"scores": GOOD, "criteria": SCORED, "pair": pairwise_verdicts()[0]}
HUGE = 10**400


def refused(tmp_path, verdicts, message, *more):
    """Check that the verdicts, lines or the text of a file, are refused in one line, and that nothing is written."""
    file = tmp_path / "verdicts.jsonl"
    file.write_text(verdicts) if isinstance(verdicts, str) else write(file, verdicts)
    done = meta_evaluate(
        "--verdicts", file, "--cases", CASES, "--output", tmp_path / "out", *FAST, *more
    )
    assert re.search(message, error_line(done))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("kind", "change", "message"), ROWS["test_bad_verdicts_get_one_line"])
def test_bad_verdicts_get_one_line(kind, change, message, tmp_path):
    if kind == "criteria":
        change = {
            "criterion_scores": {
                name: each for name, each in (OWN | change).items() if each is not None
            }
        }
    refused(tmp_path, [LINES[kind] | change], message)


SILENT = {
    "verdicts.jsonl:2: the verdict of echo on case .* is at .*:1 already": [GOOD, GOOD],
    "verdicts.jsonl:1: not JSON": "{",
    "no verdict on any case": "",
    "must be a number from": [GOOD | {"rubric": "own@1", "scores": [1, 2, HUGE]}],
}


@pytest.mark.parametrize("message", SILENT)
def test_files_of_verdicts_that_say_nothing_get_one_line(message, tmp_path):
    refused(tmp_path, SILENT[message], message)


RATINGS_THAT_FAIL = [*ROWS["test_bad_ratings_get_one_line"], ({"score": HUGE}, "a number from")]


@pytest.mark.parametrize(("change", "message"), RATINGS_THAT_FAIL)
def test_bad_ratings_get_one_line(change, message, tmp_path):
    first = read(RATINGS)[0]
    ratings = write(tmp_path / "ratings.jsonl", [first | change] if change else [first, first])
    refused(tmp_path, [GOOD], message, "--ratings", ratings)


@pytest.mark.parametrize(("more", "message"), ROWS["test_bad_arguments_get_one_line"])
def test_bad_arguments_get_one_line(more, message, tmp_path):
    words = [str(RATINGS) if word == "RATINGS" else word for word in more]
    refused(tmp_path, agreeing_verdicts(), message, *words)


def test_a_folder_in_the_way_gets_one_line(tmp_path):
    file = write(tmp_path / "v.jsonl", [GOOD])
    (tmp_path / "out").write_text("in the way")
    assert "out" in error_line(
        meta_evaluate(*flags(verdicts=file, cases=CASES, output=tmp_path / "out"), *FAST)
    )


@pytest.mark.parametrize("name", ["random", "people", "longer text", "physicians"])
def test_names_of_the_table_itself_are_taken(name, tmp_path):
    refused(tmp_path, agreeing_verdicts(name), f"a judge cannot be called {name!r}")


def test_an_equals_sign_may_be_in_the_path_and_in_the_name_of_a_judge(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    file = write(folder / "verdicts.jsonl", agreeing_verdicts())
    names = {
        file: "echo",
        folder: "echo",
        f"A judge={file}": "A judge",
        f"lr=0.1={folder}": "lr=0.1",
    }
    for argument, name in names.items():
        options = (
            *flags(cases=CASES, verdicts=argument, ratings=RATINGS, output=tmp_path / "report"),
            *FAST,
        )
        succeeded(meta_evaluate(*options))
        assert (
            next(iter(json.loads((tmp_path / "report" / "agreement.json").read_text())["judges"]))
            == name
        )
    assert "two judges are called 'echo'" in error_line(
        meta_evaluate(*options, "--verdicts", file, folder)
    )
