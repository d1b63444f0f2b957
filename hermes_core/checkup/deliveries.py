"""The state of deliveries and calls, from what agents wrote to outbox.db and the call log.

For `status` and `doctor`: a provider that loads may still reject writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final, NamedTuple

from hermes_core.call_log import HookReport, LoggedCall, hook_health, lost_calls, read_calls
from hermes_core.config import Config
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo
from hermes_core.errors import AgentEnded, DatabaseError, HermesError, one_line
from hermes_core.loading.activation import chosen_provider
from hermes_core.outbox import StreamKey, admin
from hermes_core.outbox.admin import OutboxBacklog, OutboxReport
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.provider import BUILTIN
from hermes_core.service import Cause

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0
#: What to do about writes that fail, and about those that wait.
SEE_FAILED: Final = "see: hermes-plugins log --failed"
RETRY: Final = "when it works again: hermes-plugins outbox retry"
#: Fewer failures in a row may be chance.
_IN_A_ROW: Final = 3
_NEWEST: Final = 100
#: Failures that are over once a provider's probe succeeds. A probe only reads, so it says
#: nothing about a service that is too slow for writes, or rejects them for another reason.
_REFUTABLE: Final = (Cause.WRONG_KEY, Cause.UNREACHABLE)
_FULL: Final = 0.9

# The hooks through which content reaches a provider. Recall may work while all of these fail.
_WRITES: Final = ("sync_turn", "on_memory_write", "on_delegation", "on_session_end")


class Problem(NamedTuple):
    """Something that is wrong, or that a person should look at, and what to do about it."""

    what: str
    hint: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """What an exception says, and its hint."""
        if not isinstance(error, HermesError):
            return cls(f"{type(error).__name__}: {error}")
        return cls(error.without_hint, one_line(error.hint))

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})" if self.hint else self.what


@dataclass(frozen=True, slots=True)
class ActiveProvider:
    """The name and the owner of the active external provider; "" and "" if there is none."""

    provider: str = ""
    owner: str = ""

    @classmethod
    def of(cls, info: ProviderInfo | None) -> ActiveProvider:
        """The name and the owner of a provider."""
        return cls() if info is None else cls(info.name, info.owner)

    def owns(self, writes: StreamKey | OutboxBacklog) -> bool:
        """Whether writes in the outbox are for this provider."""
        return self.owner == writes.owner and normalise(self.provider) == normalise(writes.provider)


def active_provider(config: Config, installed: list[ProviderInfo] | None = None) -> ActiveProvider:
    """The provider that gets writes. Does not load it; it need not be loadable."""
    try:
        return ActiveProvider.of(chosen_provider(config, installed))
    except HermesError:
        return ActiveProvider()


@dataclass(frozen=True, slots=True)
class HookStatus:
    """The calls of a hook in the last 24 hours.

    Attributes:
        report: The figures.
        last_failed: Whether the last call failed.
        error_at: When a call last failed; None if none did.
    """

    report: HookReport
    last_failed: bool
    error_at: float | None


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """The deliveries and calls of a home.

    Attributes:
        outbox: None if it can't be read.
        hooks: Those that were called in the last 24 hours.
        lost: How many calls are missing in the log.
        failing: How writes to the active provider fail; "" if they do not.
        problems: What is lost or fails now, ``failing`` included.
        warnings: What a person should look at.
    """

    outbox: OutboxReport | None
    hooks: tuple[HookStatus, ...] = ()
    lost: int = 0
    failing: str = ""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def delivery_status(
    config: Config, active: ActiveProvider, *, answers: bool = False
) -> DeliveryStatus:
    """Read the outbox and the call log. A file that can't be read is reported, not raised.

    Args:
        config: What config.yaml says.
        active: The active provider.
        answers: Whether its service has just answered a probe. Then failures that this refutes,
            such as a wrong key, are over: they become a warning with what is still to deliver.
    """
    now = time.time()
    problems: list[Problem] = []
    warnings: list[Problem] = []
    try:
        outbox: OutboxReport | None = outbox_report(config)
    except DatabaseError as error:
        outbox = None
        problems.append(_unreadable("the outbox", error))
    if waiting := OutboxSpool(config.home).text():
        warnings.append(Problem(waiting))
    hooks: tuple[HookStatus, ...] = ()
    lost = 0
    failing, hint = "", SEE_FAILED
    try:
        # The call log is only a log, so its failure is a warning. The outbox has content: a
        # problem.
        hooks = _hooks(config, now)
        lost = lost_calls(config.home).calls
        failing = writes_fail(config, active, now)
    except DatabaseError as error:
        warnings.append(_unreadable("the call log", error))
    lost_now, lost_before = _not_stored(hooks)
    problems += map(Problem, lost_now)
    warnings += map(Problem, lost_before)
    if outbox is not None:
        # The log still has the failures of writes that were skipped; those have their own warning.
        failing = "" if _only_skipped(outbox, active) else failing
        if not failing and (failing := stuck(outbox, active, now)):
            hint = RETRY
        warnings += outbox_warnings(outbox)
    if failing and answers and is_refuted(failing):
        warnings.append(Problem(f"{failing}. It answers now: {_to_deliver(outbox, active)}"))
        failing = ""
    problems += [Problem(failing, hint)] if failing else []
    return DeliveryStatus(outbox, hooks, lost, failing, tuple(problems), tuple(warnings))


def _unreadable(what: str, error: DatabaseError) -> Problem:
    problem = Problem.of(error)
    return problem._replace(what=f"{what} can't be read: {problem.what}")


def _not_stored(hooks: Iterable[HookStatus]) -> tuple[list[str], list[str]]:
    """Which turns the archive could not store: still, which is a problem, or before."""
    for each in hooks:
        report = each.report
        if (report.provider, report.hook) == (BUILTIN, "sync_turn") and report.failures:
            turns = "1 turn" if report.failures == 1 else f"{report.failures:,} turns"
            text = f"{turns} of the last 24 hours not stored: {report.last_error}"
            return ([text], []) if each.last_failed else ([], [text])
    return [], []


def is_refuted(failing: str) -> bool:
    """Whether a service that answers a probe can't have this failure any more."""
    # The cause follows the address. After that comes what a service says about others, such as
    # a model that it can't reach, which a probe need not ask.
    return any(f": {cause}" in failing for cause in _REFUTABLE)


def _to_deliver(outbox: OutboxReport | None, active: ActiveProvider) -> str:
    """What is still to deliver to a service that answers again."""
    backlogs = outbox.backlogs if outbox is not None else ()
    waiting = sum(each.waiting for each in backlogs if active.owns(each))
    if not waiting:
        return "nothing is waiting"
    return (
        f"{writes(waiting)} still to deliver, by the next agent or with: "
        "hermes-plugins outbox retry"
    )


def outbox_report(config: Config) -> OutboxReport:
    """Read the state of the outbox.

    Raises:
        DatabaseError: It can't be read.
    """
    # set_aside=False: a command that only reads must not move a damaged file.
    store = admin.open_store(config, set_aside=False)
    spool = OutboxSpool(config.home)
    try:
        report = admin.report(store)
        spooled, because = spool.waiting()
        return report._replace(spooled=spooled, spooled_because=because)
    finally:
        store.close()


def outbox_warnings(report: OutboxReport) -> list[Problem]:
    """What a person should do about the outbox."""
    found = []
    for each in report.backlogs:
        if each.skipped:
            why = f": {each.skipped_error}" if each.skipped_error else ""
            what = (
                f"{writes(each.skipped)} for {each.provider} skipped after repeated failures{why}"
            )
            found.append(Problem(what, "see: hermes-plugins outbox list --state skipped"))
        if each.failed:
            why = f": {each.failed_error}" if each.failed_error else ""
            what = f"{writes(each.failed)} for {each.provider} failed permanently{why}"
            todo = (
                "see: hermes-plugins outbox list --state failed; "
                "to retry: hermes-plugins outbox retry"
            )
            found.append(Problem(what, todo))
        if each.missed:
            what = f"no room was left for {writes(each.missed)} for {each.provider}"
            found.append(Problem(what, "run: hermes-plugins outbox backfill"))
    if is_nearly_full(report):
        what = f"the outbox is {100 * report.bytes / report.max_bytes:.0f} % full"
        found.append(Problem(what, "see: hermes-plugins outbox status"))
    found += [
        Problem(
            f"{name} was damaged and is set aside; what waited in it was not delivered",
            "run: hermes-plugins outbox backfill --since WHEN, then remove it",
        )
        for name in report.damaged
    ]
    return found


def is_nearly_full(report: OutboxReport) -> bool:
    """Whether there will soon be no room for another turn."""
    return report.bytes > _FULL * report.max_bytes


def writes(count: int) -> str:
    """A number of writes, in words."""
    return "1 write" if count == 1 else f"{count:,} writes"


def _hooks(config: Config, now: float) -> tuple[HookStatus, ...]:
    return tuple(_hook(config, each) for each in hook_health(config.home, since=now - _DAY))


def _hook(config: Config, report: HookReport) -> HookStatus:
    which: dict[str, Any] = {"provider": report.provider, "hook": report.hook, "limit": 1}
    last = [call for _, call in read_calls(config.home, **which)]
    failed = [call for _, call in read_calls(config.home, failed=True, **which)]
    wrong = bool(last) and last[0].outcome != "ok"
    at = failed[0].at if failed and report.last_error else None
    return HookStatus(report, wrong, at)


def writes_fail(config: Config, active: ActiveProvider, now: float) -> str:
    """A sentence if the newest writes to the active provider all failed; else "".

    A failed ``initialize`` counts as a failed write, since no write can follow it.

    Raises:
        DatabaseError: The log can't be read.
    """
    if not active.provider:
        return ""
    calls = [
        *(call for hook in _WRITES for call in _newest(config, active, hook)),
        # A successful `initialize` says nothing about writes, so it must not end the row of
        # failures.
        *(each for each in _newest(config, active, "initialize") if each[1].outcome != "ok"),
    ]
    # In the order in which they were logged: the clock may have gone back since.
    newest = [call for _, call in sorted(calls, key=itemgetter(0), reverse=True)]
    newest = [call for call in newest if call.at >= now - _DAY]
    failed = list(takewhile(lambda call: call.outcome != "ok", newest))
    # With fewer calls than that all of them must have failed.
    if not failed or len(failed) < min(_IN_A_ROW, len(newest)):
        return ""
    count = f"{len(failed)}" if len(failed) < _NEWEST else f"{_NEWEST} and more"
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(failed[-1].at))
    errors = [call.error for call in failed if call.outcome == "error"] or [failed[0].error]
    # "The agent ended while it waited" does not explain why it had to wait: another error does.
    error = next((each for each in errors if each != AgentEnded.TEXT), errors[0])
    return f"writes to {active.provider} fail: every call since {since} ({count}): {error}"


def _newest(config: Config, active: ActiveProvider, hook: str) -> list[tuple[int, LoggedCall]]:
    return read_calls(config.home, provider=active.provider, hook=hook, limit=_NEWEST)


def stuck(report: OutboxReport, active: ActiveProvider, now: float) -> str:
    """A sentence if writes for the active provider wait for long because deliveries fail."""
    for each in report.backlogs:
        if active.owns(each) and _fails(each, now):
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.oldest))
            return (
                f"{writes(each.waiting)} for {each.provider} can't be delivered, the oldest since "
                f"{since}: {each.error}"
            )
    return ""


def _only_skipped(report: OutboxReport, active: ActiveProvider) -> bool:
    """Whether only skipped writes fail: others were delivered since."""
    own = [each for each in report.backlogs if active.owns(each)]
    return any(each.skipped for each in own) and not any(
        each.waiting or each.failed for each in own
    )


def _fails(backlog: OutboxBacklog, now: float) -> bool:
    # Below an hour it is a normal delay: a retry waits minutes after a failure.
    old = backlog.oldest is not None and now - backlog.oldest > _HOUR
    return old and bool(backlog.failing_since or backlog.error)
