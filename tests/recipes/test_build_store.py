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
    error_line,
    failed,
    needs_encoder,
    run_recipe,
    stopped,
    succeeded,
    told,
)
from tables import rows_of

from automedeval.evidence.store import COLLECTION, KnowledgeBase
from automedeval.models.embeddings import Encoder

ROWS = rows_of(__file__)

pytestmark = needs_encoder


class Shelf:
    """A folder of two books and the store that is made of them."""

    def __init__(self, folder: Path):
        self.books, self.store = folder / "books", folder / "store"
        self.books.mkdir()
        parts = [f"## Part {n}\n\nFact {n} stands here. More of {n}.\n\n" for n in range(20)]
        (self.books / "medical.md").write_text(
            "".join(["# Small medicine\n\n", *parts]), encoding="utf-8"
        )
        (self.books / "evaluation.md").write_text(
            "# Judging\n\nA good answer is honest.\n", encoding="utf-8"
        )

    def arguments(self, *more: object) -> list[object]:
        return ["--books", self.books, "--encoder", ENCODER, "--store", self.store, *more]

    def build(self, *more: object) -> subprocess.CompletedProcess:
        return run_recipe("build_store", *self.arguments(*more))

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
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_books_become_a_store_and_only_new_passages_are_added(shelf: Shelf) -> None:
    done = shelf.build()
    told(
        done,
        "2 books → 21 passages, 0 there already, 21 added\n",
        f"{shelf.store} holds 21 passages",
    )
    assert shelf.nearest("an honest answer") == ("Judging", "A good answer is honest.")

    before = shelf.content()
    text = (shelf.books / "medical.md").read_text().replace("Fact 3 stands", "Fact 3 stood")
    (shelf.books / "medical.md").write_text(text)
    (shelf.books / "cover.png").write_bytes(b"")
    done = shelf.build()
    assert "21 passages, 20 there already, 1 added\n" in done.stdout
    assert "1 files of other kinds skipped (.png: 1)" in done.stdout
    assert "1 passages in the store are not of these books (Small medicine: 1)" in done.stdout
    after = shelf.content()
    assert len(after) == 22
    assert before.items() <= after.items()


def test_a_store_is_built_on_a_server(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with QdrantServer(key="secret") as server:
        assert error_line(shelf.build("--qdrant_url", server.url)).endswith(
            "Must provide an API key\"}}'"
        )
        monkeypatch.setenv("QDRANT_API_KEY", "secret")
        for there, added in ((0, 21), (21, 0)):
            done = shelf.build("--qdrant_url", server.url)
            assert (
                f"2 books → 21 passages, {there} there already, {added} added\n" in done.stdout
            ), done.stderr
        assert f"{server.url}: store holds 21 passages" in done.stdout
        assert shelf.nearest("an honest answer", server.url) == (
            "Judging",
            "A good answer is honest.",
        )
    assert sorted(file.name for file in shelf.store.iterdir()) == ["books.md", "run.json"]


def test_a_stopped_build_ends_the_same(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("automedeval.evidence.store.WINDOW", 32)
    (shelf.books / "long.md").write_text(
        "\n\n".join(f"## {n}\nSentence number {n} is about {n * 7}." for n in range(80))
    )
    with stopped("qdrant_client.local.persistence.CollectionPersistence.persist", 40):
        shelf.build()
    assert len(shelf.content()) == 40
    done = shelf.build()
    whole = tmp_path / "whole"
    succeeded(shelf.build("--store", whole))
    assert "40 there already" in done.stdout
    assert shelf.content() == shelf.content(whole)


def test_a_configuration_file_names_the_books_and_their_kinds(shelf: Shelf, tmp_path: Path) -> None:
    write_pdf(shelf.books / "policy.pdf", [["Answers are checked."], []])
    (shelf.books / "leaflet.txt").write_text("Rest helps. Water | tea help, too.\n")
    config = tmp_path / "run.yaml"
    config.write_text(
        f"books: [how to judge={shelf.books / 'evaluation.md'}, medical={shelf.books}]\n"
        + "".join(
            f"{name[2:]}: {value}\n" for name, value in zip(*[iter(shelf.arguments()[2:])] * 2)
        )
    )
    done = run_recipe("build_store", config=config)
    assert "4 books → 23 passages" in done.stdout, done.stderr
    assert "policy.pdf: 1 pages without text left out" in done.stdout
    table = (shelf.store / "books.md").read_text(encoding="utf-8")
    assert table in done.stdout
    words = (
        len((shelf.books / "medical.md").read_text().replace("#", "").split()) - 2 - 2 * 20
    )  # without headings
    assert [line for line in table.splitlines() if line.startswith("| ")][2:] == [
        "| Judging | how to judge | – | 5 | 1 |",
        "| leaflet | medical | – | 7 | 1 |",
        f"| Small medicine | medical | – | {words} | 20 |",
        "| policy | medical | 2 | 3 | 1 |",
    ]
    assert read_json(shelf.store / "run.json")["arguments"]["encoder"] == str(ENCODER)


@pytest.mark.parametrize(
    ("arguments", "error"), ROWS["test_faults_are_told_before_a_store_is_made"]
)
def test_faults_are_told_before_a_store_is_made(
    shelf: Shelf, arguments: list[object], error: str
) -> None:
    failed(shelf.build(*arguments), error)
    assert not shelf.store.exists()
