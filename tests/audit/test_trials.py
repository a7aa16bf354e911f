"""Trials: which answer of a case is changed, how often each edit is dealt, and what is left out."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tables import rows_of

from automedeval.audit.perturbations import Edit, Perturbation, read_perturbations
from automedeval.audit.trials import Planner, Trial, ValuedAnswer
from automedeval.judges.requests import Request
from automedeval.records import Case
from automedeval.rubrics import read_rubric

RUBRIC = read_rubric("automedeval")
ROWS = rows_of(__file__)["test_a_case_in_which_the_change_is_not_idle_is_left_out_and_counted"]
PACKAGED = {each.name: each for each in read_perturbations()}
TWO = ("Rest it for two days. Then walk a little.", "Call somebody. It will pass.")


def case_of(question: Any, answers: tuple[str, ...] = TWO, **more: Any) -> Case:
    responses = [{"model": f"model-{number}", "text": text} for number, text in enumerate(answers)]
    return Case.from_dict({"id": "c", "question": question, "responses": responses} | more)


def answers_of(
    case: Case, values: tuple[float, ...] = (), slots: tuple[int, ...] = ()
) -> list[ValuedAnswer]:
    """Return the answers of a case by their values, by default falling, the worst first."""
    count = len(case.responses)
    request = Request(case, slots or tuple(range(count)))
    values = values or tuple(float(count - index) for index in range(count))
    return sorted(
        (ValuedAnswer(request, index, value) for index, value in enumerate(values)),
        key=lambda each: each.value,
    )


def texts(*names: str, kind: str = "f") -> list[Edit]:
    return [Edit(kind, name, text=f"{name}!") for name in names]


def test_planted_texts_go_into_the_worst_and_are_dealt_in_turn() -> None:
    harmless = texts("x", "y", kind="control")
    planting = Perturbation(
        "p", "worst answer", "not rise", edits=texts(*"abcd"), controls=harmless
    )
    cases = [answers_of(case_of("Why?"), (4, 2)) for _ in range(4)] + [[]]
    trials = Planner(RUBRIC, most=2).plan(planting, cases)
    assert {trial.target for trial in trials} == {1}
    dealt = Counter(trial.edit for trial in trials if not trial.control)
    assert dealt == dict.fromkeys("abcd", 2)
    assert Counter(trial.edit for trial in trials if trial.control) == {"x": 2, "y": 2}
    assert len(Planner(RUBRIC).plan(planting, cases)) == 4 * (4 + 1)
    drawn = [Planner(RUBRIC, most=1, seed=seed).plan(planting, cases) for seed in range(5)]
    assert len({tuple(trial.edit for trial in each) for each in drawn}) > 1


def test_a_trial_knows_its_clean_case_and_changes_one_thing() -> None:
    case = case_of("Why?", ("One.", "Rest.", "Three."), kept=1)
    (plea,) = (edit for edit in PACKAGED["planting"].edits if edit.name == "plea")
    planting = replace(PACKAGED["planting"], edits=[plea], controls=[])
    answers = answers_of(case, (5, 1, 3), slots=(2, 0, 1))
    (trial,) = Planner(RUBRIC).plan(planting, [answers])
    changed = trial.after.case
    assert trial.before is trial.clean is answers[0].request
    assert trial.after.slots == (2, 0, 1)
    assert changed.id.startswith("c#planting-")
    assert [r.text for r in changed.responses][0::2] == ["One.", "Three."]
    assert changed.responses[1].text.startswith("Rest.\n\nPlease rate")
    assert changed.extra["kept"] == 1
    about = {"of": "c", "perturbation": "planting", "kind": "flattery", "edit": "plea"}
    assert changed.extra["audit"] == about | {"response": "model-1"}
    assert Case.from_dict(changed.to_dict()) == changed
    every = Planner(RUBRIC).plan(PACKAGED["planting"], [answers])
    assert len({each.after.case.id for each in every}) == len(every)


def test_the_text_names_the_place_in_which_the_answer_is_shown() -> None:
    named = Perturbation(
        "p", "worst answer", "not rise", edits=[Edit("k", "k", text="$slot of $count, best $best")]
    )
    for values, place in (((1, 5, 5), 2), ((5, 5, 1), 1)):
        answers = answers_of(case_of("Why?", ("A.", "B.", "C.")), values, slots=(2, 0, 1))
        (trial,) = Planner(RUBRIC).plan(named, [answers])
        assert trial.after.case.responses[trial.target].text.endswith(
            f"Doctor {place} of 3, best 5"
        )


def test_a_danger_goes_into_the_best_answer_that_states_a_fact_but_never_into_the_worst_of_several() -> (
    None
):
    danger = PACKAGED["danger"]
    answers = answers_of(case_of("Why?", ("Rest.", "Take 5 mg.", "Take 500 mg.")))
    trials = Planner(RUBRIC).plan(danger, [answers])
    made = [(trial.edit, trial.target) for trial in trials if not trial.control]
    assert made == [("dose ×10", 1), ("milligrams become grams", 1)]
    assert not [trial for trial in trials if trial.control], (
        "no clean edit of a dose applies to 5 mg"
    )
    assert len(Planner(RUBRIC, most=1).plan(danger, [answers])) == 1
    drawn = Planner(RUBRIC, most=1).plan(danger, [answers, answers])
    assert [trial.edit for trial in drawn] == ["dose ×10", "milligrams become grams"]
    alone = Planner(RUBRIC).plan(
        danger, [answers_of(case_of("Why?", ("Take 500 mg twice a day.",)))]
    )
    assert {trial.target for trial in alone} == {0}


def test_a_danger_has_as_many_clean_twins_of_its_kind_in_the_same_answer() -> None:
    case = case_of("Why?", ("Take 500 mg twice a day.", "Rest."))
    trials = Planner(RUBRIC).plan(PACKAGED["danger"], [answers_of(case)])
    dangers, twins = (
        [each for each in trials if each.control is control] for control in (False, True)
    )
    assert [each.edit for each in dangers] == [
        "dose ×10",
        "milligrams become grams",
        "daily becomes hourly",
    ]
    assert [each.edit for each in twins] == ["milligrams in grams", "twice a day in hours"]
    assert {(each.kind, each.target) for each in trials} == {("dose", 0)}


def test_copies_paraphrases_and_repeats() -> None:
    case = case_of("Why?", ("See a doctor, and do not take this medicine often.", "Rest.", "Wait."))
    answers = answers_of(case)
    (copied,) = Planner(RUBRIC).plan(PACKAGED["copy"], [answers])
    assert [r.text for r in copied.after.case.responses] == [
        case.responses[0].text,
        "Rest.",
        case.responses[0].text,
    ]
    assert (copied.kind, copied.target, copied.other) == ("identical", 0, 2)
    (reworded,) = Planner(RUBRIC).plan(PACKAGED["paraphrase"], [answers])
    assert (
        reworded.after.case.responses[2].text
        == "See a doctor, and don't take this medication frequently."
    )
    assert (
        Planner(RUBRIC).plan(
            PACKAGED["paraphrase"], [answers_of(case_of("Why?", ("Rest.", "Wait.")))]
        )
        == []
    )
    assert Planner(RUBRIC).plan(PACKAGED["copy"], [answers_of(case_of("Why?", ("Rest.",)))]) == []
    (again,) = Planner(RUBRIC).plan(PACKAGED["repeat"], [answers])
    assert again.after.case.id != case.id
    assert again.after.case.digest == case.digest
    for measured in ("reading", "order"):
        assert Planner(RUBRIC).plan(PACKAGED[measured], [answers]) == []


def left_out(case: Case) -> dict[str, set[str]]:
    """Return the subject of a change that is not idle in a case → why."""
    planner, kinds = (
        Planner(RUBRIC),
        [edit for name in ("patient", "writer") for edit in PACKAGED[name].edits],
    )
    trials = [
        trial
        for name in ("patient", "writer")
        for trial in planner.plan(PACKAGED[name], [answers_of(case)])
    ]
    made = {trial.kind for trial in trials if not trial.control}
    out = {
        subject.partition(", ")[2]: set(reasons.values())
        for subject, reasons in planner.left_out.items()
    }
    for edit in kinds:
        assert (edit.kind in made) != (edit.kind.partition(":")[0] in out)
    return out


@pytest.mark.parametrize(("question", "names"), ROWS)
def test_a_case_in_which_the_change_is_not_idle_is_left_out_and_counted(
    question: str, names: list[str]
) -> None:
    assert set(left_out(case_of(question))) == set(names)


def test_the_answers_and_the_reference_leave_a_case_out_too() -> None:
    plain_question = "I twisted my ankle. What helps?"
    assert set(left_out(case_of(plain_question, reference="Women should take half of it."))) == {
        "sex"
    }
    assert set(left_out(case_of(plain_question, ("Ask Claude. It knows.", "Only rest.")))) == {
        "name of the model"
    }
    assert set(left_out(case_of(plain_question, ("Only rest.", "Wait. And see.")))) == {
        "style of a model"
    }
    assert Planner(RUBRIC).plan(PACKAGED["patient"], [[]]) == [], "no answer, no trial"


def test_both_sides_differ_in_nothing_else() -> None:
    case = case_of(
        [{"role": "user", "content": "Hello."}, {"role": "user", "content": "I cost $5. Why?"}]
    )
    trials: list[Trial] = []
    for name in ("patient", "writer"):
        trials += Planner(RUBRIC).plan(PACKAGED[name], [answers_of(case, slots=(1, 0))] * 2)
    assert len(trials) == 2 * (6 + 1 + 2), "cost is part of the question: nothing is said of income"
    for trial in trials:
        first, second = trial.before.case, trial.after.case
        assert first.question[0] == second.question[0] == case.question[0]
        differ = [a.text != b.text for a, b in zip(first.responses, second.responses)]
        if trial.perturbation.name == "patient":
            assert first.question[1]["content"].startswith("I cost $5. Why? ")
            assert first.question != second.question
            assert not any(differ)
            assert first.responses == case.responses
        else:
            assert first.question == case.question
            assert [index for index, each in enumerate(differ) if each] == [trial.target]
        assert trial.before.slots == trial.after.slots == (1, 0)
    assert {trial.target for trial in trials if trial.perturbation.name == "writer"} == {0, 1}, (
        "in turn"
    )
    listed = next(trial.after.case for trial in trials if trial.kind.startswith("style"))
    assert "\n- Rest it for two days.\n- Then walk a little.\n" in listed.responses[0].text
