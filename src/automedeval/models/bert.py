"""BERT in torch alone: the network of the small judge.

transformers and sentence-transformers give the same numbers, which a test compares, but take several times as long to import as
torch: a user would wait for that before each first verdict.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from automedeval.models.base import TextPairs
from automedeval.models.batches import BATCH_TOKENS_ON_CPU, batches
from automedeval.models.checkpoints import ADAPTER
from automedeval.records import read_json


class Bert:
    """Read texts, or pairs of texts, by a checkpoint that `embeddings.plain_window` knows, cut to `window` tokens.

    An adapter of `cross_encoder.save_adapter` is added to the weights.
    """

    def __init__(self, folder: Path, window: int, device: str, adapter: Path | None = None):
        config = read_json(folder / "config.json")
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
        # oneDNN takes weights in its own order, which makes a layer up to an eighth faster. torch has
        # this for itself: a later version, which may have changed it, computes without.
        has_onednn = torch.backends.mkldnn.is_available() and torch.__version__ < "2.14"
        is_x86 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
        if self.device.type == "cpu" and is_x86 and has_onednn:
            for name, weight in self._weights.items():
                if weight.ndim == 2 and "embeddings" not in name:
                    self._weights[name] = torch.ops.mkldnn._reorder_linear_weight(
                        weight, BATCH_TOKENS_ON_CPU
                    )
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(window)
        self.unknown = self.tokenizer.token_to_id(self.tokenizer.model.unk_token)
        added = self.tokenizer.get_added_tokens_decoder()
        self._special = {number for number, token in added.items() if token.special}

    @torch.inference_mode()
    def read(self, texts: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
        """Return the mean vector of each text, [texts, dimensions], and the vectors of its tokens but the special ones."""
        encodings = self.tokenizer.encode_batch(list(texts))
        by_text = self._network(encodings).split(list(map(len, encodings)))
        words = []
        for encoding, vectors in zip(encodings, by_text):
            words.append(vectors[[token not in self._special for token in encoding.ids]])
        return torch.stack([vectors.mean(0) for vectors in by_text]), words

    @torch.inference_mode()
    def classify(self, pairs: TextPairs) -> np.ndarray:
        """Return the number of the adapter's head for each pair of texts: float [pairs]."""
        encodings = self.tokenizer.encode_batch(list(pairs))
        numbers = np.zeros(len(pairs))
        for batch in batches(list(map(len, encodings)), self.device.type == "cpu"):
            hidden = self._network([encodings[index] for index in batch], first=True)
            pooled = torch.tanh(self._linear(hidden, "pooler.dense"))
            numbers[batch] = self._linear(pooled, "classifier")[:, 0].cpu()
        return numbers

    def _network(self, encodings: Sequence[Any], first: bool = False) -> Tensor:
        """Return the last layer's vectors of all tokens, [tokens, dimensions]; with `first` of each text's first one alone.

        The texts stand one after the other, without padding. Those of one length that are neighbours attend in one step.
        """
        rows = [
            torch.tensor([encoding.ids, encoding.type_ids, range(len(encoding))])
            for encoding in encodings
        ]
        numbers = torch.cat(rows, dim=1).to(self.device)
        words, kinds, places = (
            self._weights[f"embeddings.{name}_embeddings.weight"][row]
            for name, row in zip(("word", "token_type", "position"), numbers)
        )
        hidden = self._norm(words + kinds + places, "embeddings.LayerNorm")
        runs = [(len(list(run)), length) for length, run in groupby(map(len, encodings))]
        for number in range(self._layers):
            asking = hidden
            if first and number == self._layers - 1:
                asking = hidden[numbers[2] == 0]
            hidden = self._layer(f"encoder.layer.{number}", asking, hidden, runs)
        return hidden

    def _layer(
        self, name: str, asking: Tensor, hidden: Tensor, runs: list[tuple[int, int]]
    ) -> Tensor:
        """Return what a layer makes of the vectors `asking`, all or one of each text, which attend to all of their text.

        Each run is of texts of one length: their number, and their tokens.
        """
        asked = runs if asking is hidden else [(texts, 1) for texts, _ in runs]
        query = self._by_head(asking, f"{name}.attention.self.query", asked)
        key = self._by_head(hidden, f"{name}.attention.self.key", runs)
        value = self._by_head(hidden, f"{name}.attention.self.value", runs)
        parts = map(functional.scaled_dot_product_attention, query, key, value)
        mixed = torch.cat([part.transpose(1, 2).flatten(0, 1).flatten(1) for part in parts])
        mixed = self._linear(mixed, f"{name}.attention.output.dense")
        attended = self._norm(mixed + asking, f"{name}.attention.output.LayerNorm")
        wide = functional.gelu(self._linear(attended, f"{name}.intermediate.dense"))
        narrow = self._linear(wide, f"{name}.output.dense")
        return self._norm(narrow + attended, f"{name}.output.LayerNorm")

    def _by_head(self, vectors: Tensor, name: str, runs: list[tuple[int, int]]) -> list[Tensor]:
        """Return the vectors of each run, projected: [texts, heads, tokens, dimensions of a head]."""
        parts = self._linear(vectors, name).split([texts * tokens for texts, tokens in runs])
        return [part.view(*run, self._heads, -1).transpose(1, 2) for part, run in zip(parts, runs)]

    def _linear(self, vectors: Tensor, name: str) -> Tensor:
        weight, bias = self._parameters(name)
        if weight.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise(vectors, weight, bias, "none", [], "")
        return functional.linear(vectors, weight, bias)

    def _norm(self, vectors: Tensor, name: str) -> Tensor:
        weight, bias = self._parameters(name)
        return functional.layer_norm(vectors, weight.shape, weight, bias, self._eps)

    def _parameters(self, name: str) -> tuple[Tensor, Tensor]:
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]


def _merge(weights: dict[str, Tensor], adapter: Path) -> None:
    """Add the low-rank matrices of an adapter to the weights (Hu et al. 2022), and put its head beside them."""
    config = read_json(adapter / ADAPTER)
    added = load_file(adapter / "adapter_model.safetensors")
    for name, matrix in added.items():
        place = name.removeprefix("base_model.model.").removeprefix("bert.")
        if place.startswith("classifier."):
            weights[place] = matrix
        elif place.endswith("lora_B.weight"):
            change = matrix @ added[name.replace("lora_B", "lora_A")]
            weights[place.replace("lora_B.", "")] += change * (config["lora_alpha"] / config["r"])
