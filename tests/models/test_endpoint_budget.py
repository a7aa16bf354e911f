"""What calls may cost, and the Batch API, over HTTP against a double."""

import pytest
from doubles.endpoint import BROKEN_JSON, CUT_OFF, HANG, EndpointDouble, answer, error

from automedeval.models.base import Prompt
from automedeval.models.budget import Budget, BudgetError
from automedeval.models.endpoint import OpenAIChat, prompt_bytes

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
        chat, answers = chat_at(endpoint, limit, concurrency=concurrency), []
        with pytest.raises(BudgetError, match=r"^--max_cost .* is spent and the next call could cost 1[0-9]+\.0000$"):
            answers.extend(chat.answer([PROMPT] * 60))
        # calls are made as long as the worst of the next one fits
        assert len(endpoint.asked) == len(answers) == (limit - WORST) // cost + 1
        assert chat.budget.spent == len(answers) * cost <= limit
        assert chat.failures == []


def test_calls_under_way_are_set_aside_at_their_worst():
    with EndpointDouble(answer(TEXT, usage=used(1), delay=0.3)) as endpoint:
        chat = chat_at(endpoint, 3 * WORST + 10, concurrency=8)
        assert (len(dict(chat.answer([PROMPT] * 9))), endpoint.most_at_once) == (9, 3)


def test_a_budget_below_the_first_call_makes_none():
    with EndpointDouble(answer(TEXT)) as endpoint:
        with pytest.raises(BudgetError, match=r"0\.0000 is spent"):
            list(chat_at(endpoint, WORST - 1).answer([PROMPT]))
        assert endpoint.asked == []


@pytest.mark.parametrize("reply", [answer(TEXT, usage=None), answer(TEXT, usage={"prompt_tokens": 3})])
def test_a_call_of_unknown_cost_counts_as_the_worst(reply):
    with EndpointDouble(reply) as endpoint:
        chat, answers = chat_at(endpoint, 3 * WORST), []
        with pytest.raises(BudgetError):
            answers.extend(chat.answer([PROMPT] * 9))
        assert len(answers) == 3


@pytest.mark.parametrize("fault", [CUT_OFF, BROKEN_JSON, HANG])
def test_an_attempt_that_was_perhaps_charged_counts_as_the_worst(fault):
    with EndpointDouble(fault) as endpoint:
        with pytest.raises(BudgetError):
            list(chat_at(endpoint, 2 * WORST, max_retries=5, timeout=0.2).answer([PROMPT]))
        assert len(endpoint.asked) == 2


def test_a_refused_attempt_costs_nothing():
    with EndpointDouble(error(500), error(429), answer(TEXT, usage=used(50))) as endpoint:
        chat = chat_at(endpoint, WORST, max_retries=2)
        assert (len(dict(chat.answer([PROMPT]))), chat.budget.spent) == (1, 50)


def test_the_worst_case_counts_bytes():
    assert prompt_bytes(Prompt([{"role": "user", "content": "ä" * 50}])) >= 100
