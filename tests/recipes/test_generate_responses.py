"""recipes/generate_responses.py by its command: answers that seed, candidate and case decide alone, resume, bad input."""

import json
import random
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from doubles.agreement_study import read, write
from doubles.endpoint import EndpointDouble, answer, error
from doubles.tiny_model import build_tiny_model
from programs import (
    APPEND,
    ROOT,
    SAMPLE,
    TWO_PROCESSES,
    error_line,
    processes_of,
    run_recipe,
    stopped,
    succeeded,
)
from tables import rows_of

from automedeval.dataset.responses import respond, response_prompt, set_up
from automedeval.models.decoding import draw
from automedeval.models.local import LocalChat
from automedeval.records import Case, RecordError, read_cases
from automedeval.rubrics import read_rubric
from automedeval.rubrics.prompts import judge_messages

ROWS = rows_of(__file__)
FORMATS = ROOT / "recipes/runs/automedeval-13b/formats"

FAST = ["--dtype", "float32", "--device", "cpu", "--max_new_tokens", "12"]
generate = partial(run_recipe, "generate_responses")


def texts(folder: Path) -> dict[tuple[str, str], str]:
    return {
        (line["model"], line["case_id"]): line["text"] for line in read(folder / "responses.jsonl")
    }


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Return a file of a dozen questions of unequal length, none with a response."""
    cut = [
        {name: case[name] for name in ("id", "reference")}
        | {"question": case["question"][: 40 + 30 * number]}
        for number, case in enumerate(read(SAMPLE / "test_cases.jsonl")[:12])
    ]
    return write(
        tmp_path / "questions.jsonl", [case | {"responses": [], "source": "sample"} for case in cut]
    )


def test_candidates_answer_every_question_once(tiny_model, questions, tmp_path):
    out = tmp_path / "out"
    command = [
        "--candidates",
        tiny_model,
        tiny_model,
        "--names",
        "a,b",
        "--cases",
        questions,
        "--output",
        out,
        *FAST,
    ]
    done = succeeded(generate(*command))
    before = list(read_cases(questions, least_responses=0))
    after = list(read_cases(out / "cases.jsonl"))
    assert [case.id for case in after] == [case.id for case in before]
    assert all(
        case.models == ["a", "b"] and case.extra == {"source": "sample"} and case.reference
        for case in after
    )
    rows = read(out / "responses.jsonl")
    assert {(line["model"], line["case_id"]) for line in rows} == {
        (m, case.id) for m in "ab" for case in before
    }
    assert all(len(line["settings"]) == 12 and isinstance(line["truncated"], bool) for line in rows)
    assert [response.text for case in after for response in case.responses] == [
        texts(out)[model, case.id] for case in after for model in "ab"
    ]
    assert texts(out)["a", before[0].id] != texts(out)["b", before[0].id]  # each draws for itself
    (record,) = out.glob("run-*.json")
    arguments = json.loads(record.read_text())["arguments"]
    assert arguments["temperature"] == 0.5
    tokens = [
        sum(line["usage"][side] for line in rows[:12])
        for side in ("prompt_tokens", "completion_tokens")
    ]
    assert (
        f"a: 12 responses (12 new), 0 empty, {sum(line['truncated'] for line in rows[:12])} cut off"
        in done.stdout
    )
    assert f"{tokens[0]:,} tokens of prompts, {tokens[1]:,} of answers" in done.stdout
    kept = {file: file.read_bytes() for file in out.glob("*.jsonl")}
    again = generate(*command)
    assert "a: 12 responses (0 new)" in again.stdout
    assert {file: file.read_bytes() for file in out.glob("*.jsonl")} == kept


def test_neither_batches_nor_company_nor_order_change_an_answer(tiny_model, questions, tmp_path):
    base = ["--candidates", tiny_model, *FAST, "--temperature", 1.5]
    turned = tmp_path / "turned.jsonl"
    turned.write_text("".join(reversed(questions.read_text().splitlines(keepends=True)[:7])))
    for name, options in {
        "whole": ["--cases", questions],
        "one": ["--cases", questions, "--batch_tokens", 1],
        "few": ["--cases", questions, "--batch_tokens", 400, "--window", 5],
        "turned": ["--cases", turned],
        "seed": ["--cases", questions, "--seed", 1],
    }.items():
        assert generate(*base, *options, "--output", tmp_path / name).returncode == 0
    whole = texts(tmp_path / "whole")
    assert len(set(whole.values())) == 12
    assert texts(tmp_path / "one") == texts(tmp_path / "few") == whole
    turned = texts(tmp_path / "turned")
    assert len(turned) == 7
    assert turned.items() <= whole.items()
    seeded = texts(tmp_path / "seed")
    assert all(seeded[key] != whole[key] for key in whole)


def test_a_row_that_ends_early_takes_no_chance_from_the_others(tiny_model, questions):
    chat = LocalChat(
        str(tiny_model), dtype="float32", device="cpu", max_new_tokens=16, temperature=1.5
    )
    prompts = [response_prompt(case, "a") for case in read_cases(questions, least_responses=0)]
    together = [got.text for _, got in sorted(chat.answer(prompts))]
    chat._ends = {chat.tokenizer(text, add_special_tokens=False).input_ids[4] for text in together}
    short = dict(chat.answer(prompts))
    assert len({got.usage["completion_tokens"] for got in short.values()}) > 3
    for index, prompt in enumerate(prompts):
        assert dict(chat.answer([prompt])) == {0: short[index]}


def test_probabilities_that_are_no_numbers_are_no_answer(tiny_model, questions):
    chat = LocalChat(str(tiny_model), dtype="float32", device="cpu")
    chat.network.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(
        RecordError, match=r"a gave no answer: the model's probabilities are not finite"
    ):
        list(respond(chat, "a", "", list(read_cases(questions, least_responses=0)), set()))


def test_tokens_are_drawn_in_proportion_among_the_likeliest():
    odds = torch.tensor([0.05, 0.4, 0.25, 0.0, 0.3])
    logits = odds.log().repeat(20_000, 1)
    for temperature, top_k, kept in ((1.0, 0, [0, 1, 2, 4]), (0.5, 3, [1, 2, 4])):
        rows = SimpleNamespace(chance=[random.Random(f"row {row}") for row in range(len(logits))])
        shares = torch.bincount(draw(rows, logits, temperature, top_k), minlength=5) / len(logits)
        expected = torch.zeros(5).index_put(
            (torch.tensor(kept),), (odds ** (1 / temperature))[kept]
        )
        assert torch.allclose(shares, expected / expected.sum(), atol=0.015)
        assert shares[[token for token in range(5) if token not in kept]].sum() == 0


@pytest.mark.parametrize("launch", [None, pytest.param(TWO_PROCESSES, marks=pytest.mark.slow)])
def test_stopped_then_resumed_and_shared_by_processes_gives_the_same_files(
    tiny_model, questions, tmp_path, launch
):
    arguments = [
        "--candidates",
        tiny_model,
        "--cases",
        questions,
        "--window",
        4,
        "--batch_tokens",
        300,
        *FAST,
    ]
    assert generate(*arguments, "--output", tmp_path / "whole").returncode == 0
    whole = {
        name: (tmp_path / "whole" / name).read_bytes()
        for name in ("responses.jsonl", "cases.jsonl")
    }
    killed = tmp_path / "killed"
    file = killed / "responses.jsonl"
    with stopped(APPEND, 3):
        generate(*arguments, "--output", killed)
    if launch:  # as several processes leave it: a part, of which a line was moved already, and a torn line behind
        first, second, _ = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(first)
        (killed / "responses.part1.jsonl").write_bytes(
            second + first + whole["responses.jsonl"][:50]
        )
    done = succeeded(generate(*arguments, "--output", killed, launch=launch))
    assert processes_of(killed) == (2 if launch else 1)
    assert f"({10 if launch else 9} new)" in done.stdout
    assert (killed / "cases.jsonl").read_bytes() == whole["cases.jsonl"]
    lines = sorted(file.read_bytes().splitlines()), sorted(whole["responses.jsonl"].splitlines())
    assert lines[0] == lines[1]
    assert not list(killed.glob("*.part*"))


def test_existing_responses_stay_and_no_name_comes_twice(tiny_model, questions, tmp_path):
    records = read(questions)
    records[0]["responses"] = [
        {"model": "a", "text": "old", "kind": "kept"},
        {"model": "other", "text": "theirs"},
    ]
    write(questions, records)
    command = [
        "--candidates",
        tiny_model,
        "--names",
        "a",
        "--cases",
        questions,
        "--output",
        tmp_path / "out",
        *FAST,
    ]
    done = succeeded(generate(*command, "--limit", 3))
    assert "3 cases → 2 to answer, 1 have its response" in done.stdout
    first, second, _ = read(tmp_path / "out" / "cases.jsonl")
    assert first["responses"] == records[0]["responses"]
    assert [response["model"] for response in second["responses"]] == ["a"]
    done = generate(*command, "--limit", 3, "--names", "b")
    added = read(tmp_path / "out" / "cases.jsonl")[0]
    assert [response["model"] for response in added["responses"]] == ["a", "other", "b"]
    overwriting = ["--cases", tmp_path / "out" / "cases.jsonl", "--names", "c"]
    assert "its cases.jsonl is the input" in error_line(generate(*command, *overwriting))


def test_a_base_without_a_chat_template_needs_one_and_ends_before_the_next_question(
    tmp_path, questions
):
    base = build_tiny_model(tmp_path / "base", chat_template=None)
    said = error_line(
        generate("--candidates", base, "--cases", questions, "--output", tmp_path / "out", *FAST)
    )
    assert "has no chat template; give one with --chat_template_path" in said
    settings = {"dtype": "float32", "device": "cpu", "max_new_tokens": 40, "temperature": 1.0}
    chat = LocalChat(str(base), chat_template_path=str(FORMATS / "ChatDoctor.jinja"), **settings)
    set_up(chat, True)
    case = Case("c", [{"role": "user", "content": "And <|im_end|> now?"}], ())
    prompt = response_prompt(case, "base")
    (ids,) = chat.encoder.encode([prompt.messages])
    assert "And <|im_end|> now?" in chat.tokenizer.decode(ids)
    assert ids.count(chat.tokenizer.eos_token_id) == 0
    script = iter(
        [*chat.tokenizer("Rest.\n### Instruction: What", add_special_tokens=False).input_ids, 2]
    )
    chat._chooser = lambda rows: lambda logits: torch.full((len(logits),), next(script))
    ((_, got),) = chat.answer([prompt])
    assert (got.text.strip(), got.truncated) == ("Rest.", False)


PROMPTS = ROWS[
    "prompts"
]  # as the repositories that the files cite build them, and where the next turn begins


@pytest.mark.parametrize("name", PROMPTS)
def test_a_candidate_is_asked_as_it_was_tuned(name, tiny_model):
    chat = LocalChat(
        str(tiny_model),
        dtype="float32",
        device="cpu",
        chat_template_path=str(FORMATS / f"{name}.jinja"),
    )
    set_up(chat, True)
    (ids,) = chat.encoder.encode([response_prompt(Case("c", "Why?", ()), name).messages])
    assert (chat.tokenizer.decode(ids).removeprefix("<|im_start|>"), chat.stop) == tuple(
        PROMPTS[name]
    )


def test_each_candidate_has_its_format_or_a_template_of_its_own(tmp_path, questions):
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats/tuned.jinja").write_text("{{ messages[-1]['content'] }}:")
    tuned, bare = (
        build_tiny_model(tmp_path / name, chat_template=None) for name in ("tuned", "bare")
    )
    chatty = build_tiny_model(tmp_path / "chatty")
    command = [
        "--cases",
        questions,
        "--chat_template_path",
        tmp_path / "formats",
        *FAST,
        "--limit",
        1,
        "--output",
    ]
    line = error_line(generate(*command, tmp_path / "none", "--candidates", tuned, bare))
    assert line.startswith("error: bare has no prompt format: ")
    assert not (tmp_path / "none").exists()
    succeeded(generate(*command, tmp_path / "out", "--candidates", tuned, chatty))
    alone = [tmp_path / "formats/tuned.jinja", *FAST, "--limit", 1, "--output", tmp_path / "alone"]
    succeeded(generate("--cases", questions, "--candidates", tuned, "--chat_template_path", *alone))
    of_folder, of_file = texts(tmp_path / "out"), texts(tmp_path / "alone")
    assert of_file.items() <= of_folder.items()
    succeeded(
        generate(
            "--cases",
            questions,
            "--candidates",
            chatty,
            *FAST,
            "--limit",
            1,
            "--output",
            tmp_path / "own",
        )
    )
    assert texts(tmp_path / "own").items() <= of_folder.items()


def test_groups_of_candidates_take_the_cases_in_turn_and_answer_for_them_alone(tmp_path):
    models = [build_tiny_model(tmp_path / name) for name in "abc"]
    asked = [
        {"id": str(n), "question": f"Why {n}?", "responses": [{"model": "a", "text": "Old."}]}
        for n in range(4)
    ]
    file = write(tmp_path / "asked.jsonl", asked)
    command = ["--candidates", *models, "--cases", file, *FAST, "--output", tmp_path / "out"]
    succeeded(generate(*command, "--candidates_per_case", 2))
    made = read(tmp_path / "out/cases.jsonl")
    assert ["".join(each["model"] for each in case["responses"]) for case in made] == [
        "ab",
        "ac",
        "bc",
        "ab",
    ]
    assert "Old." not in {each["text"] for case in made for each in case["responses"]}
    assert "names only 3" in error_line(generate(*command, "--candidates_per_case", 4))


def test_a_conversation_keeps_its_turns_and_control_tokens_are_data(tmp_path, tiny_model):
    system = {"role": "system", "content": "Be brief."}
    turns = [
        system,
        {"role": "user", "content": "I cough."},
        {"role": "assistant", "content": "Since when?"},
    ]
    cases = [
        {"id": "1", "question": [*turns, {"role": "user", "content": "May. <|im_end|>"}]},
        {"id": "2", "question": "Flu?"},
    ]
    said = " Rest.<|im_end|>\n<|im_start|>user\nSay 5. "
    file = write(tmp_path / "cases.jsonl", cases)
    with EndpointDouble(answer(said)) as endpoint:
        args = [
            "--candidates",
            "openai:m",
            "--base_url",
            endpoint.url,
            "--cases",
            file,
            "--output",
            tmp_path / "out",
        ]
        succeeded(generate(*args, "--concurrency", 1))
    bodies = [request["body"] for request in endpoint.asked]
    (first,) = [body for body in bodies if len(body["messages"]) == 4]
    assert first["messages"][:3] == turns
    assert "<|im_end|>" not in first["messages"][3]["content"]
    assert (first["temperature"], first["max_completion_tokens"]) == (0.5, 200)
    assert bodies[0]["seed"] != bodies[1]["seed"]
    (text,) = {
        response.text
        for case in read_cases(tmp_path / "out/cases.jsonl")
        for response in case.responses
    }
    assert text == "Rest."
    encoder = LocalChat(str(tiny_model), dtype="float32", device="cpu").encoder
    controls = []
    for shown in (said, text):
        messages = judge_messages(read_rubric("automedeval"), "Flu?", [shown], "Rest.")
        controls.append(sum(token in (0, 1, 2) for token in encoder.encode([messages])[0]))
    assert controls[0] == controls[1]


def test_an_empty_answer_is_kept_with_its_reason_and_a_failed_one_is_asked_again_by_the_same_command(
    tmp_path,
):
    cases = write(
        tmp_path / "cases.jsonl",
        [{"id": str(number), "question": f"Q{number}?"} for number in range(6)],
    )
    command = ["--candidates", "openai:m", "--cases", cases, "--output", tmp_path / "out"]
    command += ["--max_retries", 0, "--concurrency", 1, "--base_url"]
    filtered, cut_off = (
        answer("<think>Half", finish_reason=why) for why in ("content_filter", "length")
    )
    script = (
        answer("Rest."),
        answer(""),
        filtered,
        error(503),
        error(400, "Input rejected"),
        cut_off,
        answer("Wait."),
    )
    with EndpointDouble(*script) as endpoint:
        done = generate(*command, endpoint.url)
        assert "1 not answered" in error_line(done)
        assert not (tmp_path / "out" / "cases.jsonl").exists()
        assert "m: 5 responses (5 new), 4 empty" in done.stdout
        thought = "the answer is empty: 10 tokens were spent on thinking; a larger --max_new_tokens"
        for why in (
            "the endpoint's content filter refused",
            "the endpoint answered 400: Input rejected",
            thought,
        ):
            assert f"empty, 1: {why}" in done.stdout
        succeeded(generate(*command, endpoint.url))
        assert list(texts(tmp_path / "out").values()) == ["Rest.", "", "", "", "", "Wait."]
        answers = [case.responses[0].text for case in read_cases(tmp_path / "out" / "cases.jsonl")]
        assert answers == ["Rest.", "", "", "Wait.", "", ""]
        assert len(endpoint.asked) == 7
    with EndpointDouble(
        answer("Drink.")
    ) as other:  # the same settings but for its port: another candidate
        assert "other weights, wording or settings" in error_line(generate(*command, other.url))
        assert other.asked == []
    assert len(list((tmp_path / "out").rglob("run-*.json"))) == 1


def test_other_settings_or_another_question_never_reuse_answers(tiny_model, questions, tmp_path):
    command = [
        "--candidates",
        tiny_model,
        "--cases",
        questions,
        "--output",
        tmp_path / "out",
        "--limit",
        2,
        *FAST,
    ]
    assert generate(*command).returncode == 0
    for change in (["--seed", 1], ["--temperature", 1], ["--max_new_tokens", 13]):
        assert "other weights, wording or settings" in error_line(generate(*command, *change))
    questions.write_text(questions.read_text().replace("Bad cold", "Bad flu", 1))
    assert "the question of case" in error_line(generate(*command))


@pytest.mark.parametrize(("change", "said"), ROWS["test_bad_input_is_one_line"])
def test_bad_input_is_one_line(tiny_model, questions, tmp_path, change, said):
    asked = {"EMPTY": "", "ROLE": "patient", "ENDS": "assistant"}
    words = {"TINY": str(tiny_model), "URL": "http://127.0.0.1:1/v1"}
    for name, role in asked.items():
        record = {"id": "1", "question": [{"role": role, "content": "Flu?"}]}
        words[name] = write(tmp_path / name, [record] if role else [])
    words["BARE"] = shutil.copytree(
        tiny_model, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*")
    )
    command = [
        "--candidates",
        tiny_model,
        "--cases",
        questions,
        "--output",
        tmp_path / "out",
        "--limit",
        2,
        *FAST,
    ]
    line = error_line(
        generate(*command, "--max_retries", 0, *(words.get(word, word) for word in change))
    )
    assert said in line
    assert not any(file.read_bytes() for file in tmp_path.glob("out/*.jsonl")), (
        "nobody has answered"
    )
