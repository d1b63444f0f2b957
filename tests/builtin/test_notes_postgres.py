"""The notes in PostgreSQL: what a person sees of others, and databases of earlier formats."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from hermes_builtin.notes import Notes, NotesSettings
from hermes_builtin.notes.entries import Operation, text_hash
from hermes_builtin.notes.notebook import Author
from hermes_builtin.notes.people import Person
from hermes_builtin.notes.postgres import NOTES
from hermes_builtin.storage_parts import NotesPart
from hermes_core.errors import HermesError
from hermes_core.storage.migration import freeze_namespace, thaw_namespace
from hermes_core.storage.postgres import Database, migrate

pytestmark = pytest.mark.postgres_only("about row-level security")

ALICE, BOB = Person("telegram", "alice"), Person("telegram", "bob")
SETTINGS = NotesSettings(user_notes="per-user")
SECRET, COMMON = "alice has a secret", "the office opens at nine"
#: JSON as others write it, and as Python reads it.
ODD_RECORDS = {
    "00000001": r'{"payload": {"action": "add", "content": "nul \u0000", "target": "user/%s"}}',
    "00000002": r'{"payload": {"action": "add", "content": "half \ud83d", "target": "memory"}}',
    "00000003": r'{"payload": {"action": "add", "content": "", "target": "half \udc00"}}',
    "00000004": '{"payload": 7}',
}

FROZEN = dict.fromkeys(("notes_allowed", "notes_origins", "notes_pending", "notes_texts"), "")


@pytest.fixture
def database(database_url: str):
    made = Database(database_url, "ours")
    yield made
    made.close()


@pytest.fixture
def notes_of(tmp_path, database):
    opened: list[Notes] = []

    def of(person: Person) -> Notes:
        opened.append(Notes(tmp_path, SETTINGS, person, database))
        return opened[-1]

    yield of
    for each in opened:
        each.close()


def add(notes: Notes, target: str, text: str, origin: str = "web") -> None:
    notes.change(target, [Operation("add", text, origin=origin)], Author("tool"))


def as_bob(database: Database, statement: str, *values: object) -> psycopg.Cursor:
    with database.transaction(NOTES, {"notes": f"user/{BOB.folder}"}) as connection:
        return connection.execute(statement, values)


def test_hashes_of_what_others_noted_are_neither_seen_nor_deleted(notes_of, database):
    alice, bob = notes_of(ALICE), notes_of(BOB)
    add(alice, "user", SECRET)
    add(alice, "memory", COMMON)
    alice.decisions.allow(SECRET, alice.notebooks["user"].key)
    for table in ("notes_origins", "notes_allowed"):
        found = as_bob(database, f"SELECT hash FROM hermes.{table}").fetchall()
        assert text_hash(SECRET) not in str(found)
        query = f"DELETE FROM hermes.{table} WHERE hash = %s"
        assert as_bob(database, query, text_hash(SECRET)).rowcount == 0
    assert alice.decisions.is_allowed(SECRET)
    assert alice.history.recorded_origins([SECRET, COMMON]) == {SECRET: "web", COMMON: "web"}
    assert bob.history.recorded_origins([SECRET, COMMON]) == {COMMON: "web"}
    assert bob.external_texts() == [(COMMON, "web")]
    # The same words, noted by somebody else, are another note.
    add(bob, "user", SECRET, "user")
    assert alice.history.recorded_origins([SECRET]) == {SECRET: "web"}
    assert bob.history.recorded_origins([SECRET]) == {SECRET: "user"}


def test_what_the_guard_refused_to_one_person_is_refused_to_another_as_well(notes_of):
    names = {
        each.decisions.block(each.notebooks["user"].key, "an order", "why")
        for each in (notes_of(ALICE), notes_of(BOB))
    }
    (name,) = names
    assert notes_of(Person()).allow(name) == "an order"
    assert notes_of(ALICE).decisions.is_allowed("an order")
    assert notes_of(BOB).decisions.is_allowed("an order")


def test_a_record_that_the_server_can_not_read_breaks_nothing_for_others(
    notes_of, database, tmp_path
):
    alice, bob = notes_of(ALICE), notes_of(BOB)
    for name, record in ODD_RECORDS.items():
        notes_of(Person()).pending._records.store(name, record.replace("%s", ALICE.folder))
    for each in (alice, bob):
        add(each, "user", f"of {each.person.user_id}")
        each.pending.stage(each.notebooks["user"].key, [Operation("add", "x \0")], Author("tool"))
    assert set(alice.pending.texts()) >= {"00000001", "00000002"}
    assert "00000001" not in bob.pending.texts()
    assert set(notes_of(Person()).pending.texts()) >= ODD_RECORDS.keys()
    with closing(NotesPart(tmp_path, database)) as part:
        assert part.check(lambda *_: None) == []


def test_a_policy_that_fails_for_people_is_a_problem(postgres_server, notes_of, database, tmp_path):
    notes_of(Person()).pending._records.store("00000001", ODD_RECORDS["00000001"])
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute(
            "ALTER POLICY notes_pending_rows ON hermes.notes_pending USING ("
            "(SELECT coalesce(current_setting('hermes.scope', true), '')) = '' OR"
            " record::json #>> '{payload,target}' = 'memory')"
        )
    with closing(NotesPart(tmp_path, database)) as part:
        (problem,) = part.check(lambda *_: None)
    assert "unsupported Unicode escape sequence" in problem


@pytest.mark.parametrize("version", range(1, len(NOTES.migrations)))
def test_a_database_of_an_earlier_format_gets_a_notebook_for_each_row(
    postgres_server, tmp_path, version
):
    with postgres_server.database("template0") as name:
        url = postgres_server.url(name)
        with psycopg.connect(url, autocommit=True) as connection:
            migrate(connection, replace(NOTES, migrations=NOTES.migrations[:version]), "old")
            fill(connection)
        database = Database(url, "ours")
        alice, bob, all_of_them = (
            Notes(tmp_path, SETTINGS, each, database) for each in (ALICE, BOB, Person())
        )
        assert alice.history.recorded_origins([SECRET, COMMON]) == {SECRET: "web", COMMON: "web"}
        assert alice.decisions.is_allowed(SECRET)
        assert set(alice.pending.texts()) == {"00000001", "00000002"}
        found = as_bob(database, "SELECT hash FROM hermes.notes_origins").fetchall()
        assert found == [(text_hash(COMMON),)]
        assert as_bob(database, "SELECT hash FROM hermes.notes_allowed").fetchall() == []
        assert set(bob.pending.texts()) == {"00000002"}
        assert all_of_them.pending.texts().keys() == ODD_RECORDS.keys()
        with pytest.raises(HermesError, match="it has moved"):
            add(bob, "user", "likes coffee")
        with database.as_owner(NOTES) as owner:
            thaw_namespace(owner, "ours", FROZEN)
        add(bob, "user", "likes coffee")
        database.close()


def fill(connection: psycopg.Connection) -> None:
    """Rows of an earlier format. The namespace has moved away, and takes no changes."""
    key = f"user/{ALICE.folder}"
    connection.execute("SET hermes.namespace = 'ours'")
    connection.execute(
        "INSERT INTO hermes.notes_texts (target, text) VALUES (%s, %s)", (key, SECRET)
    )
    connection.execute(
        "INSERT INTO hermes.notes_changes"
        " (target, at, who, action, session, temporary, inode, before, after, entries)"
        " VALUES ('memory', 1, 'tool', 'add', '', '', 0, NULL, 'x', %s)",
        (json.dumps([COMMON]),),
    )
    for text in (SECRET, COMMON):
        insert = "INSERT INTO hermes.notes_origins (hash, origin) VALUES (%s, 'web')"
        connection.execute(insert, (text_hash(text),))
    insert = "INSERT INTO hermes.notes_allowed (hash, at) VALUES (%s, 1)"
    connection.execute(insert, (text_hash(SECRET),))
    for name, record in ODD_RECORDS.items():
        insert = "INSERT INTO hermes.notes_pending (id, record) VALUES (%s, %s)"
        connection.execute(insert, (name, record.replace("%s", ALICE.folder)))
    with connection.transaction():
        freeze_namespace(connection, "ours", FROZEN, "it has moved")
