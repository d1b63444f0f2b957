"""The plugin's settings: hermes-agent's files and names, defaults, and what `setup` asks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

from hermes_core import ConfigError
from hermes_core.service import SessionStart, read_own_file

# -- The settings files of hermes-agent's plugin, under the names that settings have today ------

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
    """The older file for all homes: used by a home without a config file."""
    return Path.home() / ".hindsight" / "config.json"


def in_files(home: Path) -> list[tuple[str, dict[str, Any]]]:
    """What files say, the first that says something first.

    Raises:
        ConfigError: The file that counts can't be read.
    """
    own, shared = own_file(home), shared_file()
    if own.exists():
        found = _today(read_own_file(own))
        # The home's file replaces the shared one. Only the shared key still counts, since a key is
        # often there alone.
        found_in = [(str(own), found), (str(shared), _keys_for(found, shared))]
    else:
        found_in = [(str(shared), _today(read_own_file(shared)))]
    address = os.environ.get(_ADDRESS, "")
    # hermes-agent's users set only the address. Without this, the mode would stay "cloud" and the
    # key of the cloud would be sent to their server.
    if address and not os.environ.get(_MODE):
        found_in.append((f"environment ({_ADDRESS})", _implied({"api_url": address})))
    return [(place, values) for place, values in found_in if values]


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
        # One old setting for two of today: which of both applies follows from the mode, below.
        **dict.fromkeys(_KEYS, key),
    }
    # A name of today wins over an older one in the same file.
    settings = _set(older) | settings
    # The key of one place is not for the other.
    other = {CLOUD: "server_key", OWN_SERVER: "api_key"}.get(str(settings.get("mode")))
    return {name: value for name, value in settings.items() if name != other}


def _implied(found: Mapping[str, Any]) -> dict[str, Any]:
    """hermes-agent needs no mode for a self-hosted server: its address is enough."""
    address = str(found.get("api_url") or "").rstrip("/")
    is_own = address and address != URLS[CLOUD] and not found.get("mode")
    return {"mode": OWN_SERVER} if is_own else {}


def _keys_for(found: Mapping[str, Any], shared: Path) -> dict[str, Any]:
    """The shared file's key, if it is for the same place: `setup` moves settings, not keys."""
    # The shared file belongs to other programs, too: damage there must not stop this home.
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


# -----------------------------------------------------------------------------------------------
# What can be set, under the names that hermes-agent has for it, and what it is if nobody says

EMBEDDED: Final = ("local_embedded", "local")
NOT_EMBEDDED: Final = (
    "pip install hindsight-api-slim, start hindsight-api yourself, and set mode to "
    "local_external and api_url to its address"
)
#: Every kind of memory. Where an observation says what raw facts say, the server leaves those out.
TYPES: Final = ("observation", "world", "experience")
#: Hosts allow a write 120 seconds, a tool 60. An error of ours is better than one of theirs.
_LONGEST_TIMEOUT: Final = 110.0
_SCOPES: Final = ("per_tag", "combined", "all_combinations", "shared")


Match: TypeAlias = Literal["any", "all", "any_strict", "all_strict", "exact"]


class HindsightSettings(NamedTuple):
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
    def read(cls, start: SessionStart) -> Self:
        """What a host that reads settings passed; else what hermes-agent's own plugin would read.

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
        # `known` after the address of the mode: a person may run the cloud's API behind a proxy.
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
        # Such a key fails deep inside the HTTP client, with a message that contains it.
        if not str(self.api_key).isprintable():
            raise ConfigError(
                "the key has a line break or another character that no key has",
                where="hindsight",
                hint="set it again: hermes-plugins secrets set HINDSIGHT_API_KEY",
            )
        address = urlsplit(self.api_url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                f"api_url {self.api_url!r} is not the address of a server",
                where="hindsight",
                hint=f"it looks like {URLS[OWN_SERVER]}",
            )


def _given(start: SessionStart) -> dict[str, Any]:
    """What was set, by whoever. A host that reads settings has read files and variables."""
    if start.config:
        return _set(start.config)
    given = _set({name: os.environ.get(variable) for name, variable in VARIABLES.items()})
    # Reversed: the first place has precedence, so it is merged last.
    for _, values in reversed(in_files(start.home)):
        given |= _set(values)
    return given


def _names(value: Any) -> tuple[str, ...]:
    """Names, each once: a list, or a text with commas between, or JSON."""
    if isinstance(value, str):
        # A variable holds text: a JSON list, or names with commas between them.
        value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
    return tuple(dict.fromkeys(name for each in value if (name := str(each).strip())))


def _scopes(value: Any) -> str | list[list[str]] | None:
    """How observations are scoped: a keyword, or lists of tags; None leaves it to the server."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else [value]
    scopes = list(value or ())
    if len(scopes) == 1 and scopes[0] in _SCOPES:
        return str(scopes[0])
    # A flat list is one scope with several tags, not several scopes.
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

# -- What a host asks a person, and what can be set without being asked -------------------------

_DEFAULTS: Final = HindsightSettings()
_KEY_PAGE: Final = "https://ui.hindsight.vectorize.io"

_ASKED: Final[list[dict[str, Any]]] = [
    {
        "key": "mode",
        "description": "Where memories are stored: local_external is your server.",
        "default": CLOUD,
        "choices": [CLOUD, OWN_SERVER],
        "instead": dict.fromkeys(EMBEDDED, NOT_EMBEDDED),
    },
    {
        "key": "api_url",
        "description": "The address of the server.",
        "default_from": {"field": "mode", "map": URLS},
        "ask": {"mode": OWN_SERVER},
    },
    {
        "key": "api_key",
        "description": "The key for Hindsight Cloud.",
        "secret": True,
        "required": True,
        "url": _KEY_PAGE,
        "when": {"mode": CLOUD},
    },
    {
        "key": "server_key",
        "description": "The key of your server, if it requires one.",
        "secret": True,
        "env_var": VARIABLES["api_key"],
        "when": {"mode": OWN_SERVER},
    },
]

#: What is not asked: description, and type or choices.
_OPTIONS: Final[dict[str, tuple[str, str | list[str]]]] = {
    "bank_id": ("One bank for everybody; by default one per profile and user.", "text"),
    "bank_id_template": ("The bank's name, with {profile}, {user}, {session}, ...", "text"),
    "bank_mission": ("Who the bank is for; used by reflect.", "text"),
    "bank_retain_mission": ("What to remember; guides the extraction.", "text"),
    "recall_budget": ("How thorough recall is; mid if not set.", ["low", "mid", "high"]),
    "memory_mode": ("Recall before each turn, tools, or both.", ["hybrid", "context", "tools"]),
    "recall_prefetch_method": ("Memories, or an answer from them.", ["recall", "reflect"]),
    "retain_tags": ("Tags for everything that is stored.", "list"),
    "observation_scopes": ("per_tag, combined, ..., or lists of tags as JSON.", "list"),
    "retain_source": ("metadata.source of everything that is stored.", "text"),
    "retain_user_prefix": ("Label before the user's text in a stored turn.", "text"),
    "retain_assistant_prefix": ("Label before the agent's text.", "text"),
    "recall_tags": ("Recall only memories with these tags.", "list"),
    "recall_tags_match": (
        "How tags match.",
        ["any", "all", "any_strict", "all_strict", "exact"],
    ),
    "recall_types": ("Types of memories to recall.", "list"),
    "auto_recall": ("Recall before each turn.", "boolean"),
    "auto_retain": ("Store turns, notes and subagents' results.", "boolean"),
    "retain_every_n_turns": ("For hermes-agent; no effect here.", "integer"),
    "retain_async": ("Let the server answer before it processed a turn.", "boolean"),
    "retain_context": ("How a turn is described to the server.", "text"),
    "recall_max_tokens": ("Maximum number of tokens that recall returns.", "integer"),
    "recall_max_input_chars": ("Maximum length of the recall query.", "integer"),
    "recall_prompt_preamble": ("Text above recalled memories.", "text"),
    "timeout": ("Seconds per request.", "number"),
}


def fields() -> list[dict[str, Any]]:
    """The fields, for `get_config_schema`."""
    return [*_ASKED, *(_option(key, *about) for key, about in _OPTIONS.items())]


def _option(key: str, description: str, kind: str | list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"key": key, "description": description, "ask": False}
    made |= {"choices": kind} if isinstance(kind, list) else {"type": kind}
    default = getattr(_DEFAULTS, key)
    # A field without a default is shown as "not set". That is the truth for these: the server
    # decides.
    if default not in ("", None, (), TYPES):
        made["default"] = default
    if kind in ("integer", "number"):
        made["minimum"] = 1
    if key in VARIABLES:
        made["env_var"] = VARIABLES[key]
    return made
