"""Read people's ratings of responses: records, tables of any program, and exports of Label Studio and Argilla.

A rating needs the id of its case or its question, the model, the rater and the score. A score that is blank, or a word that
programs write where there is no value, is missing: it is counted and left out.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from automedeval.records.errors import errors_at
from automedeval.records.questions import key_of, question_text
from automedeval.records.readers import Placed
from automedeval.records.tables.columns import (
    CRITERIA,
    NAMELESS,
    RATINGS,
    filled_names,
    is_known,
    names_of,
    no_value,
    plain,
)
from automedeval.records.tables.rows import filled, read_rows
from automedeval.records.types import Case, Rating, RecordError

_KEYS = frozenset[str]().union(*RATINGS.values())
ABOUT_RATED = {*RATINGS["case_id"], *RATINGS["question"], *RATINGS["model"], *RATINGS["comment"]}
# The name of one rater's column
A_RATER = re.compile(rf"(?:{'|'.join(RATINGS['annotator'])})(?:_?\d+|_[a-z])")
# The end of the name of one's column: "relevancy_score"
A_SCORE = re.compile(r"(?<=\w)(?:[\W_]+(?i:score|rating)|(?<=[a-z])(?:Score|Rating))\W*$")
# Of Label Studio
STARS = re.compile(r"""\A\[\{[^{}]*["'](?:rating|number)["']: ?(\d+(?:\.\d+)?)\}\]\Z""")
DECIMAL_COMMA = re.compile(r"\A([-+]?\d+),(\d{1,2})\Z")
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)")
CODES = {-999, -99, -9, 77, 88, 98, 99, 999}  # what surveys write for a missing answer
MARKED = re.compile(r"(?i)^criterion[\W_]+")
NAMING = "called score, criterion_NAME, rater_1, or as a model is"
UNSURE = (
    "does not say whether a higher number is better: --worse of automedeval report names the criteria on which it is worse "
    "(none: on no one); or leave it out, or rename it, such as accuracy"
)
# Words of a criterion's name that say nothing of what is rated.
SAY_NOTHING = {"score", "rating", "overall", "medical", "clinical", "general"}
BY_A_RUBRIC = re.compile(r"[\w-]+@\d+")  # how the physicians' page marks ratings
NO_ANSWER = "without a score"
# States of an answer that is none
LEFT_OUT = ("cancelled", "discarded", "draft", "pending", "ignore", "reject", NO_ANSWER)

PlacedRatings = list[tuple[str, Rating]]


def placed_ratings(
    path: str | Path,
    cases: Iterable[Case] = (),
    better: Collection[str] = (),
    worse: Collection[str] = (),
) -> tuple[PlacedRatings, list[str]]:
    """Return ("file:line", rating) of every score in a file, and what was left out.

    Args:
        path: JSON Lines, a JSON array, CSV, a spreadsheet or parquet.
        cases: those that are rated. They name the case of a question, and the model where a case has one response.
        better: criteria of a rubric, on which a higher number is better.
        worse: criteria on which it is worse: their scores are turned round, and all others count as better. "none" names none.

    Raises:
        RecordError: the file cannot be read, it is not seen what a column holds or which way a criterion counts, or a score is
            no number.
    """
    rated = _RatedCases(cases)
    left_out: Counter[str] = Counter()
    answers = []
    for place, row in read_rows(path):
        answers += [(place, answer) for answer in _answers(row, left_out)]
    with errors_at(path):
        rows, notes = _one_score_each(answers, rated.models)
        columns = _columns_of([row for _, row in rows])
    ratings = []
    for place, row in rows:
        with errors_at(place):
            rating = _rating(row, columns, rated)
        if rating is None:
            left_out[NO_ANSWER] += 1
        else:
            ratings.append((place, rating))
    scores: dict[str, set[float]] = {}
    for _, rating in ratings:
        scores.setdefault(rating.criterion, set()).add(rating.score)
    _check_codes(ratings, scores)
    with errors_at(path):
        _check_criteria(ratings, better, worse)
    if "annotator" not in columns:
        notes.append("no column is called rater: the ratings are taken as one person's")
    beside = filled_names([rating.extra for _, rating in ratings])
    unread = [name for name in beside if name not in ("rubric", "role") and not _is_key(name)]
    if unread:
        notes.append(f"not read: {', '.join(unread)}")
    notes += [f"ratings {what}, left out: {count:,}" for what, count in sorted(left_out.items())]
    return _turned(ratings, scores, worse), [f"{path}: {note}" for note in notes]


def _rating(row: dict, columns: Mapping[str, str], rated: "_RatedCases") -> Rating | None:
    """Return the rating of a row, None if it has no score."""
    cells = {role: row.get(name) for role, name in columns.items()}
    score = _score(cells["score"])
    if score is None:
        return None
    case_id = rated.locate(cells.get("case_id"), cells.get("question"))
    model = rated.model_of(case_id, cells.get("model"))
    annotator = _text(cells.get("annotator", "rater"))
    if not annotator:
        raise RecordError(f"does not say who rates: {columns['annotator']!r} is blank")
    criterion = _text(cells.get("criterion")) or "overall"
    comment = _text(cells.get("comment")) or None
    extra = {key: cell for key, cell in row.items() if key not in columns.values()}
    return Rating(case_id, model, annotator, criterion, score, comment, extra)


class _RatedCases:
    """The cases that may be rated, by their ids and by what they ask."""

    def __init__(self, cases: Iterable[Case]):
        self.by_id = {case.id: case for case in cases}
        self.models = {model for case in self.by_id.values() for model in case.models}
        self.asking: dict[str, list[str]] = {}
        for case in self.by_id.values():
            # A table that was written of a conversation has all of it in one text.
            for key in {key_of(case.question), key_of(question_text(case.question))}:
                self.asking.setdefault(key, []).append(case.id)

    def locate(self, cell: Any, question: Any) -> str:
        """Return the id of the case that a row rates; what it asks, where no case does and no id is given."""
        case_id, asked = _text(cell, self.by_id), key_of(question)
        asking = sorted(self.asking.get(asked, [])) if asked else []
        if asked and case_id in self.by_id and case_id not in asking:
            raise RecordError(f"the case {case_id!r} asks another question")
        if not asking or case_id in asking:
            return case_id or asked
        if len(asking) > 1:
            raise RecordError(f"{len(asking)} cases ask this question; give case_id")
        return asking[0]

    def model_of(self, case_id: str, cell: Any) -> str:
        """Return the model that a row rates, which need not be named where the case has one response."""
        models = self.by_id[case_id].models if case_id in self.by_id else [""]
        model = _text(cell, models)
        if not model and len(models) > 1:
            raise RecordError("does not say which model is rated")
        return model or models[0]


def _columns_of(rows: Sequence[dict]) -> dict[str, str]:
    """Return role → column; RecordError if no column has the score or the case, or two may have the score."""
    names = {plain(name): name for name in names_of(rows)}
    there = ", ".join(names.values())
    ids = [_text(row.get(names.get("id"))) for row in rows]
    if not any(re.search(r"\D", text) for text in ids):  # programs number rows and tasks so
        names.pop("id", None)
    called = {}
    for role, words in RATINGS.items():
        called[role] = [names[word] for word in words if word in names]
    if rows and not called["score"]:
        raise RecordError(f"no column holds a score, {NAMING}; there are {there}")
    if rows and not called["case_id"] and not called["question"]:
        raise RecordError(f"no column holds a question, or the case as case_id; there are {there}")
    if len(called["score"]) > 1:
        raise RecordError(f"{' or '.join(called['score'])} may be the score: leave one")
    return {role: columns[0] for role, columns in called.items() if columns}


def _one_score_each(rows: list[Placed], models: Collection[str]) -> tuple[list[Placed], list[str]]:
    """Return a row for each score, and a note where a table has several columns of scores."""
    columns = filled_names([row for _, row in rows])
    called = {plain(name) for name in columns}
    kinds = {}
    for role, scores in _columns_of_scores(columns, models).items():
        if scores and called.isdisjoint(RATINGS[role]):
            kinds[role] = scores
    if not kinds or not called.isdisjoint(RATINGS["score"]):
        return rows, []
    if len(kinds) > 1:
        raise RecordError(f"columns of scores of one {' and one '.join(kinds)}: leave one kind out")
    ((role, scores),) = kinds.items()
    parted = []
    for place, row in rows:
        beside = {key: cell for key, cell in row.items() if key not in scores}
        for name, word in scores.items():
            parted.append((place, beside | {role: word, "score": row.get(name)}))
    return parted, [f"scores of one {role} a column: {', '.join(scores)}"]


def _columns_of_scores(
    columns: Iterable[str], models: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return role → column → the model, rater or criterion that its name says, of columns that may hold one's scores."""
    of_models, of_raters, marked, criteria = {}, {}, {}, {}
    for name in columns:
        word = A_SCORE.sub("", name)
        if _is_key(name):
            continue
        if word in models:
            of_models[name] = word
        if A_RATER.fullmatch(plain(word)):
            of_raters[name] = word
        if MARKED.match(word):
            marked[name] = MARKED.sub("", word)
        if plain(word) in CRITERIA and not is_known(name):
            criteria[name] = word
    return {"model": of_models, "annotator": of_raters, "criterion": marked or criteria}


def _is_key(name: str) -> bool:
    """Return whether a column is read by its name, or is the index that pandas writes."""
    return plain(name) in _KEYS or NAMELESS.fullmatch(name) is not None


def _check_criteria(
    ratings: PlacedRatings, better: Collection[str], worse: Collection[str]
) -> None:
    """Raise a RecordError for a criterion of which nobody says which way it counts, or one that only `worse` has."""
    names = {rating.criterion for _, rating in ratings}
    for name in sorted({*worse} - names - {"none"}):
        there = ", ".join(sorted(names))
        raise RecordError(f"--worse: there is no criterion {name!r}, but {there}")
    if worse:
        return
    known = {*better}
    for _, rating in ratings:
        if BY_A_RUBRIC.fullmatch(str(rating.extra.get("rubric"))):
            known.add(rating.criterion)
    for name in sorted(names - known):
        if not is_better_by_name(name):
            raise RecordError(f"{name!r} {UNSURE}")


def is_better_by_name(criterion: str) -> bool:
    """Return whether the name of a criterion says that more of it is better."""
    name = plain(criterion)
    words = [word for word in name.split("_") if word not in SAY_NOTHING]
    return not words or bool({name, "_".join(words)} & CRITERIA)


def _check_codes(ratings: PlacedRatings, scores: Mapping[str, set[float]]) -> None:
    """Raise RecordError for a number that surveys write where there is no score, if all others are from 0 to 10.

    `scores` are those on each criterion.
    """
    for place, rating in ratings:
        others = scores[rating.criterion] - CODES
        if rating.score in CODES and others and min(others) >= 0 and max(others) <= 10:
            what = f"the score {rating.score:g} looks like a code for none: leave it blank"
            raise RecordError(f"{place}: {what}")


def _turned(
    ratings: PlacedRatings, scores: Mapping[str, set[float]], worse: Collection[str]
) -> PlacedRatings:
    """Return ratings with the scores on some criteria turned round, between the lowest and the highest that were given."""
    turned = []
    for place, rating in ratings:
        if rating.criterion in worse:
            given = scores[rating.criterion]
            rating = replace(rating, score=min(given) + max(given) - rating.score)
        turned.append((place, rating))
    return turned


def _text(cell: Any, names: Collection[str] = ()) -> str:
    """Return the text of a cell without blanks around it, unless it is one of these names with them.

    A person may be an object with an e-mail address or an id.
    """
    if isinstance(cell, dict):
        cell = cell.get("email") or cell.get("username") or cell.get("id")
    text = "" if cell is None else str(cell)
    return text if text in names else text.strip(" \t\r\n\xa0")


def _score(cell: Any) -> float | None:
    """Return a score, None if the cell is blank, NaN, or what is written where there is none; RecordError for no number."""
    if not filled(cell) or cell != cell or no_value(cell):
        return None
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return cell
    text = STARS.sub(r"\1", str(cell).strip())
    text = DECIMAL_COMMA.sub(r"\1.\2", text)
    if not NUMBER.fullmatch(text):
        raise RecordError(f"the score is no number: {str(cell)[:40]!r}")
    return float(text)


class _Answer(NamedTuple):
    """What a person answered to one question of a form."""

    person: Any  # what tells persons apart within a row
    user: Any
    status: str | None
    question: str = ""
    value: Any = None


def _answers(row: dict, left_out: Counter[str]) -> Iterator[dict]:
    """Yield a row for each person who answers a task of Label Studio or a record of Argilla; another row as it is."""
    about: dict = {}
    for part in ("data", "fields", "metadata"):
        about |= row[part] if isinstance(row.get(part), dict) else {}
    if isinstance(row.get("annotations"), list):  # a task's own id is its number
        answers = list(_label_studio(row["annotations"]))
    else:
        answers = list(_argilla(row))
        about |= {key.removeprefix("metadata."): value for key, value in row.items()}
        if not answers and "_task_hash" in row and row.get("answer") in LEFT_OUT:  # Prodigy's
            left_out[row["answer"]] += 1
        elif not answers:
            yield row
    about = {key: cell for key, cell in about.items() if plain(key) in ABOUT_RATED}
    people: dict[Any, dict] = {}
    for answer in answers:
        if answer.status in LEFT_OUT:
            left_out[answer.status] += 1
            continue
        name, value = answer.question, answer.value
        given = people.setdefault(answer.person, {"annotator": _text(answer.user) or "rater"})
        given[name] = [given[name], value] if name in given else value  # two answers are no score
    for given in people.values():
        yield about | given


def _objects(values: Any) -> list[dict]:
    """Return the objects of a list; nothing of another value."""
    return [value for value in values if isinstance(value, dict)] if type(values) is list else []


def _label_studio(annotations: list) -> Iterator[_Answer]:
    """Yield the numbers and choices of the annotations of a task; the control's name is the criterion."""
    for number, annotation in enumerate(_objects(annotations)):
        user, results = annotation.get("completed_by"), annotation.get("result")
        if annotation.get("was_cancelled"):
            yield _Answer(number, user, "cancelled")
            continue
        if not results:
            yield _Answer(number, user, NO_ANSWER)
        for result in _objects(results):
            content = result.get("value") or {}
            values = [content[key] for key in ("rating", "number", "choices") if key in content]
            if not values:  # a text, or a mark
                continue
            value = values[0]
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            yield _Answer(number, user, None, str(result.get("from_name")), value)


def _argilla(row: dict) -> Iterator[_Answer]:
    """Yield the answers of a record as version 2 writes it, and as a data set of the Hub."""
    nested = row.get("responses")
    for name, answers in nested.items() if isinstance(nested, dict) else ():
        for at, answer in enumerate(_objects(answers)):
            user = answer.get("user_id")
            yield _Answer(user or at, user, answer.get("status"), name, answer.get("value"))
    for name, values in row.items():
        if not str(name).endswith(".responses") or not isinstance(values, list):
            continue
        none = [None] * len(values)
        users, states = row.get(f"{name}.users") or none, row.get(f"{name}.status") or none
        for at, (user, status, value) in enumerate(zip(users, states, values)):
            yield _Answer(user or at, user, status, name.removesuffix(".responses"), value)
