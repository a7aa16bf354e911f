"""What the columns of a table of answers hold, and the cases that its rows are.

A wide table has a row for each case: the columns question, reference, id, topic and cluster, and one column for each candidate
with its responses. A long table has a row for each response: the columns question, model and answer, beside those of the case.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

from automedeval.records.arguments import BLANK
from automedeval.records.errors import UnclearArguments, errors_at
from automedeval.records.messages import is_conversation
from automedeval.records.package_data import packaged
from automedeval.records.questions import key_of
from automedeval.records.readers import Placed
from automedeval.records.tables.rows import filled
from automedeval.records.types import Case, RecordError, Response, each_once, is_whole

_WORDS = packaged("records", "columns")
NAMES: dict[str, list[str]] = _WORDS["names"]
RATINGS: dict[str, list[str]] = _WORDS["ratings"]
BESIDE, TRUSTED, NO_VALUE, CRITERIA = (
    frozenset[str](_WORDS[name]) for name in ("beside", "trusted", "no_value", "criteria")
)
RECOGNIZED = [
    role for role in NAMES if role != "answer"
]  # roles whose columns the name alone tells
ANSWERS = frozenset(NAMES["answer"])
NAMED = ("id", "cluster")  # roles whose cells may be numbers
KNOWN = BESIDE.union(*(NAMES[role] for role in RECOGNIZED))
# The name of a column that is no candidate's, also with an s or a number behind it
NUMBERED = re.compile(rf"(?:{'|'.join(BESIDE)}|(?:.*_)?(?:id|comment|note))s?[_0-9]*")
NOT_JUDGED = "no text, not judged"
NO_TEXT = re.compile("|".join(_WORDS["no_text"]), re.S | re.I)
FAILURE = re.compile("|".join(_WORDS["failures"]), re.S)
CHOICE = re.compile(r"(?i)(\s*\(?[A-J]\)?[.:]?\s*(\n|\Z))+")
# Signs, but no stars and other pictures, which may be a score
SIGNS = "(?:[^\\w\u2600-\u27bf\u2b50\U0001f300-\U0001faff]|_)+"
AROUND = re.compile(rf"\A{SIGNS}|{SIGNS}\Z")
NAMELESS = re.compile(r"(Unnamed: \d+)?\s*")
ASKED = re.compile("[?\uff1f\u061f]")
LONG = re.compile(r"\S\s+\S+\s+\S")  # three words


PlacedCase = tuple[str, Case]  # with its place in the file
PlacedCases = list[PlacedCase]


@dataclass(frozen=True)
class Columns:
    """The columns that are read, by what they hold."""

    roles: dict[str, str]  # role → column; a long table has the model and the answer
    responses: tuple[str, ...] = ()  # of a wide table: their names become the models
    textless: tuple[str, ...] = ()  # columns of no known name, and without text

    @classmethod
    def of(
        cls, rows: Sequence[dict], path: str, columns: Sequence[str], least_responses: int
    ) -> Self:
        """Return the columns by their names, and by `columns`, as of `--columns`.

        An entry of `columns` is ROLE=COLUMN, or a column with a candidate's responses; "question"
        is the question. Of a role that no entry has, the column is known by its name. Where no
        entry names a candidate, every other column with text is one; but where no responses are
        needed and entries are given, none is.

        RecordError for an entry that is wrong, or no responses although some are needed; UnclearArguments for no column or
        several with the question, or one that may be the reference or a candidate's.
        """
        names = each_once(rows)
        listed = f"the columns are {', '.join(names)}"
        roles, responses = _by_option(columns)
        named = [*roles.values(), *responses]
        for name in named:
            if name not in names:
                raise RecordError(f"{path}: --columns: no column {name!r}; {listed}")
        free = [name for name in names if name not in named]
        doubt = _add_known(roles, free, is_wide=bool(responses))
        unknown = [name for name in free if not is_known(name)]
        texts = [name for name in unknown if _has_text(name, rows)]
        guess = unsure = ""
        textless = []
        if "question" not in roles:
            doubt = "no column is called question"
            asking = [name for name in texts if any(map(ASKED.search, _strings(name, rows)))]
            question = [*asking, *texts, ""][0]
            texts = [name for name in texts if name != question]
            roles = {"question": question} | roles
        is_open = not responses and (least_responses or not columns)
        if is_open and "model" not in roles:
            guess = _add_model(roles, texts, rows)
        if "model" in roles or "answer" in roles:
            unsure = _add_answer(roles, texts)
        elif is_open:
            textless = [name for name in unknown if name not in texts]
            unsure = _add_reference(roles, texts, least_responses)
            responses = [name for name in texts if name not in roles.values()]
        doubt = doubt or guess or unsure
        is_answered = responses or "answer" in roles or not least_responses
        if not (roles["question"] and is_answered):
            raise RecordError(f"{path}: {doubt or 'no column has responses'}; {listed}")
        if doubt:
            entries = [f"{role}={name}" for role, name in roles.items()]
            ways = [[*entries, *responses]]
            if guess and len(texts) > 1 and ANSWERS.isdisjoint(map(plain, texts)):
                ways.append([*entries[:-2], *texts])  # of runs of several models
            raise UnclearArguments(f"{path}: {doubt}; {listed}", *ways)
        return cls(roles, tuple(responses), tuple(textless))

    def __str__(self) -> str:
        kinds = {name: f" ({role})" for role, name in self.roles.items() if plain(name) != role}
        named = [name + kinds.get(name, "") for name in self.every]
        if self.responses:
            named[len(self.responses)] += " (answers)"
        return ", ".join(named)

    @property
    def every(self) -> list[str]:
        """The names of all columns that are read."""
        question, *others = [self.roles[role] for role in NAMES if role in self.roles]
        return [question, *self.responses, *others]

    def unread(self, rows: Sequence[dict]) -> list[str]:
        """Return the other columns of these rows, with what has no text marked so."""
        unread = [name for name in each_once(rows) if name not in self.every]
        return [name if _has_text(name, rows) else f"{name} (no text)" for name in unread]

    def cases(self, placed: Iterable[Placed]) -> tuple[PlacedCases, list[str]]:
        """Return the cases that the rows `(place, row)` of a table hold, and a line if the ids are no cases'.

        A case has the number of its first row as `row`, from 1, and each response of a long table its own. A blank cell is no
        reference, topic or cluster, and a response without text. In a long table the rows with one id are a case; without ids,
        or where the rows of a question have different ids, those with one question. Questions that differ in blanks alone are
        one. RecordError if a cell is not text, a reference is a word that programs write where
        there is none, or the rows of a case contradict each other.
        """
        rows = []
        for number, (place, cells) in enumerate(placed, 1):
            with errors_at(place):
                rows.append((place, self._row(number, cells)))
        if "model" not in self.roles:
            return rows, []
        ids = {row.id for _, row in rows}
        questions = {key_of(row.question) for _, row in rows}
        are_of_cases = len(ids) < len(rows) or len(questions) == len(rows)
        groups: dict[str, PlacedCases] = {}
        for place, row in rows:
            if not are_of_cases:
                row = replace(row, id="")
            elif any(ids) and not row.id:
                raise RecordError(f"{place}: the id is blank, and in other rows it names the case")
            groups.setdefault(row.id or key_of(row.question), []).append((place, row))
        notes = [] if are_of_cases else [f"{self.roles['id']!r} names rows, and no cases"]
        return list(map(_merged, groups.values())), notes

    def _row(self, number: int, row: dict) -> Case:
        """Return what is read of a row; RecordError if a cell is not text, or no question or reference."""
        for name in self.every:
            cell = row.get(name)
            is_asked = name == self.roles["question"] and is_conversation(cell)
            is_number = type(cell) in (int, float) and name in map(self.roles.get, NAMED)
            if not (isinstance(cell, str | None) or is_asked or is_number):
                raise RecordError(f"{name!r} must be text, not {str(cell)[:80]}")
        cells = {role: row[name] for role, name in self.roles.items() if filled(row.get(name))}
        question = cells.get("question", "")
        reference = cells.get("reference")
        if is_failure(question):
            raise RecordError(f"the question is an error of a program: {question!r}")
        if fault := fault_of_reference(reference):
            raise RecordError(fault)
        answers = [
            Response(name, row[name] if filled(row.get(name)) else "") for name in self.responses
        ]
        if "model" in self.roles:
            answers = [Response(cells.get("model", ""), cells.get("answer", ""), {"row": number})]
        case_id, cluster = (_name(cells.get(role, "")) for role in NAMED)
        return Case(
            case_id, question, tuple(answers), reference, cells.get("topic"), {"row": number},
            cluster=cluster,
        )  # fmt: skip


def _name(cell: str | float) -> str:
    """Return a name in a cell; a whole number with a blank below it is read as 1.0."""
    return str(int(cell) if is_whole(cell) else cell).strip()


def _merged(rows: PlacedCases) -> PlacedCase:
    """Return the case of some rows, and the place of the first one."""
    first_place, first = rows[0]
    about = {}
    for role in ("question", "reference", "topic", "cluster"):
        given = {place: cell for place, row in rows if (cell := getattr(row, role))}
        places = {key_of(cell): place for place, cell in given.items()}
        if len(places) > 1:
            other, place, *_ = places.values()
            same = "id" if first.id else "question"
            raise RecordError(f"{place}: another {role} than {other}, with the same {same}")
        if given:  # the shortest, so that another order of the rows changes nothing
            about[role] = min(given.values(), key=lambda cell: (len(str(cell)), str(cell)))
    responses = chain.from_iterable(row.responses for _, row in rows)
    return first_place, replace(first, responses=tuple(responses), **about)


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
    asked = 0
    blanks = Counter[str]()  # by model
    settled = []
    for place, case in placed:
        responses = []
        for answer in case.responses:
            asked += 1
            if answer.text and not is_failure(answer.text):
                responses.append(answer)
                continue
            blanks[answer.model] += 1
            if blank == "lowest":
                responses.append(replace(answer, text=""))
        settled.append((place, replace(case, responses=tuple(responses))))
    if not blanks:
        return placed, []
    counts = ", ".join(f"{model} {number:,}" for model, number in blanks.items())
    count = f"{blanks.total():,} of {asked:,} answers are blank ({counts})"
    if blank is None:
        raise RecordError(
            f"{source}: {count}: --blank lowest (in Python and YAML: blank) if the model was asked and gave no answer, "
            "which has the lowest score, or skip if it was not asked; a cell with an error of a program is as a blank one"
        )
    meaning = "are empty answers" if blank == "lowest" else "were not asked"
    return settled, [f"{count}, and {meaning} (--blank {blank})"]


def filled_names(rows: Sequence[dict]) -> list[str]:
    """Return the names of the columns that have a filled cell."""
    return [name for name in each_once(rows) if any(filled(row.get(name)) for row in rows)]


def plain(name: str) -> str:
    """Return the name of a column or a criterion as it is compared: its words in small letters, with "_" between them.

    A change of case begins a word: "expectedOutput", not "MedPaLM" and "CoT".
    """
    words = re.sub(r"(?<=[a-z]{2})(?=[A-Z])", "_", name).casefold()
    return re.sub(r"[\W_]+", "_", words).strip("_")


def _by_option(entries: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return role → column, and the columns of candidates, that `--columns` names; RecordError for a role that comes twice."""
    roles = {}
    responses = []
    for entry in entries:
        if plain(entry) == "question":  # which is no candidate's name
            entry = "question=" + entry
        role, sign, column = entry.partition("=")
        if not sign or role not in NAMES:
            responses.append(entry)
        elif role in roles:
            raise RecordError(f"--columns: {role!r} is named twice")
        else:
            roles[role] = column
    return roles, responses


def _add_known(roles: dict[str, str], names: Sequence[str], is_wide: bool) -> str:
    """Add to role → column those that are known by their names; return the first doubt, where one may be several columns."""
    doubt = ""
    for role in RECOGNIZED:
        called = [name for name in names if plain(name) in NAMES[role]]
        if role in roles or not called or (is_wide and role == "model"):
            continue
        exact = [name for name in called if plain(name) == role]
        roles[role] = [*exact, *called][0]
        if len(called) > 1 and len(exact) != 1:
            doubt = doubt or f"{' or '.join(map(repr, called))} may be the {role}"
    return doubt


def _add_model(roles: dict[str, str], texts: list[str], rows: Sequence[dict]) -> str:
    """Add to role → column that of the models, if a row seems to be one answer; return the doubt.

    Then questions come again, and few words tell their rows apart: those of this column, which is
    taken out of the texts. So are columns of short cells beside others, where none is called
    answer. Of the texts left the one with the most different cells becomes the first.
    """
    question = roles["question"]
    count = len(rows)
    if len(texts) < 2 or _kinds(rows, question) > 0.75 * count:
        return ""
    for name in texts:
        if _kinds(rows, name) <= count / 2 and _kinds(rows, question, name) == count:
            roles["model"] = name
            texts.remove(name)
            texts.sort(key=lambda other: -_kinds(rows, other))
            if ANSWERS.isdisjoint(map(plain, texts)):
                long = [each for each in texts if any(map(LONG.search, _strings(each, rows)))]
                texts[:] = long or texts
            return f"{name!r} may be the model that gave the answer"
    return ""


def _kinds(rows: Iterable[dict], *names: str) -> int:
    """Return how many different things some columns of the rows hold together."""
    return len({tuple(map(key_of, map(row.get, names))) for row in rows})


def _add_answer(roles: dict[str, str], texts: Sequence[str]) -> str:
    """Add to role → column, of a long table, that of the answers; return why it is in doubt."""
    if "model" not in roles:
        raise RecordError("--columns: model=COLUMN and answer=COLUMN need each other")
    if "answer" in roles:
        return ""
    called = [name for name in texts if plain(name) in ANSWERS]
    if texts:
        roles["answer"] = [*called, *texts][0]
    if len(called) != 1:
        return f"beside {roles['model']!r}, one column must be called answer"
    for name in texts:
        is_answer = not ANSWERS.isdisjoint(plain(name).split("_"))  # "is_correct" is none
        if "reference" not in roles and is_answer and is_trusted(name):
            roles["reference"] = name
            return f"{name!r} may be the reference"
    return ""


def _add_reference(roles: dict[str, str], texts: Sequence[str], least_responses: int) -> str:
    """Add to role → column, of a wide table without a reference, the first one that may be it; return that it is in doubt.

    In doubt is a column that is called answer beside others, or alone where no responses are needed, and one whose name has
    a word of a trusted answer.
    """
    is_one = len(texts) == 1 and (least_responses or "reference" in roles)
    for name in texts:
        is_answer = plain(name) in ANSWERS and not is_one
        if is_answer or is_trusted(name):
            roles.setdefault("reference", name)
            return f"{name!r} may be the reference, or a candidate's responses (if the only ones: --columns {name!r})"
    return ""


def is_trusted(name: str) -> bool:
    """Return whether the name of a column has a word of a trusted answer."""
    return not TRUSTED.isdisjoint([plain(name), *plain(name).split("_")])


def is_known(name: str) -> bool:
    """Return whether a column is no candidate's by its name, also with an s or a number behind it, or without any name."""
    word = plain(name)
    return bool(word in KNOWN or NUMBERED.fullmatch(word) or NAMELESS.fullmatch(name))


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


def fault_of_reference(cell: Any) -> str | None:
    """Return why a cell cannot be taken for a reference: it says that there is none, or names a choice; else None."""
    if not isinstance(cell, str):
        return None
    is_link_or_date = NO_TEXT.fullmatch(cell.strip()) and re.search(r"[^\W\d]", cell)
    if any((is_choice(cell), is_link_or_date, no_value(cell), is_failure(cell))):
        return f"the reference is {cell[:80]!r}: write what an answer should say, or leave it blank"
    return None


def _has_text(name: str, rows: Iterable[dict]) -> bool:
    """Return whether a column holds text; numbers, dates and addresses are none, nor words for no value among them."""
    cells = list(filter(None, _strings(name, rows)))
    texts = [cell for cell in cells if not NO_TEXT.fullmatch(cell)]
    return not all(map(no_value, texts)) or (bool(texts) and texts == cells)


def _strings(name: str, rows: Iterable[dict]) -> list[str]:
    """Return the texts of a column, without blanks around them."""
    return [row[name].strip() for row in rows if isinstance(row.get(name), str)]
