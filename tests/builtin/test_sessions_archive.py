"""The archive: what is said is kept, whole and in order, whatever it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.archives import SUFFIXES, Talk, assert_sound, session_row, stored
from support.storages import Storage

#: Over PostgreSQL in `make test`, too.
FAST = True
pytestmark = pytest.mark.usefixtures("both_storages")

StartTalk = Callable[..., Talk]

CALL = {"id": "c1", "function": {"name": "weather", "arguments": '{"town": "Bonn"}'}}
TURN: list[dict[str, Any]] = [
    {"role": "user", "content": "Is it dry?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": "12 degrees, dry"},
    {"role": "assistant", "content": "Yes, it is dry."},
]


@pytest.fixture
def talk(home: Path) -> Iterator[StartTalk]:
    """Starts sessions on the home."""
    started: list[Talk] = []

    def start(*arguments: Any, **facts: Any) -> Talk:
        started.append(Talk(home, *arguments, **facts))
        return started[-1]

    yield start
    for each in started:
        each.close()


# -- turns ----------------------------------------------------------------------------------


def test_a_turn_is_kept_with_its_tool_calls_and_in_order(home: Path, talk: StartTalk) -> None:
    before = time.time()
    talk("s1").say("Is it dry?", "Yes, it is dry.", messages=TURN)
    after = time.time()
    question, call, result, answer = talk("s2").read("s1")
    assert [each["role"] for each in (question, call, result, answer)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert question["content"] == "Is it dry?"
    assert call["tool_calls"] == [CALL]
    assert (result["tool_name"], result["tool_call_id"]) == ("weather", "c1")
    assert result["content"] == "12 degrees, dry"
    assert answer["content"] == "Yes, it is dry."
    assert all(before <= each["timestamp"] <= after for each in (question, answer))
    assert talk("s3").found("Bonn") == ["s1"]
    assert talk("s3").found("degrees", role_filter="tool") == ["s1"]


def test_a_conversation_that_is_handed_over_whole_each_time_is_kept_once(home, talk) -> None:
    session = talk("s1")
    whole: list[dict[str, Any]] = [{"role": "system", "content": "You are kind."}]
    expected = []
    for number in range(5):
        turn = [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "weather", "content": f"result {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
        whole += turn
        expected += [each["content"] for each in turn]
        session.say(f"question {number}", f"answer {number}", messages=whole)
    assert stored(home / "state.db") == {"s1": expected}


def test_turns_without_messages_are_kept_in_the_order_in_which_they_came(home, talk) -> None:
    session = talk("s1")
    for number in range(30):
        session.say(f"q{number}", f"a{number}", session_id=f"s{number % 3}")
    for name in range(3):
        wanted = [text for n in range(name, 30, 3) for text in (f"q{n}", f"a{n}")]
        assert stored(home / "state.db")[f"s{name}"] == wanted


def test_a_session_carries_its_facts(home: Path, talk: StartTalk) -> None:
    before = time.time()
    first = talk("s1", platform="telegram", user_id="u1", chat_id="c1", agent_identity="work")
    first.say("The okapi sleeps.")
    first.manager.on_session_switch("s2", parent_session_id="s1", reason="compression")
    first.say("It woke up.")
    first.manager.on_session_end(TURN)
    one, two = (session_row(home / "state.db", name) for name in ("s1", "s2"))
    facts = {"source": "telegram", "user_id": "u1", "chat_id": "c1", "profile": "work"}
    assert facts.items() <= one.items()
    assert facts.items() <= two.items()
    assert (one["parent"], two["parent"]) == ("", "s1")
    assert before <= one["started"] <= two["started"] <= two["ended"] <= time.time()
    assert one["ended"] is None
    assert (one["messages"], two["messages"]) == (2, 2)


def test_a_subagent_is_known_by_its_source(home: Path, talk: StartTalk) -> None:
    talk("s1", agent_context="subagent", parent_session_id="s0").say("The okapi sleeps.")
    row = session_row(home / "state.db", "s1")
    assert (row["source"], row["parent"]) == ("subagent", "s0")


# -- odd names and contents -----------------------------------------------------------------

ODD_IDS = ['o\'brien "x"', "x';--", "100%_", "../../etc/passwd", "s" * 4096, "a\0b", "日本\n"]


@pytest.mark.parametrize("name", ODD_IDS, ids=lambda name: ascii(name[:20]))
def test_a_session_may_have_any_name(name: str, home: Path, talk: StartTalk) -> None:
    session = talk(name)
    session.say("The okapi sleeps.")
    session.manager.on_session_end(TURN)
    other = talk("other")
    other.say("Something else.")
    assert other.found("okapi") == [name]
    (hit,) = other.ask(query="okapi")["results"]
    if name == name.strip():
        assert [each["content"] for each in other.read(name)] == ["The okapi sleeps.", "Noted."]
        scrolled = other.ask(session_id=name, around_message_id=hit["match_message_id"])
        assert scrolled["success"], scrolled
    assert session.found("okapi") == []
    assert session_row(home / "state.db", name)["ended"] is not None
    files = [f"state.db{suffix}" for suffix in sorted(SUFFIXES)]
    there = sorted(path.name for path in home.iterdir() if path.is_file())
    assert there == (["config.yaml"] if Storage.current.url else files)


def test_a_session_without_a_name_is_kept(home: Path, talk: StartTalk) -> None:
    talk("").say("The okapi sleeps.")
    assert talk("other").found("okapi") == [""]


def test_a_name_with_blanks_around_it_is_the_one_that_is_read(talk: StartTalk) -> None:
    talk(" padded ").say("The okapi sleeps.")
    assert len(talk("other").read(" padded ")) == 2


@pytest.mark.parametrize("facts", [{"session": "\ud800x"}, {"user_id": "\ud800u"}])
def test_surrogates_in_names_are_no_obstacle(facts: dict[str, str], home, talk) -> None:
    facts = dict(facts)
    name = facts.pop("session", "s1")
    session = talk(name, **facts)
    session.say("The okapi sleeps.")
    session.manager.on_session_end(TURN)
    other = talk("other", **facts)
    assert len(other.found("okapi")) == 1
    assert len(other.read(name)) == 2
    assert session.found("okapi") == []
    (row,) = (session_row(home / "state.db", each) for each in stored(home / "state.db"))
    assert row["ended"] is not None


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        ("be\0fore okapi", "be\0fore okapi"),
        ("okapi \ud83d", "okapi \ufffd"),
        ([{"type": "text", "text": "okapi"}, {"type": "image_url"}, "x"], "okapi\n[image_url]\nx"),
        ({"okapi": 1}, '{"okapi": 1}'),
        (None, ""),
    ],
)
def test_odd_contents_are_kept_and_found(content: Any, kept: str, home, talk) -> None:
    said = {"role": "assistant", "content": content, "tool_calls": [{"okapi": "\udfff\0"}]}
    messages = [{"role": "user", "content": "?"}, said]
    talk("s1").say("?", "Well.", messages=messages)
    assert stored(home / "state.db") == {"s1": ["?", kept, "Well."]}
    other = talk("s2")
    assert other.found("okapi") == ["s1"]
    assert other.read("s1")[1]["content"] == kept
    assert_sound(home / "state.db")


def test_a_message_of_ten_megabytes_is_kept_whole_and_shown_in_part(home, talk) -> None:
    text = "lorem ipsum " * 870_000 + "okapi"
    talk("s1").say(text)
    answer = talk("s2").ask(query="okapi")
    assert [each["session_id"] for each in answer["results"]] == ["s1"]
    assert "okapi" in answer["results"][0]["snippet"]
    assert len(json.dumps(answer)) < 100_000
    assert stored(home / "state.db")["s1"][0] == text


ODD_FIELDS = {
    "a time that is no number": {"timestamp": float("nan")},
    "a time without end": {"timestamp": float("inf")},
    "a huge time": {"timestamp": 10**400},
    "a number for calls": {"tool_calls": 5},
    "a key that JSON has not": {"tool_calls": [{(1, 2): 3}]},
}


@pytest.mark.parametrize("field", ODD_FIELDS.values(), ids=ODD_FIELDS)
def test_an_odd_field_does_not_cost_the_turn(field: dict[str, Any], talk: StartTalk) -> None:
    said = {"role": "assistant", "content": "The okapi sleeps.", **field}
    talk("s1").say("What is new?", "That.", messages=[{"role": "user", "content": "?"}, said])
    other = talk("s2")
    assert other.found("okapi") == ["s1"]
    assert [each["content"] for each in other.read("s1")] == [
        "What is new?",
        "The okapi sleeps.",
        "That.",
    ]
    json.loads(json.dumps(other.ask(), allow_nan=False))


def test_one_odd_message_does_not_break_the_search_for_the_others(talk: StartTalk) -> None:
    talk("s1").say("The okapi sleeps.")
    odd = {"role": "assistant", "content": "Odd.", "tool_calls": 5}
    talk("s2").say("What?", "That.", messages=[{"role": "user", "content": "?"}, odd])
    assert talk("s3").found("okapi") == ["s1"]


def test_a_message_that_is_none_does_not_cost_the_turn(home: Path, talk: StartTalk) -> None:
    talk("s1").say("Okapi?", "Yes.", messages=[{"role": "user", "content": "Okapi?"}, None])
    assert stored(home / "state.db") == {"s1": ["Okapi?", "Yes."]}
