"""Measure how much faster several processes judge a file of cases than one, and how evenly they share the work.

    python benchmarks/judge_processes.py
    python benchmarks/judge_processes.py --limit 4 --orders 1 --processes 1 --simulated 2

`torchrun` runs the judge recipe with scores alone in 1 and in 2 processes of one thread each; loading is not timed.
More processes than cores are simulated: their windows of requests are timed one after another in this process, by one thread,
and each is given to the process that is free first. That leaves out what processes share, the memory's bandwidth above all.
"""

import argparse
import heapq
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from rows import Results, add_json

from automedeval.judges.base import shared_sizes, windows_of
from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.models.local import LocalChat
from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
LAUNCH = ("-m", "torch.distributed.run", "--nproc_per_node")


def launched(count: int, args: argparse.Namespace) -> float:
    """Return the verdicts/s of the recipe in so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *LAUNCH, str(count), str(ROOT / "recipes" / "judge.py"), "--rationale", "false"]
        command += ["--judge", args.model, "--cases", args.cases, "--orders", args.orders, "--output", folder]
        command += ["--on_overlong", "clip"] + (["--limit", str(args.limit)] if args.limit else [])
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode:
            sys.exit(done.stderr)
        (run,) = Path(folder).glob("run-*.json")
        record = json.loads(run.read_text(encoding="utf-8"))
        if record["processes"] != count:
            sys.exit(f"{record['processes']} processes ran, not {count}")
        timing = record["timings"][-1]
        return timing["verdicts"] / timing["seconds"]


def simulated(count: int, args: argparse.Namespace) -> tuple[int, list[float]]:
    """Return the number of verdicts, and the seconds that each of so many processes would judge."""
    torch.set_num_threads(1)
    judge = Judge(LocalChat(args.model), rationale=False, orders=args.orders, on_overlong="clip")
    requests = Requests(args.cases, args.limit, judge.plan)
    list(judge.judge(list(requests)[:2]))  # the first forward pass is slower
    clocks = [0.0] * count
    for window in windows_of(requests, shared_sizes(len(requests), count)):
        started = time.perf_counter()
        list(judge.judge(window))
        heapq.heapreplace(clocks, clocks[0] + time.perf_counter() - started)  # the process that is free first
    return len(requests), clocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct"), help="checkpoint folder (%(default)s)")
    add("--cases", default=str(ROOT / "src" / "automedeval" / "sample" / "test_cases.jsonl"), help="(%(default)s)")
    add("--orders", default="all", help="orders of the responses of a case: more of them, more work (%(default)s)")
    add("--limit", type=int, help="cases (all)")
    add("--processes", type=int, nargs="*", default=[1, 2], help="how many are started (1 2)")
    add("--simulated", type=int, nargs="*", default=[4], help="how many are timed one after another (4)")
    add_json(parser)
    args = parser.parse_args()
    results, table = Results("Judging in several processes", args.json), []
    rates = {count: launched(count, args) for count in args.processes}
    for count, rate in rates.items():
        ratio = rate / rates[1] if count > 1 and 1 in rates else None
        results.add(f"{count} process{'es' * (count > 1)}", rate, "verdicts/s", ratio and "1 process", ratio)
        table.append({"processes": f"{count}", "verdicts/s": rate, "× 1 process": ratio})
    for count in args.simulated:
        verdicts, seconds = simulated(count, args)
        longest = max(seconds) / statistics.mean(seconds)
        rate, ratio = verdicts / max(seconds), (verdicts / max(seconds) / rates[1] if 1 in rates else None)
        name = f"{count} processes, simulated"
        results.add(name, rate, "verdicts/s", ratio and "1 process", ratio)
        results.add(f"{name}, the longest share", longest, "× the mean share")
        table.append({"processes": name, "verdicts/s": rate, "× 1 process": ratio, "longest share": longest})
    results.note(f"Scores alone, one thread for each process, without loading; orders of the responses: {args.orders}.")
    results.note("Simulated: windows timed one after another, each given to the process that is free first.")
    print(format_table(table))
    results.write()


if __name__ == "__main__":
    main()
