"""The outbox of one home in one process: shared by its managers, with one worker.

The worker starts deliveries when they are due. It also delivers *inherited* streams: what a
session of another process, or an earlier session of this one, left behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hermes_core.dispatch import HookCalls, Job, ProviderAdapter
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import HermesError, describe
from hermes_core.outbox.delivery import InheritedDelivery, SessionStream, StreamDelivery
from hermes_core.outbox.failures import DAY, LONGEST_SKIPPED_WAIT, SUSPECT, back_off
from hermes_core.outbox.records import Stream, StreamKey
from hermes_core.outbox.spool import OutboxSpool
from hermes_core.outbox.store import DEFAULT_MAX_MB, OutboxStore, open_store
from hermes_core.storage.forks import close_before_fork
from hermes_core.storage.logger import logger

if TYPE_CHECKING:
    from hermes_core.storage.postgres import Database


_D = TypeVar("_D", bound=StreamDelivery)

#: How often to look for inherited streams, and for calls that hang.
_POLL_SECONDS: Final = 15.0
#: The same while there is free space to return to the file system.
_COMPACT_SECONDS: Final = 0.05
#: The same while another process has claimed a stream of ours. Nobody tells us when it releases it.
_CLAIMED_SECONDS: Final = 0.5
#: The same while the server of the outbox can't be used.
_OUTAGE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class FreshProvider:
    """A new instance of a provider, made for an inherited stream.

    Attributes:
        adapter: Calls it.
        close: Releases what was opened for it.
    """

    adapter: ProviderAdapter
    close: Callable[[], None]


#: Makes a new instance for a stream, not initialised yet. Raises HermesError.
ProviderFactory = Callable[[StreamKey], FreshProvider]


class Outbox:
    """Stores writes until the external provider has accepted them, and delivers them."""

    def __init__(
        self,
        home: Path,
        *,
        max_mb: float = DEFAULT_MAX_MB,
        durable: bool = False,
        database: Database | None = None,
    ) -> None:
        self.home = home
        self.store = open_store(home, max_mb=max_mb, durable=durable, database=database)
        #: What the server of the outbox could not take yet.
        self.spool = OutboxSpool(home, max_bytes=self.store.max_bytes, durable=durable)
        #: The open sessions of this process, each with the factory for inherited streams.
        self._sessions: dict[StreamDelivery, ProviderFactory | None] = {}
        self._users = 0
        self._reset()

    def _reset(self) -> None:
        """Begin without a thread: at first, and in a forked child."""
        self._lock = threading.Lock()
        self._worker = Worker("memory-outbox", step=self._step)
        self._inheritor = Worker("memory-inherited", linger=0)
        #: The delivery of an inherited stream that runs, or the last one.
        self._inherited_job: Job | None = None
        self._substitutes: list[StreamDelivery] = []
        #: The delivery of an inherited stream through a fresh instance, while there is one.
        self.inherited: StreamDelivery | None = None
        #: Streams for which no instance can be made in this process.
        self._undeliverable: set[int] = set()
        self._compacts = True
        #: Why the outbox could not be read at the last look.
        self._problem = ""
        #: The time at the last look; none yet.
        self._now = inf
        self._pid = os.getpid()  # last: other threads look at it without a lock

    # -- for managers ---------------------------------------------------------------------

    def open_session(
        self,
        key: StreamKey,
        adapter: ProviderAdapter,
        hooks: HookCalls,
        make_provider: ProviderFactory | None = None,
    ) -> SessionStream:
        """Return the stream of a session. What waits in it from before is delivered first."""
        session = SessionStream(self, key, adapter, hooks)
        session.after = adapter.session_switch
        self.in_this_process()
        waiting = self.spool.exists
        try:
            # Before the worker knows the session, and sets the number itself.
            session.stream = self.store.find_stream(key)
            waiting = waiting or bool(self.store.open_streams())
        except HermesError as error:
            logger.error("memory: the outbox can't be read: %s", error)
        with self._lock:
            self._sessions[session] = make_provider
        if waiting:
            self.wake()
        return session

    def close_session(self, session: StreamDelivery) -> None:
        """Deliver nothing more for a session; what is left waits for the next one."""
        self.in_this_process()
        for each in (session, *self._substitutes):
            if each.adapter is session.adapter and (each is session or each.busy):
                each.stop()
        with self._lock:
            self._sessions.pop(session, None)

    def flush(
        self, sessions: Iterable[StreamDelivery], timeout: float, *, once: bool = False
    ) -> bool:
        """Deliver what these sessions can deliver; return whether all of it was.

        That is what they wrote, and what processes that ended left for the same provider. What
        waits for a later attempt is tried now, then again when it is due. Skipped writes don't
        count.

        Args:
            sessions: Open or closed ones.
            timeout: How many seconds to try.
            once: Stop when everything was tried and the rest failed.
        """
        self.in_this_process()
        sessions = [*sessions]
        end = monotonic() + timeout
        if self.spool.exists:
            self.wake()
        self._retry_now(sessions)
        # Polls, since a delivery may end on any of several threads and in other processes. Short
        # pauses at first: with a fast provider, everything is delivered within a millisecond.
        pause = 0.002
        was_stranded = False
        while True:
            # In this order: a delivery ends after its writes are removed. If it is not busy and
            # then nothing is left, it is over.
            busy = any(each.busy for each in sessions) or self._is_late(sessions)
            left = self.undelivered(sessions)
            if not left and not busy:
                return True
            idle = not busy and not self._delivers_inherited()
            if monotonic() >= end or (once and idle and self._all_failed(left, sessions)):
                return False
            # Twice: what was left a moment ago may be delivered by now, and then nobody can
            # deliver the rest of its stream. The next look finds nothing left.
            stranded = idle and all(self._is_stranded(each, sessions) for each in left)
            if stranded and was_stranded:
                return False
            was_stranded = stranded
            sleep(max(min(pause, end - monotonic()), 0))
            pause = min(pause * 1.5, 0.05)

    def _is_late(self, sessions: list[StreamDelivery]) -> bool:
        """Whether writes for the providers of these sessions wait for the outbox itself."""
        whose = {each.key[:2] for each in sessions} if self.spool.exists else set()
        return bool(whose) and any(each.key[:2] in whose for each in self.spool.writes())

    def _all_failed(self, left: list[Stream], sessions: list[StreamDelivery]) -> bool:
        """Whether what is left was tried and failed.

        One failed inherited stream is enough: each needs its own instance, and a service that is
        unreachable for one of them is so for all.
        """
        now = self.store.clock()
        own = {each.key for each in sessions}
        ours = [each.due > now for each in left if each.key in own]
        theirs = [each.due > now for each in left if each.key not in own]
        return all(ours) and (any(theirs) or not theirs)

    def _is_stranded(self, stream: Stream, sessions: list[StreamDelivery]) -> bool:
        """Whether what waits in a stream can't be delivered by anybody who runs now.

        Without a factory, the end of a session that is over waits for that session to be opened.
        """
        with self._lock:
            if any(each.key == stream.key for each in self._sessions):
                return False
        return not (self.store.is_claimed_elsewhere(stream) or self._inherits(stream, sessions))

    def unfinished(self, sessions: Iterable[_D]) -> list[_D]:
        """Return the sessions with waiting writes or a running delivery."""
        return [
            each for each in sessions if each.busy or each.late or self.store.count(each.stream)
        ]

    def undelivered(self, sessions: Iterable[StreamDelivery]) -> list[Stream]:
        """Return the streams with waiting writes that these sessions can or could deliver."""
        sessions = [*sessions]
        own = {each.key for each in sessions}
        found = self.store.waiting_streams()
        return [each for each in found if each.key in own or self._inherits(each, sessions)]

    def _inherits(self, stream: Stream, sessions: list[StreamDelivery]) -> bool:
        """Whether a stream's own session is gone, and one of these sessions can deliver it."""
        with self._lock:
            all_sessions = dict(self._sessions)
        related = [each for each in sessions if each.open and each.key[:2] == stream.key[:2]]
        if not related or stream.id in self._undeliverable:
            return False
        if self.store.is_claimed_elsewhere(stream):
            return False
        if any(each.key == stream.key for each in all_sessions):
            return False  # another manager of this process has it
        if any(all_sessions.get(each) for each in related):
            return True
        return any(
            self._substitute(stream, each).next_waiting(turns=turns) is not None
            for each in related
            if _participants(each.key) == _participants(stream.key)
            for turns in (True, False)
        )

    def _retry_now(self, sessions: list[StreamDelivery]) -> None:
        """Try what waits for a later attempt."""
        waiting = self.undelivered(sessions)
        if not waiting:
            return
        self.store.make_due(each.id for each in waiting)
        ids = {each.key: each.id for each in waiting}
        for each in sessions:
            if each.key in ids:
                each.retry_now(ids[each.key])
        self.wake()

    def _delivers_inherited(self) -> bool:
        return self._inherited_job is not None and not self._inherited_job.wait(0)

    def stop_inherited(self, timeout: float) -> None:
        """Stop the delivery of inherited streams, unless another session is open."""
        with self._lock:
            job = self._inherited_job if not self._sessions else None
        if job is None or self._inheritor.on_thread():
            return
        inherited = self.inherited
        if inherited is not None:
            inherited.stop()
        job.wait(timeout)
        if inherited is not None:
            # Once more, for a call that hangs: this removes what was delivered before it.
            inherited.stop()

    # -- users ----------------------------------------------------------------------------

    def acquire(self) -> None:
        """Count one more user: a manager, or a running delivery."""
        with _SHARED.lock:
            self._users += 1
            if self._users == 1:  # it was closed, and is used again
                _SHARED.outboxes.setdefault(self.home, self)

    def release(self) -> None:
        """Count one user less; the last one closes the file."""
        with _SHARED.lock:
            self._users -= 1
            if self._users > 0:
                return
            if _SHARED.outboxes.get(self.home) is self:  # else a new one is in use already
                del _SHARED.outboxes[self.home]
        with self._lock:  # `wake` must not start it again after this
            self._worker.stop()
        # It may be in the middle of a step, and would open the file again after we have closed it.
        # Not for long: the last user may be a delivery on a thread that somebody waits for.
        self._worker.join(1.0)
        self.store.close()

    def in_this_process(self) -> Outbox:
        """Return this outbox, without threads and claims of the parent if this is a fork."""
        if self._pid != os.getpid():
            with _SHARED.lock:  # the child may have several threads by now
                if self._pid != os.getpid():
                    self._users = len(self._sessions)
                    self.store.reset_after_fork()
                    for session in self._sessions:
                        session.reset_after_fork()
                    self._reset()
        return self

    # -- the worker -----------------------------------------------------------------------

    def wake(self) -> None:
        """Look for due deliveries now."""
        self.in_this_process()
        with self._lock:
            if self._users > 0:
                self._worker.wake()

    def ensure_worker(self) -> None:
        """Start the worker if it does not run: it notices calls that hang, and renews claims."""
        self.in_this_process()
        if not self._worker.alive:
            self.wake()

    def _step(self) -> float:
        """Do what is due; return the seconds until there is something to do again."""
        problem, pause = "", _POLL_SECONDS
        try:
            pause = self._deliver_due()
        except HermesError as error:
            problem = str(error)
            if problem != self._problem:
                logger.error("memory: the outbox can't be read: %s", problem)
            if self.store.database.is_remote:
                pause = _OUTAGE_SECONDS
        self._problem = problem
        return pause

    def _deliver_due(self) -> float:
        now = self.store.clock()
        self._correct_times(now)
        soonest = now + _POLL_SECONDS
        self.spool.hand_over(self.store)
        if self.spool.exists:  # another process hands it over
            soonest = now + _CLAIMED_SECONDS
        # The streams first: a session is registered before anything is stored in its stream. The
        # other way round, the stream of a session that begins in between would look abandoned,
        # and another session would deliver its turns.
        streams = self.store.open_streams()
        with self._lock:
            sessions = dict(self._sessions)
        for stream in streams:
            paused = (each.paused_until for each in sessions if each.key == stream.key)
            due = max(stream.due, *paused, 0.0)
            if due > now:
                soonest = min(soonest, due)
            elif not self._start_delivery(stream, sessions):
                soonest = min(soonest, now + _CLAIMED_SECONDS)
        self._watch([each for each in sessions if each.busy])
        if streams:
            self._compacts = True
        elif self._compacts:
            self._compacts = self.store.compact()
            soonest = now + (_COMPACT_SECONDS if self._compacts else _POLL_SECONDS)
        return max(soonest - now, 0.001)

    def _correct_times(self, now: float) -> None:
        """Notice a clock that went back, perhaps before this process began."""
        first = self._now == inf
        went_back = not first and now < self._now - LONGEST_SKIPPED_WAIT
        if went_back or first:
            # Without a jump that we have seen, a service may have asked to wait for up to a day.
            longest = LONGEST_SKIPPED_WAIT if went_back else 2 * DAY
            self.store.correct_times(latest=now + longest)
            with self._lock:
                sessions = list(self._sessions) if went_back else []
            for each in sessions:
                each.stop_waiting()
        self._now = now

    def _start_delivery(
        self, stream: Stream, sessions: dict[StreamDelivery, ProviderFactory | None]
    ) -> bool:
        """Have a stream delivered; False if another process has claimed it now."""
        # Its own session first, even if that one can't deliver now: an instance that is in use
        # must not see a second one of its session beside it.
        for session in sessions:
            if session.key == stream.key:
                return session.busy or session.try_start(stream.id)
        related = [each for each in sessions if each.key[:2] == stream.key[:2] and each.open]
        factory = next((sessions[each] for each in related if sessions[each]), None)
        if factory is not None:
            return self._start_inherited(stream, factory)
        for session in related:
            if _participants(session.key) == _participants(stream.key):
                substitute = self._substitute(stream, session)
                busy = [each for each in self._substitutes if each.busy]
                self._substitutes = [*busy, substitute]
                return substitute.try_start(stream.id)
        return True  # it waits for its own session

    def _substitute(self, stream: Stream, session: StreamDelivery) -> InheritedDelivery:
        substitute = InheritedDelivery(self, stream.key, session.adapter, session.hooks)
        substitute.stream = stream.id
        return substitute

    def _watch(self, busy: list[StreamDelivery]) -> None:
        """Renew our claims, and notice calls that hang."""
        self.store.renew_claims()
        for each in busy:
            each.adapter.hangs()

    # -- inherited streams ----------------------------------------------------------------

    def _start_inherited(self, stream: Stream, factory: ProviderFactory) -> bool:
        """Deliver a stream through a fresh instance, one stream at a time."""
        job = Job(partial(self._deliver_inherited, stream, factory), inf, "inherited writes")
        # Under the lock, so that `stop_inherited` sees the job, or we see that no session is open:
        # then the last manager may be gone, and a new one may have another outbox for this home.
        with self._lock:
            if not self._sessions or self._delivers_inherited():
                return False
            if not self.store.claim(stream.id):
                return False
            self.acquire()
            try:
                self._inheritor.enqueue(job)
            except RuntimeError:  # the system has no more threads
                job.claim()  # or the next thread would run it, without a claim
            else:
                self._inherited_job = job
                return True
        self.store.release(stream.id)
        self.release()
        return False

    def _deliver_inherited(self, stream: Stream, factory: ProviderFactory) -> None:
        try:
            if self._is_still_due(stream):
                deliver_inherited(self, stream, factory)
        except Exception as error:  # noqa: BLE001 - making an instance runs the plugin's code
            self._undeliverable.add(stream.id)
            logger.warning("memory: writes of an earlier session wait: %s", describe(error))
        else:
            self._undeliverable.discard(stream.id)  # so that a flush waits for it again
        finally:
            self.wake()
            self.release()

    def _is_still_due(self, stream: Stream) -> bool:
        """Whether there is something to deliver in a claimed stream; if not, release it.

        Another delivery of it may have ended between the look that found it and the claim. An
        instance for nothing would begin and end a session at the service.
        """
        due = False
        try:
            now = self.store.clock()
            due = any(each.due <= now for each in self.store.open_streams(stream.id))
        finally:
            if not due:
                self.store.release(stream.id)
        return due

    def fresh_provider(self, key: StreamKey, factory: ProviderFactory) -> FreshProvider:
        """Make an instance for a stream; raises if the plugin has one instance for all."""
        fresh = factory(key)
        with self._lock:
            used = any(each.adapter.provider is fresh.adapter.provider for each in self._sessions)
        # To initialise it again for another session would take it away from the one that uses it.
        if used:
            fresh.close()
            raise HermesError(
                f"{key.provider} has a single instance, which another session uses",
                hint="when no agent runs: hermes-plugins outbox retry",
            )
        return fresh


def deliver_inherited(outbox: Outbox, stream: Stream, factory: ProviderFactory) -> bool:
    """Deliver a claimed stream through a fresh instance; return whether nothing is left of it.

    Raises:
        HermesError: No instance can be made.
    """
    try:
        session = replace(stream.key.context, hermes_home=str(outbox.home))
        fresh = outbox.fresh_provider(stream.key, factory)
    except BaseException as error:  # a claim that stays would keep everybody from the stream
        _fail_next(outbox, stream, describe(error))
        raise
    adapter = fresh.adapter
    hooks = HookCalls()
    hooks.add(adapter)
    delivery = StreamDelivery(outbox, stream.key, adapter, hooks)
    delivery.stream = stream.id
    outbox.inherited = delivery  # before it starts, so that it can be stopped by then
    try:
        initialize = hooks.only(adapter, "initialize")
        outcome = initialize(session_id=session.session_id, extra=session.keywords())
        if outcome.error is not None:
            _fail_next(outbox, stream, adapter.error_text(outcome.error))
            return False
        delivery.mark_claimed()
        delivery.start()
        while delivery.busy and not adapter.hangs():
            sleep(0.01)
        return not delivery.busy and outbox.store.count(stream.id) == 0
    finally:
        outbox.inherited = None
        delivery.stop()  # if a call hangs, the other kind of writes may still be under way
        hooks.only(adapter, "shutdown")()
        adapter.close(0)
        hooks.close()
        fresh.close()


def _fail_next(outbox: Outbox, stream: Stream, error: str) -> None:
    """No instance could be made: that is a failed attempt of the next write."""
    store = outbox.store
    try:
        write = store.next_waiting(stream.id)
        due = store.clock() + back_off(write.attempts if write is not None else SUSPECT.attempts)
        if write is not None:
            store.mark_failed(write, error, due)
        _postpone_rest(store, stream.id, due, error)
    finally:
        store.release(stream.id)


def _postpone_rest(store: OutboxStore, stream: int, due: float, error: str) -> None:
    """Let whatever else is due wait as long as the write that failed.

    Otherwise the stream would still be due, and we would make one instance after the other.
    """
    for turns in (True, False):
        head = store.next_waiting(stream, turns=turns)
        if head is not None and head.due < due:
            store.postpone(head, due)
        while (skipped := store.next_skipped(stream, turns=turns)) is not None:
            store.postpone(skipped, due, error)


def _participants(key: StreamKey) -> dict[str, Any]:
    """Who talks and where: a session may deliver for another one with the same participants."""
    try:
        return key.context.participants()
    except HermesError:
        return {"session": key.session}


# -- one outbox per home and process ---------------------------------------------------------


class _SharedOutboxes:
    """The outboxes of this process by their homes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.outboxes: dict[Path, Outbox] = {}
        self._pid = os.getpid()

    def before_fork(self) -> None:
        """Don't wait for the lock: threads take it while they hold that of an outbox's file."""

    def after_fork(self) -> None:
        """Another thread may have held the lock, and a child does not have that thread."""
        if self._pid != os.getpid():
            self._pid, self.lock = os.getpid(), threading.RLock()


# Module state, since the managers of a process that share a home must share the worker: two would
# deliver the same write twice.
_SHARED: Final = _SharedOutboxes()


def open_outbox(
    home: Path,
    *,
    max_mb: float = DEFAULT_MAX_MB,
    durable: bool = False,
    database: Database | None = None,
) -> Outbox:
    """Return the outbox of a home. Every call needs an `Outbox.release`."""
    close_before_fork(_SHARED)
    with _SHARED.lock:
        outbox = _SHARED.outboxes.get(home)
        if outbox is None:
            outbox = Outbox(home, max_mb=max_mb, durable=durable, database=database)
            _SHARED.outboxes[home] = outbox
        outbox.in_this_process().acquire()
        return outbox
