"""What happens to turns while the server, or the way to it, fails: none is lost or doubled."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from support.commands import wait_until
from support.postgres_faults import FleetHome, OwnServer
from support.tcp_proxy import Proxy

from hermes_core.manager import builtin
from hermes_core.storage.postgres import database as postgres

pytestmark = pytest.mark.xdist_group("postgres-faults")


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn gives up after half a second, so that these tests don't wait for it."""
    monkeypatch.setattr(builtin, "ARCHIVE_SECONDS", 0.5)


def test_a_server_that_is_down_at_the_start(server: OwnServer, fleet_home: FleetHome) -> None:
    assert fleet_home.status()[0] == 0
    server.kill()
    code, told = fleet_home.status()
    assert code == 1
    assert f"127.0.0.1:{server.port}/hermes" in told
    assert "check that the server is running" in told
    talk = fleet_home.talk()
    for number in range(3):
        talk.say(f"turn {number}")
    assert [each for each in talk.manager.warnings if "3 turns wait in the spool" in each]
    for code, told in (fleet_home.status(), fleet_home.doctor()):
        assert code == 1
        assert "3 turns wait in the spool" in told
        assert "Connection refused" in told
    server.start()
    assert fleet_home.is_handed_over()
    talk.say("turn 3")
    assert not talk.manager.warnings
    talk.close()
    assert fleet_home.stored() == [f"turn {number}" for number in range(4)]
    for code, told in (fleet_home.status(), fleet_home.doctor()):
        assert code == 0
        assert "spool" not in told


def test_a_server_that_was_stopped_answers_later_and_stores_each_turn_once(
    server: OwnServer, fleet_home: FleetHome
) -> None:
    talk = fleet_home.talk()
    talk.say("before")
    server.signal(signal.SIGSTOP)
    # The server has this one in its ear already: it stores it when it goes on.
    talk.say("during")
    assert fleet_home.spooled() == 1
    talk.say("behind it")
    assert fleet_home.spooled() == 2
    assert not talk.note("The kettle is blue.")
    asking = fleet_home.talk("asks")
    assert "behind it" in str(asking.ask(query="behind"))
    asking.close()
    server.signal(signal.SIGCONT)
    assert fleet_home.is_handed_over()
    talk.say("after")
    talk.close()
    assert fleet_home.stored() == ["before", "during", "behind it", "after"]


def test_during_an_outage_turns_do_not_try_again(
    proxy: Proxy, fleet_home: FleetHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background does; here it waits for an hour, and so does the next trial of a turn."""
    monkeypatch.setattr(postgres, "_OUTAGE_SECONDS", 3600.0)
    fleet_home.use(f"postgresql://hermes@127.0.0.1:{proxy.port}/hermes")
    talk = fleet_home.talk()
    talk.say("before")
    proxy.silent = True
    talk.say("during")
    before = proxy.connections
    for _ in range(5):
        assert not talk.ask(query="before").get("results")
        assert not talk.note("The kettle is blue.")
    assert proxy.connections <= before + 1  # the pool's own, for the one that it lost
    talk.close()


@pytest.mark.parametrize("command", [["status"], ["doctor"], ["storage", "status"]])
def test_a_command_waits_once_for_a_server_that_does_not_answer(
    proxy: Proxy, through_proxy: FleetHome, command: list[str]
) -> None:
    """In its own process or in the child that runs plugin code: the other one hears of it."""
    assert through_proxy.machine.run(*command, timeout=120).code == 0
    proxy.silent = True
    before = proxy.connections
    done = through_proxy.machine.run(*command, timeout=120)
    assert done.code == 1
    assert "PostgreSQL can't be used" in done.out
    assert proxy.connections == before + 1


@pytest.fixture
def through_proxy(proxy: Proxy, fleet_home: FleetHome) -> FleetHome:
    fleet_home.use(f"postgresql://hermes@127.0.0.1:{proxy.port}/hermes")
    return fleet_home


def _cut_before(proxy: Proxy) -> None:
    proxy.cuts_at = b"archive_append"


def _cut_after(proxy: Proxy) -> None:
    proxy.cuts_answer_to = b"archive_append"


def _silent(proxy: Proxy) -> None:
    proxy.silent = True


def _delayed(proxy: Proxy) -> None:
    proxy.delay = 0.3


def _corrupted(proxy: Proxy) -> None:
    proxy.corrupts = True


@pytest.mark.parametrize("fault", [_cut_before, _cut_after, _silent, _delayed, _corrupted])
def test_a_way_that_cuts_swallows_delays_and_corrupts(
    proxy: Proxy, through_proxy: FleetHome, server: OwnServer, fault: Callable[[Proxy], None]
) -> None:
    talk = through_proxy.talk()
    talk.say("before")
    fault(proxy)
    talk.say("during")
    talk.say("still")
    proxy.heal()
    proxy.cut()
    assert through_proxy.is_handed_over()
    talk.say("after")
    talk.close()
    assert through_proxy.stored(url=server.url) == ["before", "during", "still", "after"]


@pytest.mark.parametrize("cut_at", [b"notes_texts", b"notes_changes", b"COMMIT"])
def test_a_note_whose_transaction_is_cut_is_stored_wholly_or_not_at_all(
    proxy: Proxy, through_proxy: FleetHome, server: OwnServer, cut_at: bytes
) -> None:
    talk = through_proxy.talk()
    assert talk.note("The kettle is blue.")
    proxy.cuts_at = cut_at
    assert not talk.note("The teapot is red.")
    proxy.heal()
    proxy.cut()
    assert wait_until(lambda: talk.note("The cup is green."), 60)
    talk.close()
    through_proxy.use(server.url)
    shown = through_proxy.machine.run("memory", "show").done().out
    assert [word in shown for word in ("kettle", "teapot", "cup")] == [True, False, True]
    history = through_proxy.machine.run("memory", "history").done().out
    assert [history.count(word) for word in ("kettle", "teapot", "cup")] == [1, 0, 1]


def test_a_database_of_a_newer_version_is_not_changed_and_turns_wait(
    server: OwnServer, fleet_home: FleetHome
) -> None:
    fleet_home.status()
    with server.server.admin("hermes") as admin:
        versions = admin.execute("SELECT * FROM hermes.versions ORDER BY 1").fetchall()
        admin.execute("UPDATE hermes.versions SET version = version + 1")
        try:
            talk = fleet_home.talk()
            talk.say("during")
            assert fleet_home.spooled() == 1
            assert not talk.note("The kettle is blue.")
            talk.close()
            for code, told in (fleet_home.status(), fleet_home.doctor()):
                assert code == 1
                assert "newer version of hermes-plugins" in told
                assert "upgrade hermes-plugins" in told
        finally:
            admin.execute("UPDATE hermes.versions SET version = version - 1")
        assert admin.execute("SELECT * FROM hermes.versions ORDER BY 1").fetchall() == versions
    talk = fleet_home.talk("later")
    talk.say("after")  # the first turn hands over what others left
    assert fleet_home.is_handed_over()
    talk.close()
    assert fleet_home.stored() == ["during"]


def test_a_database_of_another_program_is_not_changed_and_turns_wait(
    server: OwnServer, fleet_home: FleetHome
) -> None:
    with server.server.admin() as admin:
        admin.execute("CREATE DATABASE theirs OWNER hermes")
    try:
        with server.server.admin("theirs") as admin:
            admin.execute("CREATE SCHEMA hermes; CREATE TABLE hermes.versions (a int)")
        fleet_home.use(server.url.replace("/hermes", "/theirs").replace("theirs@", "hermes@"))
        talk = fleet_home.talk()
        talk.say("during")
        assert fleet_home.spooled() == 1
        talk.close()
        for code, told in (fleet_home.status(), fleet_home.doctor()):
            assert code == 1
            assert "belongs to another program" in told
        with server.server.admin("theirs") as admin:
            tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'hermes'"
            assert admin.execute(tables).fetchall() == [("versions",)]
    finally:
        with server.server.admin() as admin:
            admin.execute("DROP DATABASE theirs WITH (FORCE)")


def test_a_session_that_somebody_has_locked(server: OwnServer, fleet_home: FleetHome) -> None:
    talk = fleet_home.talk()
    talk.say("before")
    with server.server.admin("hermes") as admin:
        admin.execute("BEGIN")
        admin.execute("SELECT 1 FROM hermes.archive_sessions FOR UPDATE")
        talk.say("during")
        assert fleet_home.spooled() == 1
        admin.execute("COMMIT")
    assert fleet_home.is_handed_over()
    talk.close()
    assert fleet_home.stored() == ["before", "during"]


def test_more_threads_than_connections(server: OwnServer, fleet_home: FleetHome) -> None:
    talk = fleet_home.talk()
    talk.say("before")
    database = postgres.shared_database(fleet_home.url, fleet_home.namespace)
    taken = [database._take(5) for _ in range(database._connections)]
    talk.say("during")
    assert fleet_home.spooled() == 1
    assert "connections are in use" in str(talk.manager.warnings)
    for connection in taken:
        database._give_back(connection)
    assert fleet_home.is_handed_over()
    talk.close()
    assert fleet_home.stored() == ["before", "during"]


def test_a_standby_takes_no_turn_until_it_is_the_primary(
    server: OwnServer, fleet_home: FleetHome
) -> None:
    talk = fleet_home.talk()
    talk.say("before")
    with server.server.admin() as admin:
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        try:
            assert wait_until(lambda: _is_read_only(server))
            talk.say("during")
            assert fleet_home.spooled() == 1
            for code, told in (fleet_home.status(), fleet_home.doctor()):
                assert code == 1
                assert "1 turn waits in the spool" in told
                assert "name the primary in memory.storage" in told
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            admin.execute("SELECT pg_reload_conf()")
    assert fleet_home.is_handed_over()
    talk.close()
    assert fleet_home.stored() == ["before", "during"]


def _is_read_only(server: OwnServer) -> bool:
    with server.server.admin() as admin:
        return admin.execute("SHOW default_transaction_read_only").fetchone() == ("on",)


# -- what people are told --------------------------------------------------------------------


@contextmanager
def _statement_timeout(server: OwnServer, proxy: Proxy, home: FleetHome) -> Iterator[None]:
    with server.server.admin("hermes") as admin:
        admin.execute("BEGIN")
        admin.execute("SELECT 1 FROM hermes.archive_sessions FOR UPDATE")
        yield
        admin.execute("COMMIT")


@contextmanager
def _pool_exhausted(server: OwnServer, proxy: Proxy, home: FleetHome) -> Iterator[None]:
    database = postgres.shared_database(home.url, home.namespace)
    taken = [database._take(5) for _ in range(database._connections)]
    yield
    for connection in taken:
        database._give_back(connection)


@contextmanager
def _connection_cut(server: OwnServer, proxy: Proxy, home: FleetHome) -> Iterator[None]:
    proxy.cuts_at = b"archive_append"
    yield
    proxy.heal()


@contextmanager
def _server_stopped(server: OwnServer, proxy: Proxy, home: FleetHome) -> Iterator[None]:
    server.signal(signal.SIGSTOP)
    yield
    server.signal(signal.SIGCONT)


_During = Callable[[OwnServer, Proxy, FleetHome], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_statement_timeout, "canceling statement due to"),
        (_pool_exhausted, "all 8 connections are in use"),
        (_connection_cut, "server closed the connection"),
        (_server_stopped, "no answer within"),
    ],
)
def test_status_and_doctor_say_what_waits_and_why(
    server: OwnServer, proxy: Proxy, fleet_home: FleetHome, fault: _During, reason: str
) -> None:
    home = fleet_home
    home.use(f"postgresql://hermes@127.0.0.1:{proxy.port}/hermes")
    # Shorter than the limit of a turn, so that the server is the one who ends the statement.
    postgres.shared_database(home.url, home.namespace)._seconds = 0.3
    talk = home.talk()
    talk.say("before")
    with fault(server, proxy, home):
        talk.say("during")
        assert reason in str(talk.manager.warnings)
        for code, told in (home.status(), home.doctor()):
            assert "1 turn waits in the spool" in told
            assert reason in told
            assert "is missing in it" not in told  # what is not indexed yet is no damage
            # A server that works for others is a warning; one that does not answer is an error.
            assert code == 1 or fault is not _server_stopped
    assert home.is_handed_over()
    talk.close()
    for code, told in (home.status(), home.doctor()):
        assert code == 0
        assert "spool" not in told
    assert home.stored(url=server.url) == ["before", "during"]
