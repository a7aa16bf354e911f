"""`automedeval export` by its command: the four forms, an invalid verdict, and bad input."""

import csv
import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from doubles.agreement_study import read, write
from programs import error_line, run_command

ANSWERS = ["Rest.", "Drink a lot.", "See a doctor at once."]


@pytest.fixture
def judged(tmp_path: Path) -> tuple[object, ...]:
    """Judge two models' answers by their length; the verdict on the last case is invalid. Return the arguments."""
    for name, texts in (("one", ANSWERS), ("two", ANSWERS[::-1])):
        records = [
            {"instruction": f"What helps {number}?", "output": text, "generator": name}
            for number, text in enumerate(texts)
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(records), encoding="utf-8")
    out = tmp_path / "out"
    logs = (tmp_path / "one.json", tmp_path / "two.json")
    done = run_command("judge", *logs, "--judge", "baseline:longer text", "--output", out)
    assert done.returncode == 0, done.stderr
    verdicts = read(out / "verdicts.jsonl")
    none = {"valid": False, "error": "cannot be read", "scores": None, "expected_scores": None}
    write(out / "verdicts.jsonl", [*verdicts[:2], verdicts[2] | none])
    return "--verdicts", out, "--cases", out / "cases.jsonl"


def export(*arguments: object) -> object:
    return run_command("export", *arguments)


@pytest.mark.parametrize(("form", "key", "number"), [("inspect", "id", str), ("lm_eval", "doc_id", int)])
def test_a_harness_gets_the_scores_of_one_model_by_the_ids_of_its_log(
    judged, tmp_path: Path, form, key, number
) -> None:
    file = tmp_path / "scores"
    done = export(*judged, "--to", form, "--model", "two", "--output", file)
    assert done.returncode == 0, done.stderr
    assert "3 answers, 1 without a valid verdict" in done.stdout
    text = file.read_text(encoding="utf-8")
    records = json.loads(text) if form == "inspect" else [json.loads(line) for line in text.splitlines()]
    values = [each["value" if form == "inspect" else "automedeval"] for each in records]
    assert [each[key] for each in records] == [number(place) for place in range(3)]
    assert values[:2] == [len(text.split()) for text in ANSWERS[:0:-1]], "as many points as words"
    assert math.isnan(values[2])


def test_a_table_has_every_verdict_and_no_score_of_an_invalid_one(judged, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        done = export(*judged, "--to", form, "--output", tmp_path / f"table.{form}")
        assert done.returncode == 0, done.stderr
        assert "3 verdicts, 1 invalid" in done.stdout
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    same = pq.read_table(tmp_path / "table.parquet").to_pylist()
    assert [row["valid"] == "True" for row in rows] == [row["valid"] for row in same] == [True] * 4 + [False] * 2
    scores = [len(text.split()) for pair in zip(ANSWERS, ANSWERS[::-1]) for text in pair][:4]
    (column,) = {"expected_score", "score"} & rows[0].keys() - {"score"}
    assert [float(row[column] or row["score"]) for row in rows[:4]] == scores
    assert {row["score"] for row in rows[4:]} | {row[column] for row in rows[4:]} == {""}


def test_bad_input_is_one_line_and_writes_nothing(judged, tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    verdicts, cases = judged[:2], judged[3]
    to = ("--output", file, "--to")
    assert "--model must be one of one, two" in error_line(export(*judged, *to, "inspect"))
    assert "needs --cases" in error_line(export(*verdicts, *to, "inspect", "--model", "one"))
    assert "this is an input" in error_line(export(*judged, "--to", "csv", "--output", cases))
    changed = [each | {"question": "Another?"} for each in read(cases)]
    other = write(tmp_path / "other.jsonl", changed)
    told = error_line(export(*verdicts, "--cases", other, *to, "inspect", "--model", "one"))
    assert "verdicts.jsonl:1" in told
    by_hand = [
        {
            "id": each["id"],
            "question": each["question"],
            "responses": [dict(list(r.items())[:2]) for r in each["responses"]],
        }
        for each in read(cases)
    ]
    told = error_line(
        export(*verdicts, "--cases", write(tmp_path / "hand.jsonl", by_hand), *to, "inspect", "--model", "one")
    )
    assert "was not read from a log" in told
    assert not file.exists()
