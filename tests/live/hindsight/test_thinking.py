"""The real server with a model behind it: facts are extracted, and reflect answers from them."""

from __future__ import annotations

import json
import time

import pytest
from support.hindsight_agents import new_bank, provider_on

from hermes_core import HermesError

SAID = "My favourite colour is teal. I live in Oslo now."


def facts(provider) -> str:
    return json.loads(provider.handle_tool_call("hindsight_recall", {"query": "colour"}))["result"]


def test_facts_are_extracted_and_recalled_as_soon_as_a_turn_is_confirmed(
    thinking_engine, model, home
):
    with provider_on(home, thinking_engine.url, bank_id=new_bank()) as provider:
        provider.sync_turn(SAID, "Noted, thank you.", turn_id="t1", attempt=1)
        assert facts(provider) == "1. My favourite colour is teal."
    assert model.stats()["facts"] > 0
    assert model.stats()["unrecognised"] == 0


def test_an_observation_takes_the_place_of_its_fact(thinking_engine, home):
    bank = new_bank()
    with provider_on(home, thinking_engine.url, bank_id=bank) as provider:
        provider.sync_turn(SAID, "Noted, thank you.", turn_id="t1", attempt=1)
        path = f"/v1/default/banks/{bank}/memories/list?type=observation"
        end = time.monotonic() + 60
        while not thinking_engine.get(path)["items"]:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert facts(provider) == "1. My favourite colour is teal."


def test_reflect_answers_before_a_turn_and_as_a_tool(thinking_engine, home):
    reflecting = {"bank_id": new_bank(), "recall_prefetch_method": "reflect"}
    with provider_on(home, thinking_engine.url, **reflecting) as provider:
        assert provider.prefetch("Which colour do I like?") == ""
        provider.sync_turn(SAID, "Noted, thank you.", turn_id="t1", attempt=1)
        assert "teal" in provider.prefetch("Which colour do I like?")
        status = provider.recall_status()
        answer = json.loads(
            provider.handle_tool_call("hindsight_reflect", {"query": "Which colour do I like?"})
        )
    assert status is not None
    assert status.count >= 1
    assert "teal" in answer["result"]


def test_without_its_model_the_server_takes_no_turn_and_has_it_once_later(
    thinking_engine, model, home, monkeypatch
):
    bank = new_bank()
    with provider_on(home, thinking_engine.url, bank_id=bank) as provider:
        with monkeypatch.context() as patch:
            patch.setattr(model, "status", 500)
            with pytest.raises(HermesError, match="the server failed"):
                provider.sync_turn(SAID, "Noted.", turn_id="t1", attempt=1)
        provider.sync_turn(SAID, "Noted.", turn_id="t1", attempt=2)
        assert facts(provider) == "1. My favourite colour is teal."
    assert thinking_engine.documents(bank) == ["t1"]


def test_reflect_on_a_server_without_a_model_says_what_is_missing(engine, home):
    with provider_on(home, engine.url, bank_id=new_bank()) as provider:
        answer = json.loads(provider.handle_tool_call("hindsight_reflect", {"query": "x"}))
    assert "Reflect requires an LLM provider" in answer["error"]
