"""`list` and `info`: what is installed, without importing any of it."""

from __future__ import annotations

from typing import Any

import click

from hermes_core.cli._output import on_terminal, paint, print_json, print_table
from hermes_core.config import Selection, read_selection
from hermes_core.discovery import ProviderInfo, find_provider, scan
from hermes_core.errors import ConfigError
from hermes_core.home import resolve_home


def complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Provider names for the shell's completion."""
    home = ctx.find_root().params.get("home")
    found = scan(resolve_home(home), Selection())
    return [each.name for each in found if each.loadable and each.name.startswith(incomplete)]


def as_json(info: ProviderInfo) -> dict[str, Any]:
    """A provider as the contract's JSON has it."""
    return {
        "name": info.name,
        "active": info.active,
        "state": info.state,
        "source": info.source,
        "distribution": info.distribution,
        "version": info.version,
        "entry_point": info.entry_point,
        "description": info.description,
        "problem": info.problem,
    }


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also look inside all distributions.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def list_command(ctx: click.Context, everything: bool, json_wanted: bool) -> None:
    """List the memory providers that are installed."""
    home = resolve_home(ctx.obj)
    error = None
    try:
        selection = read_selection(home)
    except ConfigError as caught:
        # What is active can't be told; what is installed can.
        error, selection = caught, Selection()
    found = scan(home, selection, everything=everything)
    if json_wanted:
        print_json(providers=[as_json(each) for each in found])
    else:
        _print_rows(found)
        _print_missing(selection, found)
    if error is not None:
        raise error


def _print_rows(found: list[ProviderInfo]) -> None:
    header = ("NAME", "STATE", "VERSION", "SOURCE", "DESCRIPTION")
    rows = [
        (
            each.name,
            each.state,
            each.version,
            each.distribution or each.source,
            each.problem or each.description,
        )
        for each in found
    ]
    print_table(header, rows, [each.state for each in found])


def _print_missing(selection: Selection, found: list[ProviderInfo]) -> None:
    """The chosen provider is not there: say so where a person looks for it."""
    if selection.name and not any(each.active and each.source != "builtin" for each in found):
        text = (
            f"memory.provider is {selection.name}, which is not active; run: hermes-plugins status"
        )
        click.echo(text, err=True)


@click.command("info")
@click.argument("name", shell_complete=complete_name)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def info_command(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Show what is known about one provider, without importing it."""
    home = resolve_home(ctx.obj)
    found = scan(home, read_selection(home), everything=True)
    info = _listed(name, found)
    place = str(info.directory or info.location or "")
    if json_wanted:
        print_json(provider={**as_json(info), "location": place})
        return
    click.echo(f"{info.name}  {paint(info.state, info.state)}")
    details = {
        "problem": info.problem,
        "description": info.description,
        "distribution": f"{info.distribution} {info.version}".strip(),
        "source": info.source,
        "entry point": info.entry_point,
        "location": place,
    }
    width = max(map(len, details)) if on_terminal() else 0
    for label, value in details.items():
        if value:
            click.echo(f"{label + ':':{width + 1}} {value}")


def _listed(name: str, found: list[ProviderInfo]) -> ProviderInfo:
    """The provider, also where it can't be loaded: that is when one asks."""
    same = [each for each in found if name in (each.key, each.name)]
    return same[0] if len(same) == 1 else find_provider(name, found)
