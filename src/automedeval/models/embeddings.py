"""Texts to vectors, for the small judge, the search of passages and the quality classifier of verdicts.

An encoder says in its modules.json how the vectors of a text's tokens become one. Code inside a checkpoint is never run.
"""

import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from automedeval.models.batches import batches
from automedeval.models.checkpoints import checkpoint_folder, find_model, fingerprint, loading
from automedeval.records import RecordError, foreign_errors_at, read_json
from automedeval.records.extras import install

if TYPE_CHECKING:  # torch is loaded by those who need it
    import torch

# The modules of an encoder that takes the mean of its tokens.
MEAN_OF_TOKENS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
POOLED = ["pooling_mode_mean_tokens"]
# What is left out of a config.json has the defaults.
PLAIN_BERT_DEFAULTS = {"position_embedding_type": "absolute", "is_decoder": False}
PLAIN_BERT = {"model_type": "bert", "hidden_act": "gelu"} | PLAIN_BERT_DEFAULTS


class Encoder:
    """Encode texts as unit vectors in float32, in batches of texts of similar length: they are the same on every machine.

    `model` is a folder or Hub id, `device` "auto" what `best_device` chooses. RecordError: no such checkpoint, one without a
    modules.json, one that cannot be loaded, or whose modules are its own code.
    """

    def __init__(self, model: str, device: str = "auto"):
        self._device = device
        self.folder = folder = checkpoint_folder(model)
        _check_modules(model, folder)
        self.name = folder.name if find_model(model) else model
        self._lock = threading.Lock()  # a tokenizer serves one thread at a time
        self.plain = plain_window(folder)
        self._window: int = self.plain or self._network.window
        written = [
            file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/config.json"))
        ]
        self.fingerprint = fingerprint(folder, ["encoder", self._window, *written])

    @cached_property
    def device(self) -> str:
        from automedeval.models.device import best_device

        return best_device() if self._device == "auto" else self._device

    @cached_property
    def _network(self) -> Any:
        """The `Bert`, or the `Library` of any other checkpoint; loaded when it is first needed."""
        with loading(self.name):
            if self.plain:
                from automedeval.models.bert import Bert

                return Bert(self.folder, self.plain, self.device)
            advice = f"; {install('data')}"
            with foreign_errors_at("the encoder cannot be loaded", ImportError, advice=advice):
                from automedeval.models.library import Library
            return Library(self.folder, self.device)

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self._network.dimensions

    @property
    def max_tokens(self) -> int:
        """Return the number of tokens of a text that are encoded; the rest of the text is cut off."""
        return self._window - self._network.tokenizer.num_special_tokens_to_add(False)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""
        return list(map(len, self._whole(texts)))

    def _whole(self, texts: Sequence[str]) -> list[Any]:
        """Return the encodings of whole texts, without special tokens."""
        tokenizer = self._network.tokenizer
        with self._lock:
            tokenizer.no_truncation()
            encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
            tokenizer.enable_truncation(self._window)
        return encodings

    def reads(self, texts: Sequence[str]) -> list[bool]:
        """Return whether the vocabulary has tokens for each text: for at least half of its letters and digits, one at least.

        A letter is unknown if its token is, or if it is one letter of a word of a script that the vocabulary can only spell.
        """
        readable = []
        for text, encoding in zip(texts, self._whole(texts)):
            in_word = Counter(encoding.word_ids)
            in_vocabulary = letters = 0
            for token, word, (start, end) in zip(encoding.ids, encoding.word_ids, encoding.offsets):
                shown = [letter for letter in text[start:end] if letter.isalnum()]
                letters += len(shown)
                spelt = len(shown) == 1 and in_word[word] > 1 and script(shown[0]) in self._spelt
                in_vocabulary += 0 if token == self._network.unknown or spelt else len(shown)
            readable.append(letters > 0 and 2 * in_vocabulary >= letters)
        return readable

    @cached_property
    def _spelt(self) -> set[str]:
        """The scripts of which the vocabulary has more single letters than longer tokens, but CJK: its letters are words."""
        longer = Counter[str]()
        for token in self._network.tokenizer.get_vocab():
            if letters := [letter for letter in token if letter.isalnum()]:
                longer[script(letters[0])] += 1 if len(letters) > 1 else -1
        return {name for name, count in longer.items() if count < 0} - {"CJK"}

    def encode(
        self, texts: Sequence[str], on_batch: Callable[[int], object] | None = None
    ) -> np.ndarray:
        """Return the vectors of texts, float32 [texts, dimensions], of length 1; each text is cut to `max_tokens`.

        `on_batch` is called after each batch with its number of texts. RecordError if a vector is not finite.
        """
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for batch, encoded, _ in self._read(texts):
            vectors[batch] = encoded
            if on_batch:
                on_batch(len(batch))
        return vectors

    def encode_tokens(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return of each text its vector, as `encode`, and those of its tokens without the special ones.

        They are float32 [tokens, dimensions], of length 1.
        """
        pairs: list = [None] * len(texts)
        for batch, encoded, tokens in self._read(texts):
            for index, vector, own in zip(batch, encoded, tokens, strict=True):
                pairs[index] = vector, self._unit(own)
        return pairs

    def _read(
        self, texts: Sequence[str]
    ) -> "Iterator[tuple[list[int], np.ndarray, list[torch.Tensor]]]":
        """Yield each batch: the places of its texts, their vectors of length 1, and those of their tokens."""
        around = self._window - self.max_tokens
        lengths = [min(count, self.max_tokens) + around for count in self.count(texts)]
        for batch in batches(lengths, self.device == "cpu"):
            with self._lock:
                encoded, tokens = self._network.read([texts[index] for index in batch])
            yield batch, self._unit(encoded), tokens

    def _unit(self, vectors: "torch.Tensor") -> np.ndarray:
        """Return vectors with length 1; RecordError if one is not finite."""
        from torch.nn.functional import normalize

        of_length_one = normalize(vectors, dim=-1).cpu().numpy()
        if not np.isfinite(of_length_one).all():
            raise RecordError(f"{self.name}: a vector is not finite")
        return of_length_one


def plain_window(folder: Path) -> int | None:
    """Return the most tokens of a text of a checkpoint that `bert.Bert` computes, None of any other.

    It is a BERT of sentence-transformers that takes the mean of the tokens, with one file of weights and words in pieces.
    """
    names = (
        "config",
        "modules",
        "1_Pooling/config",
        "sentence_bert_config",
        "tokenizer_config",
        "tokenizer",
    )
    try:
        network, modules, pooling, text, words, tokenizer = (
            read_json(folder / f"{name}.json") for name in names
        )
        facts = [
            PLAIN_BERT.items() <= (PLAIN_BERT_DEFAULTS | network).items(),
            [name for name, value in pooling.items() if value is True] == POOLED,
            [module["type"].rpartition(".")[2] for module in modules] in MEAN_OF_TOKENS,
            tokenizer["model"]["type"] == "WordPiece",
            tokenizer["normalizer"]["lowercase"] == words.get("do_lower_case", True),
            not text.get("do_lower_case"),
            (folder / "model.safetensors").is_file(),
        ]
        return int(text["max_seq_length"]) if all(facts) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def script(letter: str) -> str:
    """Return the script of a letter, as Unicode's name of it begins: LATIN, CYRILLIC, CJK, DIGIT."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _check_modules(model: str, folder: Path) -> None:
    """Refuse a checkpoint that does not say how tokens are pooled, and modules that are code of it, which would be run."""
    file = folder / "modules.json"
    if not file.exists():
        raise RecordError(
            f"{model} has no modules.json, which says how tokens are pooled: name an encoder that has one"
        )
    with foreign_errors_at(f"{file}: not a list of modules with a type", KeyError, TypeError):
        kinds = [str(module["type"]) for module in read_json(file)]
    if foreign := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise RecordError(
            f"{file}: the module {foreign[0]!r} is code inside the checkpoint, which is not run"
        )
