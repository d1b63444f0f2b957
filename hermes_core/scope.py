"""For whom a provider's code runs now, and what it starts.

Every call of a provider has its `Instance` in a context variable. Threads begin without
context variables, so while a provider is in use it is noted who starts one, and who starts a
process: `threading.Thread.start`, `subprocess.Popen` and the ``start`` of `multiprocessing` do
their work as always, and tell us. What a host starts itself is not noted.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hermes_core.errors import HomeError
from hermes_core.home import resolve_home

if TYPE_CHECKING:  # 15 ms that an agent without an external provider does not pay
    import subprocess
    from multiprocessing.process import BaseProcess

    from hermes_core.processes import Child


class Instance:
    """One provider at work for one home: whose call it is, and what it has started."""

    def __init__(self, name: str, home: Path | None = None) -> None:
        self.name = name
        self.home = home
        self._processes: list[Child] = []

    def note(self, process: Child) -> None:
        """Remember a process that is about to be started."""
        kept = [each for each in self._processes if not _pid(each) or each.poll() is None]
        self._processes = [*kept[-_KEPT:], process]

    def running(self) -> list[Child]:
        """The processes that it has started and that have not ended."""
        return [each for each in self._processes if _pid(each) and each.poll() is None]

    def end_processes(self) -> list[str]:
        """End what it has left behind, with all that came of it; gives their commands."""
        left, self._processes = self.running(), []
        if not left:
            return []
        from hermes_core.processes import end_tree  # noqa: PLC0415

        for process in left:
            end_tree(process)
        return [_command(each) for each in left]


def _pid(process: Child) -> int | None:
    """Its number; none before it runs, and for one that could not be started."""
    return getattr(process, "pid", None)


def _command(process: Child) -> str:
    words = process.args if isinstance(process.args, list | tuple) else [process.args]
    text = " ".join(os.fsdecode(each) for each in words if isinstance(each, str | bytes | Path))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST: Final = 80
_KEPT: Final = 1000

#: Whose call this is; a lane sets it for each call in a context of its own.
CALLER: Final[ContextVar[Instance]] = ContextVar("hermes_caller")


def begin(instance: Instance) -> None:
    """A call begins, in a context that is its own: nothing has to be undone."""
    CALLER.set(instance)
    # Where hermes-agent is installed its own modules are used, and they look here.
    theirs = sys.modules.get("hermes_constants")
    if type(theirs) is ModuleType and instance.home is not None:
        override = getattr(theirs, "set_hermes_home_override", None)
        if override is not None:
            override(str(instance.home))


def caller() -> Instance | None:
    """Whose code runs here: a provider's call, or a thread that a provider has started."""
    found = CALLER.get(None)
    return found if found is not None else _THREADS.get(threading.current_thread())


def current_home() -> Path:
    """The home for which the code that asks is running.

    Raises:
        HomeError: There are several, and nobody can say which one is meant.
    """
    instance = caller()
    if instance is not None and instance.home is not None:
        return instance.home
    homes = _HOMES.living()
    if len(homes) > 1:
        known = ", ".join(sorted(map(str, homes)))
        raise HomeError(
            f"this thread may be any of several homes': {known}",
            where=f"thread {threading.current_thread().name}",
            hint="start it in a provider's call, or with a copy of its context",
        )
    return next(iter(homes), None) or resolve_home()


def instance_of(provider: object, name: str, home: Path | None = None) -> Instance:
    """What stands for a provider object in all of its calls, whoever makes them."""
    known = _INSTANCES.get(id(provider))
    if known is not None and known[0]() is provider:
        instance = known[1]
        instance.home = home or instance.home
        return instance
    instance = Instance(name, home)
    remember(provider, instance)
    return instance


def remember(provider: object, instance: Instance) -> None:
    """Let a provider object be known as this instance."""
    key = id(provider)
    try:
        reference = weakref.ref(provider, lambda _: _INSTANCES.pop(key, None))
    except TypeError:  # its class allows no weak references
        return
    _INSTANCES[key] = (reference, instance)


class _Homes:
    """The homes of managers that have an external provider now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[Path, int] = {}

    def living(self) -> frozenset[Path]:
        with self._lock:
            return frozenset(self._users)

    def add(self, home: Path) -> None:
        with self._lock:
            self._users[home] = self._users.get(home, 0) + 1

    def remove(self, home: Path) -> None:
        with self._lock:
            self._users[home] -= 1
            if not self._users[home]:
                del self._users[home]


class _Watch:
    """Notes who starts threads and processes, for as long as somebody asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._told: list[_Told] = []

    def enter(self) -> None:
        import subprocess  # noqa: PLC0415
        from multiprocessing.process import BaseProcess  # noqa: PLC0415

        told = (
            (threading.Thread, "start", _note_thread),
            (subprocess.Popen, "__init__", _note_process),
            (BaseProcess, "start", _note_worker),
        )
        with self._lock:
            self._users += 1
            there = {each.kind for each in self._told}  # some may still be covered by others'
            self._told += [_Told(*each) for each in told if each[0] not in there]

    def leave(self) -> None:
        """The last one takes it away, unless somebody has put something of theirs over it."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._told = [each for each in self._told if not each.undone()]


class _Told:
    """A method that tells of each of its calls, and is the same in every other way."""

    def __init__(self, kind: type, method: str, note: Callable[[Any], None]) -> None:
        self.kind, self._method = kind, method
        self._original = original = getattr(kind, method)

        @wraps(original)
        def told(self: Any, *args: Any, **kwargs: Any) -> Any:
            note(self)
            return original(self, *args, **kwargs)

        self._replacement = told
        setattr(kind, method, told)

    def undone(self) -> bool:
        """Whether the original is back."""
        if getattr(self.kind, self._method) is not self._replacement:
            return False
        setattr(self.kind, self._method, self._original)
        return True


def _note_thread(thread: threading.Thread) -> None:
    instance = caller()
    if instance is not None:
        _THREADS[thread] = instance


def _note_process(process: subprocess.Popen[Any]) -> None:
    instance = caller()
    if instance is not None:
        instance.note(process)


def _note_worker(process: BaseProcess) -> None:
    instance = caller()
    if instance is not None:
        from hermes_core.processes import Worker  # noqa: PLC0415

        instance.note(Worker(process))


@contextmanager
def watched() -> Iterator[None]:
    """What providers start in here is noted."""
    _WATCH.enter()
    try:
        yield
    finally:
        _WATCH.leave()


def enter(home: Path | None) -> Callable[[], None]:
    """A manager begins to use an external provider; gives what to call at its end."""
    _WATCH.enter()
    if home is not None:
        _HOMES.add(home)

    def leave() -> None:
        _WATCH.leave()
        if home is not None:
            _HOMES.remove(home)

    return leave


# Threads, processes and the objects that start them belong to the process; so does this.
_THREADS: Final[weakref.WeakKeyDictionary[threading.Thread, Instance]] = weakref.WeakKeyDictionary()
_INSTANCES: Final[dict[int, tuple[weakref.ref[Any], Instance]]] = {}
_HOMES: Final = _Homes()
_WATCH: Final = _Watch()
