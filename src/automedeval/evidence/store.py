"""The knowledge store: passages and their vectors in a folder, searched by meaning (paper, section 3.1).

Paper: Pinecone, which approximates. Books have some ten thousand passages, so a question is compared with every one of them.
A folder holds `passages.jsonl`, in `vectors.f32` their unit vectors in the same order, and in `store.json` which encoder made
these and how books were cut. Vectors are written first: a passage that is there has its vector.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from automedeval.evidence.books import Block, Chunking, Passage
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, digest, read_json, read_placed
from automedeval.records.journal import Journal, write_json

PASSAGES, VECTORS, SETTINGS = "passages.jsonl", "vectors.f32", "store.json"
WINDOW = 512  # passages encoded together, stored already or not, so that vectors do not depend on interruptions


class KnowledgeBase:
    """The passages of a store, in memory. `content` is a digest of all passages.

    Args:
        store: folder that recipes/build_store.py wrote.
        load_encoder: returns the encoder that the store was built with, given the pooling that it was built with.

    Raises:
        RecordError: no store, another encoder, or a damaged file.
    """

    def __init__(self, store: str | Path, load_encoder: Callable[[str | None], Encoder]):
        folder = Path(store)
        if not (folder / SETTINGS).is_file():
            raise RecordError(f"{folder}: no knowledge store; build one with recipes/build_store.py")
        settings = read_json(folder / SETTINGS)
        self.encoder = load_encoder(settings.get("pooling"))
        _refuse_change(folder, settings, _encoder_settings(self.encoder))
        self._passages = _passages(folder)
        count = len(self._passages) * self.encoder.dimensions
        vectors = np.fromfile(folder / VECTORS, np.float32, count)
        if len(vectors) < count:
            raise _damaged(folder)
        self._vectors = vectors.reshape(-1, self.encoder.dimensions)
        self.content = digest(sorted(int(passage.id, 16) for passage in self._passages))

    def search(self, queries: Sequence[str], limit: int = 3) -> list[list[Passage]]:
        """Find at most `limit` passages for each query, the nearest first; none for a query without a letter or digit.

        Returns:
            for each query its passages with their scores: the cosine of passage and query.
        """
        asked = [query for query in queries if any(map(str.isalnum, query))]
        found = dict(zip(asked, self.encoder.encode(asked) if asked else ()))
        return [self._nearest(found[query], limit) if query in found else [] for query in queries]

    def _nearest(self, vector: np.ndarray, limit: int) -> list[Passage]:
        cosines = self._vectors @ vector  # one by one: the last digits do not depend on the other queries
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [replace(self._passages[place], score=float(cosines[place])) for place in best]


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
        self.folder, self.encoder = Path(store), encoder
        self.settings = _encoder_settings(encoder) | {"pooling": pooling, **asdict(chunking)}

    def __enter__(self) -> "StoreWriter":
        with ExitStack() as opened:
            self._journal = opened.enter_context(Journal(self.folder / PASSAGES))
            self._vectors = opened.enter_context(open(self.folder / VECTORS, "ab"))
            if not (self.folder / SETTINGS).is_file():
                write_json(self.folder / SETTINGS, self.settings)
            _refuse_change(self.folder, read_json(self.folder / SETTINGS), self.settings)
            self.books = {passage.id: passage.book for passage in _passages(self.folder)}
            size = len(self.books) * self.encoder.dimensions * np.float32().nbytes
            if self._vectors.tell() < size:
                raise _damaged(self.folder)
            self._vectors.truncate(size)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def add(self, passages: Sequence[Passage], on_batch: Callable[[int], object] = lambda done: None) -> Counter[str]:
        """Store the passages that are missing, window by window; an interruption keeps what was stored.

        The passages have the same order at every start. `on_batch` is called with the number of passages done, stored now or
        before. Returns the number of "passages", and how many were "repeated" in the list, "there" already, or are "added".
        """
        unique = list({passage.id: passage for passage in passages}.values())
        before, repeated = len(self.books), len(passages) - len(unique)
        for start in range(0, len(unique), WINDOW):
            window = unique[start : start + WINDOW]
            missing = [place for place, passage in enumerate(window) if passage.id not in self.books]
            if not missing:
                on_batch(len(window))
                continue
            # A passage is found by the heading of its section too.
            texts = ["\n".join(filter(None, (passage.section, passage.text))) for passage in window]
            self._vectors.write(self.encoder.encode(texts, on_batch)[missing].astype(np.float32).tobytes())
            self._vectors.flush()
            os.fsync(self._vectors.fileno())
            for passage in (window[place] for place in missing):
                self._journal.append({name: getattr(passage, name) for name in ("book", "section", "page", "text")})
                self.books[passage.id] = passage.book
        on_batch(repeated)
        added = len(self.books) - before
        return Counter(passages=len(passages), repeated=repeated, there=len(unique) - added, added=added)


def _passages(folder: Path) -> list[Passage]:
    """Return the passages of a store."""
    lines = (line for _, line in read_placed(folder / PASSAGES, Block))
    return [Passage.of(line.book or "", line.section, line.page, line.text) for line in lines]


def _damaged(folder: Path) -> RecordError:
    return RecordError(f"{folder / VECTORS}: holds fewer vectors than passages; remove the store and build it again")


def _encoder_settings(encoder: Encoder) -> dict[str, Any]:
    return {"encoder": encoder.name, "fingerprint": encoder.fingerprint}


def _refuse_change(folder: Path, settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise RecordError if a store has other settings than those wanted; the encoder's name may differ."""
    for name, value in wanted.items():
        if name != "encoder" and settings.get(name) != value:
            encoder = f" (encoder {settings.get('encoder')}, not {wanted['encoder']})" if name == "fingerprint" else ""
            raise RecordError(
                f"{folder}: was built with {name} {settings.get(name)}, not {value}{encoder}; give the same, or another --store"
            )
