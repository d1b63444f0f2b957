"""The one daemon-thread class of the project, and the event loop that runs on it.

`Worker` runs calls one after the other on its own daemon thread. Everything here that
needs a thread uses it: the calls of a provider, the outbox, the call log, the index of the
built-in, the keyring.

The threads are daemon threads and not those of a `ThreadPoolExecutor`: the interpreter joins
an executor's threads at exit, so a provider that hangs would prevent the agent from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hermes_core.errors import DeadlineExceeded, ProviderCallError, ProviderPaused, describe
from hermes_core.storage.logger import logger

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


#: How often a caller that waits looks whether the call ahead of it hangs.
_POLL_SECONDS: Final = 0.05
#: When to call a worker's step again after it raised.
_RETRY_SECONDS: Final = 15.0


def rounded(seconds: float) -> str:
    """Return a number of seconds for messages: a deadline may be what is left of a longer one."""
    return f"{round(seconds, 2):g}"


class Job:
    """One call, and its result once it has run.

    Args:
        call: What to run. It sees the context variables of the thread that makes the job.
        deadline: How many seconds it may run.
        label: What the call is, for example the name of a hook; for messages.
        awaited: Whether its caller waits for it and will notice itself when it hangs.
        clock: Measures how long it runs.
    """

    __slots__ = (
        "_call",
        "_claim",
        "_clock",
        "_context",
        "_finished",
        "awaited",
        "deadline",
        "error",
        "label",
        "started",
        "value",
    )

    def __init__(
        self,
        call: Callable[[], Any],
        deadline: float,
        label: str = "",
        *,
        awaited: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._call = call
        self._context = copy_context()
        self._clock = clock
        # Two plain locks instead of two events: a turn makes several jobs, and a lock is ten
        # times cheaper. `_claim` is taken by whoever decides about the job first, `_finished`
        # is released when it has run.
        self._claim = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()
        self.deadline = deadline
        self.label = label
        self.awaited = awaited
        self.started: float | None = None
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call and store its result. Nothing escapes, not even SystemExit."""
        self.start_clock()
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - the provider boundary
            self.error = error

    def start_clock(self) -> None:
        """Start, or restart, the time that the call may run."""
        self.started = self._clock()

    def finish(self) -> None:
        """Wake up everybody who waits for the job."""
        self._finished.release()

    def claim(self) -> bool:
        """Return True for the first: the worker that runs it, or the caller who stops waiting."""
        return self._claim.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds, and return whether the job has finished."""
        if not self._finished.acquire(timeout=max(timeout, 0)):
            return False
        self._finished.release()
        return True

    def result(self) -> Any:
        """Return the value of a finished job, or raise what it raised."""
        if self.error is None:
            return self.value
        raise as_exception(self.error)

    def left(self) -> float:
        """Return how many seconds it may still run; negative when it is overdue."""
        if self.started is None:
            return self.deadline
        return self.started + self.deadline - self._clock()


def as_exception(error: BaseException) -> Exception:
    """Return an exception that ends a call and nothing else.

    A SystemExit or KeyboardInterrupt that a plugin raises must not end the agent.
    """
    if isinstance(error, Exception):
        return error
    wrapped = ProviderCallError(f"raised {describe(error)}")
    wrapped.__cause__ = error
    return wrapped


class Worker:
    """Runs calls one after the other on a daemon thread that starts when first needed.

    ::

        worker = Worker("memory-acme")
        worker.submit(send, deadline=5.0)       # returns at once
        answer = worker.call(ask, deadline=2.0)  # waits, raises DeadlineExceeded
        worker.close()

    **A call that hangs.** There is no watchdog thread. Each caller that submits, waits or asks
    (`stuck`) checks whether the running call is past its deadline. If it is, the worker continues
    on a new thread. It does so once: while two calls hang, nothing more is started until one of
    them returns. When the first thread's call returns, that thread continues the work, because a
    provider may have opened something there that works on no other thread.

    **Regular work.** A worker with a ``step`` calls it whenever its queue is empty: when the
    thread starts, after each job, after `wake`, and when the seconds are over that the last step
    returned. A step that returns None is called again only after a `wake` or a job.

    **End.** `close` is final and drops what is queued. `stop` runs what is queued and lets the
    thread end; a `submit` or `wake` after it revokes it, or starts another thread. A forked child
    has none of its parent's threads: there the worker starts empty.

    Args:
        name: The name of its thread.
        on_stuck: Called with each job that lost its thread because it hangs.
        step: Work to do between jobs; returns the seconds until the next step, or None.
        linger: How many seconds the thread waits for more when it has nothing to do, before
            it ends. None: until `stop` or `close`.
        clock: Measures deadlines. A test passes its own.
    """

    _REPLACEMENTS: Final = 1

    def __init__(
        self,
        name: str,
        on_stuck: Callable[[Job], None] | None = None,
        *,
        step: Callable[[], float | None] | None = None,
        linger: float | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self.linger = linger
        self._on_stuck = on_stuck
        self._step = step
        self._clock = clock
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        """Begin without a thread: at first, and in a forked child, whose locks may be taken."""
        self._pid = os.getpid()
        # None in the queue only wakes the thread up.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._queued = 0  # the jobs among them that no thread has taken
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._first: threading.Thread | None = None
        #: Whether the first thread is free again and waits until its replacement steps back.
        self._returning = False
        self._returned: SimpleQueue[Job | None] = SimpleQueue()
        self._current: Job | None = None
        self._last: Job | None = None
        self._stopping = False
        self._abandoned = 0
        self._lost = 0  # those of the abandoned calls that no caller waits for

    # -- state ----------------------------------------------------------------------------

    @property
    def stuck(self) -> bool:
        """Whether a call hangs past its deadline, replaced or not."""
        self._replace_if_overdue()
        return self._abandoned > 0 or self.overdue

    @property
    def overdue(self) -> bool:
        """Whether the call that has the thread is past its deadline."""
        current = self._current
        return current is not None and current.started is not None and current.left() < 0

    @property
    def alive(self) -> bool:
        """Whether it has a thread in this process."""
        thread = self._thread
        return thread is not None and self._pid == os.getpid() and thread.is_alive()

    def on_thread(self) -> bool:
        """Return whether the caller runs on the worker's thread."""
        return threading.current_thread() is self._thread

    def pending(self) -> int:
        """Return how many calls are queued or running."""
        return self._queued + (self._current is not None) + self._abandoned

    # -- work -----------------------------------------------------------------------------

    def submit(
        self,
        call: Callable[[], Any],
        deadline: float = inf,
        label: str = "",
        *,
        awaited: bool = False,
    ) -> Job | None:
        """Queue a call and return its job at once; None if the worker is closed.

        `flush` does not wait for a call that is ``awaited``.
        """
        job = Job(call, deadline, label, awaited=awaited, clock=self._clock)
        return job if self.enqueue(job) else None

    def enqueue(self, job: Job) -> bool:
        """Queue a job; return False if the worker is closed."""
        if self._closed:
            return False
        self._prepare()
        if not job.awaited:
            self._last = job
        self._put(job)
        return True

    def call(self, call: Callable[[], Any], deadline: float, label: str = "") -> Any:
        """Run a call and return its value.

        The deadline includes the time in the queue. A call that has not started by then is
        never made.

        Raises:
            DeadlineExceeded: There is no result within the deadline.
            ProviderPaused: The worker is closed, or an earlier call hangs.
            Exception: What the call raised.
        """
        if self._closed:
            raise ProviderPaused("it is shut down")
        self._prepare()
        if self.overdue:
            raise ProviderPaused("an earlier call still hangs")
        job = Job(call, deadline, label, awaited=True, clock=self._clock)
        busy = self._current is not None or self._jobs.qsize()
        end = self._clock() + deadline
        self._put(job)
        # Usually the thread is free. Do nothing else before this wait: the thread that `put`
        # woke up can't run while we do.
        if not busy and job.wait(min(deadline, _POLL_SECONDS)):
            return job.result()
        if not self.wait_for(job, end - self._clock()):
            if job.claim():
                raise DeadlineExceeded(
                    f"no answer within {rounded(deadline)} s: an earlier call is slow"
                )
            job.deadline = 0  # no caller waits for it any more: it is overdue from now on
            self._replace_if_overdue()
            raise DeadlineExceeded(f"no answer within {rounded(deadline)} s")
        return job.result()

    def wait_for(self, job: Job, seconds: float) -> bool:
        """Wait for a job, and replace the thread when a call ahead of it hangs."""
        end = self._clock() + seconds
        while (left := end - self._clock()) > 0:
            current = self._current
            ahead = 0.01 if current is None else left if current is job else current.left()
            if job.wait(min(left, max(ahead + 0.001, 0.001), _POLL_SECONDS)):
                return True
            self._replace_if_overdue()
        return job.wait(0)

    def flush(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds, and return whether all that was queued has run."""
        job = self._last
        if job is None or self._pid != os.getpid():
            return True
        end = self._clock() + timeout
        while not job.wait(min(_POLL_SECONDS, end - self._clock())):
            self._replace_if_overdue()
            if self._clock() >= end:
                return False
        return self._lost == 0

    def restart_clock(self, label: str) -> None:
        """Let the running job, which calls this, start its time again: it turns to ``label``."""
        current = self._current
        if current is not None and self.on_thread():
            current.label = label
            current.start_clock()

    def wake(self) -> bool:
        """Have the step called soon. Never waits; returns False if no thread could be started."""
        if self._closed:
            return False
        if self._pid != os.getpid():  # a forked child
            self._reset()
        try:
            self._put(None)
        except RuntimeError:  # the system has no more threads, or the interpreter is ending
            return False
        return True

    # -- end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Run nothing more. The thread ends with the call that it is running."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._returned.put(None)

    def join(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the thread to end; return whether it has."""
        if self._pid != os.getpid():
            return True
        with self._lock:  # a thread that is just being started can't be joined
            thread = self._thread
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(None if timeout == inf else max(timeout, 0))
        return not thread.is_alive()

    def stop(self, timeout: float = 0) -> bool:
        """Run what is queued, take no further step, and let the thread end.

        Returns:
            Whether it has ended, after at most ``timeout`` seconds.
        """
        if self._pid != os.getpid() or self._thread is None:
            return True
        self._stopping = True
        self._jobs.put(None)
        return self.join(timeout)

    # -- starting threads -----------------------------------------------------------------

    def _prepare(self) -> None:
        if self._pid != os.getpid():  # a forked child
            self._reset()
        if self._current is not None:
            self._replace_if_overdue()

    def _put(self, job: Job | None) -> None:
        self._stopping = False  # new work revokes a `stop` that is still under way
        if job is not None:
            with self._lock:
                self._queued += 1
        # In this order: a thread that is about to end looks at the queue once more after it
        # has left its place, see `_leaves`.
        self._jobs.put(job)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            first, self._first = self._first, self._first or thread
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:
                self._thread, self._first = None, first
                raise

    def _replace_if_overdue(self) -> None:
        """Continue on a new thread if the running call is past its deadline."""
        if not self.overdue:
            return
        with self._lock:
            job = self._current
            spent = self._abandoned >= self._REPLACEMENTS
            if self._closed or job is None or spent or not self.overdue:
                return
            self._abandoned += 1
            self._lost += not job.awaited
            self._current = None
            self._thread = None
        # Without a thread from the system, the next call that is queued tries again, and the call
        # that hangs still counts.
        with suppress(RuntimeError):
            self._start()
        if self._on_stuck is not None:
            self._on_stuck(job)

    # -- on the thread --------------------------------------------------------------------

    def _work(self) -> None:
        me = threading.current_thread()
        job: Job | None = None
        while not self._closed:
            if self._returning and me is not self._first:
                self._hand_back(job)
                return
            if job is not None and not self._has_run(job):
                # It hung, and a replacement has taken over.
                if me is not self._first:
                    return
                job = self._take_back()
                continue
            job = None  # or its result would be kept until the next one
            try:
                job = self._next()
            except Empty:
                if self._leaves():
                    return

    def _next(self) -> Job | None:
        """Wait for the next job; None when woken up.

        Raises:
            Empty: There is nothing to do for now.
        """
        if not self._jobs.empty():
            return self._jobs.get()
        if self._stopping:
            raise Empty
        wait = None if self._step is None else self._take_step(self._step)
        if self._stopping:
            raise Empty
        if wait is None:
            return self._jobs.get(timeout=self.linger)
        try:
            return self._jobs.get(timeout=max(wait, 0))
        except Empty:
            return None  # time for the next step

    def _take_step(self, step: Callable[[], float | None]) -> float | None:
        try:
            return step()
        except Exception:  # noqa: BLE001 - the thread goes on
            logger.exception("%s failed, and is tried again in %g s", self.name, _RETRY_SECONDS)
            return _RETRY_SECONDS

    def _has_run(self, job: Job) -> bool:
        """Run a job; return False if this thread was replaced meanwhile."""
        with self._lock:
            self._queued -= 1
        if not job.claim():  # its caller no longer waits
            job.finish()
            return True
        self._current = job
        job.run()
        with self._lock:
            kept = self._current is job
            if kept:
                self._current = None
            else:
                self._abandoned -= 1
                self._lost -= not job.awaited
        job.finish()  # last: whoever wakes up finds the interpreter free
        return kept

    def _leaves(self) -> bool:
        """Give up the thread's place; return False if there is work after all."""
        me = threading.current_thread()
        with self._lock:
            if self._returning:
                return False
            was_first = self._first is me
            self._thread = None
            self._first = None if was_first else self._first
        return self._jobs.empty() or not self._resumes(first=was_first)

    def _resumes(self, *, first: bool) -> bool:
        """Take the thread's place again; False if a new thread was started meanwhile."""
        with self._lock:
            if self._thread is not None:
                return False
            self._thread = threading.current_thread()
            self._first = self._thread if first else self._first
            return True

    def _take_back(self) -> Job | None:
        """On the first thread: wait until the replacement is between two jobs; return the next."""
        with self._lock:
            if self._thread is None:  # the replacement had nothing to do, and ended
                self._thread = threading.current_thread()
                return None
            self._returning = True
        self._jobs.put(None)  # the replacement may wait for a job
        return self._returned.get()

    def _hand_back(self, job: Job | None) -> None:
        """On the replacement: leave the work, and the next job, to the first thread."""
        with self._lock:
            self._returning, self._thread = False, self._first
        self._returned.put(job)


class EventLoop:
    """One event loop for all coroutines of a provider: HTTP clients are bound to theirs.

    It runs on a `Worker`, which starts with the first coroutine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any], deadline: float) -> Any:
        """Run a coroutine and return its value; cancel it at nine tenths of its deadline.

        At that time its caller still waits. A worker whose call has not returned at the deadline
        counts as one that hangs.

        Raises:
            DeadlineExceeded: It did not return in time.
        """
        import asyncio  # noqa: PLC0415 - 60 ms that synchronous providers don't pay

        loop = self._running()
        future = asyncio.run_coroutine_threadsafe(_without_exit(coroutine), loop)
        try:
            # Nine tenths: the rest is for the cancellation to reach the coroutine before the
            # worker's own deadline declares the whole thread lost.
            return future.result(deadline * 0.9)
        except TimeoutError:
            if future.done():  # the coroutine itself raised it
                raise
            if not loop.is_closed():
                future.cancel()
            raise DeadlineExceeded(f"no answer within {rounded(deadline)} s") from None

    def close(self) -> None:
        """Stop the loop; its thread closes it."""
        if self._pid != os.getpid():  # the parent's loop, and its lock may be taken for ever
            return
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> AbstractEventLoop:
        import asyncio  # noqa: PLC0415

        if self._pid != os.getpid():  # a forked child has no thread for it
            self._reset()
        with self._lock:
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                # A worker per loop: one that was closed may still run what can't be cancelled.
                Worker(self._name, linger=0).submit(partial(_serve, loop))
            return self._loop


async def _without_exit(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine; an exit within it ends the call, not the loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_exception(error) from error


def _serve(loop: AbstractEventLoop) -> None:
    import asyncio  # noqa: PLC0415

    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            # Its caller learned at the deadline that it would not be cancelled.
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
        loop.close()
