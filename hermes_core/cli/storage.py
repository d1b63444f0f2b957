"""`storage`: where a home stores what it remembers, and moving it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

import click

from hermes_core.checkup.storage import (
    MigrationPlan,
    Report,
    StorageReport,
    cancel,
    check_storage,
    migrate,
    shown,
    storage_status,
)
from hermes_core.cli.output import (
    amount,
    note,
    paint,
    plain,
    print_json,
    progress,
    say,
    say_field,
    say_hint,
    size,
)
from hermes_core.cli.usage import HintedUsageError
from hermes_core.config import Config, load_config
from hermes_core.storage.home import resolve_home
from hermes_core.storage.migration import Progress, counted
from hermes_core.storage.outages import remembered_outages

_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
_WIDTH: Final = 14


@click.group("storage")
def storage_command() -> None:
    """Show, check and move what the home stores."""


def _config(ctx: click.Context) -> Config:
    return load_config(resolve_home(ctx.obj))


@storage_command.command("status")
@_json_option
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Show where the home stores what.

    Exit code 1 if the storage can't be used, if the memory has moved elsewhere, or if a migration
    was interrupted.
    """
    with progress("Checking the storage"), remembered_outages():
        report = storage_status(_config(ctx))
    if json_wanted:
        print_json(**report.as_json())
    else:
        _print_status(report)
    if not report.ok:
        ctx.exit(1)


def _print_status(report: StorageReport) -> None:
    say_field("storage", plain(report.storage), _WIDTH)
    if report.namespace:
        say_field("namespace", report.namespace, _WIDTH)
    if (server := report.server) is not None:
        role = f"role {server.role}" if server.role else paint("the owner of the tables", "changed")
        if not server.role and (server.is_new or not server.is_owner):
            role = "no role"
        say_field("server", f"PostgreSQL {server.version}, connected as {server.user}", _WIDTH)
        say_field("security", f"row-level security, {role}", _WIDTH)
        for problem in server.problems:
            say_field("problem", paint(plain(problem), "broken"), _WIDTH)
        there = (f"{name} {number or 'none yet'}" for name, number in server.schemas.items())
        formats = ", ".join(there)
        say_field("formats", "no tables yet" if server.is_new else formats, _WIDTH)
    for each in report.parts:
        text = paint(plain(each.problem), "broken") if each.problem else _counted(each.counts)
        where = "" if report.server else f", {plain(each.place)}"
        say_field(
            each.name, text if each.problem else f"{text} ({size(each.bytes)}{where})", _WIDTH
        )
    if report.items:
        say_field("items", f"{plain(report.items)}, on this machine only", _WIDTH)
    waits = _spooled(report)
    say_field("spool", f"{waits}: {plain(report.spooled_because)}" if waits else "empty", _WIDTH)
    if report.migration:
        text = f"to {plain(shown(report.migration))} was interrupted"
        say_field("migration", paint(text, "broken"), _WIDTH)
        note(
            "hint: run `hermes-plugins storage migrate` with the same --to again, or with --cancel"
        )
    if report.problem:
        say_field("problem", paint(plain(report.problem), "broken"), _WIDTH)
        if report.hint:
            note(f"hint: {report.hint}")


def _spooled(report: StorageReport | MigrationPlan) -> str:
    """What waits in the spool; "" if nothing does."""
    waits = {"turn": report.spooled, "write": report.spooled_writes}
    return ", ".join(amount(count, what) for what, count in waits.items() if count)


def _counted(counts: Mapping[str, int]) -> str:
    there = [counted(count, what) for what, count in counts.items() if count]
    return ", ".join(there) or "empty"


@storage_command.command("check")
@_json_option
@click.pass_context
def check_command(ctx: click.Context, json_wanted: bool) -> None:
    """Check everything in the current storage.

    Exit code 1 if something is wrong.
    """
    with _reported() as report:
        problems = check_storage(_config(ctx), report)
    if json_wanted:
        print_json(ok=not problems, problems=[*map(str, problems)])
    elif not problems:
        say("No problems.")
    for each in () if json_wanted else problems:
        say(paint(plain(each.what), "broken"))
        say_hint(each.hint, 0)
    if problems:
        ctx.exit(1)


@contextmanager
def _reported() -> Iterator[Report]:
    """Shows on the terminal what is being done, and how far it is."""
    with progress("Connecting") as step:

        def report(what: str) -> Progress:
            step.show(what)
            return step.update

        yield report


@storage_command.command("migrate")
@click.option(
    "--to", metavar="URL|files", default="", help="Destination: a PostgreSQL URL, or files."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be moved.")
@click.option("--cancel", "cancelled", is_flag=True, help="End an interrupted migration.")
@_json_option
@click.pass_context
def migrate_command(
    ctx: click.Context, to: str, dry_run: bool, cancelled: bool, json_wanted: bool
) -> None:
    """Move everything to a database, or back to files.

    Copies, compares counts and checksums of both sides, and then changes memory.storage. The
    source is unchanged and now read-only. Run the same command again after an interruption.
    """
    if bool(to) == cancelled:
        raise HintedUsageError(
            "use either --to or --cancel", hint="run `hermes-plugins storage migrate --help`"
        )
    config = _config(ctx)
    if cancelled:
        _cancel(config, json_wanted=json_wanted)
        return
    with _reported() as report:
        plan = migrate(config, to, dry_run=dry_run, report=report)
    if json_wanted:
        print_json(migrated=not dry_run, **asdict(plan))
    else:
        _print_plan(plan, dry_run=dry_run)


def _cancel(config: Config, *, json_wanted: bool) -> None:
    target = cancel(config)
    if json_wanted:
        print_json(cancelled=target)
    elif target:
        say(f"The migration to {plain(target)} is cancelled. What it copied stays there, unused.")
    else:
        say("No migration was interrupted. The storage in use accepts changes.")


def _print_plan(plan: MigrationPlan, *, dry_run: bool) -> None:
    say_field("from", plain(plan.source), _WIDTH)
    say_field("to", plain(plan.target), _WIDTH)
    for name, counts in plan.counts.items():
        say_field(name, _counted(counts), _WIDTH)
    if waits := _spooled(plan):
        say_field("spool", f"{waits}, handed over later", _WIDTH)
    if dry_run:
        say_field("size", size(plan.bytes), _WIDTH)
        say("Nothing was changed.")
        return
    say("Moved and verified. The source is unchanged and now read-only.")
    for each in plan.agents:
        note(f"warning: {each} still runs with the old setting: restart it")
