"""Makes sure that the standard streams stay usable while a plugin loads or starts.

What a plugin prints while it loads goes to stderr, so that it can't spoil output that a
program reads. What other threads print goes where it always goes. The environment is not
touched: other threads of the host may change it at any time.

Streams that were replaced meanwhile are put back, although another thread of the host could have
done it: published plugins take over stdout while they load, an MCP server would then lose its
connection, and a host that redirects its own output does so before it has a memory.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final


class _Router:
    """Replaces stdout while plugins load: sends what a loading thread prints to stderr.

    The standard streams belong to the process, and so does this.
    """

    def __init__(self) -> None:
        # Guards `_loading` and `sys.stdout` together. `write` takes no lock: a print must never
        # wait for another thread's import.
        self._lock = threading.RLock()
        self._loading: list[int] = []
        self._stdout: Any = None

    def enter(self) -> None:
        """Send what the current thread prints to stderr."""
        with self._lock:
            # A list, not a set: one thread may load a plugin that loads another one.
            self._loading.append(threading.get_ident())
            if sys.stdout is not self:
                # While another plugin loads, what is there now may lead back to here.
                if len(self._loading) == 1:
                    self._stdout = sys.stdout
                sys.stdout = self

    def leave(self) -> None:
        """Send what the current thread prints to stdout again."""
        with self._lock:
            self._loading.remove(threading.get_ident())
            # Whatever a plugin has put in its place goes, too.
            sys.stdout = self if self._loading else self._stdout

    def put_back(self, stdout: Any) -> None:
        """Restore ``sys.stdout``, also while the plugin still runs."""
        with self._lock:
            if self._loading:
                sys.stdout = self
            else:
                sys.stdout = self._stdout if stdout is self else stdout

    def write(self, text: str) -> int:
        """Write to the stream for this thread; nowhere in a process without streams."""
        stream = sys.stderr if threading.get_ident() in self._loading else self._stdout
        self._step_back()
        return stream.write(text) if stream is not None else len(text)

    def _step_back(self) -> None:
        """Remove this object: a redirection that ended after the load put it back."""
        if (
            self._loading
            or getattr(sys, "stdout", None) is not self
            or not self._lock.acquire(blocking=False)
        ):
            return
        try:
            if not self._loading and sys.stdout is self:
                sys.stdout = self._stdout
        finally:
            self._lock.release()

    def __getattr__(self, name: str) -> Any:
        mine = threading.get_ident() in self._loading
        return getattr(sys.stderr if mine else self._stdout, name)

    def close(self) -> None:
        """Do nothing: the host's stdout stays open."""


_ROUTER: Final = _Router()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what this thread prints to stderr; other threads' output goes where it always does."""
    _ROUTER.enter()
    try:
        yield
    finally:
        _ROUTER.leave()


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Restore stdout and stderr afterwards, on the thread that waits for a plugin."""
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
    """Remembers the file behind a descriptor."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._copy: int | None = None
        with suppress(OSError):  # it was closed before we came
            # A plugin may close or redirect descriptor 1 itself (`os.dup2`), which `sys.stdout`
            # does not show.
            self._copy = os.dup(number)

    def restore(self) -> None:
        """Point the descriptor to that file again."""
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
    """Open a stream again that a plugin closed."""
    stream = getattr(sys, name)
    if getattr(stream, "closed", False) is not True:
        return
    with suppress(OSError):
        encoding, errors = getattr(stream, "encoding", None), getattr(stream, "errors", None)
        file = open(number, "w", 1, encoding, errors, closefd=False)  # noqa: SIM115 - by lines
        setattr(sys, name, file)
