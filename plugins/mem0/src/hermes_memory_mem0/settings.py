"""The plugin's settings, from wherever a host or a person has put them.

Our host hands over checked values. hermes-agent hands over nothing: there it is
``$HERMES_HOME/mem0.json`` over the variables ``MEM0_*``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core import ConfigError
from hermes_core.backends import read_own_file
from hermes_memory_mem0.engine_config import Engine, engine_config
from hermes_memory_mem0.fields import CLOUD, FIELDS, OSS, PLATFORM, SELF_HOSTED

FILE: Final = "mem0.json"

#: What hermes-agent's set-up writes where a person said nothing.
_UNSET_USER: Final = "hermes-user"
_YES: Final = frozenset({"true", "1", "yes", "on"})


class Settings(NamedTuple):
    """Ready to use. ``address`` is where the platform or the server is."""

    mode: str
    key: str
    address: str
    user_id: str
    agent_id: str
    rerank: bool
    timeout: float
    recall_timeout: float
    recall_limit: int
    turn_max_chars: int
    telemetry: bool
    engine: Engine

    @property
    def missing(self) -> str:
        """What has to be set before it can work; "" if nothing has."""
        if self.mode == PLATFORM and not self.key:
            return "set MEM0_API_KEY, or run: hermes-plugins setup mem0"
        if self.mode == SELF_HOSTED and not self.address:
            return "set MEM0_HOST to the address of your Mem0 server"
        if self.mode == OSS:
            return self.engine.missing
        return ""


def read_settings(home: Path, config: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a home.

    Args:
        home: HERMES_HOME.
        config: What the host has checked; it counts more than anything found here.

    Raises:
        ConfigError: mem0.json can't be read, or a value makes no sense.
    """
    path = home / FILE
    found = {**_variables(), **_said(read_own_file(path)), **_said(config or {})}
    mode = _mode(found, path)
    user = str(found.get("user_id") or "")
    return Settings(
        mode=mode,
        key=_key(mode, found),
        address=_address(mode, found),
        user_id="" if user == _UNSET_USER else user,
        agent_id=str(found.get("agent_id") or "hermes"),
        rerank=_flag(found.get("rerank")),
        timeout=_number(found, "timeout", 60.0, path),
        recall_timeout=_number(found, "recall_timeout", 3.0, path),
        recall_limit=int(_number(found, "recall_limit", 10, path)),
        turn_max_chars=int(_number(found, "turn_max_chars", 20_000, path)),
        telemetry=_flag(found.get("telemetry")),
        engine=engine_config(found, home),
    )


def kept(values: Mapping[str, Any]) -> dict[str, Any]:
    """What mem0.json is told of a set-up: no secret; an answer of a mode that was left goes."""
    secret = {each["key"] for each in FIELDS if each.get("secret")}
    plain = {key: value for key, value in values.items() if key not in secret}
    return {**{each["key"]: None for each in FIELDS if each["key"] not in secret}, **plain}


def _variables() -> dict[str, Any]:
    """What the environment says."""
    return _said({each["key"]: os.environ.get(each["env_var"]) for each in FIELDS})


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None and value != ""}


def _mode(found: Mapping[str, Any], path: Path) -> str:
    """As hermes-agent chooses: oss goes first, then whoever names a server means it."""
    mode = str(found.get("mode") or PLATFORM).lower()
    mode = SELF_HOSTED if mode == "selfhosted" else mode
    if mode not in (PLATFORM, SELF_HOSTED, OSS):
        raise ConfigError(f"there is no mode {mode!r}", where=str(path))
    return SELF_HOSTED if mode == PLATFORM and found.get("host") else mode


def _key(mode: str, found: Mapping[str, Any]) -> str:
    own = found.get("server_key") if mode == SELF_HOSTED else None
    return str(own or found.get("api_key") or "")


def _address(mode: str, found: Mapping[str, Any]) -> str:
    address = found.get("host") if mode == SELF_HOSTED else found.get("platform_url") or CLOUD
    return str(address or "").rstrip("/")


def _flag(value: Any) -> bool:
    return value.lower() in _YES if isinstance(value, str) else bool(value)


def _number(found: Mapping[str, Any], key: str, default: float, path: Path) -> float:
    try:
        number = float(found.get(key, default))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} is no number", where=str(path)) from error
    if not 0 <= number < float("inf"):
        raise ConfigError(f"{key} is no number that makes sense", where=str(path))
    return number
