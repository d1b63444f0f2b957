"""The OS keyring, through `keyring`, which may be missing, locked, or never answer.

Every call runs in a daemon thread with a deadline: a locked Secret Service waits for a
window that nobody sees. What a backend says about a failure is left out where it was
given a value, since it may repeat it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from hermes_core.dispatch.worker import Worker
from hermes_core.errors import DeadlineExceeded, ProviderPaused, SecretsError, describe, one_line

#: A keyring that works answers in milliseconds. One that is locked waits for a person who is not
#: there, and a command must not.
SECONDS: Final = 3.0
#: What a Windows credential can hold, with room to spare: 2,560 bytes of UTF-16.
_WINDOWS_CHARACTERS: Final = 1024
#: `keyring` gives its real backends 1 and more; below are plain-text files and null backends.
_ENOUGH: Final = 1
_HINT: Final = "set secrets.backend to dotenv in config.yaml to do without a keyring"

_Result = TypeVar("_Result")


class Keyring:
    """The secrets of one home in the OS keyring.

    Args:
        home: The home; its path is part of every name in the keyring.
        seconds: How long one call may take. After one that took longer no other is made.
    """

    def __init__(self, home: Path, seconds: float = SECONDS) -> None:
        # One home may be reached by several paths; the names in the keyring must be the same for
        # all.
        resolved = os.path.realpath(home)
        self._home = sha256(os.fsencode(resolved)).hexdigest()[:12]
        self._seconds = seconds
        # Once a call has hung, every later one would cost the full deadline again.
        self._stuck = ""
        # Its thread ends soon after the last call; a status command makes several in a row.
        self._worker = Worker("hermes-keyring", linger=1.0)
        self._backends: list[Any] | None = None
        self._proof: str | None = None

    def service(self, provider: str) -> str:
        """The name under which a provider's secrets of this home are stored."""
        return f"hermes-plugins:{provider}:{self._home}"

    def problem(self) -> str:
        """Why no secret can be stored in the keyring, or "". Proved once, by writing one."""
        if self._proof is None:
            try:
                self._proof = self._prove()
            except SecretsError as error:
                self._proof = error.what
        return self._proof

    def get(self, variable: str, provider: str) -> str | None:
        """The value, or None if the keyring has none."""
        return self._call(lambda backends: _get(backends, self.service(provider), variable))

    def set(self, variable: str, value: str, provider: str) -> None:
        """Store a value; it is read back and compared."""
        if _too_long(value):
            raise SecretsError(
                f"the value has {len(value):,} characters; a Windows credential holds at most "
                f"{_WINDOWS_CHARACTERS:,}",
                where=variable,
                hint=_HINT,
            )
        service = self.service(provider)
        self._call(lambda backends: _set(backends, service, variable, value))
        if self.get(variable, provider) != value:
            raise SecretsError(
                "the keyring stored the value, but does not return it", where=variable, hint=_HINT
            )

    def delete(self, variable: str, provider: str) -> bool:
        """Remove a value; whether there was one."""
        return self._call(lambda backends: _delete(backends, self.service(provider), variable))

    def _prove(self) -> str:
        # A backend that loads may still refuse to store, or store nothing: only writing and reading
        # back shows it. A random name, so that two processes don't delete each other's.
        marker = os.urandom(8).hex()
        service = self.service("probe")

        def write_and_read(backends: list[Any]) -> str | None:
            _set(backends, service, marker, marker)
            try:
                return _get(backends, service, marker)
            finally:
                _delete(backends, service, marker)

        found = self._call(write_and_read, tell=True)
        return "" if found == marker else "the keyring does not return what was written to it"

    def _call(self, task: Callable[[list[Any]], _Result], *, tell: bool = False) -> _Result:
        """Run a task with the backends that count, within the deadline.

        ``tell`` says that no value is involved, so that the cause may be quoted.
        """
        if self._stuck:
            raise SecretsError(self._stuck, hint=_HINT)
        results: list[_Result] = []
        problem = ""

        # The error itself stays on the worker: its text or its context may have the value.
        def run() -> None:
            nonlocal problem
            try:
                if self._backends is None:
                    self._backends = _usable_backends()
                results.append(task(self._backends))
            except SecretsError as error:
                problem = error.what
            except Exception as error:  # noqa: BLE001 - a backend's; D-Bus and Windows leak theirs
                problem = _cause(error, tell=tell)

        # On the caller's thread: the import takes longer than the deadline of a call may be.
        _import_keyring()
        try:
            self._worker.call(run, self._seconds)
        except (DeadlineExceeded, ProviderPaused):
            problem = self._stuck = f"the keyring does not answer within {self._seconds:g} s"
        if problem:
            raise SecretsError(problem, hint=_HINT)
        return results[0]


def _too_long(value: str) -> bool:
    return os.name == "nt" and len(value) > _WINDOWS_CHARACTERS


def _import_keyring() -> None:
    """Import `keyring`: slow, and no part of what has to answer in time."""
    try:
        import keyring  # noqa: F401, PLC0415
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, we do without
        raise SecretsError(f"keyring can't be imported: {one_line(describe(error))}") from None


def _cause(error: Exception, *, tell: bool) -> str:
    name = type(error).__name__
    # By name, so that this module needs nothing of `keyring` before the first call.
    if name == "KeyringLocked":
        return "the keyring is locked"
    if name == "NoKeyringError":
        return "no keyring is available"
    return f"the keyring failed: {one_line(describe(error)) if tell else name}"


def _usable_backends() -> list[Any]:
    """The backends that are real, the best first; of a chain, those that it is made of."""
    import keyring  # noqa: PLC0415
    from keyring.backends import chainer, fail, null  # noqa: PLC0415

    try:
        chosen = keyring.get_keyring()
    except Exception as error:  # noqa: BLE001 - a bad PYTHON_KEYRING_BACKEND raises anything
        raise SecretsError(f"the keyring can't be loaded: {one_line(describe(error))}") from None
    backends: list[Any] = [chosen]
    # A chain hides which backend answers and includes the unsafe ones, so its parts are judged one
    # by one.
    if isinstance(chosen, chainer.ChainerBackend):
        backends = list(chosen.backends)
    if all(isinstance(each, fail.Keyring) for each in backends):
        raise SecretsError("no keyring is available")
    real = [each for each in backends if not isinstance(each, fail.Keyring | null.Keyring)]
    if not real:
        raise SecretsError("the keyring is disabled (null backend)")
    safe = [each for each in real if each.priority >= _ENOUGH]
    if not safe:
        name = f"{type(real[0]).__module__}.{type(real[0]).__qualname__}"
        raise SecretsError(f"the keyring {name} is not a safe one (its priority is below 1)")
    return safe


def _get(backends: list[Any], service: str, variable: str) -> str | None:
    for backend in backends:
        value: str | None = backend.get_password(service, variable)
        if value is not None:
            return value
    return None


def _set(backends: list[Any], service: str, variable: str, value: str) -> None:
    for backend in backends:
        try:
            backend.set_password(service, variable, value)
        except NotImplementedError:  # one that can only be read
            continue
        return
    raise SecretsError("the keyring can only be read")


def _delete(backends: list[Any], service: str, variable: str) -> bool:
    found = False
    for backend in backends:
        if backend.get_password(service, variable) is not None:
            backend.delete_password(service, variable)
            found = True
    return found
