"""Who said it: sentences that credit a doctor with what another wrote."""

import json
import time

import pytest
from programs import ROOT, SAMPLE
from tables import rows_of

from automedeval.dataset.corruption import corrupt
from automedeval.records import Case, Response, Verdict, read_cases
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import parse_verdict
from automedeval.rubrics.misattribution import Misattribution, misattributions, terms

RUN = ROOT / "recipes" / "runs" / "automedeval-135m"
CASE = Case(
    "c",
    "My migraine tablets fail. What now?",
    (
        Response("m1", "Take ibuprofen 400 mg with crackers. Keep a headache diary."),
        Response("m2", "A neurologist might prescribe sumatriptan, 50 mg, within 1,200 seconds. Dim every lamp."),
        Response("m3", "Drink peppermint tea and rest in a dark room."),
    ),
)


def verdict(rationale: str | None, order: tuple[int, ...] = (0, 1, 2)) -> Verdict:
    return Verdict("c", "judge", "automedeval@1", order, valid=True, rationale=rationale, scores=(3, 4, 2))


def marks(rationale: str | None, order: tuple[int, ...] = (0, 1, 2)) -> list[tuple[int, int, int, tuple[str, ...]]]:
    marks = misattributions(CASE, verdict(rationale, order))
    return [(mark.step, mark.credited, mark.said_by, mark.evidence) for mark in marks]


def test_a_step_is_about_its_doctor() -> None:
    text = "Step 1: Migraine.\nStep 2: Good. It wisely mentions sumatriptan and the neurologist.\nStep 3: Fine."
    assert misattributions(CASE, verdict(text)) == [
        Misattribution(
            "It wisely mentions sumatriptan and the neurologist.", 1, 1, 2, ("sumatriptan", "neurologist"), 2.0
        )
    ]


def test_a_step_that_is_right_is_not_marked() -> None:
    text = """Step 1: Tablets against migraine fail; sumatriptan, peppermint, crackers?
Step 2: Ibuprofen 400 mg with crackers.
Step 3: Prescribes sumatriptan 50 mg, the neurologist's choice.
Step 4: Peppermint tea, a dark room. Migraine tablets."""
    assert marks(text) == []


def test_slots_follow_the_order() -> None:
    text = "Step 2: Sumatriptan by a neurologist.\nStep 3: Peppermint tea.\nStep 4: Ibuprofen, crackers."
    assert marks(text, (1, 2, 0)) == []
    assert [mark[:3] for mark in marks(text)] == [(1, 1, 2), (2, 2, 3), (3, 3, 1)]
    assert [mark[:3] for mark in marks("Step 2: Peppermint tea.", (1, 0))] == []  # the third was not shown


def test_a_doctor_who_is_named_counts() -> None:
    assert marks("Doctor 3 prescribes sumatriptan by a neurologist.") == [
        (0, 3, 2, ("prescribes", "sumatriptan", "neurologist"))
    ]
    assert marks("Step 2: Doctor 2 is better, with sumatriptan from the neurologist.") == []
    assert marks("Sumatriptan and the neurologist come up.") == []  # nobody is credited


@pytest.mark.parametrize("clause", rows_of(__file__)["test_what_is_missing_is_not_credited"])
def test_what_is_missing_is_not_credited(clause: str) -> None:
    assert marks(f"Step 2: {clause}") == []


def test_numbers_and_quotations_weigh_more() -> None:
    assert marks("Step 2: Acts in 1200 seconds.") == [(1, 1, 2, ("1200", "seconds"))]
    assert marks('Step 2: Says "Dim every lamp".') == [(1, 1, 2, ("Dim", "lamp", "Dim every lamp"))]
    assert marks('Step 2: Says "crackers and a lamp".') == []  # nobody says that
    assert marks("Step 2: Dim.") == []  # one word is chance
    assert len(misattributions(CASE, verdict("Step 2: Dim."), enough=1.0)) == 1


def test_terms_are_stems() -> None:
    assert terms("Prescribes") == terms("prescribed") == terms("prescribing")
    assert terms("1,200 mg") == {"1200"}
    assert terms("This is the best answer of all") == set()


@pytest.mark.parametrize("rationale", [None, "", "Analyze:", "Step 2:"])
def test_without_words_there_is_nothing_to_mark(rationale: str | None) -> None:
    assert marks(rationale) == []


def test_recorded_verdicts_are_mostly_clean_and_swapped_ones_mostly_marked() -> None:
    checks = [json.loads(line) for line in (RUN / "verdict_ratings.jsonl").read_text(encoding="utf-8").splitlines()]
    faulty = {check["case_id"] for check in checks if not check["score"]}
    cases = {case.id: case for part in ("train", "test") for case in read_cases(SAMPLE / f"{part}_cases.jsonl")}
    rubric, good = read_rubric("automedeval"), []
    for line in (RUN / "teacher.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if (record["teacher"], record["knowledge"]) != ("strong", "chain") or record["case_id"] in faulty:
            continue
        reading = parse_verdict(record["text"], rubric, 3)
        if reading.valid:
            about = {"valid": True, "rationale": reading.rationale, "scores": reading.scores}
            good.append(Verdict(record["case_id"], "strong", rubric.name, (0, 1, 2), **about))
    assert len(good) >= 40
    started = time.process_time()
    marked = sum(bool(misattributions(cases[one.case_id], one)) for one in good)
    swapped = corrupt(good, cases, seed=0, kinds=["swapped_doctors"])
    detected = sum(bool(misattributions(cases[one.case_id], one)) for one in swapped)
    assert marked <= 0.2 * len(good)
    assert detected >= 0.6 * len(swapped)
    assert time.process_time() - started < 5


def test_a_long_text_is_read_quickly() -> None:
    long = "Step 2: " + "sumatriptan " * 20_000 + '"' * 20_000 + " but" * 20_000 + " leaving" * 20_000
    started = time.process_time()
    misattributions(CASE, verdict(long))
    assert time.process_time() - started < 5
