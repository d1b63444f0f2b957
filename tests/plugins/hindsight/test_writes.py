"""What is written: turns, notes, subagents' results. Each once, and only by the agent itself."""

from __future__ import annotations

import json

import pytest

from hermes_core import HermesError

TURN = {"turn_id": "turn-1", "attempt": 1}


def test_a_turn_is_a_document_under_its_id(server, started):
    facts = {"platform": "telegram", "user_id": "ann", "user_name": "Ann", "chat_id": "c"}
    provider = started(bank_id="b", retain_tags=["work"], retain_source="me", facts=facts)
    provider.sync_turn("Hello", "Hi", session_id="s1", **TURN)
    (body,) = server.asked("/memories")
    assert body["async"] is False
    (item,) = body["items"]
    assert item["document_id"] == "turn-1"
    assert item["content"] == "User: Hello\nAssistant: Hi"
    assert item["tags"] == ["work", "session:s1"]
    assert item["metadata"] == {
        "source": "me", "session_id": "s1", "platform": "telegram", "user_id": "ann",
        "user_name": "Ann", "chat_id": "c", "agent_identity": "default", "turn_id": "turn-1",
    }  # fmt: skip


def test_a_second_attempt_sends_the_same_bytes_under_the_same_id(server, started):
    provider = started(bank_id="b")
    for attempt in (1, 2):
        provider.sync_turn("Hello", "Hi", turn_id="t", attempt=attempt, said_at=1_700_000_000.5)
    first, second = server.asked("/memories")
    assert first == second
    (item,) = first["items"]
    assert item["timestamp"].startswith("2023-11-14T22:13:20.5")
    assert len(server.banks["b"]) == 1


def test_the_words_before_both_sides_can_be_set(server, started):
    started(bank_id="b", retain_user_prefix="Ann", retain_assistant_prefix="Bot").sync_turn(
        "Hello", "Hi", **TURN
    )
    assert server.texts("b") == ["Ann: Hello\nBot: Hi"]


def test_a_turn_is_sent_at_once_whatever_retain_every_n_turns_says(server, started):
    provider = started(bank_id="b", retain_every_n_turns=5)
    provider.sync_turn("Hello", "Hi", **TURN)
    assert len(server.banks["b"]) == 1
    shown = provider.get_status_config({"retain_every_n_turns": 5})
    assert shown["retain_every_n_turns"] == "1, not 5: a turn is stored at once"
    assert "retain_every_n_turns" not in provider.get_status_config({"retain_every_n_turns": 1})


def test_the_server_may_be_asked_to_queue(server, started):
    started(bank_id="b", retain_async=True).sync_turn("Hello", "Hi", **TURN)
    assert server.asked("/memories")[0]["async"] is True


def test_a_write_that_the_server_did_not_take_raises(server, started):
    provider = started(bank_id="b")
    server.status = 503
    with pytest.raises(HermesError):
        provider.sync_turn("Hello", "Hi", **TURN)
    server.status, server.answer = (
        0,
        json.dumps({"success": False, "bank_id": "b", "items_count": 0, "async": False}).encode(),
    )
    with pytest.raises(HermesError, match="did not store"):
        provider.sync_turn("Hello", "Hi", **TURN)


@pytest.mark.parametrize("context", ["cron", "subagent", "flush"])
def test_contexts_other_than_the_agent_itself_write_nothing(server, started, context):
    provider = started(facts={"agent_context": context})
    provider.sync_turn("Hello", "Hi", **TURN)
    provider.on_memory_write("add", "user", "tea", {}, event_id="e")
    provider.on_delegation("task", "result", event_id="e")
    provider.on_session_end([], event_id="e")
    answer = json.loads(provider.handle_tool_call("hindsight_retain", {"content": "x"}))
    assert "error" in answer
    assert server.requests == []


def test_without_auto_retain_only_the_tool_writes(server, started):
    provider = started(bank_id="b", auto_retain=False)
    provider.sync_turn("Hello", "Hi", **TURN)
    provider.on_memory_write("add", "user", "tea", {}, event_id="e")
    provider.on_delegation("task", "result", event_id="e")
    assert server.requests == []
    provider.handle_tool_call("hindsight_retain", {"content": "x"})
    assert server.texts("b") == ["x"]


def test_a_switch_sends_nothing_and_the_next_turn_knows_its_parent(server, started):
    provider = started(bank_id_template="b-{session}")
    provider.sync_turn("one", "1", turn_id="t1")
    provider.on_session_switch("s2", parent_session_id="s1")
    assert len(server.requests) == 1
    provider.sync_turn("two", "2", turn_id="t2")
    provider.sync_turn("late", "1", session_id="s1", turn_id="t3")
    assert server.banks["b-s2"]["t2"]["tags"] == ["session:s2", "parent:s1"]
    assert server.banks["b-s1"]["t3"]["tags"] == ["session:s1"]


def test_what_a_subagent_found_is_kept(server, started):
    started(bank_id="b").on_delegation("count", "42", child_session_id="c", event_id="e1")
    assert server.texts("b") == ["Task: count\nResult: 42"]
    assert server.banks["b"]["e1"]["metadata"]["child_session_id"] == "c"


def test_a_note_is_followed_by_its_text(server, started):
    provider = started(bank_id="b")
    provider.on_memory_write("add", "user", "likes tea", {}, event_id="1")
    provider.on_memory_write("add", "memory", "likes tea", {}, event_id="2")
    provider.on_memory_write("add", "user", "likes tea", {}, event_id="3", attempt=2)
    assert server.texts("b") == ["likes tea", "likes tea"]
    change = {"old_text": "likes tea"}
    provider.on_memory_write("replace", "user", "likes coffee", change, event_id="4")
    assert sorted(server.texts("b")) == ["likes coffee", "likes tea"]
    provider.on_memory_write("remove", "memory", "", change, event_id="5")
    provider.on_memory_write("remove", "memory", "", change, event_id="5", attempt=2)
    assert server.texts("b") == ["likes coffee"]


def test_a_note_that_was_never_mirrored_takes_no_other_with_it(server, started):
    provider = started(bank_id="b")
    provider.on_memory_write("add", "user", "likes green tea", {}, event_id="1")
    provider.on_memory_write("remove", "user", "", {"old_text": "tea"}, event_id="2")
    assert server.texts("b") == ["likes green tea"]


def test_two_users_of_one_bank_do_not_remove_each_others_notes(server, started):
    ann, ben = (started(bank_id="b", facts={"user_id": user}) for user in ("ann", "ben"))
    for each in (ann, ben):
        each.on_memory_write("add", "user", "likes tea", {}, event_id="1")
    ann.on_memory_write("remove", "user", "", {"old_text": "likes tea"}, event_id="2")
    assert server.texts("b") == ["likes tea"]


def test_missions_are_set_once_before_the_first_write(server, started):
    provider = started(bank_id="b", bank_mission="Helps Ann.", bank_retain_mission="Birds.")
    for number in range(2):
        provider.sync_turn("one", "1", turn_id=f"t{number}")
    assert [each.method for each in server.requests] == ["PUT", "POST", "POST"]
    assert server.missions["b"] == {"reflect_mission": "Helps Ann.", "retain_mission": "Birds."}
