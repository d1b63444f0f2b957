"""`session_search`: no answer is too long, no argument and no name too odd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.talks import StartTalk, past, talks

pytestmark = pytest.mark.usefixtures("both_storages")

#: Characters in the largest answer; a model's context is worth more than this.
MOST = 150_000


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    yield from talks(home)


# -- size ------------------------------------------------------------------------------------


def test_an_answer_is_bounded_and_every_cut_is_said(home: Path, talk: StartTalk) -> None:
    for number in range(12):
        words = 100_000 if number == 11 else 5_000
        huge = f"{'word ' * words} walrus{number} walrus {'more ' * words}"
        past(home, f"s{number}", [(huge, huge)] * (4 if number == 11 else 6))
    session = talk()
    answer = session.raw(query="walrus", limit=10)
    assert len(answer) < MOST
    for result in session.search("walrus", limit=10)["results"]:
        assert "walrus" in result["snippet"]
        assert len(result["snippet"]) < 1000
        for each in result["messages"]:
            assert each["truncated"] is True
            assert each["length"] > 50_000
        (anchor,) = [each for each in result["messages"] if each.get("anchor")]
        assert "walrus" in anchor["content"]
    read = session.call(session_id="s11")
    assert all(each["length"] > 1_000_000 for each in read["messages"])
    assert all(each["truncated"] for each in read["messages"])
    assert len(session.raw(session_id="s11")) < MOST
    middle = read["messages"][4]["id"]
    assert len(session.raw(session_id="s11", around_message_id=middle, window=20)) < MOST
    assert len(session.raw(limit=10)) < MOST


def test_calls_of_tools_are_cut_too(home: Path, talk: StartTalk) -> None:
    session = talk("tools")
    call = {"id": "c1", "function": {"name": "write", "arguments": "x" * 1_000_000}}
    session.say(
        "walrus",
        "Done.",
        messages=[
            {"role": "user", "content": "walrus"},
            *[{"role": "assistant", "content": "", "tool_calls": [call]}] * 20,
        ],
    )
    session.close()
    for arguments in ({"query": "walrus"}, {"session_id": "tools"}):
        answer = talk().raw(**arguments)
        assert len(answer) < MOST
        assert "[...]" in answer


def test_a_title_or_a_tools_name_of_any_length_does_not_make_an_answer_long(
    home: Path, talk: StartTalk
) -> None:
    session = talk("titled", session_title="T" * 1_000_000)
    long = {"role": "tool", "content": "x", "name": "N" * 500_000, "tool_call_id": "I" * 500_000}
    session.say("walrus", "ok", messages=[{"role": "user", "content": "walrus"}, long])
    session.close()
    for arguments in ({"query": "walrus"}, {}, {"session_id": "titled"}):
        assert len(talk().raw(**arguments)) < MOST


# -- arguments that can't be meant ------------------------------------------------------------


@pytest.mark.files_only
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"query": 5}, "query"),
        ({"query": ["a"]}, "query"),
        ({"query": "a", "role_filter": "user,robot"}, "robot"),
        ({"session_id": 7}, "session_id"),
        ({"session_id": "nobody"}, "nobody"),
        ({"session_id": "nobody", "around_message_id": 1}, "nobody"),
        ({"session_id": "there", "around_message_id": "x"}, "around_message_id"),
        ({"session_id": "there", "around_message_id": 1}, "around_message_id"),
        ({"session_id": "there", "around_message_id": 2**62}, "around_message_id"),
        ({"session_id": "there", "around_message_id": -(2**63)}, "around_message_id"),
        ({"session_id": "x" * 100_000}, "session_id"),
    ],
)
def test_arguments_that_make_no_sense_are_named(
    arguments: dict[str, Any], named: str, home: Path, talk: StartTalk
) -> None:
    past(home, "there", [("walrus", "ok")])
    error = talk().refused(**arguments)
    assert named in error
    assert len(error) < 500


def test_a_limit_is_taken_as_it_is_meant(home: Path, talk: StartTalk) -> None:
    for number in range(12):
        past(home, f"s{number}", [("walrus", "ok")])
    for limit, count in (("2", 2), (0, 1), (-5, 1), (2.0, 2), (None, 3), (99, 10)):
        assert talk().search("walrus", limit=limit, unknown="x")["count"] == count, limit


@pytest.mark.parametrize("name", ["it's", "'; DROP TABLE archive_messages;--", "100%", "../../etc",
                                  'a"b', "x" * 4096, "日本語", "a\nb", "a\0b"])  # fmt: skip
def test_any_name_of_a_session_can_be_found_read_and_scrolled(
    name: str, home: Path, talk: StartTalk
) -> None:
    past(home, name, [("walrus", "ok")])
    (result,) = talk().search("walrus")["results"]
    assert result["session_id"] == name
    assert talk().call(session_id=name)["count"] == 2
    around = result["match_message_id"]
    assert talk().call(session_id=name, around_message_id=around)["session_id"] == name
    assert talk().call()["results"][0]["session_id"] == name
