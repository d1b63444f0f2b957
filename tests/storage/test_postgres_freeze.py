"""A namespace that is frozen or thawed, while others of the same database store turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.postgres import PostgresArchive
from hermes_builtin.sessions.postgres.rows import PostgresRows
from hermes_core import HermesError
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


def catalogue(connection: Any) -> str:
    """What every login sees of the triggers and functions."""
    rows = connection.execute(
        "SELECT pg_get_triggerdef(oid), tgargs::text FROM pg_trigger"
        " UNION ALL SELECT prosrc, '' FROM pg_proc WHERE pronamespace = 'hermes'::regnamespace"
    )
    return str(rows.fetchall())


def test_a_bound_login_does_not_see_who_has_moved_and_where_to(
    rows: PostgresRows, database_url: str, postgres_server: Any
) -> None:
    rows.freeze("it moves to postgresql://secret-place/db")
    name = database_url.rpartition("/")[2]
    login = f"bound_{name}"
    with closing(postgres_server.admin(name)) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE hermes_tenant")
        admin.execute("INSERT INTO hermes.tenants VALUES (%s, 'team')", (login,))
        try:
            with psycopg.connect(postgres_server.url(name, login), autocommit=True) as bound:
                bound.execute("SELECT set_config('hermes.namespace', 'moves', false)")
                seen = catalogue(bound)
                assert "refuse_frozen" in seen
                assert "secret-place" not in seen
                assert "moves" not in seen
                assert sha256(b"moves").hexdigest()[:8] not in seen
                assert bound.execute("SELECT hermes.why_frozen()").fetchone() == (None,)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    bound.execute("SELECT * FROM hermes.frozen")
                # Its own trigger would look up any namespace, if it could have one.
                bound.execute("CREATE TEMP TABLE trap (namespace text)")
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    bound.execute(
                        "CREATE TRIGGER trap BEFORE INSERT ON trap FOR EACH ROW"
                        " EXECUTE FUNCTION hermes.refuse_frozen()"
                    )
                bound.execute("DROP TABLE trap")  # else it may outlive the connection for a moment
        finally:
            admin.execute(f"DROP ROLE {login}")


def test_the_owner_thaws_what_a_superuser_has_frozen(
    rows: PostgresRows, database_url: str, postgres_server: Any
) -> None:
    database = Database(postgres_server.url(database_url.rpartition("/")[2], "postgres"), "moves")
    PostgresRows(database).freeze("it moves")
    database.close()
    with closing(PostgresArchive(rows._database)) as archive:
        with pytest.raises(HermesError, match="it moves"):
            archive.append(SessionFacts("s"), SAID)

        rows.thaw()

        assert archive.append(SessionFacts("s"), SAID)


def test_a_namespace_with_the_same_byte_of_its_hash_is_not_frozen(
    rows: PostgresRows, database_url: str
) -> None:
    first = sha256(b"moves").digest()[0]
    names = (f"other{number}" for number in range(10_000))
    same = next(each for each in names if sha256(each.encode()).digest()[0] == first)
    rows.freeze("it moves")
    database = Database(database_url, same)
    with closing(PostgresArchive(database)) as archive:
        assert archive.append(SessionFacts("s"), SAID)
        assert PostgresRows(database).frozen() == ""
    database.close()


def test_a_namespace_that_was_frozen_by_version_0_2_0_is_thawed(
    rows: PostgresRows, database_url: str, postgres_server: Any
) -> None:
    trigger = f"frozen_insert_{sha256(b'moves').hexdigest()[:16]}"
    with psycopg.connect(database_url) as owner:
        owner.execute(
            "CREATE FUNCTION hermes.refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE '%', TG_ARGV[0] USING ERRCODE = 'HP001'; END $$;"
            f"CREATE TRIGGER {trigger} BEFORE INSERT ON hermes.archive_messages FOR EACH ROW"
            " WHEN (NEW.namespace = 'moves')"
            " EXECUTE FUNCTION hermes.refuse_change('this memory has moved')"
        )
    assert rows.frozen() == "this memory has moved"

    rows.thaw()

    assert rows.frozen() == ""
    rows.freeze("it moves")
    rows.thaw()
    assert rows.frozen() == ""
    with psycopg.connect(database_url) as owner:
        left = owner.execute("SELECT tgname FROM pg_trigger WHERE starts_with(tgname, 'frozen_')")
        assert left.fetchall() == []
