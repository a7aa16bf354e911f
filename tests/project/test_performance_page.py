"""docs/performance.md is what benchmarks/page.py makes of the versioned results, with missed targets on top."""

import json
import subprocess
import sys
from pathlib import Path

from programs import ROOT

PAGE = ROOT / "docs" / "performance.md"


def written(results: Path, tmp_path: Path) -> str:
    output = tmp_path / "page.md"
    command = [sys.executable, str(ROOT / "benchmarks" / "page.py"), "--results", str(results), "--output", str(output)]
    subprocess.run(command, check=True)
    return output.read_text(encoding="utf-8")


def test_the_page_is_made_of_the_versioned_results(tmp_path: Path) -> None:
    assert list((ROOT / "benchmarks" / "results").glob("*.json"))
    assert PAGE.read_text(encoding="utf-8") == written(ROOT / "benchmarks" / "results", tmp_path)


def test_missed_targets_come_first(tmp_path: Path) -> None:
    record = {"title": "Judging speed", "command": "python benchmarks/x.py", "date": "2026-11-23", "seconds": 60.0}
    record |= {"processor_seconds": 90.0, "idle": False, "other_cores": 0.5, "notes": ["30 cases."]}
    record |= {"machine": {"processor": "A processor", "cores": 2, "bfloat16": False, "gpu": None}}
    record |= {"versions": {"python": "3.11.7"}, "commit": "abc"}
    row = {"unit": "cases/s", "peer": "generate", "target": ">= 8"}
    rows = [
        row | {"name": "with a rationale", "value": 0.475, "ratio": 7.0, "met": False},
        row | {"name": "scores alone", "value": 2.03, "ratio": 29.7, "met": True},
        row | {"name": "generate", "value": 0.068, "peer": None, "ratio": None, "target": None, "met": None},
    ]
    (tmp_path / "x.json").write_text(json.dumps(record | {"rows": rows}))
    page = written(tmp_path, tmp_path)
    top, section = page.split("\n## Judging speed\n")
    assert "1 of 2: 1 of [Judging speed](#judging-speed)." in top
    assert "scores alone" not in top
    assert "| with a rationale | 0.475 cases/s, 7.00 × generate | **≥ 8, missed** |" in section
    assert "| scores alone | 2.03 cases/s, 29.70 × generate | ≥ 8 |" in section
    assert "0.068" not in section, "it has no target"
    assert "A processor, 2 cores without bfloat16; python 3.11.7" in top
    for sentence in ("`python benchmarks/x.py`", "- 30 cases.", "2026-11-23, 60 s", "0.5 cores"):
        assert sentence in section
