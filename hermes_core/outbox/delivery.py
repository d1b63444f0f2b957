"""Delivers the writes of one stream to one instance of its provider, and decides what to retry."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from inspect import signature
from json import loads  # before a plugin can replace them
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hermes_core.dispatch import DELIVERY, Delivery, HookCalls, Job, ProviderAdapter
from hermes_core.errors import AgentEnded, DatabaseError, ProviderPaused, WriteRefused, describe
from hermes_core.hookspecs import ADDED, HOOKS, MemoryHooks
from hermes_core.outbox.failures import (
    DAY,
    DAY_FAULTS,
    LONGEST_WAIT,
    SKIPPED_WAIT,
    SUSPECT,
    Fault,
    back_off,
    fault_of,
    retry_after,
    skipped_wait,
)
from hermes_core.outbox.records import (
    NO_LIMITS,
    TURN,
    FailureLimits,
    StreamKey,
    Write,
    WriteContent,
    WriteState,
)
from hermes_core.storage.logger import logger
from hermes_core.storage.migration import is_frozen

if TYPE_CHECKING:
    from hermes_core.outbox.worker import Outbox


#: Delivered writes are removed in batches of so many, but at least after so many seconds. One
#: commit per write would cost as much as a fast provider's delivery. After a crash, the last
#: batch is delivered again, marked as a second attempt.
_BATCH: Final = 64
#: How much of the room of the outbox may wait in memory while its server is unreachable.
_BATCH_SECONDS: Final = 0.05

#: How many seconds a claim is not checked again after it was found to be ours.
_CLAIM_SECONDS: Final = 30.0

#: Any hook of the worker on which everything but turns is delivered.
_OTHER: Final = "on_memory_write"


class OrderedDelivery:
    """Delivers one kind of a stream's writes, in order, one at a time.

    A provider gets its turns on one worker and everything else on another, the one that ran its
    ``initialize``. So a `StreamDelivery` has two of these. Turns wait for nothing but the turns
    before them. Everything else waits for the turns before it, too.

    ``active`` is True from the moment a job is queued until its last call has returned. It is
    changed only under the lock of the store, so that a write that is stored while a
    delivery ends is not overlooked.

    What happens after a failure, in `_failed`:

    * The service refused the write: it has failed permanently, and the next one is tried.
    * Anything else: the round ends, and the same write is retried later. A write that has failed
      three times for a reason that may be its own, or ten times for any reason (a server may
      answer 500 to one text alone), is suspect. Then each round also tries one write behind it,
      the first that is not suspect itself.
    * If that one is accepted, the suspect is tried once more: the service may have recovered
      between the two calls. If the suspect fails again, it is bad and is skipped.
    * If that one fails, too, everything fails: the round ends, nothing was reordered, and it took
      one call more.
    * If there is none, or it failed, one of the other writes may pass the suspect turns. It does
      not make them bad: a plugin may be broken for all turns.

    Args:
        owner: The stream whose writes it delivers.
        hook: A hook of the worker on which it runs.
    """

    def __init__(self, owner: StreamDelivery, hook: str) -> None:
        self.owner = owner
        self.turns = hook == TURN
        self.active = False
        #: Until then, new writes don't start it; the outbox's worker does.
        self.due = 0.0
        #: The running job, or the last one.
        self.job: Job | None = None
        #: Whether to retry skipped writes, too.
        self.retries_skipped = False
        self._hook = hook
        #: Delivered writes that are still in the file, and the number behind which to look for
        #: the next one.
        self._done: list[Write] = []
        self._last = 0
        #: The suspect write of this round: the one behind it is being tried.
        self._suspect: Write | None = None
        #: The number of the suspect behind which a write was accepted in this round.
        self._passed = 0
        #: Whether a write was accepted in this round: suspects that fail after it are bad.
        self._accepted = False
        #: Which turns the next write may pass: none, or suspect ones.
        self._passing = NO_LIMITS
        #: Whether a write was tried in this round: the next one is then tried whenever it is due.
        self._tried = False
        #: Whether the round began for one write, and this process stored nothing since. Then the
        #: end of the round looks for more, with the change that it makes anyway.
        self.for_one = False
        self._succeeded_at = 0.0
        #: How often in a row the provider could not be started.
        self._starts_failed = 0

    def reset_after_fork(self) -> None:
        """Forget what was running: it runs in the parent."""
        self.active, self.job = False, None
        self._done, self._last = [], 0

    def submit(self, passing: FailureLimits = NO_LIMITS, *, for_one: bool = False) -> None:
        """Start a round on the worker; ``active`` is True already."""
        self.due = 0.0
        self.for_one = for_one
        self._tried = self._accepted = False
        self._suspect, self._passed = None, 0
        self._passing = passing
        self._queue()

    def _queue(self) -> None:
        owner = self.owner
        owner.outbox.ensure_worker()
        try:
            job = owner.adapter.submit(self._hook, self._run, after=owner.after)
        except RuntimeError:  # the system has no more threads, or the interpreter is ending
            job = None
        self.job = job
        if job is None or (not owner.open and job.claim()):
            self._end_round()

    def stop(self) -> None:
        """Start nothing more, and remove what was delivered.

        A job that waits for its worker might wait for ever, so it is cancelled.
        """
        if self.active and self.job is not None and self.job.claim():
            self._end_round()
        with self.owner.outbox.store.lock, suppress(DatabaseError):  # the store remembers it
            if self._done:
                self._remove_done(release=False)

    def current(self) -> Write | None:
        """The write that is being tried, if it is the first: behind those that were delivered."""
        store = self.owner.outbox.store
        return store.next_waiting(self.owner.stream, self._last, turns=self.turns)

    # -- on the worker ------------------------------------------------------------------

    def _run(self) -> None:
        if not self.active:  # it was queued when no thread could be started, and was ended then
            return
        try:
            self._deliver()
        except BaseException as error:  # noqa: BLE001 - whatever it is, don't repeat it at once
            # The store remembers what was delivered, and removes it before the next round.
            self.due = self.owner.paused_until = self.owner.outbox.store.clock() + LONGEST_WAIT
            reason = describe(error)
            logger.error("memory: the outbox can't be used: %s", reason)
            self._end_round()

    def _deliver(self) -> None:
        """Deliver until nothing is left, something fails, or another call needs the worker."""
        owner = self.owner
        database = owner.outbox.store.database
        began = monotonic()
        while owner.open and owner.adapter.on_lane_of(self._hook) and owner.is_still_claimed():
            replacements = database.replacements
            write = None if self._was_for_one() else self._next()
            if write is None:
                self.for_one = False
                if self._finish():
                    return
                continue
            if not owner.accepts(write):
                self._postpone(write)
                break
            owner.adapter.restart_clock(write.hook)
            if not self._attempt(write):
                break
            if not self.turns:  # a tool call may wait for this worker
                self._requeue()
                return
            late = monotonic() - began > _BATCH_SECONDS
            if len(self._done) >= _BATCH or late or replacements != database.replacements:
                self._remove_and_continue()
                began = monotonic()
        self._end_round()

    def _was_for_one(self) -> bool:
        """Whether the write was tried for which the round began, and no other is known of."""
        known = self._suspect is not None or self.retries_skipped
        return self.for_one and self._tried and not known

    def _next(self) -> Write | None:
        """The write to try now: the next waiting one, then skipped ones that are due again."""
        store = self.owner.outbox.store
        turns, passing = self.turns, self._passing
        if self._suspect is not None:
            return store.next_behind(self._suspect, SUSPECT, turns=turns, passing=passing)
        write = self.owner.next_waiting(self._last, turns=turns, passing=passing)
        if write is not None and (self._tried or write.due <= store.clock()):
            return write
        if write is None and self.retries_skipped:
            return store.next_skipped(self.owner.stream, turns=self.turns)
        return None

    def _finish(self) -> bool:
        """End the round, unless there is more to do; whether it has ended."""
        owner = self.owner
        with owner.outbox.store.lock:
            other = owner.other(self)
            release = not other.active and not (self.turns and other.retries_skipped)
            first = self._remove_done(release=release)
            if first and self._suspect is None and self._next() is not None:
                return False
            released = release and not first
            # Started before this one ends: nobody may see an instant in which neither is active.
            passing = SUSPECT if self._suspect is not None else NO_LIMITS
            start = self.turns and not released and owner.start_others(passing)
            self.active = self.retries_skipped = False
            if self.turns and not other.active:
                other.retries_skipped = False  # nothing of that kind is due in this round
            over = owner.unclaim(released=released)
        if start:
            other.submit(passing)
        if over:
            owner.finish(wake=not released)
        return True

    def _remove_and_continue(self) -> None:
        """Remove what was delivered, and start other writes that waited for these turns."""
        owner = self.owner
        with owner.outbox.store.lock:
            first = self._remove_done(release=False)
            start = first not in ("", TURN) and owner.start_others()
        if start:
            owner.others.submit()

    def _requeue(self) -> None:
        """Continue the round behind the calls that wait for the worker."""
        self._remove_and_continue()
        self._queue()

    def _remove_done(self, *, release: bool) -> str:
        """Remove what was delivered; the caller holds the lock of the store."""
        done, self._done = self._done, []  # the store remembers them if it can't remove them
        first = self.owner.outbox.store.remove_delivered(self.owner.stream, done, release=release)
        self._last = 0  # not before: a row that is still there must not be delivered again
        return first

    def _attempt(self, write: Write) -> bool:
        """Deliver one write; return whether to continue with the next."""
        error = self._call(write)
        if error is not None:
            return self._failed(write, error)
        self._tried = self._accepted = True
        self.owner.succeeded_at = self._succeeded_at = self.owner.outbox.store.clock()
        with self.owner.outbox.store.lock:  # `stop` may be removing them
            self._done.append(write)
        self._last = write.id
        self._passing = NO_LIMITS  # one write passes; then the suspect turns are tried again
        if self._suspect is not None:
            # The next write is the suspect again. Only a failure that comes after this success
            # shows that it is bad.
            self._passed, self._suspect = self._suspect.id, None
            self._remove_and_continue()
        elif write.state == WriteState.SKIPPED:
            self._remove_and_continue()
        return True

    def _skip(self, write: Write) -> None:
        """Others succeed, so the write is bad and not the service: retry it later."""
        self.due = 0.0
        store = self.owner.outbox.store
        store.skip(write, store.clock() + SKIPPED_WAIT, SUSPECT.faults)
        logger.warning(
            "memory provider %s: %s keeps failing while other writes succeed; it is skipped "
            "and retried later (run: hermes-plugins outbox show %d)",
            self.owner.adapter.name, write.hook, write.id,
        )  # fmt: skip

    def _failed(self, write: Write, error: Exception) -> bool:
        """Record a failure; return whether to continue with the next write."""
        if isinstance(error, ProviderPaused):  # it was not called
            self._starts_failed += self.owner.adapter.start_error is not None
            self._postpone(write, str(error))
            return False
        store = self.owner.outbox.store
        now = store.clock()
        reason = self.owner.adapter.error_text(error)
        if isinstance(error, AgentEnded):  # the earlier failure says more than our own shutdown
            reason = write.error or reason
        fault = fault_of(error)
        own = fault is Fault.WRITE
        # Counted as well, because the clock may have jumped ahead: then a minute looks like a day.
        often = write.state == WriteState.SKIPPED and write.faults >= DAY_FAULTS
        old = often and now - (write.failing_since or now) >= DAY
        if fault is Fault.REFUSED or (own and old):
            return self._fail_permanently(write, reason)
        wait = max(back_off(write.attempts), retry_after(error))
        if write.state == WriteState.SKIPPED:
            # Whatever the error says: it failed while others succeeded, so it counts as its own.
            wait = max(wait, skipped_wait(write.faults + 1))
            store.mark_failed(write, reason, now + wait, own_fault=True)
            return True
        store.mark_failed(write, reason, now + wait, own_fault=own)
        if self._suspect is not None or isinstance(error, AgentEnded):
            return False  # everything fails, or we ended the call: that says nothing about it
        self.due = now + wait
        suspect = (own and write.faults + 1 >= SUSPECT.faults) or (
            write.attempts + 1 >= SUSPECT.attempts
        )
        # If another was accepted in its place, it is bad whatever the error says now. If it only
        # waited, the next round would let yet another one pass.
        return (suspect or write.id == self._passed) and self._try_behind(write)

    def _try_behind(self, suspect: Write) -> bool:
        """Continue behind a suspect: skip it if others succeed, else try the next one first."""
        self._tried = True
        if self._accepted or self._others_succeed(suspect):
            self._skip(suspect)
        else:
            self._suspect = suspect
        return True

    def _others_succeed(self, write: Write) -> bool:
        """Whether something was accepted since a write began to fail.

        For a turn only another turn proves that: a plugin may be broken for all of them.
        """
        last = self._succeeded_at if self.turns else self.owner.succeeded_at
        # Not at the same time: on some systems the clock ticks so rarely that a success just
        # before the failure has the same time.
        return write.failing_since is not None and last > write.failing_since

    def _fail_permanently(self, write: Write, reason: str) -> bool:
        self.owner.outbox.store.mark_failed(write, reason, 0.0, permanently=True)
        if write.state != WriteState.SKIPPED:
            self._tried, self._last = True, write.id
        logger.error(
            "memory provider %s: %s failed permanently: %s (run: hermes-plugins outbox show %d)",
            self.owner.adapter.name, write.hook, reason, write.id,
        )  # fmt: skip
        return True

    def _call(self, write: Write) -> Exception | None:
        owner = self.owner
        if not owner.adapter.restart(owner.hooks.only(owner.adapter, "initialize")):
            return ProviderPaused("its initialize has not succeeded yet")
        arguments = _arguments(write)
        if arguments is None:
            return WriteRefused("its stored form can't be read by this version")
        self._starts_failed = 0
        owner.attempt_starts(write)
        token = DELIVERY.set(Delivery(write.event_id, write.attempts + 1, write.created))
        try:
            return owner.hooks.only(owner.adapter, write.hook)(**arguments).error
        finally:
            DELIVERY.reset(token)
            owner.attempt_ended(write)

    def _postpone(self, write: Write, why: str = "") -> None:
        """Retry a write later without counting a failure."""
        store = self.owner.outbox.store
        self.due = store.clock() + back_off(max(write.attempts, self._starts_failed, 1))
        store.postpone(write, self.due, why)

    def _end_round(self) -> None:
        """Stop with writes left: another process, or this one later, continues."""
        owner = self.owner
        start = False
        with owner.outbox.store.lock:
            with suppress(DatabaseError):  # the store remembers it
                self._remove_done(release=False)
                start = self.turns and self._suspect is not None and owner.start_others(SUSPECT)
            self.active = self.retries_skipped = False
            over = owner.unclaim(released=False)
        if start:
            owner.others.submit(SUSPECT)
        if over:
            owner.finish(wake=True)


class StreamDelivery:
    """Delivers the writes of one stream while it is open.

    ``busy`` is True from the moment the stream is claimed until its last call has returned,
    however long that takes: no write is tried twice at the same time.

    Args:
        outbox: Stores the writes.
        key: Identifies the stream.
        adapter: Calls the instance that is initialised for this stream.
        hooks: Where observers see the calls.
    """

    def __init__(
        self, outbox: Outbox, key: StreamKey, adapter: ProviderAdapter, hooks: HookCalls
    ) -> None:
        self.outbox = outbox
        self.key = key
        self.adapter = adapter
        self.hooks = hooks
        #: The number of the stream; 0 until something is stored in it.
        self.stream = 0
        self.open = True
        self.turns = OrderedDelivery(self, TURN)
        self.others = OrderedDelivery(self, _OTHER)
        #: The change of session that must be done before the first delivery.
        self.after: Job | None = None
        #: Nothing is tried before this time, since the outbox itself can't be used.
        self.paused_until = 0.0
        #: When a delivery last succeeded.
        self.succeeded_at = 0.0
        #: What waits for an ``on_session_end`` to be tried, by its event id.
        self._ends: dict[str, Job] = {}
        self._claimed = False
        self._claimed_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether a delivery is running."""
        return self.turns.active or self.others.active

    @property
    def late(self) -> int:
        """How many writes the server of the outbox could not take yet."""
        return self.outbox.spool.count([self.key])

    def other(self, kind: OrderedDelivery) -> OrderedDelivery:
        """The delivery of the other kind of writes."""
        return self.others if kind is self.turns else self.turns

    def accepts(self, write: Write) -> bool:  # noqa: ARG002 - `InheritedDelivery` accepts less
        """Whether a write may be delivered through this instance."""
        return True

    def next_waiting(
        self, after: int = 0, *, turns: bool, passing: FailureLimits = NO_LIMITS
    ) -> Write | None:
        """Return the oldest waiting write of a kind that this instance may deliver."""
        return self.outbox.store.next_waiting(self.stream, after, turns=turns, passing=passing)

    def try_start(self, stream: int) -> bool:
        """Claim the stream and start to deliver; False if that is not possible now.

        Args:
            stream: The number that the stream has in the file now. Another process may have
                created it after this session was opened, also in a new file.
        """
        with self.outbox.store.lock:
            # The worker read which streams are due a moment ago: a round may have failed since.
            waits = self.outbox.store.clock() < self.paused_until
            if self.busy or waits or not self.open or not self.outbox.store.claim(stream):
                return False
            self.stream = stream
            self.mark_claimed()
        self.start()
        return True

    def retry_now(self, stream: int) -> None:
        """Try what waits for a later attempt; see `try_start`."""
        self.stop_waiting()
        self.try_start(stream)

    def stop_waiting(self) -> None:
        """Let the next attempt come at once."""
        self.turns.due = self.others.due = self.paused_until = 0.0

    def mark_claimed(self, kind: OrderedDelivery | None = None) -> None:
        """The stream was claimed: for one kind of its writes, or for everything in it."""
        self.outbox.acquire()
        self._claimed = True
        if kind is None:
            self.turns.retries_skipped = self.others.retries_skipped = True
        (kind or self.turns).active = True
        self._claimed_until = self.outbox.store.clock() + _CLAIM_SECONDS

    def start(self) -> None:
        """Deliver the claimed stream: turns first; they start the rest."""
        self.turns.submit()

    def start_others(self, passing: FailureLimits = NO_LIMITS) -> bool:
        """Mark the other writes active if one is due; return whether to submit them."""
        store = self.outbox.store
        if self.others.active or not self.open:
            return False
        write = self.next_waiting(turns=False, passing=passing) or (
            store.next_skipped(self.stream, turns=False) if self.others.retries_skipped else None
        )
        self.others.active = write is not None and write.due <= store.clock()
        return self.others.active

    def stop(self) -> None:
        """Start nothing more, and remove what was delivered."""
        self.open = False
        for kind in (self.turns, self.others):
            kind.stop()

    def report_unanswered(self) -> None:
        """The agent ends while a call runs: report it now, since nobody will see its result."""
        for kind in (self.turns, self.others):
            if kind.active:
                error = AgentEnded(AgentEnded.TEXT)
                self.adapter.record_failure(kind.job.label if kind.job is not None else TURN, error)
                write = kind.current()
                if write is not None:
                    self.outbox.store.explain(write, str(error))

    def is_still_claimed(self) -> bool:
        """Whether the stream is still claimed by this process."""
        now = self.outbox.store.clock()
        # Before that time, too, if the clock went back.
        if not self._claimed_until - _CLAIM_SECONDS <= now < self._claimed_until:
            if not self.outbox.store.keep_claim(self.stream):
                return False
            self._claimed_until = now + _CLAIM_SECONDS
        return True

    def reset_after_fork(self) -> None:
        """Forget what was running: it runs in the parent."""
        self._claimed = False
        self._ends = {}
        for kind in (self.turns, self.others):
            kind.reset_after_fork()

    def unclaim(self, *, released: bool) -> bool:
        """End the claim if both kinds have ended; return whether it has, then call `finish`.

        The caller holds the lock of the store. Whoever stores a write after that finds the stream
        free, and claims it for a new round.
        """
        if self.busy or not self._claimed:
            return False
        self._claimed = False
        for end in self._ends.values():
            end.finish()
        self._ends = {}
        if not released:
            with suppress(DatabaseError):  # the claim expires
                self.outbox.store.release(self.stream)
        return True

    def finish(self, *, wake: bool) -> None:
        """Release the outbox after the last delivery has ended."""
        if wake:
            self.outbox.wake()
        self.outbox.release()

    # -- the end of a session -------------------------------------------------------------

    def expect(self, event_id: str) -> Job:
        """Return a job that finishes when the write with this event id was tried."""
        end = Job(lambda: None, self.adapter.deadlines.write, "on_session_end")
        end.start_clock()
        self._ends[event_id] = end
        return end

    def attempt_starts(self, write: Write) -> None:
        """Restart the clock of whoever waits for this write."""
        end = self._ends.get(write.event_id)
        if end is not None:
            end.start_clock()

    def attempt_ended(self, write: Write) -> None:
        """Wake up whoever waits for this write."""
        end = self._ends.pop(write.event_id, None) if self._ends else None
        if end is not None:
            end.finish()

    def wait_for_others(self, seconds: float) -> None:
        """Wait until the writes that are not turns were tried."""
        end = monotonic() + seconds
        while self.others.active and monotonic() < end and not self.adapter.hangs():
            job = self.others.job
            if job is not None:
                job.wait(0.01)


def _arguments(write: Write) -> dict[str, Any] | None:
    """The arguments of the hook; None if the row is damaged, or from another version."""
    try:
        found = loads(write.payload)
    except ValueError:
        return None
    if not isinstance(found, dict) or write.hook not in HOOKS:
        return None
    found = {**ADDED.get(write.hook, {}), **found}
    return found if found.keys() == _parameters(write.hook) else None


@lru_cache(maxsize=16)
def _parameters(hook: str) -> frozenset[str]:
    return frozenset(signature(getattr(MemoryHooks, hook)).parameters) - {"self"}


class SessionStream(StreamDelivery):
    """The stream of a manager's session: what is stored in it is delivered at once."""

    def put(self, hook: str, event_id: str, payload: str) -> Job | None:
        """Store a write, and start to deliver it.

        Returns:
            For ``on_session_end``, a job that finishes when it was tried; else None.

        Raises:
            HermesError: It could not be stored.
        """
        store = self.outbox.in_this_process().store
        kind = self.turns if hook == TURN else self.others
        with store.lock:
            content = WriteContent(event_id, hook, payload)
            if self.outbox.spool.exists:  # what waits there goes first
                self._spool(content)
                return None
            # Other writes come after the turns before them: the turns' delivery starts them.
            behind = kind is self.others and self.turns.active
            waits = store.clock() < max(self.turns.due, kind.due, self.paused_until)
            claim = not self.busy and not waits
            try:
                self.stream, claimed = store.put(self.key, self.stream, content, claim=claim)
            except DatabaseError as error:
                if not (store.database.is_remote or is_frozen(error)):
                    raise
                self._spool(content, str(error))
                return None
            if claim and claimed:
                self.mark_claimed(kind)
            ours = self.busy
            start = ours and not waits and not behind and (claim or not kind.active)
            kind.for_one = False
            kind.active |= start
            end = self.expect(event_id) if ours and hook == "on_session_end" else None
        if start:
            kind.submit(for_one=True)
        elif claim and not claimed:
            self.outbox.wake()  # another process has the stream: it delivers, or we do later
        return end

    def _spool(self, content: WriteContent, why: str = "") -> None:
        """Keep a write in a file until the server takes it."""
        self.outbox.spool.add(self.key, content, why)
        logger.warning("memory: a write waits for the outbox in the spool")
        self.outbox.wake()


class InheritedDelivery(StreamDelivery):
    """Delivers an inherited stream through the instance of another session of the same user.

    It is used where no fresh instance can be made, and accepts only what names its session.
    """

    def accepts(self, write: Write) -> bool:
        """Whether the write contains its session: turns and notes do."""
        if write.hook == TURN:
            return self.adapter.accepts(TURN, "session_id")
        return write.hook == "on_memory_write"

    def next_waiting(
        self, after: int = 0, *, turns: bool, passing: FailureLimits = NO_LIMITS
    ) -> Write | None:
        """Return the oldest waiting write of a kind that names its session.

        A delegation or a session end waits for its own session, and holds up nothing behind it.
        """
        write = super().next_waiting(after, turns=turns, passing=passing)
        while write is not None and not self.accepts(write):
            if turns:
                return None  # it is the same for all turns
            write = super().next_waiting(write.id, turns=turns, passing=passing)
        return write

    def start(self) -> None:
        """Deliver the claimed stream; look at what can't be delivered here again later."""
        with suppress(DatabaseError):  # the stream is claimed: only a round ends that
            self._postpone_rest()
        super().start()

    def _postpone_rest(self) -> None:
        store = self.outbox.store
        for turns in (True, False):
            first = store.next_waiting(self.stream, turns=turns)
            # Only the first decides when the stream is due; otherwise it would be due for ever.
            if first is not None and not self.accepts(first):
                store.postpone(first, store.clock() + back_off(max(first.attempts, 1)), "")
