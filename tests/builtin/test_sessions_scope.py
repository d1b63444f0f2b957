"""What is another user's, chat's or profile's is not there: not found, not read, not hinted at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.talks import StartTalk, numbered, past, talks

pytestmark = pytest.mark.usefixtures("both_storages")

#: Who asks, and whose conversation it is that must stay unseen.
STRANGERS = [
    ({"user_id": "alice"}, {"user_id": "bob"}),
    ({"user_id": "alice"}, {"user_id": "ALICE"}),
    ({"user_id": "alice"}, {"user_id": "alice "}),
    ({"user_id": "alice"}, {}),
    ({"user_id": "%"}, {"user_id": "bob"}),
    ({"user_id": "alice", "chat_id": "c1"}, {"user_id": "alice", "chat_id": "c2"}),
    ({"user_id": "alice", "chat_id": "c1"}, {"user_id": "alice"}),
    ({"user_id": "alice", "chat_id": "c1"}, {"user_id": "bob", "chat_id": "c1"}),
    ({"chat_id": "c1"}, {"chat_id": "c2", "user_id": "alice"}),
    ({"agent_identity": "work"}, {"agent_identity": "home"}),
    ({"agent_identity": "work"}, {}),
    ({}, {"agent_identity": "work"}),
    ({"user_id": "alice", "agent_identity": "work"}, {"user_id": "alice"}),
    ({"user_id": 7}, {"user_id": 77}),
    ({}, {"user_id": "bob"}),
    ({"user_id": ""}, {"user_id": "bob"}),
    ({"user_id": " "}, {"user_id": ""}),
    ({"user_id": "1001", "platform": "telegram"}, {"user_id": "1001", "platform": "discord"}),
    ({"user_id": "1001", "platform": "telegram"}, {"user_id": "1001"}),
    ({"user_id": "1001"}, {"user_id": "1001", "platform": "Telegram"}),
    ({"platform": "telegram"}, {}),
    ({"platform": "TUI"}, {}),
    ({"platform": "tui", "user_id": "bob"}, {}),
    ({"platform": "tui"}, {"platform": "tui", "user_id": "bob"}),
    ({"platform": "telegram", "chat_id": "c"}, {"platform": "discord", "chat_id": "c"}),
    ({"platform": "telegram", "chat_id": "c"}, {"platform": "telegram", "chat_id": "d"}),
    ({"platform": "telegram"}, {"platform": "telegram", "chat_id": "d"}),
    ({"user_id": "caf\u00e9"}, {"user_id": "cafe\u0301"}),
    ({"user_id": "a\0b"}, {"user_id": "a"}),
    ({"user_id": "a\0b"}, {"user_id": "a\0c"}),
    ({"user_id": "\ud800"}, {"user_id": "\ud801"}),
    ({"user_id": "\ufffd"}, {"user_id": "\ud800"}),
    ({"user_id": "\ufffdd800"}, {"user_id": "\ud800"}),
    ({"user_id": "a/b"}, {"user_id": "a", "chat_id": "b"}),
    ({"user_id": "a@b"}, {"user_id": "a"}),
]


Pair = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


def id_of(talk: StartTalk, facts: dict[str, Any], word: str) -> int:
    """A message's id, as its owner learns it."""
    (result,) = talk("owner", **facts).search(word)["results"]
    number: int = result["match_message_id"]
    return number


@pytest.fixture(params=STRANGERS, ids=str)
def pair(request: pytest.FixtureRequest, home: Path) -> Pair:
    """Who asks, and whose conversation must stay unseen."""
    mine, theirs = request.param
    past(home, "theirs", [("the kumquat is secret", "I keep the kumquat")] * 3, **theirs)
    past(home, "mine", [("my own apple", "Yours.")], **mine)
    return mine, theirs


def test_anothers_conversation_is_not_found_read_scrolled_to_or_listed(
    pair: Pair, talk: StartTalk
) -> None:
    mine, theirs = pair
    number = id_of(talk, theirs, "kumquat")
    session = talk(**mine)
    for query in ("kumquat", "kumq*", '"the kumquat"', "kumquat OR apple", "secret -apple", "the"):
        for options in ({}, {"sort": "newest"}, {"role_filter": "user,assistant,tool"}):
            assert "theirs" not in session.found(query, limit=10, **options)
    assert "theirs" in session.refused(session_id="theirs")
    session.refused(session_id="theirs", around_message_id=number)
    listed = session.call(limit=10)["results"]
    assert [each["session_id"] for each in listed] == ["mine"]
    assert session.found("apple") == ["mine"]


def test_a_message_of_another_is_not_shown_by_its_id_through_a_session_of_ones_own(
    pair: Pair, talk: StartTalk
) -> None:
    mine, theirs = pair
    number = id_of(talk, theirs, "kumquat")
    session = talk(**mine)
    answer = session.raw(session_id="mine", around_message_id=number)
    assert "kumquat" not in answer
    assert json.loads(answer)["success"] is False


def test_an_answer_does_not_tell_whether_another_has_it(pair: Pair, talk: StartTalk) -> None:
    """A word of another's and a word of nobody's: the same answer but for the word."""
    mine, theirs = pair
    number = id_of(talk, theirs, "kumquat")
    session = talk(**mine)
    forms = ("{}", '"{}"', "{}*", "{} before:2020", "role:tool {}", "-{}", "{0} AND {0}")
    for form in forms:
        there = session.raw(query=form.format("kumquat"))
        nowhere = session.raw(query=form.format("zorkmid"))
        assert there.replace("kumquat", "zorkmid") == nowhere, form
    for around in ({}, {"around_message_id": number}):
        there = session.refused(session_id="theirs", **around)
        assert there.replace("theirs", "nobody") == session.refused(session_id="nobody", **around)


def test_the_terminal_without_a_user_sees_what_nobody_in_particular_said(
    home: Path, talk: StartTalk
) -> None:
    past(home, "bob", [("a kumquat", "ok")], user_id="bob", chat_id="c1")
    past(home, "nobody", [("a kumquat", "ok")])
    past(home, "chat", [("a kumquat", "ok")], platform="telegram", chat_id="c1")
    for nobody in ({}, {"user_id": ""}, {"user_id": None}):
        assert sorted(talk(**nobody).found("kumquat")) == ["chat", "nobody"]


@pytest.mark.parametrize("platform", ["tui", "desktop", "acp"])
def test_every_interface_on_the_machine_is_its_owner(
    home: Path, talk: StartTalk, platform: str
) -> None:
    past(home, "bob", [("a kumquat", "ok")], platform=platform, user_id="bob")
    past(home, "terminal", [("a kumquat", "ok")])
    past(home, "here", [("a kumquat", "ok")], platform=platform)
    for facts in ({"platform": platform}, {"platform": platform, "user_id": ""}, {}):
        assert sorted(talk(**facts).found("kumquat")) == ["here", "terminal"]


def test_a_gateway_without_a_user_sees_its_own_chat_and_not_the_terminal(
    home: Path, talk: StartTalk
) -> None:
    past(home, "terminal", [("a kumquat", "ok")])
    past(home, "c1", [("a kumquat", "ok")], platform="telegram", chat_id="c1")
    past(home, "bob", [("a kumquat", "ok")], platform="telegram", chat_id="c1", user_id="bob")
    past(home, "none", [("a kumquat", "ok")], platform="telegram")
    assert talk(platform="telegram", chat_id="c1").found("kumquat") == ["c1"]
    assert talk(platform="telegram").found("kumquat") == ["none"]
    assert talk(platform="discord", chat_id="c1").found("kumquat") == []


def test_ones_own_is_found_in_every_chat_where_the_host_names_none(
    home: Path, talk: StartTalk
) -> None:
    past(home, "c1", [("a kumquat", "ok")], user_id="bob", chat_id="c1")
    past(home, "c2", [("a kumquat", "ok")], user_id="bob", chat_id="c2")
    assert sorted(talk(user_id="bob").found("kumquat")) == ["c1", "c2"]
    assert talk(user_id="bob", chat_id="c2").found("kumquat") == ["c2"]


def test_a_search_that_finds_nothing_says_that_it_was_limited(home: Path, talk: StartTalk) -> None:
    past(home, "bob", [("a kumquat", "ok")], user_id="bob")
    assert "this user" in talk(user_id="alice").search("kumquat")["message"]
    assert "this user" in talk(user_id="alice", chat_id="c").search("nothing")["message"]


def test_a_search_limited_to_a_profile_says_so_too(home: Path, talk: StartTalk) -> None:
    past(home, "it", [("a kumquat", "ok")], agent_identity="home")
    assert "profile" in talk(agent_identity="work").search("kumquat")["message"]


def test_the_scope_stays_when_the_session_changes(home: Path, talk: StartTalk) -> None:
    past(home, "bob", [("a kumquat", "ok")], user_id="bob")
    session = talk("one", user_id="alice")
    session.manager.on_session_switch("two", parent_session_id="one")
    session.manager.on_session_switch("bob", parent_session_id="two")
    assert session.found("kumquat") == []
    session.refused(session_id="bob")


def test_an_argument_of_the_model_does_not_widen_the_scope(home: Path, talk: StartTalk) -> None:
    past(home, "bob", [("a kumquat", "ok")], user_id="bob")
    session = talk(user_id="alice")
    wider: list[dict[str, Any]] = [
        {"user_id": "bob"}, {"user_id": ""}, {"scope": None}, {"profile": "default"}, {"all": True},
    ]  # fmt: skip
    for arguments in wider:
        assert session.found("kumquat", **arguments) == []
    assert session.found("kumquat user:bob user_id:bob") == []


def test_a_lineage_that_leads_to_another_shows_nothing_of_it(home: Path, talk: StartTalk) -> None:
    past(home, "bobs", [("a kumquat", "ok")], user_id="bob")
    past(home, "hers", [("an apple", "ok")], user_id="alice", parent_session_id="bobs")
    session = talk(user_id="alice")
    assert session.found("kumquat") == []
    (result,) = session.search("apple")["results"]
    assert "kumquat" not in json.dumps(result)


def test_many_conversations_of_others_do_not_hide_ones_own(home: Path, talk: StartTalk) -> None:
    past(home, "hers", [("one apple, long ago", "ok")], user_id="alice")
    for number in range(60):
        past(home, f"b{number}", [("apple apple", "apple")], user_id="bob")
    session = talk(user_id="alice")
    assert session.found("apple") == ["hers"]
    assert [each["session_id"] for each in session.call()["results"]] == ["hers"]


def test_what_stands_around_a_hit_is_of_the_same_conversation(home: Path, talk: StartTalk) -> None:
    """Numbers of neighbouring sessions are neighbours too."""
    past(home, "b1", numbered(5, "bobs"), user_id="bob")
    past(home, "hers", [("an apple", "ok")], user_id="alice")
    past(home, "b2", numbered(5, "bobs"), user_id="bob")
    session = talk(user_id="alice")
    (result,) = session.search("apple")["results"]
    around = session.raw(session_id="hers", around_message_id=result["match_message_id"], window=20)
    for answer in (json.dumps(result), around, session.raw(session_id="hers"), session.raw()):
        assert "bobs" not in answer


@pytest.mark.parametrize("way", ["initialize", "switch", "sync"])
def test_what_one_says_does_not_land_in_anothers_conversation_of_the_same_name(
    way: str, home: Path, talk: StartTalk
) -> None:
    past(home, "same", [("a kumquat", "ok")], user_id="bob")
    session = talk("same" if way == "initialize" else "hers", user_id="alice")
    if way == "switch":
        session.manager.on_session_switch("same")
    session.say("the password is apple", session_id="same" if way == "sync" else "")
    session.close()
    assert talk(user_id="bob").found("apple") == []
    assert "apple" not in talk(user_id="bob").raw(session_id="same")
