"""Variables that a provider finds in its environment, set from ``.env`` and the keyring.

The environment belongs to the process, and several managers may live in it. So a variable
that one manager's provider needs with one value can't be had with another by a second one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from hermes_core.errors import ProviderConflictError


class _Claim(NamedTuple):
    value: str
    owner: str
    users: int


class Lease:
    """The variables that one manager asked for; given back when it is shut down."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def set(self, variables: Mapping[str, str], owner: str) -> None:
        """Set variables that the process does not have itself.

        Raises:
            ProviderConflictError: Another manager's provider has one with another value.
        """
        with _LOCK:
            wanted = {
                name: value
                for name, value in variables.items()
                if name in _CLAIMS or name not in os.environ
            }
            for name, value in wanted.items():
                claim = _CLAIMS.get(name)
                if claim is not None and claim.value != value and name not in self._names:
                    raise ProviderConflictError(
                        f"{name} has another value here, for {claim.owner}",
                        where=owner,
                        hint="a process has one environment: run the two in processes of their own",
                    )
            for name, value in wanted.items():
                self._set(name, value, owner)

    def _set(self, name: str, value: str, owner: str) -> None:
        claim = _CLAIMS.get(name, _Claim(value, owner, 0))
        if name not in self._names:
            self._names.append(name)
            claim = claim._replace(users=claim.users + 1)
        _CLAIMS[name] = claim._replace(value=value)
        os.environ[name] = value

    def release(self) -> None:
        """Give the variables back."""
        with _LOCK:
            for name in self._names:
                claim = _CLAIMS[name]
                if claim.users > 1:
                    _CLAIMS[name] = claim._replace(users=claim.users - 1)
                    continue
                del _CLAIMS[name]
                if os.environ.get(name) == claim.value:
                    del os.environ[name]
            self._names.clear()


# The environment is one for the process; so is what we know about it.
_LOCK: Final = threading.Lock()
_CLAIMS: Final[dict[str, _Claim]] = {}


def is_ours(name: str) -> bool:
    """Whether a variable of the process was set by us."""
    with _LOCK:
        return name in _CLAIMS and os.environ.get(name) == _CLAIMS[name].value
