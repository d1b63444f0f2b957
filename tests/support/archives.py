"""Conversations on a home, as a host and a model have them, and the file that keeps them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from hermes_builtin.sessions.archive import (
    ROLES,
    Archive,
    NewMessage,
    Scope,
    SearchOptions,
    SessionFacts,
)
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.query import parse
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import MemoryManager
from hermes_core.storage.postgres import from_text, to_text

from .storages import Storage

SUFFIXES = ("", "-wal", "-shm")


class Talk:
    """A session with its manager: turns go in, and the tool is asked."""

    def __init__(self, home: Path, session: str = "now", **facts: Any) -> None:
        self.home = home
        self.manager = MemoryManager.from_config(home)
        self.manager.initialize_all(session, platform=facts.pop("platform", "cli"), **facts)

    def say(self, user: Any, assistant: Any = "Noted.", **options: Any) -> None:
        self.manager.sync_all(user, assistant, **options)

    def ask(self, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.manager.handle_tool_call("session_search", arguments)
        )
        return answer

    def found(self, query: str, **arguments: Any) -> list[str]:
        """The ids of the sessions that a search finds; it has to succeed."""
        answer = self.ask(query=query, limit=10, **arguments)
        assert answer.get("success"), answer
        return [each["session_id"] for each in answer["results"]]

    def read(self, session: str) -> list[dict[str, Any]]:
        answer = self.ask(session_id=session)
        assert answer.get("success"), answer
        messages: list[dict[str, Any]] = answer["messages"]
        return messages

    def note(self, text: str) -> bool:
        """Whether the notes take an entry."""
        arguments = {"target": "memory", "action": "add", "content": text}
        answer = json.loads(self.manager.handle_tool_call("memory", arguments))
        return bool(answer["success"])

    def close(self) -> None:
        self.manager.shutdown_all()


def open_archive(home: Path) -> Archive:
    """The archive of a home, wherever it is."""
    return locate(home).open()


def fill(path: Path, sessions: int = 6, turns: int = 2, words: int = 1) -> None:
    """An archive in which each turn of each session has a word of its own."""
    with closing(SqliteArchive(path)) as archive:
        for number in range(sessions):
            facts = SessionFacts(
                f"talk-{number}",
                source="cli",
                user_id="ann",
                chat_id="home",
                profile="default",
                title=f"About thing {number}",
                started=1.7e9 + number * 3600,
            )
            for turn in range(turns):
                archive.append(facts, turn_of(number, turn, words))
        assert search(archive, rare_word(0)) == ["talk-0"]  # and all is indexed


def search(archive: Archive, query: str) -> list[str]:
    """The ids of the sessions that everybody's search finds."""
    options = SearchOptions(Scope(), frozenset(ROLES), 10)
    return [hit.session.id for hit in archive.search(parse(query), options).hits]


def turn_of(number: int, turn: int, words: int = 1) -> list[NewMessage]:
    """A question, a tool's part and an answer; `rare_word` is in the question."""
    at = 1.7e9 + number * 3600 + turn * 60
    calls = [{"function": {"name": "weather", "arguments": f'{{"town": "Bonn{number}"}}'}}]
    return [
        NewMessage("user", f"Tell me of {rare_word(number, turn)} please. " * words, at),
        NewMessage("assistant", "", at + 1, {"tool_calls": calls}),
        NewMessage("tool", "It is dry.", at + 2, {"tool_name": "weather"}),
        NewMessage("assistant", f"It is a thing of number {number}, naïve café 日本語.", at + 3),
    ]


def rare_word(number: int, turn: int = 0) -> str:
    return f"zanzi{number}bar{turn}q"


def stored(path: Path) -> dict[str, list[str]]:
    """The texts by session, in order, read by other code than ours."""
    if Storage.current.url:
        return _stored_in_postgres()
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        found: dict[str, list[str]] = {}
        for name, content in database.execute(
            "SELECT s.id, m.content FROM archive_sessions s LEFT JOIN archive_messages m"
            " ON m.id >> 22 = s.number ORDER BY m.id"
        ):
            found.setdefault(name, []).extend([] if content is None else [content])
        return found


def _stored_in_postgres() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with _as_administrator() as database:
        for name, content in database.execute(
            "SELECT s.id, m.content FROM hermes.archive_sessions s"
            " LEFT JOIN hermes.archive_messages m ON m.id >> 22 = s.number"
            " WHERE s.namespace = %s ORDER BY m.id",
            (Storage.current.namespace,),
        ):
            texts = found.setdefault(from_text(name), [])
            texts.extend([] if content is None else [from_text(content)])
    return found


def _row_in_postgres(session: str) -> dict[str, Any]:
    with _as_administrator() as database:
        query = "SELECT * FROM hermes.archive_sessions WHERE namespace = %s AND id = %s"
        values = (Storage.current.namespace, to_text(session))
        row = database.cursor(row_factory=dict_row).execute(query, values).fetchone()
        assert row is not None
        return row


def _as_administrator() -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that no policy binds."""
    return psycopg.connect(Storage.current.url.replace("//hermes@", "//postgres@"))


def session_row(path: Path, session: str) -> dict[str, Any]:
    """What is kept of a session, read by other code than ours."""
    if Storage.current.url:
        return _row_in_postgres(session)
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        return dict(
            database.execute("SELECT * FROM archive_sessions WHERE id = ?", (session,)).fetchone()
        )


def assert_sound(path: Path) -> None:
    """SQLite's check, the index's and our own have nothing to say."""
    if Storage.current.url:
        with closing(open_archive(path.parent)) as archive:
            assert archive.check() == []
        return
    with closing(sqlite3.connect(path, timeout=30)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.execute("INSERT INTO archive_index (archive_index) VALUES ('integrity-check')")
        database.rollback()
    with closing(SqliteArchive(path)) as archive:
        assert archive.check() == []


def bytes_of(home: Path) -> bytes:
    """Every byte of every file of the archive; nobody may have it open in this process."""
    return b"".join(path.read_bytes() for path in sorted(home.glob("s*.db*")))


def pages_of(path: Path) -> dict[str, list[int]]:
    """The pages of each table and index, by its name."""
    with closing(sqlite3.connect(path)) as database:
        found: dict[str, list[int]] = {}
        for name, page in database.execute("SELECT name, pageno FROM dbstat ORDER BY pageno"):
            found.setdefault(name, []).append(page)
        return found
