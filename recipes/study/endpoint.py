"""A double of an OpenAI-compatible endpoint, for a rehearsal: it answers in the form that each prompt asks for.

It knows no medicine: its points follow from the letters of a response, and its sentences quote a response's first words. Its
models are called double-of-NAME, so that no verdict of a rehearsal is taken for a real model's.
"""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_RESPONSE = re.compile(r"^Doctor (\d+):\n(~{3,})\n(.*?)\n\2$", re.M | re.S)
_QUESTION = re.compile(r"^Question:\n(~{3,})\n(.*?)\n\1$", re.M | re.S)
_POINTS = re.compile(r"^Score:(?: Doctor \d+: \d+ points\.)+$", re.M)
QUOTED = 12  # words of a question that a verdict quotes
READ = 250  # characters of each response that it quotes, so that a verdict on three has about 250 tokens, as a teacher's has


def reply(body: dict[str, Any]) -> str:
    """Return the text of an answer to a chat request."""
    messages, model = [each["content"] for each in body["messages"]], body["model"]
    material, last = next((text for text in messages if _RESPONSE.search(text)), None), messages[-1]
    if material is None:  # a client that finds out what the server can do
        return "Yes."
    responses = [text for _, _, text in _RESPONSE.findall(material)]
    question = _QUESTION.search(material)[2]
    if "Review: accept" in last:
        return _review(model, material, last)
    # Every third case is asked about first, where the prompt allows questions.
    if "[Question]: What is" in last and len(messages) <= 2 and _number(model, material) % 3 == 0:
        return f"[Question]: What is known about this: {' '.join(question.split()[:QUOTED])}?"
    if "Suggestion: keep" in last:
        if _number(model, material, "keep") % 4 == 0:
            return "Suggestion: keep"
        return f"Suggestion: The points do not fit the responses.\n{_points(model, responses)}"
    if last != material and (points := _POINTS.findall(last)):  # an accepted suggestion, to be written into the verdict
        return f"{_analysis(question, responses)}\n{points[-1]}"
    return f"{_analysis(question, responses)}\n{_points(model, responses)}"


def _review(model: str, material: str, last: str) -> str:
    if _number(model, material, "stubborn") % 8 == 0:  # no consensus: these go to the jury
        return "Review: object\nThe points do not follow from the responses."
    return "Review: accept" if _number(model, last) % 3 else "Review: object\nOne of the points is too high."


def _analysis(question: str, responses: list[str]) -> str:
    steps = [f"Step 1: The patient asks: {' '.join(question.split()[:QUOTED])}"]
    for doctor, text in enumerate(responses, 1):
        quoted = " ".join(text.replace("~", "").split())[:READ]
        steps.append(f"Step {doctor + 1}: Doctor {doctor} writes {quoted}, which answers the question in part.")
    return "\n".join(["Analyze:", *steps])


def _points(model: str, responses: list[str]) -> str:
    points = [1 + _number(model, text) % 5 for text in responses]
    return "Score: " + " ".join(f"Doctor {doctor}: {each} points." for doctor, each in enumerate(points, 1))


def _number(*texts: str) -> int:
    return int(hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8], 16)


class Handler(BaseHTTPRequestHandler):
    """Serve /v1/models and /v1/chat/completions."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        model = {"id": "double", "object": "model", "created": 0, "owned_by": "rehearsal"}
        self._send({"object": "list", "data": [model]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = reply(body)
        tokens = [sum(len(each["content"].split()) for each in body["messages"]), len(text.split())]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message, "logprobs": None}
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
        answer = {"id": "rehearsal", "object": "chat.completion", "created": 0, "model": body["model"]}
        self._send(answer | {"choices": [choice], "usage": usage})

    def _send(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def serve(port: int = 0) -> int:
    """Serve on a port of this machine until the program ends; return the port, a free one for 0."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
