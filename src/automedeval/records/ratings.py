"""Read people's ratings of responses: records, tables of any program, and exports of Label Studio and Argilla.

A rating needs the id of its case or its question, the model, the rater and the score. A score that is blank, or a word that
programs write where there is no value, is missing: it is counted and left out.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from automedeval.records.columns import (
    BESIDE,
    CRITERIA,
    NAMELESS,
    RATINGS,
    no_value,
    plain,
)
from automedeval.records.questions import key_of, question_text
from automedeval.records.rows import NoText, filled, read_rows
from automedeval.records.types import Case, Rating, RecordError

ABOUT_RATED = {*RATINGS["case_id"], *RATINGS["question"], *RATINGS["model"], *RATINGS["comment"]}
# What people write where they give no score, beside the words of programs.
_MARKS = r"[\s\u200b\ufeff!-*,-/:-@\[-`{-~‐-―−…]*"
NO_SCORE = re.compile(
    rf"{_MARKS}(?:n[\W_]?[ar]|missing|not rated|skip(?:ped)?|div/0)?{_MARKS}", re.I
)
A_RATER = re.compile(
    rf"(?:{'|'.join(RATINGS['annotator'])})(?:_?\d+|_[a-z])"
)  # the name of one's column
A_SCORE = re.compile(  # the end of the name of one's column: "relevancy_score"
    r"(?<=\w)(?:[\W_]+(?i:score|rating)|(?<=[a-z])(?:Score|Rating))\W*$"
)
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
# The states of an answer that is none.
LEFT_OUT = ("cancelled", "discarded", "draft", "pending", "ignore", "reject", NO_ANSWER)


def placed_ratings(
    path: str | Path,
    cases: Iterable[Case] = (),
    better: Collection[str] = (),
    worse: Collection[str] = (),
) -> tuple[list[tuple[str, Rating]], list[str]]:
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
    counts: Counter[str] = Counter()
    given = [(place, each) for place, row in read_rows(path) for each in _answers(row, counts)]
    rows, columns_of, notes = _one_score_each(given, rated.models)
    columns = _columns_of(rows, path)
    ratings = []
    for place, row in rows:
        cells = {role: row.get(name) for role, name in columns.items()}
        of = f" in {row[columns_of]!r}" if columns_of else ""
        score = _score(cells["score"], place, of)
        if score is None:
            counts[NO_ANSWER] += 1
            continue
        for role in ("case_id", "question"):
            if isinstance(cells.get(role), NoText):
                raise RecordError(f"{place}: {columns[role]!r} must be text, not {cells[role]}")
        case_id = rated.locate(cells.get("case_id"), cells.get("question"), place)
        model = rated.model_of(case_id, cells.get("model"), place)
        annotator = _text(cells.get("annotator", "rater"))
        if not annotator:
            raise RecordError(f"{place}: does not say who rates: {columns['annotator']!r} is blank")
        criterion = _text(cells.get("criterion")) or "overall"
        comment = _text(cells.get("comment")) or None
        extra = {key: cell for key, cell in row.items() if key not in columns.values()}
        rating = Rating(case_id, model, annotator, criterion, score, comment, extra)
        ratings.append((place, rating))
    _check_criteria(ratings, better, worse, path)
    ratings = _turned(ratings, worse)
    if "annotator" not in columns:
        if len({(each.case_id, each.model, each.criterion) for _, each in ratings}) < len(ratings):
            raise RecordError(
                f"{path}: responses are rated twice: call the column that says by whom rater"
            )
        notes.append("no column is called rater: the ratings are taken as one person's")
    others = dict.fromkeys(
        str(key) for _, each in ratings for key, cell in each.extra.items() if filled(cell)
    )
    if unread := [name for name in others if name not in ("rubric", "role") and not _is_key(name)]:
        notes.append(f"not read: {', '.join(unread)}")
    notes += [f"ratings {what}, left out: {count:,}" for what, count in sorted(counts.items())]
    return ratings, [f"{path}: {note}" for note in notes]


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

    def locate(self, cell: Any, question: Any, place: str) -> str:
        """Return the id of the case that a row rates; what it asks, where no case does and no id is given."""
        case_id, asks = _text(cell, self.by_id), key_of(question)
        asking = sorted(self.asking.get(asks, [])) if asks else []
        if asks and case_id in self.by_id and case_id not in asking:
            raise RecordError(f"{place}: the case {case_id!r} asks another question")
        if not asking or case_id in asking:
            return case_id or asks
        if len(asking) > 1:
            these = ", ".join(map(repr, asking[:3]))
            raise RecordError(f"{place}: the cases {these} ask this question; give case_id")
        return asking[0]

    def model_of(self, case_id: str, cell: Any, place: str) -> str:
        """Return the model that a row rates, which need not be named where the case has one response."""
        models = self.by_id[case_id].models if case_id in self.by_id else [""]
        model = _text(cell, models)
        if not model and len(models) > 1:
            named = ", ".join(map(repr, models))
            raise RecordError(f"{place}: does not say which model is rated: {named}")
        return model or models[0]


def _columns_of(rows: Sequence[tuple[str, dict]], path: str | Path) -> dict[str, str]:
    """Return role → column; RecordError if no column has the score or the case, or two may have the score."""
    held = {name: str(key) for _, row in rows for key in row for name in [plain(str(key))]}
    called = {
        role: [held[name] for name in names if name in held] for role, names in RATINGS.items()
    }
    # Programs number their rows and tasks so.
    if all(re.fullmatch(r"\s*\d*\s*", _text(row.get(held.get("id")))) for _, row in rows):
        called["case_id"] = [name for name in called["case_id"] if plain(name) != "id"]
    needed = {
        f"a score, {NAMING}": called["score"],
        "a question, or the case as case_id": called["case_id"] or called["question"],
    }
    for what, names in needed.items():
        if rows and not names:
            there = ", ".join(held.values())
            raise RecordError(f"{path}: no column holds {what}; there are {there}")
    scores = [{str(row.get(name)) for name in called["score"]} for _, row in rows]
    if any(len(given) > 1 for given in scores):
        several = " or ".join(map(repr, called["score"]))
        raise RecordError(f"{path}: {several} may be the score: leave one")
    return {role: names[0] for role, names in called.items() if names}


def _one_score_each(
    rows: list[tuple[str, dict]], models: Collection[str]
) -> tuple[list[tuple[str, dict]], str, list[str]]:
    """Return a row for each score; the role of which a table has a column of scores for each, if there is one; and notes."""
    columns = dict.fromkeys(
        str(key) for _, row in rows for key, cell in row.items() if filled(cell)
    )
    named = {
        role: [name for name in columns if plain(name) in words] for role, words in RATINGS.items()
    }
    whose = {name: A_SCORE.sub("", name) for name in columns if not _is_key(name)}
    marked = {name: MARKED.sub("", of) for name, of in whose.items() if MARKED.match(of)}
    kinds = {
        "model": {name: of for name, of in whose.items() if of in models},
        "annotator": {name: of for name, of in whose.items() if A_RATER.fullmatch(plain(of))},
        "criterion": marked
        or {name: of for name, of in whose.items() if _is_criterion(name, plain(of), rows)},
    }
    kinds = {role: scores for role, scores in kinds.items() if scores and not named[role]}
    if named["score"] or not kinds:
        return rows, "", []
    if len(kinds) > 1:
        first, second = (", ".join(map(repr, scores)) for scores in [*kinds.values()][:2])
        raise RecordError(f"{rows[0][0]}: {first} or {second} may be the scores: leave one out")
    (role, scores), *_ = kinds.items()
    split = []
    for place, row in rows:
        about = {key: cell for key, cell in row.items() if key not in scores}
        split += [
            (place, about | {role: of, "score": row.get(name)}) for name, of in scores.items()
        ]
    return split, role, [f"scores of one {role} a column: {', '.join(scores)}"]


def _is_criterion(name: str, plain_name: str, rows: Iterable[tuple[str, dict]]) -> bool:
    """Return whether a column has scores on a criterion by its name; one that may as well hold texts, by its numbers."""
    if plain_name not in BESIDE or plain_name not in CRITERIA:
        return plain_name in CRITERIA
    try:
        scores = [_score(row.get(name), "") for _, row in rows]
    except RecordError:
        return False
    return any(score is not None for score in scores)


def _is_key(name: str) -> bool:
    """Return whether a column is read by its name, or is the index that pandas writes."""
    return (
        any(plain(name) in names for names in RATINGS.values())
        or NAMELESS.fullmatch(name) is not None
    )


def _check_criteria(
    ratings: Iterable[tuple[str, Rating]],
    better: Collection[str],
    worse: Collection[str],
    path: str | Path,
) -> None:
    """Raise a RecordError for a criterion of which nobody says which way it counts, or one that only `worse` has."""
    names = {rating.criterion for _, rating in ratings}
    if unknown := sorted({*worse} - names - {"none"}):
        there = ", ".join(sorted(names))
        raise RecordError(f"--worse: {path} has no criterion {unknown[0]!r}, but {there}")
    by_page = {
        rating.criterion
        for _, rating in ratings
        if BY_A_RUBRIC.fullmatch(str(rating.extra.get("rubric")))
    }
    for name in sorted(names - {*better} - by_page) if not worse else ():
        if not is_better_by_name(name):
            raise RecordError(f"{path}: {name!r} {UNSURE}")


def is_better_by_name(criterion: str) -> bool:
    """Return whether the name of a criterion says that more of it is better."""
    name = plain(criterion)
    said = [word for word in name.split("_") if word not in SAY_NOTHING]
    return not said or bool({name, "_".join(said)} & CRITERIA)


def _turned(ratings: list[tuple[str, Rating]], worse: Collection[str]) -> list[tuple[str, Rating]]:
    """Return ratings with the scores on some criteria turned round, between the lowest and the highest that were given."""
    given: dict[str, list[float]] = {name: [] for name in worse}
    for _, rating in ratings:
        given.get(rating.criterion, []).append(rating.score)
    ends = {name: min(scores) + max(scores) for name, scores in given.items() if scores}
    return [
        (place, replace(rating, score=ends[rating.criterion] - rating.score))
        if rating.criterion in ends
        else (place, rating)
        for place, rating in ratings
    ]


def _text(cell: Any, names: Collection[str] = ()) -> str:
    """Return the text of a cell without blanks around it, unless it is one of these names with them.

    A person may be an object with an e-mail address or an id.
    """
    if isinstance(cell, dict):
        cell = cell.get("email") or cell.get("username") or cell.get("id")
    text = "" if cell is None else str(cell)
    return text if text in names else text.strip(" \t\r\n\xa0")


def _score(cell: Any, place: str, of: str = "") -> float | None:
    """Return a score, None if it is missing; RecordError if it is no number."""
    if (
        not filled(cell)
        or no_value(cell)
        or cell != cell
        or (isinstance(cell, str) and NO_SCORE.fullmatch(cell))
    ):
        return None
    text = str(cell).strip() if isinstance(cell, str | list) else ""
    text = re.sub(
        r"""\A\[\{[^{}]*["'](?:rating|number)["']: ?(\d+(?:\.\d+)?)\}\]\Z""", r"\1", text
    )  # Label Studio's
    text = re.sub(r"\A([-+]?\d+),(\d{1,2})\Z", r"\1.\2", text)  # a decimal comma
    if re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", text):
        return float(text)
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise RecordError(f"{place}: the score{of} is no number: {str(cell)[:40]!r}")
    return cell


def _answers(row: dict, counts: Counter[str]) -> Iterator[dict]:
    """Yield a row for each person who answers a task of Label Studio or a record of Argilla; another row as it is."""
    annotations = next(
        (row[key] for key in ("annotations", "completions") if isinstance(row.get(key), list)), None
    )
    given = list(_argilla(row) if annotations is None else _label_studio(annotations))
    if not given and annotations is None:
        if "_task_hash" in row and row.get("answer") in LEFT_OUT:  # Prodigy's
            counts[row["answer"]] += 1
        else:
            yield row
        return
    about: dict[str, Any] = {}
    for part in ("data", "fields", "metadata"):
        about |= row[part] if isinstance(row.get(part), dict) else {}
    if annotations is None:  # a task's own id is its number
        about |= {key.removeprefix("metadata."): value for key, value in row.items()}
    about = {key: held for key, held in about.items() if plain(key) in ABOUT_RATED}
    people: dict[Any, dict] = {}
    for who, user, status, name, value in given:
        if status in LEFT_OUT:
            counts[status] += 1
        else:
            row = people.setdefault(who, {"annotator": _text(user) or "rater"})
            row[name] = [row[name], value] if name in row else value  # two answers are no score
    yield from (about | each for each in people.values())


Answer = tuple[Any, Any, str | None, str, Any]  # whose, user, status, question, value


def _label_studio(annotations: list) -> Iterator[Answer]:
    """Yield the numbers and choices of the annotations of a task; the control's name is the criterion."""
    for number, annotation in enumerate(each for each in annotations if isinstance(each, dict)):
        user = annotation.get("completed_by")
        cancelled = annotation.get("was_cancelled")
        if cancelled or not annotation.get("result"):
            yield number, user, "cancelled" if cancelled else NO_ANSWER, "", None
            continue
        for result in (each for each in annotation.get("result") or () if isinstance(each, dict)):
            value = result.get("value") or {}
            said = next(
                (value[key] for key in ("rating", "number", "choices") if key in value), None
            )
            if said is not None:  # else a text, or a mark
                said = said[0] if isinstance(said, list) and len(said) == 1 else said
                yield number, user, None, str(result.get("from_name")), said


def _argilla(row: dict) -> Iterator[Answer]:
    """Yield the answers of a record as version 2 writes it, and as a data set of the Hub."""
    nested = row["responses"].items() if isinstance(row.get("responses"), dict) else ()
    for name, answers in nested:
        given = (
            [each for each in answers if isinstance(each, dict)]
            if isinstance(answers, list)
            else []
        )
        for at, each in enumerate(given):
            user = each.get("user_id")
            yield user or at, user, each.get("status"), name, each.get("value")
    for name, answers in row.items():
        if str(name).endswith(".responses") and isinstance(answers, list):
            users, states = (
                row.get(f"{name}.{what}") or [None] * len(answers) for what in ("users", "status")
            )
            for at, (user, status, answer) in enumerate(zip(users, states, answers)):
                yield user or at, user, status, name.removesuffix(".responses"), answer
