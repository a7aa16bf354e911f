"""The table after a run: means, shares of comparisons won, and what is empty, unread or invalid."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from doubles.agreement_study import case_of as line_of
from tables import each_row

from automedeval import Case, Verdict, read_rubric
from automedeval.meta_evaluation.facts import facts_of
from automedeval.meta_evaluation.standings import rank
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.rubrics import Rubric

SCORES = read_rubric("automedeval")


def case_of(*texts: str, name: str = "1") -> Case:
    answers = dict(zip("abc", texts))
    return Case.from_dict(line_of(name, "Q?", answers))


THREE = case_of("1", "2", "3")


def verdict(
    *scores: int | None, order=(0, 1, 2), name="1", rubric=SCORES.name, **values: Any
) -> Verdict:
    values = {"valid": True, "scores": scores or None} | values
    return Verdict(name, "j", rubric, order, **values)


def ranked(cases: list[Case], verdicts: list[Verdict], rubric: Rubric = SCORES) -> tuple:
    return rank(Cases(cases, "cases"), verdicts, rubric, Path("verdicts.jsonl"))


def column(rows: list[dict], name: str) -> dict[str, Any]:
    """Return model → the figure of a column, in the order of the table, of estimates the values."""
    found = {}
    for row in rows:
        figure = row[name]
        if isinstance(figure, dict):
            figure = figure["value"]
        found[row["model"]] = figure
    return found


@each_row("rubric, answers, verdicts, wanted")
def test_verdicts_make_the_table(rubric, answers, verdicts, wanted):
    """`wanted` has columns, in the order of the models; a score of None is unread."""
    cases = [case_of(*texts, name=str(number)) for number, texts in enumerate(answers)]
    given = [verdict(*scores, **more) for scores, more in verdicts]
    rows, _ = ranked(cases, given, read_rubric(rubric))
    for name, figures in wanted.items():
        found = column(rows, name)
        assert [*found.items()] == [*figures.items()]


def test_ranks_overlap_unless_the_difference_is_clear():
    """Beside scipy's sign tests of the pairs, adjusted by hand."""
    scores = np.random.default_rng(1).integers([2, 2, 1], [6, 6, 3], (40, 3))
    cases = []
    verdicts = []
    for number, row in enumerate(scores.tolist()):
        name = str(number)
        cases.append(case_of("1", "2", "3", name=name))
        verdicts.append(verdict(*row, name=name))
    rows, profile = ranked(cases, verdicts)
    p = {}
    for first, second in combinations(range(3), 2):
        gaps = scores[:, first] - scores[:, second]
        test = scipy.stats.binomtest(np.sum(gaps > 0), np.count_nonzero(gaps))
        p[first, second] = test.pvalue
    assert p[0, 1] > 0.05
    assert max(p[0, 2], p[1, 2]) < 0.05 / 3
    assert column(rows, "rank") == {"a": "1–2", "b": "1–2", "c": "3"}
    first, second, more = profile.unclear
    assert {first, second} == {"a", "b"}
    assert more > 0


@pytest.mark.parametrize(("blind_to", "counted"), [(["dose"], (2, 3)), (None, (0, 0))])
def test_answers_in_languages_that_the_small_judge_does_not_read_are_counted(blind_to, counted):
    english = "You should take one tablet with water and call your doctor if the pain does not stop after some days."
    german = "Nehmen Sie eine Tablette mit Wasser und rufen Sie Ihren Arzt, wenn der Schmerz nach drei Tagen noch da ist."
    arabic = "خذ قرصا واحدا مع الماء واتصل بطبيبك إذا لم يتوقف الألم بعد عدة أيام ولا تتناول أكثر من ثمانية أقراص في اليوم"
    shown = verdict(3, 2, 1, blind_to=blind_to)
    case = replace(case_of(english, german, arabic), reference=english)
    _, profile = ranked([case], [shown])
    assert (
        "and 2 answers not clearly in English" in facts_of(profile)["Numbers beside the reference"]
    )
    assert tuple(profile.foreign) == counted
    said = facts_of(profile).get("Other languages", "")
    assert ("2 of 3 answers are not in English" in said) is bool(blind_to)
