"""A login that is bound to a namespace of the database: one namespace for everything, or an error.

See `hermes.tenants` in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine

from hermes_builtin.notes import Author, Notes, Operation
from hermes_builtin.sessions.archive import EVERYBODY
from hermes_builtin.sessions.location import locate
from hermes_builtin.storage_parts import spooled
from hermes_core import DatabaseError, HermesError, MemoryManager
from hermes_core.checkup import storage
from hermes_core.config import load_config
from hermes_core.config.storage import home_database
from hermes_core.outbox import StreamKey
from hermes_core.outbox.admin import entries, open_store
from hermes_core.storage.postgres import Database, PostgresError, ServerFault

BOUND = "agent-a"


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """The built-in is found among few distributions."""


@pytest.fixture
def unbound_url(postgres_server: Any, database_url: str) -> Iterator[str]:
    """The address for a login that is not bound yet."""
    name = database_url.rpartition("/")[2]
    login = f"bound_{name}"
    with closing(postgres_server.admin(name)) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE hermes_tenant")
        yield postgres_server.url(name, login)
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (login,)
        )
        admin.execute(f"DROP ROLE {login}")


@pytest.fixture
def url(postgres_server: Any, unbound_url: str) -> str:
    """The address for a login that is bound to a namespace."""
    bind(postgres_server, unbound_url)
    return unbound_url


def bind(server: Any, url: str) -> None:
    name = url.rpartition("/")[2]
    with closing(server.admin(name)) as admin:
        admin.execute("INSERT INTO hermes.tenants VALUES (%s, %s)", (f"bound_{name}", BOUND))


def configure(home: Path, *lines: str) -> None:
    (home / "config.yaml").write_text("memory:\n" + "".join(f"  {each}\n" for each in lines))


def say(home: Path, text: str) -> None:
    """One turn of an agent."""
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    manager.sync_all(text, "an answer")
    manager.shutdown_all()


def fill(home: Path) -> None:
    """Store something in each part."""
    say(home, "walnut")
    notes = Notes.open(home, load_config(home).memory)
    assert notes.notebooks["memory"].change([Operation("add", "a note")], Author("agent")).changed
    store = open_store(load_config(home), set_aside=False)
    store.put(StreamKey("p", "", "s", "{}"), 0, ("event", "sync_turn", "{}"), claim=False)


def contents(home: Path, database: Database) -> tuple[list[str], str, list[str]]:
    """What each part has."""
    archive = locate(home).open()
    with closing(archive):
        said = [
            each.content
            for session in archive.browse(EVERYBODY, 10)
            for each in archive.messages(session)
        ]
    notes = Notes(home, database=database).notebooks["memory"].text.read()
    return (
        said,
        notes,
        [each.event_id for each in entries(open_store(load_config(home), set_aside=False))],
    )


EVERYTHING = (["walnut", "an answer"], "a note", ["event"])


def test_a_home_that_names_no_namespace_uses_that_of_its_login(
    home: Path, url: str, database_url: str, tmp_path: Path
) -> None:
    configure(home, f"storage: {url}")
    fill(home)
    database = home_database(home)
    assert database is not None
    assert database.namespace == BOUND
    assert contents(home, database) == EVERYTHING
    report = storage.storage_status(load_config(home))
    assert (report.ok, report.namespace) == (True, BOUND)
    assert [each.counts.get("messages", 0) for each in report.parts] == [2, 0, 0]
    assert storage.check_storage(load_config(home)) == []
    # Nothing is in another namespace: the owner finds all of it in this one.
    owner = tmp_path / "owner"
    owner.mkdir()
    configure(owner, f"storage: {database_url}", f"storage_namespace: {BOUND}")
    mine = home_database(owner)
    assert mine is not None
    assert contents(owner, mine) == EVERYTHING
    for each in (database, mine):
        each.close()


def test_a_login_may_be_bound_while_agents_run(
    postgres_server: Any, home: Path, unbound_url: str
) -> None:
    configure(home, f"storage: {unbound_url}")
    fill(home)
    database = home_database(home)
    assert database is not None
    assert database.namespace == "default"
    bind(postgres_server, unbound_url)
    database.close()  # as after five idle minutes
    fill(home)
    assert database.namespace == BOUND
    assert contents(home, database) == EVERYTHING
    database.close()


def test_another_namespace_is_an_error_and_the_turn_waits_in_the_spool(
    home: Path, url: str
) -> None:
    configure(home, f"storage: {url}", "storage_namespace: team")
    database = home_database(home)
    assert database is not None
    notes = Notes(home, database=database)
    with pytest.raises(HermesError, match=f"is bound to the namespace {BOUND}, .* is team") as told:
        notes.notebooks["memory"].change([Operation("add", "a note")], Author("agent"))
    assert "set memory.storage_namespace" in told.value.hint
    with pytest.raises(DatabaseError, match=f"bound to the namespace {BOUND}") as refused:
        open_store(load_config(home), set_aside=False).waiting_streams()
    assert isinstance(refused.value, PostgresError)
    assert refused.value.fault is ServerFault.NAMESPACE
    say(home, "walnut")
    report = storage.storage_status(load_config(home))
    assert (report.ok, report.spooled) == (False, 1)
    assert f"bound to the namespace {BOUND}" in report.problem
    assert "set memory.storage_namespace" in report.hint
    assert any("is bound to" in str(each) for each in storage.check_storage(load_config(home)))
    database.close()
    configure(home, f"storage: {url}", f"storage_namespace: {BOUND}")
    say(home, "hazelnut")
    assert spooled(home, seconds=60) == (0, "")
    right = home_database(home)
    assert right is not None
    assert contents(home, right)[0] == ["walnut", "an answer", "hazelnut", "an answer"]
    right.close()


@pytest.mark.parametrize(
    "command",
    ["storage status", "storage check", "doctor", "status", "sessions list", "memory show",
     "outbox status", "memory add x"],
)  # fmt: skip
def test_each_command_says_so(tmp_path: Path, url: str, command: str) -> None:
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.home.mkdir(parents=True, exist_ok=True)
    configure(machine.home, f"storage: {url}", "storage_namespace: team")
    done = machine.run(*command.split())
    text = " ".join((done.out + done.err).split())
    assert "Traceback" not in text
    assert f"is bound to the namespace {BOUND}, but memory.storage_namespace is team" in text
    assert "set memory.storage_namespace to the namespace of the login" in text
    assert done.code != 0


def test_a_bound_login_does_not_move_a_memory(
    postgres_server: Any, home: Path, url: str, database_url: str
) -> None:
    """Also not if it owns the tables."""
    name = url.rpartition("/")[2]
    with closing(postgres_server.admin(name)) as admin:
        admin.execute(f"GRANT hermes TO bound_{name}")
        (home / "config.yaml").write_text("memory: {}\n")
        with pytest.raises(HermesError, match=f"bound to the namespace {BOUND}"):
            storage.migrate(load_config(home), url)
    assert load_config(home).storage == ""
