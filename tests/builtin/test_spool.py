"""Turns that the archive can't take wait in the spool, and reach it once and in order."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import stat
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.archives import Talk, assert_sound, pages_of, stored
from support.commands import Machine, posix_only, wait_until
from support.isolated import add_plugin
from support.scripts import run_script
from support.storages import Storage

from hermes_builtin.sessions.archive import NewMessage, SessionFacts
from hermes_builtin.sessions.conversations import open_archive
from hermes_builtin.sessions.spool import Spool, may_succeed_later
from hermes_builtin.sessions.sqlite import SqliteArchive
from hermes_core import DatabaseError

pytestmark = pytest.mark.usefixtures("both_storages")


def block(home: Path) -> bytes:
    """Put something else into the archive's place; returns what was there.

    In PostgreSQL, this process can't reach the server until `unblock`.
    """
    if Storage.current.url:
        Storage.current.interrupt()
        return b""
    path = home / "state.db"
    before = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    path.mkdir()
    return before


def unblock(home: Path, content: bytes = b"") -> None:
    """Make room for the archive, or put it back."""
    if Storage.current.url:
        Storage.current.restore()
        return
    path = home / "state.db"
    path.rmdir()
    if content:
        path.write_bytes(content)


def spool_files(home: Path) -> list[Path]:
    return sorted((home / "spool").glob("turns-*.jsonl"))


def spool_of(home: Path) -> Spool:
    """A spool as another process has it."""
    return Spool(home, lambda: open_archive(home))


def spool_turn(spool: Spool, text: str, session: str = "now") -> None:
    spool.add(SessionFacts(session, "cli"), [NewMessage("user", text, 1.0)], durable=False)


def questions(home: Path, session: str = "now") -> list[str]:
    """What the user said, as the archive has it."""
    return [each for each in stored(home / "state.db").get(session, []) if each != "Noted."]


def start_again(home: Path, text: str = "after", session: str = "now") -> None:
    """Another process has one more turn in the session."""
    run_script(
        f"""
        manager = MemoryManager.from_config({str(home)!r})
        manager.initialize_all({session!r}, platform="cli")
        manager.sync_all({text!r}, "Noted.")
        manager.shutdown_all()
        """
    )


def spooled_turns(home: Path, count: int = 3) -> list[str]:
    """Turns of an agent whose archive can't be written."""
    texts = [f"question {number}" for number in range(count)]
    content = block(home)
    talk = Talk(home)
    for text in texts:
        talk.say(text)
    talk.close()
    unblock(home, content)
    return texts


def test_turns_wait_and_reach_the_archive_in_order_with_the_next_start(home: Path) -> None:
    texts = spooled_turns(home)
    assert len(spool_files(home)) == 1
    start_again(home)
    assert questions(home) == [*texts, "after"]
    assert spool_files(home) == []
    assert_sound(home / "state.db")


@pytest.mark.files_only("the reason is that of a file")
def test_people_are_told(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    home = machine.home
    block(home)
    talk = Talk(home)
    with caplog.at_level(logging.WARNING):
        talk.say("one")
    talk.say("two")
    (warning,) = [each for each in talk.manager.warnings if "spool" in each]
    assert warning.startswith("2 turns wait in the spool since ")
    assert "state.db" in warning
    assert "a turn waits in the spool" in caplog.text
    assert talk.manager.health()["builtin"]["sync_turn"].failures == 2
    assert not [each for each in talk.manager.warnings if "not stored" in each]
    talk.close()
    for command in ("status", "doctor"):
        told = machine.run(command).out
        assert "2 turns wait in the spool since" in told
        assert "not stored" not in told


@posix_only
def test_the_file_is_private_and_has_one_line_of_json_for_each_turn(home: Path) -> None:
    spooled_turns(home)
    (path,) = spool_files(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert [line["messages"][0][1] for line in lines] == [f"question {each}" for each in range(3)]


def test_a_turn_that_can_be_stored_nowhere_is_reported_as_not_stored(home: Path) -> None:
    block(home)
    (home / "spool").write_text("in the way")
    talk = Talk(home)
    talk.say("lost")
    (warning,) = [each for each in talk.manager.warnings if "not stored" in each]
    assert "nor can it be written to the spool" in warning
    talk.close()


def test_a_running_agent_hands_over_in_the_background(home: Path) -> None:
    content = block(home)
    talk = Talk(home)
    talk.say("one")
    unblock(home, content)
    assert wait_until(lambda: not spool_files(home))
    talk.say("two")
    assert questions(home) == ["one", "two"]
    assert not [each for each in talk.manager.warnings if "spool" in each]
    talk.close()


def test_turns_go_behind_those_that_wait(home: Path) -> None:
    content = block(home)
    talk = Talk(home)
    talk.say("first")
    unblock(home, content)
    talk.say("second")  # the archive could take it, but not before the first
    talk.close()
    start_again(home, "third")
    assert questions(home) == ["first", "second", "third"]


#: A process whose archive takes nothing, while that of others does.
REFUSED = """
    from pathlib import Path
    from hermes_builtin.sessions.conversations import open_archive
    from hermes_core import DatabaseError
    def refuse(*given):
        raise DatabaseError("the server is away")
    kind = type(open_archive(Path({home!r})))
    kind.append = kind.take_over = refuse
    manager = MemoryManager.from_config({home!r})
    manager.initialize_all("now", platform="cli")
    manager.sync_all("second", "Noted.")
    manager.shutdown_all()
"""


def test_turns_go_behind_those_that_another_process_has_left_since(home: Path) -> None:
    talk = Talk(home)
    talk.say("first")
    run_script(REFUSED.format(home=str(home)))
    assert len(spool_files(home)) == 1
    talk.say("third")
    talk.close()
    start_again(home, "fourth")
    assert questions(home) == ["first", "second", "third", "fourth"]


def test_everything_of_a_message_survives_the_spool(home: Path) -> None:
    calls = [{"function": {"name": "f", "arguments": "{}"}, "odd": {1, 2}}]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "é \ud800 \u2028 \r\n tail"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "result", "name": "f"},
    ]
    rows = []
    for name in ("direct", "spooled"):
        folder = home / name
        folder.mkdir()
        if name == "spooled":
            block(folder)
        talk = Talk(folder)
        talk.say("é \ud800 \u2028 \r\n tail", "done", messages=messages)
        talk.close()
        if name == "spooled":
            unblock(folder)
            with closing(open_archive(folder)) as archive:
                assert spool_of(folder).hand_over(archive) is None
        with closing(open_archive(folder)) as archive:
            (session,) = archive.sessions()
            found = list(archive.messages(session))
            rows.append([(each.id, each.role, each.content, each.extra) for each in found])
            assert session.name == ""
    assert rows[0] == rows[1]


# -- searching and forgetting ------------------------------------------------------------------


def test_what_waits_is_found(home: Path) -> None:
    talk = Talk(home, "old")
    talk.say("The boiler is in the cellar.")
    talk.close()
    content = block(home)
    talk = Talk(home, "later")
    talk.say("The key is under the doormat.")
    talk.close()
    talk = Talk(home, "asks")
    answer = talk.ask(query="doormat")
    assert [each["session_id"] for each in answer["results"]] == ["later"]
    assert "Only turns that are not in the archive yet" in answer["message"]
    assert talk.ask(session_id="later")["messages"][0]["content"] == "The key is under the doormat."
    talk.close()
    unblock(home, content)


@pytest.mark.files_only("a server that can't be written can't be read either")
def test_an_archive_that_can_be_read_is_searched_with_what_waits(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(home, "old")
    talk.say("The key of the boiler is in the cellar.")
    talk.close()

    def refuse(*_: Any) -> None:
        raise DatabaseError("a read-only standby")

    monkeypatch.setattr(SqliteArchive, "append", refuse)
    talk = Talk(home, "later")
    talk.say("The key is under the doormat.")
    talk.close()
    monkeypatch.undo()
    talk = Talk(home, "asks")
    answer = talk.ask(query="key")
    assert {each["session_id"] for each in answer["results"]} == {"old", "later"}
    assert talk.ask(query="doormat")["count"] == 1
    nothing = talk.ask(query="zebra")
    assert nothing["count"] == 0
    assert "1 turn waits in the spool" in nothing["message"]
    talk.close()


def test_other_users_do_not_find_what_waits(home: Path) -> None:
    block(home)
    talk = Talk(home, "chat", platform="telegram", user_id="ann")
    talk.say("My secret place is the attic.")
    talk.close()
    for platform, user in (("telegram", "ben"), ("discord", "ann")):
        talk = Talk(home, "asks", platform=platform, user_id=user)
        assert "attic" not in json.dumps(talk.ask(query="attic").get("results", []))
        assert not talk.ask(session_id="chat")["success"]
        talk.close()


def test_a_text_is_forgotten_in_the_spool(machine: Machine) -> None:
    home = machine.home
    content = block(home)
    talk = Talk(home)
    talk.say("My café is called Zanzibar Blue.", "Noted: Zanzibar Blue.")
    talk.say("It is sunny.")
    talk.close()
    unblock(home, content)
    with (home / "spool" / "damaged.jsonl").open("w") as file:
        file.write("half of a line with Zanzibar Blue\n")
    done = machine.run("forget", "Zanzibar Blue", "--yes")
    assert done.code == 0, done
    assert not [each for each in home.rglob("*.jsonl") if b"Zanzibar" in each.read_bytes()]
    start_again(home)
    assert stored(home / "state.db")["now"][:3] == ["[forgotten]", "[forgotten]", "It is sunny."]


def test_a_session_is_forgotten_in_the_spool(machine: Machine) -> None:
    home = machine.home
    spooled_turns(home)
    start = spool_of(home)
    assert start.waiting().turns == 3
    done = machine.run("forget", "--session", "now", "--yes")
    assert done.code == 0, done
    assert start.waiting().turns == 0


# -- damage ----------------------------------------------------------------------------------


def test_a_torn_last_line_is_dropped_and_a_damaged_one_set_aside(machine: Machine) -> None:
    home = machine.home
    spooled_turns(home)
    (path,) = spool_files(home)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = lines[1].replace(b"question 1", b"question 7")
    path.write_bytes(lines[0] + damaged + lines[2] + lines[0][:40])
    start_again(home)
    assert questions(home) == ["question 0", "question 2", "after"]
    assert (home / "spool" / "damaged.jsonl").read_bytes() == damaged
    assert "1 line is damaged or refused, and set aside" in machine.run("status").out


@pytest.mark.files_only("about damage of the file")
def test_turns_for_a_damaged_archive_wait_for_its_repair(machine: Machine) -> None:
    home = machine.home
    talk = Talk(home)
    talk.say("before")
    talk.close()
    path = home / "state.db"
    page = pages_of(path)["archive_messages"][0]
    with path.open("r+b") as file:
        size = int.from_bytes(path.read_bytes()[16:18], "big")
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    talk = Talk(home)
    talk.say("meanwhile")
    talk.say("and again")
    assert [each for each in talk.manager.warnings if "2 turns wait" in each]
    talk.close()
    repaired = machine.run("sessions", "repair")
    assert repaired.code == 0, repaired
    assert questions(home)[-2:] == ["meanwhile", "and again"]
    assert spool_files(home) == []


@pytest.mark.files_only("nothing is stored")
def test_a_turn_that_would_be_refused_again_is_not_spooled() -> None:
    class TooLongError(Exception):
        sqlstate = "22001"

    refused = DatabaseError("refused")
    refused.__cause__ = TooLongError()
    assert not may_succeed_later(refused)
    assert may_succeed_later(DatabaseError("server is down"))
    assert may_succeed_later(OSError(5, "I/O"))
    assert not may_succeed_later(ValueError())


@pytest.mark.files_only("the error is that of any storage")
def test_a_turn_that_no_storage_takes_is_set_aside_and_the_next_one_is_stored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = machine.home
    append = SqliteArchive.append

    def refuse(self: SqliteArchive, *given: Any) -> list[int]:
        if "odd" in given[1][0].content:
            given[1][0].content.encode("latin-1")
        return append(self, *given)

    monkeypatch.setattr(SqliteArchive, "append", refuse)
    talk = Talk(home)
    talk.say("odd: 日本語")
    talk.say("even")
    (warning,) = [each for each in talk.manager.warnings if "not stored" in each]
    assert "damaged.jsonl" in warning
    talk.close()
    assert questions(home) == ["even"]
    assert spool_files(home) == []
    kept = json.loads((home / "spool" / "damaged.jsonl").read_text("ascii"))
    assert kept["messages"][0][1] == "odd: 日本語"
    assert "1 line is damaged or refused" in machine.run("status").out


@pytest.mark.files_only("the error is that of any storage")
def test_an_error_that_nobody_expects_sends_the_turn_to_the_spool(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        for name in ("append", "take_over"):
            patched.setattr(SqliteArchive, name, fail)
        talk = Talk(home)
        talk.say("one")
        with closing(open_archive(home)) as archive:
            assert "can't start new thread" in str(spool_of(home).hand_over(archive))
        talk.close()
        assert len(spool_files(home)) == 1
        assert not (home / "spool" / "damaged.jsonl").exists()
    start_again(home)
    assert questions(home) == ["one", "after"]


# -- exactly once, whatever happens ------------------------------------------------------------

#: Ends the process at the nth of the steps of a hand-over.
KILLED = """
    import os, signal
    from pathlib import Path
    from hermes_builtin.sessions import spool
    from hermes_builtin.sessions.conversations import open_archive
    left = {step}
    def step():
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def counted(call):
        def run(*args, **kwargs):
            step()
            result = call(*args, **kwargs)
            step()
            return result
        return run
    spool.replace_file = counted(spool.replace_file)
    spool.append_line = counted(spool.append_line)
    Path.unlink = counted(Path.unlink)
    home = Path({home!r})
    archive = open_archive(home)
    archive.take_over = counted(archive.take_over)
    print(spool.Spool(home, lambda: archive).hand_over(archive), flush=True)
"""
_STEPS = 10  # three turns, and the file


def _killed_hand_over(home: Path, step: int) -> None:
    texts = spooled_turns(home)
    done = run_script(KILLED.format(home=str(home), step=step))
    assert done.returncode in (0, -signal.SIGKILL)
    start_again(home)
    assert questions(home) == [*texts, "after"]
    assert spool_files(home) == []


@posix_only
@pytest.mark.parametrize("step", [1, 7])
def test_a_killed_hand_over_stores_each_turn_once(home: Path, step: int) -> None:
    _killed_hand_over(home, step)


@posix_only
@pytest.mark.stress
@pytest.mark.parametrize("step", range(_STEPS))
def test_a_hand_over_can_be_killed_at_each_step(home: Path, step: int) -> None:
    _killed_hand_over(home, step)


class _Failing(SqliteArchive):
    """Takes so many turns, then fails; or stores one and fails to say so."""

    def __init__(self, path: Path, works: int, *, stores: bool) -> None:
        super().__init__(path)
        self._works = works
        self._stores = stores

    def take_over(self, *args: Any) -> None:
        self._works -= 1
        if self._works >= 0 or self._stores:
            super().take_over(*args)
        if self._works < 0:
            raise DatabaseError("the server went away")


@pytest.mark.files_only("its failing archive is one of files; the kills run over both")
@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.sampled_from([0, 20_000])),
        min_size=1,
        max_size=8,
    ),
    attempts=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=4),
)
def test_what_was_appended_is_in_the_archive_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    turns: list[tuple[str, int, int]],
    attempts: list[tuple[int, bool]],
) -> None:
    home = tmp_path_factory.mktemp("home")
    expected: dict[str, list[str]] = {}
    processes = [spool_of(home) for _ in range(3)]
    for number, (session, process, length) in enumerate(turns):
        text = f"{session} {number}" + "." * length
        expected.setdefault(session, []).append(text)
        spool_turn(processes[process], text, session)
    for each in processes:
        each.close()
    for works, stores in attempts:
        with closing(_Failing(home / "state.db", works, stores=stores)) as archive:
            spool_of(home).hand_over(archive)
    with closing(open_archive(home)) as archive:
        assert spool_of(home).hand_over(archive) is None
    assert stored(home / "state.db") == expected


def test_a_turn_behind_those_of_a_backup_is_stored(home: Path) -> None:
    spool = spool_of(home)
    spool_turn(spool, "one")
    (path,) = spool_files(home)
    backup = path.read_bytes()
    spool_turn(spool, "two")
    with closing(open_archive(home)) as archive:
        assert spool.hand_over(archive) is None
        path.write_bytes(backup)
        spool_turn(spool, "three")
        assert spool.hand_over(archive) is None
    spool.close()
    assert questions(home) == ["one", "two", "three"]


def test_a_file_of_an_older_version_belongs_to_its_process(home: Path) -> None:
    spool = spool_of(home)
    spool_turn(spool, "one")
    (path,) = spool_files(home)
    older = path.with_name("turns-4711-0123456789ab.jsonl")
    path.rename(older)
    spool_turn(spool, "two")
    assert older.read_bytes().count(b"\n") == 1
    with closing(open_archive(home)) as archive:
        assert spool.hand_over(archive) is None
    spool.close()
    assert questions(home) == ["one", "two"]


# -- closed descriptors ------------------------------------------------------------------------

CLOSES = """
def prefetch(self, query, *, session_id=""):
    if query == "question 1":
        os.closerange(3, 4096)
        # Numbers of closed descriptors are used again, by files that nobody may write to.
        global VICTIMS
        VICTIMS = [os.open({victim!r}, os.O_RDWR) for _ in range(40)]
    return ""
"""
AGENT = """
    import os
    manager = MemoryManager.from_config({home!r})
    manager.initialize_all("now", platform="cli")
    for number in range(4):
        text = f"question {{number}}"
        manager.on_turn_start(number, text)
        manager.recall_block(text)
        manager.sync_all(text, "Noted.")
        if number == 0:  # the plugin closes its own files, too, while it writes to one
            manager.flush_pending(60)
    os.write(1, "\\n".join(manager.warnings).encode())
    manager.shutdown_all()
"""


@pytest.mark.files_only("about descriptors of the file")
@posix_only
@pytest.mark.skipif(sys.platform == "win32", reason="descriptors have no identity")
def test_a_plugin_that_closes_all_descriptors_loses_no_turn(home: Path) -> None:
    victim = home.parent / "victim"
    victim.write_bytes(b"untouched" * 1000)
    # A recall that comes too late would close them after its turn.
    patient = "  prefetch_budget: 60\n"
    add_plugin(home, CLOSES.format(victim=str(victim)), isolated=False, more=patient)
    done = run_script(AGENT.format(home=str(home)))
    # Two of three turns, if the archive opened its file again after the first of them.
    assert re.search("[23] turns wait in the spool", done.stdout)
    assert "closed its file descriptors" in done.stdout
    assert victim.read_bytes() == b"untouched" * 1000
    assert_sound(home / "state.db")
    start_again(home)
    assert questions(home) == [*(f"question {each}" for each in range(4)), "after"]
    assert_sound(home / "state.db")


# -- PostgreSQL --------------------------------------------------------------------------------


@pytest.mark.files_only("the server is one that does not run")
def test_turns_wait_while_the_server_is_down(home: Path) -> None:
    pytest.importorskip("psycopg")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    url = f"postgresql://hermes@127.0.0.1:{port}/hermes?connect_timeout=2"
    (home / "config.yaml").write_text(f"memory:\n  storage: {url}\n", "utf-8")
    talk = Talk(home)
    talk.say("first")
    talk.say("second")
    assert [each for each in talk.manager.warnings if "2 turns wait in the spool" in each]
    talk.close()
    (home / "config.yaml").unlink()  # the person goes back to files
    start_again(home)
    assert questions(home) == ["first", "second", "after"]
