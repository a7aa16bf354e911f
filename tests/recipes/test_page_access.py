"""The pages of an audit and of a check in a real browser: they fit the screen, and axe finds nothing."""

from pathlib import Path

import pytest
from doubles.agreement_study import CASES, write
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.grid_reader import needs_chromium, violations
from programs import ENCODER, needs_encoder, run_recipe, succeeded

pytestmark = needs_chromium
SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


def leaning(body: dict) -> dict:
    """Answer as a judge that gives the response that is shown first a point more."""
    line = good_answer(body, 3)
    text = line["json"]["choices"][0]["message"]["content"].replace("Doctor 1: 3", "Doctor 1: 4")
    return answer(text)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of an audit of a judge that another order turns round."""
    folder = tmp_path_factory.mktemp("audit")
    with EndpointDouble(leaning) as endpoint:
        options = ("--judge", "openai:m", "--base_url", endpoint.url, "--score_decoding", "free", "--edits", 1)
        options += ("--limit", 6, "--gate", "false", "--output", folder / "out")
        done = run_recipe("audit", *options, "--cases", CASES)
    assert done.returncode == 0, done.stderr
    return folder / "out" / "audit.html"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a check of one wrong answer."""
    folder = tmp_path_factory.mktemp("check")
    responses = [{"model": "bot", "text": "Take one 50 mg tablet every day."}]
    case = {"id": "c1", "question": "How?", "reference": "Take one tablet of 5 mg once a week.", "responses": responses}
    cases = write(folder / "cases.jsonl", [case])
    succeeded(run_recipe("check", "--cases", cases, "--encoder", ENCODER, "--output", folder / "out"))
    return folder / "out" / "check.html"


@pytest.mark.parametrize("made", ["audited", pytest.param("checked", marks=needs_encoder)])
def test_the_page_fits_and_axe_finds_nothing(made: str, request: pytest.FixtureRequest, browser) -> None:
    file = request.getfixturevalue(made)
    for width, scheme in SCREENS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(file.as_uri())
        for fold in page.query_selector_all("details"):
            fold.evaluate("each => each.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
        context.close()


def test_an_audit_shows_the_pairs_that_another_order_turns_round(audited: Path, browser) -> None:
    page = browser.new_page()
    page.goto(audited.as_uri())
    fold = page.locator("details.case", has_text="another order turns a pair of answers round")
    fold.locator("summary").click()
    assert fold.get_by_text("ahead in one order, not in another").count() == fold.locator(".text").count() == 6
    page.close()
