"""`list_memories`: what Honcho concluded, and cards; messages are the host's own."""

from __future__ import annotations

from hermes_memory_honcho import listing


def listed(provider):
    items, cursor = [], ""
    while True:
        page = provider.list_memories(cursor)
        items += page.items
        cursor = page.cursor
        if not cursor:
            return items


def test_conclusions_are_listed_in_pages(agent, monkeypatch):
    monkeypatch.setattr(listing, "_PAGE", 2)
    ann = agent()
    for number in range(5):
        ann.note("add", f"Ann has {number} cats.")
    found = listed(ann.provider)
    texts = [each.text for each in found]
    assert {f"Ann has {n} cats." for n in range(5)} <= set(texts)
    assert len({each.id for each in found}) == len(found)
    assert all(each.created > 0 and each.metadata["kind"] == "conclusion" for each in found)


def test_a_new_person_has_nothing(agent):
    assert listed(agent().provider) == []
