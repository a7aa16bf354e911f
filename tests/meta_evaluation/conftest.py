"""The study of criteria that several files of tests read."""

from pathlib import Path

from doubles.criteria_study import write_study
from programs import module_fixture


@module_fixture
def study(tmp_path_factory) -> tuple[dict, Path, list[tuple]]:
    """Return the options that name the cases and verdicts of a study of criteria, its labels, and what is in its pairs."""
    folder = tmp_path_factory.mktemp("criteria")
    rows = write_study(folder)
    options = {name: folder / f"{name}.jsonl" for name in ("cases", "verdicts")}
    return options, folder / "labels.jsonl", rows
