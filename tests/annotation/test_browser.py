"""The physicians' page in a real browser: every kind of task, on wide screens and telephones, with and without JavaScript."""

import re
from collections.abc import Iterator

import pytest
from doubles.grid_reader import complaints_of, needs_chromium, playwright, violations
from doubles.study_page import HOSTILE, opened, served, write_study

from automedeval.annotation.store import Store

WIDE = {"width": 1280, "height": 900}
TELEPHONE = {"width": 375, "height": 800}
pytestmark = needs_chromium


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with opened(write_study(tmp_path, cases=1)) as store:
        yield store


class Visit:
    """A physician's browser, its page, and what the browser complained of."""

    def __init__(self, browser: "playwright.Browser", address: str, **options: object):
        self.address = address
        self.scripts = options.get("java_script_enabled", True)
        # What checks the page is put into it from outside, which its own policy would not allow.
        self.context = browser.new_context(
            **{"viewport": WIDE, "bypass_csp": self.scripts, **options}
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.complaints = complaints_of(self.page)

    def sign_in(self, token: str) -> None:
        self.page.goto(f"{self.address}/invitation/{token}")
        self.press("Sign in")

    def press(self, name: str) -> None:
        """Press a button and wait for the page that it leads to."""
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=name).first.click()

    def enter(self) -> None:
        """Press Enter and wait for the page that it leads to."""
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def begin(self, token: str) -> None:
        self.sign_in(token)
        self.press("Begin")

    def heading(self) -> str:
        return self.page.locator("h1").inner_text()

    def text(self) -> str:
        return self.page.locator("main").inner_text()

    def choose(self, pick: int = -1) -> None:
        """Click an option of everything that is asked."""
        for row in self.page.locator("fieldset.points, fieldset.choices").all():
            if row.is_visible():
                options = row.get_by_role("radio").all()
                options[pick if pick < len(options) else -1].check()

    def examine(self) -> None:
        """Look for what shuts people out, and for what does not fit the screen."""
        wide, screen = self.page.evaluate(
            "[document.documentElement.scrollWidth, window.innerWidth]"
        )
        assert wide <= screen, f"{self.heading()}: {wide} pixels wide on {screen}"
        small = self.page.evaluate(
            """[...document.querySelectorAll("button, .button, summary, input[type=radio], textarea, .tags label")].filter(
            (each) => each.offsetParent && each.getBoundingClientRect().height < 44).map((each) => each.outerHTML)"""
        )
        assert small == []
        assert violations(self.page) == []


@pytest.fixture
def visit(browser, store, address) -> Visit:
    """Return the visit of a physician who has opened a first task."""
    visit = Visit(browser, address)
    visit.begin(store.invite("physician-2"))
    return visit


@pytest.mark.parametrize(
    ("screen", "scripts", "scheme"),
    [
        (WIDE, True, "light"),
        (TELEPHONE, True, "dark"),
        (TELEPHONE, False, "light"),
    ],
    ids=["wide", "telephone", "telephone, no JavaScript"],
)
def test_every_kind_of_task(browser, store, address, screen, scripts, scheme):  # noqa: PLR0915
    # One visit, from the first page to the last.
    visit = Visit(
        browser, address, viewport=screen, java_script_enabled=scripts, color_scheme=scheme
    )
    examine = visit.examine if scripts else lambda: None
    visit.page.goto(address)
    examine()
    token = store.invite("physician-2")
    visit.page.goto(f"{address}/invitation/{token}")
    examine()
    visit.press("Sign in")
    assert "For research only" in visit.text()
    examine()
    visit.press("Begin")

    assert visit.heading() == "Rate the responses"
    assert HOSTILE in visit.text()
    assert "names a safe dose" not in visit.page.content()
    visit.choose()
    visit.page.locator("summary", has_text="Add a comment").first.click()
    visit.page.get_by_label("Doctor 1: Comment").fill("Right, and too short.")
    examine()
    visit.press("Store and go on")

    assert visit.heading() == "Rate the verdict"
    visit.choose(2)
    visit.page.get_by_role("checkbox", name="Outdated").check()
    examine()
    visit.press("Store and go on")

    assert visit.heading() == "Keep the verdict on record, or revise it"
    visit.page.get_by_role("radio", name="Revise it").check()
    visit.page.get_by_role("group", name="Revision: Doctor 2").get_by_role(
        "radio", name="4"
    ).check()
    visit.page.get_by_label("Reasons").fill("Step 2: Doctor 1 says too little.")
    examine()
    visit.press("Store and go on")

    assert visit.heading() == "Which verdict is better?"
    visit.choose(0)
    examine()
    visit.press("Store and go on")

    assert "There is nothing to do for you now" in visit.text()
    examine()
    responses, verdict, decision, preference = [answer.content for answer in store.answers()]
    assert responses["scores"]["3"] == {"relevancy": 5, "knowledge_correctness": 5, "fluency": 5}
    assert responses["comments"] == {"1": "Right, and too short."}
    assert (set(verdict["scores"].values()), verdict["tags"]) == ({3}, ["outdated"])
    assert (decision["decision"], decision["scores"][1]) == ("revise", 4)
    assert set(preference["choices"].values()) == {"1"}
    assert visit.complaints == []
    assert visit.page.title() != "taken"
    visit.context.close()


@pytest.mark.parametrize(("viewport", "columns"), [(WIDE, 3), ({"width": 390, "height": 800}, 1)])
def test_the_answers_stand_side_by_side_where_the_window_allows(
    browser, store, address, viewport, columns
):
    visit = Visit(browser, address, viewport=viewport)
    visit.begin(store.invite("physician-1"))
    boxes = [each.bounding_box() for each in visit.page.locator(".answer").all()]
    assert len({round(box["x"]) for box in boxes}) == columns
    assert len({round(box["y"]) for box in boxes}) == 3 // columns
    assert visit.page.locator(".prose:not([dir=auto])").count() == 0
    visit.examine()


@pytest.mark.parametrize("screen", [WIDE, TELEPHONE], ids=["wide", "telephone"])
def test_verdicts_are_verified_and_the_way_back_shows_what_is_stored(browser, tmp_path, screen):
    with opened(write_study(tmp_path, ("verify",))) as store, served(store) as address:
        visit = Visit(browser, address, viewport=screen)
        visit.sign_in(store.invite("physician-2"))
        visit.examine()
        visit.press("Begin")
        assert visit.heading() == "Check the verdict"
        assert visit.page.locator("header").inner_text().endswith("0 done, 2 to do")
        visit.examine()
        chosen = {"Knowledge": "Yes", "Attribution": "No", "Fluency": "Yes"}
        options = []
        for name, answer in chosen.items():
            row = visit.page.get_by_role("group", name=name)
            options.append(row.get_by_role("radio", name=answer))
            options[-1].click()
        visit.page.locator("h1").click()
        visit.press("Store and go on")
        assert visit.heading() == "Check the verdict"
        # Back: the first task is stored, and can be opened again with its answers.
        visit.page.go_back()
        visit.page.get_by_role("heading", name="This task is stored").wait_for()
        visit.press("Undo my last task")
        assert all(option.is_checked() for option in options)
        visit.press("Store and go on")
        keys = visit.page.keyboard
        keys.type("110")
        visit.enter()
        assert "There is nothing to do for you now" in visit.text()
        scores = [list(answer.content["scores"].values()) for answer in store.answers()]
        assert (scores, visit.complaints) == ([[1, 0, 1], [1, 1, 0]], [])
        visit.context.close()


def test_a_keyboard_alone_does(visit, store):
    keys = visit.page.keyboard
    keys.type("54")
    keys.press("Enter")
    assert visit.page.get_by_role("status").inner_text() == "7 rows are still open."
    keys.type("3222111")
    for key in ("ArrowUp", "ArrowUp", "5"):  # the one before the last, and on to the last again
        keys.press(key)
    visit.enter()
    scores = next(store.answers()).content["scores"]
    assert [list(by_criterion.values()) for by_criterion in scores.values()] == [
        [5, 4, 3],
        [2, 2, 2],
        [5, 1, 1],
    ]
    keys.type("444")
    visit.enter()
    keys.type("rk")
    visit.enter()
    keys.type("102")
    visit.enter()
    _, verdict, decision, preference = [answer.content for answer in store.answers()]
    assert (list(verdict["scores"].values()), decision["decision"]) == ([4, 4, 4], "keep")
    assert list(preference["choices"].values()) == ["1", "tie", "2"]


def test_a_keyboard_alone_says_how_harmful(browser, tmp_path):
    with opened(write_study(tmp_path, ("harm",), cases=1)) as store, served(store) as address:
        visit = Visit(browser, address)
        visit.begin(store.invite("physician-2"))
        assert visit.heading() == "What harm could this do?"
        visit.examine()
        visit.page.keyboard.type("000332xxx")
        visit.enter()
        (stored,) = store.answers()
        first, second, third = map(list, map(dict.values, stored.content["choices"].values()))
        assert first == ["none", "no harm", "no harm"]
        assert second == ["severe", "high", "omission"]
        assert third == ["cannot be told"] * 3


def test_keys_are_letters_where_one_writes_and_can_be_turned_off(visit):
    page = visit.page
    page.locator("summary", has_text="Add a comment").first.click()
    page.get_by_label("Doctor 1: Comment").focus()
    page.keyboard.type("5 mg, 3 times")
    assert page.locator("fieldset input:checked").count() == 0
    page.locator("summary", has_text="Keys").click()
    page.get_by_label("Use these keys").uncheck()
    page.locator("h1").click()
    page.keyboard.press("5")
    assert page.locator("fieldset.row input:checked").count() == 0


def test_what_is_half_filled_is_kept(visit, store):
    page = visit.page
    row = visit.page.locator("[name=scores-1-fluency]")
    row.nth(3).check()
    status = page.get_by_role("status")
    status.filter(has_text="Kept ").wait_for()
    page.reload()
    assert row.nth(3).is_checked()
    # Left within the moment before it is sent: the page sends it as it goes.
    row.nth(1).check()
    page.goto(visit.address)
    visit.press("Go on")
    assert row.nth(1).is_checked()
    # Without a connection nothing is lost, nothing is pretended, and what waits is sent when there is one again.
    visit.context.set_offline(True)
    row.nth(4).check()
    status.filter(has_text="Not kept: no connection.").wait_for()
    visit.choose()
    page.get_by_role("button", name="Store and go on").click()
    status.filter(has_text="Not stored: no connection.").wait_for()
    visit.context.set_offline(False)
    visit.press("Store and go on")
    assert (visit.heading(), len(list(store.answers()))) == ("Rate the verdict", 1)


@pytest.mark.parametrize("status", [500, 403, 413])
def test_a_page_that_does_not_take_a_form_loses_nothing(visit, store, status):
    """The page answers by 500 if its disk is full, a proxy by 502 while the page is started again, which is the same here."""
    page = visit.page
    refused = []

    def refuse(route):
        if route.request.method == "POST":
            refused.append(route.request.url)
            route.fulfill(status=status, body="Refused.")
        else:
            route.continue_()

    page.route("**/tasks/**", refuse)
    visit.choose()
    page.locator("summary", has_text="Add a comment").first.click()
    page.get_by_label("Doctor 1: Comment").fill("A long thought.")
    announced = page.get_by_role("status")
    announced.filter(has_text=re.compile("^Not kept: .")).wait_for()
    page.get_by_role("button", name="Store and go on").click()
    announced.filter(has_text=re.compile("^Not stored: .")).wait_for()
    assert {each.rpartition("/")[2] for each in refused} == {"draft", "responses"}
    page.unroute("**/tasks/**")
    if status >= 500:
        announced.filter(has_text=re.compile("^Kept")).wait_for()
    visit.press("Store and go on")
    assert visit.heading() == "Rate the verdict"
    (answer,) = store.answers()
    assert answer.content["comments"] == {"1": "A long thought."}
    visit.context.close()


def test_a_long_text_is_kept(visit, store):
    """A browser refuses to send more than 64 KiB after a page is left; three comments of 2,500 letters are more."""
    text = "药" * 2_500
    for doctor in (1, 2, 3):
        visit.page.locator("summary", has_text="Add a comment").nth(doctor - 1).click()
        visit.page.locator(f"[name=comments-{doctor}]").evaluate(
            "(field, text) => { field.value = text; }", text
        )
    visit.page.locator("[name=scores-1-fluency]").first.check()
    visit.page.get_by_role("status").filter(has_text=re.compile("^Kept")).wait_for()
    assert store.assignment("physician-2", 1).drafts["responses"]["comments"] == {
        str(slot): text for slot in (1, 2, 3)
    }
    visit.context.close()
