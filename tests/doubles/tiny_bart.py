"""Tiny encoders and BARTs with random weights, and their tokenizers, for metrics that compare texts."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    RobertaTokenizer,
)

TEXTS = [
    "The answer names the right dose, and says when to see a doctor.",
    "This answer does not say what to do if the fever lasts.",
    "It is clear and complete; nothing in it is wrong.",
    "The response is off topic. It speaks of vaccines, and the question was about a rash.",
    "Doctor 1 is correct, Doctor 2 gives a dose that is far too high.",
]
FRAMED = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def roberta_tokenizer(texts: Sequence[str], window: int | None = 512) -> RobertaTokenizer:
    """Return a byte-level tokenizer in the layout of RoBERTa and BART, trained on texts; `window` None sets no limit."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learn = {
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "show_progress": False,
        "vocab_size": 600,
    }
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=special, **learn))
    learned = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in learned["merges"]]
    options = {} if window is None else {"model_max_length": window}
    return RobertaTokenizer(vocab=learned["vocab"], merges=merges, **options)


def save(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path, spread: float
) -> Path:
    """Save a checkpoint; its weights are of a normal of the deviation `spread`, so that texts and tokens differ."""
    for parameter in network.parameters():
        if parameter.dim() > 1:  # biases would draw all tokens to one side
            parameter.data.normal_(0.0, spread)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_roberta(
    folder: Path, tokenizer: RobertaTokenizer | None = None, window: int = 64, layers: int = 3
) -> Path:
    tokenizer = tokenizer or roberta_tokenizer(TEXTS, window=window)
    tiny = TINY | {"num_hidden_layers": layers, "vocab_size": len(tokenizer)}
    torch.manual_seed(1)
    config = RobertaConfig(**FRAMED, **tiny, max_position_embeddings=window + 2, type_vocab_size=1)
    return save(RobertaModel(config), tokenizer, folder, 0.3)


def build_bert(folder: Path, window: int = 64) -> Path:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special)
    )
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=window, **names)
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=window, pad_token_id=0, **TINY
    )
    return save(BertModel(config), tokenizer, folder, 0.3)


def build_bart(folder: Path, tokenizer: RobertaTokenizer | None = None, window: int = 64) -> Path:
    tokenizer = tokenizer or roberta_tokenizer(TEXTS, window=window)
    tiny = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": len(tokenizer)}
    for side in ("encoder", "decoder"):
        tiny |= {f"{side}_attention_heads": 4, f"{side}_ffn_dim": 48}
    torch.manual_seed(3)
    starts = {"decoder_start_token_id": 2, "forced_eos_token_id": 2}
    config = BartConfig(**FRAMED, **starts, **tiny, max_position_embeddings=window)
    return save(BartForConditionalGeneration(config), tokenizer, folder, 0.2)
