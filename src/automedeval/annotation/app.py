"""Serve the physicians' page, from the invitation to the last task (paper, section 4.2, Appendices D and E).

Every POST is answered with a redirect, so that going back or reloading stores nothing twice. The page works without JavaScript;
`page.js` adds keyboard keys and drafts.
"""

import re
import time
from contextlib import suppress
from functools import cache

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.templating import Jinja2Templates

from automedeval.annotation import forms
from automedeval.annotation.assignment import Assignment
from automedeval.annotation.security import PAGES, field_of, protect
from automedeval.annotation.store import NotYours, Stale, Store
from automedeval.annotation.study import Annotator
from automedeval.annotation.validation import Invalid, Refused, values_of
from automedeval.records import JsonObject
from automedeval.records.templates import environment

ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
INVITE_AGAIN = "Please open the invitation link that you were sent. If it no longer works, ask your coordinator for a new one."


class SignedOut(Refused):
    """No annotator is signed in, or the invitation is void."""

    status = 401
    heading = "You are signed out"


@cache
def page_templates() -> Jinja2Templates:
    """Return the templates of the pages; everything is escaped, and undefined names are errors."""
    made = environment("automedeval.annotation")
    made.globals |= {"invite_again": INVITE_AGAIN, "meanings": forms.meanings, "tasks": forms.WORDS}
    made.filters["words"] = forms.words
    return Jinja2Templates(env=made)


def make_app(store: Store, *, secret: str, secure: bool) -> FastAPI:
    """Return the page of a study, for browsers that reach it by https alone if `secure`.

    `secret` signs session cookies; a new one ends all sessions.
    """
    app = FastAPI(title=store.study.title, docs_url=None, redoc_url=None, openapi_url=None)
    protect(app, secret, secure)
    _add_start(app, store)
    _add_tasks(app, store)
    _add_errors(app, store)
    return app


def _page(request: Request, name: str, content: JsonObject, status: int = 200) -> Response:
    """Return a page by the name of its template."""
    return page_templates().TemplateResponse(request, f"{name}.html.jinja", content, status)


def _signed_in(request: Request, store: Store) -> Annotator:
    token = request.session.get("invitation")
    annotator = store.annotator_of(token) if token else None
    if annotator is None:
        raise SignedOut(f"This step stored nothing. {INVITE_AGAIN}")
    return annotator


def _version(request: Request) -> int:
    version = field_of(request, "version")
    if not re.fullmatch("[0-9]{1,9}", version):
        raise Invalid("This form is not one that the page made. Nothing was stored.")
    return int(version)


def _see(request: Request, place: str) -> Response:
    """Return a redirect, or the address as JSON if the page's script asks."""
    if request.headers.get("accept") == "application/json":
        return JSONResponse({"next": place})
    return RedirectResponse(place, 303)


def _add_errors(app: FastAPI, store: Store) -> None:
    """Answer what is refused by a page: the form with the values entered, where `_form_again` returns it."""

    def message(request: Request, status: int, heading: str, text: str) -> Response:
        content = {"heading": heading, "text": text, "link": "/", "link_text": "To the first page"}
        if status in (409, 422) and "number" in request.path_params:
            task = f"/tasks/{request.path_params['number']}"
            content |= {"link": task, "link_text": "To the task as it stands now"}
        return _page(request, "message", content, status)

    @app.exception_handler(HTTPException)
    def not_possible(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return message(request, 404, "Not found", "There is no such page.")
        return message(request, error.status_code, "Not possible", f"{error.detail}.")

    @app.exception_handler(Refused)
    def refused(request: Request, error: Refused) -> Response:
        with suppress(Refused):  # who is signed out meanwhile is shown the message
            is_form = isinstance(error, Invalid | Stale)
            if is_form and (page := _form_again(request, store, error)):
                return page
        return message(request, error.status, error.heading, str(error))


def _add_start(app: FastAPI, store: Store) -> None:
    def asset(request: Request) -> Response:
        name = request.url.path.removeprefix("/")
        return Response((PAGES / name).read_bytes(), media_type=ASSETS[name])

    for name in ASSETS:
        app.get(f"/{name}")(asset)

    @app.get("/")
    def start(request: Request) -> Response:
        content: JsonObject = {"study": store.study, "annotator": None}
        with suppress(SignedOut):
            annotator = _signed_in(request, store)
            plans = store.study.plans.items()
            kinds = [kind for kind, plan in plans if annotator.role in plan.roles]
            progress = store.progress(annotator.name)
            content |= {"annotator": annotator, "progress": progress, "kinds": kinds}
            request.session["day"] = int(time.time() // 86400)  # renews the cookie once a day
        return _page(request, "start", content)

    @app.get("/invitation/{token}")
    def invitation(request: Request, token: str) -> Response:
        # Mail scanners follow links, so only the button on the page signs in.
        annotator = store.annotator_of(token)
        content = {"study": store.study, "annotator": annotator, "token": token}
        return _page(request, "invitation", content, 200 if annotator else 404)

    @app.post("/invitation/{token}")
    def accept(request: Request, token: str) -> Response:
        if store.annotator_of(token) is None:
            raise SignedOut(f"This step stored nothing. {INVITE_AGAIN}")
        request.session.clear()
        request.session["invitation"] = (
            token  # a new one, which makes this one void, ends the session
        )
        return _see(request, "/")

    @app.post("/leave")
    def leave(request: Request) -> Response:
        request.session.clear()
        return _see(request, "/")


def _see_task(request: Request, assignment: Assignment | None) -> Response:
    return _see(request, "/" if assignment is None else f"/tasks/{assignment.id}")


def _task_of(request: Request, store: Store, number: int) -> Assignment:
    return store.assignment(_signed_in(request, store).name, number)


def _part_of(assignment: Assignment, slug: str) -> str:
    """Return the part of an address."""
    for part in assignment.parts:
        if forms.slug_of(assignment, part) == slug:
            return part
    raise NotYours("There is no such task for you.")


def _task_page(
    request: Request,
    store: Store,
    assignment: Assignment,
    part: str,
    error: Refused | None = None,
) -> Response:
    """Return the form of the current part, filled with the draft, or after an error with the values entered."""
    study = store.study
    sheet = forms.sheet_of(study, assignment, part)
    fields = sheet["fields"]
    values = values_of(fields, forms.first_content(study, assignment, part))
    if error is not None:
        values = {field.name: list(request.state.form.get(field.name, [])) for field in fields}
    required = [field.name for field in fields if field.request]
    missing = [name for name in required if not "".join(values[name]).strip()]
    step = request.url.path.rpartition("/")[2]
    content = {
        "sheet": sheet,
        "assignment": assignment,
        "progress": store.progress(assignment.annotator),
        "values": values,
        "missing": missing if step == sheet["slug"] else [],
        "told": str(error or ""),
        "reason": field_of(request, "reason") if step == "skip" else None,
    }
    return _page(request, "task", content, error.status if error else 200)


def _form_again(request: Request, store: Store, error: Refused) -> Response | None:
    """Return the form with the values entered and the error; None if its part is not the one to be done now."""
    if (number := request.path_params.get("number")) is None:
        return None
    assignment = _task_of(request, store, number)
    slug = request.path_params.get("slug")  # None: to be skipped, whatever the part
    part = assignment.part
    if part is None or slug not in (None, forms.slug_of(assignment, part)):
        return None
    return _task_page(request, store, assignment, part, error)


def _add_tasks(app: FastAPI, store: Store) -> None:
    @app.post("/next")
    def next_task(request: Request) -> Response:
        return _see_task(request, store.next(_signed_in(request, store).name))

    @app.post("/undo")
    def undo(request: Request) -> Response:
        return _see_task(request, store.undo(_signed_in(request, store).name))

    @app.get("/tasks/{number:int}")
    def task(request: Request, number: int) -> Response:
        assignment = _task_of(request, store, number)
        if assignment.part is not None:
            return _task_page(request, store, assignment, assignment.part)
        return _page(request, "finished", {"assignment": assignment})

    @app.post("/tasks/{number:int}/skip")
    def skip(request: Request, number: int) -> Response:
        assignment = _task_of(request, store, number)
        part = assignment.part
        version = _version(request)
        if part is not None and version == assignment.version:
            # The values entered are kept as a draft, in case the skip is undone.
            store.keep_draft(assignment.annotator, number, part, request.state.form)
        store.skip(assignment.annotator, number, field_of(request, "reason").strip(), version)
        return _see_task(request, store.next(assignment.annotator))

    @app.post("/tasks/{number:int}/{slug}")
    def answer(request: Request, number: int, slug: str) -> Response:
        assignment = _task_of(request, store, number)
        who = assignment.annotator
        part = _part_of(assignment, slug)
        stored = store.answer(who, number, part, request.state.form, _version(request))
        return _see_task(request, store.next(who) if stored.part is None else stored)

    @app.post("/tasks/{number:int}/{slug}/draft")
    def keep_draft(request: Request, number: int, slug: str) -> Response:
        """Store a draft; then undo, go to the first page ("leave"), or return no content if the script asks."""
        assignment = _task_of(request, store, number)
        part = _part_of(assignment, slug)
        store.keep_draft(assignment.annotator, number, part, request.state.form)
        then = field_of(request, "then")
        if then == "undo":
            return _see_task(request, store.undo(assignment.annotator))
        return _see(request, "/") if then else Response(status_code=204)
