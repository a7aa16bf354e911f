"""The grid of cases and models on the page of a report, and what changed from a baseline, in a real browser."""

import csv
import json
import re
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from doubles.agreement_study import (
    CASES,
    FAST,
    MODELS,
    RATINGS,
    agreeing_verdicts,
    meta_evaluate,
    noisy_verdicts,
    read,
    verdict,
    write,
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
from programs import succeeded

pytestmark = needs_chromium
CRITERIA = ("relevancy", "knowledge_correctness", "fluency")
ARABIC = "هل يمكنني أخذ الباراسيتامول مع القهوة؟"


MARK = {
    "factor": 5.0,
    "kind": "tablets",
    "sentence": ["Take ", "ten tablets", "."],
    "passage": ["Take ", "two tablets", "."],
    "source": "reference",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a report whose first cases are hostile, empty, marked, invalid and right-to-left, and what it is made of."""
    folder = tmp_path_factory.mktemp("grid")
    verdicts = {each["case_id"]: each for each in agreeing_verdicts()}
    cases = read(CASES)
    cases[0]["question"] = HOSTILE
    cases[0]["responses"][0]["text"] = f"🙂 {HOSTILE} Take ten tablets."
    cases[1]["responses"][1]["text"] = " "
    cases[2]["question"] = ARABIC
    unread = {"valid": False, "error": "no score line", "scores": None, "expected_scores": None}
    verdicts[cases[3]["id"]] |= unread | {"raw": f"I cannot say. {HOSTILE}"}
    start = cases[0]["responses"][0]["text"].index("ten")
    mark = MARK | {"start": start, "end": start + 11}
    for case in cases:
        verdicts[case["id"]]["differs"] = {each["model"]: [] for each in case["responses"]}
    verdicts[cases[0]["id"]]["differs"][cases[0]["responses"][0]["model"]] = [mark]
    verdicts[cases[0]["id"]]["rationale"] = f"Because. {HOSTILE}"
    verdicts[cases[0]["id"]]["criterion_scores"] = {name: [2, 3, 4] for name in CRITERIA}
    files = {"verdicts": list(verdicts.values()), "cases": cases}
    files = {name: write(folder / f"{name}.jsonl", records) for name, records in files.items()}
    command = [part for name, file in files.items() for part in (f"--{name}", file)]
    command += ["--ratings", RATINGS, "--output", folder / "out", *FAST]
    succeeded(meta_evaluate(*command))
    result = json.loads((folder / "out" / "agreement.json").read_text("utf-8"))
    page = folder / "out" / "report.html"
    return SimpleNamespace(
        folder=folder, command=command, page=page, result=result, cases=cases, verdicts=verdicts
    )


def test_rows_have_each_models_score_length_and_marks(made: SimpleNamespace, browser) -> None:
    visit = Visit(browser, made.page, viewport={"width": 1280, "height": 4000})
    heads = visit.page.eval_on_selector_all("#rows thead th", "all => all.map(e => e.textContent)")
    cells = visit.page.eval_on_selector_all(
        "#rows tbody tr",
        "all => all.map(row => [...row.cells].slice(1).map(cell => [cell.querySelector('b').textContent, "
        "cell.querySelector('small').textContent, ...[...cell.querySelectorAll('.sign')].map(e => e.ariaLabel)]))",
    )
    shown = {
        (case_id, model): cell
        for case_id, row in zip(visit.rows(), cells)
        for model, cell in zip(heads[1:], row)
    }
    marks = {
        0: {0: ["a number differs"]},
        1: {1: ["empty"]},
        3: {place: ["invalid verdict"] for place in range(3)},
    }
    assert len(cells) == len(made.cases)
    for number, case in enumerate(made.cases):
        expected = made.verdicts[case["id"]]["expected_scores"]
        for place, response in enumerate(case["responses"]):
            score = "–" if expected is None else f"{expected[place]:.2f}"
            cell = [score, f"{len(response['text']):,}", *marks.get(number, {}).get(place, [])]
            assert shown[case["id"], response["model"]] == cell
    assert visit.page.evaluate(
        "[...document.querySelectorAll('#rows tbody a')].every(e => e.dir === 'auto')"
    )
    arabic = visit.page.locator("#rows tbody a", has_text=ARABIC)
    assert arabic.evaluate("e => getComputedStyle(e).direction") == "rtl"
    visit.close()


def test_sorting_filters_and_search_stay_in_the_address(made: SimpleNamespace, browser) -> None:
    visit = Visit(browser, made.page, viewport={"width": 1280, "height": 4000})
    ids = [case["id"] for case in made.cases]
    scores = {case_id: made.verdicts[case_id]["expected_scores"] for case_id in ids}
    spread = {case_id: max(each) - min(each) for case_id, each in scores.items() if each}
    gaps = [round(spread.get(case_id, -1), 4) for case_id in visit.rows()]
    assert gaps == sorted(gaps, reverse=True)
    model = made.cases[0]["responses"][0]["model"]
    visit.page.locator("#rows thead button", has_text=model).click()
    places = {
        case["id"]: [response["model"] for response in case["responses"]].index(model)
        for case in made.cases
    }
    score = {case_id: (each or [-1, -1, -1])[places[case_id]] for case_id, each in scores.items()}
    by_model = [score[case_id] for case_id in visit.rows()]
    assert by_model == sorted(by_model, reverse=True)
    visit.page.locator("#rows thead button", has_text=model).click()
    assert [score[case_id] for case_id in visit.rows()] == sorted(by_model)
    for show, case in (("differs", 0), ("empty", 1), ("invalid", 3)):
        visit.page.select_option("#show", show)
        assert visit.rows() == [ids[case]]
    visit.page.select_option("#show", "")
    visit.page.fill("#search", "Rattlesnake")
    playwright.expect(visit.page.locator("#count")).not_to_contain_text("30 of")
    texts = {
        case["id"]: json.dumps([case, made.verdicts[case["id"]]["rationale"]]).lower()
        for case in made.cases
    }
    assert (
        set(visit.rows())
        == {case_id for case_id in ids if "rattlesnake" in texts[case_id]}
        != set()
    )
    address, rows = visit.page.url, visit.rows()
    assert re.search("#sort=-score%3A.*&search=Rattlesnake$", address)
    visit.open("#" + address.partition("#")[2])
    playwright.expect(visit.page.locator("#count")).not_to_contain_text("30 of")
    assert visit.rows() == rows
    assert visit.page.input_value("#search") == "Rattlesnake"
    visit.close()


def test_a_link_opens_a_case_with_its_answers_side_by_side(made: SimpleNamespace, browser) -> None:
    visit, case = Visit(browser, made.page), made.cases[0]
    visit.open(f"#case={quote(case['id'])}")
    case_is(visit, case["id"])
    text = visit.page.text_content("#case")
    assert HOSTILE in text
    assert "Take two tablets." in text
    assert "ten tablets for two tablets (tablets, 5 times)" in text
    assert "echo: knowledge_correctness2" in text
    assert f"Because. {HOSTILE}" in text
    three = ["ten tablets", "ten tablets", "two tablets"]  # in the answer, and both sentences
    assert visit.page.locator("#case mark").all_text_contents() == three
    texts = visit.page.eval_on_selector_all(
        "#case .response",
        "all => all.map(e => [e.querySelector('h3').textContent, e.querySelector('.text').textContent])",
    )
    answers = {response["model"]: response["text"] for response in case["responses"]}
    rationale = {"Rationale of echo": f"Because. {HOSTILE}"}
    assert dict(texts) == answers | {"Reference": case["reference"]} | rationale
    assert visit.page.locator("#case img, #case script").count() == 0
    other = case["responses"][1]
    visit.page.select_option("#case select", label=other["model"])
    box = visit.page.locator(
        "#case .response", has=visit.page.get_by_role("heading", name="Reference", exact=True)
    )
    words = " ".join(box.locator(".differs").all_text_contents()).lower().split()
    same = set(re.findall(r"\w+", other["text"].lower()))
    alone = {word for word in re.findall(r"[a-z]+", case["reference"].lower()) if word not in same}
    assert alone <= {*re.findall("[a-z]+", " ".join(words))}, "what the other lacks is underlined"
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_selector("#case", state="hidden")
    playwright.expect(visit.page).not_to_have_url(re.compile("case="))
    visit.open(f"#case={quote(made.cases[3]['id'])}")
    case_is(visit, made.cases[3]["id"])
    invalid = visit.page.locator(
        "#case .response", has_text="Invalid verdict of echo: no score line"
    )
    assert invalid.locator(".text").text_content() == f"I cannot say. {HOSTILE}"
    visit.open("#case=nothing%3Cb%3E")
    visit.says("There is no case nothing<b> in this report.")
    assert not visit.page.locator("#case").is_visible()
    visit.close()


def test_the_keyboard_alone_moves_opens_and_goes_on(made: SimpleNamespace, browser) -> None:
    visit = Visit(browser, made.page, viewport={"width": 390, "height": 844})
    rows = visit.rows()
    visit.page.focus("#rows")
    for _ in range(3):
        visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("ArrowUp")
    assert visit.page.get_attribute("#rows", "aria-activedescendant") == "row-2"
    visit.page.keyboard.press("Enter")
    case_is(visit, rows[2])
    visit.page.keyboard.press("ArrowRight")
    case_is(visit, rows[3])
    visit.page.go_back()
    visit.page.wait_for_selector("#case", state="hidden")
    visit.page.focus("#rows")
    visit.page.keyboard.press("End")
    assert (
        visit.page.locator("#rows tr[aria-selected=true]").get_attribute("id")
        == f"row-{len(made.cases) - 1}"
    )
    assert visit.page.locator(f"#row-{len(made.cases) - 1}").is_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    for width, hidden in ((1280, True), (250, False)):
        visit.page.set_viewport_size({"width": width, "height": 844})
        playwright.expect(visit.page.locator("#wide")).to_be_visible(visible=not hidden)
    visit.close()


def flag(visit: Visit, case_id: str, comment: str) -> None:
    visit.page.goto(f"{visit.file.as_uri()}#case={quote(case_id)}")
    case_is(visit, case_id)
    visit.page.get_by_role("checkbox", name="Flag").check()
    visit.page.get_by_label("Comment").fill(comment)
    visit.page.keyboard.press("Escape")


def test_two_tabs_keep_both_flags(made: SimpleNamespace, browser) -> None:
    visit, (first, second) = Visit(browser, made.page), [case["id"] for case in made.cases[6:8]]
    other = visit.context.new_page()
    other.goto(made.page.as_uri())
    other.wait_for_selector("#rows tbody tr")
    flag(visit, first, "one")
    other.evaluate("id => { location.hash = new URLSearchParams({ case: id }); }", second)
    other.get_by_role("checkbox", name="Flag").check()
    visit.open("#show=flagged")
    assert set(visit.rows()) == {first, second}
    visit.close()


def test_flags_are_kept_downloaded_and_read_by_the_page(made, browser, tmp_path) -> None:
    visit, (first, second) = Visit(browser, made.page), [case["id"] for case in made.cases[4:6]]
    flag(visit, first, "=wrong dose")
    visit.open("#show=flagged")
    assert visit.rows() == [first]
    table = download(visit, "Download CSV", tmp_path / "cases.csv")
    (row,) = csv.DictReader(table.read_text("utf-8-sig").splitlines())
    model = made.cases[4]["responses"][0]["model"]
    assert (row["case_id"], row["flagged"], row["comment"]) == (first, "yes", "'=wrong dose")
    assert float(row[f"{model} score"]) == pytest.approx(
        made.verdicts[first]["expected_scores"][0], abs=1e-4
    )
    file = download(visit, "Download flags", tmp_path / "flags.jsonl")
    (line,) = read(file)
    assert {**line, "report": ""} == {
        "report": "",
        "case_id": first,
        "flagged": True,
        "comment": "=wrong dose",
    }
    visit.close()

    visit = Visit(browser, made.page)  # another reader's browser
    flag(visit, second, "a second look")
    visit.page.set_input_files("#read-flags", file)
    visit.says("flags.jsonl: 1 flags were read.")
    visit.page.select_option("#show", "flagged")
    assert set(visit.rows()) == {first, second}
    for name, text, reason in (
        ("other.jsonl", json.dumps(line | {"report": "0" * 12}), "the flags are of another report"),
        ("text.jsonl", "no flags", "it is no file of flags"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        visit.page.set_input_files("#read-flags", tmp_path / name)
        visit.says(f"{name} is not read: {reason}.")
        assert set(visit.rows()) == {first, second}
    visit.close()


def test_of_many_cases_only_those_in_sight_are_drawn_and_on_paper_all(
    made, browser, tmp_path
) -> None:
    cases = [case | {"id": f"{case['id']}-{copy}"} for copy in range(40) for case in read(CASES)]
    verdicts = [
        each | {"case_id": f"{each['case_id']}-{copy}"}
        for copy in range(40)
        for each in agreeing_verdicts()
    ]
    files = [write(tmp_path / "v.jsonl", verdicts), write(tmp_path / "c.jsonl", cases)]
    succeeded(
        meta_evaluate(
            "--verdicts", files[0], "--cases", files[1], "--output", tmp_path / "out", *FAST
        )
    )
    visit = Visit(browser, tmp_path / "out" / "report.html")
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


def test_a_case_opens_on_the_answers_and_says_which_it_is_of_how_many(
    made: SimpleNamespace, browser
) -> None:
    visit = Visit(browser, made.page, viewport={"width": 390, "height": 844})
    assert not visit.page.locator("#search").is_visible(), "filters are folded on a telephone"
    case, count = made.cases[4], len(made.cases)
    visit.open(f"#case={quote(case['id'])}&search={case['id']}")
    case_is(visit, case["id"])
    assert (
        visit.page.locator("#case header").text_content().count(f"1 of 1 shown, {count} in all")
        == 1
    )
    *answers, reference = (
        visit.page.locator("#case .response", has_text=text[:40]).first.bounding_box()["y"]
        for text in (*(response["text"] for response in case["responses"]), case["reference"])
    )
    assert min(answers) < 0.5 * 844
    assert reference > max(answers), "the reference follows"
    assert visit.page.get_by_role("checkbox", name="Flag").bounding_box()["y"] > reference
    visit.open(f"#case={quote(case['id'])}")
    playwright.expect(visit.page.locator("#case header")).to_contain_text(
        re.compile(rf" of {count}Previous")
    )
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_an_opened_case_on_a_telephone(
    made: SimpleNamespace, browser, scheme: str
) -> None:
    visit = Visit(
        browser,
        made.page,
        viewport={"width": 390, "height": 844},
        color_scheme=scheme,
        bypass_csp=True,
    )
    visit.open(f"#case={quote(made.cases[0]['id'])}")
    case_is(visit, made.cases[0]["id"])
    assert violations(visit.page) == []
    visit.close()


OLD, NEW = MODELS[0], MODELS[1]
TALL = {"width": 1280, "height": 4000}


def place_of(case: dict, model: str) -> int:
    return [response["model"] for response in case["responses"]].index(model)


def of_two(case: dict, line: dict) -> tuple[dict, dict]:
    """Return a case and the verdict on it with the answers of the old and of the new model alone."""
    places = [place_of(case, name) for name in (OLD, NEW)]
    scores = {
        name: [line[name][place] for place in places] for name in ("scores", "expected_scores")
    }
    return case | {"responses": [case["responses"][place] for place in places]}, line | scores | {
        "order": [0, 1]
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a report with a baseline; the new one's first answers are hostile and marked, empty, and unread."""
    folder = tmp_path_factory.mktemp("models")
    cases, verdicts = map(
        list, zip(*map(of_two, read(CASES), noisy_verdicts("good", 0.3, 1)), strict=True)
    )
    new = [place_of(case, NEW) for case in cases]
    cases[0]["responses"][new[0]]["text"] = f"Take ten tablets. {HOSTILE}"
    mark = MARK | {"start": 5, "end": 16}
    for verdict_on_case in verdicts:
        verdict_on_case["differs"] = {name: [] for name in MODELS}
    verdicts[0]["differs"][NEW] = [mark]
    cases[1]["responses"][new[1]]["text"] = "\u200b"
    for name in ("scores", "expected_scores"):
        verdicts[1][name] = [1] * 2  # a tie, which the empty answer loses
        verdicts[2][name][new[2]] = None
    verdicts[3] = verdict(cases[3], None, "good")  # of both: nothing is new
    report = report_of(folder, verdicts, "--baseline", OLD, cases=cases)
    made = SimpleNamespace(cases=cases, page=report.folder / "report.html", gaps={})
    made.result, made.said = report.result, report.said
    for case, line in zip(cases, verdicts):
        scores = line["expected_scores"] or [None] * 2
        old, new = (scores[place_of(case, name)] for name in (OLD, NEW))
        made.gaps[case["id"]] = None if old is None or new is None else new - old
    return made


def test_each_change_between_two_models_is_counted_and_filters(
    models: SimpleNamespace, browser
) -> None:
    ids = [case["id"] for case in models.cases]
    gaps = {case_id: gap for case_id, gap in models.gaps.items() if gap is not None}
    expected = {
        "won": [case_id for case_id, gap in gaps.items() if gap > 1e-9],
        "lost": [case_id for case_id, gap in gaps.items() if gap < -1e-9 or case_id == ids[1]],
    }
    expected |= {"newly_differs": ids[:1], "newly_empty": ids[1:2], "newly_failing": ids[2:3]}
    found = models.result["baseline"]["models"][NEW]
    counts = {name: len(each) for name, each in expected.items()}
    newly = {name.removeprefix("newly_"): counts[name] for name in counts if "_" in name}
    assert (found["better"], found["worse"], found["newly"]) == (
        counts["won"],
        counts["lost"],
        newly,
    )
    assert "; newly 1 differs, 1 empty, 1 failing." in models.said
    visit = Visit(browser, models.page, viewport=TALL)
    assert visit.page.eval_on_selector_all("#rows thead th", "all => all.map(e => e.textContent)")[
        1:
    ] == [OLD, NEW]
    for name, case_ids in expected.items():
        visit.page.select_option("#show", name)
        assert sorted(visit.rows()) == sorted(case_ids)
    assert re.search("#show=newly_failing", visit.page.url)
    assert visit.page.locator("#rows tbody td").last.locator(".sign").all_text_contents() == ["!⁺"]
    visit.close()


def test_the_changes_sort_by_size_and_by_side(models: SimpleNamespace, browser) -> None:
    visit = Visit(browser, models.page, viewport=TALL)
    for sort, key in (("models_differ", abs), ("won", float), ("lost", lambda gap: -gap)):
        visit.page.select_option("#sort", sort)
        gaps = [models.gaps[case_id] for case_id in visit.rows()]
        sizes = [-9 if gap is None else round(key(gap), 6) for gap in gaps]
        assert sizes == sorted(sizes, reverse=True)
    visit.close()


def test_a_case_opens_with_the_new_answer_beside_the_old(models: SimpleNamespace, browser) -> None:
    visit, case = Visit(browser, models.page), models.cases[0]
    visit.open(f"#case={quote(case['id'])}")
    case_is(visit, case["id"])
    heads = visit.page.locator("#case .responses").first.locator("h3").all_text_contents()
    assert heads == ["Reference", OLD, NEW]
    assert visit.page.locator("#case select option:checked").text_content() == OLD
    box = visit.page.locator(
        "#case .response", has=visit.page.get_by_role("heading", name=NEW, exact=True)
    )
    different = set(
        re.findall(r"\w+", " ".join(box.locator(".differs").all_text_contents()).lower())
    )
    old = set(re.findall(r"\w+", case["responses"][place_of(case, OLD)]["text"].lower()))
    assert {"ten", "tablets", "script"} - old <= different
    three = ["ten tablets", "ten tablets", "two tablets"]  # in the answer, and both sentences
    assert visit.page.locator("#case mark").all_text_contents() == three
    assert visit.page.locator("#case img, #case script").count() == 0
    visit.close()
