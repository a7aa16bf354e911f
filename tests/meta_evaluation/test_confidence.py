"""How unsure judges are of a case: their disagreement, or one judge's own probabilities and orders."""

from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import CASES, pairwise_verdicts, read, verdict, write

from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.agreement.verdicts import read_verdicts, rows_of
from automedeval.meta_evaluation.calibration.confidence import DISAGREEMENT, EQUAL, OWN, uncertainty


def unsure(tmp_path: Path, *judges: list[dict]) -> tuple[Cases, np.ndarray, str]:
    cases = Cases.read(str(CASES))
    files = [str(write(tmp_path / f"{number}.jsonl", lines)) for number, lines in enumerate(judges)]
    found, _ = read_verdicts([f"j{number}={file}" for number, file in enumerate(files)], cases)
    return cases, *uncertainty(cases, rows_of(found))


def test_several_judges_disagree_where_their_places_differ(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = {case["id"]: rng.integers(1, 6, (3, 3)).tolist() for case in read(CASES)}
    judges = [
        [verdict(case, scores[case["id"]][judge]) | {"expected_scores": None} for case in read(CASES)]
        for judge in range(3)
    ]
    judges[2][4] = verdict(read(CASES)[4], None)
    for judge in range(3):
        judges[judge][5] = verdict(read(CASES)[5], None)
    cases, found, source = unsure(tmp_path, *judges)
    assert source == DISAGREEMENT
    apart = {}
    for judge in range(3):
        said = [np.array(line["scores"], float) for line in judges[judge] if line["scores"]]
        spread = np.sqrt(np.mean(np.concatenate([each - each.mean() for each in said]) ** 2))
        for line in judges[judge]:
            if line["scores"]:
                own = np.array(line["scores"], float)
                apart.setdefault(line["case_id"], []).append((own - own.mean()) / spread)
    for number, case in enumerate(cases.records):
        if case.id == read(CASES)[5]["id"]:
            assert np.isnan(found[number])
        else:
            slow = np.sqrt(np.mean(np.var(np.stack(apart[case.id]), axis=0, ddof=1)))
            assert found[number] == pytest.approx(slow)


def test_one_judge_is_unsure_by_its_probabilities_and_between_its_orders(tmp_path: Path) -> None:
    first, second, third = read(CASES)[:3]
    sure = [{"1": 1.0}, {"2": 1.0}, {"4": 1.0}]
    torn = {"2": 0.5, "4": 0.5}
    lines = [
        # the same of each response in both orders: sure, though the slots differ
        verdict(first, [1, 2, 4], probabilities=sure) | {"order": [0, 1, 2]},
        verdict(first, [1, 2, 4], probabilities=[sure[2], sure[0], sure[1]]) | {"order": [2, 0, 1]},
        verdict(second, [3, 3, 3], probabilities=[torn, torn, torn]) | {"order": [1, 0, 2]},
        verdict(third, [1, 2, 4], probabilities=sure) | {"order": [0, 1, 2]},
        verdict(third, [3, 2, 4], probabilities=[{"3": 1.0}, sure[1], sure[2]]) | {"order": [0, 1, 2], "run": 1},
    ]
    cases, found, source = unsure(tmp_path, lines)
    assert source == OWN
    by_id = dict(zip((case.id for case in cases.records), found))
    assert by_id[first["id"]] == pytest.approx(0)
    assert by_id[second["id"]] == pytest.approx(1)
    assert by_id[third["id"]] == pytest.approx((1 / 3) ** 0.5)
    assert np.isnan([by_id[case["id"]] for case in read(CASES)[3:]]).all()


def test_a_judge_that_is_always_sure_tells_no_case_from_another(tmp_path: Path) -> None:
    _, found, source = unsure(tmp_path, [verdict(case, [1, 2, 3]) for case in read(CASES)])
    assert source == EQUAL
    assert (found == 1).all()


def test_the_judge_that_gives_scores_is_asked_wherever_it_stands(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    odds = [{"1": p, "5": 1 - p} for p in rng.uniform(0.01, 0.5, 90).round(3).tolist()]
    lines = [
        verdict(case, [3, 3, 3], probabilities=odds[3 * number : 3 * number + 3])
        for number, case in enumerate(read(CASES))
    ]
    for judges in ((pairwise_verdicts(), lines), (lines, pairwise_verdicts())):
        _, found, source = unsure(tmp_path, *judges)
        assert source == OWN
        assert np.ptp(found) > 0
