"""Write what an arm leaves, without a text: scores by case, losses, digests of the rows and settings.

python recipes/runs/feedbackqa/records.py OUTPUT FOLDER
"""

import sys
from pathlib import Path
from typing import Any

from automedeval.models.checkpoints import read_record
from automedeval.records import Verdict, read_json, read_records
from automedeval.records.journal import write_json

CURVE = ("step", "loss", "learning_rate")
KEPT = ("identity", "versions", "device", "precision", "seconds")


def training(checkpoint: Path) -> dict[str, Any]:
    """Return what a finished stage says of its rows and its settings, and its losses."""
    record: Any = read_record(checkpoint)
    state = read_json(checkpoint / "training" / "trainer_state.json", others=True)
    updates = [line for line in state["log_history"] if "loss" in line]
    losses = [{name: line[name] for name in CURVE} for line in updates]
    places = [stage | {"dataset": Path(stage["dataset"]).name} for stage in record["history"]]
    return {name: record.get(name) for name in KEPT} | {"history": places, "losses": losses}


def write(file: Path, record: dict[str, Any]) -> None:
    """Write a record, in a folder that need not be there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, record)


def main(output: Path, folder: Path) -> None:
    """Write a file for each stage and for each judge's scores of a file of cases."""
    for checkpoint in sorted((output / "checkpoints").glob("*")):
        if (read_record(checkpoint) or {}).get("finished"):
            write(folder / "stages" / f"{checkpoint.name}.json", training(checkpoint))
    scores: dict[tuple[str, str], dict[str, Any]] = {}
    for file in sorted((output / "verdicts").glob("*/verdicts.jsonl")):
        for verdict in read_records(file, Verdict):
            told = scores.setdefault(
                (file.parent.name, verdict.judge), {"settings": verdict.settings}
            )
            for index, value in verdict.values.items():
                told.setdefault(verdict.case_id, {})[str(index)] = round(value, 4)
    for (cases, judge), told in scores.items():
        write(folder / "scores" / cases / f"{judge.replace(':', '-')}.json", told)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
