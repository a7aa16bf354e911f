"""`automedeval export` by its command: its forms, an invalid verdict, and bad input."""

import json
from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import read, write
from programs import error_line, flags, run_command, succeeded
from tables import read_csv

ANSWERS = ["Rest.", "Drink a lot.", "See a doctor at once."]


@pytest.fixture
def judged(tmp_path: Path) -> tuple[object, ...]:
    """Judge two models' answers by their length; the verdict on the last case is invalid. Return the arguments."""
    out, logs = tmp_path / "out", (tmp_path / "one.json", tmp_path / "two.json")
    for file, texts in zip(logs, (ANSWERS, ANSWERS[::-1])):
        samples = [{"input": f"What helps {n}?", "output": {"completion": text}} for n, text in enumerate(texts)]
        samples = [{"id": number, "epoch": 1, "target": "", **each} for number, each in enumerate(samples)]
        file.write_text(json.dumps({"status": "success", "eval": {"model": file.stem}, "samples": samples}))
    succeeded(run_command("judge", *logs, "--judge", "baseline:longer text", "--output", out))
    verdicts = read(out / "verdicts.jsonl")
    none = {"valid": False, "error": "cannot be read", "scores": None, "expected_scores": None}
    write(out / "verdicts.jsonl", [*verdicts[:2], verdicts[2] | none])
    return "--verdicts", out, "--cases", out / "cases.jsonl"


export = partial(run_command, "export")


def table_of(folder: Path, verdicts: list[dict], **options: object) -> list[dict[str, str]]:
    file = write(folder / "v.jsonl", verdicts)
    succeeded(export("--verdicts", file, "--to", "csv", *flags(**options, output=folder / "table.csv")))
    return read_csv(folder / "table.csv")


def test_a_table_has_every_verdict_and_no_score_of_an_invalid_one(judged, tmp_path: Path) -> None:
    done = succeeded(export(*judged, "--to", "csv", "--output", tmp_path / "table.csv"))
    assert "3 verdicts, 1 invalid" in done.stdout
    rows = read_csv(tmp_path / "table.csv")
    assert [row["valid"] for row in rows] == ["True"] * 4 + ["False"] * 2
    scores = [len(text.split()) for pair in zip(ANSWERS, ANSWERS[::-1]) for text in pair][:4]
    (column,) = {"expected_score", "score"} & rows[0].keys() - {"score"}
    assert [float(row[column] or row["score"]) for row in rows[:4]] == scores
    assert {row["score"] for row in rows[4:]} | {row[column] for row in rows[4:]} == {""}


def test_bad_input_is_one_line_and_writes_nothing(judged, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    verdicts, cases = judged[:2], judged[3]
    of_one = (*verdicts, "--output", file, "--to", "preferences")
    assert "needs --cases" in error_line(export(*of_one))
    assert "this is an input" in error_line(export(*judged, "--to", "csv", "--output", cases))
    other = write(tmp_path / "other.jsonl", [each | {"question": "Another?"} for each in read(cases)])
    assert "verdicts.jsonl:1" in error_line(export(*of_one, "--cases", other))
    assert not file.exists()


def test_a_table_has_the_score_by_the_criteria_of_a_case(tmp_path: Path) -> None:
    points = {"food": 5, "milk": -2, "rest": 1}
    criteria = [{"criterion": f"says {word}", "points": worth} for word, worth in points.items()]
    answers = [{"model": model, "text": text} for model, text in (("a", "Food."), ("b", ""))]
    cases = [{"id": f"c{n}", "question": "Q?", "responses": answers, "criteria": criteria[: 2 + n]} for n in range(2)]
    about = {"judge": "j", "rubric": "checklist@1", "models": ["a", "b"]}
    verdicts = []
    for n, slot in ((0, 0), (0, 1), (1, 0), (1, 1)):
        met = [[True, False], [False, False], [True, None, False], None][2 * n + slot]
        verdict_record = about | {"case_id": f"c{n}", "order": [slot], "valid": met is not None}
        if met:
            score = sum(each["points"] for each, is_met in zip(criteria, met) if is_met) / (5 + n)
            lowest = score - (2 / 6 if None in met else 0)
            checklist = {"met": met, "met_probabilities": [{True: 0.75, False: 0.25}.get(each) for each in met]}
            verdict_record["checklist"] = checklist | {"score": score, "lowest": lowest, "highest": score}
        verdicts.append(verdict_record | ({"empty": ["b"]} if (n, slot) == (0, 1) else {}))
    rows = table_of(tmp_path, verdicts, cases=write(tmp_path / "cases.jsonl", cases))
    names = ("score", "lowest", "highest", "criteria_met", "criteria_not_met", "criteria_unread")
    numbers = [[float(row[name]) if row[name] else None for name in names] for row in rows]
    assert numbers == [
        [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 2, 0],
        [None, pytest.approx(5 / 6 - 2 / 6), pytest.approx(5 / 6), 1, 1, 1], [None] * 6,
    ]  # fmt: skip
    assert [row["empty"] for row in rows] == ["False", "True", "False", "False"]


def test_a_table_has_the_scores_of_several_criteria(tmp_path: Path) -> None:
    criterion_scores = {"relevancy": [5, None, 1], "fluency": [4, None, 2]}
    verdict = {"case_id": "1", "judge": "j", "rubric": "automedeval_guided@1", "order": [2, 0], "valid": True}
    verdict |= {"scores": [5, None, 2], "expected_scores": [4.5, None, 1.5], "criterion_scores": criterion_scores}
    verdict["models"] = ["a", "b", "c"]
    names = ("model", "score", "expected_score", "score_relevancy", "score_fluency")
    rows = [[row[name] for name in names] for row in table_of(tmp_path, [verdict])]
    assert rows == [["c", "2", "1.5", "1", "2"], ["a", "5", "4.5", "5", "4"]]


def test_no_cell_of_a_csv_is_run_and_no_number_becomes_a_text(tmp_path: Path) -> None:
    hostile = [
        '=HYPERLINK("http://x")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", 'two\r=1+1\nlines, "quoted"', "plain",
    ]  # fmt: skip
    verdict = {"judge": "baseline:longer text", "rubric": "counted", "order": [0], "valid": True}
    texts = [{"case_id": text, "models": [text], "rationale": text} for text in hostile]
    scored = [verdict | each | {"expected_scores": [-1.5 * number]} for number, each in enumerate(texts)]
    rows = table_of(tmp_path, scored)
    formula = ("=", "+", "-", "@", "\t", "\r")
    for name in ("case_id", "model", "rationale"):
        assert [row[name] for row in rows] == [f"'{text}" if text.startswith(formula) else text for text in hostile]
    assert [float(row["expected_score"]) for row in rows] == [-1.5 * number for number in range(len(hostile))]
