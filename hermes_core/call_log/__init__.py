"""``logs/memory-calls.db``: which provider was called, how it went, how long it took.

No content. Calls are added in about a microsecond and written by a thread, so that the log
costs a turn nothing; kill -9 takes at most the last half second of it.
"""

from hermes_core.call_log._call import Call, path_of
from hermes_core.call_log._log import CallLog
from hermes_core.call_log._reading import HookReport, Lost, hook_health, lost_calls, read_calls

__all__ = [
    "Call",
    "CallLog",
    "HookReport",
    "Lost",
    "hook_health",
    "lost_calls",
    "path_of",
    "read_calls",
]
