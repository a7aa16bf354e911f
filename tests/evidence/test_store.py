"""The knowledge store: what is kept, what is found, and what is refused, in a folder and on a server."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from doubles.qdrant_server import QdrantServer
from programs import ENCODER, module_fixture, needs_encoder
from tables import rows_of

from automedeval.evidence import store
from automedeval.evidence.arguments import KnowledgeArguments
from automedeval.evidence.books import Passage
from automedeval.evidence.store import COLLECTION, KnowledgeBase, open_writer
from automedeval.models.arguments import EncoderArguments
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError, digest

TEXTS = rows_of(__file__)["texts"]
PASSAGES = [Passage.of("Book", "", 1, text) for text in TEXTS]
HOLD = "import sys, qdrant_client; c = qdrant_client.QdrantClient(path=sys.argv[1]); print('open', flush=True); input()"

pytestmark = needs_encoder


@module_fixture
def encoder():
    return Encoder(str(ENCODER), device="cpu")


class Shelf:
    def __init__(self, folder: Path, encoder: Encoder, url: str | None = None):
        self.folder, self.encoder, self.url = folder, encoder, url

    def write(self, tokens: int = 200):
        return open_writer(self.folder, self.encoder, tokens, self.url)

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


def test_a_search_finds_by_meaning_with_cosines(shelf):
    queries = ["low mood medicine", "insulin and blood sugar"]
    read = shelf.filled()
    assert read.search([]) == []
    blank, low_mood, sugar = read.search(["?!", *queries], 5)
    assert blank == []  # a query without a word finds nothing
    assert low_mood[0] == replace(PASSAGES[2], score=low_mood[0].score)
    assert sugar[0].text == TEXTS[1]
    cosines = shelf.encoder.encode(TEXTS) @ shelf.encoder.encode(queries[:1])[0]
    scores = [passage.score for passage in low_mood]
    np.testing.assert_allclose(scores, sorted(cosines, reverse=True), rtol=1e-5)


def test_what_is_there_or_repeated_is_not_added(shelf):
    done = []
    with shelf.write() as base:
        base.add(PASSAGES[:2])
    with shelf.write() as base:
        counts = base.add([*PASSAGES, PASSAGES[0]], done.append)
    assert counts == {"passages": 6, "repeated": 1, "there": 2, "added": 3}
    assert sum(done) == 6


def test_another_encoder_or_length_of_passages_is_refused(shelf):
    shelf.filled()
    with pytest.raises(RecordError, match=r"built with tokens 200 .*, not 100"):
        shelf.write(100).__enter__()
    other = mock.Mock(wraps=shelf.encoder, fingerprint="0" * 12)
    with pytest.raises(RecordError, match=r"built with fingerprint \w+ .*, not 0{12}"):
        shelf.read(other)
    shelf.filled()  # the refusals closed the store


def test_a_missing_store_is_refused(shelf):
    with pytest.raises(RecordError, match="build one with recipes"):
        shelf.read()
    assert not shelf.folder.exists()


@pytest.mark.parametrize("file", [f"collection/{COLLECTION}/storage.sqlite", "meta.json"])
def test_a_damaged_folder_is_refused(file, folder):
    folder.filled()
    (folder.folder / file).write_text('{"collections": ' * 1000)
    with pytest.raises(RecordError, match="store: cannot be opened"):
        folder.read()


def test_a_server_that_does_not_answer_is_told(folder):
    for url, error in (("http://localhost:9", "refused"), ("nowhere:port", "check --qdrant_url")):
        with pytest.raises(RecordError, match=error):
            Shelf(folder.folder, folder.encoder, url).read()
    with QdrantServer() as server:
        base = Shelf(folder.folder, folder.encoder, server.url).filled()
    with pytest.raises(RecordError, match=rf"^{server.url}: store: "):
        base.search(["insulin"])


def test_readers_share_a_folder_with_each_other_and_with_a_writer(folder):
    first = folder.filled()
    second = folder.read()
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
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as holder:
        assert holder.stdout.readline() == "open\n"
        monkeypatch.setattr(store, "PATIENCE", 0)
        for attempt in (folder.read, folder.write().__enter__):
            with pytest.raises(RecordError, match="another process is using this store"):
                attempt()
        monkeypatch.setattr(store, "PATIENCE", 60)
        threading.Timer(0.3, holder.kill).start()
        assert folder.read().content == digest([])


def test_the_arguments_of_a_teacher_open_a_store(shelf):
    shelf.filled()
    arguments = KnowledgeArguments(store=str(shelf.folder), qdrant_url=shelf.url)
    search, _ = arguments.open(EncoderArguments(str(ENCODER)), "cpu")
    assert search(["insulin"])[0][0].text == TEXTS[1]
