"""Read people's ratings of responses: records, tables of any program, and exports of Label Studio and Argilla.

A rating needs the id of its case or its question, the model, the rater and the score. A score that is blank, or a word that
programs write where there is no value, is missing: it is counted and left out.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
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
DEFAULTS = {"annotator": "rater", "criterion": "overall", "comment": None}
# What people write where they give no score, beside the words of programs.
_MARKS = r"[\s\u200b\ufeff!-*,-/:-@\[-`{-~‐-―−…]*"
NO_SCORE = re.compile(
    rf"{_MARKS}(?:n[\W_]?[ar]|missing|not rated|skip(?:ped)?|div/0)?{_MARKS}", re.I
)
A_RATER = re.compile(
    rf"(?:{'|'.join(RATINGS['annotator'])})(?:_?\d+|_[a-z])"
)  # the name of one's column
PROGRAMS = re.compile(
    r".*_(?:id|hash)|lead_time"
)  # columns of numbers that programs write beside the scores
NAMING = (
    "leave out what is none; call a column of ratings criterion_NAME, or rater_1, rater_2 and so on if each rater has one, or "
    "as the model is called if each model has one"
)
HIGHER = "a higher number must be better"
UNSURE = (
    "does not say whether a higher number is better: --worse of automedeval report names the criteria on which it is worse "
    "(none: on no one); or leave it out, or rename it, such as accuracy"
)
# Words of a criterion's name that say nothing of what is rated.
SAY_NOTHING = {"score", "rating", "overall", "medical", "clinical", "general"}
FEWEST_RANKS = 8  # of fewer nobody can tell ranks from scores
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
    known = {case.id: case for case in cases}
    asked: dict[str, list[str]] = {}
    for case in known.values():
        # A table that was written of a conversation has all of it in one text.
        for key in {key_of(case.question), key_of(question_text(case.question))}:
            asked.setdefault(key, []).append(case.id)
    counts: Counter[str] = Counter()
    given = [(place, each) for place, row in read_rows(path) for each in _answers(row, counts)]
    rows, columns_of, notes = _one_score_each(
        given, {model for case in known.values() for model in case.models}
    )
    held = {name: str(key) for _, row in rows for key in row for name in [plain(str(key))]}
    columns = {
        role: [held[name] for name in names if name in held] for role, names in RATINGS.items()
    }
    # Programs number their rows and tasks so.
    numbers = all(re.fullmatch(r"\s*\d*\s*", _text(row.get(held.get("id")))) for _, row in rows)
    by_id = next((name for name in columns["case_id"] if plain(name) != "id" or not numbers), None)
    found = {
        "a score": columns["score"],
        "a question, or the case as case_id": by_id or columns["question"],
    }
    if lacking := [what for what, there in found.items() if rows and not there]:
        raise RecordError(
            f"{path}: no column holds {lacking[0]}; there are {', '.join(held.values())}"
        )
    if len(columns["score"]) > 1 and any(
        len({str(row.get(name)) for name in columns["score"]}) > 1 for _, row in rows
    ):
        raise RecordError(
            f"{path}: {' or '.join(map(repr, columns['score']))} may be the score: leave one"
        )
    ratings = []
    for place, row in rows:
        values = {
            role: row.get(columns[role][0]) if columns[role] else default
            for role, default in DEFAULTS.items()
        }
        score = _score(
            row.get(columns["score"][0]), place, f" in {row[columns_of]!r}" if columns_of else ""
        )
        if score is None:
            counts[NO_ANSWER] += 1
            continue
        case_id = _text(row.get(by_id), known) if by_id else ""
        question = row.get(columns["question"][0]) if columns["question"] else None
        for name, cell in ((by_id, row.get(by_id)), ("question", question)):
            if isinstance(cell, NoText):
                raise RecordError(f"{place}: {name!r} must be text, not {cell}")
        asks = key_of(question)
        named = sorted(asked.get(asks, [])) if asks else []
        if asks and case_id in known and case_id not in named:
            raise RecordError(
                f"{place}: {by_id!r} names case {case_id!r}, which asks another question"
            )
        if named and case_id not in named:
            if len(named) > 1:
                these = ", ".join(map(repr, named[:3]))
                raise RecordError(f"{place}: the cases {these} ask this question; give case_id")
            case_id = named[0]
        case_id = case_id or asks
        models = known[case_id].models if case_id in known else [""]
        model = _text(row.get(columns["model"][0]), models) if columns["model"] else ""
        if not model:
            if len(models) > 1:
                raise RecordError(
                    f"{place}: does not say which model is rated: {', '.join(map(repr, models))}"
                )
            model = models[0]
        if not (annotator := _text(values["annotator"])):
            raise RecordError(
                f"{place}: does not say who rates: {columns['annotator'][0]!r} is blank"
            )
        used = {
            by_id,
            *(names[0] for role, names in columns.items() if names and role != "case_id"),
        }
        extra = {key: value for key, value in row.items() if key not in used}
        comment = _text(values["comment"]) or None
        criterion = _text(values["criterion"]) or DEFAULTS["criterion"]
        ratings.append(
            (place, Rating(case_id, model, annotator, str(criterion), score, comment, extra))
        )
    for what in ["criterion"] + ["annotator"] * (columns_of == "annotator"):
        _check_scales(ratings, what, path)
    _check_ranks(ratings, path)
    _check_criteria(ratings, better, worse, path)
    ratings = _turned(ratings, worse)
    if not columns["annotator"]:
        if len({(each.case_id, each.model, each.criterion) for _, each in ratings}) < len(ratings):
            raise RecordError(
                f"{path}: responses are rated twice: call the column that says by whom rater"
            )
        notes.append("no column is called rater: the ratings are taken as one person's")
    others = dict.fromkeys(
        str(key) for _, each in ratings for key, cell in each.extra.items() if filled(cell)
    )
    if unread := [name for name in others if name != "rubric" and not _is_key(name)]:
        notes.append(f"not read: {', '.join(unread)}")
    notes += [f"ratings {what}, left out: {count:,}" for what, count in sorted(counts.items())]
    return ratings, [f"{path}: {note}" for note in notes]


def _one_score_each(
    rows: list[tuple[str, dict]], models: Collection[str]
) -> tuple[list[tuple[str, dict]], str, list[str]]:
    """Return a row for each score; the role of which a table has a column of scores for each, if there is one; and notes."""
    keys = dict.fromkeys(key for _, row in rows for key in row)
    cells = {str(key): [row.get(key) for _, row in rows] for key in keys}
    named = {
        role: [name for name in cells if plain(name) in words] for role, words in RATINGS.items()
    }
    numbers = {  # the column → whose it is: "relevancy_score"
        name: whose
        for name in cells
        if not _is_key(name)
        and not PROGRAMS.fullmatch(plain(name))
        and any(map(filled, cells[name]))
        for whose in [
            re.sub(r"(?<=\w)(?:[\W_]+(?i:score|rating)|(?<=[a-z])(?:Score|Rating))\W*$", "", name)
        ]
        if _are_scores(cells[name])
        or plain(whose) in CRITERIA - BESIDE  # whose words are a fault: "agree"
    }
    if named["score"] or not numbers:
        return rows, "", []
    marked = {
        name: whose
        for name in numbers
        if (whose := re.sub(r"(?i)^criterion[\W_]+", "", name)) != name
    }
    kinds = {
        "model": {name: whose for name, whose in numbers.items() if whose in models},
        "annotator": {
            name: whose for name, whose in numbers.items() if A_RATER.fullmatch(plain(whose))
        },
        "criterion": marked
        or {name: whose for name, whose in numbers.items() if plain(whose) in CRITERIA},
    }
    role = next((role for role, held in kinds.items() if held and not named[role]), "criterion")
    scores = {} if named[role] else kinds[role]
    if marked and scores is not marked:
        other = ", ".join(map(repr, scores or named[role]))
        raise RecordError(
            f"{rows[0][0]}: {', '.join(map(repr, marked))} stand beside {other}: leave out one of these"
        )
    doubtful = [name for name in numbers if name not in scores]
    if doubtful and role != "model" and not marked:
        taken = f" (taken: {', '.join(scores)})" if scores else ""
        raise RecordError(
            f"{rows[0][0]}: {', '.join(map(repr, doubtful))} may be no ratings{taken}: {NAMING}; {HIGHER}"
        )
    rest = [
        (place, {key: cell for key, cell in row.items() if key not in scores}, row)
        for place, row in rows
    ]
    each = [
        (place, about | {role: scores[name], "score": row.get(name)})
        for place, about, row in rest
        for name in scores
    ]
    return each, role, [f"scores of one {role} a column: {', '.join(scores)}"]


def _is_key(name: str) -> bool:
    """Return whether a column is read by its name, or is the index that pandas writes."""
    return (
        any(plain(name) in names for names in RATINGS.values())
        or NAMELESS.fullmatch(name) is not None
    )


def _are_scores(cells: Iterable[Any]) -> bool:
    """Return whether at least half of what a column has is numbers: any other cell is a fault then."""
    numbers = words = 0
    for cell in cells:
        try:
            numbers += _score(cell, "") is not None
        except RecordError:
            words += 1
    return numbers >= words


def _check_scales(ratings: Iterable[tuple[str, Rating]], what: str, path: str | Path) -> None:
    """Raise a RecordError if some criteria or annotators are on a far larger scale than another, or a score may be a code."""
    scores: dict[str, list[float]] = {}
    for _, rating in ratings:
        scores.setdefault(getattr(rating, what), []).append(rating.score)
    largest = {name: max(map(abs, given)) for name, given in scores.items()}
    least = min(filter(None, largest.values()), default=0)
    if larger := ", ".join(repr(name) for name, most in largest.items() if most > 10 * least):
        raise RecordError(
            f"{path}: the scores of {larger} are far larger than those of another {what}: leave them out, or give all scores "
            "on one scale"
        )
    for name, given in scores.items():
        values = sorted({*given})
        for code, others in ((values[0], values[1:]), (values[-1], values[:-1])):
            if len(given) < 5 or len(others) < 2:
                continue  # of few nobody can tell
            far = {*f"{code:g}"} in ({"7"}, {"8"}, {"9"}) and code - others[-1] >= others[
                -1
            ] - others[0]
            if far or code > 10 * others[-1] > 0 or (code < 0 <= others[0] and -code != others[-1]):
                away = f"{code:g} of {name!r} is far from all other scores"
                raise RecordError(f"{path}: {away}: if it says that there is none, leave it blank")


def _check_ranks(ratings: Iterable[tuple[str, Rating]], path: str | Path) -> None:
    """Raise a RecordError if each person's scores of every case are the places of a ranking: the first may be the best."""
    given: dict[tuple, list[float]] = {}
    for _, each in ratings:
        given.setdefault((each.case_id, each.annotator, each.criterion), []).append(each.score)
    several = [scores for scores in given.values() if len(scores) > 1]
    if sum(map(len, several)) < FEWEST_RANKS:
        return
    fits = {
        way
        for way in range(4)
        if all(_places(score, scores)[way] == score for scores in several for score in scores)
    }
    if fits:
        once = (
            f"the scores of every case are places from 1 to {max(map(len, several))}, as ranks are"
        )
        raise RecordError(
            f"{path}: {once}: if 1 is the best, turn them round; in either case begin at 0"
        )


def _places(score: float, scores: list[float]) -> tuple[float, ...]:
    """Return the place of a score in the four ways to count those that are level: first, last, mean, and as one."""
    below, level = [each for each in scores if each < score], scores.count(score)
    first = len(below) + 1
    return first, len(below) + level, first + (level - 1) / 2, len({*below}) + 1


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
        said = [word for word in plain(name).split("_") if word not in SAY_NOTHING]
        if said and not {plain(name), "_".join(said)} & CRITERIA:
            raise RecordError(f"{path}: {name!r} {UNSURE}")


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
        for at, each in enumerate(answers if isinstance(answers, list) else ()):
            user = each.get("user_id")
            yield user or at, user, each.get("status"), name, each.get("value")
    for name, answers in row.items():
        if str(name).endswith(".responses") and isinstance(answers, list):
            users, states = (
                row.get(f"{name}.{what}") or [None] * len(answers) for what in ("users", "status")
            )
            for at, (user, status, answer) in enumerate(zip(users, states, answers)):
                yield user or at, user, status, name.removesuffix(".responses"), answer
