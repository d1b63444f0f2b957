"""`hermes-plugins export` and `import`: notes and conversations as JSON lines."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hermes_builtin.portable import Counts, export_file, import_file
from hermes_core.cli.output import amount, note, print_json, progress, say, warn
from hermes_core.storage.home import resolve_home

_file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_json_option = click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")


@click.command("export")
@_file_argument
@click.option("--no-provider", is_flag=True, help="Leave out memories of the provider.")
@_json_option
@click.pass_context
def export_command(ctx: click.Context, file: Path, no_provider: bool, json_wanted: bool) -> None:
    """Write notes and conversations as JSON lines.

    The file has all notes with their history, notes that wait for approval, all conversations, and
    what the external provider can list, one record per line. `hermes-plugins import` reads it, into
    files or PostgreSQL. Exit code 1 if memories of the provider are missing.
    """
    with progress("Writing", 1) as shown:
        done = export_file(
            resolve_home(ctx.obj), file.absolute(), shown.update, provider=not no_provider
        )
    listing = done.listing
    if json_wanted:
        print_json(file=str(file), **asdict(done.counts), provider=asdict(listing))
    else:
        say(f"Wrote {_described(done.counts)} to {file}.")
        if listing.provider and listing.can_list:
            say(f"Memories of {listing.provider}: {listing.memories:,}.")
        elif listing.provider:
            note(f"Memories of {listing.provider} are not included: the plugin can't list them.")
        if other := done.counts.memories - listing.memories:
            say(f"Memories of providers from earlier imports: {other:,}.")
        for each in listing.problems:
            warn(f"memories are missing: {each}")
    if listing.problems:
        ctx.exit(1)


@click.command("import")
@_file_argument
@_json_option
@click.pass_context
def import_command(ctx: click.Context, file: Path, json_wanted: bool) -> None:
    """Add the notes and conversations of an export.

    Skips what is already there, so it may be repeated. If a line is wrong, nothing is imported.
    Memories of external providers are stored for the next export; the agent does not recall them.
    """
    with progress("Importing", 1) as shown:
        counts = import_file(resolve_home(ctx.obj), file.absolute(), shown.update)
    if json_wanted:
        print_json(file=str(file), **asdict(counts))
        return
    say(f"Imported {_described(counts)}; already stored: {counts.known:,}.")
    if counts.refused:
        warn(f"left out: {amount(counts.refused, 'pending write')} with an id that none can have "
             "(8 hexadecimal digits)")  # fmt: skip
    if counts.memories:
        note(f"For the next export: {amount(counts.memories, 'memory')} of a provider.")


def _described(counts: Counts) -> str:
    return (
        f"{amount(counts.notes, 'note')} and {amount(counts.sessions, 'conversation')}"
        f" with {amount(counts.messages, 'message')}"
    )
