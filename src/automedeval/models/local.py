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
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property, partial
from itertools import takewhile
from typing import Any

import torch
from transformers import AutoConfig

from automedeval.models.base import (
    NOT_FINITE,
    Answer,
    Chat,
    Field,
    Free,
    Layout,
    Prompt,
    Slot,
    answer_layout,
    unescaped,
)
from automedeval.models.checkpoints import (
    checkpoint_folder,
    file_digests,
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
from automedeval.models.tokenization import PromptEncoder
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
        weights = sum(parameter.nbytes for parameter in outline.parameters())
        room = max(room, int((total if free > 0.9 * total else free) - weights) // 2)
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
        ]
        self._settings += [self.tokenizer.chat_template, "none"]  # "none": of quantization

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
    def _digests(self) -> dict[str, str]:
        return file_digests(self.folder)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.folder, self._settings, self._digests)

    @property
    def checkpoint(self) -> str:
        """Twelve hexadecimal digits over the checkpoint alone."""
        return fingerprint(self.folder, [], self._digests)

    def prepare(self) -> None:
        """Load the network now."""
        assert self.network is not None

    def set_date(self, date: date) -> None:
        self.encoder.date = date

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return the number of tokens of each prompt, without the answer."""
        return (
            [len(ids) for ids in self.encoder.encode([prompt.messages for prompt in prompts])]
            if prompts
            else []
        )

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return by how many tokens each prompt with its answer exceeds the context window; 0 or less fits.

        A free text takes what the window leaves, `LEAST` tokens at least. A token has a byte at least: most fit at a glance.
        """
        sizes = [
            sum(len(message["content"].encode()) + 64 for message in prompt.messages)
            for prompt in prompts
        ]
        rests = [
            self._reserve(prompt, min(LEAST, self.max_new_tokens)) - self.window
            for prompt in prompts
        ]
        over = [size + rest for size, rest in zip(sizes, rests)]
        doubtful = [index for index, excess in enumerate(over) if excess > 0]
        for index, count in zip(
            doubtful, self.count_tokens([prompts[index] for index in doubtful])
        ):
            over[index] = count + rests[index]
        return over

    def _reserve(self, prompt: Prompt, free: int) -> int:
        """Return the most tokens of an answer with `free` tokens of free text; the rest takes at most one for each byte."""
        parts = prompt.form or ()
        texts = [
            part.values if isinstance(part, Slot) else [part]
            for part in parts
            if not isinstance(part, Free)
        ]
        longest = sum(max(len(text.encode()) for text in values) for values in texts)
        return longest + free * (not texts or len(texts) < len(parts))

    # --- answering ---------------------------------------------------------------------------------------------------

    def answer(
        self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        """Answer the prompts of one window, which fit, batch by batch; yield (index, answer) as they come.

        Batches are composed of all prompts, wanted or not, so that a resumed run gives the same answers to the last bit.
        """
        if wanted is not None and not any(wanted):
            return
        encoded = self.encoder.encode([prompt.messages for prompt in prompts])
        self._share_prefix(encoded)
        left = [
            self.window - len(ids) - self._reserve(prompt, 0)
            for ids, prompt in zip(encoded, prompts)
        ]
        free = [max(1, min(self.max_new_tokens, room)) for room in left]
        lengths = [
            len(ids) + self._reserve(prompt, most)
            for ids, prompt, most in zip(encoded, prompts, free)
        ]
        shapes = [repr(prompt.form) for prompt in prompts]
        yield from self._by_batches(
            list(zip(prompts, encoded, free)), lengths, wanted, self._answer_batch, shapes
        )

    def _share_prefix(self, encoded: list[list[int]]) -> None:
        """Compute the keys and values of the tokens with which all prompts begin."""
        shared: list[int] = []
        if len(encoded) > 1 and self._longest_in_batch:
            low, high = min(encoded), max(encoded)
            shared = [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high))]
            shared = shared[: min(map(len, encoded)) - 1]
        if shared != self._prefix.tokens:
            self._prefix = Prefix.compute(self.network, shared) if shared else Prefix()

    def _by_batches(
        self,
        asked: Sequence,
        lengths: list[int],
        wanted: Sequence[bool] | None,
        compute: Callable[[list], Sequence],
        shapes: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, Any]]:
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
            other = batch and shapes[batch[0]] != shapes[index]
            over = (len(batch) + 1) * lengths[index] > self.batch_tokens or lengths[
                index
            ] > self._longest_in_batch
            if batch and (other or over or alone):
                yield batch
                batch, alone = [], False
            batch.append(index)
        if batch:
            yield batch

    @torch.inference_mode()
    def _answer_batch(self, asked: list[tuple[Prompt, list[int], int]]) -> list[Answer]:
        """Answer prompts of one form, each with its tokens and the most tokens of its free text."""
        prompts, encoded, most = map(list, zip(*asked))
        parts = prompts[0].form
        layout = answer_layout(parts) if parts else Layout("", Free(self.stop), [])
        opening, free, slots, reason = layout
        rows = self._rows(encoded, [self._reserve(prompts[0], free) for free in most])
        keys = [
            json.dumps([self.seed, prompt.run, prompt.label, prompt.messages]) for prompt in prompts
        ]
        rows.chance = list(map(random.Random, keys))  # seeded by the text's SHA-512
        usage = [{"prompt_tokens": len(ids), "completion_tokens": 0} for ids in encoded]
        if free is None:
            shared, *_ = self.encoder.segment(*slots[0])
            rows.start([ids + shared for ids in encoded], self.forward_tokens)
            valued = self._choose_values(rows, slots, usage)
            return valued if reason is None else self._reasoned(rows, layout, valued, most)
        start = self.encoder.after("\n", opening) if opening else []
        rows.start([ids + start for ids in encoded], self.forward_tokens)
        not_finite = rows.logits.isnan().any(dim=1).tolist()
        written, owner = self._write(rows, free, usage, most)
        literal, slot, following = slots[0] if slots else ("", None, "")
        joined = [self._join(text, free, literal) for text in written]
        if slot is None:
            answers = [Answer.of_text(text) for text, _ in joined]
        else:
            tail = [self.encoder.after("x", joined[index][1] + slot.values[0]) for index in owner]
            _, values, ending = self.encoder.segment(literal, slot, following)
            spare = len(values[0]) - ending
            rows.feed([ids[: len(ids) - spare] for ids in tail])
            behind = self._choose_values(rows, slots, [usage[index] for index in owner])
            by_row = dict(zip(owner, behind))
            answers = [
                replace(
                    by_row[index],
                    text=opening + text + by_row[index].text,
                    free=unescaped(text) if free.json_string else text.strip(),
                )
                for index, (text, _) in enumerate(joined)
            ]
        return [
            Answer(error=NOT_FINITE, usage=count)
            if bad or answer.error == NOT_FINITE
            else replace(answer, truncated=made.truncated, usage=count)
            for answer, bad, made, count in zip(answers, not_finite, written, usage)
        ]

    def _reasoned(
        self, rows: Rows, layout: Layout, valued: Sequence[Answer], most: list[int]
    ) -> list[Answer]:
        """Let every row, which stands before its last value, write the reason of its values."""
        literal, slot, following = layout.slots[-1]
        _, values, ending = self.encoder.segment(literal, slot, following)
        last = [slot.values.index(answer.values[-1]) if answer.values else 0 for answer in valued]
        behind = self.encoder.after(slot.values[0], following)
        rows.feed([values[at][: len(values[at]) - ending] + behind for at in last])
        usage = [answer.usage for answer in valued]
        written, _ = self._write(rows, layout.reason or Free(""), usage, most)
        texts = [self._decode(row.tokens) for row in written]
        return [
            replace(answer, text=answer.text + text, free=text.strip(), truncated=row.truncated)
            for answer, text, row in zip(valued, texts, written)
        ]

    def _rows(
        self, prompts: list[list[int]], reserves: list[int], prefix: Prefix | None = None
    ) -> Rows:
        """Return the rows of a batch, in which each answer takes at most its reserve."""
        if max(map(sum, zip(map(len, prompts), reserves))) > self._longest_in_batch:
            return SingleRow(self.network)
        # Rows end at one place: the longest answer may follow a prompt as long as the longest.
        capacity = max(map(len, prompts)) + max(reserves) + 64
        return Rows(
            self.network,
            len(prompts),
            capacity,
            prefix or self._prefix,
            self.tokenizer.pad_token_id or 0,
        )

    def _choose_values(
        self, rows: Rows, slots: Sequence[Field], usage: list[dict[str, int]]
    ) -> list[Answer]:
        """Choose an allowed value of each slot, before which the rows stand, and feed it with the literal before the next one.

        It is the most probable one, or with a temperature a sampled one; probabilities are those at temperature 1.
        """
        texts = [""] * len(usage)
        chosen: list[list[str]] = [[] for _ in usage]
        probabilities: list[list[dict[str, float]]] = [[] for _ in usage]
        winners: list[list[int]] = []
        for literal, slot, following in slots:
            shared, values, ending = self.encoder.segment(literal, slot, following)
            if winners:
                rows.feed([ids + shared for ids in winners])
            odds = compete(rows, values)
            best = (
                draw(rows, odds.log(), self.temperature) if self.temperature else odds.argmax(dim=1)
            ).tolist()
            for row, (winner, chances) in enumerate(zip(best, odds.tolist())):
                chosen[row].append(slot.values[winner])
                probabilities[row].append(dict(zip(slot.values, chances)))
                texts[row] += literal + slot.values[winner]
                usage[row]["completion_tokens"] += len(shared) + len(values[winner])
            winners = [values[winner][: len(values[winner]) - ending] for winner in best]
        texts = [text + slots[-1][2] for text in texts]
        return [
            replace(answer, values=tuple(words)) if answer.values else answer
            for answer, words in zip(map(Answer.of_odds, probabilities, usage, texts), chosen)
        ]

    def _chooser(self, rows: Rows) -> Callable[[torch.Tensor], torch.Tensor]:
        if not self.temperature:
            return partial(torch.argmax, dim=-1)
        return lambda logits: draw(rows, logits, self.temperature, self.top_k)

    def _write(
        self, rows: Rows, free: Free, usage: list[dict[str, int]], most: list[int]
    ) -> tuple[list[Written], list[int]]:
        """Let every row write a free text (see `write_free`), and count its tokens in `usage`."""

        def stops(tokens: list[int], whole: bool) -> bool:
            # Only a token that holds the stop, or begins with an end of it, can complete it.
            if not free.stop or not final.search(self._piece(tokens[-1])):
                return False
            # A quote at the beginning may have been escaped by a token that is not shown.
            before, text = (self._decode(part) for part in (tokens[:-1], tokens))
            ahead = lead if whole else ""
            return any(
                match.end() > len(ahead + before) for match in pattern.finditer(ahead + text)
            )

        pattern, lead = _stop_pattern(free)
        ends = "|".join(re.escape(free.stop[at:]) for at in range(1, len(free.stop))) or r"(?!)"
        final = re.compile(rf"\A(?:{ends})|{re.escape(free.stop)}", re.I)
        written, owner = write_free(rows, most, self._ends, stops, self._chooser(rows))
        for text, count in zip(written, usage):
            count["completion_tokens"] += len(text.tokens)
        return written, owner

    def _decode(self, tokens: list[int]) -> str:
        return self.tokenizer.batch_decode(
            [tokens], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )[0]

    def _join(self, written: Written, free: Free, literal: str) -> tuple[str, str]:
        """Return the free text, and the text that is still to be fed so that the row continues with `literal`."""
        pattern, lead = _stop_pattern(free)
        text = fed = lead + self._decode(written.tokens)
        if written.pending is None:
            within_escape = free.json_string and (len(fed) - len(fed.rstrip("\\"))) % 2
            text += "\\" * within_escape
        elif match := pattern.search(
            whole := lead + self._decode([*written.tokens, written.pending])
        ):
            text = whole[: match.end() - len(free.stop)]
        return text[len(lead) :], (text + literal)[len(fed) :]

    # --- likelihoods ---------------------------------------------------------------------------------------------------

    def overflow_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Return by how many tokens each (condition, target) exceeds the context window; 0 or less fits."""
        return [
            len(condition) + len(target) - self.window
            for condition, target in self.encoder.encode_pairs(pairs)
        ]

    def likelihoods(
        self, pairs: Sequence[tuple[str, str]], wanted: Sequence[bool] | None = None
    ) -> Iterator[tuple[int, float]]:
        """Yield (index, mean log-probability of the target's tokens given the condition), in nats per token, as `answer`."""
        rows = self.encoder.encode_pairs(pairs)
        lengths = [len(condition) + len(target) for condition, target in rows]
        return self._by_batches(rows, lengths, wanted, self._likelihood_batch)

    @torch.inference_mode()
    def _likelihood_batch(self, pairs: list[tuple[list[int], list[int]]]) -> list[float]:
        whole = [condition + target for condition, target in pairs]
        keep = max(len(target) for _, target in pairs) + 1
        logits = self._rows(whole, [0] * len(pairs), Prefix()).start(whole, self.batch_tokens, keep)
        means = []
        for (_, target), read in zip(
            pairs, logits
        ):  # one by one: the full vocabulary in float32 is large
            steps = read[-len(target) - 1 : -1].float()
            chosen = steps.gather(1, torch.tensor(target, device=steps.device)[:, None]).squeeze(1)
            means.append((chosen - steps.logsumexp(dim=1)).mean().item())
        return means


def _stop_pattern(free: Free) -> tuple[re.Pattern[str], str]:
    """Return the pattern that ends a free text, and what to put in front of the text: the line break that ends the prompt."""
    pattern = (
        re.compile(r'(?<!\\)(?:\\\\)*"')
        if free.json_string
        else re.compile(re.escape(free.stop), re.I)
    )
    return pattern, "\n" if free.stop.startswith("\n") else ""
