"""Decode the rows of a batch together: a key/value buffer, free text token by token, and the choice among allowed values.

The layout is that of a left-padded batch in transformers: all rows end at the same place of the buffer, a row's tokens have no
gap between them, and padding is in front of the first. transformers measures sliding windows, chunks and some position
biases in places of the buffer, and padding between two tokens would move them apart.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer
from transformers.generation.utils import ALL_CACHE_NAMES

from automedeval.models.base import Ids
from automedeval.models.network import FLOAT32_ATTENTION, longest_in_batch, takes_positions


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
        self.dtype, self.device = self.kept_as, key_states.device
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


@dataclass
class Prefix:
    """The tokens with which all rows begin, and each layer's keys and values of them, (1, heads, tokens, head size).

    None stands for a layer that stores none, because it uses those of another layer.
    """

    tokens: Ids = field(default_factory=list)
    states: list[tuple[torch.Tensor, torch.Tensor] | None] = field(default_factory=list)

    @classmethod
    @torch.inference_mode()
    def compute(cls, model, tokens: Ids) -> "Prefix":
        """Compute the keys and values of a prefix once."""
        rows = Rows(model, 1, len(tokens))
        rows.start([tokens], len(tokens))
        return cls(
            tokens,
            [(layer.keys, layer.values) if layer.is_initialized else None for layer in rows.layers],
        )


class Rows:
    """`count` sequences of at most `capacity` tokens under one model, which all start with the prefix.

    `logits` are those of each active row's last token, float32, (rows, vocabulary). `pad` is any token id; padding is masked.
    """

    logits: torch.Tensor

    def __init__(
        self, model, count: int, capacity: int, prefix: Prefix | None = None, pad: int = 0
    ):
        self.model, self.pad, self.active = model, pad, count
        self.prefix = prefix or Prefix()
        layers = DynamicCache(config=model.config).layers
        dtype = cache_dtype(model)
        self.layers = [_BufferLayer(count, capacity, dtype) for _ in layers]
        self.cache = Cache(layers=[*self.layers])
        self.length = 0  # the place where all rows end
        self.tokens: list[Ids] = [[] for _ in range(count)]
        self.begins = [0] * count  # the place of each row's first token
        self.chance: list[
            random.Random
        ] = []  # for sampling: one generator per row, which moves with the row

    def start(
        self, prompts: Sequence[Sequence[int]], forward_tokens: int, keep: int = 1
    ) -> torch.Tensor:
        """Feed the rows' prompts, token ids that begin with those of the prefix, about `forward_tokens` per forward pass.

        Rows of similar length should be neighbours. Returns what `feed` does.
        """
        self.tokens = list(map(list, prompts))
        self.length, first = max(map(len, self.tokens)), 0
        self.begins = [self.length - len(tokens) for tokens in self.tokens]
        for layer, states in zip(self.layers, self.prefix.states):
            if states:
                layer.lazy_initialization(*states)
        logits = []
        while first < len(prompts):
            width = count = 0
            for row in prompts[first:]:
                width = max(width, len(row) - len(self.prefix.tokens))
                if count and width * (count + 1) > forward_tokens:
                    break
                count += 1
            if (
                width > 64
            ):  # round up: libraries keep a kernel, and allocators a block, for every shape
                width = min(-(-width // 32) * 32, self.length)
            rows = range(first, first + count)
            self._place_prefix(rows, self.length - width)
            logits.append(self._forward(rows, max(width, keep), keep))
            first += count
        return self._keep(torch.cat(logits))

    def _keep(self, logits: torch.Tensor) -> torch.Tensor:
        self.logits = logits[:, -1].float()
        return logits

    def _place_prefix(self, rows: Sequence[int], end: int) -> None:
        """Copy the prefix to the beginning of each row, as far as `end`; what follows is fed."""
        for layer, states in zip(self.layers, self.prefix.states):
            if states is None:
                continue
            keys, values = states
            for row in rows:
                begin = self.begins[row]
                layer.keys[row, :, begin:end] = keys[0, :, : max(end - begin, 0)]
                layer.values[row, :, begin:end] = values[0, :, : max(end - begin, 0)]

    def feed(self, tokens: Sequence[Sequence[int]], keep: int = 1) -> torch.Tensor:
        """Append tokens to the active rows; set `self.logits` to those of the last position.

        A row that gets fewer tokens than others, or was retired, moves to the common end; its own last tokens fill the forward
        pass. Return the logits of the last `keep` positions, (active rows, keep, vocabulary).
        """
        width = max(map(len, tokens))
        end, self.length = self.length, self.length + width
        for row, new in enumerate(tokens):
            self.tokens[row].extend(new)
            begin = self.length - len(self.tokens[row])
            before = self.begins[row]
            if begin != before:
                for states in self._states():
                    states[row, :, begin:end] = states[
                        row, :, before : before + max(end - begin, 0)
                    ].clone()
                self.begins[row] = begin
        return self._keep(self._forward(range(len(tokens)), max(width, 1), keep))

    def _states(self) -> Iterator[torch.Tensor]:
        return (
            states
            for layer in self.layers
            if layer.is_initialized
            for states in (layer.keys, layer.values)
        )

    def _forward(self, rows: range, width: int, keep: int) -> torch.Tensor:
        """Feed the last `width` tokens of neighbouring rows, padded on the left, and return the logits."""
        device = self.model.device
        begins = self.begins[rows[0] : rows[-1] + 1]
        start = min(begins)  # no row has a token before
        width = min(width, self.length - start)
        fed_tokens = [self.tokens[row][-width:] for row in rows]
        ids = torch.tensor(
            [[self.pad] * (width - len(row)) + row for row in fed_tokens], device=device
        )
        places = (
            torch.arange(start, self.length, device=device)
            - torch.tensor(begins, device=device)[:, None]
        )
        for layer in self.layers:
            layer.rows = slice(rows[0], rows[-1] + 1)
            layer.start = start
            layer.end = self.length - width
        fed = {"input_ids": ids, "attention_mask": (places >= 0).long()}
        if takes_positions(self.model):
            fed["position_ids"] = places[:, -width:].clamp(min=0)
        output = self.model(**fed, past_key_values=self.cache, use_cache=True, logits_to_keep=keep)
        return output.logits.view(len(rows), keep, -1)

    def roll_back(self, count: int) -> None:
        """Remove the last `count` tokens of every active row."""
        for row in range(self.active):
            del self.tokens[row][-count:]
        self.length -= count

    def retire(self, row: int) -> int:
        """Exclude an active row from later forward passes by swapping it with the last active row; return the latter."""
        last = self.active - 1
        if row != last:
            begin = min(self.begins[row], self.begins[last])
            for states in self._states():
                part = states[row, :, begin : self.length].clone()
                states[row, :, begin : self.length] = states[last, :, begin : self.length]
                states[last, :, begin : self.length] = part
            members: tuple[list, ...] = (self.tokens, self.begins, self.chance)
            for values in members:
                if values:
                    values[row], values[last] = values[last], values[row]
        self.active = last
        return last


class SingleRow(Rows):
    """One sequence without padding, for what `longest_in_batch` does not allow in a batch; the model keeps its own states."""

    def __init__(self, model):
        self.model, self.active = model, 1
        self.switch = longest_in_batch(model)
        self.tokens = [[]]
        self.kept: dict = {}
        self.chance = []

    def start(
        self, prompts: Sequence[Sequence[int]], forward_tokens: int, keep: int = 1
    ) -> torch.Tensor:
        return self.feed(prompts, keep)

    def feed(self, tokens: Sequence[Sequence[int]], keep: int = 1) -> torch.Tensor:
        """Append tokens: one goes on from the model's states, after several all are computed anew, as models differ in it."""
        (new,), (fed,) = tokens, self.tokens
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
        return self._keep(output.logits.view(1, keep, -1))

    def roll_back(self, count: int) -> None:
        """Remove the last `count` tokens; the others are computed again when the next are fed."""
        del self.tokens[0][-count:]
        self.kept = {}

    def retire(self, row: int) -> int:
        self.active = 0
        return row


@dataclass
class Written:
    """The ids of the free text of one row; `pending` completed its stop and is not fed, `truncated` marks the limit."""

    tokens: Ids
    pending: int | None = None
    truncated: bool = False


@torch.inference_mode()
def write_free(
    rows: Rows,
    most: Sequence[int],
    ends: set[int],
    stops: Callable[[Ids], bool],
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[Written], list[int]]:
    """Write free text in every row, until an end token (neither fed nor kept), a stop, or the row's `most` tokens.

    `stops` tells of the tokens of a text whether the last one ends it; `choose` picks a token per row from logits [rows,
    vocabulary]. Finished rows are excluded from later forward passes. On return all rows are active again, in another order:
    one `Written` per row in the original order, and the original row at each place.
    """
    count = rows.active
    owner = list(range(count))  # owner[r]: the original number of the row now at r
    written = [Written([]) for _ in range(count)]
    while rows.active:
        chosen = choose(rows.logits).tolist()
        for row in reversed(range(rows.active)):
            text, token = written[owner[row]], chosen[row]
            if token not in ends:
                if stops([*text.tokens, token]):
                    text.pending = token
                elif len(text.tokens) < most[owner[row]]:
                    text.tokens.append(token)
                    continue
                else:
                    text.truncated = True
            last = rows.retire(row)
            owner[row], owner[last] = owner[last], owner[row]
            chosen[row], chosen[last] = chosen[last], chosen[row]
        if rows.active:
            rows.feed([[token] for token in chosen[: rows.active]])
    rows.active = count
    return written, owner


def draw(rows: Rows, logits: torch.Tensor, temperature: float, top_k: int = 0) -> torch.Tensor:
    """Sample a token for each active row among its `top_k` most probable ones (0: all), with the row's own generator."""
    size = logits.shape[-1]
    best, tokens = logits.nan_to_num().topk(min(top_k or size, size), dim=-1)
    if logits.device.type == "mps":  # it has no float64
        best, tokens = best.cpu(), tokens.cpu()
    odds = (best.double() / temperature).softmax(dim=-1)
    reached = odds.cumsum(dim=-1)
    drawn = [chance.random() for chance in rows.chance[: len(logits)]]
    limits = torch.tensor(drawn, dtype=odds.dtype, device=odds.device)[:, None] * reached[:, -1:]
    # argmax: the first token at which the cumulative probability exceeds the drawn number.
    place = (reached > limits).int().argmax(dim=-1, keepdim=True)
    return tokens.gather(1, place).squeeze(1).to(logits.device)


@torch.inference_mode()
def compete(rows: Rows, values: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the probability of each value, by its token ids, as the continuation of each row: float32, (active rows, values).

    That of several tokens is the product of theirs, and each row sums to one. The rows are unchanged.
    """
    logits = rows.logits
    root = torch.log_softmax(logits, dim=-1)
    behind: dict[tuple[int, ...], torch.Tensor] = {}
    totals = []
    for value in values:
        total = (
            root[:, value[0]] if value else torch.zeros_like(root[:, 0])
        )  # the only value needs no token
        head = tuple(value[:-1])
        if head:
            if head not in behind:
                fed = rows.feed([head] * rows.active, keep=len(head))
                behind[head] = torch.log_softmax(fed.float(), dim=-1)
                rows.roll_back(len(head))
            steps = torch.tensor(value[1:], device=logits.device)
            total = total + behind[head][:, range(len(steps)), steps].sum(1)
        totals.append(total)
    rows.logits = logits
    return torch.stack(totals, dim=1).softmax(dim=1)
