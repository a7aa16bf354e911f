"""The coordinator's pages: how the study goes, new invitation links, and the answers as files.

They stand behind a password of which only the argon2 hash is stored. They show models, judges and physicians by their names, so
whoever rates in the same study should not have it.
"""

import hashlib
import hmac
import io
import ipaddress
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.templating import Jinja2Templates

from automedeval.annotation.assignment import Answer
from automedeval.annotation.export import write_export
from automedeval.annotation.progress import divisions, draw_figures, kinds_answered, live_agreement, physicians
from automedeval.annotation.security import csrf_of
from automedeval.annotation.store import Store
from automedeval.annotation.study import DECISION, PREFERENCE, RESPONSES, VERDICT, Item, Study
from automedeval.records import Case, RecordError, Verdict


@dataclass(frozen=True)
class Said:
    """What one annotator stored about one thing: scores by criterion, or words in their place; a comment; and when."""

    annotator: str
    role: str
    scores: dict[str, Any]
    comment: str
    tags: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class Thing:
    """A response or a verdict, and what was said about it; `note` tells who is who in its text."""

    title: str
    text: str
    note: str
    said: tuple[Said, ...]


@dataclass(frozen=True)
class View:
    """All of an item: the case's texts, then responses and verdicts with what was said, then choices and decisions."""

    case_id: str
    question: str
    reference: str | None
    things: tuple[Thing, ...]
    choices: tuple[Said, ...]


def view_of(study: Study, item: Item, answers: Sequence[Answer]) -> View:
    """Return an item with the answers about it, each put back into the order of the case's responses."""
    case = study.case_of(item)
    question = case.question
    if not isinstance(question, str):
        question = "\n\n".join(f"{message['role']}: {message['content']}" for message in question)
    things = [
        Thing(response.model, response.text, "", tuple(_about_response(answers, number)))
        for number, response in enumerate(case.responses)
    ]
    if item.kind == "jury":
        dispute = study.disputes[item.case_id]
        things += [
            _verdict("Verdict on record", dispute.recorded, case, ()),
            _verdict("Verdict of the judge", dispute.judged, case, ()),
        ]
        for exchange in dispute.exchanges:
            title = f"{exchange.role.capitalize()} {exchange.number}"
            things.append(Thing(title, exchange.text, _doctors(case, exchange.order), ()))
    for judge in item.judges:
        said = (_said(each) for each in answers if each.part == VERDICT + judge)
        things.append(_verdict(f"Verdict of {judge}", study.verdicts[item.case_id, judge], case, tuple(said)))
    choices = []
    for answer in answers:
        if answer.part == PREFERENCE:
            names = {str(side): item.judges[index] for side, index in enumerate(answer.order, 1)}
            chosen = {name: names.get(side, side) for name, side in answer.content["choices"].items()}
            choices.append(_said(answer, chosen))
        elif answer.part == DECISION:
            scores = answer.content.get("scores") or []
            given = {case.models[index]: score for index, score in zip(answer.order, scores)}
            reasons = answer.content.get("rationale") or ""
            choices.append(_said(answer, {"decision": answer.content["decision"], **given}, reasons))
    return View(case.id, question, case.reference, tuple(things), tuple(choices))


def _about_response(answers: Sequence[Answer], number: int) -> list[Said]:
    found = []
    for answer in answers:
        if answer.part == RESPONSES and number in answer.order:
            slot = str(answer.order.index(number) + 1)
            comment = answer.content.get("comments", {}).get(slot, "")
            found.append(_said(answer, answer.content["scores"].get(slot, {}), comment))
    return found


def _said(answer: Answer, scores: dict[str, Any] | None = None, comment: str | None = None) -> Said:
    content = answer.content
    return Said(
        answer.annotator,
        answer.role,
        content["scores"] if scores is None else scores,
        (content.get("comment") or "") if comment is None else comment,
        tuple(content.get("tags", ())),
        answer.at,
    )


def _verdict(title: str, verdict: Verdict, case: Case, said: tuple[Said, ...]) -> Thing:
    if not verdict.valid:
        return Thing(title, f"No verdict: {verdict.error}", "", said)
    note = _doctors(case, verdict.order)
    if verdict.scores is not None:
        told = [f"{name} {score}" for name, score in zip(case.models, verdict.scores) if score is not None]
        note = f"{note}. Scores: {', '.join(told)}"
    return Thing(title, verdict.rationale or "", note, said)


def _doctors(case: Case, order: Sequence[int]) -> str:
    return ", ".join(f"Doctor {slot} is {case.models[index]}" for slot, index in enumerate(order, 1))


SHORTEST = 12  # characters of a password
WITHIN = 15 * 60.0  # seconds in which failures count
FROM_ONE, FROM_ALL = 5, 50  # failures of one address, and of all together, after which everybody there has to wait
SIGNED_IN = 12 * 3600.0  # seconds
PASSWORD = "coordinator_password"  # the setting that holds the hash
EVERYWHERE = "coordinator"
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a drawing carries its own style, and nothing else
PAGES = resources.files("automedeval.annotation") / "templates"


def has_password(store: Store) -> bool:
    """Return whether a coordinator's password has been set."""
    return store.setting(PASSWORD) is not None


def set_password(store: Store, password: str) -> None:
    """Set the coordinator's password; whoever is signed in with an old one no longer is.

    Raises:
        RecordError: it is too short.
    """
    if len(password) < SHORTEST:
        raise RecordError(f"the coordinator's password must have at least {SHORTEST} characters, not {len(password)}")
    store.set_setting(PASSWORD, PasswordHasher().hash(password))


class Door:
    """Lets the coordinator in by the password, and makes whoever guesses wait."""

    def __init__(self, store: Store):
        self.store = store
        # One attempt at a time: many at once would all be counted before any of them has failed.
        self._one = threading.Lock()

    def enter(self, request: Request, password: str) -> str | None:
        """Sign in; return why not in a plain sentence, None where it was the password."""
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
                pass  # the common path of a wrong password; what follows counts it
            self.store.fail(who)
            self.store.fail(EVERYWHERE)
        return "This is not the password."

    def entered(self, request: Request) -> bool:
        """Return whether the session is the coordinator's, under the password of now, and not too old."""
        mark, until = request.session.get("coordinator") or (None, 0.0)
        hashed = self.store.setting(PASSWORD)
        fits = mark is not None and hashed is not None and hmac.compare_digest(mark, self._mark(hashed))
        return fits and self.store.clock() < until

    def _mark(self, hashed: str) -> str:
        # The cookie can be read by the one who holds it: it says which password let them in, and not its hash.
        return hashlib.sha256(f"coordinator:{hashed}".encode()).hexdigest()[:32]


def address_of(request: Request) -> str:
    """Return the address that a request comes from; of IPv6 the network of 64 bits, which one household has to itself."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a socket of this machine, or the test's own client
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def add_coordinator(app: FastAPI, study: Study, store: Store, templates: Jinja2Templates) -> None:
    """Add the routes under /coordinator."""
    door = Door(store)
    templates.env.filters |= {"moment": moment, "duration": duration, "figure": shown_estimate}
    router = APIRouter(prefix="/coordinator", include_in_schema=False)

    def page(request: Request, name: str, status: int = 200, **context: Any) -> Response:
        context |= {"study": study, "csrf": csrf_of(request)}
        return templates.TemplateResponse(request, f"{name}.html.jinja", context, status_code=status)

    def guarded(shown: Callable[..., Response]) -> Callable[..., Response]:
        """Lead whoever is not signed in to the password."""

        def route(request: Request) -> Response:
            if not door.entered(request):
                return RedirectResponse("/coordinator/login", 303)
            return shown(request, **request.path_params)

        return route

    def login(request: Request) -> Response:
        if door.entered(request):
            return RedirectResponse("/coordinator", 303)
        return page(request, "coordinator_login", trouble=None)

    def enter(request: Request) -> Response:
        (password,) = request.state.form.get("password", [""])[:1]
        trouble = door.enter(request, password)
        if trouble is None:
            return RedirectResponse("/coordinator", 303)
        return page(request, "coordinator_login", 429 if "wait" in trouble else 403, trouble=trouble)

    def leave(request: Request) -> Response:
        request.session.clear()
        return RedirectResponse("/coordinator/login", 303)

    def overview(request: Request) -> Response:
        answers = list(store.answers())
        return page(
            request,
            "coordinator",
            physicians=physicians(study, store, answers),
            counts=kinds_answered(answers),
            agreement=live_agreement(study, answers),
            divisions=divisions(study, answers),
            figures=draw_figures(study, answers),
            files=EXPORTED,
            archive=ALL,
        )

    def item(request: Request, number: str) -> Response:
        if not number.isdecimal() or int(number) >= len(study.items):
            raise HTTPException(404)
        chosen = study.items[int(number)]
        answers = [answer for answer in store.answers() if answer.item.key == chosen.key]
        return page(request, "coordinator_item", view=view_of(study, chosen, answers), item=chosen)

    def figure(request: Request, name: str) -> Response:
        found = draw_figures(study, list(store.answers()))
        if name not in found:
            raise HTTPException(404)
        headers = {"Content-Security-Policy": FIGURE_POLICY}
        return Response(found[name]["svg"](), media_type="image/svg+xml", headers=headers)

    def invite(request: Request) -> Response:
        (name,) = request.state.form.get("annotator", [""])[:1]
        if study.annotator(name) is None:
            raise HTTPException(404)
        link = f"{str(request.base_url).rstrip('/')}/invitation/{store.invite(name)}"
        return page(request, "coordinator_link", annotator=name, link=link)

    def export(request: Request, name: str) -> Response:
        if name not in (*EXPORTED, ALL):
            raise HTTPException(404)
        files = exported(store)
        content = zipped(files) if name == ALL else files.get(name, b"")
        kind = "application/zip" if name == ALL else "application/x-ndjson"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type=kind, headers=headers)

    def style(request: Request) -> Response:
        return Response((PAGES / "coordinator.css").read_bytes(), media_type="text/css")

    router.add_api_route("/login", login, methods=["GET"])
    router.add_api_route("/login", enter, methods=["POST"])
    router.add_api_route("/coordinator.css", style, methods=["GET"])
    router.add_api_route("/leave", leave, methods=["POST"])
    router.add_api_route("", guarded(overview), methods=["GET"])
    router.add_api_route("/items/{number}", guarded(item), methods=["GET"])
    router.add_api_route("/figures/{name}.svg", guarded(figure), methods=["GET"])
    router.add_api_route("/export/{name}", guarded(export), methods=["GET"])
    router.add_api_route("/invite", guarded(invite), methods=["POST"])
    app.include_router(router)


EXPORTED = {
    "ratings.jsonl": "ratings of the responses",
    "verdict_ratings.jsonl": "ratings of the verdicts",
    "preferences.jsonl": "preferences between two verdicts",
    "jury.jsonl": "the jury's decisions",
    "history.jsonl": "everything that was ever stored, with times",
}
ALL = "export.zip"


def exported(store: Store) -> dict[str, bytes]:
    """Return the files of the export by name."""
    with tempfile.TemporaryDirectory() as scratch:
        write_export(store, Path(scratch) / "export")
        return {path.name: path.read_bytes() for path in sorted((Path(scratch) / "export").iterdir())}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return files as one zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def moment(at: float | None) -> str:
    """Return a time since 1970 as a date and an hour that say where they hold."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def duration(seconds: float | None) -> str:
    """Return seconds as minutes and seconds."""
    return "–" if seconds is None else f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def shown_estimate(estimate: Any) -> str:
    """Return an Estimate as a figure with its interval."""
    if estimate.value is None:
        return "–"
    interval = "" if estimate.low is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{interval}{'*' if estimate.approximate else ''}"
