"""`backup` and `restore`: everything of a home, complete or not at all, while agents write."""

from __future__ import annotations

import glob
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands import Machine, posix_only, run_on_terminal
from support.forget_home import KEPT, count, fill, in_child
from support.other_user import bound_by_modes

from hermes_builtin.portable import export_file
from hermes_core import MemoryManager
from hermes_core.backup import backup, notes
from hermes_core.backup import restore as restoring
from hermes_core.backup.backup import create_backup
from hermes_core.backup.format import CHECKSUM, MANIFEST, SECRETS, work_folder
from hermes_core.backup.restore import BackupError, restore
from hermes_core.checkup.replayed_turns import ReplayedTurns
from hermes_core.errors import HermesError, SecretsError
from hermes_core.storage.files import LockTimeoutError, file_lock
from hermes_core.storage.snapshot import Snapshot

pytestmark = [posix_only, pytest.mark.usefixtures("few_distributions")]

PASSPHRASE = "correct horse battery"
KEY = "sk-proj-9f8e7d6c5b4a39281706f5e4d3c2b1a0"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, _packages: Path) -> Path:
    """A home with something in every store; copied for each test."""
    home = tmp_path_factory.mktemp("filled")
    in_child(partial(_fill_quickly, home, _packages))
    return home


def _fill_quickly(home: Path, packages: Path) -> None:
    installed = str(Path(pytest.__file__).parents[1])
    sys.path[:] = [str(packages) if each == installed else each for each in sys.path]
    fill(home)


@pytest.fixture
def machine(tmp_path: Path, filled: Path) -> Machine:
    made = Machine(tmp_path, in_process=True)
    made.home.rmdir()
    in_child(lambda: os.execvp("cp", ["cp", "-a", str(filled), str(made.home)]))
    return made


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A home with two notes, and nothing else."""
    home = tmp_path / "home"
    manager = MemoryManager.from_config(home)
    manager.initialize_all("session")
    manager.handle_tool_call("memory", {"action": "add", "target": "memory", "content": KEPT})
    manager.shutdown_all()
    return home


def beside(path: Path) -> list[str]:
    """What was left over beside a file or folder."""
    return [each.name for each in path.parent.iterdir() if each.name.startswith(f".{path.name}")]


# -- there and back ---------------------------------------------------------------------------


def test_a_restored_home_has_everything_that_every_store_had(machine, tmp_path):
    placed = count(machine.home)
    assert len(placed) == 16, placed
    result = machine.run("backup", str(tmp_path / "b.zip"))
    assert result.code == 0, result
    assert (tmp_path / "b.zip").stat().st_mode & 0o777 == 0o600
    machine.run("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new")).done()
    now = count(tmp_path / "new")
    # Temporary files of processes that are gone are no part of it.
    assert {**now, "temporary files": placed["temporary files"]} == placed
    for command in (["sessions", "check"], ["memory", "history"], ["outbox", "list"]):
        before = machine.run(*command)
        after = machine.run("--home", str(tmp_path / "new"), *command)
        assert after.code == before.code == 0, after
        assert after.out.replace("/new/", "/home/") == before.out
    assert beside(tmp_path / "b.zip") == beside(tmp_path / "new") == []


def test_the_hash_of_every_file_is_in_the_manifest(machine, tmp_path):
    machine.run("backup", str(tmp_path / "b.zip"))
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        text = archive.read(MANIFEST)
        manifest = json.loads(text)
        assert archive.read(CHECKSUM).decode().split()[0] == hashlib.sha256(text).hexdigest()
        listed = {each["path"]: each["sha256"] for each in manifest["files"]}
        for name in set(archive.namelist()) - {MANIFEST, CHECKSUM}:
            assert hashlib.sha256(archive.read(name)).hexdigest() == listed[name]
    kinds = {each["path"]: each["kind"] for each in manifest["files"]}
    assert {name for name, kind in kinds.items() if kind == "database"} >= {
        "home/state.db", "home/outbox.db", "home/memories/history.db", "home/logs/memory-calls.db",
    }  # fmt: skip
    assert not [name for name in kinds if name.endswith(("-wal", "-shm", ".lock"))]


def test_json_says_what_was_copied_and_restored(machine, tmp_path):
    made = machine.json("backup", str(tmp_path / "b.zip"))
    assert (made["secrets"], made["storage"], made["problems"]) == (None, "files", [])
    assert made["bytes_written"] == (tmp_path / "b.zip").stat().st_size
    done = machine.json("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"))
    assert done["restored_to"] == str(tmp_path / "new")
    assert (done["files"], done["bytes"]) == (made["files"], made["bytes"])


def test_progress_is_shown_on_a_terminal(machine, tmp_path):
    code, shown = run_on_terminal(machine, "backup", str(tmp_path / "b.zip"))
    assert code == 0
    assert "Copying the home" in shown


def test_folders_plugins_modes_and_times_come_back(small, tmp_path):
    plugin = small / "plugins" / "acme"
    plugin.mkdir(parents=True)
    (small / "empty" / "inside").mkdir(parents=True)
    (plugin / "__init__.py").write_text("x = 1\n")
    (plugin / "run.sh").write_text("#!/bin/sh\n")
    (plugin / "run.sh").chmod(0o755)
    (plugin / "uv.lock").write_text("version = 1\n")
    (plugin / "own.lock").touch()
    os.utime(plugin / "run.sh", (1_600_000_000, 1_600_000_000))
    (plugin / "__pycache__").mkdir()
    (plugin / "__pycache__" / "x.pyc").write_text("")
    create_backup(small, tmp_path / "b.zip")
    restore(tmp_path / "b.zip", tmp_path / "new")
    there = tmp_path / "new" / "plugins" / "acme"
    assert sorted(each.name for each in there.iterdir()) == ["__init__.py", "run.sh", "uv.lock"]
    assert stat.S_IMODE((there / "run.sh").stat().st_mode) == 0o755
    assert (there / "run.sh").stat().st_mtime == 1_600_000_000
    assert (tmp_path / "new" / "empty" / "inside").is_dir()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_links_are_followed_where_people_use_them_and_reported_elsewhere(small, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(small / "memories", elsewhere)
    (small / "memories").symlink_to(elsewhere)
    (small / "loop").symlink_to(small)
    (small / "nothing").symlink_to(tmp_path / "nothing")
    (small / "notes.txt").symlink_to(elsewhere / "MEMORY.md")
    os.mkfifo(small / "pipe")
    made = create_backup(small, tmp_path / "b.zip")
    assert [each.partition(":")[0] for each in made.left_out] == ["loop", "nothing", "pipe"]
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert KEPT in (tmp_path / "new" / "memories" / "MEMORY.md").read_text()
    assert KEPT in (tmp_path / "new" / "notes.txt").read_text()
    assert not (tmp_path / "new" / "notes.txt").is_symlink()


def test_a_backup_in_the_home_does_not_contain_itself(small, tmp_path):
    made = create_backup(small, small / "b.zip")
    assert not [each for each in made.files if ".zip" in each.path]
    restore(small / "b.zip", tmp_path / "new")


def test_names_with_a_backslash_come_back(small, tmp_path):
    (small / "a\\b").mkdir()
    for name in ("a\\b/c\\d.txt", "\\"):
        (small / name).write_text(name)
    (small / "\\.env").write_text("x=1")
    create_backup(small, tmp_path / "b.zip", passphrase=PASSPHRASE)
    restore(tmp_path / "b.zip", tmp_path / "new", PASSPHRASE)
    for name in ("a\\b/c\\d.txt", "\\", "\\.env"):
        assert (tmp_path / "new" / name).read_text() == (small / name).read_text()


FOLDERS_OF_A_PERSON = (
    ".hermes.backup-20261118",
    ".memories.backup-20261118",
    ".b.zip.export-0123abcd",
    ".new.restore-20261118",
    ".b.zip.hermes-backup-0123456789abcdef",
)


@pytest.mark.parametrize("name", FOLDERS_OF_A_PERSON)
@pytest.mark.parametrize("command", ["backup", "restore", "export"])
def test_a_folder_of_a_person_beside_the_file_stays_whatever_its_name(
    small, tmp_path, name, command
):
    create_backup(small, tmp_path / "b.zip")
    for content in ("begun", "backup.zip", "MEMORY.md"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / content).write_text("mine")
    work = {
        "backup": lambda: create_backup(small, tmp_path / "again.zip"),
        "restore": lambda: restore(tmp_path / "b.zip", tmp_path / "new"),
        "export": lambda: export_file(small, tmp_path / "e.jsonl", provider=False),
    }
    work[command]()
    found = {each.name: each.read_text() for each in (tmp_path / name).iterdir()}
    assert found == dict.fromkeys(("begun", "backup.zip", "MEMORY.md"), "mine")


def test_a_folder_of_a_person_in_the_home_is_in_the_backup_whatever_its_name(small, tmp_path):
    for name in FOLDERS_OF_A_PERSON:
        (small / name).mkdir()
        (small / name / "MEMORY.md").write_text("mine")
    made = create_backup(small, tmp_path / "b.zip")
    assert {f"home/{name}/MEMORY.md" for name in FOLDERS_OF_A_PERSON} <= {
        each.path for each in made.files
    }


def test_a_link_to_an_abandoned_folder_is_not_followed(small, tmp_path):
    left = tmp_path / "elsewhere"
    link = _abandoned(tmp_path / "b.zip", "backup")
    link.rename(left)
    link.symlink_to(left)
    create_backup(small, tmp_path / "b.zip")
    assert (left / "copy.db").read_text() == "private"


def test_what_a_killed_process_left_in_the_home_is_not_in_the_backup(small, tmp_path):
    left = _abandoned(small / "b.zip", "export")
    made = create_backup(small, tmp_path / "b.zip")
    assert not [each for each in (*made.files, *made.folders) if left.name in str(each)]


# -- while others write -----------------------------------------------------------------------


def _talk(home: Path, number: int, told: Any, stop: Any) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all(f"session-{number}")
    turn = 0
    while not stop.is_set():
        manager.sync_all(f"question {number} {turn}", "answer")
        manager.handle_tool_call(
            "memory", {"action": "replace", "target": "memory", "old_text": KEPT, "content": KEPT}
        )
        turn += 1
        told[number] = turn
    os._exit(0)  # without closing anything


def test_what_was_stored_before_is_in_it_while_agents_write(small, tmp_path):
    fork = multiprocessing.get_context("fork")
    told, stop = fork.Array("i", 3), fork.Event()
    agents = [fork.Process(target=_talk, args=(small, each, told, stop)) for each in range(3)]
    for each in agents:
        each.start()
    while min(told) < 20:
        assert all(each.is_alive() for each in agents)
    before = list(told)
    made = create_backup(small, tmp_path / "b.zip")
    stop.set()
    for each in agents:
        each.join(60)
    assert made.problems == ()
    restore(tmp_path / "b.zip", tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new" / "state.db")) as database:
        for number, turns in enumerate(before):
            rows = database.execute(
                "SELECT content FROM archive_messages WHERE content LIKE ?",
                (f"question {number} %",),
            ).fetchall()
            found = {int(text.split()[-1]) for (text,) in rows}
            assert found >= set(range(turns))
            assert found == set(range(len(found)))  # no gap
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert (tmp_path / "new" / "memories" / "MEMORY.md").read_text() == KEPT


WATCH = """
import sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from hermes_core.backup import backup, notes
from hermes_core.backup import restore as restoring
from hermes_core.backup.backup import create_backup
home = Path(sys.argv[1])
create_backup(home, home.with_name("b.zip"))
print([each for each in opened if each.startswith(str(home)) and ".db" in each])
"""


def test_no_database_of_the_home_is_opened_by_anybody_but_sqlite(machine):
    """Closing such a file would cancel the locks of every connection of the process to it."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", WATCH, str(machine.home)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    named = [each for each in json.loads(done.stdout.replace("'", '"')) if ".damaged" not in each]
    assert named == []


def test_notes_wait_for_whoever_changes_them(small, tmp_path, monkeypatch):
    monkeypatch.setattr(notes, "_LOCK_SECONDS", 0.05)
    with (
        file_lock(small / "memories" / "MEMORY.md.lock", 1),
        pytest.raises(LockTimeoutError, match="locked by"),
    ):
        create_backup(small, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()
    assert beside(tmp_path / "b.zip") == []


def _notebooks_of_users(home: Path, count: int) -> list[Path]:
    """Notebooks of so many users, each with a note."""
    (home / "config.yaml").write_text("memory:\n  user_notes: per-user\n")
    for number in range(count):
        manager = MemoryManager.from_config(home)
        manager.initialize_all("session", platform="telegram", user_id=str(number))
        _add_note(manager, f"likes tea {number}")
        manager.shutdown_all()
    found = sorted((home / "memories").rglob("USER.md"))
    assert len(found) == count
    return found


def _add_note(manager: MemoryManager, text: str) -> None:
    manager.handle_tool_call("memory", {"action": "add", "target": "user", "content": text})


def test_many_notebooks_are_locked_in_turns_and_all_of_them(small, tmp_path, monkeypatch):
    found = _notebooks_of_users(small, 5)
    monkeypatch.setattr(notes, "_MOST_LOCKS", 2)
    monkeypatch.setattr(notes, "_LOCK_SECONDS", 0.05)
    held: list[str] = []
    most = 0

    @contextmanager
    def counted(path: Path, seconds: float) -> Iterator[None]:
        nonlocal most
        with file_lock(path, seconds):
            held.append(path.name)
            most = max(most, len(held))
            yield
            held.remove(path.name)

    monkeypatch.setattr(notes, "file_lock", counted)
    assert create_backup(small, tmp_path / "b.zip").problems == ()
    assert most == 2
    for number, each in enumerate(found):
        with (
            file_lock(each.with_name("USER.md.lock"), 1),
            pytest.raises(LockTimeoutError, match="locked by"),
        ):
            create_backup(small, tmp_path / f"{number}.zip")


@pytest.mark.parametrize("changes", [1, 100])
def test_many_notebooks_that_change_meanwhile_are_read_again(small, tmp_path, monkeypatch, changes):
    _notebooks_of_users(small, 5)
    monkeypatch.setattr(notes, "_MOST_LOCKS", 2)
    manager = MemoryManager.from_config(small)
    manager.initialize_all("session", platform="telegram", user_id="0")
    taken: list[notes.Snapshot] = []

    def snapshot(path: Path) -> notes.Snapshot:
        taken.append(Snapshot(path))
        if len(taken) <= changes:
            _add_note(manager, f"and {len(taken)}")
        return taken[-1]

    monkeypatch.setattr(notes, "Snapshot", snapshot)
    made = create_backup(small, tmp_path / "b.zip")
    manager.shutdown_all()
    assert len(taken) == (2 if changes == 1 else 6)
    assert [each.partition(":")[0] for each in made.problems] == ["notes"] * (changes > 1)
    restore(tmp_path / "b.zip", tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new" / "memories" / "history.db")) as database:
        known = {row[0] for row in database.execute("SELECT after FROM changes")}
    texts = [each.read_text() for each in (tmp_path / "new" / "memories").rglob("*.md")]
    assert len(texts) == 6
    assert known.issuperset(texts)


# -- what other commands have begun -----------------------------------------------------------


def test_the_cursor_of_a_switch_is_not_ahead_of_the_outbox(machine, tmp_path):
    cursor = machine.home / "switch.json"
    cursor.write_text("before")

    def step(name: str) -> None:
        if name == "outbox.db":  # a batch goes to the outbox, then the cursor moves
            cursor.write_text("behind a batch that the copy of the outbox does not have")

    create_backup(machine.home, tmp_path / "b.zip", step=step)
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert (tmp_path / "new" / "switch.json").read_text() == "before"


def test_the_turns_of_a_replay_are_not_ahead_of_the_outbox(machine, tmp_path):
    with closing(ReplayedTurns(machine.home, "beta@x", 1.0)) as handed:
        handed.finish(["first"])

    def step(name: str) -> None:
        if name == "outbox.db":
            with closing(ReplayedTurns(machine.home, "beta@x", 1.0)) as later:
                later.finish(["second"])

    create_backup(machine.home, tmp_path / "b.zip", step=step)
    restore(tmp_path / "b.zip", tmp_path / "new")
    with closing(ReplayedTurns(tmp_path / "new", "beta@x", 1.0)) as handed:
        assert handed.done(["first", "second"]) == {"first"}


def test_a_file_that_only_looks_like_the_log_of_a_database_is_copied(small, tmp_path):
    for name in ("trip", "trip-journal"):
        (small / name).write_text(name)
    create_backup(small, tmp_path / "b.zip")
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert (tmp_path / "new" / "trip-journal").read_text() == "trip-journal"


def test_an_upgrade_that_has_not_ended_stays_where_it_is(small, tmp_path):
    # Its paths are those of this environment and home: another home must not roll it back.
    (small / "upgrade.json").write_text("{}")
    (small / "upgrade-backup").mkdir()
    (small / "upgrade-backup" / "0").write_text("old")
    (small / "mine").mkdir()
    (small / "mine" / "upgrade.json").write_text("{}")
    made = create_backup(small, tmp_path / "b.zip")
    assert len([each for each in made.left_out if each.startswith("upgrade.json: ")]) == 1
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert not list((tmp_path / "new").glob("upgrade*"))
    assert (tmp_path / "new" / "mine" / "upgrade.json").exists()


# -- secrets ----------------------------------------------------------------------------------


def _with_secrets(home: Path) -> None:
    (home / ".env").write_text(f"ACME_API_KEY={KEY}\n")
    (home / "acme.json").write_text(json.dumps({"apiKey": KEY, "host": "localhost"}))
    (home / "plain.json").write_text(json.dumps({"host": "localhost"}))
    (home / "config.yaml").write_text(f"memory:\n  acme:\n    api_key: {KEY}\n")


def _contains(path: Path, text: str) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(text.encode() in archive.read(each) for each in archive.namelist())


def test_secrets_are_left_out_and_that_is_said(small, tmp_path):
    _with_secrets(small)
    made = create_backup(small, tmp_path / "b.zip")
    assert not _contains(tmp_path / "b.zip", KEY)
    assert [each.partition(":")[0] for each in made.left_out] == [
        ".env", "acme.json", "config.yaml",
    ]  # fmt: skip
    restore(tmp_path / "b.zip", tmp_path / "new")
    names = {each.name for each in (tmp_path / "new").iterdir()}
    assert {"config.yaml", "plain.json"} <= names
    assert not {".env", "acme.json"} & names
    assert "acme:" in (tmp_path / "new" / "config.yaml").read_text()


def test_secrets_are_encrypted_and_come_back_with_the_passphrase(small, tmp_path):
    _with_secrets(small)
    made = create_backup(small, tmp_path / "b.zip", passphrase=PASSPHRASE)
    assert made.secrets == 3
    assert not _contains(tmp_path / "b.zip", KEY)
    with pytest.raises(SecretsError, match="passphrase is wrong"):
        restore(tmp_path / "b.zip", tmp_path / "new", "something else")
    assert not (tmp_path / "new").exists()
    restore(tmp_path / "b.zip", tmp_path / "new", PASSPHRASE)
    for name in (".env", "acme.json", "config.yaml"):
        assert (tmp_path / "new" / name).read_text() == (small / name).read_text()
    assert stat.S_IMODE((tmp_path / "new" / ".env").stat().st_mode) & 0o600 == 0o600


def test_more_secrets_than_can_be_encrypted_are_left_out_and_that_is_said(
    small, tmp_path, monkeypatch
):
    _with_secrets(small)
    for number in range(3):
        (small / f"{number}.pem").write_bytes(os.urandom(3000))
    monkeypatch.setattr(backup, "_MOST_SECRETS", 10_000)
    made = create_backup(small, tmp_path / "b.zip", passphrase=PASSPHRASE)
    (left_out,) = made.left_out  # smaller ones still fit
    assert left_out.startswith("2.pem: has secrets; all of them may have about")
    assert made.secrets == 5
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.getinfo(SECRETS).file_size < 10_000
    restore(tmp_path / "b.zip", tmp_path / "new", PASSPHRASE)
    assert (tmp_path / "new" / "1.pem").read_bytes() == (small / "1.pem").read_bytes()


def test_secrets_that_are_not_restored_are_checked_and_not_read_into_memory(
    small, tmp_path, monkeypatch
):
    _with_secrets(small)
    create_backup(small, tmp_path / "b.zip", passphrase=PASSPHRASE)
    monkeypatch.setattr(restoring, "_LARGEST_SECRETS", 100)
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert (tmp_path / "new" / "plain.json").exists()
    with pytest.raises(BackupError, match="too large"):
        restore(tmp_path / "b.zip", tmp_path / "other", PASSPHRASE)


def test_a_backup_never_has_more_secrets_than_restore_reads():
    # Base64 and the names are counted; the rest of the JSON and the encryption need some bytes.
    assert backup._MOST_SECRETS + 5_000_000 <= restoring._LARGEST_SECRETS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", f"ACME_API_KEY={KEY}\n" + "# a long comment\n" * 100_000),
        ("acme.json.bak", json.dumps({"apiKey": KEY})),
        ("config.yaml~", f"memory: {{acme: {{api_key: {KEY}}}}}\n"),
    ],
)
def test_secrets_of_large_files_and_of_copies_are_left_out(small, tmp_path, name, text):
    (small / name).write_text(text)
    made = create_backup(small, tmp_path / "b.zip")
    assert not _contains(tmp_path / "b.zip", KEY)
    assert made.left_out == (f"{name}: has secrets",)


def test_the_passphrase_comes_from_the_environment_or_a_file(machine, tmp_path):
    _with_secrets(machine.home)
    (tmp_path / "secret").write_text(f"{PASSPHRASE}\n")
    by_file = ["--passphrase-file", str(tmp_path / "secret")]
    machine.run("backup", str(tmp_path / "b.zip"), "--with-secrets", *by_file)
    error = machine.run(
        "restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new")
    ).failed()
    assert "HERMES_BACKUP_PASSPHRASE" in error
    env = {"HERMES_BACKUP_PASSPHRASE": PASSPHRASE}
    done = machine.json(
        "restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"), env=env
    )
    assert done["secrets"] == 3
    other = str(tmp_path / "other")
    done = machine.json("restore", str(tmp_path / "b.zip"), "--into", other, "--without-secrets")
    assert done["secrets"] == 0


def test_a_short_or_missing_passphrase_is_refused(machine, tmp_path):
    arguments = ("backup", str(tmp_path / "b.zip"), "--with-secrets")
    assert "at least 8" in machine.run(*arguments, env={"HERMES_BACKUP_PASSPHRASE": "1"}).failed()
    assert "no terminal" in machine.run(*arguments).failed()
    unused = ("backup", str(tmp_path / "b.zip"), "--passphrase-file", str(machine.config_file))
    assert "--with-secrets" in machine.run(*unused).misused()
    assert not (tmp_path / "b.zip").exists()


# -- the provider -----------------------------------------------------------------------------

PLUGIN = """
from hermes_core import MemoryProvider

class Acme(MemoryProvider):
    name = "acme"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    def backup_paths(self): return {paths!r}

def register(ctx):
    ctx.register_memory_provider(Acme())
"""


def test_what_the_provider_has_elsewhere_is_included(machine, tmp_path):
    folder, single = tmp_path / "data", tmp_path / "single.txt"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x.txt").write_text("deep")
    single.write_text("single")
    with closing(sqlite3.connect(folder / "facts.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE facts AS SELECT 1 AS fact")
        database.commit()
        paths = [str(folder), str(single), str(tmp_path / "missing"), str(machine.home / "inside")]
        machine.add_directory("acme", PLUGIN.format(paths=paths))
        machine.write_config("memory: {provider: acme}\n")
        made = machine.json("backup", str(tmp_path / "b.zip"))
    assert made["outside"] == [str(folder), str(single)]
    assert [each for each in made["left_out"] if "missing" in each]
    done = machine.json("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"))
    first, second = (Path(each["path"]) for each in done["outside"])
    assert (first / "deep" / "x.txt").read_text() == "deep"
    assert (second / "single.txt").read_text() == "single"
    with closing(sqlite3.connect(first / "facts.db")) as database:
        assert database.execute("SELECT fact FROM facts").fetchall() == [(1,)]


def _with_outside(machine: Machine, folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"apiKey": KEY}))
    machine.add_directory("acme", PLUGIN.format(paths=[str(folder)]))
    machine.write_config("memory: {provider: acme}\n")


def test_secrets_of_the_provider_elsewhere_are_left_out_or_encrypted(machine, tmp_path):
    _with_outside(machine, tmp_path / "shared")
    made = machine.json("backup", str(tmp_path / "b.zip"))
    assert not _contains(tmp_path / "b.zip", KEY)
    assert f"{tmp_path / 'shared' / 'config.json'}: has secrets" in made["left_out"]
    # Nothing of it is there, so nobody is asked to move it.
    done = machine.json("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"))
    assert done["outside"] == []
    env = {"HERMES_BACKUP_PASSPHRASE": PASSPHRASE}
    machine.json("backup", str(tmp_path / "c.zip"), "--with-secrets", env=env)
    assert not _contains(tmp_path / "c.zip", KEY)
    other = str(tmp_path / "other")
    done = machine.json("restore", str(tmp_path / "c.zip"), "--into", other, env=env)
    assert (Path(done["outside"][0]["path"]) / "config.json").read_text() == json.dumps(
        {"apiKey": KEY}
    )


def test_a_restored_home_can_be_backed_up_and_restored_again(machine, tmp_path):
    _with_outside(machine, tmp_path / "shared")
    (tmp_path / "shared" / "facts.txt").write_text("old")
    machine.json("backup", str(tmp_path / "b.zip"))
    machine.json("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"))
    (tmp_path / "shared" / "facts.txt").write_text("new")
    machine.json("--home", str(tmp_path / "new"), "backup", str(tmp_path / "c.zip"))
    done = machine.json("restore", str(tmp_path / "c.zip"), "--into", str(tmp_path / "third"))
    assert (tmp_path / "third" / "outside" / "1" / "facts.txt").read_text() == "old"
    assert (Path(done["outside"][0]["path"]) / "facts.txt").read_text() == "new"


def test_a_provider_that_fails_is_a_problem_and_not_the_end(machine, tmp_path):
    machine.add_directory("acme", "raise RuntimeError('broken')")
    machine.write_config("memory: {provider: acme}\n")
    made = machine.json("backup", str(tmp_path / "b.zip"), code=1)
    assert "broken" in made["problems"][0]
    machine.run("restore", str(tmp_path / "b.zip"), "--into", str(tmp_path / "new"))
    assert (tmp_path / "new" / "state.db").exists()


def test_memory_in_postgresql_is_named_as_missing(small, tmp_path):
    machine = Machine(tmp_path / "other", in_process=True)
    machine.write_config("memory: {storage: 'postgresql://ada@db.example/memory'}\n")
    shown = machine.run("backup", str(tmp_path / "b.zip"))
    assert "postgresql://ada@db.example/memory and are not part of this file" in shown.err
    assert "pg_dump" in shown.err


# -- damage -----------------------------------------------------------------------------------


def test_a_damaged_database_is_copied_as_it_is_and_reported(small, tmp_path):
    for each in small.glob("state.db*"):
        each.unlink()
    with closing(sqlite3.connect(small / "state.db")) as database:
        database.execute("CREATE TABLE texts (text)")
        database.executemany("INSERT INTO texts VALUES (?)", [("x" * 500,)] * 100)
        database.commit()
    with (small / "state.db").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096))
    (small / "outbox.db").write_bytes(b"not a database")
    made = create_backup(small, tmp_path / "b.zip")
    assert [each.partition(":")[0] for each in made.problems] == ["state.db"]
    restore(tmp_path / "b.zip", tmp_path / "new")
    assert (tmp_path / "new" / "outbox.db").read_bytes() == b"not a database"


def test_a_file_that_may_not_be_read_is_a_problem(small, tmp_path):
    (small / "private.txt").write_text("x")
    (small / "private.txt").chmod(0)
    with bound_by_modes():
        made = create_backup(small, tmp_path / "b.zip")
    assert "private.txt: can't be read: Permission denied" in made.problems
    assert "home/private.txt" not in [each.path for each in made.files]


def test_a_database_that_may_not_be_read_is_one_problem(small, tmp_path):
    with closing(sqlite3.connect(small / "private.db")) as database:
        database.execute("CREATE TABLE texts (text)")
    (small / "private.db").chmod(0)
    with bound_by_modes():
        made = create_backup(small, tmp_path / "b.zip")
    assert [each for each in made.problems if "private.db" in each] == [
        "private.db: can't be read: Permission denied"
    ]


def test_nothing_is_overwritten(small, tmp_path):
    (tmp_path / "b.zip").write_text("mine")
    with pytest.raises(HermesError, match="exists already"):
        create_backup(small, tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_text() == "mine"
    create_backup(small, tmp_path / "c.zip")
    with pytest.raises(HermesError, match="is not empty"):
        restore(tmp_path / "c.zip", small)
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "c.zip", tmp_path / "empty")
    assert (tmp_path / "empty" / "memories").is_dir()
    with pytest.raises(HermesError, match="no home"):
        create_backup(tmp_path / "nothing", tmp_path / "d.zip")


def _rewritten(source: Path, target: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Another ZIP file, with a manifest whose own hash is right."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    digest = hashlib.sha256(members[MANIFEST]).hexdigest()
    members[CHECKSUM] = f"{digest}  {MANIFEST}\n".encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _in_manifest(members: dict[str, bytes], **changes: Any) -> None:
    members[MANIFEST] = json.dumps({**json.loads(members[MANIFEST]), **changes}).encode()


def _add_file(members: dict[str, bytes], name: str, size: int = 4) -> None:
    files = json.loads(members[MANIFEST])["files"]
    entry = {"path": name, "size": size, "sha256": hashlib.sha256(b"evil").hexdigest()}
    _in_manifest(members, files=[*files, {**entry, "mode": 0o644, "modified": 0.0}])
    members[name] = b"evil"


def _in_first_file(members: dict[str, bytes], **changes: Any) -> None:
    first, *others = json.loads(members[MANIFEST])["files"]
    _in_manifest(members, files=[{**first, **changes}, *others])


NOTES = "home/memories/MEMORY.md"
DAMAGE: dict[str, Callable[[dict[str, bytes]], object]] = {
    "content": lambda found: found.update({NOTES: b"likes green tex"}),
    "longer": lambda found: found.update({NOTES: b"likes green tea and more"}),
    "missing": lambda found: found.pop(NOTES),
    "more": lambda found: found.update({"home/more": b""}),
    "above": lambda found: _add_file(found, "home/../../evil"),
    "absolute": lambda found: _add_file(found, "/evil"),
    "elsewhere": lambda found: _add_file(found, "evil"),
    "folder above": lambda found: _in_manifest(found, folders=["home/../../evil"]),
    "size": lambda found: _add_file(found, "home/bomb", size=10**15),
    "not a manifest": lambda found: found.update({MANIFEST: b"[]"}),
    "no files": lambda found: _in_manifest(found, files=None),
    "other": lambda found: _in_manifest(found, format="something"),
    "newer": lambda found: _in_manifest(found, version=2),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_backup_that_was_changed_restores_nothing(small, tmp_path, damage):
    create_backup(small, tmp_path / "b.zip")
    _rewritten(tmp_path / "b.zip", tmp_path / "c.zip", DAMAGE[damage])
    with pytest.raises(BackupError) as error:
        restore(tmp_path / "c.zip", tmp_path / "below" / "new")
    assert error.value.hint == "upgrade hermes-plugins" or damage != "newer"
    assert list((tmp_path / "below").iterdir()) == []
    assert not (tmp_path / "evil").exists()


WRONG_TYPES = [
    *({"files": {key: value}} for key, value in [
        ("mode", "abc"), ("mode", None), ("mode", 1.5), ("modified", None), ("modified", "x"),
        ("path", 5), ("path", None), ("size", "10"), ("size", True), ("sha256", 5),
        ("kind", {"a": 1}), ("new", 1),
    ]),
    {"version": float("inf")}, {"version": "1"}, {"version": None}, {"home": 5}, {"storage": 5},
    {"created": []}, {"provider": {}}, {"secrets": "x"}, {"secrets": True}, {"secrets_sha256": 5},
    {"folders": 5}, {"folders": "home/a"}, {"folders": [5]}, {"folders": ["home/\ud800"]},
    {"problems": [None]}, {"left_out": {}}, {"outside": 5}, {"outside": [5]},
    {"outside": [{"original": 5, "path": "outside/1"}]},
    {"outside": [{"original": "/data", "path": "outside/../../etc"}]},
]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG_TYPES, ids=str)
def test_a_manifest_with_other_types_restores_nothing(small, tmp_path, changes):
    create_backup(small, tmp_path / "b.zip")

    def change(members: dict[str, bytes]) -> None:
        if isinstance(changes.get("files"), dict):
            _in_first_file(members, **changes["files"])
        else:
            _in_manifest(members, **changes)

    _rewritten(tmp_path / "b.zip", tmp_path / "bad.zip", change)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BackupError, match="is damaged"):
        restore(tmp_path / "bad.zip", tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before


def test_a_manifest_is_read_only_if_its_size_fits_to_the_file(tmp_path):
    text = b'{"format": "hermes-plugins backup", "version": 1, "x": [' + b"[]," * 6_000_000 + b"1]}"
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, text)
        archive.writestr(CHECKSUM, hashlib.sha256(text).hexdigest())
    with pytest.raises(BackupError, match=r"manifest\.json is too large"):
        restore(tmp_path / "b.zip", tmp_path / "new")


def test_what_is_not_a_regular_file_is_not_restored(machine, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    into = ("--into", str(tmp_path / "new"))
    error = machine.run_process("restore", str(tmp_path / "pipe"), *into, timeout=30).failed()
    assert "pipe: is not a regular file" in error
    assert not (tmp_path / "new").exists()


def test_a_backup_that_could_not_be_restored_is_not_made(small, tmp_path, monkeypatch):
    monkeypatch.setattr("hermes_core.backup.format._MANIFEST_BYTES", 0)
    for number in range(200):
        (small / f"an empty folder {'x' * 200} {number}").mkdir()
    with pytest.raises(HermesError, match="too many empty folders"):
        create_backup(small, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_a_link_or_a_name_twice_restores_nothing(small, tmp_path):
    create_backup(small, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for damage in ("link", "twice"):
        with zipfile.ZipFile(tmp_path / f"{damage}.zip", "w") as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(name)
                if name == NOTES and damage == "link":
                    info.external_attr = (stat.S_IFLNK | 0o777) << 16
                archive.writestr(info, content)
            if damage == "twice":
                with pytest.warns(UserWarning, match="Duplicate"):
                    archive.writestr(NOTES, members[NOTES])
        with pytest.raises(BackupError, match="damaged"):
            restore(tmp_path / f"{damage}.zip", tmp_path / "new")
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kept", [0, 2, 100, 0.3, 0.9, 0.999])
def test_a_file_that_is_cut_off_restores_nothing(small, tmp_path, kept):
    create_backup(small, tmp_path / "b.zip")
    content = (tmp_path / "b.zip").read_bytes()
    (tmp_path / "c.zip").write_bytes(content[: int(kept if kept > 1 else kept * len(content))])
    with pytest.raises(BackupError, match="cut off"):
        restore(tmp_path / "c.zip", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_no_flipped_bit_gets_through(small, tmp_path):
    create_backup(small, tmp_path / "b.zip")
    content = bytearray((tmp_path / "b.zip").read_bytes())
    good = _tree(small, tmp_path, bytes(content))
    for at in range(0, len(content), max(len(content) // 60, 1)):
        content[at] ^= 0x10
        try:
            assert _tree(small, tmp_path, bytes(content)) == good
        except HermesError:
            assert not (tmp_path / "new").exists()
        content[at] ^= 0x10


def _tree(home: Path, folder: Path, content: bytes) -> dict[str, bytes]:
    """What a backup restores."""
    (folder / "c.zip").write_bytes(content)
    restore(folder / "c.zip", folder / "new")
    new = folder / "new"
    found = {str(e.relative_to(new)): e.read_bytes() for e in new.rglob("*") if e.is_file()}
    shutil.rmtree(new)
    return found


# -- kill -9 ----------------------------------------------------------------------------------


def _killed_at(number: int, run: Callable[[Callable[[str], None]], object]) -> bool:
    """Run something that is killed after its nth step; whether it came that far."""
    child = os.fork()
    if child == 0:
        steps = iter(range(1, 10_000))

        def step(_name: str) -> None:
            if next(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            run(step)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("kind", ["backup", "restore"])
def test_what_killed_processes_left_is_removed_whatever_its_name(small, tmp_path, kind):
    folders = {name: _abandoned(tmp_path / name, kind) for name in ("day1.zip", "day[2].zip")}
    in_use = _abandoned(tmp_path / "in_use.zip", kind)
    starting = tmp_path / f".starting.hermes-{kind}-0123456789abcdef"
    starting.mkdir()
    (starting / "lock").touch()
    with file_lock(in_use / "lock", 0):
        create_backup(small, tmp_path / "day3.zip")
        restore(tmp_path / "day3.zip", tmp_path / "new")
    assert [each for each in folders.values() if each.exists()] == []
    assert in_use.exists()
    assert starting.exists()


def _abandoned(beside: Path, kind: str) -> Path:
    """The folder of a process that was killed."""

    def work() -> None:
        with work_folder(beside, kind) as folder:
            (folder / "copy.db").write_text("private")
            os._exit(0)

    in_child(work)
    (found,) = beside.parent.glob(f".{glob.escape(beside.name)}.*")
    return found


@pytest.mark.stress
def test_a_backup_that_is_killed_leaves_no_file_and_the_next_one_cleans_up(small, tmp_path):
    _with_secrets(small)
    file = tmp_path / "backups" / "b.zip"
    file.parent.mkdir()
    number = 1
    while _killed_at(
        number, lambda step: create_backup(small, file, passphrase=PASSPHRASE, step=step)
    ):
        assert not file.exists()
        assert len(beside(file)) == 1
        number += 1
    assert number > 5
    assert [each.name for each in file.parent.iterdir()] == ["b.zip"]
    restore(file, tmp_path / "new", PASSPHRASE)


@pytest.mark.stress
def test_a_restore_that_is_killed_leaves_no_home_or_a_complete_one(small, tmp_path):
    create_backup(small, tmp_path / "b.zip", passphrase=PASSPHRASE)
    home = tmp_path / "below" / "new"
    number = 1
    while _killed_at(number, lambda step: restore(tmp_path / "b.zip", home, PASSPHRASE, step=step)):
        if home.exists():
            assert (home / "memories" / "MEMORY.md").read_text() == KEPT
            shutil.rmtree(home)
        number += 1
    assert number == 6
    assert [each.name for each in home.parent.iterdir()] == ["new"]
