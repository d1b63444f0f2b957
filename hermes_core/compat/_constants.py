"""``hermes_constants``: where things are, for the home of whoever asks."""

from __future__ import annotations

import os
from contextlib import suppress
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Final

from hermes_core.home import default_home, resolve_home
from hermes_core.scope import current_home

__all__ = [
    "display_hermes_home",
    "get_config_path",
    "get_default_hermes_root",
    "get_env_path",
    "get_hermes_dir",
    "get_hermes_home",
    "get_hermes_home_override",
    "get_process_hermes_home",
    "get_skills_dir",
    "hermes_home_key",
    "reset_hermes_home_override",
    "set_hermes_home_override",
]

_OVERRIDE: Final[ContextVar[str | None]] = ContextVar("hermes_home_override", default=None)


def set_hermes_home_override(path: str | Path | None) -> Token[str | None]:
    """Have another home in this context, until it is reset."""
    return _OVERRIDE.set(None if path is None else str(path))


def reset_hermes_home_override(token: Token[str | None]) -> None:
    """Have the home again that was there before."""
    _OVERRIDE.reset(token)


def get_hermes_home_override() -> str | None:
    """The home that was set for this context, if one was."""
    return _OVERRIDE.get() or None


def get_hermes_home() -> Path:
    """The home for which the caller runs."""
    override = get_hermes_home_override()
    return Path(override) if override else current_home()


def get_process_hermes_home() -> Path:
    """The home that the process was started with."""
    return resolve_home()


def display_hermes_home() -> str:
    """The home as a person would write it."""
    home = get_hermes_home()
    with suppress(ValueError, RuntimeError):
        return f"~/{home.relative_to(Path.home()).as_posix()}"
    return str(home)


def get_default_hermes_root() -> Path:
    """The folder that has the profiles: a profile's home is ``<root>/profiles/<name>``."""
    home, native = get_hermes_home(), default_home()
    if home.resolve().is_relative_to(native.resolve()):
        return native
    return home.parent.parent if home.parent.name == "profiles" else home


def hermes_home_key(path: str | Path | None = None) -> str:
    """The same text for every spelling of one home."""
    home = Path(path) if path is not None else get_hermes_home()
    return os.path.normcase(home.expanduser().resolve())


def get_config_path() -> Path:
    """config.yaml."""
    return get_hermes_home() / "config.yaml"


def get_env_path() -> Path:
    """.env."""
    return get_hermes_home() / ".env"


def get_skills_dir() -> Path:
    """The folder of skills."""
    return get_hermes_home() / "skills"


def get_hermes_dir(new_subpath: str, old_name: str) -> Path:
    """A folder in the home: under its old name if there is something in that, else the new."""
    old = get_hermes_home() / old_name
    try:
        used = any(old.iterdir()) if old.is_dir() else old.exists()
    except OSError:
        used = True  # something is there
    return old if used else get_hermes_home() / new_subpath
