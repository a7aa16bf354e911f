"""Fixtures of the physicians' page: a fixed clock, stores of a small study, and a page with tasks of several kinds."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.small_study import a_study
from doubles.study_page import opened, served, write_study

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
    return str(tmp_path / "answers/ward.sqlite")


@pytest.fixture
def open_stores() -> Iterator[Callable[..., Store]]:
    """Return a function that opens stores, as `Store` does; all are closed at the end."""
    with ExitStack() as stack:
        yield lambda *given: stack.enter_context(closing(Store(*given)))


@pytest.fixture
def open_store(database: str, tmp_path: Path, clock: Clock, open_stores) -> Callable[..., Store]:
    """Return a function that opens the store of a study, all in one database."""

    def make(study: Study | None = None, **more) -> Store:
        return open_stores(replace(study or a_study(tmp_path, **more), database=database), clock)

    return make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return the store of a study that rates, compares and has a jury, with two cases."""
    with opened(write_study(tmp_path)) as store:
        yield store


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    """Serve the store's page; return its address."""
    with served(store) as address:
        yield address
