"""A judge's biases, on verdicts few enough to count by hand, and beside independent fits."""

import numpy as np
import pytest
from scipy.optimize import minimize

from automedeval.audit import biases
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.ratings import People
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.records import Case, Verdict
from automedeval.rubrics import read_rubric
from automedeval.stats.bootstrap import bootstrap, value_of
from automedeval.stats.length_control import RIDGE, length_controlled

RUBRIC, PAIRWISE = read_rubric("automedeval"), read_rubric("medical_pairwise")
MODELS = ("alder", "birch", "cedar")


def case_of(number: int, texts=("One two.", "One two three four.", "One.")) -> Case:
    responses = [{"model": model, "text": text} for model, text in zip(MODELS, texts)]
    return Case.from_dict({"id": f"case-{number}", "question": "Why?", "responses": responses})


def cases_of(count: int, **options) -> Cases:
    return Cases([case_of(number, **options) for number in range(count)], "made up")


def verdict(number: int, order: tuple, scores: tuple | None, expected: tuple | None = None, **more) -> Verdict:
    more = {"extra": {"models": list(MODELS)}, "scores": scores, "expected_scores": expected} | more
    valid = scores is not None or expected is not None or "choices" in more
    return Verdict(f"case-{number}", "j", "automedeval@1", order, valid=valid, **more)


def people_of(cases: Cases, scores: dict[str, tuple]) -> People:
    flat = np.array([score for case in cases.records for score in scores[case.id]], float)
    return People(["r"], {"overall": flat[:, None]}, True)


def value(statistic, cases: Cases) -> float:
    return value_of(statistic, len(cases))


def test_flips_changes_and_slots_counted_by_hand() -> None:
    cases = cases_of(2)
    # case 0: three orders; alder:birch goes +, -, =; alder:cedar and birch:cedar always +
    readings = [
        verdict(0, (0, 1, 2), (5, 4, 1)),
        verdict(0, (1, 0, 2), (3, 4, 2)),
        verdict(0, (2, 1, 0), (4, 4, 3)),
        verdict(1, (0, 1, 2), (2, 1, 3)),
        verdict(1, (2, 0, 1), None, error="no score line"),
    ]
    figures = biases.order(JudgeVerdicts(cases, readings, RUBRIC))
    # Of the three pairs of orders, alder:birch is turned round in one and differs in all three; the others agree.
    assert value(figures["flips"], cases) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert value(figures["changes"], cases) == pytest.approx((1 + 0 + 0) / 3)
    assert figures["flips"].n == 3  # case 1 has one valid reading, and says nothing
    # slot 1 holds 5 of (5,4,1), 4 of (3,4,2), 3 of (4,4,3), 2 of (2,1,3), less the means
    assert value(figures["slots"][0], cases) == pytest.approx(np.mean([5 - 10 / 3, 4 - 3, 3 - 11 / 3, 2 - 2]))
    slots = [value(each, cases) for each in figures["slots"]]
    assert value(figures["slot_span"], cases) == pytest.approx(max(slots) - min(slots))
    first = [1, 1, 1, 1, 1, 1, 0.5, 0, 0, 1, 0, 0]
    assert value(figures["first_wins"], cases) == pytest.approx(np.mean(first))


def test_flips_of_expected_scores_need_expected_scores_of_every_verdict() -> None:
    cases = cases_of(1)
    both = [verdict(0, (0, 1, 2), (3, 3, 3), (3.2, 3.1, 3.0)), verdict(0, (2, 1, 0), (3, 3, 3), (3.1, 3.2, 3.0))]
    figures = biases.order(JudgeVerdicts(cases, both, RUBRIC))
    assert value(figures["flips"], cases) == 0
    assert value(figures["flips_expected"], cases) == pytest.approx(1 / 3)
    figures = biases.order(JudgeVerdicts(cases, [both[0], verdict(0, (2, 1, 0), (3, 3, 3))], RUBRIC))
    assert "flips_expected" not in figures


def test_choices_of_a_pairwise_judge_count_as_shares_of_criteria() -> None:
    cases = cases_of(1)
    names = [criterion.name for criterion in PAIRWISE.criteria]
    choices = dict.fromkeys(names, "tie") | {"correctness": "alder", "harmfulness": "birch", "bias": "neither"}
    first = verdict(0, (0, 1), None, choices=choices, pair=("alder", "birch"))
    other = verdict(0, (1, 0), None, choices=dict.fromkeys(names, "tie"), pair=("alder", "birch"))
    readings = JudgeVerdicts(cases, [first, other], PAIRWISE)
    assert readings.own.tolist() == pytest.approx([4 / 6, 2 / 6, 0.5, 0.5])  # more harm is worse
    assert readings.unit_name == "share of criteria won"
    figures = biases.order(readings)
    assert (value(figures["flips"], cases), value(figures["changes"], cases)) == (0, 1)


def test_a_verdict_that_names_no_models_is_read_by_its_case() -> None:
    cases = cases_of(1)
    # The pair is named in the order of the file, whatever order it was shown in.
    choice = {"choices": {"correctness": "alder"}, "pair": ("alder", "birch"), "extra": {}}
    readings = JudgeVerdicts(cases, [verdict(0, (0, 1), None, **choice), verdict(0, (1, 0), None, **choice)], PAIRWISE)
    assert readings.own.tolist() == [1, 0, 1, 0]
    assert value(biases.order(readings)["flips"], cases) == 0


def test_order_is_undefined_where_every_response_keeps_its_slot() -> None:
    cases = cases_of(3)
    readings = JudgeVerdicts(cases, [verdict(number, (0, 1, 2), (1, 2, 3)) for number in range(3)], RUBRIC)
    assert "cannot be separated" in biases.order(readings)["reason"]
    single = JudgeVerdicts(cases, [verdict(0, (2, 0, 1), (1, 2, 3))], RUBRIC)
    assert "one valid verdict" in biases.order(single)["reason"]
    one_order = JudgeVerdicts(cases, [verdict(number, (2, 0, 1), (1, 2, 3)) for number in range(3)], RUBRIC)
    figures = biases.order(one_order)
    assert np.isnan(value(figures["flips"], cases))
    assert "one order" in figures["flips"].reason


def study(pairs: int = 600, tilt: float = 1.5, seed: int = 1):
    """Return pairs of answers of three models whose strengths are 0.8, 0 and -0.8, and a judge that likes length."""
    rng = np.random.default_rng(seed)
    first, second = np.array([rng.choice(3, 2, replace=False) for _ in range(pairs)]).T
    strengths = np.array([0.8, 0.0, -0.8])
    longer = rng.normal(0, 30, pairs) + 25 * (second - first)  # the stronger writes more
    logit = strengths[first] - strengths[second] + tilt * np.tanh(longer / np.std(longer))
    won = rng.random(pairs) < 1 / (1 + np.exp(-logit))
    return first, second, longer, np.where(won, 1.0, -1.0), np.arange(pairs) // 3


def test_length_control_is_the_penalised_logistic_regression() -> None:
    first, second, longer, relation, case = study()
    relation[::10] = 0.0  # ties are half a win
    figures = length_controlled(first, second, longer, relation, case, 200, MODELS)
    design = np.column_stack(
        [(first == m).astype(float) - (second == m) for m in range(3)] + [np.tanh(longer / longer.std())]
    )

    def loss(beta: np.ndarray) -> float:
        logit, won = design @ beta, (relation + 1) / 2
        return (np.logaddexp(0, logit) - won * logit).sum() + RIDGE / 2 * beta @ beta

    beta = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    assert value_of(figures["longer_wins"], 200) == pytest.approx(1 / (1 + np.exp(-beta[3] * np.tanh(1))), abs=1e-5)
    met = [(first == 0) & (second == other) | (second == 0) & (first == other) for other in range(3)]
    chances = 1 / (1 + np.exp(-(beta[0] - beta[:3])))
    expected = np.average(chances, weights=[each.sum() for each in met])
    assert value_of(figures["win_rates"]["alder"]["controlled"], 200) == pytest.approx(expected, abs=1e-5)
    raw = np.mean(np.concatenate([(relation[first == 0] + 1) / 2, (1 - relation[second == 0]) / 2]))
    assert value_of(figures["win_rates"]["alder"]["raw"], 200) == pytest.approx(raw)


def test_length_control_recovers_the_win_rate_at_equal_length() -> None:
    truth, controlled, raw = 1 / (1 + np.exp(-0.8)), [], []
    for seed in range(8):
        first, second, longer, relation, case = study(seed=seed)
        keep = (first + second) == 1  # alder and birch alone
        figures = length_controlled(first[keep], second[keep], longer[keep], relation[keep], case[keep], 200, MODELS)
        controlled.append(value_of(figures["win_rates"]["alder"]["controlled"], 200))
        raw.append(value_of(figures["win_rates"]["alder"]["raw"], 200))
    assert np.mean(controlled) == pytest.approx(truth, abs=0.04)
    assert np.mean(raw) > truth + 0.08


def test_the_one_step_bootstrap_is_close_to_fitting_anew() -> None:
    first, second, longer, relation, case = study(450)
    (estimate,) = bootstrap(
        [length_controlled(first, second, longer, relation, case, 150, MODELS)["longer_wins"]], 150, 400
    )
    rng, refitted = np.random.default_rng(5), []
    spread = longer.std()
    for _ in range(150):
        rows = np.concatenate([np.flatnonzero(case == each) for each in rng.integers(0, 150, 150)])
        scaled = longer[rows] / np.std(longer[rows]) * spread
        again = length_controlled(first[rows], second[rows], scaled, relation[rows], case[rows], 150, MODELS)
        refitted.append(value_of(again["longer_wins"], 150))
    assert estimate.high - estimate.low == pytest.approx(4 * np.std(refitted), rel=0.25)


def test_length_control_without_models_or_differences_has_a_reason() -> None:
    first, second = np.arange(0, 40, 2), np.arange(1, 40, 2)
    names = [f"m{number}" for number in range(40)]
    case, longer, relation = np.arange(20), np.linspace(-1, 2, 20), np.ones(20)
    figures = length_controlled(first, second, longer, relation, case, 20, names)
    assert "win_rates" not in figures
    assert "40 model names" in figures["reason"]
    same = length_controlled(first, second, np.zeros(20), relation, case, 20, names)
    assert "equally long" in same["longer_wins"].reason


def test_length_is_measured_of_the_judge_and_of_people() -> None:
    cases = cases_of(12)
    readings = JudgeVerdicts(cases, [verdict(number, (0, 1, 2), (3, 5, 1)) for number in range(12)], RUBRIC)
    people = people_of(cases, {case.id: (2, 1, 3) for case in cases.records})
    figures = biases.length(readings, people)
    assert value(figures["prefers_longer"], cases) == 1
    assert value(figures["spearman"], cases) == pytest.approx(1)
    assert value(figures["people"]["prefers_longer"], cases) == 0


def test_repeats_compare_runs_of_one_request() -> None:
    cases = cases_of(2)
    runs = [
        verdict(0, (0, 1, 2), (1, 2, 3), run=0), verdict(0, (0, 1, 2), (1, 2, 3), run=1),
        verdict(1, (0, 1, 2), (1, 2, 3), run=0), verdict(1, (0, 1, 2), (1, 2, 5), run=1),
    ]  # fmt: skip
    figures = biases.repeats(JudgeVerdicts(cases, runs, RUBRIC))
    assert (value(figures["tied"], cases), value(figures["gap"], cases)) == (0.5, 1.0)
    # Verdicts that have no score for a response that they show are left out.
    runs += [verdict(1, (0, 1, 2), (1, None, 3), run=run) for run in (2, 3)]
    figures = biases.repeats(JudgeVerdicts(cases, runs, RUBRIC))
    assert (value(figures["tied"], cases), value(figures["gap"], cases)) == (0.5, 1.0)


RATIONALE = (
    "Analyze:\nStep 1: The question is plain.\nStep 2: Accurate, clear, complete and safe.\n"
    "Step 3: Wrong, vague and unsafe.\nStep 4: Says a little."
)


def test_attribution_of_rationales() -> None:
    texts = ("Take 650 milligrams of acetaminophen.", "Use an ice pack and elevate the ankle.", "Rest.")
    cases = Cases([case_of(number, texts) for number in range(2)], "made up")
    borrowed = RATIONALE.replace("Accurate,", "Advises an ice pack to elevate the ankle. Accurate,")
    verdicts = [
        verdict(0, (0, 1, 2), (5, 1, 3), rationale=RATIONALE),
        verdict(0, (1, 0, 2), (1, 5, 3), rationale=RATIONALE),  # another order of the same is not looked at
        verdict(1, (0, 1, 2), (1, 5, 3), rationale=borrowed),
    ]
    figures = biases.attribution(JudgeVerdicts(cases, verdicts, RUBRIC))
    assert value(figures["marked"], cases) == 0.5
    assert value(figures["marks"], cases) == 0.5
    (text,) = biases.failing(JudgeVerdicts(cases, verdicts, RUBRIC), failed("attribution.marked"))
    assert text == {
        "case_id": "case-1", "model": "alder", "change": "credited with words of birch",
        "text": "Advises an ice pack to elevate the ankle.",
    }  # fmt: skip
    assert biases.attribution(JudgeVerdicts(cases, [verdict(0, (0, 1, 2), (5, 1, 3))], RUBRIC))["reason"]


def failed(figure: str, share: float = 1.0) -> dict:
    return {"figure": figure, "measured": {"value": share}}


def test_the_texts_of_a_failed_figure_are_those_that_a_reader_finds() -> None:
    cases = cases_of(2)
    turned = [verdict(0, (0, 1, 2), (5, 4, 1)), verdict(0, (2, 1, 0), (3, 4, 3)), verdict(1, (0, 1, 2), (5, 5, 1))]
    readings = JudgeVerdicts(cases, turned, RUBRIC)

    def pairs(figure: str, share: float = 1.0, people: People | None = None) -> list[tuple[str, ...]]:
        texts = biases.failing(readings, failed(figure, share), people)
        each = [f"{text['case_id'][-1]} {text['model']}" for text in texts]
        return sorted(zip(each[::2], each[1::2], strict=True))

    # alder:birch is turned round in case 0; alder:cedar is a tie in one of its two orders
    assert pairs("order.flips") == [("0 alder", "0 birch")]
    assert pairs("order.changes") == [("0 alder", "0 birch"), ("0 alder", "0 cedar")]
    # of lengths 2, 4 and 1 the longer is ahead of cedar; alder and birch are level in the mean
    longer = [(f"{case} {model}", f"{case} cedar") for case in (0, 1) for model in ("alder", "birch")]
    assert set(pairs("length.longer_wins")) < set(longer)
    assert len(pairs("length.longer_wins")) == biases.PAIRS
    assert pairs("length.longer_wins", 0.1) == []
    people = people_of(cases, {"case-0": (5, 5, 1), "case-1": (1, 5, 1)})
    assert pairs("length.prefers_longer", people=people) == [("1 alder", "1 cedar")]
    assert biases.failing(readings, failed("order.slot_span")) == []
    (first, _) = biases.failing(readings, failed("order.flips"))
    assert (first["text"], first["change"]) == ("One two.", "ahead in one order, not in another · 2 words")


def test_favour_is_the_share_won_by_the_judge_less_that_by_people() -> None:
    cases = cases_of(4)
    readings = JudgeVerdicts(cases, [verdict(number, (0, 1, 2), (5, 3, 1)) for number in range(4)], RUBRIC)
    people = people_of(cases, {case.id: (1, 3, 3) for case in cases.records})
    figures = biases.self_preference(readings, people, "alder")
    assert value(figures["own"], cases) == 1.0  # people put it last each time, the judge first
    assert value(figures["models"]["cedar"]["favour"], cases) == -0.75
    assert value(figures["models"]["alder"]["concordance"], cases) == 0
    invalid = [verdict(number, (0, 1, 2), None, error="no score line") for number in (2, 3)]
    partly = JudgeVerdicts(cases, [*readings.verdicts[:2], *invalid], RUBRIC)
    figures = biases.self_preference(partly, people_of(cases, {case.id: (5, 3, 1) for case in cases.records}))
    for figure in figures["models"]["alder"].values():
        assert figure.n == 4  # two pairs of each case with a valid verdict
    assert value(figures["models"]["alder"]["concordance"], cases) == 1
    assert "ratings" in biases.self_preference(readings, None)["reason"]
