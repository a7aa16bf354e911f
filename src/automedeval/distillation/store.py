"""The knowledge that a teacher may ask for: passages in a Qdrant collection, found by meaning and by words (Section 3.1).

Paper: Pinecone; here Qdrant, embedded in a folder or as a server. A passage has a dense vector and a sparse one of BM25 weights
(Robertson and Zaragoza 2009), and a search fuses both rankings by reciprocal ranks (Cormack et al. 2009). A folder
is read with pickle by qdrant_client: open only stores that you built yourself.
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
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from httpx import HTTPError, InvalidURL
from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException

from automedeval.distillation.books import KINDS, Chunking, Passage
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError

if TYPE_CHECKING:
    from automedeval.distillation.books import Passage


class SharedSearch:
    """Lets dialogues of many threads search one store: one search at a time, for all questions that wait by then.

    Args:
        search: as `KnowledgeBase.search`; an embedded store must not be searched by two threads at once.
        limit: passages per question.
    """

    def __init__(self, search: "Callable[[Sequence[str], int], list[list[Passage]]]", limit: int = 3):
        self.search, self.limit = search, limit
        self._waiting: list[tuple[str, Future]] = []
        self._adding = threading.Lock()
        self._searcher = ThreadPoolExecutor(1, thread_name_prefix="search")

    def __call__(self, questions: Sequence[str]) -> "list[list[Passage]]":
        mine = [(question, Future()) for question in questions]
        with self._adding:
            self._waiting += mine
        self._searcher.submit(self._serve)
        return [future.result() for _, future in mine]

    def _serve(self) -> None:
        with self._adding:
            waiting, self._waiting = self._waiting, []
        if not waiting:  # an earlier search took these questions along
            return
        try:
            found = list(zip(waiting, self.search([question for question, _ in waiting], self.limit), strict=True))
        except Exception as error:  # noqa: BLE001  those who wait in other threads have to hear of it
            for _, future in waiting:
                future.set_exception(error)
        else:
            for (_, future), passages in found:
                future.set_result(passages)


MODES = ("hybrid", "dense", "bm25")
MOST_LOCAL = 20_000  # passages that the embedded store, which compares a query with each of them, searches fast enough
VERSION = 1  # raised whenever what is stored of a passage changes
WINDOW = 512  # passages encoded together: those of a window come out the same whatever of it is there already
K1, B = 1.2, 0.75  # BM25, the values of Robertson and Zaragoza
# Fusion, chosen on questions of MedQuAD that benchmarks/knowledge.py measures nothing on: only first ranks count for much, and
# those by words, which are right less often, less.
DEPTH = 20  # passages of each ranking that are fused
RRF_K = 2  # Cormack et al. took 60, for rankings of equal worth
WEIGHTS = (1.0, 0.3)  # of the dense ranking and of BM25's
_WORD = re.compile(r"[^\W_]+")
_LEFT_OUT = frozenset(  # function words: in every passage, and half of what a sparse vector would hold
    _WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may me my "
        "of on or our shall should so such than that the their them then there these they this those to was we were what "
        "when where which while who whom why will with would you your"
    )
)


@dataclass(frozen=True)
class Added:
    """What became of passages: how many there were, were repetitions, were in the store already, and are new there."""

    passages: int = 0
    repeated: int = 0
    there: int = 0
    added: int = 0

    def __add__(self, other: "Added") -> "Added":
        return Added(*(own + its for own, its in zip(asdict(self).values(), asdict(other).values())))


class KnowledgeBase:
    """Store passages and find those that answer a query.

    Args:
        store: folder of the embedded store, or ":memory:". None with a `url`.
        encoder: what makes the dense vectors; a collection keeps its fingerprint, and refuses another.
        url: of a Qdrant server; its key is taken from the environment, QDRANT_API_KEY.
        collection: its name.
        chunking: how the passages to add were cut, which a collection keeps, too. None: for searching; the collection
            has to exist.

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
        if self.local and chunking is None and not Path(store, "meta.json").exists():
            raise RecordError(f"{store}: no knowledge base; build one with recipes/build_store.py")
        with self._told():
            if url:
                key = os.environ.get("QDRANT_API_KEY")
                self._client = QdrantClient(url=url, api_key=key, timeout=60, check_compatibility=False)
            else:
                self._client = _open_local(str(store))
        try:
            with self._told():
                self._settings = self._meet(chunking)
        except RecordError:
            self.close()
            raise

    def __enter__(self) -> "KnowledgeBase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes open the store."""
        self._client.close()

    def _meet(self, chunking: Chunking | None) -> dict:
        """Return the settings of the collection, made now if passages are to be added; refuse others than these."""
        if not self._client.collection_exists(self.collection):
            if chunking is None:
                raise RecordError(
                    f"{self.place}: no collection {self.collection!r}; build one with recipes/build_store.py"
                )
            self._create(chunking)
        settings = self._client.get_collection(self.collection).config.metadata or {}
        asked = {"version": VERSION, "fingerprint": self.encoder.fingerprint}
        asked |= asdict(chunking) if chunking else {}
        for name, value in asked.items():
            if settings.get(name) != value:
                encoder = f" (encoder {settings.get('encoder')}, not {self.encoder.name})" if "print" in name else ""
                raise RecordError(
                    f"{self.place}: the collection {self.collection!r} was built with {name} {settings.get(name)}, "
                    f"not {value}{encoder}; give the same, or another --collection"
                )
        return settings

    def _create(self, chunking: Chunking) -> None:
        settings = {
            "version": VERSION,
            "encoder": self.encoder.name,
            "fingerprint": self.encoder.fingerprint,
            **asdict(chunking),
            # BM25 weighs a passage by its length against the average. A constant, so that a weight depends on its
            # passage alone: books come and go. A passage's words that count are about two fifths of its tokens.
            "average_words": max(1, round(0.4 * chunking.tokens)),
        }
        self._client.create_collection(
            self.collection,
            # Dot products of unit vectors are cosines.
            vectors_config={"dense": models.VectorParams(size=self.encoder.dimensions, distance=models.Distance.DOT)},
            sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata=settings,
        )
        if not self.local:
            self._client.create_payload_index(self.collection, "kind", models.PayloadSchemaType.KEYWORD)

    def __len__(self) -> int:
        with self._told():
            return self._client.count(self.collection, exact=True).count

    @property
    def advice(self) -> str | None:
        """Return what to do about an embedded store with so many passages that its searches are slow, else None."""
        size = len(self) if self.local else 0
        if size <= MOST_LOCAL:
            return None
        return (
            f"{self.place} holds {size:,} passages, and an embedded store searches more than {MOST_LOCAL:,} slowly; a "
            "server does not: docker run -p 127.0.0.1:6333:6333 -v $PWD/qdrant:/qdrant/storage qdrant/qdrant, then "
            "--qdrant_url http://localhost:6333"
        )

    def add(self, passages: Sequence[Passage], on_batch: Callable[[int], object] | None = None) -> Added:
        """Store those of the passages that are not there, window by window; what was stored stays if this is cut off.

        Args:
            passages: in an order that a later start repeats.
            on_batch: called with the number of passages that are done, there already or not.
        """
        unique = list({passage.id: passage for passage in passages}.values())
        there = 0
        for start in range(0, len(unique), WINDOW):
            window = unique[start : start + WINDOW]
            found = self._there(window)
            there += len(found)
            if len(found) < len(window):
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
                with self._told(), _quiet():
                    self._client.upsert(self.collection, points, wait=True)
            elif on_batch:
                on_batch(len(window))
        if on_batch:
            on_batch(len(passages) - len(unique))
        return Added(len(passages), len(passages) - len(unique), there, len(unique) - there)

    def _there(self, passages: Sequence[Passage]) -> set[str]:
        ids = [passage.id for passage in passages]
        with self._told():
            return {str(point.id) for point in self._client.retrieve(self.collection, ids, with_payload=False)}

    def others(self, ids: set[str]) -> dict[str, str]:
        """Return the id and the book of every stored passage but these."""
        found, offset = {}, None
        while True:
            with self._told():
                points, offset = self._client.scroll(
                    self.collection, limit=1000, offset=offset, with_payload=["book"], with_vectors=False
                )
            found |= {str(point.id): point.payload["book"] for point in points if str(point.id) not in ids}
            if offset is None:
                return found

    def remove(self, ids: Sequence[str]) -> None:
        """Remove passages."""
        for start in range(0, len(ids), 1000):
            some = models.PointIdsList(points=list(ids[start : start + 1000]))
            with self._told():
                self._client.delete(self.collection, some, wait=True)

    def search(
        self, queries: Sequence[str], limit: int = 3, mode: str = "hybrid", kind: str | None = None
    ) -> list[list[Passage]]:
        """Find the passages that answer each query, best first.

        Args:
            queries: in the asker's words; a query without a letter or digit finds nothing.
            limit: most passages for each.
            mode: "dense", "bm25", or "hybrid", which fuses both.
            kind: "medical" or "evaluation" passages alone.

        Returns:
            for each query its passages with their scores: cosine, BM25, or the sum of reciprocal ranks.
        """
        if mode not in MODES:
            raise RecordError(f"a search is one of {', '.join(MODES)}, not {mode!r}")
        if kind not in (None, *KINDS):
            raise RecordError(f"the kind of a passage is {' or '.join(KINDS)}, not {kind!r}")
        if limit < 1:
            raise RecordError(f"a search finds at least 1 passage, not {limit}")
        asked = [index for index, query in enumerate(queries) if _WORD.search(query)]
        texts = [queries[index] for index in asked]
        vectors = self.encoder.encode(texts).tolist() if mode != "bm25" else [None] * len(texts)
        requests = [self._request(text, vector, limit, mode, kind) for text, vector in zip(texts, vectors)]
        found: list[list[Passage]] = [[] for _ in queries]
        with self._told():
            answers = self._client.query_batch_points(self.collection, requests) if requests else []
        for index, answer in zip(asked, answers):
            found[index] = [Passage(str(point.id), score=point.score, **point.payload) for point in answer.points]
        return found

    def _request(
        self, query: str, vector: list[float] | None, limit: int, mode: str, kind: str | None
    ) -> models.QueryRequest:
        only = kind and models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value=kind))])
        ids = sorted({_word_id(word) for word in _words(query)})
        ways = {
            "dense": vector,
            # The weight of a query's word is its rarity in the collection, which Qdrant multiplies in.
            "bm25": models.SparseVector(indices=ids, values=[1.0] * len(ids)),
        }
        if mode != "hybrid":
            return models.QueryRequest(query=ways[mode], using=mode, filter=only, limit=limit, with_payload=True)
        return models.QueryRequest(
            prefetch=[
                models.Prefetch(query=way, using=name, filter=only, limit=max(DEPTH, limit))
                for name, way in ways.items()
            ],
            query=models.RrfQuery(rrf=models.Rrf(k=RRF_K, weights=list(WEIGHTS))),
            limit=limit,
            with_payload=True,
        )

    def _weights(self, text: str) -> models.SparseVector:
        """Return the BM25 weights of a passage's words, but for the words' rarity."""
        counts = Counter(map(_word_id, _words(text)))
        length = K1 * (1 - B + B * counts.total() / self._settings["average_words"])
        ids = sorted(counts)
        return models.SparseVector(indices=ids, values=[counts[one] * (K1 + 1) / (counts[one] + length) for one in ids])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what goes wrong with the store into one line."""
        try:
            yield
        except (ApiException, QdrantException, HTTPError, InvalidURL, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise RecordError(f"{self.place}: {' '.join(line.strip() for line in lines)[:300]}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep qdrant_client from warning of many passages: `advice` says it, and what to do."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Local mode is not recommended")
        yield


def _open_local(store: str) -> QdrantClient:
    with _quiet():
        try:
            return QdrantClient(":memory:") if store == ":memory:" else QdrantClient(path=store)
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise RecordError(f"{store}: another process uses this store; wait for it, or use a server") from None
        except (json.JSONDecodeError, KeyError) as error:
            raise RecordError(
                f"{store}: not a store, or a damaged one ({error}); remove it and build it anew"
            ) from None


def _shown(passage: Passage) -> str:
    """Return the text that is indexed: a section's heading says what its sentences leave out."""
    return f"{passage.section}\n{passage.text}" if passage.section else passage.text


def _words(text: str) -> list[str]:
    """Return the words that count, singular and lower-case, in order."""
    return [_singular(word) for word in _WORD.findall(text.lower()) if word not in _LEFT_OUT]


def _singular(word: str) -> str:
    """Strip an English plural (after the S stemmer of Harman 1991)."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-1]


def _word_id(word: str) -> int:
    return zlib.crc32(word.encode())
