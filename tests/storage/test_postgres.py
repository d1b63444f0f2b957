"""`Database`: transactions, errors, the schema, and who sees what, on a real server."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import psycopg
import pytest
from support.postgres import GUARDED, LONER, PASSWORD, Server

from hermes_builtin.sessions.spool import may_succeed_later
from hermes_core.errors import DatabaseError, ForeignDatabase
from hermes_core.storage import inspection, outages
from hermes_core.storage.inspection import inspect_server
from hermes_core.storage.postgres import (
    Component,
    Database,
    PostgresError,
    ServerFault,
    fault_of,
    from_text,
    is_temporary,
    protect_table,
    schema,
    to_text,
)
from hermes_core.storage.postgres import database as storage_database
from hermes_core.storage.time_limit import time_limit

THINGS = Component(
    "things",
    (
        "CREATE TABLE hermes.things_all (namespace text NOT NULL, what text NOT NULL);"
        + protect_table("things_all"),
    ),
)
MORE = Component("things", (*THINGS.migrations, "ALTER TABLE hermes.things_all ADD more text"))


@pytest.fixture
def empty(postgres_server: Server):
    """The name of a database without any table."""
    with postgres_server.database("template0") as name:
        yield name


@pytest.fixture
def database(postgres_server: Server, empty: str):
    made = Database(postgres_server.url(empty), "ours")
    yield made
    made.close()


def add(database: Database, what: str, component: Component = THINGS) -> None:
    with database.transaction(component) as connection:
        connection.execute(
            "INSERT INTO hermes.things_all (namespace, what) VALUES (%s, %s)",
            (database.namespace, what),
        )


def things(database: Database, component: Component = THINGS) -> list[str]:
    with database.transaction(component) as connection:
        return [what for (what,) in connection.execute("SELECT what FROM hermes.things_all")]


@contextmanager
def inside(database: Database):
    """A transaction that has stored something, and its errors as psycopg raises them."""
    try:
        with database.transaction(THINGS) as connection:
            connection.execute("INSERT INTO hermes.things_all VALUES ('ours', 'inside')")
            yield connection
    except DatabaseError as error:
        raise error.__cause__ or error from None


def test_a_transaction_is_done_wholly_or_not(database):
    add(database, "one")
    with pytest.raises(psycopg.errors.DivisionByZero), inside(database) as connection:
        connection.execute("SELECT 1 / 0")
    assert things(database) == ["one"]


def test_every_text_comes_back_as_it_was():
    for text in ("", "plain", "a\0b", "\ufffe", "\ufffe0\0", "\ufffe1", "ünï"):
        assert "\0" not in to_text(text)
        assert from_text(to_text(text)) == text


# -- the schema ----------------------------------------------------------------------------


def test_a_newer_program_migrates_and_an_older_one_is_refused(postgres_server, empty, database):
    add(database, "one")
    newer = Database(postgres_server.url(empty), "ours")
    assert things(newer, MORE) == ["one"]
    older = Database(postgres_server.url(empty), "ours")
    with pytest.raises(ForeignDatabase, match=r"newer version.*format 2, this one knows 1"):
        add(older, "two")
    assert things(newer, MORE) == ["one"]
    newer.close()


def test_a_schema_of_another_program_is_left_alone(postgres_server, empty, database):
    with postgres_server.admin(empty) as admin:
        admin.execute("CREATE SCHEMA hermes; CREATE TABLE hermes.theirs (a int)")
    with pytest.raises(ForeignDatabase, match="schema hermes belongs to another program"):
        add(database, "one")
    with postgres_server.admin(empty) as admin:
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'hermes'")
        assert tables.fetchall() == [("theirs",)]


def test_a_database_with_tables_of_another_program_is_left_alone(postgres_server, empty, database):
    with postgres_server.admin(empty) as admin:
        admin.execute('CREATE SCHEMA cloud; CREATE TABLE cloud."Users" (uid text)')
        for use in (lambda: add(database, "one"), lambda: inspect_server(database, [THINGS])):
            with pytest.raises(ForeignDatabase, match=r'which has the table cloud\."Users"'):
                use()
        found = admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'hermes'")
        assert found.fetchone() is None
        # What an extension brings is no other program's.
        admin.execute('ALTER EXTENSION plpgsql ADD TABLE cloud."Users"')
        add(database, "one")
        # And once our tables are there, others may be as well.
        admin.execute("CREATE TABLE public.later (a int)")
        database.close()
        assert things(database) == ["one"]


FOREIGN_TABLE = (
    "FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;"
    " CREATE FOREIGN TABLE public.f (one integer) SERVER s"
)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("VIEW public.people AS SELECT 1 AS one", "the view public.people"),
        ("MATERIALIZED VIEW public.m AS SELECT 1 AS one", "the materialized view public.m"),
        ("SEQUENCE public.numbers", "the sequence public.numbers"),
        ("TABLE public.t (id bigint GENERATED ALWAYS AS IDENTITY)", "the table public.t"),
        (FOREIGN_TABLE, "the foreign table public.f"),
    ],
)
def test_whatever_another_program_has_in_a_database_is_left_alone(
    postgres_server, empty, database, made, said
):
    with postgres_server.admin(empty) as admin:
        admin.execute(f"CREATE {made}")
        with pytest.raises(ForeignDatabase, match=f"another program, which has {said}"):
            add(database, "one")
        found = admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'hermes'")
        assert found.fetchone() is None


def test_processes_that_start_together_create_the_tables_once(postgres_server, empty):
    url = postgres_server.url(empty)
    databases = [Database(url, f"space{number}") for number in range(6)]
    failures = []

    def start(each: Database) -> None:
        try:
            add(each, each.namespace)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=start, args=(each,)) for each in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [things(each) for each in databases] == [[each.namespace] for each in databases]
    for each in databases:
        each.close()


def test_a_migration_that_fails_leaves_nothing_behind(postgres_server, empty, database):
    broken = Component("things", (*THINGS.migrations, "SELECT 1 / 0"))
    with pytest.raises(DatabaseError, match="division by zero"):
        add(database, "one", broken)
    with postgres_server.admin(empty) as admin:
        found = admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'hermes'")
        assert found.fetchone() is None


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_with_another_encoding_is_refused_and_left_alone(postgres_server, encoding):
    template = f"template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    with postgres_server.database(template) as name:
        # A name that this encoding has no characters for.
        database = Database(postgres_server.url(name), "家")
        for use in (lambda: add(database, "one"), lambda: inspect_server(database, [THINGS])):
            with pytest.raises(PostgresError, match=f"has the encoding {encoding}") as caught:
                use()
            assert caught.value.fault is ServerFault.ENCODING
            assert "ENCODING 'UTF8'" in caught.value.hint
            assert may_succeed_later(caught.value)  # turns wait in the spool
        database.close()
        with postgres_server.admin(name) as admin:
            found = admin.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'hermes'")
            assert found.fetchone() is None


def test_what_is_sent_is_utf_8_whatever_the_environment_says(database, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    add(database, "茶 ünï 日本語")
    assert things(database) == ["茶 ünï 日本語"]
    with database.connected() as connection:
        assert connection.info.encoding == "utf-8"


# -- who sees what -------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["hermes", LONER, "postgres"])
def test_a_hand_written_query_finds_nothing_of_another_namespace(postgres_server, empty, user):
    """Whoever connects: a member of the role, somebody who may not use it, the administrator."""
    with postgres_server.admin(empty) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {empty} TO {LONER}")
    ours, theirs = (Database(postgres_server.url(empty, user), each) for each in ("ours", "theirs"))
    add(ours, "our secret")
    add(theirs, "their secret")
    assert things(ours) == ["our secret"]
    with pytest.raises(DatabaseError, match="row-level security"), ours.transaction(THINGS) as one:
        one.execute("INSERT INTO hermes.things_all VALUES ('theirs', 'planted')")
    with ours.transaction(THINGS) as one:
        one.execute("UPDATE hermes.things_all SET what = 'changed'")
        one.execute("DELETE FROM hermes.things_all")
    assert (things(ours), things(theirs)) == ([], ["their secret"])
    ours.close()
    theirs.close()


def test_the_role_has_no_more_rights_than_a_component_grants(database):
    given = Component("things", THINGS.migrations, grants={"things_all": "SELECT, UPDATE (what)"})
    assert things(database, given) == []
    for refused in (
        "INSERT INTO hermes.things_all VALUES ('ours', 'planted')",
        "UPDATE hermes.things_all SET namespace = 'ours'",
        "DELETE FROM hermes.things_all",
    ):
        denied = pytest.raises(DatabaseError, match="permission denied")
        with denied, database.transaction(given) as connection:
            connection.execute(refused)


def test_without_a_namespace_nothing_is_seen(postgres_server, empty, database):
    add(database, "one")
    with psycopg.connect(postgres_server.url(empty)) as connection:
        assert connection.execute("SELECT * FROM hermes.things_all").fetchall() == []


def test_a_role_that_is_created_later_is_used_from_the_next_start_on(postgres_server, empty):
    with postgres_server.admin(empty) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {empty} TO {LONER}")
        before = Database(postgres_server.url(empty, LONER), "ours")
        add(before, "one")
        before.close()
        admin.execute(f"GRANT hermes_tenant TO {LONER}")
        try:
            assert things(before) == ["one"]
            with before.transaction(THINGS) as connection:
                assert connection.execute("SELECT current_user").fetchone() == ("hermes_tenant",)
        finally:
            before.close()
            admin.execute(f"REVOKE hermes_tenant FROM {LONER}")


@pytest.fixture
def founder(postgres_server, empty, monkeypatch):
    """A plain user who may create roles, on a server that does not have ours yet."""
    name, role = f"founder_{empty}", f"tenant_{empty}"
    for module in (schema, storage_database, inspection):
        monkeypatch.setattr(module, "ROLE", role)
    with postgres_server.admin(empty) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN CREATEROLE")
        admin.execute(f"GRANT CREATE ON DATABASE {empty} TO {name}")
        yield Database(postgres_server.url(empty, name), "ours")
        admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE IF EXISTS {role}")
        admin.execute(f"DROP ROLE {name}")


def test_whoever_may_create_roles_can_use_the_one_that_we_create(founder):
    add(founder, "one")
    assert things(founder) == ["one"]
    with founder.transaction(THINGS) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (schema.ROLE,)
    assert inspect_server(founder, [THINGS]).role == schema.ROLE
    founder.close()


def test_who_created_the_role_without_the_right_to_use_it_takes_that(postgres_server, founder):
    """As in databases that were created before hermes-plugins asked for it."""
    knows_set(postgres_server)
    add(founder, "one")
    founder.close()
    with founder.connected() as connection:
        connection.execute(f"REVOKE {schema.ROLE} FROM CURRENT_USER GRANTED BY CURRENT_USER")
        assert inspect_server(founder, [THINGS]).role == ""
    assert things(founder) == ["one"]
    assert inspect_server(founder, [THINGS]).role == schema.ROLE
    founder.close()


def test_a_member_who_may_not_use_the_role_is_not_said_to(postgres_server, empty):
    knows_set(postgres_server)
    with postgres_server.admin(empty) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {empty} TO {LONER}")
        admin.execute(f"GRANT hermes_tenant TO {LONER} WITH SET FALSE")
        member = Database(postgres_server.url(empty, LONER), "ours")
        try:
            add(member, "one")
            assert things(member) == ["one"]
            assert inspect_server(member, [THINGS]).role == ""
        finally:
            member.close()
            admin.execute(f"REVOKE hermes_tenant FROM {LONER}")


def knows_set(server: Server) -> None:
    with server.admin() as admin:
        if admin.info.server_version < 160_000:
            pytest.skip("before PostgreSQL 16, every member may use a role")


@pytest.fixture
def bound(postgres_server, empty, database):
    """A login that is bound to the namespace "ours", in a database with two namespaces."""
    add(database, "our secret")
    theirs = Database(postgres_server.url(empty), "theirs")
    add(theirs, "their secret")
    theirs.close()
    login = f"bound_{empty}"
    with postgres_server.admin(empty) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE hermes_tenant")
        admin.execute("INSERT INTO hermes.tenants VALUES (%s, 'ours')", (login,))
    yield login
    with postgres_server.admin(empty) as admin:
        admin.execute(f"DROP ROLE IF EXISTS {login}; DROP ROLE IF EXISTS {login}_new")


def seen_of_theirs(postgres_server: Server, database: str, login: str) -> list[str]:
    """What a login sees that asks for the other namespace."""
    with psycopg.connect(postgres_server.url(database, login)) as connection:
        connection.execute("SET hermes.namespace = 'theirs'")
        return [row[1] for row in connection.execute("SELECT * FROM hermes.things_all")]


def test_a_login_stays_bound_as_long_as_it_exists(postgres_server, empty, bound):
    with postgres_server.admin(empty) as admin:
        for unbind in (
            "DELETE FROM hermes.tenants",
            "UPDATE hermes.tenants SET login = 'another'",
            "TRUNCATE hermes.tenants",
        ):
            with pytest.raises(psycopg.Error, match="is bound to the namespace ours") as caught:
                admin.execute(unbind)
            assert "drop the role first" in caught.value.diag.message_hint
        assert seen_of_theirs(postgres_server, empty, bound) == ["our secret"]
        admin.execute("UPDATE hermes.tenants SET namespace = 'empty'")
        assert seen_of_theirs(postgres_server, empty, bound) == []
        admin.execute(f"ALTER ROLE {bound} RENAME TO {bound}_new")
        admin.execute("UPDATE hermes.tenants SET login = login || '_new'")
        assert seen_of_theirs(postgres_server, empty, f"{bound}_new") == []
        admin.execute(f"DROP ROLE {bound}_new")
        assert admin.execute("DELETE FROM hermes.tenants").rowcount == 1
        admin.execute("INSERT INTO hermes.tenants VALUES ('nobody any more', 'ours')")
        admin.execute("TRUNCATE hermes.tenants")
        assert admin.execute("SELECT * FROM hermes.tenants").fetchall() == []


@pytest.mark.parametrize("version", [0, 1])
def test_a_database_from_before_keeps_its_logins_bound_too(postgres_server, empty, bound, version):
    with postgres_server.admin(empty) as admin:
        if version:
            admin.execute("DROP TRIGGER tenant_kept_truncated ON hermes.tenants")
            admin.execute("UPDATE hermes.versions SET version = 1 WHERE component = 'tenants'")
        else:
            admin.execute("DROP FUNCTION hermes.tenant_kept CASCADE")
            admin.execute("DELETE FROM hermes.versions WHERE component = 'tenants'")
        later = Database(postgres_server.url(empty), "ours")
        assert things(later) == ["our secret"]
        later.close()
        for unbind in ("DELETE FROM hermes.tenants", "TRUNCATE hermes.tenants"):
            with pytest.raises(psycopg.Error, match="is bound to the namespace ours"):
                admin.execute(unbind)


# -- errors --------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_named_in_one_line(tmp_path):
    database = Database("postgresql://ann@127.0.0.1:1/x?sslmode=disable", "ours", "hunter2")
    with pytest.raises(PostgresError) as caught:
        add(database, "one")
    assert caught.value.fault is ServerFault.UNREACHABLE
    assert is_temporary(caught.value)
    assert str(caught.value).startswith("postgresql://ann@127.0.0.1:1/x: PostgreSQL can't be used")
    assert "hunter2" not in str(caught.value)


def test_a_user_with_too_many_connections_is_told_to_try_again(postgres_server, empty):
    user = f"few_{empty}"
    with postgres_server.admin(empty) as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN CONNECTION LIMIT 0 IN ROLE hermes_tenant")
        with pytest.raises(PostgresError, match="too many connections for role") as caught:
            things(Database(postgres_server.url(empty, user), "ours"))
        assert caught.value.fault is ServerFault.BUSY
        assert is_temporary(caught.value)
        assert "try again" in caught.value.hint
        admin.execute(f"DROP ROLE {user}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('FATAL:  too many connections for database "x"', ServerFault.BUSY),
        ("FATAL:  the database system is starting up", ServerFault.UNREACHABLE),
        ("FATAL:  the database system is in recovery mode", ServerFault.UNREACHABLE),
        ('FATAL:  database "x" does not exist', ServerFault.REFUSED),
        ('FATAL:  role "x" is not permitted to log in', ServerFault.REFUSED),
    ],
)
def test_what_a_server_says_before_a_connection_is_made(text, fault):
    assert fault_of(psycopg.OperationalError(f"connection failed: {text}")) is fault


def test_a_port_of_the_environment_that_is_none_is_no_server_that_is_down(monkeypatch):
    monkeypatch.setenv("PGPORT", "99999")
    with pytest.raises(PostgresError, match="invalid port number") as caught:
        things(Database("postgresql://ann@127.0.0.1/x", "ours"))
    assert caught.value.hint == "correct memory.storage, or the PG* variables"


def test_a_wrong_password_is_refused_and_never_shown(postgres_server, empty):
    url = postgres_server.tcp_url(empty, GUARDED)
    with pytest.raises(PostgresError, match="password authentication failed") as caught:
        add(Database(url, "ours", "hunter2"), "one")
    assert caught.value.fault is ServerFault.REFUSED
    assert "hunter2" not in str(caught.value)
    right = Database(url, "ours", PASSWORD)
    with postgres_server.admin(empty) as admin:
        admin.execute(f"GRANT CREATE ON DATABASE {empty} TO {GUARDED}")
    add(right, "one")
    assert things(right) == ["one"]
    right.close()


def test_a_connection_that_the_server_ended_is_replaced(postgres_server, empty, database):
    add(database, "one")
    with postgres_server.admin() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (empty,)
        )
    add(database, "two")
    assert things(database) == ["one", "two"]


def test_a_connection_that_is_cut_in_the_middle_is_an_error_and_nothing_is_stored(
    postgres_server, database
):
    add(database, "one")
    cut = pytest.raises(psycopg.OperationalError)
    with postgres_server.admin() as admin, cut as caught, inside(database) as connection:
        admin.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
    assert fault_of(caught.value) is ServerFault.UNREACHABLE
    assert things(database) == ["one"]


def test_a_statement_that_takes_too_long_is_ended(postgres_server, empty):
    hasty = Database(postgres_server.url(empty), "ours", statement_seconds=0.2)
    with pytest.raises(PostgresError) as caught, hasty.transaction(THINGS) as connection:
        connection.execute("SELECT pg_sleep(60)")
    assert caught.value.fault is ServerFault.BUSY
    hasty.close()


def test_when_all_connections_are_in_use_whoever_waits_is_told(postgres_server, empty):
    small = Database(postgres_server.url(empty), "ours", connections=1)
    in_use = pytest.raises(PostgresError, match="all 1 connections are in use")
    with small.transaction(THINGS), in_use, small.transaction(THINGS, seconds=0.1):
        pass
    assert things(small) == []
    small.close()


def test_a_standby_is_read_only(postgres_server, empty, database):
    add(database, "one")
    with postgres_server.admin(empty) as admin:
        admin.execute(f"ALTER DATABASE {empty} SET default_transaction_read_only = on")
    database.close()
    with pytest.raises(PostgresError) as caught:
        add(database, "two")
    assert fault_of(caught.value) is ServerFault.READ_ONLY


def test_variables_of_libpq_override_our_defaults(postgres_server, empty, monkeypatch):
    """But not the two that we rely on: see `storage.inspection`, and the encoding."""
    with postgres_server.admin(empty) as admin:
        admin.execute(f"ALTER DATABASE {empty} SET default_transaction_read_only = on")
    read_only = pytest.raises(PostgresError, match="read-only")
    with read_only, Database(postgres_server.url(empty)).connected():
        pass
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "17")
    monkeypatch.setenv("PGAPPNAME", "another")
    with Database(postgres_server.url(empty)).connected() as connection:
        assert connection.info.get_parameters()["connect_timeout"] == "17"
        assert connection.info.get_parameters()["application_name"] == "hermes-plugins"
    given = Database(f"{postgres_server.url(empty)}?connect_timeout=19&application_name=mine")
    with given.connected() as connection:
        assert connection.info.get_parameters()["connect_timeout"] == "19"
        assert connection.info.get_parameters()["application_name"] == "mine"


def test_of_several_hosts_the_one_that_answers_is_used(postgres_server, empty):
    url = f"postgresql://hermes@127.0.0.1:1,127.0.0.1:{postgres_server.port}/{empty}"
    database = Database(url, "ours")
    add(database, "one")
    assert things(database) == ["one"]
    database.close()


# -- forks ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_parent_and_child_both_go_on(database):
    add(database, "before")
    child = os.fork()
    if child == 0:
        try:
            add(database, "child")
            database.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    add(database, "parent")
    assert sorted(things(database)) == ["before", "child", "parent"]


def test_a_call_that_had_used_up_its_time_is_no_outage(database: Database) -> None:
    """Whoever computes for long in a transaction learns nothing about the server."""
    add(database, "before")
    with (
        pytest.raises(PostgresError, match="the call had used up its time") as raised,
        database.transaction(THINGS) as connection,
        time_limit(0),
    ):
        connection.execute("SELECT pg_sleep(0.2)")
    assert raised.value.fault is ServerFault.BUSY
    with time_limit(30):  # during an outage, a call with a limit would be refused
        assert things(database) == ["before"]


@pytest.fixture
def refusing():
    """A port that ends each connection at once, and how many there were."""
    listener, met = socket.create_server(("127.0.0.1", 0)), []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                met.append(client.getpeername())
                client.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], met
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_command_asks_a_server_once_however_long_it_takes(refusing, monkeypatch):
    monkeypatch.setattr(outages, "_SECONDS", -1.0)  # too long ago at once
    port, met = refusing
    # With TLS, libpq would try a second time without it.
    url = f"postgresql://hermes@127.0.0.1:{port}/hermes?sslmode=disable"

    def ask(database: Database) -> None:
        with pytest.raises(PostgresError, match="PostgreSQL can't be used"):
            things(database)
        database.close()

    with outages.remembered_outages():
        first = Database(url)
        ask(first)
        assert first._outage is not None
        first._outage = replace(first._outage, at=-1e9, seconds=0.0)
        ask(first)
        ask(Database(url, "in another place of the command"))
        assert len(met) == 1
    ask(Database(url))
    assert len(met) == 2
