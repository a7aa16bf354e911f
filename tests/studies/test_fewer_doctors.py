"""The way of a study with few doctors: rate some, let the judge name the next, rate those on the page, compare, keep, queue."""

import json
from pathlib import Path

import pytest
import yaml
from doubles.agreement_study import CASES, MODELS, noisy_verdicts, people_means, read, write
from programs import run_recipe

from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study

CRITERIA = ("relevancy", "knowledge_correctness", "fluency")


def rated_on_the_page(folder: Path, cases: Path, limit: int | None = None) -> list[dict]:
    """Have one made-up physician, who says what people say on average, rate the cases; return the exported ratings."""
    study = {
        "title": "Few doctors",
        "cases": str(cases),
        "rate": {"raters": 1, "judges": []},
        "order": "file",
        "annotators": [{"name": "made-up", "role": "attending"}],
        "database": str(folder / "answers.sqlite"),
    }
    folder.mkdir()
    (folder / "study.yaml").write_text(yaml.safe_dump(study | ({"limit": limit} if limit else {})))
    means = people_means()
    store = Store(read_study(folder / "study.yaml"))
    by_id = {case["id"]: case for case in read(cases)}
    try:
        while (task := store.next("made-up")) is not None:
            case = by_id[task.item.case_id]
            points = {}
            for slot, index in enumerate(task.order, 1):
                mean = means[case["id"], case["responses"][index]["model"]]
                points[str(slot)] = dict.fromkeys(CRITERIA, round(mean))
            store.answer("made-up", task.id, task.part, {"scores": points}, task.version, 2.0)
        write_export(store, folder / "export")
    finally:
        store.close()
    return read(folder / "export" / "ratings.jsonl")


def test_cases_that_the_judge_asks_for_are_rated_and_weigh_in(tmp_path: Path) -> None:
    ratings = rated_on_the_page(tmp_path / "first", CASES, 12)
    assert len(ratings) == 12 * 3 * len(CRITERIA)
    write(tmp_path / "good.jsonl", noisy_verdicts("good", 0.3, 1))
    given = ["--cases", CASES, "--verdicts", tmp_path / "good.jsonl", "--output", tmp_path / "out", "--resamples", 200]
    first = write(tmp_path / "ratings.jsonl", ratings)
    done = run_recipe("compare", *given, "--ratings", first, "--rate_next", 8)
    assert done.returncode == 0, done.stderr
    asked = [case["id"] for case in read(tmp_path / "out" / "next_cases.jsonl")]
    chances = (tmp_path / "out" / "probabilities.jsonl").rename(tmp_path / "chances.jsonl")

    more = rated_on_the_page(tmp_path / "second", tmp_path / "out" / "next_cases.jsonl")
    assert {rating["case_id"] for rating in more} == set(asked)
    assert len(asked) == 8
    both = write(tmp_path / "both.jsonl", ratings + more)
    done = run_recipe("compare", *given, "--ratings", both, "--probabilities", chances)
    assert done.returncode == 0, done.stderr
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert (comparison["cases"]["rated_cases"], comparison["cases"]["weighted"]) == (20, True)
    means = people_means()
    for model in MODELS:
        estimate = comparison["models"][model]["mean"]["good"]["prediction_powered"]
        truth = sum(means[case["id"], model] for case in read(CASES)) / 30
        assert estimate["value"] == pytest.approx(truth, abs=0.35)

    # Twenty rated cases certify nothing at 10 %: all the others come back to the same page.
    done = run_recipe(
        "abstain", "--verdicts", tmp_path / "good.jsonl", "--cases", CASES, "--ratings", both, "--abstain_at", 0.1,
        "--output", tmp_path / "selected",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    left = rated_on_the_page(tmp_path / "third", tmp_path / "selected" / "queue" / "cases.jsonl")
    kept = {case["id"] for case in read(tmp_path / "selected" / "kept" / "cases.jsonl")}
    answered = {rating["case_id"] for rating in [*ratings, *more, *left]}
    assert answered | kept == {case["id"] for case in read(CASES)}
    assert not answered & kept
