"""The address of a database in ``memory.storage``: what it may contain, and how it is shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

_SCHEMES: Final = ("postgresql://", "postgres://")
_PORTS: Final = 1 << 16
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: The secret with the password. If it is set, it counts; otherwise libpq decides.
PASSWORD: Final = "HERMES_STORAGE_PASSWORD"  # noqa: S105 - the name of it
_PASSWORD_HINT: Final = f"remove it there, and run: hermes-plugins secrets set {PASSWORD}"
#: Other parameters of libpq that are secret, of all versions.
_SECRETS: Final = ("sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_SERVICE_HINT: Final = "put it into the file that PGSERVICEFILE names, and use ?service=NAME"
_EXPECTED: Final = "expected postgresql://user@host/database"


def address_problem(url: str) -> str:
    """What is wrong with an address, without showing it; "" if nothing is."""
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError:
        return _EXPECTED
    if not url.startswith(_SCHEMES):
        return f"expected files, or {_EXPECTED.removeprefix('expected ')}"
    # libpq knows no fragments: what follows would be a part of a password or of a parameter.
    if "#" in url:
        return "has a # in it; write %23 instead"
    given = parse_qsl(parts.query, keep_blank_values=True)
    if problem := _secret_problem(given, has_password=has_password):
        return problem
    return _port_problem(parts.netloc, [value for key, value in given if key == "port"])


def _secret_problem(given: list[tuple[str, str]], *, has_password: bool) -> str:
    # config.yaml is copied, shown and committed; a password in it would be, too.
    if has_password or any(key.lower() == "password" for key, _ in given):
        return f"has a password in it; {_PASSWORD_HINT}"
    if secret := next((key for key, _ in given if key.lower() in _SECRETS), ""):
        return f"has {secret} in it; {_SERVICE_HINT}"
    return ""


def _port_problem(netloc: str, given: list[str]) -> str:
    """What is wrong with the ports, one for each of several hosts."""
    hosts = netloc.rpartition("@")[2].split(",")
    # An address of IPv6 has colons itself, in brackets.
    ports = [each.rpartition("]")[2].rpartition(":")[2] for each in hosts if ":" in each]
    for port in (*ports, *(each for listed in given for each in listed.split(","))):
        if port and not (port.isdecimal() and 0 < int(port) < _PORTS):
            # Not which one: behind a slash that was not escaped, it is a part of a password.
            return f"has a port that is not a number from 1 to {_PORTS - 1}"
    return ""


def shown_address(url: str) -> str:
    """An address for messages: without a password and without options."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}"


def namespace_problem(name: str) -> str:
    """What is wrong with the name of a namespace; "" if nothing is."""
    if _NAMESPACE.fullmatch(name):
        return ""
    return f"expected up to 63 letters, digits, dots, dashes or underscores, got {name!r}"
