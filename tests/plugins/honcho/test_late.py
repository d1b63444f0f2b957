"""Answers that come too late, pauses that a server asks for, and texts that it does not like.

The server is held and released by the tests: nothing depends on how fast the machine is.
"""

import threading
import time

import pytest
from support.honcho_agents import said
from support.honcho_server import until

from hermes_core import HermesError
from hermes_core.service import BackendError, Cause
from hermes_memory_honcho import service

IMPATIENT = {"timeout": 0.3}


def test_a_write_that_is_carried_out_after_we_gave_up_is_there_once(server, agent, monkeypatch):
    one = agent(config=IMPATIENT)
    one.say("first")
    server.behaviour.held = 1
    with pytest.raises(HermesError, match="did not answer in time"):
        one.say("I like tea.")
    assert said(server)[2:] == []  # the server has it, and has not got round to it
    looks = []

    def release_after_the_second(seconds: float) -> None:
        """The look-up overtakes the write: only a later one finds it."""
        looks.append(seconds)
        if len(looks) == 2:
            server.release()
            assert until(lambda: server.carried_out == 2)

    monkeypatch.setattr(service.time, "sleep", release_after_the_second)
    one.say("I like tea.", again="turn-s1-2")
    assert said(server)[2:] == ["I like tea.", "Noted."]
    assert len(looks) >= 2


def test_turns_keep_their_order_when_the_server_was_frozen(server, agent):
    one = agent(config=IMPATIENT)
    one.say("turn 0")
    server.behaviour.frozen = True
    with pytest.raises(HermesError):
        one.say("turn 1")
    thaw = threading.Timer(0.1, lambda: setattr(server.behaviour, "frozen", False))
    thaw.start()
    one.say("turn 1", again="turn-s1-2")
    one.say("turn 2")
    thaw.join()
    assert said(server)[::2] == ["turn 0", "turn 1", "turn 2"]


def test_what_was_too_slow_gets_more_time_at_the_next_attempt(server, agent, monkeypatch):
    one = agent(config={"timeout": 2})
    given = []
    seconds = service.TimedClient._seconds

    def noted(wire, request):
        given.append(seconds(wire, request))
        return given[-1]

    monkeypatch.setattr(service.TimedClient, "_seconds", noted)
    one.say("x")
    first, given[:] = max(given), []
    one.say("y", again="turn-s1-9", attempt=2)
    second, given[:] = max(given), []
    one.say("z", again="turn-s1-10", attempt=9)
    assert (first, second) == (2, 6)
    assert max(given) <= 100  # a host ends a write after 120
    one.say("after a long outage", again="turn-s1-11", attempt=5_000)
    assert max(given) <= 100


def test_a_write_that_certainly_did_not_arrive_is_not_waited_for(server, agent, monkeypatch):
    one = agent()
    one.say("first")
    server.behaviour.refuse = 503
    with pytest.raises(HermesError):
        one.say("second")
    server.behaviour.refuse = 0
    monkeypatch.setattr(service, "PATIENCE", (3600.0,))
    one.say("second", again="turn-s1-2")
    assert said(server)[::2] == ["first", "second"]


def test_many_turns_that_somebody_left_are_waited_for_but_once(server, agent, monkeypatch):
    slept = []
    monkeypatch.setattr(service.time, "sleep", slept.append)
    one = agent()
    for number in range(20):
        one.say(f"turn {number}", again=f"left-{number}")
    assert len(slept) == len(service.PATIENCE)
    assert said(server)[::2] == [f"turn {number}" for number in range(20)]


def test_a_note_that_is_carried_out_late_is_there_once(server, agent, monkeypatch):
    from support.honcho_agents import facts

    one = agent(config=IMPATIENT)
    server.behaviour.frozen = True
    with pytest.raises(HermesError):
        one.note("add", "Likes tea.", event_id="n1")
    server.behaviour.frozen = False
    one.note("add", "Likes tea.", event_id="n1", attempt=2)
    assert facts(server) == ["Likes tea."]


@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_that_the_server_asks_for_is_kept_and_told_to_the_outbox(server, agent, status):
    one = agent()
    one.say("first")
    server.behaviour.refuse = status
    server.behaviour.retry_after = "600"
    with pytest.raises(BackendError) as error:
        one.say("second")
    assert 590 < error.value.retry_after <= 600
    asked = len(server.requests)
    with pytest.raises(BackendError) as error:
        one.recall("What was first?")
    assert error.value.cause is Cause.QUOTA
    assert 590 < error.value.retry_after <= 600
    assert "no requests for" in one.call("honcho_search", query="x")["error"]
    assert len(server.requests) == asked


def test_after_the_pause_it_is_asked_again(server, agent):
    one = agent()
    one.say("first")
    server.behaviour.refuse, server.behaviour.retry_after = 429, "1"
    with pytest.raises(BackendError):
        one.say("second")
    server.behaviour.refuse = 0
    wire = one.provider.service.wire
    assert until(lambda: not wire.pause)
    one.say("second", again="turn-s1-2")
    assert said(server)[::2] == ["first", "second"]


def test_a_pause_outlasts_an_error_that_asks_for_none(server, agent):
    one = agent()
    one.say("first")
    server.behaviour.held = 1

    def say_second() -> None:
        with pytest.raises(BackendError):
            one.say("second")

    behind = threading.Thread(target=say_second)
    behind.start()
    assert until(lambda: not server.behaviour.held)
    server.behaviour.refuse, server.behaviour.retry_after = 429, "600"
    with pytest.raises(BackendError):
        one.recall("What was first?")
    server.behaviour.retry_after = ""
    server.release()  # it was on its way before the pause, and is refused without one
    behind.join()
    assert one.provider.service.wire.pause > 500


def test_a_date_is_a_pause_too(server, agent):
    from email.utils import formatdate

    one = agent()
    server.behaviour.refuse = 429
    server.behaviour.retry_after = formatdate(time.time() + 300, usegmt=True)
    with pytest.raises(BackendError) as error:
        one.say("x")
    assert 200 < error.value.retry_after <= 300


@pytest.mark.parametrize(
    "token",
    ["<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"],
)
def test_special_tokens_are_kept_and_found_and_read_the_same(server, agent, token):
    one = agent()
    one.say(f"The stop token is {token} here.", f"So {token} it is.")
    kept = said(server)[0]
    assert token not in kept
    assert kept.replace("\u2060", "") == f"The stop token is {token} here."
    one.note("add", f"Uses {token} a lot.")
    one.call("honcho_conclude", conclusion=f"Knows {token}.")
    one.note("remove", f"Uses {token} a lot.")
    assert "stop token" in one.call("honcho_search", query=f"what is {token}")["result"]
    assert "stop token" in one.call("honcho_reasoning", query=f"stop token {token}?")["result"]
    assert "stop token" in one.recall(f"What is the stop token {token}?")
    (listed,) = one.call("honcho_conclude", list=True, query=f"Knows {token}")["conclusions"][:1]
    assert listed["content"].replace("\u2060", "") == f"Knows {token}."


@pytest.mark.parametrize("size", [62_000, 2_600_000])
def test_a_message_of_any_size_works(server, agent, size):
    text = ("<|endoftext|> The parrot sat on the wire. " * (size // 42 + 1))[:size]
    agent().say(text, "Noted.")
    found = said(server)
    assert max(map(len, found)) <= 25_000
    joined = "".join(each.removeprefix("[continued] ") for each in found[:-1])
    assert joined.replace("\u2060", "") == text
    assert found[-1] == "Noted."
