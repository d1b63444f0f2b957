"""Recall: for the message at hand, from the first turn on; and the tools."""

from __future__ import annotations

import json

import pytest

from hermes_core import RecallStatus
from hermes_memory_hindsight.provider import HindsightProvider


@pytest.fixture
def knowing(server, started):
    """A provider whose bank knows something; made with settings."""

    def make(**settings):
        provider = started(bank_id="b", **settings)
        provider.sync_turn("The colour is teal.", "Yes.", turn_id="t1")
        provider.sync_turn("The bird is a wren.", "Yes.", turn_id="t2")
        server.requests.clear()
        return provider

    return make


def call(provider, tool: str, **args):
    return json.loads(provider.handle_tool_call(tool, args))


def test_each_message_is_asked_with_at_its_own_turn(server, knowing):
    provider = knowing()
    assert "teal" in provider.prefetch("colour?")
    assert provider.recall_status() == RecallStatus("Hindsight", 1, "🔭")
    provider.queue_prefetch("colour?")
    found = provider.prefetch("bird?")
    assert "wren" in found
    assert "teal" not in found
    assert [body["query"] for body in server.asked("/recall")] == ["colour?", "bird?"]


def test_a_bank_that_is_not_there_is_empty(server, started):
    provider = started()
    assert provider.prefetch("colour?") == ""
    assert provider.recall_status() is None
    assert call(provider, "hindsight_recall", query="colour?") == {
        "result": "No relevant memories found."
    }


def test_a_question_without_a_word_is_not_asked(server, knowing):
    assert knowing().prefetch("?! …") == ""
    assert server.requests == []


def test_options_of_recall_reach_the_server(server, knowing):
    provider = knowing(
        recall_budget="high", recall_max_tokens=99, recall_max_input_chars=6, recall_tags="a,b",
        recall_tags_match="all_strict", recall_types=["world"], recall_prompt_preamble="## Mine",
    )  # fmt: skip
    assert provider.prefetch("colour and more").startswith("## Mine\n\n- ")
    (body,) = server.asked("/recall")
    assert body["query"] == "colour"
    assert (body["budget"], body["max_tokens"]) == ("high", 99)
    assert (body["tags"], body["tags_match"]) == (["a", "b"], "all_strict")
    assert body["types"] == ["world"]


def test_all_kinds_are_asked_for_and_an_observation_stands_for_its_facts(server, knowing):
    knowing().prefetch("colour")
    (body,) = server.asked("/recall")
    assert sorted(body["types"]) == ["experience", "observation", "world"]
    assert body["prefer_observations"] is True


def test_reflect_answers_in_place_of_memories(server, knowing):
    provider = knowing(recall_prefetch_method="reflect")
    assert "teal" in provider.prefetch("colour")
    assert server.asked("/recall") == []
    assert provider.prefetch("nonsense") == ""  # that nothing is known is no memory


@pytest.mark.parametrize("settings", [{"auto_recall": False}, {"memory_mode": "tools"}])
def test_without_recall_before_turns_the_tools_are_left(server, knowing, settings):
    provider = knowing(**settings)
    assert provider.prefetch("colour") == ""
    assert server.requests == []
    assert "teal" in call(provider, "hindsight_recall", query="colour")["result"]


def test_in_context_mode_there_are_no_tools(knowing):
    provider = knowing(memory_mode="context")
    assert provider.get_tool_schemas() == []
    assert "error" in call(provider, "hindsight_recall", query="colour")
    assert "hindsight_" not in provider.system_prompt_block()


def test_tools_have_hermes_agents_names_arguments_and_keys(server, knowing):
    provider = knowing(retain_tags="work")
    schemas = {each["name"]: each["parameters"] for each in provider.get_tool_schemas()}
    assert {name: sorted(each["properties"]) for name, each in schemas.items()} == {
        "hindsight_retain": ["content", "context", "tags"],
        "hindsight_recall": ["query"],
        "hindsight_reflect": ["query"],
    }
    told = {"content": "The cat is Mia.", "context": "pets", "tags": ["cat", "work", " "]}
    for _ in range(2):
        assert call(provider, "hindsight_retain", **told) == {
            "result": "Memory stored successfully."
        }
    (kept,) = [each for each in server.banks["b"].values() if "Mia" in each["original_text"]]
    assert kept["tags"] == ["work", "cat"]
    found = call(provider, "hindsight_recall", query="the is")["result"]
    assert [line[:3] for line in found.splitlines() if line[0].isdigit()] == ["1. ", "2. ", "3. "]
    assert "Mia" in call(provider, "hindsight_reflect", query="cat")["result"]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("hindsight_retain", {}),
        ("hindsight_retain", {"content": ""}),
        ("hindsight_retain", {"content": "x", "tags": "y"}),
        ("hindsight_recall", {"query": 3}),
        ("hindsight_reflect", {}),
    ],
)
def test_wrong_arguments_are_answered_without_asking_the_server(server, started, tool, args):
    assert "error" in call(started(), tool, **args)
    assert server.requests == []


def test_before_a_session_there_is_nothing_to_recall_and_the_tools_are_known():
    provider = HindsightProvider()
    assert provider.prefetch("colour") == ""
    assert provider.system_prompt_block() == ""
    assert len(provider.get_tool_schemas()) == 3
    assert "error" in call(provider, "hindsight_recall", query="colour")


def test_the_prompt_names_the_bank_of_the_session(started):
    provider = started(bank_id_template="b-{session}")
    before = provider.system_prompt_block()
    assert "Bank: b-s1." in before
    provider.on_session_switch("s2")
    assert provider.system_prompt_block() == before
