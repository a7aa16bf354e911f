"""Probe a server: which constraint format it obeys, how many log-probabilities it gives, and whether it continues answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from automedeval.models.completions import answer_from_completion, token_alternatives
from automedeval.models.constraints import CONTINUE, DIALECTS, TOGETHER, ServerCapabilities

Completion = dict[str, Any]
_QUESTION = [{"role": "user", "content": "How are you?"}]
_MOST_ALTERNATIVES = (20, 5)  # log-probabilities per token to ask for; many servers give 20 at most


def probe_server(
    request: Callable[[dict[str, Any]], Completion | None], log_probabilities: bool
) -> tuple[ServerCapabilities, bool]:
    """Probe which constraint format the server obeys.

    Each format asks for another answer, so that the answer shows which one the server obeyed.

    Args:
        request: sends messages and parameters; returns the completion, None if the server refuses the request.
        log_probabilities: whether they are wanted.

    Returns:
        what the server offers, and whether it keeps to `max_completion_tokens`; a server without constraints is not asked.
    """

    def complete(
        parameters: Mapping[str, Any],
        messages: Sequence[Mapping[str, str]] = _QUESTION,
        limit: str = "max_tokens",
        most: int = 16,
    ) -> Completion | None:
        return request({"messages": messages, limit: most, "temperature": 0.0, **parameters})

    answers = {name: f"Number {number}." for number, name in enumerate(DIALECTS, 1)}
    single = {name: constraint([answers[name]]) for name, constraint in DIALECTS.items()}
    attempts = [{field: single[name][field] for name in TOGETHER for field in single[name]}, *single.values()]
    wanted = [{"logprobs": True, "top_logprobs": most} for most in _MOST_ALTERNATIVES if log_probabilities]
    while attempts:
        constraints, *attempts = attempts
        for parameters in (*wanted, {}):
            if (completion := complete(constraints | parameters)) is not None:
                break
        if completion is None:
            continue
        if len(constraints) > 1:  # one by one only for a server that refuses unknown names
            attempts = [constraint for name, constraint in single.items() if name not in TOGETHER]
        text = answer_from_completion(completion).text.strip()
        dialect = next((name for name in DIALECTS if text == answers[name]), None)
        if dialect:
            given = max((len(rivals) for _, rivals in token_alternatives(completion["choices"][0])), default=0)
            begun = [*_QUESTION, {"role": "assistant", "content": "I"}]
            asked, flagged, bare = (
                answer_from_completion(each).usage.get("prompt_tokens", 0) if each else 0
                for each in (completion, complete(CONTINUE, begun, most=1), complete({}, begun, most=1))
            )
            # Where the last message is closed and another one opened, the prompt is longer. llama.cpp never closes it.
            continues = 0 < flagged < bare or 0 < flagged == asked + 1
            # Some servers ignore the newer name of the limit, which short forced answers would not show.
            limited = complete(single[dialect], limit="max_completion_tokens", most=1)
            keeps_limit = limited is not None and answer_from_completion(limited).text.strip() != answers[dialect]
            return ServerCapabilities(dialect, min(given, parameters.get("top_logprobs", 0)), continues), keeps_limit
    return ServerCapabilities(), True
