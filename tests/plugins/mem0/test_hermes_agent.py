"""As hermes-agent calls it: no settings, no outbox, no ids of turns."""

import json
import time

from support.mem0_places import KEY

from hermes_memory_mem0 import Mem0Provider

LISBON = "I have moved to Lisbon."


def _started(home, session="s1", **facts):
    provider = Mem0Provider()
    assert provider.is_available(), provider.unavailable_reason()
    provider.initialize(session, hermes_home=str(home), platform="cli", **facts)
    return provider


def test_variables_are_all_that_it_needs(home, server, monkeypatch):
    monkeypatch.setenv("MEM0_HOST", server.behind.url)
    monkeypatch.setenv("MEM0_API_KEY", KEY)
    first = _started(home, agent_identity="default", agent_workspace="hermes")
    first.on_turn_start(1, LISBON)
    assert first.prefetch(LISBON) == ""
    first.sync_turn(LISBON, "Noted.", session_id="s1")
    first.queue_prefetch(LISBON)
    first.on_memory_write("add", "user", "Likes tea a lot.")
    first.on_session_end([])
    first.shutdown()
    second = _started(home, "s2")
    assert LISBON in second.prefetch("Which city have I moved to?")
    second.shutdown()
    assert server.texts() == [LISBON, "Likes tea a lot."]


def test_so_is_its_file(home, server):
    config = {"mode": "platform", "host": server.behind.url, "api_key": KEY, "user_id": "ann"}
    (home / "mem0.json").write_text(json.dumps(config))
    provider = _started(home)
    provider.sync_turn(LISBON, "Noted.")
    provider.shutdown()
    assert [row["user_id"] for row in server.rows()] == ["ann"]


def test_a_server_that_is_away_for_a_moment_costs_no_turn(home, server, monkeypatch):
    monkeypatch.setenv("MEM0_HOST", server.behind.url)
    monkeypatch.setenv("MEM0_API_KEY", KEY)
    provider = _started(home)
    server.behind.status = 503
    provider.sync_turn(LISBON, "Noted.")
    while not server.behind.asked:
        time.sleep(0.01)
    server.behind.status = 0
    provider.shutdown()
    assert server.texts() == [LISBON]
