"""What the columns of a table of answers hold, and the cases that its rows are.

A wide table has a row for each case: the columns question, reference, id and topic, and one column for each candidate with its
responses. A long table has a row for each response: the columns question, model and answer, beside reference, id and topic.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

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
BESIDE, DOUBTFUL, TRUSTED, NO_VALUE, CRITERIA, NUMBERS = (
    frozenset[str](_WORDS[name])
    for name in ("beside", "doubtful", "trusted", "no_value", "criteria", "numbers")
)
NUMBER = re.compile(r"(?=.*\d)[-+\d.,:/%\sTZ]+", re.S)  # dates and times in digits too
AMOUNT = re.compile(r"\s*[-+]?\d[\d.,]*\s*%?\s*")
NOT_JUDGED = "numbers, not judged"
NO_PROSE = re.compile(r"\S*(?:[@/\\]|\w\.\w)\S*|(?:[\w-]+ )*<\S+@\S+>", re.S)  # addresses and files
FAILURE = re.compile("|".join(_WORDS["failures"]), re.S)
CHOICE = re.compile(r"(\s*\(?[A-J]\)?[.:]?\s*(\n|\Z))+", re.I)
NAMELESS = re.compile(r"(Unnamed: \d+)?\s*")
BLANK = ("lowest", "skip")  # what a blank cell of a candidate is, see `without_blanks`


class UnclearColumns(RecordError):
    """It cannot be seen what the columns of a table hold."""


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
    numbers: tuple[str, ...] = ()  # columns that may be a candidate's, and hold numbers alone

    @classmethod
    def named(cls, entries: Sequence[str]) -> Self:
        """Return the columns that `--columns` names: ROLE=COLUMN, or a column with a candidate's responses.

        RecordError for no question, a role or a column that comes twice, or one of model and answer without the other.
        """
        split = [
            (role, column)
            for role, sign, column in (each.partition("=") for each in entries)
            if role in NAMES and sign
        ]
        roles, responses = (
            dict(split),
            [each for each in entries if each.partition("=")[::2] not in split],
        )
        named = [("", role) for role, _ in split] + [
            ("the column ", name) for name in [*roles.values(), *responses]
        ]
        if twice := next((each for each in named if named.count(each) > 1), None):
            raise RecordError(f"--columns: {twice[0]}{twice[1]!r} is named twice")
        if "question" not in roles:
            raise RecordError("--columns: question=COLUMN is missing")
        if ("model" in roles) != ("answer" in roles):
            raise RecordError("--columns: model=COLUMN and answer=COLUMN need each other")
        return cls(**roles, responses=tuple(responses), numbers=())

    def of(self, rows: Sequence[dict], path: str) -> Self:
        """Return the named columns of a table, which has an id where a column is called so; RecordError if one is missing."""
        every = _names(rows)
        if missing := next((name for name in self.every if name not in every), None):
            raise RecordError(
                f"{path}: --columns: no column {missing!r}; the columns are {', '.join(every)}"
            )
        return self if self.id or "id" not in every else replace(self, id="id")

    @classmethod
    def guessed(cls, rows: Sequence[dict], least_responses: int = 1) -> Self:
        """Return the columns by their names; one that holds numbers alone has no responses, see `numbers`.

        UnclearColumns for no column or several with the question, or none with responses although some are needed.
        """
        every = _names(rows)
        named = {
            role: [name for name in every if plain(name) in names] for role, names in NAMES.items()
        }
        answers = named.pop("answer")
        listed = f"the columns are {', '.join(' '.join(name.split()) for name in every)}"
        columns: dict[str, Any] = {}
        for role, names in named.items():
            exact = [name for name in names if plain(name) == role] if role != "question" else []
            if len(exact or names) > 1:
                raise UnclearColumns(
                    f"{' or '.join(map(repr, exact or names))} may be the {role}; {listed}"
                )
            columns.update((role, name) for name in exact or names)
        if "question" not in columns:
            raise UnclearColumns(f"no column is called question; {listed}")
        if nameless := [
            name for name in every if NAMELESS.fullmatch(name) and _has_text(name, rows)
        ]:
            raise UnclearColumns(
                f"{nameless[0]!r} holds text, and the file has no name for it; {listed}"
            )
        if "model" in columns:
            if len(answers) != 1:
                raise UnclearColumns(
                    f"beside {columns['model']!r}, one column must be called answer; {listed}"
                )
            return cls(answer=answers[0], **columns)
        taken = {name for names in named.values() for name in names}
        rest = [name for name in every if name not in taken and _has_text(name, rows)]
        pair = [name for name in rest if plain(name) in ("chosen", "rejected")]
        if len(pair) == 2:  # a row of preferences, which has no other answer
            others = [name for name in rest if name not in pair]
        else:
            others = [name for name in rest if name not in answers and _is_beside(name)]
        rest = [name for name in rest if name not in others]
        # Where responses are not needed, an answer without a reference beside it may be the trusted one.
        alone = (
            not least_responses
            and "reference" not in columns
            and [plain(name) for name in rest] == ["answer"]
        )
        trusted = [
            name for name in rest if TRUSTED & {_unnumbered(name), *_unnumbered(name).split("_")}
        ]
        if unsure := answers if answers and (alone or len(rest) > 1) else trusted:
            raise UnclearColumns(
                f"{unsure[0]!r} may be the reference, or a candidate's responses; {listed}"
            )
        told = ", ".join(map(_listed, others))
        if found := _doubt(rest, rows, columns["question"]) if least_responses else None:
            kept = ", ".join(_listed(name) for name in rest if name not in found[0]) or "none"
            doubt = f"{', '.join(map(repr, found[0]))} may hold a candidate's answers, or something else ({found[1]})"
            raise UnclearColumns(f"{doubt}; taken for answers: {kept}; left out: {told or 'none'}")
        if not rest and least_responses:
            listed += f"; left out: {told}" if others else ""
            raise UnclearColumns(f"no column has responses; {listed}")
        numbers = [
            name for name in every if name not in taken and _may_be_answers(name, rest, rows)
        ]
        return cls(responses=tuple(rest), numbers=tuple(numbers), **columns)

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
        kinds |= dict.fromkeys(self.numbers, f" ({NOT_JUDGED})")
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
                elif isinstance(value, NoText) or (
                    name != self.question and not isinstance(value, str | None)
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


def fault_of_reference(cell: Any) -> str | None:
    """Return why a cell cannot be taken for a reference: it says that there is none, or names a choice; else None."""
    if not isinstance(cell, str) or not filled(cell):
        return None
    if is_choice(cell):
        return f"the reference is {cell!r}, the letter of a choice: write the text of the choice, or leave it blank"
    if no_value(cell) or is_failure(cell) or not re.search(r"\w", cell):
        why = f"the reference is {cell[:80]!r}, as programs and people write where there is none"
        return f"{why}: leave it blank, or write the reference in other words"
    return None


def _has_text(name: str, rows: Iterable[dict]) -> bool:
    """Return whether a column holds text; numbers are none."""
    texts = [row[name] for row in rows if isinstance(row.get(name), str) and filled(row[name])]
    return any(not NUMBER.fullmatch(text) for text in texts)


def _may_be_answers(name: str, answers: Sequence[str], rows: Iterable[dict]) -> bool:
    """Return whether a column holds numbers alone, and is named as those of answers are, and not as data beside them."""
    cells = [row[name] for row in rows if filled(row.get(name))]
    ends = {_words(name)[0], _words(name)[-1], _unnumbered(name)}
    known = NUMBERS | CRITERIA | BESIDE | DOUBTFUL | TRUSTED | {*RATINGS["score"]}
    return (
        bool(cells)
        and all(AMOUNT.fullmatch(str(cell)) for cell in cells)
        and _form(name) in map(_form, answers)
        and not ends & known
    )


def _filled(name: str, rows: Iterable[dict]) -> list[str]:
    """Return the texts of a column that are not blank."""
    return [cell.strip() for row in rows if isinstance(cell := row.get(name), str) and cell.strip()]


def _words(name: str) -> list[str]:
    """Return the words of a name without a number at its end; names of models have "-" and ":thinking", which part none."""
    return re.split(
        r"(?:(?!:thinking\b)[^\w-]|_)+", re.sub(r"\A[\W_]+|[\W\d_]+\Z", "", _cased(name))
    )


def _is_beside(name: str) -> bool:
    """Return whether a column of text is no candidate's by its name."""
    return _unnumbered(name) in BESIDE or _words(name)[-1] in {
        "id",
        "comment",
        "comments",
        "note",
        "notes",
    }


def _answer_in(cell: Any, name: str) -> tuple[str, Any]:
    """Return what `text_in_object` does; a program's error stands as it is."""
    return ("", cell) if is_failure(cell) else text_in_object(cell, name)


def _form(cell: str) -> str:
    """Return a text with one letter for each word and one digit for each number, as dates have it alike."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", cell))


def _doubt(
    names: Sequence[str], rows: Sequence[dict], question: str
) -> tuple[list[str], str] | None:
    """Return columns that may be no candidates', and why, beside others that look like answers; None if there are none."""
    cells = {name: _filled(name, rows) for name in names}
    length = {name: sorted(map(len, texts))[len(texts) // 2] for name, texts in cells.items()}
    most = {
        name: max((length[each] for each in names if each != name), default=length[name])
        for name in names
    }
    asked = {
        name: [(key_of(row.get(question)), key_of(row.get(name))) for row in rows] for name in names
    }
    pairs = {_words(name)[0] for name in names} & {*NAMES["answer"]}  # model_a beside response_a

    def is_short(name: str) -> bool:
        told = len(rows) > 5 or (
            len(cells[name]) > 2 and most[name] >= 20
        )  # of fewer nobody can tell
        return (
            told
            and 8 * length[name] < 3 * most[name]
            and all(len(cell.split()) <= 3 for cell in cells[name])
        )

    checks: dict[str, Callable[[str], bool]] = {
        "it is named as what stands beside answers": lambda name: (
            not DOUBTFUL.isdisjoint({_words(name)[0], _words(name)[-1], _unnumbered(name)})
            or (bool(pairs) and _words(name)[0] in NAMES["model"])
        ),
        "its cells are data": lambda name: all(
            cell[0] in "{[" and cell[-1] in "}]" for cell in cells[name]
        ),
        "its cells are addresses, files or errors": lambda name: (
            sum(bool(NO_PROSE.fullmatch(cell)) or is_failure(cell) for cell in cells[name]) * 2
            > len(cells[name])
        ),
        "its cells are the same few texts": lambda name: (
            2 * len(set(cells[name])) <= len(cells[name]) > 5
            or (len(cells[name]) > 2 and len(set(cells[name])) == 1 and length[name] > 40)
        ),
        "its cells repeat the question": lambda name: (
            sum(len(asks) > 12 and asks in cell for asks, cell in asked[name]) * 2 > len(rows)
        ),
        # of few rows nobody can tell
        "its cells are far longer than the others": lambda name: (
            len(rows) > 5 and length[name] > 8 * most[name] and most[name] >= 20
        ),
        "its cells have one form, with numbers": lambda name: (
            2 * len({_form(cell) for cell in cells[name]}) <= len(cells[name]) > 2
            and all(re.search(r"\d", cell) for cell in cells[name])
        ),
        "its cells are far shorter than the others": is_short,
    }
    for why, fits in checks.items():
        found = [name for name in names if fits(name)]
        if 0 < len(found) < len(names):
            return found, why
    return None
