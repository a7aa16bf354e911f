"""OpenAIChat: a model behind any OpenAI-compatible endpoint, asked concurrently.

An endpoint's answer that cannot be parsed is an invalid verdict, and so is a prompt that the endpoint refuses while it answers
others. A request that gets no answer after all retries (endpoint down, out of quota, connection broken) is a failure: it is
counted, its answer has `failed`, and no verdict is recorded for it, so that the next run asks it again.

Servers differ in the parameters that they take. One that a server refuses by its name before it has answered anything is left
out for the rest of the run. A reasoning model's thoughts are no part of its answer.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import compress, islice, repeat
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import openai
from tqdm import tqdm

from automedeval.models.base import Answer, Answers, Chat, Dialogue, Prompt, Wanted, lead
from automedeval.models.completions import (
    MOST_ALIKE,
    OPTIONAL,
    REFUSED,
    UNREADABLE,
    answer_from_completion,
    endpoint_words,
    error_text,
    refusal,
    refused_parameter,
    without_numbers,
)
from automedeval.records import JsonObject, digest, parse_json
from automedeval.records.errors import ChatError
from automedeval.records.offline import is_here, is_offline
from automedeval.records.text import shown_address
from automedeval.records.thoughts import MARK_IN_QUOTATION

OFFICIAL = "https://api.openai.com/v1"
TOP_LOGPROBS = 5  # alternatives of each token of the answer to a typed question
_FATAL = (401, 403, 404)  # a retry does not help, and every other request would get the same status
FAILED = "failed"  # the kind of all requests that got no answer
_FEWEST_READ = 256  # tokens of a prompt: no server cuts one to fewer, so a smaller count is of what was not cached
_BUSY = (408, 409, 429, 502, 503, 504)  # says nothing about whether the endpoint lists its models
Pairs = list[tuple[Any, Any]]  # the keys of dialogues, and their results
# What a served model says of itself; `created` is left out because vLLM makes it anew at each request.
_IDENTITY = ("root", "owned_by", "max_model_len")


def defuse(text: str) -> str:
    """Put a word joiner into chat-template tokens, which an endpoint might tokenize as control tokens, and into thought tags.

    A quoted thought tag would otherwise cut the answer.
    """
    return MARK_IN_QUOTATION.sub(lambda match: match[0][0] + "\u2060" + match[0][1:], text)


def single(prompt: Prompt) -> Dialogue:
    """Ask a prompt, and nothing beside it."""
    return (yield prompt)


@dataclass
class OpenAIChat(Chat):
    """A model behind an OpenAI-compatible endpoint, by its name there; the other arguments are those of `ChatArguments`.

    The key is read from the environment, never from an argument. `served` has `root`, `owned_by` and `max_model_len` of the
    model, where an endpoint that is not OpenAI's lists them; `left_out` the parameters that the endpoint refused, which are not
    sent; `failures` why requests got no answer; `spent` the usage of all answers. ChatError: no key, a malformed URL, or an
    endpoint that cannot be reached.
    """

    model: str
    base_url: str | None = None
    max_new_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 32
    max_retries: int = 5
    timeout: float = 120.0
    api_key_env: str = "OPENAI_API_KEY"
    unasked: bool = False

    def __post_init__(self) -> None:
        key = os.environ.get(self.api_key_env, "").strip()
        if self.unasked:  # nobody is asked there; a part of the fingerprint
            key, self.base_url = "", "http://batch.invalid/v1"
        # Else the client's error message would show the key.
        if not (key.isascii() and key.isprintable()):
            raise ChatError(f"{self.api_key_env} contains a character that is not allowed in a key")
        if not key and self.base_url is None:
            raise ChatError(
                f"{self.api_key_env} is not set (for an endpoint of your own give --base_url)"
            )
        self.client = self._client(key or "none")
        self.address = shown_address(str(self.client.base_url))
        self.name = self.model
        self.served: JsonObject = {}
        host = self.client.base_url.host
        if not self.unasked:
            if is_offline() and not is_here(host):
                raise ChatError(
                    f"--offline: {self.address} is not on this machine; give a --base_url that is"
                )
            if not f".{host}".endswith(".api.openai.com"):  # eu.api.openai.com is one as well
                self.served = self._identity()
        self.fingerprint = digest(
            [
                self.address,
                self.model,
                self.max_new_tokens,
                self.temperature,
                self.seed,
                TOP_LOGPROBS,
                self.served,
            ]
        )
        self.failures: list[str] = []
        self.left_out: list[str] = []
        self.spent: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _client(self, key: str) -> openai.OpenAI:
        """Return the client; ChatError, which shows nothing of the URL, if it is malformed."""
        url, _, query = (self.base_url or "").partition("?")
        if url and not _is_url(url):
            raise ChatError(
                "--base_url must begin with http:// or https:// and a host, as http://localhost:8000/v1"
            )
        return openai.OpenAI(
            api_key=key,
            base_url=url or OFFICIAL,
            default_query=dict(parse_qsl(query)),
            max_retries=self.max_retries,
            timeout=self.timeout,
        )

    def _identity(self) -> JsonObject:
        """Return what the endpoint's list of models says of this one; nothing if there is no list, or the model is not in it.

        ChatError if the endpoint cannot be reached, or is busy.
        """
        quick = self.client.with_options(
            max_retries=min(2, self.max_retries), timeout=min(20.0, self.timeout)
        )
        try:
            listed: Any = quick.get("/models", cast_to=object)
            same = (entry for entry in listed["data"] if entry["id"] == self.model)
            told: JsonObject = next(same, {})
            return {name: told[name] for name in _IDENTITY if isinstance(told.get(name), str | int)}
        except openai.APIConnectionError as error:
            raise ChatError(f"{self.address}: {_cause(error)}") from None
        except openai.APIStatusError as error:
            if error.status_code in _BUSY:
                problem = f"answered {error.status_code}: {error_text(error)}"
                raise ChatError(f"{self.address}models {problem}") from None
            return {}
        except (openai.OpenAIError, *UNREADABLE):
            return {}

    def notes(self) -> list[str]:
        """Return who answered by the endpoint's own list, and what was left out."""
        identity = ", ".join(f"{name} {value}" for name, value in self.served.items())
        lines = []
        if identity:
            lines.append(f"{self.name} at {self.address}: {identity}")
        if self.left_out:
            lines.append(f"{self.name} was asked without {', '.join(self.left_out)}")
        return lines

    def body(self, prompt: Prompt) -> JsonObject:
        """Return the request body of a prompt."""
        left_out = tuple(self.left_out)  # as it is now: other threads append to it
        # The cap on all tokens, those of thoughts included. Older servers know it by its former name.
        limit = "max_tokens" if "max_completion_tokens" in left_out else "max_completion_tokens"
        messages = [
            message | {"content": defuse(message["content"])} for message in prompt.messages
        ]
        body: JsonObject = {
            "model": self.model,
            "messages": messages,
            limit: self.max_new_tokens,
            "temperature": self.temperature,
            "seed": self.seed + prompt.run,
        }
        if prompt.options and "logprobs" not in left_out:
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        return {name: value for name, value in body.items() if name not in left_out}

    def answer(
        self,
        prompts: Sequence[Prompt],
        wanted: Wanted = None,
        dialogue: Callable[[Prompt], Dialogue] = single,
    ) -> Answers:
        """Send the wanted prompts concurrently; yield (index, answer) as they come. Raises as `follow` does.

        `dialogue` asks what belongs to a prompt beside it, and returns the answer.
        """
        chosen = compress(enumerate(prompts), wanted or repeat(True))
        return self.follow(
            ((index, dialogue(prompt)) for index, prompt in chosen), failed=Answer.of_failure
        )

    def follow(
        self,
        dialogues: Iterable[tuple[Any, Dialogue]],
        failed: Callable[[str], Any] | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Lead the dialogues, each with its key, several at once; yield (key, result) as they end.

        Each dialogue runs in its own thread. A request that fails after all retries is added to `failures`, and ends its
        dialogue without a result, or with what `failed` makes of the reason. A prompt that the endpoint refuses (400, 413, 422)
        gets an answer with the endpoint's words as its error.

        ChatError, after the requests in progress, if the endpoint is down, refuses the key or the model, refused
        all prompts of a run that is not resumed, or `MOST_ALIKE` requests in a row failed or were refused in the same words:
        what was refused then has no result, and is asked again.
        """
        waiting, row, problem = iter(dialogues), _Row(), None
        halt = threading.Event()  # ends dialogues before their next prompt
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="chat")
        running: set[Future] = set()
        try:
            while True:
                free = 0 if problem else self.concurrency - len(running)
                for key, dialogue in islice(waiting, free):
                    running.add(pool.submit(self._lead, key, dialogue, halt, failed))
                if not running:
                    break
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    try:
                        yield from row.add(future.result())
                    except ChatError as error:
                        problem = problem or error
                if row.count >= MOST_ALIKE:
                    again = f"{MOST_ALIKE} requests in a row; the same command asks them again"
                    problem = problem or ChatError(f"{self.address} {row.words} ({again})")
                if problem:
                    halt.set()
                    row.held.clear()  # they are asked again
            if problem:
                raise problem
            if row.kind not in ("", FAILED) and not (self.spent or self.resumed):
                raise ChatError(f"{self.address} {row.words}")
            yield from row.held
        finally:
            halt.set()
            pool.shutdown(wait=True, cancel_futures=True)

    def _lead(
        self,
        key: Any,
        dialogue: Dialogue,
        halt: threading.Event,
        failed: Callable[[str], Any] | None,
    ) -> "_Ended":
        """Lead a dialogue to its end; ChatError if no other will get an answer."""
        refused = ""

        def reply(prompt: Prompt) -> Answer:
            nonlocal refused
            if halt.is_set():
                raise _Failure("stopped")
            try:
                return self._ask(prompt)
            except _Refusal as refusal:
                refused = str(refusal)
                return Answer(error=f"the endpoint {refusal}")

        try:
            result = lead(dialogue, reply)
        except _Failure as failure:
            why = str(failure)
            self.failures.append(why)
            return _Ended(FAILED, why, [(key, failed(why))] if failed else [])
        return _Ended(without_numbers(refused), refused, [(key, result)])

    def _ask(self, prompt: Prompt) -> Answer:
        """Return the answer to a prompt, which is sent anew without a parameter that the endpoint does not take."""
        answer = None
        while answer is None:
            answer = self._request(self.body(prompt))
        return self.whole(prompt, answer)

    def whole(self, prompt: Prompt, answer: Answer) -> Answer:
        """Return an answer, or an error in its place if the endpoint counts far fewer tokens than its prompt has.

        Other answers play no part, which a resumed run may get in another order.
        """
        read = answer.usage.get("prompt_tokens", 0)
        about = self.estimate([prompt])
        if read < _FEWEST_READ or 4 * read >= about:
            return answer
        why = f"the endpoint read {read:,} tokens of a prompt of about {about:,}: it was cut, or cached ones are not counted"
        return replace(answer, error=why, overlong=True)

    def _request(self, body: JsonObject) -> Answer | None:
        """Return the answer to a request, with an error if this prompt is refused; None if a parameter is now left out."""
        content = b""
        try:
            content = self._send(body)
            answer = self._read(parse_json(content.decode(), others=True), body)
        except openai.APIStatusError as error:
            return self._of_refused(error, body)
        except openai.APITimeoutError:
            raise _Failure(f"no answer within {self.timeout:g} s") from None
        except openai.APIConnectionError as error:
            problem = _cause(error)
            if problem.startswith("ConnectError"):  # it is down
                raise ChatError(f"{self.address}: {problem}") from None
            raise _Failure(problem) from None
        except ChatError:
            raise
        except (openai.OpenAIError, *UNREADABLE) as error:
            problem = endpoint_words(content) or f"{type(error).__name__}: {error_text(error)}"
            raise _Failure(f"the answer cannot be read: {problem}") from None
        with self._lock:
            self.spent.update(answer.usage)
        return answer

    def _of_refused(self, error: openai.APIStatusError, body: JsonObject) -> Answer | None:
        """Return what `_request` returns of a request that the endpoint refuses, or raise as it does."""
        status, words = error.status_code, error_text(error)
        if status in REFUSED and (answer := refusal(error.code, words)):
            return answer
        if status in (*REFUSED, 403):  # OpenAI forbids log-probabilities with 403
            name = refused_parameter(error.param, error_text(error, 2000), body)
            if name and self._leave_out(name):
                return None
        problem = f"answered {status}: {words}"
        if status in REFUSED:
            raise _Refusal(problem) from None
        if status in _FATAL:
            raise ChatError(f"{self.address} {problem}") from None
        raise _Failure(problem) from None

    def _send(self, body: JsonObject) -> bytes:
        """Send a request; return what the endpoint says. Raises openai's errors."""
        # In `extra_body`, because the client has no arguments for the fields that other servers take.
        create = self.client.chat.completions.with_raw_response.create
        body = body | {"stream": False}  # some gateways stream unless they are told not to
        return create(model=self.model, messages=body["messages"], extra_body=body).content

    def _read(self, completion: Any, body: JsonObject) -> Answer:
        """Return the answer to a request in what the endpoint says; one of `UNREADABLE` is raised if there is none."""
        return answer_from_completion(completion)

    def _leave_out(self, name: str) -> bool:
        """Leave a parameter out of all later requests, and say so once; return False if answers were given with it.

        Log-probabilities are first asked for with a typed question, which may come after answers that had none.
        """
        with self._lock:
            if name in self.left_out:
                return True
            if self.spent and name != "logprobs":
                return False
            self.left_out.append(name)
        told = f"{self.name}: the endpoint does not take {name}: {OPTIONAL[name]}"
        tqdm.write(told, file=sys.stderr)
        return True


def _cause(error: openai.APIConnectionError) -> str:
    """Return why a connection failed: the client's own words are the same for every cause."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return text.startswith(("http://", "https://")) and parts.port != 0
    except ValueError:
        return False


class _Refusal(Exception):
    """The endpoint refuses a request, and perhaps every one."""


class _Failure(Exception):
    """A request was not answered."""


class _Ended(NamedTuple):
    """A dialogue that ended: how its requests failed or were refused ("": they were answered), in which words, its result."""

    kind: str
    words: str
    results: Pairs


@dataclass
class _Row:
    """The last dialogues in a row that ended in one way: its `kind`, their `count`, and the words of the last one.

    `held` has the results of those that failed: they count as soon as another dialogue ends in another way.
    """

    kind: str = ""
    words: str = ""
    count: int = 0
    held: Pairs = field(default_factory=list)

    def add(self, ended: _Ended) -> Pairs:
        """Add a dialogue; return the results that count now."""
        settled: Pairs = []
        if ended.kind != self.kind:
            settled, self.held, self.count = self.held, [], 0
        self.kind, self.words, results = ended
        if not self.kind:
            return settled + results
        self.held += results
        self.count += 1
        return settled
