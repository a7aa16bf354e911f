"""`automedeval judge v1=v1.csv v2=v2.csv`: one table for each version of a model."""

import re
from functools import partial
from pathlib import Path

from doubles.endpoint import EndpointDouble, answer
from factories import read, read_json, write, write_json
from programs import SAMPLE, failed, run_command, succeeded, told
from tables import each_row, read_csv, rows_of, write_csv

ROWS = rows_of(__file__)
QUESTIONS = ROWS["questions"]


def table(file: Path, rows: list[list[str]], *names: str) -> Path:
    return write_csv(file, names or ("question", "answer"), rows)


def judged(folder: Path, *words: object, **options: object):
    return run_command(
        "judge", *words, judge="baseline:longer text", output=folder / "out", **options
    )


def written(name: str, rows: list) -> Path:
    """Write a file of one version by the ending of its name; the first row of a CSV has its columns."""
    file = Path(name)
    if file.suffix == ".jsonl":
        return write(file, rows)
    if file.suffix == ".json":
        write_json(file, rows)
        return file
    return write_csv(file, rows[0], rows[1:])


def of_versions(tables: dict[str, list], words: list[str]):
    """Judge files under their own names; one at "./" says itself what its model is called."""
    files = []
    for name, rows in tables.items():
        called = "" if name.startswith("./") else f"{Path(name).stem}="
        files.append(f"{called}{written(name, rows)}")
    return judged(Path(), *files, *words)


def shown(case: dict) -> dict[str, str]:
    return {response["model"]: response["text"] for response in case["responses"]}


@each_row("tables, words, joined, said")
def test_tables_of_versions_are_joined(tables, words, joined, said, tmp_path, monkeypatch):
    """`joined` has the answers to each question, or those of each case by its id, and more of the case where it says so."""
    monkeypatch.chdir(tmp_path)
    told(of_versions(tables, words), *said)
    cases = read(Path("out/cases.jsonl"))
    by = "id" if {case["id"] for case in cases} == joined.keys() else "question"
    cases = {case[by].strip(): case for case in cases}
    assert {name: shown(case) for name, case in cases.items()} == {
        name: answers["answers"] for name, answers in joined.items()
    }
    for name, case in joined.items():
        assert cases[name].items() >= case.get("case", {}).items()


@each_row("tables, words, said")
def test_tables_that_do_not_fit_together_are_one_line(tables, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed(of_versions(tables, words), said)


def test_changed_answers_are_judged_anew_and_other_versions_have_a_folder_of_their_own(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for version in (1, 2, 3):
        rows = [[each, f"{each} {version}"] for each in QUESTIONS]
        table(Path(f"v{version}.csv"), rows[:: 1 if version == 1 else -1])

    def run(*words: str, says: tuple[str, ...] = ()) -> dict[str, list[dict]]:
        told(run_command("judge", *words, judge="baseline:random"), *says)
        folders = Path().glob("verdicts/*/verdicts.jsonl")
        return {file.parent.name: read(file) for file in folders}

    first = ("v1=v1.csv", "v2=v2.csv")
    second = "v1-v2-baseline-random"
    before = run(*first)[second]
    export = partial(run_command, "export", verdicts=f"verdicts/{second}", to="csv", output="e.csv")
    failed(export(cases="v1.csv"), "no verdict on these cases")
    told(export(), "verdicts: 4, invalid: 0, rows: 8")
    for each in read_csv("e.csv"):
        own = read_csv(f"{each['model']}.csv")[int(each["row"]) - 1]
        assert own.items() <= each.items()
    rows = [[each, f"{each} 2"] for each in QUESTIONS]
    rows[2][1] = "Sixty to a hundred."
    table(Path("v2.csv"), rows)
    says = ("1 of 4 cases changed in texts or answers: asked anew", "verdicts: 4 (new: 1)")
    after = run(*first, says=says)[second]
    assert [each for each in after if each not in before] == [after[-1]]
    assert read(Path(f"verdicts/{second}/replaced-verdicts.jsonl")) == [before[2]]
    assert {*run("v1=v1.csv", "v3=v3.csv")} == {second, "v1-v3-baseline-random"}
    # One table, with a changed question and one that is gone: nothing is told of the others.
    run("v3.csv")
    table(Path("v3.csv"), [["And now?", "No."], *rows[1:3]])
    run("v3.csv", says=("2 of 3 cases changed in texts or answers: ", "(new: 3)"))
    own = "verdicts/v3-baseline-random"
    other = table(Path("verdicts/v3.csv"), rows)
    judged = partial(run_command, "judge", other, judge="baseline:random")
    failed(judged(), f"{own} has results on v3.csv: choose another --output")
    told(judged(output=own), " --output reports/v3-baseline-random")
    told(judged(output=Path(own).absolute()), " --output reports/v3-baseline-random")
    run("v3.csv", says=("(new: ",))  # it is one of the two


@each_row("before, words, files, said")
def test_a_default_folder_is_of_its_files(before, words, files, said, tmp_path, monkeypatch):
    """`files` are written between the commands, also in the place of records."""
    monkeypatch.chdir(tmp_path)
    Path("b").mkdir()
    for file in ("t.csv", "u.csv", "b/t.csv"):
        row = ["Why does it hurt?", "It is the strain of the day.", "You should rest for a day."]
        table(Path(file), [row], "question", "reference", "bot")
    told(run_command(*before.split()))
    for file, text in files.items():
        Path(file).write_text(text)
    done = run_command(*words.split())
    assert said in done.stdout + done.stderr


def test_the_packaged_sample_is_the_same_by_its_word_and_by_its_path(tmp_path, monkeypatch):
    """Earlier runs recorded the path."""
    monkeypatch.chdir(tmp_path)
    sample = partial(run_command, "judge", "sample", judge="baseline:random")
    told(sample(), "(new: 30)")
    (record,) = Path("verdicts/sample-baseline-random").glob("run-*.json")
    text = record.read_text()
    assert '"sample": []' in text
    record.write_text(text.replace('"sample": []', f'"{SAMPLE}/test_cases.jsonl": []'))
    told(sample(), "(new: 0)")


def test_the_first_version_is_the_baseline_of_a_report_that_open_makes(tmp_path, monkeypatch):
    """The counts are those of a loop over the lengths, which are the scores of this judge."""
    alone = ["Only of v1?", "Long. " * 99]  # it belongs to no mean
    takes = [[each, f"{each} Take it with food." * 2] for each in QUESTIONS]
    first = table(tmp_path / "v1.csv", [alone, *takes])
    denials = [[each, f"{each} No."] for each in QUESTIONS]
    denials[0][1] *= 9
    versions = (f"v1={first}", f"v2={table(tmp_path / 'v2.csv', denials)}")
    monkeypatch.chdir(tmp_path)
    done = judged(Path(), *versions)
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    unopened = succeeded(judged(Path(), *versions, "--open")).stdout.splitlines()
    assert unopened[-1] == "no browser on this machine: open out/report/report.html"
    gaps = {}
    for case in read(tmp_path / "out/cases.jsonl"):
        lengths = [len(re.findall(r"\w+", text)) for text in shown(case).values()]
        if len(lengths) == 2:
            gaps[case["id"]] = lengths[1] - lengths[0]
    worse = sorted((name for name, gap in gaps.items() if gap < 0), key=gaps.get)
    result = read_json(tmp_path / "out/report/agreement.json")["baseline"]
    record = result["models"]["v2"]
    counts = [record[name] for name in ("worse", "better", "equal")]
    assert (result["name"], counts, record["cases"]) == ("v1", [3, 1, 0], worse)
    page = (tmp_path / "out/report/report.html").read_text("utf-8")
    assert "3 cases in which v2 is worse" in page
    assert "automedeval report --verdicts out --cases " in page
    told(
        done,
        "--baseline v1 ",
        "v2 is not clearly different from v1",  # four cases are few
        "worse in 3 of 4 cases and better in 1.",
        "Worse cases, each model's largest drop first: “",
    )
    other = judged(Path("verdicts/mon"), *versions, baseline="v2")
    told(other, "--baseline v2 --output verdicts/mon/out/report")
    with EndpointDouble(lambda body: answer(ROWS["an answer without harm"])) as endpoint:
        options = f"--judge openai:m --rubric harm --output harm --base_url {endpoint.url}"
        told(run_command("judge", *versions, *options.split()), "report: harm/report/harm.html")
    second = run_command("judge", *versions, judge="baseline:random", output="out").stdout
    assert " --main_judge 'baseline:random by baseline@1' " in second
    own = [each["expected_scores"] for each in read(Path("out/verdicts.jsonl"))[5:]]
    assert f" and better in {sum(scores[0] < scores[-1] for scores in own)}." in second
    # One row less: what the judge before said of it is left out where the run is of another.
    table(tmp_path / "v2.csv", denials[1:])
    told(judged(Path(), *versions), "1 of 5 cases changed", "report: out/report")
    note = "verdicts by others than baseline:longer text by baseline@1: 1 left out, whose texts changed"
    assert note in (tmp_path / "out/report/report.html").read_text("utf-8")
    both = run_command("report", verdicts="out", cases="out/cases.jsonl", output="both")
    failed(both, "and the case has v1: judging with it again renews its verdicts")
