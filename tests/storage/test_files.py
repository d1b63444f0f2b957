"""The lock on a file: one holder at a time, free when its holder dies, and named when it waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.providers import eventually

from hermes_core.storage.files import (
    LockTimeoutError,
    file_lock,
    holder,
    network_file_system,
)

# hermes-agent takes the lock like this: in its own way, and without a time-out.
HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1], "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
TAKE = """
import sys
from pathlib import Path
from hermes_core.storage.files import file_lock
path, log = Path(sys.argv[1]), sys.argv[2]
for _ in range(int(sys.argv[3])):
    with file_lock(path, 30):
        with open(log, "a") as file:
            file.write("in ")
            file.flush()
            file.write("out ")
"""

posix_only = pytest.mark.skipif(os.name != "posix", reason="flock is POSIX")


@contextmanager
def held_by_another(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@posix_only
def test_a_lock_that_another_program_holds_times_out_in_time(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with held_by_another(path), pytest.raises(LockTimeoutError), file_lock(path, 0.2):
        pytest.fail("two holders at once")


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds it")
def test_the_time_out_names_the_process_that_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with held_by_another(path) as process:
        with pytest.raises(LockTimeoutError) as caught, file_lock(path, 0.05):
            pass
        assert f"process {process.pid} " in str(caught.value)
        assert str(path) in str(caught.value)
        assert str(process.pid) in holder(path)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds it")
def test_the_holder_is_named_and_not_who_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with held_by_another(path) as process:
        waiting = subprocess.Popen(
            [sys.executable, "-S", "-c", HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert eventually(lambda: f" {waiting.pid} " in Path("/proc/locks").read_text(), 60)
            assert f"process {process.pid} " in holder(path)
        finally:
            waiting.kill()
            waiting.communicate()


def test_the_holder_of_a_lock_that_nobody_holds_is_not_made_up(tmp_path: Path) -> None:
    assert holder(tmp_path / "missing.lock") == "another process"
    with file_lock(tmp_path / "x.lock", 1):
        pass
    assert holder(tmp_path / "x.lock") == "another process"


@posix_only
def test_when_the_holder_is_killed_the_next_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with held_by_another(path) as process:
        threading.Timer(0.2, process.send_signal, [signal.SIGKILL]).start()
        with file_lock(path, 60):
            assert process.wait(60) == -signal.SIGKILL


def test_it_is_free_again_after_an_error_and_after_a_time_out(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with pytest.raises(ZeroDivisionError), file_lock(path, 1):
        raise ZeroDivisionError
    with file_lock(path, 1):
        with pytest.raises(LockTimeoutError), file_lock(path, 0.02):
            pass
        with pytest.raises(LockTimeoutError), file_lock(path, 0):
            pass
    with file_lock(path, 1):
        pass


def test_threads_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with file_lock(path, 30):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) == 80


def test_processes_exclude_each_other(tmp_path: Path) -> None:
    path, log = tmp_path / "x.lock", tmp_path / "log"
    command = [sys.executable, "-P", "-c", TAKE, str(path), str(log), "100"]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert log.read_text() == "in out " * 300


@posix_only
def test_the_lock_file_stays_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Unlinking it would let two waiters lock two files of one name."""
    path = tmp_path / "x.lock"
    with file_lock(path, 1):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_can_not_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"), file_lock(tmp_path / "missing" / "x.lock", 1):
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_handle_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with file_lock(path, 1), pytest.raises(LockTimeoutError), file_lock(path, 0):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# -- network file systems ------------------------------------------------------------------

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
41 40 0:36 / /home/me/local rw - ext4 /dev/sdb1 rw
42 22 0:37 / /mnt/with\\040blank rw shared:3 - cifs //server/share rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/var/lib", ""),
        ("/home/me/.hermes", "nfs4"),
        ("/homeless", ""),
        ("/home/me/local/.hermes", ""),
        ("/mnt/with blank/x", "cifs"),
    ],
)
def test_the_innermost_mount_decides(place: str, kind: str, mounts: Path) -> None:
    assert network_file_system(Path(place), mounts) == kind


def test_without_a_list_of_mounts_nothing_is_claimed(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, tmp_path / "missing") == ""
