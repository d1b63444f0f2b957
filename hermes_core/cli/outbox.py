"""`outbox`: the pending writes for the external provider, and what you can do about them."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import click

from hermes_core.checkup.deliveries import (
    ActiveProvider,
    active_provider,
    outbox_report,
    outbox_warnings,
    writes,
)
from hermes_core.checkup.redelivery import StreamReport, fill_gaps, process_name, retry
from hermes_core.cli.output import (
    day_and_time,
    moment,
    note,
    on_terminal,
    paint,
    plain,
    print_json,
    print_table,
    progress,
    say,
    say_field,
    say_hint,
    say_text,
    size,
    span,
)
from hermes_core.config import Config, load_config
from hermes_core.errors import DatabaseError, HermesError
from hermes_core.outbox import OutboxStore, WriteState, admin
from hermes_core.outbox.admin import BackfillResult, OutboxBacklog, OutboxEntry, OutboxReport
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.storage.home import resolve_home

_HEADER: Final = ("ID", "AGE", "PROVIDER", "SESSION", "HOOK", "STATE", "TRIES", "SIZE", "ERROR")
_COLOURS: Final = {
    WriteState.SKIPPED: "changed",
    WriteState.FAILED: "broken",
    WriteState.MISSED: "changed",
}
_STATES: Final = tuple(each.name.lower() for each in WriteState)
# Six digits at most, so that the product stays a valid time.
_AGE: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# About a screen; a turn may have a megabyte.
_SHOWN: Final = 2000

_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
# SQLite's largest integer: a larger one would raise OverflowError in the query.
_ID: Final = click.IntRange(1, 2**63 - 1)
_number = click.argument("number", metavar="ID", type=_ID)


@click.group("outbox")
def outbox_command() -> None:
    """Show and deliver pending writes."""


@contextmanager
def _looking(ctx: click.Context) -> Iterator[tuple[OutboxStore, Config]]:
    config = load_config(resolve_home(ctx.obj))
    # set_aside=False: looking must not move a damaged file.
    store = admin.open_store(config, set_aside=False)
    try:
        yield store, config
    finally:
        store.close()


# -- status ----------------------------------------------------------------------------------


@outbox_command.command("status")
@_json_option
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Show what is pending, since when and why.

    Exit code 1 if a write was skipped, failed permanently or was missed.
    """
    config = load_config(resolve_home(ctx.obj))
    try:
        report = outbox_report(config)
    except DatabaseError as error:
        _print_unreadable(error, OutboxSpool(config.home), json_wanted=json_wanted)
        ctx.exit(1)
    active = active_provider(config)
    if json_wanted:
        print_json(path=report.place, **report_as_json(report, active))
    else:
        _print_status(report, active)
    if any(each.skipped or each.failed or each.missed for each in report.backlogs):
        ctx.exit(1)


def report_as_json(report: OutboxReport, active: ActiveProvider) -> dict[str, Any]:
    """Return the state of the outbox, for JSON."""
    return {
        "bytes": report.bytes,
        "max_bytes": report.max_bytes,
        "providers": [
            {
                **each._asdict(),
                "active": active.owns(each),
                "oldest": moment(each.oldest),
                "failing_since": moment(each.failing_since),
                # 0 means: as soon as possible.
                "due": moment(each.due) if each.due else None,
            }
            for each in report.backlogs
        ],
        "damaged_files": list(report.damaged),
        "spooled": report.spooled,
        "spooled_because": report.spooled_because,
        "problem": "",
        "hint": "",
    }


def _print_unreadable(error: DatabaseError, spool: OutboxSpool, *, json_wanted: bool) -> None:
    """Say that the outbox can't be read, and what waits for it in the spool."""
    spooled, because = spool.waiting()
    if not json_wanted:
        verb = "waits" if spooled == 1 else "wait"
        also = f"; {writes(spooled)} for it {verb} in the spool" if spooled else ""
        raise DatabaseError(f"{error.what}{also}", where=error.where, hint=error.hint) from error
    # None, and not 0: nobody knows what the outbox has.
    print_json(
        path=error.where, bytes=None, max_bytes=None, providers=None, damaged_files=None,
        spooled=spooled, spooled_because=because, problem=error.what, hint=error.hint,
    )  # fmt: skip


def _print_status(report: OutboxReport, active: ActiveProvider) -> None:
    limit = size(report.max_bytes).replace(".0 ", " ")
    used = f"{size(report.bytes)} of {limit}" if report.bytes else f"empty (limit {limit})"
    say_field("outbox", used)
    if not report.backlogs:
        say_field("waiting", "nothing")
    if report.spooled:
        say_field("spool", f"{writes(report.spooled)}: {plain(report.spooled_because)}")
    for each in report.backlogs:
        say_field("provider", backlog_name(each, active))
        if each.waiting:
            say_field("  waiting", _waiting(each))
            say_field("  next", _next(each, active))
        if each.error:
            say_field("  error", plain(each.error))
        if each.skipped:
            count = paint(f"{each.skipped:,}", "changed")
            say(f"  skipped: {count} (failed while others succeeded; retried automatically)")
        if each.failed:
            count = paint(f"{each.failed:,}", "broken")
            say(f"  failed permanently: {count} (retry with `hermes-plugins outbox retry`)")
        if each.missed:
            count = paint(f"{each.missed:,}", "broken")
            say(f"  missed: {count} (the outbox was full; restore with `hermes-plugins outbox "
                "backfill`)")  # fmt: skip
    for warning in outbox_warnings(report):
        say_field("warning", plain(warning.what))
        say_hint(warning.hint, 11)


def backlog_name(backlog: OutboxBacklog, active: ActiveProvider) -> str:
    """Return the provider of some writes, and whether it is active."""
    state = "active" if active.owns(backlog) else "not active"
    return f"{plain(backlog.provider)} ({', '.join(filter(None, (plain(backlog.owner), state)))})"


def _waiting(backlog: OutboxBacklog) -> str:
    now = time.time()
    text = f"{writes(backlog.waiting)}, the oldest for {span(now - (backlog.oldest or now))}"
    if backlog.failing_since is not None:
        text += f"; failing since {day_and_time(backlog.failing_since)}"
    return text


def _next(backlog: OutboxBacklog, active: ActiveProvider) -> str:
    if backlog.deliverers:
        return f"being delivered by {', '.join(map(process_name, backlog.deliverers))}"
    if not active.owns(backlog):
        return f"after you run `hermes-plugins enable {plain(backlog.provider)}`"
    wait = backlog.due - time.time()
    due = f"due in {span(wait)}" if wait > 0 else "due now"
    return f"{due}, when an agent runs"


# -- list, show ------------------------------------------------------------------------------


@outbox_command.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Show only writes in this state.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Show at most this many, oldest first.",
)
@_json_option
@click.pass_context
def list_command(ctx: click.Context, state: str | None, limit: int, json_wanted: bool) -> None:
    """List pending writes, without their content."""
    with _looking(ctx) as (store, _):
        # One more than shown, to know whether there are more.
        found = admin.entries(store, WriteState[state.upper()] if state else None, limit + 1)
    more, found = len(found) > limit, found[:limit]
    if json_wanted:
        print_json(writes=[_as_json(each) for each in found], more=more)
        return
    if found:
        print_table(_HEADER, [_row(each) for each in found], [_colour(each) for each in found])
    else:
        say(f"Nothing is {state}." if state else "The outbox is empty.")
    if more:
        note(f"There are more than {limit:,}; use --limit to see them.")


def _row(each: OutboxEntry) -> tuple[str, ...]:
    age = span(time.time() - each.created)
    origin = each.key
    return (
        str(each.id), age, origin.provider, origin.session, each.hook, each.state.name.lower(),
        str(each.attempts), size(each.bytes), each.error,
    )  # fmt: skip


def _colour(each: OutboxEntry) -> str:
    return _COLOURS.get(each.state, "")


def _as_json(each: OutboxEntry) -> dict[str, Any]:
    # Without what is internal: the key is split into its parts, the number of the stream is left
    # out.
    rest = each._asdict()
    origin = rest.pop("key")
    del rest["stream"]
    return {
        **rest,
        "state": each.state.name.lower(),
        "created": moment(each.created),
        "failing_since": moment(each.failing_since),
        **dict(zip(("provider", "owner", "session"), origin, strict=False)),
    }


@outbox_command.command("show")
@_number
@_json_option
@click.pass_context
def show_command(ctx: click.Context, number: int, json_wanted: bool) -> None:
    """Show one write, with its content.

    Secrets were masked before the write was stored.
    """
    with _looking(ctx) as (store, _):
        each = admin.entry(store, number)
        content = admin.content(store, number)
    keywords = json.loads(each.key.keywords)
    if json_wanted:
        print_json(write={**_as_json(each), "keywords": keywords, "content": content})
        return
    facts = {
        "id": str(each.id),
        "event": each.event_id,
        "written": f"{day_and_time(each.created)}, {span(time.time() - each.created)} ago",
        "provider": " of ".join(filter(None, each.key[:2])),
        "session": each.key.session,
        "started with": ", ".join(f"{key}={value}" for key, value in keywords.items()),
        "hook": each.hook,
        # Painted, so it must not go through `plain`, which removes escape sequences.
        "state": paint(each.state.label, _colour(each)) if _colour(each) else each.state.label,
        "tries": str(each.attempts),
        "error": each.error,
    }
    for label, value in facts.items():
        if value:
            say_field(label, value if label == "state" else plain(value), 11)
    _print_content(content)


def _print_content(content: dict[str, Any]) -> None:
    if not content:
        say("Its content is gone: the outbox was full.")
        return
    text = json.dumps(content, indent=2, ensure_ascii=False)
    # Piped output is never cut: programs read it.
    if on_terminal() and len(text) > _SHOWN:
        left = len(text) - _SHOWN
        text = f"{text[:_SHOWN]}\n... and {left:,} more characters; use --json to see all"
    say()
    say_text(text)


# -- retry, drop, backfill -------------------------------------------------------------------


@outbox_command.command("retry")
@click.argument("number", metavar="[ID]", type=_ID, required=False)
@_json_option
@click.pass_context
def retry_command(ctx: click.Context, number: int | None, json_wanted: bool) -> None:
    """Deliver pending writes now.

    With ID, delivers the session of that write only. Also retries writes that failed
    permanently or were skipped. Exit code 1 if a write is still pending.
    """
    config = load_config(resolve_home(ctx.obj))
    with progress("Delivering pending writes"):
        done = retry(config, number or 0)
    rows = done.results
    if json_wanted:
        print_json(streams=[asdict(each) for each in rows], problem=done.problem)
    elif not rows and not done.problem:
        say("Nothing is pending.")
    for row in () if json_wanted else rows:
        _print_stream(row)
    if done.problem and not json_wanted:
        # After the rows: what was delivered before the failure is shown.
        raise done.error("the writes stay in the outbox")
    if done.problem or any(row.waiting or row.skipped or row.failed for row in rows):
        ctx.exit(1)


def _print_stream(row: StreamReport) -> None:
    session = f"{plain(row.provider)}, session {plain(row.session)}"
    say(f"{session}: {writes(row.delivered)} delivered" + _still(row))
    if row.reason:
        say(f"  {plain(row.reason)}")


def _still(row: StreamReport) -> str:
    counts = {
        "still waiting": (row.waiting, "changed"),
        "skipped": (row.skipped, "changed"),
        "failed permanently": (row.failed, "broken"),
    }
    return "".join(
        f", {paint(f'{n:,} {what}', colour)}" for what, (n, colour) in counts.items() if n
    )


@outbox_command.command("drop")
@_number
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@_json_option
@click.pass_context
def drop_command(ctx: click.Context, number: int, yes: bool, json_wanted: bool) -> None:
    """Remove one write; it will not be delivered."""
    with _looking(ctx) as (store, _):
        each = admin.entry(store, number)
        question = (
            f"Remove the {each.hook} of session {plain(each.key.session)} for "
            f"{plain(each.key.provider)}? It can't be restored."
        )
        # Without a terminal nobody can agree, so nothing is removed.
        if not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise HermesError("nothing was removed", hint="use --yes to remove it")
        admin.drop(store, number)
    if json_wanted:
        print_json(dropped=_as_json(each))
    else:
        say(f"Removed write {number}.")


def past_time(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Parse an age such as 2d, or a date with or without a time."""
    if value is None:
        return None
    if match := _AGE.fullmatch(value.strip().lower()):
        return time.time() - int(match[1]) * _UNITS[match[2]]
    try:
        at = datetime.fromisoformat(value.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        at = -1.0
    # Also rejects a year before 1970, for which Windows has no timestamp.
    if not 0 <= at <= time.time():
        raise click.BadParameter(f"{value!r} is not a past time such as 2d, 12h or 2026-03-31")
    return at


@outbox_command.command("backfill")
@click.option(
    "--since",
    metavar="WHEN",
    callback=past_time,
    help="Also queue archived turns since, for example, 2d.",
)
@_json_option
@click.pass_context
def backfill_command(ctx: click.Context, since: float | None, json_wanted: bool) -> None:
    """Queue missed writes again, from the archive.

    WHEN is an age such as 2d or 12h, or a date such as 2026-03-31.
    Exit code 1 if a write could not be restored.
    """
    config = load_config(resolve_home(ctx.obj))
    with progress("Restoring writes from the archive"):
        done = fill_gaps(config, since)
    if done.problem:
        raise done.error()
    # Exactly one, since there was no problem.
    (result,) = done.results
    row = _backfill_as_json(result)
    if json_wanted:
        print_json(**row)
    else:
        _print_backfill(row, since)
    if row["not_found"] or row["no_room"]:
        ctx.exit(1)


def _backfill_as_json(done: BackfillResult) -> dict[str, Any]:
    missing = [
        {"id": each.id, "hook": each.hook, "session": each.key.session} for each in done.not_found
    ]
    return {**done._asdict(), "not_found": missing}


def _print_backfill(row: dict[str, Any], since: float | None) -> None:
    say(f"{writes(row['refilled'])} restored from the archive.")
    if since is not None:
        say(
            f"{row['added']:,} archived turns since {day_and_time(since)} queued; {row['known']:,} "
            "were queued before. The provider may get some of them twice."
        )
    for each in row["not_found"]:
        text = (
            f"{each['id']}, {each['hook']} of session {plain(each['session'])}: not in the archive"
        )
        say_field("missing", text)
    if row["no_room"]:
        say_field("problem", "the outbox is full again")
        say("hint: run `hermes-plugins outbox retry`, then this command again")
    elif row["refilled"] or row["added"]:
        say("Next: hermes-plugins outbox retry")
