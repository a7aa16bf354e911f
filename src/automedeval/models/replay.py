"""A chat that returns recorded answers: found by case, teacher, role, knowledge and number of the call.

The small study uses a recording: it needs no key, and everybody gets the same verdicts. One line of it is

    {"case_id": "c1", "teacher": "strong", "role": "judge", "knowledge": "chain", "round": 1, "text": "[Question]: …"}
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automedeval.models.base import Answer, Chat, Dialogue, Prompt, lead
from automedeval.records import RecordError, digest, read_placed
from automedeval.records.types import Record


@dataclass(frozen=True)
class RecordedAnswer(Record):
    """A line of a recording."""

    case_id: str
    teacher: str
    role: str
    knowledge: str
    round: int
    text: str


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
        author = (self.teacher, self.role, self.knowledge)
        self._author = "teacher {!r}, role {!r}, knowledge {!r}".format(*author)
        for place, line in read_placed(self.path, RecordedAnswer):
            if (line.teacher, line.role, line.knowledge) == author:
                key = (line.case_id, line.round)
                if key in self._texts:
                    raise RecordError(f"{place}: there is already a line of {self._shown(key)}")
                self._texts[key] = line.text
        if not self._texts:
            raise RecordError(f"{self.path}: no line of {self._author}")
        self.fingerprint = digest([*author, sorted(self._texts.items())])

    def reply(self, prompt: Prompt) -> Answer:
        """Return the recorded answer; RecordError if there is none for its key."""
        assert prompt.key is not None  # those of teachers and their partners have one
        if prompt.key not in self._texts:
            raise RecordError(f"{self.path}: no line of {self._shown(prompt.key)}")
        return Answer(self._texts[prompt.key])

    def follow(self, dialogues: Iterable[tuple[Any, Dialogue]]) -> Iterator[tuple[Any, Any]]:
        return ((key, lead(dialogue, self.reply)) for key, dialogue in dialogues)

    def _shown(self, key: tuple[str, int]) -> str:
        return f"case {key[0]!r}, {self._author}, round {key[1]}"
