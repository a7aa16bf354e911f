"""BERT in torch alone: the network of the small judge.

transformers and sentence-transformers give the same numbers, which a test compares, but take several times as long to import as
torch: a user would wait for that before each first verdict.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional


class Bert:
    """Read texts, or pairs of texts, by a checkpoint that `embeddings.plain_window` knows, cut to `window` tokens.

    An adapter of `cross_encoder.save_adapter` is added to the weights.
    """

    def __init__(self, folder: Path, window: int, device: str = "cpu", adapter: Path | None = None):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.device = torch.device(device)
        self.dimensions = int(config["hidden_size"])
        self._heads, self._layers, self._eps = (
            config[name] for name in ("num_attention_heads", "num_hidden_layers", "layer_norm_eps")
        )
        weights = load_file(folder / "model.safetensors")
        if adapter is not None:
            _merge(weights, adapter)
        self._weights = {
            name: weight.to(self.device, torch.float32) for name, weight in weights.items()
        }
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(window)
        self.unknown = self.tokenizer.token_to_id(self.tokenizer.model.unk_token)
        added = self.tokenizer.get_added_tokens_decoder()
        self._special = torch.tensor(
            [number for number, token in added.items() if token.special], device=self.device
        )

    @torch.inference_mode()
    def read(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the mean vector of each text, [texts, dimensions], and the vectors of its tokens but the special ones."""
        ids, hidden, mask = self._read(texts)
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        words = ~torch.isin(ids, self._special)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9), [
            row[own] for row, own in zip(hidden, words)
        ]

    @torch.inference_mode()
    def classify(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Return the numbers of the adapter's head for each pair of texts: [pairs, numbers]."""
        _, hidden, _ = self._read(pairs, first=True)
        return self._linear(torch.tanh(self._linear(hidden[:, 0], "pooler.dense")), "classifier")

    def _read(
        self, texts: Sequence[Any], first: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return token ids, vectors and mask of a batch: [texts, tokens], [texts, tokens, dimensions], bool [texts, tokens].

        With `first` only the first token's vectors are computed of the last layer: [texts, 1, dimensions].
        """
        encodings = self.tokenizer.encode_batch(list(texts))
        longest = max(map(len, encodings))
        for encoding in encodings:
            encoding.pad(longest)
        rows = [
            [encoding.ids, encoding.type_ids, encoding.attention_mask] for encoding in encodings
        ]
        ids, types, mask = torch.tensor(rows, device=self.device).unbind(1)
        words, positions, kinds = (
            self._weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        hidden = self._norm(words[ids] + kinds[types] + positions[:longest], "embeddings.LayerNorm")
        seen = None if mask.all() else mask[:, None, None].bool()
        for number in range(self._layers):
            layer = f"encoder.layer.{number}"
            asking = hidden[:, :1] if first and number == self._layers - 1 else hidden
            query, key, value = (
                self._linear(vectors, f"{layer}.attention.self.{name}")
                .unflatten(-1, (self._heads, -1))
                .transpose(1, 2)
                for vectors, name in ((asking, "query"), (hidden, "key"), (hidden, "value"))
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
            mixed = self._linear(
                mixed.transpose(1, 2).flatten(-2), f"{layer}.attention.output.dense"
            )
            hidden = self._norm(mixed + asking, f"{layer}.attention.output.LayerNorm")
            wide = functional.gelu(self._linear(hidden, f"{layer}.intermediate.dense"))
            hidden = self._norm(
                self._linear(wide, f"{layer}.output.dense") + hidden, f"{layer}.output.LayerNorm"
            )
        return ids, hidden, mask.bool()

    def _linear(self, vectors: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(
            vectors, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        )

    def _norm(self, vectors: torch.Tensor, name: str) -> torch.Tensor:
        weight = self._weights[f"{name}.weight"]
        bias = self._weights[f"{name}.bias"]
        return functional.layer_norm(vectors, (self.dimensions,), weight, bias, self._eps)


def _merge(weights: dict[str, torch.Tensor], adapter: Path) -> None:
    """Add the low-rank matrices of an adapter to the weights (Hu et al. 2022), and put its head beside them."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    added = load_file(adapter / "adapter_model.safetensors")
    for name, matrix in added.items():
        place = name.removeprefix("base_model.model.").removeprefix("bert.")
        if place.startswith("classifier."):
            weights[place] = matrix
        elif place.endswith("lora_B.weight"):
            change = matrix @ added[name.replace("lora_B", "lora_A")]
            weights[place.replace("lora_B.", "")] += change * (config["lora_alpha"] / config["r"])
