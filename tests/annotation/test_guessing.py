"""Guessing the coordinator's password: pauses that grow, an address that cannot be forged, and nobody locked out by others."""

import asyncio
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher
from doubles.study_page import Physician, opened, write_study
from starlette.testclient import TestClient
from tables import rows_of

from automedeval.annotation import coordinator
from automedeval.annotation.app import make_app
from automedeval.annotation.security import Forwarded
from automedeval.annotation.store import Store

pytest_plugins = ["doubles.study_databases"]
PASSWORD = "correct horse battery"
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)  # a test guesses hundreds of times


@pytest.fixture
def store(tmp_path: Path, clock):
    with opened(write_study(tmp_path), clock=clock) as store:
        store.set_setting(coordinator.PASSWORD, CHEAP.hash(PASSWORD))
        yield store


def visitor(store: Store, address: str, proxies: int = 0, **headers: str) -> Physician:
    app = make_app(store.study, store, secret="of the test", secure=False, proxies=proxies)
    someone = Physician(TestClient(app, client=(address, 1), headers=headers))
    someone.get("/coordinator/login")
    return someone


def attempt(someone: Physician, password: str = "guess") -> httpx.Response:
    return someone.post("/coordinator/login", password=password)


def test_pauses_double_and_an_address_has_107_attempts_a_day(store: Store, clock) -> None:
    someone, begin, looked_at, waits = visitor(store, "198.51.100.1"), clock.now, 0, []
    while clock.now < begin + 24 * 3600:
        assert attempt(someone).status_code == 403
        assert "This is not the password." in someone.page
        looked_at += 1
        if looked_at >= 3:
            answer = attempt(someone, PASSWORD)  # in a pause not even the right one is looked at
            assert answer.status_code == 429
            assert "Too many attempts failed. Please wait " in someone.page
            waits.append(int(answer.headers["Retry-After"]))
            clock.now += waits[-1]
    assert (waits[:12], looked_at) == ([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900], 107)
    assert attempt(someone, PASSWORD).status_code == 200  # after the pause


def test_failures_at_other_addresses_lock_nobody_out(store: Store) -> None:
    guesser = visitor(store, "198.51.100.1")
    for _ in range(5):
        attempt(guesser)
    assert attempt(guesser, PASSWORD).status_code == 429
    assert attempt(visitor(store, "192.0.2.7"), PASSWORD).status_code == 200


def test_many_at_once_are_looked_at_one_after_another(store: Store) -> None:
    app = make_app(store.study, store, secret="of the test", secure=False)
    transport = httpx.ASGITransport(app, client=("198.51.100.1", 1))

    async def guess() -> list[int]:
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            someone = Physician(client)
            someone.page = (await client.get("/coordinator/login")).text
            form = {**someone.hidden(), "password": "guess"}
            answers = await asyncio.gather(*(client.post("/coordinator/login", data=form) for _ in range(40)))
        return [answer.status_code for answer in answers]

    statuses = asyncio.run(guess())
    assert (statuses.count(403), statuses.count(429)) == (3, 37)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"), rows_of(__file__)["test_the_nth_address_from_the_right_counts"]
)
def test_the_nth_address_from_the_right_counts(proxies: int, forwarded: list[str], expected: str) -> None:
    seen = []

    async def app(scope, receive, send) -> None:
        seen.append(scope["client"][0])

    headers = [(b"x-forwarded-for", line.encode()) for line in forwarded]
    scope = {"type": "http", "headers": headers, "client": ("10.0.0.1", 5), "scheme": "http"}
    asyncio.run(Forwarded(app, proxies)(scope, None, None))
    assert seen == [expected]


def test_links_have_the_scheme_that_the_proxy_was_called_by(store: Store) -> None:
    for proxies, scheme in ((0, "http"), (1, "https")):
        someone = visitor(store, "10.0.0.1", proxies, **{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"})
        attempt(someone, PASSWORD)
        someone.post("/coordinator/invite", annotator="physician-1")
        assert f"{scheme}://testserver/invitation/" in someone.page


def test_a_proxy_that_was_not_stated_is_told_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    someone = visitor(store, "10.0.0.1", **{"X-Forwarded-For": "192.0.2.7"})
    someone.get("/")
    assert [record.message for record in caplog.records] == [
        "a request came through a proxy: --proxies says how many are in front of the page"
    ]
