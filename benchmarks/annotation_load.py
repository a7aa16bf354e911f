"""Measure the physicians' page under load: how long a save takes, and whether what it confirmed is there, and once.

    python benchmarks/annotation_load.py
    python benchmarks/annotation_load.py --kills 100
    python benchmarks/annotation_load.py --physicians 6 --ratings 240 --think 0.01

The page is the real one, of `automedeval annotate` on SQLite; physicians are clients in another process, who follow their
invitations, read the forms and send them back. A rating is one number: a task of three responses and a verdict
is twelve of them, in two saves. A save is timed from sending a form until its confirmation has arrived; one in twenty is sent
twice at once, as by a double click. What was confirmed is then compared with the database, answer by answer. A physician looks
at a form for --think seconds on average (real ones take minutes); 0 asks how much the page can take at most.

With --kills the server is killed (SIGKILL) that many times while everybody saves, and started again; then nothing that was
confirmed may be missing. That is the fault of a program: what a power cut takes with it depends on the disk, too.
The exit status is 1 if something was lost or is there twice.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

import httpx
import yaml
from processes import recipe
from rows import Results, arguments
from synthetic import MODELS, WORDS

from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study

LIMIT = 100.0  # milliseconds that 95 of 100 saves stay below
MOST_SAVES = 40  # between two kills
NUMBERS = 12  # ratings of a task
HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')
RADIO = re.compile(r'type="radio" name="([^"]*)" value="([^"]*)"')
FORM = re.compile(r'<form id="task" method="post" action="([^"]*)"')


def write_study(folder: Path, physicians: int, cases: int) -> Path:
    """Write a study in which every case is rated once, with texts of a usual length; return its YAML."""
    rng = random.Random(0)
    text = lambda length: " ".join(rng.choices(WORDS, k=length))  # noqa: E731
    with (
        open(folder / "cases.jsonl", "w") as case_file,
        open(folder / "verdicts.jsonl", "w") as verdict_file,
    ):
        for number in range(cases):
            responses = [{"model": model, "text": text(120)} for model in MODELS]
            print(
                json.dumps({"id": f"case-{number}", "question": text(30), "responses": responses}),
                file=case_file,
            )
            verdict = {
                "case_id": f"case-{number}",
                "judge": "judge",
                "rubric": "automedeval@1",
                "order": [0, 1, 2],
            }
            print(
                json.dumps(verdict | {"valid": True, "scores": [3, 4, 2], "rationale": text(150)}),
                file=verdict_file,
            )
    files = {"cases": "cases.jsonl", "verdicts": "verdicts.jsonl", "database": "answers.sqlite"}
    content = {name: str(folder / file) for name, file in files.items()} | {
        "title": "Load",
        "rate": {"raters": 1},
    }
    content["annotators"] = [
        {"name": f"physician-{number}", "role": "attending"} for number in range(physicians)
    ]
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass
class Page:
    """The page of a study, in a process of its own; `links` are the invitations that its first start printed."""

    study: Path
    links: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        command = recipe("annotate", study=self.study, port=self.port)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        printed = ""
        while "stop with" not in printed:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"the page did not start:\n{printed}")
            printed += line
        self.links |= dict(re.findall(r"^ +(\S+) \(\w+\): \S+(/invitation/\S+)$", printed, re.M))
        while True:
            try:
                httpx.get(self.address, timeout=60)
                return
            except httpx.TransportError:
                time.sleep(0.02)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, gently or not, and wait until it is gone."""
        self.process.send_signal(how)
        self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()


# --- the physicians ---------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """What the clients saw: the seconds of each save, every answer that the page confirmed, and how often it refused."""

    seconds: list[float] = field(default_factory=list)
    confirmed: list[dict] = field(default_factory=list)
    refused: int = 0


def connected(address: str, cookies: httpx.Cookies | None = None) -> httpx.AsyncClient:
    """Return a client that does not send a form on a connection which the server is about to close as idle."""
    return httpx.AsyncClient(
        base_url=address, timeout=60, cookies=cookies, limits=httpx.Limits(keepalive_expiry=2.5)
    )


class Physician:
    """One client, who goes on from whatever the page shows."""

    def __init__(self, name: str, link: str, address: str, think: float, log: Log):
        self.name, self.link, self.think, self.log = name, link, think, log
        self.random = random.Random(name)
        self.client = connected(address)
        self.signed_in = False

    async def get(self, path: str) -> str:
        answer = await self.client.get(path)
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code}: {answer.text[:2000]}")
        return answer.text

    async def send(self, path: str, fields: Mapping[str, str]) -> httpx.Response:
        answer = await self.client.post(path, data=fields)
        self.log.refused += answer.status_code != 303
        return answer

    async def work(self) -> None:
        """Follow the invitation, then do tasks until none is left."""
        if not self.signed_in:
            page = await self.get(self.link)
            await self.send(self.link, dict(HIDDEN.findall(page)))
            self.signed_in = True
        page = await self.get("/")
        place = (await self.send("/next", dict(HIDDEN.findall(page)))).headers["location"]
        while place != "/":
            page = await self.get(place)
            place = await self.answer(page)

    async def answer(self, page: str) -> str:
        """Fill in the form of a page and send it; return where the page leads on to."""
        options: dict[str, list[str]] = {}
        for name, value in RADIO.findall(page):
            options.setdefault(unescape(name), []).append(unescape(value))
        scores = {name: self.random.choice(values) for name, values in options.items()}
        path = FORM.search(page)[1]
        hidden = {name: unescape(value) for name, value in HIDDEN.findall(page)}
        await asyncio.sleep(self.think * self.random.uniform(0.5, 1.5))
        fields = {**hidden, **scores}
        started = time.perf_counter()
        twice = [self.send(path, fields)] if self.random.random() < 0.05 else []
        answer, *_ = await asyncio.gather(self.send(path, fields), *twice)
        self.log.seconds.append(time.perf_counter() - started)
        if answer.status_code != 303:
            raise SystemExit(f"{path}: {answer.status_code}: {answer.text[:2000]}")
        _, _, task, part = path.split("/")
        answered = {
            "physician": self.name,
            "task": int(task),
            "part": part.partition("-")[0],
            "scores": scores,
        }
        self.log.confirmed.append(answered)
        return answer.headers["location"]


async def drive(physicians: Sequence[Physician]) -> None:
    """Let all physicians work at once until none has a task left."""
    async with asyncio.TaskGroup() as group:
        for physician in physicians:
            group.create_task(physician.work())


async def drive_until_killed(
    physicians: Sequence[Physician], page: Page, saves: int, delay: float
) -> bool:
    """Let all work, kill the page a delay after so many saves, wait until everybody has noticed; return if work was left."""
    confirmed = physicians[0].log.confirmed
    until = len(confirmed) + saves

    async def work(physician: Physician) -> bool:
        try:
            await physician.work()
        except httpx.TransportError:
            await physician.client.aclose()
            physician.client = connected(page.address, physician.client.cookies)
            return True
        return False

    tasks = [asyncio.create_task(work(physician)) for physician in physicians]
    while len(confirmed) < until and not all(task.done() for task in tasks):
        await asyncio.sleep(0.001)
    await asyncio.sleep(delay)
    page.process.kill()
    return any(await asyncio.gather(*tasks))


def drive_here(order: dict) -> None:
    """Be the process of the clients: do what an order from stdin says, and write down what happened."""
    log = Log()

    async def all_of_it() -> None:
        people = [
            Physician(name, link, order["address"], order["think"], log)
            for name, link in order["links"].items()
        ]
        await drive(people)

    asyncio.run(all_of_it())
    Path(order["log"]).write_text(json.dumps(vars(log)))


# --- what is there afterwards -----------------------------------------------------------------------------------------


def stored(study: Path) -> list[dict]:
    """Return every answer in the database, laid out as the clients remember theirs."""
    answers = []
    with closing(Store(read_study(study))) as store:
        for event in store.history():
            if event["what"] == "answer":
                part, scores = event["part"].partition(":")[0], event["content"]["scores"]
                if part == "responses":
                    scores = {
                        f"{slot}-{name}": score
                        for slot, own in scores.items()
                        for name, score in own.items()
                    }
                flat = {f"scores-{name}": str(score) for name, score in scores.items()}
                answer = {
                    "physician": event["annotator"],
                    "task": event["assignment"],
                    "part": part,
                    "scores": flat,
                }
                answers.append(answer)
    return answers


def compare(confirmed: Sequence[dict], found: Sequence[dict]) -> tuple[int, int]:
    """Return (lost, twice): confirmed answers that are not there as they were sent, and answers that are there too often."""
    key = lambda answer: (answer["physician"], answer["task"], answer["part"])  # noqa: E731
    scores_of = {key(answer): answer["scores"] for answer in found}
    lost = sum(scores_of.get(key(answer)) != answer["scores"] for answer in confirmed)
    twice = sum(count - 1 for count in Counter(map(key, found)).values())
    return lost, twice


# --- the measurements -------------------------------------------------------------------------------------------------


def load(folder: Path, physicians: int, ratings: int, think: float, results: Results) -> int:
    """Measure saves while everybody works; return how many answers are lost or there twice."""
    cases = -(-ratings // NUMBERS)
    page = Page(write_study(folder, physicians, cases))
    page.start()
    order = {
        "address": page.address,
        "links": page.links,
        "think": think,
        "log": str(folder / "log.json"),
    }
    started = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, __file__, "--drive"], input=json.dumps(order), text=True, check=True
        )
    finally:
        seconds = time.perf_counter() - started
        page.end()
    log = json.loads((folder / "log.json").read_text())
    found = stored(page.study)
    lost, twice = compare(log["confirmed"], found)
    with closing(Store(read_study(page.study))) as store:
        counts = write_export(store, folder / "export")
    held = counts.get("ratings.jsonl", 0) + counts.get("verdict_ratings.jsonl", 0)
    times = sorted(1000 * duration for duration in log["seconds"])
    for percentile, most in ((95, LIMIT), (50, None), (99, None)):
        taken = times[min(len(times) - 1, len(times) * percentile // 100)]
        results.add(f"save, {percentile} of 100 take at most", taken, "ms", most=most)
    results.add("saves", len(times) / seconds, "a second")
    confirmed = sum(len(save["scores"]) for save in log["confirmed"])
    results.add("ratings that are lost", lost, "", most=0)
    results.add("ratings that are stored twice", twice, "", most=0)
    results.note(
        f"{physicians} physicians at once, {think:g} s at a form, {seconds:.0f} s; SQLite."
    )
    results.note(
        f"{confirmed:,} ratings confirmed in {len(log['confirmed']):,} saves; {held:,} in the export."
    )
    results.note(f"Requests refused: {log['refused']}.")
    return lost + twice + (held != confirmed)


def kills(folder: Path, physicians: int, times: int, results: Results) -> int:
    """Kill the page again and again while everybody saves; return how many answers are lost or there twice."""
    rng, log = random.Random(0), Log()
    page = Page(write_study(folder, physicians, MOST_SAVES * times))

    async def all_of_it() -> int:
        done, people = 0, []
        for _ in range(times):
            page.start()
            people = people or [
                Physician(*link, page.address, 0.0, log) for link in page.links.items()
            ]
            work_left = await drive_until_killed(
                people, page, rng.randint(1, MOST_SAVES), rng.uniform(0, 0.03)
            )
            page.end(signal.SIGKILL)
            done += 1
            if any(compare(log.confirmed, stored(page.study))) or not work_left:
                break
        return done

    done = asyncio.run(all_of_it())
    found = stored(page.study)
    lost, twice = compare(log.confirmed, found)
    results.add("saves that are lost", lost, "", most=0)
    results.add("saves that are stored twice", twice, "", most=0)
    results.note(
        f"{done} kills (SIGKILL) while {physicians} physicians save: {len(log.confirmed):,} saves confirmed, "
        f"{len(found) - len(log.confirmed):,} stored without a confirmation."
    )
    return lost + twice


def main() -> None:
    """Measure one of the two, and print a table."""
    parser = arguments(__doc__)
    add = parser.add_argument
    add("--physicians", type=int, default=50)
    add("--ratings", type=int, default=20_000, help="how many numbers are stored, at least")
    add(
        "--think",
        type=float,
        default=2.0,
        help="seconds that a physician looks at a form, on average",
    )
    add(
        "--kills",
        type=int,
        default=0,
        help="kill the page so many times, in the place of measuring",
    )
    add("--drive", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive_here(json.load(sys.stdin))
        return
    results = Results(
        "Physicians' page, killed" if args.kills else "Physicians' page under load", args.json
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder, many = Path(scratch), args.physicians
        wrong = (
            kills(folder, many, args.kills, results)
            if args.kills
            else load(folder, many, args.ratings, args.think, results)
        )
    results.show()
    results.write()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
