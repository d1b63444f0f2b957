"""A provider whose database connection belongs to the thread that ran its ``initialize``."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.providers import TOOL, Gate, Recorder, eventually
from support.sites import add_directory

from hermes_core import Deadlines, MemoryManager, MemoryProvider

MAIN = [
    "tool",
    "turn start",
    "compress",
    "add",
    "delegation",
    "end",
    "switch",
]

PLUGIN = """
import sqlite3
from pathlib import Path
from hermes_core import MemoryProvider

class Provider(MemoryProvider):
    name = "lite"
    def is_available(self):
        return True
    def get_tool_schemas(self):
        return []
    def initialize(self, session_id, **kwargs):
        self.home = Path(kwargs["hermes_home"])
        self.db = sqlite3.connect(self.home / "lite.db", timeout=30)
        self.db.execute("create table if not exists said (session, what)")
        self.session = session_id
    def _say(self, what):
        if (self.home / "down").exists():
            raise ConnectionError("down")
        with self.db:
            self.db.execute("insert into said values (?, ?)", (self.session, what))
    def sync_turn(self, user_content, assistant_content, *, session_id=""):
        if (self.home / "down").exists():
            raise ConnectionError("down")
    def on_memory_write(self, action, target, content, metadata=None):
        self._say(content)
    def on_session_end(self, messages):
        self._say("end")
    def shutdown(self):
        self._say("bye")
        self.db.close()

def register(ctx):
    ctx.register_memory_provider(Provider())
"""


class Lite(MemoryProvider):
    """Opens a connection in ``initialize``, as plugins for hermes-agent do."""

    name = "lite"

    def is_available(self) -> bool:
        return True

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [TOOL]

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.thread = threading.current_thread()
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table said (what)")
        self.left: list[str] = []

    def _say(self, what: str) -> None:
        self.database.execute("insert into said values (?)", (what,))

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self._say("tool")
        return json.dumps({"said": 1})

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        self._say("turn start")

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        self._say("compress")
        return ""

    def on_memory_write(self, action: str, target: str, content: str, metadata: Any = None) -> None:
        self._say(action)

    async def on_delegation(self, task: str, result: str, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        self.left.append("delegation")

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        self._say("end")

    def on_session_switch(self, new_session_id: str, **kwargs: Any) -> None:
        self._say("switch")

    def sync_turn(self, user_content: str, assistant_content: str, **kwargs: Any) -> None:
        assert threading.current_thread() is not self.thread

    def shutdown(self) -> None:
        self.left += [row[0] for row in self.database.execute("select what from said")]
        self.database.close()


def test_a_connection_of_initialize_serves_every_method_but_recall_and_turns(home: Path) -> None:
    provider = Lite()
    manager = MemoryManager(home=home)
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    manager.on_turn_start(1, "hello")
    assert json.loads(manager.handle_tool_call("ext_tool", {})) == {"said": 1}
    manager.sync_all("hello", "hi")
    manager.on_memory_write("add", "memory", "a note")
    manager.on_delegation("task", "result")
    manager.on_pre_compress([])
    manager.on_session_end([])
    manager.on_session_switch("s2")
    assert manager.flush_pending(20)
    manager.shutdown_all()
    failures = {hook: each.last_error for hook, each in manager.health()["lite"].items()}
    assert {hook: error for hook, error in failures.items() if error} == {}
    assert sorted(provider.left) == sorted(MAIN)
    assert provider.left.index("end") < provider.left.index("switch")


def test_a_call_that_took_too_long_gives_its_thread_back_to_those_after_it(home: Path) -> None:
    with Gate() as gate:
        provider = Lite()
        manager = MemoryManager(home=home, deadlines=Deadlines(hook=0.1))
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        compress, threads = provider.on_pre_compress, []

        def slow(messages: list[dict[str, Any]]) -> str:
            gate()
            return compress(messages)

        def seen(*_: Any, **__: Any) -> None:
            threads.append(threading.current_thread())

        provider.on_pre_compress = slow  # type: ignore[method-assign]
        provider.on_memory_write = seen  # type: ignore[method-assign]
        manager.on_pre_compress([])  # its caller goes on without it
        manager.on_memory_write("add", "memory", "meanwhile")
        assert eventually(lambda: threads)
        assert threads[0] is not provider.thread
        gate.open()
        assert eventually(lambda: manager.health() and not manager._external.hangs())  # type: ignore[union-attr]
        for number in range(3):
            manager.on_memory_write("add", "memory", f"note {number}")
        manager.on_session_end([])
        manager.on_session_switch("s2")
        assert manager.flush_pending(20)
        manager.shutdown_all()
    assert set(threads[2:]) == {provider.thread}
    assert sorted(provider.left) == ["compress", "end", "switch"]


def test_an_instance_for_what_was_left_is_called_on_the_thread_of_its_initialize(
    home: Path,
) -> None:
    add_directory(home, "lite", PLUGIN)
    (home / "config.yaml").write_text("memory:\n  provider: lite\n", "utf-8")
    (home / "down").touch()
    first = MemoryManager.from_config(home)
    first.initialize_all("s1")
    first.sync_all("hello", "hi")
    first.on_memory_write("add", "memory", "a note")
    first.on_session_end([])
    first.shutdown_all()
    (home / "down").unlink()
    second = MemoryManager.from_config(home)
    second.initialize_all("s2")
    assert second.flush_pending(30)
    second.shutdown_all()
    with sqlite3.connect(home / "lite.db") as database:
        rows = database.execute("select what from said where session = 's1'").fetchall()
    database.close()
    assert eventually(lambda: "memory-leftovers" not in {t.name for t in threading.enumerate()})
    assert [row[0] for row in rows] == ["a note", "end", "bye"]


def test_the_recall_for_the_next_turn_is_prepared_when_the_turn_was_written(home: Path) -> None:
    provider = Recorder()
    manager = MemoryManager(home=home)
    assert manager.add_provider(provider)
    manager.initialize_all("s1")
    expected = []
    with Gate() as gate:
        provider.answers["sync_turn"] = gate
        for number in range(5):
            manager.sync_all(f"turn {number}", "answer")
            manager.queue_prefetch_all(f"turn {number}")
            expected.append(f"turn {number}")
        gate.open()
        assert manager.flush_pending(20)
    manager.shutdown_all()
    calls = [(call.hook, *call.args[:1]) for call in provider.calls]
    for turn in expected:
        assert calls.index(("sync_turn", turn)) < calls.index(("queue_prefetch", turn))


def test_a_turn_that_hangs_blocks_no_tool_and_no_note(home: Path) -> None:
    with Gate() as gate:
        provider = Recorder(tools=[TOOL], sync_turn=gate)
        manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=0.4))
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        manager.on_memory_write("add", "memory", "before")
        manager.sync_all("turn", "answer")
        assert eventually(lambda: provider.of("sync_turn"))
        assert manager.handle_tool_call("ext_tool", {}) == "{}"
        assert eventually(lambda: provider.of("on_memory_write"))
        gate.open()
        manager.shutdown_all()


@pytest.mark.parametrize("hook", ["on_memory_write", "on_delegation", "on_session_end"])
def test_a_note_that_hangs_or_fails_blocks_no_turn(home: Path, hook: str) -> None:
    drive: dict[str, Callable[[MemoryManager], None]] = {
        "on_memory_write": lambda manager: manager.on_memory_write("add", "memory", "note"),
        "on_delegation": lambda manager: manager.on_delegation("task", "result"),
        "on_session_end": lambda manager: manager.on_session_end([]),
    }
    with Gate() as gate:
        provider = Recorder(**{hook: gate})
        manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=0.4))
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        drive[hook](manager)
        assert eventually(lambda: provider.of(hook))
        for number in range(5):
            manager.sync_all(f"turn {number}", "answer")
        assert eventually(lambda: len(provider.of("sync_turn")) == 5)
        gate.open()
        manager.shutdown_all()


def test_what_a_new_session_writes_comes_after_the_switch_to_it(home: Path) -> None:
    with Gate() as gate:
        provider = Recorder(sync_turn=gate)
        manager = MemoryManager(home=home)
        assert manager.add_provider(provider)
        manager.initialize_all("s1")
        manager.sync_all("old", "answer")
        manager.on_memory_write("add", "memory", "old note")
        manager.on_session_end([])
        manager.on_session_switch("s2")
        manager.on_turn_start(1, "new")
        manager.on_memory_write("add", "memory", "new note")
        manager.sync_all("new", "answer")
        assert eventually(lambda: provider.of("sync_turn"))
        assert provider.of("on_session_switch") == []
        gate.open()
        assert manager.flush_pending(20)
        manager.shutdown_all()
    hooks = [
        (call.hook, call.args[2] if call.hook == "on_memory_write" else "")
        for call in provider.calls
    ]
    switch = hooks.index(("on_session_switch", ""))
    assert hooks.index(("on_memory_write", "old note")) < switch
    assert hooks.index(("on_session_end", "")) < switch
    assert hooks.index(("on_turn_start", "")) > switch
    assert hooks.index(("on_memory_write", "new note")) > switch
    assert [call.args[0] for call in provider.of("sync_turn")] == ["old", "new"]
    assert provider.hooks().index("sync_turn") < switch
