"""Memory providers: plugins.memory with config_schema and query_rewrite.

The providers are those that we find, load and guard.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from hermes_core.config import Config, Selection, load_config, read_selection
from hermes_core.config.names import normalise
from hermes_core.discovery import ProviderInfo, scan
from hermes_core.dispatch.worker import as_exception
from hermes_core.errors import HermesError, describe
from hermes_core.loading.activation import deadlines_of, require_available
from hermes_core.loading.compat._plugins import resolve_module_origin
from hermes_core.loading.compat.home import get_hermes_home
from hermes_core.loading.loader import load
from hermes_core.loading.modules import import_directory, package_name
from hermes_core.provider import BUILTIN, MemoryProvider
from hermes_core.storage.logger import logger

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "plugins.memory": (
        "ENTRY_POINTS_GROUP",
        "discover_memory_providers",
        "discover_plugin_cli_commands",
        "find_provider_dir",
        "find_provider_entry_point",
        "list_memory_provider_names",
        "load_memory_provider",
    ),
    "plugins.memory.config_schema": (
        "KIND_BOOL",
        "KIND_JSON",
        "KIND_NUMBER",
        "KIND_SECRET",
        "KIND_SELECT",
        "KIND_TEXT",
        "STORAGE_FLAT_JSON",
        "STORAGE_HONCHO_HOST_BLOCK",
        "ProviderConfigSchema",
        "ProviderField",
        "ProviderFieldOption",
        "get_provider_config_schema",
    ),
    "plugins.memory.query_rewrite": ("TASK_KEY", "rewrite_memory_query"),
}


# -- plugins.memory: which memory providers there are. Those that we find, load and guard

ENTRY_POINTS_GROUP: Final = "hermes_agent.memory_providers"


def load_memory_provider(
    name: str,
    *,
    register_skills: bool | None = None,  # noqa: ARG001 - skills are not used here
) -> MemoryProvider | None:
    """Return the provider of that name; None if there is none, or it can't be loaded.

    Args:
        name: Its name.
        register_skills: Makes no difference here: skills of plugins are never registered.
    """
    info = _found(name)
    return None if info is None else _loaded(info)


def discover_memory_providers() -> list[tuple[str, str, bool]]:
    """Return all external providers: name, description, and whether it says that it can work."""
    return [(each.name, each.description, _is_available(each)) for each in _providers()]


def list_memory_provider_names() -> list[str]:
    """Return the names of all external providers; nothing is imported for it."""
    return sorted(each.name for each in _providers())


def find_provider_dir(name: str) -> Path | None:
    """Return the folder with a provider's files; nothing is imported for it."""
    info = _found(name)
    if info is None or info.directory is not None:
        return None if info is None else info.directory
    origin = resolve_module_origin(_module(info))
    # A single module has no folder: the one around it has other packages' files.
    return Path(origin).parent if origin and Path(origin).name == "__init__.py" else None


def find_provider_entry_point(name: str) -> EntryPoint | None:
    """Return the entry point by which a distribution offers a provider of that name."""
    # The standard library's class, which is what hermes-agent returns.
    return next(iter(entry_points(group=ENTRY_POINTS_GROUP, name=name)), None)


def discover_plugin_cli_commands() -> list[dict[str, Any]]:
    """Return the command of the active provider, from the ``register_cli`` of its cli.py.

    Returns:
        At most one: its name, help, description, setup_fn, handler_fn and plugin.
    """
    info = next((each for each in _providers() if each.active), None)
    folder = None if info is None else find_provider_dir(info.name)
    if info is None or folder is None or not (folder / "cli.py").is_file():
        return []
    try:
        module = _cli_of(info)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin's own code
        cause = describe(as_exception(error))
        logger.warning("plugin %s: its cli.py can't be imported: %s", info.name, cause)
        return []
    register = getattr(module, "register_cli", None)
    return [_command(info, module, register)] if callable(register) else []


def _command(info: ProviderInfo, module: ModuleType, register: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "help": info.description or f"Manage the memory plugin {info.name}",
        "description": info.description,
        "setup_fn": register,
        # The second name is for copies of honcho, as in hermes-agent.
        "handler_fn": getattr(module, f"{info.name}_command", None)
        or getattr(module, "honcho_command", None),
        "plugin": info.name,
    }


def _cli_of(info: ProviderInfo) -> ModuleType:
    if info.directory is None:
        return importlib.import_module(f"{_module(info)}.cli")
    try:
        package: ModuleType = import_directory(info.directory, info.location)
    except (Exception, SystemExit):  # noqa: BLE001 - the plugin's own code
        package = _bare_package(info.directory)
    return importlib.import_module(f"{package.__name__}.cli")


def _bare_package(folder: Path) -> ModuleType:
    """Return a package with a plugin's modules, whose ``__init__.py`` is not run.

    A plugin that can't be imported may still have the command that sets it up.
    """
    package = ModuleType(f"{package_name(folder)}_bare")
    package.__path__ = [str(folder)]
    # In sys.modules, or `import_module` of "<package>.cli" does not find its parent.
    return sys.modules.setdefault(package.__name__, package)


def _module(info: ProviderInfo) -> str:
    return info.entry_point.partition("[")[0].partition(":")[0].strip()


def _providers() -> list[ProviderInfo]:
    """One of each name: the active one, else a directory, as in hermes-agent."""
    home = get_hermes_home()
    try:
        selection = read_selection(home)
    except HermesError:  # a config.yaml that can't be read selects no provider
        selection = Selection()
    found = [
        each
        for each in scan(home, selection, everything=True)
        if each.source != BUILTIN and each.loadable and each.state != "no-provider"
    ]
    # Stable: among equals the order of the scan stays.
    found.sort(key=lambda each: (not each.active, each.source != "directory"))
    first: dict[str, ProviderInfo] = {}
    for each in found:
        first.setdefault(each.key, each)
    return sorted(first.values(), key=lambda each: each.name)


def _found(name: str) -> ProviderInfo | None:
    return next((each for each in _providers() if each.is_called(name)), None)


def _loaded(info: ProviderInfo) -> MemoryProvider | None:
    try:
        home = get_hermes_home()
        selection = read_selection(home)
        pin = selection.strict_hash if info.key == normalise(selection.name) else ""
        return load(info, home, pin=pin).provider
    except HermesError as error:
        logger.warning("%s", error)
        return None


def _is_available(info: ProviderInfo) -> bool:
    provider = _loaded(info)
    if provider is None:
        return False
    try:
        require_available(info, provider, deadlines_of(_config()))
    except HermesError:
        return False
    return True


def _config() -> Config:
    home = get_hermes_home()
    try:
        return load_config(home)
    except HermesError:
        # Defaults: a listing of providers has to work with an invalid config.yaml too.
        return Config(home)


# -- plugins.memory.config_schema: a provider's settings as data, for a form

KIND_TEXT: Final = "text"
KIND_SELECT: Final = "select"
KIND_SECRET: Final = "secret"  # noqa: S105 - a kind of field
KIND_BOOL: Final = "bool"
KIND_NUMBER: Final = "number"
KIND_JSON: Final = "json"

STORAGE_FLAT_JSON: Final = "flat_json"
STORAGE_HONCHO_HOST_BLOCK: Final = "honcho_host_block"


@dataclass(frozen=True)
class ProviderFieldOption:
    """One of the values that a field may have."""

    value: str
    label: str
    description: str = ""


@dataclass(frozen=True)
class ProviderField:
    """One setting; a secret one is stored under the variable ``env_key``."""

    key: str
    label: str
    kind: str = KIND_TEXT
    default: str = ""
    description: str = ""
    placeholder: str = ""
    options: tuple[ProviderFieldOption, ...] = ()
    env_key: str | None = None
    aliases: tuple[str, ...] = ()
    env_fallbacks: tuple[str, ...] = ()
    inline: bool = False
    group: str = ""
    info: str = ""
    scope: str = "host"

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.kind == KIND_SECRET

    def allowed_values(self) -> set[str]:
        """Return the values of its options."""
        return {option.value for option in self.options}


@dataclass(frozen=True)
class ProviderConfigSchema:
    """All settings of a provider, and where it stores them."""

    name: str
    label: str
    storage: str = STORAGE_FLAT_JSON
    docs_url: str = ""
    fields: tuple[ProviderField, ...] = ()

    def inline_fields(self) -> tuple[ProviderField, ...]:
        """Return the settings that a short form shows."""
        return tuple(each for each in self.fields if each.inline)


def get_provider_config_schema(name: str) -> Any:
    """Return the ``CONFIG_SCHEMA`` in a provider's config_schema.py; None if it has none.

    That file alone is run, not the provider.
    """
    folder = find_provider_dir(name)
    path = folder / "config_schema.py" if folder is not None else None
    if path is None or not path.is_file():
        return None
    try:
        return _schema_in(path, name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the plugin's own code
        cause = describe(as_exception(error))
        logging.getLogger("hermes_core").warning("%s can't be run: %s", path, cause)
        return None


def _schema_in(path: Path, name: str) -> Any:
    # Not added to sys.modules: only its value is needed, and two homes may differ.
    spec = importlib.util.spec_from_file_location(f"_hermes_config_schema_{name}", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "CONFIG_SCHEMA", None)


# -- plugins.memory.query_rewrite: questions to a memory, put in better words by a model

TASK_KEY: Final = "memory_query_rewrite"


def rewrite_memory_query(user_message: str) -> str:  # noqa: ARG001 - there is no model to ask
    """Return the rewritten question: always "", which means that the message is asked as it is."""
    return ""
