"""The plugin's settings, as hermes-agent's plugin for Honcho keeps them.

They come from the host (``provider_config``), from honcho.json and from variables. In the file
the block ``hosts.<host>`` counts more than its root; ``host`` is ``hermes`` or
``hermes_<profile>``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from hermes_core import ConfigError
from hermes_core.backends import read_own_file
from hermes_memory_honcho.address import CLOUD, LOCAL, is_nearby, without_version
from hermes_memory_honcho.layers import Layers

STRATEGIES: Final = ("per-directory", "per-repo", "per-session", "global")
RECALL_MODES: Final = ("hybrid", "context", "tools")
LEVELS: Final = ("minimal", "low", "medium", "high", "max")
INJECTIONS: Final = ("every-turn", "first-turn")
HOST: Final = "hermes"
_UNIFIED: Final = "unified"
_CONTENT: Final = 25_000
_QUERY: Final = 10_000


class Observation(NamedTuple):
    """Of whom Honcho makes a picture, and who makes one of the others."""

    me: bool = True
    others: bool = True


_BOTH: Final = Observation()


@dataclass(frozen=True, slots=True)
class Settings:
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
                "set HONCHO_API_KEY (get one at https://app.honcho.dev), or HONCHO_BASE_URL for a "
                "server of your own: hermes-plugins setup honcho"
            )
        return ""


def config_file(home: Path) -> Path:
    """The file that counts: the home's own, the default profile's, or the one of all programs."""
    own = home / "honcho.json"
    shared = Path.home() / ".hermes" / "honcho.json"
    everybody = Path.home() / ".honcho" / "config.json"
    return next((path for path in (own, shared, everybody) if path.exists()), own)


def host_of(profile: str, root: Mapping[str, Any]) -> str:
    """Under which name a profile's settings, workspace and agent are kept."""
    named = os.environ.get("HERMES_HONCHO_HOST", "").strip()
    if named:
        return named
    if profile and profile not in {"default", "custom"}:
        kept = "".join(char if char.isalnum() or char in "_-" else "_" for char in profile)
        return f"{HOST}_{kept.strip('_') or 'profile'}"
    return str(root.get("defaultHost") or "").strip() or HOST


def read_settings(
    home: Path, profile: str = "default", given: Mapping[str, Any] | None = None
) -> Settings:
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
    layers = Layers(_block(root, host), root, given or {}, str(path))
    address, key = _place(layers)
    mode = layers.one_of("observationMode", ("directional", _UNIFIED), _observation_default(layers))
    return Settings(
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
    )  # fmt: skip


def _block(root: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """A host's own settings; older files have a dot in the name."""
    hosts = root.get("hosts") or {}
    block = hosts.get(host) or hosts.get(host.replace(f"{HOST}_", f"{HOST}.", 1)) or {}
    return block if isinstance(block, Mapping) else {}


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _place(layers: Layers) -> tuple[str, str]:
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
    return address, key or ("" if is_nearby(address) else general)


def _write_every(layers: Layers) -> int:
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


def _timeout(layers: Layers) -> float:
    fallback = _variable("HONCHO_TIMEOUT") or "30"
    try:
        default = float(fallback)
    except ValueError:
        raise ConfigError(f"HONCHO_TIMEOUT is {fallback!r:.60}, not a number") from None
    return max(0.1, layers.number("timeout", "requestTimeout", default=default))


def _observation_default(layers: Layers) -> str:
    """hermes-agent's: who has set Honcho up before the two-way picture keeps the older one."""
    explicit = bool(layers.block) or layers.root.get("enabled") is True
    return _UNIFIED if explicit else "directional"


def _observed(layers: Layers, whose: str, preset: Observation) -> Observation:
    told = layers.get("observation") or {}
    block = told.get(whose) or {} if isinstance(told, Mapping) else {}
    return Observation(
        bool(block.get("observeMe", preset.me)), bool(block.get("observeOthers", preset.others))
    )
