"""What can be set, under the names that hermes-agent has for it, and what it is if nobody says."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

from hermes_core import ConfigError
from hermes_core.backends import Start
from hermes_memory_hindsight.files import CLOUD, OWN_SERVER, URLS, in_files

EMBEDDED: Final = ("local_embedded", "local")
NOT_EMBEDDED: Final = (
    "pip install hindsight-api-slim, start hindsight-api yourself, and set mode to "
    "local_external and api_url to its address"
)
#: Every kind of memory. Where an observation says what raw facts say, the server leaves those out.
TYPES: Final = ("observation", "world", "experience")
#: Hosts give a write 120 seconds, a tool 60. An error of ours is better than one of theirs.
_LONGEST_TIMEOUT: Final = 110.0
_SCOPES: Final = ("per_tag", "combined", "all_combinations", "shared")


Match: TypeAlias = Literal["any", "all", "any_strict", "all_strict", "exact"]


class Settings(NamedTuple):
    """The settings of a session."""

    mode: str = CLOUD
    api_url: str = URLS[CLOUD]
    api_key: str = ""
    bank_id: str = ""
    bank_id_template: str = ""
    bank_mission: str = ""
    bank_retain_mission: str = ""
    recall_budget: str = "mid"
    memory_mode: str = "hybrid"
    recall_prefetch_method: str = "recall"
    retain_tags: tuple[str, ...] = ()
    observation_scopes: str | list[list[str]] | None = None
    retain_source: str = ""
    retain_user_prefix: str = "User"
    retain_assistant_prefix: str = "Assistant"
    recall_tags: tuple[str, ...] = ()
    recall_tags_match: Match = "any"
    recall_types: tuple[str, ...] = TYPES
    auto_recall: bool = True
    auto_retain: bool = True
    retain_every_n_turns: int = 1
    retain_async: bool = False
    retain_context: str = "conversation between an agent and its user"
    recall_max_tokens: int = 4096
    recall_max_input_chars: int = 800
    recall_prompt_preamble: str = ""
    timeout: float = 50.0

    @classmethod
    def read(cls, start: Start) -> Self:
        """What a host that reads settings gave; else what hermes-agent's own plugin would read.

        Raises:
            ConfigError: They can't work.
        """
        try:
            return cls._of(_given(start))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"a setting can't be understood: {error}", where="hindsight"
            ) from error

    @classmethod
    def _of(cls, given: Mapping[str, Any]) -> Self:
        mode = str(given.get("mode", CLOUD))
        key = given.get("server_key") or given.get("api_key", "")
        known = {name: given[name] for name in cls._fields if name in given}
        raw = cls(**{"api_url": URLS.get(mode, ""), **known, "mode": mode, "api_key": key})
        raw._check()
        return raw._replace(
            api_url=raw.api_url.rstrip("/"),
            retain_tags=_names(raw.retain_tags),
            recall_tags=_names(raw.recall_tags),
            recall_types=_names(raw.recall_types) or TYPES,
            observation_scopes=_scopes(raw.observation_scopes),
            recall_max_tokens=int(raw.recall_max_tokens),
            recall_max_input_chars=int(raw.recall_max_input_chars),
            auto_recall=_is_on(raw.auto_recall),
            auto_retain=_is_on(raw.auto_retain),
            retain_async=_is_on(raw.retain_async),
            timeout=min(float(raw.timeout), _LONGEST_TIMEOUT),
        )

    def _check(self) -> None:
        if self.mode in EMBEDDED:
            raise ConfigError(
                f"mode {self.mode} runs a server inside the agent, which this plugin does not do",
                where="hindsight",
                hint=NOT_EMBEDDED,
            )
        if self.mode not in URLS:
            raise ConfigError(
                f"mode {self.mode!r} is not known",
                where="hindsight",
                hint=f"it is one of {', '.join(URLS)}",
            )
        if not str(self.api_key).isprintable():
            raise ConfigError(
                "the key has a line break or another character that no key has",
                where="hindsight",
                hint="set it anew: hermes-plugins secrets set HINDSIGHT_API_KEY",
            )
        address = urlsplit(self.api_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                f"api_url {self.api_url!r} is not the address of a server",
                where="hindsight",
                hint=f"it looks like {URLS[OWN_SERVER]}",
            )


def _given(start: Start) -> dict[str, Any]:
    """What was set, by whoever. A host that reads settings has read files and variables."""
    if start.config:
        return _set(start.config)
    given = _set({name: os.environ.get(variable) for name, variable in VARIABLES.items()})
    for _, told in reversed(in_files(start.home)):
        given |= _set(told)
    return given


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "")}


def _names(value: Any) -> tuple[str, ...]:
    """Names, each once: a list, or a text with commas between, or JSON."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
    return tuple(dict.fromkeys(name for each in value if (name := str(each).strip())))


def _scopes(value: Any) -> str | list[list[str]] | None:
    """How observations are scoped: a keyword, or lists of tags; None leaves it to the server."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else [value]
    scopes = list(value or ())
    if len(scopes) == 1 and scopes[0] in _SCOPES:
        return str(scopes[0])
    if all(isinstance(each, str) for each in scopes):
        return [list(_names(scopes))] if scopes else None
    return [list(_names(each)) for each in scopes]


def _is_on(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "on", "1")


#: The variables of hermes-agent's plugin.
VARIABLES: Final = {
    "mode": "HINDSIGHT_MODE",
    "api_url": "HINDSIGHT_API_URL",
    "api_key": "HINDSIGHT_API_KEY",
    "bank_id": "HINDSIGHT_BANK_ID",
    "recall_budget": "HINDSIGHT_BUDGET",
    "timeout": "HINDSIGHT_TIMEOUT",
    "retain_tags": "HINDSIGHT_RETAIN_TAGS",
    "observation_scopes": "HINDSIGHT_RETAIN_OBSERVATION_SCOPES",
    "retain_source": "HINDSIGHT_RETAIN_SOURCE",
    "retain_user_prefix": "HINDSIGHT_RETAIN_USER_PREFIX",
    "retain_assistant_prefix": "HINDSIGHT_RETAIN_ASSISTANT_PREFIX",
}
