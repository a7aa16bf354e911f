"""The page of `automedeval report`: the answer first, the same numbers as agreement.json, and in a real browser."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from doubles.agreement_study import (
    CASES,
    RATINGS,
    agreeing_verdicts,
    made,
    noisy_verdicts,
    read,
    write,
)
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.grid_reader import Visit, needs_chromium, violations
from programs import run_recipe, succeeded

from automedeval.annotation.study import read_study

SIZES = {"laptop": {"width": 1280, "height": 800}, "telephone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimpleNamespace]:
    verdicts = agreeing_verdicts("good") + noisy_verdicts("noisy", 1.5, 1)
    files = {"rated": {"ratings": RATINGS}, "unrated": {}}
    return {
        name: made(tmp_path_factory.mktemp(name), verdicts, **more) for name, more in files.items()
    }


FIRST = {"rated": "Best model", "unrated": "Wins most pairs"}
QUESTIONS = [
    "Numbers beside the reference",
    "Harm",
    "Can the judge be believed?",
    "Audited?",
    "What it does not see",
]
# With a number that differs from a reference the grid begins below a telephone's first screen.
FIRST_SCREEN = {
    "laptop": ("p.verdict", "table.bars", "#rows thead"),
    "telephone": ("p.verdict", "table.bars", "#summary"),
}


@pytest.mark.parametrize("name", ["rated", "unrated"])
def test_page_and_summary_answer_first_and_in_order(
    reports: dict[str, SimpleNamespace], name: str
) -> None:
    one = reports[name]
    asked = re.findall("<dt>(.*?)</dt>", one.page.partition('<dl class="facts">')[2])
    assert asked[:6] == [FIRST[name], *QUESTIONS]
    assert {"Judge", "Next step"} <= set(asked)
    assert "30 cases, 90 responses, 90 pairs" in one.page
    lines = one.said.splitlines()
    assert len(lines) <= 5
    assert lines[-2:] == [f"report: {one.folder / 'report.html'}", "Not for clinical use."]
    assert lines[0] in one.told
    bold, _, more = lines[0].partition(". ")
    assert f'<p class="verdict">{bold}.</p>\n<p class="trust">{more}</p>' in one.page
    sections = re.findall('<h2 id="(.*?)">', one.page)
    assert sections[:3] == ["cases", "sure", "differences"]
    assert ("people" in one.result) == (name == "rated")
    assert "cannot be told apart" not in one.page + one.told
    assert (
        "good, with the rubric automedeval@1 (of 2 judges; --main_judge names another)" in one.page
    )


def test_the_leaderboard_has_the_figures_of_agreement_json(
    reports: dict[str, SimpleNamespace],
) -> None:
    one = reports["rated"]
    models = one.result["models"]["good"]["models"]
    rates = {model: each["win_rate"]["value"] for model, each in models.items()}
    table = one.page[
        one.page.index("<caption>Models by good") : one.page.index("<caption>Mean score by")
    ]
    rows = re.findall(
        r'<th scope="row" dir="auto">(.*?)</th><td.*?>(.*?)</td><td.*?>(.*?) \[', table
    )
    assert {rank for _, rank, _ in rows} == {"1–3"}, "by the noise of 40 cases"
    assert {model: rate for model, _, rate in rows} == {
        model: f"{100 * rate:.0f}" for model, rate in rates.items()
    }
    assert [model for model, *_ in rows] == sorted(rates, key=lambda model: -rates[model])
    main = one.result["judges"][one.result["main_judge"]["name"]]
    value, low, high = (
        f"{100 * main['concordance'][part]:.0f}" for part in ("value", "low", "high")
    )
    assert (
        f"good orders {value} % of the pairs of responses as people do (95 % interval {low}–{high}). A tie counts as half"
        in one.page
    )
    surest, others = (
        f"{100 * main['by_confidence'][side]['value']:.0f} % (" for side in ("surest", "others")
    )
    assert (
        f"On the half of the cases where its scores lie furthest apart it orders {surest}"
        in one.page
    )
    assert f"), else {others}95 % interval" in one.page
    rater = 100 * one.result["people"]["ceiling"]["concordance"]["value"]
    assert f"One rater orders {rater:.0f} % as the mean of the others does" in one.page
    assert f"The best of them is {main['best_baseline']['name']}: " in one.page


def test_without_ratings_it_writes_a_study_to_rate_and_says_the_commands(
    reports: dict[str, SimpleNamespace],
) -> None:
    one = reports["unrated"]
    assert "Not known. No ratings are given. 30 rated cases are enough" in one.told
    (study,) = one.folder.glob("rate*")
    for text in (one.page, one.told):
        assert f"automedeval annotate --study {study}\n" in text
        assert f"automedeval annotate --study {study} --export {study.with_suffix('')}\n" in text
    read_back = read_study(study)
    assert {item.kind for item in read_back.items} == {"rate"}
    assert len(read_back.items) == 30
    assert not list(reports["rated"].folder.glob("rate*"))


def test_other_cases_in_the_same_output_are_rated_by_a_study_of_their_own(tmp_path: Path) -> None:
    few = write(tmp_path / "few.jsonl", read(CASES)[:5])
    others = write(tmp_path / "others.jsonl", read(CASES)[5:12])
    edited, studies = "# edited\n", []
    for cases in (few, others, few):
        lines = made(tmp_path, agreeing_verdicts(), cases=cases).told.splitlines()
        (said,) = [line for line in lines if "annotate" in line and "--export" not in line]
        study = Path(said.split()[-1])
        assert {item.case_id for item in read_study(study).items} == {
            case["id"] for case in read(cases)
        }
        if study not in studies:
            study.write_text(edited + study.read_text(encoding="utf-8"), encoding="utf-8")
        studies.append(study)
    assert studies[0] == studies[2] != studies[1]
    assert all(study.read_text(encoding="utf-8").startswith(edited) for study in studies)
    assert read_study(studies[0]).database != read_study(studies[1]).database


def test_the_difference_of_two_models_is_a_sentence(tmp_path: Path) -> None:
    answers = [{"model": f"bot-{number}", "text": "Rest."} for number in (0, 1)]
    scored = {"order": [0, 1], "scores": [4, 3], "expected_scores": [4, 3]}
    cases = [case | {"responses": answers} for case in read(CASES)]
    page = made(tmp_path, [each | scored for each in agreeing_verdicts()], cases=cases).page
    assert (
        "bot-0 wins 100 % of the cases against bot-1, ties counted half: a clear difference.</p>"
        in page
    )
    assert "Which differences are clear" not in page


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_has_the_answer_and_axe_finds_nothing(
    reports, browser, size, scheme
) -> None:
    for one in reports.values():
        options = {"viewport": SIZES[size], "color_scheme": scheme, "bypass_csp": True}
        visit = Visit(browser, one.folder / "report.html", **options)
        page = visit.page
        page.wait_for_selector("#rows tbody tr")
        for part in FIRST_SCREEN[size]:
            box = page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= SIZES[size]["height"], part
        name = "all => all.map(each => each.id || each.className || each.tagName)"
        shown = page.locator("main > *:visible").evaluate_all(name)
        assert shown == ["H1", "notice", "summary", "cases", "grid", "fold"], (
            "everything else is folded"
        )
        for fold in page.query_selector_all("details"):
            fold.evaluate("each => each.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        assert violations(page) == []
        visit.close()


@needs_chromium
def test_tables_are_sorted_without_a_call_outside(
    reports: dict[str, SimpleNamespace], browser
) -> None:
    page, calls = browser.new_page(), []
    page.on("request", lambda request: calls.append(request.url))
    page.goto((reports["rated"].folder / "report.html").as_uri())
    page.locator("summary:has(#sure)").click()
    table = page.locator("table.sortable").first
    before = table.locator("tbody th").all_text_contents()
    for _ in range(2):
        table.locator("button", has_text="share of pairs won").click()
    assert table.locator("tbody th").all_text_contents() == before[::-1]
    assert len(calls) == 1  # the page itself
    page.close()


@needs_chromium
def test_without_script_and_on_paper_the_figures_can_be_read(
    reports: dict[str, SimpleNamespace], browser
) -> None:
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto((reports["rated"].folder / "report.html").as_uri())
    assert not page.locator("#grid").is_visible()
    assert page.locator("noscript p").is_visible()
    page.emulate_media(media="print")
    assert page.locator("details:has(#agreement) .scroll").first.is_visible()  # folds are open
    context.close()


def test_each_topic_has_the_mean_score_of_each_model(reports: dict[str, SimpleNamespace]) -> None:
    """By a loop over the verdicts, with scipy's interval."""
    scores: dict[tuple[str, str], list[float]] = {}
    for case, judged in zip(read(CASES), agreeing_verdicts("good")):
        for response, score in zip(case["responses"], judged["expected_scores"]):
            scores.setdefault((case["topic"], response["model"]), []).append(score)
    topics = reports["rated"].result["topics"]
    assert len(topics) > 1
    for topic in topics:
        for model, found in topic["models"].items():
            values = scores[topic["topic"], model]
            mean, error = np.mean(values), scipy.stats.sem(values)
            low, high = (
                scipy.stats.t.interval(0.95, len(values) - 1, mean, error)
                if error
                else (None, None)
            )
            expected = (mean, low and max(low, 1), high and min(high, 5))
            figures = [found["value"], found["low"], found["high"], topic["cases"]]
            assert figures == pytest.approx([*expected, len(values)])
    assert "in the topics with most cases" in reports["rated"].page


def test_a_topic_counts_the_cases_that_were_scored(tmp_path: Path) -> None:
    verdicts, cases = agreeing_verdicts("good")[1:], read(CASES)
    topics = {each["topic"]: each["cases"] for each in made(tmp_path, verdicts).result["topics"]}
    counts = Counter(case["topic"] for case in cases[1:])
    assert verdicts[0]["case_id"] == cases[1]["id"]
    assert topics == {topic: count for topic, count in counts.items() if count > 1}


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
        options = (
            "--judge",
            "openai:m",
            "--base_url",
            endpoint.url,
            "--score_decoding",
            "free",
            "--edits",
            1,
        )
        options += ("--limit", 6, "--gate", "false", "--output", folder / "out")
        done = run_recipe("audit", *options, "--cases", CASES)
    assert done.returncode == 0, done.stderr
    return folder / "out" / "audit.html"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a check of one wrong answer."""
    folder = tmp_path_factory.mktemp("check")
    responses = [{"model": "bot", "text": "Take one 50 mg tablet every day."}]
    case = {
        "id": "c1",
        "question": "How?",
        "reference": "Take one tablet of 5 mg once a week.",
        "responses": responses,
    }
    cases = write(folder / "cases.jsonl", [case])
    succeeded(run_recipe("check", "--cases", cases, "--output", folder / "out"))
    return folder / "out" / "check.html"


@pytest.mark.parametrize("made", ["audited", "checked"])
def test_the_page_fits_and_axe_finds_nothing(
    made: str, request: pytest.FixtureRequest, browser
) -> None:
    file = request.getfixturevalue(made)
    for width, scheme in SCREENS:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
        )
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
    assert (
        fold.get_by_text("ahead in one order, not in another").count()
        == fold.locator(".text").count()
        == 6
    )
    page.close()
