"""`list_memories`: all memories of a user, in all three modes."""

from __future__ import annotations

import json

from hermes_memory_mem0 import memories
from hermes_memory_mem0.memories import Mem0Memory, page_of


def listed(provider):
    items, cursor, missing = [], "", ""
    while True:
        page = provider.list_memories(cursor)
        items += page.items
        cursor, missing = page.cursor, page.missing
        if not cursor:
            return items, missing


def test_every_memory_is_listed_in_pages(place, monkeypatch):
    monkeypatch.setattr(memories, "_PAGE", 2)
    provider = place.provider()
    for number in range(5):
        added = provider.handle_tool_call("mem0_add", {"content": f"Ann has {number} cats."})
        assert "error" not in json.loads(added)
    found, missing = listed(provider)
    assert sorted(each.text for each in found) == [f"Ann has {n} cats." for n in range(5)]
    assert len({each.id for each in found}) == 5
    assert missing == ""


def test_what_a_server_does_not_list_is_said():
    found = [Mem0Memory(str(number), "fact") for number in range(3)]
    assert page_of(found, "", 3).missing == "Mem0 lists at most 3 memories"
    assert page_of(found, "", 4).missing == ""
    assert page_of(found, "", 0).missing == ""
