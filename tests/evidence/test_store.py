"""The knowledge store: what is kept, what is found, and what is refused, in a folder and on a server."""

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from doubles.qdrant_server import QdrantServer
from programs import ENCODER, needs_encoder
from tables import rows_of

from automedeval.evidence import store
from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.evidence.books import Passage
from automedeval.evidence.store import COLLECTION, KnowledgeBase, StoreWriter
from automedeval.models.arguments import EncoderArguments
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, digest

TEXTS = rows_of(__file__)["texts"]
PASSAGES = [Passage.of("Book", "", 1, text) for text in TEXTS]
HOLD = "import sys, qdrant_client; c = qdrant_client.QdrantClient(path=sys.argv[1]); print('open', flush=True); input()"

pytestmark = needs_encoder


@pytest.fixture(scope="module")
def encoder():
    return Encoder(str(ENCODER), device="cpu")


class Shelf:
    def __init__(self, folder: Path, encoder: Encoder, url: str | None = None):
        self.folder, self.encoder, self.url = folder, encoder, url

    def write(self, tokens: int = 200) -> StoreWriter:
        return StoreWriter(self.folder, self.encoder, tokens, self.url)

    def filled(self) -> KnowledgeBase:
        """Return the store with the passages above in it."""
        with self.write() as base:
            base.add(PASSAGES)
        return self.read()

    def read(self, encoder: Encoder | None = None) -> KnowledgeBase:
        return KnowledgeBase(self.folder, lambda: encoder or self.encoder, self.url)


@pytest.fixture
def folder(tmp_path, encoder):
    return Shelf(tmp_path / "store", encoder)


@pytest.fixture(params=["folder", "server"])
def shelf(request, folder):
    if request.param == "folder":
        yield folder
        return
    with QdrantServer() as server:
        yield Shelf(folder.folder, folder.encoder, server.url)


def counts(*numbers: int) -> Counter[str]:
    return Counter(dict(zip(("passages", "repeated", "there", "added"), numbers)))


def test_a_search_finds_by_meaning_with_cosines(shelf):
    with shelf.write() as base:
        assert base.add(PASSAGES) == counts(5, 0, 0, 5)
    queries, read = ["low mood medicine", "insulin and blood sugar"], shelf.read()
    assert read.search([]) == []
    blank, low_mood, sugar = read.search(
        ["?!", *queries], 5
    )  # a query without a word finds nothing
    assert blank == []
    assert low_mood[0] == replace(PASSAGES[2], score=low_mood[0].score)
    assert sugar[0].text == TEXTS[1]
    cosines = shelf.encoder.encode(TEXTS) @ shelf.encoder.encode(queries[:1])[0]
    np.testing.assert_allclose(
        [passage.score for passage in low_mood], sorted(cosines, reverse=True), rtol=1e-5
    )


def test_only_missing_passages_are_added(shelf):
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


def test_windows_are_encoded_whole_whatever_is_stored(folder, monkeypatch):
    monkeypatch.setattr(store, "WINDOW", 3)
    with folder.write() as base:
        base.add(PASSAGES[1:2])
        with mock.patch.object(folder.encoder, "encode", wraps=folder.encoder.encode) as encode:
            base.add(PASSAGES)
    assert [list(call.args[0]) for call in encode.call_args_list] == [TEXTS[:3], TEXTS[3:]]


def test_another_encoder_or_length_of_passages_is_refused(shelf):
    with shelf.write():
        pass
    with pytest.raises(RecordError, match=r"built with tokens 200, not 100: name another --store"):
        shelf.write(100).__enter__()
    other = mock.Mock(wraps=shelf.encoder, fingerprint="0" * 12)
    other.name = "other"
    with pytest.raises(
        RecordError, match=r"fingerprint \w+, not 0{12} \(encoder all-MiniLM-L6-v2, not other\)"
    ):
        shelf.read(other)
    with shelf.write():  # the refusals closed the store
        pass


def test_missing_and_damaged_stores_are_refused(shelf):
    with pytest.raises(RecordError, match=r"build one with recipes/build_store.py"):
        shelf.read()
    assert not shelf.folder.exists()
    if shelf.url:
        return
    shelf.filled()
    for file in (f"collection/{COLLECTION}/storage.sqlite", "meta.json"):
        (shelf.folder / file).write_text('{"collections": ' * 1000)
        with pytest.raises(
            RecordError, match=r"store: cannot be opened .* remove it and build it again"
        ):
            shelf.read()


def test_a_server_that_does_not_answer_is_told(folder):
    for url, error in (("http://localhost:9", "refused"), ("nowhere:port", "check --qdrant_url")):
        with pytest.raises(RecordError, match=error):
            Shelf(folder.folder, folder.encoder, url).read()
    with QdrantServer() as server:
        base = Shelf(folder.folder, folder.encoder, server.url).filled()
    with pytest.raises(RecordError, match=rf"^{server.url}: store: "):
        base.search(["insulin"])


def test_readers_share_a_folder_with_each_other_and_with_a_writer(folder):
    first, second = folder.filled(), folder.read()
    with folder.write() as base:
        base.add([Passage.of("Book", "", 2, "Measles are caught once.")])
        assert first.content == second.content
    with ThreadPoolExecutor(8) as threads:  # as the dialogues of an endpoint search
        found = list(threads.map(lambda text: first.search([text], 1)[0][0].text, TEXTS * 8))
    assert found == TEXTS * 8
    assert folder.read().content != first.content


def test_a_folder_that_is_in_use_is_waited_for_and_then_told(folder, monkeypatch):
    with folder.write():
        pass
    command = [sys.executable, "-c", HOLD, str(folder.folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "open\n"
        monkeypatch.setattr(store, "PATIENCE", 0)
        for attempt in (folder.read, folder.write().__enter__):
            with pytest.raises(
                RecordError,
                match="another process is using this store: wait for it, or put the store",
            ):
                attempt()
        monkeypatch.setattr(store, "PATIENCE", 60)
        threading.Timer(0.3, holder.kill).start()
        assert folder.read().content == digest([])


def test_the_arguments_of_a_teacher_open_a_store(shelf):
    shelf.filled()
    arguments = KnowledgeArguments(store=str(shelf.folder), qdrant_url=shelf.url, passages=2)
    search, fingerprint = arguments.open(EncoderArguments(str(ENCODER)), "cpu")
    ((nearest, _),) = search(["insulin"])
    assert nearest.text == TEXTS[1]
    ids = [int(digest([each.book, each.section, each.page, each.text]), 16) for each in PASSAGES]
    assert fingerprint == f"{shelf.encoder.fingerprint}:{digest(sorted(ids))}:2"
    other = Shelf(shelf.folder.parent / "other", shelf.encoder, shelf.url)
    with other.write() as base:
        base.add(
            [*PASSAGES[:-1], Passage.of("Book", "", 1, "Zopiclone 75 mg is for short use only.")]
        )
    changed = KnowledgeArguments(store=str(other.folder), qdrant_url=shelf.url, passages=2)
    assert changed.open(EncoderArguments(str(ENCODER)), "cpu")[1] != fingerprint, (
        "as many passages, one with another dose"
    )
