"""Agents in processes of their own, whose provider keeps a journal."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.notes import start_python
from support.storages import Storage

_TESTS = str(Path(__file__).parents[1])

_AGENT = f"""
import sys
sys.path.insert(0, {_TESTS!r})
from hermes_core import Deadlines, MemoryManager
from support.journals import Journal

home, session, user, plugin, count, ending, url, namespace = sys.argv[1:]
if plugin == "True":
    manager = MemoryManager.from_config(home)
else:
    manager = MemoryManager(home=home, deadlines=Deadlines(shutdown=2))
    if url:
        from hermes_core.outbox.writer import OutboxSettings
        from hermes_core.storage.postgres import shared_database
        manager._configure(OutboxSettings(database=shared_database(url, namespace)))
    manager.add_provider(Journal())
manager.initialize_all(session, user_id=user)
print("ready", flush=True)
for number in range(int(count)):
    manager.sync_all(f"{{session}} {{user}} {{number}}", "answer")
    print(number, flush=True)
exec(ending)
"""

#: How an agent may end, once it has taken its turns.
SHUT_DOWN = "manager.shutdown_all()"
STAY = "import time; time.sleep(120)"
AT_ONCE = "import os; os._exit(0)"


def agent(
    home: Path,
    session: str,
    user: str = "",
    *,
    plugin: bool = False,
    count: int = 10**9,
    ending: str = SHUT_DOWN,
) -> subprocess.Popen[str]:
    """Start an agent that takes turns and says which were acknowledged."""
    where = Storage.current
    return start_python(
        _AGENT, home, session, user, plugin, count, ending, where.url, where.namespace
    )


def kill_after(process: subprocess.Popen[str], lines: int) -> int:
    """Kill an agent when it has acknowledged so many turns; how many it really had."""
    assert process.stdout is not None
    heard = [process.stdout.readline() for _ in range(lines + 1)]
    process.kill()
    rest = process.stdout.read()
    _, errors = process.communicate(timeout=60)
    assert heard[-1], errors
    told = ("".join(heard) + rest).split("\n")[:-1]
    return len(told) - 1  # the first one says that it is ready
