"""Security of the physicians' page: what stands between a request and a route.

`Guard` puts the security headers on every answer, errors included, and turns a crash into a plain page. `Forms` reads the body
of every POST, within a limit, and refuses it unless it carries the token of its session: no route checks that again, so none
can forget it. Between the two stands Starlette's signed session cookie.
"""

import hashlib
import hmac
import html
import logging
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger(__name__)
# Bytes. Ten full comments in Latin letters stay below it, and five in any script (a sign takes up to twelve bytes in a form).
BODY_LIMIT = 128 * 1024
DRAINED = 8 * 1024 * 1024  # bytes of a body that is refused and still read, so that the browser shows why
FIELDS = 2_000  # fields of a form
LONGEST_PATH = 2_000  # characters
SESSION_SECONDS = 30 * 24 * 3600.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Robots-Tag": "noindex, nofollow",
}


def layers(secret: str, secure: bool) -> list[Middleware]:
    """Return the middleware of the page, outermost first.

    Args:
        secret: what session cookies are signed with.
        secure: whether browsers reach the page by https alone; its cookie then never travels without.
    """
    session = Middleware(SessionMiddleware, secret, max_age=int(SESSION_SECONDS), same_site="lax", https_only=secure)
    return [Middleware(Guard), session, Middleware(Forms)]


def plain_page(status: int, heading: str, text: str) -> HTMLResponse:
    """Return a page that needs no template: it is shown where a template, or what it reads, may be what failed."""
    heading, text = html.escape(heading), html.escape(text)
    return HTMLResponse(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{heading}</title>\n<link rel="stylesheet" href="/page.css">\n</head>\n<body>\n<main class="narrow">\n'
        f'<h1>{heading}</h1>\n<p>{text}</p>\n<p><a href="/">To the first page</a></p>\n</main>\n</body>\n</html>\n',
        status,
    )


def csrf_of(request: Request) -> str:
    """Return the token that a form of this session carries; the session gets one if it has none."""
    return request.session.setdefault("csrf", secrets.token_urlsafe(24))


def sign_in(request: Request, secret: str, token: str) -> None:
    """Begin a physician's session, on the invitation that they followed; whatever the browser held before is dropped.

    The session holds the invitation itself, so that a new invitation, which makes the old one void, ends it. Its form token
    follows from the invitation: a page that was open when a session ended can be sent after signing in again.
    """
    request.session.clear()
    form_token = hmac.new(secret.encode(), f"form:{token}".encode(), hashlib.sha256).hexdigest()
    request.session.update(invitation=token, csrf=form_token)


class Guard:
    """Put the security headers on every answer, and answer a crash with a plain page."""

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
                    headers.setdefault(name, value)  # a route may have set its own: a figure has styles of its own
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            if len(scope["path"]) > LONGEST_PATH:  # a number of thousands of digits is read by no route
                await plain_page(404, "There is nothing here", "The address leads nowhere.")(
                    scope, receive, send_guarded
                )
                return
            await self.app(scope, receive, send_guarded)
        except Exception:
            # The path is not logged: that of an invitation holds its token.
            LOG.exception("a request failed")
            if started:
                raise
            text = "The page failed. Nothing was stored by this step, and what was stored before is safe. Please go on."
            await plain_page(500, "Something went wrong", text)(scope, receive, send_guarded)


class Forms:
    """Read the form of every POST into `request.state.form` (name → values), after checking its size, kind and token.

    What is refused reaches no route. A route that only reads is never called by POST, and one that stores never by GET.
    """

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        body = await _body(receive)
        refusal = None
        form: dict[str, list[str]] = {}
        if body is None:
            refusal = plain_page(413, "Too much text", "This form is too large. Nothing was stored. Please shorten it.")
        elif request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
            refusal = plain_page(415, "Not a form", "This page takes its own forms only. Nothing was stored.")
        else:
            try:
                form = _fields(body)
            except ValueError:
                refusal = plain_page(400, "Not a form", "This form cannot be read. Nothing was stored.")
        if refusal is None and not _token_fits(request.session, form):
            text = (
                "Nothing was stored, because this form does not belong to your present session. Please open your invitation "
                "link again (your browser has to allow cookies), and then repeat this step."
            )
            refusal = plain_page(403, "Please sign in again", text)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})["form"] = form
        await self.app(scope, receive, send)


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request, None where it is longer than the limit."""
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


def _fields(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form; line ends become those that lengths are counted with.

    Raises:
        ValueError: too many fields, or bytes that are not UTF-8.
    """
    form: dict[str, list[str]] = {}
    pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS)
    for name, value in pairs:
        # A browser sends two characters for a line end and counts one towards `maxlength`.
        form.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\r", "\n"))
    return form


def _token_fits(session: Mapping[str, str], form: Mapping[str, list[str]]) -> bool:
    given, own = form.get("csrf", []), session.get("csrf")
    return own is not None and len(given) == 1 and hmac.compare_digest(given[0].encode(), own.encode())
