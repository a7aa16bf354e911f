"""Every command of docs/harnesses.md, with the real programs; what comes out is compared with plain loops over their logs."""

import json
import re
import shutil

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, prompt_of
from factories import read_json, verdicts_in
from plain_small_judge import Plain
from programs import ENCODER, ROOT, SAMPLE, needs_encoder
from tables import read_csv

from automedeval.judges.small import PACKAGED

PAGE = (ROOT / "docs/harnesses.md").read_text(encoding="utf-8")
SECTION = re.search(r"(?s)\n## From a run to a report\n(.*?)\n## ", PAGE)[1]


def blocks(text: str) -> list[str]:
    return re.findall(r"(?s)```bash\n(.*?)```", text)


@needs_encoder
def test_the_path_of_the_documents(harness, tiny_model, tmp_path):
    for name, content in re.findall(r"(?s)```\w+\n# (\S+)\n(.*?)```", SECTION):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    cases = read(SAMPLE / "test_cases.jsonl")[:3]
    rows = [{"question": case["question"], "reference": case["reference"]} for case in cases]
    rows[2]["reference"] = None
    write(tmp_path / "cases.jsonl", rows)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/SmolLM2-135M-Instruct").symlink_to(tiny_model)
    (tmp_path / "models" / ENCODER.name).symlink_to(ENCODER.resolve())
    (commands,) = blocks(SECTION)
    printed = harness(
        "bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, AUTOMEDEVAL_JUDGE="small"
    )
    assert "cases: 3, with an answer of all 2 models: 3" in printed
    joined = read(tmp_path / "verdicts/both/cases.jsonl")
    asked = [{"question": case["question"], "reference": case["reference"]} for case in joined]
    assert asked == rows
    assert (tmp_path / "reports/both/report.html").is_file()

    plain = Plain(PACKAGED)
    (file,) = (tmp_path / "logs/lm_eval").glob("*/samples_*.jsonl")
    lines = {line["doc_id"]: line["resps"][0][0] for line in read(file)}
    (log,) = (tmp_path / "logs/inspect").glob("*.eval")
    samples = json.loads(harness("inspect", "log", "dump", log))["samples"]
    answers = {sample["input"]: sample["output"]["completion"] for sample in samples}
    scores = {}
    for cell in read_csv(tmp_path / "scores.csv"):
        scores[cell["case_id"], cell["model"]] = float(cell["expected_score"])
    assert len(scores) == 6
    for number, (case, row) in enumerate(zip(joined, rows, strict=True)):
        question = row["question"]
        reference = row["reference"]
        for model, text in (("model-a", lines[number]), ("model-b", answers[question])):
            wanted = plain.score(question, text, reference)
            assert scores[case["id"], model] == pytest.approx(wanted, abs=2e-3)


def test_every_other_command_of_the_page(harness, logs, tmp_path):
    for name in ("samples_a.jsonl", "samples_b.jsonl"):
        shutil.copy(logs["lm"], tmp_path / name)
    shutil.copy(logs["json"], tmp_path / "run.json")
    # That for HELM is run in test_helm.py.
    judged, _helm, inside = [block for block in blocks(PAGE) if block not in blocks(SECTION)]
    environment = {"AUTOMEDEVAL_JUDGE": "baseline:longer text", "OPENAI_API_KEY": "none"}

    def run(commands):
        harness("bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, **environment)

    run(judged)
    assert (tmp_path / "reports/run/report.html").is_file()
    cases = {case["id"]: case for case in read(tmp_path / "verdicts/run/cases.jsonl")}
    scores = {}
    for verdict in verdicts_in(tmp_path / "verdicts/run"):
        responses = cases[verdict.case_id]["responses"]
        for response, score in zip(responses, verdict.expected_scores, strict=True):
            place = (response["model"], response["harness_id"], response["harness_epoch"])
            scores[place] = score
    wanted = {}
    for line in read(logs["lm"]):
        for model in ("model-a", "model-b"):
            wanted[model, str(line["doc_id"]), 1] = len(line["resps"][0][0].split())
    assert scores == wanted

    def reply(body):
        number = re.search(r"An answer, number (\d)\.", prompt_of(body))
        if number is None:
            return answer("?")
        return answer(f"It is so.\nScore: Doctor 1: {1 + int(number[1]) % 5} points.")

    with EndpointDouble(reply) as endpoint:
        run(inside.replace("http://localhost:8000/v1", endpoint.url))
    for sample in read_json(tmp_path / "run.json")["samples"]:
        number = int(sample["output"]["completion"][-2])
        assert sample["scores"]["judge"]["value"] == 1 + number % 5
