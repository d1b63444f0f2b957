"""`hermes-plugins sync`: share notes and conversations through a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hermes_builtin.sync.folder import Amounts, SyncReport, sync_folder
from hermes_core.cli.output import amount, print_json, progress, say, warn
from hermes_core.storage.home import resolve_home


@click.command("sync")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would be sent and received.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def sync_command(ctx: click.Context, folder: Path, dry_run: bool, json_wanted: bool) -> None:
    """Share notes and conversations through a folder.

    DIR is a folder that a service or git transfers between your machines. Run the command on each
    of them, as often as you like: it writes what is new here and reads what is new elsewhere.
    """
    with progress("Syncing", 1) as shown:
        report = sync_folder(resolve_home(ctx.obj), folder, dry_run=dry_run, progress=shown.update)
    if json_wanted:
        print_json(dry_run=dry_run, **asdict(report))
    else:
        _show(report, dry_run=dry_run)
    if report.problems:
        ctx.exit(1)


def _show(report: SyncReport, *, dry_run: bool) -> None:
    machines = amount(len(report.machines), "machine")
    say(f"{'Would sync' if dry_run else 'Synced'} {report.folder} ({machines}).")
    say(f"sent:     {_described(report.sent)}")
    say(f"received: {_described(report.received)}")
    for each in report.conflicts:
        say(f"conflict: {each}")
    for each in report.messages:
        say(f"note:     {each}")
    for each in report.incomplete:
        say(f"waiting:  {each} has not arrived completely; sync again later")
    for each in report.problems:
        warn(each)


def _described(amounts: Amounts) -> str:
    parts = [
        (amounts.notes, amount(amounts.notes, "note")),
        (amounts.removed_notes, f"{amount(amounts.removed_notes, 'removal')} of notes"),
        (
            amounts.sessions or amounts.messages,
            f"{amount(amounts.messages, 'message')} in {amount(amounts.sessions, 'conversation')}",
        ),
        (
            amounts.deleted_sessions,
            f"{amount(amounts.deleted_sessions, 'deletion')} of conversations",
        ),
    ]
    return ", ".join(text for number, text in parts if number) or "nothing"
