"""A chat that plays back what was recorded: answers by case, teacher, role, knowledge and number of the call.

The small study runs on a recording, so that it needs no key, and gives everybody the same verdicts. One line of it is

    {"case_id": "c1", "teacher": "strong", "role": "judge", "knowledge": "chain", "round": 1, "text": "[Question]: …"}
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Dialogue, Prompt
from automedeval.records import RecordError, read_lines

_KINDS = {"case_id": str, "teacher": str, "role": str, "knowledge": str, "round": int, "text": str}


@dataclass
class RecordedChat:
    """What one teacher said in one role, with or without knowledge. It answers prompts by their `key`, whatever they say.

    Args:
        path: the recording, JSON Lines.
        teacher: whose lines are played back, as "strong" or "weak".
        knowledge: "chain" for the lines of completion chains, "none" for those of a teacher that may not ask.
        role: what the teacher does; "judge" gives verdicts.

    Raises:
        RecordError: the file cannot be read, a line lacks a key or stands twice, or the teacher has no line.
    """

    path: str | Path
    teacher: str
    knowledge: str = "chain"
    role: str = "judge"
    constrains: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.name = f"recording:{self.teacher}"
        self._texts: dict[tuple[str, int], str] = {}
        for place, line in read_lines(self.path):
            for name, kind in _KINDS.items():
                if type(line.get(name)) is not kind:
                    raise RecordError(f"{place}: {name!r} must be {kind.__name__}, not {json.dumps(line.get(name))}")
            if (line["teacher"], line["role"], line["knowledge"]) == (self.teacher, self.role, self.knowledge):
                key = (line["case_id"], line["round"])
                if key in self._texts:
                    raise RecordError(f"{place}: there is a line of {self._shown(key)} already")
                self._texts[key] = line["text"]
        if not self._texts:
            raise RecordError(
                f"{self.path}: no line of teacher {self.teacher!r}, role {self.role!r}, knowledge {self.knowledge!r}"
            )
        content = json.dumps([self.teacher, self.role, self.knowledge, sorted(self._texts.items())])
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:12]

    def overflow(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return zeros: a recording has no window."""
        return [0] * len(prompts)

    def estimate(self, prompts: Sequence[Prompt]) -> tuple[int, float]:
        """Return about how many tokens the prompts would take (four bytes each), and that they cost nothing."""
        contents = [message["content"] for prompt in prompts for message in prompt.messages]
        return sum(len(content.encode()) // 4 for content in contents), 0.0

    def answer(self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, Answer]]:
        """Yield (index, answer) for the wanted prompts, in their order.

        Raises:
            RecordError: a prompt without a key, or whose key the recording does not have.
        """
        for index, prompt in enumerate(prompts):
            if wanted is None or wanted[index]:
                yield index, self._said(prompt)

    def follow(self, dialogues: Iterable[tuple[Any, Dialogue]]) -> Iterator[tuple[Any, Any]]:
        """Lead dialogues one after another; yield (key, what it returned)."""
        for key, dialogue in dialogues:
            answer = None
            try:
                while True:
                    answer = self._said(dialogue.send(answer))
            except StopIteration as end:
                yield key, end.value

    def _said(self, prompt: Prompt) -> Answer:
        if prompt.key is None:
            raise RecordError(f"{self.path}: a recording answers prompts of teachers only, which have a key")
        if prompt.key not in self._texts:
            raise RecordError(f"{self.path}: no line of {self._shown(prompt.key)}")
        return Answer(self._texts[prompt.key])

    def _shown(self, key: tuple[str, int]) -> str:
        return f"case {key[0]!r}, teacher {self.teacher!r}, role {self.role!r}, knowledge {self.knowledge!r}, round {key[1]}"
