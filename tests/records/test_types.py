import json
import random
import tracemalloc
from datetime import date, datetime
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest
from factories import write
from tables import refused, rows_of

from automedeval.records import (
    Case,
    Rating,
    RecordError,
    Verdict,
    read_lines,
    read_records,
)
from automedeval.records.cases import read_cases
from automedeval.records.types import repeats

ROWS = rows_of(__file__)
CASE, RATING, VERDICT = (ROWS["records"][kind] for kind in ("Case", "Rating", "Verdict"))
PAIR = VERDICT | {"pair": ["m1", "m2"], "choices": {"bias": "neither"}}
PAIR |= {"scores": None, "expected_scores": None}
ANSWER = {"model": "m", "text": "x"}
KINDS = {"Case": (Case, CASE), "Rating": (Rating, RATING), "Verdict": (Verdict, VERDICT)}


def changed(record, **changes):
    """Return the record with some keys set; ... removes one."""
    return {key: value for key, value in {**record, **changes}.items() if value is not ...}


def written(folder, *lines, name="records.jsonl"):
    return write(folder / name, lines)


@pytest.mark.parametrize(
    ("kind", "record"), [(Case, CASE), (Rating, RATING), (Verdict, VERDICT), (Verdict, PAIR)]
)
def test_a_record_comes_back_as_it_was_with_unknown_keys(tmp_path, kind, record):
    (read,) = read_records(written(tmp_path, record), kind)
    assert isinstance(read, kind)
    assert read.to_dict() == record
    assert list(read.to_dict()) == list(record)
    assert json.loads(json.dumps(read.to_dict())) == record


def refusal(path, kind=Case):
    with pytest.raises(RecordError) as error:
        list(read_cases(path) if kind is Case else read_records(path, kind))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_number_that_cannot_be_compared_is_refused(tmp_path):
    """Parquet has NaN for what is missing, and JSON can hold a number that is read as infinity."""
    line = json.dumps(changed(VERDICT, expected_scores=[4.5, 7.0])).replace("7.0", "1e999")
    (tmp_path / "v.jsonl").write_text(line + "\n")
    told = "v.jsonl:1: 'expected_scores' must be a finite number, not inf"
    assert told in refusal(tmp_path / "v.jsonl", Verdict)
    rows = [changed(RATING, score=4.0), changed(RATING, model="m2", score=float("nan"))]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    told = "r.parquet:2: 'score' must be a finite number, not nan"
    assert told in refusal(tmp_path / "r.parquet", Rating)


@pytest.mark.parametrize(
    ("name", "change", "said"), ROWS["test_a_faulty_record_is_named_by_file_and_line"]
)
def test_a_faulty_record_is_named_by_file_and_line(tmp_path, name, change, said):
    kind, good = KINDS[name]
    given = {key: ... if value == "ABSENT" else value for key, value in change.items()}
    faulty = changed(good, **given)
    path = written(tmp_path, changed(good, id="good") if kind is Case else good, faulty)
    records = read_records(path, kind)
    next(records)
    with refused(f"{path}:2: ", said):
        next(records)


LINES = ROWS["test_a_line_that_is_no_object_is_named_by_file_and_line"]


@pytest.mark.parametrize(("line", "said"), LINES.values(), ids=LINES)
def test_a_line_that_is_no_object_is_named_by_file_and_line(tmp_path, line, said):
    path = tmp_path / "cases.jsonl"
    content = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(b"\n\n".join([json.dumps(CASE).encode(), content + b"\n"]))
    told = refusal(path)
    assert told.startswith(f"{path}:3: ")
    assert said in told
    assert len(told) < len(str(path)) + 220


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\xef\xbb\xbf"], ids=["nothing", "blank lines", "BOM alone"]
)
def test_a_file_without_a_case_is_refused(tmp_path, content):
    (tmp_path / "cases.jsonl").write_bytes(content)
    assert "cases.jsonl: the file is empty" in refusal(tmp_path / "cases.jsonl")


@pytest.mark.parametrize("name", ["nowhere.jsonl", "nowhere.parquet", "."])
def test_a_file_that_cannot_be_opened_is_named(tmp_path, name):
    assert refusal(tmp_path / name).startswith(f"{tmp_path / name}: ")


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path):
    path = tmp_path / "cases.jsonl"
    cases = [json.dumps(case) for case in (CASE, changed(CASE, id="ü"))]
    path.write_text("\ufeff" + "\r\n\r\n".join(cases), newline="")
    assert [case.id for case in read_cases(path)] == ["c1", "ü"]
    assert [place for place, _ in read_lines(path)] == [f"{path}:1", f"{path}:3"]


def test_parquet_serves_like_json_lines_and_a_faulty_row_is_named(tmp_path):
    records = [
        changed(CASE, id=name, responses=[ANSWER, {"model": "n", "text": ""}])
        for name in ("c1", "c2", "c1")
    ]
    path = tmp_path / "cases.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records[:2]), path)
    assert [case.to_dict() for case in read_cases(path)] == records[:2]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    assert refusal(path) == f"{path}:3: the id 'c1' stands at {path}:1 already"


def test_what_json_lacks_comes_from_parquet_as_text(tmp_path):
    lacking = {"retrieved": datetime(2024, 5, 1, 12, 30), "seen": [{"on": date(2024, 5, 2)}]}
    lacking |= {"price": Decimal("1.50"), "hash": b"ab\xff"}
    path = tmp_path / "cases.parquet"
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([changed(CASE, responses=[ANSWER], **lacking)]), path
    )
    (case,) = read_cases(path)
    told = {"retrieved": "2024-05-01 12:30:00", "seen": [{"on": "2024-05-02"}]}
    told |= {"price": "1.50", "hash": "ab\\xff"}
    assert json.loads(json.dumps(case.to_dict())) == changed(CASE, responses=[ANSWER], **told)


def test_a_broken_parquet_file_is_named(tmp_path):
    path = tmp_path / "cases.parquet"
    path.write_bytes(b"this is no parquet file")
    assert refusal(path).startswith(f"{path}: cannot be read: ")


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "cases.jsonl"
    with open(path, "w", encoding="utf-8") as stream:
        for number in range(400):
            stream.write(json.dumps(changed(CASE, id=str(number), reference="x" * 20_000)) + "\n")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_cases(path)) == 400
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 8_000_000
    assert peak < 1_000_000


def repeats_by_loops(words: list[str]) -> bool:
    """Return whether some phrase makes up the end of words four times, with whatever of a fifth one, in eight words or more."""
    words = words[:-1]
    for size in range(1, len(words) // 4 + 1):
        for length in range(max(8, 4 * size), len(words) + 1):
            end = words[-length:]
            if end == (end[:size] * length)[:length]:
                return True
    return False


def test_a_text_that_repeats_itself_is_told_from_one_that_does_not():
    drawn = random.Random(0)
    texts = [drawn.choices("ab", k=drawn.randrange(30)) for _ in range(300)]
    texts += [
        [*drawn.choices("abc", k=9), *(drawn.choices("abc", k=drawn.randrange(1, 5)) * 6)]
        for _ in range(100)
    ]
    answers = [repeats(", ".join(words).upper()) for words in texts]
    assert answers == [repeats_by_loops(words) for words in texts]
    assert 50 < sum(answers) < 350
    assert repeats("The patient is wrong, " * 5 + "The pat")
    assert not repeats("Answer 1 is right. Answer 2 is right. Answer 3 is wrong. No, no, no.")


@pytest.mark.parametrize(
    ("text", "cut", "fault"),
    [
        (None, True, None),
        ("Short.", False, None),
        ("It brea", True, "breaks off"),
        ("no " * 20, True, "repeats itself"),
    ],
)
def test_a_valid_verdict_says_what_is_wrong_with_its_rationale(text, cut, fault):
    verdict = Verdict.from_dict(VERDICT | {"rationale": text, "truncated": cut})
    assert verdict.rationale_fault == fault
