"""Runs one migration again and again, killed at its 1st, nth, ... call of a function.

Prints a JSON object: how often it was killed, and everything that went wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from hermes_core import HermesError
from hermes_core.checkup import storage
from hermes_core.config import load_config
from support.full_home import CONFIG, content, fill

MOST = 1_000_000
#: Calls are counted in these modules: each of their functions is a step. The first has the order.
MODULES = (
    "checkup/storage.py", "storage_parts.py", "sqlite/rows.py", "postgres/rows.py",
    "storage/migration.py", "outbox/part.py", "storage/files.py", "config/editor.py",
)  # fmt: skip


def in_child(work: Callable[[], Any]) -> Any:
    """What the work returns, done in a process of its own; None if that died."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        try:
            answer = work()
        except BaseException as error:
            answer = f"raised {type(error).__name__}: {error}"
        with os.fdopen(send, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else None


def run(home: Path, to: str, number: int = 0, modules: tuple[str, ...] = MODULES) -> str:
    """Move the home; killed at a call of these modules, if a number is given."""
    left = number

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event == "call" and frame.f_code.co_filename.endswith(modules):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    config = load_config(home)
    if number:
        sys.setprofile(count)
    try:
        storage.migrate(config, to)
    except HermesError as error:
        if "already stores to" not in str(error):  # killed after the very last step
            raise
    finally:
        sys.setprofile(None)
    return "done"


def problems(home: Path, to: str, before: Any) -> list[str]:
    """What is wrong after it was finished."""
    found = []
    if in_child(lambda: json.loads(json.dumps(content(home)))) != before:
        found.append("the content differs")
    report = in_child(lambda: storage.storage_status(load_config(home)).as_json())
    if not report["ok"]:
        found.append(f"status: {report}")
    wanted = "" if to == "files" else to
    if load_config(home).storage != wanted:
        found.append(f"stores to {load_config(home).storage}")
    return found


def main(folder: Path, url: str, step: int, modules: tuple[str, ...]) -> None:
    """Kill at every nth call, on the way to the database and on the way back."""
    original, home = folder / "original", folder / "home"
    in_child(lambda: fill(original))
    before = in_child(lambda: content(original))
    kills, wrong = 0, []
    for number in range(1, MOST, step):
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(original, home)
        space = f"  storage_namespace: kill-{os.urandom(6).hex()}\n"
        (home / "config.yaml").write_text(CONFIG + space)
        killed = 0
        for to in (url, "files"):
            told = in_child(lambda to=to, number=number: run(home, to, number, modules))
            if told is None:
                killed += 1
                told = in_child(lambda to=to: run(home, to))
            where = f"call {number} of the way to {to.partition(':')[0]}"
            if told != "done":
                wrong.append(f"{where}: {told}")
                break
            wrong += [f"{where}: {each}" for each in problems(home, to, before)]
            for name in ("state.db", "outbox.db", "memories", "pending"):
                for path in home.glob(f"{name}*") if to == url else ():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        kills += killed
        if not killed:
            break
    print(json.dumps({"kills": kills, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), MODULES[: int(sys.argv[4])])
