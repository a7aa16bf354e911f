"""Measure how much faster several processes judge a file of cases than one, and how evenly they share the work.

    python benchmarks/judge_processes.py
    python benchmarks/judge_processes.py --limit 4 --orders 1 --processes 1 --simulated 2

`accelerate launch` runs the judge recipe with scores alone in 1 and in 2 processes of one thread each; loading is not timed.
Of more processes than cores the shares are timed one after another in this process, each by one thread: the run would take as
long as its longest share. That leaves out what processes share, the memory's bandwidth above all. The exit status is 0
whether the target is met or not.
"""

import argparse
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

from automedeval.judges.judge import Judge
from automedeval.judges.requests import Requests
from automedeval.judges.run import judge_missing, verdict_log
from automedeval.models.decoding import Prefix
from automedeval.models.local import LocalChat
from automedeval.records.journal import Processes
from automedeval.reports.text import format_table

ROOT = Path(__file__).parents[1]
LAUNCH = ("-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1")
LAUNCH += ("--mixed_precision", "no", "--dynamo_backend", "no", "--num_processes")
EVEN = 1.05  # most that the longest share may take, against the mean of the shares


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
        timing = json.loads(run.read_text(encoding="utf-8"))["timings"][-1]
        return timing["verdicts"] / timing["seconds"]


def shares(count: int, args: argparse.Namespace) -> tuple[int, list[float]]:
    """Return the number of verdicts, and the seconds of each process's share, timed one after another."""
    torch.set_num_threads(1)
    judge = Judge(LocalChat(args.model), rationale=False, orders=args.orders, on_overlong="clip")
    requests = Requests(args.cases, args.limit, judge.plan)
    found = []
    list(judge.judge(list(requests)[:2]))  # the first forward pass is slower
    for rank in range(count):
        judge.chat._prefix = Prefix()  # nothing is ready from the share before
        with tempfile.TemporaryDirectory() as folder:
            log = verdict_log(Path(folder), judge, processes=Processes(rank, count))
            with log:
                started = time.perf_counter()
                judge_missing(judge, requests, len(requests), log, set())
                found.append(time.perf_counter() - started)
    return len(requests), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default=str(ROOT / "models" / "SmolLM2-135M-Instruct"), help="checkpoint folder (%(default)s)")
    add("--cases", default=str(ROOT / "src" / "automedeval" / "sample" / "test_cases.jsonl"), help="(%(default)s)")
    add("--orders", default="latin", help="orders of the responses of a case: more of them, more work (%(default)s)")
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
        verdicts, seconds = shares(count, args)
        longest = max(seconds) / statistics.mean(seconds)
        rate, ratio = verdicts / max(seconds), (verdicts / max(seconds) / rates[1] if 1 in rates else None)
        name = f"{count} processes, simulated"
        results.add(name, rate, "verdicts/s", ratio and "1 process", ratio)
        results.add(f"{name}, longest share", longest, "× the mean share", most=EVEN)
        table.append({"processes": name, "verdicts/s": rate, "× 1 process": ratio, "longest share": longest})
    results.note(
        "Scores alone, one thread for each process, without loading. Simulated: the shares, one after another."
    )
    print(format_table(table))
    results.write()


if __name__ == "__main__":
    main()
