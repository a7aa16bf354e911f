"""What commit 9445386 wrote (people's answers, teachers' answers, verdicts, a data set) is read unchanged.

Figures are beside plain loops over the JSON lines.
"""

import json
import shutil
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from doubles.agreement_study import read
from programs import ROOT, error_line, needs_encoder, needs_judge, run_command, run_recipe, succeeded
from pyarrow.parquet import read_table
from tables import rows_of

OLD = ROOT / "tests" / "fixtures" / "written_by_9445386"
RUNS = rows_of(__file__)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(OLD, tmp_path / "old")
    (folder / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(folder)
    return folder


def words(**options: object) -> list[object]:
    lists = {name: value if isinstance(value, list) else [value] for name, value in options.items()}
    return [word for name, values in lists.items() for word in (f"--{name}", *values)]


def report(file: str, **options: object) -> dict:
    succeeded(run_command("report", *words(output="report", resamples=100, **options)))
    return json.loads(Path("report", file).read_text(encoding="utf-8"))


def judge(name: str, **changes: object):
    options = {"cases": "criteria_cases.jsonl" if name == "checklist" else "cases.jsonl", "dtype": "float32"}
    return run_command("judge", *words(output=f"verdicts/{name}", **options | RUNS[name] | changes))


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, but for the locks."""
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".lock"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def concordance(verdicts: list[dict], field: str) -> tuple[float, int]:
    """Return the concordance of verdicts on whole cases with the page's ratings, invalid ones wrong, and the pairs."""
    scores: dict[tuple, dict[str, list]] = {}
    for each in read(OLD / "page" / "ratings.jsonl"):
        by_criterion = scores.setdefault((each["case_id"], each["model"]), {})
        by_criterion.setdefault(each["annotator"], []).append(each["score"])
    people = {key: fmean(map(fmean, of.values())) for key, of in scores.items()}
    judged = {each["case_id"]: each for each in verdicts}
    credits = []
    for case in read(OLD / "cases.jsonl"):
        verdict = judged.get(case["id"], {"valid": False})
        liked = [people[case["id"], response["model"]] for response in case["responses"]]
        for one, two in combinations(range(3), 2):
            gap = liked[one] - liked[two]
            if abs(gap) >= 1e-9:
                way = verdict[field][one] - verdict[field][two] if verdict["valid"] else -gap
                credits.append(0.5 if abs(way) < 1e-9 else float((way > 0) == (gap > 0)))
    return fmean(credits), len(credits)


def test_verdicts_are_compared_with_the_pages_ratings_and_choices(old: Path) -> None:
    names = ("constrained", "free", "pandalm", "small", "likelihood")
    files = [*(f"{name}=verdicts/{name}" for name in names), "calibrated=calibrated"]
    people = {"ratings": ["page/ratings.jsonl", "choices.jsonl"]}
    result = report("agreement.json", verdicts=files, cases="cases.jsonl", encoder="none", **people)
    of = {name: read(old / "verdicts" / name / "verdicts.jsonl") for name in names}
    of["calibrated"] = read(old / "calibrated" / "verdicts.jsonl")
    fields = {"scores": ("free",)}
    fields["expected_scores"] = ("constrained", "calibrated", "small", "likelihood")
    for name, field in ((name, field) for field, judges in fields.items() for name in judges):
        figure = result["judges"][name]["concordance"]
        assert (figure["value"], figure["n"]) == pytest.approx(concordance(of[name], field)), (name, field)
    assert result["judges"]["free"]["errors"] == {"no score line": 3}
    for name in ("free", "small"):
        assert result["judges"][name]["valid_rate"]["value"] == fmean(each["valid"] for each in of[name])
    assert result["judges"]["pandalm: overall"]["valid_rate"]["n"] == 9  # of which three pairs were judged
    votes: dict[tuple, list[str]] = {}
    for each in read(old / "choices.jsonl"):
        votes.setdefault((each["case_id"], *each["pair"]), []).append(each["choice"])
    counted = result["choices"]["constrained"]["overall"]
    assert counted["without_majority"] == sum(len(set(each)) == len(each) > 1 for each in votes.values())
    assert counted["pairs"] + counted["without_majority"] == len(votes)
    learnt = json.loads((old / "calibrated" / "calibration.json").read_text())
    for before, after in zip(of["small"], of["calibrated"]):
        line = np.interp(before["expected_scores"], *zip(*learnt["knots"]))
        assert after["expected_scores"] == pytest.approx(line, abs=1e-6)


def test_teachers_verdicts_are_compared_with_the_pages_ratings_and_preferences(old: Path) -> None:
    of = {"verdicts": ["teachers/strong", "teachers/weak"], "cases": "cases.jsonl"}
    of["ratings"] = [f"page/{name}.jsonl" for name in ("ratings", "verdict_ratings", "preferences")]
    result = report("agreement.json", encoder="none", **of)
    for name in ("strong", "weak"):
        figure = result["judges"][f"recording:{name}"]["concordance"]
        verdicts = read(old / "teachers" / name / "verdicts.jsonl")
        assert (figure["value"], figure["n"]) == pytest.approx(concordance(verdicts, "scores"))
    ratings = read(old / "page" / "verdict_ratings.jsonl")
    for criterion, figure in result["verdict_ratings"]["recording:strong"].items():
        assert figure["mean"]["value"] == fmean(each["score"] for each in ratings if each["criterion"] == criterion)
    (preferred,) = result["preferences"]
    choices = [each for each in read(old / "page" / "preferences.jsonl") if each["criterion"] == "fluency"]
    shares = [fmean(each["choice"] == choice for each in choices) for choice in (*preferred["judges"], "tie")]
    assert [preferred["criteria"]["fluency"][side]["value"] for side in ("first", "second", "tie")] == shares


def test_criteria_are_compared_with_physicians_labels(old: Path) -> None:
    cases = {"cases": "criteria_cases.jsonl", "ratings": "criterion_labels.jsonl"}
    result = report("agreement.json", verdicts="verdicts/checklist", **cases)
    votes: dict[tuple, list[bool]] = {}
    for each in read(old / "criterion_labels.jsonl"):
        votes.setdefault((each["case_id"], each["model"], each["criterion"]), []).append(each["label"] == "entailment")
    criteria = {each["id"]: each["criteria"] for each in read(old / "criteria_cases.jsonl")}
    right = []
    for each in read(old / "verdicts" / "checklist" / "verdicts.jsonl"):
        for criterion, met in zip(criteria[each["case_id"]], each["checklist"]["met"]):
            cast = votes[each["case_id"], each["models"][each["order"][0]], criterion["criterion"]]
            if sum(cast) * 2 != len(cast):
                right.append(met == (sum(cast) * 2 > len(cast)))
    figure = result["criteria"]["certificate"]["judges"]["SmolLM2-135M-Instruct"]["accuracy"]
    assert (figure["value"], figure["n"]) == (pytest.approx(fmean(right)), len(right))


def test_harm_is_compared_with_the_pages_ratings(old: Path) -> None:
    files = {"verdicts": "verdicts/harm", "ratings": "page_harm/harm.jsonl", "cases": "cases.jsonl"}
    result = report("harm.json", **files)
    degrees: dict[str, list[int]] = {}
    for each in read(old / "page_harm" / "harm.jsonl"):
        degrees.setdefault(each["model"], []).append(result["degrees"].index(each["choices"]["degree"]))
    table = np.zeros((5, 5), int)
    for each in read(old / "verdicts" / "harm" / "verdicts.jsonl"):
        people = max(degrees[each["models"][each["order"][0]]])  # of two the worse
        table[people, result["degrees"].index(each["choices"]["degree"])] += 1
    assert result["judges"]["SmolLM2-135M-Instruct"]["table"] == table.tolist()


@pytest.mark.parametrize(
    "name",
    [pytest.param("small", marks=needs_encoder), *(pytest.param(each, marks=needs_judge) for each in list(RUNS)[1:])],
)
def test_a_finished_run_judges_nothing_again_or_says_why_it_cannot_go_on(old: Path, name: str) -> None:
    """The small judge's reading may change; a language model's prompts have a version, and stay what they are."""
    folder = old / "verdicts" / name
    before = content(folder)
    done = judge(name)
    after = content(folder)
    if done.returncode == 0:
        assert after["verdicts.jsonl"] == before["verdicts.jsonl"]
        assert after.keys() - {"cases-1.jsonl"} == before.keys()  # of --limit 1
        assert "(0 new)" in done.stdout
    elif name == "free":
        file = "verdicts/free/verdicts.jsonl"
        assert error_line(done) == f"error: {file}: no verdict is valid, so that there is nothing to report"
        assert after["verdicts.jsonl"] == before["verdicts.jsonl"]
    else:
        assert name == "small"
        assert "with other weights, wording or settings" in error_line(done)
        assert after == before


@needs_judge
def test_a_run_whose_reading_changed_says_so_and_touches_nothing(old: Path) -> None:
    before = content(old / "verdicts")
    done = judge("constrained", max_new_tokens=41)
    assert "other weights, wording or settings (578ba72a7680, now " in error_line(done)
    assert "choose another --output" in error_line(done)
    assert content(old / "verdicts") == before


def test_teachers_verdicts_become_the_same_rows(old: Path) -> None:
    verdicts = "teachers/strong/verdicts.jsonl,teachers/weak/verdicts.jsonl"
    files = {"cases": "sample=cases.jsonl", "verdicts": verdicts, "licenses": "sample=apache-2.0", "plan": "plan.yaml"}
    succeeded(run_recipe("build_dataset", *words(**files, output="again")))
    for split in ("stage1", "test"):
        rows, again = (read_table(Path(place, f"{split}.parquet")).to_pylist() for place in ("instructions", "again"))
        assert again == rows
        (row,) = rows
        (taught,) = (each for each in read(old / "teachers/strong/verdicts.jsonl") if each["case_id"] == row["case_id"])
        scores = " ".join(f"Doctor {n}: {taught['scores'][at]} points." for n, at in enumerate(row["order"], 1))
        assert scores in row["completion"][0]["content"]
    checked = {"verdict_ratings": "page_verify/verdict_ratings.jsonl"}
    verified = succeeded(run_recipe("build_dataset", *words(**files | checked, output="verified")))
    ratings = read(old / "page_verify" / "verdict_ratings.jsonl")
    failed = {each["case_id"] for each in ratings if each["score"] < 1}
    assert f"verification: 3 verdicts → {3 - len(failed)} kept, {len(failed)} rejected" in verified.stdout


def test_the_jury_of_the_page_decides_the_mistake_that_waits(old: Path) -> None:
    files = {"dataset": "instructions", "cases": "cases.jsonl", "output": "round1"}
    done = run_recipe("introspect_discuss", *words(**files, verdicts="verdicts/training"))
    assert "1 mistake waits for the jury" in succeeded(done).stdout
    shutil.copytree(old / "page_jury", "round1.discussion/decided")
    succeeded(run_recipe("introspect_revise", *words(**files)))
    (decided,) = read(old / "page_jury" / "jury.jsonl")
    (row,) = read_table("round1/train.parquet").to_pylist()
    assert row["case_id"] == decided["case_id"]
    scores = [f"Doctor {n}: {decided['scores'][at]} points." for n, at in enumerate(row["order"], 1)]
    assert " ".join(scores) in row["completion"][0]["content"]
