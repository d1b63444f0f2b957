"""``agent.secret_scope``: a provider's secrets, by the name of their variable."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from pathlib import Path
from typing import Final

from hermes_core.compat._config import env_file, get_env_value

__all__ = [
    "UnscopedSecretError",
    "build_profile_secret_scope",
    "current_secret_scope",
    "get_secret",
    "is_multiplex_active",
    "reset_secret_scope",
    "set_secret_scope",
]

_SCOPE: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("secret_scope", default=None)


class UnscopedSecretError(RuntimeError):
    """Never raised here: every call has the home of its manager."""


def get_secret(name: str, default: str | None = None) -> str | None:
    """A secret of the scope, if one is set, else of the process or the home."""
    scope = _SCOPE.get()
    found = get_env_value(name) if scope is None else scope.get(name)
    return default if found is None else found


def current_secret_scope() -> Mapping[str, str] | None:
    """The secrets that count alone in this context, if that was said."""
    return _SCOPE.get()


def set_secret_scope(secrets: Mapping[str, str] | None) -> Token[Mapping[str, str] | None]:
    """Let these secrets count alone in this context, until it is reset."""
    return _SCOPE.set(secrets)


def reset_secret_scope(token: Token[Mapping[str, str] | None]) -> None:
    """Have the scope again that was there before."""
    _SCOPE.reset(token)


def is_multiplex_active() -> bool:
    """Whether secrets may only be read in a scope; a call's home is enough here."""
    return False


def build_profile_secret_scope(hermes_home: Path) -> dict[str, str]:
    """What the ``.env`` of a home has."""
    return env_file(Path(hermes_home))
