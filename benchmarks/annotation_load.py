"""Measure the physicians' page under load: how long a save takes, and whether what it confirmed is there, and once.

    python benchmarks/annotation_load.py
    python benchmarks/annotation_load.py --kills 100
    python benchmarks/annotation_load.py --physicians 6 --ratings 240 --think 0.01

The page is the real one, of `automedeval annotate` on SQLite, in a process of its own; physicians are clients, who follow their
invitations, read the forms and send them back. A rating is one number: a task of three responses and a verdict
is twelve of them, in two saves. A save is timed from sending a form until its confirmation has arrived; one in twenty is sent
twice at once, as by a double click. What was confirmed is then compared with the database, answer by answer. A physician looks
at a form for --think seconds on average (real ones take minutes); 0 asks how much the page can take at most.

With --kills the server is killed (SIGKILL) that many times while everybody saves, and started again; then nothing that was
confirmed may be missing. That is the fault of a program: what a power cut takes with it depends on the disk, too.
The exit status is 1 if something was lost or is there twice.
"""

import asyncio
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
from synthetic import write_study

from automedeval.annotation.export import write_export
from automedeval.annotation.store import Store
from automedeval.annotation.study import read_study

LIMIT = 100.0  # milliseconds that 95 of 100 saves stay below
MOST_SAVES = 40  # between two kills
NUMBERS = 12  # ratings of a task
HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')
RADIO = re.compile(r'type="radio" name="([^"]*)" value="([^"]*)"')
FORM = re.compile(r'<form id="task" method="post" action="([^"]*)"')


def write_load(folder: Path, physicians: int, cases: int) -> Path:
    """Write a study in which every case is rated once, with texts of a usual length; return its YAML."""
    write_study(folder, cases, raters=0, orders=[(0, 1, 2)])
    people = [{"name": f"physician-{number}", "role": "attending"} for number in range(physicians)]
    content = {
        "title": "Load",
        "cases": str(folder / "cases.jsonl"),
        "verdicts": str(folder / "verdicts.jsonl"),
        "database": str(folder / "answers.sqlite"),
        "rate": {"raters": 1},
        "annotators": people,
    }
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
    await asyncio.gather(*(physician.work() for physician in physicians))


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


# --- what is there afterwards -----------------------------------------------------------------------------------------


def stored(study: Path) -> list[dict]:
    """Return every answer in the database, laid out as the clients remember theirs."""
    answers = []
    with closing(Store(read_study(study))) as store:
        for event in store.history():
            if event["what"] != "answer":
                continue
            flat = {}
            for name, score in event["content"]["scores"].items():
                if isinstance(score, dict):  # of a response, by criterion
                    for criterion, own in score.items():
                        flat[f"scores-{name}-{criterion}"] = str(own)
                else:
                    flat[f"scores-{name}"] = str(score)
            part, _, _ = event["part"].partition(":")
            about = {"physician": event["annotator"], "task": event["assignment"], "part": part}
            answers.append(about | {"scores": flat})
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
    log = Log()
    page = Page(write_load(folder, physicians, -(-ratings // NUMBERS)))
    page.start()
    started = time.perf_counter()
    try:
        asyncio.run(drive(people_of(page, think, log)))
    finally:
        seconds = time.perf_counter() - started
        page.end()
    lost, twice = compare(log.confirmed, stored(page.study))
    with closing(Store(read_study(page.study))) as store:
        counts = write_export(store, folder / "export")
    held = counts.get("ratings.jsonl", 0) + counts.get("verdict_ratings.jsonl", 0)
    times = sorted(1000 * duration for duration in log.seconds)
    for percentile, most in ((95, LIMIT), (50, None), (99, None)):
        taken = times[min(len(times) - 1, len(times) * percentile // 100)]
        results.add(f"save, {percentile} of 100 take at most", taken, "ms", most=most)
    results.add("saves", len(times) / seconds, "a second")
    confirmed = sum(len(save["scores"]) for save in log.confirmed)
    results.add("ratings that are lost", lost, "", most=0)
    results.add("ratings that are stored twice", twice, "", most=0)
    results.note(
        f"{physicians} physicians at once, {think:g} s at a form, {seconds:.0f} s; SQLite."
    )
    results.note(
        f"{confirmed:,} ratings confirmed in {len(log.confirmed):,} saves; {held:,} in the export."
    )
    results.note(f"Requests refused: {log.refused}.")
    return lost + twice + (held != confirmed)


def people_of(page: Page, think: float, log: Log) -> list[Physician]:
    """Return a physician for each invitation."""
    return [Physician(name, link, page.address, think, log) for name, link in page.links.items()]


def kills(folder: Path, physicians: int, times: int, results: Results) -> int:
    """Kill the page again and again while everybody saves; return how many answers are lost or there twice."""
    rng, log = random.Random(0), Log()
    page = Page(write_load(folder, physicians, MOST_SAVES * times))

    async def all_of_it() -> int:
        people: list[Physician] = []
        for done in range(1, times + 1):
            page.start()
            people = people or people_of(page, 0.0, log)
            saves, delay = rng.randint(1, MOST_SAVES), rng.uniform(0, 0.03)
            work_left = await drive_until_killed(people, page, saves, delay)
            page.end(signal.SIGKILL)
            if any(compare(log.confirmed, stored(page.study))) or not work_left:
                return done
        return times

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
    add("--think", type=float, default=2.0, help="mean seconds that a physician looks at a form")
    add("--kills", type=int, default=0, help="kill the page so often, in the place of measuring")
    args = parser.parse_args()
    title = "Physicians' page, killed" if args.kills else "Physicians' page under load"
    results = Results(title, args.json)
    with tempfile.TemporaryDirectory() as scratch:
        folder, many = Path(scratch), args.physicians
        if args.kills:
            wrong = kills(folder, many, args.kills, results)
        else:
            wrong = load(folder, many, args.ratings, args.think, results)
    results.show()
    results.write()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
