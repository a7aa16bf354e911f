"""Fixtures of the physicians' page: a fixed clock, and stores of a small study."""

from dataclasses import replace
from pathlib import Path

import pytest
from doubles.small_study import a_study

from automedeval.annotation.store import Store
from automedeval.annotation.study import Study


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Return the place of a database that is not there yet, nor its folder."""
    return str(tmp_path / "answers" / "ward.sqlite")


@pytest.fixture
def open_store(database: str, tmp_path: Path, clock: Clock):
    """Return a function that opens the store of a study; all stores are closed at the end."""
    opened = []

    def make(study: Study | None = None, **more) -> Store:
        store = Store(replace(study or a_study(tmp_path, **more), database=database), clock)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
