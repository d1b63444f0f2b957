"""Settings and secrets: hermes_cli.config and agent.secret_scope.

config.yaml and secrets are read and written by our own code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar, Token
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from hermes_core.config.document import parse_document, read_document, read_text
from hermes_core.config.editor import change_config
from hermes_core.dispatch.caller import CALLER
from hermes_core.errors import ConfigError, SecretsError
from hermes_core.loading.compat._files import differences
from hermes_core.loading.compat.home import (  # noqa: F401 - offered
    get_config_path,
    get_env_path,
    get_hermes_home,
)
from hermes_core.secrets import BACKENDS, Secrets
from hermes_core.storage.home import ensure_folder

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "agent.secret_scope": (
        "UnscopedSecretError",
        "build_profile_secret_scope",
        "current_secret_scope",
        "get_secret",
        "is_multiplex_active",
        "reset_secret_scope",
        "set_secret_scope",
    ),
    "hermes_cli.config": (
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
        "read_user_config_raw",
        "remove_env_value",
        "save_config",
        "save_env_value",
        "save_env_value_secure",
    ),
}


# -- hermes_cli.config: config.yaml and secrets, read and written by our own code


def cfg_get(cfg: dict[str, Any] | None, *keys: str, default: Any = None) -> Any:
    """Return what a nested dict has at ``keys``; the default where one of them is missing."""
    found: Any = cfg
    for key in keys or ():
        if not isinstance(found, dict) or key not in found:
            return default
        found = found[key]
    # Without keys `found` is the mapping itself, which may be None.
    return found if isinstance(cfg, dict) else default


def load_config() -> dict[str, Any]:
    """Return what config.yaml says; {} if it is empty or invalid."""
    try:
        # A copy: hermes-agent's function returns one that plugins change before they save it.
        return deepcopy(dict(read_document(get_hermes_home()).data))
    except ConfigError:  # a manager reports it, with the line
        return {}


def load_config_readonly() -> dict[str, Any]:
    """Return what config.yaml says, for reading only."""
    return load_config()


def read_raw_config() -> dict[str, Any]:
    """Return what config.yaml says. We add no defaults to it, so it is always raw."""
    return load_config()


def read_user_config_raw(config_path: Path | None = None) -> dict[str, Any]:
    """Return what a config.yaml says; by default the home's.

    Raises:
        ConfigError: It can't be read or parsed. A caller that writes it back would lose it.
    """
    path = get_config_path() if config_path is None else Path(config_path)
    return deepcopy(dict(parse_document(path, read_text(path)).data))


def save_config(
    config: dict[str, Any],
    *,
    strip_defaults: bool = True,  # noqa: ARG001 - `load_config` returns none
    preserve_keys: set[tuple[str, ...]] | None = None,  # noqa: ARG001 - as that
    merge_existing: bool = False,
) -> None:
    """Change config.yaml to what ``config`` says; every line that says the same stays.

    Raises:
        ConfigError: It can't be changed without touching other parts, or would not be valid.
    """
    home = get_hermes_home()
    before = read_document(home).data
    # Differences and not the whole mapping: comments and the order of keys survive.
    change_config(home, dict(differences(before, config, merge=merge_existing)), valid=True)


def ensure_hermes_home() -> None:
    """Create the home if it does not exist."""
    ensure_folder(get_hermes_home())


def _secrets() -> Secrets:
    section = load_config().get("secrets")
    # Read without validation: a plugin has to find its key even while config.yaml has an error
    # elsewhere.
    backend = str(section.get("backend")) if isinstance(section, dict) else ""
    return Secrets(get_hermes_home(), backend if backend in BACKENDS else "auto")


def _may_read(key: str) -> bool:
    """Whether the plugin that asks may have a variable; see `hermes_core.config.grants`."""
    # A thread that the plugin started belongs to no call, and has to find the plugin's key too.
    caller = CALLER.get(None)
    return caller is None or caller.may_read(key)


def load_env() -> dict[str, str]:
    """Return what ``.env`` has for this plugin."""
    return {key: value for key, value in _secrets().env_file.read().items() if _may_read(key)}


def _stored(key: str) -> str | None:
    if not _may_read(key):
        return None
    try:
        found = _secrets().get(key)
    except SecretsError:  # not a valid name, or a keyring that does not answer
        return None
    return None if found is None else found.value


def get_env_value(key: str) -> str | None:
    """Return a variable: the process's own, else what is stored for the home."""
    # `in`, not a truth test: a variable that is set to "" hides a stored value.
    return os.environ[key] if key in os.environ else _stored(key)


def get_env_value_prefer_dotenv(key: str) -> str | None:
    """Return a variable: what is stored for the home, else the process's own."""
    return _stored(key) or os.environ.get(key)


def save_env_value(key: str, value: str) -> None:
    """Store a secret where the home's secrets are."""
    secrets = _secrets()
    caller = CALLER.get(None)
    # A plugin stores what a person typed for it. What was there before does not become its own.
    known = key in secrets.index.read() or key in secrets.env_file.read()
    provider = caller.name if caller is not None and not known else ""
    # hermes-agent removes line breaks: a value that is pasted often ends with one.
    secrets.set(key, value.replace("\n", "").replace("\r", ""), provider)


def save_env_value_secure(key: str, value: str) -> dict[str, Any]:
    """Store a secret; return hermes-agent's confirmation."""
    save_env_value(key, value)
    return {"success": True, "stored_as": key, "validated": False}


def remove_env_value(key: str) -> bool:
    """Remove a secret; whether there was one."""
    return _secrets().delete(key)


def env_file(home: Path) -> dict[str, str]:
    """Return what the ``.env`` of some home has for this plugin."""
    read = Secrets(home, "dotenv").env_file.read()
    return {key: value for key, value in read.items() if _may_read(key)}


# -- agent.secret_scope: a provider's secrets, by the name of their variable

# A ContextVar, since the manager calls providers of several homes on several threads.
_SCOPE: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("secret_scope", default=None)


class UnscopedSecretError(RuntimeError):
    """Never raised here: every call has the home of its manager."""


def get_secret(name: str, default: str | None = None) -> str | None:
    """Return a secret of the scope, if it has it, else of the process or the home."""
    found = (_SCOPE.get() or {}).get(name)
    found = get_env_value(name) if found is None else found
    return default if found is None else found


def current_secret_scope() -> Mapping[str, str] | None:
    """Return the secrets that override others in this context; None if none were set."""
    return _SCOPE.get()


def set_secret_scope(secrets: Mapping[str, str] | None) -> Token[Mapping[str, str] | None]:
    """Let these secrets override others in this context, until it is reset."""
    return _SCOPE.set(secrets)


def reset_secret_scope(token: Token[Mapping[str, str] | None]) -> None:
    """Use the previous scope again."""
    _SCOPE.reset(token)


def is_multiplex_active() -> bool:
    """Return whether secrets may only be read in a scope; a call's home is enough here."""
    return False


def build_profile_secret_scope(hermes_home: Path) -> dict[str, str]:
    """Return what the ``.env`` of a home has."""
    return env_file(Path(hermes_home))
