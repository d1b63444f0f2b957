"""How a manager's writes get into the outbox: without secrets, as JSON, one stream per session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from json import dumps
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hermes_core.dispatch import HookCalls, LossCounter, ProviderAdapter, new_event
from hermes_core.errors import HermesError, describe
from hermes_core.hookspecs import IDENTITIES
from hermes_core.outbox.delivery import SessionStream
from hermes_core.outbox.records import StreamKey, turn_id
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.outbox.store import DEFAULT_MAX_MB
from hermes_core.outbox.worker import Outbox, ProviderFactory, open_outbox
from hermes_core.session import SessionContext
from hermes_core.storage.logger import logger

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database


#: What a value raises that can't be encoded as JSON, or can't be searched for secrets.
_NOT_ENCODABLE: Final = (TypeError, ValueError, RecursionError, HermesError)


class OutboxSettings(NamedTuple):
    """How a provider's writes are stored and delivered.

    Attributes:
        max_mb: How large the outbox may grow.
        durable: Whether a write survives a power cut, too.
        owner: The distribution that the provider came from.
        make_provider: Makes a new instance of the provider for inherited streams.
        database: Where the home stores what it remembers; None for files.
    """

    max_mb: float = DEFAULT_MAX_MB
    durable: bool = False
    owner: str = ""
    make_provider: ProviderFactory | None = None
    database: Database | None = None


class OutboxWriter:
    """Stores the writes of one manager for its external provider, and has them delivered.

    Args:
        adapter: Calls the provider.
        hooks: Where observers see the calls.
        home: Returns the folder of the outbox; called when the first session starts.
        settings: How the writes are stored and delivered.
    """

    def __init__(
        self,
        adapter: ProviderAdapter,
        hooks: HookCalls,
        home: Callable[[], Path],
        settings: OutboxSettings,
    ) -> None:
        self._adapter = adapter
        self._hooks = hooks
        self._home = home
        self._settings = settings
        self._outbox: Outbox | None = None
        self._spool: OutboxSpool | None = None
        self._session = SessionContext()
        self._current: SessionStream | None = None
        self._sessions: list[SessionStream] = []
        self._unstored = LossCounter("write", f"provider {adapter.name}: ")
        self._damage = ""

    @property
    def warnings(self) -> list[str]:
        """What happened to writes that could not be stored."""
        if self._outbox is not None:
            self._damage = str(self._outbox.store.problem or "")
        return [each for each in (self._unstored.text, self._late_text, self._damage) if each]

    @property
    def _late_text(self) -> str:
        """A warning about writes that the server of the outbox could not take yet; or ""."""
        text = self._spool.text() if self._spool is not None else ""
        return text and f"provider {self._adapter.name}: {text}"

    def begin(self, session: SessionContext) -> None:
        """A session starts: what it writes is stored under this context."""
        if self._outbox is None:
            settings = self._settings
            self._outbox = open_outbox(
                self._home(),
                max_mb=settings.max_mb,
                durable=settings.durable,
                database=settings.database,
            )
            self._spool = self._outbox.spool
        if self._current is not None:
            self._outbox.close_session(self._current)
        self._enter(session)

    def _enter(self, session: SessionContext) -> None:
        self._session = session
        if self._outbox is None:
            return
        # The key is stored in the file, so it must not contain a secret either. It identifies the
        # session for later processes: the same session must always have the same key.
        clean = self._adapter.redact_session(session.keywords())
        stored = SessionContext.from_keywords(session.session_id, clean)
        key = StreamKey.of(self._adapter.name, self._settings.owner, stored)
        factory = self._settings.make_provider
        self._current = self._outbox.open_session(key, self._adapter, self._hooks, factory)
        # Earlier sessions of this manager count in `waiting` and `flush` until they are delivered.
        try:
            left = self._outbox.unfinished(self._sessions)
        except HermesError:  # `open_session` has logged it
            left = self._sessions
        self._sessions = [*left, self._current]

    def put(self, hook: str, arguments: Mapping[str, Any], said_at: float = 0.0) -> None:
        """Store a write and have it delivered. If it can't be stored, that is a warning.

        Args:
            hook: The method of the provider.
            arguments: What it is called with.
            said_at: When a turn was said, as the archive has it; 0.0 for any other write.
        """
        # The provider does not implement it, so nothing is stored. Observers still see the call.
        if not self._adapter.overrides(hook):
            self._hooks.only(self._adapter, hook)(**arguments)
            return
        if hook == "sync_turn":
            arguments = self._turn(arguments)
        try:
            if self._current is None:
                self.begin(SessionContext())
            payload = self._payload(hook, arguments)
            stream = self._current
            # The archive's turn has the same id: see `turn_id`.
            event = turn_id(stream.key, said_at) if stream and said_at else new_event()
            job = None if stream is None else stream.put(hook, event, payload)
        except HermesError as error:
            self._adapter.record_failure(hook, error)
            self._unstored.add(str(error))
            return
        if hook == "on_session_end" and job is not None:
            self._adapter.boundary = job

    def _turn(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a turn without what the provider does not accept."""
        # `messages` is the whole conversation: with every turn, that would fill the disk.
        turn = dict(arguments)
        if not self._adapter.accepts("sync_turn", "messages"):
            turn["messages"] = None
        if turn["turn_author"] is None or not self._adapter.accepts("sync_turn", "turn_author"):
            del turn["turn_author"]  # so that an earlier version can deliver it
        return turn

    def waiting(self) -> int:
        """Return how many writes of this manager wait; 0 if the outbox can't be read."""
        if self._outbox is None:
            return 0
        late = self._outbox.spool.count(session.key for session in self._sessions)
        try:
            return late + sum(
                map(self._outbox.store.count, {session.stream for session in self._sessions})
            )
        except HermesError:
            return late

    def _payload(self, hook: str, arguments: Mapping[str, Any]) -> str:
        """Return a write as JSON, without secrets and without what can't be encoded."""
        try:
            return self._encoded(arguments)
        except _NOT_ENCODABLE as error:
            logger.warning(
                "memory provider %s: part of a write (%s) is left out: %s",
                self._adapter.name, hook, describe(error),
            )  # fmt: skip
        return self._encoded({name: self._encodable(value) for name, value in arguments.items()})

    def _encoded(self, arguments: Mapping[str, Any]) -> str:
        redactor = self._adapter.redactor
        clean = dict(arguments) if redactor is None else redactor.redact(dict(arguments)).value
        # Ids are no secrets, however random they look, and a masked one would name nobody.
        kept = {name: arguments[name] for name in IDENTITIES if name in arguments}
        return dumps({**clean, **kept}, default=self._text)

    def _text(self, value: Any) -> str:
        """Return an object of the host as text, which may contain secrets like any text."""
        try:
            text = str(value)
        except Exception:  # noqa: BLE001 - the host's own code
            text = f"<{type(value).__name__}>"
        redactor = self._adapter.redactor
        return text if redactor is None else str(redactor.redact(text).value)

    def _encodable(self, value: Any) -> Any:
        """Return what can be encoded of a value: of a list or a mapping, the items that can."""
        if isinstance(value, list):
            return [each for each in value if self._can_encode(each)]
        if isinstance(value, dict):
            return {name: each for name, each in value.items() if self._can_encode({name: each})}
        return value if self._can_encode(value) else None

    def _can_encode(self, value: Any) -> bool:
        try:
            self._encoded({"": value})
        except _NOT_ENCODABLE:
            return False
        return True

    def switch(self, session_id: str, parent: str, changes: Mapping[str, Any], call: Any) -> None:
        """Change the session: behind the old one's writes, before the new one's.

        What the old one could not deliver by then is inherited: a fresh instance delivers it.
        """
        # Queued first: `open_session` lets the new stream's deliveries wait for this job.
        self._adapter.switch_session(partial(self._switch_on_worker, self._current, call))
        self._enter(self._session.switched(session_id, parent, changes))

    def _switch_on_worker(self, old: SessionStream | None, call: Callable[[], Any]) -> None:
        """On the write worker, behind the old session's turns: wait for its end, then switch."""
        # Turns ran on this thread, so they are over. Notes and the session's end run on the main
        # worker, and would reach the provider in its new session.
        if old is not None:
            old.wait_for_others(self._adapter.deadlines.write)
        self._adapter.restart_clock("on_session_switch")
        call()
        if old is not None and self._outbox is not None:
            self._outbox.close_session(old)

    def flush(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds, and return whether every write is delivered.

        That includes what processes that ended left for this provider.
        """
        return self._flush(self._sessions, timeout, once=False)

    def finish(self, timeout: float) -> None:
        """Deliver what can be delivered now, log what is left, and start nothing more."""
        end = monotonic() + timeout
        delivered = self._flush(self._sessions, timeout, once=True)
        self._adapter.flush_writes(max(end - monotonic(), 0))  # a change of session, too
        if not delivered:
            self._report_unanswered()
            logger.warning(
                "memory provider %s: %s writes undelivered; they wait in the outbox",
                self._adapter.name, self._count(),
            )  # fmt: skip
        if self._outbox is not None:
            for session in self._sessions:
                self._outbox.close_session(session)

    def _report_unanswered(self) -> None:
        try:
            for session in self._sessions:
                session.report_unanswered()
        except HermesError as error:
            logger.error("memory: %s", error)

    def _count(self) -> str:
        """How many writes wait, in words for the log."""
        try:
            left = self._outbox.undelivered(self._sessions) if self._outbox is not None else []
        except HermesError:
            return "some"
        return str(sum(each.writes for each in left))

    def _flush(self, sessions: list[SessionStream], timeout: float, *, once: bool) -> bool:
        if self._outbox is None:
            return True
        try:
            return self._outbox.flush(sessions, timeout, once=once)
        except HermesError as error:
            logger.error("memory: %s", error)
            return False

    def close(self, timeout: float = 0.0) -> None:
        """Release the outbox. What is left is delivered by the next agent."""
        _ = self.warnings  # remembers them
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            for session in self._sessions:
                outbox.close_session(session)  # again, since calls may have returned meanwhile
            outbox.stop_inherited(timeout)
            outbox.release()
