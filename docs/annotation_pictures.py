"""Take the pictures of docs/annotation.md: the sample's study in a real browser.

PYTHONPATH=src:tests python docs/annotation_pictures.py docs/img
"""

import random
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from annotation.test_browser import CHROMIUM, TELEPHONE, Visit, browser_of
from doubles.study_page import served

from automedeval.annotation.coordinator import set_password
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study
from automedeval.rubrics.slots import seen_from


def illustrate(folder: Path, scratch: Path) -> None:
    """Write the pictures of the document: the sample's study, as a chief physician sees it."""
    study = replace(
        read_study("recipes/runs/automedeval-135m/annotate.yaml"), database=f"sqlite:///{scratch}/answers.sqlite"
    )
    store = Store(study)
    with browser_of(CHROMIUM) as browser, served(store) as address:
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
        visit = Visit(browser, address, viewport=TELEPHONE, color_scheme="dark", device_scale_factor=2)
        visit.begin(store.invite("physician-1"))
        visit.page.keyboard.type("424")
        visit.page.evaluate("document.querySelector('article').scrollIntoView()")
        visit.page.screenshot(path=folder / "annotation-telephone.png")
        rate_all(store)
        set_password(store, "for the picture")
        visit = Visit(browser, address, viewport={"width": 1280, "height": 760})
        visit.page.goto(f"{address}/coordinator/login")
        visit.page.get_by_label("Password").fill("for the picture")
        visit.press("Sign in")
        visit.page.screenshot(path=folder / "annotation-coordinator.png")
    store.close()


def rate_all(store: Store) -> None:
    """Let two made-up physicians rate as the sample's verdicts do, give or take a point."""
    rng = random.Random(0)
    for name in ("physician-1", "physician-2"):
        while (task := store.next(name)) is not None and task.item.kind == "rate":
            shown = seen_from(store.study.verdicts[task.item.case_id, "recording:strong"], task.order).scores
            for part in task.parts[len(task.answers) :]:
                if part == "responses":
                    near = [{each.name: point(rng, score) for each in store.study.rubric.criteria} for score in shown]
                    content = {"scores": {str(slot): scores for slot, scores in enumerate(near, 1)}}
                else:
                    criteria = store.study.verdict_questions.criteria
                    content = {"scores": {each.name: point(rng, 4) for each in criteria}}
                task = store.answer(name, task.id, part, content, task.version, rng.uniform(40, 120))


def point(rng: random.Random, near: int) -> int:
    return min(5, max(1, near + rng.choice((-1, 0, 0, 1))))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        illustrate(Path(sys.argv[1]), Path(place))
