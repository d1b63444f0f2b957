"""Keeps our standard streams ours while a plugin loads."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

# The standard streams belong to the process, so there is one lock for them.
_LOCK: Final = threading.Lock()


class _Unclosable(io.TextIOBase):
    """Passes text on to another stream, and does not let that one be closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            self._stream.flush()

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Stay open."""


@contextmanager
def guarded_streams() -> Iterator[None]:
    """What a plugin prints goes to stderr, and what it does to the streams is undone."""
    with _LOCK:
        before = sys.stdout, sys.stderr
        copies = [_copy(number) for number in (1, 2)]
        sys.stdout = sys.stderr = _Unclosable(before[1])
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for number, copy in zip((1, 2), copies, strict=True):
                _restore(number, copy)


def _copy(number: int) -> int | None:
    try:
        return os.dup(number)
    except OSError:  # it was closed before we came
        return None


def _restore(number: int, copy: int | None) -> None:
    if copy is None:
        return
    try:
        os.fstat(number)
    except OSError:
        os.dup2(copy, number)
    finally:
        os.close(copy)
