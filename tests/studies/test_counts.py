"""The paper's counts beside those of a run, with what was left out."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from programs import ROOT

sys.path.insert(0, str(ROOT / "recipes"))
from study.counts import count_table


def written(file: Path, records: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_files_are_counted_and_what_is_left_out_is_named_once_for_a_folder(tmp_path: Path) -> None:
    judged = [{"valid": True}, {"valid": False, "overlong": True}, {"valid": False, "error": "no score line"}]
    written(tmp_path / "verdicts" / "verdicts.jsonl", judged)
    written(tmp_path / "data" / "dropped.jsonl", [{"reason": "more than 2,048 tokens"}] * 2)
    for name, rows in (("stage1", 3), ("test", 1)):
        pa.parquet.write_table(pa.table({"case_id": ["c"] * rows}), tmp_path / "data" / f"{name}.parquet")
    paper = {
        "verdicts/verdicts.jsonl": 9874,
        "data/stage1.parquet": 1911,
        "data/test.parquet": None,
        "data/none.jsonl": 5,
    }
    assert count_table(tmp_path, paper, 0.01).splitlines() == [
        "| file | paper | in proportion | here | left out, and why |",
        "| --- | ---: | ---: | ---: | --- |",
        "| `verdicts/verdicts.jsonl` | 9,874 | 98.7 | 3 | 1 verdicts beyond the context window; 1 invalid verdicts |",
        "| `data/stage1.parquet` | 1,911 | 19.1 | 3 | 2 more than 2,048 tokens |",
        "| `data/test.parquet` | – | – | 1 |  |",
    ]
