"""Keeps our standard streams ours while a plugin loads.

What a plugin prints then goes to stderr, so that it can't spoil output that a program
reads; what other threads print goes where it always goes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final


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

    def put_back(self) -> None:
        """Undo what a plugin did to ``sys.stdout``, also if it still runs."""
        with self._lock:
            if self._loading:
                sys.stdout = self

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
def guarded_streams() -> Iterator[None]:
    """On the thread that waits: what a plugin does to the streams is undone."""
    stderr = sys.stderr
    before = [_Descriptor(number) for number in (1, 2)]
    try:
        yield
    finally:
        for descriptor in before:
            descriptor.restore()
        sys.stderr = stderr
        _ROUTER.put_back()
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
