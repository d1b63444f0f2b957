"""Where a home stores what it remembers: in files, or in a database that config.yaml names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_core.config.config_file import load_config, namespace_of, storage_of
from hermes_core.errors import DatabaseError, SecretsError
from hermes_core.secrets import Secrets
from hermes_core.storage.address import PASSWORD, shown_address

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database


def home_database(home: Path, memory: Mapping[str, Any] | None = None) -> Database | None:
    """The database of a home, shared by all of this process; None if it stores to files.

    It is not connected yet: a server that is down is an error of whoever uses it.

    Args:
        home: The Hermes home.
        memory: The section ``memory`` of its config.yaml, if the caller has read it.

    Raises:
        ConfigError: config.yaml is not valid.
        DatabaseError: psycopg is not installed.
    """
    config = load_config(home, plugins=False) if memory is None else None
    section = config.memory if config is not None else memory or {}
    address = storage_of(section)
    if not address:
        return None
    is_default = not section.get("storage_namespace")
    return database_at(home, address, namespace_of(section, home), is_default=is_default)


def database_at(home: Path, address: str, namespace: str, *, is_default: bool = False) -> Database:
    """A namespace of the database at an address, with the password that the home has for it.

    Args:
        home: The Hermes home.
        address: Of the database.
        namespace: Whose rows are seen.
        is_default: Nobody chose it: if the login is bound to another one, that is used.

    Raises:
        DatabaseError: psycopg is not installed.
    """
    try:
        # Only here: without the setting, nothing of PostgreSQL is imported.
        from hermes_core.storage.postgres import (  # noqa: PLC0415
            known_database,
            shared_database,
        )
    except ImportError as error:
        raise DatabaseError(
            f"memory.storage needs a package that can't be imported: {error}",
            where=shown_address(address),
            hint="run: pip install 'hermes-plugins[postgres]'",
        ) from error
    late = _LatePassword(home)
    # Found out before, which took seconds: each part of the memory asks for the database.
    if (known := known_database(address, namespace, late, is_default=is_default)) is not None:
        return known
    password: str | _LatePassword
    try:
        password = late()
    except SecretsError:
        # The agent must still start. The thread that connects asks again, and gets the error.
        password = late
    return shared_database(address, namespace, password, is_default=is_default)


@dataclass(frozen=True, slots=True)
class _LatePassword:
    """The password of a home, from a keyring that could not be read."""

    home: Path

    def __call__(self) -> str:
        return _password(self.home)


def _password(home: Path) -> str:
    """The password that was set for us; "" leaves it to PGPASSWORD, PGPASSFILE and so on."""
    if value := os.environ.get(PASSWORD):
        return value
    secret = Secrets(home).get(PASSWORD)
    return secret.value if secret is not None else ""
