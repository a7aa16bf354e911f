"""`automedeval compare` of two runs: two versions of a model in two files of cases, each with its own verdicts."""

import json
from functools import partial
from pathlib import Path

import pytest
from doubles.agreement_study import CASES, MODELS, noisy_verdicts, read, write
from programs import error_line, run_recipe, succeeded

compare = partial(run_recipe, "compare")
RTL = "روبوت"


def split(case: dict, verdict: dict, model: str, name: str) -> tuple[dict, dict]:
    """Return a case with the answer of one model, under a name, and the verdict on it."""
    place = [response["model"] for response in case["responses"]].index(model)
    response = case["responses"][place] | {"model": name}
    wrong = {"text": "x", "start": 0, "end": 1, "label": "contradicted", "passage": "y", "rule": "r"}
    checked = {name: [wrong | {"source": "reference"}] * (model == MODELS[1])}
    values = {key: [verdict[key][place]] for key in ("scores", "expected_scores")}
    return case | {"responses": [response]}, verdict | values | {"order": [0], "checked": checked}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    """Write what one model answered, and another as its new version; each file lacks a case of the other one."""
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))
    files = {}
    for version, model, part in (("old", MODELS[0], lines[:-1]), ("new", MODELS[1], lines[:0:-1])):
        pairs = [split(case, verdict, model, "bot") for case, verdict in part]
        names = [tmp_path / version / f"{name}.jsonl" for name in ("cases", "verdicts")]
        files[version] = tuple(map(write, names, zip(*pairs, strict=True)))
    return files


def arguments(runs: dict, old: str = "old", new: str = "new") -> list[object]:
    (old_cases, old_verdicts), (new_cases, new_verdicts) = runs["old"], runs["new"]
    return ["--cases", f"{old}={old_cases}", f"{new}={new_cases}", "--verdicts", old_verdicts, new_verdicts]


def test_two_runs_give_the_figures_of_one_file_with_both(runs: dict, tmp_path: Path) -> None:
    done = succeeded(compare(*arguments(runs, new=RTL), "--output", tmp_path / "out"))
    result = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))
    assert result["cases"]["cases"] == 28
    assert f"--cases {runs['new'][0]} " in done.stdout  # the audit that it advises can be run
    assert any("29 and 29 cases; the 28 that are in both are compared" in note for note in result["notes"])
    lines = list(zip(read(CASES), noisy_verdicts("good", 0.3, 1), strict=True))[1:-1]
    places = {case["id"]: [r["model"] for r in case["responses"]] for case, _ in lines}
    both = [
        [verdict["expected_scores"][places[case["id"]].index(name)] for name in MODELS[:2]] for case, verdict in lines
    ]
    gaps = [new - old for old, new in both]
    (pair,), (changes,) = result["pairs"], result["changes"]
    assert pair["pair"] == ["old", RTL]
    assert pair["difference"]["good"]["naive"]["value"] == pytest.approx(-sum(gaps) / len(gaps))
    assert (changes["old"], changes["new"], changes["compared"]) == ("old", RTL, 28)
    assert (changes["won"], changes["lost"]) == (sum(gap > 1e-9 for gap in gaps), sum(gap < -1e-9 for gap in gaps))
    assert changes["newly_contradicted"] == 28
    page = (tmp_path / "out" / "comparison.html").read_text("utf-8")
    assert f'<th scope="row" dir="auto">{RTL}</th>' in page
    assert "<caption>Mean scores</caption>" in page


def test_two_runs_pass_the_gate(runs: dict) -> None:
    assert compare(*arguments(runs), "--fail_if_worse", "new", "old", "--by", 3).returncode == 0
    assert "--cases of two runs" in error_line(compare(*arguments(runs)[:-1], "--output", "out"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda case: case | {"id": f"{case['id']}-b"}, "have no case in common"),
        (lambda case: case | {"reference": "Another one."}, "differs in its reference"),
        (lambda case: case | {"question": f"{case['question']} Why?"}, "differs in its question"),
    ],
)
def test_runs_that_do_not_fit_are_refused_in_a_line(runs: dict, tmp_path: Path, change, said: str) -> None:
    cases, verdicts = runs["new"]
    changed = [change(case) for case in read(cases)]
    lines = [line | {"case_id": case["id"]} for line, case in zip(read(verdicts), changed, strict=True)]
    runs["new"] = write(cases, changed), write(verdicts, lines)
    assert said in error_line(compare(*arguments(runs), "--output", tmp_path / "out"))


def test_a_model_in_both_runs_needs_names_and_the_judge_is_the_same(runs: dict, tmp_path: Path) -> None:
    files = [file for pair in zip(*runs.values(), strict=True) for file in pair]
    output = ("--output", tmp_path / "out")
    assert "name the versions" in error_line(compare("--cases", *files[:2], "--verdicts", *files[2:], *output))
    write(runs["new"][1], [line | {"judge": "other"} for line in read(runs["new"][1])])
    assert "no judge has verdicts on both" in error_line(compare(*arguments(runs), *output))
    write(runs["new"][1], [line | {"rubric": "checklist@1"} for line in read(runs["new"][1])])
    assert "compare read these, on one file of cases" in error_line(compare(*arguments(runs), *output))
