"""`enable` and `disable`: which external provider is active, after a test in a child process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hermes_core.checkup.status import ProviderCheck, check_provider
from hermes_core.config import Config, LockEntry, PluginFacts, Selection
from hermes_core.config.editor import change_plugins
from hermes_core.config.grants import carried_grants
from hermes_core.config.names import normalise, split_choice
from hermes_core.discovery import ProviderInfo, find_provider, pin_of, scan
from hermes_core.secrets import Secrets

_PROVIDER: Final = ("memory", "provider")


@dataclass(frozen=True, slots=True)
class TestedProvider:
    """A provider that was loaded in a child process, and what came of it.

    Attributes:
        info: The provider.
        choice: The value of memory.provider for it.
        grants: The variables that are not its own and that it got.
        check: The result.
    """

    info: ProviderInfo
    choice: str
    grants: tuple[str, ...]
    check: ProviderCheck


def find_choice(config: Config, name: str) -> ProviderInfo:
    """Find the provider that ``name`` (or name@owner) means.

    Raises:
        HermesError: There is none, or there are several.
    """
    # What is active now must not influence which provider a name means. The facts stay: a provider
    # can be called by its own name, which only they have.
    unchosen = Selection(facts=config.selection.facts)
    return find_provider(name, scan(config.home, unchosen, everything=True))


def try_provider(
    config: Config, name: str, info: ProviderInfo, grants: Iterable[str] = ()
) -> TestedProvider:
    """Load a provider in a child process. Changes nothing.

    Args:
        config: What config.yaml says.
        name: The provider as the person named it.
        info: The same, as it was found.
        grants: The variables that a person grants to it now.
    """
    choice = choice_of(name, info)
    granted = grants_for(config, info, grants)
    return TestedProvider(info, choice, granted, check_provider(config, choice, granted))


def enable(config: Config, tested: TestedProvider) -> None:
    """Make a provider that was tried the active one, and pin it."""
    check = tested.check
    variables = [row["variable"] for row in check.settings]
    facts = PluginFacts(check.own_name, check.registers)
    entry = lock_entry(tested.info, facts, variables, tested.grants)
    # One entry: there is one external provider, and pins of others would go stale.
    change_plugins(config.home, {_PROVIDER: tested.choice}, [entry])


def disable(config: Config) -> None:
    """Set memory.provider to none."""
    # "" and not DELETE: the key stays visible in the file. No entries: pins go too.
    change_plugins(config.home, {_PROVIDER: ""}, [])


def choice_of(name: str, info: ProviderInfo) -> str:
    """Return the value of memory.provider: with the owner if the person named one."""
    return f"{info.name}@{info.owner}" if split_choice(name)[1] else info.name


def grants_for(config: Config, info: ProviderInfo, given: Iterable[str]) -> tuple[str, ...]:
    """Return what a person grants to a plugin now, or granted to it before."""
    secrets = Secrets(config.home, config.secrets_backend)
    return tuple(sorted({*carried_grants(config, info, secrets), *given}))


def lock_entry(
    info: ProviderInfo, facts: PluginFacts, variables: Iterable[str], grants: Iterable[str]
) -> LockEntry:
    """What the lock file records of a provider that declares these variables."""
    # Recorded only where it differs from the listed name.
    if normalise(facts.provider) == info.key:
        facts = facts._replace(provider="")
    # They have to be set before the next import, when the plugin can't be asked yet.
    names = tuple(sorted({*variables}))
    return LockEntry(info.name, pin_of(info), facts._replace(env=names), tuple(sorted({*grants})))
