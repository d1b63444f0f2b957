"""`session_search` as a model calls it: its modes, and what an answer has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.talks import StartTalk, numbered, past, talks, texts

pytestmark = pytest.mark.usefixtures("both_storages")

DISCOVERED = {
    "session_id", "link", "when", "source", "model", "title", "matched_role", "match_message_id",
    "snippet", "bookend_start", "messages", "bookend_end", "messages_before", "messages_after",
    "remaining_before", "remaining_after", "detail",
}  # fmt: skip
BROWSED = {
    "session_id", "link", "title", "source", "started_at", "last_active", "message_count",
    "preview",
}  # fmt: skip
MESSAGE = {"id", "role", "content", "timestamp"}


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


# -- discover --------------------------------------------------------------------------------


def test_a_search_gives_the_conversation_with_its_hit_its_surroundings_and_its_bookends(
    home: Path, talk: StartTalk
) -> None:
    past(home, "trip", numbered(20), session_title="The trip", platform="telegram")
    answer = talk().search("topic10")
    assert set(answer) >= {"success", "mode", "results", "count"}
    (result,) = answer["results"]
    assert set(result) == DISCOVERED
    assert (result["session_id"], result["source"]) == ("trip", "telegram")
    assert result["title"] == "The trip"
    assert result["matched_role"] == "user"
    assert ">>>topic10<<<" in result["snippet"]
    (anchor,) = [each for each in result["messages"] if each.get("anchor")]
    assert anchor["id"] == result["match_message_id"]
    assert anchor["content"] == "question10 on topic10"
    assert len(result["messages"]) == 11
    assert texts(result["messages"])[0] == "answer7 to that"
    assert texts(result["bookend_start"]) == [
        "question0 on topic0", "answer0 to that", "question1 on topic1",
    ]  # fmt: skip
    assert texts(result["bookend_end"]) == [
        "answer18 to that", "question19 on topic19", "answer19 to that",
    ]  # fmt: skip
    assert (result["messages_before"], result["messages_after"]) == (5, 5)
    assert (result["remaining_before"], result["remaining_after"]) == (15, 14)
    assert (answer["sessions_searched"], result["model"]) == (1, "unknown")
    for part in ("bookend_start", "messages", "bookend_end"):
        assert all(set(each) - {"anchor"} == MESSAGE for each in result[part])


@pytest.mark.parametrize(("hit", "start", "end"), [(0, 0, 3), (1, 0, 3), (19, 3, 0), (3, 1, 3)])
def test_bookends_never_repeat_what_stands_around_the_hit(
    hit: int, start: int, end: int, home: Path, talk: StartTalk
) -> None:
    past(home, "trip", numbered(20))
    (result,) = talk().search(f"topic{hit}")["results"]
    assert (len(result["bookend_start"]), len(result["bookend_end"])) == (start, end)
    shown = [*result["bookend_start"], *result["messages"], *result["bookend_end"]]
    ids = [each["id"] for each in shown]
    assert ids == sorted(set(ids))


def test_of_a_lineage_one_conversation_is_shown_and_names_where_it_comes_from(
    home: Path, talk: StartTalk
) -> None:
    past(home, "first", [("the walrus sang", "It did.")])
    past(home, "second", [("the walrus again", "Again.")], parent_session_id="first")
    past(home, "third", [("a walrus, still", "Still.")], parent_session_id="second")
    past(home, "alone", [("my walrus", "Yours.")])
    results = talk().search("walrus", limit=10)["results"]
    assert len(results) == 2
    (family,) = [each for each in results if each["session_id"] != "alone"]
    if family["session_id"] != "first":
        assert family["parent_session_id"] in ("first", "second")
    (alone,) = [each for each in results if each["session_id"] == "alone"]
    assert not alone.get("parent_session_id")


def test_parents_that_are_their_own_ancestors_do_no_harm(home: Path, talk: StartTalk) -> None:
    past(home, "a", [("walrus one", "ok")], parent_session_id="b")
    past(home, "b", [("walrus two", "ok")], parent_session_id="a")
    past(home, "c", [("walrus three", "ok")], parent_session_id="c")
    assert "c" in talk().found("walrus", limit=10)


def test_the_conversation_that_runs_is_not_found_nor_what_it_continues(
    home: Path, talk: StartTalk
) -> None:
    past(home, "other", [("a walrus elsewhere", "ok")])
    session = talk("before")
    session.say("the walrus sang")
    assert session.found("walrus") == ["other"]
    session.manager.on_session_switch("after", parent_session_id="before", reason="compression")
    session.say("go on")
    assert session.found("walrus") == ["other"]


def test_what_the_running_conversation_continues_is_not_found_in_its_first_turn_either(
    home: Path, talk: StartTalk
) -> None:
    past(home, "other", [("a walrus elsewhere", "ok")])
    past(home, "before", [("the walrus sang", "ok")])
    assert talk("after", parent_session_id="before").found("walrus") == ["other"]
    session = talk("one")
    session.say("the walrus sang")
    session.manager.on_session_switch("two", parent_session_id="one", reason="compression")
    assert "one" not in session.found("walrus")


@pytest.mark.parametrize("sort", [None, "newest"])
def test_cron_is_shown_below_people_and_machines_among_themselves_not_at_all(
    sort: str | None, home: Path, talk: StartTalk
) -> None:
    past(home, "person", [("something of a walrus, among many other words", "ok")])
    for source in ("cron", "subagent"):
        past(home, source, [("walrus walrus", "walrus")], agent_context=source)
    past(home, "tool", [("walrus walrus", "walrus")], platform="tool")
    past(home, "scheduled", [("walrus walrus", "walrus")], platform="cron")
    found = talk().found("walrus", limit=10, **({"sort": sort} if sort else {}))
    assert found[0] == "person"
    assert sorted(found[1:]) == ["cron", "scheduled"]
    assert talk().found("walrus", limit=1) == ["person"]


def test_by_time_means_by_time_in_both_directions(home: Path, talk: StartTalk) -> None:
    for name in ("one", "two", "three"):
        past(home, name, [("walrus", "walrus " * 3 if name == "two" else "ok")])
    assert talk().found("walrus", sort="newest") == ["three", "two", "one"]
    assert talk().found("walrus", sort="oldest") == ["one", "two", "three"]
    assert talk().found("walrus", sort="oldest", limit=1) == ["one"]


def test_what_tools_said_is_found_when_it_is_asked_for(home: Path, talk: StartTalk) -> None:
    session = talk("tools")
    call = {"id": "c1", "function": {"name": "shell", "arguments": '{"cmd": "make gadget"}'}}
    session.say(
        "build it",
        "It is built.",
        messages=[
            {"role": "user", "content": "build it"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "gizmo linked", "name": "shell", "tool_call_id": "c1"},
            {"role": "assistant", "content": "It is built."},
        ],
    )
    later = talk()
    assert later.found("gizmo") == []
    (result,) = later.search("gizmo", role_filter="tool")["results"]
    assert result["matched_role"] == "tool"
    (hit,) = [each for each in result["messages"] if each.get("anchor")]
    assert (hit["tool_name"], hit["tool_call_id"]) == ("shell", "c1")
    assert later.found("gadget") == ["tools"]
    messages = later.call(session_id="tools")["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"] == [call]


# -- scroll, read, browse --------------------------------------------------------------------


def test_scrolling_goes_through_a_conversation_without_a_gap(home: Path, talk: StartTalk) -> None:
    past(home, "trip", numbered(30))
    session = talk()
    at = session.call(session_id="trip")["messages"][0]["id"]
    seen: list[str] = []
    while True:
        answer = session.call(session_id="trip", around_message_id=at, window=4)
        assert (answer["mode"], answer["window"]) == ("scroll", 4)
        assert set(answer["session_meta"]) >= {"when", "source", "title"}
        assert answer["count"] == len(answer["messages"])
        assert answer["remaining_before"] + answer["count"] + answer["remaining_after"] == 60
        assert answer["messages_before"] + 1 + answer["messages_after"] == answer["count"]
        assert [each["id"] for each in answer["messages"] if each.get("anchor")] == [at]
        seen += [each for each in texts(answer["messages"]) if each not in seen]
        if not answer["remaining_after"]:
            break
        at = answer["messages"][-1]["id"]
    assert seen == [text for turn in numbered(30) for text in turn]


@pytest.mark.parametrize(("given", "count"), [(None, 11), (1, 3), (20, 41), (0, 3), (99, 41)])
def test_the_window_has_its_limits(given: Any, count: int, home: Path, talk: StartTalk) -> None:
    past(home, "trip", numbered(50))
    anchor = talk().search("topic25")["results"][0]["match_message_id"]
    answer = talk().call(session_id="trip", around_message_id=anchor, window=given)
    assert answer["count"] == count


def test_a_short_conversation_is_read_whole_and_a_long_one_says_what_is_left_out(
    home: Path, talk: StartTalk
) -> None:
    past(home, "short", numbered(15))
    past(home, "long", numbered(200))
    short = talk().call(session_id="short")
    assert (short["mode"], short["count"], short["truncated"]) == ("read", 30, False)
    long = talk().call(session_id="long")
    assert long["truncated"] is True
    said = [text for turn in numbered(200) for text in turn]
    assert texts(long["messages"]) == said[:20] + said[-10:]
    assert "370" in long["message"]
    assert long["message_count"] == 400


def test_without_arguments_the_newest_conversations_are_listed(home: Path, talk: StartTalk) -> None:
    for number in range(12):
        past(home, f"s{number}", [(f"about {'walrus ' * 30}{number}", "ok")], session_title="T")
    past(home, "hidden", [("x", "y")], platform="subagent")
    answer = talk().call()
    assert answer["mode"] == "browse"
    assert [each["session_id"] for each in answer["results"]] == ["s11", "s10", "s9"]
    for each in answer["results"]:
        assert set(each) == BROWSED
        assert each["message_count"] == 2
        assert each["preview"].startswith("about walrus")
        assert len(each["preview"]) < 100
        assert each["started_at"] <= each["last_active"]
    assert talk().call(limit=50)["count"] == 10
    assert talk().call(query="   ")["mode"] == "browse"


def test_an_empty_home_is_no_error_and_a_look_at_it_makes_no_file(
    home: Path, talk: StartTalk
) -> None:
    session = talk()
    assert session.call()["message"]
    assert session.search("anything")["message"]
    assert session.refused(session_id="nothing")
    assert not list(home.glob("*.db*"))
