"""LocalChat: a transformers checkpoint that answers prompts in batches and computes likelihoods.

For speed: prompts are sorted by length within a window and batched by a token budget; the prefix that all prompts of a window
share is computed once; rows decode together and leave the batch when they end; a score takes a few tokens after the prompt,
not a text that has to be parsed. Some architectures allow no batches (see `longest_in_batch`).
"""

import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property, partial

import torch
from transformers import AutoConfig

from automedeval.models.base import (
    NOT_FINITE,
    Answer,
    Answers,
    Chat,
    Field,
    Free,
    Ids,
    Layout,
    Prompt,
    Results,
    Slot,
    Wanted,
    answer_layout,
    unescaped,
)
from automedeval.models.checkpoints import (
    checkpoint_folder,
    find_model,
    fingerprint,
    loading,
)
from automedeval.models.decoding import (
    Prefix,
    Rows,
    SingleRow,
    Written,
    cache_dtype,
    compete,
    draw,
    write_free,
)
from automedeval.models.device import best_device, best_dtype, described
from automedeval.models.network import (
    flatten_head_input,
    load_network,
    longest_in_batch,
    outline_network,
)
from automedeval.models.tokenization import PromptEncoder, shared_start
from automedeval.records import RecordError

LOG = logging.getLogger(__name__)
ROOM_ON_CPU, ROOM_ON_GPU = 65_536, 262_144  # most tokens of a batch
MANY = 8  # prompts from which on, on a CPU, the first is answered by itself
LEAST = 64  # tokens of a free text that the window must leave


def batch_room(outline, device: str) -> int:
    """Return how many tokens of keys and values a batch may have on a device.

    On a GPU they take half of the memory that the weights leave: a forward pass and the allocator need the rest. Elsewhere they
    take 2 GiB. It depends on the hardware alone, since batches have to be the same when a run is resumed; only where others
    hold more than a tenth of a GPU, what they leave counts.
    """
    config = outline.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    token = 2 * config.num_hidden_layers * heads * head * cache_dtype(outline).itemsize
    room, most = 2 * 2**30, ROOM_ON_CPU
    if torch.device(device).type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        memory = total if free > 0.9 * total else free
        weights = sum(parameter.nbytes for parameter in outline.parameters())
        room = max(room, int(memory - weights) // 2)
        most = ROOM_ON_GPU
    return max(2048, min(most, room // token))


@dataclass
class LocalChat(Chat):
    """A checkpoint on this machine, as a chat; the weights are loaded when they are first needed.

    Args:
        model: folder or Hub id of a causal language model; only safetensors are read, and no remote code is run. The others
            are as in `ChatArguments`; for "auto" and 0 see `best_dtype`, `best_device` and `batch_room`.
        temperature: above 0 the seed of an answer is made of `seed` and its prompt, run and label, not of its batch.
        top_k: sample among so many of the most probable tokens; 0: all.
        stop: an answer without parts ends before this text; "" for models that end their answers themselves.
    """

    model: str
    dtype: str = "auto"
    device: str = "auto"
    batch_tokens: int = 0
    max_new_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    stop: str = ""
    seed: int = 0
    chat_template_path: str | None = None
    constrains = batched = True
    precision = ""  # in words, what dtype "auto" chose
    _prefix: Prefix = field(default_factory=Prefix, repr=False)

    def __post_init__(self) -> None:
        self.folder = folder = checkpoint_folder(self.model)
        self.name = folder.name if find_model(self.model) else self.model
        self.encoder = PromptEncoder.from_checkpoint(self.model, self.chat_template_path)
        self.tokenizer = self.encoder.tokenizer
        self._piece = cache(lambda token: self._decode([token]))
        if self.device == "auto":
            self.device = best_device()
        if self.dtype == "auto":
            dtype = best_dtype(
                self.device, AutoConfig.from_pretrained(folder, trust_remote_code=False).dtype
            )
            self.precision = described(dtype, self.device)
        else:
            dtype = getattr(torch, self.dtype)
        self._outline = outline_network(folder, dtype, self.device)
        self._longest_in_batch = longest_in_batch(self._outline)
        if not self._longest_in_batch:
            LOG.warning(
                "%s has recurrent or convolutional states: it answers one prompt after another",
                self.name,
            )
        if not self.batch_tokens:
            room = batch_room(self._outline, self.device)
            self.batch_tokens = room if self._longest_in_batch else 1
        # About how many prompt tokens a forward pass takes: a GPU should not wait between two, and a CPU's caches are small.
        self.forward_tokens = 8192 if torch.device(self.device).type == "cuda" else 2048
        self.window = (
            getattr(self._outline.config.get_text_config(), "max_position_embeddings", None) or 2048
        )
        self._settings = [
            str(dtype),
            self.max_new_tokens,
            self.temperature,
            self.top_k,
            self.stop,
            self.seed,
            self.tokenizer.chat_template,
            "none",  # of quantization
        ]

    @cached_property
    def network(self):
        with loading(self.model):
            try:
                network = load_network(self.folder, self._outline, self.device)
            except torch.OutOfMemoryError:
                more = "a serving engine spreads it over several GPUs, or serves it in fewer bits"
                raise RecordError(f"{self.name} does not fit {self.device}: {more}") from None
        flatten_head_input(network)
        return network

    @cached_property
    def _ends(self) -> set[int]:
        ends = self.network.generation_config.eos_token_id
        return {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id} - {None}

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return fingerprint(self.folder, self._settings)

    @cached_property
    def checkpoint(self) -> str:  # type: ignore[override]
        """Twelve hexadecimal digits over the checkpoint alone."""
        return fingerprint(self.folder, [])

    def prepare(self) -> None:
        """Load the network now."""
        assert self.network is not None

    def set_date(self, date: date) -> None:
        self.encoder.date = date

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt, without the answer."""
        (ids,) = self.encoder.encode([prompt.messages])
        return len(ids)

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return by how many tokens each prompt with its answer exceeds the context window; 0 or less fits.

        A free text takes what the window leaves, `LEAST` tokens at least. A token has a byte at least: most fit at a glance.
        """
        excesses = []
        for prompt in prompts:
            left = self.window - self._reserve(prompt, min(LEAST, self.max_new_tokens))
            size = sum(len(message["content"].encode()) + 64 for message in prompt.messages)
            if size > left:
                size = self.count_tokens(prompt)
            excesses.append(size - left)
        return excesses

    def _reserve(self, prompt: Prompt, free: int) -> int:
        """Return the most tokens of an answer with `free` tokens of free text; the rest takes at most one for each byte."""
        parts = prompt.form or (Free(self.stop),)
        tokens = 0
        for part in parts:
            if isinstance(part, Free):
                tokens += free
            elif isinstance(part, Slot):
                tokens += max(len(value.encode()) for value in part.values)
            else:
                tokens += len(part.encode())
        return tokens

    # --- answering ---------------------------------------------------------------------------------------------------

    def answer(self, prompts: Sequence[Prompt], wanted: Wanted = None) -> Answers:
        """Answer the prompts of one window, which fit, batch by batch; yield (index, answer) as they come.

        Batches are composed of all prompts, wanted or not, so that a resumed run gives the same answers to the last bit.
        """
        if wanted is not None and not any(wanted):
            return
        encoded = self.encoder.encode([prompt.messages for prompt in prompts])
        self._share_prefix(encoded)
        replies, lengths = [], []
        for prompt, ids in zip(prompts, encoded):
            left = self.window - len(ids) - self._reserve(prompt, 0)
            reply = _Reply(prompt, ids, max(1, min(self.max_new_tokens, left)))
            replies.append(reply)
            lengths.append(len(ids) + self._reserve(prompt, reply.most))
        shapes = [repr(prompt.form) for prompt in prompts]
        yield from self._by_batches(replies, lengths, wanted, self._answer_batch, shapes)

    def _share_prefix(self, encoded: list[Ids]) -> None:
        """Compute the keys and values of the tokens with which all prompts begin."""
        shared: Ids = []
        if len(encoded) > 1 and self._longest_in_batch:
            shortest = min(map(len, encoded))
            shared = shared_start(encoded)[: shortest - 1]
        if shared != self._prefix.tokens:
            self._prefix = Prefix.compute(self.network, shared) if shared else Prefix()

    def _by_batches(
        self,
        asked: Sequence,
        lengths: list[int],
        wanted: Wanted,
        compute: Callable[[list], Sequence],
        shapes: Sequence[str] | None = None,
    ) -> Results:
        """Compute the batches with at least one wanted index (None: all); yield (index, result) of the wanted ones."""
        wanted = [True] * len(asked) if wanted is None else wanted
        for batch in self._batches(lengths, shapes or [""] * len(asked)):
            if any(wanted[index] for index in batch):
                results = compute([asked[index] for index in batch])
                yield from (
                    (index, result) for index, result in zip(batch, results) if wanted[index]
                )

    def _batches(self, lengths: list[int], shapes: Sequence[str]) -> Iterator[list[int]]:
        """Yield indices in batches of one shape, shortest first, each within the token budget.

        On a CPU the first one of many is a batch by itself, so that an answer is there soon.
        """
        batch: list[int] = []
        alone = self.device == "cpu" and len(lengths) > MANY
        for index in sorted(range(len(lengths)), key=lambda i: (shapes[i], lengths[i], i)):
            length = lengths[index]
            too_long = length > self._longest_in_batch
            is_full = too_long or (len(batch) + 1) * length > self.batch_tokens
            if batch and (alone or is_full or shapes[batch[0]] != shapes[index]):
                yield batch
                batch, alone = [], False
            batch.append(index)
        if batch:
            yield batch

    @torch.inference_mode()
    def _answer_batch(self, replies: list["_Reply"]) -> list[Answer]:
        """Answer prompts of one form."""
        layout = answer_layout(replies[0].prompt.form or (Free(self.stop),))
        reserves = [self._reserve(reply.prompt, reply.most) for reply in replies]
        rows = self._rows([reply.ids for reply in replies], reserves)
        rows.chance = [self._chance(reply.prompt) for reply in replies]
        if layout.free is None:
            opening, *_ = self.encoder.segment(*layout.slots[0])
        else:
            opening = self.encoder.after("\n", layout.opening)
        rows.start([reply.ids + opening for reply in replies], self.forward_tokens)
        in_rows = replies
        if layout.free is not None:
            in_rows = self._write_first(rows, layout, layout.free, replies)
        if layout.slots:
            behind = self._choose_values(rows, layout.slots, in_rows)
            if layout.reason is not None:
                self._give_reasons(rows, layout.slots[-1], layout.reason, behind, in_rows)
        return [reply.answer() for reply in replies]

    def _chance(self, prompt: Prompt) -> random.Random:
        """Return the generator that samples the answer to a prompt, whatever its batch."""
        key = [self.seed, prompt.run, prompt.label, prompt.messages]
        return random.Random(json.dumps(key))  # seeded by the text's SHA-512

    def _write_first(
        self, rows: Rows, layout: Layout, free: Free, replies: list["_Reply"]
    ) -> list["_Reply"]:
        """Let every row write its free text, and feed what leads to the first value; return the replies as the rows stand."""
        for reply, is_bad in zip(replies, rows.logits.isnan().any(dim=1).tolist()):
            reply.is_finite = not is_bad
        written, owner = self._write(rows, free, replies)
        literal = layout.slots[0][0] if layout.slots else ""
        tails = []
        for reply, row in zip(replies, written):
            text, tail = self._join(row, free, literal)
            reply.text = layout.opening + text
            reply.free = unescaped(text) if free.json_string else text.strip()
            tails.append(tail)
        if layout.slots:
            _, values, ending = self.encoder.segment(*layout.slots[0])
            first = layout.slots[0][1].values[0]
            spare = len(values[0]) - ending
            fed = [self.encoder.after("x", tails[index] + first) for index in owner]
            rows.feed([ids[: len(ids) - spare] for ids in fed])
        return [replies[index] for index in owner]

    def _give_reasons(
        self, rows: Rows, last: Field, free: Free, behind: list[Ids], replies: list["_Reply"]
    ) -> None:
        """Feed the tokens of the last values, and let every row write the reason of its values."""
        _, slot, following = last
        start = self.encoder.after(slot.values[0], following)
        rows.feed([ids + start for ids in behind])
        written, _ = self._write(rows, free, replies)
        for reply, row in zip(replies, written):
            text = self._decode(row.tokens)
            reply.text += text
            reply.free = text.strip()

    def _rows(self, prompts: list[Ids], reserves: list[int], prefix: Prefix | None = None) -> Rows:
        """Return the rows of a batch, in which each answer takes at most its reserve."""
        lengths = [len(ids) for ids in prompts]
        if max(map(sum, zip(lengths, reserves))) > self._longest_in_batch:
            return SingleRow(self.network)
        # Rows end at one place: the longest answer may follow a prompt as long as the longest.
        capacity = max(lengths) + max(reserves) + 64
        pad = self.tokenizer.pad_token_id or 0
        return Rows(self.network, len(prompts), capacity, prefix or self._prefix, pad)

    def _choose_values(
        self, rows: Rows, slots: Sequence[Field], replies: Sequence["_Reply"]
    ) -> list[Ids]:
        """Choose an allowed value of each slot, before which the rows stand, and feed it with the literal before the next one.

        It is the most probable one, or with a temperature a sampled one; probabilities are those at temperature 1. Return the
        tokens of the last values, which are not fed.
        """
        behind: list[Ids] = []
        for literal, slot, following in slots:
            shared, values, ending = self.encoder.segment(literal, slot, following)
            if behind:
                rows.feed([ids + shared for ids in behind])
            odds = compete(rows, values)
            chosen = odds.argmax(dim=1)
            if self.temperature:
                chosen = draw(rows, odds.log(), self.temperature)
            behind = []
            for reply, winner, chances in zip(replies, chosen.tolist(), odds.tolist()):
                ids, value = values[winner], slot.values[winner]
                behind.append(ids[: len(ids) - ending])
                reply.values.append(value)
                reply.odds.append(dict(zip(slot.values, chances)))
                reply.text += literal + value
                reply.tokens += len(shared) + len(ids)
        for reply in replies:
            reply.text += slots[-1][2]
        return behind

    def _chooser(self, rows: Rows) -> Callable[[torch.Tensor], torch.Tensor]:
        if not self.temperature:
            return partial(torch.argmax, dim=-1)
        return lambda logits: draw(rows, logits, self.temperature, self.top_k)

    def _write(
        self, rows: Rows, free: Free, replies: list["_Reply"]
    ) -> tuple[list[Written], list[int]]:
        """Let every row write a free text (see `write_free`), and count its tokens."""
        ending = _Ending(free)

        def stops(tokens: Ids) -> bool:
            if not ending.may_end_with(self._piece(tokens[-1])):
                return False
            return ending.search(ending.lead + self._decode(tokens)) is not None

        most = [reply.most for reply in replies]
        written, owner = write_free(rows, most, self._ends, stops, self._chooser(rows))
        for reply, row in zip(replies, written):
            reply.tokens += len(row.tokens)
            reply.truncated = row.truncated
        return written, owner

    def _decode(self, tokens: Ids) -> str:
        return self.tokenizer.batch_decode(
            [tokens], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )[0]

    def _join(self, written: Written, free: Free, literal: str) -> tuple[str, str]:
        """Return the free text, and the text that is still to be fed so that the row continues with `literal`."""
        ending = _Ending(free)
        text = fed = ending.lead + self._decode(written.tokens)
        if written.pending is not None:
            whole = ending.lead + self._decode([*written.tokens, written.pending])
            text = whole[: ending.search(whole)]
        elif free.json_string and (len(fed) - len(fed.rstrip("\\"))) % 2:
            text += "\\"  # else what follows would be escaped
        return text[len(ending.lead) :], (text + literal)[len(fed) :]

    # --- likelihoods ---------------------------------------------------------------------------------------------------

    def overflow_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Return by how many tokens each (condition, target) exceeds the context window; 0 or less fits."""
        return [
            len(condition) + len(target) - self.window
            for condition, target in self.encoder.encode_pairs(pairs)
        ]

    def likelihoods(
        self, pairs: Sequence[tuple[str, str]], wanted: Wanted = None
    ) -> Iterator[tuple[int, float]]:
        """Yield (index, mean log-probability of the target's tokens given the condition), in nats per token, as `answer`."""
        rows = self.encoder.encode_pairs(pairs)
        lengths = [len(condition) + len(target) for condition, target in rows]
        return self._by_batches(rows, lengths, wanted, self._likelihood_batch)

    @torch.inference_mode()
    def _likelihood_batch(self, pairs: list[tuple[Ids, Ids]]) -> list[float]:
        whole = [condition + target for condition, target in pairs]
        keep = max(len(target) for _, target in pairs) + 1
        rows = self._rows(whole, [0] * len(pairs), Prefix())
        logits = rows.start(whole, self.batch_tokens, keep)
        means = []
        # one by one: the full vocabulary in float32 is large
        for (_, target), row in zip(pairs, logits):
            steps = row[-len(target) - 1 : -1].float()
            tokens = torch.tensor(target, device=steps.device)
            chosen = steps.gather(1, tokens[:, None]).squeeze(1)
            means.append((chosen - steps.logsumexp(dim=1)).mean().item())
        return means


@dataclass
class _Reply:
    """What a model answers to a prompt of the tokens `ids`, as far as it is written.

    Its free text has at most `most` tokens; `tokens` counts what the model wrote and what it chose.
    """

    prompt: Prompt
    ids: Ids
    most: int
    text: str = ""
    free: str | None = None
    values: list[str] = field(default_factory=list)
    odds: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    truncated: bool = False
    is_finite: bool = True

    def answer(self) -> Answer:
        usage = {"prompt_tokens": len(self.ids), "completion_tokens": self.tokens}
        if not self.is_finite:
            return Answer(error=NOT_FINITE, usage=usage)
        if not self.values:
            return Answer.of_text(self.text, truncated=self.truncated, usage=usage)
        return Answer.of_odds(
            self.odds,
            self.values,
            usage=usage,
            text=self.text,
            free=self.free,
            truncated=self.truncated,
        )


class _Ending:
    """Where a free text ends: before its stop, in JSON before the quote that closes the string.

    A text is searched with the `lead` before it: the line break that ends the prompt, which may be the stop's own.
    """

    def __init__(self, free: Free):
        stop = free.stop
        escaped = re.escape(stop)
        before = r"(?<!\\)(?:\\\\)*" if free.json_string else ""
        self.lead = "\n" if stop.startswith("\n") else ""
        self._stop = re.compile(f"{before}(?P<stop>{escaped})", re.I)
        # Only a token that holds the stop, or begins with an end of it, can complete it.
        ends = [re.escape(stop[at:]) for at in range(1, len(stop))]
        self._last = re.compile("|".join([escaped, *(rf"\A{end}" for end in ends)]), re.I)
        self._is_known = bool(stop)

    def may_end_with(self, piece: str) -> bool:
        """Return whether a text may end with this token."""
        return self._is_known and self._last.search(piece) is not None

    def search(self, text: str) -> int | None:
        """Return the place at which a text ends; None if it goes on."""
        match = self._stop.search(text)
        return match and match.start("stop")
