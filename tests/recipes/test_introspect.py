"""A round of introspection by its two recipes: recordings, an endpoint, a checkpoint; killed, resumed, refused."""

import json
import re
from dataclasses import replace
from functools import partial

import pytest
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
from factories import read, read_json, verdicts_in, write
from programs import APPEND, ROOT, SAMPLE, failed, run_recipe, stopped, succeeded, told
from tables import rows_of

from automedeval.models.base import Prompt
from automedeval.models.replay import RecordedChat
from automedeval.records.cases import read_cases
from automedeval.rubrics.grammar import parse_verdict
from automedeval.study.dataset.folder import read_dataset, write_card, write_splits
from automedeval.study.dataset.instructions import instruction

ROWS = rows_of(__file__)
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


def test_round_1_of_the_small_study(sample, tmp_path, tiny_model):
    round1, training = tmp_path / "round1", tmp_path / "training.yaml"
    about = {"dataset": sample, "output": round1}
    discuss = {"config": RUN / "discuss.yaml", "verdicts": sample}
    succeeded(run_recipe("introspect_discuss", **discuss, **about))

    def revise(most: int) -> str:
        training.write_text(json.dumps({"model_name_or_path": str(tiny_model), "max_length": most}))
        options = {
            "cases": SAMPLE / "train_cases.jsonl",
            "waiting": "keep_old",
            "training": training,
        }
        return succeeded(run_recipe("introspect_revise", **options, **about)).stdout

    revise(4000)
    old = read_dataset(sample)
    statistics = read_json(round1 / "statistics.json")
    counts, consensus = statistics["counts"], statistics["counts"]["consensus"]
    assert statistics["partners"]["reviewer"] == "recording:strong"
    assert counts["mistakes"] == counts["cases"] == len(old.training)
    agreed = re.search(r"exchange 1: \d+, exchange 2: (\d)\)", "\n".join(statistics["arithmetic"]))
    assert 0 < int(agreed[1]) <= 5
    assert 0 < counts["unresolved"] <= 2
    assert min(consensus["keep"], consensus["revise"]) > 5
    rows = {row["case_id"]: row for row in read_dataset(round1).splits["train"]}
    revised = {name for name, row in rows.items() if row["judge"] == "consensus"}
    assert len(revised) == consensus["revise"]
    kept = [row for row in old.training if row["case_id"] not in revised]
    assert all(rows[row["case_id"]] == row for row in kept)
    reason = f"more than {statistics['splits']['train']['tokens']['most'] - 1:,} tokens"
    assert f"({reason}: 1)" in revise(statistics["splits"]["train"]["tokens"]["most"] - 1)
    assert [each["reason"] for each in read(round1 / "dropped.jsonl")] == [reason]


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


@pytest.fixture
def judge(with_reference, tmp_path):
    """Return what judges the rows of the data set with an endpoint."""
    files = {"cases": tmp_path / "cases.jsonl", "dataset": tmp_path / "data"}
    return partial(run_recipe, "judge", judge="openai:m", output=tmp_path / "judged", **files)


def test_the_judge_of_a_round_is_asked_the_prompts_of_the_rows(judge, with_reference, tmp_path):
    rows, judged, part = with_reference.old_rows(), tmp_path / "judged", tmp_path / "part"
    alike = answer(f"Step 1: All alike.\n{slot_line([3, 3, 3])}")
    with EndpointDouble(alike) as endpoint:
        succeeded(judge(base_url=endpoint.url, seed=5))
        asked = [request["body"]["messages"] for request in endpoint.asked]
        succeeded(judge(base_url=endpoint.url, seed=5))
        assert len(endpoint.asked) == len(rows) == 7, "the second run has nothing to do"
        some = {"split": "stage1[1:]+stage2[:50%]", "rationale": False, "output": part}
        succeeded(judge(base_url=endpoint.url, **some))
        assert "Write one line in this form" in json.dumps(endpoint.asked[-1]["body"])
    names = sorted(verdict.case_id for verdict in verdicts_in(part))
    assert names == [f"case-{at}" for at in range(1, 5)]
    assert sorted(map(json.dumps, asked)) == sorted(
        json.dumps(row["prompt"]) for row in rows.values()
    )
    models = {tuple(verdict.extra["models"]) for verdict in verdicts_in(judged)}
    assert models == {(*MODELS[:2], "reference")}
    files = {name: judge.keywords[name] for name in ("cases", "dataset")}
    output = tmp_path / "round1"
    succeeded(run_recipe("introspect_discuss", **files, verdicts=judged, output=output))
    # A naive count over the records: the verdict on record has one or more scores that are not 3.
    wrong = {case_id for case_id in rows if set(with_reference.record[case_id]) != {3}}
    assert {line["case_id"] for line in read(tmp_path / "round1.discussion/jury.jsonl")} == wrong


@pytest.mark.parametrize(("options", "said"), ROWS["test_rows_leave_no_choice_of_responses"])
def test_rows_leave_no_choice_of_responses(judge, options, said):
    failed(judge(base_url="http://127.0.0.1:9/v1", **options), said)


def test_rows_are_judged_with_the_texts_that_they_were_made_of(judge, with_reference):
    others = [case_of(at, MODELS[:2], reference="Another.").to_dict() for at in range(8)]
    with_reference.write("cases.jsonl", others)
    failed(judge(base_url="http://127.0.0.1:9/v1"), "its texts")


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


@pytest.fixture
def discuss(lessons):
    """Return what lets one model at an endpoint suggest and review."""
    partners = {"suggester": "openai:m", "reviewer": "openai:m", "knowledge": "none"}
    return partial(lessons.introspect, max_retries=0, **partners)


def misjudge(lessons: Lessons, *numbers: int) -> None:
    for number in numbers:
        lessons.misjudge(number, (3, 3, 3))


def test_an_endpoint_suggests_and_reviews(lessons, discuss):
    misjudge(lessons, 0, 2, 4)
    with EndpointDouble(partner) as endpoint:
        run = partial(discuss, base_url=endpoint.url)
        said = told(run(), "3 mistakes → 3 consensus (exchange 2: 3), 0 without")
        assert run().stdout == said
        assert len(endpoint.asked) == 3 * 5, "the journal answers"
        failed(run(temperature=0.5), "choose another --output")
    for record in lessons.revisions().values():
        assert record["revised_verdict"]["scores"] == [5, 4, 1]
        assert "rewritten" in record["revised_verdict"]["rationale"]


def test_a_stopped_discussion_goes_on_to_the_same_round(lessons, discuss):
    misjudge(lessons, *range(6))
    whole = lessons.folder / "whole"
    with EndpointDouble(partner) as endpoint:
        run = partial(discuss, base_url=endpoint.url, concurrency=2)
        succeeded(run(output=whole))
        asked = len(endpoint.asked)
        file = lessons.folder / "round1.discussion" / "discussion.jsonl"
        with stopped(APPEND, 9):
            run()
        with open(file, "ab") as stream:  # as if the kill had cut a line in two
            stream.write(b'{"case_id": "case-')
        succeeded(run())
        assert untimed(lessons.output) == untimed(whole)
        assert len(endpoint.asked) - asked <= 30 + 2, "only what was under way is asked again"


def test_what_the_jury_fills_in_during_the_discussion_is_not_lost(lessons, discuss):
    misjudge(lessons, 0, 2)
    waiting = lessons.introspect()
    assert "error:" not in waiting.stderr
    told(waiting, "2 cases wait for the jury", "then run the same command again")
    queue = lessons.folder / "round1.discussion" / "jury.jsonl"

    def meanwhile(body):
        decided = [line | {"decision": "keep"} for line in read(queue)]
        write(queue.parent / "decided" / queue.name, decided)
        reviews = "A colleague suggests" in body["messages"][1]["content"]
        return answer("Review: object\nNo.") if reviews else partner(body)

    with EndpointDouble(meanwhile) as endpoint:
        done = discuss(base_url=endpoint.url, concurrency=1)
    kept = "jury: 2 cases → 2 kept, 0 revised, 0 waiting"
    told(done, "2 mistakes → 0 consensus, 2 without", kept)
    record = lessons.revisions()["case-0"]
    assert (record["decided_by"], record["suggestion"]) == ("jury", None)
    assert len(record["exchanges"]) == 6
    # Both recipes: the first one takes what was decided.
    told(lessons.introspect(), "no mistake waits for the jury")
    assert lessons.revisions()["case-0"]["decided_by"] == "jury"


@pytest.mark.parametrize(("options", "said"), ROWS["test_what_cannot_be_is_told_in_one_line"])
def test_what_cannot_be_is_told_in_one_line(lessons, options, said):
    failed(lessons.introspect(**options), said)
    assert not lessons.output.exists()


def test_a_round_is_not_written_over_its_own_data_set(lessons):
    lessons.output = lessons.folder / "data"
    failed(lessons.introspect(), "a round needs another folder than its data set")
