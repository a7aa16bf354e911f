"""`automedeval report` where judges were asked for a part, cases hang together, names mislead, or input is little or bad."""

import json
import re
from itertools import product

import numpy as np
import pingouin
import pytest
from doubles.agreement_study import (
    CASES,
    RATINGS,
    Report,
    agreeing_verdicts,
    asked,
    case_of,
    made,
    opened,
    pair_verdict,
    pairwise_verdicts,
    rating,
    read,
    verdict,
    write,
)
from doubles.criteria_study import label_of, verdict_by
from doubles.own_rubric import own_rubric
from programs import error_line, failed
from scipy.stats import ttest_1samp
from tables import each_row, rows_of

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.agreement.baselines import ABOVE_OTHERS
from automedeval.meta_evaluation.standings import rank
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.records.types import without_none

ROWS = rows_of(__file__)


def named(models: str | list[str] = "abc", count: int = 12) -> list[dict]:
    """Return cases with a response of each model."""
    cases = []
    for number in range(count):
        texts = {model: f"{model} {number}" for model in models}
        cases.append(case_of(f"k{number}", "What helps?", texts))
    return cases


def liked(cases: list[dict]) -> list[dict]:
    """Return ratings by which people like the three responses of each case in their order."""
    ratings = []
    for case in cases:
        for response, score in zip(case["responses"], (5, 3, 1)):
            ratings.append(rating(case["id"], response["model"], score))
    return ratings


def choices_of_a(cases: list[dict]) -> list[dict]:
    """Return a judge's choices of a, in the pairs ab and ac of each case alone."""
    pairs = product(cases, (1, 2))
    return [pair_verdict(case, 0, second, "P", correctness="a") for case, second in pairs]


def alike(cases: list[dict], scores: list, **more) -> list[dict]:
    """Return a verdict with these scores on each case."""
    return [verdict(case, scores, **more) for case in cases]


def test_pairs_without_the_baseline_were_not_asked_and_are_not_wrong(tmp_path):
    cases = named()
    verdicts = choices_of_a(cases)
    ratings = liked(cases)
    result = made(tmp_path, verdicts, cases=cases, ratings=ratings).result
    judge = result["judges"]["P: correctness"]
    assert judge["concordance"]["value"] == 1.0
    assert judge["concordance"]["n"] == 24
    assert judge["valid_rate"]["value"] == 1
    assert "never asked to compare 12 of 36 pairs" in "\n".join(result["notes"])


@each_row("count, enough")
def test_judges_are_set_against_baselines_where_enough_cases_are_rated(count, enough, tmp_path):
    cases = named(count=count + 1)
    verdicts = []
    for judge in ("one", "two"):
        verdicts += alike(cases, [5, 3, 1], judge=judge)
    ratings = liked(cases)[:-2]  # of the last case one answer is rated
    report = made(tmp_path, verdicts, cases=cases, ratings=ratings)
    assert "Wins most pairs: a wins more pairs than each of the 2 other models." in report.told
    assert ("Not known yet: few rated cases count." in report.told) != enough
    so_far = "so far 29 count of 30; in the others people order no two judged answers."
    assert (so_far in report.told) != enough
    judges = report.result["judges"]
    for judge in ("one", "two"):
        assert judges[judge]["best_baseline"]["outcome"] == ABOVE_OTHERS
        assert (f"{judge} is {ABOVE_OTHERS}." in report.told) == enough


def test_a_judge_that_orders_answers_the_other_way_round_is_said_to(tmp_path):
    cases = named()
    verdicts = alike(cases, [1, 3, 5])
    report = made(tmp_path, verdicts, cases=cases, ratings=liked(cases))
    said = "believed: echo orders answers the other way round than people, in 36 pairs."
    assert said in report.told
    few = [*alike(cases[:4], [5, 3, 1]), *alike(cases[4:], None)]
    report_of_few = made(tmp_path, few, cases=cases, ratings=liked(cases))
    assert "believed: Not known: most pairs have no score." in report_of_few.told
    assert "Equal scores count as half, no score as wrong;" in report_of_few.page
    sides = report.result["judges"]["echo"]["by_confidence"]
    assert sides["surest"]["reason"].endswith("on this side of the median gap")
    lacking = asked(tmp_path, verdicts[6:], cases=cases, ratings=liked(cases[:6]))
    failed(lacking, "no rated case has a verdict of echo")
    of_model = {"a": "accuracy", "b": "safety", "c": "relevance"}
    apart = [each | {"criterion": of_model[each["model"]]} for each in liked(cases)]
    report = made(tmp_path, verdicts, cases=cases, ratings=apart)
    notes = "\n".join(report.result["notes"])
    assert "12 of 12 cases have no criterion that all rated answers have" in notes


def test_runs_of_every_kind_of_judge_have_a_spread(tmp_path):
    pairs = []
    for run in (0, 1):
        pairs += [each | {"run": run} for each in pairwise_verdicts()]
    result = made(tmp_path, pairs, ratings=RATINGS).result
    *_, line = result["table2"]["rows"]
    assert len(result["table2"]["rows"]) == 3
    assert {*line["cells"]["pairwise_accuracy"]["values"]} == {1.0}
    silent = []
    for run in (0, 1):
        silent += [each | {"run": run, "scores": None} for each in agreeing_verdicts()]
    result = made(tmp_path, silent, ratings=RATINGS).result
    (line,) = result["table2"]["rows"]
    judge = result["judges"]["echo"]
    correlation = judge["pearson"]["value"]
    assert line["cells"]["pearson"]["values"] == [correlation, correlation]


@each_row("models, scores, said")
def test_what_cannot_be_compared_is_said_first(tmp_path, models, scores, said):
    cases = named(models)
    verdicts = alike(cases, scores, raw="I am not sure.")
    report = made(tmp_path, verdicts, cases=cases)
    told = report.told
    invalid = scores is None
    assert f"\n{said}\n" in told
    assert ('href="#show=invalid"' in report.page) == invalid
    assert ("Next step: Read what the judge wrote" in told) == invalid


@each_row("groups, baseline, said")
def test_the_first_sentence_says_what_was_measured(tmp_path, groups, baseline, said):
    cases = []
    verdicts = []
    for count, answers, *again in groups:
        texts = {model: text for model, (text, _) in answers.items()}
        scores = [score for _, score in answers.values()]
        for _ in range(count):
            case = case_of(f"k{len(cases)}", "What helps?", texts)
            cases.append(case)
            # it reads English
            verdicts.append(verdict(case, scores, expected_scores=None, blind_to=["dose"]))
            verdicts += [verdict(case, each, expected_scores=None, run=1) for each in again]
    report = made(tmp_path, verdicts, cases=cases, baseline=baseline)
    assert report.said.startswith(f"{said} ")


def test_many_models_beside_a_baseline_are_tested_together(tmp_path):
    """Of 15 equal models none is called lower; one that is lower in every case still is."""
    names = [f"m{number}" for number in range(16)]
    drawn = np.random.default_rng(4).integers(3, 6, (40, 16))
    first = drawn[:, 0]
    drawn[:, 15] = 1 + (first > 4)
    cases = named(names, 40)
    verdicts = []
    for case, scores in zip(cases, drawn.tolist()):
        verdicts.append(verdict(case, scores, expected_scores=None))
    report = made(tmp_path, verdicts, cases=cases, baseline="m0")
    models = report.result["baseline"]["models"]
    gaps = drawn[:, 1:] - first[:, None]
    p_values = ttest_1samp(gaps, 0).pvalue
    _, adjusted = pingouin.multicomp(p_values, method="holm")
    for name, p, p_adjusted in zip(names[1:], p_values, adjusted, strict=True):
        assert models[name]["p"] == pytest.approx(p)
        assert models[name]["p_adjusted"] == pytest.approx(p_adjusted)
    assert p_values[:14].min() < 0.05 < adjusted[:14].min()


def test_an_empty_answer_is_the_lowest_where_its_verdict_counts(tmp_path):
    cases = [case_of(name, "What helps?", {"a": "Rest.", "b": ""}) for name in "xyz"]
    report = made(tmp_path, [verdict(cases[0], None), *alike(cases[1:], [4, 1])], cases=cases)
    assert "b gave no answer in 3 cases, which a valid verdict counts as the lowest." in report.told
    assert "| verdicts with a score or choice, % |" in report.told


def test_a_verdict_is_read_in_its_own_order_of_the_models(tmp_path):
    cases = named()
    tables = []
    for fields in ROWS["the same scores in two orders"]:
        verdicts = alike(cases, **fields)
        result = made(tmp_path, verdicts, cases=cases).result
        tables.append(result["models"])
    plain, turned = tables
    assert plain == turned
    assert plain["echo"]["models"]["a"]["win_rate"]["value"] == 1


def test_a_judge_without_a_scale_is_compared_where_nobody_rated(tmp_path):
    cases = named("ab")
    verdicts = alike(cases, None, rubric="likelihood@1", valid=True, error=None)
    for number, each in enumerate(verdicts):
        each["expected_scores"] = [-2 - number / 100, -3.0]
    report = made(tmp_path, verdicts, cases=cases, baseline="a")
    assert report.said.startswith("b scores lower than a. It is worse in 12 of 12 cases")


@each_row("choices, winner")
def test_a_judge_of_pairs_has_one_winner_in_the_run_and_in_the_report(tmp_path, choices, winner):
    cases = named("ab")
    verdicts = [pair_verdict(case, 0, 1, "P", **choices) for case in cases]
    report = made(tmp_path, verdicts, cases=cases)
    assert report.said.startswith(f"{winner} wins more pairs than ")
    case_records = [Case.from_dict(case) for case in cases]
    records = [Verdict.from_dict(each) for each in verdicts]
    rubric = read_rubric("medical_pairwise")
    rows, _ = rank(Cases(case_records, "cases"), records, rubric, tmp_path)
    first = rows[0]
    assert first["model"] == winner
    assert first["share of pairs won"]["value"] == 1


def test_names_cannot_steer_markdown_or_the_terminal(tmp_path):
    evil = "A\r## hi\x1b[31m https://x.test www.x.test &amp; ~~no~~ \ud800"
    cases = named([evil, "b", "c"])
    verdicts = alike(cases, [5, 3, 1], expected_scores=None)
    report = made(tmp_path, verdicts, cases=cases, ratings=liked(cases))
    text = (report.folder / "report.md").read_text(encoding="utf-8")
    assert not re.search(r"(?m)[\r\x1b]|^## hi|https://x|www\.x|[^\\]~~", text)
    assert "\x1b" not in report.said


def beside_a(result: dict) -> dict:
    """Return the figures of b beside the baseline."""
    return result["baseline"]["models"]["b"]


def counts_of(figures: dict) -> list[int]:
    """Return in how many cases a model is better than the baseline, worse, and equal."""
    return [figures[way] for way in ("better", "worse", "equal")]


@each_row("scores")
def test_what_another_batch_moves_is_no_difference(scores, tmp_path):
    """The second version's answers are those of the first; in its batch every score is higher by 4e-6 to 9e-6."""
    cases = named("ab")
    verdicts = alike(cases, scores, valid=True, error=None)
    moved = np.random.default_rng(0).uniform(4e-6, 9e-6, len(cases)).tolist()
    for number, (each, more) in enumerate(zip(verdicts, moved)):
        score = 3 + number % 2
        each["expected_scores"] = [score, score + more]
    report = made(tmp_path, verdicts, cases=cases, baseline="a")
    found = beside_a(report.result)
    assert counts_of(found) == [0, 0, 12]
    assert found["difference"]["value"] == 0
    assert "b is not clearly different from a: mean" in report.told
    assert "a and b are level: more cases would hardly tell their pairs won apart." in report.told
    (pair,) = report.result["models"]["echo"]["pairs"]
    assert [pair[name]["value"] for name in ("win", "tie")] == [0, 1]


@each_row("kind, gaps, counts, share")
def test_expected_scores_close_to_each_other_are_equal_and_whole_ones_never(
    tmp_path, kind, gaps, counts, share
):
    """`gaps` are of b less a, `counts` the cases in which b is better, worse and equal, `share` the pairs that a wins."""
    cases = named("ab", len(gaps))
    verdicts = alike(cases, None, valid=True, error=None)
    for each, gap in zip(verdicts, gaps):
        each[kind] = [3, 3 + gap]
    report = made(tmp_path, verdicts, cases=cases, baseline="a")
    result = report.result
    assert counts_of(beside_a(result)) == counts
    is_level = re.match("b is not clearly different from a: .* It is equal in all", report.said)
    assert (is_level is None) == (counts[2] < len(gaps))
    models = result["models"]["echo"]["models"]
    assert models["a"]["win_rate"]["value"] == pytest.approx(share)
    said = "scores at most 0.25 apart are equal."
    assert report.page.count(said) == (kind == "expected_scores")


@each_row("maximum, said")
def test_a_large_drop_is_half_of_a_short_scale(tmp_path, maximum, said):
    """Of a scale from 0; the answers of b are lower by 0.25, 1 and 2 points, as far as it reaches."""
    rubric = own_rubric(tmp_path / "own", "", scale={"minimum": 0, "maximum": maximum})
    cases = named("ab", 3)
    verdicts = alike(cases, None, rubric="own@1", valid=True, error=None)
    for each, drop in zip(verdicts, (0.25, 1, 2)):
        lower = max(0, maximum - drop)
        each["expected_scores"] = [maximum, lower]
    report = made(tmp_path, verdicts, cases=cases, baseline="a", rubric=rubric)
    assert f"Read first: b is lower by {said}." in report.told
    assert f" --rubric {rubric} --output audits/mine" in report.told


def test_peoples_means_are_over_the_cases_in_which_they_rated_every_model(tmp_path):
    cases = named("ab", 4)
    ratings = [rating(case["id"], "b", 1) for case in cases[1:]]
    ratings += [rating(cases[0]["id"], "a", 3), rating(cases[0]["id"], "b", 4)]
    text = made(tmp_path, alike(cases, (3, 3)), cases=cases, ratings=ratings).text
    assert re.findall("by people ([0-9.]+) in 1 case", text) == ["3.00", "4.00"]


@each_row("scores, last, said")
def test_a_persons_worst_rating_is_read_first_where_it_is_on_the_judges_scale(
    scores, last, said, tmp_path
):
    """`scores` are those of criteria, of the answers a and b, in each case but the first; `last` is the last rating.

    The judge lacks the last two cases: the means of the bars are over those that it has, and
    nobody is to rate them next.
    """
    cases = named("ab", 8)
    ratings = []
    for case in cases[1:7]:
        for criterion, of_models in scores.items():
            for model, score in zip("ab", of_models):
                ratings.append(rating(case["id"], model, score, criterion=criterion))
    ratings[-1]["score"] = last
    report = made(tmp_path, alike(cases[:6], (3, 3)), cases=cases, ratings=ratings)
    assert ("has the worst rating by a person on a criterion" in report.told) is bool(said)
    assert said in report.told
    assert "Next step: Rate 1 unrated case. Audit" in report.told
    (grid,) = opened(report.page, "rows")
    assert json.dumps(grid).count('"worst"') == sum(map(int, re.findall("[0-9]+", said)))
    assert ('href="#show=worst"' in report.page) is bool(said)
    given = [each["score"] for each in ratings]
    off = "not surely on the judge's scale: no worst rating is named"
    alone = report.result["few_ratings"]["judges"]["echo"]["a"]["mean"]["naive"]["value"]
    # All ratings are 1 if the last one is.
    assert (alone is None) == (off in report.told) == (min(given) < 1 or last == 1)
    assert "Mean score in the 6 of 8 cases with a score of every model, 1 (worst)" in report.text
    assert f"People's scores are from {min(given)} to {max(given)}. Lines" in report.text
    for mean in np.mean(list(scores.values()), axis=0):
        assert f"by people {mean:.2f} in 5 cases" in report.text
    assert ("People's means hold ratings off" in report.said) is (last == 50)
    assert "are equal (but not beside ratings of people)." in report.text


def test_a_judge_of_pairs_is_heard_on_the_pair_with_the_baseline(tmp_path):
    """a wins against b and loses to c: both are compared with a by their own pair, not by what a won in all.

    An invalid verdict on b and c leaves neither without a choice.
    """
    cases = named()
    verdicts = []
    for case, (second, winner) in product(cases, enumerate("ac", 1)):
        verdicts.append(pair_verdict(case, 0, second, "P", correctness=winner))
    verdicts += alike(cases, None, **ROWS["an invalid verdict on b and c"])
    said = made(tmp_path, verdicts, cases=cases, baseline="a").said
    lower = "b wins fewer cases than a. It is worse in 12 of 12 cases and better in 0."
    assert said.startswith(f"{lower} c wins more cases than a")


def test_a_model_that_is_above_every_other_is_first_though_it_met_the_weak_one_less_often(tmp_path):
    """a is above b in 75 of 100 cases, and above c in 40 of 40; b, above c in 400 of 400, wins a larger share of its pairs."""
    cases = []
    verdicts = []
    for models, scores, count in ROWS["pairs of models that met"]:
        for _ in range(count):
            texts = {model: f"{model} {len(cases)}" for model in models}
            case = case_of(f"k{len(cases)}", "What helps?", texts)
            cases.append(case)
            verdicts.append(verdict(case, scores))
    report = made(tmp_path, verdicts, cases=cases)
    figures = report.result["models"]["echo"]["models"]
    assert figures["b"]["win_rate"]["value"] > figures["a"]["win_rate"]["value"]
    assert report.said.startswith("a wins more pairs than each of the 2 other models.")


GAPS = [2, 1, 1, 0, -1, 2, 1, 0]  # of b, less a


def test_cases_of_one_cluster_count_once_beside_a_baseline(tmp_path):
    cases = named("ab", len(GAPS))
    verdicts = []
    for number, (case, gap) in enumerate(zip(cases, GAPS)):
        case["cluster"] = f"c{number // 4}"
        verdicts.append(verdict(case, [3, 3 + gap], expected_scores=None))
    result = made(tmp_path, verdicts, cases=cases, baseline="a").result
    beside = beside_a(result)
    means = np.reshape(GAPS, (2, 4)).mean(axis=1)
    assert beside["difference"]["value"] == pytest.approx(np.mean(GAPS))
    assert beside["p"] == pytest.approx(ttest_1samp(means, 0).pvalue)
    assert result["settings"]["units"] == "2 clusters of cases"
    for case, blank in zip(cases, [None, ""] * 4):
        case["cluster"] = blank
    alone = made(tmp_path, verdicts, cases=cases, baseline="a").result
    assert beside_a(alone)["p"] == pytest.approx(ttest_1samp(GAPS, 0).pvalue)
    for case, judged in zip(cases, verdicts):
        case["cluster"] = "c"
        judged["scores"] = [3, 4]
    report = made(tmp_path, verdicts, cases=cases, baseline="a")
    assert beside_a(report.result)["p"] == 1.0, "what all cases of one cluster say is said once"
    assert report.said.startswith("b is not clearly different from a")


def chosen(case: dict, pair: str, criterion: str, choice: str) -> dict:
    """Return a person's choice between two models, of one letter each; the person is called as the pair."""
    about = {"case_id": case["id"], "pair": [*pair], "annotator": pair}
    return about | {"criterion": criterion, "choice": choice}


def shares_of(report: Report, judge: str) -> dict:
    """Return criterion → share of the pairs in which a judge chooses as people."""
    choices = report.result["choices"][judge]
    return {name: each["accuracy"]["value"] for name, each in choices.items()}


def test_a_choice_about_pairs_that_were_not_asked_about_is_no_error(tmp_path):
    cases = named(count=6)
    verdicts = choices_of_a(cases)
    pairs = product(cases, ("ab", "ac", "bc", "cb"))  # people disagree on b and c
    choices = [chosen(case, pair, "correctness", pair[0]) for case, pair in pairs]
    result = made(tmp_path, verdicts, cases=cases, ratings=choices).result
    found = result["choices"]["P"]["correctness"]
    assert found["accuracy"]["value"] == 1.0
    assert found["pairs"] == 12
    assert found["without_majority"] == 0


def test_scores_are_not_compared_with_choices_whose_way_nobody_says(tmp_path):
    cases = named(count=6)
    said = (("harm", "b"), ("harmfulness", "b"), ("accuracy", "a"))
    choices = [chosen(case, "ab", *each) for case, each in product(cases, said)]
    verdicts = alike(cases, [5, 2, 2])
    report = made(tmp_path, verdicts, cases=cases, ratings=choices)
    assert "echo makes the choice of most people in 100 % of 6 pairs on " in report.told
    assert report.result["next_steps"][0].startswith("Audit the judge")
    # The polarity of harmfulness is that of a packaged rubric.
    assert shares_of(report, "echo") == {"harmfulness": 1, "accuracy": 1}
    assert "6 choices on harm left out: no judge has this criterion" in report.told
    assert "By choices of people: a is better than b." in report.said


def test_choices_are_compared_with_a_judge_of_pairs_as_a_whole_where_it_lacks_their_criterion(
    tmp_path,
):
    """The judge prefers a on one criterion, and in all; people prefer b in two cases."""
    cases = named(count=6)
    choices = [chosen(case, "ab", "Correctness", "a") for case in cases]
    choices += [chosen(case, "ab", "overall", choice) for case, choice in zip(cases, "aaaabb")]
    given = {"cases": cases, "ratings": choices}
    refused(
        tmp_path, choices_of_a(cases), "--contrasts needs --ratings of", contrasts="P=P", **given
    )
    report = made(tmp_path, choices_of_a(cases), **given)
    assert shares_of(report, "P") == pytest.approx({"Correctness": 1, "overall": 4 / 6})


def test_criteria_of_answers_that_were_not_asked_about_are_no_errors(tmp_path):
    criteria = ROWS["criteria"]
    cases = [case | {"criteria": criteria} for case in named("ab", 6)]
    verdicts = []
    labels = []
    for case in cases:
        by = verdict_by(case, 0, [True, False], [0.9, 0.1], models=["a", "b"])
        verdicts.append(by)
        for model, each in product("ab", criteria):
            label = "met" if each["points"] > 0 else "not_met"
            labels.append(label_of(case, model, each, "p", label))
    result = made(tmp_path, verdicts, cases=cases, ratings=labels).result
    found = result["criteria"]["certificate"]["judges"]["j"]
    assert found["accuracy"]["value"] == 1.0
    assert found["accuracy"]["n"] == 12
    assert found["read_rate"]["value"] == 1.0


CASE = read(CASES)[0]
GOOD = verdict(CASE, [1, 2, 3])
OWN = {name: [1, 2, 3] for name in ("relevancy", "knowledge_correctness", "fluency")}
LINES = {
    "scores": GOOD,
    "criteria": GOOD | {"rubric": "automedeval_guided@1", "criterion_scores": OWN},
    "pair": pairwise_verdicts()[0],
}
HUGE = 10**400


def refused(tmp_path, verdicts, message, **more):
    """Check that the verdicts, lines or the text of a file, are refused in one line, and that nothing is written."""
    file = tmp_path / "verdicts.jsonl"
    if isinstance(verdicts, str):
        file.write_text(verdicts)
        (tmp_path / ".verdicts.jsonl.lock").touch()
    else:
        write(file, verdicts)
    line = error_line(asked(tmp_path, file, **more))
    assert re.search(message, line)
    assert not (tmp_path / "out").exists()


@each_row("kind, change, message")
def test_bad_verdicts_get_one_line(kind, change, message, tmp_path):
    line = LINES[kind] | change
    if kind == "criteria":
        line = LINES[kind] | {"criterion_scores": without_none(OWN | change)}
    refused(tmp_path, [line], message)


SILENT = {
    "a judge cannot be called 'people'": agreeing_verdicts("people"),
    "a judge cannot be called 'longer text'": agreeing_verdicts("longer text"),
    "verdicts.jsonl:2: the verdict of echo on case .* is at .*:1 already": [GOOD, GOOD],
    "verdicts.jsonl:1: not JSON .*: {; cut off: the command that wrote it mends it": "{",
    "no verdict on any case": "",
    "must be a number from": [GOOD | {"rubric": "own@1", "scores": [1, 2, HUGE]}],
}


@pytest.mark.parametrize("message", SILENT)
def test_files_of_verdicts_that_say_nothing_get_one_line(message, tmp_path):
    refused(tmp_path, SILENT[message], message)


RATINGS_THAT_FAIL = ROWS["test_bad_ratings_get_one_line"]
RATINGS_THAT_FAIL.append(({"score": HUGE}, "a number from"))


@pytest.mark.parametrize(("change", "message"), RATINGS_THAT_FAIL)
def test_bad_ratings_get_one_line(change, message, tmp_path):
    first = read(RATINGS)[0]
    ratings = [first | change] if change else [first, first]
    refused(tmp_path, [GOOD], message, ratings=ratings)


@each_row("more, message")
def test_bad_arguments_get_one_line(more, message, tmp_path):
    rated = {"ratings": RATINGS} if "ratings" in more else {}
    refused(tmp_path, agreeing_verdicts(), message, **more | rated)


def test_a_file_of_verdicts_that_is_not_there_gets_one_line(tmp_path):
    # Two words with a slash are a folder that is not there: only cases may lie on the Hub, which hears of nothing else.
    line = error_line(asked(tmp_path, "verdicts/nowhere"))
    assert line == "error: verdicts/nowhere: No such file or directory"


def test_an_equals_sign_may_be_in_the_path_of_a_judge(tmp_path):
    file = write(tmp_path / "lr=0.1" / "verdicts.jsonl", agreeing_verdicts())
    for argument, name in ((file, "echo"), (f"A judge={file.parent}", "A judge")):
        result = made(tmp_path, argument).result
        assert [*result["judges"]] == [name]
    failed(asked(tmp_path, (file, file.parent)), "a judge cannot be called 'echo'")
