"""Secure the physicians' page: what stands between a request and its route."""

import html
import logging
from collections.abc import Awaitable, Callable
from importlib import resources
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from automedeval.records.package_data import packaged

LOG = logging.getLogger(__name__)
PAGES = resources.files("automedeval.annotation") / "templates"
PLAIN = (PAGES / "plain.html").read_text(encoding="utf-8")
# Bytes: a rationale of 80,000 characters, or forty full comments, in any script (a character takes up to twelve bytes).
BODY_LIMIT = 1024 * 1024
FIELDS = 2_000  # fields of a form
SESSION_DAYS = 30
HEADERS: dict[str, str] = packaged("annotation", "headers")


def protect(app: FastAPI, secret: str, secure: bool) -> None:
    """Put the page's guard and its signed session cookie, which needs https if `secure`, in front of the routes.

    The guard adds security headers to every response, errors included, and answers a crash with a plain page. It reads the
    form of every POST into `request.state.form` (name → values) within a limit, and refuses one of another site, so that no
    route has to check it. Routes that store are called by POST alone.
    """

    @app.middleware("http")
    async def guard(request: Request, route: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            form = {} if request.method in ("GET", "HEAD") else await _form(request)
            request.state.form = form
            response = form if isinstance(form, Response) else await route(request)
        except Exception:
            LOG.exception("a request failed")  # not where: an invitation's path holds its token
            text = "The page failed, perhaps after storing this step. What was stored before is safe. Please repeat the step."
            response = plain_page(500, "Something went wrong", text)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    days = SESSION_DAYS * 24 * 3600
    app.add_middleware(SessionMiddleware, secret, max_age=days, same_site="lax", https_only=secure)


def plain_page(status: int, heading: str, text: str) -> HTMLResponse:
    """Return a page without Jinja, for errors that a template may have caused."""
    return HTMLResponse(PLAIN.format(heading=html.escape(heading), text=html.escape(text)), status)


def field_of(request: Request, name: str) -> str:
    """Return the first value of a form's field, "" if the form has none."""
    return (request.state.form.get(name) or [""])[0]


async def _form(request: Request) -> dict[str, list[str]] | Response:
    """Return the fields of a form, with line ends of one character, or the page that refuses it."""
    chunks = []
    size = 0
    async for chunk in request.stream():  # to its end, so that the browser shows the reason
        size += len(chunk)
        if size <= BODY_LIMIT:
            chunks.append(chunk)
    if size > BODY_LIMIT:
        return plain_page(
            413, "Too much text", "This form is too large. Nothing was stored. Please shorten it."
        )
    # Every browser of these years says whose page sends a form; another site's has no session cookie in any case ("lax").
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return plain_page(
            403,
            "Not from here",
            "This form was sent by a page of another site. Nothing was stored.",
        )
    try:
        body = b"".join(chunks).decode("ascii")
        form = parse_qs(body, keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:  # too many fields, or bytes that are not UTF-8
        return plain_page(400, "Not a form", "This form cannot be read. Nothing was stored.")
    for texts in form.values():
        # A browser sends two characters for a line end, but counts one for `maxlength`.
        texts[:] = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    return form
