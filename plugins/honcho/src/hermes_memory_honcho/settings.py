"""The plugin's settings: where each value comes from, and what `setup` asks.

The keys are those of hermes-agent's plugin for Honcho.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from hermes_core import ConfigError
from hermes_core.service import read_own_file

# -- Where a Honcho server is -------------------------------------------------------------------

CLOUD: Final = "https://api.honcho.dev"
CLOUD_ENVIRONMENT: Final = "production"
LOCAL: Final = "http://localhost:8000"
_SHARED_SPACE: Final = ipaddress.ip_network("100.64.0.0/10")  # where VPNs such as Tailscale live


def without_version(url: str) -> str:
    """An address as the SDK wants it: it adds the version itself."""
    return re.sub(r"/v\d+/*$", "", url.strip()).rstrip("/")


def is_nearby(url: str) -> bool:
    """Whether an address is this machine, or in its own network."""
    host = (urlsplit(url).hostname or "").lower()
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    shared = address.version == _SHARED_SPACE.version and address in _SHARED_SPACE
    return shared or address.is_private or address.is_loopback or address.is_link_local


# -- One setting, from the first of several places that has it ----------------------------------

_OLD_NAMES: Final = {"auto": "hybrid", "shared": "unified", "separate": "directional",
                     "cross": "directional"}  # fmt: skip

#: What a host passes if nothing is configured.
_DEFAULTS: Final = {"environment": CLOUD_ENVIRONMENT}


class SettingSources:
    """One key, from the first place that has it.

    What the host passes may come from the file's root, or be the default of a field: then
    the block has precedence.
    """

    def __init__(
        self, block: Mapping[str, Any], root: Mapping[str, Any], given: Mapping[str, Any], path: str
    ) -> None:
        self.block = block
        self.root = root
        self.given = given
        self._path = path

    def get(self, *keys: str) -> Any:
        """What is said under the first of these names."""
        for key in keys:
            passed, kept = self.given.get(key), self.root.get(key)
            is_said = passed not in (None, "", _DEFAULTS.get(key))
            # As text, too: a variable has "30" where the file has 30.
            if is_said and passed != kept and str(passed) != str(kept):
                return passed
        for place in (self.block, self.root):
            for key in keys:
                if place.get(key) is not None:
                    return place[key]
        return None

    def text(self, *keys: str) -> str:
        """A text; "" if there is none."""
        value = self.get(*keys)
        return "" if value is None else str(value).strip()

    def flag(self, *keys: str, default: bool) -> bool:
        """Yes or no."""
        value = self.get(*keys)
        if value is None:
            return default
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        known = words.get(str(value).strip().lower())
        if known is None:
            raise self._wrong(keys[0], value, "true or false")
        return known

    def number(self, *keys: str, default: float) -> float:
        """A number."""
        value = self.get(*keys)
        if value is None or value == "":
            return default
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self._wrong(keys[0], value, "a number") from None

    def one_of(self, key: str, allowed: Sequence[str], default: str) -> str:
        """One of a few words, or what it was called before."""
        value = self.text(key)
        value = _OLD_NAMES.get(value, value)
        # A typo raises: falling back to the default would send data that the person meant to keep
        # back.
        if value and value not in allowed:
            raise self._wrong(key, value, f"one of {', '.join(allowed)}")
        return value or default

    def texts(self, key: str) -> dict[str, str]:
        """Names by other names."""
        value = self.get(key) or {}
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object of names")
        return {str(name).strip(): str(each).strip() for name, each in value.items() if each}

    def several(self, key: str, allowed: Sequence[str]) -> tuple[str, ...]:
        """Some of a few words."""
        value = self.get(key) or ()
        if not isinstance(value, list | tuple) or any(each not in allowed for each in value):
            raise self._wrong(key, value, f"a list of {', '.join(allowed)}")
        return tuple(value)

    def switches(self, key: str, allowed: Sequence[str]) -> dict[str, dict[str, bool]]:
        """By name, what is switched on or off."""
        value = self.get(key) or {}
        wanted = f'an object such as {{"*": {{"{allowed[0]}": false}}}} with {", ".join(allowed)}'
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, wanted)
        for each in value.values():
            known = isinstance(each, Mapping) and set(each) <= set(allowed)
            if not known or not all(isinstance(one, bool) for one in each.values()):
                raise self._wrong(key, each, wanted)
        return {str(name): dict(each) for name, each in value.items()}

    def _wrong(self, key: str, value: Any, wanted: str) -> ConfigError:
        return ConfigError(f"{key} is {value!r:.60}; it has to be {wanted}", where=self._path)


# -- The plugin's settings, as hermes-agent's plugin for Honcho has them -----------------------
#
# They come from the host (``provider_config``), from honcho.json and from variables. In the file
# the block ``hosts.<host>`` overrides its root; ``host`` is ``hermes`` or
# ``hermes_<profile>``.

STRATEGIES: Final = ("per-directory", "per-repo", "per-session", "global")
RECALL_MODES: Final = ("hybrid", "context", "tools")
LEVELS: Final = ("minimal", "low", "medium", "high", "max")
INJECTIONS: Final = ("every-turn", "first-turn")
HOST: Final = "hermes"
#: What can be switched for a session, and what the server calls it.
SWITCHES: Final = {
    "reasoning": ("reasoning", "enabled"),
    "card": ("peer_card", "use", "create"),
    "summary": ("summary", "enabled"),
    "dream": ("dream", "enabled"),
}
_UNIFIED: Final = "unified"
_CONTENT: Final = 25_000
_QUERY: Final = 10_000


class Observation(NamedTuple):
    """Of whom Honcho makes a picture, and who makes one of the others."""

    me: bool = True
    others: bool = True


_BOTH: Final = Observation()


@dataclass(frozen=True, slots=True)
class HonchoSettings:
    """All settings, each with its default. What a key of honcho.json means, README.md says."""

    workspace: str
    ai_peer: str
    address: str
    key: str = field(default="", repr=False)
    enabled: bool = True
    peer_name: str = ""
    pin_user_peer: bool = False
    user_peer_aliases: Mapping[str, str] = field(default_factory=dict)
    runtime_peer_prefix: str = ""
    session_strategy: str = "per-directory"
    session_peer_prefix: bool = False
    sessions: Mapping[str, str] = field(default_factory=dict)
    recall_mode: str = "hybrid"
    save_messages: bool = True
    #: How many turns are sent together; 0 for all of a session.
    write_every: int = 1
    injection_frequency: str = "every-turn"
    context_tokens: int = 2000
    context_cadence: int = 1
    dialectic_cadence: int = 1
    dialectic_level: str = "low"
    dialectic_dynamic: bool = True
    dialectic_max_chars: int = 600
    dialectic_max_input: int = _QUERY
    dialectic_depth: int = 1
    dialectic_depth_levels: Sequence[str] = ()
    reasoning_heuristic: bool = True
    reasoning_level_cap: str = "high"
    message_max_chars: int = _CONTENT
    base_wait: float = 3.0
    dialectic_wait: float = 2.0
    timeout: float = 30.0
    user_observed: Observation = _BOTH
    ai_observed: Observation = _BOTH
    #: What Honcho does with a session, by its name; "*" for all.
    session_switches: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)

    def switches_of(self, session: str) -> dict[str, dict[str, bool]]:
        """What is switched on or off for a session, as sent to the server."""
        said = {**self.session_switches.get("*", {}), **self.session_switches.get(session, {})}
        return {
            SWITCHES[name][0]: dict.fromkeys(SWITCHES[name][1:], value)
            for name, value in said.items()
        }

    @property
    def is_cloud(self) -> bool:
        """Whether Honcho's cloud is asked, which wants a key."""
        return self.address == CLOUD

    @property
    def missing(self) -> str:
        """What is missing, in one line; "" if nothing is."""
        if not self.enabled:
            return "it is switched off: enabled is false in honcho.json"
        if self.is_cloud and not self.key:
            return (
                "set HONCHO_API_KEY (get one at https://app.honcho.dev), or HONCHO_BASE_URL for "
                "your own server: hermes-plugins setup honcho"
            )
        return ""


def config_file(home: Path) -> Path:
    """The file that counts: the home's own, the default profile's, or the one of all programs."""
    own = home / "honcho.json"
    shared = Path.home() / ".hermes" / "honcho.json"
    everybody = Path.home() / ".honcho" / "config.json"
    return next((path for path in (own, shared, everybody) if path.exists()), own)


def host_of(profile: str, root: Mapping[str, Any]) -> str:
    """Under which name a profile's settings, workspace and agent are stored."""
    named = os.environ.get("HERMES_HONCHO_HOST", "").strip()
    if named:
        return named
    if profile and profile not in {"default", "custom"}:
        # hermes-agent's rule, to the letter: the name is also the workspace, and a different one
        # would be an empty memory.
        kept = "".join(char if char.isalnum() or char in "_-" else "_" for char in profile)
        return f"{HOST}_{kept.strip('_') or 'profile'}"
    return str(root.get("defaultHost") or "").strip() or HOST


def read_settings(
    home: Path, profile: str = "default", given: Mapping[str, Any] | None = None
) -> HonchoSettings:
    """The settings of a profile.

    Args:
        home: HERMES_HOME.
        profile: Whose.
        given: What the host has from its own sources, under the names of `FIELDS`.

    Raises:
        ConfigError: The file can't be read, or says what can't be meant.
    """
    path = config_file(home)
    root = read_own_file(path)
    host = host_of(profile, root)
    layers = SettingSources(_block(root, host), root, given or {}, str(path))
    address, key = _place(layers)
    mode = layers.one_of("observationMode", ("directional", _UNIFIED), _observation_default(layers))
    return HonchoSettings(
        workspace=layers.text("workspace") or host,
        ai_peer=layers.text("aiPeer") or host,
        address=address,
        key=key,
        enabled=layers.flag("enabled", default=True),
        peer_name=layers.text("peerName") or _variable("HONCHO_PEER_NAME"),
        pin_user_peer=layers.flag("pinUserPeer", "pinPeerName", default=False),
        user_peer_aliases=layers.texts("userPeerAliases"),
        runtime_peer_prefix=layers.text("runtimePeerPrefix"),
        session_strategy=layers.one_of("sessionStrategy", STRATEGIES, "per-directory"),
        session_peer_prefix=layers.flag("sessionPeerPrefix", default=False),
        sessions=layers.texts("sessions"),
        recall_mode=layers.one_of("recallMode", RECALL_MODES, "hybrid"),
        save_messages=layers.flag("saveMessages", default=True),
        write_every=_write_every(layers),
        injection_frequency=layers.one_of("injectionFrequency", INJECTIONS, "every-turn"),
        context_tokens=int(layers.number("contextTokens", default=2000)),
        context_cadence=max(1, int(layers.number("contextCadence", default=1))),
        dialectic_cadence=max(0, int(layers.number("dialecticCadence", default=1))),
        dialectic_level=layers.one_of("dialecticReasoningLevel", LEVELS, "low"),
        dialectic_dynamic=layers.flag("dialecticDynamic", default=True),
        dialectic_max_chars=int(layers.number("dialecticMaxChars", default=600)),
        dialectic_max_input=int(layers.number("dialecticMaxInputChars", default=_QUERY)),
        dialectic_depth=min(3, max(1, int(layers.number("dialecticDepth", default=1)))),
        dialectic_depth_levels=layers.several("dialecticDepthLevels", LEVELS),
        reasoning_heuristic=layers.flag("reasoningHeuristic", default=True),
        reasoning_level_cap=layers.one_of("reasoningLevelCap", LEVELS, "high"),
        message_max_chars=max(100, int(layers.number("messageMaxChars", default=_CONTENT))),
        base_wait=max(0.0, layers.number("firstTurnBaseWait", default=3.0)),
        dialectic_wait=max(0.0, layers.number("firstTurnDialecticWait", default=2.0)),
        timeout=_timeout(layers),
        user_observed=_observed(layers, "user", Observation(others=mode != _UNIFIED)),
        ai_observed=_observed(layers, "ai", Observation(me=mode != _UNIFIED)),
        session_switches=layers.switches("sessionSwitches", tuple(SWITCHES)),
    )  # fmt: skip


def _block(root: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """A host's own settings; older files have a dot in the name."""
    hosts = root.get("hosts") or {}
    block = hosts.get(host) or hosts.get(host.replace(f"{HOST}_", f"{HOST}.", 1)) or {}
    return block if isinstance(block, Mapping) else {}


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _place(layers: SettingSources) -> tuple[str, str]:
    """The address, and the key that goes there.

    The cloud's key is not for a server in the neighbourhood: that gets its own, or none.
    """
    url = layers.text("baseUrl", "base_url") or _variable("HONCHO_BASE_URL")
    environment = layers.text("environment") or _variable("HONCHO_ENVIRONMENT")
    address = without_version(url) if url else LOCAL if environment == "local" else CLOUD
    own = str(layers.block.get("apiKey") or "")
    general = layers.text("api_key", "apiKey") or _variable("HONCHO_API_KEY")
    if address == CLOUD:
        return address, own or general
    key = layers.text("server_key") or _variable("HONCHO_SERVER_KEY") or own
    # A server on the internet without its own key is most likely the cloud behind another name.
    return address, key or ("" if is_nearby(address) else general)


def _write_every(layers: SettingSources) -> int:
    value = layers.text("writeFrequency") or "async"
    if value in ("async", "turn"):
        return 1
    if value == "session":
        return 0
    if value.isdecimal() and int(value):
        return int(value)
    raise ConfigError(
        f"writeFrequency is {value!r:.60}; it has to be async, turn, session or a number",
        hint="see README.md of hermes-memory-honcho",
    )


def _timeout(layers: SettingSources) -> float:
    fallback = _variable("HONCHO_TIMEOUT") or "30"
    try:
        default = float(fallback)
    except ValueError:
        raise ConfigError(f"HONCHO_TIMEOUT is {fallback!r:.60}, not a number") from None
    return max(0.1, layers.number("timeout", "requestTimeout", default=default))


def _observation_default(layers: SettingSources) -> str:
    """hermes-agent's: a setup from before the two-way picture stays with the older one."""
    # "unified" for existing set-ups: a change of the mode would split what Honcho knows in two.
    explicit = bool(layers.block) or layers.root.get("enabled") is True
    return _UNIFIED if explicit else "directional"


def _observed(layers: SettingSources, whose: str, preset: Observation) -> Observation:
    found = layers.get("observation") or {}
    block = found.get(whose) or {} if isinstance(found, Mapping) else {}
    return Observation(
        bool(block.get("observeMe", preset.me)), bool(block.get("observeOthers", preset.others))
    )


# -- What setup asks, and what else can be set -------------------------------------------------
#
# Only what a person must say is asked. Nothing here has a default but ``environment``: what nobody
# has set has to be seen as not set, since a block of honcho.json may say something.

#: What is written to honcho.json under its own name. A secret never is.
FIELDS: Final[tuple[dict[str, Any], ...]] = (
    {
        "key": "environment",
        "description": "where Honcho runs: production is the cloud, local is your server",
        "choices": [CLOUD_ENVIRONMENT, "local"],
        "default": CLOUD_ENVIRONMENT,
        "env_var": "HONCHO_ENVIRONMENT",
    },
    {
        "key": "api_key",
        "description": "API key of Honcho's cloud",
        "secret": True,
        "url": "https://app.honcho.dev",
        "env_var": "HONCHO_API_KEY",
        "ask": {"environment": CLOUD_ENVIRONMENT},
    },
    {
        "key": "baseUrl",
        "description": "address of your server, such as http://localhost:8000",
        "env_var": "HONCHO_BASE_URL",
        "when": {"environment": "local"},
    },
    {
        "key": "server_key",
        "description": "key of your server, if it requires one",
        "secret": True,
        "env_var": "HONCHO_SERVER_KEY",
        "ask": {"environment": "local"},
    },
    {
        "key": "peerName",
        "description": "your name in Honcho: letters, digits, - and _",
        "env_var": "HONCHO_PEER_NAME",
    },
    {
        "key": "workspace",
        "description": "workspace for all data; by default hermes, or hermes_<profile>",
        "ask": False,
    },
    {"key": "aiPeer", "description": "the agent's name in Honcho", "ask": False},
    {
        "key": "sessionStrategy",
        "description": "what one session of Honcho is for (per-directory)",
        "choices": list(STRATEGIES),
        "ask": False,
    },
    {
        "key": "recallMode",
        "description": "add recalled text to messages, offer tools, or both (hybrid)",
        "choices": list(RECALL_MODES),
        "ask": False,
    },
    {
        "key": "saveMessages",
        "description": "send conversations to Honcho (yes)",
        "type": "boolean",
        "ask": False,
    },
    {
        "key": "contextTokens",
        "description": "maximum size of recalled text in tokens (2000)",
        "type": "integer",
        "minimum": 50,
        "ask": False,
    },
    {
        "key": "dialecticCadence",
        "description": "ask Honcho's model with every n-th message (1); 0 means never",
        "type": "integer",
        "minimum": 0,
        "ask": False,
    },
    {
        "key": "dialecticReasoningLevel",
        "description": "reasoning effort of Honcho's model (low)",
        "choices": list(LEVELS),
        "ask": False,
    },
    {
        "key": "timeout",
        "description": "seconds per request (30)",
        "type": "number",
        "minimum": 0.1,
        "env_var": "HONCHO_TIMEOUT",
        "ask": False,
    },
    {
        "key": "firstTurnBaseWait",
        "description": "seconds that a message waits for recall (3)",
        "type": "number",
        "minimum": 0,
        "ask": False,
    },
)
