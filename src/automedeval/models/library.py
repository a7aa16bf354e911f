"""An encoder as sentence-transformers computes it: of any architecture, with any of its modules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer

from automedeval.records import RecordError


class Library:
    """Read texts, as `Bert` does; `pooling` as for `embeddings.Encoder`.

    RecordError if the checkpoint has no weights for the pooling.
    """

    def __init__(self, folder: Path, pooling: str | None, device: str):
        options = {"dtype": torch.float32, "use_safetensors": True}
        source: dict[str, Any] = {"model_name_or_path": str(folder), "local_files_only": True, "model_kwargs": options}
        if pooling:
            source = {"modules": _modules(folder, pooling, options)}
        self._network = SentenceTransformer(**source, device=device).eval()
        self.window = self._network.max_seq_length or 512
        self.dimensions = self._network.get_embedding_dimension()
        own: Any = self._network.tokenizer
        self.unknown, self._special = own.unk_token_id, torch.tensor(own.all_special_ids)
        self.tokenizer = Tokenizer.from_str(own.backend_tokenizer.to_str())
        self.tokenizer.no_padding()

    @torch.inference_mode()
    def read(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the vector of each text, [texts, dimensions], and the vectors of its tokens but the special ones.

        With the pooling "pooler" there are none of tokens: the list is empty.
        """
        network = self._network
        prompt = network.prompts.get(network.default_prompt_name or "")
        features = batch_to_device(network.preprocess(list(texts), prompt=prompt), network.device)
        words = features["attention_mask"].cpu().bool() & ~torch.isin(features["input_ids"].cpu(), self._special)
        read: Any = network(features)
        tokens = [row.cpu()[own] for row, own in zip(read.get("token_embeddings", ()), words)]
        return read["sentence_embedding"].cpu(), tokens


def _modules(folder: Path, pooling: str, options: dict) -> list[torch.nn.Module]:
    """Return the modules of sentence-transformers for a plain checkpoint."""
    kind = {"model_kwargs": options | {"local_files_only": True}}
    if pooling != "pooler":
        network = Transformer(str(folder), **kind)
        return [network, Pooling(network.get_embedding_dimension(), pooling)]
    whole = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
    network = Transformer(str(folder), modality_config=whole, module_output_name="sentence_embedding", **kind)
    # The library would draw weights that are missing at random, with no more than a warning.
    layer = getattr(network.model, "pooler", None)
    wanted = [] if layer is None else [f"pooler.{name}" for name in layer.state_dict()]
    stored = [name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()]  # noqa: SIM118
    if not wanted or not all(any(f".{name}".endswith(f".{each}") for name in stored) for each in wanted):
        raise RecordError(f"{folder} has no weights of a pooler; --encoder_pooling must be cls or mean")
    return [network]
