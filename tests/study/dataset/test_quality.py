"""The quality classifier: what it learns, and what it refuses."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from automedeval.records import Case, RecordError, Response, Verdict
from automedeval.study.dataset.corruption import KINDS, corrupt
from automedeval.study.dataset.quality import Labelled, QualityClassifier

# Of the scores 1 to 5.
TONES = ["dangerous and wrong", "poor and incomplete", "acceptable", "good and useful", "excellent"]
THINGS = [f"thing{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(10)]


@dataclass
class WordEncoder:
    """Sum a random direction for each word: texts that share words are close."""

    name: str = "words"
    fingerprint: str = "f1"

    def encode(self, texts: list[str]) -> np.ndarray:
        def direction(word):
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
            return np.random.default_rng(seed).normal(size=48)

        words = (re.findall(r"\w+", text.lower()) for text in texts)
        return np.array([sum(map(direction, each), np.zeros(48)) for each in words], "float32")


def labelled(number: int, seed: int = 0) -> list[Labelled]:
    """Return as many good verdicts as corrupted ones, each about a case of its own."""
    rng = np.random.default_rng(seed)
    cases, good = {}, []
    for row in range(2 * number):
        words = rng.choice(THINGS, (3, 4), replace=False)
        responses = (Response(f"m{k}", " ".join(["take", *some])) for k, some in enumerate(words))
        case = Case(f"c{row}", f"What about {words[0, 0]}?", tuple(responses))
        cases[case.id] = case
        order = tuple(map(int, rng.permutation(3)))
        scores = tuple(int(score) for score in rng.choice(5, 3, replace=False) + 1)
        steps = [f"Takes {' '.join(words[i, :3])}, {TONES[scores[i] - 1]}." for i in order]
        steps = [f"About {words[0, 0]}.", *steps]
        rationale = "\n".join(f"Step {k}: {step}" for k, step in enumerate(steps, 1))
        said = {"valid": True, "rationale": rationale, "scores": scores}
        good.append(Verdict(case.id, "t", "automedeval@1", order, **said))
    bad = corrupt(good[number:], cases, seed)
    low = [Labelled(cases[one.case_id], one, "low", one.extra["corruption"]) for one in bad]
    return [Labelled(cases[one.case_id], one, "high") for one in good[:number]] + low


SOME = labelled(75)
OTHERS = labelled(20, seed=9)


Fitted = tuple[QualityClassifier, dict[str, Any]]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
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
    decided = classifier.decide(OTHERS)
    truth = ["high"] * 20 + ["low"] * 20
    assert sum(quality == expected for quality, expected in zip(decided, truth)) >= 30
    assert classifier.decide(OTHERS[3:4]) == decided[3:4]


def test_the_seed_decides_and_no_case_is_in_both_parts():
    by_others = [replace(one, verdict=replace(one.verdict, judge="other")) for one in SOME]
    reports = [
        QualityClassifier(WordEncoder()).fit([*SOME, *by_others], seed) for seed in (3, 3, 4)
    ]
    assert reports[0] == reports[1] != reports[2]
    for report in reports:
        assert report["train"]["cases"] + report["test"]["cases"] == 150


def test_a_verdict_with_fewer_steps_or_scores_is_decided(fitted):
    case, verdict = OTHERS[0].shown
    one = replace(case, responses=case.responses[:1])
    alone = replace(verdict, order=(0,), scores=(4,), rationale="Step 2: Fine.")
    texts = ("No step at all.", None, "", "Step 3: Half a")
    changes = [{"rationale": text} for text in texts]
    changes += [{"scores": scores} for scores in (None, (None, 1, 5))]
    odd = [Labelled(case, replace(verdict, **change), "high") for change in changes]
    decided = fitted[0].decide([*odd, Labelled(one, alone, "high")])
    assert len(decided) == 7
    assert decided[1] == "low"
    assert fitted[0].decide(odd[1:2]) == ["low"]


def test_what_cannot_be_learnt_is_refused():
    high, low = ([one for one in SOME if one.quality == each] for each in ("high", "low"))
    unscored = [replace(one, verdict=replace(one.verdict, scores=None)) for one in SOME]
    of_one_case = [replace(one, case=SOME[0].case) for one in SOME]
    for examples in (high, [*high, *low[:10]], unscored, of_one_case):
        with pytest.raises(RecordError):
            QualityClassifier(WordEncoder()).fit(examples, seed=0)
