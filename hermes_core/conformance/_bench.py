"""What a check gets: fresh homes, providers to call, and what they reach for."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hermes_core.conformance._arguments import sample_arguments, sound_schemas
from hermes_core.conformance._driver import Answer, Driver, told
from hermes_core.conformance._model import NEEDS_NETWORK, UNAVAILABLE, Failed, Options, Skipped
from hermes_core.conformance._stage import Stage
from hermes_core.conformance._watch import Event, Watch
from hermes_core.discovery import ProviderInfo
from hermes_core.loading import load_provider
from hermes_core.provider import MemoryProvider
from hermes_core.schema import Value, settle

_POLL: Final = 0.02
_OFFLINE: Final = 1.0  # how long a recall is waited for that has met a closed network


@dataclass(slots=True)
class Bench:
    """One check's own: nothing of it outlives the check."""

    stage: Stage
    drivers: list[Driver] = field(default_factory=list)
    home: Path = field(init=False)
    #: Users are the run's own: a live backend remembers those of the last one.
    person: str = field(default_factory=lambda: f"user-{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self.home = self.new_home()

    @property
    def info(self) -> ProviderInfo:
        """What is known of the plugin without importing it."""
        return self.stage.info

    @property
    def options(self) -> Options:
        """What its author says."""
        return self.stage.options

    @property
    def watch(self) -> Watch:
        """What it reaches for."""
        return self.stage.watch

    def new_home(self) -> Path:
        """Another empty Hermes home."""
        self.stage.homes += 1
        folder = self.stage.scratch / "homes" / str(self.stage.homes)
        folder.mkdir(mode=0o700, parents=True)
        return folder

    def provider(self) -> MemoryProvider:
        """The plugin's provider, loaded once more."""
        return load_provider(self.info, self.home, deadline=self.options.limits.load)

    def driver(self) -> Driver:
        """A provider that has not been started."""
        made = Driver(self.provider(), self.stage.places, self.options.limits, self.cut_off)
        self.drivers.append(made)
        return made

    def pair(self) -> tuple[Driver, Driver]:
        """Two providers; skips where a plugin has only one object for all."""
        first, second = self.driver(), self.driver()
        if first.provider is second.provider:
            raise Skipped("its entry point gives one object for all: there can't be two")
        return first, second

    def cut_off(self) -> bool:
        """Whether the plugin has tried the network, and was refused."""
        return self.watch.network_was_tried and not self.options.live

    def facts(self, **more: Any) -> dict[str, Any]:
        """What ``initialize`` gets from a host; what is None is not given."""
        known = {
            "hermes_home": str(self.home),
            "platform": "cli",
            "agent_context": "primary",
            "agent_identity": "default",
            "agent_workspace": "hermes",
            "user_id": self.person,
            "provider_config": self.settings(),
            **more,
        }
        return {key: value for key, value in known.items() if value is not None}

    def settings(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The values of its fields, as a host hands them over."""
        fields = self.stage.fields
        given = {**self.options.config, **(more or {})}
        for each in fields:
            if each.key not in given and os.environ.get(each.variable):
                given[each.key] = os.environ[each.variable]
        values = {key: Value(value, "argument") for key, value in given.items()}
        return {**given, **settle(fields, values, self.info.name).values}

    def likely_settings(self) -> dict[str, Any]:
        """What a person who accepts every default would have saved."""
        secret = {each.key for each in self.stage.fields if each.secret}
        return {key: value for key, value in self.settings().items() if key not in secret}

    def start(self, driver: Driver, session: str = "session-1", **more: Any) -> Driver:
        """Start a session; skips where that is not possible, since another check says so."""
        if self.stage.no_start:
            raise Skipped(self.stage.no_start)
        available = driver.ask("is_available")
        if not available.value:
            why = driver.ask("unavailable_reason").value
            self.stage.no_start = f"{UNAVAILABLE}: {why or 'it gives no reason'}"
            raise Skipped(self.stage.no_start)
        answer = self.initialize(driver, session, **more)
        if answer.error is not None:
            self.stage.no_start = f"its initialize {told(answer.error)}"
            raise Skipped(self.stage.no_start)
        return driver

    def initialize(self, driver: Driver, session: str, **more: Any) -> Answer:
        """Start a session, whatever comes of it."""
        driver.started = True
        return driver.ask("initialize", session, **self.facts(**more))

    def started(self, session: str = "session-1", **more: Any) -> Driver:
        """A provider with a session."""
        return self.start(self.driver(), session, **more)

    def overridden(self, hook: str, otherwise: str) -> None:
        """Skip unless the plugin has the method from itself."""
        if not self.drivers[0].has(hook):
            raise Skipped(otherwise)

    # -- recall ----------------------------------------------------------------------------

    def recalls(self) -> bool:
        """Whether the plugin recalls here what it was given; tried once."""
        if self.stage.no_recall is None:
            self.stage.no_recall = self._recall_problem()
        return not self.stage.no_recall

    def recalling(self) -> None:
        """Skip unless the plugin recalls."""
        if not self.recalls():
            raise Skipped(self.stage.no_recall)

    def _recall_problem(self) -> str:
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
        """Sync a turn; gives the word by which it is known again."""
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
        """Whether a turn comes back, at once or after a while."""
        seconds = _OFFLINE if self.cut_off() else self.options.limits.settle
        return self.until(lambda: marker in self.recall(driver, session, topic), seconds)

    def recall(self, driver: Driver, session: str, topic: str = "parrot") -> str:
        """What is recalled for a question about a topic."""
        question = f"What is my {topic} called?"
        recalled = driver.ask("prefetch", question, session_id=session).value
        if not recalled:
            driver.ask("queue_prefetch", question, session_id=session)
            recalled = driver.ask("prefetch", question, session_id=session).value
        return recalled if isinstance(recalled, str) else ""

    def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Whether a condition comes true in time."""
        limit = self.options.limits.settle if seconds is None else seconds
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL)
        return True

    # -- what is left behind ---------------------------------------------------------------

    def live_through(self, driver: Driver, session: str = "session-1") -> None:
        """A whole session, as a host leads it. What fails is others' business."""
        self.take_turns(driver, session)
        driver.ask("on_delegation", "Find it.", "Found.", child_session_id="child-1")
        driver.ask("on_pre_compress", conversation("Where is the key?", "Under the mat."))
        driver.ask("on_session_switch", "session-next", parent_session_id=session, reset=True)
        driver.ask("on_session_end", conversation("Where is the key?", "Under the mat."))

    def take_turns(self, driver: Driver, session: str = "session-1") -> None:
        """Two turns, a call of each tool, and a note."""
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
        """End what the check has begun."""
        for driver in self.drivers:
            driver.close()


def conversation(user: str, assistant: str) -> list[dict[str, Any]]:
    """One turn as a list of messages."""
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def no_events(events: list[Event], kind: str, doing: str, where: str) -> None:
    """Fail if something of a kind has happened."""
    seen = list(dict.fromkeys(each.what for each in events if each.kind == kind))
    if seen:
        raise Failed(f"{doing}: {', '.join(seen[:3])}", where=where)
