"""Agents with an outbox, and a Honcho server that is killed, slow, or wants another key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.honcho_agents import manager
from support.honcho_server import HonchoProcess, until

TURNS = 50

#: An agent in a process of its own: turns that it is given, then what it recalls.
AGENT = """
import json, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from support.honcho_agents import manager
home, session, turns, query = json.loads(sys.argv[2])
made = manager(Path(home), session)
for turn in turns:
    made.sync_all(turn, "Noted.", session_id=session)
print("said", flush=True)
assert made.flush_pending(30)
print(json.dumps(made.prefetch_all(query, session_id=session) if query else ""))
made.shutdown_all()
"""


def run_agent(home: Path, session: str, turns: list[str], query: str = "") -> subprocess.Popen[str]:
    """Start an agent."""
    arguments = [json.dumps(sys.path), json.dumps([str(home), session, turns, query])]
    command = [sys.executable, "-c", AGENT, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answered(process: subprocess.Popen[str]) -> str:
    """What an agent recalled."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    answer: str = json.loads(out.splitlines()[-1])
    return answer


def users(engine: HonchoProcess, session: str, workspace: str = "hermes") -> list[str]:
    """What the person said in a session, in the order of the server."""
    found = engine.messages(workspace, session)
    return [each["content"] for each in found if each["peer_id"] == "alice"]


@pytest.fixture
def per_session(home: Path) -> None:
    (home / "honcho.json").write_text('{"sessionStrategy": "per-session"}', "utf-8")


@pytest.mark.usefixtures("per_session")
def test_one_process_stores_and_another_recalls_in_another_session(engine, home):
    answered(run_agent(home, "s1", ["My dog is called Rex.", "I moved to Berlin."]))
    found = answered(run_agent(home, "s2", [], "What is the name of my dog?"))
    assert "Rex" in found
    found = answered(run_agent(home, "s3", [], "Where did I move?"))
    assert "Berlin" in found


@pytest.mark.usefixtures("per_session")
def test_a_server_killed_in_the_middle_of_fifty_turns_has_all_of_them_once(engine, home):
    agent = manager(home)
    spoken = [f"Turn number {number}." for number in range(TURNS)]
    for number, text in enumerate(spoken):
        if number == 15:
            engine.behave(drop=2)  # kept, and not confirmed
        if number == 20:
            until(lambda: len(users(engine, "s1")) > 5)
            engine.kill()
        if number == 40:
            engine.start()
        agent.sync_all(text, f"Answer {text}", session_id="s1")
    assert agent.flush_pending(60)
    agent.shutdown_all()
    assert users(engine, "s1") == spoken
    assert len(engine.messages("hermes", "s1")) == 2 * TURNS


@pytest.mark.usefixtures("per_session")
def test_an_agent_killed_while_it_sends_has_sent_everything_once_when_the_next_has(engine, home):
    spoken = [f"Turn number {number}." for number in range(20)]
    engine.behave(delay=0.05)
    first = run_agent(home, "s1", spoken)
    assert first.stdout is not None
    assert first.stdout.readline() == "said\n"
    assert until(lambda: len(users(engine, "s1")) > 3)
    engine.behave(drop=1)
    first.kill()
    first.communicate()
    engine.behave(delay=0)
    agent = manager(home, "s1")
    agent.sync_all("And one more.", "Noted.", session_id="s1")
    assert until(lambda: len(users(engine, "s1")) > len(spoken), 60)
    agent.shutdown_all()
    assert sorted(users(engine, "s1")) == sorted([*spoken, "And one more."])


@pytest.mark.usefixtures("per_session")
def test_a_wrong_key_keeps_the_turns_and_says_so_until_it_is_right(engine, home):
    engine.behave(key="another")
    agent = manager(home)
    agent.sync_all("Kept.", "Yes.", session_id="s1")
    assert until(lambda: "the key was refused" in str(agent.health()))
    assert agent.prefetch_all("What was kept?", session_id="s1") == ""
    engine.behave(key="key-for-tests")
    assert agent.flush_pending(30)
    agent.shutdown_all()
    assert users(engine, "s1") == ["Kept."]


@pytest.mark.usefixtures("per_session")
def test_a_slow_server_delays_no_turn(engine, home):
    agent = manager(home)
    agent.sync_all("My dog is called Rex.", "Noted.", session_id="s1")
    assert agent.flush_pending(30)
    engine.behave(delay=10.0)
    agent.sync_all("Slow turn.", "Noted.", session_id="s1")
    agent.prefetch_all("What is my dog called?", session_id="s1")
    engine.behave(delay=0)
    assert "Slow turn." not in users(engine, "s1")  # neither call has waited for the server
    assert agent.flush_pending(60)
    agent.shutdown_all()
    assert users(engine, "s1") == ["My dog is called Rex.", "Slow turn."]


@pytest.mark.usefixtures("per_session")
def test_a_megabyte_and_odd_characters_arrive(engine, home):
    agent = manager(home)
    large = "Die Straße 世界 👩‍👩‍👧 " * 55_000
    odd = "\u202eabc\u202c e\u0301 \u2028 ' \" ; -- % \\ { } \x07"
    agent.sync_all(large, odd, session_id="s1")
    assert agent.flush_pending(60)
    agent.shutdown_all()
    found = engine.messages("hermes", "s1")
    pieces = [each["content"] for each in found if each["peer_id"] == "alice"]
    assert "".join(each.removeprefix("[continued] ") for each in pieces) == large
    assert [each["content"] for each in found if each["peer_id"] == "hermes"] == [odd]


@pytest.mark.usefixtures("per_session")
def test_four_sessions_at_once_lose_and_mix_nothing(engine, home):
    spoken = {f"s{one}": [f"Turn {two} of s{one}." for two in range(10)] for one in range(4)}
    running = [run_agent(home, session, turns) for session, turns in spoken.items()]
    for each in running:
        answered(each)
    assert {session: users(engine, session) for session in spoken} == spoken


def test_held_back_turns_survive_the_agent_and_a_dead_server(engine, home):
    settings = {"sessionStrategy": "per-session", "writeFrequency": 10}
    (home / "honcho.json").write_text(json.dumps(settings), "utf-8")
    spoken = [f"Turn {number}." for number in range(25)]
    answered(run_agent(home, "s1", spoken[:8]))
    assert engine.ask("/list", {})["items"] == []
    engine.kill()
    agent = manager(home, "s1")
    for text in spoken[8:]:
        agent.sync_all(text, "Noted.", session_id="s1")
    engine.start()
    assert agent.flush_pending(60)
    assert users(engine, "s1") == spoken[:20]
    agent.on_session_end([])
    assert agent.flush_pending(30)
    agent.shutdown_all()
    assert users(engine, "s1") == spoken
