"""The path of docs/harnesses.md, as its blocks say: run lm-evaluation-harness and inspect_ai, judge, report, write back."""

import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.agreement_study import read
from programs import ENCODER, ROOT, SAMPLE, needs_encoder


@needs_encoder
def test_the_path_of_the_documents(harness: Callable[..., str], tiny_model: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "harnesses.md").read_text(encoding="utf-8")
    section = re.search(r"\n## From a run to a report and back\n(.*?)\n## ", text, re.DOTALL)[1]
    for name, content in re.findall(r"```\w+\n# (\S+)\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    with (SAMPLE / "test_cases.jsonl").open(encoding="utf-8") as lines:
        cases = [json.loads(line) for line in itertools.islice(lines, 3)]
    rows = [{"question": each["question"], "reference": each["reference"]} for each in cases]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "SmolLM2-135M-Instruct").symlink_to(tiny_model)
    (tmp_path / "models" / ENCODER.name).symlink_to(ENCODER.resolve())
    (commands,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    printed = harness("bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, AUTOMEDEVAL_JUDGE="small")
    assert "3 cases, 3 with an answer of all 2 models" in printed
    joined = read(tmp_path / "verdicts" / "both" / "cases.jsonl")
    assert [(each["question"], each["reference"]) for each in joined] == [(r["question"], r["reference"]) for r in rows]
    given = {
        each["case_id"]: each["expected_scores"] for each in read(tmp_path / "verdicts" / "both" / "verdicts.jsonl")
    }
    by_model = list(zip(*(given[case["id"]] for case in joined)))
    assert (tmp_path / "reports" / "both" / "report.html").is_file()
    assert [each["automedeval"] for each in read(tmp_path / "scores.jsonl")] == pytest.approx(by_model[0])
    (log,) = (tmp_path / "logs" / "inspect").glob("*.eval")
    scored = json.loads(harness("inspect", "log", "dump", log))
    (name,) = scored["samples"][0]["scores"]
    values = [each["scores"][name]["value"] for each in scored["samples"]]
    assert values == pytest.approx(by_model[1])
    assert not any(map(math.isnan, values))
    assert scored["status"] == "success"
