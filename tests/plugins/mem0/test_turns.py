"""Turns: each is stored once, whatever happens on the way."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes_core import HermesError

LISBON = "I have moved to Lisbon."


def _say(provider, user, assistant="All right.", *, turn="t1", attempt=1, **more):
    provider.sync_turn(user, assistant, turn_id=turn, attempt=attempt, **more)


def test_what_was_said_in_one_session_is_recalled_in_the_next_for_the_question_at_hand(place):
    first = place.provider("s1")
    _say(first, LISBON)
    _say(first, "My dog is called Rex.", turn="t2")
    first.shutdown()
    second = place.provider("s2")
    assert "Lisbon" in second.prefetch("Which city have I moved to?")
    assert second.recall_status().count == 1
    assert "Rex" in second.prefetch("What is my dog called?")
    assert "Lisbon" not in second.prefetch("What is my dog called?")


def test_a_memory_is_marked_with_its_turn_session_and_channel(place):
    provider = place.provider("s1", platform="telegram", user_id="7")
    _say(provider, LISBON, turn="t9", session_id="s-other")
    (row,) = place.rows()
    assert row["metadata"] == {"turn_id": "t9", "session_id": "s-other", "channel": "telegram"}
    assert (row["user_id"], row["agent_id"]) == ("7", "hermes")


def test_after_a_switch_turns_belong_to_the_new_session(place):
    provider = place.provider("s1")
    provider.on_session_switch("s2", parent_session_id="s1")
    _say(provider, LISBON)
    assert [row["metadata"]["session_id"] for row in place.rows()] == ["s2"]


def test_a_second_attempt_at_a_turn_that_came_through_writes_nothing(place):
    provider = place.provider()
    _say(provider, LISBON)
    _say(provider, LISBON.replace("moved", "gone"), attempt=2)
    assert place.texts() == [LISBON]


def test_a_second_attempt_at_a_turn_that_did_not_come_through_writes_it(place):
    provider = place.provider()
    _say(provider, LISBON, turn="t1")
    _say(provider, "I play the cello.", turn="t2", attempt=2)
    assert place.texts() == [LISBON, "I play the cello."]


def test_a_turn_without_a_fact_leaves_nothing_and_may_be_tried_again(place):
    provider = place.provider()
    _say(provider, "Shall we go?")
    _say(provider, "Shall we go?", attempt=2)
    assert place.texts() == []


@pytest.mark.parametrize("context", ["cron", "subagent", "flush"])
def test_contexts_other_than_the_agent_itself_write_nothing(place, context):
    provider = place.provider(agent_context=context)
    _say(provider, LISBON)
    provider.on_memory_write("add", "user", LISBON, {}, event_id="e1")
    provider.on_delegation("Find it.", "I have found Lisbon.", event_id="e2")
    assert "it only reads" in provider.handle_tool_call("mem0_add", {"content": LISBON})
    assert place.texts() == []


def test_users_and_profiles_do_not_see_each_other(place):
    _say(place.provider(user_id="ann"), LISBON)
    for facts in ({"user_id": "bob"}, {"user_id": "ann", "agent_identity": "work"}, {}):
        assert place.provider(**facts).prefetch("Which city have I moved to?") == ""
    assert "Lisbon" in place.provider(user_id="ann").prefetch("Which city have I moved to?")


def test_a_megabyte_is_taken_and_its_beginning_and_end_are_remembered(place):
    filler = "\n".join(["Is this a line of a log file?"] * 40_000)
    _say(place.provider(), f"My sister is called Ada.\n{filler}\nMy brother is called Bo.")
    assert {"My sister is called Ada.", "My brother is called Bo."} <= {*place.texts()}


@pytest.mark.parametrize(
    "text",
    [
        "私はリスボンに住んでいます。",
        "Ich wohne in Lissabon 🏡 nahe am Fluß.",
        "e\u0301te\u0301 a\u200db c d",
    ],
)
def test_every_script_comes_back_as_it_was(place, text):
    provider = place.provider()
    _say(provider, text)
    assert place.texts() == [text]
    assert text in provider.prefetch(text)


def test_halves_of_characters_and_nul_do_not_keep_a_turn_from_being_stored(place):
    _say(place.provider(), "I like \ud83d tea\x00 at noon.")
    assert place.texts() == ["I like \ufffd tea at noon."]


def test_four_sessions_at_once_lose_nothing(place):
    def talk(number):
        provider = place.provider(f"s{number}")
        for turn in range(5):
            _say(provider, f"Fact {turn} of session {number} holds.", turn=f"{number}-{turn}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(talk, range(4)))
    wanted = [f"Fact {turn} of session {number} holds." for turn in range(5) for number in range(4)]
    assert place.texts() == sorted(wanted)


def test_what_a_subagent_found_out_is_remembered_once(place):
    provider = place.provider("s1")
    for attempt in (1, 2):
        provider.on_delegation(
            "Look for the cheapest flight.",
            "It is TP 533.",
            child_session_id="c1",
            event_id="e1",
            attempt=attempt,
        )
    (row,) = place.rows()
    assert "cheapest flight" in row["memory"]
    assert row["metadata"]["event_id"] == "e1"
    assert row["metadata"]["child_session"] == "c1"


@pytest.mark.parametrize("mode", ["platform", "server"])
def test_a_write_whose_answer_got_lost_is_not_written_twice(mode, request):
    place = request.getfixturevalue(mode)
    place.behind.deaf = 1
    provider = place.provider()
    with pytest.raises(HermesError, match="can't be reached"):
        _say(provider, LISBON)
    _say(provider, LISBON.replace("moved", "gone"), attempt=2)
    assert place.texts() == [LISBON]


def test_a_turn_that_the_platform_still_works_on_is_not_sent_again(platform):
    platform.behind.lag = 60.0
    provider = platform.provider()
    _say(provider, LISBON)
    assert platform.texts() == []
    _say(provider, LISBON, attempt=2)
    _say(provider, LISBON, turn="t2", attempt=2)
    events = platform.behind.store.events.values()
    assert [event["payload"]["metadata"]["turn_id"] for event in events] == ["t1", "t2"]


def test_a_turn_that_the_platform_finishes_while_it_is_asked_is_not_sent_again(
    platform, monkeypatch
):
    platform.behind.lag = 60.0
    provider = platform.provider()
    _say(provider, LISBON)
    answered = platform.behind._all

    def answered_and_done(asked):
        answer = answered(asked)
        for event in platform.behind.store.events.values():
            event["due"] = 0.0
        return answer

    monkeypatch.setattr(platform.behind, "_all", answered_and_done)
    _say(provider, LISBON, attempt=2)
    assert len(platform.behind.store.events) == 1


def test_without_an_outbox_turns_wait_in_a_queue_that_the_end_of_the_session_empties(place):
    provider = place.provider()
    provider.sync_turn(LISBON, "All right.")
    provider.shutdown()
    assert place.texts() == [LISBON]


def test_nothing_is_asked_of_mem0_before_it_is_needed(home):
    from hermes_memory_mem0 import Mem0Provider

    provider = Mem0Provider()
    settings = {"mode": "self-hosted", "host": "http://127.0.0.1:9"}
    provider.initialize("s1", hermes_home=str(home), provider_config=settings)
    assert provider.prefetch("  ") == ""
    assert json.loads(provider.handle_tool_call("mem0_search", {"query": " "}))["error"]
    provider.shutdown()
    provider.shutdown()
