"""A small study with tasks of all kinds, a client that fills the forms of the page, and a server for a real browser."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx
import uvicorn
from factories import read_yaml, write, write_yaml
from starlette.testclient import TestClient
from tables import with_words

from automedeval.annotation.app import make_app
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study
from automedeval.records.types import without_none

GIVEN = read_yaml(Path(__file__).parents[1] / "data/annotation/study_page.yaml")
ANNOTATORS = GIVEN["annotators"]
HOSTILE = GIVEN["hostile"]
RESPONSES = GIVEN["files"]["cases"][0]["responses"]
MODELS, ANSWERS = ([answer[name] for answer in RESPONSES] for name in ("model", "text"))
JUDGES = [verdict["judge"] for verdict in GIVEN["files"]["verdicts"]]


def write_study(
    folder: Path,
    kinds: tuple[str, ...] = ("rate", "jury", "prefer"),
    cases: int = 2,
    **more: object,
) -> Path:
    for name, records in GIVEN["files"].items():
        numbered = [
            with_words(record, NUMBER=number, HOSTILE=HOSTILE)
            for number in range(1, cases + 1)
            for record in records
        ]
        write(folder / f"{name}.jsonl", numbered)
    content, plans = with_words([GIVEN["study"], GIVEN["plans"]], FOLDER=folder)
    content["annotators"] = [{"name": name, "role": role} for name, role in ANNOTATORS.items()]
    content |= {kind: plans[kind] for kind in kinds} | more
    path = folder / "study.yaml"
    write_yaml(path, content)
    return path


class Physician:
    """A client that uses the page as a browser does: it sends the fields of the last page's form, with its answers.

    `client` is an httpx client, of a running server or of the app itself.
    """

    def __init__(self, client: httpx.Client):
        self.client = client
        self.page = ""

    def get(self, path: str) -> httpx.Response:
        answer = self.client.get(path, follow_redirects=True)
        self.page = answer.text
        return answer

    def post(self, path: str, follow: bool = True, **fields: object) -> httpx.Response:
        """Post the fields with the token and version of the last page; a field that is None is not sent."""
        sent = without_none(self.hidden() | fields)
        answer = self.client.post(path, data=sent, follow_redirects=follow)
        if follow:
            self.page = answer.text
        return answer

    def hidden(self) -> dict[str, str]:
        found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.page)
        return {name: unescape(value) for name, value in found}

    def asked(self) -> dict[str, list[str]]:
        """Return the radio buttons of the page: name → values."""
        fields: dict[str, list[str]] = {}
        for name, value in re.findall(r'type="radio" name="([^"]*)" value="([^"]*)"', self.page):
            fields.setdefault(unescape(name), []).append(value)
        return fields

    def place(self) -> str:
        return re.search(r'<form id="task" method="post" action="([^"]*)"', self.page)[1]

    def sign_in(self, token: str) -> httpx.Response:
        self.get(f"/invitation/{token}")
        return self.post(f"/invitation/{token}")

    def fill(self, pick: int = -1) -> dict[str, str]:
        """Return an answer to every question of the page: the option at `pick`."""
        return {name: values[min(pick, len(values) - 1)] for name, values in self.asked().items()}


@contextmanager
def opened(path: Path, **options: object) -> Iterator[Store]:
    store = Store(read_study(path), **options)
    try:
        yield store
    finally:
        store.close()


def client_of(store: Store) -> TestClient:
    """Return a client of the application, without a server."""
    return TestClient(make_app(store, secret="of the test", secure=False))


def physician(store: Store, name: str = "physician-2") -> Physician:
    """Return a physician who has signed in and opened a first task."""
    someone = Physician(client_of(store))
    assert someone.sign_in(store.invite(name)).status_code == 200
    assert someone.post("/next").url.path.startswith("/tasks/")
    return someone


def stored(store: Store) -> list[str]:
    """Return the stored parts that are valid."""
    return [answer.part for answer in store.answers()]


@contextmanager
def served(store: Store) -> Iterator[str]:
    """Serve the page of a store from a thread; yield its address."""
    config = uvicorn.Config(
        make_app(store, secret="of the test", secure=False), log_level="warning"
    )
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
