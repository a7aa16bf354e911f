"""The export: record files that report.py, build_dataset.py and introspect_revise.py read as they are."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from doubles import study_page
from doubles.agreement_study import read
from doubles.introspection_study import MODELS, Lessons, case_of, rationale_of, verdict_of
from doubles.small_study import ASKED, CRITERIA, a_study, finish, send, write_lines, write_study
from doubles.study_page import opened, physician
from programs import ROOT, SAMPLE, flags, run_recipe, succeeded

from automedeval.annotation.export import write_export
from automedeval.annotation.study import read_study
from automedeval.records import RecordError, Verdict, read_records
from automedeval.rubrics.rationale import split_steps
from automedeval.rubrics.slots import seen_from


def by_model(task, models, points) -> dict:
    """Return an answer that gives every response its model's points, in whatever slot it stands."""
    return {
        str(slot): dict.fromkeys(CRITERIA, points[models[index]])
        for slot, index in enumerate(task.order, 1)
    }


def test_ratings_of_verdicts_carry_role_tags_and_comment(tmp_path, open_stores):
    store = open_stores(a_study(tmp_path, number=1, rate={"judges": ["y"]}))
    task = send(store, store.next("cleo"))
    scores, tags = dict(zip(ASKED, (5, 2, 4))), ["unsupported_rating", "incomplete"]
    send(store, task, {"scores": scores, "tags": tags, "comment": "Mixes\nthem up. "})
    write_export(store, tmp_path)
    lines = read(tmp_path / "verdict_ratings.jsonl")
    assert {line["criterion"]: line["score"] for line in lines} == scores
    about = {
        tuple(line[name] for name in ("case_id", "judge", "annotator", "role")) for line in lines
    }
    assert about == {("case-0", "y", "cleo", "chief")}
    told = [
        (line["criterion"], line["tags"], line["comment"])
        for line in lines
        if line["tags"] or line["comment"]
    ]
    assert told == [("attribution", ["incomplete", "unsupported_rating"], "Mixes\nthem up.")]
    (rated,) = (
        each for each in read_records(tmp_path / "verdicts.jsonl", Verdict) if each.author[0] == "y"
    )
    assert {line["verdict_digest"] for line in lines} == {rated.digest}


def test_preferences_name_the_judges_whatever_side_they_stood_on(tmp_path, open_stores):
    store, sides = (
        open_stores(a_study(tmp_path, number=12, rate=None, prefer={"judges": ["x", "y"]})),
        Counter(),
    )
    while (task := store.next("ann")) is not None:
        side_of_y = str(task.order.index(1) + 1)
        sides[side_of_y] += 1
        send(
            store, task, {"choices": dict(zip(ASKED, (side_of_y, "tie", "1"))), "comment": "Close."}
        )
    assert set(sides) == {"1", "2"}
    write_export(store, tmp_path)
    lines = read(tmp_path / "preferences.jsonl")
    assert (len(lines), {line["choice"] for line in lines if line["criterion"] == "knowledge"}) == (
        36,
        {"y"},
    )
    assert {line["choice"] for line in lines if line["criterion"] == "attribution"} == {"tie"}
    assert all(
        line["choice"] == line["sides"][0] for line in lines if line["criterion"] == "fluency"
    )
    assert all(line["judges"] == ["x", "y"] for line in lines)
    assert sum(line["comment"] == "Close." for line in lines) == 12


def test_an_earlier_export_does_not_outlive_its_answers(tmp_path, open_stores):
    store = open_stores(a_study(tmp_path, rate={"judges": []}))
    finish(store, store.next("ann"))
    write_export(store, tmp_path / "out")
    assert (tmp_path / "out" / "ratings.jsonl").exists()
    store.undo("ann")
    assert write_export(store, tmp_path / "out") == {"history.jsonl": 3}
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["history.jsonl"]
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="file: "):
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
    before = {
        file: file.read_bytes()
        for file in (tmp_path / "ratings.jsonl", *(tmp_path / "out").iterdir())
    }
    for folder in (tmp_path, tmp_path / "out"):
        with pytest.raises(RecordError, match=r"its ratings.jsonl is not of this study's database"):
            write_export(compared, folder)
    assert {file: file.read_bytes() for file in before} == before
    assert not (tmp_path / "preferences.jsonl").exists()
    finish(rated, rated.next("ann"))
    assert write_export(rated, tmp_path / "out")["ratings.jsonl"] == 2 * 9


def test_scores_of_a_reference_are_no_ratings_of_a_case(tmp_path, open_stores):
    write_study(tmp_path, number=1)
    shown = verdict_of(case_of(0), (1, 2, 3, 5), "x", models=[*MODELS, "reference"])
    write_lines(tmp_path / "verdicts.jsonl", [shown])
    store = open_stores(read_study(tmp_path / "study.yaml"))
    task = store.next("ann")
    assert len(task.order) == 4
    finish(store, task)
    counts = write_export(store, tmp_path)
    assert (counts["ratings.jsonl"], counts["scores of references"]) == (9, 3)
    assert {line["model"] for line in read(tmp_path / "ratings.jsonl")} == set(MODELS)


def test_a_model_called_reference_is_a_model(tmp_path, open_stores):
    """Nobody was shown the reference: one of the candidates has its name, for instance a physician's own answer."""
    models = [MODELS[0], "reference", MODELS[2]]
    study = write_study(tmp_path, number=2, verdicts=None, rate={"raters": 2})
    cases = [case_of(at).to_dict() for at in range(2)]
    for case in cases:
        for response, model in zip(case["responses"], models):
            response["model"] = model
    write_lines(tmp_path / "cases.jsonl", cases)
    store, ratings = open_stores(read_study(study)), []
    for name, points in (("ann", (1, 3, 5)), ("bob", (5, 3, 1))):
        while (task := store.next(name)) is not None:
            comments = {"2": f"On {models[task.order[1]]}."}
            send(
                store,
                task,
                {"scores": by_model(task, models, dict(zip(models, points))), "comments": comments},
            )
            ratings += [
                (task.item.case_id, name, model, score) for model, score in zip(models, points)
            ]
    counts = write_export(store, tmp_path)
    assert "scores of references" not in counts
    lines = read(tmp_path / "ratings.jsonl")
    comments = [line for line in lines if line["comment"]]
    assert (len(comments), {line["comment"] == f"On {line['model']}." for line in comments}) == (
        4,
        {True},
    )
    exported = Counter(
        (line["case_id"], line["annotator"], line["model"], line["score"]) for line in lines
    )
    assert exported == Counter(dict.fromkeys(ratings, len(CRITERIA)))


def test_report_reads_what_two_physicians_answered(tmp_path, open_stores, monkeypatch):
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(Path("recipes/runs/automedeval-135m/annotate.yaml").read_text())
    (tmp_path / "study.yaml").write_text(
        yaml.safe_dump(content | {"database": str(tmp_path / "db")}, sort_keys=False)
    )
    store = open_stores(read_study(tmp_path / "study.yaml"))
    for name in ("physician-1", "physician-2"):
        while (task := store.next(name)) is not None:
            finish(store, task)
    written = write_export(store, tmp_path / "out")
    options = [
        "--verdicts",
        SAMPLE / "verdicts.jsonl",
        "--cases",
        SAMPLE / "train_cases.jsonl",
        "--encoder",
        "none",
    ]
    options += ["--resamples", 200, "--output", tmp_path / "report"]
    names = ("ratings", "verdict_ratings", "preferences")
    options += ["--ratings", *(tmp_path / "out" / f"{name}.jsonl" for name in names)]
    succeeded(run_recipe("report", *options))
    report = json.loads((tmp_path / "report" / "agreement.json").read_text())
    assert report["cases"]["rated_responses"] == len(
        {(r["case_id"], r["model"]) for r in read(tmp_path / "out/ratings.jsonl")}
    )
    counted = [
        each["mean"]["n"] for judge in report["verdict_ratings"].values() for each in judge.values()
    ]
    assert sum(counted) == written["verdict_ratings.jsonl"]
    (compared,) = report["preferences"]
    assert (
        sum(each["first"]["n"] for each in compared["criteria"].values())
        == written["preferences.jsonl"]
    )


def test_introspect_takes_the_jurys_decisions_up(tmp_path, open_stores):
    (tmp_path / "round").mkdir()
    lessons = Lessons(tmp_path / "round")
    for number in range(6):
        lessons.misjudge(number, (3, 3, 3))
    assert "6 cases wait" in succeeded(lessons.introspect()).stdout
    discussion = lessons.folder / "round1.discussion"
    jury = {"queue": str(discussion / "jury.jsonl")}
    study = a_study(tmp_path, 8, rate=None, verdicts=None, jury=jury)
    store = open_stores(study)
    points = dict(zip(MODELS, (2, 1, 5)))
    seen = {}
    for decision in ("keep", *["revise"] * 4):
        task = store.next("cleo")
        seen[task.item.case_id] = decision
        content = {
            "decision": decision,
            "rationale": rationale_of(MODELS, task.order, "judged anew"),
        }
        scores = {str(slot): points[MODELS[index]] for slot, index in enumerate(task.order, 1)}
        send(store, task, content | {"scores": scores})
    assert write_export(store, discussion / "decided")["jury.jsonl"] == 5
    assert "1 case waits" in succeeded(lessons.introspect()).stdout
    succeeded(lessons.introspect("--waiting", "keep_old"))
    records = lessons.revisions()
    kept, *revised = seen
    assert (records[kept]["decision"], records[kept]["annotator"]) == ("keep", "cleo")
    for case_id in revised:
        verdict, order = records[case_id]["revised_verdict"], records[case_id]["order"]
        assert verdict["scores"] == list(points.values())
        steps = split_steps(verdict["rationale"])
        assert [steps[slot] for slot in (1, 2, 3)] == [
            f"{MODELS[index]} is judged anew." for index in order
        ]
    # The queue is as it was; the page goes on with the one that is left.
    again = open_stores(read_study(study.place))
    assert [item.case_id for item in again.study.items] == list(study.disputes)
    for case_id in seen:
        assert (
            seen_from(again.study.disputes[case_id].recorded, (0, 1, 2)).scores
            == lessons.record[case_id]
        )
    assert len(list(again.answers())) == 5
    finish(again, again.next("cleo"))
    write_export(again, discussion / "decided")
    assert "6 cases → 2 kept, 4 revised, 0 waiting" in lessons.introspect().stdout


def test_the_report_reads_how_harmful_the_answers_are(tmp_path):
    with opened(study_page.write_study(tmp_path, ("harm",), cases=1)) as store:
        for name in ("physician-2", "physician-3"):
            someone = physician(store, name)
            someone.post(
                someone.place(),
                **someone.fill() | {f"choices-{slot}-degree": "moderate" for slot in (1, 2, 3)},
            )
        write_export(store, tmp_path / "export")
    choices = {"degree": "mild", "likelihood": "low", "cause": "commission"}
    mild = {
        "case_id": "case-1",
        "judge": "mild",
        "rubric": "harm@1",
        "valid": True,
        "choices": choices,
    }
    verdicts = [mild | {"order": [slot], "rationale": "as much"} for slot in range(3)]
    files = {
        "verdicts": write_lines(tmp_path / "v.jsonl", verdicts),
        "cases": tmp_path / "cases.jsonl",
    }
    files |= {"ratings": tmp_path / "export" / "harm.jsonl", "output": tmp_path / "report"}
    succeeded(run_recipe("report", *flags(**files)))
    found = json.loads((tmp_path / "report" / "harm.json").read_text())
    assert (found["people"]["names"], found["people"]["kappa"]["n"]) == (
        ["physician-2", "physician-3"],
        3,
    )
