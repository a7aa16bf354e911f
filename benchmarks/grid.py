"""Measure how fast the page of a report with 10,000 cases opens, searches and scrolls in a real browser.

    python benchmarks/grid.py
    python benchmarks/grid.py --cases 1000

Synthetic cases of three responses, of 20,000 random words, which compress worse than real texts do. Chromium opens
the page by playwright, without a GPU.
"""

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import synthetic
from playwright import sync_api as playwright
from processes import peak, recipe
from rows import Results, arguments

SCROLL = """async () => {
  const frame = document.getElementById("frame"), gaps = [];
  for (let step = 0, last = performance.now(); step < 120; step++) {
    frame.scrollTop += 200;
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return gaps;
}"""


def timed(action: Callable[[], object], done: playwright.Locator, pattern: str) -> float:
    """Return the seconds from an action until an element has a text of a pattern."""
    started = time.perf_counter()
    action()
    playwright.expect(done).to_contain_text(re.compile(pattern), timeout=60_000)
    return time.perf_counter() - started


def visit(
    browser: playwright.Browser, file: Path, args: argparse.Namespace, what: str, results: Results
) -> None:
    """Open a page again and again, and add how long each step took."""
    seconds: dict[str, list[float]] = {}
    gaps: list[float] = []
    for _ in range(args.visits):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        count, case, rows = (
            page.locator(name) for name in ("#count", "#case h2", "#rows tbody tr")
        )
        opened = timed(
            lambda page=page: page.goto(file.as_uri(), wait_until="commit"), count, "cases"
        )
        seconds.setdefault("open until the rows are there", []).append(opened)
        seconds.setdefault("open the first case", []).append(
            timed(rows.nth(1).click, case, "case-")
        )
        page.keyboard.press("Escape")
        search = timed(lambda page=page: page.fill("#search", "no such words"), count, "^0 of")
        seconds.setdefault("first search in all texts", []).append(search)
        page.fill("#search", "")
        playwright.expect(count).to_contain_text(f"{args.cases:,} of")
        gaps += page.evaluate(SCROLL)
        page.close()
    for name, values in seconds.items():
        results.add(f"{what}: {name}", median(values), "s", most=2)
    results.add(f"{what}: scroll, median time of a frame", median(gaps), "ms", most=33)
    results.add(f"{what}: size of the page", file.stat().st_size / 1e6, "MB")


def main() -> None:
    """Make a report, open it a few times, and print one table."""
    parser = arguments(__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--visits", type=int, default=5)
    args = parser.parse_args()
    results = Results("Page of a report", args.json)
    letters, rng = list("abcdefghijklmnopqrstuvwxyz"), np.random.default_rng(0)
    synthetic.WORDS = ["".join(rng.choice(letters, rng.integers(2, 11))) for _ in range(20_000)]
    with tempfile.TemporaryDirectory() as scratch, playwright.sync_playwright() as driver:
        folder = Path(scratch)
        synthetic.write_study(folder, args.cases, 1, [(0, 1, 2)])
        report = recipe(
            "report",
            cases=folder / "cases.jsonl",
            encoder="none",
            resamples=200,
            output=folder / "report",
            verdicts=folder / "verdicts.jsonl",
        )
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        peak(report, folder / "log")
        visit(browser, folder / "report/report.html", args, "report", results)
        browser.close()
    results.note(
        f"{args.cases:,} cases of three responses; medians of {args.visits} visits, chromium without a GPU."
    )
    results.show()
    results.write()


if __name__ == "__main__":
    main()
