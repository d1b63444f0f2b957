"""What a fake provider was given, what it answers, and how it misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from hermes_core.hookspecs import HOOKS, Messages

#: What a provider answers without its backend; everything else fails while that is down.
_WITHOUT_BACKEND: Final = frozenset(
    {
        "is_available",
        "unavailable_reason",
        "system_prompt_block",
        "get_tool_schemas",
        "shutdown",
        "get_config_schema",
        "save_config",
        "backup_paths",
    }
)


class Call(NamedTuple):
    """One call as it arrived: ``arguments`` by name, ``at`` in seconds of `time.monotonic`."""

    hook: str
    arguments: Mapping[str, Any]
    at: float


class Turn(NamedTuple):
    """A turn that was kept."""

    user: str
    assistant: str
    session_id: str
    turn_id: str
    messages: Messages | None


class _Trouble:
    """How one hook misbehaves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.gate: threading.Event | None = None
        self.error: BaseException | None = None
        self.times: int | None = 0
        self.after = False

    def delay(self) -> None:
        if self.seconds:
            sleep(self.seconds)
        gate = self.gate  # somebody may open it meanwhile
        if gate is not None:
            gate.wait()

    def fail(self, *, after: bool) -> None:
        """Raise, if it is time to."""
        if self.error is None or self.after is not after or self.times == 0:
            return
        if self.times is not None:
            self.times -= 1
        raise self.error.with_traceback(None)  # or it would grow with each time


class Script:
    """Records calls and plays its part. `FakeProvider` puts the contract on top.

    Args:
        answers: What hooks give back.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._turns: dict[str, Turn] = {}
        self._down = False
        self._trouble: dict[str, _Trouble] = {}
        self._answers: dict[str, Any] = {}
        for hook, answer in answers.items():
            self.answer(hook, answer)

    # -- what it was given ----------------------------------------------------------------

    @property
    def calls(self) -> list[Call]:
        """Every call, in the order of arrival; those that failed, too."""
        with self._changed:
            return [*self._calls]

    def of(self, hook: str) -> list[Call]:
        """The calls of one hook."""
        return [call for call in self.calls if call.hook == hook]

    @property
    def turns(self) -> list[Turn]:
        """The turns that it has kept: one for each id, however often it came."""
        with self._changed:
            return [*self._turns.values()]

    def wait_for(self, hook: str, count: int = 1, timeout: float = 5.0) -> bool:
        """Whether a hook has been called so often, after at most ``timeout`` seconds."""
        _known(hook)
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(call.hook == hook for call in self._calls) >= count, timeout
            )

    # -- what it shall do -----------------------------------------------------------------

    def answer(self, hook: str, value: Any) -> None:
        """From now on, what a hook gives back: a value, or a function of its arguments."""
        self._answers[_known(hook)] = value

    def slow(self, hook: str, seconds: float) -> None:
        """From now on, let a hook take so long; 0 for no longer than it must."""
        self._of(hook).seconds = seconds

    def hang(self, hook: str) -> None:
        """From now on, let a hook wait for `release`."""
        trouble = self._of(hook)
        trouble.gate = trouble.gate or threading.Event()

    def release(self) -> None:
        """Let everything go on that hangs, and hang no more."""
        for trouble in self._trouble.values():
            gate, trouble.gate = trouble.gate, None
            if gate is not None:
                gate.set()

    def fail(
        self,
        hook: str,
        error: BaseException | None = None,
        *,
        times: int | None = None,
        after: bool = False,
    ) -> None:
        """From now on, let a hook raise.

        Args:
            hook: Which one.
            error: What it raises; by default a ConnectionError.
            times: How often; by default always, and 0 for no more.
            after: Whether it does its work first, as when an answer gets lost.
        """
        trouble = self._of(hook)
        trouble.error = error or ConnectionError(f"the fake backend failed in {hook}")
        trouble.times, trouble.after = times, after

    def go_down(self) -> None:
        """From now on, let every hook that needs the backend raise a ConnectionError."""
        self._down = True

    def come_up(self) -> None:
        """The backend is there again. What `fail`, `slow` and `hang` said still holds."""
        self._down = False

    def _of(self, hook: str) -> _Trouble:
        return self._trouble.setdefault(_known(hook), _Trouble())

    def _take(self, hook: str, /, **arguments: Any) -> Any:
        """A call has come: note it, misbehave as told, do the work, answer."""
        with self._changed:
            self._calls.append(Call(hook, MappingProxyType(arguments), monotonic()))
            self._changed.notify_all()
        trouble = self._trouble.get(hook) or _Trouble()
        trouble.delay()
        if self._down and hook not in _WITHOUT_BACKEND:
            raise ConnectionError("the fake backend is down")
        trouble.fail(after=False)
        if hook == "sync_turn":
            self._keep(arguments)
        trouble.fail(after=True)
        answer = self._answers.get(hook, HOOKS[hook].neutral)
        return answer(**arguments) if callable(answer) else answer

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        names = ("user_content", "assistant_content", "session_id", "turn_id", "messages")
        turn = Turn(*(arguments[name] for name in names))
        with self._changed:
            self._turns.setdefault(turn.turn_id or f"unnamed {len(self._turns)}", turn)


def _known(hook: str) -> str:
    """The name of a hook; a slip in a test must not go unnoticed."""
    if hook not in HOOKS:
        raise ValueError(f"{hook!r} is no method of a provider; these are: {', '.join(HOOKS)}")
    return hook
