"""For plugins that keep memories in a service: what they all need, once.

`ServiceProvider` is a `MemoryProvider` that leaves a plugin with what only it can know: how
its service is asked, and what its exceptions mean.
"""

from __future__ import annotations

from hermes_core.backends._failures import BackendError, Cause, cause_of_status, failure
from hermes_core.backends._files import read_own_file, save_own_file
from hermes_core.backends._ids import Alphabet, expanded_id, made_id
from hermes_core.backends._model import (
    Delegation,
    Ending,
    Note,
    ProbeResult,
    Recalled,
    Start,
    Tool,
    Turn,
)
from hermes_core.backends._provider import ServiceProvider
from hermes_core.backends._queue import WriteQueue
from hermes_core.dispatch._loop import EventLoop
from hermes_core.home import resolve_home

__all__ = [
    "Alphabet",
    "BackendError",
    "Cause",
    "Delegation",
    "Ending",
    "EventLoop",
    "Note",
    "ProbeResult",
    "Recalled",
    "ServiceProvider",
    "Start",
    "Tool",
    "Turn",
    "WriteQueue",
    "cause_of_status",
    "expanded_id",
    "failure",
    "made_id",
    "read_own_file",
    "resolve_home",
    "save_own_file",
]
