"""`list`, `info`, `enable` and `disable`: what is installed, and which provider is active."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from hermes_core.checkup.selection import TestedProvider, disable, enable, find_choice, try_provider
from hermes_core.cli.output import (
    on_terminal,
    paint,
    plain,
    print_json,
    print_traceback,
    progress,
    say,
    say_field,
    say_hint,
    warn,
)
from hermes_core.cli.plugin_search import (
    NOT_CHECKED,
    grade_of_installed,
    index_grade,
    print_known,
)
from hermes_core.cli.provider_list import ListRequest, as_json, run_list
from hermes_core.config import (
    Config,
    PluginFacts,
    Selection,
    load_config,
    read_selection,
)
from hermes_core.config.grants import grant_hint
from hermes_core.config.names import normalise, split_choice
from hermes_core.config.setup_journal import recover
from hermes_core.discovery import (
    ProviderInfo,
    Record,
    companions_of,
    find_provider,
    read_record,
    scan,
)
from hermes_core.errors import ConfigError, HermesError, UnknownProviderError
from hermes_core.install.index import read_index
from hermes_core.provider import BUILTIN
from hermes_core.secrets import check_name
from hermes_core.storage.home import resolve_home


def complete_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return provider names for shell completion."""
    try:
        # Without config.yaml and --all: completion has to answer while a person types.
        found = scan(resolve_home(ctx.find_root().params.get("home")), Selection())
    except HermesError:  # no error message during completion
        return []
    names = (
        # A name with two owners is only accepted with its owner.
        f"{each.name}@{each.owner}" if each.state == "conflict" else each.name
        for each in found
        if each.loadable and each.state != "no-provider"
    )
    return [name for name in names if normalise(name).startswith(normalise(incomplete))]


def complete_known(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of plugins that can be installed, for shell completion; else files."""
    try:
        index = read_index(resolve_home(ctx.find_root().params.get("home")))
    except HermesError:  # no error message during completion
        return []
    wanted = normalise(incomplete)
    names = sorted({each.name for each in index.entries if each.key.startswith(wanted)})
    # A wheel or a folder: the shell completes it.
    return [CompletionItem(each) for each in names] or [CompletionItem(incomplete, type="file")]


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

    Reads metadata only; runs no plugin code. If it is not installed, shows what the
    index of known plugins says, and how to install it.
    """
    home = resolve_home(ctx.obj)
    selection = read_selection(home)
    try:
        info = _listed(name, scan(home, selection, everything=True))
    except UnknownProviderError as error:
        # `name` is empty if what is installed is the reason.
        if error.name and print_known(home, error.name, json=json_wanted):
            return
        raise
    index = read_index(home)
    grade = grade_of_installed(home, info, index)
    place = str(info.directory or info.location or "")
    registers = info.facts.registers
    companions = companions_of(info)
    isolation = isolation_of(selection, info, info.name)
    if json_wanted:
        known = {"provider": info.facts.provider, "registers": registers}
        facts = {key: value for key, value in known.items() if value}
        beside = {name.removesuffix(".py"): str(path) for name, path in companions.items()}
        grants = granted_to(selection, info.name)
        more = {"commit": info.commit, "location": place, "grants": grants, **beside, **facts}
        more |= {"isolation": isolation, "grade": grade}
        print_json(provider={**as_json(info), **more})
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
        "grade": grade,
        "index": index_grade(info, index) if grade == NOT_CHECKED else "",
        "source": info.source,
        "entry point": "" if info.source == "module" else info.entry_point,
        "module": info.entry_point if info.source == "module" else "",
        "location": place,
        "has": companions and f"{' and '.join(companions)} (for hermes-agent, not used here)",
        # Known only from the class, which is not imported here.
        "deliveries": "see `hermes-plugins status` while it is active"
        if info.source != BUILTIN and info.state != "no-provider"
        else "",
        "calls itself": info.facts.provider,
        "registers": registers and f"{registers} (not memory, not used here)",
        "grants": ", ".join(granted_to(selection, info.name)),
        "isolation": {"process": "process (the plugin runs in its own process)"}.get(isolation, ""),
    }
    width = max(map(len, details)) + 1 if on_terminal() else 0
    for label, value in details.items():
        if value:
            say_field(label, plain(value), width)


def _listed(name: str, found: list[ProviderInfo]) -> ProviderInfo:
    """Return the provider, even if it can't be loaded: then its details matter most."""
    wanted, owner = split_choice(name)
    same = [each for each in found if each.key == normalise(wanted)]
    same = same or [each for each in found if each.is_called(wanted)]
    owned = [each for each in same if not owner or each.owned_by(owner)]
    # Several or none: `find_provider` has the error messages.
    return owned[0] if len(owned) == 1 else find_provider(name, found)


def isolation_of(selection: Selection, info: ProviderInfo | None, name: str) -> str:
    """Return what config.yaml says about a provider's process: "none" or "process"."""
    own = info.facts.provider if info is not None else ""
    try:
        return "process" if selection.is_isolated(name, own or name) else "none"
    except ConfigError:
        return "none"  # it does not load then, and `status` says why


def recovered_config(ctx: click.Context) -> Config:
    """Finish an interrupted setup, then read config.yaml."""
    home = resolve_home(ctx.obj)
    # Before reading: the journal may have a newer value than config.yaml.
    recover(home)
    return load_config(home)


# -- grants ------------------------------------------------------------------------------------

#: The option of `enable` and `setup` for scripts; on a terminal they ask.
grant_option: Final[Callable[[Any], Any]] = click.option(
    "--grant", "grants", multiple=True, metavar="NAME", callback=lambda _, __, given: _names(given),
    help="Let the plugin have this variable.",
)  # fmt: skip


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(check_name(each) for each in given)


def granted_to(selection: Selection, name: str) -> list[str]:
    """Return the variables that a person granted to a plugin."""
    granted = selection.grants.get(normalise(name), ())
    # An entry from before there were grants: what it recorded counts as granted.
    facts = selection.facts.get(normalise(name), PluginFacts())
    return sorted(facts.env if granted is None else granted)


def ask_grants(info: ProviderInfo, variables: Iterable[str]) -> tuple[str, ...]:
    """Ask which variables that are not a plugin's own it may have."""
    return tuple(each for each in variables if _agrees(info, each))


def _agrees(info: ProviderInfo, variable: str) -> bool:
    # The default is no: whoever only presses Enter has not agreed to anything.
    question = f"{plain(info.name)} asks for {variable}, which is set here. May it have the value?"
    return click.confirm(question, default=False, err=True)


def say_grants(name: str, grants: Sequence[str], withheld: Sequence[str]) -> None:
    """Print which variables of others a plugin has, and which it lacks."""
    if grants:
        say_field("grants", ", ".join(grants))
    if withheld:
        say_field("not granted", f"{', '.join(withheld)} ({grant_hint(name, withheld)})")


@click.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.option("--force", is_flag=True, help="Enable it even if it does not work.")
@grant_option
@click.pass_context
def enable_command(ctx: click.Context, name: str, force: bool, grants: tuple[str, ...]) -> None:
    """Use NAME as the external memory provider.

    Loads it in a separate process first. NAME may be name@owner if two packages have
    a provider of that name. Asks before the plugin gets a variable that is not its own.
    """
    config = recovered_config(ctx)
    info = find_choice(config, name)
    if info.source == BUILTIN:
        say("builtin is always active. Nothing was changed.")
        return
    tested = tried(config, name, info, grants)
    check, choice = tested.check, tested.choice
    if check.problems and not force:
        if ctx.find_root().params["debug"]:
            print_traceback(check.traceback)
        anyway = "nothing was changed; use --force to enable it anyway"
        raise HermesError(check.what, hint="; ".join(filter(None, (check.hint, anyway))))
    enable(config, tested)
    before = config.selection.choice
    # Not if only the spelling or the owner in the choice differs.
    if before and not (normalise(before) == normalise(choice) or normalise(before) == info.key):
        say(f"{info.name} replaces {before}.")
    say(f"{info.name} is enabled.")
    if info.problem and info.state == "broken":
        say(f"Its {info.problem}.")
    for problem in check.problems:
        say(f"It does not work yet: {plain(problem.what)}")
        say_hint(problem.hint, 0)
    for warning in check.warnings:
        warn(warning)


def tried(config: Config, name: str, info: ProviderInfo, grants: tuple[str, ...]) -> TestedProvider:
    """Load a provider; on a terminal, ask for what it needs and is not its own."""
    with progress(f"Testing {info.name}"):
        tested = try_provider(config, name, info, grants)
    withheld = tested.check.withheld
    if withheld and sys.stdin.isatty() and (more := ask_grants(info, withheld)):
        with progress(f"Testing {info.name}"):
            tested = try_provider(config, name, info, {*grants, *more})
    return tested


@click.command("disable")
@click.argument("name", required=False, shell_complete=complete_name)
@click.pass_context
def disable_command(ctx: click.Context, name: str | None) -> None:
    """Stop using the external provider.

    The built-in memory stays active.
    """
    if name and normalise(name) == BUILTIN:
        raise HermesError(
            "the built-in memory can't be disabled: it stores the notes and conversations",
            hint="to stop using the external provider: hermes-plugins disable",
        )
    config = recovered_config(ctx)
    active = config.selection.choice
    if name and not _is_meant(name, config.selection):
        now = f"{active} is" if active else "none is"
        todo = "run: hermes-plugins disable" if active else "see: hermes-plugins list"
        raise HermesError(f"{name} is not active, {now}", hint=todo)
    if not active:
        say("No external provider is active. Nothing was changed.")
        return
    disable(config)
    say(f"{config.selection.name} is disabled. Its data was not changed.")


def _is_meant(name: str, selection: Selection) -> bool:
    wanted, owner = split_choice(name)
    known = selection.facts.get(normalise(selection.name), PluginFacts())
    if normalise(wanted) not in map(normalise, (selection.name, known.provider)):
        return False
    return not owner or not selection.owner or normalise(owner) == normalise(selection.owner)
