"""Measure the progress of a study: the tasks that each physician has done, and how long they take.

Everything is computed from the answers that count now, each time it is asked for; nothing is kept.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from automedeval.annotation.assignment import Answer
from automedeval.annotation.database import DONE
from automedeval.annotation.store import Store
from automedeval.annotation.study import Study


def physicians(study: Study, store: Store, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return how far every annotator is, in the order of the study.

    Returns:
        {"annotator", "progress": their `Progress`, "seconds": the median time of a finished task, "last": when they last
        stored, skipped or took back something, in seconds since 1970}; the times are None where there is none.
    """
    last = store.last_stored()
    spent: dict[str, dict[int, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        spent[answer.annotator][answer.assignment].append(answer)
    rows = []
    for each in study.annotators:
        tasks = [task for task in spent[each.name].values() if task[0].state == DONE]
        parts = [[answer.seconds for answer in task if answer.seconds is not None] for task in tasks]
        seconds = [sum(timed) for timed, task in zip(parts, tasks) if len(timed) == len(task)]
        row = {"annotator": each, "progress": store.progress(each.name), "last": last.get(each.name)}
        rows.append(row | {"seconds": median(seconds) if seconds else None})
    return rows
