"""`automedeval report` --rounds: judges of introspection rounds in order, their changes, the forecast, and its gaps."""

import json
import re
from pathlib import Path

import pytest
from doubles.agreement_study import CASES, FAST, RATINGS, meta_evaluate, pairwise_verdicts, right_verdicts, write
from programs import succeeded

from automedeval.records.text import span as formatted
from automedeval.stats.growth_curve import Curve

# So many of the 30 cases are right after rounds 0, 1, 2, …: the others have an invalid verdict, which is wrong.
RIGHT = (12, 15, 17, 18, 19)


def followed(folder: Path, *more: str, rounds=3, names="", verdicts=None, label="r") -> tuple[dict, str]:
    """Run the recipe on one file of verdicts per round, judges r0, r1, …; return agreement.json and the page."""
    verdicts = [right_verdicts(count) for count in RIGHT[:rounds]] if verdicts is None else verdicts
    files = [f"{label}{place}={write(folder / f'{place}.jsonl', each)}" for place, each in enumerate(verdicts)]
    names = names or ",".join(f"r{place}" for place in range(len(verdicts)))
    options = ("--cases", CASES, "--ratings", RATINGS, "--output", folder / "out", *FAST, "--rounds", names, *more)
    succeeded(meta_evaluate("--verdicts", *files, *options))
    page = re.sub(r"\s+", " ", (folder / "out" / "report.html").read_text("utf-8"))
    return json.loads((folder / "out" / "agreement.json").read_text("utf-8")), page


def test_three_rounds_are_followed_and_forecast(tmp_path):
    result, page = followed(tmp_path)
    rounds = result["rounds"]
    assert rounds["names"] == ["r0", "r1", "r2"]
    assert rounds["values"] == pytest.approx([count / 30 for count in RIGHT[:3]])
    for place, line in enumerate(rounds["table"]):
        assert line["triple_accuracy"] == result["judges"][f"r{place}"]["triple_accuracy"]
        assert line["pairwise_accuracy"] == result["judges"][f"r{place}"]["pairwise_accuracy"]
    assert rounds["table"][0]["change"] is None
    change = rounds["table"][1]["change"]["triple_accuracy"]
    assert change["value"] == pytest.approx(3 / 30)
    # paired: the three cases are gained in every resample that has them, and none is ever lost
    assert 0 <= change["low"] < change["value"] < change["high"] < 0.25
    forecast = rounds["forecast"]
    curve = Curve(forecast["a"], forecast["b"], forecast["c"])
    assert [curve.at(t) for t in range(3)] == pytest.approx(rounds["values"])
    assert forecast["round_of_small_rest"] == curve.round_of_small_rest()
    assert "three rounds fit exactly" in forecast["no_interval"]
    assert f"its limit is {100 * curve.a:.2f} %." in page
    assert "three rounds fit exactly" in page
    assert '<h2 id="rounds">Rounds</h2>' in page
    assert set(result["judges"]) >= {"r0", "r1", "r2", "longer text"}


def test_the_order_is_that_of_the_argument(tmp_path):
    result, page = followed(tmp_path, names="r2,r1,r0")
    assert result["rounds"]["values"] == pytest.approx([17 / 30, 15 / 30, 12 / 30])
    assert "do not rise" in result["rounds"]["forecast"]["reason"]
    assert "No curve of triple accuracy: the measured rounds do not rise" in page


def test_five_rounds_have_intervals(tmp_path):
    result, page = followed(tmp_path, rounds=5)
    forecast = result["rounds"]["forecast"]
    assert not forecast["exact"]
    assert forecast["residual_error"] > 0
    assert [each["round"] for each in forecast["next"]] == [5, 6, 7, 8]
    assert all(each["low"] < each["value"] < each["high"] for each in forecast["next"])
    assert re.search(r"Fitted by least squares, residual standard error 0\.\d\d points\. Intervals", page)
    assert formatted(forecast["next"][0], 2, 100) in page


def test_two_rounds_are_too_few_and_it_is_said(tmp_path):
    result, page = followed(tmp_path, rounds=2)
    assert result["rounds"]["forecast"] == {"reason": "too few rounds for a forecast"}
    assert "too few rounds for a forecast" in page


def test_a_criterion_of_a_pairwise_judge_can_be_a_round(tmp_path):
    names, verdicts = "p<b>0: correctness,p<b>1: correctness", [pairwise_verdicts()] * 2
    result, page = followed(tmp_path, names=names, verdicts=verdicts, label="p<b>")
    assert result["rounds"]["values"] == [1.0, 1.0]
    assert "<b>" not in page
