"""The part of `status` about deliveries and calls."""

from __future__ import annotations

from typing import Any

from hermes_core.cli._figures import duration, moment
from hermes_core.cli._output import paint, plain, say
from hermes_core.cli.outbox import report_as_json
from hermes_core.redelivery import Whose
from hermes_core.standing import HookStanding, Standing, writes


def standing_as_json(stands: Standing, active: Whose) -> dict[str, Any]:
    """What is added to the report of `status`."""
    return {
        "outbox": None if stands.outbox is None else report_as_json(stands.outbox, active),
        "hooks": [_hook_as_json(each) for each in stands.hooks],
        "lost_calls": stands.lost,
    }


def _hook_as_json(each: HookStanding) -> dict[str, Any]:
    return {
        **each.report._asdict(),
        "last_at": moment(each.report.last_at),
        "last_failed": each.last_failed,
        "error_at": moment(each.error_at),
    }


def print_standing(report: dict[str, Any]) -> None:
    """What waits, and how calls fared."""
    for each in (report["outbox"] or {"providers": []})["providers"]:
        if each["waiting"]:
            say(f"waiting:   {_waiting(each)}")
    if report["hooks"]:
        say("calls:     of the last 24 hours")
    for hook in report["hooks"]:
        line = f"{plain(hook['provider'])} {plain(hook['hook'])}: {_figures(hook)}"
        say(f"  {paint(line, 'broken') if hook['last_failed'] else line}")
    if report["lost_calls"]:
        say(f"  {report['lost_calls']:,} calls are not in the log: more came than could be written")


def _waiting(each: dict[str, Any]) -> str:
    told = f"{writes(each['waiting'])} for {plain(each['provider'])}"
    if not each["active"]:
        return f"{told}, which is not active"
    return f"{told}, the oldest since {_short(each['oldest'])}"


def _figures(hook: dict[str, Any]) -> str:
    counts = {"failed": hook["failures"], "late": hook["late"], "not made": hook["paused"]}
    told = [
        "1 call" if hook["calls"] == 1 else f"{hook['calls']:,} calls",
        *(f"{count:,} {what}" for what, count in counts.items() if count),
        f"p95 {duration(hook['p95_seconds'])}",
    ]
    if hook["last_error"]:
        told.append(f"last error {_short(hook['error_at'])}: {plain(hook['last_error'])}")
    if hook["last_failed"]:
        told[0] = f"LAST CALL FAILED, {told[0]}"
    return ", ".join(told)


def _short(at: str | None) -> str:
    return (at or "?")[:16].replace("T", " ")
