"""`list` and `info`: what is installed, without importing any of it."""

from __future__ import annotations

import click

from hermes_core.cli._list import ListRequest, as_json, run_list
from hermes_core.cli._output import on_terminal, paint, plain, print_json, say
from hermes_core.config import Selection, read_selection
from hermes_core.discovery import ProviderInfo, Record, find_provider, read_record, scan
from hermes_core.errors import HermesError
from hermes_core.home import resolve_home
from hermes_core.names import BUILTIN, normalise, split_choice


def complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Provider names for the shell's completion."""
    try:
        found = scan(resolve_home(ctx.find_root().params.get("home")), Selection())
    except HermesError:  # somebody is typing: this is not the time
        return []
    names = (
        f"{each.name}@{each.owner}" if each.state == "conflict" else each.name
        for each in found
        if each.loadable and each.state != "no-provider"
    )
    return [name for name in names if normalise(name).startswith(normalise(incomplete))]


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also look inside all distributions.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def list_command(ctx: click.Context, everything: bool, json_wanted: bool) -> None:
    """List the memory providers that are installed."""
    run_list(ListRequest(ctx.obj, everything, json_wanted))


@click.command("info")
@click.argument("name", shell_complete=complete_name)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def info_command(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Show what is known about one provider, without importing it."""
    home = resolve_home(ctx.obj)
    info = _listed(name, scan(home, read_selection(home), everything=True))
    place = str(info.directory or info.location or "")
    registers = info.learnt.registers
    if json_wanted:
        learnt = {key: value for key, value in info.learnt._asdict().items() if value}
        print_json(provider={**as_json(info), "commit": info.commit, "location": place, **learnt})
        return
    say(f"{plain(info.name)}  {paint(info.state, info.state)}")
    details = {
        "problem": info.problem,
        "description": info.description,
        "version": "" if info.distribution else info.version,
        "commit": info.commit,
        "installed from": (read_record(info.directory) or Record()).source
        if info.directory
        else "",
        "distribution": f"{info.distribution} {info.version}" if info.distribution else "",
        "source": info.source,
        "entry point": info.entry_point,
        "location": place,
        # Only the class itself says so, and nothing is imported here.
        "deliveries": "hermes-plugins status says whether it confirms them, while it is active"
        if info.source != BUILTIN and info.state != "no-provider"
        else "",
        "calls itself": info.learnt.provider,
        "registers": registers and f"{registers}: not memory, not run here",
    }
    width = max(map(len, details)) if on_terminal() else 0
    for label, value in details.items():
        if value:
            say(f"{label + ':':{width + 1}} {plain(value)}")


def _listed(name: str, found: list[ProviderInfo]) -> ProviderInfo:
    """The provider, also where it can't be loaded: that is when one asks."""
    wanted, owner = split_choice(name)
    same = [each for each in found if each.key == normalise(wanted)]
    same = same or [each for each in found if each.is_called(wanted)]
    owned = [each for each in same if not owner or each.owned_by(owner)]
    return owned[0] if len(owned) == 1 else find_provider(name, found)
