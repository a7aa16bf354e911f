"""The study of criteria that several files of tests read."""

from pathlib import Path

import pytest
from doubles.criteria_study import write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple]]:
    """Return the folder of a study of criteria, with files of cases, verdicts and labels, and what is in its pairs."""
    folder = tmp_path_factory.mktemp("criteria")
    return folder, write_study(folder)
