"""automedeval judge with a file of requests, for machines without a network, beside the same judge at the server."""

from zlib import crc32

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, error, good_answer
from programs import SAMPLE, error_line, run_recipe, succeeded
from tables import rows_of

from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Verdict, read_cases, read_records

CASES = SAMPLE / "test_cases.jsonl"


def scored(body):
    drawn = crc32(body["messages"][-1]["content"].encode())
    line = " ".join(f"Doctor {slot + 1}: {3 + (drawn >> 8 * slot) % 3} points." for slot in range(3))
    return answer(f"All help.\nScore: {line}")


def answered(requests, file, server):
    """Answer a file of requests as `vllm run-batch` does."""
    answers = []
    for request in read(requests):
        assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
        said = server(request["body"])
        response = {"status_code": said["status"], "request_id": "r", "body": said["json"]}
        answers.append({"id": "b", "custom_id": request["custom_id"], "response": response, "error": None})
    write(file, answers)


def judge(tmp_path, *options, limit=2, cases=CASES):
    args = ["--judge", "openai:m", "--cases", cases, "--limit", limit, "--max_new_tokens", 40]
    args += ["--output", tmp_path / "out", "--batch_file", tmp_path / "requests.jsonl"]
    return run_recipe("judge", *args, *options)


def verdicts_in(tmp_path):
    file = tmp_path / "out" / "verdicts.jsonl"
    return {verdict.key: verdict for verdict in read_records(file, Verdict)} if file.exists() else {}


def test_a_file_gives_the_verdicts_of_the_server(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = judge(tmp_path)
    assert f"2 requests to answer in {tmp_path / 'requests.jsonl'}: vllm run-batch" in done.stdout
    answered(tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", scored)
    done = succeeded(judge(tmp_path))
    assert "2 cases, 2 verdicts (2 new)" in done.stdout
    assert "requests to answer" not in done.stdout
    assert (tmp_path / "requests.jsonl").read_text() == ""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with EndpointDouble(scored) as endpoint:
        judged = Judge(OpenAIChat("m", base_url=endpoint.url, max_new_tokens=40), "automedeval")
        expected = {verdict.key: verdict for verdict in judged(list(read_cases(CASES))[:2])}
    verdicts = verdicts_in(tmp_path)
    assert verdicts.keys() == expected.keys()
    for key, verdict in expected.items():
        assert verdict.valid
        for name in ("scores", "rationale", "usage"):
            assert getattr(verdicts[key], name) == getattr(verdict, name)


def test_what_was_not_answered_is_asked_again_and_a_refused_prompt_is_invalid(tmp_path):
    said = iter([
        error(500, "out of memory"),
        error(400, "This model's maximum context length is 4096 tokens."),
        answer("Good.\nScore: Doctor 1: 4 points. Doctor 2: 3 points. Doctor 3: 3 points."),
    ])  # fmt: skip
    judge(tmp_path, limit=3)
    requests = (tmp_path / "requests.jsonl").read_text().splitlines()
    answered(tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", lambda body: next(said))
    done = judge(tmp_path, limit=3)
    assert "1 requests to answer" in done.stdout
    assert (tmp_path / "requests.jsonl").read_text().splitlines() == requests[:1]
    assert sorted(verdict.valid for verdict in verdicts_in(tmp_path).values()) == [False, True]


def test_cases_of_equal_texts_share_a_request_and_each_has_its_verdict(tmp_path):
    """OpenAI's batches take no file in which a custom_id stands twice."""
    texts = {"question": "May I?", "responses": [{"model": "a", "text": "Yes."}, {"model": "b", "text": "No."}]}
    other = {"id": "other", "question": "Why?", "responses": texts["responses"]}
    cases = tmp_path / "cases.jsonl"
    rows = [{"id": name, **texts} for name in ("one", "two", "three")] + [other]
    write(cases, rows)
    options = ("--orders", "all", "--runs", 2)
    done = judge(tmp_path, *options, limit=9, cases=cases)
    ids = [request["custom_id"] for request in read(tmp_path / "requests.jsonl")]
    assert len(ids) == len(set(ids)) == 2 * 2 * 2
    assert f"{len(ids)} requests to answer" in done.stdout
    answered(tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", good_answer)
    judge(tmp_path, *options, limit=9, cases=cases)
    verdicts = verdicts_in(tmp_path)
    assert (sorted({key[0] for key in verdicts}), len(verdicts)) == (["one", "other", "three", "two"], 4 * 2 * 2)
    for (_, *rest), verdict in verdicts.items():
        assert verdict.valid
        twin = verdicts[("one" if verdict.case_id != "other" else "other", *rest)]
        assert (verdict.scores, verdict.expected_scores, verdict.raw) == (twin.scores, twin.expected_scores, twin.raw)


@pytest.mark.parametrize(("options", "answers", "said"), rows_of(__file__)["test_bad_input_is_told_in_one_line"])
def test_bad_input_is_told_in_one_line(tmp_path, options, answers, said):
    (tmp_path / "requests.answers.jsonl").write_text(answers)
    assert said in error_line(judge(tmp_path, *options))
