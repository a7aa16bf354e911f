"""Judges of many architectures beside plain transformers: one case at a time, the whole sequence in one pass, no cache."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from doubles.plain_transformers import PlainTransformers, assert_equal
from doubles.tiny_model import build_tiny_model
from programs import SAMPLE
from tables import rows_of

from automedeval import Judge, RecordError, load_judge, read_cases
from automedeval.judges.likelihood import LikelihoodJudge
from automedeval.models.device import cpu_has

NEW_TOKENS = 12
ENDS = tuple(range(2, 200))  # so many tokens end a text that the texts of a batch have different lengths
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
    chat = {"dtype": "float32", "device": "cpu", "max_new_tokens": NEW_TOKENS, "batch_tokens": 16384}
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
            ids, target_ids = [reference.tokenizer.bos_token_id, *reference.ids(condition)], reference.ids(target)
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
    assert len({verdict.extra.get("truncated") for verdict in verdicts}) == 2  # texts of different lengths


def test_values_of_several_tokens_stay_within_a_window(tmp_path, cases):
    folder = build_tiny_model(tmp_path / "m", model_type="mistral", **LOCAL)
    judge = load(folder)
    assert_equal(Judge(judge.chat, "medical_pairwise", models=cases[0].models[:2]), plain_of(judge), cases[:1])


def test_what_was_chosen_for_an_architecture_is_said(tmp_path, caplog):
    load(build_tiny_model(tmp_path / "capped", model_type="gemma2", **ARCHITECTURES["gemma2"]))
    assert caplog.messages == ["Gemma2ForCausalLM has no attention 'sdpa' in transformers: 'eager' is used"]
    caplog.clear()
    load(build_tiny_model(tmp_path / "hybrid", model_type="lfm2", **ARCHITECTURES["lfm2"]))
    assert caplog.messages == ["hybrid has recurrent or convolutional states: it answers one prompt after another"]


def test_an_architecture_without_logits_of_the_last_tokens_is_refused_by_name(tmp_path):
    folder = build_tiny_model(tmp_path / "m", model_type="xlstm", num_heads=4, num_blocks=2, embedding_dim=32)
    with pytest.raises(RecordError, match="xLSTMForCausalLM"):
        load(folder)
