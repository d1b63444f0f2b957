"""Servers that this process could not reach, so that a second one does not wait for them as well.

A command asks a server in its own process and in the child process that runs plugin code. Whichever
of the two waited in vain tells the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final


@dataclass(frozen=True, slots=True)
class Outage:
    """A server that could not be reached.

    Attributes:
        url: The address that was tried.
        reason: Why, in one line.
        seconds: How long it took to find out.
    """

    url: str
    reason: str
    seconds: float


#: How long an outage is remembered. After that, the next caller tries the server.
_SECONDS: Final = 10.0


class _KnownOutages:
    """The outages by address, each with its time, and who wants to remember them for longer."""

    def __init__(self) -> None:
        self.by_url: dict[str, tuple[float, Outage]] = {}
        #: How many commands want to remember each outage until they end.
        self.commands = 0


# Module state: a server can't be reached by the whole process.
_KNOWN: Final = _KnownOutages()


@contextmanager
def remembered_outages() -> Iterator[None]:
    """Ask no server again that could not be reached, however long this takes.

    For a command that looks at everything and ends: it waits for each server once.
    """
    _KNOWN.commands += 1
    try:
        yield
    finally:
        _KNOWN.commands -= 1


def outages_are_remembered() -> bool:
    """Whether a server that could not be reached is not asked again."""
    return _KNOWN.commands > 0


def known_outages() -> tuple[Outage, ...]:
    """The servers that could not be reached a moment ago."""
    since = -inf if outages_are_remembered() else monotonic() - _SECONDS
    return tuple(each for at, each in list(_KNOWN.by_url.values()) if at >= since)


def known_outage(url: str) -> Outage | None:
    """That of one server, if there is one."""
    return next((each for each in known_outages() if each.url == url), None)


def note_outages(outages: Iterable[Outage]) -> None:
    """Remember servers that could not be reached, by this process or by its child."""
    now = monotonic()
    _KNOWN.by_url.update((each.url, (now, each)) for each in outages)


def end_outage(url: str) -> None:
    """Forget it: the server answers."""
    _KNOWN.by_url.pop(url, None)
