"""Runs one replay again and again, killed at its 1st, nth, ... call of a function.

Prints a JSON object: how often it was killed, and everything that went wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

MOST = 1_000_000
#: Calls are counted in these modules: each of their functions is a step.
MODULES = (
    *("checkup/switch.py", "checkup/replayed_turns.py", "checkup/journal.py", "beta/__init__.py"),
    *("outbox/admin.py", "outbox/delivery.py", "outbox/store.py", "storage/files.py"),
)


def replay(home: Path, number: int = 0) -> str:
    """Replay to beta; killed at a call, if a number is given. Returns why it did not finish."""
    from hermes_core.checkup import switch

    switch._BATCH, switch._RECALL_SECONDS = 5, 0.0  # several batches of a small past
    left = number

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event == "call" and frame.f_code.co_filename.endswith(MODULES):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if number:
        threading.setprofile(count)  # deliveries run on workers
        sys.setprofile(count)
    (result,) = switch.replay_in_child(home, switch.ReplayRequest("beta", parent=0))
    sys.setprofile(None)
    return result.reason


def in_child(home: Path, number: int = 0) -> bool:
    """Whether a replay in a process of its own was killed."""
    child = os.fork()
    if child == 0:
        reason = "raised"
        try:
            reason = replay(home, number)
        finally:
            os._exit(bool(reason))
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, "a replay failed"
    return os.WIFSIGNALED(status)


def problems(home: Path, wanted: list[str]) -> list[str]:
    """What is wrong after it was finished."""
    rows = [json.loads(line) for line in (home / "beta.jsonl").read_text().splitlines()]
    said = [each["said"] for each in rows]
    found = []
    if Counter(said) != Counter(wanted):
        found.append(f"arrived {dict(Counter(said) - Counter(wanted))} too often, "
                     f"{dict(Counter(wanted) - Counter(said))} not at all")  # fmt: skip
    for session in {each["session"] for each in rows if each["kind"] == "turn"}:
        times = [each["at"] for each in rows if each["session"] == session]
        if times != sorted(times):
            found.append(f"{session} is out of order")
    return found


def main(original: Path, home: Path, wanted: list[str], step: int, most: int) -> None:
    """Kill at every nth call, at most so often."""
    sys.setswitchinterval(0.001)
    kills, wrong = 0, []
    for number in range(1, MOST, step):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(original, home)
        if kills >= most or not in_child(home, number):
            break
        kills += 1
        in_child(home)
        wrong += [f"call {number}: {each}" for each in problems(home, wanted)]
    print(json.dumps({"kills": kills, "wrong": wrong}))


if __name__ == "__main__":
    packages = sys.argv[4]
    sys.path[:] = [packages if each.endswith("site-packages") else each for each in sys.path]
    given = json.loads(sys.argv[3])
    main(Path(sys.argv[1]), Path(sys.argv[2]), given["wanted"], given["step"], given["most"])
