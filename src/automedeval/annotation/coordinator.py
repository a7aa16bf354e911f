"""Serve the coordinator's pages: progress of the study, new invitation links, and the export.

A password protects them; only its argon2 hash is stored. The export names models, judges and physicians, so an annotator of
the same study should not have the password.
"""

import asyncio
import hashlib
import hmac
import io
import ipaddress
import math
import zipfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from fastapi import APIRouter, Depends, FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.templating import Jinja2Templates

from automedeval.annotation.assignment import Answer
from automedeval.annotation.database import DONE
from automedeval.annotation.export import FILES, exported
from automedeval.annotation.security import PAGES, field_of
from automedeval.annotation.store import Store
from automedeval.annotation.study import Study
from automedeval.records import RecordError

SHORTEST = 12  # characters of a password
# An address has FREE attempts that fail; after each further one it pauses, twice as long each time, up to LONGEST. That makes
# 107 attempts a day: 13 in the first 17 minutes, then one in 15 minutes.
FREE, LONGEST = 3, 15 * 60.0  # attempts, seconds
SIGNED_IN = 12 * 3600.0  # seconds of a session
PASSWORD = "coordinator_password"  # the setting that holds the hash


class NotCoordinator(Exception):
    """The session is not the coordinator's."""


def physicians(study: Study, store: Store, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return how far every annotator is, in the order of the study.

    Each is {"annotator", "progress": their `Progress`, "seconds": the median time of a finished task, "last": when they last
    stored, skipped or took back something, in seconds since 1970}; the times are None where there is none.
    """
    last = store.last_stored()
    spent: dict[str, dict[int, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        spent[answer.annotator][answer.assignment].append(answer)
    rows = []
    for each in study.annotators:
        tasks = [task for task in spent[each.name].values() if task[0].state == DONE]
        parts = [[answer.seconds for answer in task if answer.seconds is not None] for task in tasks]
        seconds = [sum(timed) for timed, task in zip(parts, tasks) if len(timed) == len(task)]
        row = {"annotator": each, "progress": store.progress(each.name), "last": last.get(each.name)}
        rows.append(row | {"seconds": median(seconds) if seconds else None})
    return rows


def set_password(store: Store, password: str, anew: bool = True) -> bool:
    """Set the coordinator's password, without `anew` only if there is none; return whether it was set.

    Sessions under another one end; the one that is set already changes nothing. Raise RecordError if it is too short.
    """
    if len(password) < SHORTEST:
        raise RecordError(f"the coordinator's password must have at least {SHORTEST} characters, not {len(password)}")
    if _fits(password, store.setting(PASSWORD)):
        return False
    return store.set_setting(PASSWORD, PasswordHasher().hash(password), anew)


def _fits(password: str, hashed: str | None) -> bool:
    try:
        return hashed is not None and PasswordHasher().verify(hashed, password)
    except VerificationError:
        return False


class CoordinatorLogin:
    """Sign the coordinator in by the password, and slow down those who guess it.

    An address whose attempts failed pauses; the failures of other addresses lock nobody out. Attempts are verified one after
    another, each by argon2, however many addresses there are. Even a hundred a second would take 10^26 years for half of the
    2^120 passwords that the program may make, and 15 million for half of the 26^12 of twelve letters. A password from a list
    of common ones would be found.
    """

    def __init__(self, store: Store):
        # Many attempts at once would pass a check before any of them has failed.
        self.store, self._one_at_a_time = store, asyncio.Lock()

    async def enter(self, request: Request, password: str) -> tuple[str, int] | None:
        """Sign in; return None, or the reason for refusal as a sentence, and for how many seconds no attempt is looked at."""
        async with self._one_at_a_time:
            return await run_in_threadpool(self._enter, request, f"coordinator {address_of(request)}", password)

    def _enter(self, request: Request, address: str, password: str) -> tuple[str, int] | None:
        failed, last = self.store.failures(address)
        pause = 0.0 if failed < FREE else min(LONGEST, 2.0 ** min(failed - FREE, 30))
        if (seconds := math.ceil(last + pause - self.store.clock())) > 0:
            wait = f"{math.ceil(seconds / 60)} minutes" if seconds > 90 else f"{seconds} s"
            return (
                f"Too many attempts failed. Please wait {wait}; until then no password from here is looked at.",
                seconds,
            )
        hashed = self.store.setting(PASSWORD)
        if hashed is None or not _fits(password, hashed):
            self.store.fail(address)
            return "This is not the password.", 0
        request.session.clear()
        request.session["coordinator"] = [self._mark(hashed), self.store.clock() + SIGNED_IN]
        return None

    def entered(self, request: Request) -> bool:
        """Return whether the session is the coordinator's, under the current password, and not expired."""
        mark, until = request.session.get("coordinator") or (None, 0.0)
        hashed = self.store.setting(PASSWORD)
        fits = mark is not None and hashed is not None and hmac.compare_digest(mark, self._mark(hashed))
        return fits and self.store.clock() < until

    def _mark(self, hashed: str) -> str:
        # The holder of a cookie can read it, so it holds a digest of the password's hash.
        return hashlib.sha256(f"coordinator:{hashed}".encode()).hexdigest()[:32]


def address_of(request: Request) -> str:
    """Return the address of a request; for IPv6 its network of 64 bits, which usually belongs to one household."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket, or a test client
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def add_coordinator(app: FastAPI, study: Study, store: Store, templates: Jinja2Templates) -> None:
    door = CoordinatorLogin(store)
    templates.env.filters |= {"moment": moment, "duration": duration}

    def page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
        return templates.TemplateResponse(request, f"{name}.html.jinja", context | {"study": study}, status)

    def signed_in(request: Request) -> None:
        if not door.entered(request):
            raise NotCoordinator

    @app.exception_handler(NotCoordinator)
    def signed_out(request: Request, _: NotCoordinator) -> Response:
        return RedirectResponse("/coordinator/login", 303)

    @app.get("/coordinator/login")
    def login(request: Request) -> Response:
        if door.entered(request):
            return RedirectResponse("/coordinator", 303)
        return page(request, "coordinator_login", trouble=None)

    @app.post("/coordinator/login")
    async def enter(request: Request) -> Response:
        refusal = await door.enter(request, field_of(request, "password"))
        if refusal is None:
            return RedirectResponse("/coordinator", 303)
        trouble, seconds = refusal
        shown = page(request, "coordinator_login", 429 if seconds else 403, trouble=trouble)
        if seconds:
            shown.headers["Retry-After"] = str(seconds)
        return shown

    @app.post("/coordinator/leave")
    def leave(request: Request) -> Response:
        request.session.clear()
        return RedirectResponse("/coordinator/login", 303)

    @app.get("/coordinator/coordinator.css")
    def style(request: Request) -> Response:
        return Response((PAGES / "coordinator.css").read_bytes(), media_type="text/css")

    guarded = APIRouter(prefix="/coordinator", dependencies=[Depends(signed_in)])

    @guarded.get("")
    def overview(request: Request) -> Response:
        answers = list(store.answers())
        return page(
            request,
            "coordinator",
            physicians=physicians(study, store, answers),
            counts=Counter(answer.part.partition(":")[0] for answer in answers),
            files=FILES,
        )

    @guarded.post("/invite")
    def invite(request: Request) -> Response:
        name = field_of(request, "annotator")
        if study.annotator(name) is None:
            raise HTTPException(404)
        link = f"{str(request.base_url).rstrip('/')}/invitation/{store.invite(name)}"
        return page(request, "coordinator_link", annotator=name, link=link)

    @guarded.get("/export.zip")
    def export(request: Request) -> Response:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sorted(exported(store)[0].items()):
                archive.writestr(name, text)
        headers = {"Content-Disposition": 'attachment; filename="export.zip"'}
        return Response(stream.getvalue(), media_type="application/zip", headers=headers)

    app.include_router(guarded)


def moment(at: float | None) -> str:
    """Return seconds since 1970 as date and time in UTC."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def duration(seconds: float | None) -> str:
    return "–" if seconds is None else f"{int(seconds // 60)}:{int(seconds % 60):02d}"
