"""Sees what a plugin reaches for, and keeps it from the network. For a child process only.

Python tells an audit hook of every connection, process and file that its own library opens.
Libraries in C escape that; on Linux a network namespace without a way out stops them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

NETWORK: Final = "network"
PROCESS: Final = "process"
WRITE: Final = "write"

_PROCESSES: Final = {
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn",
    "os.system", "os.startfile",
}  # fmt: skip
_ADDRESSED: Final = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_NAMED: Final = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
#: Which argument of an event is the file that changes.
_WRITES: Final = {
    "os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "os.link": 1,
    "os.symlink": 1, "os.truncate": 0, "os.chmod": 0, "sqlite3.connect": 0,
}  # fmt: skip
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES: Final = ("/dev/", "/proc/", os.devnull)
#: Where Linux counts, for this network alone, what it had no route for.
_COUNTERS: Final = (
    ("/proc/self/net/snmp", "OutNoRoutes"),
    ("/proc/self/net/snmp6", "Ip6OutNoRoutes"),
)
_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000


class Event(NamedTuple):
    """One thing that was done: network, process or write; and what of it."""

    kind: str
    what: str


class Watch:
    """Records events while somebody wants them.

    Args:
        live: Let connections to this machine pass.
        walled: Whether this process has a network of its own, that leads nowhere.
    """

    def __init__(self, *, live: bool, walled: bool = False) -> None:
        self._live = live
        self._walled = walled
        self._lock = threading.Lock()
        self._open: list[list[Event]] = []
        self._reached_out = False

    @property
    def network_was_tried(self) -> bool:
        """Whether anything has tried the network, by Python or behind its back."""
        return self._reached_out or self._unrouted() > 0

    def install(self) -> None:
        """Begin. There is no way to end it but to end the process."""
        sys.addaudithook(self._heard)

    @contextmanager
    def during(self) -> Iterator[list[Event]]:
        """What happens in the block, on any thread."""
        events: list[Event] = []
        before = self._unrouted()
        with self._lock:
            self._open.append(events)
        try:
            yield events
        finally:
            if self._unrouted() > before:
                events.append(Event(NETWORK, "a connection by a library that is not Python"))
            with self._lock:
                self._open[:] = [each for each in self._open if each is not events]

    def _heard(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in _ADDRESSED:
            self._reached(name, arguments[_ADDRESSED[name]])
        elif name in _NAMED:
            self._reached(name, (arguments[0],))
        elif name in _PROCESSES:
            self._note(Event(PROCESS, _shown(arguments)))
        elif name == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self._wrote(path)
        elif name in _WRITES:
            self._wrote(arguments[_WRITES[name]])

    def _reached(self, name: str, address: Any) -> None:
        # Not a network: a socket file, or no address at all.
        if not isinstance(address, tuple) or _own_pair():
            return
        host = address[0].decode("latin-1") if isinstance(address[0], bytes) else address[0]
        event = Event(NETWORK, f"{name.partition('.')[2]} {':'.join(map(str, address[:2]))}")
        self._note(event)
        self._reached_out = True
        if not (self._live and is_loopback(host)):
            raise ConnectionRefusedError(f"the conformance kit allows no network: {event.what}")

    def _unrouted(self) -> int:
        """What the system could send nowhere, since we live behind a wall."""
        return sum(map(_counted, _COUNTERS)) if self._walled else 0

    def _wrote(self, path: Any) -> None:
        if isinstance(path, int):
            return
        with suppress(TypeError, ValueError):
            text = os.fsdecode(path)
            memory = text in ("", ":memory:") or "mode=memory" in text or "mode=ro" in text
            if not memory and not text.startswith(_DEVICES):
                self._note(Event(WRITE, text))

    def _note(self, event: Event) -> None:
        for events in self._open:
            events.append(event)


def is_loopback(host: object) -> bool:
    """Whether a host is this machine."""
    if host in (None, "", "localhost"):
        return True
    try:
        return ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _own_pair() -> bool:
    """Whether Python connects two sockets of its own, as event loops need on Windows."""
    if os.name != "nt":
        return False
    frame = sys._getframe(3)  # noqa: SLF001 - who asked is seen nowhere else
    return frame.f_code.co_name.endswith("socketpair")


def _shown(arguments: tuple[Any, ...]) -> str:
    parts = [str(each) for each in arguments[:2] if isinstance(each, str | bytes | list | tuple)]
    return " ".join(parts)[:200]


def _counted(counter: tuple[str, str]) -> int:
    path, name = counter
    try:
        words = Path(path).read_text("ascii").split("\n")
    except OSError:
        return 0
    rows = [line.split() for line in words]
    for names, values in pairwise(rows):
        if name in names[1:] and len(names) == len(values):
            return int(values[names.index(name)])
    return next((int(row[1]) for row in rows if row[:1] == [name]), 0)


def leave_network() -> bool:
    """Move this process to a network of its own that leads nowhere; Linux only.

    Whether it worked. Where it does not, the audit hook has to do.
    """
    if not sys.platform.startswith("linux"):
        return False
    user, group = os.getuid(), os.getgid()
    flags = _NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
            return False
        if user != 0:  # we are still who we were
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except (OSError, AttributeError):
        return False
    return True
