"""What every check uses: the loaded plugin, empty homes, and providers to call."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import getfile
from pathlib import Path
from typing import Any, Final

from hermes_core.config.fields import Field, Value, active_fields, read_fields, validate_values
from hermes_core.conformance._driver import Answer, Driver, Places, failure_text
from hermes_core.conformance._watch import Event, ThreadsAndProcesses, Watch
from hermes_core.conformance.model import NEEDS_NETWORK, UNAVAILABLE, Failed, Options, Skipped
from hermes_core.discovery import ProviderInfo
from hermes_core.loading import load_provider
from hermes_core.manager.tools import ToolError, normalise_schema
from hermes_core.provider import MemoryProvider
from hermes_core.session import SessionContext

#: The file in the scratch folder that gets the output of the process.
OUTPUT: Final = "output"


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """What the plugin did when it was first loaded."""

    cpu: float
    events: tuple[Event, ...]
    threads: tuple[str, ...]
    printed: str
    changes: tuple[str, ...]
    logging: tuple[str, ...]


@dataclass(slots=True)
class LoadedPlugin:
    """State that all checks of one process share."""

    info: ProviderInfo
    options: Options
    scratch: Path
    watch: Watch
    loading: LoadRecord
    first: MemoryProvider
    places: Places
    #: Why a session can't be started here, or nothing recalled; "" if it can, None if unknown.
    no_start: str | None = None
    no_recall: str | None = None
    homes: int = 0
    #: What ran when nothing had been started yet.
    before: ThreadsAndProcesses = field(default_factory=ThreadsAndProcesses.now)
    fields: tuple[Field, ...] = ()

    @property
    def user(self) -> Path:
        """Return the home folder of the user, as the plugin sees it."""
        return self.scratch / "user"

    @property
    def output(self) -> Path:
        """Return the file that gets the output of the process."""
        return self.scratch / OUTPUT


def root_of(info: ProviderInfo, provider: MemoryProvider) -> Path:
    """Return the folder of the plugin's code."""
    if info.directory is not None:
        return info.directory.resolve()
    # From the class and not from the entry point: a plugin may import its provider from another of
    # its packages.
    module = type(provider).__module__
    try:
        file = Path(getfile(type(provider))).resolve()
    except (TypeError, OSError):
        return Path(os.devnull)
    # a.b.c in a/b/c.py is two folders below the folder of package a.
    depth = module.count(".") + (file.name == "__init__.py")
    return file if depth == 0 else file.parents[depth - 1]


def fields_of(info: ProviderInfo, driver: Driver) -> tuple[Field, ...]:
    """Return the plugin's fields; () if they are invalid, which HP401 reports."""
    answer = driver.ask("get_config_schema")
    # Not only SchemaError: the plugin's objects may raise anything when they are read.
    with suppress(Exception):
        fields = read_fields(answer.value or (), info.name)
        # Of several fields with the same key, use the one that the defaults select.
        return active_fields(fields, validate_values(fields, {}, "").values)
    return ()


# Short, since many checks wait for a background thread that needs only milliseconds.
_POLL: Final = 0.02
_OFFLINE: Final = 1.0  # seconds to wait for a recall that was denied the network


@dataclass(slots=True)
class CheckContext:
    """State of one check, which ends with it."""

    plugin: LoadedPlugin
    drivers: list[Driver] = field(default_factory=list)
    home: Path = field(init=False)
    #: Unique for each run: a live backend remembers the users of the last one.
    person: str = field(default_factory=lambda: f"user-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self.home = self.new_home()

    @property
    def info(self) -> ProviderInfo:
        """Return what is known about the plugin without importing it."""
        return self.plugin.info

    @property
    def options(self) -> Options:
        """Return the author's options."""
        return self.plugin.options

    @property
    def watch(self) -> Watch:
        """Return the recorder of its network, process and file events."""
        return self.plugin.watch

    def new_home(self) -> Path:
        """Create an empty Hermes home."""
        # Never reused: what an earlier check stored must not be recalled in this one.
        self.plugin.homes += 1
        folder = self.plugin.scratch / "homes" / str(self.plugin.homes)
        folder.mkdir(mode=0o700, parents=True)
        return folder

    def provider(self) -> MemoryProvider:
        """Load the plugin again and return its provider."""
        # A new object per call where the plugin allows it, as hosts do for each conversation.
        return load_provider(self.info, self.home, deadline=self.options.limits.load)

    def driver(self) -> Driver:
        """Return a driver for a provider that has not been started."""
        made = Driver(self.provider(), self.plugin.places, self.options.limits, self.cut_off)
        self.drivers.append(made)
        return made

    def pair(self) -> tuple[Driver, Driver]:
        """Return two providers; skip if the plugin always returns the same object."""
        first, second = self.driver(), self.driver()
        if first.provider is second.provider:
            raise Skipped("its entry point always returns the same object, so there can't be two")
        return first, second

    def cut_off(self) -> bool:
        """Return whether the plugin tried to use the network and was denied."""
        return self.watch.network_was_tried and not self.options.live

    def facts(self, **more: Any) -> dict[str, Any]:
        """Return the keywords that a host passes to ``initialize``, without those that are None."""
        known = {
            **SessionContext(hermes_home=str(self.home), user_id=self.person).keywords(),
            "provider_config": self.settings(),
            **more,
        }
        # None means "not given" for a host: `user_id=None` in `more` removes the default user.
        return {key: value for key, value in known.items() if value is not None}

    def settings(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the values of its fields, as a host passes them."""
        fields = self.plugin.fields
        # The same precedence as in a host: an argument, the author's options, then a variable.
        given = {**self.options.config, **(more or {})}
        for each in fields:
            if each.key not in given and os.environ.get(each.variable):
                given[each.key] = os.environ[each.variable]
        values = {key: Value(value, "argument") for key, value in given.items()}
        # `given` first: also values for keys that its schema does not list are passed on.
        return {**given, **validate_values(fields, values, self.info.name).values}

    def likely_settings(self) -> dict[str, Any]:
        """Return what a user who accepts every default would save."""
        secret = {each.key for each in self.plugin.fields if each.secret}
        return {key: value for key, value in self.settings().items() if key not in secret}

    def start(self, driver: Driver, session: str = "session-1", **more: Any) -> Driver:
        """Start a session; skip if that fails, because another check reports it."""
        # Tried once per process. Without this, each check would wait for the same deadline.
        if self.plugin.no_start:
            raise Skipped(self.plugin.no_start)
        problem = self._start_problem(driver, session, more)
        if problem:
            # What fails with the settings of one check says nothing about the others.
            self.plugin.no_start = problem if "provider_config" not in more else None
            raise Skipped(problem)
        return driver

    def _start_problem(self, driver: Driver, session: str, more: Mapping[str, Any]) -> str:
        available = driver.ask("is_available")
        if not available.value:
            why = driver.ask("unavailable_reason").value
            return f"{UNAVAILABLE}: {why or 'the plugin reports no reason'}"
        answer = self.initialize(driver, session, **more)
        return f"its initialize {failure_text(answer.error)}" if answer.error is not None else ""

    def initialize(self, driver: Driver, session: str, **more: Any) -> Answer:
        """Call ``initialize`` and return its outcome, also if it fails."""
        # Before the call: a plugin that fails half-way still has something to shut down.
        driver.started = True
        return driver.ask("initialize", session, **self.facts(**more))

    def started(self, session: str = "session-1", **more: Any) -> Driver:
        """Return a driver for a provider with a started session."""
        return self.start(self.driver(), session, **more)

    def overridden(self, hook: str, otherwise: str) -> None:
        """Skip unless the plugin overrides the method."""
        if not self.drivers[0].has(hook):
            raise Skipped(otherwise)

    # -- recall ----------------------------------------------------------------------------

    def recalls(self) -> bool:
        """Return whether the plugin recalls a stored turn here; tried once."""
        if self.plugin.no_recall is None:
            self.plugin.no_recall = self._recall_problem()
        return not self.plugin.no_recall

    def recalling(self) -> None:
        """Skip unless the plugin recalls."""
        if not self.recalls():
            raise Skipped(self.plugin.no_recall)

    def _recall_problem(self) -> str:
        # In a separate home, so that the turn of this test is not found by the check that asked.
        driver = self.started("session-probe", hermes_home=str(self.new_home()))
        if not driver.has("prefetch"):
            return "it recalls nothing by prefetch"
        marker = self.remember(driver, "session-probe")
        if self.finds(driver, marker, "session-probe"):
            return ""
        if self.cut_off():
            return f"its recall {NEEDS_NETWORK}"
        return "it does not recall what was synced"

    def remember(self, driver: Driver, session: str, topic: str = "parrot") -> str:
        """Store a turn, and return the unique word in it."""
        # A word that no text has by chance and no stemmer changes. The topic is what is asked for,
        # so that search by meaning finds it as well.
        marker = f"zq{secrets.token_hex(6)}"
        driver.call(
            "sync_turn",
            f"My {topic} is called {marker}.",
            f"Noted: your {topic} is called {marker}.",
            session_id=session,
            messages=conversation(f"My {topic} is called {marker}.", "Noted."),
        )
        return marker

    def finds(self, driver: Driver, marker: str, session: str, topic: str = "parrot") -> bool:
        """Return whether a turn is recalled within the time that the options allow."""
        # Waits for the result, not for a fixed time: a fast plugin is checked in two seconds, and
        # a slow one does not fail. That something is NOT recalled is checked only after this.
        seconds = _OFFLINE if self.cut_off() else self.options.limits.settle
        return self.until(lambda: marker in self.recall(driver, session, topic), seconds)

    def recall(self, driver: Driver, session: str, topic: str = "parrot") -> str:
        """Return what is recalled for a question about a topic."""
        question = f"What is my {topic} called?"
        recalled = driver.ask("prefetch", question, session_id=session).value
        # Some plugins recall only what `queue_prefetch` prepared after the turn before.
        if not recalled:
            driver.ask("queue_prefetch", question, session_id=session)
            recalled = driver.ask("prefetch", question, session_id=session).value
        return recalled if isinstance(recalled, str) else ""

    def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Return whether a condition becomes true in time."""
        limit = self.options.limits.settle if seconds is None else seconds
        end = time.monotonic() + limit
        while not condition():
            # Checked after the condition, so that it is evaluated once more at the end of the
            # time.
            if time.monotonic() > end:
                return False
            time.sleep(_POLL)
        return True

    # -- a whole session -------------------------------------------------------------------

    def live_through(self, driver: Driver, session: str = "session-1") -> None:
        """Run a whole session as a host does. Failures are ignored: other checks report them."""
        self.take_turns(driver, session)
        driver.ask("on_delegation", "Find it.", "Found.", child_session_id="child-1")
        driver.ask("on_pre_compress", conversation("Where is the key?", "Under the mat."))
        driver.ask("on_session_switch", "session-next", parent_session_id=session, reset=True)
        driver.ask("on_session_end", conversation("Where is the key?", "Under the mat."))

    def take_turns(self, driver: Driver, session: str = "session-1") -> None:
        """Run two turns, call each tool, and write a note."""
        for number in (1, 2):
            driver.ask("on_turn_start", number, "Where is the key?", platform="cli")
            driver.ask("prefetch", "Where is the key?", session_id=session)
            driver.ask(
                "sync_turn",
                "Where is the key?",
                "Under the mat.",
                session_id=session,
                messages=conversation("Where is the key?", "Under the mat."),
            )
            driver.ask("queue_prefetch", "Where is the key?", session_id=session)
        driver.ask("system_prompt_block")
        for schema in sound_schemas(driver):
            driver.ask("handle_tool_call", schema["name"], sample_arguments(schema))
        driver.ask("on_memory_write", "add", "memory", "The key is under the mat.", metadata={})

    def close(self) -> None:
        """Close everything that the check opened."""
        for driver in self.drivers:
            driver.close()


def conversation(user: str, assistant: str) -> list[dict[str, Any]]:
    """Return one turn as a list of messages."""
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def no_events(events: list[Event], kind: str, doing: str, where: str) -> None:
    """Fail if there are events of a kind."""
    seen = list(dict.fromkeys(each.what for each in events if each.kind == kind))
    if seen:
        raise Failed(f"{doing}: {', '.join(seen[:3])}", where=where)


_GOOD: Final[Mapping[str, Any]] = {
    "string": "parrot", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {},
}  # fmt: skip


def sound_schemas(driver: Driver) -> list[dict[str, Any]]:
    """Return the valid schemas of its tools, without wrapper."""
    found = []
    for schema in driver.ask("get_tool_schemas").value or ():
        try:
            found.append(normalise_schema(schema))
        except ToolError:
            continue
    return found


def sample_arguments(schema: dict[str, Any], *, required_only: bool = False) -> dict[str, Any]:
    """Return arguments that a model could send."""
    parameters = schema["parameters"]
    wanted = parameters.get("required") or () if required_only else parameters.get("properties")
    properties = parameters.get("properties") or {}
    return {name: _value(properties.get(name, {})) for name in wanted or ()}


def _value(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return "parrot"
    # What the author declares is surely valid; a value made from the type may not be.
    given = [schema[key] for key in ("const", "default") if key in schema]
    given += list(schema.get("enum") or ())[:1]
    if given:
        return given[0]
    kinds = schema.get("anyOf") or schema.get("oneOf")
    return _value(kinds[0]) if kinds else _plain_value(schema)


def _plain_value(schema: dict[str, Any]) -> Any:
    kind = kind_of(schema)
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", _GOOD[kind]))
    if kind == "array" and schema.get("minItems"):
        return [_value(schema.get("items"))]
    if kind == "object":
        required = schema.get("required") or ()
        return {name: _value(schema.get("properties", {}).get(name, {})) for name in required}
    return _GOOD.get(kind, "parrot")


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a property, or the first of several."""
    kind = schema.get("type", "string")
    return str(kind[0] if isinstance(kind, list) and kind else kind)
