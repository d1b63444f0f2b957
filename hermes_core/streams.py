"""Keeps the standard streams and the environment ours while a plugin loads or starts.

What a plugin prints while it loads goes to stderr, so that it can't spoil output that a
program reads; what other threads print goes where it always goes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from hermes_core.environment import is_ours


class _Router:
    """Stands in for stdout: a loading thread's text goes to stderr, everybody else's on.

    The standard streams belong to the process, and so does this.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._loading: list[int] = []
        self._stdout: Any = None

    def enter(self) -> None:
        """The current thread begins to load a plugin."""
        with self._lock:
            if sys.stdout is not self:  # a redirection may have put us back
                self._stdout, sys.stdout = sys.stdout, self
            self._loading.append(threading.get_ident())

    def leave(self) -> None:
        """It is done, at whatever time."""
        with self._lock:
            self._loading.remove(threading.get_ident())
            # Whatever a plugin has put in its place goes, too.
            sys.stdout = self if self._loading else self._stdout

    def put_back(self, stdout: Any) -> None:
        """Undo what a plugin did to ``sys.stdout``, also if it still runs."""
        with self._lock:
            if self._loading:
                sys.stdout = self
            elif stdout is not self:
                sys.stdout = stdout

    def write(self, text: str) -> int:
        """Write to where it belongs; nowhere, in a process that has no streams."""
        stream = sys.stderr if threading.get_ident() in self._loading else self._stdout
        return stream.write(text) if stream is not None else len(text)

    def __getattr__(self, name: str) -> Any:
        mine = threading.get_ident() in self._loading
        return getattr(sys.stderr if mine else self._stdout, name)

    def close(self) -> None:
        """Stay open."""


_ROUTER: Final = _Router()


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """On the thread that loads: what it prints goes to stderr."""
    _ROUTER.enter()
    try:
        yield
    finally:
        _ROUTER.leave()


@contextmanager
def guarded_process(who: str, warnings: list[str]) -> Iterator[None]:
    """On the thread that waits: what a plugin does to streams and environment is undone.

    What it adds to the environment may stay, its libraries look for it there. A line that
    says what was put back is added to ``warnings``.
    """
    before = dict(os.environ)
    try:
        with _guarded_streams():
            yield
    finally:
        names = [name for name in _taken(before) if not is_ours(name)]
        for name in names:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        if names:
            warnings.append(f"{who} changed the environment; put back: {', '.join(names)}")


def _taken(before: dict[str, str]) -> list[str]:
    """The variables that were changed or removed; and the home, which nobody may give us."""
    changed = [name for name, value in before.items() if os.environ.get(name) != value]
    given = _HOME not in before and _HOME in os.environ
    return sorted([*changed, _HOME] if given else changed)


_HOME: Final = "HERMES_HOME"


@contextmanager
def _guarded_streams() -> Iterator[None]:
    stdout, stderr = sys.stdout, sys.stderr
    before = [_Descriptor(number) for number in (1, 2)]
    try:
        yield
    finally:
        for descriptor in before:
            descriptor.restore()
        sys.stderr = stderr
        _ROUTER.put_back(stdout)
        _reopen("stdout", 1)
        _reopen("stderr", 2)


class _Descriptor:
    """Remembers what a file descriptor led to."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._copy: int | None = None
        with suppress(OSError):  # it was closed before we came
            self._copy = os.dup(number)

    def restore(self) -> None:
        """Let it lead there again."""
        if self._copy is None:
            return
        try:
            now = os.fstat(self._number)
            same = os.path.samestat(now, os.fstat(self._copy))
        except OSError:
            same = False
        if not same:
            os.dup2(self._copy, self._number)
        os.close(self._copy)


def _reopen(name: str, number: int) -> None:
    """Make a stream anew that was closed under us."""
    stream = getattr(sys, name)
    if getattr(stream, "closed", False) is not True:
        return
    with suppress(OSError):
        encoding, errors = getattr(stream, "encoding", None), getattr(stream, "errors", None)
        file = open(number, "w", 1, encoding, errors, closefd=False)  # noqa: SIM115 - by lines
        setattr(sys, name, file)
