"""The table after a run: means, shares of comparisons won, and what is empty, unread or invalid."""

from pathlib import Path

import pytest

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.standings import rank
from automedeval.rubrics import Rubric

SCORES, PAIRS = read_rubric("automedeval"), read_rubric("medical_pairwise")
ORDERS = ((0, 1, 2), (1, 0, 2), (2, 0, 1))


def case_of(*texts: str, name: str = "1") -> Case:
    responses = [{"model": model, "text": text} for model, text in zip("abc", texts)]
    return Case.from_dict({"id": name, "question": "Q?", "responses": responses})


def verdict(
    order: tuple[int, ...] = ORDERS[0], name: str = "1", rubric: str = SCORES.name, **values: object
) -> Verdict:
    return Verdict(name, "j", rubric, order, **{"valid": True} | values)


def table(cases: list[Case], verdicts: list[Verdict], rubric: Rubric = SCORES) -> dict[str, dict]:
    """Return model → its row, in the order of the table."""
    rows, _ = rank(Cases(cases, "cases"), verdicts, rubric, Path("verdicts.jsonl"))
    return {row["model"]: row for row in rows}


def test_orders_are_averaged_and_invalid_verdicts_are_left_out() -> None:
    valid = [verdict(ORDERS[0], scores=(5, 3, 3)), verdict(ORDERS[1], scores=(3, 3, 3))]
    rows = table([case_of("1", "2", "3")], [*valid, verdict(ORDERS[2], valid=False, error="no")])
    assert {model: (row["score"], row["win share"]) for model, row in rows.items()} == {
        "a": (4.0, 1.0), "b": (3.0, 0.25), "c": (3.0, 0.25),
    }  # fmt: skip
    assert next(iter(rows)) == "a"


def test_expected_scores_are_shown_if_every_verdict_has_them() -> None:
    """A server that does not tell every alternative gives expected scores with some verdicts alone."""
    cases = [case_of("1", "2", name=str(number)) for number in range(2)]
    both, lacks = verdict((0, 1), "0", scores=(1, 4), expected_scores=(1.5, 4.0)), verdict((0, 1), "1", scores=(5, 1))
    assert table(cases[:1], [both])["a"]["expected"] == 1.5
    rows = table(cases, [both, lacks])
    assert rows["a"]["score"] == 3.0
    assert "expected" not in rows["a"]


def test_an_empty_response_loses_a_tie() -> None:
    rows = table([case_of("1", "", "3")], [verdict(scores=(1, 1, 4))])
    assert {model: (row["win share"], row["empty"]) for model, row in rows.items()} == {
        "c": (1.0, 0), "a": (0.5, 0), "b": (0.0, 1),
    }  # fmt: skip


def test_a_model_without_a_number_stands_behind_negative_numbers() -> None:
    row = verdict(rubric="likelihood@1", expected_scores=(-3.0, -2.0, None))
    rows = table([case_of("1", "2", "3")], [row])
    assert list(rows) == ["b", "a", "c"]
    assert rows["c"]["unread"] == 1


def test_a_choice_of_the_worse_response_is_a_loss_of_its_model() -> None:
    choices = dict.fromkeys(PAIRS.output_criteria, "a")
    rows = table([case_of("1", "2")], [verdict((0, 1), rubric=PAIRS.name, pair=("a", "b"), choices=choices)], PAIRS)
    assert rows["a"]["correctness"] == 1.0
    assert rows["a"]["harmfulness"] == rows["a"]["bias"] == 0.0
    assert (rows["a"]["pairs"], rows["a"]["win share"]) == (1, pytest.approx(4 / 6))
