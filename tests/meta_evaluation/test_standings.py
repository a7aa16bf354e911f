"""The table after a run: means, shares of comparisons won, and what is empty, unread or invalid."""

from pathlib import Path

import numpy as np
import pytest
import scipy

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.agreement.cases import Cases
from automedeval.meta_evaluation.facts import facts_of
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
    """Return model → its row, in the order of the table, of estimates the values."""
    rows, _ = rank(Cases(cases, "cases"), verdicts, rubric, Path("verdicts.jsonl"))

    def values(row: dict) -> dict:
        return {
            name: figure["value"] if isinstance(figure, dict) else figure
            for name, figure in row.items()
        }

    return {row["model"]: values(row) for row in rows}


def test_orders_are_averaged_and_invalid_verdicts_are_left_out() -> None:
    valid = [verdict(ORDERS[0], scores=(5, 3, 3)), verdict(ORDERS[1], scores=(3, 3, 3))]
    rows = table([case_of("1", "2", "3")], [*valid, verdict(ORDERS[2], valid=False, error="no")])
    figures = {model: (row["mean score"], row["share of pairs won"]) for model, row in rows.items()}
    assert figures == {"a": (4.0, 1.0), "b": (3.0, 0.25), "c": (3.0, 0.25)}
    assert next(iter(rows)) == "a"


def test_expected_scores_are_shown_if_every_verdict_has_them() -> None:
    """A server that does not tell every alternative gives expected scores with some verdicts alone."""
    cases = [case_of("1", "2", name=str(number)) for number in range(2)]
    both, lacks = (
        verdict((0, 1), "0", scores=(1, 4), expected_scores=(1.5, 4.0)),
        verdict((0, 1), "1", scores=(5, 1)),
    )
    assert table(cases[:1], [both])["a"]["mean score"] == 1.5
    rows = table(cases, [both, lacks])
    assert rows["a"]["mean score"] == 3.0


def test_an_empty_response_loses_a_tie() -> None:
    rows = table([case_of("1", "", "3")], [verdict(scores=(1, 1, 4))])
    figures = {model: (row["share of pairs won"], row["empty"]) for model, row in rows.items()}
    assert figures == {"c": (1.0, 0), "a": (0.5, 0), "b": (0.0, 1)}


def test_a_model_without_a_number_stands_behind_negative_numbers() -> None:
    row = verdict(rubric="likelihood@1", expected_scores=(-3.0, -2.0, None))
    rows = table([case_of("1", "2", "3")], [row])
    assert list(rows) == ["b", "a", "c"]
    assert rows["c"]["unread"] == 1


def test_a_choice_of_the_worse_response_is_a_loss_of_its_model() -> None:
    choices = dict.fromkeys(PAIRS.output_criteria, "a")
    rows = table(
        [case_of("1", "2")],
        [verdict((0, 1), rubric=PAIRS.name, pair=("a", "b"), choices=choices)],
        PAIRS,
    )
    assert {model: (row["pairs"], row["share of pairs won"]) for model, row in rows.items()} == {
        "a": (1, 1),
        "b": (1, 0),
    }
    worse = {each.name: "a" if each.polarity == "worse" else "b" for each in PAIRS.criteria}
    rows = table(
        [case_of("1", "2")],
        [verdict((0, 1), rubric=PAIRS.name, pair=("a", "b"), choices=worse)],
        PAIRS,
    )
    assert rows["a"]["share of pairs won"] == 0, "it is worse on every criterion"


def test_ranks_overlap_unless_the_difference_is_clear() -> None:
    """Beside scipy's t-tests of the pairs, adjusted by hand, and its bootstrap of the share."""
    rng = np.random.default_rng(1)
    scores = np.column_stack(
        [rng.integers(2, 6, 40), rng.integers(2, 6, 40), rng.integers(1, 3, 40)]
    )
    cases = [case_of("1", "2", "3", name=str(n)) for n in range(40)]
    verdicts = [verdict(name=str(n), scores=tuple(map(int, row))) for n, row in enumerate(scores)]
    rows, profile = rank(Cases(cases, "cases"), verdicts, SCORES, Path("v"))
    margins = {(i, j): np.sign(scores[:, i] - scores[:, j]) for i, j in ((0, 1), (0, 2), (1, 2))}
    p = {pair: scipy.stats.ttest_1samp(each, 0).pvalue for pair, each in margins.items()}
    assert p[0, 1] > 0.05
    assert max(p[0, 2], p[1, 2]) < 0.05 / 3
    assert {row["model"]: row["rank"] for row in rows} == {"a": "1–2", "b": "1–2", "c": "3"}
    first, second, more = profile.unclear
    assert {first, second} == {"a", "b"}
    assert more > 0
    won = {
        "a": margins[0, 1] + margins[0, 2],
        "b": margins[1, 2] - margins[0, 1],
        "c": -margins[0, 2] - margins[1, 2],
    }
    for row in rows:
        shares = (won[row["model"]] + 2) / 4
        theirs = scipy.stats.bootstrap(
            (shares,), np.mean, method="percentile", rng=0
        ).confidence_interval
        share = row["share of pairs won"]
        expected = [theirs.low, shares.mean(), theirs.high]
        assert [share["low"], share["value"], share["high"]] == pytest.approx(expected, abs=0.02)
    assert (
        rank(Cases(cases[:1], "cases"), verdicts[:1], SCORES, Path("v"))[1].unclear[2] is not None
    )


def test_answers_in_languages_that_the_small_judge_does_not_read_are_counted() -> None:
    english = "You should take one tablet with water and call your doctor if the pain does not stop after some days."
    german = "Nehmen Sie eine Tablette mit Wasser und rufen Sie Ihren Arzt, wenn der Schmerz nach drei Tagen noch da ist."
    arabic = "خذ قرصا واحدا مع الماء واتصل بطبيبك إذا لم يتوقف الألم بعد عدة أيام ولا تتناول أكثر من ثمانية أقراص في اليوم"
    cases = [case_of(english, german, arabic)]
    for blind_to, counted in ((["dose"], (2, 3)), (None, (0, 0))):
        shown = verdict(scores=(3, 2, 1), extra={"blind_to": blind_to} if blind_to else {})
        _, profile = rank(Cases(cases, "cases"), [shown], SCORES, Path("v"))
        assert tuple(profile.foreign) == counted
        said = facts_of(profile).get("Other languages", "")
        assert ("2 of 3 answers are not in English" in said) == (counted[0] == 2)
