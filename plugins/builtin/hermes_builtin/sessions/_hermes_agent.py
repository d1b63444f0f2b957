"""hermes-agent's conversations: read from its state.db, which is never changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_builtin.sessions._content import content_text
from hermes_builtin.sessions._model import NewMessage, SessionFacts
from hermes_builtin.sessions._place import read_only
from hermes_builtin.sessions.archive import Archive
from hermes_core.errors import DatabaseError

ORIGIN: Final = "hermes-agent"
_JSON: Final = "\x00json:"
_SESSION_COLUMNS: Final = (
    "id", "source", "user_id", "chat_id", "profile_name", "title", "parent_session_id",
    "started_at", "ended_at",
)  # fmt: skip
_MESSAGE_COLUMNS: Final = (
    "role", "content", "timestamp", "tool_name", "tool_calls", "tool_call_id",
)  # fmt: skip


class Imported(NamedTuple):
    """A conversation of somebody else; ``position`` says how far it goes."""

    facts: SessionFacts
    messages: list[NewMessage]
    position: int


def names_here(origin: str, name: str) -> tuple[str, str]:
    """What a conversation may be called here: as there, or otherwise if that was taken."""
    return name, f"{name}@{origin}"


def not_imported(path: Path, archive: Archive) -> int:
    """How many of hermes-agent's conversations are not, or not wholly, in the archive."""
    try:
        with closing(read_only(path)) as database:
            rows = _last_messages(database)
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


def count(path: Path) -> int:
    """How many conversations there are."""
    try:
        with closing(read_only(path)) as database:
            return int(database.execute("SELECT count(*) FROM sessions").fetchone()[0])
    except sqlite3.Error as error:
        what = f"is no state.db of hermes-agent: {error}"
        raise DatabaseError(what, where=str(path)) from error


def conversations(path: Path, archive: Archive) -> Iterator[Imported]:
    """Hermes-agent's conversations, but for those that were wholly taken over before."""
    try:
        with closing(read_only(path)) as database:
            columns = {row[1] for row in database.execute("PRAGMA table_info(sessions)")}
            wanted = ", ".join(
                name if name in columns else f"NULL AS {name}" for name in _SESSION_COLUMNS
            )
            last = _last_messages(database)
            for row in database.execute(f"SELECT {wanted} FROM sessions ORDER BY started_at, id"):  # noqa: S608
                facts = _facts(row)
                position = last.get(facts.id, 0)
                new = _is_new(archive, facts.id, position)
                yield Imported(facts, list(_messages(database, facts.id)) if new else [], position)
    except sqlite3.Error as error:
        raise DatabaseError(f"can't be imported: {error}", where=str(path)) from error


def _last_messages(database: sqlite3.Connection) -> dict[str, int]:
    """The last message of each conversation that is part of it."""
    rows = database.execute(
        "SELECT session_id, max(id) FROM messages"  # noqa: S608
        f" WHERE 1{_visible(database)} GROUP BY session_id"
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
