"""Chats: what turns prompts into answers. The protocol, and OpenAIChat for any OpenAI-compatible endpoint.

An endpoint's answer that cannot be read is an invalid verdict. An endpoint that does not answer at all (down, out of quota,
broken off after every retry) has given no verdict: that is a failure, it is counted, and nothing is recorded for it.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from automedeval.models.base import CONTROL_TOKEN, Answer, ChatError, Dialogue, Prompt, single

# What reading raises where there is no JSON, or where it has another shape than it should.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_FILTERED = "the endpoint's content filter refused"
_OVERLONG = re.compile(r"context (?:length|window|size)", re.I)  # vLLM, SGLang and llama.cpp give no code
_NUMBER = re.compile(r"\s*([0-9]+)")


def answer_from_completion(completion: Mapping[str, Any]) -> Answer:
    """Read a chat completion.

    Raises:
        UNREADABLE: it has another shape than a completion, or no choice.
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
    except UNREADABLE:  # the verdict stands without them
        scored = ()
    return Answer(text, scored=scored, truncated=reason == "length", usage=kept)


def refusal(code: Any, said: str) -> Answer | None:
    """Return the answer, which is none, where an endpoint's error refuses a prompt for what it is; None for other errors."""
    if code == "context_length_exceeded" or _OVERLONG.search(said):
        return Answer(error="prompt and --max_new_tokens exceed the endpoint's context window")
    return Answer(error=_FILTERED) if code == "content_filter" else None


def said(error: Exception) -> str:
    """Return what an error says, in one line."""
    body = getattr(error, "body", None)
    message = (body.get("message") or body.get("detail")) if isinstance(body, dict) else None
    return " ".join(str(message or error).split())[:200]


def retry_after(told: str) -> float:
    """Return the seconds that a Retry-After header asks to wait for, 0 where it asks for none."""
    date = email.utils.parsedate_tz(told)
    try:
        seconds = email.utils.mktime_tz(date) - time.time() if date else float(told)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds)


def _scored(logprobs: Mapping[str, Any] | None, text: str) -> tuple[tuple[int, dict[str, float]], ...]:
    """Return, per token that begins with a number, where that stands in the text and which numbers competed there."""
    tokens = (logprobs or {}).get("content") or []
    # Tokens may hold parts of a character, so places are counted in bytes.
    pieces = [bytes(token["bytes"]) if token.get("bytes") else token["token"].encode() for token in tokens]
    whole = text.encode("utf-8", "surrogatepass")
    before = b"".join(pieces).find(whole)  # an endpoint may strip what opens or ends its answer
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
            if odds.get(own[1]):  # without the number that stands there, the others tell nothing
                start = position + own.start(1)
                found.append((len(whole[:start].decode("utf-8", "replace")), odds))
        position += len(piece)
    return tuple(found)


_FATAL = (400, 401, 403, 404, 422)  # no retry changes these, and every other request would get them as well
_MOST_FAILURES = 10  # in a row, before a run gives up
_LONGEST_PAUSE = 120.0  # seconds; who asks for more by Retry-After is not waited for
_ENDED = ("completed", "failed", "expired", "cancelled")  # what becomes of a batch


class BudgetError(ChatError):
    """The next call could cost more than is left of `max_cost`."""


def defuse(text: str) -> str:
    """Break chat-template tokens with a word joiner: an endpoint might tokenize them as control tokens.

    A lone surrogate, which no request can carry, becomes a question mark.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    return CONTROL_TOKEN.sub(lambda match: match[0][0] + "\u2060" + match[0][1:], text)


class Budget:
    """Holds spending below a limit: the worst case of every call is set aside before it is made.

    Args:
        limit: most to spend, None for no limit.
        price_in, price_out: per million tokens of prompt and of completion, in the limit's currency.
    """

    def __init__(self, limit: float | None, price_in: float = 0.0, price_out: float = 0.0):
        self.limit, self.price_in, self.price_out = limit, price_in, price_out
        self.spent = 0.0
        self._aside: list[float] = []  # the worst cases of the calls under way
        self._changed = threading.Condition()

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (prompt_tokens * self.price_in + completion_tokens * self.price_out) / 1e6

    @contextmanager
    def call(self, worst: float) -> Iterator[list[float]]:
        """Set `worst` aside for one call, waiting for calls under way; put its true cost into the list that is yielded.

        A call whose list stays empty counts as the worst: it may have been answered and charged, and nobody heard.

        Raises:
            BudgetError: with no call under way, the worst case exceeds what is left.
        """
        with self._changed:
            while self.limit is not None and self.spent + sum(self._aside) + worst > self.limit:
                if not self._aside:
                    raise BudgetError(
                        f"--max_cost {self.limit:g}: {self.spent:.4f} is spent and the next call could cost {worst:.4f}"
                    )
                self._changed.wait()
            self._aside.append(worst)
        paid: list[float] = []
        try:
            yield paid
        finally:
            with self._changed:
                self._aside.remove(worst)
                self.spent += sum(paid) if paid else worst
                self._changed.notify_all()


@dataclass
class OpenAIChat:
    """A model behind an OpenAI-compatible endpoint. The key comes from OPENAI_API_KEY, never from an argument.

    Args:
        model: the model's name at the endpoint.
        base_url: the endpoint, OpenAI's own by default.
        max_new_tokens, temperature, seed: sampling; temperature 0 by default.
        concurrency: most requests under way at once.
        max_retries: how often a request is tried again after 408, 409, 429, 5xx, a broken connection, a timeout, a body that
            is cut off or holds no choice; backoff doubles from half a second, and Retry-After is honoured.
        timeout: seconds without a byte after which an attempt is given up.
        structured_output: send a JSON schema for rubrics that answer in JSON.
        top_logprobs: how many alternatives to ask for per token (for expected scores); 0 asks for none.
        cache: a folder for answers, keyed by everything that changes them; None keeps none.
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
    constrains: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ChatError(f"--base_url {self.base_url}: must begin with http:// or https://")
        if not (key.isascii() and key.isprintable()):  # else the client's message would show it
            raise ChatError("OPENAI_API_KEY holds a character that no key has")
        if not key and self.base_url is None and not os.environ.get("OPENAI_BASE_URL"):
            raise ChatError("OPENAI_API_KEY is not set (for an endpoint of your own give --base_url)")
        self.client = openai.OpenAI(
            api_key=key or "none", base_url=self.base_url, max_retries=self.max_retries, timeout=self.timeout
        )
        # Attempts are counted here: the client's own retries would spend money that the budget does not see.
        self._once = self.client.with_options(max_retries=0)
        self.name = self.model
        settings = [str(self.client.base_url), self.model, self.max_new_tokens, self.temperature, self.seed]
        settings += [self.structured_output, self.top_logprobs]
        self.fingerprint = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]
        self.failures: list[str] = []

    def estimate(self, prompts: Sequence[Prompt]) -> tuple[int, float]:
        """Return about how many tokens the prompts take (four bytes each), and what they can cost at most."""
        return sum(prompt_bytes(prompt) // 4 for prompt in prompts), sum(map(self.worst_cost, prompts))

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return zeros: the endpoint alone knows its window, and answers 400 where a prompt exceeds it."""
        return [0] * len(prompts)

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the request that this prompt becomes."""
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
        """Return what a call can cost at most: no token is shorter than a byte."""
        return self.budget.cost(prompt_bytes(prompt), self.max_new_tokens)

    def answer(self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Ask for the wanted prompts concurrently; yield (index, answer) as they come. Fails and raises as `follow` does."""
        chosen = itertools.compress(enumerate(prompts), wanted or itertools.repeat(True))
        return self.follow((index, single(prompt)) for index, prompt in chosen)

    def follow(self, dialogues: Iterable[tuple[Any, Dialogue]]) -> Iterator[tuple[Any, Any]]:
        """Follow dialogues concurrently, the prompts of each in order; yield (key, what it returned) as they end.

        A dialogue runs in a thread of its own, so that it may wait for other things between its prompts. A request that fails
        after all retries is put into `failures` and ends its dialogue, which yields nothing.

        Raises:
            ChatError: the endpoint is down, refuses the key or the model, failed ten times in a row, or the budget is spent.
                What was under way is answered first.
        """
        in_a_row, waiting = 0, iter(dialogues)
        problem: ChatError | None = None
        halt = threading.Event()  # ends pauses between attempts
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="chat")
        running: dict[Future, Any] = {}
        try:
            while True:
                if not problem:
                    for key, dialogue in itertools.islice(waiting, self.concurrency - len(running)):
                        running[pool.submit(self._lead, dialogue, halt)] = key
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
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

    def _lead(self, dialogue: Dialogue, halt: threading.Event) -> Any:
        answer = None
        try:
            while True:
                prompt = dialogue.send(answer)
                if answer and halt.is_set():  # the cache keeps what was answered so far
                    raise _Failure("stopped")
                answer = self._ask(prompt, halt)
        except StopIteration as end:
            return end.value

    def _ask(self, prompt: Prompt, halt: threading.Event) -> Answer:
        body = self.body(prompt)
        file = self._cache_file(body, prompt)
        if file:
            try:
                return answer_from_completion(json.loads(file.read_text(encoding="utf-8")))
            except (OSError, *UNREADABLE):  # not there, or broken: then it is asked again
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
        """Make one attempt; return the completion, None where the endpoint refuses this very prompt, and its answer."""
        try:
            completion = json.loads(self._once.chat.completions.with_raw_response.create(**body).content)
            answer = answer_from_completion(completion)
        except openai.APIStatusError as error:
            paid.append(0.0)
            status, words = error.status_code, said(error)
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
            raise _Failure(f"the answer cannot be read: {type(error).__name__}: {said(error)}") from None
        if len(answer.usage) == 2:
            paid.append(self.budget.cost(**answer.usage))
        return completion, answer

    def _cache_file(self, body: dict[str, Any], prompt: Prompt) -> Path | None:
        if self.cache is None:
            return None
        key = json.dumps([str(self.client.base_url), prompt.label, prompt.run, body], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.cache / digest[:2] / f"{digest}.json"

    def _keep(self, file: Path, completion: dict[str, Any]) -> None:
        scratch = None
        try:
            self.cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.parent.mkdir(exist_ok=True, mode=0o700)
            # mkstemp makes a file that only its owner reads; it appears under its name when it is whole.
            handle, scratch = tempfile.mkstemp(dir=file.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(completion, stream)
            Path(scratch).replace(file)
        except OSError as error:
            if scratch:
                Path(scratch).unlink(missing_ok=True)
            raise ChatError(f"{file.parent}: {error.strerror or error} (--cache off goes without)") from None

    def submit_batch(self, prompts: Mapping[str, Prompt], marker: str) -> str:
        """Hand all prompts over to the Batch API; return the batch's id. The same prompts and marker are not submitted twice.

        Raises:
            BudgetError: the batch could cost more than the budget allows.
            ChatError: the endpoint does not take it.
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
                # One that ended without any answer would give none again.
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
            raise ChatError(f"{self.client.base_url}: the batch was not taken: {said(error)}") from None

    def collect_batch(self, batch_id: str) -> tuple[str, Iterator[tuple[str, Answer]]]:
        """Return a batch's status and, once it has ended, its (custom id, answer) pairs; what failed goes to `failures`."""
        try:
            batch = self.client.batches.retrieve(batch_id)
            if batch.status not in _ENDED:
                counts = batch.request_counts
                return batch.status + (f", {counts.completed} of {counts.total} done" if counts else ""), iter(())
            files = filter(None, (batch.output_file_id, batch.error_file_id))
            lines = "\n".join(self.client.files.content(file).text for file in files).split("\n")
        except (openai.OpenAIError, *UNREADABLE) as error:
            raise ChatError(f"{self.client.base_url}: batch {batch_id}: {said(error)}") from None
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
    """A request was not answered. `again`: it may be, `pause` seconds later; `down`: no other will be either."""

    def __init__(self, message: str, again: bool = True, pause: float = 0.0, down: bool = False):
        super().__init__(message)
        self.again, self.pause, self.down = again, pause, down


def prompt_bytes(prompt: Prompt) -> int:
    """Return a bound on a prompt's tokens: its bytes, its schema's, and a little for the roles."""
    texts = [defuse(message["content"]) for message in prompt.messages]
    schema = len(json.dumps(prompt.schema)) if prompt.schema else 0
    return sum(len(text.encode()) + 16 for text in texts) + schema
