"""What is in outbox.db."""

from __future__ import annotations

from typing import Final, NamedTuple

from hermes_core.database import Layout

#: How a write stands: it waits to be delivered; it will not be tried again unless a person
#: says so; or there was no room for its content, which the archive has.
WAITING: Final = "waiting"
DEAD: Final = "dead"
MISSED: Final = "missed"

_TABLES: Final = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    provider TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    keywords TEXT NOT NULL,
    holder TEXT NOT NULL DEFAULT '',
    expires REAL NOT NULL DEFAULT 0,
    due REAL NOT NULL DEFAULT 0,
    UNIQUE (provider, owner, session, keywords)
);
CREATE TABLE writes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    stream INTEGER NOT NULL REFERENCES streams,
    event_id TEXT NOT NULL,
    hook TEXT NOT NULL,
    payload TEXT NOT NULL,
    created REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failing_since REAL,
    error TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT 'waiting'
);
CREATE INDEX waiting_writes ON writes (stream, id) WHERE state = 'waiting';
CREATE INDEX missed_writes ON writes (stream) WHERE state = 'missed';
"""

OUTBOX: Final = Layout(
    "the outbox", 0x48504F42, (_TABLES,), prepare="PRAGMA auto_vacuum = INCREMENTAL"
)


class Origin(NamedTuple):
    """Whose writes they are: one session of one provider, as its manager began it.

    ``owner`` is the distribution that the provider came from, ``keywords`` are those of
    ``initialize`` as JSON. A write is delivered only through an instance that was
    initialised with these.
    """

    provider: str
    owner: str
    session: str
    keywords: str


class Write(NamedTuple):
    """One write on its way to the external provider."""

    id: int
    stream: int
    event_id: str
    hook: str
    payload: str
    created: float
    attempts: int
    failing_since: float | None
    error: str
    state: str


class Stream(NamedTuple):
    """The writes of one origin that wait, and who delivers them."""

    id: int
    origin: Origin
    holder: str
    expires: float
    due: float
    writes: int
    oldest: float
