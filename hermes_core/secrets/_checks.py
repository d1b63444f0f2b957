"""What may be a variable's name and a secret's value. No message here holds a value."""

from __future__ import annotations

import re
from typing import Final

from hermes_core.errors import SecretsError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: A process can't be given a longer variable on Linux (128 KB with its name).
MOST_BYTES: Final = 100_000


def is_name(variable: str) -> bool:
    """Whether a shell would take it for a variable's name."""
    return bool(_NAME.fullmatch(variable))


def check_name(variable: str) -> str:
    """The name, if it is one. What is not is never shown: it may be a value, misplaced."""
    if not is_name(variable):
        raise SecretsError(
            "that is no variable's name",
            hint="letters, digits and _ only, not beginning with a digit: HONCHO_API_KEY",
        )
    return variable


def check_value(variable: str, value: str) -> str:
    """The value, if every store can hold it."""
    if problem := _problem(value):
        raise SecretsError(f"the value {problem}; nothing was stored", where=variable)
    return value


def _problem(value: str) -> str:
    if not value:
        return "is empty"
    if "\n" in value or "\r" in value:
        return "has a line break, which a .env can't hold for every reader"
    if "\0" in value:
        return "has a NUL character, which no variable can hold"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if size > MOST_BYTES:
        return f"has {size:,} bytes; a variable can't hold more than {MOST_BYTES:,}"
    return ""
