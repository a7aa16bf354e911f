"""Probe a server: which constraint format it obeys, how many log-probabilities it gives, and whether it continues answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from automedeval.models.completions import answer_from_completion, token_alternatives
from automedeval.models.constraints import CONTINUE, DIALECTS, ServerCapabilities

Completion = dict[str, Any]
_QUESTION = [{"role": "user", "content": "How are you?"}]
_MOST_ALTERNATIVES = (20, 5)  # log-probabilities per token to ask for; many servers give 20 at most


def probe_server(request: Callable[[dict[str, Any]], Completion | None], log_probabilities: bool) -> ServerCapabilities:
    """Return what a server offers. Each format asks for another answer, which shows the one that the server obeyed.

    `request` sends messages and parameters, and returns the completion, None if the server refuses them.
    """

    def complete(
        parameters: Mapping[str, Any], messages: Sequence[Mapping[str, str]] = _QUESTION, most: int = 16
    ) -> Completion | None:
        return request({"messages": messages, "max_tokens": most, "temperature": 0.0, **parameters})

    answers = {name: f"Number {number}." for number, name in enumerate(DIALECTS, 1)}
    together = {name: constraint([answers[name]]) for name, constraint in DIALECTS.items()}
    wanted = [{"logprobs": True, "top_logprobs": most} for most in _MOST_ALTERNATIVES if log_probabilities]
    # One by one for a server that refuses unknown names.
    for constraints in (together, *({name: value} for name, value in together.items())):
        for parameters in (*wanted, {}):
            if (completion := complete(constraints | parameters)) is not None:
                break
        if completion is None:
            continue
        text = answer_from_completion(completion).text.strip()
        dialect = next((name for name in constraints if text == answers[name]), None)
        if dialect and _continues(completion, complete):
            alternatives = max((len(rivals) for _, rivals in token_alternatives(completion["choices"][0])), default=0)
            return ServerCapabilities(dialect, min(alternatives, parameters.get("top_logprobs", 0)))
        if dialect or constraints is together:
            break
    return ServerCapabilities()


def _continues(completion: Completion, complete: Callable[..., Completion | None]) -> bool:
    """Return whether a server goes on with an answer that a request begins.

    Where the last message is closed and another one opened, the prompt is longer. llama.cpp never closes it.
    """
    begun = [*_QUESTION, {"role": "assistant", "content": "I"}]
    asked, flagged, bare = (
        answer_from_completion(each).usage.get("prompt_tokens", 0) if each else 0
        for each in (completion, complete(CONTINUE, begun, most=1), complete({}, begun, most=1))
    )
    return 0 < flagged < bare or 0 < flagged == asked + 1
