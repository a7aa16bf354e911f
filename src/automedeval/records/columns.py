"""What the columns of a table of answers hold, and the cases that its rows are.

A wide table has a row for each case: the columns question, reference, id and topic, and one column for each candidate with its
responses. A long table has a row for each response: the columns question, model and answer, beside reference, id and topic.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from automedeval.records.arguments import BLANK
from automedeval.records.errors import UnclearArguments
from automedeval.records.messages import text_in_object
from automedeval.records.questions import key_of
from automedeval.records.rows import NoText, filled
from automedeval.records.tables import packaged
from automedeval.records.types import Case, RecordError, Response

_WORDS = packaged("records", "columns")
NAMES: dict[str, list[str]] = _WORDS["names"]
RATINGS: dict[str, list[str]] = _WORDS["ratings"] | {
    role: NAMES[role] for role in ("question", "model")
}
BESIDE, TRUSTED, NO_VALUE, CRITERIA = (
    frozenset[str](_WORDS[name]) for name in ("beside", "trusted", "no_value", "criteria")
)
ROLES = ("question", "reference", "id", "topic", "model")
KNOWN = BESIDE.union(*(NAMES[role] for role in ROLES))
ENDINGS = ("id", "comment", "comments", "note", "notes")
PREFERENCE = ("chosen", "rejected")
NOT_JUDGED = "no text, not judged"
NO_TEXT = re.compile("|".join(_WORDS["no_text"]), re.S | re.I)
FAILURE = re.compile("|".join(_WORDS["failures"]), re.S)
CHOICE = re.compile(r"(\s*\(?[A-J]\)?[.:]?\s*(\n|\Z))+", re.I)
NAMELESS = re.compile(r"(Unnamed: \d+)?\s*")


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by what they hold."""

    question: str
    responses: tuple[str, ...] = ()  # of a wide table: their names become the models
    model: str | None = None  # of a long table, as the answer
    answer: str | None = None
    reference: str | None = None
    topic: str | None = None
    id: str | None = None
    textless: tuple[str, ...] = ()  # columns of no known name, and without text

    @classmethod
    def of(
        cls, rows: Sequence[dict], path: str, told: Sequence[str] = (), least_responses: int = 1
    ) -> Self:
        """Return the columns by their names, and by what is told of them, as by `--columns`.

        An entry of `told` is ROLE=COLUMN, or a column with a candidate's responses. Of a role that no entry has, the column is
        known by its name. Where no entry names a candidate, every other column with text is one; but where no responses are
        needed and entries are given, none is.

        RecordError for an entry that is wrong, a text without a column's name, or no responses although some are needed;
        UnclearArguments for no column or several with the question, or one that may be the reference or a candidate's.
        """
        every = _names(rows)
        listed = f"the columns are {', '.join(' '.join(name.split()) for name in every)}"
        roles, responses = _told(told)
        named = [*roles.values(), *responses]
        if missing := next((name for name in named if name not in every), None):
            raise RecordError(f"{path}: --columns: no column {missing!r}; {listed}")
        free = [name for name in every if name not in named]
        doubts = _recognize(roles, free, ROLES[:-1] if responses else ROLES)
        unknown = [name for name in free if not _is_known(name)]
        texts = [name for name in unknown if _has_text(name, rows)]
        if "question" not in roles:
            asking = [name for name in texts if plain(name) not in PREFERENCE]
            if not asking:
                raise RecordError(f"{path}: no column is called question; {listed}")
            doubts.insert(0, "no column is called question")
            roles = {"question": asking[0], **roles}
            texts.remove(asking[0])
        textless: list[str] = []
        if "model" in roles or "answer" in roles:
            doubts += _find_answer(roles, texts)
        elif not responses and (least_responses or not told):
            if nameless := [name for name in texts if NAMELESS.fullmatch(name)]:
                what = f"{nameless[0]!r} holds text, and the file has no name for it"
                raise RecordError(f"{path}: {what}; {listed}")
            textless = [n for n in unknown if n not in texts and not NAMELESS.fullmatch(n)]
            pair = [name for name in texts if plain(name) in PREFERENCE]
            responses = pair if len(pair) == len(PREFERENCE) else texts
            if unsure := _may_be_reference(responses, roles, least_responses):
                doubts.append(f"{unsure!r} may be the reference, or a candidate's responses")
                if "reference" not in roles or plain(unsure) not in NAMES["answer"]:
                    roles.setdefault("reference", unsure)
                    responses = [name for name in responses if name != unsure]
        if least_responses and not responses and "answer" not in roles:
            fault = [*doubts, "no column has responses"][0]
            raise RecordError(f"{path}: {fault}; {listed}")
        if doubts:
            entries = [*(f"{role}={name}" for role, name in roles.items()), *responses]
            raise UnclearArguments(f"{path}: {doubts[0]}; {listed}", ["--columns", *entries])
        return cls(**roles, responses=tuple(responses), textless=tuple(textless))

    def __str__(self) -> str:
        roles = {name: role for role in NAMES if (name := getattr(self, role))}
        said = {name: f" ({role})" for name, role in roles.items() if plain(name) != role}
        named = [_listed(name) + said.get(name, "") for name in self.every]
        if self.responses:
            named[len(self.responses)] += " (answers)"
        return ", ".join(named)

    @property
    def every(self) -> list[str]:
        """The names of all columns that are read."""
        named = (
            self.question,
            *self.responses,
            self.model,
            self.answer,
            self.reference,
            self.topic,
            self.id,
        )
        return [name for name in named if name is not None]

    def table(
        self, source: str, placed: Sequence[tuple[str, dict]], blank: str | None = None
    ) -> "Table":
        """Return what the rows `(place, row)` of the file `source` hold; `without_blanks` says what a blank cell is.

        A case has the number of its first row as `row`, from 1, and each response of a long table its own. A blank cell is no
        reference and no topic. In a long table the rows with one id are a case; without ids, or where the rows of a question
        have different ids, those with one question. Questions that differ in blanks alone are one, and the shortest of their
        texts is kept. RecordError if a column is missing in a row, a cell is not text, a reference is a word that programs
        write where there is none, the rows of a case contradict each other, or a fault of `without_blanks`.
        """
        taken: Counter[str] = Counter()
        rows = list(self._checked(placed, taken))
        cases, notes = self._cases(rows)
        notes += [f"{what}: {count:,}" for what, count in taken.items() if count]
        cases, blanks = without_blanks(source, cases, blank)
        contents = [row for _, row in placed]
        unread = [name for name in _names(contents) if name not in self.every]
        # a column that has neither a name nor a filled cell is none
        told = {name for row in contents for name in row if filled(row[name])}
        unread = [name for name in unread if not NAMELESS.fullmatch(name) or name in told]
        kinds = {name: "" if _has_text(name, contents) else " (no text)" for name in unread}
        shown = ", ".join(_listed(name) + kinds[name] for name in unread)
        words = sum(no_value(response.text) for _, case in cases for response in case.responses)
        notes = [
            f"read: {self}",
            *([f"not read: {shown}"] if unread else []),
            f"{len(rows):,} rows, {len(cases):,} cases",
            *notes,
            *blanks,
            *(
                [f"answers that are words like NA or None, read as they stand: {words:,}"]
                if words
                else []
            ),
        ]
        return Table(self, cases, notes)

    def _checked(
        self, placed: Iterable[tuple[str, dict]], taken: Counter[str]
    ) -> Iterator[tuple[str, dict]]:
        """Yield the cells that are read; one that a row lacks is blank. `taken` counts the texts of objects."""
        for place, row in placed:
            if missing := next(
                (name for name in (self.question, self.model) if name and name not in row), None
            ):
                raise RecordError(
                    f"{place}: {missing!r} is missing; found the keys {', '.join(map(str, row))}"
                )
            cells = {name: row.get(name) for name in self.every}
            for name, value in cells.items():
                if name == self.id and type(value) is int:
                    cells[name] = str(value)
                elif isinstance(value, NoText) or not (
                    isinstance(value, str | None) or (name == self.question and _is_asked(value))
                ):
                    raise RecordError(f"{place}: {name!r} must be text, not {str(value)[:80]}")
            for name in filter(None, (*self.responses, self.answer, self.reference)):
                key, cells[name] = _answer_in(cells[name], f"{place}: {name!r}")
                taken[f"of an object in {name!r} its text {key!r} is read"] += bool(key)
            if self.reference and (fault := fault_of_reference(cells[self.reference])):
                raise RecordError(f"{place}: {fault}")
            yield place, cells

    def _cases(self, rows: Sequence[tuple[str, dict]]) -> tuple[list[tuple[str, Case]], list[str]]:
        """Return the cases, and lines on what the rows of one case differ in."""
        keys = [
            key_of(row[self.question]) if self.model else str(number)
            for number, (_, row) in enumerate(rows)
        ]
        ids = [_text(row[self.id]) for _, row in rows] if self.id else [""]
        by_id = any(ids) and (len(set(ids)) < len(ids) or len(set(keys)) == len(keys))
        groups: dict[str, list[tuple[int, str, dict]]] = {}
        for number, ((place, row), key) in enumerate(
            zip(rows, ids if by_id and self.model else keys), 1
        ):
            if not key and by_id:
                raise RecordError(f"{place}: the id is blank, and in other rows it names the case")
            groups.setdefault(key, []).append((number, place, row))
        cases = []
        for group in groups.values():
            number, place, first = group[0]
            about: dict[str, Any] = {}
            for role in ("question", "reference", "topic"):
                cells = [
                    (where, cell)
                    for _, where, row in group
                    if filled(cell := row.get(getattr(self, role)))
                ]
                if other := next(
                    (where for where, cell in cells if key_of(cell) != key_of(cells[0][1])), None
                ):
                    same = "id" if by_id else "question"
                    raise RecordError(
                        f"{other}: another {role} than {cells[0][0]}, with the same {same}"
                    )
                about[role] = min(
                    (cell for _, cell in cells),
                    key=lambda cell: (len(str(cell)), str(cell)),
                    default=None,
                )
            if self.model:
                each = [
                    Response(_text(row[self.model]), _text(row[self.answer]), {"row": at})
                    for at, _, row in group
                ]
            else:
                each = [Response(name, _text(first[name])) for name in self.responses]
            name = _text(first[self.id]).strip() if by_id else ""
            question, reference, topic = about.values()
            cases.append(
                (place, Case(name, question or "", tuple(each), reference, topic, {"row": number}))
            )
        return cases, [f"{self.id!r} names rows, and no cases"] if any(ids) and not by_id else []


class Table(NamedTuple):
    """What a table of answers holds."""

    columns: Columns  # that were read
    cases: list[
        tuple[str, Case]
    ]  # place and unchecked case; `read_table` gives an id to one that has none
    notes: list[str]  # on columns, rows and cases, and on what is blank or not the same


def without_blanks(
    source: str, placed: Sequence[tuple[str, Case]], blank: str | None
) -> tuple[list[tuple[str, Case]], list[str]]:
    """Settle what the blank cells of candidates are, which every reader of a table hands over as responses without text.

    A cell that holds an error of a program, see `is_failure`, is as a blank one.
    `blank` says it: "lowest": the model was asked and gave no answer, so that the response is an empty text; "skip": it was not
    asked, and has no response; None: nobody said so, and blank cells are a RecordError, which names the `source`.
    Return the cases, and a line with the count if there are blank cells.
    """
    if blank not in (None, *BLANK):
        raise RecordError(f"blank cells are {' or '.join(BLANK)}, not {blank!r}")
    cells = [response for _, case in placed for response in case.responses]
    failed = dict.fromkeys(response.text for response in cells if is_failure(response.text))
    counts = Counter(
        response.model for response in cells if not response.text or response.text in failed
    )
    if not counts:
        return list(placed), []
    count = f"{counts.total():,} of {len(cells):,} answers are blank"
    count += f" or an error of a program, such as {next(iter(failed))[:60]!r}" if failed else ""
    count += f" ({', '.join(f'{model} {number:,}' for model, number in counts.items())})"
    if blank is None:
        raise RecordError(
            f"{source}: {count}: --blank lowest if the model was asked and gave no answer, which has the lowest score, or "
            "--blank skip if it was not asked"
        )
    settled = []
    for place, case in placed:
        read = [replace(each, text="") if each.text in failed else each for each in case.responses]
        kept = tuple(response for response in read if response.text or blank == "lowest")
        settled.append((place, replace(case, responses=kept)))
    return settled, [
        f"{count}, and {'are empty answers' if blank == 'lowest' else 'were not asked'} (--blank {blank})"
    ]


def _names(rows: Iterable[dict]) -> list[str]:
    return list(dict.fromkeys(str(name) for row in rows for name in row))


def _listed(name: str) -> str:
    """Return a column's name as it stands in a list of names."""
    return repr(name) if set(name) & set(",;()'\"") or not name.isprintable() else name


def _cased(name: str) -> str:
    """Return a name in small letters, with "_" where a change of case begins a word: "expectedOutput", not "MedPaLM", "CoT"."""
    return re.sub(r"(?<=[a-zß-ÿ]{2})(?=[A-Z])|(?<=[A-Z\d])(?=[A-Z][a-z]{2})", "_", name).casefold()


def plain(name: str) -> str:
    """Return the name of a column or a criterion as it is compared: its words in small letters, with "_" between them."""
    return re.sub(r"[\W_]+", "_", _cased(name)).strip("_")


def _unnumbered(name: str) -> str:
    """Return the plain name of a column without a number at its end, "context" for "Context 2"."""
    return plain(name).rstrip("_0123456789")


def _told(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return role → column, and the columns of candidates, that `--columns` names; RecordError for a name that comes twice."""
    roles: dict[str, str] = {}
    responses: list[str] = []
    for entry in entries:
        role, sign, column = entry.partition("=")
        if not sign or role not in NAMES:
            responses.append(entry)
        elif role in roles:
            raise RecordError(f"--columns: {role!r} is named twice")
        else:
            roles[role] = column
    named = [*roles.values(), *responses]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise RecordError(f"--columns: the column {twice!r} is named twice")
    return roles, responses


def _recognize(roles: dict[str, str], names: Sequence[str], wanted: Iterable[str]) -> list[str]:
    """Add to role → column those of the wanted ones that are known by their names; return which may be several columns."""
    doubts = []
    for role in wanted:
        called = [name for name in names if plain(name) in NAMES[role]]
        exact = [name for name in called if plain(name) == role]
        found = called if role == "question" else exact or called
        if role in roles or not found:
            continue
        if len(found) > 1:
            doubts.append(f"{' or '.join(map(repr, found))} may be the {role}")
        roles[role] = found[0]
    return doubts


def _find_answer(roles: dict[str, str], texts: Sequence[str]) -> list[str]:
    """Add to role → column, of a long table, that of the answers; return why it is in doubt."""
    if "model" not in roles:
        raise RecordError("--columns: model=COLUMN and answer=COLUMN need each other")
    if "answer" in roles:
        return []
    answers = [name for name in texts if plain(name) in NAMES["answer"]]
    if texts:
        roles["answer"] = [*answers, *texts][0]
    doubt = f"beside {roles['model']!r}, one column must be called answer"
    return [] if len(answers) == 1 else [doubt]


def _is_known(name: str) -> bool:
    """Return whether a column is no candidate's by its name."""
    words = _unnumbered(name).split("_")
    return plain(name) in KNOWN or "_".join(words) in BESIDE or words[-1] in ENDINGS


def _may_be_reference(names: list[str], roles: Container[str], least_responses: int) -> str | None:
    """Return the first of the columns with text that may be the reference, and no candidate's; None if there is none."""
    answers = [name for name in names if plain(name) in NAMES["answer"]]
    # Where responses are not needed, an answer without a reference beside it may be the trusted one.
    alone = not least_responses and "reference" not in roles and names == ["answer"]
    if answers and (alone or len(names) > 1):
        return answers[0]
    trusted = (name for name in names if TRUSTED & {_unnumbered(name), *plain(name).split("_")})
    return next(trusted, None)


def _text(cell: Any) -> str:
    return cell if filled(cell) else ""


def no_value(cell: Any) -> bool:
    """Return whether a cell holds a word that programs write where there is no value; signs around it do not count."""
    return isinstance(cell, str) and re.sub(r"\A[\W_]+|[\W_]+\Z", "", cell.casefold()) in NO_VALUE


def is_failure(cell: Any) -> bool:
    """Return whether a cell holds nothing but what programs write when a request or a formula fails."""
    return isinstance(cell, str) and FAILURE.fullmatch(cell.strip()) is not None


def is_choice(reference: str | None) -> bool:
    """Return whether a reference is the letter of a choice, bare or in brackets, or several of them, one a line."""
    return CHOICE.fullmatch(reference or "") is not None


def _is_asked(question: Any) -> bool:
    """Return whether a question is given as messages or as parts."""
    return isinstance(question, list) and all(isinstance(each, dict) for each in question)


def fault_of_reference(cell: Any) -> str | None:
    """Return why a cell cannot be taken for a reference: it says that there is none, or names a choice; else None."""
    if not isinstance(cell, str) or not filled(cell):
        return None
    if is_choice(cell):
        return f"the reference is {cell!r}, the letter of a choice: write the text of the choice, or leave it blank"
    if NO_TEXT.fullmatch(cell.strip()) and re.search(r"[^\W\d]", cell):
        return f"the reference is {cell[:80]!r}, an address or a date: write what an answer should say, or leave it blank"
    if no_value(cell) or is_failure(cell) or not re.search(r"\w", cell):
        why = f"the reference is {cell[:80]!r}, as programs and people write where there is none"
        return f"{why}: leave it blank, or write the reference in other words"
    return None


def _has_text(name: str, rows: Iterable[dict]) -> bool:
    """Return whether a column holds text; numbers, dates and addresses are none, nor words for no value among them."""
    strings = [row[name].strip() for row in rows if isinstance(row.get(name), str)]
    cells = [cell for cell in strings if cell]
    if any(not NO_TEXT.fullmatch(cell) and not no_value(cell) for cell in cells):
        return True
    return bool(cells) and not any(map(NO_TEXT.fullmatch, cells))


def _answer_in(cell: Any, name: str) -> tuple[str, Any]:
    """Return what `text_in_object` does; a program's error stands as it is."""
    return ("", cell) if is_failure(cell) else text_in_object(cell, name)
