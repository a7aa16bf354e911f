"""Take the pictures of docs/annotation.md: the sample's study in a real browser.

PYTHONPATH=src:tests python docs/annotation_pictures.py docs/img
"""

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from annotation.test_browser import TELEPHONE, Visit
from doubles.grid_reader import started_browser
from doubles.study_page import served

from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study


def illustrate(folder: Path, scratch: Path) -> None:
    """Write the pictures of the document: the sample's study, as a chief physician sees it."""
    study = replace(
        read_study("recipes/runs/automedeval-135m/annotate.yaml"),
        database=f"{scratch}/answers.sqlite",
    )
    store = Store(study)
    with started_browser() as browser, served(store) as address:
        visit = Visit(browser, address)
        visit.begin(store.invite("physician-3"))
        visit.page.keyboard.type("55422")
        visit.page.get_by_role("status").filter(has_text=re.compile("^Kept")).wait_for()
        visit.page.evaluate("window.scrollTo(0, 0)")
        visit.page.screenshot(path=folder / "annotation-responses.png")
        visit.choose(3)
        visit.press("Store and go on")
        visit.page.screenshot(path=folder / "annotation-verdict.png")
        while visit.heading() != "Which verdict is better?":
            visit.choose(3)
            visit.press("Store and go on")
        visit.page.set_viewport_size(
            {"width": 1280, "height": visit.page.evaluate("document.documentElement.scrollHeight")}
        )
        visit.page.screenshot(path=folder / "annotation-preference.png")
        visit = Visit(
            browser, address, viewport=TELEPHONE, color_scheme="dark", device_scale_factor=2
        )
        visit.begin(store.invite("physician-1"))
        visit.page.keyboard.type("424")
        visit.page.evaluate("document.querySelector('article').scrollIntoView()")
        visit.page.screenshot(path=folder / "annotation-telephone.png")
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        illustrate(Path(sys.argv[1]), Path(place))
