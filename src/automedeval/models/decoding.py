"""Decode the rows of a batch together: a key/value buffer, free text token by token, and the choice among allowed values.

The layout is that of a left-padded batch in transformers: all rows end at the same place of the buffer, a row's tokens have no
gap between them, and padding is in front of the first. transformers measures sliding windows, chunks and some position
biases in places of the buffer, and padding between two tokens would move them apart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer
from transformers.generation.utils import ALL_CACHE_NAMES

from automedeval.models.base import Ids
from automedeval.models.network import FLOAT32_ATTENTION, longest_in_batch, takes_positions

PADDING = 0  # any token: padding is masked
Tokens = Sequence[Sequence[int]]  # of each row, or of each value that a row may have next


def cache_dtype(model) -> torch.dtype:
    """Return the dtype of the stored keys and values of a model: float32 where attention is computed so, else the model's."""
    computed = model.config.get_text_config()._attn_implementation
    return torch.float32 if computed == FLOAT32_ATTENTION else model.dtype


class _BufferLayer(DynamicLayer):
    """The keys and values of a layer in one allocation, written in place, which DynamicLayer copies once per token.

    A model sees the places from `start` on of some rows, `rows`; keys and values up to `end` are known.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, count: int, capacity: int, dtype: torch.dtype):
        super().__init__()
        self.count, self.capacity, self.kept_as = count, capacity, dtype
        self.rows, self.start, self.end = slice(0, count), 0, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype = self.kept_as
        self.device = key_states.device
        self.keys, self.values = (
            states.new_zeros(
                self.count, states.shape[1], self.capacity, states.shape[3], dtype=self.dtype
            )
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.end + key_states.shape[2]
        self.keys[self.rows, :, self.end : end] = key_states
        self.values[self.rows, :, self.end : end] = value_states
        self.end = end
        return self.keys[self.rows, :, self.start : end], self.values[
            self.rows, :, self.start : end
        ]

    def get_seq_length(self) -> int:
        return self.end - self.start


def states_of(layers: Iterable[_BufferLayer]) -> Iterator[torch.Tensor]:
    """Yield the keys and values of layers; some store none, because they use those of another layer."""
    for layer in layers:
        if layer.is_initialized:
            yield layer.keys
            yield layer.values


@dataclass(kw_only=True)
class Row:
    """One sequence that a model reads and goes on to write.

    Args:
        ids: the tokens of the prompt.
        least, reserve: the fewest and the most tokens of its answer.
        most: of the free text in its answer.
        shape: rows of different shapes share no batch.
        chance: the `random.Random` that its tokens are sampled with.

    The other fields are filled on the way: `index` among all that are asked, `tokens` that are fed, `begin`, the place of the
    first of them in the buffer, and those `written` of a free text. `pending` completed its stop and is not fed, `truncated`
    marks the limit.
    """

    ids: Ids
    least: int = 0
    reserve: int = 0
    most: int = 0
    shape: str = ""
    chance: Any = None
    index: int = 0
    tokens: Ids = field(default_factory=list)
    begin: int = 0
    written: Ids = field(default_factory=list)
    pending: int | None = None
    truncated: bool = False

    @property
    def length(self) -> int:
        """Return the most tokens of prompt and answer."""
        return len(self.ids) + self.reserve


@dataclass
class Prefix:
    """The tokens with which all rows begin, and the keys and values of them, (1, heads, tokens, head size) in each layer."""

    tokens: Ids = field(default_factory=list)
    layers: list[_BufferLayer] = field(default_factory=list)

    @classmethod
    @torch.inference_mode()
    def compute(cls, model, tokens: Ids) -> "Prefix":
        """Compute the keys and values of a prefix once."""
        batch = Batch(model, [Row(ids=tokens)], len(tokens), len(tokens))
        batch.feed([tokens])
        return cls(tokens, batch.layers)


class Batch:
    """Rows of at most `capacity` tokens under one model, which all start with the prefix.

    The first `active` rows take part in a forward pass; `logits` are those of each one's last token, float32, (active rows,
    vocabulary). A forward pass takes about `forward_tokens` of the prompts.
    """

    logits: torch.Tensor

    def __init__(
        self,
        model,
        rows: Sequence[Row],
        capacity: int,
        forward_tokens: int,
        prefix: Prefix | None = None,
    ):
        self.model, self.forward_tokens = model, forward_tokens
        self.rows: list[Any] = list(rows)
        self.active = len(rows)
        self.prefix = prefix or Prefix()
        layers = DynamicCache(config=model.config).layers
        dtype = cache_dtype(model)
        self.layers = [_BufferLayer(self.active, capacity, dtype) for _ in layers]
        self.cache = Cache(layers=[*self.layers])
        self.length = 0  # the place where all rows end

    def feed(self, tokens: Tokens, keep: int = 1) -> torch.Tensor:
        """Append tokens to the active rows, at first their prompts; set `logits` to those of the last position.

        Prompts begin with the tokens of the prefix, and those of similar length should be neighbours. Return the logits of the
        last `keep` positions, (active rows, keep, vocabulary).
        """
        logits = self._advance(tokens, keep)
        self.logits = logits[:, -1].float()
        return logits

    def _advance(self, tokens: Tokens, keep: int) -> torch.Tensor:
        return self._append(tokens, keep) if self.length else self._begin(tokens, keep)

    def _begin(self, prompts: Tokens, keep: int) -> torch.Tensor:
        self.length = max(map(len, prompts))
        for row, prompt in zip(self.rows, prompts):
            row.tokens = list(prompt)
            row.begin = self.length - len(prompt)
        for layer, known in zip(self.layers, self.prefix.layers):
            if known.is_initialized:
                layer.lazy_initialization(known.keys, known.values)
        logits = []
        first = 0
        while first < len(prompts):
            width = count = 0
            for row in self.rows[first:]:
                width = max(width, len(row.tokens) - len(self.prefix.tokens))
                if count and width * (count + 1) > self.forward_tokens:
                    break
                count += 1
            if width > 64:  # libraries keep a kernel, and allocators a block, for every shape
                width = min(-(-width // 32) * 32, self.length)
            places = range(first, first + count)
            self._place_prefix(places, self.length - width)
            logits.append(self._forward(places, max(width, keep), keep))
            first += count
        return torch.cat(logits)

    def _place_prefix(self, places: range, end: int) -> None:
        """Copy the prefix to the beginning of each row, as far as `end`; what follows is fed."""
        for states, known in zip(states_of(self.layers), states_of(self.prefix.layers)):
            for place in places:
                begin = self.rows[place].begin
                states[place, :, begin:end] = known[0, :, : max(end - begin, 0)]

    def _append(self, tokens: Tokens, keep: int) -> torch.Tensor:
        """Move each row that gets fewer tokens than others, or was retired, to the common end.

        Its own last tokens fill the forward pass.
        """
        width = max(map(len, tokens))
        end = self.length
        self.length += width
        for place, new in enumerate(tokens):
            row = self.rows[place]
            row.tokens.extend(new)
            begin = self.length - len(row.tokens)
            if begin != row.begin:
                moved = slice(row.begin, row.begin + max(end - begin, 0))
                for states in states_of(self.layers):
                    states[place, :, begin:end] = states[place, :, moved].clone()
                row.begin = begin
        return self._forward(range(len(tokens)), max(width, 1), keep)

    def _forward(self, places: range, width: int, keep: int) -> torch.Tensor:
        """Feed the last `width` tokens of neighbouring rows, padded on the left, and return the logits."""
        device = self.model.device
        rows = self.rows[places.start : places.stop]
        begins = [row.begin for row in rows]
        start = min(begins)  # no row has a token before
        width = min(width, self.length - start)
        last = [row.tokens[-width:] for row in rows]
        padded = [[PADDING] * (width - len(tokens)) + tokens for tokens in last]
        own = torch.tensor(begins, device=device)[:, None]
        positions = torch.arange(start, self.length, device=device) - own
        for layer in self.layers:
            layer.rows = slice(places.start, places.stop)
            layer.start = start
            layer.end = self.length - width
        fed = {
            "input_ids": torch.tensor(padded, device=device),
            "attention_mask": (positions >= 0).long(),
        }
        if takes_positions(self.model):
            fed["position_ids"] = positions[:, -width:].clamp(min=0)
        output = self.model(**fed, past_key_values=self.cache, use_cache=True, logits_to_keep=keep)
        return output.logits.view(len(rows), keep, -1)

    def roll_back(self, count: int) -> None:
        """Remove the last `count` tokens of every active row."""
        for row in self.rows[: self.active]:
            del row.tokens[-count:]
        self.length -= count

    def retire(self, place: int) -> None:
        """Exclude an active row from later forward passes by swapping it with the last active row."""
        last = self.active - 1
        if place != last:
            row = self.rows[place]
            other = self.rows[last]
            seen = slice(min(row.begin, other.begin), self.length)
            for states in states_of(self.layers):
                states[[place, last], :, seen] = states[[last, place], :, seen]
            self.rows[place] = other
            self.rows[last] = row
        self.active = last


class SingleRow(Batch):
    """One sequence without padding, for what `longest_in_batch` does not allow in a batch; the model keeps its own states."""

    def __init__(self, model, row: Row):
        self.model, self.rows, self.active = model, [row], 1
        self.switch = longest_in_batch(model)
        self.kept: dict = {}

    def _advance(self, tokens: Tokens, keep: int) -> torch.Tensor:
        """Append tokens: one goes on from the model's states, after several all are computed anew, as models differ in it."""
        (new,) = tokens
        fed = self.rows[0].tokens
        before = len(fed)
        fed.extend(new)
        if len(new) != 1 or before <= self.switch < len(fed):
            self.kept = {}
        at = before if self.kept else 0
        options: dict = {"input_ids": torch.tensor([fed[at:]], device=self.model.device)}
        if takes_positions(self.model):  # some architectures count from 0 in every forward pass
            options["position_ids"] = torch.arange(at, len(fed), device=self.model.device)[None]
        output = self.model(**options, **self.kept, use_cache=True, logits_to_keep=keep)
        self.kept = {name: output[name] for name in ALL_CACHE_NAMES if output.get(name) is not None}
        return output.logits.view(1, keep, -1)

    def roll_back(self, count: int) -> None:
        """Remove the last `count` tokens; the others are computed again when the next are fed."""
        del self.rows[0].tokens[-count:]
        self.kept = {}


@torch.inference_mode()
def write_free(
    batch: Batch,
    ends: set[int],
    stops: Callable[[Ids], bool],
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Write free text in every row, until an end token (neither fed nor kept), a stop, or the row's `most` tokens.

    `stops` tells of the tokens of a text whether the last one ends it; `choose` picks a token per row from logits [rows,
    vocabulary]. Finished rows are excluded from later forward passes. On return all are active again, in another order.
    """
    count = batch.active
    while batch.active:
        chosen = choose(batch.logits).tolist()
        for place in reversed(range(batch.active)):
            row = batch.rows[place]
            token = chosen[place]
            if token not in ends:
                if stops([*row.written, token]):
                    row.pending = token
                elif len(row.written) < row.most:
                    row.written.append(token)
                    continue
                else:
                    row.truncated = True
            batch.retire(place)
        if batch.active:
            batch.feed([row.written[-1:] for row in batch.rows[: batch.active]])
    batch.active = count


def draw(
    rows: Sequence[Row], logits: torch.Tensor, temperature: float, top_k: int = 0
) -> torch.Tensor:
    """Sample a token for each row of logits among its `top_k` most probable ones (0: all), with the row's own generator."""
    size = logits.shape[-1]
    best, tokens = logits.nan_to_num().topk(min(top_k or size, size), dim=-1)
    if logits.device.type == "mps":  # it has no float64
        best = best.cpu()
        tokens = tokens.cpu()
    odds = (best.double() / temperature).softmax(dim=-1)
    reached = odds.cumsum(dim=-1)
    drawn = [row.chance.random() for row in rows[: len(logits)]]
    limits = torch.tensor(drawn, dtype=odds.dtype, device=odds.device)[:, None] * reached[:, -1:]
    # argmax: the first token at which the cumulative probability exceeds the drawn number.
    place = (reached > limits).int().argmax(dim=-1, keepdim=True)
    return tokens.gather(1, place).squeeze(1).to(logits.device)


@torch.inference_mode()
def compete(batch: Batch, values: Tokens) -> torch.Tensor:
    """Return the probability of each value, by its token ids, as the continuation of each row: float32, (active rows, values).

    That of several tokens is the product of theirs, and each row sums to one. The batch is unchanged.
    """
    logits = batch.logits
    if not values[0]:  # the only value needs no token
        return torch.ones_like(logits[:, :1])
    root = torch.log_softmax(logits, dim=-1)
    behind: dict[tuple[int, ...], torch.Tensor] = {}
    totals = []
    for value in values:
        total = root[:, value[0]]
        head = tuple(value[:-1])
        if head:
            if head not in behind:
                fed = batch.feed([head] * batch.active, keep=len(head))
                behind[head] = torch.log_softmax(fed.float(), dim=-1)
                batch.roll_back(len(head))
            steps = torch.tensor(value[1:], device=logits.device)
            total = total + behind[head][:, range(len(steps)), steps].sum(1)
        totals.append(total)
    batch.logits = logits
    return torch.stack(totals, dim=1).softmax(dim=1)
