"""Write what an arm leaves, without a text: scores by case, losses, digests of the rows and settings.

python recipes/runs/feedbackqa/records.py OUTPUT FOLDER
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from automedeval.models.checkpoints import read_record
from automedeval.records import Verdict, read_json, read_records
from automedeval.records.journal import write_json, write_lines

CURVE = ("step", "loss", "learning_rate")
KEPT = ("identity", "versions", "device")


def training(checkpoint: Path) -> dict[str, Any]:
    """Return what a finished stage says of its rows and its settings, and its losses."""
    record: Any = read_record(checkpoint)
    state = read_json(checkpoint / "training/trainer_state.json")
    updates = [line for line in state["log_history"] if "loss" in line]
    losses = [{name: line[name] for name in CURVE} for line in updates]
    places = [stage | {"dataset": Path(stage["dataset"]).name} for stage in record["history"]]
    return {name: record.get(name) for name in KEPT} | {"history": places, "losses": losses}


def main(output: Path, folder: Path) -> None:
    """Write a line for each stage, and a file of each judge's scores of a file of cases, a line for each case."""
    stages = []
    for checkpoint in sorted((output / "checkpoints").glob("*")):
        if (read_record(checkpoint) or {}).get("finished"):
            stages.append({"stage": checkpoint.name} | training(checkpoint))
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "stages.jsonl", stages)
    for file in sorted((output / "verdicts").glob("*/verdicts.jsonl")):
        judges: dict[str, dict[str, Any]] = defaultdict(dict)
        for verdict in read_records(file, Verdict):
            about = {"case_id": verdict.case_id, "settings": verdict.settings, "scores": {}}
            scores = judges[verdict.judge].setdefault(verdict.case_id, about)["scores"]
            scores.update({index: round(value, 4) for index, value in verdict.values.items()})
        place = folder / "scores" / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        for judge, cases in judges.items():
            write_lines(place / f"{judge.replace(':', '-')}.jsonl", cases.values())
    if (precision := output / "precision.json").exists():
        write_json(folder / "precision.json", read_json(precision))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
