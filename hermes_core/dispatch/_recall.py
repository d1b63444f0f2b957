"""Recall within a budget. An answer that comes too late may serve the next turn, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

from hermes_core.dispatch._lane import Job, Lane, contained
from hermes_core.errors import AnswerLate, DeadlineExceeded, ProviderPaused

#: With a budget of nothing only what is ready counts. That, too, has to change threads.
_GRACE: Final = 0.01


class LateAnswer(str):
    """What was recalled for ``question``, which is not the one that was asked last."""

    __slots__ = ("question",)

    question: str

    def __new__(cls, text: str, question: str) -> Self:
        answer = super().__new__(cls, text)
        answer.question = question
        return answer


class _Asked(NamedTuple):
    session: str
    question: str
    job: Job


class Recall:
    """Asks on the recall lane, and keeps what did not come in time.

    Args:
        lane: Where the provider is asked.
        budget: Seconds that the turn waits.
        patience: Seconds after which a call that still runs hangs.
        failed: Told of errors that came too late for whoever asked.
    """

    def __init__(
        self,
        lane: Lane,
        budget: float,
        patience: float,
        failed: Callable[[Exception], None],
    ) -> None:
        self._lane = lane
        self._failed = failed
        self._budget = max(budget, _GRACE)
        self._patience = max(2 * budget, 0) or patience
        self._running: _Asked | None = None
        self._earlier: _Asked | None = None

    @property
    def patience(self) -> float:
        """How long an answer may take that nobody waits for any more."""
        return self._patience

    def begin(self) -> None:
        """A turn begins: only what the last one did not wait for may serve it."""
        self._earlier, self._running = self._running, None

    def ask(self, call: Callable[[], Any], session: str, question: str) -> Any:
        """What the provider answers within the budget.

        Raises:
            AnswerLate: It works on; `late` may have the answer on the next turn.
            ProviderPaused: An earlier call hangs.
            Exception: Whatever the provider raised.
        """
        if self._lane.overdue:
            _ = self._lane.stuck  # who asks, looks: the call that hangs loses its thread
            raise ProviderPaused("an earlier call still hangs")
        job = self._lane.submit(call, self._patience, "prefetch", awaited=True)
        if job is None:
            raise ProviderPaused("it is shut down")
        if self._lane.wait_for(job, self._budget):
            return job.result()
        if job.claim():  # it never began, and never will
            raise DeadlineExceeded(f"no answer within {self._budget:g} s: an earlier call is slow")
        self._running = _Asked(session, question, job)
        raise AnswerLate(f"no answer within {self._budget:g} s; it may serve the next turn")

    def late(self, session: str) -> LateAnswer | None:
        """The answer to the last turn's question, if it has come since."""
        asked, self._earlier = self._earlier, None
        if asked is None or not asked.job.wait(0):
            return None
        if asked.job.error is not None:
            self._failed(contained(asked.job.error))
            return None
        text = asked.job.value
        if asked.session != session or not isinstance(text, str) or not text.strip():
            return None
        return LateAnswer(text, asked.question)
