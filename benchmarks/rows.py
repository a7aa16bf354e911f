"""Write what one run of a benchmark measured as JSON. Nothing large is loaded: a child process inherits it in its peak."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from automedeval.records.text import format_table

ROOT = Path(__file__).parents[1]
PACKAGES = ("automedeval", "torch", "transformers", "trl", "numpy")
BFLOAT16 = {
    "avx512_bf16",
    "amx_bf16",
    "bf16",
    "sve_bf16",
}  # as in `automedeval.models.device`, which loads torch
IDLE = 0.1  # most cores that other programs may use on average


class Results:
    """The rows of a run, and the machine and command that they come from. It takes the time from its creation on.

    Args:
        title: what is measured, the heading on the page.
        file: where `write` puts the JSON; None writes none.
    """

    def __init__(self, title: str, file: Path | None):
        self.title, self.file = title, file
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.details: list[str] = []
        self.started, self.busy, self.own = time.perf_counter(), busy_seconds(), own_seconds()

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        peer: str | None = None,
        ratio: float | None = None,
        least: float | None = None,
        most: float | None = None,
    ) -> dict[str, Any]:
        """Add a row and return it.

        Args:
            peer: what the value is compared with; `ratio` says how often the value is better.
            least, most: the target of the ratio, or of the value where there is no ratio.
        """
        judged = value if ratio is None else ratio
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">=", least), ("<=", most))
            if bound is not None
        ]
        met = (
            (least is None or judged >= least) and (most is None or judged <= most)
            if bounds
            else None
        )
        row = {"name": name, "value": float(value), "unit": unit, "peer": peer}
        row |= {
            "ratio": None if ratio is None else float(ratio),
            "target": ", ".join(bounds) or None,
        }
        self.rows.append(row | {"met": met if met is None else bool(met)})
        return self.rows[-1]

    def note(self, text: str) -> None:
        """Add a sentence that belongs to the rows: a limit that was found, the size of the input."""
        self.notes.append(text)

    def detail(self, text: str) -> None:
        """Add a sentence that is printed and kept in the file, and not on the page."""
        self.details.append(text)

    def show(self) -> None:
        """Print the rows as a table, with notes and details below it."""
        met = {True: "yes", False: "no", None: None}
        table = [
            {
                "measured": row["name"],
                "value": figure(row["value"]),
                "unit": row["unit"],
                "ratio": row["ratio"],
            }
            | {"of": row["peer"], "target": row["target"], "met": met[row["met"]]}
            for row in self.rows
        ]
        print(format_table(table, most=len(table)))
        print(*self.notes, *self.details, sep="\n")

    def write(self) -> None:
        """Print how long the run took, and write the file."""
        seconds, own = time.perf_counter() - self.started, own_seconds() - self.own
        others = max(0.0, (busy_seconds() - self.busy - own) / seconds)
        print(
            f"{seconds:.0f} s, {own:.0f} s of the processor; other programs used {others:.2f} cores"
        )
        if self.file is None:
            return
        record = {
            "title": self.title,
            "command": command(self.file),
            "date": time.strftime("%Y-%m-%d"),
        }
        record |= {"seconds": round(seconds, 1), "processor_seconds": round(own, 1)}
        record |= {"idle": others <= IDLE, "other_cores": round(others, 2), "machine": machine()}
        record |= {"versions": versions(), "commit": commit()}
        record |= {"rows": self.rows, "notes": self.notes, "details": self.details}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(
            json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def figure(value: float) -> str:
    """Return a number with three significant digits; a count keeps all of its own."""
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows the text at the top of a program, with the option that names the file for `Results`."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_json(parser)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file for `Results`."""
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the figures to this file, for page.py"
    )


def command(file: Path) -> str:
    """Return the command of this run without the option for its file, and without the machine's paths."""
    words = [word.replace(f"{ROOT}/", "") for word in sys.argv]
    words = [
        word for word, before in zip(words, ["", *words]) if word != "--json" and before != "--json"
    ]
    words = [word for word in words if not word.startswith("--json=")]
    data = os.environ.get("AUTOMEDEVAL_DATA")
    words = [word.replace(data, "$AUTOMEDEVAL_DATA") if data else word for word in words]
    return " ".join(["python", f"benchmarks/{Path(words[0]).name}", *words[1:]])


def machine() -> dict[str, Any]:
    """Return what the processor is, its cores, and whether it has instructions for bfloat16."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = (
        [line.partition(":") for line in cpuinfo.read_text().splitlines()]
        if cpuinfo.exists()
        else []
    )
    found = {name.strip(): value.strip() for name, _, value in lines}
    flags = {*found.get("flags", found.get("Features", "")).split()}
    name = found.get("model name") or platform.processor() or platform.machine()
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "bfloat16": bool(flags & BFLOAT16),
        "gpu": gpu(),
    }


def gpu() -> str | None:
    """Return the name of the GPU that torch sees, None without one or where torch was not loaded."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Return the commit of the checkout, "-dirty" after it where files differ; None outside git."""
    asked = [
        "git",
        "-C",
        str(ROOT),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def own_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def busy_seconds() -> float:
    """Return the processor time of all programs since the machine started, stolen time included; 0 where it is not told."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, soft, steal = map(
        int, stat.read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
