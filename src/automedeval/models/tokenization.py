"""Prompts to tokens: chat templates, literals and values of an answer, and control tokens inside a text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from itertools import chain, pairwise, permutations
from pathlib import Path
from typing import Any

from automedeval.models.base import Ids, Messages, Slot, TextPairs
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import JsonObject, RecordError, foreign_errors_at, read_text, whole
from automedeval.records.extras import install

# Chat templates name their switch so; a model that thinks first would fill an answer's tokens with thoughts.
_NO_THOUGHTS = {"enable_thinking": False, "thinking": False}
_TEXT_ALONE = "{{ messages[0].content }}"  # the template of a text that no chat surrounds


@dataclass
class PromptEncoder:
    """Turn messages and the parts of answers into token ids of one tokenizer.

    A control token inside a content (for example `<|im_end|>` in a patient's question) is tokenized as ordinary characters.
    A chat template that can have a model think before its answer is told not to. One that writes today's date gets `date`.
    """

    tokenizer: Any
    date: date = field(default_factory=date.today)
    _segments: dict = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # Every added token, also one that the template does not write; some are white space, as Gemma's line breaks.
        self.tokenizer.chat_control_tokens = [
            each for each in self.tokenizer.get_added_vocab() if not each.isspace()
        ]

    @classmethod
    def from_checkpoint(cls, model: str, chat_template_path: str | None = None) -> "PromptEncoder":
        """Load a checkpoint's tokenizer, with the chat template of a Jinja file if one is named; RecordError: no tokenizer."""
        tokenizer = load_tokenizer(checkpoint_folder(model))
        tokenizer.chat_template = read_template(chat_template_path) or tokenizer.chat_template
        return cls(tokenizer)

    @cached_property
    def _has_system_role(self) -> bool:
        chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        try:
            self.tokenizer.apply_chat_template(chat, tokenize=False)
        except Exception:  # noqa: BLE001  a template can make every operation fail; without a system role it may work
            return False
        return True

    def encode(self, prompts: Sequence[Messages], answered: bool = False) -> list[Ids]:
        """Tokenize chat messages, up to the beginning of the answer, or with `answered` the answer in the last message too."""
        if self.tokenizer.chat_template is None:
            raise RecordError(
                "the checkpoint has no chat template; give one with --chat_template_path"
            )
        return self._ids(prompts, add_generation_prompt=not answered)

    def _ids(self, chats: Sequence[Messages], **options: Any) -> list[Ids]:
        """Return the tokens of what the chat template makes of chats; RecordError if it cannot be rendered."""
        from transformers.utils.chat_template_utils import _compile_jinja_template

        if not chats:
            return []
        with foreign_errors_at("the chat template cannot be rendered"):
            template = self.tokenizer.get_chat_template(options.get("chat_template"))
            # A compiled template is kept by its text, and takes no function as an argument.
            _compile_jinja_template(template).globals["strftime_now"] = self.date.strftime
            return self.tokenizer.apply_chat_template(
                [self._written(chat) for chat in chats],
                tokenize=True,
                sanitize_control_tokens=True,
                return_dict=False,
                **_NO_THOUGHTS,
                **options,
            )

    def _written(self, chat: Messages) -> Messages:
        """Return a chat in whole characters, with its system message in front of the user's where there is no such role."""
        messages = [message | {"content": whole(message["content"])} for message in chat]
        if self._has_system_role or messages[0]["role"] != "system":
            return messages
        system, user, *rest = messages
        return [user | {"content": f"{system['content']}\n\n{user['content']}"}, *rest]

    def encode_answered(self, chats: Sequence[tuple[Messages, str]]) -> list[tuple[Ids, Ids]]:
        """Tokenize chats and their answers; return of each the tokens of the chat, and of the answer with its end.

        RecordError if the chat template renders the chat otherwise where it is answered.
        """
        prompts = self.encode([chat for chat, _ in chats])
        answered = [[*chat, {"role": "assistant", "content": answer}] for chat, answer in chats]
        wholes = self.encode(answered, answered=True)
        if any(whole[: len(ids)] != ids for ids, whole in zip(prompts, wholes)):
            raise RecordError(
                "the chat template renders a prompt with an answer differently from one without"
            )
        return [(ids, whole[len(ids) :]) for ids, whole in zip(prompts, wholes)]

    def trained(
        self, answer: Sequence[int], text: str, spans: Sequence[Sequence[int]] | None
    ) -> list[int]:
        """Return 1 for each token of an answer that holds a character of these spans of its text, else 0; without spans 1.

        RecordError if chat template or tokenizer change the text, so that the places of its characters are not known.
        """
        if spans is None:
            return [1] * len(answer)
        ends = [len(self.tokenizer.decode(answer[:size])) for size in range(len(answer) + 1)]
        start = self.tokenizer.decode(answer).find(text)
        if start < 0:
            raise RecordError(
                f"its values cannot be found, for it is tokenized otherwise: {text!r}"
            )
        held = set(chain.from_iterable(range(*span) for span in spans))
        places = [end - start for end in ends]
        return [int(not held.isdisjoint(range(*token))) for token in pairwise(places)]

    def after(self, anchor: str, text: str) -> Ids:
        """Tokenize a text as it is tokenized after `anchor`."""
        head, whole = self.tokenizer([anchor, anchor + text], add_special_tokens=False).input_ids
        if whole[: len(head)] == head:
            return whole[len(head) :]
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def segment(self, literal: str, slot: Slot, following: str) -> tuple[Ids, list[Ids], int]:
        """Return the tokens of a literal and the values that may follow it: those that all share, and the rest of each value.

        The third number says how many tokens at its end (0 or 1) belong to the text that follows: if one value is the beginning
        of another, as "1" of "10", the next token decides between them.
        """
        key = (literal, slot.values, following)
        if key not in self._segments:
            whole = [self.after("\n", literal + value) for value in slot.values]
            ending = int(any(a != b and b[: len(a)] == a for a, b in permutations(whole, 2)))
            if ending:
                longer = [
                    self.after("\n", literal + value + (following or "\n")) for value in slot.values
                ]
                whole = [ids[: len(short) + 1] for ids, short in zip(longer, whole)]
            shared = shared_start(whole)
            self._segments[key] = (shared, [ids[len(shared) :] for ids in whole], ending)
        return self._segments[key]

    def encode_pairs(self, pairs: TextPairs) -> list[tuple[Ids, Ids]]:
        """Tokenize both texts of (condition, target) pairs; the condition begins with the tokenizer's BOS, if it has one."""
        start = [self.tokenizer.bos_token_id] if self.tokenizer.bos_token_id is not None else []
        texts = [[{"role": "user", "content": text}] for text in chain.from_iterable(pairs)]
        ids = iter(self._ids(texts, chat_template=_TEXT_ALONE))
        return [(start + condition, target) for condition, target in zip(ids, ids)]


def shared_start(sequences: Sequence[Ids]) -> Ids:
    """Return the tokens with which all of these sequences begin."""
    first = min(sequences)
    last = max(sequences)
    for place, token in enumerate(first):
        if token != last[place]:
            return first[:place]
    return first  # the least of them is the shortest where it begins all


def load_tokenizer(folder: Path) -> Any:
    """Return a checkpoint's tokenizer; RecordError, with what is missing, if there is none that can be loaded."""
    from transformers import AutoTokenizer  # slow to import

    advice = ""
    if (folder / "tokenizer.model").exists() and not find_spec("sentencepiece"):
        advice = f"; tokenizer.model is read by sentencepiece ({install('train')})"
    with foreign_errors_at(f"{folder}: no tokenizer", advice=advice):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def read_template(path: str | None) -> str | None:
    """Return the chat template of a Jinja file; None for no file, or for "none", which takes a path back that a YAML names."""
    return read_text(Path(path)) if path and path != "none" else None


def row_lengths(rows: Sequence[JsonObject], encoder: PromptEncoder) -> list[int]:
    """Return each training row's number of tokens, prompt and completion."""
    chats = [row["prompt"] + row["completion"] for row in rows]
    return list(map(len, encoder.encode(chats, answered=True)))
