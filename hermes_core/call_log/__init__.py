"""``logs/memory-calls.db``: which provider was called, with what result, how long it took.

No content. A call is added in about a microsecond and written by a worker, so that the log costs
a turn nothing; kill -9 loses at most the last half second of it.
"""

from hermes_core.call_log.log import CallLog, LoggedCall, forget_calls, path_of
from hermes_core.call_log.reader import (
    CalledNames,
    DayReport,
    HookReport,
    LostCalls,
    called_names,
    daily_calls,
    hook_health,
    lost_calls,
    read_calls,
)

__all__ = [
    "CallLog",
    "CalledNames",
    "DayReport",
    "HookReport",
    "LoggedCall",
    "LostCalls",
    "called_names",
    "daily_calls",
    "forget_calls",
    "hook_health",
    "lost_calls",
    "path_of",
    "read_calls",
]
