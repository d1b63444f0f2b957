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
    """``value`` is empty where a provider must not find the variable."""

    value: str
    owner: str
    # How many leases hold it; the last one restores what the process had before.
    users: int
    before: str | None


class Lease:
    """The variables that one manager asked for; released when it is shut down."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def set(self, variables: Mapping[str, str], owner: str) -> None:
        """Set variables that the process does not have itself.

        Args:
            variables: By name. An empty value means that this provider has no value: it must
                not find the one of another home.
            owner: Whose they are, for messages.

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
                shared = claim is not None and claim.users > (name in self._names)
                if claim is not None and shared and claim.value != value:
                    raise ProviderConflictError(
                        f"{name} has another value here, for {claim.owner}",
                        where=owner,
                        hint="a process has one environment: run the two in processes of their own",
                    )
            for name, value in wanted.items():
                self._set(name, value, owner)

    def _set(self, name: str, value: str, owner: str) -> None:
        claim = _CLAIMS.get(name, _Claim(value, owner, 0, os.environ.get(name)))
        if name not in self._names:
            self._names.append(name)
            claim = claim._replace(users=claim.users + 1)
        _CLAIMS[name] = claim._replace(value=value)
        if value:
            os.environ[name] = value
        # The secret was removed since: `_restore` compares with the old value that we had set.
        elif claim.value:
            _restore(name, claim)

    def release(self) -> None:
        """Release the variables, and restore what the process had before."""
        with _LOCK:
            for name in self._names:
                claim = _CLAIMS[name]
                if claim.users > 1:
                    _CLAIMS[name] = claim._replace(users=claim.users - 1)
                    continue
                del _CLAIMS[name]
                _restore(name, claim)
            self._names.clear()


def _restore(name: str, claim: _Claim) -> None:
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
    return name in _CLAIMS and os.environ.get(name, "") == _CLAIMS[name].value
