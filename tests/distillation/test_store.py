"""The knowledge store: what is kept, what is found, and what is refused."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from programs import ENCODER, needs_encoder

from automedeval.distillation import store
from automedeval.distillation.books import Chunking, Passage
from automedeval.distillation.store import KnowledgeBase, StoreWriter
from automedeval.models.embeddings import Encoder
from automedeval.records import RecordError

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


def writer(folder: Path, encoder: Encoder, tokens: int = 200) -> StoreWriter:
    return StoreWriter(folder / "store", encoder, None, Chunking(tokens))


def counts(*numbers: int) -> Counter[str]:
    return Counter(dict(zip(("passages", "repeated", "there", "added"), numbers)))


def test_a_search_finds_by_meaning_with_cosines(encoder: Encoder, tmp_path: Path) -> None:
    with writer(tmp_path, encoder) as base:
        assert base.add(PASSAGES) == counts(5, 0, 0, 5)
    queries = ["low mood medicine", "insulin and blood sugar"]
    low_mood, sugar = KnowledgeBase(tmp_path / "store", encoder).search(queries, 5)
    assert low_mood[0] == replace(PASSAGES[2], score=low_mood[0].score)
    assert sugar[0].text == TEXTS[1]
    cosines = encoder.encode(TEXTS) @ encoder.encode(queries[:1])[0]
    np.testing.assert_allclose([passage.score for passage in low_mood], sorted(cosines, reverse=True), rtol=1e-5)


def test_only_missing_passages_are_added(encoder: Encoder, tmp_path: Path) -> None:
    done = []
    with writer(tmp_path, encoder) as base:
        base.add(PASSAGES[:2])
    with writer(tmp_path, encoder) as base:
        assert base.add([*PASSAGES, PASSAGES[0]], done.append) == counts(6, 1, 2, 3)
        assert sum(done) == 6
    with writer(tmp_path, encoder) as base, mock.patch.object(encoder, "encode") as encode:
        assert base.add(PASSAGES) == counts(5, 0, 5, 0)
        assert not encode.called
        assert set(base.books) == {passage.id for passage in PASSAGES}
    assert KnowledgeBase(tmp_path / "store", encoder).search(["insulin"], 1)[0][0].text == TEXTS[1]


def test_windows_are_encoded_whole_whatever_is_stored(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WINDOW", 3)
    with writer(tmp_path, encoder) as base:
        base.add(PASSAGES[1:2])
        with mock.patch.object(encoder, "encode", wraps=encoder.encode) as encode:
            base.add(PASSAGES)
    assert [list(call.args[0]) for call in encode.call_args_list] == [TEXTS[:3], TEXTS[3:]]


def test_another_encoder_or_chunking_is_refused(encoder: Encoder, tmp_path: Path) -> None:
    with writer(tmp_path, encoder):
        pass
    with pytest.raises(RecordError, match=r"built with tokens 200, not 100; give the same, or another --store"):
        writer(tmp_path, encoder, 100).__enter__()
    other = mock.Mock(wraps=encoder, fingerprint="0" * 12)
    other.name = "other"
    with pytest.raises(RecordError, match=r"fingerprint \w+, not 0{12} \(encoder all-MiniLM-L6-v2, not other\)"):
        KnowledgeBase(tmp_path / "store", other)


def test_missing_damaged_and_locked_stores_are_refused(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"build one with recipes/build_store.py"):
        KnowledgeBase(tmp_path / "store", encoder)
    assert not (tmp_path / "store").exists()
    with writer(tmp_path, encoder), pytest.raises(RecordError, match="another process is writing this file"):
        writer(tmp_path, encoder).__enter__()
    for file, content, error in (
        ("passages.jsonl", '{"id": "1", "vector": "AAAA"}\n', r"passages.jsonl:1: no passage with a vector"),
        ("store.json", '{"encoder": ', r"store.json: cannot be read .*; remove the store and build it again"),
    ):
        (tmp_path / "store" / file).write_text(content)
        with pytest.raises(RecordError, match=error):
            KnowledgeBase(tmp_path / "store", encoder)


def test_a_query_without_a_word_finds_nothing(encoder: Encoder, tmp_path: Path) -> None:
    with writer(tmp_path, encoder) as base:
        base.add(PASSAGES)
    base = KnowledgeBase(tmp_path / "store", encoder)
    assert base.search([]) == []
    assert base.search(["?!", " ", "insulin"], 1)[:2] == [[], []]
    assert len(base.search(["what is it"], 2)[0]) == 2
