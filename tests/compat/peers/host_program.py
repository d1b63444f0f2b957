"""A host as hermes-agent's own loop is one. Prints what its provider was called with.

The two imports below are all that a host changes to use hermes-plugins.
"""

import json
import os
from collections import defaultdict

from agent.memory_manager import MemoryManager, StreamingContextScrubber
from agent.memory_provider import MemoryProvider

SEARCH = {"name": "journal_search", "description": "Search.", "parameters": {"type": "object"}}


class Journal(MemoryProvider):
    """Writes down every call."""

    name = "journal"

    def __init__(self):
        self.calls, self.background = defaultdict(list), []

    def _note(self, hook, *args, **kwargs):
        self.calls[hook].append([args, {k: v for k, v in kwargs.items() if not callable(v)}])
        if hook in ("sync_turn", "on_session_end", "on_session_switch"):
            self.background.append([hook, args[0]])
        if hook == "queue_prefetch":  # its turn has been stored
            assert ["sync_turn", args[0]] in self.background

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self._note("initialize", session_id, **kwargs)

    def get_tool_schemas(self):
        return [SEARCH]

    def system_prompt_block(self):
        return "# Journal\nactive"

    def prefetch(self, query, *, session_id=""):
        self._note("prefetch", query)
        return f"noted before: {query}"

    def queue_prefetch(self, query, *, session_id=""):
        self._note("queue_prefetch", query, session_id=session_id)

    def sync_turn(self, user_content, assistant_content, *, session_id="", messages=None):
        self._note(
            "sync_turn", user_content, assistant_content, session_id=session_id, messages=messages
        )

    def handle_tool_call(self, tool_name, args, **kwargs):
        self._note("handle_tool_call", tool_name, args, **kwargs)
        return json.dumps({"found": args["query"]})

    def on_turn_start(self, turn_number, message, **kwargs):
        self._note("on_turn_start", turn_number, message, **kwargs)

    def on_session_end(self, messages):
        self._note("on_session_end", messages)

    def on_session_switch(self, new_session_id, **kwargs):
        self._note("on_session_switch", new_session_id, **kwargs)

    def on_pre_compress(self, messages):
        self._note("on_pre_compress", messages)
        return "keep the date"

    def on_memory_write(self, action, target, content, metadata=None):
        self._note("on_memory_write", action, target, content, metadata)

    def on_delegation(self, task, result, *, child_session_id="", **kwargs):
        self._note("on_delegation", task, result, child_session_id=child_session_id)

    def shutdown(self):
        self._note("shutdown")


def main():
    journal, manager, seen = Journal(), MemoryManager(), []
    manager.add_provider(journal)
    manager.initialize_all(
        session_id="s1",
        platform="cli",
        hermes_home=os.environ["HERMES_HOME"],
        agent_context="primary",
        agent_identity="default",
        agent_workspace="hermes",
        warning_callback=print,
    )
    seen.append(manager.build_system_prompt())
    seen.append([schema["name"] for schema in manager.get_all_tool_schemas()])
    history, session = [], "s1"

    def turn(number, message, answer):
        manager.on_turn_start(number, message)
        seen.append(manager.prefetch_all(message))
        scrubber = StreamingContextScrubber()
        shown = [
            scrubber.feed(delta)
            for delta in (answer, "\n<memory-con", "text>\nx\n</memory-context>\n")
        ]
        seen.append(("".join(shown) + scrubber.flush()).strip())
        history.append({"role": "user", "content": message})
        history.append({"role": "assistant", "content": answer})
        manager.sync_all(message, answer, session_id=session, messages=list(history))
        manager.queue_prefetch_all(message, session_id=session)

    turn(1, "My cat is called Tilda.", "A good name.")
    if manager.has_tool("journal_search"):
        seen.append(manager.handle_tool_call("journal_search", {"query": "cat"}))
    note = {"action": "add", "target": "user", "content": "has a cat"}
    written = json.dumps({"success": True, "message": "Entry added."})
    manager.notify_memory_tool_write(written, note, build_metadata=lambda: {"task_id": "t1"})
    manager.notify_memory_tool_write('{"success": false}', note)
    turn(2, "When did I tell you?", "Today.")
    seen.append(manager.on_pre_compress(list(history)))
    manager.on_delegation("look it up", "done", child_session_id="c1")
    manager.commit_session_boundary_async(
        list(history), new_session_id="s2", parent_session_id="s1"
    )
    session = "s2"
    history.clear()
    turn(3, "Start again.", "With pleasure.")
    seen.append(manager.flush_pending(timeout=60))
    manager.on_session_switch("s1", parent_session_id="s2", reason="resume")
    seen.append(manager.flush_pending(timeout=60))
    manager.on_session_end(list(history))
    manager.shutdown_all()
    print(json.dumps({"seen": seen, "calls": journal.calls, "background": journal.background}))


if __name__ == "__main__":
    main()
