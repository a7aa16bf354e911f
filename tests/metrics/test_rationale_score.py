"""The rationale metric against its references, on tiny models with random weights, and at its edges."""

import random
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from doubles.tiny_bart import TEXTS, build_bart, build_bert, build_roberta, roberta_tokenizer
from programs import module_fixture
from safetensors.torch import load_file, save_file
from tables import each_row, rows_of
from transformers import AutoTokenizer, BartForConditionalGeneration

pytest.importorskip("evaluate", reason="the metric is a module of evaluate, which is not installed")

from automedeval.metrics.rationale_score import rationale_score as metric
from automedeval.metrics.rationale_score.rationale_score import rationale_score

ROWS = rows_of(__file__)
PREDICTIONS = [*TEXTS, "a", "No."]
REFERENCES = [*TEXTS[1:], TEXTS[0], "It is wrong. " * 4, "Yes, and soon; see a doctor."]
LONG = " ".join(TEXTS)


@module_fixture
def tiny(tmp_path_factory) -> dict[str, str]:
    """Return the folders of tiny models by their kind."""
    folder = tmp_path_factory.mktemp("metric")
    builders = {"roberta": build_roberta, "bert": build_bert, "bart": build_bart}
    return {name: str(build(folder / name)) for name, build in builders.items()}


def berts(tiny: dict[str, str], predictions: list, references: list, **more: Any) -> dict:
    options = {"bert_model": tiny["roberta"], "bart_model": None, "bert_num_layers": 2}
    return rationale_score(predictions, references, **options | more)


def barts(tiny: dict[str, str], predictions: list, references: list) -> dict:
    return rationale_score(predictions, references, bert_model=None, bart_model=tiny["bart"])


def near(values: list, expected: list, tolerance: float) -> bool:
    return values == pytest.approx(expected, abs=tolerance, rel=0)


def assert_as_bert_score(scores: dict[str, Any], expected: tuple[torch.Tensor, ...]) -> None:
    for column, values in zip(scores["bert_score"].values(), expected, strict=True):
        assert near(column, values.tolist(), 1e-5)


@torch.no_grad()
def slow_bart_score(folder: str, source: str, target: str) -> float:
    """Return the published formula, worded plainly: one pair, all log-probabilities, the mean over the target's tokens.

    A padding token adds nothing to the sum; one that is spelt out in the text counts in the length.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = BartForConditionalGeneration.from_pretrained(folder)
    cut = {"truncation": True, "max_length": 64, "return_tensors": "pt"}
    labels = tokenizer(target, **cut)["input_ids"]
    tokens = tokenizer(source, **cut)
    logits = network(**tokens, labels=labels).logits[0]
    loss = torch.nn.NLLLoss(reduction="sum", ignore_index=1)
    total = loss(torch.log_softmax(logits, dim=1), labels[0])
    return -float(total / labels.shape[1])


@each_row("kind, layers")
def test_bert_score_is_that_of_bert_score(tiny, kind, layers):
    bert_score = pytest.importorskip("bert_score")
    predictions = [*PREDICTIONS, " padded with blanks \n", LONG]
    references = [*REFERENCES, "see </s> a doctor", "a"]
    expected = bert_score.score(predictions, references, model_type=tiny[kind], num_layers=layers)
    scores = berts(tiny, predictions, references, bert_model=tiny[kind], bert_num_layers=layers)
    assert_as_bert_score(scores, expected)
    mean = expected[2].mean().item()
    assert scores["mean_bert_score"]["f1"] == pytest.approx(mean, abs=1e-5)
    rounded = {round(value, 3) for value in scores["bert_score"]["f1"]}
    assert len(rounded) > 5, "the texts differ"


def test_several_references_are_treated_as_in_bert_score(tiny):
    bert_score = pytest.importorskip("bert_score")
    references = [[one, two, "a"] for one, two in zip(REFERENCES, PREDICTIONS[::-1])]
    expected = bert_score.score(PREDICTIONS, references, model_type=tiny["roberta"], num_layers=2)
    scores = berts(tiny, PREDICTIONS, references)
    assert_as_bert_score(scores, expected)


def test_layers_and_hash_are_those_of_bert_score(tiny, monkeypatch):
    bert_score = pytest.importorskip("bert_score")
    folder = tiny["roberta"]
    monkeypatch.setitem(bert_score.utils.model2layers, folder, 2)
    scores = berts(tiny, PREDICTIONS, REFERENCES, bert_num_layers=None)
    expected, name = bert_score.score(PREDICTIONS, REFERENCES, model_type=folder, return_hash=True)
    assert_as_bert_score(scores, expected)
    assert scores["bert_score_hash"] == name
    assert scores["revisions"] == {}, "a folder has no revision"


def test_only_what_needs_bert_score_asks_for_it(tiny, monkeypatch):
    expected = barts(tiny, PREDICTIONS, REFERENCES)
    monkeypatch.setitem(sys.modules, "bert_score", None)  # as if it were not installed
    assert barts(tiny, PREDICTIONS, REFERENCES) == expected
    with pytest.raises(ValueError, match="BERTScore needs bert-score: pip install bert-score"):
        berts(tiny, PREDICTIONS, REFERENCES)


def test_bart_score_is_the_published_formula(tiny):
    predictions = [*PREDICTIONS, LONG, "written <pad> out"]
    references = [*REFERENCES, "a", LONG]
    expected = [slow_bart_score(tiny["bart"], *pair) for pair in zip(references, predictions)]
    scores = barts(tiny, predictions, references)
    assert near(scores["bart_score"], expected, 1e-4)
    assert scores["mean_bart_score"] == pytest.approx(fmean(expected), abs=1e-4)
    turned = barts(tiny, references, predictions)["bart_score"]
    assert not near(turned, expected, 0.1), "the directions differ"


@pytest.mark.parametrize("batch", [1, 100, 100_000])
def test_batches_and_order_change_nothing(tiny, batch, monkeypatch):
    order = list(range(len(PREDICTIONS)))
    random.Random(0).shuffle(order)

    def mixed(values: list) -> list:
        return [values[place] for place in order]

    before = columns_of(tiny, PREDICTIONS, REFERENCES)
    for name in ("BATCH", "ROWS", "HELD"):
        monkeypatch.setattr(metric, name, batch)
    after = columns_of(tiny, mixed(PREDICTIONS), mixed(REFERENCES))
    for name, column in before.items():
        assert near(after[name], mixed(column), 1e-5), name


def columns_of(tiny: dict[str, str], predictions: list, references: list) -> dict[str, list]:
    """Return the scores of each item by both metrics."""
    columns = dict(berts(tiny, predictions, references)["bert_score"])
    columns["bart"] = barts(tiny, predictions, references)["bart_score"]
    return columns


def test_a_blank_text_scores_nothing(tiny):
    predictions = ["", "a", " \n", "a"]
    references = ["a", ["", "  "], "", ["", "a"]]
    scores = berts(tiny, predictions, references)
    assert scores["bert_score"]["f1"] == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-6)
    assert scores["empty"] == [0, 1, 2, 3]
    scores = barts(tiny, predictions, references)
    of_letter = barts(tiny, ["a"], ["a"])["mean_bart_score"]
    assert scores["bart_score"] == [None, None, None, of_letter]
    assert scores["mean_bart_score"] == of_letter
    assert scores["bart_score_undefined"] == 3
    undefined = barts(tiny, [""], ["a"])
    assert undefined["mean_bart_score"] is None


def test_items_with_a_text_that_was_cut_are_listed(tiny):
    assert berts(tiny, ["a", LONG, "a"], ["a", "a", ["a", LONG]])["truncated"] == [1, 2]
    assert barts(tiny, [LONG, "a"], ["a", "a"])["truncated"] == [0]
    window = " a" * 62
    assert berts(tiny, [window], ["a"])["truncated"] == []
    assert berts(tiny, [window + " a"], ["a"])["truncated"] == [0]


def test_a_tokenizer_that_knows_no_window_takes_the_models(tiny, tmp_path):
    tokenizer = roberta_tokenizer(TEXTS, window=None)
    assert tokenizer.model_max_length > 1e20
    unknown = {}
    for name, build in (("roberta", build_roberta), ("bart", build_bart)):
        unknown[name] = str(build(tmp_path / name, tokenizer))
    for score in (berts, barts):
        first = score(tiny, [LONG, "a"], ["a", LONG])
        second = score(unknown, [LONG, "a"], ["a", LONG])
        for scores in (first, second):
            scores.pop("bert_score_hash", None)  # it names the folder
        assert first == second
        assert first["truncated"] == [0, 1]


def weights_gone(tiny: dict[str, str], folder: Path) -> str:
    gone = shutil.copytree(tiny["bart"], folder / "gone")
    file = gone / "model.safetensors"
    weights = load_file(file)
    del weights["model.decoder.layers.1.fc2.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    return str(gone)


@each_row("args, message")
def test_what_cannot_be_computed_is_refused(tiny, tmp_path, monkeypatch, args, message):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    options = ROWS["good options"] | args
    folders = tiny | {"GONE": weights_gone(tiny, tmp_path)}
    for name in ("bert_model", "bart_model"):
        model = options[name]
        options[name] = folders.get(model, model)
    with pytest.raises(ValueError, match=message) as caught:
        rationale_score(**options)
    assert "\n" not in str(caught.value)
