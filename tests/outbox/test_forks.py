"""A forked child holds no claim of its parent's, and its turns arrive too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.journals import noted, texts, twice_at_once
from support.scripts import run_script
from support.storages import Storage, scaled

pytestmark = [
    pytest.mark.usefixtures("both_storages"),
    pytest.mark.scaled,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
]

BEGIN = """
    from pathlib import Path
    from support.journals import Journal, noted
    home = Path({home!r})
    manager = MemoryManager(home=home)
    {storage}
    manager.add_provider(Journal())
    manager.initialize_all("s1")
"""


def run(home: Path, source: str) -> None:
    done = run_script(
        BEGIN.format(home=str(home), storage=Storage.current.statement) + source, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_turns_of_many_children_and_of_their_parent_all_arrive(home: Path) -> None:
    children = scaled(60, 6)
    run(
        home,
        f"""
    (home / "slow").write_text("0.001")
    children = []
    for number in range({children}):
        manager.sync_all(f"parent {{number}}", "answer")
        child = os.fork()
        if child == 0:
            try:
                manager.sync_all(f"child {{number}}", "answer")
                manager.flush_pending(20)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert manager.flush_pending(100)
    manager.shutdown_all()
""",
    )
    wanted = [f"{who} {number}" for number in range(children) for who in ("parent", "child")]
    assert sorted(texts(home)) == sorted(wanted)
    assert [text for text in texts(home) if "parent" in text] == wanted[::2]
    assert twice_at_once(noted(home)) == []


def test_a_fork_beside_threads_that_are_at_work_leaves_the_child_free(home: Path) -> None:
    run(
        home,
        f"""
    from hermes_core.outbox import open_outbox
    going = True
    def busy():
        while going:
            open_outbox(home).release()
            manager._writes._outbox.wake()
    def talk():
        number = 0
        while going:
            manager.sync_all(f"parent {{number}}", "answer")
            number += 1
            time.sleep(0.001)
    threads = [threading.Thread(target=each) for each in (busy, busy, talk)]
    for thread in threads:
        thread.start()
    for number in range({scaled(100, 8)}):
        child = os.fork()
        if child == 0:
            manager.sync_all(f"child {{number}}", "answer")
            os._exit(0)
        end = time.monotonic() + 20
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(child, 9)
                os.waitpid(child, 0)
                print("a child hangs")
                break
            time.sleep(0.002)
    going = False
    for thread in threads:
        thread.join()
    assert manager.flush_pending(60)
    manager.shutdown_all()
""",
    )
    children = [text for text in texts(home) if "child" in text]
    assert len(children) == len(set(children)) == scaled(100, 8)


def test_a_fork_beside_a_write_that_runs_does_not_send_it_twice(home: Path) -> None:
    run(
        home,
        """
    (home / "hold").touch()
    manager.sync_all("parent", "answer")
    while not noted(home, "begin"):
        time.sleep(0.005)
    child = os.fork()
    if child == 0:
        manager.sync_all("child", "answer")
        flushed = manager.flush_pending(1)
        os._exit(flushed)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 0  # it waits behind the parent's
    assert len(noted(home, "begin")) == 1
    (home / "hold").unlink()
    assert manager.flush_pending(100)
    manager.shutdown_all()
""",
    )
    assert texts(home) == ["parent", "child"]
    assert twice_at_once(noted(home)) == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing_can_go_on_with_the_home(home: Path, method: str) -> None:
    program = home / "program.py"
    program.write_text(
        f"""
import multiprocessing, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from hermes_core import MemoryManager
from support.journals import Journal

def talk(number):
    manager = MemoryManager(home={str(home)!r})
    {Storage.current.statement}
    manager.add_provider(Journal())
    manager.initialize_all(f"worker-{{number}}")
    manager.sync_all(f"worker {{number}}", "answer")
    manager.flush_pending(20)
    manager.shutdown_all()

if __name__ == "__main__":
    talk("parent")
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        pool.map(talk, range(4))
""",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-P", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(texts(home)) == {f"worker {each}" for each in ("parent", 0, 1, 2, 3)}


def test_a_child_is_free_whatever_locks_other_threads_held_at_the_fork(home: Path) -> None:
    run(
        home,
        """
    from hermes_core.outbox import worker
    held, done = threading.Event(), threading.Event()
    def hold():
        with worker._SHARED.lock, manager._writes._outbox._lock:
            held.set()
            done.wait(60)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        manager.sync_all("child", "answer")
        manager.on_session_switch("s2")
        manager.flush_pending(10)
        os._exit(0)
    end = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, 9)
            sys.exit("the child hangs")
        time.sleep(0.01)
    done.set()
    thread.join()
    manager.shutdown_all()
""",
    )
    assert texts(home) == ["child"]


def test_the_threads_of_a_child_may_all_be_the_first_to_use_the_outbox(home: Path) -> None:
    run(
        home,
        f"""
    sys.setswitchinterval(1e-6)
    for number in range({scaled(40, 4)}):
        manager.sync_all(f"parent {{number}}", "answer")
        assert manager.flush_pending(100)
        child = os.fork()
        if child == 0:
            together = threading.Barrier(4)
            def talk(name):
                together.wait()
                manager.sync_all(f"child {{number}} {{name}}", "answer")
            threads = [threading.Thread(target=talk, args=(each,)) for each in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            os._exit(0 if manager.flush_pending(20) else 1)
        assert os.waitpid(child, 0)[1] == 0
    manager.shutdown_all()
""",
    )
    children = [text for text in texts(home) if "child" in text]
    assert len(children) == len(set(children)) == 4 * scaled(40, 4)
