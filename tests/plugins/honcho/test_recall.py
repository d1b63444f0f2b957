"""Recall: for the message at hand, in time, of the person who asks."""

from types import SimpleNamespace

import pytest

from hermes_core import HermesError
from hermes_memory_honcho import recall
from hermes_memory_honcho.texts import around, clipped, is_trivial, shortened

QUIET = {"dialecticCadence": 0}


def test_what_was_said_comes_back_in_another_session(agent):
    agent("s1").say("My dog is called Rex.")
    assert "Rex" in agent("s2").recall("What is my dog called?")


def test_it_is_about_the_message_at_hand_and_not_the_one_before(agent):
    one = agent(config=QUIET)
    one.say("My dog is called Rex.")
    one.say("The deployment runs on Fridays.")
    one.provider.queue_prefetch("When is the deployment?")
    found = one.recall("What is the name of the dog?")
    assert "Rex" in found
    assert "Fridays" not in found
    assert "Fridays" in one.recall("When is the deployment?")


def test_on_the_first_message_there_is_recall_and_on_an_empty_memory_there_is_none(agent):
    assert agent("s1").recall("What is my dog called?") == ""
    agent("s2").say("My dog is called Rex.")
    assert "Rex" in agent("s3").recall("What is my dog called?")


def test_how_many_memories_it_gave_is_told(agent):
    one = agent(config=QUIET)
    assert one.provider.recall_status() is None
    one.say("My dog is called Rex.")
    one.recall("dog?")
    status = one.provider.recall_status()
    assert (status.provider_label, status.count) == ("Honcho", 2)


def test_people_do_not_see_each_others_memories(server, agent):
    alice = agent("s1", user_id="alice")
    bob = agent("s2", user_id="bob")
    alice.say("My dog is called Rex.", "What a nice dog Rex is.")
    bob.say("I have a cat.")
    for query in ("What is my dog called?", "What did you say about the dog Rex?"):
        assert "Rex" in alice.recall(query)
        assert "Rex" not in bob.recall(query).replace(query, "")
    for peer in ("user", "ai"):
        for tool in ("honcho_search", "honcho_reasoning", "honcho_context"):
            arguments = {} if tool == "honcho_context" else {"query": "dog Rex"}
            assert "nice dog" not in str(bob.call(tool, peer=peer, **arguments)), (tool, peer)
            assert "called Rex" not in str(bob.call(tool, peer=peer, **arguments)), (tool, peer)
    assert "can't be asked" in bob.call("honcho_search", query="dog", peer="alice")["error"]


def test_the_model_of_honcho_is_asked_with_the_message(server, agent):
    one = agent()
    one.say("My dog is called Rex.")
    found = one.recall("Who is the dog?")
    assert "## Honcho's answer\nKnown of user-default-" in found


def test_the_model_is_asked_as_often_as_set(server, agent):
    one = agent(config={"dialecticCadence": 3})
    one.say("My dog is called Rex.")
    for _ in range(6):
        one.recall("Who is the dog?")
    assert len([path for _, path in server.requests if path.endswith("/chat")]) == 2


def test_a_model_that_says_nothing_is_asked_less_and_less_often(server, agent):
    one = agent()
    one.say("My dog is called Rex.")
    for _ in range(16):
        one.recall("zebra crossing?")
    assert len([path for _, path in server.requests if path.endswith("/chat")]) == 4


def test_how_hard_it_thinks_depends_on_the_message_up_to_the_cap(agent):
    from hermes_memory_honcho.recall import Dialectic
    from hermes_memory_honcho.settings import HonchoSettings

    def levels(query: str, **settings) -> list[str]:
        made = HonchoSettings("w", "a", "x", **settings)
        return Dialectic(None, made)._levels(query)

    assert levels("short") == ["low"]
    assert levels("x" * 120) == ["medium"]
    assert levels("x" * 400) == ["high"]
    assert levels("x" * 400, reasoning_level_cap="medium") == ["medium"]
    assert levels("x" * 400, reasoning_heuristic=False) == ["low"]
    assert levels("short", dialectic_depth=3) == ["minimal", "low", "low"]
    assert levels("short", dialectic_depth=2, dialectic_depth_levels=("max",)) == ["max", "low"]


def test_a_deeper_question_is_asked_again_with_the_first_answer(server, agent):
    one = agent(config={"dialecticDepth": 2})
    one.say("My dog is called Rex.")
    one.recall("Who is the dog?")
    assert len([path for _, path in server.requests if path.endswith("/chat")]) == 2


def test_what_has_no_time_is_not_asked(server, agent):
    one = agent(config={"firstTurnBaseWait": 0, "firstTurnDialecticWait": 0})
    one.say("My dog is called Rex.")
    server.requests.clear()
    assert one.recall("dog?") == ""
    one.provider.queue_prefetch("dog?")
    assert server.requests == []


def test_in_the_mode_tools_nothing_is_added(server, agent):
    one = agent(config={"recallMode": "tools"})
    one.say("My dog is called Rex.")
    server.requests.clear()
    assert one.recall("What is my dog called?") == ""
    one.provider.queue_prefetch("dog")
    assert server.requests == []


@pytest.mark.parametrize("query", ["ok", "Yes!", "thanks", "/new", "/help me", "  "])
def test_a_yes_is_not_asked_about(server, agent, query: str):
    one = agent()
    assert is_trivial(query)
    assert one.recall(query) == ""
    assert server.requests == []


def test_after_a_turn_only_what_depends_on_the_message_is_asked(server, agent):
    one = agent(config=QUIET)
    one.say("My dog is called Rex.")
    one.provider.queue_prefetch("dog")
    server.requests.clear()
    one.recall("dog?")
    assert [path.rsplit("/", 1)[-1] for _, path in server.requests] == ["context", "search"]


def test_the_summary_of_a_session_is_recalled_and_given_to_a_compression(agent):
    one = agent(config=QUIET)
    for number in range(10):
        one.say(f"Turn {number}.")
    assert one.provider.on_pre_compress([]) == ""
    one.provider.queue_prefetch("x")
    assert "20 messages, from: Turn 0." in one.recall("What did we do so far?")
    assert one.provider.on_pre_compress([]) == "20 messages, from: Turn 0."


def test_the_first_message_alone_gets_it_if_set_so(agent):
    one = agent(config=QUIET | {"injectionFrequency": "first-turn"})
    one.say("My dog is called Rex.")
    assert "Rex" in one.recall("dog?")
    assert one.recall("dog?") == ""
    one.provider.on_session_switch("s2")
    one.session = "s2"
    assert "Rex" in one.recall("dog?")


def test_it_is_asked_every_other_time_if_set_so(server, agent):
    one = agent(config=QUIET | {"contextCadence": 2})
    one.say("My dog is called Rex.")
    one.recall("dog?")
    server.requests.clear()
    assert "Rex" in one.recall("dog?")
    assert server.requests == []
    one.recall("dog?")
    assert server.requests != []


def test_it_keeps_to_its_tokens(agent):
    one = agent(config={"contextTokens": 50})
    for number in range(20):
        one.say(f"The dog number {number} is called Rex {number}.")
    assert 0 < len(one.recall("dog Rex?")) <= 200


def test_a_slow_server_costs_no_more_than_the_wait(server, agent):
    one = agent(config={"firstTurnBaseWait": 0.3})
    one.say("My dog is called Rex.")
    server.behaviour.delay = 2.0  # the wait is 3 s unless set: then an answer would come
    with pytest.raises(HermesError, match="did not answer in time"):
        one.recall("dog?")


def test_what_comes_in_time_is_given_without_what_does_not(server, agent):
    one = agent(config=QUIET | {"firstTurnBaseWait": 0.9})
    one.say("My dog is called Rex.")
    server.behaviour.delay = 0.5
    found = one.recall("dog?")
    assert "## User Representation" in found
    assert "## Related messages" not in found


def test_a_server_that_became_too_slow_still_gives_what_was_known(server, agent):
    one = agent(config=QUIET | {"firstTurnBaseWait": 0.5})
    for number in range(10):
        one.say(f"Turn {number}.")
    one.call("honcho_profile", card=["Name: Al"])
    one.provider.queue_prefetch("x")
    one.recall("What did we do so far?")
    server.behaviour.frozen = True
    found = one.recall("And what else?")
    server.behaviour.frozen = False
    assert "Name: Al" in found
    assert "20 messages, from: Turn 0." in found


def test_a_session_that_nobody_has_opened_is_empty_and_not_made(server, agent):
    agent(agent_context="cron").recall("dog?")
    assert server.store.sessions("hermes") == []


def test_excerpts_show_where_the_words_are():
    text = "x " * 500 + "the treasure is buried here" + " y" * 500
    shown = around(text, "Where is the treasure?", 100)
    assert "treasure" in shown
    assert len(shown) <= 102
    assert around("short  text", "q", 100) == "short text"


def test_questions_keep_their_beginning_and_their_end():
    assert shortened("x" * 5000 + " why?", 1000).endswith("why?")
    assert len(shortened("x" * 5000, 1000)) <= 1000
    assert clipped("one two three", 10) == "one two …"


@pytest.mark.parametrize("text", ["/home/ann/app.py fails again: what was it?", "/etc/hosts\nwhy?"])
def test_a_message_that_begins_with_a_path_is_no_command(text):
    assert not is_trivial(text)


def test_a_server_that_was_too_slow_is_not_waited_for_in_every_turn(server, agent):
    one = agent(config={"dialecticCadence": 0, "timeout": 0.3})
    one.say("I like tea.")
    one.call("honcho_profile", card=["Likes tea."])
    one.recall("What do I like?")
    server.behaviour.frozen = True
    assert "Likes tea." in one.recall("What is it that I like?")
    asked = len(server.requests)
    for _ in range(5):
        assert "Likes tea." in one.recall("What do I like?")
    assert len(server.requests) == asked
    server.behaviour.frozen = False


def test_while_a_server_is_too_slow_its_model_is_not_waited_for_either(server, agent):
    one = agent(config={"firstTurnBaseWait": 0.3})
    one.say("I like tea.")
    one.call("honcho_profile", card=["Likes tea."])
    one.recall("What do I like?")
    server.behaviour.frozen = True
    asked = []
    for _ in range(9):  # the model would be asked with the first, third and seventh
        assert "Likes tea." in one.recall("What is it that I like?")
        asked.append(len(server.requests))
    server.behaviour.frozen = False
    assert len(set(asked)) == 1


def test_a_server_that_was_too_slow_is_tried_again_where_no_turn_waits(server, agent, monkeypatch):
    clock = [1000.0]
    one = agent(config={"dialecticCadence": 0, "firstTurnBaseWait": 1.5})
    one.say("I like tea.")
    one.call("honcho_profile", card=["Likes tea."])
    one.recall("What do I like?")
    monkeypatch.setattr(recall, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    server.behaviour.frozen = True
    one.recall("What is it that I like?")
    with pytest.raises(HermesError):
        one.provider.queue_prefetch("What is it that I like?")
    asked = len(server.requests)
    clock[0] += 60  # the next message comes later, and does not wait either
    assert "Likes tea." in one.recall("What is it that I like?")
    assert len(server.requests) == asked
    server.behaviour.frozen = False
    one.provider.queue_prefetch("What is it that I like?")
    assert "I like tea." in one.recall("What is it that I like?")
