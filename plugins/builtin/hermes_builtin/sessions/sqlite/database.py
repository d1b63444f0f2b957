"""The archive's SQLite file: tables, views for hermes-agent's readers, and connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from hermes_builtin.sessions import archive
from hermes_builtin.sessions.numbers import OTHER, SESSION_BITS
from hermes_core.storage.sqlite import SqliteFile
from hermes_core.storage.sqlite_connection import (
    WAIT_SECONDS,
    Schema,
    is_damage,
    transaction,
)

# -- The tables ----------------------------------------------------------------------------------

#: One message of so many has its words counted; the counts are only for planning.
SAMPLE: Final = 32


def _index_again(database: sqlite3.Connection) -> None:
    """Have all messages indexed again: words have other stems since version 3.

    It happens in a quiet moment, or when somebody searches.
    """
    try:
        database.execute("DELETE FROM archive_terms")
        database.execute("INSERT INTO archive_index (archive_index) VALUES ('delete-all')")
    except sqlite3.DatabaseError:  # a damaged index must not keep the archive from being opened
        database.execute("INSERT OR REPLACE INTO archive_meta VALUES ('index', 'damaged')")
    database.execute(
        f"INSERT OR REPLACE INTO archive_unindexed SELECT number, number << {SESSION_BITS}"  # noqa: S608
        " FROM archive_sessions WHERE messages > 0"
    )


#: As SQL.
NO_PLATFORMS: Final = f"({', '.join(map(repr, sorted(archive.NO_PLATFORMS)))})"


def _add_owners(database: sqlite3.Connection) -> None:
    """Keep the platform of each session, and what a host calls it if its id is another.

    The version stays the same: every statement of an older process still works, so one that runs
    beside this one may open the file again and loses no turn. What it writes has "" in both
    columns. Then the source is the platform, as in all older rows; so the checksums stay valid.
    """
    database.execute("ALTER TABLE archive_sessions ADD COLUMN platform TEXT NOT NULL DEFAULT ''")
    database.execute("ALTER TABLE archive_sessions ADD COLUMN name TEXT NOT NULL DEFAULT ''")
    try:
        database.execute(
            "CREATE INDEX archive_sessions_name ON archive_sessions (name) WHERE name != ''"
        )
        _name_platforms(database)
        _name_aliases(database)
    except sqlite3.DatabaseError as error:  # damage must not keep the archive from being opened
        if not is_damage(error):
            raise


def _name_platforms(database: sqlite3.Connection) -> None:
    """Find the platform of older sessions whose source is none.

    Those without a user are the terminal's. A cron job or an import of a user is of the one
    platform where that user talks; if there are several, it is unknown whose it is, and only
    `hermes-plugins sessions` shows it.
    """
    database.execute(
        f"UPDATE archive_sessions SET platform = 'cli' WHERE source IN {NO_PLATFORMS}"  # noqa: S608
        " AND user_id = '' AND chat_id = ''"
    )
    of_user = (
        "FROM archive_sessions AS theirs WHERE theirs.user_id = archive_sessions.user_id"
        f" AND theirs.source NOT IN {NO_PLATFORMS}"
    )
    database.execute(
        f"UPDATE archive_sessions SET platform = (SELECT min(source) {of_user})"  # noqa: S608
        f" WHERE source IN {NO_PLATFORMS} AND user_id != ''"
        f" AND (SELECT count(DISTINCT source) {of_user}) = 1"
    )


def _name_aliases(database: sqlite3.Connection) -> None:
    """Find what hosts call older sessions whose ids end with a checksum of their owners."""
    rows = database.execute(
        "SELECT number, id, user_id, chat_id, profile FROM archive_sessions"
        " WHERE id LIKE '%@________'"
    ).fetchall()
    for number, alias, *owner in rows:
        name, _, digits = alias.rpartition("@")
        if digits == f"{crc32(chr(0).join(owner).encode()):08x}":
            database.execute(
                "UPDATE archive_sessions SET name = ? WHERE number = ?", (name, number)
            )


def _add_turns(database: sqlite3.Connection) -> None:
    """Keep the keys of turns that came from a database: see `SqliteRows.restore_turns`."""
    with suppress(sqlite3.DatabaseError):  # damage must not keep the archive from being opened
        database.execute(
            "CREATE TABLE archive_turns (key TEXT PRIMARY KEY, at REAL NOT NULL, ids TEXT NOT NULL)"
            " WITHOUT ROWID"
        )


ARCHIVE: Final = Schema(
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
        _index_again,
    ),
    prepare="PRAGMA auto_vacuum = INCREMENTAL;",
    additions={"archive_sessions.platform": _add_owners, "archive_turns.key": _add_turns},
)


# -- The views ``sessions`` and ``messages``: the archive as hermes-agent's state.db has it -----
#
# Published plugins read these two tables of hermes-agent directly. The views have every column of
# hermes-agent 0.19 (schema 22) and 0.20 (schema 26). A column for which the archive has nothing
# holds what hermes-agent's own schema has as default: NULL, or 0.
#
# hermes-agent creates tables of the same names when it comes to a home where state.db is ours,
# and can't as long as the views are there. Its first attempt leaves its table ``schema_version``
# behind: once that is there, the views go, and its next start succeeds.

_WAIT_MILLISECONDS: Final = 200


def _extra(key: str) -> str:
    """What a message's ``extra`` says; NULL where damage has left no JSON there."""
    return f"CASE WHEN json_valid(m.extra) THEN json_extract(m.extra, '$.{key}') END"


_SESSIONS: Final[Mapping[str, str]] = {
    "id": "id",
    "source": "source",
    "user_id": "nullif(user_id, '')",
    "chat_id": "nullif(chat_id, '')",
    "parent_session_id": "nullif(parent, '')",
    "started_at": "started",
    "ended_at": "ended",
    "message_count": "messages",
    "title": "nullif(title, '')",
    "last_activity_at": "active",
    "profile_name": "nullif(profile, '')",
    **dict.fromkeys(
        (
            "session_key", "chat_type", "thread_id", "display_name", "origin_json", "model",
            "model_config", "system_prompt", "system_prompt_hash", "end_reason", "cwd",
            "git_branch", "git_repo_root", "billing_provider", "billing_base_url", "billing_mode",
            "estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source",
            "pricing_version", "title_source", "last_activity_description",
            "last_activity_provenance", "handoff_state", "handoff_platform", "handoff_error",
            "compression_failure_cooldown_until", "compression_failure_error", "last_read_at",
        ),
        "NULL",
    ),
    **dict.fromkeys(
        (
            "expiry_finalized", "tool_call_count", "input_tokens", "output_tokens",
            "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count",
            "git_metadata_generation", "compression_fallback_streak",
            "compression_ineffective_count", "rewind_count", "archived", "pinned", "hidden",
        ),
        "0",
    ),
}  # fmt: skip

_MESSAGES: Final[Mapping[str, str]] = {
    "id": "m.id",
    "session_id": "s.id",
    "role": (
        f"CASE m.id & {OTHER} WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' WHEN 2 THEN 'tool'"
        f" ELSE coalesce({_extra('role')}, 'other') END"
    ),
    "content": "m.content",
    "tool_call_id": _extra("tool_call_id"),
    "tool_calls": _extra("tool_calls"),
    "tool_name": _extra("tool_name"),
    "timestamp": "m.at",
    "observed": "0",
    "active": "1",
    "compacted": "0",
    **dict.fromkeys(
        (
            "effect_disposition", "token_count", "finish_reason", "reasoning",
            "reasoning_content", "reasoning_details", "codex_reasoning_items",
            "codex_message_items", "platform_message_id", "api_content", "display_kind",
            "display_metadata",
        ),
        "NULL",
    ),
}  # fmt: skip


def _view(name: str, columns: Mapping[str, str], source: str) -> str:
    listed = ", ".join(f"{value} AS {column}" for column, value in columns.items())
    return f"CREATE VIEW {name} AS SELECT {listed} FROM {source}"  # noqa: S608


#: The join says twice which messages a session has. One way finds the messages of a session in
#: a range of the primary key, the other the session of a message.
_VIEWS: Final = {
    "sessions": _view("sessions", _SESSIONS, "archive_sessions"),
    "messages": _view(
        "messages",
        _MESSAGES,
        "archive_sessions s JOIN archive_messages m"
        f" ON m.id BETWEEN s.number << {SESSION_BITS} AND ((s.number + 1) << {SESSION_BITS}) - 1"
        f" AND s.number = m.id >> {SESSION_BITS}",
    ),
}


def update_views(database: sqlite3.Connection) -> None:
    """Make the views, or take them away where hermes-agent needs their names.

    This can be done later as well. So no caller waits long for it, and a file that can't be
    written is left as it is.
    """
    if _there(database) == _wanted(database):
        return
    database.execute(f"PRAGMA busy_timeout = {_WAIT_MILLISECONDS}")
    try:
        with suppress(sqlite3.OperationalError), transaction(database):
            _change(database)
    finally:
        database.execute(f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")


def _there(database: sqlite3.Connection) -> dict[str, str]:
    rows = database.execute(
        "SELECT name, sql FROM sqlite_master"
        " WHERE type = 'view' AND name IN ('sessions', 'messages')"
    )
    return dict(rows.fetchall())


def _wanted(database: sqlite3.Connection) -> Mapping[str, str]:
    theirs = database.execute(
        "SELECT 1 FROM sqlite_master"
        " WHERE type = 'table' AND name IN ('schema_version', 'sessions', 'messages')"
    )
    return _VIEWS if theirs.fetchone() is None else {}


def _change(database: sqlite3.Connection) -> None:
    for name in _there(database):
        database.execute(f"DROP VIEW {name}")
    for statement in _wanted(database).values():
        database.execute(statement)


# -- the file -----------------------------------------------------------------------------------

#: A checkpoint waits for the disk. It is made in a quiet moment, or when the WAL has 32 MB.
_CHECKPOINT_PAGES: Final = 8000
#: How much of the index is merged without being read again.
_CACHE_KIB: Final = 32_000
#: The upper pages of index and tables stay in memory from one search to the next.
_READING_CACHE_KIB: Final = 16_000

#: What to do about a damaged archive.
REPAIR_HINT: Final = "run: hermes-plugins sessions repair"
#: What to do about a file that is something else, or has lost even its first bytes: neither our
#: repair nor SQLite's shell can read it, and it may be somebody's.
FOREIGN_HINT: Final = "it was not changed; move it away to start a new archive"


def json_list(numbers: Iterable[int]) -> str:
    """Numbers as a parameter for ``json_each``: SQLite limits the number of parameters."""
    return f"[{','.join(map(str, numbers))}]"


def archive_file(path: Path, *, durable: bool = False) -> SqliteFile:
    """Return the archive's file: readers never wait for the writer, nor it for them."""
    return SqliteFile(
        path,
        ARCHIVE,
        durable=durable,
        separate_reader=True,
        pragmas={"wal_autocheckpoint": _CHECKPOINT_PAGES, "cache_size": -_CACHE_KIB},
        reader_pragmas={"cache_size": -_READING_CACHE_KIB},
        on_open=update_views,
        damage_hint=REPAIR_HINT,
        foreign_hint=FOREIGN_HINT,
    )


def checkpoint(file: SqliteFile) -> None:
    """Move what is in the WAL to the database, as far as nobody reads it."""
    with file.writing() as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        update_views(database)  # hermes-agent may have started while this process has the file open
