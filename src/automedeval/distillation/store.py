"""The knowledge store: passages in a Qdrant collection, searched by meaning and by words (paper, section 3.1).

The paper uses Pinecone; here it is Qdrant, embedded in a folder or as a server. A passage has a dense vector and a sparse
vector of BM25 weights (Robertson and Zaragoza 2009). A search takes the dense vectors or the sparse ones.
qdrant_client reads a folder with pickle: open only stores that you built yourself.
"""

import json
import os
import re
import threading
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from httpx import HTTPError, InvalidURL
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from automedeval.distillation.books import KINDS, Chunking, Passage
from automedeval.distillation.word_index import WordIndex
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError


class SharedSearch:
    """Let the dialogues of many threads search one store: one search at a time, for all questions that are waiting.

    `search` is `KnowledgeBase.search`, since two threads must not search an embedded store at once; `limit` is by question.
    """

    def __init__(self, search: Callable[[Sequence[str], int], list[list[Passage]]], limit: int = 3):
        self.search, self.limit = search, limit
        self._waiting: list[tuple[str, Future]] = []
        self._adding = threading.Lock()
        self._searcher = ThreadPoolExecutor(1, thread_name_prefix="search")

    def __call__(self, questions: Sequence[str]) -> list[list[Passage]]:
        waiting: list[tuple[str, Future]] = [(question, Future()) for question in questions]
        with self._adding:
            self._waiting += waiting
        self._searcher.submit(self._serve)
        return [future.result() for _, future in waiting]

    def _serve(self) -> None:
        with self._adding:
            waiting, self._waiting = self._waiting, []
        if not waiting:  # an earlier search included these questions
            return
        futures = [future for _, future in waiting]
        try:
            found = self.search([question for question, _ in waiting], self.limit)
            for future, passages in list(zip(futures, found, strict=True)):
                future.set_result(passages)
        except Exception as error:  # noqa: BLE001  the waiting threads have to raise it
            for future in futures:
                future.set_exception(error)


MODES = ("dense", "bm25")
MOST_LOCAL = 20_000  # more passages make an embedded store slow, since it compares a query with each of them
VERSION = 1  # raised whenever the stored form of a passage changes
WINDOW = 512  # passages encoded together, stored already or not, so that vectors do not depend on interruptions
K1, B = 1.2, 0.75  # BM25, the values of Robertson and Zaragoza
_WORD = re.compile(r"[^\W_]+")
_LEFT_OUT = frozenset(  # function words: they are in every passage, and would be half of a sparse vector
    _WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may me my "
        "of on or our shall should so such than that the their them then there these they this those to was we were what "
        "when where which while who whom why will with would you your"
    )
)


class KnowledgeBase(AbstractContextManager):
    """Store passages and find those that answer a query.

    Args:
        store: folder of the embedded store, or ":memory:"; None with a `url`.
        encoder: computes the dense vectors; a collection keeps its fingerprint, and refuses another one.
        url: of a Qdrant server, whose key is the environment variable QDRANT_API_KEY.
        collection: its name.
        chunking: how the passages to be added were cut, which the collection keeps too; None, for searching, needs a
            collection that exists.

    Raises:
        RecordError: no such collection, another encoder or chunking, a store that another process uses or that cannot be
            read, a server that does not answer.
    """

    def __init__(
        self,
        store: str | Path | None,
        encoder: Encoder,
        url: str | None = None,
        collection: str = "knowledge",
        chunking: Chunking | None = None,
    ):
        if (store is None) == (url is None):
            raise RecordError("a knowledge base is in a folder or on a server: give --store or --qdrant_url, not both")
        self.place = url or str(store)
        self.encoder, self.collection, self.local = encoder, collection, url is None
        self._index: WordIndex | None = None  # of an embedded store, built when it is first searched by words
        if store is not None and chunking is None and not Path(store, "meta.json").exists():
            raise RecordError(f"{store}: no knowledge base; build one with recipes/build_store.py")
        with self._one_line(), ExitStack() as opened:
            self._client = _open_server(url) if url else _open_local(str(store))
            opened.callback(self.close)
            self._settings = self._open_collection(chunking)
            opened.pop_all()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, so that other processes can open it."""
        self._client.close()

    def _open_collection(self, chunking: Chunking | None) -> dict:
        """Return the settings of the collection, which is created for adding passages; refuse other settings."""
        asked = {"version": VERSION, "fingerprint": self.encoder.fingerprint, **(asdict(chunking) if chunking else {})}
        exists = self._client.collection_exists(self.collection)
        if not exists:
            if chunking is None:
                raise RecordError(
                    f"{self.place}: no collection {self.collection!r}; build one with recipes/build_store.py"
                )
            # BM25 divides the length of a passage by the average. A constant, so that a weight depends on its passage
            # alone when books are added or removed. The words that count are about two fifths of a passage's tokens.
            average = max(1, round(0.4 * chunking.tokens))
            # Dot products of unit vectors are cosines.
            dense = models.VectorParams(size=self.encoder.dimensions, distance=models.Distance.DOT)
            self._client.create_collection(
                self.collection,
                vectors_config={"dense": dense},
                sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
                metadata=asked | {"encoder": self.encoder.name, "average_words": average},
            )
            if not self.local:
                self._client.create_payload_index(self.collection, "kind", models.PayloadSchemaType.KEYWORD)
        settings = self._client.get_collection(self.collection).config.metadata or {}
        for name, value in asked.items():
            if settings.get(name) != value:
                encoder = f" (encoder {settings.get('encoder')}, not {self.encoder.name})" if "print" in name else ""
                raise RecordError(
                    f"{self.place}: the collection {self.collection!r} was built with {name} {settings.get(name)}, "
                    f"not {value}{encoder}; give the same, or another --collection"
                )
        return settings

    def __len__(self) -> int:
        with self._one_line():
            return self._client.count(self.collection, exact=True).count

    @property
    def advice(self) -> str | None:
        """Return a recommendation if an embedded store has so many passages that searches are slow, else None."""
        size = len(self) if self.local else 0
        if size <= MOST_LOCAL:
            return None
        return (
            f"{self.place} has {size:,} passages, and an embedded store is slow with more than {MOST_LOCAL:,}; a server is "
            "not: docker run -p 127.0.0.1:6333:6333 -v $PWD/qdrant:/qdrant/storage qdrant/qdrant, then "
            "--qdrant_url http://localhost:6333"
        )

    def add(self, passages: Sequence[Passage], on_batch: Callable[[int], object] = lambda done: None) -> Counter[str]:
        """Store the passages that are missing, window by window; an interruption keeps what was stored.

        The passages have the same order at every start. `on_batch` is called with the number of passages done, stored now or
        before. Returns the number of "passages", and how many were "repeated" in the list, "there" already, or are "added".
        """
        unique = list({passage.id: passage for passage in passages}.values())
        there, repeated = 0, len(passages) - len(unique)
        for start in range(0, len(unique), WINDOW):
            window = unique[start : start + WINDOW]
            with self._one_line():
                stored = self._client.retrieve(self.collection, [one.id for one in window], with_payload=False)
            found = {str(point.id) for point in stored}
            there += len(found)
            if len(found) == len(window):
                on_batch(len(window))
                continue
            vectors = self.encoder.encode([_shown(passage) for passage in window], on_batch)
            points = [
                models.PointStruct(
                    id=passage.id,
                    vector={"dense": vector.tolist(), "bm25": self._weights(_shown(passage))},
                    payload={key: value for key, value in passage.to_dict().items() if key not in ("id", "score")},
                )
                for passage, vector in zip(window, vectors)
                if passage.id not in found
            ]
            self._index = None
            with self._one_line(), _quiet():
                self._client.upsert(self.collection, points, wait=True)
        on_batch(repeated)
        return Counter(passages=len(passages), repeated=repeated, there=there, added=len(unique) - there)

    def others(self, ids: set[str]) -> dict[str, str]:
        """Return id → book of every stored passage except these ids."""
        points = self._points(with_payload=["book"], with_vectors=False)
        return {str(point.id): _payload(point)["book"] for point in points if str(point.id) not in ids}

    def _points(self, **fields: Any) -> Iterator[models.Record]:
        """Yield all stored passages, with the fields that `scroll` is asked for."""
        offset = None
        while True:
            with self._one_line():
                points, offset = self._client.scroll(self.collection, limit=10_000, offset=offset, **fields)
            yield from points
            if offset is None:
                return

    def remove(self, ids: Sequence[str]) -> None:
        self._index = None
        for start in range(0, len(ids), 1000):
            some = models.PointIdsList(points=list(ids[start : start + 1000]))
            with self._one_line():
                self._client.delete(self.collection, some, wait=True)

    def search(
        self, queries: Sequence[str], limit: int = 3, mode: str = "dense", kind: str | None = None
    ) -> list[list[Passage]]:
        """Find at most `limit` passages that answer each query, best first; a query without a letter or digit finds none.

        Args:
            mode: "dense", by meaning, or "bm25", by words.
            kind: "medical" or "evaluation" for passages of one kind only.

        Returns:
            for each query its passages with their scores: cosine or BM25.
        """
        if mode not in MODES:
            raise RecordError(f"a search is one of {', '.join(MODES)}, not {mode!r}")
        if kind not in (None, *KINDS):
            raise RecordError(f"the kind of a passage is {' or '.join(KINDS)}, not {kind!r}")
        if limit < 1:
            raise RecordError(f"limit must be at least 1, not {limit}")
        asked = [index for index, query in enumerate(queries) if _WORD.search(query)]
        texts = [queries[index] for index in asked]
        found: list[list[Passage]] = [[] for _ in queries]
        if self.local and mode == "bm25":
            for index, text in zip(asked, texts):
                found[index] = self._search_words_locally(text, limit, kind)
            return found
        vectors = self.encoder.encode(texts).tolist() if mode == "dense" else map(_query_words, texts)
        requests = [self._request(vector, limit, mode, kind) for vector in vectors]
        with self._one_line():
            answers = self._client.query_batch_points(self.collection, requests) if requests else []
        for index, answer in zip(asked, answers):
            found[index] = [Passage(str(point.id), score=point.score, **_payload(point)) for point in answer.points]
        return found

    def _search_words_locally(self, query: str, limit: int, kind: str | None) -> list[Passage]:
        """Search an embedded store by words, with the scores of a server."""
        if self._index is None:
            self._index = WordIndex(self._stored_words())
        scores = dict(self._index.search(sorted(set(_word_ids(query))), limit, kind))
        with self._one_line():
            stored = {str(point.id): _payload(point) for point in self._client.retrieve(self.collection, list(scores))}
        return [Passage(one, score=score, **stored[one]) for one, score in scores.items()]

    def _stored_words(self) -> Iterator[tuple[str, str, Sequence[int], Sequence[float]]]:
        """Yield what a `WordIndex` takes of each stored passage."""
        for point in self._points(with_payload=["kind"], with_vectors=["bm25"]):
            assert isinstance(point.vector, dict)  # a collection with named vectors
            words = point.vector["bm25"]
            assert isinstance(words, models.SparseVector)
            yield str(point.id), _payload(point)["kind"], words.indices, words.values

    def _request(
        self, vector: list[float] | models.SparseVector, limit: int, mode: str, kind: str | None
    ) -> models.QueryRequest:
        of_kind = models.FieldCondition(key="kind", match=models.MatchValue(value=kind or ""))
        only = models.Filter(must=[of_kind]) if kind else None
        return models.QueryRequest(query=vector, using=mode, filter=only, limit=limit, with_payload=True)

    def _weights(self, text: str) -> models.SparseVector:
        """Return the BM25 weights of a passage's words, without the inverse document frequency."""
        counts = Counter(_word_ids(text))
        length = K1 * (1 - B + B * counts.total() / self._settings["average_words"])
        ids = sorted(counts)
        return models.SparseVector(indices=ids, values=[counts[one] * (K1 + 1) / (counts[one] + length) for one in ids])

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        """Turn errors of the store into a RecordError of one line."""
        try:
            yield
        except (ApiException, QdrantException, HTTPError, InvalidURL, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise RecordError(f"{self.place}: {' '.join(line.strip() for line in lines)[:300]}") from None


def _payload(point: models.Record | models.ScoredPoint) -> dict[str, Any]:
    """Return the fields of a passage; every point of a collection has them."""
    return point.payload or {}


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress qdrant_client's warning about many passages: `advice` replaces it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Local mode is not recommended")
        yield


def _open_server(url: str) -> QdrantClient:
    return QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"), timeout=60, check_compatibility=False)


def _open_local(store: str) -> QdrantClient:
    try:
        with _quiet():
            return QdrantClient(":memory:") if store == ":memory:" else QdrantClient(path=store)
    except RuntimeError as error:
        if "already accessed" not in str(error):
            raise
        raise RecordError(f"{store}: another process uses this store; wait for it, or use a server") from None
    except (json.JSONDecodeError, KeyError) as error:
        raise RecordError(f"{store}: not a store, or a damaged one ({error}); remove it and build it again") from None


def _shown(passage: Passage) -> str:
    """Return the text that is indexed, with the heading of its section."""
    return f"{passage.section}\n{passage.text}" if passage.section else passage.text


def _query_words(text: str) -> models.SparseVector:
    """Return each word of a query once; Qdrant multiplies its weight with the word's inverse document frequency."""
    ids = sorted(set(_word_ids(text)))
    return models.SparseVector(indices=ids, values=[1.0] * len(ids))


def _word_ids(text: str) -> list[int]:
    """Return a number for each word of a text in order: singular, in lower case, without function words."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _LEFT_OUT)
    return [zlib.crc32(_singular(word).encode()) for word in words]


def _singular(word: str) -> str:
    """Remove an English plural ending (S stemmer of Harman 1991)."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-1]
