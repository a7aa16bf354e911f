"""The pooling of encoders that are plain checkpoints of transformers, beside transformers itself."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from doubles.tiny_bart import TEXTS, build_bert, build_roberta
from programs import error_line, run_recipe
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from automedeval.models.embeddings import POOLINGS, Encoder
from automedeval.records import RecordError

BUILDERS = {"bert": build_bert, "roberta": build_roberta}


@pytest.fixture(scope="module", params=BUILDERS)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint without a modules.json, as SimCSE's are."""
    return BUILDERS[request.param](tmp_path_factory.mktemp("encoder") / request.param)


def loaded(folder: Path, pooling: str | None) -> Encoder:
    return Encoder(str(folder), device="cpu", pooling=pooling)


@torch.no_grad()
def expected(folder: Path, pooling: str) -> np.ndarray:
    """Return the unit vectors of the texts, one by one, by the words of SimCSE's README."""
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in TEXTS:
        output = network(**tokenizer(text, truncation=True, max_length=64, return_tensors="pt"))
        states = output.last_hidden_state[0]
        vectors.append({"cls": states[0], "mean": states.mean(0), "pooler": output.pooler_output[0]}[pooling])
    return torch.nn.functional.normalize(torch.stack(vectors), dim=1).numpy()


def test_vectors_are_those_of_transformers(plain: Path) -> None:
    encoders = {pooling: loaded(plain, pooling) for pooling in POOLINGS}
    assert len({encoder.fingerprint for encoder in encoders.values()}) == 3
    for pooling, encoder in encoders.items():
        vectors = encoder.encode(TEXTS)
        np.testing.assert_allclose(vectors, expected(plain, pooling), atol=1e-5)
        others = [expected(plain, other) for other in POOLINGS if other != pooling]
        assert all(abs(vectors - other).max() > 1e-3 for other in others), "the poolings differ"


def test_a_folder_that_says_its_pooling_takes_no_other(plain: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    network = Transformer(str(plain))
    SentenceTransformer(modules=[network, Pooling(network.get_embedding_dimension(), "cls")]).save(str(tmp_path))
    np.testing.assert_allclose(loaded(tmp_path, None).encode(TEXTS), expected(plain, "cls"), atol=1e-5)
    with pytest.raises(RecordError, match=r"its modules\.json says how tokens are pooled; leave out"):
        loaded(tmp_path, "cls")


def without_pooler(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def other_architecture(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "electra", "embedding_size": 32}))


@pytest.mark.parametrize("change", [without_pooler, other_architecture])
def test_a_pooler_that_is_not_there_is_not_drawn_at_random(tmp_path: Path, change: Callable[[Path], None]) -> None:
    build_bert(tmp_path)
    change(tmp_path)
    with pytest.raises(RecordError, match="has no weights of a pooler; --encoder_pooling must be cls or mean"):
        loaded(tmp_path, "pooler")
    loaded(tmp_path, "cls")


def test_a_recipe_refuses_to_guess_the_pooling(tmp_path: Path) -> None:
    book = tmp_path / "medical.md"
    book.write_text("# Medicine\n\n" + "\n\n".join(TEXTS), encoding="utf-8")
    args = ["--books", book, "--encoder", build_bert(tmp_path / "bert"), "--store", tmp_path / "store"]
    line = error_line(run_recipe("build_store", *args))
    assert "has no modules.json" in line
    assert "build_dataset.py takes --encoder_pooling cls (as for unsupervised SimCSE), mean, or pooler" in line
