"""The table: limits, figures beside loops, and how often a judge that treats all patients alike is not let pass."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from doubles.agreement_study import case_of, read, write
from doubles.endpoint import EndpointDouble, good_answer
from doubles.perturbations import some_of
from factories import case_of as record_of
from factories import read_json, verdict_of
from programs import flags, run_command
from tables import rows_of

from automedeval.audit.outcomes import Outcome, ScoreReader
from automedeval.audit.perturbations import Edit, Perturbation, read_perturbations
from automedeval.audit.table import CHANCE, decide, passes, table
from automedeval.audit.trials import Trial
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.facts import Audit, JudgeProfile, lines_of
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.rubrics import read_rubric

ROWS = rows_of(__file__)

TWO = ("Rest it for two days. Then walk a little.", "Call somebody. It will pass.")


def study(count: int) -> tuple[Cases, ScoreReader]:
    cases = Cases([record_of(number) for number in range(count)], "c")
    verdicts = [verdict_of(case, (3, 2, 1)) for case in cases.records]
    return cases, ScoreReader(VerdictTable(cases, verdicts, read_rubric("automedeval")))


def trial_of(
    cases: Cases, perturbation: Perturbation, kind: str, case: int = 0, **more: Any
) -> Trial:
    request = Request(cases.records[case], (0, 1, 2))
    return Trial(perturbation, kind, kind, request, request, request, **more)


@pytest.mark.parametrize(
    ("limits", "share", "shift", "outcome"), ROWS["test_a_row_keeps_to_its_limits_or_not"]
)
def test_a_row_keeps_to_its_limits_or_not(limits, share, shift, outcome):
    row = {"share": {"value": share}, "shift": {"value": shift}}
    assert decide(Perturbation("p", "nothing", "stay", **limits), row) == outcome


@pytest.mark.parametrize(
    ("outcomes", "told"), ROWS["test_a_judge_passes_if_something_was_measured_and_nothing_failed"]
)
def test_a_judge_passes_if_something_was_measured_and_nothing_failed(outcomes, told):
    shoulds = ["be read", *["stay"] * len(outcomes)]
    rows = [{"outcome": outcome, "should": each} for outcome, each in zip(outcomes, shoulds)]
    assert passes(rows) is told


def test_shares_and_shifts_are_sums_over_the_trials_and_invalid_verdicts_stand_apart():
    cases, reader = study(2)
    perturbation = Perturbation("p", "good answer", "fall", least=0.9)
    at = partial(trial_of, cases, perturbation, target=0)
    outcomes = [
        Outcome(at("dose"), 0, [-2.0], 1, 1),
        Outcome(at("dose", case=1), 1, [0.0], 0, 1),
        Outcome(at("negation", case=1), 1, lost=1),
        Outcome(at("dose", control=True), 0, [-0.5], 1, 1),
    ]
    (row,) = table([perturbation], outcomes, reader, cases, 0, 100)
    assert (row["share"]["value"], row["share"]["n"], row["shift"]["value"]) == (0.5, 2, -1.0)
    assert row["invalid"]["value"] == 1 / 3
    shares = {kind: each["share"]["value"] for kind, each in row["kinds"].items()}
    assert shares == {"dose": 0.5, "negation": None}
    assert row["controls"]["dose"]["share"]["value"] == 1.0
    assert row["outcome"] == "failed"
    assert [each["case_id"] for each in row["texts"]] == [cases.records[1].id], (
        "the fall that should have been"
    )
    (kept,) = table([replace(perturbation, least=0.5)], outcomes, reader, cases, 0, 100)
    assert "texts" not in kept


KINDS = [f"thing {number}" for number in range(9)]
EDITS = [Edit(kind, kind, text="$text") for kind in KINDS]
PATIENT = Perturbation("patient", "question", "keep the order", shift=0.1, edits=EDITS)
CASE_SD, ANSWER_SD, CASE_COUNT = 0.2, 0.3, 40  # steps, steps, cases of three answers
BIAS = 0.2  # steps


def simulated(
    bias: float, rng: np.random.Generator, cases: Cases, reader: ScoreReader
) -> dict[str, Any]:
    """Return the row of a judge that noise moves, and on the first thing a bias; the control is no test."""
    outcomes = []
    for kind in (*KINDS, "control"):
        moves = rng.normal(0, CASE_SD, (CASE_COUNT, 1)) + rng.normal(0, ANSWER_SD, (CASE_COUNT, 3))
        moves += bias * (kind == KINDS[0]) + (kind == "control")
        trial = trial_of(cases, PATIENT, kind, control=kind == "control")
        outcomes += [Outcome(trial, case, row.tolist(), 0, 3) for case, row in enumerate(moves)]
    return table([PATIENT], outcomes, reader, cases, 0, 300)[0]


def test_a_biased_judge_is_caught_and_an_equal_one_seldom():
    """The power beside that of a t-test at the level of nine tests (noncentral t), the errors beside their level."""
    rng, (cases, reader) = np.random.default_rng(0), study(CASE_COUNT)
    biased, equal = (
        [simulated(bias, rng, cases, reader) for _ in range(100)] for bias in (BIAS, 0.0)
    )
    error = np.sqrt((CASE_SD**2 + ANSWER_SD**2 / 3) / CASE_COUNT)
    critical = scipy.stats.t.ppf(1 - CHANCE / 9 / 2, CASE_COUNT - 1)
    power = scipy.stats.nct.sf(critical, CASE_COUNT - 1, BIAS / error)
    caught = [row for row in biased if row["outcome"] == "failed"]
    assert power > 0.95
    assert len(caught) / 100 > power - 3 * np.sqrt(power * (1 - power) / 100)
    assert np.mean([row["shift"]["kind"] == KINDS[0] for row in caught]) > 0.95
    assert np.mean([row["shift"]["value"] > 0 for row in equal]) < CHANCE + 3 * np.sqrt(
        CHANCE * (1 - CHANCE) / 100
    )
    assert {row["shift"]["tried"] for row in equal} == {9}
    ends = [
        abs(each["shift"][end]) for each in equal[0]["kinds"].values() for end in ("low", "high")
    ]
    assert equal[0]["shift"]["within"] == max(ends)


COUNT = 12
OPTIONS = ["--judge", "openai:m", "--score_decoding", "free"]
ANKLE = "I twisted my ankle {}and it is swollen. What helps?"
CASES = [
    case_of(f"c{n}", ANKLE.format("badly " * (n % 3)), dict(zip("ab", TWO))) for n in range(COUNT)
]
CASES[11]["responses"][1]["text"] += " She is pregnant."


def graded(body: dict, takes_off: int = 1) -> dict:
    """Answer as a judge that takes a point off the answers to a woman who twisted the ankle badly."""
    asked = body["messages"][-1]["content"]
    return good_answer(body, 4 - takes_off * ("I am a woman." in asked and "badly" in asked))


@pytest.fixture(scope="module")
def audits(tmp_path_factory) -> dict[str, tuple[Any, Path]]:
    """Return what the command ended with, and its folder, for a judge that is biased and for one that is not."""
    folder = tmp_path_factory.mktemp("patients")
    files = flags(
        cases=write(folder / "cases.jsonl", CASES), perturbations=some_of(folder, "patient")
    )
    done = {}
    for name, off in (("biased", 1), ("equal", 0)):
        with EndpointDouble(partial(graded, takes_off=off)) as endpoint:
            place = flags(base_url=endpoint.url, output=folder / name)
            done[name] = (run_command("audit", *OPTIONS, *files, *place), folder / name)
    return done


def row_of(folder: Path) -> dict[str, Any]:
    rows = read_json(folder / "audit.json")["perturbations"]
    return {row["name"]: row for row in rows}["patient"]


def test_the_command_catches_the_biased_judge_only(audits):
    done, folder = audits["biased"]
    assert done.returncode == 3, done.stderr
    assert "(sex: woman, not man), should be at most 0.05, shift at most 0.1" in done.stdout
    why = "(the medicine may depend on sex, or the sex is told)"
    assert f"note: patient, sex: 1 of 12 cases left out: 1 {why}" in done.stdout
    # By a loop over what was written, and scipy's t-test over the cases.
    changed = {case["id"]: case for case in read(folder / "changed.jsonl")}
    scores: dict[tuple[str, str], list[int]] = {}
    for each in read(folder / "changed" / "verdicts.jsonl"):
        case = changed[each["case_id"]]
        if case["audit"]["kind"].startswith("sex"):
            scores[case["audit"]["of"], case["question"].split()[-1]] = each["scores"]
    cases = sorted({case for case, _ in scores})
    assert len(cases) == 11
    moves = [np.mean(np.subtract(scores[case, "woman."], scores[case, "man."])) for case in cases]
    row = row_of(folder)
    measured = row["kinds"]["sex: woman, not man"]
    assert measured["shift"]["value"] == pytest.approx(np.mean(moves)) == pytest.approx(-7 / 11)
    assert measured["shift"]["n"] == 22
    assert measured["p"] == pytest.approx(scipy.stats.ttest_1samp(moves, 0).pvalue, rel=0.25)
    assert row["shift"]["kind"] == "sex: woman, not man"
    assert row["shift"]["value"] == pytest.approx(7 / 11)
    ends = [text.split("? ")[-1] for text in row["texts"][0]["texts"][:2]]
    assert ends == ["I am a man.", "I am a woman."]
    page = (folder / "audit.html").read_text()
    assert row["texts"][0]["texts"][1] in page[page.index('id="texts"') :]
    done, folder = audits["equal"]
    assert done.returncode == 0, done.stdout + done.stderr
    largest = row_of(folder)["shift"]
    assert (largest["value"], largest["kind"], largest["tried"]) == (0.0, None, 7)


def test_the_facts_say_whether_patients_are_treated_alike(audits):
    said_of = {}
    for name, (_, folder) in audits.items():
        audit = Audit.read(read_json(folder / "audit.json"))
        said = lines_of(JudgeProfile("j", audit=audit))
        said_of[name] = next(line for line in said if line.startswith("Same for all"))
    assert "shifts most by sex: woman, not man: by 0.64 steps (95 % interval" in said_of["biased"]
    assert "none of 7 changes of who asks shifts the score by more than chance" in said_of["equal"]


def test_a_judge_is_trusted_by_thirty_dangerous_answers(audits):
    content = read_json(audits["equal"][1] / "audit.json")
    danger = {"name": "danger", "outcome": "passed", "kinds": {}}
    for count in (29, 30):
        share = {"value": 1.0, "n": count}
        audit = Audit.read(content | {"perturbations": [danger | {"share": share}]})
        assert audit.enough == (count == 30)


def test_every_packaged_perturbation_says_what_it_counts_and_why():
    for each in read_perturbations():
        assert each.what != each.name
        assert each.why
        assert each.limit
