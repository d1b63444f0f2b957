"""Secrets of providers, in the OS keyring or in ``.env``; and the index of their names."""

from __future__ import annotations

from hermes_core.secrets._files import Store
from hermes_core.secrets.env_file import (
    MAX_VALUE_BYTES,
    EnvFile,
    check_name,
    check_value,
    is_alike_in_a_shell,
)
from hermes_core.secrets.store import BACKENDS, Choice, Name, Secret, Secrets, StoredSecret

# `cli` and `config` use these. Plugins get their secrets through settings and variables, never from
# this package.
__all__ = [
    "BACKENDS",
    "MAX_VALUE_BYTES",
    "Choice",
    "EnvFile",
    "Name",
    "Secret",
    "Secrets",
    "Store",
    "StoredSecret",
    "check_name",
    "check_value",
    "is_alike_in_a_shell",
]
