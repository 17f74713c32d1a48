"""Who may talk to the server: by Host, by Origin, by token. Everything else is refused before any handler runs."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pahs.errors import PahsError
from pahs.files import whole
from pahs.web.settings import LOOPBACK, SHORTEST_TOKEN, Settings

COOKIE = "pahs"
_SAFE = ("GET", "HEAD")
_OPEN = re.compile(r"/(sign-in|static/[a-z]+\.(css|js|svg))")
"""What a browser needs to ask for the token."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
}


def made_token(folder: Path) -> str:
    """The token of a server that was given none: made once, readable by its user only."""
    file = folder / "token"
    try:
        token = file.read_text().strip()
    except FileNotFoundError:
        token = ""
    except (OSError, UnicodeDecodeError) as error:
        raise PahsError(f"{file}: cannot be read ({error}); remove it to have a new one made") from None
    if token and len(token) < SHORTEST_TOKEN:
        raise PahsError(
            f"{file}: holds fewer than {SHORTEST_TOKEN} characters; remove it to have a new one made"
        )
    if not token:  # there is none, or an earlier version was killed before it had written it
        token = secrets.token_urlsafe(24)
        with whole(file) as partial:
            partial.touch(mode=0o600)
            partial.write_text(token + "\n")
    return token


class Guard:
    """Wraps the application; every request passes here."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.token = settings.token
        self.names = {*LOOPBACK, *settings.names}
        if not settings.local:
            self.names |= {settings.host, socket.gethostname(), socket.getfqdn()}
        self.any_address = not settings.local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        answer = await self._refusal(scope)
        await (answer or self.app)(scope, receive, send_with_headers)

    async def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further, or None."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            known, own = self._known(host), origin is None or urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # such as a bracket of an address of IPv6 that is never closed
            return refused(400, "Host or Origin is not a valid name")
        if not known:
            return refused(421, f"Host {host!r} is not this server; start it with --name to allow that name")
        if not own:
            return refused(403, "the request comes from another site")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["method"] not in _SAFE:
            return refused(403, "the request comes from another site")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return refused(403, "the request comes from another site")
        if self.token is None:
            return None
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            return await self._signed_in(given, secure=scope["scheme"] == "https")
        if _OPEN.fullmatch(scope["path"]):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._right(given.strip()):
            return None
        cookie = Request(scope).cookies.get(COOKIE, "")
        if hmac.compare_digest(cookie.encode(), self._seal().encode()):
            return None
        if scope["path"] == "/" and scope["method"] in _SAFE:
            return RedirectResponse("/sign-in", 303)
        return refused(401, "this server needs its token: as cookie, or as `Authorization: Bearer TOKEN`")

    def _known(self, host: str) -> bool:
        """Whether a Host header names this server. A foreign name that resolves to us would be another site's."""
        name = urlsplit(f"//{host}").hostname or ""
        if name in self.names or name.lower() in {known.lower() for known in self.names}:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    def _seal(self) -> str:
        """The cookie's value: it ends with the token, and does not give it away."""
        return hmac.new((self.token or "").encode(), b"pahs sign-in", hashlib.sha256).hexdigest()

    async def _signed_in(self, given: str, secure: bool) -> Response:
        if not self._right(given):
            await anyio.sleep(0.5)  # guessing takes its time
            return RedirectResponse(f"/sign-in?{urlencode({'wrong': 1})}", 303)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, self._seal(), max_age=365 * 24 * 3600, httponly=True, samesite="strict", secure=secure
        )
        return answer


def refused(status: int, error: str) -> JSONResponse:
    """An error as every part of the API gives it."""
    return JSONResponse({"error": error}, status)
