"""What a plugin does to its process, the disk and the network. For a child process only.

Python reports every connection, process and file that its own library opens to an audit hook.
Libraries in C escape that; on Linux a network namespace without a way out stops them.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core.storage.child import TOKEN, processes_with

NETWORK: Final = "network"
PROCESS: Final = "process"
WRITE: Final = "write"

# Audit events of CPython, https://docs.python.org/3/library/audit_events.html. For those with an
# address, the number is the position of that argument.
_PROCESSES: Final = {
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn",
    "os.system", "os.startfile",
}  # fmt: skip
_ADDRESSED: Final = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_NAMED: Final = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
#: The argument of an event that is the changed file.
_WRITES: Final = {
    "os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.rename": 1, "os.link": 1,
    "os.symlink": 1, "os.truncate": 0, "os.chmod": 0, "sqlite3.connect": 0,
}  # fmt: skip
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Opening /dev/null or /proc for writing leaves nothing on the disk.
_DEVICES: Final = ("/dev/", "/proc/", os.devnull)
#: Where Linux counts packets without a route, in this network namespace.
_COUNTERS: Final = (
    ("/proc/self/net/snmp", "OutNoRoutes"),
    ("/proc/self/net/snmp6", "Ip6OutNoRoutes"),
)
# CLONE_NEWUSER and CLONE_NEWNET of <linux/sched.h>, which Python has only since 3.12.
_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000


class Event(NamedTuple):
    """One event: its kind (network, process or write) and its target."""

    kind: str
    what: str


class Watch:
    """Records events on request.

    Args:
        live: Let connections to this machine pass.
        walled: Whether this process is in a separate network without routes.
    """

    def __init__(self, *, live: bool, walled: bool = False) -> None:
        self._live = live
        self._walled = walled
        self._lock = threading.Lock()
        self._open: list[list[Event]] = []
        self._reached_out = False

    @property
    def network_was_tried(self) -> bool:
        """Return whether anything used the network, through Python or native code."""
        return self._reached_out or self._unrouted() > 0

    def install(self) -> None:
        """Start recording. An audit hook can't be removed: it ends with the process."""
        sys.addaudithook(self._record)

    @contextmanager
    def during(self) -> Iterator[list[Event]]:
        """Collect the events of the block, on any thread."""
        events: list[Event] = []
        # The counters are for the process: what grew during the block belongs to the block.
        before = self._unrouted()
        with self._lock:
            self._open.append(events)
        try:
            yield events
        finally:
            if self._unrouted() > before:
                events.append(Event(NETWORK, "a connection by a library that is not Python"))
            with self._lock:
                # By identity: two lists of events that are both empty are equal.
                self._open[:] = [each for each in self._open if each is not events]

    def _record(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in _ADDRESSED:
            self._reached(name, arguments[_ADDRESSED[name]])
        elif name in _NAMED:
            self._reached(name, (arguments[0],))
        elif name in _PROCESSES:
            self._note(Event(PROCESS, _shown(arguments)))
        elif name == "open":
            # The flags are the real ones of the system call, also for Path.open and pathlib.
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
        # An exception in an audit hook makes the call itself fail, so nothing leaves the machine.
        if not (self._live and is_loopback(host)):
            raise ConnectionRefusedError(f"the conformance kit allows no network: {event.what}")

    def _unrouted(self) -> int:
        """Return the count of packets that had no route in the closed network."""
        return sum(map(_counted, _COUNTERS)) if self._walled else 0

    def _wrote(self, path: Any) -> None:
        # A file descriptor: the event of its opening has the path.
        if isinstance(path, int):
            return
        with suppress(TypeError, ValueError):
            text = os.fsdecode(path)
            # SQLite: a database in memory, or opened read-only.
            memory = text in ("", ":memory:") or "mode=memory" in text or "mode=ro" in text
            if not memory and not text.startswith(_DEVICES):
                self._note(Event(WRITE, text))

    def _note(self, event: Event) -> None:
        # Without the lock: the hook also runs on a thread that holds it, and would block itself.
        for events in self._open:
            events.append(event)


def is_loopback(host: object) -> bool:
    """Return whether a host is this machine."""
    if host in (None, "", "localhost"):
        return True
    try:
        return ip_address(str(host)).is_loopback
    except ValueError:
        return False


def _own_pair() -> bool:
    """Return whether Python connects its internal socket pair, as event loops do on Windows."""
    if os.name != "nt":
        return False
    # _own_pair, _reached, _heard, then the function that connects.
    frame = sys._getframe(3)  # noqa: SLF001 - the only way to see the caller
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
    # snmp has two lines per protocol, names and then values; snmp6 has a name and a value per
    # line.
    rows = [line.split() for line in words]
    for names, values in pairwise(rows):
        if name in names[1:] and len(names) == len(values):
            return int(values[names.index(name)])
    return next((int(row[1]) for row in rows if row[:1] == [name]), 0)


def leave_network() -> bool:
    """Move this process to a separate network without routes; Linux only.

    Returns whether it worked. Without it, only the audit hook denies the network.
    """
    if not sys.platform.startswith("linux"):
        return False
    user, group = os.getuid(), os.getgid()
    # Only root may make a network namespace; others can inside a new user namespace.
    flags = _NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
            return False
        if user != 0:  # the user is still the same
            # The kernel requires "deny" before it accepts a gid_map of an unprivileged process.
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except (OSError, AttributeError):
        return False
    return True


class LoggingState:
    """Saves and restores what belongs to the agent in `logging`."""

    def __init__(self) -> None:
        root = logging.getLogger()
        self._root = (root.level, list(root.handlers), list(root.filters))
        self._limit = root.manager.disable
        # What others have named already; the loggers that the plugin creates are its own.
        self._disabled = {name: each.disabled for name, each in _loggers().items()}

    def changes(self) -> list[str]:
        """Return what has changed."""
        root = logging.getLogger()
        level, handlers, filters = self._root
        found = []
        if root.level != level:
            names = map(logging.getLevelName, (level, root.level))
            found.append(f"the level of the root logger was changed from {' to '.join(names)}")
        if root.handlers != handlers:
            found.append("the handlers of the root logger were changed")
        if root.filters != filters:
            found.append("the filters of the root logger were changed")
        if root.manager.disable != self._limit:
            found.append("logging.disable was called")
        now = _loggers()
        off = [name for name, old in self._disabled.items() if now[name].disabled and not old]
        return [*found, f"{len(off)} loggers of others were disabled"] if off else found

    def restore(self) -> None:
        """Restore everything. What was closed stays closed."""
        root = logging.getLogger()
        level, root.handlers[:], root.filters[:] = self._root
        root.setLevel(level)
        logging.disable(self._limit)
        now = _loggers()
        for name, disabled in self._disabled.items():
            now[name].disabled = disabled


def _loggers() -> dict[str, logging.Logger]:
    # A copy: another thread may create a logger meanwhile. The rest are placeholders.
    known = logging.getLogger().manager.loggerDict.copy()
    return {name: each for name, each in known.items() if isinstance(each, logging.Logger)}


class ProcessState:
    """Saves and restores working directory, variables, signal handlers, streams and logging."""

    def __init__(self) -> None:
        self.logging = LoggingState()
        self._folder = Path.cwd()
        self._variables = dict(os.environ)
        self._signals = {each: signal.getsignal(each) for each in signal.valid_signals()}
        self._streams = (sys.stdin, sys.stdout, sys.stderr, sys.excepthook)

    def changes(self) -> list[str]:
        """Return what has changed, without logging."""
        found = []
        if Path.cwd() != self._folder:
            found.append(f"the working folder is {Path.cwd()}")
        names = {name for name, _ in os.environ.items() ^ self._variables.items()}
        found += [f"the variable {name} was changed" for name in sorted(names)]
        found += [
            f"the handler of {signal.Signals(each).name} was replaced"
            for each, handler in self._signals.items()
            if signal.getsignal(each) is not handler
        ]
        names_now = zip(("stdin", "stdout", "stderr", "excepthook"), self._streams, strict=True)
        found += [
            f"sys.{name} was replaced" for name, old in names_now if getattr(sys, name) is not old
        ]
        return found

    def restore(self) -> None:
        """Restore everything."""
        self.logging.restore()
        os.chdir(self._folder)
        # Changed in place: os.environ has to stay the same object, which others imported.
        for name in set(os.environ) - set(self._variables):
            del os.environ[name]
        os.environ.update(self._variables)
        for each, handler in self._signals.items():
            if signal.getsignal(each) is not handler:
                # TypeError: a handler that C installed is None here, and can't be set again.
                with suppress(OSError, ValueError, TypeError):
                    signal.signal(each, handler)
        sys.stdin, sys.stdout, sys.stderr, sys.excepthook = self._streams


#: Names of the kit's threads: those that call, and those that load.
_OURS: Final = ("kit-", "load-")


class ThreadsAndProcesses(NamedTuple):
    """The threads and processes at one moment."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @classmethod
    def now(cls) -> ThreadsAndProcesses:
        """Return the current threads and processes."""
        return cls(frozenset(threading.enumerate()), frozenset(_processes()))

    def new_threads(self) -> list[str]:
        """Return the names of threads that were started since and still run."""
        new = [each.name for each in threading.enumerate() if each not in self.threads]
        return [name for name in new if not name.startswith(_OURS)]

    def new_processes(self) -> list[int]:
        """Return the processes that were started since and still run."""
        return sorted(set(_processes()) - self.processes)


def _processes() -> list[int]:
    """Return the child processes, as the system (Linux) or Python knows them."""
    token = os.environ.get(TOKEN, "")
    # By the token in the environment (Linux), which also finds grandchildren and daemons.
    seen = [each for each in processes_with(token) if each != os.getpid()] if token else []
    # Elsewhere only what Python started: Popen objects that are still referenced.
    known = [each for each in gc.get_objects() if isinstance(each, subprocess.Popen)]
    return [*seen, *(each.pid for each in known if each.poll() is None)]


_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def files(folder: Path) -> Iterator[Path]:
    """Return every file below a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def shared_with_others(folder: Path) -> list[str]:
    """Return files that others may read or write, with modes; [] where modes mean nothing."""
    if os.name != "posix":
        return []
    found = []
    for path in files(folder):
        mode = stat.S_IMODE(path.lstat().st_mode)
        # The mode of a link itself is always 0777.
        if mode & _OTHERS and not path.is_symlink():
            found.append(f"{path.relative_to(folder)} is {mode:04o}")
    return sorted(found)


def holding(folder: Path, text: str) -> list[Path]:
    """Return the files that contain a text."""
    needle = text.encode()
    return [path for path in files(folder) if needle in _bytes(path)]


def printed_since(output: Path, size: int) -> str:
    """Return what was written to a file after an offset."""
    # The file is the process's stdout, behind Python's buffer.
    sys.stdout.flush()
    return output.read_bytes()[size:].decode("utf-8", "replace").strip()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
