"""An empty answer is no proof: embeddings that are rate-limited lose no turn without a word."""

import os
import re
from collections import deque

import pytest
from support.fake_model import FakeModel
from support.mem0_places import Place

from hermes_core.service import BackendError, Cause

LISBON = "I have moved to Lisbon."
POEM = "Please write four lines about the sea?"


def _say(provider, user=LISBON, assistant="All right.", *, turn="t1", attempt=1):
    provider.sync_turn(user, assistant, turn_id=turn, attempt=attempt)


def _granted(*answers, then=True):
    """Grants embeddings as listed, and after that always or never."""
    left = deque(answers)
    return lambda: left.popleft() if left else then


def _extractions(place):
    return [
        each
        for each in place.behind.asked
        if each.method == "POST" and each.path == "/memories" and each.body["infer"]
    ]


def _listed(place):
    file = place.home / "mem0" / "unconfirmed.log"
    return file.read_text().splitlines() if file.exists() else []


def _shown(place):
    return place.provider().get_status_config(place.config).get("turns not confirmed", "")


# -- a server -----------------------------------------------------------------------------------

#: The messages are embedded, the facts are not: together, then each on its own.
LOST = (True, False, False)


def test_the_server_loses_facts_without_a_word_when_embeddings_are_limited(server):
    server.behind.embeds = _granted(*LOST)
    body = {"messages": [{"role": "user", "content": LISBON}], "user_id": "a", "infer": True}
    answer = server.provider()._memories._ask("POST", "/memories", body)
    assert answer == {"results": []}
    assert server.texts() == []


def test_a_turn_that_was_lost_once_is_extracted_once_more(server):
    server.behind.embeds = _granted(*LOST)
    _say(server.provider())
    assert server.texts() == [LISBON]
    assert _listed(server) == []


def test_while_embeddings_are_refused_the_turn_fails_and_is_tried_again(server):
    server.behind.embeds = _granted(*LOST, then=False)
    provider = server.provider()
    with pytest.raises(BackendError) as caught:
        _say(provider)
    assert caught.value.cause is Cause.QUOTA
    assert "limits the server's requests" in str(caught.value)
    with pytest.raises(BackendError):
        _say(provider, attempt=2)
    server.behind.embeds = _granted()
    _say(provider, attempt=3)
    assert server.texts() == [LISBON]
    assert _listed(server) == []


def test_a_turn_of_which_nothing_was_stored_twice_is_taken_and_counted(server):
    server.behind.embeds = _granted(*LOST, True, *LOST, True)
    _say(server.provider())
    assert server.texts() == []
    (line,) = _listed(server)
    assert re.fullmatch(r"\S+ t1 Mem0 stored nothing, twice", line)
    assert _shown(server).startswith("1, listed in ")


def test_a_turn_with_nothing_to_learn_is_asked_twice_and_never_again(server):
    provider = server.provider()
    _say(provider, POEM)
    assert len(_extractions(server)) == 2
    assert server.texts() == []
    assert len(_listed(server)) == 1


@pytest.mark.parametrize("text", ["ok", "Thanks!", "yes"])
def test_a_word_is_nothing_to_ask_twice_for(server, text):
    _say(server.provider(), text)
    assert len(_extractions(server)) == 1
    assert _listed(server) == []


def test_a_turn_whose_fact_is_known_is_not_stored_twice_and_not_counted(server):
    provider = server.provider()
    _say(provider)
    _say(provider, turn="t2")
    assert server.texts() == [LISBON]
    assert len(_extractions(server)) == 2
    assert _listed(server) == []


def test_a_slow_model_is_not_asked_twice_if_there_is_no_time(server, monkeypatch):
    from hermes_memory_mem0 import confirmation

    left = _granted(60.0, 35.0, then=35.0)
    monkeypatch.setattr(confirmation, "seconds_left", left)
    _say(server.provider(), POEM)
    assert len(_extractions(server)) == 1
    assert len(_listed(server)) == 1


def test_a_subagents_result_is_confirmed_too(server):
    server.behind.embeds = _granted(*LOST)
    server.provider().on_delegation("Find the flight.", "It is TP 533.", event_id="e1")
    assert len(server.texts()) == 1


def test_a_note_or_a_fact_that_was_not_stored_is_an_error(server, monkeypatch):
    monkeypatch.setattr(server.behind.store, "add", lambda *_: [])
    provider = server.provider()
    with pytest.raises(BackendError, match="stored nothing"):
        provider.on_memory_write("add", "user", LISBON, {}, event_id="e1")
    assert "stored nothing" in provider.handle_tool_call("mem0_add", {"content": LISBON})


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_the_list_has_no_content_and_is_for_its_owner_alone(server):
    _say(server.provider(), POEM)
    file = server.home / "mem0" / "unconfirmed.log"
    assert "sea" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_nothing_is_shown_where_all_is_confirmed(place, monkeypatch):
    monkeypatch.setattr("hermes_memory_mem0.provider._LAST_SECONDS", 30)  # on a busy machine
    _say(place.provider())
    for each in place._providers:
        each.shutdown()
    assert _listed(place) == []
    assert _shown(place) == ""


# -- the engine in the process ------------------------------------------------------------------


class Limited(FakeModel):
    """A model whose embeddings are limited."""

    grants = staticmethod(_granted())

    def refuses(self, path):
        return path.endswith("/embeddings") and not self.grants()


@pytest.fixture
def limited(home):
    with Limited() as model:
        # The first recall opens the store, which takes seconds on a busy machine.
        config = {"mode": "oss", "llm_url": model.url, "recall_timeout": 60}
        place = Place(home, config, model)
        yield place
        place.close()


def test_mem0s_own_engine_loses_facts_without_a_word_as_our_server_does(limited):
    provider = limited.provider()
    provider.prefetch("Anything?")
    limited.behind.grants = _granted(*LOST)
    engine = provider._memories._opened
    assert engine.add([{"role": "user", "content": LISBON}], user_id="a") == {"results": []}
    assert limited.texts() == []


def test_the_engine_in_the_process_loses_nothing_when_embeddings_are_limited(limited):
    provider = limited.provider()
    provider.prefetch("Anything?")
    limited.behind.grants = _granted(*LOST)
    with pytest.raises(BackendError) as caught:
        _say(provider)
    assert caught.value.cause is Cause.QUOTA
    assert limited.texts() == []
    _say(provider, attempt=2)
    assert limited.texts() == [LISBON]
    assert _listed(limited) == []


def test_the_engine_in_the_process_is_asked_once_if_there_is_nothing_to_learn(oss):
    _say(oss.provider(), POEM)
    assert oss.behind.stats()["mem0.extraction"] == 1
    assert _listed(oss) == []


# -- the platform -------------------------------------------------------------------------------


def test_a_turn_with_which_the_platform_failed_is_sent_again_with_the_next(platform):
    platform.behind.failing = 1
    provider = platform.provider()
    _say(provider)
    assert platform.texts() == []
    _say(provider, "My dog is called Rex.", turn="t2")
    assert platform.texts() == [LISBON, "My dog is called Rex."]
    provider.shutdown()
    assert _listed(platform) == []


def test_a_turn_with_which_the_platform_always_fails_is_counted(platform):
    platform.behind.failing = 1000
    provider = platform.provider()
    for turn in range(60):
        _say(provider, turn=f"t{turn}")
        if _listed(platform):
            break
    assert any(line.endswith("t0 the platform failed with it") for line in _listed(platform))


def test_what_the_platform_still_works_on_at_the_end_is_counted(platform):
    platform.behind.lag = 60.0
    provider = platform.provider()
    _say(provider)
    provider.shutdown()
    (line,) = _listed(platform)
    assert line.endswith("t1 taken, extraction not seen")


def test_a_platform_that_is_away_at_the_end_costs_no_turn_and_no_error(platform):
    provider = platform.provider()
    platform.behind.lag = 60.0
    _say(provider)
    platform.behind.status = 503
    provider.shutdown()
    assert len(_listed(platform)) == 1


def test_an_event_that_the_platform_has_forgotten_is_done(platform):
    provider = platform.provider()
    _say(provider)
    platform.behind.store.work()
    platform.behind.store.events.clear()
    provider.shutdown()
    assert _listed(platform) == []


def test_a_turn_that_could_not_be_sent_again_is_counted(platform, monkeypatch):
    platform.behind.failing = 1
    provider = platform.provider()
    _say(provider)
    monkeypatch.setattr(platform.behind, "_added", lambda _: (503, {"error": "away"}))
    provider.shutdown()
    (line,) = _listed(platform)
    assert line.endswith("t1 taken, extraction not seen")


def _broken_events(monkeypatch, behind, answer):
    monkeypatch.setattr(behind, "_event", lambda _: answer)


@pytest.mark.parametrize("answer", [(500, {"error": "x"}), (404, {"detail": "Not Found"})])
def test_a_platform_that_does_not_say_what_became_of_a_turn_still_gets_the_next(
    platform, monkeypatch, answer
):
    _broken_events(monkeypatch, platform.behind, answer)
    monkeypatch.setattr(platform.behind.contract, "answer_problem", lambda *_: "")
    provider = platform.provider()
    _say(provider)
    _say(provider, "My dog is called Rex.", turn="t2")
    assert platform.texts() == [LISBON, "My dog is called Rex."]
    provider.shutdown()
    assert len(_listed(platform)) == 2


def test_a_refusal_of_an_earlier_turn_is_not_taken_for_one_of_the_next(platform, monkeypatch):
    platform.behind.failing = 1
    provider = platform.provider()
    _say(provider)
    added = platform.behind._added

    def refuse(asked):
        refused = LISBON in str(asked.body)
        return (400, {"error": "refused"}) if refused else added(asked)

    monkeypatch.setattr(platform.behind, "_added", refuse)
    _say(provider, "My dog is called Rex.", turn="t2")
    assert platform.texts() == ["My dog is called Rex."]
    (line,) = _listed(platform)
    assert line.endswith("t1 the platform failed with it")


def test_a_turn_that_was_sent_again_without_an_answer_is_not_doubled(platform):
    platform.behind.failing = 1
    provider = platform.provider()
    _say(provider)
    platform.behind.store.work(platform.behind.fails)
    platform.behind.deaf = 1  # it takes the turn once more, and the answer is lost
    _say(provider, "My dog is called Rex.", turn="t2")
    _say(provider, "I like tea.", turn="t3")
    given = [each.body for each in platform.behind.asked if each.path == "/v3/memories/add/"]
    assert sum(LISBON in str(body) for body in given) == 2
    assert platform.texts() == [LISBON, "I like tea.", "My dog is called Rex."]


def test_turns_that_are_forgotten_because_there_are_too_many_are_counted(platform):
    from hermes_memory_mem0.confirmation import MOST_TAKEN

    platform.behind.lag = 60.0
    provider = platform.provider()
    for turn in range(MOST_TAKEN + 2):
        _say(provider, turn=f"t{turn}")
    assert [line.split()[1] for line in _listed(platform)] == ["t0", "t1"]


def test_a_turn_keeps_the_time_at_which_it_was_said_when_it_is_sent_again(platform):
    platform.behind.failing = 1
    provider = platform.provider()
    provider.sync_turn(LISBON, "Noted.", turn_id="t1", said_at=1_700_000_000.4)
    provider.sync_turn("I like tea.", "Noted.", turn_id="t2", said_at=1_700_000_060.0)
    rows = sorted(platform.rows(), key=lambda row: row["created_at"])
    assert [row["memory"] for row in rows] == [LISBON, "I like tea."]
    assert rows[0]["created_at"].startswith("2023-11-14T22:13:20")


def test_a_turn_that_is_queued_behind_many_others_is_not_sent_twice(platform):
    provider = platform.provider()
    platform.behind.lag = 60.0
    platform.behind.deaf = 1
    with pytest.raises(BackendError):
        _say(provider)
    for number in range(120):
        platform.behind.store.queue({"messages": [], "user_id": str(number)}, 60.0)
    _say(provider, attempt=2)
    given = [each.body for each in platform.behind.asked if each.path == "/v3/memories/add/"]
    assert sum(LISBON in str(body) for body in given) == 1
