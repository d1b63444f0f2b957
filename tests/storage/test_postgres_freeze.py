"""A namespace that is frozen or thawed, while others of the same database store turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.postgres import PostgresArchive
from hermes_builtin.sessions.postgres.rows import PostgresRows
from hermes_core.storage.postgres import Database

SAID = [NewMessage("user", "walnut", 1.0)]
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


@pytest.fixture
def rows(database_url: str) -> Iterator[PostgresRows]:
    """The rows of a namespace that moves away."""
    database = Database(database_url, "moves")
    with closing(PostgresArchive(database)) as archive:
        archive.append(SessionFacts("s"), SAID)
        yield PostgresRows(database)
    database.close()


def freeze(rows: PostgresRows) -> None:
    rows.freeze("it moves")


def thaw(rows: PostgresRows) -> None:
    rows.thaw()


@pytest.mark.parametrize("change", [freeze, thaw])
@pytest.mark.parametrize(
    "order",
    [("archive_sessions", "archive_messages"), ("archive_messages", "archive_sessions")],
    ids=["as a turn", "as a deletion"],
)
def test_it_never_deadlocks_with_who_writes(
    rows: PostgresRows,
    database_url: str,
    postgres_server: Any,
    change: Callable[[PostgresRows], None],
    order: tuple[str, str],
) -> None:
    if change is thaw:
        rows.freeze("it moves")
    problems: list[BaseException] = []

    def run() -> None:
        try:
            change(rows)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    name = database_url.rpartition("/")[2]
    with closing(postgres_server.admin(name)) as writer, closing(postgres_server.admin(name)) as me:
        with writer.transaction():
            writer.execute(f"LOCK TABLE hermes.{order[0]} IN ROW EXCLUSIVE MODE")
            thread.start()
            while not me.execute(WAITING).fetchone()[0]:
                time.sleep(0.01)
            writer.execute(f"LOCK TABLE hermes.{order[1]} IN ROW EXCLUSIVE MODE")
        thread.join()
    assert problems == []
    assert rows.frozen() == ("it moves" if change is freeze else "")


def test_a_turn_that_the_server_has_undone_is_stored_at_once(
    database_url: str, postgres_server: Any
) -> None:
    database = Database(database_url, "stays")
    with (
        closing(PostgresArchive(database)) as archive,
        closing(postgres_server.admin(database_url.rpartition("/")[2])) as admin,
    ):
        archive.append(SessionFacts("s"), SAID)
        admin.execute(
            "CREATE SEQUENCE hermes.attempts;"
            "GRANT USAGE ON SEQUENCE hermes.attempts TO PUBLIC;"
            "CREATE FUNCTION hermes.undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('hermes.attempts') = 1 THEN"
            "  RAISE 'deadlock detected' USING ERRCODE = '40P01'; END IF;"
            " RETURN NEW; END $$;"
            "CREATE TRIGGER undo BEFORE INSERT ON hermes.archive_messages"
            " FOR EACH ROW EXECUTE FUNCTION hermes.undo()"
        )
        archive.append(SessionFacts("s"), SAID)
        session = archive.session("s", EVERYBODY)
        assert session is not None
        assert session.messages == 2
    database.close()


@pytest.mark.stress
def test_turns_of_other_namespaces_go_on_meanwhile(rows: PostgresRows, database_url: str) -> None:
    stop = threading.Event()
    problems: list[BaseException] = []
    stored = [0] * 4

    def write(number: int) -> None:
        database = Database(database_url, f"other{number}")
        with closing(PostgresArchive(database)) as archive:
            while not stop.is_set():
                try:
                    archive.append(SessionFacts("t"), SAID)
                    stored[number] += 1
                except Exception as error:
                    problems.append(error)
            session = archive.session("t", EVERYBODY)
            assert session is not None
            stored[number] -= session.messages
        database.close()

    threads = [threading.Thread(target=write, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        rows.freeze("it moves")
        rows.thaw()
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert stored == [0] * 4
