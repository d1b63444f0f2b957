"""What the real server takes, finds and gives back."""

from __future__ import annotations

import json
import threading

import pytest
from support.hindsight_agents import new_bank, provider_on, set_up
from support.our_plugins import install_plugin

from hermes_core import HermesError, MemoryManager

ODD = "nul \0, half \ud83d, family 👨‍👩‍👧, e\u0301, \u202eleft, \u2028, 记忆, \U0001d54f oddword"


def test_a_bank_that_is_not_there_yet_is_empty(engine, home):
    with provider_on(home, engine.url, bank_id=new_bank()) as provider:
        assert provider.prefetch("anything?") == ""
        found = provider.handle_tool_call("hindsight_recall", {"query": "anything?"})
        assert json.loads(found) == {"result": "No relevant memories found."}


def test_all_memories_are_listed_in_pages(engine, home):
    with provider_on(home, engine.url, bank_id=new_bank()) as provider:
        assert provider.list_memories("").items == ()
        for number in range(3):
            provider.sync_turn(f"fact{number} is here", "Noted.", turn_id=f"t{number}", attempt=1)
        first = provider.list_memories("")
        assert {f"fact{n}" for n in range(3)} == {
            word for each in first.items for word in each.text.split() if word.startswith("fact")
        }
        assert all(each.id and each.created > 0 for each in first.items)
        assert provider.list_memories(first.cursor).items == ()


def test_a_question_without_a_word_finds_nothing(engine, home):
    with provider_on(home, engine.url, bank_id=new_bank()) as provider:
        provider.sync_turn("Hello there.", "Hello.", turn_id="t1", attempt=1)
        assert provider.prefetch("?!") == ""


def test_odd_characters_and_a_megabyte_come_through(engine, home):
    bank = new_bank()
    large = "many words here " * 65_000 + "needle"
    with provider_on(home, engine.url, bank_id=bank) as provider:
        provider.sync_turn(ODD, "I see 👀", turn_id="odd", attempt=1)
        provider.sync_turn(large, "Long.", turn_id="large", attempt=1)
        assert "👨‍👩‍👧" in provider.prefetch("oddword")
        assert "needle" in provider.prefetch("needle")
        provider.prefetch(large)  # the server would refuse so long a question
        tool = json.loads(provider.handle_tool_call("hindsight_recall", {"query": large}))
    assert "result" in tool
    stored = engine.get(f"/v1/default/banks/{bank}/documents/large")["original_text"]
    assert stored == f"User: {large}\nAssistant: Long."


def test_four_sessions_at_once_lose_nothing_and_do_not_mix(engine, home, site):
    set_up(home, site, engine.url, bank_id_template="four-{user}")
    problems = []

    def talk(user: str) -> None:
        manager = MemoryManager.from_config(home)
        manager.initialize_all(f"talk of {user}", user_id=user)
        for number in range(10):
            manager.sync_all(f"{user} says secret{number}", "Noted.")
        if not manager.flush_pending(60):
            problems.append(f"{user} waits")
        found = manager.prefetch_all("secret3", session_id=f"talk of {user}")
        if f"{user} says secret3" not in found or "says" in found.replace(f"{user} says", ""):
            problems.append(found)
        manager.shutdown_all()

    users = ["ann", "ben", "cem", "dot"]
    threads = [threading.Thread(target=talk, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [len(set(engine.documents(f"four-{user}"))) for user in users] == [10] * 4


def test_notes_are_followed(engine, home):
    bank = new_bank()
    with provider_on(home, engine.url, bank_id=bank) as provider:
        for target in ("memory", "user"):
            provider.on_memory_write("add", target, "prefers tea", {}, event_id="1")
            provider.on_memory_write("add", target, "lives in Oslo", {}, event_id="2")
        change = {"old_text": "prefers tea"}
        for attempt in (1, 2):
            provider.on_memory_write(
                "replace", "user", "prefers coffee", change, event_id="3", attempt=attempt
            )
        provider.on_memory_write("remove", "memory", "", {"old_text": "prefers tea"}, event_id="4")
        found = provider.prefetch("prefers lives")
    assert sorted(found.split("\n\n")[1].splitlines()) == [
        "- lives in Oslo", "- lives in Oslo", "- prefers coffee",
    ]  # fmt: skip


def test_a_wrong_key_is_told_in_one_line(locked_engine, home):
    for key in ("wrong", ""):
        with provider_on(home, locked_engine.url, server_key=key) as provider:
            with pytest.raises(HermesError, match="the key was refused") as refused:
                provider.sync_turn("a", "b", turn_id="t", attempt=1)
            assert not provider.probe(write=False).ok
            answer = json.loads(provider.handle_tool_call("hindsight_recall", {"query": "a"}))
            assert "the key was refused" in answer["error"]
        assert "\n" not in str(refused.value)


def test_the_right_key_opens(locked_engine, home):
    with provider_on(home, locked_engine.url, server_key="the-key-of-the-tests") as provider:
        assert provider.probe(write=True).ok


def test_a_slow_server_costs_a_turn_its_budget_and_no_more(engine, model, home, site, monkeypatch):
    set_up(home, site, engine.url, bank_id=new_bank())
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s")
    manager.sync_all("The colour is teal.", "Noted.")
    assert manager.flush_pending(60)
    monkeypatch.setattr(model, "delay", 8.0)
    assert "teal" not in manager.prefetch_all("colour")  # or it would have waited for the model
    monkeypatch.setattr(model, "delay", 0.0)
    manager.shutdown_all()


def test_a_request_that_takes_too_long_is_told(engine, model, home, monkeypatch):
    with provider_on(home, engine.url, bank_id=new_bank(), timeout=1) as provider:
        monkeypatch.setattr(model, "delay", 3.0)
        with pytest.raises(HermesError, match="did not answer in time"):
            provider.sync_turn("a", "b", turn_id="t", attempt=1)


def test_the_probe_leaves_no_bank_behind(engine, home):
    def banks() -> list[str]:
        return [each["bank_id"] for each in engine.get("/v1/default/banks")["banks"]]

    before = banks()
    with provider_on(home, engine.url, bank_id=new_bank()) as provider:
        result = provider.probe(write=True)
    assert result.ok, result
    assert result.detail.startswith("Hindsight 1.1.0 at ")
    assert result.detail.endswith("stored and recalled")
    assert banks() == before


def test_missions_are_given_to_the_bank(engine, home):
    bank = new_bank()
    missions = {"bank_mission": "Helps Ann.", "bank_retain_mission": "Only birds."}
    with provider_on(home, engine.url, bank_id=bank, **missions) as provider:
        provider.sync_turn("A wren.", "Yes.", turn_id="t", attempt=1)
    config = engine.get(f"/v1/default/banks/{bank}/config")["config"]
    assert config["reflect_mission"] == "Helps Ann."
    assert config["retain_mission"] == "Only birds."


def test_tags_choose_what_is_recalled(engine, home):
    bank = new_bank()
    with provider_on(home, engine.url, bank_id=bank, retain_tags="work") as provider:
        provider.sync_turn("The plan is red.", "Yes.", turn_id="t1", attempt=1)
    with provider_on(home, engine.url, bank_id=bank) as provider:
        provider.sync_turn("The plan is blue.", "Yes.", turn_id="t2", attempt=1)
    strict = {"recall_tags": ["work"], "recall_tags_match": "any_strict"}
    with provider_on(home, engine.url, bank_id=bank, **strict) as provider:
        found = provider.prefetch("plan")
    assert "red" in found
    assert "blue" not in found


def test_the_kit_passes_with_the_server(engine, machine):
    install_plugin("hindsight", machine.site.folder)
    settings = machine.home / "settings.json"
    settings.write_text(json.dumps({"mode": "local_external", "api_url": engine.url}))
    result = machine.run(
        "check", "hindsight", "--level", "should", "--live", "--config", str(settings), timeout=300
    )
    assert result.code == 0, result.out
