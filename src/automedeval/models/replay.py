"""A chat that returns recorded answers: found by case, teacher, role, knowledge and number of the call.

The small study uses a recording: it needs no key, and everybody gets the same verdicts. One line of it is

    {"case_id": "c1", "teacher": "strong", "role": "judge", "knowledge": "chain", "round": 1, "text": "[Question]: …"}
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Chat, Dialogue, Prompt, lead
from automedeval.records import RecordError, digest, read_lines

_KINDS = {"case_id": str, "teacher": str, "role": str, "knowledge": str, "round": int, "text": str}


@dataclass
class RecordedChat(Chat):
    """The recorded answers of one teacher in one role. A prompt's `key` selects the answer; its text has no influence.

    `knowledge` is "chain" for the lines of completion chains, "none" for those of a teacher that may not ask.
    """

    path: str | Path
    teacher: str
    knowledge: str = "chain"
    role: str = "judge"

    def __post_init__(self) -> None:
        self.name = f"recording:{self.teacher}"
        self._texts: dict[tuple[str, int], str] = {}
        for place, line in read_lines(self.path):
            for name, kind in _KINDS.items():
                if type(line.get(name)) is not kind:
                    raise RecordError(
                        f"{place}: {name!r} must be {kind.__name__}, not {json.dumps(line.get(name))}"
                    )
            if (line["teacher"], line["role"], line["knowledge"]) == (
                self.teacher,
                self.role,
                self.knowledge,
            ):
                key = (line["case_id"], line["round"])
                if key in self._texts:
                    raise RecordError(f"{place}: there is already a line of {self._shown(key)}")
                self._texts[key] = line["text"]
        author = f"teacher {self.teacher!r}, role {self.role!r}, knowledge {self.knowledge!r}"
        if not self._texts:
            raise RecordError(f"{self.path}: no line of {author}")
        self._fingerprint = digest(
            [self.teacher, self.role, self.knowledge, sorted(self._texts.items())]
        )

    def reply(self, prompt: Prompt) -> Answer:
        """Return the recorded answer; RecordError if there is none for its key."""
        assert prompt.key is not None  # those of teachers and their partners have one
        if prompt.key not in self._texts:
            raise RecordError(f"{self.path}: no line of {self._shown(prompt.key)}")
        return Answer(self._texts[prompt.key])

    def answer(
        self, prompts: Sequence[Prompt], wanted: Sequence[bool] | None = None
    ) -> Iterator[tuple[int, Answer]]:
        return (
            (index, self.reply(prompt))
            for index, prompt in enumerate(prompts)
            if wanted is None or wanted[index]
        )

    def follow(
        self, dialogues: Iterable[tuple[Any, Dialogue]], done: Collection[Any] = ()
    ) -> Iterator[tuple[Any, Any]]:
        return ((key, lead(dialogue, self.reply)) for key, dialogue in dialogues if key not in done)

    def _shown(self, key: tuple[str, int]) -> str:
        return f"case {key[0]!r}, teacher {self.teacher!r}, role {self.role!r}, knowledge {self.knowledge!r}, round {key[1]}"
