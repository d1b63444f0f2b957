"""`list_memories`: the facts of a person's bank, page by page."""

from __future__ import annotations

from hermes_memory_hindsight import service


def listed(provider):
    items, cursor = [], ""
    while True:
        page = provider.list_memories(cursor)
        items += page.items
        cursor = page.cursor
        if not cursor:
            return items


def test_every_fact_is_listed_whatever_the_size_of_a_page(started, monkeypatch):
    monkeypatch.setattr(service, "_NOTES", 3)
    provider = started()
    for number in range(7):
        provider.sync_turn(f"fact {number}", "ok", session_id="s1", turn_id=f"t{number}")
    found = listed(provider)
    assert len({each.id for each in found}) == len(found) == 7
    assert {each.created for each in found} == {1767323045.0}
    assert all(each.metadata["type"] == "world" for each in found)


def test_a_bank_that_does_not_exist_has_nothing(started):
    assert listed(started()) == []


def test_others_are_not_listed(started):
    ann = started(facts={"platform": "telegram", "user_id": "1001"})
    bob = started(facts={"platform": "telegram", "user_id": "1002"})
    ann.sync_turn("I drink tea.", "Noted.", session_id="s1", turn_id="t1")
    assert listed(bob) == []
    assert len(listed(ann)) == 1
