"""`outbox`: what waits for the external provider, and what a person can do about it."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import click

from hermes_core.cli._figures import day_and_time, moment, size, span
from hermes_core.cli._output import on_terminal, paint, plain, print_json, print_table, say
from hermes_core.config import Config, load_config
from hermes_core.errors import HermesError
from hermes_core.home import resolve_home
from hermes_core.outbox import OutboxStore, care
from hermes_core.outbox.care import Backlog, Entry, OutboxReport
from hermes_core.redelivery import Whose, active_provider, fill_gaps, process_name, retry
from hermes_core.standing import outbox_report, outbox_warnings, writes

_HEADER: Final = ("ID", "AGE", "PROVIDER", "SESSION", "HOOK", "STATE", "TRIES", "SIZE", "ERROR")
_COLOURS: Final = {"dead": "broken", "missed": "changed"}
_AGE: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHOWN: Final = 2000

_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
_ID: Final = click.IntRange(1, 2**63 - 1)
_number = click.argument("number", metavar="ID", type=_ID)


@click.group("outbox")
def outbox_command() -> None:
    """See and deliver what waits for the external provider."""


@contextmanager
def _looking(ctx: click.Context) -> Iterator[tuple[OutboxStore, Config]]:
    config = load_config(resolve_home(ctx.obj))
    store = care.open_store(config, mends=False)
    try:
        yield store, config
    finally:
        store.close()


# -- status ----------------------------------------------------------------------------------


@outbox_command.command("status")
@_json_option
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Say what waits, since when and why; exit code 1 if something is dead or missed."""
    config = load_config(resolve_home(ctx.obj))
    report = outbox_report(config)
    active = active_provider(config)
    if json_wanted:
        print_json(path=str(config.home / "outbox.db"), **report_as_json(report, active))
    else:
        _print_status(report, active)
    if any(each.dead or each.missed for each in report.backlogs):
        ctx.exit(1)


def report_as_json(report: OutboxReport, active: Whose) -> dict[str, Any]:
    """How the outbox stands, for JSON."""
    return {
        "bytes": report.bytes,
        "max_bytes": report.max_bytes,
        "providers": [
            {
                **each._asdict(),
                "active": active.owns(each),
                "oldest": moment(each.oldest),
                "failing_since": moment(each.failing_since),
                "due": moment(each.due) if each.due else None,
            }
            for each in report.backlogs
        ],
        "set_aside": list(report.set_aside),
    }


def _print_status(report: OutboxReport, active: Whose) -> None:
    say(f"outbox:    {size(report.bytes)} of {size(report.max_bytes)}")
    if not report.backlogs:
        say("waiting:   nothing")
    for each in report.backlogs:
        say(f"provider:  {backlog_name(each, active)}")
        if each.waiting:
            say(f"  waiting: {_waiting(each)}")
            say(f"  next:    {_next(each, active)}")
        if each.error:
            say(f"  error:   {plain(each.error)}")
        if each.dead:
            say(f"  dead:    {paint(f'{each.dead:,}', 'broken')}, given up unless you say so")
        if each.missed:
            say(f"  missed:  {paint(f'{each.missed:,}', 'broken')}, there was no room for them")
    for line in outbox_warnings(report):
        say(f"warning:   {plain(line)}")


def backlog_name(backlog: Backlog, active: Whose) -> str:
    """Whose writes they are, and whether it is active."""
    state = "active" if active.owns(backlog) else "not active"
    return f"{plain(backlog.provider)} ({', '.join(filter(None, (plain(backlog.owner), state)))})"


def _waiting(backlog: Backlog) -> str:
    now = time.time()
    told = f"{writes(backlog.waiting)}, the oldest for {span(now - (backlog.oldest or now))}"
    if backlog.failing_since is not None:
        told += f"; deliveries fail since {day_and_time(backlog.failing_since)}"
    return told


def _next(backlog: Backlog, active: Whose) -> str:
    if backlog.deliverers:
        return f"delivered now, by {', '.join(map(process_name, backlog.deliverers))}"
    if not active.owns(backlog):
        return f"when it is active again (run: hermes-plugins enable {plain(backlog.provider)})"
    wait = backlog.due - time.time()
    due = f"due in {span(wait)}" if wait > 0 else "due now"
    return f"{due}, by an agent that runs; nobody delivers right now"


# -- list, show ------------------------------------------------------------------------------


@outbox_command.command("list")
@click.option("--state", type=click.Choice(care.STATES), help="Only these.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="How many, the oldest first.",
)
@_json_option
@click.pass_context
def list_command(ctx: click.Context, state: str | None, limit: int, json_wanted: bool) -> None:
    """List the writes, without their content."""
    with _looking(ctx) as (store, _):
        found = care.entries(store, state or "", limit + 1)
    more, found = len(found) > limit, found[:limit]
    if json_wanted:
        print_json(writes=[_as_json(each) for each in found], more=more)
        return
    if found:
        print_table(_HEADER, [_row(each) for each in found], [_colour(each) for each in found])
    else:
        say(f"Nothing is {state}." if state else "The outbox is empty.")
    if more:
        click.echo(f"There are more than {limit:,}; --limit shows them.", err=True)


def _row(each: Entry) -> tuple[str, ...]:
    age = span(time.time() - each.created)
    origin = each.origin
    return (
        str(each.id), age, origin.provider, origin.session, each.hook, each.state,
        str(each.attempts), size(each.bytes), each.error,
    )  # fmt: skip


def _colour(each: Entry) -> str:
    return _COLOURS.get(each.state, "")


def _as_json(each: Entry) -> dict[str, Any]:
    rest = each._asdict()
    origin = rest.pop("origin")
    del rest["stream"]
    return {
        **rest,
        "created": moment(each.created),
        "failing_since": moment(each.failing_since),
        **dict(zip(("provider", "owner", "session"), origin, strict=False)),
    }


@outbox_command.command("show")
@_number
@_json_option
@click.pass_context
def show_command(ctx: click.Context, number: int, json_wanted: bool) -> None:
    """Show all of one write. Secrets were masked before it was stored."""
    with _looking(ctx) as (store, _):
        each = care.entry(store, number)
        content = care.content(store, number)
    keywords = json.loads(each.origin.keywords)
    if json_wanted:
        print_json(write={**_as_json(each), "keywords": keywords, "content": content})
        return
    facts = {
        "id": str(each.id),
        "event": each.event_id,
        "written": f"{day_and_time(each.created)}, {span(time.time() - each.created)} ago",
        "provider": " of ".join(filter(None, each.origin[:2])),
        "session": each.origin.session,
        "begun with": ", ".join(f"{key}={value}" for key, value in keywords.items()),
        "hook": each.hook,
        "state": paint(each.state, _colour(each)) if _colour(each) else each.state,
        "tries": str(each.attempts),
        "error": each.error,
    }
    for label, value in facts.items():
        if value:
            say(f"{label + ':':11} {value if label == 'state' else plain(value)}")
    _print_content(content)


def _print_content(content: dict[str, Any]) -> None:
    if not content:
        say("There was no room for its content.")
        return
    text = json.dumps(content, indent=2, ensure_ascii=False)
    if on_terminal() and len(text) > _SHOWN:
        left = len(text) - _SHOWN
        text = f"{text[:_SHOWN]}\n... and {left:,} characters more; --json, or a pipe, has all"
    say()
    for line in text.splitlines():  # str.splitlines: no character that steers a terminal stays
        say("".join(char if char.isprintable() else " " for char in line))


# -- retry, drop, backfill -------------------------------------------------------------------


@outbox_command.command("retry")
@click.argument("number", metavar="[ID]", type=_ID, required=False)
@_json_option
@click.pass_context
def retry_command(ctx: click.Context, number: int | None, json_wanted: bool) -> None:
    """Deliver now: the session of one write, or all. What is dead is tried again.

    Exit code 1 if something still waits.
    """
    config = load_config(resolve_home(ctx.obj))
    done = retry(config, number or 0)
    rows = done.rows
    if json_wanted:
        print_json(streams=rows, problem=done.problem)
    elif not rows and not done.problem:
        say("Nothing waits.")
    for row in () if json_wanted else rows:
        _print_stream(row)
    if done.problem and not json_wanted:
        raise HermesError(done.problem, hint="what was not delivered waits")
    if done.problem or any(row["waiting"] or row["dead"] for row in rows):
        ctx.exit(1)


def _print_stream(row: dict[str, Any]) -> None:
    session = f"{plain(row['provider'])}, session {plain(row['session'])}"
    say(f"{session}: {writes(row['delivered'])} delivered" + _still(row))
    if row["reason"]:
        say(f"  {plain(row['reason'])}")


def _still(row: dict[str, Any]) -> str:
    counts = {"still waiting": (row["waiting"], "changed"), "dead": (row["dead"], "broken")}
    told = (f", {paint(f'{n:,} {what}', colour)}" for what, (n, colour) in counts.items() if n)
    return "".join(told)


@outbox_command.command("drop")
@_number
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@_json_option
@click.pass_context
def drop_command(ctx: click.Context, number: int, yes: bool, json_wanted: bool) -> None:
    """Remove one write for good: it will not be delivered."""
    with _looking(ctx) as (store, _):
        each = care.entry(store, number)
        question = (
            f"Remove the {each.hook} of session {plain(each.origin.session)} for "
            f"{plain(each.origin.provider)} for good?"
        )
        if not yes and not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise HermesError("nothing was removed", hint="say --yes to go on without a question")
        care.drop(store, number)
    if json_wanted:
        print_json(dropped=_as_json(each))
    else:
        say(f"Write {number} is removed.")


def _when(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """An age such as 2d, or a date, with or without a time."""
    if value is None:
        return None
    if match := _AGE.fullmatch(value.strip().lower()):
        return time.time() - int(match[1]) * _UNITS[match[2]]
    try:
        at = datetime.fromisoformat(value.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        at = -1.0
    if not 0 <= at <= time.time():
        raise click.BadParameter(f"{value!r} is no time past: say 2d, 12h or 2026-03-31T12:00")
    return at


@outbox_command.command("backfill")
@click.option(
    "--since",
    metavar="WHEN",
    callback=_when,
    help="Also every archived turn since then, such as 2d, 12h or 2026-03-31.",
)
@_json_option
@click.pass_context
def backfill_command(ctx: click.Context, since: float | None, json_wanted: bool) -> None:
    """Put what was missed back from the archive of conversations, to be delivered.

    Exit code 1 if something could not be put back.
    """
    config = load_config(resolve_home(ctx.obj))
    done = fill_gaps(config, since)
    if done.problem:
        raise HermesError(done.problem)
    (row,) = done.rows
    if json_wanted:
        print_json(**row)
    else:
        _print_backfill(row, since)
    if row["not_found"] or row["no_room"]:
        ctx.exit(1)


def _print_backfill(row: dict[str, Any], since: float | None) -> None:
    say(f"{writes(row['refilled'])} that had no room {_verb(row['refilled'])} again.")
    if since is not None:
        say(
            f"{row['added']:,} archived turns since {day_and_time(since)} wait, too; "
            f"{row['known']:,} did already. The provider may get some of them twice."
        )
    for each in row["not_found"]:
        say(f"missing:   {each['id']}, {each['hook']} of session {plain(each['session'])}: "
            "not in the archive, it stays missed")  # fmt: skip
    if row["no_room"]:
        say("problem:   the outbox is full again (run: hermes-plugins outbox retry, then this)")
    elif row["refilled"] or row["added"]:
        say("To deliver them now, run: hermes-plugins outbox retry")


def _verb(count: int) -> str:
    return "waits" if count == 1 else "wait"
