"""A checkpoint of two layers with random weights."""

from functools import cache
from pathlib import Path
from typing import Any

from programs import SAMPLE

DATED = "{{ strftime_now('%d %b %Y') * (strftime_now('%d') | int) }}"  # longer on a later day
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tiny_model(
    folder: Path,
    seed: int = 0,
    window: int = 4096,
    chat_template: str | None = CHAT_TEMPLATE,
    model_type: str = "llama",
    ends: tuple[int, ...] = (),
    **shape: Any,
) -> Path:
    """Save a two-layer model with random weights and a byte-level tokenizer trained on the sample; return its folder.

    `model_type` is the architecture as transformers names it, `ends` are the tokens that end an answer (the EOS
    token if empty), and `shape` holds further values of the configuration.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    special = {"pad_token": "<|endoftext|>", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    backend = byte_level_tokens(*special.values())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": window}
    tokens = {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if "text_config" in shape:  # a model of texts and images
        shape["text_config"] = sizes | tokens | shape["text_config"]
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **(sizes | tokens | shape))
    )
    for parameter in model.parameters():  # peaked enough that texts and values differ
        parameter.data.normal_(0.0, 0.3)
    if ends:
        model.generation_config.eos_token_id = list(ends)
    model.save_pretrained(folder)
    return folder


def script(chat: Any, says: str) -> None:
    """Let a chat by such a model write this text, and no other."""
    import torch

    ids = chat.tokenizer(says, add_special_tokens=False).input_ids
    steps = iter([*ids, 2])
    chat._choose = lambda batch, logits: torch.full((len(logits),), next(steps))


@cache
def byte_level_tokens(*special: str, size: int = 800):
    """Train a tokenizer of bytes and single digits on the sample, once per process."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    texts = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, texts])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train([str(SAMPLE / "train_cases.jsonl")], trainer)
    return backend
