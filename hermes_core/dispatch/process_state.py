"""What a plugin changes in the agent's process: noticed at its import, its start and its end.

A plugin that runs in the process can replace any function and change whatever belongs to the
process. Nothing here prevents that, and nothing is put back, with one exception: a replaced
method of ours would keep turns from the archive. `isolation: process`
is the way out; see docs/security.md.

The state is compared only there, and whenever somebody asks for the warnings, not on every turn: it
takes about 0.1 ms. Other threads of the host may change it at the same time. So a message says when
something changed, and names the plugin as the cause only if the new function is the plugin's.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from io import open as open_file  # bound before a plugin can replace it
from operator import call, is_
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeVar

#: Functions that memory depends on, by module and name. Looked up in modules that are loaded.
_FUNCTIONS: Final = (
    ("json", "dumps"), ("json", "loads"), ("sqlite3", "connect"), ("builtins", "open"),
    ("time", "time"), ("time", "monotonic"), ("time", "sleep"), ("os", "open"), ("os", "replace"),
    ("sys", "excepthook"), ("sys", "unraisablehook"), ("threading", "excepthook"),
)  # fmt: skip
#: The methods that store a turn on its way from `MemoryManager` to the disk, by their class.
_STORING: Final[dict[type, tuple[str, ...]]] = {}

_HANDLERS: Final = "the handlers of logging"
#: What hosts rarely change once they run.
_LASTING: Final = ("the umask", "the working directory", "the limit", "the level of", _HANDLERS)

#: Threads of the host go on while a plugin loads, so nothing here knows who did it.
_WHO: Final = ", by it or by another thread"

State = Mapping[str, Any]
_Class = TypeVar("_Class", bound=type)


def stores_turns(*methods: str) -> Callable[[_Class], _Class]:
    """Say which methods of a class of ours store turns: a plugin may not replace them."""

    def registered(kind: _Class) -> _Class:
        _STORING[kind] = methods
        return kind

    return registered


def process_state() -> State:
    """What belongs to the process now, by what people call it; "" for what can't be read."""
    found: dict[str, Any] = {"the umask": _umask(), "the working directory": _folder()}
    for module, name in _FUNCTIONS:
        found[f"{module}.{name}"] = vars(sys.modules.get(module) or os).get(name)
    for kind, name in _methods():
        found[f"{kind.__name__}.{name}"] = vars(kind).get(name)
    for number, what in _signals():
        with suppress(ValueError):
            found[what] = signal.getsignal(number)
    found |= _limits()
    root = logging.getLogger()
    found["the level of logging"] = (root.level, logging.root.manager.disable)
    found[_HANDLERS] = tuple(root.handlers)
    return MappingProxyType(found)


def _umask() -> str:
    """The umask, where it can be read without setting it: other threads create files."""
    with suppress(OSError), open_file("/proc/self/status", "rb") as file:  # noqa: UP020
        for line in file:
            if line.startswith(b"Umask:"):
                return line.split()[1].decode()
    return ""


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return "(removed)"


def _limits() -> dict[str, Any]:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return {}
    return {what: resource.getrlimit(number) for number, what in _limit_names(resource)}


@cache
def _limit_names(resource: ModuleType) -> list[tuple[int, str]]:
    # By number, since RLIMIT_OFILE is another name of RLIMIT_NOFILE.
    names = {vars(resource)[each]: each for each in dir(resource)[::-1] if each[:7] == "RLIMIT_"}
    return [(number, f"the limit {name}") for number, name in names.items()]


@cache
def _signals() -> list[tuple[int, str]]:
    """Each signal and what people call its handler; by plain numbers, which are read faster."""
    return [
        (int(each), f"the handler of {getattr(each, 'name', f'signal {each}')}")
        for each in signal.valid_signals()
    ]


def _methods() -> Iterator[tuple[type, str]]:
    """Yield our classes that are loaded, each with a method that turns need."""
    for kind, methods in tuple(_STORING.items()):  # another thread may import one
        for method in methods:
            yield kind, method


def changes(name: str, when: str, before: State, after: State, module: str = "") -> dict[str, str]:
    """Return a line for each thing that changed while a plugin ran, by what it is.

    Args:
        name: The plugin.
        when: What it was doing, such as "was loaded".
        before: The state before.
        after: The state after.
        module: The module that its provider's class is from.
    """
    found, during = {}, f"while plugin {name} {when}, "
    for what, old in before.items():
        new = after.get(what)
        if new is old or new in (old, ""):
            continue
        if callable(new) and is_of(new, module):
            found[what] = f"plugin {name}: replaced {what} in the agent's process"
        elif isinstance(old, str):
            found[what] = f"{during}{what} changed from {old} to {new}{_WHO}"
        else:
            found[what] = f"{during}{what} changed{_WHO}"
    return found


def changes_since(name: str, before: State, module: str) -> dict[str, str]:
    """Return what has changed since a plugin was added, without what hosts change themselves.

    A host that starts installs signal handlers, excepthooks and handlers of logging. Only those
    that are the plugin's are reported, and handlers of logging that are gone.
    """
    after = process_state()
    found = changes(name, "was active", before, after, module)
    if {*before.get(_HANDLERS, ())} <= {*after[_HANDLERS]}:
        found.pop(_HANDLERS, None)
    return {
        what: line
        for what, line in found.items()
        if line.startswith("plugin ") or what.startswith(_LASTING)
    }


def is_of(function: Callable[..., Any], module: str) -> bool:
    """Whether a function is defined in a module, or in the package that it is from."""
    where = getattr(function, "__module__", None)
    package = module.rpartition(".")[0] or module
    return isinstance(where, str) and bool(module) and f"{where}.".startswith(f"{package}.")


def module_of(provider: object) -> str:
    """The module that a provider's class is from."""
    found = type(provider).__module__
    return found if isinstance(found, str) else ""


class StoringMethods:
    """The methods of ours that store a turn, as they are now; looked at after each call."""

    def __init__(self) -> None:
        self._places = list(_methods())
        self._names: defaultdict[type, set[str]] = defaultdict(set)
        for kind, name in self._places:
            self._names[kind].add(name)
        # With these and `operator.call`, a look is one loop in C.
        self._look_ups = [partial(vars(kind).get, name) for kind, name in self._places]
        self._methods = list(map(call, self._look_ups))  # None for one that a class does not have

    def put_back(self, *, module: str = "", objects: Iterable[object] = ()) -> list[str]:
        """Put back those that were replaced; returns their names.

        Args:
            module: If given, only those that the plugin of this module has replaced. What a host
                replaces, for example to measure calls, stays.
            objects: Objects of ours that may have got their own methods.
        """
        found = []
        now = list(map(call, self._look_ups))
        if not all(map(is_, now, self._methods)):
            for (kind, name), new, old in zip(self._places, now, self._methods, strict=True):
                changed = new is not old and old is not None
                if changed and (not module or _may_be_of(new, module)):
                    setattr(kind, name, old)
                    found.append(f"{kind.__name__}.{name}")
        for each in objects:
            names = self._names.get(type(each))
            if names and not names.isdisjoint(vars(each)):
                found += _without_own(each, names, module)
        return found


def _without_own(one: object, names: Iterable[str], module: str) -> list[str]:
    """Remove methods of a plugin's from an object of ours; returns their names."""
    own = vars(one)
    found = [name for name in names if name in own and _may_be_of(own[name], module)]
    for name in found:
        del own[name]
    return [f"{type(one).__name__}.{name}" for name in found]


def _may_be_of(function: Any, module: str) -> bool:
    """Whether a function is a plugin's, or of no module, as code has that `exec` runs."""
    return is_of(function, module) or getattr(function, "__module__", None) not in sys.modules


@contextmanager
def watch_process(
    name: str,
    when: str,
    report: Callable[[dict[str, str]], object],
    module: Callable[[], str] = str,
) -> Iterator[None]:
    """Report what changes while code of a plugin runs; put back methods of ours."""
    before, methods = process_state(), StoringMethods()
    try:
        yield
    finally:
        report(changes(name, when, before, process_state(), module()))
        # Only what is the plugin's: another thread of the host may install a tracer meanwhile.
        methods.put_back(module=module() or name)
