"""Write the card of an instruction data set: its facts, known faults and fingerprint."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automedeval.records import digest
from automedeval.records.journal import write_json, write_whole
from automedeval.records.templates import environment


def fingerprint(splits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return twelve hexadecimal digits over all rows of all splits: what ties a model to the data it was trained on."""
    parts = [[name, splits[name]["fingerprint"]] for name in sorted(splits)]
    return digest(parts)


def card_facts(splits: Mapping[str, Mapping[str, Any]], written: Mapping[tuple, int]) -> dict[str, Any]:
    """Return the facts of a card that follow from the rows.

    Args:
        splits: what each split holds.
        written: (source, licence, teacher, judge, rubric, whether the reference is a response) → rows.
    """
    sources: Counter[tuple[str, str]] = Counter()
    teachers: Counter[tuple[str, str, str]] = Counter()
    for (source, licence, teacher, judge, rubric, _), rows in written.items():
        sources[source, licence] += rows
        teachers[teacher, judge, rubric] += rows
    return {
        "fingerprint": fingerprint(splits),
        "splits": splits,
        "licenses": sorted({licence for _, licence in sources}),
        "sources": [
            {"source": source, "license": license, "rows": rows} for (source, license), rows in sorted(sources.items())
        ],
        "teachers": [
            {"teacher": teacher, "judge": judge, "rubric": rubric, "rows": rows}
            for (teacher, judge, rubric), rows in sorted(teachers.items())
        ],
        "reference_rows": sum(rows for key, rows in written.items() if key[-1]),
    }


def write_card(folder: Path, statistics: Mapping[str, Any]) -> None:
    """Write the data set's card and its statistics, from which alone the card is filled."""
    made = environment("automedeval.dataset")
    made.filters["quoted"] = lambda text: json.dumps(text, ensure_ascii=False)
    template = made.get_template("dataset_card.md.jinja")
    write_whole(folder / "README.md", template.render(**statistics).rstrip() + "\n")
    write_json(folder / "statistics.json", statistics)
