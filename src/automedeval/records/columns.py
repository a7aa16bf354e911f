"""What the columns of a table of answers hold, and the cases that its rows are.

A wide table has a row for each case: the columns question, reference, id and topic, and one column for each candidate with its
responses. A long table has a row for each response: the columns question, model and answer, beside reference, id and topic.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from automedeval.records.types import Case, RecordError, Response

# How people call the columns. Case, blanks, "-" and "_" make no difference.
NAMES = {
    "question": ("question", "prompt", "query", "instruction", "input"),
    "reference": ("reference", "reference_answer", "gold", "gold_answer", "ground_truth", "correct_answer", "ideal"),
    "id": ("id", "case_id", "question_id", "qid"),
    "topic": ("topic", "category", "specialty"),
    "model": ("model", "model_name", "candidate", "system"),
    "answer": ("answer", "response", "output", "completion", "model_answer", "model_response", "model_output"),
}
# Columns of text that no candidate is called by.
BESIDE = ("source", "url", "split", "date", "type", "language", "comment", "comments", "note", "notes")
NUMBER = re.compile(r"\s*[-+]?[\d.,]+\s*%?\s*")


class UnclearColumns(RecordError):
    """It cannot be seen what the columns of a table hold."""


@dataclass(frozen=True)
class Columns:
    """The columns that are read.

    Args:
        question: the column with the question.
        responses: wide: the columns with responses; their names become the models.
        model, answer: long: the columns with the model's name and its response.
        reference, topic, id: the columns with these, if there are any.
    """

    question: str
    responses: tuple[str, ...] = ()
    model: str | None = None
    answer: str | None = None
    reference: str | None = None
    topic: str | None = None
    id: str | None = None

    @classmethod
    def named(cls, given: Sequence[str]) -> Self:
        """Return the columns that `--columns` names: ROLE=COLUMN, or a column with a candidate's responses.

        Raises:
            RecordError: no question, a role that comes twice, or one of model and answer without the other.
        """
        roles: dict[str, Any] = {}
        for entry in given:
            role, sign, column = entry.partition("=")
            if not sign or role not in NAMES:
                roles.setdefault("responses", []).append(entry)
            elif role in roles:
                raise RecordError(f"--columns: {role} is named twice")
            else:
                roles[role] = column
        if "question" not in roles:
            raise RecordError("--columns: question=COLUMN is missing")
        if ("model" in roles) != ("answer" in roles):
            raise RecordError("--columns: model=COLUMN and answer=COLUMN need each other")
        return cls(**{**roles, "responses": tuple(roles.get("responses", ()))})

    @classmethod
    def guessed(cls, rows: Sequence[dict], least_responses: int = 1) -> Self:
        """Return the columns by their names; a column that holds numbers alone has no responses.

        Raises:
            UnclearColumns: no column or several for the question, or none with responses although some are needed.
        """
        every = list(dict.fromkeys(str(name) for row in rows for name in row))
        found = {role: [name for name in every if _plain(name) in known] for role, known in NAMES.items()}
        listed = f"the columns are {', '.join(every)}"
        for role in ("question", "reference", "id", "topic", "model"):
            exact = [name for name in found[role] if _plain(name) == role]
            found[role] = exact if role != "question" and exact else found[role]
            if len(found[role]) > 1:
                raise UnclearColumns(f"{' or '.join(map(repr, found[role]))} may be the {role}; {listed}")
        if not found["question"]:
            raise UnclearColumns(f"no column is called question; {listed}")
        one = {role: names[0] for role, names in found.items() if role != "answer" and names}
        if "model" in one:
            if len(found["answer"]) != 1:
                raise UnclearColumns(f"beside {one['model']!r}, one column must be called answer; {listed}")
            return cls(answer=found["answer"][0], **one)
        rest = [name for name in every if name not in one.values() and _may_answer(name, rows)]
        if found["answer"] and len(rest) > 1:
            unclear = f"{found['answer'][0]!r} may be the reference, or a candidate's responses"
            raise UnclearColumns(f"{unclear}; {listed}")
        if not rest and least_responses:
            raise UnclearColumns(f"no column has responses; {listed}")
        return cls(responses=tuple(rest), **one)

    def __str__(self) -> str:
        roles = ("question", "reference", "topic", "id", "model", "answer")
        named = [f"{role} = {getattr(self, role)!r}" for role in roles if getattr(self, role)]
        return ", ".join(named + ([f"responses = {', '.join(map(repr, self.responses))}"] if self.responses else []))

    @property
    def every(self) -> list[str]:
        """The names of all columns that are read."""
        named = (self.question, *self.responses, self.model, self.answer, self.reference, self.topic, self.id)
        return [name for name in named if name]

    def cases(self, placed: Iterable[tuple[str, dict]]) -> Iterator[tuple[str, Case]]:
        """Yield `(place, unchecked case)` of the rows; the id is empty where the table has none.

        A blank cell is no response, no reference and no topic. In a long table the rows with one id are a case; without ids,
        or if each row has another id, those with one question.

        Raises:
            RecordError: a column is missing in a row, a cell is not text, or the rows of a case contradict each other.
        """
        rows = self._checked(placed)
        yield from self._long(list(rows)) if self.model else self._wide(rows)

    def _checked(self, placed: Iterable[tuple[str, dict]]) -> Iterator[tuple[str, dict]]:
        for place, row in placed:
            needed = [self.question] if self.model is None else [self.question, self.model, self.answer]
            if missing := next((name for name in needed if name not in row), None):
                raise RecordError(f"{place}: {missing!r} is missing; found the keys {', '.join(map(str, row))}")
            cells = {name: row.get(name) for name in self.every}
            for name, value in cells.items():
                if name == self.id and isinstance(value, int):
                    cells[name] = str(value)
                elif name != self.question and not isinstance(value, str | None):
                    raise RecordError(f"{place}: {name!r} must be text, not {str(value)[:80]}")
            yield place, cells

    def _wide(self, placed: Iterable[tuple[str, dict]]) -> Iterator[tuple[str, Case]]:
        for place, row in placed:
            given = tuple(Response(name, row[name]) for name in self.responses if _filled(row[name]))
            yield place, self._case(row, given)

    def _long(self, placed: Sequence[tuple[str, dict]]) -> Iterator[tuple[str, Case]]:
        ids = [row[self.id] for _, row in placed] if self.id else []
        by_id = len(set(ids)) < len(ids)
        groups: dict[str, list[tuple[str, dict]]] = {}
        for place, row in placed:
            groups.setdefault(str(row[self.id] if by_id else row[self.question]), []).append((place, row))
        for group in groups.values():
            place, first = group[0]
            for role in ("question", "reference", "topic"):
                column = getattr(self, role)
                different = {str(row[column]): where for where, row in group if column and _filled(row[column])}
                if len(different) > 1:
                    raise RecordError(f"{list(different.values())[1]}: another {role} than {place}, with the same id")
            filled = [row for _, row in group if self.reference and _filled(row[self.reference])]
            given = tuple(
                Response(row[self.model] or "", row[self.answer]) for _, row in group if _filled(row[self.answer])
            )
            head = {**first, **({self.reference: filled[0][self.reference]} if filled else {})}
            yield place, self._case(head if by_id else {**head, self.id: None}, given)

    def _case(self, row: dict, responses: tuple[Response, ...]) -> Case:
        reference, topic = (row[name] if name and _filled(row[name]) else None for name in (self.reference, self.topic))
        return Case(
            (row.get(self.id) or "").strip() if self.id else "", row[self.question] or "", responses, reference, topic
        )


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _filled(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _may_answer(name: str, rows: Iterable[dict]) -> bool:
    """Return whether a column may hold responses: it has a name that is its own, and text."""
    if not name.strip() or re.fullmatch(r"Unnamed: \d+", name) or _plain(name) in BESIDE:  # pandas writes its index so
        return False
    texts = [row[name] for row in rows if _filled(row.get(name))]
    return any(not NUMBER.fullmatch(text) for text in texts)
