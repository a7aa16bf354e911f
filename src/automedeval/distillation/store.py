"""The knowledge store: passages and their vectors in a folder, searched by meaning (paper, section 3.1).

STORE/passages.jsonl has one passage with its vector a line, STORE/store.json the encoder and how books were cut.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.distillation.books import Chunking, Passage
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, read_lines
from automedeval.records.journal import Journal, write_json

PASSAGES, SETTINGS = "passages.jsonl", "store.json"
WINDOW = 512  # passages encoded together, stored already or not, so that vectors do not depend on interruptions
_VECTOR = np.dtype("<f4")


class KnowledgeBase:
    """The passages of a store, in memory.

    Args:
        store: folder that recipes/build_store.py wrote.
        encoder: computes the vectors of queries; the one that the store was built with.

    Raises:
        RecordError: no store, another encoder, or a file that cannot be read.
    """

    # Paper: Pinecone, which approximates. Books have some ten thousand passages, so each query is compared with all of them.

    def __init__(self, store: str | Path, encoder: Encoder):
        self.encoder, self.passages = encoder, list[Passage]()
        _refuse_change(store, read_settings(store), _encoder_settings(encoder))
        vectors = []
        for place, record in read_lines(Path(store) / PASSAGES):
            try:
                vectors.append(np.frombuffer(base64.b64decode(record.pop("vector")), _VECTOR, encoder.dimensions))
                self.passages.append(Passage(**record))
            except (KeyError, TypeError, ValueError):
                raise RecordError(f"{place}: no passage with a vector; remove the store and build it again") from None
        self._vectors = np.array(vectors, np.float32).reshape(-1, encoder.dimensions)

    def search(self, queries: Sequence[str], limit: int = 3) -> list[list[Passage]]:
        """Find at most `limit` passages for each query, the nearest first; none for a query without a letter or digit.

        Returns:
            for each query its passages with their scores: the cosine of passage and query.
        """
        results = []
        for query, vector in zip(queries, self.encoder.encode(queries)):
            scores = self._vectors @ vector  # one by one: a score does not depend on the other queries
            nearest = np.argsort(-scores, kind="stable")[: limit if any(map(str.isalnum, query)) else 0]
            results.append([replace(self.passages[index], score=float(scores[index])) for index in nearest])
        return results


class StoreWriter(AbstractContextManager):
    """Add passages to a store, a new one or one that was built with the same settings.

    Args:
        store: the folder.
        encoder, pooling: what computes the vectors, and the pooling that it was given.
        chunking: how the books were cut.

    Raises:
        RecordError: the store was built with other settings, or another process is writing it.
    """

    def __init__(self, store: str | Path, encoder: Encoder, pooling: str | None, chunking: Chunking):
        self.store, self.encoder = Path(store), encoder
        self.settings = _encoder_settings(encoder) | {"pooling": pooling, **asdict(chunking)}

    def __enter__(self) -> "StoreWriter":
        if (self.store / SETTINGS).exists():
            _refuse_change(self.store, read_settings(self.store), self.settings)
        self._journal = Journal(self.store / PASSAGES).__enter__()
        write_json(self.store / SETTINGS, self.settings)
        self.books = {record["id"]: record["book"] for record in self._journal.records()}  # by the passage's id
        return self

    def __exit__(self, *_: object) -> None:
        self._journal.__exit__()

    def add(self, passages: Sequence[Passage], on_batch: Callable[[int], object] = lambda done: None) -> Counter[str]:
        """Store the passages that are missing, window by window; an interruption keeps what was stored.

        The passages have the same order at every start. `on_batch` is called with the number of passages done, stored now or
        before. Returns the number of "passages", and how many were "repeated" in the list, "there" already, or are "added".
        """
        unique = list({passage.id: passage for passage in passages}.values())
        before, repeated = len(self.books), len(passages) - len(unique)
        for start in range(0, len(unique), WINDOW):
            window = unique[start : start + WINDOW]
            if all(passage.id in self.books for passage in window):
                on_batch(len(window))
                continue
            vectors = self.encoder.encode([_indexed(passage) for passage in window], on_batch).astype(_VECTOR)
            for passage, vector in zip(window, vectors):
                if passage.id not in self.books:
                    content = base64.b64encode(vector.tobytes()).decode()
                    self._journal.append(passage.to_dict() | {"vector": content})
                    self.books[passage.id] = passage.book
        self._journal.sync()
        on_batch(repeated)
        added = len(self.books) - before
        return Counter(passages=len(passages), repeated=repeated, there=len(unique) - added, added=added)


def read_settings(store: str | Path) -> dict[str, Any]:
    """Return the settings that a store was built with; RecordError if there is no store."""
    file = Path(store) / SETTINGS
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RecordError(f"{store}: no knowledge store; build one with recipes/build_store.py") from None
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(f"{file}: cannot be read ({error}); remove the store and build it again") from None


def _encoder_settings(encoder: Encoder) -> dict[str, Any]:
    return {"encoder": encoder.name, "fingerprint": encoder.fingerprint}


def _refuse_change(store: str | Path, settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise RecordError if a store has other settings than those wanted; the encoder's name may differ."""
    for name, value in wanted.items():
        if name != "encoder" and settings.get(name) != value:
            encoder = f" (encoder {settings.get('encoder')}, not {wanted['encoder']})" if name == "fingerprint" else ""
            raise RecordError(
                f"{store}: was built with {name} {settings.get(name)}, not {value}{encoder}; give the same, or another --store"
            )


def _indexed(passage: Passage) -> str:
    """Return the text whose vector is stored, with the heading of its section."""
    return f"{passage.section}\n{passage.text}" if passage.section else passage.text
