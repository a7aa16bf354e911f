"""The recipe that builds the knowledge store, by its documented command."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.pdf import write_pdf
from programs import ENCODER, ROOT, error_line, needs_encoder, run_recipe

from automedeval.distillation.store import KnowledgeBase
from automedeval.models.embeddings import Encoder

URL = os.environ.get("QDRANT_URL")

pytestmark = needs_encoder


class Shelf:
    """A folder of two books and the store that is made of them."""

    def __init__(self, folder: Path):
        self.books, self.store, self.collection = folder / "books", folder / "store", f"test-{uuid.uuid4().hex[:8]}"
        self.books.mkdir()
        (self.books / "medical.md").write_text(
            "# Small medicine\n\n"
            + "".join(f"## Part {n}\n\nFact {n} stands here. More of {n}.\n\n" for n in range(20)),
            encoding="utf-8",
        )
        (self.books / "evaluation.md").write_text("# Judging\n\nA good answer is honest.\n", encoding="utf-8")

    def arguments(self, *more: object, store: Path | None = None) -> list[object]:
        place = ["--qdrant_url", URL] if URL else ["--store", store or self.store]
        fixed = ["--books", self.books, "--encoder", ENCODER, "--collection", self.collection, "--dtype", "float32"]
        return [*fixed, *place, *more]

    def build(self, *more: object) -> subprocess.CompletedProcess:
        return run_recipe("build_store", *self.arguments(*more))

    def open(self, store: Path | None = None) -> KnowledgeBase:
        encoder = Encoder(str(ENCODER), dtype="float32")
        return KnowledgeBase(None if URL else store or self.store, encoder, URL, self.collection)

    def content(self, store: Path | None = None) -> dict[str, tuple]:
        """Return payload and vectors of every passage by its id."""
        with self.open(store) as base:
            points = base._client.scroll(self.collection, limit=1000, with_payload=True, with_vectors=True)[0]
        return {str(point.id): (point.payload, point.vector["dense"], point.vector["bm25"]) for point in points}


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    if URL:
        with shelf.open() as base:
            base._client.delete_collection(shelf.collection)


def test_books_become_a_store_and_only_news_is_added(shelf: Shelf) -> None:
    done = shelf.build()
    assert done.returncode == 0, done.stderr
    assert "2 books (evaluation: 1, medical: 1) → 21 passages, 0 there already, 21 added\n" in done.stdout
    assert f"{shelf.collection} holds 21 passages" in done.stdout
    with shelf.open() as base:
        (found,) = base.search(["an honest answer"], 1, kind="evaluation")
    assert (found[0].book, found[0].kind, found[0].text) == ("Judging", "evaluation", "A good answer is honest.")

    before = shelf.content()
    text = (shelf.books / "medical.md").read_text().replace("Fact 3 stands", "Fact 3 stood")
    (shelf.books / "medical.md").write_text(text)
    (shelf.books / "cover.png").write_bytes(b"")
    done = shelf.build()
    assert "21 passages, 20 there already, 1 added\n" in done.stdout
    assert "1 files of other kinds skipped (.png: 1)" in done.stdout
    assert (
        "1 passages in the store are not of these books (Small medicine: 1): kept; --prune removes them" in done.stdout
    )
    assert len(shelf.content()) == 22
    done = shelf.build("--prune")
    assert "(Small medicine: 1): removed" in done.stdout
    after = shelf.content()
    assert len(set(before) - set(after)) == len(set(after) - set(before)) == 1
    assert all(after[name] == before[name] for name in set(before) & set(after))


@pytest.mark.skipif(URL is not None, reason="compares two folders")
def test_a_killed_build_ends_the_same(shelf: Shelf, tmp_path: Path) -> None:
    (shelf.books / "long.txt").write_text(" ".join(f"Sentence number {n} is about {n * 7}." for n in range(540)))
    command = [sys.executable, ROOT / "recipes" / "build_store.py", *shelf.arguments("--passage_tokens", 12)]
    command += ["--overlap_tokens", "0"]
    storage = shelf.store / "collection" / shelf.collection / "storage.sqlite"
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as killed:
        while not (storage.exists() and storage.stat().st_size > 50_000):  # some passages are there
            assert killed.poll() is None
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    some = len(shelf.content())
    options = ["--passage_tokens", 12, "--overlap_tokens", 0]
    done = shelf.build(*options)
    whole = tmp_path / "whole"
    assert run_recipe("build_store", *shelf.arguments(*options, store=whole)).returncode == 0
    assert 0 < some < len(shelf.content(whole))
    assert f"{some:,} there already" in done.stdout
    assert shelf.content() == shelf.content(whole)


def test_kinds_pages_and_a_configuration_file(shelf: Shelf, tmp_path: Path) -> None:
    write_pdf(shelf.books / "policy.pdf", [["Answers are checked."], []])
    config = tmp_path / "run.yaml"
    config.write_text(
        f"books: [{shelf.books / 'medical.md'}, {shelf.books / 'policy.pdf'}]\nkinds: [policy.pdf=evaluation]\n"
        + "".join(f"{name[2:]}: {value}\n" for name, value in zip(*[iter(shelf.arguments()[2:])] * 2))
    )
    done = run_recipe("build_store", "--config", config)
    assert "2 books (evaluation: 1, medical: 1) → 21 passages" in done.stdout, done.stderr
    assert "policy.pdf: 1 pages without text left out" in done.stdout
    if not URL:
        run = json.loads((shelf.store / f"{shelf.collection}.run.json").read_text())
        assert run["arguments"]["kinds"] == ["policy.pdf=evaluation"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kinds", "medical.md"], "--kinds takes FILE_NAME=medical or FILE_NAME=evaluation, not 'medical.md'"),
        (["--kinds", "x.md=medical"], "no book is called 'x.md'"),
        (["--passage_tokens", 300], "all-MiniLM-L6-v2 reads no more than 254 tokens"),
        (["--overlap_tokens", 200], "less than --passage_tokens 200"),
        (["--books", "nowhere.md"], "nowhere.md: no such file"),
        (["--encoder", "models/nowhere"], "no checkpoint at models/nowhere"),
        (["--qdrant_url", "http://localhost:9", "--store", "x"], "one of them"),
    ],
)
def test_what_cannot_be_is_told_before_a_store_is_made(tmp_path: Path, arguments: list[object], told: str) -> None:
    shelf = Shelf(tmp_path)
    assert told in error_line(shelf.build(*arguments))
    assert not shelf.store.exists()


def test_a_book_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    write_pdf(shelf.books / "locked.pdf", [["Secret."]], password="key")
    assert "locked.pdf: the PDF is encrypted" in error_line(shelf.build())
    assert not shelf.store.exists()
