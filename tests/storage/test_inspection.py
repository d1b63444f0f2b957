"""What an inspection says about a database whose protection somebody has changed."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from support.commands import Machine
from support.postgres import LONER, components

from hermes_core.storage.inspection import inspect_server
from hermes_core.storage.migration import freeze_namespace
from hermes_core.storage.postgres import Database, migrate

#: What somebody does, and what is said about it by the owner, and by whoever does not own it.
DAMAGE = {
    "CREATE POLICY more ON hermes.archive_messages USING (true)": (
        "the policy more of the table archive_messages was added",
        "the policy more of the table archive_messages does not ask for the namespace",
    ),
    "ALTER POLICY notes_texts_rows ON hermes.notes_texts USING (true) WITH CHECK (true)": (
        "the policy notes_texts_rows of the table notes_texts was changed",
        "the policy notes_texts_rows of the table notes_texts does not ask for the namespace",
    ),
    "DROP POLICY outbox_writes_rows ON hermes.outbox_writes": (
        "the policy outbox_writes_rows of the table outbox_writes is missing",
        "the table outbox_writes is not protected by row-level security",
    ),
    "ALTER TABLE hermes.notes_people NO FORCE ROW LEVEL SECURITY": (
        "the row-level security of the table notes_people was changed",
        "the owner of the table notes_people is exempt from row-level security",
    ),
    "GRANT SELECT ON hermes.archive_words TO hermes_tenant": (
        "the right of our role to archive_words was added (SELECT)",
        "the role hermes_tenant may use the table archive_words, which is private",
    ),
    "GRANT INSERT ON hermes.archive_messages TO hermes_tenant": (
        "the right of our role to archive_messages was changed",
    ),
    "GRANT SELECT ON hermes.tenants TO PUBLIC": (
        "the right of everybody to tenants was added (SELECT)",
    ),
    "GRANT EXECUTE ON FUNCTION hermes.archive_disown TO hermes_tenant": (
        "the right of our role to archive_disown(wanted integer) was added (EXECUTE)",
    ),
    "DROP INDEX hermes.archive_words_index": ("the index archive_words_index is missing",),
    "DROP TRIGGER tenant_kept_deleted ON hermes.tenants": (
        "the trigger tenant_kept_deleted of the table tenants is missing",
    ),
    "ALTER TABLE hermes.tenants DISABLE TRIGGER USER": (
        "the trigger tenant_kept_deleted of the table tenants was changed",
    ),
    "CREATE OR REPLACE FUNCTION hermes.archive_check_scope() RETURNS void LANGUAGE sql AS ''": (
        "the function archive_check_scope() was changed",
    ),
    "ALTER TABLE hermes.notes_texts DROP CONSTRAINT notes_texts_pkey": (
        "the constraint notes_texts_pkey of the table notes_texts is missing",
    ),
}


@pytest.fixture
def name(postgres_server):
    with postgres_server.database() as made:
        yield made


def problems(url: str, *, thorough: bool = True) -> list[str]:
    database = Database(url, "ours")
    report = inspect_server(database, components(), thorough=thorough)
    database.close()
    return list(report.problems)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_protection_that_was_changed_is_named(postgres_server, name, damage):
    with postgres_server.admin(name) as admin:
        admin.execute(damage)
        said, *quickly = DAMAGE[damage]
        for user in ("hermes", "postgres"):
            found = problems(postgres_server.url(name, user))
            assert [each for each in found if each.startswith(said)], found
        assert problems(postgres_server.url(name), thorough=False) == quickly
        # Whoever may not create a schema does not compare it with a new one.
        admin.execute(f"GRANT USAGE ON SCHEMA hermes TO {LONER}")
        admin.execute(f"GRANT SELECT ON hermes.versions TO {LONER}")
        no_right = f"{LONER} may not store anything: GRANT hermes_tenant TO {LONER}"
        assert problems(postgres_server.url(name, LONER)) == [*quickly, no_right]


def test_a_database_as_we_created_it_has_no_problem_and_is_as_before(postgres_server, name):
    with postgres_server.admin(name) as admin:
        before = admin.execute("SELECT oid, nspname FROM pg_namespace").fetchall()
        assert problems(postgres_server.url(name)) == []
        assert admin.execute("SELECT oid, nspname FROM pg_namespace").fetchall() == before
        with admin.transaction():
            freeze_namespace(admin, "theirs", {"notes_texts": ""}, "it has moved")
        admin.execute("CREATE INDEX more ON hermes.notes_texts (text)")
        assert problems(postgres_server.url(name)) == []


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_a_database_of_an_earlier_format_is_like_a_new_one_afterwards(postgres_server, version):
    with postgres_server.database("template0") as name:
        with psycopg.connect(postgres_server.url(name), autocommit=True) as connection:
            for each in components():
                migrate(connection, replace(each, migrations=each.migrations[:version]), "old")
            for each in components():
                migrate(connection, each, "new")
        assert problems(postgres_server.url(name)) == []


def test_the_commands_name_it(postgres_server, name, tmp_path):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.home.mkdir(parents=True, exist_ok=True)
    url = postgres_server.url(name)
    (machine.home / "config.yaml").write_text(f"memory:\n  storage: {url}\n")
    assert machine.run("storage", "check").code == 0
    with postgres_server.admin(name) as admin:
        admin.execute("CREATE POLICY more ON hermes.archive_messages USING (true)")
        admin.execute("DROP INDEX hermes.archive_words_index")
    status, check = (machine.run("storage", each) for each in ("status", "check"))
    assert "the policy more of the table archive_messages does not ask" in status.out
    assert "the policy more of the table archive_messages was added" in check.out + check.err
    assert "the index archive_words_index is missing" in check.out + check.err
    assert check.code == 1


def machine_at(tmp_path, url):
    machine = Machine(tmp_path / "machine", in_process=True)
    machine.home.mkdir(parents=True, exist_ok=True)
    (machine.home / "config.yaml").write_text(f"memory:\n  storage: {url}\n")
    return machine


@pytest.mark.parametrize("command", [("storage", "status"), ("storage", "check"), ("doctor",)])
def test_protection_that_was_removed_is_no_success(postgres_server, name, tmp_path, command):
    machine = machine_at(tmp_path, postgres_server.url(name))
    with postgres_server.admin(name) as admin:
        admin.execute("ALTER TABLE hermes.archive_messages DISABLE ROW LEVEL SECURITY")
    result = machine.run(*command)
    assert result.code == 1
    assert "row-level security" in result.out.partition("problem")[2] + result.out


@pytest.mark.parametrize("command", [("storage", "status"), ("storage", "check"), ("doctor",)])
def test_a_login_that_may_not_store_is_no_success(postgres_server, name, tmp_path, command):
    login = f"reader_{name}"
    with postgres_server.admin(name) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE pg_read_all_data")
    machine = machine_at(tmp_path, postgres_server.url(name, login))
    result = machine.run(*command)
    with postgres_server.admin(name) as admin:
        admin.execute(f"DROP ROLE {login}")
    assert result.code == 1
    assert f"{login} may not store anything: GRANT hermes_tenant TO {login}" in result.out
    assert "the owner of the tables" not in result.out


@pytest.mark.parametrize("command", [("storage", "status"), ("storage", "check"), ("doctor",)])
def test_an_empty_database_without_the_right_to_fill_it(postgres_server, tmp_path, command):
    with postgres_server.database("template0") as empty:
        login = f"reader_{empty}"
        with postgres_server.admin(empty) as admin:
            admin.execute(f"CREATE ROLE {login} LOGIN")
        machine = machine_at(tmp_path, postgres_server.url(empty, login))
        result = machine.run(*command)
        with postgres_server.admin(empty) as admin:
            admin.execute(f"DROP ROLE {login}")
    assert result.code == 1
    assert f"{login} may not create tables: GRANT CREATE ON DATABASE {empty}" in result.out


def test_a_database_that_no_provider_has_used_yet_has_no_problem(postgres_server, tmp_path):
    with postgres_server.database("template0") as empty:
        machine = machine_at(tmp_path, postgres_server.url(empty))
        machine.run("memory", "add", "likes tea").done()
        shown = machine.run("storage", "status").done()
        machine.run("storage", "check").done()
    assert "outbox none yet" in shown.out
