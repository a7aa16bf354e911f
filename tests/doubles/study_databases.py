"""Fixtures: empty databases of both kinds, a fixed clock, and stores of a small study."""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from doubles.small_study import a_study

from automedeval.annotation.store import Store
from automedeval.annotation.study import Study


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Start a temporary PostgreSQL cluster; return the folder of its socket."""
    candidates = [shutil.which("pg_ctl"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"))]
    programs = next((Path(path).resolve().parent for path in candidates if path), None)
    if programs is None:
        pytest.skip("no pg_ctl: PostgreSQL is not installed")
    # PostgreSQL refuses root, and nobody but root can enter pytest's own folders.
    folder, user = tempfile.mkdtemp(prefix="automedeval-pg-"), None
    if os.geteuid() == 0:
        user = next(name for name in ("postgres", "nobody") if name in {each.pw_name for each in pwd.getpwall()})
        shutil.chown(folder, user)

    def call(*command: object) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": folder}
        subprocess.run(
            list(map(str, command)), check=True, user=user, cwd=folder, env=environment, stdout=subprocess.DEVNULL
        )

    control = [programs / "pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log"]
    try:
        call(programs / "initdb", "-D", f"{folder}/data", "-U", "tester", "-A", "trust", "-N", "-E", "UTF8")
        call(*control, "-o", f"-k {folder} -c listen_addresses= -c fsync=off", "start")
        try:
            yield folder
        finally:
            call(*control, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'answers' / 'ward.sqlite'}"
    socket = request.getfixturevalue("postgresql")
    engine = sa.create_engine(f"postgresql+psycopg://tester@/postgres?host={socket}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
            connection.execute(sa.text(statement))
    engine.dispose()
    return f"postgresql://tester@/postgres?host={socket}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_store(database_url: str, tmp_path: Path, clock: Clock):
    """Return a function that opens the store of a study; all stores are closed at the end."""
    opened = []

    def make(study: Study | None = None, **more) -> Store:
        store = Store(replace(study or a_study(tmp_path, **more), database=database_url), clock)
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
