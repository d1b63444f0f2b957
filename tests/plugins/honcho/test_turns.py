"""Turns: as messages of two peers, once."""

import threading

import pytest
from support.honcho_agents import said

from hermes_core import HermesError
from hermes_memory_honcho.texts import CONTINUED


def posted(server):
    return [path for method, path in server.requests if path.endswith("/messages")]


def test_a_turn_is_a_message_of_the_person_and_one_of_the_agent(server, agent):
    agent(user_id="alice", gateway_session_key="chat-7").say("I like tea.", "So do I.")
    user, assistant = server.store.messages("hermes", "chat-7")
    assert (user["peer_id"], user["content"]) == ("alice", "I like tea.")
    assert (assistant["peer_id"], assistant["content"]) == ("hermes", "So do I.")
    assert user["metadata"] == {"session_id": "s1", "turn_id": "turn-s1-1", "part": 0}


def test_starting_asks_the_server_nothing(server, agent):
    agent()
    assert server.requests == []


def test_after_the_first_turn_each_is_one_request(server, agent):
    one = agent()
    one.say("first")
    server.requests.clear()
    one.say("second")
    assert len(server.requests) == 1


def test_a_turn_whose_confirmation_got_lost_is_there_once(server, agent):
    one = agent()
    server.behaviour.drop = 1
    with pytest.raises(HermesError, match="can't be reached"):
        one.say("I like tea.")
    assert len(posted(server)) == 1  # the SDK did not try again by itself
    one.say("I like tea.", again="turn-s1-1")
    assert said(server) == ["I like tea.", "Noted."]


def test_of_a_turn_that_came_through_in_part_the_rest_is_added(server, agent):
    one = agent(config={"messageMaxChars": 100})
    long = " ".join(f"word{number}" for number in range(2000))
    one.say("first")
    server.behaviour.drop = 1
    with pytest.raises(HermesError):
        one.say(long, "Noted.")
    there = len(said(server)) - 2
    assert there == 100  # as many as a request may have
    one.say(long, "Noted.", again="turn-s1-2")
    parts = [each.removeprefix(CONTINUED) for each in said(server)[2:-1]]
    assert "".join(parts) == long
    assert said(server)[-1] == "Noted."


def test_a_message_of_a_megabyte_is_there_in_pieces_that_honcho_takes(server, agent):
    text = "The parrot sat on the wire. " * 38_000
    agent().say(text, text)
    found = said(server)
    assert max(map(len, found)) <= 25_000
    half = len(found) // 2
    assert "".join(each.removeprefix(CONTINUED) for each in found[:half]) == text
    assert len(posted(server)) == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Grüße, 世界 👩‍👩‍👧 עולם \u202eabc\u202c e\u0301 \u2028", None),
        ("half a pair: \ud83d.", "half a pair: ?."),
        ("a NUL \0 inside", "a NUL \ufffd inside"),
        ("%s {0} \\ ' \" -- ;", None),
    ],
)
def test_any_text_arrives(server, agent, text: str, kept: str | None):
    one = agent()
    one.say(text)
    assert said(server)[0] == (kept or text)
    assert isinstance(one.recall(text), str)


def test_an_empty_side_is_left_out(server, agent):
    agent().say("", "Only this.")
    assert said(server) == ["Only this."]


def test_turns_are_not_sent_if_messages_are_not_saved(server, agent):
    one = agent(config={"saveMessages": False})
    one.say("Secret plan.")
    one.provider.on_delegation("task", "result", event_id="d1")
    one.end()
    assert server.requests == []
    one.note("add", "Likes tea.")
    assert server.requests != []


@pytest.mark.parametrize("context", ["cron", "subagent", "flush"])
def test_other_contexts_write_nothing(server, agent, context: str):
    one = agent(agent_context=context)
    one.say("The cron job ran.")
    one.note("add", "A note.")
    one.provider.on_delegation("task", "result", event_id="d1")
    one.end()
    assert server.requests == []
    answer = one.call("honcho_conclude", conclusion="A fact.")
    assert "only reads" in answer["error"]
    assert "only reads" in one.call("honcho_profile", card=["x"])["error"]
    assert server.requests == []


def test_a_turn_is_filed_under_the_session_that_it_comes_with(server, agent):
    one = agent(config={"sessionStrategy": "per-session"})
    one.provider.on_session_switch("s2", parent_session_id="s1", reset=True)
    one.say("late", session_id="s1")
    one.say("now", session_id="")
    assert [each["content"] for each in server.store.messages("hermes", "s1")] == ["late", "Noted."]
    assert [each["content"] for each in server.store.messages("hermes", "s2")] == ["now", "Noted."]


def test_what_a_subagent_found_out_is_something_that_the_agent_says(server, agent):
    agent().provider.on_delegation("Find it.", "Found.", child_session_id="c", event_id="d1")
    (message,) = server.store.messages("hermes")
    assert message["peer_id"] == "hermes"
    assert "Find it." in message["content"]
    assert "Found." in message["content"]
    assert message["metadata"]["child"] == "c"


def test_without_an_outbox_turns_wait_in_a_thread_that_shutdown_empties(server, agent):
    one = agent()
    server.behaviour.delay = 0.05
    for number in range(5):
        one.provider.sync_turn(f"turn {number}", "Noted.", session_id="s1")
    one.provider.shutdown()
    assert said(server)[::2] == [f"turn {number}" for number in range(5)]
    writers = [each for each in threading.enumerate() if "honcho-writes" in each.name]
    for writer in writers:  # its last step may still be ending
        writer.join(10)
    assert not any(writer.is_alive() for writer in writers)


def test_profiles_have_workspaces_of_their_own(server, agent):
    agent("s1", agent_identity="default").say("mine")
    agent("s2", agent_identity="coder").say("the coder's")
    assert said(server, "hermes") == ["mine", "Noted."]
    assert said(server, "hermes_coder") == ["the coder's", "Noted."]


def test_who_sees_whom_is_told_with_the_session(server, agent):
    agent(user_id="alice", gateway_session_key="c", config={"observationMode": "unified"}).say("x")
    members = server.store.members("hermes", "c")
    assert members["alice"] == {"observe_me": True, "observe_others": False}
    assert members["hermes"] == {"observe_me": False, "observe_others": True}


def test_a_server_that_has_lost_everything_is_told_anew(server, agent):
    one = agent(gateway_session_key="c")
    one.say("before")
    server.store.delete_session("hermes", "c")
    server.store.delete_workspace("hermes")
    one.say("after")
    assert said(server) == ["after", "Noted."]
    assert server.store.members("hermes", "c")["hermes"]["observe_others"] is True
