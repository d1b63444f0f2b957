"""Many processes on one home: nothing is lost, nothing doubled, and each finds its own turns."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.archives import assert_sound, stored
from support.notes import output_of, start_python

from hermes_builtin.notes import Notes

STRESS = bool(os.environ.get("HERMES_STRESS"))
PROCESSES = 50 if STRESS else 6
#: Seconds in the stress run; otherwise as many rounds as this.
SECONDS, ROUNDS = 30, 4
#: So that no note is refused for want of room.
LIMIT = 200_000

pytestmark = pytest.mark.scaled

AGENT = """
import json, sys, time
from hermes_core import MemoryManager
home, name, seconds, rounds = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
manager = MemoryManager.from_config(home)
manager.initialize_all(name)
asker = MemoryManager.from_config(home)  # a search leaves out the session that asks
asker.initialize_all(f"{name}-asks")
notes, missed, number, end = 0, [], 0, time.monotonic() + seconds
while number < rounds or time.monotonic() < end:
    word = f"zan{name}q{number}"
    manager.sync_all(f"Where is {word}?", "In the barn.")
    found = json.loads(asker.handle_tool_call("session_search", {"query": word}))
    if [each["session_id"] for each in found.get("results", [])] != [name]:
        missed.append([word, found.get("error"), found.get("count")])
    if number % 10 == 0 and notes < 20:
        text = {"action": "add", "target": "memory", "content": f"Note {notes} of {name}."}
        answer = json.loads(manager.handle_tool_call("memory", text))
        notes += answer["success"]
        missed += [] if answer["success"] else [[answer["error"]]]
    number += 1
failures = sum(h.failures for m in (manager, asker) for h in m.health()["builtin"].values())
warnings = [*manager.warnings, *asker.warnings]
manager.shutdown_all()
asker.shutdown_all()
print(json.dumps([number, notes, missed, failures, warnings]))
"""


@pytest.mark.stress
def test_nothing_is_lost_or_doubled_and_each_finds_its_own(home: Path) -> None:
    (home / "config.yaml").write_text(f"memory:\n  memory_char_limit: {LIMIT}\n")
    seconds = SECONDS if STRESS else 0
    agents = {
        f"p{number}": start_python(AGENT, home, f"p{number}", seconds, ROUNDS)
        for number in range(PROCESSES)
    }
    told = {name: json.loads(output_of(agent, 900)) for name, agent in agents.items()}
    assert {name: each[2:] for name, each in told.items() if each[2:] != [[], 0, []]} == {}
    found = stored(home / "state.db")
    for name, (turns, *_) in told.items():
        assert found[name][::2] == [f"Where is zan{name}q{number}?" for number in range(turns)]
    notes = Notes(home)
    entries = notes.notebooks["memory"].read().entries
    changes = notes.history.changes(limit=-1)
    notes.close()
    wanted = {f"Note {n} of {name}." for name, each in told.items() for n in range(each[1])}
    assert sorted(entries) == sorted(wanted)
    assert len(changes) == len(wanted)
    assert_sound(home / "state.db")
