"""`session_search` with the arguments and answers that models know from hermes-agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.talks import StartTalk, numbered, past, talks, texts

pytestmark = pytest.mark.usefixtures("both_storages")


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


# -- titles ----------------------------------------------------------------------------------------


def test_a_conversation_is_found_by_its_title(home: Path, talk: StartTalk) -> None:
    past(
        home,
        "plan",
        [("where do we begin", "Here."), ("good", "Yes.")],
        session_title="Llama budget",
    )
    answer = talk().search("llama budgets")
    (result,) = answer["results"]
    assert (result["session_id"], result["matched_role"]) == ("plan", "session_title")
    assert result["snippet"] == ">>>Llama<<< >>>budget<<<"
    assert texts(result["messages"])[0] == "where do we begin"
    assert result["messages"][0]["anchor"] is True
    assert result["match_message_id"] == result["messages"][0]["id"]
    assert (result["messages_before"], result["messages_after"]) == (0, 3)
    assert "message" not in answer


@pytest.mark.parametrize("query", ["the budget", '"The Budget"', "`the budget`", "THE BUDGET"])
def test_an_exact_title_comes_first(query: str, home: Path, talk: StartTalk) -> None:
    past(home, "named", [("hello", "hello")], session_title="The budget")
    for number in range(4):
        past(home, f"said{number}", [("the budget, the budget, the budget", "ok")])
    found = talk().search(query)["results"]
    assert (found[0]["session_id"], found[0]["matched_role"]) == ("named", "session_title")
    assert [each["matched_role"] for each in found[1:]] == ["user", "user"]


def test_the_newest_continuation_under_a_title_is_found(home: Path, talk: StartTalk) -> None:
    past(home, "one", [("hello", "hello")], session_title="Taxes")
    past(home, "two", [("again", "hello")], session_title="Taxes #2")
    assert talk().found("taxes")[0] == "two"


def test_titles_do_not_change_the_order_of_what_was_said(home: Path, talk: StartTalk) -> None:
    for number in range(3):
        past(home, f"s{number}", [("a walrus " * (number + 1), "ok")])
    before = talk().found("walrus")
    past(home, "titled", [("hello", "hello")], session_title="On the walrus")
    assert talk().found("walrus") == before
    assert talk().found("walrus", limit=10) == [*before, "titled"]


def test_a_title_with_all_of_several_words_has_a_place_among_full_results(
    home: Path, talk: StartTalk
) -> None:
    for number in range(5):
        past(home, f"s{number}", [(f"the walrus {number}", "ok")])
    before = talk().found("walrus")
    past(home, "titled", [("hello", "hello")], session_title="Feeding a walrus")
    assert talk().found("walrus feeding") == [*before[:2], "titled"]


@pytest.mark.parametrize(("query", "found"), [("%", ["done"]), ("_", ["done"]), ("-done", [])])
def test_signs_in_a_title_are_found_as_they_stand(
    query: str, found: list[str], home: Path, talk: StartTalk
) -> None:
    past(home, "done", [("hello", "hello")], session_title="100%_done")
    past(home, "other", [("hello", "hello")], session_title="Anything")
    assert talk().found(query) == found


@pytest.mark.parametrize("query", ["ramp OR walrus", "what about the walrus thing", '"walrus day"'])
def test_a_title_with_some_of_the_words_is_better_than_nothing(
    query: str, home: Path, talk: StartTalk
) -> None:
    past(home, "titled", [("hello", "hello")], session_title="Feeding a walrus")
    answer = talk().search(query)
    assert [each["session_id"] for each in answer["results"]] == ["titled"]
    assert "some of the words" in answer["message"]
    past(home, "said", [("a walrus day", "ok"), ("a ramp thing", "ok")])
    assert talk("later").found(query) == ["said"]


def test_titles_of_others_hidden_and_asking_conversations_are_not_found(
    home: Path, talk: StartTalk
) -> None:
    past(home, "bobs", [("hello", "x")], session_title="Llama one", user_id="bob")
    past(home, "tools", [("hello", "x")], session_title="Llama two", platform="tool", user_id="ada")
    past(home, "old", [("hello", "x")], session_title="Llama three", user_id="ada")
    session = talk("now", session_title="Llama four", user_id="ada")
    session.say("hello")
    assert session.found("llama") == ["old"]
    assert session.found("llama -three") == []
    assert session.found("llama before:2001") == []


# -- detail ----------------------------------------------------------------------------------------


def test_the_best_conversation_is_shown_in_full_and_the_others_by_their_hit(
    home: Path, talk: StartTalk
) -> None:
    for name in ("one", "two", "three"):
        past(home, name, numbered(20))
    answer = talk().search("topic10")
    assert answer["detail"] == "adaptive"
    assert [each["detail"] for each in answer["results"]] == ["full", "compact", "compact"]
    for each in answer["results"][1:]:
        assert texts(each["messages"]) == ["question10 on topic10"]
        assert each["messages"][0]["anchor"] is True
        assert each["bookend_start"] == each["bookend_end"] == []
        assert (each["messages_before"], each["messages_after"]) == (5, 5)
    whole = talk().search("topic10", detail="Full")
    assert whole["detail"] == "full"
    assert [len(each["messages"]) for each in whole["results"]] == [11, 11, 11]
    assert all(each["bookend_start"] and each["bookend_end"] for each in whole["results"])
    assert talk().search("topic10", detail=7)["detail"] == "adaptive"


# -- links and profiles ----------------------------------------------------------------------------


def test_every_answer_has_a_link_that_can_be_read(home: Path, talk: StartTalk) -> None:
    past(home, "trip", numbered(3), agent_identity="work")
    session = talk(agent_identity="work")
    found = session.search("topic1")["results"][0]
    assert found["link"] == "@session:work/trip"
    assert session.call()["results"][0]["link"] == found["link"]
    around = found["match_message_id"]
    for name in (found["link"], "work/trip", "@session:trip", " @session:work/trip "):
        read = session.call(session_id=name)
        assert (read["mode"], read["session_id"], read["link"]) == ("read", "trip", found["link"])
        scrolled = session.call(session_id=name, around_message_id=around)
        assert (scrolled["session_id"], scrolled["link"]) == ("trip", found["link"])


def test_an_id_with_a_slash_is_read_as_it_is(home: Path, talk: StartTalk) -> None:
    past(home, "a/b", [("hello", "hello")])
    session = talk()
    assert session.call(session_id="a/b")["session_id"] == "a/b"
    assert session.call(session_id="@session:default/a/b")["session_id"] == "a/b"


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "walrus"},
        {},
        {"session_id": "theirs"},
        {"session_id": "mine"},
        {"session_id": "mine", "around_message_id": 1},
    ],
)
def test_the_profile_of_somebody_else_is_refused(
    arguments: dict[str, Any], home: Path, talk: StartTalk
) -> None:
    past(home, "mine", [("walrus", "ok")], agent_identity="work")
    past(home, "theirs", [("walrus", "ok")], agent_identity="home")
    error = talk(agent_identity="work").refused(profile="home", **arguments)
    assert "'home'" in error
    assert "'work'" in error


def test_a_profile_may_have_a_slash_in_its_name(home: Path, talk: StartTalk) -> None:
    past(home, "trip", [("hello", "hello")], agent_identity="team/ada")
    session = talk(agent_identity="team/ada")
    (found,) = session.search("hello")["results"]
    assert session.call(session_id=found["link"])["session_id"] == "trip"


def test_a_link_to_the_profile_of_somebody_else_is_refused(home: Path, talk: StartTalk) -> None:
    past(home, "theirs", [("walrus", "ok")], agent_identity="home")
    error = talk(agent_identity="work").refused(session_id="@session:home/theirs")
    assert "'work'" in error


def test_an_agent_that_sees_all_profiles_can_name_one(home: Path, talk: StartTalk) -> None:
    past(home, "w", [("walrus", "ok")], agent_identity="work")
    past(home, "h", [("walrus", "ok")], agent_identity="home", session_title="Walrus")
    past(home, "none", [("walrus", "ok")])
    session = talk(agent_identity="")
    assert sorted(session.found("walrus")) == ["h", "none", "w"]
    assert session.found("walrus", profile="work") == ["w"]
    assert session.found("walrus", profile="default") == ["none"]
    assert [each["session_id"] for each in session.call(profile="work")["results"]] == ["w"]
    assert session.call(session_id="w", profile="work")["session_id"] == "w"
    assert "not found" in session.refused(session_id="w", profile="home")
    assert "not found" in session.refused(session_id="@session:home/w")
    assert "'attic'" in session.refused(query="walrus", profile="attic")
    assert "'work'" in session.search("zorkmid", profile="work")["message"]


def test_an_agent_may_name_its_own_profile(home: Path, talk: StartTalk) -> None:
    past(home, "mine", [("walrus", "ok")], agent_identity="work")
    assert talk(agent_identity="work").found("walrus", profile="work") == ["mine"]


# -- arguments as models give them -----------------------------------------------------------------


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"sort": "Newest"}, ["s3", "s2", "s1"]),
        ({"sort": " OLDEST "}, ["s0", "s1", "s2"]),
        ({"sort": "newest", "limit": "2"}, ["s3", "s2"]),
        ({"sort": "newest", "limit": "many"}, ["s3", "s2", "s1"]),
        ({"sort": "newest", "limit": None}, ["s3", "s2", "s1"]),
        ({"sort": "newest", "limit": True}, ["s3", "s2", "s1"]),
        ({"sort": "newest", "limit": 10**30}, ["s3", "s2", "s1", "s0"]),
        ({"sort": "newest", "limit": float("inf")}, ["s3", "s2", "s1"]),
        ({"sort": "newest", "role_filter": ["user", "assistant"]}, ["s3", "s2", "s1"]),
        ({"sort": "newest", "role_filter": ["tool"]}, []),
        ({"sort": "newest", "role_filter": 5}, ["s3", "s2", "s1"]),
    ],
)
def test_what_makes_no_sense_counts_as_not_given(
    arguments: dict[str, Any], found: list[str], home: Path, talk: StartTalk
) -> None:
    for number in range(4):
        past(home, f"s{number}", [(f"walrus {number}", "ok")])
    assert talk().found("walrus", **arguments) == found


@pytest.mark.parametrize("sort", ["relevance", "best", "", None, 5, ["newest"]])
def test_any_other_order_is_by_relevance(sort: Any, home: Path, talk: StartTalk) -> None:
    past(home, "much", [("walrus and pelican", "ok")])
    past(home, "little", [("walrus", "ok")])
    assert talk().found("walrus pelican", sort=sort) == ["much", "little"]


@pytest.mark.parametrize(("window", "counted"), [("wide", 5), (None, 5), ("2", 2), (99, 20)])
def test_a_window_that_is_no_number_is_the_usual_one(
    window: Any, counted: int, home: Path, talk: StartTalk
) -> None:
    past(home, "long", numbered(40))
    session = talk()
    around = session.search("topic20")["results"][0]["match_message_id"]
    answer = session.call(session_id="long", around_message_id=around, window=window)
    assert (answer["messages_before"], answer["messages_after"]) == (counted, counted)
    assert answer["remaining_before"] == 40 - counted


# -- continuations ---------------------------------------------------------------------------------


def test_a_message_of_a_continuation_is_found_under_its_roots_id(
    home: Path, talk: StartTalk
) -> None:
    past(home, "root", numbered(3))
    past(home, "child", numbered(3, "later"), parent_session_id="root")
    past(home, "other", numbered(3, "else"))
    session = talk()
    around = session.search("later1")["results"][0]["match_message_id"]
    answer = session.call(session_id="root", around_message_id=around)
    assert answer["session_id"] == "child"
    assert "question1 on later1" in texts(answer["messages"])
    assert "child" in answer["warning"]
    assert "warning" not in session.call(session_id="child", around_message_id=around)
    assert "around_message_id" in session.refused(session_id="other", around_message_id=around)


def test_a_continuation_of_somebody_else_is_not_found_under_its_root(
    home: Path, talk: StartTalk
) -> None:
    past(home, "root", numbered(3), user_id="ada")
    past(home, "child", numbered(3, "later"), parent_session_id="root", user_id="bob")
    around = talk(user_id="bob").search("later1")["results"][0]["match_message_id"]
    error = talk(user_id="ada").refused(session_id="root", around_message_id=around)
    assert "around_message_id" in error
