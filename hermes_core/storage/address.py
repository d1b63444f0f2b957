"""The address of a database in ``memory.storage``: what it may contain, and how it is shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

_SCHEMES: Final = ("postgresql", "postgres")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: The secret with the password. If it is set, it counts; otherwise libpq decides.
PASSWORD: Final = "HERMES_STORAGE_PASSWORD"  # noqa: S105 - the name of it
_PASSWORD_HINT: Final = f"remove it there, and run: hermes-plugins secrets set {PASSWORD}"


def address_problem(url: str) -> str:
    """What is wrong with an address, without showing it; "" if nothing is."""
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError:
        return "expected postgresql://user@host/database"
    if parts.scheme not in _SCHEMES:
        return "expected files, or postgresql://user@host/database"
    # config.yaml is copied, shown and committed; a password in it would be, too.
    if has_password or any(key == "password" for key, _ in parse_qsl(parts.query)):
        return f"has a password in it; {_PASSWORD_HINT}"
    return ""


def shown_address(url: str) -> str:
    """An address for messages: without a password and without options."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{at}{hosts}", parts.path, "", ""))


def namespace_problem(name: str) -> str:
    """What is wrong with the name of a namespace; "" if nothing is."""
    if _NAMESPACE.fullmatch(name):
        return ""
    return f"expected up to 63 letters, digits, dots, dashes or underscores, got {name!r}"
