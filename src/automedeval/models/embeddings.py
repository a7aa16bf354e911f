"""Texts to vectors, for finding passages and for telling verdicts of high from low quality alike.

The checkpoint is one of sentence-transformers: a folder or a Hub id. Code that a checkpoint brings along is never run.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from automedeval.models.checkpoints import checkpoint_folder, fingerprint
from automedeval.models.local import best_dtype
from automedeval.records import RecordError

DTYPES = ("auto", "bfloat16", "float16", "float32")
ROWS = 256  # most texts of a batch: beyond, short texts gain nothing


class Encoder:
    """Encode texts as unit vectors, in batches of texts of like length.

    Args:
        model: checkpoint folder or Hub id.
        device: "auto", "cpu", "cuda" or "cuda:N".
        dtype: "auto" takes bfloat16 where the device multiplies it in hardware, else float32. Vectors of all dtypes are
            interchangeable (cosine .999 or more between them), so `fingerprint` is the same for all.
        batch_tokens: most tokens of one batch, padding included.

    Raises:
        RecordError: no such checkpoint, one that cannot be loaded, or one that wants to run code of its own.
    """

    def __init__(self, model: str, device: str = "auto", dtype: str = "auto", batch_tokens: int = 8192):
        if dtype not in DTYPES:
            raise RecordError(f"--dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
        if batch_tokens < 1:
            raise RecordError(f"--batch_tokens must be at least 1, not {batch_tokens}")
        folder = checkpoint_folder(model)
        _refuse_code(folder)
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        loaded = best_dtype(self.device) if dtype == "auto" else getattr(torch, dtype)
        try:
            self._network = SentenceTransformer(
                str(folder),
                device=self.device,
                local_files_only=True,
                model_kwargs={"dtype": loaded, "use_safetensors": True},
            ).eval()
        except Exception as error:  # noqa: BLE001  a bad checkpoint makes three libraries raise a dozen kinds
            raise RecordError(f"{model} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
        self.name = folder.name if Path(model).is_dir() else model
        self.dtype = str(loaded).removeprefix("torch.")
        self.batch_tokens = batch_tokens
        self._lock = threading.Lock()  # a tokenizer serves one thread at a time
        self._window = self._network.max_seq_length or 512
        modules = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/config.json"))]
        self.fingerprint = fingerprint(folder, ["encoder", self._window, *modules])

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self._network.get_embedding_dimension()

    @property
    def max_tokens(self) -> int:
        """Return how many tokens of a text are read; what stands beyond is left out."""
        return self._window - self._network.tokenizer.num_special_tokens_to_add()

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without those that the encoder puts around it."""
        if not texts:
            return []
        with self._lock:
            options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
            return [len(ids) for ids in self._network.tokenizer(list(texts), **options)["input_ids"]]

    def encode(self, texts: Sequence[str], on_batch: Callable[[int], object] | None = None) -> np.ndarray:
        """Encode texts.

        Args:
            texts: any number, in any order; each is cut to `max_tokens`.
            on_batch: called with the number of texts of each batch that is done.

        Returns:
            float32 [texts, dimensions]; every row has length 1.

        Raises:
            RecordError: a vector is not finite.
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for batch in self._batches([min(count, self.max_tokens) for count in self.count(texts)]):
            with self._lock:
                found = self._network.encode(
                    [texts[index] for index in batch],
                    batch_size=len(batch),
                    convert_to_tensor=True,
                    show_progress_bar=False,
                )
            found = torch.nn.functional.normalize(
                found.float(), dim=1
            )  # again: bfloat16 leaves lengths of 0.99 to 1.01
            vectors[batch] = found.cpu().numpy()
            if on_batch:
                on_batch(len(batch))
        if not np.isfinite(vectors).all():
            raise RecordError(f"{self.name}: a vector is not finite; --dtype float32 may help")
        return vectors

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield indices of texts, longest first (a batch that is too large for the memory fails at once)."""
        batch: list[int] = []
        around = self._window - self.max_tokens
        for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
            longest = lengths[batch[0]] + around if batch else 0
            if batch and ((len(batch) + 1) * longest > self.batch_tokens or len(batch) == ROWS):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch


def _refuse_code(folder: Path) -> None:
    """Refuse a checkpoint whose modules are its own code: from a folder the library would run it unasked."""
    file = folder / "modules.json"
    if not file.exists():
        return
    try:
        kinds = [module["type"] for module in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not a list of modules with a type ({error})") from None
    foreign = [kind for kind in kinds if not str(kind).startswith("sentence_transformers.")]
    if foreign:
        raise RecordError(f"{file}: the module {foreign[0]!r} is code of the checkpoint's own, which is not run")
