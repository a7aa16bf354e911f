"""recipes/build_channel_dataset.py by its command: rows per response, what ties stages and rounds together, bad input."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from doubles.introspection_study import AUTOMEDEVAL, MODELS, RUBRICS, Lessons, case_of, verdict_of
from doubles.tiny_dataset import FACTS
from doubles.tiny_model import build_tiny_model
from programs import error_line, run_recipe

from automedeval.dataset.card import card_facts, write_card
from automedeval.dataset.folder import SCHEMA, Dataset, read_dataset, write_rows
from automedeval.dataset.instructions import instruction
from automedeval.models.checkpoints import Stage
from automedeval.models.tokenization import PromptEncoder
from automedeval.records import REFERENCE, Case, RecordError, Verdict
from automedeval.rubrics.prompts import channel_texts
from automedeval.training.stages import UNTRAINED, check_rows, check_start, read_rows, tokenize

channel_dataset = partial(run_recipe, "build_channel_dataset")


@pytest.fixture
def lessons(tmp_path: Path) -> Lessons:
    return Lessons(tmp_path)


def given(folder: Path, name: str = "turned", source: str = "data") -> list[object]:
    return ["--dataset", folder / source, "--cases", folder / "cases.jsonl", "--output", folder / name]


def turn(folder: Path, name: str = "turned", source: str = "data", **options: object) -> Dataset:
    """Run the recipe on a data set of this folder; return what it wrote."""
    more = [part for key, value in options.items() for part in (f"--{key}", value)]
    done = channel_dataset(*given(folder, name, source), *more)
    assert done.returncode == 0, done.stderr
    return read_dataset(folder / name)


def build(place: Path, splits: Mapping[str, Sequence[dict[str, Any]]], **statistics: Any) -> None:
    """Write a data set of these rows."""
    place.mkdir()
    written = {name: write_rows(place / f"{name}.parquet", rows) for name, rows in splits.items()}
    found, origins = {name: each.statistics for name, each in written.items()}, Counter()
    for each in written.values():
        origins += each.origins
    write_card(place, card_facts(found, origins) | FACTS | {"folder": place.name, "rubrics": {}} | statistics)


def stage(split: str, dataset: Dataset) -> Stage:
    return Stage((split,), str(dataset.place), dataset.statistics["fingerprint"], 9, 100, 20, 1.0)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_every_response_asks_for_the_question_behind_its_score(lessons: Lessons) -> None:
    dataset = turn(lessons.folder)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {"stage1": 9, "stage2": 12, "test": 3}
    cases = {case.id: case for case in lessons.cases}
    for row in (row for rows in dataset.splits.values() for row in rows):
        case, (model,) = cases[row["case_id"]], row["models"]
        index = MODELS.index(model)
        score = lessons.record[case.id][index]
        prompt, question = channel_texts(AUTOMEDEVAL, case.question, case.responses[index].text, score)
        assert row["prompt"] == prompt
        assert row["completion"] == [{"role": "assistant", "content": question}]
        assert question == case.question
        assert row["order"] == [0]
        assert list(row) == SCHEMA.names


def test_splits_and_their_rows_stand_in_the_former_order(lessons: Lessons) -> None:
    source, dataset = read_dataset(lessons.folder / "data"), turn(lessons.folder)
    assert list(dataset.splits) == list(source.splits) == list(dataset.statistics["splits"])
    for name, rows in source.splits.items():
        shown = [(row["case_id"], row["models"][index]) for row in rows for index in row["order"]]
        assert [(row["case_id"], *row["models"]) for row in dataset.splits[name]] == shown
        kept = ("teacher", "judge", "quality", "rubric", "source", "license")
        told = {row["case_id"]: [row[column] for column in kept] for row in rows}
        assert all([row[column] for column in kept] == told[row["case_id"]] for row in dataset.splits[name])


def test_prompt_digests_tell_prompts_apart(lessons: Lessons) -> None:
    rows = turn(lessons.folder).training
    digests = {json.dumps(row["prompt"]): row["prompt_digest"] for row in rows}
    assert len(set(digests.values())) == len(digests)
    assert all(len(digest) == 12 for digest in digests.values())


def test_what_became_of_the_rows_is_told(lessons: Lessons) -> None:
    done = channel_dataset(*given(lessons.folder), launch=())
    assert done.returncode == 0, done.stderr
    lines = [
        "stage1: 3 verdicts → 9 responses → 9 rows, 0 rejected (more than 2,048 tokens: 0)",
        "stage2: 4 verdicts → 12 responses → 12 rows, 0 rejected (more than 2,048 tokens: 0)",
        "test: 1 verdicts → 3 responses → 3 rows, 0 rejected (more than 2,048 tokens: 0)",
    ]
    facts = read_dataset(lessons.folder / "turned").statistics
    assert done.stdout.splitlines() == [*lines, f"instructions {facts['fingerprint']}: {lessons.folder / 'turned'}"]
    assert facts["arithmetic"] == ["8 cases", *lines]
    assert facts["teachers"] == [{"teacher": "strong", "judge": "teacher", "rubric": "automedeval@1", "rows": 24}]
    assert (facts["folder"], facts["tokenizer"], facts["max_length"]) == ("turned", None, 2048)
    assert facts["turned"] == read_dataset(lessons.folder / "data").statistics["fingerprint"]
    card = (lessons.folder / "turned" / "README.md").read_text()
    assert f"a channel judge of medical answers, made by AutoMedEval {facts['version']}" in card
    assert not any(told in card for told in ("dropped.jsonl", "Slots are permuted", "of all rows"))
    written = {path.name for path in (lessons.folder / "turned").iterdir()}
    splits = {"stage1.parquet", "stage2.parquet", "test.parquet"}
    assert written == {*splits, "README.md", "statistics.json", "run.json"}


def test_rows_that_are_too_long_are_counted(lessons: Lessons, tiny_model: Path) -> None:
    lessons.cases[0] = Case.from_dict(lessons.cases[0].to_dict() | {"question": "What of this? " * 30})
    lessons.build()
    encoder = PromptEncoder.from_checkpoint(str(tiny_model))
    rows = turn(lessons.folder).splits["stage1"]
    lengths = sorted(len(ids) for ids in encoder.encode([row["prompt"] + row["completion"] for row in rows], True))
    dataset = turn(lessons.folder, tokenizer=tiny_model, max_length=lengths[5])
    assert lengths[5] < lengths[6]
    assert [row for row in rows if row["case_id"] != "case-0"] == dataset.splits["stage1"]
    assert dataset.statistics["splits"]["stage1"]["tokens"] == {"median": lengths[3], "most": lengths[5]}
    assert (
        f"9 responses → 6 rows, 3 rejected (more than {lengths[5]:,} tokens: 3)" in dataset.statistics["arithmetic"][1]
    )


def test_an_empty_split_stays_empty(tmp_path: Path) -> None:
    dataset = turn(Lessons(tmp_path, 4).folder)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {"stage1": 9, "stage2": 0, "test": 3}
    assert "stage2: 0 verdicts → 0 responses → 0 rows" in " ".join(dataset.statistics["arithmetic"])


def test_a_reference_that_was_judged_is_a_response(tmp_path: Path) -> None:
    case = case_of(1)
    verdict = verdict_of(case, (1, 2, 3, 5), models=[*MODELS, REFERENCE])
    build(tmp_path / "data", {"stage1": [instruction(case, verdict, AUTOMEDEVAL, "strong")]})
    (tmp_path / "cases.jsonl").write_text(json.dumps(case.to_dict()))
    dataset = turn(tmp_path)
    prompt, _ = channel_texts(AUTOMEDEVAL, case.question, case.reference, 5)
    assert [row["prompt"] for row in dataset.training if row["models"] == [REFERENCE]] == [prompt]
    assert len(dataset.training) == 4
    assert dataset.statistics["reference_rows"] == 1


# --- training ---------------------------------------------------------------------------------------------------------


def test_the_folder_can_be_trained_on(lessons: Lessons, tiny_model: Path) -> None:
    turn(lessons.folder)
    name, splits, rows, statistics = read_rows([(str(lessons.folder / "turned"), "stage1")])
    check_rows(rows, name)
    check_start("base", [], name, splits, statistics)
    encoder = PromptEncoder.from_checkpoint(str(tiny_model))
    for row, each in zip(rows, tokenize(rows, encoder, 2048, name)):
        trained = [label for label in each["labels"] if label != UNTRAINED]
        assert encoder.tokenizer.decode(trained).startswith(row["completion"][0]["content"] + "<|im_end|>")
    with pytest.raises(RecordError, match="held out"):
        read_rows([(str(lessons.folder / "turned"), "test")])


def test_stages_follow_one_another_as_in_the_source(lessons: Lessons) -> None:
    source, dataset = read_dataset(lessons.folder / "data"), turn(lessons.folder)
    check_start("m", [stage("stage1", dataset)], "d", ["stage2"], dataset.statistics)
    for history in ([], [stage("stage1", source)]):
        with pytest.raises(RecordError, match="stage2 starts where stage1"):
            check_start("m", history, "d", ["stage2"], dataset.statistics)
    with pytest.raises(RecordError, match="stage1 is the first stage"):
        check_start("m", [stage("stage1", dataset)], "d", ["stage1"], dataset.statistics)
    check_start("m", [stage("stage2", source)], "d", ["stage1"], dataset.statistics)


def test_a_round_follows_the_stages_that_were_turned_with_it(lessons: Lessons) -> None:
    lessons.misjudge(0, (5, 5, 5))
    done = lessons.introspect("--partners", "none", "--waiting", "keep_old")
    assert done.returncode == 0, done.stderr
    source, stages = read_dataset(lessons.folder / "data"), turn(lessons.folder)
    dataset = turn(lessons.folder, "turned-round", "round1")
    assert list(dataset.splits) == ["train", "test"]
    assert len(dataset.splits["train"]) == 21
    assert dataset.statistics["follows"] == stages.statistics["fingerprint"]
    assert dataset.statistics["round"] == 1
    check_start("m", [stage("stage2", stages)], "d", ["train"], dataset.statistics)
    for last in (stage("stage2", source), stage("train", dataset)):
        with pytest.raises(RecordError, match="revises mistakes of a judge trained on"):
            check_start("m", [last], "d", ["train"], dataset.statistics)


def test_the_fingerprint_follows_the_source(lessons: Lessons) -> None:
    first, again = turn(lessons.folder), turn(lessons.folder, "again")
    assert again.statistics["fingerprint"] == first.statistics["fingerprint"]
    assert again.splits == first.splits
    assert first.statistics["fingerprint"] != read_dataset(lessons.folder / "data").statistics["fingerprint"]
    assert "follows" not in first.statistics
    lessons.record["case-0"] = (5, 5, 5)
    lessons.build()
    changed = turn(lessons.folder)  # in the place of the former
    assert changed.statistics["fingerprint"] != first.statistics["fingerprint"]
    assert read_dataset(lessons.folder / "turned").splits != first.splits


def test_the_fingerprint_follows_what_counts_the_tokens(lessons: Lessons, tiny_model: Path, tmp_path: Path) -> None:
    trained = build_tiny_model(tmp_path / "trained", seed=1)  # other weights, the same tokenizer
    template = tmp_path / "longer.jinja"
    template.write_text("A longer preface. " + (tiny_model / "chat_template.jinja").read_text())
    given = ({}, {"tokenizer": tiny_model}, {"tokenizer": tiny_model, "chat_template_path": template})
    found = [turn(lessons.folder, f"turned{at}", **each).statistics["fingerprint"] for at, each in enumerate(given)]
    assert len(set(found)) == 3
    assert turn(lessons.folder, tokenizer=trained).statistics["fingerprint"] == found[1]


# --- bad input --------------------------------------------------------------------------------------------------------


def test_the_source_is_not_overwritten(lessons: Lessons) -> None:
    before = (lessons.folder / "data" / "statistics.json").read_bytes()
    for name in ("data", "data/../data"):
        assert "needs a folder of its own" in error_line(channel_dataset(*given(lessons.folder, name)))
    assert (lessons.folder / "data" / "statistics.json").read_bytes() == before


def test_a_case_that_is_nowhere_is_named_and_nothing_is_written(lessons: Lessons) -> None:
    lessons.write("cases.jsonl", [case.to_dict() for case in lessons.cases[:4]])
    line = error_line(channel_dataset(*given(lessons.folder)))
    assert "data, stage2: case 'case-4' is in no file of --cases" in line
    assert not (lessons.folder / "turned").exists()
    lessons.write("more.jsonl", [case.to_dict() for case in lessons.cases[4:]])
    both = f"{lessons.folder / 'cases.jsonl'},{lessons.folder / 'more.jsonl'}"
    assert len(turn(lessons.folder, cases=both).training) == 21


def test_a_data_set_of_choices_is_refused(lessons: Lessons) -> None:
    rubric, case = RUBRICS["medical_pairwise@1"], case_of(1, MODELS[:2])
    choices = dict.fromkeys(rubric.output_criteria, "ash")
    verdict = Verdict(
        case.id, "teacher", rubric.name, (0, 1), pair=("ash", "birch"), valid=True, choices=choices,
        extra={"models": case.models},
    )  # fmt: skip
    build(lessons.folder / "pairs", {"stage1": [instruction(case, verdict, rubric, "strong")]})
    lessons.write("cases.jsonl", [case.to_dict()])
    line = error_line(channel_dataset(*given(lessons.folder, source="pairs")))
    assert "pairs, stage1: medical_pairwise@1 gives choices, and a channel needs scores" in line
    assert not (lessons.folder / "turned").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--dataset", "nowhere"), "nowhere/statistics.json: No such file"),
        (("--cases", "nowhere.jsonl"), "nowhere.jsonl: No such file"),
        (("--max_length", 0), "--max_length must be at least 1, not 0"),
        (("--tokenizer", "./nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_line(options: tuple, told: str, lessons: Lessons) -> None:
    assert told in error_line(channel_dataset(*given(lessons.folder), *options))
    assert not (lessons.folder / "turned").exists()


def test_another_rubrics_rows_need_its_file(lessons: Lessons) -> None:
    row = read_dataset(lessons.folder / "data").splits["stage1"][0] | {"rubric": "mine@1"}
    build(lessons.folder / "other", {"stage1": [row]})
    line = error_line(channel_dataset(*given(lessons.folder, source="other")))
    assert "case 'case-0': no rubric 'mine@1' among automedeval@1" in line
    assert "--rubrics" in line
