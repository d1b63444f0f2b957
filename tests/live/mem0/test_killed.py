"""A server, a model or the agent itself is killed in the middle of fifty turns."""

import signal
import subprocess
import sys
import time

import pytest
from support.mem0_processes import agent, ended, facts, once

from hermes_core import MemoryManager


def test_a_server_that_is_killed_and_started_again_has_every_turn_once(home, served, stored):
    manager = MemoryManager.from_config(home)
    assert not manager.problems
    manager.initialize_all("s1")
    lines = facts(50)
    for number, line in enumerate(lines):
        if number == 20:
            served.kill()
        if number == 35:
            served.start()
        manager.sync_all(line, "Noted.")
        if number % 5 == 0:
            time.sleep(0.05)  # so that some are on their way when it happens
    assert manager.flush_pending(90) is True
    manager.shutdown_all()
    once(stored(), lines)


_TALK = """
import sys, time
from hermes_core import MemoryManager
manager = MemoryManager.from_config(sys.argv[1])
manager.initialize_all("s1")
for number, line in enumerate(sys.argv[2:]):
    manager.sync_all(line, "Noted.")
    time.sleep(0.02)
    print(number, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX's")
def test_an_agent_that_is_killed_loses_nothing_and_says_nothing_twice(home, served, stored):
    lines = facts(50)
    command = [sys.executable, "-c", _TALK, str(home), *lines]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as talking:
        while talking.stdout.readline() != "49\n":
            pass
        talking.send_signal(signal.SIGKILL)
    retry = [sys.executable, "-m", "hermes_core", "--home", str(home), "outbox", "retry"]
    subprocess.run(retry, check=True, capture_output=True, timeout=120)
    once(stored(), lines)
    again = ended(agent(home, "s2", "What says Fact049 of box049?"))
    assert lines[49] in again["recalled"]
