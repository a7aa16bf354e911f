"""The knowledge store: what is kept, what is found, and what is refused. With QDRANT_URL set, the same on that server."""

import math
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from programs import ENCODER, needs_encoder

from automedeval.distillation import store
from automedeval.distillation.books import KINDS, Chunking, Passage
from automedeval.distillation.store import KnowledgeBase
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError

URL = os.environ.get("QDRANT_URL")
CHUNKING = Chunking()
TEXTS = {
    "Aspirin is chewed at the first sign of a heart attack.": "medical",
    "Insulin lowers the sugar in the blood.": "medical",
    "Sertraline takes four to six weeks to lift a depression.": "medical",
    "A good answer names its sources and admits doubt.": "evaluation",
    "Vaccines against measles are given twice.": "medical",
    "Zopiclone 7.5 mg is for short use only.": "medical",
}

pytestmark = needs_encoder


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(str(ENCODER), device="cpu", dtype="float32")


@pytest.fixture
def opened(tmp_path: Path, encoder: Encoder) -> Iterator[Callable[..., KnowledgeBase]]:
    """Return what opens one and the same collection, in a folder or on the server; drop it afterwards."""
    name, bases = f"test-{uuid.uuid4().hex[:8]}", []

    def open_base(chunking: Chunking | None = CHUNKING, own: Encoder = encoder) -> KnowledgeBase:
        bases.append(KnowledgeBase(None if URL else tmp_path / "store", own, URL, name, chunking))
        return bases[-1]

    yield open_base
    if URL and bases:
        bases[-1]._client.delete_collection(name)
    for base in bases:
        base.close()


def counts(*numbers: int) -> Counter[str]:
    return Counter(dict(zip(("passages", "repeated", "there", "added"), numbers)))


def passages() -> list[Passage]:
    return [Passage.of("Book", kind, "", 1, text) for text, kind in TEXTS.items()]


def test_it_finds_by_meaning_and_by_words(opened: Callable[..., KnowledgeBase]) -> None:
    base = opened()
    assert base.add(passages()) == counts(6, 0, 0, 6)
    (found,) = base.search(["low mood medicine"], mode="dense")
    assert "depression" in found[0].text
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    (found,) = base.search(["vaccine for measle"], mode="bm25")  # plural and singular meet
    assert [one.text for one in found] == ["Vaccines against measles are given twice."]  # no other shares a word
    for mode in ("dense", "bm25"):
        first, second = base.search(["zopiclone 7.5 mg", "insulin and blood sugar"], 1, mode)
        assert ["Zopiclone" in first[0].text, "Insulin" in second[0].text] == [True, True]
    assert first[0] == replace(passages()[5], score=first[0].score)  # nothing of it is lost


def test_bm25_scores_are_those_of_the_formula(opened: Callable[..., KnowledgeBase]) -> None:
    base = opened()
    base.add(passages())
    (found,) = base.search(["measles"], mode="bm25")
    words = 5  # vaccine, against, measle, given, twice
    weight = 2.2 / (1 + 1.2 * (0.25 + 0.75 * words / 80))  # 80 words on average, of 200 tokens
    rarity = math.log((6 - 1 + 0.5) / (1 + 0.5) + 1)
    assert found[0].score == pytest.approx(weight * rarity, rel=1e-4)


@pytest.mark.skipif(bool(URL), reason="the embedded store alone has an index of its own")
@pytest.mark.parametrize("kind", [None, "medical"])
def test_an_embedded_store_finds_what_qdrant_finds(opened: Callable[..., KnowledgeBase], kind: str | None) -> None:
    base, rng = opened(), np.random.default_rng(0)
    words = ["aspirin", "insulin", "zopiclone", "measles", "heart", "sugar", "sleep", "vaccine", "blood", "dose"]
    texts = [
        " ".join(rng.choice(words, size)) for size in range(3, 63)
    ]  # of other lengths, so that no two scores are equal
    base.add([Passage.of("Book", KINDS[number % 2], "", 1, text) for number, text in enumerate(texts)])
    for query in ("zopiclone dose", "sugar in the blood", "measles vaccine for the heart"):
        request = base._request(store._query_words(query), 8, "bm25", kind)
        wanted = base._client.query_batch_points(base.collection, [request])[0].points
        (found,) = base.search([query], 8, "bm25", kind)
        assert [(one.id, one.score) for one in found] == [
            (str(one.id), pytest.approx(one.score, rel=1e-4)) for one in wanted
        ]
    base.remove([found[0].id])
    assert found[0].id not in {one.id for one in base.search([query], 60, "bm25")[0]}


def test_one_kind_alone_is_searched(opened: Callable[..., KnowledgeBase]) -> None:
    base = opened()
    base.add(passages())
    for mode in ("bm25", "dense"):
        assert {one.kind for one in base.search(["what is a good answer about blood?"], 10, mode, "evaluation")[0]} == {
            "evaluation"
        }
        assert {one.kind for one in base.search(["what is a good answer about blood?"], 10, mode, "medical")[0]} == {
            "medical"
        }


def test_only_what_is_missing_is_added(opened: Callable[..., KnowledgeBase], encoder: Encoder) -> None:
    some, done = passages(), []
    with opened() as base:
        base.add(some[:2])
    with opened() as base:
        assert base.add([*some, some[0]], done.append) == counts(7, 1, 2, 4)
        assert sum(done) == 7
    with opened() as base:
        encoded = mock.Mock(wraps=encoder.encode)
        with mock.patch.object(encoder, "encode", encoded):
            assert base.add(some) == counts(6, 0, 6, 0)
        assert not encoded.called
        assert len(base) == 6
    with opened(None) as base:
        assert base.search(["insulin"], 1)[0][0].text == some[1].text


def test_what_is_there_does_not_change_what_is_added(
    opened: Callable[..., KnowledgeBase], encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WINDOW", 4)
    seen = []
    monkeypatch.setattr(
        encoder, "encode", lambda texts, *rest: seen.append(list(texts)) or Encoder.encode(encoder, texts)
    )
    base = opened()
    base.add(passages()[1:2])
    seen.clear()
    base.add(passages())
    texts = [passage.text for passage in passages()]
    assert seen == [texts[:4], texts[4:]]  # whole windows, or a passage's vector would depend on when it was stored


def test_passages_of_other_books_are_told_and_removed(opened: Callable[..., KnowledgeBase]) -> None:
    base = opened()
    base.add([*passages(), Passage.of("Old", "medical", "", None, "Leeches help.")])
    others = base.others({passage.id for passage in passages()})
    assert list(others.values()) == ["Old"]
    base.remove(list(others))
    assert (len(base), base.others({passage.id for passage in passages()})) == (6, {})


def test_another_encoder_or_chunking_is_refused(opened: Callable[..., KnowledgeBase], encoder: Encoder) -> None:
    with opened() as base:
        base.add(passages())
    with pytest.raises(RecordError, match=r"built with tokens 200, not 100; give the same, or another --collection"):
        opened(Chunking(100))
    other = mock.Mock(wraps=encoder, fingerprint="0" * 12)
    other.name = "other"
    with pytest.raises(RecordError, match=r"fingerprint \w+, not 0{12} \(encoder all-MiniLM-L6-v2, not other\)"):
        opened(None, other)
    with opened(None) as base:  # the refusals let the store go
        assert len(base) == 6


def test_what_is_not_there_is_told(opened: Callable[..., KnowledgeBase], encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"build(ing)? one with recipes/build_store.py"):
        opened(None)
    assert not (tmp_path / "store").exists()
    with pytest.raises(RecordError, match="localhost:9"):
        KnowledgeBase(None, encoder, "http://localhost:9")
    with pytest.raises(RecordError, match="not both"):
        KnowledgeBase(None, encoder)


def test_a_store_in_use_and_a_damaged_one_are_told(encoder: Encoder, tmp_path: Path) -> None:
    hold = "import sys, qdrant_client; c = qdrant_client.QdrantClient(path=sys.argv[1]); print('open', flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(RecordError, match="another process uses this store"):
            KnowledgeBase(tmp_path / "store", encoder, chunking=Chunking())
        holder.communicate("\n")
    KnowledgeBase(tmp_path / "store", encoder, chunking=Chunking()).close()
    (tmp_path / "store" / "meta.json").write_text('{"collections": ')
    with pytest.raises(RecordError, match="not a store, or a damaged one"):
        KnowledgeBase(tmp_path / "store", encoder)


def test_a_large_embedded_store_advises_a_server(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    base = KnowledgeBase(":memory:", encoder, chunking=Chunking())
    base.add(passages())
    assert base.advice is None
    monkeypatch.setattr(store, "MOST_LOCAL", 5)
    assert "docker run" in base.advice
    assert "6 passages" in base.advice


def test_odd_queries_find_nothing_or_are_told(opened: Callable[..., KnowledgeBase]) -> None:
    base = opened()
    base.add(passages())
    assert base.search([]) == []
    assert base.search(["?!", " ", "insulin"], 1)[:2] == [[], []]
    assert base.search(["what is it"], mode="bm25") == [[]]  # function words alone
    assert len(base.search(["what is it"], 2)[0]) == 2
    for wrong in ({"mode": "sparse"}, {"kind": "law"}, {"limit": 0}):
        with pytest.raises(RecordError, match=str(next(iter(wrong.values())))):
            base.search(["insulin"], **wrong)
