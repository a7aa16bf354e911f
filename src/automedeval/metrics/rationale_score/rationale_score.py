"""Measure how similar rationales are to reference rationales: BERTScore and BARTScore in one metric (paper section 4.3).

BERTScore (Zhang et al. 2020) matches the tokens of two texts greedily by the cosine of their contextual embeddings; BARTScore
(Yuan et al. 2021) is the mean log-probability of the tokens of one text given the other, under a BART. Both measure how
similar a text is to its reference, not whether it is correct.

This file imports nothing of the package: `evaluate.load` copies this file alone.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import datasets
import evaluate
import torch
from huggingface_hub import snapshot_download
from torch.nn.functional import linear, normalize
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer, BartForConditionalGeneration
from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

FILES = ["*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model"]  # of a model on the Hub
# Models whose positions begin after the id of the padding: their table of positions is longer than the longest text.
SHIFTED = {
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "longformer", "xmod", "mpnet",
}  # fmt: skip
UNKNOWN_WINDOW = 1_000_000  # a tokenizer without a known window gives 1e30
BATCH = 2048  # largest number of tokens of a batch, padding included, so that a layer's output fits a processor's cache
HELD = 8  # batches whose states are kept at once: enough to find pairs of similar length
LOGITS = 2**20  # largest number of logits at once: 4 MiB in float32, which fits a processor's cache
WORDS = 2048  # largest number of vocabulary entries whose logits are computed at once

Pair = tuple[int, int]  # the numbers of two texts
Rows = list[torch.Tensor]  # by text: token ids
States = dict[int, torch.Tensor]  # by text: hidden states [tokens, width]


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
        settings, None if it is not installed; `revisions` has the commit on the Hub of each model from there.

    Raises:
        ValueError: invalid texts or settings; a model that cannot be loaded; bert-score is needed and is not installed.
    """
    # Paper: names neither models nor direction. Here: the defaults of the authors' programs, reference → prediction, and no
    # rescaling, since the paper's BERTScores of 84 to 95 are in the range of the raw F1.
    predictions, references = check_texts(predictions, references)
    if bert_model is None and bart_model is None:
        raise ValueError("bert_model and bart_model are both None: nothing to compute")
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    pairs = [(prediction, reference) for prediction, each in zip(predictions, references) for reference in each]
    owners = [item for item, each in enumerate(references) for _ in each]
    result: dict[str, Any] = {"revisions": {}}
    empty, cut = set(), set()
    if bert_model is not None:
        layers = _usual_layers(bert_model) if bert_num_layers is None else bert_num_layers
        bert = _load("bert_model", bert_model, layers, device)
        rows, over = bert.score([(prediction.strip(), reference.strip()) for prediction, reference in pairs])
        empty |= {owner for owner, row in zip(owners, rows) if row is None}
        cut |= {owner for owner, flag in zip(owners, over) if flag}
        best = _best([row or [0.0, 0.0, 0.0] for row in rows], owners, len(predictions))
        columns = {name: [row[k] for row in best] for k, name in enumerate(("precision", "recall", "f1"))}
        means = {name: sum(column) / len(column) for name, column in columns.items()}
        result |= {"bert_score": columns, "mean_bert_score": means}
        result["bert_score_hash"] = _hash(bert_model, layers)
        result["revisions"] |= bert.revision
    if bart_model is not None:
        bart = _load("bart_model", bart_model, None, device)
        result["revisions"] |= bart.revision
        rows, over = bart.score([(reference, prediction) for prediction, reference in pairs])
        empty |= {owner for owner, row in zip(owners, rows) if row is None}
        cut |= {owner for owner, flag in zip(owners, over) if flag}
        scores = [row[0] if row else None for row in _best(rows, owners, len(predictions))]
        defined = [score for score in scores if score is not None]
        result |= {"bart_score": scores, "mean_bart_score": sum(defined) / len(defined) if defined else None}
        result["bart_score_undefined"] = len(scores) - len(defined)
    return result | {"empty": sorted(empty), "truncated": sorted(cut)}


def check_texts(predictions: Sequence[str], references: Sequence) -> tuple[list[str], list[list[str]]]:
    """Return the predictions, and the references of each as a list; ValueError names an item that is not a text."""
    for name, each in (("predictions", predictions), ("references", references)):
        if each is None or isinstance(each, str):
            raise ValueError(f"{name} must be a list with one entry per item, not {each!r:.60}")
    predictions = list(predictions)
    lists = [[each] if isinstance(each, str) else each for each in references]
    if len(predictions) != len(lists) or not predictions:
        raise ValueError(
            f"{len(predictions)} predictions, {len(lists)} references: must be the same number, at least one"
        )
    for item, (prediction, each) in enumerate(zip(predictions, lists)):
        if not isinstance(each, (list, tuple)) or not each:
            raise ValueError(f"references[{item}] must be a text or a list of one text or more, not {each!r:.60}")
        for name, text in (("predictions", prediction), *(("references", text) for text in each)):
            if not isinstance(text, str):
                raise ValueError(f"{name}[{item}] must be a text, not {type(text).__name__}: {text!r:.60}")
            if any("\ud800" <= sign <= "\udfff" for sign in text):
                raise ValueError(
                    f"{name}[{item}] contains half a surrogate pair, which is not a character: {text!r:.60}"
                )
    return predictions, [list(each) for each in lists]


def _best(rows: Sequence[list[float] | None], owners: Sequence[int], items: int) -> list[list[float]]:
    """Return the largest value of each figure per item; an empty list for an item without figures."""
    best: list[list[float]] = [[] for _ in range(items)]
    for owner, row in zip(owners, rows):
        if row is not None:
            best[owner] = list(map(max, best[owner], row)) if best[owner] else row
    return best


def _package(why: str) -> Any:
    """Return the module `utils` of bert-score; ValueError with the reason if it is not installed."""
    try:
        from bert_score import utils  # here: not every setting needs it
    except ImportError:
        raise ValueError(why) from None
    return utils


def _usual_layers(name: str) -> int:
    """Return the layer that bert-score compares for a model; its authors chose them on WMT16."""
    package = _package(f"bert_model {name!r}: give bert_num_layers, or install bert-score, which has a table of layers")
    plain = name.partition("@")[0]
    if plain not in package.model2layers:
        raise ValueError(f"bert_model {name!r}: bert_num_layers must be given; bert-score's table has no such model")
    return package.model2layers[plain]


def _hash(name: str, layers: int) -> str | None:
    """Return bert-score's name of the settings; None without the package."""
    try:
        return _package("").get_hash(name, layers, False, False, False, False)
    except ValueError:
        return None


def _batches(sizes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield places in batches, largest sizes first, with rows × longest text of a batch within `BATCH`.

    A batch that is filled to an eighth accepts only texts as long as its last: padding costs more than one more batch.
    """
    batch: list[int] = []
    longest = 0
    for place, size in sorted(enumerate(sizes), key=lambda pair: pair[1], reverse=True):
        filled = len(batch) * longest
        longest = max(longest, *size)
        if batch and ((len(batch) + 1) * longest > BATCH or (8 * filled >= BATCH and size[0] < sizes[batch[-1]][0])):
            yield batch
            batch, longest = [], max(size)
        batch.append(place)
    if batch:
        yield batch


def _groups(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Yield ranges of places; each except the last ends where the sum of its sizes reaches `most`."""
    start = held = 0
    for place, size in enumerate(sizes, 1):
        held += size
        if held >= most or place == len(sizes):
            yield range(start, place)
            start, held = place, 0


def _stacked(rows: list[torch.Tensor], padding: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of unequal length as one padded tensor, and its mask (True: no padding)."""
    stack = pad_sequence(rows, batch_first=True, padding_value=padding)
    mask = torch.arange(stack.shape[1]) < torch.tensor([[len(row)] for row in rows])
    return stack.to(device), mask.to(device)


class _Model(ABC):
    """A network with its tokenizer, which scores pairs of texts."""

    def __init__(self, name: str, network: Any, tokenizer: Any, revision: dict[str, str]):
        self.name, self.network, self.tokenizer, self.revision = name, network.eval(), tokenizer, revision
        self.device = next(network.parameters()).device
        self.frame = torch.tensor(sorted({tokenizer.cls_token_id, tokenizer.sep_token_id} - {None}), dtype=torch.long)
        config = network.config
        self.pad = config.pad_token_id or 0
        positions = config.to_dict().get("max_position_embeddings") or 0
        positions -= self.pad + 1 if config.model_type in SHIFTED else 0
        windows = [window for window in (tokenizer.model_max_length, positions) if 0 < window < UNKNOWN_WINDOW]
        if not windows:
            raise ValueError(
                f"{name}: neither tokenizer (model_max_length) nor config gives the length of the longest text"
            )
        self.window = min(windows)

    @torch.inference_mode()
    def score(self, pairs: list[tuple[str, str]]) -> tuple[list[list[float] | None], list[bool]]:
        """Return the figures of pairs of texts, None if one is blank, and whether a text was cut."""
        numbers = {text: number for number, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
        ids, over = self._tokens(list(numbers))
        blank = [not text.strip() or bool(torch.isin(row, self.frame).all()) for text, row in zip(numbers, ids)]
        asked = [(numbers[first], numbers[second]) for first, second in pairs]
        todo = [pair for pair in dict.fromkeys(asked) if not (blank[pair[0]] or blank[pair[1]])]
        figures = self._figures(todo, ids)
        if not all(isfinite(figure) for row in figures.values() for figure in row):
            raise ValueError(f"{self.name}: a score is not finite")
        return [figures.get(pair) for pair in asked], [over[first] or over[second] for first, second in asked]

    @abstractmethod
    def _figures(self, pairs: list[Pair], ids: Rows) -> dict[Pair, list[float]]:
        """Return the figures of pairs of texts, neither of which is blank."""

    def _tokens(self, texts: Sequence[str]) -> tuple[Rows, list[bool]]:
        """Return the ids of texts, and whether each was cut."""
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.window)["input_ids"]
        over = [False] * len(ids)
        if full := [place for place, row in enumerate(ids) if len(row) >= self.window]:
            whole = self.tokenizer([texts[place] for place in full], truncation=False, verbose=False)["input_ids"]
            for place, row in zip(full, whole):
                over[place] = len(row) > self.window
        return [torch.tensor(row) for row in ids], over

    def _encode(self, encoder: torch.nn.Module, texts: list[int], ids: Rows) -> States:
        """Return the last hidden states [tokens, width] of texts by number."""
        states = {}
        for batch in _batches([(len(ids[text]),) for text in texts]):
            rows, mask = _stacked([ids[texts[place]] for place in batch], self.pad, self.device)
            hidden = encoder(input_ids=rows, attention_mask=mask.long()).last_hidden_state
            for place, vectors in zip(batch, hidden):
                states[texts[place]] = vectors[: len(ids[texts[place]])].clone()  # a view would keep the padding too
        return states


class _Bert(_Model):
    def _figures(self, pairs: list[Pair], ids: Rows) -> dict[Pair, list[float]]:
        """Return precision, recall and F1 of (prediction, reference) pairs."""
        figures: dict[Pair, list[float]] = {}
        pairs = sorted(pairs, key=lambda pair: (len(ids[pair[0]]), pair), reverse=True)
        uses = Counter(text for pair in pairs for text in pair)
        states: States = {}  # of a text from its first pair to its last
        for group in _groups(
            [len(ids[prediction]) + len(ids[reference]) for prediction, reference in pairs], HELD * BATCH
        ):
            chosen = [pairs[place] for place in group]
            fresh = sorted({text for pair in chosen for text in pair} - set(states))
            states |= self._encode(self.network, fresh, ids)
            for batch in _batches([(len(ids[prediction]), len(ids[reference])) for prediction, reference in chosen]):
                matched = [chosen[place] for place in batch]
                figures |= zip(matched, self._match(matched, states, ids))
            uses -= Counter(text for pair in chosen for text in pair)  # also removes texts without further uses
            states = {text: vectors for text, vectors in states.items() if text in uses}
        return figures

    def _match(self, pairs: list[Pair], states: States, ids: Rows) -> list[list[float]]:
        """Match each token with the most similar one of the other text (Zhang et al. 2020, section 3)."""
        sides = [[normalize(states[pair[k]], dim=-1) for pair in pairs] for k in (0, 1)]
        (left, left_mask), (right, right_mask) = (_stacked(side, 0, self.device) for side in sides)
        cosines = torch.bmm(left, right.transpose(1, 2)).masked_fill_(
            ~(left_mask[:, :, None] & right_mask[:, None, :]), -torch.inf
        )
        means = []
        for k, best in enumerate((cosines.amax(2), cosines.amax(1))):
            # As in bert-score, the tokens that frame a text may be matched, and have no weight themselves.
            counted, _ = _stacked([~torch.isin(ids[pair[k]], self.frame) for pair in pairs], 0, self.device)
            means.append(best.masked_fill(~counted, 0.0).sum(1) / counted.sum(1))
        precision, recall = means
        f1 = torch.where(precision + recall == 0, 0.0, 2 * precision * recall / (precision + recall))
        return torch.stack([precision, recall, f1], dim=1).tolist()


class _Bart(_Model):
    def _figures(self, pairs: list[Pair], ids: Rows) -> dict[Pair, list[float]]:
        """Return the mean log-probability of the target's tokens of (source, target) pairs."""
        figures: dict[Pair, list[float]] = {}
        targets: dict[int, list[int]] = {}
        for source, target in pairs:
            targets.setdefault(source, []).append(target)
        sources = sorted(targets, key=lambda source: (len(ids[source]), source), reverse=True)
        for group in _groups([len(ids[source]) for source in sources], HELD * BATCH):
            read = [sources[place] for place in group]
            states = self._encode(self.network.model.encoder, read, ids)  # once, for all of its targets
            todo = [(source, target) for source in read for target in targets[source]]
            for batch in _batches([(len(ids[target]), len(ids[source])) for source, target in todo]):
                chosen = [todo[place] for place in batch]
                figures |= zip(chosen, self._likelihoods(chosen, states, ids))
        return figures

    def _likelihoods(self, pairs: list[Pair], states: States, ids: Rows) -> list[list[float]]:
        """Return mean log-probabilities, given the encoder's states (Yuan et al. 2021, equation 2 with equal weights)."""
        read, read_mask = _stacked([states[source] for source, _ in pairs], 0, self.device)
        target, mask = _stacked([ids[target] for _, target in pairs], self.pad, self.device)
        start = torch.full_like(target[:, :1], self.network.config.decoder_start_token_id)
        source_states = {"encoder_hidden_states": read, "encoder_attention_mask": read_mask.long(), "use_cache": False}
        output = self.network.model.decoder(input_ids=torch.cat([start, target[:, :-1]], dim=1), **source_states)
        table = torch.zeros(target.shape, device=self.device)
        table[mask] = self._log_probabilities(output.last_hidden_state[mask], target[mask])  # no logits for padding
        # As in BARTScore, a "<pad>" written in a text adds nothing, and counts in the length.
        total = table.masked_fill_(target.eq(self.pad), 0.0).sum(1)
        return (total / mask.sum(1))[:, None].tolist()

    def _log_probabilities(self, hidden: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each wanted token, given the decoder's states [tokens, width]."""
        head, bias = self.network.lm_head.weight, self.network.final_logits_bias[0]
        slices = list(zip(head.split(WORDS), bias.split(WORDS)))  # each is read for many states at once: fewer reads
        totals = []
        for part in hidden.split(max(1, LOGITS // len(slices[0][0]))):
            sums = [linear(part, words, more).logsumexp(1) for words, more in slices]
            totals.append(torch.stack(sums).logsumexp(0))
        logits = (hidden * head[wanted]).sum(1) + bias[wanted]
        return logits - torch.cat(totals)


@lru_cache(maxsize=2)
def _load(what: str, name: str, layers: int | None, device: str) -> "_Bert | _Bart":
    """Return a model; the last two stay loaded. Only safetensors are read, and no code inside a checkpoint is run."""
    options = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    revision: dict[str, str] = {}
    loader: Any  # with `output_loading_info` it returns a report as well
    kind: type[_Bert | _Bart]
    level = get_verbosity()
    set_verbosity_error()  # else it lists every weight that is not loaded on purpose; missing weights are checked below
    try:
        folder = name
        if not Path(name).is_dir():
            repo, _, wanted = name.partition("@")
            folder = snapshot_download(repo, revision=wanted or None, allow_patterns=FILES)
            revision = {what: Path(folder).name}
        config = AutoConfig.from_pretrained(folder)
        if what == "bart_model":
            if config.model_type != "bart":
                raise ValueError(f"bart_model {name!r} is a {config.model_type}: BARTScore takes a BART")
            loader, kind = BartForConditionalGeneration, _Bart
        else:
            if config.is_encoder_decoder:
                raise ValueError(f"bert_model {name!r} is a {config.model_type}: BERTScore takes an encoder alone")
            if not isinstance(layers, int) or not 1 <= layers <= config.num_hidden_layers:
                raise ValueError(f"bert_num_layers must be from 1 to {config.num_hidden_layers}, not {layers!r}")
            config.num_hidden_layers = layers  # higher layers are neither loaded nor computed
            loader, kind = AutoModel, _Bert
        network, report = loader.from_pretrained(folder, config=config, **options)
        if missing := sorted(key for key in report["missing_keys"] if "pooler" not in key):
            raise ValueError(f"{what} {name!r} lacks {len(missing)} of its weights, {missing[0]} for one")
        return kind(name, network.to(device), AutoTokenizer.from_pretrained(folder), revision)
    except OSError as error:
        raise ValueError(f"{what} {name!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
    finally:
        set_verbosity(level)


class RationaleScore(evaluate.Metric):
    """BERTScore and BARTScore of rationales, as a metric of `evaluate`."""

    def _info(self) -> evaluate.MetricInfo:
        texts = datasets.Value("string")
        return evaluate.MetricInfo(
            description="Similarity of rationales to reference rationales (BERTScore, BARTScore), not their correctness.",
            citation="Zhang et al. 2020, arXiv:1904.09675 (BERTScore); Yuan et al. 2021, arXiv:2106.11520 (BARTScore)",
            inputs_description=rationale_score.__doc__,
            features=datasets.Features({"predictions": texts, "references": datasets.Sequence(texts)}),
        )

    def add_batch(self, *, predictions=None, references=None, **kwargs) -> None:
        """Add items, each with one reference or several; ValueError names an item that is not a text."""
        predictions, references = check_texts(predictions, references)
        evaluate.Metric.add_batch(self, predictions=predictions, references=references, **kwargs)

    def add(self, *, prediction=None, reference=None, **kwargs) -> None:
        """Add one item with one reference or several; ValueError names what is not a text."""
        (prediction,), (reference,) = check_texts([prediction], [reference])
        evaluate.Metric.add(self, prediction=prediction, reference=reference, **kwargs)

    def _compute(self, predictions: list[str], references: list[list[str]], **settings: Any) -> dict[str, Any]:
        return rationale_score(predictions, references, **settings)
