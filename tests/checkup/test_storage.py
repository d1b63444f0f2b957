"""Moving what a home stores: everything arrives, nothing is lost, and nothing else is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from support.commands import Machine
from support.full_home import BOB, CONFIG, content, fill, rows_of

from hermes_builtin.items import Items, ItemWrite
from hermes_builtin.notes import Author, Notes, NotesError, Operation
from hermes_builtin.notes.commands import memory
from hermes_builtin.sessions.archive import EVERYBODY, NewMessage, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_core import DatabaseError, HermesError, MemoryManager, SessionContext
from hermes_core.checkup import forget, storage, survey
from hermes_core.checkup.migration import JOURNAL, Migration, Phase, save_migration
from hermes_core.cli.forget import forget_command
from hermes_core.cli.storage import storage_command
from hermes_core.config import load_config
from hermes_core.config.storage import database_at, home_database
from hermes_core.outbox import StreamKey
from hermes_core.outbox.admin import entries, open_store
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.provider import ForgetRequest
from hermes_core.storage.address import shown_address
from hermes_core.storage.migration import Progress, counted, no_progress
from hermes_core.storage.postgres import shared_database

FILES = ("state.db", "outbox.db", "memories", "pending")


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """The built-in is found among few distributions."""


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """The address of a new database."""
    yield database_url
    for namespace in ("default", "other"):
        for is_default in (False, True):
            shared_database(database_url, namespace, is_default=is_default).close()


@pytest.fixture
def full(home: Path) -> Path:
    """A home with something in every store."""
    fill(home)
    return home


def migrate(home: Path, to: str, **options: Any) -> storage.MigrationPlan:
    return storage.migrate(load_config(home), to, **options)


def move_away(home: Path, folder: Path) -> None:
    for name in FILES:
        for path in home.glob(f"{name}*"):
            folder.mkdir(exist_ok=True)
            shutil.move(path, folder / path.name)


def stored_files(home: Path) -> dict[str, Any]:
    """The content of the files of a home; of databases, their rows."""
    names = ("state.db", "outbox.db", "memories/history.db")
    texts = [*home.glob("memories/*.md"), *home.glob("memories/users/*/*.md")]
    pending = list(home.glob("pending/memory/*.json"))
    return {
        **{name: rows_of(home / name) for name in names},
        **{str(path.relative_to(home)): path.read_bytes() for path in [*texts, *pending]},
    }


# -- there and back -----------------------------------------------------------------------------


def test_everything_arrives_and_comes_back_as_it_was(full: Path, url: str, tmp_path: Path) -> None:
    before, source = content(full), stored_files(full)

    plan = migrate(full, url)

    assert content(full) == before
    assert stored_files(full) == source
    assert plan.counts["conversations"] == {"sessions": 6, "messages": 1117}
    assert plan.counts["outbox"]["waiting"] == 4
    assert (full / "config.yaml").read_text() == CONFIG + f'  storage: "{url}"\n'
    assert not (full / JOURNAL).exists()

    move_away(full, tmp_path / "old")
    migrate(full, "files")

    assert content(full) == before
    assert load_config(full).storage == ""


def test_an_export_leaves_the_source_of_a_migration_as_it_was(full: Path, url: str) -> None:
    migrate(full, url)
    source = stored_files(full)
    notes = Notes.open(full, load_config(full).memory)
    notes.notebooks["memory"].change([Operation("add", "new in the database")], Author("agent"))

    done = CliRunner().invoke(memory, ["export"], obj=str(full))

    assert isinstance(done.exception, NotesError)
    assert "were moved to the database" in done.exception.what
    assert "move this folder out of the home" in done.exception.hint
    assert stored_files(full) == source
    (full / "memories").rename(full.parent / "before")
    done = CliRunner().invoke(memory, ["export"], obj=str(full), catch_exceptions=False)
    assert "new in the database" in (full / "memories" / "MEMORY.md").read_text("utf-8")


def test_a_change_can_be_undone_after_a_migration(full: Path, url: str) -> None:
    migrate(full, url)

    with closing(Notes.open(full, load_config(full).memory)) as notes:
        notes.undo(None, Author("command"))
        entries = notes.notebooks["memory"].read().entries
        staged = notes.pending.all()[0]
        notes.approve(staged.id, Author("command"))

        user = notes.notebooks["user"].read().entries

    assert "memory note 1 of bob 日本" in entries
    assert user[-1] == "waits for cli"


def test_an_edit_of_a_file_is_taken_over_after_the_way_back(
    full: Path, url: str, tmp_path: Path
) -> None:
    migrate(full, url)
    move_away(full, tmp_path / "old")
    migrate(full, "files")

    with (full / "memories" / "MEMORY.md").open("a") as file:
        file.write("\nappended by hand")

    with closing(Notes.open(full, load_config(full).memory)) as notes:
        assert notes.notebooks["memory"].read().entries[-1] == "appended by hand"


def test_a_migration_from_one_database_to_another(
    full: Path, url: str, postgres_server: Any
) -> None:
    before = content(full)
    migrate(full, url)
    with postgres_server.database() as name:
        other = postgres_server.url(name)
        migrate(full, other)
        assert content(full) == before
        assert load_config(full).storage == other
        shared_database(other, "default", is_default=True).close()


def test_an_empty_home_moves_too(home: Path, url: str) -> None:
    migrate(home, url)

    assert load_config(home).storage == url


# -- refusals: one line, and nothing changes ----------------------------------------------------


def refusal(home: Path, to: str) -> str:
    """What is said; the home must be as before."""
    before = content(home), stored_files(home), (home / "config.yaml").read_text()
    with pytest.raises(HermesError) as found:
        migrate(home, to)
    assert (content(home), stored_files(home), (home / "config.yaml").read_text()) == before
    assert not (home / JOURNAL).exists()
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_namespace_with_content_is_refused(full: Path, url: str, tmp_path: Path) -> None:
    fill(other := tmp_path / "other")
    migrate(other, url)

    assert "already has content" in (said := refusal(full, url))
    assert "memory.storage_namespace" in said

    (full / "config.yaml").write_text(CONFIG + "  storage_namespace: other\n")
    migrate(full, url)
    assert content(full)["talks"] == content(other)["talks"]


def test_files_of_before_are_not_overwritten(full: Path, url: str) -> None:
    migrate(full, url)
    before = stored_files(full)

    with pytest.raises(HermesError, match="already has content") as found:
        migrate(full, "files")

    assert "move state.db" in found.value.hint
    assert stored_files(full) == before
    assert load_config(full).storage == url


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("mysql://u@h/d", "expected files, or postgresql://"),
        ("postgresql://u:hunter2@h/d", "has a password in it"),
        ("postgresql://hermes@127.0.0.1:1/d", "can't be used"),
        ("files", "already stores to files"),
    ],
)
def test_wrong_targets_are_refused(full: Path, to: str, said: str) -> None:
    found = refusal(full, to)

    assert said in found
    assert "hunter2" not in found


def test_a_database_of_others_or_of_a_newer_version_is_refused(
    full: Path, postgres_server: Any
) -> None:
    with postgres_server.database("template1") as name:
        with closing(postgres_server.admin(name)) as admin:
            admin.execute("CREATE SCHEMA hermes")
        assert "another program" in refusal(full, postgres_server.url(name))
    with postgres_server.database() as name:
        with closing(postgres_server.admin(name)) as admin:
            admin.execute("UPDATE hermes.versions SET version = 99 WHERE component = 'outbox'")
            admin.execute("DELETE FROM hermes.versions WHERE component = 'notes'")
        assert "newer version" in refusal(full, postgres_server.url(name))
        with closing(postgres_server.admin(name)) as admin:
            rows = admin.execute("SELECT 1 FROM hermes.versions WHERE component = 'notes'")
            assert rows.fetchone() is None


def test_a_dry_run_changes_nothing(full: Path, postgres_server: Any) -> None:
    before = stored_files(full)
    with postgres_server.database("template1") as name:
        plan = migrate(full, postgres_server.url(name), dry_run=True)
        with closing(postgres_server.admin(name)) as admin:
            assert admin.execute("SELECT to_regnamespace('hermes')").fetchone() == (None,)
    assert plan.counts["conversations"]["messages"] == 1117
    assert plan.bytes > 0
    assert stored_files(full) == before
    assert load_config(full).storage == ""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who has a file open")
def test_agents_that_run_are_named(full: Path, url: str) -> None:
    script = "import sys; file = open(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, full / "state.db"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        agent.stdout.read(1)
        assert f"process {agent.pid}" in refusal(full, url)
        agent.communicate()


def test_the_namespace_of_both_databases_is_not_proposed_to_be_changed(
    full: Path, url: str, postgres_server: Any, tmp_path: Path
) -> None:
    with postgres_server.database() as name:
        other, used = postgres_server.url(name), tmp_path / "used"
        fill(used)
        migrate(used, other)
        migrate(full, url)

        with pytest.raises(HermesError, match="already has content") as found:
            migrate(full, other)
        assert "storage_namespace" not in found.value.hint

        # Whoever changes the name anyway is told that nothing would move.
        with (full / "config.yaml").open("a") as file:
            file.write("  storage_namespace: other\n")
        with pytest.raises(HermesError, match="nothing to move"):
            migrate(full, other)
        assert load_config(full).storage == url
        for namespace in ("default", "other"):
            for is_default in (False, True):
                shared_database(other, namespace, is_default=is_default).close()


def test_a_login_that_does_not_own_the_tables_is_refused_first(
    full: Path, url: str, postgres_server: Any
) -> None:
    with closing(postgres_server.admin(url.rpartition("/")[2])) as admin:
        admin.execute("DROP ROLE IF EXISTS bound_agent")
        admin.execute("CREATE ROLE bound_agent LOGIN PASSWORD 'x' IN ROLE hermes_tenant")
    user = url.partition("://")[2].partition("@")[0]
    bound = url.replace(f"{user}@", "bound_agent@")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HERMES_STORAGE_PASSWORD", "x")
            assert "bound_agent can't move a memory" in refusal(full, bound)
    finally:
        with closing(postgres_server.admin(url.rpartition("/")[2])) as admin:
            admin.execute("DROP ROLE bound_agent")


def test_the_password_that_was_set_for_us_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "theirs")
    address = "postgresql://hermes@127.0.0.1:1/d"
    assert "password" not in database_at(home, address, "default")._conninfo()

    monkeypatch.delenv("HERMES_STORAGE_PASSWORD", raising=False)
    (home / ".env").write_text("HERMES_STORAGE_PASSWORD=ours\n")

    assert "password=ours" in database_at(home, address, "default")._conninfo()


def test_one_is_not_many() -> None:
    assert counted(1, "changes") == "1 change"
    assert counted(1_000, "changes") == "1,000 changes"


def test_items_are_named_as_what_stays_here(full: Path, url: str) -> None:
    with closing(Items(full, platform="cli", user_id="")) as items:
        items.change([ItemWrite(("facts",), "tea", {"likes": "green"})])

    migrate(full, url)

    assert storage.storage_status(load_config(full)).items == str(full / "items.db")


# -- those who write meanwhile ------------------------------------------------------------------


class Stopped(BaseException):
    """The process ends here."""


def stop_at(wanted: str) -> storage.Report:
    def report(what: str) -> Progress:
        if what == wanted:
            raise Stopped
        return no_progress

    return report


def test_an_agent_that_starts_meanwhile_loses_no_turn(full: Path, url: str) -> None:
    manager: MemoryManager | None = None

    def report(what: str) -> Progress:
        # In another process it would be the same: the database refuses, not our code.
        nonlocal manager
        if manager is None:
            manager = MemoryManager.from_config(full)
            manager.initialize_all("meanwhile", platform="cli")
        manager.sync_all(f"I said: {what}", "Noted.")
        return no_progress

    migrate(full, url, report=report)
    assert manager is not None
    manager.sync_all("I said: after it", "Noted.")
    answer = json.loads(
        manager.handle_tool_call("memory", {"target": "memory", "action": "add", "content": "x"})
    )
    manager.shutdown_all()

    config = load_config(full)
    assert storage._builtin(config).spooled(full, seconds=600) == (0, "")
    with closing(locate(full).open()) as archive:
        session = archive.session("meanwhile", EVERYBODY)
        assert session is not None
        said = [each.content for each in archive.messages(session) if each.role == "user"]
    assert said == [
        "I said: Copying the conversations", "I said: Copying the conversations",
        "I said: Copying the notes", "I said: Copying the outbox",
        "I said: Comparing the conversations", "I said: Comparing the notes",
        "I said: Comparing the outbox", "I said: Handing over what waits", "I said: after it",
    ]  # fmt: skip
    assert not answer["success"]
    assert "has moved" in answer["error"]


@pytest.mark.stress
def test_another_process_that_writes_all_the_time_loses_nothing(full: Path, url: str) -> None:
    script = Path(__file__).parents[1] / "support" / "storage_writer.py"
    agent: subprocess.Popen[str] | None = None

    def report(what: str) -> Progress:
        nonlocal agent
        if agent is None:
            agent = subprocess.Popen(
                [sys.executable, "-P", script],
                env={**os.environ, "HERMES_HOME": str(full)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert agent.stdout is not None
            agent.stdout.readline()  # it has stored its first turn in the source
        return no_progress

    plan = migrate(full, url, report=report)
    assert agent is not None
    # Not `communicate`, which does not see what `readline` has read of the lines after the first.
    with agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.close()
        said = ["turn 0", *agent.stdout.read().splitlines()]

    config = load_config(full)
    assert storage._builtin(config).spooled(full, seconds=600) == (0, "")
    with closing(locate(full).open()) as archive:
        session = archive.session("meanwhile", EVERYBODY)
        assert session is not None
        stored = [each.content for each in archive.messages(session) if each.role == "user"]
    assert stored == said
    if sys.platform == "linux":
        assert any(f"process {agent.pid}" in each for each in plan.agents)


@pytest.mark.parametrize("direction", ["to the database", "to files"])
def test_after_the_switch_the_source_takes_no_changes(
    full: Path, url: str, tmp_path: Path, direction: str
) -> None:
    old = load_config(full)
    migrate(full, url)
    if direction == "to files":
        move_away(full, tmp_path / "old")
        old = load_config(full)
        migrate(full, "files")

    with closing(locate(full, old.memory).open()) as archive, pytest.raises(DatabaseError):
        archive.append(SessionFacts("new"), [NewMessage("user", "lost?", 1.0)])
    with closing(Notes.open(full, old.memory, BOB)) as notes:
        with pytest.raises(HermesError):
            notes.change("user", [Operation("add", "lost?")], Author("tool"))
        with pytest.raises(HermesError):
            notes.pending.stage("user", [Operation("add", "lost?")], Author("tool"))
    with closing(storage.OutboxPart(full, home_database(full, old.memory))) as part:
        key = StreamKey.of("acme", "acme-memory", SessionContext("new"))
        with pytest.raises(DatabaseError):
            part.store.put(key, 0, ("new", "sync_turn", "{}"), claim=True)


def test_a_person_who_goes_back_by_hand_can_use_the_source_again(full: Path, url: str) -> None:
    migrate(full, url)
    (full / "config.yaml").write_text(CONFIG)

    assert storage.cancel(load_config(full)) == ""

    with closing(locate(full).open()) as archive:
        assert archive.append(SessionFacts("new"), [NewMessage("user", "kept", 1.0)])


def test_every_machine_of_a_fleet_hears_that_the_memory_has_moved(
    full: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(full, url)
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text((full / "config.yaml").read_text())
    move_away(full, tmp_path / "old")
    migrate(full, "files")

    report = storage.storage_status(load_config(other))
    assert not report.ok
    assert "has moved to files on " in report.problem
    assert "set memory.storage" in report.hint
    assert any("has moved" in str(each) for each in storage.check_storage(load_config(other)))
    builtin = storage._builtin(load_config(other))
    assert any("has moved" in str(each) for each in builtin.problems(other))

    monkeypatch.setenv("HERMES_HOME", str(other))
    manager = MemoryManager.from_config(other)
    manager.initialize_all("elsewhere", platform="cli")
    manager.sync_all("Is this kept?", "It is.")
    manager.shutdown_all()
    turns, why = builtin.spooled(other)
    assert turns == 1
    assert "has moved" in why
    assert "primary" not in why
    checked = storage.check_storage(load_config(other))
    assert any(each.what.startswith("1 turn waits in the spool") for each in checked)
    rows = [row for row in builtin.diagnose(other, fix=False) if row[1] != "ok"]
    assert [row[:2] for row in rows] == [("storage", "problem"), ("conversations", "warning")]
    assert "next start" not in rows[1][3]


def test_writes_in_the_spool_are_counted_and_moved(
    full: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = StreamKey.of("journal", "", SessionContext(session_id="late"))
    OutboxSpool(full).add(key, ("e1", "sync_turn", '{"user_content": "late"}'), "it was down")
    report = storage.storage_status(load_config(full))
    assert (report.spooled, report.spooled_writes) == (0, 1)
    assert report.spooled_because == "it was down"
    monkeypatch.setenv("HERMES_HOME", str(full))
    for command, said in (("status", "1 write: it was down"), ("migrate", "1 write, handed over")):
        options = ["--to", url, "--dry-run"] if command == "migrate" else []
        assert said in CliRunner().invoke(storage_command, [command, *options]).output
    assert migrate(full, url).spooled_writes == 0
    assert not OutboxSpool(full).exists
    with closing(open_store(load_config(full), set_aside=False)) as store:
        assert [each.event_id for each in entries(store) if each.key.session == "late"] == ["e1"]


# -- interruptions ------------------------------------------------------------------------------

STEPS = (
    "Copying the conversations", "Copying the notes", "Copying the outbox",
    "Comparing the conversations", "Comparing the outbox", "Handing over what waits",
)  # fmt: skip


#: Of the copies, one is enough for `make test`, and so it is of the comparisons.
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(each, marks=() if number in {1, 4, 5} else pytest.mark.stress)
        for number, each in enumerate(STEPS)
    ],
)
def test_an_error_at_any_step_lets_agents_go_on_and_the_next_attempt_finish(
    full: Path, url: str, step: str
) -> None:
    before = content(full)
    with pytest.raises(Stopped):
        migrate(full, url, report=stop_at(step))

    report = storage.storage_status(load_config(full))
    assert not report.ok
    assert report.migration == url
    with closing(locate(full).open()) as archive:
        archive.append(SessionFacts("new"), [NewMessage("user", "meanwhile", 1.0)])
    with pytest.raises(HermesError, match="was interrupted"):
        migrate(full, url.replace("test_", "other_"))

    migrate(full, url)

    assert content(full)["talks"][:6] == before["talks"]
    assert len(content(full)["talks"]) == 7
    assert content(full)["outbox"] == before["outbox"]
    assert storage.storage_status(load_config(full)).ok


def test_a_cancelled_migration_leaves_the_source_in_use(full: Path, url: str) -> None:
    before = content(full)
    with pytest.raises(Stopped):
        migrate(full, url, report=stop_at("Copying the notes"))

    assert storage.cancel(load_config(full)) == url

    assert content(full) == before
    assert storage.storage_status(load_config(full)).ok
    migrate(full, url)
    assert content(full) == before


def test_a_cancelled_migration_thaws_the_namespace_that_it_froze(
    full: Path, url: str, tmp_path: Path
) -> None:
    migrate(full, url)
    move_away(full, tmp_path / "old")
    old = load_config(full)
    part = storage.Storage(old, url, storage._builtin(old))
    for each in part.parts:
        each.freeze("killed here")
    part.close()
    save_migration(full, Migration(url, "files", "default", Phase.FROZEN))
    with (full / "config.yaml").open("a") as file:
        file.write("  storage_namespace: other\n")

    with pytest.raises(HermesError, match="namespace default"):
        migrate(full, "files")
    assert storage.cancel(load_config(full)) == "files"

    with closing(locate(full, old.memory).open()) as archive:
        assert archive.append(SessionFacts("new"), [NewMessage("user", "kept", 1.0)])


def delete_namespace(url: str, namespace: str) -> None:
    """What the page says about it."""
    text = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    statement = text.partition("```sql\n")[2].partition("```")[0]
    assert "support-team" in statement
    with psycopg.connect(url) as owner:
        owner.execute(statement.replace("support-team", namespace).encode())


def test_a_namespace_that_was_moved_away_can_be_deleted(
    full: Path, url: str, tmp_path: Path, postgres_server: Any
) -> None:
    migrate(full, url)
    move_away(full, tmp_path / "old")
    migrate(full, "files")
    with closing(postgres_server.admin(url.rpartition("/")[2])) as admin:
        # A login that is bound to it, and would see all others without that.
        admin.execute("INSERT INTO hermes.tenants VALUES (current_user, 'default')")

        delete_namespace(url, "default")

        bound = admin.execute("SELECT hermes.current_namespace()").fetchone()
        assert bound == ("default",)
        tables = admin.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'hermes'::regnamespace"
            " AND relkind = 'r' AND relname NOT IN ('versions', 'tenants')"
        ).fetchall()
        assert len(tables) > 10
        for (table,) in tables:
            left = admin.execute(f"SELECT count(*) FROM hermes.{table}").fetchone()
            assert (table, left) == (table, (0,))
    # A new home of that name finds nothing of it.
    (new := tmp_path / "new").mkdir()
    (new / "config.yaml").write_text(f"memory:\n  storage: {url}\n  storage_namespace: default\n")
    with closing(locate(new).open()) as archive:
        assert archive.append(SessionFacts("new"), [NewMessage("user", "kept", 1.0)])
    assert storage.storage_status(load_config(new)).ok


def test_a_home_without_files_has_no_size(home: Path) -> None:
    report = storage.storage_status(load_config(home))

    assert [(each.name, each.bytes) for each in report.parts] == [
        ("conversations", 0), ("notes", 0), ("outbox", 0),
    ]  # fmt: skip


def test_a_namespace_that_has_notes_alone_can_be_deleted(postgres_server: Any, home: Path) -> None:
    with postgres_server.database("template0") as name:
        url = postgres_server.url(name)
        database = shared_database(url, "other")
        notebook = Notes(home, database=database).notebooks["memory"]
        assert notebook.change([Operation("add", "a note")], Author("agent")).changed

        delete_namespace(url, "other")

        assert not notebook.text.exists
        database.close()


@pytest.mark.stress
def test_forget_names_where_the_memory_was_before(full: Path, url: str, tmp_path: Path) -> None:
    migrate(full, url)
    assert forget.is_from_before(load_config(full), "memories/history.db")
    done = CliRunner().invoke(forget_command, ["Where is Bonn, bob", "--yes"])
    assert done.exit_code == 1
    assert "these files are from before" in done.output
    move_away(full, tmp_path / "old")
    migrate(full, "files")

    config = load_config(full)
    subject = survey.Subject(ForgetRequest(str(full), "Where is Bonn"))
    said = forget.always_unreachable(config, subject, asked=False)

    assert any(f"{shown_address(url)} (default): the memory before" in each for each in said)
    assert not forget.is_from_before(config, "memories/history.db")


@pytest.mark.parametrize("part", ["archive_messages", "outbox_writes", "notes_changes"])
def test_a_copy_that_differs_is_not_switched_to(
    full: Path, url: str, postgres_server: Any, part: str
) -> None:
    column = {"archive_messages": "content", "outbox_writes": "payload"}.get(part, "after")

    def damage(what: str) -> Progress:
        if what == "Comparing the conversations":
            with closing(postgres_server.admin(url.rpartition("/")[2])) as admin:
                admin.execute(f"UPDATE hermes.{part} SET {column} = '{{}}'")
        return no_progress

    with pytest.raises(HermesError, match="another checksum"):
        migrate(full, url, report=damage)

    assert load_config(full).storage == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("step", "modules", "least"),
    [
        ("83", "1", 2),
        pytest.param("19", "1", 5, marks=pytest.mark.stress),
        pytest.param("331", "8", 2, marks=pytest.mark.stress),
    ],
    ids=["in the order of steps", "at more of them", "anywhere"],
)
def test_killed_the_same_command_finishes_it(
    shared_url: str, tmp_path: Path, step: str, modules: str, least: int
) -> None:
    script = Path(__file__).parents[1] / "support" / "storage_kills.py"
    done = subprocess.run(
        [sys.executable, "-P", script, tmp_path, shared_url, step, modules],
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["kills"] >= least


def test_an_address_that_cannot_be_reached_is_that_of_the_option(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", in_process=True)
    error = machine.run("storage", "migrate", "--to", "postgresql://ann@127.0.0.1:1/x").failed()
    assert "check that the server is running and that --to is right" in error
