"""Processes: a name that is never used again, whether one still runs, and how to end one.

The system uses the number of an ended process again. The number together with the time at which
the process began is unique.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import getnode

_STARTED_FIELD: Final = 19  # of those behind the name in /proc/PID/stat


def this_process() -> str:
    """Return the name of this process: host, number and the time at which it began."""
    return _identity(os.getpid())


@lru_cache(maxsize=4)
def _identity(pid: int) -> str:
    return f"{socket.gethostname()}/{pid}/{started(pid)}"


def machine_of(process: str) -> str:
    """Return the machine of a process that `this_process` named."""
    return process.rpartition("/")[0].rpartition("/")[0]


def is_alive(process: str) -> bool:
    """Return whether a process, named by `this_process`, still runs.

    A process of another machine can't be checked, so it counts as alive.
    """
    host, pid, began = process.rsplit("/", 2)
    # A home on a shared disk: another machine's process numbers mean nothing here. Its lease
    # expires.
    if host != socket.gethostname():
        return True
    return began != "" and started(int(pid)) == began


def fleet_process() -> str:
    """Return the name of this process for a store that several machines use.

    It also says on which machine and in which container: elsewhere, the number means another
    process, whatever the host is called.
    """
    return f"{this_process()}@{_process_space()}"


def may_be_alive(process: str) -> bool:
    """Return whether a process, named by `fleet_process`, may still run.

    One of another machine or container always may.
    """
    name, _, space = process.rpartition("@")
    return space != _process_space() or is_alive(name)


@lru_cache(maxsize=1)
def _process_space() -> str:
    """A few letters for what all processes have in common that this one can see."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
    except OSError:
        namespace = ""
    known = f"{socket.gethostname()}\0{_boot() or getnode()}\0{namespace}"
    return sha256(known.encode()).hexdigest()[:12]


def started(pid: int) -> str:
    """Return when a process began, as text of the system; "" if it does not run."""
    if sys.platform == "win32":
        return _started_on_windows(pid)
    stat = Path(f"/proc/{pid}/stat")
    try:
        # After the last parenthesis: the name of a process may contain blanks and parentheses
        # itself.
        fields = stat.read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _asked(pid)
    if fields[0] == "Z":  # it has ended, and its parent has not waited for it yet
        return ""
    return f"{fields[_STARTED_FIELD]}.{_boot()}"


@lru_cache(maxsize=1)
def _boot() -> str:
    """Times in /proc count from the start of the system."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _asked(pid: int) -> str:
    """The same from ps, where there is no /proc."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    # Two processes compare these texts, and may differ in time zone and language.
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603
    return "-".join(answer.stdout.split())


def _started_on_windows(pid: int) -> str:
    import ctypes  # noqa: PLC0415 - takes 10 ms, needed on Windows only
    from ctypes import wintypes  # noqa: PLC0415

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return ""
    try:
        created, *others = (wintypes.FILETIME() for _ in range(4))
        times = (ctypes.byref(each) for each in (created, *others))
        ended = wintypes.DWORD()
        kernel.GetExitCodeProcess(handle, ctypes.byref(ended))
        if ended.value != 259 or not kernel.GetProcessTimes(handle, *times):  # noqa: PLR2004 - STILL_ACTIVE
            return ""
        return str(created.dwHighDateTime << 32 | created.dwLowDateTime)
    finally:
        kernel.CloseHandle(handle)


def users_of(folder: Path) -> list[str]:
    """The other processes that have a file below a folder open, where the system says so (Linux).

    Each as people write it: "process 4711 (python3)".
    """
    found = []
    inside = f"{os.path.realpath(folder)}{os.sep}"
    for place in sorted(Path("/proc").glob("[0-9]*")):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if int(place.name) != os.getpid() and any(
                os.readlink(each).startswith(inside)  # noqa: PTH115 - a link to no path of ours
                for each in (place / "fd").iterdir()
            ):
                name = (place / "comm").read_text().strip()
                found.append(f"process {place.name} ({name})")
    return found


def end_tree(process: subprocess.Popen[Any], grace: float = 1.0) -> None:
    """End a process and its descendants: SIGTERM first, then SIGKILL.

    A descendant whose parent has ended can only be found by its process group.
    """
    if sys.platform == "win32":
        command = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
        subprocess.run(command, check=False, capture_output=True)  # noqa: S603
    else:
        # Listed before the first signal: once a parent has ended, its children belong to process 1.
        others = list(_descendants(process.pid))
        if grace:
            _signal(process, others, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        _signal(process, others, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[Any], others: list[int], number: int) -> None:
    process.send_signal(number)  # not if it has ended: its number may belong to another process
    for pid in (process.pid, *others):
        # It may lead a process group with members whose parents have ended.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)  # type: ignore[attr-defined,unused-ignore]
    for pid in others:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, directly or indirectly."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = children.get(pid, [])
    while found:
        yield from found
        found = [each for parent in found for each in children.get(parent, ())]


def _parents() -> Iterator[tuple[int, int]]:
    """Yield every process with its parent."""
    if Path("/proc/self/stat").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stat = (folder / "stat").read_text("ascii", "replace")
                yield int(folder.name), int(stat.rpartition(")")[2].split()[1])
        return
    answer = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=False)  # noqa: S607
    for line in answer.stdout.splitlines():
        pid, parent = line.split()
        yield int(pid), int(parent)
