"""Measure how long `recipes/judge.py` takes over a large file before its first verdict, and with how much memory.

    python benchmarks/judge_startup.py
    python benchmarks/judge_startup.py --cases 10000 1000000

A tiny model with random weights begins to judge files of synthetic cases, with scores alone; each run is killed at its first
verdict. Until then every case has been read, checked and planned, its prompt rendered and found to fit, and the model loaded.
Beside it stands the least that a reader of JSON Lines has to do: `json.loads` of each line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from judge_memory import BUILD_MODEL, ROOT, write_cases
from rows import Results, add_json

from automedeval.reports.text import format_table


def first_verdict(command: list[str], verdicts: Path, log: Path) -> tuple[float, float]:
    """Start a command, kill it at its first verdict; return the seconds until then and its peak of memory in MB."""
    started = time.perf_counter()
    with open(log, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        try:
            while not (verdicts.exists() and verdicts.stat().st_size):
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')}")
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        finally:
            process.kill()
            process.wait()
    (most,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return seconds, most / 1024


def parsed(file: Path) -> float:
    """Return the seconds that `json.loads` of each line takes."""
    started = time.perf_counter()
    with open(file, "rb") as stream:
        for line in stream:
            json.loads(line)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, nargs="+", default=[1000, 1_000_000], help="sizes (1,000 and 1,000,000)")
    add_json(parser)
    args = parser.parse_args()
    if not Path("/proc/self/status").exists():
        sys.exit("the peak of a running process is read from /proc, which this system does not have")
    results, table = Results("Seconds before the first verdict", args.json), []
    with tempfile.TemporaryDirectory() as folder:
        model, log = Path(folder, "model"), Path(folder, "log")
        subprocess.run([sys.executable, "-c", BUILD_MODEL, str(ROOT / "tests"), str(model)], check=True)
        for count in args.cases:
            cases, output = Path(folder, f"{count}.jsonl"), Path(folder, f"verdicts-{count}")
            write_cases(cases, count)
            command = [sys.executable, str(ROOT / "recipes" / "judge.py"), "--judge", str(model), "--cases", str(cases)]
            command += ["--rationale", "false", "--output", str(output)]
            seconds, most = first_verdict(command, output / "verdicts.jsonl", log)
            size, least = cases.stat().st_size / 1e6, parsed(cases)
            results.add(f"{count:,} cases, {size:.1f} MB: until the first verdict", seconds, "s")
            results.add(f"{count:,} cases: peak of memory", most, "MB")
            line = {"cases": f"{count:,}", "file, MB": size, "seconds": seconds, "json.loads alone": least, "MB": most}
            table.append(line)
            results.note(f"{count:,} cases: `json.loads` of each line takes {least:.1f} s.")
            cases.unlink()
    print(format_table(table))
    results.write()


if __name__ == "__main__":
    main()
