"""``hermes_cli.config``: config.yaml and secrets, read and written by our own code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from hermes_core.compat._constants import get_config_path, get_env_path, get_hermes_home
from hermes_core.config._yaml import read_document
from hermes_core.config.writing import DELETE, change_config
from hermes_core.errors import ConfigError, SecretsError
from hermes_core.home import ensure_folder
from hermes_core.secrets import BACKENDS, Secrets

__all__ = [
    "cfg_get",
    "ensure_hermes_home",
    "get_config_path",
    "get_env_path",
    "get_env_value",
    "get_env_value_prefer_dotenv",
    "get_hermes_home",
    "load_config",
    "load_config_readonly",
    "load_env",
    "read_raw_config",
    "remove_env_value",
    "save_config",
    "save_env_value",
    "save_env_value_secure",
]


def cfg_get(cfg: dict[str, Any] | None, *keys: str, default: Any = None) -> Any:
    """What a nested dict has at ``keys``; the default where one of them is missing."""
    found: Any = cfg
    for key in keys or ():
        if not isinstance(found, dict) or key not in found:
            return default
        found = found[key]
    return found if isinstance(cfg, dict) else default


def load_config() -> dict[str, Any]:
    """What config.yaml says; {} if it says nothing, or can't be understood."""
    try:
        return deepcopy(dict(read_document(get_hermes_home()).data))
    except ConfigError:  # a manager tells of it, with the line
        return {}


def load_config_readonly() -> dict[str, Any]:
    """What config.yaml says, for who only looks."""
    return load_config()


def read_raw_config() -> dict[str, Any]:
    """What config.yaml says. We add no defaults to it, so it is always raw."""
    return load_config()


def save_config(
    config: dict[str, Any],
    *,
    strip_defaults: bool = True,  # noqa: ARG001 - there are none in what `load_config` gives
    preserve_keys: set[tuple[str, ...]] | None = None,  # noqa: ARG001 - as that
    merge_existing: bool = False,
) -> None:
    """Change config.yaml to what ``config`` says; every line that says the same stays.

    Raises:
        ConfigError: It can't be changed without touching other parts, or would not be valid.
    """
    home = get_hermes_home()
    before = read_document(home).data
    change_config(home, dict(_changes(before, config, merge=merge_existing)), valid=True)


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], *, merge: bool, at: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What differs, as deep down as can be."""
    for key, value in after.items():
        keys, old = (*at, str(key)), before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and old:
            yield from _changes(old, value, merge=merge, at=keys)
        elif key not in before or old != value:
            yield keys, value
    for key in before:
        if key not in after and not merge:
            yield (*at, str(key)), DELETE


def ensure_hermes_home() -> None:
    """Make the home, if it is not there."""
    ensure_folder(get_hermes_home())


def _secrets() -> Secrets:
    section = load_config().get("secrets")
    backend = str(section.get("backend")) if isinstance(section, dict) else ""
    return Secrets(get_hermes_home(), backend if backend in BACKENDS else "auto")


def load_env() -> dict[str, str]:
    """What ``.env`` has."""
    return dict(_secrets().env_file.read())


def _stored(key: str) -> str | None:
    try:
        found = _secrets().get(key)
    except SecretsError:  # no name of a variable, or a keyring that does not answer
        return None
    return None if found is None else found.value


def get_env_value(key: str) -> str | None:
    """A variable: the process's own, else what is stored for the home."""
    return os.environ[key] if key in os.environ else _stored(key)


def get_env_value_prefer_dotenv(key: str) -> str | None:
    """A variable: what is stored for the home, else the process's own."""
    return _stored(key) or os.environ.get(key)


def save_env_value(key: str, value: str) -> None:
    """Store a secret where the home's secrets are."""
    _secrets().set(key, value.replace("\n", "").replace("\r", ""))


def save_env_value_secure(key: str, value: str) -> dict[str, Any]:
    """Store a secret, and say so."""
    save_env_value(key, value)
    return {"success": True, "stored_as": key, "validated": False}


def remove_env_value(key: str) -> bool:
    """Remove a secret; whether there was one."""
    return _secrets().delete(key)


def env_file(home: Path) -> dict[str, str]:
    """What the ``.env`` of some home has."""
    return dict(Secrets(home, "dotenv").env_file.read())
