"""LocalChat: a transformers checkpoint that answers prompts in batches and computes likelihoods.

For speed: prompts are sorted by length within a window and batched by a token budget; the prefix that all prompts of a window
share is computed once; rows decode together and leave the batch when they end; a score takes a few tokens after the prompt,
not a text that has to be parsed. Some architectures allow no batches (see `longest_in_batch`).
"""

import json
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    Free,
    Ids,
    Part,
    Prompt,
    Results,
    Slot,
    TextPairs,
    Wanted,
    steps_of,
    unescaped,
)
from automedeval.models.checkpoints import (
    checkpoint_folder,
    find_model,
    fingerprint,
    loading,
)
from automedeval.models.decoding import (
    Batch,
    Prefix,
    Row,
    SingleRow,
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
from automedeval.records.types import as_list

LOG = logging.getLogger(__name__)
ROOM_ON_CPU = 65_536  # most tokens of a batch
ROOM_ON_GPU = 262_144
MANY = 8  # prompts from which on, on a CPU, the first is answered by itself
LEAST = 64  # tokens of a free text that the window must leave
LEAD = "\n"  # ends the prompt; a stop that begins with a line break may begin with this one


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
    room = 2 * 2**30
    most = ROOM_ON_CPU
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
        elif not self.batch_tokens:
            self.batch_tokens = batch_room(self._outline, self.device)
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
            network = load_network(self.folder, self._outline, self.device)
        flatten_head_input(network)
        return network

    @cached_property
    def _ends(self) -> set[int]:
        ends = self.network.generation_config.eos_token_id
        return {*as_list(ends), self.tokenizer.eos_token_id} - {None}

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        return fingerprint(self.folder, self._settings)

    @cached_property
    def checkpoint(self) -> str:  # type: ignore[override]
        """Twelve hexadecimal digits over the checkpoint alone."""
        return fingerprint(self.folder)

    def prepare(self) -> None:
        """Load the network now."""
        assert self.network is not None

    def set_date(self, date: date) -> None:
        self.encoder.date = date

    def count_tokens(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt, without the answer."""
        (ids,) = self.encoder.encode([prompt.messages])
        return len(ids)

    # --- answering ---------------------------------------------------------------------------------------------------

    def answer(self, prompts: Sequence[Prompt], wanted: Wanted = None) -> Answers:
        """Answer the prompts of one window, batch by batch; yield (index, answer) as they come.

        Batches are composed of all prompts, wanted or not, so that a resumed run gives the same answers to the last bit.
        """
        if wanted is not None and not any(wanted):
            return
        encoded = self.encoder.encode([prompt.messages for prompt in prompts])
        replies = list(map(self._reply, prompts, encoded))
        yield from self._by_batches(replies, wanted, self._answer_batch)

    def _reply(self, prompt: Prompt, ids: Ids) -> "_Reply":
        """Return the reply to a prompt, whose free text takes what the window leaves, `LEAST` tokens at least."""
        parts = prompt.form or (Free(self.stop),)
        room = self.window - len(ids) - _most_tokens(parts, 0)
        most = max(1, min(self.max_new_tokens, room))
        return _Reply(
            parts=parts,
            ids=ids,
            least=_most_tokens(parts, min(LEAST, self.max_new_tokens)),
            reserve=_most_tokens(parts, most),
            most=most,
            shape=repr(prompt.form),
            chance=self._chance(prompt),
            unfed=list(ids),
        )

    def _by_batches(
        self,
        rows: Sequence[Row],
        wanted: Wanted,
        compute: Callable[[list], Sequence],
        shares_prefix: bool = True,
    ) -> Results:
        """Compute the batches with at least one wanted row (None: all); yield (index, result) of the wanted ones.

        One that exceeds the context window has an answer with an error instead.
        """
        wanted = [True] * len(rows) if wanted is None else wanted
        fitting = []
        for index, row in enumerate(rows):
            row.index = index
            over = len(row.ids) + row.least - self.window
            if over <= 0:
                fitting.append(row)
            elif wanted[index]:
                error = f"the prompt is {over} tokens longer than the context window"
                yield index, Answer(error=error, overlong=True)
        self._share_prefix(fitting if shares_prefix else [])
        for batch in self._batches(fitting):
            if any(wanted[row.index] for row in batch):
                for row, result in zip(batch, compute(batch)):
                    if wanted[row.index]:
                        yield row.index, result

    def _share_prefix(self, rows: Sequence[Row]) -> None:
        """Compute the keys and values of the tokens with which all rows begin."""
        shared: Ids = []
        if len(rows) > 1 and self._longest_in_batch:
            shared = shared_start([row.ids for row in rows])
            shared = shared[: min(len(row.ids) for row in rows) - 1]
        if shared != self._prefix.tokens:
            self._prefix = Prefix.compute(self.network, shared) if shared else Prefix()

    def _batches(self, rows: Iterable[Row]) -> Iterator[list]:
        """Yield rows in batches of one shape, shortest first, each within the token budget.

        On a CPU the first one of many is a batch by itself, so that an answer is there soon.
        """
        batch: list[Row] = []
        ordered = sorted(rows, key=lambda row: (row.shape, row.length))
        alone = self.device == "cpu" and len(ordered) > MANY
        for row in ordered:
            too_long = row.length > self._longest_in_batch
            is_full = too_long or (len(batch) + 1) * row.length > self.batch_tokens
            if batch and (alone or is_full or batch[0].shape != row.shape):
                yield batch
                batch = []
                alone = False
            batch.append(row)
        if batch:
            yield batch

    @torch.inference_mode()
    def _answer_batch(self, replies: list["_Reply"]) -> list[Answer]:
        """Answer prompts of one form."""
        batch = self._batch(replies, self.forward_tokens)
        behind = "\n"
        following = ""
        for literal, part, following in steps_of(replies[0].parts):
            if isinstance(part, Slot):
                self._choose_value(batch, literal, part, following)
                behind = part.values[0]
            else:
                start = self.encoder.after(behind, literal)
                batch.feed([reply.unfed + start for reply in batch.rows])
                self._write(batch, literal, part, following)
        for reply in replies:
            reply.text += following
        return [reply.answer() for reply in replies]

    def _chance(self, prompt: Prompt) -> random.Random:
        """Return the generator that samples the answer to a prompt, whatever its batch."""
        key = [self.seed, prompt.run, prompt.label, prompt.messages]
        return random.Random(json.dumps(key))  # seeded by the text's SHA-512

    def _batch(self, rows: Sequence[Row], forward_tokens: int) -> Batch:
        """Return a batch in which each answer takes at most its reserve."""
        if max(row.length for row in rows) > self._longest_in_batch:
            return SingleRow(self.network, rows[0])
        # Rows end at one place: the longest answer may follow a prompt as long as the longest.
        capacity = max(len(row.ids) for row in rows) + max(row.reserve for row in rows) + 64
        return Batch(self.network, rows, capacity, forward_tokens, self._prefix)

    def _choose_value(self, batch: Batch, literal: str, slot: Slot, following: str) -> None:
        """Feed what stands before a slot, and choose one of its values.

        It is the most probable one, or with a temperature a sampled one; probabilities are those at temperature 1.
        """
        shared, values, ending = self.encoder.segment(literal, slot, following)
        spare = len(values[0]) - ending  # tokens of the first value that are its own
        for reply in batch.rows:
            if reply.tail is None:
                reply.unfed += shared
            else:
                ids = self.encoder.after("x", reply.tail + slot.values[0])
                reply.unfed = ids[: len(ids) - spare]
                reply.tail = None
        batch.feed([reply.unfed for reply in batch.rows])
        odds = compete(batch, values)
        chosen = odds.argmax(dim=1)
        if self.temperature:
            chosen = draw(batch.rows, odds.log(), self.temperature)
        for reply, winner, chances in zip(batch.rows, chosen.tolist(), odds.tolist()):
            ids = values[winner]
            value = slot.values[winner]
            reply.unfed = ids[: len(ids) - ending]
            reply.values.append(value)
            reply.odds.append(dict(zip(slot.values, chances)))
            reply.text += literal + value
            reply.spent += len(shared) + len(ids)

    def _choose(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        """Return a token for each row of logits: the likeliest, or a sampled one."""
        if not self.temperature:
            return logits.argmax(dim=-1)
        return draw(batch.rows, logits, self.temperature, self.top_k)

    def _write(self, batch: Batch, literal: str, free: Free, following: str) -> None:
        """Let every row write a free text behind a literal that is fed (see `write_free`)."""
        for reply, is_bad in zip(batch.rows, batch.logits.isnan().any(dim=1).tolist()):
            reply.is_finite = not is_bad
        write_free(batch, self._ends, partial(self._stops, free), partial(self._choose, batch))
        for reply in batch.rows:
            text, reply.tail = self._join(reply, free, following)
            reply.text += literal + text
            reply.free = unescaped(text) if free.json_string else text.strip()
            reply.spent += len(reply.written)

    def _stops(self, free: Free, tokens: Ids) -> bool:
        """Return whether the last of these tokens ends a free text; no more of it is read than is needed."""
        stop = free.stop.casefold()
        if not stop or stop[-1] not in self._piece(tokens[-1]).casefold():
            return False
        near = LEAD + self._decode(tokens[-len(free.stop.encode()) :])
        if stop not in near.casefold():
            return False
        return free.end(LEAD + self._decode(tokens)) is not None

    def _decode(self, tokens: Ids) -> str:
        return self.tokenizer.batch_decode(
            [tokens], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )[0]

    def _join(self, reply: "_Reply", free: Free, literal: str) -> tuple[str, str]:
        """Return the free text, and the text that is still to be fed so that the row continues with `literal`."""
        text = fed = LEAD + self._decode(reply.written)
        if reply.pending is not None:
            whole = LEAD + self._decode([*reply.written, reply.pending])
            text = whole[: free.end(whole)]
        elif free.json_string and (len(fed) - len(fed.rstrip("\\"))) % 2:
            text += "\\"  # else what follows would be escaped
        return text[len(LEAD) :], (text + literal)[len(fed) :]

    # --- likelihoods ---------------------------------------------------------------------------------------------------

    def likelihoods(self, pairs: TextPairs, wanted: Wanted = None) -> Results:
        """Yield (index, mean log-probability of the target's tokens given the condition), in nats per token, as `answer`.

        Of a pair that exceeds the context window it is an answer with an error.
        """
        encoded = self.encoder.encode_pairs(pairs)
        rows = [_Pair(ids=condition + target, target=target) for condition, target in encoded]
        return self._by_batches(rows, wanted, self._likelihood_batch, shares_prefix=False)

    @torch.inference_mode()
    def _likelihood_batch(self, pairs: list["_Pair"]) -> list[float]:
        batch = self._batch(pairs, self.batch_tokens)
        keep = max(len(pair.target) for pair in pairs) + 1
        logits = batch.feed([pair.ids for pair in pairs], keep)
        means = []
        # one by one: the full vocabulary in float32 is large
        for pair, row in zip(pairs, logits):
            steps = row[-len(pair.target) - 1 : -1].float()
            tokens = torch.tensor(pair.target, device=steps.device)
            chosen = steps.gather(1, tokens[:, None]).squeeze(1)
            means.append((chosen - steps.logsumexp(dim=1)).mean().item())
        return means


def _most_tokens(parts: Sequence[Part], free: int) -> int:
    """Return the most tokens of an answer with `free` tokens of free text; the rest takes at most one for each byte."""
    tokens = 0
    for part in parts:
        if isinstance(part, Free):
            tokens += free
        elif isinstance(part, Slot):
            tokens += max(len(value.encode()) for value in part.values)
        else:
            tokens += len(part.encode())
    return tokens


@dataclass(kw_only=True)
class _Pair(Row):
    """A condition and its target, of which the likelihood is asked."""

    target: Ids


@dataclass(kw_only=True)
class _Reply(Row):
    """The answer in `parts` to a prompt, as far as it is written.

    Chosen and not fed yet are the tokens `unfed`, and behind a free text the text `tail`. `spent` counts the tokens that the
    model wrote and chose.
    """

    parts: Sequence[Part]
    unfed: Ids
    tail: str | None = None
    text: str = ""
    free: str | None = None
    values: list[str] = field(default_factory=list)
    odds: list[dict[str, float]] = field(default_factory=list)
    spent: int = 0
    is_finite: bool = True

    def answer(self) -> Answer:
        usage = {"prompt_tokens": len(self.ids), "completion_tokens": self.spent}
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
