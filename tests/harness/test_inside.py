"""A judge inside the harnesses: their scores are the judge's, and an answer without a valid verdict has none."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from doubles.endpoint import EndpointDouble, answer, good_answer
from programs import ROOT

from automedeval import Case, RecordError, Verdict
from automedeval.harness import lm_eval_task
from automedeval.harness.lm_eval_task import process_results
from automedeval.harness.logs import Answer
from automedeval.harness.scoring import SETTINGS, named_judge, score_answers
from automedeval.judges.settings import load_by_settings

HERE = Path(__file__).parent


def reply(body: dict) -> dict:
    """Give 4 points, and no readable verdict on the question about a nosebleed."""
    return answer("I cannot say.") if "nosebleed" in body["messages"][-1]["content"] else good_answer(body)


def documented_task() -> str:
    """Return the task of the documents, with the lines that score its answers."""
    text = (ROOT / "docs" / "harnesses.md").read_text(encoding="utf-8")
    return "".join(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))


def scored(value: float) -> float | None:
    return None if math.isnan(value) else value


def test_each_harness_has_the_judge_s_scores_and_leaves_out_what_has_no_verdict(
    harness: Callable[..., str], logs: dict[str, Path], tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (logs["lm"].parents[2] / "questions.jsonl").read_text().splitlines()]
    records = [{"question": each["question"], "reference": each["answer"]} for each in rows]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "medical_answers.yaml").write_text(documented_task())
    settings = tmp_path / "judge.yaml"
    with EndpointDouble(reply) as endpoint:
        settings.write_text(f"judge: openai:double\nbase_url: {endpoint.url}\nrationale: true\nmax_retries: 0\n")
        own = {SETTINGS: str(settings), "OPENAI_API_KEY": "none"}
        printed = harness("python", HERE / "score_inside.py", logs["json"], "tasks", cwd=tmp_path, **own)
    found = json.loads(printed.splitlines()[-1])
    inspect = found["inspect"]
    assert [scored(each) for each in inspect["values"]] == [4, None, 4] * 2, "two epochs"
    assert inspect["reasons"] == [None, "grader_failed", None] * 2
    assert inspect["mean"] == 4
    assert inspect["together"] == [6], "all samples were judged in one call"
    for name in ("lm_eval", "lighteval"):
        assert [scored(each) for each in found[name]["values"]] == [4, None, 4], name
        assert found[name]["mean"] == 4, name
    assert found["lighteval"]["error"] == 0
    asked = "".join(str(each["body"]) for each in endpoint.requests)
    assert "What lowers a fever?" in asked
    assert "Question: What" not in asked, "the prompt's template"


def test_inspect_finds_the_scorer_by_its_name(
    harness: Callable[..., str], logs: dict[str, Path], tmp_path: Path
) -> None:
    command = ["inspect", "score", logs["json"], "--scorer", "automedeval/judge", "--action", "append"]
    command += ["-S", "judge=baseline:longer text", "--output-file", tmp_path / "scored.json"]
    harness(*command, "--display", "none")
    log = json.loads((tmp_path / "scored.json").read_text(encoding="utf-8"))
    lengths = [len(each["output"]["choices"][0]["message"]["content"].split()) for each in log["samples"]]
    assert [each["scores"]["judge"]["value"] for each in log["samples"]] == lengths


class Recorder:
    """A judge that gives as many points as the answer has words, and keeps the cases."""

    def __init__(self):
        self.cases: list[Case] = []

    def __call__(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        for case in cases:
            self.cases.append(case)
            words = float(len(case.responses[0].text.split()))
            yield Verdict(case.id, "words", "words@1", (0,), valid=True, expected_scores=(words,), rationale="So.")


def test_the_judge_reads_the_question_and_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Recorder()
    monkeypatch.setattr(lm_eval_task, "named_judge", lambda: judge)
    assert process_results({"question": "Is it safe?", "reference": "No."}, ["It is not."]) == {"automedeval": 3}
    assert process_results({"question": "Is it safe?"}, ["No."]) == {"automedeval": 1}
    talk = [{"role": "user", "content": "Is it safe?"}]
    scores = score_answers(judge, [Answer("7", talk, "One two."), Answer("7", talk, "One.", "No.", epoch=2)])
    assert scores == [{"value": value, "explanation": "So.", "verdicts": 1, "valid": 1} for value in (2, 1)]
    read = [(case.question, case.reference) for case in judge.cases]
    assert read == [("Is it safe?", "No."), ("Is it safe?", None), (talk, None), (talk, "No.")]


def test_a_setting_or_a_document_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with pytest.raises(RecordError, match="--jugde"):
        load_by_settings({"jugde": "small"})
    with pytest.raises(RecordError, match="gives choices, and scores are needed"):
        load_by_settings({"judge": "openai:m", "rubric": "medical_pairwise"})
    with pytest.raises(RecordError, match="column 'question'"):
        process_results({"prompt": "?"}, ["An answer."])
    with pytest.raises(RecordError, match="no generated text"):
        process_results({"question": "?"}, [(-1.0, True)])
    monkeypatch.setenv(SETTINGS, str(tmp_path / "none.yaml"))
    named_judge.cache_clear()
    with pytest.raises(RecordError, match=r"none\.yaml: "):
        process_results({"question": "?"}, ["An answer."])
