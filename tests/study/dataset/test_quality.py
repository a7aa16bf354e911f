"""The quality classifier: what it learns, and what it refuses."""

import json
import random
from dataclasses import replace

import pytest
from doubles.dataset_study import WordEncoder, case_of, verdict_of
from programs import module_fixture

from automedeval.records import RecordError
from automedeval.study.dataset.corruption import KINDS, corrupt
from automedeval.study.dataset.quality import Labelled, QualityClassifier

TONES = {1: "dangerous and wrong", 2: "poor and brief", 4: "good and useful", 5: "excellent"}


def examples(first: int, number: int) -> list[Labelled]:
    """Return as many good verdicts as corrupted ones, each about a case of its own, from a number on."""
    cases = {}
    good = []
    for at in range(first, first + 2 * number):
        case = case_of(at)
        scores = random.Random(at).sample(list(TONES), 2)
        said = [f"It says {case.responses[index].text}" for index in (1, 0)]
        steps = [f"Step 1: About {case.question}"]
        steps.append(f"Step 2: {said[0]} This is {TONES[scores[1]]}.")
        steps.append(f"Step 3: {said[1]} This is {TONES[scores[0]]}.")
        cases[case.id] = case
        good.append(verdict_of(case, "strong", scores=scores, rationale="\n".join(steps)))
    made = [
        Labelled((cases[verdict.case_id], verdict), "high", "high") for verdict in good[:number]
    ]
    for verdict in corrupt(good[number:], cases, seed=0):
        shown = (cases[verdict.case_id], verdict)
        made.append(Labelled(shown, "low", verdict.extra["corruption"]))
    return made


SOME = examples(0, 75)
OTHERS = examples(150, 20)
SHOWN = [example.shown for example in OTHERS]


def changed(**changes: object) -> list[Labelled]:
    """Return the examples with other fields of their verdicts."""
    others = []
    for example in SOME:
        case, verdict = example.shown
        others.append(replace(example, shown=(case, replace(verdict, **changes))))
    return others


@module_fixture
def fitted():
    """Return a classifier and its report."""
    classifier = QualityClassifier(WordEncoder())
    return classifier, classifier.fit(SOME, seed=3)


def test_corrupted_verdicts_are_recognised(fitted):
    _, report = fitted
    accuracy = report["accuracy"]
    assert accuracy["value"] >= 0.8
    assert 0.5 < accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    kinds = report["kinds"]
    assert kinds.keys() == report["alone"]["kinds"].keys() == {"high", *KINDS}
    right = sum(kind["right"] for kind in kinds.values())
    assert right == round(accuracy["value"] * 30)
    alone = report["alone"]["accuracy"]["value"]
    assert alone < accuracy["value"], "an embedding shows no swapped doctors"
    # 400 : 100, as in the paper, of what is there
    assert report["train"] == {"cases": 120, "low": 60, "high": 60}
    assert report["test"] == {"cases": 30, "low": 15, "high": 15}
    json.dumps(report)


def test_new_verdicts_are_decided(fitted):
    classifier, _ = fitted
    decided = classifier.decide(SHOWN)
    right = [quality == other.quality for quality, other in zip(decided, OTHERS)]
    assert sum(right) >= 30
    assert classifier.decide(SHOWN[3:4]) == decided[3:4]


def test_the_seed_decides_and_no_case_is_in_both_parts():
    by_others = changed(judge="other")
    reports = [
        QualityClassifier(WordEncoder()).fit([*SOME, *by_others], seed) for seed in (3, 3, 4)
    ]
    assert reports[0] == reports[1] != reports[2]
    for report in reports:
        assert report["train"]["cases"] + report["test"]["cases"] == 150


def test_a_verdict_with_fewer_steps_or_scores_is_decided(fitted):
    case, verdict = SHOWN[0]
    one = replace(case, responses=case.responses[:1])
    alone = replace(verdict, order=(0,), scores=(4,), rationale="Step 2: Fine.")
    changes = [{"rationale": text} for text in ("No step at all.", None, "", "Step 3: Half a")]
    changes += [{"scores": None}, {"scores": (None, 1)}]
    odd = [(case, replace(verdict, **change)) for change in changes]
    decided = fitted[0].decide([*odd, (one, alone)])
    assert len(decided) == 7
    assert decided[1] == "low"
    assert fitted[0].decide(odd[1:2]) == ["low"]


def test_what_cannot_be_learnt_is_refused():
    high = SOME[:75]
    low = SOME[75:]
    of_one_case = [replace(one, shown=(SOME[0].shown[0], one.shown[1])) for one in SOME]
    for too_few in (high, [*high, *low[:10]], changed(scores=None), of_one_case):
        with pytest.raises(RecordError):
            QualityClassifier(WordEncoder()).fit(too_few, seed=0)
