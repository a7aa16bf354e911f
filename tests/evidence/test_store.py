"""The knowledge store: what is kept, what is found, and what is refused."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from programs import ENCODER, needs_encoder

from automedeval.evidence import store
from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.evidence.books import Chunking, Passage
from automedeval.evidence.store import PASSAGES as LINES
from automedeval.evidence.store import SETTINGS, VECTORS, KnowledgeBase, StoreWriter
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, digest

TEXTS = [
    "Aspirin is chewed at the first sign of a heart attack.",
    "Insulin lowers the sugar in the blood.",
    "Sertraline takes four to six weeks to lift a depression.",
    "A good answer names its sources and admits doubt.",
    "Zopiclone 7.5 mg is for short use only.",
]
PASSAGES = [Passage.of("Book", "", 1, text) for text in TEXTS]

pytestmark = needs_encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(str(ENCODER), device="cpu", dtype="float32")


class Shelf:
    """One store, and how to write and read it."""

    def __init__(self, folder: Path, encoder: Encoder):
        self.folder, self.encoder = folder, encoder

    def write(self, tokens: int = 200) -> StoreWriter:
        return StoreWriter(self.folder, self.encoder, None, Chunking(tokens))

    def read(self, encoder: Encoder | None = None) -> KnowledgeBase:
        return KnowledgeBase(self.folder, lambda pooling: encoder or self.encoder)


@pytest.fixture
def shelf(tmp_path: Path, encoder: Encoder) -> Shelf:
    return Shelf(tmp_path / "store", encoder)


def counts(*numbers: int) -> Counter[str]:
    return Counter(dict(zip(("passages", "repeated", "there", "added"), numbers)))


def test_a_search_finds_by_meaning_with_cosines(shelf: Shelf) -> None:
    with shelf.write() as base:
        assert base.add(PASSAGES) == counts(5, 0, 0, 5)
    queries = ["low mood medicine", "insulin and blood sugar"]
    low_mood, sugar = shelf.read().search(queries, 5)
    assert low_mood[0] == replace(PASSAGES[2], score=low_mood[0].score)
    assert sugar[0].text == TEXTS[1]
    cosines = shelf.encoder.encode(TEXTS) @ shelf.encoder.encode(queries[:1])[0]
    np.testing.assert_allclose([passage.score for passage in low_mood], sorted(cosines, reverse=True), rtol=1e-5)


def test_only_missing_passages_are_added(shelf: Shelf) -> None:
    done = []
    with shelf.write() as base:
        base.add(PASSAGES[:2])
    with shelf.write() as base:
        assert base.add([*PASSAGES, PASSAGES[0]], done.append) == counts(6, 1, 2, 3)
        assert sum(done) == 6
    with shelf.write() as base, mock.patch.object(shelf.encoder, "encode") as encode:
        assert base.add(PASSAGES) == counts(5, 0, 5, 0)
        assert not encode.called
        assert base.books == {passage.id: "Book" for passage in PASSAGES}
    assert shelf.read().search(["insulin"], 1)[0][0].text == TEXTS[1]


def test_windows_are_encoded_whole_whatever_is_stored(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WINDOW", 3)
    with shelf.write() as base:
        base.add(PASSAGES[1:2])
        with mock.patch.object(shelf.encoder, "encode", wraps=shelf.encoder.encode) as encode:
            base.add(PASSAGES)
    assert [list(call.args[0]) for call in encode.call_args_list] == [TEXTS[:3], TEXTS[3:]]


def test_another_encoder_or_chunking_is_refused(shelf: Shelf) -> None:
    with shelf.write():
        pass
    with pytest.raises(RecordError, match=r"built with tokens 200, not 100; give the same, or another --store"):
        shelf.write(100).__enter__()
    other = mock.Mock(wraps=shelf.encoder, fingerprint="0" * 12)
    other.name = "other"
    with pytest.raises(RecordError, match=r"fingerprint \w+, not 0{12} \(encoder all-MiniLM-L6-v2, not other\)"):
        shelf.read(other)
    with shelf.write():  # the refusals closed the store
        pass


def test_missing_and_damaged_stores_are_refused(shelf: Shelf) -> None:
    with pytest.raises(RecordError, match=r"build one with recipes/build_store.py"):
        shelf.read()
    assert not shelf.folder.exists()
    with shelf.write() as base:
        base.add(PASSAGES)
    whole = (shelf.folder / VECTORS).read_bytes()
    (shelf.folder / VECTORS).write_bytes(whole[:-4])
    for attempt in (shelf.read, shelf.write().__enter__):
        with pytest.raises(RecordError, match=r"fewer vectors than passages; remove the store and build it again"):
            attempt()
    (shelf.folder / VECTORS).write_bytes(whole)
    assert shelf.read().search(["insulin"], 1)[0][0].text == TEXTS[1]
    for file, said in ((LINES, r"passages.jsonl:1: "), (SETTINGS, "store.json: not JSON")):
        (shelf.folder / file).write_text('{"collections": ' * 1000)
        with pytest.raises(RecordError, match=said):
            shelf.read()


def test_vectors_without_their_passages_are_written_again(shelf: Shelf) -> None:
    with shelf.write() as base:
        base.add(PASSAGES[:3])
    with open(shelf.folder / VECTORS, "ab") as vectors:  # a process was killed between the two
        vectors.write(b"\1" * 5000)
    with shelf.write() as base:
        base.add(PASSAGES)
    assert [found[0].text for found in shelf.read().search(TEXTS, 1)] == TEXTS


def test_readers_share_a_folder_with_each_other_and_with_a_writer(shelf: Shelf) -> None:
    with shelf.write() as base:
        base.add(PASSAGES)
    first, second = shelf.read(), shelf.read()
    with shelf.write() as base:
        base.add([Passage.of("Book", "", 2, "Measles are caught once.")])
        assert first.content == second.content
    with ThreadPoolExecutor(8) as threads:  # as the dialogues of an endpoint search
        found = list(threads.map(lambda text: first.search([text], 1)[0][0].text, TEXTS * 8))
    assert found == TEXTS * 8
    assert shelf.read().content != first.content


def test_a_second_writer_is_refused(shelf: Shelf) -> None:
    with shelf.write(), pytest.raises(RecordError, match="another process is writing this file"):
        shelf.write().__enter__()


def test_a_query_without_a_word_finds_nothing(shelf: Shelf) -> None:
    with shelf.write() as base:
        base.add(PASSAGES)
    base = shelf.read()
    assert base.search([]) == []
    assert base.search(["?!", " ", "insulin"], 1)[:2] == [[], []]
    assert len(base.search(["what is it"], 2)[0]) == 2


def test_the_arguments_of_a_teacher_open_a_store(shelf: Shelf) -> None:
    with shelf.write() as base:
        base.add(PASSAGES)
    arguments = KnowledgeArguments(store=str(shelf.folder), encoder=str(ENCODER), passages=2)
    search, fingerprint = arguments.open("cpu")
    ((nearest, _),) = search(["insulin"])
    assert nearest.text == TEXTS[1]
    ids = [int(digest([each.book, each.section, each.page, each.text]), 16) for each in PASSAGES]
    assert fingerprint == f"{shelf.encoder.fingerprint}:{digest(sorted(ids))}:2"
    other = Shelf(shelf.folder.parent / "other", shelf.encoder)
    with other.write() as base:
        base.add([*PASSAGES[:-1], Passage.of("Book", "", 1, "Zopiclone 75 mg is for short use only.")])
    changed = KnowledgeArguments(store=str(other.folder), encoder=str(ENCODER), passages=2)
    assert changed.open("cpu")[1] != fingerprint, "as many passages, one with another dose"
