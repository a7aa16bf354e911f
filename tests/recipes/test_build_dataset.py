"""The data set, built by the recipe: every filter's arithmetic, the four splits, leaks, and lengths."""

import random
import re
import sys
import types
from dataclasses import replace

import pytest
from doubles.dataset_study import PLAN, Study, WordEncoder, case_of, text, verdict_of
from doubles.tiny_dataset import training_of
from huggingface_hub import DatasetCard
from programs import failed, succeeded, told
from tables import each_row, rows_of

from automedeval.records import Verdict

ROWS = rows_of(__file__)


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


def test_four_splits_are_loaded_as_trl_reads_them(study):
    succeeded(study.build(licenses="made-up=cc0-1.0"))
    splits = study.splits()
    assert splits.num_rows == {"stage1": 5, "stage2": 10, "stage3": 5, "test": 4}
    row = splits["stage3"][0]
    roles = [message["role"] for message in row["prompt"] + row["completion"]]
    assert roles == ["system", "user", "assistant"]
    about = {"teacher": "strong", "judge": "judge-strong", "source": "made-up"}
    assert row.items() >= (about | {"license": "cc0-1.0"}).items()
    everyone = {row["case_id"] for row in study.rows()}
    assert everyone == {case.id for case in study.cases}
    card = study.card()
    assert f"Fingerprint of all rows: `{study.statistics()['fingerprint']}`" in card
    about = DatasetCard(card).data
    assert about.license == "cc0-1.0"
    assert [file["split"] for file in about.configs[0]["data_files"]] == list(splits)


def ratings_of(verdicts: list[Verdict], criterion: str, score: int = 0) -> list[dict]:
    about = {"annotator": "a", "role": "chief", "criterion": criterion, "score": score}
    ratings = []
    for verdict in verdicts:
        rated = {"case_id": verdict.case_id, "judge": verdict.judge}
        ratings.append(about | rated | {"verdict_digest": verdict.digest})
    return ratings


def test_every_filter_tells_its_arithmetic_and_names_what_it_dropped(study):
    strong = study.verdicts["strong"]
    weak = study.verdicts["weak"]
    strong[0] = verdict_of(study.cases[0], "strong", scores=None)
    weak.append(verdict_of(case_of(99), "weak"))
    _, _, second, third, fourth, *_ = strong
    ratings = ratings_of([second], "knowledge")
    ratings += ratings_of([third, fourth], "knowledge", 1)
    ratings += ratings_of([third], "fluency")
    ratings += ratings_of([fourth], "fluency", 1)
    lines = set(ROWS["test_every_filter_tells_its_arithmetic_and_names_what_it_dropped"])
    done = succeeded(study.build(verdict_ratings=study.write("ratings.jsonl", ratings)))
    assert lines <= set(done.stdout.splitlines())
    assert lines <= {line.removeprefix("- ") for line in study.card().splitlines()}
    assert study.dropped() == {
        "invalid": ["case-0"],
        "of no case here": ["case-99"],
        "fails knowledge": ["case-2"],
        "fails fluency": ["case-3"],
    }


def test_the_card_counts_the_rows_that_nobody_rated(study):
    study.plan = PLAN | {"stages": {"stage1": [{"teacher": "strong", "take": "rest"}]}}
    succeeded(study.build())
    assert "- No physician rated 14 of the teachers' verdicts; they" in study.card()
    trained = study.splits()["stage1"]["case_id"][1:]
    rated = [verdict for verdict in study.verdicts["strong"] if verdict.case_id in trained]
    file = study.write("ratings.jsonl", ratings_of(rated, "knowledge", 1))
    succeeded(study.build(verdict_ratings=file))
    assert "- No physician rated 5 of the teachers' verdicts; they" in study.card()


def test_ratings_of_another_text_are_counted_and_not_applied(study):
    """The verdicts of a run without the knowledge store are other texts of the same judges on the same cases."""
    strong = study.verdicts["strong"]
    ratings = ratings_of(strong[:3], "knowledge")
    strong[0] = verdict_of(study.cases[0], "strong", rationale="Another text.")
    strong[1] = verdict_of(study.cases[1], "strong", scores=(4, 2))
    strong[2] = verdict_of(study.cases[2], "strong", run=1)  # the same text
    done = study.build(verdict_ratings=study.write("ratings.jsonl", ratings))
    told(done, "2 ratings are of other verdicts, or of other texts of these: ")
    assert study.dropped() == {"fails knowledge": ["case-2"]}


def test_the_order_of_the_input_changes_no_byte(study):
    succeeded(study.build())
    before = study.bytes()
    rng = random.Random(3)
    for records in (study.cases, *study.verdicts.values()):
        rng.shuffle(records)
    study.verdicts = dict(reversed(study.verdicts.items()))
    succeeded(study.build())
    assert study.bytes() == before


def test_cases_that_leak_are_left_out(study):
    first, second, third = study.cases[:3]
    asked = case_of(50, question=f"{first.question.upper()}?!")
    _, said = second.responses
    answered = case_of(51, responses=(replace(said, text=f"Well. {said.text}"),))
    others = study.write("evaluation.jsonl", [asked, answered])
    ash, birch = third.responses
    ash = replace(ash, text=f"As the book says: {third.reference} That is all.")
    study.change(2, responses=(ash, birch))
    study.plan = PLAN | {"test": {"take": 0}}
    counted = "question of an evaluation case: 1, reference in a response: 1, text of an evaluation case: 1"
    leakage = f"leakage: 24 training verdicts → 21 kept, 3 rejected ({counted})\n"
    told(study.build(evaluation_cases=others), leakage)
    assert study.dropped() == {
        "question of an evaluation case": ["case-0"],
        "text of an evaluation case": ["case-1"],
        "reference in a response": ["case-2"],
    }
    assert "test" not in study.splits(), "no test case is asked for, and no empty file can be read"
    assert {row["case_id"] for row in study.rows()} == {f"case-{at}" for at in range(3, 24)}


def test_a_training_case_that_repeats_a_test_case_leaks(study):
    succeeded(study.build())
    splits = study.splits()
    (tested, *_) = splits["test"]["case_id"]
    (trained, *_) = splits["stage1"]["case_id"]
    (question,) = [case.question for case in study.cases if case.id == tested]
    study.change(int(trained.removeprefix("case-")), question=question)
    succeeded(study.build())
    assert study.dropped() == {"question of an evaluation case": [trained]}


def test_rows_that_are_too_long_are_dropped_and_named(study, tiny_model):
    study.change(6, question=text(random.Random(1), 900))
    unread = verdict_of(study.cases[7], "weak", rationale="Step 2: Fine.<|im_end|>")
    study.verdicts["weak"][7] = unread
    reasons = "completion cannot be read back: 1, more than 1,700 tokens: 2"
    kept = f"rows: 48 verdicts → 45 kept, 3 rejected ({reasons})"
    # Counted after the long ones.
    counted = "training: 19 cases → 19 = 9 strong + 10 weak"
    told(study.build(training=training_of(study.folder, tiny_model, 1700)), kept, counted)
    assert study.dropped() == {
        "more than 1,700 tokens": ["case-6", "case-6"],
        "completion cannot be read back": ["case-7"],
    }
    assert len(study.rows()) == 23
    tokens = study.statistics()["splits"]["stage2"]["tokens"]
    assert 200 < tokens["median"] <= tokens["most"] <= 1700


def test_no_length_of_a_training_row_changes_the_test_split(study, tiny_model):
    study.build()
    before = study.splits()["test"]["case_id"][:]
    number = int(before[0].removeprefix("case-"))
    long = verdict_of(study.cases[number], "strong", rationale=text(random.Random(2), 900))
    study.verdicts["strong"][number] = long
    done = study.build(training=training_of(study.folder, tiny_model, 1700))
    told(done, "rows: 48 verdicts → 48 kept, 0 rejected")
    assert study.splits()["test"]["case_id"][:] == before


def test_labels_and_topics_are_in_the_card(study):
    for teacher, quality in (("strong", "high"), ("weak", "low")):
        verdicts = study.verdicts[teacher]
        verdicts[:] = [replace(verdict, quality=quality) for verdict in verdicts]
    stage1 = {"teacher": "strong", "take": "rest", "quality": "high"}
    study.plan = PLAN | {"stages": {"stage1": [stage1]}}
    told(study.build(), "quality: strong high 24, weak low 24")
    card = study.card()
    assert "| `stage1` | 10 | strong 10 | high 10 |" in card
    assert len(re.findall(r"(?m)^\| \d+ % \|", card)) == 6, "topics"
    assert "The licence of 14 of 14 rows is not stated" in card
    assert DatasetCard(card).data.license_name == "not-stated"


@pytest.fixture
def quick_classifier(monkeypatch):
    """Put the stand-in in the encoder's place, and make the grid that is searched small."""
    monkeypatch.setitem(
        sys.modules, "automedeval.models.embeddings", types.SimpleNamespace(Encoder=WordEncoder)
    )
    for name, values in (("PENALTIES", (1.0,)), ("WIDTHS", ("scale",))):
        monkeypatch.setattr(f"automedeval.study.dataset.quality.{name}", values)


def good_and_bad(study: Study) -> None:
    """Make the strong teacher's rationales of the responses' own words and the weak one's of anything."""
    anything = "Step 1: Pain.\nStep 2: well.\nStep 3: fine."
    for at, case in enumerate(study.cases):
        first, second = (response.text for response in case.responses)
        steps = f"Step 1: Pain.\nStep 2: {second}\nStep 3: {first}"
        study.verdicts["strong"][at] = verdict_of(case, "strong", rationale=steps)
        study.verdicts["weak"][at] = verdict_of(case, "weak", rationale=anything)


BY_QUALITY = PLAN | {
    "teachers": {name: {"take": "rest", "quality": "high"} for name in ("strong", "weak")}
}


@pytest.mark.usefixtures("quick_classifier")
def test_a_classifier_learns_from_labels_and_physicians_and_calls_the_rest(tmp_path):
    study = Study(tmp_path, 50)
    good_and_bad(study)
    strong = study.verdicts["strong"]
    weak = study.verdicts["weak"]
    weak[:20] = [replace(verdict, quality="low") for verdict in weak[:20]]
    strong[2] = replace(strong[2], quality="high")  # where physicians see a fault
    ratings = ratings_of(weak[20:30], "attribution")
    ratings += ratings_of(strong[:2], "fluency")  # no fault of what is said
    ratings += ratings_of(strong[2:5], "knowledge")  # which the classifier does not see
    study.plan = BY_QUALITY | {"failed_criteria": 2}
    file = study.write("ratings.jsonl", ratings)
    # 47 strong ones are without a fault of what is said, and there are as many low ones
    told(study.build(verdict_ratings=file, encoder="words"), *ROWS["of the classifier"])
    report = study.statistics()["quality_report"]
    assert report["alone"]["kinds"].keys() == report["kinds"].keys() > {"high"}
    assert report["kinds"]["by_physicians"]["n"] > 0
    assert sum(report[part]["low"] for part in ("train", "test")) == 47


@each_row("spoil, message")
def test_a_verdict_that_somebody_has_to_mend_is_named_by_line(study, spoil, message):
    strong = study.verdicts["strong"]
    strong[3] = replace(strong[3], **spoil)
    failed(study.build(), f"strong.jsonl:4: {message}")
    assert not study.output.exists()


def test_an_unknown_rubric_a_second_verdict_and_no_licence_are_refused(study):
    weak = study.verdicts["weak"]
    weak[0] = replace(weak[0], rubric="mine@3")
    failed(study.build(), "weak.jsonl:1: no rubric 'mine@3' among automedeval@1")
    failed(study.build(licenses="mit"), "must be NAME=LICENCE, not 'mit'")
    weak[0] = verdict_of(study.cases[1], "weak", run=1)
    failed(study.build(), "weak.jsonl:2: a second verdict")


def test_a_case_without_source_and_licence_gets_those_of_its_file(study):
    nothing = [{}, {"source": None, "license": None}, {"source": "", "license": ""}]
    for number, extra in enumerate([*nothing, {"source": "own"}]):
        study.change(number, extra=extra)
    succeeded(study.build(licenses="made-up=cc0-1.0"))
    rows = {row["case_id"]: (row["source"], row["license"]) for row in study.rows()}
    assert rows.pop("case-3") == ("own", None)
    assert set(rows.values()) == {("made-up", "cc0-1.0")}


@each_row("extra, message")
def test_a_source_or_licence_that_is_no_text_is_named(study, extra, message):
    study.cases[4] = case_of(4, extra=extra)
    failed(study.build(), f"cases.jsonl: case 'case-4': {message}")


def test_an_equals_sign_may_be_in_a_path(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    study = Study(folder)
    succeeded(study.build(cases=study.write("cases.jsonl", study.cases)))
    assert {row["source"] for row in study.statistics()["sources"]} == {"not stated"}
    succeeded(study.build())
    assert {row["source"] for row in study.statistics()["sources"]} == {"made-up"}
