"""Ratings as people and other programs write them."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from factories import read_json
from programs import failed, judge_by_length, run_command, succeeded
from tables import each_row, refused, rows_of, write_csv

from automedeval.meta_evaluation.verdicts.cases import Cases
from automedeval.meta_evaluation.verdicts.ratings import read_ratings
from automedeval.records import Case, Response

ROWS = rows_of(__file__)
ASKED = {"k1": "How long is flu contagious?", "k2": "Can I take\n ibuprofen with lisinopril?"}
ANSWERS = (Response("m1", "A."), Response("m2", "B."), Response("m0", "C."))
# m0 answers the second case alone
CASES = [Case(name, text, ANSWERS[:at]) for at, (name, text) in enumerate(ASKED.items(), 2)]
RATED = Cases(CASES, "cases.jsonl")
# by one rater, "ann"
SCORES = [("k1", "m1", 4.0), ("k1", "m2", 2.0), ("k2", "m1", 4.5), ("k2", "m2", None)]
NUMBERS = [RATED.locate(case, model) for case, model, _ in SCORES]


def floats(numbers):
    return np.array(numbers, float)  # None is NaN


def chosen(score):
    """Return a score as Label Studio writes it where raters choose one of several."""
    return {"from_name": "overall", "value": {"choices": [str(score)]}}


def written(name, row):
    """Return the rows of a program's file: a row for each score, with its values in the place of their names."""
    rows = []
    for number, (case, model, score) in enumerate(SCORES):
        own = {"NUMBER": number, "CASE": case, "QUESTION": ASKED[case], "MODEL": model}
        own |= {"SCORE": score, "SCORE as text": str(score), "NUMBER as text": str(number)}
        own["CHOICES"] = [chosen(score)] if score else []
        text = json.dumps(row)
        for word, value in own.items():
            text = text.replace(json.dumps(word), json.dumps(value))
        rows.append(text)
    if name.endswith(".json"):
        return f"[{', '.join(rows)}]"
    return "\n".join(rows)


def read_text(file, text):
    file.write_text(text)
    return read_ratings(str(file), RATED, scale=(1, 5))


FILES = ROWS["tables"] | {name: written(name, row) for name, row in ROWS["rows"].items()}


@pytest.mark.parametrize("name", FILES)
def test_the_same_ratings_are_read_of_every_kind_of_file(name, tmp_path):
    people = read_text(tmp_path / name, FILES[name])
    assert people.annotators == ["ann"]
    assert people.criteria == ["overall"]
    scores = people.ratings[0, NUMBERS, 0]
    expected = floats([score for *_, score in SCORES])
    np.testing.assert_array_equal(scores, expected)
    assert f"{tmp_path / name}: ratings without a score, left out: 1" in people.notes


def test_a_rater_may_be_called_as_a_model_is_where_a_column_names_the_model(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("case_id,model,doctor_1,doctor_2\nk1,m1,4,2\n")
    case = replace(CASES[0], responses=(*ANSWERS, Response("doctor_1", "C.")))
    assert read_ratings(str(file), Cases([case], "c")).annotators == ["doctor_1", "doctor_2"]


@each_row("row")
def test_a_column_of_scores_may_be_one_annotator_s_or_one_criterion_s(row, tmp_path):
    head, row, annotators, criteria, *notes = row
    file = tmp_path / "r.csv"
    people = read_text(file, f"{head}\n{row}\n")
    assert people.annotators == annotators
    scores = {}
    for name, ratings in zip(people.criteria, people.ratings):
        of_raters = ratings[NUMBERS[0]]
        scores[name] = np.nanmean(of_raters)
    assert scores == criteria
    own = [note.partition(": ")[2] for note in people.notes if note.startswith(str(file))]
    assert [*own, *filter(None, [people.doubt])] == notes


@each_row("head, row, error")
def test_a_rating_that_cannot_be_read_stops_with_its_line(head, row, error, tmp_path):
    with refused(f"{tmp_path}/{error}"):
        read_text(tmp_path / "r.csv", f"{head}\n{row}\n")


def test_criteria_on_which_more_is_worse_are_turned_round(tmp_path):
    """The longer answer is the less incomplete one, in every case."""
    asked = [f"Question {at}?" for at in range(6)]
    answers = [[question, "Rest and drink.", "Rest and drink a lot."] for question in asked]
    table = write_csv(tmp_path / "t.csv", ("question", "a", "b"), answers)
    ratings = tmp_path / "r.csv"
    rows = []
    for at, question in enumerate(asked):
        rows += [[question, "ann", "a", 3 + at % 2 * 2, 1], [question, "ann", "b", 2, 2]]
    head = ("question", "rater", "model", "criterion_missed diagnosis", "criterion_bedside manner")
    write_csv(ratings, head, rows)
    succeeded(judge_by_length(tmp_path / "v", table))
    given = {"verdicts": tmp_path / "v", "cases": table, "ratings": ratings, "resamples": 100}
    report = partial(run_command, "report", **given, output=tmp_path / "report")
    unsure = "r.csv: 'bedside manner' does not say whether a higher number is better"
    failed(report(), unsure)
    other = "there is no criterion 'fear', but bedside manner, missed diagnosis"
    failed(report(worse="fear"), other)
    for worse, agrees, mean, way in ROWS["ways of criteria"]:
        succeeded(report(worse=worse))
        figures = read_json(tmp_path / "report/agreement.json")
        assert figures["models"]["people"]["models"]["a"]["score"]["value"] == mean
        judge = figures["judges"]["baseline:longer text"]
        assert judge["pairwise_accuracy"]["value"] == agrees
        assert way in (tmp_path / "report/report.html").read_text("utf-8")
    turned_round = partial(
        read_ratings, str(ratings), Cases.read(str(table)), worse=["missed diagnosis"]
    )
    for scale, turned in ROWS["turned on a scale"]:
        found = turned_round(scale=scale).ratings[1]
        assert np.unique(found).tolist()[:2] == turned
    ratings.write_text("question,model,criterion_missed diagnosis\nQuestion 1?,a,1\n")
    assert np.nanmax(turned_round(scale=(1, 5)).ratings) == 0  # all say yes, on 0 to 1


def test_two_answers_to_one_question_of_a_form_are_no_score(tmp_path):
    about = {"question": ASKED["k1"], "model": "m1"}
    annotation = {"result": [chosen(4), chosen(5)]}
    task = {"data": about, "annotations": [annotation]}
    with refused(tmp_path / "r.json", "the score is no number"):
        read_rows(tmp_path, [task])


def read_rows(folder, rows):
    return read_text(folder / "r.json", json.dumps(rows))


@each_row("given, scores, noted")
def test_answers_are_compared_on_the_criteria_that_all_of_their_case_have(
    given, scores, noted, tmp_path
):
    rows = []
    for at, (case, model, _) in enumerate(SCORES):
        row = {"case_id": case, "model": model, "rater": "ann"}
        rows.append(row | {name: values[at] for name, values in given.items()})
    people = read_rows(tmp_path, rows)
    np.testing.assert_array_equal(people.scores[NUMBERS], floats(scores))
    told = [note for note in people.notes if "lack" in note]
    note = f"{noted} of 2 cases have answers that lack a criterion: there the mean is over those that all rated answers have"
    assert told == ([note] if noted else [])


@each_row("given, scores, relation, noted")
def test_no_blank_cell_turns_the_preference_of_several_raters(
    given, scores, relation, noted, tmp_path
):
    rows = []
    for rater, cells in zip(("ann", "bob"), given):
        for model, (accuracy, tone) in cells.items():
            row = {"case_id": "k1", "model": model, "rater": rater}
            rows.append(row | {"accuracy": accuracy, "tone": tone})
    people = read_rows(tmp_path, rows)
    np.testing.assert_array_equal(people.scores[NUMBERS[:2]], floats(scores))
    np.testing.assert_array_equal(
        people.relations[RATED.pair_index[tuple(NUMBERS[:2])]], floats(relation)
    )
    noticed = "\n".join(people.notes)
    assert [word for word, note in ROWS["notes"].items() if note in noticed] == noted
    assert "1 of 2 cases have no rating and are left out of every agreement" in people.notes


def test_a_question_that_two_cases_ask_needs_an_id(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("question,model,rater,score\nQ?,m1,ann,4\n")
    cases = Cases([Case(name, "Q?", ANSWERS) for name in ("k1", "k2")], "cases.jsonl")
    with refused(f"{file}:2: 2 cases ask this question; give case_id"):
        read_ratings(str(file), cases)
