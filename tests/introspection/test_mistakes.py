"""Where a judge's verdicts differ from those on record."""

import itertools
import json
import re
from dataclasses import replace

import pytest
from doubles.introspection_study import AUTOMEDEVAL, MODELS, RUBRICS, case_of, recorded_of, verdict_of

from automedeval.dataset.instructions import instruction
from automedeval.introspection.discussion import Discussion
from automedeval.introspection.mistakes import Mistake, RoundJudge, find_mistakes, read_judge, read_recorded
from automedeval.records import RecordError, Verdict
from automedeval.rubrics.rationale import split_steps

CASE = case_of(0)
RECORDED = recorded_of(verdict_of(CASE, (4, 2, 5), "teacher", order=(2, 0, 1)), CASE)


def kind_of(*verdicts, tolerance=0.0, recorded=RECORDED):
    judge = RoundJudge("judge", None, {recorded.case.id: list(verdicts)})
    mistakes, _ = find_mistakes([recorded], judge, tolerance)
    return mistakes[0].kind if mistakes else None


@pytest.fixture
def judged(tmp_path):
    """Return what reads verdicts on one case as one judge's."""

    def read(*verdicts, name=None, recorded=RECORDED):
        file = tmp_path / "verdicts.jsonl"
        file.write_text("".join(json.dumps(verdict.to_dict()) + "\n" for verdict in verdicts))
        return read_judge(str(file), [recorded], name)

    return read


def test_scores_on_record_are_by_response() -> None:
    assert RECORDED.scores == {0: 4, 1: 2, 2: 5}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_partners_see_both_verdicts_in_the_words_of_the_rubric(order) -> None:
    def said(order):
        return ", ".join(f"Response {slot} is {MODELS[index]}'s" for slot, index in enumerate(order, 1))

    rubric = replace(AUTOMEDEVAL, output=AUTOMEDEVAL.output | {"slot": "Response"})
    reading = replace(RECORDED.reading, rationale=said(RECORDED.order))
    mistake = Mistake(
        replace(RECORDED, rubric=rubric, reading=reading),
        "scores",
        verdict_of(CASE, (1, 1, 1), order=(1, 2, 0), rationale=said((1, 2, 0))),
    )
    shown = [mistake.judged_from(order)["rationale"], Discussion(mistake, order).on_record.rationale]
    expected = {(str(slot), MODELS[index]) for slot, index in enumerate(order, 1)}
    assert [set(re.findall(r"Response (\d) is (\w+)", text)) for text in shown] == [expected] * 2


@pytest.mark.parametrize(
    ("record", "scores", "tolerance", "kind"),
    [
        ((4, 2, 5), (4, 2, 5), 0, None),
        ((4, 2, 5), (3, 1, 4), 0, "scores"),
        ((4, 2, 5), (4, 2, 4), 0, "relations"),  # a tie where the record has none
        ((4, 2, 5), (5, 2, 4), 0, "relations"),
        ((4, 2, 5), None, 0, "invalid"),
        ((3, 3, 1), (3, 3, 1), 0, None),  # a tie on record has to be a tie
        ((3, 3, 1), (3, 2, 1), 0, "relations"),
        ((3, 3, 1), (4, 4, 1), 0, "scores"),
        ((4, 2, 5), (3, 1, 4), 1, None),  # the tolerance is of scores alone
        ((4, 2, 5), (3, 1, 4), 0.5, "scores"),
        ((4, 2, 5), (4, 2, 4), 1, "relations"),
    ],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=str)
def test_other_relations_other_scores_and_nothing_readable_are_mistakes(record, scores, tolerance, kind, order) -> None:
    recorded = recorded_of(verdict_of(CASE, record, "teacher", order=(2, 0, 1)), CASE)
    assert kind_of(verdict_of(CASE, scores, order=order), tolerance=tolerance, recorded=recorded) == kind


def test_orders_and_runs_count_as_their_mean_and_the_furthest_is_shown() -> None:
    verdicts = [verdict_of(CASE, (4, 2, 5), run=0), verdict_of(CASE, None, run=1), verdict_of(CASE, (4, 1, 5), run=2)]
    judge = RoundJudge("judge", None, {CASE.id: verdicts})
    (mistake,), lines = find_mistakes([RECORDED], judge)
    assert (mistake.kind, mistake.judged.run) == ("scores", 2)
    assert lines == ["introspection: 1 cases → 1 mistakes (scores: 1)"]
    assert kind_of(*verdicts, tolerance=0.5) is None
    assert kind_of(verdict_of(CASE, (5, 1, 4), run=0), verdict_of(CASE, (4, 3, 4), run=1)) == "relations"
    assert kind_of(verdict_of(CASE, None, run=0), verdict_of(CASE, None, run=1)) == "invalid"


def test_a_case_beyond_the_context_window_is_counted_and_no_mistake() -> None:
    overlong = replace(verdict_of(CASE, None), extra={"overlong": True})
    judge = RoundJudge("judge", None, {CASE.id: [overlong]})
    assert find_mistakes([RECORDED], judge) == (
        [],
        [
            "introspection: 1 cases → 0 mistakes",
            "introspection: 1 cases exceed the judge's context window: they are left out, their rows stay",
        ],
    )
    assert kind_of(overlong, verdict_of(CASE, (3, 1, 4), run=1)) == "scores"


def test_choices_about_a_pair_are_compared() -> None:
    names = [criterion.name for criterion in RUBRICS["medical_pairwise@1"].criteria]
    case = case_of(1, MODELS[:2])
    choices = dict.fromkeys(names, "ash") | {names[1]: "tie"}

    def verdict(**changed):
        about = {"case_id": case.id, "judge": "j", "rubric": "medical_pairwise@1", "order": (1, 0), "valid": True}
        return Verdict(**about, pair=("ash", "birch"), choices=choices | changed, extra={"models": case.models})

    recorded = recorded_of(verdict(), case)
    assert recorded.choices == choices
    assert kind_of(verdict(), recorded=recorded) is None
    assert kind_of(replace(verdict(), order=(0, 1)), verdict(**{names[0]: "birch"}), recorded=recorded) == "choices"
    assert kind_of(verdict(**{names[1]: "neither"}), recorded=recorded) == "choices"


def test_the_reference_as_a_response_is_compared_where_the_judge_saw_it(judged) -> None:
    case = case_of(2, MODELS[:2])
    models = [*case.models, "reference"]
    given = verdict_of(case, (2, 3, 5), "teacher", models=models, order=(2, 0, 1))
    recorded = recorded_of(given, case)
    assert recorded.case.models == models
    without = verdict_of(case, (2, 3), order=(1, 0))
    assert kind_of(*judged(without, recorded=recorded).verdicts[case.id], recorded=recorded) is None
    assert kind_of(verdict_of(case, (3, 3)), recorded=recorded) == "relations"
    whole = verdict_of(recorded.case, (2, 3, 3))
    assert kind_of(*judged(whole, recorded=recorded).verdicts[case.id], recorded=recorded) == "relations"
    (mistake,), lines = find_mistakes([recorded], RoundJudge("j", None, {case.id: [verdict_of(case, (1, 3))]}))
    assert "1 cases were judged without all of their responses" in lines[1]
    shown = mistake.judged_from((2, 0, 1))
    assert shown["scores"] == [None, 1, 3]
    assert split_steps(shown["rationale"])[2].startswith("ash")
    assert split_steps(shown["rationale"])[3].startswith("birch")


def test_one_judge_is_chosen_and_others_are_passed_over(judged) -> None:
    both = [verdict_of(CASE, (4, 2, 5)), verdict_of(CASE, (1, 1, 1), "other")]
    with pytest.raises(RecordError, match="verdicts of judge, other: choose one with --judge_name"):
        judged(*both)
    assert judged(*both, name="other").verdicts[CASE.id][0].scores == (1, 1, 1)
    likelihood = replace(verdict_of(CASE, None, "likelihood:x"), rubric="likelihood@1")
    elsewhere = verdict_of(case_of(7), (1, 2, 3), "other")
    assert judged(likelihood, elsewhere, both[0]).name == "judge"
    with pytest.raises(
        RecordError, match=r"no verdict of the judge 'nobody' by automedeval@1 on any of the 1 training"
    ):
        judged(*both, name="nobody")


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([verdict_of(CASE, (4, 2, 5))] * 2, r"verdicts.jsonl:2: this verdict of judge stands at .*:1 already"),
        ([verdict_of(CASE, (4, 2, 5), extra={"case_digest": "other"})], "texts of case 'case-0' changed after 'judge'"),
        ([replace(verdict_of(CASE, (4, 2, 5)), order=(0, 1, 3))], r"the order \[0, 1, 3\] does not fit 3 responses"),
        ([verdict_of(CASE, (None, None, None))], "no score of any response"),
        ([replace(verdict_of(CASE, (4, 2, 5)), scores=None)], "a valid verdict without scores"),
        (
            [verdict_of(CASE, (4, 2, 5)), verdict_of(CASE, (4, 2, 5), run=1, extra={"settings": "s2"})],
            "different weights, wording or settings",
        ),
    ],
)
def test_verdicts_that_do_not_fit_are_refused(judged, verdicts, said) -> None:
    with pytest.raises(RecordError, match=said):
        judged(*verdicts)


def test_every_training_case_must_be_judged(tmp_path) -> None:
    others = [recorded_of(verdict_of(case_of(at), (1, 2, 3), "teacher"), case_of(at)) for at in (4, 5)]
    file = tmp_path / "verdicts.jsonl"
    file.write_text(json.dumps(verdict_of(CASE, (4, 2, 5)).to_dict()) + "\n")
    with pytest.raises(RecordError, match="judge has not judged 2 of the 3 training cases, the first 'case-4'"):
        read_judge(str(file), [RECORDED, *others])


def test_rows_that_do_not_fit_their_cases_are_refused() -> None:
    row = instruction(CASE, verdict_of(CASE, (4, 2, 5), "teacher"), AUTOMEDEVAL, "strong")
    known = {CASE.id: CASE}
    broken = {**row, "completion": [{"role": "assistant", "content": "No idea."}]}
    changed = {CASE.id: replace(CASE, question="Another question?")}
    for rows, cases, said in (
        ([], known, "data: not a single training row"),
        ([row, row], known, "stands in two training rows"),
        ([row], {}, "'case-0' is in no file of --cases"),
        ([broken], known, "the verdict on record cannot be read: no score line"),
        ([row], changed, "its texts, or the rubric's wording, have changed since"),
        ([{**row, "rubric": "mine@1"}], known, "no rubric 'mine@1'"),
        ([{**row, "models": ["x", "y", "z"]}], known, "is on the responses of x, y, z"),
    ):
        with pytest.raises(RecordError, match=said):
            read_recorded(rows, cases, RUBRICS, "data")
