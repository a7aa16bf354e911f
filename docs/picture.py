"""Take two pictures of the report of the packaged sample, judged by the packaged small judge: its first screen and its grid.

    python docs/picture.py

The models of `automedeval get-models` and chromium are needed. The sample's ratings are simulated.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright import sync_api as playwright

ROOT = Path(__file__).parents[1]
SAMPLE = Path("src/automedeval/sample")  # in ROOT: the pictures hold no path of this machine
SIZE = {"width": 1280, "height": 800}


def main() -> None:
    with TemporaryDirectory() as name:
        verdicts, report = Path(name, "sample-small"), Path(name, "report")
        cases = ("--cases", SAMPLE / "test_cases.jsonl")
        run("judge.py", *cases, "--output", verdicts)
        ratings = ("--ratings", SAMPLE / "test_ratings.jsonl")
        run("report.py", "--verdicts", verdicts, *cases, *ratings, "--output", report)
        with playwright.sync_playwright() as driver:
            options = ["--headless", "--no-sandbox", "--disable-gpu"]
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=options)
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto((report / "report.html").as_uri())
            page.screenshot(path=ROOT / "docs/report.png")
            page.evaluate("document.getElementById('cases').scrollIntoView()")
            page.screenshot(path=ROOT / "docs/grid.png")
            browser.close()


def run(recipe: str, *options: object) -> None:
    subprocess.run([sys.executable, ROOT / "recipes" / recipe, *map(str, options)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
