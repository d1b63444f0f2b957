"""Runs one operation on the notes again and again, with a fault at its 1st, 2nd, ... call.

Started with the shim preloaded. Prints a JSON object: how many faults there were, and
everything that went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path

from hermes_builtin.notes import Author, Notes, NotesSettings

OLD = ["first note", "second note", "third note"]
KINDS = {"kill": 0, "EIO": 1, "ENOSPC": 2, "EINTR": 3, "short write": 4}
OPERATIONS = {
    "add": {"action": "add", "content": "fourth note"},
    "replace": {"action": "replace", "old_text": "second", "content": "another note"},
    "remove": {"action": "remove", "old_text": "first"},
    "batch": {
        "operations": [
            {"action": "remove", "old_text": "third"},
            {"action": "add", "content": "fifth note"},
        ]
    },
}
RESULTS = {
    "add": [*OLD, "fourth note"],
    "replace": ["first note", "another note", "third note"],
    "remove": ["second note", "third note"],
    "batch": ["first note", "second note", "fifth note"],
}
MOST = 2000

shim = ctypes.CDLL(None)


def entries(home: Path) -> list[str]:
    """What hermes-agent would read: the file is checked by other code than ours."""
    text = (home / "memories" / "MEMORY.md").read_text("utf-8")
    return [part.strip() for part in text.split("\n§\n")]


def prepare(home: Path) -> None:
    """A home with three notes."""
    shutil.rmtree(home, ignore_errors=True)
    notes = Notes(home)
    tool = notes.tool(lambda *_: None, lambda _: None)
    for entry in OLD:
        tool.call({"target": "memory", "action": "add", "content": entry}, Author())
    notes.close()


def attempt(home: Path, name: str, number: int, kind: int) -> tuple[str, bool]:
    """Run the operation in a child with one fault; its answer, and whether there was one."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        notes = Notes(home, NotesSettings())
        tool = notes.tool(lambda *_: None, lambda _: None)
        shim.fault_arm(number, kind)
        try:
            answer = tool.call({"target": "memory", **OPERATIONS[name]}, Author())
        except BaseException as error:  # a tool answers, whatever happens
            answer = json.dumps({"raised": repr(error)})
        happened = shim.fault_disarm()
        os.write(send, json.dumps([answer, happened]).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        return "", True
    answer, happened = json.loads(told)
    return answer, bool(happened)


def judge(home: Path, name: str, answer: str) -> str:
    """What is wrong with the state that a fault left, or ""."""
    found = entries(home)
    if found not in (OLD, RESULTS[name]):
        return f"the file is neither old nor new: {found}"
    if "raised" in answer:
        return answer
    if answer:
        success = json.loads(answer)["success"]
        if success != (found == RESULTS[name]):
            return f"the answer says success={success}, but the file has {found}"
    leftovers = [path.name for path in (home / "memories").glob("*.tmp")]
    if answer and leftovers:
        return f"left behind: {leftovers}"
    return next_one_works(home, found)


def next_one_works(home: Path, found: list[str]) -> str:
    """Whether the notebook can be used as if nothing had happened."""
    notes = Notes(home)
    tool = notes.tool(lambda *_: None, lambda _: None)
    answer = tool.call({"target": "memory", "action": "add", "content": "afterwards"}, Author())
    changes = notes.history.changes()
    notes.close()
    if not json.loads(answer)["success"]:
        return f"the next write fails: {answer}"
    if entries(home) != [*found, "afterwards"]:
        return f"the next write made {entries(home)} of {found}"
    if any(change.who == "file edit" for change in changes):
        return "a change of ours is recorded as somebody else's"
    return ""


def main() -> None:
    folder, name, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    faults, wrong = 0, []
    prepare(folder / "template")
    for label, kind in KINDS.items():
        for number in range(1, MOST, step):
            home = folder / "home"
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(folder / "template", home)
            answer, happened = attempt(home, name, number, kind)
            if not happened:
                break
            faults += 1
            problem = judge(home, name, answer)
            if problem:
                wrong.append(f"{name}, {label} at call {number}: {problem}")
    print(json.dumps({"faults": faults, "wrong": wrong}))


main()
