"""Who may use the page: Host, token, cookie, Origin, and what a browser may load.

The page listens on loopback, and every request passes four checks:

- **Host** must be a name of this server. A name that an attacker points to 127.0.0.1 (DNS
  rebinding) is not.
- **Cookie**: the first address has a random token, which is exchanged for a cookie that is
  HttpOnly and SameSite=Strict. Other sites can't send it, and scripts can't read it.
- **Origin**: what changes something must come from the page itself, by ``Sec-Fetch-Site`` or
  ``Origin``, and has a token in its form (CSRF).
- **Content-Security-Policy**: nothing inline, nothing from elsewhere, no frames.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import socket
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on
_READING: Final = ("GET", "HEAD")
#: A form has at most a note; a conversation is never sent.
MAX_BODY: Final = 1_000_000

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, browsers send "Origin: null" with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """The secrets of a running page, and the names that it answers to.

    Args:
        host: Where it listens.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        #: For the address that a person copies; valid while the page runs.
        self.token = secrets.token_urlsafe(32)
        #: For the address that is passed to a browser, whose arguments other users can see.
        self._once = {secrets.token_urlsafe(32)}
        self._session = secrets.token_urlsafe(32)
        self.csrf = hashlib.sha256(f"csrf {self._session}".encode()).hexdigest()
        # With the port: browsers send cookies to every port of a host.
        self.cookie = f"hermes-ui-{port}"

    def url(self, *, once: bool = False) -> str:
        """The first address; with ``once``, one that can be used once."""
        token = next(iter(self._once), self.token) if once else self.token
        return f"{self.origin}/?token={token}"

    @property
    def origin(self) -> str:
        """The address without a path."""
        host = "127.0.0.1" if self.host in _WILDCARDS else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def accepts_token(self, token: str) -> bool:
        """Whether a token opens the page."""
        if secrets.compare_digest(token.encode(), self.token.encode()):
            return True
        if token in self._once:
            self._once.discard(token)
            return True
        return False

    def accepts_cookie(self, value: str) -> bool:
        """Whether a cookie is the one that was set."""
        return secrets.compare_digest(value.encode(), self._session.encode())

    def accepts_csrf(self, value: str) -> bool:
        """Whether a form is the page's own."""
        return secrets.compare_digest(value.encode(), self.csrf.encode())

    @property
    def set_cookie(self) -> str:
        """The header that sets the cookie."""
        return f"{self.cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"

    def accepts_host(self, header: str) -> bool:
        """Whether a Host header names this server, and not somebody else's name for it."""
        try:
            parts = urlsplit(f"//{header}")
            host, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port:
            return False
        if host in (*LOOPBACK, self.host.lower()):
            return True
        # Rebinding needs a name. An address is one of ours, or the request would not be here.
        return self.host in _WILDCARDS and (_is_address(host) or host == socket.gethostname())

    def accepts_origin(self, headers: dict[str, str]) -> bool:
        """Whether a request that changes something comes from the page itself."""
        if site := headers.get("sec-fetch-site", ""):
            return site == "same-origin"
        origin = headers.get("origin", "")
        if not origin:
            return False
        parts = urlsplit(origin)
        return parts.scheme == "http" and parts.netloc == headers.get("host", "")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class GuardedApp:
    """The application behind the checks of `Access`.

    Args:
        application: What answers requests that pass.
        access: The checks.
        entrance: A page with a link, for somebody who has just shown the token.
        refusal: A page for somebody without a cookie.
    """

    def __init__(self, application: Any, access: Access, entrance: bytes, refusal: bytes) -> None:
        self._application = application
        self._access = access
        self._entrance = entrance
        self._refusal = refusal

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # websockets: there are none
        headers = _headers_of(scope)
        problem = self._problem(scope, headers)
        if problem is not None:
            await _answer(send, *problem)
            return
        if (token := _token_of(scope)) and self._access.accepts_token(token):
            # A page and not a redirect: a browser that came from another site, such as a terminal
            # in a browser, would follow a redirect without the cookie.
            cookie = (b"set-cookie", self._access.set_cookie.encode())
            await _answer(send, 200, self._entrance, [cookie])
            return
        if not scope["path"].startswith("/static/") and not self._is_known(headers):
            await _answer(send, 401, self._refusal)
            return
        await self._application(scope, receive, _with_headers(send))

    def _problem(self, scope: Any, headers: dict[str, str]) -> tuple[int, bytes] | None:
        if not self._access.accepts_host(headers.get("host", "")):
            return 421, b"This is not the name of this server.\n"
        if scope["method"] in _READING:
            return None
        if scope["method"] != "POST":
            return 405, b"This method is not used here.\n"
        if not self._access.accepts_origin(headers):
            return 403, b"This request does not come from the page.\n"
        return None

    def _is_known(self, headers: dict[str, str]) -> bool:
        # Not SimpleCookie, which drops all cookies if one of another page is not to its taste:
        # every page on this machine sets cookies for the same host.
        pairs = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
        values = [value for name, _, value in pairs if name == self._access.cookie]
        return any(map(self._access.accepts_cookie, values))


def _headers_of(scope: Any) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _token_of(scope: Any) -> str:
    if scope["path"] != "/" or scope["method"] != "GET":
        return ""
    query = str(scope["query_string"], "latin-1")
    return parse_qs(query).get("token", [""])[0]


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            known = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *_security_headers(known)]
        await send(message)

    return sending


def _security_headers(known: Iterable[bytes] = ()) -> list[tuple[bytes, bytes]]:
    pairs = ((name.encode(), value.encode()) for name, value in _HEADERS.items())
    return [each for each in pairs if each[0] not in known]


async def _answer(
    send: Any, status: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    kind = b"text/html; charset=utf-8" if body.startswith(b"<") else b"text/plain"
    headers = [(b"content-type", kind), *more, *_security_headers()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
