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
from torch import Tensor
from torch.nn import functional


class Bert:
    """Read texts, or pairs of texts, by a checkpoint that `embeddings.plain_window` knows, cut to `window` tokens.

    An adapter of `cross_encoder.save_adapter` is added to the weights.
    """

    def __init__(self, folder: Path, window: int, device: str = "cpu", adapter: Path | None = None):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.device = torch.device(device)
        self.dimensions = int(config["hidden_size"])
        self._heads = config["num_attention_heads"]
        self._layers = config["num_hidden_layers"]
        self._eps = config["layer_norm_eps"]
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
    def read(self, texts: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
        """Return the mean vector of each text, [texts, dimensions], and the vectors of its tokens but the special ones."""
        ids, types, mask = self._tokens(texts)
        hidden = self._network(ids, types, mask)
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        means = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        words = ~torch.isin(ids, self._special)
        return means, [vectors[own] for vectors, own in zip(hidden, words)]

    @torch.inference_mode()
    def classify(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Return the numbers of the adapter's head for each pair of texts: [pairs, numbers]."""
        ids, types, mask = self._tokens(pairs)
        hidden = self._network(ids, types, mask, first=True)
        pooled = torch.tanh(self._linear(hidden[:, 0], "pooler.dense"))
        return self._linear(pooled, "classifier")

    def _tokens(self, texts: Sequence[Any]) -> tuple[Tensor, ...]:
        """Return the token ids, their types and the mask of a batch, each [texts, tokens]."""
        encodings = self.tokenizer.encode_batch(list(texts))
        longest = max(map(len, encodings))
        rows = []
        for encoding in encodings:
            encoding.pad(longest)
            rows.append([encoding.ids, encoding.type_ids, encoding.attention_mask])
        return torch.tensor(rows, device=self.device).unbind(1)

    def _network(self, ids: Tensor, types: Tensor, mask: Tensor, first: bool = False) -> Tensor:
        """Return the vectors of the last layer, [texts, tokens, dimensions]; with `first` the first token's alone."""
        words = self._weights["embeddings.word_embeddings.weight"]
        positions = self._weights["embeddings.position_embeddings.weight"]
        kinds = self._weights["embeddings.token_type_embeddings.weight"]
        summed = words[ids] + kinds[types] + positions[: ids.shape[1]]
        hidden = self._norm(summed, "embeddings.LayerNorm")
        seen = None if mask.all() else mask[:, None, None].bool()
        for number in range(self._layers):
            is_last = number == self._layers - 1
            asking = hidden[:, :1] if first and is_last else hidden
            hidden = self._layer(f"encoder.layer.{number}", asking, hidden, seen)
        return hidden

    def _layer(self, name: str, asking: Tensor, hidden: Tensor, seen: Tensor | None) -> Tensor:
        """Return what a layer makes of the vectors `asking`, which attend to those of all tokens that are `seen`."""
        query = self._by_head(asking, f"{name}.attention.self.query")
        key = self._by_head(hidden, f"{name}.attention.self.key")
        value = self._by_head(hidden, f"{name}.attention.self.value")
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        mixed = mixed.transpose(1, 2).flatten(-2)
        mixed = self._linear(mixed, f"{name}.attention.output.dense")
        attended = self._norm(mixed + asking, f"{name}.attention.output.LayerNorm")
        wide = functional.gelu(self._linear(attended, f"{name}.intermediate.dense"))
        narrow = self._linear(wide, f"{name}.output.dense")
        return self._norm(narrow + attended, f"{name}.output.LayerNorm")

    def _by_head(self, vectors: Tensor, name: str) -> Tensor:
        return self._linear(vectors, name).unflatten(-1, (self._heads, -1)).transpose(1, 2)

    def _linear(self, vectors: Tensor, name: str) -> Tensor:
        return functional.linear(vectors, *self._parameters(name))

    def _norm(self, vectors: Tensor, name: str) -> Tensor:
        weight, bias = self._parameters(name)
        return functional.layer_norm(vectors, weight.shape, weight, bias, self._eps)

    def _parameters(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]


def _merge(weights: dict[str, Tensor], adapter: Path) -> None:
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
