"""Every command of docs/harnesses.md, with the real programs; what comes out is compared with plain loops over their logs."""

import json
import math
import re
import shutil

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer
from factories import read_json
from plain_small_judge import Plain
from programs import ENCODER, ROOT, SAMPLE, needs_encoder
from tables import read_csv

from automedeval.judges.small import PACKAGED

PAGE = (ROOT / "docs" / "harnesses.md").read_text(encoding="utf-8")
SECTION = re.search(r"\n## From a run to a report\n(.*?)\n## ", PAGE, re.DOTALL)[1]


def blocks(text: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)


@needs_encoder
def test_the_path_of_the_documents(harness, tiny_model, tmp_path):
    for name, content in re.findall(r"```\w+\n# (\S+)\n(.*?)```", SECTION, re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    cases = read(SAMPLE / "test_cases.jsonl")[:3]
    rows = [{"question": each["question"], "reference": each["reference"]} for each in cases]
    rows[2]["reference"] = None
    write(tmp_path / "cases.jsonl", rows)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "SmolLM2-135M-Instruct").symlink_to(tiny_model)
    (tmp_path / "models" / ENCODER.name).symlink_to(ENCODER.resolve())
    (commands,) = blocks(SECTION)
    printed = harness(
        "bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, AUTOMEDEVAL_JUDGE="small"
    )
    assert "3 cases, 3 with an answer of all 2 models" in printed
    joined = read(tmp_path / "verdicts" / "both" / "cases.jsonl")
    assert [(each["question"], each["reference"]) for each in joined] == [
        (r["question"], r["reference"]) for r in rows
    ]
    assert (tmp_path / "reports" / "both" / "report.html").is_file()

    plain = Plain(PACKAGED)
    (file,) = (tmp_path / "logs" / "lm_eval").glob("*/samples_*.jsonl")
    lines = {line["doc_id"]: line["resps"][0][0] for line in read(file)}
    (log,) = (tmp_path / "logs" / "inspect").glob("*.eval")
    samples = json.loads(harness("inspect", "log", "dump", log))["samples"]
    answers = {each["input"]: each["output"]["completion"] for each in samples}
    said = {
        "model-a": lines,
        "model-b": {number: answers[row["question"]] for number, row in enumerate(rows)},
    }
    table = read_csv(tmp_path / "scores.csv")
    for model, texts in said.items():
        wanted = [
            plain.score(row["question"], texts[number], row["reference"])
            for number, row in enumerate(rows)
        ]
        scores = {
            row["case_id"]: float(row["expected_score"]) for row in table if row["model"] == model
        }
        assert [scores[case["id"]] for case in joined] == pytest.approx(wanted, abs=2e-3)


def test_every_other_command_of_the_page(harness, logs, tmp_path):
    shutil.copy(logs["lm"], tmp_path / "samples_medtext.jsonl")
    shutil.copy(logs["json"], tmp_path / "run.json")
    samples = read_json(logs["json"])["samples"]
    said = {(str(each["id"]), each["epoch"]): each["output"]["completion"] for each in samples}
    other = {line["doc_id"]: line["resps"][0][0] for line in read(logs["lm"])}
    # That for HELM is run in test_helm.py.
    judged, _helm, inside = [block for block in blocks(PAGE) if block not in blocks(SECTION)]
    environment = {"AUTOMEDEVAL_JUDGE": "baseline:longer text", "OPENAI_API_KEY": "none"}

    def run(commands):
        harness("bash", "-euo", "pipefail", "-c", commands, cwd=tmp_path, **environment)

    def values(name):
        samples = read_json(tmp_path / "run.json")["samples"]
        return {(str(each["id"]), each["epoch"]): each["scores"][name]["value"] for each in samples}

    run(judged)
    assert (tmp_path / "reports" / "run" / "report.html").is_file()
    cases = {each["id"]: each for each in read(tmp_path / "verdicts" / "run" / "cases.jsonl")}
    verdicts = read(tmp_path / "verdicts" / "run" / "verdicts.jsonl")
    scores = {}
    for verdict in verdicts:
        for response, score in zip(
            cases[verdict["case_id"]]["responses"], verdict["expected_scores"], strict=True
        ):
            scores[response["model"], response["harness_id"], response["harness_epoch"]] = score
    wanted = {("model-a", str(number), 1): len(text.split()) for number, text in other.items()}
    wanted |= {("model-b", *key): len(text.split()) for key, text in said.items()}
    assert scores == wanted

    def reply(body):
        number = re.search(r"An answer, number (\d)\.", body["messages"][-1]["content"])
        return answer(
            f"It is so.\nScore: Doctor 1: {1 + int(number[1]) % 5} points." if number else "?"
        )

    with EndpointDouble(reply) as endpoint:
        run(inside.replace("http://localhost:8000/v1", endpoint.url))
    assert values("judge") == {key: 1 + int(text[-2]) % 5 for key, text in said.items()}
    assert not any(map(math.isnan, values("judge").values()))
