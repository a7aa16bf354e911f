"""The encoder: unit vectors, whatever the batches and the dtype; and what it refuses."""

import shutil

import numpy as np
import pytest
import torch
from doubles.tiny_bart import TEXTS as WORDS
from doubles.tiny_bart import build_roberta
from factories import change_json
from programs import ENCODER, ROOT, module_fixture, needs_encoder
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from automedeval.judges.small import ADAPTER, PACKAGED
from automedeval.models.cross_encoder import load_cross_encoder
from automedeval.models.embeddings import Encoder
from automedeval.models.library import Library
from automedeval.models.pair_reader import PairReader
from automedeval.records import RecordError

TEXTS = [
    "Aspirin thins the blood.",
    "",
    "Wash your hands. " * 100,
    "A fever in a baby under three months needs a doctor at once.",
    "Acetylsalicylic acid inhibits platelets.",
]

pytestmark = needs_encoder


@module_fixture
def exact() -> Encoder:
    return Encoder(str(ENCODER), device="cpu")


def test_vectors_tokens_and_pairs_are_the_librarys_own(exact):
    """The network in torch alone, with the small judge's adapter merged into it, beside sentence-transformers and peft."""
    library = Library(ENCODER, "cpu")
    vectors = exact.encode(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((5, exact.dimensions), np.float32)
    right, own_tokens = library.read(TEXTS)
    np.testing.assert_allclose(vectors, right, atol=1e-5)
    for (vector, tokens), same, own in zip(exact.encode_tokens(TEXTS), vectors, own_tokens):
        np.testing.assert_allclose(vector, same, atol=1e-6)
        np.testing.assert_allclose(tokens, torch.nn.functional.normalize(own, dim=1), atol=1e-5)
    pairs = [(one, two) for one in TEXTS for two in TEXTS]
    reader = PairReader(exact, PACKAGED / ADAPTER, tokens=64)
    network = load_cross_encoder(ENCODER, 64, PACKAGED / ADAPTER)
    expected = network.predict(pairs, convert_to_numpy=True, show_progress_bar=False)
    np.testing.assert_allclose(reader(pairs), expected, atol=1e-4)
    assert reader([]).shape == (0,)


def test_batches_keep_to_the_budget_and_change_nothing(exact, monkeypatch):
    done: list[int] = []
    usual = exact.encode(TEXTS)
    monkeypatch.setattr("automedeval.models.batches.BATCH_TOKENS_ON_CPU", 60)
    np.testing.assert_allclose(exact.encode(TEXTS, done.append), usual, atol=1e-5)
    # the long text exceeds the budget by itself; three of at most 18 tokens; one more
    assert done == [1, 3, 1]
    assert exact.encode([]).shape == (0, exact.dimensions)
    assert exact.count(TEXTS[:2]) == [exact.count([TEXTS[0]])[0], 0]


def test_the_fingerprint_is_of_weights_and_pooling(exact, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(ENCODER, copy)
    assert Encoder(str(copy), device="cpu").fingerprint == exact.fingerprint
    pooling = copy / "1_Pooling/config.json"
    other = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    change_json(pooling, **other)
    assert Encoder(str(copy), device="cpu").fingerprint != exact.fingerprint


def test_code_of_a_checkpoint_is_not_run(tmp_path):
    copy = shutil.copytree(ENCODER, tmp_path / "copy")
    (copy / "own.py").write_text("raise SystemExit('ran')")
    (copy / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "own.Encoder"}]'
    )
    with pytest.raises(RecordError, match=r"'own\.Encoder' is code inside the checkpoint"):
        Encoder(str(copy))


def test_what_cannot_be_loaded_is_told(tmp_path):
    with pytest.raises(RecordError, match="no checkpoint at models/nowhere"):
        Encoder("models/nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        RecordError, match=r"has no modules\.json, which says how tokens are pooled"
    ):
        Encoder(str(tmp_path))
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(RecordError, match="cannot be loaded"):
        Encoder(str(tmp_path))


def test_the_papers_encoder_takes_the_first_token_as_simcse_does(tmp_path):
    build_roberta(tmp_path)
    simcse = ROOT / "recipes/runs/automedeval-13b/simcse"
    shutil.copytree(simcse, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    network = AutoModel.from_pretrained(tmp_path).eval()
    pooling = tmp_path / "1_Pooling/config.json"
    pooling.write_text(pooling.read_text().replace("1024", str(network.config.hidden_size)))
    vectors = Encoder(str(tmp_path), "cpu").encode(WORDS)
    for text, vector in zip(WORDS, vectors, strict=True):
        with torch.no_grad():
            first = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0]
        expected = torch.nn.functional.normalize(first, dim=0)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_a_vocabulary_of_many_scripts_reads_short_words_that_it_cuts_into_letters(tmp_path):
    """It has longer tokens of these scripts, so it knows them; of Cyrillic it has letters alone, as a small one has."""
    pieces = ["<unk>", "▁", *"头痛열이дети", "发烧", "什么", "두통", "있어요", "약을"]
    scores = -np.arange(len(pieces), dtype=float)
    tokens = Tokenizer(Unigram(list(zip(pieces, scores.tolist())), unk_id=0))
    tokens.pre_tokenizer = Metaspace()
    folder = shutil.copytree(ENCODER, tmp_path / "encoder")
    special = {"unk_token": "<unk>", "pad_token": "▁"}
    PreTrainedTokenizerFast(tokenizer_object=tokens, **special).save_pretrained(folder)
    encoder = Encoder(str(tmp_path / "encoder"), device="cpu")
    cut = {text: tokens.encode(text).tokens for text in ("头痛", "열이", "дети")}
    assert cut == {"头痛": ["▁", "头", "痛"], "열이": ["▁", "열", "이"], "дети": ["▁", *"дети"]}
    assert encoder.reads(list(cut)) == [True, True, False]
