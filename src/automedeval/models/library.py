"""An encoder as sentence-transformers computes it: of any architecture, with any of its modules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer


class Library:
    """Read texts, as `Bert` does."""

    def __init__(self, folder: Path, device: str):
        options = {"dtype": torch.float32, "use_safetensors": True}
        network = SentenceTransformer(
            str(folder), device=device, local_files_only=True, model_kwargs=options
        )
        self._network = network.eval()
        self.window = self._network.max_seq_length or 512
        self.dimensions = self._network.get_embedding_dimension()
        own: Any = self._network.tokenizer
        self.unknown = own.unk_token_id
        self._special = torch.tensor(own.all_special_ids)
        self.tokenizer = Tokenizer.from_str(own.backend_tokenizer.to_str())
        self.tokenizer.no_padding()

    @torch.inference_mode()
    def read(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the vector of each text, [texts, dimensions], and the vectors of its tokens but the special ones."""
        network = self._network
        prompt = network.prompts.get(network.default_prompt_name or "")
        features = batch_to_device(network.preprocess(list(texts), prompt=prompt), network.device)
        words = features["attention_mask"].cpu().bool() & ~torch.isin(
            features["input_ids"].cpu(), self._special
        )
        read: Any = network(features)
        tokens = [row.cpu()[own] for row, own in zip(read["token_embeddings"], words)]
        return read["sentence_embedding"].cpu(), tokens
