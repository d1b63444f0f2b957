"""Sessions: groups, chats, observation, switches, times and summaries."""

import time
from datetime import datetime
from types import SimpleNamespace

import pytest
from support.honcho_agents import manager, said

from hermes_core import ConfigError
from hermes_memory_honcho import service
from hermes_memory_honcho.settings import read_settings


def test_a_group_of_fifty_people_works(server, agent):
    people = [agent(f"s{each}", user_id=f"user{each}", chat_id="g1", platform="telegram")
              for each in range(50)]  # fmt: skip
    for number, each in enumerate(people):
        each.say(f"Hello from {number}.")
    (session,) = server.store.sessions("hermes")
    members = server.store.members("hermes", session["id"])
    assert len(members) == 51
    assert members["hermes"]["observe_others"] is True
    assert sum(each["observe_others"] for each in members.values()) == 10
    assert said(server)[::2] == [f"Hello from {number}." for number in range(50)]
    assert "Hello from 49" in people[49].call("honcho_search", query="Hello from 49")["result"]


def test_who_turns_observation_off_is_obeyed_in_a_session_that_runs(server, agent):
    agent("s1", user_id="alice", chat_id="7").say("I like tea.")
    assert server.store.conclusions("hermes") != []
    before = len(server.store.conclusions("hermes"))
    off = {"observation": {"user": {"observeMe": False}, "ai": {"observeMe": False}}}
    agent("s2", user_id="alice", chat_id="7", config=off).say("I like coffee.")
    (session,) = server.store.sessions("hermes")
    assert server.store.members("hermes", session["id"])["alice"]["observe_me"] is False
    assert len(server.store.conclusions("hermes")) == before
    agent("s3", user_id="alice", chat_id="7").say("I like milk.")
    assert server.store.members("hermes", session["id"])["alice"]["observe_me"] is True


@pytest.mark.parametrize("more", [{}, {"user_id": "u1"}])
def test_a_chat_is_a_session_also_by_its_number_alone(server, agent, more):
    places = [
        {"platform": "telegram", "chat_id": "7"},
        {"platform": "discord", "chat_id": "7"},
        {"platform": "telegram", "chat_id": "8"},
        {"platform": "telegram", "chat_id": "7", "thread_id": "t"},
        {"platform": "telegram", "chat_id": "7", "gateway_session_key": "agent:main:telegram:7"},
    ]
    for number, place in enumerate(places):
        for _ in range(2):
            agent(f"s{number}", **more, **place).say(f"place {number}")
    sessions = server.store.sessions("hermes")
    assert len(sessions) == len(places)
    for each in sessions:
        told = {one["content"] for one in server.store.messages("hermes", each["id"])}
        assert len(told) == 2  # what is said there, and the answer


def test_when_a_turn_was_said_is_sent_with_each_message(server, agent):
    one = agent()
    one.say("x", "y", said_at=1_700_000_000.0)
    assert {each["created_at"] for each in server.store.messages("hermes")} == {
        "2023-11-14T22:13:20Z"
    }
    one.say("now")
    assert server.store.messages("hermes")[-1]["created_at"] > "2026"


def test_and_with_what_a_subagent_found_however_late_it_is_sent(server, home, monkeypatch):
    monkeypatch.setenv("HONCHO_BASE_URL", server.url)
    server.behaviour.refuse = 503
    one = manager(home)
    one.on_delegation("Look for tea.", "There is some.", child_session_id="c1")
    before = time.time()
    assert not one.flush_pending(0.2)
    one.shutdown_all()
    server.behaviour.refuse = 0
    later = SimpleNamespace(**{**vars(time), "time": lambda: before + 3600})
    monkeypatch.setattr(service, "time", later)
    other = manager(home)
    assert other.flush_pending(30)
    other.shutdown_all()
    (message,) = server.store.messages("hermes")
    assert datetime.fromisoformat(message["created_at"]).timestamp() <= before


def test_a_turn_that_waited_for_others_has_its_own_time(server, agent):
    one = agent(config={"writeFrequency": 2})
    one.say("first", said_at=1_700_000_000.0)
    one.say("second", said_at=1_700_000_100.0)
    times = [each["created_at"] for each in server.store.messages("hermes")]
    assert times == ["2023-11-14T22:13:20Z"] * 2 + ["2023-11-14T22:15:00Z"] * 2


def test_the_newer_of_both_summaries_is_used(agent):
    one = agent(config={"dialecticCadence": 0})
    for number in range(30):
        one.say(f"Turn {number}.", said_at=1_700_000_000.0 + number)
    one.provider.queue_prefetch("x")
    assert "60 messages" in one.provider.on_pre_compress([])
    for number in range(30, 40):
        one.say(f"Turn {number}.", said_at=1_700_000_000.0 + number)
    one.provider.queue_prefetch("x")
    assert "80 messages" in one.provider.on_pre_compress([])


def test_a_session_can_do_without_reasoning_card_summary_and_dream(server, agent):
    agent("s1", chat_id="7").say("I like tea.")
    known = len(server.store.conclusions("hermes"))
    (session,) = [each["id"] for each in server.store.sessions("hermes")]
    switches = {
        "*": {"reasoning": True, "summary": False},
        session: {"reasoning": False, "card": False, "dream": False},
    }
    agent("s2", chat_id="7", config={"sessionSwitches": switches}).say("I like coffee.")
    (kept,) = server.store.sessions("hermes")
    assert kept["configuration"] == {
        "reasoning": {"enabled": False},
        "summary": {"enabled": False},
        "peer_card": {"use": False, "create": False},
        "dream": {"enabled": False},
    }
    assert len(server.store.conclusions("hermes")) == known


@pytest.mark.parametrize("wrong", [5, {"*": {"thinking": True}}, {"*": {"dream": "yes"}}, {"a": 1}])
def test_a_switch_that_there_is_not_is_named(home, wrong):
    with pytest.raises(ConfigError, match="sessionSwitches"):
        read_settings(home, given={"sessionSwitches": wrong})
