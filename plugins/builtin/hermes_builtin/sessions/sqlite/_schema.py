"""The tables, and what a message's number says.

A message's number holds its session, its place there and its role, so that these are known
for every hit of the index without looking anything up.
"""

from __future__ import annotations

from typing import Final

from hermes_core.database import Layout

ROLE_BITS: Final = 2
SESSION_BITS: Final = 22
MOST_MESSAGES: Final = 1 << (SESSION_BITS - ROLE_BITS)

_CODES: Final = {"user": 0, "assistant": 1, "tool": 2}
OTHER: Final = 3
_NAMES: Final = (*_CODES, "")

#: One message of so many has its words counted; the counts are only for planning.
SAMPLE: Final = 32

ARCHIVE: Final = Layout(
    "the archive of conversations",
    application_id=0x48504152,  # "HPAR"
    migrations=(
        """
CREATE TABLE archive_sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    user_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    profile TEXT NOT NULL,
    title TEXT NOT NULL,
    parent TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    active REAL NOT NULL,
    messages INTEGER NOT NULL,
    next INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX archive_sessions_active ON archive_sessions (active);
CREATE INDEX archive_sessions_user ON archive_sessions (user_id, active) WHERE user_id != '';
CREATE TABLE archive_messages (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    size INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    content TEXT NOT NULL,
    extra TEXT
);
-- Messages that are not in the index yet.
CREATE TABLE archive_pending (id INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE archive_index USING fts5(
    words, content = '', columnsize = 0, detail = none, tokenize = "ascii tokenchars '#+'"
);
CREATE TABLE archive_terms (term TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE archive_imports (
    origin TEXT NOT NULL, session TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (origin, session)
);
CREATE TABLE archive_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
""",
        # One row for a session whose last messages are not in the index yet, and where they
        # begin: a second message of a session then changes no page of this table.
        """
CREATE TABLE archive_unindexed (session INTEGER PRIMARY KEY, first INTEGER NOT NULL);
INSERT INTO archive_unindexed
    SELECT id >> 22, min(id) FROM archive_pending GROUP BY id >> 22;
DROP TABLE archive_pending;
""",
    ),
    prepare="PRAGMA auto_vacuum = INCREMENTAL;",
)


def role_code(role: str) -> int:
    """The number of a role."""
    return _CODES.get(role, OTHER)


def role_name(message_id: int) -> str:
    """The role that a message's number holds; "" if it is none of the usual."""
    return _NAMES[message_id & OTHER]


def message_id(session: int, place: int, role: str) -> int:
    """The number of a message."""
    return (session << SESSION_BITS) | (place << ROLE_BITS) | role_code(role)


def place_of(message: int) -> int:
    """How many messages there are before this one in its session."""
    return (message & ((1 << SESSION_BITS) - 1)) >> ROLE_BITS


def session_of(message: int) -> int:
    """The session that a message belongs to."""
    return message >> SESSION_BITS


def bounds(session: int) -> tuple[int, int]:
    """The smallest and the largest number that a message of a session can have."""
    return session << SESSION_BITS, ((session + 1) << SESSION_BITS) - 1
