"""The fixtures that all tests share: a tiny checkpoint, and the folder of human-rated data."""

import os
from pathlib import Path

import pytest
from doubles.tiny_model import build_tiny_model

# Minutes each: the others run beside them, and no process is left alone with one of them at the end.
LONG = ("studies/test_rehearsal.py", "recipes/test_sft_distributed.py", "models/test_vllm.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the long files to the front; everything else keeps its order."""
    items.sort(key=lambda item: not item.nodeid.partition("::")[0].endswith(LONG))


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
