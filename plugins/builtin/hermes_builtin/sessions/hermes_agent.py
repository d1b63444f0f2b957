"""hermes-agent's state.db in the same home: which file is ours, and reading theirs.

Their file is opened read-only and never changed.
"""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions.archive import Archive, NewMessage, SessionFacts, content_text
from hermes_builtin.sessions.sqlite import ARCHIVE_ID
from hermes_builtin.sessions.sqlite.database import FOREIGN_HINT, REPAIR_HINT
from hermes_core.errors import DatabaseError
from hermes_core.storage.sqlite_connection import is_not_a_database, read_only

# -- Which file is the archive: ``state.db``, unless hermes-agent has it already ----------------
#
# hermes-agent's file is looked at, never changed; ours is ``sessions.db`` beside it then. Should
# hermes-agent come to a home where ``state.db`` is ours, it adds its own tables to it. Ours have
# other names, and our views of the same names make room (see ``sqlite/database.py``).

_THEIRS: Final = frozenset(("schema_version", "sessions", "messages"))


class ArchiveFiles(NamedTuple):
    """The archive's file; and hermes-agent's own file of conversations, if any."""

    path: Path
    theirs: Path | None = None


def archive_files(home: Path) -> ArchiveFiles:
    """Where the archive of a home is.

    Raises:
        DatabaseError: The file is not a database.
    """
    state, beside = home / "state.db", home / "sessions.db"
    owner, tables = _look(state)
    theirs = state if tables >= _THEIRS else None
    # Once `sessions.db` exists it stays the archive, even if hermes-agent's file is removed later.
    if beside.exists() or (theirs is not None and owner != ARCHIVE_ID):
        return ArchiveFiles(beside, theirs)
    return ArchiveFiles(state, theirs)


def theirs_in(home: Path) -> Path | None:
    """hermes-agent's own file of conversations in a home whose archive is elsewhere."""
    state = home / "state.db"
    try:
        _, tables = _look(state)
    except DatabaseError:
        return None
    return state if tables >= _THEIRS else None


def is_ours(path: Path) -> bool:
    """Whether a database is an archive of ours to which hermes-agent has not added its tables."""
    owner, tables = _look(path)
    return owner == ARCHIVE_ID and not tables >= _THEIRS


def _look(path: Path) -> tuple[int, frozenset[str]]:
    """Whose database it is, and its tables."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise DatabaseError(
                "is a link to a file that is not there",
                where=str(path),
                hint="is its disk mounted? else remove the link",
            ) from None
        return 0, frozenset()
    except OSError as error:
        what = f"can't be read: {error.strerror}"
        raise DatabaseError(what, where=str(path), hint="check its permissions") from error
    if not stat.S_ISREG(mode):
        raise DatabaseError("is not a regular file", where=str(path), hint="move it away")
    try:
        with read_only(path) as database:
            owner = database.execute("PRAGMA application_id").fetchone()[0]
            rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return int(owner), frozenset(name for (name,) in rows)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DatabaseError(
            f"is not a readable archive: {error}",
            where=str(path),
            hint=FOREIGN_HINT if is_not_a_database(error) else REPAIR_HINT,
        ) from error


# -- hermes-agent's conversations: read from its state.db, which is never changed ---------------

ORIGIN: Final = "hermes-agent"
# hermes-agent marks content that is a list of parts in this way.
_JSON: Final = "\x00json:"
_SESSION_COLUMNS: Final = (
    "id", "source", "user_id", "chat_id", "profile_name", "title", "parent_session_id",
    "started_at", "ended_at",
)  # fmt: skip
_MESSAGE_COLUMNS: Final = (
    "role", "content", "timestamp", "tool_name", "tool_calls", "tool_call_id",
)  # fmt: skip


class ImportedSession(NamedTuple):
    """A conversation of somebody else; ``position`` says how far it goes."""

    facts: SessionFacts
    messages: Collection[NewMessage]
    position: int


def names_here(origin: str, name: str) -> tuple[str, str]:
    """What a conversation may be called here: as there, or otherwise if that was taken."""
    return name, f"{name}@{origin}"


def not_imported(path: Path, archive: Archive) -> int:
    """How many of hermes-agent's conversations are not, or not wholly, in the archive.

    Hidden ones are not missed.
    """
    try:
        with read_only(path) as database:
            rows = _last_messages(database, hidden=False)
    except sqlite3.Error:
        return 0
    return sum(_is_new(archive, name, last) for name, last in rows.items())


def _is_new(archive: Archive, name: str, last: int) -> bool:
    """Whether a conversation goes on behind what was taken over of it."""
    return all(archive.imported(ORIGIN, each) < last for each in names_here(ORIGIN, name))


def _visible(database: sqlite3.Connection) -> str:
    """What was undone is not part of the conversation; what was summed up still is."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(messages)")}
    return " AND (active != 0 OR compacted != 0)" if {"active", "compacted"} <= columns else ""


def _listed(database: sqlite3.Connection, *, hidden: bool) -> str:
    """A condition on sessions; hermes-agent can hide some since 0.20."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(sessions)")}
    return "1" if hidden or "hidden" not in columns else "coalesce(hidden, 0) = 0"


def count(path: Path, *, hidden: bool = False) -> int:
    """How many conversations there are."""
    try:
        with read_only(path) as database:
            query = f"SELECT count(*) FROM sessions WHERE {_listed(database, hidden=hidden)}"  # noqa: S608
            return int(database.execute(query).fetchone()[0])
    except sqlite3.Error as error:
        what = f"is not a state.db of hermes-agent: {error}"
        raise DatabaseError(what, where=str(path), hint="name the state.db of a home") from error


def conversations(
    path: Path, archive: Archive, *, hidden: bool = False
) -> Iterator[ImportedSession]:
    """Hermes-agent's conversations, but for those that were wholly taken over before."""
    try:
        with read_only(path) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(sessions)")}
            wanted = ", ".join(
                # Columns differ between hermes-agent's versions; missing ones read as NULL.
                name if name in columns else f"NULL AS {name}"
                for name in _SESSION_COLUMNS
            )
            last = _last_messages(database, hidden=hidden)
            rows = database.execute(
                f"SELECT {wanted} FROM sessions WHERE {_listed(database, hidden=hidden)}"  # noqa: S608
                " ORDER BY started_at, id"
            )
            for row in rows:
                facts = _facts(row)
                position = last.get(facts.id, 0)
                new = _is_new(archive, facts.id, position)
                yield ImportedSession(
                    facts, list(_messages(database, facts.id)) if new else [], position
                )
    except sqlite3.Error as error:
        todo = "run hermes-agent once, which repairs it, or use a backup of it"
        raise DatabaseError(f"can't be imported: {error}", where=str(path), hint=todo) from error


def _last_messages(database: sqlite3.Connection, *, hidden: bool) -> dict[str, int]:
    """The last message of each conversation that is part of it."""
    listed = f"SELECT id FROM sessions WHERE {_listed(database, hidden=hidden)}"  # noqa: S608
    rows = database.execute(
        "SELECT session_id, max(id) FROM messages"  # noqa: S608
        f" WHERE session_id IN ({listed}){_visible(database)} GROUP BY session_id"
    )
    return {str(name): last for name, last in rows}


def _facts(row: tuple[Any, ...]) -> SessionFacts:
    texts = [str(value or "") for value in row[:7]]
    name, source, user, chat, profile, title, parent = texts
    return SessionFacts(
        name, source, user, chat, profile or "default", title, parent, float(row[7] or 0.0), row[8]
    )


def _messages(database: sqlite3.Connection, session: str) -> Iterator[NewMessage]:
    rows = database.execute(
        f"SELECT {', '.join(_MESSAGE_COLUMNS)} FROM messages"  # noqa: S608
        f" WHERE session_id = ?{_visible(database)} ORDER BY id",
        (session,),
    )
    for role, content, at, tool_name, tool_calls, call_id in rows:
        extra = {"tool_name": tool_name, "tool_calls": _parsed(tool_calls), "tool_call_id": call_id}
        kept = {key: value for key, value in extra.items() if value}
        yield NewMessage(str(role), _content(content), float(at or 0.0), kept)


def _content(content: Any) -> str:
    if isinstance(content, str) and content.startswith(_JSON):
        return content_text(_parsed(content[len(_JSON) :]))
    return content_text(content)


def _parsed(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
