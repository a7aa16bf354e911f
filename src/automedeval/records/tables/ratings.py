"""Read people's ratings of responses: records, tables of any program, and exports of Label Studio and Argilla.

A rating needs the id of its case or its question, the model, the rater and the score. A score that is blank, or a word that
programs write where there is no value, is missing: it is counted and left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any, NamedTuple

from automedeval.records.errors import errors_at
from automedeval.records.messages import objects_in
from automedeval.records.questions import key_of, question_text
from automedeval.records.tables.columns import (
    CRITERIA,
    NAMELESS,
    RATINGS,
    filled_names,
    is_known,
    no_value,
    plain,
)
from automedeval.records.tables.rows import filled, read_rows
from automedeval.records.types import Case, Rating, RecordError, each_once, is_whole

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
# A criterion with no other ratings, be they all the same, is on the scale of 0 to 1.
YES_NO = {0, 1}
UNLIKE = 2  # times: the highest scores that were given on unlike scales
MANY = 10  # ratings by one rater, of which some ought to be high
MOST_OFF = 0.2  # of the ratings are off the judge's scale, or people rated on another scale
COUNTED = (None, "submitted")  # states of an answer

PlacedRatings = list[tuple[str, Rating]]


def placed_ratings(
    path: str | Path,
    cases: Iterable[Case],
    better: Collection[str] = (),
    worse: Collection[str] = (),
    scale: tuple[float, float] | None = None,
) -> tuple[PlacedRatings, list[str], str]:
    """Return ("file:line", rating) of every score, what was left out, and a doubt in their means.

    Args:
        path: JSON Lines, a JSON array, CSV, a spreadsheet or parquet.
        cases: those that are rated. They name the case of a question, and the model where a case has one response.
        better: criteria of a rubric, on which a higher number is better.
        worse: criteria on which it is worse, and all others count as better. "none" names none.
        scale: the judge's: ratings off it are noted, unless so many are that people rated on another one, or a criterion is
            of `YES_NO` and the judge's scale does not end at 1.

    Raises:
        RecordError: the file cannot be read, it is not seen what a column holds or which way a criterion counts, or a score is
            no number.
    """
    rated = _RatedCases(cases)
    left_out = Counter[str]()
    rows = []
    for place, row in read_rows(path):
        rows += [(place, answer) for answer in _answers(row, left_out)]
    with errors_at(path):
        layout = _layout_of([row for _, row in rows], rated.models)
    ratings = []
    scores = defaultdict[str, set[float]](set)  # by criterion
    by_rater = defaultdict[str, list[float]](list)
    for (place, row), column in product(rows, layout.scores):
        with errors_at(place):
            rating = layout.rating(row, column, rated)
        if rating is None:
            cell = row.get(column)
            left_out[cell if isinstance(cell, _Uncounted) else NO_ANSWER] += 1
        else:
            ratings.append((place, rating))
            scores[rating.criterion].add(rating.score)
            by_rater[rating.annotator].append(rating.score)
    notes = layout.notes
    doubt = _unlike(scores) or _unlike(by_rater, MANY, "a rater")
    if scale and (scale[1] == 1 or not any(map(YES_NO.issuperset, scores.values()))):
        doubt = _off_scale(ratings, *scale, doubt)
    words = Counter(map(plain, scores))
    if alike := [name for name in scores if words[plain(name)] > 1]:
        notes.append(f"counted as different criteria: {', '.join(alike)}")
    _check_codes(ratings, scores)
    with errors_at(path):
        _check_criteria(ratings, better, worse)
    beside = filled_names([rating.extra for _, rating in ratings])
    exported = {"rubric", "role", "answer_digest"}
    if unread := [name for name in beside if not (name in exported or _is_key(name))]:
        notes.append(f"not read: {', '.join(unread)}")
    notes += [f"ratings {what}, left out: {count:,}" for what, count in sorted(left_out.items())]
    return ratings, [f"{path}: {note}" for note in notes], doubt


def _unlike(scores: Mapping[Any, Collection[float]], least: int = 1, by: str = "") -> str:
    """Say that the highest score on a criterion or by a rater is `UNLIKE` times another's; else "".

    `by` stands in the place of the names of raters: a report may be read by all.
    """
    # Of ratings from -2 to 2, some may be only low ones.
    highest = {
        max(map(abs, given)) or 1: by or name
        for name, given in scores.items()
        if len(given) >= least
    }
    if not 0 < UNLIKE * min(highest, default=0) <= max(highest):
        return ""
    ends = [f"{name} up to {score:g}" for score, name in sorted(highest.items())]
    return f"People's ratings may be on unlike scales, and are averaged as they are: {ends[0]}, {ends[-1]}."


def _off_scale(ratings: PlacedRatings, low: float, high: float, other: str) -> str:
    """Say how many ratings are off a scale, "" if none; another doubt if more than `MOST_OFF`."""
    off = [(place, rating.score) for place, rating in ratings if not low <= rating.score <= high]
    if not off:
        return ""
    if len(off) > MOST_OFF * len(ratings):
        return other
    place, score = off[0]
    scale = f"the judge's scale of {low:g} to {high:g}"
    return f"People's means hold ratings off {scale}: {len(off):,}, the first {score:g} at {Path(place).name}."


class _Uncounted(str):
    """The state of an answer that does not count, such as "draft", in the place of its score."""


class _RatedCases:
    """The cases that may be rated, by their ids and by what they ask."""

    def __init__(self, cases: Iterable[Case]):
        self.by_id = {case.id: case for case in cases}
        self.models = set(chain.from_iterable(case.models for case in self.by_id.values()))
        self.asking: dict[str, list[str]] = {}
        for case in self.by_id.values():
            # A table that was written of a conversation has all of it in one text.
            for key in {key_of(case.question), key_of(question_text(case.question))}:
                self.asking.setdefault(key, []).append(case.id)

    def locate(self, cell: Any, question: Any) -> str:
        """Return the id of the case that a row rates; what it asks, where no case does and no id is given."""
        case_id = _text(cell, self.by_id)
        asked = key_of(question)
        asking = self.asking.get(asked, []) if asked else []
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


class _Layout(NamedTuple):
    """What the columns of a table of ratings hold."""

    columns: dict[str, str]  # by their roles
    scores: dict[str, dict[str, str]]  # of each column: the role and the word that its name says
    notes: list[str]

    def rating(self, row: dict, column: str, rated: _RatedCases) -> Rating | None:
        """Return the rating whose score stands in a column of scores, None if the cell has none."""
        score = _score(row.get(column))
        if score is None:
            return None
        cells = {role: row.get(name) for role, name in self.columns.items()} | self.scores[column]
        case_id = rated.locate(cells.get("case_id"), cells.get("question"))
        model = rated.model_of(case_id, cells.get("model"))
        annotator = _text(cells.get("annotator", "rater"))
        if not annotator:
            raise RecordError(f"does not say who rates: {self.columns['annotator']!r} is blank")
        criterion = _text(cells.get("criterion")) or "overall"
        comment = _text(cells.get("comment")) or None
        read = {*self.columns.values(), *self.scores}
        extra = {name: cell for name, cell in row.items() if name not in read}
        return Rating(case_id, model, annotator, criterion, score, comment, extra)


def _layout_of(rows: Sequence[dict], models: Collection[str]) -> _Layout:
    """Return what the columns hold; RecordError if none has the score or the case, or several may have the score."""
    all_names = each_once(rows)
    filled_columns = filled_names(rows)
    names = {plain(name): name for name in all_names}
    ids = [_text(row.get(names.get("id"))) for row in rows]
    if not any(re.search(r"\D", text) for text in ids):  # programs number rows and tasks so
        names.pop("id", None)
    columns = {}
    for role, words in RATINGS.items():
        called = [names[word] for word in words if word in names]
        if role == "score" and len(called) > 1:
            raise RecordError(f"{' or '.join(called)} may be the score: leave one")
        if called:
            columns[role] = called[0]
    taken = [role for role, name in columns.items() if name in filled_columns]
    scores = {} if "score" in taken else _scores_by_name(filled_columns, taken, models)
    if not scores and "score" in columns:
        scores = {columns["score"]: {}}
    there = f"there are {', '.join(all_names)}"
    if rows and not scores:
        raise RecordError(f"no column holds a score, {NAMING}; {there}")
    if rows and not {"case_id", "question"} & columns.keys():
        raise RecordError(
            f"no column holds a question, or the case as case_id (numbers in id may be of rows); {there}"
        )
    roles = each_once(scores.values())
    if len(roles) > 1:
        raise RecordError(f"columns of scores of one {' and one '.join(roles)}: leave one kind out")
    notes = [f"scores of one {role} a column: {', '.join(scores)}" for role in roles]
    if "annotator" not in (*columns, *roles):
        notes.append("no column is called rater: the ratings are taken as one person's")
    return _Layout(columns, scores, notes)


def _scores_by_name(
    names: Sequence[str], taken: Collection[str], models: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return of each column that has one model's, rater's or criterion's scores the role, if it is not taken, and the word."""
    words = {name: A_SCORE.sub("", name) for name in names if not _is_key(name)}
    is_marked = any(map(MARKED.match, words.values()))
    scores = {}
    for name, word in words.items():
        is_criterion = not is_marked and plain(word) in CRITERIA and not is_known(name)
        said = {
            "model": word in models,
            "annotator": A_RATER.fullmatch(plain(word)),
            "criterion": MARKED.match(word) or is_criterion,
        }
        if role := next((role for role in said if said[role] and role not in taken), ""):
            scores[name] = {role: MARKED.sub("", word)}
    return scores


def _is_key(name: str) -> bool:
    """Return whether a column is read by its name, or is the index that pandas writes."""
    return plain(name) in _KEYS or NAMELESS.fullmatch(name) is not None


def _check_criteria(
    ratings: PlacedRatings, better: Collection[str], worse: Collection[str]
) -> None:
    """Raise a RecordError for a criterion of which nobody says which way it counts, or one that only `worse` has."""
    names = {rating.criterion for _, rating in ratings}
    if strange := sorted({*worse} - names - {"none"}):
        there = ", ".join(sorted(names))
        raise RecordError(f"--worse: there is no criterion {strange[0]!r}, but {there}")
    known = {*better}
    for _, rating in ratings:
        if BY_A_RUBRIC.fullmatch(str(rating.extra.get("rubric"))):
            known.add(rating.criterion)
    for name in sorted(names - known):
        if not worse and not is_better_by_name(name):
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
            raise RecordError(
                f"{place}: the score {rating.score:g} looks like a code for none: leave it blank"
            )


def _text(cell: Any, names: Collection[str] = ()) -> str:
    """Return the text of a cell without blanks around it, unless it is one of these names with them.

    A person may be an object with an e-mail address or an id.
    """
    if isinstance(cell, dict):
        cell = cell.get("email") or cell.get("username") or cell.get("id")
    if is_whole(cell):
        cell = int(cell)  # a column of whole numbers with a blank
    text = "" if cell is None else str(cell)
    return text if text in names else text.strip(" \t\r\n\xa0")


def _score(cell: Any) -> float | None:
    """Return a score, None if the cell is blank, NaN, or what is written where there is none; RecordError for no number."""
    if isinstance(cell, _Uncounted) or not filled(cell) or cell != cell or no_value(cell):
        return None
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return cell
    text = STARS.sub(r"\1", str(cell).strip())
    text = DECIMAL_COMMA.sub(r"\1.\2", text)
    if not NUMBER.fullmatch(text):
        raise RecordError(
            f"the score is no number, such as 4 or 3.5: {str(cell)[:40]!r} (yes is 1, no is 0)"
        )
    return float(text)


def _answers(row: dict, left_out: Counter[str]) -> Iterator[dict]:
    """Yield a row for each person who answers a task of Label Studio or a record of Argilla; another row as it is."""
    about: dict = {}
    for part in ("data", "fields", "metadata"):
        about |= row[part] if isinstance(row.get(part), dict) else {}
    if isinstance(row.get("annotations"), list):  # a task's own id is its number
        people = _label_studio(objects_in(row["annotations"]), left_out)
    elif questions := _argilla_questions(row):
        people = _argilla(questions)
        about |= {key.removeprefix("metadata."): value for key, value in row.items()}
    elif "_task_hash" in row and row.get("answer") in ("ignore", "reject"):  # Prodigy's
        left_out[row["answer"]] += 1
        return
    else:
        yield row
        return
    about = {key: cell for key, cell in about.items() if plain(key) in ABOUT_RATED}
    for answers in people:
        yield about | answers


def _label_studio(annotations: list[dict], left_out: Counter[str]) -> Iterator[dict]:
    """Yield the numbers and choices of each annotation of a task; the control's name is the criterion."""
    for annotation in annotations:
        results = annotation.get("result")
        if annotation.get("was_cancelled") or not results:
            left_out["cancelled" if annotation.get("was_cancelled") else NO_ANSWER] += 1
            continue
        answers = {"annotator": _text(annotation.get("completed_by")) or "rater"}
        for result in objects_in(results):
            content = result.get("value") or {}
            for kind in ("rating", "number", "choices"):  # others are a text, or a mark
                if kind in content:
                    _add_answer(answers, str(result.get("from_name")), content[kind])
        yield answers


def _argilla_questions(row: dict) -> dict[str, list[dict]]:
    """Return the answers to each question of a record as version 2 writes it, and as a data set of the Hub."""
    nested = row.get("responses")
    questions = {}
    if isinstance(nested, dict):
        questions = {question: objects_in(answers) for question, answers in nested.items()}
    for name, values in row.items():
        if name.endswith(".responses") and isinstance(values, list):
            users = row.get(f"{name}.users")
            states = row.get(f"{name}.status")
            lists = (users or repeat(None), states or repeat(None), values)
            answers = [dict(zip(("user_id", "status", "value"), cells)) for cells in zip(*lists)]
            questions[name.removesuffix(".responses")] = answers
    return {question: answers for question, answers in questions.items() if answers}


def _argilla(questions: Mapping[str, list[dict]]) -> Iterator[dict]:
    """Yield what each person answered to the questions of a record."""
    people: dict[Any, dict] = {}
    for question, answers in questions.items():
        for number, answer in enumerate(answers):
            user = answer.get("user_id")
            status = answer.get("status")
            value = answer.get("value") if status in COUNTED else _Uncounted(status)
            of_person = people.setdefault(user or number, {"annotator": _text(user) or "rater"})
            _add_answer(of_person, question, value)
    yield from people.values()


def _add_answer(answers: dict, question: str, value: Any) -> None:
    """Add an answer of a person; two answers to one question are a list, which is no score."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    answers[question] = [answers[question], value] if question in answers else value
