"""Downloads one small file: over https, or over http from this machine."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from ipaddress import ip_address
from time import monotonic
from typing import IO, Final
from urllib.parse import urlsplit

from hermes_core import __version__
from hermes_core.install.index import PluginIndexError

_SECONDS: Final = 30.0
_CHUNK: Final = 65_536
_CHECK: Final = "check the address"


def download(url: str, limit: int) -> bytes:
    """The content behind a URL of at most ``limit`` bytes.

    Raises:
        PluginIndexError: The address is not allowed, unreachable, too slow or too large.
    """
    _refuse_insecure(url, url)
    opener = urllib.request.build_opener(_SecureRedirects(url))
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        url, headers={"User-Agent": f"hermes-plugins/{__version__}", "Accept": "application/json"}
    )
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            return _read(answer, limit, url)
    except urllib.error.HTTPError as error:
        error.close()
        raise PluginIndexError(
            f"the server answered {error.code} {error.reason}", where=url, hint=_CHECK
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        hint = f"{_CHECK} and your connection"
        raise PluginIndexError(f"is unreachable: {reason}", where=url, hint=hint) from None


def _read(answer: IO[bytes], limit: int, url: str) -> bytes:
    """Read to the end. The timeout of the socket is for one packet, this one is for all."""
    end = monotonic() + _SECONDS
    content = b""
    while chunk := answer.read(_CHUNK):
        content += chunk
        if len(content) > limit:
            raise PluginIndexError(f"has more than {limit:,} bytes", where=url, hint=_CHECK)
        if monotonic() > end:
            hint = "try again later, or download it and name the file"
            raise PluginIndexError(f"takes longer than {_SECONDS:.0f} s", where=url, hint=hint)
    return content


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to an address that a person could have given."""

    def __init__(self, url: str) -> None:
        self._url = url

    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Follow it, or raise."""
        _refuse_insecure(newurl, self._url)
        # Nobody on the network may lead us to a server on this machine.
        if urlsplit(newurl).scheme == "http" and urlsplit(self._url).scheme == "https":
            raise PluginIndexError(f"leads to {newurl}", where=self._url, hint=_CHECK)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refuse_insecure(url: str, where: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return
    raise PluginIndexError(
        "is not an address of an index" if url == where else f"leads to {url}",
        where=where,
        hint="use https, http on this machine, or a file",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
