"""A lane: one daemon thread that runs a provider's calls one after the other.

Daemon threads and no `ThreadPoolExecutor`: the interpreter joins an executor's threads at
exit, so that a provider which hangs would keep the agent from ending.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final

from hermes_core.errors import DeadlineExceeded, ProviderCallError, ProviderPaused


class Job:
    """One call on its way through a lane.

    Args:
        call: What to run.
        deadline: How many seconds it may run.
        hook: What it is, for whoever hears that it hangs.
        awaited: Whether its caller waits, and will notice by itself.
    """

    __slots__ = (
        "_call",
        "_claim",
        "_context",
        "_finished",
        "awaited",
        "deadline",
        "error",
        "hook",
        "started",
        "value",
    )

    def __init__(
        self, call: Callable[[], Any], deadline: float, hook: str = "", *, awaited: bool = False
    ) -> None:
        self._call = call
        # The calling thread's context variables hold there as they would in a plain call.
        self._context = copy_context()
        # Two plain locks instead of two events: a turn makes several of these.
        self._claim = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()
        self.deadline = deadline
        self.hook = hook
        self.awaited = awaited
        self.started: float | None = None
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call, and keep the result; nothing escapes, not even SystemExit."""
        self.started = monotonic()
        try:
            self.value = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - the provider boundary
            self.error = error

    def finish(self) -> None:
        """Let those go on who wait for it."""
        self._finished.release()

    def claim(self) -> bool:
        """True for the first who asks: the lane that starts it or the caller who gives up."""
        return self._claim.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Whether it has finished, after waiting for at most ``timeout`` seconds."""
        if not self._finished.acquire(timeout=max(timeout, 0)):
            return False
        self._finished.release()
        return True

    def result(self) -> Any:
        """The value of a finished job, or what it raised."""
        if self.error is None:
            return self.value
        raise contained(self.error)

    def left(self) -> float:
        """How many seconds it may still run; below zero when it is overdue."""
        return self.deadline if self.started is None else self.started + self.deadline - monotonic()


def contained(error: BaseException) -> Exception:
    """An exception that ends a call and nothing else.

    A SystemExit or KeyboardInterrupt of a plugin's own making must not end the agent.
    """
    if isinstance(error, Exception):
        return error
    told = ProviderCallError(f"raised {type(error).__name__}: {error}".removesuffix(": "))
    told.__cause__ = error
    return told


class Lane:
    """Runs jobs in order on a thread that is started when first needed.

    A job that runs past its deadline loses the thread: the lane goes on with a new one.
    It does so once; while two calls hang, nothing more is started until one returns.

    Args:
        name: The thread's name.
        hung: Told of each job that loses the thread.
    """

    _SPARE: Final = 1

    def __init__(self, name: str, hung: Callable[[Job], None] | None = None) -> None:
        self.name = name
        self._hung = hung
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._current: Job | None = None
        self._last: Job | None = None
        self._abandoned = 0
        self._lost = 0  # of these, the calls that nobody waited for

    @property
    def stuck(self) -> bool:
        """Whether a call hangs past its deadline, with or without a replacement at work."""
        self._watch()
        return self._abandoned > 0 or self.overdue

    def on_thread(self) -> bool:
        """Whether the caller runs on this lane's thread."""
        return threading.current_thread() is self._thread

    def submit(
        self, call: Callable[[], Any], deadline: float, hook: str = "", *, awaited: bool = False
    ) -> Job | None:
        """Queue a call and return at once; None if the lane is closed.

        One that is ``awaited`` is no queued work, for `flush` to wait for.
        """
        if self._closed:
            return None
        self._ready()
        job = Job(call, deadline, hook, awaited=awaited)
        if not awaited:
            self._last = job
        self._jobs.put(job)
        return job

    def call(self, call: Callable[[], Any], deadline: float, hook: str = "") -> Any:
        """Run a call and give its value; raise what it raised, or `DeadlineExceeded`.

        The deadline covers the wait for the thread too. A call that has not started by then
        never will.
        """
        if self._closed:
            raise ProviderPaused("it is shut down")
        self._ready()
        if self.overdue:
            raise ProviderPaused("an earlier call still hangs")
        job = Job(call, deadline, hook, awaited=True)
        at_once = 0 if self._current is not None or self._jobs.qsize() else deadline
        # Nothing between these two: while we run, the thread that we woke can't.
        self._jobs.put(job)
        if not job.wait(at_once) and not self.wait_for(job, deadline - at_once):
            if job.claim():
                raise DeadlineExceeded(f"no answer within {deadline:g} s: an earlier call is slow")
            job.deadline = 0  # whatever it waited for, its caller has left: it is overdue
            self._watch()
            raise DeadlineExceeded(f"no answer within {deadline:g} s")
        return job.result()

    def wait_for(self, job: Job, seconds: float) -> bool:
        """Wait for a job behind others, and see to it that they don't hold it up for ever."""
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            current = self._current
            ahead = 0.01 if current is None else left if current is job else current.left()
            if job.wait(min(left, max(ahead + 0.001, 0.001))):
                return True
            self._watch()
        return job.wait(0)

    def flush(self, timeout: float) -> bool:
        """Whether all that was queued has been run, after at most ``timeout`` seconds."""
        job = self._last
        if job is None or self._pid != os.getpid():
            return True
        end = monotonic() + timeout
        while not job.wait(min(0.05, end - monotonic())):
            self._watch()
            if monotonic() >= end:
                return False
        return self._lost == 0

    def rearm(self, hook: str) -> None:
        """Let the call that runs here begin its time anew: it goes on with something else."""
        current = self._current
        if current is not None and self.on_thread():
            current.hook = hook
            current.started = monotonic()

    def pending(self) -> int:
        """How many calls are queued or running."""
        return self._jobs.qsize() + (self._current is not None) + self._abandoned

    def close(self) -> None:
        """Run nothing more; the thread ends with the call that it runs."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the thread of a closed lane to end."""
        with self._lock:  # one that is just being started can't be waited for
            thread = self._thread
        if thread is not None and not self.on_thread():
            thread.join(max(timeout, 0))

    def _ready(self) -> None:
        """See to it that there is a thread, and that it gets somewhere."""
        if self._pid != os.getpid():  # a forked child has none of our threads
            self._reset()
        if self._thread is None:
            self._start()
        elif self._current is not None:
            self._watch()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name=self.name, daemon=True)
                self._thread = thread
                thread.start()

    def _work(self) -> None:
        me = threading.current_thread()
        jobs = self._jobs
        while self._thread is me:
            job = jobs.get()
            if job is None or self._closed:
                return
            if not job.claim():
                job.finish()
                continue
            self._current = job
            job.run()
            with self._lock:
                if self._current is job:
                    self._current = None
                else:
                    self._abandoned -= 1
                    self._lost -= not job.awaited
            job.finish()  # last: whoever wakes up finds the interpreter free

    @property
    def overdue(self) -> bool:
        """Whether the call that has the thread is past its deadline."""
        current = self._current
        return current is not None and current.started is not None and current.left() < 0

    def _watch(self) -> None:
        """Replace the thread if its call is overdue. There is no watchdog: who calls looks."""
        if not self.overdue:
            return
        with self._lock:
            job = self._current
            spent = self._abandoned >= self._SPARE
            if self._closed or job is None or spent or not self.overdue:
                return
            self._abandoned += 1
            self._lost += not job.awaited
            self._current = None
            self._thread = None
        self._start()
        if self._hung is not None:
            self._hung(job)
