"""Runs one `forget` again and again, killed in front of its 1st, 2nd, ... call on files.

Started with the shim of tests/builtin preloaded. Prints a JSON object: how often it was killed,
and everything that went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from hermes_core import Config, ForgetRequest
from hermes_core.checkup import forget, survey
from hermes_core.loading.activation import activate_builtin
from support.forget_home import TEXT, count, fill, grep, in_child

KILL = 0
MOST = 20_000


def run(home: Path, number: int = 0) -> None:
    """Forget the text, or finish that; killed at a call after the person has agreed."""
    config = Config(home)
    arm: Callable[..., object] = ctypes.CDLL(None).fault_arm
    journal = forget.unfinished(home)
    if journal is not None:
        forget.resume(config, journal)
        return
    builtin = activate_builtin(config)
    subject = survey.subject_of(config, ForgetRequest(str(home), TEXT), builtin)
    found = survey.survey(config, subject, builtin)
    if number:
        arm(number, KILL)
    forget.finish(config, forget.begin(home, subject, found, provider=False))


def is_killed(home: Path, number: int) -> bool:
    """Whether a `forget` was killed at its nth call, and not done before."""
    child = os.fork()
    if child == 0:
        try:
            run(home, number)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def problems(home: Path, placed: dict[str, int]) -> list[str]:
    """What is wrong after it was finished."""
    found = [f"still in {each}" for each in grep(home)]
    if (home / survey.JOURNAL).exists():
        found.append("the journal is still there")
    receipts = list((home / "receipts").glob("*.json"))
    if len(receipts) != 1:
        return [*found, f"{len(receipts)} receipts"]
    receipt = json.loads(receipts[0].read_text("utf-8"))
    # A journal that was being written when the process was killed is a temporary file with the
    # text, too.
    known = {**placed, "temporary files": receipt["found"].get("temporary files", 0)}
    if receipt["found"] != known or receipt["deleted"] != receipt["found"]:
        found.append(f"the receipt says {receipt['found']}")
    return found if receipt["complete"] else [*found, "not complete"]


def main(folder: Path, step: int) -> None:
    """Kill at every nth call."""
    original, home = folder / "original", folder / "home"
    original.mkdir()
    in_child(lambda: fill(original))
    placed = count(original)
    kills, wrong = 0, []
    for number in range(1, MOST, step):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(original, home)
        if not is_killed(home, number):
            break
        kills += 1
        in_child(lambda: run(home))
        wrong += [f"call {number}: {each}" for each in problems(home, placed)]
    print(json.dumps({"kills": kills, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
