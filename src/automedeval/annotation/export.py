"""Write the answers of a study as the records that the recipes read."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from automedeval.annotation.database import DatabaseRow
from automedeval.annotation.jury_queue import Dispute
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, HARM, PREFERENCE, RESPONSES, VERDICT, Study
from automedeval.records import JsonObject, RecordError, foreign_errors_at
from automedeval.records.journal import json_lines, write_lines
from automedeval.records.types import answer_digest, by_response
from automedeval.rubrics.slots import renamed

FILES = (
    "ratings.jsonl",  # of the responses, for report --ratings
    "verdict_ratings.jsonl",  # for --verdict_ratings of build_dataset.py, report --ratings
    "preferences.jsonl",  # between two verdicts, for report --ratings
    "harm.jsonl",  # of the responses, for report --ratings
    "jury.jsonl",  # its decisions, for introspect_revise.py
    "history.jsonl",  # everything that was ever stored, with times
)


def exported(store: Store) -> tuple[dict[str, list[JsonObject]], int]:
    """Return the records of every file, and the number of scores left out.

    Scores of the reference, if it was shown as one more response, are in the history alone ("scores of references"): the case
    has no such response.
    """
    study = store.study
    references = 0
    lines: dict[str, list[JsonObject]] = {name: [] for name in FILES}
    decided: JsonObject = {}
    for answer in store.answers():
        item = answer.item
        content = answer.content
        part = answer.part
        if part in (RESPONSES, HARM):
            case = study.case_of(item)
            rubric = study.rubric_of(item).name
            for slot, response in enumerate(answer.order, 1):
                given = content["scores" if part == RESPONSES else "choices"][str(slot)]
                about = {
                    "model": case.models[response],
                    "rubric": rubric,
                    "answer_digest": answer_digest(case, case.responses[response]),
                }
                comment = content["comments"].get(str(slot))
                if study.is_reference(item, response):
                    references += len(given)
                elif part == RESPONSES:
                    lines["ratings.jsonl"] += _ratings(answer, about, given, comment)
                else:
                    line = _by(answer, about) | {"choices": given, "comment": comment}
                    lines["harm.jsonl"].append(line)
        elif part == PREFERENCE:
            lines["preferences.jsonl"] += _preferences(answer, study)
        elif part == DECISION:
            # Paper: one chief physician is the jury. Of several decisions the first counts: a queue has one line per case.
            decided.setdefault(item.case_id, _decision(answer, study.disputes[item.case_id]))
        else:
            judge = part.removeprefix(VERDICT)
            comment = content["comment"] or None
            about = {"judge": judge, "verdict_digest": study.verdicts[item.case_id, judge].digest}
            lines["verdict_ratings.jsonl"] += _ratings(
                answer, about, content["scores"], comment, content["tags"]
            )
    lines["jury.jsonl"] += decided.values()
    lines["history.jsonl"] += store.history()
    return lines, references


def write_export(store: Store, folder: Path) -> dict[str, int]:
    """Write the record files of a study; return their numbers of lines, and of scores left out.

    A file that would be empty is not written; that of an earlier export is removed. Raise RecordError if a file cannot be
    written, or if the folder has such files that are no earlier export of this study's database.
    """
    lines, references = exported(store)
    counts = {name: len(records) for name, records in lines.items() if records}
    with foreign_errors_at(folder, OSError):
        folder.mkdir(parents=True, exist_ok=True)
        _check_same_study(folder, lines["history.jsonl"])
        for name, records in lines.items():
            if records:
                write_lines(folder / name, records)
            else:
                (folder / name).unlink(missing_ok=True)
    if references:
        counts["scores of references"] = references
    return counts


def _check_same_study(folder: Path, history: list[JsonObject]) -> None:
    """Raise RecordError if record files in a folder would be lost: the history of an earlier export begins as ours does."""
    there = [name for name in FILES if (folder / name).exists()]
    earlier = folder / "history.jsonl"
    before = earlier.read_text(encoding="utf-8") if earlier.exists() else ""
    first = json_lines(history[:1])
    if there and not (first and before.startswith(first)):
        raise RecordError(
            f"{folder}: its {there[0]} is not of this study's database: choose another folder"
        )


def _by(answer: DatabaseRow, about: JsonObject) -> JsonObject:
    """Return the beginning of a record: the case, what the record is about, and whose it is."""
    return {
        "case_id": answer.item.case_id,
        **about,
        "annotator": answer.annotator,
        "role": answer.role,
    }


def _ratings(
    answer: DatabaseRow,
    about: JsonObject,
    scores: Mapping[str, int],
    comment: str | None,
    tags: list[str] | None = None,
) -> Iterator[JsonObject]:
    """Yield a line per criterion; comment and tags are about all of them, and go with the lowest score."""
    worst = min(scores, key=scores.__getitem__)
    for criterion, score in scores.items():
        here = criterion == worst
        line = {"criterion": criterion, "score": score, "comment": comment if here else None}
        yield _by(answer, about) | line | ({} if tags is None else {"tags": tags if here else []})


def _preferences(answer: DatabaseRow, study: Study) -> Iterator[JsonObject]:
    case_id, judges = answer.item.case_id, answer.item.judges
    sides = [judges[side] for side in answer.order]
    chosen = dict(zip("12", sides))
    digests = [study.verdicts[case_id, judge].digest for judge in judges]
    about = {"judges": list(judges), "verdict_digests": digests}
    comment = answer.content["comment"] or None
    for criterion, choice in answer.content["choices"].items():
        line = {"criterion": criterion, "choice": chosen.get(choice, "tie"), "sides": sides}
        line["comment"] = comment
        yield _by(answer, about) | line
        comment = None  # it is about all of them


def _decision(answer: DatabaseRow, dispute: Dispute) -> JsonObject:
    """Return the queue's line with the decision: scores in the order of the models, the rationale in the slots of `order`."""
    content = answer.content
    order = answer.order
    line = {
        **dispute.line,
        "annotator": answer.annotator,
        "decision": content["decision"],
        "judge": dispute.recorded.judge,
        "rationale": None,
        "scores": None,
    }
    if content["decision"] == "revise":
        line["scores"] = list(by_response(content["scores"], order, len(dispute.case.responses)))
        former = dispute.recorded.order
        word = dispute.rubric.slot_word
        line["rationale"] = renamed(content["rationale"], order, former, word).strip() or None
    return line
