"""A call, and the tables that calls are kept in."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple

from hermes_core.database import Layout


class Call(NamedTuple):
    """One call of a provider, without its content.

    Attributes:
        at: When it began, as `time.time` tells.
        provider: Whom it was for.
        hook: Which method.
        session: In which conversation; "" outside of any.
        outcome: "ok", "error", "late" (no answer within its deadline) or "paused" (not made,
            since the provider has failed too often).
        seconds: How long it took.
        bytes: The size of what was handed over, or returned by recall; 0 if unknown.
        error: What went wrong, in one line and without secrets. 200 characters are kept.
    """

    at: float
    provider: str
    hook: str
    session: str
    outcome: str
    seconds: float
    bytes: int
    error: str = ""


def path_of(home: Path) -> Path:
    """Where the log of a home is."""
    return home / "logs" / "memory-calls.db"


def _begin(database: sqlite3.Connection) -> None:
    database.execute(
        "CREATE TABLE calls (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,"
        " provider TEXT NOT NULL, hook TEXT NOT NULL, session TEXT NOT NULL,"
        " outcome TEXT NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL,"
        " error TEXT NOT NULL)"
    )
    # Numbers go on growing when a log is begun anew, so that who follows it misses nothing.
    first = int(time.time() * 1_000_000)
    database.execute("INSERT INTO sqlite_sequence VALUES ('calls', ?)", (first,))
    database.execute("CREATE TABLE lost (calls INTEGER NOT NULL, at REAL NOT NULL)")


LAYOUT: Final = Layout(
    "the log of calls",
    application_id=0x4850434C,  # "HPCL"
    migrations=(_begin,),
)
