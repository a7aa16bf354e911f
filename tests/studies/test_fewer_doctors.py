"""A study with few doctors: rate some cases on the page, compare, and rate what the judge abstains from on the same page."""

import json
from pathlib import Path

import pytest
import yaml
from doubles.agreement_study import CASES, MODELS, noisy_verdicts, people_means, read, write
from programs import run_recipe, succeeded

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
            store.answer("made-up", task.id, task.part, {"scores": points}, task.version)
        write_export(store, folder / "export")
    finally:
        store.close()
    return read(folder / "export" / "ratings.jsonl")


def test_few_ratings_correct_many_verdicts_and_what_is_not_certified_is_rated_on_the_page(tmp_path: Path) -> None:
    ratings = rated_on_the_page(tmp_path / "first", CASES, 20)
    assert len(ratings) == 20 * 3 * len(CRITERIA)
    models = {case["id"]: [each["model"] for each in case["responses"]] for case in read(CASES)}
    verdicts = [each | {"models": models[each["case_id"]]} for each in noisy_verdicts("good", 0.3, 1)]
    write(tmp_path / "good.jsonl", verdicts)
    first = write(tmp_path / "ratings.jsonl", ratings)
    given = ["--cases", CASES, "--verdicts", tmp_path / "good.jsonl", "--output", tmp_path / "out", "--ratings", first]
    done = succeeded(run_recipe("compare", *given))
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["cases"]["rated_cases"] == 20
    means = people_means()
    for model in MODELS:
        estimate = comparison["models"][model]["mean"]["good"]["prediction_powered"]
        truth = sum(means[case["id"], model] for case in read(CASES)) / 30
        assert estimate["value"] == pytest.approx(truth, abs=0.35)

    # Twenty rated cases certify nothing at 10 %: all the others come back to the same page.
    done = run_recipe(
        "calibrate", "--verdicts", tmp_path / "good.jsonl", "--ratings", first, "--rubric", "automedeval", "--risk", 0.1,
        "--output", tmp_path / "calibrated",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "nothing can be certified: 20 rated cases" in done.stdout
    unsure = {each["case_id"] for each in read(tmp_path / "calibrated" / "verdicts.jsonl") if each["abstains"]}
    queue = write(tmp_path / "queue.jsonl", [case for case in read(CASES) if case["id"] in unsure])
    left = rated_on_the_page(tmp_path / "second", queue)
    assert len(unsure) == 10
    assert {rating["case_id"] for rating in [*ratings, *left]} == {case["id"] for case in read(CASES)}
