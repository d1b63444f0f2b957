"""Runs one change of a secret again and again, with a fault at its 1st, 2nd, ... call.

Started with the shim of tests/builtin preloaded. Prints a JSON object: how many faults there
were, and everything that went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import keyring
from support.keyrings import InFile

from hermes_core.errors import HermesError
from hermes_core.secrets import Secrets

OLD, NEW = "old value", "new 'value'"
KINDS = {"kill": 0, "EIO": 1, "ENOSPC": 2}
MOST = 3000

#: Each: the backend that the secret was set with, what is done, and its value afterwards.
OPERATIONS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "set in .env": ("dotenv", lambda home: Secrets(home, "dotenv").set("KEY", NEW), NEW),
    "set in keyring": ("keyring", lambda home: Secrets(home, "keyring").set("KEY", NEW), NEW),
    "from .env to keyring": ("dotenv", lambda home: Secrets(home, "keyring").set("KEY", NEW), NEW),
    "from keyring to .env": ("keyring", lambda home: Secrets(home, "dotenv").set("KEY", NEW), NEW),
    "other provider": ("keyring", lambda home: Secrets(home, "keyring").set("KEY", NEW, "b"), NEW),
    "move to keyring": ("dotenv", lambda home: Secrets(home).move("keyring"), OLD),
    "move to .env": ("keyring", lambda home: Secrets(home).move("dotenv"), OLD),
}

shim = ctypes.CDLL(None)


def prepare(home: Path, backend: str) -> None:
    home.mkdir()
    os.environ["TEST_KEYRING"] = str(home / "keyring.json")
    (home / ".env").write_text("# mine\nOTHER=x\n")
    Secrets(home, backend).set("KEY", OLD, "a")


def attempt(home: Path, name: str, number: int, kind: int) -> tuple[str, bool]:
    """Run the change in a child with one fault; what it said, and whether there was one."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        shim.fault_arm(number, kind)
        try:
            OPERATIONS[name][1](home)
            answer = "done"
        except HermesError as error:
            answer = f"refused: {error}"
        except BaseException as error:
            answer = f"raised {error!r}"
        happened = shim.fault_disarm()
        os.write(send, json.dumps([answer, happened]).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    answer, happened = json.loads(told) if told else ("killed", True)
    return answer, bool(happened)


def judge(home: Path, name: str, answer: str) -> str:
    """What is wrong with the state that a fault left, or ""."""
    found = Secrets(home).get("KEY")
    if found is None or found.value not in (OLD, OPERATIONS[name][2]):
        return f"the secret is {found} with {found.value if found else None!r}"
    if answer == "done" and found.value != OPERATIONS[name][2]:
        return "it says done, but has the old value"
    if answer.startswith("raised") or OLD in answer or NEW in answer:
        return answer
    if not (home / ".env").read_text().startswith("# mine\nOTHER=x\n"):
        return "another line of .env has changed"
    if answer != "killed" and list(home.glob(".*.tmp")):
        return "something is left behind"
    return next_one_works(home, name)


def next_one_works(home: Path, name: str) -> str:
    """Whether the same can be done as if nothing had happened."""
    OPERATIONS[name][1](home)
    again = Secrets(home).get("KEY")
    found = again is not None and again.value in (OLD, OPERATIONS[name][2])
    return "" if found else "the next attempt loses it"


def main() -> None:
    folder, step = Path(sys.argv[1]), int(sys.argv[2])
    backend = InFile()
    keyring.get_keyring = lambda: backend
    faults, wrong = 0, []
    for name, (store, _, _) in OPERATIONS.items():
        home = folder / "home"
        for label, kind in KINDS.items():
            for number in range(1, MOST, step):
                shutil.rmtree(home, ignore_errors=True)
                prepare(home, store)
                answer, happened = attempt(home, name, number, kind)
                if not happened:
                    break
                faults += 1
                if problem := judge(home, name, answer):
                    wrong.append(f"{name}, {label} at call {number}: {problem}")
    print(json.dumps({"faults": faults, "wrong": wrong}))


main()
