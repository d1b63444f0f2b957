"""Which process somebody is, whether it still runs, and how one is ended.

A number alone does not say: numbers are given out again. With the time at which a process
began it is one of its kind.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_STARTED_FIELD: Final = 19  # of those behind the name in /proc/PID/stat


def this_process() -> str:
    """This process: host, number and the time at which it began."""
    return _identity(os.getpid())


@lru_cache(maxsize=4)
def _identity(pid: int) -> str:
    return f"{socket.gethostname()}/{pid}/{started(pid)}"


def is_alive(process: str) -> bool:
    """Whether a process that `this_process` named still runs.

    One of another machine can't be looked at; it counts as alive.
    """
    host, pid, began = process.rsplit("/", 2)
    if host != socket.gethostname():
        return True
    return began != "" and started(int(pid)) == began


def started(pid: int) -> str:
    """When a process began, in the system's own terms; "" if there is none."""
    if sys.platform == "win32":
        return _started_on_windows(pid)
    stat = Path(f"/proc/{pid}/stat")
    try:
        fields = stat.read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return "" if Path("/proc/self/stat").exists() else _asked(pid)
    if fields[0] == "Z":  # it has ended, and its parent has not looked yet
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
    """As ps says it, where there is no /proc."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return "-".join(answer.stdout.split())


def _started_on_windows(pid: int) -> str:
    import ctypes  # noqa: PLC0415 - 10 ms that nobody else pays
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


class Child(Protocol):
    """What is needed of a process to end it: what `subprocess.Popen` has."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def args(self) -> Any:
        """Its command, for a person."""

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for its end."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""


class Worker:
    """A process of `multiprocessing`, in the way of `subprocess`."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.args = f"multiprocessing {process.name}"

    @property
    def pid(self) -> int:
        """Its number; 0 before it runs, and when its owner has closed it."""
        try:
            return self._process.pid or 0
        except ValueError:
            return 0

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""
        try:
            return self._process.exitcode
        except ValueError:  # closed: that can only be done to one that has ended
            return 0

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end; a pipe says so, whoever looks at how it has ended."""
        with suppress(ValueError):
            self._process.join(timeout)

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)


def end_tree(process: Child, grace: float = 1.0) -> None:
    """End a process and all that came of it: asked first, then made to.

    What has left its parents behind can only be found by its process group.
    """
    if sys.platform == "win32":
        command = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
        subprocess.run(command, check=False, capture_output=True)  # noqa: S603
    else:
        others = list(_descendants(process.pid))
        if grace:
            _signal(process, others, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace)
        _signal(process, others, signal.SIGKILL)
    process.wait()


def _signal(process: Child, others: list[int], number: int) -> None:
    process.send_signal(number)  # none, if it has ended: its number may be another's by now
    for pid in (process.pid, *others):
        # It may lead a group, and others of that have lost their parents.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)  # type: ignore[attr-defined,unused-ignore]
    for pid in others:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and they, and so on."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found = children.get(pid, [])
    while found:
        yield from found
        found = [each for parent in found for each in children.get(parent, ())]


def _parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
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
