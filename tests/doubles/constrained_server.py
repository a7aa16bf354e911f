"""A double of a server that constrains what it writes and tells log-probabilities, as vLLM, SGLang and llama.cpp do.

Its "model" is a table by chance: the logit of a token depends on the prompt, the answer so far and the token. It is constrained
as these servers are: token by token, over the tokens after which the regular expression can still be matched, which the library
`regex` decides. Some tokens have several characters, and some values begin with the same token.
"""

import hashlib
import json
import math
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import regex
from doubles.endpoint import EndpointDouble, answer, error

WORDS = ("response", "resp", "_a", "_b", "tie", "neither", "Doctor", " points", '": "', "Score", "Tie")
VOCABULARY = (*string.ascii_letters, *string.digits, *' .,:"{}_-\n', *WORDS)


def logit(prompt: str, written: str, token: str) -> float:
    return 6 * int(hashlib.sha256(f"{prompt}|{written}|{token}".encode()).hexdigest()[:8], 16) / 16**8


@cache
def odds(prompt: str, written: str, pattern: regex.Pattern, begun: str = "") -> dict[str, float]:
    """Return the probability of each token that the pattern allows after `begun` + `written`; "" ends the answer."""
    allowed = [token for token in VOCABULARY if pattern.fullmatch(written + token, partial=True)]
    allowed += [""] if pattern.fullmatch(written) else []
    # As with a real tokenizer, a text is nearly always written in its longest tokens.
    short = {
        token for token in allowed if token and any(other != token and other.startswith(token) for other in allowed)
    }
    weights = {token: math.exp(logit(prompt, begun + written, token) - 20 * (token in short)) for token in allowed}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def pattern_of_gbnf(grammar: str) -> str:
    """Return the regular expression of a grammar of literals and alternatives of literals."""
    (rule,) = re.fullmatch(r"root ::= (.*)", grammar, re.S).groups()
    pieces = re.findall(r'"(?:[^"\\]|\\.)*"|\(|\)|\|', rule)
    return "".join(re.escape(json.loads(piece)) if piece[0] == '"' else piece for piece in pieces)


@dataclass
class ConstrainedServer:
    """Answer requests as a server does that offers this much; `double()` serves it.

    Args:
        dialect: the field by which it is constrained: "structured_outputs", "guided_regex", "regex", "grammar", or None.
        alternatives: the most log-probabilities per token, 0 for none; more are refused with 400.
        continues: whether it takes `continue_final_message`; "always": whether that is there or not, and the answer repeats
            what it continues, as llama.cpp's.
        strict: whether it refuses fields that it does not know.
        free: (prompt, limit) → the text without a constraint, and its reason to end.
    """

    dialect: str | None = "structured_outputs"
    alternatives: int = 20
    continues: bool | str = True
    strict: bool = False
    free: Callable[[str, int], tuple[str, str]] = lambda prompt, limit: ("Both help.\nI think.", "stop")

    def double(self) -> EndpointDouble:
        return EndpointDouble(self, constrains=True)

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        accepted = {"model", "messages", "max_tokens", "max_completion_tokens", "temperature", "seed", "stop"}
        accepted |= {"logprobs", "top_logprobs", "response_format", self.dialect}
        accepted |= {"continue_final_message", "add_generation_prompt"} if self.continues else set()
        if self.strict and body.keys() - accepted:
            return error(400, f"Extra inputs are not permitted: {min(body.keys() - accepted)}")
        if body.get("top_logprobs", 0) > self.alternatives:
            return error(400, f"Requested sample logprobs of {body['top_logprobs']}, at most {self.alternatives}")
        prompt = next(one["content"] for one in body["messages"] if one["role"] == "user")
        begun, closed = "", 0
        if body["messages"][-1]["role"] == "assistant":
            goes_on = self.continues == "always" or (self.continues and body.get("continue_final_message"))
            begun, closed = (body["messages"][-1]["content"], -3) if goes_on else ("", 5)
        echo = begun if self.continues == "always" else ""
        usage = {"prompt_tokens": sum(len(one["content"].split()) + 3 for one in body["messages"]) + closed}
        limit = body.get("max_completion_tokens", body.get("max_tokens", math.inf))
        pattern = self._pattern(body)
        if pattern is None:
            text, reason = self.free(prompt, limit)
            for stop in body.get("stop", ()):
                text, stopped, _ = text.partition(stop)
                reason = "stop" if stopped else reason
            return answer(echo + text, finish_reason=reason, usage=usage | {"completion_tokens": len(text.split())})
        text, tokens, most = "", [], min(self.alternatives, body.get("top_logprobs", 0))
        while True:
            chances = odds(prompt, text, pattern, begun)
            best = max(chances, key=chances.__getitem__)
            if not best or len(tokens) == limit:
                break
            # As vLLM: the tokens that are not allowed fill the list with -9999.
            shown = sorted(chances.items(), key=lambda pair: -pair[1])[:most]
            shown = [self._token(one, math.log(chance)) for one, chance in shown if one]
            shown += [self._token(f"<other {place}>", -9999.0) for place in range(most - len(shown))]
            tokens.append(self._token(best, math.log(chances[best])) | {"top_logprobs": shown})
            text += best
        logprobs = {"content": tokens} if most else None
        usage |= {"completion_tokens": len(tokens)}
        return answer(echo + text, finish_reason="length" if best else "stop", logprobs=logprobs, usage=usage)

    def _token(self, text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _pattern(self, body: dict[str, Any]) -> regex.Pattern | None:
        form = body.get(self.dialect) if self.dialect else None
        if self.dialect == "structured_outputs":
            form = form and form["regex"]
        elif self.dialect == "grammar":
            form = form and pattern_of_gbnf(form)
        return regex.compile(form, regex.S) if form else None
