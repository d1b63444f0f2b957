"""Where things are: hermes_constants, hermes_cli.profiles and hermes_state."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hermes_core.dispatch.caller import current_home
from hermes_core.storage.home import default_home, resolve_home

#: By hermes-agent's module: the names that can be imported from it.
OFFERS: Final[dict[str, tuple[str, ...]]] = {
    "hermes_cli.profiles": (
        "ProfileInfo",
        "_get_default_hermes_home",
        "get_active_profile_name",
        "list_profiles",
    ),
    "hermes_constants": (
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
    ),
    "hermes_state": ("apply_wal_with_fallback",),
}


# -- hermes_constants: where things are, for the home of whoever asks

_OVERRIDE: Final[ContextVar[str | None]] = ContextVar("hermes_home_override", default=None)


def set_hermes_home_override(path: str | Path | None) -> Token[str | None]:
    """Use another home in this context, until it is reset."""
    return _OVERRIDE.set(None if path is None else str(path))


def reset_hermes_home_override(token: Token[str | None]) -> None:
    """Use the previous home again."""
    _OVERRIDE.reset(token)


def get_hermes_home_override() -> str | None:
    """Return the home that was set for this context, if one was."""
    return _OVERRIDE.get() or None


def get_hermes_home() -> Path:
    """Return the home for which the caller runs."""
    override = get_hermes_home_override()
    # The override is set by the plugin itself for one context, so it wins over the caller's home.
    return Path(override) if override else current_home()


def get_process_hermes_home() -> Path:
    """Return the home that the process was started with."""
    return resolve_home()


def display_hermes_home() -> str:
    """Return the home as a person would write it."""
    home = get_hermes_home()
    # ValueError: the home is not below ~; RuntimeError: the user has no home folder.
    with suppress(ValueError, RuntimeError):
        return f"~/{home.relative_to(Path.home()).as_posix()}"
    return str(home)


def get_default_hermes_root() -> Path:
    """Return the folder that has the profiles: a profile's home is ``<root>/profiles/<name>``."""
    home, native = get_hermes_home(), default_home()
    # Below ~/.hermes every folder is one of its profiles; elsewhere only the folder name
    # "profiles" shows that.
    if home.resolve().is_relative_to(native.resolve()):
        return native
    return home.parent.parent if home.parent.name == "profiles" else home


def hermes_home_key(path: str | Path | None = None) -> str:
    """Return the same text for every spelling of one home."""
    home = Path(path) if path is not None else get_hermes_home()
    # normcase: on Windows the same folder may be spelt in upper and lower case.
    return os.path.normcase(home.expanduser().resolve())


def get_config_path() -> Path:
    """Return the path of config.yaml."""
    return get_hermes_home() / "config.yaml"


def get_env_path() -> Path:
    """Return the path of ``.env``."""
    return get_hermes_home() / ".env"


def get_skills_dir() -> Path:
    """Return the folder of skills."""
    return get_hermes_home() / "skills"


def get_hermes_dir(new_subpath: str, old_name: str, *, home: Path | None = None) -> Path:
    """Return a folder in a home: under its old name if there is something in that, else the new."""
    place = get_hermes_home() if home is None else home
    old = place / old_name
    try:
        used = any(old.iterdir()) if old.is_dir() else old.exists()
    except OSError:
        used = True  # something is there
    return old if used else place / new_subpath


# -- hermes_cli.profiles: which profiles there are, and which one the home is

# hermes-agent's rule for names of profiles; other folders there are not profiles.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass
class ProfileInfo:
    """A profile. No gateway runs here, and models and distributions are not known."""

    name: str
    path: Path
    is_default: bool
    gateway_running: bool
    model: str | None = None
    provider: str | None = None
    has_env: bool = False
    skill_count: int = 0
    alias_path: Path | None = None
    alias_name: str | None = None
    distribution_name: str | None = None
    distribution_version: str | None = None
    distribution_source: str | None = None
    description: str = ""
    description_auto: bool = False


def get_active_profile_name() -> str:
    """Return the profile's name; "default" for the home that has the profiles."""
    home, root = get_hermes_home().resolve(), get_default_hermes_root().resolve()
    if home == default_home().resolve():
        return "default"
    return home.name if home.parent == root / "profiles" else "custom"


def _get_default_hermes_home() -> Path:
    """Return the home that has the profiles."""
    return get_default_hermes_root()


def list_profiles() -> list[ProfileInfo]:
    """Return all profiles, the default first."""
    return [
        ProfileInfo(
            name,
            home,
            is_default=name == "default",
            gateway_running=False,
            has_env=(home / ".env").exists(),
            skill_count=sum(1 for _ in home.glob("skills/**/SKILL.md")),
        )
        for name, home in _homes()
    ]


def _homes() -> Iterator[tuple[str, Path]]:
    root = get_default_hermes_root()
    if root.is_dir():
        yield "default", root
    for home in sorted(root.glob("profiles/*/")):
        if home.name != "default" and _NAME.fullmatch(home.name):
            yield home.name, home


# -- hermes_state: how a database is opened so that several processes may use it

#: What SQLite says where a write-ahead log can't work: network file systems, some of FUSE, ZFS.
_CANT: Final = ("locking protocol", "not authorized", "disk i/o error")


def apply_wal_with_fallback(
    conn: sqlite3.Connection, *, db_label: str = "state.db", require_wal: bool = False
) -> str:
    """Give a database a write-ahead log, or a rollback journal where that can't work.

    Args:
        conn: The database.
        db_label: Its name in the log.
        require_wal: Raise instead of falling back.

    Returns:
        ``wal`` or ``delete``.

    Raises:
        sqlite3.OperationalError: Neither works, or something else is wrong.
    """
    try:
        mode = str(conn.execute("PRAGMA journal_mode=WAL").fetchone()[0]).lower()
    except sqlite3.OperationalError as error:
        # Any other error, such as a locked database, must not silently change the journal mode.
        if require_wal or not any(text in str(error).lower() for text in _CANT):
            raise
        logging.getLogger("hermes_core").warning(
            "%s: no write-ahead log here (%s); a rollback journal is used", db_label, error
        )
        conn.execute("PRAGMA journal_mode=DELETE")
        return "delete"
    # SQLite does not raise where WAL is impossible, for example in memory: it returns the old
    # mode.
    if require_wal and mode != "wal":
        raise sqlite3.OperationalError(f"{db_label}: no write-ahead log, the journal is {mode}")
    return "wal" if mode == "wal" else "delete"
