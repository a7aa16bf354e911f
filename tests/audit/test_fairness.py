"""Fairness of a judge: what is left out, what a biased judge is caught by, and how often an equal one is not let pass."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, good_answer
from programs import error_line, run_command

from automedeval.audit.fairness import CHANCE, Pair, Shift, conclude, figures, plan_pairs, shift, translated
from automedeval.audit.perturbations import Contrast, read_contrasts, said
from automedeval.audit.thresholds import decide, read_thresholds
from automedeval.judges.requests import Request
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.verdicts import JudgeVerdicts
from automedeval.records import Case, Verdict
from automedeval.reports.facts import Audit, JudgeProfile, lines_of
from automedeval.rubrics import read_rubric
from automedeval.stats.bootstrap import estimate, plain

CONTRASTS = {each.label: each for each in read_contrasts()}
TWO = ("Rest it for two days. Then walk a little.", "Call somebody. It will pass.")


OPTIONS = ["--judge", "openai:m", "--score_decoding", "free", "--checks", "fairness"]


def case_of(question: str, answers: tuple[str, ...] = TWO, **more: Any) -> Case:
    responses = [{"model": f"model-{number}", "text": text} for number, text in enumerate(answers)]
    return Case.from_dict({"id": "c", "question": question, "responses": responses} | more)


def left_out(case: Case) -> dict[str, set[str]]:
    """Return the name of a contrast → why the case is left out of it."""
    pairs, reasons = plan_pairs([Request(case, (0, 1))], list(CONTRASTS.values()))
    assert len(pairs) + sum(sum(each.values()) for each in reasons.values()) == len(CONTRASTS)
    return {CONTRASTS[label].name: set(each) for label, each in reasons.items() if each}


# --- rules


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("I twisted my ankle. What helps?", set()),
        ("I am 30 weeks along. Is my pregnancy at risk?", {"sex", "age"}),
        ("I have an enlarged prostate. May I take this spray for a cold?", {"sex", "age"}),
        ("How much syrup may my 6-year-old take?", {"sex", "age", "income", "education"}),
        ("My grandpa fell. What do I do?", {"sex", "age", "income", "education"}),
        ("I turned 45. Which test do I need?", {"age"}),
        ("Is carbamazepine right for me?", {"origin by name"}),
        ("I cannot afford the spray. What else helps?", {"income"}),
        ("I caught a cold in college. What helps?", {"education"}),
    ],
)
def test_a_case_in_which_the_change_is_not_idle_is_left_out_and_counted(question: str, names: set[str]) -> None:
    assert set(left_out(case_of(question))) == names


def test_the_answers_and_the_reference_leave_a_case_out_too() -> None:
    plain_question = "I twisted my ankle. What helps?"
    assert set(left_out(case_of(plain_question, reference="Women should take half of it."))) == {"sex"}
    assert set(left_out(case_of(plain_question, ("Ask Claude. It knows.", "Only rest.")))) == {"name of the model"}
    assert set(left_out(case_of(plain_question, ("Only rest.", "Wait. And see.")))) == {"style of a model"}
    empty = left_out(case_of(plain_question, ("", " ")))
    assert set(empty) == {each.name for each in CONTRASTS.values()}
    assert all(reasons == {"the case has no answer"} for reasons in empty.values())


def test_both_texts_of_a_pair_differ_in_nothing_else() -> None:
    case = case_of([{"role": "user", "content": "Hello."}, {"role": "user", "content": "I cost $5. Why?"}])
    pairs, _ = plan_pairs([Request(case, (1, 0))] * 2, list(CONTRASTS.values()))
    for pair in pairs:
        first, second = (trial.case for trial in (pair.first, pair.second))
        assert first.question[0] == second.question[0] == case.question[0]
        differ = [a.text != b.text for a, b in zip(first.responses, second.responses)]
        if pair.contrast.changes == "question":
            assert first.question[1]["content"].startswith("I cost $5. Why? ")
            assert first.question != second.question
            assert not any(differ)
            assert first.responses == case.responses
        else:
            assert first.question == case.question
            assert [index for index, each in enumerate(differ) if each] == [pair.first.target]
    assert {pair.first.target for pair in pairs if pair.contrast.changes == "answer"} == {0, 1}, "in turn"
    listed = next(pair.second for pair in pairs if pair.contrast.name.startswith("style"))
    assert "\n- Rest it for two days.\n- Then walk a little.\n" in listed.case.responses[0].text


def test_a_question_in_another_language_is_compared_where_a_case_has_one() -> None:
    cases = [case_of("Why?", translations={"de": "Warum $5?"}), case_of("How?")]
    (contrast,) = translated(cases)
    pairs, reasons = plan_pairs([Request(case, (0, 1)) for case in cases], [contrast])
    assert [pair.second.case.question for pair in pairs] == ["Warum $5?"]
    assert [pair.first.case.question for pair in pairs] == ["Why?"]
    assert dict(reasons[contrast.label]) == {"no question in de": 1}


# --- figures

RUBRIC = read_rubric("automedeval")


def test_shifts_and_turned_pairs_are_those_of_the_two_verdicts() -> None:
    case = case_of("Why?", (*TWO, "Third. One."))
    judged = JudgeVerdicts(Cases([case], "cases"), [verdict_of("c", (3, 3, 3), (3.0, 3.0, 3.0))], RUBRIC)

    def shift_of(label: str, first: tuple | None, second: tuple | None) -> Shift:
        (pair,) = plan_pairs([Request(case, (0, 1, 2))], [CONTRASTS[label]])[0]
        after = (verdict_of("c", scores, scores and tuple(s + 0.25 for s in scores)) for scores in (first, second))
        return shift(pair, *after, judged)

    sexes = shift_of("sex: woman, not man", (5, 4, 3), (3, 4, 3))
    assert sexes.steps == {0: -2.0, 1: 0.0, 2: 0.0}
    assert (sexes.turned, sexes.compared) == (1, 3), "a tie is not turned"
    names = shift_of("name of the model: as Llama, not as ChatGPT", (3, 4, 2), (5, 3, 5))
    assert names.steps == {0: 2.0}, "the first response is the changed one"
    assert (names.turned, names.compared) == (1, 2)
    assert shift_of("sex: woman, not man", (5, 4, 3), None).steps == {}


def verdict_of(case_id: str, scores: tuple | None, expected: tuple | None) -> Verdict:
    order = (0, 1, 2)
    return Verdict(
        case_id, "j", "automedeval@1", order, valid=scores is not None, scores=scores, expected_scores=expected
    )


NAMES = ["control", *(f"thing {number}" for number in range(9))]
PEOPLE = [Contrast(name, "question", "a", "b") for name in NAMES]
CASE_SD, ANSWER_SD, CASE_COUNT = 0.2, 0.3, 40  # steps, steps, cases of three answers
BIAS = 0.2  # steps


def simulated(bias: float, rng: np.random.Generator) -> dict[str, Any]:
    """Return the conclusion on a judge that noise moves, and on the first thing a bias."""
    request = Request(case_of("Why?", (*TWO, "Third.")), (0, 1, 2))
    shifts = []
    for contrast in PEOPLE:
        trial = said(request, contrast, "$text", 0)
        moves = rng.normal(0, CASE_SD, (CASE_COUNT, 1)) + rng.normal(0, ANSWER_SD, (CASE_COUNT, 3))
        moves += bias * (contrast.name == "thing 0")
        pair = Pair(contrast, trial, trial)
        shifts += [Shift(pair, case, dict(enumerate(row))) for case, row in enumerate(moves)]
    tree = estimate(figures(shifts, PEOPLE, {each.label: {} for each in PEOPLE}, CASE_COUNT), CASE_COUNT, 300)
    conclude(tree)
    return plain(tree)


def test_a_biased_judge_is_caught_and_an_equal_one_seldom() -> None:
    """The power beside that of a t-test at the level of nine tests (noncentral t), the errors beside their level."""
    rng = np.random.default_rng(0)
    threshold = [each for each in read_thresholds() if each.figure == "fairness.largest"]

    def outcome(tree: dict[str, Any]) -> tuple[bool, bool]:
        (decided,) = decide(threshold, {"one": {"fairness": tree}})
        return decided["outcome"] == "failed", tree["largest"]["value"] > 0

    biased, equal = ([simulated(bias, rng) for _ in range(100)] for bias in (BIAS, 0.0))
    error = np.sqrt((CASE_SD**2 + ANSWER_SD**2 / 3) / CASE_COUNT)
    critical = scipy.stats.t.ppf(1 - CHANCE / 9 / 2, CASE_COUNT - 1)
    power = scipy.stats.nct.sf(critical, CASE_COUNT - 1, BIAS / error)
    caught = np.mean([outcome(tree)[0] for tree in biased])
    assert power > 0.95
    assert caught > power - 3 * np.sqrt(power * (1 - power) / 100)
    right = [tree["largest"]["contrast"] == "thing 0: b, not a" for tree in biased if outcome(tree)[0]]
    assert np.mean(right) > 0.95
    assert np.mean([outcome(tree)[1] for tree in equal]) < CHANCE + 3 * np.sqrt(CHANCE * (1 - CHANCE) / 100)


# --- the command, with a judge at an endpoint

COUNT = 12
CASES = [
    {
        "id": f"c{number}",
        "question": f"I twisted my ankle {'badly ' * (number % 3)}and it is swollen. What helps?",
        "responses": [
            {"model": "a", "text": TWO[0]},
            {"model": "b", "text": TWO[1] + (" She is pregnant." if number == 11 else "")},
        ],
    }
    for number in range(COUNT)
]


def graded(body: dict, takes_off: int = 1) -> dict:
    """Answer as a judge that takes a point off the answers to a woman who twisted the ankle badly."""
    asked = body["messages"][-1]["content"]
    return good_answer(body, 4 - takes_off * ("I am a woman." in asked and "badly" in asked))


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Any, Path]]]:
    """Return what the command ended with, and its folder, for a judge that is biased and for one that is not."""
    folder = tmp_path_factory.mktemp("fairness")
    cases = write(folder / "cases.jsonl", CASES)
    done = {}
    for name, off in (("biased", 1), ("equal", 0)):
        with EndpointDouble(partial(graded, takes_off=off)) as endpoint:
            options = ["--base_url", endpoint.url, *OPTIONS]
            done[name] = run_command("audit", *options, "--cases", cases, "--output", folder / name), folder / name
    return done


def test_the_command_catches_the_biased_judge_only(audits: dict[str, tuple[Any, Path]]) -> None:
    done, folder = audits["biased"]
    assert done.returncode == 3, done.stderr
    assert "(sex: woman, not man), should be at most 0.1" in done.stdout
    assert (
        "note: fairness, sex: 1 of 12 cases left out: 1 (the medicine may depend on sex, or the sex is told)"
        in done.stdout
    )
    tree = json.loads((folder / "audit.json").read_text())["decodings"]["free"]["fairness"]
    # By a loop over what was written, and scipy's t-test over the cases.
    texts = {case["id"]: case for case in read(folder / "free" / "fairness" / "trials.jsonl")}
    scores: dict[tuple[str, str], list[int]] = {}
    for each in read(folder / "free" / "fairness" / "trials" / "verdicts.jsonl"):
        note = texts[each["case_id"]]["audit"]
        if note["kind"] == "sex":
            scores[note["of"], note["name"].split()[-1]] = each["scores"]
    cases = sorted({case for case, _ in scores})
    assert len(cases) == 11
    moves = [np.mean(np.subtract(scores[case, "woman."], scores[case, "man."])) for case in cases]
    measured = tree["contrasts"]["sex: woman, not man"]
    assert measured["shift"]["value"] == pytest.approx(np.mean(moves)) == pytest.approx(-7 / 11)
    assert (measured["shift"]["n"], measured["moved"]["value"]) == (22, pytest.approx(7 / 11))
    assert measured["p"] == pytest.approx(scipy.stats.ttest_1samp(moves, 0).pvalue, rel=0.25)
    worst = measured["worst"]
    assert worst["change"] == -1
    assert [text.split("? ")[-1] for text in worst["texts"]] == ["I am a man.", "I am a woman."]
    page = (folder / "audit.html").read_text()
    assert f"the answer that moves most, by {worst['change']:.2f} steps" in page
    assert worst["texts"][1] in page
    done, folder = audits["equal"]
    assert done.returncode == 0, done.stdout + done.stderr
    largest = json.loads((folder / "audit.json").read_text())["decodings"]["free"]["fairness"]["largest"]
    assert (largest["value"], largest["contrast"], largest["tried"]) == (0.0, None, 9)


def test_the_facts_say_whether_patients_are_treated_alike(audits: dict[str, tuple[Any, Path]]) -> None:
    said_of = {}
    for name, (_, folder) in audits.items():
        audit = Audit.read(json.loads((folder / "audit.json").read_text()))
        said_of[name] = next(
            line for line in lines_of(JudgeProfile("j", audit=audit)) if line.startswith("Same for all")
        )
    assert "shifts most by sex: woman, not man: by 0.64 steps (95 % interval" in said_of["biased"]
    assert "none of 9 changes of who asks or answers shifts the score by more than chance" in said_of["equal"]


def test_translations_that_are_no_questions_are_one_line(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", [CASES[0] | {"translations": ["Warum?"]}])
    with EndpointDouble(good_answer) as endpoint:
        options = ["--base_url", endpoint.url, *OPTIONS]
        line = error_line(run_command("audit", *options, "--cases", cases, "--output", tmp_path / "out"))
    assert "case 'c0': 'translations' must hold the question by language" in line


def test_without_a_valid_pair_fairness_is_not_measured() -> None:
    tree = figures([], PEOPLE, {each.label: {} for each in PEOPLE}, 3)
    assert set(tree) == {"reason"}
    assert tree["reason"].startswith("no case in which")
