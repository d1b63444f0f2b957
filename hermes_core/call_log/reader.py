"""Reads the call log: the calls themselves, and statistics for each hook."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.call_log.log import MAX_ROWS, SCHEMA, LoggedCall, damage_hint, path_of
from hermes_core.errors import one_line
from hermes_core.storage.sqlite import SqliteFile

_COLUMNS: Final = "at, provider, hook, session, outcome, seconds, bytes, error"

# Where a query has one max(), SQLite takes bare columns from the row that has it.
_LAST_ERRORS: Final = (
    "SELECT provider, hook, error, max(at) FROM calls WHERE at >= ? AND outcome != 'ok'"
    " GROUP BY provider, hook"
)
# A call that was not made took no time, and would make the others look fast.
_HEALTH: Final = (
    "SELECT provider, hook, count(*), sum(outcome = 'error'), sum(outcome = 'late'),"
    " sum(outcome = 'paused'), sum(bytes), max(at), seconds,"
    # SQLite has no percentiles: all durations of a hook come as one text and are sorted in Python.
    " group_concat(seconds, ' ') FILTER (WHERE outcome != 'paused')"
    " FROM calls WHERE at >= ? GROUP BY provider, hook ORDER BY provider, hook"
)
_DAYS: Final = (
    "SELECT date(at, 'unixepoch', 'localtime'), count(*), sum(outcome IN ('error', 'late')),"
    " group_concat(seconds, ' ') FILTER (WHERE outcome != 'paused')"
    " FROM calls WHERE at >= ? AND ? IN ('', provider) GROUP BY 1 ORDER BY 1"
)


class DayReport(NamedTuple):
    """The calls of one day.

    Attributes:
        day: The day in the zone of this machine, such as 2026-11-18.
        calls: How many.
        failures: How many raised or were late.
        p95_seconds: The 95th percentile of their durations.
    """

    day: str
    calls: int
    failures: int
    p95_seconds: float


class HookReport(NamedTuple):
    """Statistics for one hook of one provider.

    Attributes:
        provider: The provider's name.
        hook: The method.
        calls: All calls, including those that failed, were late or were not made.
        failures: How many raised, or returned what the contract does not allow.
        late: How many did not answer in time.
        last_error: The last error; "" if there was none.
        last_at: When the last call began.
        last_seconds: How long it took.
        p50_seconds: The median duration of those that were made.
        p95_seconds: The 95th percentile.
        bytes: The total size.
        paused: How many were not made, since the provider had failed too often.
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


class CalledNames(NamedTuple):
    """What was called, by name."""

    providers: tuple[str, ...]
    hooks: tuple[str, ...]


class LostCalls(NamedTuple):
    """Calls that are missing in the log, since more came than could be written.

    Attributes:
        calls: How many, since the log was created.
        at: When the last of them was dropped.
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
) -> list[tuple[int, LoggedCall]]:
    """Return calls with their numbers, in order of time.

    Args:
        home: The home. Without a log, there are no calls.
        after: Only calls with a greater number, the first of them instead of the newest. To
            continue, pass the greatest number of the last result (not always its last one); -1
            is before all.
        limit: How many at most.
        provider: Only calls of this provider.
        hook: Only calls of this hook.
        failed: Only calls that are not ok.

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
        f"SELECT id, {_COLUMNS} FROM calls WHERE {where}"  # noqa: S608 - our own text
        f" ORDER BY id {'ASC' if after else 'DESC'} LIMIT :limit"
    )
    values = {  # names as they are stored
        "after": after,
        "provider": one_line(provider),
        "hook": one_line(hook),
        "limit": min(limit, MAX_ROWS),
    }
    with _reading(home) as database:
        found = [(number, LoggedCall(*row)) for number, *row in database.execute(query, values)]
    return sorted(found, key=lambda each: (each[1].at, each[0]))


def called_names(home: Path) -> CalledNames:
    """Return the providers and the hooks that occur in the log, sorted.

    Raises:
        DatabaseError: The log can't be read.
    """
    with _reading(home) as database:
        rows = database.execute("SELECT DISTINCT provider, hook FROM calls").fetchall()
    providers, hooks = (sorted({row[column] for row in rows}) for column in (0, 1))
    return CalledNames(tuple(providers), tuple(hooks))


def hook_health(home: Path, *, since: float) -> list[HookReport]:
    """Return statistics for each hook of each provider since a time, sorted by name.

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


def daily_calls(home: Path, *, since: float, provider: str = "") -> list[DayReport]:
    """Return statistics for each day with a call, of one provider or of all.

    Raises:
        DatabaseError: The log can't be read.
    """
    with _reading(home) as database:
        rows = database.execute(_DAYS, (since, one_line(provider))).fetchall()
    return [
        DayReport(day, calls, failures, _percentile(_durations(seconds), 95))
        for day, calls, failures, seconds in rows
    ]


def lost_calls(home: Path) -> LostCalls:
    """Return how many calls are missing in the log.

    Raises:
        DatabaseError: The log can't be read.
    """
    with _reading(home) as database:
        row = database.execute("SELECT calls, at FROM lost").fetchone()
    return LostCalls(*row) if row else LostCalls()


def _report(row: tuple[Any, ...], last_error: str) -> HookReport:
    provider, hook, calls, failures, late, paused, size, at, seconds, each = row
    ordered = _durations(each)
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


def _durations(joined: str | None) -> list[float]:
    return sorted(map(float, joined.split())) if joined else []


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent don't exceed."""
    # The nearest rank, rounded up: with few calls the p95 is the slowest one, not an average.
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0.0


@contextmanager
def _reading(home: Path) -> Iterator[sqlite3.Connection]:
    """A connection that only reads. It needs no permission to write, and creates no file."""
    path, hint = path_of(home), damage_hint(home)
    file = SqliteFile(path, SCHEMA, separate_reader=True, damage_hint=hint)
    with closing(file), file.reading() as database:
        yield database
