"""The outbox and the log of calls: can they be used, and does anything lie there for good?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from hermes_core.call_log import hook_health, path_of
from hermes_core.config import Config
from hermes_core.doctor._finding import OK, PROBLEM, WARNING, Finding
from hermes_core.errors import DatabaseError
from hermes_core.outbox import care
from hermes_core.outbox.care import Backlog
from hermes_core.redelivery import Whose, active_provider
from hermes_core.standing import outbox_warnings, stuck, writes, writes_fail

_DAY: Final = 86_400.0


def examine_outbox(config: Config) -> Iterator[Finding]:
    """Whether it is whole, and what lies in it."""
    try:
        with closing(care.open_store(config, mends=False)) as store:
            whole = care.is_whole(store)
            report = care.report(store)
    except DatabaseError as error:
        todo = error.hint or "the next agent that runs sets a damaged one aside"
        yield Finding("outbox", PROBLEM, error.what, todo)
        return
    if not whole:
        todo = "the next agent that runs sets it aside; then: hermes-plugins outbox backfill"
        yield Finding("outbox", PROBLEM, "outbox.db is damaged", todo)
        return
    active = active_provider(config)
    fails = stuck(report, active, time.time())
    if fails:
        yield Finding("outbox", PROBLEM, fails, "when it works again: hermes-plugins outbox retry")
    for line in outbox_warnings(report):
        detail, _, todo = line.rpartition(" (")
        yield Finding("outbox", WARNING, detail, todo.rstrip(")"))
    waiting = [_waiting(each, active) for each in report.backlogs if each.waiting]
    if not fails:
        yield Finding("outbox", OK, "; ".join(waiting) or "whole, nothing waits")


def _waiting(backlog: Backlog, active: Whose) -> str:
    told = f"{writes(backlog.waiting)} for {backlog.provider}"
    return told if active.owns(backlog) else f"{told}, which is not active"


def examine_calls(config: Config) -> Iterator[Finding]:
    """Whether the log can be read, and says that writes arrive."""
    now = time.time()
    try:
        calls = sum(each.calls for each in hook_health(config.home, since=now - _DAY))
        fails = writes_fail(config, active_provider(config), now)
    except DatabaseError as error:
        todo = f"it is only a log: remove {path_of(config.home)}"
        yield Finding("log of calls", WARNING, error.what, todo)
        return
    if fails:
        yield Finding("writes", PROBLEM, fails, "see: hermes-plugins log --failed")
    yield Finding("log of calls", OK, f"{calls:,} calls in the last 24 hours")
