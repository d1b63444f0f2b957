"""What takes long runs in the background: one job at a time of each kind, each with a result.

Provider code runs in a child process with a deadline, so a job always ends. Pages show a job's
state and never wait for it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from hermes_core import HermesError
from hermes_core.dispatch.worker import Worker
from hermes_core.errors import describe

#: Results that are kept; a page that asks for an older one starts it again.
_KEPT: Final = 50
#: Jobs of one kind that wait or run; more clicks get an error that says to wait.
_WAITING: Final = 4
#: How long a thread waits for the next job.
_LINGER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """Something that runs in the background, or has run.

    Attributes:
        id: Its name in addresses.
        kind: What it does: recall, forget, ...
        title: For people, while it runs.
        about: What it was started with.
        started: When it was started.
        seconds: How long it took; None while it runs.
        result: What it returned.
        problem: Why it failed; "" if it did not.
    """

    id: str
    kind: str
    title: str
    about: Any
    started: float
    seconds: float | None = None
    result: Any = None
    problem: str = ""

    @property
    def running(self) -> bool:
        """Whether there is no result yet."""
        return self.seconds is None


class Jobs:
    """The jobs of a page, the newest of them with their results.

    Args:
        clock: Returns the time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, BackgroundJob] = {}
        self._workers: dict[str, Worker] = {}
        #: Grows with each job that starts or ends.
        self.version = 0

    def start(
        self, kind: str, title: str, call: Callable[[], Any], about: Any = None
    ) -> BackgroundJob:
        """Run a function in the background.

        Args:
            kind: Jobs of one kind run one after the other.
            title: For people, while it runs.
            call: The function.
            about: What it is started with, for the page that shows it.

        Raises:
            HermesError: Too many of this kind wait already.
        """
        job = BackgroundJob(secrets.token_hex(8), kind, title, about, self._clock())
        with self._lock:
            if sum(each.running and each.kind == kind for each in self._jobs.values()) >= _WAITING:
                raise HermesError("too many jobs are queued", hint="try again in a moment")
            self._jobs[job.id] = job
            self._forget_old()
            worker = self._workers.get(kind)
            if worker is None:
                worker = Worker(f"ui-{kind}", linger=_LINGER_SECONDS)
                self._workers[kind] = worker
            self.version += 1
        worker.submit(lambda: self._run(job, call))
        return job

    def _run(self, job: BackgroundJob, call: Callable[[], Any]) -> None:
        result, problem = None, ""
        try:
            result = call()
        except HermesError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the page shows it
            problem = describe(error)
        seconds = max(self._clock() - job.started, 0.0)
        done = replace(job, seconds=seconds, result=result, problem=problem)
        with self._lock:
            self._jobs[job.id] = done
            self.version += 1

    def _forget_old(self) -> None:
        ended = [each.id for each in self._jobs.values() if not each.running]
        for name in ended[: max(len(self._jobs) - _KEPT, 0)]:
            del self._jobs[name]

    def get(self, name: str, kind: str = "") -> BackgroundJob | None:
        """A job; None if it is not known any more, or of another kind."""
        with self._lock:
            job = self._jobs.get(name)
        return job if job is not None and kind in ("", job.kind) else None

    def newest(self, kind: str) -> BackgroundJob | None:
        """The newest job of a kind."""
        with self._lock:
            found = [each for each in self._jobs.values() if each.kind == kind]
        return found[-1] if found else None

    def close(self) -> None:
        """Start nothing more."""
        for worker in self._workers.values():
            worker.close()
