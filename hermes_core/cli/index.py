"""`search` and `index`: the known plugins, and where they are written down."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from hermes_core.cli.output import amount, plain, print_json, progress, say, say_field, warn
from hermes_core.cli.plugin_search import SearchRequest, run_search
from hermes_core.install.index import FILE_NAME, IndexUpdate, PluginIndex, read_index, update_index
from hermes_core.storage.home import resolve_home


@click.command("search")
@click.argument("words", nargs=-1)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def search_command(ctx: click.Context, words: tuple[str, ...], json_wanted: bool) -> None:
    """Search the known memory plugins.

    Lists those that contain every word in their name, package, description, grade or
    needs; without words, all. Reads the index of known plugins.
    Does not use the network.
    """
    run_search(SearchRequest(words, ctx.obj, json_wanted))


@click.group("index")
def index_command() -> None:
    """Show and update the index of known plugins."""


@index_command.command("status")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def status_command(ctx: click.Context, json_wanted: bool) -> None:
    """Show which index is in use."""
    home = resolve_home(ctx.obj)
    index = read_index(home)
    if json_wanted:
        print_json(**_as_json(index, home))
        return
    say_field("index", f"{amount(len(index.entries), 'plugin')}, made on {index.made}")
    say_field("file", plain(_place(index, home)))
    if index.problem:
        say_field("ignored", plain(index.problem))


def _place(index: PluginIndex, home: Path) -> str:
    return str(index.path) if index.path == home / FILE_NAME else "part of hermes-plugins"


def _as_json(index: PluginIndex, home: Path) -> dict[str, object]:
    return {
        "made": index.made,
        "kit": index.kit,
        "plugins": len(index.entries),
        "file": str(index.path),
        "updated": index.path == home / FILE_NAME,
        "problem": index.problem,
    }


@index_command.command("update")
@click.argument("source")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def update_command(ctx: click.Context, source: str, json_wanted: bool) -> None:
    """Replace the index with a newer one.

    SOURCE is a file or an https URL. The index decides which package `install NAME`
    installs, so use one from a place that you trust. An older or invalid one is refused.
    """
    home = resolve_home(ctx.obj)
    with progress("Reading the index"):
        # UTC: two machines agree on the day.
        done = update_index(home, source, today=datetime.now(UTC).date())
    if json_wanted:
        moved = [{"name": name, "before": was, "now": now} for name, was, now in done.moved]
        lists = {"added": list(done.added), "removed": list(done.removed), "moved": moved}
        print_json(changed=done.changed, **_as_json(done.now, home), **lists)
        return
    _print_update(done)


def _print_update(done: IndexUpdate) -> None:
    if not done.changed:
        say(f"The index of {done.now.made} is in use already. Nothing was changed.")
        return
    say(f"Updated the index: {amount(len(done.now.entries), 'plugin')}, "
        f"made on {done.now.made}.")  # fmt: skip
    for label, names in (("new", done.added), ("removed", done.removed)):
        if names:
            say_field(label, plain(", ".join(names)))
    if done.removed:
        warn("`hermes-plugins install` of a removed name now installs the package of that name, "
             "which may belong to somebody else")  # fmt: skip
    for name, was, now in done.moved:
        # What a person typed before now means another package.
        warn(f"`hermes-plugins install {name}` now installs {now}, before {was}")
