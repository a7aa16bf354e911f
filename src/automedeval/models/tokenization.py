"""Prompts to tokens: chat templates, the borders between literals and values, and control tokens that are only text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import jinja2

from automedeval.models.base import Messages, Slot
from automedeval.models.checkpoints import checkpoint_folder
from automedeval.records import RecordError

_SEAM = "\ue0a1\ue0a2"  # private-use characters that mark where a text is cut before tokenizing


@dataclass
class PromptEncoder:
    """Turns messages and answers' parts into token ids of one tokenizer.

    A control token that stands in a content (`<|im_end|>` in a patient's question, say) becomes ordinary characters: the
    text is cut inside it and the pieces are tokenized apart. All other texts are tokenized whole, as training does.
    """

    tokenizer: Any
    _segments: dict = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        added = sorted(self.tokenizer.get_added_vocab(), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, added)) or r"(?!)")
        # Some templates know no system role; their models read it at the head of the user's message.
        self._system_role = self.tokenizer.chat_template is None or self._renders_system()

    @classmethod
    def from_checkpoint(cls, model: str, chat_template_path: str | None = None) -> "PromptEncoder":
        """Load a checkpoint's tokenizer, with the chat template of a Jinja file in its own's place if one is named.

        Raises:
            RecordError: there is no tokenizer, or neither has a chat template.
        """
        from transformers import AutoTokenizer  # slow to import

        try:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(model))
        except (OSError, ValueError) as error:
            raise RecordError(f"{model}: no tokenizer: {' '.join(str(error).split())[:200]}") from None
        if chat_template_path:
            tokenizer.chat_template = Path(chat_template_path).read_text(encoding="utf-8")
        if tokenizer.chat_template is None:
            raise RecordError(f"{model} has no chat template; name a Jinja file with chat_template_path")
        return cls(tokenizer)

    def _renders_system(self) -> bool:
        try:
            self._render([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
        except jinja2.TemplateError:
            return False
        return True

    def _render(self, messages: Messages, answered: bool = False) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=not answered)

    def _cut_control(self, text: str) -> str:
        """Put a seam into every control token that stands in a text, so that it becomes ordinary characters."""
        return self._control.sub(lambda match: match[0][0] + _SEAM + match[0][1:], text.replace(_SEAM, ""))

    def encode(self, prompts: Sequence[Messages], answered: bool = False) -> list[list[int]]:
        """Tokenize chat messages, up to where the answer begins, or with the answer that the last one holds.

        Control tokens inside a content are data, never control.
        """
        if not prompts:
            return []
        if self.tokenizer.chat_template is None:
            raise RecordError("the checkpoint has no chat template; give one with --chat_template_path")
        pieces: list[str] = []
        counts = []
        for messages in prompts:
            messages = [{**message, "content": self._cut_control(message["content"])} for message in messages]
            if not self._system_role and messages[0]["role"] == "system":
                content = f"{messages[0]['content']}\n\n{messages[1]['content']}"
                messages = [{**messages[1], "content": content}, *messages[2:]]
            try:
                parts = self._render(messages, answered).split(_SEAM)
            except jinja2.TemplateError as error:
                raise RecordError(f"the chat template cannot be rendered: {error}") from None
            pieces += parts
            counts.append(len(parts))
        ids = iter(self.tokenizer(pieces, add_special_tokens=False).input_ids)
        return [[token for _ in range(count) for token in next(ids)] for count in counts]

    def after(self, anchor: str, text: str) -> list[int]:
        """Tokenize a text as it would be tokenized behind `anchor`."""
        head, whole = self.tokenizer([anchor, anchor + text], add_special_tokens=False).input_ids
        if whole[: len(head)] == head:
            return whole[len(head) :]
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def segment(self, literal: str, slot: Slot, following: str) -> tuple[list[int], list[list[int]], int]:
        """Tokenize a literal and the values that may follow it.

        Returns:
            what literal and values share, what each value has for itself, and how many tokens at its end (0 or 1) belong to
            what follows: where one value begins another, as "1" does "10", the next token decides between them.
        """
        key = (literal, slot.values, following)
        if key not in self._segments:
            whole = [self.after("\n", literal + value) for value in slot.values]
            ending = int(any(a != b and b[: len(a)] == a for a in whole for b in whole))
            if ending:
                longer = [self.after("\n", literal + value + (following or "\n")) for value in slot.values]
                whole = [ids[: len(short) + 1] for ids, short in zip(longer, whole)]
            shared = len(list(takewhile(lambda column: len(set(column)) == 1, zip(*whole))))
            self._segments[key] = (whole[0][:shared], [ids[shared:] for ids in whole], ending)
        return self._segments[key]

    def encode_pairs(self, pairs: Sequence[tuple[str | Messages, str]]) -> list[tuple[list[int], list[int]]]:
        """Tokenize (condition, target) pairs.

        Of texts each side is tokenized by itself, and conditions begin with the tokenizer's BOS, if it has one. Chat messages
        are tokenized as training does, with the target as the answer; its end counts with it.
        """
        if pairs and not isinstance(pairs[0][0], str):
            prompts = self.encode([messages for messages, _ in pairs])
            answered = [[*messages, {"role": "assistant", "content": target}] for messages, target in pairs]
            wholes = self.encode(answered, answered=True)
            if any(whole[: len(ids)] != ids for ids, whole in zip(prompts, wholes)):
                raise RecordError(
                    "the chat template renders an answered prompt otherwise than one that waits for its answer, so that no "
                    "tokens are the answer's alone"
                )
            return [(ids, whole[len(ids) :]) for ids, whole in zip(prompts, wholes)]
        start = [self.tokenizer.bos_token_id] if self.tokenizer.bos_token_id is not None else []
        flat = [self._cut_control(text).split(_SEAM) for pair in pairs for text in pair]
        ids = iter(self.tokenizer([piece for pieces in flat for piece in pieces], add_special_tokens=False).input_ids)
        sides = [[token for _ in pieces for token in next(ids)] for pieces in flat]
        return [(start + sides[at], sides[at + 1]) for at in range(0, len(sides), 2)]


def row_lengths(rows: Sequence[Mapping[str, Any]], encoder: PromptEncoder | None) -> list[int | None]:
    """Return how many tokens training reads of each row, prompt and completion; None each without an encoder."""
    if encoder is None:
        return [None] * len(rows)
    return [len(ids) for ids in encoder.encode([row["prompt"] + row["completion"] for row in rows], answered=True)]
