"""LocalChat, and judges of many architectures, beside plain transformers: one sequence at a time, in one pass, no cache."""

import json
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from doubles.plain_transformers import PlainTransformers, assert_equal
from doubles.tiny_model import CHAT_TEMPLATE, build_tiny_model, script
from programs import ROOT, SAMPLE, module_fixture
from tables import each_row, rows_of
from transformers import AutoTokenizer

from automedeval import Judge, RecordError, models, read_cases
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.models import decoding, local
from automedeval.models.base import Free, Prompt, Slot
from automedeval.models.decoding import Row
from automedeval.models.device import cpu_has
from automedeval.models.local import LocalChat
from automedeval.models.tokenization import PromptEncoder
from automedeval.rubrics import read_rubric
from automedeval.rubrics.grammar import answer_parts, parse_verdict
from automedeval.rubrics.prompts import judge_messages

ROWS = rows_of(__file__)
SCORE = ("\nScore: ", Slot("score", ("1", "2", "3", "4", "5")))
TURNS = ROWS["turns"]


def load_chat(folder, **options) -> LocalChat:
    return LocalChat(str(folder), dtype="float32", device="cpu", **options)


@module_fixture
def chat(tiny_model):
    return load_chat(tiny_model, max_new_tokens=24)


@module_fixture
def plain(tiny_model):
    return PlainTransformers(tiny_model, 24, (2,))


def ask(text, *parts) -> Prompt:
    return Prompt([{"role": "user", "content": text}], parts)


def prompts(name, rationale, count=7) -> list[Prompt]:
    rubric = replace(read_rubric(name), rationale=rationale)
    made = []
    for case in islice(read_cases(SAMPLE / "test_cases.jsonl"), count):
        texts = [response.text for response in case.responses][: rubric.max_responses]
        messages = judge_messages(rubric, case.question, texts, case.reference, rationale)
        made.append(Prompt(messages, tuple(answer_parts(rubric, len(texts), rationale))))
    return made


@each_row("name, rationale")
def test_values_have_the_probabilities_of_plain_transformers(name, rationale, chat, plain):
    asked = prompts(name, rationale)
    rubric = read_rubric(name)
    answers = dict(chat.answer(asked))
    assert sorted(answers) == list(range(len(asked)))
    checked = 0
    for index, answer in answers.items():
        messages = asked[index].messages
        assert answer.usage["prompt_tokens"] == len(plain.prompt(messages))
        # Of a text that ended, a part of a token may have been cut.
        if rationale and not answer.truncated:
            continue
        checked += 1
        shown = 2 if rubric.mode == "pairwise" else 3
        assert rationale or parse_verdict(answer.text, rubric, shown).valid
        expected = plain.values(asked[index])
        assert list(answer.probabilities) == [pytest.approx(odds, abs=2e-4) for odds in expected]
        likeliest = [max(odds, key=odds.get) for odds in answer.probabilities]
        assert list(answer.values) == likeliest
    assert checked


def test_a_reason_behind_its_score_is_what_plain_transformers_write(chat, plain):
    asked = prompts(str(ROOT / "recipes/runs/feedbackqa/rubric.yaml"), True)
    for index, answer in chat.answer(asked):
        expected = plain.values(asked[index])[0]
        assert answer.probabilities[0] == pytest.approx(expected, abs=2e-4)
        score = f"Score: {answer.values[0]}\n"
        scored = plain.prompt(asked[index].messages) + plain.ids(score)
        written = plain.write(scored)[len(scored) :]
        reason = plain.tokenizer.decode(written)
        assert (answer.text, answer.free) == (score + reason, reason.strip())
        assert answer.truncated == (len(written) == 24)
        spent = len(plain.ids("Score: 3")) + len(written)
        assert answer.usage["completion_tokens"] == spent


@each_row("says, rationale")
def test_a_rationale_ends_where_the_score_line_begins(says, rationale, tiny_model):
    scripted = load_chat(tiny_model, max_new_tokens=40)
    script(scripted, says)
    answers = dict(scripted.answer(prompts("automedeval", True, 2)))
    assert len(answers) == 2
    for answer in answers.values():
        assert answer.free == rationale
        assert answer.text.endswith(" points.")
        assert answer.text.count("Score:") == 1 + rationale.count("Score:")
        scores = tuple(map(int, answer.values))
        assert parse_verdict(answer.text, read_rubric("automedeval"), 3).scores == scores


@pytest.mark.parametrize("most", [40, 7, 6, 5])
@each_row("says")
def test_a_rationale_in_json_ends_at_its_closing_quote(says, most, tiny_model, monkeypatch):
    """After an escaped backslash a quote closes the text; what the model reads before a value is what the answer says."""
    scripted = load_chat(tiny_model, max_new_tokens=most)
    script(scripted, says)
    read = []

    def compete(batch, *more):
        whole = scripted.tokenizer.decode(batch.rows[0].tokens)
        read.append(whole.rpartition("assistant\n")[2])
        return decoding.compete(batch, *more)

    monkeypatch.setattr(local, "compete", compete)
    ((_, answer),) = scripted.answer(prompts("just_eval_pairwise", True, 1))
    assert answer.free == json.loads(answer.text)["rationale"]
    inside = re.match(r'(?:[^"\\]|\\.)*', says)[0]
    written = json.loads(f'"{inside}"')
    if most == 40:
        assert answer.free == written
    assert written.startswith(answer.free.removesuffix("\\"))
    assert len(read) == len(answer.values)
    assert all(map(answer.text.startswith, read))


@each_row("says, reason")
def test_a_reason_in_json_behind_its_score_stands_in_the_object(says, reason, tiny_model):
    scripted = load_chat(tiny_model, max_new_tokens=40)
    script(scripted, says)
    text = (', "why": "', Free('"', json_string=True), '"}')
    ((_, answer),) = scripted.answer(
        [ask("How good?", '{"points": ', Slot("score", ("1", "2")), *text)]
    )
    assert json.loads(answer.text) == {"points": int(answer.values[0]), "why": reason}
    assert answer.free == reason


@pytest.mark.parametrize("values", [tuple(map(str, range(1, 11))), ("1", "12", "100")])
@pytest.mark.parametrize("free", [False, True])
def test_what_follows_tells_values_that_begin_alike_apart(free, values, chat, plain):
    """The second slot's probabilities are those after the first value and its literal, which are fed once."""
    literal = "\nScore: Doctor 1: " if free else "Score: Doctor 1: "
    second = Slot("Doctor 2", ("1", "2", "3"))
    parts = (literal, Slot("Doctor 1", values), " points. Doctor 2: ", second, ".")
    prompt = ask("How good?", *([Free("\nScore")] if free else []), *parts)
    ((_, answer),) = chat.answer([prompt])
    assert answer.truncated is free
    ids = plain.prompt(prompt.messages)
    ids = plain.write(ids) if free else ids
    after = chat.encoder.after
    odds = []
    for value in values:
        size = len(after("x", literal + value))
        tail = after("x", f"{literal}{value} points")[: size + 1]
        steps = plain.after(ids + tail, len(tail) + 1)
        odds.append(sum(steps[at, token] for at, token in enumerate(tail)))
    ids += after("x", literal + answer.values[0]) + after("1", " points. Doctor 2: 1")[:-1]
    last = [after("x", f": {value}")[-1] for value in second.values]
    expected = torch.stack(odds), plain.after(ids, 1)[0][last]
    for chances, logits in zip(answer.probabilities, expected, strict=True):
        shares = logits.softmax(0).tolist()
        assert list(chances.values()) == pytest.approx(shares, abs=2e-4)


def test_an_added_token_that_no_template_writes_is_data_in_a_text_too(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.add_tokens(["<|middle|>", "\n\n"])
    text = "Rest <|middle|> or\n\nwalk."
    (ids,) = PromptEncoder(tokenizer).encode([ask(text).messages])
    assert text in tokenizer.decode(ids)
    control, white = tokenizer.convert_tokens_to_ids(["<|middle|>", "\n\n"])
    assert (control in ids, white in ids) == (False, True)


def test_templates_without_a_system_role_get_it_in_front_of_the_question(tmp_path):
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    folder = build_tiny_model(tmp_path / "m", chat_template=refusing + CHAT_TEMPLATE)
    encoder = PromptEncoder.from_checkpoint(str(folder))
    (ids,) = encoder.encode([TURNS])
    assert "user\nJudge.\n\nRight?<|im_end|>" in encoder.tokenizer.decode(ids)


PACKAGED = {"as_is": "Judge.\nRight?\n", "vicuna": "Judge. USER: Right? ASSISTANT:"}


@pytest.mark.parametrize("template", PACKAGED)
def test_a_packaged_template_shows_the_turns_as_its_models_know_them(template, tiny_model):
    file = Path(models.__file__).parent / "templates" / f"{template}.jinja"
    encoder = PromptEncoder.from_checkpoint(str(tiny_model), str(file))
    ((asked, answer),) = encoder.encode_answered([(TURNS, "Yes.")])
    shown = encoder.tokenizer.decode(asked).removeprefix("<|im_start|>")
    assert shown == PACKAGED[template]
    assert encoder.tokenizer.decode(answer).lstrip().startswith("Yes.")


def test_scores_alone_take_two_forward_passes_and_rationales_one_more_for_each_token(tiny_model):
    """The shared beginning and the rest of all prompts; a token of all texts each; the score."""
    fresh = load_chat(tiny_model, max_new_tokens=24)
    widths = []

    def note(network, args, options):
        widths.append(options["input_ids"].shape[1])

    fresh.network.register_forward_pre_hook(note, with_kwargs=True)
    for parts, passes, steps in ((SCORE, 2, 0), ((Free("\nScore"), *SCORE), 27, 24)):
        widths.clear()
        asked = [ask(f"How good is {'very ' * n}{n}?", *parts) for n in range(4)]
        assert len(dict(fresh.answer(asked))) == 4
        assert len(widths) <= passes + 1
        assert abs(widths.count(1) - steps) <= 1


def test_prompts_whose_answers_have_different_room_are_answered_together_as_alone(tmp_path):
    """In a window of 300 tokens the long one has room for some seventy tokens, and the short one writes its hundred."""
    folder = build_tiny_model(tmp_path / "narrow", window=300)
    fresh = load_chat(folder, max_new_tokens=100)
    texts = (f"How good is {'very ' * words}good?" for words in (1, 80))
    rows = [ask(text, Free("\nScore"), *SCORE) for text in texts]
    short, long = map(fresh.count_tokens, rows)
    assert 300 - short > 100
    assert 64 < 300 - long < 150
    together = dict(fresh.answer(rows))
    for index, row in enumerate(rows):
        ((_, alone),) = fresh.answer([row])
        assert alone.truncated
        assert together[index].text == alone.text


def batches_of(chat, lengths) -> list[list[int]]:
    """Return in which batches a chat answers rows of these lengths."""
    batches = chat._batches([Row(ids=[0] * length) for length in lengths])
    return [[row.length for row in batch] for batch in batches]


def test_the_first_of_many_prompts_is_answered_by_itself(chat):
    """So a verdict is there soon. Batches depend on all prompts alone: a resumed run has the same."""
    assert batches_of(chat, [7, 5, *range(10, 18)]) == [[5], [7, *range(10, 18)]]


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_values_are_sampled_by_the_probabilities_of_plain_transformers(
    temperature, tiny_model, plain
):
    (asked,) = prompts("automedeval", rationale=False, count=1)
    runs = [replace(asked, run=run) for run in range(400)]
    chat = load_chat(tiny_model, temperature=temperature, batch_tokens=60_000)
    answers = dict(chat.answer(runs))
    odds = plain.values(asked)[0]
    likelihoods = torch.tensor(list(odds.values())).log()
    expected = (likelihoods / temperature).softmax(0).tolist()
    drawn = [answer.values[0] for answer in answers.values()]
    for value, chance in zip(odds, expected, strict=True):
        spread = (chance * (1 - chance) / 400) ** 0.5
        assert drawn.count(value) / 400 == pytest.approx(chance, abs=4 * spread + 1e-3)
    for answer in answers.values():
        assert answer.probabilities[0] == pytest.approx(odds, abs=1e-3)
    # the same values in other batches, and others with another seed
    alone = load_chat(tiny_model, temperature=temperature, batch_tokens=1)
    for run in (3, 1, 2):
        ((_, answer),) = alone.answer([runs[run]])
        assert answer.values == answers[run].values
    other = load_chat(tiny_model, temperature=temperature, seed=1)
    assert any(answer.values != answers[run].values for run, answer in other.answer(runs[:40]))


SWITCHED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
SWITCH = CHAT_TEMPLATE.replace("assistant\n{%", f"assistant\n{SWITCHED}{{%")


@pytest.mark.parametrize(("template", "switched"), [(SWITCH, True), (CHAT_TEMPLATE, False)])
def test_a_template_that_can_have_a_model_think_is_told_not_to(template, switched, tmp_path):
    folder = build_tiny_model(tmp_path, chat_template=template)
    (ids,) = PromptEncoder.from_checkpoint(str(folder)).encode([TURNS])
    plain = AutoTokenizer.from_pretrained(folder)
    options = {"add_generation_prompt": True, "enable_thinking": False, "tokenize": False}
    text = plain.apply_chat_template(TURNS, **options)
    assert plain.decode(ids) == text
    assert text.endswith("<think>\n\n</think>\n\n" if switched else "assistant\n")


NEW_TOKENS = 12
# So many tokens end a text that the texts of a batch have different lengths.
ENDS = tuple(range(2, 200))
ARCHITECTURES = ROWS["architectures"]
FLOAT32 = ("gemma3", "llama", "mistral", "phi3", "phi3 longrope", "qwen2", "qwen3")
ONE_BY_ONE = ("lfm2", "mamba", "qwen3_next")


def load(folder, name):
    """Return a judge by the smallest model of an architecture."""
    build_tiny_model(folder, model_type=name.split()[0], ends=ENDS, **ARCHITECTURES[name])
    return Judge(load_chat(folder, max_new_tokens=NEW_TOKENS))


@pytest.fixture(scope="module", params=[name for name in ARCHITECTURES if name != "xlstm"])
def judge(request, tmp_path_factory):
    return load(tmp_path_factory.mktemp("models"), request.param)


@module_fixture
def reference(judge):
    return PlainTransformers(Path(judge.chat.model), NEW_TOKENS, ENDS)


@module_fixture
def cases():
    """Return cases of different lengths, which take prompts of about 500 to 700 tokens."""
    drawn = []
    for case in islice(read_cases(SAMPLE / "test_cases.jsonl"), 6):
        size = 20 + 25 * len(drawn)
        short = [replace(response, text=response.text[:size]) for response in case.responses]
        drawn.append(replace(case, responses=tuple(short), reference=None))
    return drawn


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
    pairs = []
    for case in cases[:3]:
        for request in likelihood.plan(case):
            pairs += likelihood.prompt(request)
    answers = dict(judge.chat.likelihoods(pairs))
    assert len(answers) == len(pairs)
    for index, (condition, target) in enumerate(pairs):
        before = [reference.tokenizer.bos_token_id, *reference.ids(condition)]
        ids = reference.ids(target)
        steps = reference.after(before + ids, len(ids) + 1)[:-1]
        expected = steps.gather(1, torch.tensor(ids)[:, None]).mean().item()
        assert answers[index] == pytest.approx(expected, abs=1e-4)


def test_attention_and_batches_are_as_the_architecture_allows(judge, request):
    name = request.node.callspec.params["judge"]
    attention = judge.chat.network.config.get_text_config()._attn_implementation
    assert (attention == "sdpa_float32") == (name in FLOAT32 and not cpu_has("amx_tile"))
    batches = batches_of(judge.chat, [500, 400, 650])
    if name in ONE_BY_ONE:
        assert batches == [[400], [500], [650]]
    elif name in ("llama4_text", "phi3 longrope"):
        assert batches == [[400, 500], [650]]
    else:
        assert batches == [[400, 500, 650]]


def test_what_was_chosen_for_an_architecture_is_said(tmp_path, caplog):
    load(tmp_path / "capped", "gemma2")
    load(tmp_path / "hybrid", "lfm2")
    assert caplog.messages == [
        "Gemma2ForCausalLM has no attention 'sdpa' in transformers: 'eager' is used",
        "hybrid has recurrent or convolutional states: it answers one prompt after another",
    ]


def test_an_architecture_without_logits_of_the_last_tokens_is_refused_by_name(tmp_path):
    with pytest.raises(RecordError, match="xLSTMForCausalLM"):
        load(tmp_path / "m", "xlstm")
