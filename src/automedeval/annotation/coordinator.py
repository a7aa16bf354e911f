"""Serve the coordinator's pages: progress of the study, the answers on each item, new invitation links, and the export.

A password protects them; only its argon2 hash is stored. The pages name models, judges and physicians, so an annotator of the
same study should not have the password.
"""

import hashlib
import hmac
import io
import ipaddress
import threading
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from fastapi import APIRouter, Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.templating import Jinja2Templates

from automedeval.annotation.assignment import Answer
from automedeval.annotation.export import FILES, exported
from automedeval.annotation.progress import divisions, draw_figures, kinds_answered, live_agreement, physicians
from automedeval.annotation.security import field_of
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Item, Study
from automedeval.records import Case, RecordError, Verdict, question_text
from automedeval.reports import charts
from automedeval.stats.bootstrap import plain

SHORTEST = 12  # characters of a password
WITHIN = 15 * 60.0  # seconds in which failed attempts count
FROM_ONE, FROM_ALL = 5, 50  # failed attempts of one address, and of all, after which no password is accepted
SIGNED_IN = 12 * 3600.0  # seconds of a session
PASSWORD = "coordinator_password"  # the setting that holds the hash
EVERYWHERE = "coordinator"
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # an SVG has inline styles
PAGES = resources.files("automedeval.annotation") / "templates"
ALL = "export.zip"


class NotCoordinator(Exception):
    """The session is not the coordinator's."""


def view_of(study: Study, item: Item, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what the page of an item shows, in the order of the case's responses.

    Returns:
        The "case" and its "question"; "things", which are responses, verdicts and messages as (title, text, which model each
        doctor is, answers about it); "choices", the answers to comparisons and decisions. The content of all these answers has
        "scores" or choices by name, a "comment", and possibly "tags".
    """
    case = study.case_of(item)
    rated = [(answer, answer.content) for answer in answers if answer.part == RESPONSES]
    things = []
    for number, response in enumerate(case.responses):
        slots = [(answer, content, str(answer.order.index(number) + 1)) for answer, content in rated]
        given = [_given(each, content["scores"].get(k, {}), content["comments"].get(k)) for each, content, k in slots]
        things.append((response.model, response.text, "", given))
    if item.kind == "jury":
        dispute = study.disputes[item.case_id]
        things.append(_verdict("Verdict on record", dispute.recorded, case))
        things.append(_verdict("Verdict of the judge", dispute.judged, case))
        for exchange in dispute.exchanges:
            things.append((exchange.title, exchange.text, _doctors(case, exchange.order), []))
    for judge in item.judges:
        given = [answer for answer in answers if answer.part == VERDICT + judge]
        things.append(_verdict(f"Verdict of {judge}", study.verdicts[item.case_id, judge], case, given))
    choices = []
    for answer in answers:
        content = answer.content
        if answer.part == PREFERENCE:
            names = {str(side): item.judges[index] for side, index in enumerate(answer.order, 1)}
            chosen = {name: names.get(side, side) for name, side in content["choices"].items()}
            choices.append(_given(answer, chosen, content["comment"]))
        elif answer.part == DECISION:
            scores = {case.models[index]: score for index, score in zip(answer.order, content["scores"])}
            choices.append(_given(answer, {"decision": content["decision"], **scores}, content["rationale"]))
    return {"case": case, "question": question_text(case.question), "things": things, "choices": choices}


def _given(answer: Answer, scores: dict[str, Any], comment: str | None) -> Answer:
    return replace(answer, content={"scores": scores, "comment": comment})


def _verdict(title: str, verdict: Verdict, case: Case, given: Sequence[Answer] = ()) -> tuple:
    if not verdict.valid:
        return title, f"No verdict: {verdict.error}", "", given
    note = _doctors(case, verdict.order)
    if verdict.scores is not None:
        scores = [f"{name} {score}" for name, score in zip(case.models, verdict.scores) if score is not None]
        note = f"{note}. Scores: {', '.join(scores)}"
    return title, verdict.rationale or "", note, given


def _doctors(case: Case, order: Sequence[int]) -> str:
    return ", ".join(f"Doctor {slot} is {case.models[index]}" for slot, index in enumerate(order, 1))


def has_password(store: Store) -> bool:
    """Return whether a coordinator's password has been set."""
    return store.setting(PASSWORD) is not None


def set_password(store: Store, password: str) -> None:
    """Set the coordinator's password; sessions under an old one end. Raise RecordError if it is too short."""
    if len(password) < SHORTEST:
        raise RecordError(f"the coordinator's password must have at least {SHORTEST} characters, not {len(password)}")
    store.set_setting(PASSWORD, PasswordHasher().hash(password))


class Door:
    """Sign the coordinator in by the password, and limit failed attempts."""

    def __init__(self, store: Store):
        self.store = store
        # One attempt at a time: many at once would all pass the limit before any of them has failed.
        self._one = threading.Lock()

    def enter(self, request: Request, password: str) -> str | None:
        """Sign in; return None, or the reason for refusal as a sentence."""
        who = f"{EVERYWHERE} {address_of(request)}"
        with self._one:
            if self.store.failures(who, WITHIN) >= FROM_ONE or self.store.failures(EVERYWHERE, WITHIN) >= FROM_ALL:
                return f"Too many attempts failed. Please wait {WITHIN / 60:.0f} minutes; until then no password is looked at."
            hashed = self.store.setting(PASSWORD)
            try:
                if hashed is not None and PasswordHasher().verify(hashed, password):
                    request.session.clear()
                    request.session["coordinator"] = [self._mark(hashed), self.store.clock() + SIGNED_IN]
                    return None
            except VerificationError:
                pass  # a wrong password is counted below
            self.store.fail(who)
            self.store.fail(EVERYWHERE)
        return "This is not the password."

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
    """Add the routes under /coordinator."""
    door = Door(store)
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
    def enter(request: Request) -> Response:
        trouble = door.enter(request, field_of(request, "password"))
        if trouble is None:
            return RedirectResponse("/coordinator", 303)
        return page(request, "coordinator_login", 429 if "wait" in trouble else 403, trouble=trouble)

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
            counts=kinds_answered(answers),
            agreement=plain(live_agreement(study, answers)),
            divisions=divisions(study, answers),
            figures=draw_figures(study, answers),
            files=FILES,
            archive=ALL,
        )

    @guarded.get("/items/{number}")
    def item(request: Request, number: str) -> Response:
        if not number.isdecimal() or int(number) >= len(study.items):
            raise HTTPException(404)
        chosen = study.items[int(number)]
        answers = [answer for answer in store.answers() if answer.item.key == chosen.key]
        return page(request, "coordinator_item", item=chosen, **view_of(study, chosen, answers))

    @guarded.get("/figures/{name}.svg")
    def figure(request: Request, name: str) -> Response:
        found = draw_figures(study, list(store.answers()))
        if name not in found:
            raise HTTPException(404)
        headers = {"Content-Security-Policy": FIGURE_POLICY}
        return Response(charts.svg_file(found[name].draw), media_type="image/svg+xml", headers=headers)

    @guarded.post("/invite")
    def invite(request: Request) -> Response:
        name = field_of(request, "annotator")
        if study.annotator(name) is None:
            raise HTTPException(404)
        link = f"{str(request.base_url).rstrip('/')}/invitation/{store.invite(name)}"
        return page(request, "coordinator_link", annotator=name, link=link)

    @guarded.get("/export/{name}")
    def export(request: Request, name: str) -> Response:
        if name not in (*FILES, ALL):
            raise HTTPException(404)
        # As `write_whole` writes them: a lone surrogate has no bytes.
        files = {file: text.encode("utf-8", "backslashreplace") for file, text in sorted(exported(store)[0].items())}
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        if name != ALL:
            return Response(files.get(name, b""), media_type="application/x-ndjson", headers=headers)
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, content in files.items():
                archive.writestr(file, content)
        return Response(stream.getvalue(), media_type="application/zip", headers=headers)

    app.include_router(guarded)


def moment(at: float | None) -> str:
    """Return seconds since 1970 as date and time in UTC."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def duration(seconds: float | None) -> str:
    """Return seconds as minutes:seconds."""
    return "–" if seconds is None else f"{int(seconds // 60)}:{int(seconds % 60):02d}"
