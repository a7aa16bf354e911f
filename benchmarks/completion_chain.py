"""Measure how fast completion chains run at an endpoint that takes its time, against the ideal and against Algorithm 1.

    python benchmarks/completion_chain.py
    python benchmarks/completion_chain.py --cases 64 --in_flight 16 --delay 0.2

A local endpoint answers every request after `delay` seconds: a case's first message with a question, its second with a
verdict. It runs in a process of its own. Compared are Algorithm 1 as it is written, one case after the other; this project,
`in_flight` cases at once; and the ideal, `in_flight` cases at once, two answers each, and nothing else that takes time.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from processes import timed
from rows import Results, arguments

from automedeval.evidence.books import Passage
from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Case, Response
from automedeval.study.distillation.completion_chain import CompletionChain

SEARCH = 0.01  # seconds that a search of the books takes, however many questions come at once
ONE_BY_ONE = 5  # cases that are judged one after the other
QUESTION = "[Question]: What is the usual dose?"
VERDICT = "Analyze:\nStep 1: A dose.\nScore: Doctor 1: 4 points. Doctor 2: 2 points."
PASSAGES = [
    Passage(str(number), "A book", "Doses", number, "A dose. " * 100, 0.5) for number in range(3)
]


def serve(delay: float) -> None:
    """Serve an endpoint on a free port, which is printed, until its process is ended."""

    class Server(ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 1024

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True

        def do_POST(self) -> None:
            came = time.monotonic()
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = QUESTION if len(body["messages"]) == 2 else VERDICT
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            completion = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
            content = json.dumps(completion | {"usage": usage}).encode()
            time.sleep(max(0.0, came + delay - time.monotonic()))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def endpoint(delay: float) -> Iterator[str]:
    """Run the endpoint in a process of its own; yield its address."""
    with subprocess.Popen(
        [sys.executable, __file__, "--serve", str(delay)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


def rate(url: str, cases: Sequence[Case], in_flight: int) -> float:
    """Return the cases/s of chains over these cases, `in_flight` of them at once."""

    def books(questions: Sequence[str]) -> list[list[Passage]]:
        time.sleep(SEARCH)
        return [PASSAGES for _ in questions]

    chat = OpenAIChat("m", base_url=url, concurrency=in_flight, max_retries=0)
    chain = CompletionChain(Judge(chat), "strong", books)
    seconds, verdicts = timed(lambda: list(chain.verdicts(map(chain.plan, cases))))
    if len(verdicts) != len(cases) or any(verdict.extra["rounds"] != 2 for verdict in verdicts):
        raise SystemExit(f"{len(verdicts)} of {len(cases)} cases came through: {chat.failures[:1]}")
    return len(cases) / seconds


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    # of few cases the time to connect shows
    add(
        "--cases",
        type=int,
        default=1024,
        help="cases that are judged at once (default: %(default)s)",
    )
    add("--in_flight", type=int, default=64, help="cases at once (default: %(default)s)")
    add(
        "--delay",
        type=float,
        default=1.0,
        help="seconds that an answer takes (default: %(default)s)",
    )
    add("--serve", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
    results = Results("Completion chains", args.json)
    os.environ.setdefault("OPENAI_API_KEY", "none")
    texts = ["Take rest and fluids. " * 40, "Wait a week. " * 40]
    responses = tuple(Response(f"model-{number}", text) for number, text in enumerate(texts))
    cases = [
        Case(f"c{number}", f"What helps against {number}? " * 5, responses)
        for number in range(args.cases)
    ]
    with endpoint(args.delay) as url:
        rate(url, cases[:1], 1)  # imports, the first connection
        slow = rate(url, cases[:ONE_BY_ONE], 1)
        fast = rate(url, cases, args.in_flight)
    ideal = args.in_flight / (2 * args.delay)
    results.add("Algorithm 1, one case after the other", slow, "cases/s")
    results.add("chains at once", fast, "cases/s", "the ideal", fast / ideal, 0.95)
    results.add("chains at once", fast, "cases/s", "one case after the other", fast / slow, 55)
    results.note(
        f"{args.cases:,} cases, {args.in_flight} at once, of one question each; answers after {args.delay:g} s."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
