"""`hermes-plugins export` and `import`: notes and conversations as JSON lines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hermes_builtin.portable import Counts, export_file, import_file
from hermes_core.cli.output import amount, print_json, progress, say
from hermes_core.storage.home import resolve_home

_file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")


@click.command("export")
@_file_argument
@_json_option
@click.pass_context
def export_command(ctx: click.Context, file: Path, json_wanted: bool) -> None:
    """Write notes and conversations as JSON lines.

    The file has all notes with their history, notes that wait for approval, and all conversations,
    one record per line. `hermes-plugins import` reads it, into files or PostgreSQL.
    """
    with progress("Writing", 1) as shown:
        counts = export_file(resolve_home(ctx.obj), file.absolute(), shown.update)
    if json_wanted:
        print_json(file=str(file), **asdict(counts))
    else:
        say(f"Wrote {_described(counts)} to {file}.")


@click.command("import")
@_file_argument
@_json_option
@click.pass_context
def import_command(ctx: click.Context, file: Path, json_wanted: bool) -> None:
    """Add the notes and conversations of an export.

    Skips what is already there, so it may be repeated. If a line is wrong, nothing is imported.
    """
    with progress("Importing", 1) as shown:
        counts = import_file(resolve_home(ctx.obj), file.absolute(), shown.update)
    if json_wanted:
        print_json(file=str(file), **asdict(counts))
    else:
        say(f"Imported {_described(counts)}; already stored: {counts.known:,}.")


def _described(counts: Counts) -> str:
    return (
        f"{amount(counts.notes, 'note')} and {amount(counts.sessions, 'conversation')}"
        f" with {amount(counts.messages, 'message')}"
    )
