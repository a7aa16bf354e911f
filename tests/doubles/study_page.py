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
import yaml
from doubles.agreement_study import write
from starlette.testclient import TestClient

from automedeval.annotation.app import make_app
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study

GIVEN = yaml.safe_load(
    (Path(__file__).parents[1] / "data/annotation/study_page.yaml").read_text(encoding="utf-8")
)
MODELS, JUDGES, ANNOTATORS = tuple(GIVEN["models"]), tuple(GIVEN["judges"]), GIVEN["annotators"]
HOSTILE = GIVEN["hostile"]
ANSWERS = (*GIVEN["answers"][:2], f"{GIVEN['answers'][2]} {HOSTILE}")


def rationale(judge: str, number: int) -> str:
    """Return a judge's rationale, with the doctors in the order of MODELS."""
    return GIVEN["rationale"].format(n=number, reading=JUDGES.index(judge) + 1)


def write_study(
    folder: Path,
    kinds: tuple[str, ...] = ("rate", "jury", "prefer"),
    cases: int = 2,
    **more: object,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    written, verdicts, revisions, queue = [], [], [], []
    for number in range(1, cases + 1):
        about, order = {"case_id": f"case-{number}"}, [0, 1, 2]
        responses = [
            {"model": model, "text": f"{text} (case {number})"}
            for model, text in zip(MODELS, ANSWERS)
        ]
        written.append(
            {"id": f"case-{number}", "question": GIVEN["question"], "responses": responses}
        )
        both = [{"judge": judge, "rationale": rationale(judge, number)} for judge in JUDGES]
        old, new = (
            each | {"order": order, "valid": True, "scores": [5, 1, 3 + n]}
            for n, each in enumerate(both)
        )
        verdicts += [about | {"rubric": "automedeval@1"} | each for each in (old, new)]
        shown = about | {"models": list(MODELS), "order": order}
        kept = {
            "old_verdict": old,
            "judge_verdict": new | {"error": None},
            "exchanges": GIVEN["exchanges"],
        }
        revisions.append(shown | {"rubric": "automedeval@1", "shown": order} | kept)
        queue.append(
            shown
            | {"judge": JUDGES[0]}
            | dict.fromkeys(("annotator", "decision", "rationale", "scores"))
        )
    files = {"cases": written, "verdicts": verdicts, "queue": queue, "revisions": revisions}
    for name, records in files.items():
        write(folder / f"{name}.jsonl", records)
    plans = GIVEN["plans"] | {
        "jury": {"queue": GIVEN["plans"]["jury"]["queue"].format(folder=folder)}
    }
    content = {
        name: str(folder / file)
        for name, file in (("cases", "cases.jsonl"), ("database", "answers.sqlite"))
    }
    content |= {"title": "Pain pills <2026>", "verdicts": [str(folder / "verdicts.jsonl")]}
    content |= {"annotators": [{"name": name, "role": role} for name, role in ANNOTATORS.items()]}
    content |= {kind: plans[kind] for kind in kinds} | more
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


class Physician:
    """A client that uses the page as a browser does: it sends the fields of the last page's form, with its answers.

    `client` is an httpx client, of a running server or of the app itself.
    """

    def __init__(self, client: httpx.Client):
        self.client, self.page = client, ""

    def get(self, path: str) -> httpx.Response:
        answer = self.client.get(path, follow_redirects=True)
        self.page = answer.text
        return answer

    def post(self, path: str, follow: bool = True, **fields: object) -> httpx.Response:
        """Post the fields with the token and version of the last page; a field that is None is not sent."""
        sent = {**self.hidden(), **fields}
        sent = {name: value for name, value in sent.items() if value is not None}
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


def client_of(store: Store, secure: bool = False) -> TestClient:
    """Return a client of the application, without a server."""
    address = "https://testserver" if secure else "http://testserver"
    return TestClient(make_app(store.study, store, secret="of the test", secure=secure), address)


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
        make_app(store.study, store, secret="of the test", secure=False), log_level="warning"
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
