"""The rationale metric against its references, on tiny models with random weights, and at its edges."""

import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doubles.tiny_bart import TEXTS, build_bart, build_bert, build_roberta, roberta_tokenizer
from safetensors.torch import load_file, save_file
from tables import rows_of
from transformers import AutoTokenizer, BartForConditionalGeneration

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")

from automedeval.metrics.rationale_score import rationale_score as metric
from automedeval.metrics.rationale_score.rationale_score import rationale_score

PREDICTIONS = [*TEXTS, "a", "No."]
REFERENCES = [*TEXTS[1:], TEXTS[0], "It is wrong. " * 4, "Yes, and soon; see a doctor."]
LONG = " ".join(TEXTS)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> dict[str, str]:
    """Return the folders of tiny models by their kind."""
    folder = tmp_path_factory.mktemp("metric")
    builders = {"roberta": build_roberta, "bert": build_bert, "bart": build_bart}
    return {name: str(build(folder / name)) for name, build in builders.items()}


def berts(
    tiny: dict[str, str], predictions: list, references: list, **options: Any
) -> dict[str, Any]:
    options = {"bert_model": tiny["roberta"], "bert_num_layers": 2} | options
    return rationale_score(predictions, references, bart_model=None, **options)


def barts(
    tiny: dict[str, str], predictions: list, references: list, **options: Any
) -> dict[str, Any]:
    return rationale_score(
        predictions, references, bert_model=None, bart_model=tiny["bart"], **options
    )


def near(values: list, expected: list, tolerance: float) -> bool:
    return values == pytest.approx(expected, abs=tolerance, rel=0)


def same_as_bert_score(scores: dict[str, Any], expected: tuple[torch.Tensor, ...]) -> bool:
    return all(
        near(each, values.tolist(), 1e-5)
        for each, values in zip(scores["bert_score"].values(), expected)
    )


@torch.no_grad()
def slow_bart_score(folder: str, source: str, target: str) -> float:
    """Return the published formula, worded plainly: one pair, all log-probabilities, the mean over the target's tokens.

    A padding token adds nothing to the sum; one that is spelt out in the text counts in the length.
    """
    tokenizer, network = (
        AutoTokenizer.from_pretrained(folder),
        BartForConditionalGeneration.from_pretrained(folder),
    )
    cut = {"truncation": True, "max_length": 64, "return_tensors": "pt"}
    labels = tokenizer(target, **cut)["input_ids"]
    logits = network(**tokenizer(source, **cut), labels=labels).logits[0]
    losses = torch.nn.NLLLoss(reduction="none", ignore_index=1)(
        torch.log_softmax(logits, dim=1), labels[0]
    )
    return -float(losses.sum() / labels.shape[1])


@pytest.mark.parametrize(("kind", "layers"), [("roberta", 1), ("roberta", 3), ("bert", 2)])
def test_bert_score_is_that_of_bert_score(tiny, kind, layers):
    bert_score = pytest.importorskip("bert_score")
    predictions, references = (
        [*PREDICTIONS, " padded with blanks \n", LONG],
        [*REFERENCES, "see </s> a doctor", "a"],
    )
    expected = bert_score.score(predictions, references, model_type=tiny[kind], num_layers=layers)
    scores = berts(tiny, predictions, references, bert_model=tiny[kind], bert_num_layers=layers)
    assert same_as_bert_score(scores, expected)
    assert scores["mean_bert_score"]["f1"] == pytest.approx(float(expected[2].mean()), abs=1e-5)
    assert len({round(value, 3) for value in scores["bert_score"]["f1"]}) > 5, "the texts differ"


def test_several_references_are_treated_as_in_bert_score(tiny):
    bert_score = pytest.importorskip("bert_score")
    references = [[one, two, "a"] for one, two in zip(REFERENCES, PREDICTIONS[::-1])]
    expected = bert_score.score(PREDICTIONS, references, model_type=tiny["roberta"], num_layers=2)
    assert same_as_bert_score(berts(tiny, PREDICTIONS, references), expected)


def test_layers_and_hash_are_those_of_bert_score(tiny, monkeypatch):
    bert_score = pytest.importorskip("bert_score")
    folder = tiny["roberta"]
    monkeypatch.setitem(bert_score.utils.model2layers, folder, 2)
    scores = berts(tiny, PREDICTIONS, REFERENCES, bert_num_layers=None)
    expected, name = bert_score.score(PREDICTIONS, REFERENCES, model_type=folder, return_hash=True)
    assert same_as_bert_score(scores, expected)
    assert scores["bert_score_hash"] == name
    assert scores["revisions"] == {}, "a folder has no revision"


def test_only_what_needs_bert_score_asks_for_it(tiny, monkeypatch):
    expected = barts(tiny, PREDICTIONS, REFERENCES)
    monkeypatch.setitem(sys.modules, "bert_score", None)  # as if it were not installed
    assert barts(tiny, PREDICTIONS, REFERENCES) == expected
    with pytest.raises(ValueError, match="BERTScore needs bert-score: pip install bert-score"):
        berts(tiny, PREDICTIONS, REFERENCES)


def test_bart_score_is_the_published_formula(tiny):
    predictions, references = [*PREDICTIONS, LONG, "written <pad> out"], [*REFERENCES, "a", LONG]
    expected = [slow_bart_score(tiny["bart"], *pair) for pair in zip(references, predictions)]
    scores = barts(tiny, predictions, references)
    assert near(scores["bart_score"], expected, 1e-4)
    assert scores["mean_bart_score"] == pytest.approx(sum(expected) / len(expected), abs=1e-4)
    turned = barts(tiny, references, predictions)["bart_score"]
    assert max(abs(one - two) for one, two in zip(expected, turned)) > 0.1, "the directions differ"


@pytest.mark.parametrize("batch", [1, 100, 100_000])
def test_batches_and_order_change_nothing(tiny, batch, monkeypatch):
    order = random.Random(0).sample(range(len(PREDICTIONS)), len(PREDICTIONS))
    mixed = [[texts[place] for place in order] for texts in (PREDICTIONS, REFERENCES)]
    for score, key in ((berts, "bert_score"), (barts, "bart_score")):
        whole = score(tiny, PREDICTIONS, REFERENCES)[key]
        with monkeypatch.context() as patched:
            for name in ("BATCH", "ROWS", "HELD"):
                patched.setattr(metric, name, batch)
            scores = score(tiny, *mixed)[key]
        columns = (
            [(whole, scores)] if key == "bart_score" else list(zip(whole.values(), scores.values()))
        )
        assert all(near(two, [one[place] for place in order], 1e-5) for one, two in columns)


def test_a_blank_text_scores_nothing(tiny):
    predictions, references = ["", "a", " \n", "a"], ["a", ["", "  "], "", ["", "a"]]
    scores = berts(tiny, predictions, references)
    assert scores["bert_score"]["f1"][:3] == [0.0, 0.0, 0.0]
    assert scores["bert_score"]["f1"][3] == pytest.approx(1.0)
    assert scores["empty"] == [0, 1, 2, 3]
    scores = barts(tiny, predictions, references)
    assert scores["bart_score"][:3] == [None, None, None]
    assert (
        scores["mean_bart_score"]
        == scores["bart_score"][3]
        == barts(tiny, ["a"], ["a"])["bart_score"][0]
    )
    assert scores["bart_score_undefined"] == 3
    assert barts(tiny, [""], ["a"])["mean_bart_score"] is None


def test_items_with_a_text_that_was_cut_are_listed(tiny):
    assert berts(tiny, ["a", LONG, "a"], ["a", "a", ["a", LONG]])["truncated"] == [1, 2]
    assert barts(tiny, [LONG, "a"], ["a", "a"])["truncated"] == [0]
    window = " a" * 62
    assert berts(tiny, [window], ["a"])["truncated"] == []
    assert berts(tiny, [window + " a"], ["a"])["truncated"] == [0]


def test_a_tokenizer_that_knows_no_window_takes_the_models(tiny, tmp_path):
    tokenizer = roberta_tokenizer(TEXTS, window=None)
    assert tokenizer.model_max_length > 1e20
    unknown = {
        "roberta": build_roberta(tmp_path / "r", tokenizer),
        "bart": build_bart(tmp_path / "b", tokenizer),
    }
    unknown = {name: str(folder) for name, folder in unknown.items()}
    for score in (berts, barts):
        first, second = (score(folders, [LONG, "a"], ["a", LONG]) for folders in (tiny, unknown))
        # The hash names the folder.
        assert first == second | {
            key: name for key, name in first.items() if key == "bert_score_hash"
        }
        assert first["truncated"] == [0, 1]


def weights_gone(tiny: dict[str, str], folder: Path) -> str:
    shutil.copytree(tiny["bart"], folder / "gone")
    weights = load_file(folder / "gone" / "model.safetensors")
    del weights["model.decoder.layers.1.fc2.weight"]
    save_file(weights, folder / "gone" / "model.safetensors", metadata={"format": "pt"})
    return str(folder / "gone")


REFUSED = [
    *rows_of(__file__)["test_what_cannot_be_computed_is_refused"],
    ({"references": ["a", ["b", b"c"]]}, "references\\[1\\] must be a text, not bytes"),
    ({"bart_model": weights_gone}, "lacks 1 of its weights, model.decoder.layers.1.fc2.weight"),
]


@pytest.mark.parametrize(("args", "message"), REFUSED)
def test_what_cannot_be_computed_is_refused(tiny, tmp_path, monkeypatch, args, message):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    default = {
        "predictions": ["a", "b"],
        "references": ["a", "b"],
        "bert_model": "roberta",
        "bert_num_layers": 2,
    }
    options: dict[str, Any] = default | {"bart_model": "bart"} | args
    for name in ("bert_model", "bart_model"):
        value: str | Callable | None = options[name]
        options[name] = value(tiny, tmp_path) if callable(value) else tiny.get(value, value)
    with pytest.raises(ValueError, match=message) as caught:
        rationale_score(**options)
    assert "\n" not in str(caught.value)
