"""A reader's browser with the page of a report: a real Chromium, led by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

axe = pytest.importorskip(
    "axe_playwright_python", reason="axe-core comes with axe_playwright_python"
)
playwright = pytest.importorskip("playwright.sync_api", reason="the browser is led by playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)"
)
OFF = ["gpu", "quic", "background-networking", "component-update", "sync"]
HOSTILE = "</template><script>alert(1)</script><img src=x onerror=alert(1)>"


@contextmanager
def started_browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        options = [
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            *(f"--disable-{each}" for each in OFF),
        ]
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


def complaints_of(page: "playwright.Page") -> list[str]:
    """Return a list that grows by what a page complains of."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    return complaints


class Visit:
    """A reader's browser with the page of a report, and what it complained of."""

    def __init__(self, browser: "playwright.Browser", file: Path, **options: object):
        self.file = file
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints = complaints_of(self.page)
        self.open()

    def open(self, place: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.file.as_uri() + place)
        self.page.wait_for_selector("#grid:not([hidden]) #count:not(:empty)")

    def rows(self) -> list[str]:
        ids = "all => all.map(e => new URLSearchParams(e.hash.slice(1)).get('case'))"
        return list(self.page.eval_on_selector_all("#rows tbody a", ids))

    def says(self, text: str) -> None:
        playwright.expect(self.page.locator("#said")).to_have_text(text)

    def close(self) -> None:
        assert self.complaints == []
        self.context.close()


def case_is(visit: Visit, case_id: str) -> None:
    playwright.expect(visit.page.locator("#case[open] h2")).to_contain_text(case_id)


def download(visit: Visit, button: str, file: Path) -> Path:
    with visit.page.expect_download() as started:
        visit.page.get_by_role("button", name=button).click()
    started.value.save_as(file)
    return file


def violations(page: "playwright.Page") -> list[tuple[str, str]]:
    """Return what axe finds, each with the first element that has it; the context must bypass the page's policy."""
    page.add_script_tag(path=str(next(Path(axe.__file__).parent.rglob("axe.min.js"))))
    rules = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(each["id"], each["nodes"][0]["html"][:100]) for each in rules]
