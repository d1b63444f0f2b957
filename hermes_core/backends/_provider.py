"""`ServiceProvider`: the contract, for a plugin whose memories are in a service."""

from __future__ import annotations

import json
import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from hermes_core.backends._failures import BackendError, Cause, failure
from hermes_core.backends._model import (
    Delegation,
    Ending,
    Note,
    ProbeResult,
    Recalled,
    Start,
    Tool,
    Turn,
)
from hermes_core.backends._queue import WriteQueue
from hermes_core.errors import HermesError, describe
from hermes_core.provider import MemoryProvider
from hermes_core.recall import RecallStatus

logger = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 4.0  # hosts give shutdown 5
#: Facts that hosts know under another name than we do.
_CALLED: Final = {
    "context": "agent_context",
    "profile": "agent_identity",
    "workspace": "agent_workspace",
}


class ServiceProvider(MemoryProvider):
    """A provider whose memories are in a service.

    A plugin says how the service is asked: `connect`, `recall`, `write_turn` and the others
    below. It starts no thread and catches no error of its SDK; `explain` tells what one means.
    With an outbox (the host names ``turn_id`` or ``event_id``) a write is carried out where it
    is asked for, and raises if the service did not take it. Without one, as in hermes-agent,
    writes wait in a `WriteQueue`.
    """

    confirms_delivery = True

    #: How the service is called where a person sees it, and its sign.
    label: ClassVar[str]
    glyph: ClassVar[str] = "🧠"

    def __init__(self) -> None:
        self._start: Start | None = None
        self._recalled = 0
        self._queue: WriteQueue | None = None
        #: The session that runs now.
        self.session_id = ""

    # -- what a plugin implements -------------------------------------------------------------

    @abstractmethod
    def connect(self, start: Start) -> None:
        """Make ready to ask the service, without asking it yet: it may be away just now."""

    def disconnect(self) -> None:
        """Let go of what `connect` made. May be called twice."""

    @abstractmethod
    def recall(self, query: str, session_id: str) -> Recalled:
        """What the service has for a message."""

    def warm(self, query: str, session_id: str) -> None:
        """After a turn: do what makes the next recall faster."""

    @abstractmethod
    def write_turn(self, turn: Turn) -> None:
        """Store a turn, once: an earlier attempt may have come through."""

    @abstractmethod
    def write_note(self, note: Note) -> None:
        """Follow a change of the built-in notes."""

    def write_delegation(self, delegation: Delegation) -> None:
        """Store what a subagent found out."""

    def write_ending(self, ending: Ending) -> None:
        """Do what is to be done when a session ends."""

    def switch(self, old: str, new: str, *, parent: str, reset: bool, rewound: bool) -> None:
        """The session is another one from now on."""

    @abstractmethod
    def explain(self, error: Exception) -> BackendError:
        """What an exception of the SDK means."""

    def tools(self) -> Sequence[Tool]:
        """What the model may call."""
        return ()

    @abstractmethod
    def try_out(self, *, write: bool) -> str:
        """Prove that the service works, and clean up; what was seen, in one line.

        Args:
            write: Also write something, recall it, and remove it.
        """

    # -- what it finds ------------------------------------------------------------------------

    @property
    def start(self) -> Start:
        """What `initialize` was told.

        Raises:
            HermesError: It was not called.
        """
        if self._start is None:
            raise HermesError("initialize has not been called", where=self.name)
        return self._start

    @property
    def writes(self) -> bool:
        """Whether this is the agent itself: what a cron job says is no memory of a person."""
        return self.start.context == "primary"

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn what the SDK raises into one line for a person."""
        try:
            yield
        except HermesError:
            raise
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> HermesError:
        told = self.explain(error)
        if type(error) is TimeoutError and told.cause is not Cause.SLOW:
            return failure(Cause.SLOW, service=self.name)
        return told

    # -- a session ----------------------------------------------------------------------------

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Make ready, without the network."""
        self.shutdown()
        self._start = start = _started(session_id, kwargs)
        self.session_id = session_id
        try:
            with self.explaining():
                self.connect(start)
        except HermesError:
            self._start = None  # there is no session
            raise

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,  # noqa: ARG002 - hosts tell more over time
    ) -> None:
        """Go on with another session."""
        old, self.session_id = self.session_id, new_session_id
        if self._start is None:
            return
        with self.explaining():
            self.switch(old, new_session_id, parent=parent_session_id, reset=reset, rewound=rewound)

    def shutdown(self) -> None:
        """Deliver what waits, as far as there is time, and let go."""
        waiting, self._queue = self._queue, None
        if waiting is not None:
            waiting.close(_DRAIN_SECONDS)
        if self._start is not None:
            self._start = None
            with self.explaining():
                self.disconnect()

    # -- recall -------------------------------------------------------------------------------

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Ask with the message at hand."""
        if self._start is None or not query.strip():
            return ""
        self._recalled = 0
        with self.explaining():
            found = self.recall(query, session_id or self.session_id)
        self._recalled = found.count
        return found.text

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Warm up."""
        if self._start is not None:
            with self.explaining():
                self.warm(query, session_id or self.session_id)

    def recall_status(self) -> RecallStatus | None:
        """How many memories the last recall gave."""
        return RecallStatus(self.label, self._recalled, self.glyph) if self._recalled else None

    # -- writes -------------------------------------------------------------------------------

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
        turn_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Store a turn."""
        session = session_id or self.session_id

        def write(key: str, nth: int) -> None:
            self.write_turn(Turn(key, nth, session, user_content, assistant_content, messages))

        self._write("a turn", turn_id, attempt, write)

    def on_memory_write(
        self,
        action: str,
        target: str,
        content: str,
        metadata: dict[str, Any] | None = None,
        *,
        event_id: str = "",
        attempt: int = 1,
    ) -> None:
        """Follow a change of the notes."""
        facts = metadata or {}
        old = str(facts.get("old_text") or "")
        session = str(facts.get("session_id") or self.session_id)
        if action == "remove":
            old = old or content

        def write(key: str, nth: int) -> None:
            whole = bool(event_id)
            self.write_note(Note(key, nth, session, action, target, content, old, facts, whole))

        self._write("a note", event_id, attempt, write)

    def on_delegation(
        self,
        task: str,
        result: str,
        *,
        child_session_id: str = "",
        event_id: str = "",
        attempt: int = 1,
        **kwargs: Any,  # noqa: ARG002 - hosts tell more over time
    ) -> None:
        """Store what a subagent found out."""
        session = self.session_id

        def write(key: str, nth: int) -> None:
            self.write_delegation(Delegation(key, nth, session, task, result, child_session_id))

        self._write("a subagent's result", event_id, attempt, write)

    def on_session_end(
        self, messages: list[dict[str, Any]], *, event_id: str = "", attempt: int = 1
    ) -> None:
        """The session is over."""
        session = self.session_id

        def write(key: str, nth: int) -> None:
            self.write_ending(Ending(key, nth, session, messages))

        self._write("a session's end", event_id, attempt, write)

    def _write(self, what: str, key: str, attempt: int, run: Callable[[str, int], None]) -> None:
        """Write now for a host with an outbox, in the queue for one without."""
        if not self.writes:
            return
        if key:
            with self.explaining():
                run(key, attempt)
            return
        own = uuid.uuid4().hex
        if self._queue is None:
            self._queue = WriteQueue(self.name)
        self._queue.put(what, lambda again: self._write_queued(run, own, again))

    def _write_queued(self, run: Callable[[str, int], None], key: str, attempt: int) -> None:
        with self.explaining():
            run(key, attempt)

    # -- tools --------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The schemas of `tools`."""
        return [tool.schema for tool in self.tools()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        """Run a tool. What goes wrong is an answer too."""
        try:
            answer = self._called(tool_name, args)
        except Exception as error:  # noqa: BLE001 - an answer for the model, whatever happened
            logger.warning("%s failed: %s", tool_name, describe(error))
            answer = {"error": describe(error)}
        return json.dumps(answer, ensure_ascii=False, default=str)

    def _called(self, tool_name: str, args: dict[str, Any]) -> dict[str, Any]:
        tool = next((each for each in self.tools() if each.schema["name"] == tool_name), None)
        if tool is None:
            return {"error": f"{self.name} has no tool {tool_name}"}
        given = {key: value for key, value in (args or {}).items() if value is not None}
        problem = tool.problem(given)
        if problem:
            return {"error": problem}
        if tool.writes and not self.writes:
            return {"error": f"{tool_name} is not for a {self.start.context} agent: it only reads"}
        with self.explaining():
            return tool.run(given)

    # -- proof --------------------------------------------------------------------------------

    def probe(self, write: bool) -> ProbeResult:
        """Whether the service works."""
        try:
            with self.explaining():
                return ProbeResult(ok=True, detail=self.try_out(write=write))
        except HermesError as error:
            return ProbeResult(ok=False, detail=str(error))


def _started(session_id: str, kwargs: dict[str, Any]) -> Start:
    facts = {name: kwargs.get(_CALLED.get(name, name)) for name in Start._fields}
    told: dict[str, Any] = {name: str(value) for name, value in facts.items() if value}
    told |= {"session_id": session_id, "home": Path(kwargs["hermes_home"])}
    return Start(**{**told, "config": dict(kwargs.get("provider_config") or {})})
