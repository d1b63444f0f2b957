"""`list`, `info`, `enable` and `disable`: what is installed, and which provider is active."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

from hermes_core.checkup.status import check_provider
from hermes_core.cli.output import (
    on_terminal,
    paint,
    plain,
    print_json,
    progress,
    say,
    say_field,
    warn,
)
from hermes_core.cli.provider_list import ListRequest, as_json, run_list
from hermes_core.config import (
    Config,
    LockEntry,
    PluginFacts,
    Selection,
    load_config,
    read_selection,
)
from hermes_core.config.editor import change_plugins
from hermes_core.config.fields import variable_of
from hermes_core.config.names import normalise, split_choice
from hermes_core.config.setup_journal import recover
from hermes_core.discovery import (
    ProviderInfo,
    Record,
    companions_of,
    find_provider,
    pin_of,
    read_record,
    scan,
)
from hermes_core.errors import HermesError
from hermes_core.provider import BUILTIN
from hermes_core.storage.home import resolve_home

_PROVIDER: Final = ("memory", "provider")


def complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return provider names for shell completion."""
    try:
        found = scan(resolve_home(ctx.find_root().params.get("home")), Selection())
    except HermesError:  # no error message while somebody types
        return []
    names = (
        f"{each.name}@{each.owner}" if each.state == "conflict" else each.name
        for each in found
        if each.loadable and each.state != "no-provider"
    )
    return [name for name in names if normalise(name).startswith(normalise(incomplete))]


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also search inside all packages.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def list_command(ctx: click.Context, everything: bool, json_wanted: bool) -> None:
    """List the installed memory providers."""
    run_list(ListRequest(ctx.obj, everything, json_wanted))


@click.command("info")
@click.argument("name", shell_complete=complete_name)
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON.")
@click.pass_context
def info_command(ctx: click.Context, name: str, json_wanted: bool) -> None:
    """Show the details of one provider.

    Reads metadata only; no code of the plugin runs.
    """
    home = resolve_home(ctx.obj)
    info = _listed(name, scan(home, read_selection(home), everything=True))
    place = str(info.directory or info.location or "")
    registers = info.facts.registers
    companions = companions_of(info)
    if json_wanted:
        known = {"provider": info.facts.provider, "registers": registers}
        facts = {key: value for key, value in known.items() if value}
        beside = {name.removesuffix(".py"): str(path) for name, path in companions.items()}
        told = {"commit": info.commit, "location": place, **beside, **facts}
        print_json(provider={**as_json(info), **told})
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
        "entry point": "" if info.source == "module" else info.entry_point,
        "module": info.entry_point if info.source == "module" else "",
        "location": place,
        "has": companions and f"{' and '.join(companions)} (for hermes-agent, not used here)",
        # Only the class itself knows, and nothing is imported here.
        "deliveries": "see `hermes-plugins status` while it is active"
        if info.source != BUILTIN and info.state != "no-provider"
        else "",
        "calls itself": info.facts.provider,
        "registers": registers and f"{registers} (not memory, not used here)",
    }
    width = max(map(len, details)) + 1 if on_terminal() else 0
    for label, value in details.items():
        if value:
            say_field(label, plain(value), width)


def _listed(name: str, found: list[ProviderInfo]) -> ProviderInfo:
    """Return the provider, even if it can't be loaded: that is when people ask."""
    wanted, owner = split_choice(name)
    same = [each for each in found if each.key == normalise(wanted)]
    same = same or [each for each in found if each.is_called(wanted)]
    owned = [each for each in same if not owner or each.owned_by(owner)]
    return owned[0] if len(owned) == 1 else find_provider(name, found)


def recovered_config(ctx: click.Context) -> Config:
    """Finish an interrupted setup, then read config.yaml."""
    home = resolve_home(ctx.obj)
    recover(home)
    return load_config(home)


@click.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.option("--force", is_flag=True, help="Enable it even if it does not work.")
@click.pass_context
def enable_command(ctx: click.Context, name: str, force: bool) -> None:
    """Use NAME as the external memory provider.

    Loads it in a separate process first. NAME may be name@owner if two packages have
    a provider of that name.
    """
    config = recovered_config(ctx)
    unchosen = Selection(facts=config.selection.facts)
    info = find_provider(name, scan(config.home, unchosen, everything=True))
    if info.source == BUILTIN:
        say("builtin is always active. Nothing was changed.")
        return
    choice = choice_of(name, info)
    with progress(f"Testing {info.name}"):
        check = check_provider(config, choice)
    if check.problems and not force:
        if ctx.find_root().params["debug"]:
            click.echo(check.traceback, err=True)
        anyway = "nothing was changed; use --force to enable it anyway"
        raise HermesError(check.what, hint="; ".join(filter(None, (check.hint, anyway))))
    variables = [row["variable"] for row in check.settings]
    entry = lock_entry(info, PluginFacts(check.own_name, check.registers), variables)
    change_plugins(config.home, {_PROVIDER: choice}, [entry])
    before = config.selection.choice
    if before and not (normalise(before) == normalise(choice) or normalise(before) == info.key):
        say(f"{info.name} replaces {before}.")
    say(f"{info.name} is enabled.")
    if info.problem and info.state == "broken":
        say(f"Its {info.problem}.")
    for problem in check.problems:
        say(f"It does not work yet: {problem}")
    for warning in check.warnings:
        warn(warning)


def choice_of(name: str, info: ProviderInfo) -> str:
    """Return the value of memory.provider: with the owner if the person named one."""
    return f"{info.name}@{info.owner}" if split_choice(name)[1] else info.name


def lock_entry(info: ProviderInfo, facts: PluginFacts, variables: Iterable[str]) -> LockEntry:
    """What the lock file records of a provider that declares these variables."""
    if normalise(facts.provider) == info.key:
        facts = facts._replace(provider="")
    # To be set before the plugin is imported, when nobody can ask it yet.
    prefix = variable_of(info.name, "")
    others = sorted({each for each in variables if not each.startswith(prefix)})
    return LockEntry(info.name, pin_of(info), facts._replace(env=tuple(others)))


@click.command("disable")
@click.argument("name", required=False, shell_complete=complete_name)
@click.pass_context
def disable_command(ctx: click.Context, name: str | None) -> None:
    """Stop using the external provider.

    The built-in memory stays active.
    """
    if name and normalise(name) == BUILTIN:
        raise HermesError(
            "the built-in memory can't be disabled: it stores the notes and conversations"
        )
    config = recovered_config(ctx)
    active = config.selection.choice
    if name and not _is_meant(name, config.selection):
        now = f"{active} is" if active else "none is"
        raise HermesError(f"{name} is not active, {now}", hint="nothing was changed")
    if not active:
        say("No external provider is active. Nothing was changed.")
        return
    disable(config)
    say(f"{config.selection.name} is disabled. Its data was not changed.")


def disable(config: Config) -> None:
    """Set memory.provider to none."""
    change_plugins(config.home, {_PROVIDER: ""}, [])


def _is_meant(name: str, selection: Selection) -> bool:
    wanted, owner = split_choice(name)
    known = selection.facts.get(normalise(selection.name), PluginFacts())
    if normalise(wanted) not in map(normalise, (selection.name, known.provider)):
        return False
    return not owner or not selection.owner or normalise(owner) == normalise(selection.owner)
