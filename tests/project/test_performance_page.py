"""docs/performance.md is what benchmarks/page.py makes of the versioned results."""

import subprocess
import sys
from pathlib import Path

from programs import ROOT


def test_the_page_is_made_of_the_versioned_results(tmp_path: Path) -> None:
    results, output = ROOT / "benchmarks" / "results", tmp_path / "page.md"
    assert list(results.glob("*.json"))
    page = [sys.executable, ROOT / "benchmarks" / "page.py", "--results", results, "--output", output]
    subprocess.run(page, check=True)
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == output.read_text(encoding="utf-8")
