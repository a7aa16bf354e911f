"""Preferences in `automedeval report`: shares worked by hand, intervals, and faults by file and line."""

import re

import pytest
from doubles.agreement_study import CASES, FAST, agreeing_verdicts, evaluate, made, meta_evaluate, read, write
from programs import error_line, flags
from tables import rows_of

ROWS = rows_of(__file__)

IDS = [case["id"] for case in read(CASES)]
JUDGES = ["echo", "other"]


def preference(case_id: str, choice: str, annotator: str = "anna", criterion: str = "overall", **more) -> dict:
    about = {"case_id": case_id, "judges": JUDGES, "annotator": annotator}
    return about | {"criterion": criterion, "choice": choice} | more


def clear() -> list[dict]:
    """Return what three annotators preferred on 30 cases: echo mostly, the third of them neither; half name other first."""
    records = []
    for number, case_id in enumerate(IDS):
        for annotator in ("anna", "ben", "cleo"):
            choice = "echo" if number % 5 else "other"
            choice = "tie" if annotator == "cleo" else choice
            records.append(preference(case_id, choice, annotator, judges=JUDGES[:: (-1) ** number]))
    return records


def test_shares_by_hand_with_intervals_over_cases(tmp_path):
    report = made(tmp_path, agreeing_verdicts(), ratings=clear())
    (compared,) = report.result["preferences"]
    assert compared["judges"] == JUDGES
    record = compared["criteria"]["overall"]
    assert [record[name]["value"] for name in ("first", "tie", "second")] == pytest.approx([48 / 90, 30 / 90, 12 / 90])
    assert record["margin"]["value"] == pytest.approx(36 / 90)
    assert (record["first"]["n"], record["cases"]) == (90, 30)
    assert record["annotators"] == {"anna": [0.8, 0, 0.2], "ben": [0.8, 0, 0.2], "cleo": [0, 1, 0]}
    # A case's votes stand or fall together: 30 cases of -2/3 or 2/3 leave ± 0.20, 90 choices by themselves would leave ± 0.15.
    low, high = record["margin"]["low"], record["margin"]["high"]
    assert 0.36 < high - low < 0.44
    assert low < 0.4 < high
    assert record["margin"]["approximate"]
    # every case has one vote in three for neither: no resample differs, and nothing tells how far another draw would
    assert record["tie"]["low"] is record["tie"]["high"] is None
    assert "the same value" in record["tie"]["reason"]
    assert record["p_adjusted"] < 0.01
    page = report.page
    assert "preferences between the verdicts of echo and other" in page
    assert "Figure 5b" in page
    row = "<td>overall, anna</td><td>0.800</td><td>0.000</td><td>0.200</td>"
    assert re.search(f"{row}<td>\\s*<div.*?grow: 0.8;.*?grow: 0.0;.*?grow: 0.2;", page)
    assert '<th scope="row">overall</th><td>0.53' in page


def test_more_than_two_judges_and_a_few_other_cases(tmp_path):
    records = [preference(case_id, "tie") for case_id in IDS[:10]]
    records += [preference(case_id, "third", judges=["third", "echo"]) for case_id in IDS[:5]]
    records += [preference("elsewhere", "tie")]
    result = evaluate(tmp_path, agreeing_verdicts(), "--ratings", write(tmp_path / "preferences.jsonl", records))
    assert [each["judges"] for each in result["preferences"]] == [JUDGES, ["third", "echo"]]
    assert result["preferences"][1]["criteria"]["overall"]["first"]["value"] == 1
    assert any("preferences: 1 left out" in note for note in result["notes"])


GOOD = preference(IDS[0], "echo")


@pytest.mark.parametrize(("changes", "message"), ROWS["test_a_fault_is_one_line_that_names_file_and_line"])
def test_a_fault_is_one_line_that_names_file_and_line(changes, message, tmp_path):
    records = [{key: value for key, value in (GOOD | each).items() if value != "missing"} for each in changes]
    verdicts = write(tmp_path / "verdicts.jsonl", agreeing_verdicts())
    file = write(tmp_path / "preferences.jsonl", records)
    done = meta_evaluate(*flags(verdicts=verdicts, cases=CASES, ratings=file, output=tmp_path / "out"), *FAST)
    assert re.search(rf"preferences\.jsonl.*{message}|preferences\.jsonl{message}", error_line(done))
    assert not (tmp_path / "out").exists()
