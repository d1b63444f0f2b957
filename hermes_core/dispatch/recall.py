"""Recall within a budget. An answer that comes too late may serve the next turn, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from hermes_core.dispatch.health import SLOW_SECONDS
from hermes_core.dispatch.worker import Job, Worker, as_exception, rounded
from hermes_core.errors import AnswerLate, DeadlineExceeded, ProviderPaused
from hermes_core.provider import PARTS

# Even with a budget of 0 an answer that is ready must get from one thread to the other.
_GRACE: Final = 0.01
# After this many turns in a row that waited in vain, a turn waits only `SLOW_SECONDS`.
_IN_VAIN: Final = 2
_SETTING: Final = "to wait longer: hermes-plugins config set memory.prefetch_budget SECONDS"


class LateAnswer(str):
    """Recalled text that answers ``question``, a question of an earlier turn."""

    __slots__ = ("question",)

    question: str

    def __new__(cls, text: str, question: str) -> Self:
        """Make it from the text and the question."""
        answer = super().__new__(cls, text)
        answer.question = question
        return answer


@dataclass(slots=True)
class _RecallCall:
    """One recall: ``parts`` is what it returned so far, ``seconds`` how long it took."""

    session: str
    question: str
    call: Callable[[], Any]
    clock: Callable[[], float]
    parts: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def run(self) -> Any:
        """Call the provider, on the recall worker."""
        PARTS.set(self.parts)  # in the context of this job alone
        began = self.clock()
        try:
            return self.call()
        finally:
            self.seconds = self.clock() - began


class BoundedRecall:
    """Recalls on a worker, and stores an answer that did not arrive in time.

    A turn waits for the whole budget only while that is useful. After two turns in a row that
    waited in vain, a turn waits a quarter of a second. The provider is still called: an answer
    that arrives later may serve the next turn, and one that took no longer than the budget
    restores the whole budget.

    Args:
        worker: Runs the provider's calls.
        budget: Seconds that the turn waits.
        patience: Seconds after which a call that still runs counts as hanging.
        failed: Called with an error that came too late for its caller, and its seconds.
        answered: Called when an answer came too late for its caller.
        clock: Measures how long a turn waited.
    """

    def __init__(
        self,
        worker: Worker,
        budget: float,
        patience: float,
        failed: Callable[[Exception, float], None],
        answered: Callable[[], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._worker = worker
        self._failed = failed
        self._answered = answered
        self._clock = clock
        self._budget = max(budget, _GRACE)
        # Twice the budget: the late answer may still serve the next turn. A budget of 0 means "only
        # what is ready at once", so the deadline of ordinary hooks applies.
        self._patience = max(2 * budget, 0) or patience
        self._in_vain = 0
        self._session = ""
        self._asked: _RecallCall | None = None
        self._running: tuple[_RecallCall, Job] | None = None
        self._earlier: tuple[_RecallCall, Job] | None = None

    @property
    def patience(self) -> float:
        """How long a recall may run, whether or not somebody still waits for it."""
        return self._patience

    @property
    def budget(self) -> float:
        """How long the next turn waits."""
        in_vain = self._in_vain >= _IN_VAIN
        return min(self._budget, SLOW_SECONDS) if in_vain else self._budget

    @property
    def part(self) -> str:
        """What the recall of this turn has returned so far by `hand_over`; "" if nothing."""
        return "\n\n".join(self._asked.parts) if self._asked is not None else ""

    @property
    def is_late(self) -> bool:
        """Whether a recall still runs that no turn waits for any more."""
        return self._running is not None and not self._running[1].wait(0)

    def begin(self, session: str) -> None:
        """Start a turn of a session. Only the recall that the previous turn left may serve it."""
        self._session = session
        self._earlier, self._running = self._running, None
        self._asked = None

    def ask(self, call: Callable[[], Any], question: str) -> Any:
        """Return what the provider answers within the budget.

        Raises:
            AnswerLate: The call goes on; `late` may have the answer on the next turn.
            ProviderPaused: An earlier call hangs, or is slow.
            Exception: Whatever the provider raised.
        """
        if self._worker.overdue:
            _ = self._worker.stuck  # replaces the thread of the call that hangs
            raise ProviderPaused("an earlier call still hangs")
        budget = self.budget
        # The provider is slow. A second question would only wait in the queue behind the first one.
        slow = self._in_vain >= _IN_VAIN
        if slow and self._earlier is not None and not self._earlier[1].wait(0):
            raise ProviderPaused("an earlier recall still runs")
        self._asked = asked = _RecallCall(self._session, question, call, self._clock)
        began = self._clock()
        job = self._worker.submit(asked.run, self._patience, "prefetch", awaited=True)
        if job is None:
            raise ProviderPaused("it is shut down")
        return self._awaited(asked, job, began, budget)

    def _awaited(self, asked: _RecallCall, job: Job, began: float, budget: float) -> Any:
        if self._worker.wait_for(job, began + budget - self._clock()):
            # A fast error costs the turn nothing and does not count as a turn that waited in vain.
            waited = self._clock() - began >= SLOW_SECONDS
            self._in_vain = self._in_vain + waited if job.error is not None else 0
            return job.result()
        self._in_vain += 1
        if job.claim():  # it has not started, and now never will
            raise DeadlineExceeded(f"no answer within {rounded(budget)} s: an earlier call is slow")
        self._running = (asked, job)
        raise AnswerLate(
            f"no answer within {rounded(budget)} s; it may serve the next turn", hint=_SETTING
        )

    def late(self) -> LateAnswer | None:
        """Return the answer to an earlier turn's question, if it has arrived since."""
        if self._earlier is None:
            return None
        (asked, job), self._earlier = self._earlier, None
        if not job.wait(0):
            self._running = self._running or (asked, job)  # it may serve a later turn
            return None
        if job.error is not None:
            self._failed(as_exception(job.error), asked.seconds)
            return None
        self._answered()
        if asked.seconds <= self._budget:
            self._in_vain = 0
        text = job.value
        # An answer for another session could reveal what a different user said.
        if asked.session != self._session or not isinstance(text, str) or not text.strip():
            return None
        return LateAnswer(text, asked.question)
