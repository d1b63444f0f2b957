"""`ServiceProvider`: the base class of plugins whose memories are in a service.

The types that it passes to a plugin come first, then the class, then the plugin's own settings
file.
"""

from __future__ import annotations

import json
import logging
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from hermes_core.errors import HermesError, describe
from hermes_core.provider import MemoryProvider, ProbeResult, RecallStatus
from hermes_core.service.failures import BackendError, Cause, failure
from hermes_core.service.write_queue import WriteQueue
from hermes_core.session import SessionContext

logger = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 4.0  # hosts give shutdown 5
_MORE_TIME: Final = (
    "the turn went on without it; to wait longer: hermes-plugins config set memory.{}.{} SECONDS, "
    "and memory.prefetch_budget"
)


# Not `SessionContext`, which passes on what the host said: ids that may be numbers or None. A
# plugin sends ids to a service, so each is a text here, "" if it is not known; the home is a path.
class SessionStart(NamedTuple):
    """The arguments of ``initialize``. ``config`` is empty if the host reads no settings."""

    session_id: str
    home: Path
    platform: str = "cli"
    context: str = "primary"
    profile: str = "default"
    workspace: str = "hermes"
    user_id: str = ""
    user_id_alt: str = ""
    user_name: str = ""
    chat_id: str = ""
    thread_id: str = ""
    session_title: str = ""
    parent_session_id: str = ""
    gateway_session_key: str = ""
    config: Mapping[str, Any] = MappingProxyType({})


class CompletedTurn(NamedTuple):
    """A completed turn. ``id`` is the same in every attempt, ``attempt`` counts from 1.

    ``said_at`` is when it was said, in Unix seconds, the same in every attempt; 0.0 if the host
    does not say.
    """

    id: str
    attempt: int
    session_id: str
    user: str
    assistant: str
    messages: list[dict[str, Any]] | None = None
    said_at: float = 0.0


class Note(NamedTuple):
    """A change of the built-in notes; ``old_text`` is what a replace or remove deletes.

    A host without an outbox, such as hermes-agent, may pass only a part of it: then
    ``old_is_whole`` is False, and the part occurs in one note only. ``said_at`` as in
    `CompletedTurn`.
    """

    id: str
    attempt: int
    session_id: str
    action: str
    target: str
    content: str
    old_text: str
    metadata: Mapping[str, Any]
    old_is_whole: bool = True
    said_at: float = 0.0


class Delegation(NamedTuple):
    """The task of a subagent and its result; ``said_at`` as in `CompletedTurn`."""

    id: str
    attempt: int
    session_id: str
    task: str
    result: str
    child_session_id: str
    said_at: float = 0.0


class SessionEnd(NamedTuple):
    """The end of a session, with its whole conversation."""

    id: str
    attempt: int
    session_id: str
    messages: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RecallResult:
    """What was found for a message, and how many memories that is."""

    text: str = ""
    count: int = 0


class Tool(NamedTuple):
    """A tool for the model.

    Attributes:
        schema: The tool's JSON schema for the model.
        run: Gets validated arguments and returns the answer.
        writes: Whether only the agent itself may call it, not a cron job or a subagent.
    """

    schema: dict[str, Any]
    run: Callable[[dict[str, Any]], dict[str, Any]]
    writes: bool = False

    def problem(self, given: dict[str, Any]) -> str:
        """Return what is wrong with the arguments; "" if nothing is."""
        # Checked here, not left to the service: the model gets a message that it can act on at
        # once.
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow, only where it is used

        validator = Draft202012Validator(self.schema["parameters"])
        return "; ".join(
            f"{'.'.join(map(str, error.path))}: {error.message}" if error.path else error.message
            for error in validator.iter_errors(given)
        )


class ServiceProvider(MemoryProvider):
    """A provider whose memories are in a service.

    A plugin implements the calls of its service: `connect`, `recall`, `write_turn` and the others
    below. It starts no thread and catches no error of its SDK; `explain` translates those. With
    an outbox (the host passes ``turn_id`` or ``event_id``) a write runs at once, and raises if
    the service did not accept it. Without one, as in hermes-agent, writes go to a `WriteQueue`.
    """

    confirms_delivery = True

    #: The name of the service for people, and its glyph.
    label: ClassVar[str]
    glyph: ClassVar[str] = "🧠"
    #: The setting that limits a recall, for the hint when one is too slow.
    recall_setting: ClassVar[str] = "timeout"

    def __init__(self) -> None:
        self._start: SessionStart | None = None
        self._context = SessionContext()
        self._recalled = 0
        self._queue: WriteQueue | None = None
        #: The current session.
        self.session_id = ""

    # -- what a plugin implements -------------------------------------------------------------

    @abstractmethod
    def connect(self, start: SessionStart) -> None:
        """Prepare the client without calling the service, which may be unreachable just now."""

    def disconnect(self) -> None:
        """Release what `connect` made. May be called twice."""

    @abstractmethod
    def recall(self, query: str, session_id: str) -> RecallResult:
        """Return what the service finds for a message."""

    def warm(self, query: str, session_id: str) -> None:
        """Prepare the next recall, after a turn."""

    @abstractmethod
    def write_turn(self, turn: CompletedTurn) -> None:
        """Store a turn exactly once: an earlier attempt may have succeeded."""

    @abstractmethod
    def write_note(self, note: Note) -> None:
        """Apply a change of the built-in notes."""

    def write_delegation(self, delegation: Delegation) -> None:
        """Store the result of a subagent."""

    def write_ending(self, ending: SessionEnd) -> None:
        """Do what the service needs at the end of a session."""

    def switch(self, old: str, new: str, *, parent: str, reset: bool, rewound: bool) -> None:
        """Continue with another session."""

    @abstractmethod
    def explain(self, error: Exception) -> BackendError:
        """Translate an exception of the SDK."""

    def tools(self) -> Sequence[Tool]:
        """Return the tools for the model."""
        return ()

    @abstractmethod
    def try_out(self, *, write: bool) -> str:
        """Check that the service works, clean up, and return the result in one line.

        Args:
            write: Also write something, recall it, and delete it.
        """

    # -- for plugins ---------------------------------------------------------------------------

    @property
    def start(self) -> SessionStart:
        """The arguments of `initialize`.

        Raises:
            HermesError: It has not been called.
        """
        if self._start is None:
            raise HermesError("initialize has not been called", where=self.name)
        return self._start

    @property
    def writes(self) -> bool:
        """Whether this is the agent itself: what a cron job says is not stored."""
        return self.start.context == "primary"

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Translate what the SDK raises with `explain`."""
        try:
            yield
        except HermesError:
            raise
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> HermesError:
        explained = self.explain(error)
        # The built-in type exactly: it comes from our event loop or a socket, and plugins tend to
        # classify it with the other OSErrors as unreachable. Subclasses belong to an SDK, which
        # knows better.
        if type(error) is TimeoutError and explained.cause is not Cause.SLOW:
            return failure(Cause.SLOW, service=self.name)
        return explained

    # -- a session ----------------------------------------------------------------------------

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Start a session, without network access."""
        # A host may call `initialize` twice, after a failure or for another session.
        self.shutdown()
        self._context = SessionContext.from_keywords(session_id, kwargs)
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
        **kwargs: Any,
    ) -> None:
        """Continue with another session, or start again if somebody else talks now."""
        old, self.session_id = self.session_id, new_session_id
        if self._start is None:
            return
        before = self._context
        self._context = before.switched(new_session_id, parent_session_id, kwargs)
        if self._context.participants() != before.participants():
            self.initialize(new_session_id, **self._context.keywords())
            return
        with self.explaining():
            self.switch(old, new_session_id, parent=parent_session_id, reset=reset, rewound=rewound)

    def shutdown(self) -> None:
        """Deliver queued writes as far as time allows, and disconnect."""
        waiting, self._queue = self._queue, None
        if waiting is not None:
            # Before `disconnect`: the queued writes need the connection.
            waiting.close(_DRAIN_SECONDS)
        if self._start is not None:
            self._start = None
            with self.explaining():
                self.disconnect()

    # -- recall -------------------------------------------------------------------------------

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Recall for a message."""
        if self._start is None or not query.strip():
            return ""
        self._recalled = 0
        try:
            with self.explaining():
                found = self.recall(query, session_id or self.session_id)
        except BackendError as error:
            if error.cause is Cause.SLOW:  # the hint of a write names another setting
                error.hint = _MORE_TIME.format(self.name, self.recall_setting)
            raise
        self._recalled = found.count
        return found.text

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Prepare the next recall."""
        if self._start is not None:
            with self.explaining():
                self.warm(query, session_id or self.session_id)

    def recall_status(self) -> RecallStatus | None:
        """Return how many memories the last recall found."""
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
        said_at: float = 0.0,
    ) -> None:
        """Store a turn."""
        # Taken now, not when the write runs: a queued write may run after a change of session.
        session = session_id or self.session_id
        said = said_at or time()  # a host without an outbox does not pass it

        def write(key: str, nth: int) -> None:
            turn = CompletedTurn(key, nth, session, user_content, assistant_content, messages, said)
            self.write_turn(turn)

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
        said_at: float = 0.0,
    ) -> None:
        """Apply a change of the notes."""
        facts, said = metadata or {}, said_at or time()
        old = str(facts.get("old_text") or "")
        session = str(facts.get("session_id") or self.session_id)
        # Some hosts pass the removed text as `content` only.
        if action == "remove":
            old = old or content

        def write(key: str, nth: int) -> None:
            # Only a host with an outbox passes an event id, and such a host passes the whole old
            # text.
            whole = bool(event_id)
            note = Note(key, nth, session, action, target, content, old, facts, whole, said)
            self.write_note(note)

        self._write("a note", event_id, attempt, write)

    def on_delegation(
        self,
        task: str,
        result: str,
        *,
        child_session_id: str = "",
        event_id: str = "",
        attempt: int = 1,
        said_at: float = 0.0,
        **kwargs: Any,  # noqa: ARG002 - later hosts pass more
    ) -> None:
        """Store the result of a subagent."""
        session, said = self.session_id, said_at or time()

        def write(key: str, nth: int) -> None:
            delegation = Delegation(key, nth, session, task, result, child_session_id, said)
            self.write_delegation(delegation)

        self._write("a subagent's result", event_id, attempt, write)

    def on_session_end(
        self, messages: list[dict[str, Any]], *, event_id: str = "", attempt: int = 1
    ) -> None:
        """Write the end of a session."""
        session = self.session_id

        def write(key: str, nth: int) -> None:
            self.write_ending(SessionEnd(key, nth, session, messages))

        self._write("a session's end", event_id, attempt, write)

    def _write(self, what: str, key: str, attempt: int, run: Callable[[str, int], None]) -> None:
        """Write now for a host with an outbox; queue it for one without."""
        if not self.writes:
            return
        if key:
            with self.explaining():
                run(key, attempt)
            return
        # Drawn once per write, so that all tries have the same identity.
        own = uuid.uuid4().hex
        if self._queue is None:
            self._queue = WriteQueue(self.name)
        self._queue.put(what, lambda again: self._write_queued(run, own, again))

    def _write_queued(self, run: Callable[[str, int], None], key: str, attempt: int) -> None:
        with self.explaining():
            run(key, attempt)

    # -- tools --------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of `tools`."""
        return [tool.schema for tool in self.tools()]

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        """Run a tool; an error becomes its answer."""
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
        # Models pass null for what they leave out, which a schema of strings would reject.
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
        """Return whether the service works."""
        try:
            with self.explaining():
                return ProbeResult(ok=True, detail=self.try_out(write=write))
        except HermesError as error:
            return ProbeResult(ok=False, detail=str(error))


def _started(session_id: str, kwargs: dict[str, Any]) -> SessionStart:
    # Ids may be numbers (Telegram's are): plugins get text in every case.
    # An id may be 0: only None and "" mean that it is not known.
    given = {name: str(value) for name, value in kwargs.items() if value not in (None, "")}
    session = SessionContext.from_keywords(session_id, given)
    known = {name: getattr(session, name, None) for name in SessionStart._fields}
    return SessionStart(
        **{name: value for name, value in known.items() if value is not None},
        home=Path(session.hermes_home),
        context=session.agent_context,
        profile=session.agent_identity,
        workspace=session.agent_workspace,
        config=dict(kwargs.get("provider_config") or {}),
    )
