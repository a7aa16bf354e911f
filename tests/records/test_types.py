import json
import pickle
import random
import tracemalloc
from datetime import date, datetime
from decimal import Decimal

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from factories import write
from tables import each_row, refused, rows_of

from automedeval.records import (
    Case,
    Rating,
    RecordError,
    Verdict,
    read_lines,
    read_records,
)
from automedeval.records.tables.cases import read_cases
from automedeval.records.types import repeats

CASE, RATING, VERDICT, PAIR = rows_of(__file__)["records"].values()
ANSWER = {"model": "m", "text": "x"}
KINDS = {"Case": (Case, CASE), "Rating": (Rating, RATING), "Verdict": (Verdict, VERDICT)}


def changed(record, change):
    """Return the record with some keys set; ABSENT removes one."""
    return {key: value for key, value in (record | change).items() if value != "ABSENT"}


@pytest.mark.parametrize(("kind", "record"), [*KINDS.values(), (Verdict, PAIR)])
def test_a_record_comes_back_as_it_was_with_unknown_keys(tmp_path, kind, record):
    (read,) = read_records(write(tmp_path / "records.jsonl", [record]), kind)
    assert json.dumps(read.to_dict()) == json.dumps(record)


def refusal(path):
    with pytest.raises(RecordError) as error:
        list(read_cases(path))
    assert "\n" not in str(error.value)
    return str(error.value)


def parquet(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_a_missing_number_of_parquet_is_refused(tmp_path):
    rows = [RATING, RATING | {"model": "m2", "score": float("nan")}]
    path = parquet(tmp_path / "r.parquet", rows)
    with refused(f"{path}:2: 'score' must be a finite number, not nan"):
        list(read_records(path, Rating))


def test_verdicts_of_pandas_have_whole_numbers_and_hold_once_what_is_alike(tmp_path):
    verdict = {"case_id": "c", "judge": "j", "rubric": "r@1", "order": [0], "valid": True}
    pandas.DataFrame([verdict | {"row": 3}, verdict]).to_parquet(tmp_path / "v.parquet")
    read = read_records(tmp_path / "v.parquet", Verdict)
    first, second = (verdict.for_figures() for verdict in read)
    assert (first.row, second.row) == (3, None)
    assert first.rubric is second.rubric
    with pytest.raises(TypeError):  # all verdicts have it
        pickle.loads(pickle.dumps(first)).extra["more"] = 1


@each_row("name, change, said")
def test_a_faulty_record_is_named_by_file_and_line(tmp_path, name, change, said):
    kind, good = KINDS[name]
    path = write(tmp_path / "records.jsonl", [good, changed(good, change)])
    records = read_records(path, kind)
    next(records)
    with refused(f"{path}:2: ", said):
        next(records)


@each_row("line, said")
def test_a_line_that_is_no_object_is_named_by_file_and_line(tmp_path, line, said):
    path = tmp_path / "cases.jsonl"
    content = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b"\n\n".join([json.dumps(CASE).encode(), content]))
    refused_line = refusal(path)
    assert refused_line.startswith(f"{path}:3: ")
    assert said in refused_line
    assert "mends" not in refused_line, "it is no log"
    assert len(refused_line) < len(str(path)) + 220


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\xef\xbb\xbf"], ids=["nothing", "blank lines", "BOM alone"]
)
def test_a_file_without_a_case_is_refused(tmp_path, content):
    (tmp_path / "cases.jsonl").write_bytes(content)
    assert "cases.jsonl: the file has no rows" in refusal(tmp_path / "cases.jsonl")


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path):
    path = tmp_path / "cases.jsonl"
    cases = [json.dumps(case) for case in (CASE, CASE | {"id": "ü"})]
    path.write_text("\ufeff" + "\r\n\r\n".join(cases), newline="")
    assert [case.id for case in read_cases(path)] == ["c1", "ü"]
    assert [place for place, _ in read_lines(path)] == [f"{path}:1", f"{path}:3"]


def test_parquet_serves_like_json_lines_and_a_faulty_row_is_named(tmp_path):
    lacking = {
        "retrieved": datetime(2024, 5, 1, 12, 30),
        "seen": [{"on": date(2024, 5, 2)}],
        "price": Decimal("1.50"),
        "hash": b"ab\xff",
    }
    first = CASE | {"responses": [ANSWER, {"model": "n", "text": ""}]} | lacking
    records = [first, first | {"id": "c2"}]
    as_text = {
        "retrieved": "2024-05-01 12:30:00",
        "seen": [{"on": "2024-05-02"}],
        "price": "1.50",
        "hash": "ab\\xff",
    }
    path = parquet(tmp_path / "cases.parquet", records)
    assert [case.to_dict() for case in read_cases(path)] == [row | as_text for row in records]
    parquet(path, [*records, first])
    assert refusal(path) == f"{path}:3: the id 'c1' stands at {path}:1 already"


@each_row("name")
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    (tmp_path / "broken.parquet").write_bytes(b"this is no parquet file")
    assert refusal(tmp_path / name).startswith(f"{tmp_path / name}: ")


def test_memory_does_not_grow_with_the_file(tmp_path):
    about = CASE | {"reference": "x" * 20_000}
    path = write(tmp_path / "cases.jsonl", [about | {"id": str(at)} for at in range(400)])
    tracemalloc.start()
    count = sum(1 for _ in read_cases(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 400
    assert path.stat().st_size > 8_000_000
    assert peak < 1_000_000


def repeats_by_loops(words: list[str]) -> bool:
    """Return whether some phrase makes up the end of words four times, with whatever of a fifth one, in eight words or more."""
    words = words[:-1]
    for size in range(1, len(words) // 4 + 1):
        for length in range(max(8, 4 * size), len(words) + 1):
            if words[-length:] == (words[-length:][:size] * length)[:length]:
                return True
    return False


def test_a_text_that_repeats_itself_is_told_from_one_that_does_not():
    drawn = random.Random(0)
    texts = []
    for _ in range(300):
        phrase = drawn.choices("abc", k=drawn.randrange(1, 5))
        texts.append(drawn.choices("ab", k=9) + phrase * drawn.randrange(1, 9))
    answers = [repeats(", ".join(words).upper()) for words in texts]
    assert answers == [repeats_by_loops(words) for words in texts]
    assert 50 < sum(answers) < 250
    assert repeats("The patient is wrong, " * 5 + "The pat")
    assert not repeats("Answer 1 is right. Answer 2 is right. Answer 3 is wrong. No, no, no.")


@each_row("changes, fault")
def test_a_valid_verdict_says_what_is_wrong_with_its_rationale(changes, fault):
    assert Verdict.from_dict(VERDICT | changes).rationale_fault == fault
