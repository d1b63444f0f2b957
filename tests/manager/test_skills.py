"""Expanded skills: memory is about what the person said, not about the skill's text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.providers import Recorder, running

from hermes_core import MemoryManager
from hermes_core.manager.prompts import as_typed, user_instruction
from hermes_core.testing import FakeProvider

BODY = "SKILL BODY: always deploy on Fridays."
HEAD = (
    '[IMPORTANT: The user has invoked the "deploy" skill, indicating they want you to follow it. '
)
BARE = f"{HEAD}The full skill content is loaded below.]\n\n{BODY}"
SAID = "The user has provided the following instruction alongside the skill invocation: "
ASKED = f"{BARE}\n\n{SAID}put it on staging"
NOTED = f"{ASKED}\n\n[Runtime note: it is late]"
QUOTED = f"{BARE} {SAID}whatever\n\n{SAID}put it on staging"
STACKED = '[IMPORTANT: The user has invoked the "/clean /work" stacked skill bundle, loading 2.]\n'
LOADED = f'\n\n[Loaded as part of the "x" skill bundle.]\n{BODY}\nUser instruction: not this'
BUNDLE = f"{STACKED}\nUser instruction: tidy up{LOADED}"
BARE_BUNDLE = f'[IMPORTANT: The user has invoked the "tidy" skill bundle, loading 2.]\n{BODY}'

WITH_INSTRUCTION = {
    "skill": (ASKED, "put it on staging", "/deploy put it on staging"),
    "runtime note": (NOTED, "put it on staging", "/deploy put it on staging"),
    "skill that quotes the marker": (QUOTED, "put it on staging", "/deploy put it on staging"),
    "bundle": (BUNDLE, "tidy up", "/clean /work tidy up"),
}
WITHOUT = {"skill": (BARE, "/deploy"), "bundle": (BARE_BUNDLE, "/tidy"), "odd": (HEAD, "/deploy")}


def turn(manager: MemoryManager, text: str) -> None:
    manager.on_turn_start(1, text)
    manager.prefetch_all(text)
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "Done."}]
    manager.sync_all(text, "Done.", messages=messages)
    manager.queue_prefetch_all(text)
    assert manager.flush_pending(10)


@pytest.mark.parametrize(
    ("text", "instruction", "typed"), WITH_INSTRUCTION.values(), ids=WITH_INSTRUCTION.keys()
)
def test_the_external_provider_gets_the_instruction(
    text: str, instruction: str, typed: str
) -> None:
    external = FakeProvider()
    with running(external) as manager:
        turn(manager, text)
    assert external.of("prefetch")[0].arguments["query"] == instruction
    assert external.of("queue_prefetch")[0].arguments["query"] == instruction
    assert external.of("on_turn_start")[0].arguments["message"] == instruction
    (kept,) = external.turns
    assert kept.user == instruction
    assert kept.messages is not None
    assert kept.messages[0]["content"] == typed
    assert "SKILL BODY" not in str(external.calls)


@pytest.mark.parametrize(("text", "typed"), WITHOUT.values(), ids=WITHOUT.keys())
def test_a_bare_skill_is_neither_recalled_for_nor_synced(text: str, typed: str) -> None:
    builtin, external = Recorder("builtin"), FakeProvider()
    with running(builtin, external) as manager:
        turn(manager, text)
    hooks = [each.hook for each in external.calls]
    assert not {"prefetch", "queue_prefetch", "sync_turn"} & set(hooks)
    (kept,) = builtin.of("sync_turn")
    assert kept.args == (typed, "Done.")  # the conversation is not lost


def test_the_archive_has_the_turn_as_it_was_typed(home: Path) -> None:
    manager = MemoryManager.from_config(home)
    manager.initialize_all("s1")
    turn(manager, BARE)
    turn(manager, ASKED)
    found = manager.handle_tool_call("session_search", {"query": "staging"}, session_id="s2")
    manager.shutdown_all()
    assert "/deploy put it on staging" in found
    assert "SKILL BODY" not in found


def test_a_whole_conversation_has_skills_as_they_were_typed() -> None:
    external = FakeProvider()
    messages = [{"role": "user", "content": ASKED}, {"role": "tool", "content": ASKED}]
    with running(external) as manager:
        manager.on_session_end(messages)
        assert manager.flush_pending(10)
    ended = external.of("on_session_end")[0].arguments["messages"]
    assert ended == [
        {"role": "user", "content": "/deploy put it on staging"},
        {"role": "tool", "content": ASKED},  # what a tool said is no invocation
    ]
    assert messages[0]["content"] == ASKED  # the host's own list is as it was


@pytest.mark.parametrize("text", ["", " ", "hello", "/deploy now", "[IMPORTANT: read this]"])
def test_other_messages_stay_as_they_are(text: str) -> None:
    assert as_typed(text) == text
    assert user_instruction(text) == (text if text.strip() else "")


_LOOK = """
import json, sys
from agent.skill_commands import extract_user_instruction_from_skill_message as extract
print(json.dumps([extract(each) for each in json.loads(sys.argv[1])]))
"""
BENCH = Path(__file__).parents[2] / ".bench"
PEERS = [BENCH / "peer" / "bin" / "python", BENCH / "peer20" / "bin" / "python"]


@pytest.mark.parametrize("peer", PEERS, ids=["0.19", "0.20"])
def test_it_is_what_hermes_agent_extracts(peer: Path, tmp_path: Path) -> None:
    if not peer.exists():
        pytest.skip("needs hermes-agent in .bench")
    texts = [each[0] for each in (*WITH_INSTRUCTION.values(), *WITHOUT.values())] + ["hello"]
    environment: dict[str, Any] = {"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [peer, "-P", "-c", _LOOK, json.dumps(texts)],
        env={**environment, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert [user_instruction(each) for each in texts] == [each or "" for each in theirs]
