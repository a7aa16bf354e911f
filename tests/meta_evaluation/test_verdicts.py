"""What a judge's verdicts say case by case, beside loops over the records: intervals resample cases."""

import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from doubles.agreement_study import write
from doubles.introspection_study import case_of, verdict_of

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.judge_facts import sees_reference
from automedeval.meta_evaluation.table import VerdictTable
from automedeval.meta_evaluation.verdict_files import read_verdicts
from automedeval.records import Verdict
from automedeval.rubrics import LIKELIHOOD, read_rubric
from automedeval.stats.agreement import CHOICES

CASES = Cases([case_of(number) for number in range(7)], "cases.jsonl")
ORDERS = ((0, 1, 2), (2, 0, 1), (1, 2, 0))


def verdicts(seed: int) -> list[Verdict]:
    """Return two runs of a judge, each case in up to three orders."""
    generator = random.Random(seed)
    return [
        verdict_of(case, [generator.randint(1, 3) for _ in range(3)], order=order, run=run)
        for case in CASES.records
        for run in (0, 1)
        for order in ORDERS[: generator.randint(1, 3)]
    ]


def read_back(folder: Path, verdicts: list[Verdict]) -> VerdictTable:
    (judge,), _ = read_verdicts([str(write(folder / "verdicts.jsonl", verdicts))], CASES)
    return judge


def test_consistent_pairs_are_counted_in_their_own_case_and_run(tmp_path: Path) -> None:
    records = verdicts(3)
    judge = read_back(tmp_path, records)
    first, second = judge.panel.pairs
    counted = judge.consistency(np.sign(judge.own[first] - judge.own[second]).astype(int))
    wanted = np.zeros((2, len(CASES)))
    for number, case in enumerate(CASES.records):
        for run in (0, 1):
            shown = [each.scores for each in records if (each.case_id, each.run) == (case.id, run) and each.scores]
            for left, right in combinations(range(3), 2):
                relations = {(scores[left] > scores[right]) - (scores[left] < scores[right]) for scores in shown}
                wanted[:, number] += [len(shown) > 1 and len(relations) == 1, len(shown) > 1]
    assert wanted[0].any()
    assert (wanted[0] < wanted[1]).any()
    np.testing.assert_array_equal(counted, wanted)


def test_contested_choices_are_the_neutral_one_of_their_criterion(tmp_path: Path) -> None:
    rubric = read_rubric("medical_pairwise")
    harmless = [replace(each, neutral="neither") if each.polarity == "worse" else each for each in rubric.criteria]
    case = CASES.records[0]
    first, second = case.models[:2]
    records = []
    for order, choice in (((0, 1), first), ((1, 0), second)):
        same = {"correctness": choice, "harmfulness": choice}
        record = verdict_of(case, None, order=order, models=case.models)
        more = {"valid": True, "error": None, "pair": (first, second), "choices": same}
        record = replace(record, rubric="medical_pairwise@1", **more)
        records.append(record)
    judge = read_back(tmp_path, records)
    assert [CHOICES[judge.choice(name)[0]] for name in ("correctness", "harmfulness")] == ["tie", "tie"]
    judge.rubric = replace(rubric, criteria=tuple(harmless))
    assert [CHOICES[judge.choice(name)[0]] for name in ("correctness", "harmfulness")] == ["tie", "neither"]


def test_a_judge_by_likelihood_is_not_shown_the_reference(tmp_path: Path) -> None:
    for rubric, shown in ((LIKELIHOOD, False), ("somebodys@1", None)):
        records = [replace(verdict_of(case, (1, 2, 3)), rubric=rubric) for case in CASES.records]
        assert sees_reference(read_back(tmp_path, records)) is shown
