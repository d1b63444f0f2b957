"""Conversations of others are taken over: each once, all of them, or none with a reason."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import open_archive
from support.commands import Machine
from support.talks import Talk, past

from hermes_builtin.sessions import importers, json_stream, session_merge

pytestmark = pytest.mark.usefixtures("both_storages")


def write(machine: Machine, content: Any, name: str = "conversations.json") -> Path:
    """A file with this text, these bytes, or this as JSON."""
    path = machine.user / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, "utf-8", newline="")
    return path


def taken(machine: Machine, path: Path, *options: str) -> dict[str, Any]:
    return machine.json("sessions", "import", str(path), *options)


def contents(machine: Machine) -> dict[str, list[tuple[str, str]]]:
    """Role and text of every message, by session."""
    with closing(open_archive(machine.home)) as archive:
        return {
            session.id: [(each.role, each.content) for each in archive.messages(session)]
            for session in archive.sessions()
        }


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


HELLO = [message("user", "hello walrus"), message("assistant", "hello you")]
SAID = [("user", "hello walrus"), ("assistant", "hello you")]


def lines(*entries: Any) -> str:
    return "".join(f"{json.dumps(entry)}\n" for entry in entries)


# -- ChatGPT -------------------------------------------------------------------------------------


def node(name: str, parent: str | None, said: dict[str, Any] | None, *children: str) -> dict:
    return {"id": name, "parent": parent, "children": list(children), "message": said}


def spoken(role: str, said: str, at: float | None, **content: Any) -> dict[str, Any]:
    return {
        "id": f"m-{said}",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": content or {"content_type": "text", "parts": [said]},
        "status": "finished_successfully",
        "metadata": {},
    }


def chatgpt(identity: str = "c-1") -> dict[str, Any]:
    """A conversation as ChatGPT exports it: a tree, of which a branch was given up."""
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-x"}
    nodes = [
        node("root", None, None, "system"),
        node("system", "root", spoken("system", "", None), "q1"),
        node("q1", "system", spoken("user", "name a fruit", 1_700_000_000.5), "a1", "a2"),
        node("a1", "q1", spoken("assistant", "durian", 1_700_000_001.0)),
        node("a2", "q1", spoken("assistant", "kumquat", 1_700_000_002.0), "q2"),
        node(
            "q2",
            "a2",
            spoken("user", "", 1_700_000_003.0, content_type="multimodal_text",
                   parts=[image, "what is this"]),
            "a3",
        ),
        node("a3", "q2", spoken("assistant", "", None, content_type="code", language="python",
                                text="print('pomelo')")),
    ]  # fmt: skip
    return {
        "title": "Fruit",
        "create_time": 1_700_000_000.0,
        "update_time": 1_700_000_009.0,
        "mapping": {each["id"]: each for each in nodes},
        "current_node": "a3",
        "conversation_id": identity,
        "id": identity,
        "moderation_results": [],
        "plugin_ids": None,
    }


def test_an_export_of_chatgpt_is_taken_over_as_it_was_last_seen(machine: Machine) -> None:
    path = write(machine, [chatgpt(), chatgpt("c-2")])
    assert taken(machine, path)["sessions"] == 2
    (session, other) = machine.json("sessions", "list")["sessions"]
    assert {session["title"], other["title"]} == {"Fruit"}
    assert session["started"] == 1_700_000_000.0
    said = contents(machine)[session["id"]]
    assert said[:2] == [("user", "name a fruit"), ("assistant", "kumquat")]
    assert "what is this" in said[2][1]
    assert "pomelo" in said[3][1]
    assert "durian" not in str(said)


# -- Claude ----------------------------------------------------------------------------------------


def claude(identity: str = "u-1") -> dict[str, Any]:
    def said(sender: str, text: str, at: str, **more: Any) -> dict[str, Any]:
        part = {"type": "text", "text": text, "start_timestamp": at, "citations": []}
        return {"uuid": f"m-{at}", "sender": sender, "text": text, "content": [part],
                "created_at": at, "updated_at": at, "attachments": [], **more}  # fmt: skip

    attached = {"file_name": "list.txt", "file_size": 9, "extracted_content": "a persimmon"}
    return {
        "uuid": identity,
        "name": "Groceries",
        "created_at": "2024-05-01T10:00:00.123456Z",
        "updated_at": "2024-05-01T10:05:00.000000Z",
        "account": {"uuid": "acc"},
        "chat_messages": [
            said("human", "what do I need", "2024-05-01T10:00:01Z", attachments=[attached]),
            said("assistant", "a kumquat", "2024-05-01T10:00:02Z"),
        ],
    }


def test_an_export_of_claude_is_taken_over_with_what_was_attached(machine: Machine) -> None:
    assert taken(machine, write(machine, [claude()]))["messages"] == 2
    (session,) = machine.json("sessions", "list")["sessions"]
    assert session["title"] == "Groceries"
    assert int(session["started"]) == 1_714_557_600
    said = contents(machine)[session["id"]]
    assert [role for role, _ in said] == ["user", "assistant"]
    assert "what do I need" in said[0][1]
    assert "persimmon" in said[0][1]
    assert said[1][1] == "a kumquat"


@pytest.mark.parametrize("folder", ["", "data-2024-05-01/"])
def test_an_export_may_stay_in_its_zip(folder: str, machine: Machine) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{folder}users.json", "[]")
        archive.writestr(f"{folder}conversations.json", json.dumps([claude(), claude("u-2")]))
    path = write(machine, buffer.getvalue(), "export.zip")
    assert taken(machine, path)["sessions"] == 2
    assert taken(machine, path) == {**taken(machine, path), "sessions": 0, "known": 2}


# -- JSONL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        lines(*HELLO),
        lines({"messages": HELLO}),
        lines({"session_id": "mine", "messages": HELLO}),
        lines(*({**each, "session_id": "mine"} for each in HELLO)),
        json.dumps(HELLO, indent=2),
        json.dumps({"messages": HELLO}, indent=2),
        "\ufeff" + lines(*HELLO),
        lines(*HELLO).replace("\n", "\r\n"),
        "\n\n" + lines(*HELLO) + "\n  \n",
        lines(message("user", [{"type": "text", "text": "hello walrus"}]), HELLO[1]),
    ],
)  # fmt: skip
def test_messages_in_lines_are_taken_over_in_every_form(text: str, machine: Machine) -> None:
    path = write(machine, text, "chat.jsonl")
    assert taken(machine, path) == {
        "schema": 1, "origin": "jsonl", "sessions": 1, "messages": 2, "known": 0, "skipped": 0,
        "problem": "",
    }  # fmt: skip
    assert list(contents(machine).values()) == [SAID]
    again = taken(machine, path)
    assert (again["sessions"], again["messages"], again["known"]) == (0, 0, 1)
    assert list(contents(machine).values()) == [SAID]


def test_calls_of_tools_and_times_come_along(machine: Machine) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    text = lines(
        message("user", "go", timestamp=1_700_000_000),
        message("assistant", None, tool_calls=[call], timestamp=1_700_000_001),
        message("tool", "done", tool_call_id="c1", name="shell", timestamp=1_700_000_002),
    )
    taken(machine, write(machine, text, "chat.jsonl"))
    (listed,) = machine.json("sessions", "list")["sessions"]
    shown = machine.json("sessions", "show", listed["id"])["messages"]
    assert [each["timestamp"] for each in shown] == [1.7e9, 1.7e9 + 1, 1.7e9 + 2]
    assert shown[1]["tool_calls"] == [call]
    assert (shown[2]["tool_name"], shown[2]["tool_call_id"]) == ("shell", "c1")


def test_a_file_that_grew_brings_what_is_new_and_that_once(machine: Machine) -> None:
    more = [message("user", "and a seal"), message("assistant", "yes")]
    path = write(machine, lines(*HELLO), "chat.jsonl")
    taken(machine, path)
    write(machine, lines(*HELLO, *more), "chat.jsonl")
    assert taken(machine, path)["messages"] == 2
    assert taken(machine, path)["messages"] == 0
    write(machine, lines(*HELLO), "chat.jsonl")
    assert taken(machine, path)["messages"] == 0
    assert list(contents(machine).values()) == [[*SAID, ("user", "and a seal"),
                                                ("assistant", "yes")]]  # fmt: skip
    grown = chatgpt()
    taken(machine, write(machine, [grown]))
    last = spoken("user", "one more", 1_700_000_008.0)
    grown["mapping"]["a3"]["children"] = ["q3"]
    grown["mapping"]["q3"] = node("q3", "a3", last)
    grown["current_node"] = "q3"
    assert taken(machine, write(machine, [grown]))["messages"] == 1


@pytest.mark.files_only
@pytest.mark.parametrize("name", [{}, {"session_id": "s-1"}])
def test_a_conversation_of_many_lines_is_not_in_memory_as_a_whole(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: dict[str, str]
) -> None:
    monkeypatch.setattr(session_merge, "_BATCH_CHARACTERS", 200_000)
    monkeypatch.setattr(json_stream, "_CHUNK", 1 << 16)
    said = [message("user", f"walrus {n} " + "x" * 2_000, **name) for n in range(5000)]
    path = write(machine, lines(*said), "chat.jsonl")
    size = path.stat().st_size
    del said
    for count in (5000, 0):
        with closing(open_archive(machine.home)) as archive:
            tracemalloc.start()
            try:
                assert importers.import_file(archive, path).messages == count
                assert tracemalloc.get_traced_memory()[1] < size / 2
            finally:
                tracemalloc.stop()
    ((_, found),) = contents(machine).items()
    assert [text.split()[1] for _, text in found] == [str(n) for n in range(5000)]


def test_lines_of_conversations_that_take_turns_are_stored_in_batches_and_in_order(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_merge, "BATCH", 3)
    said = [
        message("user", f"{n} of {name}", session_id=name, timestamp=1000.0 + n)
        for n in range(10)
        for name in ("a", "b", "")
    ]
    path = write(machine, lines(*said, message("user", " ")), "chat.jsonl")
    done = taken(machine, path)
    assert (done["sessions"], done["messages"]) == (3, 30)
    found = sorted(contents(machine).values())
    assert found == [[("user", f"{n} of {name}") for n in range(10)] for name in ("", "a", "b")]
    again = taken(machine, path)
    assert (again["sessions"], again["messages"], again["known"]) == (0, 0, 3)


def test_conversations_without_a_name_that_begin_alike_are_all_taken_over(
    machine: Machine,
) -> None:
    system = message("system", "You are a helpful assistant.")
    text = lines(*(
        {"messages": [system, message("user", animal), message("assistant", f"a {animal}")]}
        for animal in ("quokka", "wombat", "numbat")
    ))  # fmt: skip
    path = write(machine, text, "chat.jsonl")
    taken(machine, path)
    said = sorted(each[1][1] for each in contents(machine).values())
    assert said == ["numbat", "quokka", "wombat"]
    assert taken(machine, path)["sessions"] == 0


def test_names_of_conversations_that_begin_alike_do_not_depend_on_how_many_there_are(
    machine: Machine,
) -> None:
    system = message("system", "You are a helpful assistant.")
    talks = [{"messages": [system, message("user", f"animal {n}")]} for n in range(20)]
    taken(machine, write(machine, lines(*talks), "chat.jsonl"))
    before = set(contents(machine))
    # A name that is found by trying all numbers before it would make this quadratic.
    assert not [each for each in before if each.count("-") > 1]
    taken(machine, write(machine, lines(*reversed(talks)), "chat.jsonl"))
    assert set(contents(machine)) == before


def test_what_was_exported_can_be_imported_elsewhere(machine: Machine, tmp_path: Path) -> None:
    past(machine.home, "a", [("hello walrus", "tabs\tand\nlines"), ("日本語 🦄", "\x00 \x1b[31m")])
    past(machine.home, "b", [("b" * 100_000, "ok")])
    file = tmp_path / "all.jsonl"
    machine.run("sessions", "export", str(file)).done()
    assert file.stat().st_mode & 0o777 == 0o600
    other = Machine(tmp_path / "other", in_process=True)
    assert taken(other, file)["sessions"] == 2
    assert contents(other) == contents(machine)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85"])
def test_line_ends_of_unicode_inside_a_message_are_no_line_ends(
    sign: str, machine: Machine
) -> None:
    text = json.dumps(message("user", f"one{sign}two"), ensure_ascii=False)
    assert taken(machine, write(machine, text + "\n" + text, "chat.jsonl"))["messages"] == 2


@pytest.mark.parametrize("content", [lines(*HELLO), [claude()], [chatgpt()]], ids=["1", "2", "3"])
def test_what_was_imported_is_found_by_the_tool(content: Any, machine: Machine) -> None:
    taken(machine, write(machine, content))
    session = Talk(machine.home)
    assert session.search("walrus kumquat")["count"] == 1
    session.close()


def test_what_was_imported_for_a_user_is_that_users(machine: Machine) -> None:
    taken(machine, write(machine, lines(*HELLO)), "--user", "ada")
    assert machine.json("sessions", "list", "--user", "ada")["sessions"]
    assert not machine.json("sessions", "list", "--user", "bob")["sessions"]


def test_a_conversation_that_was_forgotten_can_be_imported_again(machine: Machine) -> None:
    path = write(machine, lines(*HELLO))
    taken(machine, path)
    (name,) = contents(machine)
    machine.run("sessions", "delete", name, "--yes").done()
    assert contents(machine) == {}
    assert taken(machine, path)["messages"] == 2


def test_a_conversation_of_ours_is_not_touched_by_an_import_of_the_same_name(
    machine: Machine,
) -> None:
    past(machine.home, "mine", [("ours", "ok")])
    path = write(machine, lines({"session_id": "mine", "messages": HELLO}))
    assert taken(machine, path)["messages"] == 2
    assert taken(machine, path)["messages"] == 0
    both = contents(machine)
    assert both["mine"] == [("user", "ours"), ("assistant", "ok")]
    assert len(both["mine@jsonl"]) == 2
