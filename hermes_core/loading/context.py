"""What a plugin's ``register(ctx)`` gets: hermes-agent's plugin context, without its host.

Every public member of hermes-agent's ``PluginContext`` (0.19 and 0.20) is here with its
signature, since plugins probe with ``hasattr`` and `inspect`. Only ``register_*`` has a catch-all.

- The memory provider is used. Everything else that a plugin registers is counted, and shown by
  ``hermes-plugins info``; it is not run.
- The plugin's own settings, its state, its unload callbacks and its own events work.
- What needs hermes-agent's gateway, model or tools answers that it is not available. Nothing
  here raises because this host lacks a feature: that would cost the plugin its provider.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, cast

from hermes_core.config.names import normalise
from hermes_core.dispatch.caller import Unload
from hermes_core.errors import HermesError, describe
from hermes_core.storage.home import resolve_home
from hermes_core.storage.logger import logger

if TYPE_CHECKING:  # asyncio takes 60 ms, for one method that few plugins call
    import asyncio
    from concurrent.futures import Future


from hashlib import sha256

from hermes_core.storage.files import file_lock, replace_file
from hermes_core.storage.home import ensure_folder

_P = ParamSpec("_P")

# hermes-agent's rules for keys: parts that are safe in YAML and can't lead out of the plugin's
# section. The reserved names are sections of the host.
_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_RESERVED: Final = frozenset({"model", "plugins", "security", "settings"})
# Two subscribers that emit each other's event would recurse until the stack ends.
_MAX_EVENT_DEPTH: Final = 8


# Not frozen, unlike our own data: hermes-agent's is not, so a plugin may assign to its fields.
@dataclass
class PluginManifest:
    """What is known about the plugin, under hermes-agent's names and defaults."""

    name: str
    version: str = ""
    description: str = ""
    author: str = ""
    requires_env: list[Any] = field(default_factory=list)
    provides_tools: list[str] = field(default_factory=list)
    provides_hooks: list[str] = field(default_factory=list)
    source: str = ""
    path: str | None = None
    kind: str = "standalone"
    key: str = ""
    portable: bool = False
    skill_namespace: str = ""
    capabilities: list[str] = field(default_factory=list)
    manifest_version: int = 1
    api_version: int | None = None
    requires_plugins: list[dict[str, Any]] = field(default_factory=list)
    python_dependencies: list[str] = field(default_factory=list)
    config_schema: dict[str, Any] = field(default_factory=dict)
    license: str = ""
    homepage: str = ""
    tags: list[str] = field(default_factory=list)
    emits: list[str] = field(default_factory=list)
    listens: list[str] = field(default_factory=list)


@dataclass
class PluginRegistration:
    """The handle of one registration; ``dispose`` releases it once."""

    kind: str
    key: str
    release: Callable[[], None]
    plugin_key: str = ""
    active: bool = True

    def dispose(self) -> None:
        """Release it. Calling it again does nothing."""
        if self.active:
            self.active = False
            self.release()


class PlatformActions:
    """hermes-agent's platform actions; without its gateway, each reports that it is missing."""

    def add_reaction(
        self, platform: str, chat_id: str, message_id: str, emoji: str
    ) -> dict[str, Any]:
        """Return the error ``gateway_unavailable``."""
        return {"ok": False, "error": "gateway_unavailable"}

    def set_thread_title(
        self, platform: str, chat_id: str, thread_id: str, title: str
    ) -> dict[str, Any]:
        """Return the error ``gateway_unavailable``."""
        return {"ok": False, "error": "gateway_unavailable"}


def _recorded(
    kind: str,
) -> Callable[[Callable[_P, None]], Callable[_P, PluginRegistration | None]]:
    """Count the calls of a method, also those that do not fit its signature.

    hermes-agent logs such a call and goes on, so a plugin does not lose its provider by it.
    Here it has no effect: what is registered is not run.
    """

    def recording(method: Callable[_P, None]) -> Callable[_P, PluginRegistration | None]:
        signature = inspect.signature(method)
        name = getattr(method, "__name__", kind)

        @wraps(method)
        def record(*args: _P.args, **kwargs: _P.kwargs) -> PluginRegistration | None:
            # Counted before the arguments are bound, so that a wrong call is counted as well.
            context = cast("PluginContext", args[0])
            context.count(kind)
            try:
                # [1:]: without `self`.
                given = list(signature.bind(*args, **kwargs).arguments.values())[1:]
            except TypeError as error:
                logger.debug("plugin %s: %s(): %s", context.plugin_id, name, error)
                return None
            key = given[0] if given and isinstance(given[0], str) else ""
            return PluginRegistration(kind, key, _nothing, context.plugin_id)

        return record

    return recording


def _nothing() -> None:
    """Release something that is only counted: there is nothing to do."""


class PluginContext:
    """Collects the memory provider, and records what else a plugin registers.

    ``providers`` has the memory providers, ``registered`` the number of other registrations by
    kind, ``complaints`` what went wrong without costing the provider, and ``unload`` the
    callbacks for the end.

    Args:
        manifest: What is known about the plugin.
        home: HERMES_HOME; by default the environment's.
    """

    def __init__(self, manifest: PluginManifest | None = None, home: Path | None = None) -> None:
        self.manifest = manifest or PluginManifest(name="")
        self.providers: list[Any] = []
        self.registered: dict[str, int] = {}
        self.complaints: list[str] = []
        self.unload: list[Unload] = []
        self._home = home
        self._platform_actions = PlatformActions()
        self._subscribers: dict[str, list[Callable[..., Any]]] = {}
        self._event_depth = 0
        self._event_tasks: set[asyncio.Task[Any]] = set()

    def count(self, kind: str) -> None:
        """Count one more registration of a kind."""
        self.registered[kind] = self.registered.get(kind, 0) + 1

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Count a registration that no known release has.

        hermes-agent 0.20 accepts every ``register_*`` too, so that a plugin for a later release
        does not lose its memory provider. Any other unknown name is an AttributeError.
        """
        if not name.startswith("register_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        kind = name.removeprefix("register_").replace("_", " ")
        return lambda *_args, **_kwargs: self.count(kind)

    # -- what is used ---------------------------------------------------------------------

    def register_memory_provider(self, provider: Any) -> None:
        """Offer a memory provider: an instance, or a class without arguments."""
        self.providers.append(provider)

    @property
    def plugin_id(self) -> str:
        """The plugin's name for its settings, state and events."""
        return self.manifest.key or self.manifest.name

    def has_plugin(self, plugin_id: str) -> bool:
        """Return whether that plugin is loaded: only this one is known here."""
        return normalise(str(plugin_id)) == normalise(self.plugin_id)

    @property
    def profile_name(self) -> str:
        """The profile's name: "default", a profile below it, or "custom"."""
        from hermes_core.loading.compat.home import get_active_profile_name  # noqa: PLC0415

        try:
            return get_active_profile_name()
        except HermesError:
            return "default"

    def get_config(self, key: str, default: Any = None) -> Any:
        """One of the plugin's settings in config.yaml.

        Looks at ``plugins.entries.<plugin>.settings`` and ``.config``, as hermes-agent does, then
        at ``memory.<plugin>``.

        Args:
            key: A key relative to the plugin, such as ``endpoint`` or ``retry.policy``.
            default: What to return if it is not set, or config.yaml can't be read.

        Raises:
            ValueError: The key is not one of the plugin's own.
        """
        keys = _own_keys(key)
        for settings in self._settings():
            found = _nested(settings, keys)
            # A key that is set to null is set: only a missing one falls through to the next place.
            if found is not _MISSING:
                return found
        return default

    def set_config(self, key: str, value: Any) -> None:
        """Store one value in ``plugins.entries.<plugin>.settings`` of config.yaml.

        Raises:
            ValueError: The key is not one of the plugin's own.
            HermesError: config.yaml can't be changed.
        """
        from hermes_core.config.editor import change_config  # noqa: PLC0415

        path = ("plugins", "entries", self.plugin_id, "settings", *_own_keys(key))
        change_config(self._folder(), {path: value})

    @property
    def state(self) -> PluginState:
        """A small JSON store for the plugin, in the file that hermes-agent uses."""
        return PluginState(self._folder(), self.plugin_id)

    def on_unload(self, callback: Callable[[], None]) -> PluginRegistration:
        """Call ``callback`` after the provider's shutdown; the last one registered comes first.

        Raises:
            TypeError: It can't be called.
        """
        if not callable(callback):
            # As hermes-agent raises it.
            raise TypeError("on_unload callback must be callable")
        name = getattr(callback, "__name__", "callback")
        registration = PluginRegistration("on_unload", name, callback, self.plugin_id)
        self.unload.append(registration)
        return registration

    def spawn_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any] | Future[Any]:
        """Start a task on the running event loop; it is cancelled when the plugin is unloaded.

        Without a running loop, which is the case in ``register``, nothing is started: the call
        is reported, and the answer is a future that is cancelled.

        Raises:
            TypeError: ``coro`` is not a coroutine.
        """
        import asyncio  # noqa: PLC0415 - see above

        if not asyncio.iscoroutine(coro):
            raise TypeError("spawn_task expects a coroutine")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Otherwise Python warns that the coroutine was never awaited.
            coro.close()
            self.complaints.append("spawn_task() was called without an event loop: not started")
            return _cancelled()
        task = loop.create_task(coro, name=name or f"plugin:{self.plugin_id}:task")

        def cancel() -> None:
            if not task.done():
                # Unloading runs on another thread than the loop, and `task.cancel` is not
                # thread-safe.
                loop.call_soon_threadsafe(task.cancel)

        self.unload.append(PluginRegistration("background_task", task.get_name(), cancel))
        return task

    def emit(self, event: str, payload: dict[str, Any] | None = None) -> int:
        """Publish ``<plugin>:<event>`` to this plugin's own subscribers.

        There are no other plugins that could subscribe.

        Returns:
            How many subscribers were called.

        Raises:
            ValueError: The event has no name, or a namespace.
            TypeError: The payload is not a dictionary.
        """
        if not isinstance(event, str) or not event or ":" in event:
            raise ValueError(f"{event!r} is not a bare event name")
        if payload is not None and not isinstance(payload, dict):
            raise TypeError("the payload of an event must be a dict or None")
        # A copy: a subscriber may subscribe while it is called.
        subscribers = list(self._subscribers.get(f"{self.plugin_id}:{event}", ()))
        if self._event_depth >= _MAX_EVENT_DEPTH:  # subscribers that emit what they receive
            return 0
        self._event_depth += 1
        try:
            for each in subscribers:
                self._deliver(each, f"{self.plugin_id}:{event}", payload or {})
        finally:
            self._event_depth -= 1
        return len(subscribers)

    def _deliver(self, callback: Callable[..., Any], event: str, payload: dict[str, Any]) -> None:
        try:
            # Each subscriber has its own copy, so that none sees another's changes.
            result = callback(**deepcopy(payload))
            if inspect.iscoroutine(result):
                self._await(result, event)
        except Exception as error:  # noqa: BLE001 - the plugin's code; go on with the next one
            logger.warning("plugin %s: a subscriber of %s failed: %s",
                           self.plugin_id, event, describe(error))  # fmt: skip

    def _await(self, coroutine: Coroutine[Any, Any, Any], event: str) -> None:
        """Run a subscriber's coroutine: on the running event loop later, or here and now."""
        import asyncio  # noqa: PLC0415 - see above

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(coroutine)
            return
        task = loop.create_task(coroutine, name=f"plugin:{self.plugin_id}:{event}")
        self._event_tasks.add(task)  # the loop itself only has a weak reference
        task.add_done_callback(self._event_tasks.discard)

    def subscribe(self, event: str, callback: Callable[..., Any]) -> None:
        """Have ``callback`` called for an event, which has its full name: ``<plugin>:<event>``.

        Raises:
            ValueError: The event has no name.
        """
        if not isinstance(event, str) or not event:
            raise ValueError("subscribe() needs the name of an event")
        self._subscribers.setdefault(event, []).append(callback)

    # -- what needs hermes-agent itself ---------------------------------------------------

    @property
    # The signatures below are hermes-agent's, so arguments that are not used stay.
    def llm(self) -> None:
        """None: there is no model here."""
        return None

    @property
    def subagent_lifecycle(self) -> None:
        """None: there are no subagents here."""
        return None

    @property
    def platform_actions(self) -> PlatformActions:
        """Actions on chat platforms, none of which is connected here."""
        return self._platform_actions

    def has_capability(self, capability: str) -> bool:
        """Return False: this host grants none of hermes-agent's capabilities."""
        return False

    def call_mcp(
        self, server: str, tool: str, arguments: dict[str, Any] | None = None, timeout: float = 30
    ) -> dict[str, Any]:
        """Return the answer of a call that failed: there is no MCP client here."""
        return {"ok": False, "error": "MCP servers are not available in this host"}

    def inject_message(
        self, content: str, role: str = "user", *, session_key: str | None = None
    ) -> bool:
        """Return False: there is no conversation to put a message into."""
        return False

    def dispatch_tool(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Return a JSON error: the agent's tools are not available to plugins here."""
        return json.dumps({"error": f"the tool {tool_name} is not available in this host"})

    # -- what is counted and not run ------------------------------------------------------

    @_recorded("tool")
    def register_tool(
        self, name: str, toolset: str, schema: dict[str, Any], handler: Callable[..., Any],
        check_fn: Callable[..., Any] | None = None, requires_env: list[Any] | None = None,
        is_async: bool = False, description: str = "", emoji: str = "", override: bool = False,
    ) -> None:  # fmt: skip
        """Count a tool."""

    @_recorded("hook")
    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Count a hook."""

    @_recorded("cli command")
    def register_cli_command(
        self, name: str, help: str, setup_fn: Callable[..., Any],  # noqa: A002 - their signature
        handler_fn: Callable[..., Any] | None = None, description: str = "",
    ) -> None:  # fmt: skip
        """Count a command for the terminal."""

    @_recorded("command")
    def register_command(
        self, name: str, handler: Callable[..., Any], description: str = "", args_hint: str = ""
    ) -> None:
        """Count a slash command."""

    @_recorded("context engine")
    def register_context_engine(self, engine: Any) -> None:
        """Count a context engine."""

    @_recorded("context reference")
    def register_context_reference(self, provider: Any) -> None:
        """Count a provider of @-references."""

    @_recorded("skill")
    def register_skill(
        self, name: str, path: Path, description: str = "",
        frontmatter: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Count a skill."""

    @_recorded("auxiliary task")
    def register_auxiliary_task(
        self, key: str, *, display_name: str, description: str,
        defaults: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Count a task for an auxiliary model."""

    @_recorded("middleware")
    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> None:
        """Count a middleware."""

    @_recorded("platform")
    def register_platform(
        self, name: str, label: str, adapter_factory: Callable[..., Any],
        check_fn: Callable[..., Any], validate_config: Callable[..., Any] | None = None,
        required_env: list[Any] | None = None, install_hint: str = "", **entry_kwargs: Any,
    ) -> None:  # fmt: skip
        """Count a messaging platform."""

    @_recorded("system prompt section")
    def register_system_prompt_section(
        self, id: str, content: str | Callable[[Mapping[str, Any]], str], *,  # noqa: A002
        position: str = "after_memory", max_chars: int = 4000,
    ) -> None:  # fmt: skip
        """Count a section of the system prompt."""

    @_recorded("approval transport")
    def register_approval_transport(self, name: str, present_fn: Callable[..., Any]) -> None:
        """Count a way to ask for approval."""

    @_recorded("image generator")
    def register_image_gen_provider(self, provider: Any) -> None:
        """Count a backend for images."""

    @_recorded("video generator")
    def register_video_gen_provider(self, provider: Any) -> None:
        """Count a backend for videos."""

    @_recorded("dashboard login")
    def register_dashboard_auth_provider(self, provider: Any) -> None:
        """Count a login for the dashboard."""

    @_recorded("web search")
    def register_web_search_provider(self, provider: Any) -> None:
        """Count a backend for web search."""

    @_recorded("browser")
    def register_browser_provider(self, provider: Any) -> None:
        """Count a backend for the browser."""

    @_recorded("secret source")
    def register_secret_source(self, source: Any) -> None:
        """Count a source of secrets."""

    @_recorded("speech generator")
    def register_tts_provider(self, provider: Any) -> None:
        """Count a backend for speech."""

    @_recorded("transcriber")
    def register_transcription_provider(self, provider: Any) -> None:
        """Count a backend for transcription."""

    @_recorded("slack action")
    def register_slack_action_handler(self, action_id: Any, callback: Callable[..., Any]) -> None:
        """Count a handler of Slack actions."""

    def register_redaction_patterns(self, patterns: Any) -> int:
        """Count patterns of secrets.

        Returns:
            0, the number of patterns that are in use: ours are not extended by plugins.
        """
        self.count("set of redaction patterns")
        return 0

    # -- the plugin's own settings --------------------------------------------------------

    def _folder(self) -> Path:
        return self._home if self._home is not None else resolve_home()

    def _settings(self) -> list[Any]:
        """The places of the plugin's settings in config.yaml; the first that has a key counts."""
        from hermes_core.config.document import read_document  # noqa: PLC0415

        try:
            data = read_document(self._folder()).data
        except HermesError:
            return []
        entry = _nested(data, ("plugins", "entries", self.plugin_id))
        memory = data.get("memory")
        sections = memory.items() if isinstance(memory, Mapping) else ()
        # Normalised, as everywhere below ``memory``; hermes-agent's own entries need the exact
        # name.
        own = [each for key, each in sections if normalise(str(key)) == normalise(self.plugin_id)]
        return [_nested(entry, ("settings",)), _nested(entry, ("config",)), *own]


_MISSING: Final = object()


def _nested(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def _own_keys(key: str) -> tuple[str, ...]:
    """The parts of a key relative to the plugin; anything that leads elsewhere is refused."""
    keys = tuple(key.split(".")) if isinstance(key, str) else ()
    if not keys or keys[0].lower() in _RESERVED or not all(map(_SEGMENT.fullmatch, keys)):
        raise ValueError(f"{key!r} is not a key of the plugin's own, such as retry.policy")
    return keys


def _cancelled() -> Future[Any]:
    from concurrent.futures import Future  # noqa: PLC0415 - see above

    future: Future[Any] = Future()
    future.cancel()
    return future


def counted(registered: Mapping[str, int]) -> str:
    """Return what a plugin registers, in words: 3 tools, 1 hook."""
    return ", ".join(f"{count} {_plural(kind, count)}" for kind, count in registered.items())


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    first, of, rest = kind.partition(" of ")
    # "branch", "search": es. "middleware" has no plural.
    ending = "es" if first.endswith("ch") else "" if first.endswith("middleware") else "s"
    return f"{first}{ending}{of}{rest}"


# The same limits as hermes-agent's state store, since both may use the file of one home.
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_LOCK_SECONDS: Final = 10
_QUOTA_BYTES: Final = 10 * 1024 * 1024


class PluginState:
    """Values by key, in one JSON file that is written as a whole.

    Args:
        home: HERMES_HOME.
        plugin_id: Whose state it is.
    """

    def __init__(self, home: Path, plugin_id: str) -> None:
        self._home = home
        self._plugin_id = plugin_id

    @property
    def data_dir(self) -> Path:
        """The folder for the plugin's data."""
        # hermes-agent's rule: readable, safe on Windows, and no two plugins share it.
        slug = re.sub(r"[^a-z0-9_-]", "-", self._plugin_id.lower()).strip("-_") or "plugin"
        # Eight digits: names that differ only in characters that the slug drops stay apart.
        digest = sha256(self._plugin_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return self._home / "plugin-data" / f"agent-plugin-{slug}-{digest}"

    @property
    def path(self) -> Path:
        """The file."""
        return self.data_dir / "state.json"

    @property
    def quota_bytes(self) -> int:
        """How large the file may become."""
        return _QUOTA_BYTES

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key.

        Raises:
            ValueError: The key is not allowed.
            RuntimeError: The file can't be read.
        """
        _check(key)
        return self._read().get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value; the others stay as they are, whoever else writes.

        Raises:
            ValueError: The key is not allowed, the value is not JSON, or there is no room.
            RuntimeError: The file can't be read.
        """
        _check(key)
        ensure_folder(self.data_dir)
        # Read and write under one lock: two processes may set two keys at the same time.
        with file_lock(self.path.with_name(".state.json.lock"), _LOCK_SECONDS):
            try:
                text = json.dumps({**self._read(), key: value}, ensure_ascii=False, indent=2)
                content = text.encode()
            except (TypeError, ValueError, RecursionError) as error:
                raise ValueError(f"the value of {key!r} is not JSON: {error}") from error
            if len(content) > _QUOTA_BYTES:
                raise ValueError(f"{len(content)} bytes are more than the {_QUOTA_BYTES} allowed")
            replace_file(self.path, content, mode=0o600)

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise RuntimeError(f"{self.path} can't be read: {error}") from error
        if not isinstance(data, dict):
            raise RuntimeError(f"{self.path} has no object in it")  # noqa: TRY004 - as theirs
        return data


def _check(key: str) -> None:
    if not isinstance(key, str) or not _KEY.fullmatch(key) or ".." in key:
        raise ValueError("a key has 1 to 128 letters, digits, '_', '-', '.' or ':', and no '..'")
