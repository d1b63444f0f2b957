"""What one provider changes in the agent's process, from its start to its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final, NoReturn
from weakref import ReferenceType

from hermes_core.dispatch.isolation import IsolatedProvider
from hermes_core.dispatch.process_state import (
    State,
    StoringMethods,
    changes_since,
    module_of,
    process_state,
    watch_process,
)
from hermes_core.dispatch.streams import guarded_streams
from hermes_core.provider import MemoryProvider
from hermes_core.storage.logger import logger

#: The hooks that start a provider.
STARTS: Final = frozenset({"initialize", "initialize_for_inspection"})

# Hooks around which the state of the process is compared.
_WATCHED: Final = {**dict.fromkeys(STARTS, "was started"), "shutdown": "was shut down"}


class ProcessWatch:
    """Compares the state of the process while code of a provider runs, and reports each change.

    Args:
        provider: The provider.
        name: Its name.
        trusted: Whether nothing it does is watched: it is our code, or an object that the host
            made itself. Much of the host may be in its module, and may change what it likes.
    """

    def __init__(self, provider: MemoryProvider, name: str, *, trusted: bool) -> None:
        self._provider = provider
        self._name = name
        #: What changed in the process while its code ran, in words, by what it is.
        self._noticed: dict[str, str] = {}
        trusted = trusted or isinstance(provider, IsolatedProvider)
        self._first_state: State = {} if trusted else process_state()
        self._storing_methods = None if trusted else StoringMethods()
        self._closed = False
        #: Objects of ours whose methods the provider may not replace.
        #: Weak: an adapter may outlive its manager, and must not keep it alive.
        self.protected: tuple[ReferenceType[Any], ...] = ()

    def keep_methods(self) -> None:
        """Put back what the provider replaced of ours: the archive needs its turns."""
        if self._storing_methods is None:
            return
        module = module_of(self._provider)
        objects = [each for reference in self.protected if (each := reference()) is not None]
        for method in self._storing_methods.put_back(module=module, objects=objects):
            self._notice({method: f"plugin {self._name}: replaced {method}, which was put back"})

    def guarded(self, hook: str, call: Callable[[], Any]) -> Any:
        """Make a call; undo what a start does to the process's standard streams."""
        if hook not in _WATCHED or self._storing_methods is None:
            return call()
        streams = guarded_streams() if hook in STARTS else nullcontext()
        module = module_of(self._provider)
        with streams, watch_process(self._name, _WATCHED[hook], self._notice, lambda: module):
            return call()

    def _notice(self, lines: Mapping[str, str]) -> None:
        """Report what changed in the process while code of the provider ran, each once."""
        for what, line in lines.items():
            if what not in self._noticed:
                self._noticed[what] = line
                logger.warning("memory: %s", line)

    @property
    def noticed(self) -> list[str]:
        """What has changed in the process since the provider was added, until it was closed."""
        if self._storing_methods is not None and not self._closed:
            self._notice(changes_since(self._name, self._first_state, module_of(self._provider)))
        return list(self._noticed.values())

    def close(self) -> None:
        """Compare no more."""
        self._closed = True


def end_copy(name: str, hook: str) -> NoReturn:
    """End a copy of the process that a plugin made, and that came back to us.

    It would go on as a second agent, with the same outbox. A plugin that needs a copy, for
    example by `multiprocessing`, ends it itself.
    """
    logger.warning("memory provider %s: %s forked the agent; the copy is ended", name, hook)
    os._exit(0)


def process_ends() -> bool:
    """Whether the interpreter runs what was registered with `atexit`.

    That comes after the main thread and all other threads that it waits for.
    """
    main = threading.main_thread()
    others = (each for each in threading.enumerate() if each is not main)
    return not main.is_alive() and all(each.daemon for each in others)
