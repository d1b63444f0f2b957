"""The settings files of hermes-agent's plugin, under the names that settings have today."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hermes_core import ConfigError
from hermes_core.backends import read_own_file

CLOUD: Final = "cloud"
OWN_SERVER: Final = "local_external"
URLS: Final = {
    CLOUD: "https://api.hindsight.vectorize.io",
    OWN_SERVER: "http://localhost:8888",
}
_KEYS: Final = ("api_key", "server_key")
_MODE: Final = "HINDSIGHT_MODE"
_ADDRESS: Final = "HINDSIGHT_API_URL"


def own_file(home: Path) -> Path:
    """Where the settings of a home are."""
    return home / "hindsight" / "config.json"


def shared_file() -> Path:
    """The older file for all homes: it counts for a home that has none of its own."""
    return Path.home() / ".hindsight" / "config.json"


def in_files(home: Path) -> list[tuple[str, dict[str, Any]]]:
    """What files say, the first that says something first.

    Raises:
        ConfigError: The file that counts can't be read.
    """
    own, shared = own_file(home), shared_file()
    if own.exists():
        found = _today(read_own_file(own))
        told = [(str(own), found), (str(shared), _keys_for(found, shared))]
    else:
        told = [(str(shared), _today(read_own_file(shared)))]
    address = os.environ.get(_ADDRESS, "")
    if address and not os.environ.get(_MODE):
        told.append((f"environment ({_ADDRESS})", _implied({"api_url": address})))
    return [(place, values) for place, values in told if values]


def _today(found: Mapping[str, Any]) -> dict[str, Any]:
    """A file's settings, each under the name that it has today."""
    banks = found.get("banks")
    bank = banks.get("hermes") if isinstance(banks, Mapping) else None
    bank = bank if isinstance(bank, Mapping) else {}
    settings = _implied(found) | _set(found)
    key = found.get("apiKey") or found.get("api_key")
    older = {
        "bank_id": bank.get("bankId"),
        "recall_budget": found.get("budget") or bank.get("budget"),
        "recall_prefetch_method": found.get("prefetch_method"),
        **dict.fromkeys(_KEYS, key),
    }
    settings = _set(older) | settings
    # The key of one place is not for the other.
    other = {CLOUD: "server_key", OWN_SERVER: "api_key"}.get(str(settings.get("mode")))
    return {name: value for name, value in settings.items() if name != other}


def _implied(found: Mapping[str, Any]) -> dict[str, Any]:
    """hermes-agent needs no mode for a server of one's own: its address is enough."""
    address = str(found.get("api_url") or "").rstrip("/")
    is_own = address and address != URLS[CLOUD] and not found.get("mode")
    return {"mode": OWN_SERVER} if is_own else {}


def _keys_for(found: Mapping[str, Any], shared: Path) -> dict[str, Any]:
    """The shared file's key, if it is for the same place: set-up moves settings, not keys."""
    with suppress(ConfigError):
        rest = _today(read_own_file(shared))
        if _place(rest) == _place(found):
            return {name: rest[name] for name in _KEYS if name in rest}
    return {}


def _place(found: Mapping[str, Any]) -> tuple[str, str]:
    mode = str(found.get("mode") or CLOUD)
    return mode, str(found.get("api_url") or URLS.get(mode, "")).rstrip("/")


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "")}
