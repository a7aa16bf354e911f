"""Take the pictures of the packaged sample's pages by the packaged small judge: the report in README, and a sheet of each page.

    python docs/picture.py

A sheet has one page at 1280 and at 390 pixels, light and dark. The models of `automedeval get-models` and chromium are needed;
the audit takes minutes. The sample's ratings are simulated.
"""

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright import sync_api as playwright

ROOT = Path(__file__).parents[1]
SAMPLE = Path("src/automedeval/sample")  # in ROOT: the pictures hold no path of this machine
STUDY = ROOT / "recipes/runs/automedeval-135m/annotate.yaml"
SCREENS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
CASE = "sample-four-month-fever-after-shots"  # its answers are opened side by side
PROGRAM = [sys.executable, "-um", "automedeval.cli.console"]
HEIGHT, PORT, GAP = 1200, 8779, 20


def main() -> None:
    with TemporaryDirectory() as name, playwright.sync_playwright() as driver:
        folder = Path(name)
        files = pages(folder)
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
        page.goto(files["report"].as_uri())
        page.wait_for_timeout(500)
        page.screenshot(path=ROOT / "docs/grid.png")
        for title, file in files.items():
            sheet(browser, title, file.as_uri())
        sheet(browser, "case", f"{files['report'].as_uri()}#case={CASE}")
        annotate = [*PROGRAM, "annotate", "--study", study(folder), "--port", str(PORT)]
        with subprocess.Popen(annotate, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            links = (re.search(r"http://\S+/invitation/\S+", line) for line in server.stdout or ())
            link = next(filter(None, links)).group()
            sheet(browser, "physicians", link)
            server.terminate()
        browser.close()


def pages(folder: Path) -> dict[str, Path]:
    """Judge the sample; write a report, an audit and a check, and return their pages."""
    cases, ratings = (
        ("--cases", SAMPLE / "test_cases.jsonl"),
        ("--ratings", SAMPLE / "test_ratings.jsonl"),
    )
    judged = folder / "verdicts" / "sample"
    run("judge", *cases, "--output", judged)
    run("report", "--verdicts", judged, *cases, *ratings, "--output", folder)
    run("audit", "--judge", "small", *cases, "--limit", 12, "--gate", "false", "--output", folder)
    run("check", "--cases", SAMPLE / "two_bots.jsonl", "--output", folder)
    return {name: folder / f"{name}.html" for name in ("report", "audit", "check")}


def study(folder: Path) -> Path:
    """Return the sample's study with a database of its own."""
    text = re.sub(
        r"^database: \S+",
        f"database: {folder / 'study.sqlite'}",
        STUDY.read_text("utf-8"),
        flags=re.M,
    )
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    return folder / "study.yaml"


def sheet(browser: playwright.Browser, title: str, address: str) -> None:
    """Write one picture with a page in every one of `SCREENS`."""
    shots = []
    for width, scheme in SCREENS:
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme=scheme
        )
        page = context.new_page()
        page.goto(address)
        for name in ("^Sign in", "^Begin", "^Go on"):  # on the physicians' page
            if (button := page.get_by_role("button", name=re.compile(name))).count():
                button.first.click()
                page.wait_for_load_state()
        page.wait_for_timeout(500)
        shots.append(Image.open(io.BytesIO(page.screenshot())))
        context.close()
    whole = Image.new(
        "RGB", (sum(shot.width for shot in shots) + GAP * (len(shots) - 1), HEIGHT), "#888"
    )
    place = 0
    for shot in shots:
        whole.paste(shot, (place, 0))
        place += shot.width + GAP
    whole = whole.resize((whole.width * 7 // 10, whole.height * 7 // 10), Image.Resampling.LANCZOS)
    whole.save(ROOT / f"docs/img/page-{title}.webp", quality=60, method=6)


def run(*words: object) -> None:
    subprocess.run([*PROGRAM, *map(str, words)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
