"""The rows of outbox.db as types, and the tables that contain them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from hermes_core.errors import HermesError
from hermes_core.session import SessionContext, identity_from, identity_text
from hermes_core.storage.sqlite import Schema

TURN: Final = "sync_turn"


class WriteState(StrEnum):
    """The state of a write in the outbox. The values are what the file contains."""

    #: It will be delivered, in order.
    WAITING = "waiting"
    #: It failed while others succeeded, so they go first. It is retried later, out of order.
    SKIPPED = "aside"
    #: It failed permanently: it is retried only if a person asks for it.
    FAILED = "dead"
    #: There was no room for its content, which the archive has.
    MISSED = "missed"

    @property
    def label(self) -> str:
        """The state in words for people."""
        return "failed permanently" if self is WriteState.FAILED else self.name.lower()


# ``streams.due`` is not used since format 2. It stays, since dropping it would make the file
# unreadable for an older version that runs beside this one.
# AUTOINCREMENT, so that a number is never used again: processes remember the numbers of streams and
# writes, and the order of the numbers is the order of delivery. The indexes cover only the states
# that are looked for all the time, so that many writes that failed permanently cost nothing.
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

#: ``due``: when to retry a write. ``faults``: how often it failed for what may be its own reason.
_OWN_RETRIES: Final = """
ALTER TABLE writes ADD COLUMN due REAL NOT NULL DEFAULT 0;
ALTER TABLE writes ADD COLUMN faults INTEGER NOT NULL DEFAULT 0;
CREATE INDEX aside_writes ON writes (stream, id) WHERE state = 'aside';
"""

OUTBOX: Final = Schema(
    "the outbox", 0x48504F42, (_TABLES, _OWN_RETRIES), prepare="PRAGMA auto_vacuum = INCREMENTAL"
)


class StreamKey(NamedTuple):
    """What identifies a stream: one session of one provider, as its manager started it.

    A write is delivered only through an instance that was initialised with these keywords.

    Attributes:
        provider: The provider's name.
        owner: The distribution that the provider came from.
        session: The session's id, as `identity_text` writes it.
        keywords: Those of ``initialize``, as JSON.
    """

    provider: str
    owner: str
    session: str
    keywords: str

    @classmethod
    def of(cls, provider: str, owner: str, session: SessionContext) -> StreamKey:
        """Return the key of the writes of this session for a provider."""
        return cls(provider, owner, identity_text(session.session_id), session.to_json())

    @property
    def context(self) -> SessionContext:
        """The session that the key describes.

        Raises:
            HermesError: The stored keywords can't be read.
        """
        try:
            return SessionContext.from_json(identity_from(self.session), self.keywords)
        except ValueError as error:
            text = f"the keywords of session {self.session} can't be read"
            raise HermesError(text) from error


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
    state: WriteState
    due: float
    faults: int


class Limits(NamedTuple):
    """How often a write may fail, by its own fault or at all, before it is suspect."""

    faults: int
    attempts: int


#: Nothing is suspect.
NO_LIMITS: Final = Limits(2**62, 2**62)


class Stream(NamedTuple):
    """The writes of one session for one provider, and which process delivers them.

    Attributes:
        id: Its number in the file.
        key: What identifies it.
        holder: The process that has claimed it; "" if none has.
        expires: When the claim ends unless that process renews it.
        due: When the next attempt is made.
        writes: How many wait; skipped ones don't count.
        oldest: When the oldest of them was stored.
    """

    id: int
    key: StreamKey
    holder: str
    expires: float
    due: float
    writes: int
    oldest: float
