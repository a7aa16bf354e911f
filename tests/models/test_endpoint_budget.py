"""What calls may cost, and the Batch API, over HTTP against a double."""

import json
import re

import pytest
from doubles.endpoint import BROKEN_JSON, CUT_OFF, HANG, EndpointDouble, answer, error, good_answer

from automedeval.judges.judge import Judge
from automedeval.models.base import ChatError, Prompt
from automedeval.models.endpoint import Budget, BudgetError, OpenAIChat, prompt_bytes
from automedeval.records import Case, Response

TEXT = "Score: Doctor 1: 4 points."
PROMPT = Prompt([{"role": "user", "content": "What helps?"}])
WORST = prompt_bytes(PROMPT) + 100  # with both prices at a million a million tokens, and max_new_tokens 100


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")


def chat_at(endpoint, limit=None, **options):
    budget = Budget(limit, 1e6, 1e6)
    defaults = {"max_retries": 0, "timeout": 5.0, "max_new_tokens": 100, "budget": budget}
    return OpenAIChat("m", base_url=endpoint.url, **defaults | options)


def used(tokens):
    return {"prompt_tokens": tokens, "completion_tokens": 0}


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("cost", [20, 70, WORST])
def test_spending_never_exceeds_the_limit_and_what_was_answered_is_kept(concurrency, cost):
    limit = 5 * WORST + 1
    with EndpointDouble(answer(TEXT, usage=used(cost), delay=0.02)) as endpoint:
        chat, found = chat_at(endpoint, limit, concurrency=concurrency), []
        with pytest.raises(BudgetError, match=r"^--max_cost .* is spent and the next call could cost 1[0-9]+\.0000$"):
            found.extend(chat.answer([PROMPT] * 60))
        # calls are made as long as the worst of the next one fits
        assert len(endpoint.asked) == len(found) == (limit - WORST) // cost + 1
        assert chat.budget.spent == len(found) * cost <= limit
        assert chat.failures == []


def test_calls_under_way_are_set_aside_at_their_worst():
    with EndpointDouble(answer(TEXT, usage=used(1), delay=0.3)) as endpoint:
        chat = chat_at(endpoint, 3 * WORST + 10, concurrency=8)
        assert len(dict(chat.answer([PROMPT] * 9))) == 9
        assert endpoint.most_at_once == 3


def test_a_budget_below_the_first_call_makes_none():
    with EndpointDouble(answer(TEXT)) as endpoint:
        with pytest.raises(BudgetError, match=r"0\.0000 is spent"):
            list(chat_at(endpoint, WORST - 1).answer([PROMPT]))
        assert endpoint.asked == []


@pytest.mark.parametrize("reply", [answer(TEXT, usage=None), answer(TEXT, usage={"prompt_tokens": 3})])
def test_a_call_of_unknown_cost_counts_as_the_worst(reply):
    with EndpointDouble(reply) as endpoint:
        chat, found = chat_at(endpoint, 3 * WORST), []
        with pytest.raises(BudgetError):
            found.extend(chat.answer([PROMPT] * 9))
        assert len(found) == 3


@pytest.mark.parametrize("fault", [CUT_OFF, BROKEN_JSON, HANG])
def test_an_attempt_that_was_perhaps_charged_counts_as_the_worst(fault):
    with EndpointDouble(fault) as endpoint:
        with pytest.raises(BudgetError):
            list(chat_at(endpoint, 2 * WORST, max_retries=5, timeout=0.2).answer([PROMPT]))
        assert len(endpoint.asked) == 2


def test_a_refused_attempt_costs_nothing():
    with EndpointDouble(error(500), error(429), answer(TEXT, usage=used(50))) as endpoint:
        chat = chat_at(endpoint, WORST, max_retries=2)
        assert len(dict(chat.answer([PROMPT]))) == 1
        assert chat.budget.spent == 50


def test_the_worst_case_holds_the_schema():
    assert prompt_bytes(Prompt(PROMPT.messages, schema={"type": "object"})) > prompt_bytes(PROMPT)
    assert prompt_bytes(Prompt([{"role": "user", "content": "ä" * 50}])) >= 100


# --- Batch API --------------------------------------------------------------------------------------------------------

CASES = [
    Case(f"c{number}", f"Question {number}\u2028?", (Response("a", "Rest."), Response("b", "Wait.")))
    for number in range(3)
]


def batch_of(judge, cases=CASES):
    return {request.id: judge.prompt(request) for case in cases for request in judge.plan(case)}


def test_a_batch_is_submitted_once_and_collected_when_it_has_ended():
    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint, seed=3)
        judge = Judge(chat)
        prompts = batch_of(judge)
        name = chat.submit_batch(prompts, "marker")
        (batch,) = endpoint.batches
        assert (batch["endpoint"], batch["completion_window"]) == ("/v1/chat/completions", "24h")
        lines = [json.loads(line) for line in endpoint.files[batch["input_file_id"]].split("\n")]
        assert [line["custom_id"] for line in lines] == list(prompts)
        assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
        assert [line["body"] for line in lines] == [chat.body(prompt) for prompt in prompts.values()]

        status, answers = chat.collect_batch(name, list(prompts))
        assert (status, list(answers)) == ("in_progress", [])
        assert chat.submit_batch(prompts, "marker") == name
        assert len(endpoint.batches) == 1

        def quoting(body):
            reply = good_answer(body)
            reply["json"]["choices"][0]["message"]["content"] += "\u2028"
            return reply

        endpoint.finish_batches(quoting)
        assert chat.submit_batch(prompts, "marker") == name
        status, answers = chat.collect_batch(name, list(prompts))
        answers = dict(answers)
        assert status == "completed"
        assert answers.keys() == prompts.keys()
        requests = {request.id: request for case in CASES for request in judge.plan(case)}
        assert all(judge.verdict(requests[key], reply).scores == (4, 4) for key, reply in answers.items())
        assert chat.failures == []
        assert endpoint.asked == []


def test_other_prompts_or_settings_make_another_batch():
    with EndpointDouble(error(500)) as endpoint:
        prompts = batch_of(Judge(chat_at(endpoint)))
        names = [chat_at(endpoint).submit_batch(prompts, "marker"), chat_at(endpoint).submit_batch(prompts, "other")]
        names += [chat_at(endpoint, temperature=0.5).submit_batch(prompts, "marker")]
        edited = {name: Prompt([{"role": "user", "content": "edited"}]) for name in prompts}
        names += [chat_at(endpoint).submit_batch(edited, "marker")]
        assert len(set(names)) == 4


def test_a_batch_may_answer_in_part():
    def partly(body):
        text = body["messages"][-1]["content"]
        number = int(re.search(r"Question (\d)", text)[1])
        return [good_answer(body), error(500, "lost"), error(400, "long", "context_length_exceeded")][number]

    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint)
        prompts = batch_of(Judge(chat))
        name = chat.submit_batch(prompts, "marker")
        endpoint.finish_batches(partly)
        status, answers = chat.collect_batch(name, list(prompts))
        first, _, third = prompts
        answers = dict(answers)
        assert status == "completed"
        assert answers.keys() == {first, third}
        assert "context window" in answers[third].error
        assert len(chat.failures) == 1
        assert "lost" in chat.failures[0]


@pytest.mark.parametrize("status", ["failed", "expired", "cancelled", "completed"])
def test_a_batch_without_any_answer_is_submitted_anew(status):
    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint)
        prompts = batch_of(Judge(chat))
        name = chat.submit_batch(prompts, "marker")
        endpoint.finish_batches(error(500, "lost"), status)
        endpoint.batches[0]["errors"] = {"object": "list", "data": [{"code": "x", "message": "no such model"}]}
        ended, answers = chat.collect_batch(name, list(prompts))
        assert (ended, list(answers)) == (status, [])
        assert f"batch {name} {status}: no such model" in chat.failures
        assert chat.submit_batch(prompts, "marker") != name


def test_a_line_of_a_batch_that_cannot_be_read_is_a_failure():
    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint)
        prompts = batch_of(Judge(chat))
        name = chat.submit_batch(prompts, "marker")
        endpoint.finish_batches(good_answer)
        endpoint.files["output-0"] += '{"custom_id": \n[]\n{"response": {}}\n'
        _, answers = chat.collect_batch(name, list(prompts))
        assert len(dict(answers)) == 3
        assert len(chat.failures) == 3


def test_a_batch_beyond_the_budget_is_not_submitted():
    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint, 500)
        with pytest.raises(BudgetError, match="the batch could cost"):
            chat.submit_batch(batch_of(Judge(chat)), "marker")
        assert (endpoint.files, endpoint.batches) == ({}, [])


def test_an_endpoint_without_batches_is_told_in_one_line():
    with EndpointDouble(error(500)) as endpoint:
        chat = chat_at(endpoint)
        with pytest.raises(ChatError, match=r"batch nothing: no such thing$"):
            chat.collect_batch("nothing", [])
    with pytest.raises(ChatError, match=r"the batch was not accepted: Connection error\.$|Server disconnected"):
        chat.submit_batch(batch_of(Judge(chat)), "marker")
