"""Measure how similar rationales are to reference rationales: BERTScore and BARTScore in one metric (paper section 4.3).

BERTScore (Zhang et al. 2020) matches the tokens of two texts greedily by the cosine of their contextual embeddings; BARTScore
(Yuan et al. 2021) is the mean log-probability of the tokens of one text given the other, under a BART. Both measure how
similar a text is to its reference, not whether it is correct.

This file imports nothing of the package: `evaluate.load` copies this file alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import datasets
import evaluate
import torch
from huggingface_hub import snapshot_download
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModel, AutoTokenizer, BartForConditionalGeneration
from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

FILES = ["*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model"]  # of a model on the Hub
# Models whose positions begin after the id of the padding: their table of positions is longer than the longest text.
SHIFTED = {
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "longformer", "xmod", "mpnet",
}  # fmt: skip
UNKNOWN_WINDOW = 1_000_000  # a tokenizer without a known window gives 1e30
BATCH = 4  # pairs of a batch of BARTScore, whose vocabulary is large
ROWS = 16  # texts of a batch, and pairs whose states are kept at once, of BERTScore
HELD = 512

Pair = tuple[str, str]


def rationale_score(
    predictions: Sequence[str],
    references: Sequence[str | Sequence[str]],
    bert_model: str | None = "roberta-large",
    bert_num_layers: int | None = None,
    bart_model: str | None = "facebook/bart-large-cnn",
) -> dict[str, Any]:
    """Score predictions against references, in float32 as the published programs do, on a GPU if there is one.

    Args:
        predictions: texts.
        references: one text or several for each prediction. Of several, the largest value of each figure counts.
        bert_model, bart_model: name on the Hub, NAME@REVISION, or folder; None omits that part.
        bert_num_layers: the layer whose hidden states are compared; None: the one in the table of the package bert-score.

    Returns:
        `bert_score` {precision, recall, f1} and `bart_score` (nats per token, None if undefined), one figure per item;
        `mean_bert_score`, `mean_bart_score`, and `bart_score_undefined`, the number of items without a BARTScore; `empty` and
        `truncated`, the items with a blank text, and with a text that was cut to a model's window.
        A blank text has BERTScore 0, as in bert-score, and no BARTScore. `bert_score_hash` is how bert-score names the
        settings; `revisions` has the commit on the Hub of each model from there.

    Raises:
        ValueError: invalid texts or settings; a model that cannot be loaded; bert-score is not installed.
    """
    # Paper: names neither models nor direction. Here: the defaults of the authors' programs, reference → prediction, and no
    # rescaling, since the paper's BERTScores of 84 to 95 are in the range of the raw F1.
    predictions, references = check_texts(predictions, references)
    if bert_model is None and bart_model is None:
        raise ValueError("bert_model and bart_model are both None: nothing to compute")
    device = str(torch.accelerator.current_accelerator(check_available=True) or "cpu")
    items = list(zip(predictions, references))
    result: dict[str, Any] = {"revisions": {}}
    empty = set[int]()
    cut = set[int]()
    if bert_model is not None:
        layers = _usual_layers(bert_model) if bert_num_layers is None else bert_num_layers
        model = _load("bert_model", bert_model, layers, device)
        pairs = [[(text.strip(), other.strip()) for other in others] for text, others in items]
        best = model.best(pairs, [0.0] * 3, empty, cut)
        columns = dict(zip(("precision", "recall", "f1"), map(list, zip(*best))))
        means = {name: fmean(column) for name, column in columns.items()}
        settings = _bert_score().get_hash(bert_model, layers, False, False, False, False)
        result |= {"bert_score": columns, "mean_bert_score": means, "bert_score_hash": settings}
        result["revisions"] |= model.revision
    if bart_model is not None:
        model = _load("bart_model", bart_model, None, device)
        pairs = [[(other, text) for other in others] for text, others in items]
        best = model.best(pairs, [], empty, cut)
        scores = [row[0] if row else None for row in best]
        defined = [score for score in scores if score is not None]
        mean = fmean(defined) if defined else None
        result |= {"bart_score": scores, "mean_bart_score": mean}
        result["bart_score_undefined"] = len(scores) - len(defined)
        result["revisions"] |= model.revision
    return result | {"empty": sorted(empty), "truncated": sorted(cut)}


def check_texts(
    predictions: Sequence[str], references: Sequence
) -> tuple[list[str], list[list[str]]]:
    """Return the predictions, and the references of each as a list; ValueError names an item that is not a text."""
    for name, texts in (("predictions", predictions), ("references", references)):
        if texts is None or isinstance(texts, str):
            raise ValueError(f"{name} must be a list with one entry per item, not {texts!r:.60}")
    predictions = list(predictions)
    lists = [[texts] if isinstance(texts, str) else texts for texts in references]
    if len(predictions) != len(lists) or not predictions:
        raise ValueError(
            f"{len(predictions)} predictions, {len(lists)} references: must be as many, at least one"
        )
    for index, (text, texts) in enumerate(zip(predictions, lists)):
        if not isinstance(text, str):
            raise ValueError(
                f"predictions[{index}] must be a text, not {type(text).__name__}: {text!r:.60}"
            )
        is_list = isinstance(texts, (list, tuple))
        if not is_list or not texts or not all(isinstance(other, str) for other in texts):
            raise ValueError(
                f"references[{index}] must be a text or a list of one text or more, not {texts!r:.60}"
            )
    return predictions, list(map(list, lists))


def _bert_score() -> Any:
    """Return the module `utils` of bert-score; ValueError if it is not installed."""
    try:
        from bert_score import utils  # here: BARTScore alone does not need it
    except ImportError:
        raise ValueError(
            "BERTScore needs bert-score: pip install bert-score, or bert_model=None"
        ) from None
    return utils


def _usual_layers(name: str) -> int:
    """Return the layer that bert-score compares for a model, also in a folder of its name; its authors chose them on WMT16."""
    table = _bert_score().model2layers
    plain = name.partition("@")[0]
    layers = table.get(plain) or table.get(Path(plain).name)
    if layers is None:
        raise ValueError(
            f"bert_model {name!r}: bert-score's table has no such model; take one that it has, or give bert_num_layers"
        )
    return layers


@dataclass(frozen=True)
class _Model:
    """A network with its tokenizer, which scores pairs of texts."""

    name: str
    network: Any
    tokenizer: Any
    revision: dict[str, str]
    # Yields the figures of pairs of texts, neither of which is blank, the longest first.
    figures: Callable[["_Model", list[Pair]], Iterator[list[float]]]

    @property
    def frame(self) -> set[int]:
        """The tokens around every text."""
        return {self.tokenizer.cls_token_id, self.tokenizer.sep_token_id}

    @torch.inference_mode()
    def best(
        self, items: list[list[Pair]], of_blank: list[float], empty: set[int], cut: set[int]
    ) -> list[list[float]]:
        """Return the largest value of each figure over the pairs of texts of every item; [] where none has figures.

        Args:
            of_blank: the figures of a pair with a blank text, [] for none.
            empty, cut: get the numbers of the items with a blank text, and with one that was cut.
        """
        pairs = dict.fromkeys(chain.from_iterable(items))
        texts = list(dict.fromkeys(chain.from_iterable(pairs)))
        rows = self.tokenizer(texts, truncation=False, verbose=False)["input_ids"]
        size = dict(zip(texts, map(len, rows)))
        frame = self.frame
        blank = {
            text for text, row in zip(texts, rows) if not text.strip() or frame.issuperset(row)
        }
        long = {text for text in texts if size[text] > self.tokenizer.model_max_length}
        todo = [pair for pair in pairs if blank.isdisjoint(pair)]
        todo.sort(key=lambda pair: (size[pair[0]], size[pair[1]]), reverse=True)
        figures = dict(zip(todo, self.figures(self, todo)))
        if not all(map(isfinite, chain.from_iterable(figures.values()))):
            raise ValueError(f"{self.name}: a score is not finite")
        best = []
        for number, item in enumerate(items):
            own = set(chain.from_iterable(item))
            if own & blank:
                empty.add(number)
            if own & long:
                cut.add(number)
            scores = filter(None, (figures.get(pair, of_blank) for pair in item))
            best.append(list(map(max, zip(*scores))))
        return best


def _bert_figures(model: _Model, pairs: list[Pair]) -> Iterator[list[float]]:
    """Yield precision, recall and F1 of (prediction, reference) pairs, by bert-score."""
    weights = defaultdict(lambda: 1.0, dict.fromkeys(model.frame, 0.0))
    for start in range(0, len(pairs), HELD):
        predictions, references = map(list, zip(*pairs[start : start + HELD]))
        scores = _bert_score().bert_cos_score_idf(
            model.network,
            references,
            predictions,
            model.tokenizer,
            weights,
            batch_size=ROWS,
            device=model.network.device,
        )
        yield from scores.tolist()


def _bart_figures(model: _Model, pairs: list[Pair]) -> Iterator[list[float]]:
    """Yield the mean log-probability of the target's tokens (Yuan et al. 2021, equation 2) of (source, target) pairs."""
    network = model.network
    for start in range(0, len(pairs), BATCH):
        sources, targets = (
            model.tokenizer(list(texts), truncation=True, padding=True, return_tensors="pt").to(
                network.device
            )
            for texts in zip(*pairs[start : start + BATCH])
        )
        target = targets["input_ids"]
        shifted = network.prepare_decoder_input_ids_from_labels(target)
        logits = network(**sources, decoder_input_ids=shifted, use_cache=False).logits
        # As in BARTScore, a "<pad>" written in a text adds nothing, and counts in the length.
        losses = cross_entropy(
            logits.transpose(1, 2),
            target,
            ignore_index=network.config.pad_token_id,
            reduction="none",
        )
        yield from (-losses.sum(1) / targets["attention_mask"].sum(1))[:, None].tolist()


@lru_cache(maxsize=2)
def _load(what: str, name: str, layers: int | None, device: str) -> _Model:
    """Return a model; the last two stay loaded. Only safetensors are read, and no code inside a checkpoint is run."""
    folder = name
    revision = dict[str, str]()
    loader: Any = AutoModel  # with `output_loading_info` it returns a report as well
    figures = _bert_figures
    level = get_verbosity()
    set_verbosity_error()  # else it lists every weight that is not loaded on purpose; missing weights are checked below
    try:
        if not Path(name).is_dir():
            repo, _, wanted = name.partition("@")
            folder = snapshot_download(repo, revision=wanted or None, allow_patterns=FILES)
            revision = {what: Path(folder).name}
        config = AutoConfig.from_pretrained(folder)
        is_a = f"{what} {name!r} is a {config.model_type}"
        if what == "bart_model":
            if config.model_type != "bart":
                raise ValueError(f"{is_a}: BARTScore takes a BART")
            loader = BartForConditionalGeneration
            figures = _bart_figures
        else:
            if config.is_encoder_decoder:
                raise ValueError(f"{is_a}: BERTScore takes an encoder alone")
            if layers not in range(1, config.num_hidden_layers + 1):
                raise ValueError(
                    f"bert_num_layers must be from 1 to {config.num_hidden_layers}, not {layers!r}"
                )
            config.num_hidden_layers = layers  # higher layers are neither loaded nor computed
        network, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
        if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
            raise ValueError(
                f"{what} {name!r} lacks {len(missing)} of its weights, {missing[0]} for one"
            )
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.model_max_length = _window(name, tokenizer, config)
        return _Model(name, network.to(device).eval(), tokenizer, revision, figures)
    except OSError as error:
        raise ValueError(
            f"{what} {name!r} cannot be loaded: {' '.join(str(error).split())[:300]}"
        ) from None
    finally:
        set_verbosity(level)


def _window(name: str, tokenizer: Any, config: Any) -> int:
    """Return the number of tokens of the longest text that tokenizer and network take; ValueError if neither says it."""
    positions = config.to_dict().get("max_position_embeddings") or 0
    if config.model_type in SHIFTED:
        positions -= (config.pad_token_id or 0) + 1
    limits = (tokenizer.model_max_length, positions)
    if windows := [limit for limit in limits if 0 < limit < UNKNOWN_WINDOW]:
        return min(windows)
    raise ValueError(
        f"{name}: neither the tokenizer (model_max_length) nor the config has a longest text"
    )


class RationaleScore(evaluate.Metric):
    """BERTScore and BARTScore of rationales, as a metric of `evaluate`."""

    def _info(self) -> evaluate.MetricInfo:
        texts = datasets.Value("string")
        return evaluate.MetricInfo(
            description="Similarity of rationales to reference rationales (BERTScore, BARTScore), not their correctness.",
            citation="Zhang et al. 2020, arXiv:1904.09675 (BERTScore); Yuan et al. 2021, arXiv:2106.11520 (BARTScore)",
            inputs_description=rationale_score.__doc__,
            features=datasets.Features(
                {"predictions": texts, "references": datasets.Sequence(texts)}
            ),
        )

    def add_batch(self, *, predictions=None, references=None, **kwargs) -> None:
        """Add items, each with one reference or several; ValueError names an item that is not a text."""
        predictions, references = check_texts(predictions, references)
        evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def add(self, *, prediction=None, reference=None, **kwargs) -> None:
        """Add one item with one reference or several; ValueError names what is not a text."""
        self.add_batch(predictions=[prediction], references=[reference], **kwargs)

    def _compute(
        self, predictions: list[str], references: list[list[str]], **settings: Any
    ) -> dict[str, Any]:
        return rationale_score(predictions, references, **settings)
