"""Sessions of Claude Code and Codex: recognised, taken over once, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import open_archive
from support.commands import Machine
from support.storages import Storage

from hermes_builtin.sessions import coding_agents

pytestmark = pytest.mark.usefixtures("both_storages")

SESSION = "0a1b2c3d-1111-2222-3333-444455556666"


def lines(*entries: Any) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in entries)


def claude(kind: str, content: Any, second: int, **more: Any) -> dict[str, Any]:
    """A line as Claude Code writes it."""
    return {
        "type": kind,
        "sessionId": SESSION,
        "uuid": f"u-{second}",
        "parentUuid": None,
        "isSidechain": False,
        "cwd": "/work",
        "version": "2.1.0",
        "timestamp": f"2026-03-01T10:00:{second:02}.500Z",
        "message": {"role": kind, "content": content},
        **more,
    }


CLAUDE = (
    {"type": "summary", "summary": "Fix the walrus", "leafUuid": "u-5"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    claude("user", "<command-name>/clear</command-name>", 0, isMeta=True),
    claude("user", "Where is the walrus?", 1),
    claude("assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}], 2),
    claude(
        "assistant",
        [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "Grep", "input": {"pattern": "walrus"}},
        ],
        2,
    ),
    claude("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "zoo.py:3"}], 3),
    claude("assistant", [{"type": "text", "text": "In zoo.py."}], 4),
    claude("user", "Look for otters.", 5, isSidechain=True, agentId="a7"),
)
CODEX = (
    {
        "timestamp": "2026-04-01T08:00:00.000Z",
        "type": "session_meta",
        "payload": {"id": "c-77", "timestamp": "2026-04-01T08:00:00.000Z", "cwd": "/work"},
    },
    *(
        {"timestamp": f"2026-04-01T08:00:0{second}.000Z", "type": kind, "payload": payload}
        for second, kind, payload in (
            (1, "response_item", {"type": "message", "role": "developer", "content": []}),
            (
                1,
                "response_item",
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "<environment_context>x"}],
                },
            ),
            (
                2,
                "response_item",
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "List the penguins."}],
                },
            ),
            (2, "event_msg", {"type": "user_message", "message": "List the penguins."}),
            (3, "response_item", {"type": "reasoning", "summary": []}),
            (
                4,
                "response_item",
                {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "f1"},
            ),
            (
                5,
                "response_item",
                {"type": "function_call_output", "call_id": "f1", "output": "penguin.py"},
            ),
            (
                6,
                "response_item",
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "One penguin."}],
                },
            ),
        )
    ),
)


@pytest.fixture
def machine(tmp_path: Path, few_distributions: None) -> Machine:
    made = Machine(tmp_path, in_process=True)
    if Storage.current.url:
        made.write_config(f"memory:\n{Storage.current.config}")
    return made


def contents(machine: Machine) -> dict[str, list[tuple[str, str]]]:
    with closing(open_archive(machine.home)) as archive:
        return {
            session.id: [(each.role, each.content) for each in archive.messages(session)]
            for session in archive.sessions()
        }


def write(machine: Machine, name: str, text: str) -> Path:
    path = machine.user / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_a_session_of_claude_code_is_taken_over(machine):
    path = write(machine, f"{SESSION}.jsonl", lines(*CLAUDE))
    done = machine.json("sessions", "import", str(path))
    assert (done["origin"], done["sessions"], done["messages"]) == ("claude-code", 2, 5)
    name = f"claude-code-{SESSION}"
    assert contents(machine) == {
        name: [
            ("user", "Where is the walrus?"),
            ("assistant", "I look."),
            ("tool", "zoo.py:3"),
            ("assistant", "In zoo.py."),
        ],
        f"{name}-a7": [("user", "Look for otters.")],
    }
    with closing(open_archive(machine.home)) as archive:
        session = next(each for each in archive.sessions() if each.id == name)
        assert (session.title, session.source) == ("Fix the walrus", "claude-code")
        first, call, result, _ = archive.messages(session)
        assert first.at == 1772359201.5
        assert first.extra["origin"] == "import"
        assert call.extra["tool_calls"][0]["function"]["name"] == "Grep"
        assert result.extra["tool_call_id"] == "t1"
    assert name in machine.run("sessions", "search", "walrus").out


def test_a_session_of_codex_is_taken_over(machine):
    path = write(machine, "rollout-2026.jsonl", lines(*CODEX))
    done = machine.json("sessions", "import", str(path))
    assert (done["origin"], done["messages"], done["skipped"]) == ("codex", 4, 0)
    assert contents(machine) == {
        "codex-c-77": [
            ("user", "List the penguins."),
            ("assistant", ""),
            ("tool", "penguin.py"),
            ("assistant", "One penguin."),
        ]
    }


def test_a_folder_is_imported_and_again_only_what_is_new(machine):
    folder = machine.user / "agents"
    write(machine, f"agents/-work/{SESSION}.jsonl", lines(*CLAUDE))
    write(machine, "agents/2026/04/01/rollout-1.jsonl", lines(*CODEX))
    write(machine, "agents/other.jsonl", '{"something": "else"}\n')
    done = machine.json("sessions", "import", str(folder))
    assert (done["origin"], done["sessions"], done["messages"]) == ("claude-code, codex", 3, 9)
    before = contents(machine)
    again = machine.json("sessions", "import", str(folder))
    assert (again["sessions"], again["messages"], again["known"]) == (0, 0, 2)
    assert contents(machine) == before
    grown = [*CLAUDE, claude("user", "Thanks.", 9)]
    write(machine, f"agents/-work/{SESSION}.jsonl", lines(*grown))
    assert machine.json("sessions", "import", str(folder))["messages"] == 1
    assert contents(machine)[f"claude-code-{SESSION}"][-1] == ("user", "Thanks.")


def test_lines_that_cannot_be_read_are_skipped_and_counted(machine):
    torn = lines(*CLAUDE) + "{broken\n[1]\n" + lines(claude("user", "Later.", 8)) + '{"type": "us'
    path = write(machine, "torn.jsonl", torn)
    result = machine.run("sessions", "import", str(path))
    assert result.code == 0
    assert "Skipped 3 lines that can't be read." in result.err
    assert contents(machine)[f"claude-code-{SESSION}"][-1] == ("user", "Later.")


def test_a_folder_without_sessions_says_so(machine):
    (machine.user / "empty").mkdir()
    error = machine.run("sessions", "import", str(machine.user / "empty")).failed()
    assert "no sessions of Claude Code or Codex" in error


def test_messages_of_the_usual_form_are_not_taken_for_theirs(tmp_path):
    path = tmp_path / "x.jsonl"
    for text in ("", "\0\1\2", lines({"role": "user", "content": "hello", "type": "user"}), "[]"):
        path.write_text(text)
        assert coding_agents.kind_of(path) == ""


# Not the peak that `getrusage` knows: it counts what the process that started this one had.
IMPORT = """
import sys
from contextlib import closing
from pathlib import Path
from hermes_builtin.sessions.importers import import_file
from hermes_builtin.sessions.location import locate
with closing(locate(Path(sys.argv[1])).open()) as archive:
    done = import_file(archive, Path(sys.argv[2]))
status = Path("/proc/self/status").read_text()
print(done.messages, int(status.partition("VmHWM:")[2].split()[0]) // 1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.stress
def test_a_large_file_is_imported_in_bounded_memory(tmp_path):
    """One file with 200 sessions; the peak includes the interpreter."""
    size = 400_000_000 if Storage.current.url else 1_000_000_000  # a server takes twice as long
    path, count = tmp_path / "big.jsonl", 0
    text = "the walrus sleeps on the ice " * 170
    with path.open("w") as file:
        while file.tell() < size:
            entry = claude("user", f"{count} {text}", count % 60)
            entry["sessionId"] = f"s-{count // 1000}"
            file.write(f"{json.dumps(entry)}\n")
            count += 1
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT, tmp_path / "home", path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    messages, megabytes = map(int, done.stdout.split())
    assert messages == count
    assert megabytes < 300
