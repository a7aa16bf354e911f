"""The coordinator's pages in a real browser: they can be read on a telephone, in the dark, and by a screen reader."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from annotation.test_browser import AXE, CHROMIUM, TELEPHONE, WIDE, browser_of
from annotation.test_coordinator import PASSWORD, PEOPLE, agreeing, work
from doubles.study_page import JUDGES, opened, served, write_study

from automedeval.annotation.coordinator import set_password

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a study of four cases that three physicians have done, and did not quite agree on."""
    rng, like = random.Random(0), agreeing()
    rate, prefer = {"raters": 3, "overlap": 4, "judges": [JUDGES[0]]}, {"judges": list(JUDGES), "raters": 3}
    folder: Path = tmp_path_factory.mktemp("study")
    with opened(write_study(folder, cases=4, rate=rate, prefer=prefer)) as store:
        set_password(store, PASSWORD)
        for name in PEOPLE:
            work(store, name, lambda model, about: max(1, min(5, like(model, about) + rng.choice([-1, 0, 0, 1]))))
        with served(store) as address:
            yield address


def examine(page: "playwright.Page") -> None:  # noqa: F821 - the other file imports it where it is installed
    page.add_script_tag(path=str(AXE))
    violations = page.evaluate("axe.run()")["violations"]
    assert [each["id"] for each in violations if each["impact"] in ("serious", "critical")] == [], page.url
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (TELEPHONE, "dark")], ids=["wide", "telephone"])
def test_every_page_of_the_coordinator_is_fit_for_everybody(address: str, size: dict, scheme: str) -> None:
    with browser_of(CHROMIUM) as browser:
        page = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True).new_page()
        missing: list[str] = []
        page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{address}/coordinator")
        examine(page)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_load_state("networkidle")
        assert "physician-1" in page.locator("main table").inner_text()
        examine(page)
        page.get_by_role("button", name="New link for physician-1").click()
        page.get_by_label("Link").wait_for()
        examine(page)
        assert missing == []
