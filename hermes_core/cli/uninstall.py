"""`uninstall`: takes a plugin away, after it has been disabled."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from hermes_core.cli._output import plain, say
from hermes_core.cli.activation import disable, recovered_config
from hermes_core.cli.listing import complete_name
from hermes_core.config import Config, Selection
from hermes_core.discovery import (
    ProviderInfo,
    content_hash,
    describe_directory,
    find_distribution,
    read_record,
    scan,
)
from hermes_core.errors import HermesError
from hermes_core.installing import (
    OURSELVES,
    InstallError,
    installer,
    plugins_folder,
    remove_bridge,
    remove_folder,
)
from hermes_core.names import BUILTIN, nearest, normalise, split_choice
from hermes_core.outbox import DEFAULT_MAX_MB, OutboxStore


@click.command("uninstall")
@click.argument("name", shell_complete=complete_name)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_context
def uninstall_command(ctx: click.Context, name: str, yes: bool) -> None:
    """Disable and uninstall NAME: a provider, or the package that brings it.

    Its settings, its secrets and what it has stored are kept.
    """
    config = recovered_config(ctx)
    found = _meant(name, scan(config.home, Selection(), everything=True))
    first = found[0]
    if first.directory is not None and not first.distribution:
        _remove_directory(config, first, yes)
        return
    _refuse_ours(first.distribution)
    program = installer("uninstall", first.distribution)
    others = [each.name for each in found if normalise(each.name) != normalise(name)]
    brings = f", which brings {', '.join(map(plain, others))}" if others else ""
    _agree(f"Uninstall the package {first.distribution} {first.version}{brings}?", yes)
    _disable_first(config, found)
    for each in found:
        _drop_bridge(config, each)
    program.remove(first.distribution)
    if find_distribution(first.distribution) is not None:
        raise InstallError(
            "is still there: it belongs to another environment than the one that runs us",
            where=first.distribution,
            hint=f"this is {sys.prefix}",
        )
    say(f"Uninstalled: {first.distribution} {first.version}. What it needed is left installed.")
    _tell_what_stays(found)


def _meant(name: str, listed: list[ProviderInfo]) -> list[ProviderInfo]:
    """All providers of the package, or the one directory, that a person means."""
    wanted, owner = split_choice(name)
    key = normalise(wanted)
    if key in (BUILTIN, OURSELVES):
        _refuse_ours(OURSELVES)
    same = [each for each in listed if each.key == key and (not owner or each.owned_by(owner))]
    owners = {(normalise(each.distribution), each.directory) for each in same}
    distributions = {normalise(each.distribution) for each in same if each.distribution}
    if len(owners) > 1 and len(distributions) != 1:
        choices = " or ".join(f"{wanted}@{each.owner}" for each in same)
        raise InstallError(f"{name} is two plugins", hint=f"say which: {choices}")
    project = next(iter(distributions), key)
    brought = [each for each in listed if normalise(each.distribution) == project]
    found = brought or same
    if not found:
        known = [each.name for each in listed if each.source != BUILTIN]
        close = nearest(wanted, [*known, *(each.distribution for each in listed)])
        raise InstallError(
            f"no memory plugin {name!r} is installed",
            hint=f"did you mean {' or '.join(close)}?" if close else "hermes-plugins list --all",
        )
    return found


def _refuse_ours(distribution: str) -> None:
    if normalise(distribution) == OURSELVES:
        raise InstallError(
            "that is hermes-plugins itself; nothing was changed",
            hint=f"if you mean it: {sys.executable} -m pip uninstall {OURSELVES}",
        )


def _agree(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InstallError("nothing was changed", hint="--yes uninstalls it without asking")
    if not click.confirm(question, default=True, err=True):
        raise click.Abort


def _remove_directory(config: Config, info: ProviderInfo, yes: bool) -> None:
    folder = info.directory
    assert folder is not None  # noqa: S101 - by whom we are called
    record = read_record(folder)
    if record is None:
        raise InstallError(
            "was not installed by hermes-plugins; nothing was changed",
            where=str(folder),
            hint=f"run: hermes-plugins disable {info.name}, and delete the folder",
        )
    if content_hash(describe_directory(folder)) != record.hash:
        raise InstallError(
            "has files in it that differ from those that were installed; nothing was changed",
            where=str(folder),
            hint="they may be your edits, or what it has stored: delete the folder yourself",
        )
    _agree(f"Delete {folder}?", yes)
    _disable_first(config, [info])
    with plugins_folder(config.home):
        remove_folder(folder)
    say(f"Uninstalled: {info.name}, which was in {folder}")
    _tell_what_stays([info])


def _disable_first(config: Config, found: Iterable[ProviderInfo]) -> None:
    """So that no agent starts with a provider that is half gone."""
    active = normalise(config.selection.name)
    for each in found:
        if active and each.key == active:
            disable(config)
            waiting = _waiting(config, active)
            turns = "1 write waits" if waiting == 1 else f"{waiting} writes wait"
            say(f"{each.name} is disabled." + (
                f" {turns} for it in the outbox, until it is enabled again." if waiting else ""
            ))  # fmt: skip


def _waiting(config: Config, key: str) -> int:
    store = OutboxStore(config.home / "outbox.db", max_bytes=DEFAULT_MAX_MB * 1_000_000)
    try:
        return sum(
            each.writes for each in store.waiting() if normalise(each.origin.provider) == key
        )
    except HermesError as error:
        say(f"How many writes wait for it can't be told: {error}")
        return 0
    finally:
        store.close()


def _drop_bridge(config: Config, info: ProviderInfo) -> None:
    """A bridge to nowhere would be in the way of whatever comes next under the name."""
    record = read_record(config.home / "plugins" / info.name)
    if record is None or normalise(record.bridge) != normalise(info.distribution):
        return
    try:
        folder = remove_bridge(config.home, info.name)
    except HermesError as error:
        say(f"Its bridge to hermes-agent stays: {error}")
    else:
        say(f"Its bridge to hermes-agent is removed: {folder}")


def _tell_what_stays(found: Iterable[ProviderInfo]) -> None:
    names = ", ".join(f"memory.{each.name}" for each in found)
    say(f"Kept: its settings ({names} in config.yaml), its secrets and what it has stored.")
