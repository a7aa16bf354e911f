"""The physicians' page: its routes, from the invitation to the last task (paper, section 4.2, Appendices D and E).

Every form is posted and answered with a redirect, so that going back or reloading stores nothing twice. All of it works without
JavaScript; `page.js` adds keys, drafts that are kept while one works, and the time that a task was in view.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources

from fastapi import FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.templating import Jinja2Templates

from automedeval.annotation import forms
from automedeval.annotation.assignment import Assignment
from automedeval.annotation.coordinator import add_coordinator
from automedeval.annotation.security import csrf_of, layers, sign_in
from automedeval.annotation.store import NotYours, Stale, Store
from automedeval.annotation.study import Annotator, Study
from automedeval.annotation.validation import Invalid

PAGES = resources.files("automedeval.annotation") / "templates"
ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
LARGEST = 2**31 - 1  # what a database takes for the number of a task
INVITE_AGAIN = (
    "Please open the invitation link that you were sent. If it no longer works, ask your coordinator for a new one."
)


class SignedOut(Exception):
    """Nobody is signed in, or their invitation is void."""


def make_templates() -> Jinja2Templates:
    """Return the pages' templates: everything is escaped, and a name that is not there is an error."""
    environment = Environment(
        loader=FileSystemLoader(str(PAGES)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    digest = hashlib.sha256(b"".join((PAGES / name).read_bytes() for name in ASSETS)).hexdigest()[:12]
    environment.globals["assets_version"] = digest
    environment.filters["words"] = forms.words
    return Jinja2Templates(env=environment, context_processors=[lambda request: {"csrf": csrf_of(request)}])


def make_app(study: Study, store: Store, *, secret: str, secure: bool) -> FastAPI:
    """Return the page of a study.

    Args:
        store: the study's database.
        secret: what session cookies are signed with; a new one signs everybody out.
        secure: whether browsers reach the page by https alone.
    """
    app = FastAPI(title=study.title, docs_url=None, redoc_url=None, openapi_url=None, middleware=layers(secret, secure))
    templates = make_templates()
    _add_errors(app, templates)
    _add_start(app, study, store, templates, secret)
    _add_tasks(app, study, store, templates)
    add_coordinator(app, study, store, templates)
    return app


def _signed_in(request: Request, store: Store) -> Annotator:
    token = request.session.get("invitation")
    annotator = store.annotator_of(token) if token else None
    if annotator is None:
        raise SignedOut
    return annotator


def _one(request: Request, name: str) -> str:
    """Return a field's value, "" where the form has none."""
    return (request.state.form.get(name) or [""])[0]


def _version(request: Request) -> int:
    if not re.fullmatch("[0-9]{1,9}", given := _one(request, "version")):
        raise Invalid("This form is not one that the page made. Nothing was stored.")
    return int(given)


def _seconds(request: Request) -> float | None:
    """Return how long the task was in view, None where the browser did not measure it."""
    try:
        seconds = float(_one(request, "seconds"))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _see(request: Request, place: str) -> Response:
    """Send the browser on: by a redirect, or by telling the script where to go."""
    if request.headers.get("accept") == "application/json":
        return JSONResponse({"next": place})
    return RedirectResponse(place, 303)


def _add_errors(app: FastAPI, templates: Jinja2Templates) -> None:
    def page(request: Request, status: int, heading: str, text: str) -> Response:
        link, link_text = "/", "To the first page"
        if task := re.match(r"/tasks/[0-9]+", request.url.path):
            link, link_text = (task[0], "To the task as it stands now") if status in (409, 422) else (link, link_text)
        content = {"heading": heading, "text": text, "link": link, "link_text": link_text}
        return templates.TemplateResponse(request, "message.html.jinja", content, status)

    @app.exception_handler(SignedOut)
    def signed_out(request: Request, _: SignedOut) -> Response:
        return page(request, 401, "You are signed out", f"This step stored nothing. {INVITE_AGAIN}")

    @app.exception_handler(NotYours)
    def not_yours(request: Request, _: NotYours) -> Response:
        # The same words whether the task is another's or nobody's.
        return page(request, 404, "Not found", "There is no such task for you.")

    @app.exception_handler(Stale)
    def stale(request: Request, error: Stale) -> Response:
        return page(request, 409, "This form is out of date", str(error))

    @app.exception_handler(Invalid)
    def invalid(request: Request, error: Invalid) -> Response:
        return page(request, 422, "This does not fit", str(error))

    @app.exception_handler(HTTPException)
    def other(request: Request, error: HTTPException) -> Response:
        texts = {404: "There is no such page.", 405: "This address takes no such request."}
        heading = "Not found" if error.status_code == 404 else "Not possible"
        return page(request, error.status_code, heading, texts.get(error.status_code, str(error.detail)))


def _add_start(app: FastAPI, study: Study, store: Store, templates: Jinja2Templates, secret: str) -> None:
    for name, kind in ASSETS.items():
        app.get(f"/{name}")(_asset(name, kind))

    @app.get("/")
    def start(request: Request) -> Response:
        tasks = [forms.TASKS[kind] for kind in study.plans]
        content = {"study": study, "tasks": tasks, "annotator": None, "invite_again": INVITE_AGAIN}
        with suppress(SignedOut):
            annotator = _signed_in(request, store)
            content |= {"annotator": annotator, "progress": store.progress(annotator.name)}
            request.session["day"] = int(time.time() // 86400)  # a session that is used lasts
        return templates.TemplateResponse(request, "start.html.jinja", content)

    @app.get("/invitation/{token}")
    def invitation(request: Request, token: str) -> Response:
        # Programs that scan mail follow links: only the button on the page signs in.
        annotator = store.annotator_of(token)
        content = {"study": study, "annotator": annotator, "token": token, "invite_again": INVITE_AGAIN}
        return templates.TemplateResponse(request, "invitation.html.jinja", content, 200 if annotator else 404)

    @app.post("/invitation/{token}")
    def accept(request: Request, token: str) -> Response:
        if store.annotator_of(token) is None:
            raise SignedOut
        sign_in(request, secret, token)
        return _see(request, "/")

    @app.post("/leave")
    def leave(request: Request) -> Response:
        request.session.clear()
        return _see(request, "/")


def _asset(name: str, kind: str) -> Callable[[], Response]:
    content = (PAGES / name).read_bytes()

    def asset() -> Response:
        # The address that the pages use changes with the content.
        return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=86400"})

    return asset


def _add_tasks(app: FastAPI, study: Study, store: Store, templates: Jinja2Templates) -> None:
    def place_of(assignment: Assignment | None) -> str:
        return "/" if assignment is None else f"/tasks/{assignment.id}"

    def task_of(request: Request, number: int) -> tuple[str, Assignment]:
        """Return who asks, and their task."""
        annotator = _signed_in(request, store).name
        if number > LARGEST:
            raise NotYours
        return annotator, store.assignment(annotator, number)

    def asked(assignment: Assignment, slug: str) -> tuple[str, list[forms.Field]]:
        """Return the part that an address means, and its fields."""
        if (part := forms.part_of(assignment, slug)) is None:
            raise NotYours
        return part, forms.fields_of(study, assignment, part)

    def task_page(
        request: Request, assignment: Assignment, given: Mapping[str, Sequence[str]] | None, told: str, status: int
    ) -> Response:
        """Return the form of what is to be done now, filled with what was `given`, or with the draft where it is None."""
        sheet = forms.sheet_of(study, assignment, assignment.part)
        if given is None:
            values = forms.values_of(sheet.fields, forms.first_content(study, assignment, assignment.part))
        else:
            values = {field.name: list(given.get(field.name, [])) for field in sheet.fields}
        skipping = request.url.path.endswith("/skip")
        shown = {
            "sheet": sheet,
            "assignment": assignment,
            "progress": store.progress(assignment.annotator),
            "values": values,
            "missing": forms.missing_in(sheet.fields, values) if told and not skipping else [],
            "told": told,
            "reason": _one(request, "reason") if skipping else None,
        }
        return templates.TemplateResponse(request, "task.html.jinja", shown, status)

    def once_more(request: Request, number: int, part: str | None, error: Invalid | Stale) -> Response:
        """Return the form with what was entered and what is wrong with it, so that nothing has to be entered again."""
        _, assignment = task_of(request, number)
        if part is None or assignment.part != part:
            raise error
        return task_page(request, assignment, request.state.form, str(error), 409 if isinstance(error, Stale) else 422)

    @app.post("/next")
    def next_task(request: Request) -> Response:
        return _see(request, place_of(store.next(_signed_in(request, store).name)))

    @app.post("/undo")
    def undo(request: Request) -> Response:
        return _see(request, place_of(store.undo(_signed_in(request, store).name)))

    @app.get("/tasks/{number:int}")
    def task(request: Request, number: int) -> Response:
        annotator, assignment = task_of(request, number)
        if assignment.part is not None:
            return task_page(request, assignment, None, "", 200)
        content = {"assignment": assignment, "progress": store.progress(annotator)}
        return templates.TemplateResponse(request, "finished.html.jinja", content)

    @app.post("/tasks/{number:int}/skip")
    def skip(request: Request, number: int) -> Response:
        annotator, assignment = task_of(request, number)
        part, version = assignment.part, _version(request)
        try:
            if part is not None and version == assignment.version:
                # What was entered stays with the task, for when the skip is undone.
                content = forms.read_form(forms.fields_of(study, assignment, part), request.state.form)
                store.keep_draft(annotator, number, part, content)
            store.skip(annotator, number, _one(request, "reason").strip(), version)
        except (Invalid, Stale) as error:
            return once_more(request, number, part, error)
        return _see(request, place_of(store.next(annotator)))

    @app.post("/tasks/{number:int}/{slug}")
    def answer(request: Request, number: int, slug: str) -> Response:
        annotator, assignment = task_of(request, number)
        part, fields = asked(assignment, slug)
        try:
            content = forms.answer_of(forms.read_form(fields, request.state.form))
            stored = store.answer(annotator, number, part, content, _version(request), _seconds(request))
        except (Invalid, Stale) as error:
            return once_more(request, number, part, error)
        return _see(request, place_of(store.next(annotator) if stored.part is None else stored))

    @app.post("/tasks/{number:int}/{slug}/draft")
    def keep_draft(request: Request, number: int, slug: str) -> Response:
        """Keep what is half-filled. `then` says what follows: "undo", "leave" for now, or nothing where the script asks."""
        annotator, assignment = task_of(request, number)
        part, fields = asked(assignment, slug)
        store.keep_draft(annotator, number, part, forms.read_form(fields, request.state.form))
        then = _one(request, "then")
        if then == "undo":
            return _see(request, place_of(store.undo(annotator)))
        return _see(request, "/") if then else Response(status_code=204)
