"""Trials: which answer of a case is changed, how often each edit is dealt, and what is left out."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from doubles.agreement_study import case_of as line_of
from tables import each_row

from automedeval.audit.perturbations import Edit, Perturbation, read_perturbations
from automedeval.audit.trials import Planner, Trial, ValuedAnswer
from automedeval.judges.requests import Request
from automedeval.records import Case
from automedeval.rubrics import read_rubric

RUBRIC = read_rubric("automedeval")
PACKAGED = {each.name: each for each in read_perturbations()}
TWO = ("Rest it for two days. Then walk a little.", "Call somebody. It will pass.")


def case_of(question: Any, answers: Sequence[str] = TWO, **more: Any) -> Case:
    named = dict(zip(("model-0", "model-1", "model-2"), answers))
    return Case.from_dict(line_of("c", question, named, **more))


def answers_of(case: Case, values: Sequence[float], slots: tuple[int, ...] = ()) -> list:
    """Return the answers of a case by their values, the worst first."""
    request = Request(case, slots or tuple(range(len(values))))
    answers = [ValuedAnswer(request, index, value) for index, value in enumerate(values)]
    return sorted(answers, key=lambda answer: answer.value)


def falling(case: Case) -> list:
    """Return the answers of a case whose first one is the best."""
    values = range(len(case.responses), 0, -1)
    return answers_of(case, values)


def plan(name: str, *answers: list, **more: Any) -> list[Trial]:
    """Return the trials of a packaged perturbation."""
    planner = Planner(RUBRIC, **more)
    return planner.plan(PACKAGED[name], answers)


def edits_of(names: str, kind: str = "f") -> list[Edit]:
    return [Edit(kind, name, texts=[[f"{name}!"]]) for name in names]


def test_planted_texts_go_into_the_worst_and_are_dealt_in_turn():
    edits = edits_of("abcd")
    harmless = edits_of("xy", kind="control")
    planting = Perturbation("p", "worst answer", "not rise", edits=edits, controls=harmless)
    answers = answers_of(case_of("Why?"), (4, 2))
    cases = [answers] * 4 + [[]]
    trials = Planner(RUBRIC, most=2).plan(planting, cases)
    assert {trial.target for trial in trials} == {1}
    dealt = Counter(trial.edit for trial in trials)
    assert dealt == Counter("abcdxy" * 2)
    controls = Counter(trial.edit for trial in trials if trial.control)
    assert controls == Counter("xxyy")
    every = Planner(RUBRIC).plan(planting, cases)
    assert len(every) == 4 * (4 + 1)
    drawn = set()
    for seed in range(5):
        planned = Planner(RUBRIC, most=1, seed=seed).plan(planting, cases)
        drawn.add(tuple(trial.edit for trial in planned))
    assert len(drawn) > 1


@each_row("values, place")
def test_the_text_names_the_place_in_which_the_answer_is_shown(values, place):
    edit = Edit("k", "k", texts=[["$slot of $count, best $best"]])
    named = Perturbation("p", "worst answer", "not rise", edits=[edit])
    answers = answers_of(case_of("Why?", ("A.", "B.", "C.")), values, slots=(2, 0, 1))
    (trial,) = Planner(RUBRIC).plan(named, [answers])
    text = trial.after.case.responses[trial.target].text
    assert text.endswith(f"Doctor {place} of 3, best 5")


@each_row("texts, target, dangers, twins")
def test_a_danger_goes_into_the_best_fact(texts, target, dangers, twins):
    """But never into the worst of several; it has as many clean twins of its kind in the same answer."""
    answers = falling(case_of("Why?", texts))
    trials = plan("danger", answers)
    assert {(trial.kind, trial.target) for trial in trials} == {("dose", target)}
    assert [trial.edit for trial in trials if not trial.control] == dangers
    assert [trial.edit for trial in trials if trial.control] == twins
    dealt = plan("danger", answers, answers, most=1)
    assert [trial.edit for trial in dealt if not trial.control] == dangers[:2]


FIRST = "See a doctor, and do not take this medicine often."


def planned(name: str, *texts: str) -> list[Trial]:
    return plan(name, falling(case_of("Why?", texts)))


@each_row("name, kind, text")
def test_the_worst_answer_becomes_a_copy_or_a_paraphrase_of_the_best(name, kind, text):
    (trial,) = planned(name, FIRST, "Rest.", "Wait.")
    after = [response.text for response in trial.after.case.responses]
    assert after == [FIRST, "Rest.", text]
    assert (trial.kind, trial.target, trial.other) == (kind, 0, 2)


def test_a_case_is_repeated_and_what_cannot_be_changed_has_no_trial():
    (again,) = planned("repeat", FIRST, "Rest.")
    assert again.after.case.id != again.clean.case.id
    assert again.after.case.digest == again.clean.case.digest
    assert planned("paraphrase", "Rest.", "Wait.") == planned("copy", "Rest.") == []
    assert planned("reading", FIRST) == planned("order", FIRST) == []
    assert plan("patient", []) == [], "no answer, no trial"


def left_out(case: Case) -> set[str]:
    """Return the subjects of the changes that are not idle in a case; the others are made."""
    planner = Planner(RUBRIC)
    made = set()
    kinds = set()
    for name in ("patient", "writer"):
        perturbation = PACKAGED[name]
        kinds.update(edit.kind for edit in perturbation.edits)
        for trial in planner.plan(perturbation, [falling(case)]):
            if not trial.control:
                made.add(trial.kind)
    out = {subject.partition(", ")[2] for subject in planner.left_out}
    left = {kind for kind in kinds if kind.partition(":")[0] in out}
    assert made == kinds - left
    return out


@each_row("question, names")
def test_a_case_in_which_the_change_is_not_idle_is_left_out_and_counted(question, names):
    assert left_out(case_of(question)) == set(names)


@each_row("more, name")
def test_the_answers_and_the_reference_leave_a_case_out_too(more, name):
    assert left_out(case_of("I twisted my ankle. What helps?", **more)) == {name}


def test_the_last_message_is_changed_or_one_answer_in_turn():
    messages = [{"role": "user", "content": text} for text in ("Hello.", "I cost $5. Why?")]
    answers = falling(case_of(messages))
    asked = plan("patient", answers)
    assert len(asked) == 7, "cost is part of the question: nothing is said of income"
    for trial in asked:
        greeting, before = trial.before.case.question
        other_greeting, after = trial.after.case.question
        assert greeting == other_greeting == messages[0]
        assert before["content"].startswith("I cost $5. Why? ")
        assert before != after
    signed = plan("writer", answers, answers)
    assert {trial.target for trial in signed} == {0, 1}
    listed = next(trial.after.case for trial in signed if trial.kind.startswith("style"))
    assert "\n- Rest it for two days.\n- Then walk a little.\n" in listed.responses[0].text
