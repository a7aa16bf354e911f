"""Write the card of an instruction data set."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automedeval.records.journal import write_json, write_whole
from automedeval.records.templates import environment


def write_card(folder: Path, statistics: Mapping[str, Any]) -> None:
    """Write the data set's card and its statistics, from which alone the card is filled."""
    made = environment("automedeval.dataset")
    made.filters["quoted"] = lambda text: json.dumps(text, ensure_ascii=False)
    template = made.get_template("dataset_card.md.jinja")
    write_whole(folder / "README.md", template.render(**statistics).rstrip() + "\n")
    write_json(folder / "statistics.json", statistics)
