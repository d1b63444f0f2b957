"""Which external provider runs: the one path from config.yaml to a provider that is ready.

`MemoryManager.from_config`, ``status`` and ``enable`` all go through here, so that what
they say can't differ from what happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes_core.config import Config
from hermes_core.discovery import ProviderInfo, find_provider, pin_problem, scan
from hermes_core.dispatch import Deadlines, ProviderAdapter
from hermes_core.environment import Lease
from hermes_core.errors import (
    HermesError,
    ProviderConflictError,
    ProviderUnavailableError,
    describe,
)
from hermes_core.loading import load, load_provider
from hermes_core.masking import mask_error
from hermes_core.names import BUILTIN, normalise
from hermes_core.own_settings import own_settings_of
from hermes_core.provider import MemoryProvider
from hermes_core.schema import Field, SchemaError, Settings, read_fields
from hermes_core.setting_up import done, is_to_be_told
from hermes_core.settings import ProviderConfigError, Sources, secrets_in


@dataclass(frozen=True, slots=True)
class Activation:
    """What came of activating the chosen provider: the provider, or the error.

    ``settings`` and ``fields`` are known as soon as it could be loaded; ``lease`` holds the
    variables that were set for it, to be released when it is no longer used; ``secrets`` are
    the values that must not be shown, whatever an error of the plugin says; ``own_name``
    is what the provider calls itself, ``registered`` what its plugin registers besides.
    """

    info: ProviderInfo | None = None
    provider: MemoryProvider | None = None
    error: HermesError | None = None
    warnings: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    settings: Settings | None = None
    own_name: str = ""
    registered: Mapping[str, int] = field(default_factory=dict)
    lease: Lease = field(default_factory=Lease)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


def deadlines_of(config: Config) -> Deadlines:
    """Our deadlines, with those of the configuration put over them."""
    return Deadlines(**config.deadlines)


def activate_builtin(config: Config) -> MemoryProvider:
    """The built-in, which is found through its entry point like every other provider."""
    return load_provider(find_provider(BUILTIN, scan(config.home, config.selection)))


def chosen(config: Config) -> ProviderInfo | None:
    """The external provider that the configuration names, or None.

    Raises:
        HermesError: There is no such provider, several claim its name, or it is no longer
            the one that was enabled.
    """
    selection = config.selection
    if not selection.name:
        return None
    found = scan(config.home, selection)
    if not any(each.loadable for each in found if each.key == normalise(selection.name)):
        found = scan(config.home, selection, everything=True)
    info = find_provider(selection.choice, found)
    problem = pin_problem(info, selection)
    pin = selection.pin
    if problem and (selection.strict or (pin is not None and not info.owned_by(pin.owner))):
        raise ProviderConflictError(problem, where=f"plugin {info.name}")
    return info


def activate(config: Config, arguments: Mapping[str, Any] | None = None) -> Activation:
    """Load the provider that the configuration names, and see that it is set up and available.

    Args:
        config: What config.yaml says.
        arguments: Settings that count more than any other source.

    Never raises for a plugin's fault: the built-in has to go on.
    """
    result = Activation()
    try:
        info = chosen(config)
        if info is None:
            return result
        result = replace(result, info=info)
        changed = pin_problem(info, config.selection)
        if changed:
            result = replace(result, warnings=(f"plugin {info.name}: {changed}",))
        sources = Sources(config, info, arguments)
        environment = sources.environment()
        result = replace(result, secrets=secrets_in((), None, environment))
        result.lease.set(environment, f"plugin {info.name}")
        deadlines = deadlines_of(config)
        loaded = load(info, config.home, deadline=deadlines.load)
        provider = loaded.provider
        warnings = (*result.warnings, *loaded.warnings)
        result = replace(
            result,
            own_name=loaded.name,
            registered=loaded.registered,
            warnings=warnings,
        )
        sources.told = own_settings_of(provider, info.name, config.home, deadlines.hook)
        result = _set_up(result, provider, sources, deadlines)
        if result.settings is not None and result.settings.problems:
            raise ProviderConfigError(info.name, result.settings.problems)
        _tell_settings(result, provider, config)
        require_available(info, provider, deadlines)
    except HermesError as error:
        result.lease.release()
        mask_error(error, result.secrets)
        return replace(result, error=error)
    return replace(result, provider=provider)


def _tell_settings(result: Activation, provider: MemoryProvider, config: Config) -> None:
    """Tell a provider what a change of its settings could not tell it yet."""
    if result.info is not None and is_to_be_told(config.home, result.info.name):
        settings = result.settings or Settings({}, {}, ())
        save_config(provider, result.info, config, plain_values(result.fields, settings))
        done(config.home)


def plain_values(fields: tuple[Field, ...], settings: Settings) -> dict[str, Any]:
    """The values that are no secrets."""
    secret = {field.key for field in fields if field.secret}
    return {key: value for key, value in settings.values.items() if key not in secret}


def save_config(
    provider: MemoryProvider, info: ProviderInfo, config: Config, values: dict[str, Any]
) -> str:
    """Let a provider keep its settings itself; gives what went wrong, or ""."""
    adapter = ProviderAdapter(provider, info.name, deadlines=deadlines_of(config))
    try:
        outcome = adapter.save_config(dict(values), str(config.home))
    finally:
        adapter.close(0)
    return "" if outcome.error is None else describe(outcome.error)


def _set_up(
    result: Activation, provider: MemoryProvider, sources: Sources, deadlines: Deadlines
) -> Activation:
    """Give a loaded provider its settings; they may not be valid."""
    name = result.info.name if result.info else ""
    fields = fields_of(provider, name, deadlines)
    settings = sources.settings(fields)
    environment = sources.environment(fields)
    secrets = secrets_in(fields, settings, environment)
    result.lease.set(environment, f"plugin {name}")
    clear = [f"plugin {name}: {each}" for each in sources.exposed(fields)]
    warnings = (*result.warnings, *clear)
    return replace(result, fields=fields, settings=settings, warnings=warnings, secrets=secrets)


def fields_of(provider: MemoryProvider, name: str, deadlines: Deadlines) -> tuple[Field, ...]:
    """The fields that a provider wants to have set up."""
    adapter = ProviderAdapter(provider, name, deadlines=deadlines)
    try:
        outcome = adapter.get_config_schema()
    finally:
        adapter.close(0)
    if outcome.error is not None:
        raise ProviderUnavailableError(
            f"get_config_schema failed: {describe(outcome.error)}",
            where=f"plugin {name}",
            hint="that is the plugin's fault: tell its author",
        ) from outcome.error
    try:
        return read_fields(outcome.value, name)
    except SchemaError:
        raise
    except Exception as error:  # the plugin's own objects may do anything
        raise SchemaError(
            f"its get_config_schema() can't be read: {describe(error)}",
            where=f"plugin {name}",
            hint="that is the plugin's fault: tell its author",
        ) from error


def require_available(info: ProviderInfo, provider: MemoryProvider, deadlines: Deadlines) -> None:
    """Raise `ProviderUnavailableError` unless the provider says that it can work."""
    adapter = ProviderAdapter(provider, info.name, deadlines=deadlines)
    try:
        outcome = adapter.is_available()
        if outcome.value:
            return
        if outcome.error is not None:
            raise ProviderUnavailableError(
                f"is_available failed: {describe(outcome.error)}",
                where=f"plugin {info.name}",
                hint="that is the plugin's fault: tell its author",
            ) from outcome.error
        reason = adapter.unavailable_reason().value
    finally:
        adapter.close(0)
    raise ProviderUnavailableError(
        f"is not available: {reason or 'it gives no reason'}",
        where=f"plugin {info.name}",
        hint="its documentation says what it needs: credentials, a server, a setting",
    )


def settings_rows(activation: Activation) -> list[dict[str, Any]]:
    """Every field, what is known of it and where from; no value of a secret."""
    rows = []
    settings = activation.settings or Settings({}, {}, ())
    problems = {each.field.rpartition(".")[2]: each for each in settings.problems}
    for each in activation.fields:
        problem = problems.get(each.key)
        known = each.key in settings.values
        if not known and problem is None and not each.applies(settings.values):
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
