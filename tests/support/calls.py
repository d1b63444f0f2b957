"""Calls to put into the log of calls."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from hermes_core.call_log import CallLog, LoggedCall

A_CALL = LoggedCall(1_700_000_000.0, "honcho", "prefetch", "s1", "ok", 0.012, 345)


def call(**changes: Any) -> LoggedCall:
    """A call that is ok, but for what is given."""
    return A_CALL._replace(**changes)


def write(home: Path, *calls: LoggedCall) -> None:
    """Have calls written, as a manager does that is then shut down."""
    with closing(CallLog.of(home)) as log:
        for each in calls:
            log.add(each)
