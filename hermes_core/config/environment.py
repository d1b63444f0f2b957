"""Variables that a provider finds in its environment, set from ``.env`` and the keyring.

The environment belongs to the process: every thread sees it, and every child process that the
agent starts inherits it. So a variable is set only while code of the provider runs (its import
and its calls), and removed afterwards.

Several managers may live in a process. A variable that one manager's provider needs with one
value can't be had with another by a second one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hermes_core.errors import ProviderConflictError


@dataclass
class _Claim:
    """``value`` is empty where a provider must not find the variable."""

    value: str
    owner: str
    # How many leases have it, and how many of these need it set now.
    leases: int = 0
    needed: int = 0
    before: str | None = None


class Lease:
    """The variables of one manager's provider; released when the manager is shut down.

    ::

        lease.set({"ACME_API_KEY": "..."}, "plugin acme")
        with lease.applied():
            ...  # the provider finds them
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._held: set[str] = set()
        #: How many calls run; they may overlap, on several threads.
        self._calls = 0
        self._closing: list[Callable[[], None]] = []

    def set(
        self, variables: Mapping[str, str], owner: str, held: Collection[str] = frozenset()
    ) -> None:
        """Name variables that the process does not have itself.

        Args:
            variables: By name. An empty value means that this provider has no value: it must
                not find the one of another home.
            owner: Whose they are, for messages.
            held: Those that stay set until `release`, also between the provider's calls.

        Raises:
            ProviderConflictError: Another manager's provider has one with another value.
        """
        with _LOCK:
            # What the process itself has wins over .env and the keyring, so it is left alone.
            wanted = {
                name: value
                for name, value in variables.items()
                if _is_ours(name) or not os.environ.get(name)
            }
            # All conflicts first, in a loop before the one that sets: a raise must leave nothing
            # set.
            for name, value in wanted.items():
                claim = _CLAIMS.get(name)
                # This lease's own claim is not a conflict: a manager that reloads may change its
                # value.
                shared = claim is not None and claim.leases > (name in self._names)
                if claim is not None and shared and claim.value != value:
                    raise ProviderConflictError(
                        f"{name} has another value here, for {claim.owner}",
                        where=owner,
                        hint="a process has one environment: run them in separate processes",
                    )
            for name, value in wanted.items():
                self._claim(name, value, owner, held=name in held)

    def _claim(self, name: str, value: str, owner: str, *, held: bool) -> None:
        claim = _CLAIMS.setdefault(name, _Claim(value, owner))
        if claim.value != value:
            # First the old value goes: `_unset` compares with it.
            _unset(name, claim)
            claim.value = value
            if claim.needed:
                _set(name, claim)
        if name not in self._names:
            self._names.append(name)
            claim.leases += 1
            if held:
                self._held.add(name)
            if held or self._calls:
                _need(name)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the variables while code of the provider runs."""
        with _LOCK:
            self._calls += 1
            if self._calls == 1:
                _need(*self._passing())
        try:
            yield
        finally:
            with _LOCK:
                self._calls -= 1
                if not self._calls:
                    _free(self._passing())

    def hold(self) -> None:
        """Set the variables until `release`."""
        with _LOCK:
            self._calls += 1
            if self._calls == 1:
                _need(*self._passing())

    def _passing(self) -> list[str]:
        return [name for name in self._names if name not in self._held]

    def when_released(self, close: Callable[[], None]) -> None:
        """Call ``close`` at the end of the next `release`."""
        self._closing.append(close)

    def release(self) -> None:
        """Remove the variables, also from under a call that hangs."""
        with _LOCK:
            _free(self._names if self._calls else self._held)
            for name in self._names:
                _CLAIMS[name].leases -= 1
                if not _CLAIMS[name].leases:
                    del _CLAIMS[name]
            # A call that still runs finds no names when it ends.
            self._names.clear()
            self._held.clear()
        while self._closing:
            self._closing.pop()()


def _need(*names: str) -> None:
    for name in names:
        claim = _CLAIMS[name]
        claim.needed += 1
        if claim.needed == 1:
            _set(name, claim)


def _free(names: Iterable[str]) -> None:
    for name in names:
        claim = _CLAIMS[name]
        claim.needed -= 1
        if not claim.needed:
            _unset(name, claim)


def _set(name: str, claim: _Claim) -> None:
    # Somebody may have exported a value since: theirs counts.
    if claim.value and not os.environ.get(name):
        claim.before = os.environ.get(name)
        os.environ[name] = claim.value


def _unset(name: str, claim: _Claim) -> None:
    """Put back what the process had, unless somebody has changed it since."""
    # A plugin may write to os.environ as well; what it wrote is not ours to remove.
    if not claim.value or os.environ.get(name) != claim.value:
        return
    if claim.before is None:
        del os.environ[name]
    else:
        os.environ[name] = claim.before


# A process has one environment, so this state is global to the process as well.
_LOCK: Final = threading.Lock()
_CLAIMS: Final[dict[str, _Claim]] = {}


def claimed_names() -> list[str]:
    """The variables that managers of this process have leased."""
    with _LOCK:
        return list(_CLAIMS)


def is_ours(name: str) -> bool:
    """Whether a variable of the process was set by us."""
    with _LOCK:
        return _is_ours(name)


def _is_ours(name: str) -> bool:
    # Both: somebody may have exported another value after we set ours, and then theirs counts.
    claim = _CLAIMS.get(name)
    return claim is not None and os.environ.get(name, "") == claim.value
