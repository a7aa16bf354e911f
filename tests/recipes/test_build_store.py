"""The recipe that builds the knowledge store, by its documented command."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from doubles.pdf import write_pdf
from doubles.qdrant_server import QdrantServer
from factories import read_json
from programs import (
    ENCODER,
    failed,
    needs_encoder,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from tables import each_row, holds_all, rows_of

from automedeval.evidence.store import COLLECTION, KnowledgeBase
from automedeval.models.embeddings import Encoder

pytestmark = needs_encoder


class Shelf:
    """A folder of two books and the store that is made of them."""

    def __init__(self, folder: Path):
        self.books = folder / "books"
        self.store = folder / "store"
        self.books.mkdir()
        parts = [f"## Part {n}\n\nFact {n} stands here. More of {n}.\n\n" for n in range(20)]
        self.write("medical.md", "# Small medicine\n\n" + "".join(parts))
        self.write("evaluation.md", "# Judging\n\nA good answer is honest.\n")

    def write(self, name: str, text: str) -> None:
        (self.books / name).write_text(text, encoding="utf-8")

    def build(self, **options: object) -> subprocess.CompletedProcess:
        usual = {"books": self.books, "encoder": ENCODER, "store": self.store}
        return run_recipe("build_store", **usual | options)

    def content(self, store: Path | None = None) -> dict[str, tuple[dict, list[float]]]:
        """Return every passage and its vector by its id, as Qdrant has them."""
        from qdrant_client import QdrantClient

        with closing(QdrantClient(path=str(store or self.store))) as client:
            points, _ = client.scroll(COLLECTION, limit=1000, with_vectors=True)
        return {point.payload["id"]: (point.payload, point.vector) for point in points}

    def nearest(self, query: str, url: str | None = None) -> tuple[str, str]:
        base = KnowledgeBase(self.store, lambda: Encoder(str(ENCODER)), url)
        ((passage,),) = base.search([query], 1)
        return passage.book, passage.text


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


HONEST = ("Judging", "A good answer is honest.")


def test_books_become_a_store_and_only_new_passages_are_added(shelf):
    added = "2 books → 21 passages, 0 there already, 21 added\n"
    told(shelf.build(), added, f"{shelf.store} holds 21 passages")
    assert shelf.nearest("an honest answer") == HONEST

    before = shelf.content()
    text = (shelf.books / "medical.md").read_text()
    shelf.write("medical.md", text.replace("Fact 3 stands", "Fact 3 stood"))
    (shelf.books / "cover.png").write_bytes(b"")
    told(
        shelf.build(),
        "21 passages, 20 there already, 1 added\n",
        "1 files of other kinds skipped (.png: 1)",
        "1 passages in the store are not of these books (Small medicine: 1)",
    )
    after = shelf.content()
    assert len(after) == 22
    assert before.items() <= after.items()


def test_a_store_is_built_on_a_server(shelf, monkeypatch):
    with QdrantServer(key="secret") as server:
        failed(shelf.build(qdrant_url=server.url), "Must provide an API key")
        monkeypatch.setenv("QDRANT_API_KEY", "secret")
        holds = f"{server.url}: store holds 21 passages"
        for counts in ("0 there already, 21 added\n", "21 there already, 0 added\n"):
            told(shelf.build(qdrant_url=server.url), f"21 passages, {counts}", holds)
        assert shelf.nearest("an honest answer", server.url) == HONEST
    assert {file.name for file in shelf.store.iterdir()} == {"books.md", "run.json"}


def test_a_stopped_build_ends_the_same(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("automedeval.evidence.store.WINDOW", 32)
    parts = [f"## {n}\nSentence number {n} is about {n * 7}." for n in range(80)]
    shelf.write("long.md", "\n\n".join(parts))
    with stopped("qdrant_client.local.persistence.CollectionPersistence.persist", 40):
        shelf.build()
    assert len(shelf.content()) == 40
    told(shelf.build(), "40 there already")
    whole = tmp_path / "whole"
    succeeded(shelf.build(store=whole))
    assert shelf.content() == shelf.content(whole)


def test_a_configuration_file_names_the_books_and_their_kinds(shelf, tmp_path):
    write_pdf(shelf.books / "policy.pdf", [["Answers are checked."], []])
    shelf.write("leaflet.txt", "Rest helps. Water | tea help, too.\n")
    config = tmp_path / "run.yaml"
    books = f"[how to judge={shelf.books / 'evaluation.md'}, medical={shelf.books}]"
    config.write_text(f"books: {books}\nencoder: {ENCODER}\nstore: {shelf.store}\n")
    done = run_recipe("build_store", config=config)
    table = (shelf.store / "books.md").read_text(encoding="utf-8")
    left_out = "policy.pdf: 1 pages without text left out"
    told(done, "4 books → 23 passages", left_out, table)
    holds_all(table, rows_of(__file__)["table of books"])
    assert read_json(shelf.store / "run.json")["arguments"]["encoder"] == str(ENCODER)


@each_row("options, error")
def test_faults_are_told_before_a_store_is_made(shelf, options, error):
    failed(shelf.build(**options), error)
    assert not shelf.store.exists()
