"""The knowledge store: passages and their vectors in a Qdrant collection, searched by meaning (paper, section 3.1).

Paper: Pinecone. Here the collection is embedded in the store's folder, or on a Qdrant server; its metadata say which encoder
and how books were cut. qdrant_client reads a folder with pickle, which can run code: open only stores that you built yourself.
"""

import os
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from httpx import HTTPError
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException
from qdrant_client.local.qdrant_local import META_INFO_FILENAME

from automedeval.evidence.books import OVERLAP, TOKENS, Passage
from automedeval.models.embeddings import Encoder
from automedeval.records import JsonObject, RecordError, digest, foreign_errors_at
from automedeval.records.errors import reason
from automedeval.records.text import shown_address

COLLECTION = "passages"  # in a folder; on a server the name of the store's folder
WINDOW = 512  # passages encoded together, stored already or not, so that vectors do not depend on interruptions
_FAILURES = (ApiException, QdrantException, HTTPError, sqlite3.Error)
PATIENCE = 30.0  # seconds to wait for a folder that another process has open; one that reads it needs it for a few
warnings.filterwarnings(
    "ignore", "Local mode is not recommended"
)  # docs/train.md says when a server is faster


class KnowledgeBase:
    """The passages of a store, for reading. Those of a folder are read into memory, so that other processes can open it too.

    `store` is the folder that recipes/build_store.py wrote, or its name on the Qdrant server `url`, whose key is the
    environment variable QDRANT_API_KEY; `load_encoder` returns the encoder that it was built with; `content` is a digest of all
    passages. RecordError: no store, another encoder, a folder that another process fills, or a server that does not answer.
    """

    def __init__(self, store: Path, load_encoder: Callable[[], Encoder], url: str | None = None):
        self.place, self._collection = _place(store, url)
        missing = RecordError(
            f"{self.place}: no knowledge store; build one with recipes/build_store.py"
        )
        if url is None and not (store / META_INFO_FILENAME).exists():
            raise missing
        # Paper: Pinecone, which approximates. Books have some ten thousand passages, so each query is compared with all of
        # them: a folder's always are, a server's if it is asked to.
        self._exact = models.SearchParams(exact=True) if url else None
        self._client = _connect(store, url) if url else QdrantClient(":memory:")
        self.encoder = load_encoder()
        with foreign_errors_at(self.place, *_FAILURES), closing(_connect(store, url)) as client:
            if not client.collection_exists(self._collection):
                raise missing
            settings = {"fingerprint": self.encoder.fingerprint}
            _refuse_change(self.place, client, self._collection, settings)
            # The id of a passage is a digest of its text and place.
            points = _points(client, self._collection, payload=False)
            self.content = digest(sorted(int(point.id) for point in points))
            if url is None:
                client.migrate(self._client, [self._collection], batch_size=1000)

    def search(self, queries: Sequence[str], limit: int = 3) -> list[list[Passage]]:
        """Return at most `limit` passages for each query, the nearest first, with their cosines as scores.

        None for a query without a letter or digit. RecordError: the server does not answer.
        """
        asked = [query for query in queries if any(map(str.isalnum, query))]
        requests = [
            models.QueryRequest(
                query=vector.tolist(), limit=limit, with_payload=True, params=self._exact
            )
            for vector in self.encoder.encode(asked)
        ]
        with foreign_errors_at(self.place, *_FAILURES):
            answers = (
                self._client.query_batch_points(self._collection, requests) if requests else []
            )
        passages = {
            query: [
                replace(Passage(**(point.payload or {})), score=point.score)
                for point in answer.points
            ]
            for query, answer in zip(asked, answers)
        }
        return [passages.get(query, []) for query in queries]


@dataclass
class StoreWriter:
    """A store that passages are added to; `books` has the book of each stored passage, by its id. See `open_writer`."""

    place: str
    client: QdrantClient
    collection: str
    encoder: Encoder
    books: dict[str, str]

    def add(
        self, passages: Sequence[Passage], on_batch: Callable[[int], object] = lambda done: None
    ) -> Counter[str]:
        """Store the passages that are missing, window by window in the same order at every start.

        `on_batch` is called with the number of passages done, stored now or before. Returns the number of "passages", and how
        many were "repeated" in the list, "there" already, or are "added".
        """
        unique = list({passage.id: passage for passage in passages}.values())
        before = len(self.books)
        repeated = len(passages) - len(unique)
        for start in range(0, len(unique), WINDOW):
            window = unique[start : start + WINDOW]
            if all(passage.id in self.books for passage in window):
                on_batch(len(window))
                continue
            # A passage is found by the heading of its section too.
            texts = ["\n".join(filter(None, (passage.section, passage.text))) for passage in window]
            vectors = self.encoder.encode(texts, on_batch)
            points = [
                # Qdrant takes numbers and UUIDs as ids; the twelve hexadecimal digits of a passage are a number.
                models.PointStruct(
                    id=int(passage.id, 16), vector=vector.tolist(), payload=passage.to_dict()
                )
                for passage, vector in zip(window, vectors)
                if passage.id not in self.books
            ]
            self.client.upload_points(self.collection, points, wait=True)
            self.books |= {passage.id: passage.book for passage in window}
        on_batch(repeated)
        added = len(self.books) - before
        return Counter(
            passages=len(passages), repeated=repeated, there=len(unique) - added, added=added
        )


@contextmanager
def open_writer(
    store: Path, encoder: Encoder, tokens: int = TOKENS, url: str | None = None
) -> Iterator[StoreWriter]:
    """Open a store for passages of at most so many tokens, a new one or one that was built with the same settings.

    RecordError: it was built with other settings, another process uses the folder, or the server does not answer.
    """
    place, collection = _place(store, url)
    settings = {
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        "tokens": tokens,
        "overlap": OVERLAP,
    }
    with foreign_errors_at(place, *_FAILURES), closing(_connect(store, url)) as client:
        if not client.collection_exists(collection):
            # Dot products of unit vectors are cosines.
            vectors = models.VectorParams(size=encoder.dimensions, distance=models.Distance.DOT)
            client.create_collection(collection, vectors, metadata=settings)
        _refuse_change(place, client, collection, settings)
        for file in store.rglob("*.sqlite"):
            # Qdrant commits a folder's passages one by one, which takes a quarter of the time with a log written ahead.
            with closing(sqlite3.connect(file)) as database:
                database.execute("PRAGMA journal_mode=WAL")
        points = _points(client, collection, payload=True)
        books = {point.payload["id"]: point.payload["book"] for point in points if point.payload}
        yield StoreWriter(place, client, collection, encoder, books)


def _points(client: QdrantClient, collection: str, payload: bool) -> Iterator[models.Record]:
    """Yield every stored passage; without its `payload` only the number of its id."""
    offset = None
    while True:
        points, offset = client.scroll(
            collection, limit=10_000, offset=offset, with_payload=payload
        )
        yield from points
        if offset is None:
            return


def _place(store: Path, url: str | None) -> tuple[str, str]:
    """Return where a store is, for messages, and the name of its collection."""
    name = store.resolve().name if url else COLLECTION
    return (f"{shown_address(url)}: {name}" if url else str(store)), name


def _connect(store: Path, url: str | None) -> QdrantClient:
    """Open a server or a folder; RecordError if it cannot be opened, or another process does not close the folder in time."""
    if url is not None:
        key = os.environ.get("QDRANT_API_KEY")
        with foreign_errors_at(f"{url}: cannot be opened", advice="; check --qdrant_url"):
            return QdrantClient(url=url, api_key=key, timeout=60, check_compatibility=False)
    begin = time.monotonic()
    while True:
        try:
            return QdrantClient(path=str(store))
        except Exception as error:  # noqa: BLE001  a damaged folder makes it raise a dozen kinds
            if "already accessed" not in str(error):
                raise RecordError(
                    f"{store}: cannot be opened ({reason(error)}); no store, or a damaged one: "
                    "remove it and build it again"
                ) from None
        if time.monotonic() - begin > PATIENCE:
            raise RecordError(
                f"{store}: another process is using this store: wait for it, or put the store on a server (--qdrant_url)"
            )
        time.sleep(0.5)


def _refuse_change(place: str, client: QdrantClient, collection: str, wanted: JsonObject) -> None:
    """Raise RecordError if a store has other settings than those wanted; the encoder's name may differ."""
    settings = client.get_collection(collection).config.metadata or {}
    for name, value in wanted.items():
        if name != "encoder" and settings.get(name) != value:
            raise RecordError(
                f"{place}: was built with {name} {settings.get(name)} "
                f"(encoder {settings.get('encoder')}), not {value}: name another --store"
            )
