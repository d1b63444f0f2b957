"""How deliveries and calls stand, from what agents left in outbox.db and memory-calls.db.

For `status` and `doctor`: that a provider loads does not say that it takes what it is given.
"""

from __future__ import annotations

import time
from itertools import takewhile
from typing import Any, Final, NamedTuple

from hermes_core.call_log import Call, HookReport, hook_health, lost_calls, read_calls
from hermes_core.config import Config
from hermes_core.errors import DatabaseError
from hermes_core.hookspecs import HOOKS, Lane
from hermes_core.outbox import care
from hermes_core.outbox.care import Backlog, OutboxReport
from hermes_core.redelivery import Whose

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0
#: So many failures in a row are no accident.
_IN_A_ROW: Final = 3
_LOOKED_AT: Final = 100
_FULL: Final = 0.9

_WRITES: Final = tuple(
    hook for hook, rule in HOOKS.items() if rule.lane is Lane.WRITE and hook != "on_session_switch"
)


class HookStanding(NamedTuple):
    """How a hook fared in the last 24 hours.

    Attributes:
        report: The figures.
        last_failed: Whether its last call went wrong.
        error_at: When a call last went wrong; None if none did.
    """

    report: HookReport
    last_failed: bool
    error_at: float | None


class Standing(NamedTuple):
    """How a home stands.

    Attributes:
        outbox: None if it can't be read.
        hooks: Those that were called in the last 24 hours.
        lost: How many calls the log does not have.
        failing: That the active provider takes no writes, if so.
        problems: What is lost or fails now, with that.
        warnings: What a person should look at.
    """

    outbox: OutboxReport | None
    hooks: tuple[HookStanding, ...] = ()
    lost: int = 0
    failing: str = ""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def standing(config: Config, active: Whose) -> Standing:
    """Look at both files. What can't be read is said, never raised."""
    now = time.time()
    problems: list[str] = []
    warnings: list[str] = []
    try:
        outbox: OutboxReport | None = outbox_report(config)
    except DatabaseError as error:
        outbox = None
        problems.append(f"what waits for delivery is not known: {error}")
    hooks: tuple[HookStanding, ...] = ()
    lost = 0
    failing = ""
    try:
        hooks = _hooks(config, now)
        lost = lost_calls(config.home).calls
        failing = writes_fail(config, active, now)
    except DatabaseError as error:
        warnings.append(f"how calls fared is not known: {error}")
    if outbox is not None:
        failing = failing or stuck(outbox, active, now)
        warnings += outbox_warnings(outbox)
    problems += [failing] if failing else []
    return Standing(outbox, hooks, lost, failing, tuple(problems), tuple(warnings))


def outbox_report(config: Config) -> OutboxReport:
    """How the outbox stands.

    Raises:
        DatabaseError: It can't be read.
    """
    store = care.open_store(config, mends=False)
    try:
        return care.report(store)
    finally:
        store.close()


def outbox_warnings(report: OutboxReport) -> list[str]:
    """What a person should do about the outbox."""
    found = []
    for each in report.backlogs:
        if each.dead:
            why = f": {each.dead_error}" if each.dead_error else ""
            found.append(
                f"{writes(each.dead)} for {each.provider} given up{why} "
                "(see: hermes-plugins outbox list --state dead; then: outbox retry, or drop)"
            )
        if each.missed:
            found.append(
                f"no room was left for {writes(each.missed)} for {each.provider} "
                "(run: hermes-plugins outbox backfill)"
            )
    if report.bytes > _FULL * report.max_bytes:
        percent = 100 * report.bytes / report.max_bytes
        found.append(f"the outbox is {percent:.0f} % full (see: hermes-plugins outbox status)")
    found += [
        f"{name} was damaged and is set aside; what waited in it was not delivered "
        "(run: hermes-plugins outbox backfill --since WHEN, then remove it)"
        for name in report.set_aside
    ]
    return found


def writes(count: int) -> str:
    """So many writes, in words."""
    return "1 write" if count == 1 else f"{count:,} writes"


def _hooks(config: Config, now: float) -> tuple[HookStanding, ...]:
    return tuple(_hook(config, each) for each in hook_health(config.home, since=now - _DAY))


def _hook(config: Config, report: HookReport) -> HookStanding:
    which: dict[str, Any] = {"provider": report.provider, "hook": report.hook, "limit": 1}
    last = [call for _, call in read_calls(config.home, **which)]
    failed = [call for _, call in read_calls(config.home, failed=True, **which)]
    wrong = bool(last) and last[0].outcome != "ok"
    at = failed[0].at if failed and report.last_error else None
    return HookStanding(report, wrong, at)


def writes_fail(config: Config, active: Whose, now: float) -> str:
    """Says so if the newest writes to the active provider all failed; else "".

    A start that failed counts as one, since no write can follow it.

    Raises:
        DatabaseError: The log can't be read.
    """
    if not active.provider:
        return ""
    calls = [
        *(call for hook in _WRITES for call in _newest(config, active, hook)),
        *(call for call in _newest(config, active, "initialize") if call.outcome != "ok"),
    ]
    newest = sorted((call for call in calls if call.at >= now - _DAY), key=lambda call: -call.at)
    failed = list(takewhile(lambda call: call.outcome != "ok", newest))
    if not failed or len(failed) < min(_IN_A_ROW, len(newest)):
        return ""
    count = f"{len(failed)}" if len(failed) < _LOOKED_AT else f"{_LOOKED_AT} and more"
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(failed[-1].at))
    error = next((call.error for call in failed if call.outcome == "error"), failed[0].error)
    return f"{active.provider} takes no writes: every call since {since} failed ({count}): {error}"


def _newest(config: Config, active: Whose, hook: str) -> list[Call]:
    found = read_calls(config.home, provider=active.provider, hook=hook, limit=_LOOKED_AT)
    return [call for _, call in found]


def stuck(report: OutboxReport, active: Whose, now: float) -> str:
    """Says so if writes for the active provider wait for long because deliveries fail."""
    for each in report.backlogs:
        if active.owns(each) and _fails(each, now):
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.oldest))
            return (
                f"{writes(each.waiting)} for {each.provider} can't be delivered, the oldest since "
                f"{since}: {each.error}"
            )
    return ""


def _fails(backlog: Backlog, now: float) -> bool:
    old = backlog.oldest is not None and now - backlog.oldest > _HOUR
    return old and bool(backlog.failing_since or backlog.error)
