"""OpenAIChat: a model behind any OpenAI-compatible endpoint, asked concurrently, within a budget, with a cache of answers.

An endpoint's answer that cannot be parsed is an invalid verdict. A request that gets no answer after all retries (endpoint
down, out of quota, connection broken) is a failure: it is counted, and no verdict is recorded for it.
"""

import email.utils
import hashlib
import itertools
import json
import math
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import openai

from automedeval.models.base import CONTROL_TOKEN, Answer, Chat, ChatError, Dialogue, Prompt, lead
from automedeval.records import digest

_FATAL = (400, 401, 403, 404, 422)  # a retry does not help, and every other request would get the same status
_MOST_FAILURES = 10  # in a row, before a run stops
_LONGEST_PAUSE = 120.0  # seconds; a longer Retry-After counts as a failure
_ENDED = ("completed", "failed", "expired", "cancelled")  # final states of a batch
# The exceptions of parsing text that is not JSON, or JSON of an unexpected shape.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_FILTERED = "the endpoint's content filter refused"
_OVERLONG = re.compile(r"context (?:length|window|size)", re.I)  # vLLM, SGLang and llama.cpp give no code
_NUMBER = re.compile(r"\s*([0-9]+)")


class BudgetError(ChatError):
    """The highest possible cost of the next call exceeds the rest of `max_cost`."""


def defuse(text: str) -> str:
    """Put a word joiner into chat-template tokens, which an endpoint might tokenize as control tokens.

    A lone surrogate, which cannot be encoded as UTF-8, becomes a question mark.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    return CONTROL_TOKEN.sub(lambda match: match[0][0] + "\u2060" + match[0][1:], text)


class Budget:
    """Keep spending below a limit (None: no limit); prices are per million tokens of prompt and of completion.

    The highest possible cost of a call is reserved before the call is made.
    """

    def __init__(self, limit: float | None, price_in: float = 0.0, price_out: float = 0.0):
        self.limit, self.price_in, self.price_out = limit, price_in, price_out
        self.spent = 0.0
        self._reserved: list[float] = []  # the highest possible costs of the calls in progress
        self._changed = threading.Condition()

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6

    @contextmanager
    def call(self, worst: float) -> Iterator[list[float]]:
        """Reserve `worst` for one call; the caller appends its true cost to the list that is yielded.

        Waits while calls in progress may still release money. If the list stays empty, `worst` is charged: the call may have
        been answered and charged although the answer was lost.

        Raises:
            BudgetError: no call is in progress, and `worst` exceeds what is left.
        """
        with self._changed:
            while self.limit is not None and self.spent + sum(self._reserved) + worst > self.limit:
                if not self._reserved:
                    left = f"{self.spent:.4f} is spent and the next call could cost {worst:.4f}"
                    raise BudgetError(f"--max_cost {self.limit:g}: {left}")
                self._changed.wait()
            self._reserved.append(worst)
        paid: list[float] = []
        try:
            yield paid
        finally:
            with self._changed:
                self._reserved.remove(worst)
                self.spent += sum(paid) if paid else worst
                self._changed.notify_all()


@dataclass
class OpenAIChat(Chat):
    """A model behind an OpenAI-compatible endpoint. The key is read from OPENAI_API_KEY, never from an argument.

    Args:
        model: the model's name at the endpoint.
        base_url: the endpoint, OpenAI's own by default.
        max_new_tokens, temperature, seed: sampling; temperature 0 by default.
        concurrency: largest number of requests at the same time.
        max_retries: how often a request is repeated after 408, 409, 429, 5xx, a broken connection, a timeout, or a body that
            is cut off or has no choice; the pause doubles from half a second, and Retry-After is respected.
        timeout: seconds without a byte after which an attempt ends.
        structured_output: send a JSON schema for rubrics that answer in JSON.
        top_logprobs: number of alternatives requested per token (for expected scores); 0 requests none.
        cache: a folder for answers, keyed by everything that changes them; None: no cache.
        budget: see `Budget`.
    """

    model: str
    base_url: str | None = None
    max_new_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 8
    max_retries: int = 5
    timeout: float = 120.0
    structured_output: bool = True
    top_logprobs: int = 5
    cache: Path | None = None
    budget: Budget = field(default_factory=lambda: Budget(None))

    def __post_init__(self) -> None:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ChatError(f"--base_url {self.base_url}: must begin with http:// or https://")
        if not (key.isascii() and key.isprintable()):  # else the client's error message would show the key
            raise ChatError("OPENAI_API_KEY contains a character that is not allowed in a key")
        if not key and self.base_url is None and not os.environ.get("OPENAI_BASE_URL"):
            raise ChatError("OPENAI_API_KEY is not set (for an endpoint of your own give --base_url)")
        self.client = openai.OpenAI(
            api_key=key or "none", base_url=self.base_url, max_retries=self.max_retries, timeout=self.timeout
        )
        # Retries are done here: the client's own retries would spend money outside the budget.
        self._once = self.client.with_options(max_retries=0)
        self.name = self.model
        settings = [str(self.client.base_url), self.model, self.max_new_tokens, self.temperature, self.seed]
        settings += [self.structured_output, self.top_logprobs]
        self.fingerprint = digest(settings)
        self.failures: list[str] = []

    def estimate(self, prompts: Sequence[Prompt]) -> tuple[int, float]:
        # A token has about four bytes.
        return sum(prompt_bytes(prompt) // 4 for prompt in prompts), sum(map(self.worst_cost, prompts))

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the request body of a prompt."""
        messages = [{**message, "content": defuse(message["content"])} for message in prompt.messages]
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_completion_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "seed": self.seed + prompt.run,
        }
        if self.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.structured_output and prompt.schema:
            schema = {"name": "verdict", "strict": True, "schema": prompt.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def worst_cost(self, prompt: Prompt) -> float:
        """Return the highest possible cost of a call: a token has at least one byte."""
        return self.budget.cost(prompt_bytes(prompt), self.max_new_tokens)

    def answer(self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Send the wanted prompts concurrently; yield (index, answer) as they come. Fails and raises as `follow` does."""

        def single(prompt: Prompt) -> Dialogue:
            return (yield prompt)

        chosen = itertools.compress(enumerate(prompts), wanted or itertools.repeat(True))
        return self.follow((index, single(prompt)) for index, prompt in chosen)

    def follow(
        self, dialogues: Iterable[tuple[Any, Dialogue]], done: Collection[Any] = ()
    ) -> Iterator[tuple[Any, Any]]:
        """Lead the dialogues whose keys are not in `done`, `concurrency` at once; yield (key, result) as they end.

        Each dialogue runs in its own thread and may wait for other things between its prompts. A request that fails after all
        retries is added to `failures` and ends its dialogue without a result.

        Raises:
            ChatError: the endpoint is down, refuses the key or the model, failed ten times in a row, or the budget is spent.
                Requests in progress are answered first.
        """
        in_a_row, waiting = 0, (each for each in dialogues if each[0] not in done)
        problem: ChatError | None = None
        halt = threading.Event()  # ends the pauses between attempts, and dialogues before their next prompt
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="chat")
        running: dict[Future, Any] = {}
        try:
            while True:
                if not problem:
                    for key, dialogue in itertools.islice(waiting, self.concurrency - len(running)):
                        running[pool.submit(lead, dialogue, partial(self._ask, halt=halt))] = key
                if not running:
                    break
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    key = running.pop(future)
                    try:
                        outcome = future.result()
                    except _Failure as failure:
                        self.failures.append(str(failure))
                        in_a_row += 1
                        if failure.down or in_a_row >= _MOST_FAILURES:
                            problem = problem or ChatError(f"{self.client.base_url}: {failure}")
                    except ChatError as error:
                        problem = problem or error
                    else:
                        in_a_row = 0
                        yield key, outcome
                if problem:
                    halt.set()
            if problem:
                raise problem
        finally:
            halt.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def _ask(self, prompt: Prompt, halt: threading.Event) -> Answer:
        if halt.is_set():  # the cache keeps the answers so far
            raise _Failure("stopped")
        body = self.body(prompt)
        file = self._cache_file(body, prompt)
        if file:
            try:
                return answer_from_completion(json.loads(file.read_text(encoding="utf-8")))
            except (OSError, *UNREADABLE):  # missing or damaged: the request is sent again
                pass
        for attempt in itertools.count():
            try:
                with self.budget.call(self.worst_cost(prompt)) as paid:
                    completion, answer = self._request(body, paid)
            except _Failure as failure:
                pause = failure.pause or 0.5 * 2 ** min(attempt, 4) * random.uniform(0.75, 1.0)
                if attempt == self.max_retries or not failure.again or halt.wait(pause):
                    raise _Failure(f"{failure} (attempt {attempt + 1})", down=failure.down) from None
            else:
                if file and completion:
                    self._keep(file, completion)
                return answer

    def _request(self, body: dict[str, Any], paid: list[float]) -> tuple[dict[str, Any] | None, Answer]:
        """Make one attempt; return the completion (None if the endpoint refuses this prompt) and the answer."""
        try:
            completion = json.loads(self._once.chat.completions.with_raw_response.create(**body).content)
            answer = answer_from_completion(completion)
        except openai.APIStatusError as error:
            paid.append(0.0)
            status, words = error.status_code, error_text(error)
            if status == 400 and (refused := refusal(error.code, words)):
                return None, refused
            if status in _FATAL:
                hint = any(word in str(error) for word in ("response_format", "logprobs", "json_schema"))
                hint = " (--structured_output false or --top_logprobs 0 may help)" if hint else ""
                raise ChatError(f"{self.client.base_url} answered {status}: {words}{hint}") from None
            pause = retry_after(error.response.headers.get("retry-after", ""))
            again = (status in (408, 409, 429) or status >= 500) and pause <= _LONGEST_PAUSE
            raise _Failure(f"answered {status}: {words}", again, pause) from None
        except openai.APITimeoutError:
            raise _Failure(f"no answer within {self.timeout:g} s") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            down = type(cause).__name__ == "ConnectError"
            if down:
                paid.append(0.0)
            raise _Failure(f"{type(cause).__name__}: {cause}", down=down) from None
        except (openai.OpenAIError, *UNREADABLE) as error:
            raise _Failure(f"the answer cannot be read: {type(error).__name__}: {error_text(error)}") from None
        if len(answer.usage) == 2:
            paid.append(self.budget.cost(**answer.usage))
        return completion, answer

    def _cache_file(self, body: dict[str, Any], prompt: Prompt) -> Path | None:
        if self.cache is None:
            return None
        key = json.dumps([str(self.client.base_url), prompt.label, prompt.run, body], sort_keys=True)
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.cache / name[:2] / f"{name}.json"

    def _keep(self, file: Path, completion: dict[str, Any]) -> None:
        scratch = None
        try:
            self.cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.parent.mkdir(exist_ok=True, mode=0o700)
            # mkstemp makes a file that only its owner can read; it gets its name when it is complete.
            handle, scratch = tempfile.mkstemp(dir=file.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(completion, stream)
            Path(scratch).replace(file)
        except OSError as error:
            if scratch:
                Path(scratch).unlink(missing_ok=True)
            raise ChatError(f"{file.parent}: {error.strerror or error} (--cache off uses no cache)") from None

    def submit_batch(self, prompts: Mapping[str, Prompt], marker: str) -> str:
        """Submit all prompts to the Batch API; return the batch's id. The same prompts and marker are not submitted twice.

        Raises:
            BudgetError: the highest possible cost of the batch exceeds the budget.
            ChatError: the endpoint does not accept it.
        """
        lines = (
            {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": self.body(prompt)}
            for name, prompt in prompts.items()
        )
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        marker = hashlib.sha256(marker.encode() + content).hexdigest()[:32]
        try:
            for batch in itertools.islice(self.client.batches.list(limit=100), 100):
                counts = batch.request_counts
                # A batch that ended without any answer is submitted again.
                empty = batch.status in _ENDED and (batch.status != "completed" or (counts and not counts.completed))
                if (batch.metadata or {}).get("automedeval") == marker and not empty:
                    return batch.id
            worst = sum(map(self.worst_cost, prompts.values()))
            if self.budget.limit is not None and worst > self.budget.limit:
                raise BudgetError(f"--max_cost {self.budget.limit:g}: the batch could cost {worst:.4f}")
            file = self.client.files.create(file=("requests.jsonl", content), purpose="batch")
            order = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
            return self.client.batches.create(input_file_id=file.id, metadata={"automedeval": marker}, **order).id
        except ChatError:
            raise
        except (openai.OpenAIError, *UNREADABLE) as error:
            raise ChatError(f"{self.client.base_url}: the batch was not accepted: {error_text(error)}") from None

    def collect_batch(self, batch_id: str) -> tuple[str, Iterator[tuple[str, Answer]]]:
        """Return a batch's status and, once it has ended, its (custom id, answer) pairs; errors are added to `failures`."""
        try:
            batch = self.client.batches.retrieve(batch_id)
            if batch.status not in _ENDED:
                counts = batch.request_counts
                return batch.status + (f", {counts.completed} of {counts.total} done" if counts else ""), iter(())
            files = filter(None, (batch.output_file_id, batch.error_file_id))
            lines = "\n".join(self.client.files.content(file).text for file in files).split("\n")
        except (openai.OpenAIError, *UNREADABLE) as error:
            raise ChatError(f"{self.client.base_url}: batch {batch_id}: {error_text(error)}") from None
        for problem in (batch.errors and batch.errors.data) or ():
            self.failures.append(f"batch {batch_id} {batch.status}: {problem.message}")
        return batch.status, self._batch_answers(filter(None, lines))

    def _batch_answers(self, lines: Iterable[str]) -> Iterator[tuple[str, Answer]]:
        for line in lines:
            try:
                record = json.loads(line)
                name, body = record["custom_id"], (record.get("response") or {}).get("body") or {}
                problem = record.get("error") or body.get("error")
                answer = refusal(problem.get("code"), str(problem)) if problem else answer_from_completion(body)
            except UNREADABLE:
                answer, problem = None, line
            if answer:
                yield name, answer
            else:
                self.failures.append(f"the batch could not answer: {json.dumps(problem)[:120]}")


class _Failure(Exception):
    """A request was not answered. `again`: try once more after `pause` seconds; `down`: the endpoint cannot be reached."""

    def __init__(self, message: str, again: bool = True, pause: float = 0.0, down: bool = False):
        super().__init__(message)
        self.again, self.pause, self.down = again, pause, down


def prompt_bytes(prompt: Prompt) -> int:
    """Return an upper bound on a prompt's tokens: its bytes, its schema's bytes, and 16 for each message's role."""
    texts = [defuse(message["content"]) for message in prompt.messages]
    schema = len(json.dumps(prompt.schema)) if prompt.schema else 0
    return sum(len(text.encode()) + 16 for text in texts) + schema


# --- reading what an endpoint returns --------------------------------------------------------------------------------


def answer_from_completion(completion: Mapping[str, Any]) -> Answer:
    """Return the answer in a chat completion.

    Raises:
        UNREADABLE: it does not have the shape of a completion, or has no choice.
    """
    choice = completion["choices"][0]
    reason, message = choice.get("finish_reason"), choice.get("message") or {}
    usage = completion.get("usage") or {}
    kept = {name: usage[name] for name in ("prompt_tokens", "completion_tokens") if isinstance(usage.get(name), int)}
    text = message.get("content") or message.get("refusal") or ""
    if not isinstance(text, str):
        raise TypeError(f"the content is {type(text).__name__}, not text")
    if reason == "content_filter":
        return Answer(text, error=_FILTERED, usage=kept)
    try:
        scored = _scored(choice.get("logprobs"), text)
    except UNREADABLE:  # a verdict does not need them
        scored = ()
    return Answer(text, scored=scored, truncated=reason == "length", usage=kept)


def refusal(code: Any, message: str) -> Answer | None:
    """Return an answer with an error if the endpoint's error refuses this very prompt; None for other errors."""
    if code == "context_length_exceeded" or _OVERLONG.search(message):
        return Answer(error="prompt and --max_new_tokens exceed the endpoint's context window")
    return Answer(error=_FILTERED) if code == "content_filter" else None


def error_text(error: Exception) -> str:
    """Return the message of an error in one line of at most 200 characters."""
    body = getattr(error, "body", None)
    message = (body.get("message") or body.get("detail")) if isinstance(body, dict) else None
    return " ".join(str(message or error).split())[:200]


def retry_after(header: str) -> float:
    """Return the seconds to wait according to a Retry-After header; 0 if it is empty or cannot be parsed."""
    date = email.utils.parsedate_tz(header)
    try:
        seconds = email.utils.mktime_tz(date) - time.time() if date else float(header)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds)


def _scored(logprobs: Mapping[str, Any] | None, text: str) -> tuple[tuple[int, dict[str, float]], ...]:
    """Return the tokens that begin with a number: (position in the text, probability by competing number)."""
    tokens = (logprobs or {}).get("content") or []
    # A token may be a part of a character, so positions are counted in bytes.
    pieces = [bytes(token["bytes"]) if token.get("bytes") else token["token"].encode() for token in tokens]
    whole = text.encode("utf-8", "surrogatepass")
    before = b"".join(pieces).find(whole)  # an endpoint may strip the ends of its answer
    if before < 0:
        return ()
    found, position = [], -before
    for token, piece in zip(tokens, pieces):
        own = _NUMBER.match(token["token"])
        if own and position >= 0:
            odds: dict[str, float] = {}
            for rival in token.get("top_logprobs") or []:
                number = _NUMBER.match(rival["token"])
                if number:
                    odds[number[1]] = odds.get(number[1], 0.0) + math.exp(min(0.0, rival["logprob"]))
            if odds.get(own[1]):  # without the chosen number the other probabilities cannot be normalised
                start = position + own.start(1)
                found.append((len(whole[:start].decode("utf-8", "replace")), odds))
        position += len(piece)
    return tuple(found)
