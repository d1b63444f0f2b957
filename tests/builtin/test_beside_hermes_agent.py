"""One home for both: hermes-agent's own MemoryStore and ours, one after the other and at once."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.hermes_agent import PEER, needs_hermes_agent
from support.notes import Agent, notes_file, output_of, recorded, saved, start_python, stored

from hermes_builtin.notes import Author

COUNT = 100 if os.environ.get("HERMES_STRESS") else 15
LIMIT = 10**7

pytestmark = [needs_hermes_agent, pytest.mark.files_only("hermes-agent reads and writes the files")]

THEIR_STORE = f"""
import json, sys
from tools import write_approval
from tools.memory_tool import MemoryStore, apply_memory_pending
store = MemoryStore(memory_char_limit={LIMIT}, user_char_limit={LIMIT})
store.load_from_disk()
"""

# The same for both: adds all, removes every third, replaces every third.
WORK = """
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    text = f"note {number:04} of {sys.argv[1]}."
    results = [add(text)]
    if number % 3 == 1:
        results.append(remove(text))
    if number % 3 == 2:
        results.append(replace(text, text.replace("note", "kept")))
    for result in results:
        if not result["success"]:
            sys.exit(str(result))
"""

THEIRS = f"""
{THEIR_STORE}
def add(text): return store.add("memory", text)
def remove(text): return store.remove("memory", text)
def replace(text, new): return store.replace("memory", text, new)
{WORK}
"""

OURS = f"""
import json, os, sys
from pathlib import Path
from hermes_builtin.notes import Notes, Author, NotesSettings
notes = Notes(Path(os.environ["HERMES_HOME"]), NotesSettings(memory_char_limit={LIMIT}))
tool = notes.tool(lambda *_: None, lambda _: None)
def call(**arguments):
    return json.loads(tool.call({{"target": "memory", **arguments}}, Author("tool", "ours")))
def add(text): return call(action="add", content=text)
def remove(text): return call(action="remove", old_text=text)
def replace(text, new): return call(action="replace", old_text=text, content=new)
{WORK}
"""


def peer(home: Path, source: str) -> Any:
    """Run statements at hermes-agent's store; gives what they put into ``result``."""
    done = subprocess.run(
        [PEER, "-P", "-c", f"{THEIR_STORE}\n{source}\nprint(json.dumps(result))"],
        env={**os.environ, "HERMES_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def start_theirs(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PEER, "-P", "-c", THEIRS, name, str(COUNT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_by(name: str) -> list[str]:
    """What a worker leaves behind."""
    return [
        f"{'kept' if number % 3 == 2 else 'note'} {number:04} of {name}."
        for number in range(COUNT)
        if number % 3 != 1
    ]


def test_both_write_at_the_same_time_and_nothing_is_lost_on_either_side(home: Path) -> None:
    names = ["ours-1", "theirs-1", "ours-2", "theirs-2"]
    workers = [
        start_python(OURS, name, COUNT) if name.startswith("ours") else start_theirs(name)
        for name in names
    ]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        output_of(worker)
    found = Counter(stored(home))
    assert set(found.values()) == {1}
    assert set(found) == {note for name in names for note in left_by(name)}
    assert {each["who"] for each in recorded(home)} == {"tool", "file edit"}
    assert peer(home, "result = store.memory_entries") == stored(home)


def test_what_the_one_wrote_the_other_reads_changes_and_removes(home: Path, agent) -> None:
    session = agent()
    saved(session.add("ours"))
    saved(session.add("ours too"))
    result = peer(home, "result = [store.add('memory', 'theirs'), store.remove('memory', 'too')]")
    assert [each["success"] for each in result] == [True, True]
    assert session.entries() == ["ours", "theirs"]
    saved(session.replace("theirs", "now ours"))
    assert peer(home, "result = store.memory_entries") == ["ours", "now ours"]
    assert peer(home, "result = store.replace('memory', 'now', 'theirs again')")["success"]
    saved(session.add("last"))
    assert stored(home) == ["ours", "theirs again", "last"]


def test_an_entry_with_the_delimiter_in_it_goes_through_both_unharmed(home: Path, agent) -> None:
    session = agent()
    entry = "a list\n§\nwith its sign\n\\§"
    saved(session.add(entry))
    result = peer(
        home, "result = [store.add('memory', 'theirs'), store.remove('memory', 'theirs')]"
    )
    assert [each["success"] for each in result] == [True, True]
    assert peer(home, "result = len(store.memory_entries)") == 1
    assert session.entries() == [entry]


def test_both_show_the_same_block_in_the_prompt(home: Path) -> None:
    session = Agent(home, memory_char_limit=LIMIT, user_char_limit=LIMIT)
    saved(session.add("likes tea"))
    saved(session.add("of two\nlines"))
    saved(session.add("called Ada", "user"))
    session.manager.on_session_switch("s2", reset=True)
    for target in ("memory", "user"):
        theirs = peer(home, f"result = store.format_for_system_prompt({target!r})")
        assert theirs in session.prompt
    session.close()


def test_an_entry_that_hermes_agent_made_longer_is_one_entry(home: Path, agent) -> None:
    session = agent()
    saved(session.add("the port is 80"))
    assert peer(home, "result = store.replace('memory', 'port', 'the port is 8080')")["success"]
    assert session.entries() == ["the port is 8080"]


# -- writes that wait for approval ------------------------------------------------------------


def test_what_we_stage_hermes_agent_can_show_and_approve(home: Path, agent) -> None:
    session = agent(write_approval=True)
    session.add("likes tea")
    session.batch(
        {"action": "add", "content": "likes coffee"},
        {"action": "replace", "old_text": "tea", "content": "likes green tea"},
    )
    source = (
        "records = write_approval.list_pending('memory')\n"
        "result = [[each['id'], each['summary'], apply_memory_pending(each['payload'], store)]"
        " for each in records]"
    )
    first, second = peer(home, source)
    assert "likes tea" in first[1]
    assert first[2]["success"], first
    assert second[2]["success"], second
    assert stored(home) == ["likes green tea", "likes coffee"]


def test_what_hermes_agent_stages_we_can_show_and_approve(home: Path, agent) -> None:
    source = (
        "payloads = [\n"
        "  {'action': 'add', 'target': 'user', 'content': 'called Ada', 'old_text': None},\n"
        "  {'action': 'batch', 'target': 'memory', 'operations': [\n"
        "    {'action': 'add', 'content': 'one'}, {'action': 'add', 'content': 'two'}]},\n"
        "]\n"
        "result = [write_approval.stage_write('memory', each, summary='s', origin='foreground')"
        "['id'] for each in payloads]"
    )
    names = peer(home, source)
    session = agent()
    assert [each.id for each in session.notes.pending.all()] == names
    for name in names:
        session.notes.approve(name, Author("tool, approved"))
    assert stored(home, "user") == ["called Ada"]
    assert notes_file(home).read_text("utf-8") == "one\n§\ntwo"
    assert peer(home, "result = write_approval.list_pending('memory')") == []
