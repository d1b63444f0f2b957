"""On which thread, and in which order, a provider is called."""

from __future__ import annotations

import sqlite3
import threading

from peers.stage import PATIENCE, Recorder, flushed, scenario
from peers.tools import tool

MESSAGES = [{"role": "user", "content": "a question"}]


class Database(Recorder):
    """Opens a database when it starts. sqlite3 refuses it to every other thread."""

    def __init__(self):
        self.failures = []
        super().__init__(tools=[tool("db_count")])

    def initialize(self, session_id, **kwargs):
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE done (what)")

    def _note(self, hook, *args, **kwargs):
        super()._note(hook, *args, **kwargs)
        try:
            self._database.execute("INSERT INTO done VALUES (?)", (hook,))
        except sqlite3.ProgrammingError:
            self.failures.append(hook)
        return '{"ok": true}' if hook == "handle_tool_call" else ""


@scenario("threads")
def a_database_of_one_thread_works_everywhere_but_in_the_background(stage):
    provider = Database()
    manager = stage.manager(provider)
    answer = manager.handle_tool_call("db_count", {})
    manager.on_memory_write("add", "memory", "x")
    manager.on_delegation("t", "r")
    manager.on_pre_compress(MESSAGES)
    manager.on_session_end(MESSAGES)
    manager.on_session_switch("s2")
    flushed(manager)
    manager.build_system_prompt()
    manager.shutdown_all()
    return [answer, provider.failures, sorted(provider.order())]


@scenario("threads")
def a_database_of_one_thread_and_turns(stage):
    provider = Database()
    manager = stage.manager(provider)
    manager.on_turn_start(1, "hello")
    manager.sync_all("a question", "an answer")
    manager.queue_prefetch_all("a question")
    flushed(manager)
    manager.prefetch_all("hello there")
    return sorted(set(provider.failures))


@scenario("threads")
def one_thread_for_the_hooks_of_a_session(stage):
    provider = Recorder(tools=[tool("ext_search")], handle_tool_call="{}")
    manager = stage.manager(provider)
    manager.handle_tool_call("ext_search", {})
    manager.on_memory_write("add", "memory", "x")
    manager.on_delegation("t", "r")
    manager.on_pre_compress(MESSAGES)
    manager.on_session_end(MESSAGES)
    manager.on_session_switch("s2")
    flushed(manager)
    manager.shutdown_all()
    return len(set(provider.threads.values()))


@scenario("threads")
def turns_are_not_stored_on_the_host_s_thread(stage):
    provider = Recorder()
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.queue_prefetch_all("a question")
    flushed(manager)
    here = threading.get_ident()
    return [provider.threads[each] == here for each in ("sync_turn", "queue_prefetch")]


@scenario("queue_prefetch_all")
def the_next_recall_is_queued_after_the_turn_was_stored(stage):
    gate, done = stage.gate(), []

    def store(*_, **__):
        gate.wait(PATIENCE)
        done.append("sync_turn")

    provider = Recorder(
        sync_turn=store, queue_prefetch=lambda *_, **__: done.append("queue_prefetch")
    )
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.queue_prefetch_all("a question")
    gate.wait(0.1)  # time for the second to overtake the first
    gate.set()
    flushed(manager)
    return done


@scenario("queue_prefetch_all")
def every_recall_is_queued_after_its_own_turn(stage):
    provider, texts = Recorder(), [f"question {number}" for number in range(4)]
    manager = stage.manager(provider)
    for text in texts:
        manager.sync_all(text, "an answer")
        manager.queue_prefetch_all(text)
    flushed(manager)
    calls = [[hook, args[0]] for hook, args, _ in provider.of("sync_turn", "queue_prefetch")]
    queued = [text for hook, text in calls if hook == "queue_prefetch"]
    after = [
        calls.index(["sync_turn", each]) < calls.index(["queue_prefetch", each]) for each in texts
    ]
    return [queued, after]


@scenario("sync_all")
def a_turn_is_stored_while_the_next_begins(stage):
    gate = stage.gate()
    provider = Recorder(sync_turn=lambda *_, **__: gate.wait(PATIENCE), prefetch="recalled")
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    manager.on_turn_start(2, "hello")
    found = manager.prefetch_all("hello there")
    gate.set()
    flushed(manager)
    return found


@scenario("handle_tool_call")
def a_tool_answers_while_a_turn_is_stored(stage):
    gate, began = stage.gate(), stage.gate()
    provider = Recorder(
        tools=[tool("ext_search")],
        sync_turn=lambda *_, **__: began.set() or gate.wait(PATIENCE),
        handle_tool_call='{"found": 1}',
    )
    manager = stage.manager(provider)
    manager.sync_all("a question", "an answer")
    began.wait(PATIENCE)
    found = manager.handle_tool_call("ext_search", {})
    gate.set()
    flushed(manager)
    return found
