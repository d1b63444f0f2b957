"""Files that can't be imported: a reason in one line, and nothing half taken over."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from support.archives import open_archive
from support.commands import Machine
from support.talks import past

pytestmark = pytest.mark.usefixtures("both_storages")

GOOD = '{"role": "user", "content": "hello"}\n'


def zipped(name: str = "conversations.json") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, json.dumps([{"uuid": "u", "chat_messages": []}] * 50))
    return buffer.getvalue()


def flipped(data: bytes, at: int, mask: int) -> bytes:
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def encrypted() -> bytes:
    data = flipped(zipped(), 6, 1)
    return flipped(data, data.index(b"PK\x01\x02") + 8, 1)


BROKEN = {
    "a number": "5",
    "a word": '"messages"',
    "an object": "{}",
    "null": "null",
    "prose": "This is a letter.\nIt has two lines.\n",
    "zeros": b"\0" * 100,
    "Latin-1": "élan".encode("latin-1"),
    "UTF-16": GOOD.encode("utf-16"),
    "nested": "[" * 100_000,
    "messages of no kind": '{"messages": 5}\n',
    "messages that are words": '{"messages": ["a"]}\n',
    "a tree of no kind": '[{"mapping": []}]',
    "a tree of words": '[{"mapping": {"a": "b"}, "current_node": "a"}]',
    "a tree with a broken time": '[{"mapping": {}, "create_time": "yesterday"}]',
    "chat messages of no kind": '[{"chat_messages": 5}]',
    "chat messages that are words": '[{"chat_messages": ["a"]}]',
    "mixed": '[{"mapping": {}}, {"chat_messages": []}]',
    "half a database": b"SQLite format 3\0" + b"\0" * 50,
    "an empty zip": zipped("other.json"),
    "half a zip": zipped()[:60],
    "a zip of changed data": flipped(zipped(), 60, 0xFF),
}
CRASHING = {
    "a zip of damaged data": flipped(zipped(), 48, 0x06),
    "an encrypted zip": encrypted(),
}


@pytest.mark.parametrize(
    "content",
    [*BROKEN.values(), *(each for each in CRASHING.values())],
    ids=[*BROKEN, *CRASHING],
)
def test_what_can_not_be_imported_is_refused_in_one_line_and_whole(
    content: str | bytes, machine: Machine
) -> None:
    past(machine.home, "mine", [("ours", "ok")])
    path = machine.user / "broken"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    error = machine.run("sessions", "import", str(path)).failed()
    assert str(path) in error
    assert len(error) < 1000
    with closing(open_archive(machine.home)) as archive:
        assert archive.stats()[:2] == (1, 2)


@pytest.mark.parametrize(
    "fact",
    ['"timestamp": NaN', '"timestamp": 1e999', f'"timestamp": 1{"0" * 400}', '"tool_calls": 5'],
    ids=["not a number", "endless", "400 digits", "calls"],
)
def test_odd_facts_of_a_message_are_refused_or_kept_as_something_that_can_be_shown(
    fact: str, machine: Machine
) -> None:
    path = machine.user / "chat.jsonl"
    path.write_text(f'{{"role": "user", "content": "x", "session_id": "a", {fact}}}\n')
    result = machine.run("sessions", "import", str(path))
    if result.code:
        assert str(path) in result.failed()
        return
    shown = machine.run("sessions", "show", "a", "--json").done().out
    assert "NaN" not in shown
    assert "Infinity" not in shown


def test_half_a_surrogate_pair_in_a_name_is_no_unexpected_error(machine: Machine) -> None:
    path = machine.user / "chat.jsonl"
    path.write_text('{"role": "user", "content": "\\ud800 x", "session_id": "\\ud800"}\n')
    result = machine.run("sessions", "import", str(path))
    assert "unexpected" not in result.err


def test_half_a_surrogate_pair_in_a_message_is_kept_as_a_sign(machine: Machine) -> None:
    path = machine.user / "chat.jsonl"
    path.write_text('{"role": "user", "content": "\\ud800 x", "session_id": "a"}\n')
    assert machine.json("sessions", "import", str(path))["messages"] == 1
    (message,) = machine.json("sessions", "show", "a")["messages"]
    assert message["content"] == "\ufffd x"


def test_an_empty_file_is_refused(machine: Machine) -> None:
    path = machine.user / "empty"
    path.touch()
    assert "is empty" in machine.run("sessions", "import", str(path)).failed()


def test_a_folder_without_sessions_and_a_missing_file_are_refused(machine: Machine) -> None:
    refused = machine.run("sessions", "import", str(machine.user)).failed()
    assert "has no sessions of Claude Code or Codex" in refused
    assert "no such file" in machine.run("sessions", "import", "missing").failed()


def test_a_file_that_cannot_be_read_does_not_stop_those_after_it(machine: Machine) -> None:
    folder = machine.user / "projects"
    (folder / "a-folder.jsonl").mkdir(parents=True)
    (folder / "gone.jsonl").symlink_to(machine.user / "nothing")
    said = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "hello"}}
    (folder / "whole.jsonl").write_text(json.dumps(said))
    result = machine.run("sessions", "import", str(folder))
    assert result.code == 1
    assert "Imported 1 conversation with 1 message from claude-code" in result.out
    assert "gone.jsonl: can't be read: No such file" in result.err
    assert "everything else was imported" in result.err
    again = machine.json("sessions", "import", str(folder), code=1)
    assert (again["messages"], again["known"], again["skipped"]) == (0, 1, 1)


@pytest.mark.files_only
def test_the_archive_itself_is_refused(machine: Machine) -> None:
    past(machine.home, "mine", [("ours", "ok")])
    error = machine.run("sessions", "import", str(machine.home / "state.db")).failed()
    assert "the archive itself" in error


@pytest.mark.parametrize("kind", ["ours", "another program's"])
def test_a_database_that_is_not_hermes_agents_is_refused_by_name(
    kind: str, machine: Machine, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    if kind == "ours":
        past(other, "theirs", [("hello", "ok")])
    else:
        with closing(sqlite3.connect(other / "state.db")) as database:
            database.execute("CREATE TABLE bookmarks (url TEXT)")
    assert "state.db" in machine.run("sessions", "import", str(other / "state.db")).failed()


def test_an_import_without_a_file_says_what_is_missing(machine: Machine) -> None:
    assert "FILE is missing" in machine.run("sessions", "import").misused()
    assert not (machine.home / "state.db").exists()


# -- files of which a part is broken --------------------------------------------------------------


def talk(number: int) -> dict[str, object]:
    said = [
        {"sender": "human", "text": f"question {number}"},
        {"sender": "assistant", "text": f"answer {number}"},
    ]
    return {"uuid": f"u-{number}", "name": f"Talk {number}", "chat_messages": said}


PARTLY = {
    "a line that is cut off": (GOOD + '{"role": "user", "cont', "line 2 is cut off"),
    "a line that is no message": (GOOD + '{"text": "hello"}\n', "line 2 is not of the form"),
    "a broken line in the middle": ('{"role": "us\n' + GOOD, "line 1 is not JSON"),
    "an export that is cut off": (
        json.dumps([{"uuid": "u", "chat_messages": [{"sender": "human", "text": "hello"}]}])[:-1]
        + ', {"uuid": "v", "chat_mess',
        "entry 2 (byte ",
    ),
    "an export with an odd conversation": (
        json.dumps([
            {"uuid": "v", "chat_messages": 5},
            {"uuid": "u", "chat_messages": [{"sender": "human", "text": "hello"}]},
        ]),
        "entry 1 (byte 1) is not of the form",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "problem"), PARTLY.values(), ids=PARTLY)
def test_what_is_whole_in_a_broken_file_is_imported_and_one_line_says_where_it_broke(
    content: str, problem: str, machine: Machine
) -> None:
    path = machine.user / "broken"
    path.write_text(content)
    for _ in range(2):  # and it may be repeated
        error = machine.run("sessions", "import", str(path)).failed()
        assert f"{path}: {problem}" in error
        assert "everything else was imported" in error
        with closing(open_archive(machine.home)) as archive:
            assert archive.stats()[:2] == (1, 1)
    said = machine.run("sessions", "import", str(path), "--json")
    assert said.code == 1
    assert problem in json.loads(said.out)["problem"]


def test_an_export_that_was_cut_off_is_completed_by_the_whole_one(machine: Machine) -> None:
    whole = json.dumps([talk(each) for each in range(20)])
    path = machine.user / "conversations.json"
    path.write_text(whole[: len(whole) // 2])
    machine.run("sessions", "import", str(path)).failed()
    path.write_text(whole)
    done = machine.json("sessions", "import", str(path))
    assert 0 < done["known"] < 20
    assert done["sessions"] + done["known"] == 20
    with closing(open_archive(machine.home)) as archive:
        assert archive.stats()[:2] == (20, 40)


def test_a_zip_that_breaks_off_brings_what_came_before(machine: Machine) -> None:
    # Stored, not deflated: only the checksum at its end says that something is wrong.
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("conversations.json", json.dumps([talk(1), talk(2)]))
    path = machine.user / "export.zip"
    data = buffer.getvalue()
    path.write_bytes(data.replace(b"question 2", b"question 9", 1))
    assert "can't be read" in machine.run("sessions", "import", str(path)).failed()
