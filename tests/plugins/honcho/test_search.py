"""Search goes through all that a person said and heard, however long ago."""

import pytest

QUIET = {"dialecticCadence": 0}


@pytest.fixture
def long_talk(agent):
    """A session of a hundred turns, of which one says something special."""
    one = agent(config=QUIET)
    for number in range(100):
        one.say("The parrot is called Polly." if number == 7 else f"Turn {number} is about work.")
    return one


def test_a_word_of_the_seventh_turn_is_found_after_a_hundred(long_talk):
    found = long_talk.call("honcho_search", query="parrot Polly")["result"]
    assert "The parrot is called Polly." in found


def test_and_the_recall_block_has_it(long_talk):
    found = long_talk.recall("What is the parrot called?")
    related = found.split("## Related messages")[1].split("##")[0]
    assert "The parrot is called Polly." in related


def test_the_day_the_session_and_metadata_narrow_it(server, agent):
    config = QUIET | {"sessionStrategy": "per-session", "peerName": "al"}
    old, new = agent("old", config=config), agent("new", config=config)
    old.say("The dog is called Rex.", said_at=1_700_000_000.0)  # 2023-11-14
    new.say("The dog is called Max.", said_at=1_800_000_000.0)  # 2027-01-15
    ask = {"query": "dog"}

    def found(**narrowed) -> str:
        return new.call("honcho_search", **ask, **narrowed)["result"]

    assert "Rex" in found(until="2023-11-14")
    assert "Max" not in found(until="2023-11-14")
    assert "Max" in found(since="2027-01-15")
    assert "Rex" not in found(since="2023-11-15")
    assert "Rex" in found(session="old")
    assert "Max" not in found(session="old")
    assert "Rex" not in found(metadata={"session_id": "new"})
    assert "not a date" in new.call("honcho_search", **ask, since="last week")["error"]


def test_the_last_second_of_a_day_belongs_to_it(agent):
    one = agent(config=QUIET)
    one.say("The dog is called Rex.", said_at=1_700_006_399.5)  # 2023-11-14 23:59:59.5
    assert "Rex" in one.call("honcho_search", query="dog", until="2023-11-14")["result"]


def test_a_session_of_somebody_else_can_not_be_searched(agent):
    agent("a", user_id="ann", gateway_session_key="ann-chat").say("The dog is called Rex.")
    bob = agent("b", user_id="bob", gateway_session_key="bob-chat")
    bob.say("Hello.")
    answer = bob.call("honcho_search", query="dog", session="ann-chat")
    assert answer == {"result": "No relevant context found."}


def test_an_old_server_without_such_filters_is_asked_for_what_the_person_said(
    server, agent, monkeypatch
):
    from support import honcho_api
    from support.honcho_store import Refused

    one = agent(config=QUIET)
    one.say("My dog is called Rex.")

    def refuse(request):
        raise Refused(400, "no such filter")

    routes = [
        (method, pattern, refuse if pattern.pattern.endswith("([^/]+)/search")
         and "peers" not in pattern.pattern and "sessions" not in pattern.pattern else handler)
        for method, pattern, handler in honcho_api.ROUTES
    ]  # fmt: skip
    monkeypatch.setattr(honcho_api, "ROUTES", routes)
    assert "called Rex" in one.call("honcho_search", query="dog")["result"]
    assert one.call("honcho_search", query="dog", peer="ai")["result"].startswith("No relevant")
