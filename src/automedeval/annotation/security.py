"""Secure the physicians' page by middleware between a request and its route.

`Guard` adds security headers to every response, errors included, and
answers a crash with a plain page. `Forms` reads the body of every POST, within a limit, and refuses it without the token of its
session, so that no route has to check it. Starlette's signed session cookie is between the last two.
"""

import hashlib
import hmac
import html
import logging
import secrets
from importlib import resources
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automedeval.records.tables import packaged

LOG = logging.getLogger(__name__)
PAGES = resources.files("automedeval.annotation") / "templates"
PLAIN = (PAGES / "plain.html").read_text(encoding="utf-8")
# Bytes: a rationale of 80,000 characters, or forty full comments, in any script (a character takes up to twelve bytes).
BODY_LIMIT = 1024 * 1024
DRAINED = 8 * BODY_LIMIT  # bytes that are read of a refused body, so that the browser shows the reason
FIELDS = 2_000  # fields of a form
LONGEST_PATH = 2_000  # characters
SESSION_SECONDS = 30 * 24 * 3600.0
HEADERS: dict[str, str] = packaged("annotation", "headers")


def layers(secret: str, secure: bool) -> list[Middleware]:
    """Return the middleware of the page, outermost first; `secret` signs session cookies, which need https if `secure`."""
    session = Middleware(SessionMiddleware, secret, max_age=int(SESSION_SECONDS), same_site="lax", https_only=secure)
    return [Middleware(Guard), session, Middleware(Forms)]


def plain_page(status: int, heading: str, text: str) -> HTMLResponse:
    """Return a page without Jinja, for errors that a template may have caused."""
    return HTMLResponse(PLAIN.format(heading=html.escape(heading), text=html.escape(text)), status)


def csrf_of(request: Request) -> str:
    """Return the session's token for forms; create it if there is none."""
    return request.session.setdefault("csrf", secrets.token_urlsafe(24))


def field_of(request: Request, name: str) -> str:
    """Return the first value of a form's field, "" if the form has none."""
    return (request.state.form.get(name) or [""])[0]


def sign_in(request: Request, secret: str, token: str) -> None:
    """Start a physician's session on an invitation; an earlier session of the browser ends.

    The session holds the invitation, so a new invitation, which makes the old one void, ends it. The token for forms is derived
    from the invitation, so a page that was open before can be sent after signing in again.
    """
    request.session.clear()
    form_token = hmac.new(secret.encode(), f"form:{token}".encode(), hashlib.sha256).hexdigest()
    request.session.update(invitation=token, csrf=form_token)


class Guard:
    """Add the security headers to every response, and answer a crash with a plain page."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        page = self.app
        try:
            if len(scope["path"]) > LONGEST_PATH:  # no route parses a number of thousands of digits
                page = plain_page(404, "There is nothing here", "The address leads nowhere.")
            await page(scope, receive, send_guarded)
        except Exception:
            # The path is not logged: an invitation's path holds its token.
            LOG.exception("a request failed")
            if started:
                raise
            text = "The page failed, perhaps after storing this step. What was stored before is safe. Please repeat the step."
            await plain_page(500, "Something went wrong", text)(scope, receive, send_guarded)


class Forms:
    """Read the form of every POST into `request.state.form` (name → values), after checking its size, kind and token.

    A refused request reaches no route. Routes that store are called by POST alone, the others by GET alone.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            form = _form(Request(scope), await _body(receive))
            if isinstance(form, Response):
                await form(scope, receive, send)
                return
            scope.setdefault("state", {})["form"] = form
        await self.app(scope, receive, send)


def _form(request: Request, body: bytes | None) -> dict[str, list[str]] | Response:
    """Return the fields of a form, with line ends of one character, or the page that refuses it."""
    if body is None:
        return plain_page(413, "Too much text", "This form is too large. Nothing was stored. Please shorten it.")
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        return plain_page(415, "Not a form", "This page takes its own forms only. Nothing was stored.")
    form: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    except ValueError:  # too many fields, or bytes that are not UTF-8
        return plain_page(400, "Not a form", "This form cannot be read. Nothing was stored.")
    for name, value in pairs:
        # A browser sends two characters for a line end, but counts one for `maxlength`.
        form.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\r", "\n"))
    tokens, session_token = form.get("csrf", []), request.session.get("csrf")
    if session_token is None or len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), session_token.encode()):
        text = (
            "Nothing was stored, because this form does not belong to your present session. Please open your invitation "
            "link again (your browser has to allow cookies), and then repeat this step."
        )
        return plain_page(403, "Please sign in again", text)
    return form


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request, None if it is longer than the limit."""
    chunks, size, more = [], 0, True
    while more and size <= DRAINED:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size <= BODY_LIMIT:
            chunks.append(chunk)
    return b"".join(chunks) if size <= BODY_LIMIT else None
