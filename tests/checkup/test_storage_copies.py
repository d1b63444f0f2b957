"""A migration that was interrupted, and what was deleted, replaced or stored in between."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hermes_builtin.notes import Author, Notes, Operation
from hermes_builtin.notes.commands import memory
from hermes_builtin.notes.people import Person
from hermes_builtin.sessions.archive import EVERYBODY, Archive, NewMessage, Session, SessionFacts
from hermes_builtin.sessions.location import locate
from hermes_builtin.sessions.spool import Spool
from hermes_builtin.storage_parts import ConversationsPart, NotesPart, moved
from hermes_core import HermesError
from hermes_core.checkup import doctor, storage
from hermes_core.checkup.forget import left_at
from hermes_core.checkup.migration import JOURNAL, Phase, unfinished_migration
from hermes_core.config import load_config
from hermes_core.config.editor import change_config
from hermes_core.config.storage import home_database
from hermes_core.outbox import StreamKey
from hermes_core.outbox.admin import open_store
from hermes_core.outbox.part import OutboxPart
from hermes_core.storage.migration import Progress, no_progress
from hermes_core.storage.postgres import Database, shared_database

NAMES = tuple(f"s{number}" for number in range(4))


class StoppedError(Exception):
    """Stands for kill -9: nothing after it is done."""


@pytest.fixture(autouse=True)
def _few_distributions(few_distributions: None) -> None:
    """The built-in is found among few distributions."""


@pytest.fixture
def urls(postgres_server: Any) -> Iterator[tuple[str, str]]:
    """The addresses of two databases."""
    with postgres_server.database() as one, postgres_server.database() as two:
        yield (found := (postgres_server.url(one), postgres_server.url(two)))
        for url in found:
            for is_default in (False, True):
                shared_database(url, "default", is_default=is_default).close()


def home_in(folder: Path, url: str = "") -> Path:
    """A home that stores to a database, or to files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(f"memory:\n  storage: {url}\n" if url else "memory: {}\n")
    return folder


def opened(home: Path) -> Any:
    return closing(locate(home).open())


def fill(home: Path) -> None:
    with opened(home) as archive:
        for number, name in enumerate(NAMES):
            said = [NewMessage("user", f"walnut {number} {at}", 1e9 + at) for at in range(3)]
            archive.append(SessionFacts(name, source="cli", started=1e9 + number), said)


def session_of(archive: Archive, name: str) -> Session:
    found = archive.session(name, EVERYBODY)
    assert found is not None
    return found


def talks(home: Path) -> dict[str, Any]:
    with opened(home) as archive:
        return {
            each.id: [each[1:], [message[1:] for message in archive.messages(each)]]
            for each in archive.sessions(EVERYBODY)
        }


def add_note(home: Path, text: str) -> None:
    with closing(Notes.open(home, load_config(home).memory)) as notes:
        notes.notebooks["memory"].change([Operation("add", text)], Author("agent"))


def noted(home: Path) -> list[str]:
    with closing(Notes.open(home, load_config(home).memory)) as notes:
        return list(notes.notebooks["memory"].read().entries)


def set_storage(home: Path, url: str) -> None:
    change_config(home, {("memory", "storage"): url})


def migrate(home: Path, to: str, **options: Any) -> None:
    storage.migrate(load_config(home), to, **options)


def interrupted(home: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate; end it like kill -9 when the conversations were copied for the first time."""

    def copy(self: ConversationsPart, source: ConversationsPart, progress: Progress) -> None:
        copied(self, source, progress)
        raise StoppedError

    copied = ConversationsPart.copy_from
    with monkeypatch.context() as patch:
        patch.setattr(ConversationsPart, "copy_from", copy)
        with pytest.raises(StoppedError):
            migrate(home, to)


def delete(archive: Archive) -> None:
    archive.delete([session_of(archive, "s2")])


def delete_some(archive: Archive) -> None:
    session = session_of(archive, "s1")
    archive.remove(session, [next(iter(archive.messages(session))).id])


def replace(archive: Archive) -> None:
    archive.replace_texts(lambda text: "walnut 1 2" in text)


def begin_again(archive: Archive) -> None:
    archive.delete([session_of(archive, "s0")])
    archive.append(SessionFacts("s0", source="cli"), [NewMessage("user", "another talk", 2e9)])


def begin_as_somebody_else(archive: Archive) -> None:
    archive.delete([session_of(archive, "s0")])
    facts = SessionFacts("s0", source="telegram", user_id="bob", platform="telegram")
    archive.append(facts, [NewMessage("user", "another talk", 2e9)])


CHANGES = [delete, delete_some, replace, begin_again, begin_as_somebody_else]


@pytest.mark.parametrize(
    "direction",
    [
        "to the database",
        pytest.param("to files", marks=pytest.mark.stress),
        pytest.param("between databases", marks=pytest.mark.stress),
    ],
)
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_deleted_or_replaced_meanwhile_is_not_in_the_copy(
    tmp_path: Path,
    urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    change: Any,
    direction: str,
) -> None:
    source, target = {
        "to the database": ("", urls[0]),
        "to files": (urls[0], "files"),
        "between databases": urls,
    }[direction]
    fill(home := home_in(tmp_path / "home", source))
    interrupted(home, target, monkeypatch)
    with opened(home) as archive:
        change(archive)
    wanted = talks(home)

    migrate(home, target)

    assert talks(home) == wanted
    assert load_config(home).storage == target.removeprefix("files")
    with opened(home) as archive:
        assert archive.check() == []


def test_a_cancelled_migration_can_begin_again_with_the_same_target(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    interrupted(home, urls[0], monkeypatch)
    storage.cancel(load_config(home))
    with opened(home) as archive:
        delete(archive)
    wanted = talks(home)

    migrate(home, urls[0])

    assert talks(home) == wanted
    with closing(ConversationsPart(home, home_database(home))) as part:
        assert part._rows.copied() == {}


def test_what_is_deleted_while_it_is_copied_is_not_in_the_copy(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    fill(home := home_in(tmp_path / "home"))
    changed = False

    def report(what: str) -> Progress:
        nonlocal changed
        if what == "Copying the conversations" and not changed:
            changed = True
            return delete_at_the_end
        return no_progress

    def delete_at_the_end(done: int, total: int) -> None:
        if done == total:
            with opened(home) as archive:
                delete(archive)

    migrate(home, urls[0], report=report)

    assert sorted(talks(home)) == ["s0", "s1", "s3"]


@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("to", ["the database", "files"])
def test_nobody_can_store_to_an_incomplete_copy(
    tmp_path: Path,
    urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    to: str,
    is_cancelled: bool,
) -> None:
    source, target = ("", urls[0]) if to == "the database" else (urls[0], "files")
    fill(home := home_in(tmp_path / "home", source))
    add_note(home, "a note of the source")
    wanted = talks(home)
    interrupted(home, target, monkeypatch)
    if is_cancelled:
        storage.cancel(load_config(home))
    other = home_in(tmp_path / "other", target) if target != "files" else home
    set_storage(other, target)

    said = [NewMessage("user", "peanut", 3e9)]
    with opened(other) as archive, pytest.raises(HermesError, match="is an incomplete copy"):
        archive.append(SessionFacts("theirs", source="cli"), said)
    with pytest.raises(HermesError, match="is an incomplete copy"):
        add_note(other, "a note of somebody else")
    with (
        closing(Notes.open(other, load_config(other).memory)) as notes,
        pytest.raises(HermesError, match="is an incomplete copy"),
    ):
        notes.pending.stage("user", [Operation("add", "lost?")], Author("tool"))
    with (
        closing(open_store(load_config(other), set_aside=False)) as store,
        pytest.raises(HermesError, match="is an incomplete copy"),
    ):
        store.put(StreamKey("p", "", "s", "{}"), 0, ("event", "sync_turn", "{}"), claim=False)

    set_storage(home, source or "files")
    migrate(home, target)
    assert talks(home) == wanted
    assert noted(home) == ["a note of the source"]
    add_note(home, "and one more")


def test_notes_are_not_exported_to_an_incomplete_copy(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home", urls[0]))
    add_note(home, "a note of the source")
    interrupted(home, "files", monkeypatch)

    done = CliRunner().invoke(memory, ["export"], obj=str(home))

    assert isinstance(done.exception, HermesError)
    assert "incomplete copy" in done.exception.what
    assert not (home / "memories" / "MEMORY.md").exists()


def test_an_agent_that_uses_an_incomplete_copy_is_warned(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    interrupted(home, urls[0], monkeypatch)
    other = load_config(home_in(tmp_path / "other", urls[0]))

    report = storage.storage_status(other)

    assert not report.ok
    assert "incomplete copy" in report.problem
    assert "finish that migration" in report.hint
    assert any("incomplete copy" in str(each) for each in storage.check_storage(other))
    found = moved(other.home)
    assert found is not None
    assert "finish that migration" in found.hint
    with pytest.raises(HermesError, match="incomplete copy"):
        storage.cancel(other)


def test_two_homes_can_not_be_copied_to_one_namespace_at_once(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    add_note(other := home_in(tmp_path / "other"), "a note of the other")
    interrupted(home, urls[0], monkeypatch)

    with pytest.raises(HermesError, match="incomplete copy of another memory"):
        migrate(other, urls[0])
    # It was not seen at first.
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_refuse_target", lambda *_: None)
        with pytest.raises(HermesError, match="incomplete copy of another memory"):
            migrate(other, urls[0])
    assert unfinished_migration(other) is None
    assert load_config(other).storage == ""

    migrate(home, urls[0])
    with pytest.raises(HermesError, match="already has content"):
        migrate(other, urls[0])
    assert sorted(talks(home)) == list(NAMES)
    assert noted(other) == ["a note of the other"]


def test_what_was_stored_just_before_the_copy_begins_is_not_replaced(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    other = home_in(tmp_path / "other", urls[0])

    def nothing(*_: Any) -> None:
        add_note(other, "a note of the other")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_refuse_target", nothing)
        with pytest.raises(HermesError, match="already has content"):
            migrate(home, urls[0])

    assert unfinished_migration(home) is None
    add_note(other, "another one")
    assert noted(other) == ["a note of the other", "another one"]


def begun(home: Path, to: str, monkeypatch: pytest.MonkeyPatch, other: Path) -> None:
    """Migrate; end it like kill -9 when the target was taken, which somebody else uses."""

    def nothing(*_: Any) -> None:
        add_note(other, "a note of the other")

    def begin(self: storage.Storage, migration: str) -> None:
        took(self, migration)
        raise StoppedError

    took = storage.Storage.begin_copy
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_refuse_target", nothing)
        patch.setattr(storage, "_release", lambda *_: None)
        patch.setattr(storage, "remove_migration", lambda *_: None)
        patch.setattr(storage.Storage, "begin_copy", begin)
        with pytest.raises(StoppedError):
            migrate(home, to)


@pytest.mark.parametrize("what", ["migrate again", "cancel"])
def test_a_target_to_which_nothing_was_copied_is_released(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fill(home := home_in(tmp_path / "home"))
    other = home_in(tmp_path / "other", urls[0])
    begun(home, urls[0], monkeypatch, other)
    with pytest.raises(HermesError, match="incomplete copy"):
        add_note(other, "refused")

    if what == "cancel":
        storage.cancel(load_config(home))
    else:
        with pytest.raises(HermesError, match="already has content"):
            migrate(home, urls[0])

    add_note(other, "another one")
    assert noted(other) == ["a note of the other", "another one"]


def test_ctrl_c_while_the_target_is_taken_releases_it(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.Storage, "begin_copy", begin_and(interrupt))
        with pytest.raises(KeyboardInterrupt):
            migrate(home, urls[0])

    add_note(other := home_in(tmp_path / "other", urls[0]), "a note of the other")
    assert noted(other) == ["a note of the other"]


def begin_and(then: Any) -> Any:
    took = storage.Storage.begin_copy

    def begin(self: storage.Storage, migration: str) -> None:
        took(self, migration)
        then()

    return begin


def test_a_namespace_whose_conversations_were_deleted_is_not_taken(
    tmp_path: Path, urls: tuple[str, str]
) -> None:
    fill(home := home_in(tmp_path / "home"))
    fill(other := home_in(tmp_path / "other", urls[0]))
    with opened(other) as archive:
        archive.delete([session_of(archive, each) for each in NAMES])

    with pytest.raises(HermesError, match="4 deletions"):
        migrate(home, urls[0])

    add_note(other, "a note of the other")


def test_a_person_who_was_dropped_meanwhile_is_not_in_the_copy(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    (home / "config.yaml").write_text("memory:\n  user_notes: per-user\n")
    bob = Person("telegram", "bob")
    with closing(Notes.open(home, load_config(home).memory, bob)) as notes:
        notes.notebooks["user"].change([Operation("add", "bob likes tea")], Author("agent"))
    killed(home, urls[0], monkeypatch, OutboxPart)
    storage.cancel(load_config(home))
    with closing(NotesPart(home, None)) as part:
        part._storage.people.drop(bob.folder)
        with part._rows.transaction() as database:
            database.execute("DELETE FROM changes")

    migrate(home, urls[0])

    with closing(NotesPart(home, home_database(home))) as part:
        assert part._storage.people.all() == []
        assert "bob likes tea" not in str(part._texts())


def test_forget_names_the_copy_that_a_cancelled_migration_leaves(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    interrupted(home, urls[0], monkeypatch)
    storage.cancel(load_config(home))

    (left,) = left_at(home)
    assert left.endswith("(default)")
    migrate(home, urls[0])
    assert left_at(home) == []


def test_a_copy_that_is_in_use_is_not_overwritten(tmp_path: Path, urls: tuple[str, str]) -> None:
    def stop(what: str) -> Progress:
        if what == "Handing over what waits":
            raise StoppedError
        return no_progress

    fill(home := home_in(tmp_path / "home"))
    add_note(other := home_in(tmp_path / "other"), "a note of the other")
    with pytest.raises(StoppedError):
        migrate(home, urls[0], report=stop)
    assert load_config(home).storage == urls[0]
    add_note(home, "stored before it was finished")

    with pytest.raises(HermesError, match="already has content"):
        migrate(other, urls[0])
    migrate(home, urls[0])

    assert noted(home) == ["stored before it was finished"]
    assert noted(other) == ["a note of the other"]


def test_a_copy_that_was_deleted_meanwhile_takes_no_more_of_it(
    tmp_path: Path, urls: tuple[str, str], postgres_server: Any
) -> None:
    fill(home := home_in(tmp_path / "home"))
    other = home_in(tmp_path / "other", urls[0])

    def report(what: str) -> Progress:
        if what == "Copying the notes":
            with closing(postgres_server.admin(urls[0].rpartition("/")[2])) as admin:
                admin.execute("DELETE FROM hermes.frozen")
            database = Database(urls[0], "default")  # the shared one is that of the copy
            notebook = Notes(other, database=database).notebooks["memory"]
            notebook.change([Operation("add", "a note of the other")], Author("agent"))
            database.close()
        return no_progress

    with pytest.raises(HermesError, match="was deleted, or completed by another process"):
        migrate(home, urls[0], report=report)

    assert noted(other) == ["a note of the other"]
    with pytest.raises(HermesError, match="already has content"):
        migrate(home, urls[0])


@pytest.mark.parametrize("is_by_files", [False, True])
def test_a_turn_whose_answer_was_lost_is_not_doubled_by_a_migration(
    tmp_path: Path, urls: tuple[str, str], is_by_files: bool
) -> None:
    home = home_in(tmp_path / "home", urls[0])
    key, facts, said = uuid.uuid4(), SessionFacts("s"), [NewMessage("user", "only once", 5.0)]
    fill(home)
    with opened(home) as archive:
        (stored,) = archive.append(facts, said, key)
    waiting = Spool(tmp_path / "another machine", lambda: locate(home).open())
    waiting.add(facts, said, durable=False, key=key)
    waiting._worker.stop(1)
    assert stored

    if is_by_files:
        migrate(home, "files")
        with opened(home) as archive:
            archive.take_over("spool:elsewhere", 1, facts, said, key)
    migrate(home, urls[1])

    with opened(home) as archive:
        assert waiting.hand_over(archive) is None
        assert waiting.waiting().turns == 0
        session = session_of(archive, "s")
        assert [each.content for each in archive.messages(session)] == ["only once"]
        (number,) = archive.append(facts, said, key)
        assert [each.id for each in archive.messages(session)] == [number]


# -- interrupted, and then continued with another setting ----------------------------------------


def killed(home: Path, to: str, monkeypatch: pytest.MonkeyPatch, part: type[Any]) -> None:
    """Migrate; end it like kill -9 before this part of the frozen source is copied."""

    def nothing(*_: Any) -> None:
        raise OSError

    def stop(self: Any, source: Any, progress: Progress) -> None:
        if (migration := unfinished_migration(home)) and migration.phase is Phase.FROZEN:
            raise StoppedError
        copied(self, source, progress)

    copied = part.copy_from
    with monkeypatch.context() as patch:
        patch.setattr(part, "copy_from", stop)
        patch.setattr(storage, "_thaw", nothing)
        with pytest.raises(StoppedError):
            migrate(home, to)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_copy_that_is_named_by_hand_is_completed_before_it_is_used(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, is_frozen: bool
) -> None:
    fill(home := home_in(tmp_path / "home"))
    add_note(home, "a note of the source")
    wanted = talks(home)
    if is_frozen:
        killed(home, urls[0], monkeypatch, NotesPart)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(ConversationsPart, "_copy", delete)  # raises: it has other arguments
            with pytest.raises(TypeError):
                migrate(home, urls[0])
    set_storage(home, urls[0])

    migrate(home, urls[0])

    assert talks(home) == wanted
    assert noted(home) == ["a note of the source"]
    set_storage(home, "files")
    assert "has moved" in ConversationsPart(home, None).frozen()


def test_an_interrupted_migration_is_continued_from_its_source_alone(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    interrupted(home, urls[0], monkeypatch)
    set_storage(home, urls[1])

    with pytest.raises(HermesError, match="is from files, and the home stores to post") as told:
        migrate(home, urls[0])

    assert "set memory.storage back to files" in told.value.hint


def test_a_frozen_source_is_not_said_to_have_moved_before_it_has(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    killed(home, urls[0], monkeypatch, NotesPart)

    for found in (moved(home), *storage._builtin(load_config(home)).problems(home)):
        assert found is not None
        assert "run `hermes-plugins storage migrate` again" in found.hint
        assert "set memory.storage" not in found.hint


def test_a_dry_run_of_what_was_copied_changes_nothing(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))

    def stop(*_: Any, **__: Any) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(storage, "change_config", stop)
        with pytest.raises(StoppedError):
            migrate(home, urls[0])

    migrate(home, urls[0], dry_run=True)
    assert load_config(home).storage == ""
    migrate(home, urls[0])
    assert load_config(home).storage == urls[0]
    assert sorted(talks(home)) == list(NAMES)


def test_doctor_reports_an_interrupted_migration(
    tmp_path: Path, urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home := home_in(tmp_path / "home"))
    config = load_config(home)
    assert not [each for each in doctor.examine_files(config) if each.check == "migration"]
    interrupted(home, urls[0], monkeypatch)

    (found,) = (each for each in doctor.examine_files(config) if each.check == "migration")
    assert (found.state, "was interrupted" in found.detail) == (doctor.PROBLEM, True)
    assert "storage migrate" in found.todo

    (home / JOURNAL).write_text("{")
    (found,) = (each for each in doctor.examine_files(config) if each.check == "migration")
    assert (found.state, "can't be read" in found.detail) == (doctor.PROBLEM, True)
