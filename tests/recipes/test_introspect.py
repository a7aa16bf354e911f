"""A round of introspection by its two recipes: recordings, an endpoint, a checkpoint; killed, resumed, refused."""

import json
import re
from functools import partial

import pytest
from doubles.endpoint import EndpointDouble, answer, prompt_of
from doubles.introspection_study import (
    AUTOMEDEVAL,
    MODELS,
    Lessons,
    case_of,
    rationale_of,
    slot_line,
    verdict_of,
)
from doubles.tiny_dataset import training_of
from factories import read, verdicts_in
from programs import APPEND, ROOT, SAMPLE, failed, run_recipe, stopped, succeeded, told
from tables import each_row

from automedeval.models.base import Prompt
from automedeval.models.replay import RecordedChat
from automedeval.records.tables.cases import read_cases
from automedeval.rubrics.grammar import parse_verdict

RUN = ROOT / "recipes/runs/automedeval-135m"


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


@pytest.fixture
def sample(tmp_path):
    """Return the data set of the recorded strong teacher's verdicts on the sample, whose judge ties everything."""
    lessons = Lessons(tmp_path, build=False)
    recorded = RecordedChat(RUN / "teacher.jsonl", "strong", "none")
    lessons.cases = []
    teacher = []
    for case in list(read_cases(SAMPLE / "train_cases.jsonl"))[1:57:2]:
        said = recorded.reply(Prompt([], key=(case.id, 1)))
        reading = parse_verdict(said.text, AUTOMEDEVAL, 3)
        if reading.valid:
            lessons.cases.append(case)
            why = {"rationale": reading.rationale}
            teacher.append(verdict_of(case, reading.scores, "teacher", **why))
    lessons.build(teacher)
    lessons.verdicts = [verdict_of(case, (3, 3, 3)) for case in lessons.cases]
    return lessons


def test_round_1_of_the_small_study(sample, tiny_model):
    options = {"config": RUN / "discuss.yaml", "waiting": "keep_old"}
    options["training"] = training_of(sample.folder, tiny_model, 4000)
    said = told(sample.introspect(**options), "recording:strong reviews")
    counts = sample.statistics()["counts"]
    assert counts["mistakes"] == counts["cases"] == len(sample.old_rows())
    assert 0 < int(re.search(r"exchange 1: \d+, exchange 2: (\d)\)", said)[1]) <= 5
    assert 0 < counts["unresolved"] <= 2
    assert min(counts["consensus"].values()) > 5
    revised = [row for row in sample.rows().values() if row["judge"] == "consensus"]
    assert len(revised) == counts["consensus"]["revise"]
    most = sample.statistics()["splits"]["train"]["tokens"]["most"] - 1
    told(sample.introspect(**options | {"training": training_of(sample.folder, tiny_model, most)}))
    (dropped,) = sample.read("round1/dropped.jsonl")
    assert dropped["reason"] == f"more than {most:,} tokens"


@pytest.fixture
def with_reference(tmp_path):
    """Return a data set whose verdicts are on two responses and the reference; the last training row has no rationale."""
    lessons = Lessons(tmp_path, build=False)
    lessons.cases = [case_of(at, MODELS[:2]) for at in range(8)]
    teacher = []
    for case in lessons.cases:
        about = {"models": [*MODELS[:2], "reference"], "order": lessons.order[case.id]}
        about |= {"rationale": None} if case is lessons.cases[6] else {}
        teacher.append(verdict_of(case, lessons.record[case.id], "teacher", **about))
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
        asked = [json.dumps(request["body"]["messages"]) for request in endpoint.asked]
        assert sorted(asked) == sorted(json.dumps(row["prompt"]) for row in rows.values())
        succeeded(judge(base_url=endpoint.url, seed=5))
        assert len(endpoint.asked) == len(rows) == 7, "the second run has nothing to do"
        some = {"split": "stage1[1:]+stage2[:50%]", "rationale": False, "output": part}
        succeeded(judge(base_url=endpoint.url, **some))
        assert "Write one line in this form" in json.dumps(endpoint.asked[-1]["body"])
    names = sorted(verdict.case_id for verdict in verdicts_in(part))
    assert names == [f"case-{at}" for at in range(1, 5)]
    models = {verdict.models for verdict in verdicts_in(judged)}
    assert models == {(*MODELS[:2], "reference")}
    said = succeeded(with_reference.introspect(verdicts=judged)).stdout
    # A naive count over the records: the verdict on record has one or more scores that are not 3.
    wrong = [case_id for case_id in rows if set(with_reference.record[case_id]) != {3}]
    assert f", {len(wrong)} mistakes (" in said
    assert [
        line["case_id"] for line in with_reference.read("round1.discussion/jury.jsonl")
    ] == wrong


@each_row("options, said")
def test_rows_leave_no_choice_of_responses(judge, options, said):
    failed(judge(base_url="http://127.0.0.1:9/v1", **options), said)


def partner(body):
    """Suggest 5, 4, 1 for the first three responses, object to it once, and rewrite the verdict."""
    first = body["messages"][1]["content"]
    last = prompt_of(body)
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
    partners = {"suggester": "openai:m", "reviewer": "openai:m", "store": "none"}
    return partial(lessons.introspect, max_retries=0, **partners)


def test_an_endpoint_suggests_and_reviews_and_a_stopped_discussion_goes_on(lessons, discuss):
    for number in range(6):
        lessons.misjudge(number, (3, 3, 3))
    whole = lessons.folder / "whole"
    file = lessons.folder / "round1.discussion/discussion.jsonl"
    with EndpointDouble(partner) as endpoint:
        run = partial(discuss, base_url=endpoint.url, concurrency=2)
        said = told(run(output=whole), "0 without a consensus, 6 with one (exchange 2: 6)")
        assert run(output=whole).stdout == said
        assert len(endpoint.asked) == 30, "the journal answers"
        failed(run(output=whole, temperature=0.5), "choose another --output")
        with stopped(APPEND, 9):
            run()
        with open(file, "ab") as stream:  # as if the kill had cut a line in two
            stream.write(b'{"case_id": "case-')
        succeeded(run())
        assert untimed(lessons.output) == untimed(whole)
        assert len(endpoint.asked) - 30 <= 30 + 2, "only what was under way is asked again"
    for record in lessons.revisions().values():
        assert record["revised_verdict"]["scores"] == [5, 4, 1]
        assert "rewritten" in record["revised_verdict"]["rationale"]


@each_row("options, said")
def test_what_cannot_be_is_told_in_one_line(lessons, options, said):
    failed(lessons.introspect(**options), said)
    assert not lessons.output.exists()


def test_a_round_is_not_written_over_its_own_data_set(lessons):
    lessons.output = lessons.folder / "data"
    failed(lessons.introspect(), "a round needs another folder than its data set")
