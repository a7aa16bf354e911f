"""A round of introspection by its two recipes: recordings, an endpoint, a checkpoint; killed, resumed, refused."""

import json
import re
from dataclasses import replace

import pytest
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    Lessons,
    case_of,
    rationale_of,
    slot_line,
    verdict_of,
)
from doubles.tiny_dataset import FACTS
from programs import APPEND, ROOT, SAMPLE, error_line, run_recipe, stopped, succeeded
from tables import rows_of

from automedeval.dataset.folder import read_dataset, write_card, write_splits
from automedeval.dataset.instructions import instruction
from automedeval.models.base import Prompt
from automedeval.models.replay import RecordedChat
from automedeval.records import read_cases
from automedeval.rubrics.grammar import parse_verdict

RUN = ROOT / "recipes" / "runs" / "automedeval-135m"


@pytest.fixture
def lessons(tmp_path):
    return Lessons(tmp_path)


def untimed(folder):
    """Return what a round wrote, without when it was said."""
    records = read(folder / "revisions.jsonl")
    for record in records:
        record["when"] = None
        for piece in record["exchanges"]:
            del piece["when"]
    return records, [(folder / name).read_bytes() for name in ("train.parquet", "test.parquet")]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Build a data set of the recorded teachers' verdicts on the sample, and verdicts of a judge that ties everything."""
    folder, splits = tmp_path_factory.mktemp("sample"), {}
    cases = list(read_cases(SAMPLE / "train_cases.jsonl"))
    chats = {name: RecordedChat(RUN / "teacher.jsonl", name, "none") for name in ("strong", "weak")}
    judged = []
    for name, part in (("stage1", cases[::2]), ("stage3", cases[1:55:2]), ("test", cases[55::2])):
        splits[name] = []
        for case in part:
            teacher = "weak" if name == "stage1" else "strong"
            ((_, said),) = chats[teacher].answer([Prompt([], key=(case.id, 1))])
            reading = parse_verdict(said.text, AUTOMEDEVAL, 3)
            if reading.valid:
                verdict = verdict_of(case, reading.scores, teacher, rationale=reading.rationale)
                splits[name].append(instruction(case, verdict, AUTOMEDEVAL, teacher, "high"))
                judged.append(
                    verdict_of(
                        case, (3, 3, 3), "stage3", rationale="Analyze:\nStep 1: Hm."
                    ).to_dict()
                )
    write_card(folder, write_splits(folder, splits) | FACTS | {"folder": "sample", "rubrics": {}})
    write(folder / "verdicts.jsonl", judged)
    return folder


def test_round_1_of_the_small_study(sample, tmp_path, tiny_model) -> None:
    about = ["--dataset", sample, "--output", tmp_path / "round1"]
    said = run_recipe(
        "introspect_discuss", "--config", RUN / "discuss1.yaml", *about, "--verdicts", sample
    )
    training = tmp_path / "training.yaml"
    training.write_text(json.dumps({"model_name_or_path": str(tiny_model), "max_length": 4000}))
    assert said.returncode == 0, said.stderr
    options = ["--config", RUN / "revise1.yaml", *about, "--training", training]
    succeeded(run_recipe("introspect_revise", *options))
    old = read_dataset(sample)
    statistics = json.loads((tmp_path / "round1" / "statistics.json").read_text())
    counts = statistics["counts"]
    assert statistics["partners"]["reviewer"] == "recording:strong"
    assert counts["mistakes"] == counts["cases"] == len(old.training)
    agreed = re.search(r"exchange 1: \d+, exchange 2: (\d)\)", "\n".join(statistics["arithmetic"]))
    assert 0 < int(agreed[1]) <= 5
    assert 0 < counts["unresolved"] <= 2
    assert counts["consensus"]["keep"] > 5
    assert counts["consensus"]["revise"] > 5
    rows = {row["case_id"]: row for row in read_dataset(tmp_path / "round1").splits["train"]}
    revised = [row for row in rows.values() if row["judge"] == "consensus"]
    assert len(revised) == counts["consensus"]["revise"]
    assert all(
        rows[row["case_id"]] == row
        for row in old.training
        if rows[row["case_id"]]["judge"] != "consensus"
    )
    most = statistics["splits"]["train"]["tokens"]["most"]
    training.write_text(json.dumps({"model_name_or_path": str(tiny_model), "max_length": most - 1}))
    shorter = run_recipe("introspect_revise", *options)
    assert f"(more than {most - 1:,} tokens: 1)" in shorter.stdout
    (dropped,) = read(tmp_path / "round1" / "dropped.jsonl")
    assert dropped["reason"] == f"more than {most - 1:,} tokens"


@pytest.fixture
def with_reference(tmp_path):
    """Return a data set whose verdicts are on two responses and the reference; the last training row has no rationale."""
    lessons = Lessons(tmp_path, build=False)
    lessons.cases = [case_of(at, MODELS[:2]) for at in range(8)]
    teacher = []
    for case in lessons.cases:
        about = {"models": [*MODELS[:2], "reference"], "order": lessons.order[case.id]}
        shown = verdict_of(case, lessons.record[case.id], "teacher", **about)
        teacher.append(replace(shown, rationale=None) if case is lessons.cases[6] else shown)
    lessons.build(teacher)
    return lessons


def test_the_judge_of_a_round_is_asked_the_prompts_of_the_rows(with_reference, tmp_path) -> None:
    options = (
        "--judge",
        "openai:m",
        "--cases",
        tmp_path / "cases.jsonl",
        "--dataset",
        tmp_path / "data",
    )
    options += ("--output", tmp_path / "judged")
    rows = with_reference.old_rows()
    with EndpointDouble(
        lambda body: answer(f"Step 1: All alike.\n{slot_line([3, 3, 3])}")
    ) as endpoint:
        succeeded(run_recipe("judge", *options, "--base_url", endpoint.url, "--seed", 5))
        asked = [json.dumps(request["body"]["messages"]) for request in endpoint.asked]
        assert (
            run_recipe("judge", *options, "--base_url", endpoint.url, "--seed", 5).returncode == 0
        )
        assert len(endpoint.asked) == len(rows) == 7, "the second run has nothing to do"
        part = [*options[:-1], tmp_path / "part", "--split", "stage1[1:]+stage2[:50%]"]
        succeeded(run_recipe("judge", *part, "--rationale", False, "--base_url", endpoint.url))
        assert "Write one line in this form" in json.dumps(endpoint.asked[-1]["body"])
    assert sorted(line["case_id"] for line in read(tmp_path / "part/verdicts.jsonl")) == [
        *("case-1", "case-2", "case-3", "case-4")
    ]
    assert sorted(asked) == sorted(json.dumps(row["prompt"]) for row in rows.values())
    models = {tuple(verdict["models"]) for verdict in read(tmp_path / "judged/verdicts.jsonl")}
    assert models == {(*MODELS[:2], "reference")}
    options = (
        "--dataset",
        tmp_path / "data",
        "--verdicts",
        tmp_path / "judged",
        "--cases",
        tmp_path / "cases.jsonl",
    )
    succeeded(run_recipe("introspect_discuss", *options, "--output", tmp_path / "round1"))
    # A naive count over the records: the verdict on record has one or more scores that are not 3.
    wrong = {case_id for case_id in rows if set(with_reference.record[case_id]) != {3}}
    assert {line["case_id"] for line in read(tmp_path / "round1.discussion/jury.jsonl")} == wrong


def test_rows_leave_no_choice_of_responses(with_reference, tmp_path) -> None:
    options = (
        "--judge",
        "openai:m",
        "--cases",
        tmp_path / "cases.jsonl",
        "--output",
        tmp_path / "judged",
    )
    options += ("--dataset", tmp_path / "data", "--base_url", "http://127.0.0.1:9/v1")
    for more in (("--orders", "all"), ("--models", "ash"), ("--baseline", "ash")):
        said = error_line(run_recipe("judge", *options, *more))
        assert said.startswith("error: --dataset: its rows say what is judged")
    assert "not a single training row" in error_line(
        run_recipe("judge", *options, "--rubric", "medical_pairwise")
    )
    with_reference.write(
        "cases.jsonl", [case_of(at, MODELS[:2], reference="Another.").to_dict() for at in range(8)]
    )
    assert "its texts" in error_line(run_recipe("judge", *options))


def partner(body):
    """Suggest 5, 4, 1 for the first three responses, object to it once, and rewrite the verdict."""
    first, last = body["messages"][1]["content"], body["messages"][-1]["content"]
    order = [
        MODELS.index(name) for name in re.findall(r"Doctor \d:\n~~~\nAnswer \d+ of (\w+):", first)
    ]
    points = slot_line([(5, 4, 1)[index] for index in order])
    if "Now write verdict 1 anew" in last:
        return answer(f"{rationale_of(MODELS, order, 'rewritten')}\n{points}")
    if "A colleague suggests" in first:
        again = len(body["messages"]) > 2
        return answer("Review: accept" if again else "Review: object\nSay why.")
    return answer(f"Suggestion: They are not alike.\n{points}")


ENDPOINT = [
    "--suggester",
    "openai:m",
    "--reviewer",
    "openai:m",
    "--knowledge",
    "none",
    "--max_retries",
    0,
]


def test_an_endpoint_suggests_and_reviews(lessons) -> None:
    for number in (0, 2, 4):
        lessons.misjudge(number, (3, 3, 3))
    with EndpointDouble(partner) as endpoint:
        done = succeeded(lessons.introspect(*ENDPOINT, "--base_url", endpoint.url))
        assert len(endpoint.asked) == 3 * 5
        assert "3 mistakes → 3 consensus (exchange 2: 3), 0 without" in done.stdout
        again = lessons.introspect(*ENDPOINT, "--base_url", endpoint.url)
        assert again.stdout == done.stdout
        assert len(endpoint.asked) == 3 * 5, "the journal answers"
        other = lessons.introspect(*ENDPOINT, "--base_url", endpoint.url, "--temperature", 0.5)
        assert "choose another --output" in error_line(other)
    for record in lessons.revisions().values():
        assert record["revised_verdict"]["scores"] == [5, 4, 1]
        assert "rewritten" in record["revised_verdict"]["rationale"]


def test_a_stopped_discussion_goes_on_to_the_same_round(lessons) -> None:
    for number in range(6):
        lessons.misjudge(number, (3, 3, 3))
    with EndpointDouble(partner) as endpoint:
        address = [*ENDPOINT, "--base_url", endpoint.url, "--concurrency", 2]
        succeeded(lessons.introspect(*address, "--output", lessons.folder / "whole"))
        whole, asked = untimed(lessons.folder / "whole"), len(endpoint.asked)
        file = lessons.folder / "round1.discussion" / "discussion.jsonl"
        with stopped(APPEND, 9):
            lessons.introspect(*address)
        with open(file, "ab") as stream:  # as if the kill had cut a line in two
            stream.write(b'{"case_id": "case-')
        succeeded(lessons.introspect(*address))
        assert untimed(lessons.output) == whole
        assert len(endpoint.asked) - asked <= 30 + 2, "only what was under way is asked again"


def test_what_the_jury_fills_in_during_the_discussion_is_not_lost(lessons) -> None:
    for number in (0, 2):
        lessons.misjudge(number, (3, 3, 3))
    waiting = lessons.introspect()
    assert (waiting.returncode, waiting.stderr.count("error:")) == (0, 0)
    assert "2 cases wait for the jury" in waiting.stdout
    assert "then run the same command again" in waiting.stdout, "what is next"
    queue = lessons.folder / "round1.discussion" / "jury.jsonl"

    (queue.parent / "decided").mkdir()

    def meanwhile(body):
        write(
            queue.parent / "decided" / queue.name,
            [line | {"decision": "keep"} for line in read(queue)],
        )
        reviews = "A colleague suggests" in body["messages"][1]["content"]
        return answer("Review: object\nNo.") if reviews else partner(body)

    with EndpointDouble(meanwhile) as endpoint:
        done = lessons.introspect(*ENDPOINT, "--base_url", endpoint.url, "--concurrency", 1)
    assert "2 mistakes → 0 consensus, 2 without" in done.stdout
    assert "jury: 2 cases → 2 kept, 0 revised, 0 waiting" in done.stdout, done.stderr
    record = lessons.revisions()["case-0"]
    assert (record["decided_by"], record["suggestion"], len(record["exchanges"])) == (
        "jury",
        None,
        6,
    )
    again = lessons.introspect()  # both recipes: the first one takes what was decided
    assert "no mistake waits for the jury" in again.stdout
    assert lessons.revisions()["case-0"]["decided_by"] == "jury"


@pytest.mark.parametrize(
    ("options", "said"), rows_of(__file__)["test_what_cannot_be_is_told_in_one_line"]
)
def test_what_cannot_be_is_told_in_one_line(lessons, options, said) -> None:
    assert said in error_line(lessons.introspect(*options))
    assert not lessons.output.exists()


def test_a_round_is_not_written_over_its_own_data_set(lessons) -> None:
    lessons.output = lessons.folder / "data"
    assert "a round needs another folder than its data set" in error_line(lessons.introspect())
