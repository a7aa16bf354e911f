"""`automedeval judge v1=v1.csv v2=v2.csv`: one table for each version of a model."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from doubles.agreement_study import read, write
from doubles.grid_reader import Visit, needs_chromium, playwright, violations
from programs import error_line, flags, run_command, succeeded
from tables import write_csv

QUESTIONS = [
    "May I take two pills?",
    "Is a fever of 39 degrees dangerous for a child of two years?",  # 60 letters, as many as are printed
    "What is the normal pulse of healthy adults during a marathon?",
    "Do colds need antibiotics?",
]


def table(file: Path, rows: list[list[str]], *names: str) -> Path:
    return write_csv(file, names or ("question", "answer"), rows)


def judged(folder: Path, *words: object):
    return run_command(
        "judge", *words, "--judge", "baseline:longer text", "--output", folder / "out"
    )


def test_tables_of_versions_are_joined_by_question_in_any_order_and_what_does_not_match_is_counted(
    tmp_path,
):
    golden = [[each, f"{each} One.", "Gold."] for each in QUESTIONS]
    first = table(tmp_path / "v1.csv", golden, "question", "answer", "reference")
    rows = [
        [f" {each} ", f"{each} Two."]
        for each in [*reversed(QUESTIONS[1:]), "Something else?", QUESTIONS[1]]
    ]
    second = table(tmp_path / "v2.csv", rows)
    done = succeeded(judged(tmp_path, f"v1={first}", f"v2={second}"))
    cases = read(tmp_path / "out/cases.jsonl")
    answers = {
        each["question"].strip(): {one["model"]: one["text"] for one in each["responses"]}
        for each in cases
    }
    one, *both = QUESTIONS
    joined = {each: {"v1": f"{each} One.", "v2": f"{each} Two."} for each in both}
    assert answers == {
        one: {"v1": f"{one} One."},
        **joined,
        "Something else?": {"v2": "Something else? Two."},
    }
    assert "left out: 1 (the question is in the log before)" in done.stdout
    assert "5 cases, 3 with an answer of all 2 models" in done.stdout
    assert "only v1 has 1 of them" in done.stdout


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_the_files_say_of_a_case_is_kept_and_told(tmp_path, kind):
    files = [tmp_path / f"{number}.{kind}" for number in (1, 2)]
    for number, file in enumerate(files):
        case = {"question": QUESTIONS[0], "topic": f"topic {number}"}
        if kind == "csv":
            table(file, [[*case.values(), "NA", "A remark"]], *case, "answer", "notes")
            continue
        case |= {"criteria": [{"criterion": "Says no", "points": 1, "tags": []}], "source": 0}
        lines = [{**case, "id": "a"}, {"id": "b", "question": QUESTIONS[1]}]
        said = {"model": "m", "text": f"<think>{number}</think>No.", "latency": number}
        lines = [json.dumps({**each, "responses": [said]}) for each in lines]
        file.write_text("\n".join(lines), "utf-8")
    done = succeeded(judged(tmp_path, f"v1={files[0]}", f"v2={files[1]}"))
    first, *_ = read(tmp_path / "out/cases.jsonl")
    assert first["topic"] == "topic 0"
    assert "1 cases differ in 'topic' between the files: the first is taken" in done.stdout
    if kind == "jsonl":
        assert (first["criteria"], first["source"]) == (case["criteria"], 0)
        assert [each["latency"] for each in first["responses"]] == [0, 1]
        assert "4 answers held thoughts or control tokens, which are removed" in done.stdout
    for file in files * (kind == "csv"):
        said = "read: question, answer (answers), topic; not read: notes; 1 rows, 1 cases; answers"
        assert f"{file}: {said}" in done.stdout


def test_changed_answers_are_judged_anew_and_other_versions_have_a_folder_of_their_own(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for version in (1, 2, 3):
        rows = [[each, f"{each} {version}"] for each in QUESTIONS]
        table(Path(f"v{version}.csv"), rows)

    def run(*words: str) -> tuple[str, dict[str, list[dict]]]:
        done = run_command("judge", *words, "--judge", "baseline:random")
        folders = {
            file.parent.name: read(file) for file in Path().glob("verdicts/*/verdicts.jsonl")
        }
        return succeeded(done).stdout, folders

    first, second = ("v1=v1.csv", "v2=v2.csv"), "v1-v2-baseline-random"
    before = run(*first)[1][second]
    rows = [[each, f"{each} 2"] for each in QUESTIONS]
    rows[2][1] = "Sixty to a hundred."
    table(Path("v2.csv"), rows)
    printed, folders = run(*first)
    assert "1 of 4 texts changed: row 3; judged anew" in printed
    assert "4 verdicts (1 new)" in printed
    after = folders[second]
    assert [each for each in after if each not in before] == [after[-1]]
    assert read(tmp_path / f"verdicts/{second}/replaced-verdicts.jsonl") == [before[2]]
    printed, folders = run("v1=v1.csv", "v3=v3.csv")
    assert {*folders} == {second, "v1-v3-baseline-random"}
    # one table, with a changed question and one that is gone: nothing is told of the others
    run("v3.csv")
    table(Path("v3.csv"), [["And now?", "No."], *rows[1:3]])
    printed, folders = run("v3.csv")
    assert "2 of 3 texts changed: row 2, row 3" in printed
    assert "(3 new)" in printed


def test_three_versions_of_other_kinds_keep_the_ids_of_the_first(tmp_path):
    rows = [[f"q{n}", each, "Yes."] for n, each in enumerate(QUESTIONS)]
    first = table(tmp_path / "a.csv", rows, "id", "prompt", "output")
    (tmp_path / "b.json").write_text(
        json.dumps([{"question": each, "answer": "No."} for each in QUESTIONS]), "utf-8"
    )
    third = write(
        tmp_path / "c.jsonl", [{"question": each, "response": "It depends."} for each in QUESTIONS]
    )
    succeeded(judged(tmp_path, f"a={first}", f"b={tmp_path / 'b.json'}", f"c={third}"))
    cases = read(tmp_path / "out/cases.jsonl")
    assert [case["id"] for case in cases] == ["q0", "q1", "q2", "q3"]
    assert {tuple(each["model"] for each in case["responses"]) for case in cases} == {
        ("a", "b", "c")
    }


def test_a_question_that_is_asked_twice_is_told_apart_by_its_ids(tmp_path):
    names = ("id", "question", "reference", "answer")
    first = [
        ["a", "Is it safe?", "Aspirin is.", "Yes, aspirin."],
        ["b", "Is it safe?", "No.", "No warfarin."],
    ]
    second = [["b", "Is it safe?", "No.", "Warfarin, no!"], ["c", "And tea?", "Yes.", "Tea."]]
    second += [["a", *first[0][1:3], "Sure."]]
    files = [table(tmp_path / f"{n}.csv", rows, *names) for n, rows in enumerate((first, second))]
    once = [
        f"v1={files[0]}",
        f"v2={table(tmp_path / 'once.csv', second[1:], *names)}",
    ]  # v2 asks it once
    for number, turned in enumerate((once, once[::-1])):
        succeeded(judged(tmp_path / f"{number}", *turned))
        joined = {
            each["id"]: len(each["responses"])
            for each in read(tmp_path / f"{number}/out/cases.jsonl")
        }
        assert joined == {"a": 2, "b": 1, "c": 1}
    succeeded(judged(tmp_path, f"v1={files[0]}", f"v2={files[1]}"))
    cases = {each["id"]: each for each in read(tmp_path / "out/cases.jsonl")}
    said = {
        name: {one["model"]: one["text"] for one in case["responses"]}
        for name, case in cases.items()
    }
    pairs = {
        "a": {"v1": "Yes, aspirin.", "v2": "Sure."},
        "b": {"v1": "No warfarin.", "v2": "Warfarin, no!"},
    }
    assert said == pairs | {"c": {"v2": "Tea."}}
    assert [cases[name]["reference"] for name in "abc"] == ["Aspirin is.", "No.", "Yes."]


def test_a_table_of_two_models_is_no_file_of_one_version(tmp_path):
    two = table(
        tmp_path / "t.csv",
        [[each, f"{each} Yes.", f"{each} No."] for each in QUESTIONS],
        "question",
        "x",
        "y",
    )
    line = error_line(judged(tmp_path, f"a={two}", f"b={two}"))
    assert "2 answers (x, y), and a file for each version has one to a question" in line


def test_columns_are_named_for_each_and_an_id_has_one_question(tmp_path):
    names, asked = ("id", "prompt", "output", "provider"), enumerate(QUESTIONS)
    first = table(
        tmp_path / "a.csv", [[str(n), each, f"{each} Yes.", f"p{n} x"] for n, each in asked], *names
    )
    second = table(tmp_path / "b.csv", [["0", QUESTIONS[0], "No.", "p1 x"]], *names)
    columns = ("--columns", "question=prompt", "output")
    done = succeeded(judged(tmp_path, f"a={first}", f"b={second}", *columns))
    assert "4 cases, 1 with an answer of all 2 models" in done.stdout
    for rows in (
        [["0", "Two pills, please?", "No."]],
        [["0", QUESTIONS[1], "60."], ["1", QUESTIONS[0], "No."]],
    ):
        other = table(tmp_path / "c.csv", rows, *names[:3])
        line = error_line(judged(tmp_path / "other", f"a={first}", f"c={other}", *columns))
        assert re.search("the id '[01]' has different questions in these tables", line)


def test_a_version_that_was_not_asked_has_no_answer_also_where_columns_are_named(tmp_path):
    first = table(tmp_path / "a.csv", [[QUESTIONS[0], "Yes."], [QUESTIONS[1], ""]], "ask", "said")
    second = table(tmp_path / "b.csv", [[each, "No."] for each in QUESTIONS[:2]], "ask", "said")
    more = ("--columns", "question=ask", "said", "--blank", "skip")
    said = succeeded(judged(tmp_path, f"a={first}", f"b={second}", *more)).stdout
    assert "2 cases, 1 with an answer of all 2 models" in said
    assert "cases without an answer, left out: 1" in said


def test_the_first_version_is_the_baseline_of_a_report_that_open_makes(tmp_path, monkeypatch):
    """The counts are those of a loop over the lengths, which are the scores of this judge."""
    alone = ["Only of v1?", "Long. " * 99]  # it belongs to no mean
    first = table(
        tmp_path / "v1.csv",
        [alone, *([each, f"{each} Take it with food." * 2] for each in QUESTIONS)],
    )
    denials = [f"{each} No." * (9 if each == QUESTIONS[0] else 1) for each in QUESTIONS]
    versions = (f"v1={first}", f"v2={table(tmp_path / 'v2.csv', zip(QUESTIONS, denials))}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", f"{sys.executable} -c pass %s")
    unopened = judged(tmp_path, *versions)
    done = succeeded(judged(tmp_path, *versions, "--open"))
    assert unopened.stdout.splitlines()[-5:] == done.stdout.splitlines()[-5:]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    without = succeeded(judged(tmp_path, *versions, "--open")).stdout.splitlines()
    assert without[-1] == "no browser on this machine: open reports/out/report.html"
    assert "--baseline v1 " in done.stdout
    cases = [each for each in read(tmp_path / "out/cases.jsonl") if len(each["responses"]) == 2]
    lengths = [
        [len(re.findall(r"\w+", one["text"])) for one in each["responses"]] for each in cases
    ]
    worse, better = (sum(sign * two < sign * one for one, two in lengths) for sign in (1, -1))
    assert (worse, better) == (3, 1)
    assert "v2 is not clearly different from v1" in done.stdout, "four cases are few"
    assert f"worse in {worse} of 4 cases and better in {better}." in done.stdout
    page = (tmp_path / "reports/out/report.html").read_text("utf-8")
    assert f"{worse} cases in which v2 is worse" in page
    assert "<h1>Report: v1, v2</h1>" in page
    result = json.loads((tmp_path / "reports/out/agreement.json").read_text("utf-8"))["baseline"]
    record = result["models"]["v2"]
    assert (result["name"], record["worse"], record["better"], record["equal"]) == (
        "v1",
        worse,
        better,
        0,
    )
    gaps = [two - one for one, two in lengths]
    ids = [each["id"] for each in cases]
    assert record["cases"] == [ids[n] for n in np.argsort(gaps, kind="stable") if gaps[n] < 0]
    assert record["means"] == pytest.approx(np.mean(lengths, axis=0))
    assert "--baseline v2 " in succeeded(judged(tmp_path, *versions, "--baseline", "v2")).stdout
    summary = (tmp_path / "reports/out/report.md").read_text("utf-8")
    assert summary.index("Read first, where a model is worse: ") < summary.index("Wins most pairs")
    texts = {each["id"]: f"“{each['question']}”" for each in cases}
    (longest,) = (
        name for name, text in texts.items() if len(text) == 63
    )  # a letter more than is printed
    texts[longest] = texts[longest].replace("?”", "…”")
    assert longest in record["cases"]
    assert (
        f"Read first, where a model is worse: {', '.join(map(texts.get, record['cases']))}."
        in done.stdout
    )


@needs_chromium
def test_the_page_shows_the_regressions_first_and_links_to_them(tmp_path, browser):
    first = table(tmp_path / "v1.csv", [[each, f"{each} Take it with food."] for each in QUESTIONS])
    longer = [
        [each, " ".join([each, *["No."] * 3 * number])] for number, each in enumerate(QUESTIONS)
    ]
    succeeded(judged(tmp_path, f"v1={first}", f"v2={table(tmp_path / 'v2.csv', longer)}"))
    files = {
        "verdicts": tmp_path / "out",
        "cases": tmp_path / "out/cases.jsonl",
        "output": tmp_path / "r",
    }
    report = ("report", *flags(**files, encoder="none", resamples=100), "--baseline")
    assert "has no model 'v3'; it has v1 and v2" in error_line(run_command(*report, "v3"))
    succeeded(run_command(*report, "v1"))
    ids = [each["id"] for each in read(tmp_path / "out/cases.jsonl")]
    visit = Visit(browser, tmp_path / "r/report.html", bypass_csp=True)
    assert visit.rows() == ids, "the shorter the second answer, the worse"
    assert visit.page.input_value("#sort") == "lost"
    visit.page.get_by_role("link", name="2 cases in which").click()
    playwright.expect(visit.page.locator("#count")).to_have_text("2 of 4 cases")
    assert visit.rows() == ids[:2]
    assert violations(visit.page) == []
    visit.close()
