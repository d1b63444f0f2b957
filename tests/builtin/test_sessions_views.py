"""The views of our state.db that have the names and columns of hermes-agent's tables."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import fill
from support.hermes_agent import PEERS, at_their_archive, missing
from support.providers import Recorder
from support.talks import StartTalk, past, talks

from hermes_builtin import BuiltinProvider
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.hermes_agent import archive_files
from hermes_builtin.sessions.importers import NotImportedError, import_file
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import MemoryManager

pytestmark = pytest.mark.files_only("hermes-agent's plugins open the file")

VIEWS = ("messages", "sessions")


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


def rows(path: Path, query: str, *values: object) -> list[dict[str, Any]]:
    """What a plugin gets that opens the file itself."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query, values)]


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def views(path: Path) -> set[str]:
    found = rows(path, "SELECT name FROM sqlite_master WHERE type = 'view'")
    return {each["name"] for each in found}


def opened(path: Path) -> None:
    with closing(SqliteArchive(path)) as archive:
        archive.stats()


# -- what they contain -----------------------------------------------------------------------------


def test_a_plugin_reads_the_messages_of_a_session(home: Path, talk: StartTalk) -> None:
    call = [{"id": "c1", "function": {"name": "shell", "arguments": "{}"}}]
    between = [
        {"role": "user", "content": "run it"},
        {"role": "assistant", "content": "", "tool_calls": call},
        {"role": "tool", "content": "done", "tool_name": "shell", "tool_call_id": "c1"},
        {"role": "developer", "content": "hm"},
    ]
    talk("s1").say("run it", "Done.", messages=between)
    past(home, "s2", [("another", "one")])
    found = rows(
        home / "state.db",
        "SELECT role, content, tool_name, tool_calls, tool_call_id, timestamp, active"
        " FROM messages WHERE session_id = ? ORDER BY id",
        "s1",
    )
    assert [(each["role"], each["content"]) for each in found] == [
        ("user", "run it"), ("assistant", ""), ("tool", "done"), ("developer", "hm"),
        ("assistant", "Done."),
    ]  # fmt: skip
    assert json.loads(found[1]["tool_calls"]) == call
    assert (found[2]["tool_name"], found[2]["tool_call_id"]) == ("shell", "c1")
    assert all(each["timestamp"] > 1.7e9 and each["active"] == 1 for each in found)
    assert found[0]["tool_calls"] is None


def test_a_plugin_reads_the_sessions(home: Path, talk: StartTalk) -> None:
    past(home, "old", [("hello", "hello")], session_title="Hello", user_id="ada", platform="cli")
    talk("new", parent_session_id="old").say("and more")
    first, second = rows(home / "state.db", "SELECT * FROM sessions ORDER BY started_at")
    assert (first["id"], first["title"], first["user_id"]) == ("old", "Hello", "ada")
    assert (first["source"], first["message_count"]) == ("cli", 2)
    assert (first["profile_name"], first["hidden"], first["archived"]) == ("default", 0, 0)
    assert first["ended_at"] >= first["last_activity_at"] >= first["started_at"] > 1.7e9
    assert (second["parent_session_id"], second["title"]) == ("old", None)
    assert (second["ended_at"], second["model"], second["input_tokens"]) == (None, None, 0)


@pytest.mark.parametrize("release", PEERS)
def test_they_have_every_column_of_hermes_agent(release: str, tmp_path: Path) -> None:
    if why := missing(release):
        pytest.skip(why)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    at_their_archive(theirs, "", release)
    fill(ours / "state.db")
    for name in VIEWS:
        wanted = {each["name"] for each in rows(theirs / "state.db", f"PRAGMA table_info({name})")}
        assert wanted <= set(rows(ours / "state.db", f"SELECT * FROM {name} LIMIT 1")[0])


def test_a_session_is_looked_up_and_not_all_messages_are_read(tmp_path: Path) -> None:
    fill(tmp_path / "state.db")
    for query in (
        "SELECT * FROM messages WHERE session_id = 'talk-1' ORDER BY id",
        "SELECT * FROM messages WHERE id = 4194304",
    ):
        plan = rows(tmp_path / "state.db", f"EXPLAIN QUERY PLAN {query}")
        assert [each["detail"].split()[0] for each in plan] == ["SEARCH", "SEARCH"]


@pytest.mark.parametrize("name", VIEWS)
def test_nobody_can_write_through_them(name: str, tmp_path: Path) -> None:
    fill(tmp_path / "state.db")
    with pytest.raises(sqlite3.OperationalError, match="is a view"):
        change(tmp_path / "state.db", f"DELETE FROM {name}")


def test_damaged_facts_of_a_message_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "UPDATE archive_messages SET extra = '{not json'")
    assert {each["tool_name"] for each in rows(path, "SELECT * FROM messages")} == {None}


# -- that they are there ---------------------------------------------------------------------------


class Reader(Recorder):
    """A plugin that reads the archive as soon as it starts."""

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.seen = [
            each["n"]
            for name in VIEWS
            for each in rows(
                Path(kwargs["hermes_home"]) / "state.db", f"SELECT count(*) n FROM {name}"
            )
        ]
        super().initialize(session_id, **kwargs)


@pytest.mark.parametrize("older", [False, True], ids=["new home", "older home"])
def test_a_plugin_can_read_them_when_it_starts(home: Path, older: bool) -> None:
    if older:
        past(home, "s1", [("hello", "hello")])
        change(home / "state.db", "DROP VIEW messages; DROP VIEW sessions;")
    reader = Reader()
    manager = MemoryManager(home=home)
    manager.add_provider(BuiltinProvider())
    manager.add_provider(reader)
    manager.initialize_all("s2")
    manager.shutdown_all()
    assert reader.seen == ([2, 1] if older else [0, 0])


@pytest.mark.parametrize("folder", [None, "/proc/none", "a\0b"])
def test_a_home_that_can_not_be_is_no_error_of_the_host(
    folder: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)  # where an archive without a home is made
    reader = Recorder()
    manager = MemoryManager(home=home)
    manager.add_provider(BuiltinProvider())
    manager.add_provider(reader)
    manager.initialize_all("s1", hermes_home=folder)
    manager.shutdown_all()


def test_a_look_makes_no_file(home: Path) -> None:
    manager = MemoryManager(home=home)
    manager.add_provider(BuiltinProvider())
    manager.add_provider(Recorder())
    manager.initialize_all_for_inspection("s1")
    manager.shutdown_all()
    assert not (home / "state.db").exists()


def test_an_older_home_gets_them_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "DROP VIEW messages; DROP VIEW sessions;")
    opened(path)
    assert views(path) == set(VIEWS)


def test_views_of_another_version_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "DROP VIEW messages; CREATE VIEW messages AS SELECT id FROM archive_messages;")
    opened(path)
    assert rows(path, "SELECT session_id FROM messages")


def test_somebody_who_writes_keeps_nobody_from_opening_an_older_home(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "DROP VIEW messages; DROP VIEW sessions;")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        opened(path)
        database.execute("ROLLBACK")
    assert views(path) == set()
    opened(path)
    assert views(path) == set(VIEWS)


def test_repair_makes_them_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "UPDATE archive_messages SET content = 'changed' WHERE id & 3 = 0")
    with closing(SqliteArchive(path)) as archive:
        assert archive.check()
        archive.repair()
        assert archive.check() == []
    assert views(path) == set(VIEWS)
    assert rows(path, "SELECT id FROM messages WHERE session_id = 'talk-1'")


def test_they_make_room_for_the_tables_of_hermes_agent(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    fill(path)
    change(path, "CREATE TABLE schema_version (version INTEGER)")
    opened(path)
    assert views(path) == set()
    change(path, "CREATE TABLE sessions (id); CREATE TABLE messages (id);")
    opened(path)
    with closing(SqliteArchive(path)) as archive:
        assert archive.check() == []
        assert archive.stats().sessions == 6
    assert views(path) == set()


# -- that nobody takes our file for hermes-agent's -------------------------------------------------


def test_our_file_is_not_taken_for_that_of_hermes_agent(tmp_path: Path) -> None:
    fill(tmp_path / "state.db")
    assert archive_files(tmp_path) == (tmp_path / "state.db", None)
    other = tmp_path / "other" / "state.db"
    other.parent.mkdir()
    shutil.copy(tmp_path / "state.db", other)
    with closing(SqliteArchive(tmp_path / "new.db")) as archive:
        with pytest.raises(NotImportedError, match="archive of hermes-plugins"):
            import_file(archive, other)
        assert archive.stats().sessions == 0


def test_an_archive_that_hermes_agent_shares_with_us_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteArchive(path)) as archive:
        archive.append(SessionFacts("ours", "cli"), [NewMessage("user", "kumquat", 1.0)])
    change(
        path,
        "DROP VIEW messages; DROP VIEW sessions; CREATE TABLE schema_version (version INTEGER);"
        "CREATE TABLE sessions (id, source, started_at);"
        "CREATE TABLE messages (id, session_id, role, content, timestamp, tool_name, tool_calls,"
        " tool_call_id);"
        "INSERT INTO sessions VALUES ('theirs', 'cli', 1.0);"
        "INSERT INTO messages VALUES (1, 'theirs', 'user', 'walrus', 1.0, NULL, NULL, NULL);",
    )
    with closing(SqliteArchive(tmp_path / "new.db")) as archive:
        assert import_file(archive, path).sessions == 1
        assert archive.session("theirs", EVERYBODY) is not None
        assert archive.session("ours", EVERYBODY) is None
