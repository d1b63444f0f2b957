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
    parse_retry_after,
)
from hermes_core.service.ids import (
    Alphabet,
    expand_id,
    forget_person,
    is_first,
    is_local,
    make_id,
    person_name,
)
from hermes_core.service.own_files import own_database, read_own_file, save_own_file
from hermes_core.service.provider import (
    CompletedTurn,
    Delegation,
    Note,
    RecallResult,
    ServiceProvider,
    SessionEnd,
    SessionStart,
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
    "EventLoop",
    "Note",
    "ProbeResult",
    "RecallResult",
    "RefusedError",
    "ServiceProvider",
    "SessionEnd",
    "SessionStart",
    "Tool",
    "WriteQueue",
    "cause_of_status",
    "expand_id",
    "failure",
    "forget_person",
    "hand_over",
    "is_first",
    "is_local",
    "make_id",
    "own_database",
    "parse_retry_after",
    "person_name",
    "read_own_file",
    "resolve_home",
    "save_own_file",
]
