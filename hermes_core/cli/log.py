"""`log`: which provider was called, with which outcome, and how long it took."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from hermes_core.call_log import LoggedCall, called_names, lost_calls, path_of, read_calls
from hermes_core.cli.output import (
    Table,
    day_and_time,
    duration,
    moment,
    note,
    on_terminal,
    print_json,
    print_json_line,
    say,
    size,
)
from hermes_core.cli.providers import complete_name
from hermes_core.cli.usage import did_you_mean
from hermes_core.config import Selection
from hermes_core.discovery import scan
from hermes_core.errors import HermesError
from hermes_core.hookspecs import MemoryHooks
from hermes_core.storage.home import resolve_home

_HEADER: Final = ("TIME", "PROVIDER", "HOOK", "OUTCOME", "TOOK", "BYTES", "ERROR")
_STATES: Final = {"error": "broken", "late": "changed", "paused": "no-provider"}
# Fast enough to look immediate, slow enough not to load the database. A page bounds the memory for
# a log of a million calls.
_POLL_SECONDS: Final = 0.25
_PAGE: Final = 1000
_INTERRUPTED: Final = 130

Rows = Sequence[tuple[int, LoggedCall]]


class LogFilter(NamedTuple):
    """The calls to show."""

    home: Path
    provider: str
    hook: str
    failed: bool

    def newest(self, lines: int) -> Rows:
        """Return the newest calls."""
        return self.after(0, lines)

    def after(self, number: int, limit: int = _PAGE) -> Rows:
        """Return the first calls after a number."""
        return read_calls(
            self.home,
            after=number,
            limit=limit,
            provider=self.provider,
            hook=self.hook,
            failed=self.failed,
        )


@click.command("log")
@click.option("--follow", "-f", is_flag=True, help="Print new calls as they happen, until Ctrl-C.")
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="Show at most this many calls.",
)
@click.option(
    "--provider",
    metavar="NAME",
    default="",
    shell_complete=complete_name,
    help="Show only calls to this provider.",
)
@click.option(
    "--hook", metavar="HOOK", default="", help="Show only calls to this hook, such as prefetch."
)
@click.option("--failed", is_flag=True, help="Show only failed, late or skipped calls.")
@click.option(
    "--json", "json_wanted", is_flag=True, help="Print JSON; with --follow, one line per call."
)
@click.pass_context
def log_command(
    ctx: click.Context,
    *,
    follow: bool,
    lines: int,
    provider: str,
    hook: str,
    failed: bool,
    json_wanted: bool,
) -> None:
    """Show the calls to memory providers.

    The log has no content of conversations.
    """
    wanted = LogFilter(resolve_home(ctx.obj), provider, hook, failed)
    if follow:
        try:
            _follow(wanted, lines, json_wanted)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
    rows = wanted.newest(lines)
    lost = lost_calls(wanted.home)
    if json_wanted:
        print_json(calls=[_as_json(*row) for row in rows], lost=lost.calls)
        return
    if rows:
        _print(Table(_HEADER), rows)
    else:
        _refuse_misspelt(wanted)
        say(_nothing(wanted))
    if lost.calls:
        note(
            f"{lost.calls:,} calls are missing, the last at {day_and_time(lost.at)}: the log could "
            "not keep up."
        )


def _follow(wanted: LogFilter, lines: int, json_wanted: bool) -> None:
    table = Table(_HEADER)
    # Before the first page is read, so that no call between the two reads is skipped.
    seen = _newest_number(wanted.home)
    rows = wanted.newest(lines)
    if not json_wanted and not rows and lines:
        _refuse_misspelt(wanted)
        say(f"{_nothing(wanted)} Waiting for calls; press Ctrl-C to stop.")
    while True:
        if json_wanted:
            for row in rows:
                print_json_line(**_as_json(*row))
        elif rows:
            _print(table, rows)
        sys.stdout.flush()
        seen = max([seen, *(number for number, _ in rows)])
        # A full page means that there are more: read on without a pause.
        if len(rows) < _PAGE:
            _pause(_POLL_SECONDS)
        # Calls that were read need not be read again, whether they were shown or not.
        newest = _newest_number(wanted.home)
        rows = wanted.after(seen) if newest > seen else []
        if len(rows) < _PAGE:
            seen = max(seen, newest)


def _newest_number(home: Path) -> int:
    """Return the number of the newest call; -1 if there is none."""
    return max((number for number, _ in read_calls(home, limit=1)), default=-1)


def _pause(seconds: float) -> None:
    """Wait; raise BrokenPipeError if the reader of our output has gone."""
    # Windows. There the next write fails instead.
    if not hasattr(select, "poll"):
        time.sleep(seconds)
        return
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # poll always reports an error or a hang-up
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


def _refuse_misspelt(wanted: LogFilter) -> None:
    """Raise if a name that was given is unknown and looks like a known one."""
    called = called_names(wanted.home)
    # What was not called yet, or not since the oldest call in the log, is known as well.
    installed = [each.name for each in scan(wanted.home, Selection())] if wanted.provider else []
    hooks = [each for each in vars(MemoryHooks) if not each.startswith("_")]
    for label, name, known in (
        ("provider", wanted.provider, {*called.providers, *installed}),
        ("hook", wanted.hook, {*called.hooks, *hooks}),
    ):
        if name and name not in known and (hint := did_you_mean(name, known)):
            raise HermesError(f"the log has no call of the {label} {name}", hint=hint)


def _nothing(wanted: LogFilter) -> str:
    if not path_of(wanted.home).exists():
        return "No memory provider has been called in this home yet."
    if wanted.provider or wanted.hook or wanted.failed:
        return "The log has no such call."
    return "The log has no calls."


def _print(table: Table, rows: Rows) -> None:
    calls = [call for _, call in rows]
    table.print(
        [
            (
                _clock(call.at),
                call.provider,
                call.hook,
                call.outcome,
                duration(call.seconds),
                size(call.bytes),
                call.error,
            )
            for call in calls
        ],
        [_STATES.get(call.outcome, "") for call in calls],
    )


def _as_json(number: int, call: LoggedCall) -> dict[str, Any]:
    return {"id": number, **call._asdict(), "at": moment(call.at)}


def _clock(at: float) -> str:
    """Return a time; on a terminal without today's date, to leave room for the error."""
    text = day_and_time(at)
    today = day_and_time(time.time())[:11]
    return text.removeprefix(today) if on_terminal() else text
