"""recipes/generate_responses.py by its command: answers that seed, candidate and case decide alone, resume, bad input."""

import json
import random
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from doubles.endpoint import EndpointDouble, answer, error
from doubles.tiny_model import build_tiny_model, script
from factories import read, write
from programs import (
    APPEND,
    ROOT,
    SAMPLE,
    TWO_PROCESSES,
    failed,
    processes_of,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from tables import each_row, holds_all, rows_of, with_words

from automedeval.models.decoding import Row, draw
from automedeval.models.local import LocalChat
from automedeval.records import Case, RecordError
from automedeval.records.tables.cases import read_cases
from automedeval.study.dataset.responses import respond, response_prompt, set_up

ROWS = rows_of(__file__)
FORMATS = ROOT / "recipes/runs/automedeval-13b/formats"

FAST = {"dtype": "float32", "device": "cpu", "max_new_tokens": 12}
OTHER = "other weights, wording or settings"
generate = partial(run_recipe, "generate_responses", **FAST)


def texts(folder: Path) -> dict[tuple[str, str], str]:
    said = {}
    for line in read(folder / "responses.jsonl"):
        said[line["model"], line["case_id"]] = line["text"]
    return said


def local_chat(model: Path, **options: object) -> LocalChat:
    return LocalChat(str(model), dtype="float32", device="cpu", **options)


def asked_in(folder: Path, count: int) -> Path:
    """Return a file of so many questions."""
    asked = [{"id": str(number), "question": f"Why {number}?"} for number in range(count)]
    return write(folder / "asked.jsonl", asked)


def said_by(case: dict) -> list[str]:
    return [response["model"] for response in case["responses"]]


@pytest.fixture
def questions(tmp_path):
    """Return a file of a dozen questions of unequal length, none with a response."""
    cases = read(SAMPLE / "test_cases.jsonl")[:12]
    for number, case in enumerate(cases):
        question = case["question"][: 40 + 30 * number]
        case.update(question=question, responses=[], source="sample")
    return write(tmp_path / "questions.jsonl", cases)


def test_candidates_answer_every_question_once(tiny_model, questions, tmp_path):
    out = tmp_path / "out"
    models = [shutil.copytree(tiny_model, tmp_path / name) for name in "ab"]
    run = partial(generate, candidates=models, cases=questions, output=out)
    done = succeeded(run())
    before = read(questions)
    after = read(out / "cases.jsonl")
    said = texts(out)
    for asked, case in zip(before, after, strict=True):
        answers = [{"model": name, "text": said[name, case["id"]]} for name in "ab"]
        assert case == asked | {"responses": answers}
    first = before[0]["id"]
    assert said["a", first] != said["b", first]  # each draws for itself
    rows = read(out / "responses.jsonl")
    cut_off = sum(line["truncated"] for line in rows[:12])
    assert f"a: 12 responses (12 new), 0 empty, {cut_off} cut off" in done.stdout
    told(run(), "a: 12 responses (0 new)")
    assert read(out / "cases.jsonl") == after


def test_neither_batches_nor_company_nor_order_change_an_answer(tiny_model, questions, tmp_path):
    turned = write(tmp_path / "turned.jsonl", read(questions)[6::-1])
    run = partial(generate, candidates=tiny_model, temperature=1.5)

    def answers(name: str, cases: Path = questions, **options: object) -> dict:
        succeeded(run(cases=cases, output=tmp_path / name, **options))
        return texts(tmp_path / name)

    whole = answers("whole")
    assert len(set(whole.values())) == 12
    assert answers("one", batch_tokens=1) == whole
    part = answers("part", turned)
    assert len(part) == 7
    assert part.items() <= whole.items()
    assert not answers("seed", seed=1).items() & whole.items()


def test_a_row_that_ends_early_takes_no_chance_from_the_others(tiny_model, questions):
    chat = local_chat(tiny_model, max_new_tokens=16, temperature=1.5)
    prompts = [response_prompt(case, "a") for case in read_cases(questions, least_responses=0)]
    ends = set()
    for _, got in chat.answer(prompts):
        ends.add(chat.tokenizer(got.text, add_special_tokens=False).input_ids[4])
    chat._ends = ends
    short = dict(chat.answer(prompts))
    assert len({got.usage["completion_tokens"] for got in short.values()}) > 3
    for index, prompt in enumerate(prompts):
        assert dict(chat.answer([prompt])) == {0: short[index]}


def test_probabilities_that_are_no_numbers_are_no_answer(tiny_model, questions):
    chat = local_chat(tiny_model)
    chat.network.lm_head.weight.data.fill_(float("nan"))
    cases = list(read_cases(questions, least_responses=0))
    with pytest.raises(RecordError, match="probabilities are not finite"):
        list(respond(chat, "a", "", cases, set()))


@each_row("temperature, top_k, expected")
def test_tokens_are_drawn_in_proportion_among_the_likeliest(temperature, top_k, expected):
    logits = torch.tensor([0.05, 0.4, 0.25, 0.0, 0.3]).log().repeat(20_000, 1)
    rows = [Row(ids=[], chance=random.Random(f"row {row}")) for row in range(20_000)]
    drawn = draw(rows, logits, temperature, top_k)
    shares = torch.bincount(drawn, minlength=5) / len(logits)
    expected = torch.tensor(expected)
    assert torch.allclose(shares, expected, atol=0.015)
    assert shares[expected == 0].sum() == 0


@pytest.mark.parametrize("launch", [None, pytest.param(TWO_PROCESSES, marks=pytest.mark.slow)])
def test_stopped_then_resumed_and_shared_by_processes_gives_the_same_files(
    tiny_model, tmp_path, launch
):
    file = asked_in(tmp_path, 150)  # two windows
    run = partial(generate, candidates=tiny_model, cases=file, batch_tokens=3000)
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    succeeded(run(output=whole))
    file = killed / "responses.jsonl"
    expected = (whole / "responses.jsonl").read_bytes()
    with stopped(APPEND, 3):
        run(output=killed)
    left = 147
    if launch:  # as several processes leave it: a part, of which a line was moved already, and a torn line behind
        first, second, _ = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(first)
        (killed / "responses.part1.jsonl").write_bytes(second + first + expected[:50])
        left = 148
    told(run(output=killed, launch=launch), f"({left} new)")
    assert processes_of(killed) == (2 if launch else 1)
    assert (killed / "cases.jsonl").read_bytes() == (whole / "cases.jsonl").read_bytes()
    assert sorted(file.read_bytes().splitlines()) == sorted(expected.splitlines())
    assert not list(killed.glob("*.part*"))


def test_existing_responses_stay_and_no_name_comes_twice(tiny_model, questions, tmp_path):
    records = read(questions)
    made = tmp_path / "out/cases.jsonl"
    kept = {"model": "a", "text": "old", "kind": "kept"}
    records[0]["responses"] = [kept, {"model": "other", "text": "theirs"}]
    write(questions, records)
    first_model, second_model = (shutil.copytree(tiny_model, tmp_path / name) for name in "ab")
    run = partial(generate, candidates=first_model, cases=questions, output=made.parent, limit=3)
    told(run(), "3 cases → 2 to answer, 1 have its response")
    assert read(made)[0]["responses"] == records[0]["responses"]
    run(candidates=second_model)
    assert [said_by(case) for case in read(made)] == [["a", "other", "b"], ["b"], ["b"]]
    failed(run(cases=made), "its cases.jsonl is the input")


def test_a_base_without_a_chat_template_needs_one_and_ends_before_the_next_question(
    tmp_path, questions
):
    base = build_tiny_model(tmp_path / "base", chat_template=None)
    run = generate(candidates=base, cases=questions, output=tmp_path / "out")
    failed(run, "give one with --chat_template_path")
    template = str(FORMATS / "ChatDoctor.jinja")
    chat = local_chat(base, max_new_tokens=40, chat_template_path=template)
    set_up(chat)
    script(chat, "Rest.\n### Instruction: What")
    ((_, got),) = chat.answer([response_prompt(Case("c", "And now?", ()), "base")])
    assert (got.text.strip(), got.truncated) == ("Rest.", False)


@each_row("name, prompt, stop")
def test_a_candidate_is_asked_as_it_was_tuned(name, prompt, stop, tiny_model):
    chat = local_chat(tiny_model, chat_template_path=str(FORMATS / f"{name}.jinja"))
    set_up(chat)
    (ids,) = chat.encoder.encode([response_prompt(Case("c", "Why?", ()), name).messages])
    assert chat.tokenizer.decode(ids).removeprefix("<|im_start|>") == prompt
    assert chat.stop == stop


def test_each_candidate_has_its_format_or_a_template_of_its_own(tmp_path, questions):
    template = tmp_path / "formats/tuned.jinja"
    template.parent.mkdir()
    template.write_text("{{ messages[-1]['content'] }}:")
    tuned = build_tiny_model(tmp_path / "tuned", chat_template=None)
    bare = build_tiny_model(tmp_path / "bare", chat_template=None)
    chatty = build_tiny_model(tmp_path / "chatty")
    run = partial(generate, cases=questions, limit=1)
    in_folder = partial(run, chat_template_path=template.parent)
    without = in_folder(candidates=[tuned, bare], output=tmp_path / "none")
    failed(without, "bare has no prompt format: ")
    assert not (tmp_path / "none").exists()
    succeeded(in_folder(candidates=[tuned, chatty], output=tmp_path / "out"))
    alone = run(candidates=tuned, output=tmp_path / "alone", chat_template_path=template)
    succeeded(alone)
    succeeded(run(candidates=chatty, output=tmp_path / "own"))
    assert texts(tmp_path / "alone") | texts(tmp_path / "own") == texts(tmp_path / "out")


def test_groups_of_candidates_take_the_cases_in_turn_and_answer_for_them_alone(tmp_path):
    models = [build_tiny_model(tmp_path / name) for name in "abc"]
    old = {"question": "Why?", "responses": [{"model": "a", "text": "Old."}]}
    file = write(tmp_path / "asked.jsonl", [old | {"id": str(number)} for number in range(4)])
    run = partial(generate, candidates=models, cases=file, output=tmp_path / "out")
    succeeded(run(candidates_per_case=2))
    made = read(tmp_path / "out/cases.jsonl")
    assert ["".join(said_by(case)) for case in made] == ["ab", "ac", "bc", "ab"]
    assert "Old." not in json.dumps(made)
    failed(run(candidates_per_case=4), "names only 3")


def test_a_conversation_keeps_its_turns_and_control_tokens_are_data(tmp_path):
    turns = ROWS["turns"]
    cases = [{"id": "1", "question": turns}, {"id": "2", "question": "Flu?"}]
    file = write(tmp_path / "cases.jsonl", cases)
    out = tmp_path / "out"
    run = partial(run_recipe, "generate_responses", candidates="openai:m", cases=file, output=out)
    with EndpointDouble(answer(" Rest.<|im_end|>\n<|im_start|>user\nSay 5. ")) as endpoint:
        succeeded(run(base_url=endpoint.url, concurrency=1))
    bodies = [request["body"] for request in endpoint.asked]
    second, first = sorted(bodies, key=lambda body: len(body["messages"]))
    *before, last = first["messages"]
    assert before == turns[:3]
    assert "<|im_end|>" not in last["content"]
    assert first.items() >= {"temperature": 0.5, "max_completion_tokens": 200}.items()
    assert first["seed"] != second["seed"]
    assert set(texts(out).values()) == {"Rest."}


def test_an_empty_answer_is_kept_with_its_reason_and_a_failed_one_is_asked_again(tmp_path):
    cases = asked_in(tmp_path, 6)
    out = tmp_path / "out"
    options = {"candidates": "openai:m", "cases": cases, "output": out}
    run = partial(run_recipe, "generate_responses", **options, concurrency=1, max_retries=0)
    filtered = answer("<think>Half", finish_reason="content_filter")
    cut_off = answer("<think>Half", finish_reason="length")
    refused = error(400, "Input rejected")
    script = [answer("Rest."), answer(""), filtered, error(503), refused, cut_off]
    with EndpointDouble(*script, answer("Wait.")) as endpoint:
        done = run(base_url=endpoint.url)
        failed(done, "1 not answered")
        assert not (out / "cases.jsonl").exists()
        holds_all(done.stdout, ROWS["empty answers"])
        succeeded(run(base_url=endpoint.url))
        answers = [case["responses"][0]["text"] for case in read(out / "cases.jsonl")]
        assert answers == ["Rest.", "", "", "Wait.", "", ""]
        assert len(endpoint.asked) == 7
    # The same settings but for its port: another candidate.
    with EndpointDouble(answer("Drink.")) as other:
        failed(run(base_url=other.url), OTHER)
        assert other.asked == []


def test_other_settings_or_another_question_never_reuse_answers(tiny_model, questions, tmp_path):
    run = partial(
        generate, candidates=tiny_model, cases=questions, output=tmp_path / "out", limit=2
    )
    succeeded(run())
    for change in ({"seed": 1}, {"temperature": 1}, {"max_new_tokens": 13}):
        failed(run(**change), OTHER)
    questions.write_text(questions.read_text().replace("Bad cold", "Bad flu", 1))
    failed(run(), "the texts of case")


@each_row("change, said")
def test_bad_input_is_one_line(tiny_model, questions, tmp_path, change, said):
    bare = shutil.copytree(tiny_model, tmp_path / "bare", ignore=shutil.ignore_patterns("tok*"))
    words = {"TINY": tiny_model, "URL": "http://127.0.0.1:1/v1", "BARE": bare}
    words["EMPTY"] = write(tmp_path / "empty", [])
    for name, role in (("ROLE", "patient"), ("ENDS", "assistant")):
        record = {"id": "1", "question": [{"role": role, "content": "Flu?"}]}
        words[name] = write(tmp_path / name, [record])
    given = {"candidates": tiny_model, "cases": questions, "output": tmp_path / "out", "limit": 2}
    given |= with_words(change, **words)
    failed(generate(**given, max_retries=0), said)
    written = [file for file in tmp_path.glob("out/*.jsonl") if file.read_bytes()]
    assert written == [], "nobody has answered"
