"""Read two texts together by a small encoder with an adapter and a head of one or more numbers."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.models.checkpoints import loading
from automedeval.models.embeddings import batches, plain_window
from automedeval.records import RecordError

PAIR_TOKENS = 256  # of question and piece together; the longer of the two is cut


class PairReader:
    """Give the numbers of the head for pairs of texts, in float32. The weights are loaded when they are first needed.

    `base` is the folder of the encoder, `adapter` that of `cross_encoder.save_adapter`; the longer text is cut so that both
    have at most `tokens`. RecordError if there is no adapter; when it is loaded, that it is one of another encoder.
    """

    def __init__(
        self,
        base: Path,
        adapter: Path,
        device: str = "auto",
        tokens: int = PAIR_TOKENS,
    ):
        if not (adapter / "adapter_config.json").is_file():
            raise RecordError(f"no adapter at {adapter}")
        self._base = base
        self._adapter = adapter
        self._device = device
        self._tokens = tokens
        self._plain = plain_window(base) is not None

    @cached_property
    def _network(self) -> Any:
        from automedeval.models.device import best_device

        device = best_device() if self._device == "auto" else self._device
        if not self._plain:
            from automedeval.models.cross_encoder import load_cross_encoder

            return load_cross_encoder(self._base, self._tokens, self._adapter, device)
        from automedeval.models.bert import Bert

        with loading(str(self._adapter)):
            return Bert(self._base, self._tokens, device, adapter=self._adapter)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the numbers of each pair: float [pairs, 1], without a scale."""
        numbers = np.zeros((len(pairs), 1))
        if not pairs:
            return numbers
        on_cpu = self._network.device.type == "cpu"
        if not self._plain:  # few at once: as for the texts of an Encoder
            read = self._network.predict(
                list(pairs), batch_size=8 if on_cpu else 64, show_progress_bar=False
            )
            return read.astype(float).reshape(numbers.shape)
        for batch in batches(
            list(map(len, self._network.tokenizer.encode_batch(list(pairs)))), on_cpu
        ):
            numbers[batch] = self._network.classify([pairs[index] for index in batch]).cpu().numpy()
        return numbers
