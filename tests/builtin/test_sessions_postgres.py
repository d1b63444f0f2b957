"""The archive in PostgreSQL: who sees what by hand-written queries, retries, many writers."""

from __future__ import annotations

import json
import random
import re
import uuid
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import sha256
from inspect import getsource

import psycopg
import pytest
from support.archives import Talk, search
from support.postgres import components

from hermes_builtin.notes import Notes, NotesSettings
from hermes_builtin.notes.entries import Operation
from hermes_builtin.notes.notebook import Author
from hermes_builtin.notes.people import Person
from hermes_builtin.sessions import Conversations, SessionSearch
from hermes_builtin.sessions.archive import (
    EVERYBODY,
    ROLES,
    NewMessage,
    Scope,
    SearchOptions,
    SessionFacts,
    Span,
)
from hermes_builtin.sessions.postgres import PostgresArchive
from hermes_builtin.sessions.postgres import search as postgres_search
from hermes_builtin.sessions.postgres.archive import _APPEND
from hermes_builtin.sessions.postgres.index import PostgresIndex
from hermes_builtin.sessions.postgres.schema import COMPONENT
from hermes_builtin.sessions.postgres.search import key_of, session_from
from hermes_builtin.sessions.query import Query, Term, parse
from hermes_builtin.sessions.spool import may_succeed_later
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core.errors import DatabaseError
from hermes_core.outbox import OutboxStore, StreamKey
from hermes_core.outbox.postgres import PostgresOutbox
from hermes_core.storage.postgres import Database, ServerFault, fault_of, migrate, shared_database

pytestmark = pytest.mark.postgres_only("about row-level security, and what else files don't have")

ANN = SessionFacts("of-ann", "telegram", "1001", "c1", "default", platform="telegram")
BOB = SessionFacts("of-bob", "telegram", "1002", "c2", "default", platform="telegram")
#: What a host says of her.
ANN_SPEAKS = {
    "platform": "telegram", "user_id": "1001", "chat_id": "c1", "agent_identity": "default",
}  # fmt: skip
ANYTHING = SearchOptions(EVERYBODY, frozenset(ROLES), 10)
OF_ANN = Scope.of("telegram", "1001", "c1", "default")


@pytest.fixture
def database(database_url: str):
    made = Database(database_url, "ours")
    yield made
    made.close()


@pytest.fixture
def archive(database: Database):
    with closing(PostgresArchive(database)) as made:
        yield made


@pytest.fixture
def home_with_archive(tmp_path, database_url):
    """The tool for a home with many conversations, each of which continues another."""
    settings = {"provider_config": {"storage": database_url, "storage_namespace": "ours"}}
    conversations = Conversations(tmp_path, "now", settings)
    for number in range(12):
        for place, parent in (("first", ""), ("second", f"first-{number}")):
            facts = SessionFacts(f"{place}-{number}", "cli", profile="", parent=parent)
            text = f"walnut {number}"
            conversations.archive.append(facts, said(text, "hazelnut", *["filler"] * 9, text))
    yield SessionSearch(conversations)
    conversations.close()
    shared_database(database_url, "ours").close()


def said(*texts: str) -> list[NewMessage]:
    return [NewMessage("user", text, 1.7e9 + at) for at, text in enumerate(texts)]


def tables_of(database: Database, beginning: str = "archive_") -> list[str]:
    with database.transaction(COMPONENT, {}) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'hermes'::regnamespace"
            " AND relkind = 'r' AND starts_with(relname, %s)",
            (beginning,),
        )
        return [name for (name,) in rows]


def seen(database: Database, scope: dict[str, str] | None, beginning: str = "archive_") -> str:
    """All that hand-written queries of every table find, as one text."""
    found = ""
    for table in tables_of(database, beginning):
        with database.transaction(COMPONENT, scope) as connection:
            allowed = connection.execute(
                "SELECT has_table_privilege(%s, 'SELECT')", (f"hermes.{table}",)
            ).fetchone()
            if allowed == (True,):
                found += str(connection.execute(f"SELECT * FROM hermes.{table}").fetchall())
    return found


def test_a_hand_written_query_finds_nothing_of_another_person_or_namespace(
    database_url, database, archive
):
    archive.append(ANN, said("walnut of ann"))
    (of_bob,) = archive.append(BOB, said("walnut of bob"))
    archive.take_over("origin", 1, BOB._replace(id="import-of-bob"), said("imported"))
    elsewhere = Database(database_url, "theirs")
    with closing(PostgresArchive(elsewhere)) as other:
        other.append(ANN, said("walnut of another home"))
        assert search(other, "walnut") == ["of-ann"]
    assert search(archive, "walnut")
    found = seen(database, AS_ANN)
    assert "walnut of ann" in found
    assert "of bob" not in found
    assert "of-bob" not in found
    assert "another home" not in found
    assert str(of_bob) not in found
    assert seen(database, None).count("walnut") == 0
    with database.transaction(COMPONENT, AS_ANN) as connection:
        found = connection.execute(
            "SELECT count(*) FROM hermes.archive_find(ARRAY['walnut'], '', '{}', 10, NULL)"
        ).fetchone()
    assert found == (1,)
    elsewhere.close()


AS_ANN = {name: value for name, value in OF_ANN._asdict().items() if value is not None}


def test_a_person_sees_nothing_of_the_outbox_and_of_the_notes_of_others(tmp_path, database):
    people = {name: Person("telegram", name) for name in ("1001", "1002")}
    settings = NotesSettings(user_notes="per-user", write_approval=False)
    for name, person in people.items():
        notes = Notes(tmp_path, settings, person, database)
        notes.notebooks["user"].change([Operation("add", f"secret of {name}")], Author("agent"))
        assert f"secret of {name}" in notes.notebooks["user"].text.read()
        record = {"payload": {"target": f"user/{person.folder}"}}
        notes.pending._records.store(name, json.dumps(record))
    OutboxStore(PostgresOutbox(database), max_bytes=1 << 20).put(
        StreamKey("p", "secret of 1002", "s", "{}"), 0, ("e", "sync_turn", "secret"), claim=False
    )
    # Reads outside of a transaction have the scope, too.
    mine = Notes(tmp_path, settings, people["1001"], database).database
    assert mine.fetch("SELECT text FROM texts WHERE target LIKE 'user/%'") == [("secret of 1001",)]
    everything = seen(database, {}, "notes_") + seen(database, None, "outbox_")
    assert everything.count("secret of 1002") >= 3
    assert seen(database, AS_ANN, "outbox_") == "[]" * 3
    assert seen(database, AS_ANN, "notes_") == "[]" * 7
    found = seen(database, {"notes": f"user/{people['1001'].folder}"}, "notes_")
    assert "secret of 1001" in found
    assert "1002" not in found


def test_functions_for_everybody_refuse_whoever_acts_for_a_person(database, archive):
    (number,) = archive.append(BOB, said("walnut of bob"))
    for call in (
        "SELECT * FROM hermes.archive_pending(10)",
        f"SELECT hermes.archive_delete({number >> 22}, 10)",
        f"SELECT hermes.archive_unindex(ARRAY[{number}]::bigint[])",
        f"SELECT hermes.archive_index(ARRAY[{number}]::bigint[], ARRAY['x'], ARRAY['x'], ARRAY[1])",
        "SELECT hermes.archive_forget_index()",
    ):
        refused = pytest.raises(DatabaseError, match="does not include everybody")
        with refused, database.transaction(COMPONENT, AS_ANN) as connection:
            connection.execute(call)


def test_a_turn_leaves_the_scope_of_a_transaction_as_it_is(database, archive):
    archive.append(BOB, said("walnut of bob"))
    with database.transaction(COMPONENT, AS_ANN) as connection:
        connection.execute(_APPEND, archive._append_values(uuid.uuid4(), ANN, said("of ann")))
        found = connection.execute("SELECT content FROM hermes.archive_messages").fetchall()
    assert found == [("of ann",)]


#: Scopes of transactions that are not about conversations, or that are not what they should be.
NO_SCOPES = (
    '{"notes": "user/nobody"}',
    '{"notes": "memory"}',
    '{"unknown": "1002"}',
    '{"user_id": null}',
    '{"chat_id": null}',
    '{"user_id": "1002", "chat_id": null}',
    '["user_id"]',
    '"user_id"',
    "[]",
    "null",
    "{ }",
    "",
)
ASKING = (
    "SELECT * FROM hermes.archive_sessions",
    "SELECT * FROM hermes.archive_messages",
    "SELECT key FROM hermes.archive_turns",
    "SELECT * FROM hermes.archive_imports",
    "SELECT key FROM hermes.archive_meta",
    "SELECT * FROM hermes.archive_find(ARRAY['walnut'], '', '{}', 10, NULL)",
    "SELECT * FROM hermes.archive_find_sessions(ARRAY['walnut'], '', '{}')",
    "SELECT * FROM hermes.archive_within(ARRAY['walnut'], ARRAY[1, 2], '', '{}', 9)",
    "SELECT * FROM hermes.archive_counts(ARRAY['walnut'])",
    "SELECT * FROM hermes.archive_beginning('w', 9)",
    "SELECT 1 WHERE cardinality(hermes.archive_visible()) IS DISTINCT FROM 0",
)


def test_a_scope_that_names_nobody_sees_nothing_of_the_conversations(database, archive):
    archive.append(BOB, said("walnut of bob"))
    archive.take_over("origin", 1, BOB._replace(id="import-of-bob"), said("imported"))
    archive.once("seen")
    assert search(archive, "walnut")
    with database.transaction(COMPONENT, {}) as connection:
        for scope in ("{}", *NO_SCOPES):
            connection.execute("SELECT set_config('hermes.scope', %s, true)", (scope,))
            found = [each for each in ASKING if connection.execute(each).fetchall()]
            assert found == (list(ASKING) if scope == "{}" else []), scope


def test_a_scope_without_a_user_sees_those_that_it_names(database, archive):
    archive.append(ANN, said("walnut of ann"))
    archive.append(BOB, said("walnut of bob"))
    for scope, contents in (
        ({"chat_id": "c2"}, ["walnut of bob"]),
        ({"profile": "default"}, ["walnut of ann", "walnut of bob"]),
        ({"platform": "cli"}, []),
        ({"notes": "memory", "user_id": "1001"}, ["walnut of ann"]),
    ):
        with database.transaction(COMPONENT, scope) as connection:
            rows = connection.execute("SELECT content FROM hermes.archive_messages ORDER BY id")
            assert [content for (content,) in rows] == contents, scope


def test_a_scope_that_names_no_notebook_sees_nothing_of_notes_and_outbox(tmp_path, database):
    notes = Notes(tmp_path, NotesSettings(write_approval=False), None, database)
    notes.notebooks["memory"].change([Operation("add", "a note")], Author("agent"))
    hash_of_it = notes.database.fetch("SELECT hash FROM origins")
    assert hash_of_it
    OutboxStore(PostgresOutbox(database), max_bytes=1 << 20).put(
        StreamKey("p", "", "s", "{}"), 0, ("e", "sync_turn", "secret"), claim=False
    )
    names = [each for part in ("notes_", "outbox_") for each in tables_of(database, part)]
    for scope in (*NO_SCOPES[2:-1], '{"notes": ""}', '{"notes": null}', '{"user_id": "1001"}'):
        with database.transaction(COMPONENT, {}) as connection:
            connection.execute("SELECT set_config('hermes.scope', %s, true)", (scope,))
            for name in names:
                # An error shows nothing either: a text is not an object.
                with suppress(psycopg.Error), connection.transaction():
                    rows = connection.execute(f"SELECT * FROM hermes.{name}").fetchall()
                    assert rows == [], (scope, name)


def test_reads_of_one_call_see_one_person_also_after_lineages(archive):
    archive.append(ANN._replace(id="before"), said("first"))
    archive.append(ANN._replace(parent="before"), said("walnut of ann"))
    (number,) = archive.append(BOB, said("walnut of bob"))
    of_bob = Span(number, number, 1)
    with archive.reading(OF_ANN) as reader:
        session = reader.session("of-ann", OF_ANN)
        assert reader.read([of_bob]) == [[]]
        assert reader.lineages([session]) == [["of-ann", "before"]]
        assert reader.has_profile(["default"])
        assert reader.read([of_bob]) == [[]]
        assert [each.content for each in reader.first(session, 9)] == ["walnut of ann"]
    assert archive.read([of_bob], OF_ANN) == [[]]
    assert archive.read([of_bob])[0][0].content == "walnut of bob"


def test_the_tool_reads_messages_as_the_person_who_asks(tmp_path, database_url, monkeypatch):
    """A session of somebody else, however it came into a call, shows nothing."""
    settings = {"provider_config": {"storage": database_url, "storage_namespace": "ours"}}
    conversations = Conversations(tmp_path, "now", {**ANN_SPEAKS, **settings})
    conversations.archive.append(BOB, said("walnut of bob"))
    found = conversations.archive.session("of-bob", EVERYBODY)
    monkeypatch.setattr(PostgresArchive, "session", lambda *given: found)
    monkeypatch.setattr(PostgresArchive, "browse", lambda *given, **more: [found])
    tool = SessionSearch(conversations)
    for arguments in (
        {"session_id": "of-bob"},
        {"session_id": "of-bob", "around_message_id": found.number << 22},
        {},
    ):
        assert "walnut" not in tool.call(arguments)
    monkeypatch.undo()
    assert "walnut" in str(list(conversations.archive.messages(found)))
    conversations.close()
    shared_database(database_url, "ours").close()


#: Facts of a session of Bob's, as whoever acts for Ann might pass them.
OF_BOB = {**BOB._asdict(), "place": "telegram", "other_id": "other", "key": str(key_of(BOB.id))}
INTRUSIONS = (
    ("SELECT hermes.archive_append(gen_random_uuid(), %s, '[]', 1)", OF_BOB),
    (
        "SELECT hermes.archive_append(gen_random_uuid(), %s, '[]', 1)",
        {**OF_BOB, "id": "new", "key": str(key_of("new"))},
    ),
    (
        (
            "SELECT hermes.archive_restore(%s, 1, NULL, 1, ARRAY[9], ARRAY[0],"
            " ARRAY[1.0::float8], ARRAY[1], ARRAY['planted'], ARRAY[NULL])"
        ),
        {**OF_BOB, "user_id": "1001", "chat_id": "c1"},
    ),
    ("SELECT hermes.archive_recount()", None),
)


@pytest.mark.parametrize("scope", ['{"user_id": "1001"}', '{"notes": "memory"}', "[]"])
def test_who_acts_for_a_person_cannot_write_into_conversations_of_others(database, archive, scope):
    archive.append(BOB, said("walnut of bob"))
    for call, facts in INTRUSIONS:
        refused = pytest.raises(DatabaseError, match="does not include")
        with refused, database.transaction(COMPONENT, {}) as connection:
            connection.execute("SELECT set_config('hermes.scope', %s, true)", (scope,))
            connection.execute(call, (json.dumps(facts),) if facts else None)
    (session,) = archive.sessions()
    assert [each.content for each in archive.messages(session)] == ["walnut of bob"]
    assert session.title == ""


#: What whoever can send any statement may try, and whether the server refuses it.
ATTACKS = {
    "SELECT set_config('hermes.namespace', 'theirs', false)": False,
    "RESET ROLE; SELECT set_config('hermes.namespace', 'theirs', false)": False,
    "RESET ALL; SET hermes.namespace = 'theirs'": False,
    "DISCARD ALL": False,
    "SET row_security = off": False,
    "SET search_path = pg_temp, public": False,
    "SET ROLE hermes": True,
    "SET SESSION AUTHORIZATION hermes": True,
    "RESET ROLE; INSERT INTO hermes.tenants VALUES (session_user, 'theirs')": True,
    "RESET ROLE; DELETE FROM hermes.tenants": True,
    "ALTER TABLE hermes.archive_messages DISABLE ROW LEVEL SECURITY": True,
    "SELECT * FROM hermes.archive_words": True,
    "SELECT * FROM hermes.archive_terms": True,
    "SELECT hermes.archive_owner('1002', 'c2', 'default', 'telegram')": True,
    "SELECT hermes.archive_session('{}', 1)": True,
    "SELECT nextval('hermes.archive_sessions_number_seq')": True,
    "CREATE OR REPLACE FUNCTION hermes.current_namespace() RETURNS text LANGUAGE sql"
    " AS $$ SELECT 'theirs' $$": True,
}
LOOKS = (
    "SELECT * FROM hermes.archive_messages",
    "SELECT * FROM hermes.archive_sessions",
    "SELECT * FROM hermes.archive_turns",
    "SELECT * FROM hermes.archive_find(ARRAY['walnut'], '', '{}', 10, NULL)",
    "SELECT * FROM hermes.archive_counts(ARRAY['walnut', 'theirs'])",
    "SELECT * FROM hermes.archive_pending(10)",
)


#: Those of the archive that the current user may call.
CALLABLE = (
    "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace('hermes')"
    " AND starts_with(proname, 'archive_') AND has_function_privilege(oid, 'EXECUTE')"
)


@pytest.mark.parametrize("right", ["USAGE ON SCHEMA hermes", "pg_read_all_data"])
def test_a_login_that_is_not_ours_can_call_no_function(
    postgres_server, database_url, archive, right
):
    """The functions run as the owner: one that may only read could delete with them."""
    archive.append(ANN, said("tea"))
    name = database_url.rpartition("/")[2]
    login = f"reader_{name}"
    with postgres_server.admin(name) as admin:
        # As a version before this one has left it.
        admin.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hermes TO PUBLIC")
        admin.execute(f"CREATE ROLE {login} LOGIN")
        admin.execute(f"GRANT {right} TO {login}")
        try:
            other = Database(database_url, "ours")
            with other.transaction(COMPONENT):  # the next start of an agent
                pass
            other.close()
            with psycopg.connect(postgres_server.url(name, login), autocommit=True) as reader:
                reader.execute("SELECT set_config('hermes.namespace', 'ours', false)")
                functions = reader.execute(CALLABLE).fetchall()
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    reader.execute("SELECT hermes.archive_delete(1, 100)")
        finally:
            admin.execute(f"REVOKE {right} FROM {login}")
            admin.execute(f"DROP ROLE {login}")
        assert functions == []
    (session,) = archive.sessions(EVERYBODY)
    assert [each.content for each in archive.messages(session)] == ["tea"]


@pytest.fixture
def tenant(postgres_server, database_url):
    """The address for a login that is bound to the namespace "ours"."""
    name = database_url.rpartition("/")[2]
    login = f"tenant_{name}"
    with postgres_server.admin(name) as admin:
        admin.execute(f"CREATE ROLE {login} LOGIN IN ROLE hermes_tenant")
        admin.execute("INSERT INTO hermes.tenants VALUES (%s, 'ours')", (login,))
    yield postgres_server.url(name, login)
    with postgres_server.admin(name) as admin:
        admin.execute(f"DROP ROLE {login}")


def test_a_login_that_is_bound_to_a_namespace_finds_nothing_of_others(
    tenant, database_url, archive
):
    archive.append(ANN, said("walnut of ours"))
    elsewhere = Database(database_url, "theirs")
    with closing(PostgresArchive(elsewhere)) as other:
        other.append(BOB, said("walnut of theirs"))
        assert search(other, "walnut") == ["of-bob"]
    elsewhere.close()
    for attack, is_refused in ATTACKS.items():
        found = ""
        refused = False
        with psycopg.connect(tenant, autocommit=True) as connection:
            connection.execute("SET ROLE hermes_tenant")
            try:
                connection.execute(attack)
            except psycopg.Error:
                refused = True
            connection.execute("SELECT set_config('hermes.scope', '{}', false)")
            for query in LOOKS:
                # Without row-level security, the server refuses it.
                with suppress(psycopg.Error):
                    found += str(connection.execute(query).fetchall())
        assert refused == is_refused, attack
        assert "theirs" not in found, attack
        assert "of-bob" not in found, attack
        assert ("walnut of ours" in found) == (attack != "SET row_security = off"), attack


#: Ways to take the numbers of the next messages of another namespace, whose session has number 2.
PLANTS = (
    (
        "INSERT INTO hermes.archive_messages (id, owner, size, at, namespace, content)"
        " SELECT (2::bigint << 22) | (place << 2), 1, 1, 1, 'ours', 'planted'"
        " FROM generate_series(0, 200) AS place"
    ),
    "UPDATE hermes.archive_messages SET id = (2::bigint << 22) | (1 << 2)",
    "UPDATE hermes.archive_messages SET namespace = 'theirs'",
    "UPDATE hermes.archive_sessions SET next = 1 << 20",
    (
        "INSERT INTO hermes.archive_sessions (number, namespace, owner, key, id, source, user_id,"
        " chat_id, profile, title, parent, started, active, messages, next, platform, name)"
        " OVERRIDING SYSTEM VALUE SELECT number, 'ours', 1, md5(number::text)::uuid, 'x', '', '',"
        " '', '', '', '', 1, 1, 0, 0, '', '' FROM generate_series(3, 20) AS number"
    ),
    "DELETE FROM hermes.archive_sessions",
    # A role that is not one, but has bits of another session.
    (
        "SELECT hermes.archive_append(gen_random_uuid(), %s, json_build_array("
        "json_build_object('role', 3 << 22, 'at', 1, 'size', 1, 'content', 'planted')), 1)"
    ),
    (
        "SELECT hermes.archive_restore(%s, 1, NULL, 1, ARRAY[(2 << 20) + 1], ARRAY[0],"
        " ARRAY[1.0::float8], ARRAY[1], ARRAY['planted'], ARRAY[NULL])"
    ),
    (
        "SELECT hermes.archive_restore(%s, 1, NULL, 1, ARRAY[1], ARRAY[3 << 22],"
        " ARRAY[1.0::float8], ARRAY[1], ARRAY['planted'], ARRAY[NULL])"
    ),
)
FACTS = json.dumps(
    {**ANN._asdict(), "place": "telegram", "other_id": "other", "key": str(key_of(ANN.id))}
)


def test_a_login_that_is_bound_to_a_namespace_cannot_take_numbers_of_others(
    tenant, database_url, archive
):
    archive.append(ANN, said("walnut of ours"))
    elsewhere = Database(database_url, "theirs")
    with closing(PostgresArchive(elsewhere)) as other:
        assert other.append(BOB, said("first"))[0] >> 22 == 2
        for plant in PLANTS:
            with suppress(psycopg.Error), psycopg.connect(tenant) as connection:
                connection.execute("SET ROLE hermes_tenant")
                connection.execute("SELECT set_config('hermes.scope', '{}', false)")
                connection.execute(plant, (FACTS,) if "%s" in plant else None)
        assert len(other.append(BOB, said("second", "third"))) == 2
        assert len(other.append(ANN, said("fourth", "fifth"))) == 2
        for facts, texts in ((BOB, ["first", "second", "third"]), (ANN, ["fourth", "fifth"])):
            session = other.session(facts.id, EVERYBODY)
            assert [each.content for each in other.messages(session)] == texts
        assert other.check() == []
    elsewhere.close()


def test_a_login_that_is_bound_to_a_namespace_has_an_archive(tenant, archive):
    archive.append(ANN, said("walnut"))
    bound = Database(tenant, "ours")
    with closing(PostgresArchive(bound)) as theirs:
        theirs.append(BOB, said("hazelnut"))
        assert search(theirs, "walnut") == ["of-ann"]
    bound.close()
    assert search(archive, "hazelnut") == ["of-bob"]
    misled = Database(tenant, "theirs")
    with closing(PostgresArchive(misled)) as wrong, pytest.raises(DatabaseError):
        wrong.once("a thing of another namespace")
    misled.close()


def test_a_search_makes_a_dozen_statements(home_with_archive, monkeypatch):
    statements: list[object] = []
    execute = psycopg.Cursor.execute

    def recording(cursor, query, *args, **options):
        statements.append(query)
        return execute(cursor, query, *args, **options)

    tool = home_with_archive
    tool.call({"query": "walnut"})  # indexes what is not yet
    monkeypatch.setattr(psycopg.Cursor, "execute", recording)
    answer = json.loads(tool.call({"query": "walnut in which hazelnut", "limit": 10}))
    assert answer["count"] == 10
    assert len(statements) <= 17


def test_a_person_cannot_change_what_is_not_theirs(database, archive):
    archive.append(BOB, said("walnut of bob"))
    with database.transaction(COMPONENT, AS_ANN) as connection:
        connection.execute("UPDATE hermes.archive_messages SET content = 'changed'")
        connection.execute("UPDATE hermes.archive_sessions SET title = 'changed'")
    for change in (
        "DELETE FROM hermes.archive_messages",
        "DELETE FROM hermes.archive_sessions",
        "UPDATE hermes.archive_messages SET owner = 1",
    ):
        refused = pytest.raises(DatabaseError, match="permission denied")
        with refused, database.transaction(COMPONENT, AS_ANN) as connection:
            connection.execute(change)
    assert [each.content for each in archive.messages(archive.session("of-bob", EVERYBODY))] == [
        "walnut of bob"
    ]


def test_a_turn_that_is_handed_over_again_is_stored_once(archive):
    key = uuid.uuid4()
    first = archive.append(ANN, said("once", "only"), key)
    assert archive.append(ANN, said("once", "only"), key) == first
    session = archive.session("of-ann", EVERYBODY)
    assert [each.content for each in archive.messages(session)] == ["once", "only"]
    assert session.messages == 2


def test_a_turn_that_is_handed_over_after_years_is_stored_once(postgres_server, database, archive):
    key = uuid.uuid4()
    archive.append(ANN, said("once"), key)
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute("UPDATE hermes.archive_turns SET at = at - interval '3 years'")
    archive.append(BOB, said(*("word",) * 2000))
    archive.take_over("spool:x", 1, ANN, said("once"), key)
    session = archive.session("of-ann", EVERYBODY)
    assert [each.content for each in archive.messages(session)] == ["once"]


@pytest.fixture
def with_taken_number(postgres_server, database, archive):
    """An archive in which the number of the next message is taken, for whatever reason."""
    (number,) = archive.append(ANN, said("first"))
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute(
            "INSERT INTO hermes.archive_messages (id, owner, size, at, namespace, content)"
            " VALUES (%s, 1, 1, 1, 'other', 'in the way')",
            (number + 4,),
        )
        yield archive
        admin.execute("DELETE FROM hermes.archive_messages WHERE content = 'in the way'")


def test_a_number_that_is_taken_is_an_error_and_nothing_is_taken_for_stored(with_taken_number):
    archive = with_taken_number
    with pytest.raises(DatabaseError, match="archive_messages_pkey") as caught:
        archive.append(ANN, said("second"), uuid.uuid4())
    assert may_succeed_later(caught.value)  # the turn goes to the spool
    with pytest.raises(DatabaseError, match="archive_messages_pkey") as caught:
        archive.take_over("spool:x", 1, ANN, said("second"), uuid.uuid4())
    assert may_succeed_later(caught.value)
    assert archive.imported("spool:x", ANN.id) == 0


def test_every_character_is_stored(archive):
    text = "a\0b \ufffe \ufffe0 \ud800 ünïcode 茶"
    archive.append(ANN, [NewMessage("user", text, 1.0, {"tool_name": "n\0l"})])
    (message,) = archive.messages(archive.session("of-ann", EVERYBODY))
    assert message.content == "a\0b \ufffe \ufffe0 \ufffd ünïcode 茶"
    assert message.extra == {"tool_name": "n\0l"}


def test_an_index_that_lost_messages_is_found_and_built_again(postgres_server, database, archive):
    archive.append(ANN, said("walnut", "hazelnut"))
    assert archive.check() == []
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute("DELETE FROM hermes.archive_words; DELETE FROM hermes.archive_terms")
        admin.execute("UPDATE hermes.archive_sessions SET messages = 7")
    problems = archive.check()
    assert any("2 messages are there, 7 were stored" in each.what for each in problems)
    assert sum(each.index_only for each in problems) >= 2
    assert archive.repair()["problems"]
    assert archive.check() == []
    assert search(archive, "hazelnut") == ["of-ann"]


def lose_words(postgres_server, database):
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute("DELETE FROM hermes.archive_terms WHERE term LIKE 'hazel%'")


def beginning(archive, word):
    return [hit.session.id for hit in archive.search(parse(f"{word}*"), ANYTHING).hits]


def test_words_that_are_missing_in_their_table_are_found_and_stored_again(
    postgres_server, database, archive
):
    archive.append(ANN, said("walnut", "hazelnut"))
    assert beginning(archive, "haz") == ["of-ann"]
    lose_words(postgres_server, database)
    assert beginning(archive, "haz") == []
    (problem,) = archive.check()
    assert problem == ("index: its table of words lacks 1 word", True)
    archive.repair()
    assert archive.check() == []
    assert beginning(archive, "haz") == ["of-ann"]


def stop(*_):
    raise KeyboardInterrupt


def test_a_repair_that_is_killed_leaves_everything_to_be_found(
    postgres_server, database, archive, monkeypatch
):
    archive.append(ANN, said("walnut", "hazelnut"))
    archive.append(BOB, said("chestnut"))
    assert archive.check() == []
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute("UPDATE hermes.archive_sessions SET messages = 7")
    with monkeypatch.context() as patch:
        patch.setattr(PostgresIndex, "put", stop)
        patch.setattr(PostgresIndex, "put_again", stop, raising=False)
        with pytest.raises(KeyboardInterrupt):
            archive.repair()
    assert beginning(archive, "haz") == ["of-ann"]
    assert archive.check() == []


def test_a_repair_counts_words_again_and_drops_those_that_nobody_said(
    postgres_server, database, archive, monkeypatch
):
    monkeypatch.setattr("hermes_builtin.sessions.postgres.index.SAMPLE", 1)
    monkeypatch.setattr("hermes_builtin.sessions.postgres.index._TERMS", 2)
    archive.append(ANN, said("walnut", "walnut hazelnut"))
    assert archive.check() == []
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        count = "SELECT term, count FROM hermes.archive_terms ORDER BY term"
        before = admin.execute(count).fetchall()
        admin.execute(
            "INSERT INTO hermes.archive_terms SELECT namespace, 'said by nobody', 32"
            " FROM hermes.archive_terms LIMIT 1"
        )
        admin.execute("UPDATE hermes.archive_sessions SET messages = 7")
        archive.repair()
        assert admin.execute(count).fetchall() == before
    assert ("walnut", 2) in before


def test_words_weigh_the_same_for_everybody_whoever_searched_before(tmp_path, archive):
    """As in files, which find the messages of all people before they leave any out.

    There are few messages, all of one length: files also look at lengths and at words side by
    side before that.
    """
    chance = random.Random(3)
    spoken = [f"{a}{b}" for a in ("kor", "mal", "tiv", "zun") for b in ("ban", "dil", "gos", "fam")]
    with closing(SqliteArchive(tmp_path / "state.db")) as files:
        for number in range(36):
            facts = (BOB if number % 3 else ANN)._replace(id=f"s{number}")
            own = spoken if facts.user_id == ANN.user_id else spoken[:8]
            texts = [" ".join(chance.choices(own, k=12)) for _ in range(3)]
            for each in (files, archive):
                each.append(facts, said(*texts))
        queries = [" ".join(chance.sample(spoken, 3)) for _ in range(40)]
        for scope in (OF_ANN, EVERYBODY, OF_ANN):
            options = SearchOptions(scope, frozenset((*ROLES, "")), 5)
            for query in queries:
                in_files, here = (
                    [(hit.session.id, pytest.approx(hit.score)) for hit in found.hits]
                    for found in (each.search(parse(query), options) for each in (files, archive))
                )
                assert here == in_files, (scope, query)


def test_only_numbers_are_told_of_what_others_said(database, archive):
    archive.append(ANN, said("walnut"))
    archive.append(BOB, said("walnut", "hazelnut"))
    assert archive.index_pending() is None
    spread = "SELECT * FROM hermes.archive_spread(ARRAY['walnut', 'hazelnut'], %s)"
    totals = "SELECT * FROM hermes.archive_totals()"
    seen = "SELECT count(*) FROM hermes.archive_sessions"
    with database.transaction(COMPONENT, AS_ANN) as connection:
        assert connection.execute(spread, (3,)).fetchall() == [(2, 2), (1, 1)]
        assert connection.execute(spread, (2,)).fetchall() == [(2, 2), (None, None)]
        assert connection.execute(totals).fetchone() == (3, 2)
        assert connection.execute(seen).fetchone() == (1,)  # the scope is as before
    for scope in ({}, AS_ANN):
        other = Database(database._url, "theirs")
        with other.transaction(COMPONENT, scope) as connection:
            assert connection.execute(spread, (3,)).fetchall() in ([], [(0, 0), (0, 0)])
            assert connection.execute(totals).fetchone() == (0, 0)
        other.close()
    alone = Database(database._url, "of ann")
    with closing(PostgresArchive(alone)) as of_ann:
        of_ann.append(ANN, said("walnut"))
        assert search(of_ann, "walnut") == ["of-ann"]
        with alone.transaction(COMPONENT, AS_ANN) as connection:  # a search counts the same
            assert connection.execute(spread, (3,)).fetchall() == []
    alone.close()
    with database.transaction(COMPONENT) as connection:
        assert connection.execute(spread, (3,)).fetchall() == []
        assert connection.execute(totals).fetchone() == (0, 0)


def told(database, *words: str, most: int = 100) -> list[tuple[int, int]]:
    """How often words occur, as one of the people is told."""
    with database.transaction(COMPONENT, AS_ANN) as connection:
        query = "SELECT * FROM hermes.archive_spread(%s::text[], %s)"
        return connection.execute(query, (list(words), most)).fetchall()


def test_counts_do_not_say_which_words_stand_in_one_message_of_somebody_else(database, archive):
    archive.append(ANN, said("almond"))
    archive.append(BOB, said("walnut hazelnut", "chestnut", "peanut"))
    assert archive.index_pending() is None
    with database.transaction(COMPONENT, {}) as connection:
        (signatures,) = connection.execute(
            "SELECT array_agg(pg_get_function_identity_arguments(oid)) FROM pg_proc"
            " WHERE proname = 'archive_spread'"
        ).fetchone()
    assert signatures == ["wanted text[], most integer"]
    for apart in ("hazelnut", "chestnut"):
        assert told(database, "walnut", apart) == [(1, 1), (1, 1)]
        assert told(database, f"walnut {apart}") == [(0, 0)]
        assert told(database, "walnut", apart, most=1) == [(1, 1), (None, None)]


def test_a_prefix_finds_for_a_person_what_it_finds_in_files(tmp_path, archive):
    with closing(SqliteArchive(tmp_path / "state.db")) as files:
        for number, words in enumerate(("walnut", "walnuts walnutty", "almond walk", "walnut")):
            facts = (BOB if number % 2 else ANN)._replace(id=f"s{number}")
            for each in (files, archive):
                each.append(facts, said(*[f"{words} {at}" for at in range(number + 1)]))
        options = SearchOptions(OF_ANN, frozenset((*ROLES, "")), 5)
        for query in ("wal* almond", "waln*", "walnu* walk", "walnt"):
            in_files, here = (
                [hit.session.id for hit in each.search(parse(query), options).hits]
                for each in (files, archive)
            )
            assert here == in_files, query


#: What only a person notices: whoever sees everything finds all of it.
DAMAGE = {
    "UPDATE hermes.archive_messages SET owner = 2 WHERE owner = 1": "another person",
    "UPDATE hermes.archive_sessions SET owner = 2 WHERE id = 'of-ann'": "the person they belong to",
    "DELETE FROM hermes.archive_owners WHERE number = 1": "the person they belong to",
    "UPDATE hermes.archive_owners SET user_key = gen_random_uuid()": "the person they belong to",
    "UPDATE hermes.archive_sessions SET key = gen_random_uuid()": "not found by their ids",
    "UPDATE hermes.archive_sessions SET next = 0": "wrong numbers",
    "UPDATE hermes.archive_sessions SET indexed = 99": "wrong numbers",
    "UPDATE hermes.archive_words SET owner = 2 WHERE owner = 1": "is missing in it",
    (
        "UPDATE hermes.archive_words SET words = (SELECT array_agg(each) FROM unnest(words) AS each"
        " WHERE each != hashint8extended(owner, namespace))"
    ): "is missing in it",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_that_hides_something_from_a_person_is_found_and_repaired(
    postgres_server, database, archive, damage
):
    archive.append(ANN, said("walnut of ann"))
    archive.append(BOB, said("walnut of bob"))
    assert archive.check() == []
    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        admin.execute(damage)
    assert DAMAGE[damage] in "; ".join(each.what for each in archive.check())
    archive.repair()
    assert archive.check() == []
    archive.append(ANN, said("hazelnut of ann"))
    for word in ("walnut", "hazelnut"):
        found = archive.search(Query((Term(word),)), SearchOptions(OF_ANN, frozenset(ROLES), 3))
        assert [each.session.id for each in found.hits] == ["of-ann"]


def test_a_check_while_the_server_is_busy_says_so_and_reports_no_damage(
    postgres_server, database_url, archive
):
    archive.append(ANN, said("walnut"))
    impatient = Database(database_url, "ours", statement_seconds=0.2)
    with closing(PostgresArchive(impatient)) as other:
        with postgres_server.admin(database_url.rpartition("/")[2]) as admin, admin.transaction():
            admin.execute("SELECT 1 FROM hermes.archive_sessions FOR UPDATE")
            for ask in (other.check, other.repair):
                with pytest.raises(DatabaseError, match="try again") as caught:
                    ask()
                assert fault_of(caught.value) is ServerFault.BUSY
            # Not "nothing was said": nobody knows.
            with pytest.raises(DatabaseError, match="try again"):
                search(other, "walnut")
        assert other.check() == []
        assert search(other, "walnut") == ["of-ann"]
    impatient.close()


def test_a_check_while_others_write_and_delete_reports_no_damage(database_url, archive):
    """They do it at the worst moment: when the index is complete, before it is compared."""
    archive.append(ANN, said("walnut"))
    archive.append(BOB, said("peanut", "acorn"))
    elsewhere = Database(database_url, "ours")
    with closing(PostgresArchive(elsewhere)) as other:
        indexed = archive._index.add_all

        def add_all(*arguments):
            result = indexed(*arguments)
            other.append(ANN, said("walnut", "chestnut", "beechnut"))
            return result

        def progress(done, total):
            other.delete([each for each in other.browse(EVERYBODY, 9) if each.id == BOB.id])

        archive._index.add_all = add_all
        assert archive.check(progress) == []
        assert search(other, "chestnut") == ["of-ann"]
        assert search(other, "peanut") == []
    elsewhere.close()


def test_what_another_machine_stored_is_found_at_once(database_url, archive):
    elsewhere = Database(database_url, "ours")
    other = PostgresArchive(elsewhere)
    other.append(ANN, said("walnut"))
    assert search(archive, "walnut") == ["of-ann"]
    other.append(ANN, said("hazelnut"))
    assert search(archive, "hazelnut") == ["of-ann"]
    elsewhere.close()


def test_all_sessions_are_listed_once_while_somebody_speaks_in_them(
    database_url, archive, monkeypatch
):
    names = [f"of-ann-{number}" for number in range(7)]
    for at, name in enumerate(names):
        archive.append(ANN._replace(id=name), [NewMessage("user", "walnut", 1.7e9 + at)])
    monkeypatch.setattr("hermes_builtin.sessions.postgres.archive._PAGE", 2)
    elsewhere = Database(database_url, "ours")
    spoken = iter(names)

    def speak_while_read(row):
        with suppress(StopIteration), closing(PostgresArchive(elsewhere)) as other:
            facts = ANN._replace(id=next(spoken))
            other.append(facts, [NewMessage("user", "hazelnut", 1.8e9)])
        return session_from(row)

    monkeypatch.setattr(postgres_search, "session_from", speak_while_read)

    assert sorted(each.id for each in archive.sessions(EVERYBODY)) == names
    assert next(spoken, None) is None
    elsewhere.close()


def test_a_server_that_is_down_is_one_line_in_the_commands(home, machine):
    (machine.home).mkdir(parents=True, exist_ok=True)
    (machine.home / "config.yaml").write_text(
        "memory:\n  storage: postgresql://ann@127.0.0.1:1/x\n"
    )
    done = machine.run("sessions", "list")
    assert done.code == 1
    assert "postgresql://ann@127.0.0.1:1/x: PostgreSQL can't be used" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_turns_for_a_database_with_another_encoding_wait_in_the_spool(
    postgres_server, machine, encoding
):
    machine.home.mkdir(parents=True, exist_ok=True)
    template = f"template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    with postgres_server.database(template) as name:
        url = postgres_server.url(name)
        (machine.home / "config.yaml").write_text(f"memory:\n  storage: {url}\n")
        talk = Talk(machine.home)
        talk.say("plain")
        talk.say("日本語")
        (warning,) = [each for each in talk.manager.warnings if "turn" in each]
        assert warning.startswith("2 turns wait in the spool")
        assert not talk.note("The kettle is blue.")
        talk.close()
        for command in ("storage status", "status", "storage check"):
            done = machine.run(*command.split())
            assert done.code == 1, done
            assert f"has the encoding {encoding}" in " ".join((done.out + done.err).split())
            assert "b'" not in done.out
        shared_database(url, "default", is_default=True).close()


# -- what nothing refers to any more ---------------------------------------------------------


@pytest.fixture
def rows(postgres_server, database):
    """Looks into the private tables: the words that begin like one, and the ids of people."""

    def look(word: str = "walnut") -> tuple[list[str], list[str]]:
        terms = "SELECT term FROM hermes.archive_terms WHERE starts_with(term, %s) ORDER BY term"
        owners = "SELECT user_id FROM hermes.archive_owners ORDER BY user_id"
        found = (admin.execute(terms, (word,)).fetchall(), admin.execute(owners).fetchall())
        return [term for (term,) in found[0]], [user for (user,) in found[1]]

    with postgres_server.admin(database.where.rpartition("/")[2]) as admin:
        yield look


def test_a_word_that_was_in_many_messages_leaves_the_vocabulary_with_them(archive, rows):
    # Some of these are in the sample, so the word counts as frequent.
    texts = [f"walnut number {number}" for number in range(200)]
    archive.append(ANN, said(*texts, "hazelnut"))
    archive.append(BOB, said("hazelnut of bob"))
    assert search(archive, "walnut") == ["of-ann"]
    archive.replace_texts(lambda text: "walnut" in text)
    assert rows()[0] == []
    assert rows("hazelnut")[0] == ["hazelnut"]
    assert search(archive, "hazelnut")
    assert archive.check() == []


def test_a_word_of_messages_that_are_not_new_stays_in_the_vocabulary(archive, rows):
    """The newest messages of each session are looked at first; this one is not among them."""
    archive.append(ANN, said("walnut", *["filler"] * 120))
    archive.append(BOB, said("walnut"))
    assert sorted(search(archive, "walnut")) == ["of-ann", "of-bob"]
    archive.delete([archive.session("of-bob", EVERYBODY)])
    assert rows()[0] == ["walnut"]
    assert archive.check() == []


def test_the_ids_of_a_person_leave_with_the_last_session(archive, rows):
    archive.append(ANN, said("walnut"))
    archive.append(ANN._replace(id="second"), said("walnut"))
    archive.append(BOB, said("hazelnut"))
    archive.delete([archive.session("second", EVERYBODY)])
    assert rows()[1] == ["1001", "1002"]
    archive.delete([archive.session("of-ann", EVERYBODY)])
    assert rows() == ([], ["1002"])
    archive.append(ANN, said("walnut"))
    assert archive.session("of-ann", OF_ANN) is not None
    assert archive.check() == []


def test_whoever_begins_a_session_keeps_the_person_that_another_deletes(
    database_url, database, archive, rows
):
    archive.append(ANN, said("walnut"))
    with psycopg.connect(database_url) as other:
        # Another agent is about to store the first turn of another session of the same person.
        other.execute("SELECT set_config('hermes.namespace', 'ours', false)")
        other.execute("SELECT set_config('hermes.scope', '{}', false)")
        facts = {**json.loads(FACTS), "id": "new", "key": str(key_of("new"))}
        turn = '[{"role": 1, "size": 1, "at": 1, "content": "x"}]'
        other.execute(
            "SELECT hermes.archive_append(gen_random_uuid(), %s, %s, 1)", (json.dumps(facts), turn)
        )
        archive.delete([archive.session("of-ann", EVERYBODY)])
    assert rows()[1] == ["1001"]
    assert archive.session("new", OF_ANN) is not None
    assert archive.check() == []


def test_forget_finds_and_removes_what_is_left_of_a_text_and_a_person(
    postgres_server, database_url, machine, rows
):
    machine.home.mkdir(parents=True, exist_ok=True)
    (machine.home / "config.yaml").write_text(
        f"memory:\n  storage: {database_url}\n  storage_namespace: ours\n"
    )
    with postgres_server.admin(database_url.rpartition("/")[2]) as admin:
        # As an earlier version left them.
        admin.execute("SET hermes.namespace = 'ours'; SELECT hermes.archive_begin()")
        admin.execute("INSERT INTO hermes.archive_terms VALUES (1, 'walnut', 96)")
        admin.execute("SELECT hermes.archive_owner('1001', 'c1', 'default', 'telegram')")
    for given, what in (
        (("walnut",), "unused words of the index"),
        (("--user", "1001", "--platform", "telegram"), "unused ids of users"),
    ):
        assert what in machine.run("forget", *given, "--dry-run").out
        assert machine.run("forget", *given, "--yes").code == 0
        assert what not in machine.run("forget", *given, "--dry-run").out
    assert rows() == ([], [])


# -- formats --------------------------------------------------------------------------------

#: What made these formats: they are in databases of users, and a change belongs into a new one.
MIGRATIONS = {
    "archive": (
        "36759f4ee0a091f6", "6c82654dd5e3554e", "40c3812236389baa", "158dc3272e4ebfd0",
        "ec0a29fd611aa82a", "36a4c2a865b57a9c", "a74421b034903466",
    ),
    "notes": ("9093e8c18c2db133", "2ba4c3cb706cd5f9", "7d2782c4b4fed97c"),
    "outbox": ("a1d20201a9fe16f0", "1a2eccbc31ebec37"),
}  # fmt: skip
#: Before format 3 there were databases with this one.
OLD_APPEND = (
    "CREATE OR REPLACE FUNCTION hermes.archive_append(uuid, jsonb, integer[], double precision[],"
    " integer[], text[], text[], double precision) RETURNS bigint[] LANGUAGE sql"
    " AS $$ SELECT '{}'::bigint[] $$"
)


@pytest.mark.parametrize("version", range(1, len(COMPONENT.migrations)))
def test_a_database_of_an_earlier_format_is_upgraded_and_takes_turns(postgres_server, version):
    with postgres_server.database("template0") as name:
        old = replace(COMPONENT, migrations=COMPONENT.migrations[:version])
        with psycopg.connect(postgres_server.url(name), autocommit=True) as connection:
            migrate(connection, old, "an old one")
            if version < 3:
                connection.execute(OLD_APPEND)
        database = Database(postgres_server.url(name), "ours")
        with closing(PostgresArchive(database)) as archive:
            archive.append(ANN, said("walnut"))
            assert search(archive, "walnut") == ["of-ann"]
        with database.transaction(COMPONENT, {"notes": "memory"}) as connection:
            assert connection.execute("SELECT * FROM hermes.archive_messages").fetchall() == []
        database.close()


def test_a_format_that_users_have_does_not_change():
    for component in components():
        texts = [getsource(each) if callable(each) else each for each in component.migrations]
        found = [re.sub(r"--.*|\s+", "", each) for each in texts]
        hashes = tuple(sha256(each.encode()).hexdigest()[:16] for each in found)
        assert hashes == MIGRATIONS[component.name]
