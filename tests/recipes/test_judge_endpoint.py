"""recipes/judge.py against an endpoint, as a person starts it, or with a file of requests for machines without a network."""

from functools import partial
from zlib import crc32

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import CUT_OFF, HANG, EndpointDouble, answer, error, good_answer, without
from programs import SAMPLE, error_line, run_recipe, served, succeeded
from tables import rows_of

from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Verdict, read_cases, read_records

CASES = SAMPLE / "test_cases.jsonl"


@pytest.fixture
def judge(tmp_path):
    """Return a function that runs the recipe and gives (exit status, stdout, lines of stderr, verdicts)."""

    def start(url, *options, process=False, limit=4, model="openai:m"):
        output = tmp_path / "out"
        args = [
            "--judge",
            model,
            "--base_url",
            url,
            "--cases",
            CASES,
            "--output",
            output,
            "--limit",
            limit,
        ]
        args += ["--max_retries", 0, "--timeout", 5]
        done = run_recipe("judge", *args, *options, launch=() if process else None)
        file = output / "verdicts.jsonl"
        verdicts = list(read_records(file, Verdict)) if file.exists() else []
        lines = [line for line in done.stderr.replace("\r", "\n").split("\n") if line.strip()]
        lines = [line for line in lines if "verdict/s" not in line and "s/verdict" not in line]
        return done.returncode, done.stdout, lines, verdicts

    return start


def keys(verdicts):
    return [(verdict.case_id, verdict.order) for verdict in verdicts]


def test_the_first_cases_are_judged_and_a_second_run_has_nothing_to_do(judge):
    with EndpointDouble(good_answer) as endpoint:
        status, out, messages, verdicts = judge(endpoint.url, process=True)
        assert (status, messages) == (0, [])
        first = [case.id for case in read_cases(CASES)][:4]
        assert sorted(verdict.case_id for verdict in verdicts) == sorted(first)
        assert all(verdict.valid and set(verdict.scores) == {4} for verdict in verdicts)
        assert {verdict.judge for verdict in verdicts} == {"m"}
        assert "4 cases, 4 verdicts (4 new)" in out
        assert "valid rate 1.000" in out
        assert len(endpoint.asked) == 4
        status, out, messages, again = judge(endpoint.url)
        assert (status, messages, again) == (0, [], verdicts)
        assert "4 verdicts (0 new)" in out
        assert len(endpoint.asked) == 4


@pytest.mark.parametrize(
    ("fault", "said", "process"),
    [
        (error(401, "Incorrect API key"), "answered 401: Incorrect API key", False),
        (HANG, "no answer within 0.8 s", False),
        (CUT_OFF, "peer closed connection", True),
        ({"status": 200, "text": "<p>Welcome</p>", "type": "text/html"}, "cannot be read", False),
    ],
)
def test_a_fault_is_one_line_and_the_next_run_finishes(judge, fault, said, process):
    with EndpointDouble(good_answer, good_answer, fault) as endpoint:
        # one at a time, so that the first two are answered
        options = ("--concurrency", 1, "--timeout", 0.8 if fault is HANG else 20)
        status, _, messages, before = judge(endpoint.url, *options, process=process)
        assert (status, len(messages)) == (1, 1)
        assert messages[0].startswith("error: ")
        assert said in messages[0]
        assert len(before) == 2
        endpoint.script = [good_answer]
        asked = len(endpoint.asked)
        status, _, messages, after = judge(endpoint.url)
        assert (status, messages, len(endpoint.asked) - asked, after[:2]) == (0, [], 2, before)
        assert len(after) == len(set(keys(after))) == 4


@pytest.mark.parametrize(
    ("readable", "status", "refuses"), [(0, 1, False), (1, 0, False), (0, 1, True)]
)
def test_an_answer_that_cannot_be_read_is_shown_and_without_a_valid_one_the_run_fails(
    judge, readable, status, refuses
):
    said = "I cannot\n**score** medical advice."
    reply = answer(None, thoughts={"refusal": said}) if refuses else answer(said)
    with EndpointDouble(*[good_answer] * readable, reply) as endpoint:
        ended, out, messages, verdicts = judge(endpoint.url, "--concurrency", 1)
    assert ended == status
    assert sum(each.valid for each in verdicts) == readable
    assert out.count(said) == 1
    assert ("The report:" in out) == bool(readable)
    assert [message for message in messages if "no verdict is valid" in message] == messages


def test_a_dry_run_counts_and_asks_nothing(judge, tmp_path):
    with EndpointDouble(good_answer) as endpoint:
        status, out, messages, verdicts = judge(endpoint.url, "--dry_run", "--orders", "latin")
        assert (status, messages, verdicts) == (0, [], [])
        assert "4 cases, 12 prompts, 0 judged already, about " in out
        tokens = out.split("about ")[1].split(" prompt tokens")[0]
        assert 12 * 200 < int(tokens.replace(",", "")) < 12 * 2000
        assert endpoint.asked == []
        assert not (tmp_path / "out").exists()
        judge(endpoint.url, limit=3)
        assert "1 cases, 1 prompts, 3 judged already" in judge(endpoint.url, "--dry_run")[1]
    assert judge(endpoint.url, "--dry_run")[0] == 1, (
        "only the server can say whose verdicts these are"
    )
    (tmp_path / "out" / "verdicts.jsonl").unlink()
    status, out, messages, _ = judge(endpoint.url, "--dry_run", "--orders", "latin")
    assert (status, messages) == (0, [])
    assert f"about {tokens} prompt tokens" in out


def good_text(body):
    return good_answer(body)["json"]["choices"][0]["message"]["content"]


def test_another_model_behind_the_same_name_and_url_is_another_judge(judge):
    """Round 1 and round 2 of a study, on one local server."""
    with EndpointDouble(partial(good_answer, score=2)) as endpoint:
        endpoint.models = [
            {"id": "other"},
            {"id": "m", "root": "checkpoints/round1", "owned_by": "vllm"},
        ]
        _, out, messages, first = judge(endpoint.url)
        assert (messages, {verdict.scores for verdict in first}) == ([], {(2, 2, 2)})
        assert "m at " + endpoint.url in out
        assert "root checkpoints/round1, owned_by vllm" in out
        assert judge(endpoint.url)[3] == first  # `created` is another each time
        endpoint.script = [partial(good_answer, score=5)]
        endpoint.models[1]["root"] = "checkpoints/round2"
        status, _, messages, _ = judge(endpoint.url)
        assert (status, len(messages)) == (1, 1)
        assert "with other weights, wording or settings" in messages[0]
        assert len(endpoint.asked) == 4


def refuses(*numbers, words="Input rejected (request req_{}).", status=400, slow=0.0):
    """Return a script that refuses the prompts of these cases of the sample, and answers the others."""
    questions = [case.question for case in read_cases(CASES)]
    count = iter(range(1000))

    def script(body):
        text = body["messages"][-1]["content"]
        if any(questions[number] in text for number in numbers):
            return error(status, words.format(next(count)))
        return good_answer(body) | {"delay": slow}

    return script


@pytest.mark.parametrize(("status", "slow"), [(400, 0.0), (400, 0.3), (413, 0.0), (422, 0.0)])
def test_one_refused_prompt_is_its_own_invalid_verdict(judge, status, slow):
    with EndpointDouble(refuses(0, 3, status=status, slow=slow)) as endpoint:
        ended, out, messages, verdicts = judge(endpoint.url, limit=6)
        assert (ended, messages) == (0, [])
        invalid = {verdict.case_id: verdict.error for verdict in verdicts if not verdict.valid}
        ids = [case.id for case in read_cases(CASES)]
        assert invalid.keys() == {ids[0], ids[3]}
        assert all(
            f"the endpoint answered {status}: Input rejected (request req_" in each
            for each in invalid.values()
        )
        assert "6 verdicts (6 new)" in out
        assert "valid rate 0.667" in out
        assert (judge(endpoint.url, limit=6)[0], len(endpoint.asked)) == (0, 6)


def test_a_run_whose_prompts_are_all_refused_records_nothing(judge):
    with EndpointDouble(refuses(*range(100))) as endpoint:
        status, _, messages, verdicts = judge(endpoint.url, "--concurrency", 1)
        assert (status, verdicts, len(endpoint.asked)) == (1, [], 4)
        assert messages == [f"error: {endpoint.url}/ answered 400: Input rejected (request req_3)."]
        endpoint.script = [refuses(0)]
        status, _, messages, verdicts = judge(endpoint.url, "--concurrency", 1)
        assert (status, messages, [verdict.valid for verdict in verdicts]) == (
            0,
            [],
            [False, True, True, True],
        )


@pytest.mark.parametrize("concurrency", [1, 8])
def test_ten_refusals_in_a_row_stop_the_run_and_are_asked_again(judge, concurrency):
    with EndpointDouble(good_answer) as endpoint:
        before = judge(endpoint.url, limit=2)[3]
        late = concurrency > 1  # one is answered after the run has decided to stop
        words = "Your credit is too low (request req_{})."
        endpoint.script = [refuses(*range(2 + late, 30), words=words, slow=2.0)]
        status, _, messages, verdicts = judge(endpoint.url, "--concurrency", concurrency, limit=30)
        assert (status, verdicts[:2], len(messages)) == (1, before, 1)
        assert [verdict.valid for verdict in verdicts[2:]] == [True] * late
        assert "answered 400: Your credit is too low" in messages[0]
        assert "10 requests in a row; the same command asks them again" in messages[0]
        assert 10 <= len(endpoint.asked) - 2 < 10 + concurrency
        endpoint.script = [good_answer]
        status, _, messages, verdicts = judge(endpoint.url, limit=30)
        assert (status, messages, len(verdicts)) == (0, [], 30)
        assert all(verdict.valid for verdict in verdicts)


@pytest.mark.parametrize("words", [["one"] * 9 + ["two"] * 9, ["one", "two"] * 9])
def test_nine_refusals_in_a_row_or_other_words_do_not_stop_the_run(judge, words):
    refused = [error(400, word) for word in words]
    with EndpointDouble(good_answer, *refused, good_answer) as endpoint:
        status, _, messages, verdicts = judge(endpoint.url, "--concurrency", 1, limit=20)
    assert (status, messages, len(verdicts)) == (0, [], 20)
    assert sum(verdict.valid for verdict in verdicts) == 2


def thinks(body):
    """Answer like a reasoning model of OpenAI: temperature and log-probabilities are refused, thoughts are only counted."""
    usage = {
        "prompt_tokens": 9000,
        "completion_tokens": 90,
        "completion_tokens_details": {"reasoning_tokens": 64},
    }
    return answer(good_text(body), usage=usage)


def test_a_reasoning_model_is_asked_without_what_it_does_not_take(judge):
    with EndpointDouble(without(thinks, "temperature", "logprobs")) as endpoint:
        asking = ("--concurrency", 4, "--score_decoding", "constrained")
        status, out, messages, verdicts = judge(endpoint.url, *asking, limit=12)
        assert status == 0
        assert messages == [
            "m: the endpoint does not take temperature: the endpoint samples with its own temperature, so that answers can "
            "differ from run to run",
            "m: the endpoint does not take logprobs: typed questions get no probabilities",
        ]
        assert "m was asked without temperature, logprobs" in out
        assert all(
            verdict.valid and verdict.extra["left_out"] == ["temperature", "logprobs"]
            for verdict in verdicts
        )
        bodies = [
            each["body"]
            for each in endpoint.asked
            if not {"temperature", "logprobs"} & each["body"].keys()
        ]
        assert len(bodies) == 12 * (1 + 3)  # a text, and a question for each of three scores
        assert all("top_logprobs" not in body and body["seed"] == 0 for body in bodies)
        assert (
            len(endpoint.asked) <= 48 + 2 * 4
        )  # each of those sent at once may be refused for both
        again = judge(endpoint.url, "--score_decoding", "constrained", limit=12)
        assert again[3] == verdicts  # the same judge: its folder goes on


@pytest.mark.slow
def test_a_served_checkpoint_judges(judge, tiny_model, tmp_path):
    options = ("--max_new_tokens", 32, "--timeout", 120)
    with served(tiny_model, tmp_path / "log") as url:
        status, _, messages, verdicts = judge(
            url, *options, process=True, limit=2, model=f"openai:{tiny_model}"
        )
    assert status == (not any(verdict.valid for verdict in verdicts)), (
        messages
    )  # its weights are random
    assert len(verdicts) == 2
    assert all(verdict.raw for verdict in verdicts)
    assert all(verdict.valid or verdict.error for verdict in verdicts)
    assert all(0 < verdict.usage["completion_tokens"] <= 32 for verdict in verdicts)


def scored(body):
    drawn = crc32(body["messages"][-1]["content"].encode())
    line = " ".join(
        f"Doctor {slot + 1}: {3 + (drawn >> 8 * slot) % 3} points." for slot in range(3)
    )
    return answer(f"All help.\nScore: {line}")


def answered(requests, file, server):
    """Answer a file of requests as `vllm run-batch` does."""
    answers = []
    for request in read(requests):
        assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
        said = server(request["body"])
        response = {"status_code": said["status"], "request_id": "r", "body": said["json"]}
        answers.append(
            {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}
        )
    write(file, answers)


def by_file(tmp_path, *options, limit=2, cases=CASES):
    args = ["--judge", "openai:m", "--cases", cases, "--limit", limit, "--max_new_tokens", 40]
    args += ["--output", tmp_path / "out", "--batch_file", tmp_path / "requests.jsonl"]
    return run_recipe("judge", *args, *options)


def verdicts_in(tmp_path):
    file = tmp_path / "out" / "verdicts.jsonl"
    return (
        {verdict.key: verdict for verdict in read_records(file, Verdict)} if file.exists() else {}
    )


def test_a_file_gives_the_verdicts_of_the_server(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = by_file(tmp_path)
    assert f"2 requests to answer in {tmp_path / 'requests.jsonl'}: vllm run-batch" in done.stdout
    answered(tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", scored)
    done = succeeded(by_file(tmp_path))
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
    by_file(tmp_path, limit=3)
    requests = (tmp_path / "requests.jsonl").read_text().splitlines()
    answered(
        tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", lambda body: next(said)
    )
    done = by_file(tmp_path, limit=3)
    assert "1 requests to answer" in done.stdout
    assert (tmp_path / "requests.jsonl").read_text().splitlines() == requests[:1]
    assert sorted(verdict.valid for verdict in verdicts_in(tmp_path).values()) == [False, True]


@pytest.mark.parametrize(
    ("lines", "status", "valid", "invalid", "told"),
    rows_of(__file__)["test_the_errors_of_a_batch_are_told"],
)
def test_the_errors_of_a_batch_are_told(lines, status, valid, invalid, told, tmp_path):
    by_file(tmp_path, limit=9)
    requests, answers = tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl"
    asked = read(requests)
    good = [good_answer(request["body"])["json"] for request in asked]
    said = lines + [{"response": {"status_code": 200, "body": body}} for body in good[len(lines) :]]
    names = [request["custom_id"] for request in asked]
    write(answers, [{"custom_id": name} | line for name, line in zip(names, said, strict=True)])
    done = by_file(tmp_path, limit=9)
    assert done.returncode == status
    assert told.replace("ANSWERS", str(answers)) in done.stdout + done.stderr
    verdicts = [verdict.valid for verdict in verdicts_in(tmp_path).values()]
    assert (verdicts.count(True), verdicts.count(False)) == (valid, invalid)
    assert len(read(requests)) == 9 - valid - invalid


def test_cases_of_equal_texts_share_a_request_and_each_has_its_verdict(tmp_path):
    """OpenAI's batches take no file in which a custom_id stands twice."""
    texts = {
        "question": "May I?",
        "responses": [{"model": "a", "text": "Yes."}, {"model": "b", "text": "No."}],
    }
    other = {"id": "other", "question": "Why?", "responses": texts["responses"]}
    cases = tmp_path / "cases.jsonl"
    rows = [{"id": name, **texts} for name in ("one", "two", "three")] + [other]
    write(cases, rows)
    options = ("--orders", "all", "--runs", 2)
    done = by_file(tmp_path, *options, limit=9, cases=cases)
    ids = [request["custom_id"] for request in read(tmp_path / "requests.jsonl")]
    assert len(ids) == len(set(ids)) == 2 * 2 * 2
    assert f"{len(ids)} requests to answer" in done.stdout
    answered(tmp_path / "requests.jsonl", tmp_path / "requests.answers.jsonl", good_answer)
    by_file(tmp_path, *options, limit=9, cases=cases)
    verdicts = verdicts_in(tmp_path)
    assert (sorted({key[0] for key in verdicts}), len(verdicts)) == (
        ["one", "other", "three", "two"],
        4 * 2 * 2,
    )
    for (_, *rest), verdict in verdicts.items():
        assert verdict.valid
        twin = verdicts[("one" if verdict.case_id != "other" else "other", *rest)]
        assert (verdict.scores, verdict.expected_scores, verdict.raw) == (
            twin.scores,
            twin.expected_scores,
            twin.raw,
        )


@pytest.mark.parametrize(
    ("options", "answers", "said"), rows_of(__file__)["test_bad_input_is_told_in_one_line"]
)
def test_bad_input_is_told_in_one_line(tmp_path, options, answers, said):
    (tmp_path / "requests.answers.jsonl").write_text(answers)
    assert said in error_line(by_file(tmp_path, *options))
