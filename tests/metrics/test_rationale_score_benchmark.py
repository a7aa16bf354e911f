"""benchmarks/rationale_score.py runs as documented, in a tiny configuration. What it measures is not judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.tiny_bart import TEXTS
from programs import ROOT

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")
pytest.importorskip("bert_score", reason="the benchmark's peer, bert-score, is not installed")


def test_every_side_is_measured_against_the_published_program(tmp_path: Path) -> None:
    (tmp_path / "feedbackqa").mkdir()
    with open(tmp_path / "feedbackqa" / "ratings.jsonl", "w", encoding="utf-8") as stream:
        for number in range(12):
            for rater, text in enumerate((TEXTS[number % 5], TEXTS[number % 4], "")):
                rating = {"case_id": f"case-{number}", "model": "m", "annotator": f"rater-{rater}", "comment": text}
                stream.write(json.dumps(rating) + "\n")
    options = ["--tiny", "--pairs", "9", "--repeats", "1", "--parts", "bart", "--json", str(tmp_path / "measured.json")]
    command = [sys.executable, str(ROOT / "benchmarks" / "rationale_score.py"), *options]
    environment = os.environ | {"AUTOMEDEVAL_DATA": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("9 pairs of comments")
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("ours")]
    _, seconds, rate, held, ratio, sign, least, met, *memory = row
    assert min(map(float, (rate, held))) > 0 <= float(seconds)
    assert (sign, least) == (">=", "2.0")
    assert met == ("yes" if float(ratio) >= 2 else "no")
    assert memory[1:3] == ["<=", "1"]
    assert float(memory[-2]) <= float(memory[-1]), "the numbers are equal"
