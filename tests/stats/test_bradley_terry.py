"""Candidates ranked: wins counted, Bradley–Terry strengths as published, and when there is nothing to rank."""

import numpy as np
import pytest

from automedeval.stats import bradley_terry
from automedeval.stats.agreement import Panel

# Agresti 2002, Categorical Data Analysis, Table 10.10: wins of American League teams over each other in 1987.
TEAMS = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
ROWS = "0 7 9 7 7 9 11|6 0 7 5 11 9 9|4 6 0 7 7 8 12|6 8 6 0 6 7 10|6 2 6 7 0 7 12|4 4 5 6 6 0 6|2 4 1 3 1 7 0"
WINS = np.array([row.split() for row in ROWS.split("|")], float)
STRENGTHS = [1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0.0]  # against Baltimore


def test_strengths_of_agrestis_baseball_teams() -> None:
    strengths = bradley_terry.bradley_terry(WINS)
    assert strengths - strengths[-1] == pytest.approx(STRENGTHS, abs=0.002)
    assert strengths.mean() == pytest.approx(0)
    both_ways = np.stack([strengths, -strengths])
    assert bradley_terry.bradley_terry(np.stack([WINS, WINS.T])) == pytest.approx(both_ways, abs=1e-5)


def test_models_that_never_met_or_never_lost_are_not_ranked() -> None:
    apart = np.array([[0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 3], [0, 0, 1, 0]], float)
    assert "2 groups" in bradley_terry.unconnected(apart + apart.T, list("abcd"))
    assert bradley_terry.unconnected(WINS + WINS.T, TEAMS) is None
    unbeaten = np.array([[0, 2, 2], [0, 0, 1], [0, 1, 0]], float)
    assert "no finite strengths" in bradley_terry.unbeaten(unbeaten, list("abc"))
    assert bradley_terry.unbeaten(WINS, TEAMS) is None


def test_wins_are_counted_per_case() -> None:
    panel = Panel.of_sizes([3, 2])
    model_of = np.array([0, 1, 2, 0, 2])
    relation = panel.relations(np.array([3.0, 1.0, 1.0, 2.0, np.nan]))
    first, second = panel.pairs
    wins, ties = bradley_terry.count_wins(model_of[first], model_of[second], relation, panel.case[first], 2, 3)
    assert wins[0].tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert ties[0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert not wins[1].any()
    assert not ties[1].any()
