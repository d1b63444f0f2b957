"""The one path from config.yaml to an external provider that is ready.

`MemoryManager.from_config`, ``status`` and ``enable`` all use it, so that what they report is
what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes_core.config import Config, Selection
from hermes_core.config.environment import Lease
from hermes_core.config.fields import Field, SchemaError, Settings, active_fields, read_fields
from hermes_core.config.grants import grant_hint
from hermes_core.config.names import normalise
from hermes_core.config.settings import ProviderConfigError, Sources, own_settings_of, secrets_in
from hermes_core.config.setup_journal import complete, unsaved
from hermes_core.discovery import (
    PUBLISHED,
    ProviderInfo,
    find_provider,
    manifest_of,
    pin_problem,
    scan,
)
from hermes_core.dispatch import Deadlines, SingleProvider
from hermes_core.dispatch.caller import ProviderInstance, instance_of
from hermes_core.dispatch.isolation import IsolatedProvider
from hermes_core.dispatch.process_state import module_of, watch_process
from hermes_core.errors import (
    HermesError,
    ProviderConflictError,
    ProviderUnavailableError,
    UnknownProviderError,
    describe,
)
from hermes_core.loading import LoadResult, load, load_provider
from hermes_core.loading.isolated import load_isolated
from hermes_core.loading.requirements import missing_needs, missing_packages
from hermes_core.privacy import mask_error, mask_secrets, remember_secrets
from hermes_core.provider import BUILTIN, MemoryProvider


@dataclass(frozen=True, slots=True)
class Activation:
    """The result of activating the configured provider: the provider, or the error.

    ``settings`` and ``fields`` are known as soon as it could be loaded; ``lease`` sets its
    variables around its calls, to be released when it is no longer used; ``secrets`` are
    the values that must not be shown, whatever an error of the plugin says; ``own_name``
    is what the provider calls itself, ``registered`` what its plugin registers besides;
    ``withheld`` names variables that are set and that nobody granted to it.
    """

    info: ProviderInfo | None = None
    provider: MemoryProvider | None = None
    error: HermesError | None = None
    warnings: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    settings: Settings | None = None
    own_name: str = ""
    registered: Mapping[str, int] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    lease: Lease = field(default_factory=Lease)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def deadlines_of(config: Config) -> Deadlines:
    """Return the deadlines: the defaults, overridden by the configuration."""
    return Deadlines(**config.deadlines)


def installed_providers(config: Config) -> list[ProviderInfo]:
    """Return all providers in which the one that the configuration names can be found.

    One scan of declared plugins is enough for nearly every home. Only if the configured provider
    is not among them, a second scan also reads packages that declare nothing.
    """
    selection = config.selection
    found = scan(config.home, selection)
    same = [each for each in found if each.key == normalise(selection.name)]
    meant = [each for each in same if not selection.owner or each.owned_by(selection.owner)]
    # A project's plugin has the lowest precedence, so what only the longer search finds wins.
    # A broken directory does not end the search: a package may have a provider of that name.
    if selection.name and not any(each.loadable and each.source != "project" for each in meant):
        return scan(config.home, selection, everything=True)
    return found


def activate_builtin(config: Config, installed: list[ProviderInfo] | None = None) -> MemoryProvider:
    """Return the built-in, found through its entry point like every other provider."""
    found = scan(config.home, config.selection) if installed is None else installed
    return load_provider(find_provider(BUILTIN, found))


def chosen_provider(
    config: Config, installed: list[ProviderInfo] | None = None
) -> ProviderInfo | None:
    """Return the external provider that the configuration names, or None.

    Args:
        config: What config.yaml says.
        installed: The result of `installed_providers`, if it is known.

    Raises:
        HermesError: There is no such provider, several claim its name, or it is no longer
            the one that was enabled.
    """
    selection = config.selection
    if not selection.name:
        return None
    found = installed_providers(config) if installed is None else installed
    try:
        info = find_provider(selection.choice, found)
    except UnknownProviderError as error:
        if back := _how_to_get_back(selection, found):
            # Its own package: the command line must not suggest another one of that name.
            error.hint, error.name = back, ""
        raise
    problem = _changed(info, selection)
    pin = selection.pin
    # A new version is used with a warning; a new owner is refused, since the person never enabled
    # it.
    if problem and (selection.strict or (pin is not None and not info.owned_by(pin.owner))):
        todo = f"if you trust it: hermes-plugins enable {info.name}"
        raise ProviderConflictError(problem, where=f"plugin {info.name}", hint=todo)
    return info


def _how_to_get_back(selection: Selection, found: list[ProviderInfo]) -> str:
    """What to do about a provider that was enabled and is gone; "" if it was not enabled."""
    pin = selection.pin
    if pin is None or not pin.owner or any(each.is_called(selection.name) for each in found):
        return ""
    if pin.owner == "directory" or pin.owner.startswith("project:"):
        return "put its folder back, or run: hermes-plugins disable"
    # How to install ours, only the index knows: it says which are on PyPI.
    if pin.owner in PUBLISHED.values():
        return f"to see how to install it, run: hermes-plugins info {selection.name}"
    return f"run: hermes-plugins install {pin.owner}"


def _changed(info: ProviderInfo, selection: Selection) -> str:
    """How a provider differs from its pin. The scan compared them, unless the name differs."""
    if info.active or info.state == "changed":
        return info.problem if info.state == "changed" else ""
    return pin_problem(info, selection)


def activate(
    config: Config,
    arguments: Mapping[str, Any] | None = None,
    installed: list[ProviderInfo] | None = None,
) -> Activation:
    """Load the configured provider, and check that it is set up and available.

    Args:
        config: What config.yaml says.
        arguments: Settings that override every other source.
        installed: The result of `installed_providers`, if it is known.

    Never raises for an error of the plugin: the built-in has to work without it.
    """
    result = Activation()
    try:
        info = chosen_provider(config, installed)
        if info is None:
            return result
        result = replace(result, info=info)
        changed = _changed(info, config.selection)
        if changed:
            result = replace(result, warnings=(f"plugin {info.name}: {changed}",))
        # Before the import: many plugins read os.environ at module level.
        sources = Sources(config, info, manifest_of(info), arguments)
        environment = sources.environment()
        # Known before any plugin code runs, so that even an error of the import is masked.
        # With all of .env: what it declares is not known yet, and it can read the file itself.
        stored = sources.secrets.values(keyring=False)
        result = replace(result, secrets=secrets_in((), None, environment) | stored)
        remember_secrets(result.secrets)
        deadlines = deadlines_of(config)
        loaded = load_for(config, info, sources, result.lease)
        provider = loaded.provider
        masked_warnings = (mask_secrets(each, result.secrets) for each in loaded.warnings)
        warnings = (*result.warnings, *masked_warnings)
        result = replace(
            result,
            own_name=loaded.name,
            registered=loaded.registered,
            warnings=warnings,
        )
        sources.reported = own_settings_of(provider, info.name, config.home, deadlines)
        result = _set_up(result, provider, sources, deadlines)
        if result.settings is not None and result.settings.problems:
            raise ProviderConfigError(info.name, result.settings.problems)
        # Only now: ``save_config`` must not be called with values that are not valid.
        # Not with arguments, which are only for this process.
        if not arguments and (problem := _save_settings(result, provider, config)):
            result = replace(result, warnings=(*result.warnings, problem))
        with result.lease.applied():  # also for what its plugin.yaml says that it needs
            require_available(info, provider, deadlines)
        # After `is_available`, whose reason is usually better than a list of packages.
        _require_packages(info)
    # Release: nothing of a provider that is not used may stay in the environment.
    except HermesError as error:
        result.lease.release()
        mask_error(error, result.secrets)
        return replace(result, error=error)
    return replace(result, provider=provider)


def load_for(
    config: Config, info: ProviderInfo, sources: Sources, lease: Lease, *, pinned: bool = True
) -> LoadResult:
    """Load a provider with the variables that it may have; in its own process, if it is isolated.

    Args:
        config: What config.yaml says.
        info: What to load.
        sources: Where its settings come from.
        lease: Sets its variables around its calls. Release it when the provider is not used any
            more: then its process ends, too.
        pinned: Whether its files must be those that were enabled, if pins are strict.
    """
    deadlines = deadlines_of(config)
    pin = config.selection.strict_hash if pinned else ""
    if is_isolated(config, info):
        return load_isolated(config, info, sources, lease, deadlines=deadlines, pin=pin)
    lease.set(sources.environment(), f"plugin {info.name}", sources.held)
    instance = ProviderInstance(
        info.name, config.home, around=lease.applied, may_read=sources.grants.allows
    )
    noticed: dict[str, str] = {}
    modules: list[str] = []
    with watch_process(info.name, "was loaded", noticed.update, lambda: "".join(modules)):
        loaded = load(info, config.home, deadline=deadlines.load, pin=pin, instance=instance)
        modules.append(module_of(loaded.provider))
    # Its class allows no weak references, so its calls would not find the instance.
    if instance_of(loaded.provider, info.name) is not instance:
        lease.hold()
    return loaded._replace(warnings=(*loaded.warnings, *noticed.values()))


def is_isolated(config: Config, info: ProviderInfo) -> bool:
    """Whether a provider runs in its own process.

    Raises:
        ConfigError: Its section of config.yaml has another value.
    """
    names = (info.name, info.facts.provider) if info.facts.provider else (info.name,)
    return config.selection.is_isolated(*names)


def _require_packages(info: ProviderInfo) -> None:
    """Raise `ProviderUnavailableError` if a directory plugin lacks a package that it declares.

    hermes-agent installs such packages when they are first used, so a plugin may say that it is
    available without them, and then drop every turn. One that pip installed has what it needs.
    """
    lacks = missing_packages(info) if info.directory is not None and not info.distribution else None
    if lacks is not None:
        raise ProviderUnavailableError(
            f"is not available: {lacks.what}", where=f"plugin {info.name}", hint=lacks.hint
        )


def _save_settings(result: Activation, provider: MemoryProvider, config: Config) -> str:
    """Call ``save_config`` if an earlier change of the settings could not; return a warning.

    The provider works without it: config.yaml has the values. If it fails, the journal stays,
    and the next activation tries again.
    """
    if result.info is None:
        return ""
    try:
        journal = unsaved(config.home, result.info.name)
        if journal is None:
            return ""
        values = plain_values(result.fields, result.settings or Settings({}, {}, ()))
        problem = save_config(provider, result.info, config, values)
        if not problem:
            complete(config.home, journal)
    except HermesError as error:
        problem = str(error)
    if not problem:
        return ""
    reason = mask_secrets(problem, result.secrets)
    return f"plugin {result.info.name}: could not save its settings: {reason}"


def plain_values(fields: tuple[Field, ...], settings: Settings) -> dict[str, Any]:
    """Return the values that are not secret."""
    secret = {field.key for field in active_fields(fields, settings.values) if field.secret}
    return {key: value for key, value in settings.values.items() if key not in secret}


def save_config(
    provider: MemoryProvider, info: ProviderInfo, config: Config, values: dict[str, Any]
) -> str:
    """Call the provider's ``save_config``; return what went wrong, or ""."""
    with SingleProvider(provider, info.name, deadlines=deadlines_of(config)) as single:
        outcome = single.call("save_config", values=dict(values), hermes_home=str(config.home))
    return "" if outcome.error is None else describe(outcome.error)


def _set_up(
    result: Activation, provider: MemoryProvider, sources: Sources, deadlines: Deadlines
) -> Activation:
    """Read the settings of a loaded provider; they may be invalid."""
    name = result.info.name if result.info else ""
    fields = fields_of(provider, name, deadlines)
    settings = sources.settings(fields)
    # A second time: the fields name variables that were not known before the import.
    environment = sources.environment(fields)
    secrets = secrets_in(fields, settings, environment)
    remember_secrets(secrets)
    if isinstance(provider, IsolatedProvider):
        provider.set_environment(environment)
    else:
        result.lease.set(environment, f"plugin {name}", sources.held)
    clear = [
        f"plugin {name}: {each}" for each in sources.exposed(active_fields(fields, settings.values))
    ]
    withheld = sources.withheld(fields, settings.values)
    if withheld:
        hint = grant_hint(name, withheld)
        clear.append(f"plugin {name}: does not get {', '.join(withheld)}: not granted ({hint})")
    return replace(
        result,
        fields=fields,
        settings=settings,
        warnings=(*result.warnings, *clear),
        secrets=secrets,
        withheld=(*withheld, *sources.undeclared(fields)),
    )


def fields_of(provider: MemoryProvider, name: str, deadlines: Deadlines) -> tuple[Field, ...]:
    """Return the fields of a provider's ``get_config_schema``."""
    with SingleProvider(provider, name, deadlines=deadlines) as single:
        outcome = single.call("get_config_schema")
    if outcome.error is not None:
        raise ProviderUnavailableError(
            f"get_config_schema failed: {describe(outcome.error)}",
            where=f"plugin {name}",
            hint="This is a bug in the plugin. Please report it to its author.",
        ) from outcome.error
    try:
        return read_fields(outcome.value, name)
    # A HermesError with a good message; the next clause would wrap it.
    except SchemaError:
        raise
    except Exception as error:  # the plugin's own objects may do anything
        raise SchemaError(
            f"its get_config_schema() can't be read: {describe(error)}",
            where=f"plugin {name}",
            hint="This is a bug in the plugin. Please report it to its author.",
        ) from error


def require_available(info: ProviderInfo, provider: MemoryProvider, deadlines: Deadlines) -> None:
    """Raise `ProviderUnavailableError` unless the provider says that it can work."""
    with SingleProvider(provider, info.name, deadlines=deadlines) as single:
        outcome = single.call("is_available")
        if outcome.value:
            return
        if outcome.error is not None:
            raise ProviderUnavailableError(
                f"is_available failed: {describe(outcome.error)}",
                where=f"plugin {info.name}",
                hint="This is a bug in the plugin. Please report it to its author.",
            ) from outcome.error
        # The plugin's own words first; what its plugin.yaml declares is a guess about the cause.
        reason = single.call("unavailable_reason").value
    lacks = None if reason else missing_needs(info)
    hint = "see its documentation for what it needs: credentials, a server, a setting"
    if lacks is not None:
        reason, hint = lacks.what, lacks.hint or hint
    raise ProviderUnavailableError(
        f"is not available: {reason or 'the plugin returned no reason'}",
        where=f"plugin {info.name}",
        hint=hint,
    )


def settings_rows(activation: Activation) -> list[dict[str, Any]]:
    """Return a row per field: its value and where it comes from; no value of a secret."""
    rows = []
    settings = activation.settings or Settings({}, {}, ())
    problems = {each.field.rpartition(".")[2]: each for each in settings.problems}
    for each in active_fields(activation.fields, settings.values):
        problem = problems.get(each.key)
        known = each.key in settings.values
        if not known and problem is None and not each.applies(settings.values):
            # A field with an error is listed even if it does not apply: its value is what is
            # wrong.
            continue
        rows.append(
            {
                "key": each.key,
                "variable": each.variable,
                "secret": each.secret,
                "required": each.required,
                "origin": settings.origins.get(each.key, ""),
                "value": None if each.secret else settings.values.get(each.key),
                "set": known,
                "problem": "" if problem is None else str(problem),
                "url": each.url,
            }
        )
    return rows
