"""The tools, with hermes-agent's names, arguments and answers."""

import json
import uuid

import pytest

TEA = "Ann drinks green tea."


def _call(provider, tool, **arguments):
    return json.loads(provider.handle_tool_call(tool, arguments))


def test_the_four_tools_are_offered_before_and_after_the_start(place):
    from hermes_memory_mem0 import Mem0Provider

    names = ["mem0_search", "mem0_add", "mem0_update", "mem0_delete"]
    for provider in (Mem0Provider(), place.provider()):
        assert [each["name"] for each in provider.get_tool_schemas()] == names


def test_a_fact_is_added_found_corrected_and_deleted(place):
    provider = place.provider()
    added = _call(provider, "mem0_add", content=TEA)
    assert added["result"] == "Fact stored."
    assert "event_id" in added
    found = _call(provider, "mem0_search", query="Which tea does Ann drink?")
    assert found["count"] == 1
    (row,) = found["results"]
    assert row["memory"] == TEA
    assert 0 < row["score"] <= 1
    changed = _call(provider, "mem0_update", memory_id=row["id"], text="Ann drinks black tea.")
    assert changed == {"result": "Memory updated.", "memory_id": row["id"]}
    assert place.texts() == ["Ann drinks black tea."]
    gone = _call(provider, "mem0_delete", memory_id=row["id"])
    assert gone == {"result": "Memory deleted.", "memory_id": row["id"]}
    nothing = {"result": "No relevant memories found."}
    assert _call(provider, "mem0_search", query="Which tea does Ann drink?") == nothing


def test_the_tool_and_the_host_may_write_at_once(place):
    provider = place.provider()
    _call(provider, "mem0_add", content=TEA)
    provider.sync_turn("My dog is called Rex.", "Good dog.", turn_id="t1")
    assert place.texts() == [TEA, "My dog is called Rex."]


def test_a_search_gives_as_many_as_it_is_asked_for_and_fifty_at_most(server):
    provider = server.provider()
    for number in range(60):
        server.behind.store.add(
            {
                "messages": [{"role": "user", "content": f"Ann drinks tea {number}."}],
                "user_id": "hermes-user",
                "infer": False,
            }
        )
    assert _call(provider, "mem0_search", query="Ann drinks tea")["count"] == 10
    assert _call(provider, "mem0_search", query="Ann drinks tea", top_k=3)["count"] == 3
    assert _call(provider, "mem0_search", query="Ann drinks tea", top_k=500)["count"] == 50


@pytest.mark.parametrize("memory_id", ["no-uuid", str(uuid.UUID(int=7)), "../search", "a/b?c"])
def test_an_unknown_memory_is_named(place, memory_id):
    provider = place.provider()
    for tool, more in (("mem0_update", {"text": "x"}), ("mem0_delete", {})):
        answer = _call(provider, tool, memory_id=memory_id, **more)
        assert answer == {"error": f"Memory not found: {memory_id}"}


def test_another_users_memory_can_be_neither_changed_nor_deleted(place):
    _call(place.provider(user_id="ann"), "mem0_add", content=TEA)
    (row,) = place.rows()
    bob = place.provider(user_id="bob")
    for tool, more in (("mem0_update", {"text": "Nothing."}), ("mem0_delete", {})):
        assert "not found" in _call(bob, tool, memory_id=row["id"], **more)["error"]
    assert place.texts() == [TEA]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("mem0_search", {}),
        ("mem0_search", {"query": 7}),
        ("mem0_search", {"query": "x", "top_k": "many"}),
        ("mem0_add", {"content": "  "}),
        ("mem0_add", {"content": "x" * 1_000_000}),
        ("mem0_update", {"memory_id": "x"}),
        ("mem0_delete", {"memory_id": ""}),
        ("mem0_forget", {}),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wrong(server, tool, arguments):
    answer = _call(server.provider(), tool, **arguments)
    assert list(answer) == ["error"]
    assert server.texts() == []


def test_reranking_is_asked_of_the_platform_if_it_is_set_or_the_model_wants_it(platform):
    def asked(provider, **arguments):
        _call(provider, "mem0_search", query="tea", **arguments)
        return platform.behind.asked[-1].body["rerank"]

    assert asked(platform.provider()) is False
    assert asked(platform.provider(), rerank=True) is True
    assert asked(platform.provider(config={"rerank": True})) is True
