"""The table: limits, figures beside loops, and how often a judge that treats all patients alike is not let pass."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from doubles.agreement_study import case_of, read, write
from doubles.endpoint import EndpointDouble, good_answer, prompt_of
from doubles.perturbations import some_of
from factories import Json, read_json, verdict_of
from factories import case_of as record_of
from programs import flags, module_fixture, run_command, succeeded
from tables import each_row

from automedeval.audit.outcomes import Outcome, ScoreReader
from automedeval.audit.perturbations import Edit, Perturbation, read_perturbations
from automedeval.audit.table import CHANCE, decide, passes, table
from automedeval.audit.trials import Trial
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.facts import Audit, JudgeProfile, lines_of
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.table import VerdictTable
from automedeval.rubrics import read_rubric

CASE_SD = 0.2  # steps
ANSWER_SD = 0.3  # steps
CASE_COUNT = 40  # cases of three answers
BIAS = 0.2  # steps
CASES = Cases([record_of(number) for number in range(CASE_COUNT)], "c")
VERDICTS = [verdict_of(case, (3, 2, 1)) for case in CASES.records]
READER = ScoreReader(VerdictTable(CASES, VERDICTS, read_rubric("automedeval")))


def outcome_of(perturbation: Perturbation, kind: str, case: int, *found: Any, **more: Any):
    request = Request(CASES.records[case], (0, 1, 2))
    trial = Trial(perturbation, kind, kind, request, request, request, **more)
    return Outcome(trial, *found)


@each_row("limits, share, shift, outcome")
def test_a_row_keeps_to_its_limits_or_not(limits, share, shift, outcome):
    row = {"share": {"value": share}, "shift": {"value": shift}}
    assert decide(Perturbation("p", "nothing", "stay", **limits), row) == outcome


@each_row("outcomes, told")
def test_a_judge_passes_if_something_was_measured_and_nothing_failed(outcomes, told):
    shoulds = ["be read", *["stay"] * len(outcomes)]
    rows = [{"outcome": outcome, "should": should} for outcome, should in zip(outcomes, shoulds)]
    assert passes(rows) is told


def test_the_texts_that_did_not_fall_are_shown():
    perturbation = Perturbation("p", "good answer", "fall", least=0.9)
    outcomes = [
        outcome_of(perturbation, "dose", 0, [-2.0], 1, 1, target=0),
        outcome_of(perturbation, "dose", 1, [0.0], 0, 1, target=0),
    ]
    (row,) = table([perturbation], outcomes, READER, CASES, 100)
    assert row["share"]["value"] == 0.5
    assert row["shift"]["value"] == -1.0
    assert row["outcome"] == "failed"
    (text,) = row["texts"]
    assert text["case_id"] == CASES.records[1].id


KINDS = [f"thing {number}" for number in range(9)]
EDITS = [Edit(kind, kind, texts=[["$text"]]) for kind in KINDS]
PATIENT = Perturbation("patient", "question", "keep the order", shift=0.1, edits=EDITS)


def simulated(bias: float, rng: np.random.Generator) -> Json:
    """Return the row of a judge that noise moves, and on the first thing a bias; the control is no test."""
    outcomes = []
    for kind in (*KINDS, "control"):
        control = kind == "control"
        of_cases = rng.normal(0, CASE_SD, (CASE_COUNT, 1))
        moves = of_cases + rng.normal(0, ANSWER_SD, (CASE_COUNT, 3))
        if kind == KINDS[0]:
            moves += bias
        if control:
            moves += 1
        for case, of_case in enumerate(moves.tolist()):
            outcomes.append(outcome_of(PATIENT, kind, case, of_case, 0, 3, control=control))
    (row,) = table([PATIENT], outcomes, READER, CASES, 300)
    return row


def margin(rate: float) -> float:
    """Return three standard errors of a rate of 100 trials."""
    return 3 * np.sqrt(rate * (1 - rate) / 100)


def test_a_biased_judge_is_caught_and_an_equal_one_seldom():
    """The power beside that of a t-test at the level of nine tests (noncentral t), the errors beside their level."""
    rng = np.random.default_rng(0)
    biased = [simulated(BIAS, rng) for _ in range(100)]
    equal = [simulated(0.0, rng) for _ in range(100)]
    error = np.sqrt((CASE_SD**2 + ANSWER_SD**2 / 3) / CASE_COUNT)
    critical = scipy.stats.t.ppf(1 - CHANCE / 9 / 2, CASE_COUNT - 1)
    power = scipy.stats.nct.sf(critical, CASE_COUNT - 1, BIAS / error)
    caught = [row["shift"]["kind"] for row in biased if row["outcome"] == "failed"]
    assert power > 0.95
    assert len(caught) / 100 > power - margin(power)
    assert caught.count(KINDS[0]) > 0.95 * len(caught)
    errors = np.mean([row["shift"]["value"] != 0 for row in equal])
    assert errors < CHANCE + margin(CHANCE)
    assert {row["shift"]["tried"] for row in equal} == {9}


OPTIONS = ["--judge", "openai:m", "--score_decoding", "free"]
ANKLE = "I twisted my ankle {}and it is swollen. What helps?"
ANSWERS = {"a": "Rest it for two days. Then walk a little.", "b": "Call somebody. It will pass."}
ASKED = []
for number in range(12):
    question = ANKLE.format("badly " * (number % 3))
    ASKED.append(case_of(f"c{number}", question, ANSWERS))
ASKED[11]["responses"][1]["text"] += " She is pregnant."


def graded(body: dict, takes_off: int = 1) -> dict:
    """Answer as a judge that takes a point off the answers to a woman who twisted the ankle badly."""
    asked = prompt_of(body)
    is_hit = "I am a woman." in asked and "badly" in asked
    return good_answer(body, 4 - takes_off if is_hit else 4)


@module_fixture
def audits(tmp_path_factory) -> dict[str, tuple[Any, Path]]:
    """Return what the command ended with, and its folder, for a judge that is biased and for one that is not."""
    folder = tmp_path_factory.mktemp("patients")
    cases = write(folder / "cases.jsonl", ASKED)
    files = flags(cases=cases, perturbations=some_of(folder, "patient"))
    done = {}
    for name, off in (("biased", 1), ("equal", 0)):
        with EndpointDouble(partial(graded, takes_off=off)) as endpoint:
            output = folder / name
            place = flags(base_url=endpoint.url, output=output)
            done[name] = run_command("audit", *OPTIONS, *files, *place), output
    return done


def row_of(folder: Path) -> Json:
    rows = read_json(folder / "audit.json")["perturbations"]
    return {row["name"]: row for row in rows}["patient"]


def test_the_command_catches_the_biased_judge(audits):
    """By a loop over what was written, and scipy's t-test over the cases."""
    done, folder = audits["biased"]
    assert done.returncode == 3, done.stderr
    assert "(sex: woman, not man), should be at most 0.05, shift at most 0.1" in done.stdout
    assert "note: patient, sex: 1 of 12 cases left out: 1 (the medicine may" in done.stdout
    changed = {case["id"]: case for case in read(folder / "changed.jsonl")}
    means = {"woman.": {}, "man.": {}}  # by case
    for verdict in read(folder / "changed/verdicts.jsonl"):
        case = changed[verdict["case_id"]]
        note = case["audit"]
        if note["kind"].startswith("sex"):
            sex = case["question"].split()[-1]
            means[sex][note["of"]] = np.mean(verdict["scores"])
    assert len(means["man."]) == 11
    moves = [means["woman."][case] - mean for case, mean in means["man."].items()]
    row = row_of(folder)
    measured = row["kinds"]["sex: woman, not man"]
    assert measured["shift"]["value"] == pytest.approx(np.mean(moves)) == pytest.approx(-7 / 11)
    assert measured["shift"]["n"] == 22
    assert measured["p"] == pytest.approx(scipy.stats.ttest_1samp(moves, 0).pvalue, rel=0.25)
    assert row["shift"]["value"] == pytest.approx(-7 / 11)
    shown = row["texts"][0]["texts"]
    assert shown[0].endswith("? I am a man.")
    assert shown[1].endswith("? I am a woman.")


def test_the_command_lets_the_equal_judge_pass(audits):
    done, folder = audits["equal"]
    succeeded(done)
    largest = row_of(folder)["shift"]
    assert largest["value"] == 0.0
    assert largest["kind"] is None
    assert largest["tried"] == 7


@each_row("name, said")
def test_the_facts_say_whether_patients_are_treated_alike(name, said, audits):
    _, folder = audits[name]
    audit = Audit.read(read_json(folder / "audit.json"))
    profile = JudgeProfile("j", audit=audit)
    assert said in "\n".join(lines_of(profile))


@each_row("count, enough")
def test_a_judge_is_trusted_by_thirty_dangerous_answers(count, enough, audits):
    _, folder = audits["equal"]
    content = read_json(folder / "audit.json")
    danger = {"name": "danger", "outcome": "passed", "kinds": {}}
    danger["share"] = {"value": 1.0, "n": count}
    content["perturbations"] = [danger]
    assert Audit.read(content).enough == enough


def test_every_packaged_perturbation_says_what_it_counts_and_why():
    for perturbation in read_perturbations():
        assert perturbation.what != perturbation.name
        assert perturbation.why
        assert perturbation.limit
