"""After a fork, parent and child each have a thread and a connection of their own."""

from __future__ import annotations

import os

import pytest
from support.scripts import run_script

from hermes_core.call_log import read_calls

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

PRELUDE = """
    from pathlib import Path
    from support.calls import call
    from hermes_core.call_log import CallLog, read_calls

    home = Path({home!r})
    log = CallLog.of(home)
"""


def providers(home) -> list[str]:
    return sorted(each.provider for _, each in read_calls(home, limit=10**6))


def test_parent_and_child_write_what_each_was_given(home):
    done = run_script(
        PRELUDE.format(home=str(home))
        + """
    log.add(call(provider="before"))
    while not read_calls(home):
        time.sleep(0.01)
    log.add(call(provider="waits"))
    child = os.fork()
    log.add(call(provider="child" if child == 0 else "parent"))
    log.close()
    print(True, threading.active_count(), flush=True)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    """
    )
    assert (done.stdout, done.stderr) == ("True 1\n" * 2, "")
    assert providers(home) == ["before", "child", "parent", "waits"]


def test_a_child_that_adds_nothing_has_no_thread_and_closes_at_once(home):
    done = run_script(
        PRELUDE.format(home=str(home))
        + """
    log.add(call(provider="parent"))
    child = os.fork()
    if child == 0:
        print(threading.active_count(), flush=True)
        log.close()
        os._exit(0)
    os.waitpid(child, 0)
    log.close()
    """
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert providers(home) == ["parent"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")  # noqa: PTH112
def test_a_child_has_no_connection_of_its_parent(home):
    done = run_script(
        PRELUDE.format(home=str(home))
        + """
    def open_files():
        files = [os.readlink(each) for each in Path("/proc/self/fd").glob("*") if each.is_symlink()]
        return sum(str(home) in each for each in files)

    log.add(call())
    while not read_calls(home):
        time.sleep(0.01)
    print(open_files() > 0, flush=True)
    child = os.fork()
    if child == 0:
        print(open_files(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    log.add(call())
    log.close()
    """
    )
    assert (done.stdout, done.stderr) == ("True\n0\n", "")
    assert len(providers(home)) == 2


def test_forks_in_the_middle_of_a_burst_lose_and_damage_nothing(home):
    done = run_script(
        PRELUDE.format(home=str(home))
        + """
    stop = threading.Event()
    added = 0

    def burst():
        global added
        while not stop.wait(0.001):
            for _ in range(20):
                log.add(call(provider="parent"))
                added += 1

    thread = threading.Thread(target=burst)
    thread.start()
    children = []
    for number in range(10):
        child = os.fork()
        if child == 0:
            for _ in range(50):
                log.add(call(provider=f"child {number}"))
            log.close()
            os._exit(0)
        children.append(child)
        before = added
        while added == before:  # the next one in another burst
            time.sleep(0.001)
    for child in children:
        os.waitpid(child, 0)
    stop.set()
    thread.join()
    log.close()
    print(added)
    """
    )
    assert done.stderr == ""
    found = providers(home)
    assert found.count("parent") == int(done.stdout)
    for number in range(10):
        assert found.count(f"child {number}") == 50
