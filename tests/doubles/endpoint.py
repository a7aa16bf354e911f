"""A double of an OpenAI-compatible endpoint: a local HTTP server that answers from a script and records the requests.

    with EndpointDouble(lambda request: answer("Score: …")) as endpoint:
        OpenAIChat("some-model", base_url=endpoint.url)

A script maps a request's body to a fault below or to an answer; a list of such is gone through, its last one for ever.
"""

import json
import math
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from doubles.local_server import LocalServer
from factories import Json
from tables import rows_of

REFUSALS = rows_of(str(Path(__file__).parents[1] / "models/test_endpoint.py"))[
    "refusals of a parameter"
]


def answer(text: str | None, **changes: Any) -> Json:
    """Return a chat completion that says `text`.

    `changes` are `finish_reason`, `logprobs`, `usage`, `delay`, and `thoughts`: more fields of the message.
    """
    choice = {"index": 0, "finish_reason": changes.get("finish_reason", "stop")}
    message = {"role": "assistant", "content": text} | changes.get("thoughts", {})
    choice |= {"message": message, "logprobs": changes.get("logprobs")}
    spent = {"prompt_tokens": 9000, "completion_tokens": 10, "total_tokens": 9010}
    usage = changes.get("usage", spent)
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "double"}
    body = about | {"choices": [choice]} | ({"usage": usage} if usage else {})
    return {"status": 200, "json": body, "delay": changes.get("delay", 0.0)}


def prompt_of(body: Json) -> str:
    """Return the last message of a request."""
    return body["messages"][-1]["content"]


def good_answer(body: Json, score: int = 4) -> Json:
    """Return a completion that is valid for the request: by the form in its prompt, JSON or a score line, or its options."""
    prompt = prompt_of(body)
    if options := re.search(r"one of these and nothing else: (.*)\.\Z", prompt):
        words = options[1].split(", ")
        return answer(str(score) if str(score) in words else words[0])
    if form := re.search(r"(?m)^\{\".*\}$", prompt):
        filled = (
            form[0].replace("[your assessment]", "Both help.").replace("[verdict]", "response_a")
        )
        return answer(re.sub(r"\[(.*?) (?:or|to) .*?\]", r"\1", filled))
    slots = max(map(int, re.findall(r"Doctor ([0-9]+): X points", prompt)))
    line = " ".join(f"Doctor {slot}: {score} points." for slot in range(1, slots + 1))
    return answer(f"All of them help.\nScore: {line}")


def level(said: str, rivals: dict[str, float]) -> Json:
    """Return the answer to a typed question, with the odds of its first token."""
    told = [{"token": token, "logprob": math.log(chance)} for token, chance in rivals.items()]
    first = {"token": said, "logprob": -0.1, "top_logprobs": told}
    return answer(said, logprobs={"content": [first]} if told else None)


def error(status: int, message: str = "no", code: str | None = None) -> Json:
    content = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return {"status": status, "json": content}


def takes_no(name: str, like: str) -> Json:
    """Return the error with which servers refuse a parameter by its name, as OpenAI and others word it."""
    return json.loads(json.dumps(REFUSALS[like]).replace("NAME", name))


def without(reply: "Reply", *names: str, like: str = "openai") -> Callable[[Json], Json]:
    """Return a script of a server that refuses these parameters, the first one that it sees, and else replies."""

    def script(body: Json) -> Json:
        for name in names:
            if name in body:
                return takes_no(name, like)
        return reply(body) if callable(reply) else reply

    return script


CUT_OFF = {"status": 200, "text": '{"choices": [{"mess', "type": "application/json", "missing": 500}
HANG = {"hang": True}

Reply = Json | Callable[[Json], Json]


class EndpointDouble(LocalServer):
    """Serve /v1 on a port of this machine, a free one for 0. Use as a context manager.

    `requests` are the requests so far: path, query, body and headers.
    `most_at_once` is the largest number of simultaneous chat requests. `models` is what GET /v1/models lists, and
    /v1/models/NAME tells of one: entries, which get another `created` each time as vLLM's do; a reply, such as an `error`;
    None for a server without a list.
    """

    def __init__(self, *script: Reply, port: int = 0):
        super().__init__(port)
        self.script = list(script)
        self.requests: list[Json] = []
        self.most_at_once = self._at_once = 0
        self.path = "/v1/chat/completions"  # of the requests that the script answers
        self.models: list[Json] | Json | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self.url += "/v1"
        return self

    @property
    def asked(self) -> list[Json]:
        return [request for request in self.requests if request["path"] == self.path]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        if self._closing.is_set():  # on a connection that was kept open
            handler.close_connection = True
            return
        length = int(handler.headers.get("content-length") or 0)
        content = handler.rfile.read(length)
        if len(content) < length:  # the client was killed while it sent
            handler.close_connection = True
            return
        path, _, query = handler.path.partition("?")
        is_json = "json" in (handler.headers.get("content-type") or "")
        request = {"path": path, "body": json.loads(content) if is_json and content else content}
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request |= {"query": query, "headers": headers}
        with self._lock:
            self.requests.append(request)
        told = self._told_of_models(path)
        if told or path != self.path:
            self._send(handler, told or error(404, "no such thing"))
            return
        with self._lock:
            reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            reply = reply(request["body"]) if callable(reply) else reply
            self._closing.wait(60 if reply.get("hang") else reply.get("delay", 0.0))
        finally:
            with self._lock:
                self._at_once -= 1
        if reply.get("hang"):
            handler.close_connection = True
        else:
            self._send(handler, reply)

    def _told_of_models(self, path: str) -> Json | None:
        """Return the list of models, or what is told of one; None if a path asks for neither."""
        if path == "/v1/models" and isinstance(self.models, list):
            made = {"object": "model", "created": time.time_ns()}
            listed = [made | entry for entry in self.models]
            return {"status": 200, "json": {"object": "list", "data": listed}}
        if path == "/v1/models":
            return self.models
        if not path.startswith("/v1/models/") or not isinstance(self.models, list):
            return None
        model = unquote(path.removeprefix("/v1/models/"))
        listed = [entry for entry in self.models if entry["id"] == model]
        # vLLM has the list alone.
        entry = next((entry for entry in listed if entry.get("owned_by") != "vllm"), None)
        missing = f"The model `{model}` does not exist or you do not have access to it."
        found = {"status": 200, "json": {"object": "model"} | entry} if entry else None
        return found or error(404, missing, "model_not_found")

    def _send(self, handler: BaseHTTPRequestHandler, reply: Json) -> None:
        content = (reply["text"] if "text" in reply else json.dumps(reply["json"])).encode()
        headers = {"Content-Type": reply.get("type", "application/json")}
        headers |= {"Content-Length": str(len(content) + reply.get("missing", 0))}
        handler.close_connection = bool(reply.get("missing"))
        try:
            self.send(handler, reply["status"], content, headers | reply.get("headers", {}))
        except OSError:  # the client has gone
            handler.close_connection = True
