"""Runs one set-up again and again, with a fault at its 1st, 2nd, ... call on files.

Started with the shim of tests/builtin preloaded. Prints a JSON object: how many faults there
were, and everything that went wrong.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyring
import yaml

from hermes_core import MemoryManager
from hermes_core.cli import setup as command
from hermes_core.cli.app import cli
from hermes_core.config.lock_file import read_lock_file
from hermes_core.secrets import Secrets
from support.fielded import add_plugin
from support.keyrings import InFile

KINDS = {"kill": 0, "ENOSPC": 2}
MOST = 3000
NAMES = ("ACME_API_KEY", "ACME_TOKEN")
FIELDS = (
    {"key": "timeout", "type": "integer"},
    {"key": "api_key", "secret": True, "required": True},
    {"key": "token", "secret": True},
)

shim = ctypes.CDLL(None)


def in_child(work: Callable[[], Any]) -> Any:
    """What the work gives, done in a process of its own; None if that died."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            answer = work()
        except BaseException as error:
            answer = f"raised {type(error).__name__}: {error}"
        os.write(send, json.dumps(answer).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else None


def run_setup(home: Path, timeout: str, secret: str, number: int = 0, kind: int = 0) -> Any:
    """Set acme up; the fault comes at a call after all answers are known."""
    real = command.commit

    def armed(*arguments: Any) -> None:
        if number:
            shim.fault_arm(number, kind)
        real(*arguments)

    happened = [0]

    def ended(*_: object) -> bool:
        happened[0] = shim.fault_disarm()
        return True

    command.commit, command.prove = armed, ended
    sys.stdin = io.StringIO(f"{secret}-1\n{secret}-2\n")
    arguments = ["--home", str(home), "setup", "acme", "--set", f"timeout={timeout}"]
    try:
        cli([*arguments, "--secret-stdin", "api_key", "--secret-stdin", "token"],
            standalone_mode=False)  # fmt: skip
    except BaseException as error:
        return [bool(happened[0] or shim.fault_disarm()), f"{type(error).__name__}: {error}"]
    return [bool(happened[0]), ""]


def look(home: Path) -> Any:
    """Start memory as an agent does; gives what is wrong with that."""
    manager = MemoryManager.from_config(home)
    manager.shutdown_all()
    return [str(problem) for problem in manager.problems]


def state(home: Path) -> dict[str, Any]:
    """All that a set-up decides."""
    path = home / "config.yaml"
    memory = (yaml.safe_load(path.read_text()) or {}).get("memory", {}) if path.exists() else {}
    own = home / "acme.json"
    found = [Secrets(home).get(name) for name in NAMES]
    return {
        "provider": memory.get("provider"),
        "pins": sorted(read_lock_file(home)),
        "config": memory.get("acme"),
        "own": json.loads(own.read_text() or "null") if own.exists() else None,
        "secrets": [each.value if each else None for each in found],
    }


def staged(home: Path) -> list[str]:
    return [each.variable for each in Secrets(home).names() if each.variable not in NAMES]


def prepare(home: Path, fresh: bool, made_of: str) -> None:
    """A home in front of the set-up; made once per kind, then copied."""
    os.environ["TEST_KEYRING"] = str(home / "keyring.json")
    shutil.rmtree(home, ignore_errors=True)
    copy = home.with_name(f"{home.name}-{made_of}")
    if not copy.exists():
        make(home, fresh)
        shutil.copytree(home, copy)
    else:
        shutil.copytree(copy, home)


def make(home: Path, fresh: bool) -> None:
    home.mkdir()
    add_plugin(home, FIELDS)
    if not fresh:
        add_plugin(home, (), name="beta")
        in_child(lambda: run_setup(home, "5", "old"))
        text = (home / "config.yaml").read_text()
        (home / "config.yaml").write_text(text.replace("provider: acme", "provider: beta"))


def judge(home: Path, before: Any, after: Any, told: Any) -> str:
    """What is wrong with the state that a fault left, or ""."""
    problems = in_child(lambda: look(home))
    if problems != []:
        return f"memory does not start: {problems}"
    now = state(home)
    if now not in (before, after):
        return f"a mix: {now}"
    if told is not None and not told[1] and now != after:
        return "it says done, and is not"
    if (home / "setup.json").exists():
        return "the journal is still there"
    again = in_child(lambda: run_setup(home, "7", "new"))
    if again != [False, ""] or state(home) != after:
        return f"the next set-up fails: {again} {state(home)}"
    left = staged(home)
    return f"left behind: {left}" if left else ""


def main() -> None:
    folder, step = Path(sys.argv[1]), int(sys.argv[2])
    kept = keyring.get_keyring()
    faults, wrong = 0, []
    home = folder / "home"
    kinds = list(KINDS.items())
    for fresh, backend in ((True, kept), (False, kept), (False, InFile())):
        keyring.get_keyring = lambda backend=backend: backend
        name = f"{'first' if fresh else 'second'} set-up with {type(backend).__name__}"
        prepare(home, fresh, name)
        before = state(home)
        in_child(lambda: run_setup(home, "7", "new"))
        after = state(home)
        kinds.reverse()
        for label, kind in kinds if step == 1 else kinds[:1]:  # one or the other in a short run
            for number in range(1, MOST, step):
                prepare(home, fresh, name)
                told = in_child(lambda n=number, k=kind: run_setup(home, "7", "new", n, k))
                if told is not None and not told[0]:
                    break
                faults += 1
                if problem := judge(home, before, after, told):
                    wrong.append(f"{name}, {label} at call {number}: {problem}")
    print(json.dumps({"faults": faults, "wrong": wrong}))


if __name__ == "__main__":
    main()
