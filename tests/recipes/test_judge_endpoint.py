"""recipes/judge.py against an endpoint, as a person starts it, or with a file of requests for machines without a network."""

from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest
from doubles.agreement_study import opened
from doubles.endpoint import (
    CUT_OFF,
    HANG,
    EndpointDouble,
    answer,
    error,
    good_answer,
    prompt_of,
    takes_no,
    without,
)
from factories import read, verdicts_in, write
from programs import SAMPLE, failed, run_recipe, served, succeeded
from tables import each_row, holds_all

from automedeval.judges.judge import Judge
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Verdict
from automedeval.records.tables.cases import read_cases

CASES = SAMPLE / "test_cases.jsonl"
LIMITS = ("max_tokens", "max_completion_tokens")
CASES_OF = list(read_cases(CASES))
IDS = [case.id for case in CASES_OF]


class Judged(NamedTuple):
    status: int
    out: str
    messages: list[str]  # on stderr, without progress bars
    verdicts: list[Verdict]

    @property
    def valid(self) -> list[bool]:
        return [verdict.valid for verdict in self.verdicts]


class Runs:
    """Runs of the recipe on the first cases of the sample, with one output."""

    def __init__(self, folder: Path):
        self.output = folder / "out"

    def start(self, url: str, *words: object, launch=None, **options: object) -> Judged:
        usual = {"judge": "openai:m", "limit": 4, "max_retries": 0, "timeout": 5}
        usual |= {"base_url": url, "cases": CASES, "output": self.output, "rubric": "automedeval"}
        done = run_recipe("judge", *words, launch=launch, **usual | options)
        lines = done.stderr.replace("\r", "\n").split("\n")
        messages = [
            line
            for line in lines
            if line.strip() and "verdict/s" not in line and "s/verdict" not in line
        ]
        return Judged(done.returncode, done.stdout, messages, verdicts_in(self.output))

    def good(self, url: str, *words: object, **options: object) -> Judged:
        """Return a run that ends well and has nothing to complain of."""
        run = self.start(url, *words, **options)
        assert (run.status, run.messages) == (0, [])
        return run

    def report(self, cases: Path = CASES) -> str:
        """Return the page of a report on the verdicts."""
        files = {"verdicts": self.output, "cases": cases, "output": self.output / "r"}
        succeeded(run_recipe("report", **files, resamples=100, encoder="none"))
        return (self.output / "r/report.html").read_text("utf-8")

    def failed(self, url: str, said: str, **options: object) -> Judged:
        """Return a run that fails, and says this in its one line."""
        run = self.start(url, **options)
        (message,) = run.messages
        assert (run.status, message.startswith("error: ")) == (1, True)
        assert said in message
        return run


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


def test_the_first_cases_are_judged_and_a_second_run_has_nothing_to_do(runs):
    with EndpointDouble(good_answer) as endpoint:
        first = runs.good(endpoint.url, launch=())
        assert sorted(verdict.case_id for verdict in first.verdicts) == sorted(IDS[:4])
        told = [(each.valid, each.judge, {*each.scores}) for each in first.verdicts]
        assert told == [(True, "m", {4})] * 4
        assert "cases: 4, verdicts: 4 (new: 4)" in first.out
        assert "Invalid verdicts" not in first.out
        again = runs.good(endpoint.url)
        assert again.verdicts == first.verdicts
        assert "verdicts: 4 (new: 0)" in again.out
        assert len(endpoint.asked) == 4


@pytest.mark.parametrize(
    ("fault", "said", "launch"),
    [
        (error(401, "Incorrect API key"), "answered 401: Incorrect API key", None),
        (HANG, "no answer within 0.8 s", None),
        (CUT_OFF, "peer closed connection", ()),
        ({"status": 200, "text": "<p>Welcome</p>", "type": "text/html"}, "cannot be read", None),
    ],
)
def test_a_fault_is_one_line_and_the_next_run_finishes(runs, fault, said, launch):
    with EndpointDouble(good_answer, good_answer, fault) as endpoint:
        # one at a time, so that the first two are answered
        options = {"concurrency": 1, "timeout": 0.8 if fault is HANG else 20}
        before = runs.failed(endpoint.url, said, launch=launch, **options).verdicts
        assert len(before) == 2
        endpoint.script = [good_answer]
        asked = len(endpoint.asked)
        after = runs.good(endpoint.url).verdicts
        assert (after[:2], len(endpoint.asked) - asked) == (before, 2)
        assert len(after) == len({verdict.key for verdict in after}) == 4


@each_row("readable, status, refuses")
def test_an_answer_that_cannot_be_read_is_shown_and_without_a_valid_one_the_run_fails(
    runs, readable, status, refuses
):
    said = "I cannot\n**score** medical advice."
    reply = answer(None, thoughts={"refusal": said}) if refuses else answer(said)
    with EndpointDouble(*[good_answer] * readable, reply) as endpoint:
        run = runs.start(endpoint.url, concurrency=1)
    assert (run.status, sum(run.valid)) == (status, readable)
    assert run.out.count(said) == 1
    assert ("The report:" in run.out) == bool(readable)
    assert all("no verdict is valid" in message for message in run.messages)


def long_or_cut(body):
    """Cut the answers on one case off below 600 tokens, and write what cannot be read on another."""
    second, first = (case.question for case in CASES_OF[1:3])
    text = str(body["messages"])
    if second in text:
        return answer("I would rather not say.")
    if first in text and max(body.get(name, 0) for name in LIMITS) < 600:
        return answer("Step 1: the complaint", finish_reason="length")
    return good_answer(body)


def test_what_was_cut_off_is_asked_again_with_more_tokens_and_no_other_invalid_verdict(runs):
    with EndpointDouble(long_or_cut) as endpoint:
        before = runs.good(endpoint.url, max_new_tokens=500, runs=2)
        assert before.valid.count(False) == 4
        assert "--again cut with a larger --max_new_tokens" in before.out
        assert f"a folder of its own, --output {runs.output}-2" in before.out
        runs.failed(endpoint.url, "choose another --output", max_new_tokens=900)
        runs.failed(endpoint.url, "had a smaller --max_new_tokens", max_new_tokens=500, again="cut")
        asked = len(endpoint.asked)
        again = partial(runs.good, endpoint.url, max_new_tokens=900, again="cut")
        assert len(again(limit=1).verdicts) == 8, "of other cases nothing is moved"
        after = again()
        assert (len(after.verdicts), after.valid.count(False)) == (8, 3), "nor of other runs"
        assert "1 of 4 cases had answers cut off, or changed: " in after.out
        file = runs.output / "replaced-verdicts.jsonl"
        (replaced,) = read(file)
        assert "\n9 requests, " in after.out
        assert (replaced["truncated"], replaced["case_id"], replaced["run"]) == (True, IDS[2], 0)
        for tokens in (900, 500):
            assert "(new: 0)" in runs.good(endpoint.url, max_new_tokens=tokens).out
        assert len(endpoint.asked) == asked + 1
        other = {"judge": "openai:k", "runs": 1}  # which nobody asked again
        runs.good(endpoint.url, **other, max_new_tokens=500)
        runs.failed(endpoint.url, "choose another --output", **other, max_new_tokens=900)
    file.write_text(file.read_text() + '{"case_id": "torn')
    assert "<dd>9 requests, " in runs.report(runs.output / "cases-4.jsonl")


def test_requests_and_tokens_are_counted_after_the_run_and_in_the_report(runs):
    cached = {"prompt_tokens_details": {"cached_tokens": 4000}}
    usage = {"prompt_tokens": 9000, "completion_tokens": 10, **cached}
    with EndpointDouble(lambda body: answer(good_text(body), usage=usage)) as endpoint:
        said = "12 requests, 108,000 tokens in, 120 out, 48,000 of those in were cached"
        assert said in runs.good(endpoint.url, orders="latin").out
    holds_all(
        runs.report(), (f"<dd>{said}.</dd>", "prefers the response shown earlier in 50 %.</dd>")
    )


@each_row("options, cases")
def test_answers_beside_a_request_that_failed_are_counted_though_asked_again(runs, options, cases):
    # One request fails, then one stops the run, then none: all others were paid.
    options["cases"] = write(runs.output.with_suffix(".jsonl"), cases)
    with EndpointDouble(good_answer) as endpoint:
        for fault in (error(503), error(401), good_answer):
            endpoint.script = [good_answer, fault, good_answer]
            run = runs.start(endpoint.url, **options)
    paid = len(endpoint.asked) - 2
    assert f"\n{paid} requests, {9000 * paid:,} tokens in, " in run.out


def test_each_answer_has_its_rationale_on_the_page_which_the_token_limit_did_not_break(runs):
    """The limit is reached behind the scores; the order in the file does not matter."""
    with EndpointDouble(lambda body: answer(good_text(body), finish_reason="length")) as endpoint:
        runs.good(endpoint.url, limit=1, rubric="automedeval_pointwise")
    write(runs.output / "verdicts.jsonl", read(runs.output / "verdicts.jsonl")[::-1])
    page = runs.report(runs.output / "cases-1.jsonl")
    assert "Broken rationales" not in page
    titles = [title for title, _ in opened(page)[0]["rationales"]]
    assert titles == [f"Rationale of m (1 is {model})" for model in CASES_OF[0].models]


def test_a_dry_run_counts_and_asks_nothing(runs):
    counted = partial(runs.good, orders="latin")
    with EndpointDouble(good_answer) as endpoint:
        run = counted(endpoint.url, "--dry_run")
        assert run.verdicts == endpoint.asked == []
        assert "cases: 4, verdicts: 12, judged already: 0, prompt tokens: about " in run.out
        tokens = run.out.split("about ")[1]
        assert 12 * 200 < int(tokens.replace(",", "")) < 12 * 2000
        assert not runs.output.exists()
        runs.good(endpoint.url, limit=3)
        assert (
            "cases: 1, verdicts: 1, judged already: 3" in runs.good(endpoint.url, "--dry_run").out
        )
    unserved = runs.start(endpoint.url, "--dry_run")
    assert unserved.status == 1, "only the server can say whose verdicts these are"
    (runs.output / "verdicts.jsonl").unlink()
    assert f"about {tokens}" in counted(endpoint.url, "--dry_run").out


def good_text(body):
    return good_answer(body)["json"]["choices"][0]["message"]["content"]


def test_another_model_behind_the_same_name_and_url_is_another_judge(runs):
    """Round 1 and round 2 of a study, on one local server."""
    with EndpointDouble(partial(good_answer, score=2)) as endpoint:
        served = {"id": "m", "root": "checkpoints/round1", "owned_by": "vllm"}
        endpoint.models = [{"id": "other"}, served]
        first = runs.good(endpoint.url)
        assert {verdict.scores for verdict in first.verdicts} == {(2, 2, 2)}
        assert "m at " + endpoint.url in first.out
        assert "root checkpoints/round1, owned_by vllm" in first.out
        assert runs.good(endpoint.url).verdicts == first.verdicts  # `created` is another each time
        endpoint.script = [partial(good_answer, score=5)]
        served["root"] = "checkpoints/round2"
        runs.failed(endpoint.url, "with other weights, wording or settings")
        assert len(endpoint.asked) == 4


def refuses(*numbers, words="Input rejected (request req_{}).", status=400, slow=0.0):
    """Return a script that refuses the prompts of these cases of the sample, and answers the others."""
    questions = [case.question for case in read_cases(CASES)]
    count = iter(range(1000))

    def script(body):
        text = prompt_of(body)
        if any(questions[number] in text for number in numbers):
            return error(status, words.format(next(count)))
        return good_answer(body) | {"delay": slow}

    return script


@each_row("status, slow")
def test_one_refused_prompt_is_its_own_invalid_verdict(runs, status, slow):
    with EndpointDouble(refuses(0, 3, status=status, slow=slow)) as endpoint:
        run = runs.good(endpoint.url, limit=6)
        invalid = {verdict.case_id: verdict.error for verdict in run.verdicts if not verdict.valid}
        assert invalid.keys() == {IDS[0], IDS[3]}
        said = f"the endpoint answered {status}: Input rejected (request req_"
        assert all(said in each for each in invalid.values())
        assert "verdicts: 6 (new: 6)" in run.out
        assert "Invalid verdicts: 33 % of the verdicts are invalid" in run.out
        runs.start(endpoint.url, limit=6)
        assert len(endpoint.asked) == 6


def test_a_run_whose_prompts_are_all_refused_records_nothing(runs):
    with EndpointDouble(refuses(*range(100))) as endpoint:
        said = f"{endpoint.url}/ answered 400: Input rejected (request req_3)."
        run = runs.failed(endpoint.url, said, concurrency=1)
        assert (run.verdicts, len(endpoint.asked)) == ([], 4)
        endpoint.script = [refuses(0)]
        assert runs.good(endpoint.url, concurrency=1).valid == [False, True, True, True]
        endpoint.script = [refuses(*range(100))]
        assert runs.good(endpoint.url, limit=5).valid[4:] == [False]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_ten_refusals_in_a_row_stop_the_run_and_are_asked_again(runs, concurrency):
    with EndpointDouble(good_answer) as endpoint:
        before = runs.good(endpoint.url, limit=2).verdicts
        late = concurrency > 1  # one is answered after the run has decided to stop
        words = "Your credit is too low (request req_{})."
        endpoint.script = [refuses(*range(2 + late, 30), words=words, slow=2.0)]
        run = runs.failed(
            endpoint.url, "answered 400: Your credit is too low", concurrency=concurrency, limit=30
        )
        assert run.verdicts[:2] == before
        assert run.valid[2:] == [True] * late
        assert "10 requests in a row; the same command asks them again" in run.messages[0]
        assert 10 <= len(endpoint.asked) - 2 < 10 + concurrency
        endpoint.script = [good_answer]
        assert runs.good(endpoint.url, limit=30).valid == [True] * 30


@pytest.mark.parametrize("words", [["one"] * 9 + ["two"] * 9, ["one", "two"] * 9])
def test_nine_refusals_in_a_row_or_other_words_do_not_stop_the_run(runs, words):
    refused = [error(400, word) for word in words]
    with EndpointDouble(good_answer, *refused, good_answer) as endpoint:
        valid = runs.good(endpoint.url, concurrency=1, limit=20).valid
    assert (len(valid), sum(valid)) == (20, 2)


def thinks(body):
    """Answer like a reasoning model of OpenAI: temperature and log-probabilities are refused, thoughts are only counted."""
    usage = {
        "prompt_tokens": 9000,
        "completion_tokens": 90,
        "completion_tokens_details": {"reasoning_tokens": 64},
    }
    return answer(good_text(body), usage=usage)


def test_a_reasoning_model_is_asked_without_what_it_does_not_take(runs):
    left_out = ["temperature", "logprobs"]
    with EndpointDouble(without(thinks, *left_out)) as endpoint:
        asking = partial(runs.start, endpoint.url, score_decoding="constrained", limit=12)
        run = asking(concurrency=4)
        assert run.status == 0
        for message, name in zip(run.messages, left_out, strict=True):
            assert message.startswith(f"m: the endpoint does not take {name}: ")
        assert "m was asked without temperature, logprobs" in run.out
        assert run.valid == [True] * 12
        assert all(list(verdict.left_out) == left_out for verdict in run.verdicts)
        assert asking().verdicts == run.verdicts  # the same judge: its folder goes on


@pytest.mark.slow
def test_a_served_checkpoint_judges(runs, tiny_model, tmp_path):
    options = {"max_new_tokens": 32, "timeout": 120, "limit": 2}
    with served(tiny_model, tmp_path / "log") as url:
        run = runs.start(url, launch=(), judge=f"openai:{tiny_model}", **options)
    # Its weights are random.
    assert run.status == (not any(run.valid)), run.messages
    assert len(run.verdicts) == 2
    for verdict in run.verdicts:
        assert verdict.raw
        assert verdict.valid or verdict.error
        assert 0 < verdict.usage["completion_tokens"] <= 32


def scored(body):
    drawn = crc32(prompt_of(body).encode())
    line = " ".join(
        f"Doctor {slot + 1}: {3 + (drawn >> 8 * slot) % 3} points." for slot in range(3)
    )
    return answer(f"All help.\nScore: {line}")


class Batch:
    """Runs of the recipe with a file of requests, which somebody answers as `vllm run-batch` does."""

    def __init__(self, folder: Path):
        self.output = folder / "out"
        self.requests = folder / "requests.jsonl"
        self.answers = folder / "requests.answers.jsonl"

    def run(self, *words: object, **options: object):
        usual = {"judge": "openai:m", "cases": CASES, "limit": 2, "max_new_tokens": 40}
        usual |= {"output": self.output, "batch_file": self.requests}
        if "--rubric" not in words:
            usual["rubric"] = "automedeval"
        return run_recipe("judge", *words, **usual | options)

    def answer(self, server) -> None:
        answers = []
        for request in read(self.requests):
            assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
            said = server(request["body"])
            response = {"status_code": said["status"], "request_id": "r", "body": said["json"]}
            about = {"id": "b", "custom_id": request["custom_id"]}
            answers.append(about | {"response": response, "error": None})
        write(self.answers, answers)

    def verdicts(self) -> dict[tuple, Verdict]:
        return {verdict.key: verdict for verdict in verdicts_in(self.output)}


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path)


def test_a_file_gives_the_verdicts_of_the_server(batch, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = batch.run()
    assert f"requests to answer in {batch.requests}: 2; vllm run-batch" in done.stdout
    batch.answer(scored)
    done = succeeded(batch.run())
    assert "cases: 2, verdicts: 2 (new: 2)" in done.stdout
    assert "requests to answer" not in done.stdout
    assert batch.requests.read_text() == ""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with EndpointDouble(scored) as endpoint:
        judge = Judge(OpenAIChat("m", base_url=endpoint.url, max_new_tokens=40), "automedeval")
        expected = {verdict.key: verdict for verdict in judge(list(read_cases(CASES))[:2])}
    verdicts = batch.verdicts()
    assert verdicts.keys() == expected.keys()
    for key, verdict in expected.items():
        assert verdict.valid
        for name in ("scores", "rationale", "usage"):
            assert getattr(verdicts[key], name) == getattr(verdict, name)


def test_what_was_not_answered_is_asked_again_and_a_refused_prompt_is_invalid(batch):
    said = iter([
        error(500, "out of memory"),
        error(400, "This model's maximum context length is 4096 tokens."),
        answer("Good.\nScore: Doctor 1: 4 points. Doctor 2: 3 points. Doctor 3: 3 points."),
    ])  # fmt: skip
    batch.run(limit=3)
    first, *_ = read(batch.requests)
    batch.answer(lambda body: next(said))
    assert f"requests to answer in {batch.requests}: 1;" in batch.run(limit=3).stdout
    assert read(batch.requests) == [first]
    assert sorted(verdict.valid for verdict in batch.verdicts().values()) == [False, True]
    batch.answer(lambda body: error(400, "Your prompt was flagged.", "invalid_prompt"))
    succeeded(batch.run(limit=3))
    errors = [verdict.error for verdict in batch.verdicts().values()]
    assert "the endpoint answered 400: Your prompt was flagged." in errors


def test_the_next_file_leaves_out_a_parameter_that_is_refused(batch):
    def refuses(body):
        taken = [takes_no(name, "openai") for name in ("temperature", "seed") if name in body]
        return taken[0] if taken else good_answer(body)

    batch.run()
    for _ in range(3):
        batch.answer(refuses)
        done = succeeded(batch.run())
    assert "m was asked without temperature, seed" in done.stdout
    left_out = {verdict.left_out for verdict in batch.verdicts().values()}
    assert left_out == {("temperature", "seed")}


@each_row("lines, status, valid, invalid, told")
def test_the_errors_of_a_batch_are_told(lines, status, valid, invalid, told, batch):
    count = max(9, len(lines))
    batch.run(limit=count)
    batch.answer(good_answer)
    good = read(batch.answers)
    faulty = [{"custom_id": each["custom_id"]} | line for each, line in zip(good, lines)]
    write(batch.answers, faulty + good[len(faulty) :])
    done = batch.run(limit=count)
    assert done.returncode == status
    assert told.replace("ANSWERS", str(batch.answers)) in done.stdout + done.stderr
    verdicts = [verdict.valid for verdict in batch.verdicts().values()]
    assert (verdicts.count(True), verdicts.count(False)) == (valid, invalid)
    assert len(read(batch.requests)) == count - valid - invalid


def test_cases_of_equal_texts_share_a_request_and_each_has_its_verdict(batch, tmp_path):
    """OpenAI's batches take no file in which a custom_id stands twice."""
    responses = [{"model": "a", "text": "Yes."}, {"model": "b", "text": "No."}]
    cases = [
        {"id": name, "question": question, "responses": responses}
        for name, question in (("one", "May I?"), ("other", "Why?"), ("two", "May I?"))
    ]
    options = {"orders": "all", "cases": write(tmp_path / "cases.jsonl", cases)}
    batch.run(**options, limit=9)
    ids = [request["custom_id"] for request in read(batch.requests)]
    assert len(ids) == len(set(ids)) == 2 * 2
    batch.answer(good_answer)
    batch.run(**options, limit=9)
    verdicts = batch.verdicts()
    assert len(verdicts) == 3 * 2
    for (name, *about), verdict in verdicts.items():
        assert verdict.valid
        twin = verdicts["one" if name == "two" else name, *about]
        assert (verdict.scores, verdict.raw) == (twin.scores, twin.raw)


@each_row("words, answers, said")
def test_bad_input_is_told_in_one_line(batch, words, answers, said):
    batch.answers.write_text(answers)
    failed(batch.run(*words), said)
