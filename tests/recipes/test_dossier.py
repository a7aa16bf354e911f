"""`dossier`, from its entry points: figures beside the files that they name, gaps, who overruled whom, and a changed pack."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from doubles.agreement_study import CASES, FAST, RATINGS, agreeing_verdicts, meta_evaluate, noisy_verdicts, read, write
from programs import ROOT, error_line, needs_encoder, run_command, run_recipe
from project.test_docs import commands

LISTS = {"TRIPOD-LLM 2025": 49, "CHART 2025": 39}
NUMBERS = {  # as Table 2 of TRIPOD-LLM and the full list of CHART have them
    "TRIPOD-LLM 2025": "1 2 3ab 4 5abcde 6abcde 7abcde 8abc 9ab 10 11 12 13 14abcdef 15 16abcd 17 18 19abcdefg",
    "CHART 2025": "1ab 2ab 3ab 4abc 5a 5ai 5aii 5aiii 5b 6abcd 7ab 7bi 7bii 7biii 8 9a 9ai 10abc 11abc 12abc 12ci 12cii 12de",
}


def dossier(report: Path, pack: Path) -> SimpleNamespace:
    """Make a pack; return its folder, the Markdown, and what was printed."""
    done = run_command("dossier", "--report", report, "--output", pack)
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(pack=pack, page=(pack / "dossier.md").read_text("utf-8"), said=done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Return the dossier of a report with ratings, a jury, and a record of the judge's run; with the report's folder."""
    folder = tmp_path_factory.mktemp("dossier")
    more = {"settings": "0123456789ab", "usage": {"prompt_tokens": 100, "completion_tokens": 7}}
    verdicts = agreeing_verdicts("good", **more) + noisy_verdicts("noisy", 1.5, 1)
    verdicts[2] |= {"valid": False, "scores": None, "expected_scores": None, "error": "no score line"}
    write(folder / "verdicts" / "verdicts.jsonl", verdicts)
    arguments = {"judge": "openai:good", "seed": 5, "orders": "latin", "runs": 1, "temperature": 0.25}
    arguments |= {"max_new_tokens": 300, "score_decoding": "free", "price_in": 2.0, "price_out": 8.0}
    run = {"arguments": arguments, "versions": {"automedeval": "0.1.7", "torch": "9"}, "commit": "abc", "revisions": {}}
    run["timings"] = [{"verdicts": 30, "seconds": 12.5}]
    (folder / "verdicts" / "run-0123456789ab.json").write_text(json.dumps(run), encoding="utf-8")
    (folder / "rated").mkdir()
    shutil.copyfile(RATINGS, folder / "rated" / "ratings.jsonl")
    decisions = [("c1", "keep"), ("c2", "revise"), ("c3", "revise"), ("c4", None)]
    jury = [
        {"case_id": case, "judge": "good", "annotator": "chief-\ud800é", "decision": each} for case, each in decisions
    ]
    write(folder / "rated" / "jury.jsonl", jury)
    audit = ("--verdicts", folder / "verdicts", "--judge_name", "good", "--cases", CASES, "--output", folder / "audit")
    done = run_command("audit", *audit, "--resamples", 100)
    assert done.returncode in (0, 3), done.stderr
    (folder / "audit" / "private.json").write_text("{}", encoding="utf-8")
    options = ("--cases", CASES, "--ratings", folder / "rated" / "ratings.jsonl", "--output", folder / "report", *FAST)
    done = meta_evaluate("--verdicts", folder / "verdicts", "--audits", folder / "audit", *options)
    assert done.returncode == 0, done.stderr
    one = dossier(folder / "report", folder / "pack")
    one.folder = folder
    return one


def tables(page: str) -> dict[str, list[list[str]]]:
    """Return the rows of each table of the Markdown, by its heading, as plain text."""
    found = {}
    for section in page.split("\n## ")[1:]:
        plain = re.sub(r"\\([|\[\]`*_~\\#])", r"\1", section).replace("&amp;", "&").replace("&lt;", "<")
        rows = [line[2:-2].split(" | ") for line in plain.splitlines() if line.startswith("| ")]
        if rows:
            found[plain.partition("\n")[0]] = rows[1:]
    return found


def leaves(value: Any) -> Iterator[str]:
    """Yield every figure and name in a JSON value, in the form of the documents: estimates with two decimals."""
    if isinstance(value, dict) and "value" in value:
        yield from (f"{value[end]:.2f}" for end in ("value", "low", "high") if value.get(end) is not None)
        yield f"n = {value['n']}"
    elif isinstance(value, dict):
        yield from (each for name, held in value.items() if held is not None for each in (name, *leaves(held)))
    elif isinstance(value, list):
        yield from (each for held in value for each in leaves(held))
    else:
        yes = "yes" if value else "no"
        yield f"{value:.4g}" if isinstance(value, float) else yes if isinstance(value, bool) else str(value)


def check_figures(pack: Path, page: str) -> int:
    """Compare every figure of the facts with the file and the key that stand beside it; return how many there are."""
    compared = 0
    for heading, rows in tables(page).items():
        if heading in LISTS or heading == "Files":
            continue
        for name, text, places in rows:
            file = ""
            for place in places.split(", "):
                *start, pointer = place.split(" ")
                file = start[0] if start else file
                if not pointer.startswith("/"):
                    assert (pack / pointer).is_file()
                    continue
                value = json.loads((pack / file).read_text("utf-8"))
                for key in pointer.split("/")[1:]:
                    value = value[key.replace("~1", "/").replace("~0", "~")]
                for each in leaves(value) if name != "models" else value:
                    assert each in text, (name, pointer)
                    compared += 1
    return compared


def test_every_figure_is_that_of_the_file_beside_it(made: SimpleNamespace) -> None:
    assert check_figures(made.pack, made.page) > 150
    for path in (made.pack / "report").iterdir():
        assert path.read_bytes() == (made.folder / "report" / path.name).read_bytes()
    facts = {name: text for rows in tables(made.page).values() for name, text, *_ in rows if len(rows[0]) == 3}
    assert facts["cases"] == "30 cases with 90 responses of 3 models"
    audited = {path.name for path in (made.pack / "audits" / "1").iterdir()}
    assert audited == {"audit.json", "audit.md", "audit.html", "run.json"}
    assert facts["seeds"] == "Seed 5; orders: latin; runs: 1; resamples of the bootstrap: 200"
    passes = json.loads((made.folder / "audit" / "audit.json").read_text("utf-8"))["passes"]
    assert facts["audit"] == f"The judge passes its audit of 30 cases: {'yes' if passes else 'no'}"
    assert "The audit changed no answers: 1 fact left out (dangers)." in made.said
    assert "The audit did not change who asks or answers: 1 fact left out (fairness)." in made.said
    packaged = ROOT / "src" / "automedeval" / "rubrics"
    for name, file in [
        ("rubric.yaml", "packaged/automedeval.yaml"),
        ("automedeval.jinja", "templates/automedeval.jinja"),
    ]:
        assert (made.pack / "prompts" / name).read_bytes() == (packaged / file).read_bytes()
    assert facts["generation"] == "Temperature 0.25; at most 300 new tokens; decoding of scores: free"
    cost = round((30 * 100 * 2 + 30 * 7 * 8) / 1e6, 4)
    assert facts["cost"] == f"Judging took: prompt_tokens 3000; completion_tokens 210; seconds 12.5; cost {cost:.4g}"
    for annotator in ("simulated-1", "simulated-2", "simulated-3"):
        count = sum(rating["annotator"] == annotator for rating in read(RATINGS))
        assert f"{annotator}: {count} ratings" in facts["records"]


def test_every_item_of_a_list_is_there_once_and_counted(made: SimpleNamespace) -> None:
    for (heading, count), name in zip(LISTS.items(), ("tripod_llm", "chart")):
        rows = tables(made.page)[heading]
        data = yaml.safe_load((ROOT / "src/automedeval/dossier/templates" / f"{name}.yaml").read_text("utf-8"))
        assert [row[0] for row in rows] == [item["item"] for item in data["items"]]
        assert len({row[0] for row in rows}) == data["entries"] == count
        numbers = []
        for number, letters in re.findall(r"(\d+)([a-z]*)", NUMBERS[heading]):
            one = not letters or letters[1:2] == "i"
            numbers += [number + letters] if one else [number + letter for letter in letters]
        assert [row[0] for row in rows] == numbers
        write_all = sum(row[2].startswith("For the authors to write") for row in rows)
        whole = sum("or the authors to write" not in row[2] and "Not in this run" not in row[2] for row in rows)
        answered = f"of {count} items {whole} {'is' if whole == 1 else 'are'} answered from the run"
        assert f"{answered}, {count - whole - write_all} are answered in part and {write_all} are for" in made.said
        for item, _, answer, files in rows:
            assert bool(files.strip()) != answer.startswith("For the authors"), item
            assert all((made.pack / file).is_file() for file in files.split(", ") if file.strip()), item
    assert "Lists that are left out: DECIDE-AI" in made.said


def test_the_ledger_says_who_rated_and_who_overruled_whom(made: SimpleNamespace) -> None:
    people = [each for each in read(made.pack / "ledger.jsonl") if "annotator" in each]
    raters = {each["annotator"]: each["records"] for each in people if each["kind"] == "ratings"}
    assert sum(raters.values()) == len(read(RATINGS))
    jury = [
        {key: each.get(key) for key in ("annotator", "overruled", "cases")} for each in people if each["kind"] == "jury"
    ]
    assert {"annotator": "chief-\ud800é", "overruled": "good", "cases": ["c2", "c3"]} in jury
    assert sum(each["overruled"] is not None for each in jury) == 1
    assert "é overruled good in 2 cases" in made.page
    kinds = {each["kind"] for each in read(made.pack / "ledger.jsonl")}
    assert kinds == {"audits", "cases", "jury", "prompts", "ratings", "report", "verdicts"}


def test_a_pack_that_was_cut_off_is_completed_to_the_same_bytes_and_moves(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    first = dossier(made.folder / "report", again).pack
    whole = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert (again / "ledger.jsonl").read_bytes() == (made.pack / "ledger.jsonl").read_bytes()
    for name in ("head.json", "dossier.md", "prompts/rubric.yaml"):
        (again / name).unlink()
    (again / "dossier.html").write_bytes(whole[again / "dossier.html"][:500])
    assert run_command("dossier", "--verify", again).returncode == 3
    dossier(made.folder / "report", again)
    assert {path: path.read_bytes() for path in again.rglob("*") if path.is_file()} == whole
    dossier(again / "report", again)  # the report may lie in the pack
    moved = again.rename(tmp_path / "elsewhere")
    done = run_recipe("dossier", "--verify", moved)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{moved}: unchanged.")
    assert re.search(r"last one: ([0-9a-f]{64})$", done.stdout)[1] in made.said


def test_a_report_of_another_version_without_ratings_or_audit_gets_a_line_each(
    made: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "report").mkdir()
    result = json.loads((made.folder / "report" / "agreement.json").read_text("utf-8"))
    result["settings"] |= {
        "version": "0.0.9",
        "command": "automedeval report --verdicts v --cases c --output o --old 1",
    }
    del result["judges"]["good"]["audit"]
    share = {"value": 0.25, "low": 0.1, "high": 0.6, "n": 8}
    harm = {"degrees": ["none", "severe"], "raters": {"physicians": {"m": {"degrees": [6, 2], "share": share}}}}
    result["judges"]["good"]["usage"] = {"seconds": 12345.6}
    text = json.dumps(result | {"people": None, "harm": harm})
    (tmp_path / "report" / "agreement.json").write_text(text, encoding="utf-8")
    one = dossier(tmp_path / "report", tmp_path / "pack")
    notes = [line for line in one.said.splitlines() if line.startswith("note: ")]
    assert notes[0].startswith("note: The report is by automedeval 0.0.9, this dossier by ")
    assert "--old" in notes[1]
    assert "its inputs are not in the pack" in notes[1]
    assert (
        "note: No ratings of people are given to the report: 3 facts left out (records, raters, reliability)." in notes
    )
    assert [
        note
        for note in notes
        if "No audit is given to the report: 3 facts left out (audit, dangers, fairness)." in note
    ]
    assert "note: No physicians rated harm: 1 fact left out (harm_people)." in notes
    assert "m (degrees 6, 2; share 0.25 [0.10, 0.60] (n = 8))" in one.page.replace("\\", "")
    assert "Judging took: seconds 12346 |" in one.page
    assert "https:&#47;/doi.org/10.1038/" in one.page
    assert {path.parent.name for path in one.pack.rglob("*.json*")} == {"report", "pack"}
    assert run_command("dossier", "--verify", one.pack).returncode == 0


def test_inputs_that_are_gone_or_newer_than_the_report_get_a_line(tmp_path: Path) -> None:
    cases = write(tmp_path / "cases.jsonl", read(CASES))
    verdicts = write(tmp_path / "verdicts.jsonl", agreeing_verdicts())
    teacher = write(tmp_path / "teacher.jsonl", agreeing_verdicts())
    inputs = ("--verdicts", verdicts, "--cases", cases, "--teacher_verdicts", teacher)
    options = (*inputs, "--output", tmp_path / "report", *FAST)
    assert meta_evaluate(*options).returncode == 0
    cases.unlink()
    later = (tmp_path / "report" / "agreement.json").stat().st_mtime + 60
    os.utime(verdicts, (later, later))
    one = dossier(tmp_path / "report", tmp_path / "pack")
    assert (one.pack / "teacher" / "teacher.jsonl").read_bytes() == teacher.read_bytes()
    assert f"note: --cases {cases}: there is no such file from this folder, and none in the pack." in one.said
    assert "note: Written after the report, which may be of other contents: verdicts/1/verdicts.jsonl." in one.said
    assert "note: The record of the judge's run is not beside its verdicts:" in one.said
    assert "note: No ratings of people are given to the report: 7 facts left out (rated, records, raters," in one.said
    assert "No card of the judge echo is on this machine." in one.said


def test_a_report_on_criteria_has_a_dossier(tmp_path: Path) -> None:
    from doubles.criteria_study import write_study

    write_study(tmp_path, 6)
    options = ("--cases", tmp_path / "cases.jsonl", "--criterion_labels", tmp_path / "labels.jsonl")
    done = meta_evaluate("--verdicts", tmp_path / "verdicts.jsonl", *options, "--output", tmp_path / "report", *FAST)
    assert done.returncode == 0, done.stderr
    one = dossier(tmp_path / "report", tmp_path / "pack")
    assert {"criteria.json", "criteria.html", "criteria.md"} == {path.name for path in (one.pack / "report").iterdir()}
    assert check_figures(one.pack, one.page) > 3
    assert "d1: " in one.page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --report and --output to make a dossier, or --verify to check one"),
        (("--report", "r"), "give --report and --output"),
        (("--report", "r", "--output", "o", "--verify", "p"), "give --report and --output"),
        (("--report", "nothing", "--output", "o"), "nothing: no agreement.json or criteria.json"),
        (("--verify", "nothing"), "nothing: no pack of automedeval dossier"),
    ],
)
def test_bad_arguments_get_one_line(arguments: tuple[str, ...], message: str) -> None:
    assert message in error_line(run_command("dossier", *arguments))


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, "[]", "{}", '{"judges": {}}', '{"judges": {"a": 1}, "settings": {"command": "a"}}']
)
def test_a_file_that_is_no_report_gets_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "agreement.json").write_text(content, encoding="utf-8")
    message = error_line(run_command("dossier", "--report", tmp_path, "--output", tmp_path / "pack"))
    assert "automedeval report did not write this file" in message


def test_a_folder_with_other_files_is_refused_and_left(made: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    message = error_line(run_command("dossier", "--report", made.folder / "report", "--output", tmp_path))
    assert f"{tmp_path}: holds mine.txt, which is not part of this pack" in message
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_page_calls_nothing_and_axe_finds_nothing(made: SimpleNamespace) -> None:
    from doubles.grid_reader import CHROMIUM, playwright, violations

    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark", bypass_csp=True)
        calls: list[str] = []
        page.on("request", lambda request: calls.append(request.url))
        page.goto((made.pack / "dossier.html").as_uri())
        assert len(calls) == 1, "the page itself"
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for heading, rows in tables(made.page).items():
            cells = page.locator("h2", has_text=heading).locator("xpath=following::table[1]//tbody//tr/*")
            shown = [text.replace("\\ud800", " ") for text in cells.all_text_contents()]
            assert shown == [cell.strip() for row in rows for cell in row], "the same as in Markdown"
        browser.close()


@needs_encoder
@pytest.mark.slow
def test_the_commands_of_the_document_run_on_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    (tmp_path / "src").symlink_to(ROOT / "src")
    said = ""
    for program, name, *words in commands((ROOT / "docs" / "dossier.md").read_text("utf-8")):
        assert program == "automedeval"
        few = {"judge": ("--limit", 4), "report": ("--limit", 4, *FAST)}
        done = run_command(name, *words, *few.get(name, ()))
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert "pack: unchanged." in said
    page = (tmp_path / "pack" / "dossier.md").read_text("utf-8")
    assert check_figures(tmp_path / "pack", page) > 100
    assert "What the card says" not in page
    assert "## What card/judge.md says of limits" in page
    assert "What neither set shows: The answers of these sets are passages from public pages." in page
    assert "What it does not see: A brand name and its substance are two words to it." in page
