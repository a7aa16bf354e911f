"""The grid of cases and models on the page of a report, and what changed from a baseline, in a real browser."""

import csv
import json
import re
from collections import defaultdict
from itertools import count
from urllib.parse import quote

import numpy as np
import pytest
from doubles.agreement_study import (
    CASES,
    MODELS,
    RATINGS,
    agreeing_verdicts,
    case_of,
    marked,
    rated_cases,
    read,
    verdict,
)
from doubles.agreement_study import made as report_of
from doubles.grid_reader import (
    HOSTILE,
    Visit,
    case_is,
    download,
    needs_chromium,
    playwright,
    violations,
)
from factories import write_json
from programs import module_fixture
from tables import each_row, holds_all

pytestmark = needs_chromium
CRITERIA = ("relevancy", "knowledge_correctness", "fluency")
ARABIC = "هل يمكنني أخذ الباراسيتامول مع القهوة؟"
TALL = {"width": 1280, "height": 4000}
TELEPHONE = {"width": 390, "height": 844}
TEXTS = "all => all.map(e => e.textContent)"
MARKED = ["ten tablets", "ten tablets", "two tablets"]  # in the answer, and both sentences


class Made:
    """A report of which the grid is read, with its cases and the verdict on each."""

    def __init__(self, folder, cases, verdicts, **more):
        self.cases = cases
        self.ids = [case["id"] for case in cases]
        self.verdicts = dict(zip(self.ids, verdicts))
        self.report = report_of(folder, verdicts, cases=cases, **more)
        self.page = self.report.folder / "report.html"

    def scores(self, model):
        """Return the score of a model's answer to each case, None where there is none."""
        found = {}
        for case, each in zip(self.cases, self.verdicts.values()):
            models = [response["model"] for response in case["responses"]]
            scores = each["expected_scores"]
            found[case["id"]] = scores and scores[models.index(model)]
        return found


@module_fixture
def made(tmp_path_factory):
    """Return a report whose first cases are hostile, empty, marked, invalid and right-to-left, and what it is made of."""
    cases = read(CASES)
    verdicts = agreeing_verdicts()
    for each in verdicts:
        each["differs"] = {model: [] for model in MODELS}
    answer = cases[0]["responses"][0]
    answer["text"] = f"🙂 {HOSTILE} Take ten tablets."
    cases[0]["question"] = HOSTILE
    verdicts[0]["differs"][answer["model"]] = marked(answer["text"])
    verdicts[0]["rationale"] = f"Because. {HOSTILE}"
    verdicts[0]["criterion_scores"] = {name: [2, 3, 4] for name in CRITERIA}
    answer = cases[1]["responses"][0]
    answer["text"] += " Rest." * 10_000
    cases[1]["responses"][1]["text"] = " "
    cases[2]["question"] = ARABIC
    unread = verdict(cases[3], None, raw=f"I cannot say. {HOSTILE}")
    verdicts[3] |= unread
    return Made(tmp_path_factory.mktemp("grid"), cases, verdicts, ratings=RATINGS)


def test_rows_have_each_models_score_length_and_marks(made, browser):
    visit = Visit(browser, made.page, viewport=TALL)
    page = visit.page
    _, *models = page.eval_on_selector_all("#rows thead th", TEXTS)
    rows = page.eval_on_selector_all(
        "#rows tbody tr",
        "all => all.map(row => [...row.cells].slice(1).map(cell => [cell.querySelector('b').textContent, "
        "[...cell.querySelectorAll('small')].map(e => e.scrollWidth > e.clientWidth ? 'cut' : e.textContent).join(' · '), "
        "...[...cell.querySelectorAll('.sign')].map(e => e.ariaLabel)]))",
    )
    shown = {case_id: dict(zip(models, row)) for case_id, row in zip(visit.rows(), rows)}
    signs = defaultdict(list)
    signs[0, 0] = ["a number differs"]
    signs[1, 1] = ["empty"]
    for place in range(3):
        signs[3, place] = ["invalid verdict"]
    worst = {(each["case_id"], each["model"]) for each in read(RATINGS) if each["score"] == 1}
    assert shown.keys() == {*made.ids}
    for number, (case, (_, people)) in enumerate(zip(made.cases, rated_cases(), strict=True)):
        for place, response in enumerate(case["responses"]):
            model = response["model"]
            value = made.scores(model)[case["id"]]
            score = "–" if value is None else f"{value:.2f}"
            length = len(response["text"])
            below = f"people {people[place]:.2f} · {length:,}"
            low = ["worst rating by a person"] if (case["id"], model) in worst else []
            cell = [score, below, *signs[number, place], *low]
            assert shown[case["id"]][model] == cell
    arabic = page.locator("#rows tbody a", has_text=ARABIC)
    assert arabic.evaluate("e => getComputedStyle(e).direction") == "rtl"
    visit.close()


def test_sorting_filters_and_search_stay_in_the_address(made, browser):
    visit = Visit(browser, made.page, viewport=TALL)
    page = visit.page
    spread = {}
    for case_id, each in made.verdicts.items():
        scores = each["expected_scores"]
        spread[case_id] = round(max(scores) - min(scores), 4) if scores else -1
    by_spread = [spread[case_id] for case_id in visit.rows()]
    assert by_spread == sorted(spread.values(), reverse=True)
    model = MODELS[0]
    score = {case_id: each or -1 for case_id, each in made.scores(model).items()}
    for reverse in (True, False):
        page.locator("#rows thead button", has_text=model).click()
        by_model = [score[case_id] for case_id in visit.rows()]
        assert by_model == sorted(score.values(), reverse=reverse)
    for show, case in (("differs", 0), ("empty", 1), ("invalid", 3)):
        page.select_option("#show", show)
        assert visit.rows() == [made.ids[case]]
    page.select_option("#show", "")
    page.fill("#search", "Rattlesnake")
    playwright.expect(page.locator("#count")).not_to_contain_text("30 of")
    with_word = set()
    for case in made.cases:
        text = json.dumps(case)
        if "rattlesnake" in text.lower():
            with_word.add(case["id"])
    assert with_word
    assert set(visit.rows()) == with_word
    address = page.url
    rows = visit.rows()
    assert re.search("#sort=-score%3A.*&search=Rattlesnake$", address)
    visit.open("#" + address.partition("#")[2])
    playwright.expect(page.locator("#count")).not_to_contain_text("30 of")
    assert visit.rows() == rows
    assert page.input_value("#search") == "Rattlesnake"
    visit.close()


def open_case(visit, case_id):
    visit.open(f"#case={quote(case_id)}")
    case_is(visit, case_id)


def words_that_differ(visit, name):
    """Return the words that are underlined in the answer or text of this name."""
    heading = visit.page.get_by_role("heading", name=name, exact=True)
    box = visit.page.locator("#case .response", has=heading)
    return words(" ".join(box.locator(".differs").all_text_contents()))


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def test_a_link_opens_a_case_with_its_answers_side_by_side(made, browser):
    visit = Visit(browser, made.page)
    page = visit.page
    case = made.cases[0]
    open_case(visit, case["id"])
    text = page.text_content("#case")
    differs = "ten tablets instead of two tablets (tablets, 5 times)"
    holds_all(text, (HOSTILE, "Take two tablets.", differs, "echo: knowledge_correctness2"))
    assert page.locator("#case mark").all_text_contents() == MARKED
    assert case["reference"] in text
    assert f"Because. {HOSTILE}" in text
    for response in case["responses"]:
        assert response["text"] in text
    assert page.locator("#case img, #case script").count() == 0
    other = case["responses"][1]
    page.select_option("#case select", label=other["model"])
    alone = words(case["reference"]) - words(other["text"])
    assert alone <= words_that_differ(visit, "Reference"), "what the other lacks is underlined"
    page.keyboard.press("Escape")
    page.wait_for_selector("#case", state="hidden")
    playwright.expect(page).not_to_have_url(re.compile("case="))
    open_case(visit, made.ids[3])
    said = "Invalid verdict of echo: no score line"
    invalid = page.locator("#case .response", has_text=said)
    assert invalid.locator(".text").text_content() == f"I cannot say. {HOSTILE}"
    visit.open("#case=nothing%3Cb%3E")
    visit.says("There is no case nothing<b> in this report.")
    assert not page.locator("#case").is_visible()
    visit.close()


def test_the_keyboard_alone_moves_opens_and_goes_on(made, browser):
    visit = Visit(browser, made.page, viewport=TELEPHONE)
    page = visit.page
    rows = visit.rows()
    last = f"row-{len(made.cases) - 1}"
    page.focus("#rows")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        page.keyboard.press(key)
    assert page.get_attribute("#rows", "aria-activedescendant") == "row-2"
    page.keyboard.press("Enter")
    case_is(visit, rows[2])
    page.keyboard.press("ArrowRight")
    case_is(visit, rows[3])
    page.go_back()
    page.wait_for_selector("#case", state="hidden")
    page.focus("#rows")
    page.keyboard.press("End")
    assert page.locator("#rows tr[aria-selected=true]").get_attribute("id") == last
    assert page.locator(f"#{last}").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator("#search").is_visible(), "filters are folded on a telephone"
    visit.close()


def flag(visit, case_id, comment):
    open_case(visit, case_id)
    visit.page.get_by_role("checkbox", name="Flag").check()
    visit.page.get_by_label("Comment").fill(comment)
    visit.page.keyboard.press("Escape")


def test_flags_are_kept_downloaded_and_read_by_the_page(made, browser, tmp_path):
    visit = Visit(browser, made.page)
    first, second = made.ids[4:6]
    flag(visit, first, "=wrong dose")
    visit.open("#show=flagged")
    assert visit.rows() == [first]
    table = download(visit, "Download CSV", tmp_path / "cases.csv")
    (row,) = csv.DictReader(table.read_text("utf-8-sig").splitlines())
    assert row["case_id"] == first
    assert row["flagged"] == "yes"
    assert row["comment"] == "'=wrong dose"
    score = made.scores(MODELS[0])[first]
    assert float(row[f"{MODELS[0]} score"]) == pytest.approx(score, abs=1e-4)
    file = download(visit, "Download flags", tmp_path / "flags.jsonl")
    (line,) = read(file)
    flagged = {"case_id": first, "flagged": True, "comment": "=wrong dose"}
    assert line == flagged | {"report": line["report"]}
    visit.close()

    visit = Visit(browser, made.page)  # another reader's browser
    flag(visit, second, "a second look")
    visit.page.set_input_files("#read-flags", file)
    visit.says("flags.jsonl: 1 flags were read.")
    visit.page.select_option("#show", "flagged")
    assert set(visit.rows()) == {first, second}
    write_json(file, line | {"report": "0" * 12})
    visit.page.set_input_files("#read-flags", file)
    visit.says("flags.jsonl is not read: the flags are of another report.")
    assert set(visit.rows()) == {first, second}
    visit.close()


def test_of_many_cases_only_those_in_sight_are_drawn_and_on_paper_all(browser, tmp_path):
    cases = read(CASES) * 40
    verdicts = agreeing_verdicts() * 40
    numbers = count()
    cases = [case | {"id": f"{case['id']}-{next(numbers)}"} for case in cases]
    verdicts = [each | {"case_id": case["id"]} for each, case in zip(verdicts, cases)]
    visit = Visit(browser, Made(tmp_path, cases, verdicts).page)
    page = visit.page
    assert page.text_content("#count") == "1,200 of 1,200 cases"
    assert len(visit.rows()) < 60
    page.select_option("#sort", "file")
    page.focus("#rows")
    page.keyboard.press("End")
    assert visit.rows()[-1] == cases[-1]["id"]
    assert page.locator("#row-1199").evaluate("e => e.getBoundingClientRect().bottom") < 721
    page.emulate_media(media="print")
    visit.says("Printed are the first 1000 of these 1200 cases; the CSV has all.")
    assert len(visit.rows()) == 1000
    page.emulate_media(media="screen")
    visit.says("")
    assert len(visit.rows()) < 60
    visit.close()


@each_row("scheme")
def test_axe_finds_nothing_in_an_opened_case_on_a_telephone(made, browser, scheme):
    options = {"viewport": TELEPHONE, "color_scheme": scheme, "bypass_csp": True}
    visit = Visit(browser, made.page, **options)
    open_case(visit, made.ids[0])
    assert violations(visit.page) == []
    visit.close()


OLD, NEW = MODELS[:2]


def rescored(record, scores):
    record |= {"scores": scores, "expected_scores": scores}


@module_fixture
def changed(tmp_path_factory):
    """Return a report with a baseline; the new one's first answers are hostile and marked, empty, and unread."""
    cases = read(CASES)
    verdicts = []
    draw = np.random.default_rng(1)
    for case in cases:
        texts = {response["model"]: response["text"] for response in case["responses"]}
        case["responses"] = [{"model": name, "text": texts[name]} for name in (OLD, NEW)]
        scores = draw.integers(1, 6, 2).tolist()
        differs = {name: [] for name in MODELS}
        verdicts.append(verdict(case, scores, expected_scores=scores, differs=differs))
    cases[0]["responses"][1]["text"] = f"Take ten tablets. {HOSTILE}"
    verdicts[0]["differs"][NEW] = marked("Take ten tablets.")
    cases[1]["responses"][1]["text"] = "\u200b"
    rescored(verdicts[1], [1, 1])  # a tie, which the empty answer loses
    rescored(verdicts[2], [3, None])
    verdicts[3] |= verdict(cases[3], None)  # of both: nothing is new
    verdicts[4]["expected_scores"] = [4.1, 2.1]  # in binary a little less than two apart
    return Made(tmp_path_factory.mktemp("models"), cases, verdicts, baseline=OLD)


@each_row("old, newly")
def test_only_another_number_in_a_case_that_a_verdict_shows_is_new(tmp_path, old, newly):
    answers = {OLD: f"Take {old} a day.", NEW: "Take 40 g a day."}
    question = "How much of it may I take in a day?"
    cases = [case_of(name, question, answers, reference="At most 4 g a day.") for name in "abc"]
    judged = verdict(cases[0], [3, 3], expected_scores=[3, 3])
    result = report_of(tmp_path, [judged], cases=cases, baseline=OLD).result
    assert result["baseline"]["models"][NEW]["newly"]["differs"] == newly


def gaps_of(changed):
    """Return by how much the new model's score is above the old one's in each case that has both, as it is shown."""
    new = changed.scores(NEW)
    old = changed.scores(OLD)
    gaps = {}
    for case_id, score in new.items():
        if None not in (score, old[case_id]):
            gaps[case_id] = round(score - old[case_id], 2)
    return gaps


def test_what_must_be_read_stands_first_and_a_marked_answer_is_never_blue(changed, browser):
    drops = sum(gap <= -2 for gap in gaps_of(changed).values())
    said = f"Read first: in 1 of .*; {NEW} is lower by 2 or more points in {drops} cases"
    assert re.search(said, changed.report.told)
    visit = Visit(browser, changed.page, viewport=TALL)
    page = visit.page
    tops = [page.locator(place).bounding_box()["y"] for place in ("p.alert", "p.verdict")]
    assert tops == sorted(tops)
    differing = "#rows td:has([aria-label='newly differs'])"
    (cell,) = page.eval_on_selector_all(differing, "all => all.map(e => e.className)")
    assert cell in ("s0", "s1")
    playwright.expect(page.locator("#legend")).to_contain_text("score: low")
    assert visit.rows()[0] == changed.ids[0], "a number that newly differs is before every drop"
    page.get_by_role("link", name=re.compile(f"in which {NEW} is worse")).click()
    worse = changed.report.result["baseline"]["models"][NEW]["cases"]
    playwright.expect(page.locator("#count")).to_have_text(f"{len(worse)} of 30 cases")
    assert set(visit.rows()) == {*worse}
    visit.close()


def test_each_change_between_two_models_is_counted_filters_and_sorts(changed, browser):
    ids = changed.ids
    gaps = gaps_of(changed)
    differs, empty, failing, *_ = ids
    won = {case_id for case_id, gap in gaps.items() if gap > 0}
    lost = {case_id for case_id, gap in gaps.items() if gap < 0}
    lost.add(empty)
    expected = {
        "won": won,
        "lost": lost,
        "newly_differs": {differs},
        "newly_empty": {empty},
        "newly_failing": {failing},
    }
    found = changed.report.result["baseline"]["models"][NEW]
    assert found["better"] == len(won)
    assert found["worse"] == len(lost)
    assert found["newly"] == {"differs": 1, "empty": 1, "failing": 1}
    assert (
        "; in 1 answer the text is newly empty; in 1 answer the judge newly gives no score"
        in changed.report.said
    )
    visit = Visit(browser, changed.page, viewport=TALL)
    page = visit.page
    assert page.eval_on_selector_all("#rows thead th", TEXTS)[1:] == [OLD, NEW]
    for name, case_ids in expected.items():
        page.select_option("#show", name)
        assert set(visit.rows()) == case_ids
    page.select_option("#show", "")
    for sort, key in (("models_differ", abs), ("lost", lambda gap: -gap)):
        page.select_option("#sort", sort)
        sizes = [key(gaps[name]) if name in gaps else -9 for name in visit.rows()]
        assert sizes == sorted(sizes, reverse=True)
    open_case(visit, differs)
    old = words(changed.cases[0]["responses"][0]["text"])
    assert {"ten", "tablets", "script"} - old <= words_that_differ(visit, NEW)
    visit.close()
