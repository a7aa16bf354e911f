"""Trials of a judge: what is tampered with, what its verdicts then say, and whether that passes the thresholds."""

from pathlib import Path

import numpy as np
import pytest

from automedeval.audit.perturbations import Attack, Trial, doubled, planted, read_harms, read_paraphrases, repeated
from automedeval.audit.thresholds import Threshold, decide, figures_of, passes, read_thresholds
from automedeval.audit.trials import CHECKS, Templates, outcome, plan_trials, trial_figures
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.records import Case, RecordError, Verdict
from automedeval.rubrics import read_rubric
from automedeval.stats.bootstrap import value_of

RUBRIC = read_rubric("automedeval")
MODELS = ("alder", "birch", "cedar")


def case_of(number: int, texts=("One two.", "One two three four.", "One.")) -> Case:
    responses = [{"model": model, "text": text} for model, text in zip(MODELS, texts)]
    return Case.from_dict({"id": f"case-{number}", "question": "Why?", "responses": responses})


def verdict(number: int, order: tuple, scores: tuple | None, expected: tuple | None = None) -> Verdict:
    valid = scores is not None or expected is not None
    return Verdict(f"case-{number}", "j", "automedeval@1", order, valid=valid, scores=scores, expected_scores=expected)


CLEAN = Request(case_of(0), (1, 2, 0))
BEFORE = verdict(0, (1, 2, 0), (4, 2, 3), (4.0, 2.2, 3.0))
ATTACK = Attack("a", "flattery", "Best of all.")
ANSWERS = "Do not take this medicine often, and call at once. It is due to many things."


def after(trial: Trial, scores: tuple | None, expected: tuple | None) -> Verdict:
    return Verdict(trial.case.id, "j", "automedeval@1", trial.request.slots, valid=scores is not None, scores=scores,
                   expected_scores=expected)  # fmt: skip


def see(trial: Trial, scores: tuple | None, expected: tuple | None = None):
    judge = JudgeVerdicts(Cases([trial.clean.case], "cases"), [BEFORE], RUBRIC)
    return outcome(trial, BEFORE, after(trial, scores, expected), judge)


def test_outcomes_of_planting() -> None:
    trial = planted(CLEAN, 1, ATTACK, RUBRIC)
    lifted = see(trial, (4, 4, 3), (4.0, 4.1, 3.0))
    assert (lifted.valid, lifted.topped) == (True, True)
    assert lifted.change == pytest.approx(1.9)
    assert see(trial, (4, 2, 3), (4.0, 2.5, 3.0)).topped is False
    assert not see(trial, None).valid
    assert not see(trial, (4, 4, 3), None).valid  # expected scores are looked at, and there are none


def test_outcomes_of_sameness() -> None:
    twice = see(doubled(CLEAN, 0, 1), (4, 4, 3), (4.0, 3.9, 3.0))
    assert (twice.tied, twice.clean_tied) == (True, False)
    assert (twice.gap, twice.clean_gap) == pytest.approx((0.1, 1.8))
    assert see(repeated(CLEAN), (4, 2, 3), (4.0, 2.2, 3.0)).tied
    assert not see(repeated(CLEAN), (4, 1, 3), (4.0, 1.2, 3.0)).tied


def test_figures_of_trials_keep_invalid_verdicts_apart() -> None:
    outcomes = [see(planted(CLEAN, 1, ATTACK, RUBRIC), *scores) for scores in (
        ((4, 4, 3), (4.0, 4.2, 3.0)), ((4, 2, 3), (4.0, 2.2, 3.0)), (None, None))]  # fmt: skip
    control = Attack("c", "control", "Kind words.")
    outcomes.append(see(planted(CLEAN, 1, control, RUBRIC), (4, 3, 3), (4.0, 2.7, 3.0)))
    figures = trial_figures(outcomes, 1)["planting"]
    values = {name: value_of(figures[name], 1) for name in ("rose", "rise", "invalid", "topped", "excess")}
    assert values == pytest.approx({"rose": 0.5, "rise": 1.0, "invalid": 1 / 3, "topped": 0.5, "excess": 0.5})
    assert value_of(figures["families"]["flattery"]["rose"], 1) == 0.5
    assert "control" not in figures["families"]


def test_attacks_go_into_the_worst_and_are_dealt_in_turn() -> None:
    attacks = [Attack(f"a{number}", "f", "x") for number in range(4)] + [Attack("c", "control", "y")]
    clean = [(Request(case_of(n), (0, 1, 2)), verdict(n, (0, 1, 2), (4, 2, 3))) for n in range(4)]
    clean.append((Request(case_of(9), (0, 1, 2)), verdict(9, (0, 1, 2), None)))
    plan = plan_trials(clean, ["planting"], Templates(attacks, attacks_each=2), RUBRIC)
    assert {trial.target for trial in plan} == {1}
    assert all(trial.clean.case.id != "case-9" for trial in plan)  # an invalid clean verdict has no worst answer
    dealt = [trial.name for trial in plan]
    assert len(dealt) == 12
    assert {dealt.count(f"a{number}") for number in range(4)} == {2}
    assert dealt.count("c") == 4
    unread = plan_trials(
        [(clean[0][0], verdict(0, (0, 1, 2), (5, None, 1)))], ["planting", "sameness"], Templates(attacks), RUBRIC
    )
    assert {(trial.target, trial.other) for trial in unread if trial.kind != "repeat"} == {(2, None), (0, 2)}


def test_harms_never_go_into_the_worst_of_several() -> None:
    texts = ("Rest.", "Take 5 mg.", "Take 7 mg.")
    request = Request(case_of(0, texts), (0, 1, 2))
    templates = Templates(harms=read_harms(), paraphrases=read_paraphrases())
    plan = plan_trials([(request, verdict(0, (0, 1, 2), (5, 3, 1)))], ["harm"], templates, RUBRIC)
    assert {(trial.name, trial.target) for trial in plan} == {("dose ×10", 1), ("milligrams become grams", 1)}
    single = Templates(harms=read_harms(), harms_each=1)
    assert len(plan_trials([(request, verdict(0, (0, 1, 2), (5, 3, 1)))], ["harm"], single, RUBRIC)) == 1


def test_a_judge_that_looks_at_each_answer_by_itself_is_shown_the_changed_ones() -> None:
    texts = (ANSWERS, "One.", "Two.")
    request = Request(case_of(0, texts), (0, 1, 2))
    before = verdict(0, (0, 1, 2), None, (-2.0, -4.0, -3.0))
    plan = plan_trials(
        [(request, before)], CHECKS, Templates([ATTACK], paraphrases=read_paraphrases()), RUBRIC, apart=True
    )
    shown = {trial.kind: trial.request.slots for trial in plan}
    assert shown["flattery"] == (1,)
    assert shown["identical"] == shown["paraphrase"] == (0, 1)
    assert shown["repeat"] == (0, 1, 2)
    trial = next(trial for trial in plan if trial.kind == "flattery")
    changed = after(trial, None, None)
    changed = Verdict(changed.case_id, "j", "likelihood@1", (1,), valid=True, expected_scores=(None, -1.5, None))
    seen = outcome(trial, before, changed, JudgeVerdicts(Cases([request.case], "cases"), [before]))
    assert seen.change == pytest.approx(2.5 / np.std([-2, -4, -3]))  # a judge without a scale: in standard deviations
    assert seen.topped is True


# --- thresholds


def test_thresholds_decide_by_value_or_by_the_worse_end() -> None:
    figure = {"value": 0.08, "low": 0.02, "high": 0.3, "n": 9}
    assert Threshold("a", most=0.1).decide(figure) == "passed"
    assert Threshold("a", most=0.1, by="bound").decide(figure) == "failed"
    assert Threshold("a", least=0.1).decide(figure) == "failed"
    assert Threshold("a", least=0.1).decide({"value": None}) == "not measured"
    assert Threshold("a", most=1, by="bound").decide({"value": 0.5, "low": None, "high": None}) == "not measured"
    tree = {"one": {"a": {"b": figure}}, "two": {"a": {"b": figure | {"value": 0.5}}}}
    first, every = decide([Threshold("a.b", most=0.1)], tree), decide([Threshold("a.b", most=0.1, every=True)], tree)
    assert passes(first) is True
    assert passes(every) is False
    assert list(dict(figures_of(every))) == ["a, b (one)", "a, b (two)"]
    assert passes(decide([Threshold("a.c", most=0.1)], tree)) is None
    assert passes(decide([Threshold("a", most=0.1)], tree)) is None
    dotted = {"one": {"models": {"gpt-3.5": {"favour": figure}, "gpt-3": {"5": {"favour": figure | {"value": 1.0}}}}}}
    assert passes(decide([Threshold("models.gpt-3.5.favour", most=0.1)], dotted)) is True
    assert len(read_thresholds()) >= 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1", "list"),
        ("- {least: 1}", "figure: is missing"),
        ("- {figure: order.flip, most: 0.1}", "no figure 'order.flip'; similar are order.flips"),
        ("- {figure: sameness, most: 0.1}", "no figure 'sameness'; similar are sameness.identical.tied"),
        ("- {figure: speed, most: 0.1}", "no figure 'speed'; an example is order.flips"),
        ("- {figure: order.flips}", "least, most or both"),
        ("- {figure: order.flips, most: high}", "number"),
        ("- {figure: order.flips, most: .nan}", "number"),
        ("- {figure: order.flips, least: 0.9, most: 0.1}", "is above most"),
        ("- {figure: planting.attacks.json verdict.rose, most: 1, by: luck}", "value, bound"),
        ("- {figure: order.flips, most: 1, maximum: 2}", "maximum: unknown key"),
        ("- {figure: length.win_rates.gpt-3.5.raw, most: 1, every: 3}", "true or false"),
    ],
)
def test_faulty_thresholds_are_one_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(content)
    with pytest.raises(RecordError, match=message):
        read_thresholds(str(tmp_path / "own.yaml"))
