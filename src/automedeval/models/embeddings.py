"""Texts to vectors, for the search of passages and for the quality classifier of verdicts.

A checkpoint of sentence-transformers says in its modules.json how the vectors of a text's tokens become one. For a plain
checkpoint of transformers this pooling has to be named. Code inside a checkpoint is never run.
"""

import json
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from automedeval.models.checkpoints import checkpoint_folder, fingerprint, loading
from automedeval.models.device import best_device
from automedeval.models.model_paths import find_model
from automedeval.models.precision import best_dtype
from automedeval.records import RecordError, check_choice, check_least

DTYPES = ("auto", "bfloat16", "float16", "float32")
# The vector of the first token; the mean over the tokens; the first token's after the checkpoint's own dense layer.
# SimCSE is tested with the first, unsupervised, or the last, supervised (README of github.com/princeton-nlp/SimCSE).
POOLINGS = ("cls", "mean", "pooler")
ROWS = 256  # largest number of texts of a batch: more make short texts no faster
# Largest number of tokens of a batch. A processor is faster with few: what a layer computes of them stays in its cache.
BATCH_TOKENS, BATCH_TOKENS_ON_CPU = 8192, 1024


class Encoder:
    """Encode texts as unit vectors, in batches of texts of similar length.

    Args:
        model: checkpoint folder or Hub id.
        device: "auto" (see `best_device`), "cpu", "cuda", "cuda:N" or "mps".
        dtype: "auto" is bfloat16 if the device has instructions for it, else float32. Vectors of all dtypes are
            interchangeable (their cosine is at least .999), so `fingerprint` is the same for all.
        batch_tokens: largest number of tokens of a batch, padding included; None: 1,024 on a CPU, else 8,192.
        pooling: one of `POOLINGS`, for a checkpoint without a modules.json; None for one with it.

    Raises:
        RecordError: no such checkpoint, one that cannot be loaded, or one with modules that are its own code; a pooling that is
            missing, not needed, or not possible.
    """

    def __init__(
        self,
        model: str,
        device: str = "auto",
        dtype: str = "auto",
        batch_tokens: int | None = None,
        pooling: str | None = None,
    ):
        check_choice("dtype", dtype, DTYPES)
        self.device = best_device() if device == "auto" else device
        usual = BATCH_TOKENS_ON_CPU if self.device == "cpu" else BATCH_TOKENS
        self.batch_tokens = usual if batch_tokens is None else batch_tokens
        check_least(self, 1, "batch_tokens")
        folder = checkpoint_folder(model)
        _refuse_code(folder)
        _check_pooling(model, folder, pooling)
        loaded = best_dtype(self.device) if dtype == "auto" else getattr(torch, dtype)
        options = {"dtype": loaded, "use_safetensors": True}
        source: dict[str, Any] = {"model_name_or_path": str(folder), "local_files_only": True, "model_kwargs": options}
        with loading(model):
            if pooling:
                source = {"modules": _modules(folder, pooling, options)}
            network = SentenceTransformer(**source, device=self.device)
        self._network = network.eval()
        self.name = folder.name if find_model(model) else model
        self.dtype = str(loaded).removeprefix("torch.")
        self._lock = threading.Lock()  # a tokenizer serves one thread at a time
        self._window = self._network.max_seq_length or 512
        written = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/config.json"))]
        self.fingerprint = fingerprint(folder, ["encoder", self._window, *([pooling] if pooling else written)])

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        dimensions = self._network.get_embedding_dimension()
        assert dimensions is not None  # every checkpoint of sentence-transformers that pools has one
        return dimensions

    @property
    def max_tokens(self) -> int:
        """Return the number of tokens of a text that are encoded; the rest of the text is cut off."""
        return self._window - self._network.tokenizer.num_special_tokens_to_add()

    def _tokenized(self, texts: Sequence[str], **more: Any) -> Any:
        options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
        with self._lock:
            return self._network.tokenizer(list(texts), **options, **more)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        return [len(ids) for ids in self._tokenized(texts)["input_ids"]] if texts else []

    def reads(self, texts: Sequence[str]) -> list[bool]:
        """Return whether the vocabulary has tokens for each text: for at least half of its letters and digits.

        A letter counts as unknown if its token is the unknown one, or if it is one letter of a word of a script that the
        vocabulary can only spell. A text without letters and digits cannot be read.
        """
        if not texts:
            return []
        readable, unknown = [], self._network.tokenizer.unk_token_id
        for text, encoding in zip(texts, self._tokenized(texts, return_offsets_mapping=True).encodings):
            in_word = Counter(encoding.word_ids)
            in_vocabulary = letters = 0
            for token, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets):
                shown = [letter for letter in text[start:end] if letter.isalnum()]
                letters += len(shown)
                spelt = len(shown) == 1 and in_word[word] > 1 and script(shown[0]) in self._spelt
                in_vocabulary += 0 if token == unknown or spelt else len(shown)
            readable.append(letters > 0 and 2 * in_vocabulary >= letters)
        return readable

    @cached_property
    def _spelt(self) -> set[str]:
        """The scripts of which the vocabulary has more single letters than longer tokens, but CJK: its letters are words."""
        longer: Counter[str] = Counter()
        for token in self._network.tokenizer.get_vocab():
            if letters := [letter for letter in token if letter.isalnum()]:
                longer[script(letters[0])] += 1 if len(letters) > 1 else -1
        return {name for name, count in longer.items() if count < 0} - {"CJK"}

    def encode(self, texts: Sequence[str], on_batch: Callable[[int], object] | None = None) -> np.ndarray:
        """Encode texts.

        Args:
            texts: any number, in any order; each is cut to `max_tokens`.
            on_batch: called after each batch with its number of texts.

        Returns:
            float32 [texts, dimensions]; every row has length 1.

        Raises:
            RecordError: a vector is not finite.
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for batch in self._batches([min(count, self.max_tokens) for count in self.count(texts)]):
            with self._lock:
                encoded = self._network.encode(
                    [texts[index] for index in batch],
                    batch_size=len(batch),
                    convert_to_tensor=True,
                    show_progress_bar=False,
                )
            # Normalised again: in bfloat16 the lengths are between 0.99 and 1.01.
            vectors[batch] = torch.nn.functional.normalize(encoded.float(), dim=1).cpu().numpy()
            if on_batch:
                on_batch(len(batch))
        if not np.isfinite(vectors).all():
            raise RecordError(f"{self.name}: a vector is not finite; --dtype float32 may help")
        return vectors

    def encode_tokens(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Encode texts, and each of their tokens.

        Args:
            texts: as for `encode`.

        Returns:
            For each text its vector, float32 [dimensions], and the vectors of its tokens without the special ones, float32
            [tokens, dimensions]; all have length 1.

        Raises:
            RecordError: a vector is not finite.
        """
        pairs: list = [None] * len(texts)
        special = torch.tensor(self._network.tokenizer.all_special_ids)
        for batch in self._batches([min(count, self.max_tokens) for count in self.count(texts)]):
            with self._lock:
                encoded: Any = self._network.encode(
                    [texts[index] for index in batch],
                    batch_size=len(batch),
                    output_value=None,
                    show_progress_bar=False,
                )
            for index, row in zip(batch, encoded):
                tokens = row["token_embeddings"].cpu()[~torch.isin(row["input_ids"].cpu(), special)]
                stacked = torch.vstack([row["sentence_embedding"].cpu(), tokens]).float()
                vectors = torch.nn.functional.normalize(stacked, dim=1).numpy()
                if not np.isfinite(vectors).all():
                    raise RecordError(f"{self.name}: a vector is not finite; --dtype float32 may help")
                pairs[index] = vectors[0], vectors[1:]
        return pairs

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield indices of texts in batches, longest first, so that a batch that is too large for the memory fails at once."""
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


def script(letter: str) -> str:
    """Return the script of a letter, as Unicode's name of it begins: LATIN, CYRILLIC, CJK, DIGIT."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _refuse_code(folder: Path) -> None:
    """Refuse a checkpoint with modules that are its own code: from a local folder the library would run it."""
    file = folder / "modules.json"
    if not file.exists():
        return
    try:
        kinds = [module["type"] for module in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{file}: not a list of modules with a type ({error})") from None
    foreign = [kind for kind in kinds if not str(kind).startswith("sentence_transformers.")]
    if foreign:
        raise RecordError(f"{file}: the module {foreign[0]!r} is code inside the checkpoint, which is not run")


def _check_pooling(model: str, folder: Path, pooling: str | None) -> None:
    """Check that the pooling is known, and named where the checkpoint does not say it, and only there."""
    check_choice("encoder_pooling", pooling, POOLINGS)
    if (folder / "modules.json").exists():
        if pooling:
            raise RecordError(f"{model}: its modules.json says how tokens are pooled; leave out --encoder_pooling")
    elif not pooling:
        raise RecordError(
            f"{model} has no modules.json, which says how tokens are pooled: give --encoder_pooling cls (as for unsupervised "
            "SimCSE), mean, or pooler (as for supervised SimCSE)"
        )


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
