"""Decode the rows of a batch together: a key/value buffer, free text token by token, and the choice among allowed values.

All rows have the same layout: [prefix shared by all | left padding, own prompt | tokens fed since]. Position ids count a
row's real tokens only, and the mask hides the padding, so rows of different lengths share one forward pass.
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

from automedeval.models.precision import cpu_has

KeyValues = list[tuple[torch.Tensor, torch.Tensor]]


def flatten_head_input(model) -> None:
    """Flatten the input of a model's output layer to a matrix; logits then have the shape (rows x positions, vocabulary).

    With the sliced hidden states that `logits_to_keep` produces, `linear` of torch 2.13 on CPU copies the output matrix once
    per row: 2,158 ms for 32 rows and a vocabulary of 49,152 in bfloat16, against 7 ms for the same rows as a matrix (two
    cores of an AMD EPYC, 2026-11-21).
    """
    head = model.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, inputs: (inputs[0].reshape(-1, inputs[0].shape[-1]),))


GROUPED_ATTENTION = "sdpa_grouped"


def _grouped_attention(module, query, key, value, attention_mask, scaling=None, **options):
    """Compute attention with the query heads of a key/value head as one group of queries, in the dtype of the keys.

    The interface is that of transformers' attention functions. With a mask, transformers' own "sdpa" copies keys and values
    once per query head, and it computes in the model's dtype: decoding a token of 24 rows over 800 positions takes 1.2 times
    as long in float32 and 2.5 times in bfloat16 (one thread of a Xeon at 2.5 GHz without AMX, torch 2.13, 2026-11-22).
    """
    dtype, query = query.dtype, query.to(key.dtype)
    if attention_mask is None and query.shape[2] > 1:
        return sdpa_attention_forward(module, query, key, value, None, scaling=scaling, **options)[0].to(dtype), None
    batch, heads, length, size = query.shape
    groups = heads // key.shape[1]
    mask = None if attention_mask is None else attention_mask.repeat(1, 1, groups, 1)
    packed = query.reshape(batch, key.shape[1], groups * length, size)
    output = scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(batch, heads, length, size).transpose(1, 2).contiguous().to(dtype), None


AttentionInterface.register(GROUPED_ATTENTION, _grouped_attention)
AttentionMaskInterface.register(GROUPED_ATTENTION, sdpa_mask)


def attention_for(attention: str, device: str) -> str:
    """Return the attention implementation to load a model with: on a CPU the grouped form of "sdpa", else `attention`."""
    return GROUPED_ATTENTION if attention == "sdpa" and device == "cpu" else attention


def cache_dtype(model) -> torch.dtype:
    """Return the dtype of the stored keys and values.

    On a CPU without AMX, torch computes attention over a long cache in bfloat16 more slowly than in float32: 10.9 ms against
    2.2 ms for one token of 24 rows over 800 positions, per layer (two cores of an AMD EPYC, torch 2.13, 2026-11-21).
    """
    slow = model.device.type == "cpu" and model.dtype == torch.bfloat16 and not cpu_has("amx_tile")
    grouped = model.config.get_text_config()._attn_implementation == GROUPED_ATTENTION
    return torch.float32 if slow and grouped else model.dtype


class _BufferLayer(DynamicLayer):
    """The keys and values of a layer in one allocation, written in place.

    DynamicLayer concatenates instead, which copies the whole cache once per token.
    """

    def __init__(self, rows: int, capacity: int, dtype: torch.dtype):
        super().__init__()
        self.rows, self.capacity, self.kept_as = rows, capacity, dtype
        self.first, self.length = 0, 0  # the next keys are written from this row on, after so many positions

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
        return self.keys[rows, :, :end], self.values[rows, :, :end]

    def get_seq_length(self) -> int:
        return self.length


class Rows:
    """A batch of sequences under one model; `logits` are those of each active row's last token, float32, (rows, vocabulary).

    Args:
        model: a causal language model in evaluation mode.
        count: number of rows.
        capacity: largest number of tokens in a row, padding included.
        prefix: keys and values of the tokens with which every row starts, from `prefix_key_values`.
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
            self.mask[:, : self.length] = 1
        self.cache = Cache(layers=layers)
        self.logits: torch.Tensor | None = None
        self.chance: list[random.Random] = []  # for sampling: one generator per row, which moves with the row

    def start(self, prompts: Sequence[Sequence[int]], forward_tokens: int) -> None:
        """Feed the rows' own prompts, a few rows per forward pass, padded to the longest of these few.

        Args:
            prompts: token ids per row, without the prefix; rows of similar length should be neighbours.
            forward_tokens: about how many tokens one forward pass takes; too many do not fit a CPU's caches.
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
        """Append tokens to the active rows, left-padded to the longest; set `self.logits` to those of the last position.

        Returns:
            logits of the last `keep` positions, float32, (active rows, keep, vocabulary).
        """
        logits, self.length = self._forward(tokens, 0, self.length, keep)
        self.logits = logits[:, -1]
        return logits

    def _forward(self, tokens: Sequence[Sequence[int]], first: int, at: int, keep: int) -> tuple[torch.Tensor, int]:
        """Feed the rows from `first` on after position `at`; return the logits and the position after the fed tokens."""
        width = max(map(len, tokens))
        if width > 64:  # round up: libraries keep a kernel, and allocators a block, for every shape
            width = min(-(-width // 32) * 32, self.mask.shape[1] - at)
        rows, device = slice(first, first + len(tokens)), self.model.device
        ids = torch.tensor([[self.pad] * (width - len(row)) + list(row) for row in tokens], device=device)
        real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in tokens], device=device)
        before = self.mask[rows, :at].sum(1, keepdim=True)
        self.mask[rows, at : at + width] = real
        for layer in self.cache.layers:
            layer.first, layer.length = first, at
        places = (before + real.cumsum(1) - 1).clamp(min=0)
        fed = {"input_ids": ids, "attention_mask": self.mask[rows, : at + width], "position_ids": places}
        output = self.model(**fed, past_key_values=self.cache, use_cache=True, logits_to_keep=keep)
        return output.logits.view(len(tokens), keep, -1).float(), at + width

    def roll_back(self, length: int) -> None:
        """Remove everything after the first `length` positions."""
        self.mask[:, length : self.length] = 0
        self._set_length(length)

    def _set_length(self, length: int) -> None:
        self.length = length
        for layer in self.cache.layers:
            layer.first, layer.length = 0, length

    def retire(self, row: int) -> int:
        """Exclude an active row from later forward passes by swapping it with the last active row; return the latter."""
        last = self.active - 1
        if row != last:
            for layer in self.cache.layers:
                for states in (layer.keys, layer.values):
                    # Only the written part: the rest of the buffer is empty in both.
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
    """The free text of one row.

    `tokens` are its ids. `pending` is the id that completed the stop pattern, chosen but not fed; None if an end token or the
    limit ended the text. `truncated` marks the limit.
    """

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
    """Write free text in every row, until an end token, a stop, or `most` tokens.

    Finished rows are excluded from later forward passes. On return all rows are active again, in another order than before.

    Args:
        rows: active rows with `logits` of their last token.
        most: largest number of tokens of a text.
        ends: ids of the tokens that end a text; they are neither fed nor kept.
        stops_at: (the last twelve tokens and the new one, whether these are all tokens) → whether the text ends.
        choose: picks a token per row from logits of shape (rows, vocabulary).

    Returns:
        one `Written` per row in the original order, and `owner`: the original row at each present position.
    """
    count = rows.active
    owner = list(range(count))  # owner[r]: the original number of the row now at r
    written = [Written([]) for _ in range(count)]
    logits = rows.logits
    while rows.active:
        chosen = choose(logits).tolist()
        done = []
        for row in range(rows.active):
            text, token = written[owner[row]], chosen[row]
            if token not in ends:
                if stops_at([*text.tokens[-12:], token], len(text.tokens) <= 12):
                    text.pending = token
                elif len(text.tokens) >= most:
                    text.truncated = True
                else:
                    text.tokens.append(token)
                    continue
            done.append(row)
        for row in reversed(done):
            last = rows.retire(row)
            owner[row], owner[last] = owner[last], owner[row]
            chosen[row], chosen[last] = chosen[last], chosen[row]
        if rows.active:
            logits = rows.feed([[token] for token in chosen[: rows.active]])[:, -1]
    rows.active = count
    return written, owner


def draw(rows: Rows, logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> torch.Tensor:
    """Sample a token for each active row with the row's own generator, independently of the other rows.

    Args:
        logits: (active rows, vocabulary).
        temperature: above 0.
        top_k: keep so many of the most probable tokens; 0 keeps all.
        top_p: of these, keep the fewest most probable ones that together reach this probability.
    """
    kept = min(top_k or logits.shape[-1], logits.shape[-1])
    best, tokens = logits.nan_to_num().topk(kept, dim=-1)
    if logits.device.type == "mps":  # it has no float64
        best, tokens = best.cpu(), tokens.cpu()
    odds = (best.double() / temperature).softmax(dim=-1)
    odds = odds.masked_fill(odds.cumsum(dim=-1) - odds >= top_p, 0.0)  # the most probable token always stays
    reached = odds.cumsum(dim=-1)
    chances = torch.tensor([chance.random() for chance in rows.chance[: len(logits)]], dtype=odds.dtype)
    # argmax: the first token at which the cumulative probability exceeds the drawn number.
    place = (reached > chances.to(odds.device)[:, None] * reached[:, -1:]).int().argmax(dim=-1, keepdim=True)
    return tokens.gather(1, place).squeeze(1).to(logits.device)


@torch.inference_mode()
def compete(rows: Rows, values: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the probability of each of a few values as the continuation of each row, normalised over these values.

    The probability of a value of several tokens is the product of theirs. The rows are left unchanged.

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
