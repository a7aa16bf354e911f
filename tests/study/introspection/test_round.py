"""A round's data set: which verdicts are revised, by whom, and what stays as it was."""

from dataclasses import replace
from functools import partial

import pytest
from datasets import Dataset
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    Lessons,
    case_of,
    rationale_of,
    recorded_of,
    slot_line,
)
from doubles.tiny_dataset import training_of
from factories import read, read_json, write, write_json
from programs import failed, module_fixture, succeeded, told
from tables import each_row, holds_all, rows_of

from automedeval.models.tokenization import PromptEncoder
from automedeval.records import RecordError, digest
from automedeval.rubrics.grammar import ParsedAnswer, parse_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import split_steps
from automedeval.study.dataset.folder import read_dataset
from automedeval.study.introspection.round import new_row
from automedeval.study.training.stages import tokenize

ROWS = rows_of(__file__)


@pytest.fixture
def lessons(tmp_path):
    return Lessons(tmp_path)


def reading_of(row):
    """Return model → (score, its step) as a row has it."""
    reading = parse_verdict(row["completion"][0]["content"], AUTOMEDEVAL, 3)
    models = [row["models"][index] for index in row["order"]]
    steps = split_steps(reading.rationale)
    return {
        model: (score, steps[slot])
        for slot, (model, score) in enumerate(zip(models, reading.scores), 1)
    }


def test_values_alone_are_trained_where_the_rubric_says_so(tiny_model):
    """The names of slots and the rationale hold numbers too."""
    recorded = recorded_of(case_of(0), (4, 2, 5), order=(2, 0, 1))
    rubric = replace(AUTOMEDEVAL, output=AUTOMEDEVAL.output | {"trained": "values"})
    recorded.row["trained"] = []  # another row than those that are trained whole
    recorded = replace(recorded, rubric=rubric)
    reading = ParsedAnswer(True, None, rationale_of(MODELS, recorded.order, "1 2 3"), (1, 2, 3))
    revised = recorded.verdict("consensus", reading)
    row = new_row(recorded, {"revised_verdict": revised, "decided_by": "consensus"})
    encoder = PromptEncoder.from_checkpoint(str(tiny_model))
    (encoded,) = tokenize(Dataset.from_list([row]), "d", encoder)
    masked = zip(encoded["input_ids"], encoded["completion_mask"], strict=True)
    trained = encoder.tokenizer.batch_decode([[token] for token, mask in masked if mask])
    assert [text.strip() for text in trained] == ["1", "2", "3"]
    with pytest.raises(RecordError, match="its values cannot be found"):
        encoder.trained(encoder.after("\n", "Score: 3"), "Score: 4", [[7, 8]])


@module_fixture
def discussed(tmp_path_factory):
    """Return a round in which two verdicts are revised and one kept by consensus, and one waits; and what was printed."""
    lessons = Lessons(tmp_path_factory.mktemp("round"))
    for number, scores in ((1, (5, 1, 1)), (4, (2, 2, 4))):
        lessons.misjudge(number, (3, 3, 3))
        lessons.agree(number, scores)
    lessons.misjudge(2, (3, 3, 3))
    lessons.say(2, "suggestion", "Suggestion: keep")
    lessons.say(2, "review", "Review: accept")
    lessons.misjudge(3, None)
    lessons.say(3, "suggestion", "Suggestion: keep")
    lessons.say(3, "review", "Review: object\nNever.")
    for call in (2, 3):
        lessons.say(3, "suggestion", "I shall not repeat myself.", call)
    return lessons, succeeded(lessons.discuss(waiting="keep_old")).stdout


def test_consensus_revises_the_mistakes_and_nothing_else(discussed):
    lessons, printed = discussed
    assert set(ROWS["said"]) <= set(printed.splitlines())
    rows = lessons.rows()
    old = lessons.old_rows()
    assert list(rows) == list(old)
    assert {case_id for case_id in old if rows[case_id] != old[case_id]} == {"case-1", "case-4"}
    row = rows["case-1"]
    own = {name: old["case-1"][name] for name in ("order", "prompt")}
    assert row == row | own | {"judge": "consensus"}
    steps = {model: (score, f"{model} is poor.") for model, score in zip(MODELS, (5, 1, 1))}
    assert reading_of(row) == steps
    folders = (lessons.output, lessons.folder / "data")
    assert len({(folder / "test.parquet").read_bytes() for folder in folders}) == 1


def test_statistics_card_and_records_say_what_happened(discussed):
    lessons, _ = discussed
    statistics = lessons.statistics()
    old = read_dataset(lessons.folder / "data").statistics
    assert statistics == statistics | ROWS["statistics"]
    assert statistics["follows"] == old["fingerprint"] != statistics["fingerprint"]
    assert list(statistics["splits"]) == ["train", "test"]
    assert {"8 cases", *ROWS["said"]} <= set(statistics["arithmetic"])
    card = (lessons.output / "README.md").read_text()
    holds_all(card, ROWS["card"])
    assert "jury" not in card.partition("## Introspection")[2].partition("##")[0]
    records = lessons.revisions()
    revised = records["case-1"]
    unresolved = records["case-3"]
    assert revised == revised | ROWS["revised"]
    assert revised["old_verdict"]["scores"] == list(lessons.record["case-1"])
    assert revised["judge_verdict"]["scores"] == [3, 3, 3]
    assert revised["revised_verdict"]["scores"] == [5, 1, 1]
    roles = [piece["role"] for piece in revised["exchanges"]]
    assert roles == ["suggestion", "review", "revision"]
    assert revised["when"].endswith("+00:00")
    assert unresolved == unresolved | ROWS["unresolved"]
    assert unresolved["judge_verdict"]["error"] == "no score line"
    (waiting,) = lessons.read("round1.discussion/jury.jsonl")
    assert waiting["case_id"] == "case-3"


def test_no_row_left_leaves_the_old_folder(lessons, tiny_model):
    assert lessons.introspect().returncode == 0
    before = (lessons.output / "train.parquet").read_bytes()
    training = training_of(lessons.folder, tiny_model, 5)
    failed(lessons.introspect(training=training), "no training row is left")
    assert (lessons.output / "train.parquet").read_bytes() == before


def test_without_mistakes_the_rows_are_the_old_ones(lessons):
    partners = {"suggester": "openai:m", "reviewer": "openai:m", "store": "none"}
    told(lessons.introspect(**partners), "7 as on record, 0 mistakes")
    assert lessons.rows() == lessons.old_rows()


@pytest.fixture
def queue(lessons):
    """Return the queue of a round whose judge has two mistakes that nobody discussed."""
    for number in (0, 1):
        lessons.misjudge(number, (3, 3, 3))
    return lessons.folder / "round1.discussion/jury.jsonl"


def test_a_case_that_waits_stops_the_round_until_the_jury_has_decided(lessons, queue):
    decided = queue.parent / "decided"
    told(lessons.introspect(), f"2 cases for the jury in {queue}: ", f"into {decided}, or")
    assert not lessons.output.exists(), "there is nothing that could be trained on"
    # What the page shows the jury is there already.
    records = lessons.read("round1.discussion/revisions.jsonl")
    assert [record["decided_by"] for record in records] == [None, None]
    first, second = read(queue)
    kept = first | {"decision": "keep"}
    rationale = rationale_of(MODELS, second["order"], "decided")
    decision = {"annotator": "chief", "decision": "revise"}
    revised = second | decision | {"scores": [5, 4, 1], "rationale": rationale}
    write(decided / queue.name, [kept, revised])
    told(lessons.introspect(), "0 waiting, 2 decided (jury, keep: 1, jury, revise: 1)")

    rows = lessons.rows()
    records = lessons.revisions()
    assert rows["case-0"] == lessons.old_rows()["case-0"]
    assert rows["case-1"]["judge"] == "jury"
    steps = {model: (score, f"{model} is decided.") for model, score in zip(MODELS, (5, 4, 1))}
    assert reading_of(rows["case-1"]) == steps
    assert records["case-1"] == records["case-1"] | decision | {"decided_by": "jury"}
    assert records["case-0"]["decision"] == "keep"
    assert lessons.statistics()["counts"]["unresolved"] == 0
    card = " ".join((lessons.output / "README.md").read_text().split())
    assert "nobody reviewed them: " in card
    assert "1 kept and 1 revised by the jury; 0 unresolved" in card
    assert read(queue.with_name("revisions.jsonl")) == lessons.read("round1/revisions.jsonl")
    succeeded(lessons.introspect())
    assert (lessons.revisions(), lessons.rows()) == (records, rows)


def test_a_decision_without_a_rationale_and_one_that_is_not_needed_any_more(lessons, queue):
    round1 = partial(lessons.introspect, waiting="keep_old")
    succeeded(round1())
    first, second = read(queue)
    decided = [first | {"decision": "revise", "scores": [5, 4, 1]}, second]
    write(queue.parent / "decided" / queue.name, decided)
    told(round1(), "1 waiting, 1 decided (jury, revise: 1)")
    row = lessons.rows()["case-0"]
    old = lessons.old_rows()["case-0"]
    in_slots = [(5, 4, 1)[index] for index in row["order"]]
    assert row["completion"][0]["content"] == slot_line(in_slots)
    # The prompt asks for scores alone.
    case = lessons.cases[0]
    texts = [case.responses[index].text for index in row["order"]]
    asked = judge_messages(AUTOMEDEVAL, case.question, texts, case.reference, rationale=False)
    assert (row["prompt"], row["prompt_digest"]) == (asked, digest(asked))
    new = {"completion", "judge", "prompt", "prompt_digest"}
    assert {name for name in row if row[name] != old[name]} == new
    assert {line["case_id"] for line in read(queue)} == {"case-0", "case-1"}
    lessons.misjudge(0, lessons.record["case-0"])
    told(round1(), "6 as on record, 1 mistakes")
    assert lessons.rows()["case-0"] == lessons.old_rows()["case-0"]


def test_a_second_round_follows_the_first(lessons):
    lessons.misjudge(1, (3, 3, 3))
    lessons.agree(1, (5, 1, 1))
    succeeded(lessons.discuss())
    first = lessons.statistics()
    before = lessons.output
    lessons.output = lessons.folder / "round2"
    told(lessons.introspect(dataset=before, waiting="keep_old"), "6 as on record, 1 mistakes")
    second = lessons.statistics()
    assert (second["round"], second["follows"]) == (2, first["fingerprint"])
    (record,) = lessons.read("round2/revisions.jsonl")
    old = record["old_verdict"]
    assert (old["judge"], old["scores"]) == ("consensus", [5, 1, 1])


@each_row("changes, said")
def test_folders_that_hold_no_data_set_are_refused(lessons, changes, said):
    file = lessons.folder / "data/statistics.json"
    whole = read_json(file) if changes["splits"] else {}
    write_json(file, whole | changes)
    with pytest.raises(RecordError, match=said):
        read_dataset(file.parent)
