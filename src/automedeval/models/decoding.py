"""Rows of a batch that decode together: a key/value buffer, free text token by token, and values that compete.

All rows share one shape: [prefix common to all | left padding, own prompt | what was fed since]. A row's position ids count
its real tokens only, and the mask hides the padding, so rows of different lengths go through one forward pass.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]


def flatten_head_input(model) -> None:
    """Make a model's output layer take its positions as rows of one matrix; logits come out as (rows x positions, vocabulary).

    A slice of the hidden states, as `logits_to_keep` makes it, sends `linear` of torch 2.13 on CPU down a path that copies the
    output matrix once per row: 2,158 ms for 32 rows of a vocabulary of 49,152 in bfloat16, against 7 ms for the same rows as
    a matrix (two cores of an AMD EPYC, 2026-11-21).
    """
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: (inputs[0].reshape(-1, inputs[0].shape[-1]),))


GROUPED_ATTENTION = "sdpa_grouped"


def _grouped_attention(module, query, key, value, attention_mask, scaling=None, **options):
    """Attend with all query heads of a key/value head in one group, in the precision of the keys.

    transformers repeats keys and values for every query head where there is a mask and more than one query: of a long cache
    that copy costs more than the attention.
    """
    asked, query = query.dtype, query.to(key.dtype)
    if attention_mask is None and query.shape[2] > 1:
        output, weights = sdpa_attention_forward(module, query, key, value, None, scaling=scaling, **options)
        return output.to(asked), weights
    batch, heads, length, size = query.shape
    groups = heads // key.shape[1]
    if attention_mask is not None:
        rows = attention_mask.shape[0]
        attention_mask = (
            attention_mask[:, :, None].expand(rows, 1, groups, length, -1).reshape(rows, 1, groups * length, -1)
        )
    packed = query.reshape(batch, key.shape[1], groups * length, size)
    shared = getattr(key, "shared", 0)
    if length == 1 and batch > 1 and 0 < shared < key.shape[2] and attention_mask is not None:
        output = _attend_in_two_parts(packed, key, value, attention_mask, shared, scaling)
    else:
        output = scaled_dot_product_attention(packed, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, heads, length, size).transpose(1, 2).contiguous().to(asked), None


def _attend_in_two_parts(query, key, value, mask, shared: int, scaling: float | None) -> torch.Tensor:
    """Attend to what all rows share once for all rows, to the rest row by row, and join both by their weights.

    A step of decoding is bound by reading keys and values. Where the prompts' common beginning is read once for all rows it
    takes 0.8 ms instead of 1.6 ms, for 30 rows over 440 + 360 positions, per layer (two cores of an AMD EPYC, 2026-11-21).

    Args:
        query: (rows, key heads, grouped queries, size); every query has at least one position of its own row to attend to.
        key, value: (rows, key heads, positions, size); the first `shared` positions are alike in all rows.
        mask: bool, (rows, 1, grouped queries, positions).
    """
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    rows, heads, queries, size = query.shape
    own_mask = torch.zeros_like(mask[..., shared:], dtype=query.dtype).masked_fill_(~mask[..., shared:], -torch.inf)
    own, own_weight = attend(query, key[:, :, shared:], value[:, :, shared:], attn_mask=own_mask, scale=scaling)
    together = query.transpose(0, 1).reshape(1, heads, rows * queries, size)
    common, weight = attend(together, key[:1, :, :shared], value[:1, :, :shared], scale=scaling)
    common = common.view(heads, rows, queries, size).transpose(0, 1)
    weight = weight.view(heads, rows, queries).transpose(0, 1)
    return own + (common - own) * torch.sigmoid(weight - own_weight).unsqueeze(-1)


AttentionInterface.register(GROUPED_ATTENTION, _grouped_attention)
AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)


def attention_for(attention: str, device: str) -> str:
    """Return the attention to load a model with: on a CPU the grouped form of sdpa, else what was asked for."""
    return GROUPED_ATTENTION if attention == "sdpa" and device == "cpu" else attention


def cache_dtype(model) -> torch.dtype:
    """Return the precision to keep keys and values in.

    Where a CPU multiplies bfloat16 without matrix tiles (AMX), torch attends over a long cache slower in it than in float32:
    10.9 ms against 2.2 ms for one token of 24 rows over 800, per layer (two cores of an AMD EPYC, torch 2.13, 2026-11-21).
    """
    slow = model.device.type == "cpu" and model.dtype == torch.bfloat16 and not torch.cpu._is_amx_tile_supported()
    grouped = model.config.get_text_config()._attn_implementation == GROUPED_ATTENTION
    return torch.float32 if slow and grouped else model.dtype


class _BufferLayer(DynamicLayer):
    """A layer's keys and values in one allocation, written in place.

    Concatenating anew at every token, as DynamicLayer does, copies the whole cache once per token.
    """

    def __init__(self, rows: int, capacity: int, dtype: torch.dtype):
        super().__init__()
        self.rows, self.capacity, self.kept_as = rows, capacity, dtype
        self.first, self.length = 0, 0  # where the next keys go: from this row on, behind so many positions
        self.shared = 0  # how many of the first positions are alike in all rows

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = self.kept_as, key_states.device
        self.keys, self.values = (
            states.new_zeros(self.rows, states.shape[1], self.capacity, states.shape[3], dtype=self.dtype)
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = slice(self.first, self.first + len(key_states)), self.length + key_states.shape[2]
        self.keys[rows, :, self.length : end] = key_states
        self.values[rows, :, self.length : end] = value_states
        self.length = end
        keys = self.keys[rows, :, :end]
        keys.shared = self.shared  # the only way from a cache to the attention that transformers leaves open
        return keys, self.values[rows, :, :end]

    def get_seq_length(self) -> int:
        return self.length


class Rows:
    """A batch of sequences under one model; `logits` are those of each active row's last token, float32, (rows, vocabulary).

    Args:
        model: a causal language model in evaluation mode.
        count: number of rows.
        capacity: most tokens a row will ever hold, padding included.
        prefix: keys and values of tokens that every row starts with, from `prefix_key_values`.
        pad: any token id; padding is masked.
    """

    def __init__(self, model, count: int, capacity: int, prefix: KeyValues | None = None, pad: int = 0):
        self.model, self.pad, self.active = model, pad, count
        self.length = 0
        dtype, count_layers = cache_dtype(model), model.config.get_text_config().num_hidden_layers
        layers = [_BufferLayer(count, capacity, dtype) for _ in range(count_layers)]
        self.mask = torch.zeros(count, capacity, dtype=torch.long, device=model.device)
        if prefix:
            self.length = prefix[0][0].shape[2]
            for layer, (keys, values) in zip(layers, prefix, strict=True):
                layer.update(keys.expand(count, -1, -1, -1), values.expand(count, -1, -1, -1))
                layer.shared = self.length
            self.mask[:, : self.length] = 1
        self.cache = Cache(layers=layers)
        self.logits: torch.Tensor | None = None
        self.chance: list[random.Random] = []  # for sampling: one of its own per row, which moves with the row

    def start(self, prompts: Sequence[Sequence[int]], forward_tokens: int) -> None:
        """Feed the rows' own prompts, a few rows at a time, each time padded to the longest of these few only.

        Args:
            prompts: token ids per row, without the prefix; rows of similar length should stand together.
            forward_tokens: about how many tokens one forward pass takes. Large ones fall out of a CPU's caches.
        """
        base, end, first = self.length, 0, 0
        logits = []
        while first < len(prompts):
            width = count = 0
            for row in prompts[first:]:
                width = max(width, len(row))
                if count and width * (count + 1) > forward_tokens:
                    break
                count += 1
            last, reached = self._forward(prompts[first : first + count], first, base, keep=1)
            logits.append(last[:, -1])
            end, first = max(end, reached), first + count
        self._set_length(end)
        self.logits = torch.cat(logits)

    def feed(self, tokens: Sequence[Sequence[int]], keep: int = 1) -> torch.Tensor:
        """Append tokens to the active rows, left-padded to the longest; return the logits of the last `keep` positions.

        Returns:
            float32 tensor of shape (active rows, keep, vocabulary). `self.logits` takes the last position's.
        """
        logits, self.length = self._forward(tokens, 0, self.length, keep)
        self.logits = logits[:, -1]
        return logits

    def _forward(self, tokens: Sequence[Sequence[int]], first: int, at: int, keep: int) -> tuple[torch.Tensor, int]:
        """Feed rows from `first` on behind position `at`; return logits, and the position behind what was fed."""
        width = max(map(len, tokens))
        if width > 64:  # few shapes: libraries keep a kernel, and allocators a hole, for every one they have seen
            width = min(-(-width // 32) * 32, self.mask.shape[1] - at)
        rows, device = slice(first, first + len(tokens)), self.model.device
        ids = torch.tensor([[self.pad] * (width - len(row)) + list(row) for row in tokens], device=device)
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in tokens], device=device)
        before = self.mask[rows, :at].sum(1, keepdim=True)
        self.mask[rows, at : at + width] = real
        for layer in self.cache.layers:
            layer.first, layer.length = first, at
        output = self.model(
            input_ids=ids,
            attention_mask=self.mask[rows, : at + width],
            position_ids=(before + real.cumsum(1) - 1).clamp(min=0),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        return output.logits.view(len(tokens), keep, -1).float(), at + width

    def roll_back(self, length: int) -> None:
        """Forget everything after the first `length` positions."""
        self.mask[:, length : self.length] = 0
        self._set_length(length)

    def _set_length(self, length: int) -> None:
        self.length = length
        for layer in self.cache.layers:
            layer.first, layer.length = 0, length

    def retire(self, row: int) -> int:
        """Move an active row behind the others, out of the forward passes to come; return the row that took its place."""
        last = self.active - 1
        if row != last:
            for layer in self.cache.layers:
                for states in (layer.keys, layer.values):
                    # Only what was written so far: the buffer's tail is empty in both.
                    part = states[row, :, : self.length].clone()
                    states[row, :, : self.length] = states[last, :, : self.length]
                    states[last, :, : self.length] = part
            self.mask[[row, last]] = self.mask[[last, row]]
            if self.chance:
                self.chance[row], self.chance[last] = self.chance[last], self.chance[row]
        self.active = last
        return last


@torch.inference_mode()
def prefix_key_values(model, tokens: Sequence[int]) -> KeyValues:
    """Compute the keys and values of a prefix once, each of shape (1, heads, tokens, head size)."""
    rows = Rows(model, 1, len(tokens))
    rows.feed([tokens])
    return [(layer.keys, layer.values) for layer in rows.cache.layers]


@dataclass
class Written:
    """Free text of one row: its token ids, the one that was chosen but not fed (None after an end token), why it ended."""

    tokens: list[int]
    pending: int | None = None
    truncated: bool = False


@torch.inference_mode()
def write_free(
    rows: Rows,
    most: int,
    ends: set[int],
    stops_at: Callable[[list[int], bool], bool],
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[list[Written], list[int]]:
    """Let every row write until an end token, until `stops_at` says so, or for `most` tokens.

    Rows that are done drop out of the forward passes to come, and are active again on return, in another order than before.

    Args:
        rows: active rows with `logits` of their last token.
        most: most tokens a row may write.
        ends: ids of the tokens that end a text; they are neither fed nor kept.
        stops_at: told the last dozen tokens and the one just chosen, and whether that is all, says whether the text ends.
        choose: picks a token per row from logits of shape (rows, vocabulary).

    Returns:
        one `Written` per row in the original order, and `owner`: which of them the row at each position now holds.
    """
    count = rows.active
    owner = list(range(count))  # owner[r]: whose text physical row r holds
    written = [Written([]) for _ in range(count)]
    logits = rows.logits
    while rows.active:
        chosen = choose(logits).tolist()
        done = []
        for row in range(rows.active):
            text, token = written[owner[row]], chosen[row]
            if token in ends:
                done.append(row)
            elif stops_at([*text.tokens[-12:], token], len(text.tokens) <= 12):
                text.pending = token
                done.append(row)
            elif len(text.tokens) >= most:
                text.truncated = True
                done.append(row)
            else:
                text.tokens.append(token)
        for row in reversed(done):
            last = rows.retire(row)
            owner[row], owner[last] = owner[last], owner[row]
            chosen[row], chosen[last] = chosen[last], chosen[row]
        if rows.active:
            logits = rows.feed([[token] for token in chosen[: rows.active]])[:, -1]
    rows.active = count
    return written, owner


def draw(rows: Rows, logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """Sample a token for each active row by the row's own chance, whatever other rows are in the batch.

    Args:
        rows: with `chance`; each row takes one number of its own.
        logits: (active rows, vocabulary).
        temperature: above 0.
        top_k: only so many of the likeliest tokens stay in; 0 keeps all.
        top_p: then the fewest of the likeliest that together reach this probability.
    """
    kept = min(top_k or logits.shape[-1], logits.shape[-1])
    best, tokens = logits.nan_to_num().topk(kept, dim=-1)
    odds = (best.double() / temperature).softmax(dim=-1)
    odds = odds.masked_fill(odds.cumsum(dim=-1) - odds >= top_p, 0.0)  # the likeliest always stays
    reached = odds.cumsum(dim=-1)
    chances = torch.tensor([chance.random() for chance in rows.chance[: len(logits)]], dtype=odds.dtype)
    # argmax: the first token at which the sum exceeds what was drawn.
    place = (reached > chances.to(odds.device)[:, None] * reached[:, -1:]).int().argmax(dim=-1, keepdim=True)
    return tokens.gather(1, place).squeeze(1)


@torch.inference_mode()
def compete(rows: Rows, values: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return how probable each of a few values is after what the rows hold, among these values only.

    A value of several tokens counts with the product of their probabilities. The rows are left as they were.

    Args:
        rows: active rows with `logits` of their last token.
        values: the token ids of each value.

    Returns:
        probabilities of shape (active rows, values), float32, each row summing to one.
    """
    start, logits = rows.length, rows.logits
    root = torch.log_softmax(logits, dim=-1)
    behind: dict[tuple[int, ...], torch.Tensor] = {}
    totals = []
    for value in values:
        total = root[:, value[0]]
        head = tuple(value[:-1])
        if head:
            if head not in behind:
                fed = rows.feed([head] * rows.active, keep=len(head))
                behind[head] = torch.log_softmax(fed, dim=-1)
                rows.roll_back(start)
            steps = torch.tensor(value[1:], device=logits.device)
            total = total + behind[head][:, range(len(steps)), steps].sum(1)
        totals.append(total)
    rows.logits = logits
    return torch.stack(totals, dim=1).softmax(dim=1)
