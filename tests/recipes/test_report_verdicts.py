"""What `automedeval report` says of verdicts themselves: people's preferences, and how alike rationales are to a teacher's."""

import json
import re
from pathlib import Path

import pytest
from doubles.agreement_study import CASES, FAST, agreeing_verdicts, evaluate, made, meta_evaluate, read, write
from doubles.introspection_study import case_of, verdict_of
from doubles.tiny_bart import build_bart, build_roberta
from programs import error_line, flags, run_recipe, succeeded
from tables import rows_of

from automedeval.records import Verdict

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
    assert "Preference between echo and other" in page
    assert "Figure 5b" in page
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


COMPLAINTS = [case_of(number) for number in range(4)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("models")
    bert, bart = build_roberta(folder / "bert", window=256), build_bart(folder / "bart", window=256)
    return ["--bert_model", bert, "--bert_num_layers", 1, "--bart_model", bart]


@pytest.fixture
def args(tmp_path: Path) -> list[object]:
    judged = [verdict_of(case, (3, 4, 5), "judge") for case in COMPLAINTS]
    judged[3] = Verdict(COMPLAINTS[3].id, "judge", judged[0].rubric, (0, 1, 2), error="unreadable")
    teacher = [verdict_of(case, (3, 4, 5), "teacher") for case in COMPLAINTS]
    files = [write(tmp_path / f"{name}.jsonl", each) for name, each in (("verdicts", judged), ("teacher", teacher))]
    arguments = ["--verdicts", *files, "--cases", write(tmp_path / "cases.jsonl", COMPLAINTS)]
    return [*arguments, "--teacher_verdicts", "teacher", "--resamples", 100, "--output", tmp_path / "out"]


def test_similarity_is_reported_as_similarity(args: list, models: list, tmp_path: Path) -> None:
    succeeded(run_recipe("report", *args, *models))
    similarity = json.loads((tmp_path / "out" / "agreement.json").read_text())["similarity"]
    judge = similarity["judges"]["judge"]
    assert (similarity["teacher"], judge["rationales"], judge["left_out"]) == ("teacher", 3, {"invalid": 1})
    assert judge["bert_score"]["value"] == pytest.approx(1.0, abs=1e-4)  # the same words
    assert judge["bart_score"]["value"] < 0
    text = re.sub(r"\s+", " ", (tmp_path / "out" / "report.html").read_text())
    assert "similarity to the teacher's rationale, not its quality" in text.replace("&#39;", "'")
    assert ">1.000<" in text
    assert "1 invalid" in text
    assert similarity["judges"]["teacher"] == {"reason": "the teacher itself"}
    assert "the teacher itself" in text


@pytest.mark.parametrize(("more", "message"), ROWS["test_what_cannot_be_compared_is_told_in_one_line"])
def test_what_cannot_be_compared_is_told_in_one_line(args, models, tmp_path, more, message) -> None:
    assert message in error_line(run_recipe("report", *args, *models, *more))
    assert not (tmp_path / "out" / "report.html").exists()
