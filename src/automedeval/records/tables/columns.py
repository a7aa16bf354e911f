"""What the columns of a table of answers hold, and the cases that its rows are.

A wide table has a row for each case: the columns question, reference, id and topic, and one column for each candidate with its
responses. A long table has a row for each response: the columns question, model and answer, beside reference, id and topic.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from automedeval.records.arguments import BLANK
from automedeval.records.errors import UnclearArguments, errors_at
from automedeval.records.package_data import packaged
from automedeval.records.questions import key_of
from automedeval.records.readers import Placed
from automedeval.records.tables.rows import filled
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
ENDINGS = ("id", "comment", "note")
NOT_JUDGED = "no text, not judged"
NO_TEXT = re.compile("|".join(_WORDS["no_text"]), re.S | re.I)
FAILURE = re.compile("|".join(_WORDS["failures"]), re.S)
CHOICE = re.compile(r"(\s*\(?[A-J]\)?[.:]?\s*(\n|\Z))+", re.I)
# Signs, but no stars and other pictures, which may be a score
SIGNS = "(?:[^\\w\u2600-\u27bf\u2b50\U0001f300-\U0001faff]|_)+"
AROUND = re.compile(rf"\A{SIGNS}|{SIGNS}\Z")
NAMELESS = re.compile(r"(Unnamed: \d+)?\s*")


PlacedCases = list[tuple[str, Case]]  # each with its place in the file


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
        cls, rows: Sequence[dict], path: str, columns: Sequence[str] = (), least_responses: int = 1
    ) -> Self:
        """Return the columns by their names, and by `columns`, as of `--columns`.

        An entry of `columns` is ROLE=COLUMN, or a column with a candidate's responses. Of a role that no entry has, the column
        is known by its name. Where no entry names a candidate, every other column with text is one; but where no responses are
        needed and entries are given, none is.

        RecordError for an entry that is wrong, or no responses although some are needed; UnclearArguments for no column or
        several with the question, or one that may be the reference or a candidate's.
        """
        names = names_of(rows)
        listed = ", ".join(names)
        roles, responses = _by_option(columns)
        named = [*roles.values(), *responses]
        if missing := [name for name in named if name not in names]:
            fault = f"--columns: no column {missing[0]!r}; the columns are {listed}"
            raise RecordError(f"{path}: {fault}")
        free = [name for name in names if name not in named]
        doubts = _recognize(roles, free, ROLES[:-1] if responses else ROLES)
        unknown = [name for name in free if not is_known(name)]
        texts = [name for name in unknown if _has_text(name, rows)]
        textless = []
        if "question" not in roles:
            doubts.insert(0, "no column is called question")
            roles = {"question": next(iter(texts), ""), **roles}
            texts = texts[1:]
        if "model" in roles or "answer" in roles:
            doubts += _find_answer(roles, texts)
        elif not responses and (least_responses or not columns):
            textless = [name for name in unknown if name not in texts]
            responses, unsure = _find_responses(roles, texts, least_responses)
            doubts += unsure
        has_answers = bool(responses) or "answer" in roles
        is_lacking = not roles["question"] or (least_responses and not has_answers)
        if is_lacking:
            doubts.append("no column has responses")
        if doubts:
            fault = f"{path}: {doubts[0]}; the columns are {listed}"
            if is_lacking:
                raise RecordError(fault)
            entries = [f"{role}={name}" for role, name in roles.items()]
            raise UnclearArguments(fault, ["--columns", *entries, *responses])
        return cls(**roles, responses=tuple(responses), textless=tuple(textless))

    def __str__(self) -> str:
        roles = {name: role for role in NAMES if (name := getattr(self, role))}
        kinds = {name: f" ({role})" for name, role in roles.items() if plain(name) != role}
        named = [_quoted(name) + kinds.get(name, "") for name in self.every]
        if self.responses:
            named[len(self.responses)] += " (answers)"
        return ", ".join(named)

    @property
    def every(self) -> list[str]:
        """The names of all columns that are read."""
        beside = (self.model, self.answer, self.reference, self.topic, self.id)
        return [self.question, *self.responses, *(name for name in beside if name is not None)]

    def unread(self, rows: Sequence[dict]) -> list[str]:
        """Return the other columns of these rows, with what has no text marked so."""
        unread = []
        for name in names_of(rows):
            if name not in self.every:
                unread.append(_quoted(name) + ("" if _has_text(name, rows) else " (no text)"))
        return unread

    def cases(self, placed: Iterable[Placed]) -> tuple[PlacedCases, list[str]]:
        """Return the cases that the rows `(place, row)` of a table hold, and a line if the ids are no cases'.

        A case has the number of its first row as `row`, from 1, and each response of a long table its own. A blank cell is no
        reference, no topic, and a response without text. In a long table the rows with one id are a case; without ids, or where
        the rows of a question have different ids, those with one question. Questions that differ in blanks alone are one.
        RecordError if a cell is not text, a reference is a word that programs write where
        there is none, or the rows of a case contradict each other.
        """
        rows = []
        for number, (place, cells) in enumerate(placed, 1):
            with errors_at(place):
                rows.append(self._row(number, place, cells))
        questions = [key_of(row.question) for row in rows]
        ids = [row.id for row in rows]
        are_shared = len(set(ids)) < len(ids)
        is_each_asked_once = not self.model or len(set(questions)) == len(questions)
        by_id = any(ids) and (are_shared or is_each_asked_once)
        groups: dict[str | int, list[_Row]] = {}
        for row, question in zip(rows, questions):
            key = row.id if by_id else question
            if by_id and self.model and not key:
                fault = "the id is blank, and in other rows it names the case"
                raise RecordError(f"{row.place}: {fault}")
            # of a wide table each row is a case
            groups.setdefault(key if self.model else row.number, []).append(row)
        cases = [(group[0].place, _case(group, by_id)) for group in groups.values()]
        return cases, [f"{self.id!r} names rows, and no cases"] if any(ids) and not by_id else []

    def _row(self, number: int, place: str, row: dict) -> "_Row":
        """Return what is read of a row; RecordError if a cell is not text, or no question or reference."""
        cells: dict[str | None, Any] = {name: row.get(name) for name in self.every}
        for name, cell in cells.items():
            if name == self.id and type(cell) is int:
                cells[name] = str(cell)
            elif not (isinstance(cell, str | None) or (name == self.question and _is_asked(cell))):
                raise RecordError(f"{name!r} must be text, not {str(cell)[:80]}")
        question, reference, topic, case_id = (
            cells.get(name) for name in (self.question, self.reference, self.topic, self.id)
        )
        if is_failure(question):
            raise RecordError(f"the question is an error of a program: {question!r}")
        if fault := fault_of_reference(reference):
            raise RecordError(fault)
        answers = [Response(name, _text(cells[name])) for name in self.responses]
        if self.model and self.answer:
            model, answer = _text(cells[self.model]), _text(cells[self.answer])
            answers = [Response(model, answer, {"row": number})]
        return _Row(number, place, question, reference, topic, _text(case_id).strip(), answers)


class _Row(NamedTuple):
    """What is read of a row of a table, from 1."""

    number: int
    place: str
    question: Any
    reference: str | None
    topic: str | None
    id: str
    answers: list[Response]


def _case(rows: Sequence[_Row], by_id: bool) -> Case:
    """Return the case of some rows, without an id unless they have that of the case."""
    about = {}
    for role in ("question", "reference", "topic"):
        given = [row for row in rows if filled(getattr(row, role))]
        for row in given:
            if key_of(getattr(row, role)) != key_of(getattr(given[0], role)):
                same = "id" if by_id else "question"
                what = f"another {role} than {given[0].place}, with the same {same}"
                raise RecordError(f"{row.place}: {what}")
        cells = [getattr(row, role) for row in given]
        # the shortest, so that another order of the rows changes nothing
        about[role] = min(cells, key=lambda cell: (len(str(cell)), str(cell)), default=None)
    first = rows[0]
    return Case(
        id=first.id if by_id else "",
        question=about["question"] or "",
        responses=tuple(answer for row in rows for answer in row.answers),
        reference=about["reference"],
        topic=about["topic"],
        extra={"row": first.number},
    )


def without_blanks(
    source: str, placed: PlacedCases, blank: str | None
) -> tuple[PlacedCases, list[str]]:
    """Settle what the blank cells of candidates are, which every reader of a table hands over as responses without text.

    A cell that holds an error of a program, see `is_failure`, is as a blank one.
    `blank` says it: "lowest": the model was asked and gave no answer, so that the response is an empty text; "skip": it was not
    asked, and has no response; None: nobody said so, and blank cells are a RecordError, which names the `source`.
    Return the cases, and a line with the count if there are blank cells.
    """
    if blank not in (None, *BLANK):
        raise RecordError(f"blank cells are {' or '.join(BLANK)}, not {blank!r}")
    answers = [response for _, case in placed for response in case.responses]
    blanks = [answer for answer in answers if _is_blank(answer)]
    if not blanks:
        return placed, []
    by_model = Counter(answer.model for answer in blanks)
    counts = ", ".join(f"{model} {number:,}" for model, number in by_model.items())
    count = f"{len(blanks):,} of {len(answers):,} answers are blank ({counts})"
    if blank is None:
        raise RecordError(
            f"{source}: {count}: --blank lowest if the model was asked and gave no answer, which has the lowest score, or "
            "--blank skip if it was not asked; a cell with an error of a program is as a blank one"
        )
    settled = []
    for place, case in placed:
        responses = []
        for answer in case.responses:
            if not _is_blank(answer):
                responses.append(answer)
            elif blank == "lowest":
                responses.append(replace(answer, text=""))
        settled.append((place, replace(case, responses=tuple(responses))))
    meaning = "are empty answers" if blank == "lowest" else "were not asked"
    return settled, [f"{count}, and {meaning} (--blank {blank})"]


def _is_blank(answer: Response) -> bool:
    return not answer.text or is_failure(answer.text)


def names_of(rows: Iterable[dict]) -> list[str]:
    """Return the names of all columns."""
    return list(dict.fromkeys(map(str, itertools.chain(*rows))))


def filled_names(rows: Sequence[dict]) -> list[str]:
    """Return the names of the columns that have a filled cell."""
    return [name for name in names_of(rows) if any(filled(row.get(name)) for row in rows)]


def _quoted(name: str) -> str:
    """Return a column's name as it stands in a list of names."""
    return repr(name) if set(name) & set(",;()'\"") or not name.isprintable() else name


def plain(name: str) -> str:
    """Return the name of a column or a criterion as it is compared: its words in small letters, with "_" between them.

    A change of case begins a word: "expectedOutput", not "MedPaLM" and "CoT".
    """
    words = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", name).casefold()
    return re.sub(r"[\W_]+", "_", words).strip("_")


def _by_option(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return role → column, and the columns of candidates, that `--columns` names; RecordError for a role that comes twice."""
    roles, responses = {}, []
    for entry in entries:
        role, sign, column = entry.partition("=")
        if not sign or role not in NAMES:
            responses.append(entry)
        elif role in roles:
            raise RecordError(f"--columns: {role!r} is named twice")
        else:
            roles[role] = column
    return roles, responses


def _recognize(roles: dict[str, str], names: Sequence[str], wanted: Iterable[str]) -> list[str]:
    """Add to role → column those of the wanted ones that are known by their names; return which may be several columns."""
    doubts = []
    for role in wanted:
        called = [name for name in names if plain(name) in NAMES[role]]
        if role in roles or not called:
            continue
        exact = [name for name in called if plain(name) == role]
        roles[role] = [*exact, *called][0]
        if len(called) > 1 and len(exact) != 1:
            doubts.append(f"{' or '.join(map(repr, called))} may be the {role}")
    return doubts


def _find_answer(roles: dict[str, str], texts: Sequence[str]) -> list[str]:
    """Add to role → column, of a long table, that of the answers; return why it is in doubt."""
    if "model" not in roles:
        raise RecordError("--columns: model=COLUMN and answer=COLUMN need each other")
    if "answer" in roles:
        return []
    called = [name for name in texts if plain(name) in NAMES["answer"]]
    if texts:
        roles["answer"] = [*called, *texts][0]
    doubt = f"beside {roles['model']!r}, one column must be called answer"
    return [] if len(called) == 1 else [doubt]


def _find_responses(
    roles: dict[str, str], texts: list[str], least_responses: int
) -> tuple[list[str], list[str]]:
    """Return the candidates' columns of a wide table, and why one is in doubt, which may be the reference.

    In doubt is a column that is called answer beside others, or alone where no responses are needed, and one whose name has
    a word of a trusted answer. It stands as the reference, if no other column does.
    """
    is_one = len(texts) == 1 and (least_responses or "reference" in roles)
    doubtful = [name for name in texts if plain(name) in NAMES["answer"] and not is_one]
    doubtful += [name for name in texts if TRUSTED & {plain(name), *plain(name).split("_")}]
    if not doubtful:
        return texts, []
    unsure = doubtful[0]
    if roles.setdefault("reference", unsure) == unsure:
        texts = [name for name in texts if name != unsure]
    return texts, [f"{unsure!r} may be the reference, or a candidate's responses"]


def is_known(name: str) -> bool:
    """Return whether a column is no candidate's by its name, also with an s or a number behind it, or without any name."""
    unnumbered = plain(name).rstrip("_0123456789")
    singular = unnumbered.removesuffix("s")
    is_beside = plain(name) in KNOWN or unnumbered in BESIDE or singular in BESIDE
    return is_beside or singular.split("_")[-1] in ENDINGS or bool(NAMELESS.fullmatch(name))


def _text(cell: Any) -> str:
    return cell if filled(cell) else ""


def no_value(cell: Any) -> bool:
    """Return whether a cell holds signs alone, or a word between signs that programs write where there is no value."""
    if not isinstance(cell, str) or not filled(cell):
        return False
    word = AROUND.sub("", cell.casefold())
    return not word or word in NO_VALUE


def is_failure(cell: Any) -> bool:
    """Return whether a cell holds nothing but what programs write when a request or a formula fails."""
    return isinstance(cell, str) and FAILURE.fullmatch(cell.strip()) is not None


def is_choice(reference: str | None) -> bool:
    """Return whether a reference is the letter of a choice, bare or in brackets, or several of them, one a line."""
    return CHOICE.fullmatch(reference or "") is not None


def _is_asked(question: Any) -> bool:
    """Return whether a question is given as messages or as parts."""
    return isinstance(question, list) and all(isinstance(part, dict) for part in question)


def fault_of_reference(cell: Any) -> str | None:
    """Return why a cell cannot be taken for a reference: it says that there is none, or names a choice; else None."""
    if not isinstance(cell, str) or not filled(cell):
        return None
    is_link_or_date = NO_TEXT.fullmatch(cell.strip()) and re.search(r"[^\W\d]", cell)
    if any((is_choice(cell), is_link_or_date, no_value(cell), is_failure(cell))):
        return f"the reference is {cell[:80]!r}: write what an answer should say, or leave it blank"
    return None


def _has_text(name: str, rows: Iterable[dict]) -> bool:
    """Return whether a column holds text; numbers, dates and addresses are none, nor words for no value among them."""
    strings = [row[name].strip() for row in rows if isinstance(row.get(name), str)]
    cells = [cell for cell in strings if cell]
    if any(not NO_TEXT.fullmatch(cell) and not no_value(cell) for cell in cells):
        return True
    return bool(cells) and not any(map(NO_TEXT.fullmatch, cells))
