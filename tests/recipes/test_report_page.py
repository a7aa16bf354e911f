"""The page of `automedeval report`: the answer first, the same numbers as agreement.json, and in a real browser."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles.agreement_study import (
    CASES,
    FAST,
    RATINGS,
    agreeing_verdicts,
    meta_evaluate,
    noisy_verdicts,
    read,
    told,
    write,
)
from programs import error_line, succeeded

from automedeval.annotation.study import read_study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SIZES = {"laptop": {"width": 1280, "height": 800}, "telephone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SimpleNamespace]:
    """Return a report with ratings and one without: the folder, agreement.json, the page and what was printed."""
    found = {}
    for name, more in (("rated", ["--ratings", RATINGS]), ("unrated", [])):
        folder = tmp_path_factory.mktemp(name)
        verdicts = write(folder / "v.jsonl", noisy_verdicts("noisy", 1.5, 1) + agreeing_verdicts("good"))
        done = succeeded(
            meta_evaluate("--verdicts", verdicts, "--cases", CASES, "--output", folder / "out", *FAST, *more)
        )
        result = json.loads((folder / "out" / "agreement.json").read_text("utf-8"))
        page = (folder / "out" / "report.html").read_text("utf-8")
        found[name] = SimpleNamespace(
            folder=folder / "out", result=result, page=page, said=done.stdout, told=told(folder / "out")
        )
    return found


FIRST = {"rated": "Best model", "unrated": "Scores highest"}
QUESTIONS = ["Harm", "Can the judge be believed?", "Audited?", "What it does not see", "Length"]


@pytest.mark.parametrize("name", ["rated", "unrated"])
def test_page_and_summary_answer_first_and_in_order(made: dict[str, SimpleNamespace], name: str) -> None:
    one = made[name]
    asked = re.findall("<dt>(.*?)</dt>", one.page.partition('<dl class="facts">')[2])
    assert asked[:6] == [FIRST[name], *QUESTIONS]
    assert {"How sure", "Cases", "Judge", "Next step"} <= set(asked)
    lines = one.said.splitlines()
    assert len(lines) <= 5
    assert lines[-2:] == [f"report: {one.folder / 'report.html'}", "Not for clinical use."]
    assert lines[0] in one.told
    assert f'<p class="verdict">{lines[0]}</p>' in one.page
    sections = re.findall('<h2 id="(.*?)">', one.page)
    assert sections[:5] == ["cases", "sure", "leaderboard", "differences", "judges"]
    assert "cannot be told apart" not in one.page + one.told
    judge, how = ("good", "it agrees best with people") if name == "rated" else ("noisy", "the first of --verdicts")
    assert f"{judge}, with the rubric automedeval@1 ({how} of 2 judges)" in one.page


def test_the_leaderboard_is_that_of_a_loop_over_the_verdicts(made: dict[str, SimpleNamespace]) -> None:
    one = made["rated"]
    wins: dict[str, list[float]] = {}
    verdicts = {each["case_id"]: each for each in agreeing_verdicts("good")}
    for case in read(CASES):
        scores = verdicts[case["id"]]["scores"]  # the relations of a judge are by its whole scores
        models = [response["model"] for response in case["responses"]]
        for model, score in zip(models, scores):
            for other, against in zip(models, scores):
                if other != model:
                    wins.setdefault(model, []).append((score > against) + (score == against) / 2)
    table = one.page[one.page.index('id="leaderboard"') : one.page.index('id="differences"')]
    rows = re.findall(r'<th scope="row">(.*?)</th><td.*?>(.*?)</td><td data-value="([^"]*)">', table)
    assert {rank for _, rank, _ in rows} == {"1–3"}, "by the noise of 40 cases"
    assert {model: float(rate) for model, _, rate in rows} == pytest.approx(
        {model: sum(own) / len(own) for model, own in wins.items()}
    )
    strengths = one.result["models"]["good"]["strengths"]
    assert [model for model, *_ in rows] == sorted(strengths, key=lambda model: -strengths[model]["value"])
    main = one.result["main_judge"]
    value, low, high = (f"{100 * main['concordance'][part]:.0f}" for part in ("value", "low", "high"))
    assert f'<th scope="row">good</th><td>{value} [{low}, {high}]</td>' in one.page
    assert main["against_the_other_raters"]["one_rater"]["value"] is not None
    assert "that one rater" in one.page
    assert f"best baseline: {main['best_baseline']['name']}" in one.page


def test_without_ratings_it_writes_a_study_to_rate_and_says_the_commands(made: dict[str, SimpleNamespace]) -> None:
    one = made["unrated"]
    assert "Not known. No ratings are given. 30 rated cases are enough" in one.told
    (study,) = one.folder.glob("rate*")
    for text in (one.page, one.told):
        assert f"automedeval annotate --study {study}\n" in text
        assert f"automedeval annotate --study {study} --export {study.with_suffix('')}\n" in text
    read_back = read_study(study)
    assert {item.kind for item in read_back.items} == {"rate"}
    assert len(read_back.items) == 30
    assert not list(made["rated"].folder.glob("rate*"))


def test_other_cases_in_the_same_output_are_rated_by_a_study_of_their_own(tmp_path: Path) -> None:
    verdicts = write(tmp_path / "v.jsonl", agreeing_verdicts())
    few = write(tmp_path / "few.jsonl", read(CASES)[:5])
    others = write(tmp_path / "others.jsonl", read(CASES)[5:12])
    edited, studies = "# edited\n", []
    for cases in (few, others, few):
        succeeded(meta_evaluate("--verdicts", verdicts, "--cases", cases, "--output", tmp_path / "out", *FAST))
        (said,) = [
            line for line in told(tmp_path / "out").splitlines() if "annotate" in line and "--export" not in line
        ]
        study = Path(said.split()[-1])
        assert {item.case_id for item in read_study(study).items} == {case["id"] for case in read(cases)}
        if study not in studies:
            study.write_text(edited + study.read_text(encoding="utf-8"), encoding="utf-8")
        studies.append(study)
    assert studies[0] == studies[2] != studies[1]
    assert all(study.read_text(encoding="utf-8").startswith(edited) for study in studies)
    assert read_study(studies[0]).database != read_study(studies[1]).database


def test_the_difference_of_two_models_is_a_sentence(tmp_path: Path) -> None:
    answers = [{"model": f"bot-{number}", "text": "Rest."} for number in (0, 1)]
    file = write(tmp_path / "c.jsonl", [case | {"responses": answers} for case in read(CASES)])
    scored = {"order": [0, 1], "scores": [4, 3], "expected_scores": [4, 3]}
    verdicts = write(tmp_path / "v.jsonl", [each | scored for each in agreeing_verdicts()])
    options = ("--verdicts", verdicts, "--cases", file, "--output", tmp_path / "out", *FAST)
    assert meta_evaluate(*options).returncode == 0
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "bot-0 wins 100 % of the cases against bot-1, ties counted half: a clear difference.</p>" in page
    assert "Which differences are clear" not in page


def test_an_unknown_main_judge_gets_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "v.jsonl", agreeing_verdicts())
    options = ("--verdicts", file, "--cases", CASES, "--output", tmp_path / "out", "--main_judge", "nobody", *FAST)
    assert error_line(meta_evaluate(*options)) == "error: --main_judge: no judge is called 'nobody'; there are echo"


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:  # noqa: F821
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is led by playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_first_screen_has_the_answer_and_axe_finds_nothing(
    made: dict[str, SimpleNamespace], browser, size: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-core comes with axe_playwright_python")
    for one in made.values():
        context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, bypass_csp=True)
        page, complaints = context.new_page(), []
        page.on("console", lambda message, complaints=complaints: complaints.append(message.text))
        page.goto((one.folder / "report.html").as_uri())
        page.wait_for_selector("#rows tbody tr")
        for part in ("p.verdict", "table.bars", "#rows thead"):
            box = page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] <= SIZES[size]["height"], part
        assert not page.get_by_text("Audited?", exact=True).is_visible(), "it is folded"
        for fold in page.query_selector_all("details"):
            fold.evaluate("each => each.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        page.add_script_tag(path=str(next(Path(axe.__file__).parent.rglob("axe.min.js"))))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(each["id"], each["nodes"][0]["html"][:100]) for each in found["violations"]] == []
        assert complaints == []
        context.close()


def test_tables_are_sorted_without_a_call_outside(made: dict[str, SimpleNamespace], browser) -> None:
    page, calls = browser.new_page(), []
    page.on("request", lambda request: calls.append(request.url))
    page.goto((made["rated"].folder / "report.html").as_uri())
    page.locator("summary:has(#sure)").click()
    models = "#leaderboard ~ .scroll tbody th"
    before = page.eval_on_selector_all(models, "all => all.slice(0, 3).map(e => e.textContent)")
    page.locator("#leaderboard ~ .scroll button", has_text="share of pairs won").first.click()
    page.locator("#leaderboard ~ .scroll button", has_text="share of pairs won").first.click()
    after = page.eval_on_selector_all(models, "all => all.slice(0, 3).map(e => e.textContent)")
    assert after == before[::-1]
    assert len(calls) == 1  # the page itself
    page.close()


def test_without_script_and_on_paper_everything_can_be_read(made: dict[str, SimpleNamespace], browser) -> None:
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.goto((made["rated"].folder / "report.html").as_uri())
    assert not page.locator("#grid").is_visible()
    first = page.locator("details.case").first
    first.locator("summary").first.click()
    assert first.locator(".response").first.is_visible()
    page.emulate_media(media="print")
    assert page.locator("#agreement ~ .scroll, details:has(#agreement) .scroll").first.is_visible()  # folds are open
    context.close()
