"""The export: record files that report.py, build_dataset.py and introspect_revise.py read as they are."""

from collections import Counter
from pathlib import Path

import pytest
from doubles import study_page
from doubles.agreement_study import read
from doubles.introspection_study import MODELS, Lessons, case_of, rationale_of, verdict_of
from doubles.small_study import (
    ASKED,
    CRITERIA,
    a_study,
    finish,
    finish_all,
    send,
    write_lines,
    write_study,
)
from doubles.study_page import opened, physician
from factories import read_json, read_yaml, write_yaml
from programs import ROOT, SAMPLE, failed, flags, run_recipe, succeeded, told

from automedeval.annotation.export import write_export
from automedeval.annotation.study import read_study
from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import read_ratings
from automedeval.records import RecordError
from automedeval.rubrics.rationale import split_steps
from automedeval.stats.bootstrap import is_known


def test_ratings_of_verdicts_carry_role_tags_and_comment(tmp_path, open_stores):
    store = open_stores(a_study(tmp_path, number=1, rate={"judges": ["y"]}))
    task = send(store, store.next("cleo"))
    scores = dict(zip(ASKED, (5, 2, 4)))
    tags = ["unsupported_rating", "incomplete"]
    send(store, task, {"scores": scores, "tags": tags, "comment": "Mixes\nthem up. "})
    write_export(store, tmp_path)
    rated = store.study.verdicts["case-0", "y"]
    about = {"case_id": "case-0", "judge": "y", "annotator": "cleo", "role": "chief"}
    about["verdict_digest"] = rated.digest
    lines = read(tmp_path / "verdict_ratings.jsonl")
    assert {line["criterion"]: line["score"] for line in lines} == scores
    for line in lines:
        said = {"tags": [], "comment": None}
        if line["criterion"] == "attribution":
            said = {"tags": ["incomplete", "unsupported_rating"], "comment": "Mixes\nthem up."}
        assert line == line | about | said


def test_preferences_name_the_judges_whatever_side_they_stood_on(tmp_path, open_stores):
    study = a_study(tmp_path, number=12, rate=None, prefer={"judges": ["x", "y"]})
    store = open_stores(study)
    sides = set()
    while (task := store.next("ann")) is not None:
        side_of_y = str(task.order.index(1) + 1)
        sides.add(side_of_y)
        choices = dict(zip(ASKED, (side_of_y, "tie", "1")))
        send(store, task, {"choices": choices, "comment": "Close."})
    assert sides == {"1", "2"}
    write_export(store, tmp_path)
    lines = read(tmp_path / "preferences.jsonl")
    assert len(lines) == 36
    for line in lines:
        chosen = {"knowledge": "y", "attribution": "tie", "fluency": line["sides"][0]}
        assert line["choice"] == chosen[line["criterion"]]
        assert line["judges"] == ["x", "y"]
    comments = [line["comment"] for line in lines]
    assert comments.count("Close.") == 12


def test_an_earlier_export_does_not_outlive_its_answers(tmp_path, open_stores):
    store = open_stores(a_study(tmp_path, rate={"judges": []}))
    finish(store, store.next("ann"))
    write_export(store, tmp_path / "out")
    assert (tmp_path / "out/ratings.jsonl").exists()
    store.undo("ann")
    written = write_export(store, tmp_path / "out")
    assert written == {"history.jsonl": 3}
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["history.jsonl"]
    (tmp_path / "file").touch()
    with pytest.raises(RecordError):
        write_export(store, tmp_path / "file")


def test_an_export_replaces_no_files_of_others(tmp_path, open_stores):
    """Ratings that somebody wrote by hand, and the answers of another study, would be overwritten or removed."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    rated = open_stores(a_study(tmp_path / "one", rate={"judges": []}))
    compared = open_stores(a_study(tmp_path / "other", rate=None, prefer={"judges": ["x", "y"]}))
    for store in (rated, compared):
        finish(store, store.next("ann"))
    write_lines(tmp_path / "ratings.jsonl", [{"case_id": "by hand"}])
    write_export(rated, tmp_path / "out")
    files = (tmp_path / "ratings.jsonl", *(tmp_path / "out").iterdir())
    before = [file.read_bytes() for file in files]
    for folder in (tmp_path, tmp_path / "out"):
        with pytest.raises(RecordError):
            write_export(compared, folder)
    assert [file.read_bytes() for file in files] == before
    assert not (tmp_path / "preferences.jsonl").exists()
    finish(rated, rated.next("ann"))
    written = write_export(rated, tmp_path / "out")
    assert written["ratings.jsonl"] == 2 * 9


def rated_in(folder: Path) -> tuple[list[int], list[str]]:
    """Return how many ratings of an export each response has in the cases of the same folder, and the notes on them."""
    cases = Cases.read(str(folder / "cases.jsonl"))
    people = read_ratings(str(folder / "ratings.jsonl"), cases)
    return is_known(people.ratings).sum(axis=(0, 2)).tolist(), people.notes


def test_scores_of_a_reference_are_no_ratings_of_a_case(tmp_path, open_stores):
    write_study(tmp_path, number=1)
    shown = verdict_of(case_of(0), (1, 2, 3, 5), "x", models=[*MODELS, "reference"])
    write_lines(tmp_path / "verdicts.jsonl", [shown])
    store = open_stores(read_study(tmp_path / "study.yaml"))
    task = store.next("ann")
    assert len(task.order) == 4
    finish(store, task)
    counts = write_export(store, tmp_path)
    assert counts["ratings.jsonl"] == 9
    assert counts["scores of references"] == 3
    ratings = read(tmp_path / "ratings.jsonl")
    assert {line["model"] for line in ratings} == set(MODELS)
    # Earlier exports have the digits alone, which a spreadsheet may take for a number.
    file = tmp_path / "ratings.jsonl"
    text = file.read_text()
    assert text.count('"text-') == 9
    file.write_text(text.replace('"text-', '"', 4))
    # One answer becomes another text.
    (case,) = read(tmp_path / "cases.jsonl")
    case["responses"][1]["text"] += " Or not."
    write_lines(tmp_path / "cases.jsonl", [case])
    counts, notes = rated_in(tmp_path)
    assert counts == [3, 0, 3]
    assert (
        "3 left out, of 1 cases that are not among these 1, lack the answer or have other texts"
        in notes[0]
    )
    # A model has another name, in both files or in one.
    case["responses"][0]["model"] = "renamed"
    write_lines(tmp_path / "cases.jsonl", [case])
    with pytest.raises(RecordError, match=f"no response of '{MODELS[0]}'"):
        rated_in(tmp_path)
    for line in ratings:
        line["model"] = line["model"].replace(MODELS[0], "renamed")
    write_lines(tmp_path / "ratings.jsonl", ratings)
    counts, _ = rated_in(tmp_path)
    assert counts == [3, 0, 3]


def test_a_model_called_reference_is_a_model(tmp_path, open_stores):
    """Nobody was shown the reference: one of the candidates has its name, for instance a physician's own answer."""
    models = [MODELS[0], "reference", MODELS[2]]
    study = write_study(tmp_path, number=1, verdicts=None, rate={})
    write_lines(tmp_path / "cases.jsonl", [case_of(0, models)])
    store = open_stores(read_study(study))
    task = store.next("ann")
    scores = {}
    comments = {}
    for slot, index in enumerate(task.order, 1):
        scores[str(slot)] = dict.fromkeys(CRITERIA, index + 1)
        comments[str(slot)] = f"On {models[index]}."
    send(store, task, {"scores": scores, "comments": comments})
    written = write_export(store, tmp_path)
    assert "scores of references" not in written
    lines = read(tmp_path / "ratings.jsonl")
    rated = Counter((line["model"], line["score"]) for line in lines)
    assert rated == {(model, points): 3 for points, model in enumerate(models, 1)}
    said = [(line["model"], line["comment"]) for line in lines if line["comment"]]
    wanted = [(model, f"On {model}.") for model in models]
    assert sorted(said) == sorted(wanted)


def test_report_reads_what_two_physicians_answered(tmp_path, open_stores, monkeypatch):
    monkeypatch.chdir(ROOT)
    content = read_yaml(Path("recipes/runs/automedeval-135m/annotate.yaml"))
    content["database"] = str(tmp_path / "db")
    file = tmp_path / "study.yaml"
    write_yaml(file, content)
    store = open_stores(read_study(file))
    finish_all(store, "physician-1", "physician-2")
    written = write_export(store, tmp_path / "out")
    files = flags(verdicts=SAMPLE / "verdicts.jsonl", cases=SAMPLE / "train_cases.jsonl")
    options = flags(encoder="none", resamples=200, output=tmp_path / "report")
    names = ("ratings", "verdict_ratings", "preferences")
    ratings = [tmp_path / "out" / f"{name}.jsonl" for name in names]
    succeeded(run_recipe("report", *files, *options, "--ratings", *ratings))
    report = read_json(tmp_path / "report/agreement.json")
    rated = {(line["case_id"], line["model"]) for line in read(ratings[0])}
    assert report["cases"]["rated_responses"] == len(rated)
    counted = 0
    for judge in report["verdict_ratings"].values():
        for criterion in judge.values():
            counted += criterion["mean"]["n"]
    assert counted == written["verdict_ratings.jsonl"]
    (compared,) = report["preferences"]
    chosen = [criterion["first"]["n"] for criterion in compared["criteria"].values()]
    assert sum(chosen) == written["preferences.jsonl"]


def test_introspect_takes_the_jurys_decisions_up(tmp_path, open_stores):
    (tmp_path / "round").mkdir()
    lessons = Lessons(tmp_path / "round")
    for number in range(6):
        lessons.misjudge(number, (3, 3, 3))
    told(lessons.introspect(), "6 cases for the jury")
    discussion = lessons.folder / "round1.discussion"
    jury = {"queue": str(discussion / "jury.jsonl")}
    study = a_study(tmp_path, 8, rate=None, verdicts=None, jury=jury)
    store = open_stores(study)
    points = (2, 1, 5)
    seen = []
    for decision in ("keep", "revise", "revise", "revise", "revise"):
        task = store.next("cleo")
        with store.transaction():
            store._touch(task.id, slots="[2, 0, 1]")  # as earlier versions drew them
        task = store.assignment("cleo", task.id)
        seen.append(task.item.case_id)
        rationale = rationale_of(MODELS, task.order, "judged anew")
        scores = {str(slot): points[index] for slot, index in enumerate(task.order, 1)}
        send(store, task, {"decision": decision, "rationale": rationale, "scores": scores})
    written = write_export(store, discussion / "decided")
    assert written["jury.jsonl"] == 5
    told(lessons.introspect(), "1 case for the jury")
    succeeded(lessons.introspect(waiting="keep_old"))
    records = lessons.revisions()
    kept, *revised = [records[case_id] for case_id in seen]
    assert kept["decision"] == "keep"
    assert kept["annotator"] == "cleo"
    for record in revised:
        verdict = record["revised_verdict"]
        assert verdict["scores"] == list(points)
        _, *steps = split_steps(verdict["rationale"]).values()
        assert steps == [f"{MODELS[index]} is judged anew." for index in record["order"]]
    # The queue is as it was; the page goes on with the one that is left.
    again = open_stores(read_study(study.place))
    finish(again, again.next("cleo"))
    write_export(again, discussion / "decided")
    told(lessons.introspect(), "0 waiting, 6 decided (jury, keep: 2, jury, revise: 4)")


def test_the_report_reads_how_harmful_the_answers_are(tmp_path):
    moderate = {f"choices-{slot}-degree": "moderate" for slot in (1, 2, 3)}
    with opened(study_page.write_study(tmp_path, ("harm",), cases=1)) as store:
        for name in ("physician-2", "physician-3"):
            someone = physician(store, name)
            someone.post(someone.place(), **someone.fill() | moderate)
        write_export(store, tmp_path / "export")
    ratings = tmp_path / "export/harm.jsonl"
    files = flags(ratings=ratings, cases=tmp_path / "cases.jsonl", output=tmp_path / "report")
    succeeded(run_recipe("report", *files))
    people = read_json(tmp_path / "report/harm.json")["people"]
    assert people["names"] == ["physician-2", "physician-3"]
    assert people["kappa"]["n"] == 3
    (case,) = read(tmp_path / "cases.jsonl")
    write_lines(tmp_path / "cases.jsonl", [case | {"question": "Another one?"}])
    failed(
        run_recipe("report", *files),
        "no rating of any case in ",
        ", as it is now: ids agree, and texts differ",
    )
