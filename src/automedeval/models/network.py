"""The network of a checkpoint: its attention, and how many of its sequences may share a forward pass."""

import inspect
import logging
import math
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    DynamicCache,
)
from transformers.masking_utils import sdpa_mask

from automedeval.models.checkpoints import base_of
from automedeval.models.device import cpu_has
from automedeval.records import RecordError

LOG = logging.getLogger(__name__)

FLOAT32_ATTENTION = "sdpa_float32"
# The kinds of a layer's cache that a buffer of keys and values stands for.
BUFFERED = {"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"}
# Other architectures use transformers' own attention: some ask for its name, or pass a mask per head.
FLOAT32_TYPES = ("gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3")


def _float32_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Compute attention in the dtype of the stored keys, float32, on a CPU.

    There transformers' own "sdpa" copies keys and values once per query head where there is a mask, and computes in bfloat16,
    which takes five times as long without AMX (24 rows over 800 positions, an AMD EPYC, torch 2.13, 2026-11-21).
    """
    causal = attention_mask is None and query.shape[2] > 1
    output = scaled_dot_product_attention(
        query.to(key.dtype), key, value,
        attn_mask=attention_mask, is_causal=causal, scale=scaling, enable_gqa=True,
    )  # fmt: skip
    return output.transpose(1, 2).contiguous().to(query.dtype), None


AttentionInterface.register(FLOAT32_ATTENTION, _float32_attention)
AttentionMaskInterface.register(FLOAT32_ATTENTION, sdpa_mask)


def outline_network(folder: Path, dtype: torch.dtype, device: str):
    """Return the network that `load_network` loads, without weights: its configuration, its class and its shapes.

    Attention is computed by "sdpa", on a CPU without AMX in float32 where `FLOAT32_TYPES` has the architecture; "eager" where
    transformers knows that "sdpa" cannot compute it. RecordError if the architecture does not take `logits_to_keep`.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)
    name = type(network).__name__
    if "logits_to_keep" not in inspect.signature(network.forward).parameters:
        raise RecordError(
            f"{folder}: {name} cannot return the logits of the last tokens alone, which judging needs"
        )
    config = network.config.get_text_config()
    if config._attn_implementation != "sdpa":
        LOG.warning(
            "%s has no attention 'sdpa' in transformers: %r is used",
            name,
            config._attn_implementation,
        )
    elif (
        torch.device(device).type == "cpu"
        and config.model_type in FLOAT32_TYPES
        and not cpu_has("amx_tile")
    ):
        network.set_attn_implementation(FLOAT32_ATTENTION)
    return network


def load_network(folder: Path, outline, device: str):
    """Load a causal language model in evaluation mode, its weights straight to the device, as `outline_network` outlined it.

    An adapter stays beside the weights of its base. Only safetensors are read, and no remote code is run.
    """
    base = base_of(folder)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        base,
        dtype=outline.dtype,
        use_safetensors=True,
        trust_remote_code=False,
        device_map=None if device == "cpu" else {"": device},
        output_loading_info=True,
    )
    network, report = loaded
    if missing := report["missing_keys"]:  # they would be random
        raise RecordError(f"{folder}: {len(missing)} weights are missing, such as {min(missing)}")
    if base != folder:
        from peft import PeftModel  # only adapters need it

        network = PeftModel.from_pretrained(network, folder).get_base_model()
    if outline.config.get_text_config()._attn_implementation == FLOAT32_ATTENTION:
        network.set_attn_implementation(FLOAT32_ATTENTION)
    return network.eval().requires_grad_(False)


def flatten_head_input(model) -> None:
    """Flatten the input of a model's output layer to a matrix; logits then have the shape (rows x positions, vocabulary).

    Of sliced hidden states `linear` of torch 2.13 on a CPU copies the output matrix once per row: 2,158 ms for 32 rows and a
    vocabulary of 49,152 in bfloat16, against 7 ms (two cores of an AMD EPYC, 2026-11-21).
    """
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: (inputs[0].reshape(-1, inputs[0].shape[-1]),))


def takes_positions(model) -> bool:
    """Return whether a model takes position ids; others (Bloom, MPT) find positions in the mask or in the buffer."""
    return "position_ids" in inspect.signature(model.forward).parameters


def longest_in_batch(model) -> float:
    """Return how many tokens a sequence may have to be computed in a batch with others; longer ones are computed alone.

    0: a model with recurrent or convolutional states, or an index of its keys, which a buffer of keys and values does not hold
    and padding would enter. A number: beyond it rotary frequencies change for all rows of a batch ("longrope"), or attention
    counts padding (Llama 4). Else infinity.
    """
    # The kinds of cache that transformers' `generate` gives the layers.
    layers = {type(layer).__name__ for layer in DynamicCache(config=model.config).layers}
    if model._is_stateful or not layers <= BUFFERED:
        return 0
    config = model.config.get_text_config()
    longest = math.inf
    rope = getattr(config, "rope_parameters", None) or {}
    for settings in (rope, *rope.values()):  # one, or one for each kind of layer
        if isinstance(settings, dict) and settings.get("rope_type") == "longrope":
            longest = min(longest, settings["original_max_position_embeddings"])
    if getattr(config, "attn_temperature_tuning", False):
        longest = min(longest, config.floor_scale - 1)
    return longest
