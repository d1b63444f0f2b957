"""How long the calls of a turn may wait for a storage that is on another machine.

The limit belongs to the thread: work that a call leaves to a background thread is not limited by
it. Files need none; whoever asks a server (`storage.postgres`) looks at `deadline`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from math import inf
from time import monotonic
from typing import Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: What a turn, or another call that a model waits for, may wait for its storage in all.
TURN_SECONDS: Final = 5.0
#: The part of it for the archive: the rest is for the outbox.
ARCHIVE_SECONDS: Final = 4.0
#: A search may have to index first what many machines have stored.
TOOL_SECONDS: Final = 15.0
#: The first call of a process connects, and may have to create or migrate tables.
START_SECONDS: Final = 10.0


class _Limit(threading.local):
    end = inf


# Module state: a call can't pass its limit through the plugins and protocols in between.
_LIMIT: Final = _Limit()


class time_limit:  # noqa: N801 - used like a function
    """Let what this thread does inside wait for a server for so long at most, in all.

    One that is inside of another can only shorten it. Also a decorator.
    """

    # A class, since every call of a manager has one: it costs half of what a generator does.
    __slots__ = ("_before", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._before = _LIMIT.end
        _LIMIT.end = min(self._before, monotonic() + self._seconds)

    def __exit__(self, *_: object) -> None:
        _LIMIT.end = self._before

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Limit each call of a function."""

        @wraps(function)
        def limited(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            before = _LIMIT.end
            _LIMIT.end = min(before, monotonic() + self._seconds)
            try:
                return function(*args, **kwargs)
            finally:
                _LIMIT.end = before

        return limited


def deadline() -> float:
    """Until when this thread may wait, by `time.monotonic`; infinite without a limit."""
    return _LIMIT.end
