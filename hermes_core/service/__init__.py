"""The base of plugins whose memories are in a service.

`ServiceProvider` is a `MemoryProvider` that leaves to a plugin what only the plugin knows: how to
call its service, and what its exceptions mean.
"""

from __future__ import annotations

from hermes_core.dispatch.worker import EventLoop
from hermes_core.provider import ProbeResult, hand_over
from hermes_core.service.failures import (
    BackendError,
    Cause,
    RefusedError,
    cause_of_status,
    failure,
    seconds_asked,
)
from hermes_core.service.ids import (
    Alphabet,
    expanded_id,
    forget_person,
    is_first,
    is_local,
    made_id,
    person_name,
)
from hermes_core.service.own_files import own_database, read_own_file, save_own_file
from hermes_core.service.provider import (
    CompletedTurn,
    Delegation,
    Ending,
    Note,
    Recalled,
    ServiceProvider,
    Start,
    Tool,
)
from hermes_core.service.write_queue import WriteQueue
from hermes_core.storage.home import resolve_home

__all__ = [
    "Alphabet",
    "BackendError",
    "Cause",
    "CompletedTurn",
    "Delegation",
    "Ending",
    "EventLoop",
    "Note",
    "ProbeResult",
    "Recalled",
    "RefusedError",
    "ServiceProvider",
    "Start",
    "Tool",
    "WriteQueue",
    "cause_of_status",
    "expanded_id",
    "failure",
    "forget_person",
    "hand_over",
    "is_first",
    "is_local",
    "made_id",
    "own_database",
    "person_name",
    "read_own_file",
    "resolve_home",
    "save_own_file",
    "seconds_asked",
]
