"""What a study's physicians said, written as the records that the recipes read (ARCHITECTURE, section 4).

| file | read by |
|---|---|
| ratings.jsonl | meta_evaluate.py --ratings |
| verdict_ratings.jsonl | build_dataset.py --verdict_ratings, meta_evaluate.py --verdict_ratings |
| preferences.jsonl | meta_evaluate.py --preferences |
| jury.jsonl | introspect.py --jury |
| history.jsonl | people: all that was ever stored, with its times |
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from automedeval.annotation.assignment import Answer
from automedeval.annotation.jury_queue import renamed
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Study
from automedeval.records import REFERENCE, RecordError
from automedeval.records.journal import write_whole

FILES = ("ratings", "verdict_ratings", "preferences", "jury", "history")


def write_export(store: Store, folder: str | Path) -> dict[str, int]:
    """Write the record files of a study; return how many lines each has, and what was left out.

    A file that would be empty is not written, and an earlier one of its name is removed. Scores of the reference, where a
    teacher was shown it as one more response, stand in the history alone ("scores of references"): a case has no such response.

    Raises:
        RecordError: a file cannot be written.
    """
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in FILES}
    decided, references = set(), 0
    for answer in store.answers():
        if answer.part == RESPONSES:
            new = list(_ratings(answer, store.study))
            lines["ratings"] += [line for line in new if line["model"] != REFERENCE]
            references += sum(line["model"] == REFERENCE for line in new)
        elif answer.part == PREFERENCE:
            lines["preferences"] += _preferences(answer)
        elif answer.part.startswith(VERDICT):
            lines["verdict_ratings"] += _verdict_ratings(answer)
        elif answer.part == DECISION and answer.item.case_id not in decided:
            # Paper: one chief physician is the jury. Of several decisions the first counts; a queue has one line a case.
            decided.add(answer.item.case_id)
            lines["jury"].append(_decision(answer, store.study))
    lines["history"] = list(store.history())
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, records in lines.items():
            file = folder / f"{name}.jsonl"
            if records:
                write_whole(file, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
            else:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: {error.strerror or error}") from None
    counts = {f"{name}.jsonl": len(records) for name, records in lines.items() if records}
    return counts | ({"scores of references": references} if references else {})


def _worst(scores: Mapping[str, int]) -> str:
    """Return the criterion that lost most: a comment on all of them stands there, once."""
    return min(scores, key=scores.__getitem__)


def _ratings(answer: Answer, study: Study) -> Iterator[dict[str, Any]]:
    models = study.case_of(answer.item).models
    for slot, scores in answer.content["scores"].items():
        comment = answer.content["comments"].get(slot)
        for criterion, score in scores.items():
            yield {
                "case_id": answer.item.case_id,
                "model": models[answer.order[int(slot) - 1]],
                "annotator": answer.annotator,
                "role": answer.role,
                "criterion": criterion,
                "score": score,
                "comment": comment if criterion == _worst(scores) else None,
            }


def _verdict_ratings(answer: Answer) -> Iterator[dict[str, Any]]:
    scores, tags = answer.content["scores"], answer.content["tags"]
    for criterion, score in scores.items():
        here = criterion == _worst(scores)
        yield {
            "case_id": answer.item.case_id,
            "judge": answer.part.removeprefix(VERDICT),
            "annotator": answer.annotator,
            "role": answer.role,
            "criterion": criterion,
            "score": score,
            "comment": (answer.content["comment"] or None) if here else None,
            "tags": tags if here else [],
        }


def _preferences(answer: Answer) -> Iterator[dict[str, Any]]:
    sides = {str(side + 1): answer.item.judges[judge] for side, judge in enumerate(answer.order)}
    comment = answer.content["comment"] or None
    for number, (criterion, choice) in enumerate(answer.content["choices"].items()):
        yield {
            "case_id": answer.item.case_id,
            "judges": list(answer.item.judges),
            "annotator": answer.annotator,
            "role": answer.role,
            "criterion": criterion,
            "choice": sides.get(choice, "tie"),
            "sides": list(sides.values()),
            "comment": comment if number == 0 else None,
        }


def _decision(answer: Answer, study: Study) -> dict[str, Any]:
    """Return the queue's line with the decision: scores in the order of the models, the rationale in the line's slots."""
    dispute, content = study.disputes[answer.item.case_id], answer.content
    line = {**dispute.line, "annotator": answer.annotator, "decision": content["decision"]}
    line |= {"judge": dispute.recorded.judge, "rationale": None, "scores": None}
    if content["decision"] == "revise":
        by_index = dict(zip(answer.order, content["scores"]))
        line["scores"] = [by_index.get(index) for index in range(len(dispute.case.responses))]
        line["rationale"] = renamed(content["rationale"], answer.order, dispute.order).strip() or None
    return line
