"""Read two texts together by a small encoder with an adapter and a head of one number."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.models.base import TextPairs
from automedeval.models.checkpoints import ADAPTER, loading
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError

PAIR_TOKENS = 256  # of question and piece together; the longer of the two is cut


@dataclass
class PairReader:
    """Give the number of the head for pairs of texts, in float32. The weights are loaded when they are first needed.

    `adapter` is a folder of `cross_encoder.save_adapter`, which is added to the weights of the encoder; the longer text is cut
    so that both have at most `tokens`. RecordError if there is no adapter; when it is loaded, that it is of another encoder.
    """

    encoder: Encoder
    adapter: Path
    tokens: int = PAIR_TOKENS

    def __post_init__(self) -> None:
        if not (self.adapter / ADAPTER).is_file():
            raise RecordError(f"no adapter at {self.adapter}")

    @cached_property
    def _network(self) -> Any:
        base = self.encoder.folder
        device = self.encoder.device
        if not self.encoder.plain:
            from automedeval.models.cross_encoder import load_cross_encoder

            return load_cross_encoder(base, self.tokens, self.adapter, device)
        from automedeval.models.bert import Bert

        with loading(str(self.adapter)):
            return Bert(base, self.tokens, device, adapter=self.adapter)

    def __call__(self, pairs: TextPairs) -> np.ndarray:
        """Return the number of each pair: float [pairs], without a scale."""
        if not pairs:
            return np.zeros(0)
        if self.encoder.plain:
            return self._network.classify(pairs)
        size = 8 if self.encoder.device == "cpu" else 64  # as for the texts of an Encoder
        return self._network.predict(list(pairs), batch_size=size, show_progress_bar=False)
