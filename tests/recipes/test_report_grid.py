"""The grid of cases and models on the page of a report, and what changed from a baseline, in a real browser."""

import csv
import json
import re
from itertools import count
from urllib.parse import quote

import numpy as np
import pytest
from doubles.agreement_study import (
    CASES,
    MODELS,
    RATINGS,
    agreeing_verdicts,
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

pytestmark = needs_chromium
CRITERIA = ("relevancy", "knowledge_correctness", "fluency")
ARABIC = "هل يمكنني أخذ الباراسيتامول مع القهوة؟"
TALL, TELEPHONE = {"width": 1280, "height": 4000}, {"width": 390, "height": 844}
TEXTS = "all => all.map(e => e.textContent)"
MARKED = ["ten tablets", "ten tablets", "two tablets"]  # in the answer, and both sentences


class Made:
    """A report of which the grid is read, with its cases and the verdict on each."""

    def __init__(self, folder, cases, verdicts, **more):
        self.cases, self.ids = cases, [case["id"] for case in cases]
        self.verdicts = dict(zip(self.ids, verdicts))
        self.report = report_of(folder, verdicts, cases=cases, **more)
        self.page = self.report.folder / "report.html"

    def scores(self, model: str) -> dict[str, float | None]:
        """Return the score of a model's answer to each case, None where there is none."""
        found = {}
        for case, each in zip(self.cases, self.verdicts.values()):
            place = [response["model"] for response in case["responses"]].index(model)
            found[case["id"]] = each["expected_scores"] and each["expected_scores"][place]
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a report whose first cases are hostile, empty, marked, invalid and right-to-left, and what it is made of."""
    cases, verdicts = read(CASES), agreeing_verdicts()
    for case, each in zip(cases, verdicts):
        each["differs"] = {response["model"]: [] for response in case["responses"]}
    answer = cases[0]["responses"][0]
    answer["text"] = f"🙂 {HOSTILE} Take ten tablets."
    cases[0]["question"] = HOSTILE
    verdicts[0]["differs"][answer["model"]] = marked(answer["text"])
    verdicts[0]["rationale"] = f"Because. {HOSTILE}"
    verdicts[0]["criterion_scores"] = {name: [2, 3, 4] for name in CRITERIA}
    cases[1]["responses"][1]["text"] = " "
    cases[2]["question"] = ARABIC
    unread = verdict(cases[3], None, raw=f"I cannot say. {HOSTILE}")
    verdicts[3] |= unread
    return Made(tmp_path_factory.mktemp("grid"), cases, verdicts, ratings=RATINGS)


def test_rows_have_each_models_score_length_and_marks(made, browser):
    visit = Visit(browser, made.page, viewport=TALL)
    _, *models = visit.page.eval_on_selector_all("#rows thead th", TEXTS)
    rows = visit.page.eval_on_selector_all(
        "#rows tbody tr",
        "all => all.map(row => [...row.cells].slice(1).map(cell => [cell.querySelector('b').textContent, "
        "cell.querySelector('small').textContent, ...[...cell.querySelectorAll('.sign')].map(e => e.ariaLabel)]))",
    )
    shown = {case_id: dict(zip(models, row)) for case_id, row in zip(visit.rows(), rows)}
    marks = {(0, 0): ["a number differs"], (1, 1): ["empty"]}
    marks |= {(3, place): ["invalid verdict"] for place in range(3)}
    assert shown.keys() == {*made.ids}
    people = [means for _, means in rated_cases()]
    for number, case in enumerate(made.cases):
        for place, response in enumerate(case["responses"]):
            value = made.scores(response["model"])[case["id"]]
            score = "–" if value is None else f"{value:.2f}"
            below = f"people {people[number][place]:.2f} · {len(response['text']):,}"
            cell = [score, below, *marks.get((number, place), [])]
            assert shown[case["id"]][response["model"]] == cell
    arabic = visit.page.locator("#rows tbody a", has_text=ARABIC)
    assert arabic.evaluate("e => getComputedStyle(e).direction") == "rtl"
    visit.close()


def test_sorting_filters_and_search_stay_in_the_address(made, browser):
    visit = Visit(browser, made.page, viewport=TALL)
    every = [each["expected_scores"] for each in made.verdicts.values()]
    spreads = [round(max(each) - min(each), 4) if each else -1 for each in every]
    spread = dict(zip(made.ids, spreads))
    assert [spread[case_id] for case_id in visit.rows()] == sorted(spreads, reverse=True)
    model = MODELS[0]
    score = {case_id: each or -1 for case_id, each in made.scores(model).items()}
    for reverse in (True, False):
        visit.page.locator("#rows thead button", has_text=model).click()
        by_model = [score[case_id] for case_id in visit.rows()]
        assert by_model == sorted(score.values(), reverse=reverse)
    for show, case in (("differs", 0), ("empty", 1), ("invalid", 3)):
        visit.page.select_option("#show", show)
        assert visit.rows() == [made.ids[case]]
    visit.page.select_option("#show", "")
    visit.page.fill("#search", "Rattlesnake")
    playwright.expect(visit.page.locator("#count")).not_to_contain_text("30 of")
    with_word = {case["id"] for case in made.cases if "rattlesnake" in json.dumps(case).lower()}
    assert set(visit.rows()) == with_word != set()
    address, rows = visit.page.url, visit.rows()
    assert re.search("#sort=-score%3A.*&search=Rattlesnake$", address)
    visit.open("#" + address.partition("#")[2])
    playwright.expect(visit.page.locator("#count")).not_to_contain_text("30 of")
    assert visit.rows() == rows
    assert visit.page.input_value("#search") == "Rattlesnake"
    visit.close()


def open_case(visit: Visit, case_id: str, more: str = "") -> None:
    visit.open(f"#case={quote(case_id)}{more}")
    case_is(visit, case_id)


def words_that_differ(visit: Visit, name: str) -> set[str]:
    """Return the words that are underlined in the answer or text of this name."""
    heading = visit.page.get_by_role("heading", name=name, exact=True)
    box = visit.page.locator("#case .response", has=heading)
    return words(" ".join(box.locator(".differs").all_text_contents()))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def test_a_link_opens_a_case_with_its_answers_side_by_side(made, browser):
    visit, case = Visit(browser, made.page), made.cases[0]
    open_case(visit, case["id"])
    text = visit.page.text_content("#case")
    differs = "ten tablets for two tablets (tablets, 5 times)"
    for shown in (HOSTILE, "Take two tablets.", differs, "echo: knowledge_correctness2"):
        assert shown in text
    assert visit.page.locator("#case mark").all_text_contents() == MARKED
    for shown in (*case["responses"], {"text": case["reference"]}, {"text": f"Because. {HOSTILE}"}):
        assert shown["text"] in text
    assert visit.page.locator("#case img, #case script").count() == 0
    other = case["responses"][1]
    visit.page.select_option("#case select", label=other["model"])
    alone = words(case["reference"]) - words(other["text"])
    assert alone <= words_that_differ(visit, "Reference"), "what the other lacks is underlined"
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_selector("#case", state="hidden")
    playwright.expect(visit.page).not_to_have_url(re.compile("case="))
    open_case(visit, made.ids[3])
    said = "Invalid verdict of echo: no score line"
    invalid = visit.page.locator("#case .response", has_text=said)
    assert invalid.locator(".text").text_content() == f"I cannot say. {HOSTILE}"
    visit.open("#case=nothing%3Cb%3E")
    visit.says("There is no case nothing<b> in this report.")
    assert not visit.page.locator("#case").is_visible()
    visit.close()


def test_the_keyboard_alone_moves_opens_and_goes_on(made, browser):
    visit = Visit(browser, made.page, viewport=TELEPHONE)
    rows, last = visit.rows(), f"row-{len(made.cases) - 1}"
    visit.page.focus("#rows")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp"):
        visit.page.keyboard.press(key)
    assert visit.page.get_attribute("#rows", "aria-activedescendant") == "row-2"
    visit.page.keyboard.press("Enter")
    case_is(visit, rows[2])
    visit.page.keyboard.press("ArrowRight")
    case_is(visit, rows[3])
    visit.page.go_back()
    visit.page.wait_for_selector("#case", state="hidden")
    visit.page.focus("#rows")
    visit.page.keyboard.press("End")
    assert visit.page.locator("#rows tr[aria-selected=true]").get_attribute("id") == last
    assert visit.page.locator(f"#{last}").is_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not visit.page.locator("#search").is_visible(), "filters are folded on a telephone"
    visit.close()


def flag(visit: Visit, case_id: str, comment: str) -> None:
    open_case(visit, case_id)
    visit.page.get_by_role("checkbox", name="Flag").check()
    visit.page.get_by_label("Comment").fill(comment)
    visit.page.keyboard.press("Escape")


def test_flags_are_kept_downloaded_and_read_by_the_page(made, browser, tmp_path):
    visit, (first, second) = Visit(browser, made.page), made.ids[4:6]
    flag(visit, first, "=wrong dose")
    visit.open("#show=flagged")
    assert visit.rows() == [first]
    table = download(visit, "Download CSV", tmp_path / "cases.csv")
    (row,) = csv.DictReader(table.read_text("utf-8-sig").splitlines())
    assert (row["case_id"], row["flagged"], row["comment"]) == (first, "yes", "'=wrong dose")
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
    file.write_text(json.dumps(line | {"report": "0" * 12}), encoding="utf-8")
    visit.page.set_input_files("#read-flags", file)
    visit.says("flags.jsonl is not read: the flags are of another report.")
    assert set(visit.rows()) == {first, second}
    visit.close()


def test_of_many_cases_only_those_in_sight_are_drawn_and_on_paper_all(browser, tmp_path):
    cases, verdicts, numbers = read(CASES) * 40, agreeing_verdicts() * 40, count()
    cases = [case | {"id": f"{case['id']}-{next(numbers)}"} for case in cases]
    verdicts = [each | {"case_id": case["id"]} for each, case in zip(verdicts, cases)]
    visit = Visit(browser, Made(tmp_path, cases, verdicts).page)
    assert visit.page.text_content("#count") == "1,200 of 1,200 cases"
    assert len(visit.rows()) < 60
    visit.page.select_option("#sort", "file")
    visit.page.focus("#rows")
    visit.page.keyboard.press("End")
    assert visit.rows()[-1] == cases[-1]["id"]
    assert visit.page.locator("#row-1199").evaluate("e => e.getBoundingClientRect().bottom") < 721
    visit.page.emulate_media(media="print")
    visit.says("Printed are the first 1000 of these 1200 cases; the CSV has all.")
    assert len(visit.rows()) == 1000
    visit.page.emulate_media(media="screen")
    visit.says("")
    assert len(visit.rows()) < 60
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_an_opened_case_on_a_telephone(made, browser, scheme):
    options = {"viewport": TELEPHONE, "color_scheme": scheme, "bypass_csp": True}
    visit = Visit(browser, made.page, **options)
    open_case(visit, made.ids[0])
    assert violations(visit.page) == []
    visit.close()


OLD, NEW = MODELS[:2]


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Return a report with a baseline; the new one's first answers are hostile and marked, empty, and unread."""
    cases, verdicts, draw = read(CASES), [], np.random.default_rng(1)
    for case in cases:
        texts = {response["model"]: response["text"] for response in case["responses"]}
        case["responses"] = [{"model": name, "text": texts[name]} for name in (OLD, NEW)]
        scores = draw.integers(1, 6, 2).tolist()
        differs = {name: [] for name in MODELS}
        verdicts.append(verdict(case, scores, expected_scores=scores, differs=differs))
    cases[0]["responses"][1]["text"] = f"Take ten tablets. {HOSTILE}"
    verdicts[0]["differs"][NEW] = marked("Take ten tablets.")
    cases[1]["responses"][1]["text"] = "\u200b"
    verdicts[1] |= {
        "scores": [1, 1],
        "expected_scores": [1, 1],
    }  # a tie, which the empty answer loses
    verdicts[2] |= {"scores": [3, None], "expected_scores": [3, None]}
    verdicts[3] |= verdict(cases[3], None)  # of both: nothing is new
    verdicts[4]["expected_scores"] = [4.1, 2.1]  # in binary a little less than two apart
    return Made(tmp_path_factory.mktemp("models"), cases, verdicts, baseline=OLD)


def gaps_of(changed: Made) -> dict[str, float]:
    """Return by how much the new model's score is above the old one's in each case that has both, as it is shown."""
    new, old = changed.scores(NEW), changed.scores(OLD)
    both = (name for name in new if None not in (new[name], old[name]))
    return {name: round(new[name] - old[name], 2) for name in both}


def test_what_must_be_read_stands_first_and_a_marked_answer_is_never_blue(changed, browser):
    drops = sum(gap <= -2 for gap in gaps_of(changed).values())
    said = f"Read first: in 1 of .*; {NEW} is lower by 2 or more points in {drops} cases"
    assert re.search(said, changed.report.told)
    visit = Visit(browser, changed.page, viewport=TALL)
    tops = [visit.page.locator(place).bounding_box()["y"] for place in ("p.alert", "p.verdict")]
    assert tops == sorted(tops)
    differing = "#rows td:has([aria-label='newly differs'])"
    (cell,) = visit.page.eval_on_selector_all(differing, "all => all.map(e => e.className)")
    assert cell in ("s0", "s1")
    playwright.expect(visit.page.locator("#legend")).to_contain_text("score: low")
    assert visit.page.input_value("#sort") == "lost"
    visit.page.get_by_role("link", name=re.compile(f"in which {NEW} is worse")).click()
    worse = changed.report.result["baseline"]["models"][NEW]["cases"]
    playwright.expect(visit.page.locator("#count")).to_have_text(f"{len(worse)} of 30 cases")
    assert set(visit.rows()) == {*worse}
    visit.close()


def test_each_change_between_two_models_is_counted_filters_and_sorts(changed, browser):
    ids = changed.ids
    gaps = gaps_of(changed)
    expected = {
        "won": {case_id for case_id, gap in gaps.items() if gap > 0},
        "lost": {case_id for case_id, gap in gaps.items() if gap < 0} | {ids[1]},
        "newly_differs": {ids[0]},
        "newly_empty": {ids[1]},
        "newly_failing": {ids[2]},
    }
    found = changed.report.result["baseline"]["models"][NEW]
    counts = (len(expected["won"]), len(expected["lost"]))
    assert (found["better"], found["worse"]) == counts
    assert found["newly"] == {"differs": 1, "empty": 1, "failing": 1}
    assert "; newly 1 differs, 1 empty, 1 failing." in changed.report.said
    visit = Visit(browser, changed.page, viewport=TALL)
    assert visit.page.eval_on_selector_all("#rows thead th", TEXTS)[1:] == [OLD, NEW]
    for name, case_ids in expected.items():
        visit.page.select_option("#show", name)
        assert set(visit.rows()) == case_ids
    visit.page.select_option("#show", "")
    for sort, key in (("models_differ", abs), ("lost", lambda gap: -gap)):
        visit.page.select_option("#sort", sort)
        sizes = [key(gaps[name]) if name in gaps else -9 for name in visit.rows()]
        assert sizes == sorted(sizes, reverse=True)
    open_case(visit, ids[0])
    old = words(changed.cases[0]["responses"][0]["text"])
    assert {"ten", "tablets", "script"} - old <= words_that_differ(visit, NEW)
    visit.close()
