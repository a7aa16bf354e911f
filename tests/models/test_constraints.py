"""A judge behind a server that constrains: its values and probabilities beside a naive walk over the server's own table."""

import math
from dataclasses import replace

import pytest
import regex
from doubles.constrained_server import ConstrainedServer, odds
from doubles.endpoint import EndpointDouble, answer, error

from automedeval.judges.judge import Judge, load_judge
from automedeval.models.base import Answer, ChatError, Free, Prompt, Slot
from automedeval.models.budget import Budget
from automedeval.models.constraints import DIALECTS, Reply, constrained_answer, gbnf, regular_expression
from automedeval.models.endpoint import OpenAIChat
from automedeval.records import Case, Response
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import answer_parts, parse_verdict

CASES = [
    Case(
        f"c{number}",
        f"What helps {number}?",
        (Response("alder", "Rest."), Response("birch", "Wait.")),
        "Rest and wait.",
    )
    for number in range(2)
]
RUBRICS = (
    "automedeval",
    "automedeval_guided",
    "medical_pairwise",
    "just_eval_pairwise",
    "instruction_pairwise",
    "pandalm",
)
WRITTEN = ("automedeval", "automedeval_guided", "just_eval_pairwise")  # rubrics with a rationale


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")


def chat_at(endpoint, **options):
    return OpenAIChat("m", base_url=endpoint.url, **{"max_retries": 0, "timeout": 20.0, "max_new_tokens": 40} | options)


def naive(prompt: str, written: str, parts: list) -> list[dict[str, float]]:
    """Return each slot's probabilities: of every way to write a value the product of its tokens, by the server's table."""
    readings, done = [], 0  # `done`: parts that are written

    def chance(text: str, target: str, pattern: regex.Pattern, begun: str) -> float:
        if len(text) >= len(target):
            return 1.0
        steps = odds(prompt, text, pattern, begun)
        fitting = [one for one in steps if one and (target.startswith(text + one) or (text + one).startswith(target))]
        return sum(steps[one] * chance(text + one, target, pattern, begun) for one in fitting)

    for index, part in enumerate(parts):
        if not isinstance(part, Slot):
            continue
        before = "".join(parts[done:index])
        rest = regex.compile(regular_expression(parts[done:]), regex.S)
        following = parts[index + 1] if index + 1 < len(parts) else ""
        # Whichever way the literal before it is written: the table depends on the text alone, and so does the sum.
        each = {}
        for value in part.values:
            each[value] = chance(before, before + value + following[:1], rest, written)
        total = sum(each.values())
        readings.append({value: share / total for value, share in each.items()})
        best = max(part.values, key=each.get)
        written, done = written + before + best, index + 1
    return readings


@pytest.mark.parametrize(
    ("name", "rationale"), [*((name, False) for name in RUBRICS), *((name, True) for name in WRITTEN)]
)
def test_values_and_probabilities_are_those_of_the_servers_table(name, rationale):
    rubric = read_rubric(name)
    with ConstrainedServer().double() as endpoint:
        judge = Judge(chat_at(endpoint), rubric, rationale=rationale)
        assert judge.score_decoding == "constrained"
        for case in CASES:
            (request,) = judge.plan(case)
            (verdict,) = judge([case])
            assert verdict.valid, verdict.error
            parts = answer_parts(rubric, 2, rationale)
            at = next((index for index, part in enumerate(parts) if isinstance(part, Free)), None)
            written = ""
            if at is not None:
                parts = parts[at + 1 :]
                written = verdict.raw[: verdict.raw.rindex(parts[0])]
            expected = naive(judge.prompt(request).messages[-1]["content"], written, parts)
            assert len(verdict.extra["probabilities"]) == len(expected)
            for shares, wanted in zip(verdict.extra["probabilities"], expected):
                assert shares == pytest.approx(wanted, abs=2e-5)
            best = [max(each, key=each.get) for each in expected]
            reading = parse_verdict(verdict.raw, rubric, 2)
            assert reading.valid
            if rubric.grammar == "score_line":
                assert list(reading.scores) == list(map(int, best))
                assert [verdict.scores[slot] for slot in verdict.order] == list(reading.scores)
                means = [sum(int(value) * share for value, share in each.items()) for each in expected]
                assert [verdict.expected_scores[slot] for slot in verdict.order] == pytest.approx(means, abs=1e-4)
            elif rubric.scale:
                names = rubric.output_criteria
                values = [verdict.criterion_scores[name][index] for index in verdict.order for name in names]
                assert values == list(map(int, best))
            else:
                words = [rubric.choices[reading.choices[one]] for one in rubric.output_criteria]
                assert words == best


@pytest.mark.parametrize(("continues", "strict"), [(True, False), (True, True), ("always", False)])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_found_and_gives_the_same_verdicts(dialect, continues, strict):
    verdicts = []
    for server in (ConstrainedServer(), ConstrainedServer(dialect, 20, continues, strict)):
        with server.double() as endpoint:
            judge = Judge(chat_at(endpoint), "automedeval")
            verdicts.append([(each.scores, each.raw, each.extra["probabilities"]) for each in judge(CASES[:1])])
            assert str(judge.chat.offer) == "server: constrains yes, log-probabilities yes (20)"
            assert [server.dialect in request["body"] for request in endpoint.asked].count(True) == 2
    assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("strict", [False, True])
def test_a_server_that_does_not_continue_an_answer_is_not_constrained(strict):
    with ConstrainedServer(continues=False, strict=strict).double() as endpoint:
        judge = Judge(chat_at(endpoint), "automedeval")
        assert judge.score_decoding == "free"
        list(judge(CASES[:1]))
        assert "structured_outputs" not in endpoint.asked[0]["body"]


@pytest.mark.parametrize(("offered", "used"), [(20, 20), (5, 5), (0, 0)])
def test_as_many_log_probabilities_are_asked_for_as_the_server_gives(offered, used, capfd):
    with ConstrainedServer(alternatives=offered).double() as endpoint:
        judge = Judge(chat_at(endpoint), "automedeval")
        verdicts = list(judge(CASES))
        assert all(verdict.valid for verdict in verdicts)
        assert all((verdict.expected_scores is not None) == (used > 0) for verdict in verdicts)
        assert judge.chat.offer.alternatives == used
    words = f"yes ({used})" if used else "no"
    assert f"server: constrains yes, log-probabilities {words}\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason", "kept"),
    [
        ("They help. " * 10, "length", "They help. " * 10),  # until the limit
        ("", "stop", ""),
        ("Good.\nscore: Doctor 1: 9 points.", "stop", "Good."),  # the score line is not the rationale's to write
        ("Score: all of them are fine.", "stop", ""),
        ("Good.<|im_end|>\nMore.", "stop", "Good."),
    ],
)
def test_whatever_the_rationale_is_the_scores_are_there(text, reason, kept):
    with ConstrainedServer(free=lambda prompt, limit: (text, reason)).double() as endpoint:
        (verdict, *_) = Judge(chat_at(endpoint), "automedeval")(CASES)
    assert verdict.valid
    assert verdict.rationale == (kept.strip() or None)
    assert verdict.extra.get("truncated", False) == (reason == "length")
    assert verdict.usage["completion_tokens"] > len(kept.split())


def test_an_escaped_quote_does_not_end_a_rationale_in_json():
    opening = '{"rationale": "'
    prompt = Prompt([], parts=(opening, Free('"', json_string=True), '", "score": ', Slot("s", ("1", "2")), "}"))
    steps, usage = constrained_answer(prompt), {"completion_tokens": 3}
    step = next(steps)
    assert (step.written, step.parts, step.stop) == (opening, None, ('"',))
    step = steps.send(Reply(Answer("", usage=usage), "It says \\"))
    assert (step.written, step.stop, step.used, step.most_tokens(10)) == (opening + 'It says \\"', ('"',), 3, 7)
    step = steps.send(Reply(Answer("", usage=usage), 'rest\\" twice, with a slash \\\\'))
    assert step.written == opening + 'It says \\"rest\\" twice, with a slash \\\\", "score":'
    with pytest.raises(StopIteration) as ended:
        steps.send(Reply(Answer(" 2", usage=usage), " 2"))
    assert ended.value.value.free == 'It says "rest" twice, with a slash \\'
    assert ended.value.value.usage == {"completion_tokens": 9}


def test_a_rationale_in_json_that_is_cut_off_within_an_escape_can_be_read():
    opening = '{"rationale": "'
    prompt = Prompt([], parts=(opening, Free('"', json_string=True), '", "score": ', Slot("s", ("1", "2")), "}"))
    steps = constrained_answer(prompt)
    next(steps)
    step = steps.send(Reply(Answer(""), "It says \\", ended=False))
    assert step.written == opening + 'It says ", "score":'


@pytest.mark.parametrize("rationale", ["Good. ", "Good.\n", "Good.\n\n", " Good."])
def test_blanks_around_a_rationale_stay_in_front_of_the_scores_as_with_a_local_judge(rationale):
    prompt = Prompt([], parts=(Free("\nScore:"), "\nScore: ", Slot("s", ("1", "2")), " points."))
    steps = constrained_answer(prompt)
    next(steps)
    step = steps.send(Reply(Answer(rationale), rationale))
    assert step.written == rationale + "\nScore:"


def test_a_server_that_does_not_constrain_is_asked_as_before(capfd):
    with EndpointDouble(answer("Good.\nScore: Doctor 1: 4 points. Doctor 2: 3 points.")) as endpoint:
        judge = Judge(chat_at(endpoint), "automedeval")
        assert (judge.score_decoding, [set(verdict.scores) for verdict in judge(CASES)]) == ("free", [{3, 4}] * 2)
        assert len(endpoint.asked) == 2
        assert "server: constrains no" in capfd.readouterr().err
        with pytest.raises(Exception, match="needs a checkpoint, or a server that constrains"):
            Judge(chat_at(endpoint), "automedeval", score_decoding="constrained")


def test_a_server_that_ignores_its_constraint_later_is_parsed():
    server = ConstrainedServer()

    def forgetful(body):
        asked = body["messages"][0]["content"] != "How are you?" and "structured_outputs" in body
        return answer("Doctor 1 is good.") if asked else server(body)

    with EndpointDouble(forgetful, constrains=True) as endpoint:
        verdicts = list(Judge(chat_at(endpoint), "automedeval", rationale=False)(CASES))
    assert [verdict.error for verdict in verdicts] == ["0 scores for 2 slots"] * 2


def test_verdicts_with_and_without_a_constraint_have_other_settings():
    with ConstrainedServer().double() as first, EndpointDouble(answer("x")) as second:
        prints = set()
        for endpoint in (first, second):
            for options in ({}, {"structured_output": False}):
                chat = chat_at(endpoint, **options)
                chat._fingerprint = "the same"  # the address is a part of it
                prints.add(Judge(chat, "automedeval").fingerprint)
        assert len(prints) == 2  # constrained, free


def test_an_overloaded_server_is_not_taken_for_one_that_does_not_constrain():
    with EndpointDouble(error(503, "loading"), constrains=True) as endpoint, pytest.raises(ChatError, match="loading"):
        Judge(chat_at(endpoint), "automedeval")


def test_values_that_begin_like_others_are_told_apart():
    values = ("1", "10", "2")
    parts = ["Score: ", Slot("s", values), " points."]
    assert regular_expression(parts) == "Score: (?:1|10|2) points\\."
    assert gbnf(parts) == 'root ::= "Score: " ("1" | "10" | "2") " points."'
    with ConstrainedServer().double() as endpoint:
        chat = chat_at(endpoint)
        rubric = replace(read_rubric("automedeval"), scale=(1, 12))
        judge = Judge(chat, rubric, rationale=False)
        for case in CASES:
            (request,) = judge.plan(case)
            (verdict,) = judge([case])
            expected = naive(judge.prompt(request).messages[-1]["content"], "", answer_parts(rubric, 2, False))
            for shares, wanted in zip(verdict.extra["probabilities"], expected):
                assert shares == pytest.approx(wanted, abs=2e-5)
            assert math.isclose(sum(verdict.extra["probabilities"][0].values()), 1, abs_tol=1e-4)


@pytest.mark.parametrize(("offered", "scale"), [(20, (1, 12)), (5, (1, 12)), (5, (0, 100)), (5, (1, 5))])
def test_what_the_alternatives_do_not_tell_is_noted(offered, scale):
    """The note bounds how much of the probability can be elsewhere, beside the server's own table."""
    noted = 0
    with ConstrainedServer(alternatives=offered).double() as endpoint:
        rubric = replace(read_rubric("automedeval"), scale=scale)
        judge = Judge(chat_at(endpoint), rubric, rationale=False)
        for number in range(6):
            case = replace(CASES[0], id=f"{number}", question=f"What helps {number}?")
            (request,) = judge.plan(case)
            (verdict,) = judge([case])
            unseen = verdict.extra.get("unseen_probability", 0.01)
            noted += "unseen_probability" in verdict.extra
            written, parts = "", answer_parts(rubric, 2, False)
            for at, shares in zip((1, 3), verdict.extra["probabilities"]):
                (wanted,) = naive(judge.prompt(request).messages[-1]["content"], written, parts[at - 1 : at + 2])
                moved = sum(abs(shares[value] - share) for value, share in wanted.items()) / 2
                assert moved <= unseen + 1e-3
                written += parts[at - 1] + max(shares, key=shares.get)  # what the judge went on with
    assert noted == (0 if offered == 20 or scale == (1, 5) else 6)


@pytest.mark.parametrize("scale", [(1, 5), (1, 12), (0, 100)])
def test_an_answer_costs_no_more_than_the_most_that_is_told_before(scale):
    """Each byte is a token, and each number that others begin with takes another request."""
    server = ConstrainedServer()

    def script(body):
        reply = server(body)
        reply["json"]["usage"]["prompt_tokens"] = sum(len(one["content"].encode()) for one in body["messages"])
        return reply

    with EndpointDouble(script, constrains=True) as endpoint:
        chat = chat_at(endpoint, budget=Budget(None, 1.0, 1.0))
        judge = Judge(chat, replace(read_rubric("automedeval"), scale=scale))
        spent = chat.budget.spent
        (request,) = judge.plan(CASES[0])
        _, most = judge.estimate([request])
        (verdict,) = judge([CASES[0]])
        assert verdict.expected_scores
        assert len(endpoint.asked) > (18 if scale == (0, 100) else 2)
        assert chat.budget.spent - spent <= most


@pytest.mark.parametrize("name", ["automedeval", "medical_pairwise"])
def test_tokens_that_the_form_does_not_allow_are_no_value(name):
    """llama.cpp tells probabilities among all tokens: "40" is not the 4 of a scale to 5, nor "ties" a tie."""
    server = ConstrainedServer()

    def script(body):
        reply = server(body)
        for token in (reply["json"]["choices"][0]["logprobs"] or {"content": []})["content"]:
            alternatives = token["top_logprobs"]
            for alternative in alternatives:
                alternative["logprob"] += math.log(0.5)
            longer = [{"token": token["token"] + more, "logprob": math.log(0.2)} for more in "0s"]
            token["top_logprobs"] = alternatives + longer
        return reply

    verdicts = []
    for double in (server.double(), EndpointDouble(script, constrains=True)):
        with double as endpoint:
            verdicts += Judge(chat_at(endpoint), name, rationale=False)(CASES[:1])
    for masked, raw in zip(*(verdict.extra["probabilities"] for verdict in verdicts), strict=True):
        assert raw == pytest.approx(masked, abs=2e-5)


@pytest.mark.parametrize(("share", "unseen"), [(1.0, None), (0.75, 0.25)])
def test_criteria_have_the_note_too(share, unseen):
    """A server that tells probabilities among all tokens, of which its alternatives have this sum."""
    case = Case.from_dict(CASES[0].to_dict() | {"criteria": [{"criterion": "It says rest.", "points": 1}]})
    server = ConstrainedServer()

    def script(body):
        reply = server(body)
        for token in (reply["json"]["choices"][0]["logprobs"] or {"content": []})["content"]:
            if token["token"] in ("m", "n"):  # of "met" and "not met"
                for alternative in token["top_logprobs"]:
                    alternative["logprob"] += math.log(share)
        return reply

    with EndpointDouble(script, constrains=True) as endpoint:
        chat = {"base_url": endpoint.url, "max_retries": 0}
        verdicts = list(load_judge("openai:m", "checklist", chat, rationale=False)([case]))
    for verdict in verdicts:
        assert 0 < verdict.checklist["met_probabilities"][0] < 1
        assert verdict.extra.get("unseen_probability") == (unseen and pytest.approx(unseen, abs=1e-4))


def test_the_body_keeps_what_prompts_share_at_their_beginning():
    with ConstrainedServer().double() as endpoint:
        list(Judge(chat_at(endpoint, concurrency=1), "automedeval")(CASES[:1]))
        rationale, *scores = (request["body"] for request in endpoint.asked)
        assert len(scores) == 2
        assert "structured_outputs" not in rationale
        for body in scores:
            assert body["messages"][: len(rationale["messages"])] == rationale["messages"]
            assert body["structured_outputs"] == {"regex": " (?:1|2|3|4|5)"}
        assert scores[1]["messages"][-1]["content"].startswith(scores[0]["messages"][-1]["content"] + " ")
