"""Reading the log: the calls themselves, and how each hook fares."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.call_log._call import LAYOUT, Call, path_of
from hermes_core.call_log._file import MOST_ROWS
from hermes_core.database import empty_database, open_database
from hermes_core.errors import DatabaseError, one_line

_COLUMNS: Final = "at, provider, hook, session, outcome, seconds, bytes, error"
_DENIED: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

# Where a query has one max(), SQLite takes bare columns from the row that has it.
_LAST_ERRORS: Final = (
    "SELECT provider, hook, error, max(at) FROM calls WHERE at >= ? AND outcome != 'ok'"
    " GROUP BY provider, hook"
)
# A call that was not made took no time, and would make the others look fast.
_HEALTH: Final = (
    "SELECT provider, hook, count(*), sum(outcome = 'error'), sum(outcome = 'late'),"
    " sum(outcome = 'paused'), sum(bytes), max(at), seconds,"
    " group_concat(seconds, ' ') FILTER (WHERE outcome != 'paused')"
    " FROM calls WHERE at >= ? GROUP BY provider, hook ORDER BY provider, hook"
)


class HookReport(NamedTuple):
    """How one hook of one provider fared.

    Attributes:
        provider: Whose.
        hook: Which.
        calls: All, with those that failed, were late, or were not made.
        failures: How many raised, or gave what the contract does not allow.
        late: How many gave no answer in time.
        last_error: Of the last one that went wrong; "" if none did.
        last_at: When the last one began.
        last_seconds: How long that took.
        p50_seconds: Half of those that were made took at most this.
        p95_seconds: And 95 of 100 this.
        bytes: Of all together.
        paused: How many were not made.
    """

    provider: str
    hook: str
    calls: int
    failures: int
    late: int
    last_error: str
    last_at: float
    last_seconds: float
    p50_seconds: float
    p95_seconds: float
    bytes: int
    paused: int


class Lost(NamedTuple):
    """Calls that are not in the log, since more came than could be written.

    Attributes:
        calls: How many, since the log was begun.
        at: When some were last found to be missing.
    """

    calls: int = 0
    at: float = 0.0


def read_calls(
    home: Path,
    *,
    after: int = 0,
    limit: int = 1000,
    provider: str = "",
    hook: str = "",
    failed: bool = False,
) -> list[tuple[int, Call]]:
    """Calls with their numbers, in order of time.

    Args:
        home: Whose log. If there is none, there are no calls.
        after: Only calls with a greater number, the first of them instead of the newest. The
            greatest number of an answer (not always its last) is what to go on after; -1 is
            before all.
        limit: How many at most.
        provider: Only its calls.
        hook: Only these.
        failed: Only those that are not ok.

    Raises:
        DatabaseError: The log can't be read.
    """
    conditions = {
        "id > :after": after,
        "provider = :provider": provider,
        "hook = :hook": hook,
        "outcome != 'ok'": failed,
    }
    where = " AND ".join(text for text, wanted in conditions.items() if wanted) or "1"
    query = (
        f"SELECT id, {_COLUMNS} FROM calls WHERE {where}"  # noqa: S608 - our own words
        f" ORDER BY id {'ASC' if after else 'DESC'} LIMIT :limit"
    )
    values = {  # names as the file has them
        "after": after,
        "provider": one_line(provider),
        "hook": one_line(hook),
        "limit": min(limit, MOST_ROWS),
    }
    with _reading(home) as database:
        found = [(number, Call(*row)) for number, *row in database.execute(query, values)]
    return sorted(found, key=lambda each: (each[1].at, each[0]))


def hook_health(home: Path, *, since: float) -> list[HookReport]:
    """How each hook of each provider fared since a time, in order of their names.

    Raises:
        DatabaseError: The log can't be read.
    """
    with _reading(home) as database:
        errors = {
            (provider, hook): error
            for provider, hook, error, _ in database.execute(_LAST_ERRORS, (since,))
        }
        rows = database.execute(_HEALTH, (since,)).fetchall()
    return [_report(row, errors.get(row[:2], "")) for row in rows]


def lost_calls(home: Path) -> Lost:
    """How many calls the log does not have.

    Raises:
        DatabaseError: The log can't be read.
    """
    with _reading(home) as database:
        row = database.execute("SELECT calls, at FROM lost").fetchone()
    return Lost(*row) if row else Lost()


def _report(row: tuple[Any, ...], last_error: str) -> HookReport:
    provider, hook, calls, failures, late, paused, size, at, seconds, each = row
    ordered = sorted(map(float, each.split())) if each else []
    return HookReport(
        provider,
        hook,
        calls=calls,
        failures=failures,
        late=late,
        last_error=last_error,
        last_at=at,
        last_seconds=seconds,
        p50_seconds=_percentile(ordered, 50),
        p95_seconds=_percentile(ordered, 95),
        bytes=size,
        paused=paused,
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that so many of a hundred don't exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0.0


@contextmanager
def _reading(home: Path) -> Iterator[sqlite3.Connection]:
    """A connection to look with. A look makes no file."""
    path = path_of(home)
    try:
        with closing(_opened(path)) as database:
            yield database
    except sqlite3.Error as error:
        raise DatabaseError(f"the log of calls can't be read: {error}", where=str(path)) from error


def _opened(path: Path) -> sqlite3.Connection:
    if not os.path.lexists(path):
        return empty_database(LAYOUT)
    try:
        return open_database(path, LAYOUT)
    except DatabaseError as error:
        code = int(getattr(error.__cause__, "sqlite_errorcode", 0) or 0)
        if code & 0xFF not in _DENIED:
            raise
    # Where we may not write we can still look: at all of it if a writer is at work, and at
    # what was written back by the last one if not.
    way = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True)
