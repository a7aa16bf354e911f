"""The fixtures that all tests share: a tiny checkpoint, and the folder of human-rated data."""

import os
from pathlib import Path

import pytest
from doubles.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny checkpoint."""
    return build_tiny_model(tmp_path_factory.mktemp("checkpoints") / "tiny-judge")


@pytest.fixture
def human_data() -> Path:
    """Return the folder of human-rated data; skip, and say so, where AUTOMEDEVAL_DATA does not name it."""
    folder = os.environ.get("AUTOMEDEVAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("AUTOMEDEVAL_DATA does not name the folder of human-rated data")
    return Path(folder)
