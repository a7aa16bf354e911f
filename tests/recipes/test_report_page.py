"""The page of `automedeval report`: the answer first, the same numbers as agreement.json, and in a real browser."""

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy
from doubles.agreement_study import (
    CASES,
    RATINGS,
    agreeing_verdicts,
    case_of,
    made,
    noisy_verdicts,
    read,
    write,
)
from doubles.endpoint import EndpointDouble, answer, good_answer
from doubles.grid_reader import Visit, needs_chromium, violations
from programs import flags, module_fixture, run_recipe, succeeded

from automedeval.annotation.study import read_study

SIZES = {"laptop": {"width": 1280, "height": 800}, "telephone": {"width": 390, "height": 844}}


@module_fixture
def reports(tmp_path_factory):
    """Return two reports on the same verdicts, with people's ratings and without."""
    verdicts = agreeing_verdicts("good") + noisy_verdicts("noisy", 1.5, 1)
    rated = made(tmp_path_factory.mktemp("rated"), verdicts, ratings=RATINGS)
    return {"rated": rated, "unrated": made(tmp_path_factory.mktemp("unrated"), verdicts)}


FACTS = [
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
def test_page_and_summary_answer_first_and_in_order(reports, name):
    report = reports[name]
    page = reports[name].page
    asked = re.findall("<dt>(.*?)</dt>", page.partition('<dl class="facts">')[2])
    assert asked[:6] == ["Wins most pairs", *FACTS]
    assert {"Judge", "Next step"} <= set(asked)
    assert "30 cases, 90 responses, 90 pairs" in page
    lines = report.said.splitlines()
    assert len(lines) <= 5
    assert lines[-2:] == [f"report: {report.folder / 'report.html'}", "Not for clinical use."]
    assert lines[1] in report.told
    bold, _, more = lines[1].partition(". ")
    assert f'<p class="alert">{lines[0]} · <a href="#show=differs">' in page
    assert f'<p class="verdict">{bold}.</p>\n<p class="trust">{more}</p>' in page
    assert re.findall('<h2 id="(.*?)">', page)[:2] == ["cases", "sure"]
    judge = "good, with the rubric automedeval@1 (of 2 judges; --main_judge names another)"
    assert judge in page


def test_the_leaderboard_and_the_sentences_have_the_figures_of_agreement_json(reports):
    report = reports["rated"]
    result = reports["rated"].result
    models = result["models"]["good"]["models"]
    rates = {model: each["win_rate"]["value"] for model, each in models.items()}
    table = report.page.partition("<caption>Models by good")[2].partition("</table>")[0]
    rows = re.findall('<th scope="row" dir="auto">(.*?)</th><td.*?>(.*?)</td><td.*?>(.*?) ', table)
    # The ranks are one by the noise of 40 cases.
    best_first = sorted(rates, key=lambda model: -rates[model])
    assert rows == [(model, "1–3", f"{100 * rates[model]:.0f}") for model in best_first]
    main = result["judges"]["good"]
    ceiling = result["people"]["ceiling"]
    for figure, said in (
        (main["concordance"], "good orders {} of the pairs of responses as people do ("),
        (ceiling["concordance"], "One rater orders {} as the mean of the others does ("),
    ):
        assert said.format(f"{100 * figure['value']:.0f} %") in report.page
    assert f"The best of them is {main['best_baseline']['name']}: " in report.page


def test_without_ratings_it_writes_a_study_to_rate_and_says_the_commands(reports):
    report = reports["unrated"]
    assert "Not known. No person gave scores. 30 rated cases give" in report.told
    (study,) = report.folder.glob("rate*.yaml")
    for text in (report.page, report.told):
        assert f"automedeval annotate --study {study}\n" in text
        assert f"automedeval annotate --study {study} --export {study.with_suffix('')}\n" in text
    items = read_study(study).items
    assert [item.kind for item in items] == ["rate"] * 30
    drawn = read(study.with_suffix(".jsonl"))
    assert drawn == [case for case in read(CASES) if case in drawn]
    assert not list(reports["rated"].folder.glob("rate*"))


def test_other_cases_in_the_same_output_are_rated_by_a_study_of_their_own(tmp_path):
    few = write(tmp_path / "few.jsonl", read(CASES)[:5])
    others = write(tmp_path / "others.jsonl", read(CASES)[5:12])
    studies = []
    for cases in (few, others, few):
        told = made(tmp_path, agreeing_verdicts(), cases=cases).told
        (place,) = re.findall("(?m)automedeval annotate --study ([^ ]*)$", told)
        study = Path(place)
        ids = {item.case_id for item in read_study(study).items}
        assert ids == {case["id"] for case in read(cases)}
        studies.append(study)
        study.write_text(f"# edited\n{study.read_text()}")
    assert studies[0] == studies[2] != studies[1]
    assert studies[0].read_text().count("# edited") == 2


def opened_folds(page):
    """Open what is folded; return the width that the page needs, and what axe finds."""
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    return page.evaluate("document.documentElement.scrollWidth"), violations(page)


@needs_chromium
@pytest.mark.parametrize(("size", "scheme"), [("laptop", "light"), ("telephone", "dark")])
def test_the_first_screen_has_the_answer_and_axe_finds_nothing(reports, browser, size, scheme):
    for report in reports.values():
        options = {"viewport": SIZES[size], "color_scheme": scheme, "bypass_csp": True}
        visit = Visit(browser, report.folder / "report.html", **options)
        page = visit.page
        page.wait_for_selector("#rows tbody tr")
        for part in FIRST_SCREEN[size]:
            box = page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= SIZES[size]["height"], part
        lines = "all => all.map(name => name.getClientRects().length)"
        assert page.locator(".bars bdi").evaluate_all(lines) == [1, 1, 1], "no name is broken"
        name = "all => all.map(each => each.id || each.className || each.tagName)"
        shown = page.locator("main > *:visible").evaluate_all(name)
        assert shown == ["H1", "notice", "summary", "cases", "grid", "fold"], "the rest is folded"
        width, found = opened_folds(page)
        assert width <= SIZES[size]["width"]
        assert found == []
        visit.close()


@needs_chromium
def test_tables_are_sorted_without_a_call_outside(reports, browser):
    page = browser.new_page()
    calls = []
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
def test_without_script_and_on_paper_the_figures_can_be_read(reports, browser):
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto((reports["rated"].folder / "report.html").as_uri())
    assert not page.locator("#grid").is_visible()
    assert page.locator("noscript p").is_visible()
    page.emulate_media(media="print")
    assert page.locator("details:has(#figures) .scroll").first.is_visible()  # folds are open
    context.close()


def test_each_topic_has_the_mean_score_of_each_model_in_the_same_cases(tmp_path):
    """By a loop over the verdicts, with an interval of clusters of three; a topic of one case is none."""
    scores = defaultdict(list)
    cases = [case | {"cluster": n // 3, "topic": f"t{n % 2}"} for n, case in enumerate(read(CASES))]
    cases[-1]["topic"] = "rare"
    verdicts = agreeing_verdicts("good")
    verdicts[0]["scores"][0] = verdicts[0]["expected_scores"][0] = None
    topics = made(tmp_path, verdicts, cases=cases).result["topics"]
    for case, judged in [*zip(cases, verdicts)][1:]:
        for response, score in zip(case["responses"], judged["expected_scores"]):
            scores[case["topic"], response["model"]].append((case["cluster"], score))
    assert {each["topic"] for each in topics} == {
        topic for (topic, _), values in scores.items() if len(values) > 1
    }
    for topic in topics:
        for model, found in topic["models"].items():
            clusters, values = zip(*scores[topic["topic"], model])
            mean = np.mean(values)
            added = np.bincount(clusters, np.array(values) - mean)
            count = len(set(clusters))
            assert topic["cases"] == len(values)
            assert found["value"] == pytest.approx(mean)
            if np.ptp(values) and count > 1:
                error = np.sum(added**2 * count / (count - 1)) ** 0.5 / len(values)
                ends = scipy.stats.t(count - 1, mean, error).interval(0.95)
                assert [found["low"], found["high"]] == pytest.approx(np.clip(ends, 1, 5).tolist())


def leaning(body):
    """Answer as a judge that gives the response that is shown first a point more."""
    line = good_answer(body, 3)
    text = line["json"]["choices"][0]["message"]["content"].replace("Doctor 1: 3", "Doctor 1: 4")
    return answer(text)


@module_fixture
def audited(tmp_path_factory):
    """Return the page of an audit of a judge that another order turns round."""
    output = tmp_path_factory.mktemp("audit") / "out"
    options = {"score_decoding": "free", "edits": 1, "limit": 6, "gate": "false", "cases": CASES}
    with EndpointDouble(leaning) as endpoint:
        judge = flags(judge="openai:m", base_url=endpoint.url, output=output)
        succeeded(run_recipe("audit", *judge, *flags(**options)))
    return output / "audit.html"


@module_fixture
def checked(tmp_path_factory):
    """Return the page of a check of one wrong answer."""
    folder = tmp_path_factory.mktemp("check")
    reference = "Take one tablet of 5 mg once a week."
    answers = {"bot": "Take one 50 mg tablet every day."}
    cases = write(folder / "cases.jsonl", [case_of("c1", "How?", answers, reference=reference)])
    succeeded(run_recipe("check", "--cases", cases, "--output", folder / "out"))
    return folder / "out/check.html"


@needs_chromium
@pytest.mark.parametrize("name", ["audited", "checked"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_and_axe_finds_nothing(name, width, scheme, request, browser):
    viewport = {"width": width, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(request.getfixturevalue(name).as_uri())
    needed, found = opened_folds(page)
    assert needed <= width
    assert found == []
    context.close()


@needs_chromium
def test_an_audit_shows_the_pairs_that_another_order_turns_round(audited, browser):
    page = browser.new_page()
    page.goto(audited.as_uri())
    fold = page.locator("details.case", has_text="another order turns a pair of answers round")
    fold.locator("summary").click()
    signs = fold.get_by_text("ahead in one order, not in another")
    assert signs.count() == fold.locator(".text").count() == 6
    page.close()
