"""automedeval judge with files of requests and answers, for machines without a network, beside the same judge at the server."""

import json

import pytest
from doubles.constrained_server import ConstrainedServer
from doubles.endpoint import answer, error
from programs import SAMPLE, error_line, run_recipe

from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Verdict, read_cases, read_records

CASES = SAMPLE / "test_cases.jsonl"


def answered(requests, file, server):
    """Answer a file of requests as `vllm run-batch` does."""
    with file.open("w", encoding="utf-8") as stream:
        for line in requests.read_text(encoding="utf-8").splitlines():
            request = json.loads(line)
            assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
            said = server(request["body"])
            response = {"status_code": said["status"], "request_id": "r", "body": said["json"]}
            stream.write(
                json.dumps({"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}) + "\n"
            )


def judge(tmp_path, *options, limit=2, cases=CASES):
    args = ["--judge", "openai:m", "--cases", cases, "--limit", limit, "--max_new_tokens", 40]
    args += ["--output", tmp_path / "out", "--batch_file", tmp_path / "requests.jsonl"]
    return run_recipe("judge", *args, *options)


def verdicts_in(tmp_path):
    file = tmp_path / "out" / "verdicts.jsonl"
    return {verdict.key: verdict for verdict in read_records(file, Verdict)} if file.exists() else {}


def test_files_give_the_verdicts_of_the_server(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server, files = ConstrainedServer(), []
    for number in range(5):  # the rationale, then the scores of three responses
        done = judge(tmp_path, *(["--batch_answers", ",".join(map(str, files))] if files else []))
        assert done.returncode == 0, done.stderr
        if "requests to answer" not in done.stdout:
            break
        assert "2 requests to answer" in done.stdout
        files.append(tmp_path / f"answers{number}.jsonl")
        answered(tmp_path / "requests.jsonl", files[-1], server)
    assert number == 4
    assert (tmp_path / "requests.jsonl").read_text() == ""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with server.double() as endpoint:
        judged = Judge(OpenAIChat("m", base_url=endpoint.url, max_new_tokens=40), "automedeval")
        expected = {verdict.key: verdict for verdict in judged(list(read_cases(CASES))[:2])}
    verdicts = verdicts_in(tmp_path)
    assert verdicts.keys() == expected.keys()
    for key, verdict in expected.items():
        assert (verdicts[key].scores, verdicts[key].expected_scores, verdicts[key].rationale, verdicts[key].usage) == (
            verdict.scores, verdict.expected_scores, verdict.rationale, verdict.usage,
        )  # fmt: skip


def test_what_was_not_answered_is_asked_again_and_a_refused_prompt_is_invalid(tmp_path):
    said = iter([
        error(500, "out of memory"),
        error(400, "This model's maximum context length is 4096 tokens."),
        answer("Good.\nScore: Doctor 1: 4 points. Doctor 2: 3 points. Doctor 3: 3 points."),
    ])  # fmt: skip
    judge(tmp_path, "--score_decoding", "free", limit=3)
    requests = (tmp_path / "requests.jsonl").read_text().splitlines()
    assert "structured_outputs" not in requests[0]
    answered(tmp_path / "requests.jsonl", tmp_path / "answers.jsonl", lambda body: next(said))
    done = judge(tmp_path, "--score_decoding", "free", "--batch_answers", tmp_path / "answers.jsonl", limit=3)
    assert "1 requests to answer" in done.stdout
    assert (tmp_path / "requests.jsonl").read_text().splitlines() == requests[:1]
    assert sorted(verdict.valid for verdict in verdicts_in(tmp_path).values()) == [False, True]


def test_cases_of_equal_texts_share_a_request_and_each_has_its_verdict(tmp_path):
    """OpenAI's batches take no file in which a custom_id stands twice."""
    texts = {"question": "May I?", "responses": [{"model": "a", "text": "Yes."}, {"model": "b", "text": "No."}]}
    other = {"id": "other", "question": "Why?", "responses": texts["responses"]}
    cases = tmp_path / "cases.jsonl"
    rows = [{"id": name, **texts} for name in ("one", "two", "three")] + [other]
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = []
    for number in range(4):
        args = ["--batch_answers", ",".join(map(str, files))] if files else []
        done = judge(tmp_path, "--orders", "all", "--runs", 2, *args, limit=9, cases=cases)
        ids = [json.loads(line)["custom_id"] for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
        assert len(ids) == len(set(ids))
        if not ids:
            break
        assert f"{len(ids)} requests to answer" in done.stdout
        files.append(tmp_path / f"answers{number}.jsonl")
        answered(tmp_path / "requests.jsonl", files[-1], ConstrainedServer())
    verdicts = verdicts_in(tmp_path)
    assert sorted({key[0] for key in verdicts}) == ["one", "other", "three", "two"]
    assert len(verdicts) == 4 * 2 * 2
    for (_, *rest), verdict in verdicts.items():
        assert verdict.valid
        twin = verdicts[("one" if verdict.case_id != "other" else "other", *rest)]
        assert (verdict.scores, verdict.expected_scores, verdict.raw) == (twin.scores, twin.expected_scores, twin.raw)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch_answers", "{}"], "line 1: not an answer of a batch"),
        (["--batch_answers", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, options, said):
    (tmp_path / "bad.jsonl").write_text("[]\n")
    done = judge(tmp_path, *(option.replace("{}", str(tmp_path / "bad.jsonl")) for option in options))
    assert said in error_line(done)
