"""The paper's counts beside those of a run, with what was left out."""

import pyarrow as pa
import pyarrow.parquet
import yaml
from doubles.agreement_study import write
from programs import run_recipe, succeeded


def test_files_are_counted_and_what_is_left_out_is_named_once_for_a_folder(tmp_path, monkeypatch):
    judged = [
        {"valid": True},
        {"valid": False, "overlong": True},
        {"valid": False, "error": "no score line"},
    ]
    write(tmp_path / "verdicts/verdicts.jsonl", judged)
    said = {
        "arithmetic": ["9 verdicts", "verification: no ratings of verdicts are given, all pass"]
    }
    write(tmp_path / "data/statistics.json", [said])
    write(tmp_path / "data/dropped.jsonl", [{"reason": "more than 2,048 tokens"}] * 2)
    for name, rows in (("stage1", 3), ("test", 1)):
        pa.parquet.write_table(
            pa.table({"case_id": ["c"] * rows}), tmp_path / "data" / f"{name}.parquet"
        )
    paper = {"verdicts/verdicts.jsonl": 9874, "data/stage1.parquet": 1911}
    paper |= {"data/test.parquet": None, "data/none.jsonl": 5}
    (tmp_path / "counts.yaml").write_text(
        yaml.safe_dump({"share": 0.01, "files": paper}, sort_keys=False)
    )
    monkeypatch.chdir(tmp_path)
    done = succeeded(run_recipe("counts", paper="counts.yaml"))
    assert done.stdout == (tmp_path / "reports/counts.md").read_text()
    assert done.stdout.splitlines() == [
        "| file | paper | in proportion | here | left out, and why |",
        "| --- | ---: | ---: | ---: | --- |",
        "| `verdicts/verdicts.jsonl` | 9,874 | 98.7 | 3 | 1 verdicts beyond the context window; 1 invalid verdicts |",
        "| `data/stage1.parquet` | 1,911 | 19.1 | 3 | no physician has verified these verdicts; 2 more than 2,048 tokens |",
        "| `data/test.parquet` | – | – | 1 |  |",
    ]
