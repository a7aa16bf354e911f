"""LocalChat, and judges of many architectures, beside plain transformers: one sequence at a time, in one pass, no cache."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from doubles.plain_transformers import PlainTransformers, assert_equal
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model
from programs import ROOT, SAMPLE
from tables import rows_of
from transformers import AutoTokenizer

from automedeval import Judge, RecordError, load_judge, models, read_cases
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.models import decoding, local
from automedeval.models.base import Free, Prompt, Slot
from automedeval.models.device import cpu_has
from automedeval.models.local import LocalChat
from automedeval.models.tokenization import PromptEncoder
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import answer_parts, parse_verdict
from automedeval.rubrics.prompts import judge_messages


@pytest.fixture(scope="module")
def chat(tiny_model) -> LocalChat:
    return LocalChat(str(tiny_model), dtype="float32", device="cpu", max_new_tokens=24)


@pytest.fixture(scope="module")
def plain(tiny_model) -> PlainTransformers:
    return PlainTransformers(tiny_model, 24, (2,))


def prompts(name: str, rationale: bool, count: int = 7) -> list[Prompt]:
    rubric, made = replace(read_rubric(name), rationale=rationale), []
    for case in list(read_cases(SAMPLE / "test_cases.jsonl"))[:count]:
        texts = [response.text for response in case.responses][: rubric.max_responses]
        messages = judge_messages(rubric, case.question, texts, case.reference, rationale)
        made.append(Prompt(messages, tuple(answer_parts(rubric, len(texts), rationale))))
    return made


RUBRICS = (
    "automedeval",
    "medical_pairwise",
    "instruction_pairwise",
    "just_eval_pairwise",
    "pandalm",
)
WITH_RATIONALE = ("automedeval", "just_eval_pairwise")


@pytest.mark.parametrize(
    ("name", "rationale"),
    [*((name, False) for name in RUBRICS), *((name, True) for name in WITH_RATIONALE)],
)
def test_values_have_the_probabilities_of_plain_transformers(name, rationale, chat, plain):
    asked, rubric, checked = prompts(name, rationale), read_rubric(name), 0
    answers = dict(chat.answer(asked))
    assert sorted(answers) == list(range(len(asked)))
    for index, prompt in enumerate(asked):
        answer = answers[index]
        assert answer.usage["prompt_tokens"] == len(plain.prompt(prompt.messages))
        if (
            rationale and not answer.truncated
        ):  # of a text that ended, a part of a token may have been cut
            continue
        checked += 1
        assert (
            parse_verdict(answer.text, rubric, 2 if rubric.mode == "pairwise" else 3).valid
            or rationale
        )
        for odds, value, expected in zip(
            answer.probabilities, answer.values, plain.values(prompt), strict=True
        ):
            assert odds == pytest.approx(expected, abs=2e-4)
            assert value == max(odds, key=odds.get)
    assert checked


def test_a_reason_behind_its_score_is_what_plain_transformers_write(chat, plain):
    asked = prompts(str(ROOT / "recipes/runs/feedbackqa/rubric.yaml"), True)
    for index, answer in chat.answer(asked):
        assert answer.probabilities[0] == pytest.approx(plain.values(asked[index])[0], abs=2e-4)
        scored = plain.prompt(asked[index].messages) + plain.ids(f"Score: {answer.values[0]}\n")
        written = plain.write(scored)[len(scored) :]
        assert answer.text == f"Score: {answer.values[0]}\n{plain.tokenizer.decode(written)}"
        assert answer.free == plain.tokenizer.decode(written).strip()
        assert answer.truncated == (len(written) == 24)
        spent = len(plain.ids("Score: 3")) + len(written)
        assert answer.usage["completion_tokens"] == spent


@pytest.mark.parametrize(
    ("says", "rationale"), rows_of(__file__)["test_a_rationale_ends_where_the_score_line_begins"]
)
def test_a_rationale_ends_where_the_score_line_begins(says, rationale, tiny_model, chat):
    asked = prompts("automedeval", True, 2)
    scripted = LocalChat(str(tiny_model), dtype="float32", device="cpu", max_new_tokens=40)
    script = [*scripted.tokenizer(says, add_special_tokens=False).input_ids, 2]
    steps = iter(script)
    scripted._chooser = lambda run: lambda logits: torch.full((len(logits),), next(steps))
    answers = list(scripted.answer(asked))
    assert len(answers) == 2
    for _, answer in answers:
        assert answer.free == rationale
        assert answer.text.endswith(" points.")
        assert answer.text.count("Score:") == 1 + rationale.count("Score:")
        assert parse_verdict(answer.text, read_rubric("automedeval"), 3).scores == tuple(
            map(int, answer.values)
        )


# Two escaped quotes, the second with the last of the tokens that are looked at together with the first.
WIDE = r"a \"" + " b" * 9 + r' \" c"'


@pytest.mark.parametrize("most", [40, 7, 6, 5])
@pytest.mark.parametrize(
    "says",
    [
        r'Fine \\" more',
        r'Fine \\\\", "',
        r'It says \"no\" here."',
        r"Fine \\\\",
        r"Fine\nor not",
        WIDE,
    ],
)
def test_a_rationale_in_json_ends_at_its_closing_quote(says, most, tiny_model, monkeypatch):
    """After an escaped backslash a quote closes the text; what the model reads before a value is what the answer says."""
    scripted = LocalChat(str(tiny_model), dtype="float32", device="cpu", max_new_tokens=most)
    steps = iter([*scripted.tokenizer(says, add_special_tokens=False).input_ids, 2])
    scripted._chooser = lambda run: lambda logits: torch.full((len(logits),), next(steps))
    read = []

    def compete(rows, *more):
        read.append(scripted.tokenizer.decode(rows.tokens[0]).rpartition("assistant\n")[2])
        return decoding.compete(rows, *more)

    monkeypatch.setattr(local, "compete", compete)
    ((_, answer),) = scripted.answer(prompts("just_eval_pairwise", True, 1))
    assert answer.free == json.loads(answer.text)["rationale"]
    written = json.loads('"' + re.match(r'(?:[^"\\]|\\.)*', says)[0] + '"')
    assert (
        answer.free == written if most == 40 else written.startswith(answer.free.removesuffix("\\"))
    )
    assert len(read) == len(answer.values)
    assert all(answer.text.startswith(each) for each in read)


@pytest.mark.parametrize("values", [tuple(map(str, range(1, 11))), ("1", "12", "100")])
@pytest.mark.parametrize("free", [False, True])
def test_what_follows_tells_values_that_begin_alike_apart(free, values, chat, plain):
    """The second slot's probabilities are those after the first value and its literal, which are fed once."""
    literal = "\nScore: Doctor 1: " if free else "Score: Doctor 1: "
    second = Slot("Doctor 2", ("1", "2", "3"))
    parts = (literal, Slot("Doctor 1", values), " points. Doctor 2: ", second, ".")
    messages = [{"role": "user", "content": "How good?"}]
    prompt = Prompt(messages, (Free("\nScore"), *parts) if free else parts)
    ((_, answer),) = chat.answer([prompt])
    assert answer.truncated is free
    ids, after, odds = plain.prompt(prompt.messages), chat.encoder.after, []
    ids = plain.write(ids) if free else ids
    for value in values:
        tail = after("x", f"{literal}{value} points")[: len(after("x", literal + value)) + 1]
        steps = plain.after(ids + tail, len(tail) + 1)
        odds.append(sum(steps[at, token] for at, token in enumerate(tail)))
    shares = torch.stack(odds).softmax(0).tolist()
    assert list(answer.probabilities[0].values()) == pytest.approx(shares, abs=2e-4)
    ids += after("x", literal + answer.values[0]) + after("1", " points. Doctor 2: 1")[:-1]
    last = [after("x", f": {value}")[-1] for value in second.values]
    shares = plain.after(ids, 1)[0][last].softmax(0).tolist()
    assert list(answer.probabilities[1].values()) == pytest.approx(shares, abs=2e-4)


def test_an_added_token_that_no_template_writes_is_data_in_a_text_too(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.add_tokens(["<|middle|>", "\n\n"])
    text = "Rest <|middle|> or\n\nwalk."
    (ids,) = PromptEncoder(tokenizer).encode([[{"role": "user", "content": text}]])
    assert text in tokenizer.decode(ids)
    control, white = tokenizer.convert_tokens_to_ids(["<|middle|>", "\n\n"])
    assert (control in ids, white in ids) == (False, True)


def test_templates_without_a_system_role_get_it_in_front_of_the_question(tmp_path):
    refusing = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        + CHAT_TEMPLATE
    )
    chat = LocalChat(
        str(build_tiny_model(tmp_path / "m", chat_template=refusing)), dtype="float32", device="cpu"
    )
    (ids,) = chat.encoder.encode(
        [[{"role": "system", "content": "Be fair."}, {"role": "user", "content": "Judge."}]]
    )
    assert "user\nBe fair.\n\nJudge.<|im_end|>" in chat.tokenizer.decode(ids)


TURNS = [
    {"role": role, "content": text}
    for role, text in (("system", "Judge."), ("user", "Right?"), ("assistant", "Yes."))
]
PACKAGED = {"as_is": "Judge.\nRight?\n", "vicuna": "Judge. USER: Right? ASSISTANT:"}


@pytest.mark.parametrize("template", PACKAGED)
def test_a_packaged_template_shows_the_turns_as_its_models_know_them(template, tiny_model):
    file = Path(models.__file__).parent / "templates" / f"{template}.jinja"
    encoder = PromptEncoder.from_checkpoint(str(tiny_model), str(file))
    asked, answered = encoder.encode([TURNS[:2]]), encoder.encode([TURNS], answered=True)
    shown, whole = (
        encoder.tokenizer.decode(ids).removeprefix("<|im_start|>") for (ids,) in (asked, answered)
    )
    assert shown == PACKAGED[template]
    assert whole.replace(" Yes", "Yes").startswith(f"{shown}Yes.")


def test_scores_alone_take_two_forward_passes_and_rationales_one_more_for_each_token(tiny_model):
    """The shared beginning and the rest of all prompts; a token of all texts each; the score."""
    fresh = LocalChat(str(tiny_model), dtype="float32", device="cpu", max_new_tokens=24)
    widths: list[int] = []
    note = lambda _, args, options: widths.append(options["input_ids"].shape[1])  # noqa: E731
    fresh.network.register_forward_pre_hook(note, with_kwargs=True)
    score = ("\nScore: ", Slot("score", ("1", "2", "3", "4", "5")))
    for parts, passes, steps in ((score, 2, 0), ((Free("\nScore"), *score), 27, 24)):
        widths.clear()
        texts = [f"How good is {'very ' * n}{n}?" for n in range(4)]
        asked = [Prompt([{"role": "user", "content": text}], parts) for text in texts]
        list(fresh.answer(asked))
        assert len(widths) <= passes + 1
        assert abs(widths.count(1) - steps) <= 1


def test_prompts_whose_answers_have_different_room_are_answered_together_as_alone(tmp_path):
    """In a window of 300 tokens the long one has room for some twenty tokens, and the short one writes its hundred."""
    folder = build_tiny_model(tmp_path / "narrow", window=300)
    fresh = LocalChat(str(folder), dtype="float32", device="cpu", max_new_tokens=100)
    parts = (Free("\nScore"), "\nScore: ", Slot("score", ("1", "2", "3", "4", "5")))
    asked = [
        [{"role": "user", "content": f"How good is {'very ' * words}good?"}] for words in (1, 125)
    ]
    rows = [Prompt(messages, parts) for messages in asked]
    short, long = map(fresh.count_tokens, rows)
    assert 300 - short > 100
    assert 0 < 300 - long < 50
    alone = [answer for row in rows for _, answer in fresh.answer([row])]
    assert [answer.truncated for answer in alone] == [True, True]
    together = dict(fresh.answer(rows))
    assert [together[index].text for index in range(2)] == [answer.text for answer in alone]


def test_the_first_of_many_prompts_is_answered_by_itself(chat):
    """So a verdict is there soon. Batches depend on all prompts alone: a resumed run has the same."""
    assert list(chat._batches([7, 5, *range(10, 18)], [""] * 10)) == [[1], [0, *range(2, 10)]]
    assert list(chat._batches([7, 5, 6], [""] * 3)) == [[1, 2, 0]]


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_values_are_sampled_by_the_probabilities_of_plain_transformers(
    temperature, tiny_model, plain
):
    (asked,) = prompts("automedeval", rationale=False, count=1)
    runs = [Prompt(asked.messages, asked.parts, run=run) for run in range(400)]
    chat = LocalChat(
        str(tiny_model), dtype="float32", device="cpu", temperature=temperature, batch_tokens=60_000
    )
    answers = dict(chat.answer(runs))
    slot, odds = asked.parts[1], plain.values(asked)[0]
    expected = (torch.tensor(list(odds.values())).log() / temperature).softmax(0).tolist()
    drawn = [answers[run].values[0] for run in range(len(runs))]
    for value, chance in zip(slot.values, expected):
        spread = (chance * (1 - chance) / len(runs)) ** 0.5
        assert drawn.count(value) / len(runs) == pytest.approx(chance, abs=4 * spread + 1e-3)
    assert all(
        answer.probabilities[0] == pytest.approx(odds, abs=1e-3) for answer in answers.values()
    )
    # the same values in other batches, in another process, and with a seed of their own
    options = {"dtype": "float32", "device": "cpu", "temperature": temperature}
    alone = LocalChat(str(tiny_model), **options, batch_tokens=1)
    for run in (3, 1, 2):
        assert next(alone.answer([runs[run]]))[1].values == answers[run].values
    other = LocalChat(str(tiny_model), **options, seed=1)
    assert any(answer.values != answers[run].values for run, answer in other.answer(runs[:40]))


SWITCHED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
SWITCH = CHAT_TEMPLATE.replace("assistant\n{%", f"assistant\n{SWITCHED}{{%")


@pytest.mark.parametrize(("template", "switched"), [(SWITCH, True), (CHAT_TEMPLATE, False)])
def test_a_template_that_can_have_a_model_think_is_told_not_to(template, switched, tmp_path):
    folder = build_tiny_model(tmp_path, chat_template=template)
    chat = LocalChat(str(folder), dtype="float32", device="cpu")
    messages = [{"role": "user", "content": "Which helps?"}]
    (ids,) = chat.encoder.encode([messages])
    plain = AutoTokenizer.from_pretrained(folder)
    text = plain.apply_chat_template(
        messages, add_generation_prompt=True, enable_thinking=False, tokenize=False
    )
    assert plain.decode(ids) == text
    assert text.endswith("<think>\n\n</think>\n\n" if switched else "assistant\n")


NEW_TOKENS = 12
ENDS = tuple(
    range(2, 200)
)  # so many tokens end a text that the texts of a batch have different lengths
ROWS = rows_of(__file__)
ARCHITECTURES, LOCAL = ROWS["architectures"], ROWS["local"]
FLOAT32 = ("gemma3", "llama", "mistral", "phi3", "phi3 longrope", "qwen2", "qwen3")
ONE_BY_ONE = ("lfm2", "mamba", "qwen3_next")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def judge(request, tmp_path_factory) -> Judge:
    shape, name = ARCHITECTURES[request.param], request.param.split()[0]
    folder = tmp_path_factory.mktemp("models") / request.param.replace(" ", "-")
    return load(build_tiny_model(folder, model_type=name, ends=ENDS, **shape))


@pytest.fixture(scope="module")
def reference(judge) -> PlainTransformers:
    return plain_of(judge)


@pytest.fixture(scope="module")
def cases() -> list:
    """Return cases of different lengths, which take prompts of about 500 to 700 tokens."""
    drawn = []
    for index, case in enumerate(list(read_cases(SAMPLE / "test_cases.jsonl"))[:6]):
        short = tuple(replace(each, text=each.text[: 20 + 25 * index]) for each in case.responses)
        drawn.append(replace(case, responses=short, reference=None))
    return drawn


def load(folder: Path, **settings: Any) -> Judge:
    chat = {
        "dtype": "float32",
        "device": "cpu",
        "max_new_tokens": NEW_TOKENS,
        "batch_tokens": 16384,
    }
    return load_judge(str(folder), chat=chat | settings)


def plain_of(judge: Judge) -> PlainTransformers:
    return PlainTransformers(Path(judge.chat.model), NEW_TOKENS, ENDS)


def test_scores_of_a_batch_are_those_of_single_cases(judge, reference, cases):
    assert_equal(replace(judge, rationale=False), reference, cases)


def test_scores_after_rationales_are_those_of_single_cases(judge, reference, cases):
    assert_equal(judge, reference, cases)


def test_free_text_is_what_generate_writes(judge, reference, cases):
    for case, verdict in zip(cases, replace(judge, score_decoding="free")(cases), strict=True):
        ids = reference.prompt(judge.prompt(judge.plan(case)[0]).messages)
        assert verdict.raw == reference.tokenizer.decode(reference.write(ids)[len(ids) :])


def test_likelihoods_of_a_batch_are_those_of_single_pairs(judge, reference, cases):
    likelihood = LikelihoodJudge(judge.chat)
    requests = [request for case in cases[:3] for request in likelihood.plan(case)]
    prompts = [likelihood.prompt(request) for request in requests]
    answers = dict(likelihood.answer(prompts, [True] * len(prompts)))
    for index, pairs in enumerate(prompts):
        for (condition, target), got in zip(pairs, answers[index], strict=True):
            ids, target_ids = (
                [reference.tokenizer.bos_token_id, *reference.ids(condition)],
                reference.ids(target),
            )
            steps = reference.after(ids + target_ids, len(target_ids) + 1)[:-1]
            expected = steps.gather(1, torch.tensor(target_ids)[:, None]).mean().item()
            assert got == pytest.approx(expected, abs=1e-4)


def test_attention_and_batches_are_as_the_architecture_allows(judge, request):
    name = request.node.callspec.params["judge"]
    attention = judge.chat.network.config.get_text_config()._attn_implementation
    assert (attention == "sdpa_float32") == (name in FLOAT32 and not cpu_has("amx_tile"))
    batches = list(judge.chat._batches([500, 400, 650], ["", "", ""]))
    whole, apart = [[1, 0, 2]], [[1], [0], [2]]
    some = [[1, 0], [2]] if name in ("llama4_text", "phi3 longrope") else whole
    assert batches == (apart if name in ONE_BY_ONE else some)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_attention_has_the_same_scores(attention, tmp_path, cases):
    """A CPU computes it in float32; a GPU of another kind uses that of transformers."""
    folder = build_tiny_model(tmp_path / "m", model_type="mistral", ends=ENDS, **LOCAL)
    judge = load(folder)
    judge.chat.network.set_attn_implementation(attention)
    verdicts = assert_equal(judge, plain_of(judge), cases)
    assert len({verdict.truncated for verdict in verdicts}) == 2  # texts of different lengths


def test_what_was_chosen_for_an_architecture_is_said(tmp_path, caplog):
    load(build_tiny_model(tmp_path / "capped", model_type="gemma2", **ARCHITECTURES["gemma2"]))
    assert caplog.messages == [
        "Gemma2ForCausalLM has no attention 'sdpa' in transformers: 'eager' is used"
    ]
    caplog.clear()
    load(build_tiny_model(tmp_path / "hybrid", model_type="lfm2", **ARCHITECTURES["lfm2"]))
    assert caplog.messages == [
        "hybrid has recurrent or convolutional states: it answers one prompt after another"
    ]


def test_an_architecture_without_logits_of_the_last_tokens_is_refused_by_name(tmp_path):
    folder = build_tiny_model(
        tmp_path / "m", model_type="xlstm", num_heads=4, num_blocks=2, embedding_dim=32
    )
    with pytest.raises(RecordError, match="xLSTMForCausalLM"):
        load(folder)
