"""Write the answers of a study as the records that the recipes read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from automedeval.annotation.assignment import Answer
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, HARM, PREFERENCE, RESPONSES, VERDICT, Study
from automedeval.records import RecordError, read_lines
from automedeval.records.journal import json_lines, write_whole
from automedeval.rubrics.slots import by_response, renamed

FILES = {
    "ratings.jsonl": "ratings of the responses",  # for report.py --ratings
    "verdict_ratings.jsonl": "ratings of the verdicts",  # for --verdict_ratings of build_dataset.py and report.py
    "preferences.jsonl": "preferences between two verdicts",  # for report.py --preferences
    "harm.jsonl": "harm of the responses",  # for report.py --ratings
    "jury.jsonl": "the jury's decisions",  # for introspect.py --jury
    "history.jsonl": "everything that was ever stored, with times",
}


def exported(store: Store) -> tuple[dict[str, str], dict[str, int]]:
    """Return the text of every record file that is not empty, and the number of lines of each, and of scores left out.

    Scores of the reference, if it was shown as one more response, are in the history alone ("scores of references"): the case
    has no such response.
    """
    study, references = store.study, 0
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES}
    decisions: dict[str, dict[str, Any]] = {}
    for answer in store.answers():
        content = answer.content
        if answer.part == RESPONSES:
            models = study.case_of(answer.item).models
            for slot, scores in content["scores"].items():
                response, comment = answer.order[int(slot) - 1], content["comments"].get(slot)
                if study.is_reference(answer.item, response):
                    references += len(scores)
                else:
                    lines["ratings.jsonl"] += _ratings(answer, {"model": models[response]}, scores, comment)
        elif answer.part == HARM:
            about = {"annotator": answer.annotator, "role": answer.role, "rubric": study.harm_rubric.name}
            for response, shown in enumerate(study.case_of(answer.item).responses):
                rating = _harm_rating(answer, response, shown.text)
                if study.is_reference(answer.item, response):
                    references += len(rating["choices"])
                else:
                    line = {"case_id": answer.item.case_id, "model": shown.model} | about | rating
                    lines["harm.jsonl"].append(line)
        elif answer.part == PREFERENCE:
            lines["preferences.jsonl"] += _preferences(answer)
        elif answer.part == DECISION:
            # Paper: one chief physician is the jury. Of several decisions the first counts: a queue has one line per case.
            decisions.setdefault(answer.item.case_id, _decision(answer, study))
        else:
            judge, comment = answer.part.removeprefix(VERDICT), content["comment"] or None
            rated = study.verdicts[answer.item.case_id, judge]
            about = {"judge": judge, "verdict_digest": rated.digest}
            lines["verdict_ratings.jsonl"] += _ratings(answer, about, content["scores"], comment, content["tags"])
    lines["jury.jsonl"] += decisions.values()
    lines["history.jsonl"] += store.history()
    kept = {name: records for name, records in lines.items() if records}
    texts = {name: json_lines(records) for name, records in kept.items()}
    counts = {name: len(records) for name, records in kept.items()}
    return texts, counts | ({"scores of references": references} if references else {})


def _harm_rating(answer: Answer, response: int, text: str) -> dict[str, Any]:
    """Return what an answer says of the harm of a response: `choices`, `marks`, `missing` and `comment` of a `HarmRating`."""
    content, slot = answer.content, str(answer.order.index(response) + 1)
    marks = [{"start": start, "end": end, "text": text[start:end]} for start, end in content["marks"].get(slot, ())]
    more = {"missing": content["missing"].get(slot), "comment": content["comments"].get(slot)}
    return {"choices": content["choices"][slot], "marks": marks} | more


def write_export(store: Store, folder: str | Path) -> dict[str, int]:
    """Write the record files of a study; return the number of lines of each, and of scores left out.

    A file that would be empty is not written; that of an earlier export is removed. Raise RecordError if a file cannot be
    written, or if the folder has such files that are no earlier export of this study's database.
    """
    texts, counts = exported(store)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_same_study(folder, texts.get("history.jsonl", ""))
        for name in FILES:
            if name in texts:
                write_whole(folder / name, texts[name])
            else:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror or error}") from None
    return counts


def _check_same_study(folder: Path, history: str) -> None:
    """Raise RecordError if record files in a folder would be lost: the history of an earlier export begins as ours does."""
    there = [name for name in FILES if (folder / name).exists()]
    lines = read_lines(folder / "history.jsonl") if "history.jsonl" in there else iter(())
    before, first = next((record for _, record in lines), {}), json.loads(history.partition("\n")[0] or "{}")
    if there and (not first or any(before.get(key) != first[key] for key in ("when", "annotator", "item"))):
        raise RecordError(
            f"{folder}: its {there[0]} is not of this study's database: choose another folder, or move it"
        )


def _ratings(
    answer: Answer, about: dict[str, str], scores: dict[str, int], comment: str | None, tags: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a line per criterion; comment and tags are about all of them, and go with the lowest score."""
    worst = min(scores, key=scores.__getitem__)
    for criterion, score in scores.items():
        here = criterion == worst
        rating = {"criterion": criterion, "score": score, "comment": comment if here else None}
        yield (
            {"case_id": answer.item.case_id}
            | about
            | _who(answer)
            | rating
            | ({} if tags is None else {"tags": tags if here else []})
        )


def _who(answer: Answer) -> dict[str, str]:
    return {"annotator": answer.annotator, "role": answer.role}


def _preferences(answer: Answer) -> Iterator[dict[str, Any]]:
    sides = {str(side + 1): answer.item.judges[judge] for side, judge in enumerate(answer.order)}
    about = {"case_id": answer.item.case_id, "judges": list(answer.item.judges)} | _who(answer)
    for number, (criterion, choice) in enumerate(answer.content["choices"].items()):
        comment = answer.content["comment"] or None if number == 0 else None
        said = {"criterion": criterion, "choice": sides.get(choice, "tie"), "sides": list(sides.values())}
        yield about | said | {"comment": comment}


def _decision(answer: Answer, study: Study) -> dict[str, Any]:
    """Return the queue's line with the decision: scores in the order of the models, the rationale in the slots of `order`."""
    dispute, content = study.disputes[answer.item.case_id], answer.content
    line = {**dispute.line, "annotator": answer.annotator, "decision": content["decision"]}
    line |= {"judge": dispute.recorded.judge, "rationale": None, "scores": None}
    if content["decision"] == "revise":
        line["scores"] = list(by_response(content["scores"], answer.order, len(dispute.case.responses)))
        word = dispute.rubric.slot_word
        line["rationale"] = renamed(content["rationale"], answer.order, dispute.order, word).strip() or None
    return line
