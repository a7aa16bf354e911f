"""A round's data set: which verdicts are revised, by whom, and what stays as it was."""

import json

import pytest
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    Lessons,
    case_of,
    rationale_of,
    recorded_of,
    slot_line,
    verdict_of,
)
from programs import error_line, succeeded

from automedeval.dataset.folder import read_dataset
from automedeval.introspection.round import revised_row
from automedeval.records import RecordError
from automedeval.rubrics.grammar import ParsedAnswer, parse_verdict
from automedeval.rubrics.prompts import judge_messages
from automedeval.rubrics.rationale import split_steps


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


def test_a_revised_row_keeps_its_case_its_slots_and_its_teacher():
    case = case_of(0)
    recorded = recorded_of(verdict_of(case, (4, 2, 5), "teacher", order=(2, 0, 1)), case)
    new = ParsedAnswer(True, None, rationale_of(MODELS, recorded.order, "new"), (1, 2, 3))
    row = revised_row(recorded, new, "consensus")
    assert {name for name in row if row[name] != recorded.row[name]} == {"completion", "judge"}
    bare = revised_row(recorded, ParsedAnswer(True, None, None, (1, 2, 3)), "jury")
    assert bare["completion"][0]["content"] == slot_line((1, 2, 3))
    texts = [case.responses[index].text for index in recorded.order]
    assert bare["prompt"] == judge_messages(
        AUTOMEDEVAL, case.question, texts, case.reference, rationale=False
    )
    assert bare["prompt_digest"] != recorded.row["prompt_digest"]


@pytest.fixture(scope="module")
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
    return lessons, succeeded(lessons.discuss("--waiting", "keep_old")).stdout


SAID = (
    "introspection: 7 cases → 4 mistakes (relations: 3, invalid: 1)",
    "discussion: recording:strong suggests, recording:strong reviews",
    "discussion: 4 mistakes → 3 consensus (exchange 1: 3), 1 without",
    "discussion: could not be read, suggestion: 2",
    "consensus: 3 cases → 1 kept, 2 revised",
    "jury: 1 cases → 0 kept, 0 revised, 1 waiting",
    "rows: 7 verdicts → 7 kept, 0 rejected; 2 revised; 1 wait for the jury and keep their old verdict",
)


def test_consensus_revises_the_mistakes_and_nothing_else(discussed):
    lessons, printed = discussed
    assert set(SAID) <= set(printed.splitlines())
    rows, old = lessons.rows(), lessons.old_rows()
    assert list(rows) == list(old)
    assert {case_id for case_id in old if rows[case_id] != old[case_id]} == {"case-1", "case-4"}
    assert {model: score for model, (score, _) in reading_of(rows["case-1"]).items()} == dict(
        zip(MODELS, (5, 1, 1))
    )
    for case_id in ("case-1", "case-4"):
        assert rows[case_id]["judge"] == "consensus"
        assert rows[case_id]["order"] == old[case_id]["order"]
        assert rows[case_id]["prompt"] == old[case_id]["prompt"]
        assert all(
            step == f"{model} is poor." for model, (_, step) in reading_of(rows[case_id]).items()
        )
    assert (lessons.output / "test.parquet").read_bytes() == (
        lessons.folder / "data" / "test.parquet"
    ).read_bytes()


def test_the_statistics_and_the_records_say_what_happened(discussed):
    lessons, _ = discussed
    statistics, old = lessons.statistics(), read_dataset(lessons.folder / "data").statistics
    assert statistics["round"] == 1
    assert statistics["follows"] == old["fingerprint"] != statistics["fingerprint"]
    assert statistics["judge"] == {"name": "judge", "settings": "s1"}
    assert list(statistics["splits"]) == ["train", "test"]
    assert statistics["splits"]["test"] == old["splits"]["test"]
    assert statistics["arithmetic"][0] == "8 cases"
    assert set(SAID) <= set(statistics["arithmetic"])
    counts = statistics["counts"]
    assert (counts["cases"], counts["mistakes"], counts["unresolved"]) == (7, 4, 1)
    assert counts["consensus"] == {"keep": 1, "revise": 2}
    card = (lessons.output / "README.md").read_text()
    assert "Round 1" in card
    assert "recording:strong reviewed them.\n" in card
    assert "jury" not in card.partition("## Introspection")[2].partition("##")[0], (
        "no jury has decided"
    )
    assert "1 of the judge's mistakes are unresolved; their verdicts are unchanged." in card
    revised, unresolved = lessons.revisions()["case-1"], lessons.revisions()["case-3"]
    assert revised["old_verdict"]["scores"] == list(lessons.record["case-1"])
    assert revised["judge_verdict"]["scores"] == [3, 3, 3]
    assert revised["revised_verdict"]["scores"] == [5, 1, 1]
    assert revised["suggestion"] == f"Suggestion: All of it.\n{slot_line((5, 1, 1))}"
    assert [piece["role"] for piece in revised["exchanges"]] == ["suggestion", "review", "revision"]
    assert (revised["decided_by"], revised["decision"], revised["consensus_at"]) == (
        "consensus",
        "revise",
        1,
    )
    assert revised["when"].endswith("+00:00")
    assert unresolved["judge_verdict"]["error"] == "no score line"
    undecided = ("decided_by", "decision", "suggestion", "revised_verdict", "when")
    assert {unresolved[name] for name in undecided} == {None}
    assert [piece["text"] for piece in unresolved["exchanges"]][1] == "Review: object\nNever."
    assert [line["case_id"] for line in lessons.read("round1.discussion/jury.jsonl")] == ["case-3"]


def test_no_row_left_leaves_the_old_folder(lessons, tiny_model):
    assert lessons.introspect().returncode == 0
    before = (lessons.output / "train.parquet").read_bytes()
    done = lessons.introspect("--training", lessons.training(tiny_model, 5))
    assert "no training row is left" in error_line(done)
    assert (lessons.output / "train.parquet").read_bytes() == before


def test_without_mistakes_the_rows_are_the_old_ones(lessons):
    done = lessons.introspect(
        "--suggester", "openai:m", "--reviewer", "openai:m", "--knowledge", "none"
    )
    assert "7 cases → 0 mistakes" in done.stdout
    assert lessons.rows() == lessons.old_rows()


def test_a_case_that_waits_stops_the_round_until_the_jury_has_decided(lessons):
    for number in (0, 1):
        lessons.misjudge(number, (3, 3, 3))
    done = lessons.introspect()
    queue = lessons.folder / "round1.discussion" / "jury.jsonl"
    told = succeeded(done).stdout.splitlines()[-1]
    decided = queue.parent / "decided"
    assert (
        f"2 cases wait for the jury in {queue}: decide on the physicians' page (docs/annotation.md) and export"
        in told
    )
    assert (
        f"into {decided}, or fill in a copy of the file there; then run the same command again"
        in told
    )
    assert told.endswith("To go on without the jury: --waiting keep_old")
    assert not lessons.output.exists(), "there is nothing that could be trained on"
    # What the page shows the jury is there already.
    records = {
        record["case_id"]: record for record in lessons.read("round1.discussion/revisions.jsonl")
    }
    assert {name: record["decided_by"] for name, record in records.items()} == {
        "case-0": None,
        "case-1": None,
    }
    # One of two decisions is not enough.
    first, second = lessons.read("round1.discussion/jury.jsonl")
    decided.mkdir()
    lessons.write("round1.discussion/decided/jury.jsonl", [first | {"decision": "keep"}, second])
    assert "1 case waits for the jury" in succeeded(lessons.introspect()).stdout
    told = {
        "rationale": rationale_of(MODELS, second["order"], "decided"),
        "scores": [5, 4, 1],
        "annotator": "chief",
    }
    lines = [first | {"decision": "keep"}, second | {"decision": "revise"} | told]
    lessons.write("round1.discussion/decided/jury.jsonl", lines)
    done = lessons.introspect()
    assert done.returncode == 0, done.stderr
    assert "jury: 2 cases → 1 kept, 1 revised, 0 waiting" in done.stdout
    kept, row = (lessons.rows()[name] for name in ("case-0", "case-1"))
    assert (kept, row["judge"]) == (lessons.old_rows()["case-0"], "jury")
    assert reading_of(row) == {
        model: (score, f"{model} is decided.") for model, score in zip(MODELS, (5, 4, 1))
    }
    records = lessons.revisions()
    decided = [records["case-1"][name] for name in ("decided_by", "annotator", "decision")]
    assert (decided, records["case-0"]["decision"]) == (["jury", "chief", "revise"], "keep")
    assert lessons.statistics()["counts"]["unresolved"] == 0
    assert (
        "nobody reviewed them, the jury had the last word."
        in (lessons.output / "README.md").read_text()
    )
    assert lessons.read("round1.discussion/revisions.jsonl") == lessons.read(
        "round1/revisions.jsonl"
    )
    assert "unresolved;" not in (lessons.output / "README.md").read_text()
    assert lessons.introspect().returncode == 0
    assert (lessons.revisions(), lessons.rows()["case-1"]) == (records, row)


def test_a_decision_without_a_rationale_and_one_that_is_not_needed_any_more(lessons):
    for number in (0, 1):
        lessons.misjudge(number, (3, 3, 3))
    alone = ["--waiting", "keep_old"]
    assert lessons.introspect(*alone).returncode == 0
    queue = "round1.discussion/jury.jsonl"
    first, second = lessons.read(queue)
    (lessons.folder / "round1.discussion" / "decided").mkdir()
    decided = [first | {"decision": "revise", "scores": [5, 4, 1]}, second]
    lessons.write("round1.discussion/decided/jury.jsonl", decided)
    assert "jury: 2 cases → 0 kept, 1 revised, 1 waiting" in lessons.introspect(*alone).stdout
    assert (
        parse_verdict(
            lessons.rows()["case-0"]["completion"][0]["content"], AUTOMEDEVAL, 3
        ).rationale
        is None
    )
    assert {line["case_id"] for line in lessons.read(queue)} == {"case-0", "case-1"}
    lessons.misjudge(0, lessons.record["case-0"])
    assert "jury: 1 decisions on cases that needed none" in lessons.introspect(*alone).stdout


def test_a_second_round_follows_the_first(lessons):
    lessons.misjudge(1, (3, 3, 3))
    lessons.agree(1, (5, 1, 1))
    assert lessons.discuss().returncode == 0
    first = lessons.statistics()
    more = ["--dataset", lessons.output, "--waiting", "keep_old"]
    lessons.output = lessons.folder / "round2"
    done = lessons.introspect(*more)
    assert done.returncode == 0, done.stderr
    assert "7 cases → 1 mistakes" in done.stdout
    second = lessons.statistics()
    assert (second["round"], second["follows"]) == (2, first["fingerprint"])
    (record,) = lessons.read("round2/revisions.jsonl")
    assert record["old_verdict"]["judge"] == "consensus"
    assert record["old_verdict"]["scores"] == [5, 1, 1]


def test_folders_that_hold_no_data_set_are_refused(lessons, tmp_path):
    with pytest.raises(RecordError, match=r"nowhere/statistics.json: No such file"):
        read_dataset(tmp_path / "nowhere")
    file = lessons.folder / "data" / "statistics.json"
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({"splits": {}}))
    with pytest.raises(RecordError, match="not the statistics of a data set"):
        read_dataset(file.parent)
    file.write_text(json.dumps(whole | {"splits": {"stage9": {}}}))
    with pytest.raises(RecordError, match=r"stage9.parquet: cannot be read"):
        read_dataset(file.parent)
