"""`writeFrequency`: turns that wait for others, and are lost by nothing."""

import sqlite3
import stat
import sys

import pytest
from support.honcho_agents import said

from hermes_core import HermesError
from hermes_memory_honcho import writes


def posted(server):
    return [path for _, path in server.requests if path.endswith("/messages")]


@pytest.mark.parametrize("frequency", ["async", "turn", 1])
def test_each_turn_is_sent_at_once_and_confirmed(server, agent, home, frequency):
    one = agent(config={"writeFrequency": frequency})
    one.say("first")
    assert len(said(server)) == 2
    assert one.provider.confirms_delivery is True
    assert not (home / "honcho" / "held.db").exists()


def test_every_third_turn_three_are_sent_in_one_request(server, agent):
    one = agent(config={"writeFrequency": 3})
    one.say("one")
    one.say("two")
    assert server.requests == []
    one.say("three")
    assert said(server)[::2] == ["one", "two", "three"]
    assert len(posted(server)) == 1
    one.say("four")
    assert len(said(server)) == 6


def test_a_session_is_sent_at_its_end(server, agent):
    one = agent(config={"writeFrequency": "session"})
    for number in range(5):
        one.say(f"turn {number}")
    assert server.requests == []
    one.end()
    assert said(server)[::2] == [f"turn {number}" for number in range(5)]
    assert len(posted(server)) == 1


def test_the_end_sends_what_led_to_the_session_too(server, agent):
    one = agent(config={"writeFrequency": "session", "sessionStrategy": "per-session"})
    one.say("before")
    one.provider.on_session_switch("s2", parent_session_id="s1")
    one.say("after", session_id="s2")
    one.end()
    assert sorted(said(server)[::2]) == ["after", "before"]


def test_a_turn_that_waits_is_not_confirmed(agent):
    assert agent(config={"writeFrequency": 3}).provider.confirms_delivery is False


def test_what_waits_is_on_the_disk_for_its_owner_alone(server, agent, home):
    agent(config={"writeFrequency": "session"}).say("kept")
    path = home / "honcho" / "held.db"
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with sqlite3.connect(path) as db:
        assert "kept" in db.execute("SELECT content FROM held").fetchone()[0]


def test_what_a_dead_agent_has_left_is_sent_by_a_later_one(server, agent, monkeypatch):
    agent("s1", config={"writeFrequency": "session"}).say("left behind")
    agent("s2").say("soon after")
    assert "left behind" not in said(server)  # it may still be alive
    monkeypatch.setattr(writes, "_LEFT_SECONDS", 0.0)
    agent("s3").say("an hour later")
    assert said(server)[2:] == ["left behind", "Noted.", "an hour later", "Noted."]


def test_what_could_not_be_sent_goes_on_waiting_and_is_sent_once(server, agent):
    one = agent(config={"writeFrequency": 2})
    one.say("one")
    server.behaviour.drop = 1
    with pytest.raises(HermesError):
        one.say("two")
    assert len(said(server)) == 4  # it came through, and nobody knows
    one.end()
    assert said(server)[::2] == ["one", "two"]


def test_a_turn_that_was_sent_does_not_wait_again(server, agent):
    one = agent(config={"writeFrequency": 2})
    first = one.say("one")
    one.say("two")
    one.say("one", again=first)
    one.end()
    assert said(server)[::2] == ["one", "two"]


def test_a_turn_that_waits_already_waits_once(server, agent):
    one = agent(config={"writeFrequency": "session"})
    first = one.say("one")
    one.say("one", again=first)
    one.end()
    assert said(server)[::2] == ["one"]


def test_two_that_send_at_the_same_time_send_it_once(home):
    place = writes.SessionAddress("session", "user", "ai")
    turn = writes.BufferedTurn("t1", place, [writes.Utterance("user", "x")], {})
    first, second = writes.TurnBuffer(home, "hermes"), writes.TurnBuffer(home, "hermes")
    assert first.put(turn) == 1
    taken = first.take(place)
    assert [each.key for each in taken] == ["t1"]
    assert second.take() == []
    first.give_back(taken)
    (again,) = second.take()
    assert again.again
    second.sent([again])
    assert first.take() == []


def test_who_took_turns_and_died_does_not_keep_them(home, monkeypatch):
    place = writes.SessionAddress("session", "user", "ai")
    kept = writes.TurnBuffer(home, "hermes")
    kept.put(writes.BufferedTurn("t1", place, [writes.Utterance("user", "x")], {}))
    assert kept.take()
    monkeypatch.setattr(writes, "_SEND_SECONDS", 0.0)
    assert [each.again for each in kept.take()] == [True]


def test_the_turns_of_another_workspace_are_left_alone(home):
    place = writes.SessionAddress("session", "user", "ai")
    writes.TurnBuffer(home, "mine").put(
        writes.BufferedTurn("t1", place, [writes.Utterance("user", "x")], {})
    )
    assert writes.TurnBuffer(home, "other").take() == []


def test_a_damaged_file_is_named_and_left_alone(server, agent, home):
    path = home / "honcho" / "held.db"
    path.parent.mkdir()
    path.write_bytes(b"no database at all, but long enough to be one" * 100)
    before = path.read_bytes()
    with pytest.raises(HermesError, match=r"held\.db"):
        agent(config={"writeFrequency": 3}).say("x")
    assert path.read_bytes() == before
