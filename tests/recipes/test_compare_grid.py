"""What changed between two versions of a model: the grid of a comparison's page, in a real browser."""

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from doubles.agreement_study import CASES, MODELS, noisy_verdicts, read, verdict, write
from doubles.grid_reader import HOSTILE, Visit, case_is, needs_chromium, playwright, violations
from programs import run_recipe, succeeded

pytestmark = needs_chromium
OLD, NEW = MODELS[0], MODELS[1]
TALL = {"width": 1280, "height": 4000}
compare = partial(run_recipe, "compare")


def place_of(case: dict, model: str) -> int:
    return [response["model"] for response in case["responses"]].index(model)


def of_two(case: dict, line: dict) -> tuple[dict, dict]:
    """Return a case and the verdict on it with the answers of the old and of the new model alone."""
    places = [place_of(case, name) for name in (OLD, NEW)]
    scores = {name: [line[name][place] for place in places] for name in ("scores", "expected_scores")}
    return case | {"responses": [case["responses"][place] for place in places]}, line | scores | {"order": [0, 1]}


def compared(folder: Path, cases: list[dict], verdicts: list[Path]) -> SimpleNamespace:
    """Return the page, the result and the output of the command, without ratings."""
    files = ["--cases", write(folder / "cases.jsonl", cases), "--verdicts", *verdicts]
    done = succeeded(compare(*files, "--output", folder / "out"))
    result = json.loads((folder / "out" / "comparison.json").read_text("utf-8"))
    return SimpleNamespace(cases=cases, page=folder / "out" / "comparison.html", result=result, said=done.stdout)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return a comparison of two models; the new one's first answers are hostile and contradicted, empty, and unread."""
    folder = tmp_path_factory.mktemp("models")
    cases, verdicts = map(list, zip(*map(of_two, read(CASES), noisy_verdicts("good", 0.3, 1)), strict=True))
    new = [place_of(case, NEW) for case in cases]
    cases[0]["responses"][new[0]]["text"] = f"Take ten tablets. {HOSTILE}"
    wrong = {"text": "Take ten tablets.", "start": 0, "end": 17, "label": "contradicted"}
    wrong |= {"passage": "Take two tablets.", "source": "reference", "rule": "dose"}
    verdicts[0]["checked"] = {name: [wrong] * (name == NEW) for name in MODELS}
    cases[1]["responses"][new[1]]["text"] = "\u200b"
    for name in ("scores", "expected_scores"):
        verdicts[1][name] = [1] * 2  # a tie, which the empty answer loses
        verdicts[2][name][new[2]] = None
    verdicts[3] = verdict(cases[3], None, "good")  # of both: nothing is new
    made = compared(folder, cases, [write(folder / "v.jsonl", verdicts)])
    made.gaps = {}
    for case, line in zip(cases, verdicts):
        scores = line["expected_scores"] or [None] * 2
        old, new = (scores[place_of(case, name)] for name in (OLD, NEW))
        made.gaps[case["id"]] = None if old is None or new is None else new - old
    return made


def test_each_change_between_two_models_is_counted_and_filters(models: SimpleNamespace, browser) -> None:
    ids = [case["id"] for case in models.cases]
    gaps = {case_id: gap for case_id, gap in models.gaps.items() if gap is not None}
    expected = {
        "won": [case_id for case_id, gap in gaps.items() if gap > 1e-9],
        "lost": [case_id for case_id, gap in gaps.items() if gap < -1e-9 or case_id == ids[1]],
    }
    expected |= {"newly_contradicted": ids[:1], "newly_empty": ids[1:2], "newly_failing": ids[2:3]}
    versions = {"old": OLD, "new": NEW, "judge": "good", "compared": 28}
    assert models.result["changes"] == [versions | {name: len(each) for name, each in expected.items()}]
    words = {"won": "better", "lost": "worse"}
    counts = ", ".join(f"{len(each)} {words.get(name, name.replace('_', ' '))}" for name, each in expected.items())
    assert f"{NEW} against {OLD}, by good: of 28 cases {counts}." in models.said
    visit = Visit(browser, models.page, viewport=TALL)
    assert visit.page.eval_on_selector_all("#rows thead th", "all => all.map(e => e.textContent)")[1:] == [OLD, NEW]
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
    box = visit.page.locator("#case .response", has=visit.page.get_by_role("heading", name=NEW, exact=True))
    different = set(re.findall(r"\w+", " ".join(box.locator(".differs").all_text_contents()).lower()))
    old = set(re.findall(r"\w+", case["responses"][place_of(case, OLD)]["text"].lower()))
    assert {"ten", "tablets", "script"} - old <= different
    assert visit.page.locator("#case mark").all_text_contents() == ["Take ten tablets."]
    assert visit.page.locator("#case img, #case script").count() == 0
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(models: SimpleNamespace, browser, scheme: str) -> None:
    for width in (390, 1280):
        window = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        visit = Visit(browser, models.page, bypass_csp=True, **window)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(visit.page) == []
        visit.page.locator("#rows tbody a").first.click()
        playwright.expect(visit.page.locator("#case[open]")).to_be_visible()
        assert violations(visit.page) == []
        visit.close()
