"""What must not be read or reached: file_safety, url_safety, urllib_security."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from hermes_core.loading.compat.home import get_default_hermes_root, get_hermes_home

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "agent.file_safety": ("get_read_block_error", "raise_if_read_blocked"),
    "hermes_cli.urllib_security": ("open_credentialed_url",),
    "tools.url_safety": ("is_always_blocked_url",),
}


# -- agent.file_safety: which files a tool must not read for the model

#: In a home, files with credentials.
_CREDENTIALS: Final = (
    ".anthropic_oauth.json",
    ".env",
    "auth.json",
    "auth.lock",
    "auth/google_oauth.json",
    "cache/bws_cache.json",
    "webhook_subscriptions.json",
)
#: In a home, folders of which nothing is read, and what they hold.
_FOLDERS: Final = (("mcp-tokens", "tokens"), ("skills/.hub", "texts that nobody has reviewed"))
#: Anywhere, files with the secrets of a project.
_ENVIRONMENTS: Final = frozenset(
    (".env", ".envrc", *(f".env.{kind}" for kind in (
        "local", "development", "production", "test", "staging"))),
)  # fmt: skip


def get_read_block_error(path: str) -> str | None:
    """Return why a file must not be read: it holds credentials. None if it may be."""
    asked = Path(path).expanduser().resolve()
    for home in {get_hermes_home().resolve(), get_default_hermes_root().resolve()}:
        if any(asked == (home / name).resolve() for name in _CREDENTIALS):
            return f"Access denied: {path} holds credentials of the agent and is not read."
        for folder, content in _FOLDERS:
            if asked.is_relative_to((home / folder).resolve()):
                return f"Access denied: {path} is in a folder with {content} and is not read."
    # By name, in any folder: a project's .env is as secret as ours.
    if asked.name.lower() in _ENVIRONMENTS:
        return (
            f"Access denied: {path} usually holds secrets and is not read. "
            "Read .env.example for the names of the variables."
        )
    return None


def raise_if_read_blocked(path: str) -> None:
    """Refuse a file that `get_read_block_error` blocks.

    Raises:
        ValueError: The file must not be read; the text says why.
    """
    try:
        problem = get_read_block_error(path)
    except (OSError, RuntimeError, ValueError):  # no such path: reading it says so
        return
    if problem:
        raise ValueError(problem)


# -- tools.url_safety: addresses at which a cloud keeps its own credentials

_NAMES: Final = frozenset({"metadata.goog", "metadata.google.internal"})
#: Link-local addresses, and the services of AWS (IPv6) and Alibaba outside of them.
_NETWORKS: Final = tuple(
    map(ipaddress.ip_network, ("169.254.0.0/16", "100.100.100.200/32", "fd00:ec2::254/128"))
)


def is_always_blocked_url(url: str) -> bool:
    """Return whether a URL leads to a cloud's metadata service, also by way of a name.

    A name that can't be resolved leads nowhere, so it is not blocked.
    """
    try:
        host = (urlsplit(url).hostname or "").strip().lower().rstrip(".")
    except ValueError:
        return False
    return host in _NAMES or any(map(_is_blocked, _addresses(host)))


def _addresses(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):
        return []
    # Without the zone of a link-local IPv6 address: "fe80::1%eth0" is not a valid address.
    return [str(each[4][0]).partition("%")[0] for each in found]


def _is_blocked(text: str) -> bool:
    address = ipaddress.ip_address(text)
    # ::ffff:169.254.169.254 reaches the same service.
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in network for network in _NETWORKS)


# -- hermes_cli.urllib_security: requests whose credentials stay with who they are for

#: What another origin may see of a request.
_HARMLESS: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}
)
_PORTS: Final = {"http": 80, "https": 443}


def open_credentialed_url(
    request: urllib.request.Request,
    *,
    timeout: float,
    opener_factory: Callable[..., Any] | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> Any:
    """Open a request; a redirect to another origin loses its headers with credentials.

    Args:
        request: The request.
        timeout: Seconds.
        opener_factory: Makes the opener; it is given the handler of redirects.
        ssl_context: For this request alone.
    """
    redirects = _SameOriginRedirects(request.full_url)
    if opener_factory is not None:
        return opener_factory(redirects).open(request, timeout=timeout)
    secure = [] if ssl_context is None else [urllib.request.HTTPSHandler(context=ssl_context)]
    return urllib.request.build_opener(redirects, *secure).open(request, timeout=timeout)


class _SameOriginRedirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, url: str) -> None:
        self._origin = _origin(url)

    def redirect_request(  # noqa: PLR0917 - urllib calls it so
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        target = urljoin(req.full_url, newurl)
        following = super().redirect_request(req, fp, code, msg, headers, target)
        if following is not None and _origin(target) != self._origin:
            for name, _ in following.header_items():
                # A list of what may stay, not of what must go: services invent names for their key
                # headers.
                if name.lower() not in _HARMLESS:
                    following.remove_header(name)
        return following


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme)
